/* ir/graph.c -- the graph as a container: creation and destruction, names, copies, uses, and tidy (removes dead code, restores the
 * order, renumbers ids). A fused node's body is a graph of its own, owned by the node. */
#include "ir/graph.h"

#include <string.h>

nnc_graph *nnc_graph_create(const char *name, nnc_sink *sink)
{
    nnc_graph *g = nnc_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->sink = sink;
    g->device = -1;
    g->task = -1;
    g->name = nnc_arena_strdup(&g->arena, name ? name : "main");
    if (!g->name) {
        nnc_graph_destroy(g);
        return NULL;
    }
    return g;
}

void nnc_graph_destroy(nnc_graph *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_node; i++)
        nnc_graph_destroy(g->node[i].body);
    nnc_given_drop(g->given);
    nnc_arena_deinit(&g->arena);
    nnc_free(g);
}

nnc_ref nnc_stick(nnc_graph *g, nnc_status s)
{
    if (g->status == NNC_OK)
        g->status = s;
    return NNC_NONE;
}

nnc_node nnc_take_place(nnc_graph *g, const nnc_node *n)
{
    const nnc_node before = {.device = g->device,
        .task = g->task,
        .micro = g->micro,
        .origin = g->origin,
        .loc = g->loc};
    g->device = n->device;
    g->task = n->task;
    g->micro = n->micro;
    g->origin = n->origin;
    g->loc = n->loc;
    return before;
}

nnc_loc nnc_node_loc(const nnc_node *n)
{
    nnc_loc loc = n->loc;
    if (n->origin)
        loc.path = n->origin;
    return loc;
}

/* ---- names ----------------------------------------------------------------------------------- */

struct nnc_name_slot {
    const char *name; /* NULL: free */
    nnc_ref r;
    uint32_t suffix; /* last number appended to this name */
};

static struct nnc_name_slot *probe(const nnc_graph *g, const char *name)
{
    size_t mask = g->cap_name - 1, i = nnc_hash64(name, strlen(name), 0) & mask;
    while (g->name_slot[i].name && strcmp(g->name_slot[i].name, name))
        i = (i + 1) & mask;
    return &g->name_slot[i];
}

static bool grow_names(nnc_graph *g)
{
    size_t cap = g->cap_name ? g->cap_name * 2 : 64, old_cap = g->cap_name;
    struct nnc_name_slot *old = g->name_slot,
                         *fresh = ARENA_NEW(&g->arena, struct nnc_name_slot, cap);
    if (!fresh) {
        nnc_stick(g, nnc_nomem(g->sink));
        return false;
    }
    g->name_slot = fresh;
    g->cap_name = cap;
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].name)
            *probe(g, old[i].name) = old[i];
    return true;
}

nnc_ref nnc_name_find(const nnc_graph *g, const char *name)
{
    if (!g->cap_name)
        return NNC_NONE;
    const struct nnc_name_slot *s = probe(g, name);
    return s->name ? s->r : NNC_NONE;
}

bool nnc_name_claim(nnc_graph *g, const char *name, nnc_ref r)
{
    if (g->n_name * 2 >= g->cap_name && !grow_names(g))
        return false;
    struct nnc_name_slot *s = probe(g, name);
    if (s->name)
        return false;
    *s = (struct nnc_name_slot){.name = name, .r = r, .suffix = 1};
    g->n_name++;
    return true;
}

/* A copy of `name` in the arena, without control characters: parse.c marks numbers with one. */
static char *clean_name(nnc_graph *g, const char *name)
{
    char *s = nnc_arena_strdup(&g->arena, name);
    for (char *p = s; p && *p; p++)
        if ((unsigned char)*p < ' ')
            *p = '_';
    return s;
}

