/* tests/gen/body.c -- see body.h. */
#include "gen/body.h"

#include <math.h>
#include <string.h>

enum { INPUTS = 6, MOST = 200 };

typedef struct maker {
    const gen_body_options *o;
    nnc_kernel *k;
    uint64_t key, at;
} maker;

static uint32_t draw(maker *m, uint32_t n)
{
    return nnc_rng_u32(m->key, m->at++) % n;
}

/* ---- values ---- */

static double extreme_float(nnc_dtype d, uint32_t r, uint32_t s)
{
    static const double any[] = {0, 1, 2, 0.5, 3, 0.1, 1e-3, 1.5707963267948966, 3.141592653589793,
        88.7, 87, 104, 65504, 65520, 105615, 65536, 16777216, 2147483648.0, 4294967296.0, 0x1p53,
        0x1p63, 0x1p64, 1e10, 1e30, 1e-30, INFINITY, 127.5, 128, 255, 256, 32768};
    static const double f32[] = {
        0x1p-149, 0x1p-126, 0x1.fffffep127, 0x1p-127, 0x1p127, 0x1.fffffep-1, 0x1p-75};
    static const double f64[] = {
        0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023, 0x1p-1023, 1e300, 1e-300, 709.8};
    static const double f16[] = {0x1p-24, 0x1p-14, 65504, 0x1p-25, 2048, 0x1.ffcp-1, 32752};
    uint32_t kind = r % 8, which = s >> 1;
    double v = kind < 4    ? any[which % NNC_COUNT(any)]
               : kind == 4 ? d == DT_f64   ? f64[which % NNC_COUNT(f64)]
                             : d == DT_f16 ? f16[which % NNC_COUNT(f16)]
                                           : f32[which % NNC_COUNT(f32)]
               : kind == 5 ? (double)(which % 4096) / 512 - 4
               : kind == 6 ? ldexp(1 + (which % 1024) / 1024.0, (int)(which >> 10) % 280 - 140)
                           : (which % 3 ? (double)which : NAN);
    return s & 1 ? -v : v;
}

static int64_t extreme_int(nnc_dtype d, uint32_t r, uint32_t s)
{
    int bits = d == DT_bool ? 1 : 8 * nnc_dtype_size(d);
    uint64_t one = UINT64_C(1) << (s % (uint32_t)bits), v;
    switch (r % 6) {
    case 0: v = one; break;
    case 1: v = one - 1; break;
    case 2: v = 0 - one; break;
    case 3: v = (s >> 8) % 5 - 2; break;
    case 4: v = (uint64_t)(int64_t)(int32_t)s * (r | 1); break;
    default: v = one + (s >> 8) % 3 - 1;
    }
    int64_t cell = 0;
    nnc_set_i64(d, &cell, 0, (int64_t)(d == DT_bool ? v & 1 : v));
    return nnc_get_i64(d, &cell, 0);
}

void gen_body_fill(const nnc_kbuf *b, uint64_t seed, void *dst)
{
    for (int64_t i = 0; i < b->numel; i++) {
        uint32_t r = nnc_rng_u32(seed, 2 * (uint64_t)i), s = nnc_rng_u32(seed, 2 * (uint64_t)i + 1);
        if (nnc_is_float(b->dtype))
            nnc_set_f64(b->dtype, dst, i, extreme_float(b->dtype, r, s));
        else
            nnc_set_i64(b->dtype, dst, i, extreme_int(b->dtype, r, s));
    }
}

bool gen_same_element(nnc_dtype d, const void *x, const void *y, int64_t i, bool *zeros)
{
    if (!nnc_is_float(d))
        return nnc_get_i64(d, x, i) == nnc_get_i64(d, y, i);
    double a = nnc_get_f64(d, x, i), b = nnc_get_f64(d, y, i);
    *zeros |= a == 0 && b == 0 && signbit(a) != signbit(b);
    return a == b || (a != a && b != b);
}

/* ---- instructions ---- */

static int32_t add(maker *m, nnc_kins in)
{
    in.lo = 1;
    m->k->ins[m->k->n_ins] = in;
    return m->k->n_ins++;
}

static nnc_kins blank(nnc_kop op, nnc_dtype d)
{
    return (nnc_kins){.op = (uint8_t)op, .dtype = (uint8_t)d, .buf = -1, .arg = {-1, -1, -1}};
}

static nnc_dtype any_dtype(maker *m)
{
    static const uint8_t often[] = {DT_f32, DT_f32, DT_f32, DT_f64, DT_i64, DT_i32, DT_bool};
    nnc_dtype d =
        draw(m, 2) ? (nnc_dtype)often[draw(m, NNC_COUNT(often))] : (nnc_dtype)draw(m, DT__COUNT);
    return d == DT_f16 || d == DT_bf16 ? DT_f32 : d;
}

