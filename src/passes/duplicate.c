/* passes/duplicate.c -- on GPUs: kernels that use the result of cheap elementwise ops compute it again, where that moves fewer bytes than
 * storing it. Examples: x - mean of a batch norm, which the sums and the gradient of its backward pass use; a 16-bit tensor as f32. XLA
 * calls this instruction duplication ("Operator Fusion in XLA", Snider and Liang, 2023).
 *
 * The kernels are those that fuse would form. The pass finds them, then visits nodes from last to first, so that a node's consumers are
 * known, copies included. The sources of a value are the tensors in memory with which its chain of cheap ops begins. A value with more than
 * two sources is not copied: each consumer of a sum along a residual network would read all earlier results. Each kernel gets a copy of a
 * node in the graph, and fuse forms the kernels again. A copy that fuse would leave outside of its kernel is undone. */
#include "kernel/kernel.h"
#include "passes/group.h"

enum {
    SOURCES = 2,
    STEPS = 24, /* most ops of a chain */
    MOST = 192, /* nodes of a kernel */
    LARGE = 256 << 10 /* bytes; smaller results stay in caches, and cost less than the ops */
};

/* The sources of a value: with `cheap` those of its chain, otherwise the value itself. `absent`: it is its own source since its chain has
 * too many, but is in memory only if a kernel stores it. */
typedef struct chain {
    nnc_ref source[SOURCES];
    int n, steps;
    bool cheap, absent;
} chain;

typedef struct copy {
    uint32_t node, group; /* its node, and the group that has it */
    bool of_tiny; /* its node's own kernel computes only small values */
    uint32_t next_of_node, next_in_group; /* 1-based; 0 ends */
    nnc_ref made;
} copy;

typedef struct copier {
    pass *p;
    groups s;
    chain *chain; /* by value */
    bool *live, *stored; /* by node: computed by its own group; and stored there */
    uint32_t *of_node, *in_group; /* by node, by group: the first copy, 1-based */
    copy *at;
    size_t n, cap;
    uint32_t *consumer, n_consumer; /* groups, each once */
    uint32_t *mark, stamp; /* by group, by value */
    uint32_t *seen;
    nnc_ref *out; /* scratch: results of a kernel */
    bool accumulates; /* nodes of the step run for each of several batches */
} copier;

/* ---- chains --------------------------------------------------------------------------------------------------------- */

/* Small: statistics and parameters of channels, and what is computed from them. */
static bool is_small(const pass *p, nnc_ref v)
{
    return bytes_of(p, v) < LARGE;
}

/* Can consumers of node i's result compute it? Not on a CPU: its caches hold one kernel's results for the next, so copies gain nothing. */
static bool may_copy(const copier *c, uint32_t i)
{
    const pass *p = c->p;
    const nnc_node *n = &p->g->node[i];
    if (target_of(p, n)->kind != NNC_T_cuda || !c->s.fusable[i] || p->e.dead[i] ||
        p->e.is_static[i] || n->n_out != 1 || n->n_in == 0)
        return false;
    if (nnc_is_view(p->g, n))
        return is_small(p, n->out);
    return nnc_op_is_ewise(n->op) && (is_small(p, n->out) || !nnc_op_is_expensive(n->op));
}

static bool add_source(chain *x, nnc_ref v)
{
    for (int k = 0; k < x->n; k++)
        if (x->source[k] == v)
            return true;
    if (x->n == SOURCES)
        return false;
    x->source[x->n++] = v;
    return true;
}

/* Is v never stored, since only its own kernel reads it? */
static bool is_inside(const copier *c, nnc_ref v)
{
    const uint32_t i = c->p->g->value[v].node, own = group_of(&c->s, i);
    bool all = c->s.fusable[i] && !edit_is_output(c->p, v);
    for (uint32_t at = 0, u; all && edit_next_user(c->p, v, &at, &u);)
        all = group_of(&c->s, u) == own;
    return all;
}

/* True when a copy of v needs a source that no kernel stores, such as a slice. Sources smaller than v do not count: they may be stored. */
static bool lacks_source(const copier *c, nnc_ref v, const chain *x)
{
    for (int k = 0; k < x->n; k++) {
        const nnc_ref w = x->source[k];
        const bool smaller = c->chain[w].absent && bytes_of(c->p, w) < bytes_of(c->p, v);
        if (is_inside(c, w) && !smaller)
            return true;
    }
    return false;
}

