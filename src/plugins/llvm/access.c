/* plugins/llvm/access.c -- loads and stores. Affine offsets are split into a constant, a uniform and a per-lane part. Guards that are
 * the same for all lanes become one condition, the others masks. Unit stride is a vector access, stride 0 a broadcast, stride 2 two
 * rows, anything else a gather or scatter. */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Looks up the sums computed last in this block. Unrolled code needs the same ones again; not emitting them twice saves LLVM's time. */
static V find_sum(ll_emit *e, const nnc_affine *a)
{
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->m->b);
    for (int j = 0; j < LL_SUMS; j++) {
        const ll_sum *s = &e->sum[j];
        bool same = s->block == here && memcmp(s->k, a->k, sizeof s->k) == 0;
        for (int i = 0; same && i < e->k->n_axis; i++)
            same = !a->k[i] || s->axis[i] == e->axis[i] ||
                   (LLVMIsConstant(e->axis[i]) && s->axis[i] && LLVMIsConstant(s->axis[i]));
        if (same)
            return s->v;
    }
    return NULL;
}

static V keep_sum(ll_emit *e, const nnc_affine *a, V v)
{
    ll_sum *s = &e->sum[e->next_sum++ % LL_SUMS];
    s->block = LLVMGetInsertBlock(e->m->b);
    s->v = v;
    s->p = NULL;
    memcpy(s->k, a->k, sizeof s->k);
    memcpy(s->axis, e->axis, sizeof s->axis);
    return v;
}

/* Puts the constant part of `a` into *known; returns the i64 remainder at lane 0, or NULL. */
static V affine(ll_emit *e, const nnc_affine *a, int64_t *known)
{
    LLVMBuilderRef b = e->m->b;
    V sum = NULL;
    bool open = false;
    *known = a->c;
    for (int i = 0; i < e->k->n_axis; i++) {
        int64_t c;
        if (!a->k[i])
            continue;
        assert(e->axis[i] && "an axis is used outside its loop");
        *known += e->shift[i] * a->k[i];
        if (ll_const_int(e->axis[i], &c))
            *known += c * a->k[i];
        else
            open = true;
    }
    if (!open || (sum = find_sum(e, a)))
        return sum;
    for (int i = 0; i < e->k->n_axis; i++) {
        if (!a->k[i] || LLVMIsConstant(e->axis[i]))
            continue;
        V t = e->axis[i];
        if (a->k[i] != 1)
            t = LLVMBuildNSWMul(b, t, ll_size(e->m, a->k[i]), "");
        sum = sum ? LLVMBuildNSWAdd(b, sum, t, "") : t;
    }
    return keep_sum(e, a, sum);
}

/* Offset of an access in its buffer, as affine(). A ring's row is taken modulo the number of its rows: both its parts are less. */
static V offset(ll_emit *e, const nnc_kins *ins, int64_t *known)
{
    LLVMBuilderRef b = e->m->b;
    const nnc_kring *r = &e->ring[ins->buf];
    nnc_affine row, place;
    int64_t rows;
    if (r->rows == 0)
        return affine(e, &ins->at, known);
    nnc_ring_split(r, &ins->at, &row, &place);
    V n = affine(e, &row, &rows), rest = affine(e, &place, known), at = ll_offset(e->m, rows), a[2];
    at = LLVMBuildNSWAdd(b, e->ring_at[ins->buf], n ? LLVMBuildNSWAdd(b, n, at, "") : at, "");
    a[0] = at;
    a[1] = LLVMBuildSub(b, at, ll_i64(e->m, r->rows), "");
    at =
        LLVMBuildNSWMul(b, ll_call(e->m, "llvm.umin", e->m->i64, a, 2), ll_size(e->m, r->size), "");
    return rest ? LLVMBuildNSWAdd(b, at, rest, "") : at;
}

static V and_(ll_mod *m, V a, V b)
{
    if (!a || !b)
        return a ? a : b;
    ll_match(m, &a, &b);
    return LLVMBuildAnd(m->b, a, b, "");
}

/* Range of `a` in the current loops, from the extents. */
static void bounds(const ll_emit *e, const nnc_affine *a, int64_t *lo, int64_t *hi)
{
    *lo = *hi = a->c;
    for (int i = 0; i < e->k->n_axis; i++) {
        int64_t c, last = e->k->axis[i].extent - 1, first = 0;
        if (!a->k[i])
            continue;
        if (i != e->vax && e->axis[i] && ll_const_int(e->axis[i], &c))
            first = last = c + e->shift[i];
        *lo += a->k[i] * (a->k[i] > 0 ? first : last);
        *hi += a->k[i] * (a->k[i] > 0 ? last : first);
    }
}

