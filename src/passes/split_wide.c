/* passes/split_wide.c -- turns a concat or split of very many tensors into several steps. A kernel has at most nnc_kernel_most_buffers
 * operands and results. It copies the operands of a concat one after the other only up to NNC_KERNEL_CONCAT; beyond, each element
 * compares its index with all bounds.
 *
 *   concat(a0 .. an) = concat(concat(a0 .. ak), ..., am .. an).
 *   split(x)         = split(slice(x)), split(slice(x)), ...   or a slice where its users can be one kernel with it.
 *
 * Few operands of a concat are copied twice. Runs at every level, since no other command supports them. Terminates: the results are not
 * wide. */
#include "kernel/kernel.h"
#include "passes/internal.h"

enum {
    WIDE_SPLIT = 60, /* results of a kernel: parts that are alike are compiled once */
    ASK_OPS = 8 /* instructions per comparison of an element's index */
};

/* ---- concat ---------------------------------------------------------------------------------- */

/* Number of concat n's operands that fuse computes in its steps' kernels, but not in one with comparisons: elementwise results without
 * other users. Each would be a kernel of its own, as are two for every batch norm whose running statistics a step moves together. */
static int absorbed(pass *p, const nnc_node *n)
{
    int count = 0;
    for (int k = 0; k < n->n_in && p->will_run[PASS_fuse]; k++) {
        const nnc_ref v = nnc_reshaped(p->g, n->in[k]);
        const nnc_node *d = def_of(p, v);
        const nnc_class c = nnc_op_class(d->op);
        count += (c == CL_ewise || c == CL_ecomp) && !placed_apart(d, n) && !edit_static(p, v) &&
                 !edit_is_output(p, v) && edit_only_user(p, v) && edit_only_user(p, n->in[k]);
    }
    return count;
}

/* True when one kernel with comparisons, and kernels for the operands that it does not absorb, take longer than steps with few operands. */
static bool asks_too_long(pass *p, const nnc_node *n)
{
    const nnc_target *t = target_of(p, n);
    const nnc_type *y = type_of(p, n->out);
    double lanes =
        t->kind == NNC_T_cpu ? t->vector_bits / 16.0 : 1; /* comparisons are scalar there */
    double rate = (double)t->flops_f32 / 2 / lanes, numel = (double)nnc_type_numel(y);
    double ask = numel * n->n_in * ASK_OPS / rate;
    int64_t steps = (n->n_in - 2) / (NNC_KERNEL_CONCAT - 1);
    double bytes = 2 * (double)nnc_type_bytes(y) * (n->n_in - NNC_KERNEL_CONCAT) / n->n_in;
    const double apart = (double)(absorbed(p, n) * t->launch_ns) * 1e-9;
    return ask + apart > (double)(steps * t->launch_ns) * 1e-9 + bytes / (double)t->copy_bytes_s;
}

static bool is_wide_concat(pass *p, const nnc_node *n)
{
    return n->op == OP_concat && n->n_in > NNC_KERNEL_CONCAT &&
           (n->n_in >= nnc_kernel_most_buffers(target_of(p, n)) || asks_too_long(p, n));
}

static nnc_ref join(pass *p, const nnc_node *like, const nnc_ref *in, int n)
{
    int axis = (int)nnc_attr_int(like, AT_axis, 0);
    nnc_type y = *type_of(p, like->out);
    y.dim[axis] = 0;
    for (int i = 0; i < n; i++)
        y.dim[axis] += type_of(p, in[i])->dim[axis];
    return nnc_build_typed(p->g, OP_concat, n, in, like->n_attr, like->attr, &y);
}

/* One step: fewer operands, at least NNC_KERNEL_CONCAT of them. Returns their number. */
static int join_some(pass *p, const nnc_node *like, nnc_ref *in, int n)
{
    int most = NNC_KERNEL_CONCAT, over = n - most;
    bool all = (over + most - 2) / (most - 1) > most; /* more groups than may remain: merge all */
    int k = 0, i = 0;
    while (i < n && (all || over > 0)) {
        int take = (int)nnc_min64(most, all ? n - i : over + 1);
        in[k++] = take == 1 ? in[i] : join(p, like, in + i, take);
        i += take;
        over -= take - 1;
    }
    memmove(in + k, in + i, (size_t)(n - i) * sizeof *in);
    return k + n - i;
}

