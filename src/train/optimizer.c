/* train/optimizer.c -- updates of weights by their gradients, as PyTorch's optimizers of the same names:
 *
 *     sgd     g += wd w;  v = momentum v + g (the first v is g);  w -= lr (nesterov ? g + momentum v : v)
 *     adam    g += wd w;  m = b1 m + (1 - b1) g;  s = b2 s + (1 - b2) g^2;  w -= lr (m/(1 - b1^t)) / (sqrt(s/(1 - b2^t)) + eps)
 *     adamw   w -= lr wd w, then adam without wd   (Loshchilov, Hutter: Decoupled Weight Decay Regularization, 2019)
 *
 * One kernel updates all but large weights of a device: the graph concatenates them, updates them as one value and slices it again. The
 * pass in_place makes these copies placements in memory. */
#include "autodiff/autodiff.h"
#include "train/internal.h"

#include <float.h>
#include <string.h>

typedef struct optimizer {
    nnc_graph *g;
    const nnc_training *t;
    nnc_ref lr, scale1, scale2;
    int shards; /* > 1: vectors of weights, gradients and moments are padded to a multiple of it, and moments are one vector a bundle */
    nnc_ref scale, ok; /* of the loss, and are all gradients finite? NNC_NONE: it is not scaled */
    const struct trained *trained;
    nnc_arena *a;
} optimizer;

/* ---- weights that are updated together ------------------------------------------------------------------------------------ */

/* Weights of more elements are updated by kernels of their own. These take longer than launches on any machine, and their gradients need
 * not wait for the others. On a CPU those by few rows are computed in the kernel that updates the weight, and never stored. */
enum { LARGE = 1 << 16, ALIGN = 16 /* elements: libraries on GPUs take 64 bytes */ };

bool nnc_train_updates_alone(const nnc_type *weight)
{
    return nnc_type_numel(weight) > LARGE;
}

enum { COPIES = 64 };

/* Weights to train, with their gradients. on: the devices that have a copy of the weight, a bit each; 0: it is the only one. Copies are
 * next to each other. */
typedef struct trained {
    nnc_ref *w, *grad;
    uint64_t *on;
    int n;
} trained;

/* Weights that one kernel updates: side by side in one tensor of one dimension. */
typedef struct bundle {
    nnc_ref *w; /* params */
    int n;
    nnc_ref all, grad; /* values of the params, and their gradients */
    int16_t device; /* of all of them: weights are updated where they are */
    /* The devices that have copies of these weights, as trained.on; the bundle of the first of them in the array, or its own number */
    uint64_t on;
    int first;
} bundle;

/* A state for each weight of a bundle, and their value. */
typedef struct states {
    nnc_ref *part;
    nnc_ref all;
} states;

static nnc_ref side_by_side(optimizer *o, int n, const nnc_ref *v)
{
    nnc_graph *g = o->g;
    nnc_ref *line = need(g, ARENA_NEW(o->a, nnc_ref, n));
    for (int i = 0; i < n && line; i++) {
        const int64_t numel = v[i] == NNC_NONE ? 0 : nnc_type_numel(nnc_typeof(g, v[i]));
        line[i] = nnc_reshape(g, v[i], 1, &numel);
    }
    return line ? nnc_concat(g, n, line, 0) : NNC_NONE;
}

/* Appends zeros, so that all shards are as long. */
static nnc_ref padded(optimizer *o, nnc_ref x)
{
    const int64_t n = x == NNC_NONE ? 0 : nnc_typeof(o->g, x)->dim[0];
    const int64_t more = o->shards > 1 && n ? (o->shards - n % o->shards) % o->shards : 0;
    const nnc_attr pads = nnc_av(AT_pads, 2, ((const int64_t[]){0, more}));
    return more ? nnc_build(o->g, OP_pad, 1, &x, 1, &pads) : x;
}

/* A state that is one number. */
static nnc_ref number_state(optimizer *o, const char *name, double first)
{
    const nnc_type t = nnc_type_make(DT_f32, 0, NULL);
    const nnc_weight w = {.kind = NNC_W_gen, .name = name, .shift = (float)first};
    return nnc_param(o->g, &t, &w);
}

static nnc_ref scalar(optimizer *o, double v)
{
    return nnc_scalar(o->g, DT_f32, v);
}

