/* api/train.c -- nnc train: the training graph compiled like any other, and the loop over batches. */
#include "api/internal.h"
#include "api/train.h"
#include "data/data.h"
#include "tensors/tensors.h"

#include <math.h>
#include <string.h>

const nnc_train_options nnc_train_defaults = {.compile = {.level = 2, .streams = 1, .devices = 1},
    .of = {NNC_TRAINING_DEFAULTS},
    .rate = {NNC_RATE_DEFAULTS},
    .epochs = 1};

/* A compiled graph and its session. */
typedef struct program {
    nnc_model *graph;
    nnc_artifact *artifact;
    nnc_session *session;
    double loss, correct; /* sums over batches */
    int64_t batches;
} program;

typedef struct trainer {
    nnc_env *e;
    const nnc_train_options *o;
    const nnc_model *model;
    program train, eval;
    nnc_data *data;
    nnc_data_input in[16]; /* that data are read for */
    int n_in;
    int64_t batch; /* samples */
    int64_t targets; /* numbers in the targets of a batch: segmentation has several a sample */
    int64_t step, steps, per_epoch; /* so far, of all epochs, of one */
    int accumulate; /* batches of a step */
    nnc_text log;
    nnc_text *out;
    nnc_format format;
    nnc_json_writer json;
    nnc_sink *sink;
} trainer;

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

/* with: the session whose states it has; NULL: of its own */
static nnc_status open_program(trainer *t, program *p, nnc_session *with)
{
    NNC_TRY(nnc_compile(t->e, p->graph, &t->o->compile, &p->artifact, t->sink));
    return nnc_session_create_with(t->e, p->artifact, with, &p->session, t->sink);
}

static void close_program(program *p)
{
    nnc_session_destroy(p->session);
    nnc_artifact_destroy(p->artifact);
    nnc_model_close(p->graph);
}

static int input_of(const program *p, const char *name)
{
    for (int i = 0; i < nnc_session_inputs(p->session); i++)
        if (!strcmp(nnc_session_input_name(p->session, i), name))
            return i;
    return -1;
}

static double output_of(program *p, const char *name, nnc_status *s, nnc_sink *sink)
{
    for (int i = 0; i < nnc_session_outputs(p->session); i++)
        if (!strcmp(nnc_session_output_name(p->session, i), name)) {
            float v = 0;
            *s = *s ? *s : nnc_session_output(p->session, i, &v, sink);
            return isnan(v) ? NAN : (double)v; /* without a sign, which would be printed */
        }
    return NAN;
}

static nnc_status set_number(trainer *t, program *p, const char *name, double v)
{
    const int i = input_of(p, name);
    const float f = (float)v;
    return i < 0 ? NNC_OK : nnc_session_input(p->session, i, &f, t->sink);
}

/* ---- batches --------------------------------------------------------------------------------------------------------------- */

static double learning_rate(const trainer *t)
{
    return nnc_rate_at(&t->o->rate, t->step, t->steps, t->per_epoch);
}

/* Gives p the next batch of the data. */
static nnc_status set_batch(trainer *t, program *p)
{
    const void *batch[NNC_COUNT(t->in)];
    NNC_TRY(nnc_data_next(t->data, batch, t->sink));
    for (int i = 0; i < t->n_in; i++) {
        const int input = input_of(p, t->in[i].name);
        if (input >= 0)
            NNC_TRY(nnc_session_input(p->session, input, batch[i], t->sink));
    }
    return NNC_OK;
}

/* What changes from step to step, and with the batches k of a step. */
static nnc_status set_step(trainer *t, program *p, int k)
{
    const nnc_training *of = &t->o->of;
    const double n = (double)(t->step + 1);
    const int key = input_of(p, NNC_TRAIN_KEY), first = input_of(p, NNC_TRAIN_FIRST);
    const uint64_t batch = (uint64_t)(t->step * t->accumulate + k);
    const uint32_t now = nnc_rng_u32(nnc_rng_key("dropout", t->o->seed), batch);
    const bool is_first = k == 0;
    if (key >= 0)
        NNC_TRY(nnc_session_input(p->session, key, &now, t->sink));
    if (first >= 0)
        NNC_TRY(nnc_session_input(p->session, first, &is_first, t->sink));
    NNC_TRY(set_number(t, p, NNC_TRAIN_LR, learning_rate(t)));
    NNC_TRY(set_number(t, p, NNC_TRAIN_SCALE1, 1 / (1 - pow(of->beta1, n))));
    return set_number(t, p, NNC_TRAIN_SCALE2, 1 / sqrt(1 - pow(of->beta2, n)));
}

