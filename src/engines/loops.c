/* engines/loops.c -- the engine "loops": every contraction and pooling in plain C, for every
 * dtype and memory order. It is always there, so it is what runs where no library does, and what
 * libraries are checked against. */
#include "engines/loops.h"
#include <string.h>

static lp_acc acc_of(nnc_dtype d)
{
    return !nnc_is_float(d) ? LP_I64 : d == DT_f64 ? LP_F64 : LP_F32;
}

static bool window_ok(const nnc_call *c, const char **why)
{
    *why = "shapes do not belong together";
    if (c->spatial < 1 || c->spatial > 3 || c->src.rank != c->spatial + 2 ||
        c->dst.rank != c->src.rank)
        return false;
    for (int d = 0; d < c->spatial; d++)
        if (c->kernel[d] < 1 || c->stride[d] < 1 || c->dilation[d] < 1)
            return false;
    if (c->src.dim[0] != c->dst.dim[0])
        return false;
    if (c->kind == CALL_maxpool || c->kind == CALL_avgpool) {
        *why = "average pooling of integers";
        return c->kind == CALL_maxpool
                   ? c->src.dim[1] == c->dst.dim[1]
                   : nnc_is_float(c->src.dtype) && c->src.dim[1] == c->dst.dim[1];
    }
    if (c->wei.rank != c->src.rank || c->groups < 1 || c->src.dim[1] % c->groups ||
        c->dst.dim[1] % c->groups)
        return false;
    for (int d = 0; d < c->spatial; d++)
        if (c->wei.dim[2 + d] != c->kernel[d])
            return false;
    int64_t in = c->src.dim[1], out = c->dst.dim[1];
    return c->kind == CALL_conv ? c->wei.dim[0] == out && c->wei.dim[1] == in / c->groups
                                : c->wei.dim[0] == in && c->wei.dim[1] == out / c->groups;
}

static bool matmul_ok(const nnc_call *c, const char **why)
{
    const int ra = c->src.rank, rb = c->wei.rank, rc = c->dst.rank;
    *why = "shapes do not belong together";
    if (ra < 2 || rb < 2 || rc < 2 || rc < ra || rc < rb)
        return false;
    int64_t m = c->src.dim[ra - (c->trans_a ? 1 : 2)], ka = c->src.dim[ra - (c->trans_a ? 2 : 1)];
    int64_t n = c->wei.dim[rb - (c->trans_b ? 2 : 1)], kb = c->wei.dim[rb - (c->trans_b ? 1 : 2)];
    return ka == kb && m == c->dst.dim[rc - 2] && n == c->dst.dim[rc - 1];
}

static bool supported(const nnc_call *c, const char **why)
{
    const lp_acc acc = acc_of(c->src.dtype);
    *why = "not a call that loops run";
    if (c->kind == CALL_pack || c->kind >= CALL__COUNT || c->threads > 1 << 16)
        return false;
    *why = "integer and float tensors in one call";
    if ((acc == LP_I64) != (acc_of(c->dst.dtype) == LP_I64))
        return false;
    if (c->n_post < 0 || c->n_post > NNC_MAX_POST)
        return false;
    for (int p = 0; p < c->n_post; p++)
        if (!lp_post_ok(acc, &c->post[p], why))
            return false;
    return c->kind == CALL_matmul ? matmul_ok(c, why) : window_ok(c, why);
}

static void prepare(lp_handle *h, const nnc_call *c)
{
    *h = (lp_handle){.c = *c, .acc = acc_of(c->src.dtype)};
    h->esize = h->acc == LP_F32 ? 4 : 8;
    h->k = lp_kernels_of(h->acc);
    nnc_type_strides(&c->src, h->xs);
    nnc_type_strides(&c->dst, h->ys);
    h->n_arg = 2 + c->has_bias;
    if (c->kind != CALL_maxpool && c->kind != CALL_avgpool) {
        nnc_type_strides(&c->wei, h->ws);
        h->n_arg++;
    }
    for (int p = 0; p < c->n_post; p++)
        h->n_arg += c->post[p].kind == PO_sum && !c->post[p].in_place;
    if (c->kind == CALL_matmul)
        lp_prepare_matmul(h);
    else if (c->kind == CALL_conv || c->kind == CALL_conv_transpose)
        lp_prepare_conv(h);
    else
        lp_prepare_window(h);
}

static nnc_status loops_choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    (void)sink;
    *out = (nnc_choice){0};
    if (!supported(c, &out->reason))
        return NNC_OK;
    lp_handle h;
    prepare(&h, c);
    out->ok = true;
    out->workspace_bytes = h.work;
    out->reason = lp_is_skinny(c) ? "loops:skinny" : "loops";
    return NNC_OK;
}

static nnc_status loops_load(const nnc_plan *p, int item, void **handle, nnc_sink *sink)
{
    const char *why;
    const nnc_call *c = &p->call[item];
    bool ok = supported(c, &why);
    if (ok && c->packed) {
        ok = false;
        why = "its weights are packed for another engine";
    }
    if (!ok)
        return nnc_fail0(sink, NNC_E_DEVICE, "engine loops cannot run call %d: %s", item, why);
    lp_handle *h = nnc_malloc(sizeof *h);
    if (!h)
        return nnc_nomem(sink);
    prepare(h, c);
    if (h->work > c->work_bytes) {
        nnc_free(h);
        return nnc_fail0(sink, NNC_E_MODEL, "call %d of the plan has too little workspace", item);
    }
    *handle = h;
    return NNC_OK;
}

static nnc_status loops_run(void *handle, void *const *args, void *work)
{
    const lp_handle *h = handle;
    const nnc_call *c = &h->c;
    lp_args a = {.src = args[0], .dst = args[h->n_arg - 1]};
    int i = 1;
    if (c->kind != CALL_maxpool && c->kind != CALL_avgpool)
        a.wei = args[i++];
    if (c->has_bias)
        a.bias = args[i++];
    for (int p = 0; p < c->n_post; p++)
        if (c->post[p].kind == PO_sum)
            a.sum[p] = c->post[p].in_place ? a.dst : args[i++];
    return h->run(h, &a, work);
}

static void loops_unload(void *handle)
{
    nnc_free(handle);
}

const nnc_engine nnc_engine_loops = {
    .name = "loops",
    .version = NNC_VERSION,
    .choose = loops_choose,
    .load_call = loops_load,
    .run = loops_run,
    .unload = loops_unload,
};
