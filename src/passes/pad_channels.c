/* passes/pad_channels.c -- 16-bit channels-last convolutions read their source in multiples of 4 or 8 channels. For another number the
 * library copies and pads the source at each run. Where a generated kernel computes the source, such as the cast and relayout of an image
 * of 3 channels, it writes the zeros as well. The weights are padded once, by `init`: conv(pad(x), pad(w)) = conv(x, w). A source from a
 * library call, or with other users, would need a separate copy, no better than the library's. Terminates: a padded source has a multiple
 * of channels. */
#include "passes/internal.h"

/* v with `more` zero channels appended, in its own memory order. */
static nnc_ref padded(pass *p, nnc_ref v, int64_t more, uint32_t at)
{
    nnc_type t = *type_of(p, v);
    int64_t pads[2 * NNC_MAX_RANK] = {0};
    pads[t.rank + 1] = more;
    t.dim[1] += more;
    edit_at(p, at);
    nnc_attr a = nnc_av(AT_pads, 2 * t.rank, pads);
    return nnc_build_typed(p->g, OP_pad, 1, &v, 1, &a, &t);
}

/* Channels that the engine would add in convolution i; 0: none. */
static int64_t missing(const pass *p, const nnc_node *n)
{
    const nnc_type *x = type_of(p, n->in[0]), *w = type_of(p, n->in[1]);
    nnc_type last = *x;
    const int64_t window = nnc_type_extents(w, 2, w->rank);
    nnc_type_channels_last(&last);
    if (n->op != OP_conv || !nnc_type_same_memory(x, &last) || nnc_attr_int(n, AT_groups, 1) != 1)
        return 0;
    int64_t step = nnc_target_channel_step(target_of(p, n), x->dtype, window);
    return (step - x->dim[1] % step) % step;
}

/* The reason why the source of convolution i is not padded by its producer, or NULL. */
static const char *blocker(pass *p, const nnc_node *n)
{
    const nnc_node *d = def_of(p, n->in[0]);
    nnc_class k = nnc_op_class(d->op);
    if (!edit_static(p, n->in[1]))
        return "its weights are computed at run time";
    if (k == CL_leaf)
        return "no kernel makes its source: a copy would be no better than the library's own";
    if (k == CL_contract || k == CL_fused)
        return remark_text(p,
            "its source comes from %s, which writes no zeros: a copy would be no better than the "
            "library's own",
            nnc_ops[d->op].name);
    if (!edit_only_user(p, n->in[0]))
        return "its source has other consumers";
    return NULL;
}

static void pad(pass *p, uint32_t i, int64_t more)
{
    nnc_node c = p->g->node[i];
    nnc_type x = *type_of(p, c.in[0]), y = *type_of(p, c.out);
    layers l = layers_of(p, i, NNC_NONE);
    nnc_ref in[3] = {
        padded(p, c.in[0], more, i), padded(p, c.in[1], more, i), c.n_in > 2 ? c.in[2] : NNC_NONE};
    nnc_ref r = nnc_build_typed(p->g, OP_conv, c.n_in, in, c.n_attr, c.attr, &y);
    if (!edit_sync(p))
        return;
    int64_t wide = bytes_of(p, in[0]);
    edit_replace(p, c.out, r);
    remark_applied(p, &l, "channels padded",
        "%s would copy its source of %lld channel%s to %lld at each run, %s into its workspace; "
        "the kernel "
        "that makes the source writes the zeros instead, %s, and init pads the weights",
        nnc_target_engine_for(target_of(p, &c), ASK_conv)->name, (long long)x.dim[1],
        x.dim[1] == 1 ? "" : "s", (long long)(x.dim[1] + more), text_bytes(p, wide),
        text_bytes(p, wide - nnc_type_bytes(&x)));
}

nnc_status pass_pad_channels(pass *p)
{
    uint32_t n = p->g->n_node;
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        const nnc_node *c = &p->g->node[i];
        if (p->e.dead[i] || p->e.is_static[i] || c->op != OP_conv)
            continue;
        int64_t more = missing(p, c);
        const char *why = more ? blocker(p, c) : NULL;
        if (more && !why)
            pad(p, i, more);
        else if (more)
            decline_node(p, i, "channels padded", "%s", why);
    }
    return p->status;
}
