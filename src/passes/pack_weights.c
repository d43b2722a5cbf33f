/* passes/pack_weights.c -- packs weights of contractions that become generated kernels into panels, once, in `init`. The outputs of a
 * register block are adjacent, for one term of the sum after the other, so that the kernel reads weights contiguously.
 *
 * Second operands that are computed at run time are packed at each run, where the product is large enough.
 *
 *     conv(x, w)  ->  fused(x, p) { w' = reshape(transpose(p)); conv(x, w') },   p = transpose(reshape(w)): [O/n, window, I, n].
 *
 *     lstm(x, R)  ->  lstm(x, p),   p = transpose(reshape(R)): [H/n, H, gates, n]; recurrent_grad: [H/n, gates H, n].
 *
 * p consists of ordinary static nodes; inside a contraction's kernel w' is an index map. Where no n divides the outputs, they form a single
 * panel. Terminates: a packed weight is read through a reshape or transpose, no longer directly. */
#include "kernel/kernel.h"
#include "passes/internal.h"
#include "schedule/schedule.h"

typedef struct packing {
    int rank; /* of the panels */
    int divided; /* a product's dimension over the outputs; -1: of others */
    int64_t cut[NNC_MAX_RANK]; /* the weights' dimensions with the outputs divided into panels */
    int64_t perm[NNC_MAX_RANK], back[NNC_MAX_RANK];
} packing;

/* Panels that exist already, for contractions that share their weights. */
typedef struct panels_made {
    nnc_ref weights, panels;
    packing k;
    int next; /* in a list; -1: none */
} panels_made;

typedef struct packs {
    panels_made *at;
    size_t cap;
    int n, *list, n_list; /* lists by weights modulo their number; -1: empty */
} packs;

int64_t panel_of(const nnc_target *t, nnc_dtype d, int64_t outputs)
{
    const int64_t pair = t->vector_bits / 4 / nnc_max64(nnc_dtype_size(d), 4);
    return outputs % pair == 0 ? pair : 0;
}

/* Returns the number of outputs of a group of contraction n. *o: the dimension of its second operand over these outputs, *terms: the one
 * over the terms of the sum (channels). */
static int64_t outputs_of(const nnc_node *n, const nnc_type *w, int *o, int *terms)
{
    bool product = n->op == OP_matmul;
    *o = product ? w->rank - 1 : n->op == OP_conv_transpose;
    *terms = product ? w->rank - 2 : n->op != OP_conv_transpose;
    if (product && nnc_attr_int(n, AT_transpose_b, 0)) {
        *o = w->rank - 2;
        *terms = w->rank - 1;
    }
    return n->op == OP_conv ? w->dim[0] / nnc_attr_int(n, AT_groups, 1) : w->dim[*o];
}

/* Plans the packing of contraction n's second operand: batches, panels of outputs, window elements, terms, outputs. */
static void plan_packing(const nnc_target *t, const nnc_node *n, const nnc_type *w, packing *k)
{
    int o, terms;
    bool product = n->op == OP_matmul;
    int64_t outputs = outputs_of(n, w, &o, &terms),
            wide = panel_of(t, (nnc_dtype)w->dtype, outputs);
    if (nnc_attr_int(n, AT_groups, 1) > 1 && outputs > 1 && !wide) /* a panel is of one group */
        wide = outputs;
    k->divided = product ? o : -1;
    int at[NNC_MAX_RANK] = {0}, to = 0; /* position of each dimension after dividing the outputs */
    k->rank = 0;
    for (int d = 0; d < w->rank; d++) {
        if (d == o && wide)
            k->cut[k->rank++] = w->dim[d] / wide;
        at[d] = k->rank;
        k->cut[k->rank++] = d == o && wide ? wide : w->dim[d];
    }
    for (int d = 0; product && d < w->rank - 2; d++)
        k->perm[to++] = at[d];
    if (wide)
        k->perm[to++] = at[o] - 1;
    for (int d = 0; !product && d < w->rank; d++)
        if (d != o && d != terms)
            k->perm[to++] = at[d];
    k->perm[to++] = at[terms];
    k->perm[to++] = at[o];
    for (int d = 0; d < k->rank; d++)
        k->back[k->perm[d]] = d;
}

/* True when the weights are already in panel order. */
static bool is_packed(const packing *k, const nnc_type *w)
{
    for (int d = 0; d < k->rank; d++)
        if (k->perm[d] != d)
            return false;
    return k->rank == w->rank;
}

