/* tests/net/train.c -- nnc train as users type it: random models, losses, optimizers and files of samples. The saved weights are those that
 * the reference has after as many steps in float64. */
#include "net.h"
#include "tensors/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDINGS = 16, FACTOR = 16 /* of simulated rounding, as `nnc verify` allows */ };
enum { STEPS = 3, MOST_INPUTS = 16, SECONDS_EACH = 120 };
static const double RATE = 0.02;

/* How the batches of a step are shared: flags; 0: not given. */
typedef struct sharing {
    const char *strategy;
    int devices, replicas, accumulate, micro, zero;
    const char *bucket_mb;
} sharing;

/* What one case trains, and with what. */
typedef struct lesson {
    const char *dir;
    nnc_training how;
    nnc_rate rate;
    int batches; /* of all steps */
    int stop; /* it stops after so many steps, and is resumed; 0: not */
    int bad; /* this batch has a NaN, and its step is skipped; -1: none */
    bool unseen; /* which no part of the loss sees: gradients may see it, as 0 times it */
    sharing share;
    bool bf16;
    uint64_t rounding; /* the reference rounds at random, by this seed; 0: it does not */
    nnc_graph *step;
    int n_data;
    const nnc_node *data[MOST_INPUTS]; /* the step's inputs that samples have */
    void *sample[MOST_INPUTS]; /* all batches of each */
    nnc_type type[MOST_INPUTS]; /* of all samples */
} lesson;

static void lesson_free(lesson *l)
{
    for (int i = 0; i < l->n_data; i++)
        nnc_free(l->sample[i]);
    nnc_graph_destroy(l->step);
}

static uint32_t roll(uint64_t key, uint64_t at, uint32_t n)
{
    return nnc_rng_u32(key, at) % n;
}

static void draw_training(uint64_t key, nnc_training *t)
{
    *t = nnc_training_defaults;
    t->loss = (nnc_loss)roll(key, 0, 3);
    t->optimizer = (nnc_optimizer)roll(key, 1, 3);
    t->momentum = t->optimizer == NNC_OPT_sgd && roll(key, 2, 2) ? 0.9 : 0;
    t->nesterov = t->momentum > 0 && roll(key, 3, 2);
    t->weight_decay = roll(key, 4, 3) ? 0 : 0.05;
    t->clip_norm = roll(key, 5, 3) ? 0 : 0.1;
    t->label_smoothing = t->loss == NNC_LOSS_cross_entropy && !roll(key, 6, 3) ? 0.2 : 0;
    t->accumulate = 2 * (int)roll(key, 7, 3);
    t->bn = roll(key, 8, 4) ? NNC_BN_auto : NNC_BN_eval;
}

/* Cuts the name of one of the weights short: "conv1*". */
static const char *draw_pattern(uint64_t key, const nnc_graph *g, char pattern[80])
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        n += g->node[i].op == OP_param;
    int at = n ? (int)roll(key, 40, (uint32_t)n) : 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && at-- == 0) {
            const char *name = g->value[g->node[i].out].name;
            snprintf(pattern, 80, "%.*s*", 1 + (int)roll(key, 41, 60), name);
            return strchr(pattern, ',') ? NULL : pattern;
        }
    return NULL;
}

static void draw_rate(uint64_t key, nnc_rate *r)
{
    *r = (nnc_rate){NNC_RATE_DEFAULTS};
    r->lr = RATE;
    r->schedule = (nnc_schedule)(roll(key, 42, 2) ? NNC_LR_constant : roll(key, 43, 3));
    r->every = r->schedule == NNC_LR_step ? "1steps" : NULL;
    r->gamma = 0.5;
    r->min = r->schedule == NNC_LR_cosine && roll(key, 44, 2) ? 0.01 : 0;
    r->warmup = roll(key, 45, 3) ? 0 : 2;
}

