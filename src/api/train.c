/* api/train.c -- nnc train: the training graph compiled like any other, and the loop over batches. */
#include "api/train.h"
#include "api/train_data.h"
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
    dataset data;
    int64_t batch,
        n_train; /* samples: of a batch, and of those that are trained on, which come first */
    int64_t targets; /* numbers in the targets of a batch: segmentation has several a sample */
    int64_t step, steps, per_epoch; /* so far, of all epochs, of one */
    int accumulate; /* batches of a step */
    void *buffer; /* for a batch of the largest input */
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

static nnc_status set_batch(trainer *t, program *p, int64_t first)
{
    for (int i = 0; i < t->data.n_rows; i++) {
        const int input = input_of(p, t->data.rows[i].name);
        dataset_batch(&t->data, i, first, t->buffer);
        if (input >= 0)
            NNC_TRY(nnc_session_input(p->session, input, t->buffer, t->sink));
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

/* Takes a step of the batches from sample `first` on. */
static nnc_status take_step(trainer *t, int64_t first)
{
    double loss = 0, lr = learning_rate(t);
    for (int k = 0; k < t->accumulate; k++) {
        double part;
        NNC_TRY(set_batch(t, &t->train, first + k * t->batch));
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
    if (t->n_train == t->data.n)
        return NNC_OK;
    for (int64_t at = t->n_train; at + t->batch <= t->data.n; at += t->batch) {
        NNC_TRY(set_batch(t, &t->eval, at));
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

static void report_epoch(trainer *t, int epoch, int64_t ns)
{
    const program *p = &t->train, *v = &t->eval;
    const double n = (double)p->batches,
                 rate = n * (double)t->batch * 1e9 / (double)nnc_max64(ns, 1);
    const bool classes = isfinite(p->correct), checked = v->batches > 0;
    nnc_json_member m[8] = {J_INT("epoch", epoch), J_INT("steps", t->step),
        J_REAL("loss", p->loss / n), J_REAL("samples_per_s", nnc_decimals(rate, 1))};
    int k = 4;
    if (classes)
        m[k++] = (nnc_json_member)J_REAL("accuracy", share(t, p));
    if (checked)
        m[k++] = (nnc_json_member)J_REAL("validation_loss", v->loss / (double)v->batches);
    if (checked && classes)
        m[k++] = (nnc_json_member)J_REAL("validation_accuracy", share(t, v));
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
    nnc_printf(t->out, "; %.0f samples/s\n", rate);
    if (t->o->report) {
        t->o->report(t->o->ctx, nnc_text_str(t->out) + before);
        t->out->n = before;
    }
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------- */

static nnc_status train_epoch(trainer *t, int epoch)
{
    const int64_t begin = nnc_now_ns();
    char name[32];
    snprintf(name, sizeof name, "epoch %d", epoch);
    if (!t->o->no_shuffle)
        dataset_shuffle(&t->data, 0, t->n_train, t->o->seed, name);
    t->train.loss = t->train.correct = 0;
    t->train.batches = 0;
    const int64_t each = t->batch * t->accumulate;
    for (int64_t at = 0; at + each <= t->n_train && t->step < t->steps; at += each)
        NNC_TRY(take_step(t, at));
    const int64_t ns = nnc_now_ns() - begin;
    NNC_TRY(validate(t));
    report_epoch(t, epoch, ns);
    return NNC_OK;
}

/* The inputs that data are read for: those of the model, and the target. */
static nnc_status find_rows(trainer *t)
{
    static const char *const others[] = {
        NNC_TRAIN_LR, NNC_TRAIN_SCALE1, NNC_TRAIN_SCALE2, NNC_TRAIN_FIRST, NNC_TRAIN_KEY};
    nnc_session *s = t->train.session;
    size_t most = 0;
    for (int i = 0; i < nnc_session_inputs(s); i++) {
        const char *name = nnc_session_input_name(s, i);
        bool own = false;
        for (size_t k = 0; k < NNC_COUNT(others); k++)
            own = own || !strcmp(name, others[k]);
        if (own)
            continue;
        const nnc_type type = *nnc_session_input_type(s, i);
        if (t->data.n_rows == (int)NNC_COUNT(t->data.rows) || !type.rank)
            return nnc_fail0(t->sink, NNC_E_MODEL,
                "training takes models of at most %d inputs, each with a first dimension for the "
                "samples of a batch",
                (int)NNC_COUNT(t->data.rows) - 1);
        t->data.rows[t->data.n_rows++] = (rows){.name = name, .type = nnc_type_dense(&type)};
        most = (size_t)nnc_max64((int64_t)most, nnc_type_bytes(&type));
        if (!strcmp(name, NNC_TRAIN_TARGET))
            t->targets = nnc_type_numel(&type);
    }
    t->batch = t->data.rows[0].type.dim[0];
    for (int i = 0; i < t->data.n_rows; i++)
        if (t->data.rows[i].type.dim[0] != t->batch)
            return nnc_fail0(t->sink, NNC_E_MODEL,
                "the inputs %s and %s have batches of %lld and %lld samples", t->data.rows[0].name,
                t->data.rows[i].name, (long long)t->batch, (long long)t->data.rows[i].type.dim[0]);
    t->buffer = nnc_malloc(most + 1);
    NNC_NEED(t->buffer, t->sink);
    return NNC_OK;
}

/* Divides the samples, in an order of the seed, into those for training and those for validation, in whole batches. */
static nnc_status divide(trainer *t)
{
    const int64_t n = t->data.n,
                  kept = (int64_t)((double)n * t->o->validation) / t->batch * t->batch;
    if (!t->o->no_shuffle)
        dataset_shuffle(&t->data, 0, n, t->o->seed, "split");
    t->n_train = n - kept;
    if (t->o->validation > 0 && !kept)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--validation=%g of %lld samples is less than a batch of %lld: keep a larger share",
            t->o->validation, (long long)n, (long long)t->batch);
    t->per_epoch = t->n_train / (t->batch * t->accumulate);
    if (t->per_epoch < 1)
        return nnc_fail0(t->sink, NNC_E_MODEL,
            "%lld samples for training are less than a step's %lld: set a smaller batch (--set "
            "batch=...) or --accumulate",
            (long long)t->n_train, (long long)(t->batch * t->accumulate));
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
    NNC_TRY(find_rows(t));
    const nnc_type *y = nnc_typeof(m, m->output[0]);
    NNC_TRY(dataset_read(&t->data, t->o->data, t->o->labels,
        of->loss == NNC_LOSS_cross_entropy ? y->dim[1] : 0, t->sink));
    NNC_TRY(divide(t));
    if (t->n_train < t->data.n) {
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
    dataset_deinit(&t.data);
    nnc_free(t.buffer);
    nnc_text_deinit(&t.log);
    return s;
}
