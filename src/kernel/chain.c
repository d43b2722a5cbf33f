/* kernel/chain.c -- kernels of several products, of which one sums what another computes, with ops on rows between them.
 *
 *     s = q k^T + mask,  p = exp(s - max s) / sum,  y = p v.
 *
 * Each part, a product with its epilogue or the ops on rows after it, is traced as a kernel of its own. Parts that pass a tensor by rows
 * become stages of one kernel: they have the same outer axes along the tensor's leading dimensions. The kernel has these as outer axes, and
 * all others as own ones. The tensor is a tmp buffer of one row. parts.c takes such a kernel apart again, for blocks of rows.
 *
 * A convolution reads several rows of the result of the part before it, some of which its neighbours read, too. Along the outermost such
 * axis the tmp buffer has the rows of one point, and the part before gets a map axis m over them.
 *
 *     t = conv(x, w),  y = conv3x3(t, v)   ->   for i: t[m] = x[i + m - 1] w for m < 3,  y[i] = sum r: t[r] v[r].
 *
 * Rows beyond t's edge are computed from zeros, and no window reads them. */
#include "kernel/trace.h"

#include <stdlib.h>
#include <string.h>

/* A part's indices along an axis for point i of the last part's axis: step i + from + 0 .. rows - 1. For an edge between two parts: for
 * index i of the later part. */
typedef struct window {
    int64_t step, from, rows;
} window;

typedef struct part {
    bool product;
    int n;
    uint32_t *node;
    nnc_ref out; /* its result, which the next parts read or which is the kernel's */
    nnc_kernel *k;
    nnc_ref *value; /* by buffer of an operand, as nx.buf_value */
    int in, dst; /* buffers of k: the previous part's result; its own result */
    int to[NNC_KAXES]; /* axes of k in the joined kernel; -1: extent 1 */
    int along; /* the axis of k with this window, or -1 */
    int rows; /* the joined kernel's axis over the window's rows, or -1 */
    window w;
    int64_t skipped; /* elements of `in` before the window's first row, at index 0 of `along` */
    int *to_buf; /* by buffer of k: that of the joined kernel */
} part;

typedef struct chain {
    const nx_set *s;
    int n;
    part part[NNC_KPARTS];
    uint8_t *part_of; /* by node of g: its part, from 1; 0: repeated in each part that reads it */
    bool *indexed; /* by node: in no part, and computed from an index */
    uint32_t late; /* nodes before it that follow this product belong to the next part; 0: none */
    const char **why;
    nnc_arena *scratch, *a;
} chain;

static bool is_product(const nnc_node *n)
{
    return n->op == OP_matmul || n->op == OP_linear || n->op == OP_conv;
}

bool nx_is_chain(const nx_set *s)
{
    int products = 0;
    for (int i = 0; i < s->n; i++)
        products += is_product(&s->g->node[s->node[i]]);
    return products > 1;
}

static bool fails(const chain *c, const char *why)
{
    *c->why = why;
    return false;
}

/* ---- parts --------------------------------------------------------------------------------------------------------- */

/* Adds node i to the last part or to a new one. */
static bool put_node(chain *c, uint32_t i)
{
    const nnc_node *n = &c->s->g->node[i];
    int last = 0;
    bool index = n->op == OP_iota;
    for (int k = 0; k < n->n_in; k++) {
        const uint32_t d = c->s->g->value[n->in[k]].node;
        last = c->part_of[d] > last ? c->part_of[d] : last;
        index |= c->indexed[d];
    }
    bool product = is_product(n), rows = nnc_op_class((nnc_op)n->op) == CL_reduce;
    c->indexed[i] = index && last == 0;
    rows |= (index || i < c->late) && last > 0 && c->part[last - 1].product &&
            !product; /* strips have no indices */
    if ((product && last < c->n) || (rows && (last == 0 || last < c->n)))
        return fails(c, "a sum depends on no sum before it");
    if (product || (rows && last && c->part[last - 1].product)) {
        if (c->n == NNC_KPARTS)
            return fails(c, "one kernel would have more than 8 sums, one after the other");
        last = ++c->n;
        c->part[last - 1] = (part){.product = product, .in = -1, .dst = -1, .out = NNC_NONE};
    }
    c->part_of[i] = (uint8_t)last;
    return true;
}

