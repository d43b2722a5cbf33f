/* ir/ir.h -- the tensor graph: nodes whose operands are 32-bit value ids (nnc_ref).
 *
 * A graph is pure and has static shapes. Every node has an origin, the path of the user's layer. The graph owns an arena with names,
 * attributes, bodies and inline data. Threads: one thread modifies a graph. Many may read a graph that no thread modifies.
 *
 * Invariants after every pass (nnc_verify): operands are defined by earlier nodes, types equal those of shape inference, attributes are
 * allowed by the op's row. parse(print(g)) prints the same text.
 *
 * Builders need no check per call. On failure a builder reports to the graph's sink, sets the sticky g->status and returns NNC_NONE.
 * Builders given NNC_NONE return NNC_NONE. Check g->status at the end. */
#ifndef NNC_IR_H
#define NNC_IR_H

#include "base/base.h"
#include "base/post.h"

/* ---- ops ------------------------------------------------------------------------------------------------- */

/* The kind of computation of an op; passes and code generation ask for the class instead of listing ops. */
typedef enum nnc_class {
    CL_leaf,     /* input, param, constant, iota: no operands */
    CL_ewise,    /* one scalar op per element, operands broadcast (numpy rules) */
    CL_ecomp,    /* elementwise, with a lowering to CL_ewise ops (relu, gelu, ...) */
    CL_reduce,   /* reductions over axes */
    CL_move,     /* reshape, transpose, broadcast, slice, pad, concat, gather, flip, relayout */
    CL_window,   /* pooling */
    CL_contract, /* matmul, linear, conv, conv_transpose, conv_wgrad, winograd, winograd_wgrad */
    CL_comp, /* with a lowering that contains reductions (softmax, layernorm, batchnorm, ...) */
    CL_loop, /* in order along an axis: running sums, sorting, scattering, recurrence */
    CL_collective, /* over several devices: an operand and a result on each */
    CL_fused, /* a region of ordinary ops */
} nnc_class;

/* Facts about ops, for passes. */
enum nnc_op_flag {
    OF_comm = 1 << 0,    /* f(a,b) = f(b,a) */
    OF_assoc = 1 << 1,   /* associative up to rounding */
    OF_nondec = 1 << 2,  /* non-decreasing in its (single or each) operand for every attribute value; see nnc_is_nondecreasing */
    OF_zero = 1 << 3,    /* f(0) = 0 exactly, also elementwise f(0,0) = 0 */
    OF_nan = 1 << 4,     /* NaN in gives NaN out */
    OF_idem = 1 << 5,    /* f(f(x)) = f(x) */
    OF_invol = 1 << 6,   /* f(f(x)) = x exactly */
    OF_sign = 1 << 7,    /* odd: f(-x) = -f(x) exactly */
    OF_float = 1 << 8,   /* operands must be floats */
    OF_bool = 1 << 9,    /* result is bool */
    OF_exact = 1 << 10,  /* no rounding: result is one of the operands' values or an integer (relu, max, transpose) */
    OF_half = 1 << 11,   /* 16-bit operands and result suffice beside 16-bit contractions: continuous, and amplifies neither rounding
                          * nor range of the operands (no reciprocals, exponentials, logarithms, long sums, norms) */
    OF_slow = 1 << 12,   /* costs as much as an exp (rather than an add) */
    OF_int = 1 << 14,    /* operands must be integers */
    OF_jump = 1 << 15,   /* of floats: discontinuous; rounding can change the choice if operands are almost equal */
    OF_relu = 1 << 13,   /* an activation that keeps about half of its operands: weights before it are generated with a larger scale
                          * (He) */
};

typedef enum nnc_op {
#define OP(name, nmin, nmax, cls, rule, flags, work, lo, hi, attrs, doc) OP_##name,
#include "ir/ops.def"
    OP__COUNT
} nnc_op;

