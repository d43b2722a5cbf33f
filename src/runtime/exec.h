/* runtime/exec.h -- a loaded plan, shared by the executor's files. Internal to runtime/. */
#ifndef NNC_EXEC_H
#define NNC_EXEC_H

#include "runtime/runtime.h"
#include <stdatomic.h>


typedef struct dev {
    const nnc_device_api *api;
    nnc_device *device;
    nnc_stream **stream;
    nnc_event **end;  /* by stream: fires when its part of a run is done */
    nnc_event *begin; /* of stream 0: fires when inputs are uploaded */
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
    bool main; /* main uses it too, so it outlives init */
    bool init; /* commands of init that run use it */
} prepared;

/* A CMD_weight as work on its stream, so that it runs before the packing that reads it. */
typedef struct weight_work {
    nnc_exec *e;
    const nnc_cmd *cmd;
    nnc_status status; /* of reading the weight; the stream only knows that it failed */
    int64_t ns;        /* duration */
} weight_work;

/* Commands that are captured and replayed together: main, or those after main up to the end of accumulate or step. */
typedef struct part_of_run {
    int runs;             /* successful runs without replay */
    bool no_replay;       /* disabled, or the device could not capture it */
    nnc_capture *capture;
} part_of_run;

/* Addresses of tensors for a run: those in the plan's arenas, or a pipe's slot with its own inputs and outputs. Captures contain
 * addresses, so each table has its own captures. */
typedef struct table {
    void **arg; /* all commands' arguments as addresses */
    void **at;  /* by tensor: an address that replaces the planned one, or NULL. NULL: all as planned */
    part_of_run part[SEC__COUNT]; /* by section; init's is unused */
    nnc_exec *e;
} table;

struct nnc_exec {
    const nnc_plan *p;
    nnc_arena arena; /* of all arrays below */
    events events;   /* owns all events */
    nnc_weight_files files; /* open while init runs */
    const nnc_engine **engine; /* by index in plan.engine */
    dev *dev;
    int n_stream;
    nnc_event **event, **clock; /* of the plan; of profiles, two per command from main on */
    int32_t *record;            /* by event: the command that records it */
    void *staging;              /* host memory for copies between devices of two kinds whose memory the host cannot access */
    bool replays; /* its devices can capture and replay */
    table own, *use;    /* planned addresses; addresses of the next run */
    int64_t *first_arg; /* by command */
    prepared **handle;  /* by command, into owned */
    struct participant **collective; /* by command; NULL: the plan has none */
    nnc_comm *self;     /* messages of collectives within this process; NULL: no collectives, or sent through ranks */
    bool self_broken;   /* `self` is unusable since a command could not be submitted */
    struct exec_ranks *ranks; /* NULL: all devices are this process's */
    struct progress *progress; /* submits the commands of GPUs that need the host; NULL: none */
    struct nccl *nccl; /* NULL: no collective uses NCCL */
    prepared *owned;
    loaded_object *object; /* by engine and the plan's object */
    int n_owned;
    weight_work *weight; /* by command */
    int32_t *owner; /* by owned handle: its first command */
    nnc_shared *shared; /* static values that executors share; this executor's are in these blocks */
    struct nnc_block **block;
    size_t n_block, cap_block;
    struct nnc_static *made; /* by tensor */
    void **fixed; /* by tensor: address of a persistent tensor */
    bool *idle; /* by command of init: it need not run, since its result is shared or was kept on disk */
    nnc_hash128 *keep; /* by device: the key under which its static values are written to disk at the end (kept.c); NULL: they are not */
    nnc_exec_phases phase;
    const nnc_activity_api *activity; /* marks commands that are submitted (activity.c); NULL: it is off */
    bool timed; /* over ranks: time stamps surround every command of the next parts */
    int64_t first_given; /* time of main's first submission; 0: not yet, -1: that run is done */
};

