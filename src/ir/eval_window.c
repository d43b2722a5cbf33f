/* ir/eval_window.c -- reference evaluation of pooling over 1 to 3 spatial dimensions.
 *
 * Where avgpool's window extends beyond the padded input (ceil_mode), count_include_pad divides by the number of elements inside the
 * padded input, as PyTorch and ONNX do. */
#include "ir/eval_internal.h"

#include <math.h>
#include <string.h>

void ev_space_of(
    ev_space *s, const nnc_node *n, const nnc_type *x, const nnc_type *y, const int64_t *kernel)
{
    const int64_t *stride = NULL, *pads = NULL, *dil = NULL;
    int ns = nnc_attr_ints(n, AT_strides, &stride), np = nnc_attr_ints(n, AT_pads, &pads);
    int nd = nnc_attr_ints(n, AT_dilations, &dil);
    int r = s->rank = x->rank - 2;
    for (int d = 0; d < 3; d++) {
        int o = d - (3 - r); /* dimension as numbered by the user */
        s->in[d] = o < 0 ? 1 : x->dim[2 + o];
        s->out[d] = o < 0 ? 1 : y->dim[2 + o];
        s->k[d] = o < 0 ? 1 : kernel[o];
        s->stride[d] = o < 0 || !ns ? 1 : stride[o];
        s->begin[d] = o < 0 || !np ? 0 : pads[o];
        s->end[d] = o < 0 || !np ? 0 : pads[r + o];
        s->dil[d] = o < 0 || !nd ? 1 : dil[o];
    }
}

typedef struct pool {
    ev_space s;
    bool is_max, whole; /* whole: count_include_pad */
    nnc_dtype d;
    int64_t in_size, out_size;
    const uint64_t *x;
    uint64_t *y;
} pool;

/* The range of kernel indices whose input index lies inside, and the divisor of this dimension. */
static void clip_window(
    const ev_space *s, int d, int64_t o, int64_t *from, int64_t *to, int64_t *count)
{
    int64_t at = o * s->stride[d] - s->begin[d];
    *from = at >= 0 ? 0 : nnc_ceildiv(-at, s->dil[d]);
    *to = nnc_min64(s->k[d], at >= s->in[d] ? 0 : nnc_ceildiv(s->in[d] - at, s->dil[d]));
    int64_t padded = s->in[d] + s->end[d] - at; /* elements up to the end of the padding */
    *count = nnc_min64(s->k[d], nnc_ceildiv(padded, s->dil[d]));
}

static uint64_t pool_one(const pool *p, const uint64_t *x, const int64_t o[3])
{
    const ev_space *s = &p->s;
    int64_t from[3], to[3], count[3];
    for (int d = 0; d < 3; d++)
        clip_window(s, d, o[d], &from[d], &to[d], &count[d]);
    bool is_float = nnc_is_float(p->d);
    double acc = p->is_max ? -INFINITY : 0;
    int64_t iacc = is_float ? 0 : ev_int(p->d, ev_attr_value(p->d, -INFINITY)), inside = 0;
    for (int64_t a = from[0]; a < to[0]; a++)
        for (int64_t b = from[1]; b < to[1]; b++) {
            int64_t i = o[0] * s->stride[0] - s->begin[0] + a * s->dil[0];
            int64_t j = o[1] * s->stride[1] - s->begin[1] + b * s->dil[1];
            const uint64_t *row = x + (i * s->in[1] + j) * s->in[2];
            for (int64_t c = from[2]; c < to[2]; c++) {
                uint64_t w = row[o[2] * s->stride[2] - s->begin[2] + c * s->dil[2]];
                double v;
                memcpy(&v, &w, 8);
                inside++;
                if (!is_float)
                    iacc = nnc_sop_eval_i64(SC_max, p->d, iacc, (int64_t)w, 0);
                else if (p->is_max)
                    acc = acc != acc || acc > v ? acc : v;
                else
                    acc += v;
            }
        }
    if (!is_float)
        return (uint64_t)iacc;
    if (!p->is_max)
        acc /= (double)(p->whole ? count[0] * count[1] * count[2] : inside);
    uint64_t w;
    memcpy(&w, &acc, 8);
    return w;
}

static nnc_status pool_planes(void *ctx, int64_t begin, int64_t end)
{
    const pool *p = ctx;
    for (int64_t i = begin; i < end; i++) {
        const uint64_t *x = p->x + i * p->in_size;
        uint64_t *y = p->y + i * p->out_size;
        int64_t o[3];
        for (o[0] = 0; o[0] < p->s.out[0]; o[0]++)
            for (o[1] = 0; o[1] < p->s.out[1]; o[1]++)
                for (o[2] = 0; o[2] < p->s.out[2]; o[2]++)
                    *y++ = pool_one(p, x, o);
    }
    return NNC_OK;
}

nnc_status ev_window(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    const int64_t *kernel = NULL;
    nnc_attr_ints(n, AT_kernel, &kernel);
    pool p = {.is_max = n->op == OP_maxpool, .x = in[0].w, .y = out->w};
    p.whole = nnc_attr_int(n, AT_count_include_pad, 0) != 0;
    p.d = (nnc_dtype)in[0].type->dtype;
    ev_space_of(&p.s, n, in[0].type, out->type, kernel);
    p.in_size = p.s.in[0] * p.s.in[1] * p.s.in[2];
    p.out_size = p.s.out[0] * p.s.out[1] * p.s.out[2];
    int64_t planes = in[0].type->dim[0] * in[0].type->dim[1];
    return ev_for(e, planes, 1, p.out_size * p.s.k[0] * p.s.k[1] * p.s.k[2], pool_planes, &p);
}
