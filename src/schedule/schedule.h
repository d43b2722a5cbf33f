/* schedule/schedule.h -- how a kernel's loops run on a machine: analytic choices, the values derived from them, and their
 * verification. The schedule itself is part of the kernel's type (kernel/kernel.h). */
#ifndef NNC_SCHEDULE_H
#define NNC_SCHEDULE_H

#include "kernel/kernel.h"

/* Makes a built kernel ready to be emitted. Sorts its axes by memory order, merges axes, stores values that several windows read, unrolls
 * strips, and schedules it. New memory is in `a`. False: out of memory. */
bool nnc_kernel_arrange(nnc_kernel *k, const nnc_target *t, nnc_arena *a);
/* Fills k->sched (CPU) or k->grid (GPU) by analytic rules from the target. False: out of memory. */
bool nnc_kernel_schedule(nnc_kernel *k, const nnc_target *t);
/* Verifies the kernel (nnc_kernel_verify) and its schedule. */
nnc_status nnc_schedule_verify(const nnc_kernel *k, nnc_sink *sink) NNC_MUST;
/* estimate.c: estimated nanoseconds of a scheduled kernel on t with all its threads, as machine code or interpreted, as t runs it. *work
 * (may be NULL): the same on one thread of a CPU. -1: `mem` is out of memory. Half of the estimates are within 20 % of measurements: good
 * enough to compare two ways to compute one result. A GPU's are for comparing kernels with reductions. */
int64_t nnc_kernel_ns(const nnc_kernel *k, const nnc_target *t, int64_t *work, nnc_arena *mem);
/* estimate.c: estimated nanoseconds of the interpreter for a kernel on one thread. -1: `mem` is out of memory. */
int64_t nnc_kernel_interpreted_ns(const nnc_kernel *k, nnc_arena *mem);
/* estimate_cuda.c: nnc_kernel_ns of a GPU. */
int64_t cu_kernel_ns(const nnc_kernel *k, const nnc_target *t);
/* estimate_interp.c: estimated picoseconds of the interpreter for a kernel on one thread. dep: by instruction, the axes that its value
 * depends on; ring: by buffer (nnc_kernel_rings). */
int64_t nnc_interpreted_ps(const nnc_kernel *k, const uint32_t *dep, const nnc_kring *ring);
/* Parses a kernel with its schedule and verifies both (nnc_schedule_verify), so that a kernel from a file may be executed. */
nnc_kernel *nnc_schedule_parse(nnc_scan *s, nnc_arena *a, nnc_sink *sink);

/* schedule.c: nanoseconds per element, vectorised, on one core. nnc_posts_ns: of the stages' epilogues. nnc_value_ns: of value id and all
 * instructions that it needs. */
double nnc_posts_ns(const nnc_kernel *k);
double nnc_value_ns(const nnc_kernel *k, int32_t id);
/* schedule.c: the fewest of `domain` work items, of `ns` nanoseconds each, that are worth starting another thread. */
int64_t nnc_grain(const nnc_target *t, double ns, int64_t domain);
/* contract.c: schedules a contraction on a CPU; *done: the kernel is one. False: out of memory. */
bool nnc_contract_schedule(nnc_kernel *k, const nnc_target *t, bool *done);
/* contract.c: nanoseconds of a scheduled contraction on one thread; 0: the kernel is no contraction. */
double nnc_contract_ns(const nnc_kernel *k, const nnc_target *t);
/* contract.c: schedules a product inside a larger kernel, with rows along outer axis u. Sets its vectors and panels; *n: rows of a strip,
 * *ns: its time on one thread. False: the kernel has no such product. */
bool nnc_contract_part(nnc_kernel *k, const nnc_target *t, int u, int *n, double *ns);
/* contract.c: tile size of an axis: a multiple of n, at most about `tile`. With `panels` panels, all threads get the same number of
 * tiles. */
int64_t nnc_even_tile(int64_t extent, int64_t tile, int64_t n, int64_t panels, const nnc_target *t);
/* parts.c: schedules a kernel in parts on a CPU; *done: the kernel has parts. False: out of memory. */
bool nnc_parts_schedule(nnc_kernel *k, const nnc_target *t, nnc_arena *a, bool *done);
/* schedule.c: nanoseconds of all points, vectorised, on one core. */
double nnc_points_ns(const nnc_kernel *k);
/* contract.c: chooses and unrolls strips of a product whose weights are contiguous along the sum. Called before nnc_kernel_schedule.
 * False: out of memory. */
