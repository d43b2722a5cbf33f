/* passes/fuse_step.c -- what merging two groups costs a training step: results kept for the backward pass, and two streams of weights in
 * one loop. */
#include "passes/group.h"

/* Bytes of these nodes' results that other ops of the step read. */
static int64_t bytes_kept(groups *s, const uint32_t *nodes, uint32_t n)
{
    const pass *p = s->p;
    int64_t sum = 0;
    groups_mark(s, nodes, n);
    for (uint32_t k = 0; k < n; k++) {
        const nnc_node *m = &p->g->node[nodes[k]];
        for (nnc_ref v = m->out; v < m->out + m->n_out; v++) {
            bool kept = false;
            for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i) && !kept;)
                kept = i >= s->n_node || (s->late[i] && s->seen[i] != s->stamp);
            sum += kept ? bytes_of(p, v) : 0;
        }
    }
    return sum;
}

/* True when a node of group g is computed from gradients. */
static bool has_gradient(const groups *s, uint32_t g)
{
    bool any = false;
    for (uint32_t k = 0; k < s->group[g].n; k++)
        any = any || s->gradient[s->group[g].member[k]];
    return any;
}

/* Does group b read only results of a, and values that are always in memory? */
static bool reads_only(const groups *s, uint32_t a, uint32_t b)
{
    const pass *p = s->p;
    bool only = true;
    for (uint32_t k = 0; k < s->group[b].n; k++) {
        const nnc_node *n = &p->g->node[s->group[b].member[k]];
        for (int j = 0; j < n->n_in; j++) {
            const uint32_t d = p->g->value[n->in[j]].node, g = group_of(s, d);
            only = only && (g == a || g == b || p->e.is_static[d]);
        }
    }
    return only;
}

/* Bytes of main's results that, of the step's ops, only group a reads. */
static int64_t bytes_read(groups *s, uint32_t a)
{
    const pass *p = s->p;
    int64_t bytes = 0;
    const uint32_t seen = ++s->stamp;
    for (uint32_t k = 0; k < s->group[a].n; k++) {
        const nnc_node *n = &p->g->node[s->group[a].member[k]];
        for (int j = 0; j < n->n_in; j++) {
            const nnc_ref v = n->in[j];
            const uint32_t d = p->g->value[v].node;
            bool only = s->mark[v] != seen && !s->late[d] && !p->e.is_static[d] &&
                        nnc_op_class(p->g->node[d].op) != CL_leaf;
            s->mark[v] = seen;
            for (uint32_t u = 0, i; only && edit_next_user(p, v, &u, &i);)
                only = !s->late[i] || group_of(s, i) == a;
            bytes += only ? bytes_of(p, v) : 0;
        }
    }
    return bytes;
}

/* Main can compute group a's results if they need no gradients, such as the index of a max pooling. A kernel that needs gradients would
 * keep a's operands until then, instead of a's results. A kernel with an op that enlarges the results, such as a cast of that index, would
 * keep the larger ones. */
static const char *keeps_operands(groups *s, uint32_t a, uint32_t b)
{
    const bool widens = !has_gradient(s, b) && reads_only(s, a, b);
    uint32_t n;
    if (has_gradient(s, a) || (!has_gradient(s, b) && !widens))
        return NULL;
    const int64_t results = bytes_kept(s, s->group[a].member, s->group[a].n);
    int64_t bytes = bytes_read(s, a);
    if (widens) {
        const uint32_t *nodes = groups_joined(s, a, b, &n);
        bytes = nnc_min64(bytes, bytes_kept(s, nodes, n));
    }
    return bytes <= results
               ? NULL
               : remark_text(s->p, "%s would be kept for the backward pass, instead of %s",
                     text_bytes(s->p, bytes), text_bytes(s->p, results));
}

/* A kernel of main that computes results for the step keeps them until then. */
static const char *keeps_more(groups *s, uint32_t a, uint32_t b)
{
    bool late[2] = {true, true}, any = false;
    for (int k = 0; k < 2 && s->late; k++)
        for (uint32_t i = 0; i < s->group[k ? b : a].n; i++) {
            late[k] = late[k] && s->late[s->group[k ? b : a].member[i]];
            any = any || s->late[s->group[k ? b : a].member[i]];
        }
    if (!s->late || !any)
        return NULL;
    if (late[0] && late[1]) {
        const char *why = keeps_operands(s, a, b);
        const bool of[] = {has_gradient(s, a), has_gradient(s, b)};
        why = why || of[0] || !of[1] ? why : waits_for_gradient(s, a, b);
        return why || (!of[0] && !of[1]) ? why : computes_beside(s, a, b);
    }
    uint32_t n;
    int64_t before = bytes_kept(s, s->group[a].member, s->group[a].n);
    if (!late[1])
        before += bytes_kept(s, s->group[b].member, s->group[b].n);
    const uint32_t *nodes = groups_joined(s, a, b, &n);
    const int64_t after = bytes_kept(s, nodes, n);
    return after <= before
               ? NULL
               : remark_text(s->p, "%s would be kept for the backward pass, instead of %s",
                     text_bytes(s->p, after), text_bytes(s->p, before));
}

/* Is group a of the step? */
static bool runs_late(const groups *s, uint32_t a)
{
    bool all = true;
    for (uint32_t i = 0; i < s->group[a].n; i++)
        all = all && s->late[s->group[a].member[i]];
    return all;
}

static int64_t bytes_updated(const groups *s, uint32_t a)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < s->group[a].n; k++)
        most = nnc_max64(most, s->updates[s->group[a].member[k]]);
    return most;
}

/* Updates of two weights share only small values, such as parts of one gradient. One kernel for both would save nothing, and stream through
 * both weights at once. */
static const char *updates_others(groups *s, uint32_t a, uint32_t b)
{
    enum { LARGE = 1 << 18, SHARE = 8 };
    const int64_t least = s->updates ? nnc_min64(bytes_updated(s, a), bytes_updated(s, b)) : 0;
    return least > LARGE && groups_bytes_saved(s, a, b) < least / SHARE
               ? "they update weights of their own and share little"
               : NULL;
}

/* By node: bytes of the state whose new value is its result, or a reshape of it. NULL: there are no states. */
static const int64_t *find_updates(pass *p)
{
    const nnc_graph *g = p->g;
    const uint32_t first = nnc_result_outputs(g);
    int64_t *bytes = first < g->n_output ? PASS_NEW(p, int64_t, g->n_node + 1) : NULL;
    for (uint32_t o = first; bytes && o < g->n_output; o++) {
        nnc_ref v = g->output[o];
        const int64_t size = bytes_of(p, v);
        bytes[g->value[v].node] = size;
        while (nnc_is_view(g, def_of(p, v)) && def_of(p, v)->op == OP_reshape) {
            v = def_of(p, v)->in[0];
            bytes[g->value[v].node] = size;
        }
    }
    return bytes;
}

void groups_of_step(groups *s)
{
    s->late = find_late(s->p);
    s->last = find_last(s->p);
    s->gradient = s->late ? find_gradients(s->p, false) : NULL;
    s->updates = find_updates(s->p);
    groups_of_wait(s);
}

const char *step_blocker(groups *s, uint32_t a, uint32_t b)
{
    if (s->last && s->late && s->last[s->group[a].member[0]] != s->last[s->group[b].member[0]] &&
        runs_late(s, a))
        return "one runs for each batch, the other once a step";
    const char *why = updates_others(s, a, b);
    return why ? why : keeps_more(s, a, b);
}
