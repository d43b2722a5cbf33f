/* kernel/build.c -- questions of passes before they fuse: which nodes become kernels, and whether several can be one
 * (nnc_kernel_possible). */
#include "kernel/trace.h"
#include <stdlib.h>

bool nnc_is_kernel_conv(
    const nnc_target *t, const nnc_graph *g, const nnc_node *n, const char **why)
{
    if (!nnc_is_depthwise(g, n) || nnc_attr_int(n, AT_groups, 1) < 2)
        return false;
    const nnc_type *w = nnc_typeof(g, n->in[1]);
    return nnc_target_depthwise(t, (nnc_dtype)w->dtype, nnc_type_numel(w) / w->dim[0], why);
}

bool nnc_has_call(const nnc_target *t, const nnc_graph *g, const nnc_node *n)
{
    if (n->op != OP_fused)
        return nnc_op_class(n->op) == CL_contract && !(t && nnc_is_kernel_conv(t, g, n, NULL));
    for (uint32_t i = 0; i < n->body->n_node; i++)
        if (nnc_has_call(t, n->body, &n->body->node[i]))
            return true;
    return false;
}

static int by_index(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* Counts the distinct values that the nodes read from outside; constants with one number are part of the kernel. -1: out of memory. */
static int64_t outside_values(
    const nnc_graph *g, const uint32_t *nodes, int n, int64_t operands, nnc_arena *a)
{
    nnc_ref *v = ARENA_NEW(a, nnc_ref, operands + 1);
    size_t k = 0, once = 0;
    if (!v)
        return -1;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < g->node[nodes[i]].n_in; j++) {
            nnc_ref r = g->node[nodes[i]].in[j];
            uint32_t d = g->value[r].node;
            bool number = g->node[d].op == OP_constant && nnc_type_numel(nnc_typeof(g, r)) == 1;
            if (!number && !bsearch(&d, nodes, (size_t)n, sizeof d, by_index))
                v[k++] = r;
        }
    qsort(v, k, sizeof *v, by_index);
    for (size_t i = 0; i < k; i++)
        once += i == 0 || v[i] != v[i - 1];
    return (int64_t)once;
}

/* *why: the reason, or NULL: out of memory. */
static bool too_many_arguments(
    const nnc_graph *g, const uint32_t *nodes, int n, int n_out, nnc_arena *a, const char **why)
{
    int64_t operands = 0;
    for (int i = 0; i < n; i++)
        operands += g->node[nodes[i]].n_in;
    if (operands + n_out <= NNC_KERNEL_ARGUMENTS)
        return false;
    int64_t outside = outside_values(g, nodes, n, operands, a);
    *why = outside < 0 ? NULL : "one kernel would have more than 64 operands and results";
    return outside < 0 || outside + n_out > NNC_KERNEL_ARGUMENTS;
}

/* Least length of a stored row. Vectors along shorter rows are slower than a kernel of its own for the values, which runs along all of
 * them; the more so, the more of them wait for a function (rows of 14, AVX-512: one function a value gains 6 %, two lose 27 %). */
static int64_t least_row(const nx *t)
{
    int functions = 0;
    for (int i = 0; i < t->n_ins; i++)
        functions += t->ins[i].expensive && t->ctx[t->ins[i].at.ctx].window;
    return functions > 1 ? 48 : 12;
}

static void name_buffers(nx *t, nx_set *set, nnc_arena *a)
{
    const int n = t->n_buf_value;
    t->k->n_buf = set->n_out + n;
    t->k->buf = ARENA_NEW(a, nnc_kbuf, n + set->n_out + NX_REUSED);
    for (int i = 0; t->k->buf && i < t->k->n_buf; i++) {
        const nnc_type *type = nnc_typeof(set->g, i < n ? t->buf_value[i] : set->out[i - n]);
        t->k->buf[i] = (nnc_kbuf){.role = i < n ? KB_in : KB_out,
            .dtype = (nnc_dtype)type->dtype,
            .numel = nnc_type_span(type)};
    }
    set->n_input = n;
}

/* Can the values that windows read be stored for them? Builds the kernel to see. *why: as of nnc_kernel_possible. */
static bool stores_windowed(nx *t, nx_set *set, nnc_arena *scratch, const char **why)
{
    bool done = false;
    name_buffers(t, set, scratch);
    *why = NULL;
    nnc_kernel *k = t->k->buf ? nx_link(t, scratch, scratch, why) : NULL;
    if (!k)
        return false;
    nnc_kernel_order_axes(k);
    nnc_kernel_merge_axes(k);
    if (!nnc_kernel_local(k, set->local, scratch, &done))
        return false;
    const int64_t row = k->axis[k->n_axis - 1].extent, least = least_row(t);
    if (done && row >= least)
        return true;
    const char *reason =
        done ? nnc_arena_printf(scratch,
                   "would be computed for each window that reads it: rows of %lld are too short "
                   "for a local buffer (least: %lld)",
                   (long long)row, (long long)least)
             : "would be computed for each window that reads it: no local buffer serves these "
               "windows";
    if (reason)
        (void)nx_fail(t, t->windowed, reason);
    return false;
}

/* For a remark: "silu at /layers/3 is computed once ...". */
static const char *stored_note(const nnc_graph *g, nnc_ref v, nnc_arena *a)
{
    const nnc_node *n = nnc_def(g, v);
    return nnc_arena_printf(a,
        "%s%s%s is computed once into a local buffer, from which its overlapping windows read",
        nnc_ops[n->op].name, n->origin && *n->origin ? " at " : "", n->origin ? n->origin : "");
}

bool nnc_kernel_possible(const nnc_graph *g, const uint32_t *nodes, int n, const nnc_ref *outs,
    int n_out, int64_t spare, int64_t local, nnc_arena *a, const char **why)
{
    const char *reason = "more than 64 results";
    nx_set set = {
        .g = g, .node = nodes, .n = n, .out = outs, .n_out = n_out, .spare = spare, .local = local};
    nnc_arena scratch;
    nx t = {0};
    bool ok = false;
    nnc_arena_init(&scratch, 0);
    if (n_out <= NNC_KERNEL_RESULTS && !too_many_arguments(g, nodes, n, n_out, &scratch, &reason))
        ok = nx_trace(&t, &set, &scratch, &reason) &&
             (t.windowed == NNC_NONE || stores_windowed(&t, &set, &scratch, &reason));
    nnc_free(t.ins);
    if (ok && t.windowed != NNC_NONE)
        ok = (*why = stored_note(g, t.windowed, a)) != NULL;
    else
        *why = ok || !reason ? NULL : nnc_arena_strdup(a, reason);
    nnc_arena_deinit(&scratch);
    return ok;
}
