/* plan/maker.h -- the state shared by the steps of nnc_plan_make (listed in make.c). Internal to plan/. */
#ifndef NNC_PLAN_MAKER_H
#define NNC_PLAN_MAKER_H

#include "plan/internal.h"
#include "plan/make.h"

/* The operands of a call: values of the graph. */
typedef struct call_args {
    nnc_ref src, wei, bias;
    int n_sum;
    nnc_ref sum[NNC_MAX_POST];
    int sum_post[NNC_MAX_POST]; /* index of the post-operation that adds sum[i] */
} call_args;

/* A future command: a node, or what the plan adds around nodes. */
typedef enum job_kind { J_weight, J_node, J_copy, J_record, J_wait, J_update, J_collective } job_kind;
typedef struct job {
    uint8_t kind;
    bool is_call;
    uint8_t section;            /* of main's jobs: SEC_main, SEC_accumulate or SEC_step */
    int16_t device, stream, to; /* to: J_copy's destination device */
    int16_t engine;             /* index into options.engine */
    uint32_t node;              /* J_node, J_collective */
    nnc_ref value;              /* J_weight, J_copy: a root value; J_update: new value of the param `node` */
    int32_t item;               /* index of the kernel, call or event; number of the update or of the participant */
    int64_t work_bytes;
    call_args args;
    nnc_ref *over;              /* by result: operand whose memory it overwrites, or NNC_NONE; NULL: no result does */
    const char *reason;
    nnc_cost cost;
} job;

typedef struct job_list {
    job *at;
    int32_t n;
    size_t cap;
} job_list;

typedef struct job_use { int32_t job, next; } job_use;

/* Nodes by node: at[first[i] .. first[i + 1]). */
typedef struct edges { uint32_t *first, *at; } edges;

typedef struct kernel_entry {
    nnc_hash128 hash;
    int16_t kind;      /* kind of the devices that it runs on */
    const char *given; /* name given by lowering; k->name may be longer */
    const nnc_kernel *k;
    struct unit *unit; /* kernels with one object; NULL: not known yet */
    bool interpreted; /* only init runs it, and interpreting it takes less time than compiling it */
} kernel_entry;

/* Cache entry: the kernel of a node, so that equal nodes are lowered once. */
typedef struct lowered {
    nnc_hash128 node; /* nnc_node_hash */
    const nnc_kernel *k;
    int32_t item;
    int64_t work_bytes;
} lowered;

/* Counts contractions of an op that no engine supports, by reason. */
typedef struct unserved {
    nnc_op op;
    const char *why;
    nnc_loc first;
    int n;
} unserved;

/* A device of the plan. */
typedef struct machine {
    nnc_engine_env env;           /* passed to engines; env.target is the device's target */
    const nnc_compiler *compiler; /* NULL: none */
    const nnc_emitter *emitter;   /* the compiler's emitter, once loaded; NULL: not available */
    bool asked;
    const char *text;             /* nnc_plan_target_text, in the plan's arena */
    const char *libraries;        /* nnc_target_put_libraries of a GPU, in the plan's arena; NULL: a CPU */
    nnc_hash128 hash;             /* nnc_target_hash */
    int16_t kind;                 /* first device with this target and libraries. Devices of a kind share kernels, calls, machine code */
    int threads;                  /* of each command */
} machine;

