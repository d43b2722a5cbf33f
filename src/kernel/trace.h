/* kernel/trace.h -- the state of a kernel being built: its instructions, found by the trace (trace*.c) and arranged into stages by link.c.
 *
 * Outputs are traced backwards. A value is demanded at an index map: an affine form over the kernel's axes for each of its dimensions.
 * Movement rewrites the map; elementwise ops pass it on. A reduction (or a pooling window, or the sum of a contraction) opens a context of
 * its own with reduce axes. The map's axes at which its result is demanded become the kernel's outer axes. All reductions of a kernel must
 * agree on them. Where a reshape needs digits of an axis, the axis is split and the trace restarts. Where the output reads another operand
 * of a concat (or a mirrored edge) from some index on, the axis is cut into segments. Each has a context.
 *
 * A single node always has a kernel. Where splitting and cutting are not enough, its operand is loaded at computed indices. Results of a
 * split that share no axis are stored under guards. */
#ifndef NNC_TRACE_H
#define NNC_TRACE_H

#include "kernel/kernel.h"

#define NX_CUTS 8
#define NX_SEGMENTS NNC_KERNEL_CONCAT
#define NX_CTX 96
#define NX_NODES 1024 /* ops in one kernel */
#define NX_REUSED 8   /* values stored for later stages */

/* lo <= e < hi, and the parent's condition */
typedef struct nx_guard_link {
    nnc_affine e;
    int64_t lo, hi;
    int32_t parent; /* -1 = none */
    bool rounding;  /* bounds a dimension that residues round up: results beyond it are not stored */
} nx_guard_link;

/* Where an instruction is placed: by the axes it depends on, unless it belongs to a reduction. */
typedef enum nx_home { NH_axes, NH_body, NH_post } nx_home;
typedef struct nx_place {
    int16_t ctx, level; /* level: greatest of the reductions that it depends on, 0 = none */
    int16_t reduction;  /* of NH_body and NH_post */
    uint8_t home;       /* nx_home */
    uint32_t axes;      /* axes that it depends on */
} nx_place;

typedef struct nx_ins {
    nnc_kins k;            /* arguments: other nx_ins; guards of loads and stores: the chain `guard` */
    nx_place at;
    bool last_first;       /* link.c places the last argument first */
    bool load;             /* reads v at idx, with zero outside its guards */
    bool expensive;        /* result of an expensive op */
    int16_t part;          /* of an elementwise op: which of its scalar ops, from 0; -1: other instructions */
    nnc_ref v;
    int32_t guard;         /* condition under which it is needed, applied to loads and stores; -1 = none */
    const nnc_affine *idx; /* by dimension of v */
} nx_ins;

typedef struct nx_reduction {
    nnc_ref v;
    int16_t ctx, level, space;
    int32_t guard;         /* condition under which the result is needed */
    int32_t result;        /* instruction */
    const nnc_affine *idx; /* map at which the result is needed */
} nx_reduction;

typedef struct nx_ctx {
    bool output;   /* of an output, or of a reduction */
    bool window;   /* of a window or a contraction */
    uint32_t axes; /* axes of its loops; reduction: its reduce axes (inside the loops over outer axes) */
} nx_ctx;

/* One dimension of an output's or a reduction's index space: the digits it is split into, its segments, or its residues. Kept between
 * attempts; `expr` is rebuilt in each. */
typedef struct nx_key {
    int64_t extent;
    bool root; /* of an output */
    int n_cut, n_seg;
    int64_t cut[NX_CUTS];         /* place values, ascending, each dividing the next and the extent */
    int64_t seg[NX_SEGMENTS + 1]; /* bounds 0 .. extent when n_seg > 1 */
    int64_t step; /* > 1: the index is step i + r; r, the residue, is the segment's number, or an axis */
    nnc_affine expr[NX_SEGMENTS];
    bool made[NX_SEGMENTS];
} nx_key;

