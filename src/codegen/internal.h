/* codegen/internal.h -- what the files of codegen/ share; nobody else includes it. */
#ifndef NNC_CODEGEN_INTERNAL_H
#define NNC_CODEGEN_INTERNAL_H

#include "codegen/codegen.h"

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
/* Do both compute the same, from the same operands? What is known of their values is not looked at. */
bool nnc_kins_equal(const nnc_kins *a, const nnc_kins *b);
/* Least and greatest value over the axes' extents. */
nnc_span nnc_affine_span(const nnc_kernel *k, const nnc_affine *e);
/* The same for an access, given that its guards hold. */
nnc_span nnc_access_span(const nnc_kernel *k, const nnc_kins *in);

/* SSA type of what a buffer's element becomes when loaded. */
static inline nnc_dtype nnc_kdtype(nnc_dtype d) { return d == DT_f16 || d == DT_bf16 ? DT_f32 : d; }

/* The greatest or least value of an integer type, as its bits are kept (u64: int64_t of the same bits): what a minimum or a maximum
 * starts from. */
int64_t nnc_int_end(nnc_dtype d, bool top);

extern const char *const nnc_kred_names[6];
extern const char *const nnc_kaxis_names[3];
#define NNC_KHINTS 6
extern const char *const nnc_khint_names[NNC_KHINTS]; /* by bit */

/* Print with the kernel's and buffers' own names, or without (what the hash reads). */
void nnc_kernel_print_as(nnc_text *t, const nnc_kernel *k, bool names);

/* Digits of an outer axis that is not the vector axis: its extent, or its blocks. */
int64_t nnc_kernel_blocks(const nnc_kernel *k, int axis);
/* Domain arithmetic shared by schedule, verify and the interpreter. */
int64_t nnc_kernel_domain(const nnc_kernel *k); /* units that the schedule's vec_axis and chunk make */
int64_t nnc_kernel_scratch(const nnc_kernel *k);
/* strip.c. Axis a (outer) in strips of n, 2..NNC_STRIP; reduce axis r written out: it stays, with extent 1. Nothing changes where
 * guards or instructions would become too many. No stage may have map axes; r is reduced without masks, and to no places. New
 * memory is in `mem`. False: out of memory. */
#define NNC_STRIP 8
bool nnc_kernel_strip(nnc_kernel *k, int a, int n, nnc_arena *mem);
bool nnc_kernel_unroll(nnc_kernel *k, int r, nnc_arena *mem);
/* schedule_window.c. Is it made of windows that a thread should compute alone, rather than rows or columns that threads share? And
 * the strips that such a kernel should have on target t, before nnc_kernel_schedule. False: out of memory. */
bool nnc_window_kernel(const nnc_kernel *k);
bool nnc_window_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem);
/* schedule_cuda.c: the outer axis that counts fastest, elements of an access along it, threads that the target holds. */
int nnc_cuda_fast_axis(const nnc_kernel *k);
int nnc_cuda_vec(const nnc_kernel *k, int axis);
int64_t nnc_cuda_resident(const nnc_target *t);
/* schedule_cuda.c. Choices for target t (false: out of memory); and what follows from choices: fills blocks, finish, shared, work,
 * index of *g. False: the kernel cannot run so, or g->oom. */
bool nnc_cuda_schedule(nnc_kernel *k, const nnc_target *t);
bool nnc_cuda_derive(const nnc_kernel *k, nnc_kgrid *g);
nnc_kschedule nnc_cuda_sched(const nnc_kernel *k); /* what stands in k->sched of a GPU's kernel: for the interpreter */
extern const char *const nnc_kclass_names[5];
/* place.c: nnc_kernel_in_place, by buffer. */
bool nnc_kernel_may_overlay(const nnc_kernel *k, int in, int out);
/* Of a kernel that transposes: the outer axis along which most is loaded while its stores lie along axis v (-1: there is none), and how
 * many elements. -1: none, or too short for squares. */
int nnc_across_axis(const nnc_kernel *k, int v, int64_t *elements);
/* Which axis a stage runs in vectors: the outer vec_axis, its own last axis, or -1. */
int nnc_stage_vec(const nnc_kernel *k, const nnc_kstage *s);

#endif
