/* onnx/build_recurrent.c -- LSTM, GRU and RNN: the input's part of all gates is one product; a loop over time does the rest. */
#include "onnx/internal.h"
#include <string.h>

typedef struct cell {
    ox_build *b;
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

/* One step of a GRU that resets the state before its product: (1 - z) n + z h, n = tanh(x_n + R_n (r h) + b). */
static nnc_ref gru_step(const cell *c, nnc_ref x, nnc_ref r, nnc_ref bias, nnc_ref h)
{
    ox_build *b = c->b;
    int64_t s = c->size;
    nnc_ref rh[2] = {h, ox_slice(b, r, 0, 0, 2 * s)},
            rn[3] = {NNC_NONE, ox_slice(b, r, 0, 2 * s, 3 * s), bias};
    nnc_ref gate = ox_1(b, OP_sigmoid,
        ox_2(b, OP_add, ox_slice(b, x, 1, 0, 2 * s), ox_op(b, OP_linear, 2, rh, 0, NULL)));
    nnc_ref z = ox_slice(b, gate, 1, s, 2 * s);
    rn[0] = ox_2(b, OP_mul, ox_slice(b, gate, 1, 0, s), h);
    nnc_ref n = ox_1(b, OP_tanh,
        ox_2(b, OP_add, ox_slice(b, x, 1, 2 * s, 3 * s), ox_op(b, OP_linear, 3, rn, 0, NULL)));
    return ox_2(b, OP_add, n, ox_2(b, OP_mul, z, ox_2(b, OP_sub, h, n)));
}

/* Its steps written out; a sequence that has ended keeps its state. */
static nnc_ref gru_steps(const cell *c, nnc_ref x, nnc_ref r, nnc_ref bias, nnc_ref h)
{
    ox_build *b = c->b;
    enum { MOST = 512 };
    nnc_ref y[MOST];
    int64_t row[2] = {c->batch, 3 * c->size}, one[3] = {1, c->batch, c->size};
    if (c->steps > MOST)
        return ox_refuse(b, "linear_before_reset=0 and more than %d steps", MOST), NNC_NONE;
    for (int64_t t = 0; t < c->steps; t++) {
        nnc_ref next = gru_step(c, ox_reshape(b, ox_slice(b, x, 0, t, t + 1), 2, row), r, bias, h);
        if (c->lengths != NNC_NONE) {
            nnc_ref length = ox_along(b, ox_to(b, c->lengths, DT_i64), 2, 0);
            next = ox_select(b, ox_2n(b, OP_gt, length, (double)t), next, h);
        }
        h = next;
        y[t] = ox_reshape(b, h, 3, one);
    }
    return ox_joined(b, (int)c->steps, y, 0);
}

/* y [steps, batch, size] and the last cell state of direction k, whose x is in its order. */
static nnc_ref run(const cell *c, nnc_ref x, int k, nnc_ref *last)
{
    ox_build *b = c->b;
    bool lstm = c->gates == 4, gru = c->gates == 3,
         after = ox_int(b, "linear_before_reset", 0) != 0;
    nnc_ref in[3] = {x, weight(c, 1, k, 0)}, r = weight(c, 2, k, 0), own = NNC_NONE;
    int64_t s = c->size;
    if (ox_has(b, 3)) {
        nnc_ref wb = weight(c, 3, k, 0), rb = weight(c, 3, k, c->gates);
        if (gru) { /* the part of the recurrent bias that is reset with the state */
            own = ox_slice(b, rb, 0, 2 * s, 3 * s);
            nnc_ref two[2] = {
                ox_slice(b, rb, 0, 0, 2 * s), ox_broadcast(b, ox_num(b, ox_dt(b, rb), 0), 1, &s)};
            rb = ox_joined(b, 2, two, 0);
        }
        in[2] = ox_2(b, OP_add, wb, rb);
    } else if (gru) {
        own = ox_broadcast(b, ox_num(b, ox_dt(b, x), 0), 1, &s);
    }
    x = ox_op(b, OP_linear, 2 + ox_has(b, 3), in, 0, NULL);
    if (x == NNC_NONE)
        return x;
    nnc_ref h = state(c, 5, k);
    if (gru && !after)
        return gru_steps(c, x, r, own, h);
    nnc_ref v[5] = {x, ox_transposed(b, r, (int64_t[]){1, 0}), gru ? own : h, gru ? h : NNC_NONE};
    int n = gru ? 4 : 3;
    if (lstm)
        v[n++] = state(c, 6, k);
    if (c->lengths != NNC_NONE)
        v[n++] = c->lengths;
    bool relu = !strncmp(ox_words(b, "activations"), "Relu", 4);
    nnc_attr act = nnc_aw(AT_activation, relu ? "relu" : "tanh");
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

/* The activations that are stated must be the usual ones; RNN may have Relu. */
static bool usual(ox_build *b, const char *usual_words)
{
    const char *words = ox_words(b, "activations");
    size_t n = strlen(usual_words);
    for (const char *p = words; *p; p += n, p += strspn(p, " "))
        if (strncmp(p, usual_words, n) != 0)
            return ox_refuse(b, "the activations `%.60s` are unsupported", words);
    return (!ox_has_attr(b, "clip") && !ox_int(b, "input_forget", 0)) ||
           ox_refuse(b, "clip and input_forget are unsupported");
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

static bool recurrent(ox_build *b, int gates, const int *order)
{
    cell c = {.b = b, .gates = gates, .order = order};
    const char *way = ox_word(b, "direction", "forward");
    if (ox_has(b, 7))
        return ox_refuse(b, "peepholes are unsupported");
    if (!read_cell(b, &c))
        return false;
    int n = !strcmp(way, "bidirectional") ? 2 : 1;
    nnc_ref y[2], h[2], last[2] = {NNC_NONE, NNC_NONE};
    if (ox_type(b, ox_in(b, 1))->dim[0] != n)
        return ox_wrong(b, "its weights are not those of %d direction%s", n, n > 1 ? "s" : "");
    for (int k = 0; k < n; k++) {
        bool back = k == 1 || !strcmp(way, "reverse");
        y[k] = run(&c, back ? backwards(&c, c.x) : c.x, k, &last[k]);
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
    return usual(b, "Sigmoid Tanh Tanh") && recurrent(b, 4, order);
}

bool ox_gru(ox_build *b)
{
    static const int order[] = {1, 0, 2}; /* r z n of z r n */
    return usual(b, "Sigmoid Tanh") && recurrent(b, 3, order);
}

bool ox_rnn(ox_build *b)
{
    static const int order[] = {0};
    const char *words = ox_words(b, "activations");
    return usual(b, strncmp(words, "Relu", 4) ? "Tanh" : "Relu") && recurrent(b, 1, order);
}
