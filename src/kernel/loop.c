/* kernel/loop.c -- kernels of ops that run in order along an axis (CL_loop), written by hand and not traced. Each has a stage whose first
 * own axis is `seq`. At its points the stage reads what it accumulated or stored at earlier ones. The other dimensions are outer axes. */
#include "kernel/loop.h"

#include <math.h>

/* ---- writing a kernel ------------------------------------------------------------------------ */

nnc_affine lp_axis(lp *p, nnc_kaxis_kind kind, bool seq, int64_t extent)
{
    nnc_affine e = {0};
    if (extent == 1 && kind == KA_outer)
        return e;
    e.k[p->k->n_axis] = 1;
    p->k->axis[p->k->n_axis++] = (nnc_kaxis){.kind = kind, .seq = seq, .extent = extent};
    p->k->n_outer += kind == KA_outer;
    return e;
}

lp_map lp_outer(lp *p, const nnc_type *t, uint32_t except)
{
    lp_map m = {{{0}}};
    for (int d = 0; d < t->rank; d++)
        if (!(except >> d & 1))
            m.d[d] = lp_axis(p, KA_outer, false, t->dim[d]);
    return m;
}

nnc_affine lp_plus(nnc_affine e, int64_t c)
{
    e.c += c;
    return e;
}

static int32_t append_ins(lp *p, nnc_kins in)
{
    nnc_kernel *k = p->k;
    p->oom |= !ARENA_ROOM(p->a, k->ins, p->cap_ins, k->n_ins + 1);
    if (p->oom)
        return -1;
    in.lo = 1; /* no range computed */
    nnc_kstage *s = &k->stage[k->n_stage - 1];
    bool body = s->post0 < 0;
    k->ins[k->n_ins] = in;
    *(body ? &s->body1 : &s->post1) = k->n_ins + 1;
    return k->n_ins++;
}

int32_t lp_int(lp *p, nnc_dtype d, int64_t v)
{
    return append_ins(
        p, (nnc_kins){.op = KO_const, .dtype = (uint8_t)d, .i = v, .buf = -1, .arg = {-1, -1, -1}});
}

int32_t lp_const(lp *p, nnc_dtype d, double v)
{
    if (!nnc_is_float(d))
        return lp_int(p, d, (int64_t)v);
    return append_ins(
        p, (nnc_kins){.op = KO_const, .dtype = (uint8_t)d, .f = v, .buf = -1, .arg = {-1, -1, -1}});
}

int32_t lp_index(lp *p, const nnc_affine *axis)
{
    return append_ins(p, (nnc_kins){.op = KO_index,
                             .dtype = DT_i64,
                             .i = __builtin_ctz(nnc_affine_axes(axis)),
                             .buf = -1,
                             .arg = {-1, -1, -1}});
}

int32_t lp_sop(lp *p, nnc_sop op, int32_t a, int32_t b, int32_t c)
{
    if (p->oom)
        return -1;
    nnc_sres res = nnc_sops[op].res;
    uint8_t d = res == SR_bool ? (uint8_t)DT_bool : p->k->ins[res == SR_select ? b : a].dtype;
    return append_ins(
        p, (nnc_kins){.op = KO_sop, .dtype = d, .sop = (uint8_t)op, .buf = -1, .arg = {a, b, c}});
}

int32_t lp_cast(lp *p, int32_t x, nnc_dtype to)
{
    if (p->oom || p->k->ins[x].dtype == to)
        return x;
    return append_ins(p, (nnc_kins){.op = KO_sop,
                             .dtype = (uint8_t)nnc_kdtype(to),
                             .sop = SC_cast,
                             .cast_to = (uint8_t)to,
                             .buf = -1,
                             .arg = {x, -1, -1}});
}

static nnc_affine offset(const nnc_type *t, const lp_map *at)
{
    int64_t stride[NNC_MAX_RANK];
    nnc_affine e = {0};
    nnc_type_strides(t, stride);
    for (int d = 0; d < t->rank; d++)
        nnc_affine_add(&e, &at->d[d], stride[d]);
    return e;
}

