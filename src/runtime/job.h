/* runtime/job.h -- what the executors of a rank have in common. Internal to runtime/. */
#ifndef NNC_RUNTIME_JOB_H
#define NNC_RUNTIME_JOB_H

#include "runtime/exec.h"

/* What rank 0 tells the others. */
typedef enum order_kind { OR_run, OR_put, OR_get, OR_clock, OR_times, OR_end } order_kind;
typedef struct order {
    int32_t kind, exec; /* exec: its number in the job */
    int32_t item;       /* run, times: nnc_section, up to which; put, get: tensor */
    int32_t timed;      /* run: each command is timed */
    int64_t offset, bytes; /* times: offset is the first section */
} order;

/* What they tell it of a run. */
typedef struct run_report { int32_t status, stops; } run_report;

/* Tags of a job's own communicator. */
enum { TAG_order, TAG_data, TAG_done, TAG_join };

struct nnc_job {
    nnc_comm *comm; /* of orders and what answers them */
    nnc_exec **exec; /* in the order of their creation; NULL: destroyed */
    size_t cap;
    int n_exec;
    nnc_arena arena; /* of exec */
    bool (*is_asked)(const volatile void *ctx); /* to stop; NULL: nobody asks */
    const volatile void *ctx;
    bool stops; /* rank 0: another rank was asked to */
    nnc_status untold; /* of a failure that a caller without a sink met first; its words */
    char words[256];
};

/* A command's messages with other ranks: work for its stream, or of progress.c. */
typedef struct crossing {
    nnc_exec *e;
    int32_t cmd;
    int peer; /* copy, wait: the other rank */
    bool crosses;
    bool is_told; /* wait: the data that arrives just before the record is the message */
    int n_recv; /* wait: recv[0..n_recv) are before its record */
    int32_t event; /* record: that others wait for; -1 */
    int lender; /* the first receive that begins after this command, in exec_ranks.lender; -1 */
    char what[96]; /* for messages */
} crossing;

/* ranks.c. Submits work of a command's crossing to its stream; a lender is done: the last one of a receive begins it; do they share
 * memory? */
nnc_status nnc_exec_submit_crossing(
    nnc_exec *e, int cmd, nnc_status (*run)(void *handle, void *const *args, void *work));
nnc_status nnc_exec_lend(nnc_exec *e, int cmd);
bool nnc_exec_overlap(const nnc_ptensor *a, const nnc_ptensor *b);
/* Waits for this rank's streams, and reports what failed: a command with its layer, or the rank that was lost. */
nnc_status nnc_exec_sync_reported(nnc_exec *e, nnc_sink *sink);
/* ranks.c: waits for the messages of the current part, whose commands are done. */
nnc_status nnc_exec_finish_messages(nnc_exec *e);

/* ranks.c, while loading, on all ranks: rank 0 collects what each has (all: by rank, on rank 0); it gives all of them what it has. */
nnc_status nnc_ranks_gather(exec_ranks *k, const void *mine, void *all, int64_t bytes, const char *what);
nnc_status nnc_ranks_spread(exec_ranks *k, void *data, int64_t bytes, const char *what);
/* difference.c, on rank 0 and on `rank`, whose plan is another one: "; it has engines: llvm, rank 0 llvm, onednn" is appended. */
nnc_status nnc_ranks_difference(exec_ranks *k, const nnc_plan *p, int rank, nnc_text *out);
/* profile.c. Rank 0: nnc_exec_profile over ranks. Others: their answers. */
nnc_status nnc_exec_profile_ranks(
    nnc_exec *e, nnc_section first, nnc_section last, int64_t *start_ns, int64_t *end_ns, nnc_sink *sink);
nnc_status nnc_exec_follow_clock(nnc_exec *e);
nnc_status nnc_exec_follow_times(nnc_exec *e, const order *o);

/* Sends an order to a rank. */
nnc_status nnc_job_tell(nnc_job *j, int to, const order *o, const char *what);

#endif
