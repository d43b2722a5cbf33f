/* kernel/loop_recurrent.c -- kernels of lstm, gru, rnn, and of their gradients. For each time step and element j of the state, they
 * multiply a column of R for each gate by the previous state. That is the previous step's row of the result. Then they apply the gates'
 * functions. Rows of the batch are outer axes. lstm keeps c in its second result. Panels of R hold the values of all gates for neighbouring
 * j, for one k after the other.
 *
 *     for b: for t in order: for j:
 *         s_g = sum over k of R[k, g H + j] h(k)      h(k) = t > 0 ? y[t-1, b, k] : h0[b, k]
 *         y[t, b, j] = f(x[t, b, g H + j] + s_g, ...) */
#include "kernel/loop.h"

#include <string.h>

typedef struct cell {
    lp *p;
    int h0, lengths; /* operands; lengths -1: none */
    int64_t h, steps;
    nnc_affine b, t, j, k, panel, place; /* element j is number `place` of its panel of R */
    nnc_dtype d;
} cell;

/* Element `at` of the state before step t. */
static int32_t before(const cell *c, const nnc_affine *at)
{
    lp *p = c->p;
    nnc_affine last = lp_plus(c->t, -1);
    int32_t first = lp_load(p, c->h0, &(lp_map){{c->b, *at}});
    int32_t h = lp_load_result(p, 0, &(lp_map){{last, c->b, *at}});
    lp_guard(p, &last, c->steps, first);
    return h;
}

/* Gate g's column of R times state h. */
static int32_t product(const cell *c, int g, int32_t h)
{
    lp *p = c->p;
    const bool panels = nnc_typeof(p->g, p->n->in[1])->rank == 4;
    const lp_map in_panel = {{c->panel, c->k, {.c = g}, c->place}},
                 in_row = {{c->k, lp_plus(c->j, g * c->h)}};
    int32_t w = lp_load(p, 1, panels ? &in_panel : &in_row);
    return lp_reduce(p, KR_sum, false, lp_sop(p, SC_fma, h, w, lp_const(p, c->d, 0)), -1);
}

/* x's part of gate g. */
static int32_t input(const cell *c, int g)
{
    return lp_load(c->p, 0, &(lp_map){{c->t, c->b, lp_plus(c->j, g * c->h)}});
}

static int32_t gate(const cell *c, int g, int32_t sum, nnc_sop f)
{
    return lp_sop(c->p, f, lp_sop(c->p, SC_add, input(c, g), sum, -1), -1, -1);
}

/* `next`, or `was` once the row has ended. */
static int32_t while_live(const cell *c, int32_t next, int32_t was)
{
    lp *p = c->p;
    const bool large = nnc_typeof(p->g, p->n->in[c->lengths])->dtype == DT_u64;
    const nnc_dtype d = large ? DT_u64 : DT_i64;
    int32_t length = lp_cast(p, lp_load(p, c->lengths, &(lp_map){{c->b}}), d);
    int32_t live = lp_sop(p, SC_lt, lp_cast(p, lp_index(p, &c->t), d), length, -1);
    return lp_sop(p, SC_select, live, next, was);
}

static int32_t lstm_step(const cell *c, const int32_t *sum)
{
    lp *p = c->p;
    const lp_map at = {{c->b, c->j}};
    nnc_affine last = lp_plus(c->t, -1);
    int32_t i = gate(c, 0, sum[0], SC_sigmoid), f = gate(c, 1, sum[1], SC_sigmoid);
    int32_t g = gate(c, 2, sum[2], SC_tanh), o = gate(c, 3, sum[3], SC_sigmoid);
    int32_t first = lp_load(p, 3, &at), was = lp_load_result(p, 1, &at);
    lp_guard(p, &last, c->steps, first);
    int32_t next =
        lp_sop(p, SC_add, lp_sop(p, SC_mul, f, was, -1), lp_sop(p, SC_mul, i, g, -1), -1);
    int32_t y = lp_sop(p, SC_mul, o, lp_sop(p, SC_tanh, next, -1, -1), -1);
    lp_store(p, 1, &at, c->lengths < 0 ? next : while_live(c, next, was));
    return y;
}

static int32_t gru_step(const cell *c, const int32_t *sum)
{
    lp *p = c->p;
    int32_t r = gate(c, 0, sum[0], SC_sigmoid), z = gate(c, 1, sum[1], SC_sigmoid);
    int32_t own = lp_sop(p, SC_add, sum[2], lp_load(p, 2, &(lp_map){{c->j}}), -1);
    int32_t n = lp_sop(
        p, SC_tanh, lp_sop(p, SC_add, input(c, 2), lp_sop(p, SC_mul, r, own, -1), -1), -1, -1);
    int32_t rest = lp_sop(p, SC_sub, lp_const(p, c->d, 1), z, -1);
    return lp_sop(
        p, SC_add, lp_sop(p, SC_mul, rest, n, -1), lp_sop(p, SC_mul, z, before(c, &c->j), -1), -1);
}

