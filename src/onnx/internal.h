/* onnx/internal.h -- shared by the files of this folder.
 *
 * Stages: bytes -> messages (wire.c, proto.c) -> values and nodes in order (import.c). The builder of a node's row (ops.def, build_*.c)
 * imports it; fold.c folds it if its operands are constants. */
#ifndef NNC_ONNX_INTERNAL_H
#define NNC_ONNX_INTERNAL_H

#include "onnx/onnx.h"

/* ---- the wire format of protocol buffers (wire.c) -------------------------------------------------------------- */

typedef struct ox_span { /* bytes of the file */
    const uint8_t *p;
    size_t n;
} ox_span;

typedef struct ox_wire {
    const uint8_t *p, *end;
    bool bad; /* damaged: the rest is not read */
} ox_wire;

typedef enum ox_kind { OX_varint, OX_fixed64, OX_bytes, OX_fixed32 = 5 } ox_kind;

typedef struct ox_field {
    uint32_t no;
    ox_kind kind;
    uint64_t v; /* OX_varint, OX_fixed32, OX_fixed64 */
    ox_span s; /* OX_bytes */
} ox_field;

static inline ox_wire ox_open(ox_span s) { return (ox_wire){s.p, s.n ? s.p + s.n : s.p, false}; }
bool ox_next(ox_wire *w, ox_field *f); /* false: the end, or damage (w->bad) */
bool ox_varint(ox_wire *w, uint64_t *v);
bool ox_fixed(ox_wire *w, size_t n, uint64_t *v); /* a number of n bytes */

/* ---- messages (proto.c) ------------------------------------------------------------------------------------------ */

/* Limits, stated in docs/onnx.md: a hostile file is rejected before much memory is taken. */
enum {
    OX_MAX_NODES = 100000, /* in the file, and again after functions are inlined */
    OX_MAX_DEPTH = 16, /* of graphs in attributes, and of calls of functions */
    OX_MAX_OPERANDS = 4096, /* of a node */
    OX_MAX_LIST = 1 << 20, /* elements of an attribute */
    OX_MAX_FUNCTIONS = 10000,
};

/* Field numbers of onnx.proto, by message. */
enum {
    MODEL_ir_version = 1, MODEL_producer = 2, MODEL_version = 3, MODEL_graph = 7, MODEL_opset = 8, MODEL_functions = 25,
    OPSET_domain = 1, OPSET_version = 2,
    GRAPH_node = 1, GRAPH_name = 2, GRAPH_initializer = 5, GRAPH_input = 11, GRAPH_output = 12, GRAPH_sparse = 15,
    NODE_input = 1, NODE_output = 2, NODE_name = 3, NODE_op = 4, NODE_attribute = 5, NODE_doc = 6, NODE_domain = 7,
    NODE_overload = 8,
    ATTR_name = 1, ATTR_f = 2, ATTR_i = 3, ATTR_s = 4, ATTR_t = 5, ATTR_g = 6, ATTR_floats = 7, ATTR_ints = 8, ATTR_strings = 9,
    ATTR_type = 20, ATTR_ref = 21,
    TENSOR_dims = 1, TENSOR_type = 2,
    TENSOR_f32 = 4, /* numbers by type; i32: of 32 bits and fewer, and bool and 16-bit floats */
    TENSOR_i32 = 5, TENSOR_i64 = 7, TENSOR_name = 8, TENSOR_raw = 9, TENSOR_f64 = 10, TENSOR_u64 = 11, TENSOR_external = 13,
    TENSOR_location = 14, /* 1: external */
    ENTRY_key = 1, ENTRY_value = 2,
    PORT_name = 1, PORT_type = 2,
    TYPE_tensor = 1, TYPE_sequence = 4, TYPE_map = 5, TYPE_opaque = 7, TYPE_sparse = 8, TYPE_optional = 9,
    TENSOR_TYPE_element = 1, TENSOR_TYPE_shape = 2,
    SHAPE_dim = 1,
    DIM_value = 1, DIM_param = 2,
    FUNCTION_name = 1, FUNCTION_input = 4, FUNCTION_output = 5, FUNCTION_node = 7, FUNCTION_doc = 8, FUNCTION_opset = 9,
    FUNCTION_domain = 10, FUNCTION_attribute = 11, FUNCTION_overload = 13,
};

