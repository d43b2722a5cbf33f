/* kernel/lower_emit.c -- points of a nest to instructions. Equal instructions of one section,
 * or of the rows before it, are one. What depends on outer axes alone is computed once per row,
 * in the post of the last stage it needs. */
#include "kernel/lower.h"

#include <math.h>
#include <string.h>

/* ---- instructions ---- */

static bool is_global(const lw *l, int section)
{
    return (section & 1) && !l->flat && l->stage[section / 2].ctx < 0;
}

static uint32_t hash_ins(const nnc_kins *in)
{
    int64_t w[8] = {in->op | in->dtype << 8 | in->sop << 16, in->buf, in->arg[0], in->arg[1],
        in->arg[2], in->i, 0, in->at.c};
    memcpy(&w[6], &in->f, 8);
    return (uint32_t)nnc_hash64(w, sizeof w, 0) & 255;
}

int32_t lw_add(lw *l, int section, const nnc_kins *in)
{
    uint32_t h = hash_ins(in);
    if (in->op != KO_store)
        for (int32_t i = l->bucket[h]; i >= 0; i = l->ins[i].chain) {
            int s = l->ins[i].section;
            if ((s == section || (s < section && is_global(l, s))) &&
                nnc_kins_equal(&l->ins[i].k, in))
                return i;
        }
    lw_ins *p = nnc_arena_grow(&l->scratch, l->ins, &l->cap_ins, (size_t)l->n_ins + 1, sizeof *p);
    if (!p || l->n_ins >= NNC_KMAX_INS) {
        l->oom = true;
        return -1;
    }
    l->ins = p;
    p[l->n_ins] = (lw_ins){*in, section, l->bucket[h]};
    p[l->n_ins].k.lo = 1; /* no range yet */
    l->bucket[h] = l->n_ins;
    return l->n_ins++;
}

static nnc_kins blank(nnc_kop op, nnc_dtype d)
{
    return (nnc_kins){.op = (uint8_t)op, .dtype = (uint8_t)d, .buf = -1, .arg = {-1, -1, -1}};
}

int32_t lw_const(lw *l, int section, nnc_dtype d, double v)
{
    nnc_kins in = blank(KO_const, d);
    if (d == DT_f32)
        in.f = (float)v;
    else if (nnc_is_float(d))
        in.f = v;
    else {
        uint64_t w = 0;
        nnc_set_f64(d, &w, 0, v);
        in.i = nnc_get_i64(d, &w, 0);
    }
    return lw_add(l, section, &in);
}

int32_t lw_const_int(lw *l, int section, nnc_dtype d, int64_t v)
{
    nnc_kins in = blank(KO_const, d);
    in.i = v;
    return lw_add(l, section, &in);
}

int32_t lw_sop(lw *l, int section, nnc_sop op, nnc_dtype d, int32_t a, int32_t b, int32_t c)
{
    nnc_kins in = blank(KO_sop, d);
    in.sop = (uint8_t)op;
    in.cast_to = op == SC_cast ? (uint8_t)d : 0;
    in.arg[0] = a;
    in.arg[1] = b;
    in.arg[2] = c;
    return l->oom ? -1 : lw_add(l, section, &in);
}

/* ---- index forms ---- */

static void add_scaled(nnc_affine *e, const nnc_nest_map *m, int64_t f)
{
    e->c += m->c * f;
    for (int a = 0; a < NNC_KAXES; a++)
        e->k[a] += m->k[a] * f;
}

nnc_affine lw_offset(const nnc_type *t, const nnc_nest_map *idx, int rank)
{
    int64_t stride[NNC_MAX_RANK];
    nnc_affine at = {0};
    nnc_type_strides(t, stride);
    for (int d = 0; d < rank; d++)
        add_scaled(&at, &idx[d], stride[d]);
    return at;
}

