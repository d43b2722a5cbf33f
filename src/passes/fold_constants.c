/* passes/fold_constants.c -- computes what depends on small inline constants alone, with the
 * reference evaluator: float results are rounded once from f64, which for one + - * / or sqrt is the
 * same as computing in the narrow type, and nearer to the truth for several in a row. Params are never
 * touched: their numbers are not read while compiling. */
#include "passes/internal.h"

enum {
    MAX_NUMEL = 4096, /* elements of a folded result and of each operand */
    MAX_WORK = 1 << 22, /* multiply-adds of all folding together */
};

static bool small(const nnc_graph *g, nnc_ref v)
{
    return nnc_type_numel(nnc_typeof(g, v)) <= MAX_NUMEL;
}

static bool foldable(const pass *p, const bool *known, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    if (n->op == OP_constant)
        return n->weight && n->weight->kind == NNC_W_inline && small(p->g, n->out);
    if (nnc_op_class(n->op) == CL_leaf || n->op == OP_fused || n->n_in == 0)
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (!known[n->in[k]])
            return false;
    for (uint32_t o = 0; o < n->n_out; o++)
        if (!small(p->g, n->out + o))
            return false;
    return true;
}

/* Is v, computed by a foldable node, needed by something that stays? */
static bool frontier(const pass *p, const bool *known, nnc_ref v)
{
    if (edit_is_output(p, v))
        return true;
    for (uint32_t u = p->e.head[v]; u; u = p->e.uses[u - 1].next) {
        const nnc_node *n = &p->g->node[p->e.uses[u - 1].node];
        if (!known[n->out])
            return true;
    }
    return false;
}

static nnc_ref make_constant(pass *p, const nnc_type *type, const nnc_rval *v)
{
    nnc_type t = nnc_type_make((nnc_dtype)type->dtype, type->rank, type->dim);
    void *data = nnc_arena_alloc(p->a, (size_t)nnc_type_bytes(&t), 1);
    if (!data) {
        p->status = nnc_nomem(p->sink);
        return NNC_NONE;
    }
    int64_t n = nnc_type_numel(&t);
    for (int64_t i = 0; i < n; i++)
        v->f ? nnc_set_f64(t.dtype, data, i, v->f[i]) : nnc_set_i64(t.dtype, data, i, v->i[i]);
    nnc_ref r = nnc_constant(p->g, &t, data);
    /* an order other than row-major would need a relayout; constants are cheap to leave alone */
    return nnc_type_equal(&t, type) ? r : NNC_NONE;
}

/* Copies the foldable part into a graph of its own, whose outputs are the frontier. */
static nnc_graph *extract(pass *p, const bool *known, nnc_ref *want, int *n_want)
{
    nnc_graph *g = nnc_graph_create("constants", p->sink);
    nnc_ref *map = ARENA_NEW(p->a, nnc_ref, p->g->n_value + 1);
    if (!g || !map) {
        nnc_graph_destroy(g);
        return NULL;
    }
    *n_want = 0;
    for (uint32_t i = 0; i < p->g->n_node && g->status == NNC_OK; i++) {
        const nnc_node *n = &p->g->node[i];
        if (!known[n->out] || p->e.dead[i])
            continue;
        nnc_ref *in = ARENA_NEW(p->a, nnc_ref, n->n_in + 1);
        if (!in) {
            g->status = nnc_nomem(p->sink);
            break;
        }
        for (int k = 0; k < n->n_in; k++)
            in[k] = map[n->in[k]];
        nnc_ref r = nnc_copy_node(g, p->g, n, in);
        for (uint32_t o = 0; o < n->n_out && r != NNC_NONE; o++) {
            map[n->out + o] = r + o;
            if (n->op != OP_constant && frontier(p, known, n->out + o)) {
                want[(*n_want)++] = n->out + o;
                nnc_output(g, r + o, "y");
            }
        }
    }
    return g;
}

static nnc_status fold(pass *p, nnc_graph *sub, const nnc_ref *want, int n_want)
{
    int64_t ops, peak;
    nnc_eval_cost(sub, &ops, &peak);
    if (ops > MAX_WORK)
        return NNC_OK;
    nnc_rval *val = ARENA_NEW(p->a, nnc_rval, n_want);
    if (!val)
        return nnc_nomem(p->sink);
    NNC_TRY(nnc_eval(sub, NULL, NULL, 1, val, p->sink));
    for (int i = 0; i < n_want && p->status == NNC_OK; i++) {
        nnc_type t = *nnc_typeof(p->g, want[i]);
        uint32_t from = p->g->value[want[i]].node;
        layers l = layers_of(p, from, NNC_NONE);
        const char *word = nnc_ops[p->g->node[from].op].name;
        edit_at(p, from);
        nnc_ref c = make_constant(p, &t, &val[i]);
        if (c == NNC_NONE)
            continue;
        edit_replace(p, want[i], c);
        long long n = (long long)nnc_type_numel(&t);
        remark_applied(p, &l, "constant operands",
            "%s of constants alone: its %lld number%s computed now", word, n,
            n == 1 ? " is" : "s are");
    }
    for (int i = 0; i < n_want; i++)
        nnc_rval_free(&val[i]);
    return p->status;
}

nnc_status pass_fold_constants(pass *p)
{
    const nnc_graph *g = p->g;
    bool *known = ARENA_NEW(p->a, bool, g->n_value + 1);
    nnc_ref *want = ARENA_NEW(p->a, nnc_ref, g->n_value + 1);
    if (!known || !want)
        return nnc_nomem(p->sink);
    bool any = false;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (foldable(p, known, i)) {
            any = any || g->node[i].op != OP_constant;
            for (uint32_t o = 0; o < g->node[i].n_out; o++)
                known[g->node[i].out + o] = true;
        }
    if (!any)
        return NNC_OK;
    int n_want = 0;
    nnc_graph *sub = extract(p, known, want, &n_want);
    nnc_status s = !sub ? nnc_nomem(p->sink) : sub->status;
    if (s == NNC_OK && n_want)
        s = fold(p, sub, want, n_want);
    nnc_graph_destroy(sub);
    return s;
}
