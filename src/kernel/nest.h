/* kernel/nest.h -- the analysis behind nnc_nest_ok, whole: how a set of nodes becomes one generated
 * kernel. nnc_kernel_build lowers from the same result, so that "may I?" and "how?" cannot differ.
 *
 * The outputs are traced backwards. A value is demanded at an index map: for each of its
 * dimensions an affine form over the kernel's axes. Movement only rewrites the map; elementwise
 * ops pass it on; a reduction (or a window: of a pooling; or the sum of a contraction) starts a
 * context of its own with reduce axes, and the axes of the map at which its result is demanded
 * are the kernel's outer axes: all reductions of a kernel must agree on them.
 * Where a reshape needs digits of an axis, the axis is split and the trace starts again; where the output
 * needs another operand of a concat (or a mirrored edge) from some index on, the axis is cut into segments, one context each.
 *
 * A node alone always has a kernel: where splitting and cutting do not do, elements of its
 * operand are read at computed places, and pieces of a split that share no axis are stored
 * under guards. */
#ifndef NNC_NEST_H
#define NNC_NEST_H

#include "kernel/kernel.h"

#define NNC_NEST_AXES 16
#define NNC_NEST_NODES 1024 /* ops in one kernel */

typedef struct nnc_nest_map { /* c + sum k[axis] axis */
    int64_t c, k[NNC_NEST_AXES];
} nnc_nest_map;

typedef enum nnc_nest_kind { NX_outer, NX_map, NX_reduce } nnc_nest_kind;
typedef struct nnc_nest_axis {
    int64_t extent;
    uint8_t kind; /* nnc_nest_kind */
    int16_t key;  /* which dimension of which space it is a digit of */
    int64_t base; /* its place value there */
} nnc_nest_axis;

/* lo <= e < hi, and the parent's as well */
typedef struct nnc_nest_guard {
    nnc_nest_map e;
    int64_t lo, hi;
    int32_t parent; /* -1 = none */
} nnc_nest_guard;

typedef enum nnc_nest_what {
    NP_load,   /* an element of a value from outside */
    NP_const,  /* a number */
    NP_iota,   /* idx[dim] */
    NP_ewise,  /* the node's op on the arguments */
    NP_pad,    /* guard holds ? argument : the node's fill */
    NP_concat, /* the argument whose guard holds */
    NP_gather, /* v at idx, plus argument 0 along dimension `at` */
    NP_row,    /* result of reduction `at` */
    NP_product, /* of the two arguments, to be summed */
    NP_sum,    /* of the two arguments */
    NP_wild,   /* an element of a value from outside, at a place that no loop follows: `at` is a nnc_nest_wild */
} nnc_nest_what;

typedef enum nnc_nest_wild { /* how idx says the place */
    NW_digits,  /* idx[0] is the row-major index of the element */
    NW_edge,    /* idx[d] is moved to the nearest of 0 .. dim-1 */
    NW_reflect, /* idx[d] is mirrored at 0 and dim-1 until inside */
} nnc_nest_wild;

typedef struct nnc_nest_point {
    uint8_t what;             /* nnc_nest_what */
    int16_t ctx;
    int16_t level;            /* greatest level of a reduction under it, 0 = none */
    uint32_t axes;            /* those it depends on */
    nnc_ref v;                /* value (load, gather: the one outside) */
    int32_t at;               /* row: reduction. gather: dimension. pad: its guard */
    int32_t guard;            /* under which it is needed; loads obey it */
    int32_t arg, n_arg;       /* points: nest->arg[arg..] */
    const nnc_nest_map *idx;  /* by dimension of v */
    double f;                 /* const */
} nnc_nest_point;

typedef struct nnc_nest_reduce {
    nnc_ref v;
    int16_t ctx, level, space;
    int32_t operand;          /* point in ctx */
    int32_t guard;            /* under which the result is needed */
    int32_t inner;            /* guard of the operand: `guard`, or more where windows leave the operand */
    const nnc_nest_map *idx;  /* where the result is needed */
    const nnc_nest_map *start; /* avgpool: first index of the window, by spatial dimension */
} nnc_nest_reduce;

typedef struct nnc_nest_ctx {
    bool output;   /* of an output, or of a reduction */
    uint32_t axes; /* that it runs over; reduction: its reduce axes (outer axes run around them) */
} nnc_nest_ctx;

typedef struct nnc_nest_store {
    nnc_ref v;
    int32_t point;
    int16_t ctx;
    int32_t guard; /* under which the place exists */
    const nnc_nest_map *idx;
} nnc_nest_store;

typedef struct nnc_nest {
    int n_axis, n_point, n_reduce, n_ctx, n_guard, n_store, n_arg;
    nnc_nest_axis axis[NNC_NEST_AXES];
    uint32_t outer; /* axes */
    nnc_nest_point *point; /* arguments before their users */
    nnc_nest_reduce *reduce;
    nnc_nest_ctx *ctx;
    nnc_nest_guard *guard;
    nnc_nest_store *store;
    int32_t *arg;
} nnc_nest;

/* Traces `outs` (values of the nodes). NULL with *why, one line (in `a` or static); *why NULL:
 * out of memory. With spare >= 0, expensive ops that would be computed over again, more than `spare`
 * times in all, are a reason too. The result lives in `a`. */
nnc_nest *nnc_nest_trace(const nnc_graph *g, const uint32_t *nodes, int n, const nnc_ref *outs, int n_out, int64_t spare,
    nnc_arena *a, const char **why);

/* Least and greatest value of a map over the axes. */
void nnc_nest_span(const nnc_nest *s, const nnc_nest_map *e, int64_t *lo, int64_t *hi);

#endif