static int32_t index_value(lw *l, int section, const nnc_nest_map *e)
{
    int32_t sum = -1;
    for (int a = 0; a < l->nest->n_axis; a++) {
        if (e->k[a] == 0)
            continue;
        nnc_kins in = blank(KO_index, DT_i64);
        in.i = a;
        int32_t x = lw_add(l, section, &in);
        if (e->k[a] != 1)
            x = lw_sop(
                l, section, SC_mul, DT_i64, x, lw_const_int(l, section, DT_i64, e->k[a]), -1);
        sum = sum < 0 ? x : lw_sop(l, section, SC_add, DT_i64, sum, x, -1);
    }
    if (sum < 0)
        return lw_const_int(l, section, DT_i64, e->c);
    if (e->c != 0)
        sum = lw_sop(l, section, SC_add, DT_i64, sum, lw_const_int(l, section, DT_i64, e->c), -1);
    return sum;
}

/* All guards of the chain from `inner` up to but not `outer`, as a bool. */
static int32_t condition(lw *l, int section, int32_t inner, int32_t outer)
{
    int32_t all = -1;
    for (int32_t i = inner; i >= 0 && i != outer; i = l->nest->guard[i].parent) {
        const nnc_nest_guard *g = &l->nest->guard[i];
        int64_t lo, hi;
        nnc_nest_span(l->nest, &g->e, &lo, &hi);
        int32_t e = index_value(l, section, &g->e);
        for (int side = 0; side < 2; side++) {
            if (side == 0 ? lo >= g->lo : hi < g->hi)
                continue;
            int32_t b = lw_const_int(l, section, DT_i64, side == 0 ? g->lo : g->hi);
            int32_t c = lw_sop(l, section, side == 0 ? SC_ge : SC_lt, DT_bool, e, b, -1);
            all = all < 0 ? c : lw_sop(l, section, SC_and, DT_bool, all, c, -1);
        }
    }
    return all >= 0 ? all : lw_const_int(l, section, DT_bool, 1);
}

/* The guards of the chain as the access's own; false: out of memory. */
static bool set_guards(lw *l, nnc_kins *in, int32_t guard)
{
    int n = 0;
    for (int32_t i = guard; i >= 0; i = l->nest->guard[i].parent)
        n++;
    if (n == 0)
        return true;
    in->guard = ARENA_NEW(&l->scratch, nnc_kguard, n);
    if (!in->guard) {
        l->oom = true;
        return false;
    }
    for (int32_t i = guard; i >= 0; i = l->nest->guard[i].parent) {
        nnc_kguard *g = &in->guard[in->n_guard++];
        add_scaled(&g->e, &l->nest->guard[i].e, 1);
        g->lo = l->nest->guard[i].lo;
        g->hi = l->nest->guard[i].hi;
    }
    return true;
}

static int chain_length(const lw *l, int32_t guard)
{
    int n = 0;
    for (; guard >= 0; guard = l->nest->guard[guard].parent)
        n++;
    return n;
}

/* ---- where ---- */

int lw_stage_of_ctx(const lw *l, int ctx)
{
    for (int s = 0; s < l->n_stage; s++)
        if (l->stage[s].ctx == ctx)
            return s;
    for (int r = 0; r < l->nest->n_reduce; r++)
        if (l->nest->reduce[r].ctx == ctx)
            for (int s = 0; s < l->n_stage; s++)
                if (l->stage[s].ctx < 0 && l->stage[s].level == l->nest->reduce[r].level &&
                    l->stage[s].space == l->nest->reduce[r].space)
                    return s;
    return -1; /* an output of rows alone */
}

int lw_section_of(const lw *l, int32_t point)
{
    const nnc_nest_point *p = &l->nest->point[point];
    if (l->flat)
        return 0;
    if (!(p->axes & ~l->nest->outer))
        return l->row_section[p->level];
    return 2 * lw_stage_of_ctx(l, p->ctx);
}

/* ---- points ---- */

static int buffer_of(const lw *l, nnc_ref v)
{
    for (int i = 0; i < l->n_operand; i++)
        if (l->operand[i] == v)
            return i;
    return -1;
}