typedef struct nx_space { /* axes that reductions use; shared by those of equal extents */
    int rank;
    int key[NNC_MAX_RANK];
} nx_space;

typedef struct nx_root { /* index space of outputs */
    int rank, key[NNC_MAX_RANK];
    int64_t dim[NNC_MAX_RANK];
    int n_combo; /* combinations of a segment for each dimension */
    int ctx0;
    const nnc_affine **idx; /* by combination; NULL: not built in this attempt */
} nx_root;

typedef struct nx_memo {
    nnc_ref v;
    int16_t ctx;
    int32_t guard, ins, next;
    const nnc_affine *idx;
} nx_memo;

/* The nodes of a kernel, their operands and results. */
typedef struct nx_set {
    const nnc_graph *g;
    const uint32_t *node; /* ascending */
    int n;
    const nnc_ref *out;   /* results; a value may occur several times */
    int n_out;
    const nnc_node *owner;  /* the kernel's node, in `outer`; NULL: only asks if a kernel is possible */
    const nnc_graph *outer; /* g itself, or g is the body of `owner` or its expansion */
    const nnc_ref *input;   /* its operands as values of g */
    nnc_ref *operand;       /* its distinct operands, which are the first buffers. Without owner, buffers are assigned on first use */
    int n_operand;
    bool inner;           /* results are values of g even with `owner`: another part of the kernel reads them (chain.c) */
    int64_t local; /* bytes of a tmp buffer for values that windows read; 0: there is none */
    int64_t spare; /* allowed repeated evaluations of expensive ops; -1: known to be a kernel */
} nx_set;

typedef struct nx {
    const nnc_graph *g;
    const nx_set *set;
    nnc_arena *a;
    const char **why;
    const char *limit; /* with oom: the exceeded limit; NULL: out of memory */
    nnc_kernel *k; /* axes and buffers */
    int16_t axis_key[NNC_KAXES];   /* by axis: the dimension of a space of which it is a digit */
    int64_t axis_base[NNC_KAXES];  /* its place value there */
    bool restart, oom, outer_set, no_segments, strict;
    bool computed; /* computed indices are allowed: a single node, or a set known to be a kernel */
    nnc_ref windowed; /* a computed value that overlapping windows read and that must be stored for them, or NNC_NONE */
    bool no_split; /* second try, without digits and segments */
    uint32_t first, last; /* node range of the set */
    uint8_t *inside;      /* bits */
    int n_value, most;    /* number of demanded values; its maximum */
    uint32_t outer;       /* axes */
    nx_ins *ins;          /* arguments before their users */
    nx_reduction *reduce;
    nx_ctx *ctx;
    nx_guard_link *guard;
    int32_t *store;       /* instructions */
    nx_key *key;
    nx_space *space;
    nx_root *root;
    nx_memo *memo;
    nnc_ref *buf_value; /* by buffer of an operand: its value; for a node's kernel in the node's graph */
    int n_ins, n_reduce, n_ctx, n_guard, n_store, n_key, n_space, n_root, n_memo, n_buf_value, steps;
    size_t cap_ins, cap_reduce, cap_ctx, cap_guard, cap_store, cap_key, cap_space, cap_root, cap_memo, cap_buf_value;
    int32_t bucket[256];
} nx;

/* In nx.buf_value: marks a value of g that another part of the kernel computes; operands are values of `outer`. */
#define NX_INNER (UINT32_C(1) << 31)

#define NX_TOO_LONG "one kernel would have more than 65536 instructions"

