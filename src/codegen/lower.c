/* codegen/lower.c -- lowers a node to a kernel that can be emitted: builds it without a schedule, simplifies its scalar body, then
 * arranges its loops for a target. */
#include "codegen/codegen.h"

nnc_kernel *nnc_lower(const nnc_graph *g, const nnc_node *n, const nnc_target *t, nnc_math math,
    nnc_arena *a, nnc_sink *sink)
{
    nnc_kernel *k = nnc_kernel_build(g, n, a, sink);
    if (!k)
        return NULL;
    if (nnc_kernel_improve(k, t, math, a) && nnc_kernel_arrange(k, t, a) &&
        nnc_kernel_name(k, n, a))
        return k;
    (void)nnc_nomem(sink);
    return NULL;
}