/* Is value v read outside of part p, or a result of the kernel? */
static bool leaves(const chain *c, nnc_ref v, int p)
{
    for (int i = 0; i < c->s->n; i++) {
        const nnc_node *n = &c->s->g->node[c->s->node[i]];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] == v && c->part_of[c->s->node[i]] != p)
                return true;
    }
    for (int i = 0; i < c->s->n_out; i++)
        if (c->s->out[i] == v)
            return true;
    return false;
}

/* Lists each part's nodes, including repeated ones without a part, and finds its only result. */
static bool list_nodes(chain *c)
{
    const nx_set *s = c->s;
    for (int p = 1; p <= c->n; p++) {
        part *q = &c->part[p - 1];
        q->node = ARENA_NEW(c->scratch, uint32_t, s->n);
        if (!q->node)
            return fails(c, NULL);
        for (int i = 0; i < s->n; i++) {
            const nnc_node *n = &s->g->node[s->node[i]];
            if (c->part_of[s->node[i]] == p || c->part_of[s->node[i]] == 0)
                q->node[q->n++] = s->node[i];
            for (uint32_t o = 0; o < n->n_out && c->part_of[s->node[i]] == p; o++) {
                if (!leaves(c, n->out + o, p))
                    continue;
                if (q->out != NNC_NONE)
                    return fails(c, "several values pass from one sum to the next");
                q->out = n->out + o;
            }
        }
    }
    for (int i = 0; i < s->n_out; i++)
        if (s->out[i] != c->part[c->n - 1].out)
            return fails(c, "a value between two sums is a result, too");
    return s->n_out == 1 || fails(c, "it has several results");
}

static bool assign(chain *c)
{
    const nx_set *s = c->s;
    c->n = 0;
    memset(c->part_of, 0, s->g->n_node);
    for (int i = 0; i < s->n; i++)
        if (!put_node(c, s->node[i]))
            return false;
    return list_nodes(c);
}

/* Elementwise ops after a product are its epilogue. If several of their results would pass to the next part, they belong to that part
 * instead. */
static bool find_parts(chain *c)
{
    const nx_set *s = c->s;
    uint32_t last = 0;
    c->part_of = ARENA_NEW(c->scratch, uint8_t, s->g->n_node + 1);
    c->indexed = ARENA_NEW(c->scratch, bool, s->g->n_node + 1);
    if (!c->part_of || !c->indexed)
        return fails(c, NULL);
    for (int i = 0; i < s->n; i++)
        last = is_product(&s->g->node[s->node[i]]) ? s->node[i] : last;
    bool ok = assign(c);
    if (ok || !*c->why)
        return ok;
    c->late = last;
    return assign(c);
}

/* The value of g in buffer b of a part, if another part computes it; otherwise NNC_NONE. */
static nnc_ref passed(const chain *c, const part *q, int b)
{
    const nnc_ref v = q->value[b];
    if (v & NX_INNER)
        return v & ~NX_INNER;
    const uint32_t d = c->s->owner ? 0 : c->s->g->value[v].node;
    return !c->s->owner && c->part_of[d] ? v : NNC_NONE;
}

/* Builds the part's kernel. Its outside operands are those of the set, in the same order for all parts of a node. */
static bool trace_part(chain *c, int p)
{
    part *q = &c->part[p];
    nx_set set = *c->s;
    nx t = {0};
    const bool last = p == c->n - 1;
    nnc_ref out = set.owner ? last ? set.owner->out : q->out | NX_INNER : q->out;
    set.node = q->node;
    set.n = q->n;
    set.out = &q->out;
    set.inner = !last;
    set.spare = -1;
    set.operand = ARENA_NEW(c->scratch, nnc_ref, set.n_operand + 1);
    if (!set.operand)
        return fails(c, NULL);
    memcpy(set.operand, c->s->operand ? c->s->operand : set.operand,
        sizeof *set.operand * (size_t)set.n_operand);
    if (nx_trace(&t, &set, c->scratch, c->why))
        q->k = nx_kernel(&t, set.outer ? set.outer : set.g, &out, c->scratch, c->scratch, c->why);
    nnc_free(t.ins);
    if (!q->k)
        return false;
    q->value = t.buf_value;
    q->dst = t.n_buf_value;
    for (int b = 0; b < t.n_buf_value; b++) {
        const nnc_ref v = passed(c, q, b);
        if (v == NNC_NONE)
            continue;
        if (p == 0 || v != c->part[p - 1].out)
            return fails(c, "a value is read by more than the next sum");
        q->in = b;
    }
    nnc_kernel_order_axes(q->k, false);
    return (p == 0) == (q->in < 0) || fails(c, "a sum depends on no sum before it");
}

