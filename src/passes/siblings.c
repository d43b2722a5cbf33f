/* passes/siblings.c -- joins independent contractions into one, where one command is expected to take less time than several.
 *
 *   of one input     y1 = x w1;  y2 = x w2. Parallel 1x1 convolutions; query, key and value.
 *                    -> y = x [w1 w2];  y1, y2 = split(y).
 *   side by side     x1, x2 = split(x);  y1 = x1 w1;  y2 = x2 w2. Several models beside each other.
 *                    -> a convolution in groups, or for linear layers a batched product of [n, rows, in] and [n, in, out].
 *
 * The weights are concatenated once, when they are loaded. Those that training changes are concatenated in each step. That is seldom worth
 * it, unless all that the step does with them is joined as well (stacks.c). An activation that follows each of them alike is applied to y,
 * where it can be fused into the contraction. A concat of y1, y2, .. in order is y. The parts are views where their consumers address
 * memory with gaps (in_place), otherwise copies. Copies count, and so do transposes around a batched product of several rows. Terminates:
 * each node is considered once, and the contractions become fewer. */
#include "kernel/kernel.h"
#include "passes/internal.h"

enum {
    MOST = 256 /* contractions joined at once */
};

typedef struct family {
    uint32_t node[MOST]; /* ordered by position of their inputs in x, or in the graph */
    int n;
    bool beside;
    nnc_ref x;
} family;

typedef struct state {
    pass *p;
    bool *seen; /* contractions of the graph before the pass */
} state;

static int channel_axis(const pass *p, const nnc_node *c)
{
    return c->op == OP_conv ? 1 : type_of(p, c->out)->rank - 1;
}

/* ---- families ---------------------------------------------------------------------------------- */

/* Can c be joined: is it a linear layer or convolution of row-major tensors, with only its first operand computed? */
static bool is_candidate(const pass *p, const nnc_node *c)
{
    if (c->op != OP_linear && c->op != OP_conv)
        return false;
    for (int k = 1; k < c->n_in; k++)
        if (!edit_static(p, c->in[k]) && def_of(p, c->in[k])->op != OP_param)
            return false;
    return !edit_static(p, c->out) && !edit_is_output(p, c->out) &&
           nnc_type_is_row_major(type_of(p, c->in[0])) &&
           nnc_type_is_row_major(type_of(p, c->out)) && type_of(p, c->out)->rank >= 2;
}

/* Do a and b differ only in their weights' values and, with `outputs`, in the number of results? */
static bool are_alike(const pass *p, const nnc_node *a, const nnc_node *b, bool outputs)
{
    if (!is_candidate(p, b))
        return false;
    nnc_type v = *type_of(p, a->in[1]), w = *type_of(p, b->in[1]);
    if (outputs)
        v.dim[0] = w.dim[0];
    return a->op == b->op && a->n_in == b->n_in && attrs_equal(a, b) && !placed_apart(a, b) &&
           nnc_type_same_shape(&v, &w) && v.dtype == w.dtype &&
           type_of(p, a->in[0])->dtype == type_of(p, b->in[0])->dtype;
}

/* Contractions of the operand of c. */
static void of_one_input(state *s, uint32_t first, family *f)
{
    pass *p = s->p;
    const nnc_node *c = &p->g->node[first];
    *f = (family){.x = c->in[0]};
    if (nnc_attr_int(c, AT_groups, 1) != 1)
        return;
    for (uint32_t u = 0, i; edit_next_user(p, f->x, &u, &i) && f->n < MOST;)
        if (are_alike(p, c, &p->g->node[i], true))
            f->node[f->n++] = i;
}

/* If v is a result of a split or slice: its operand *x, the dimension *axis, and v's first index there. False: it is not. */
static bool part_of(const pass *p, nnc_ref v, nnc_ref *x, int64_t *axis, int64_t *start)
{
    const nnc_node *d = def_of(p, v);
    const int64_t *at = NULL, *axes = NULL, *steps = NULL;
    *start = 0;
    if (d->op == OP_split) {
        nnc_attr_ints(d, AT_sizes, &at);
        for (nnc_ref k = d->out; k < v; k++)
            *start += at[k - d->out];
        *axis = nnc_attr_int(d, AT_axis, 0);
    } else if (d->op == OP_slice && nnc_attr_ints(d, AT_axes, &axes) == 1 &&
               (nnc_attr_ints(d, AT_steps, &steps) == 0 || steps[0] == 1)) {
        nnc_attr_ints(d, AT_starts, &at);
        *start = at[0];
        *axis = axes[0];
    } else {
        return false;
    }
    *x = d->in[0];
    return true;
}