static nnc_status add_result(trainer *t, program *p, double *loss)
{
    nnc_status s = NNC_OK;
    *loss = output_of(p, "loss", &s, t->sink);
    p->correct += output_of(p, "correct", &s, t->sink);
    p->loss += *loss;
    p->batches++;
    return s;
}

/* Takes a step of the next batches. */
static nnc_status take_step(trainer *t)
{
    double loss = 0, lr = learning_rate(t);
    for (int k = 0; k < t->accumulate; k++) {
        double part;
        NNC_TRY(set_batch(t, &t->train));
        NNC_TRY(set_step(t, &t->train, k));
        NNC_TRY((k < t->accumulate - 1 ? nnc_session_accumulate : nnc_session_step)(
            t->train.session, t->sink));
        NNC_TRY(add_result(t, &t->train, &part));
        loss += part / t->accumulate;
    }
    t->step++;
    char number[32] = "null"; /* JSON has no other form of NaN and infinity */
    if (isfinite(loss))
        nnc_snprintf(number, sizeof number, "%.9g", loss);
    if (t->o->log)
        nnc_printf(&t->log, "{\"step\": %lld, \"loss\": %s, \"lr\": %.9g}\n", (long long)t->step,
            number, lr);
    if (!isfinite(loss))
        return nnc_fail0(t->sink, NNC_E_DIFFERS,
            "the loss is %g in step %lld: a smaller --lr or --clip-norm may help; nothing was "
            "saved",
            loss, (long long)t->step);
    return NNC_OK;
}

static nnc_status validate(trainer *t)
{
    double loss;
    t->eval.loss = t->eval.correct = 0;
    t->eval.batches = 0;
    if (!t->eval.session)
        return NNC_OK;
    nnc_data_begin(t->data, NNC_DATA_validation, 0, 0);
    for (int64_t i = nnc_data_batches(t->data, NNC_DATA_validation); i > 0; i--) {
        NNC_TRY(set_batch(t, &t->eval));
        NNC_TRY(nnc_session_run(t->eval.session, t->sink));
        NNC_TRY(add_result(t, &t->eval, &loss));
    }
    return NNC_OK;
}

/* ---- report ------------------------------------------------------------------------------------------------------------------ */

static double share(const trainer *t, const program *p)
{
    return p->correct / ((double)p->batches * (double)t->targets);
}

