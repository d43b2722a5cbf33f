/* engines/loops_rows.c -- rows of elements in and out of the "loops" engine: conversion between
 * any dtype and the accumulator types, and the end of every row (bias, post-operations, store). */
#include "engines/loops.h"
#include <math.h>
#include <string.h>

#define STRIDED(T, expr) \
    do { \
        const T *s = (const T *)base + off; \
        for (int64_t i = 0; i < n; i++) { \
            T v = s[i * stride]; \
            o[i] = (expr); \
        } \
    } while (0)

static void load_f32(
    nnc_dtype d, const void *base, int64_t off, int64_t stride, int64_t n, float *o)
{
    switch (d) {
    case DT_f32:
        if (stride == 1)
            memcpy(o, (const float *)base + off, (size_t)n * sizeof *o);
        else
            STRIDED(float, v);
        break;
    case DT_f16:
        STRIDED(uint16_t, nnc_f16_to_f32(v));
        break;
    case DT_bf16:
        STRIDED(uint16_t, nnc_bf16_to_f32(v));
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            o[i] = (float)nnc_get_f64(d, base, off + i * stride);
    }
}

static void load_f64(
    nnc_dtype d, const void *base, int64_t off, int64_t stride, int64_t n, double *o)
{
    if (d == DT_f64)
        STRIDED(double, v);
    else
        for (int64_t i = 0; i < n; i++)
            o[i] = nnc_get_f64(d, base, off + i * stride);
}

static void load_i64(
    nnc_dtype d, const void *base, int64_t off, int64_t stride, int64_t n, int64_t *o)
{
    switch (d) {
    case DT_i8:
        STRIDED(int8_t, v);
        break;
    case DT_u8:
        STRIDED(uint8_t, v);
        break;
    case DT_i32:
        STRIDED(int32_t, v);
        break;
    case DT_i64:
        STRIDED(int64_t, v);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            o[i] = nnc_get_i64(d, base, off + i * stride);
    }
}
#undef STRIDED

void lp_load(
    lp_acc a, nnc_dtype d, const void *base, int64_t off, int64_t stride, int64_t n, void *out)
{
    if (a == LP_F32)
        load_f32(d, base, off, stride, n, out);
    else if (a == LP_F64)
        load_f64(d, base, off, stride, n, out);
    else
        load_i64(d, base, off, stride, n, out);
}

void lp_store(
    lp_acc a, nnc_dtype d, void *base, int64_t off, int64_t stride, int64_t n, const void *in)
{
    const float *f = in;
    if (a == LP_F32 && d == DT_f32) {
        float *o = (float *)base + off;
        if (stride == 1)
            memcpy(o, f, (size_t)n * sizeof *o);
        else
            for (int64_t i = 0; i < n; i++)
                o[i * stride] = f[i];
    } else if (a == LP_F32 && d == DT_bf16) {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)base)[off + i * stride] = nnc_f32_to_bf16(f[i]);
    } else if (a == LP_F32 && d == DT_f16) {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)base)[off + i * stride] = nnc_f32_to_f16(f[i]);
    } else if (a == LP_I64) {
        for (int64_t i = 0; i < n; i++)
            nnc_set_i64(d, base, off + i * stride, ((const int64_t *)in)[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            nnc_set_f64(
                d, base, off + i * stride, a == LP_F32 ? (double)f[i] : ((const double *)in)[i]);
    }
}

bool lp_post_ok(lp_acc a, const nnc_post *p, const char **why)
{
    *why = "this post-operation is for floats only";
    return a != LP_I64 || p->kind == PO_sum || p->kind == PO_relu || p->kind == PO_clip;
}

/* One post-operation over a row. */
#define POST(name, op, formula, onednn, cudnn) \
    case PO_##name: \
        for (int64_t i = 0; i < n; i++) { \
            const T v = r[i]; \
            r[i] = formula; \
        } \
        break;

#define T float
#define FN(name) name##f
static void post_f32(const nnc_post *p, T *r, int64_t n)
{
    const T al = p->alpha, be = p->beta;
    switch ((nnc_post_kind)p->kind) {
#include "base/post.def"
    case PO__COUNT:
        break;
    }
}
#undef T
#undef FN

#define POST(name, op, formula, onednn, cudnn) \
    case PO_##name: \
        for (int64_t i = 0; i < n; i++) { \
            const T v = r[i]; \
            r[i] = formula; \
        } \
        break;
#define T double
#define FN(name) name
static void post_f64(const nnc_post *p, T *r, int64_t n)
{
    const T al = (T)p->alpha, be = (T)p->beta;
    switch ((nnc_post_kind)p->kind) {
#include "base/post.def"
    case PO__COUNT:
        break;
    }
}
#undef T
#undef FN

/* Integers: the accumulator is first brought into the destination's type, where comparisons are
 * meant. */
static void post_int(const nnc_post *p, nnc_dtype d, int64_t *r, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        union {
            int64_t v;
            uint8_t b[8];
        } u = {0};
        nnc_set_i64(d, &u, 0, r[i]);
        double v = nnc_get_f64(d, &u, 0);
        r[i] = nnc_get_i64(d, &u, 0);
        if (p->kind == PO_relu && v < 0)
            r[i] = 0;
        else if (p->kind == PO_clip && v < (double)p->alpha)
            r[i] = (int64_t)p->alpha;
        else if (p->kind == PO_clip && v > (double)p->beta)
            r[i] = (int64_t)p->beta;
    }
}

/* acc[i] += base[off + i * stride], in pieces through a small buffer. */
static void add_row(const lp_handle *h, nnc_dtype d, const void *base, int64_t off, int64_t stride,
    int64_t n, char *row)
{
    double buf[64]; /* 8 bytes an accumulator at most */
    for (int64_t i = 0; i < n; i += 64) {
        int64_t m = n - i < 64 ? n - i : 64;
        lp_load(h->acc, d, base, off + i * stride, stride, m, buf);
        h->k->add(m, buf, row + i * h->esize);
    }
}

void lp_finish(const lp_handle *h, const lp_args *a, void *row, int64_t n, int64_t bias_off,
    int64_t bias_stride, int64_t dst_off, int64_t dst_stride)
{
    const nnc_call *c = &h->c;
    if (a->bias)
        add_row(h, c->bias.dtype, a->bias, bias_off, bias_stride, n, row);
    for (int p = 0; p < c->n_post; p++)
        if (c->post[p].kind == PO_sum)
            add_row(h, c->dst.dtype, a->sum[p], dst_off, dst_stride, n, row);
        else if (h->acc == LP_F32)
            post_f32(&c->post[p], row, n);
        else if (h->acc == LP_F64)
            post_f64(&c->post[p], row, n);
        else
            post_int(&c->post[p], c->dst.dtype, row, n);
    lp_store(h->acc, c->dst.dtype, a->dst, dst_off, dst_stride, n, row);
}
