/* plugins/llvm/parts.c -- kernels in parts (kernel/parts.c): a function for each part, and one that calls them for each unit. Rows that
 * parts share are in the worker's memory. To the parts they are arguments, which begin so many blocks before it that a block's rows lie
 * at its start. */
#include "plugins/llvm/internal.h"

#include <stdio.h>

typedef struct ll_rows { /* a tmp buffer that parts share */
    int64_t at, bytes; /* from the worker's memory, and of a block */
    int64_t block; /* from one block to the next, were each in memory; 0: not shared */
} rows;

static V bytes_from(ll_mod *m, V base, V bytes)
{
    return LLVMBuildGEP2(m->b, m->i8, base, &bytes, 1, "");
}

/* The arguments of a part, those of the kernel in `given`. Returns their array; shared rows are not in it yet. */
static V pass_arguments(ll_mod *m, const nnc_kernel *k, const nnc_kpart *p, const rows *row)
{
    V size = ll_i64(m, p->k.n_buf), args = LLVMBuildArrayAlloca(m->b, m->ptr, size, "");
    int64_t to = 0;
    for (int b = 0; b < p->k.n_buf; b++) {
        if (p->k.buf[b].role == KB_tmp)
            continue;
        V at = ll_i64(m, to++), from = ll_i64(m, 0);
        if (row[p->buf[b]].block)
            continue;
        int64_t i = 0;
        for (int c = 0; c < p->buf[b]; c++)
            i += k->buf[c].role != KB_tmp;
        from = ll_i64(m, i);
        V x = LLVMBuildLoad2(
            m->b, m->ptr, LLVMBuildGEP2(m->b, m->ptr, LLVMGetParam(m->fn, 0), &from, 1, ""), "");
        LLVMBuildStore(m->b, x, LLVMBuildGEP2(m->b, m->ptr, args, &at, 1, ""));
    }
    return args;
}

/* Calls a part for a unit whose number along the tiled axis is `block`. */
static void call_part(ll_mod *m, const nnc_kernel *k, const nnc_kpart *p, const rows *row, V fn,
    V args, V unit, V block)
{
    int64_t to = 0, end = 0, units = p->k.sched.domain / k->sched.domain;
    for (int b = 0; b < k->n_buf; b++)
        end = row[b].block ? row[b].at + row[b].bytes : end;
    for (int b = 0; b < p->k.n_buf; b++) {
        const rows *r = &row[p->buf[b]];
        if (p->k.buf[b].role == KB_tmp)
            continue;
        V at = ll_i64(m, to++);
        if (!r->block)
            continue;
        V back = LLVMBuildNSWMul(m->b, block, ll_offset(m, -r->block), "");
        V x = bytes_from(
            m, LLVMGetParam(m->fn, 3), LLVMBuildNSWAdd(m->b, back, ll_size(m, r->at), ""));
        LLVMBuildStore(m->b, x, LLVMBuildGEP2(m->b, m->ptr, args, &at, 1, ""));
    }
    V from = LLVMBuildNSWMul(m->b, unit, ll_size(m, units), "");
    V arg[4] = {args, from, LLVMBuildNSWAdd(m->b, from, ll_size(m, units), ""),
        bytes_from(m, LLVMGetParam(m->fn, 3), ll_size(m, end))};
    LLVMBuildCall2(m->b, LLVMGlobalGetValueType(fn), fn, arg, 4, "");
}

char *ll_part_name(char name[LL_PART_NAME], int i)
{
    snprintf(name, LL_PART_NAME, "part%d", i);
    return name;
}

void ll_parts_call(ll_mod *m, const nnc_kernel *k, const ll_parts *p, const V *fn)
{
    V args[NNC_KPARTS];
    char name[LL_PART_NAME];
    int digit[NNC_KAXES], tiled = nnc_parts_tiled(k);
    ll_declare(m, k);
    LLVMPositionBuilderAtEnd(m->b, ll_block(m, "entry"));
    for (int i = 0; i < p->n; i++)
        args[i] = pass_arguments(m, k, &p->part[i], p->row);
    ll_return_unless_units(m);
    ll_loop l;
    ll_loop_begin(
        m, &l, LLVMGetParam(m->fn, 1), LLVMGetParam(m->fn, 2), ll_i64(m, 1), NULL, NULL, 0);
    V u = l.i, block = ll_i64(m, 0);
    for (int i = nnc_kernel_digits(k, digit); i-- > 0;) {
        V d = ll_digit(m, &u, nnc_kernel_blocks(k, digit[i]));
        block = digit[i] == tiled ? d : block;
    }
    for (int i = 0; i < p->n; i++)
        call_part(m, k, &p->part[i], p->row, fn ? fn[i] : ll_function(m, ll_part_name(name, i)),
            args[i], l.i, block);
    ll_loop_end(m, &l);
    LLVMBuildRetVoid(m->b);
}

nnc_status ll_parts_open(ll_parts *p, const nnc_kernel *k, nnc_arena *a, nnc_sink *sink)
{
    p->n = nnc_kernel_parts(k, p->part);
    const int tiled = nnc_parts_tiled(k);
    const int64_t *each = nnc_parts_rows(k, p->part, p->n, a);
    const int64_t points = tiled < 0 ? 1 : nnc_sched_n(&k->sched, KD_tile, tiled);
    int64_t at = 0;
    p->row = ARENA_NEW(a, rows, k->n_buf + 1);
    NNC_NEED(each && p->row, sink);
    for (int b = 0; b < k->n_buf; b++)
        if (each[b]) {
            const int64_t size = nnc_dtype_size(k->buf[b].dtype);
            p->row[b] = (rows){at, nnc_parts_bytes(k, b), points * each[b] * size};
            at += p->row[b].bytes;
        }
    for (int i = 0; i < p->n; i++) {
        NNC_NEED(!nnc_kernel_part(k, tiled, each, &p->part[i], a), sink);
        p->part[i].k.name = nnc_arena_printf(a, "%s.%d", k->name, i);
        NNC_NEED(p->part[i].k.name, sink);
    }
    return NNC_OK;
}

nnc_status ll_parts_together(ll_mod *m, const nnc_kernel *k, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    ll_parts p;
    V fn[NNC_KPARTS];
    NNC_TRY(ll_parts_open(&p, k, &a, sink));
    for (int i = 0; i < p.n; i++) {
        NNC_TRY(ll_kernel(m, &p.part[i].k, sink));
        fn[i] = m->fn;
        LLVMSetLinkage(fn[i], LLVMInternalLinkage);
    }
    ll_parts_call(m, k, &p, fn);
    return NNC_OK;
}
