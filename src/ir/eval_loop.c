/* ir/eval_loop.c -- reference evaluation of ops that run in order along an axis, and of movement by computed indices. */
#include "ir/eval_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lines along an axis of a row-major tensor: element i of line l begins at (l / inner) n inner + l % inner and advances by `inner`. */
typedef struct lines {
    const nnc_node *n;
    const ev_arg *in;
    ev_arg *out;
    int64_t extent, inner;
    ev_noise noise;
} lines;

static int64_t first_of(const lines *s, int64_t line)
{
    return line / s->inner * s->extent * s->inner + line % s->inner;
}

static nnc_status run_lines(
    const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out, ev_body *fn)
{
    const nnc_type *t = in[0].type;
    lines s = {.n = n, .in = in, .out = out, .noise = ev_noise_of_result(e, n, 0, out->type)};
    const int axis = (int)nnc_attr_int(n, AT_axis, 0);
    s.extent = t->dim[axis];
    s.inner = nnc_type_extents(t, axis + 1, t->rank);
    return ev_for(e, nnc_type_numel(t) / s.extent, 1, s.extent, fn, &s);
}

static nnc_status scan_lines(void *ctx, int64_t begin, int64_t end)
{
    const lines *s = ctx;
    const nnc_dtype d = s->in[0].type->dtype;
    const bool product = s->n->op == OP_cumprod, exclusive = nnc_attr_int(s->n, AT_exclusive, 0);
    const bool reverse = nnc_attr_int(s->n, AT_reverse, 0);
    const nnc_sop op = product ? SC_mul : SC_add;
    for (int64_t l = begin; l < end; l++) {
        double f = product;
        int64_t v = product;
        for (int64_t j = 0; j < s->extent; j++) {
            int64_t i = first_of(s, l) + (reverse ? s->extent - 1 - j : j) * s->inner;
            double before = f;
            int64_t was = v;
            if (nnc_is_float(d)) {
                f = nnc_sop_eval_f64(op, f, s->in[0].f[i], 0);
                s->out[0].f[i] = exclusive ? before : f;
            } else {
                v = nnc_sop_eval_i64(op, d, v, s->in[0].i[i], 0);
                s->out[0].i[i] = exclusive ? was : v;
            }
        }
    }
    return NNC_OK;
}

static nnc_status linear_lines(void *ctx, int64_t begin, int64_t end)
{
    const lines *s = ctx;
    const bool reverse = nnc_attr_int(s->n, AT_reverse, 0);
    for (int64_t l = begin; l < end; l++) {
        double y = s->n->n_in > 2 ? s->in[2].f[l] : 0;
        for (int64_t j = 0; j < s->extent; j++) {
            int64_t i = first_of(s, l) + (reverse ? s->extent - 1 - j : j) * s->inner;
            s->out[0].f[i] = y = ev_noisy(&s->noise, i, s->in[0].f[i] * y + s->in[1].f[i]);
        }
    }
    return NNC_OK;
}

/* ---- the k best of a line ---------------------------------------------------------------------- */

typedef struct item {
    double f;
    int64_t i, at;
    int kind; /* 0: a float; 1: a signed integer; 2: an unsigned one */
    bool largest;
} item;

