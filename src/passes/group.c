/* passes/group.c -- union-find of nodes with a topological order of the groups, repaired after each merge. A search visits only groups
 * between the two (Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", JEA 2006). */
#include "passes/group.h"

#include <stdlib.h>

static bool may_fuse(const pass *p, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    if (p->e.dead[i] || nnc_is_in_place(n))
        return false;
    switch (nnc_op_class(n->op)) {
    case CL_ewise:
    case CL_ecomp:
    case CL_reduce:
    case CL_move:
    case CL_window: return true;
    case CL_contract: return is_kernel_conv(p, n, NULL);
    default: return false;
    }
}

group groups_alone(const nnc_graph *g, uint32_t i)
{
    const nnc_node *n = &g->node[i];
    group q = {.n = 1, .n_real = !nnc_is_view(g, n), .rows = INT64_MAX};
    for (uint32_t o = 0; o < n->n_out; o++) {
        q.numel = nnc_max64(q.numel, nnc_type_numel(nnc_typeof(g, n->out + o)));
        q.bytes = nnc_max64(q.bytes, nnc_type_bytes(nnc_typeof(g, n->out + o)));
    }
    q.flat = nnc_op_class(n->op) == CL_ewise || nnc_op_class(n->op) == CL_ecomp ||
             (n->op == OP_reshape && nnc_is_view(g, n));
    for (int k = 0; k < n->n_in; k++) {
        const nnc_type *x = nnc_typeof(g, n->in[k]);
        q.bytes = nnc_max64(q.bytes, nnc_type_bytes(x));
        q.flat = q.flat && (nnc_type_numel(x) == q.numel || nnc_type_numel(x) == 1);
    }
    if (nnc_op_class(n->op) == CL_reduce)
        q.rows = q.numel;
    return q;
}

static void init_group(groups *s, uint32_t i, uint32_t *self)
{
    *self = i;
    s->group[i] = groups_alone(s->p->g, i);
    s->group[i].member = self;
}

bool groups_init(groups *s, pass *p)
{
    uint32_t n = p->g->n_node;
    *s = (groups){.p = p, .n_node = n, .n_value = p->g->n_value};
    uint32_t *self = ARENA_NEW(p->a, uint32_t, n + 1);
    s->parent = ARENA_NEW(p->a, uint32_t, n + 1);
    s->group = ARENA_NEW(p->a, group, n + 1);
    s->fusable = ARENA_NEW(p->a, bool, n + 1);
    s->ord = ARENA_NEW(p->a, uint32_t, n + 1);
    s->kept = ARENA_NEW(p->a, uint32_t, n + 1);
    s->moved = ARENA_NEW(p->a, uint32_t, n + 1);
    s->since = ARENA_NEW(p->a, uint32_t, n + 1);
    s->mark = ARENA_NEW(p->a, uint32_t, p->g->n_value + 1);
    s->seen = ARENA_NEW(p->a, uint32_t, n + 1);
    s->stack = ARENA_NEW(p->a, uint32_t, n + 1);
    s->ahead = ARENA_NEW(p->a, uint32_t, n + 2);
    s->behind = ARENA_NEW(p->a, uint32_t, 2 * (size_t)n + 4);
    s->joined = ARENA_NEW(p->a, uint32_t, n + 1);
    s->result = ARENA_NEW(p->a, nnc_ref, p->g->n_value + 1);
    if (!self || !s->parent || !s->group || !s->fusable || !s->ord || !s->mark || !s->seen ||
        !s->stack || !s->ahead || !s->behind || !s->joined || !s->result || !s->kept || !s->moved ||
        !s->since)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        s->parent[i] = s->ord[i] = i;
        s->fusable[i] = may_fuse(p, i);
        init_group(s, i, &self[i]);
    }
    return true;
}

uint32_t group_of(const groups *s, uint32_t i)
{
    return find_root(s->parent, i);
}

void groups_mark(groups *s, const uint32_t *nodes, uint32_t n)
{
    s->stamp++;
    for (uint32_t k = 0; k < n; k++)
        s->seen[nodes[k]] = s->stamp;
}

bool groups_leave(const groups *s, nnc_ref v)
{
    bool any = false;
    for (uint32_t u = 0, i; !any && edit_next_user(s->p, v, &u, &i);)
        any = i >= s->n_node || s->seen[i] != s->stamp;
    return any;
}

static void visit(groups *s, uint32_t g, uint32_t *top)
{
    if (s->seen[g] == s->stamp)
        return;
    s->seen[g] = s->stamp;
    s->stack[(*top)++] = g;
}

/* Pushes the groups that read results of g and precede `limit`. True when `target` is one of them. */
static bool push_readers(groups *s, uint32_t g, uint32_t target, uint32_t *top)
{
    const pass *p = s->p;
    bool hit = false;
    for (uint32_t k = 0; k < s->group[g].n; k++) {
        const nnc_node *n = &p->g->node[s->group[g].member[k]];
        for (uint32_t o = 0; o < n->n_out; o++)
            for (uint32_t u = 0, i; edit_next_user(p, n->out + o, &u, &i);) {
                uint32_t r = group_of(s, i);
                if (r == g)
                    continue;
                hit = hit || r == target;
                if (r != target && s->ord[r] < s->ord[target])
                    visit(s, r, top);
            }
    }
    return hit;
}

