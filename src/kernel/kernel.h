/* kernel/kernel.h -- the kernel language: its type, text form, verifier and hash, and the construction of kernels from graph nodes. A
 * kernel is built without a schedule (sched.domain is 0); schedule/ chooses one.
 *
 * A kernel is 1..n stages that share the outer axes. For every point of the outer axes the stages are executed in order. A stage iterates
 * over its own map and reduce axes. `body` is executed at every point, `post` once per (outer, map) point after the reduce axes.
 *
 *     for outer                       softmax over rows:  outer r
 *       for stage                       stage 0: reduce c    body: m = max(load x[r,c])
 *         for map axes                  stage 1: reduce c    body: s = sum(exp(load x[r,c] - m))
 *           for reduce axes: body       stage 2: map c       body: store y[r,c] = exp(load x[r,c] - m) / s
 *           post
 *
 * Values: SSA, id = index in k->ins. Visibility: body values in their own body; a reduction's result in its stage's post. Post values and
 * reduction results of a stage without map axes are visible in all later stages too. Other values cross stages through memory: a tmp
 * buffer (per worker) or an output, stored and loaded again.
 * Types: bool, i8..i64, u8..u64, f32, f64. Buffers may be f16/bf16: a load gives f32, a store rounds. */
#ifndef NNC_KERNEL_H
#define NNC_KERNEL_H

#include "ir/ir.h"
#include "cost/cost.h"

#define NNC_KAXES 16
#define NNC_KGUARDS 8
#define NNC_KPARTS 8                  /* maximum of parts */
#define NNC_KBLOCK 16                 /* maximum steps of a reduce axis' tile */
#define NNC_KBLOCK_BYTES (32 << 10)   /* maximum bytes of its accumulators */

/* Limits on kernel text, so that hostile files are rejected before memory is allocated. */
#define NNC_KMAX_BUF 4096
#define NNC_KMAX_INS 65536
#define NNC_KMAX_STAGE 4096

typedef enum nnc_kaxis_kind { KA_outer, KA_map, KA_reduce } nnc_kaxis_kind;
typedef struct nnc_kaxis {
    nnc_kaxis_kind kind;
    int64_t extent;
    const char *name; /* for printing: "r0", "c", ... */
    bool seq; /* a stage's own axis whose points run in order: each reads what earlier ones stored. Never vectorised or merged */
} nnc_kaxis;

/* c + sum k[axis] * axis, in elements when used as an offset */
typedef struct nnc_affine {
    int64_t c;
    int64_t k[NNC_KAXES];
} nnc_affine;

typedef struct nnc_kguard { /* lo <= e < hi */
    nnc_affine e;
    int64_t lo, hi;
} nnc_kguard;
bool nnc_kguard_equal(const nnc_kguard *a, const nnc_kguard *b);

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
    uint8_t op; /* nnc_kop */
    uint8_t dtype; /* of the result (store: of the stored value) */
    uint8_t sop; /* KO_sop: nnc_sop;  KO_reduce: nnc_kred */
    uint8_t n_guard; /* load and store: all must hold; otherwise a load gives `fill` (arg[1]) and a store does nothing */
    uint8_t cast_to; /* KO_sop cast: nnc_dtype rounded to (f16 and bf16 round, the value stays f32) */
    bool running; /* KO_reduce ("scan"): the body reads what was accumulated so far, this point included; all reduce axes are seq */
    int16_t buf; /* load, store */
    /* SSA ids or -1. load: [0] computed index, added to the offset times `scale` (-1 none), [1] fill; store: [0] value, [1] computed
     * index (-1 none); reduce: [0] value, [1] mask (bool; false = skipped; -1 none) */
    int32_t arg[3];
    int64_t scale; /* computed index: elements per unit of the index, which is clamped to [0, limit) */
    int64_t limit;
    double f;        /* KO_const float */
    int64_t i;       /* KO_const int/bool; KO_index: axis. argmax, argmin number the elements row-major in the order of the reduce axes */
    nnc_affine at;   /* load, store */
    nnc_kguard *guard;
    double lo, hi;   /* value range from nnc_kernel_ranges; lo > hi: not computed */
    bool maybe_nan;
    uint8_t hint;    /* KH_*: set by ranges; for emitters */
} nnc_kins;

