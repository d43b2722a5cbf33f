/* passes/expect.c -- the time that a kernel is expected to take, asked before the graph is changed for it. */
#include "kernel/kernel.h"
#include "passes/internal.h"
#include "schedule/schedule.h"

int64_t expected_ns(
    pass *p, const uint32_t *nodes, int n, const nnc_ref *out, int n_out, int64_t *work)
{
    const nnc_target *t = target_of(p, &p->g->node[nodes[0]]);
    nnc_arena mem;
    const char *why = NULL;
    int64_t ns = 0;
    nnc_arena_init(&mem, 0);
    nnc_kernel *k = n == 1 && p->g->node[nodes[0]].op == OP_fused
                        ? nnc_kernel_build(p->g, &p->g->node[nodes[0]], &mem, p->sink)
                        : nnc_kernel_of(p->g, nodes, n, out, n_out, &mem, &why);
    if (k)
        ns = nnc_kernel_arrange(k, t, &mem) ? nnc_kernel_ns(k, t, work, &mem) : -1;
    if (ns < 0 || (!k && !why))
        pass_nomem(p);
    nnc_arena_deinit(&mem);
    return nnc_max64(ns, 0);
}

/* Time to pass `bytes` from one kernel to the next through memory beyond the threads' L2 caches. A part is hidden behind the sums. */
int64_t spill_ns(const nnc_target *t, int64_t bytes)
{
    const int64_t threads = nnc_max64(nnc_min64(t->threads, t->cores), 1);
    return bytes / threads > t->l2_bytes - t->l2_bytes / 4
               ? nnc_target_move_ns(t, bytes + bytes / 2, threads)
               : 0;
}
