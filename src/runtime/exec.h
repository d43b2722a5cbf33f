/* runtime/exec.h -- a loaded plan, shared by the executor's files. Internal to runtime/. */
#ifndef NNC_EXEC_H
#define NNC_EXEC_H

#include "runtime/runtime.h"
#include <stdatomic.h>


typedef struct dev {
    const nnc_device_api *api;
    nnc_device *device;
    nnc_stream **stream;
    nnc_event **end;  /* by stream: its part of a run is done */
    nnc_event *begin; /* stream 0: inputs are uploaded */
    void *base[3];    /* by nnc_space; SP_persist: see nnc_exec.fixed */
    int ordinal;
    struct nnc_block *statics; /* this executor's own static values (shared.c); NULL: none */
    nnc_exec_memory requested;
    nnc_engine_env env;
} dev;

/* Machine code that one engine has loaded, shared by kernels. */
typedef struct loaded_object {
    void *object; /* NULL: not loaded */
    int users;
} loaded_object;

/* Events of several devices, destroyed together. */
typedef struct events {
    struct owned_event {
        const dev *on;
        nnc_event *event;
    } *at;
    size_t n, cap;
} events;

/* A prepared call or kernel. Commands of one stream that run the same item share it. */
typedef struct prepared {
    const nnc_engine *engine;
    void *handle;
    const dev *on;
    loaded_object *object; /* NULL: none */
    bool main; /* also used by main: outlives init */
    bool init; /* used by commands of init that run */
} prepared;

/* A CMD_weight as work on its stream, in order with the packing that reads it. */
typedef struct weight_work {
    nnc_exec *e;
    const nnc_cmd *cmd;
    nnc_status status; /* of the read; the stream only knows that it failed */
    int64_t ns;        /* duration */
} weight_work;

/* A part of the commands that is captured and replayed as a whole: main, or what follows it up to the end of accumulate or step. */
typedef struct part_of_run {
    int runs;             /* successful runs without replay */
    bool no_replay;       /* disabled, or the device could not capture it */
    nnc_capture *capture;
} part_of_run;

/* Addresses of tensors for a run: in the plan's arenas, or in a pipe's slot with inputs and outputs of its own. Captures contain
 * addresses, so each table has its own. */
typedef struct table {
    void **arg; /* all commands' arguments as addresses */
    void **at;  /* by tensor: its address instead of the planned one, or NULL; NULL: all as planned */
    part_of_run part[SEC__COUNT]; /* by section; of init: unused */
    nnc_exec *e;
} table;

struct nnc_exec {
    const nnc_plan *p;
    nnc_arena arena; /* of all arrays below */
    events events;   /* all of them */
    nnc_weight_files files; /* open while init runs */
    const nnc_engine **engine; /* by plan index */
    dev *dev;
    int n_stream;
    nnc_event **event, **clock; /* plan's; profile's: two per command of main */
    int32_t *record;            /* by event: the command that records it */
    void *staging;              /* for copies between devices of two kinds that both hide their memory */
    bool replays; /* its devices capture and replay parts of runs */
    table own, *use;    /* the planned addresses; those of the next run */
    int64_t *first_arg; /* by command */
    prepared **handle;  /* by command, into owned */
    struct participant **collective; /* by command; NULL: the plan has none */
    nnc_comm *self;     /* messages of collectives within this process; NULL: none, or through ranks */
    bool self_broken;   /* since a command could not be submitted */
    struct exec_ranks *ranks; /* NULL: all devices are this process's */
    struct progress *progress; /* submits the commands of GPUs that need the host; NULL: none do */
    struct nccl *nccl; /* NULL: no collective goes through it */
    prepared *owned;
    loaded_object *object; /* by engine and the plan's object */
    int n_owned;
    weight_work *weight; /* by command */
    int32_t *owner; /* by owned handle: its first command */
    nnc_shared *shared; /* static values; those of this executor are in these blocks */
    struct nnc_block **block;
    size_t n_block, cap_block;
    struct nnc_static *made; /* by tensor */
    void **fixed; /* by tensor: the address of what is persistent */
    bool *idle; /* by command of init: it need not run */
    nnc_exec_phases phase;
    const nnc_watch *watch; /* checks runs of main (watch.c); NULL: none */
    _Atomic bool unwatched; /* a check has failed: later runs are not checked */
    bool watched;           /* the stream's thread: the current run is checked */
    bool timed; /* over ranks: a time stamp around every command of the next parts */
    int64_t first_given; /* when main was first submitted; 0: not yet, -1: it is done */
};