/* An executor among those of other ranks (ranks.c). */
typedef struct exec_ranks {
    nnc_job *job;
    nnc_comm *comm;  /* this plan's messages; a message's tag is its command */
    int rank;
    int id;          /* number of the executor in the job */
    int *owner;      /* by device: its rank */
    nnc_message *recv; /* copies from other ranks, in the order of their commands */
    int32_t *recv_cmd;
    int n_recv;
    /* A receive may write memory that earlier commands of the part use. It then begins when the last such command of each stream, a
     * lender, is done, as MPI requires. */
    struct lender { int32_t cmd; int recv, next; } *lender; /* grouped by recv; next: next lender entry of the same command, or -1 */
    size_t n_lender, cap_lender;
    int *n_lent, *first_lent; /* by recv: number of its lenders, and its first entry in `lender` */
    _Atomic int *lent; /* by recv: lenders that are not done in this part */
    int begun, end;  /* receives of the current part: recv[begun..end) */
    struct sent *sent; /* copies to other ranks, in the order of their commands (sends.c) */
    int n_sent, sent_begun, sent_end; /* sends of the current part: sent[sent_begun..sent_end) */
    int *send_of;    /* by command: index in `sent`; -1: none */
    char *stage;     /* staging memory that sent data is copied to first; NULL: none */
    struct held *held;
    size_t n_held, cap_held;
    int *first_held; /* by command: first entry in `held` of the sends that it waits for; -1: none */
    _Atomic int in_flight; /* sends that are begun and not known to be done */
    int32_t part_end; /* end of the current part: its last command + 1 */
    int64_t unpolled_ns; /* estimated time of the work submitted since MPI was last polled */
    struct crossing *at; /* by command */
    nnc_message *signal; /* messages about own events, one for each waiting command of another rank */
    int32_t *signalled;  /* those commands */
    int n_signalled;
    int *next_wait;  /* by waiting command: next one that waits for the same event on another rank, or -1 */
    int *first_wait; /* by event: first such command, or -1 */
    int running;     /* runs that the followers have not reported yet */
    nnc_sink *said;  /* a stream's messages about a failed command, kept until it is known whether a lost rank was the cause */
} exec_ranks;

/* The communicator of messages, to which failures are reported. */
static inline nnc_comm *exec_comm(const nnc_exec *e) { return e->ranks ? e->ranks->comm : e->self; }
/* Whether device d belongs to this process. */
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

/* Fills t->arg, in `a`, with the tensors' addresses by table t, and makes t e->use. */
nnc_status nnc_exec_fill(nnc_exec *e, table *t, nnc_arena *a, nnc_sink *sink);
/* Creates an event of device d and adds it to the list, whose memory is in `a`. */
nnc_status nnc_exec_event(events *l, nnc_arena *a, const dev *d, nnc_event **out, nnc_sink *sink);
void nnc_exec_drop_events(const events *l);

