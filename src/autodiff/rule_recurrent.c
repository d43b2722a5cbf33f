/* autodiff/rule_recurrent.c -- lstm, gru and rnn: backpropagation through time (Werbos, 1990). The states of all steps are the op's result,
 * so one product computes all gates again; lstm's c is a linear scan of them. The factors of a step's gradients are then known for all
 * steps, and only recurrent_grad goes from step to step. Its d is the gradient of what R and the states contribute to the gates.
 *
 * A row that has ended keeps its state: its gates get no gradient, and what its later results get is of its last step. */
#include "autodiff/internal.h"

#include <string.h>

typedef struct steps {
    visit *a;
    nnc_graph *g;
    int64_t t, b, h, gates;
    nnc_dtype d;
    nnc_ref before; /* [T,B,H]: the state before each step */
    nnc_ref from_state; /* [T,B,gates H]: before R */
    nnc_ref length; /* [1,B,1], i64; NNC_NONE: rows do not end */
    nnc_ref step, live; /* [T,1,1]; [T,B,1]: has the row not ended? */
} steps;

static nnc_ref times(const steps *s, nnc_ref x, nnc_ref y)
{
    return nnc_build2(s->g, OP_mul, x, y);
}

static nnc_ref scalar(const steps *s, double v)
{
    return nnc_scalar(s->g, s->d, v);
}

/* 1 - x */
static nnc_ref rest(const steps *s, nnc_ref x)
{
    return nnc_build2(s->g, OP_sub, scalar(s, 1), x);
}

/* x (1 - x), sigmoid's derivative by its result; 1 - x^2, tanh's. */
static nnc_ref sigmoid_slope(const steps *s, nnc_ref y)
{
    return times(s, y, rest(s, y));
}

static nnc_ref tanh_slope(const steps *s, nnc_ref y)
{
    return rest(s, times(s, y, y));
}

/* x where the row has not ended, else v. */
static nnc_ref while_live(const steps *s, nnc_ref x, nnc_ref v)
{
    return s->length == NNC_NONE ? x : nnc_build3(s->g, OP_select, s->live, x, v);
}

static nnc_ref gate_of(const steps *s, nnc_ref x, int k)
{
    return slice_along(s->a, x, 2, k * s->h, (k + 1) * s->h);
}

/* Gate k before its function. */
static nnc_ref sum_of(const steps *s, int k)
{
    return nnc_build2(s->g, OP_add, gate_of(s, s->a->n.in[0], k), gate_of(s, s->from_state, k));
}

/* A state [B,H] as one step [1,B,H], and back. */
static nnc_ref as_step(const steps *s, nnc_ref x)
{
    return nnc_reshape(s->g, x, 3, (const int64_t[]){1, s->b, s->h});
}

static nnc_ref first_step(const steps *s, nnc_ref x)
{
    const nnc_type *t = x == NNC_NONE ? NULL : nnc_typeof(s->g, x);
    return t ? nnc_reshape(
                   s->g, slice_along(s->a, x, 0, 0, 1), 2, (const int64_t[]){s->b, t->dim[2]})
             : x;
}

/* All rows of all steps, one after the other. */
static nnc_ref rows(const steps *s, nnc_ref x)
{
    const nnc_type *t = x == NNC_NONE ? NULL : nnc_typeof(s->g, x);
    return t ? nnc_reshape(s->g, x, 2, (const int64_t[]){s->t * s->b, t->dim[2]}) : x;
}

static nnc_ref step_full(const steps *s, double v)
{
    return nnc_broadcast(s->g, scalar(s, v), 3, (const int64_t[]){1, s->b, s->h});
}

static void find_live(steps *s, nnc_ref lengths)
{
    const nnc_attr dim = nnc_ai(AT_dim, 0);
    const nnc_type t = nnc_type_make(DT_i64, 3, (const int64_t[]){s->t, 1, 1});
    if (dtype_of(s->a, lengths) == DT_u64) /* they may be beyond i64 */
        lengths = with_number(s->a, OP_min, lengths, (double)s->t);
    s->length =
        nnc_reshape(s->g, nnc_cast(s->g, lengths, DT_i64), 3, (const int64_t[]){1, s->b, 1});
    s->step = nnc_build_typed(s->g, OP_iota, 0, NULL, 1, &dim, &t);
    s->live = nnc_build2(s->g, OP_lt, s->step, s->length);
}

