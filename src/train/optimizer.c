/* train/optimizer.c -- updates of weights by their gradients, as PyTorch's optimizers of the same names:
 *
 *     sgd     g += wd w;  v = momentum v + g (the first v is g);  w -= lr (nesterov ? g + momentum v : v)
 *     adam    g += wd w;  m = b1 m + (1 - b1) g;  s = b2 s + (1 - b2) g^2;  w -= lr (m/(1 - b1^t)) / (sqrt(s/(1 - b2^t)) + eps)
 *     adamw   w -= lr wd w, then adam without wd   (Loshchilov, Hutter: Decoupled Weight Decay Regularization, 2019) */
#include "autodiff/autodiff.h"
#include "train/internal.h"

#include <string.h>

typedef struct optimizer {
    nnc_graph *g;
    const nnc_training *t;
    nnc_ref lr, scale1, scale2;
} optimizer;

/* A state of w's type that is 0 at first: "conv1.weight.momentum". */
static nnc_ref moment(optimizer *o, nnc_ref w, const char *suffix)
{
    const nnc_node *n = nnc_def(o->g, w);
    const nnc_type t = nnc_type_dense(nnc_typeof(o->g, w));
    const char *name = n->weight && n->weight->name ? n->weight->name : "weight";
    const nnc_weight zero = {
        .kind = NNC_W_gen, .name = nnc_arena_printf(&o->g->arena, "%s.%s", name, suffix)};
    return zero.name ? nnc_param(o->g, &t, &zero) : NNC_NONE;
}

static nnc_ref mix(optimizer *o, nnc_ref was, nnc_ref now, double share)
{
    return nnc_build2(
        o->g, OP_add, number_op(o->g, OP_mul, was, share), number_op(o->g, OP_mul, now, 1 - share));
}

static nnc_ref sgd_change(optimizer *o, nnc_ref w, nnc_ref grad)
{
    const double mu = o->t->momentum;
    if (mu == 0)
        return grad;
    nnc_ref v = moment(o, w, "momentum");
    nnc_ref next = nnc_build2(o->g, OP_add, number_op(o->g, OP_mul, v, mu), grad);
    nnc_update(o->g, v, next);
    return o->t->nesterov ? nnc_build2(o->g, OP_add, grad, number_op(o->g, OP_mul, next, mu))
                          : next;
}

static nnc_ref adam_change(optimizer *o, nnc_ref w, nnc_ref grad)
{
    nnc_ref m = moment(o, w, "exp_avg"), v = moment(o, w, "exp_avg_sq");
    nnc_ref m2 = mix(o, m, grad, o->t->beta1);
    nnc_ref v2 = mix(o, v, nnc_build2(o->g, OP_mul, grad, grad), o->t->beta2);
    nnc_update(o->g, m, m2);
    nnc_update(o->g, v, v2);
    nnc_ref root = nnc_build2(o->g, OP_mul, nnc_build1(o->g, OP_sqrt, v2), o->scale2);
    nnc_ref step = nnc_build2(o->g, OP_mul, m2, o->scale1);
    return nnc_build2(o->g, OP_div, step, number_op(o->g, OP_add, root, o->t->eps));
}

static void update_weight(optimizer *o, nnc_ref w, nnc_ref grad)
{
    nnc_graph *g = o->g;
    const double decay = o->t->weight_decay;
    const bool adam = o->t->optimizer != NNC_OPT_sgd, apart = o->t->optimizer == NNC_OPT_adamw;
    if (decay && !apart)
        grad = nnc_build2(g, OP_add, grad, number_op(g, OP_mul, w, decay));
    nnc_ref change = adam ? adam_change(o, w, grad) : sgd_change(o, w, grad);
    if (decay && apart)
        change = nnc_build2(g, OP_add, change, number_op(g, OP_mul, w, decay));
    change = nnc_build2(g, OP_mul, change, o->lr);
    nnc_update(g, w, nnc_build2(g, OP_sub, w, change));
}

void update_each(nnc_graph *g, const nnc_training *t, nnc_ref state, nnc_ref value)
{
    (t->accumulate > 1 ? nnc_accumulate : nnc_update)(g, state, value);
}

/* Makes of the gradients of a batch their means over the batches of a step: sum <- first ? grad : sum + grad. */
static void accumulate(optimizer *o, int n, const nnc_ref *w, nnc_ref *grad)
{
    nnc_graph *g = o->g;
    nnc_ref first = scalar_input(g, NNC_TRAIN_FIRST, DT_bool);
    for (int i = 0; i < n; i++) {
        nnc_ref was = moment(o, w[i], "grad");
        nnc_ref sum = nnc_build3(g, OP_select, first, grad[i], nnc_build2(g, OP_add, was, grad[i]));
        nnc_accumulate(g, was, sum);
        grad[i] = number_op(g, OP_mul, sum, 1.0 / o->t->accumulate);
    }
}