static void report_epoch(trainer *t, int epoch, int64_t ns, nnc_data_times load)
{
    const program *p = &t->train, *v = &t->eval;
    const double n = (double)p->batches,
                 rate = n * (double)t->batch * 1e9 / (double)nnc_max64(ns, 1);
    const bool classes = isfinite(p->correct), checked = v->batches > 0;
    nnc_json_member m[11] = {J_INT("epoch", epoch), J_INT("steps", t->step),
        J_REAL("loss", p->loss / n), J_REAL("samples_per_s", nnc_decimals(rate, 1))};
    int k = 4;
    if (classes)
        m[k++] = (nnc_json_member)J_REAL("accuracy", share(t, p));
    if (checked)
        m[k++] = (nnc_json_member)J_REAL("validation_loss", v->loss / (double)v->batches);
    if (checked && classes)
        m[k++] = (nnc_json_member)J_REAL("validation_accuracy", share(t, v));
    m[k++] = (nnc_json_member)J_INT("compute_ns", ns - load.wait_ns);
    m[k++] = (nnc_json_member)J_INT("load_ns", load.load_ns);
    m[k++] = (nnc_json_member)J_INT("load_wait_ns", load.wait_ns);
    if (t->format != NNC_TEXT) {
        nnc_json_row(&t->json, 2, m, (size_t)k);
        return;
    }
    const size_t before = t->out->n;
    nnc_printf(t->out, "epoch %d: loss %.4f", epoch, p->loss / n);
    if (classes)
        nnc_printf(t->out, ", accuracy %.2f %%", 100 * share(t, p));
    if (checked)
        nnc_printf(t->out, "; validation: loss %.4f", v->loss / (double)v->batches);
    if (checked && classes)
        nnc_printf(t->out, ", accuracy %.2f %%", 100 * share(t, v));
    nnc_printf(t->out, "; %.0f samples/s; compute %.3g s, load %.3g s, waited %.3g s\n", rate,
        (double)(ns - load.wait_ns) * 1e-9, (double)load.load_ns * 1e-9,
        (double)load.wait_ns * 1e-9);
    if (t->o->report) {
        t->o->report(t->o->ctx, nnc_text_str(t->out) + before);
        t->out->n = before;
    }
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------- */

static nnc_status train_epoch(trainer *t, int epoch)
{
    const int64_t begin = nnc_now_ns();
    t->train.loss = t->train.correct = 0;
    t->train.batches = 0;
    nnc_data_begin(t->data, NNC_DATA_train, epoch, 0);
    for (int64_t i = 0; i < t->per_epoch && t->step < t->steps; i++)
        NNC_TRY(take_step(t));
    const nnc_data_times load = nnc_data_take_times(t->data);
    const int64_t ns = nnc_now_ns() - begin;
    NNC_TRY(validate(t));
    (void)nnc_data_take_times(t->data); /* of the validation */
    report_epoch(t, epoch, ns, load);
    return NNC_OK;
}

/* The inputs that data are read for: those of the model, and the target. */
static nnc_status find_inputs(trainer *t)
{
    static const char *const others[] = {
        NNC_TRAIN_LR, NNC_TRAIN_SCALE1, NNC_TRAIN_SCALE2, NNC_TRAIN_FIRST, NNC_TRAIN_KEY};
    nnc_session *s = t->train.session;
    for (int i = 0; i < nnc_session_inputs(s); i++) {
        const char *name = nnc_session_input_name(s, i);
        bool own = false;
        for (size_t k = 0; k < NNC_COUNT(others); k++)
            own = own || !strcmp(name, others[k]);
        if (own)
            continue;
        const nnc_type type = *nnc_session_input_type(s, i);
        if (t->n_in == (int)NNC_COUNT(t->in) || !type.rank)
            return nnc_fail0(t->sink, NNC_E_MODEL,
                "training takes models of at most %d inputs, each with a first dimension for the "
                "samples of a batch",
                (int)NNC_COUNT(t->in) - 1);
        const bool target = !strcmp(name, NNC_TRAIN_TARGET);
        t->in[t->n_in++] = (nnc_data_input){name, nnc_type_dense(&type), target};
        if (target)
            t->targets = nnc_type_numel(&type);
    }
    t->batch = t->in[0].type.dim[0];
    for (int i = 0; i < t->n_in; i++)
        if (t->in[i].type.dim[0] != t->batch)
            return nnc_fail0(t->sink, NNC_E_MODEL,
                "the inputs %s and %s have batches of %lld and %lld samples", t->in[0].name,
                t->in[i].name, (long long)t->batch, (long long)t->in[i].type.dim[0]);
    return NNC_OK;
}

static nnc_status open_data(trainer *t)
{
    const nnc_type *y = nnc_typeof(t->model, t->model->output[0]);
    nnc_data_options o = t->o->data;
    o.seed = t->o->seed;
    NNC_TRY(find_inputs(t));
    NNC_TRY(nnc_data_open(&o, t->n_in, t->in,
        t->o->of.loss == NNC_LOSS_cross_entropy ? y->dim[1] : 0, &t->data, t->sink));
    t->per_epoch = nnc_data_batches(t->data, NNC_DATA_train) / t->accumulate;
    if (t->per_epoch < 1)
        return nnc_fail0(t->sink, NNC_E_MODEL,
            "%lld samples for training are less than a step's %lld: set a smaller batch (--set "
            "batch=...) or --accumulate",
            (long long)nnc_data_samples(t->data, NNC_DATA_train),
            (long long)(t->batch * t->accumulate));
    t->steps = nnc_mul_sat(t->per_epoch, t->o->epochs);
    if (t->o->steps)
        t->steps = nnc_min64(t->steps, t->o->steps);
    return NNC_OK;
}

/* The last update may have left weights that no later loss has shown. */
static nnc_status check_finite(trainer *t)
{
    nnc_session *s = t->train.session;
    for (int i = 0; i < nnc_session_states(s); i++) {
        const nnc_type *type = nnc_session_state_type(s, i);
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(type));
        NNC_NEED(data, t->sink);
        NNC_TRY(nnc_session_state(s, i, data, t->sink));
        for (int64_t k = 0; k < nnc_type_numel(type); k++)
            if (!isfinite(nnc_get_f64((nnc_dtype)type->dtype, data, k)))
                return nnc_fail0(t->sink, NNC_E_DIFFERS,
                    "%s is no longer finite after step %lld: a smaller --lr or --clip-norm may "
                    "help; nothing was saved",
                    nnc_session_state_name(s, i), (long long)t->step);
    }
    return NNC_OK;
}