static bool open_steps(steps *s, visit *a, int gates, int h0, int lengths)
{
    const nnc_type y = *nnc_typeof(a->g, a->n.out);
    *s = (steps){.a = a,
        .g = a->g,
        .t = y.dim[0],
        .b = y.dim[1],
        .h = y.dim[2],
        .gates = gates,
        .d = y.dtype,
        .length = NNC_NONE};
    if (in_type(a, 1)->rank != 2) {
        refuse(a, " with R in panels");
        return false;
    }
    s->before = next_along(a, a->n.out, 0, true, as_step(s, a->n.in[h0]));
    s->from_state = nnc_reshape(s->g, nnc_build2(s->g, OP_matmul, rows(s, s->before), a->n.in[1]),
        3, (const int64_t[]){s->t, s->b, gates * s->h});
    if (a->n.n_in > lengths)
        find_live(s, a->n.in[lengths]);
    return s->from_state != NNC_NONE;
}

/* d and e of recurrent_grad; and the gradients of R and the first state, which needs `carried` [B,H] besides (NNC_NONE: nothing). */
static nnc_ref go_back(const steps *s, nnc_ref dy, nnc_ref p, int n, const nnc_ref *more)
{
    const int64_t perm[] = {1, 0};
    nnc_ref in[6] = {dy, while_live(s, p, scalar(s, 0)), nnc_transpose(s->g, s->a->n.in[1], perm)};
    for (int i = 0; i < n; i++)
        in[3 + i] = more[i];
    return nnc_build(s->g, OP_recurrent_grad, 3 + n, in, 0, NULL);
}

static void give_states(const steps *s, nnc_ref d, int h0, nnc_ref carried)
{
    visit *a = s->a;
    if (wanted(a, 1)) {
        const nnc_attr at = nnc_ai(AT_transpose_a, 1);
        const nnc_ref in[] = {rows(s, s->before), rows(s, d)};
        give(a, 1, nnc_build(s->g, OP_matmul, 2, in, 1, &at));
    }
    if (!wanted(a, h0))
        return;
    const nnc_attr at = nnc_ai(AT_transpose_b, 1);
    const nnc_ref in[] = {first_step(s, d), a->n.in[1]};
    nnc_ref dh = nnc_build(s->g, OP_matmul, 2, in, 1, &at);
    give(a, h0, carried == NNC_NONE ? dh : nnc_build2(s->g, OP_add, dh, carried));
}

/* ---- gru and rnn: e is the gradient of the state -------------------------------------------------------------------- */

/* keep[T,B,H]: the share of the state before that a step passes on. */
static nnc_ref state_back(const steps *s, nnc_ref p, nnc_ref keep, int h0)
{
    const nnc_ref more[] = {next_along(s->a, keep, 0, false, step_full(s, 0)),
        nnc_broadcast(s->g, scalar(s, 0), 2, (const int64_t[]){s->b, s->h})};
    nnc_ref d = go_back(s, result_grad(s->a, 0), p, keep == NNC_NONE ? 0 : 2, more);
    nnc_ref carried = NNC_NONE;
    if (d != NNC_NONE && keep != NNC_NONE && wanted(s->a, h0))
        carried = times(s, first_step(s, keep), first_step(s, d + 1));
    give_states(s, d, h0, carried);
    return d;
}

void rnn_rule(visit *a)
{
    const nnc_attr *f = nnc_attr_find(&a->n, AT_activation);
    const nnc_ref y = a->n.out;
    steps s;
    if (!open_steps(&s, a, 1, 2, 3))
        return;
    nnc_ref p = tanh_slope(&s, y), keep = NNC_NONE;
    if (f && f->word && !strcmp(f->word, "relu"))
        p = nnc_cast(s.g, nnc_build2(s.g, OP_gt, y, scalar(&s, 0)), s.d);
    if (s.length != NNC_NONE) {
        nnc_ref ended = rest(&s, nnc_cast(s.g, s.live, s.d));
        keep = nnc_broadcast(s.g, ended, 3, (const int64_t[]){s.t, s.b, s.h});
    }
    nnc_ref d = state_back(&s, p, keep, 2);
    give(a, 0, d);
}