typedef struct maker {
    const nnc_graph *g;
    const nnc_plan_options *o;
    machine *on; /* by device */
    nnc_plan *p;
    nnc_sink *sink;
    nnc_arena scratch;
    int n_dev;
    /* by value */
    bool *is_static;
    nnc_ref *root;     /* the value that owns its memory: itself, or its operand through views */
    int64_t *at;       /* index of its first element in the root */
    int16_t *home;     /* device that computes its root */
    bool *is_out;      /* root of an output or of a new value of a state */
    nnc_ref *state_of; /* the state root that the value updates, or NNC_NONE */
    uint8_t *updated;  /* by root: section that updates it or states inside it; 0: not a state */
    uint8_t *section;  /* by node: main if an output depends on it, otherwise the first section with a dependent update */
    edges from, to;    /* edges.c, in main: all producers of each node's operands; their users */
    /* tasks.c, by node; NULL: no node has a task */
    int32_t *task; /* task that it runs in */
    bool *early;   /* whether it may run in an earlier task to free memory */
    /* by value * n_dev + device */
    int32_t *tensor;   /* -1 */
    int32_t *use;      /* list of main's jobs that read the root on the device: head, or -1 */
    uint8_t *made;     /* static value that an init job computes on the device */
    uint8_t *want;     /* static value that main reads on the device (persistent) */
    job_use *uses;
    size_t cap_uses;
    int32_t n_uses;
    job_list main, init;
    plan_order order;  /* of main jobs */
    int streams_used;  /* maximum over devices */
    int n_event;
    /* capacities of the plan's arrays */
    size_t cap_kernel, cap_call, cap_collective, cap_tensor, cap_cmd, cap_weight, cap_engine;
    kernel_entry *kernel;
    size_t cap_entry;
    struct emission *emission; /* of kernels.c, while kernels are selected */
    int32_t *by_hash;  /* hash table of kernel[]: index + 1 */
    uint32_t hash_mask;
    lowered *lowered;  /* hash table: k NULL for empty entries */
    uint32_t lowered_mask, n_lowered;
    /* of estimates (estimate.c), otherwise NULL */
    nnc_work_memo *memo;
    bool *in_states;   /* by root: it is in the memory of states */
    bool *absorbed;    /* by node: its result has no memory; its users read its operands instead */
    uint32_t *read, *n_read; /* by node: the values that it reads in fact, read_at[read[i] .. + n_read[i]) */
    nnc_ref *read_at;
    nnc_ref *source; /* buffer of make_sources */
    size_t cap_source;
    unserved *unserved;
    int n_unserved;
    size_t cap_unserved;
} maker;

static inline const nnc_target *target_of(const maker *m, int dev)
{
    return m->on[dev].env.target;
}

static inline size_t slot(const maker *m, nnc_ref v, int dev)
{
    return (size_t)v * (size_t)m->n_dev + (size_t)dev;
}

/* make.c: finds the computed values that make up v: v itself, the operand of a view, or the operands of a concat in place. *out holds them
 * until the next call. Returns their number; -1: out of memory. */
int make_sources(maker *m, nnc_ref v, const nnc_ref **out);

/* Whether a command of main or step computes the node. */
static inline bool runs_in_main(const maker *m, const nnc_node *n)
{
    return nnc_op_class(n->op) != CL_leaf && !m->is_static[n->out] && !nnc_is_view(m->g, n);
}

static inline bool is_collective(const nnc_node *n)
{
    return nnc_op_class(n->op) == CL_collective;
}
/* edges.c: fills `from` and `to`. */
nnc_status make_edges(maker *m) NNC_MUST;
/* Gets the values that node i reads; returns their number. */
int make_operands(const maker *m, uint32_t i, const nnc_ref **out);
/* collective.c: makes the plan's row of a collective node, and checks that the devices of its operands can take part. */
nnc_status make_collective(maker *m, const nnc_node *n, nnc_collective *out) NNC_MUST;

/* tasks.c: finds the tasks and sections of nodes. */
nnc_status make_tasks(maker *m) NNC_MUST;

/* devices.c: orders the nodes of several devices. Collectives have their own stream, or share the only one. */
bool make_has_collective(const maker *m);
nnc_status make_device_sequences(maker *m, uint32_t *order, uint32_t *n) NNC_MUST;

/* sequence.c: orders the nodes of one device so that they need little memory, as if they never waited for other devices. *peak is the most
 * bytes in use. walk_kind: one of four walks, 0..3, or WALK_best, the best of them and of some more. */
enum { WALK_best = 4 };
nnc_status make_device_sequence(maker *m, int device, int walk_kind, uint32_t *order, uint32_t *n, int64_t *peak) NNC_MUST;
/* Moves nodes that an order hoisted into the section where they run. */
void make_hoisted_sections(maker *m, const uint32_t *order, uint32_t n);