/* What cannot be written is reported before the first step, not after the last. */
static nnc_status check_files(const trainer *t)
{
    const char *w = t->o->save;
    if (w && !nnc_tensors_named(w))
        return nnc_fail(t->sink, NNC_E_USAGE, (nnc_loc){.file = w},
            "weights are saved by name: name a file .npz or .safetensors");
    if (w)
        NNC_TRY(nnc_file_can_write(w, t->sink));
    return t->o->log ? nnc_file_can_write(t->o->log, t->sink) : NNC_OK;
}

static nnc_status save(trainer *t)
{
    NNC_TRY(check_finite(t));
    return t->o->save ? nnc_session_write_weights(t->train.session, t->model, t->o->save, t->sink)
                      : NNC_OK;
}

static nnc_status run(trainer *t)
{
    const nnc_model *m = t->model;
    const nnc_training *of = &t->o->of;
    NNC_TRY(nnc_rate_check(&t->o->rate, t->sink));
    NNC_TRY(check_files(t));
    NNC_TRY(nnc_train_graph(m, of, &t->train.graph, t->sink));
    NNC_TRY(open_program(t, &t->train, NULL));
    NNC_TRY(open_data(t));
    if (nnc_data_samples(t->data, NNC_DATA_validation)) {
        NNC_TRY(nnc_evaluation_graph(m, of, &t->eval.graph, t->sink));
        NNC_TRY(open_program(t, &t->eval, t->train.session));
    }
    t->json = (nnc_json_writer){.out = t->out, .csv = t->format == NNC_CSV};
    if (t->format == NNC_JSON)
        nnc_json_open(&t->json, NULL, '[');
    for (int i = 1; i <= t->o->epochs && t->step < t->steps; i++)
        NNC_TRY(train_epoch(t, i));
    if (t->format == NNC_JSON)
        nnc_json_end(&t->json, ']');
    return save(t);
}

nnc_status nnc_train(nnc_env *e, const nnc_model *m, const nnc_train_options *o, nnc_format f,
    nnc_text *out, nnc_sink *sink)
{
    trainer t = {.e = e, .o = o, .model = m, .out = out, .format = f, .sink = sink};
    t.accumulate = o->of.accumulate > 1 ? o->of.accumulate : 1;
    nnc_status s = run(&t);
    if (o->log && t.log.n) {
        nnc_status written = nnc_file_write(o->log, nnc_text_str(&t.log), t.log.n, false, sink);
        s = s ? s : written;
    }
    close_program(&t.train);
    close_program(&t.eval);
    nnc_data_close(t.data);
    nnc_text_deinit(&t.log);
    return s;
}