/* Has the model statistics, which each device moves by its own batch? */
static bool has_statistics(const nnc_graph *step)
{
    for (uint32_t o = nnc_result_outputs(step); o < step->n_output; o++) {
        const char *name = step->value[step->output_state[o]].name;
        if (nnc_def(step, step->output_state[o])->accumulates &&
            (strlen(name) < 5 || strcmp(name + strlen(name) - 5, NNC_TRAIN_SUM) != 0))
            return true;
    }
    return false;
}

/* Replicas on a device each, or on a part of four devices, which split ops or are a pipeline. Returns batches of a replica. */
static int draw_replicas(uint64_t key, sharing *s, int each)
{
    static const char *const ways[] = {
        "tensor", "channel", "spatial", "gpipe", "1f1b", "zb-h1", "interleaved"};
    static const char *const buckets[] = {"0.000001", "0.001", "25"};
    if (roll(key, 51, 2)) {
        s->strategy = "data";
        s->devices = each == 4 && roll(key, 54, 2) ? 4 : 2;
        each /= s->devices;
    } else { /* a pipeline takes several batches */
        s->strategy = ways[roll(key, 55, each > 2 ? NNC_COUNT(ways) : 3)];
        s->devices = 4;
        s->replicas = 2;
        each /= 2;
    }
    s->zero = (int)roll(key, 56, 4) % 3;
    s->bucket_mb = roll(key, 57, 2) ? NULL : buckets[roll(key, 58, 3)];
    return each;
}

/* How the batches of a step are shared among devices and runs. */
static void draw_sharing(uint64_t key, lesson *l, int each)
{
    sharing *s = &l->share;
    int left = each;
    if (each > 1 && roll(key, 50, 3) && !has_statistics(l->step))
        left = draw_replicas(key, s, each);
    const bool pipeline = s->replicas && strchr("g1zi", *s->strategy),
               splits = s->replicas && !pipeline;
    if (left > 1 && (pipeline || (!splits && roll(key, 59, 2))))
        s->micro = left;
    else if (left > 1)
        s->accumulate = left;
}

/* How the loop goes. */
static void draw_loop(uint64_t key, lesson *l)
{
    const int each = l->how.accumulate > 1 ? l->how.accumulate : 1;
    draw_rate(key, &l->rate);
    l->bad = roll(key, 46, 5) ? -1 : (int)roll(key, 47, (uint32_t)l->batches);
    l->stop = l->rate.schedule == NNC_LR_cosine || roll(key, 48, 3)
                  ? 0
                  : 1 + (int)roll(key, 49, STEPS - 1);
    draw_sharing(key, l, each);
}

/* ---- samples --------------------------------------------------------------------------------------------------------------- */

/* Numbers of input i: small floats, targets in 0..1, indices that every table has. */
static bool fill(lesson *l, int i, int64_t classes, uint64_t seed)
{
    const nnc_node *n = l->data[i];
    const nnc_type *t = &l->type[i];
    const char *name = l->step->value[n->out].name;
    const bool target = !strcmp(name, NNC_TRAIN_TARGET);
    nnc_index_use use = {0};
    l->sample[i] = nnc_calloc((size_t)nnc_type_bytes(t) + 1, 1);
    if (!l->sample[i] || (!nnc_is_float((nnc_dtype)t->dtype) && nnc_indexes(l->step, n->out, &use)))
        return false;
    const int64_t most = target ? classes : use.any ? use.any : 2;
    for (int64_t k = 0; k < nnc_type_numel(t); k++) {
        const double u = (double)nnc_rng_uniform(nnc_rng_key(name, seed), (uint64_t)k);
        if (nnc_is_float((nnc_dtype)t->dtype))
            nnc_set_f64((nnc_dtype)t->dtype, l->sample[i], k, target ? u : 2 * u - 1);
        else
            nnc_set_i64((nnc_dtype)t->dtype, l->sample[i], k, (int64_t)(u * (double)most));
    }
    return true;
}