/* Why contraction n's second operand v is not packed, or NULL. y: the type of its result. */
static const char *blocker(const pass *p, const nnc_node *n, const nnc_type *y, nnc_ref v)
{
    enum {
        FEW_ROWS =
            8, /* of a product: the weights are read once, along the sum (nnc_product_strips) */
        LONG_SUM = 256, /* combining a vector's lanes is a small part of such a sum */
        MANY_ROWS = 32, /* copying the weights at each run takes a fraction of the product */
        /* The same limit for products with windows, in multiply-adds. */
        MANY_TERMS = 1 << 14,
    };
    const nnc_type *w = nnc_typeof(p->g, v);
    int64_t matrices = 1;
    int o, terms;
    if (n->op == OP_conv_wgrad)
        return "it has no weights";
    if (n->in[0] == n->in[1])
        return "its source and its weights are the same tensor";
    int64_t groups = nnc_attr_int(n, AT_groups, 1);
    bool conv = n->op == OP_conv || n->op == OP_conv_transpose;
    bool depthwise = groups == w->dim[0] && w->dim[1] == 1;
    if (groups > 1 && !depthwise && outputs_of(n, w, &o, &terms) == 1)
        return "a group has a single output, and its sum reads no neighbouring weights";
    if (w->rank + 1 > NNC_MAX_RANK || !nnc_type_is_row_major(w) || nnc_type_numel(w) == 0)
        return "its weights are not row-major";
    for (int d = 0; n->op == OP_matmul && d < w->rank - 2; d++)
        matrices *= w->dim[d];
    int64_t rows = nnc_type_numel(y) / (y->dim[conv ? 1 : y->rank - 1] * matrices);
    bool along = n->op == OP_linear || nnc_attr_int(n, AT_transpose_b, 0) ||
                 (n->op == OP_conv && groups == 1 && nnc_type_numel(w) == w->dim[0] * w->dim[1]);
    int64_t sum = n->op == OP_matmul ? w->dim[w->rank - 1] : w->dim[1];

    /* unpacked, a vector's neighbouring weights are a window apart */
    const int64_t each = w->dim[0] * w->dim[1], all = nnc_type_numel(w);
    const bool window = conv && groups == 1 && all > each && rows * all >= MANY_TERMS;
    if (!edit_static(p, v) && rows < MANY_ROWS && !window)
        return "its weights are computed at run time";
    /* results of init are copied in any case, and panels are read faster */
    if (rows <= FEW_ROWS && along && sum >= LONG_SUM && !made_in_init(p, v))
        return "with so few rows each weight is read once, unpacked";
    return NULL;
}

const char *panels_blocked(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    int operand;
    const nnc_node *core = contraction_in(n, 1, &operand);
    if (!core || operand < 0)
        return "its weights are computed in its kernel";
    const nnc_graph *g = n->op == OP_fused ? n->body : p->g;
    return blocker(p, core, nnc_typeof(g, core->out), n->in[operand]);
}

typedef struct unpacking {
    const packing *k;
    const nnc_type *w; /* of the weights */
} unpacking;

/* A member that reads panels through the inverse of the packing. */
static nnc_ref unpacked(
    void *ctx, nnc_graph *body, const nnc_graph *from, const nnc_node *m, const nnc_ref *in)
{
    const unpacking *u = ctx;
    return m ? nnc_copy_node(body, from, m, in)
             : nnc_reshape(body, nnc_transpose(body, *in, u->k->back), u->w->rank, u->w->dim);
}

static bool same_packing(const packing *x, const packing *y)
{
    return x->rank == y->rank && !memcmp(x->cut, y->cut, sizeof x->cut) &&
           !memcmp(x->perm, y->perm, sizeof x->perm);
}

/* The packing of a transpose's operand that makes the same panels as k makes of its result: one copy instead of two. */
static nnc_ref through_transpose(const nnc_node *d, packing *k)
{
    const int64_t *perm;
    const int rank = nnc_attr_ints(d, AT_perm, &perm);
    int first[NNC_MAX_RANK + 1] = {0}, to[NNC_MAX_RANK] = {0}, n = 0;
    const packing of = *k;
    for (int r = 0; r < rank; r++) /* the divided dimension is two */
        first[r + 1] = first[r] + 1 + (of.rank > rank && of.divided == r);
    for (int e = 0; e < rank; e++)
        for (int r = 0; r < rank; r++)
            for (int i = first[r]; perm[r] == e && i < first[r + 1]; i++) {
                to[i] = n;
                k->cut[n++] = of.cut[i];
            }
    for (int i = 0; i < of.rank; i++)
        k->perm[i] = to[of.perm[i]];
    return d->in[0];
}