bool nnc_product_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* contract.c: a recurrence reads its weights in each step. A strip of several batch rows shares one read of them. nnc_recurrent_rows: rows
 * of a strip, out of `rows`, such that each thread has a strip; `sums`: sums for each element of the state. nnc_recurrent_vectors: number
 * of vectors of elements whose sums fit in registers, for all rows of a strip. */
int nnc_recurrent_rows(int64_t rows, int sums, const nnc_target *t);
int nnc_recurrent_vectors(int sums, const nnc_target *t);
/* Unrolls the strips of a recurrence. False: out of memory. */
bool nnc_ordered_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* Number of vectors along own axis v of a recurrence; 0: the kernel is not a recurrence. */
int nnc_ordered_vectors(const nnc_kernel *k, int v, const nnc_target *t);
/* strip.c: unrolling. All three leave the kernel unchanged where it would get too many guards or instructions. New memory is in `mem`.
 * False: out of memory. Conditions: stages with map axes store only to results, or the points are rows that are computed together
 * (nnc_kernel_rows), each with its own tmp buffers. Reductions over r have no masks and no computed places.
 * strip: unrolls outer axis a by n (2..NNC_STRIP). A strip computes n neighbouring points.
 * spread: the same, but the n points are extent / n apart. n divides the extent, and nothing reads a's index or guards it.
 * unroll: unrolls reduce axis r completely; it stays, with extent 1. */
#define NNC_STRIP 16
bool nnc_kernel_strip(nnc_kernel *k, int a, int n, nnc_arena *mem);
bool nnc_kernel_spread(nnc_kernel *k, int a, int n, nnc_arena *mem);
bool nnc_kernel_unroll(nnc_kernel *k, int r, nnc_arena *mem);
/* Splits axis a into blocks of n: a then counts blocks. The new own axis `at` > a, of this kind, counts the points of a block. Nothing
 * reads a's index. The last block may extend beyond the end: callers guard it. The kernel has fewer than NNC_KAXES axes. */
bool nnc_kernel_divide(nnc_kernel *k, int a, int at, nnc_kaxis_kind kind, int64_t n, nnc_arena *mem);
/* schedule_window.c: true for kernels of windows (pooling, depthwise convolution) in which one thread should compute a whole window.
 * nnc_window_strips chooses and unrolls their strips; called before nnc_kernel_schedule. False: out of memory. */
bool nnc_window_kernel(const nnc_kernel *k);
bool nnc_window_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* Elements of one access in a kernel of windows: at most `vec`, and few enough that the sums stay in registers. */
int nnc_window_vec(const nnc_kernel *k, int vec);
/* Time of the busiest SM over the average one, since each SM runs whole blocks of `block` threads. */
double nnc_window_rounded(const nnc_target *t, int64_t threads, int block);
/* walk.c: kernels of windows in which a thread walks down several rows of results. */
typedef struct nnc_walk {
    int map, taps;            /* own axes: rows of results, rows of the window */
    int sources, guarded;     /* loads of the source, and how many of them have a guard against rows beyond the edge */
    const nnc_kguard *row;    /* that guard; NULL: no row is beyond the edge */
    int64_t rows;             /* maximum number of source rows that a walk reads */
} nnc_walk;
bool nnc_walk_of(const nnc_kernel *k, nnc_walk *w); /* false: the kernel is no walk */
/* Number of registers that the values of a thread need. */
int nnc_walk_registers(const nnc_kernel *k, const nnc_walk *w);
/* Finds the outer axis of rows and the reduce axis of the window's rows, other than axes a, r (columns) and `fast`. False: none. */
bool nnc_walk_rows(const nnc_kernel *k, int fast, int a, int r, int rows[2]);
/* Rewrites k as walks along the second pair of axes (outer, reduce), with strips along the first pair. *done: rewritten, since it takes
 * fewer than `most` instructions per result. False: out of memory. */
