/* passes/edit.c -- edits a graph while tracking the users of each value and the cost of the graph. Replacing a value takes time
 * proportional to its users, not to the size of the graph. */
#include "passes/internal.h"

static bool grow_arrays(pass *p)
{
    edit *e = &p->e;
    nnc_graph *g = p->g;
    size_t nv = g->n_value + (size_t)1, nn = g->n_node + (size_t)1;
    return ARENA_ROOM(p->a, e->head, e->cap_head, nv) &&
           ARENA_ROOM(p->a, e->tail, e->cap_tail, nv) &&
           ARENA_ROOM(p->a, e->n_use, e->cap_n_use, nv) &&
           ARENA_ROOM(p->a, e->n_out_use, e->cap_out, nv) &&
           ARENA_ROOM(p->a, e->dead, e->cap_dead, nn) &&
           ARENA_ROOM(p->a, e->is_static, e->cap_static, nn) &&
           ARENA_ROOM(p->a, e->cost, e->cap_cost, nn);
}

void pass_nomem(pass *p)
{
    if (p->status == NNC_OK)
        p->status = nnc_nomem(p->sink);
}

void *pass_alloc(pass *p, size_t n, size_t size)
{
    void *m = nnc_arena_alloc(p->a, n, size);
    (void)pass_made(p, m);
    return m;
}

bool pass_made(pass *p, bool allocated)
{
    if (!allocated)
        pass_nomem(p);
    return allocated;
}

static bool add_use(pass *p, nnc_ref v, uint32_t node)
{
    edit *e = &p->e;
    if (!PASS_ROOM(p, e->uses, e->cap_uses, e->n_uses + 1))
        return false;
    e->uses[e->n_uses++] = (use){.node = node};
    uint32_t at = (uint32_t)e->n_uses;
    if (e->head[v])
        e->uses[e->tail[v] - 1].next = at;
    else
        e->head[v] = at;
    e->tail[v] = at;
    e->n_use[v]++;
    return true;
}

static nnc_cost cost_now(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    if (nnc_op_class(n->op) == CL_leaf || p->e.is_static[i] || p->e.dead[i])
        return (nnc_cost){0};
    return nnc_node_cost(p->g, n);
}

static bool static_now(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    if (!nnc_may_be_static(n))
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (!p->e.is_static[p->g->value[n->in[k]].node])
            return false;
    return true;
}

static void set_cost(pass *p, uint32_t i, nnc_cost c)
{
    edit *e = &p->e;
    e->bytes += c.bytes - e->cost[i].bytes;
    e->launches += c.launches - e->cost[i].launches;
    e->cost[i] = c;
}

bool edit_sync(pass *p)
{
    edit *e = &p->e;
    nnc_graph *g = p->g;
    if (g->status != NNC_OK && p->status == NNC_OK)
        p->status = g->status;
    if (p->status != NNC_OK || (e->n_node == g->n_node && e->n_value == g->n_value))
        return p->status == NNC_OK;
    if (!pass_made(p, grow_arrays(p)))
        return false;
    for (; e->n_value < g->n_value; e->n_value++)
        e->head[e->n_value] = e->tail[e->n_value] = e->n_use[e->n_value] =
            e->n_out_use[e->n_value] = 0;
    for (; e->n_node < g->n_node; e->n_node++) {
        uint32_t i = e->n_node;
        e->dead[i] = false;
        e->cost[i] = (nnc_cost){0};
        e->is_static[i] = static_now(p, i);
        for (int k = 0; k < g->node[i].n_in; k++)
            if (!add_use(p, g->node[i].in[k], i))
                return false;
        set_cost(p, i, cost_now(p, i));
    }
    return true;
}

