/* train/train.c -- the training graph: a copy of the model with batch statistics and dropout, its loss, the gradients, and updates. */
#include "train/internal.h"

#include <math.h>
#include <string.h>

const nnc_training nnc_training_defaults = {NNC_TRAINING_DEFAULTS};

nnc_ref number_op(nnc_graph *g, nnc_op op, nnc_ref r, double v)
{
    if (r == NNC_NONE)
        return NNC_NONE;
    return nnc_build2(g, op, r, nnc_scalar(g, (nnc_dtype)nnc_typeof(g, r)->dtype, v));
}

nnc_ref scalar_input(nnc_graph *g, const char *name, nnc_dtype d)
{
    const nnc_type t = nnc_type_make(d, 0, NULL);
    return nnc_input(g, name, &t);
}

/* ---- the model in training mode ---------------------------------------------------------------------------------------- */

typedef struct copy {
    nnc_graph *g; /* the training graph */
    const nnc_graph *m;
    const nnc_training *t;
    nnc_ref *map; /* values of g for those of m */
    bool evaluate;
    nnc_ref key; /* of dropouts, made on first use */
    nnc_ref *state, *added; /* running statistics, and what moves them */
    int n_state;
} copy;

/* Moves the running statistic `was` towards that of the batch: once more for each batch norm that shares it. */
static void move_statistic(copy *c, nnc_ref was, nnc_ref batch, double factor)
{
    int i = 0;
    if (nnc_def(c->g, was)->op != OP_param) /* computed: nothing to move */
        return;
    while (i < c->n_state && c->state[i] != was)
        i++;
    const double share = c->t->bn_momentum;
    nnc_ref added = number_op(c->g, OP_mul, batch, share * factor);
    if (i <
        c->n_state) { /* (was (1 - share) + before) (1 - share) + added = was (1 - share) + ... */
        nnc_ref before = nnc_build2(c->g, OP_sub, c->added[i], number_op(c->g, OP_mul, was, share));
        added = nnc_build2(c->g, OP_add, number_op(c->g, OP_mul, before, 1 - share), added);
    }
    c->state[i] = was;
    c->added[i] = added;
    c->n_state = i < c->n_state ? c->n_state : i + 1;
}

/* A batch norm by the statistics of its batch: biased for the result, the variance unbiased for the running one (as PyTorch). */
static nnc_ref by_batch(copy *c, const nnc_node *n, nnc_ref *in)
{
    nnc_graph *g = c->g;
    const nnc_type t = *nnc_typeof(g, in[0]);
    int64_t axes[NNC_MAX_RANK] = {0}, dim[NNC_MAX_RANK], k = 1;
    for (int d = 2; d < t.rank; d++)
        axes[k++] = d;
    const int64_t each = nnc_type_numel(&t) / t.dim[1];
    if (each == 1) {
        nnc_loc loc = n->loc;
        loc.path = n->origin;
        g->status = nnc_fail(g->sink, NNC_E_MODEL, loc,
            "a batch norm in training mode has one number a channel, whose variance is 0: set a "
            "larger batch (--set batch=...), or freeze the layer, or use --bn=eval");
        return NNC_NONE;
    }
    const double count = (double)each;
    nnc_ref mean = nnc_reduce(g, OP_reduce_mean, in[0], (int)k, axes, true);
    nnc_ref centred = nnc_build2(g, OP_sub, in[0], mean);
    nnc_ref square = nnc_build2(g, OP_mul, centred, centred);
    nnc_ref var = nnc_reduce(g, OP_reduce_mean, square, (int)k, axes, true);
    dim[0] = t.dim[1];
    mean = nnc_reshape(g, mean, 1, dim);
    var = nnc_reshape(g, var, 1, dim);
    if (var == NNC_NONE)
        return NNC_NONE;
    move_statistic(c, in[3], mean, 1);
    move_statistic(c, in[4], var, count > 1 ? count / (count - 1) : 1);
    in[3] = mean;
    in[4] = var;
    return nnc_copy_node(g, c->m, n, in);
}