typedef struct nnc_op_info {
    const char *name;
    int8_t n_min, n_max; /* operands; n_max -1 = any number */
    nnc_class cls;
    uint32_t flags;
    int work;          /* CL_ecomp and CL_comp: scalar operations per element of operand 0 in the lowering */
    double lo, hi;     /* range of results for all non-NaN operands (-inf, inf when unknown) */
    const char *attrs; /* "axes keepdims?": allowed attributes; '?' = optional */
    const char *doc;   /* the equation */
} nnc_op_info;

extern const nnc_op_info nnc_ops[OP__COUNT];
bool nnc_op_parse(const char *name, size_t n, nnc_op *out);
static inline nnc_class nnc_op_class(nnc_op op) { return nnc_ops[op].cls; }
static inline bool nnc_op_is_ewise(nnc_op op) { return nnc_ops[op].cls == CL_ewise || nnc_ops[op].cls == CL_ecomp; }
/* A convolution, or one of its gradients. */
static inline bool nnc_op_is_conv(nnc_op op) { return op == OP_conv || op == OP_conv_transpose || op == OP_conv_wgrad; }

/* Scalar ops, of which kernel bodies consist. Each CL_ewise op of the graph has a scalar op of the same name. */
typedef enum nnc_sop {
#define SC(name, arity, res, flags, lo, hi, cost, ulp, value, cuda, deriv, doc) SC_##name,
#include "ir/scalar.def"
    SC__COUNT
} nnc_sop;

typedef enum nnc_sres { SR_same, SR_bool, SR_select, SR_cast } nnc_sres; /* type of the result */

typedef struct nnc_sop_info {
    const char *name;
    int8_t arity;
    nnc_sres res;
    uint32_t flags; /* OF_* */
    double lo, hi;
    int cost;          /* instructions per vector of f32; 0: not smooth */
    double ulp;        /* largest error of f32 under --math=ulp2 */
    const char *cuda;  /* CUDA C text, operands %0 %1 %2; f32 form */
    const char *deriv; /* d/dx_i in graph-op notation, ';' between operands; "" = zero */
    const char *doc;
} nnc_sop_info;

extern const nnc_sop_info nnc_sops[SC__COUNT];
bool nnc_sop_parse(const char *name, size_t n, nnc_sop *out);
bool nnc_sop_of(nnc_op op, nnc_sop *out); /* for a CL_ewise graph op */

/* One scalar op on doubles / 64-bit integers of type d: the definition used by the reference evaluator and constant folding. Floats:
 * IEEE f64, NaN kept by max/min/relu; ints wrap to d. cast rounds to `d`. */
double nnc_sop_eval_f64(nnc_sop op, double a, double b, double c);
int64_t nnc_sop_eval_i64(nnc_sop op, nnc_dtype d, int64_t a, int64_t b, int64_t c);

/* ---- attributes ------------------------------------------------------------------------------------------ */

typedef enum nnc_akind { AK_int, AK_float, AK_ints, AK_bool, AK_dtype, AK_word } nnc_akind;

typedef enum nnc_akey {
#define AT(name, kind, doc) AT_##name,
#include "ir/attrs.def"
    AT__COUNT
} nnc_akey;

typedef struct nnc_attr {
    uint8_t key; /* nnc_akey; its kind is in nnc_attrs[key] */
    int n;       /* AK_ints: count */
    int64_t i;   /* AK_int, AK_bool, AK_dtype */
    double f;
    const int64_t *ints;
    const char *word;
} nnc_attr;

typedef struct nnc_attr_info { const char *name; nnc_akind kind; const char *doc; } nnc_attr_info;
extern const nnc_attr_info nnc_attrs[AT__COUNT];
bool nnc_attr_parse(const char *name, size_t n, nnc_akey *out);

/* ---- the graph ------------------------------------------------------------------------------------------- */

typedef uint32_t nnc_ref; /* id of a value */
#define NNC_NONE UINT32_MAX

typedef struct nnc_graph nnc_graph;