/* Buffers are the distinct operands, then the results. */
static int operand_buffer(const lp *p, int i)
{
    int b = 0;
    for (int j = 0; j < p->n->n_in; j++) {
        if (nnc_operand_repeats(p->n, j))
            continue;
        if (p->n->in[j] == p->n->in[i])
            break;
        b++;
    }
    return b;
}

static int result_buffer(const lp *p, int i)
{
    return p->n_arg - p->n->n_out + i;
}

static int32_t access_at(lp *p, nnc_kop op, int buf, nnc_affine at, int32_t x)
{
    return append_ins(p, (nnc_kins){.op = (uint8_t)op,
                             .dtype = (uint8_t)nnc_kdtype(p->k->buf[buf].dtype),
                             .buf = (int16_t)buf,
                             .arg = {x, -1, -1},
                             .at = at});
}

static int32_t access(lp *p, nnc_kop op, int buf, const nnc_type *t, const lp_map *at, int32_t x)
{
    return access_at(p, op, buf, offset(t, at), x);
}

int lp_tmp(lp *p, nnc_dtype d, int64_t numel)
{
    p->k->buf[p->k->n_buf] = (nnc_kbuf){.role = KB_tmp, .dtype = d, .numel = numel};
    return p->k->n_buf++;
}

int32_t lp_load_tmp(lp *p, int buf, nnc_affine at)
{
    return access_at(p, KO_load, buf, at, -1);
}

void lp_store_tmp(lp *p, int buf, nnc_affine at, int32_t x)
{
    (void)access_at(p, KO_store, buf, at, x);
}

static const nnc_type *result_type(const lp *p, int i)
{
    return nnc_typeof(p->g, p->n->out + (nnc_ref)i);
}

int32_t lp_load(lp *p, int i, const lp_map *at)
{
    return access(p, KO_load, operand_buffer(p, i), nnc_typeof(p->g, p->n->in[i]), at, -1);
}

int32_t lp_load_result(lp *p, int i, const lp_map *at)
{
    return access(p, KO_load, result_buffer(p, i), result_type(p, i), at, -1);
}

void lp_guard(lp *p, const nnc_affine *e, int64_t n, int32_t fill)
{
    nnc_kins *in = p->oom ? NULL : &p->k->ins[p->k->n_ins - 1];
    nnc_kguard *g = in ? ARENA_NEW(p->a, nnc_kguard, in->n_guard + 1) : NULL;
    p->oom |= !g;
    if (!g)
        return;
    for (int i = 0; i < in->n_guard; i++)
        g[i] = in->guard[i];
    g[in->n_guard++] = (nnc_kguard){*e, 0, n};
    in->guard = g;
    if (in->op == KO_load)
        in->arg[1] = fill;
}

void lp_at(lp *p, int32_t index, int64_t scale, int64_t limit)
{
    nnc_kins *in = p->oom ? NULL : &p->k->ins[p->k->n_ins - 1];
    if (!in)
        return;
    in->arg[in->op == KO_store] = index;
    in->scale = scale;
    in->limit = limit;
}

int32_t lp_whole(lp *p, int32_t index, int64_t extent)
{
    if (p->oom || nnc_dtype_kind((nnc_dtype)p->k->ins[index].dtype) != NNC_INT)
        return index;
    int32_t x = lp_cast(p, index, DT_i64);
    int32_t up = lp_sop(p, SC_add, x, lp_const(p, DT_i64, (double)extent), -1);
    return lp_sop(p, SC_select, lp_sop(p, SC_lt, x, lp_const(p, DT_i64, 0), -1), up, x);
}

void lp_store(lp *p, int i, const lp_map *at, int32_t x)
{
    (void)access(p, KO_store, result_buffer(p, i), result_type(p, i), at, x);
}