bool place_in(const pass *p, nnc_ref v, nnc_ref until, nnc_ref *x, int64_t *axis, int64_t *start)
{
    int64_t along, from;
    *x = v;
    *axis = -1;
    *start = 0;
    for (nnc_ref y;
         *x != until && part_of(p, *x, &y, &along, &from) && (*axis < 0 || along == *axis);
         *x = y) {
        *axis = along;
        *start += from;
    }
    return *axis >= 0;
}

/* Enters a contraction like c that reads part v in f->node, by its place. Nothing else may read the part, except gradients in training. */
static void put_beside(const pass *p, const nnc_node *c, int64_t extent, nnc_ref v, family *f)
{
    int64_t axis, start;
    nnc_ref x;
    if (!place_in(p, v, f->x, &x, &axis, &start) || x != f->x || start % extent ||
        !nnc_type_same_shape(type_of(p, v), type_of(p, c->in[0])))
        return;
    int alike = 0, users = 0;
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i); users++)
        if (p->g->node[i].in[0] == v && are_alike(p, c, &p->g->node[i], false)) {
            f->node[start / extent] = i;
            alike++;
        }
    if (alike > 1 || (users > 1 && edit_static(p, c->in[1])))
        f->node[start / extent] = NNC_NONE;
}

/* The same for each part of v, and of its parts. */
static void put_parts(const pass *p, const nnc_node *c, int64_t extent, nnc_ref v, family *f)
{
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);) {
        const nnc_node *d = &p->g->node[i];
        for (uint32_t o = 0; (d->op == OP_split || d->op == OP_slice) && o < d->n_out; o++) {
            put_beside(p, c, extent, d->out + o, f);
            put_parts(p, c, extent, d->out + o, f);
        }
    }
}

/* Finds contractions of the parts of x, one of each. (If x is divided along another dimension, a part has all channels.) */
static bool of_parts(const pass *p, const nnc_node *c, nnc_ref x, family *f)
{
    const int axis = channel_axis(p, c);
    const int64_t extent = type_of(p, c->in[0])->dim[axis], n = type_of(p, x)->dim[axis] / extent;
    *f = (family){.beside = true, .x = x, .n = 0};
    if (n < 2 || n > MOST || n * extent != type_of(p, x)->dim[axis])
        return false;
    for (int k = 0; k < n; k++)
        f->node[k] = NNC_NONE;
    put_parts(p, c, extent, x, f);
    for (int k = 0; k < n; k++)
        if (f->node[k] == NNC_NONE)
            return false;
    f->n = (int)n;
    return true;
}

/* Finds contractions of the parts of the tensor that c's operand is part of; also of parts of parts, which cutting in steps makes. */
static void side_by_side(state *s, uint32_t first, family *f)
{
    enum { STEPS = 4 };
    pass *p = s->p;
    const nnc_node *c = &p->g->node[first];
    int64_t axis, start;
    nnc_ref x = c->in[0];
    *f = (family){.beside = true};
    for (int i = 0; i < STEPS && part_of(p, x, &x, &axis, &start); i++)
        if (of_parts(p, c, x, f))
            return;
    f->n = 0;
}

/* ---- building ---------------------------------------------------------------------------------- */

nnc_ref concat_in_steps(pass *p, int n, nnc_ref *v)
{
    while (n > 1) {
        int m = 0;
        for (int i = 0; i < n; i += NNC_KERNEL_CONCAT)
            v[m++] = nnc_concat(p->g, (int)nnc_min64(NNC_KERNEL_CONCAT, n - i), v + i, 0);
        n = m;
    }
    return v[0];
}

nnc_ref conv_of_groups(pass *p, const nnc_node *c, const nnc_ref *in, int n)
{
    const int64_t groups = nnc_attr_int(c, AT_groups, 1) * n;
    nnc_attr a[AT__COUNT];
    int n_attr = 0;
    for (int i = 0; i < c->n_attr; i++)
        if (c->attr[i].key != AT_groups)
            a[n_attr++] = c->attr[i];
    if (groups > 1)
        a[n_attr++] = nnc_ai(AT_groups, groups);
    return nnc_build(p->g, c->op, c->n_in, in, n_attr, a);
}