/* ---- shared axes --------------------------------------------------------------------------------------------------- */

/* The common step of axis a in all accesses of one kind to buffer b; 0: they differ, or have none. */
static int64_t step_of(const nnc_kernel *k, nnc_kop op, int b, int a)
{
    int64_t step = 0;
    bool any = false;
    for (int i = 0; i < k->n_ins; i++) {
        if (k->ins[i].op != op || k->ins[i].buf != b)
            continue;
        if (any && k->ins[i].at.k[a] != step)
            return 0;
        step = k->ins[i].at.k[a];
        any = true;
    }
    return step;
}

/* The rows of buffer `in` that the part's loads read, in multiples of `step` elements within `all`, where axis b is at 0. */
static window rows_read(const part *q, int b, int64_t step, int64_t all)
{
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int i = 0; i < q->k->n_ins; i++) {
        const nnc_kins *in = &q->k->ins[i];
        if (in->op != KO_load || in->buf != q->in)
            continue;
        int64_t lo = nnc_floordiv(in->at.c + step / 2, step), hi = lo; /* padding has few columns */
        for (int a = 0; a < q->k->n_axis; a++) {
            const int64_t x = in->at.k[a];
            if (a == b || x % step || x >= all || x <= -all)
                continue;
            *(x < 0 ? &lo : &hi) += x / step * (q->k->axis[a].extent - 1);
        }
        least = nnc_min64(least, lo);
        most = nnc_max64(most, hi);
    }
    return (window){.from = least, .rows = least <= most ? most - least + 1 : 0};
}

/* The outer axis along which the next part reads, in windows, the tensor that this part stores along axis a; or -1. */
static int same_axis(const part *q, const part *next, int a, window *w)
{
    const int64_t step = step_of(q->k, KO_store, q->dst, a), n = q->k->axis[a].extent;
    int best = -1;
    int64_t least = nnc_mul_sat(step, n);
    for (int b = 0; b < next->k->n_outer && step > 0; b++) {
        const int64_t x = step_of(next->k, KO_load, next->in, b);
        if (x >= step && x % step == 0 && (x < least || (best < 0 && x == step))) {
            best = b;
            least = x;
        }
    }
    if (best < 0)
        return -1;
    *w = rows_read(next, best, step, nnc_mul_sat(step, n));
    w->step = least / step;
    const int64_t last = (next->k->axis[best].extent - 1) * w->step + w->from;
    const bool plain = w->step == 1 && w->rows == 1 && w->from == 0;
    bool ok = plain ? next->k->axis[best].extent == n
                    : next->product && w->rows > 0 && w->from > -w->rows && last < n;
    return ok ? best : -1;
}

typedef struct shared_axis {
    int at[NNC_KPARTS]; /* axes of the parts */
    window w[NNC_KPARTS];
} shared_axis;

/* Finds axis a of the first part in all others; false: they do not share it. */
static bool follow_axis(const chain *c, int a, shared_axis *s)
{
    s->at[0] = a;
    for (int p = 1; p < c->n; p++)
        if ((s->at[p] = same_axis(&c->part[p - 1], &c->part[p], s->at[p - 1], &s->w[p - 1])) < 0)
            return false;
    s->w[c->n - 1] = (window){1, 0, 1};
    for (int p = c->n - 1; p-- > 0;) {
        window *w = &s->w[p];
        const window *after = w + 1;
        w->from += w->step * after->from;
        w->rows += w->step * (after->rows - 1);
        w->step *= after->step;
    }
    return true;
}

/* Finds the axes that all parts share, and returns their number. They are the leading dimensions of the first tensor, outermost first, up
 * to the first along which windows overlap. */