void gru_rule(visit *a)
{
    steps s;
    if (!open_steps(&s, a, 3, 3, 4))
        return;
    nnc_ref r = nnc_build1(s.g, OP_sigmoid, sum_of(&s, 0));
    nnc_ref z = nnc_build1(s.g, OP_sigmoid, sum_of(&s, 1));
    nnc_ref own = nnc_build2(s.g, OP_add, gate_of(&s, s.from_state, 2), a->n.in[2]);
    nnc_ref n = nnc_build1(
        s.g, OP_tanh, nnc_build2(s.g, OP_add, gate_of(&s, a->n.in[0], 2), times(&s, r, own)));
    nnc_ref into_n = times(&s, rest(&s, z), tanh_slope(&s, n)); /* what e is multiplied by */
    nnc_ref into_z = times(&s, nnc_build2(s.g, OP_sub, s.before, n), sigmoid_slope(&s, z));
    const nnc_ref p[] = {
        times(&s, times(&s, into_n, own), sigmoid_slope(&s, r)), into_z, times(&s, into_n, r)};
    nnc_ref d = state_back(&s, nnc_concat(a->g, 3, p, 2), while_live(&s, z, scalar(&s, 1)), 3);
    if (d == NNC_NONE)
        return;
    if (wanted(a, 2)) {
        const int64_t axes[] = {0, 1};
        give(a, 2, nnc_reduce(s.g, OP_reduce_sum, gate_of(&s, d, 2), 2, axes, false));
    }
    if (wanted(a, 0)) {
        const nnc_ref x[] = {slice_along(a, d, 2, 0, 2 * s.h),
            while_live(&s, times(&s, into_n, d + 1), scalar(&s, 0))};
        give(a, 0, nnc_concat(a->g, 2, x, 2));
    }
}

/* ---- lstm: e is the gradient of c ------------------------------------------------------------------------------------- */

/* Gradients of the results of steps after a row's end, which are the state of its last step, go there. *before_all: to the first state
 * of rows without a step, [B,H]. */
static nnc_ref to_last_step(const steps *s, nnc_ref dy, nnc_ref *before_all)
{
    const int64_t axis = 0;
    nnc_graph *g = s->g;
    if (s->length == NNC_NONE)
        return dy;
    nnc_ref zero = scalar(s, 0);
    nnc_ref late =
        nnc_reduce(g, OP_reduce_sum, nnc_build3(g, OP_select, s->live, zero, dy), 1, &axis, true);
    nnc_ref last = with_number(s->a, OP_sub, s->length, 1);
    nnc_ref none = nnc_build3(g, OP_select, with_number(s->a, OP_lt, last, 0), late, zero);
    *before_all = first_step(s, none);
    return nnc_build2(g, OP_add, while_live(s, dy, zero),
        nnc_build3(g, OP_select, nnc_build2(g, OP_eq, s->step, last), late, zero));
}

void lstm_rule(visit *a)
{
    steps s;
    if (!open_steps(&s, a, 4, 2, 4))
        return;
    nnc_graph *g = s.g;
    const nnc_attr axis = nnc_ai(AT_axis, 0);
    nnc_ref i = nnc_build1(g, OP_sigmoid, sum_of(&s, 0));
    nnc_ref f = nnc_build1(g, OP_sigmoid, sum_of(&s, 1));
    nnc_ref c = nnc_build1(g, OP_tanh, sum_of(&s, 2)); /* what may be added */
    nnc_ref o = nnc_build1(g, OP_sigmoid, sum_of(&s, 3));
    nnc_ref first = as_step(&s, a->n.in[3]), keep = while_live(&s, f, scalar(&s, 1));
    const nnc_ref scan[] = {keep, while_live(&s, times(&s, i, c), scalar(&s, 0)), first};
    nnc_ref cell = nnc_build(g, OP_linear_scan, 3, scan, 1, &axis);
    nnc_ref shown = nnc_build1(g, OP_tanh, cell);
    const nnc_ref p[] = {times(&s, c, sigmoid_slope(&s, i)),
        times(&s, next_along(a, cell, 0, true, first), sigmoid_slope(&s, f)),
        times(&s, i, tanh_slope(&s, c)), times(&s, shown, sigmoid_slope(&s, o))};
    nnc_ref before_all = NNC_NONE, dy = to_last_step(&s, result_grad(a, 0), &before_all);
    const nnc_ref more[] = {next_along(a, keep, 0, false, step_full(&s, 1)), result_grad(a, 1),
        while_live(&s, times(&s, o, tanh_slope(&s, shown)), scalar(&s, 0))};
    nnc_ref d = go_back(&s, dy, nnc_concat(a->g, 4, p, 2), 3, more);
    give(a, 0, d);
    give_states(&s, d, 2, before_all);
    if (d != NNC_NONE && wanted(a, 3))
        give(a, 3, times(&s, first_step(&s, keep), first_step(&s, d + 1)));
}