/* Makes a number of a batch NaN. False: samples are no floats. */
static bool spoil(lesson *l)
{
    for (int i = 0; i < l->n_data; i++)
        if (nnc_is_float((nnc_dtype)l->type[i].dtype)) {
            const int64_t n = nnc_type_numel(&l->type[i]) / l->batches;
            nnc_set_f64((nnc_dtype)l->type[i].dtype, l->sample[i], n * l->bad + n / 2, NAN);
            return true;
        }
    return false;
}

static bool is_setting(const char *name)
{
    return !strcmp(name, NNC_TRAIN_LR) || !strcmp(name, NNC_TRAIN_SCALE1) ||
           !strcmp(name, NNC_TRAIN_SCALE2) || !strcmp(name, NNC_TRAIN_FIRST);
}

/* Samples for all inputs. False: the step has inputs that no data set of rows has, or dropouts, whose key the command draws. */
static bool make_samples(lesson *l, const nnc_graph *model, uint64_t seed)
{
    const nnc_type *y = nnc_typeof(model, model->output[0]);
    const int axis = nnc_class_axis(&l->how, y->rank);
    int64_t rows = 0;
    for (uint32_t i = 0; i < l->step->n_node; i++) {
        const nnc_node *n = &l->step->node[i];
        if (n->op != OP_input || is_setting(l->step->value[n->out].name))
            continue;
        nnc_type t = nnc_type_dense(nnc_typeof(l->step, n->out));
        if (!strcmp(l->step->value[n->out].name, NNC_TRAIN_KEY) || l->n_data == MOST_INPUTS ||
            t.rank == 0 || (rows && t.dim[0] != rows))
            return false;
        rows = t.dim[0];
        t.dim[0] *= l->batches;
        t = nnc_type_dense(&t);
        l->data[l->n_data] = n;
        l->type[l->n_data++] = t;
        if (!fill(l, l->n_data - 1, axis < 0 ? 1 : y->dim[axis], seed))
            return false;
    }
    return rows > 0;
}

static nnc_status give(void *ctx, int i, const void **out, nnc_sink *sink)
{
    (void)sink;
    *out = ((const lesson *)ctx)->sample[i];
    return NNC_OK;
}

static nnc_status write_samples(lesson *l, const char *file, nnc_sink *sink)
{
    const char *name[MOST_INPUTS];
    const nnc_type *type[MOST_INPUTS];
    for (int i = 0; i < l->n_data; i++) {
        name[i] = l->step->value[l->data[i]->out].name;
        type[i] = &l->type[i];
    }
    const nnc_tensor_source s = {
        .n = l->n_data, .name = name, .type = type, .data = give, .ctx = l};
    return nnc_tensors_write(file, &s, sink);
}

/* ---- the reference ----------------------------------------------------------------------------------------------------------- */

static void free_values(nnc_rval *v, uint32_t n)
{
    for (uint32_t i = 0; v && i < n; i++)
        nnc_rval_free(&v[i]);
    nnc_free(v);
}

/* A scalar that the trainer sets for batch k of all; `skipped` of the steps before it were. */
static void set_scalar(const lesson *l, const char *name, int k, int skipped, void *to)
{
    const double each = l->how.accumulate > 1 ? l->how.accumulate : 1, at = floor(k / each),
                 step = at + 1 - skipped;
    double v = nnc_rate_at(&l->rate, (int64_t)at, STEPS, STEPS);
    if (!strcmp(name, NNC_TRAIN_FIRST)) {
        *(bool *)to = fmod(k, each) == 0;
        return;
    }
    if (!strcmp(name, NNC_TRAIN_SCALE1))
        v = 1 / (1 - pow(l->how.beta1, step));
    if (!strcmp(name, NNC_TRAIN_SCALE2))
        v = 1 / sqrt(1 - pow(l->how.beta2, step));
    *(float *)to = (float)v;
}

