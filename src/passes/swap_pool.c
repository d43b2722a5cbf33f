/* passes/swap_pool.c -- maxpool(f(x)) = f(maxpool(x)) for every elementwise f that is non-decreasing (nnc_is_nondecreasing, which implies
 * that NaN is kept). The largest of f's values is f of the largest operand, and a NaN wins on both sides. After the pooling, f has k k
 * times less to do. The other direction is worthwhile where a contraction then has f in its epilogue, at no cost.
 *
 * Padding: maxpool's padding never wins, on either side; a window entirely in padding would turn f(-inf) into -inf, but shape inference
 * rejects it. Average pooling is not a maximum: f would have to be linear. Terminates: forward moves f past a pooling towards the outputs,
 * backward only towards a contraction whose epilogue will contain it. Neither direction undoes the other, since forward declines what an
 * epilogue supports. */
#include "passes/internal.h"

static bool epilogues_come(const pass *p)
{
    return p->will_run[PASS_fuse_epilogue] || p->ran[PASS_fuse_epilogue];
}

/* The index of f's tensor operand. The others are known numbers for nnc_is_nondecreasing. */
static int tensor_operand(const pass *p, const nnc_node *f)
{
    double c;
    for (int k = 0; k < f->n_in; k++)
        if (!nnc_const_scalar(p->g, f->in[k], &c) &&
            nnc_type_same_shape(type_of(p, f->in[k]), type_of(p, f->out)))
            return k;
    return -1;
}

/* The reason why f does not commute with the maximum, or NULL. */
static const char *order_blocker(pass *p, const nnc_node *f, int k)
{
    const char *word = nnc_ops[f->op].name;
    if (k < 0)
        return remark_text(p, "%s has no tensor operand of its result's shape", word);
    for (int j = 0; j < f->n_in; j++)
        if (j != k && numel_of(p, f->in[j]) != 1)
            return remark_text(p, "%s has a second operand that is not one known number", word);
    if (type_of(p, f->in[k])->dtype == DT_bool)
        return remark_text(p, "%s reads bool, which has no maximum", word);
    if (!nnc_is_nondecreasing(p->g, f, k))
        return f->op == OP_sqrt
                   ? "sqrt of a negative number is NaN, which would win the maximum on one side "
                     "only"
                   : remark_text(p,
                         "%s may decrease, so the largest operand need not give the largest result",
                         word);
    return NULL;
}

/* The contraction whose epilogue will contain f (node i), or NNC_NONE. */
static uint32_t takes_it(pass *p, uint32_t i)
{
    uint32_t at = i;
    for (int step = 0; step < MAX_CHAIN && epilogues_come(p); step++) {
        const nnc_node *n = &p->g->node[at];
        int k = tensor_operand(p, n);
        if (k < 0)
            return NNC_NONE;
        at = p->g->value[n->in[k]].node;
        if (is_contraction(p, &p->g->node[at])) {
            epilogue e;
            epilogue_plan(p, at, &e);
            for (int j = 0; j < e.n; j++)
                if (e.node[j] == i)
                    return at;
            return NNC_NONE;
        }
        if (!nnc_op_is_ewise(p->g->node[at].op))
            return NNC_NONE;
    }
    return NNC_NONE;
}

/* Builds f with the new operand x; its other operands stay. */
static nnc_ref again(pass *p, const nnc_node *f, int k, nnc_ref x)
{
    nnc_ref in[3] = {0};
    for (int j = 0; j < f->n_in; j++)
        in[j] = j == k ? x : f->in[j];
    nnc_type t = *type_of(p, x);
    t.dtype = type_of(p, f->out)->dtype;
    return nnc_build_typed(p->g, f->op, f->n_in, in, f->n_attr, f->attr, &t);
}

static nnc_ref pool_again(pass *p, const nnc_node *pool, nnc_ref x)
{
    nnc_type t = *type_of(p, pool->out);
    t.dtype = type_of(p, x)->dtype;
    return nnc_build_typed(p->g, OP_maxpool, 1, &x, pool->n_attr, pool->attr, &t);
}