/* The new value, or the old one where the step is skipped. */
static nnc_ref if_finite(optimizer *o, nnc_ref now, nnc_ref was)
{
    return o->ok == NNC_NONE ? now : nnc_build3(o->g, OP_select, o->ok, now, was);
}

/* The states' new values are parts of `all`; `was`: their old ones, which stay where the step is skipped. */
static void update_states(optimizer *o, const bundle *b, const nnc_ref *state, nnc_ref all,
    nnc_ref was, void (*update)(nnc_graph *g, nnc_ref state, nnc_ref value))
{
    nnc_graph *g = o->g;
    int64_t at = 0, end;
    if (was != NNC_NONE)
        all = if_finite(o, all, was);
    for (int i = 0; i < b->n && g->status == NNC_OK; i++, at = end) {
        const nnc_type t = *nnc_typeof(g, state[i]);
        end = at + nnc_type_numel(&t);
        nnc_ref part = b->n == 1 && o->shards < 2 ? all : nnc_cut(g, all, 0, at, end);
        update(g, state[i], nnc_reshape(g, part, t.rank, t.dim));
    }
}

/* Each part of a weight has a name of its own. */
static const char *name_of(const optimizer *o, nnc_ref w)
{
    const nnc_node *n = nnc_def(o->g, w);
    const char *name = n->weight && n->weight->name ? n->weight->name : "weight";
    return n->weight && n->weight->n_part && o->g->value[w].name ? o->g->value[w].name : name;
}

/* Is w a copy of a weight that a device before its own has, too? Names of its states say where they are, as its own does. */
static bool is_further_copy(const optimizer *o, nnc_ref w)
{
    const trained *t = o->trained;
    for (int i = 1; t && t->on && i < t->n; i++)
        if (t->w[i] == w)
            return t->on[i] && t->on[i - 1] == t->on[i] &&
                   nnc_def(o->g, t->w[i - 1])->device < nnc_def(o->g, w)->device;
    return false;
}

/* A state that is 0 at first: "conv1.weight.momentum", of w's type, or a vector like `like`. */
static nnc_ref moment(optimizer *o, nnc_ref w, nnc_ref like, const char *suffix)
{
    const nnc_type t = nnc_type_dense(nnc_typeof(o->g, like == NNC_NONE ? w : like));
    const char *name = name_of(o, w);
    const nnc_weight zero = {.kind = NNC_W_gen,
        .name = need(o->g, nnc_arena_printf(&o->g->arena, "%s%s.%s", name,
                               like == NNC_NONE ? "" : ".shard", suffix))};
    if (!zero.name)
        return NNC_NONE;
    const nnc_ref r = nnc_param(o->g, &t, &zero);
    if (is_further_copy(o, w))
        nnc_set_name(
            o->g, r, nnc_arena_printf(o->a, "%s.device%d", zero.name, nnc_def(o->g, w)->device));
    return r;
}

static states moments(optimizer *o, const bundle *b, const char *suffix)
{
    states s = {need(o->g, ARENA_NEW(o->a, nnc_ref, b->n)), NNC_NONE};
    if (o->shards > 1 && s.part && b->all != NNC_NONE) {
        s.all = s.part[0] = moment(o, b->w[0], b->all, suffix);
        return s;
    }
    for (int i = 0; i < b->n && s.part; i++)
        s.part[i] = moment(o, b->w[i], NNC_NONE, suffix);
    if (s.part)
        s.all = side_by_side(o, b->n, s.part);
    return s;
}

static void update_moments(optimizer *o, const bundle *b, const states *s, nnc_ref now, nnc_ref was,
    void (*update)(nnc_graph *g, nnc_ref state, nnc_ref value))
{
    if (!s->part)
        return;
    if (o->shards < 2)
        update_states(o, b, s->part, now, was, update);
    else
        update(o->g, s->part[0], was == NNC_NONE ? now : if_finite(o, now, was));
}

static int16_t device_of(const optimizer *o, nnc_ref w)
{
    return nnc_def(o->g, w)->device;
}

static bundle make_bundle(optimizer *o, nnc_ref *w, nnc_ref *grad, int n)
{
    o->g->device = device_of(o, *w);
    return (bundle){
        w, n, padded(o, side_by_side(o, n, w)), padded(o, side_by_side(o, n, grad)), o->g->device};
}