typedef struct nnc_node {
    uint16_t op; /* nnc_op */
    uint16_t n_in, n_out, n_attr;
    int16_t device;   /* -1 = not assigned */
    int32_t task;     /* position in the order of each device: lower ones run first, equal ones together; -1 = none (docs/plan.md) */
    int32_t micro;    /* micro-batch that it computes, from 1, only for timelines; 0 = none */
    bool frozen;      /* param: not trained */
    bool state;       /* param: replaced by a value of the graph after each run (nnc_update) */
    bool accumulates; /* state: also replaced after runs without a step (nnc_accumulate) */
    nnc_ref *in;
    nnc_ref out;      /* first result; results have consecutive ids */
    nnc_attr *attr;   /* sorted by key */
    const char *origin; /* "/layers/12/conv"; a fused node: the union, joined by '+' */
    nnc_loc loc;
    nnc_weight *weight; /* param and constant */
    nnc_graph *body;    /* fused: body inputs = operands in order, body outputs = results in order */
} nnc_node;

typedef struct nnc_value {
    nnc_type type;
    uint32_t node;    /* the node that defines it */
    uint16_t result;
    const char *name; /* for printing; unique; may be NULL (prints its number) */
} nnc_value;

/* An output of the model without elements. It is not a value of the graph, but is printed and written like other outputs. */
typedef struct nnc_empty {
    const char *name;
    nnc_type type;
} nnc_empty;

struct nnc_graph {
    nnc_arena arena;
    nnc_sink *sink; /* borrowed; may be NULL */
    nnc_given *given; /* what it was read from, shared; NULL: it cannot be read again for other shapes */
    const char *head; /* with a new head: a line for each weight and its source; otherwise NULL */
    nnc_status status;
    const char *name;
    nnc_node *node;
    uint32_t n_node;
    size_t cap_node;
    nnc_value *value;
    uint32_t n_value;
    size_t cap_value;
    nnc_ref *output; /* in the order of `return`, then of `update` */
    const char **output_name;
    nnc_ref *output_state; /* of an update: the param that gets the output's value after the run; otherwise NNC_NONE */
    uint32_t n_output;
    size_t cap_output;
    nnc_empty *empty;
    uint32_t n_empty;
    size_t cap_empty;
    /* attached to new nodes by builders */
    const char *origin;
    nnc_loc loc;
    int16_t device;
    int32_t task, micro; /* not attached to leaves */
    /* names in use (open addressing), so that they stay unique; used by graph.c only */
    struct nnc_name_slot *name_slot;
    size_t cap_name, n_name;
};

nnc_graph *nnc_graph_create(const char *name, nnc_sink *sink); /* NULL: out of memory */
void nnc_graph_destroy(nnc_graph *g);
NNC_OWNER(nnc_graph, nnc_graph_destroy)
/* A deep copy with the same value ids that shares nothing with src. NULL: out of memory (reported). */
nnc_graph *nnc_graph_clone(const nnc_graph *g, nnc_sink *sink);
/* A copy in which bodies replace fused nodes. `expand`: named reductions are expanded, and 16-bit floats cast to f32. NULL: out of
 * memory, or a failure in the sink. */
nnc_graph *nnc_graph_flatten(const nnc_graph *g, bool expand, nnc_sink *sink);

static inline nnc_node *nnc_def(const nnc_graph *g, nnc_ref r) { return &g->node[g->value[r].node]; }
static inline const nnc_type *nnc_typeof(const nnc_graph *g, nnc_ref r) { return &g->value[r].type; }

static inline bool nnc_is_leaf(const nnc_node *n) { return nnc_op_class(n->op) == CL_leaf; }
/* Ops that kernels absorb and compute again; of batchnorms all except the statistics. */
static inline bool nnc_is_elementwise(const nnc_node *n)
{
    const nnc_class class = nnc_op_class(n->op);
    return class == CL_ewise || class == CL_ecomp || n->op == OP_batchnorm;
}

/* Attributes of a node with defaults (the same as those of the text form and of shape inference). */
const nnc_attr *nnc_attr_find(const nnc_node *n, nnc_akey k);
int64_t nnc_attr_int(const nnc_node *n, nnc_akey k, int64_t dflt); /* int, bool, dtype */
double nnc_attr_float(const nnc_node *n, nnc_akey k, double dflt);
int nnc_attr_ints(const nnc_node *n, nnc_akey k, const int64_t **out); /* count; 0 when absent */