/* lo <= S + s i < hi for lanes i: the bounds minus S are clamped, so that lanes compare 32-bit numbers. */
static V lane_guard(
    ll_emit *e, const nnc_kguard *g, int64_t s, V dyn, int64_t known, bool low, bool high)
{
    ll_mod *m = e->m;
    int64_t end = s * (e->lanes - 1);
    int64_t min = end < 0 ? end : 0, max = end > 0 ? end : 0;
    bool fits = max < INT32_MAX - 1 && min > INT32_MIN + 1;
    T t = fits ? m->i32 : m->i64;
    V place = ll_iota(t, e->lanes, s), r = NULL;
    for (int side = 0; side < 2; side++) {
        if (!(side ? high : low))
            continue;
        V lim = ll_offset(m, (side ? g->hi : g->lo) - known);
        if (dyn)
            lim = LLVMBuildSub(m->b, lim, dyn, "");
        V a[2] = {lim, ll_i64(m, min)};
        a[0] = ll_call(m, "llvm.smax", m->i64, a, 2);
        a[1] = ll_i64(m, max + 1);
        lim = ll_call(m, "llvm.smin", m->i64, a, 2);
        V cut = ll_splat(m, LLVMBuildTrunc(m->b, lim, t, ""), e->lanes);
        r = and_(m, r, LLVMBuildICmp(m->b, side ? LLVMIntSLT : LLVMIntSGE, place, cut, ""));
    }
    return r;
}

static bool among(const nnc_kguard *q, const nnc_kguard *list, int n)
{
    for (int i = 0; i < n; i++)
        if (nnc_kguard_equal(q, &list[i]))
            return true;
    return false;
}

/* The comparison of v with a limit. Loads of windows ask for the same ones: before a loop, equal limits are one symbol, and one
 * instruction. In a register block's loop, LLVM would load all that depends on one comparison at a time, and spill sums. */
static V compared(ll_emit *e, LLVMIntPredicate is, V v, int64_t limit)
{
    ll_mod *m = e->m;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(m->b);
    for (int i = 0; i < LL_TESTS && e->hoisting; i++) {
        const ll_test *t = &e->test[i];
        if (t->block == here && t->v == v && t->is == is && t->limit == limit)
            return t->holds;
    }
    V holds = LLVMBuildICmp(m->b, is, v, ll_offset(m, limit), "");
    e->test[e->next_test++ % LL_TESTS] = (ll_test){here, v, holds, is, limit};
    return holds;
}

/* Evaluates the guards: *never when one cannot hold; otherwise *uni (i1) and *lane (mask), NULL = always true. Before a loop over vectors,
 * guards that always hold are tested as well, which costs less than code of another form. */
static void guards(ll_emit *e, const nnc_kins *ins, V *uni, V *lane, bool *never)
{
    const bool all = e->hoisting && e->m->shared && e->vax == e->base_axis;
    ll_mod *m = e->m;
    *uni = *lane = NULL;
    *never = false;
    for (int i = 0; i < ins->n_guard; i++) {
        const nnc_kguard *g = &ins->guard[i];
        int64_t lo, hi, known;
        if (among(g, e->held, e->n_held))
            continue;
        bounds(e, &g->e, &lo, &hi);
        if (hi < g->lo || lo >= g->hi)
            *never = true;
        bool low = all || lo < g->lo, high = all || hi >= g->hi;
        if (!low && !high)
            continue;
        V dyn = affine(e, &g->e, &known);
        if (e->vax >= 0 && g->e.k[e->vax]) {
            *lane = and_(m, *lane, lane_guard(e, g, g->e.k[e->vax], dyn, known, low, high));
            continue;
        }
        V v = dyn ? dyn : ll_i64(m, 0);
        if (low)
            *uni = and_(m, *uni, compared(e, LLVMIntSGE, v, g->lo - known));
        if (high)
            *uni = and_(m, *uni, compared(e, LLVMIntSLT, v, g->hi - known));
    }
}

/* ---- memory types ------------------------------------------------------------------------------------------------- */

T ll_memory_type(ll_mod *m, nnc_dtype d)
{
    return d == DT_bool ? m->i8 : d == DT_f16 || d == DT_bf16 ? m->i16 : ll_dtype(m, d);
}

V ll_from_memory(ll_mod *m, V v, nnc_dtype d)
{
    if (d == DT_bool)
        return LLVMBuildICmp(m->b, LLVMIntNE, v, ll_ik(v, 0), "");
    return d == DT_f16 || d == DT_bf16 ? ll_from16(m, v, d) : v;
}

static V to_memory(ll_mod *m, V v, nnc_dtype d)
{
    if (d == DT_bool)
        return LLVMBuildZExt(m->b, v, ll_vec(m->i8, ll_lanes(v)), "");
    return d == DT_f16 || d == DT_bf16 ? ll_to16(m, v, d) : v;
}