/* Codes of TensorProto.DataType. */
enum {
    OXD_f32 = 1, OXD_u8, OXD_i8, OXD_u16, OXD_i16, OXD_i32, OXD_i64, OXD_string, OXD_bool, OXD_f16, OXD_f64, OXD_u32, OXD_u64,
    OXD_bf16 = 16, OXD_u4 = 21, OXD_i4 = 22, OXD_u2 = 25, OXD_i2 = 26,
};
/* Integers of 4 and 2 bits are i8 and u8 in graphs. */
bool ox_dtype(int64_t code, nnc_dtype *out);
int64_t ox_code(nnc_dtype d);
int ox_bits(int64_t code); /* 4 or 2; 0 for all other types */
const char *ox_dtype_name(int64_t code); /* also of types that nnc does not support */

typedef struct ox_tensor {
    const char *name; /* "" = none */
    int64_t code; /* TensorProto.DataType */
    int rank;
    int64_t dim[NNC_MAX_RANK];
    bool many; /* more than NNC_MAX_RANK dimensions */
    bool external;
    ox_span raw; /* raw_data */
    ox_span msg; /* the whole message: typed data are read from it */
} ox_tensor;

/* Codes of AttributeProto.AttributeType. */
enum {
    OXA_float = 1, OXA_int, OXA_string, OXA_tensor, OXA_graph, OXA_floats, OXA_ints,
    OXA_strings
};

typedef struct ox_attr {
    const char *name;
    const char *ref; /* the attribute of the function whose value this one has, or NULL */
    int type;
    double f;
    int64_t i;
    const char *s;
    ox_span bytes; /* t or g */
    size_t n; /* of floats or ints */
    const double *floats;
    const int64_t *ints;
} ox_attr;

typedef struct ox_node {
    const char *name, *op, *domain, *overload;
    const char **in, **out;
    size_t n_in, n_out, n_attr;
    ox_attr *attr;
} ox_node;

typedef struct ox_port { /* ValueInfoProto */
    const char *name;
    int64_t code; /* 0: not a tensor */
    const char *kind; /* what it is instead */
    int rank; /* -1: not stated */
    int64_t dim[NNC_MAX_RANK]; /* -1: named or unknown */
    const char *param[NNC_MAX_RANK]; /* its name, or NULL */
} ox_port;

typedef struct ox_opset {
    const char *domain;
    int64_t version;
} ox_opset;

typedef struct ox_graph {
    const char *name;
    ox_node *node;
    ox_tensor *init;
    ox_port *in, *out;
    size_t n_node, n_init, n_in, n_out;
    bool sparse; /* has sparse initializers */
} ox_graph;

typedef struct ox_function {
    const char *name, *domain, *overload;
    const char **in, **out;
    size_t n_in, n_out, n_opset, n_node, n_attr;
    ox_opset *opset;
    ox_node *node;
    ox_attr *attr; /* those with defaults */
} ox_function;

typedef struct ox_model {
    ox_span graph;
    bool has_graph;
    bool of_pytorch; /* its exporter wrote the file */
    ox_opset *opset;
    ox_function *function;
    size_t n_opset, n_function;
} ox_model;

typedef struct ox_reader { /* parsing: where messages and failures go */
    nnc_arena *a;
    nnc_sink *sink;
    const char *file;
    nnc_status status;
    size_t n_node; /* so far, in the whole file */
} ox_reader;

bool ox_read_model(ox_reader *r, ox_span s, ox_model *out);
bool ox_read_graph(ox_reader *r, ox_span s, ox_graph *out);
bool ox_read_tensor(ox_reader *r, ox_span s, ox_tensor *out);