bool nnc_window_walk(nnc_kernel *k, const nnc_target *t, const int pair[2][2], double most, bool *done, nnc_arena *mem);
void nnc_walk_choose(nnc_kernel *k, const nnc_walk *w); /* fills k->grid */
/* taps.c: gradients of depthwise weights. A thread sums all elements of a window over a block of positions. False: out of memory. */
bool nnc_tap_strips(nnc_kernel *k, const nnc_target *target, nnc_arena *mem);
/* schedule_pixels.c: unrolls GPU kernels that store few channels, all of each pixel. False: out of memory. */
bool nnc_pixel_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* The first of the *n stores to one buffer that, with store id, together write consecutive elements for `vec` steps along axis a.
 * -1: store id belongs to no such group. */
int32_t cu_store_run(const nnc_kernel *k, int32_t id, int a, int vec, int *n);
/* schedule_cuda.c: the outer axis that varies fastest; number of elements of one access along it; resident threads of the target. */
int nnc_cuda_fast_axis(const nnc_kernel *k);
int nnc_cuda_vec(const nnc_kernel *k, int axis);
int64_t nnc_cuda_resident(const nnc_target *t);
/* schedule_cuda.c: chooses the grid for target t; false: out of memory. nnc_cuda_derive computes the fields blocks, finish, shared, work
 * and index of *g from these choices; false: the kernel cannot run with them, or g->oom. */
bool nnc_cuda_schedule(nnc_kernel *k, const nnc_target *t);
bool nnc_cuda_derive(const nnc_kernel *k, nnc_kgrid *g);
/* Shared memory that a block may have. */
static inline int64_t cu_most_shared(const nnc_target *t)
{
    return t->shared_bytes > 0 ? t->shared_bytes : 48 << 10;
}
/* Sets k's grid to the one of all[] that fits t and takes the fewest nanoseconds, ns(k, of, t). Returns its time; INFINITY: none fits, and
 * the grid is as before. */
double nnc_cuda_fastest(nnc_kernel *k, const nnc_target *t, const nnc_kgrid *all, int n,
    double (*ns)(const nnc_kernel *k, const void *of, const nnc_target *t), const void *of);

/* cuda_rows.c: distribution of a point over a group of threads. */
typedef struct cu_spread {
    uint32_t spread;      /* own axes that are distributed over the threads */
    int vec;              /* elements of an access along the last of them */
    int64_t units, trips; /* number of vectors along these axes; maximum per thread */
} cu_spread;
typedef struct cu_rows {
    cu_spread *stage;
    int keep;
    int32_t *as;             /* by instruction, as in cu_value */
    bool *held;
    bool *in_registers;      /* by buffer: a tmp buffer kept in registers */
    int64_t scratch;         /* bytes per point of the other tmp buffers */
    int8_t *slot;            /* by instruction: array in shared memory where the parked part of a held value is, or -1 */
    int slots;
    int64_t slot_bytes;      /* of one array; an element holds one vector per thread */
} cu_rows;
bool cu_rows_mixed(const nnc_kernel *k); /* a stage has map and reduce axes, or axes in order: it is not distributed by rows */
bool cu_rows_plan(cu_rows *r, const nnc_kernel *k, const nnc_kgrid *g); /* false: out of memory */
void cu_rows_deinit(cu_rows *r);

int cu_split_stage(const nnc_kernel *k); /* the stage whose sums may be split over blocks, or -1 */

/* Product of the outer axes' extents; the last of a set of axes (-1: none). */
int64_t cu_all_points(const nnc_kernel *k);
static inline int cu_last_axis(uint32_t axes) { return axes ? 31 - __builtin_clz(axes) : -1; }
/* Offset in `work` of the partial results of reduction id, indexed [slice][point]; id = k->n_ins: total size. */
int64_t cu_part_at(const nnc_kernel *k, int split, int32_t id);
/* Threads per point in the second launch: one, or with many partial results the warps of a block. Then each thread of a warp has another of
 * 32 points. */
int cu_finish_group(const nnc_kernel *k, const nnc_kgrid *g);
/* Shared memory of the reductions' partial results per thread and lane of a column. */
int64_t cu_part_bytes(const nnc_kernel *k);
int64_t cu_work(const nnc_kernel *k, const nnc_kgrid *g); /* bytes of a split kernel's partial results; -1: too many */
int64_t cu_tile_bytes(const nnc_kernel *k, const nnc_kgrid *g); /* of static shared memory */

