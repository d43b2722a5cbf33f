/* plugins/llvm/reduce.c -- accumulators of reductions. Along a vector axis each lane has its own accumulator. They are combined in a
 * fixed tree at the end, so that results are the same in every run. argmax and argmin keep a value and an index; the first index wins
 * ties, NaN wins over everything. */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <math.h>

static bool is_arg(nnc_kred r)
{
    return r == KR_argmax || r == KR_argmin;
}

static const nnc_kins *red(const ll_emit *e, int r)
{
    return &e->k->ins[e->red[r]];
}

/* Type of the accumulator: argmax keeps the operand's, the others accumulate in the result's. */
static nnc_dtype value_type(const ll_emit *e, int r)
{
    const nnc_kins *ins = red(e, r);
    return (nnc_dtype)(is_arg((nnc_kred)ins->sop) ? e->k->ins[ins->arg[0]].dtype : ins->dtype);
}

T ll_red_type(const ll_emit *e, int r)
{
    return ll_dtype(e->m, value_type(e, r));
}

static V int_limit(ll_mod *m, nnc_dtype d, bool largest)
{
    int bits = d == DT_bool ? 1 : nnc_dtype_size(d) * 8;
    bool sign = nnc_dtype_kind(d) == NNC_INT;
    uint64_t all = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    uint64_t v = sign ? largest ? all >> 1 : (all >> 1) + 1 : largest ? all : 0;
    return LLVMConstInt(ll_dtype(m, d), v, 0);
}

static V identity(ll_mod *m, nnc_kred r, nnc_dtype d)
{
    T t = ll_dtype(m, d);
    bool fl = nnc_is_float(d);
    switch (r) {
    case KR_sum: return LLVMConstNull(t);
    case KR_prod: return fl ? LLVMConstReal(t, 1) : LLVMConstInt(t, 1, 0);
    case KR_max:
    case KR_argmax: return fl ? LLVMConstReal(t, -INFINITY) : int_limit(m, d, false);
    default: return fl ? LLVMConstReal(t, INFINITY) : int_limit(m, d, true);
    }
}

/* The value that replaces an element that does not count. For a sum that is -0, since 0 + -0 = 0. For x in the first lanes and 0 in
 * the others LLVM emits vexpandps. On AMD's cores that waits for the register that it writes, and so each row for the row before. */
static V left_out(ll_mod *m, nnc_kred r, nnc_dtype d)
{
    return r == KR_sum && nnc_is_float(d) ? LLVMConstReal(ll_dtype(m, d), -0.0) : identity(m, r, d);
}

/* First values of the lanes of one sum: 0 and, where it would make lanes that are left out 0 again, -0. The sum is the same. */
static V first_lanes(ll_mod *m, nnc_dtype d, int lanes)
{
    V lane[LL_MAX_LANES];
    for (int i = 0; i < lanes; i++)
        lane[i] = LLVMConstReal(ll_dtype(m, d), i ? -0.0 : 0.0);
    return LLVMConstVector(lane, (unsigned)lanes);
}

/* Indices fit in 32 bits unless the reduce axes are huge. */
static T place_type(const ll_emit *e)
{
    int64_t n = 1;
    for (int i = 0; i < e->k->n_axis; i++)
        if (e->k->axis[i].kind == KA_reduce && !nnc_mul_ok(n, e->k->axis[i].extent, &n))
            return e->m->i64;
    return n < INT32_MAX ? e->m->i32 : e->m->i64;
}

/* The index of no element. */
static V place_none(const ll_emit *e)
{
    T t = place_type(e);
    return LLVMConstInt(t, t == e->m->i32 ? INT32_MAX : INT64_MAX, 0);
}

void ll_red_init(ll_emit *e, int r, bool vec)
{
    nnc_kred kind = (nnc_kred)red(e, r)->sop;
    V id = identity(e->m, kind, value_type(e, r));
    const bool lanes = vec && e->vec_red && e->lanes > 1 && kind == KR_sum;
    e->acc[2 * r] = lanes && nnc_is_float(value_type(e, r))
                        ? first_lanes(e->m, value_type(e, r), e->lanes)
                        : ll_splat(e->m, id, vec ? e->lanes : 0);
    e->acc[2 * r + 1] = NULL;
    if (!is_arg(kind))
        return;
    e->acc[2 * r + 1] = ll_splat(e->m, place_none(e), vec ? e->lanes : 0);
}