/* p + bytes, in buffer `buf`. Equal displacements are one symbol: LLVM knows then that neighbouring windows load the same element. */
static V displaced(ll_emit *e, V p, int buf, int64_t bytes)
{
    V by = NULL;
    for (int i = 0; i < LL_PLACES && !by; i++)
        if (e->place[i].bytes == bytes && e->place[i].buf == buf)
            by = e->place[i].v;
    if (!by) {
        const unsigned i = e->next_place++ % LL_PLACES;
        by = ll_offset(e->m, bytes);
        e->place[i].v = by;
        e->place[i].bytes = bytes;
        e->place[i].buf = buf;
    }
    return LLVMBuildGEP2(e->m->b, e->m->i8, p, &by, 1, "");
}

/* Address of element dyn + known; the known part comes last so that it becomes a displacement. */
static V place(ll_emit *e, int buf, T t, V dyn, int64_t known)
{
    V p = e->buf[buf];
    ll_sum *s = NULL;
    for (int j = 0; j < LL_SUMS && dyn && !s; j++)
        if (e->sum[j].v == dyn && e->sum[j].block == LLVMGetInsertBlock(e->m->b))
            s = &e->sum[j];
    if (s && s->p && s->buf == buf) {
        p = s->p;
    } else if (dyn) {
        p = LLVMBuildGEP2(e->m->b, t, p, &dyn, 1, "");
        if (s) {
            s->p = p;
            s->buf = buf;
        }
    }
    return known ? displaced(e, p, buf, known * nnc_dtype_size(e->k->buf[buf].dtype)) : p;
}

/* Addresses of the lanes from lane 0's; `index`: per-lane offsets besides the stride, or NULL. */
static V places(ll_emit *e, T t, V p, int64_t stride, V index)
{
    ll_mod *m = e->m;
    int64_t far = stride * e->lanes;
    V at = NULL;
    if (stride && !index && far < INT32_MAX && far > INT32_MIN)
        at = ll_iota(m->i32, e->lanes, stride);
    else if (stride)
        at = ll_iota(m->i64, e->lanes, stride);
    if (index)
        at = at ? LLVMBuildAdd(m->b, at, index, "") : index;
    if (!at)
        at = ll_splat(m, ll_i64(m, 0), e->lanes);
    return LLVMBuildGEP2(m->b, t, p, &at, 1, "");
}

/* Offset of an access with a computed index: the index clamped to [0, limit) times scale; i64, scalar or per lane. NULL: none. */
static V indirect(ll_emit *e, const nnc_kins *ins)
{
    ll_mod *m = e->m;
    const int32_t id = nnc_kins_index(ins);
    if (id < 0)
        return NULL;
    nnc_dtype d = (nnc_dtype)e->k->ins[id].dtype;
    bool u = d == DT_u64;
    V i = ll_cast(m, e->val[id], d, u ? DT_u64 : DT_i64);
    V a[2] = {i, ll_ik(i, ins->limit - 1)};
    i = ll_call(m, u ? "llvm.umin" : "llvm.smin", LLVMTypeOf(i), a, 2);
    a[0] = i;
    a[1] = ll_ik(i, 0);
    if (!u)
        i = ll_call(m, "llvm.smax", LLVMTypeOf(i), a, 2);
    return LLVMBuildMul(m->b, i, ll_ik(i, ins->scale), "");
}

/* ---- loads -------------------------------------------------------------------------------------------------------- */

/* The block of zero bytes that the loader provides. */
static V zeros(ll_emit *e)
{
    V g = LLVMGetNamedGlobal(e->m->m, "zeros");
    if (g)
        return g;
    g = LLVMAddGlobal(e->m->m, LLVMArrayType2(e->m->i8, NNC_OBJECT_ZEROS), "zeros");
    LLVMSetVisibility(g, LLVMHiddenVisibility);
    LLVMSetAlignment(g, 64);
    return g;
}

/* The address p, or that of zeros where `allowed` (i1 or NULL) is false. A masked load of an unmapped page takes
 * hundreds of nanoseconds, although its mask is 0. */
static V if_allowed(ll_emit *e, V p, V allowed)
{
    V none = allowed ? zeros(e) : NULL;
    return allowed ? LLVMBuildSelect(e->m->b, allowed, p, none, "") : p;
}

/* One address for all lanes. `allowed` (i1 or NULL): when false, another readable address is read instead. */
static V load_one(ll_emit *e, T t, V p, V allowed, int size)
{
    if (allowed)
        p = LLVMBuildSelect(e->m->b, allowed, p, e->args, "");
    V v = LLVMBuildLoad2(e->m->b, t, p, "");
    LLVMSetAlignment(v, (unsigned)size);
    return v;
}

static V reverse(ll_emit *e, V v)
{
    return ll_row(e->m, v, NULL, e->lanes - 1, -1, e->lanes);
}

/* The number of lanes that exist, which are the first ones. */
static int live_lanes(const ll_emit *e)
{
    int live = 0;
    while (live < e->lanes &&
           !(e->mask && LLVMIsNull(LLVMGetAggregateElement(e->mask, (unsigned)live))))
        live++;
    return live;
}

