/* passes/fuse_epilogue.c -- what follows a contraction element by element is done by the engine
 * that computes it, before the result is stored: bias, activations, a residual sum. The target's
 * engine row says which (EP_*); the order in the body of the fused node is the order of the call's
 * post-operations. Ends: every contraction is looked at once; the chain behind it is as long as its
 * nodes have one reader each. */
#include "passes/internal.h"
#include <string.h>

static const struct {
    nnc_op op;
    uint32_t flag;
} unary[] = {{OP_relu, EP_relu}, {OP_relu6, EP_clip}, {OP_clip, EP_clip}, {OP_leaky_relu, EP_leaky},
    {OP_gelu, EP_gelu}, {OP_silu, EP_silu}, {OP_sigmoid, EP_sigmoid}, {OP_tanh, EP_tanh},
    {OP_hardswish, EP_hardswish}};

static bool is_tanh_gelu(const nnc_node *n)
{
    const nnc_attr *a = n->op == OP_gelu ? nnc_attr_find(n, AT_approximate) : NULL;
    return a && a->word && strcmp(a->word, "tanh") == 0;
}

uint32_t epilogue_flag(const nnc_node *n)
{
    for (size_t k = 0; k < NNC_COUNT(unary); k++)
        if (unary[k].op == (nnc_op)n->op)
            return is_tanh_gelu(n) ? EP_gelu_tanh : unary[k].flag;
    return 0;
}

static bool has_bias(const nnc_node *c)
{
    return c->op != OP_matmul && c->n_in == 3;
}

/* Is v one number for each output channel of contraction c? */
static bool per_channel(const pass *p, const nnc_node *c, nnc_ref v)
{
    const nnc_type *y = nnc_typeof(p->g, c->out), *t = nnc_typeof(p->g, v);
    int ch = c->op == OP_matmul || c->op == OP_linear ? y->rank - 1 : 1, shift = y->rank - t->rank;
    return ch >= 0 && shift >= 0 && ch >= shift && t->dim[ch - shift] == y->dim[ch] &&
           nnc_type_numel(t) == y->dim[ch];
}

/* Does an add of v become the bias of contraction c? Where that has one already, both must be known when weights are
 * loaded: a residual of one row looks like a bias, and their sum would be an op of its own in each run. */
bool epilogue_bias(const pass *p, const nnc_node *c, nnc_ref v)
{
    return per_channel(p, c, v) &&
           (!has_bias(c) || (edit_static(p, v) && edit_static(p, c->in[2])));
}

static const char *allows_sum(
    pass *p, uint32_t i, const nnc_node *n, nnc_ref other, const nnc_target_engine *e)
{
    const nnc_type *y = nnc_typeof(p->g, p->g->node[i].out), *t = nnc_typeof(p->g, other);
    if (!nnc_type_same_shape(y, nnc_typeof(p->g, n->out)) || !nnc_type_same_shape(y, t))
        return "the added tensor is neither one number per channel nor of the result's shape";
    if (!nnc_type_same_memory(y, t))
        return "the added tensor has another memory order";
    if (e->epilogues & EP_add)
        return NULL;
    if (!(e->epilogues & EP_sum))
        return remark_text(p, "%s adds no tensor to its result", e->name);
    const nnc_node *d = nnc_def(p->g, other);
    if (nnc_op_class(d->op) == CL_leaf || edit_static(p, other) || nnc_is_view(p->g, d))
        return remark_text(
            p, "%s adds in place only, and the added tensor's memory is not its own", e->name);
    if (!edit_only_user(p, other))
        return remark_text(
            p, "%s adds in place only, and the added tensor has other readers", e->name);
    int64_t caches = p->t->l2_bytes * (p->t->cores > 0 ? p->t->cores : 1) + p->t->l3_bytes;
    int64_t bytes = nnc_type_bytes(y);
    if (caches > 0 && bytes > caches)
        return remark_text(p,
            "the sum of %s does not fit the caches (%s), where a kernel of its own is faster",
            text_bytes(p, bytes), text_bytes(p, caches));
    return NULL;
}

