/* passes/fuse_epilogue.c -- fuses elementwise ops after a contraction into the engine's call, which applies them before it stores the
 * result: bias, activations, a residual sum. The engine's offers (nnc_target_offer) say what it supports, and the time. Of the supported
 * prefixes of the chain, the fastest is fused, counting a kernel for the rest. The order in the fused node's body is the order of the
 * call's post-operations. Terminates: every contraction is visited once; its chain ends at the first node without exactly one user. */
#include "passes/internal.h"
#include <math.h>

/* True when v has one number per output channel of contraction c. */
static bool per_channel(const pass *p, const nnc_node *c, nnc_ref v)
{
    const nnc_type *y = type_of(p, c->out), *t = type_of(p, v);
    int ch = c->op == OP_matmul || c->op == OP_linear ? y->rank - 1 : 1, shift = y->rank - t->rank;
    return c->op != OP_conv_wgrad && ch >= 0 && shift >= 0 && ch >= shift &&
           t->dim[ch - shift] == y->dim[ch] && nnc_type_numel(t) == y->dim[ch];
}

/* Does an add of v become the bias of contraction c? If c has a bias, both must be known when weights are loaded. Otherwise v may be a
 * residual of one row, and adding the two would be an op in each run. */
static bool is_bias(const pass *p, const nnc_node *c, nnc_ref v)
{
    return per_channel(p, c, v) &&
           (c->op == OP_matmul || c->n_in != 3 || (edit_static(p, v) && edit_static(p, c->in[2])));
}

/* Appends op n, the chain's k-th, applied to x, to the question to engines. Returns NULL, or the reason why no epilogue can contain it. */
static const char *add_op(
    pass *p, uint32_t i, nnc_ask *a, int k, const nnc_node *n, nnc_ref x, const char *engine)
{
    const nnc_node *c = &p->g->node[i];
    const nnc_type *y = type_of(p, c->out);
    nnc_post post;
    nnc_ref other = n->op == OP_add ? other_operand(n, x) : NNC_NONE;
    a->strided = a->strided || !nnc_type_is_dense(type_of(p, n->out));
    if (!nnc_node_post(n, &post))
        return remark_text(
            p, "%s is not supported in epilogues of %s", nnc_ops[n->op].name, engine);
    if (other == x)
        return "it adds the result to itself";
    if (n->op == OP_add && is_bias(p, c, other) && k == 0 &&
        nnc_type_same_shape(type_of(p, x), type_of(p, n->out))) {
        a->bias = true;
        return NULL;
    }
    if (n->op == OP_add) {
        const nnc_type *t = type_of(p, other);
        if (!nnc_type_same_shape(y, type_of(p, n->out)) || !nnc_type_same_shape(y, t))
            return "the added tensor is neither one number per channel nor of the result's shape";
        if (!nnc_type_same_memory(y, t))
            return "the added tensor has another memory order";
        a->bytes = nnc_add_sat(a->bytes, nnc_type_bytes(y));
    }
    if (a->n_post == NNC_MAX_POST)
        return "the epilogue has the maximum number of ops";
    a->post[a->n_post++] = post;
    return NULL;
}

/* Is v computed on another device than node c? With v in its epilogue, c would wait for that device before it begins. */
static bool is_received(const pass *p, const nnc_node *c, nnc_ref v)
{
    return !edit_static(p, v) && def_of(p, v)->op != OP_input &&
           nnc_home(p->g, v) != nnc_home(p->g, c->out);
}

/* Fills *a with the question to engines for contraction i and the first n ops of a chain. Returns NULL, or the reason why it cannot be
 * asked. */
static const char *ask_of(pass *p, uint32_t i, const epilogue *chain, int n, nnc_ask *a)
{
    const nnc_node *c = &p->g->node[i];
    nnc_ref x = c->out;
    const char *why = NULL, *engine = engine_name(p, c);
    contraction_ask(p, c, a);
    for (int k = 0; k < n && !why; k++) {
        const nnc_node *m = &p->g->node[chain->node[k]];
        why = add_op(p, i, a, k, m, x, engine);
        x = m->out;
    }
    return why;
}