/* Fills dst, row-major of dtype d, with the tensor's numbers, which are not external. NULL: done; otherwise what is wrong. */
const char *ox_tensor_data(const ox_tensor *t, nnc_dtype d, int64_t n, void *dst);
/* Where the bytes of an external tensor lie: location, offset, length (-1: to the end). */
bool ox_tensor_place(
    ox_reader *r, const ox_tensor *t, const char **location, int64_t *offset, int64_t *length);

/* ---- one import (import.c) -------------------------------------------------------------------------------------------- */

typedef enum ox_state {
    OX_unset,
    OX_here, /* ref is its value */
    OX_empty, /* without elements: a type whose extents may be 0, and no value of the graph */
    OX_untyped, /* an initializer of an unsupported type, which no node may use; dtype is not set, rank is the type's code */
    OX_sequence, /* a list of values, and no value of the graph */
    OX_missing, /* its node could not be imported: nodes that need it are skipped */
} ox_state;

typedef struct ox_value {
    ox_state state;
    nnc_ref ref;
    uint8_t bits; /* as by ox_bits, if known */
    nnc_dtype dtype; /* for OX_empty, like rank and dim */
    int rank;
    int64_t dim[NNC_MAX_RANK];
    int n_item; /* for OX_sequence */
    const struct ox_value *item;
} ox_value;

typedef struct ox_refusal { /* operators that are not imported, by reason */
    const char *op, *why;
    nnc_text nodes;
    int n;
    struct ox_refusal *next;
} ox_refusal;

typedef struct ox_use { /* how often an operator occurs */
    const char *op;
    int n;
    struct ox_use *next;
} ox_use;

typedef struct ox_outside { /* a file of external data */
    const char *location, *path;
    nnc_map map;
    uint64_t hash;
    struct ox_outside *next;
} ox_outside;

typedef struct
    ox_place { /* a range of the model (file NULL) that holds a weight left in place, or of another file that holds a constant */
    ox_outside *file;
    int64_t at, size;
} ox_place;

typedef struct ox_scope ox_scope;

typedef struct ox {
    const nnc_onnx_options *o;
    const char *file;
    nnc_sink *sink;
    nnc_arena a;
    ox_reader r;
    ox_span data;
    bool mapped; /* data is the mapped file, or o->held, so weights may refer to it */
    uint64_t file_hash;
    nnc_graph *g;
    nnc_status status;
    ox_model m;
    ox_refusal *refusal;
    ox_use *use;
    int nodes, refused; /* number of nodes so far, and of those that cannot be imported */
    int depth;
    ox_outside *outside; /* files of external data */
    ox_place *range;
    size_t n_range, cap_range;
} ox;

struct ox_scope { /* names of a graph's values */
    ox_scope *up; /* of the enclosing graph; NULL for the model's graph and a function's body */
    const ox_opset *opset;
    size_t n_opset;
    const struct ox_build *call; /* the node that calls this function, which attributes refer to; or NULL */
    const char *prefix; /* prefix of paths */
    struct ox_name *slot;
    size_t n_slot, n_name;
};

typedef struct ox_build { /* the node being imported */
    ox *x;
    ox_scope *scope;
    const ox_node *n;
    const struct ox_row *row;
    const ox_function *function; /* of the call, for defaults of attributes */
    int64_t opset; /* of the node's domain */
    const char *path;
    int n_in, n_out;
    ox_value *in, *out;
    bool refused;
    int64_t stand_in; /* the extent that stands for 0 while the shapes of results without elements are found (empty.c); else 0 */
} ox_build;

typedef bool (*ox_builder)(ox_build *b);

#define OX_MICROSOFT "com.microsoft" /* the domain of ONNX Runtime's own operators */

typedef struct ox_row {
    const char *domain, *name;
    int from, to; /* opsets */
    int n_min, n_max;
    const char *consts; /* inputs whose values decide shapes, "1 2" */
    ox_builder build; /* NULL: unsupported, and `limits` says what is needed */
    nnc_op op;
    const char *attrs; /* "axis=-1 eps": those that the builder understands */
    const char *maps, *limits;
} ox_row;