/* Are a and b of one type, and do their names differ in the first number at most, as those of models beside each other? */
static bool are_alike(const optimizer *o, nnc_ref a, nnc_ref b)
{
    static const char digits[] = "0123456789";
    const char *p = name_of(o, a), *q = name_of(o, b);
    const size_t n = strcspn(p, digits);
    if (!nnc_type_equal(nnc_typeof(o->g, a), nnc_typeof(o->g, b)) || n != strcspn(q, digits) ||
        strncmp(p, q, n) != 0)
        return false;
    return !strcmp(p + n + strspn(p + n, digits), q + n + strspn(q + n, digits));
}

/* Alike weights one after the other: those of models that are trained side by side can be computed as one then (passes/stacks.c). Shards
 * keep the order that checkpoints of them have. */
static void group_alike(optimizer *o, int n, nnc_ref *w, nnc_ref *grad)
{
    nnc_ref *from = need(o->g, ARENA_NEW(o->a, nnc_ref, 2 * n + 1));
    if (!from || o->shards > 1)
        return;
    nnc_ref *of = from + n;
    memcpy(from, w, sizeof *w * (size_t)n);
    memcpy(of, grad, sizeof *w * (size_t)n);
    for (int i = 0, at = 0; i < n; i++)
        for (int j = i, first = from[i] != NNC_NONE; j < n && first; j++)
            if (j == i || (from[j] != NNC_NONE && are_alike(o, w[at - 1], from[j]))) {
                w[at] = from[j];
                grad[at++] = of[j];
                from[j] = NNC_NONE;
            }
}

/* Is another of the n weights like w? */
static bool has_alike(const optimizer *o, int n, const nnc_ref *w, int i)
{
    for (int k = i - 1; k <= i + 1; k += 2) /* those are neighbours */
        if (k >= 0 && k < n && are_alike(o, w[i], w[k]))
            return true;
    return false;
}

/* Appends the bundles of n weights of one device to b. Pieces of one tensor begin at multiples of ALIGN, so that one other may be the
 * last. of, their: room for n + 1. */
static int bundle_device(
    optimizer *o, int n, nnc_ref *w, nnc_ref *grad, nnc_ref *of, nnc_ref *their, bundle *b)
{
    int n_b = 0, k = 0, odd = -1;
    group_alike(o, n, w, grad);
    for (int i = 0; i < n; i++) {
        const int64_t numel = nnc_type_numel(nnc_typeof(o->g, w[i]));
        const bool small = !nnc_train_updates_alone(nnc_typeof(o->g, w[i]));
        if (small && numel % ALIGN == 0) {
            of[k] = w[i];
            their[k++] = grad[i];
        } else if (small && odd < 0 && !has_alike(o, n, w, i)) {
            odd = i;
        } else {
            b[n_b++] = make_bundle(o, &w[i], &grad[i], 1);
        }
    }
    if (odd >= 0) {
        of[k] = w[odd];
        their[k++] = grad[odd];
    }
    if (k)
        b[n_b++] = make_bundle(o, of, their, k);
    return n_b;
}

/* Appends the bundles of the weights of device d that devices `on` have copies of. */
static int bundle_set(optimizer *o, const trained *t, int d, uint64_t on, bundle *b)
{
    nnc_ref *w = need(o->g, ARENA_NEW(o->a, nnc_ref, 4 * t->n + 2)), *grad = w + t->n,
            *of = grad + t->n;
    int n = 0;
    for (int i = 0; w && i < t->n; i++)
        if (device_of(o, t->w[i]) == d && (t->on ? t->on[i] : 0) == on) {
            w[n] = t->w[i];
            grad[n++] = t->grad[i];
        }
    return n ? bundle_device(o, n, w, grad, of, of + t->n + 1, b) : 0;
}

/* The next set of devices after `on` of which weights have copies; 0: there is no more. */
static uint64_t next_set(const trained *t, uint64_t on)
{
    uint64_t next = 0;
    for (int i = 0; i < t->n && t->on; i++)
        if (t->on[i] > on && (!next || t->on[i] < next))
            next = t->on[i];
    return next;
}

