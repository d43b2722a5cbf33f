/* schedule/schedule.h -- how a kernel's loops run on a machine: analytic choices, the values derived from them, and their
 * verification. The schedule itself is part of the kernel's type (kernel/kernel.h). */
#ifndef NNC_SCHEDULE_H
#define NNC_SCHEDULE_H

#include "kernel/kernel.h"

/* From the kernel as built to one that can be emitted: sorts its axes by memory order, merges those that can be one, stores what windows
 * read, writes strips out, and schedules it. New memory is in `a`. False: out of memory. */
bool nnc_kernel_arrange(nnc_kernel *k, const nnc_target *t, nnc_arena *a);
/* Fills k->sched (CPU) or k->grid (GPU) by analytic rules from the target. False: out of memory. */
bool nnc_kernel_schedule(nnc_kernel *k, const nnc_target *t);
/* Verifies the kernel (nnc_kernel_verify) and its schedule. */
nnc_status nnc_schedule_verify(const nnc_kernel *k, nnc_sink *sink) NNC_MUST;
/* estimate.c: nanoseconds that a scheduled kernel is expected to take on CPU t with its threads, machine code (`compiled`) or interpreted;
 * -1: out of memory, of `mem`; *work (may be NULL): on one of them. For comparing ways to compute the same: half of the errors are below
 * 20 %. */
int64_t nnc_kernel_ns(const nnc_kernel *k, const nnc_target *t, bool compiled, int64_t *work, nnc_arena *mem);
/* estimate_cuda.c: the same of a kernel scheduled for GPU t, for comparing kernels with reductions; -1: out of memory. */
int64_t nnc_cuda_kernel_ns(const nnc_kernel *k, const nnc_target *t);
/* estimate_interp.c: picoseconds that the interpreter is expected to take for a kernel on one thread; dep: by instruction, the axes that
 * its value depends on; ring: by buffer (nnc_kernel_rings). */
int64_t nnc_interpreted_ps(const nnc_kernel *k, const uint32_t *dep, const nnc_kring *ring);
/* What of it is the start of a kernel, on one thread; of any target. */
int64_t nnc_kernel_launch_ns(const nnc_target *t);
/* Parses a kernel with its schedule and verifies both (nnc_schedule_verify), so that a kernel from a file may be executed. */
nnc_kernel *nnc_schedule_parse(nnc_scan *s, nnc_arena *a, nnc_sink *sink);

/* schedule.c: nanoseconds of the stages' posts for one element, vectorised, on one core; the fewest work items of `ns` each, of `domain`,
 * that another thread pays for. */
double nnc_posts_ns(const nnc_kernel *k);
double nnc_value_ns(const nnc_kernel *k, int32_t id); /* the same of value id and what it is computed from */
int64_t nnc_grain(const nnc_target *t, double ns, int64_t domain);
/* contract.c: the schedule of a contraction on a CPU, *done when the kernel is one. False: out of memory. */
bool nnc_contract_schedule(nnc_kernel *k, const nnc_target *t, bool *done);
/* contract.c: a product that is part of a kernel, whose rows lie along outer axis u: its vectors and panels, the neighbours *n of a strip
 * along u, and what it takes on one thread. False: it is none in strips along u. */
bool nnc_contract_part(nnc_kernel *k, const nnc_target *t, int u, int *n, double *ns);
/* contract.c: a multiple of n points of an axis, of at most about `tile`, so that each thread has as many, of `panels` panels each. */
int64_t nnc_even_tile(int64_t extent, int64_t tile, int64_t n, int64_t panels, const nnc_target *t);
/* parts.c: the schedule of a kernel in parts on a CPU, *done when it is one. False: out of memory. */
bool nnc_parts_schedule(nnc_kernel *k, const nnc_target *t, nnc_arena *a, bool *done);
/* schedule.c: nanoseconds of all points, vectorised, on one core. */
double nnc_points_ns(const nnc_kernel *k);
/* contract.c: the strips that a product should have whose weights lie along the sum, before nnc_kernel_schedule. False: out of memory. */
bool nnc_product_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* contract.c: a recurrence reads its weights at each step: once for several rows of the batch (a strip), as many as leave a strip for each
 * thread. Number of these, of `rows`, with `sums` sums for each element of the state; and number of vectors of elements that have the
 * sums of a strip in registers. */