static inline int device_of_node(const nnc_node *n)
{
    return n->device < 0 ? 0 : n->device;
}

/* Whether a command of node n runs on the device. */
static inline bool runs_on(const maker *m, const nnc_node *n, int device)
{
    if (!is_collective(n))
        return device_of_node(n) == device;
    bool any = false;
    for (int k = 0; k < n->n_in && !any; k++)
        any = m->home[n->out + (nnc_ref)k] == device;
    return any;
}

/* sequence.c: orders the nodes for one stream so that they need little memory. Nodes of step that run in main in this order move to that
 * section. */
nnc_status make_sequence(maker *m, uint32_t *order, uint32_t *n) NNC_MUST;

/* models.c: if the graph is several models, assigns each model's nodes to one stream. *several is false if it is one model. */
nnc_status make_models(maker *m, int16_t *stream, bool *several) NNC_MUST;
/* stages.c: finds order[] and the stream of each node by IOS. *done is false if that is not requested, or impossible. */
nnc_status make_stages(maker *m, uint32_t *order, uint32_t *n_order, int16_t *stream, bool *done) NNC_MUST;

/* Peak of bytes in use, for an estimate. Tries fewer orders than make_sequence. */
nnc_status make_rough_peak(maker *m, int64_t *peak) NNC_MUST;

/* estimate.c: estimates the arena's peak and the time of the commands from the graph, without lowering it. */
nnc_status make_estimate(maker *m, int64_t *bytes, int64_t *ns) NNC_MUST;

/* schedule.c: makes main's jobs in order, with streams, events and copies between devices. */
nnc_status make_schedule(maker *m) NNC_MUST;
job *make_job(job_list *l, nnc_arena *a, job_kind kind); /* NULL: out of memory */

/* call.c: lowers a node to a library call. False with the reason in *why (NULL: out of memory) when that is impossible. */
bool make_call(const nnc_graph *g, const nnc_node *n, nnc_call *c, call_args *args, const char **why);

/* engine.c: fills the fields of a call that engines need besides its operands. */
void call_for_target(nnc_call *c, const nnc_policy *o, const nnc_engine_env *env);
/* Asks the engines for job j's call. If got->ok, c is the call as the first that supports it computes it, j->engine that engine, and
 * *reason (in the plan's arena) says why. Otherwise `why` says why none does. sum_post: index of a sum that may be in place, or -1. */
nnc_status make_choice(maker *m, job *j, nnc_call *c, int sum_post, nnc_choice *got,
    const char **reason, nnc_text *why) NNC_MUST;

/* select.c: selects a call or a kernel for a node. `main_at`: the job's index in main, -1 for init. */
nnc_status make_select(maker *m, job *j, int32_t main_at) NNC_MUST;
/* Reports unsupported contractions, with a note for each reason. */
void make_notes(const maker *m);
/* Workspace of node i as a call; 0 if it will not be a call. Operands in place are not known yet. m->memo keeps the answers for
 * equal nodes. */
nnc_status make_work_bytes(maker *m, uint32_t i, int64_t *bytes) NNC_MUST;

/* kernels.c: the engine that runs kernels on devices of a kind, or NULL. */
const char *kernel_engine(const maker *m, int kind);
/* Selects the implementation of each command. Gets machine code for kernels from the cache or the emitter, which begins with each as
 * soon as it is selected. */
nnc_status make_objects(maker *m, nnc_status (*select)(maker *m)) NNC_MUST;
/* Adds a kernel, or shares an identical one; sets j->item. interpreted: the command needs no machine code. */
nnc_status make_kernel(maker *m, job *j, const nnc_kernel *k, bool interpreted) NNC_MUST;

/* init.c: makes the jobs that run once, in an order that needs little memory. */
nnc_status make_init(maker *m) NNC_MUST;

/* emit.c: jobs -> tensors and commands. */
nnc_status make_commands(maker *m) NNC_MUST;

/* memory.c: offsets and sizes. */
nnc_status plan_place(nnc_plan *p, nnc_sink *sink) NNC_MUST;

#endif