/* Can the bounds of the access be seen, from its axes and guards? */
static bool stays_inside(const lw *l, const nnc_kins *in)
{
    nnc_span s = nnc_access_span(l->k, in);
    int64_t most = 0;
    if (s.ok && in->arg[0] >= 0) {
        s.ok = nnc_mul_ok(in->scale, in->limit - 1, &most);
        s.ok = s.ok && (most >= 0 ? nnc_add_ok(s.hi, most, &s.hi) : nnc_add_ok(s.lo, most, &s.lo));
    }
    return s.ok && s.lo >= 0 && s.hi < l->k->buf[in->buf].numel;
}

/* The whole offset becomes a computed index, which is clamped into the buffer: for accesses
 * whose bounds hold for reasons that a look at each guard for itself does not show. */
static void make_indirect(lw *l, int section, nnc_kins *in)
{
    nnc_nest_map e = {.c = in->at.c};
    memcpy(e.k, in->at.k, sizeof e.k);
    int32_t x = index_value(l, section, &e);
    if (in->arg[0] >= 0) {
        int32_t i = in->arg[0];
        i = lw_sop(
            l, section, SC_min, DT_i64, i, lw_const_int(l, section, DT_i64, in->limit - 1), -1);
        i = lw_sop(l, section, SC_max, DT_i64, i, lw_const_int(l, section, DT_i64, 0), -1);
        i = lw_sop(l, section, SC_mul, DT_i64, i, lw_const_int(l, section, DT_i64, in->scale), -1);
        x = lw_sop(l, section, SC_add, DT_i64, x, i, -1);
    }
    in->at = (nnc_affine){0};
    in->arg[0] = x;
    in->scale = 1;
    in->limit = l->k->buf[in->buf].numel;
}

/* A load of p's value; the caller gives the place. fill: an instruction for what lies outside
 * the guards, or -1 = zero. */
static int32_t finish_load(lw *l, int section, const nnc_nest_point *p, nnc_kins *in, int32_t fill)
{
    nnc_dtype d = (nnc_dtype)in->dtype;
    int n = chain_length(l, p->guard);
    if (n <= NNC_KGUARDS && !set_guards(l, in, p->guard))
        return -1;
    if (n > 0 && fill < 0)
        fill = lw_const(l, section, d, 0);
    if (in->n_guard > 0)
        in->arg[1] = fill;
    if (!stays_inside(l, in))
        make_indirect(l, section, in);
    int32_t x = l->oom ? -1 : lw_add(l, section, in);
    if (n <= NNC_KGUARDS)
        return x;
    return lw_sop(l, section, SC_select, d, condition(l, section, p->guard, -1), x, fill);
}

static int32_t emit_load(lw *l, int section, const nnc_nest_point *p, int32_t index, int32_t fill)
{
    const nnc_type *t = nnc_typeof(l->g, p->v);
    nnc_kins in = blank(KO_load, nnc_kdtype((nnc_dtype)t->dtype));
    in.buf = (int16_t)buffer_of(l, p->v);
    in.at = lw_offset(t, p->idx, t->rank);
    if (index >= 0) {
        int64_t stride[NNC_MAX_RANK];
        nnc_type_strides(t, stride);
        in.arg[0] = index;
        in.scale = stride[p->at];
        in.limit = t->dim[p->at];
    }
    return finish_load(l, section, p, &in, fill);
}

/* Mirrored at 0 and n-1 until inside; `least`: the smallest value of x. */
static int32_t emit_reflected(lw *l, int section, int32_t x, int64_t n, int64_t least)
{
    int64_t period = n > 1 ? 2 * (n - 1) : 1;
    int64_t up = least < 0 ? -nnc_floordiv(least, period) * period : 0;
    x = lw_sop(l, section, SC_add, DT_i64, x, lw_const_int(l, section, DT_i64, up), -1);
    x = lw_sop(l, section, SC_mod, DT_i64, x, lw_const_int(l, section, DT_i64, period), -1);
    int32_t y = lw_sop(l, section, SC_sub, DT_i64, lw_const_int(l, section, DT_i64, period), x, -1);
    return lw_sop(l, section, SC_min, DT_i64, x, y, -1);
}