int32_t lp_reduce(lp *p, nnc_kred kind, bool running, int32_t x, int32_t mask)
{
    if (p->oom)
        return -1;
    uint8_t d = kind >= KR_argmax ? (uint8_t)DT_i64 : p->k->ins[x].dtype;
    return append_ins(p, (nnc_kins){.op = KO_reduce,
                             .dtype = d,
                             .sop = (uint8_t)kind,
                             .running = running,
                             .buf = -1,
                             .arg = {x, mask, -1}});
}

static void close_stage(lp *p)
{
    if (p->k->n_stage > 0 && p->k->stage[p->k->n_stage - 1].post0 < 0)
        lp_post(p);
}

void lp_stage(lp *p, uint32_t axes)
{
    nnc_kernel *k = p->k;
    p->oom |= !ARENA_ROOM(p->a, k->stage, p->cap_stage, k->n_stage + 1);
    if (p->oom)
        return;
    close_stage(p);
    k->stage[k->n_stage++] =
        (nnc_kstage){.axes = axes, .body0 = k->n_ins, .body1 = k->n_ins, .post0 = -1};
}

void lp_post(lp *p)
{
    if (p->oom)
        return;
    nnc_kstage *s = &p->k->stage[p->k->n_stage - 1];
    s->post0 = s->post1 = s->body1;
}

/* ---- running sums and products --------------------------------------------------------------- */

/* Position along the axis, of extent n, at a step. */
static nnc_affine position(const lp *p, const nnc_affine *step, int64_t n)
{
    nnc_affine e = {.c = n - 1};
    if (!nnc_attr_int(p->n, AT_reverse, 0))
        return *step;
    nnc_affine_add(&e, step, -1);
    return e;
}

/* Sums of floats are in f64, since each partial sum is a result, and sums in f32 lose a digit for each hundred terms. */
static void scan(lp *p)
{
    const nnc_type *x = nnc_typeof(p->g, p->n->in[0]);
    const int axis = (int)nnc_attr_int(p->n, AT_axis, 0);
    const bool product = p->n->op == OP_cumprod;
    const int64_t n = x->dim[axis];
    const nnc_dtype d = nnc_kdtype((nnc_dtype)x->dtype);
    lp_map at = lp_outer(p, x, 1u << axis), from;
    nnc_affine step = lp_axis(p, KA_reduce, true, n), e = position(p, &step, n);
    at.d[axis] = e;
    from = at;
    lp_stage(p, nnc_affine_axes(&step));
    int32_t fill = lp_const(p, d, product), v;
    if (nnc_attr_int(p->n, AT_exclusive, 0))
        from.d[axis] = lp_plus(e, nnc_attr_int(p->n, AT_reverse, 0) ? 1 : -1);
    v = lp_load(p, 0, &from);
    if (nnc_attr_int(p->n, AT_exclusive, 0))
        lp_guard(p, &from.d[axis], n, fill);
    v = lp_cast(p, v, nnc_is_float(d) ? DT_f64 : d);
    v = lp_reduce(p, product ? KR_prod : KR_sum, true, v, -1);
    lp_store(p, 0, &at, lp_cast(p, v, d));
}

/* Previous steps' values are read from the result. */
static void linear_scan(lp *p)
{
    const nnc_type *x = nnc_typeof(p->g, p->n->in[0]);
    const int axis = (int)nnc_attr_int(p->n, AT_axis, 0);
    const int64_t n = x->dim[axis];
    lp_map at = lp_outer(p, x, 1u << axis), last = at;
    const lp_map start = at;
    nnc_affine step = lp_axis(p, KA_map, true, n);
    at.d[axis] = position(p, &step, n);
    last.d[axis] = lp_plus(at.d[axis], nnc_attr_int(p->n, AT_reverse, 0) ? 1 : -1);
    lp_stage(p, nnc_affine_axes(&step));
    int32_t first =
        p->n->n_in > 2 ? lp_load(p, 2, &start) : lp_const(p, nnc_kdtype((nnc_dtype)x->dtype), 0);
    int32_t was = lp_load_result(p, 0, &last);
    lp_guard(p, &last.d[axis], n, first);
    lp_store(p, 0, &at, lp_sop(p, SC_fma, lp_load(p, 0, &at), was, lp_load(p, 1, &at)));
}