/* True where (x at i) replaces (a at j). */
static V beats(ll_mod *m, nnc_kred kind, nnc_dtype d, V x, V i, V a, V j)
{
    LLVMBuilderRef b = m->b;
    V win = ll_compare(m, kind == KR_argmax ? SC_gt : SC_lt, d, x, a);
    V tie = ll_compare(m, SC_eq, d, x, a);
    if (nnc_is_float(d)) {
        V xn = LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""),
          an = LLVMBuildFCmp(b, LLVMRealUNO, a, a, "");
        win = LLVMBuildOr(b, win, LLVMBuildAnd(b, xn, LLVMBuildNot(b, an, ""), ""), "");
        tie = LLVMBuildOr(b, tie, LLVMBuildAnd(b, xn, an, ""), "");
    }
    V first = LLVMBuildICmp(b, LLVMIntSLT, i, j, "");
    return LLVMBuildOr(b, win, LLVMBuildAnd(b, tie, first, ""), "");
}

static nnc_sop combine_op(nnc_kred kind)
{
    return kind == KR_sum ? SC_add : kind == KR_prod ? SC_mul : kind == KR_max ? SC_max : SC_min;
}

/* Accumulates (x, i) into acc[r]. */
static void accumulate_into(ll_emit *e, int r, V x, V i)
{
    ll_mod *m = e->m;
    const nnc_kins *ins = red(e, r);
    nnc_kred kind = (nnc_kred)ins->sop;
    nnc_dtype d = value_type(e, r);
    V *a = &e->acc[2 * r];
    if (!is_arg(kind)) {
        a[0] = ll_arith(m, combine_op(kind), d, a[0], x, ins->hint & KH_nonan);
        return;
    }
    V b = beats(m, kind, d, x, i, a[0], a[1]);
    a[0] = LLVMBuildSelect(m->b, b, x, a[0], "");
    a[1] = LLVMBuildSelect(m->b, b, i, a[1], "");
}

/* True when instruction i is a product that starts a sum, x w + 0. */
static bool begins_sum(const nnc_kernel *k, int32_t i)
{
    const nnc_kins *f = &k->ins[i];
    if (f->op != KO_sop || f->sop != SC_fma)
        return false;
    const nnc_kins *zero = &k->ins[f->arg[2]];
    return zero->op == KO_const && zero->f == 0 && zero->i == 0;
}

/* Lanes of accumulator r's next operand: of a row's remainder fewer than it has. */
static int lanes_now(const ll_emit *e, int r)
{
    const int lanes = ll_lanes(e->acc[2 * r]);
    return e->vec_red && e->lanes < lanes ? e->lanes : lanes;
}

/* Appends lanes of `rest` to those of x. */
static V widen(ll_mod *m, V x, V rest, int lanes)
{
    int lane[LL_MAX_LANES];
    const int n = ll_lanes(x);
    for (int i = 0; i < lanes; i++)
        lane[i] = i < n ? i : n;
    return ll_shuffle(m, x, ll_splat(m, rest, n), lane, lanes);
}

bool ll_red_fused(const ll_emit *e, int r)
{
    const nnc_kins *ins = red(e, r);
    if (e->vec_red && lanes_now(e, r) < ll_lanes(e->acc[2 * r]))
        return false;
    return ins->sop == KR_sum && ins->arg[1] < 0 && !(e->vec_red && e->mask) &&
           begins_sum(e->k, ins->arg[0]) && nnc_is_float((nnc_dtype)ins->dtype) && e->m->fma;
}

/* Accumulates an unmasked product with one rounding (fused multiply-add). */
static bool multiply_add(ll_emit *e, int r)
{
    const nnc_kins *ins = red(e, r);
    if (!ll_red_fused(e, r))
        return false;
    const nnc_kins *f = &e->k->ins[ins->arg[0]], *x = ll_source(e, ins);
    V *acc = &e->acc[2 * r], at = x ? e->val[x - e->k->ins] : NULL;
    if (at && LLVMIsConstant(at) && LLVMIsNull(at)) /* outside */
        return true;
    int lanes = ll_lanes(*acc);
    *acc = ll_fma(e->m, ll_splat(e->m, e->val[f->arg[0]], lanes),
        ll_splat(e->m, e->val[f->arg[1]], lanes), *acc);
    return true;
}