/* The own axis along which an access of a tmp buffer runs from the beginning of a row, or -1. */
static int along_row(const nnc_kernel *k, const nnc_kins *in)
{
    const uint32_t axes = nnc_affine_axes(&in->at);
    const int a = axes ? __builtin_ctz(axes) : -1;
    const bool row = a >= k->n_outer && !(axes & (axes - 1)) && in->at.k[a] == 1 &&
                     in->n_guard == 0 && nnc_kins_index(in) < 0 &&
                     in->at.c * nnc_dtype_size(k->buf[in->buf].dtype) % 64 == 0;
    return row ? a : -1;
}

/* True when the lanes of the current vector that are beyond the end of a tmp buffer's row may be loaded and stored, too. Rows begin at
 * multiples of 64 bytes, and nothing else is in a row's last 64 bytes. A store in parts would let the load after it wait for all of
 * them. */
static bool ends_in_padding(const ll_emit *e, const nnc_kins *ins)
{
    const nnc_kernel *k = e->k;
    const nnc_kbuf *b = &k->buf[ins->buf];
    const int size = nnc_dtype_size(b->dtype), vax = e->vax;
    if (b->role != KB_tmp || vax < 0 || e->ring[ins->buf].rows > 0 || along_row(k, ins) != vax)
        return false;
    const int64_t n = k->axis[vax].extent, bytes = nnc_align_up(n * size, 64);
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *s = &k->ins[i];
        if (s->op != KO_store || s->buf != ins->buf)
            continue;
        const int a = along_row(k, s);
        if (a < 0 || k->axis[a].extent != n || s->at.c * size % bytes)
            return false;
    }
    return (n - live_lanes(e) + e->lanes) * size <= bytes;
}

/* `lanes` consecutive elements at p; mask NULL = all. Lanes not read are 0. */
static V load_row(ll_emit *e, T t, V p, V mask, int size)
{
    ll_mod *m = e->m;
    T vt = ll_vec(t, e->lanes);
    if (!mask) {
        V v = LLVMBuildLoad2(m->b, vt, p, "");
        LLVMSetAlignment(v, (unsigned)size);
        return v;
    }
    V arg[4] = {
        p, LLVMConstInt(m->i32, (unsigned)size, 0), ll_splat(m, mask, e->lanes), LLVMConstNull(vt)};
    return ll_call2(m, "llvm.masked.load", vt, m->ptr, arg, 4);
}

static V gather(ll_emit *e, T t, V ps, V mask, int size)
{
    ll_mod *m = e->m;
    T vt = ll_vec(t, e->lanes);
    mask = mask ? mask : LLVMConstInt(m->i1, 1, 0);
    V arg[4] = {ps, LLVMConstInt(m->i32, (unsigned)size, 0), ll_splat(m, mask, e->lanes),
        LLVMConstNull(vt)};
    return ll_call2(m, "llvm.masked.gather", vt, LLVMTypeOf(ps), arg, 4);
}

/* True when a load of every second element can read rows. Either all lanes exist and are allowed, or the target has masked row loads
 * and the per-lane guards advance with the elements. */
static bool paired(const ll_emit *e, const nnc_kins *ins, bool masked, int size)
{
    int bits = e->m->t->vector_bits;
    if (e->lanes < 4 || (masked && bits < 512 && (bits < 256 || size < 4)))
        return false;
    for (int i = 0; i < ins->n_guard; i++)
        if (ins->guard[i].e.k[e->vax] != 0 && ins->guard[i].e.k[e->vax] != 2)
            return false;
    return true;
}

/* Mask of `lanes` elements, beginning at lane 0's + first, that belong to existing lanes and that the guards allow; NULL: all may be
 * read. */
static V pair_mask(ll_emit *e, const nnc_kins *ins, int first, bool guarded)
{
    V mask = NULL, one[256];
    for (int i = 0; i < e->lanes; i++) {
        int lane = (first + i) / 2;
        bool on = (first + i) % 2 == 0 &&
                  (!e->mask || !LLVMIsNull(LLVMGetAggregateElement(e->mask, (unsigned)lane)));
        one[i] = LLVMConstInt(e->m->i1, on, 0);
    }
    if (guarded || e->mask)
        mask = LLVMConstVector(one, (unsigned)e->lanes);
    for (int i = 0; i < ins->n_guard; i++) {
        const nnc_kguard *g = &ins->guard[i];
        int64_t lo, hi, known;
        if (!g->e.k[e->vax])
            continue;
        bounds(e, &g->e, &lo, &hi);
        if (lo >= g->lo && hi < g->hi)
            continue;
        V dyn = affine(e, &g->e, &known);
        V in = lane_guard(e, g, 1, dyn, known + first, lo < g->lo, hi >= g->hi);
        mask = and_(e->m, mask, in);
    }
    return mask;
}

/* Loads every second element from p on: two rows, then a shuffle. The second row begins at the first's last element, so that
 * nothing after the last lane's element is read. Several times faster than a gather. */
