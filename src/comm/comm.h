/* comm/comm.h -- messages between the ranks of a job, which are processes that execute one plan together. ranks.c finds a process's rank
 * from the launcher's variables. Transports carry the messages: `mpi` (a plug-in) and `tcp` between processes, `self` between threads of
 * a process.
 *
 * All waits are bounded. A wait polls, and after the communicator's deadline it fails with NNC_E_PEER. The message says which rank waited
 * for which other, and for what. After the first failure every call fails at once. */
#ifndef NNC_COMM_H
#define NNC_COMM_H

#include "base/base.h"

/* ---- ranks ---------------------------------------------------------------------------------------------------------- */

typedef struct nnc_ranks {
    int rank, world;            /* world 1: no launcher, one process */
    int local_rank, local_size; /* among the ranks of this host */
    const char *by;             /* source of these numbers: "Open MPI", "Slurm", ... */
    bool mpi;                   /* started by an MPI launcher: MPI_Init finds the other ranks */
} nnc_ranks;

/* Finds this process's rank. The user's rank and world come first (-1: not given; world 1: only this process, whatever a launcher says).
 * Then come the variables of Open MPI, MVAPICH, MPICH (PMI), a Slurm step, PMIx and torchrun, in this order. In a job of torchrun
 * (TORCHELASTIC_RUN_ID) only its own count. */
nnc_status nnc_ranks_find(int rank, int world, nnc_ranks *out, nnc_sink *sink) NNC_MUST;
/* Rank that owns device d of n: floor(d * world / n), so ranks own consecutive devices, and at least one each if n >= world. */
static inline int nnc_rank_of(int d, int n, int world)
{
    return (int)((int64_t)d * world / n);
}

/* ---- transports ----------------------------------------------------------------------------------------------------- */

typedef struct nnc_request nnc_request; /* a message under way */

/* A transport as a table of functions. None blocks, except open and close. Unless `threads` is set, one thread at a time calls them.
 * `group` is the transport's communicator. All return NULL, or an error text, which is static or valid until the next call. */
typedef struct nnc_transport {
    const char *name;
    const char *(*version)(void); /* of the library, static; may be called before open */
    const char *(*open)(const nnc_ranks *r, void **group, int *rank, int *world); /* may block: see nnc_comm_open */
    const char *(*close)(void *group);                        /* may block; ends the transport */
    /* Makes a communicator of the same ranks, whose messages are separate from all others. Called on all ranks, repeatedly until *done. */
    const char *(*split)(void *group, void **out, bool *done);
    void (*drop)(void *group); /* releases what split made */
    /* Messages from one rank to another with one tag arrive in order. Data stays valid and untouched until the request is done. */
    const char *(*send)(void *group, const void *data, int64_t bytes, int to, int tag, nnc_request **out);
    const char *(*recv)(void *group, void *data, int64_t bytes, int from, int tag, nnc_request **out);
    const char *(*test)(void *group, nnc_request *r, bool *done); /* releases r when it is done or failed */
    /* Why a rank is lost, and which; NULL: none is known to be. Optional: a launcher may end all ranks. */
    const char *(*lost)(void *group, int *rank);
    void (*abort)(void *group, int code); /* ends all ranks; does not return if they are processes */
    int most_tag;
    bool threads; /* several threads may call send and recv at once, also during other calls */
} nnc_transport;

/* ---- communicators -------------------------------------------------------------------------------------------------- */

typedef struct nnc_comm nnc_comm; /* one rank's end of a communicator; may be used by several threads */

/* Connects to the other ranks: through the plug-in `mpi`, once per process, or over sockets (tcp.c) if no MPI launcher started them. If a
 * rank does not join until the deadline, the process ends with a message and exit code 6, since MPI's initialisation cannot be
 * interrupted. */
nnc_status nnc_comm_open(const nnc_ranks *r, double timeout_s, nnc_comm **out, nnc_sink *sink) NNC_MUST;
/* Makes n ranks in this process: out[rank]. */
nnc_status nnc_comm_self(int n, double timeout_s, nnc_comm **out, nnc_sink *sink) NNC_MUST;
/* Makes another communicator of the same ranks. All of them call it, in the same order. */
nnc_status nnc_comm_split(nnc_comm *c, nnc_comm **out, nnc_sink *sink) NNC_MUST;
/* For the communicator of nnc_comm_open: ends this process's messages, after waiting for the other ranks, at most until the deadline. */
void nnc_comm_close(nnc_comm *c);
int nnc_comm_rank(const nnc_comm *c);
int nnc_comm_world(const nnc_comm *c);
int nnc_comm_local_rank(const nnc_comm *c); /* among the ranks of this host */
int nnc_comm_most_tag(const nnc_comm *c);
double nnc_comm_timeout(const nnc_comm *c);

/* A message of a rank. nnc_comm_start begins it, nnc_comm_finish waits for several. */
typedef struct nnc_message {
    void *data; /* not written if the message is sent */
    int64_t bytes;
    int peer, tag;
    bool sends;
    nnc_request *request; /* NULL: not begun, or done */
    bool done;
} nnc_message;

/* `what`: the operation, for messages ("/layers/3: copy to device 1"). */
nnc_status nnc_comm_start(nnc_comm *c, nnc_message *m, const char *what) NNC_MUST;
nnc_status nnc_comm_finish(nnc_comm *c, nnc_message *m, int n, const char *what) NNC_MUST;
/* NNC_E_PEER: another rank is lost. For callers that wait for its part in something other than a message. */
nnc_status nnc_comm_look(nnc_comm *c, const char *what) NNC_MUST;
/* The functions below are for callers that also wait for other things. nnc_comm_test polls begun messages once. *left: the first that is
 * not done; NULL: none. */
nnc_status nnc_comm_test(nnc_comm *c, nnc_message *m, int n, const char *what, nnc_message **left) NNC_MUST;
/* Lets the transport progress while this rank computes: polls the first unfinished message, unless another thread is polling. True: all are
 * done. Failures are reported to the thread that waits for the message. */
bool nnc_comm_poke(nnc_comm *c, nnc_message *m, int n);
/* Makes nnc_comm_finish call this between two polls, on the waiting thread. It must not wait. */
void nnc_comm_while_waiting(nnc_comm *c, void (*call)(void *ctx), void *ctx);
/* Pauses between two polls, longer after a longer wait without progress. */
void nnc_comm_pause(int64_t waited_ns);
bool nnc_comm_is_late(const nnc_comm *c, int64_t waited_ns);
/* Fails because the deadline for m has passed. */
nnc_status nnc_comm_late(nnc_comm *c, const nnc_message *m, const char *what) NNC_MUST;
/* Begin and finish one message. */
nnc_status nnc_comm_send(nnc_comm *c, const void *data, int64_t bytes, int to, int tag, const char *what) NNC_MUST;
nnc_status nnc_comm_recv(nnc_comm *c, void *data, int64_t bytes, int from, int tag, const char *what) NNC_MUST;
/* Reports the first failure, once. False: there is none, it was reported before, or there is no sink. */
bool nnc_comm_failure(nnc_comm *c, nnc_sink *sink);
/* Makes all calls of c, and of communicators related to it by splits, fail from now on. */
void nnc_comm_break(nnc_comm *c, const char *why);
/* Ends all ranks of the job, this process with `code`, the others with a failure. Returns only for `self`. */
void nnc_comm_abort(nnc_comm *c, int code);

#endif
