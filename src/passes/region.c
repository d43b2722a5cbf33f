/* passes/region.c -- builds `fused` nodes, and questions that both fusion passes ask. */
#include "kernel/kernel.h"
#include "passes/internal.h"

bool is_kernel_conv(const pass *p, const nnc_node *n, const char **why)
{
    const nnc_target *t = target_of(p, n);
    return t && nnc_is_kernel_conv(t, p->g, n, why);
}

bool is_contraction(const pass *p, const nnc_node *n)
{
    return nnc_has_call(target_of(p, n), p->g, n);
}

const nnc_node *contraction_in(const nnc_node *n, int which, int *operand)
{
    *operand = which;
    if (n->op != OP_fused)
        return n;
    const nnc_node *core = NULL;
    for (uint32_t i = 0; i < n->body->n_node; i++)
        if (nnc_op_class(n->body->node[i].op) == CL_contract) {
            if (core)
                return NULL;
            core = &n->body->node[i];
        }
    *operand = -1;
    for (uint32_t i = 0, k = 0; core && i < n->body->n_node; i++)
        if (n->body->node[i].op == OP_input) {
            if (n->body->node[i].out == core->in[which])
                *operand = (int)k;
            k++;
        }
    return core;
}

/* Adds the ops after contraction c in fused node n. */
static void ask_rest(const nnc_graph *g, const nnc_node *c, nnc_ask *a)
{
    const nnc_type *y = nnc_typeof(g, c->out);
    for (const nnc_node *n = c + 1; n < g->node + g->n_node; n++) {
        nnc_post post;
        if (nnc_op_class(n->op) == CL_leaf || !nnc_node_post(n, &post))
            continue;
        post.in_place = true;
        if (n->op == OP_add && nnc_type_numel(y) != nnc_type_numel(nnc_typeof(g, n->in[0])))
            a->bias = true;
        else if (n->op == OP_add && nnc_type_numel(y) != nnc_type_numel(nnc_typeof(g, n->in[1])))
            a->bias = true;
        else if (a->n_post < NNC_MAX_POST)
            a->post[a->n_post++] = post;
    }
}

int64_t elementwise_flops(const nnc_graph *g, const nnc_node *end)
{
    int64_t flops = 0;
    for (const nnc_node *n = g->node; n < end; n++) {
        const nnc_op op = n->op;
        if (nnc_op_class(op) == CL_ewise || nnc_op_class(op) == CL_ecomp)
            flops = nnc_add_sat(
                flops, nnc_mul_sat(op_flops(op), nnc_type_numel(nnc_typeof(g, n->out))));
    }
    return flops;
}

bool made_in_init(const pass *p, nnc_ref v)
{
    while (nnc_is_view(p->g, def_of(p, v)))
        v = def_of(p, v)->in[0];
    return edit_static(p, v) && def_of(p, v)->op != OP_param;
}

static nnc_ask_kind ask_kind(const nnc_node *c)
{
    return c->op == OP_conv             ? ASK_conv
           : c->op == OP_conv_transpose ? ASK_conv_transpose
           : c->op == OP_conv_wgrad     ? ASK_conv_wgrad
                                        : ASK_matmul;
}

nnc_dtype later_dtype(const pass *p, const nnc_target *t, nnc_dtype d)
{
    const nnc_dtype asked = nnc_precision_dtype(nnc_policy_precision(&p->o->policy));
    return d == DT_f32 && p->will_run[PASS_precision] && nnc_target_contracts(t, asked) ? asked : d;
}

