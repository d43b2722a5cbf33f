/* onnx/build_recurrent.c -- LSTM, GRU and RNN: the input's part of all gates is one product; a loop over time does the rest. */
#include "onnx/internal.h"
#include <math.h>
#include <string.h>

typedef struct activation {
    const char *name;
    nnc_op op;
    int n; /* numbers that it takes: alpha, and beta */
    double alpha, beta; /* their defaults; NAN: must be given */
} activation;

static const activation activations[] = {{"Sigmoid", OP_sigmoid}, {"Tanh", OP_tanh},
    {"Relu", OP_relu}, {"Softsign", OP_softsign}, {"Softplus", OP_softplus}, {"Elu", OP_elu, 1, 1},
    {"LeakyRelu", OP_leaky_relu, 1, 0.01}, {"HardSigmoid", OP_hardsigmoid, 2, 0.2, 0.5},
    {"ThresholdedRelu", OP_select, 1, 1}, {"ScaledTanh", OP_tanh, 2, NAN, NAN},
    {"Affine", OP_identity, 2, NAN, NAN}};

typedef struct cell {
    ox_build *b;
    const char *usual; /* the activations of the op */
    activation act[2][3]; /* f, g and h of each direction */
    double clip; /* bound of the gates before their activations, not of the LSTM's state; 0: none */
    bool forget; /* the gate f is 1 - i */
    bool plain; /* the op does it; otherwise its steps are written out */
    int gates, state_in; /* blocks of W, R and B; the input that holds h */
    const int *order; /* ONNX's block that is the op's block i */
    int64_t steps, batch, size;
    bool batch_first;
    nnc_ref x; /* [steps, batch, inputs] */
    nnc_ref lengths; /* of sequences, or NNC_NONE */
} cell;

/* Direction k of a weight [directions, rows, ...], its blocks of `size` rows from `first` on in the op's order. */
static nnc_ref weight(const cell *c, int input, int k, int first)
{
    ox_build *b = c->b;
    const nnc_type t = *ox_type(b, ox_in(b, input));
    nnc_ref block[4],
        w = ox_reshape(b, ox_slice(b, ox_in(b, input), 0, k, k + 1), t.rank - 1, t.dim + 1);
    for (int i = 0; i < c->gates; i++) {
        int64_t at = (first + c->order[i]) * c->size;
        block[i] = ox_slice(b, w, 0, at, at + c->size);
    }
    return ox_joined(b, c->gates, block, 0);
}

/* State `input`, [directions, batch, size] or with the batch first, of direction k; zeros where it is left out. */
static nnc_ref state(const cell *c, int input, int k)
{
    ox_build *b = c->b;
    int64_t d[2] = {c->batch, c->size};
    if (!ox_has(b, input))
        return ox_broadcast(b, ox_num(b, ox_dt(b, c->x), 0), 2, d);
    int axis = c->batch_first ? 1 : 0;
    return ox_reshape(b, ox_slice(b, ox_in(b, input), axis, k, k + 1), 2, d);
}

/* Each sequence backwards; elements after its end stay there. */
static nnc_ref backwards(const cell *c, nnc_ref x)
{
    ox_build *b = c->b;
    int64_t axis = 0;
    nnc_attr a = nnc_av(AT_axes, 1, &axis);
    return c->lengths == NNC_NONE ? ox_op(b, OP_flip, 1, &x, 1, &a)
                                  : ox_reversed(b, x, c->lengths, 0, 1);
}

/* Zeros after the end of each sequence. */
static nnc_ref ended(const cell *c, nnc_ref y)
{
    ox_build *b = c->b;
    if (c->lengths == NNC_NONE || y == NNC_NONE)
        return y;
    nnc_ref at = ox_along(b, ox_iota(b, DT_i64, c->steps), 3, 0),
            length = ox_along(b, ox_to(b, c->lengths, DT_i64), 3, 1);
    return ox_select(b, ox_2(b, OP_lt, at, length), y, ox_num(b, ox_dt(b, y), 0));
}