static packs no_packs(pass *p, int n_list)
{
    packs s = {.list = PASS_NEW(p, int, n_list), .n_list = n_list};
    if (s.list)
        memset(s.list, 0xff, (size_t)n_list * sizeof *s.list);
    return s;
}

/* The panels of value v for node i, computed before it; NNC_NONE: p->status. */
static nnc_ref panels_of(pass *p, packs *s, uint32_t i, nnc_ref v, const packing *k)
{
    int *list = &s->list[v % (nnc_ref)s->n_list];
    for (int j = s->at ? *list : -1; j >= 0; j = s->at[j].next)
        if (s->at[j].weights == v && same_packing(&s->at[j].k, k) &&
            on_one_device(nnc_def(p->g, s->at[j].panels), &p->g->node[i]))
            return s->at[j].panels;
    edit_at(p, i);
    const nnc_node *d = nnc_def(p->g, v);
    packing from = *k;
    const bool turned = d->op == OP_transpose && k->divided >= 0 && !edit_static(p, v) &&
                        nnc_type_is_row_major(nnc_typeof(p->g, d->in[0]));
    const nnc_ref source = turned ? through_transpose(d, &from) : v;
    nnc_ref panels = nnc_transpose(p->g, nnc_reshape(p->g, source, from.rank, from.cut), from.perm);
    edit_sync(p);
    if (!ARENA_ROOM(p->a, s->at, s->cap, s->n + 1))
        pass_nomem(p);
    if (p->status != NNC_OK)
        return NNC_NONE;
    s->at[s->n] = (panels_made){v, panels, *k, *list};
    *list = s->n++;
    return panels;
}

/* Rebuilds node i with panels instead of its operand; NNC_NONE: p->status. */
static nnc_ref pack_operand(pass *p, packs *s, uint32_t i, int operand, const packing *k)
{
    nnc_node n = p->g->node[i];
    nnc_ref *in = PASS_NEW(p, nnc_ref, n.n_in);
    nnc_ref panels = in ? panels_of(p, s, i, n.in[operand], k) : NNC_NONE;
    if (panels == NNC_NONE)
        return NNC_NONE;
    nnc_graph *body = nnc_graph_create("body", p->sink);
    const nnc_type t = *nnc_typeof(p->g, panels), w = *nnc_typeof(p->g, n.in[operand]);
    n = p->g->node[i];
    if (!body || !region_copy(p, body, &n, operand, &t, unpacked, &(unpacking){k, &w})) {
        p->status = body && body->status != NNC_OK ? body->status : nnc_nomem(p->sink);
        nnc_graph_destroy(body);
        return NNC_NONE;
    }
    memcpy(in, n.in, sizeof *in * (size_t)n.n_in);
    in[operand] = panels;
    edit_at(p, i);
    nnc_ref r = nnc_fused(p->g, body, n.n_in, in);
    edit_sync(p);
    return p->status == NNC_OK ? r : NNC_NONE;
}

static void pack(pass *p, packs *s, uint32_t i, int operand, const packing *k)
{
    layers l = layers_of(p, i, NNC_NONE);
    const nnc_ref r = pack_operand(p, s, i, operand, k), out = p->g->node[i].out;
    const int n_out = p->g->node[i].n_out;
    if (r == NNC_NONE)
        return;
    for (int o = 0; o < n_out; o++)
        edit_replace(p, out + (nnc_ref)o, r + (nnc_ref)o);
    remark_applied(p, &l, "weights packed",
        "a generated kernel computes the contraction and reads its weights contiguously: %lld at "
        "a time",
        (long long)k->cut[k->perm[k->rank - 1]]);
}

