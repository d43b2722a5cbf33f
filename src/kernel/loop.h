/* kernel/loop.h -- writes a kernel instruction by instruction, for ops that run in order along an axis (loop*.c). */
#ifndef NNC_LOOP_H
#define NNC_LOOP_H

#include "kernel/kernel.h"

typedef struct lp {
    const nnc_graph *g;
    const nnc_node *n;
    nnc_arena *a;
    nnc_kernel *k;
    int n_arg; /* number of argument buffers; up to LP_TMP tmp buffers follow */
    size_t cap_ins, cap_stage;
    bool oom;
} lp;

enum { LP_TMP = 4 };

/* An index map: a form for each dimension of a tensor. */
typedef struct lp_map {
    nnc_affine d[NNC_MAX_RANK];
} lp_map;

/* Adds an axis and returns it as a form; an outer axis of extent 1 is not added. */
nnc_affine lp_axis(lp *p, nnc_kaxis_kind kind, bool seq, int64_t extent);
/* Outer axes for the dimensions of t that are not in the set `except`. */
lp_map lp_outer(lp *p, const nnc_type *t, uint32_t except);
nnc_affine lp_plus(nnc_affine e, int64_t c);

/* Instructions; -1: out of memory. Operand i and result i are named by number. */
int32_t lp_const(lp *p, nnc_dtype d, double v);
int32_t lp_int(lp *p, nnc_dtype d, int64_t v);
int32_t lp_index(lp *p, const nnc_affine *axis); /* the position on an axis */
int32_t lp_sop(lp *p, nnc_sop op, int32_t a, int32_t b, int32_t c);
int32_t lp_cast(lp *p, int32_t x, nnc_dtype to); /* no instruction if x has the type */
int32_t lp_load(lp *p, int operand, const lp_map *at);
int32_t lp_load_result(lp *p, int result, const lp_map *at);
/* A tmp buffer, and its element `at`. */
int lp_tmp(lp *p, nnc_dtype d, int64_t numel);
int32_t lp_load_tmp(lp *p, int buf, nnc_affine at);
void lp_store_tmp(lp *p, int buf, nnc_affine at, int32_t x);
/* Adds a computed index to the last load or store: `scale` elements per unit, clamped below `limit`. */
void lp_at(lp *p, int32_t index, int64_t scale, int64_t limit);
/* An index as i64; negative indices of signed types count from the end. */
int32_t lp_whole(lp *p, int32_t index, int64_t extent);
/* Limits the last load or store to 0 <= e < n; elsewhere a load gives `fill`. */
void lp_guard(lp *p, const nnc_affine *e, int64_t n, int32_t fill);
void lp_store(lp *p, int result, const lp_map *at, int32_t x);
int32_t lp_reduce(lp *p, nnc_kred kind, bool running, int32_t x, int32_t mask);
/* Begins a stage with these own axes. Instructions up to lp_post are its body, then follows its post. */
void lp_stage(lp *p, uint32_t axes);
void lp_post(lp *p);

void lp_recurrent(lp *p); /* loop_recurrent.c */
void lp_recurrent_grad(lp *p);
void lp_best(lp *p); /* loop_best.c */

/* The kernel of node n, of class CL_loop, in `a`. NULL: out of memory (reported). */
nnc_kernel *nnc_loop_kernel(const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_sink *sink);

#endif
