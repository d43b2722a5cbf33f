/* kernel/link.h -- the state of a kernel being arranged into stages (link.c), and values stored for later stages (reuse.c). */
#ifndef NNC_LINK_H
#define NNC_LINK_H

#include "kernel/trace.h"

/* An instruction in its section; arguments refer to others by their index in nl.item. Section 2 s is the body of stage s, 2 s + 1 its
 * post. */
typedef struct nl_item {
    nnc_kins k;
    int section;
    int32_t chain; /* next in the bucket of equal hashes */
} nl_item;

typedef struct nl_stage {
    uint32_t axes;
    int level, space, ctx; /* for a reduction (ctx -1) or an output (level 0) */
} nl_stage;

/* A value that an earlier stage stores in a tmp buffer and a later one loads. */
typedef struct nl_reuse {
    int32_t producer, consumer; /* instructions of the trace */
    int32_t buf;
    bool stored;                /* an earlier nl_reuse of the same producer stores it */
    nnc_affine at, store_at;    /* in the consumer's axes; in the producer's */
} nl_reuse;

/* A result whose elements a reduction computes anyway: it is stored there, not in a stage of its own. */
typedef struct nl_early {
    int32_t producer, store; /* instructions of the trace */
    nnc_affine at;           /* in the producer's axes */
    bool placed;
} nl_early;

typedef struct nl {
    const nx *t;
    nnc_kernel *k;
    nnc_arena *scratch, *out;
    bool flat;        /* all axes are outer: one stage, one body */
    nl_stage stage[NNC_KAXES + NX_CTX];
    int n_stage;
    int *row_section; /* by level */
    int32_t *placed;  /* by instruction of the trace: item, -1 = not placed */
    nl_item *item;
    int n_item;
    size_t cap_item;
    int32_t bucket[256];
    nl_reuse reuse[NX_REUSED];
    int n_reuse;
    nl_early early[NX_REUSED];
    int n_early;
    bool leaves;      /* a load may leave its buffer */
    bool oom;
} nl;

/* axes.c: gives outer axes the first numbers, otherwise keeps the order; removes axes without a stage. */
void nnc_kernel_outer_first(nnc_kernel *k);
/* link.c: the stage of the instructions of a context; -1: they depend on outer axes only. */
int nl_stage_of(const nl *l, int ctx);
/* reuse.c: chooses results that reductions store; then values to be stored for later stages, and adds their buffers. */
void nl_choose_early(nl *l);
void nl_choose_reused(nl *l);

#endif