static void find_chain(copier *c, nnc_ref v)
{
    const pass *p = c->p;
    const uint32_t i = p->g->value[v].node;
    const nnc_node *n = &p->g->node[i];
    const bool may = !is_small(p, v) && may_copy(c, i);
    chain x = {.steps = 1, .cheap = may};
    for (int k = 0; k < n->n_in && x.cheap; k++) {
        const chain *from = &c->chain[n->in[k]];
        if (is_small(p, n->in[k]))
            continue;
        x.steps += from->cheap ? from->steps : 0;
        for (int j = 0; j < from->n && x.cheap; j++)
            x.cheap = add_source(&x, from->source[j]);
    }
    if (!x.cheap || x.steps > STEPS || lacks_source(c, v, &x))
        x = (chain){.source = {v}, .n = 1, .absent = may};
    c->chain[v] = x;
}

/* ---- consumers -------------------------------------------------------------------------------------------------------------- */

static void add_consumer(copier *c, uint32_t to)
{
    if (c->mark[to] == c->stamp)
        return;
    c->mark[to] = c->stamp;
    c->consumer[c->n_consumer++] = to;
}

/* Is group g a kernel, so that it can contain copies? */
static bool is_kernel(const copier *c, uint32_t g)
{
    return c->s.fusable[g] && c->s.group[g].n_real > 0;
}

/* Finds the other groups that read node i's result; *n_new of them read it only for copies. *inside: its own group reads it; *stored: a
 * node outside of such kernels does. */
static void find_consumers(copier *c, uint32_t i, uint32_t *n_new, bool *inside, bool *stored)
{
    const pass *p = c->p;
    const nnc_ref v = p->g->node[i].out;
    const uint32_t own = group_of(&c->s, i);
    *inside = false;
    *stored = edit_is_output(p, v);
    c->stamp++;
    c->n_consumer = 0;
    for (uint32_t at = 0, u; edit_next_user(p, v, &at, &u);) {
        const uint32_t g = group_of(&c->s, u);
        if (c->live[u] && g != own && is_kernel(c, g))
            add_consumer(c, g);
        *inside = *inside || (c->live[u] && g == own);
        *stored = *stored || (c->live[u] && g != own && !is_kernel(c, g));
    }
    const uint32_t n = c->n_consumer;
    for (uint32_t at = 0, u; edit_next_user(p, v, &at, &u);)
        for (uint32_t k = c->of_node[u]; k; k = c->at[k - 1].next_of_node)
            if (c->at[k - 1].group == own)
                *inside = true;
            else
                add_consumer(c, c->at[k - 1].group);
    *n_new = c->n_consumer - n;
}

/* Are both in the same part of a training step: main, the update, or the part that runs once after several batches? */
static bool in_one_part(const copier *c, uint32_t i, uint32_t j)
{
    return (!c->s.late || c->s.late[i] == c->s.late[j]) &&
           (!c->s.last || c->s.last[i] == c->s.last[j]);
}

static bool crosses(const copier *c, uint32_t i)
{
    for (uint32_t at = 0, u; edit_next_user(c->p, c->p->g->node[i].out, &at, &u);)
        if (!in_one_part(c, i, u))
            return true;
    return false;
}

/* Is node i in the forward pass, and the group in the backward pass of the same batch, where main's values are still in memory? */
static bool looks_back(const copier *c, uint32_t i, uint32_t to)
{
    const uint32_t j = c->s.group[to].member[0];
    return c->s.late && !c->s.late[i] && c->s.late[j] && !(c->accumulates && c->s.last[j]);
}

/* ---- what a kernel reads ------------------------------------------------------------------------------------------------- */

static bool is_computed_in(const copier *c, nnc_ref v, uint32_t to)
{
    const uint32_t i = c->p->g->value[v].node;
    bool any = group_of(&c->s, i) == to;
    for (uint32_t k = c->of_node[i]; k && !any; k = c->at[k - 1].next_of_node)
        any = c->at[k - 1].group == to;
    return any;
}