/* cuda_steps.c: recurrences, of class `steps`. */
typedef struct cu_step {
    uint32_t order, maps, sums; /* the stage's own axes: run in order; computed in parallel; summed */
    int64_t elements, terms;    /* elements of a step; terms of a sum */
} cu_step;
/* False: the stage is not a step of a recurrence. */
bool cu_step_of(const nnc_kernel *k, const nnc_kstage *s, cu_step *to);
/* A thread issues the loads of `flight` terms before it uses any of them. holds: is load id one of these? wide: does it load CU_STEP_WIDE
 * terms at once? fills: is it used only where another such load's guards fail? axis: innermost axis of the terms. */
enum { CU_STEP_WIDE = 4 };
bool cu_step_holds(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id);
bool cu_step_wide(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id);
bool cu_step_fills(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id);
bool cu_steps_choose(nnc_kernel *k, const nnc_target *t); /* false: no recurrence */
bool cu_steps_derive(const nnc_kernel *k, nnc_kgrid *g);
/* Nanoseconds of a scheduled recurrence, all steps, without the launch. */
int64_t cu_steps_ns(const nnc_kernel *k, const nnc_target *t);
int64_t cu_cost(const nnc_kins *in); /* cost of an instruction, in multiply-adds */
/* Elements that access `in` touches in all executions of its stage; repeated indices count once. */
int64_t cu_elements(const nnc_kernel *k, const nnc_kins *in);
/* Offset in shared memory of the partial results of reduction id; id = k->n_ins: total size in bytes. */
int64_t cu_step_part(const nnc_kernel *k, const nnc_kgrid *g, int32_t id);

/* cuda_scatter.c: kernels of class `scatter`: stage 0 copies x to y, stage 1 updates y at computed indices. */
typedef struct cu_scatter {
    int axis;               /* axis of y's rows, in stage 0 */
    int64_t rows, unit;     /* number of rows; elements from one row to the next */
    int64_t updates;
    int32_t copied, store;  /* the stores of stages 0 and 1 */
    bool shared;            /* all points update the same indices */
    nnc_kset cone;          /* instructions that the index is computed from */
} cu_scatter;
bool cu_scatter_of(const nnc_kernel *k, cu_scatter *s); /* false: the kernel is no scatter */
bool cu_scatter_sums(nnc_kernel *k, nnc_arena *a); /* turns a scatter into few rows into a reduction. False: out of memory */
bool cu_scatter_choose(nnc_kernel *k, const nnc_target *t); /* false: the kernel is no scatter */
bool cu_scatter_derive(const nnc_kernel *k, nnc_kgrid *g);
int64_t cu_scatter_rows(const cu_scatter *s, const nnc_kgrid *g); /* rows of one partial result */

