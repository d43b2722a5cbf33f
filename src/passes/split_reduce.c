/* passes/split_reduce.c -- reduce(x) over a huge extent with few results = reduce(reduce(chunks of x)): the first step has enough
 * results to run in parallel. The number of chunks depends on the shape only, not on threads, so that the result is the same
 * everywhere. A mean of equal chunks' means is the mean. Terminates: the first step has too many results to be split again, the second
 * reduces too little. */
#include "passes/internal.h"

enum {
    FEW_RESULTS = 64, /* fewer results leave cores idle */
    FEW_COLUMNS = 128, /* on a CPU: threads that share shorter rows read all pages */
    HUGE_EXTENT = 1 << 16, /* elements per result from which splitting is worthwhile */
    MIN_CHUNK = 1 << 12,
    WANT_CHUNKS = 256,
    LEAST_ROWS = 7,
    LEAST_IMAGE = 1 << 15, /* elements */
};

/* A divisor of `extent`: the smallest that gives WANT_CHUNKS results, otherwise the largest below. 0: none is useful. */
static int64_t chunks_of(int64_t extent, int64_t results, int64_t per_result)
{
    int64_t best = 0;
    for (int64_t d = 2; d <= extent && d <= 4096; d++) {
        if (extent % d || per_result / d < MIN_CHUNK)
            continue;
        best = d;
        if (d * results >= WANT_CHUNKS)
            break;
    }
    return best * results >= 4 && best >= 4 ? best : 0;
}

static void split(pass *p, uint32_t i, int64_t axis, int64_t chunks)
{
    nnc_graph *g = p->g;
    nnc_node n = g->node[i];
    nnc_type x = *type_of(p, n.in[0]), y = *type_of(p, n.out);
    const int64_t *axes;
    int n_axes = nnc_attr_ints(&n, AT_axes, &axes);
    int64_t dim[NNC_MAX_RANK], first[NNC_MAX_RANK], kept = 0;
    int r = 0, nf = 0;
    for (int k = 0; k < x.rank; k++) {
        if (k == axis)
            dim[r++] = chunks;
        dim[r++] = k == axis ? x.dim[k] / chunks : x.dim[k];
    }
    for (int k = 0; k < n_axes; k++)
        first[nf++] = axes[k] + (axes[k] >= axis); /* the chunk dimension is `axis` and is kept */
    for (int64_t k = 0; k < axis; k++) {
        bool gone = false;
        for (int j = 0; j < n_axes; j++)
            gone = gone || axes[j] == k;
        kept += !gone;
    }
    layers l = layers_of(p, i, NNC_NONE);
    edit_at(p, i);
    nnc_ref v = nnc_reduce(g, n.op, nnc_reshape(g, n.in[0], r, dim), nf, first, false);
    v = nnc_reduce(g, n.op, v, 1, &kept, false);
    if (!edit_sync(p))
        return;
    if (!nnc_type_same_shape(type_of(p, v), &y))
        v = nnc_reshape(g, v, y.rank, y.dim);
    edit_replace(p, n.out, edit_like(p, v, n.out));
    int64_t results = nnc_type_numel(&y);
    remark_applied(p, &l, "two-step reduction",
        "%lld result%s of %lld elements%s: %lld chunks are reduced in parallel, then their "
        "results",
        (long long)results, results == 1 ? "" : "s", (long long)(nnc_type_numel(&x) / results),
        results == 1 ? "" : " each", (long long)(chunks * results));
}

/* Number of results below which a reduction is split. Where the contiguous axis is kept, threads should share rows, not columns; on a
 * GPU the kernel itself splits such sums over blocks. */
static int64_t few(const pass *p, const nnc_node *n)
{
    const nnc_target *t = target_of(p, n);
    bool columns = t && t->kind == NNC_T_cpu && !reduces_contiguous(p, n);
    return columns ? FEW_COLUMNS : FEW_RESULTS;
}

/* Do only contractions read v, through views? */
static bool contractions_read(pass *p, nnc_ref v)
{
    uint32_t user[8];
    int n = users_through_views(p, v, user, NNC_COUNT(user));
    for (int i = 0; i < n && i < (int)NNC_COUNT(user); i++)
        if (nnc_op_class(p->g->node[user[i]].op) != CL_contract &&
            !is_contraction(p, &p->g->node[user[i]]))
            return false;
    return n > 0 && n <= (int)NNC_COUNT(user) && !edit_is_output(p, v);
}

