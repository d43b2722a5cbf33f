/* tests/cuda_fake/internal.h -- streams, events and memory of the fake runtime, shared by its files. */
#ifndef TEST_CUDA_FAKE_INTERNAL_H
#define TEST_CUDA_FAKE_INTERNAL_H

#include "fake.h"

/* One record of an event: waits hold on to it, so that recording again does not change what they wait for. */
typedef struct firing {
    bool fired;
    cuda_graph graph; /* where it was captured, and stands for one of each replay */
    struct firing *now; /* that of the replay under way */
    int64_t ns;
    uint32_t clock[FAKE_STREAMS];
    struct firing *next;
} firing;

struct cuda_event_of {
    int device;
    bool timed;
    firing *latest; /* NULL: never recorded */
};

typedef enum engine { E_compute, E_up, E_down } engine; /* what a command's time depends on */
typedef enum command_kind { C_work, C_record, C_wait, C_poll } command_kind;
typedef struct command {
    command_kind kind;
    void (*run)(void *ctx);
    bool (*ready)(void *ctx); /* C_poll: of what other processes do */
    void *ctx;
    fake_access *access;
    int n_access;
    bool any_device; /* a copy between devices */
    const char *what;
    firing *f;
    engine engine;
    int64_t given_ns; /* by the host's clock */
    uint32_t correlation; /* CUPTI's number of the call that gave it */
    uint64_t node, clone; /* of a graph, for CUPTI; clone: of its instance */
    uint32_t host[FAKE_STREAMS]; /* the host's clock when it gave the command */
    struct command *next;
} command;

struct cuda_stream_of {
    int id, device; /* id: its place in clocks; 0 is the host's */
    command *first, *last;
    cuda_graph capturing;
    bool inner; /* of a replay: goes away when it is empty */
    int64_t ns; /* until when it is busy */
    uint32_t clock[FAKE_STREAMS];
};

typedef struct memory {
    char *p;
    size_t bytes;
    int device; /* -1: pinned memory of the host */
    fake_shadow *shadow;
    struct memory *next;
} memory;

/* What one stream gave during a capture. */
typedef struct captured {
    command *first, *last;
    int device;
    cuda_stream by;
} captured;

struct cuda_graph_of {
    captured part[FAKE_STREAMS]; /* [0]: of the stream where the capture began */
    int n, users; /* the graph, and each instance of it */
    bool open; /* still being captured */
    cuda_graph next;
};

/* graph.c */
extern int fake_capturing; /* captures under way */
void fake_graphs_end(void);
captured *fake_captured_by(cuda_stream s);
int fake_graph_join(cuda_stream s, const firing *f); /* s waits for f: a cudaError */
void fake_graph_table(nnc_cuda_cudart *t); /* fills in the functions of graphs */
int fake_gives(int error); /* counts the call, and makes it fail where a test wants that */

/* queue.c */
extern fake_speeds fake_speed;
void fake_command_free(command *c);
extern int fake_sticky; /* the error that every call returns, once a kernel has failed */
void fake_queues_begin(uint64_t seed);
void fake_queues_end(void);
cuda_stream fake_stream_create(int device); /* an id that was not used for long */
bool fake_stream_destroy(cuda_stream s);
command *fake_push(cuda_stream s, command_kind kind, const char *what);
command *fake_push_work(cuda_stream s, void (*run)(void *ctx), void *ctx, const fake_access *access,
    int n_access, const char *what); /* as fake_enqueue */
firing *fake_firing(void);
int fake_until_empty(
    cuda_stream s); /* runs commands until s has none; the host is then after them */
void fake_until_idle(void);
bool fake_step(void); /* runs one command; false: none can */
/* Other processes may know what s has done, and s knows what they may know. That is what they say, and what this host has seen, of
 * which it tells them. */
void fake_publish(cuda_stream s);
void fake_hear(cuda_stream s);
int fake_until_fired(const firing *f);
void fake_host_after(const firing *f);
memory *fake_memory_of(const void *p);
void *fake_memory_create(size_t bytes, int device);
bool fake_memory_destroy(void *p, bool pinned);

/* cupti.c */
void fake_cupti_begin(uint64_t seed);
void fake_cupti_end(void);
uint32_t fake_cupti_call(void); /* a call that gives work; its number */
uint64_t fake_cupti_node(uint64_t original); /* a node is created; original: cloned from that one, 0: from none */
void fake_cupti_ran(const command *c, int device, int64_t start, int64_t end);

/* nccl_shared.c: a communicator whose ranks are several processes. */
typedef struct fake_shared fake_shared;
typedef struct fake_joint { /* one rank's part in a collective: what all must agree on, and its operand and result */
    int kind, op, type, root;
    size_t n, in, out; /* bytes */
    const void *from;
    void *to;
} fake_joint;
void fake_shared_id(nccl_id *id); /* for all processes of this user, as long as this one lives */
fake_shared *fake_shared_join(const nccl_id *id, int rank, int ranks, int device);
int fake_shared_state(const fake_shared *s); /* ncclResult_t: success, in progress, invalid usage */
/* Result of a whole collective: out bytes for rank `rank` from all operands, at in + r * step. */
typedef void (*fake_compute)(const fake_joint *j, int rank, int ranks, const char *in, size_t step, char *out);
void fake_shared_give(fake_shared *s, cuda_stream to, const fake_joint *j, fake_compute compute, bool hangs, const char *what);
/* One side of a send and receive. */
void fake_shared_pair(fake_shared *s, cuda_stream to, bool sends, int other, void *data, size_t bytes, bool hangs);
void fake_shared_abort(fake_shared *s);
void fake_shared_end(void);

#endif