/* Divides the weights into bundles, of which there are at most as many. */
static int make_bundles(optimizer *o, const trained *t, bundle *b)
{
    const int16_t before = o->g->device;
    int n_b = 0, last = -1;
    for (int i = 0; i < t->n; i++)
        last = device_of(o, t->w[i]) > last ? device_of(o, t->w[i]) : last;
    uint64_t on = 0;
    do {
        const int first = n_b;
        for (int d = -1; d <= last; d++) {
            const int n = bundle_set(o, t, d, on, &b[n_b]);
            for (int k = 0; k < n; k++) {
                b[n_b + k].on = on;
                b[n_b + k].first = on ? first + k : n_b + k;
            }
            n_b += n;
        }
    } while ((on = next_set(t, on)) != 0);
    o->g->device = before;
    return n_b;
}

/* ---- updates --------------------------------------------------------------------------------------------------------------- */

static nnc_ref mix(optimizer *o, nnc_ref was, nnc_ref now, double share)
{
    return nnc_build2(
        o->g, OP_add, number_op(o->g, OP_mul, was, share), number_op(o->g, OP_mul, now, 1 - share));
}

static nnc_ref sgd_change(optimizer *o, const bundle *b, nnc_ref grad)
{
    const double mu = o->t->momentum;
    if (mu == 0)
        return grad;
    states v = moments(o, b, "momentum");
    nnc_ref next = nnc_build2(o->g, OP_add, number_op(o->g, OP_mul, v.all, mu), grad);
    update_moments(o, b, &v, next, v.all, nnc_update);
    return o->t->nesterov ? nnc_build2(o->g, OP_add, grad, number_op(o->g, OP_mul, next, mu))
                          : next;
}

static nnc_ref adam_change(optimizer *o, const bundle *b, nnc_ref grad)
{
    states m = moments(o, b, "exp_avg"), v = moments(o, b, NNC_TRAIN_MOMENT2 + 1);
    nnc_ref m2 = mix(o, m.all, grad, o->t->beta1);
    nnc_ref v2 = mix(o, v.all, nnc_build2(o->g, OP_mul, grad, grad), o->t->beta2);
    update_moments(o, b, &m, m2, m.all, nnc_update);
    update_moments(o, b, &v, v2, v.all, nnc_update);
    nnc_ref root = nnc_build2(o->g, OP_mul, nnc_build1(o->g, OP_sqrt, v2), o->scale2);
    nnc_ref step = nnc_build2(o->g, OP_mul, m2, o->scale1);
    return nnc_build2(o->g, OP_div, step, number_op(o->g, OP_add, root, o->t->eps));
}

static void update_weights(optimizer *o, const bundle *b)
{
    nnc_graph *g = o->g;
    const double decay = o->t->weight_decay;
    const bool adam = o->t->optimizer != NNC_OPT_sgd, apart = o->t->optimizer == NNC_OPT_adamw;
    nnc_ref grad = b->grad;
    if (decay && !apart)
        grad = nnc_build2(g, OP_add, grad, number_op(g, OP_mul, b->all, decay));
    nnc_ref change = adam ? adam_change(o, b, grad) : sgd_change(o, b, grad);
    if (decay && apart)
        change = nnc_build2(g, OP_add, change, number_op(g, OP_mul, b->all, decay));
    change = nnc_build2(g, OP_mul, change, o->lr);
    update_states(o, b, b->w, nnc_build2(g, OP_sub, b->all, change), b->all, nnc_update);
}

void move_statistics(
    nnc_graph *g, const nnc_training *t, int n, nnc_ref *state, nnc_ref *added, nnc_arena *a)
{
    optimizer o = {.g = g, .t = t, .a = a, .scale = NNC_NONE, .ok = NNC_NONE};
    bundle *b = need(g, ARENA_NEW(a, bundle, n + 1));
    const trained of = {.w = state, .grad = added, .n = n};
    const int n_b = b ? make_bundles(&o, &of, b) : 0;
    const int16_t before = g->device;
    for (int i = 0; i < n_b; i++) {
        g->device = b[i].device;
        nnc_ref kept = number_op(g, OP_mul, b[i].all, 1 - t->bn_momentum);
        update_states(&o, &b[i], b[i].w, nnc_build2(g, OP_add, kept, b[i].grad), NNC_NONE,
            t->accumulate > 1 ? nnc_accumulate : nnc_update);
    }
    g->device = before;
}

/* Makes of the gradients of a batch their sums over the batches of a step so far: sum <- first ? grad : sum + grad. */
static void accumulate(optimizer *o, bundle *b, nnc_ref first)
{
    nnc_graph *g = o->g;
    states was = moments(o, b, NNC_TRAIN_SUM + 1);
    nnc_ref sum = nnc_build3(g, OP_select, first, b->grad, nnc_build2(g, OP_add, was.all, b->grad));
    update_moments(o, b, &was, sum, NNC_NONE, nnc_accumulate);
    b->grad = sum;
}

