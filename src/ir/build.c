/* ir/build.c -- builders. All call nnc_add_node, which copies its arguments into the graph's arena, infers the types and appends the
 * node. After a failure the graph's status is set and every builder returns NNC_NONE, so that callers check once, at the end. */
#include "ir/graph.h"

#include <string.h>

#define MAX_OPERANDS 65535
/* Number of result types kept on the stack; a split may have more. */
#define FEW 8

const char *nnc_keep_string(nnc_graph *g, const char *s, const char *before)
{
    if (!s)
        return NULL;
    if (before && (s == before || !strcmp(s, before)))
        return before;
    char *c = nnc_arena_strdup(&g->arena, s);
    if (!c)
        nnc_stick(g, nnc_nomem(g->sink));
    return c;
}

bool nnc_keep_attr(nnc_graph *g, nnc_attr *a)
{
    if (a->n > 0 &&
        !(a->ints = nnc_arena_memdup(&g->arena, a->ints, (size_t)a->n * sizeof *a->ints)))
        return false;
    return !a->word || (a->word = nnc_arena_strdup(&g->arena, a->word));
}

/* Copies the attributes, sorted by key. */
static bool copy_attrs(nnc_graph *g, nnc_node *n, const nnc_attr *from, int count)
{
    n->attr = count ? ARENA_NEW(&g->arena, nnc_attr, count) : NULL;
    if (count && !n->attr)
        return false;
    for (int i = 0; i < count; i++) {
        nnc_attr a = from[i];
        if (!nnc_keep_attr(g, &a))
            return false;
        int j = i;
        for (; j > 0 && n->attr[j - 1].key > a.key; j--)
            n->attr[j] = n->attr[j - 1];
        n->attr[j] = a;
    }
    n->n_attr = (uint16_t)count;
    return true;
}

/* Copies everything that *proto refers to except the body; the node is not yet in the graph. */
static bool copy_proto(nnc_graph *g, const nnc_node *p, const nnc_type *typed, nnc_node *n)
{
    const nnc_node none = {0}, *before = g->n_node ? &g->node[g->n_node - 1] : &none;
    *n = *p;
    n->out = NNC_NONE;
    n->origin = nnc_keep_string(g, p->origin, before->origin);
    n->loc.file = nnc_keep_string(g, p->loc.file, before->loc.file);
    n->loc.path = nnc_keep_string(g, p->loc.path, before->loc.path);
    bool ok = copy_attrs(g, n, p->attr, p->n_attr);
    if (p->n_in)
        ok = (n->in = nnc_arena_memdup(&g->arena, p->in, p->n_in * sizeof *p->in)) && ok;
    if (ok && p->weight)
        n->weight = nnc_weight_copy(g, p->weight, typed);
    if (!ok)
        nnc_stick(g, nnc_nomem(g->sink));
    return g->status == NNC_OK;
}

/* Checks that the caller's types agree with the inferred ones; then uses the caller's memory order. */
static bool agree(nnc_graph *g, const nnc_node *n, nnc_type *t, const nnc_type *typed, int count)
{
    for (int i = 0; i < count; i++) {
        const char *what;
        bool valid = nnc_type_check(&typed[i], &what);
        bool fixed = n->op == OP_relayout || n->op == OP_fused; /* the memory order too */
        const nnc_type dense = nnc_type_dense(&typed[i]);
        if (valid && t[i].dtype == typed[i].dtype &&
            (fixed ? nnc_type_same_memory(&t[i], &dense) : nnc_type_same_shape(&t[i], &typed[i]))) {
            t[i] = typed[i];
            continue;
        }
        NNC_LOCAL(nnc_text) is = {0}, said = {0};
        nnc_put_type(&is, &t[i]);
        nnc_put_type(&said, &typed[i]);
        nnc_stick(g, nnc_fail(g->sink, NNC_E_MODEL, nnc_node_loc(n),
                         "%s: the result is given as %s, but is %s", nnc_ops[n->op].name,
                         nnc_text_str(&said), nnc_text_str(&is)));
        return false;
    }
    return true;
}

static nnc_ref append(nnc_graph *g, const nnc_node *n, const nnc_type *t)
{
    if (!ARENA_ROOM(&g->arena, g->node, g->cap_node, g->n_node + (size_t)1) ||
        !ARENA_ROOM(&g->arena, g->value, g->cap_value, g->n_value + (size_t)n->n_out))
        return nnc_stick(g, nnc_nomem(g->sink));
    nnc_ref first = g->n_value;
    for (uint16_t i = 0; i < n->n_out; i++)
        g->value[first + i] = (nnc_value){.type = t[i], .node = g->n_node, .result = i};
    g->n_value += n->n_out;
    g->node[g->n_node] = *n;
    g->node[g->n_node++].out = first;
    return first;
}

