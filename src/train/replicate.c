/* train/replicate.c -- data parallelism: a training step of one device becomes one of several, each with a part of the batch.
 *
 * Each device has a copy of the step and of its states. Inputs have the batches of all devices, one after the other, and are divided on
 * device 0. Where gradients go into the optimizer, they are replaced by their mean over the devices: an allreduce, and a division. So all
 * copies of a weight are updated alike, and the step is that of one device with the whole batch, up to rounding, for losses that are
 * means over the samples. Batch norms use the statistics of their own device's part, as PyTorch's do without SyncBatchNorm; what moves
 * the running ones is the mean over the devices, so that these are alike, too.
 *
 * Gradients that the optimizer updates in one kernel (optimizer.c: side by side in one tensor) are in one allreduce. */
#include "train/internal.h"
#include <string.h>

typedef struct replicas {
    const nnc_graph *s; /* the step of one device */
    nnc_graph *g;
    int n;
    nnc_ref *map; /* by value of s * n + device */
    nnc_ref *mean; /* the same, of gradients that the optimizer reads; NNC_NONE: not made yet */
    bool *
        gradient; /* by value of s: computed from the loss, or such values only moved by the optimizer */
    nnc_arena *a;
} replicas;

static bool in_optimizer(const nnc_node *n)
{
    return n->origin && !strcmp(n->origin, NNC_TRAIN_OPTIMIZER);
}

static nnc_ref *slot(const replicas *c, nnc_ref *of, nnc_ref v)
{
    return of + (size_t)v * (size_t)c->n;
}

/* What the backward pass computes, and the optimizer puts side by side. */
static void find_gradients(replicas *c)
{
    for (uint32_t i = 0; i < c->s->n_node; i++) {
        const nnc_node *n = &c->s->node[i];
        const nnc_class cls = nnc_op_class((nnc_op)n->op);
        bool yes = cls != CL_leaf && (!in_optimizer(n) || cls == CL_move);
        for (int k = 0; k < n->n_in && in_optimizer(n); k++)
            yes = yes && c->gradient[n->in[k]];
        for (uint32_t k = 0; k < n->n_out; k++)
            c->gradient[n->out + k] = yes;
    }
}

/* The input of all devices, and each one's part of it. Numbers are the same for all; but dropouts differ. */
static void split_input(replicas *c, const nnc_node *n)
{
    nnc_graph *g = c->g;
    const char *name = c->s->value[n->out].name;
    nnc_type t = *nnc_typeof(c->s, n->out);
    const int64_t each = t.rank ? t.dim[0] : 0, axis = 0;
    if (t.rank)
        t.dim[0] = nnc_mul_sat(each, c->n);
    g->device = 0;
    g->origin = n->origin;
    g->loc = n->loc;
    const nnc_ref all = nnc_input(g, name, &t);
    for (int d = 0; d < c->n; d++) {
        const int64_t from = each * d, to = from + each;
        const nnc_attr cut[] = {
            nnc_av(AT_starts, 1, &from), nnc_av(AT_ends, 1, &to), nnc_av(AT_axes, 1, &axis)};
        nnc_ref own = all;
        if (t.rank)
            own = nnc_build(g, OP_slice, 1, &all, 3, cut);
        else if (d && name && !strcmp(name, NNC_TRAIN_KEY))
            own = number_op(g, OP_bit_xor, all, (double)(uint32_t)nnc_hash64(&d, sizeof d, 0));
        slot(c, c->map, n->out)[d] = own;
    }
}

/* The output of this name, or NNC_NONE. */
static nnc_ref output_named(const nnc_graph *s, const char *name)
{
    for (uint32_t i = 0; i < nnc_result_outputs(s) && s->output_name; i++)
        if (s->output_name[i] && !strcmp(s->output_name[i], name))
            return s->output[i];
    return NNC_NONE;
}

/* The mean over the devices of a gradient. */
static void add_mean(replicas *c, nnc_ref v)
{
    nnc_graph *g = c->g;
    nnc_ref *mean = slot(c, c->mean, v);
    if (mean[0] != NNC_NONE)
        return;
    if (output_named(c->s, "counted") != NNC_NONE) {
        g->status = nnc_fail0(g->sink, NNC_E_USAGE,
            "--strategy=data with --ignore-index: the devices' parts of a batch may count "
            "differently many targets, so the mean of their gradients is not that of the batch");
        return;
    }
    g->device = -1;
    const nnc_ref sum = nnc_build(g, OP_allreduce, c->n, slot(c, c->map, v), 0, NULL);
    for (int d = 0; d < c->n; d++) {
        g->device = (int16_t)d;
        mean[d] = sum == NNC_NONE ? sum : number_op(g, OP_div, sum + (nnc_ref)d, c->n);
    }
}

/* A copy's own name: states of several devices differ in it. */
static void set_name(replicas *c, nnc_ref was, nnc_ref now, int d)
{
    const char *name = c->s->value[was].name;
    const char *own = name && d ? nnc_arena_printf(c->a, "%s.device%d", name, d) : NULL;
    if (name && d && !own)
        c->g->status = nnc_nomem(c->g->sink);
    if (own && now != NNC_NONE)
        nnc_set_name(c->g, now, own);
}

