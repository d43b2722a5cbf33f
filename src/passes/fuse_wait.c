/* passes/fuse_wait.c -- operands of the backward pass that one kernel would keep in memory while a gradient is computed.
 *
 * The mask of a relu can be computed from its result in the kernel that multiplies by it. That kernel runs after the convolution whose
 * result it multiplies. Until then the relu's result stays in memory, beside the convolution's operand and result.
 *
 *     x, dy -> weight gradient        dy -> convolution -> dx        x, dx -> one kernel: x > 0, dx * mask.
 *
 * As two kernels, the first frees x, and a byte for each of its elements waits. That is better where memory would have its peak there.
 *
 * The same holds for a result of the forward pass that is computed again, such as a relu's for the next weight's gradient. A separate
 * kernel frees it before others run. One kernel for both would keep it beside all of their results. */
#include "passes/group.h"

enum { SHARE = 2 }; /* the value that waits instead is smaller by at least this factor */

/* Is v in memory at any time, or computed from gradients? */
static bool is_apart(const groups *s, nnc_ref v)
{
    const pass *p = s->p;
    const uint32_t d = p->g->value[v].node;
    return s->gradient[d] || p->e.is_static[d] || nnc_op_class(p->g->node[d].op) == CL_leaf;
}

/* Bytes of the largest gradient that node i reads, and of that gradient's operands unless it overwrites them. 0: node i reads no
 * gradient. */
static int64_t gradient_bytes(const groups *s, uint32_t i)
{
    const nnc_graph *g = s->p->g;
    int64_t most = 0;
    for (int k = 0; k < g->node[i].n_in; k++) {
        const nnc_ref v = nnc_reshaped(g, g->node[i].in[k]);
        const nnc_node *d = def_of(s->p, v);
        if (!s->gradient[g->value[v].node])
            continue;
        int64_t bytes = bytes_of(s->p, v);
        for (int j = 0; j < d->n_in && nnc_op_class(d->op) != CL_ewise; j++)
            if (s->gradient[g->value[d->in[j]].node])
                bytes = nnc_add_sat(bytes, bytes_of(s->p, d->in[j]));
        most = nnc_max64(most, bytes);
    }
    return most;
}

/* Bytes in use when node i of the backward pass begins, which reads a gradient and v. They are the gradient and its operands, v, and what
 * is kept for the layers before v's. */
static int64_t bytes_in_use(const groups *s, uint32_t i, nnc_ref v)
{
    const int64_t gradient = gradient_bytes(s, i);
    return gradient ? gradient + bytes_of(s->p, v) + s->before[s->place[s->p->g->value[v].node]]
                    : 0;
}

/* By node: the last forward node among its direct and indirect operands; n_node: none. */
static void find_places(groups *s, uint32_t *place)
{
    const nnc_graph *g = s->p->g;
    for (uint32_t i = 0; i < s->n_node; i++) {
        const bool given = is_apart(s, g->node[i].out);
        place[i] = given || s->late[i] ? s->n_node : i;
        for (int k = 0; k < g->node[i].n_in && s->late[i] && !given; k++) {
            const uint32_t at = place[g->value[g->node[i].in[k]].node];
            if (place[i] == s->n_node || (at != s->n_node && at > place[i]))
                place[i] = at;
        }
    }
}

/* By value: bytes that are kept for the backward pass because of it. Its own bytes count if a gradient is computed from it. Otherwise at
 * most the results that the forward pass can compute from it count, such as the index of a max pooling. */
static void find_kept(const groups *s, int64_t *kept)
{
    const pass *p = s->p;
    const nnc_graph *g = p->g;
    for (nnc_ref v = s->n_value; v-- > 0;) {
        const int64_t bytes = bytes_of(p, v);
        int64_t sum = 0;
        for (uint32_t u = 0, r; edit_next_user(p, v, &u, &r);) {
            if (!s->late[r])
                continue;
            const nnc_node *n = &g->node[r];
            for (nnc_ref o = n->out; o < n->out + n->n_out && !s->gradient[r]; o++)
                sum = nnc_add_sat(sum, kept[o]);
            sum = s->gradient[r] ? bytes : sum;
            if (s->gradient[r])
                break;
        }
        kept[v] = nnc_min64(sum, bytes);
    }
}

/* Bytes of node i's results that are kept for the backward pass, if it is in the forward pass. */
static int64_t bytes_kept(const groups *s, uint32_t i, const int64_t *kept)
{
    const nnc_node *n = &s->p->g->node[i];
    int64_t sum = 0;
    for (nnc_ref v = n->out; v < n->out + n->n_out && !s->late[i]; v++)
        sum += is_apart(s, v) || nnc_is_view(s->p->g, n) ? 0 : kept[v];
    return sum;
}

