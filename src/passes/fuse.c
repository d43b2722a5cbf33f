/* passes/fuse.c -- fuses ops that pass data to each other into one kernel. nnc_kernel_possible decides which sets can be (codegen
 * lowers by the same rule); this file finds sets that are worth it.
 *
 * Greedy: edges between generated ops in order of bytes saved; the groups at both ends merge when nothing prevents it; repeated until
 * nothing merges. First the nodes of one expanded op are grouped, and views join their user. A merge must not create a cycle in the
 * graph of groups: group.c maintains their topological order. Terminates: each merge removes a group. */
#include "kernel/kernel.h"
#include "passes/group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_MEMBERS = 192, /* keeps merging linear; larger kernels gain nothing */
    FEW_ROWS = 64, /* fewer parallel rows leave cores idle ... */
    SMALL_BYTES = 256 << 10, /* ... which matters above this size */
    MAX_ROUNDS = 6,
};

typedef struct edge {
    uint32_t from, to; /* nodes */
    int64_t bytes;
} edge;

/* ---- one kernel? ----------------------------------------------------------------------------- */

/* True when v is used by an unmarked node or is an output. */
static bool needed_outside(const groups *s, nnc_ref v)
{
    return edit_is_output(s->p, v) || groups_leave(s, v);
}

/* Sets s->result to the results of these nodes (ascending). Visits only the nodes and their users. */
static int find_results(groups *s, const uint32_t *nodes, uint32_t n)
{
    int n_out = 0;
    groups_mark(s, nodes, n);
    for (uint32_t k = 0; k < n; k++) {
        const nnc_node *m = &s->p->g->node[nodes[k]];
        for (uint32_t o = 0; o < m->n_out; o++)
            if (needed_outside(s, m->out + o))
                s->result[n_out++] = m->out + o;
    }
    return n_out;
}

/* Number of distinct values that these nodes, which find_results has marked, read from outside. A value that the pass made counts at each
 * use. */
static int count_operands(groups *s, const uint32_t *nodes, uint32_t n)
{
    const nnc_graph *g = s->p->g;
    const uint32_t inside = s->stamp++;
    int count = 0;
    for (uint32_t k = 0; k < n; k++)
        for (int j = 0; j < g->node[nodes[k]].n_in; j++) {
            const nnc_ref v = g->node[nodes[k]].in[j];
            const uint32_t from = g->value[v].node;
            if (v >= s->n_value)
                count++;
            else if (s->mark[v] != s->stamp) {
                count += from >= s->n_node || s->seen[from] != inside;
                s->mark[v] = s->stamp;
            }
        }
    return count;
}

/* Most operands and results of a kernel of these nodes. A GPU's kernel with reductions keeps a row of each operand in registers until its
 * sums are known. More rows than this leave room for fewer threads at once, or spill. */
static int most_buffers(const pass *p, const uint32_t *nodes, uint32_t n, const char **why)
{
    enum { OF_ROWS = 64 };
    const nnc_target *t = target_of(p, &p->g->node[nodes[0]]);
    bool reduces = false;
    for (uint32_t k = 0; k < n && t->kind == NNC_T_cuda && !reduces; k++)
        reduces = nnc_op_class((nnc_op)p->g->node[nodes[k]].op) == CL_reduce;
    *why = reduces ? "its operands and results are more than a GPU's registers hold rows of"
                   : "its operands and results are more than a kernel's parameters have room for";
    return reduces ? OF_ROWS : nnc_kernel_most_buffers(t);
}

/* True when these nodes (ascending) can be one kernel. */
bool groups_one_kernel(groups *s, const uint32_t *nodes, uint32_t n, const char **why)
{
    const pass *p = s->p;
    const int n_out = find_results(s, nodes, n), operands = count_operands(s, nodes, n);
    const nnc_target *t = target_of(p, &p->g->node[nodes[0]]);
    const int64_t local = t->kind == NNC_T_cpu ? nnc_target_local_bytes(t) : 0;
    if (operands + n_out > most_buffers(p, nodes, n, why))
        return false;
    *why = NULL;
    bool ok = nnc_kernel_possible(
        p->g, nodes, (int)n, s->result, n_out, nnc_target_spare_ops(t), local, p->a, why);
    if (!ok && !*why)
        pass_nomem(s->p);
    return ok;
}