static int32_t emit_wild(lw *l, int section, const nnc_nest_point *p)
{
    const nnc_type *t = nnc_typeof(l->g, p->v);
    int64_t stride[NNC_MAX_RANK], place = 1, lo, hi;
    nnc_type_strides(t, stride);
    int32_t sum = lw_const_int(l, section, DT_i64, 0);
    for (int d = t->rank - 1; d >= 0 && !l->oom; d--) {
        const nnc_nest_map *e = &p->idx[p->at == NW_digits ? 0 : d];
        int32_t n = lw_const_int(l, section, DT_i64, t->dim[d]), x = index_value(l, section, e);
        nnc_nest_span(l->nest, e, &lo, &hi);
        if (p->at == NW_digits) {
            int32_t by = lw_const_int(l, section, DT_i64, place);
            x = place > 1 ? lw_sop(l, section, SC_div, DT_i64, x, by, -1) : x;
            x = d > 0 ? lw_sop(l, section, SC_mod, DT_i64, x, n, -1) : x;
        } else if (p->at == NW_reflect && (lo < 0 || hi >= t->dim[d])) {
            x = emit_reflected(l, section, x, t->dim[d], lo);
        } else if (lo < 0 || hi >= t->dim[d]) {
            n = lw_const_int(l, section, DT_i64, t->dim[d] - 1);
            x = lw_sop(l, section, SC_min, DT_i64, x, n, -1);
            x = lw_sop(l, section, SC_max, DT_i64, x, lw_const_int(l, section, DT_i64, 0), -1);
        }
        place *= t->dim[d];
        x = lw_sop(l, section, SC_mul, DT_i64, x, lw_const_int(l, section, DT_i64, stride[d]), -1);
        sum = lw_sop(l, section, SC_add, DT_i64, sum, x, -1);
    }
    nnc_kins in = blank(KO_load, nnc_kdtype((nnc_dtype)t->dtype));
    in.buf = (int16_t)buffer_of(l, p->v);
    in.arg[0] = sum;
    in.scale = 1;
    in.limit = nnc_type_numel(t);
    return l->oom ? -1 : finish_load(l, section, p, &in, -1);
}

static int32_t emit_gather(lw *l, int section, const nnc_nest_point *p)
{
    int32_t a = l->nest->arg[p->arg], i = lw_emit(l, section, a);
    nnc_dtype d = i >= 0 ? (nnc_dtype)l->ins[i].k.dtype : DT_i64;
    if (i >= 0 && nnc_dtype_kind(d) == NNC_INT) { /* negative counts from the end */
        int64_t dim = nnc_typeof(l->g, p->v)->dim[p->at];
        if (d != DT_i64)
            i = lw_sop(l, section, SC_cast, DT_i64, i, -1, -1);
        int32_t neg =
            lw_sop(l, section, SC_lt, DT_bool, i, lw_const_int(l, section, DT_i64, 0), -1);
        int32_t up =
            lw_sop(l, section, SC_add, DT_i64, i, lw_const_int(l, section, DT_i64, dim), -1);
        i = lw_sop(l, section, SC_select, DT_i64, neg, up, i);
    }
    return i < 0 ? -1 : emit_load(l, section, p, i, -1);
}

static int32_t emit_ewise(lw *l, int section, const nnc_nest_point *p)
{
    const nnc_node *n = nnc_def(l->g, p->v);
    int32_t a[3] = {-1, -1, -1};
    nnc_sop sop;
    if (!nnc_sop_of((nnc_op)n->op, &sop) || p->n_arg > 3) {
        l->oom = true;
        return -1;
    }
    for (int i = 0; i < p->n_arg; i++)
        if ((a[i] = lw_emit(l, section, l->nest->arg[p->arg + i])) < 0)
            return -1;
    nnc_dtype d = (nnc_dtype)nnc_typeof(l->g, p->v)->dtype;
    nnc_kins in = blank(KO_sop, nnc_kdtype(d));
    in.sop = (uint8_t)sop;
    memcpy(in.arg, a, sizeof a);
    if (sop == SC_cast)
        in.cast_to = (uint8_t)d;
    return lw_add(l, section, &in);
}