int nnc_recurrent_rows(int64_t rows, int sums, const nnc_target *t);
int nnc_recurrent_vectors(int sums, const nnc_target *t);
/* Writes out the strips of a kernel that is a recurrence (false: out of memory). Vectors along its own axis v; 0: it is none. */
bool nnc_ordered_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
int nnc_ordered_vectors(const nnc_kernel *k, int v, const nnc_target *t);
/* strip.c. Axis a (outer) in strips of n, 2..NNC_STRIP, of neighbours, or spread over the axis (n divides it; no indices of a, no
 * guards); reduce axis r written out: it stays, with extent 1. Nothing changes where
 * guards or instructions would become too many. Stages with map axes store to results alone, or the points are rows at once
 * (nnc_kernel_rows), each of which has tmp buffers of its own; r is reduced without masks, and to no
 * places. New memory is in `mem`. False: out of memory. */
#define NNC_STRIP 16
bool nnc_kernel_strip(nnc_kernel *k, int a, int n, nnc_arena *mem);
bool nnc_kernel_spread(nnc_kernel *k, int a, int n, nnc_arena *mem);
bool nnc_kernel_unroll(nnc_kernel *k, int r, nnc_arena *mem);
/* Axis a in strips of n whose windows along reduce axis r of the only stage slide: r counts what they read together, n - 1 more. */
bool nnc_kernel_slide(nnc_kernel *k, int a, int r, int n, nnc_arena *mem);
/* Divides axis a, which nothing asks for its index: a counts blocks of n, and the new own axis `at` > a of this kind what is in one. The
 * last block may reach beyond the extent: callers guard it then. There are fewer axes than NNC_KAXES. */
bool nnc_kernel_divide(nnc_kernel *k, int a, int at, nnc_kaxis_kind kind, int64_t n, nnc_arena *mem);
/* schedule_window.c. True for kernels of windows that one thread should compute, instead of rows or columns that threads share.
 * nnc_window_strips chooses and applies the grouping for target t; called before nnc_kernel_schedule. False: out of memory. */
bool nnc_window_kernel(const nnc_kernel *k);
bool nnc_window_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* Elements of an access of a kernel of windows, at most `vec`: so many that its sums stay in registers. */
int nnc_window_vec(const nnc_kernel *k, int vec);
/* Registers that leave an SM two blocks of windows over blocks of results; 0: the compiler's choice. */
int nnc_window_registers(const nnc_kernel *k);
/* How much longer the busiest SM takes than the average of so many threads: its blocks are whole. */
double nnc_window_rounded(const nnc_target *t, int64_t threads, int block);
/* walk.c: windows of which a thread computes several rows, one after the other. */
typedef struct nnc_walk {
    int map, taps;            /* own axes: rows of results, rows of the window */
    int sources, guarded;     /* loads of the source, and those of them that rows beyond the edge are not read by */
    const nnc_kguard *row;    /* their guard, or NULL: there are no such rows */
    int64_t rows;             /* most rows of the source that a walk reads */
} nnc_walk;
bool nnc_walk_of(const nnc_kernel *k, nnc_walk *w); /* false: the kernel is another one */
/* Registers of a thread for which its values have room. */
int nnc_walk_registers(const nnc_kernel *k, const nnc_walk *w);
/* The outer axis of rows and the reduce axis that moves along with it, beside axes a and r of a row and `fast`. False: there are none. */
bool nnc_walk_rows(const nnc_kernel *k, int fast, int a, int r, int rows[2]);
/* Rewrites k as walks along the second pair of axes (outer, reduce), in strips along the first, where these take fewer than `most`
 * instructions for a result: *done. False: out of memory. */
bool nnc_window_walk(nnc_kernel *k, const nnc_target *t, const int pair[2][2], double most, bool *done, nnc_arena *mem);
void nnc_walk_choose(nnc_kernel *k, const nnc_walk *w); /* the grid's choices */
/* taps.c: gradients of depthwise weights: a thread sums all elements of a window, over places in blocks. False: out of memory. */
bool nnc_tap_strips(nnc_kernel *k, const nnc_target *target, nnc_arena *mem);
/* schedule_pixels.c. Arranges GPU kernels that store all of few channels of each pixel. False: out of memory. */
bool nnc_pixel_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* The first of the *n stores to one buffer that together store consecutive elements for `vec` steps along axis a: store id is one of
 * them. -1: it is not. */