void ll_red_step(ll_emit *e, int r, const uint8_t *axes, const int64_t *stride, int n_axes)
{
    if (multiply_add(e, r))
        return;
    ll_mod *m = e->m;
    const nnc_kins *ins = red(e, r);
    nnc_kred kind = (nnc_kred)ins->sop;
    const int lanes = lanes_now(e, r), all = ll_lanes(e->acc[2 * r]);
    V x = e->val[ins->arg[0]], i = NULL;
    x = ll_cast(m, x, (nnc_dtype)e->k->ins[ins->arg[0]].dtype, value_type(e, r));
    x = ll_splat(m, x, lanes);
    V ok = ins->arg[1] >= 0 ? e->val[ins->arg[1]] : NULL;
    if (e->vec_red && e->mask) {
        V k = e->mask;
        if (ok)
            ll_match(m, &ok, &k);
        ok = ok ? LLVMBuildAnd(m->b, ok, k, "") : k;
    }
    if (is_arg(kind)) {
        T t = place_type(e);
        i = LLVMConstNull(t);
        for (int a = 0; a < n_axes; a++) {
            V p = LLVMBuildIntCast2(m->b, e->axis[axes[a]], t, 1, "");
            if (axes[a] == e->vax) {
                p = ll_splat(m, p, lanes);
                p = LLVMBuildAdd(m->b, p, ll_iota(t, lanes, 1), "");
            }
            ll_match(m, &i, &p);
            i = LLVMBuildAdd(m->b, i, LLVMBuildMul(m->b, p, ll_ik(p, stride[a]), ""), "");
        }
        i = ll_splat(m, i, lanes);
        if (ok)
            i = ll_select(m, ok, i, place_none(e));
    }
    const V out = left_out(m, kind, value_type(e, r));
    if (ok)
        x = ll_select(m, ok, x, out);
    if (lanes < all)
        x = widen(m, x, out, all);
    if (i && lanes < all)
        i = widen(m, i, place_none(e), all);
    accumulate_into(e, r, x, i);
}

V ll_red_done(ll_emit *e, int r, bool vec)
{
    ll_mod *m = e->m;
    V *a = &e->acc[2 * r];
    for (int n = vec ? ll_lanes(a[0]) / 2 : 0; n > 0; n /= 2) {
        V x = ll_part(m, a[0], n, n), i = a[1] ? ll_part(m, a[1], n, n) : NULL;
        a[0] = ll_part(m, a[0], 0, n);
        if (a[1])
            a[1] = ll_part(m, a[1], 0, n);
        accumulate_into(e, r, x, i);
    }
    nnc_dtype d = (nnc_dtype)red(e, r)->dtype;
    if (!a[1])
        return a[0];
    V none = ll_ik(a[1], ll_elem(a[1]) == m->i32 ? INT32_MAX : INT64_MAX);
    V nothing = LLVMBuildICmp(m->b, LLVMIntEQ, a[1], none, "");
    V i = LLVMBuildSelect(m->b, nothing, ll_ik(a[1], 0), a[1], "");
    return ll_cast(m, i, ll_elem(i) == m->i32 ? DT_i32 : DT_i64, d);
}

/* Vectors of `each` reductions with `wide` lanes: one of those of a, then those of b, half as many lanes each. */
static V join(ll_emit *e, int r, V a, V b, int each, int wide)
{
    int low[LL_MAX_LANES], high[LL_MAX_LANES];
    const int n = each * wide;
    const nnc_kins *ins = red(e, r);
    for (int q = 0; q < 2 * each; q++)
        for (int i = 0; i < wide / 2; i++) {
            low[q * wide / 2 + i] = q * wide + i;
            high[q * wide / 2 + i] = q * wide + i + wide / 2;
        }
    return ll_arith(e->m, combine_op((nnc_kred)ins->sop), value_type(e, r),
        ll_shuffle(e->m, a, b, low, n), ll_shuffle(e->m, a, b, high, n), ins->hint & KH_nonan);
}