static V load_pairs(ll_emit *e, const nnc_kins *ins, T t, V p, bool guarded, int size)
{
    ll_mod *m = e->m;
    V last = ll_i64(m, e->lanes - 1);
    int lane[256];
    V a = load_row(e, t, p, pair_mask(e, ins, 0, guarded), size);
    V b = load_row(e, t, LLVMBuildGEP2(m->b, t, p, &last, 1, ""),
        pair_mask(e, ins, e->lanes - 1, guarded), size);
    for (int i = 0; i < e->lanes; i++)
        lane[i] = 2 * i < e->lanes ? 2 * i : 2 * i + 1;
    return ll_shuffle(m, a, b, lane, e->lanes);
}

/* The current address of a load whose address at index 0 of the innermost axis is known; NULL: it is not. */
static V hoisted(ll_emit *e, const nnc_kins *ins)
{
    V base = e->base[ins - e->k->ins];
    nnc_affine at = {.k = {0}};
    int64_t known;
    if (!base)
        return NULL;
    at.k[e->base_axis] = ins->at.k[e->base_axis];
    V dyn = affine(e, &at, &known);
    known += e->beyond[ins - e->k->ins];
    if (e->vax >= 0 && e->vax != e->base_axis)
        known += ins->at.k[e->vax] * e->shift[e->vax];
    T t = ll_memory_type(e->m, e->k->buf[ins->buf].dtype);
    if (dyn)
        base = LLVMBuildGEP2(e->m->b, t, base, &dyn, 1, "");
    return known ? displaced(e, base, ins->buf, known * nnc_dtype_size(e->k->buf[ins->buf].dtype))
                 : base;
}

void ll_prefetch(ll_emit *e, const nnc_kins *ins, bool near, bool write)
{
    ll_mod *m = e->m;
    int64_t known;
    V p = hoisted(e, ins);
    if (!p) {
        V dyn = affine(e, &ins->at, &known);
        p = place(e, ins->buf, ll_memory_type(m, e->k->buf[ins->buf].dtype), dyn, known);
    }
    V arg[4] = {p, LLVMConstInt(m->i32, write, 0), LLVMConstInt(m->i32, near ? 3 : 2, 0),
        LLVMConstInt(m->i32, 1, 0)}; /* data */
    ll_call(m, "llvm.prefetch", m->ptr, arg, 4);
}

V ll_load_row(ll_emit *e, const nnc_kins *ins, int live)
{
    nnc_dtype d = e->k->buf[ins->buf].dtype;
    T t = ll_memory_type(e->m, d);
    int64_t known;
    V dyn = affine(e, &ins->at, &known);
    V mask = live < e->lanes ? ll_lanes_mask(e->m, e->lanes, live) : NULL;
    return load_row(e, t, place(e, ins->buf, t, dyn, known), mask, nnc_dtype_size(d));
}

/* True when `fill`, what a guarded load gives elsewhere, is a load that advances with it along axis c. */
static bool fills_alike(const ll_emit *e, const nnc_kins *ins, const nnc_kins *fill, int c)
{
    return fill->op == KO_load && fill->n_guard == 0 && fill->arg[0] < 0 &&
           fill->at.k[c] == ins->at.k[c] && (e->vax < 0 || fill->at.k[e->vax] == 0) &&
           e->k->buf[fill->buf].role == KB_in &&
           e->k->buf[fill->buf].dtype == e->k->buf[ins->buf].dtype;
}

/* True when the load's guards do not depend on the loop over axis c, along which its lanes lie or are equal. */
static bool hoists(const ll_emit *e, const nnc_kins *ins, int c)
{
    const int64_t lane = e->vax >= 0 ? ins->at.k[e->vax] : 0;
    if (ins->op != KO_load || ins->n_guard == 0 || ins->arg[0] >= 0 ||
        e->k->buf[ins->buf].role == KB_tmp || ins->at.k[c] < 0 || lane != (e->vax == c))
        return false;
    const nnc_kins *fill = &e->k->ins[ins->arg[1]];
    const bool alike = fills_alike(e, ins, fill, c);
    if (!alike && (fill->op != KO_const || fill->f != 0 || fill->i != 0))
        return false;
    for (int g = 0; g < ins->n_guard; g++)
        if (ins->guard[g].e.k[c] || (e->vax >= 0 && ins->guard[g].e.k[e->vax]))
            return false;
    int64_t last = (e->k->axis[c].extent - 1) * ins->at.k[c];
    return alike || (last + 1) * nnc_dtype_size(e->k->buf[ins->buf].dtype) <= NNC_OBJECT_ZEROS;
}

/* True for a load of a register block that has no guards and advances along axis c. Its address there differs from others' only in a
 * displacement, which LLVM does not find if sizes are unknown. */