int32_t cu_store_run(const nnc_kernel *k, int32_t id, int a, int vec, int *n);
/* schedule_cuda.c: the outer axis that varies fastest, elements of an access along it, resident threads of the target. */
int nnc_cuda_fast_axis(const nnc_kernel *k);
int nnc_cuda_vec(const nnc_kernel *k, int axis);
int64_t nnc_cuda_resident(const nnc_target *t);
/* schedule_cuda.c. Choices for target t (false: out of memory); and derived values: blocks, finish, shared, work, index of *g. False:
 * the kernel cannot run with these choices, or g->oom. */
bool nnc_cuda_schedule(nnc_kernel *k, const nnc_target *t);
bool nnc_cuda_derive(const nnc_kernel *k, nnc_kgrid *g);

/* cuda_rows.c: distribution of a point over a group of threads. */
typedef struct cu_spread {
    uint32_t spread;      /* own axes, which are distributed over the threads */
    int vec;              /* elements of an access along the last of them */
    int64_t units, trips; /* vectors of these axes; maximum per thread */
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
    int64_t slot_bytes;      /* of one array: an element of the held value is a vector of a thread, threads side by side */
} cu_rows;
bool cu_rows_mixed(const nnc_kernel *k); /* a stage with map and reduce axes, or axes in order, which no row distributes */
bool cu_rows_plan(cu_rows *r, const nnc_kernel *k, const nnc_kgrid *g); /* false: out of memory */
void cu_rows_deinit(cu_rows *r);

int cu_split_stage(const nnc_kernel *k); /* the stage whose sums may be split over blocks, or -1 */

/* Product of the outer axes' extents; the last of a set of axes (-1: none). */
int64_t cu_all_points(const nnc_kernel *k);
static inline int cu_last_axis(uint32_t axes) { return axes ? 31 - __builtin_clz(axes) : -1; }
/* Offset in `work` of the partial results of reduction id, indexed [slice][point]; id = k->n_ins: total size. */
int64_t cu_part_at(const nnc_kernel *k, int split, int32_t id);
/* Threads per point in the second launch: one, or with many partial results the warps of a block, each thread of a warp with another
 * of 32 points. */
int cu_finish_group(const nnc_kernel *k, const nnc_kgrid *g);
/* Shared memory of the reductions' partial results per thread and lane of a column. */
int64_t cu_part_bytes(const nnc_kernel *k);
int64_t cu_work(const nnc_kernel *k, const nnc_kgrid *g); /* bytes of a split kernel's partial results; -1: too many */
int64_t cu_tile_bytes(const nnc_kernel *k, const nnc_kgrid *g); /* of static shared memory */

/* cuda_steps.c: recurrences, of class `steps`. A stage's own axes whose points run in order, are computed at once, and are summed;
 * numbers of elements of a step and of terms of a sum. False: the stage is no step. */
typedef struct cu_step {
    uint32_t order, maps, sums;
    int64_t elements, terms;
} cu_step;
bool cu_step_of(const nnc_kernel *k, const nnc_kstage *s, cu_step *to);
/* Of `flight` terms a thread loads all that they need before it uses any. Is load id one of them; CU_STEP_WIDE terms of it at once; or
 * what another of these loads instead, where its guards do not hold, and only that? axis: the last of the terms'. */
enum { CU_STEP_WIDE = 4 };
bool cu_step_holds(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id);
bool cu_step_wide(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id);
bool cu_step_fills(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id);
bool cu_steps_choose(nnc_kernel *k, const nnc_target *t); /* false: no recurrence */
bool cu_steps_derive(const nnc_kernel *k, nnc_kgrid *g);
/* The time of a scheduled recurrence without its launch: its steps, one after the other. */
int64_t cu_steps_ns(const nnc_kernel *k, const nnc_target *t);
int64_t cu_cost(const nnc_kins *in); /* of an instruction, in multiply-adds */
/* Offset in shared memory of the parts of reduction id; id = k->n_ins: bytes of all. */
int64_t cu_step_part(const nnc_kernel *k, const nnc_kgrid *g, int32_t id);

