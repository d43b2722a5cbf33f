/* kernel/lower.h -- the state of one lowering, shared by lower*.c. */
#ifndef NNC_LOWER_H
#define NNC_LOWER_H

#include "kernel/kernel.h"
#include "kernel/nest.h"

_Static_assert(NNC_NEST_AXES == NNC_KAXES, "a map of the nest is an affine form of the kernel");

/* An instruction under construction: arguments name instructions by their index in lw.ins;
 * `section` says where it goes. */
typedef struct lw_ins {
    nnc_kins k;
    int section;
    int32_t chain; /* next in the bucket of equal hashes */
} lw_ins;

typedef struct lw_stage {
    uint32_t axes;
    int level, space, ctx; /* of a reduction (ctx -1) or an output (level 0) */
} lw_stage;

/* A value kept from a reduce stage for an output stage, in a per-worker buffer. */
typedef struct lw_keep {
    int32_t producer, consumer; /* points */
    int32_t buf;
    nnc_affine at, store_at; /* by the consumer's axes, by the producer's */
} lw_keep;

typedef struct lw {
    nnc_sink *sink;
    nnc_arena *out;    /* the kernel's */
    nnc_arena scratch;
    nnc_graph *g;      /* primitives only */
    int n_node;
    uint32_t *node;    /* the nest's set */
    nnc_ref *operand;  /* distinct operands as values of g; NNC_NONE: a number, its buffer unused */
    const nnc_type *operand_type;
    nnc_type *result_type;
    nnc_ref *result;
    int n_operand, n_result;
    nnc_nest *nest;
    nnc_kernel *k;
    bool flat;         /* all axes are outer: one stage, one body */
    lw_stage stage[NNC_NEST_AXES + 96];
    int n_stage;
    int *row_section;  /* by level */
    int32_t *value;    /* by point: instruction, -1 = none yet */
    int32_t *row;      /* by reduction: instruction of its final value */
    lw_ins *ins;
    int n_ins;
    size_t cap_ins;
    int32_t bucket[256];
    lw_keep keep[8];
    int n_keep;
    bool oom;
} lw;

/* Section numbers: 2 s is stage s' body, 2 s + 1 its post. */

/* lower_graph.c: copies node n of g into l->g with named ops expanded. */
nnc_status lw_open_graph(lw *l, const nnc_graph *g, const nnc_node *n);
/* lower_emit.c: instructions. -1: out of memory. */
int32_t lw_add(lw *l, int section, const nnc_kins *in);
int32_t lw_const(lw *l, int section, nnc_dtype d, double v);
int32_t lw_const_int(lw *l, int section, nnc_dtype d, int64_t v);
int32_t lw_sop(lw *l, int section, nnc_sop op, nnc_dtype d, int32_t a, int32_t b, int32_t c);
int32_t lw_emit(lw *l, int section, int32_t point);
bool lw_emit_reduce(lw *l, int stage, int reduction);
bool lw_emit_store(lw *l, const nnc_nest_store *o);
int lw_section_of(const lw *l, int32_t point);
int lw_stage_of_ctx(const lw *l, int ctx);
nnc_affine lw_offset(const nnc_type *t, const nnc_nest_map *idx, int rank);
/* lower_keep.c: which expensive values are kept between stages. */
void lw_choose_kept(lw *l);

#endif
