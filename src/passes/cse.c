/* passes/cse.c -- common subexpression elimination: same op, operands, attributes and types. Params are excluded (two weights with
 * equal numbers may be trained separately); inline constants and iotas are compared by content. */
#include "passes/internal.h"

bool attrs_equal(const nnc_node *a, const nnc_node *b)
{
    if (a->n_attr != b->n_attr)
        return false;
    for (int i = 0; i < a->n_attr; i++) {
        const nnc_attr *x = &a->attr[i], *y = &b->attr[i];
        if (x->key != y->key || x->n != y->n || x->i != y->i || memcmp(&x->f, &y->f, sizeof x->f))
            return false;
        if (x->n && memcmp(x->ints, y->ints, (size_t)x->n * sizeof *x->ints))
            return false;
        if ((x->word || y->word) && (!x->word || !y->word || strcmp(x->word, y->word)))
            return false;
    }
    return true;
}

static bool candidate(const nnc_node *n)
{
    if (n->op == OP_constant)
        return n->weight && n->weight->kind == NNC_W_inline;
    return n->op != OP_input && n->op != OP_param && n->op != OP_fused;
}

/* Sorts the operands of commutative ops. */
static void sorted_operands(const nnc_node *n, nnc_ref out[2])
{
    bool swap = n->in[0] > n->in[1];
    out[0] = n->in[swap], out[1] = n->in[!swap];
}

static bool commutes(const nnc_node *n)
{
    return n->n_in == 2 && (nnc_ops[n->op].flags & OF_comm);
}

static uint64_t hash_node(const nnc_graph *g, const nnc_node *n)
{
    const nnc_type *t = nnc_typeof(g, n->out);
    uint64_t h = nnc_hash64(t->dim, t->rank * sizeof *t->dim, (uint64_t)n->op * 64 + t->dtype);
    nnc_ref two[2];
    if (commutes(n)) {
        sorted_operands(n, two);
        h = nnc_hash64(two, sizeof two, h);
    } else if (n->n_in) {
        h = nnc_hash64(n->in, n->n_in * sizeof *n->in, h);
    }
    if (n->op == OP_constant)
        h = nnc_hash64(n->weight->data, (size_t)n->weight->size, h);
    for (int i = 0; i < n->n_attr; i++) {
        const nnc_attr *a = &n->attr[i];
        h = nnc_hash64(&a->i, sizeof a->i, nnc_hash64(&a->f, sizeof a->f, h + a->key));
        h = a->n ? nnc_hash64(a->ints, (size_t)a->n * sizeof *a->ints, h) : h;
    }
    return h;
}

static bool same(const pass *p, const nnc_node *a, const nnc_node *b)
{
    if (placed_apart(a, b) &&
        !(on_one_device(a, b) && edit_static(p, a->out))) /* init has no tasks */
        return false;
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || !attrs_equal(a, b))
        return false;
    for (uint32_t o = 0; o < a->n_out; o++)
        if (!nnc_type_equal(type_of(p, a->out + o), type_of(p, b->out + o)))
            return false;
    if (a->op == OP_constant)
        return a->weight->size == b->weight->size &&
               !memcmp(a->weight->data, b->weight->data, (size_t)a->weight->size);
    nnc_ref x[2], y[2];
    if (commutes(a)) {
        sorted_operands(a, x);
        sorted_operands(b, y);
        return x[0] == y[0] && x[1] == y[1];
    }
    return !a->n_in || !memcmp(a->in, b->in, a->n_in * sizeof *a->in);
}

static void merge(pass *p, uint32_t keep, uint32_t gone)
{
    layers l = layers_of(p, keep, gone);
    const char *word = nnc_ops[p->g->node[keep].op].name;
    bool leaf = nnc_op_class(p->g->node[keep].op) == CL_leaf;
    int64_t bytes = p->e.bytes, launches = p->e.launches;
    for (uint32_t o = 0; o < p->g->node[keep].n_out; o++)
        edit_replace(p, p->g->node[gone].out + o, p->g->node[keep].out + o);
    /* merged constants are not worth a remark, unless a kernel now reads one operand less */
    if (!leaf || p->e.bytes != bytes || p->e.launches != launches)
        remark_applied(p, &l, leaf ? "equal constants" : "equal results",
            "the %s of these layers gives the same values: it is computed once", word);
}

/* only_static: merges only values computed when weights are loaded. */
static nnc_status merge_equal(pass *p, bool only_static)
{
    uint32_t n_node = p->g->n_node;
    size_t cap = 64;
    while (cap < 2u * (size_t)n_node)
        cap *= 2;
    uint32_t *slot = ARENA_NEW(p->a, uint32_t, cap); /* node + 1 */
    NNC_NEED(slot, p->sink);
    for (uint32_t i = 0; i < n_node && p->status == NNC_OK; i++) {
        const nnc_node *n = &p->g->node[i];
        if (!candidate(n) || p->e.dead[i] || (only_static && !edit_static(p, n->out)))
            continue;
        size_t at = hash_node(p->g, n) & (cap - 1);
        while (slot[at] && !same(p, &p->g->node[slot[at] - 1], n))
            at = (at + 1) & (cap - 1);
        if (slot[at])
            merge(p, slot[at] - 1, i);
        else
            slot[at] = i + 1;
    }
    return p->status;
}

nnc_status pass_cse(pass *p)
{
    return merge_equal(p, false);
}

nnc_status merge_of_tasks(pass *p)
{
    bool any = false;
    for (uint32_t i = 0; i < p->g->n_node && !any; i++)
        any = p->g->node[i].task >= 0;
    return any ? merge_equal(p, true) : p->status;
}