/* Sums the kept bytes, and finds the peak that does not depend on fusion. With several devices, which have separate memories, does
 * nothing. */
void groups_of_wait(groups *s)
{
    pass *p = s->p;
    const nnc_graph *g = p->g;
    uint32_t *place = s->late ? PASS_NEW(p, uint32_t, s->n_node + 1) : NULL;
    int64_t *before = place ? PASS_NEW(p, int64_t, s->n_node + 1) : NULL, all = 0;
    int64_t *kept = before ? PASS_NEW(p, int64_t, s->n_value + 1) : NULL;
    if (!kept)
        return;
    find_kept(s, kept);
    find_places(s, place);
    for (uint32_t i = 0; i < s->n_node; i++) {
        if (g->node[i].device > 0)
            return;
        before[i] = all;
        all = nnc_add_sat(all, bytes_kept(s, i, kept));
    }
    s->place = place;
    s->before = before; /* before[n_node]: 0 */
    s->peak = all;
    for (uint32_t i = 0; i < s->n_node; i++)
        for (int k = 0; k < g->node[i].n_in && s->late[i] && s->gradient[i]; k++)
            if (!is_apart(s, g->node[i].in[k]))
                s->peak = nnc_max64(s->peak, bytes_in_use(s, i, g->node[i].in[k]));
}

/* Does a node of group b read v, or a view of it? */
static bool reads(const groups *s, nnc_ref v, uint32_t b)
{
    const pass *p = s->p;
    bool any = false;
    for (uint32_t u = 0, i; !any && edit_next_user(p, v, &u, &i);)
        any = group_of(s, i) == b;
    return any;
}

/* Is v used after group a's kernel, and therefore in memory in any case? Other kernels that only read v may run before. */
static bool is_used_up(const groups *s, nnc_ref v, uint32_t a, uint32_t b)
{
    return !edit_is_output(s->p, v) && !reads(s, v, b) && reads(s, v, a);
}

/* The largest operand that only group a reads, and that would wait for group b. */
static nnc_ref largest_operand(const groups *s, uint32_t a, uint32_t b)
{
    const nnc_graph *g = s->p->g;
    nnc_ref largest = NNC_NONE;
    for (uint32_t k = 0; k < s->group[a].n; k++) {
        const nnc_node *n = &g->node[s->group[a].member[k]];
        for (int j = 0; j < n->n_in; j++) {
            const nnc_ref v = n->in[j];
            if (!is_apart(s, v) && group_of(s, g->value[v].node) != a && is_used_up(s, v, a, b) &&
                (largest == NNC_NONE || bytes_of(s->p, v) > bytes_of(s->p, largest)))
                largest = v;
        }
    }
    return largest;
}

/* Bytes of a's results that b reads; *in_use: the most that would be in use when b begins, with v. */
static int64_t bytes_passed(const groups *s, uint32_t a, uint32_t b, nnc_ref v, int64_t *in_use)
{
    const nnc_graph *g = s->p->g;
    int64_t sum = 0;
    for (uint32_t k = 0; k < s->group[b].n; k++) {
        const uint32_t i = s->group[b].member[k];
        *in_use = nnc_max64(*in_use, bytes_in_use(s, i, v));
        for (int j = 0; j < g->node[i].n_in; j++)
            if (group_of(s, g->value[g->node[i].in[j]].node) == a)
                sum += bytes_of(s->p, g->node[i].in[j]);
    }
    return sum;
}

const char *waits_for_gradient(groups *s, uint32_t a, uint32_t b)
{
    const nnc_ref v = s->place ? largest_operand(s, a, b) : NNC_NONE;
    int64_t in_use = 0;
    if (v == NNC_NONE)
        return NULL;
    const int64_t bytes = bytes_of(s->p, v), passed = bytes_passed(s, a, b, v, &in_use);
    if (passed > bytes / SHARE || in_use <= s->peak)
        return NULL;
    return remark_text(s->p,
        "%s would stay in memory until the gradient is there, instead of %s, and raise the "
        "peak to %s",
        text_bytes(s->p, bytes), text_bytes(s->p, passed), text_bytes(s->p, in_use));
}

/* Is v in memory whatever is fused: an output, or read by an op that no kernel contains? */
static bool is_stored(const groups *s, nnc_ref v)
{
    bool any = edit_is_output(s->p, v);
    for (uint32_t u = 0, i; !any && edit_next_user(s->p, v, &u, &i);)
        any = i >= s->n_node || !s->fusable[i];
    return any;
}