/* cuda_scatter.c: y = x in the first stage, updates of y at computed places in the second, of class `scatter`. False: it is another
 * kernel. */
typedef struct cu_scatter {
    int axis;               /* of y's rows, in the first stage */
    int64_t rows, unit;     /* their number; elements from one to the next */
    int64_t updates;
    int32_t copied, store;  /* the stores of both stages */
    bool shared;            /* all points have the same places */
    nnc_kset cone;          /* what the place is computed from */
} cu_scatter;
bool cu_scatter_of(const nnc_kernel *k, cu_scatter *s);
bool cu_scatter_sums(nnc_kernel *k, nnc_arena *a); /* few rows: makes it a reduction. False: out of memory */
bool cu_scatter_choose(nnc_kernel *k, const nnc_target *t); /* false: it is another kernel */
bool cu_scatter_derive(const nnc_kernel *k, nnc_kgrid *g);
int64_t cu_scatter_rows(const cu_scatter *s, const nnc_kgrid *g); /* rows of a part */

enum { CU_SHARED = 227 << 10 }; /* bytes of shared memory that a block may have */
/* schedule_cuda.c: points of the outer axes, where axis `axis` (-1: none) has vectors of vec; -1: too many. True when all offsets and
 * counters fit in 32 bits, of that many work items. */
int64_t cu_points(const nnc_kernel *k, int axis, int vec);
bool cu_narrow(const nnc_kernel *k, int64_t units);
/* attend.c: attention as one pass over blocks of keys. Its axes (key: in each stage) and instructions, in the order of the stages. */
typedef struct nnc_attend {
    int row;                     /* outer axis: rows of q and of the result */
    int key[5], depth, wide;     /* own axes: keys; sum of the first product; columns of the second */
    int32_t q, k, v;             /* loads */
    int32_t from[3];             /* the factors that are computed from them, elementwise, or the loads themselves */
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
/* What scores are: scale * sum + mask. */
typedef struct nnc_aform {
    double scale;
    int32_t mask; /* load, -1: none */
    bool causal;  /* rows see keys up to their own number */
} nnc_aform;
bool nnc_attend_form(const nnc_kernel *k, const nnc_attend *a, nnc_aform *f); /* false: they are something else */
/* NULL: cuDNN's runtime-compiled engines compute it (tests/cudnn/attention.c asks them); otherwise why not. Its kernel then has
 * grid.spill and a workspace: statistics of rows, nnc_attend_stats bytes, which cuDNN writes, and as much as its engines need. */
const char *nnc_attend_library(const nnc_kernel *k, const nnc_attend *a, const nnc_target *t);
int64_t nnc_attend_stats(const nnc_kernel *k);
enum { NNC_ATTEND_WORK = 1 << 20 };
bool nnc_attend_find(const nnc_kernel *k, nnc_attend *a); /* false: the kernel is not attention in f32 arithmetic */
int nnc_attend_lanes(const nnc_kernel *k, const nnc_attend *a);
void nnc_attend_layout(const nnc_kernel *k, const nnc_kgrid *g, const nnc_attend *a, nnc_alayout *l);
bool nnc_attend_schedule(nnc_kernel *k, const nnc_target *t); /* false: not attention, or it does not fit */
/* Derived values of *g, as nnc_cuda_derive. */
bool nnc_attend_derive(const nnc_kernel *k, nnc_kgrid *g, int64_t *points);
/* Nanoseconds that a kernel of this schedule is expected to take; -1: it has another one. */
int64_t nnc_attend_ns(const nnc_kernel *k, const nnc_target *t);

/* schedule_cuda.c: true when the access moves `vec` consecutive elements along axis a at once, where a is a multiple of vec. */
bool cu_vector(const nnc_kernel *k, const nnc_kins *in, int a, int vec);

/* Points of the stage's own axes for each point of the outer ones; INT64_MAX: more. */
int64_t nnc_own_points(const nnc_kernel *k, const nnc_kstage *s);

#endif
