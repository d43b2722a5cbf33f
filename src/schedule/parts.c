/* schedule/parts.c -- kernels of several products (kernel/parts.c) on a CPU, computed in blocks of rows. Their tmp buffers take a share of
 * the cache that leaves room for the products' operands. Each part has the vectors and strips that it would have alone. */
#include "schedule/schedule.h"

/* Divisor of the cache that local buffers may use: each block also reads the weights of two products. */
enum { SHARE = 4 };

static int axis_of(const nnc_kpart *p, int a)
{
    for (int b = 0; b < NNC_KAXES; b++)
        if (p->to[b] == a)
            return b;
    return -1;
}

/* The vectors of the rows between two products; false: they do not run along a row. Stages in a nest compute several values at a time. More
 * than one wide machine vector of each, or two short ones, would hide no more latency and take longer to compile. */
static bool row_vectors(nnc_kpart *p, const int64_t *row, const nnc_target *t)
{
    nnc_kernel *q = &p->k;
    const int64_t vectors = t->vector_bits > 256 ? 1 : 2,
                  lanes = vectors * nnc_max64(t->vector_bits, 128) / 32;
    bool ok = nnc_kernel_schedule(q, t) && nnc_sched_vec(&q->sched) >= q->n_outer;
    if (!ok) {
        for (int b = 0; b < q->n_buf; b++) /* with tmp buffers they must */
            q->buf[b].role = row[p->buf[b]] ? KB_tmp : q->buf[b].role;
        ok = nnc_kernel_schedule(q, t) && nnc_sched_vec(&q->sched) >= q->n_outer;
    }
    return ok && (!p->nest || nnc_sched_put(&q->sched, KD_vector, nnc_sched_vec(&q->sched),
                                  nnc_min64(nnc_sched_width(&q->sched), lanes)));
}

/* Divides k into parts with rows along axis u, and chooses the parts' vectors and *n, the rows of a strip. False: not possible along u. */
static bool plan_parts(const nnc_kernel *k, const nnc_target *t, int u, const int64_t *row,
    nnc_kpart *part, int n_part, int *n, double *ns, nnc_arena *a)
{
    *n = NNC_STRIP;
    *ns = 0;
    for (int i = 0; i < n_part; i++) {
        int each = NNC_STRIP;
        double all = 0;
        if (nnc_kernel_part(k, u, row, &part[i], a) ||
            !(part[i].product ? nnc_contract_part(&part[i].k, t, part[i].to[u], &each, &all)
                              : row_vectors(&part[i], row, t)))
            return false;
        *n = nnc_min64(each, *n);
        *ns += part[i].product ? all : nnc_points_ns(&part[i].k);
    }
    return true;
}

/* Divides the outer axes into work items that together take `ns`. */
static void divide(nnc_kernel *k, const nnc_target *t, double ns)
{
    k->sched.domain = nnc_kernel_domain(k);
    k->sched.grain = nnc_grain(t, ns / (double)k->sched.domain, k->sched.domain);
    k->scratch_bytes = nnc_kernel_scratch(k);
}

/* Rows of a block that minimise the busiest thread's work. Rows that two blocks need are computed for each. A block's results share the
 * cache with its tmp buffers. 0: not even two rows fit. */
static int64_t block_rows(nnc_kernel *k, const nnc_target *t, int u, const int64_t *row)
{
    const int threads = t && t->threads > 0 ? t->threads : 1;
    const int64_t extent = k->axis[u].extent,
                  others = nnc_kernel_points(k, ((1u << k->n_outer) - 1) & ~(1u << u));
    int64_t best = 0, least = INT64_MAX;
    for (int64_t rows = 2; rows <= extent; rows++) {
        int64_t bytes = 0, results = 0;
        if (!nnc_sched_put(&k->sched, KD_tile, u, rows))
            return 0;
        for (int b = 0; b < k->n_buf; b++) {
            const nnc_kbuf *x = &k->buf[b];
            bytes += row[b] ? nnc_parts_bytes(k, b) : 0;
            results += x->role != KB_out ? 0 : x->numel * nnc_dtype_size(x->dtype);
        }
        results = results / (extent * others) * rows;
        const int64_t units = nnc_ceildiv(nnc_ceildiv(extent, rows) * others, threads),
                      all = nnc_mul_sat(units, bytes);
        if (bytes + results > nnc_target_local_bytes(t) || all >= least)
            continue;
        best = rows;
        least = all;
    }
    nnc_sched_drop(&k->sched, KD_tile, u);
    return best;
}

/* Schedules convolutions in blocks of the image's rows, along axis u. Each part's strips are along its own axes, as in a separate
 * kernel. */