/* An executor among those of other ranks (ranks.c). */
typedef struct exec_ranks {
    nnc_job *job;
    nnc_comm *comm;  /* of this plan's messages: each has the command as its tag */
    int rank;
    int id;          /* of the executor in the job */
    int *owner;      /* by device: its rank */
    nnc_message *recv; /* of copies from other ranks, in the order of their commands */
    int32_t *recv_cmd;
    int n_recv;
    /* A receive into memory that earlier commands of the part use begins when the last of them on each stream is done, as MPI wants. */
    struct lender { int32_t cmd; int recv, next; } *lender; /* by recv; next: of the same command, -1 */
    size_t n_lender, cap_lender;
    int *n_lent, *first_lent; /* by recv: such commands, and the first in lender */
    _Atomic int *lent; /* of them, in this part: not done */
    int begun, end;  /* those of the current part: recv[begun..end) */
    struct sent *sent; /* copies to other ranks, in the order of their commands (sends.c) */
    int n_sent, sent_begun, sent_end; /* those of the current part: sent[sent_begun..sent_end) */
    int *send_of;    /* by command: in sent; -1: none */
    char *stage;     /* the block that messages are copied to first; NULL: none */
    struct held *held;
    size_t n_held, cap_held;
    int *first_held; /* by command: the sends that it waits for, in held; -1 */
    _Atomic int in_flight; /* begun and not known to be done */
    int32_t part_end; /* its last command + 1 */
    int64_t unpolled_ns; /* of work submitted since MPI was last given a look, by a rule of thumb */
    struct crossing *at; /* by command */
    nnc_message *signal; /* of own events to other ranks, by the command there that waits */
    int32_t *signalled;  /* those commands */
    int n_signalled;
    int *next_wait;  /* by command that waits: the next one that waits for the same event on another rank, -1 */
    int *first_wait; /* by event, -1 */
    int running;     /* runs that the followers have not reported yet */
    nnc_sink *said;  /* what a stream says of a command that failed, until it is known whether a lost rank was the cause */
} exec_ranks;

/* Is device d of this process? */
static inline bool nnc_exec_owns(const nnc_exec *e, int d) { return !e->ranks || e->ranks->owner[d] == e->ranks->rank; }

/* Adds the time since `from` to a phase. */
static inline void nnc_exec_spent(nnc_exec *e, nnc_phase which, int64_t from)
{
    e->phase.ns[which] += nnc_now_ns() - from;
}

static inline void *nnc_exec_address(const nnc_exec *e, int tensor)
{
    const nnc_ptensor *t = &e->p->tensor[tensor];
    if (!nnc_exec_owns(e, t->device))
        return NULL;
    void *moved = e->use->at ? e->use->at[tensor] : NULL;
    moved = moved || !e->fixed ? moved : e->fixed[tensor];
    return moved ? moved : (char *)e->dev[t->device].base[t->space] + t->offset;
}

/* Fills t->arg, in `a`, with the tensors' addresses by table t, which becomes e->use. */
nnc_status nnc_exec_fill(nnc_exec *e, table *t, nnc_arena *a, nnc_sink *sink);
/* Creates an event of device d, which the list owns; the list's memory is in `a`. */
nnc_status nnc_exec_event(events *l, nnc_arena *a, const dev *d, nnc_event **out, nnc_sink *sink);
void nnc_exec_drop_events(const events *l);

