/* onnx/export.h -- shared by the files that write ONNX: put.c writes messages, export.c models, export_ops.c nodes,
 * export_weights.c numbers. */
#ifndef NNC_ONNX_EXPORT_H
#define NNC_ONNX_EXPORT_H

#include "onnx/internal.h"
#include <string.h>

/* ---- the wire format of protocol buffers (put.c): fields are appended to a text, their numbers those of onnx.proto ---- */

void op_int(nnc_text *t, uint32_t field, int64_t v);
void op_float(nnc_text *t, uint32_t field, float v);
void op_bytes(nnc_text *t, uint32_t field, const void *p, size_t n);
static inline void op_text(nnc_text *t, uint32_t field, const char *s) { op_bytes(t, field, s, strlen(s)); }
/* If m ran out of memory, so does t. */
static inline void op_message(nnc_text *t, uint32_t field, const nnc_text *m)
{
    op_bytes(t, field, nnc_text_str(m), m->n);
    t->oom |= m->oom;
}
/* The header that op_bytes writes before its n bytes. */
void op_head(nnc_text *t, uint32_t field, size_t n);

/* ---- weights (export_weights.c) ------------------------------------------------------------------------------------ */

typedef struct op_weights {
    const nnc_graph *g;
    const char *data; /* as in nnc_onnx_place */
    bool outside; /* weights go to that file */
    int64_t at; /* its length so far */
    nnc_weight_files files; /* files that weights are read from */
    nnc_sink *sink;
} op_weights;
/* Decides where the weights of g go. */
nnc_status op_weights_begin(
    op_weights *w, const nnc_graph *g, const nnc_onnx_place *place, nnc_sink *sink);
/* Appends an initializer to a GraphProto. */
nnc_status op_put_weight(op_weights *w, const nnc_node *n, const char *name, nnc_text *graph);
/* Writes the file of external data, if any. */
nnc_status op_weights_end(op_weights *w);
/* Appends a TensorProto without its numbers; name NULL: no name. */
void op_tensor_head(nnc_text *t, const nnc_type *type, const char *name);

/* ---- one graph or function being written (export.c) --------------------------------------------------------------- */

typedef struct exporter {
    const nnc_graph *g;
    nnc_arena *a;
    nnc_sink *sink;
    nnc_text *nodes; /* fields `field` of a GraphProto or FunctionProto */
    uint32_t field;
    const char **name; /* by value */
    const nnc_node *n; /* the node being written */
    uint64_t *seen; /* hashes of the names of nodes, n_seen of them, 0: free */
    size_t n_seen;
    int helpers; /* nodes written for it so far */
    nnc_text last; /* latest node; its result may still get the name of n's */
    const char *last_op, *last_name; /* NULL: none */
    int *serial; /* counter for names, of the whole model */
    nnc_text *refused; /* ops without a form in ONNX */
} exporter;

/* A node under construction: inputs, then attributes, then op_end. */
typedef struct op_node {
    exporter *x;
    nnc_text t;
    const char *op;
} op_node;
static inline op_node op_begin(exporter *x, const char *op) { return (op_node){.x = x, .op = op}; }
op_node op_begin_all(exporter *x, const char *op); /* with all operands of x->n */
op_node op_begin_of(exporter *x, const char *op, size_t n, const char *const *in);
#define OP_OF(x, op, ...) \
    op_begin_of((x), (op), NNC_COUNT(((const char *[]){__VA_ARGS__})), (const char *const[]){__VA_ARGS__})
void op_in(op_node *o, const char *name); /* "": left out */
/* Writes attributes from those of x->n. "group:groups" is ONNX's `group`, written if the node has `groups` other than 0. "axis=1" is always
 * written, as 1 if the node has no axis. Names that are no attributes of nodes are numbers. */
void op_attrs(op_node *o, const char *list);
void op_attr_int(op_node *o, const char *name, int64_t v);
void op_attr_ints(op_node *o, const char *name, int n, const int64_t *v);
void op_attr_text(op_node *o, const char *name, const char *v);
void op_attr_words(op_node *o, const char *name, const char *v); /* a list of one */
/* Writes a Scan's body over tensors of this type. Its state is the product so far; its result is the state or (`before`) the previous
 * one. */
void op_attr_product(op_node *o, const char *name, const nnc_type *type, bool before);
/* End the node. op_end names its result and returns the name. op_outputs names several, out[i] for result i. op_results uses the names of
 * the nnc_node's results. */
const char *op_end(op_node *o);
void op_outputs(op_node *o, int n, const char **out);
void op_results(op_node *o);

/* Write nodes with one result and 1 or 2 operands. */
const char *op_1(exporter *x, const char *op, const char *a);
const char *op_2(exporter *x, const char *op, const char *a, const char *b);
/* Constants. */
const char *op_numbers(exporter *x, nnc_dtype d, int n, const double *v, bool scalar);
static inline const char *op_scalar(exporter *x, nnc_dtype d, double v) { return op_numbers(x, d, 1, &v, true); }
const char *op_list(exporter *x, int n, const int64_t *v); /* i64[n] */
const char *op_cast(exporter *x, const char *a, nnc_dtype to);
/* Gives the node's result i, called `a` so far, its final name. */
void op_give(exporter *x, int i, const char *a);

static inline const char *op_operand(const exporter *x, int i) { return x->name[x->n->in[i]]; }
static inline const nnc_type *op_type_in(const exporter *x, int i) { return nnc_typeof(x->g, x->n->in[i]); }
static inline const nnc_type *op_type(const exporter *x) { return nnc_typeof(x->g, x->n->out); }

/* export_ops.c: writes x->n, which is neither a leaf nor fused. false: ONNX has no form for it. */
bool op_write(exporter *x);
/* export_loop.c: the same for CL_loop and gathers. */
bool op_write_loop(exporter *x);
/* Whether n is a linear node whose weights belong to the ONNX nodes that read it. */
bool op_absorbed(const exporter *x, const nnc_node *n);

#endif