/* ---- copies of a weight ----------------------------------------------------------------------------------------------------- */

/* The next bundle after b[i] with copies of the same weights, on the next device; n: there is none. */
static int next_copy(const bundle *b, int n, int i)
{
    const int first = b[i].first;
    for (i++; i < n && b[i].first != first;)
        i++;
    return i;
}

/* Replaces the gradients of the m bundles in at[] by parts of the vector in which they are side by side. */
static void take_apart(optimizer *o, bundle *b, const int *at, int m, nnc_ref all)
{
    int64_t from = 0, to;
    o->g->device = b[at[0]].device;
    for (int k = 0; k < m && o->g->status == NNC_OK; k++, from = to) {
        to = from + nnc_typeof(o->g, b[at[k]].grad)->dim[0];
        b[at[k]].grad = m == 1 ? all : nnc_cut(o->g, all, 0, from, to);
    }
}

/* One allreduce of m bundles: at[] are those of the first device, and then of the others. */
static void sum_together(optimizer *o, int n, bundle *b, int *at, int m)
{
    nnc_graph *g = o->g;
    nnc_ref in[COPIES];
    int64_t on[COPIES];
    int copies = 0, *all = ARENA_NEW(o->a, int, COPIES *m + 1);
    nnc_ref *line = ARENA_NEW(o->a, nnc_ref, m + 1);
    if (!all || !line)
        g->status = nnc_nomem(g->sink);
    for (; g->status == NNC_OK && m && at[0] < n && copies < COPIES; copies++) {
        for (int k = 0; k < m; k++) {
            all[copies * m + k] = at[k];
            line[k] = b[at[k]].grad;
        }
        g->device = b[at[0]].device;
        on[copies] = g->device;
        in[copies] = side_by_side(o, m, line);
        for (int k = 0; k < m; k++)
            at[k] = next_copy(b, n, at[k]);
    }
    const nnc_attr how[] = {nnc_aw(AT_reduction, "add"), nnc_av(AT_devices, copies, on)};
    g->device = -1;
    const nnc_ref sum = copies > 1 ? nnc_build(g, OP_allreduce, copies, in, 2, how) : NNC_NONE;
    for (int c = 0; sum != NNC_NONE && c < copies; c++)
        take_apart(o, b, &all[c * m], m, sum + (nnc_ref)c);
}

/* Gradients of copies become their sum on each device: copies that are equal stay so. Large bundles are summed by themselves,
 * as gradients of replicas are. */
static void sum_copies(optimizer *o, int n, bundle *b)
{
    const int16_t before = o->g->device;
    int *at = need(o->g, ARENA_NEW(o->a, int, n + 1));
    uint64_t done = 0;
    for (int i = 0; i < n && o->g->status == NNC_OK; i++) {
        if (b[i].on && b[i].first == i && nnc_train_updates_alone(nnc_typeof(o->g, b[i].grad))) {
            at[0] = i;
            sum_together(o, n, b, at, 1);
        } else if (b[i].on > done) { /* sets of devices are in this order */
            int m = 0;
            done = b[i].on;
            for (int k = i; k < n; k++)
                if (b[k].on == done && b[k].first == k &&
                    !nnc_train_updates_alone(nnc_typeof(o->g, b[k].grad)))
                    at[m++] = k;
            sum_together(o, n, b, at, m);
        }
    }
    o->g->device = before;
}

/* Bundles whose gradients count, where one number is made of all: of copies those of the first device. Returns how many. */
static int without_copies(const bundle *b, int n, bundle *to)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (b[i].first == i)
            to[m++] = b[i];
    return m;
}

/* ---- one number of all gradients ------------------------------------------------------------------------------------------ */