/* Finds the row of an operator in this opset. NULL: none; *known: another opset has it. */
const ox_row *ox_find_row(const char *domain, const char *op, int64_t opset, bool *known);
bool ox_row_takes(const ox_row *row, const char *attr);
/* The newest operator set before `opset` in which the operator takes the attribute; 0: none. */
int ox_attr_until(const char *op, int64_t opset, const char *attr);
bool ox_row_const(const ox_row *row, size_t input);

/* order.c: sorts nodes topologically. False: reported. */
bool ox_order(ox *x, ox_node *node, size_t n);
/* mask.c: makes x[mask] = v of NonZero and ScatterND a ScatterND by a mask. false: out of memory. */
bool ox_masks(ox *x, ox_graph *g);
bool ox_open_graph(ox *x, ox_span s, ox_graph *out); /* reads a graph and sorts its nodes */
nnc_status ox_run_graph(ox *x, ox_scope *s, const ox_graph *g);
ox_value *ox_lookup(ox_scope *s, const char *name);
bool ox_define(ox *x, ox_scope *s, const char *name, ox_value v);
bool ox_mark(ox *x, ox_scope *marks, const char *name); /* defines it, if it is not yet, as no value */
bool ox_nomem(ox *x); /* false */
/* statistics.c. Gives running statistics that are also weights their own params, before the graph is tidied. */
bool ox_separate_statistics(ox *x);
bool ox_stop(ox *x, nnc_status st); /* records the first failure; false */

/* Weights and constants (weights.c). */
bool ox_weight(ox *x, const ox_tensor *t, const char *what, ox_value *out);
bool ox_constant(ox *x, const ox_tensor *t, const char *what, ox_value *out);
void ox_close_outside(ox *x);
/* given.c. Records a range. */
bool ox_note_range(ox *x, ox_outside *file, int64_t at, int64_t size);
/* Returns what is needed to import the model again; NULL: out of memory. */
nnc_given *ox_keep(ox *x);

/* Folding (fold.c). */
bool ox_fold(ox *x, uint32_t first_node, ox_value *out, int n_out);
/* Numbers of a constant, or of a weight of at most OX_MAX_KNOWN bytes, row-major in its dtype; NULL: unknown. */
const void *ox_known(ox *x, nnc_ref r);
enum { OX_MAX_KNOWN = 1 << 16 };

/* ---- for builders (build.c) ------------------------------------------------------------------------------------------- */

/* Records why the node cannot be imported. Returns false. */
bool ox_refuse(ox_build *b, const char *fmt, ...) NNC_PRINTF(2, 3);
/* Reports that the node violates ONNX's rules, and ends the import. Returns false. */
bool ox_wrong(const ox_build *b, const char *fmt, ...) NNC_PRINTF(2, 3);

static inline bool ox_has(const ox_build *b, int i) { return i < b->n_in && b->in[i].state != OX_unset; }
static inline nnc_ref ox_in(const ox_build *b, int i) { return b->in[i].ref; }
bool ox_is_data(ox_build *b, int i); /* input i is there, and no constant */
static inline nnc_ref ox_optional(const ox_build *b, int i) { return ox_has(b, i) ? b->in[i].ref : NNC_NONE; }
static inline const nnc_type *ox_type(const ox_build *b, nnc_ref r)
{
    static const nnc_type none = {0};
    return r < b->x->g->n_value ? nnc_typeof(b->x->g, r) : &none;
}
static inline nnc_dtype ox_dt(const ox_build *b, nnc_ref r) { return ox_type(b, r)->dtype; }
static inline bool ox_wants(const ox_build *b, int i) { return i < b->n_out && *b->n->out[i]; }
bool ox_set(ox_build *b, int i, nnc_ref r); /* sets result i; false if r is NNC_NONE */
/* Sets result i to a tensor without elements. Returns true. */
bool ox_none(ox_build *b, int i, nnc_dtype d, int rank, const int64_t *dim);
bool ox_any_0(int n, const int64_t *dim);
bool ox_has_empty(const ox_build *b); /* an operand has no elements */
nnc_type ox_type_of(const ox_build *b, const ox_value *v); /* which may have no elements */
static inline nnc_type ox_shape_of(const ox_build *b, int i) { return ox_type_of(b, &b->in[i]); } /* the same of input i */
/* Result 0: x in this shape; without elements where one of the extents is 0. */
bool ox_give_shape(ox_build *b, nnc_ref x, nnc_dtype d, int rank, const int64_t *dim);
/* empty.c. The results of an operator of which an operand has no elements, where they have none either. */
bool ox_empty_results(ox_build *b);
static inline bool ox_give(ox_build *b, nnc_ref r) { return ox_set(b, 0, r); }