/* Expected time of one kernel of these nodes, *work: on one thread of a CPU; 0: no kernel can compute them. */
int64_t groups_nodes_ns(groups *s, const uint32_t *nodes, uint32_t n, int64_t *work)
{
    int n_out = find_results(s, nodes, n);
    *work = 0;
    return expected_ns(s->p, nodes, (int)n, s->result, n_out, work);
}

static int64_t group_ns(groups *s, uint32_t g)
{
    if (!s->group[g].ns)
        s->group[g].ns = groups_nodes_ns(s, s->group[g].member, s->group[g].n, &s->group[g].work);
    return s->group[g].ns;
}

static const nnc_target *target_on(const groups *s, uint32_t g)
{
    return target_of(s->p, &s->p->g->node[s->group[g].member[0]]);
}

/* ---- gain of a merge ----------------------------------------------------------------------------------------------- */

static bool all_users_inside(const groups *s, nnc_ref v, uint32_t a, uint32_t b)
{
    const pass *p = s->p;
    if (edit_is_output(p, v))
        return false;
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);)
        if (group_of(s, i) != a && group_of(s, i) != b)
            return false;
    return true;
}

/* Bytes that one kernel for both saves: b's reads of a's results, writes without other users, shared operands. */
int64_t groups_bytes_saved(groups *s, uint32_t a, uint32_t b)
{
    const pass *p = s->p;
    int64_t sum = 0;
    uint32_t by_a = ++s->stamp, seen = ++s->stamp;
    for (uint32_t k = 0; k < s->group[a].n; k++) {
        const nnc_node *n = &p->g->node[s->group[a].member[k]];
        for (int j = 0; j < n->n_in; j++)
            s->mark[n->in[j]] = by_a;
    }
    for (uint32_t k = 0; k < s->group[b].n; k++) {
        const nnc_node *n = &p->g->node[s->group[b].member[k]];
        for (int j = 0; j < n->n_in; j++) {
            nnc_ref v = n->in[j];
            uint32_t g = group_of(s, p->g->value[v].node), before = s->mark[v];
            if (before == seen || g == b)
                continue;
            s->mark[v] = seen;
            int64_t bytes = bytes_of(p, v);
            if (g == a)
                sum += all_users_inside(s, v, a, b) ? 2 * bytes : bytes;
            else if (before == by_a)
                sum += bytes;
        }
    }
    return sum;
}

static const char *loses_parallelism(groups *s, uint32_t a, uint32_t b)
{
    int64_t rows = nnc_min64(s->group[a].rows, s->group[b].rows);
    if (rows >= FEW_ROWS)
        return NULL;
    for (int k = 0; k < 2; k++) {
        const group *g = &s->group[k ? b : a];
        int64_t own = g->rows == INT64_MAX ? g->numel : g->rows;
        if (g->bytes > SMALL_BYTES && own >= 4 * rows)
            return remark_text(s->p,
                "one kernel for both would have only %lld row%s to run in parallel",
                (long long)rows, rows == 1 ? "" : "s");
    }
    return NULL;
}

/* The product of one row on a GPU that group g computes, or NULL. */
static const nnc_node *row_product(const groups *s, uint32_t g)
{
    for (uint32_t k = 0; k < s->group[g].n && target_on(s, g)->kind == NNC_T_cuda; k++) {
        const nnc_node *n = &s->p->g->node[s->group[g].member[k]];
        if (n->op == OP_matmul && nnc_attr_int(n, AT_as_kernel, 0))
            return n;
    }
    return NULL;
}

/* Such a product has a group of threads for each result. Its kernel can continue with elementwise ops no larger than the product's results.
 * It can begin only with ops that may be computed again for each result. */
static const char *slows_product(groups *s, uint32_t a, uint32_t b)
{
    pass *p = s->p;
    const nnc_node *before = row_product(s, a), *after = row_product(s, b);
    const uint32_t other = before ? b : a;
    if (!before && !after)
        return NULL;
    if (before && after)
        return "each is a product with a group of threads for each of its results";
    const int64_t most = numel_of(p, before ? before->out : after->in[0]);
    for (uint32_t k = 0; k < s->group[other].n; k++) {
        const nnc_node *n = &p->g->node[s->group[other].member[k]];
        if (!nnc_op_is_ewise(n->op) && nnc_op_class(n->op) != CL_move)
            return remark_text(p,
                "%s and a product of one row have different work for a group of threads",
                nnc_ops[n->op].name);
        if (numel_of(p, n->out) > most)
            return "the product would be computed by few groups of threads, or again for each "
                   "element";
        if (after && nnc_op_is_expensive(n->op))
            return remark_text(p, "%s would be computed again for each result of the product",
                nnc_ops[n->op].name);
    }
    return NULL;
}