/* Marks the values that node i of group `to` reads from memory, except v. Without `strict`, their sources, too. */
static void mark_operands(copier *c, uint32_t i, uint32_t to, nnc_ref v, bool strict)
{
    const nnc_node *n = &c->p->g->node[i];
    for (int k = 0; k < n->n_in; k++) {
        const chain *x = &c->chain[n->in[k]];
        if (n->in[k] == v || is_computed_in(c, n->in[k], to))
            continue;
        c->seen[n->in[k]] = c->stamp;
        for (int j = 0; j < x->n && x->cheap && !strict; j++)
            c->seen[x->source[j]] = c->stamp;
    }
}

/* Bytes that a kernel would read instead of v. strict: its operands count as read, but not their sources. */
static int64_t bytes_instead(copier *c, uint32_t to, nnc_ref v, bool strict)
{
    const group *kernel = &c->s.group[to];
    const chain *x = &c->chain[v];
    int64_t bytes = 0;
    c->stamp++;
    for (uint32_t k = 0; k < kernel->n; k++)
        mark_operands(c, kernel->member[k], to, v, strict);
    for (uint32_t k = c->in_group[to]; k; k = c->at[k - 1].next_in_group)
        mark_operands(c, c->at[k - 1].node, to, v, strict);
    for (int j = 0; j < x->n; j++)
        bytes += c->seen[x->source[j]] == c->stamp ? 0 : bytes_of(c->p, x->source[j]);
    return bytes;
}

/* ---- can it be one kernel? -------------------------------------------------------------------------------------------------- */

/* Does another group read node m of group `to`? Nodes above i have been visited. */
static bool leaves_group(const copier *c, uint32_t m, uint32_t to, uint32_t i)
{
    const nnc_node *n = &c->p->g->node[m];
    bool any = m > i && c->stored[m];
    for (nnc_ref v = n->out; v < n->out + n->n_out && m <= i && !any; v++) {
        any = edit_is_output(c->p, v);
        for (uint32_t at = 0, u; !any && edit_next_user(c->p, v, &at, &u);)
            any = group_of(&c->s, u) != to;
    }
    return any;
}

/* Fills nodes[] (ascending) and results c->out[] of group `to`'s kernel with its copies and node i. Returns the number of nodes; 0: too
 * many. */
static int find_kernel(const copier *c, uint32_t to, uint32_t i, uint32_t *nodes, int *n_out)
{
    const nnc_graph *g = c->p->g;
    int n = 0;
    *n_out = 0;
    for (uint32_t k = 0; k < c->s.group[to].n; k++) {
        const uint32_t m = c->s.group[to].member[k];
        if (m > i && !c->live[m])
            continue;
        if (n == MOST)
            return 0;
        nodes[n++] = m;
        for (nnc_ref v = g->node[m].out;
             leaves_group(c, m, to, i) && v < g->node[m].out + g->node[m].n_out; v++)
            c->out[(*n_out)++] = v;
    }
    for (uint32_t k = c->in_group[to]; k; k = c->at[k - 1].next_in_group) {
        if (n >= MOST - 1)
            return 0;
        nodes[n++] = c->at[k - 1].node;
    }
    nodes[n++] = i;
    sort_nodes(nodes, (size_t)n);
    return n;
}

static bool is_possible(copier *c, uint32_t to, uint32_t i)
{
    const pass *p = c->p;
    uint32_t nodes[MOST + 1];
    int n_out = 0;
    const uint32_t j = c->s.group[to].member[0];
    const bool may = !placed_apart(&p->g->node[i], &p->g->node[j]) && !p->e.is_static[j];
    const int n = may ? find_kernel(c, to, i, nodes, &n_out) : 0;
    const int64_t spare = nnc_target_spare_ops(target_of(p, &p->g->node[i]));
    const char *why;
    return n && n_out && nnc_kernel_possible(p->g, nodes, n, c->out, n_out, spare, 0, p->a, &why);
}

/* ---- choice ------------------------------------------------------------------------------------------------------------------ */

static void add_copy(copier *c, uint32_t i, uint32_t to, bool of_tiny)
{
    if (!PASS_ROOM(c->p, c->at, c->cap, c->n + 1))
        return;
    c->at[c->n++] = (copy){i, to, of_tiny, c->of_node[i], c->in_group[to], NNC_NONE};
    c->of_node[i] = c->in_group[to] = (uint32_t)c->n;
}

/* Chooses copies of a large value. If all copies together read less than storing and loading the value, each consumer gets one. If the
 * value is stored anyway, those consumers get one that read less with it. */
