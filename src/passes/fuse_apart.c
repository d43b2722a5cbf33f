/* passes/fuse_apart.c -- compares each kernel that fuse formed with one kernel per layer, by the same estimate. Divides it where it is not
 * expected to be faster. fuse merges two groups at a time, each merge with a tolerance, so that several merges can lose together.
 *
 * The layers of a kernel are in order. Dynamic programming finds the cheapest way to divide that order into kernels.
 *
 *     least(j) = min over i < j of least(i) + cost(i, j),  cost: the estimate of layers i .. j - 1 in one kernel.
 *
 * A kernel of several layers must win by a margin, unless all are elementwise and of one size. In training steps kernels stay whole: values
 * between their parts would need memory. Terminates: a group is divided once. */
#include "passes/group.h"

#include <stdlib.h>

/* MOST_LAYERS: limit of a group that is considered. MOST_JOINED: limit of a part, so that a group's estimates are linear in its layers.
 * MARGIN: a kernel of several layers must take less than separate ones by 1/MARGIN, as the remark says. */
enum { MOST_LAYERS = 48, MOST_JOINED = 12, MARGIN = 32 };

typedef struct unit { /* a layer's nodes in a group */
    uint32_t *node, n;
    uint32_t last;
    bool views; /* they move no data */
    bool flat; /* elementwise, of numel elements each */
    int64_t numel;
    int64_t ns;
} unit;

typedef struct dividing {
    groups *s;
    unit u[MOST_LAYERS];
    uint32_t n;
    uint32_t *scratch, *unit_of; /* nodes of a part; by node of the graph */
} dividing;

NNC_ORDER(by_last, unit, nnc_cmp(a->last, b->last))

/* Finds the layers of group g, in an order in which each reads results of earlier ones. False: there is none, or only one layer. */
static bool find_layers(dividing *d, uint32_t g)
{
    const groups *s = d->s;
    const nnc_graph *graph = s->p->g;
    const group *q = &s->group[g];
    d->n = 0;
    for (uint32_t k = 0; k < q->n; k++) {
        const uint32_t i = q->member[k];
        const char *path = graph->node[i].origin;
        uint32_t at = 0;
        while (at < d->n && !(path && graph->node[d->u[at].last].origin &&
                                !strcmp(path, graph->node[d->u[at].last].origin)))
            at++;
        if (at == MOST_LAYERS)
            return false;
        if (at == d->n)
            d->u[d->n++] = (unit){.views = true, .flat = true};
        unit *u = &d->u[at];
        const group alone = groups_alone(graph, i);
        u->flat = u->flat && alone.flat && (u->n == 0 || u->numel == alone.numel);
        u->numel = alone.numel;
        u->last = i;
        u->n++;
        u->views = u->views && nnc_is_view(graph, &graph->node[i]);
    }
    qsort(d->u, d->n, sizeof *d->u, by_last);
    uint32_t *place = d->scratch;
    for (uint32_t j = 0; j < d->n; j++) {
        const char *path = graph->node[d->u[j].last].origin;
        d->u[j].node = place;
        for (uint32_t k = 0; k < q->n; k++) {
            const uint32_t i = q->member[k];
            const char *own = graph->node[i].origin;
            if (i == d->u[j].last || (path && own && !strcmp(path, own))) {
                *place++ = i;
                d->unit_of[i] = j;
            }
        }
    }
    for (uint32_t k = 0; k < q->n; k++) {
        const nnc_node *n = &graph->node[q->member[k]];
        for (int j = 0; j < n->n_in; j++) {
            const uint32_t from = graph->value[n->in[j]].node;
            if (group_of(s, from) == g && d->unit_of[from] > d->unit_of[q->member[k]])
                return false;
        }
    }
    return d->n > 1;
}

/* The nodes of layers i .. j - 1, ascending. */
static uint32_t join_nodes(const dividing *d, uint32_t i, uint32_t j, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t k = i; k < j; k++) {
        memcpy(out + n, d->u[k].node, d->u[k].n * sizeof *out);
        n += d->u[k].n;
    }
    sort_nodes(out, n);
    return n;
}