/* Operand k of all members in one, along dimension 0. */
static nnc_ref stack_operands(pass *p, const family *f, int k)
{
    nnc_ref v[MOST] = {0};
    for (int i = 0; i < f->n; i++)
        v[i] = p->g->node[f->node[i]].in[k];
    return concat_in_steps(p, f->n, v);
}

/* x[rows, n in] as [n, rows, in], or back. */
static nnc_ref swap_rows(pass *p, nnc_ref v, int64_t a, int64_t b, int64_t c)
{
    const int64_t swap[] = {1, 0, 2}, d[] = {a, b, c}, swapped[] = {b, a, c};
    if (a == 1 || b == 1)
        return nnc_reshape(p->g, v, 3, swapped);
    return nnc_transpose(p->g, nnc_reshape(p->g, v, 3, d), swap);
}

/* Linear layers side by side as a batched product. */
static nnc_ref build_batched(pass *p, const family *f, nnc_node c, const nnc_ref in[3])
{
    nnc_graph *g = p->g;
    nnc_type y = *type_of(p, c.out);
    const nnc_type w = *type_of(p, c.in[1]);
    int64_t rows = nnc_type_numel(&y) / w.dim[0];
    const int64_t stack[] = {f->n, w.dim[0], w.dim[1]}, bias[] = {f->n, 1, w.dim[0]};
    const nnc_attr t = nnc_ai(AT_transpose_b, 1);
    nnc_ref v[] = {swap_rows(p, in[0], rows, f->n, w.dim[1]), nnc_reshape(g, in[1], 3, stack)};
    nnc_ref r = nnc_build(g, OP_matmul, 2, v, 1, &t);
    if (c.n_in == 3)
        r = nnc_build2(g, OP_add, r, nnc_reshape(g, in[2], 3, bias));
    r = swap_rows(p, r, f->n, rows, w.dim[0]);
    y.dim[y.rank - 1] *= f->n;
    return nnc_reshape(g, r, y.rank, y.dim);
}

/* Builds the contraction of all members. Among the new nodes, the first one that does not compute weights is the contraction. */
static nnc_ref build_joined(pass *p, const family *f)
{
    const nnc_node c = p->g->node[f->node[0]];
    nnc_ref in[3] = {f->x, NNC_NONE, NNC_NONE};
    edit_at(p, f->node[0]);
    p->g->origin = union_origin(p, f->node, f->n);
    for (int k = 1; k < c.n_in; k++)
        in[k] = stack_operands(p, f, k);
    nnc_ref y = c.op == OP_conv ? conv_of_groups(p, &c, in, f->beside ? f->n : 1)
                : f->beside     ? build_batched(p, f, c, in)
                                : nnc_build(p->g, OP_linear, c.n_in, in, c.n_attr, c.attr);
    edit_sync(p);
    return y;
}

/* The activation that follows all members alike, or NULL. */
static const nnc_node *common_activation(const pass *p, const family *f)
{
    const nnc_node *first = NULL;
    for (int i = 0; i < f->n; i++) {
        const nnc_node *u = edit_only_user(p, p->g->node[f->node[i]].out);
        if (!u || u->n_in != 1 || !nnc_op_is_ewise(u->op) || edit_is_output(p, u->out) ||
            type_of(p, u->out)->dtype != type_of(p, u->in[0])->dtype ||
            (first && (u->op != first->op || !attrs_equal(u, first))))
            return NULL;
        first = u;
    }
    return first;
}

/* ---- times ------------------------------------------------------------------------------------- */

typedef struct sum { /* of several commands */
    int64_t ns;
    bool ok; /* engines compute them */
} sum;

/* Adds contraction i's expected time to s. */
static void add_work(pass *p, uint32_t i, sum *s)
{
    nnc_ask a;
    const nnc_target *t = target_of(p, &p->g->node[i]);
    contraction_ask(p, &p->g->node[i], &a);
    const nnc_dtype later = later_dtype(p, t, (nnc_dtype)a.dtype);
    a.bytes = a.bytes / nnc_dtype_size(a.dtype) * nnc_dtype_size(later);
    a.dtype = (uint8_t)later;
    const nnc_offer o = nnc_target_offer(t, &a);
    s->ok = s->ok && o.ok;
    s->ns += o.time_ns;
}