/* True when reduction n sums over columns. */
static bool sums_columns(const pass *p, const nnc_node *n)
{
    const int64_t *axes;
    return nnc_attr_ints(n, AT_axes, &axes) > 0 && !reduces_contiguous(p, n) &&
           numel_of(p, n->out) > 1;
}

/* True when a reduction over columns on a CPU reads more than a core's private caches hold. Users of the sum would read the columns again,
 * slowly. Pieces of one or two cache lines, a row apart, compete for few cache sets. */
static bool sums_far_columns(const pass *p, const nnc_node *n)
{
    const nnc_target *t = target_of(p, n);
    return t->kind == NNC_T_cpu && nnc_op_class(n->op) == CL_reduce && sums_columns(p, n) &&
           bytes_of(p, n->in[0]) > t->l2_bytes * 3 / 2;
}

static const char *reads_columns_again(groups *s, uint32_t a, uint32_t b)
{
    const pass *p = s->p;
    int64_t most = INT64_MAX; /* elements of the smallest operand of such a reduction in a */
    for (uint32_t k = 0; k < s->group[a].n; k++) {
        const nnc_node *n = &p->g->node[s->group[a].member[k]];
        if (sums_far_columns(p, n))
            most = nnc_min64(most, numel_of(p, n->in[0]));
    }
    for (uint32_t k = 0; k < s->group[b].n && most <= s->group[b].numel; k++) {
        const nnc_node *n = &p->g->node[s->group[b].member[k]];
        for (int j = 0; j < n->n_in; j++)
            if (group_of(s, p->g->value[n->in[j]].node) == a && numel_of(p, n->in[j]) < most)
                return "columns would be read again, in short pieces, once their sums are known";
    }
    return NULL;
}

/* Ops of one layer were one kernel as written. Several kernels must beat it by the estimate's usual error. */
static bool of_one_layer(const groups *s, uint32_t a, uint32_t b)
{
    const nnc_graph *g = s->p->g;
    const char *x = g->node[s->group[a].member[0]].origin,
               *y = g->node[s->group[b].member[0]].origin;
    return x == y || (x && y && !strcmp(x, y));
}

/* On a GPU, a sum over all of a kernel's input is divided over blocks, unless other elements of the kernel wait for it. */
static bool gpu_sums(const groups *s, uint32_t a, uint32_t b)
{
    return target_on(s, a)->kind == NNC_T_cuda &&
           nnc_min64(s->group[a].rows, s->group[b].rows) != INT64_MAX;
}

/* Reason why one kernel is slower than two; NULL: it is not. On a CPU it may use fewer lanes, lose contiguous access, compute values again,
 * or have too few work items. On a GPU a sum over columns may leave most of it idle. */
static const char *is_slower(groups *s, uint32_t a, uint32_t b, const uint32_t *nodes, uint32_t n)
{
    const group *x = &s->group[a], *y = &s->group[b];
    s->ns = 0;
    if ((target_on(s, a)->kind != NNC_T_cpu && !gpu_sums(s, a, b)) || !x->n_real || !y->n_real ||
        (x->flat && y->flat && x->numel == y->numel))
        return NULL;
    int64_t apart = group_ns(s, a) + group_ns(s, b), work = x->work + y->work, all;
    int64_t one = groups_nodes_ns(s, nodes, n, &all);
    s->ns = nnc_min64(one, apart); /* so that errors of several merges do not add up */
    s->work = nnc_min64(all, work);
    if (one - apart > apart / (of_one_layer(s, a, b) ? 4 : 16))
        return remark_text(s->p, "one kernel is expected to take %s, the two %s",
            text_us_beside(s->p, one, apart), text_us_beside(s->p, apart, one));
    if (all - work > work / 4) /* other threads may be late, or have other work */
        return remark_text(s->p, "one kernel is expected to take %s of all threads, the two %s",
            text_us_beside(s->p, all, work), text_us_beside(s->p, work, all));
    return NULL;
}

