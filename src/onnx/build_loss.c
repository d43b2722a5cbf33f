/* onnx/build_loss.c -- the losses of classes: SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss. */
#include "onnx/internal.h"
#include <string.h>

/* The sum or the mean of a loss for each target, whose weights the mean is divided by. */
static nnc_ref summed(ox_build *b, nnc_ref loss, nnc_ref weight)
{
    const char *how = ox_word(b, "reduction", "mean");
    if (!strcmp(how, "none"))
        return loss;
    int64_t axes[NNC_MAX_RANK];
    const int rank = ox_type(b, loss)->rank;
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    const bool divide = !strcmp(how, "mean") && weight != NNC_NONE;
    const nnc_op op = !strcmp(how, "mean") && !divide ? OP_reduce_mean : OP_reduce_sum;
    nnc_ref sum = ox_reduced(b, op, loss, rank, axes, false);
    return divide ? ox_2(b, OP_div, sum, ox_reduced(b, OP_reduce_sum, weight, rank, axes, false))
                  : sum;
}

/* -weight[target] * x[.., target, ..] of log probabilities x [N,C,...], 0 for the targets that are ignored. */
static nnc_ref likelihood(ox_build *b, nnc_ref x)
{
    nnc_ref at = ox_in(b, 1), valid = NNC_NONE, weight = NNC_NONE;
    const nnc_dtype dt = ox_dt(b, x);
    const nnc_type t = *ox_type(b, at);
    if (ox_has_attr(b, "ignore_index")) {
        nnc_ref index = ox_num(b, t.dtype, (double)ox_int(b, "ignore_index", 0));
        valid = ox_1(b, OP_not, ox_2(b, OP_eq, at, index));
        at = ox_select(b, valid, at, ox_num(b, t.dtype, 0));
        weight = ox_to(b, valid, dt);
    }
    if (ox_has(b, 2)) {
        nnc_ref v[2] = {ox_in(b, 2), at};
        weight = ox_on_axis(b, OP_gather, 2, v, 0);
        weight = valid == NNC_NONE ? weight : ox_select(b, valid, weight, ox_num(b, dt, 0));
    }
    nnc_ref v[2] = {x, ox_add_dim(b, at, 1)};
    nnc_ref loss = ox_reshape(b, ox_on_axis(b, OP_gather_elements, 2, v, 1), t.rank, t.dim);
    loss = ox_1(b, OP_neg, loss);
    loss = ox_has(b, 2) ? ox_2(b, OP_mul, loss, weight) : loss;
    loss = valid == NNC_NONE ? loss : ox_select(b, valid, loss, ox_num(b, dt, 0));
    return summed(b, loss, weight);
}

bool ox_loss(ox_build *b)
{
    nnc_ref x = ox_in(b, 0);
    const nnc_type t = *ox_type(b, x), at = *ox_type(b, ox_in(b, 1));
    bool fits = t.rank >= 2 && at.rank == t.rank - 1;
    for (int i = 0; fits && i < at.rank; i++)
        fits = at.dim[i] == t.dim[i ? i + 1 : 0];
    if (!fits)
        return ox_wrong(b, "its targets have another shape than its scores without their classes");
    if (!strcmp(b->n->op, "SoftmaxCrossEntropyLoss"))
        x = ox_on_axis(b, OP_log_softmax, 1, &x, 1);
    return (!ox_wants(b, 1) || ox_set(b, 1, x)) && ox_give(b, likelihood(b, x));
}
