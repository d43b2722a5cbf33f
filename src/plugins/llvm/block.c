/* plugins/llvm/block.c -- register blocks. A kernel with `unroll a n` becomes two kernels that are emitted one after the other: of the
 * axis' whole strips of n neighbours, each strip one point with n accumulators (schedule/strip.c), and of the points that are left, one
 * strip as well. So the code of whole strips asks for no ends. */
#include "plugins/llvm/internal.h"

#include <string.h>

/* Points from .. from + n - 1 of outer axis a, as strips of `strip`; NULL: out of memory. */
static nnc_kernel *cut(
    const nnc_kernel *k, int a, int64_t from, int64_t n, int strip, nnc_arena *mem)
{
    nnc_kernel *c = ARENA_NEW(mem, nnc_kernel, 1);
    nnc_kins *ins = nnc_arena_memdup(mem, k->ins, sizeof *ins * (size_t)k->n_ins);
    if (!c || !ins)
        return NULL;
    *c = *k;
    c->ins = ins;
    c->axis[a].extent = n;
    for (int i = 0; i < k->n_ins; i++) {
        ins[i].at.c += ins[i].at.k[a] * from;
        if (ins[i].n_guard == 0)
            continue;
        size_t bytes = sizeof *ins[i].guard * ins[i].n_guard;
        if (!(ins[i].guard = nnc_arena_memdup(mem, ins[i].guard, bytes)))
            return NULL;
        for (int g = 0; g < ins[i].n_guard; g++)
            ins[i].guard[g].e.c += ins[i].guard[g].e.k[a] * from;
    }
    return strip > 1 && !nnc_kernel_strip(c, a, strip, mem) ? NULL : c;
}

bool ll_block_open(ll_emit *e, nnc_arena *mem)
{
    const nnc_kernel *k = e->k;
    int a = nnc_sched_axis(&k->sched, KD_unroll);
    if (a < 0)
        return true;
    int64_t n = nnc_sched_n(&k->sched, KD_unroll, a), full = k->axis[a].extent / n;
    int64_t from[2] = {0, full * n}, count[2] = {full * n, k->axis[a].extent - full * n};
    for (int p = 0; p < 2; p++) {
        if (count[p] == 0)
            continue;
        nnc_kernel *c = cut(k, a, from[p], count[p], (int)(p ? count[p] : n), mem);
        ll_emit *part = ARENA_NEW(mem, ll_emit, 1);
        if (!c || !part)
            return false;
        if (c->axis[a].extent !=
            (p ? 1 : full)) { /* too long for strips: point by point, without */
            e->part[0] = NULL;
            return true;
        }
        *part = *e;
        part->part[0] = NULL;
        part->k = c;
        e->part[p] = part;
        if (!ll_open(part, mem))
            return false;
    }
    return true;
}

static void run_part(ll_emit *e, int p, int a, V strip, const V *index)
{
    ll_emit *part = e->part[p];
    memcpy(part->axis, e->axis, sizeof e->axis);
    memset(part->sum, 0, sizeof part->sum);
    part->axis[a] = strip;
    part->args = e->args;
    part->stream = e->stream;
    part->narrow = e->narrow;
    ll_vectors(part, index);
    e->oom |= part->oom;
}

/* Code that runs where `yes`: positioned in it; returns the block behind it. */
static LLVMBasicBlockRef where(ll_mod *m, V yes)
{
    LLVMBasicBlockRef body = ll_block(m, "rest"), next = ll_block(m, "");
    LLVMBuildCondBr(m->b, yes, body, next);
    LLVMPositionBuilderAtEnd(m->b, body);
    return next;
}

static void leave(ll_mod *m, LLVMBasicBlockRef next)
{
    LLVMBuildBr(m->b, next);
    LLVMPositionBuilderAtEnd(m->b, next);
}

void ll_block_run(ll_emit *e, const V *index)
{
    ll_mod *m = e->m;
    const nnc_kschedule *s = &e->k->sched;
    int a = nnc_sched_axis(s, KD_unroll);
    int64_t n = nnc_sched_n(s, KD_unroll, a), full = e->k->axis[a].extent / n;
    int64_t tile = nnc_sched_n(s, KD_tile, a) / n, blocks = nnc_kernel_blocks(e->k, a);
    LLVMBasicBlockRef next = NULL;
    if (e->part[0]) {
        V from = LLVMBuildNSWMul(m->b, index[a], ll_i64(m, tile), "");
        V to[2] = {LLVMBuildNSWAdd(m->b, from, ll_i64(m, tile), ""), ll_i64(m, full)};
        to[0] = full % tile ? ll_call(m, "llvm.smin", m->i64, to, 2) : to[0];
        if (full <= (blocks - 1) * tile) /* the last block may have no whole strip */
            next = where(m, LLVMBuildICmp(m->b, LLVMIntSLT, from, ll_i64(m, full), ""));
        ll_loop l;
        ll_loop_begin(m, &l, from, to[0], ll_i64(m, 1), NULL, NULL, 0);
        run_part(e, 0, a, l.i, index);
        ll_loop_end(m, &l);
        if (next)
            leave(m, next);
    }
    if (!e->part[1])
        return;
    next = where(m, LLVMBuildICmp(m->b, LLVMIntEQ, index[a], ll_i64(m, blocks - 1), ""));
    run_part(e, 1, a, ll_i64(m, 0), index);
    leave(m, next);
}
