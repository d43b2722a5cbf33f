/* kernel/nest_internal.h -- the state of a trace (nest.c) and its rules for movement and windows
 * (nest_move.c). */
#ifndef NNC_NEST_INTERNAL_H
#define NNC_NEST_INTERNAL_H

#include "kernel/nest.h"

#define NX_CUTS 8
#define NX_SEGMENTS NNC_NEST_JOIN
#define NX_CTX 96

/* One dimension of an output's or a reduction's index space: the digits it is split into, or
 * its segments. Kept from one attempt to the next; `expr` is made new in each. */
typedef struct nx_key {
    int64_t extent;
    bool root; /* of an output */
    int n_cut, n_seg;
    int64_t cut[NX_CUTS];         /* place values, ascending, each dividing the next and the extent */
    int64_t seg[NX_SEGMENTS + 1]; /* bounds 0 .. extent when n_seg > 1 */
    nnc_nest_map expr[NX_SEGMENTS];
    bool made[NX_SEGMENTS];
} nx_key;

typedef struct nx_space { /* axes that reductions run over; shared by those of equal extents */
    int rank;
    int key[NNC_MAX_RANK];
} nx_space;

typedef struct nx_root { /* index space of outputs */
    int rank, key[NNC_MAX_RANK];
    int64_t dim[NNC_MAX_RANK];
    int n_combo; /* choices of a segment for each dimension */
    int ctx0;
    const nnc_nest_map **idx; /* by combo; NULL: not made in this attempt */
} nx_root;

typedef struct nx_memo {
    nnc_ref v;
    int16_t ctx;
    int32_t guard, point, next;
    const nnc_nest_map *idx;
} nx_memo;

typedef struct nx {
    const nnc_graph *g;
    nnc_nest *s;
    nnc_arena *a;
    const char **why;
    bool restart, oom, outer_set, no_segments, strict;
    int64_t spare; /* with strict: repeated evaluations of expensive ops that are allowed */
    bool wild;     /* places may be computed: a node alone, or a kernel that was promised */
    bool no_split; /* second try, without digits and segments */
    uint32_t first, last; /* node range of the set */
    uint8_t *inside;      /* bits */
    int n_set, most; /* ops; points that they may need */
    nx_key *key;
    int n_key;
    size_t cap_key;
    nx_space *space;
    int n_space;
    size_t cap_space;
    nx_root *root;
    int n_root;
    size_t cap_root;
    nx_memo *memo;
    int n_memo, steps;
    size_t cap_memo, cap_point, cap_arg, cap_guard, cap_reduce, cap_ctx, cap_store;
    int32_t bucket[256];
} nx;

/* A point that gives v at idx in context ctx, or -1 (why, oom or restart is set). */
int32_t nx_demand(nx *t, int ctx, nnc_ref v, const nnc_nest_map *idx, int32_t guard);
int32_t nx_point(nx *t, nnc_nest_what what, int ctx, nnc_ref v, const nnc_nest_map *idx, int32_t guard);
/* Appends arguments and takes over their axes and levels. */
bool nx_args(nx *t, int32_t point, int n, const int32_t *args);
/* The result of a reduction or window whose result is needed at idx; makes it at first need. */
int32_t nx_row(nx *t, int ctx, nnc_ref v, const nnc_nest_map *idx, int32_t guard);
int32_t nx_move(nx *t, int ctx, nnc_ref v, const nnc_nest_map *idx, int32_t guard);
/* Index of a window's operand and the guard under which it lies inside; NULL on failure. */
nnc_nest_map *nx_window(nx *t, const nnc_node *n, const nnc_nest_map *idx, const nnc_nest_map *const *win,
    int32_t *guard, const nnc_nest_map **start);
/* Contractions (nest_contract.c): the extents that one sums over, returns how many; where its first operand is read, and the guard under
 * which it is there (NULL on failure). `win`: the axes of the sum. */
int nx_summed(const nx *t, const nnc_node *n, int64_t *dim);
const nnc_nest_map *nx_source(nx *t, const nnc_node *n, const nnc_nest_map *idx, const nnc_nest_map *const *win,
    int32_t *guard, const nnc_nest_map **start);
/* What a contraction sums: the first operand, 0 beyond its edge, times the second, in context ctx. `in` is where the first is read,
 * under `inner`. */
int32_t nx_weighed(nx *t, int ctx, const nnc_node *n, const nnc_nest_map *idx, const nnc_nest_map *in,
    const nnc_nest_map *const *win, int32_t guard, int32_t inner);
/* e = q d + r with 0 <= r < d for all values of the axes, or a restart with an axis split so that it is. */
bool nx_divide(nx *t, const nnc_nest_map *e, int64_t d, nnc_nest_map *q, nnc_nest_map *r);

/* A point of v, which is outside, at computed places. */
int32_t nx_wild(nx *t, nnc_nest_wild how, int ctx, nnc_ref v, const nnc_nest_map *idx, int n, int32_t guard);
nnc_nest_map *nx_maps(nx *t, int n); /* zeroed; NULL and oom */
uint32_t nx_axes(const nnc_nest_map *e, int n);
uint32_t nx_guard_axes(const nx *t, int32_t guard);
/* The guard chain with lo <= e < hi added; unchanged when that always holds; -1 cannot fail,
 * -2: out of memory. */
int32_t nx_guard(nx *t, int32_t parent, const nnc_nest_map *e, int64_t lo, int64_t hi);
int nx_find_key(nx *t, int64_t extent, bool root); /* a new key */
const nnc_nest_map *nx_key_expr(nx *t, int key, int piece);
/* Asks for digits at place value `place` of axis a (relative to it), or segments; true: restart
 * is set. */
bool nx_split(nx *t, int axis, int64_t place);
bool nx_segment(nx *t, const nnc_nest_map *e, int n, const int64_t *bounds);
int32_t nx_fail(nx *t, nnc_ref v, const char *what); /* "op at /layer: what"; returns -1 */

static inline bool nx_is_inside(const nx *t, uint32_t node)
{
    return node >= t->first && node <= t->last && (t->inside[(node - t->first) / 8] >> ((node - t->first) & 7) & 1);
}

#endif