/* A vector of n reductions with `wide` lanes each: half as many. */
static V fold(ll_emit *e, int r, V x, int n, int wide)
{
    int low[LL_MAX_LANES], high[LL_MAX_LANES];
    const nnc_kins *ins = red(e, r);
    for (int i = 0; i < n * wide / 2; i++) {
        low[i] = i / (wide / 2) * wide + i % (wide / 2);
        high[i] = low[i] + wide / 2;
    }
    return ll_arith(e->m, combine_op((nnc_kred)ins->sop), value_type(e, r),
        ll_shuffle(e->m, x, NULL, low, n * wide / 2), ll_shuffle(e->m, x, NULL, high, n * wide / 2),
        ins->hint & KH_nonan);
}

V ll_red_together(ll_emit *e, const int *r, int n)
{
    V x[LL_MAX_LANES] = {NULL};
    const nnc_kred kind = (nnc_kred)red(e, r[0])->sop;
    const int size = nnc_dtype_size(value_type(e, r[0])),
              machine = (int)nnc_max64(e->m->t->vector_bits, 128) / 8 / size;
    const int nonan = red(e, r[0])->hint & KH_nonan;
    int lanes = ll_lanes(e->acc[2 * r[0]]);
    for (int j = 0; j < n; j++) {
        x[j] = e->acc[2 * r[j]];
        if (red(e, r[j])->sop != kind || is_arg(kind) || LLVMTypeOf(x[j]) != LLVMTypeOf(x[0]) ||
            (red(e, r[j])->hint & KH_nonan) != nonan)
            return NULL;
    }
    if (lanes < n)
        return NULL;
    for (; lanes > n && lanes > machine; lanes /= 2) /* whole registers, without shuffles */
        for (int j = 0; j < n; j++)
            x[j] = ll_arith(e->m, combine_op(kind), value_type(e, r[j]),
                ll_part(e->m, x[j], 0, lanes / 2), ll_part(e->m, x[j], lanes / 2, lanes / 2),
                nonan);
    for (int each = 1; each < n; each *= 2)
        for (int j = 0; j < n / each / 2; j++)
            x[j] = join(e, r[0], x[2 * j], x[2 * j + 1], each, lanes / each);
    for (int wide = lanes / n; wide > 1; wide /= 2)
        x[0] = fold(e, r[0], x[0], n, wide);
    return x[0];
}

void ll_red_all(ll_emit *e)
{
    enum { MOST = 8 };
    int r[MOST];
    for (int i = 0; i < e->n_red;) {
        int n = 1;
        while (n < MOST && i + n < e->n_red && red(e, i + n)->sop == red(e, i)->sop)
            n++;
        while (n & (n - 1))
            n &= n - 1;
        for (int j = 0; j < n; j++)
            r[j] = i + j;
        const bool several = e->vec_red && n > 1 && nnc_is_float(value_type(e, i));
        V v = several ? ll_red_together(e, r, n) : NULL;
        for (int j = 0; j < n; j++)
            e->val[e->red[i + j]] = v ? ll_part(e->m, v, j, 1) : ll_red_done(e, i + j, e->vec_red);
        i += n;
    }
}

/* ---- sums that begin with a bias ------------------------------------------------------------------------------------ */

/* Is the load the same for all points of a register block? */
static bool is_bias(const ll_emit *e, const nnc_kernel *k, const nnc_kins *b)
{
    const int v = nnc_sched_vec(&k->sched);
    bool same = b->op == KO_load && b->n_guard == 0 && b->arg[0] < 0 &&
                k->buf[b->buf].role == KB_in && b->at.k[v] == 1;
    for (int a = 0; a < k->n_axis; a++)
        same &= b->at.k[a] == 0 || (a < k->n_outer && !(e->stripped >> a & 1));
    return same;
}

static int users(const nnc_kernel *k, int32_t id)
{
    int n = 0;
    for (int32_t i = id + 1; i < k->n_ins; i++)
        for (int a = 0; a < 3; a++)
            n += k->ins[i].arg[a] == id;
    return n;
}