enum nnc_khint { /* bounds hold unless the value is NaN: NaN operands are possible without KH_nonan */
    KH_bounded = 1,  /* argument| <= 2^16 and finite: no slow argument reduction */
    KH_halfpi = 2,   /* argument| <= pi/2: no argument reduction */
    KH_nonneg = 4,   /* argument >= 0 */
    KH_nonan = 8,    /* no operand is NaN */
    KH_exact = 16,   /* --math=exact: the most accurate form of the function (docs/math.md); fma: computed even where a factor is 0 */
    KH_fast = 32,    /* --math=fast: the fast form */
};

typedef struct nnc_kstage {
    uint32_t axes;      /* set of its own map and reduce axes; loops are nested in ascending axis order */
    int32_t body0, body1, post0, post1; /* ranges of ins */
} nnc_kstage;

/* A CPU schedule: a list of directives on the kernel's loops, printed with the kernel. Legal by construction: no directive changes the
 * result (docs/kernel-ir.md, "Schedule"). At most one of each kind per axis. */
typedef enum nnc_kdo {
    KD_tile,        /* axis, n. Outer axis: divided into blocks of n, one per work item. Without a tile a work item has one point, or the
                     * whole vector axis. Reduce axis: the loop over the work item's vectors is repeated for every n steps. Accumulators are
                     * in the worker's memory, so that each sum keeps its order */
    KD_order,       /* axis; one for each outer axis: digits of a work item's number, slowest first. None: the outer axes in order,
                     * then the vector axis' tiles as the fastest */
    KD_vector,      /* axis, n elements per IR vector (which may be longer than the hardware's). Outer axis ("columns"): all stages are
                     * vectorised over it. Inner axis ("rows"): EVERY stage with own axes vectorises its last one (highest number); the
                     * directive names that of the costliest stage. KB_tmp buffers require an inner axis (their offsets use own axes
                     * only) */
    KD_unroll,      /* outer axis, n; the axis has a tile of a multiple. With an outer vector axis: n neighbouring points at once, each with
                     * its own accumulators in registers. With an inner one ("rows at once"): each stage is executed for n neighbouring rows
                     * before the next stage. The rows' chains of dependent instructions then overlap */
    KD_transpose,   /* outer axis beside an outer vector axis, both tiled: loads along it are read in square tiles and transposed in
                     * registers */
    KD_ring,        /* buffer, outer axis, n: the tmp buffer keeps the last n rows while a work item advances along the axis. Only rows that
                     * the point before did not store are computed (nnc_kernel_ring) */
    KD_prefetch,    /* n: prefetches the rows of the n-th next work item (n is 1); of a register block its weights (nnc_kernel_ahead) */
    KD_panel,       /* n: computes the source of the sums of products once for each block of the outer axes that it depends on. It is stored
                     * in n bytes of the worker's memory (nnc_kernel_panel) */
    KD_nontemporal, /* non-temporal stores */
    KD_quick,       /* prefer fast compilation to fast code: the kernel runs once, or very briefly */
    KD__COUNT,
} nnc_kdo;

#define NNC_KDIRECTIVES 48
typedef struct nnc_kdirective {
    uint8_t what; /* nnc_kdo */
    int8_t axis;  /* -1: none */
    int16_t buf;  /* KD_ring: the buffer */
    int64_t n;    /* 0: none */
} nnc_kdirective;

typedef struct nnc_kschedule {
    int64_t domain; /* parallel work items: the product of the outer axes' blocks */
    int64_t grain;  /* minimum of work items per thread */
    int n;
    nnc_kdirective d[NNC_KDIRECTIVES]; /* sorted by kind; within a kind in order of addition */
} nnc_kschedule;