/* The reason why the groups at both ends of an edge cannot merge; NULL: they can. */
static const char *blocker(groups *s, uint32_t a, uint32_t b)
{
    pass *p = s->p;
    if (s->group[a].n + s->group[b].n > MAX_MEMBERS)
        return "the kernel would have more than 192 ops";
    const char *why =
        placed_apart(&p->g->node[s->group[a].member[0]], &p->g->node[s->group[b].member[0]]);
    if (why)
        return why;
    if (p->e.is_static[s->group[a].member[0]] != p->e.is_static[s->group[b].member[0]])
        return "one runs once when weights are loaded, the other in each run";
    if (s->group[a].n_real && s->group[b].n_real && groups_bytes_saved(s, a, b) == 0)
        return "it would save no bytes";
    why = groups_taken_apart(s, a, b);
    why = why ? why : loses_parallelism(s, a, b);
    why = why ? why : slows_product(s, a, b);
    why = why ? why : reads_columns_again(s, a, b);
    why = why ? why : step_blocker(s, a, b);
    if (why)
        return why;
    if (!groups_can_merge(s, a, b))
        return "an op between them must run after the first and before the second";
    uint32_t n;
    const uint32_t *nodes = groups_joined(s, a, b, &n);
    if (!groups_one_kernel(s, nodes, n, &why))
        return why ? why : "no kernel can compute both";
    nodes = groups_joined(s, a, b, &n);
    return is_slower(s, a, b, nodes, n);
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* Does a marked node read a result of nodes[i]? */
static bool feeds_marked(
    const pass *p, const uint32_t *nodes, const bool *marked, uint32_t n, uint32_t i)
{
    const nnc_node *from = &p->g->node[nodes[i]];
    for (uint32_t k = i + 1; k < n; k++) {
        const nnc_node *to = &p->g->node[nodes[k]];
        for (int j = 0; j < to->n_in && marked[k]; j++)
            if (to->in[j] >= from->out && to->in[j] < from->out + from->n_out)
                return true;
    }
    return false;
}

/* Does nodes[i] read a marked node that is not a sum and has at most `few` elements? */
static bool reads_feeder(
    const pass *p, const uint32_t *nodes, const bool *marked, uint32_t i, int64_t few)
{
    const nnc_node *to = &p->g->node[nodes[i]];
    for (uint32_t k = 0; k < i; k++) {
        const nnc_node *from = &p->g->node[nodes[k]];
        const bool small = nnc_op_class(from->op) != CL_reduce && numel_of(p, from->out) <= few;
        for (int j = 0; j < to->n_in && marked[k] && small; j++)
            if (to->in[j] >= from->out && to->in[j] < from->out + from->n_out)
                return true;
    }
    return false;
}

/* Divides nodes into two kernels. part[1]: the sums, all that they are computed from, and small ops on values that only their kernel needs.
 * part[0]: ops larger than the sums. Other small ops are in neither. */
static void divide_sums(
    groups *s, const uint32_t *nodes, uint32_t n, uint32_t part[2][MAX_MEMBERS], uint32_t count[2])
{
    const nnc_graph *g = s->p->g;
    bool sums[MAX_MEMBERS] = {false};
    int64_t few = 0;
    count[0] = count[1] = 0;
    for (uint32_t i = n; i-- > 0;) {
        const nnc_node *d = &g->node[nodes[i]];
        if (nnc_op_class(d->op) == CL_reduce) {
            sums[i] = true;
            few = nnc_max64(few, numel_of(s->p, d->out));
        }
        sums[i] = sums[i] || feeds_marked(s->p, nodes, sums, n, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        const bool large = numel_of(s->p, g->node[nodes[i]].out) > few;
        sums[i] = sums[i] || (!large && reads_feeder(s->p, nodes, sums, i, few));
        if (sums[i] || large)
            part[sums[i]][count[sums[i]]++] = nodes[i];
    }
}

/* The time that a kernel for each of the groups of these nodes is expected to take. */
static int64_t apart_ns(groups *s, const uint32_t *nodes, uint32_t n)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (group_of(s, nodes[i]) == nodes[i] && s->group[nodes[i]].n_real)
            sum += group_ns(s, nodes[i]);
    return sum;
}

/* Starts from the last node and adds the latest node that feeds the group, again and again: no other path can then lie between them. */
void groups_merge_nest(groups *s, const uint32_t *nodes, uint32_t n)
{
    const pass *p = s->p;
    for (uint32_t i = n - 1; i-- > 0 && p->status == NNC_OK;) {
        uint32_t a = group_of(s, nodes[i]);
        const nnc_node *d = &p->g->node[nodes[i]];
        for (uint32_t o = 0; o < d->n_out; o++)
            for (uint32_t u = 0, j; edit_next_user(p, d->out + o, &u, &j);) {
                uint32_t b = group_of(s, j);
                bool member = false;
                for (uint32_t k = 0; k < n; k++)
                    member = member || nodes[k] == j;
                if (member && a != b && groups_can_merge(s, a, b)) {
                    groups_merge(s, a, b);
                    a = group_of(s, nodes[i]);
                }
            }
    }
}

/* Merges the sums of a layer, with all that they are computed from, where that takes no longer than a kernel for each op. Merging edge by
 * edge would not always find this group. */
static void seed_sums(groups *s, const uint32_t *nodes, uint32_t n)
{
    const char *why;
    int64_t work;
    if (n > 1 && groups_one_kernel(s, nodes, n, &why) &&
        groups_nodes_ns(s, nodes, n, &work) <= apart_ns(s, nodes, n))
        groups_merge_nest(s, nodes, n);
}

static bool is_on_gpu(const groups *s, uint32_t i)
{
    return target_of(s->p, &s->p->g->node[i])->kind == NNC_T_cuda;
}

/* Seeds only the sums, with all that they are computed from, where no kernel has all nodes. On a GPU: only sums of differences from a slice
 * (one_pass). The slice is smaller than the loops of the difference's kernel, and joins it only together with the sums. On a CPU, in
 * training steps: sums of few rows. A large operand, such as dy (x - mean) of a batch norm, is then not in memory beside dy. */
static void seed_divided_sums(groups *s, const uint32_t *nodes, uint32_t n)
{
    uint32_t part[2][MAX_MEMBERS], count[2];
    divide_sums(s, nodes, n, part, count);
    bool seed = !is_on_gpu(s, nodes[0]) && count[1] && !raises_peak(s, part[1], count[1]);
    for (uint32_t i = 0; i < count[1] && is_on_gpu(s, nodes[0]); i++)
        seed = seed || s->p->g->node[part[1][i]].op == OP_slice;
    if (seed)
        seed_sums(s, part[1], count[1]);
}

/* One kernel of these nodes may leave most of a GPU idle. Where separate kernels are expected to be faster, only the sums become one. Where
 * two are faster still, the rest becomes the other. True: nothing is left to do. */
static bool leaves_idle(groups *s, const uint32_t *nodes, uint32_t n)
{
    uint32_t part[2][MAX_MEMBERS], count[2];
    int64_t work;
    if (!is_on_gpu(s, nodes[0]))
        return false;
    const int64_t apart = apart_ns(s, nodes, n), one = groups_nodes_ns(s, nodes, n, &work);
    divide_sums(s, nodes, n, part, count);
    const int64_t rest = count[0] ? groups_nodes_ns(s, part[0], count[0], &work) : 0,
                  sums = count[1] ? groups_nodes_ns(s, part[1], count[1], &work) : 0,
                  two = rest + sums;
    const bool both = rest && sums && nnc_min64(one, apart) - two > two / 4;
    if (both || one > apart)
        seed_sums(s, part[1], count[1]);
    if (both)
        groups_merge_nest(s, part[0], count[0]);
    return both || one > apart;
}

/* Is each group of these nodes a kernel? Where another layer lies between them, only some have merged. */
static bool are_kernels(groups *s, const uint32_t *nodes, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; i < n && all; i++) {
        const char *why;
        const group *q = &s->group[nodes[i]];
        if (group_of(s, nodes[i]) == nodes[i] && q->n > 1 && q->n < n)
            all = groups_one_kernel(s, q->member, q->n, &why);
    }
    return all;
}