nnc_status edit_open(pass *p)
{
    p->e = (edit){.g = p->g, .a = p->a};
    NNC_NEED(grow_arrays(p), p->sink);
    edit_sync(p);
    NNC_TRY(p->status);
    for (uint32_t i = 0; i < p->g->n_output; i++) {
        p->e.n_use[p->g->output[i]]++;
        p->e.n_out_use[p->g->output[i]]++;
    }
    p->e.bytes = p->e.launches = 0;
    p->e.taken_node = p->g->n_node;
    return NNC_OK;
}

void edit_at(pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    p->g->origin = n->origin;
    p->g->loc = n->loc;
    p->g->device = n->device;
    p->g->task = n->task;
    p->g->micro = n->micro;
}

static bool is_collective(const pass *p, uint32_t i)
{
    return nnc_op_class(p->g->node[i].op) == CL_collective;
}

void edit_at_operand(pass *p, uint32_t reader, nnc_ref v)
{
    edit_at(p, reader);
    if (is_collective(p, reader))
        p->g->device = nnc_home(p->g, v);
}

bool edit_may_read(const pass *p, uint32_t reader, nnc_ref v, nnc_ref other)
{
    return other != NNC_NONE &&
           (!is_collective(p, reader) || nnc_attr_find(&p->g->node[reader], AT_devices) ||
               nnc_home(p->g, other) == nnc_home(p->g, v));
}

void edit_refresh(pass *p, uint32_t i)
{
    edit *e = &p->e;
    edit_sync(p);
    /* a node that becomes static (or stops being it) may affect its users; a stack instead of recursion */
    uint32_t *stack = NULL;
    size_t n = 0, cap = 0;
    for (;;) {
        bool s = static_now(p, i), turned = s != e->is_static[i];
        e->is_static[i] = s;
        set_cost(p, i, cost_now(p, i));
        const nnc_node *node = &p->g->node[i];
        for (uint32_t o = 0; turned && o < node->n_out; o++)
            for (uint32_t u = 0, r; edit_next_user(p, node->out + o, &u, &r);) {
                if (!PASS_ROOM(p, stack, cap, n + 1))
                    return;
                stack[n++] = r;
            }
        if (!n)
            return;
        i = stack[--n];
    }
}

bool edit_unused(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    for (uint32_t o = 0; o < n->n_out; o++)
        if (p->e.n_use[n->out + o])
            return false;
    return true;
}

void edit_sweep(pass *p, uint32_t i)
{
    edit *e = &p->e;
    edit_sync(p);
    uint32_t *stack = NULL;
    size_t n = 0, cap = 0;
    for (;;) {
        nnc_node *node = &p->g->node[i];
        if (p->status == NNC_OK && !e->dead[i] && node->op != OP_input && edit_unused(p, i)) {
            e->dead[i] = true;
            set_cost(p, i, (nnc_cost){0});
            if (!PASS_ROOM(p, stack, cap, n + node->n_in + 1))
                return;
            for (int k = 0; k < node->n_in; k++) {
                e->n_use[node->in[k]]--;
                stack[n++] = p->g->value[node->in[k]].node;
            }
        }
        if (!n)
            return;
        i = stack[--n];
    }
}

void edit_set_operand(pass *p, uint32_t i, int k, nnc_ref r)
{
    edit_sync(p);
    nnc_ref old = p->g->node[i].in[k];
    if (r == NNC_NONE || p->status != NNC_OK || old == r)
        return;
    p->g->node[i].in[k] = r;
    p->e.n_use[old]--;
    if (!add_use(p, r, i))
        return;
    edit_refresh(p, i);
    edit_sweep(p, p->g->value[old].node);
}

nnc_ref edit_in_order(pass *p, nnc_ref v, const nnc_type *want)
{
    const nnc_type dense = nnc_type_dense(want);
    if (v == NNC_NONE || nnc_type_equal(type_of(p, v), &dense))
        return v;
    int64_t order[NNC_MAX_RANK];
    for (int d = 0; d < want->rank; d++)
        order[d] = want->order[d];
    nnc_attr a = nnc_av(AT_order, want->rank, order);
    return nnc_build(p->g, OP_relayout, 1, &v, 1, &a);
}