/* A number of 32 bits for each element from its index and the key: Wellons' hash "lowbias32" (nullprogram.com, 2018). */
static nnc_ref hashed(copy *c, nnc_ref key, const nnc_type *t)
{
    nnc_graph *g = c->g;
    const int64_t n = nnc_type_numel(t);
    const nnc_type line = nnc_type_make(DT_u32, 1, &n);
    static const struct {
        int shift;
        double factor;
    } rounds[] = {{16, 0x7feb352d}, {15, 0x846ca68b}, {16, 0}};
    const nnc_attr dim = nnc_ai(AT_dim, 0);
    nnc_ref h = nnc_build_typed(g, OP_iota, 0, NULL, 1, &dim, &line);
    h = nnc_build2(g, OP_bit_xor, h, key);
    for (size_t i = 0; i < NNC_COUNT(rounds); i++) {
        h = nnc_build2(g, OP_bit_xor, h, number_op(g, OP_shr, h, rounds[i].shift));
        if (rounds[i].factor)
            h = number_op(g, OP_mul, h, rounds[i].factor);
    }
    return nnc_reshape(g, h, t->rank, t->dim);
}

/* x / (1 - p) with probability 1 - p, else 0. */
static nnc_ref dropped(copy *c, const nnc_node *n, nnc_ref x)
{
    nnc_graph *g = c->g;
    const double p = nnc_attr_float(n, AT_alpha, 0.5);
    const nnc_type t = *nnc_typeof(g, x);
    if (p <= 0)
        return x;
    if (c->key == NNC_NONE)
        c->key = scalar_input(g, NNC_TRAIN_KEY, DT_u32);
    nnc_ref key = number_op(g, OP_bit_xor, c->key,
        (double)(uint32_t)nnc_hash64(
            n->origin ? n->origin : "", n->origin ? strlen(n->origin) : 0, 0));
    nnc_ref drop = number_op(g, OP_lt, hashed(c, key, &t), floor(fmin(p, 1) * 0x1p32 - (p >= 1)));
    nnc_ref kept = number_op(g, OP_mul, x, p < 1 ? 1 / (1 - p) : 0);
    return drop == NNC_NONE
               ? NNC_NONE
               : nnc_build3(g, OP_select, drop, nnc_scalar(g, (nnc_dtype)t.dtype, 0), kept);
}

/* Does batch norm n, with this running mean, use the statistics of its batch? */
static bool is_by_batch(const copy *c, const nnc_node *n, nnc_ref mean)
{
    const nnc_attr *own = nnc_attr_find(n, AT_bn);
    const char word = own ? own->word[0] : 'a';
    if (c->t->bn != NNC_BN_auto)
        return c->t->bn == NNC_BN_train;
    return word == 'a' ? !nnc_def(c->g, mean)->frozen : word == 't';
}

static void copy_one(copy *c, const nnc_node *n)
{
    nnc_ref in[8] = {0};
    NNC_FREED nnc_ref *many = n->n_in > 8 ? nnc_malloc(n->n_in * sizeof *many) : NULL;
    nnc_ref *arg = n->n_in > 8 ? many : in, r;
    if (!arg) {
        c->g->status = nnc_nomem(c->g->sink);
        return;
    }
    for (int i = 0; i < n->n_in; i++)
        arg[i] = c->map[n->in[i]];
    c->g->origin = n->origin;
    c->g->loc = n->loc;
    c->g->device = n->device;
    if (n->op == OP_batchnorm && !c->evaluate && is_by_batch(c, n, arg[3]))
        r = by_batch(c, n, arg);
    else if (n->op == OP_dropout)
        r = c->evaluate ? arg[0] : dropped(c, n, arg[0]);
    else
        r = nnc_copy_node(c->g, c->m, n, arg);
    if (n->op == OP_param && r != NNC_NONE)
        nnc_def(c->g, r)->frozen = nnc_train_freezes(c->t, n);
    for (int i = 0; i < n->n_out; i++)
        c->map[n->out + (nnc_ref)i] = r == NNC_NONE ? r : r + (nnc_ref)i;
}

/* ---- losses ------------------------------------------------------------------------------------------------------------ */

static nnc_ref mean_of_all(nnc_graph *g, nnc_ref x)
{
    int64_t axes[NNC_MAX_RANK];
    int rank = x == NNC_NONE ? 0 : nnc_typeof(g, x)->rank;
    for (int d = 0; d < rank; d++)
        axes[d] = d;
    return rank ? nnc_reduce(g, OP_reduce_mean, x, rank, axes, false) : x;
}

