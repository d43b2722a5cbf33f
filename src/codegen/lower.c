/* codegen/lower.c -- lowers a node to a kernel that can be emitted. Builds it without a schedule, simplifies its scalar body, then arranges
 * its loops for a target. */
#include "codegen/codegen.h"

#include <math.h>

/* Simplifies the body. Attention on a GPU computes exp of any difference, even if the scores' range would allow a shorter formula. */
static nnc_kernel *improved(const nnc_graph *g, const nnc_node *n, const nnc_target *t,
    nnc_math math, nnc_arena *a, nnc_sink *sink)
{
    nnc_attend x;
    nnc_kernel *k = nnc_kernel_build(g, n, a, sink);
    const bool attends = k && t && t->kind == NNC_T_cuda && nnc_attend_find(k, &x);
    if (!k || !nnc_kernel_improve(k, t, math, a))
        return NULL;
    if (attends && !nnc_attend_find(k, &x)) {
        k = nnc_kernel_build(g, n, a, sink);
        if (!k || !nnc_kernel_improve(k, t, MATH_exact, a))
            return NULL;
    }
    if (attends && nnc_attend_find(k, &x)) {
        nnc_kins *exp = &k->ins[x.weight], *less = &k->ins[exp->arg[0]];
        exp->hint &= KH_exact | KH_fast; /* a row without keys so far has -inf - .. */
        less->lo = -INFINITY;
        less->hi = INFINITY;
        less->maybe_nan = true;
        less->hint = 0;
    }
    return k;
}

nnc_kernel *nnc_lower(const nnc_graph *g, const nnc_node *n, const nnc_target *t, nnc_math math,
    nnc_arena *a, nnc_sink *sink)
{
    nnc_kernel *k = improved(g, n, t, math, a, sink);
    if (k && nnc_kernel_arrange(k, t, a) && nnc_kernel_name(k, n, a))
        return k;
    if (nnc_sink_cause(sink, NNC_OK) == NNC_OK)
        (void)nnc_nomem(sink);
    return NULL;
}