/* Scales all gradients by min(1, most / their common norm). */
static void clip(nnc_graph *g, int n, nnc_ref *grad, double most)
{
    nnc_ref sum = NNC_NONE;
    int64_t axes[NNC_MAX_RANK];
    for (int d = 0; d < NNC_MAX_RANK; d++)
        axes[d] = d;
    for (int i = 0; i < n; i++) {
        nnc_ref s = nnc_build2(g, OP_mul, grad[i], grad[i]);
        int rank = s == NNC_NONE ? 0 : nnc_typeof(g, s)->rank;
        s = rank ? nnc_reduce(g, OP_reduce_sum, s, rank, axes, false) : s;
        sum = i ? nnc_build2(g, OP_add, sum, s) : s;
    }
    nnc_ref norm = number_op(g, OP_add, nnc_build1(g, OP_sqrt, sum), 1e-6);
    nnc_ref factor =
        norm == NNC_NONE ? norm : nnc_build2(g, OP_div, nnc_scalar(g, DT_f32, most), norm);
    factor = number_op(g, OP_min, factor, 1);
    for (int i = 0; i < n; i++)
        grad[i] = nnc_build2(g, OP_mul, grad[i], factor);
}

/* Is the param one to train: of floats, not frozen, and no running statistic? */
static bool is_trained(const nnc_graph *g, const nnc_node *n, const bool *statistic)
{
    return n->op == OP_param && !n->frozen && !statistic[n->out] &&
           nnc_is_float((nnc_dtype)nnc_typeof(g, n->out)->dtype);
}

/* Only weights of f32 are updated: the updates of 16-bit ones would be lost in rounding. */
static nnc_status check_dtype(const nnc_graph *g, nnc_ref w, nnc_sink *sink)
{
    const nnc_node *n = nnc_def(g, w);
    const nnc_dtype d = (nnc_dtype)nnc_typeof(g, w)->dtype;
    nnc_loc loc = n->loc;
    loc.path = n->origin;
    return d == DT_f32
               ? NNC_OK
               : nnc_fail(sink, NNC_E_MODEL, loc,
                     "the weight %s is %s; training takes f32: give the layer no other "
                     "dtype, or freeze it",
                     n->weight && n->weight->name ? n->weight->name : "", nnc_dtype_name(d));
}

static nnc_status find_trained(const nnc_graph *g, nnc_ref *w, int *n, nnc_arena *a, nnc_sink *sink)
{
    bool *statistic = ARENA_NEW(a, bool, g->n_value + 1);
    NNC_NEED(statistic, sink);
    *n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (nnc_reads_statistic(&g->node[i], k))
                statistic[g->node[i].in[k]] = true;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (is_trained(g, &g->node[i], statistic))
            w[(*n)++] = g->node[i].out;
    return NNC_OK;
}

nnc_status add_optimizer(nnc_graph *g, nnc_ref loss, const nnc_training *t, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_ref *w = ARENA_NEW(&a, nnc_ref, g->n_node + 1),
            *grad = ARENA_NEW(&a, nnc_ref, g->n_node + 1);
    int n = 0, k = 0;
    NNC_NEED(w && grad, sink);
    NNC_TRY(find_trained(g, w, &n, &a, sink));
    NNC_TRY(nnc_gradients(g, 1, &loss, NULL, n, w, grad, sink));
    for (int i = 0; i < n; i++)
        if (grad[i] != NNC_NONE) {
            NNC_TRY(check_dtype(g, w[i], sink));
            w[k] = w[i];
            grad[k++] = grad[i];
        }
    if (!k)
        return nnc_fail0(sink, NNC_E_MODEL,
            "there is nothing to train: the loss depends on no weight that is not frozen");
    g->origin = "/optimizer";
    optimizer o = {.g = g, .t = t, .lr = scalar_input(g, NNC_TRAIN_LR, DT_f32)};
    if (t->optimizer != NNC_OPT_sgd) {
        o.scale1 = scalar_input(g, NNC_TRAIN_SCALE1, DT_f32);
        o.scale2 = scalar_input(g, NNC_TRAIN_SCALE2, DT_f32);
    }
    if (t->accumulate > 1)
        accumulate(&o, k, w, grad);
    if (t->clip_norm > 0)
        clip(g, k, grad, t->clip_norm);
    for (int i = 0; i < k && g->status == NNC_OK; i++)
        update_weight(&o, w[i], grad[i]);
    return g->status;
}

void add_identities(nnc_graph *g)
{
    const uint32_t end = g->n_node;
    for (uint32_t i = 0; i < end && g->status == NNC_OK; i++)
        if (g->node[i].op == OP_param && nnc_typeof(g, g->node[i].out)->dtype == DT_f32)
            nnc_update(g, g->node[i].out, nnc_build1(g, OP_identity, g->node[i].out));
}