static int32_t constant(maker *m, nnc_dtype d)
{
    nnc_kins in = blank(KO_const, d);
    uint32_t r = draw(m, UINT32_MAX), s = draw(m, UINT32_MAX);
    if (d == DT_f32)
        in.f = (double)(float)extreme_float(d, r, s);
    else if (d == DT_f64)
        in.f = extreme_float(d, r, s);
    else
        in.i = extreme_int(d, r, s);
    return add(m, in);
}

static int32_t cast(maker *m, int32_t x, nnc_dtype to)
{
    nnc_kins in = blank(KO_sop, to == DT_f16 || to == DT_bf16 ? DT_f32 : to);
    in.sop = SC_cast;
    in.cast_to = (uint8_t)to;
    in.arg[0] = x;
    return add(m, in);
}

/* A value of type d made before, or a constant, or a cast of any value. */
static int32_t operand(maker *m, nnc_dtype d)
{
    int n = m->k->n_ins;
    if (draw(m, 4) == 0)
        return constant(m, d);
    for (int tries = 0; tries < 12; tries++) {
        int32_t i = draw(m, 3) ? (int32_t)(n - 1 - (int)draw(m, (uint32_t)(n < 12 ? n : 12)))
                               : (int32_t)draw(m, (uint32_t)n);
        if (m->k->ins[i].dtype == d)
            return i;
    }
    return draw(m, 2) ? constant(m, d) : cast(m, (int32_t)draw(m, (uint32_t)n), d);
}

static bool usable(const maker *m, nnc_sop op, nnc_dtype d)
{
    uint32_t f = nnc_sops[op].flags;
    bool function = (op >= SC_exp && op <= SC_erf) || op == SC_rsqrt ||
                    (op == SC_pow && nnc_is_float(d)) || op == SC_fma;
    if (function && !m->o->functions)
        return false;
    bool logic = op == SC_and || op == SC_or || op == SC_xor || op == SC_not;
    if (d == DT_bool) /* has no arithmetic and no order */
        return logic || op == SC_identity || op == SC_eq || op == SC_ne || op == SC_select;
    if (logic)
        return false;
    return !(f & (nnc_is_float(d) ? OF_int : OF_float));
}

static void operation(maker *m)
{
    static const uint8_t often[] = {
        SC_min, SC_max, SC_add, SC_sub, SC_mul, SC_abs, SC_cast, SC_select, SC_div};
    nnc_dtype d = any_dtype(m);
    nnc_sop op =
        draw(m, 2) ? (nnc_sop)often[draw(m, NNC_COUNT(often))] : (nnc_sop)draw(m, SC__COUNT);
    if (op == SC_cast) {
        int32_t x = operand(m, d);
        cast(m, x, (nnc_dtype)draw(m, DT__COUNT));
        return;
    }
    if (!usable(m, op, d))
        return;
    nnc_kins in = blank(KO_sop, nnc_sops[op].res == SR_bool ? DT_bool : d);
    in.sop = (uint8_t)op;
    for (int i = 0; i < nnc_sops[op].arity; i++)
        in.arg[i] = operand(m, op == SC_select && i == 0 ? DT_bool : d);
    if (nnc_sops[op].arity == 2 && draw(m, 8) == 0)
        in.arg[1] = in.arg[0];
    add(m, in);
}

static void loads(maker *m)
{
    for (int b = 0; b < INPUTS; b++) {
        nnc_dtype d = draw(m, 2) ? any_dtype(m) : (nnc_dtype)draw(m, DT__COUNT);
        m->k->buf[m->k->n_buf++] = (nnc_kbuf){KB_in, d, m->o->points, NULL};
        nnc_kins in = blank(KO_load, d == DT_f16 || d == DT_bf16 ? DT_f32 : d);
        in.buf = (int16_t)b;
        in.at.k[0] = 1;
        add(m, in);
    }
    nnc_kins in = blank(KO_index, DT_i64);
    add(m, in);
}

static void stores(maker *m)
{
    int32_t n = m->k->n_ins, first = m->o->lines && n > m->o->lines ? n - m->o->lines : 0;
    for (int32_t i = first; i < n; i++) {
        nnc_dtype d = (nnc_dtype)m->k->ins[i].dtype;
        nnc_kins in = blank(KO_store, d);
        in.buf = (int16_t)m->k->n_buf;
        in.at.k[0] = 1;
        in.arg[0] = i;
        m->k->buf[m->k->n_buf++] = (nnc_kbuf){KB_out, d, m->o->points, NULL};
        add(m, in);
    }
}

static bool name_all(nnc_kernel *k, uint64_t seed, nnc_arena *a)
{
    bool ok = (k->name = nnc_arena_printf(a, "k_body_%llu", (unsigned long long)seed)) != NULL;
    for (int i = 0; i < k->n_axis && ok; i++)
        ok = (k->axis[i].name = nnc_arena_printf(a, "%c%d", i ? 'r' : 'i', i)) != NULL;
    for (int b = 0; b < k->n_buf && ok; b++)
        ok = (k->buf[b].name =
                     nnc_arena_printf(a, "%c%d", k->buf[b].role == KB_in ? 'x' : 'y', b)) != NULL;
    return ok;
}