/* The point under a guard, with `fill` where the guards between `inner` and `outer` fail. */
static int32_t emit_filled(
    lw *l, int section, int32_t point, int32_t inner, int32_t outer, int32_t fill)
{
    const nnc_nest_point *p = &l->nest->point[point];
    if (p->what == NP_load && p->guard == inner)
        return emit_load(l, section, p, -1, fill);
    int32_t x = lw_emit(l, section, point), c = condition(l, section, inner, outer);
    if (x < 0 || c < 0)
        return -1;
    return lw_sop(l, section, SC_select, (nnc_dtype)l->ins[x].k.dtype, c, x, fill);
}

static int32_t emit_pad(lw *l, int section, const nnc_nest_point *p)
{
    const nnc_node *n = nnc_def(l->g, p->v);
    nnc_dtype d = nnc_kdtype((nnc_dtype)nnc_typeof(l->g, p->v)->dtype);
    int32_t fill = lw_const(l, section, d, nnc_attr_float(n, AT_value, 0));
    return emit_filled(l, section, l->nest->arg[p->arg], p->at, p->guard, fill);
}

/* index < bound[0] ? first : index < bound[1] ? second : ... */
static int32_t emit_concat(lw *l, int section, const nnc_nest_point *p)
{
    const nnc_node *n = nnc_def(l->g, p->v);
    int64_t end = nnc_typeof(l->g, p->v)->dim[p->at];
    int32_t x = -1, e = index_value(l, section, &p->idx[p->at]);
    for (int i = p->n_arg - 1; i >= 0; i--) {
        int32_t y = lw_emit(l, section, l->nest->arg[p->arg + i]);
        if (y < 0)
            return -1;
        if (x >= 0) {
            int32_t b = lw_const_int(l, section, DT_i64, end);
            int32_t c = lw_sop(l, section, SC_lt, DT_bool, e, b, -1);
            x = lw_sop(l, section, SC_select, (nnc_dtype)l->ins[y].k.dtype, c, y, x);
        } else {
            x = y;
        }
        end -= nnc_typeof(l->g, n->in[i])->dim[p->at];
    }
    return x;
}

/* Products are summed with one rounding: f32 x w + 0 says so. */
static int32_t emit_pair(lw *l, int section, const nnc_nest_point *p)
{
    nnc_dtype d = nnc_kdtype((nnc_dtype)nnc_typeof(l->g, p->v)->dtype);
    int32_t a = lw_emit(l, section, l->nest->arg[p->arg]);
    int32_t b = a < 0 ? -1 : lw_emit(l, section, l->nest->arg[p->arg + 1]);
    if (b < 0)
        return -1;
    if (p->what == NP_product && d == DT_f32)
        return lw_sop(l, section, SC_fma, d, a, b, lw_const(l, section, d, 0));
    return lw_sop(l, section, p->what == NP_sum ? SC_add : SC_mul, d, a, b, -1);
}

static int32_t emit_iota(lw *l, int section, const nnc_nest_point *p)
{
    const nnc_node *n = nnc_def(l->g, p->v);
    nnc_dtype d = (nnc_dtype)nnc_typeof(l->g, p->v)->dtype;
    int32_t x = index_value(l, section, &p->idx[nnc_attr_int(n, AT_dim, 0)]);
    if (d == DT_i64)
        return x;
    x = lw_sop(l, section, SC_cast, nnc_kdtype(d), x, -1, -1);
    if (x >= 0)
        l->ins[x].k.cast_to = (uint8_t)d;
    return x;
}