/* Schedule of a GPU kernel (docs/kernel-ir.md, "Schedule on a GPU"): choices, then derived values. A point is a point of the outer axes. A
 * launch has `blocks` blocks of `threads` threads with `shared` bytes of dynamic shared memory. With finish > 0 a second launch, of
 * <name>_finish, follows in the same stream with the same arguments. It has `finish` blocks of `threads` threads and no dynamic shared
 * memory. */
typedef enum nnc_kclass {
    KC_none,   /* not a GPU kernel: nnc_kernel.sched is the schedule */
    KC_point,  /* a thread computes `vec` points along `axis`, `flight` times */
    KC_tile,   /* square tiles: loads along `across` are transposed in shared memory, stores are along `axis` */
    KC_row,    /* `group` neighbouring threads share a point: own axes are distributed over them */
    KC_column, /* neighbouring threads have neighbouring points along `axis`, `group` rows of threads share a point's reduce axes */
    KC_steps,  /* recurrences: a block has `vec` points along `axis`; own map axes lie along its threads, in `group` rows that share sums */
    KC_scatter, /* `split` blocks share the points along `axis`; each updates its own range of the rows that computed indices name */
    KC_attend, /* two products with a softmax between them (schedule/attend.c): `vec` rows a thread along `axis`, `group` keys at a time */
    KC_contract, /* a sum of products on tensor cores (schedule/cuda_contract.c): a block has `group` rows, `vec` columns along `axis` */
} nnc_kclass;

typedef struct nnc_kgrid {
    uint8_t cls;     /* nnc_kclass */
    int16_t axis;    /* point, tile, column: the outer axis that varies fastest, -1 = none */
    int16_t across;  /* tile: the outer axis along which its loads are contiguous */
    int16_t threads; /* per block: a multiple of 32 */
    int16_t vec;     /* elements per access */
    int16_t flight;  /* point: vectors per thread, loaded before any is used */
    int16_t group;   /* row, column: threads per point */
    int16_t split;   /* blocks per point */
    int16_t keep;    /* row: vectors of a row that one thread keeps in registers; 0 = each stage reads rows again */
    int16_t park;    /* row: how many of these vectors, the last ones, are kept in shared memory instead */
    int16_t spill;   /* row: tmp buffers are in device memory (`work`) if 1, in shared memory if 0. attend: 1 = the library computes the
                      * kernel where it is available, with `work` as its workspace */
    int16_t regs;    /* maximum registers per thread, 0 = no limit */
    int16_t index;   /* bits of offsets: 32 or 64 */
    int64_t blocks, finish;
    int64_t shared;  /* bytes */
    int64_t work;    /* bytes of device memory passed as a further, last argument; 0 = none */
    bool oom;        /* out of memory during the choice: the schedule is incomplete */
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
    nnc_kgrid grid;        /* of a GPU kernel: cls is not KC_none; sched then has no vector axis */
    int64_t scratch_bytes; /* per worker: all tmp buffers, each 64-byte aligned, in order, or the panel */
    const char *note;      /* simplifications made by nnc_lower, one per line, or NULL; not part of text or hash */
    nnc_hash128 hash;      /* nnc_kernel_hash, when nnc_kernel_name named it */
} nnc_kernel;

/* The computed index of a load or store, or -1. */
static inline int32_t nnc_kins_index(const nnc_kins *in)
{
    return in->op == KO_load ? in->arg[0] : in->op == KO_store ? in->arg[1] : -1;
}

/* Has the kernel (the stage) axes whose points run in order? */
bool nnc_kernel_in_order(const nnc_kernel *k);
bool nnc_stage_in_order(const nnc_kernel *k, const nnc_kstage *s);

/* False for kernels as nnc_kernel_build made them. */
static inline bool nnc_kernel_is_scheduled(const nnc_kernel *k) { return k->grid.cls != KC_none || k->sched.domain > 0; }