/* Time to copy a tensor like v, in the type that it will have. */
static int64_t copy_ns(const pass *p, const nnc_target *t, const nnc_type *v)
{
    const nnc_dtype later = later_dtype(p, t, (nnc_dtype)v->dtype);
    const int64_t bytes = nnc_type_bytes(v) / nnc_dtype_size(v->dtype) * nnc_dtype_size(later);
    return nnc_target_move_ns(t, 2 * bytes, t->threads) + nnc_target_start_ns(t, 1);
}

/* Are the parts of y next to each other in memory, once `layout` has run? */
static bool parts_are_dense(const pass *p, const nnc_node *c)
{
    const nnc_type *y = type_of(p, c->out);
    const nnc_target *t = target_of(p, c);
    const int axis = channel_axis(p, c);
    int64_t before = 1, after = 1;
    for (int d = 0; d < y->rank; d++)
        *(d < axis ? &before : &after) *= d == axis ? 1 : y->dim[d];
    bool last = c->op == OP_conv && p->will_run[PASS_layout] && after > 1 &&
                nnc_target_channels_last(t, y->dtype, uses_tf32(p, t));
    return before == 1 && !last;
}

/* Does each reader of v address memory with gaps, or copy it in any case? On a GPU also through a view: an attention reads the parts of
 * query, key and value where they are. So does the kernel that transposes for one. */
static bool readers_take_gaps(const pass *p, nnc_ref v)
{
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);) {
        const nnc_node *n = &p->g->node[i];
        const bool view = nnc_is_view(p->g, n);
        if (is_contraction(p, n) || (view && target_of(p, n)->kind != NNC_T_cuda) ||
            (view && !readers_take_gaps(p, n->out)))
            return false;
    }
    return true;
}

/* Time that joining adds: copies of parts for their consumers, transposes, activations outside of contractions, and concatenation of the
 * weights in each training step. */
static int64_t added_ns(pass *p, const family *f)
{
    const nnc_node *c = &p->g->node[f->node[0]], *act = common_activation(p, f);
    const nnc_target *t = target_of(p, c);
    const bool dense = parts_are_dense(p, c);
    nnc_post post;
    int64_t ns = 0;
    for (int i = 0; i < f->n; i++) {
        const nnc_node *m = &p->g->node[f->node[i]], *u = edit_only_user(p, m->out);
        const int64_t part = copy_ns(p, t, type_of(p, m->out));
        if (!dense && !readers_take_gaps(p, act ? u->out : m->out))
            ns += part;
        if (!act && u && nnc_node_post(u, &post))
            ns += part;
        for (int k = 1; k < m->n_in; k++)
            if (!edit_static(p, m->in[k]))
                ns += copy_ns(p, t, type_of(p, m->in[k]));
    }
    const nnc_type *x = type_of(p, f->x);
    nnc_type all = *type_of(p, c->out);
    all.dim[all.rank - 1] *= f->n;
    if (f->beside && c->op == OP_linear && x->dim[x->rank - 1] != nnc_type_numel(x))
        ns += copy_ns(p, t, x) + copy_ns(p, t, &all);
    return ns;
}

/* Cost of the members' inputs without joining: parts are copied for a library. */
static int64_t inputs_ns(pass *p, const family *f)
{
    const nnc_node *c = &p->g->node[f->node[0]];
    const nnc_type *x = type_of(p, c->in[0]);
    bool copied = f->beside && nnc_type_numel(x) != x->dim[channel_axis(p, c)];
    return copied ? f->n * copy_ns(p, target_of(p, c), x) : 0;
}

/* ---- rewriting --------------------------------------------------------------------------------- */

/* The concat whose operands are the results of split `part` in order, through concats of the first of them; or NNC_NONE. */
static nnc_ref concat_of_parts(const pass *p, nnc_ref part, int n, int axis)
{
    nnc_ref v = part;
    int k = 1;
    while (k < n) {
        const nnc_node *u = edit_only_user(p, v);
        if (!u || u->op != OP_concat || nnc_attr_int(u, AT_axis, 0) != axis || u->in[0] != v)
            return NNC_NONE;
        for (int i = 1; i < u->n_in; i++, k++)
            if (k >= n || u->in[i] != part + (nnc_ref)k || edit_only_user(p, u->in[i]) != u)
                return NNC_NONE;
        v = u->out;
    }
    return v;
}