static int32_t emit_new(lw *l, int section, int32_t point)
{
    const nnc_nest_point *p = &l->nest->point[point];
    for (int i = 0; i < l->n_keep; i++)
        if (l->keep[i].consumer == point) {
            nnc_dtype d = l->k->buf[l->keep[i].buf].dtype;
            nnc_kins in = blank(KO_load, d);
            in.buf = (int16_t)l->keep[i].buf;
            in.at = l->keep[i].at;
            return lw_add(l, section, &in);
        }
    switch ((nnc_nest_what)p->what) {
    case NP_load:
        return emit_load(l, section, p, -1, -1);
    case NP_iota:
        return emit_iota(l, section, p);
    case NP_ewise:
        return emit_ewise(l, section, p);
    case NP_pad:
        return emit_pad(l, section, p);
    case NP_concat:
        return emit_concat(l, section, p);
    case NP_gather:
        return emit_gather(l, section, p);
    case NP_product:
    case NP_sum:
        return emit_pair(l, section, p);
    case NP_row:
        return l->row[p->at];
    case NP_wild:
        return emit_wild(l, section, p);
    default:
        return -1;
    }
}

static bool store_kept(lw *l, int section, int32_t point, int32_t x)
{
    for (int i = 0; i < l->n_keep; i++)
        if (l->keep[i].producer == point) {
            nnc_kins in = blank(KO_store, (nnc_dtype)l->ins[x].k.dtype);
            in.buf = (int16_t)l->keep[i].buf;
            in.at = l->keep[i].store_at;
            in.arg[0] = x;
            if (lw_add(l, section, &in) < 0)
                return false;
        }
    return true;
}

int32_t lw_emit(lw *l, int section, int32_t point)
{
    const nnc_nest_point *p = &l->nest->point[point];
    if (l->oom)
        return -1;
    if (p->what == NP_const)
        return lw_const(l, section, nnc_kdtype((nnc_dtype)nnc_typeof(l->g, p->v)->dtype), p->f);
    if (l->value[point] >= 0)
        return l->value[point];
    int home = lw_section_of(l, point);
    int32_t x = emit_new(l, home, point);
    if (x >= 0 && !store_kept(l, home, point, x))
        return -1;
    return l->value[point] = x;
}

/* ---- reductions and results ---- */

static double neutral(nnc_op op)
{
    switch (op) {
    case OP_reduce_prod:
        return 1;
    case OP_maxpool:
    case OP_reduce_max:
        return -INFINITY;
    case OP_reduce_min:
        return INFINITY;
    default:
        return 0;
    }
}

static int32_t neutral_const(lw *l, int section, nnc_op op, nnc_dtype d)
{
    if (nnc_is_float(d) || op != OP_maxpool)
        return lw_const(l, section, d, neutral(op));
    return lw_const_int(l, section, d, nnc_int_end(d, false));
}

static nnc_kred kind_of(nnc_op op)
{
    switch (op) {
    case OP_reduce_prod:
        return KR_prod;
    case OP_reduce_max:
    case OP_maxpool:
        return KR_max;
    case OP_reduce_min:
        return KR_min;
    case OP_argmax:
        return KR_argmax;
    case OP_argmin:
        return KR_argmin;
    default:
        return KR_sum;
    }
}

/* min(start + extent, end) - max(start, begin): elements of a window inside, of one dimension. */
static int32_t window_count(
    lw *l, int section, const nnc_nest_map *start, int64_t extent, int64_t begin, int64_t end)
{
    int64_t lo, hi;
    nnc_nest_span(l->nest, start, &lo, &hi);
    if (lo >= begin && hi + extent <= end)
        return lw_const_int(l, section, DT_i64, extent);
    int32_t s = index_value(l, section, start), from = s;
    int32_t to =
        lw_sop(l, section, SC_add, DT_i64, s, lw_const_int(l, section, DT_i64, extent), -1);
    if (hi + extent > end)
        to = lw_sop(l, section, SC_min, DT_i64, to, lw_const_int(l, section, DT_i64, end), -1);
    if (lo < begin)
        from = lw_sop(l, section, SC_max, DT_i64, s, lw_const_int(l, section, DT_i64, begin), -1);
    return lw_sop(l, section, SC_sub, DT_i64, to, from, -1);
}