/* The mean of x[N,..1,..] over the indices that count, and how many those are; without ignored ones over all. */
static nnc_ref mean_of_counted(copy *c, nnc_ref x, nnc_ref counts, nnc_ref *counted)
{
    nnc_graph *g = c->g;
    if (counts == NNC_NONE)
        return mean_of_all(g, x);
    int64_t axes[NNC_MAX_RANK];
    const int rank = nnc_typeof(g, counts)->rank;
    for (int d = 0; d < rank; d++)
        axes[d] = d;
    *counted = nnc_reduce(g, OP_reduce_sum, nnc_cast(g, counts, DT_f32), rank, axes, false);
    nnc_ref kept = nnc_build3(g, OP_select, counts, x, nnc_scalar(g, DT_f32, 0));
    nnc_ref sum = nnc_reduce(g, OP_reduce_sum, kept, rank, axes, false);
    return nnc_build2(g, OP_div, sum, number_op(g, OP_max, *counted, 1));
}

/* The axis of the classes; -1: reported. */
static int find_classes(copy *c, nnc_ref y, nnc_sink *sink)
{
    const int rank = nnc_typeof(c->g, y)->rank, axis = nnc_class_axis(c->t, rank);
    nnc_loc loc = nnc_def(c->g, y)->loc;
    if (axis > 0)
        return axis;
    loc.path = nnc_def(c->g, y)->origin;
    nnc_fail(sink, NNC_E_MODEL, loc,
        "the loss cross_entropy takes logits [N,C,...], or [N,...,C] with --class-axis=-1; this "
        "has "
        "%d dimensions and no classes in dimension %d",
        rank, c->t->class_axis);
    return -1;
}

/* mean over the indices of -(1 - s) log p[target] - s mean over the classes of log p */
static nnc_ref cross_entropy(copy *c, nnc_ref y, nnc_ref *correct, nnc_ref *counted, nnc_sink *sink)
{
    nnc_graph *g = c->g;
    const nnc_type t = *nnc_typeof(g, y);
    const int at = find_classes(c, y, sink);
    const int64_t axis = at;
    int64_t dim[NNC_MAX_RANK], line[NNC_MAX_RANK], axes[NNC_MAX_RANK], target_dim[NNC_MAX_RANK];
    int n = 0;
    if (at < 0)
        return NNC_NONE;
    for (int d = 0; d < t.rank; d++) {
        dim[d] = d == at ? 1 : t.dim[d];
        line[d] = d == at ? t.dim[at] : 1;
        axes[d] = d;
        if (d != at)
            target_dim[n++] = t.dim[d];
    }
    const nnc_type target = nnc_type_make(DT_i64, n, target_dim);
    nnc_ref index = nnc_input(g, NNC_TRAIN_TARGET, &target);
    nnc_ref column = nnc_reshape(g, index, t.rank, dim), counts = NNC_NONE;
    const nnc_type classes = nnc_type_make(DT_i64, t.rank, line);
    const nnc_attr along = nnc_ai(AT_dim, at), over = nnc_ai(AT_axis, at);
    nnc_ref is =
        nnc_build2(g, OP_eq, nnc_build_typed(g, OP_iota, 0, NULL, 1, &along, &classes), column);
    nnc_ref logp = nnc_build(g, OP_log_softmax, 1, &y, 1, &over);
    if (is == NNC_NONE || logp == NNC_NONE)
        return NNC_NONE;
    nnc_ref zero = nnc_scalar(g, (nnc_dtype)t.dtype, 0);
    nnc_ref own =
        nnc_reduce(g, OP_reduce_sum, nnc_build3(g, OP_select, is, logp, zero), 1, &axis, true);
    const double s = c->t->label_smoothing;
    if (s > 0) {
        nnc_ref all = nnc_reduce(g, OP_reduce_mean, logp, 1, &axis, true);
        own = nnc_build2(g, OP_add, number_op(g, OP_mul, own, 1 - s), number_op(g, OP_mul, all, s));
    }
    if (c->t->ignore_index != NNC_IGNORE_none)
        counts = number_op(g, OP_ne, column, c->t->ignore_index);
    const nnc_attr best[] = {over, nnc_ai(AT_keepdims, 1)};
    nnc_ref hit = nnc_build2(g, OP_eq, nnc_build(g, OP_argmax, 1, &y, 2, best), column);
    if (counts != NNC_NONE)
        hit = nnc_build2(g, OP_and, hit, counts);
    *correct = nnc_reduce(g, OP_reduce_sum, nnc_cast(g, hit, DT_f32), t.rank, axes, false);
    return nnc_build1(g, OP_neg, mean_of_counted(c, own, counts, counted));
}

