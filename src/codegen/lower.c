/* codegen/lower.c -- lowers a node to a kernel that can be emitted: builds it without a schedule, simplifies its scalar body, sorts
 * its axes by memory order, then schedules it for a target. */
#include "codegen/codegen.h"

nnc_kernel *nnc_lower(const nnc_graph *g, const nnc_node *n, const nnc_target *t, nnc_math math,
    nnc_arena *a, nnc_sink *sink)
{
    nnc_kernel *k = nnc_kernel_build(g, n, a, sink);
    if (!k)
        return NULL;
    bool ok = nnc_kernel_improve(k, t, math, a), local = false;
    if (ok) {
        nnc_kernel_order_axes(k);
        nnc_kernel_merge_axes(k);
    }
    if (ok && !(t && t->kind == NNC_T_cuda))
        ok = nnc_kernel_local(k, nnc_target_local_bytes(t), a, &local);
    ok = ok && nnc_window_strips(k, t, a) && nnc_product_strips(k, t, a) &&
         nnc_kernel_schedule(k, t) && nnc_kernel_name(k, n, a);
    if (!ok)
        (void)nnc_nomem(sink);
    return ok ? k : NULL;
}