static bool is_plain(const ll_emit *e, const nnc_kins *ins, int c)
{
    return e->stripped && ins->op == KO_load && ins->n_guard == 0 && ins->arg[0] < 0 &&
           e->ring[ins->buf].rows == 0 && e->vax != c && ins->at.k[c] != 0 &&
           (e->vax < 0 || ins->at.k[e->vax] == 0 || ins->at.k[e->vax] == 1);
}

/* The load's address at index 0 of axis c, but for *known elements; known NULL: all of it. */
static V origin(ll_emit *e, const nnc_kins *ins, int c, int64_t *known)
{
    int64_t here;
    nnc_affine at = ins->at;
    at.k[c] = 0;
    V dyn = affine(e, &at, known ? known : &here);
    return place(
        e, ins->buf, ll_memory_type(e->m, e->k->buf[ins->buf].dtype), dyn, known ? 0 : here);
}

void ll_hoist(ll_emit *e, const nnc_kstage *st, int c)
{
    e->base_axis = c;
    for (int i = st->body0; i < st->body1; i++) {
        const nnc_kins *ins = &e->k->ins[i];
        V uni, lane;
        bool never;
        e->beyond[i] = 0;
        e->base[i] = is_plain(e, ins, c) ? origin(e, ins, c, &e->beyond[i]) : NULL;
        if (!hoists(e, ins, c))
            continue;
        e->hoisting = true;
        guards(e, ins, &uni, &lane, &never);
        e->hoisting = false;
        if (!uni || never) /* decided at compile time */
            continue;
        const nnc_kins *fill = &e->k->ins[ins->arg[1]];
        V p = origin(e, ins, c, NULL);
        V none = fill->op == KO_load ? origin(e, fill, c, NULL) : zeros(e);
        e->base[i] = LLVMBuildSelect(e->m->b, uni, p, none, "");
    }
}

/* ---- terms outside ------------------------------------------------------------------------------------------------ */

const nnc_kins *ll_source(const ll_emit *e, const nnc_kins *sum)
{
    const nnc_kernel *k = e->k;
    const nnc_kins *f = &k->ins[sum->arg[0]];
    if (sum->sop != KR_sum || sum->arg[1] >= 0 || f->op != KO_sop || f->sop != SC_fma ||
        f->hint & KH_exact || !nnc_kins_is_zero(k, f->arg[2]))
        return NULL;
    const nnc_kins *x = &k->ins[f->arg[0]];
    while (x->op == KO_sop && x->sop == SC_cast)
        x = &k->ins[x->arg[0]];
    bool zeros_outside = x->op == KO_load && x->n_guard > 0 && nnc_kins_is_zero(k, x->arg[1]);
    return zeros_outside ? x : NULL;
}

V ll_reached(ll_emit *e, const nnc_kstage *st, int c)
{
    nnc_kins all = {0};
    bool first = true, sums = false, never;
    V uni, lane;
    for (int i = st->body0; i < st->body1; i++)
        sums |= e->k->ins[i].op == KO_reduce;
    for (int i = st->body0; i < (sums ? st->body1 : st->post1); i++) {
        const nnc_kins *in = &e->k->ins[i];
        if (sums && in->op == KO_store)
            return NULL;
        if (in->op != (sums ? KO_reduce : KO_store))
            continue;
        const nnc_kins *x = sums ? ll_source(e, in) : in;
        int had = first && x ? x->n_guard : e->n_held;
        const nnc_kguard *from = first && x ? x->guard : e->held;
        e->n_held = 0;
        for (int g = 0; x && g < had; g++)
            if (among(&from[g], x->guard, x->n_guard) && !from[g].e.k[c] &&
                !(e->vax >= 0 && from[g].e.k[e->vax]))
                e->held[e->n_held++] = from[g];
        first = false;
    }
    all.n_guard = (uint8_t)e->n_held;
    all.guard = e->held;
    int n = e->n_held;
    e->n_held = 0;
    e->hoisting = !sums;
    e->base_axis = c;
    guards(e, &all, &uni, &lane, &never);
    e->hoisting = false;
    e->n_held = uni ? n : 0;
    return uni;
}