static int share_axes(chain *c)
{
    shared_axis s[NNC_KAXES];
    int n = 0;
    const part *first = &c->part[0];
    for (int a = 0; a < first->k->n_outer; a++) {
        shared_axis x;
        int i = n;
        if (first->k->axis[a].extent < 2 || !follow_axis(c, a, &x))
            continue;
        int64_t step = step_of(first->k, KO_store, first->dst, a);
        for (; i > 0 && step_of(first->k, KO_store, first->dst, s[i - 1].at[0]) < step; i--)
            s[i] = s[i - 1];
        s[i] = x;
        n++;
    }
    int64_t all = first->k->buf[first->dst].numel;
    for (int i = 0; i < n; i++) {
        const int a = s[i].at[0];
        const int64_t step = step_of(first->k, KO_store, first->dst, a);
        if (step * first->k->axis[a].extent != all)
            n = i;
        else if (s[i].w[0].rows > 1 || s[i].w[0].step > 1)
            n = i + 1;
        all = step;
    }
    for (int p = 0; p < c->n; p++) {
        part *q = &c->part[p];
        memset(q->to, -1, sizeof q->to);
        q->along = q->rows = -1;
        for (int i = 0; i < n; i++)
            q->to[s[i].at[p]] = i;
        if (n == 0 || (s[n - 1].w[0].rows == 1 && s[n - 1].w[0].step == 1))
            continue;
        q->along = s[n - 1].at[p];
        q->w = s[n - 1].w[p];
        if (p == 0)
            continue;
        const part *before = &c->part[p - 1];
        q->skipped = (s[n - 1].w[p - 1].from - s[n - 1].w[p - 1].step / q->w.step * q->w.from) *
                     step_of(before->k, KO_store, before->dst, before->along);
    }
    return n;
}

/* Elements of the tensor for each point of the shared axes; 0: these are not its leading dimensions. */
static int64_t row_of(const part *q, int b, nnc_kop op, int n)
{
    int64_t least = q->k->buf[b].numel, all = 1;
    for (int a = 0; a < q->k->n_outer; a++)
        if (q->to[a] >= 0 && q->to[a] < n) {
            least = nnc_min64(least, step_of(q->k, op, b, a));
            all *= q->k->axis[a].extent;
        }
    return all > 0 && least * all == q->k->buf[b].numel ? least : 0;
}

/* Do the part's accesses to buffer b stay within `size` elements from the place of the shared axes, and store each once? */
static bool within_row(const part *q, int b, int64_t size)
{
    for (int i = 0; i < q->k->n_ins; i++) {
        nnc_kins in = q->k->ins[i];
        if ((in.op != KO_load && in.op != KO_store) || in.buf != b)
            continue;
        uint32_t own = 0;
        nnc_kernel k = *q->k;
        if (q->along >= 0)
            k.axis[q->along].extent = q->w.rows;
        for (int a = 0; a < k.n_axis; a++) {
            if (q->to[a] >= 0 && a != q->along)
                in.at.k[a] = 0;
            own |= (uint32_t)(in.at.k[a] != 0) << a;
        }
        in.at.c -= b == q->in ? q->skipped : 0;
        nnc_kguard guard[NNC_KGUARDS];
        in.n_guard = 0;
        for (int g = 0; g < q->k->ins[i].n_guard; g++) /* other guards say which rows exist */
            if (q->along < 0 || !in.guard[g].e.k[q->along])
                guard[in.n_guard++] = in.guard[g];
        in.guard = guard;
        nnc_span s = nnc_access_span(&k, &in);
        if (!s.ok || s.lo < 0 || s.hi >= size || nnc_kins_index(&in) >= 0 ||
            (in.op == KO_store && (q->k->ins[i].n_guard || nnc_kernel_points(&k, own) != size)))
            return false;
    }
    return true;
}

/* ---- one kernel ---------------------------------------------------------------------------------------------------- */

