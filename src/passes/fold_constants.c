/* passes/fold_constants.c -- evaluates what depends on small inline constants only, with the reference evaluator, a connected
 * component of the graph at a time. Params are not evaluated, since compiling does not read their numbers.
 *
 * From -O2 on, float results are rounded once from f64, which is more accurate than computing in the narrow type. The level -O1 keeps every
 * bit: it folds movement, integers, selection, and + - *, which the run would compute identically. f64 has more than twice the precision of
 * f32, so rounding an f64 sum or product once more gives the same number. */
#include "passes/internal.h"

#include <stdlib.h>

enum {
    MAX_NUMEL = 4096, /* elements of a folded result and of each operand */
    MAX_WORK = 1 << 22, /* most multiply-adds of one component */
};

static bool all_integers(const nnc_graph *g, const nnc_node *n)
{
    bool ints = nnc_dtype_kind(nnc_typeof(g, n->out)->dtype) == NNC_INT;
    for (int k = 0; k < n->n_in; k++)
        ints = ints && nnc_dtype_kind(nnc_typeof(g, n->in[k])->dtype) == NNC_INT;
    return ints;
}

static bool rounds_once(nnc_op op)
{
    return op == OP_add || op == OP_sub || op == OP_mul;
}

/* True when the run computes the same bits as the evaluator. */
static bool keeps_bits(const nnc_graph *g, const nnc_node *n)
{
    nnc_class k = nnc_op_class(n->op);
    if (k == CL_move || rounds_once(n->op) || n->op == OP_select)
        return true;
    if (k != CL_ewise && k != CL_reduce)
        return false;
    return (nnc_ops[n->op].flags & (OF_exact | OF_bool)) || all_integers(g, n);
}

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
    return p->o->level != 1 || keeps_bits(p->g, n);
}

/* True when v, computed by a foldable node, is used by a node that stays. */
static bool frontier(const pass *p, const bool *known, nnc_ref v)
{
    if (edit_is_output(p, v))
        return true;
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);)
        if (!known[p->g->node[i].out])
            return true;
    return false;
}

static nnc_ref make_constant(pass *p, const nnc_type *type, const nnc_rval *v)
{
    nnc_ref r = nnc_constant_of(p->g, v);
    /* another order than row-major would need a relayout; not worth it for constants */
    return r != NNC_NONE && nnc_type_equal(type_of(p, r), type) ? r : NNC_NONE;
}

/* ---- components ---------------------------------------------------------------------------------------------------- */

/* Connected components of foldable nodes; piece[] of each is its first node. */
typedef struct pieces {
    uint32_t *piece, *node; /* by node (union-find); nodes sorted by component */
    uint32_t n;
} pieces;

static uint32_t piece_of(const pieces *s, uint32_t i)
{
    return find_root(s->piece, i);
}

static int by_piece(const void *x, const void *y, void *ctx)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return nnc_then(nnc_cmp(piece_of(ctx, a), piece_of(ctx, b)), nnc_cmp(a, b));
}

static bool find_pieces(pass *p, const bool *known, pieces *s)
{
    const nnc_graph *g = p->g;
    s->piece = ARENA_NEW(p->a, uint32_t, g->n_node + 1);
    s->node = ARENA_NEW(p->a, uint32_t, g->n_node + 1);
    if (!s->piece || !s->node)
        return false;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        s->piece[i] = i;
        if (n->op == OP_constant || !n->n_out || !known[n->out] || p->e.dead[i])
            continue;
        s->node[s->n++] = i;
        for (int k = 0; k < n->n_in; k++) {
            uint32_t d = g->value[n->in[k]].node;
            if (g->node[d].op != OP_constant)
                join_roots(s->piece, d, i);
        }
    }
    qsort_r(s->node, s->n, sizeof *s->node, by_piece, s);
    return true;
}

/* ---- folding --------------------------------------------------------------------------------- */

typedef struct folder {
    pass *p;
    const bool *known;
    nnc_ref *map; /* by value of the graph: the value in the component's own graph */
    uint32_t *made; /* by value: the component it was mapped for, 1-based */
    uint32_t piece;
    nnc_ref *want; /* the frontier */
    int n_want;
} folder;

static nnc_ref copy_operand(folder *f, nnc_graph *g, nnc_ref v)
{
    if (f->made[v] != f->piece) { /* otherwise computed in the component, or copied */
        f->map[v] = nnc_copy_node(g, f->p->g, def_of(f->p, v), NULL);
        f->made[v] = f->piece;
    }
    return f->map[v];
}