V ll_load(ll_emit *e, const nnc_kins *ins)
{
    ll_mod *m = e->m;
    nnc_dtype d = e->k->buf[ins->buf].dtype;
    T t = ll_memory_type(m, d);
    int size = nnc_dtype_size(d);
    V at = hoisted(e, ins);
    if (at && e->vax >= 0 && ins->at.k[e->vax])
        return ll_from_memory(m, load_row(e, t, at, e->mask, size), d);
    if (at)
        return ll_from_memory(m, load_one(e, t, at, NULL, size), d);
    V fill = ins->arg[1] >= 0 ? e->val[ins->arg[1]] : NULL;
    if (!fill)
        fill = LLVMConstNull(ll_dtype(m, d));
    V uni, lane, index = indirect(e, ins);
    bool never;
    guards(e, ins, &uni, &lane, &never);
    if (never)
        return fill;
    int64_t known, stride = e->vax >= 0 ? ins->at.k[e->vax] : 0;
    V dyn = offset(e, ins, &known), v;
    V lanes_index = index && ll_lanes(index) ? index : NULL;
    if (index && !lanes_index)
        dyn = dyn ? LLVMBuildAdd(m->b, dyn, index, "") : index;
    bool spread = lane && !stride && !lanes_index; /* one address, masked by lane */
    if ((stride == 1 || stride == -1) && !lanes_index) {
        V mask = and_(m, lane, e->mask);
        if (mask && mask == e->mask && ends_in_padding(e, ins))
            mask = NULL;
        if (stride == -1)
            known -= e->lanes - 1;
        if (stride == -1 && mask)
            mask = reverse(e, ll_splat(m, mask, e->lanes));
        V p = if_allowed(e, place(e, ins->buf, t, dyn, known), uni);
        v = load_row(e, t, p, mask, size);
        if (stride == -1)
            v = reverse(e, v);
    } else if (stride == 2 && !lanes_index && paired(e, ins, lane || e->mask, size)) {
        V p = if_allowed(e, place(e, ins->buf, t, dyn, known), uni);
        v = load_pairs(e, ins, t, p, lane != NULL, size);
    } else if (stride || lanes_index) {
        V ps = places(e, t, place(e, ins->buf, t, dyn, known), stride, lanes_index);
        v = gather(e, t, ps, and_(m, and_(m, lane, e->mask), uni), size);
    } else {
        const bool nil = !spread && LLVMIsConstant(fill) && LLVMIsNull(fill);
        V some = spread ? and_(m, ll_any(m, and_(m, lane, e->mask)), uni) : uni;
        V p = place(e, ins->buf, t, dyn, known);
        v = nil ? load_one(e, t, if_allowed(e, p, uni), NULL, size) : load_one(e, t, p, some, size);
        if (nil)
            return ll_from_memory(m, v, d);
    }
    v = ll_from_memory(m, v, d);
    V ok = and_(m, lane, uni);
    bool zero = (stride || lanes_index) && LLVMIsConstant(fill) &&
                LLVMIsNull(fill); /* as the lanes that are not read */
    return ok && !zero ? ll_select(m, ok, v, fill) : v;
}

/* ---- stores ------------------------------------------------------------------------------------------------------- */

static void store_one(ll_emit *e, V v, V p, V allowed, int size)
{
    ll_mod *m = e->m;
    LLVMBasicBlockRef next = allowed ? ll_branch(m, allowed, "store") : NULL;
    LLVMSetAlignment(LLVMBuildStore(m->b, v, p), (unsigned)size);
    ll_join(m, next);
}

static void masked(ll_emit *e, const char *name, V v, V p, V mask, int size)
{
    ll_mod *m = e->m;
    mask = mask ? mask : LLVMConstInt(m->i1, 1, 0);
    V arg[4] = {v, p, LLVMConstInt(m->i32, (unsigned)size, 0), ll_splat(m, mask, e->lanes)};
    ll_call2(m, name, LLVMTypeOf(v), LLVMTypeOf(p), arg, 4);
}

/* True when every address of this store, at lane 0, is a multiple of 64 bytes from its buffer's start. */
static bool aligned64(const ll_emit *e, const nnc_kins *ins, int size)
{
    int64_t bytes = e->lanes * (int64_t)size;
    if (bytes % 64 || ins->at.c * size % 64)
        return false;
    for (int i = 0; i < e->k->n_axis; i++)
        if (i != e->vax && ins->at.k[i] * size % 64)
            return false;
    return nnc_sched_n(&e->k->sched, KD_tile, nnc_sched_vec(&e->k->sched)) * size % 64 == 0;
}

/* True when the rest of the kernel neither reads nor writes what this store writes. */
static bool is_last_use(const ll_emit *e, const nnc_kins *store)
{
    if (e->k->buf[store->buf].role != KB_out)
        return false;
    for (int i = 0; i < e->k->n_ins; i++)
        if (e->k->ins[i].op == KO_load && e->k->ins[i].buf == store->buf)
            return false;
    return true;
}

bool ll_splits_lines(const ll_emit *e, const nnc_kins *store)
{
    if (store->op != KO_store)
        return false;
    int size = nnc_dtype_size(e->k->buf[store->buf].dtype);
    for (int i = 0; i < e->k->n_axis; i++)
        if (i != e->vax && store->at.k[i] * size % 64)
            return true;
    return false;
}

/* n lanes of v from lane `from` on. */
static void store_part(ll_emit *e, V v, V p, int from, int n, int size)
{
    V at = ll_i64(e->m, from), to = LLVMBuildGEP2(e->m->b, ll_elem(v), p, &at, 1, "");
    LLVMSetAlignment(LLVMBuildStore(e->m->b, ll_part(e->m, v, from, n), to), (unsigned)size);
}

/* Stores the lanes that exist, which are the first ones, without a mask. Uses whole machine vectors, or half ones and so on, the last
 * overlapping the one before. */