void nnc_set_name(nnc_graph *g, nnc_ref r, const char *name)
{
    if (r == NNC_NONE || !name || !*name || g->status != NNC_OK)
        return;
    if (g->value[r].name && !strcmp(g->value[r].name, name))
        return;
    char *s = clean_name(g, name);
    if (s && g->value[r].name && !strcmp(g->value[r].name, s))
        return;
    if (s && !nnc_name_claim(g, s, r) && g->status == NNC_OK) {
        char *base = s;
        do {
            /* the counter is kept at the base name, so that n equal names take n steps, not n^2 */
            uint32_t k = ++probe(g, base)->suffix;
            s = nnc_arena_printf(&g->arena, "%s_%u", base, k);
        } while (s && !nnc_name_claim(g, s, r) && g->status == NNC_OK);
    }
    if (!s)
        nnc_stick(g, nnc_nomem(g->sink));
    if (g->status == NNC_OK)
        g->value[r].name = s;
}

/* ---- copies ---------------------------------------------------------------------------------- */

nnc_weight *nnc_weight_copy(nnc_graph *g, const nnc_weight *w, const nnc_type *t)
{
    nnc_weight *c = nnc_arena_memdup(&g->arena, w, sizeof *w);
    bool ok = c != NULL;
    if (ok && w->name)
        ok = (c->name = nnc_arena_strdup(&g->arena, w->name)) != NULL;
    if (ok && w->file)
        ok = (c->file = nnc_arena_strdup(&g->arena, w->file)) != NULL;
    if (ok && w->kind == NNC_W_inline) {
        size_t bytes = (size_t)nnc_type_bytes(t);
        ok = (c->data = nnc_arena_memdup(&g->arena, w->data, bytes)) != NULL;
        c->size = (int64_t)bytes;
    }
    if (ok)
        return c;
    nnc_stick(g, nnc_nomem(g->sink));
    return NULL;
}

static bool own_attrs(nnc_graph *g, nnc_node *d)
{
    d->attr = d->n_attr ? nnc_arena_memdup(&g->arena, d->attr, d->n_attr * sizeof *d->attr) : NULL;
    if (d->n_attr && !d->attr)
        return false;
    for (int i = 0; i < d->n_attr; i++)
        if (!nnc_keep_attr(g, &d->attr[i]))
            return false;
    return true;
}

/* Makes node i, so far a bitwise copy from another graph, independent of that graph. */
static bool own_node(nnc_graph *g, uint32_t i, const nnc_graph *src)
{
    nnc_node *d = &g->node[i];
    const nnc_node none = {0}, *before = i ? d - 1 : &none;
    d->origin = nnc_keep_string(g, d->origin, before->origin);
    d->loc.file = nnc_keep_string(g, d->loc.file, before->loc.file);
    d->loc.path = nnc_keep_string(g, d->loc.path, before->loc.path);
    bool ok = own_attrs(g, d);
    if (d->n_in)
        ok = (d->in = nnc_arena_memdup(&g->arena, d->in, d->n_in * sizeof *d->in)) && ok;
    if (d->weight)
        ok = (d->weight = nnc_weight_copy(g, d->weight, &src->value[d->out].type)) && ok;
    if (d->body)
        ok = (d->body = nnc_graph_clone(d->body, g->sink)) && ok;
    return ok && g->status == NNC_OK;
}

static bool own_values(nnc_graph *g)
{
    for (uint32_t r = 0; r < g->n_value; r++) {
        const char *name = g->value[r].name;
        if (!name)
            continue;
        g->value[r].name = nnc_arena_strdup(&g->arena, name);
        if (!g->value[r].name || !nnc_name_claim(g, g->value[r].name, r))
            return false;
    }
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output_name[i] &&
            !(g->output_name[i] = nnc_arena_strdup(&g->arena, g->output_name[i])))
            return false;
    return true;
}

static void *dup_array(nnc_graph *g, const void *p, size_t n, size_t size, bool *ok)
{
    void *c = n ? nnc_arena_memdup(&g->arena, p, n * size) : NULL;
    *ok = *ok && (c || !n);
    return c;
}

int nnc_graph_devices(const nnc_graph *g)
{
    int n = 1;
    for (uint32_t i = 0; i < g->n_node; i++)
        n = g->node[i].device + 1 > n ? g->node[i].device + 1 : n;
    return n;
}

