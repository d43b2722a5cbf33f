/* tests/gen/rounding.c -- see rounding.h. */
#include "rounding.h"

#include <math.h>
#include <string.h>

enum { MOST_BUFFERS = 64, TRIES = 16 };

void gen_fill_operand(const nnc_kbuf *b, uint64_t key, void *dst)
{
    for (int64_t i = 0; i < b->numel; i++) {
        const uint32_t r = nnc_rng_u32(key, (uint64_t)i);
        if (nnc_is_float(b->dtype))
            nnc_set_f64(b->dtype, dst, i, (double)(r >> 8) * 0x1p-22 - 2);
        else
            nnc_set_i64(
                b->dtype, dst, i, b->dtype == DT_bool ? r >> 20 & 1 : (int64_t)(r >> 20 & 15) - 8);
    }
}

nnc_kernel *gen_widened(const nnc_kernel *k, nnc_arena *arena)
{
    nnc_kernel *w = nnc_arena_memdup(arena, k, sizeof *k);
    w->ins = nnc_arena_memdup(arena, k->ins, sizeof *k->ins * (size_t)k->n_ins);
    w->buf = nnc_arena_memdup(arena, k->buf, sizeof *k->buf * (size_t)k->n_buf);
    bool narrow = false;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_sop && in->sop == SC_cast &&
            (nnc_is_float((nnc_dtype)in->cast_to) || nnc_is_float(k->ins[in->arg[0]].dtype)))
            return NULL;
        narrow |= in->dtype == DT_f32;
        if (in->dtype == DT_f32)
            w->ins[i].dtype = DT_f64;
    }
    for (int b = 0; b < k->n_buf; b++)
        if (nnc_is_float(k->buf[b].dtype))
            w->buf[b].dtype = DT_f64;
    return narrow ? w : NULL;
}

void *gen_widen(const nnc_kbuf *b, const void *data)
{
    double *wide = nnc_aligned_alloc(64, 8 * (size_t)b->numel + 64);
    if (!nnc_is_float(b->dtype))
        return memcpy(wide, data, (size_t)(b->numel * nnc_dtype_size(b->dtype)));
    for (int64_t i = 0; i < b->numel; i++)
        wide[i] = nnc_get_f64(b->dtype, data, i);
    return wide;
}

void gen_interpret(const nnc_kernel *k, void *const *arg)
{
    void *scratch = nnc_aligned_alloc(64, 2 * (size_t)k->scratch_bytes + 64);
    nnc_interp *s = nnc_interp_create(k);
    nnc_interp_run(s, arg, 0, k->sched.domain, scratch);
    nnc_interp_destroy(s);
    nnc_free(scratch);
}

/* Moves floats by about one unit in the last place, which hardly changes what their rounding does on average. */
static void nudge(const nnc_kbuf *b, uint64_t key, void *data)
{
    const double unit = b->dtype == DT_bf16 ? 0x1p-7 : b->dtype == DT_f16 ? 0x1p-10 : 0x1p-23;
    for (int64_t i = 0; nnc_is_float(b->dtype) && i < b->numel; i++) {
        const double by = nnc_rng_u32(key, (uint64_t)i) & 1 ? unit : -unit;
        nnc_set_f64(b->dtype, data, i, nnc_get_f64(b->dtype, data, i) * (1 + by));
    }
}

/* The interpreter's error at the element; *answer: that of f64. key 0: the operands are not moved. */
static double error_at(const nnc_kernel *k, const nnc_kernel *wide, uint64_t seed, uint64_t key,
    const nnc_kbuf *of, int64_t i, double *answer)
{
    void *a[MOST_BUFFERS] = {0}, *w[MOST_BUFFERS] = {0};
    int n = 0, at = 0;
    for (int b = 0; b < k->n_buf && n < MOST_BUFFERS; b++) {
        const nnc_kbuf *f = &k->buf[b];
        if (f->role == KB_tmp)
            continue;
        at = f == of ? n : at;
        a[n] = nnc_aligned_alloc(64, (size_t)(f->numel * nnc_dtype_size(f->dtype)) + 64);
        gen_fill_operand(f, seed + (uint64_t)b, a[n]);
        if (key)
            nudge(f, key + (uint64_t)b, a[n]);
        w[n] = gen_widen(f, a[n]);
        n++;
    }
    gen_interpret(k, a);
    gen_interpret(wide, w);
    *answer = ((double *)w[at])[i];
    const double error = fabs(nnc_get_f64(of->dtype, a[at], i) - *answer);
    while (n-- > 0) {
        nnc_free(a[n]);
        nnc_free(w[n]);
    }
    return error;
}

bool gen_is_rounding(const nnc_kernel *k, uint64_t seed, const nnc_kbuf *of, int64_t i, double got)
{
    nnc_arena arena;
    nnc_arena_init(&arena, 0);
    const nnc_kernel *wide = nnc_is_float(of->dtype) ? gen_widened(k, &arena) : NULL;
    double answer = NAN, next, most = 0;
    if (wide)
        (void)error_at(k, wide, seed, 0, of, i, &answer);
    for (uint64_t t = 0; wide && t < TRIES; t++) {
        const double e = error_at(k, wide, seed, 1 + nnc_rng_u32(seed, t), of, i, &next);
        most = isfinite(e) ? fmax(most, e) : most;
    }
    nnc_arena_deinit(&arena);
    return fabs(got - answer) <= 4 * most;
}