const char *epilogue_allows(
    pass *p, uint32_t i, const epilogue *so_far, const nnc_node *n, nnc_ref x)
{
    const nnc_node *c = &p->g->node[i];
    const nnc_target_engine *e = engine_of(p, c);
    nnc_ask a = {0};
    if (!e)
        return "the target has no engine for it";
    if (!on_one_device(c, n))
        return "it is placed on another device";
    if (placed_apart(c, n))
        return placed_apart(c, n);
    if (type_of(p, x)->dtype != type_of(p, n->out)->dtype)
        return remark_text(p, "%s stores results in the type of its operands", e->name);
    if (n->op == OP_add && is_received(p, c, other_operand(n, x)))
        return "its device would wait for another one's part before it computes its own";
    if (so_far->n >= MAX_EPILOGUE)
        return "the epilogue has the maximum number of ops";
    const char *why = ask_of(p, i, so_far, so_far->n, &a);
    if (!why)
        why = add_op(p, i, &a, so_far->n, n, x, e->name);
    if (why)
        return why;
    nnc_offer o = nnc_target_offer(target_of(p, c), &a);
    if (o.ok)
        return NULL;
    if (o.why)
        return remark_text(p, "%s", o.why);
    return remark_text(p, "%s has no %s epilogue", e->name, nnc_ops[n->op].name);
}

/* True when this user's kernel computes its operand as well. It computes costly ops only if once per element. */
static bool absorbs(const pass *p, const nnc_node *n, nnc_ref v, bool costly)
{
    nnc_class c = nnc_op_class(n->op);
    if (is_contraction(p, n))
        return false;
    if (!costly)
        return true;
    if (c == CL_move)
        return n->op != OP_broadcast && !nnc_index_operand(n);
    bool once = c == CL_ewise || c == CL_ecomp || c == CL_reduce || c == CL_comp;
    return once && numel_of(p, n->out) <= numel_of(p, v);
}

/* True when the rest of the chain, from node `first` on, is part of a kernel that is needed in any case. */
static bool is_absorbed(pass *p, const epilogue *all, int first)
{
    uint32_t user[16];
    nnc_ref v = p->g->node[all->node[all->n - 1]].out;
    int n = users_through_views(p, v, user, NNC_COUNT(user));
    bool costly = false, yes = n > 0 && n <= (int)NNC_COUNT(user) && !edit_is_output(p, v);
    for (int k = first; k < all->n; k++)
        costly = costly || nnc_op_is_expensive(p->g->node[all->node[k]].op);
    for (int k = 0; k < n && yes; k++)
        yes = absorbs(p, &p->g->node[user[k]], v, costly);
    return yes && (n == 1 || !costly);
}

/* Nanoseconds of a kernel for the chain's ops from number `from` on. On a CPU the contraction's results may pass to it beyond the
 * caches. */
static int64_t rest_ns(pass *p, uint32_t i, const epilogue *chain, int from)
{
    const nnc_target *t = target_of(p, &p->g->node[i]);
    nnc_ref x = from ? p->g->node[chain->node[from - 1]].out : p->g->node[i].out;
    int64_t bytes = 2 * bytes_of(p, x);
    if (t->kind == NNC_T_cpu)
        return nnc_add_sat(
            spill_ns(t, bytes / 2), expected_ns(p, chain->node + from, chain->n - from,
                                        &p->g->node[chain->node[chain->n - 1]].out, 1, NULL));
    for (int k = from; k < chain->n; k++) {
        const nnc_node *n = &p->g->node[chain->node[k]];
        bytes += n->op == OP_add ? bytes_of(p, other_operand(n, x)) : 0;
        x = n->out;
    }
    return nnc_target_time_ns(t, 0, bytes);
}

/* Shortens a chain to the length that, with a kernel for the rest, takes the least time. An engine may compute a supported op slowly. The
 * engine's traffic counts the same for each length. The kernel counts nothing where one is needed in any case. */