static void copy_node(replicas *c, const nnc_node *n)
{
    nnc_graph *g = c->g;
    NNC_FREED nnc_ref *in = nnc_malloc(((size_t)n->n_in + 1) * sizeof *in);
    if (!in) {
        g->status = nnc_nomem(g->sink);
        return;
    }
    const bool updates = in_optimizer(n) && !c->gradient[n->out];
    g->origin = n->origin;
    for (int k = 0; k < n->n_in && updates; k++)
        if (c->gradient[n->in[k]])
            add_mean(c, n->in[k]);
    for (int d = 0; d < c->n && g->status == NNC_OK; d++) {
        for (int k = 0; k < n->n_in; k++)
            in[k] = slot(c, updates && c->gradient[n->in[k]] ? c->mean : c->map, n->in[k])[d];
        const nnc_ref r = nnc_copy_node(g, c->s, n, in);
        if (r == NNC_NONE)
            return;
        nnc_def(g, r)->device = (int16_t)d;
        if (n->op == OP_param)
            nnc_def(g, r)->frozen = n->frozen;
        set_name(c, n->out, r, d);
        for (uint32_t k = 0; k < n->n_out; k++)
            slot(c, c->map, n->out + k)[d] = r + k;
    }
}

static nnc_ref sum_of(nnc_graph *g, int n, const nnc_ref *v)
{
    nnc_ref y = v[0];
    for (int d = 1; d < n; d++)
        y = nnc_build2(g, OP_add, y, v[d]);
    return y;
}

/* The mean of the devices' losses: each is a mean over its targets, or over those that count. */
static nnc_ref mean_loss(replicas *c, const nnc_ref *loss)
{
    nnc_graph *g = c->g;
    const nnc_ref counted = output_named(c->s, "counted");
    if (counted == NNC_NONE)
        return number_op(g, OP_div, sum_of(g, c->n, loss), c->n);
    const nnc_ref *n = slot(c, c->map, counted);
    nnc_ref sum = NNC_NONE;
    for (int d = 0; d < c->n; d++) {
        const nnc_ref own = nnc_build2(g, OP_mul, loss[d], n[d]);
        sum = d ? nnc_build2(g, OP_add, sum, own) : own;
    }
    return nnc_build2(g, OP_div, sum, number_op(g, OP_max, sum_of(g, c->n, n), 1));
}

/* Counts are summed. */
static void add_output(replicas *c, uint32_t i)
{
    nnc_graph *g = c->g;
    const nnc_ref v = c->s->output[i], *of = slot(c, c->map, v);
    g->device = 0;
    g->origin = "/loss";
    const nnc_ref y = v == output_named(c->s, "loss") ? mean_loss(c, of) : sum_of(g, c->n, of);
    nnc_output(g, y, c->s->output_name ? c->s->output_name[i] : NULL);
}

static void add_updates(replicas *c, uint32_t i)
{
    const nnc_graph *s = c->s;
    const nnc_ref state = s->output_state[i], value = s->output[i];
    for (int d = 0; d < c->n && c->g->status == NNC_OK; d++)
        (nnc_def(s, state)->accumulates ? nnc_accumulate : nnc_update)(
            c->g, slot(c, c->map, state)[d], slot(c, c->map, value)[d]);
}

nnc_status nnc_replicate(const nnc_graph *step, int n, nnc_graph **out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    *out = NULL;
    if (n < 1)
        return nnc_fail0(sink, NNC_E_USAGE, "a step on %d devices", n);
    const size_t slots = ((size_t)step->n_value + 1) * (size_t)n;
    replicas c = {.s = step,
        .g = nnc_graph_create(step->name, sink),
        .n = n,
        .map = ARENA_NEW(&a, nnc_ref, slots),
        .mean = ARENA_NEW(&a, nnc_ref, slots),
        .gradient = ARENA_NEW(&a, bool, step->n_value + 1),
        .a = &a};
    if (!c.g || !c.map || !c.mean || !c.gradient) {
        nnc_graph_destroy(c.g);
        return nnc_nomem(sink);
    }
    memset(c.mean, 0xff, slots * sizeof *c.mean);
    find_gradients(&c);
    for (uint32_t i = 0; i < step->n_node && c.g->status == NNC_OK; i++) {
        if (step->node[i].op == OP_input)
            split_input(&c, &step->node[i]);
        else
            copy_node(&c, &step->node[i]);
    }
    for (uint32_t i = 0; i < step->n_output && c.g->status == NNC_OK; i++)
        if (i < nnc_result_outputs(step))
            add_output(&c, i);
        else
            add_updates(&c, i);
    nnc_status s = c.g->status;
    s = s ? s : nnc_graph_tidy(c.g);
    s = s ? s : nnc_verify(c.g, sink);
    if (s)
        nnc_graph_destroy(c.g);
    else
        *out = c.g;
    return s;
}
