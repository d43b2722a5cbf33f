/* kernel/kernel.h -- the kernel language: its type, text form, verifier and hash, and how nodes of a graph become a kernel.
 * A kernel is built without a schedule (sched.domain is 0); schedule/ chooses one.
 *
 * A kernel is 1..n stages that share the outer axes. For every point of the outer axes the stages run in order. A stage
 * iterates over its own map and reduce axes; `body` is executed at every point, `post` once per (outer, map) point after
 * the reduce axes are done:
 *
 *     for outer                       softmax over rows:  outer r
 *       for stage                       stage 0: reduce c    body: m = max(load x[r,c])
 *         for map axes                  stage 1: reduce c    body: s = sum(exp(load x[r,c] - m))
 *           for reduce axes: body       stage 2: map c       body: store y[r,c] = exp(load x[r,c] - m) / s
 *           post
 *
 * Values: SSA, id = index in k->ins. Visible: body values in their own body; a reduce's result in its stage's post; post
 * values of a stage without map axes (and reduce results there) in all later stages as well. Anything else crosses stages
 * through memory: a tmp buffer (per worker) or an output, stored and loaded again.
 * Types: bool, i8..i64, u8..u64, f32, f64. Buffers may be f16/bf16: a load gives f32, a store rounds. */
#ifndef NNC_KERNEL_H
#define NNC_KERNEL_H

#include "ir/ir.h"
#include "target/target.h"

#define NNC_KAXES 16
#define NNC_KGUARDS 8
#define NNC_KBLOCK 16                 /* most steps of a reduce axis' tile */
#define NNC_KBLOCK_BYTES (32 << 10)   /* most bytes of its accumulators */

typedef enum nnc_kaxis_kind { KA_outer, KA_map, KA_reduce } nnc_kaxis_kind;
typedef struct nnc_kaxis {
    nnc_kaxis_kind kind;
    int64_t extent;
    const char *name; /* for print: "r0", "c", ... */
} nnc_kaxis;

/* c + sum k[axis] * axis, in elements for offsets */
typedef struct nnc_affine {
    int64_t c;
    int64_t k[NNC_KAXES];
} nnc_affine;

typedef struct nnc_kguard { /* lo <= e < hi */
    nnc_affine e;
    int64_t lo, hi;
} nnc_kguard;

typedef enum nnc_kbuf_role { KB_in, KB_out, KB_tmp } nnc_kbuf_role;
typedef struct nnc_kbuf {
    nnc_kbuf_role role;
    nnc_dtype dtype;
    int64_t numel;    /* elements; KB_tmp: per worker */
    const char *name;
} nnc_kbuf;           /* arguments are the KB_in and KB_out buffers in order */

typedef enum nnc_kop { KO_const, KO_index, KO_load, KO_store, KO_sop, KO_reduce } nnc_kop;
typedef enum nnc_kred { KR_sum, KR_prod, KR_max, KR_min, KR_argmax, KR_argmin } nnc_kred;

typedef struct nnc_kins {
    uint8_t op;      /* nnc_kop */
    uint8_t dtype;   /* of the result (store: of the stored value) */
    uint8_t sop;     /* KO_sop: nnc_sop;  KO_reduce: nnc_kred */
    uint8_t n_guard; /* load and store: all must hold; a load that is not allowed gives `fill` (arg[1]), a store does nothing */
    uint8_t cast_to; /* KO_sop cast: nnc_dtype rounded to (f16 and bf16 round, the value stays f32) */
    int16_t buf;     /* load, store */
    int32_t arg[3];  /* SSA ids or -1. load: [0] index value added to the offset times `scale` (indirect; -1 none), [1] fill;
                        store: [0] value; reduce: [0] value, [1] mask (bool; false = skipped; -1 none) */
    int64_t scale;   /* indirect load: elements per unit of the index; the index is clamped to [0, limit) */
    int64_t limit;
    double f;        /* KO_const float */
    int64_t i;       /* KO_const int/bool; KO_index: axis. KO_reduce arg*: extent order is that of the reduce axes, row-major */
    nnc_affine at;   /* load, store */
    nnc_kguard *guard;
    double lo, hi;   /* value range found by nnc_kernel_ranges; lo > hi: not computed */
    bool maybe_nan;
    uint8_t hint;    /* KH_*: set by ranges; emitters may use them */
} nnc_kins;