static void replace(pass *p, const family *f, nnc_ref y)
{
    const nnc_node c = p->g->node[f->node[0]];
    const nnc_node *found = common_activation(p, f);
    const bool has_act = found != NULL;
    const nnc_node act = found ? *found : c;
    const int axis = channel_axis(p, &c);
    int64_t size[MOST];
    nnc_ref old[MOST];
    if (has_act)
        y = nnc_build(p->g, act.op, 1, &y, act.n_attr, act.attr);
    for (int i = 0; i < f->n; i++) {
        nnc_ref v = p->g->node[f->node[i]].out;
        edit_sync(p);
        old[i] = has_act ? edit_only_user(p, v)->out : v;
        size[i] = type_of(p, v)->dim[axis];
    }
    const nnc_attr cut[] = {nnc_ai(AT_axis, axis), nnc_av(AT_sizes, f->n, size)};
    nnc_ref part = nnc_build(p->g, OP_split, 1, &y, 2, cut);
    edit_sync(p);
    for (int i = 0; i < f->n && p->status == NNC_OK; i++)
        edit_replace(p, old[i], part + (nnc_ref)i);
    nnc_ref all = p->status ? NNC_NONE : concat_of_parts(p, part, f->n, axis);
    if (all != NNC_NONE)
        edit_replace(p, all, y);
}

/* Is one command worthwhile? On CPUs it must win by the estimates' error, most of which is common to kernels that read the same weights. */
static bool pays(const pass *p, const nnc_target *t, const sum *one, const sum *apart)
{
    enum { ERROR = 16 };
    const int64_t saved = apart->ns - one->ns;
    return p->o->join_siblings ||
           (saved > nnc_target_start_ns(t, 1) && (t->kind != NNC_T_cpu || saved > one->ns / ERROR));
}

/* Index of the contraction among the nodes from `first` on. */
static uint32_t new_contraction(const pass *p, uint32_t first)
{
    uint32_t i = first;
    while (i < p->g->n_node && nnc_op_class(p->g->node[i].op) != CL_contract)
        i++;
    return i;
}

static void join_family(state *s, const family *f)
{
    pass *p = s->p;
    const nnc_node *c = &p->g->node[f->node[0]];
    const char *rule =
        remark_text(p, f->beside ? "%ss side by side" : "%ss of one input", nnc_ops[c->op].name);
    layers l = {0};
    sum apart = {inputs_ns(p, f), true}, one = {added_ns(p, f), true};
    for (int i = 0; i < f->n; i++) {
        layers_add(p, &l, f->node[i]);
        add_work(p, f->node[i], &apart);
        s->seen[f->node[i]] = true;
    }
    uint32_t first = p->g->n_node;
    nnc_ref y = build_joined(p, f);
    uint32_t at = p->status ? p->g->n_node : new_contraction(p, first);
    if (p->status || at == p->g->n_node)
        return;
    add_work(p, at, &one);
    const bool ok = apart.ok && one.ok;
    if (ok && pays(p, target_of(p, &p->g->node[at]), &one, &apart)) {
        replace(p, f, y);
        remark_applied(p, &l, rule, "one %s is expected to take %s, the %d apart %s",
            nnc_ops[p->g->node[at].op].name, text_us_beside(p, one.ns, apart.ns), f->n,
            text_us_beside(p, apart.ns, one.ns));
    } else {
        remark_declined(p, &l, rule,
            ok ? "one %s is expected to take %s, the %d apart %s" : "no engine computes one %s",
            nnc_ops[p->g->node[at].op].name, text_us_beside(p, one.ns, apart.ns), f->n,
            text_us_beside(p, apart.ns, one.ns));
        edit_sweep(p, p->g->value[y].node);
    }
}

nnc_status pass_siblings(pass *p)
{
    join_trained(p);
    const uint32_t n = p->g->n_node;
    state s = {.p = p, .seen = PASS_NEW(p, bool, n + 1)};
    NNC_NEED(s.seen, p->sink);
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        family f;
        for (int beside = 0; beside < 2; beside++) {
            if (s.seen[i] || !is_candidate(p, &p->g->node[i]))
                break;
            (beside ? side_by_side : of_one_input)(&s, i, &f);
            if (f.n > 1)
                join_family(&s, &f);
        }
    }
    return p->status;
}