/* v of n bundles as one number: `combine` of each two. Those of alike weights are put side by side first, as passes/stacks.c looks for. */
static nnc_ref of_all(
    optimizer *o, int n, const bundle *b, const nnc_ref *v, nnc_op reduce, nnc_op combine)
{
    nnc_graph *g = o->g;
    const int64_t one = 1, axis = 0;
    nnc_ref all = NNC_NONE, *line = need(g, ARENA_NEW(o->a, nnc_ref, n + 1));
    for (int i = 0, end; line && i < n; i = end) {
        for (end = i + 1; end < n && b[i].n == 1 && b[end].n == 1 && b[end].device == b[i].device &&
                          are_alike(o, b[i].w[0], b[end].w[0]);)
            end++;
        g->device = b[i].device;
        nnc_ref part = v[i];
        for (int k = i; k < end && end > i + 1; k++)
            line[k] = nnc_reshape(g, v[k], 1, &one);
        if (end > i + 1)
            part = nnc_reduce(g, reduce, nnc_concat(g, end - i, line + i, 0), 1, &axis, false);
        all = i ? nnc_build2(g, combine, all, part) : part;
    }
    return all;
}

/* ---- the scale of the loss ------------------------------------------------------------------------------------------------ */

/* Divides gradients by the scale, and looks for one that is not finite. */
static void unscale(optimizer *o, int n, bundle *b)
{
    nnc_graph *g = o->g;
    const int64_t axis = 0;
    nnc_ref inverse = nnc_build2(g, OP_div, scalar(o, 1), o->scale),
            *size = ARENA_NEW(o->a, nnc_ref, n + 1);
    bundle *of = ARENA_NEW(o->a, bundle, n + 1);
    const int16_t before = g->device;
    if (!size || !of)
        g->status = nnc_nomem(g->sink);
    const int m = of ? without_copies(b, n, of) : 0;
    for (int i = 0; size && i < m; i++) {
        g->device = of[i].device;
        size[i] = nnc_reduce(g, OP_reduce_max, nnc_build1(g, OP_abs, of[i].grad), 1, &axis, false);
    }
    for (int i = 0; i < n; i++) {
        g->device = b[i].device;
        b[i].grad = nnc_build2(g, OP_mul, b[i].grad, inverse);
    }
    const nnc_ref most =
        size && of ? of_all(o, m, of, size, OP_reduce_max, OP_max) : NNC_NONE; /* keeps NaN */
    g->device = before;
    o->ok = nnc_build2(g, OP_le, most, scalar(o, FLT_MAX));
}

/* 2^127, the largest power of two in f32: half of infinity is infinite, so the scale would never come back from there. */
#define MOST_SCALE 0x1p127

/* Halves the scale where the step is skipped, doubles it after many that are not. */
static void update_scale(optimizer *o)
{
    nnc_graph *g = o->g;
    nnc_ref good = number_state(o, "loss_scale.good", 0), more = number_op(g, OP_add, good, 1);
    nnc_ref grows = number_op(g, OP_ge, more, o->t->scale_growth);
    nnc_ref twice = number_op(g, OP_min, number_op(g, OP_mul, o->scale, 2), MOST_SCALE);
    nnc_ref kept = nnc_build3(g, OP_select, grows, twice, o->scale);
    nnc_ref count = nnc_build3(g, OP_select, grows, scalar(o, 0), more);
    nnc_update(g, good, if_finite(o, count, scalar(o, 0)));
    nnc_update(g, o->scale, if_finite(o, kept, number_op(g, OP_mul, o->scale, 0.5)));
}

/* 1 - beta^t, a state: only steps that are not skipped count. (In this form nothing cancels.) */
static nnc_ref correction(optimizer *o, const char *name, double beta)
{
    nnc_ref was = number_state(o, name, 0), now = number_op(o->g, OP_mul, was, beta);
    now = number_op(o->g, OP_add, now, 1 - beta);
    nnc_update(o->g, was, if_finite(o, now, was));
    return now;
}

/* The factors of adam's moments, which are 0 at first: inputs, or of the steps that were not skipped. */
static void add_corrections(optimizer *o)
{
    if (o->scale == NNC_NONE) {
        o->scale1 = scalar_input(o->g, NNC_TRAIN_SCALE1, DT_f32);
        o->scale2 = scalar_input(o->g, NNC_TRAIN_SCALE2, DT_f32);
        return;
    }
    nnc_ref one = correction(o, "exp_avg.correction", o->t->beta1);
    nnc_ref two = nnc_build1(o->g, OP_sqrt, correction(o, "exp_avg_sq.correction", o->t->beta2));
    o->scale1 = nnc_build2(o->g, OP_div, scalar(o, 1), one);
    o->scale2 = nnc_build2(o->g, OP_div, scalar(o, 1), two);
}

/* ---- clipping ---------------------------------------------------------------------------------------------------------------- */

