/* ir/infer.h -- shared by the files of shape inference; included by infer*.c only. */
#ifndef NNC_IR_INFER_H
#define NNC_IR_INFER_H

#include "ir/graph.h"

typedef struct infer {
    const nnc_graph *g;
    const nnc_node *n;
    nnc_type *out; /* n_out of them */
    nnc_sink *sink;
    char text[4][224]; /* ring for show() and list() */
    int next;
} infer;

/* Reports "op: message" at the node; always NNC_E_MODEL. */
nnc_status nnc_infer_fail(infer *c, const char *fmt, ...) NNC_PRINTF(2, 3);
#define fail nnc_infer_fail

/* Type of operand i. */
static inline const nnc_type *arg(const infer *c, int i) { return nnc_typeof(c->g, c->n->in[i]); }
static inline const char *op_name(const infer *c) { return nnc_ops[c->n->op].name; }

/* Texts for messages; valid for three more calls. */
const char *nnc_infer_show(infer *c, const nnc_type *t);                /* f32[1,3] */
const char *nnc_infer_dims(infer *c, const nnc_type *t);                /* [1,3] */
const char *nnc_infer_list(infer *c, const int64_t *v, int n, char by); /* 3x3 with 'x' */

/* Shared checks. */
nnc_status nnc_infer_same_dtype(infer *c); /* all operands; the message says which cast to add */
nnc_status nnc_infer_number(infer *c, int i);       /* operand i is not bool */
nnc_status nnc_infer_float(infer *c, int i);        /* operand i is a float */
nnc_status nnc_infer_integer(infer *c, int i);      /* operand i, an index, is an integer */
nnc_status nnc_infer_axis(infer *c, int64_t axis, int rank, const char *what);
nnc_status nnc_infer_axes(infer *c, const int64_t *axes, int n, int rank); /* ascending, in range */
/* Operand i is [extent]. */
nnc_status nnc_infer_vector(infer *c, int i, int64_t extent, const char *name);
/* Broadcasts dims of a and b into *out (rank and dim only). */
nnc_status nnc_infer_broadcast(infer *c, const nnc_type *a, const nnc_type *b, nnc_type *out);

/* Result 0 has x's dtype and these dimensions, row-major; NNC_OK. */
nnc_status nnc_infer_set(infer *c, nnc_dtype d, int rank, const int64_t *dim);
/* Gives result i the memory order of t when the ranks agree; NNC_OK. */
nnc_status nnc_infer_follow(infer *c, int i, const nnc_type *t);

/* The shape rules that ops.def names. */
#define OP(name, nmin, nmax, cls, rule, flags, work, lo, hi, attrs, doc) nnc_status nnc_infer_##rule(infer *c);
#include "ir/ops.def"

#endif