/* One batch; *state becomes what the states are after it. *finite: its loss. */
static nnc_status evaluate(
    const lesson *l, int k, int skipped, nnc_rval **state, bool *finite, nnc_sink *sink)
{
    const nnc_graph *g = l->step;
    const void *in[MOST_INPUTS + 4];
    float scalar[MOST_INPUTS + 4];
    int n = 0, data = 0;
    const int each = l->how.accumulate > 1 ? l->how.accumulate : 1;
    for (uint32_t i = 0; i < g->n_node; i++) {
        if (g->node[i].op != OP_input)
            continue;
        if (data < l->n_data && &g->node[i] == l->data[data]) {
            const int64_t bytes = nnc_type_bytes(&l->type[data]) / l->batches;
            in[n] = (const char *)l->sample[data++] + k * bytes;
        } else {
            set_scalar(l, g->value[g->node[i].out].name, k, skipped, &scalar[n]);
            in[n] = &scalar[n];
        }
        n++;
    }
    nnc_rval *now = nnc_calloc(g->n_output + (size_t)1, sizeof *now);
    const nnc_rounding r = {.seed = l->rounding + 1000 * (uint64_t)k,
        .operand_unit = l->bf16 ? 0x1p-8 : 0,
        .result_unit = l->bf16 ? 0x1p-8 : 0,
        .before = *state};
    nnc_status s = !now          ? NNC_E_NOMEM
                   : l->rounding ? nnc_eval_rounded(g, in, 1, &r, now, sink)
                                 : nnc_eval_step(g, in, 1, *state, now, sink);
    *finite = s || isfinite(now[0].f[0]);
    /* A batch that takes no step moves only what accumulates. */
    for (uint32_t o = nnc_result_outputs(g); !s && k % each != each - 1 && o < g->n_output; o++)
        if (!nnc_def(g, g->output_state[o])->accumulates) {
            nnc_rval_free(&now[o]);
            now[o] = (*state)[o];
            (*state)[o] = (nnc_rval){0};
        }
    free_values(*state, g->n_output);
    *state = now;
    return s;
}

/* The params as they are before the first step, by output. */
static nnc_status begin(const nnc_graph *g, nnc_rval *state, nnc_sink *sink)
{
    nnc_weight_files files = {0};
    nnc_status s = NNC_OK;
    for (uint32_t o = nnc_result_outputs(g); o < g->n_output && !s; o++) {
        const nnc_node *p = nnc_def(g, g->output_state[o]);
        const nnc_type t = nnc_type_dense(nnc_typeof(g, g->output_state[o]));
        const int64_t n = nnc_type_numel(&t);
        NNC_FREED char *raw = nnc_malloc((size_t)nnc_type_bytes(&t) + 1);
        state[o] = (nnc_rval){.type = t};
        const bool is_float = nnc_is_float((nnc_dtype)t.dtype);
        void *to = nnc_calloc((size_t)n + 1, 8);
        if (is_float)
            state[o].f = to;
        else
            state[o].i = to;
        s = raw && to ? nnc_weight_read(p->weight, &t, 0, n, raw, &files, sink) : NNC_E_NOMEM;
        for (int64_t i = 0; i < n && !s; i++)
            if (is_float)
                state[o].f[i] = nnc_get_f64((nnc_dtype)t.dtype, raw, i);
            else
                state[o].i[i] = nnc_get_i64((nnc_dtype)t.dtype, raw, i);
    }
    nnc_weight_files_deinit(&files);
    return s;
}

/* A copy of the states. */
static nnc_rval *copy_states(const nnc_graph *g, const nnc_rval *state)
{
    nnc_rval *copy = nnc_calloc(g->n_output + (size_t)1, sizeof *copy);
    for (uint32_t o = nnc_result_outputs(g); copy && o < g->n_output; o++) {
        const size_t bytes = (size_t)nnc_type_numel(&state[o].type) * 8;
        copy[o] = state[o];
        copy[o].f = state[o].f ? nnc_malloc(bytes + 8) : NULL;
        copy[o].i = state[o].i ? nnc_malloc(bytes + 8) : NULL;
        if (copy[o].f)
            memcpy(copy[o].f, state[o].f, bytes);
        if (copy[o].i)
            memcpy(copy[o].i, state[o].i, bytes);
    }
    return copy;
}