/* ---- steps written out ----------------------------------------------------------------------- */

typedef struct step { /* operands and state of one direction */
    const activation *act;
    nnc_ref r, bias,
        peephole; /* recurrent weights; of the GRU's n; [3 size] of i, o and f, or NNC_NONE */
    nnc_ref h, state;
} step;

static nnc_ref unclipped(const cell *c, const activation *f, nnc_ref x)
{
    ox_build *b = c->b;
    nnc_attr a[2] = {nnc_af(AT_alpha, f->alpha), nnc_af(AT_beta, f->beta)};
    switch (f->op) {
    case OP_select: /* x >= alpha ? x : 0 */
        return ox_select(b, ox_2n(b, OP_ge, x, f->alpha), x, ox_num(b, ox_dt(b, x), 0));
    case OP_identity: /* alpha x + beta */
        return ox_2n(b, OP_add, ox_2n(b, OP_mul, x, f->alpha), f->beta);
    case OP_tanh: /* alpha tanh(beta x) */
        x = ox_1(b, OP_tanh, f->n ? ox_2n(b, OP_mul, x, f->beta) : x);
        return f->n ? ox_2n(b, OP_mul, x, f->alpha) : x;
    default: return ox_op(b, f->op, 1, &x, f->n, a);
    }
}

static nnc_ref activated(const cell *c, const activation *f, nnc_ref x)
{
    nnc_attr bound[2] = {nnc_af(AT_lo, -c->clip), nnc_af(AT_hi, c->clip)};
    return unclipped(c, f, c->clip > 0 ? ox_op(c->b, OP_clip, 1, &x, 2, bound) : x);
}

/* h R^T for the rows of gates from `first` to `end` of R, plus a bias or NNC_NONE. */
static nnc_ref recurrence(const cell *c, const step *s, nnc_ref h, int first, int end, nnc_ref bias)
{
    nnc_ref v[3] = {h, ox_slice(c->b, s->r, 0, first * c->size, end * c->size), bias};
    return ox_op(c->b, OP_linear, bias == NNC_NONE ? 2 : 3, v, 0, NULL);
}

static nnc_ref gate(const cell *c, nnc_ref x, int i)
{
    return ox_slice(c->b, x, 1, i * c->size, (i + 1) * c->size);
}

/* x plus the state times block i of the peepholes. */
static nnc_ref peeped(const cell *c, const step *s, nnc_ref x, int i)
{
    ox_build *b = c->b;
    if (s->peephole == NNC_NONE)
        return x;
    nnc_ref p = ox_slice(b, s->peephole, 0, i * c->size, (i + 1) * c->size);
    return ox_2(b, OP_add, x, ox_2(b, OP_mul, s->state, p));
}

static void lstm_step(const cell *c, step *s, nnc_ref x)
{
    ox_build *b = c->b;
    const activation *f = s->act;
    x = ox_2(b, OP_add, x, recurrence(c, s, s->h, 0, 4, NNC_NONE));
    nnc_ref i = activated(c, f, peeped(c, s, gate(c, x, 0), 0));
    nnc_ref keep = c->forget ? ox_2(b, OP_sub, ox_num(b, ox_dt(b, x), 1), i)
                             : activated(c, f, peeped(c, s, gate(c, x, 1), 2));
    nnc_ref g = activated(c, f + 1, gate(c, x, 2));
    s->state = ox_2(b, OP_add, ox_2(b, OP_mul, keep, s->state), ox_2(b, OP_mul, i, g));
    nnc_ref o = activated(c, f, peeped(c, s, gate(c, x, 3), 1));
    s->h = ox_2(b, OP_mul, o, unclipped(c, f + 2, s->state));
}