nnc_ref edit_like(pass *p, nnc_ref v, nnc_ref from)
{
    const nnc_type want = *type_of(p, from), dense = nnc_type_dense(&want);
    const nnc_attr axis = nnc_ai(AT_axis, 0);
    bool part = false;
    v = edit_in_order(p, v, &want);
    for (uint32_t u = 0, i; edit_next_user(p, from, &u, &i);)
        part |= p->g->node[i].op == OP_concat && nnc_is_in_place(&p->g->node[i]);
    if (v == NNC_NONE || !part || !nnc_is_view(p->g, def_of(p, v)))
        return v;
    return nnc_build_typed(p->g, OP_concat, 1, &v, 1, &axis, &dense);
}

/* The user's name stays with the value that is computed. */
static void move_name(pass *p, nnc_ref from, nnc_ref to)
{
    p->edited = true; /* tidying looks names up again */
    if (p->g->value[to].name)
        return;
    p->g->value[to].name = p->g->value[from].name;
    p->g->value[from].name = NULL;
}

void edit_replace(pass *p, nnc_ref from, nnc_ref to)
{
    edit *e = &p->e;
    if (!edit_sync(p) || from == to || from == NNC_NONE || to == NNC_NONE)
        return;
    nnc_type dense = nnc_type_dense(type_of(p, from));
    if (nnc_type_equal(&dense, type_of(p, to))) { /* what is a part of a larger value stays one */
        p->g->value[to].type = *type_of(p, from);
        edit_refresh(p, p->g->value[to].node);
    }
    if (!nnc_type_equal(type_of(p, from), type_of(p, to))) {
        p->status = nnc_fail0(
            p->sink, NNC_E_BUG, "pass %s: a value is replaced by one of another type", p->name);
        return;
    }
    uint32_t first = e->head[from];
    for (uint32_t u = first; u; u = e->uses[u - 1].next) {
        uint32_t i = e->uses[u - 1].node;
        nnc_node *n = &p->g->node[i];
        for (int k = 0; k < n->n_in && !e->dead[i]; k++)
            if (n->in[k] == from) {
                n->in[k] = to;
                e->n_use[from]--;
                e->n_use[to]++;
            }
    }
    for (uint32_t o = 0; e->n_out_use[from] && o < p->g->n_output; o++)
        if (p->g->output[o] == from) {
            p->g->output[o] = to;
            e->n_use[from]--, e->n_use[to]++;
            e->n_out_use[from]--, e->n_out_use[to]++;
        }
    if (first) {
        if (e->head[to])
            e->uses[e->tail[to] - 1].next = first;
        else
            e->head[to] = first;
        e->tail[to] = e->tail[from];
        e->head[from] = e->tail[from] = 0;
    }
    for (uint32_t u = first; u; u = e->uses[u - 1].next)
        if (!e->dead[e->uses[u - 1].node])
            edit_refresh(p, e->uses[u - 1].node);
    move_name(p, from, to);
    edit_sweep(p, p->g->value[from].node);
}

nnc_node *edit_only_user(const pass *p, nnc_ref v)
{
    if (p->e.n_use[v] != 1) /* an output counts as a use */
        return NULL;
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);)
        for (int k = 0; k < p->g->node[i].n_in; k++)
            if (p->g->node[i].in[k] == v)
                return &p->g->node[i];
    return NULL;
}

void edit_set_output(pass *p, uint32_t o, nnc_ref r)
{
    edit_sync(p);
    nnc_ref old = p->g->output[o];
    if (r == NNC_NONE || p->status != NNC_OK || old == r)
        return;
    p->g->output[o] = r;
    p->e.n_use[old]--, p->e.n_out_use[old]--;
    p->e.n_use[r]++, p->e.n_out_use[r]++;
    move_name(p, old, r);
    edit_sweep(p, p->g->value[old].node);
}