nnc_ref pack_products(pass *p, nnc_ref v)
{
    packs s = no_packs(p, 1);
    if (!s.list)
        return NNC_NONE;
    for (uint32_t at = 0; v != NNC_NONE && at < nnc_def(p->g, v)->body->n_node; at++) {
        const nnc_node *n = nnc_def(p->g, v);
        const nnc_node *core = &n->body->node[at];
        int operand = -1;
        if (nnc_op_class((nnc_op)core->op) != CL_contract)
            continue;
        for (uint32_t i = 0, k = 0; i < at; i++)
            if (n->body->node[i].op == OP_input) {
                operand = n->body->node[i].out == core->in[1] ? (int)k : operand;
                k++;
            }
        packing k = {0};
        if (operand < 0 || blocker(p, core, nnc_typeof(n->body, core->out), n->in[operand]))
            continue;
        plan_packing(target_of(p, n), core, nnc_typeof(p->g, n->in[operand]), &k);
        if (is_packed(&k, nnc_typeof(p->g, n->in[operand])))
            continue;
        const uint32_t before = node_index(p, n);
        if ((v = pack_operand(p, &s, before, operand, &k)) != NNC_NONE)
            edit_sweep(p, before);
        at = 0; /* in a new body, which reads this operand through a view */
    }
    return v;
}

/* Packs the weights that each step reads, in panels of as many elements of the state as the kernel computes at once. */
static void pack_recurrent(pass *p, packs *s, uint32_t i, const nnc_target *t)
{
    enum { STEPS = 8 }; /* steps from which on packing at run time pays */
    const nnc_node n = p->g->node[i];
    const bool back = n.op == OP_recurrent_grad;
    const int operand = back ? 2 : 1;
    const nnc_type *x = nnc_typeof(p->g, n.in[back]), *y = nnc_typeof(p->g, n.out + back),
                   *r = nnc_typeof(p->g, n.in[operand]);
    const int64_t h = y->dim[2], sums = back ? 1 : x->dim[2] / h;
    const int rows = nnc_recurrent_rows(y->dim[1], (int)sums, t);
    int64_t wide = nnc_recurrent_vectors(rows * (int)sums, t) * t->vector_bits / 8 /
                   nnc_max64(nnc_dtype_size((nnc_dtype)r->dtype), 4);
    nnc_ref in[6];
    layers l = layers_of(p, i, NNC_NONE);
    if (r->rank > 2 || wide < 1 || h % wide || !nnc_type_is_row_major(r))
        return;
    if (!edit_static(p, n.in[operand]) && y->dim[0] < STEPS) {
        decline_node(p, i, "weights packed", "they are computed at run time, for few steps");
        return;
    }
    const packing of_gates = {
        .rank = 4, .divided = -1, .cut = {h, sums, h / wide, wide}, .perm = {2, 0, 1, 3}};
    const packing of_rows = {
        .rank = 3, .divided = 1, .cut = {x->dim[2], h / wide, wide}, .perm = {1, 0, 2}};
    memcpy(in, n.in, sizeof *in * (size_t)n.n_in);
    in[operand] = panels_of(p, s, i, n.in[operand], back ? &of_rows : &of_gates);
    if (in[operand] == NNC_NONE)
        return;
    edit_at(p, i);
    nnc_ref v = nnc_build(p->g, (nnc_op)n.op, n.n_in, in, n.n_attr, n.attr);
    edit_sync(p);
    for (int o = 0; o < n.n_out && p->status == NNC_OK; o++)
        edit_replace(p, n.out + (nnc_ref)o, v + (nnc_ref)o);
    remark_applied(p, &l, "weights packed",
        "its steps read the weights of the state contiguously: %lld elements of %d rows at a time",
        (long long)wide, rows);
}

nnc_status pass_pack_weights(pass *p)
{
    uint32_t n = p->g->n_node;
    packs s = no_packs(p, (int)n + 1);
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        const nnc_node *c = &p->g->node[i];
        if (nnc_op_is_recurrent(c->op) && !p->e.dead[i] && !p->e.is_static[i] &&
            target_of(p, c)->kind == NNC_T_cpu)
            pack_recurrent(p, &s, i, target_of(p, c));
        if (p->e.dead[i] || p->e.is_static[i] || !is_contraction(p, c))
            continue;
        const nnc_target *t = target_of(p, c);
        int operand;
        const nnc_node *core = contraction_in(c, 1, &operand);
        if (t->kind != NNC_T_cpu || !core || operand < 0)
            continue;
        const char *why = panels_blocked(p, i);
        if (why) {
            decline_node(p, i, "weights packed", "%s", why);
            continue;
        }
        packing k = {0};
        plan_packing(t, core, nnc_typeof(p->g, c->in[operand]), &k);
        if (!is_packed(&k, nnc_typeof(p->g, c->in[operand])))
            pack(p, &s, i, operand, &k);
    }
    return p->status;
}