/* After a relu or sigmoid a model learns little, and nothing else says why. */
static void warn_of_bounds(const copy *c, const nnc_node *last, nnc_sink *sink)
{
    static const nnc_op bounded[] = {OP_relu, OP_relu6, OP_sigmoid, OP_tanh, OP_softmax};
    nnc_loc loc = last->loc;
    loc.path = last->origin;
    for (size_t i = 0; i < NNC_COUNT(bounded); i++)
        if (last->op == bounded[i])
            nnc_warn(sink, loc,
                "--loss=%s takes logits, which have any value; this is a %s: leave it out",
                c->t->loss == NNC_LOSS_bce ? "bce" : "cross_entropy", nnc_ops[last->op].name);
}

static nnc_ref loss_of(copy *c, nnc_ref y, nnc_ref *correct, nnc_ref *counted, nnc_sink *sink)
{
    nnc_graph *g = c->g;
    const nnc_node *last = nnc_def(g, y);
    const nnc_ref was = y;
    g->origin = "/loss";
    g->loc = last->loc;
    g->device = last->device; /* layers after it may be elsewhere */
    if (c->t->loss == NNC_LOSS_cross_entropy && last->op == OP_softmax &&
        nnc_attr_int(last, AT_axis, 0) == nnc_class_axis(c->t, nnc_typeof(g, y)->rank))
        y = last->in[0]; /* the loss has its own */
    if (c->t->loss == NNC_LOSS_bce && last->op == OP_sigmoid)
        y = last->in[0];
    if (y == was && c->t->loss != NNC_LOSS_mse && !c->evaluate)
        warn_of_bounds(c, last, sink);
    if (nnc_typeof(g, y)->dtype != DT_f32)
        y = nnc_cast(g, y, DT_f32);
    if (c->t->loss == NNC_LOSS_cross_entropy)
        return cross_entropy(c, y, correct, counted, sink);
    const nnc_type t = nnc_type_dense(nnc_typeof(g, y));
    nnc_ref target = nnc_input(g, NNC_TRAIN_TARGET, &t), e;
    if (c->t->loss == NNC_LOSS_mse) {
        e = nnc_build2(g, OP_sub, y, target);
        return mean_of_all(g, nnc_build2(g, OP_mul, e, e));
    }
    /* -target log s(y) - (1 - target) log (1 - s(y)), s the sigmoid */
    e = nnc_build2(g, OP_sub, nnc_build1(g, OP_softplus, y), nnc_build2(g, OP_mul, y, target));
    return mean_of_all(g, e);
}

/* ---- together ------------------------------------------------------------------------------------------------------------ */

bool is_added_input(const char *name)
{
    static const char *const added[] = {NNC_TRAIN_TARGET, NNC_TRAIN_LR, NNC_TRAIN_SCALE1,
        NNC_TRAIN_SCALE2, NNC_TRAIN_FIRST, NNC_TRAIN_KEY};
    for (size_t k = 0; k < NNC_COUNT(added) && name; k++)
        if (!strcmp(name, added[k]))
            return true;
    return false;
}

/* Does an input of the model have the name of one that training adds? Reports it. */
static bool name_is_taken(const nnc_graph *m, nnc_sink *sink)
{
    for (uint32_t i = 0; i < m->n_node; i++) {
        const nnc_node *n = &m->node[i];
        const char *name = m->value[n->out].name;
        if (n->op == OP_input && is_added_input(name)) {
            nnc_fail(sink, NNC_E_MODEL, n->loc,
                "training adds an input named %s: give the model's another name", name);
            return true;
        }
    }
    return false;
}

/* The model, whose layers may have such names (the key of an attention): their values get others, as inputs are found by theirs. NULL: no
 * memory. */
static nnc_graph *with_free_names(const nnc_graph *m, nnc_sink *sink)
{
    nnc_graph *g = nnc_graph_clone(m, sink);
    for (uint32_t i = 0; g && i < g->n_node; i++)
        for (nnc_ref r = g->node[i].out; r < g->node[i].out + (nnc_ref)g->node[i].n_out; r++)
            if (g->node[i].op != OP_input && is_added_input(g->value[r].name))
                g->value[r].name = nnc_arena_printf(&g->arena, "%s.value", g->value[r].name);
    return g;
}

