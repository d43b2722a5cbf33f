/* plugins/llvm/ahead.c -- weights ahead (kernel/ahead.c). Each step of the innermost loop prefetches the next bytes of the next work item's
 * weights. The steps of a work item prefetch all of them. The address is in memory from strip to strip. The last work item prefetches its
 * own weights, which are in the cache. */
#include "plugins/llvm/internal.h"

static V address(ll_mod *m, V from, V bytes)
{
    return LLVMBuildGEP2(m->b, m->i8, from, &bytes, 1, "");
}

void ll_ahead_begin(ll_emit *e, V unit, const V *index)
{
    ll_mod *m = e->m;
    nnc_kahead p;
    if (!nnc_sched_has(&e->k->sched, KD_prefetch) || nnc_kernel_ahead(e->k, &p))
        return;
    const nnc_kins *w = &e->k->ins[p.load];
    V more = LLVMBuildICmp(m->b, LLVMIntSLT, LLVMBuildNSWAdd(m->b, unit, ll_i64(m, 1), ""),
        LLVMGetParam(m->fn, 2), "");
    V at = LLVMBuildSelect(m->b, more, ll_offset(m, w->at.c + p.next), ll_offset(m, w->at.c), "");
    for (int a = 0; a < e->k->n_outer; a++)
        if (w->at.k[a] && nnc_kernel_blocks(e->k, a) > 1)
            at = LLVMBuildNSWAdd(
                m->b, at, LLVMBuildNSWMul(m->b, index[a], ll_offset(m, w->at.k[a]), ""), "");
    T t = ll_memory_type(m, e->k->buf[w->buf].dtype);
    e->ahead = e->ahead ? e->ahead : ll_stack(m, 8);
    e->ahead_step = nnc_ceildiv(p.bytes, p.steps);
    LLVMBuildStore(m->b, LLVMBuildGEP2(m->b, t, e->buf[w->buf], &at, 1, ""), e->ahead);
}

void ll_ahead_strip(ll_emit *e, int64_t steps, bool ends)
{
    ll_mod *m = e->m;
    if (!e->ahead)
        return;
    if (ends)
        LLVMBuildStore(
            m->b, address(m, e->ahead_from, ll_size(m, steps * e->ahead_step)), e->ahead);
    e->ahead_from = ends ? NULL : LLVMBuildLoad2(m->b, m->ptr, e->ahead, "");
}

void ll_ahead_step(ll_emit *e, V i)
{
    enum { LINE = 64 };
    ll_mod *m = e->m;
    V at = LLVMBuildNSWMul(m->b, i, ll_size(m, e->ahead_step), "");
    for (int64_t b = 0; b < e->ahead_step; b += LINE) {
        V p = address(m, address(m, e->ahead_from, at), ll_i64(m, b));
        V arg[4] = {p, LLVMConstInt(m->i32, 0, 0), LLVMConstInt(m->i32, 2, 0),
            LLVMConstInt(m->i32, 1, 0)}; /* into the next cache, data */
        ll_call(m, "llvm.prefetch", m->ptr, arg, 4);
    }
}