static void choose_large(copier *c, uint32_t i, bool *stored)
{
    const nnc_ref v = c->p->g->node[i].out;
    const int64_t bytes = bytes_of(c->p, v);
    bool *ok = PASS_NEW(c->p, bool, c->n_consumer + 1);
    int64_t all = 0;
    for (uint32_t k = 0; k < c->n_consumer && ok; k++) {
        const uint32_t to = c->consumer[k];
        ok[k] = is_possible(c, to, i);
        *stored = *stored || !ok[k];
        all += bytes_instead(c, to, v, false);
    }
    const bool each = !*stored && all < bytes * (c->n_consumer + 1);
    bool rest = false;
    for (uint32_t k = 0; k < c->n_consumer && ok && c->p->status == NNC_OK; k++)
        if (ok[k] && (each || bytes_instead(c, c->consumer[k], v, false) < bytes))
            add_copy(c, i, c->consumer[k], false);
        else
            rest = true;
    *stored = *stored || rest;
}

/* Copies a large value of the forward pass into those kernels of the backward pass that read its sources anyway: nothing more is kept. */
static void choose_crossing(copier *c, uint32_t i, bool *stored)
{
    const nnc_ref v = c->p->g->node[i].out;
    for (uint32_t k = 0; k < c->n_consumer && c->p->status == NNC_OK; k++) {
        const uint32_t to = c->consumer[k];
        if (looks_back(c, i, to) && bytes_instead(c, to, v, true) == 0 && is_possible(c, to, i))
            add_copy(c, i, to, false);
        else
            *stored = true;
    }
}

/* Does group g consist of elementwise ops on small values, such as those of a batch norm on the sums of its channels? Such a kernel takes
 * no longer than its launch. */
static bool is_tiny(const copier *c, uint32_t g)
{
    const pass *p = c->p;
    bool all = true;
    for (uint32_t k = 0; k < c->s.group[g].n && all; k++) {
        const nnc_node *n = &p->g->node[c->s.group[g].member[k]];
        all = n->n_out == 1 && is_small(p, n->out) &&
              (nnc_op_is_ewise(n->op) || nnc_is_view(p->g, n));
    }
    return all;
}

/* Do elementwise ops on large values of kernel `to`, in the same part of a step, read small node i's result, directly or in copies? They
 * can compute it as they go, if that takes less time than moving the kernel's largest value. */
static bool computes_as_it_goes(const copier *c, uint32_t i, uint32_t to)
{
    const pass *p = c->p;
    const group *kernel = &c->s.group[to];
    const nnc_node *n = &p->g->node[i];
    const nnc_target *t = target_of(p, n);
    if (is_tiny(c, to) || kernel->rows != INT64_MAX || !in_one_part(c, i, kernel->member[0]))
        return false;
    for (uint32_t at = 0, u; edit_next_user(p, n->out, &at, &u);)
        if (group_of(&c->s, u) == to && !nnc_op_is_ewise(p->g->node[u].op) &&
            !nnc_is_view(p->g, &p->g->node[u]))
            return false;
    const double ops = op_flops(n->op);
    return ops * (double)kernel->numel / (double)nnc_max64(t->flops_f32, 1) <=
           2 * (double)kernel->bytes / (double)nnc_max64(t->copy_bytes_s, 1);
}

/* Copies a small value into the kernels that need it, unless it is stored anyway. A kernel with a large result cannot also store a small
 * one. If its kernel has only small values, each kernel that computes it as it goes gets a copy. The rest of its kernel, such as a gradient
 * of parameters, can then follow the sums in theirs. */
static void choose_small(copier *c, uint32_t i, uint32_t n_new, bool *stored)
{
    const bool keep = *stored || n_new < c->n_consumer;
    const bool tiny = !*stored && is_tiny(c, group_of(&c->s, i));
    for (uint32_t k = 0; k < c->n_consumer && c->p->status == NNC_OK; k++)
        if ((!keep || (tiny && computes_as_it_goes(c, i, c->consumer[k]))) &&
            is_possible(c, c->consumer[k], i))
            add_copy(c, i, c->consumer[k], tiny);
        else
            *stored = true;
}