/* (1 - z) n + z h; n = g(x_n + R_n (r h) + b), or with linear_before_reset g(x_n + r (R_n h + b)). */
static void gru_step(const cell *c, step *s, nnc_ref x)
{
    ox_build *b = c->b;
    bool after = ox_int(b, "linear_before_reset", 0) != 0;
    nnc_ref both =
        ox_2(b, OP_add, ox_slice(b, x, 1, 0, 2 * c->size), recurrence(c, s, s->h, 0, 2, NNC_NONE));
    nnc_ref rz = activated(c, s->act, both), r = gate(c, rz, 0), z = gate(c, rz, 1), n;
    if (after)
        n = ox_2(b, OP_mul, r, recurrence(c, s, s->h, 2, 3, s->bias));
    else
        n = recurrence(c, s, ox_2(b, OP_mul, r, s->h), 2, 3, s->bias);
    n = activated(c, s->act + 1, ox_2(b, OP_add, gate(c, x, 2), n));
    s->h = ox_2(b, OP_add, n, ox_2(b, OP_mul, z, ox_2(b, OP_sub, s->h, n)));
}

/* A sequence that has ended keeps its state. */
static nnc_ref write_out(const cell *c, step *s, nnc_ref x)
{
    ox_build *b = c->b;
    enum { MOST = 512 };
    nnc_ref y[MOST];
    int64_t row[2] = {c->batch, c->gates * c->size}, one[3] = {1, c->batch, c->size};
    if (c->steps > MOST)
        return ox_refuse(b, "its steps are written out, and are more than %d", MOST), NNC_NONE;
    for (int64_t t = 0; t < c->steps; t++) {
        nnc_ref xt = ox_reshape(b, ox_slice(b, x, 0, t, t + 1), 2, row);
        const step was = *s;
        if (c->gates == 4)
            lstm_step(c, s, xt);
        else if (c->gates == 3)
            gru_step(c, s, xt);
        else
            s->h =
                activated(c, s->act, ox_2(b, OP_add, xt, recurrence(c, s, s->h, 0, 1, NNC_NONE)));
        if (c->lengths != NNC_NONE) {
            nnc_ref length = ox_along(b, ox_to(b, c->lengths, DT_i64), 2, 0);
            nnc_ref open = ox_2n(b, OP_gt, length, (double)t);
            s->h = ox_select(b, open, s->h, was.h);
            s->state = c->gates == 4 ? ox_select(b, open, s->state, was.state) : NNC_NONE;
        }
        y[t] = ox_reshape(b, s->h, 3, one);
    }
    return ox_joined(b, (int)c->steps, y, 0);
}

/* ---- directions ------------------------------------------------------------------------------ */

/* The product of the input with all gates, and all biases but that of the GRU's n, which is reset with the state: *own. */
static nnc_ref input_part(const cell *c, nnc_ref x, int k, nnc_ref *own)
{
    ox_build *b = c->b;
    bool gru = c->gates == 3;
    int64_t s = c->size;
    nnc_ref in[3] = {x, weight(c, 1, k, 0)};
    *own = gru ? ox_broadcast(b, ox_num(b, ox_dt(b, x), 0), 1, &s) : NNC_NONE;
    if (ox_has(b, 3)) {
        nnc_ref wb = weight(c, 3, k, 0), rb = weight(c, 3, k, c->gates);
        if (gru) {
            nnc_ref two[2] = {ox_slice(b, rb, 0, 0, 2 * s), *own};
            *own = ox_slice(b, rb, 0, 2 * s, 3 * s);
            rb = ox_joined(b, 2, two, 0);
        }
        in[2] = ox_2(b, OP_add, wb, rb);
    }
    return ox_op(b, OP_linear, 2 + ox_has(b, 3), in, 0, NULL);
}

