/* plugins/onednn/wgrad.c -- the gradient of a convolution's weights (CALL_conv_wgrad). Its tensors have the orders of the call's types; an
 * implementation that wants other orders gets copies in the workspace, which lies so: scratch memory, then a copy of each tensor that
 * needs one. */
#include "plugins/onednn/wgrad.h"

enum { X, DY, DW, SIDES };

/* One tensor: as the call has it, and as the implementation has it; the same memory where there is no reorder. */
typedef struct side {
    dnnl_memory_t given, used;
    dnnl_primitive_t reorder;
    int64_t at; /* offset of `used` in the workspace */
    void *seen[2]; /* handles are set only when they change, since setting one may write padding */
} side;

struct dn_grad {
    dnnl_primitive_t prim;
    dnnl_memory_t scratch;
    void *scratch_seen;
    side side[SIDES];
};

static dn_ref given_of(const dn_call *d, int i)
{
    return dn_md_ref(i == X ? &d->src : i == DY ? &d->dst : &d->wei);
}

static dn_ref used_of(const dn_call *d, int i)
{
    static const dnnl_query_t query[] = {
        dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md};
    return dn_query(d->pd, query[i]);
}

/* Size of the workspace; at[i]: offset of tensor i's copy, -1: it needs none. */
static int64_t lay_out(const dn_call *d, int64_t at[SIDES])
{
    int64_t bytes = dn_scratch_bytes(d->pd);
    for (int i = 0; i < SIDES; i++) {
        at[i] = -1;
        if (dnnl_memory_desc_equal(given_of(d, i), used_of(d, i)))
            continue;
        at[i] = nnc_align_up(bytes, 64);
        bytes = at[i] + (int64_t)dnnl_memory_desc_get_size(used_of(d, i));
    }
    return bytes;
}

int64_t dn_grad_bytes(const dn_call *d)
{
    int64_t at[SIDES];
    return lay_out(d, at);
}

void dn_grad_free(dn_grad *g)
{
    if (!g)
        return;
    for (int i = 0; i < SIDES; i++) {
        if (g->side[i].reorder)
            dnnl_primitive_destroy(g->side[i].reorder);
        if (g->side[i].given)
            dnnl_memory_destroy(g->side[i].given);
        if (g->side[i].used)
            dnnl_memory_destroy(g->side[i].used);
    }
    if (g->scratch)
        dnnl_memory_destroy(g->scratch);
    if (g->prim)
        dnnl_primitive_destroy(g->prim);
    nnc_free(g);
}

static bool memory(dnnl_memory_t *m, dn_ref md)
{
    return dnnl_memory_create(m, md, dn_engine(), DNNL_MEMORY_NONE) == dnnl_success;
}

static bool open_side(side *s, dn_ref given, dn_ref used, bool back)
{
    dnnl_primitive_desc_t pd;
    if (!memory(&s->used, used))
        return false;
    if (s->at < 0)
        return true;
    if (!memory(&s->given, given) || dnnl_reorder_primitive_desc_create(&pd, back ? used : given,
                                         dn_engine(), back ? given : used, dn_engine(), NULL) != 0)
        return false;
    bool ok = dnnl_primitive_create(&s->reorder, pd) == dnnl_success;
    dnnl_primitive_desc_destroy(pd);
    return ok;
}

dn_grad *dn_grad_load(const dn_call *d)
{
    int64_t at[SIDES];
    dn_grad *g = nnc_calloc(1, sizeof *g);
    lay_out(d, at);
    bool ok = g && dnnl_primitive_create(&g->prim, d->pd) == dnnl_success;
    for (int i = 0; i < SIDES && ok; i++) {
        g->side[i].at = at[i];
        ok = open_side(&g->side[i], given_of(d, i), used_of(d, i), i == DW);
    }
    if (ok && dn_scratch_bytes(d->pd))
        ok = memory(&g->scratch, dn_query(d->pd, dnnl_query_scratchpad_md));
    if (ok)
        return g;
    dn_grad_free(g);
    return NULL;
}

static bool place(dnnl_memory_t m, void *at, void **seen)
{
    bool ok = *seen == at || dnnl_memory_set_data_handle(m, at) == dnnl_success;
    *seen = at;
    return ok;
}

static bool place_side(side *s, void *arg, char *work)
{
    if (s->at < 0)
        return place(s->used, arg, &s->seen[1]);
    return place(s->given, arg, &s->seen[0]) && place(s->used, work + s->at, &s->seen[1]);
}

static bool reorder(const side *s, dnnl_stream_t stream, bool back)
{
    const dnnl_exec_arg_t arg[] = {
        {DNNL_ARG_FROM, back ? s->used : s->given}, {DNNL_ARG_TO, back ? s->given : s->used}};
    return !s->reorder || dnnl_primitive_execute(s->reorder, stream, 2, arg) == dnnl_success;
}

nnc_status dn_grad_run(dn_grad *g, dnnl_stream_t stream, void *const *args, void *work)
{
    side *s = g->side;
    bool ok = true;
    for (int i = 0; i < SIDES && ok; i++)
        ok = place_side(&s[i], args[i], work) && (i == DW || reorder(&s[i], stream, false));
    if (g->scratch)
        ok = ok && place(g->scratch, work, &g->scratch_seen);
    const dnnl_exec_arg_t arg[] = {{DNNL_ARG_SRC, s[X].used}, {DNNL_ARG_DIFF_DST, s[DY].used},
        {DNNL_ARG_DIFF_WEIGHTS, s[DW].used}, {DNNL_ARG_SCRATCHPAD, g->scratch}};
    ok = ok && dnnl_primitive_execute(g->prim, stream, g->scratch ? 4 : 3, arg) == dnnl_success &&
         reorder(&s[DW], stream, true) && dnnl_stream_wait(stream) == dnnl_success;
    return ok ? NNC_OK : NNC_E_DEVICE;
}