/* Gives leaves the caller's type; infers the type of other nodes and compares it with the caller's. */
static nnc_ref infer_and_append(nnc_graph *g, nnc_node *n, const nnc_type *typed)
{
    int count = nnc_result_count(n);
    if (count < 0 || count > MAX_OPERANDS)
        return nnc_stick(g, nnc_fail(g->sink, NNC_E_MODEL, nnc_node_loc(n),
                                "%s: %d results; at most %d are possible", nnc_ops[n->op].name,
                                count, MAX_OPERANDS));
    n->n_out = (uint16_t)count;
    nnc_type few[FEW], *t = few;
    if (count > FEW && !(t = nnc_calloc((size_t)count, sizeof *t)))
        return nnc_stick(g, nnc_nomem(g->sink));
    nnc_ref r = NNC_NONE;
    bool leaf = nnc_op_class(n->op) == CL_leaf;
    if (leaf && typed)
        t[0] = *typed;
    nnc_status s = nnc_infer(g, n, t, g->sink);
    if (s != NNC_OK)
        nnc_stick(g, s);
    else if (leaf || !typed || agree(g, n, t, typed, count))
        r = append(g, n, t);
    if (t != few)
        nnc_free(t);
    return r;
}

/* Checks a leaf's type and the size of its data before anything is copied. Size -1: that of the type. */
static bool check_leaf(nnc_graph *g, const nnc_node *p, const nnc_type *t)
{
    const char *what = "it was built without a type";
    const nnc_weight *w = p->weight;
    if (!t || !nnc_type_check(t, &what)) {
        nnc_stick(g, nnc_fail(g->sink, t ? NNC_E_MODEL : NNC_E_BUG, nnc_node_loc(p), "%s: %s",
                         nnc_ops[p->op].name, what));
        return false;
    }
    if (w && w->kind == NNC_W_inline && w->size >= 0 && w->size != nnc_type_bytes(t)) {
        nnc_stick(g, nnc_fail(g->sink, NNC_E_MODEL, nnc_node_loc(p),
                         "%s: %lld bytes of data for a type of %lld bytes", nnc_ops[p->op].name,
                         (long long)w->size, (long long)nnc_type_bytes(t)));
        return false;
    }
    return true;
}

nnc_ref nnc_add_node(nnc_graph *g, const nnc_node *proto, const nnc_type *typed)
{
    nnc_node n;
    nnc_ref r = NNC_NONE;
    bool missing = false;
    for (int i = 0; i < proto->n_in; i++)
        missing = missing || proto->in[i] >= g->n_value;
    if (g->status == NNC_OK && missing)
        nnc_stick(g, nnc_fail(g->sink, NNC_E_BUG, nnc_node_loc(proto),
                         "%s: built on a value that does not exist", nnc_ops[proto->op].name));
    bool ok = g->status == NNC_OK;
    if (ok && nnc_op_class(proto->op) == CL_leaf)
        ok = check_leaf(g, proto, typed);
    if (ok && copy_proto(g, proto, typed, &n))
        r = infer_and_append(g, &n, typed);
    if (r == NNC_NONE)
        nnc_graph_destroy(proto->body);
    return r;
}

/* ---- the public builders --------------------------------------------------------------------- */

static nnc_ref build(nnc_graph *g, nnc_op op, int n_in, const nnc_ref *in, int n_attr,
    const nnc_attr *attr, const nnc_type *type, const nnc_weight *w)
{
    if (g->status != NNC_OK)
        return NNC_NONE;
    nnc_node p = {.op = (uint16_t)op,
        .n_in = (uint16_t)n_in,
        .n_attr = (uint16_t)n_attr,
        .device = g->device,
        .task = nnc_op_class(op) == CL_leaf ? -1 : g->task,
        .micro = nnc_op_class(op) == CL_leaf ? 0 : g->micro,
        .in = (nnc_ref *)in,
        .attr = (nnc_attr *)attr,
        .origin = g->origin,
        .loc = g->loc,
        .weight = (nnc_weight *)w};
    if (n_in > MAX_OPERANDS)
        return nnc_stick(g,
            nnc_fail(g->sink, NNC_E_MODEL, nnc_node_loc(&p),
                "%s: %d operands; at most %d are possible", nnc_ops[op].name, n_in, MAX_OPERANDS));
    return nnc_add_node(g, &p, type);
}

nnc_ref nnc_build(
    nnc_graph *g, nnc_op op, int n_in, const nnc_ref *in, int n_attr, const nnc_attr *attr)
{
    return build(g, op, n_in, in, n_attr, attr, NULL, NULL);
}