void contraction_ask(const pass *p, const nnc_node *n, nnc_ask *a)
{
    int operand;
    const nnc_node *c = contraction_in(n, 1, &operand);
    const nnc_graph *g = n->op == OP_fused ? n->body : p->g;
    *a = (nnc_ask){0};
    if (!c)
        return;
    const bool wgrad = c->op == OP_conv_wgrad;
    const nnc_type *x = nnc_typeof(g, c->in[0]), *r = nnc_typeof(g, c->out),
                   *y = wgrad ? nnc_typeof(g, c->in[1]) : r; /* with the convolution's places */
    const bool product = c->op == OP_matmul || c->op == OP_linear;
    const int64_t groups = nnc_attr_int(c, AT_groups, 1);
    nnc_cost cost = nnc_node_cost(g, c);
    *a = (nnc_ask){.kind = ask_kind(c),
        .dtype = x->dtype,
        .bias = c->op != OP_matmul && c->n_in == 3,
        .exact = p->o->policy.math == MATH_exact,
        .tf32 = uses_tf32(p, target_of(p, n)),
        .grouped = groups > 1,
        .dynamic = operand < 0 || !edit_static(p, n->in[operand]),
        .packable = operand >= 0 && made_in_init(p, n->in[operand]),
        .flops = cost.flops,
        .bytes = cost.bytes,
        .results = nnc_type_numel(r)};
    a->strided = !nnc_type_is_dense(type_of(p, n->out));
    for (int k = 0; k < n->n_in; k++)
        a->strided = a->strided || !nnc_type_is_dense(type_of(p, n->in[k]));
    a->outputs = !product ? y->dim[1] / groups : y->rank ? y->dim[y->rank - 1] : 1;
    a->channels = product ? 0 : x->dim[1] / groups;
    a->dynamic_k_major = a->dynamic && (c->op == OP_linear || nnc_attr_int(c, AT_transpose_b, 0));
    a->static_k_major =
        c->op == OP_linear || nnc_attr_int(c, AT_transpose_b, 0) || c->op == OP_conv;
    a->groups = groups;
    a->width = product ? 0 : y->dim[y->rank - 1];
    a->places = product ? 0 : nnc_type_numel(y) / (y->dim[0] * y->dim[1]);
    if (!nnc_attr_int(c, AT_transpose_a, 0))
        nnc_ask_product(a, x, nnc_typeof(g, c->in[1]));
    a->nchw = !product && nnc_type_orders_differ(x) && nnc_type_is_row_major(x) &&
              (c->op != OP_conv || nnc_type_is_row_major(y)) && !p->will_run[PASS_layout];
    if (n->op == OP_fused) {
        a->prologue = nnc_ceildiv(elementwise_flops(g, c), nnc_max64(nnc_type_numel(x), 1));
        ask_rest(g, c, a);
    }
}

const nnc_target_engine *engine_of(const pass *p, const nnc_node *n)
{
    int operand;
    const nnc_node *c = contraction_in(n, 1, &operand);
    return p->o->target && c ? nnc_target_engine_for(target_of(p, n), ask_kind(c)) : NULL;
}

const char *engine_name(const pass *p, const nnc_node *n)
{
    const nnc_target_engine *e = engine_of(p, n);
    return e ? e->name : "no engine";
}

int users_through_views(pass *p, nnc_ref v, uint32_t *out, int cap)
{
    int n = 0;
    uint32_t last = NNC_NONE;
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);) {
        const nnc_node *node = &p->g->node[i];
        bool reads = false, known = i == last;
        for (int k = 0; k < node->n_in; k++)
            reads = reads || node->in[k] == v;
        if (!reads || known)
            continue;
        last = i;
        if (nnc_is_view(p->g, node)) {
            for (uint32_t o = 0; o < node->n_out; o++)
                n += users_through_views(
                    p, node->out + o, out + nnc_min64(n, cap), n < cap ? cap - n : 0);
            continue;
        }
        for (int k = 0; k < n && k < cap; k++)
            known = known || out[k] == i;
        if (known)
            continue;
        if (n < cap)
            out[n] = i;
        n++;
    }
    return n;
}

bool reduces_contiguous(const pass *p, const nnc_node *n)
{
    int64_t stride[NNC_MAX_RANK];
    const int64_t *axes;
    nnc_type_strides(type_of(p, n->in[0]), stride);
    for (int i = nnc_attr_ints(n, AT_axes, &axes); i-- > 0;)
        if (stride[axes[i]] == 1)
            return true;
    return false;
}