static int32_t rnn_step(const cell *c, const int32_t *sum)
{
    const nnc_attr *f = nnc_attr_find(c->p->n, AT_activation);
    int32_t a = lp_sop(c->p, SC_add, input(c, 0), sum[0], -1);
    return f && f->word && !strcmp(f->word, "relu")
               ? lp_sop(c->p, SC_max, a, lp_const(c->p, c->d, 0), -1)
               : lp_sop(c->p, SC_tanh, a, -1, -1);
}

void lp_recurrent(lp *p)
{
    const nnc_node *n = p->n;
    const nnc_type *x = nnc_typeof(p->g, n->in[0]), *r = nnc_typeof(p->g, n->in[1]);
    const int lengths = n->op == OP_rnn ? 3 : 4;
    cell c = {.p = p,
        .h0 = n->op == OP_gru ? 3 : 2,
        .lengths = n->n_in > lengths ? lengths : -1,
        .h = nnc_typeof(p->g, n->out)->dim[2],
        .steps = x->dim[0],
        .d = nnc_kdtype((nnc_dtype)x->dtype)};
    int32_t sum[4] = {-1, -1, -1, -1};
    c.b = lp_axis(p, KA_outer, false, x->dim[1]);
    c.t = lp_axis(p, KA_map, true, c.steps);
    if (r->rank == 4)
        c.panel = lp_axis(p, KA_map, false, r->dim[0]);
    c.j = c.place = lp_axis(p, KA_map, false, r->rank == 4 ? r->dim[3] : c.h);
    nnc_affine_add(&c.j, &c.panel, r->dim[r->rank - 1]);
    c.k = lp_axis(p, KA_reduce, false, c.h);
    lp_stage(p, nnc_affine_axes(&c.t) | nnc_affine_axes(&c.panel) | nnc_affine_axes(&c.place) |
                    nnc_affine_axes(&c.k));
    int32_t h = before(&c, &c.k);
    for (int64_t g = 0; g < x->dim[2] / c.h; g++)
        sum[g] = product(&c, (int)g, h);
    lp_post(p);
    int32_t y = n->op == OP_lstm  ? lstm_step(&c, sum)
                : n->op == OP_gru ? gru_step(&c, sum)
                                  : rnn_step(&c, sum);
    if (c.lengths >= 0)
        y = while_live(&c, y, before(&c, &c.j));
    lp_store(p, 0, &(lp_map){{c.t, c.b, c.j}}, y);
}

/* Runs from the last step to the first. The sum is over all gates of the following step, times W. */
void lp_recurrent_grad(lp *p)
{
    const nnc_type *dy = nnc_typeof(p->g, p->n->in[0]), *x = nnc_typeof(p->g, p->n->in[1]);
    const int64_t h = dy->dim[2], gates = x->dim[2] / h, steps = dy->dim[0];
    const nnc_dtype d = nnc_kdtype((nnc_dtype)dy->dtype);
    const bool carries = p->n->n_in > 4, apart = p->n->n_in > 5;
    nnc_affine b = lp_axis(p, KA_outer, false, dy->dim[1]);
    nnc_affine step = lp_axis(p, KA_map, true, steps), t = {.c = steps - 1};
    nnc_affine_add(&t, &step, -1);
    const nnc_affine next = lp_plus(t, 1);
    const nnc_type *wt = nnc_typeof(p->g, p->n->in[2]);
    const bool panels = wt->rank == 3;
    const nnc_affine panel = panels ? lp_axis(p, KA_map, false, wt->dim[0]) : (nnc_affine){0};
    const nnc_affine place = lp_axis(p, KA_map, false, wt->dim[wt->rank - 1]);
    const nnc_affine k = lp_axis(p, KA_reduce, false, gates * h);
    nnc_affine j = place;
    nnc_affine_add(&j, &panel, wt->dim[wt->rank - 1]);
    lp_stage(p, nnc_affine_axes(&step) | nnc_affine_axes(&j) | nnc_affine_axes(&k));
    int32_t zero = lp_const(p, d, 0), after = lp_load_result(p, 0, &(lp_map){{next, b, k}});
    lp_guard(p, &next, steps, zero);
    const lp_map in_panel = {{panel, k, place}}, in_row = {{k, j}};
    int32_t w = lp_load(p, 2, panels ? &in_panel : &in_row);
    int32_t sum = lp_reduce(p, KR_sum, false, lp_sop(p, SC_fma, after, w, lp_const(p, d, 0)), -1);
    lp_post(p);
    const lp_map at = {{t, b, j}};
    int32_t s = lp_sop(p, SC_add, lp_load(p, 0, &at), sum, -1), e = s;
    if (apart)
        e = lp_sop(p, SC_mul, lp_load(p, 5, &at), e, -1);
    if (carries) {
        int32_t first = lp_load(p, 4, &(lp_map){{b, j}});
        int32_t was = lp_load_result(p, 1, &(lp_map){{next, b, j}});
        lp_guard(p, &next, steps, first);
        e = lp_sop(p, SC_fma, lp_load(p, 3, &at), was, e);
    }
    lp_store(p, 1, &at, e);
    for (int64_t g = 0; g < gates; g++) {
        const lp_map to = {{t, b, lp_plus(j, g * h)}};
        int32_t from = apart && g == gates - 1 ? s : e;
        lp_store(p, 0, &to, lp_sop(p, SC_mul, lp_load(p, 1, &to), from, -1));
    }
}