/* maxpool(f(x)) -> f(maxpool(x)). Returns the index of the new pooling, to be visited again, or NNC_NONE. */
static uint32_t forward(pass *p, uint32_t i)
{
    nnc_node pool = p->g->node[i];
    uint32_t fi = p->g->value[pool.in[0]].node;
    nnc_node f = p->g->node[fi];
    if (!nnc_op_is_ewise(f.op))
        return NNC_NONE;
    int k = tensor_operand(p, &f);
    layers l = layers_of(p, fi, i);
    const char *word = nnc_ops[f.op].name, *rule = "max pooling first",
               *why = order_blocker(p, &f, k);
    uint32_t c;
    int64_t n = bytes_of(p, f.out), m = bytes_of(p, pool.out);
    if (!why && edit_is_output(p, f.out))
        why = remark_text(p, "the result of %s is also an output of the graph", word);
    if (!why && p->e.n_use[f.out] != 1)
        why = remark_text(p, "the result of %s has %u consumers, so it is computed whole anyway",
            word, p->e.n_use[f.out]);
    if (!why && (c = takes_it(p, fi)) != NNC_NONE)
        why = remark_text(p,
            "%s is free as an epilogue of %s in %s; after the pooling it would be a kernel that "
            "moves %s",
            word, nnc_ops[p->g->node[c].op].name, engine_name(p, &p->g->node[c]),
            text_bytes(p, 2 * m));
    if (!why && m >= n)
        why = "the pooled tensor is not smaller";
    if (why) {
        remark_declined(p, &l, rule, "%s", why);
        return NNC_NONE;
    }
    edit_at(p, i);
    nnc_ref x = pool_again(p, &pool, f.in[k]);
    edit_at(p, fi);
    nnc_ref y = x == NNC_NONE ? x : again(p, &f, k, x);
    if (!edit_sync(p))
        return NNC_NONE;
    edit_replace(p, pool.out, y);
    remark_applied(p, &l, rule,
        "%s is non-decreasing and keeps NaN: after the pooling it works on %s instead of %s", word,
        text_bytes(p, m), text_bytes(p, n));
    return p->g->value[x].node;
}

/* f(maxpool(x)) -> maxpool(f(x)), where the contraction that computes x (with its chain) will contain f. */
static bool backward(pass *p, uint32_t i)
{
    nnc_node pool = p->g->node[i];
    const nnc_node *u = edit_only_user(p, pool.out);
    if (!epilogues_come(p) || !u || !nnc_op_is_ewise(u->op))
        return false;
    nnc_node f = *u;
    uint32_t fi = node_index(p, u), at = p->g->value[pool.in[0]].node;
    int k = tensor_operand(p, &f);
    if (k < 0 || f.in[k] != pool.out)
        return false;
    for (int step = 0; step < MAX_CHAIN && nnc_op_is_ewise(p->g->node[at].op); step++) {
        int t = tensor_operand(p, &p->g->node[at]);
        if (t < 0)
            return false;
        at = p->g->value[p->g->node[at].in[t]].node;
    }
    if (!is_contraction(p, &p->g->node[at]))
        return false;
    epilogue e;
    epilogue_plan(p, at, &e);
    const char *why = NULL;
    layers l = layers_of(p, at, i);
    layers_add(p, &l, fi);
    if (e.stop != i ||
        !edit_only_user(p, pool.in[0])) /* the chain ends earlier, or has other users */
        why = remark_text(p, "the epilogue of %s ends before the pooling: %s",
            nnc_ops[p->g->node[at].op].name, e.why ? e.why : "");
    if (!why)
        why = order_blocker(p, &f, k);
    if (!why)
        why = epilogue_allows(p, at, &e, &f, pool.in[0]);
    if (why) {
        remark_declined(p, &l, "activation into the contraction before the pooling", "%s", why);
        return false;
    }
    int64_t m = bytes_of(p, pool.out);
    const char *engine = engine_name(p, &p->g->node[at]);
    edit_at(p, fi);
    nnc_ref x = again(p, &f, k, pool.in[0]);
    edit_at(p, i);
    nnc_ref y = x == NNC_NONE ? x : pool_again(p, &pool, x);
    if (!edit_sync(p))
        return false;
    edit_replace(p, f.out, y);
    remark_applied(p, &l, "activation into the contraction before the pooling",
        "%s is non-decreasing and keeps NaN: before the pooling it is free in %s's epilogue, "
        "without a kernel that moves %s (fuse_epilogue regains the cost)",
        nnc_ops[f.op].name, engine, text_bytes(p, 2 * m));
    return true;
}

nnc_status pass_swap_pool(pass *p)
{
    uint32_t n_node = p->g->n_node;
    for (uint32_t i = 0; i < n_node && p->status == NNC_OK; i++) {
        const nnc_node *n = &p->g->node[i];
        if (n->op == OP_avgpool && !p->e.dead[i] && nnc_op_is_ewise(def_of(p, n->in[0])->op)) {
            layers l = layers_of(p, p->g->value[n->in[0]].node, i);
            remark_declined(p, &l, "max pooling first",
                "this is average pooling: the mean of %s is not %s of the mean",
                nnc_ops[def_of(p, n->in[0])->op].name, nnc_ops[def_of(p, n->in[0])->op].name);
        }
        if (n->op != OP_maxpool || p->e.dead[i] || edit_static(p, n->out))
            continue;
        uint32_t at = i;
        bool moved = false;
        while (p->status == NNC_OK && backward(p, at)) {
            /* the pooling was rebuilt as the last node */
            at = p->g->n_node - 1;
            moved = true;
        }
        while (!moved && p->status == NNC_OK && swap_pool_in_step(p, at, &at))
            ;
        for (; !moved && p->status == NNC_OK && at != NNC_NONE;)
            at = forward(p, at);
    }
    return p->status;
}