/* Bytes of workspace for a run of the kernel: on a CPU per worker, on a GPU in total. */
static inline int64_t nnc_kernel_work(const nnc_kernel *k)
{
    return k->grid.cls == KC_none ? k->scratch_bytes : k->grid.work;
}

/* n of directive `what` for the axis (-1: any axis); 0: none. */
int64_t nnc_sched_n(const nnc_kschedule *s, nnc_kdo what, int axis);
/* The axis of the first such directive, or -1. */
int nnc_sched_axis(const nnc_kschedule *s, nnc_kdo what);
bool nnc_sched_has(const nnc_kschedule *s, nnc_kdo what);
bool nnc_sched_has_for(const nnc_kschedule *s, nnc_kdo what, int axis); /* -1: any axis */
/* Adds a directive, or changes the one of this kind for the axis; false: too many. */
bool nnc_sched_put(nnc_kschedule *s, nnc_kdo what, int axis, int64_t n);
bool nnc_sched_put_ring(nnc_kschedule *s, int buf, int axis, int64_t n); /* false: too many */
bool nnc_sched_has_ring(const nnc_kschedule *s, int buf);
void nnc_sched_drop(nnc_kschedule *s, nnc_kdo what, int axis); /* axis -1: all of that kind */
/* The vector axis, or -1; elements of a vector, at least 1. */
static inline int nnc_sched_vec(const nnc_kschedule *s) { return nnc_sched_axis(s, KD_vector); }
static inline int nnc_sched_width(const nnc_kschedule *s) { return (int)nnc_max64(nnc_sched_n(s, KD_vector, -1), 1); }
/* The outer axes as digits of a work item's number, slowest first. Returns k->n_outer. */
int nnc_kernel_digits(const nnc_kernel *k, int *axis);
/* Number of blocks of an outer axis: the range of its digit. */
int64_t nnc_kernel_blocks(const nnc_kernel *k, int axis);

/* Ring buffer: a tmp buffer whose rows overlap between neighbouring points of an outer axis. Row m of point i is row i * step + m of one
 * sequence, and is stored at that number modulo `rows`. A point computes only its last `step` rows; the first point of a work item
 * computes all. */
typedef struct nnc_kring {
    int axis, row;        /* the outer axis; the map axis of the rows, in exactly the stages that store them */
    int64_t rows, size;   /* rows of the buffer, 0: not a ring; elements of a row */
    int64_t step;         /* rows from one point of the outer axis to the next, 1 .. rows - 1 */
} nnc_kring;
/* ring.c: reason why tmp buffer `buf` cannot be a ring of `rows` rows along the axis; NULL: it can, as *r. form: nnc_kernel_forms(k). */
struct nnc_kform;
const char *nnc_kernel_ring(const nnc_kernel *k, const struct nnc_kform *form, int buf, int axis, int64_t rows, nnc_kring *r);
/* *r: an element for each buffer, from the schedule's directives, which were verified. False: out of memory. */
bool nnc_kernel_rings(const nnc_kernel *k, nnc_arena *a, nnc_kring **r);
/* Offset of an access to a ring without the modulo: the row, and the place in the row. */
void nnc_ring_split(const nnc_kring *r, const nnc_affine *at, nnc_affine *row, nnc_affine *place);