/* General builder: infers the result types. attrs in any order. Returns the first result. */
nnc_ref nnc_build(nnc_graph *g, nnc_op op, int n_in, const nnc_ref *in, int n_attr, const nnc_attr *attr);
/* The same with the type of the single result. Leaves require it. For other ops it must agree with inference in dtype and dimensions, and
 * determines the memory order. */
nnc_ref nnc_build_typed(nnc_graph *g, nnc_op op, int n_in, const nnc_ref *in, int n_attr, const nnc_attr *attr, const nnc_type *type);
static inline nnc_attr nnc_ai(nnc_akey k, int64_t v) { return (nnc_attr){.key = (uint8_t)k, .i = v}; }
static inline nnc_attr nnc_af(nnc_akey k, double v) { return (nnc_attr){.key = (uint8_t)k, .f = v}; }
/* Copied by the builder. */
static inline nnc_attr nnc_av(nnc_akey k, int n, const int64_t *v) { return (nnc_attr){.key = (uint8_t)k, .n = n, .ints = v}; }
/* AK_word; copied by the builder. */
static inline nnc_attr nnc_aw(nnc_akey k, const char *word) { return (nnc_attr){.key = (uint8_t)k, .word = word}; }
static inline nnc_ref nnc_build1(nnc_graph *g, nnc_op op, nnc_ref a) { return nnc_build(g, op, 1, &a, 0, NULL); }
static inline nnc_ref nnc_build2(nnc_graph *g, nnc_op op, nnc_ref a, nnc_ref b) { return nnc_build(g, op, 2, (nnc_ref[]){a, b}, 0, NULL); }
static inline nnc_ref nnc_build3(nnc_graph *g, nnc_op op, nnc_ref a, nnc_ref b, nnc_ref c)
{
    return nnc_build(g, op, 3, (nnc_ref[]){a, b, c}, 0, NULL);
}
nnc_ref nnc_input(nnc_graph *g, const char *name, const nnc_type *t);
nnc_ref nnc_param(nnc_graph *g, const nnc_type *t, const nnc_weight *w); /* w copied shallowly, strings duplicated */
nnc_ref nnc_scalar(nnc_graph *g, nnc_dtype d, double v);                 /* rank-0 constant */
nnc_ref nnc_constant(nnc_graph *g, const nnc_type *t, const void *data); /* row-major, copied */
nnc_ref nnc_reshape(nnc_graph *g, nnc_ref x, int rank, const int64_t *dim);
nnc_ref nnc_transpose(nnc_graph *g, nnc_ref x, const int64_t *perm);
nnc_ref nnc_broadcast(nnc_graph *g, nnc_ref x, int rank, const int64_t *dim);
nnc_ref nnc_cut(nnc_graph *g, nnc_ref x, int64_t axis, int64_t from, int64_t to); /* a slice of one dimension */
nnc_ref nnc_concat(nnc_graph *g, int n, const nnc_ref *x, int64_t axis); /* n = 1: returns x[0] */
nnc_ref nnc_reduce(nnc_graph *g, nnc_op op, nnc_ref x, int n_axes, const int64_t *axes, bool keepdims);
nnc_ref nnc_cast(nnc_graph *g, nnc_ref x, nnc_dtype to);
/* Relayout to a memory order (no node when x has it already). */
nnc_ref nnc_relayout(nnc_graph *g, nnc_ref x, const uint8_t *order);
/* Relayout to row-major, with x's layer and device. */
nnc_ref nnc_row_major(nnc_graph *g, nnc_ref x);
/* A fused node over `body` (ownership passes to g). Returns the first result. */
nnc_ref nnc_fused(nnc_graph *g, nnc_graph *body, int n_in, const nnc_ref *in);
void nnc_output(nnc_graph *g, nnc_ref r, const char *name);
void nnc_output_empty(nnc_graph *g, const nnc_type *t, const char *name);
/* Adds `update %state <- %value`: the param `state` gets the value after the run; nodes read the old one. Both have the same type. In the
 * list updates follow all outputs, and they count as outputs for liveness. */