/* Nodes of one expanded op have the layer's path in common and contain a reduction. */
static void seed_nest(groups *s, const uint32_t *nodes, uint32_t n)
{
    pass *p = s->p;
    bool reduces = false;
    int64_t rows = INT64_MAX, bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sums_far_columns(p, &p->g->node[nodes[i]]))
            return;
        reduces = reduces || nnc_op_class(p->g->node[nodes[i]].op) == CL_reduce;
        rows = nnc_min64(rows, s->group[group_of(s, nodes[i])].rows);
        bytes = nnc_max64(bytes, s->group[group_of(s, nodes[i])].bytes);
    }
    const char *why;
    const bool few = rows < FEW_ROWS && bytes > SMALL_BYTES && !is_on_gpu(s, nodes[0]);
    if (!reduces || n < 2 || n > MAX_MEMBERS || (!few && raises_peak(s, nodes, n)))
        return;
    if (few || !groups_one_kernel(s, nodes, n, &why)) {
        if ((few && s->late) || is_on_gpu(s, nodes[0]))
            seed_divided_sums(s, nodes, n);
        return;
    }
    groups_keep(s);
    if (!leaves_idle(s, nodes, n))
        groups_merge_nest(s, nodes, n);
    /* within a memory budget separate ops are better: each frees its operands */
    if (s->p->status == NNC_OK && !s->p->o->segments && !are_kernels(s, nodes, n))
        groups_part(s, nodes, n);
}