/* True for a load of the element whose new value a store of the kernel writes: a weight that is updated, a residual. */
bool nnc_kernel_updates(const nnc_kernel *k, const nnc_kins *load);
/* product.c: a stage whose body is a sum of products of two loads, as in a matrix product or a convolution. */
typedef struct nnc_product {
    int32_t x, w, sum; /* instructions */
    int axis;          /* the last reduce axis; -1: the stage is no product */
} nnc_product;
/* Finds such a sum of f32 or f64 in a stage that is vectorised along axis `vec` (-1: none). */
bool nnc_product_find(const nnc_kernel *k, const nnc_kstage *s, int vec, nnc_product *p);
/* A panel: the computed operand of a sum of products, stored for one block of the outer axes. */
typedef struct nnc_kpanel {
    int32_t x;                 /* the operand */
    uint32_t axes;             /* axes that it depends on */
    int64_t stride[NNC_KAXES]; /* elements from one index to the next; of an outer axis within its tile. 0: one index */
    int64_t bytes;
} nnc_kpanel;
/* ahead.c: the weights of a register block that a work item prefetches for the next one. */
typedef struct nnc_kahead {
    int32_t load;
    int64_t next;   /* elements from a work item's weights to the next one's */
    int64_t bytes;  /* of a work item's weights, which are contiguous */
    int64_t strips; /* of a work item */
    int64_t steps;  /* of the innermost loop in a work item */
} nnc_kahead;
/* Reason why the kernel cannot prefetch weights; NULL: it can, as *p. */
const char *nnc_kernel_ahead(const nnc_kernel *k, nnc_kahead *p);
/* A set of a kernel's instructions. On the stack: choices must not depend on available memory. */
typedef struct nnc_kset {
    uint64_t word[NNC_KMAX_INS / 64 + 2]; /* one more than NNC_KMAX_INS: the store of a panel */
} nnc_kset;
static inline bool nnc_kset_has(const nnc_kset *s, int32_t i) { return s->word[i / 64] >> (i % 64) & 1; }
static inline void nnc_kset_add(nnc_kset *s, int32_t i) { s->word[i / 64] |= UINT64_C(1) << (i % 64); }
/* The instructions that value `id` is computed from, and itself. */
void nnc_kernel_cone(const nnc_kernel *k, int32_t id, nnc_kset *cone);
/* panel.c: reason why the kernel with its tiles and vector axis cannot have a panel; NULL: it can, as *p. nnc_kernel_panel_split divides
 * the kernel in two. `fill` fills the panel for a block (the sum's reduce axes are its map axes), `sums` reads it. The panel is the last
 * buffer of both; in it, outer axes count from the block's begin. False: out of memory. */
const char *nnc_kernel_panel(const nnc_kernel *k, nnc_kpanel *p);
bool nnc_kernel_panel_split(const nnc_kernel *k, const nnc_kpanel *p, nnc_arena *a, nnc_kernel *fill, nnc_kernel *sums);

/* parts.c: divides into parts a kernel of two products with map axes (chain.c), or of one between other stages (winograd.c). Each
 * product's stage is a part, and so are the stages before, between and after products. Products share only outer axes. Parts pass values on
 * only through tmp buffers. If the schedule has a vector axis for each part, a work item runs one part after another, each for all points
 * of its block. The block is tiled along at most one outer axis. Each part is then a kernel of its own; a shared tmp buffer is its
 * argument, with a row for each point of the tile. */
typedef struct nnc_kpart {
    int stage, end;        /* its stages: stage .. end - 1 */
    bool product;
    uint32_t axes;         /* its own axes */
    uint32_t nest;         /* own axes that enclose its stages and are outer axes of its kernel */
    int to[NNC_KAXES];     /* by axis of the whole kernel: its number in the part's kernel, -1: not there */
    int *buf;              /* by buffer of the part's kernel: its number in the whole kernel */
    nnc_kernel k;
} nnc_kpart;
/* Number of parts, 0: the kernel is not divided; part[NNC_KPARTS] (may be NULL): stages, product, axes. */
int nnc_kernel_parts(const nnc_kernel *k, nnc_kpart *part);
static inline bool nnc_kernel_in_parts(const nnc_kernel *k)
{
    int n = 0;
    for (int i = 0; i < k->sched.n; i++)
        n += k->sched.d[i].what == KD_vector;
    return n > 1;
}
/* By tmp buffer: elements from one row to the next where parts share it, otherwise 0. NULL: out of memory. */
int64_t *nnc_parts_rows(const nnc_kernel *k, const nnc_kpart *part, int n, nnc_arena *a);
/* The outer axis along which windows of neighbouring points read rows in common, which a part computes once for each block; -1: none. */
int nnc_parts_axis(const nnc_kernel *k);
int nnc_parts_tiled(const nnc_kernel *k);             /* the outer axis whose tile has more than one point, or -1 */
int64_t nnc_parts_bytes(const nnc_kernel *k, int b); /* scratch bytes of tmp buffer b: the rows of a tile's points */
int64_t nnc_parts_scratch(const nnc_kernel *k);      /* scratch bytes of a kernel that is scheduled in parts */
/* The kernel as its parts run it: *out is k, but tmp buffers within nests have the elements of one point; nest[]: by stage. `out` shares
 * k's memory. False: out of memory. */