void nnc_update(nnc_graph *g, nnc_ref state, nnc_ref value);
/* Adds `accumulate %state <- %value`: the same, but also after runs that only accumulate. Steps do both, in this order. */
void nnc_accumulate(nnc_graph *g, nnc_ref state, nnc_ref value);
#define NNC_GRADIENT ".gradient"
/* Whether output i of a training step is the gradient with respect to an input, "x.gradient", computed after the loss like new weights. */
bool nnc_output_is_gradient(const nnc_graph *g, uint32_t i);
int nnc_graph_devices(const nnc_graph *g); /* 1 + the largest device of its ops; 1: all are on one */
bool nnc_graph_is_step(const nnc_graph *g); /* whether it has updates, or such outputs */
uint32_t nnc_result_outputs(const nnc_graph *g); /* number of outputs that are not updates; they come first */
void nnc_set_name(nnc_graph *g, nnc_ref r, const char *name); /* made unique; control characters become '_' */

/* Copies node `n` of `src` into `dst` with operands `in`; returns the first result in dst. Keeps origin, loc, names. */
nnc_ref nnc_copy_node(nnc_graph *dst, const nnc_graph *src, const nnc_node *n, const nnc_ref *in);

/* Joins several models into one graph of disjoint components (join.c). Paths of model i begin with /name[i], names of its inputs, outputs
 * and values with "name[i].". device[i] is the device of its nodes; device NULL, or -1: unchanged. Names must differ, and be valid in
 * value names. */
nnc_status nnc_graph_join(const nnc_graph *const *m, const char *const *name, const int *device, int n, nnc_graph **out,
    nnc_sink *sink) NNC_MUST;
/* The input's name in its own model: "x" for "resnet101.x" in a joined graph, otherwise its name. */
const char *nnc_own_name(const nnc_graph *g, const nnc_node *input);
/* Whether path[0..n) is `of` ("/loss", "/optimizer") or below it, also in one of several models ("/resnet101/loss"). */
bool nnc_path_is(const char *path, size_t n, const char *of);

/* To change a graph, append nodes, redirect uses, then tidy. nnc_graph_tidy removes nodes that no output needs (inputs stay), restores
 * topological order (stable: among ready nodes by old position) and renumbers. Old refs become invalid. */
void nnc_replace_uses(nnc_graph *g, nnc_ref from, nnc_ref to); /* outputs too */
nnc_status nnc_graph_tidy(nnc_graph *g) NNC_MUST;
/* use_count[v] = operands plus outputs that name v; array of n_value in `a`. */
uint32_t *nnc_use_counts(const nnc_graph *g, nnc_arena *a);

/* Infers the result types of one node from its operands' types: fills type[0..n_out). Errors name the node's loc and origin, what was
 * wrong and what would be right; code NNC_E_MODEL. */
nnc_status nnc_infer(const nnc_graph *g, nnc_node *n, nnc_type *out_type, nnc_sink *sink) NNC_MUST;
/* One spatial dimension of a convolution or pooling, and the extent of its result: the rule shared by inference and the plan verifier.
 * False: a number is out of range, the window does not fit, or the extent overflows. */
typedef struct nnc_window {
    int64_t in, kernel, stride, dilation, lo, hi; /* lo, hi: padding */
    int64_t extra;                                /* output_padding; transposed only */
} nnc_window;
typedef enum nnc_window_rule {
    NNC_WINDOW_floor,      /* whole windows */
    NNC_WINDOW_ceil,       /* the last may extend beyond the end, if it does not begin in the end padding (PyTorch, ONNX) */
    NNC_WINDOW_transposed, /* (in - 1) stride - lo - hi + reach + extra */
} nnc_window_rule;
#define NNC_MAX_STEP ((int64_t)1 << 31) /* limit for each number except `in`, and for the dilated kernel: larger ones are mistakes */
bool nnc_window_extent(const nnc_window *w, nnc_window_rule rule, int64_t *out);
int nnc_result_count(const nnc_node *n); /* split: number of sizes; fused: outputs of its body; others: 1 */