/* Makes room for one more element of an array of t; false: t->oom. */
#define NX_ROOM(t, array) \
    (ARENA_ROOM((t)->a, (t)->array, (t)->cap_##array, (t)->n_##array + 1) || ((t)->oom = true, false))

/* trace.c. Builds the instructions of the set; false: *why says why not (one line, in `a` or static), NULL: out of memory. */
bool nx_trace(nx *t, const nx_set *set, nnc_arena *a, const char **why);
/* build.c: builds the kernel of a trace in `a`. `out`: its results, as values of g (NX_INNER: of t->g). NULL: out of memory, or *why. */
nnc_kernel *nx_kernel(nx *t, const nnc_graph *g, const nnc_ref *out, nnc_arena *scratch, nnc_arena *a, const char **why);
/* chain.c: nx_is_chain: does a product of the set read another's result? nx_chain makes its kernel, in `a`; NULL: out of memory, or
 * *why. */
bool nx_is_chain(const nx_set *s);
nnc_kernel *nx_chain(const nx_set *s, nnc_arena *scratch, nnc_arena *a, const char **why);
/* winograd.c: the set's Winograd convolution, or NULL; its kernel, in `a`, with all other nodes as elementwise ops on its result. NULL: out
 * of memory, or *why. */
const nnc_node *nx_winograd_of(const nx_set *s);
nnc_kernel *nx_winograd(const nx_set *s, nnc_arena *scratch, nnc_arena *a, const char **why);
/* link.c: stages and order, with the values that cross stages; the kernel is allocated in `out`. NULL: out of memory, or *why. */
nnc_kernel *nx_link(nx *t, nnc_arena *scratch, nnc_arena *out, const char **why);

/* Returns an instruction that computes v at idx in context ctx, or -1 (why, oom or restart is set). */
int32_t nx_demand(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard);
/* Counts a computed value; false: too many. */
bool nx_count(nx *t, nnc_ref v);
/* The result of a reduction or window at idx; created on first use. */
int32_t nx_row(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard);
int32_t nx_move(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard);
/* Index map of a window's operand, and the guard under which it is inside; NULL on failure. */
nnc_affine *nx_window(nx *t, const nnc_node *n, const nnc_affine *idx, const nnc_affine *const *win,
    int32_t *guard, const nnc_affine **start);
/* Contractions (trace_contract.c). nx_summed: the extents of the dimensions that are summed for results at idx; returns their number.
 * nx_source: the first operand's map, NULL on failure; *guard: under which it is inside. `win`: the axes of the sum. */
int nx_summed(const nx *t, const nnc_node *n, const nnc_affine *idx, int64_t *dim);
const nnc_affine *nx_source(nx *t, const nnc_node *n, const nnc_affine *idx, const nnc_affine *const *win,
    int32_t *guard, const nnc_affine **start);
/* Is n a transposed convolution, or the gradient of a maximum over windows, which has the same sums with other terms? */
bool nx_is_transposed(const nnc_node *n);
/* Requests a transposed convolution's results by phases, if idx mixes them; true: restart is set. */
bool nx_phases(nx *t, const nnc_node *n, const nnc_affine *idx);
/* One term of a contraction: the first operand, 0 outside, times the second, in context ctx. `in` is the first operand's map, under
 * guard `inner`. */
int32_t nx_product(nx *t, int ctx, const nnc_node *n, const nnc_affine *idx, const nnc_affine *in,
    const nnc_affine *const *win, int32_t guard, int32_t inner);
/* Writes e = q d + r with 0 <= r < d for all values of the axes; false: a restart with an axis split for that. */
bool nx_divide(nx *t, const nnc_affine *e, int64_t d, nnc_affine *q, nnc_affine *r);

/* Least and greatest value of a map over the axes. */
void nx_span(const nx *t, const nnc_affine *e, int64_t *lo, int64_t *hi);
nnc_affine *nx_maps(nx *t, int n); /* zeroed; NULL and oom */
uint32_t nx_axes(const nnc_affine *e, int n);
uint32_t nx_guard_axes(const nx *t, int32_t guard);
/* Adds lo <= e < hi to the guard chain; returns it unchanged when that always holds; -1 cannot fail, -2: out of memory. */
int32_t nx_guard(nx *t, int32_t parent, const nnc_affine *e, int64_t lo, int64_t hi);
int nx_find_key(nx *t, int64_t extent, bool root); /* a new key */
const nnc_affine *nx_key_expr(nx *t, int key, int piece);
/* Requests digits at place value `place` of axis a (relative to it), or segments; true: restart is set. */
bool nx_split(nx *t, int axis, int64_t place);
bool nx_segment(nx *t, const nnc_affine *e, int n, const int64_t *bounds);
/* Requests residues modulo `step` of an output's index e; `apart`: each in loop nests of its own. */
bool nx_residues(nx *t, const nnc_affine *e, int64_t step, bool apart);
int32_t nx_fail(nx *t, nnc_ref v, const char *what); /* "op at /layer: what"; returns -1 */

/* trace_ins.c: instructions. -1: out of memory, or a recorded failure. */
/* Maps a value of t->g to the graph *g of the kernel's node, for the node's operands; otherwise *g is t->g. */
nnc_ref nx_outside(const nx *t, nnc_ref v, const nnc_graph **g);
/* The type of v at its origin: that of a fused node's operand, which may be part of a larger tensor, unlike the body's input. */
const nnc_type *nx_operand_type(const nx *t, nnc_ref v);
nx_place nx_beside(const nx *t, int ctx, int n, const int32_t *args); /* where a function of the arguments is placed */
int32_t nx_const(nx *t, nnc_dtype d, double v);
int32_t nx_const_int(nx *t, nnc_dtype d, int64_t v);
int32_t nx_sop(nx *t, nx_place at, nnc_sop op, nnc_dtype d, int32_t a, int32_t b, int32_t c);
int32_t nx_number(nx *t, nnc_ref v, double f); /* v is the number f; counts it as a value */
/* nx_index: the value of an affine form. nx_condition: do the guards from `inner` up to, excluding, `outer` hold? */
int32_t nx_index(nx *t, nx_place at, const nnc_affine *e);
int32_t nx_condition(nx *t, nx_place at, int32_t inner, int32_t outer);
/* An element of an operand; `fill` outside its guards, -1: zero. */
int32_t nx_load(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, int32_t fill);
/* The same with n computed indices: dimensions `dim` and on of idx plus the indices `at`. */
int32_t nx_gather(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int dim, int n,
    const int32_t *at, int32_t guard);
/* The same with all indices computed. */
typedef enum nx_how {
    NW_digits,  /* idx[0] is the row-major index of the element */
    NW_edge,    /* idx[d] is clamped to 0 .. dim-1 */
    NW_reflect, /* idx[d] is mirrored at 0 and dim-1 until inside */
} nx_how;
int32_t nx_computed(nx *t, nx_how how, int ctx, nnc_ref v, const nnc_affine *idx, int n, int32_t guard);
/* x, or `fill` where the guards between `inner` and `outer` fail; placed at `at`. */
int32_t nx_filled(nx *t, nx_place at, int32_t x, int32_t inner, int32_t outer, int32_t fill);
int32_t nx_iota(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard);
int32_t nx_ewise(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, const int32_t *args);
/* idx[dim] < bound[0] ? args[0] : idx[dim] < bound[1] ? args[1] : ... */
int32_t nx_choose(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int dim, const int32_t *args);
/* The reduction of v: operand x, limited to where `inner` holds. `count`: number of reduced elements. Returns its result. */
int32_t nx_reduce(nx *t, nx_place at, nnc_ref v, int32_t x, int32_t inner, int32_t guard, const nnc_affine *start, int64_t count);
bool nx_store(nx *t, int ctx, nnc_ref v, const nnc_affine *idx, int32_t guard, int32_t x);

static inline nnc_dtype nx_dtype(const nx *t, nnc_ref v) { return nnc_kdtype((nnc_dtype)nnc_typeof(t->g, v)->dtype); }

static inline bool nx_is_inside(const nx *t, uint32_t node)
{
    return node >= t->first && node <= t->last && (t->inside[(node - t->first) / 8] >> ((node - t->first) & 7) & 1);
}

#endif