/* Best first; the lower index first among equals; a NaN is larger than all numbers. */
static int by_rank(const void *p, const void *q)
{
    const item *a = p, *b = q;
    int less, more;
    if (a->kind == 0 && (isnan(a->f) || isnan(b->f))) {
        if (isnan(a->f) != isnan(b->f)) /* a NaN is larger than all numbers */
            return isnan(a->f) == a->largest ? -1 : 1;
        less = more = 0;
    } else if (a->kind == 0) {
        less = a->f<b->f, more = a->f> b->f;
    } else if (a->kind == 1) {
        less = a->i<b->i, more = a->i> b->i;
    } else {
        less = (uint64_t)a->i<(uint64_t)b->i, more = (uint64_t)a->i>(uint64_t) b->i;
    }
    if (less != more)
        return (a->largest ? more : less) ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static nnc_status topk_lines(void *ctx, int64_t begin, int64_t end)
{
    const lines *s = ctx;
    const nnc_dtype d = s->in[0].type->dtype;
    const int64_t k = nnc_attr_int(s->n, AT_k, 1);
    const item like = {.kind = nnc_is_float(d)                ? 0
                               : nnc_dtype_kind(d) == NNC_INT ? 1
                                                              : 2,
        .largest = nnc_attr_int(s->n, AT_largest, 1)};
    NNC_FREED item *line = nnc_malloc((size_t)s->extent * sizeof *line);
    if (!line)
        return NNC_E_NOMEM;
    for (int64_t l = begin; l < end; l++) {
        for (int64_t j = 0; j < s->extent; j++) {
            const int64_t i = first_of(s, l) + j * s->inner;
            line[j] = like;
            line[j].at = j;
            line[j].f = s->in[0].f[i];
            line[j].i = s->in[0].i[i];
        }
        qsort(line, (size_t)s->extent, sizeof *line, by_rank);
        for (int64_t j = 0; j < k; j++) {
            const int64_t to = l / s->inner * k * s->inner + l % s->inner + j * s->inner;
            s->out[0].w[to] = s->in[0].w[first_of(s, l) + line[j].at * s->inner];
            s->out[1].i[to] = line[j].at;
        }
    }
    return NNC_OK;
}

/* ---- computed indices --------------------------------------------------------------------------- */

/* Element i of the index as an index of the operand. Negative signed ones count from the end; outside ones become the nearest. */
static int64_t nearest(const ev_arg *index, int64_t i, int64_t extent)
{
    const bool wraps = nnc_dtype_kind(index->type->dtype) == NNC_INT;
    int64_t j = index->i[i];
    if (!wraps && j < 0) /* beyond 2^63 */
        return extent - 1;
    j += wraps && j < 0 ? extent : 0;
    return j < 0 ? 0 : j >= extent ? extent - 1 : j;
}

/* Offset in x of element i of the index, whose dimensions are at most x's. */
static int64_t element_at(const ev_arg *x, const ev_arg *index, int axis, int64_t i)
{
    int64_t own[NNC_MAX_RANK] = {0}, at = 0, rest = i;
    ev_strides(x->type, own);
    for (int d = x->type->rank - 1; d >= 0; d--) {
        at +=
            (d == axis ? nearest(index, i, x->type->dim[d]) : rest % index->type->dim[d]) * own[d];
        rest /= index->type->dim[d];
    }
    return at;
}

/* Offset in x of index tuple i, after the first `batch` dimensions. */
static int64_t tuple_at(const ev_arg *x, const ev_arg *index, int batch, int64_t i)
{
    const int64_t k = index->type->dim[index->type->rank - 1];
    int64_t own[NNC_MAX_RANK] = {0}, at = 0;
    ev_strides(x->type, own);
    for (int64_t j = 0; j < k; j++)
        at += nearest(index, i * k + j, x->type->dim[batch + j]) * own[batch + j];
    return at;
}

void ev_gather_computed(const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    const int64_t total = nnc_type_numel(out->type);
    if (n->op == OP_gather_elements) {
        for (int64_t i = 0; i < total; i++)
            out->w[i] = in[0].w[element_at(&in[0], &in[1], (int)nnc_attr_int(n, AT_axis, 0), i)];
        return;
    }
    const int batch = (int)nnc_attr_int(n, AT_batch_dims, 0);
    const nnc_type *x = in[0].type;
    const int k = (int)in[1].type->dim[in[1].type->rank - 1];
    const int64_t inner = nnc_type_extents(x, batch + k, x->rank),
                  tuples = nnc_type_numel(in[1].type) / k, share = nnc_type_extents(x, 0, batch),
                  plane = nnc_type_extents(x, batch, x->rank);
    for (int64_t i = 0; i < tuples; i++)
        memcpy(out->w + i * inner,
            in[0].w + i / (tuples / share) * plane + tuple_at(&in[0], &in[1], batch, i),
            (size_t)inner * 8);
}

static void update(const nnc_node *n, nnc_dtype d, uint64_t *to, const uint64_t *from)
{
    const nnc_attr *how = nnc_attr_find(n, AT_reduction);
    const char *w = how ? how->word : "none";
    const nnc_sop op = !strcmp(w, "add")   ? SC_add
                       : !strcmp(w, "mul") ? SC_mul
                       : !strcmp(w, "min") ? SC_min
                                           : SC_max;
    double a, b;
    if (!strcmp(w, "none")) {
        *to = *from;
    } else if (nnc_is_float(d)) {
        memcpy(&a, to, 8);
        memcpy(&b, from, 8);
        a = nnc_sop_eval_f64(op, a, b, 0);
        memcpy(to, &a, 8);
    } else {
        *to = (uint64_t)nnc_sop_eval_i64(op, d, (int64_t)*to, (int64_t)*from, 0);
    }
}

static void scatter(const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    const nnc_type *x = in[0].type, *at = in[1].type;
    const nnc_dtype d = x->dtype;
    memcpy(out->w, in[0].w, (size_t)nnc_type_numel(x) * 8);
    if (n->op == OP_scatter) {
        for (int64_t i = 0; i < nnc_type_numel(at); i++)
            update(n, d, out->w + element_at(&in[0], &in[1], (int)nnc_attr_int(n, AT_axis, 0), i),
                in[2].w + i);
        return;
    }
    const int k = (int)at->dim[at->rank - 1];
    const int64_t inner = nnc_type_extents(x, k, x->rank);
    for (int64_t i = 0; i < nnc_type_numel(at) / k; i++)
        for (int64_t j = 0; j < inner; j++)
            update(n, d, out->w + tuple_at(&in[0], &in[1], 0, i) + j, in[2].w + i * inner + j);
}

/* ---- recurrence --------------------------------------------------------------------------------- */

/* Operands of a recurrent op by name. */
typedef struct recurrent {
    const nnc_node *n;
    const double *x, *r, *bias, *h0, *c0;
    const int64_t *length;
    bool large; /* lengths are u64 */
    double *y, *c;
    int64_t steps, rows, h, gates, panel; /* panel: its elements of the state */
    ev_noise of_y, of_c, of_gate, of_term;
} recurrent;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Element j of the next state, from state h. at: its number among the elements of all steps. */
static double next_state(
    const recurrent *s, const double *x, const double *h, int64_t j, int64_t at, double *c)
{
    const ev_noise *w = &s->of_gate; /* 1 - z cancels where z is nearly 1 */
    double a[4] = {0}, own[4] = {0};
    for (int64_t g = 0; g < s->gates; g++) {
        for (int64_t k = 0; k < s->h; k++) {
            const double term =
                s->r[((j / s->panel * s->h + k) * s->gates + g) * s->panel + j % s->panel] * h[k];
            own[g] += s->of_term.a > 0 ? ev_noisy(&s->of_term, (at * s->gates + g) * s->h + k, term)
                                       : term;
        }
        a[g] = x[g * s->h + j] + own[g];
    }
    if (s->n->op == OP_lstm) {
        *c = ev_noisy(w, 4 * at, sigmoid(a[1])) * *c +
             ev_noisy(w, 4 * at + 1, sigmoid(a[0])) * ev_noisy(w, 4 * at + 2, tanh(a[2]));
        return sigmoid(a[3]) * tanh(*c);
    }
    if (s->n->op == OP_gru) {
        const double z = ev_noisy(w, 4 * at, sigmoid(a[1])),
                     r = ev_noisy(w, 4 * at + 1, sigmoid(a[0])),
                     n = ev_noisy(w, 4 * at + 2, tanh(x[2 * s->h + j] + r * (own[2] + s->bias[j])));
        return (1 - z) * n + z * h[j];
    }
    const nnc_attr *f = nnc_attr_find(s->n, AT_activation);
    return f && !strcmp(f->word, "relu") ? nnc_sop_eval_f64(SC_max, a[0], 0, 0) : tanh(a[0]);
}

static nnc_status recurrent_rows(void *ctx, int64_t begin, int64_t end)
{
    const recurrent *s = ctx;
    double none = 0;
    for (int64_t b = begin; b < end; b++) {
        const double *h = s->h0 + b * s->h;
        for (int64_t j = 0; s->c && j < s->h; j++)
            s->c[b * s->h + j] = s->c0[b * s->h + j];
        for (int64_t t = 0; t < s->steps; t++) {
            double *y = s->y + (t * s->rows + b) * s->h;
            bool live = !s->length || t < s->length[b] || (s->large && s->length[b] < 0);
            const double *x = s->x + (t * s->rows + b) * s->gates * s->h;
            for (int64_t j = 0; j < s->h; j++) {
                double *c = s->c ? &s->c[b * s->h + j] : &none;
                const int64_t at = y + j - s->y;
                y[j] = live ? ev_noisy(&s->of_y, at, next_state(s, x, h, j, at, c)) : h[j];
                if (s->c && live)
                    *c = ev_noisy(&s->of_c, at, *c);
            }
            h = y;
        }
    }
    return NNC_OK;
}

static nnc_status recur(const ev *e, const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    const bool lstm = n->op == OP_lstm, gru = n->op == OP_gru;
    const int h0 = gru ? 3 : 2, lengths = n->op == OP_rnn ? 3 : 4;
    const int64_t *dim = out->type->dim;
    recurrent s = {.n = n,
        .x = in[0].f,
        .r = in[1].f,
        .bias = gru ? in[2].f : NULL,
        .h0 = in[h0].f,
        .c0 = lstm ? in[3].f : NULL,
        .length = n->n_in > lengths ? in[lengths].i : NULL,
        .large = n->n_in > lengths && in[lengths].type->dtype == DT_u64,
        .y = out[0].f,
        .c = lstm ? out[1].f : NULL,
        .steps = dim[0],
        .rows = dim[1],
        .h = dim[2],
        .panel = in[1].type->rank == 4 ? in[1].type->dim[3] : dim[2],
        .gates = lstm  ? 4
                 : gru ? 3
                       : 1,
        .of_y = ev_noise_of_result(e, n, 0, out[0].type),
        .of_gate = ev_noise_of_gates(e, n, out[0].type),
        .of_term = ev_noise_of_terms(e, n, out[0].type)};
    if (lstm)
        s.of_c = ev_noise_of_result(e, n, 1, out[1].type);
    return ev_for(e, s.rows, 1, s.steps * s.gates * s.h * s.h, recurrent_rows, &s);
}

/* Operands and results of recurrent_grad by name. */
typedef struct backward {
    const double *dy, *p, *w, *phi, *e0, *alpha;
    double *d, *e;
    int64_t steps, rows, h, gates, panel; /* panel: its elements of the state */
    ev_noise of_d, of_e, of_term;
} backward;

static nnc_status backward_rows(void *ctx, int64_t begin, int64_t end)
{
    const backward *s = ctx;
    const int64_t gh = s->gates * s->h;
    for (int64_t b = begin; b < end; b++)
        for (int64_t t = s->steps - 1; t >= 0; t--)
            for (int64_t j = 0; j < s->h; j++) {
                const int64_t at = (t * s->rows + b), next = at + s->rows, i = at * s->h + j;
                const bool last = t == s->steps - 1;
                double sum = s->dy[i], e;
                for (int64_t k = 0; k < gh && !last; k++) {
                    const double term = s->d[next * gh + k] *
                                        s->w[(j / s->panel * gh + k) * s->panel + j % s->panel];
                    sum += s->of_term.a > 0 ? ev_noisy(&s->of_term, i * gh + k, term) : term;
                }
                e = s->alpha ? s->alpha[i] * sum : sum;
                if (s->phi)
                    e += s->phi[i] * (last ? s->e0[b * s->h + j] : s->e[next * s->h + j]);
                s->e[i] = e = ev_noisy(&s->of_e, i, e);
                for (int64_t g = 0; g < s->gates; g++) {
                    const int64_t to = at * gh + g * s->h + j;
                    const double of = s->alpha && g == s->gates - 1 ? sum : e;
                    s->d[to] = ev_noisy(&s->of_d, to, s->p[to] * of);
                }
            }
    return NNC_OK;
}

static nnc_status recur_back(const ev *e, const nnc_node *n, const ev_arg *in, const ev_arg *out)
{
    const int64_t *dim = in[0].type->dim;
    backward s = {.dy = in[0].f,
        .p = in[1].f,
        .w = in[2].f,
        .phi = n->n_in > 4 ? in[3].f : NULL,
        .e0 = n->n_in > 4 ? in[4].f : NULL,
        .alpha = n->n_in > 5 ? in[5].f : NULL,
        .d = out[0].f,
        .e = out[1].f,
        .steps = dim[0],
        .rows = dim[1],
        .h = dim[2],
        .panel = in[2].type->dim[in[2].type->rank - 1],
        .gates = in[1].type->dim[2] / dim[2],
        .of_d = ev_noise_of_result(e, n, 0, out[0].type),
        .of_e = ev_noise_of_result(e, n, 1, out[1].type),
        .of_term = ev_noise_of_terms(e, n, out[0].type)};
    return ev_for(e, s.rows, 1, s.steps * s.gates * s.h * s.h, backward_rows, &s);
}

nnc_status ev_loop(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    switch (n->op) {
    case OP_scatter:
    case OP_scatter_nd: scatter(n, in, out); return NNC_OK;
    case OP_lstm:
    case OP_gru:
    case OP_rnn: return recur(e, n, in, out);
    case OP_recurrent_grad: return recur_back(e, n, in, out);
    case OP_linear_scan: return run_lines(e, n, in, out, linear_lines);
    default: return run_lines(e, n, in, out, n->op == OP_topk ? topk_lines : scan_lines);
    }
}