/* True when edges inside connect these nodes. */
static bool connected(dividing *d, const uint32_t *nodes, uint32_t n)
{
    groups *s = d->s;
    const nnc_graph *g = s->p->g;
    uint32_t reached = 1, before;
    groups_mark(s, nodes, n);
    uint32_t *part = d->unit_of; /* not asked for meanwhile */
    for (uint32_t k = 0; k < n; k++)
        part[nodes[k]] = k == 0;
    do {
        before = reached;
        for (uint32_t k = 0; k < n; k++) {
            const nnc_node *m = &g->node[nodes[k]];
            for (int j = 0; j < m->n_in; j++) {
                const uint32_t from = g->value[m->in[j]].node;
                if (s->seen[from] == s->stamp && part[from] != part[nodes[k]]) {
                    part[from] = part[nodes[k]] = 1;
                    reached++;
                }
            }
        }
    } while (reached != before && reached < n);
    return reached == n;
}

/* The expected time of one kernel of layers i .. j - 1; INT64_MAX: there is none. */
static int64_t part_ns(dividing *d, uint32_t i, uint32_t j, uint32_t *nodes)
{
    const char *why;
    int64_t work;
    bool views = true;
    if (j == i + 1)
        return d->u[i].ns;
    for (uint32_t k = i; k < j; k++)
        views = views && d->u[k].views;
    if (views)
        return 0;
    const uint32_t n = join_nodes(d, i, j, nodes);
    if (!connected(d, nodes, n) || !groups_one_kernel(d->s, nodes, n, &why))
        return INT64_MAX;
    const int64_t ns = groups_nodes_ns(d->s, nodes, n, &work);
    return ns ? ns : INT64_MAX;
}

/* The expected time of the layers as written; 0: one of them is no kernel. */
static int64_t written_ns(dividing *d)
{
    int64_t sum = 0, work;
    for (uint32_t k = 0; k < d->n; k++) {
        unit *u = &d->u[k];
        const char *why;
        u->ns = 0;
        if (u->views)
            continue;
        if (groups_one_kernel(d->s, u->node, u->n, &why))
            u->ns = groups_nodes_ns(d->s, u->node, u->n, &work);
        if (!u->ns)
            return 0;
        sum += u->ns;
    }
    return sum;
}

/* Are layers i .. j - 1 elementwise and of one size? One kernel then does the same work, and moves fewer bytes. */
static bool are_flat(const dividing *d, uint32_t i, uint32_t j)
{
    for (uint32_t k = i; k < j; k++)
        if (!d->u[k].flat || d->u[k].numel != d->u[i].numel)
            return false;
    return true;
}

/* Cost of a part in the search: its time, and a margin if it has several layers. A part of only flat layers, whose estimate may err, costs
 * at most the sum of their times: otherwise fuse would merge them again. */
static int64_t part_cost(dividing *d, uint32_t i, uint32_t j, uint32_t *nodes)
{
    int64_t ns = part_ns(d, i, j, nodes), written = 0;
    if (ns == INT64_MAX || j == i + 1)
        return ns;
    for (uint32_t k = i; k < j; k++)
        written += d->u[k].ns;
    if (written && are_flat(d, i, j) && ns - written <= written / 4)
        return nnc_min64(ns + ns / MARGIN, written - 1);
    return ns + ns / MARGIN;
}

/* Divides the layers of a group into kernels of least time: cut[j] is where the part that ends before layer j begins. Returns the time. */
static int64_t divide(dividing *d, uint32_t *nodes, uint32_t *cut)
{
    int64_t least[MOST_LAYERS + 1] = {0};
    for (uint32_t j = 1; j <= d->n; j++) {
        least[j] = INT64_MAX;
        for (uint32_t i = j; i-- > 0 && j - i <= MOST_JOINED;) {
            const int64_t ns = part_cost(d, i, j, nodes);
            if (ns != INT64_MAX && least[i] + ns < least[j]) {
                least[j] = least[i] + ns;
                cut[j] = i;
            }
        }
    }
    return least[d->n];
}

