/* runtime/exec.h -- a loaded plan, shared by the executor's files. Internal to runtime/. */
#ifndef NNC_EXEC_H
#define NNC_EXEC_H

#include "runtime/runtime.h"
#include <stdatomic.h>

typedef struct dev {
    const nnc_device_api *api;
    nnc_device *device;
    nnc_stream **stream;
    nnc_event **end;  /* of each stream: its part of a run is done */
    nnc_event *begin; /* stream 0: inputs are in */
    void *base[3];    /* by nnc_space */
    nnc_exec_memory requested;
} dev;

/* A prepared call or kernel. Commands of one stream that run the same item share it. */
typedef struct prepared {
    const nnc_engine *engine;
    void *handle;
    const dev *on;
    bool main; /* used by main, too: outlives init */
} prepared;

/* A CMD_weight as work on its stream, so that it keeps its place among the packs that read it. */
typedef struct weight_work {
    nnc_exec *e;
    const nnc_cmd *cmd;
    nnc_status status; /* of the read; the stream knows only that it failed */
    int64_t ns;        /* that it took */
} weight_work;

/* Where a run finds its tensors: in the plan's arenas, or a pipe's slot with inputs and outputs of its own. What the device has written
 * down of main holds addresses, so each table has its own. */
typedef struct table {
    void **arg; /* all commands' arguments as addresses */
    void **at;  /* by tensor: where it lies instead, or NULL; NULL: all as planned */
    int runs;             /* of main, given command by command and well */
    bool no_replay;       /* not wanted, or the device could not write main down */
    nnc_capture *capture; /* main, written down */
    nnc_exec *e;
} table;

struct nnc_exec {
    const nnc_plan *p;
    const char *weight_dir;
    const nnc_engine **engine; /* by plan index */
    dev *dev;
    int n_stream;
    nnc_event **event, **clock; /* plan's; profile's: two per command of main */
    int32_t *record;            /* by event: the command that records it */
    void *staging;              /* for copies between devices of two kinds that both hide their memory */
    table own, *use;    /* as planned; that of the next run */
    int64_t *first_arg; /* by command */
    prepared **handle;  /* by command, into owned */
    prepared *owned;
    int n_owned;
    weight_work *weight; /* by command */
    nnc_exec_phases phase;
    const nnc_watch *watch; /* checks runs of main (watch.c); NULL: none does */
    _Atomic bool unwatched; /* a check has failed: the next runs do without */
    bool watched;           /* the stream's thread: the run in progress is checked */
    int64_t first_given; /* when main was first given; 0: not yet, -1: it is done */
};

/* Adds the time since `from` to a phase. */
static inline void nnc_exec_spent(nnc_exec *e, nnc_phase which, int64_t from)
{
    e->phase.ns[which] += nnc_now_ns() - from;
}

static inline void *nnc_exec_address(const nnc_exec *e, int tensor)
{
    const nnc_ptensor *t = &e->p->tensor[tensor];
    void *moved = e->use->at ? e->use->at[tensor] : NULL;
    return moved ? moved : (char *)e->dev[t->device].base[t->space] + t->offset;
}

/* Fills t->arg by the addresses that tensors have with table t; it becomes e->use. */
nnc_status nnc_exec_fill(nnc_exec *e, table *t, nnc_sink *sink);

/* What run relies on without looking: indices in range, few enough arguments, as many as the call takes. */
nnc_status nnc_exec_check(const nnc_plan *p, nnc_sink *sink);
nnc_status nnc_exec_find_engines(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
nnc_status nnc_exec_load(nnc_exec *e, nnc_sink *sink);
void nnc_exec_unload(nnc_exec *e, bool all); /* not all: what only init used */

nnc_status nnc_exec_weight(nnc_exec *e, int cmd);
/* Between devices of one kind the device waits and copies. Between kinds the host does: it waits for the stream first. */
typedef struct place { dev *d; int stream; } place;
nnc_status nnc_exec_wait(place at, place from, nnc_event *recorded);
nnc_status nnc_exec_copy(nnc_exec *e, const nnc_cmd *c, place at);
bool nnc_exec_hidden_copy(const nnc_exec *e, const nnc_cmd *c); /* such as needs e->staging */
/* Gives command `cmd` to its stream. */
nnc_status nnc_exec_issue(nnc_exec *e, int cmd);

/* watch.c. Finds out who checks runs of main; gives the check's begin and end to main's stream. */
void nnc_exec_find_watch(nnc_exec *e);
nnc_status nnc_exec_watch(nnc_exec *e, bool begin);

/* replay.c. Runs main from what the device has written down, which it is made to do when main has run once (what engines and libraries
 * do once only is behind them then). *done: it was so run; else the caller gives it command by command. */
nnc_status nnc_exec_replay(nnc_exec *e, bool *done, nnc_sink *sink);
/* Reports the first weight that could not be read; false when none. */
bool nnc_exec_weight_failure(nnc_exec *e, nnc_sink *sink);

#endif