/* Finds an attribute, through the function's attribute if it refers to one; NULL: absent. One of another type than `type` ends the import
 * (reported). */
const ox_attr *ox_attr_find(const ox_build *b, const char *name, int type);
bool ox_has_attr(const ox_build *b, const char *name);
int64_t ox_int(const ox_build *b, const char *name, int64_t dflt);
double ox_float(const ox_build *b, const char *name, double dflt);
const char *ox_word(const ox_build *b, const char *name, const char *dflt);
const char *ox_words(const ox_build *b, const char *name); /* blanks between them; "": absent */
/* Gets the values of a list; false: absent. The node is refused if there are more than `most`. */
bool ox_ints(ox_build *b, const char *name, int most, int *n, int64_t *out);

/* Gets the integers of a constant input i; the node is refused if the value is unknown. False: reported. */
bool ox_const_ints(ox_build *b, int i, int most, int *n, int64_t *out);
bool ox_const_floats(ox_build *b, int i, int most, int *n, double *out);
bool ox_const_int(ox_build *b, int i, int64_t *out); /* one number */
bool ox_const_float(ox_build *b, int i, double *out);
/* Gets axes from the attribute or, if the operator has it, from input i, as non-negative and ascending ones. *given: they are present. */
bool ox_axes(ox_build *b, int i, int rank, int *n, int64_t *out, bool *given);
bool ox_axis(ox_build *b, int64_t axis, int rank, int *out);