static void choose_copies(copier *c, uint32_t i)
{
    const nnc_node *n = &c->p->g->node[i];
    bool inside = false, stored = false;
    uint32_t n_new = 0;
    if (n->n_out != 1 || !is_kernel(c, group_of(&c->s, i))) {
        c->live[i] = c->stored[i] = true;
        return;
    }
    find_consumers(c, i, &n_new, &inside, &stored);
    if (c->chain[n->out].cheap && crosses(c, i))
        choose_crossing(c, i, &stored);
    else if (c->chain[n->out].cheap)
        choose_large(c, i, &stored);
    else if (is_small(c->p, n->out) && may_copy(c, i))
        choose_small(c, i, n_new, &stored);
    else
        stored = stored || c->n_consumer > 0;
    c->stored[i] = stored;
    c->live[i] = stored || inside;
}

/* ---- rewriting ---------------------------------------------------------------------------------------------------------------- */

static nnc_ref operand_in(const copier *c, nnc_ref v, uint32_t to)
{
    for (uint32_t k = c->of_node[c->p->g->value[v].node]; k; k = c->at[k - 1].next_of_node)
        if (c->at[k - 1].group == to)
            return c->at[k - 1].made;
    return v;
}

static void make_copy(copier *c, copy *x)
{
    pass *p = c->p;
    const nnc_node n = p->g->node[x->node];
    nnc_ref *in = PASS_NEW(p, nnc_ref, n.n_in);
    for (int k = 0; k < n.n_in && in; k++)
        in[k] = operand_in(c, n.in[k], x->group);
    edit_at(p, x->node);
    x->made = in ? nnc_copy_node(p->g, p->g, &n, in) : NNC_NONE;
    edit_sync(p);
    if (x->made == NNC_NONE)
        pass_nomem(p);
}

static bool is_on(const copier *c, uint32_t i, int device)
{
    return nnc_max64(c->p->g->node[i].device, 0) == device; /* -1 is device 0 */
}

/* Members of a device's groups read the copies. */
static void redirect(copier *c, int device)
{
    pass *p = c->p;
    for (uint32_t i = 0; i < c->s.n_node; i++) {
        const uint32_t to = group_of(&c->s, i);
        for (int k = 0; is_on(c, i, device) && c->live[i] && c->in_group[to] &&
                        k < p->g->node[i].n_in && p->status == NNC_OK;
             k++) {
            const nnc_ref v = p->g->node[i].in[k], w = operand_in(c, v, to);
            if (w != v)
                edit_set_operand(p, i, k, w);
        }
    }
}

static bool is_alive(const copier *c, const copy *x)
{
    return !c->p->e.dead[c->p->g->value[x->made].node];
}

/* Is the copy stored, since only groups other than its own read it? */
static bool is_apart(const copier *c, groups *s, const copy *x)
{
    const uint32_t own = group_of(s, c->p->g->value[x->made].node);
    bool all = true;
    for (uint32_t at = 0, u; all && edit_next_user(c->p, x->made, &at, &u);)
        all = group_of(s, u) != own;
    return all;
}

/* Merges copies of node i that fuse left outside of their kernels. The node's own result replaces them if it is stored, otherwise the first
 * copy. Copies in the backward pass stay, since a merged value would be kept for it. */
static void join_copies(copier *c, groups *s, uint32_t i)
{
    pass *p = c->p;
    nnc_ref one = c->stored[i] && !p->e.dead[i] ? p->g->node[i].out : NNC_NONE;
    for (uint32_t k = c->of_node[i]; k && p->status == NNC_OK; k = c->at[k - 1].next_of_node) {
        const copy *x = &c->at[k - 1];
        if (!is_alive(c, x) || !in_one_part(c, i, c->s.group[x->group].member[0]) ||
            !is_apart(c, s, x))
            continue;
        if (one == NNC_NONE)
            one = x->made;
        else
            edit_replace(p, x->made, one);
    }
}

/* Finds the kernels that fuse will form, and undoes copies that it left outside. fuse also estimates whole kernels, which is_possible does
 * not. */
static void undo_apart(copier *c, int device)
{
    groups s;
    c->p->status = groups_find(&s, c->p);
    for (uint32_t i = 0; i < c->s.n_node && c->p->status == NNC_OK; i++)
        if (c->of_node[i] && is_on(c, i, device))
            join_copies(c, &s, i);
}

