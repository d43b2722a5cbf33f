/* comm/comm.h -- messages between the ranks of a job: processes that execute one plan together. A rank is found from what launchers set
 * (ranks.c); messages go through a transport: `mpi`, a plug-in, or `tcp` between processes; `self` between threads of one process.
 *
 * Nothing here waits without an end: a wait polls, and after the communicator's deadline it fails with NNC_E_PEER and a message that says
 * which rank waited for which other, and for what. After the first failure every call fails at once. */
#ifndef NNC_COMM_H
#define NNC_COMM_H

#include "base/base.h"

/* ---- ranks ---------------------------------------------------------------------------------------------------------- */

typedef struct nnc_ranks {
    int rank, world;            /* world 1: no launcher, one process */
    int local_rank, local_size; /* among the ranks of this host */
    const char *by;             /* what says so: "Open MPI", "Slurm", ... */
    bool mpi;                   /* started by an MPI launcher: MPI_Init finds the other ranks */
} nnc_ranks;

/* This process among the ranks of its job. In this order: rank and world (-1: not given) as the user gives them (world 1:
 * this process alone, whatever a launcher says); the variables of Open MPI, MVAPICH, MPICH (PMI), a Slurm step, PMIx, torchrun. */
nnc_status nnc_ranks_find(int rank, int world, nnc_ranks *out, nnc_sink *sink) NNC_MUST;
/* The rank that owns device d of n: blocks of consecutive devices, floor(d * world / n). Each rank owns one or more where n >= world. */
static inline int nnc_rank_of(int d, int n, int world)
{
    return (int)((int64_t)d * world / n);
}

/* ---- transports ----------------------------------------------------------------------------------------------------- */

typedef struct nnc_request nnc_request; /* a message under way */

/* A table of functions. Apart from open and close, none blocks. Called by one thread at a time (nnc_comm has a lock), but for `threads`.
 * `group` is the
 * transport's communicator. All return NULL, or what went wrong, static or valid until the next call. */
typedef struct nnc_transport {
    const char *name;
    const char *(*version)(void); /* of the library, static; before open, too */
    const char *(*open)(const nnc_ranks *r, void **group, int *rank, int *world); /* may block: see nnc_comm_open */
    const char *(*close)(void *group);                        /* the same; ends the transport */
    /* A communicator of the same ranks, whose messages are apart from all others. Called on all ranks, again until *done. */
    const char *(*split)(void *group, void **out, bool *done);
    void (*drop)(void *group); /* of split */
    /* Messages from one rank to another with one tag arrive in order. Data stays valid and untouched until the request is done. */
    const char *(*send)(void *group, const void *data, int64_t bytes, int to, int tag, nnc_request **out);
    const char *(*recv)(void *group, void *data, int64_t bytes, int from, int tag, nnc_request **out);
    const char *(*test)(void *group, nnc_request *r, bool *done); /* done, or failed: r is released */
    void (*abort)(void *group, int code); /* ends all ranks; does not return where they are processes */
    int most_tag;
    bool threads; /* send and recv may be called by several threads at once, beside all others */
} nnc_transport;

/* ---- communicators -------------------------------------------------------------------------------------------------- */

typedef struct nnc_comm nnc_comm; /* one rank's end of a communicator; may be used by several threads */

/* Connects with the other ranks through the plug-in `mpi`, process-wide and once, or over sockets (tcp.c) where no MPI launcher started
 * them. Where a rank does not join, the process ends with a message and exit code 6 after the deadline, since MPI's initialisation cannot
 * be interrupted. */
nnc_status nnc_comm_open(const nnc_ranks *r, double timeout_s, nnc_comm **out, nnc_sink *sink) NNC_MUST;
/* n ranks in this process: out[rank]. */
nnc_status nnc_comm_self(int n, double timeout_s, nnc_comm **out, nnc_sink *sink) NNC_MUST;
/* Another communicator of the same ranks, called by all of them in the same order. */
nnc_status nnc_comm_split(nnc_comm *c, nnc_comm **out, nnc_sink *sink) NNC_MUST;
/* Of nnc_comm_open's: the end of messages of this process; waits for the other ranks, at most until the deadline. */
void nnc_comm_close(nnc_comm *c);
int nnc_comm_rank(const nnc_comm *c);
int nnc_comm_world(const nnc_comm *c);
int nnc_comm_local_rank(const nnc_comm *c); /* among the ranks of this host */
int nnc_comm_most_tag(const nnc_comm *c);
double nnc_comm_timeout(const nnc_comm *c);

/* A message of a rank: nnc_comm_start begins it, nnc_comm_finish waits for some. */
typedef struct nnc_message {
    void *data; /* of one that is sent: not written */
    int64_t bytes;
    int peer, tag;
    bool sends;
    nnc_request *request; /* NULL: not begun, or done */
    bool done;
} nnc_message;

/* `what`: the operation, for messages ("/layers/3: copy to device 1"). */
nnc_status nnc_comm_start(nnc_comm *c, nnc_message *m, const char *what) NNC_MUST;
nnc_status nnc_comm_finish(nnc_comm *c, nnc_message *m, int n, const char *what) NNC_MUST;
/* For callers that wait for other things, too: one look at messages that were begun (*left: the first that is not done, NULL: none); a
 * pause between two looks, after waiting for so long without any progress; the failure after the deadline, of waiting for m. */
nnc_status nnc_comm_test(nnc_comm *c, nnc_message *m, int n, const char *what, nnc_message **left) NNC_MUST;
/* Lets the transport work while this rank computes: one look at the first message that is begun and not done, unless another thread is at
 * it. True: all of them are done. A failure is found by whoever waits for the message. */
bool nnc_comm_poke(nnc_comm *c, nnc_message *m, int n);
/* From now on nnc_comm_finish calls this between two looks, in whatever thread waits. It must not wait. */
void nnc_comm_while_waiting(nnc_comm *c, void (*call)(void *ctx), void *ctx);
void nnc_comm_pause(int64_t waited_ns);
bool nnc_comm_is_late(const nnc_comm *c, int64_t waited_ns);
nnc_status nnc_comm_late(nnc_comm *c, const nnc_message *m, const char *what) NNC_MUST;
/* Begins and finishes one. */
nnc_status nnc_comm_send(nnc_comm *c, const void *data, int64_t bytes, int to, int tag, const char *what) NNC_MUST;
nnc_status nnc_comm_recv(nnc_comm *c, void *data, int64_t bytes, int from, int tag, const char *what) NNC_MUST;
/* Reports the first failure, once; false: there was none, or it was reported, or there is no sink. */
bool nnc_comm_failure(nnc_comm *c, nnc_sink *sink);
/* Makes all calls of c fail from now on, and those of communicators split from it or that it was split from. */
void nnc_comm_break(nnc_comm *c, const char *why);
/* Ends all ranks of the job: this process with this exit code, the others with one of failure. Returns for `self` only. */
void nnc_comm_abort(nnc_comm *c, int code);

#endif