/* Is the sum short? In a longer one a large bias would multiply the roundings, and one instruction less does not count. */
static bool is_short(const nnc_kernel *k, const nnc_kstage *st)
{
    enum { SHORT = 64 };
    int64_t terms = 1;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (st->axes >> a & 1 && k->axis[a].kind == KA_reduce)
            terms = nnc_mul_sat(terms, k->axis[a].extent);
    return terms <= SHORT;
}

/* The sum of products to which instruction i of the posts adds a bias, which is its first term in a register block (e); -1: others. */
static int32_t begun(const ll_emit *e, const nnc_kernel *k, const nnc_kstage *st, int32_t i)
{
    const nnc_kins *add = &k->ins[i];
    if (!e->stripped || e->added || e->vec_red || add->op != KO_sop || add->sop != SC_add ||
        !is_short(k, st))
        return -1;
    for (int side = 0; side < 2; side++) {
        const nnc_kins *sum = &k->ins[add->arg[side]];
        if (sum->op == KO_reduce && sum->sop == KR_sum && sum->dtype == DT_f32 && !sum->running &&
            begins_sum(k, sum->arg[0]) && !(k->ins[sum->arg[0]].hint & KH_exact) &&
            is_bias(e, k, &k->ins[add->arg[!side]]) && users(k, add->arg[side]) == 1)
            return add->arg[side];
    }
    return -1;
}

void ll_red_begin(ll_emit *e, const nnc_kstage *st)
{
    int32_t last = -1;
    for (int i = st->post0; i < st->post1; i++) {
        const int32_t sum = begun(e, e->k, st, i), *x = e->k->ins[i].arg, bias = x[x[0] == sum];
        for (int r = 0; r < e->n_red && sum >= 0; r++) {
            if (e->red[r] != sum || ll_lanes(e->acc[2 * r]) != e->lanes)
                continue;
            if (bias != last)
                ll_ins(e, bias);
            e->acc[2 * r] = e->val[bias];
            last = bias;
        }
    }
}

void ll_post(ll_emit *e, ll_emit *p, const nnc_kstage *st, int i)
{
    const int32_t sum = begun(e, p->k, st, i);
    if (sum >= 0 && ll_lanes(p->val[sum]) == e->lanes)
        p->val[i] = p->val[sum];
    else
        ll_ins(p, i);
}

/* ---- totals in memory ----------------------------------------------------------------------------------------------- */

static V total(ll_emit *e, V r)
{
    return LLVMBuildGEP2(e->m->b, ll_vec(e->m->f32, e->lanes), e->totals, &r, 1, "");
}

/* Volatile: else LLVM compares all these addresses with each other. */
static V total_access(ll_emit *e, V access)
{
    LLVMSetAlignment(access, (unsigned)nnc_min64(e->lanes * 4, 64));
    LLVMSetVolatile(access, 1);
    return access;
}

static void put_total(ll_emit *e, int r, V v)
{
    total_access(e, LLVMBuildStore(e->m->b, v, total(e, ll_i64(e->m, r))));
}

V ll_total_get(ll_emit *e, V r)
{
    return total_access(e, LLVMBuildLoad2(e->m->b, ll_vec(e->m->f32, e->lanes), total(e, r), ""));
}

void ll_totals_begin(ll_emit *e)
{
    e->totals = ll_stack(e->m, (int64_t)e->n_red * e->lanes * 4);
    for (int r = 0; r < e->n_red; r++) {
        put_total(e, r, e->acc[2 * r]);
        e->acc[2 * r] = NULL;
    }
}

void ll_totals_add(ll_emit *e)
{
    for (int r = 0; r < e->n_red; r++) {
        V *v = &e->acc[2 * r];
        put_total(e, r, LLVMBuildFAdd(e->m->b, ll_total_get(e, ll_i64(e->m, r)), *v, ""));
        *v = NULL;
    }
}

void ll_totals_end(ll_emit *e)
{
    for (int r = 0; r < e->n_red; r++)
        e->acc[2 * r] = ll_total_get(e, ll_i64(e->m, r));
    e->totals = NULL;
}
