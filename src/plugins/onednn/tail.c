/* plugins/onednn/tail.c -- see tail.h. */
#include "plugins/onednn/tail.h"
#include "base/par.h"
#include <math.h>
#include <string.h>

enum {
    BLOCK = 1024, /* elements at a time: stays in L1 */
    PARALLEL_BYTES =
        256 << 10, /* from here on several threads pay (512 KB by two: 22 us instead of 31) */
};

#define T float
#define FN(name) name##f
#define POST(name, op, formula, onednn, cudnn) \
    case PO_##name: \
        for (int i = 0; i < n; i++) { \
            const T v = x[i]; \
            x[i] = formula; \
        } \
        break;
/* sum: NULL when no post-operation is a sum. */
NNC_BODY post_body(const nnc_post *p, T *restrict x, const T *restrict sum, int n)
{
    const T al = p->alpha, be = p->beta;
    for (int i = 0; i < n && sum && p->kind == PO_sum; i++)
        x[i] += sum[i];
    switch ((nnc_post_kind)p->kind) {
#include "base/post.def"
    case PO__COUNT: break;
    }
}
NNC_DISPATCH(post, (const nnc_post *p, T *restrict x, const T *restrict sum, int n), (p, x, sum, n))
#undef T
#undef FN

void dn_tail_values(const nnc_call *c, float *values, int n)
{
    for (int i = 0; i < c->n_post; i++)
        post(&c->post[i], values, NULL, n);
}

static void load(nnc_dtype d, const void *from, int64_t at, int n, float *to)
{
    if (d == DT_f32)
        memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
    else
        for (int i = 0; i < n; i++)
            to[i] = (float)nnc_get_f64(d, from, at + i);
}

static void store(nnc_dtype d, void *to, int64_t at, int n, const float *from)
{
    if (d == DT_f32)
        memcpy((float *)to + at, from, (size_t)n * sizeof *from);
    else
        for (int i = 0; i < n; i++)
            nnc_set_f64(d, to, at + i, from[i]);
}

static void block(const nnc_call *c, int first, const void *from, void *dst, int64_t at, int n)
{
    const nnc_dtype d = (nnc_dtype)c->dst.dtype;
    float v[BLOCK], sum[BLOCK];
    if (d == DT_f32 && from == dst) { /* no sum */
        for (int i = first; i < c->n_post; i++)
            post(&c->post[i], (float *)dst + at, NULL, n);
        return;
    }
    load(d, from, at, n, v);
    if (from != dst)
        load(d, dst, at, n, sum);
    for (int i = first; i < c->n_post; i++)
        post(&c->post[i], v, sum, n);
    store(d, dst, at, n, v);
}

typedef struct tail_work {
    const nnc_call *c;
    int first;
    const void *from;
    void *dst;
} tail_work;

static void tail_part(void *ctx, int part, int parts)
{
    const tail_work *w = ctx;
    const int64_t all = nnc_type_numel(&w->c->dst);
    int64_t begin, end;
    nnc_par_range(all, BLOCK, part, parts, &begin, &end);
    for (int64_t at = begin; at < end; at += BLOCK)
        block(w->c, w->first, w->from, w->dst, at, (int)(end - at < BLOCK ? end - at : BLOCK));
}

void dn_tail(const nnc_call *c, int first, const void *from, void *dst)
{
    tail_work w = {c, first, from, dst};
    nnc_par_run(nnc_type_bytes(&c->dst) < PARALLEL_BYTES ? 1 : c->threads, tail_part, &w);
}