static void cut(pass *p, uint32_t i, epilogue *e)
{
    const nnc_target *t = target_of(p, &p->g->node[i]);
    nnc_ask whole = {0}, a = {0};
    if (ask_of(p, i, e, e->n, &whole))
        return;
    int64_t all = nnc_target_offer(t, &whole).time_ns, least = all;
    int best = e->n;
    for (int n = e->n - 1; n >= 0; n--) {
        (void)ask_of(p, i, e, n, &a); /* cannot fail for a part of the chain */
        a.bytes = whole.bytes;
        int64_t ns = nnc_target_offer(t, &a).time_ns;
        ns += is_absorbed(p, e, n) ? 0 : rest_ns(p, i, e, n);
        best = ns < least ? n : best;
        least = nnc_min64(ns, least);
    }
    if (best == e->n)
        return;
    e->stop = e->node[best];
    e->why = remark_text(p, "%s would take %s with it, but %s with a separate kernel for it",
        engine_name(p, &p->g->node[i]), text_us_beside(p, all, least),
        text_us_beside(p, least, all));
    e->n = best;
}

void epilogue_plan(pass *p, uint32_t i, epilogue *out)
{
    *out = (epilogue){.stop = NNC_NONE};
    for (nnc_ref v = p->g->node[i].out;;) {
        const nnc_node *u = edit_only_user(p, v);
        uint32_t few[1];
        if (!u) {
            int n = users_through_views(p, v, few, 1);
            out->stop = n ? few[0] : NNC_NONE;
            out->why = edit_is_output(p, v) ? "the result is an output and must be stored as it is"
                                            : remark_text(p, "the result has %d consumers", n);
            break;
        }
        out->stop = node_index(p, u);
        out->why = epilogue_allows(p, i, out, u, v);
        if (out->why)
            break;
        out->node[out->n++] = out->stop;
        v = u->out;
    }
    if (out->n)
        cut(p, i, out);
}

int64_t epilogue_rest_ns(pass *p, uint32_t i, const epilogue *chain)
{
    return chain->n == 0 || is_absorbed(p, chain, 0) ? 0 : rest_ns(p, i, chain, 0);
}

/* A contraction's own bias operand takes the sum: conv(x,w) + b = conv(x,w,b), conv(x,w,c) + b =
 * conv(x,w,c+b). Returns the new contraction's index. */
static uint32_t take_bias(pass *p, uint32_t i, uint32_t add)
{
    nnc_node c = p->g->node[i], a = p->g->node[add];
    nnc_ref b = other_operand(&a, c.out), in[3] = {c.in[0], c.in[1]};
    int64_t k = numel_of(p, b);
    edit_at(p, add);
    if (type_of(p, b)->rank != 1)
        b = nnc_reshape(p->g, b, 1, &k);
    in[2] = c.n_in == 3 ? nnc_build2(p->g, OP_add, c.in[2], b) : b;
    p->g->origin = union_origin(p, (uint32_t[]){i, add}, 2);
    /* in the sum's order: if the other extents are 1, orders that differ are the same memory */
    nnc_type type = nnc_type_dense(type_of(p, a.out));
    nnc_ref r = nnc_build_typed(p->g, c.op, 3, in, c.n_attr, c.attr, &type);
    if (!edit_sync(p))
        return i;
    edit_replace(p, a.out, r);
    return p->g->value[r].node;
}

/* Remark: the second contraction is not in the first one's epilogue. */
static void decline_second(
    pass *p, uint32_t i, const layers *l, const char *rule, const char *a, const char *b)
{
    const nnc_target_engine *e = engine_of(p, &p->g->node[i]);
    if (e && nnc_target_runs_kernels(e))
        remark_declined(p, l, rule, "%s and %s are two kernels, each with a sum of its own", a, b);
    else
        remark_declined(p, l, rule,
            "%s and %s are two calls of %s, which reads its operands from memory", a, b,
            e ? e->name : "no engine");
}

static void decline(pass *p, uint32_t i, const char *a, const epilogue *e)
{
    uint32_t user[256];
    int n = users_through_views(p, p->g->node[i].out, user, 256);
    if (n == 0)
        return;
    for (int k = 0; k < n && k < 256; k++) {
        layers l = layers_of(p, i, user[k]);
        const char *b = node_word(p, &p->g->node[user[k]]);
        const char *rule = remark_text(p, "%s into %s", b, a);
        if (is_contraction(p, &p->g->node[user[k]]))
            decline_second(p, i, &l, rule, a, b);
        else
            remark_declined(p, &l, rule, "%s", e->why);
    }
}