/* The outermost dimension in memory that reduction n sums over, if other summed dimensions remain; -1: none. */
static int rows_dimension(const pass *p, const nnc_node *n)
{
    const nnc_type *x = type_of(p, n->in[0]);
    const int64_t *axes;
    int n_axes = nnc_attr_ints(n, AT_axes, &axes), real = 0, first = -1;
    for (int m = x->rank - 1; m >= 0; m--)
        for (int k = 0; k < n_axes; k++)
            if (axes[k] == x->order[m] && x->dim[axes[k]] > 1) {
                first = (int)axes[k];
                real++;
            }
    return real > 1 ? first : -1;
}

/* Splits a global average of a channels-last image into averages of each row, then of rows. In the first step threads share the rows, which
 * are still in their caches; the second is small. */
static bool split_rows(pass *p, uint32_t i)
{
    nnc_graph *g = p->g;
    const nnc_node n = g->node[i];
    const nnc_type x = *type_of(p, n.in[0]);
    const nnc_target *t = target_of(p, &n);
    const int64_t *axes;
    int64_t first[NNC_MAX_RANK];
    int n_axes = nnc_attr_ints(&n, AT_axes, &axes), nf = 0;
    const int rows = rows_dimension(p, &n);
    if (!t || t->kind != NNC_T_cpu || n.op == OP_argmax || n.op == OP_argmin || rows < 0 ||
        x.dim[rows] < LEAST_ROWS || reduces_contiguous(p, &n) || nnc_type_numel(&x) < LEAST_IMAGE ||
        !contractions_read(p, n.out))
        return false;
    for (int k = 0; k < n_axes; k++)
        if (axes[k] != rows)
            first[nf++] = axes[k];
    const int64_t last = rows;
    layers l = layers_of(p, i, NNC_NONE);
    edit_at(p, i);
    nnc_ref v = nnc_reduce(g, n.op, n.in[0], nf, first, true);
    v = nnc_reduce(g, n.op, v, 1, &last, true);
    if (!edit_sync(p))
        return true;
    const nnc_type *y = type_of(p, n.out);
    if (!nnc_type_same_shape(type_of(p, v), y))
        v = nnc_reshape(g, v, y->rank, y->dim);
    edit_replace(p, n.out, edit_like(p, v, n.out));
    remark_applied(p, &l, "two-step reduction",
        "%lld rows are reduced in parallel, where they are computed, then their results",
        (long long)x.dim[rows]);
    return true;
}

nnc_status pass_split_reduce(pass *p)
{
    uint32_t n_node = p->g->n_node;
    for (uint32_t i = 0; i < n_node && p->status == NNC_OK; i++) {
        const nnc_node *n = &p->g->node[i];
        if (nnc_op_class(n->op) != CL_reduce || p->e.dead[i] || edit_static(p, n->out))
            continue;
        if (split_rows(p, i))
            continue;
        const nnc_type *x = type_of(p, n->in[0]);
        int64_t results = numel_of(p, n->out), each = nnc_type_numel(x) / results;
        if (results >= few(p, n) || each < HUGE_EXTENT)
            continue;
        const char *why = NULL;
        const int64_t *axes;
        int n_axes = nnc_attr_ints(n, AT_axes, &axes);
        int64_t axis = 0, chunks = 0;
        for (int k = 0; k < n_axes; k++)
            if (k == 0 || x->dim[axes[k]] > x->dim[axis])
                axis = axes[k];
        if (n->op == OP_argmax || n->op == OP_argmin)
            why = "the index of the winner would need a second kernel with its value";
        else if (x->rank == NNC_MAX_RANK || !nnc_type_is_row_major(x))
            why = "its operand has no dimension to split in place";
        else if (!(chunks = chunks_of(x->dim[axis], results, each)))
            why = "no reduced extent has a divisor that makes chunks of a useful size";
        if (!why) {
            split(p, i, axis, chunks);
            continue;
        }
        layers l = layers_of(p, i, NNC_NONE);
        bool one = results == 1;
        remark_declined(p, &l, "two-step reduction",
            "%lld result%s of %lld elements%s on few cores, but %s", (long long)results,
            one ? "" : "s", (long long)each, one ? " runs" : " each run", why);
    }
    return p->status;
}