/* ---- scattering ------------------------------------------------------------------------------ */

/* The value after an update; `from`: the value before. */
static int32_t updated(lp *p, const nnc_attr *how, int32_t from, int32_t x)
{
    const char w = how->word[1]; /* add, mul, min, max */
    return lp_sop(p,
        w == 'd'   ? SC_add
        : w == 'u' ? SC_mul
        : w == 'i' ? SC_min
                   : SC_max,
        from, x, -1);
}

/* Updates the result's element at form `at` and computed index i with x, within guards e < n of the dimensions. */
static void put(lp *p, const lp_map *at, int32_t i, int64_t scale, int64_t limit, int32_t x,
    const nnc_type *within, const lp_map *where, uint32_t except)
{
    const nnc_attr *how = nnc_attr_find(p->n, AT_reduction);
    if (how && how->word && how->word[0] != 'n') {
        int32_t old = lp_load_result(p, 0, at);
        lp_at(p, i, scale, limit);
        x = updated(p, how, old, x);
    }
    lp_store(p, 0, at, x);
    lp_at(p, i, scale, limit);
    for (int d = 0; within && d < within->rank; d++)
        if (!(except >> d & 1) && within->dim[d] < result_type(p, 0)->dim[d])
            lp_guard(p, &where->d[d], within->dim[d], -1);
}

/* The first stage: y = x; if all elements of x are one number, x is not read. at: the dimensions of outer axes. */
static void copy(lp *p, const nnc_type *x, lp_map at, uint32_t inner)
{
    uint32_t axes = 0;
    for (int d = 0; d < x->rank; d++)
        if (inner >> d & 1) {
            at.d[d] = lp_axis(p, KA_map, false, x->dim[d]);
            axes |= nnc_affine_axes(&at.d[d]);
        }
    lp_stage(p, axes);
    double v;
    const nnc_dtype d = (nnc_dtype)x->dtype;
    const bool number =
        nnc_const_scalar(p->g, p->n->in[0], &v) && (nnc_is_float(d) || fabs(v) < 0x1p53);
    lp_store(p, 0, &at, number ? lp_const(p, nnc_kdtype(d), v) : lp_load(p, 0, &at));
}

static void scatter(lp *p)
{
    const nnc_type *x = nnc_typeof(p->g, p->n->in[0]), *index = nnc_typeof(p->g, p->n->in[1]);
    const int axis = (int)nnc_attr_int(p->n, AT_axis, 0);
    const uint32_t along = 1u << axis;
    int64_t stride[NNC_MAX_RANK];
    nnc_type_strides(result_type(p, 0), stride);
    lp_map at = lp_outer(p, x, along), from = at;
    copy(p, x, at, along);
    from.d[axis] = lp_axis(p, KA_map, true, index->dim[axis]);
    lp_stage(p, nnc_affine_axes(&from.d[axis]));
    int32_t fill = lp_const(p, nnc_kdtype((nnc_dtype)index->dtype), 0), i = lp_load(p, 1, &from);
    for (int d = 0; d < x->rank; d++)
        if (d != axis && index->dim[d] < x->dim[d])
            lp_guard(p, &from.d[d], index->dim[d], fill);
    fill = lp_const(p, nnc_kdtype((nnc_dtype)x->dtype), 0);
    int32_t u = lp_load(p, 2, &from);
    for (int d = 0; d < x->rank; d++)
        if (d != axis && index->dim[d] < x->dim[d])
            lp_guard(p, &from.d[d], index->dim[d], fill);
    put(p, &at, lp_whole(p, i, x->dim[axis]), stride[axis], x->dim[axis], u, index, &from, along);
}