nnc_graph *nnc_graph_clone(const nnc_graph *src, nnc_sink *sink)
{
    nnc_graph *g = nnc_graph_create(src->name, sink);
    if (!g) {
        (void)nnc_nomem(sink);
        return NULL;
    }
    bool ok = true;
    g->given = nnc_given_share(src->given);
    g->value = dup_array(g, src->value, src->n_value, sizeof *g->value, &ok);
    g->output = dup_array(g, src->output, src->n_output, sizeof *g->output, &ok);
    g->output_name = dup_array(g, src->output_name, src->n_output, sizeof *g->output_name, &ok);
    g->output_state = dup_array(g, src->output_state, src->n_output, sizeof *g->output_state, &ok);
    g->node = dup_array(g, src->node, src->n_node, sizeof *g->node, &ok);
    for (uint32_t i = 0; ok && i < src->n_empty; i++)
        nnc_output_empty(g, &src->empty[i].type, src->empty[i].name);
    if (ok) {
        g->cap_value = g->n_value = src->n_value;
        g->cap_output = g->n_output = src->n_output;
        g->cap_node = src->n_node;
    }
    while (ok && g->n_node < src->n_node) /* a node whose copy fails has its own body or none */
        ok = own_node(g, g->n_node++, src);
    if (ok && g->n_empty == src->n_empty && own_values(g)) {
        g->status = src->status;
        return g;
    }
    (void)nnc_nomem(sink);
    nnc_graph_destroy(g);
    return NULL;
}

nnc_ref nnc_copy_node(nnc_graph *dst, const nnc_graph *src, const nnc_node *n, const nnc_ref *in)
{
    if (dst->status != NNC_OK)
        return NNC_NONE;
    nnc_node proto = *n;
    proto.in = (nnc_ref *)in;
    if (n->body && !(proto.body = nnc_graph_clone(n->body, dst->sink)))
        return nnc_stick(dst, NNC_E_NOMEM);
    bool leaf = nnc_op_class(n->op) == CL_leaf;
    nnc_ref r = nnc_add_node(dst, &proto, leaf ? &src->value[n->out].type : NULL);
    for (int i = 0; r != NNC_NONE && i < n->n_out; i++) {
        const nnc_value *v = &src->value[n->out + (uint32_t)i];
        nnc_type *t = &dst->value[r + (uint32_t)i].type;
        if (nnc_type_same_shape(t, &v->type))
            nnc_type_set_order(t, v->type.order);
        nnc_set_name(dst, r + (uint32_t)i, v->name);
    }
    return dst->status == NNC_OK ? r : NNC_NONE;
}

/* Copies g's nodes into f; arg: values of f for g's inputs, or NULL to copy the input nodes. The array map receives g's values, `expand`:
 * 16-bit floats as f32, so that constants of expansions are not rounded. */
static void inline_graph(
    nnc_graph *f, const nnc_graph *g, const nnc_ref *arg, nnc_ref *map, bool expand, nnc_arena *tmp)
{
    int at = 0;
    for (uint32_t i = 0; i < g->n_node && f->status == NNC_OK; i++) {
        const nnc_node *n = &g->node[i];
        if (n->op == OP_input && arg) {
            map[n->out] = arg[at++];
            continue;
        }
        nnc_ref *in = ARENA_NEW(tmp, nnc_ref, n->n_in + 1);
        nnc_ref *inner = n->body ? ARENA_NEW(tmp, nnc_ref, n->body->n_value + 1) : NULL;
        if (!in || (n->body && !inner)) {
            f->status = nnc_nomem(f->sink);
            return;
        }
        for (int k = 0; k < n->n_in; k++)
            in[k] = map[n->in[k]];
        nnc_ref r = NNC_NONE;
        if (n->body)
            inline_graph(f, n->body, in, inner, expand, tmp);
        else
            r = expand && nnc_op_class(n->op) == CL_comp ? nnc_expand(f, n, in)
                                                         : nnc_copy_node(f, g, n, in);
        for (int k = 0; k < n->n_out && f->status == NNC_OK; k++) {
            nnc_ref *to = &map[n->out + (nnc_ref)k];
            *to = n->body ? inner[n->body->output[k]] : r + (nnc_ref)k;
            nnc_dtype d = nnc_typeof(f, *to)->dtype;
            if (expand && (d == DT_f16 || d == DT_bf16))
                *to = nnc_cast(f, *to, DT_f32);
        }
    }
}