nnc_ref nnc_build_typed(nnc_graph *g, nnc_op op, int n_in, const nnc_ref *in, int n_attr,
    const nnc_attr *attr, const nnc_type *type)
{
    return build(g, op, n_in, in, n_attr, attr, type, NULL);
}

nnc_ref nnc_input(nnc_graph *g, const char *name, const nnc_type *t)
{
    nnc_ref r = nnc_build_typed(g, OP_input, 0, NULL, 0, NULL, t);
    nnc_set_name(g, r, name);
    return g->status == NNC_OK ? r : NNC_NONE;
}

nnc_ref nnc_param(nnc_graph *g, const nnc_type *t, const nnc_weight *w)
{
    nnc_ref r = build(g, OP_param, 0, NULL, 0, NULL, t, w);
    nnc_set_name(g, r, w->name);
    return g->status == NNC_OK ? r : NNC_NONE;
}

nnc_ref nnc_constant(nnc_graph *g, const nnc_type *t, const void *data)
{
    nnc_weight w = {.kind = NNC_W_inline, .data = data, .size = -1};
    return build(g, OP_constant, 0, NULL, 0, NULL, t, &w);
}

nnc_ref nnc_scalar(nnc_graph *g, nnc_dtype d, double v)
{
    uint64_t bits = 0;
    nnc_type t = nnc_type_make(d, 0, NULL);
    nnc_set_f64(d, &bits, 0, v);
    return nnc_constant(g, &t, &bits);
}

nnc_ref nnc_reshape(nnc_graph *g, nnc_ref x, int rank, const int64_t *dim)
{
    nnc_attr a = nnc_av(AT_shape, rank, dim);
    return nnc_build(g, OP_reshape, 1, &x, 1, &a);
}

nnc_ref nnc_transpose(nnc_graph *g, nnc_ref x, const int64_t *perm)
{
    if (x >= g->n_value)
        return nnc_build1(g, OP_transpose, x);
    nnc_attr a = nnc_av(AT_perm, g->value[x].type.rank, perm);
    return nnc_build(g, OP_transpose, 1, &x, 1, &a);
}

nnc_ref nnc_broadcast(nnc_graph *g, nnc_ref x, int rank, const int64_t *dim)
{
    nnc_attr a = nnc_av(AT_shape, rank, dim);
    return nnc_build(g, OP_broadcast, 1, &x, 1, &a);
}

nnc_ref nnc_cut(nnc_graph *g, nnc_ref x, int64_t axis, int64_t from, int64_t to)
{
    const nnc_attr a[] = {
        nnc_av(AT_axes, 1, &axis), nnc_av(AT_starts, 1, &from), nnc_av(AT_ends, 1, &to)};
    return nnc_build(g, OP_slice, 1, &x, 3, a);
}

nnc_ref nnc_concat(nnc_graph *g, int n, const nnc_ref *x, int64_t axis)
{
    const nnc_attr a = nnc_ai(AT_axis, axis);
    return n == 1 ? x[0] : nnc_build(g, OP_concat, n, x, 1, &a);
}

nnc_ref nnc_reduce(
    nnc_graph *g, nnc_op op, nnc_ref x, int n_axes, const int64_t *axes, bool keepdims)
{
    bool arg = op == OP_argmax || op == OP_argmin;
    nnc_attr a[2] = {nnc_av(AT_axes, n_axes, axes), nnc_ai(AT_keepdims, keepdims)};
    if (arg)
        a[0] = nnc_ai(AT_axis, n_axes > 0 ? axes[0] : 0);
    return nnc_build(g, op, 1, &x, 2, a);
}

nnc_ref nnc_cast(nnc_graph *g, nnc_ref x, nnc_dtype to)
{
    nnc_attr a = nnc_ai(AT_to, to);
    return nnc_build(g, OP_cast, 1, &x, 1, &a);
}

nnc_ref nnc_relayout(nnc_graph *g, nnc_ref x, const uint8_t *order)
{
    if (x >= g->n_value || g->status != NNC_OK)
        return nnc_build1(g, OP_relayout, x);
    nnc_type t = g->value[x].type;
    nnc_type_set_order(&t, order);
    if (nnc_type_same_memory(&t, &g->value[x].type))
        return x;
    int64_t wide[NNC_MAX_RANK];
    for (int i = 0; i < t.rank; i++)
        wide[i] = order[i];
    nnc_attr a = nnc_av(AT_order, t.rank, wide);
    return nnc_build(g, OP_relayout, 1, &x, 1, &a);
}