/* cuda_contract.c: contractions on tensor cores, of class `contract`. */
enum {
    CU_CONTRACT_VEC = 8,    /* terms of an access */
    CU_CONTRACT_TERMS = 32, /* of a block of terms, times `flight` */
    CU_CONTRACT_ROWS = 32   /* rows of a warp */
};
typedef struct cu_contract {
    int column, term;       /* axes: the outer one along which results are contiguous; the summed one */
    uint32_t rows;          /* the other outer axes of more than one point */
    int32_t sum, x, w;      /* reduction; its factors: of a row, a load or rounded to `type`; of a column, a load */
    nnc_dtype type;         /* f16 or bf16 */
    int64_t m, n, k;        /* rows, columns, terms */
    int ahead;              /* bytes of a term that wait in registers for the ops before the product */
} cu_contract;
typedef struct cu_ctile {
    int down, across;       /* warps of a block */
    int wide;               /* columns of a warp */
    int line;               /* f32 elements from one row of its sums to the next in shared memory */
    int lanes;              /* columns of an access of the epilogue */
    int terms, threads;     /* of a block of terms; that load a row of it */
    int pitch;              /* elements from one row of a block of terms to the next: the rows of a fragment are in different banks */
    int64_t shared;         /* bytes */
} cu_ctile;
bool cu_contract_of(const nnc_kernel *k, cu_contract *x); /* false: the kernel is no such contraction */
/* Is id a load of rows? Those of the next block of terms are loaded while one block is multiplied. */
bool cu_contract_ahead(const nnc_kernel *k, const cu_contract *x, int32_t id);
bool cu_contract_tile(const nnc_kgrid *g, const cu_contract *x, cu_ctile *t); /* false: no such tile */
bool cu_contract_fits(const nnc_kernel *k, const nnc_target *t); /* is it such a contraction, and has the target the instructions? */
bool cu_contract_choose(nnc_kernel *k, const nnc_target *t); /* false: it does not fit */
bool cu_contract_derive(const nnc_kernel *k, nnc_kgrid *g);
/* Estimated nanoseconds of a kernel with this schedule; -1: it has another schedule. */
int64_t cu_contract_ns(const nnc_kernel *k, const nnc_target *t);
/* schedule_cuda.c: number of points of the outer axes, with vectors of `vec` along axis `axis` (-1: none); -1: too many. */
int64_t cu_points(const nnc_kernel *k, int axis, int vec);
bool cu_narrow(const nnc_kernel *k, int64_t units); /* do all offsets and counters fit in 32 bits, with `units` work items? */
/* attend.c: attention as one pass over blocks of keys: the kernel's axes and instructions, in the order of its five stages. */
typedef struct nnc_attend {
    int row;                     /* outer axis: rows of q and of the result */
    int key[5], depth, wide;     /* own axes: keys, in each stage; summed axis of the first product; columns of the second */
    int32_t q, k, v;             /* loads */
    int32_t from[3];             /* factors of the products: computed elementwise from q, k, v, or the loads themselves */
    int32_t dot, stored;         /* stage 0: the sum; the store of a score */
    int32_t max, sum, weight;    /* the row's maximum; the sum of the weights, exp(score - maximum) */
    int32_t score[2];            /* the score in stages 1 and 2, masked */
    int32_t prob, out, store;    /* weight / sum; the sum that is the result; its store */
} nnc_attend;
typedef struct nnc_alayout {
    int rows, keys;              /* of a block */
    int depth, wide;             /* extents, padded */
    int lanes, chunks;           /* a thread's columns of the result: `chunks` times `lanes` neighbours */
    int q, v, p;                 /* elements from one row to the next in shared memory: of q and k, v, probabilities */
    int64_t shared;              /* bytes */
} nnc_alayout;
/* A score is scale * sum + mask. */
typedef struct nnc_aform {
    double scale;
    int32_t mask; /* load, -1: none */
    bool causal;  /* row i attends to keys 0..i */
} nnc_aform;
bool nnc_attend_form(const nnc_kernel *k, const nnc_attend *a, nnc_aform *f); /* false: scores have another form */
/* NULL: cuDNN's runtime-compiled engines support it (tests/cudnn/attention.c checks that); otherwise the reason why not. The kernel then
 * has grid.spill and a workspace: row statistics, nnc_attend_stats bytes, which cuDNN writes, and the workspace of its engines. */
const char *nnc_attend_library(const nnc_kernel *k, const nnc_attend *a, const nnc_target *t);
int64_t nnc_attend_stats(const nnc_kernel *k);
enum { NNC_ATTEND_WORK = 1 << 20 };
bool nnc_attend_find(const nnc_kernel *k, nnc_attend *a); /* false: the kernel is not attention with f32 arithmetic */
int nnc_attend_lanes(const nnc_kernel *k, const nnc_attend *a);
void nnc_attend_layout(const nnc_kernel *k, const nnc_kgrid *g, const nnc_attend *a, nnc_alayout *l);
bool nnc_attend_schedule(nnc_kernel *k, const nnc_target *t); /* false: not attention, or it does not fit */
/* nnc_cuda_derive of attention. */
bool nnc_attend_derive(const nnc_kernel *k, nnc_kgrid *g, int64_t *points);
/* Estimated nanoseconds of a kernel with this schedule; -1: it has another schedule. */
int64_t nnc_attend_ns(const nnc_kernel *k, const nnc_target *t);

/* schedule_cuda.c: true when the access moves `vec` consecutive elements along axis a at once, where a is a multiple of vec. */
bool cu_vector(const nnc_kernel *k, const nnc_kins *in, int a, int vec);

/* Product of the extents of the stage's own axes, saturated at INT64_MAX. */
int64_t nnc_own_points(const nnc_kernel *k, const nnc_kstage *s);

#endif