/* Checks what run relies on: indices in range, the right number of arguments. */
nnc_status nnc_exec_check(const nnc_plan *p, nnc_sink *sink);
nnc_status nnc_exec_find_engines(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
/* Finds the handles that commands need; loads those that main uses, or the others that init uses. */
nnc_status nnc_exec_find_handles(nnc_exec *e, nnc_sink *sink);
nnc_status nnc_exec_load(nnc_exec *e, bool main, nnc_sink *sink);
void nnc_exec_unload(nnc_exec *e, bool all); /* not all: what only init used */

nnc_status nnc_exec_weight(nnc_exec *e, int cmd);
/* Between devices of one kind the device waits and copies. Between kinds the host does: it waits for the stream first. */
typedef struct place { dev *d; int stream; } place;
nnc_status nnc_exec_wait(place at, place from, nnc_event *recorded);
nnc_status nnc_exec_copy(nnc_exec *e, const nnc_cmd *c, place at);
bool nnc_exec_hidden_copy(const nnc_exec *e, const nnc_cmd *c); /* true when it needs e->staging */
/* The work of a command that `run` does with `handle`. */
nnc_work nnc_exec_work(const nnc_exec *e, int cmd, nnc_status (*run)(void *, void *const *, void *), void *handle);
/* Submits command `cmd` to its stream. */
nnc_status nnc_exec_issue(nnc_exec *e, int cmd);

/* Waits for this process's streams. */
nnc_status nnc_exec_sync_own(nnc_exec *e, nnc_sink *sink);

enum { NNC_MAX_PARTICIPANTS = 256 };
/* collective.c. Prepares the plan's collectives; submits a participant's command; after a command that could not be submitted: ends the
 * waits of those that were; once all streams are idle: prepares them for the next run. */
nnc_status nnc_exec_find_collectives(nnc_exec *e, nnc_sink *sink);
nnc_status nnc_exec_collective(nnc_exec *e, int cmd);
void nnc_exec_break_collectives(nnc_exec *e);
nnc_status nnc_exec_mend_collectives(nnc_exec *e);

/* ranks.c. Joins the other ranks' executors, which must have the same plan; ends of loading, on all ranks; leaves them. */
nnc_status nnc_exec_join(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
nnc_status nnc_exec_meet(nnc_exec *e, nnc_status loaded, nnc_sink *sink);
void nnc_exec_leave(nnc_exec *e);
/* Does an own command wait for, or copy to, another rank? Submits it; and what follows the record of an event that others wait for. */
bool nnc_exec_crosses(const nnc_exec *e, int cmd);
bool nnc_exec_between_ranks(const nnc_exec *e, int32_t cmd); /* a copy from one rank to another, of whatever rank */
/* With devices open: finds the commands that receives wait for. */
nnc_status nnc_exec_find_lenders(nnc_exec *e, nnc_sink *sink);
nnc_status nnc_exec_lent(nnc_exec *e, int cmd); /* after such a command was submitted */
nnc_status nnc_exec_poke(nnc_exec *e, int cmd); /* the same: messages come meanwhile */
nnc_status nnc_exec_issue_across(nnc_exec *e, int cmd);
nnc_status nnc_exec_signal(nnc_exec *e, int cmd);
/* sends.c. With devices open: finds the copies to other ranks that do not hold their stream, and what waits for them. A part begins;
 * submits such a copy; before every command: what it has to wait for; the end of a part. One look at what was sent, by any thread. */
nnc_status nnc_sends_find(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
void nnc_sends_begin(nnc_exec *e, int32_t first, int32_t end);
nnc_status nnc_sends_submit(nnc_exec *e, int cmd);
nnc_status nnc_sends_before(nnc_exec *e, int cmd);
nnc_status nnc_sends_end(nnc_exec *e);
void nnc_sends_look(nnc_exec *e);
bool nnc_sends_holds(const exec_ranks *k, int cmd); /* is this a copy whose memory is read until its message is done? */
/* Rank 0: tells the others to run a part, after what runs is done. All ranks: run their commands of it. */
nnc_status nnc_exec_order_run(nnc_exec *e, nnc_section last, nnc_sink *sink);
nnc_status nnc_exec_run_part(nnc_exec *e, nnc_section last, nnc_sink *sink);
nnc_status nnc_exec_sync_ranks(nnc_exec *e, nnc_sink *sink);
nnc_status nnc_exec_put_remote(nnc_exec *e, int32_t tensor, const void *data);
nnc_status nnc_exec_get_remote(nnc_exec *e, int32_t tensor, int64_t offset, int64_t bytes, void *data);

/* shared.c. Allocates persistent memory, but for what other executors have, and init's; main's handles are loaded. After init:
 * lets others use what it has made. At the end: gives up all of it. */
nnc_status nnc_exec_place(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
void nnc_exec_offer(nnc_exec *e);
void nnc_exec_release(nnc_exec *e);

/* Creates the events of nnc_exec_profile. */
nnc_status nnc_exec_clock_events(nnc_exec *e, nnc_sink *sink);

/* watch.c. Finds the engine that checks runs of main; submits the check's begin and end to main's stream. */
void nnc_exec_find_watch(nnc_exec *e);
nnc_status nnc_exec_watch(nnc_exec *e, bool begin);

/* The first command of the part that ends with this section: main begins after init, the others after main. */
static inline int32_t nnc_exec_first(const nnc_exec *e, nnc_section last)
{
    return e->p->end[last == SEC_main ? SEC_init : SEC_main];
}

/* Submits a part's commands. Waits for events of earlier parts are left out: all streams wait for the end of those first. *at: the
 * command that failed. */
nnc_status nnc_exec_issue_part(nnc_exec *e, nnc_section last, int32_t *at);
/* replay.c. Runs a part from its capture, which is made after it has run once (after one-time initialisation of engines and
 * libraries). *done: it was replayed; otherwise the caller submits it command by command. */
nnc_status nnc_exec_replay(nnc_exec *e, nnc_section last, bool *done, nnc_sink *sink);
void nnc_exec_drop_captures(const nnc_exec *e, table *t);
/* Reports the first weight that could not be read; false when there was none. */
bool nnc_exec_weight_failure(nnc_exec *e, nnc_sink *sink);

#endif