enum nnc_khint { /* bounds are those of what is not NaN: NaN operands are possible unless KH_nonan stands as well */
    KH_bounded = 1,  /* |argument| <= 2^16 and finite: no slow range reduction */
    KH_halfpi = 2,   /* |argument| <= pi/2: no range reduction at all */
    KH_nonneg = 4,   /* argument >= 0 */
    KH_nonan = 8,    /* no operand is NaN */
    KH_exact = 16,   /* --math=exact: the tightest form of the function (docs/math.md); fma: computed also where a factor is 0 */
    KH_fast = 32,    /* --math=fast: the shortest form */
};

typedef struct nnc_kstage {
    uint32_t axes;      /* bit set of its own map and reduce axes; loop order = ascending axis number */
    int32_t body0, body1, post0, post1; /* ranges of ins */
} nnc_kstage;

/* A CPU's schedule: a list of directives on the kernel's loops, printed with the kernel, and legal by construction: none of them changes
 * what is computed (docs/kernel-ir.md, "Schedule"). At most one of each kind for an axis. */
typedef enum nnc_kdo {
    KD_tile,        /* axis, n. Outer: it counts in blocks of n; a unit covers one block (no tile: one point; of the vector axis: all).
                     * Reduce: the unit's vectors are run through once for every n steps, with accumulators in memory of the worker, so
                     * that each sum keeps its order */
    KD_order,       /* axis; one for each outer axis: the digits of a unit's number, the slowest first. None: the outer axes in order, then
                     * the vector axis' tiles as the fastest */
    KD_vector,      /* axis, n elements to an IR vector (which may exceed the machine's). Outer ("columns"): all stages are vectors over it.
                     * Inner ("rows"): EVERY stage that has own axes runs its last own axis (highest number) in vectors; the directive names
                     * the costliest stage's. KB_tmp buffers are used with an inner axis only (tmp offsets name own axes alone) */
    KD_unroll,      /* outer axis beside an outer vector axis, n: n neighbours at once, each with accumulators of its own in registers */
    KD_transpose,   /* outer axis beside an outer vector axis, both tiled: loads along it are read in squares, transposed in registers */
    KD_prefetch,    /* n: rows of the n-th unit from now are fetched while a unit computes (n is 1) */
    KD_nontemporal, /* stores go past the caches */
    KD_quick,       /* to be compiled soon rather than well: it runs once, or in no time */
    KD__COUNT,
} nnc_kdo;

#define NNC_KDIRECTIVES 48
typedef struct nnc_kdirective {
    uint8_t what; /* nnc_kdo */
    int8_t axis;  /* -1: none */
    int64_t n;    /* 0: none */
} nnc_kdirective;

typedef struct nnc_kschedule {
    int64_t domain; /* parallel units: the product of the outer axes' blocks */
    int64_t grain;  /* units below which a part is not worth a thread */
    int n;
    nnc_kdirective d[NNC_KDIRECTIVES]; /* by kind; within a kind as they were added */
} nnc_kschedule;

/* How a kernel runs on a GPU (docs/kernel-ir.md, "Schedule on a GPU"): choices, then what follows from them. A point is one
 * point of the outer axes. A launch is `blocks` blocks of `threads` threads with `shared` bytes of dynamic shared memory.
 * With finish > 0 a second launch of <name>_finish with the same arguments, `finish` blocks of `threads` threads and no
 * dynamic shared memory comes after it in the same stream. */
typedef enum nnc_kclass {
    KC_none,   /* no GPU's: the CPU's schedule stands in nnc_kernel.sched */
    KC_point,  /* a thread computes `vec` points that lie along `axis`, `flight` times */
    KC_tile,   /* squares: loads that lie along `across` turned in shared memory, stores along `axis` */
    KC_row,    /* `group` neighbouring threads share a point: own axes are spread over them */
    KC_column, /* points along `axis` on neighbouring threads, `group` rows of threads share a point's reduce axes */
} nnc_kclass;

typedef struct nnc_kgrid {
    uint8_t cls;     /* nnc_kclass */
    int16_t axis;    /* point, tile, column: the outer axis that counts fastest, -1 = there is none */
    int16_t across;  /* tile: the outer axis along which its loads lie */
    int16_t threads; /* of a block: a multiple of 32 */
    int16_t vec;     /* elements of one access */
    int16_t flight;  /* point: vectors of one thread, loaded before any is used */
    int16_t group;   /* row, column: threads that share a point */
    int16_t split;   /* blocks that share a point */
    int16_t keep;    /* row: vectors of a row that one thread keeps in registers; 0 = rows are read again by each stage */
    int16_t spill;   /* row: 1 = tmp buffers are in device memory (`work`), 0 = in shared memory */
    int16_t regs;    /* registers a thread should not exceed, 0 = no limit of its own */
    int16_t index;   /* bits of offsets: 32 or 64 */
    int64_t blocks, finish;
    int64_t shared;  /* bytes */
    int64_t work;    /* bytes of device memory behind one more argument, the last; 0 = no such argument */
    bool oom;        /* memory ran out while it was chosen: the rest may not be what it would be */
} nnc_kgrid;