/* r, rounded to its type as in a run. */
static nnc_ref rounded(nnc_graph *g, const nnc_node *n, nnc_ref r)
{
    nnc_dtype d = nnc_typeof(g, r)->dtype;
    if (!rounds_once(n->op) || !nnc_is_float(d) || d == DT_f64)
        return r;
    nnc_attr to = nnc_ai(AT_to, d);
    return nnc_build(g, OP_cast, 1, &r, 1, &to);
}

static void copy_node(folder *f, nnc_graph *g, uint32_t i)
{
    pass *p = f->p;
    const nnc_node *n = &p->g->node[i];
    nnc_ref *in = ARENA_NEW(p->a, nnc_ref, n->n_in + 1);
    if (!in) {
        g->status = nnc_nomem(p->sink);
        return;
    }
    for (int k = 0; k < n->n_in; k++)
        in[k] = copy_operand(f, g, n->in[k]);
    nnc_ref r = nnc_copy_node(g, p->g, n, in);
    for (uint32_t o = 0; o < n->n_out && r != NNC_NONE; o++) {
        nnc_ref v = n->out + o;
        f->map[v] = rounded(g, n, r + o);
        f->made[v] = f->piece;
        if (frontier(p, f->known, v) && f->map[v] != NNC_NONE) {
            f->want[f->n_want++] = v;
            nnc_output(g, f->map[v], "y");
        }
    }
}

static void use_number(pass *p, nnc_ref v, const nnc_rval *val)
{
    nnc_type t = *type_of(p, v);
    uint32_t from = p->g->value[v].node;
    layers l = layers_of(p, from, NNC_NONE);
    const char *word = nnc_ops[p->g->node[from].op].name;
    edit_at(p, from);
    nnc_ref c = make_constant(p, &t, val);
    if (c == NNC_NONE)
        return;
    edit_replace(p, v, c);
    long long n = (long long)nnc_type_numel(&t);
    remark_applied(p, &l, "constant operands",
        "%s of constants only: its %lld number%s computed now", word, n, n == 1 ? " is" : "s are");
}

static nnc_status fold(folder *f, nnc_graph *sub, uint32_t last)
{
    pass *p = f->p;
    int64_t ops, peak;
    nnc_eval_cost(sub, &ops, &peak);
    if (ops > MAX_WORK) {
        decline_node(p, last, "constant operands",
            "its numbers are known, but take %lld multiply-adds to compute, more than %d: init "
            "does",
            (long long)ops, MAX_WORK);
        return p->status;
    }
    nnc_rval *val = ARENA_NEW(p->a, nnc_rval, f->n_want);
    NNC_NEED(val, p->sink);
    NNC_TRY(nnc_eval(sub, NULL, 1, val, p->sink));
    for (int i = 0; i < f->n_want; i++) {
        if (p->status == NNC_OK)
            use_number(p, f->want[i], &val[i]);
        nnc_rval_free(&val[i]);
    }
    return p->status;
}

/* Folds nodes [from, to) of the list, one component. */
static nnc_status fold_piece(folder *f, const pieces *s, uint32_t from, uint32_t to)
{
    nnc_graph *sub = nnc_graph_create("constants", f->p->sink);
    NNC_NEED(sub, f->p->sink);
    f->piece++;
    f->n_want = 0;
    for (uint32_t k = from; k < to && sub->status == NNC_OK; k++)
        copy_node(f, sub, s->node[k]);
    nnc_status st = sub->status;
    if (st == NNC_OK && f->n_want)
        st = fold(f, sub, s->node[to - 1]);
    nnc_graph_destroy(sub);
    return st;
}

nnc_status pass_fold_constants(pass *p)
{
    const nnc_graph *g = p->g;
    bool *known = ARENA_NEW(p->a, bool, g->n_value + 1);
    folder f = {.p = p, .known = known};
    NNC_NEED(known && ARENA_ARRAYS(p->a, g->n_value + 1, f.map, f.made, f.want), p->sink);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (foldable(p, known, i))
            for (uint32_t o = 0; o < g->node[i].n_out; o++)
                known[g->node[i].out + o] = true;
    pieces s = {0};
    NNC_NEED(find_pieces(p, known, &s), p->sink);
    for (uint32_t i = 0, k; i < s.n; i = k) {
        uint32_t piece = piece_of(&s, s.node[i]);
        for (k = i + 1; k < s.n && piece_of(&s, s.node[k]) == piece;)
            k++;
        NNC_TRY(fold_piece(&f, &s, i, k));
    }
    return p->status;
}