/* Numbers the part's other axes from k->n_axis on: a product's outer ones become map axes. */
static bool add_axes(chain *c, part *q, nnc_kernel *k)
{
    if (q->along >= 0 && q->w.rows > 1) {
        if (!q->product || k->n_axis == NNC_KAXES)
            return fails(c, "windows read what no product computes");
        q->rows = k->n_axis;
        k->axis[k->n_axis++] = (nnc_kaxis){.kind = KA_map, .extent = q->w.rows};
    }
    for (int a = 0; a < q->k->n_axis; a++) {
        nnc_kaxis x = q->k->axis[a];
        if (q->to[a] >= 0 || (x.kind == KA_outer && x.extent == 1))
            continue;
        if (x.kind == KA_outer && !q->product)
            return fails(c, "the rows between two sums are not those of the sums");
        if (k->n_axis == NNC_KAXES)
            return fails(c, "one kernel would have more than 16 axes");
        x.kind = x.kind == KA_outer ? KA_map : x.kind;
        q->to[a] = k->n_axis;
        k->axis[k->n_axis++] = x;
    }
    return true;
}

/* Converts a form over the part's axes to k's axes. row: an offset in a row, which does not depend on shared axes. */
static nnc_affine moved(const part *q, const nnc_affine *e, bool row, int shared)
{
    nnc_affine f = {.c = e->c};
    for (int a = 0; a < q->k->n_axis; a++) {
        const bool windows = a == q->along;
        if (q->to[a] >= (row ? shared : 0))
            f.k[q->to[a]] += e->k[a] * (windows ? q->w.step : 1);
        if (windows && q->rows >= 0)
            f.k[q->rows] += e->k[a];
        f.c += windows && !row ? e->k[a] * q->w.from : 0;
    }
    return f;
}

/* Limits a load of k to rows that exist: other rows of a window have no source. */
static bool guard_rows(chain *c, const part *q, nnc_kernel *k, nnc_kins *in)
{
    nnc_affine e = {0};
    e.k[q->along] = 1;
    e = moved(q, &e, false, 0);
    const int64_t n = q->k->axis[q->along].extent;
    const nnc_span s = nnc_affine_span(k, &e);
    if (s.ok && s.lo >= 0 && s.hi < n)
        return true;
    nnc_kguard *guard = ARENA_NEW(c->a, nnc_kguard, in->n_guard + 1);
    if (!guard || in->n_guard == NNC_KGUARDS)
        return fails(c, guard ? "a load has more than 8 bounds" : NULL);
    for (int g = 0; g < in->n_guard; g++)
        guard[g] = in->guard[g];
    guard[in->n_guard++] = (nnc_kguard){.e = e, .lo = 0, .hi = n};
    in->guard = guard;
    return true;
}

/* Appends instructions from .. end - 1 of a part. at: by instruction of the part, its number in k. */
static bool add_ins(chain *c, const part *q, nnc_kernel *k, int from, int end, int32_t *at)
{
    for (int i = from; i < end; i++) {
        const nnc_kins *x = &q->k->ins[i];
        const bool access = x->op == KO_load || x->op == KO_store,
                   operand = access && x->buf != q->in && k->buf[q->to_buf[x->buf]].role != KB_tmp;
        if (x->op == KO_index && x->i == q->along)
            return fails(c, "rows in windows have no indices");
        if (x->op == KO_load && operand && q->along >= 0 && x->at.k[q->along] && x->arg[1] < 0)
            k->ins[k->n_ins++] = (nnc_kins){
                .op = KO_const, .dtype = x->dtype, .arg = {-1, -1, -1}, .buf = 0, .lo = 1};
        nnc_kins *in = &k->ins[k->n_ins];
        *in = *x;
        at[i] = k->n_ins++;
        for (int j = 0; j < 3; j++)
            in->arg[j] = in->arg[j] < 0 ? -1 : at[in->arg[j]];
        if (in->op == KO_index && q->to[in->i] < 0) {
            *in = (nnc_kins){.op = KO_const, .dtype = DT_i64, .arg = {-1, -1, -1}, .lo = 1};
            continue;
        }
        if (in->op == KO_index)
            in->i = q->to[in->i];
        if (!access)
            continue;
        in->at = moved(q, &x->at, !operand, k->n_outer);
        in->at.c -= in->op == KO_load && x->buf == q->in ? q->skipped : 0;
        in->buf = (int16_t)q->to_buf[x->buf];
        if (in->n_guard &&
            !(in->guard = nnc_arena_memdup(c->a, in->guard, sizeof *in->guard * in->n_guard)))
            return fails(c, NULL);
        for (int g = 0; g < in->n_guard; g++)
            in->guard[g].e = moved(q, &x->guard[g].e, false, 0);
        if (in->op != KO_load || !operand || q->along < 0 || !x->at.k[q->along])
            continue;
        if (in->arg[1] < 0)
            in->arg[1] = at[i] - 1;
        if (!guard_rows(c, q, k, in))
            return false;
        if (in->n_guard == 0)
            in->arg[1] = -1;
    }
    return true;
}