/* Orders by layer, then by device: the parts of a split layer are not fused. */
static int by_origin(const void *x, const void *y, void *ctx)
{
    const nnc_graph *g = ctx;
    const uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    const nnc_node *m = &g->node[a], *n = &g->node[b];
    const int device = on_one_device(m, n) ? 0 : nnc_cmp(m->device, n->device);
    return nnc_then(strcmp(m->origin, n->origin), nnc_then(device, nnc_cmp(a, b)));
}

static void seed_nests(groups *s)
{
    pass *p = s->p;
    uint32_t *list = PASS_NEW(p, uint32_t, s->n_node + 1), n = 0;
    if (!list)
        return;
    for (uint32_t i = 0; i < s->n_node; i++)
        if (s->fusable[i] && p->g->node[i].origin && p->g->node[i].op != OP_relayout)
            list[n++] = i;
    qsort_r(list, n, sizeof *list, by_origin, p->g);
    for (uint32_t i = 0, k; i < n; i = k) {
        const nnc_node *first = &p->g->node[list[i]];
        for (k = i + 1; k < n && !strcmp(first->origin, p->g->node[list[k]].origin) &&
                        on_one_device(first, &p->g->node[list[k]]);)
            k++;
        seed_nest(s, list + i, k - i);
    }
}

/* A view with one user becomes an index map of that user. */
static void seed_views(groups *s)
{
    pass *p = s->p;
    for (uint32_t i = s->n_node; i-- > 0 && p->status == NNC_OK;) {
        if (!s->fusable[i] || s->group[group_of(s, i)].n_real)
            continue;
        const nnc_node *u = edit_only_user(p, p->g->node[i].out);
        if (!u || !s->fusable[node_index(p, u)])
            continue;
        uint32_t a = group_of(s, i), b = group_of(s, node_index(p, u));
        if (a != b && !blocker(s, a, b))
            groups_merge(s, a, b);
    }
}

/* ---- merging --------------------------------------------------------------------------------- */

NNC_ORDER(
    by_bytes, edge, nnc_cmp(b->bytes, a->bytes), nnc_cmp(a->to, b->to), nnc_cmp(a->from, b->from))

static edge *find_edges(groups *s, uint32_t *count)
{
    pass *p = s->p;
    size_t n = 0, cap = 0;
    edge *e = NULL;
    for (uint32_t i = 0; i < s->n_node; i++)
        for (int k = 0; s->fusable[i] && k < p->g->node[i].n_in; k++) {
            nnc_ref v = p->g->node[i].in[k];
            uint32_t from = p->g->value[v].node;
            if (!s->fusable[from] || (k && p->g->node[i].in[k - 1] == v))
                continue;
            if (!PASS_ROOM(p, e, cap, n + 1))
                return NULL;
            e[n++] = (edge){from, i, bytes_of(p, v)};
        }
    if (n)
        qsort(e, n, sizeof *e, by_bytes);
    *count = (uint32_t)n;
    return e;
}

static void merge_edges(groups *s)
{
    uint32_t n = 0;
    edge *e = find_edges(s, &n);
    bool again = true;
    for (int round = 0; round < MAX_ROUNDS && again && s->p->status == NNC_OK; round++) {
        again = false;
        uint32_t left = 0;
        for (uint32_t i = 0; i < n && s->p->status == NNC_OK; i++) {
            uint32_t a = group_of(s, e[i].from), b = group_of(s, e[i].to);
            if (a == b)
                continue;
            if (!s->group[a].n_real || blocker(s, a, b)) {
                e[left++] = e[i];
                continue;
            }
            groups_merge(s, a, b);
            s->group[group_of(s, e[i].from)].ns = s->ns;
            s->group[group_of(s, e[i].from)].work = s->work;
            again = true;
        }
        n = left;
    }
}

/* ---- remarks on what stays separate -------------------------------------------------------------------------------- */