/* Copies the model and adds its loss as output. */
static nnc_ref with_loss(copy *c, nnc_sink *sink)
{
    nnc_ref correct = NNC_NONE, counted = NNC_NONE;
    if (name_is_taken(c->m, sink))
        return NNC_NONE;
    if (check_patterns(c->m, c->t, sink)) {
        c->g->status = NNC_E_USAGE;
        return NNC_NONE;
    }
    for (uint32_t i = 0; i < c->m->n_node && c->g->status == NNC_OK; i++)
        copy_one(c, &c->m->node[i]);
    if (c->g->status != NNC_OK)
        return NNC_NONE;
    nnc_ref loss = loss_of(c, c->map[c->m->output[0]], &correct, &counted, sink);
    if (loss == NNC_NONE)
        return NNC_NONE;
    nnc_output(c->g, loss, "loss");
    if (correct != NNC_NONE)
        nnc_output(c->g, correct, "correct");
    if (counted != NNC_NONE)
        nnc_output(c->g, counted, "counted");
    return loss;
}

/* The loss of all devices. Running statistics and what moves them are outputs meanwhile, to be found again. */
static nnc_status divide_loss(copy *c, nnc_ref *loss, nnc_sink *sink)
{
    const uint32_t n = c->g->n_output;
    if (!c->t->divide)
        return NNC_OK;
    for (int i = 0; i < c->n_state; i++) {
        nnc_output(c->g, c->state[i], NULL);
        nnc_output(c->g, c->added[i], NULL);
    }
    NNC_TRY(c->g->status);
    NNC_TRY(c->t->divide(c->t->divide_ctx, &c->g, sink));
    *loss = c->g->output[0];
    for (int i = 0; i < c->n_state; i++) {
        c->state[i] = c->g->output[n + 2 * (uint32_t)i];
        c->added[i] = c->g->output[n + 2 * (uint32_t)i + 1];
    }
    c->g->n_output = n;
    return NNC_OK;
}

static nnc_status make_of(
    const nnc_graph *m, const nnc_training *t, bool evaluate, nnc_graph **out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    copy c = {.g = nnc_graph_create(m->name, sink),
        .m = m,
        .t = t,
        .map = ARENA_NEW(&a, nnc_ref, m->n_value + 1),
        .evaluate = evaluate,
        .key = NNC_NONE,
        .state = ARENA_NEW(&a, nnc_ref, 2 * m->n_node + 1),
        .added = ARENA_NEW(&a, nnc_ref, 2 * m->n_node + 1)};
    *out = NULL;
    if (!c.g || !c.map || !c.state || !c.added) {
        nnc_graph_destroy(c.g);
        return nnc_nomem(sink);
    }
    nnc_ref loss = with_loss(&c, sink);
    nnc_status s = c.g->status;
    if (!s && loss == NNC_NONE)
        s = NNC_E_MODEL;
    s = s ? s : divide_loss(&c, &loss, sink);
    if (!s && evaluate)
        add_identities(c.g);
    else if (!s)
        s = add_optimizer(c.g, loss, t, sink);
    if (!s)
        move_statistics(c.g, t, c.n_state, c.state, c.added, &a);
    s = s ? s : c.g->status;
    if (!s)
        s = nnc_graph_tidy(c.g);
    if (!s)
        s = nnc_verify(c.g, sink);
    if (s)
        nnc_graph_destroy(c.g);
    else
        *out = c.g;
    return s;
}

static nnc_status make(
    const nnc_graph *m, const nnc_training *t, bool evaluate, nnc_graph **out, nnc_sink *sink)
{
    bool clash = false;
    *out = NULL;
    for (nnc_ref r = 0; r < m->n_value && !clash; r++)
        clash = is_added_input(m->value[r].name);
    if (m->n_output == 0)
        return nnc_fail0(
            sink, NNC_E_MODEL, "%s: no output has elements, so there is no loss", m->name);
    nnc_graph *renamed = clash ? with_free_names(m, sink) : NULL;
    NNC_NEED(renamed || !clash, sink);
    const nnc_status s = make_of(clash ? renamed : m, t, evaluate, out, sink);
    nnc_graph_destroy(renamed);
    return s;
}

nnc_status nnc_train_graph(
    const nnc_graph *m, const nnc_training *t, nnc_graph **out, nnc_sink *sink)
{
    warn_unused(t, sink);
    if (t->grad_inputs)
        NNC_TRY(check_float_inputs(m, sink));
    return make(m, t, false, out, sink);
}

nnc_status nnc_evaluation_graph(
    const nnc_graph *m, const nnc_training *t, nnc_graph **out, nnc_sink *sink)
{
    return make(m, t, true, out, sink);
}