const uint32_t *find_regions(pass *p, const bool *inside, uint32_t n)
{
    uint32_t *root = PASS_NEW(p, uint32_t, n + 1);
    for (uint32_t i = 0; root && i < n; i++) {
        const nnc_node *node = &p->g->node[i];
        root[i] = i;
        for (int k = 0; k < node->n_in && inside[i]; k++) {
            uint32_t d = p->g->value[node->in[k]].node;
            if (d < i && inside[d])
                join_roots(root, i, d);
        }
    }
    for (uint32_t i = 0; root && i < n; i++)
        root[i] = find_root(root, i);
    return root;
}

const char *union_origin(pass *p, const uint32_t *nodes, int n)
{
    layers l = {0};
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < n; i++) {
        const nnc_node *m = &p->g->node[nodes[i]];
        if (nnc_op_class(m->op) != CL_leaf && m->origin)
            layers_add(p, &l, nodes[i]);
    }
    for (size_t i = 0; i < l.n; i++)
        nnc_printf(&t, "%s%s", i ? "+" : "", l.at[i]);
    const char *origin = t.n ? nnc_arena_strdup(&p->g->arena, nnc_text_str(&t)) : NULL;
    if (t.oom || (t.n && !origin))
        pass_nomem(p);
    return origin;
}

typedef struct maker {
    pass *p;
    nnc_graph *body;
    nnc_ref *outer, *inner; /* values of the graph and their counterparts in the body; n of them */
    size_t n, cap_outer, cap_inner;
    nnc_ref *operand; /* of the fused node */
    size_t n_operand, cap_operand;
} maker;

static nnc_ref find_inner(const maker *m, nnc_ref v)
{
    for (size_t i = m->n; i-- > 0;)
        if (m->outer[i] == v)
            return m->inner[i];
    return NNC_NONE;
}

static bool bind(maker *m, nnc_ref outer, nnc_ref inner)
{
    if (!ARENA_ROOM(m->p->a, m->outer, m->cap_outer, m->n + 1) ||
        !ARENA_ROOM(m->p->a, m->inner, m->cap_inner, m->n + 1))
        return false;
    m->outer[m->n] = outer;
    m->inner[m->n++] = inner;
    return true;
}

static bool defined_inside(const pass *p, const uint32_t *nodes, int n, nnc_ref v)
{
    for (int i = 0; i < n; i++)
        if (p->g->value[v].node == nodes[i])
            return true;
    return false;
}

/* The body's inputs come first, in order of first use. */
static bool add_inputs(maker *m, const uint32_t *nodes, int n)
{
    nnc_graph *g = m->p->g;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < g->node[nodes[i]].n_in; k++) {
            nnc_ref v = g->node[nodes[i]].in[k];
            if (defined_inside(m->p, nodes, n, v) || find_inner(m, v) != NNC_NONE)
                continue;
            if (!ARENA_ROOM(m->p->a, m->operand, m->cap_operand, m->n_operand + 1))
                return false;
            m->operand[m->n_operand++] = v;
            const nnc_type t = nnc_type_dense(type_of(m->p, v));
            nnc_ref r = nnc_input(m->body, g->value[v].name, &t);
            if (r == NNC_NONE || !bind(m, v, r))
                return false;
        }
    return true;
}

/* The members of a fused node become members of this one. */
static bool add_body(maker *m, const nnc_node *node)
{
    const nnc_graph *b = node->body;
    nnc_ref *to = ARENA_NEW(m->p->a, nnc_ref, b->n_value + 1);
    for (uint32_t i = 0, operand = 0; to && i < b->n_node; i++) {
        const nnc_node *n = &b->node[i];
        nnc_ref *in = ARENA_NEW(m->p->a, nnc_ref, n->n_in + 1);
        for (int k = 0; in && k < n->n_in; k++)
            in[k] = to[n->in[k]];
        nnc_ref r = n->op == OP_input ? find_inner(m, node->in[operand++])
                    : in              ? nnc_copy_node(m->body, b, n, in)
                                      : NNC_NONE;
        if (r == NNC_NONE)
            return false;
        for (uint32_t o = 0; o < n->n_out; o++)
            to[n->out + o] = r + o;
    }
    for (uint32_t o = 0; to && o < node->n_out; o++)
        if (!bind(m, node->out + o, to[b->output[o]]))
            return false;
    return to != NULL;
}