static void remark_copies(copier *c, uint32_t i)
{
    pass *p = c->p;
    const nnc_node *n = &p->g->node[i];
    layers l = {0};
    int copies = 0;
    for (uint32_t k = c->of_node[i]; k; k = c->at[k - 1].next_of_node)
        copies += is_alive(c, &c->at[k - 1]);
    if (!copies || is_small(p, n->out))
        return;
    layers_add(p, &l, i);
    const char *rule = remark_text(p, "%s computed by %s", nnc_ops[n->op].name,
                   copies > 1 ? "its consumers" : "its consumer"),
               *bytes = text_bytes(p, bytes_of(p, n->out));
    if (c->stored[i])
        remark_applied(p, &l, rule, "%d kernel%s need%s not read %s (fuse regains the cost)",
            copies, copies > 1 ? "s" : "", copies > 1 ? "" : "s", bytes);
    else
        remark_applied(p, &l, rule,
            "%s are not stored: %d kernel%s compute%s them again (fuse regains the cost)", bytes,
            copies, copies > 1 ? "s" : "", copies > 1 ? "" : "s");
}

/* Remarks for values of a device's kernels that compute only small values. */
static void remark_tiny(copier *c, int device)
{
    layers l = {0};
    int n = 0;
    for (size_t k = 0; k < c->n; k++)
        if (c->at[k].of_tiny && is_on(c, c->at[k].node, device) && is_alive(c, &c->at[k])) {
            layers_add(c->p, &l, c->at[k].node);
            n++;
        }
    if (n)
        remark_applied(c->p, &l, "small results computed by their consumers",
            "consumers compute %d results of tiny kernels, such as a batch norm's channels: a "
            "launch "
            "takes longer (fuse regains the cost)",
            n);
}

/* Makes the copies of one device, with remarks. Savings are counted as if the device were the only one. */
static void rewrite(copier *c, int device)
{
    const pass *p = c->p;
    for (uint32_t i = 0; i < c->s.n_node && p->status == NNC_OK; i++)
        for (uint32_t k = is_on(c, i, device) ? c->of_node[i] : 0; k && p->status == NNC_OK;
             k = c->at[k - 1].next_of_node)
            make_copy(c, &c->at[k - 1]);
    redirect(c, device);
    if (p->status == NNC_OK)
        undo_apart(c, device);
    if (p->status == NNC_OK)
        remark_tiny(c, device);
    for (uint32_t i = 0; i < c->s.n_node && p->status == NNC_OK; i++)
        if (is_on(c, i, device))
            remark_copies(c, i);
}

static bool open(copier *c)
{
    pass *p = c->p;
    const uint32_t n = p->g->n_node + 1, n_value = p->g->n_value + 1;
    c->chain = PASS_NEW(p, chain, n_value);
    c->live = PASS_NEW(p, bool, n);
    c->stored = PASS_NEW(p, bool, n);
    c->of_node = PASS_NEW(p, uint32_t, n);
    c->in_group = PASS_NEW(p, uint32_t, n);
    c->consumer = PASS_NEW(p, uint32_t, n);
    c->mark = PASS_NEW(p, uint32_t, n);
    c->seen = PASS_NEW(p, uint32_t, n_value);
    c->out = PASS_NEW(p, nnc_ref, n_value);
    return p->status == NNC_OK;
}

nnc_status pass_duplicate(pass *p)
{
    copier c = {.p = p};
    bool gpu = false;
    for (uint32_t i = 0; i < p->g->n_node; i++)
        gpu = gpu || target_of(p, &p->g->node[i])->kind == NNC_T_cuda;
    if (!gpu || !open(&c))
        return p->status;
    NNC_TRY(groups_find(&c.s, p));
    for (nnc_ref v = 0; v < c.s.n_value; v++)
        find_chain(&c, v);
    for (uint32_t i = 0; i < c.s.n_node && c.s.late && c.s.last; i++)
        c.accumulates = c.accumulates || (c.s.late[i] && !c.s.last[i]);
    for (uint32_t i = c.s.n_node; i-- > 0 && p->status == NNC_OK;)
        if (!p->e.dead[i])
            choose_copies(&c, i);
    for (int d = 0, n = nnc_graph_devices(p->g); d < n && c.n; d++)
        rewrite(&c, d);
    return p->status;
}