nnc_status nnc_verify(const nnc_graph *g, nnc_sink *sink) NNC_MUST; /* NNC_E_BUG unless `user_text` parse errors */
void nnc_graph_print(nnc_text *t, const nnc_graph *g);
/* Parses one graph; NULL on error (reported). The text form is docs/graph-ir.md. */
nnc_graph *nnc_graph_parse(nnc_scan *s, nnc_sink *sink);
/* Content hash of everything that decides results (not names, origins, locations). */
nnc_hash128 nnc_graph_hash(const nnc_graph *g);
/* Hash of a node as a kernel: its op, attributes, body and results, and its operands' types, equalities and numbers. Nodes of equal hash
 * are lowered to the same kernel. Valid within a process. Takes time proportional to n_in squared. */
nnc_hash128 nnc_node_hash(const nnc_graph *g, const nnc_node *n);
/* Graphviz text. */
void nnc_graph_dot(nnc_text *t, const nnc_graph *g);

/* ---- facts ----------------------------------------------------------------------------------------------- */

/* Bounds of a value's elements, except NaN, from facts about ops; floats only (integers wrap out of an op's range). Looks back through
 * a few movements, selections and bounds. */
void nnc_value_range(const nnc_graph *g, nnc_ref r, double *lo, double *hi);
/* True when result = f(operand i) is non-decreasing, the other operands being known constants, as relu or mul by a constant > 0. So a <= b
 * implies f(a) <= f(b), in floating point too, and a NaN operand gives NaN: f commutes with a maximum. */
bool nnc_is_nondecreasing(const nnc_graph *g, const nnc_node *n, int i);
/* The tables that an integer input's elements index. any: extent of the smallest table (or number of classes, where they are compared with
 * an iota) that any of them index. all, gather: the smallest table that all of them index (0: none). For tuples, whose elements index
 * several dimensions, the smallest and the largest dimension count. Looks through movement and casts that keep integers, not through
 * arithmetic. */
typedef struct nnc_index_use { int64_t any, all; const nnc_node *gather; } nnc_index_use;
nnc_status nnc_indexes(const nnc_graph *g, nnc_ref input, nnc_index_use *out) NNC_MUST;
/* Gets the value of a rank-0 or splat inline constant. False: not one. */
bool nnc_const_scalar(const nnc_graph *g, nnc_ref r, double *out);
bool nnc_operand_repeats(const nnc_node *n, int i); /* operand i is also an earlier operand */
/* Finds the post-operation of library calls that computes op n. False: none. */
bool nnc_node_post(const nnc_node *n, nnc_post *out);
/* winograd.c: the transforms of Winograd's convolution of tiles with 3x3 windows, y = R [(W g W^T) * (S x S^T)] R^T. */
enum { NNC_WINOGRAD_TAPS = 3, NNC_WINOGRAD_TILE = 4, NNC_WINOGRAD_SIDE = 6 };
typedef struct nnc_winograd {
    int tile, side; /* results of a tile along each dimension: 4 or 2; elements of the source: tile + 2 */
    double source[NNC_WINOGRAD_SIDE][NNC_WINOGRAD_SIDE], weight[NNC_WINOGRAD_SIDE][NNC_WINOGRAD_TAPS],
        result[NNC_WINOGRAD_TILE][NNC_WINOGRAD_SIDE];
} nnc_winograd;
/* Fills *w for this number of points, side x side; false: no transform has it. */
bool nnc_winograd_of(int64_t points, nnc_winograd *w);
static inline bool nnc_op_is_recurrent(nnc_op op) { return op == OP_lstm || op == OP_gru || op == OP_rnn || op == OP_recurrent_grad; }
static inline bool nnc_op_is_winograd(nnc_op op) { return op == OP_winograd || op == OP_winograd_wgrad; }
/* Number of points of node n, winograd or winograd_wgrad. */
int64_t nnc_winograd_points(const nnc_graph *g, const nnc_node *n);
/* Images and rows of tiles of the node's block: one image if the block's number does not divide all_images, at most all_rows rows. */
void nnc_winograd_block(const nnc_node *n, int64_t all_images, int64_t all_rows, int64_t *images, int64_t *rows);
/* Whether a pooling has windows of 2x2, stride 2, no padding and no dilation. */
bool nnc_halves(const nnc_graph *g, const nnc_node *n);
/* Whether each output channel of a convolution reads only one input channel (groups = input channels). */
bool nnc_is_depthwise(const nnc_graph *g, const nnc_node *n);
/* Index of the operand of n that holds indices into its first operand; 0: none. */
int nnc_index_operand(const nnc_node *n);
static inline bool nnc_op_is_expensive(nnc_op op)
{
    return nnc_ops[op].flags & OF_slow;
}
/* Static values depend only on constants and params without updates, and `init` computes them once. */
bool nnc_may_be_static(const nnc_node *n); /* static if its operands are; false for inputs, states, copies to a place, collectives */
/* By value, in `a`: whether it is static. */
bool *nnc_static_values(const nnc_graph *g, nnc_arena *a);