/* Part of an offset: the index clamped to its dimension, times the stride. */
static int32_t index_part(lp *p, int32_t i, int64_t extent, int64_t stride)
{
    if (p->oom)
        return -1;
    const nnc_dtype d = (nnc_dtype)p->k->ins[i].dtype;
    const int64_t last =
        nnc_dtype_size(d) == 8 ? extent - 1 : nnc_min64(extent - 1, nnc_int_end(d, true));
    i = lp_cast(p, lp_sop(p, SC_min, i, lp_const(p, d, (double)last), -1), DT_i64);
    i = lp_sop(p, SC_max, i, lp_const(p, DT_i64, 0), -1);
    return lp_sop(p, SC_mul, i, lp_const(p, DT_i64, (double)stride), -1);
}

static void scatter_nd(lp *p)
{
    const nnc_type *x = nnc_typeof(p->g, p->n->in[0]), *index = nnc_typeof(p->g, p->n->in[1]);
    const int q = index->rank - 1, k = (int)index->dim[q];
    const uint32_t named = (1u << k) - 1;
    int64_t stride[NNC_MAX_RANK], reach = 0;
    nnc_type_strides(result_type(p, 0), stride);
    lp_map at = lp_outer(p, x, named), from = {{{0}}}, tuple;
    copy(p, x, at, named);
    uint32_t axes = 0;
    for (int d = 0; d < q; d++) {
        from.d[d] = lp_axis(p, KA_map, true, index->dim[d]);
        axes |= nnc_affine_axes(&from.d[d]);
    }
    if (q == 0) { /* one update */
        nnc_affine one = lp_axis(p, KA_map, true, 1);
        axes = nnc_affine_axes(&one);
    }
    lp_stage(p, axes);
    tuple = from;
    int32_t sum = -1;
    for (int j = 0; j < k; j++) {
        tuple.d[q] = (nnc_affine){.c = j};
        int32_t i = lp_whole(p, lp_load(p, 1, &tuple), x->dim[j]);
        i = index_part(p, i, x->dim[j], stride[j]);
        sum = j ? lp_sop(p, SC_add, sum, i, -1) : i;
        reach += (x->dim[j] - 1) * stride[j];
    }
    for (int d = k; d < x->rank; d++)
        from.d[q + d - k] = at.d[d];
    put(p, &at, sum, 1, reach + 1, lp_load(p, 2, &from), NULL, NULL, 0);
}

/* ---- the kernel of a node -------------------------------------------------------------------- */

static bool open_kernel(lp *p)
{
    const nnc_node *n = p->n;
    p->k = ARENA_NEW(p->a, nnc_kernel, 1);
    nnc_kbuf *b = p->k ? ARENA_NEW(p->a, nnc_kbuf, n->n_in + n->n_out + LP_TMP) : NULL;
    if (!b)
        return false;
    p->k->buf = b;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        bool in = i < n->n_in;
        if (in && nnc_operand_repeats(n, i))
            continue;
        const nnc_type *t = in ? nnc_typeof(p->g, n->in[i]) : result_type(p, i - n->n_in);
        b[p->k->n_buf++] = (nnc_kbuf){
            .role = in ? KB_in : KB_out, .dtype = (nnc_dtype)t->dtype, .numel = nnc_type_span(t)};
    }
    p->n_arg = p->k->n_buf;
    return true;
}

nnc_kernel *nnc_loop_kernel(const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_sink *sink)
{
    static void (*const write[OP__COUNT])(lp *) = {
        [OP_cumsum] = scan,
        [OP_cumprod] = scan,
        [OP_topk] = lp_best,
        [OP_scatter] = scatter,
        [OP_scatter_nd] = scatter_nd,
        [OP_lstm] = lp_recurrent,
        [OP_gru] = lp_recurrent,
        [OP_rnn] = lp_recurrent,
        [OP_linear_scan] = linear_scan,
        [OP_recurrent_grad] = lp_recurrent_grad,
    };
    lp p = {.g = g, .n = n, .a = a};
    if (open_kernel(&p)) {
        write[n->op](&p);
        close_stage(&p);
    }
    if (!p.k || p.oom) {
        nnc_nomem(sink);
        return NULL;
    }
    p.k->scratch_bytes = nnc_kernel_scratch(p.k);
    return p.k;
}