/* Earlier concats, by their last operand: a dense block concatenates all earlier results again for each next one. */
typedef struct joined {
    struct joined *next; /* with the same last operand */
    nnc_ref out;
    int axis, n;
    nnc_ref in[];
} joined;

typedef struct memory {
    joined **by_last;
    nnc_ref n_value; /* values that existed before the pass */
} memory;

static bool begins_with(const pass *p, const nnc_node *c, const nnc_ref *in, const joined *j)
{
    return j->axis == (int)nnc_attr_int(c, AT_axis, 0) && !placed_apart(def_of(p, j->out), c) &&
           !memcmp(j->in, in, sizeof *in * (size_t)j->n);
}

/* Finds the longest earlier concat that is a prefix of in[], the operands of c, and replaces that prefix by its result. Returns the
 * remaining number of operands. */
static int reuse_joined(const pass *p, const memory *m, const nnc_node *c, nnc_ref *in)
{
    int n = c->n_in;
    for (int k = n - 1; k > 0; k--)
        for (const joined *j = in[k] < m->n_value ? m->by_last[in[k]] : NULL; j; j = j->next)
            if (j->n == k + 1 && begins_with(p, c, in, j)) {
                in[0] = j->out;
                memmove(in + 1, in + k + 1, (size_t)(n - k - 1) * sizeof *in);
                return n - k;
            }
    return n;
}

static void keep_joined(pass *p, memory *m, const nnc_node *c, const nnc_ref *in, nnc_ref out)
{
    int n = c->n_in;
    nnc_ref last = in[n - 1];
    joined *j = pass_alloc(p, 1, sizeof *j + (size_t)n * sizeof *in);
    if (!j || last >= m->n_value)
        return;
    *j = (joined){m->by_last[last], out, (int)nnc_attr_int(c, AT_axis, 0), n};
    memcpy(j->in, in, (size_t)n * sizeof *in);
    m->by_last[last] = j;
}

static void narrow_concat(pass *p, uint32_t i, memory *m)
{
    nnc_node c = p->g->node[i];
    layers l = layers_of(p, i, NNC_NONE);
    nnc_ref *in = nnc_arena_memdup(p->a, c.in, c.n_in * sizeof *in);
    if (!in) {
        pass_nomem(p);
        return;
    }
    edit_at(p, i);
    int n = reuse_joined(p, m, &c, in), left = n;
    while (n > NNC_KERNEL_CONCAT && p->g->status == NNC_OK)
        n = join_some(p, &c, in, n);
    nnc_ref r = join(p, &c, in, n);
    if (!edit_sync(p))
        return;
    keep_joined(p, m, &c, c.in, r);
    edit_replace(p, c.out, r);
    if (left < c.n_in)
        remark_applied(p, &l, "concat of a concat",
            "%d of its %d operands have been concatenated already: it reads that result",
            c.n_in - left + 1, c.n_in);
    else
        remark_applied(p, &l, "concat in steps",
            "a kernel concatenates at most %d tensors without index comparisons per element: %d "
            "are concatenated in steps",
            NNC_KERNEL_CONCAT, c.n_in);
}

/* ---- split ----------------------------------------------------------------------------------- */

/* True when all users of v can be one kernel with a slice of x. */
static bool joins_its_readers(const pass *p, nnc_ref v)
{
    if (edit_is_output(p, v) || !p->will_run[PASS_fuse])
        return false;
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);) {
        nnc_class k = nnc_op_class(p->g->node[i].op);
        if (k != CL_ewise && k != CL_ecomp && k != CL_reduce && k != CL_move && k != CL_window)
            return false;
    }
    return true;
}

/* Slice [from, to) of x along axis, in the memory order of `like`. */
static nnc_ref part(pass *p, nnc_ref x, const nnc_type *like, int axis, int64_t from, int64_t to)
{
    int64_t a = axis, step = 1;
    nnc_type y = *like;
    y.dim[axis] = to - from;
    nnc_attr attr[4] = {nnc_av(AT_axes, 1, &a), nnc_av(AT_starts, 1, &from),
        nnc_av(AT_ends, 1, &to), nnc_av(AT_steps, 1, &step)};
    return nnc_build_typed(p->g, OP_slice, 1, &x, 4, attr, &y);
}