/* y [steps, batch, size] and the last cell state of direction k, whose x is in its order. */
static nnc_ref build_direction(const cell *c, nnc_ref x, int k, nnc_ref *last)
{
    ox_build *b = c->b;
    bool lstm = c->gates == 4, gru = c->gates == 3;
    step s = {.act = c->act[k], .r = weight(c, 2, k, 0), .peephole = NNC_NONE, .state = NNC_NONE};
    x = input_part(c, x, k, &s.bias);
    s.h = state(c, 5, k);
    if (lstm)
        s.state = state(c, 6, k);
    if (lstm && ox_has(b, 7))
        s.peephole =
            ox_reshape(b, ox_slice(b, ox_in(b, 7), 0, k, k + 1), 1, (int64_t[]){3 * c->size});
    if (x == NNC_NONE)
        return x;
    if (!c->plain) {
        nnc_ref y = write_out(c, &s, x);
        *last = s.state;
        return y;
    }
    nnc_ref v[5] = {
        x, ox_transposed(b, s.r, (int64_t[]){1, 0}), gru ? s.bias : s.h, gru ? s.h : s.state};
    int n = lstm || gru ? 4 : 3;
    if (c->lengths != NNC_NONE)
        v[n++] = c->lengths;
    nnc_attr act = nnc_aw(AT_activation, s.act->op == OP_relu ? "relu" : "tanh");
    nnc_ref y = ox_op(b, b->row->op, n, v, !lstm && !gru, &act);
    *last = y == NNC_NONE ? y : y + 1;
    return y;
}

/* Values of each direction as one, with a dimension of directions at `axis`. */
static nnc_ref stack(ox_build *b, const nnc_ref *v, int n, int axis)
{
    nnc_ref part[2];
    for (int k = 0; k < n; k++)
        part[k] = ox_add_dim(b, v[k], axis);
    return ox_joined(b, n, part, axis);
}

/* The activation of this name; NULL: unsupported. */
static const activation *find_activation(const char *name, size_t n)
{
    for (size_t i = 0; i < NNC_COUNT(activations); i++)
        if (strlen(activations[i].name) == n && !strncmp(activations[i].name, name, n))
            return &activations[i];
    return NULL;
}

/* Those of the attribute, or the usual ones, for each direction; *same: they are the usual ones. */
static bool read_names(cell *c, int directions, bool *same)
{
    ox_build *b = c->b;
    const char *words = ox_words(b, "activations"), *p = *words ? words : c->usual;
    *same = true;
    for (int k = 0; k < directions; k++, p = *words ? p : c->usual) {
        const char *u = c->usual;
        for (int i = 0; *u; i++) {
            size_t n = strcspn(p, " "), m = strcspn(u, " ");
            const activation *f = find_activation(p, n);
            if (!f)
                return ox_refuse(b, "the activations `%.60s` are unsupported", words);
            c->act[k][i] = *f;
            *same = *same && m == n && !strncmp(p, u, n);
            p += n + strspn(p + n, " ");
            u += m + strspn(u + m, " ");
        }
    }
    return !*p || !*words || ox_wrong(b, "it has more activations than it needs");
}

/* Numbers belong to the activations that take one, in order: as many as they are, or none. */
static bool read_numbers(cell *c, int directions, const char *key, int nth)
{
    ox_build *b = c->b;
    const ox_attr *a = ox_attr_find(b, key, OXA_floats);
    size_t at = 0, n = a ? a->n : 0;
    for (int k = 0; k < directions; k++)
        for (int i = 0; i < 3; i++) {
            activation *f = &c->act[k][i];
            double *v = nth ? &f->beta : &f->alpha;
            if (!f->name || f->n <= nth)
                continue;
            if (n && at < n)
                *v = a->floats[at];
            at++;
            if (*v != *v)
                return ox_refuse(b, "%s needs %s", f->name, key);
        }
    return !b->x->status &&
           (!n || n == at || ox_refuse(b, "%s has %zu numbers for %zu activations", key, n, at));
}