static const char *allows_add(pass *p, uint32_t i, const epilogue *so_far, const nnc_node *n,
    nnc_ref x, const nnc_target_engine *e)
{
    const nnc_node *c = &p->g->node[i];
    nnc_ref other = other_operand(n, x);
    if (other == x)
        return "it adds the result to itself";
    if (epilogue_bias(p, c, other) && so_far->n == 0 &&
        nnc_type_same_shape(nnc_typeof(p->g, x), nnc_typeof(p->g, n->out)))
        return has_bias(c) || e->epilogues & EP_bias ? NULL
                                                     : remark_text(p, "%s adds no bias", e->name);
    for (int k = 0; k < so_far->n; k++) {
        const nnc_node *m = &p->g->node[so_far->node[k]];
        if (m->op == OP_add && (k > 0 || !epilogue_bias(p, c, other_operand(m, c->out))))
            return "one sum is in the epilogue already";
    }
    return allows_sum(p, i, n, other, e);
}

static bool drops_nan(const pass *p, const nnc_target_engine *e, uint32_t flag)
{
    return p->o->math_exact && e->relu_drops_nan && (flag & (EP_relu | EP_clip));
}

const char *epilogue_allows(
    pass *p, uint32_t i, const epilogue *so_far, const nnc_node *n, nnc_ref x)
{
    const nnc_target_engine *e = engine_of(p, &p->g->node[i]);
    if (!e)
        return "the target has no engine for it";
    nnc_dtype d = (nnc_dtype)nnc_typeof(p->g, x)->dtype;
    bool half = d == DT_f16 || d == DT_bf16;
    if (d != nnc_typeof(p->g, n->out)->dtype)
        return remark_text(p, "%s stores results in the type of its operands", e->name);
    if (d != DT_f32 && !(half && e->half_epilogues))
        return remark_text(
            p, "%s fuses epilogues of f32%s only", e->name, e->half_epilogues ? ", f16, bf16" : "");
    if (p->g->node[i].op == OP_conv_transpose && e->bare_transposed)
        return remark_text(p, "%s ends a transposed convolution with nothing", e->name);
    if (so_far->n >= MAX_EPILOGUE)
        return "the epilogue is full";
    for (int k = 0; k < so_far->n && e->one_activation; k++)
        if (p->g->node[so_far->node[k]].op != OP_add)
            return remark_text(p, "%s takes nothing behind an activation", e->name);
    if (n->op == OP_add)
        return allows_add(p, i, so_far, n, x, e);
    for (size_t k = 0; k < NNC_COUNT(unary); k++)
        if (unary[k].op == (nnc_op)n->op) {
            uint32_t flag = unary[k].flag | (is_tanh_gelu(n) ? EP_gelu_tanh : 0);
            if (drops_nan(p, e, flag))
                return remark_text(p, "%s's %s turns NaN into a number, which --math=exact forbids",
                    e->name, nnc_ops[n->op].name);
            if (e->epilogues & flag)
                return NULL;
            return remark_text(p, "%s has no %s epilogue%s", e->name, nnc_ops[n->op].name,
                e->compiled_epilogues & flag && !p->t->compiles && (half || p->t->tf32) &&
                        p->g->node[i].op == OP_conv
                    ? ", but for kernels that it compiles itself (-O3)"
                    : "");
        }
    return remark_text(p, "%s is no epilogue of %s", nnc_ops[n->op].name, e->name);
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
                                            : remark_text(p, "the result has %d readers", n);
            return;
        }
        out->stop = node_index(p, u);
        out->why = epilogue_allows(p, i, out, u, v);
        if (out->why)
            return;
        out->node[out->n++] = out->stop;
        v = u->out;
    }
}