typedef struct nnc_kernel {
    const char *name;  /* ops and hash: "k_add_relu_1a2b3c4d" */
    int n_axis, n_outer; /* outer axes come first */
    nnc_kaxis axis[NNC_KAXES];
    int n_buf;
    nnc_kbuf *buf;
    int n_stage;
    nnc_kstage *stage;
    int n_ins;
    nnc_kins *ins;
    nnc_kschedule sched;
    nnc_kgrid grid;        /* of a GPU's kernel: cls is not KC_none; sched then names no vector axis */
    int64_t scratch_bytes; /* per worker: all tmp buffers, each 64-byte aligned, in order */
    const char *note;      /* what nnc_lower made cheaper, a line each, or NULL; no part of the text or hash */
} nnc_kernel;

/* Does it have a schedule, or is it as nnc_kernel_build made it? */
static inline bool nnc_kernel_is_scheduled(const nnc_kernel *k) { return k->grid.cls != KC_none || k->sched.domain > 0; }

/* Bytes that a run of the kernel gets for itself: on a CPU per worker, on a GPU once. */
static inline int64_t nnc_kernel_work(const nnc_kernel *k)
{
    return k->grid.cls == KC_none ? k->scratch_bytes : k->grid.work;
}

/* n of directive `what` for the axis (-1: any axis); 0: there is none. */
int64_t nnc_sched_n(const nnc_kschedule *s, nnc_kdo what, int axis);
/* The axis of the first such directive, or -1. */
int nnc_sched_axis(const nnc_kschedule *s, nnc_kdo what);
bool nnc_sched_has(const nnc_kschedule *s, nnc_kdo what);
bool nnc_sched_has_for(const nnc_kschedule *s, nnc_kdo what, int axis); /* -1: any axis */
/* Adds a directive, or changes the one of this kind for the axis; false: there are too many. */
bool nnc_sched_put(nnc_kschedule *s, nnc_kdo what, int axis, int64_t n);
void nnc_sched_drop(nnc_kschedule *s, nnc_kdo what, int axis); /* axis -1: all of that kind */
/* The vector axis, or -1; elements of a vector, at least 1. */
static inline int nnc_sched_vec(const nnc_kschedule *s) { return nnc_sched_axis(s, KD_vector); }
static inline int nnc_sched_width(const nnc_kschedule *s) { return (int)nnc_max64(nnc_sched_n(s, KD_vector, -1), 1); }
/* The outer axes as digits of a unit's number, the slowest first. Returns k->n_outer. */
int nnc_kernel_digits(const nnc_kernel *k, int *axis);
/* Blocks of an outer axis: what its digit counts. */
int64_t nnc_kernel_blocks(const nnc_kernel *k, int axis);

/* Does a kernel that transposes read this load in squares? */
static inline bool nnc_kernel_tiles(const nnc_kernel *k, const nnc_kins *in, int vec, int tile)
{
    int64_t s = k->axis[vec].extent > 1 ? in->at.k[vec] : 0;
    return in->op == KO_load && in->arg[0] < 0 && in->n_guard == 0 && in->at.k[tile] == 1 && s != 0 && s != 1;
}

/* May the reduce axis be tiled, with the schedule's vector axis: one stage whose own axis is that one, and accumulators of numbers, no
 * places, that are few enough? */
bool nnc_kernel_blocked_ok(const nnc_kernel *k);

/* May argument `out` lie in the memory of argument `in`, each of its elements read before it is written, by whoever writes it? */
bool nnc_kernel_in_place(const nnc_kernel *k, int in, int out);

nnc_status nnc_kernel_verify(const nnc_kernel *k, nnc_sink *sink) NNC_MUST;
void nnc_kernel_print(nnc_text *t, const nnc_kernel *k);
nnc_kernel *nnc_kernel_parse(nnc_scan *s, nnc_arena *a, nnc_sink *sink);
/* Hash of what decides the machine code: kernel IR and schedule, not the buffers' names. Out of memory: hi is all ones. */
nnc_hash128 nnc_kernel_hash(const nnc_kernel *k);

/* ---- from a graph ------------------------------------------------------------------------------------------------ */