/* Divisor of an average pooling: the elements inside, of the padded operand when padding counts. */
static int32_t pool_divisor(lw *l, int section, const nnc_nest_reduce *r, const nnc_node *n)
{
    const nnc_type *x = nnc_typeof(l->g, n->in[0]);
    nnc_dtype d = nnc_kdtype((nnc_dtype)x->dtype);
    bool whole = nnc_attr_int(n, AT_count_include_pad, 0) != 0;
    const int64_t *kernel, *pads = NULL;
    int dims = nnc_attr_ints(n, AT_kernel, &kernel), np = nnc_attr_ints(n, AT_pads, &pads);
    int64_t fixed = 1;
    int32_t count = -1;
    for (int i = 0; i < dims; i++) {
        int64_t begin = whole && np ? -pads[i] : 0;
        int64_t end = x->dim[i + 2] + (whole && np ? pads[dims + i] : 0);
        int32_t c = window_count(l, section, &r->start[i], kernel[i], begin, end);
        if (c < 0)
            return -1;
        if (l->ins[c].k.op == KO_const)
            fixed *= l->ins[c].k.i;
        else
            count = count < 0 ? c : lw_sop(l, section, SC_mul, DT_i64, count, c, -1);
    }
    if (count < 0)
        return lw_const(l, section, d, (double)fixed);
    if (fixed != 1)
        count =
            lw_sop(l, section, SC_mul, DT_i64, count, lw_const_int(l, section, DT_i64, fixed), -1);
    return lw_sop(l, section, SC_cast, d, count, -1, -1);
}

bool lw_emit_reduce(lw *l, int stage, int reduction)
{
    const nnc_nest_reduce *r = &l->nest->reduce[reduction];
    const nnc_node *n = nnc_def(l->g, r->v);
    nnc_op op = (nnc_op)n->op;
    int body = 2 * stage, post = body + 1;
    nnc_dtype d = nnc_kdtype((nnc_dtype)nnc_typeof(l->g, n->in[0])->dtype);
    int32_t x = r->inner == r->guard ? lw_emit(l, body, r->operand)
                                     : emit_filled(l, body, r->operand, r->inner, r->guard,
                                           neutral_const(l, body, op, d));
    if (x < 0)
        return false;
    nnc_kred kind = kind_of(op);
    nnc_kins in = blank(KO_reduce, kind >= KR_argmax ? DT_i64 : d);
    in.sop = (uint8_t)kind;
    in.arg[0] = x;
    int32_t y = lw_add(l, body, &in);
    if (op == OP_reduce_mean) {
        int64_t count = 1;
        for (int a = 0; a < l->nest->n_axis; a++)
            if (l->nest->ctx[r->ctx].axes >> a & 1)
                count *= l->nest->axis[a].extent;
        y = lw_sop(l, post, SC_div, d, y, lw_const(l, post, d, (double)count), -1);
    } else if (op == OP_avgpool) {
        y = lw_sop(l, post, SC_div, d, y, pool_divisor(l, post, r, n), -1);
    }
    l->row[reduction] = y;
    return y >= 0 && !l->oom;
}

bool lw_emit_store(lw *l, const nnc_nest_store *o)
{
    int j = 0;
    while (l->result[j] != o->v)
        j++;
    int rank = nnc_typeof(l->g, o->v)->rank;
    uint32_t axes = 0;
    for (int d = 0; d < rank; d++)
        for (int a = 0; a < NNC_KAXES; a++)
            axes |= (uint32_t)(o->idx[d].k[a] != 0) << a;
    int section = l->flat                  ? 0
                  : axes & ~l->nest->outer ? 2 * lw_stage_of_ctx(l, o->ctx)
                                           : l->row_section[l->nest->point[o->point].level];
    int32_t x = lw_emit(l, section, o->point);
    for (; x >= 0 && j < l->n_result; j++) { /* one value may be several results */
        if (l->result[j] != o->v)
            continue;
        nnc_kins in = blank(KO_store, (nnc_dtype)l->ins[x].k.dtype);
        in.buf = (int16_t)(l->n_operand + j);
        in.at = lw_offset(&l->result_type[j], o->idx, rank);
        in.arg[0] = x;
        if (!set_guards(l, &in, o->guard) || lw_add(l, section, &in) < 0)
            return false;
    }
    return x >= 0;
}