/* Cost of running a node once, shared by plan, remarks, simulator and compare.
 * bytes: each distinct operand read once, each result written once (a fused node: its outer edges; gather: the elements it reads; a
 * view: nothing). flops: 2 per multiply-add of contractions, 1 per scalar op, k*k per window. launches: 1, or 0 for leaves, views and
 * static nodes (they run in init). */
typedef struct nnc_cost { int64_t flops, bytes; int32_t launches; } nnc_cost;
nnc_cost nnc_node_cost(const nnc_graph *g, const nnc_node *n);
nnc_cost nnc_graph_cost(const nnc_graph *g); /* sum over nodes that are neither leaves nor static; all -1: out of memory */
/* Whether a node computes nothing, because its results share its operands' memory, so that the planner gives them one buffer. Such are
 * reshape of row-major memory, transpose that only renames dimensions, identity; concat, slice and split in place. */
bool nnc_is_view(const nnc_graph *g, const nnc_node *n);
bool nnc_is_in_place(const nnc_node *n); /* concat, slice or split with that attribute */
/* Device that computes v. For a collective's result it is the participant's (default: the operand's), for a view that of its memory. */
int16_t nnc_home(const nnc_graph *g, nnc_ref v);
/* The value that v is reshaped from without moving a byte, or v. */
nnc_ref nnc_reshaped(const nnc_graph *g, nnc_ref v);
/* Whether a value of type t can be part of one of type `whole`: the same memory order and strides, and no dimension larger. */
bool nnc_is_part(const nnc_type *t, const nnc_type *whole);
/* Location of a value: the value that owns the memory (itself, or found through views), and the offset of its first element, in elements.
 * */
typedef struct nnc_place { nnc_ref root; int64_t at; } nnc_place;
nnc_place *nnc_places(const nnc_graph *g, nnc_arena *a); /* per value, in `a`; NULL: out of memory */
/* Whether operand k of n is a running statistic of a batchnorm, which training updates but does not learn. */
static inline bool nnc_reads_statistic(const nnc_node *n, int k) { return n->op == OP_batchnorm && k >= 3; }
/* Number of elements of all params, with running statistics counted separately. False: out of memory, and both are 0. */
bool nnc_param_count(const nnc_graph *g, int64_t *parameters, int64_t *statistics);

/* ---- lowering of named ops ------------------------------------------------------------------------------------- */

/* Builds in g the lowering of node n (CL_ecomp or CL_comp) over the operands `in` (values of g). Returns the result that
 * replaces n's, or NNC_NONE. Origin and loc of the new nodes are n's. */
nnc_ref nnc_expand(nnc_graph *g, const nnc_node *n, const nnc_ref *in);