/* Can these nodes (ascending indices of g, no leaves except constants, CL_comp already expanded) be one generated
 * kernel that gives outs[0..n_out), the values of theirs that anything else needs, ascending? Traces the kernel's instructions, as
 * nnc_kernel_build does (kernel/trace.h), so that the answer and the kernel cannot differ. On false *why is a one-line reason in words a
 * user understands (static or text in `a`). `spare`: how many evaluations of an expensive op are allowed beyond one for each of its
 * elements (nnc_target_spare_ops). The time does not depend on the graph's size: only these nodes and their operands are visited. */
#define NNC_KERNEL_RESULTS 64   /* most results of a kernel */
#define NNC_KERNEL_ARGUMENTS 64 /* most operands and results together */
#define NNC_KERNEL_CONCAT 12    /* operands of a concat that a kernel copies in turn; of more, each element compares its index */
bool nnc_kernel_possible(const nnc_graph *g, const uint32_t *nodes, int n, const nnc_ref *outs, int n_out, int64_t spare, nnc_arena *a,
    const char **why);

/* Builds the kernel of node n of g (a fused node, or any single generated op) in `a`, without a schedule. Operand buffers: the distinct
 * operands in order, then the results. NULL when no rule does (why in the sink, NNC_E_BUG: passes asked nnc_kernel_possible). Views must
 * not come here. */
nnc_kernel *nnc_kernel_build(const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_sink *sink);
/* Puts the axes in the order of memory and makes one of neighbours that every access sees as one. */
void nnc_kernel_order_axes(nnc_kernel *k);
void nnc_kernel_merge_axes(nnc_kernel *k);
/* Names buffers and axes, and the kernel after the first ops of node n and its hash. False: out of memory. */
bool nnc_kernel_name(nnc_kernel *k, const nnc_node *n, nnc_arena *a);

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* Bounds of what kernel text may ask for, so that a hostile file is refused before memory is
 * touched. */
#define NNC_KMAX_BUF 4096
#define NNC_KMAX_INS 65536
#define NNC_KMAX_STAGE 4096

typedef struct nnc_span {
    int64_t lo, hi; /* inclusive */
    bool ok;        /* false: does not fit 64 bits */
} nnc_span;

bool nnc_affine_equal(const nnc_affine *a, const nnc_affine *b);
/* e += f m */
static inline void nnc_affine_add(nnc_affine *e, const nnc_affine *f, int64_t m)
{
    e->c += f->c * m;
    for (int a = 0; a < NNC_KAXES; a++)
        e->k[a] += f->k[a] * m;
}
/* Do both compute the same, from the same operands? What is known of their values is not looked at. */
bool nnc_kins_equal(const nnc_kins *a, const nnc_kins *b);
/* Least and greatest value over the axes' extents. */
nnc_span nnc_affine_span(const nnc_kernel *k, const nnc_affine *e);
/* The same for an access, given that its guards hold. */
nnc_span nnc_access_span(const nnc_kernel *k, const nnc_kins *in);

/* SSA type of what a buffer's element becomes when loaded. */
static inline nnc_dtype nnc_kdtype(nnc_dtype d) { return d == DT_f16 || d == DT_bf16 ? DT_f32 : d; }

extern const char *const nnc_kred_names[6];
extern const char *const nnc_kaxis_names[3];
#define NNC_KHINTS 6
extern const char *const nnc_khint_names[NNC_KHINTS]; /* by bit */

/* Print with the kernel's and buffers' own names, or without (what the hash reads). */
void nnc_kernel_print_as(nnc_text *t, const nnc_kernel *k, bool names);

extern const char *const nnc_kdo_names[KD__COUNT];
int64_t nnc_kernel_domain(const nnc_kernel *k); /* units that the schedule's tiles make; -1: more than 2^63 */
int64_t nnc_kernel_scratch(const nnc_kernel *k);
extern const char *const nnc_kclass_names[5];
/* place.c: nnc_kernel_in_place, by buffer. */
bool nnc_kernel_may_overlay(const nnc_kernel *k, int in, int out);
/* Of a kernel that transposes: the outer axis along which most is loaded while its stores lie along axis v (-1: there is none), and how
 * many elements. -1: none, or too short for squares. */
int nnc_across_axis(const nnc_kernel *k, int v, int64_t *elements);
/* Which axis a stage runs in vectors: the outer vector axis, its own last axis, or -1. */
int nnc_stage_vec(const nnc_kernel *k, const nnc_kstage *s);
nnc_kschedule nnc_cuda_sched(const nnc_kernel *k); /* what stands in k->sched of a GPU's kernel: for the interpreter */

#endif