static bool add_members(maker *m, const uint32_t *nodes, int n)
{
    nnc_graph *g = m->p->g;
    for (int i = 0; i < n; i++) {
        const nnc_node *node = &g->node[nodes[i]];
        if (node->op == OP_fused) {
            if (!add_body(m, node))
                return false;
            continue;
        }
        nnc_ref *in = ARENA_NEW(m->p->a, nnc_ref, node->n_in + 1);
        for (int k = 0; in && k < node->n_in; k++)
            in[k] = find_inner(m, node->in[k]);
        nnc_ref r = in ? nnc_copy_node(m->body, g, node, in) : NNC_NONE;
        if (r == NNC_NONE)
            return false;
        for (uint32_t o = 0; o < node->n_out; o++)
            if (!bind(m, node->out + o, r + o))
                return false;
    }
    return true;
}

nnc_ref region_build(pass *p, const uint32_t *nodes, int n, const nnc_ref *outs, int n_out)
{
    if (!edit_sync(p))
        return NNC_NONE;
    maker m = {.p = p, .body = nnc_graph_create("body", p->sink)};
    bool ok = m.body && add_inputs(&m, nodes, n) && add_members(&m, nodes, n);
    for (int i = 0; ok && i < n_out; i++)
        nnc_output(m.body, find_inner(&m, outs[i]), p->g->value[outs[i]].name);
    if (!ok || m.body->status != NNC_OK) {
        p->status = m.body && m.body->status != NNC_OK ? m.body->status : nnc_nomem(p->sink);
        nnc_graph_destroy(m.body);
        return NNC_NONE;
    }
    for (uint32_t i = 0; i < m.body->n_node; i++) { /* the fused node has them */
        m.body->node[i].task = -1;
        m.body->node[i].micro = 0;
    }
    edit_at(p, nodes[n - 1]);
    p->g->origin = union_origin(p, nodes, n);
    nnc_ref r = nnc_fused(p->g, m.body, (int)m.n_operand, m.operand);
    return edit_sync(p) ? r : NNC_NONE;
}

bool region_copy(pass *p, nnc_graph *body, const nnc_node *n, int operand, const nnc_type *type,
    region_member *make, void *ctx)
{
    const bool fused = n->op == OP_fused;
    const nnc_graph *from = fused ? n->body : p->g;
    /* by value of the body; for a single node by operand, then result, since the graph may have many values */
    nnc_ref *to = ARENA_NEW(p->a, nnc_ref, fused ? from->n_value + 1 : (size_t)n->n_in + n->n_out);
    const nnc_node *first = fused ? from->node : n;
    for (int i = 0, at = 0; to && i < n->n_in; i++) {
        nnc_ref inner = n->in[i];
        for (; fused; at++)
            if (from->node[at].op == OP_input) {
                inner = from->node[at++].out;
                break;
            }
        const nnc_type t = nnc_type_dense(nnc_typeof(from, inner));
        nnc_ref v = nnc_input(body, p->g->value[n->in[i]].name, i == operand ? type : &t);
        if (i == operand)
            v = make(ctx, body, from, NULL, &v);
        if (v == NNC_NONE)
            return false;
        to[fused ? inner : (nnc_ref)i] = v;
    }
    for (uint32_t i = 0; to && i < (fused ? from->n_node : 1); i++) {
        const nnc_node *m = &first[i];
        nnc_ref *in = ARENA_NEW(p->a, nnc_ref, m->n_in + 1);
        if (m->op == OP_input)
            continue;
        for (int j = 0; in && j < m->n_in; j++)
            in[j] = to[fused ? m->in[j] : (nnc_ref)j];
        const nnc_ref r = in ? make(ctx, body, from, m, in) : NNC_NONE;
        if (r == NNC_NONE)
            return false;
        for (uint32_t o = 0; o < m->n_out; o++)
            to[(fused ? m->out : (nnc_ref)n->n_in) + o] = r + o;
    }
    for (int o = 0; to && o < n->n_out; o++)
        nnc_output(body, to[fused ? from->output[o] : (nnc_ref)(n->n_in + o)],
            p->g->value[n->out + (nnc_ref)o].name);
    return to && body->status == NNC_OK;
}