nnc_graph *nnc_graph_flatten(const nnc_graph *g, bool expand, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) tmp = {0};
    nnc_graph *f = nnc_graph_create(g->name, sink);
    nnc_ref *map = ARENA_NEW(&tmp, nnc_ref, g->n_value + 1);
    if (f && map)
        inline_graph(f, g, NULL, map, expand, &tmp);
    for (uint32_t o = 0; f && map && o < g->n_output && f->status == NNC_OK; o++)
        nnc_output(f, map[g->output[o]], g->output_name[o]);
    if (f && (!map || f->status != NNC_OK)) {
        nnc_graph_destroy(f);
        f = NULL;
    }
    return f;
}

/* ---- uses and order -------------------------------------------------------------------------- */

void nnc_replace_uses(nnc_graph *g, nnc_ref from, nnc_ref to)
{
    if (from == NNC_NONE || to == NNC_NONE || from == to)
        return;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] == from)
                g->node[i].in[k] = to;
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i] == from)
            g->output[i] = to;
}

uint32_t *nnc_use_counts(const nnc_graph *g, nnc_arena *a)
{
    uint32_t *count = ARENA_NEW(a, uint32_t, g->n_value + 1);
    if (!count)
        return NULL;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            count[g->node[i].in[k]]++;
    for (uint32_t i = 0; i < g->n_output; i++)
        count[g->output[i]]++;
    return count;
}

typedef struct tidy {
    nnc_graph *g;
    bool *live;
    uint32_t *stack, n_stack;
    uint32_t *wait; /* per node: operands not yet ordered */
    uint32_t *first; /* per node: start of its users in `user` */
    uint32_t *user;
    nnc_heap ready; /* nodes, smallest old index first */
    uint32_t *order, n_order;
} tidy;

static void mark(tidy *t, uint32_t node)
{
    if (t->live[node])
        return;
    t->live[node] = true;
    t->stack[t->n_stack++] = node;
}

static void mark_live(tidy *t)
{
    nnc_graph *g = t->g;
    for (uint32_t i = 0; i < g->n_output; i++) {
        mark(t, g->value[g->output[i]].node);
        if (g->output_state[i] != NNC_NONE)
            mark(t, g->value[g->output_state[i]].node);
    }
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input)
            mark(t, i);
    while (t->n_stack) {
        const nnc_node *n = &g->node[t->stack[--t->n_stack]];
        for (int k = 0; k < n->n_in; k++)
            mark(t, g->value[n->in[k]].node);
    }
}

static bool is_lower(const void *ctx, uint32_t a, uint32_t b)
{
    (void)ctx;
    return a < b;
}

/* Kahn's algorithm; of ready nodes, the one with the smallest old index goes first. */
static void sort_nodes(tidy *t)
{
    nnc_graph *g = t->g;
    bool sorted = true; /* already */
    for (uint32_t i = 0; i < g->n_node; i++) {
        for (int k = 0; t->live[i] && k < g->node[i].n_in; k++) {
            uint32_t d = g->value[g->node[i].in[k]].node;
            sorted = sorted && d < i;
            t->wait[i]++;
            t->first[d + 1]++;
        }
        if (t->live[i])
            t->order[t->n_order++] = i;
    }
    if (sorted)
        return;
    t->n_order = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        t->first[i + 1] += t->first[i];
    uint32_t *fill = t->stack; /* free again: per node the next position in `user` */
    memcpy(fill, t->first, g->n_node * sizeof *fill);
    for (uint32_t i = 0; i < g->n_node; i++) {
        if (!t->live[i])
            continue;
        for (int k = 0; k < g->node[i].n_in; k++)
            t->user[fill[g->value[g->node[i].in[k]].node]++] = i;
        if (!t->wait[i])
            nnc_heap_push(&t->ready, i);
    }
    while (t->ready.n) {
        uint32_t i = nnc_heap_pop(&t->ready);
        t->order[t->n_order++] = i;
        for (uint32_t u = t->first[i]; u < t->first[i + 1]; u++)
            if (--t->wait[t->user[u]] == 0)
                nnc_heap_push(&t->ready, t->user[u]);
    }
}