bool nnc_parts_nested(const nnc_kernel *k, nnc_arena *a, nnc_kernel *out, uint32_t *nest);
/* Fills p->k, the part's kernel, with the directives of k's schedule for its axes. Shared tmp buffers have a row (nnc_parts_rows) for each
 * index of k's outer axis `tiled` (-1: one row). New memory is in `a`. Returns NULL, or the reason why not; "": out of memory. */
const char *nnc_kernel_part(const nnc_kernel *k, int tiled, const int64_t *row, nnc_kpart *p, nnc_arena *a);

/* True when a transposing kernel reads this load in square tiles. */
static inline bool nnc_kernel_tiles(const nnc_kernel *k, const nnc_kins *in, int vec, int tile)
{
    int64_t s = k->axis[vec].extent > 1 ? in->at.k[vec] : 0;
    return in->op == KO_load && in->arg[0] < 0 && in->n_guard == 0 && in->at.k[tile] == 1 && s != 0 && s != 1;
}

/* The last stage, if its reduce axis may be tiled; otherwise NULL. That must be its only own axis, and at most one stage before it may
 * compute values of a column. */
const nnc_kstage *nnc_kernel_sums(const nnc_kernel *k);
/* True when this stage exists and its reduce axis may be tiled with the schedule's vector axis. Its accumulators must be few enough, and
 * argmax and argmin are excluded. */
bool nnc_kernel_blocked_ok(const nnc_kernel *k);
/* True for a register block whose results are its sums, or with one reduce axis computed from them. A reduce axis may then have a tile of
 * n. A work item adds the sums of one block of terms after another to the results in memory. A block has n points of this axis, one of
 * those before it, all of those after it. The ops after the sum follow the last block. */
bool nnc_kernel_adds_ok(const nnc_kernel *k);
/* The reduce axis with this tile, or -1. */
int nnc_kernel_added_axis(const nnc_kernel *k);

/* True when argument `out` may share the memory of argument `in`: each element is read before the same iteration writes it. */
bool nnc_kernel_in_place(const nnc_kernel *k, int in, int out);

nnc_status nnc_kernel_verify(const nnc_kernel *k, nnc_sink *sink) NNC_MUST;
nnc_status nnc_bad_kernel(const nnc_kernel *k, nnc_sink *sink, const char *what); /* reports: "kernel NAME: what" */
void nnc_kernel_print(nnc_text *t, const nnc_kernel *k);
nnc_kernel *nnc_kernel_parse(nnc_scan *s, nnc_arena *a, nnc_sink *sink);
/* Hash of everything that determines the machine code: kernel IR and schedule, without names of buffers. Out of memory: hi is all
 * ones. */
nnc_hash128 nnc_kernel_hash(const nnc_kernel *k);

/* ---- from a graph ------------------------------------------------------------------------------------------------ */

/* True when these nodes (ascending indices of g, no leaves except constants, CL_comp already expanded) can be one generated kernel. Its
 * results are outs[0..n_out), their values used elsewhere, ascending. Traces the kernel's instructions exactly as nnc_kernel_build does
 * (kernel/trace.h), so that the answer and the kernel cannot differ. On false *why is a one-line reason for users (text in `a`), NULL: out
 * of memory; on true a note on local buffers or NULL. `spare`: number of evaluations of an expensive op allowed beyond one per element
 * (nnc_target_spare_ops). `local`: bytes of a tmp buffer for values that overlapping windows read (nnc_kernel_local); the windows then read
 * no other computed values. 0: each window computes them. Time depends only on these nodes and their operands, not on the graph's size. */