/* Text of the reason: times of one kernel, of the layers as written, and of the parts. */
static const char *reason_of(pass *p, int64_t one, int64_t written, int64_t parts)
{
    const int64_t ns[] = {one, written, parts};
    int more = 0;
    for (int i = 0; i < 3; i++)
        more = (int)nnc_max64(more, nnc_us_digits(ns[i], ns[(i + 1) % 3]));
    const char *as = text_us_to(p, written, more);
    return remark_text(p,
        "one kernel of all these layers does not promise to be 3 %% faster: it takes %s by "
        "estimate, as written %s%s",
        text_us_to(p, one, more), as,
        parts == written ? "" : remark_text(p, ", in parts %s", text_us_to(p, parts, more)));
}

/* Decides about group g. True: its nodes' entries of `label` name the parts by their first nodes. */
static bool take_apart(dividing *d, uint32_t g, uint32_t *nodes, uint32_t *label)
{
    groups *s = d->s;
    uint32_t cut[MOST_LAYERS + 1] = {0};
    int64_t work;
    if (!find_layers(d, g))
        return false;
    const int64_t written = written_ns(d),
                  one = groups_nodes_ns(s, s->group[g].member, s->group[g].n, &work);
    /* flat layers: the gain must exceed the estimate's usual error */
    const bool flat = s->group[g].flat;
    if (!written || !one || one + one / MARGIN <= written || (flat && one - written <= written / 4))
        return false;
    if (divide(d, nodes, cut) >= one + one / MARGIN || cut[d->n] == 0)
        return false;
    int64_t parts = 0;
    for (uint32_t j = d->n; j > 0; j = cut[j])
        parts += part_ns(d, cut[j], j, nodes);
    for (uint32_t j = d->n; j > 0; j = cut[j])
        for (uint32_t k = cut[j]; k < j; k++)
            for (uint32_t i = 0; i < d->u[k].n; i++)
                label[d->u[k].node[i]] = d->u[cut[j]].node[0];
    const char *why = reason_of(s->p, one, written, parts);
    for (uint32_t k = 0; k < s->group[g].n; k++)
        s->taken[s->group[g].member[k]] = why;
    return true;
}

/* Forms the groups again, one for each label. */
static void form_again(groups *s, const uint32_t *label)
{
    groups t;
    const uint32_t n = s->n_node;
    uint32_t *count = PASS_NEW(s->p, uint32_t, n + 2), *list = PASS_NEW(s->p, uint32_t, n + 1);
    if (!count || !list || !groups_init(&t, s->p)) {
        pass_nomem(s->p);
        return;
    }
    t.updates = s->updates; /* not a training step: late, last and gradient are NULL */
    t.taken = s->taken;
    for (uint32_t i = 0; i < n; i++)
        count[label[i] + 1]++;
    for (uint32_t i = 0; i < n; i++)
        count[i + 1] += count[i];
    for (uint32_t i = 0; i < n; i++)
        list[count[label[i]]++] = i;
    for (uint32_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && label[list[k]] == label[list[i]];)
            k++;
        if (k - i > 1)
            groups_merge_nest(&t, list + i, k - i);
    }
    *s = t;
}

const char *groups_taken_apart(const groups *s, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; s->taken && i < s->group[a].n; i++) {
        const char *why = s->taken[s->group[a].member[i]];
        for (uint32_t k = 0; why && k < s->group[b].n; k++)
            if (s->taken[s->group[b].member[k]] == why)
                return why;
    }
    return NULL;
}

bool groups_take_apart(groups *s)
{
    pass *p = s->p;
    const uint32_t n = s->n_node;
    dividing d = {.s = s};
    bool any = false;
    if (s->late)
        return false;
    uint32_t *label = PASS_NEW(p, uint32_t, n + 1), *nodes = PASS_NEW(p, uint32_t, n + 1);
    d.scratch = PASS_NEW(p, uint32_t, n + 1);
    d.unit_of = PASS_NEW(p, uint32_t, n + 1);
    s->taken = s->taken ? s->taken : PASS_NEW(p, const char *, n + 1);
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++)
        label[i] = group_of(s, i);
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        const nnc_target *t = target_of(p, &p->g->node[i]);
        if (group_of(s, i) == i && s->group[i].n_real > 1 && t && t->kind == NNC_T_cpu)
            any = take_apart(&d, i, nodes, label) || any;
    }
    if (any && p->status == NNC_OK) {
        form_again(s, label);
        s->apart = true;
    }
    return any;
}