/* Features that the row's op lacks are written out. */
static bool read_attributes(cell *c, int directions)
{
    ox_build *b = c->b;
    bool same;
    c->clip = ox_float(b, "clip", 0);
    c->forget = ox_int(b, "input_forget", 0) != 0;
    if (!read_names(c, directions, &same) || !read_numbers(c, directions, "activation_alpha", 0) ||
        !read_numbers(c, directions, "activation_beta", 1))
        return false;
    if (c->gates == 1) { /* the op has both */
        same = true;
        for (int k = 0; k < directions; k++)
            same = same && !c->act[k][0].n &&
                   (c->act[k][0].op == OP_tanh || c->act[k][0].op == OP_relu);
    }
    c->plain = same && c->clip <= 0 && !c->forget && !(c->gates == 4 && ox_has(b, 7)) &&
               (c->gates != 3 || ox_int(b, "linear_before_reset", 0));
    return true;
}

static bool read_cell(ox_build *b, cell *c)
{
    const nnc_type w = *ox_type(b, ox_in(b, 1)), r = *ox_type(b, ox_in(b, 2));
    c->batch_first = ox_int(b, "layout", 0) != 0;
    c->x = c->batch_first ? ox_transposed(b, ox_in(b, 0), (int64_t[]){1, 0, 2}) : ox_in(b, 0);
    if (c->x == NNC_NONE)
        return false;
    const nnc_type x = *ox_type(b, c->x);
    c->size = r.rank == 3 ? r.dim[2] : 0;
    c->lengths = ox_has(b, 4) ? ox_in(b, 4) : NNC_NONE;
    if (x.rank != 3 || w.rank != 3 || c->size < 1 || w.dim[1] != c->gates * c->size ||
        r.dim[1] != w.dim[1] || r.dim[0] != w.dim[0] || w.dim[0] > 2)
        return ox_wrong(b, "its weights have shapes that do not fit");
    c->steps = x.dim[0];
    c->batch = x.dim[1];
    return true;
}

static bool recurrent(ox_build *b, int gates, const int *order, const char *usual)
{
    cell c = {.b = b, .gates = gates, .order = order, .usual = usual};
    const char *way = ox_word(b, "direction", "forward");
    int n = !strcmp(way, "bidirectional") ? 2 : 1;
    if (!read_attributes(&c, n) || !read_cell(b, &c))
        return false;
    nnc_ref y[2], h[2], last[2] = {NNC_NONE, NNC_NONE};
    if (ox_type(b, ox_in(b, 1))->dim[0] != n)
        return ox_wrong(b, "its weights are not those of %d direction%s", n, n > 1 ? "s" : "");
    for (int k = 0; k < n; k++) {
        bool back = k == 1 || !strcmp(way, "reverse");
        y[k] = build_direction(&c, back ? backwards(&c, c.x) : c.x, k, &last[k]);
        if (y[k] == NNC_NONE)
            return false;
        h[k] = ox_reshape(
            b, ox_slice(b, y[k], 0, c.steps - 1, c.steps), 2, (int64_t[]){c.batch, c.size});
        y[k] = ended(&c, back ? backwards(&c, y[k]) : y[k]);
    }
    nnc_ref all = stack(b, y, n, 1); /* [steps, directions, batch, size] */
    if (c.batch_first)
        all = ox_transposed(b, all, (int64_t[]){2, 0, 1, 3});
    if (gates == 4 && ox_wants(b, 2) && !ox_set(b, 2, stack(b, last, n, c.batch_first)))
        return false;
    return ox_give(b, all) && ox_set(b, 1, stack(b, h, n, c.batch_first));
}

bool ox_lstm(ox_build *b)
{
    static const int order[] = {0, 2, 3, 1}; /* i f g o of i o f g */
    return recurrent(b, 4, order, "Sigmoid Tanh Tanh");
}

bool ox_gru(ox_build *b)
{
    static const int order[] = {1, 0, 2}; /* r z n of z r n */
    return recurrent(b, 3, order, "Sigmoid Tanh");
}

bool ox_rnn(ox_build *b)
{
    static const int order[] = {0};
    return recurrent(b, 1, order, "Tanh");
}