static uint32_t moved_axes(const part *q, uint32_t axes)
{
    uint32_t m = 0;
    for (int a = 0; a < q->k->n_axis; a++)
        m |= (axes >> a & 1) && q->to[a] >= 0 ? 1u << q->to[a] : 0;
    return m;
}

/* Adds a product as one stage, which owns some of the outer axes. Values that were computed once for each of their points go to the body if
 * the sum reads them, otherwise to the post. */
static bool add_product(chain *c, const part *q, nnc_kernel *k, int32_t *at)
{
    const nnc_kernel *x = q->k;
    const nnc_kstage *sum = NULL;
    nnc_kstage *s = &k->stage[k->n_stage++];
    for (int g = 0; g < x->n_stage; g++) {
        if (x->stage[g].axes && sum)
            return fails(c, "a product of several phases");
        sum = x->stage[g].axes ? &x->stage[g] : sum;
    }
    bool body = false;
    for (int i = sum ? sum->body0 : 0; sum && i < sum->body1; i++)
        for (int j = 0; j < 3; j++)
            body |= x->ins[i].arg[j] >= 0 && x->ins[i].arg[j] < sum->body0;
    if (!sum)
        return fails(c, "a product of one term");
    *s = (nnc_kstage){.body0 = k->n_ins};
    for (int a = k->n_outer; a < k->n_axis; a++)
        for (int b = 0; b < x->n_axis; b++)
            s->axes |= q->to[b] == a || q->rows == a ? 1u << a : 0;
    bool ok = (!body || add_ins(c, q, k, 0, sum->body0, at)) &&
              add_ins(c, q, k, sum->body0, sum->body1, at);
    s->body1 = s->post0 = k->n_ins;
    ok = ok && (body || add_ins(c, q, k, 0, sum->body0, at)) &&
         add_ins(c, q, k, sum->body1, x->n_ins, at);
    s->post1 = k->n_ins;
    return ok;
}

static bool add_rows(chain *c, const part *q, nnc_kernel *k, int32_t *at)
{
    for (int g = 0; g < q->k->n_stage; g++) {
        const nnc_kstage *x = &q->k->stage[g];
        nnc_kstage *s = &k->stage[k->n_stage++];
        *s = (nnc_kstage){.axes = moved_axes(q, x->axes), .body0 = k->n_ins};
        if (!add_ins(c, q, k, x->body0, x->body1, at))
            return false;
        s->body1 = s->post0 = k->n_ins;
        if (!add_ins(c, q, k, x->post0, x->post1, at))
            return false;
        s->post1 = k->n_ins;
    }
    return true;
}

/* May the part's result overwrite the row that it reads? Only if stages before the storing one read all of it. */
static bool overwrites(const part *q)
{
    int load = -1, store = -1;
    const nnc_kernel *k = q->k;
    for (int g = 0; g < k->n_stage; g++)
        for (int i = k->stage[g].body0; i < k->stage[g].post1; i++) {
            if (k->ins[i].op == KO_load && k->ins[i].buf == q->in)
                load = g;
            if (k->ins[i].op == KO_store && k->ins[i].buf == q->dst && store < 0)
                store = g;
        }
    return !q->product && load < store;
}

static int find_buffer(const nnc_ref *value, int n, nnc_ref v)
{
    for (int i = 0; i < n; i++)
        if (value[i] == v)
            return i;
    return -1;
}