nnc_kernel *gen_body(const gen_body_options *o, nnc_arena *a)
{
    int room = o->ops < MOST ? o->ops : MOST;
    maker m = {.o = o, .key = nnc_rng_key("body", o->seed), .k = ARENA_NEW(a, nnc_kernel, 1)};
    if (!m.k)
        return NULL;
    m.k->ins = ARENA_NEW(a, nnc_kins, 10 * room + 100);
    m.k->buf = ARENA_NEW(a, nnc_kbuf, 5 * room + 50);
    m.k->stage = ARENA_NEW(a, nnc_kstage, 1);
    if (!m.k->ins || !m.k->buf || !m.k->stage)
        return NULL;
    m.k->n_axis = m.k->n_outer = m.k->n_stage = 1;
    m.k->axis[0] = (nnc_kaxis){KA_outer, o->points, NULL};
    loads(&m);
    for (int i = 0; i < room; i++)
        operation(&m);
    stores(&m);
    m.k->stage[0] = (nnc_kstage){.body1 = m.k->n_ins, .post0 = m.k->n_ins, .post1 = m.k->n_ins};
    return name_all(m.k, o->seed, a) ? m.k : NULL;
}

/* ---- rows ---- */

static int32_t row_load(maker *m, nnc_dtype d, bool along)
{
    const nnc_kernel *k = m->k;
    int64_t n = 1, inner = 1;
    nnc_kins in = blank(KO_load, nnc_is_float(d) && d != DT_f64 ? DT_f32 : d);
    for (int a = k->n_axis - 1; a > 0; a--) {
        in.at.k[a] = along ? inner : inner * k->axis[0].extent;
        inner *= k->axis[a].extent;
    }
    in.at.k[0] = along ? inner : 1;
    n = inner * k->axis[0].extent;
    in.buf = (int16_t)m->k->n_buf;
    m->k->buf[m->k->n_buf++] = (nnc_kbuf){KB_in, d, n, NULL};
    return add(m, in);
}

static int32_t row_reduce(maker *m, int32_t x, int32_t mask)
{
    nnc_dtype d = (nnc_dtype)m->k->ins[x].dtype;
    nnc_kred r = (nnc_kred)draw(m, 6);
    if (nnc_is_float(d) && r < KR_max)
        r = KR_argmin;
    nnc_kins in = blank(KO_reduce, r >= KR_argmax ? DT_i64 : d);
    in.sop = (uint8_t)r;
    in.arg[0] = x;
    in.arg[1] = draw(m, 3) ? -1 : mask;
    return add(m, in);
}

nnc_kernel *gen_rows(uint64_t seed, nnc_arena *a)
{
    static const int64_t lengths[] = {1, 2, 3, 7, 8, 16, 31, 33, 64, 100, 257, 1000};
    maker m = {.key = nnc_rng_key("rows", seed), .k = ARENA_NEW(a, nnc_kernel, 1)};
    int32_t red[8];
    if (!m.k || !(m.k->ins = ARENA_NEW(a, nnc_kins, 64)) ||
        !(m.k->buf = ARENA_NEW(a, nnc_kbuf, 32)) || !(m.k->stage = ARENA_NEW(a, nnc_kstage, 1)))
        return NULL;
    m.k->axis[m.k->n_axis++] = (nnc_kaxis){KA_outer, lengths[draw(&m, NNC_COUNT(lengths))], NULL};
    for (int n = 1 + (int)draw(&m, 2); n > 0; n--)
        m.k->axis[m.k->n_axis++] =
            (nnc_kaxis){KA_reduce, lengths[draw(&m, n > 1 ? 5 : NNC_COUNT(lengths))], NULL};
    m.k->n_outer = m.k->n_stage = 1;
    int32_t mask = row_load(&m, DT_bool, draw(&m, 2)), n = 2 + (int32_t)draw(&m, 4);
    for (int i = 0; i < n; i++) {
        nnc_dtype d = (nnc_dtype)draw(&m, DT__COUNT);
        red[i] = row_load(&m, d == DT_bool ? DT_u8 : d, draw(&m, 3));
    }
    for (int i = 0; i < n; i++)
        red[i] = row_reduce(&m, red[i], mask);
    m.k->stage[0] =
        (nnc_kstage){.axes = m.k->n_axis == 2 ? 2 : 6, .body1 = m.k->n_ins, .post0 = m.k->n_ins};
    for (int i = 0; i < n; i++) {
        nnc_kins in = blank(KO_store, (nnc_dtype)m.k->ins[red[i]].dtype);
        in.buf = (int16_t)m.k->n_buf;
        in.at.k[0] = 1;
        in.arg[0] = red[i];
        m.k->buf[m.k->n_buf++] = (nnc_kbuf){KB_out, (nnc_dtype)in.dtype, m.k->axis[0].extent, NULL};
        add(&m, in);
    }
    m.k->stage[0].post1 = m.k->n_ins;
    return name_all(m.k, seed, a) ? m.k : NULL;
}