/* Fills out[0..n) with results [r, r + n) of split s, of sizes[], from element `at` on. Without `fuse`, this pass makes slice and split one
 * kernel. */
static void few_results(
    pass *p, const nnc_node *s, int r, int n, const int64_t *sizes, int64_t at, nnc_ref *out)
{
    int axis = (int)nnc_attr_int(s, AT_axis, 0);
    int64_t end = at;
    for (int k = 0; k < n; k++)
        end += sizes[k];
    nnc_type like = *type_of(p, s->out + (nnc_ref)r);
    nnc_ref x = part(p, s->in[0], &like, axis, at, end);
    if (n == 1 || x == NNC_NONE) {
        out[0] = x;
        return;
    }
    nnc_attr attr[2] = {nnc_ai(AT_axis, axis), nnc_av(AT_sizes, n, sizes)};
    nnc_type type[WIDE_SPLIT];
    for (int k = 0; k < n; k++)
        type[k] = *type_of(p, s->out + (nnc_ref)(r + k));
    nnc_ref y = nnc_build_typed(p->g, OP_split, 1, &x, 2, attr, type);
    edit_sync(p);
    for (int k = 0; k < n; k++)
        out[k] = y + (nnc_ref)k;
    if (p->status != NNC_OK || p->will_run[PASS_fuse])
        return;
    uint32_t nodes[2] = {p->g->value[x].node, p->g->value[y].node};
    nnc_ref f = region_build(p, nodes, 2, out, n);
    for (int k = 0; k < n; k++)
        out[k] = f + (nnc_ref)k;
    edit_sweep(p, nodes[1]);
}

/* Most results of a step. Each size needs an index of its own. */
static int most_results(const nnc_node *s, const int64_t *sizes)
{
    for (uint32_t k = 1; k < s->n_out; k++)
        if (sizes[k] != sizes[0])
            return NNC_KERNEL_CONCAT;
    return WIDE_SPLIT;
}

static void narrow_split(pass *p, uint32_t i)
{
    nnc_node s = p->g->node[i];
    layers l = layers_of(p, i, NNC_NONE);
    const int64_t *sizes = NULL;
    int n = nnc_attr_ints(&s, AT_sizes, &sizes), most = most_results(&s, sizes);
    nnc_ref *out = PASS_NEW(p, nnc_ref, n);
    if (!out)
        return;
    edit_at(p, i);
    int64_t at = 0;
    for (int k = 0, m; k < n && p->g->status == NNC_OK && p->status == NNC_OK; k += m) {
        bool alone = joins_its_readers(p, s.out + (nnc_ref)k);
        for (m = 1; m < most && k + m < n && !alone;)
            if (joins_its_readers(p, s.out + (nnc_ref)(k + m)))
                break;
            else
                m++;
        few_results(p, &s, k, m, sizes + k, at, out + k);
        for (int j = 0; j < m; j++)
            at += sizes[k + j];
    }
    edit_sync(p);
    for (int k = 0; k < n; k++)
        edit_replace(p, s.out + (nnc_ref)k, out[k]);
    edit_sweep(p, i);
    remark_applied(p, &l, "split in steps",
        "a kernel has at most %d results: these %d are slices, each with its consumers or some "
        "together",
        most, n);
}

static bool is_wide_split(const nnc_node *n)
{
    const int64_t *sizes;
    return n->op == OP_split && (int)nnc_attr_ints(n, AT_sizes, &sizes) > most_results(n, sizes);
}

nnc_status pass_split_wide(pass *p)
{
    uint32_t n = p->g->n_node;
    memory m = {ARENA_NEW(p->a, joined *, p->g->n_value + 1), p->g->n_value};
    NNC_NEED(m.by_last, p->sink);
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        const nnc_node *c = &p->g->node[i];
        if (!p->e.dead[i] && is_wide_concat(p, c))
            narrow_concat(p, i, &m);
        else if (!p->e.dead[i] && c->op == OP_concat && c->n_in > 1)
            keep_joined(p, &m, c, c->in, c->out);
    }
    /* splits come second: replacing a result visits all operands of its users, which are few by now */
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++)
        if (!p->e.dead[i] && is_wide_split(&p->g->node[i]))
            narrow_split(p, i);
    return p->status;
}