/* Receives the scalar ops of an elementwise op's lowering; values are numbered by the receiver. NNC_NONE: out of memory. */
typedef struct nnc_expander {
    void *ctx;
    nnc_ref (*op)(void *ctx, nnc_op op, int n, const nnc_ref *in); /* CL_ewise */
    nnc_ref (*number)(void *ctx, double v);
} nnc_expander;
/* The lowering of a CL_ecomp node over operands of type d, passed to f. */
nnc_ref nnc_expand_ewise(const nnc_node *n, nnc_dtype d, const nnc_ref *in, const nnc_expander *f);

/* ---- reference evaluator ----------------------------------------------------------------------------------- */

/* A value of the reference: integers exact (i64), floats in f64, rounded only at `cast`. Row-major. */
typedef struct nnc_rval {
    nnc_type type; /* logical: row-major */
    double *f;     /* float types */
    int64_t *i;    /* integer and bool types */
} nnc_rval;

/* Evaluates all outputs. inputs[i]: data of the i-th input node, row-major in its dtype. outputs: the caller's array of n_output,
 * filled with values that it then owns (nnc_rval_free). Values are freed after their last use. Params come from nnc_weight_read.
 * `threads` >= 1. */
nnc_status nnc_eval(const nnc_graph *g, const void *const *inputs, int threads,
    nnc_rval *outputs, nnc_sink *sink) NNC_MUST;
void nnc_rval_free(nnc_rval *v);
void nnc_rval_store(const nnc_rval *v, void *to); /* rounded to the type of v, row-major */
nnc_ref nnc_constant_of(nnc_graph *g, const nnc_rval *v);
/* The same for one of several runs. States have the values of their updates in `before`, the outputs of the previous run. NULL: the first
 * run. */
nnc_status nnc_eval_step(const nnc_graph *g, const void *const *inputs, int threads, const nnc_rval *before,
    nnc_rval *outputs, nnc_sink *sink) NNC_MUST;
/* The same with simulated rounding (NULL: none). Each op's result and the terms of its sums are perturbed at random by a device's rounding
 * errors. The distance from nnc_eval measures the model's conditioning in its dtypes. Deterministic in the seed. */
typedef struct nnc_rounding {
    uint64_t seed;
    double function_error; /* largest relative error of exp, sin, ...; 0: 2.5 ulp of the dtype */
    double operand_unit;   /* unit roundoff of contractions' operands (tf32: 2^-11); 0: that of their dtype */
    double result_unit;    /* coarsest unit roundoff of stored results (--precision=bf16: 2^-8); 0: that of their dtypes */
    const nnc_rval *before; /* as in nnc_eval_step; NULL */
} nnc_rounding;
nnc_status nnc_eval_rounded(const nnc_graph *g, const void *const *inputs, int threads,
    const nnc_rounding *rounding, nnc_rval *outputs, nnc_sink *sink) NNC_MUST;
/* The same, but replaces single elements of values as soon as the values are computed, so all dependent values follow. The values must be
 * floats, and not leaves. */
typedef struct nnc_replaced { nnc_ref value; int64_t element; double number; } nnc_replaced;
nnc_status nnc_eval_replaced(const nnc_graph *g, const void *const *inputs, int threads, const nnc_replaced *edit, size_t n,
    nnc_rval *outputs, nnc_sink *sink) NNC_MUST;
/* Lists the elements of x in window i of pooling n with result y, in the window's order. at[] has room for a window. Returns their
 * number. */
int64_t nnc_window_elements(const nnc_node *n, const nnc_type *x, const nnc_type *y, int64_t i, int64_t *at);
/* Estimated multiply-adds and peak bytes of nnc_eval, to decide whether to sample. */
void nnc_eval_cost(const nnc_graph *g, int64_t *ops, int64_t *peak_bytes);

/* A smaller graph that computes only some rows of dimension 0 of inputs and outputs, if all nodes carry it through independently (a batch).
 * On success *out is the graph, whose inputs are rows of the originals. Inputs that do not carry the dimension stay whole (carried[i]
 * false). NULL with NNC_OK when rows are not independent. */
nnc_status nnc_graph_sample(const nnc_graph *g, int64_t rows, nnc_graph **out, bool *carried_inputs,
    bool *carried_outputs, nnc_sink *sink) NNC_MUST;

#endif