/* Ops on values; NNC_NONE passes through. */
nnc_ref ox_op(ox_build *b, nnc_op op, int n_in, const nnc_ref *in, int n_attr, const nnc_attr *attr);
static inline nnc_ref ox_1(ox_build *b, nnc_op op, nnc_ref x) { return ox_op(b, op, 1, &x, 0, NULL); }
static inline nnc_ref ox_2(ox_build *b, nnc_op op, nnc_ref x, nnc_ref y) { return ox_op(b, op, 2, (nnc_ref[]){x, y}, 0, NULL); }
static inline nnc_ref ox_select(ox_build *b, nnc_ref c, nnc_ref yes, nnc_ref no)
{
    return ox_op(b, OP_select, 3, (nnc_ref[]){c, yes, no}, 0, NULL);
}
static inline nnc_ref ox_on_axis(ox_build *b, nnc_op op, int n, const nnc_ref *v, int64_t axis)
{
    return ox_op(b, op, n, v, 1, (nnc_attr[]){nnc_ai(AT_axis, axis)});
}
static inline nnc_ref ox_joined(ox_build *b, int n, const nnc_ref *v, int64_t axis)
{
    return n == 1 ? v[0] : ox_on_axis(b, OP_concat, n, v, axis);
}
static inline nnc_ref ox_reduced(ox_build *b, nnc_op op, nnc_ref x, int n_axes, const int64_t *axes, bool keepdims)
{
    return x == NNC_NONE ? x : nnc_reduce(b->x->g, op, x, n_axes, axes, keepdims);
}
static inline nnc_ref ox_broadcast(ox_build *b, nnc_ref x, int rank, const int64_t *dim)
{
    return x == NNC_NONE ? x : nnc_broadcast(b->x->g, x, rank, dim);
}
static inline nnc_ref ox_transposed(ox_build *b, nnc_ref x, const int64_t *perm)
{
    return x == NNC_NONE ? x : nnc_transpose(b->x->g, x, perm);
}
static inline nnc_ref ox_reshape(ox_build *b, nnc_ref x, int rank, const int64_t *dim)
{
    return x == NNC_NONE ? x : nnc_reshape(b->x->g, x, rank, dim);
}
static inline nnc_ref ox_slice(ox_build *b, nnc_ref x, int axis, int64_t from, int64_t to)
{
    return x == NNC_NONE ? x : nnc_cut(b->x->g, x, axis, from, to);
}
static inline nnc_ref ox_num(ox_build *b, nnc_dtype d, double v) { return nnc_scalar(b->x->g, d, v); }
nnc_ref ox_channels_first(ox_build *b, nnc_ref x); /* channels from the last dimension to dimension 1, and back */
nnc_ref ox_channels_last(ox_build *b, nnc_ref x);
/* op(x, v) with v of x's type. */
static inline nnc_ref ox_2n(ox_build *b, nnc_op op, nnc_ref x, double v)
{
    return x == NNC_NONE ? x : ox_2(b, op, x, ox_num(b, ox_dt(b, x), v));
}
nnc_ref ox_to(ox_build *b, nnc_ref x, nnc_dtype d); /* cast where needed */
nnc_ref ox_list(ox_build *b, int n, const int64_t *v); /* i64[n] */
nnc_ref ox_iota(ox_build *b, nnc_dtype d, int64_t n);
/* x as [..., n, ...] with extent n along `axis` of `rank`, 1 elsewhere. */
nnc_ref ox_along(ox_build *b, nnc_ref x, int rank, int axis);
/* Reshapes a list to lie along `axis` of `rank`, and a list of one number to a scalar. Other shapes are unchanged. */
nnc_ref ox_per_index(ox_build *b, nnc_ref v, int rank, int axis);
/* x with one more dimension, of extent 1, at `axis`. */
nnc_ref ox_add_dim(ox_build *b, nnc_ref x, int axis);
/* Reverses the first lengths[i] elements along `axis`, where i is the index in dimension `batch`. The others stay. */
nnc_ref ox_reversed(ox_build *b, nnc_ref x, nnc_ref lengths, int axis, int batch);
/* Imports ONNX's operator `op`, of this opset, as a part of the node, and returns its result 0. attr NULL: it has the node's attributes. */
nnc_ref ox_inner(ox_build *b, const char *op, int64_t opset, int n_in, const nnc_ref *in,
    int n_attr, const ox_attr *attr);
/* The numbers of a window for each of n spatial dimensions, with ONNX's names (build_nn.c). */
typedef struct ox_window {
    int n;
    int64_t kernel[3], strides[3], dilations[3], pads[6], extra[3];
} ox_window;
/* Reads the window of x. Without the attribute kernel_shape, w->kernel holds the weight's extents. */
bool ox_read_window(ox_build *b, const nnc_type *x, ox_window *w);
int ox_window_attrs(const ox_window *w, nnc_attr *a); /* strides, pads, dilations: 3 */
void ox_to_u8(ox_build *b, nnc_ref x, nnc_ref out[3]); /* DynamicQuantizeLinear */
/* (x - x's zero point) (y - y's zero point) times both scales, plus a bias. v: x with its scale and zero point, the same of y, bias. Zero
 * points and bias may be NNC_NONE. */
nnc_ref ox_integer_product(ox_build *b, const nnc_ref v[7]);
/* Adds a zero point to x, a float with an integer value, and saturates to the zero point's type; ox_saturate_to saturates to d. */
nnc_ref ox_saturate(ox_build *b, nnc_ref x, nnc_ref zero, int bits);
nnc_ref ox_saturate_to(ox_build *b, nnc_ref x, nnc_dtype d, int bits);

#define ONNX(name, from, to, n_min, n_max, consts, build, op, attrs, maps, limits) \
    bool build(ox_build *b);
#define NO_ONNX(name, needs)
#define MS(name, n_min, n_max, consts, build, op, attrs, maps, limits) bool build(ox_build *b);
#include "onnx/ops.def"

#endif