bool nnc_kernel_possible(const nnc_graph *g, const uint32_t *nodes, int n, const nnc_ref *outs, int n_out, int64_t spare, int64_t local,
    nnc_arena *a, const char **why);
/* Most operands and results of a kernel on t. A GPU has 4 KiB for a kernel's parameters: pointers, and the sizes of shared functions. */
int nnc_kernel_most_buffers(const nnc_target *t);
#define NNC_KERNEL_CONCAT 12 /* operands of a concat that a kernel copies in turn; of more, each element compares its index */
/* The kernel of such nodes, without a schedule, in `a`, for estimates: operands are numbered in order of use. NULL: *why is the reason,
 * or NULL when out of memory. */
nnc_kernel *nnc_kernel_of(
    const nnc_graph *g, const uint32_t *nodes, int n, const nnc_ref *outs, int n_out, nnc_arena *a, const char **why);

/* Estimated nanoseconds of node n as an unfused command on target t. */
int64_t nnc_node_ns(const nnc_target *t, const nnc_graph *g, const nnc_node *n);
/* True for contractions that become generated kernels on target t: products with the attribute as_kernel, depthwise convolutions where
 * the target prefers that. *why (may be NULL) is the reason. */
bool nnc_is_kernel_conv(const nnc_target *t, const nnc_graph *g, const nnc_node *n, const char **why);
/* True for any other contraction, and for a fused node that contains exactly one: engines are asked for a library call. t: may be NULL. */
bool nnc_has_call(const nnc_target *t, const nnc_graph *g, const nnc_node *n);

/* Builds the kernel of node n of g (a fused node, or any single generated op) in `a`, without a schedule. Operand buffers: the
 * distinct operands in order, then the results. NULL on failure (reason in the sink, NNC_E_BUG: passes asked nnc_kernel_possible
 * before). n must not be a view. */
nnc_kernel *nnc_kernel_build(const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_sink *sink);
/* Sorts the axes by memory order, except short ones around windows on CPUs (few_last), and merges neighbours that are contiguous in every
 * access. `apart`: also merges two axes of a stage that only axes of other stages separate; schedules of GPUs do not support that. */
void nnc_kernel_order_axes(nnc_kernel *k, bool gpu);
void nnc_kernel_merge_axes(nnc_kernel *k, bool apart);
/* local.c: where overlapping windows read values that the kernel computes, adds a stage that stores them in a tmp buffer. `most`: maximum
 * size in bytes. *done: added. k has no schedule yet; new memory is in `a`. False: out of memory. */
bool nnc_kernel_local(nnc_kernel *k, int64_t most, nnc_arena *a, bool *done);
/* Names buffers and axes, and the kernel after the first ops of node n and its hash. False: out of memory. */
bool nnc_kernel_name(nnc_kernel *k, const nnc_node *n, nnc_arena *a);

/* ---- facts ------------------------------------------------------------------------------------------------------- */

typedef struct nnc_span {
    int64_t lo, hi; /* inclusive */
    bool ok;        /* false: overflows 64 bits */
} nnc_span;

bool nnc_affine_equal(const nnc_affine *a, const nnc_affine *b);
/* e += f m */
static inline void nnc_affine_add(nnc_affine *e, const nnc_affine *f, int64_t m)
{
    e->c += f->c * m;
    for (int a = 0; a < NNC_KAXES; a++)
        e->k[a] += f->k[a] * m;
}
/* Axes that the form depends on. nnc_kins_axes: axes that the instruction itself names (an index, an access with its guards), without its
 * operands. */
