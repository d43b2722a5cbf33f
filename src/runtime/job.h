/* runtime/job.h -- state that the executors of a rank share. Internal to runtime/. */
#ifndef NNC_RUNTIME_JOB_H
#define NNC_RUNTIME_JOB_H

#include "runtime/exec.h"

/* An order of rank 0 to the others. */
typedef enum order_kind { OR_run, OR_put, OR_get, OR_clock, OR_times, OR_end } order_kind;
typedef struct order {
    int32_t kind, exec; /* exec: its number in the job */
    int32_t item;       /* run, times: last nnc_section; put, get: tensor */
    int32_t timed;      /* run: time each command */
    int64_t offset, bytes; /* put, get: part of the tensor; times: offset is the first section */
} order;

/* Report of another rank to rank 0 about a run. */
typedef struct run_report { int32_t status, stops; } run_report;

/* Tags of a job's own communicator. */
enum { TAG_order, TAG_data, TAG_done, TAG_join };

struct nnc_job {
    nnc_comm *comm; /* for orders and their answers */
    nnc_exec **exec; /* in the order of their creation; NULL: destroyed */
    size_t cap;
    int n_exec;
    nnc_arena arena; /* of exec */
    bool (*is_asked)(const volatile void *ctx); /* whether this rank is asked to stop; NULL: never */
    const volatile void *ctx;
    bool stops; /* rank 0: another rank was asked to stop */
    nnc_status untold; /* failure that a caller without a sink met first, with its message in `words` */
    char words[256];
};

/* A command's messages with other ranks, executed by its stream or by progress.c. */
typedef struct crossing {
    nnc_exec *e;
    int32_t cmd;
    int peer; /* copy, wait: the other rank */
    bool crosses;
    bool is_told; /* wait: the data that arrives just before the record serves as the message */
    int n_recv; /* wait: recv[0..n_recv) are before its record */
    int32_t event; /* record: event that other ranks wait for; -1: none */
    int lender; /* first entry in exec_ranks.lender of a receive that begins after this command; -1: none */
    char what[96]; /* for messages */
} crossing;

/* ranks.c. Submits work of a command's crossing to its stream. */
nnc_status nnc_exec_submit_crossing(
    nnc_exec *e, int cmd, nnc_status (*run)(void *handle, void *const *args, void *work));
/* Called when a lender is done. The last lender of a receive begins it. */
nnc_status nnc_exec_lend(nnc_exec *e, int cmd);
/* Whether two tensors share memory. */
bool nnc_exec_overlap(const nnc_ptensor *a, const nnc_ptensor *b);
/* Waits for this rank's streams, and reports a failed command with its layer, or a lost rank. */
nnc_status nnc_exec_sync_reported(nnc_exec *e, nnc_sink *sink);
/* ranks.c: waits for the messages of the current part, whose commands are done. */
nnc_status nnc_exec_finish_messages(nnc_exec *e);

/* ranks.c, called by all ranks while loading. Gathers `bytes` of each rank into `all` on rank 0, by rank. */
nnc_status nnc_ranks_gather(exec_ranks *k, const void *mine, void *all, int64_t bytes, const char *what);
/* Broadcasts `data` from rank 0. */
nnc_status nnc_ranks_spread(exec_ranks *k, void *data, int64_t bytes, const char *what);
/* difference.c, called on rank 0 and on `rank`, whose plan differs. Appends how: "; it has engines: interp, rank 0 llvm". */
nnc_status nnc_ranks_difference(exec_ranks *k, const nnc_plan *p, int rank, nnc_text *out);
/* profile.c. nnc_exec_profile_behind over ranks, on rank 0. The functions after it are the other ranks' answers. */
nnc_status nnc_exec_profile_ranks(
    nnc_exec *e, nnc_section first, nnc_section last, int64_t *start_ns, int64_t *end_ns, nnc_sink *sink);
nnc_status nnc_exec_follow_clock(nnc_exec *e);
nnc_status nnc_exec_follow_times(nnc_exec *e, const order *o);

/* Returns st. Where it is a failure, reports the communicator's own reason. */
static inline nnc_status nnc_job_told(nnc_comm *c, nnc_status st, nnc_sink *sink) { return st ? (void)nnc_comm_failure(c, sink), st : st; }
/* Sends an order to a rank. */
nnc_status nnc_job_tell(nnc_job *j, int to, const order *o, const char *what);

#endif