static void push_sources(groups *s, uint32_t g, uint32_t target, uint32_t *top)
{
    const pass *p = s->p;
    for (uint32_t k = 0; k < s->group[g].n; k++) {
        const nnc_node *n = &p->g->node[s->group[g].member[k]];
        for (int j = 0; j < n->n_in; j++) {
            uint32_t r = group_of(s, p->g->value[n->in[j]].node);
            if (r != g && r != target && s->ord[r] > s->ord[target])
                visit(s, r, top);
        }
    }
}

bool groups_can_merge(groups *s, uint32_t a, uint32_t b)
{
    uint32_t top = 0;
    if (s->ord[a] > s->ord[b])
        return false;
    s->stamp++;
    s->n_ahead = 0;
    push_readers(s, a, b, &top);
    while (top) {
        uint32_t g = s->stack[--top];
        s->ahead[s->n_ahead++] = g;
        if (push_readers(s, g, b, &top))
            return false;
    }
    return true;
}

static int by_ord(const void *x, const void *y, void *ctx)
{
    const uint32_t *ord = ctx;
    return nnc_cmp(ord[*(const uint32_t *)x], ord[*(const uint32_t *)y]);
}

void sort_nodes(uint32_t *node, size_t n)
{
    qsort(node, n, sizeof *node, nnc_by_index);
}

void groups_keep(groups *s)
{
    s->n_keep++;
    s->n_moved = 0;
}

static void move(groups *s, uint32_t g, uint32_t ord)
{
    if (s->since[g] != s->n_keep) {
        s->since[g] = s->n_keep;
        s->kept[g] = s->ord[g];
        s->moved[s->n_moved++] = g;
    }
    s->ord[g] = ord;
}

void groups_part(groups *s, const uint32_t *nodes, uint32_t n)
{
    uint32_t *self = PASS_NEW(s->p, uint32_t, n + 1);
    for (uint32_t k = 0; k < s->n_moved; k++)
        s->ord[s->moved[k]] = s->kept[s->moved[k]];
    groups_keep(s);
    for (uint32_t k = 0; k < n && self; k++) {
        s->parent[nodes[k]] = nodes[k];
        init_group(s, nodes[k], &self[k]);
    }
}

const uint32_t *groups_joined(groups *s, uint32_t a, uint32_t b, uint32_t *n)
{
    const group *x = &s->group[a], *y = &s->group[b];
    uint32_t i = 0, j = 0, k = 0;
    while (i < x->n || j < y->n)
        s->joined[k++] = j == y->n || (i < x->n && x->member[i] < y->member[j]) ? x->member[i++]
                                                                                : y->member[j++];
    *n = k;
    return s->joined;
}

/* Reassigns the positions of all affected groups: sources of b, the merged group, readers of a. */
static void reorder(groups *s, uint32_t a, uint32_t b, uint32_t root)
{
    uint32_t top = 0, n = 0;
    uint32_t *place = s->stack; /* free between searches */
    if (!s->n_ahead) { /* no reader of a precedes b */
        move(s, root, s->ord[b]);
        return;
    }
    s->stamp++;
    s->n_behind = 0;
    push_sources(s, b, a, &top);
    while (top) {
        uint32_t g = s->stack[--top];
        s->behind[s->n_behind++] = g;
        push_sources(s, g, a, &top);
    }
    qsort_r(s->behind, s->n_behind, sizeof *s->behind, by_ord, s->ord);
    qsort_r(s->ahead, s->n_ahead, sizeof *s->ahead, by_ord, s->ord);
    for (uint32_t i = 0; i < s->n_behind; i++)
        place[n++] = s->ord[s->behind[i]];
    place[n++] = s->ord[a];
    for (uint32_t i = 0; i < s->n_ahead; i++)
        place[n++] = s->ord[s->ahead[i]];
    sort_nodes(place, n);
    n = 0;
    for (uint32_t i = 0; i < s->n_behind; i++)
        move(s, s->behind[i], place[n++]);
    move(s, root, place[n++]);
    for (uint32_t i = 0; i < s->n_ahead; i++)
        move(s, s->ahead[i], place[n++]);
}

void groups_merge(groups *s, uint32_t a, uint32_t b)
{
    pass *p = s->p;
    if (!groups_can_merge(
            s, a, b)) /* refreshes s->ahead, since other searches may have run in between */
        return;
    uint32_t n, root = a < b ? a : b;
    groups_joined(s, a, b, &n);
    uint32_t *member = nnc_arena_memdup(p->a, s->joined, n * sizeof *member);
    if (!member) {
        pass_nomem(p);
        return;
    }
    reorder(s, a, b, root);
    group x = s->group[a], y = s->group[b];
    s->parent[a == root ? b : a] = root;
    s->group[root] = (group){.member = member,
        .n = n,
        .n_real = x.n_real + y.n_real,
        .rows = nnc_min64(x.rows, y.rows),
        .numel = nnc_max64(x.numel, y.numel),
        .bytes = nnc_max64(x.bytes, y.bytes),
        .flat = x.flat && y.flat && x.numel == y.numel};
}