/* Scales all gradients by min(1, most / their common norm). */
static void clip(optimizer *o, int n, bundle *b, double most)
{
    nnc_graph *g = o->g;
    nnc_ref *square = ARENA_NEW(o->a, nnc_ref, n + 1);
    bundle *of = ARENA_NEW(o->a, bundle, n + 1);
    int64_t axes[NNC_MAX_RANK];
    if (!square || !of)
        g->status = nnc_nomem(g->sink);
    const int m = of ? without_copies(b, n, of) : 0;
    for (int d = 0; d < NNC_MAX_RANK; d++)
        axes[d] = d;
    const int16_t before = g->device;
    for (int i = 0; square && i < m; i++) {
        g->device = of[i].device;
        nnc_ref s = nnc_build2(g, OP_mul, of[i].grad, of[i].grad);
        int rank = s == NNC_NONE ? 0 : nnc_typeof(g, s)->rank;
        square[i] = rank ? nnc_reduce(g, OP_reduce_sum, s, rank, axes, false) : s;
    }
    const nnc_ref sum = square && of ? of_all(o, m, of, square, OP_reduce_sum, OP_add) : NNC_NONE;
    g->device = before;
    nnc_ref norm = number_op(g, OP_add, nnc_build1(g, OP_sqrt, sum), 1e-6);
    nnc_ref factor =
        norm == NNC_NONE ? norm : nnc_build2(g, OP_div, nnc_scalar(g, DT_f32, most), norm);
    factor = number_op(g, OP_min, factor, 1);
    for (int i = 0; i < n; i++) {
        g->device = b[i].device;
        b[i].grad = nnc_build2(g, OP_mul, b[i].grad, factor);
    }
    g->device = before;
}

/* ---- what is trained ------------------------------------------------------------------------------------------------------- */

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

/* t->on: weights of a split step that follow each other, of one name and on one device after another, are copies
 * (nnc_split_options.trains). */
static void find_copies(const optimizer *o, trained *t)
{
    const nnc_graph *g = o->g;
    for (int i = 0, end; i < t->n; i = end) {
        const nnc_weight *w = nnc_def(g, t->w[i])->weight;
        uint64_t on = 0;
        for (end = i; end < t->n && (end == i || o->t->divide); end++) {
            const nnc_weight *x = nnc_def(g, t->w[end])->weight;
            const bool same = w && x && w->name && x->name && !w->n_part && !x->n_part &&
                              !strcmp(w->name, x->name);
            const int before = end > i ? device_of(o, t->w[end - 1]) : -1;
            if (end > i && !(same && before >= 0 && device_of(o, t->w[end]) > before))
                break;
            on |= UINT64_C(1) << (device_of(o, t->w[end]) & 63);
        }
        for (int k = i; k < end; k++)
            t->on[k] = end > i + 1 ? on : 0;
    }
}

/* A copy that the loss does not depend on, where it does on another one: its own gradient is 0. */
static void fill_gradients(optimizer *o, trained *t)
{
    nnc_graph *g = o->g;
    const int16_t before = g->device;
    for (int i = 0, end; i < t->n; i = end) {
        bool any = false;
        for (end = i;
             end < t->n && (end == i || (t->on[i] && t->on[end] == t->on[i] &&
                                            device_of(o, t->w[end]) > device_of(o, t->w[end - 1])));
             end++)
            any = any || t->grad[end] != NNC_NONE;
        for (int k = i; k < end && any; k++) {
            const nnc_type *x = nnc_typeof(g, t->w[k]);
            g->device = device_of(o, t->w[k]);
            if (t->grad[k] == NNC_NONE)
                t->grad[k] = nnc_broadcast(
                    g, nnc_scalar(g, (nnc_dtype)x->dtype, 0), x->rank, nnc_type_dense(x).dim);
        }
    }
    g->device = before;
}