/* Checks what runs rely on: indices in range, and the right number of arguments. */
nnc_status nnc_exec_check(const nnc_plan *p, nnc_sink *sink);
nnc_status nnc_exec_find_engines(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
/* Finds the handles that commands need. */
nnc_status nnc_exec_find_handles(nnc_exec *e, nnc_sink *sink);
/* Loads the handles that main uses or, without `main`, the others that init uses. */
nnc_status nnc_exec_load(nnc_exec *e, bool main, nnc_sink *sink);
void nnc_exec_unload(nnc_exec *e, bool all); /* without `all`: only the handles that only init used */

nnc_status nnc_exec_weight(nnc_exec *e, int cmd);
/* Waits and copies between devices of one kind are the device's work. Between kinds the host does them, after waiting for the stream. */
typedef struct place { dev *d; int stream; } place;
nnc_status nnc_exec_wait(place at, place from, nnc_event *recorded);
nnc_status nnc_exec_copy(nnc_exec *e, const nnc_cmd *c, place at);
bool nnc_exec_hidden_copy(const nnc_exec *e, const nnc_cmd *c); /* true when it needs e->staging */
/* Work that executes a command by calling `run` with `handle`. */
nnc_work nnc_exec_work(const nnc_exec *e, int cmd, nnc_status (*run)(void *, void *const *, void *), void *handle);
/* Submits command `cmd` to its stream. */
nnc_status nnc_exec_issue(nnc_exec *e, int cmd);

/* Waits for this process's streams. */
nnc_status nnc_exec_sync_own(nnc_exec *e, nnc_sink *sink);

enum { NNC_MAX_PARTICIPANTS = 256 };
/* collective.c */
nnc_status nnc_exec_find_collectives(nnc_exec *e, nnc_sink *sink); /* prepares the plan's collectives */
nnc_status nnc_exec_collective(nnc_exec *e, int cmd);              /* submits a participant's command */
void nnc_exec_break_collectives(nnc_exec *e);      /* after a failed submission: ends the waits of the submitted participants */
nnc_status nnc_exec_mend_collectives(nnc_exec *e); /* after that, with all streams idle: prepares them for the next run */

/* ranks.c. Joins the other ranks' executors, which must have the same plan. nnc_exec_leave leaves them. */
nnc_status nnc_exec_join(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
/* Ends loading on all ranks, with the status of each. */
nnc_status nnc_exec_meet(nnc_exec *e, nnc_status loaded, nnc_sink *sink);
void nnc_exec_leave(nnc_exec *e);
/* Whether a command of this rank waits for, or copies to, another rank. nnc_exec_issue_across submits such a command, nnc_exec_signal the
 * messages after the record of an event that other ranks wait for. */
bool nnc_exec_crosses(const nnc_exec *e, int cmd);
bool nnc_exec_between_ranks(const nnc_exec *e, int32_t cmd); /* whether it copies between any two ranks */
/* Finds the lenders that receives wait for. Devices are open. */
nnc_status nnc_exec_find_lenders(nnc_exec *e, nnc_sink *sink);
nnc_status nnc_exec_lent(nnc_exec *e, int cmd); /* called after a lender was submitted */
nnc_status nnc_exec_poke(nnc_exec *e, int cmd); /* called after any command: polls for messages from time to time */
nnc_status nnc_exec_issue_across(nnc_exec *e, int cmd);
nnc_status nnc_exec_signal(nnc_exec *e, int cmd);
/* sends.c. Finds the copies to other ranks that do not hold their stream, and the commands that wait for them. Devices are open. */
nnc_status nnc_sends_find(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
void nnc_sends_begin(nnc_exec *e, int32_t first, int32_t end); /* begins a part */
nnc_status nnc_sends_submit(nnc_exec *e, int cmd);             /* submits such a copy */
nnc_status nnc_sends_before(nnc_exec *e, int cmd);             /* before every command: submits its waits for sends */
nnc_status nnc_sends_end(nnc_exec *e);                         /* ends a part */
void nnc_sends_look(nnc_exec *e);                              /* polls the sends once; any thread may call it */
bool nnc_sends_holds(const exec_ranks *k, int cmd); /* whether it is a copy whose memory is read until its message is done */
/* Rank 0: orders the others to run a part, after the current one. nnc_exec_run_part: each rank runs its commands of it. */
nnc_status nnc_exec_order_run(nnc_exec *e, nnc_section last, nnc_sink *sink);
nnc_status nnc_exec_run_part(nnc_exec *e, nnc_section last, nnc_sink *sink);
nnc_status nnc_exec_sync_ranks(nnc_exec *e, nnc_sink *sink);
nnc_status nnc_exec_put_remote(nnc_exec *e, int32_t tensor, const void *data);
nnc_status nnc_exec_get_remote(nnc_exec *e, int32_t tensor, int64_t offset, int64_t bytes, void *data);

/* shared.c. Allocates init's memory, and persistent memory except for values that other executors have. Main's handles are loaded. */
nnc_status nnc_exec_place(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink);
void nnc_exec_offer(nnc_exec *e);   /* after init: shares its static values with other executors */
void nnc_exec_release(nnc_exec *e); /* at the end: releases its static values */
/* A key of how init makes the contents of device d's own static values. False: another process may not have the same, or some are another
 * executor's. */
bool nnc_exec_static_key(const nnc_exec *e, int d, nnc_hash128 *key);
void *nnc_exec_statics(const nnc_exec *e, int d, int64_t *bytes); /* their memory; NULL: none */

/* kept.c. Reads static values that an earlier process kept, instead of running init. At the end nnc_exec_keep writes those that init
 * computed. */
nnc_status nnc_exec_find_kept(nnc_exec *e, nnc_sink *sink);
void nnc_exec_keep(const nnc_exec *e);

/* Creates the events of nnc_exec_profile_behind. */
nnc_status nnc_exec_clock_events(nnc_exec *e, nnc_sink *sink);

/* First command of the part that ends with this section. Main begins after init, other parts after main. */
static inline int32_t nnc_exec_first(const nnc_exec *e, nnc_section last)
{
    return e->p->end[last == SEC_main ? SEC_init : SEC_main];
}

/* Submits a part's commands. It skips waits for events of earlier parts, since all streams first wait for the end of these. *at: command
 * that failed. */
nnc_status nnc_exec_issue_part(nnc_exec *e, nnc_section last, int32_t *at);
/* Fails with the layers of the command that the device refused, or `part` where it has none. */
nnc_status nnc_exec_refused(const nnc_exec *e, nnc_status status, int32_t cmd, const char *part, nnc_sink *sink);
/* replay.c. Replays a part's capture. The part is captured after it has run once, when engines and libraries are initialised. If not *done,
 * the caller submits the part command by command. */
nnc_status nnc_exec_replay(nnc_exec *e, nnc_section last, bool *done, nnc_sink *sink);
void nnc_exec_drop_captures(const nnc_exec *e, table *t);
/* Reports the first weight that could not be read. False: there is none. */
bool nnc_exec_weight_failure(nnc_exec *e, nnc_sink *sink);

#endif