/* All steps; of one whose loss is not finite nothing stays. */
static nnc_status take_steps(lesson *l, nnc_rval **state, nnc_text *why, nnc_sink *sink)
{
    const int each = l->how.accumulate > 1 ? l->how.accumulate : 1;
    int skipped = 0;
    for (int k = 0; k < l->batches; k += each) {
        nnc_rval *before = copy_states(l->step, *state);
        bool finite = true;
        nnc_status s = before ? NNC_OK : NNC_E_NOMEM;
        for (int i = 0; i < each && finite && !s; i++) {
            s = evaluate(l, k + i, skipped, state, &finite, sink);
            l->unseen |= k + i == l->bad && finite;
        }
        if (!finite) {
            nnc_rval *after = *state;
            *state = before;
            before = after;
            skipped++;
            if (l->bad < 0)
                nnc_puts(why, "the reference's loss is not finite");
        }
        free_values(before, l->step->n_output);
        if (s)
            return s;
    }
    return NNC_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------------------- */

/* Rows of numbers are read back in this order, whatever they are called in the file. */
static int train(const lesson *l, const char *model, const char *data, const char *save,
    uint64_t key, nnc_text *out, nnc_text *err)
{
    static const char *const losses[] = {"cross_entropy", "mse", "bce"},
                             *const optimizers[] = {"sgd", "adam", "adamw"},
                             *const threads[] = {"--threads=1", "--threads=2", "--threads=5"},
                             *const levels[] = {"-O2", "-O0", "-O1", "-O3"};
    const nnc_training *t = &l->how;
    const sharing *s = &l->share;
    const char *argv[60] = {"nnc", "train", model, "--no-shuffle", "--epochs=1", "--quiet"};
    char text[28][620];
    int n = 6, m = 0;
#define WORD(...) (snprintf(text[m], sizeof text[m], __VA_ARGS__), argv[n++] = text[m++])
    WORD("--data=%s", data);
    WORD("--save=%s", save);
    WORD("--lr=%g", RATE);
    WORD("--loss=%s", losses[t->loss]);
    WORD("--optimizer=%s", optimizers[t->optimizer]);
    if (t->momentum > 0)
        WORD("--momentum=%g", t->momentum);
    if (t->weight_decay > 0)
        WORD("--weight-decay=%g", t->weight_decay);
    if (t->clip_norm > 0)
        WORD("--clip-norm=%g", t->clip_norm);
    if (t->label_smoothing > 0)
        WORD("--label-smoothing=%g", t->label_smoothing);
    if (s->accumulate)
        WORD("--accumulate=%d", s->accumulate);
    if (s->micro)
        WORD("--micro-batches=%d", s->micro);
    if (s->devices)
        WORD("--devices=%d", s->devices);
    if (s->strategy)
        WORD("--strategy=%s", s->strategy);
    if (s->replicas)
        WORD("--replicas=%d", s->replicas);
    if (s->zero)
        WORD("--zero=%d", s->zero);
    if (s->bucket_mb)
        WORD("--bucket-mb=%s", s->bucket_mb);
    if (t->n_freeze)
        WORD("--freeze=%s", t->freeze[0]);
    if (l->rate.schedule != NNC_LR_constant)
        WORD("--schedule=%s", l->rate.every ? "step" : "cosine");
    if (l->rate.every)
        WORD("--decay-every=%s", l->rate.every);
    if (l->rate.every)
        WORD("--gamma=%g", l->rate.gamma);
    if (l->rate.min > 0)
        WORD("--min-lr=%g", l->rate.min);
    if (l->rate.warmup)
        WORD("--warmup-steps=%d", l->rate.warmup);
    if (!roll(key, 52, 4))
        WORD("--validation-data=%s", data);
    const int n_checkpoint = n;
    if (l->stop)
        WORD("--checkpoint=%s/c.%s", l->dir, roll(key, 53, 2) ? "npz" : "safetensors");
#undef WORD
    if (l->bad >= 0)
        argv[n++] = "--on-nan=skip";
    if (t->nesterov)
        argv[n++] = "--nesterov";
    if (t->bn == NNC_BN_eval)
        argv[n++] = "--bn=eval";
    argv[n++] = threads[roll(key, 20, 3)];
    argv[n++] = levels[roll(key, 21, 3) || l->bf16 ? 0 : roll(key, 22, 4)];
    if (l->bf16)
        argv[n++] = "--precision=bf16";
    if (!roll(key, 23, 4))
        argv[n++] = "--no-llvm";
    if (!roll(key, 25, 4))
        argv[n++] = "--streams=2";
    int code = 0;
    if (l->stop) {
        unlink(strchr(argv[n_checkpoint], '=') + 1);
        snprintf(text[m], sizeof text[m], "--steps=%d", l->stop);
        argv[n] = text[m];
        code = net_command(l->dir, argv, out, err);
        argv[n] = "--resume";
    }
    if (!code)
        code = net_command(l->dir, argv, out, err);
    for (int i = 0; argv[i]; i++)
        nnc_printf(err, "%s%s", i ? " " : "\n  ", argv[i]);
    return code;
}

/* ---- judging ----------------------------------------------------------------------------------------------------------------- */

/* Squares of how far the reference moved, of how far the file is from it, and of the reference. */
typedef struct moved {
    double by, off, size;
} moved;

static moved measure(const nnc_rval *first, const nnc_rval *last, const void *got)
{
    moved m = {0};
    for (int64_t i = 0; i < nnc_type_numel(&last->type); i++) {
        const double x = nnc_get_f64((nnc_dtype)last->type.dtype, got, i);
        m.by += (last->f[i] - first->f[i]) * (last->f[i] - first->f[i]);
        m.off += (x - last->f[i]) * (x - last->f[i]);
        m.size += last->f[i] * last->f[i];
    }
    return m;
}

/* How far a weight may be from the reference, as a share of how far that moved. Adam divides a gradient by its own size: where it is 0 but
 * for rounding, any step of one learning rate is right. */
static bool is_near(const lesson *l, const moved *m, double by_rounding, int64_t n)
{
    const double unit = 0x1p-23, rounding = 16 * unit * unit * m->size;
    const double any = l->how.optimizer == NNC_OPT_sgd ? 0 : 2.5 * RATE * STEPS;
    if (any > 0 && m->off <= any * any * (double)n * 0.02)
        return true;
    return m->off <=
           (l->bf16 ? 0.1 : 1e-4) * m->by + rounding + 1e-12 * (double)n + FACTOR * by_rounding;
}

/* by_rounding, by output: the squares by which simulated rounding moves it. */
static bool same_weights(const lesson *l, const nnc_rval *first, const nnc_rval *last,
    const double *by_rounding, const char *save, nnc_text *why, nnc_sink *sink)
{
    const nnc_graph *g = l->step;
    nnc_tensors *file = NULL;
    nnc_status s = nnc_tensors_open(save, NULL, &file, sink);
    int found = 0;
    for (uint32_t o = nnc_result_outputs(g); o < g->n_output && !s && !why->n; o++) {
        const char *name = g->value[g->output_state[o]].name;
        const nnc_tensor_entry *e = nnc_tensors_find(file, name);
        if (!e || !last[o].f)
            continue; /* a state of the optimizer */
        NNC_FREED void *got = nnc_malloc((size_t)e->size + 1);
        s = got ? nnc_tensors_read(file, e, got, sink) : NNC_E_NOMEM;
        if (s)
            break;
        const moved m = measure(&first[o], &last[o], got);
        found++;
        if (!is_near(l, &m, by_rounding[o], nnc_type_numel(&last[o].type)))
            nnc_printf(why,
                "weight \"%s\" is %.3g from the reference, which moved by %.3g (root of the sum of "
                "squares)",
                name, sqrt(m.off), sqrt(m.by));
    }
    if (!s && !found)
        nnc_puts(why, "no trained weight is in the file");
    if (s)
        api_put_sink(why, sink);
    nnc_tensors_close(file);
    return !s && !why->n;
}

/* Trains by the reference with simulated rounding: the mean square of what that changes of each output, added to square[]. */
static nnc_status condition(
    const lesson *l, const nnc_rval *last, double *square, nnc_text *why, nnc_sink *sink)
{
    const nnc_graph *g = l->step;
    nnc_status s = NNC_OK;
    for (uint64_t d = 1; d <= ROUNDINGS && !s; d++) {
        lesson rounded = *l;
        rounded.rounding = d;
        nnc_rval *state = nnc_calloc(g->n_output + (size_t)1, sizeof *state);
        s = state ? begin(g, state, sink) : NNC_E_NOMEM;
        s = s ? s : take_steps(&rounded, &state, why, sink);
        for (uint32_t o = nnc_result_outputs(g); o < g->n_output && !s; o++)
            for (int64_t i = 0; last[o].f && i < nnc_type_numel(&last[o].type); i++) {
                const double e = state[o].f[i] - last[o].f[i];
                square[o] += e * e / ROUNDINGS;
            }
        free_values(state, g->n_output);
    }
    return s;
}

/* Trains by the reference, and judges what the command saved: where that is too far, by how much rounding may move it. */
static bool judge(lesson *l, const char *save, nnc_text *why, nnc_sink *sink)
{
    const nnc_graph *g = l->step;
    nnc_rval *first = nnc_calloc(g->n_output + (size_t)1, sizeof *first),
             *state = nnc_calloc(g->n_output + (size_t)1, sizeof *state);
    nnc_status s = first && state ? begin(g, first, sink) : NNC_E_NOMEM;
    s = s ? s : begin(g, state, sink);
    s = s ? s : take_steps(l, &state, why, sink);
    if (s) {
        nnc_printf(why, "the reference fails: %s", nnc_status_name(s));
        api_put_sink(why, sink);
    }
    NNC_FREED double *square = nnc_calloc(g->n_output + (size_t)1, sizeof *square);
    bool ok = !s && square && same_weights(l, first, state, square, save, why, sink);
    if (!s && !ok && square) {
        NNC_LOCAL(nnc_text) first_why = *why;
        *why = (nnc_text){0};
        ok = !condition(l, state, square, why, sink) &&
             same_weights(l, first, state, square, save, why, sink);
    }
    free_values(first, g->n_output);
    free_values(state, g->n_output);
    return ok;
}

/* ---- cases -------------------------------------------------------------------------------------------------------------------- */

typedef enum outcome { FAILED, TRAINED, REFUSED, LEFT_OUT } outcome;

static outcome take(lesson *l, const char *model, uint64_t seed, nnc_text *why, nnc_sink *sink)
{
    const uint64_t key = nnc_rng_key("net_train", seed);
    char data[500], save[500];
    nnc_text out = {0}, err = {0};
    snprintf(data, sizeof data, "%s/data.%s", l->dir, roll(key, 30, 2) ? "npz" : "safetensors");
    snprintf(save, sizeof save, "%s/w.%s", l->dir, roll(key, 31, 2) ? "npz" : "safetensors");
    nnc_status s = write_samples(l, data, sink);
    if (s) {
        nnc_puts(why, "samples cannot be written");
        api_put_sink(why, sink);
        return FAILED;
    }
    const int code = train(l, model, data, save, key, &out, &err);
    outcome o = TRAINED;
    const bool unsplit =
        l->share.replicas && (strstr(nnc_text_str(&err), " to split") ||
                                 strstr(nnc_text_str(&err), "of model has enough"));
    if ((code == 1 && strstr(nnc_text_str(&err), "not finite")) || (code == 2 && unsplit))
        o = LEFT_OUT; /* nothing of this model is split by this strategy */
    else if (code) {
        nnc_printf(why, "nnc train ends with %d:\n%s", code, nnc_text_str(&err));
        o = FAILED;
    } else if (!judge(l, save, why, sink)) {
        nnc_printf(why, "\n%s", nnc_text_str(&err));
        o = FAILED;
    }
    if (o == FAILED && l->unseen) {
        nnc_text_deinit(why);
        *why = (nnc_text){0};
        o = LEFT_OUT;
    }
    nnc_text_deinit(&out);
    nnc_text_deinit(&err);
    return o;
}

static outcome check_model(
    const char *model, const nnc_graph *g, const char *dir, uint64_t seed, nnc_text *why)
{
    lesson l = {.dir = dir};
    const char *unsound;
    nnc_sink *sink = nnc_sink_create();
    draw_training(nnc_rng_key("net_train", seed), &l.how);
    const uint64_t key = nnc_rng_key("net_train", seed);
    char pattern[80];
    const char *freeze = roll(key, 39, 4) ? NULL : draw_pattern(key, g, pattern);
    l.bf16 = !roll(key, 9, 5);
    l.batches = STEPS * (l.how.accumulate > 1 ? l.how.accumulate : 1);
    l.how.freeze = &freeze;
    l.how.n_freeze = freeze != NULL;
    outcome o = LEFT_OUT;
    if (!net_sound(g, &unsound) || nnc_train_graph(g, &l.how, &l.step, sink) ||
        !net_fits_training(l.step, &unsound))
        ;
    else if (make_samples(&l, g, seed)) {
        draw_loop(key, &l);
        l.bad = l.bad >= 0 && spoil(&l) ? l.bad : -1;
        o = take(&l, model, seed, why, sink);
    }
    lesson_free(&l);
    nnc_sink_destroy(sink);
    return o;
}

/* Draws models until one can be trained. */
static bool check_training(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    char file[400];
    (void)ctx;
    net_surroundings(dir);
    snprintf(file, sizeof file, "%s/model.json", dir);
    for (uint64_t k = 0; k < 400; k++) {
        int rejected;
        const uint64_t seed = test_seed + 1000003 * i + k;
        nnc_sink *sink = nnc_sink_create();
        const nnc_set width = {"width", 3};
        char *text = net_draw(seed, &rejected, why);
        nnc_model_options mo = {.set = &width, .n_set = text && strstr(text, NET_SET) ? 1 : 0};
        nnc_graph *g = text && !mo.n_set && !strstr(text, "\"device\"")
                           ? nnc_model_parse("m", text, strlen(text), &mo, sink)
                           : NULL;
        outcome o = LEFT_OUT;
        if (g && !nnc_file_write(file, text, strlen(text), false, sink))
            o = check_model(file, g, dir, seed, why);
        if (o == FAILED)
            nnc_printf(why, "\n%s", text);
        free(text);
        nnc_graph_destroy(g);
        nnc_sink_destroy(sink);
        if (o != LEFT_OUT)
            return o != FAILED;
    }
    nnc_puts(why, "400 models were drawn, and none could be trained");
    return false;
}

static void training_failed(uint64_t i, const char *why, void *ctx)
{
    (void)ctx;
    test_fail(__FILE__, __LINE__, "random training %llu (--seed %llu): %s", (unsigned long long)i,
        (unsigned long long)test_seed, why);
}

TEST(random_training)
{
    unsigned long long from = 0, to = (unsigned)test_draws(api_sanitized ? 40 : 100);
    const char *range = getenv("NNC_NET_TRAIN");
    if (range && sscanf(range, "%llu-%llu", &from, &to) != 2)
        to = (from = strtoull(range, NULL, 0)) + 1;
    const int failed = net_run(from, to, 2, SECONDS_EACH, check_training, NULL, training_failed);
    printf("  trainings %llu to %llu of seed %llu: %d failed\n", from, to,
        (unsigned long long)test_seed, failed);
}