/* Bytes of the marked nodes' results that are stored; *again: of those that need no gradient; *largest. */
static int64_t bytes_stored(
    const groups *s, const uint32_t *nodes, uint32_t n, int64_t *again, int64_t *largest)
{
    const nnc_graph *g = s->p->g;
    int64_t sum = 0;
    *again = *largest = 0;
    for (uint32_t k = 0; k < n; k++)
        for (nnc_ref v = g->node[nodes[k]].out; v < g->node[nodes[k]].out + g->node[nodes[k]].n_out;
             v++) {
            const int64_t bytes = is_stored(s, v) || (s->gradient[nodes[k]] && groups_leave(s, v))
                                      ? bytes_of(s->p, v)
                                      : 0;
            sum = nnc_add_sat(sum, bytes);
            *again = nnc_add_sat(*again, s->gradient[nodes[k]] ? 0 : bytes);
            *largest = nnc_max64(*largest, bytes);
        }
    return sum;
}

/* The last node of the forward pass whose result the marked nodes read, or n_node. */
static uint32_t last_place(const groups *s, const uint32_t *nodes, uint32_t n)
{
    const nnc_graph *g = s->p->g;
    uint32_t last = s->n_node;
    for (uint32_t k = 0; k < n; k++)
        for (int j = 0; j < g->node[nodes[k]].n_in; j++) {
            const uint32_t d = g->value[g->node[nodes[k]].in[j]].node;
            if (!s->gradient[d] && s->place[d] != s->n_node &&
                (last == s->n_node || s->place[d] > last))
                last = s->place[d];
        }
    return last;
}

/* Bytes in use while one kernel computes these nodes: values kept for earlier layers, its operands and its results. In kernels without
 * reductions one result overwrites an operand. *again: see bytes_stored. */
static int64_t bytes_at_once(groups *s, const uint32_t *nodes, uint32_t n, int64_t *again)
{
    const nnc_graph *g = s->p->g;
    int64_t largest, operand = 0;
    groups_mark(s, nodes, n);
    int64_t sum = bytes_stored(s, nodes, n, again, &largest);
    const uint32_t place = last_place(s, nodes, n);
    bool sums = false;
    for (uint32_t k = 0; k<n && * again> 0; k++) {
        sums = sums || nnc_op_class(g->node[nodes[k]].op) == CL_reduce;
        for (int j = 0; j < g->node[nodes[k]].n_in; j++) {
            const nnc_ref v = g->node[nodes[k]].in[j];
            const uint32_t d = g->value[v].node;
            const bool given = s->p->e.is_static[d] || nnc_op_class(g->node[d].op) == CL_leaf;
            if (given || (s->late[d] && !s->gradient[d] && !is_stored(s, v)) ||
                s->seen[d] == s->stamp || s->mark[v] == s->stamp ||
                (!s->late[d] && s->place[d] != place)) /* counted as kept */
                continue;
            s->mark[v] = s->stamp;
            const int64_t bytes = bytes_of(s->p, v);
            sum = nnc_add_sat(sum, bytes);
            operand = s->gradient[d] && !groups_leave(s, v) ? nnc_max64(operand, bytes) : operand;
        }
    }
    return nnc_add_sat(sum, s->before[place]) - (sums ? 0 : nnc_min64(operand, largest));
}

/* Bytes of a's results that only a kernel of a and b would not store. */
static int64_t bytes_between(const groups *s, uint32_t a, uint32_t b)
{
    const nnc_graph *g = s->p->g;
    int64_t sum = 0;
    for (uint32_t k = 0; k < s->group[a].n; k++) {
        const nnc_node *n = &g->node[s->group[a].member[k]];
        for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
            if (reads(s, v, b) && !is_stored(s, v))
                sum = nnc_add_sat(sum, bytes_of(s->p, v));
    }
    return sum;
}

bool raises_peak(groups *s, const uint32_t *nodes, uint32_t n)
{
    int64_t again;
    return s->place && bytes_at_once(s, nodes, n, &again) > s->peak && again > 0;
}

const char *computes_beside(groups *s, uint32_t a, uint32_t b)
{
    uint32_t n;
    int64_t again, of_a, of_b;
    if (!s->place)
        return NULL;
    const uint32_t *nodes = groups_joined(s, a, b, &n);
    const int64_t all = bytes_at_once(s, nodes, n, &again);
    if (again == 0 || all <= s->peak || bytes_between(s, a, b) > again / SHARE ||
        all <= bytes_at_once(s, s->group[a].member, s->group[a].n, &of_a) ||
        all <= bytes_at_once(s, s->group[b].member, s->group[b].n, &of_b))
        return NULL;
    return remark_text(s->p,
        "%s of what is computed again would be in memory beside the "
        "kernel's other results, and "
        "raise the peak to %s",
        text_bytes(s->p, again), text_bytes(s->p, all));
}
