/* frontend/build_recurrent.c -- the layers lstm, gru and rnn: PyTorch's weights (weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 and
 * with _reverse). The input's part of the gates is one product for all steps; the op of the same name runs over the steps. */
#include "frontend/internal.h"
#include <math.h>

typedef struct recurrent {
    fe_layer *l;
    nnc_graph *g;
    nnc_op op;
    nnc_dtype d;
    int64_t gates, h, steps, rows;
} recurrent;

static nnc_ref weight(
    recurrent *r, const char *what, int layer, bool reverse, int rank, int64_t columns)
{
    const char *name =
        nnc_arena_printf(&r->l->f->a, "%s_l%d%s", what, layer, reverse ? "_reverse" : "");
    int64_t dim[2] = {r->gates * r->h, columns};
    nnc_type t = nnc_type_make(r->d, rank, dim);
    return name ? fe_weight(r->l, name, &t, (float)(1 / sqrt((double)r->h)), 0) : fe_nomem(r->l->f);
}

static nnc_ref zeros(recurrent *r, int rank, const int64_t *dim)
{
    return nnc_broadcast(r->g, nnc_scalar(r->g, r->d, 0), rank, dim);
}

/* Initial state number i of an input [layers, batch, hidden], or zeros. */
static nnc_ref initial(recurrent *r, int input, int i)
{
    const int64_t dim[2] = {r->rows, r->h};
    if (input >= r->l->n_in)
        return zeros(r, 2, dim);
    return nnc_reshape(r->g, nnc_cut(r->g, r->l->in[input], 0, i, i + 1), 2, dim);
}

/* One direction of one layer over x [steps, batch, features]; *c: lstm's second state. */
static nnc_ref build_direction(recurrent *r, nnc_ref x, int layer, bool reverse, int i, nnc_ref *c)
{
    nnc_graph *g = r->g;
    const int64_t axis = 0, all = r->gates * r->h;
    nnc_attr first = nnc_av(AT_axes, 1, &axis);
    nnc_ref in[5], v[3];
    int n = 0;
    if (reverse)
        x = nnc_build(g, OP_flip, 1, &x, 1, &first);
    if (x == NNC_NONE)
        return *c = NNC_NONE;
    v[0] = x;
    v[1] = weight(r, "weight_ih", layer, reverse, 2, nnc_typeof(g, x)->dim[2]);
    nnc_ref own = weight(r, "weight_hh", layer, reverse, 2, r->h), last = NNC_NONE;
    if (r->l->s.bias) {
        v[2] = weight(r, "bias_ih", layer, reverse, 1, 0);
        nnc_ref b = weight(r, "bias_hh", layer, reverse, 1, 0);
        if (r->op == OP_gru) { /* the last gate's stands inside the product with r */
            nnc_ref two[2] = {nnc_cut(g, b, 0, 0, 2 * r->h), zeros(r, 1, &r->h)};
            last = nnc_cut(g, b, 0, 2 * r->h, all);
            b = nnc_concat(g, 2, two, 0);
        }
        v[2] = nnc_build2(g, OP_add, v[2], b);
    } else if (r->op == OP_gru) {
        last = zeros(r, 1, &r->h);
    }
    in[n++] = nnc_build(g, OP_linear, r->l->s.bias ? 3 : 2, v, 0, NULL);
    in[n++] = nnc_transpose(g, own, (int64_t[]){1, 0});
    if (r->op == OP_gru)
        in[n++] = last;
    in[n++] = initial(r, 1, i);
    if (r->op == OP_lstm)
        in[n++] = initial(r, 2, i);
    nnc_attr how = nnc_aw(AT_activation, r->l->s.activation);
    nnc_ref y = nnc_build(g, r->op, n, in, r->op == OP_rnn && fe_has(r->l, FK_activation), &how);
    *c = y == NNC_NONE ? y : y + (r->op == OP_lstm);
    return y;
}

/* Results of a layer are consecutive values. */
static nnc_ref together(recurrent *r, int n, nnc_ref *v)
{
    for (int i = 0; i < n; i++)
        v[i] = nnc_build1(r->g, OP_identity, v[i]);
    r->l->n_out = n;
    return v[0];
}

static bool is_state(recurrent *r, int input, const char *name, int layers)
{
    if (input >= r->l->n_in)
        return true;
    const nnc_type *t = nnc_typeof(r->g, r->l->in[input]);
    return (t->rank == 3 && t->dim[0] == layers && t->dim[1] == r->rows && t->dim[2] == r->h) ||
           FE_FALSE(r->l, "in",
               "%s is %s; it must be [%d,%lld,%lld]: directions and layers, batch, hidden", name,
               fe_type_text(r->l->f, t), layers, (long long)r->rows, (long long)r->h);
}

nnc_ref fe_build_recurrent(fe_layer *l)
{
    const nnc_type *t = nnc_typeof(l->f->g, l->in[0]);
    const int64_t swap[3] = {1, 0, 2};
    const bool first = l->s.batch_first;
    if (t->rank != 3)
        return fe_bad(l, NULL, "%s expects [steps, batch, features], found %s", l->row.name,
            fe_type_text(l->f, t));
    recurrent r = {.l = l,
        .g = l->f->g,
        .op = l->row.op,
        .d = t->dtype,
        .gates = l->row.op == OP_lstm  ? 4
                 : l->row.op == OP_gru ? 3
                                       : 1,
        .h = l->s.hidden,
        .steps = t->dim[first],
        .rows = t->dim[!first]};
    const int ways = l->s.bidirectional ? 2 : 1, layers = (int)l->s.num_layers * ways;
    nnc_ref x = l->in[0], h[128], c[128], v[3], y[2];
    const int64_t one[3] = {1, r.rows, r.h}, axis = 0;
    nnc_attr turn = nnc_av(AT_axes, 1, &axis), along = nnc_ai(AT_axis, 0);
    if (!is_state(&r, 1, "h0", layers) || !is_state(&r, 2, "c0", layers))
        return NNC_NONE;
    if (first)
        x = nnc_transpose(r.g, x, swap);
    for (int i = 0; i < layers; i++) {
        y[i % ways] = build_direction(&r, x, i / ways, i % ways, i, &c[i]);
        h[i] = nnc_cut(r.g, y[i % ways], 0, r.steps - 1, r.steps);
        if (r.op == OP_lstm)
            c[i] = nnc_reshape(r.g, c[i], 3, one);
        if (i % ways)
            y[1] = nnc_build(r.g, OP_flip, 1, &y[1], 1, &turn);
        if (i % ways == ways - 1)
            x = nnc_concat(r.g, ways, y, 2);
    }
    v[0] = first ? nnc_transpose(r.g, x, swap) : x;
    v[1] = nnc_build(r.g, OP_concat, layers, h, 1, &along);
    v[2] = r.op == OP_lstm ? nnc_build(r.g, OP_concat, layers, c, 1, &along) : NNC_NONE;
    return together(&r, r.op == OP_lstm ? 3 : 2, v);
}