nnc_ref nnc_row_major(nnc_graph *g, nnc_ref x)
{
    static const uint8_t order[NNC_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    const nnc_node *n = nnc_def(g, x);
    const nnc_node before = nnc_take_place(g, n);
    x = nnc_relayout(g, x, order);
    nnc_take_place(g, &before);
    return x;
}

nnc_ref nnc_fused(nnc_graph *g, nnc_graph *body, int n_in, const nnc_ref *in)
{
    nnc_node p = {.op = OP_fused,
        .n_in = (uint16_t)n_in,
        .device = g->device,
        .task = g->task,
        .micro = g->micro,
        .in = (nnc_ref *)in,
        .origin = g->origin,
        .loc = g->loc,
        .body = body};
    if (body && body->status != NNC_OK)
        nnc_stick(g, body->status);
    return nnc_add_node(g, &p, NULL);
}

static void add_output(nnc_graph *g, nnc_ref r, const char *name, nnc_ref state)
{
    if (g->status != NNC_OK)
        return;
    if (r >= g->n_value || (state != NNC_NONE && state >= g->n_value)) {
        nnc_stick(
            g, nnc_fail0(g->sink, NNC_E_BUG, "output \"%s\": no such value", name ? name : ""));
        return;
    }
    size_t need = g->n_output + (size_t)1, cap[3] = {g->cap_output, g->cap_output, g->cap_output};
    char *copy = nnc_arena_strdup(&g->arena, name);
    if ((name && !copy) || !ARENA_ROOM(&g->arena, g->output, cap[0], need) ||
        !ARENA_ROOM(&g->arena, g->output_name, cap[1], need) ||
        !ARENA_ROOM(&g->arena, g->output_state, cap[2], need)) {
        nnc_stick(g, nnc_nomem(g->sink));
        return;
    }
    uint32_t at = g->n_output;
    g->cap_output = cap[0];
    for (; state == NNC_NONE && at > 0 && g->output_state[at - 1] != NNC_NONE; at--) {
        g->output[at] = g->output[at - 1]; /* updates stay last */
        g->output_state[at] = g->output_state[at - 1];
        g->output_name[at] = g->output_name[at - 1];
    }
    g->output[at] = r;
    g->output_state[at] = state;
    g->output_name[at] = copy;
    g->n_output++;
}

void nnc_output(nnc_graph *g, nnc_ref r, const char *name)
{
    add_output(g, r, name, NNC_NONE);
}

void nnc_output_empty(nnc_graph *g, const nnc_type *t, const char *name)
{
    const char *copy = nnc_arena_strdup(&g->arena, name);
    int64_t n = 1; /* product without zero extents: sizes are computed as products in any order */
    for (int i = 0; i < t->rank; i++)
        n = nnc_mul_sat(n, nnc_max64(t->dim[i], 1));
    if (n > (int64_t)1 << 46)
        nnc_stick(
            g, nnc_fail0(g->sink, NNC_E_MODEL,
                   "the output `%.100s` has no elements, but its other extents are beyond 2^46",
                   name));
    else if (!copy || !ARENA_ROOM(&g->arena, g->empty, g->cap_empty, g->n_empty + (size_t)1))
        nnc_stick(g, nnc_nomem(g->sink));
    else
        g->empty[g->n_empty++] = (nnc_empty){copy, *t};
}

void nnc_update(nnc_graph *g, nnc_ref state, nnc_ref value)
{
    add_output(g, value, NULL, state);
    if (g->status == NNC_OK)
        nnc_def(g, state)->state = true;
}

void nnc_accumulate(nnc_graph *g, nnc_ref state, nnc_ref value)
{
    nnc_update(g, state, value);
    if (g->status == NNC_OK)
        nnc_def(g, state)->accumulates = true;
}

bool nnc_output_is_gradient(const nnc_graph *g, uint32_t i)
{
    const char *name = g->output_name && i < nnc_result_outputs(g) ? g->output_name[i] : NULL;
    const size_t n = name ? strlen(name) : 0, m = sizeof NNC_GRADIENT - 1;
    bool input = false, loss = false;
    for (uint32_t k = 0; n > m && k < g->n_node && !strcmp(name + n - m, NNC_GRADIENT); k++) {
        const nnc_node *d = &g->node[k];
        const char *own = d->op == OP_input ? g->value[d->out].name : NULL;
        input = input || (own && strlen(own) == n - m && !strncmp(own, name, n - m));
        loss = loss || (d->origin && nnc_path_is(d->origin, strcspn(d->origin, "+"), "/loss"));
    }
    return input && loss;
}

bool nnc_graph_is_step(const nnc_graph *g)
{
    const uint32_t results = nnc_result_outputs(g);
    bool step = results < g->n_output;
    for (uint32_t i = 0; i < results && !step; i++)
        step = nnc_output_is_gradient(g, i);
    return step;
}

uint32_t nnc_result_outputs(const nnc_graph *g)
{
    uint32_t n = g->n_output;
    while (n && g->output_state[n - 1] != NNC_NONE)
        n--;
    return n;
}