/* The gradients of all weights that are trained: t->n of them. Those of inputs become outputs. */
static nnc_status find_gradients(optimizer *o, nnc_ref loss, trained *t, nnc_sink *sink)
{
    const nnc_ref *scale = o->scale == NNC_NONE ? NULL : &o->scale;
    int k = 0;
    NNC_TRY(find_trained(o->g, t->w, &t->n, o->a, sink));
    const int inputs = o->t->grad_inputs ? find_float_inputs(o->g, t->w + t->n) : 0;
    NNC_TRY(nnc_gradients(o->g, 1, &loss, scale, t->n + inputs, t->w, t->grad, sink));
    add_input_gradients(o->g, inputs, t->w + t->n, t->grad + t->n, o->scale);
    find_copies(o, t);
    fill_gradients(o, t);
    NNC_TRY(o->g->status);
    for (int i = 0; i < t->n; i++)
        if (t->grad[i] != NNC_NONE) {
            NNC_TRY(check_dtype(o->g, t->w[i], sink));
            const char *name = o->g->value[t->w[i]].name;
            if (name && !o->g->value[t->grad[i]].name)
                nnc_set_name(
                    o->g, t->grad[i], nnc_arena_printf(o->a, "%s" NNC_TRAIN_GRADIENT, name));
            t->w[k] = t->w[i];
            t->on[k] = t->on[i];
            t->grad[k++] = t->grad[i];
        }
    t->n = k;
    return k || inputs
               ? NNC_OK
               : nnc_fail0(sink, NNC_E_MODEL,
                     "there is nothing to train: the loss depends on no weight that is not frozen "
                     "(--mode=step --grad-inputs computes the gradients of the inputs)");
}

nnc_status add_optimizer(nnc_graph *g, nnc_ref loss, const nnc_training *t, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    trained x = {.w = ARENA_NEW(&a, nnc_ref, g->n_node + 1),
        .grad = ARENA_NEW(&a, nnc_ref, g->n_node + 1),
        .on = ARENA_NEW(&a, uint64_t, g->n_node + 1)};
    optimizer o = {.g = g, .t = t, .shards = t->shards, .scale = NNC_NONE, .ok = NNC_NONE, .a = &a};
    NNC_NEED(x.w && x.grad && x.on, sink);
    if (t->beta1 >= 1 || t->beta2 >= 1)
        return nnc_fail0(sink, NNC_E_USAGE, "--beta1 and --beta2 must be less than 1");
    g->origin = NNC_TRAIN_OPTIMIZER;
    if (t->loss_scale > 0)
        o.scale = number_state(&o, "loss_scale", t->loss_scale);
    NNC_TRY(find_gradients(&o, loss, &x, sink));
    if (!x.n) /* only gradients with respect to inputs */
        return g->status;
    g->origin = NNC_TRAIN_OPTIMIZER;
    o.lr = scalar_input(g, NNC_TRAIN_LR, DT_f32);
    bundle *of = ARENA_NEW(&a, bundle, x.n);
    NNC_NEED(of, sink);
    o.trained = &x;
    const int n_of = make_bundles(&o, &x, of);
    nnc_ref first = t->accumulate > 1 ? scalar_input(g, NNC_TRAIN_FIRST, DT_bool) : NNC_NONE;
    const int16_t before = g->device;
    /* ZeRO-2 keeps parts of sums of batches, to which other devices' parts are not added. */
    if (t->shards > 1)
        sum_copies(&o, n_of, of);
    for (int i = 0; i < n_of && t->accumulate > 1; i++) {
        g->device = of[i].device;
        accumulate(&o, &of[i], first);
    }
    if (t->shards <= 1)
        sum_copies(&o, n_of, of);
    for (int i = 0; i < n_of && t->accumulate > 1; i++) { /* in the kernels of what follows */
        g->device = of[i].device;
        of[i].grad = number_op(g, OP_mul, of[i].grad, 1.0 / t->accumulate);
    }
    g->device = before;
    if (o.scale != NNC_NONE)
        unscale(&o, n_of, of);
    if (t->optimizer != NNC_OPT_sgd)
        add_corrections(&o);
    if (t->clip_norm > 0)
        clip(&o, n_of, of, t->clip_norm);
    for (int i = 0; i < n_of && g->status == NNC_OK; i++) {
        g->device = of[i].device;
        update_weights(&o, &of[i]);
    }
    g->device = before;
    if (o.scale != NNC_NONE)
        update_scale(&o);
    return g->status;
}

void add_identities(nnc_graph *g)
{
    const uint32_t end = g->n_node;
    for (uint32_t i = 0; i < end && g->status == NNC_OK; i++)
        if (g->node[i].op == OP_param && nnc_typeof(g, g->node[i].out)->dtype == DT_f32)
            nnc_update(g, g->node[i].out, nnc_build1(g, OP_identity, g->node[i].out));
}
