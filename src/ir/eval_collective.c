/* ir/eval_collective.c -- the reference of collectives: sums in the order of the participants. */
#include "ir/eval_internal.h"

static nnc_sop reduction_of(const nnc_node *n)
{
    const nnc_attr *a = nnc_attr_find(n, AT_reduction);
    return !a || !strcmp(a->word, "add") ? SC_add : !strcmp(a->word, "min") ? SC_min : SC_max;
}

static uint64_t combine(nnc_sop op, nnc_dtype d, uint64_t x, uint64_t y)
{
    double f[2];
    if (!nnc_is_float(d))
        return (uint64_t)nnc_sop_eval_i64(op, d, (int64_t)x, (int64_t)y, 0);
    memcpy(&f[0], &x, 8);
    memcpy(&f[1], &y, 8);
    f[0] = nnc_sop_eval_f64(op, f[0], f[1], 0);
    memcpy(&x, &f[0], 8);
    return x;
}

/* Element k of the reduction of all operands. */
static uint64_t reduced(const nnc_node *n, nnc_sop op, const ev_arg *in, int64_t k)
{
    uint64_t x = in[0].w[k];
    for (int i = 1; i < n->n_in; i++)
        x = combine(op, in->type->dtype, x, in[i].w[k]);
    return x;
}

static void gather(const nnc_node *n, const ev_arg *in, uint64_t *to)
{
    const int64_t outer = nnc_type_extents(in->type, 0, (int)nnc_attr_int(n, AT_axis, 0));
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < n->n_in; i++) {
            const int64_t inner = nnc_type_numel(in[i].type) / outer;
            memcpy(to, in[i].w + o * inner, (size_t)inner * sizeof *to);
            to += inner;
        }
}

nnc_status ev_collective(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const int64_t all = nnc_type_numel(in->type);
    const int64_t outer = n->op == OP_reduce_scatter
                              ? nnc_type_extents(in->type, 0, (int)nnc_attr_int(n, AT_axis, 0))
                              : 1;
    const int64_t row = all / outer, part = n->op == OP_reduce_scatter ? row / n->n_in : row;
    const nnc_sop op = reduction_of(n);
    (void)e;
    for (int i = 0; i < n->n_out; i++) {
        if (n->op == OP_allgather)
            gather(n, in, out[i].w);
        for (int64_t o = 0; n->op != OP_allgather && o < outer; o++)
            for (int64_t k = 0; k < part; k++)
                out[i].w[o * part + k] =
                    reduced(n, op, in, o * row + (n->op == OP_reduce_scatter ? i * part : 0) + k);
    }
    return NNC_OK;
}
