/* plugins/llvm/panel.c -- panels (kernel/panel.c): a kernel with the directive becomes two, one that reads the panel and one that fills it
 * before the first unit of each block. */
#include "plugins/llvm/internal.h"

struct ll_panel {
    nnc_kpanel at;
    ll_emit fill;
    nnc_kernel filled, sums;
    nnc_kring *none; /* its rings */
    int64_t units; /* of a block, one after the other */
};

/* Units that follow each other and read the same panel: the product of the fastest digits that the panel does not depend on. */
static int64_t units_of(const nnc_kernel *k, const nnc_kpanel *p)
{
    int digit[NNC_KAXES], n = nnc_kernel_digits(k, digit);
    int64_t units = 1;
    while (n-- > 0 && (!(p->axes >> digit[n] & 1) || nnc_kernel_blocks(k, digit[n]) == 1))
        units *= nnc_kernel_blocks(k, digit[n]);
    return units;
}

bool ll_panel_open(ll_emit *e, nnc_arena *a)
{
    if (!nnc_sched_has(&e->k->sched, KD_panel))
        return true;
    struct ll_panel *p = e->panel = ARENA_NEW(a, struct ll_panel, 1);
    if (!p || nnc_kernel_panel(e->k, &p->at) ||
        !nnc_kernel_panel_split(e->k, &p->at, a, &p->filled, &p->sums))
        return false;
    p->units = units_of(e->k, &p->at);
    p->fill = *e;
    p->fill.panel = NULL;
    p->fill.k = &p->filled;
    e->k = &p->sums;
    bool ok = nnc_kernel_rings(&p->filled, a, &p->none) && ll_open(&p->fill, a);
    p->fill.ring = p->none;
    return ok;
}

void ll_panel_fill(ll_emit *e, V unit, const V *index)
{
    ll_mod *m = e->m;
    struct ll_panel *p = e->panel;
    const nnc_kernel *k = e->k;
    int panel = k->n_buf - 1;
    V at = ll_i64(m, 0), scratch = LLVMGetParam(m->fn, 3);
    for (int a = 0; a < k->n_outer; a++) {
        int64_t step = p->at.stride[a] * nnc_sched_n(&k->sched, KD_tile, a);
        if (step && nnc_kernel_blocks(k, a) > 1)
            at = LLVMBuildNSWSub(
                m->b, at, LLVMBuildNSWMul(m->b, index[a], ll_size(m, step), ""), "");
    }
    e->buf[panel] =
        LLVMBuildGEP2(m->b, ll_memory_type(m, k->buf[panel].dtype), scratch, &at, 1, "");
    LLVMBasicBlockRef next = NULL;
    if (p->units > 1) {
        V first = LLVMBuildICmp(m->b, LLVMIntEQ, unit, LLVMGetParam(m->fn, 1), "");
        V u = unit, place = ll_digit(m, &u, p->units);
        V begins = LLVMBuildICmp(m->b, LLVMIntEQ, place, ll_i64(m, 0), "");
        next = ll_branch(m, LLVMBuildOr(m->b, first, begins, ""), "fill");
    }
    p->fill.args = e->args;
    p->fill.narrow = e->narrow;
    ll_tiles_run(&p->fill, index);
    p->fill.vax = -1;
    p->fill.lanes = 0;
    ll_join(m, next);
}