/* Adds buffers: the operands of all parts, the result, and the rows that pass from part to part. */
static bool add_buffers(chain *c, nnc_kernel *k)
{
    int most = 0;
    bool ok = true;
    for (int p = 0; p < c->n; p++) {
        c->part[p].to_buf = ARENA_NEW(c->scratch, int, c->part[p].k->n_buf);
        ok = ok && c->part[p].to_buf;
        most += c->part[p].k->n_buf + 1;
    }
    nnc_ref *value = ARENA_NEW(c->scratch, nnc_ref, most);
    k->buf = ARENA_NEW(c->a, nnc_kbuf, most);
    if (!ok || !value || !k->buf)
        return fails(c, NULL);
    for (int p = 0; p < c->n; p++)
        for (int b = 0; b < c->part[p].dst; b++) {
            part *q = &c->part[p];
            q->to_buf[b] = b == q->in ? -1 : find_buffer(value, k->n_buf, q->value[b]);
            if (b == q->in || q->to_buf[b] >= 0)
                continue;
            q->to_buf[b] = k->n_buf;
            value[k->n_buf] = q->value[b];
            k->buf[k->n_buf++] = q->k->buf[b];
        }
    part *last = &c->part[c->n - 1];
    last->to_buf[last->dst] = k->n_buf;
    k->buf[k->n_buf++] = last->k->buf[last->dst];
    for (int p = 0; p < c->n; p++) {
        part *q = &c->part[p];
        const int64_t row =
            p + 1 < c->n ? row_of(q, q->dst, KO_store, k->n_outer) * (q->along < 0 ? 1 : q->w.rows)
                         : 0;
        if (p > 0)
            q->to_buf[q->in] = c->part[p - 1].to_buf[c->part[p - 1].dst];
        if (p + 1 < c->n) {
            const nnc_kbuf *in = p > 0 ? &k->buf[q->to_buf[q->in]] : NULL;
            nnc_kbuf t = {.role = KB_tmp, .dtype = q->k->buf[q->dst].dtype, .numel = row};
            if (!row || !within_row(q, q->dst, row) ||
                !within_row(&c->part[p + 1], c->part[p + 1].in, row))
                return fails(
                    c, "the next sum does not read what one row of the sum before it gives");
            q->to_buf[q->dst] = in && in->numel == row && in->dtype == t.dtype && overwrites(q)
                                    ? q->to_buf[q->in]
                                    : k->n_buf;
            if (q->to_buf[q->dst] == k->n_buf)
                k->buf[k->n_buf++] = t;
        }
        for (int b = q->dst + 1; b < q->k->n_buf; b++) {
            q->to_buf[b] = k->n_buf;
            k->buf[k->n_buf++] = q->k->buf[b];
        }
    }
    return true;
}

static nnc_kernel *join(chain *c)
{
    nnc_kernel *k = ARENA_NEW(c->a, nnc_kernel, 1);
    int n_ins = 0, n_stage = 0;
    for (int p = 0; p < c->n; p++) {
        n_ins += c->part[p].k->n_ins;
        n_stage += c->part[p].k->n_stage;
    }
    if (!k || !(k->ins = ARENA_NEW(c->a, nnc_kins, 2 * n_ins + 1)) || /* loads get bounds */
        !(k->stage = ARENA_NEW(c->a, nnc_kstage, n_stage + 1))) {
        (void)fails(c, NULL);
        return NULL;
    }
    k->n_outer = k->n_axis = share_axes(c);
    if (k->n_outer == 0) {
        (void)fails(c, "the sums share no rows");
        return NULL;
    }
    const part *last = &c->part[c->n - 1];
    for (int a = 0; a < last->k->n_axis; a++)
        if (last->to[a] >= 0)
            k->axis[last->to[a]] = last->k->axis[a];
    if (!add_buffers(c, k))
        return NULL;
    for (int p = 0; p < c->n; p++) {
        part *q = &c->part[p];
        int32_t *at = ARENA_NEW(c->scratch, int32_t, q->k->n_ins + 1);
        if (!at)
            (void)fails(c, NULL);
        if (!at || !add_axes(c, q, k) ||
            !(q->product ? add_product(c, q, k, at) : add_rows(c, q, k, at)))
            return NULL;
    }
    k->scratch_bytes = nnc_kernel_scratch(k);
    return k;
}

nnc_kernel *nx_chain(const nx_set *s, nnc_arena *scratch, nnc_arena *a, const char **why)
{
    chain *c = ARENA_NEW(scratch, chain, 1);
    *why = NULL;
    if (!c)
        return NULL;
    *c = (chain){.s = s, .why = why, .scratch = scratch, .a = a};
    bool ok = find_parts(c);
    for (int p = 0; p < c->n && ok; p++)
        ok = trace_part(c, p) && c->part[p].k;
    return ok && c->part[0].k ? join(c) : NULL;
}