uint32_t nnc_affine_axes(const nnc_affine *e);
uint32_t nnc_kins_axes(const nnc_kins *in);
/* Set of the axes of a kind; product of the extents of a set of axes, saturated at INT64_MAX. */
uint32_t nnc_kernel_axes(const nnc_kernel *k, nnc_kaxis_kind kind);
int64_t nnc_kernel_points(const nnc_kernel *k, uint32_t axes);
/* The reduce axes of the body that contains instruction id; 0: it is in a stage's post. */
uint32_t nnc_reduce_axes(const nnc_kernel *k, int id);
/* By instruction: the affine form of axes that it computes; ok: whether it computes one. NULL: out of memory. */
typedef struct nnc_kform {
    nnc_affine e;
    bool ok;
} nnc_kform;
nnc_kform *nnc_kernel_forms(const nnc_kernel *k, nnc_arena *a);
/* Do both compute the same from the same operands? Value ranges and hints are not compared. */
bool nnc_kins_equal(const nnc_kins *a, const nnc_kins *b);
/* Range of the form over the axes' extents. */
nnc_span nnc_affine_span(const nnc_kernel *k, const nnc_affine *e);
/* The same for an access, given that its guards hold. */
nnc_span nnc_access_span(const nnc_kernel *k, const nnc_kins *in);

/* Is the value the constant 0? False for id -1. */
static inline bool nnc_kins_is_zero(const nnc_kernel *k, int32_t id)
{
    return id >= 0 && k->ins[id].op == KO_const && k->ins[id].f == 0 && k->ins[id].i == 0;
}

/* SSA type of a buffer's elements after loading. */
static inline nnc_dtype nnc_kdtype(nnc_dtype d) { return d == DT_f16 || d == DT_bf16 ? DT_f32 : d; }

extern const char *const nnc_kred_names[6];
extern const char *const nnc_kaxis_names[3];
#define NNC_KHINTS 6
extern const char *const nnc_khint_names[NNC_KHINTS]; /* by bit */

/* Prints with the kernel's and buffers' own names, or without (the input of the hash). */
void nnc_kernel_print_as(nnc_text *t, const nnc_kernel *k, bool names);

extern const char *const nnc_kdo_names[KD__COUNT];
int64_t nnc_kernel_domain(const nnc_kernel *k); /* number of work items of the schedule's tiles; -1: more than 2^63 */
int64_t nnc_kernel_scratch(const nnc_kernel *k);
/* Number of rows that are computed together (KD_unroll beside an inner vector axis), and in *axis their outer axis; 1: single rows. */
int nnc_kernel_rows(const nnc_kernel *k, int *axis);
/* Bytes of tmp buffer b for one row in a worker's memory; the same in elements: the step between rows that are computed together. */
int64_t nnc_kernel_tmp_bytes(const nnc_kernel *k, int b);
static inline int64_t nnc_kernel_tmp_step(const nnc_kernel *k, int b)
{
    return nnc_kernel_tmp_bytes(k, b) / nnc_dtype_size(k->buf[b].dtype);
}
extern const char *const nnc_kclass_names[9];
/* place.c: nnc_kernel_in_place, by buffer. */
bool nnc_kernel_may_overlay(const nnc_kernel *k, int in, int out);
/* For a transposing kernel: the outer axis along which all stores of its single flat body are contiguous; -1: none. */
int nnc_store_axis(const nnc_kernel *k);
/* For a transposing kernel with stores along axis v: the outer axis along which most elements are loaded, and how many these are. -1: no
 * such axis, or too short for square tiles. */
int nnc_across_axis(const nnc_kernel *k, int v, int64_t *elements);
/* The axis that a stage vectorises: the schedule's if it is an outer one or the stage's own, otherwise the stage's last, or -1. */
int nnc_stage_vec(const nnc_kernel *k, const nnc_kstage *s);
nnc_kschedule nnc_cuda_sched(const nnc_kernel *k); /* k->sched of a GPU kernel: for the interpreter */

#endif