static void fuse(pass *p, uint32_t i, const epilogue *e, const char *how)
{
    layers l = layers_of(p, i, NNC_NONE);
    nnc_text words = {0};
    for (int k = 0; k < e->n; k++) {
        const nnc_node *n = &p->g->node[e->node[k]];
        layers_add(p, &l, e->node[k]);
        bool bias = k == 0 && n->op == OP_add &&
                    is_bias(p, &p->g->node[i], other_operand(n, p->g->node[i].out));
        nnc_printf(&words, "%s%s", k ? "+" : "", bias ? "bias" : nnc_ops[n->op].name);
    }
    const char *word = text_of(p, &words);
    nnc_text_deinit(&words);
    const char *core = nnc_ops[p->g->node[i].op].name;
    uint32_t nodes[MAX_CHAIN + 1], first = i;
    int n = 0, from = 0;
    const nnc_node *a = &p->g->node[e->node[0]];
    if (a->op == OP_add && p->g->node[i].op != OP_matmul &&
        is_bias(p, &p->g->node[i], other_operand(a, p->g->node[i].out))) {
        first = take_bias(p, i, e->node[0]);
        from = 1;
    }
    nodes[n++] = first;
    for (int k = from; k < e->n; k++)
        nodes[n++] = e->node[k];
    if (n > 1 && p->status == NNC_OK) {
        nnc_ref out = p->g->node[nodes[n - 1]].out;
        nnc_ref r = region_build(p, nodes, n, &out, 1);
        edit_replace(p, out, r);
        first = r == NNC_NONE ? first : p->g->value[r].node;
    }
    remark_applied(p, &l, remark_text(p, "%s into %s", word, core), "%s", how);
    decline(p, first, core, e);
}

const nnc_node *epilogue_of(pass *p, nnc_ref v)
{
    const nnc_node *last = def_of(p, v), *c = last;
    epilogue e = {0};
    nnc_post post;
    while (c->n_in && !is_contraction(p, c) && nnc_node_post(c, &post)) {
        int k = c->n_in > 1 && edit_only_user(p, c->in[0]) != c;
        if (edit_only_user(p, c->in[k]) != c)
            return NULL;
        c = nnc_def(p->g, c->in[k]);
    }
    if (c == last || !is_contraction(p, c) || is_kernel_conv(p, c, NULL))
        return NULL;
    epilogue_plan(p, node_index(p, c), &e);
    bool ends = false;
    for (int k = 0; k < e.n; k++)
        ends = ends || e.node[k] == node_index(p, last);
    return ends ? c : NULL;
}

/* Remark for a depthwise convolution or its gradient. The convolution becomes a generated kernel that the ops after it join, the gradient a
 * separate kernel. */
static void remark_kernel(pass *p, uint32_t i, const char *why)
{
    layers l = layers_of(p, i, NNC_NONE);
    const nnc_node *n = &p->g->node[i];
    if (n->op != OP_matmul) /* as_kernel: the pass that set it has a remark of it */
        remark_applied(p, &l, remark_text(p, "depthwise %s as a kernel", nnc_ops[n->op].name),
            "%s: a generated kernel%s instead of %s", why,
            n->op == OP_conv ? ", which the ops after it can join," : "", engine_name(p, n));
}

nnc_status pass_fuse_epilogue(pass *p)
{
    add_to_weights(p);
    read_turned(p);
    /* backwards: a sum of two contractions goes to the later one, when the other operand exists */
    for (uint32_t i = p->g->n_node; i-- > 0 && p->status == NNC_OK;) {
        const nnc_node *n = &p->g->node[i];
        if (nnc_op_class(n->op) != CL_contract || p->e.dead[i] || edit_static(p, n->out))
            continue;
        const char *why;
        if (is_kernel_conv(p, n, &why)) {
            remark_kernel(p, i, why);
            continue;
        }
        epilogue e;
        epilogue_plan(p, i, &e);
        const char *how = remark_text(
            p, "%s computes it in the epilogue of the %s", engine_name(p, n), nnc_ops[n->op].name);
        if (e.n)
            fuse(p, i, &e, how);
        else
            decline(p, i, nnc_ops[n->op].name, &e);
    }
    return p->status;
}