static bool generated(const groups *s, uint32_t i)
{
    const nnc_node *n = &s->p->g->node[i];
    return s->fusable[i] || nnc_op_class(n->op) == CL_comp || nnc_op_class(n->op) == CL_loop ||
           (n->op == OP_fused && !is_contraction(s->p, n));
}

static const char *why_apart(groups *s, uint32_t i, uint32_t j)
{
    pass *p = s->p;
    const nnc_node *a = &p->g->node[i], *b = &p->g->node[j];
    if (placed_apart(a, b))
        return placed_apart(a, b);
    if (is_contraction(p, a))
        return "epilogues are decided by fuse_epilogue, which did not run";
    if (is_contraction(p, b))
        return "prologues are decided by fuse_prologue, which does not run";
    if (nnc_op_class(a->op) == CL_loop || nnc_op_class(b->op) == CL_loop)
        return remark_text(p, "%s runs in order along an axis: a kernel of its own",
            node_word(p, nnc_op_class(a->op) == CL_loop ? a : b));
    if (!s->fusable[i] || !s->fusable[j])
        return remark_text(p, "%s is a kernel already", node_word(p, s->fusable[i] ? b : a));
    const char *why = blocker(s, group_of(s, i), group_of(s, j));
    return why ? why : "views of the value between them have several consumers";
}

typedef struct pair {
    uint32_t a, b;
} pair;

NNC_ORDER(by_pair, pair, nnc_cmp(a->a, b->a), nnc_cmp(a->b, b->b))

/* One declined remark per pair of commands that pass data to each other. */
static void remark_apart(groups *s)
{
    pass *p = s->p;
    bool epilogues_ran = p->ran[PASS_fuse_epilogue],
         prologues_follow = p->will_run[PASS_fuse_prologue];
    size_t n = 0, cap = 0;
    struct apart {
        pair key;
        uint32_t from, to;
    } *list = NULL;
    uint32_t *user = PASS_NEW(p, uint32_t, s->n_node + 1);
    for (uint32_t i = 0; i < s->n_node && user && p->status == NNC_OK; i++) {
        const nnc_node *a = &p->g->node[i];
        bool contraction = is_contraction(p, a);
        if (p->e.dead[i] || p->e.is_static[i] || (!contraction && !generated(s, i)) ||
            nnc_is_view(p->g, a) || (contraction && epilogues_ran))
            continue;
        for (uint32_t o = 0; o < a->n_out; o++) {
            int users = users_through_views(p, a->out + o, user, (int)s->n_node);
            for (int k = 0; k < users; k++) {
                if (group_of(s, i) == group_of(s, user[k]) ||
                    (!generated(s, user[k]) &&
                        (prologues_follow || !is_contraction(p, &p->g->node[user[k]]))))
                    continue;
                if (!PASS_ROOM(p, list, cap, n + 1))
                    return;
                list[n++] = (struct apart){{group_of(s, i), group_of(s, user[k])}, i, user[k]};
            }
        }
    }
    if (n)
        qsort(list, n, sizeof *list, by_pair);
    for (size_t i = 0; i < n && p->status == NNC_OK; i++) {
        if (i && by_pair(&list[i - 1], &list[i]) == 0)
            continue;
        layers l = layers_of(p, list[i].from, list[i].to);
        const char *rule = remark_text(p, "%s into %s", node_word(p, &p->g->node[list[i].from]),
            node_word(p, &p->g->node[list[i].to]));
        remark_declined(p, &l, rule, "%s", why_apart(s, list[i].from, list[i].to));
    }
}

/* ---- rewriting ------------------------------------------------------------------------------- */

/* Values created after the groups were formed are results of rewritten regions, so they are outside of this one. */
static bool is_marked(const groups *s, nnc_ref v, uint32_t stamp)
{
    return v < s->n_value && s->mark[v] == stamp;
}