/* A contraction's own bias operand takes the sum: conv(x,w) + b = conv(x,w,b), conv(x,w,c) + b =
 * conv(x,w,c+b). Returns the new contraction's index. */
static uint32_t take_bias(pass *p, uint32_t i, uint32_t add)
{
    nnc_node c = p->g->node[i], a = p->g->node[add];
    nnc_ref b = other_operand(&a, c.out), in[3] = {c.in[0], c.in[1]};
    int64_t k = nnc_type_numel(nnc_typeof(p->g, b));
    edit_at(p, add);
    if (nnc_typeof(p->g, b)->rank != 1)
        b = nnc_reshape(p->g, b, 1, &k);
    in[2] = c.n_in == 3 ? nnc_build2(p->g, OP_add, c.in[2], b) : b;
    uint32_t both[2] = {i, add};
    layers l = layers_of(p, both[0], both[1]);
    nnc_text t = {0};
    for (size_t j = 0; j < l.n; j++)
        nnc_printf(&t, "%s%s", j ? "+" : "", l.at[j]);
    p->g->origin = c.origin ? remark_text(p, "%s", nnc_text_str(&t)) : NULL;
    nnc_text_deinit(&t);
    nnc_type type = *nnc_typeof(p->g, c.out);
    nnc_ref r = nnc_build_typed(p->g, (nnc_op)c.op, 3, in, c.n_attr, c.attr, &type);
    edit_sync(p);
    if (p->status != NNC_OK)
        return i;
    edit_replace(p, a.out, r);
    return p->g->value[r].node;
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
            remark_declined(p, &l, rule,
                "%s and %s are two calls of %s, which reads its operands from memory", a, b,
                engine_name(p, &p->g->node[i]));
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
                    epilogue_bias(p, &p->g->node[i], other_operand(n, p->g->node[i].out));
        nnc_printf(&words, "%s%s", k ? "+" : "", bias ? "bias" : nnc_ops[n->op].name);
    }
    const char *word = remark_text(p, "%s", nnc_text_str(&words));
    nnc_text_deinit(&words);
    const char *core = nnc_ops[p->g->node[i].op].name;
    uint32_t nodes[MAX_CHAIN + 1], first = i;
    int n = 0, from = 0;
    const nnc_node *a = &p->g->node[e->node[0]];
    if (a->op == OP_add && p->g->node[i].op != OP_matmul &&
        epilogue_bias(p, &p->g->node[i], other_operand(a, p->g->node[i].out))) {
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

/* Depthwise: no library's, so what stands behind it is the kernel's affair. */
static void remark_kernel(pass *p, uint32_t i, const char *why)
{
    layers l = layers_of(p, i, NNC_NONE);
    remark_applied(p, &l, "depthwise conv as a kernel",
        "%s: generated code, which what stands behind it joins, rather than %s", why,
        engine_name(p, &p->g->node[i]));
}

nnc_status pass_fuse_epilogue(pass *p)
{
    /* Backwards, so that of two contractions that a sum joins the later one takes it: its other
     * operand exists then. */
    for (uint32_t i = p->g->n_node; i-- > 0 && p->status == NNC_OK;) {
        const nnc_node *n = &p->g->node[i];
        if (nnc_op_class(n->op) != CL_contract || p->e.dead[i] || edit_static(p, n->out))
            continue;
        const char *why;
        if (is_kernel_conv(p, p->g, n, &why)) {
            remark_kernel(p, i, why);
            continue;
        }
        epilogue e;
        epilogue_plan(p, i, &e);
        const char *how = remark_text(p, "%s ends the %s before its result is stored",
            engine_name(p, n), nnc_ops[n->op].name);
        epilogue_compile(p, i, &e, &how);
        if (e.n)
            fuse(p, i, &e, how);
        else
            decline(p, i, nnc_ops[n->op].name, &e);
    }
    return p->status;
}