static void store_live(ll_emit *e, V v, V p, int size)
{
    int n = e->m->t->vector_bits / 8 / size, from = 0;
    const int live = live_lanes(e);
    while (n > live)
        n /= 2;
    for (; from + n <= live; from += n)
        store_part(e, v, p, from, n, size);
    if (from < live)
        store_part(e, v, p, live - n, n, size);
}

/* May the kernel load what follows the stored row? Such a load waits until a masked store is done, since the CPU compares addresses
 * without the mask. Rows of 30 elements in place are 6 times as slow. */
static bool loads_after(const ll_emit *e, const nnc_kins *store)
{
    const nnc_kernel *k = e->whole;
    bool loads = e->k->buf[store->buf].role == KB_tmp;
    for (int b = 0; b < k->n_buf && !loads; b++)
        loads = k->buf[b].role == KB_in && nnc_kernel_may_overlay(k, b, store->buf);
    return loads;
}

static void store_row(ll_emit *e, const nnc_kins *ins, V v, V p, V mask, int size)
{
    ll_mod *m = e->m;
    if (mask && mask == e->mask && ends_in_padding(e, ins))
        mask = NULL;
    if (mask && mask == e->mask && (m->aarch64 || loads_after(e, ins))) {
        store_live(e, v, p, size);
        return;
    }
    if (mask) {
        masked(e, "llvm.masked.store", v, p, mask, size);
        return;
    }
    V s = LLVMBuildStore(m->b, v, p);
    LLVMSetAlignment(s, (unsigned)size);
    if (e->stream && aligned64(e, ins, size) && is_last_use(e, ins)) {
        LLVMValueRef one = LLVMConstInt(m->i32, 1, 0);
        LLVMMetadataRef md = LLVMValueAsMetadata(one);
        md = LLVMMDNodeInContext2(m->c, &md, 1);
        LLVMSetMetadata(
            s, LLVMGetMDKindIDInContext(m->c, "nontemporal", 11), LLVMMetadataAsValue(m->c, md));
        LLVMSetAlignment(s, 64);
    }
}

/* The sum so far, of this block of terms and of those before it, which are in memory; then the value of the store's operand. */
static V sum_so_far(ll_emit *e, const nnc_kins *store, V v, V memory)
{
    LLVMBuilderRef b = e->m->b;
    V sum = LLVMBuildSelect(b, e->added, LLVMBuildFAdd(b, memory, v, ""), v, "");
    return e->val[store->arg[0]] = sum;
}

void ll_store(ll_emit *e, const nnc_kins *ins)
{
    ll_mod *m = e->m;
    nnc_dtype d = e->k->buf[ins->buf].dtype;
    T t = ll_memory_type(m, d);
    int size = nnc_dtype_size(d);
    V uni, lane;
    bool never;
    guards(e, ins, &uni, &lane, &never);
    if (never)
        return;
    int64_t known, stride = e->vax >= 0 ? ins->at.k[e->vax] : 0;
    V v = to_memory(m, e->val[ins->arg[0]], d), dyn = offset(e, ins, &known);
    V index = indirect(e, ins), lanes_index = index && ll_lanes(index) ? index : NULL;
    if (index && !lanes_index)
        dyn = dyn ? LLVMBuildAdd(m->b, dyn, index, "") : index;
    V p = place(e, ins->buf, t, dyn, known);
    if (!stride && !ll_lanes(v) && !lane && !lanes_index) {
        v = e->added ? sum_so_far(e, ins, v, load_one(e, t, p, NULL, size)) : v;
        store_one(e, v, p, uni, size);
        return;
    }
    v = ll_splat(m, v, e->lanes);
    V mask = and_(m, and_(m, lane, e->mask), uni);
    v = e->added ? sum_so_far(e, ins, v, load_row(e, t, p, mask, size)) : v;
    if (stride == 1 && !lanes_index)
        store_row(e, ins, v, p, mask, size);
    else /* stride 0: the last lane wins, since scatter is ordered */
        masked(e, "llvm.masked.scatter", v, places(e, t, p, stride, lanes_index), mask, size);
}

void ll_store_lanes(ll_emit *e, const nnc_kins *ins, V v, int live)
{
    const nnc_dtype d = e->k->buf[ins->buf].dtype;
    const int lanes = e->lanes;
    V mask = e->mask;
    int64_t known;
    v = to_memory(e->m, v, d);
    e->lanes = ll_lanes(v);
    e->mask = live < e->lanes ? ll_lanes_mask(e->m, e->lanes, live) : NULL;
    V dyn = offset(e, ins, &known);
    V p = place(e, ins->buf, ll_memory_type(e->m, d), dyn, known);
    if (e->mask)
        store_live(e, v, p, nnc_dtype_size(d));
    else
        LLVMSetAlignment(LLVMBuildStore(e->m->b, v, p), (unsigned)nnc_dtype_size(d));
    e->lanes = lanes;
    e->mask = mask;
}