/* The group's nodes without leading views, if `drop`, preceded by the scalar constants that they read. */
static uint32_t *region_nodes(groups *s, uint32_t r, bool drop, int *count, int *n_const)
{
    pass *p = s->p;
    const group *g = &s->group[r];
    size_t slots = g->n;
    for (uint32_t k = 0; k < g->n; k++)
        slots += p->g->node[g->member[k]].n_in;
    uint32_t *list = PASS_NEW(p, uint32_t, slots), *kept = PASS_NEW(p, uint32_t, g->n);
    uint32_t in = ++s->stamp;
    int n = 0, c = 0;
    if (!list || !kept)
        return NULL;
    for (uint32_t k = 0; k < g->n; k++) {
        const nnc_node *m = &p->g->node[g->member[k]];
        if (drop && nnc_is_view(p->g, m) && !is_marked(s, m->in[0], in))
            continue;
        kept[n++] = g->member[k];
        for (uint32_t o = 0; o < m->n_out; o++)
            s->mark[m->out + o] = in;
        for (int j = 0; j < m->n_in; j++) {
            const nnc_node *d = def_of(p, m->in[j]);
            if (d->op == OP_constant && numel_of(p, d->out) == 1 && !is_marked(s, d->out, in)) {
                assert(d->out < s->n_value);
                s->mark[d->out] = in;
                list[c++] = node_index(p, d);
            }
        }
    }
    memcpy(list + c, kept, (size_t)n * sizeof *kept);
    *n_const = c;
    *count = c + n;
    return list;
}

/* `note`: for the remark, or NULL. */
static void rewrite(groups *s, uint32_t r, const char *note)
{
    pass *p = s->p;
    int n = 0, n_const = 0, n_out = 0;
    uint32_t *nodes = region_nodes(s, r, true, &n, &n_const);
    const char *why; /* which rows are kept may depend on leading views */
    if (nodes && !groups_one_kernel(s, nodes + n_const, (uint32_t)(n - n_const), &why))
        nodes = region_nodes(s, r, false, &n, &n_const);
    size_t n_result = 1;
    for (uint32_t k = 0; k < s->group[r].n; k++)
        n_result += p->g->node[s->group[r].member[k]].n_out;
    nnc_ref *out = PASS_NEW(p, nnc_ref, n_result);
    if (!nodes || !out)
        return;
    layers l = {0};
    int64_t inside = 0;
    groups_mark(s, nodes, (uint32_t)n);
    for (int k = n_const; k < n; k++) {
        const nnc_node *m = &p->g->node[nodes[k]];
        layers_add(p, &l, nodes[k]);
        for (uint32_t o = 0; o < m->n_out; o++) {
            if (needed_outside(s, m->out + o))
                out[n_out++] = m->out + o;
            else if (!nnc_is_view(p->g, m))
                inside += bytes_of(p, m->out + o);
        }
    }
    uint32_t real = s->group[r].n_real;
    const char *when = p->e.is_static[r] ? "when weights are loaded, " : "";
    nnc_ref v = region_build(p, nodes, n, out, n_out);
    const char *words = v == NNC_NONE ? "" : node_word(p, def_of(p, v));
    for (int k = 0; k < n_out; k++)
        edit_replace(p, out[k], v + (nnc_ref)k);
    const char *rule = remark_text(p, "%s in one kernel", words);
    if (inside)
        remark_applied(p, &l, rule,
            "%s%u ops pass their results on in registers: %s of results are neither stored nor "
            "loaded%s%s",
            when, real, text_bytes(p, inside), note ? "; " : "", note ? note : "");
    else
        remark_applied(p, &l, rule,
            "%s%u ops share operands and each other's results, which other ops use too", when,
            real);
}

nnc_status groups_find(groups *s, pass *p)
{
    NNC_NEED(groups_init(s, p), p->sink);
    groups_of_step(s);
    NNC_TRY(p->status);
    seed_nests(s);
    if (p->status == NNC_OK)
        seed_views(s);
    merge_edges(s);
    /* the parts may join other groups, which is asked about again */
    for (int round = 0; p->status == NNC_OK && groups_take_apart(s) && round == 0; round++)
        merge_edges(s);
    return p->status;
}

/* Parts of divided kernels may form kernels with other neighbours: repeats until none do. */
nnc_status pass_fuse(pass *p)
{
    groups s;
    const int before = p->changed;
    NNC_TRY(groups_find(&s, p));
    if (before == 0) /* later rounds see kernels instead of layers, and know fewer reasons */
        remark_apart(&s);
    for (uint32_t i = 0; i < s.n_node && p->status == NNC_OK; i++) {
        if (group_of(&s, i) != i || s.group[i].n_real < 2)
            continue;
        const char *why;
        /* groups that were only partly merged may not be a kernel */
        if (!groups_one_kernel(&s, s.group[i].member, s.group[i].n, &why))
            continue;
        rewrite(&s, i, why);
    }
    p->again = s.apart && p->changed > before;
    return p->status;
}