static nnc_status claim_names(nnc_graph *g)
{
    if (g->cap_name)
        memset(g->name_slot, 0, g->cap_name * sizeof *g->name_slot);
    g->n_name = 0;
    for (uint32_t r = 0; r < g->n_value; r++)
        if (g->value[r].name)
            nnc_name_claim(g, g->value[r].name, r);
    return g->status;
}

/* Are nodes and values in order without gaps, as after most passes? Copying them is most of the cost of tidying. */
static bool is_numbered(const tidy *t)
{
    const nnc_graph *g = t->g;
    nnc_ref next = 0;
    bool same = t->n_order == g->n_node;
    for (uint32_t i = 0; i < g->n_node && same; i++) {
        same = t->order[i] == i && g->node[i].out == next;
        next += g->node[i].n_out;
    }
    return same && next == g->n_value;
}

/* Writes nodes and values in the new order. Allocates everything before changing anything. */
static nnc_status renumber(tidy *t)
{
    nnc_graph *g = t->g;
    if (is_numbered(t))
        return claim_names(g);
    nnc_node *node = ARENA_NEW(&g->arena, nnc_node, t->n_order + 1);
    nnc_value *value = ARENA_NEW(&g->arena, nnc_value, g->n_value + 1);
    nnc_ref *map = t->user; /* free again; large enough for every value, see alloc_tidy */
    NNC_NEED(node && value, g->sink);
    uint32_t nv = 0;
    for (uint32_t i = 0; i < t->n_order; i++) {
        node[i] = g->node[t->order[i]];
        for (int k = 0; k < node[i].n_out; k++) {
            map[node[i].out + (uint32_t)k] = nv;
            value[nv] = g->value[node[i].out + (uint32_t)k];
            value[nv++].node = i;
        }
        node[i].out = nv - node[i].n_out;
        for (int k = 0; k < node[i].n_in; k++)
            node[i].in[k] = map[node[i].in[k]];
    }
    for (uint32_t i = 0; i < g->n_output; i++) {
        g->output[i] = map[g->output[i]];
        if (g->output_state[i] != NNC_NONE)
            g->output_state[i] = map[g->output_state[i]];
    }
    for (uint32_t i = 0; i < g->n_node; i++)
        if (!t->live[i])
            nnc_graph_destroy(g->node[i].body);
    g->node = node;
    g->cap_node = t->n_order + 1;
    g->n_node = t->n_order;
    g->cap_value = g->n_value + 1;
    g->value = value;
    g->n_value = nv;
    return claim_names(g);
}

static bool alloc_tidy(tidy *t, nnc_arena *a)
{
    const nnc_graph *g = t->g;
    size_t n = g->n_node + 1u, uses = g->n_value + 1u;
    for (uint32_t i = 0; i < g->n_node; i++)
        uses += g->node[i].n_in;
    t->live = ARENA_NEW(a, bool, n);
    t->stack = ARENA_NEW(a, uint32_t, n);
    t->wait = ARENA_NEW(a, uint32_t, n);
    t->first = ARENA_NEW(a, uint32_t, n + 1);
    t->user = ARENA_NEW(a, uint32_t, uses);
    t->ready = (nnc_heap){.at = ARENA_NEW(a, uint32_t, n), .before = is_lower};
    t->order = ARENA_NEW(a, uint32_t, n);
    return t->live && t->stack && t->wait && t->first && t->user && t->ready.at && t->order;
}

static nnc_status tidy_up(nnc_graph *g)
{
    NNC_LOCAL(nnc_arena) scratch = {0};
    tidy t = {.g = g};
    uint32_t n_live = 0;
    NNC_NEED(alloc_tidy(&t, &scratch), g->sink);
    mark_live(&t);
    sort_nodes(&t);
    for (uint32_t i = 0; i < g->n_node; i++)
        n_live += t.live[i];
    if (t.n_order != n_live)
        return nnc_fail0(g->sink, NNC_E_BUG, "graph @%s: the nodes form a cycle", g->name);
    return renumber(&t);
}

nnc_status nnc_graph_tidy(nnc_graph *g)
{
    nnc_status status = g->status != NNC_OK ? g->status : tidy_up(g);
    if (status != NNC_OK && g->status == NNC_OK)
        nnc_stick(g, status);
    return status;
}