static bool schedule_rows(
    nnc_kernel *k, const nnc_target *t, int u, const int64_t *row, nnc_arena *a, bool *done)
{
    nnc_kpart part[NNC_KPARTS];
    nnc_kschedule *s = &k->sched;
    const int n = nnc_kernel_parts(k, part);
    const int64_t rows = block_rows(k, t, u, row);
    nnc_target one = *t;
    double ns = 0;
    if (rows == 0)
        return true;
    bool ok = nnc_sched_put(s, KD_tile, u, rows);
    one.threads = 1; /* of a block */
    nnc_kschedule all = *s;
    for (int i = 0; i < n && ok; i++) {
        bool scheduled = false;
        if (!part[i].product || nnc_kernel_part(k, u, row, &part[i], a))
            return true;
        if (!nnc_contract_schedule(&part[i].k, &one, &scheduled))
            return false;
        if (!scheduled)
            return true;
        ns += nnc_contract_ns(&part[i].k, t);
        for (int j = 0; j < part[i].k.sched.n; j++) {
            const nnc_kdirective *d = &part[i].k.sched.d[j];
            const int b = d->axis < 0 ? -1 : axis_of(&part[i], d->axis);
            if (d->what == KD_panel)
                return true;
            if (d->what != KD_order && b >= k->n_outer)
                ok = ok && nnc_sched_put(&all, (nnc_kdo)d->what, b, d->n);
        }
    }
    *s = all;
    divide(k, t, ns);
    return *done = ok;
}

/* Adds a part's directives for its own axes, and the prefetch of its weights, to k's schedule. */
static bool put_own(nnc_kernel *k, const nnc_kpart *p)
{
    const nnc_kschedule *q = &p->k.sched;
    bool ok = true;
    for (int i = 0; i < q->n; i++) {
        const nnc_kdirective *d = &q->d[i];
        const int a = d->axis < 0 ? -1 : axis_of(p, d->axis);
        const bool own =
            a >= k->n_outer &&
            (d->what == KD_vector || (p->product && (d->what == KD_tile || d->what == KD_unroll)));
        if (own || (d->what == KD_prefetch && p->product))
            ok = ok && nnc_sched_put(&k->sched, (nnc_kdo)d->what, a, d->n);
    }
    return ok;
}

/* Schedules parts whose products have a strip's rows among their own axes. A point of the outer axes is then already a thread's block.
 * False: other parts. */
static bool own_strips(nnc_kernel *k, const nnc_target *t, const int64_t *row, nnc_kpart *part,
    int n_part, double *ns, nnc_arena *a)
{
    nnc_target one = *t;
    bool ok = true;
    one.threads = 1;
    for (int i = 0; i < n_part && ok; i++) {
        nnc_kernel *q = &part[i].k;
        ok = !nnc_kernel_part(k, -1, row, &part[i], a) &&
             (part[i].product ? nnc_contract_schedule(q, &one, &ok) && ok &&
                                    nnc_sched_axis(&q->sched, KD_unroll) >= k->n_outer
                              : row_vectors(&part[i], row, t));
        *ns += nnc_points_ns(q);
    }
    k->sched = (nnc_kschedule){0};
    for (int i = 0; i < n_part && ok; i++)
        ok = put_own(k, &part[i]);
    return ok;
}

bool nnc_parts_schedule(nnc_kernel *k, const nnc_target *t, nnc_arena *a, bool *done)
{
    nnc_kpart part[NNC_KPARTS];
    nnc_kschedule *s = &k->sched;
    int n = 0, u = k->n_outer - 1;
    double ns = 0;
    *s = (nnc_kschedule){0};
    *done = false;
    const int n_part = nnc_kernel_parts(k, part);
    const int64_t *row = n_part ? nnc_parts_rows(k, part, n_part, a) : NULL;
    if (n_part == 0 || !row)
        return n_part == 0;
    if (nnc_parts_axis(k) >= 0)
        return schedule_rows(k, t, nnc_parts_axis(k), row, a, done);
    if (own_strips(k, t, row, part, n_part, &ns, a)) {
        divide(k, t, ns);
        return *done = true;
    }
    while (u >= 0 && (k->axis[u].extent < 2 || !plan_parts(k, t, u, row, part, n_part, &n, &ns, a)))
        u--;
    if (u < 0)
        return true;
    int64_t bytes = 0, others = nnc_kernel_points(k, ((1u << k->n_outer) - 1) & ~(1u << u));
    for (int b = 0; b < k->n_buf; b++)
        bytes = nnc_add_sat(bytes, nnc_mul_sat(row[b], nnc_dtype_size(k->buf[b].dtype)));
    int64_t rows = nnc_target_local_bytes(t) / SHARE / nnc_max64(bytes, 1);
    rows = nnc_even_tile(k->axis[u].extent, nnc_max64(rows, n), n, others, t);
    bool ok = nnc_sched_put(s, KD_tile, u, rows) && (n < 2 || nnc_sched_put(s, KD_unroll, u, n));
    for (int i = 0; i < n_part; i++) {
        const nnc_kschedule *q = &part[i].k.sched;
        int v = nnc_sched_vec(q), b = axis_of(&part[i], v);
        ok = ok && nnc_sched_put(s, KD_vector, b, nnc_sched_width(q));
        if (part[i].product && nnc_sched_n(q, KD_tile, v))
            ok = ok && nnc_sched_put(s, KD_tile, b, nnc_sched_n(q, KD_tile, v));
    }
    divide(k, t, ns);
    return *done = ok;
}
