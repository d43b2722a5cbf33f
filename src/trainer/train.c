/* trainer/train.c -- nnc train: the loop over batches of a training that open.c has opened. */
#include "report/report.h"
#include "session/session.h"
#include "session/train.h"
#include "trainer/state.h"
#include "trainer/trainer.h"
#include "tensors/tensors.h"

#include <math.h>
#include <string.h>

/* ---- numbers in and out -------------------------------------------------------------------------------------------------- */

int trainer_input_of(const program *p, const char *name)
{
    for (int i = 0; i < nnc_session_inputs(p->session); i++)
        if (!strcmp(nnc_session_input_name(p->session, i), name))
            return i;
    return -1;
}

/* The numbers of an output, one for each micro-batch; NaN where there is no such output. */
static nnc_status read_output(trainer *t, program *p, const char *name, float *v)
{
    int i = 0;
    for (int k = 0; k < t->micro; k++)
        v[k] = NAN;
    while (i < nnc_session_outputs(p->session) &&
           strcmp(nnc_session_output_name(p->session, i), name) != 0)
        i++;
    if (i < nnc_session_outputs(p->session))
        NNC_TRY(nnc_session_output(p->session, i, v, t->sink));
    for (int k = 0; k < t->micro; k++)
        v[k] = isnan(v[k]) ? NAN : v[k]; /* without a sign, which would be printed */
    return NNC_OK;
}

/* Reads the last run's outputs for its micro-batches. */
static nnc_status read_outputs(trainer *t, program *p)
{
    const size_t n = (size_t)t->micro;
    if (!p->loss_of)
        p->loss_of = nnc_calloc(3 * n, sizeof *p->loss_of);
    NNC_NEED(p->loss_of, t->sink);
    p->correct_of = p->loss_of + n;
    p->counted_of = p->correct_of + n;
    NNC_TRY(read_output(t, p, "loss", p->loss_of));
    NNC_TRY(read_output(t, p, "correct", p->correct_of));
    return read_output(t, p, "counted", p->counted_of);
}

static nnc_status set_number(trainer *t, program *p, const char *name, double v)
{
    const int i = trainer_input_of(p, name);
    const float f = (float)v;
    return i < 0 ? NNC_OK : nnc_session_input(p->session, i, &f, t->sink);
}

/* ---- batches --------------------------------------------------------------------------------------------------------------- */

/* Says which sample holds the index that input i of p has refused. */
static void note_row(trainer *t, const program *p, int i, int data, const void *batch)
{
    const nnc_type *type = &t->in[data].type;
    const int64_t end = p->session->index[i].all, n = nnc_type_numel(type);
    for (int64_t k = 0; end && k < n; k++) {
        const int64_t v = nnc_get_i64((nnc_dtype)type->dtype, batch, k);
        NNC_LOCAL(nnc_text) where = {0};
        if (v >= -end && v < end)
            continue;
        nnc_data_where(t->data, k / (n / type->dim[0]), &where);
        nnc_note(t->sink, (nnc_loc){0}, "index %lld is in %s", (long long)v, nnc_text_str(&where));
        return;
    }
}

/* Measures a step by its commands: the second one of an epoch, since the first may load libraries, and some more. */
static bool is_measured(const trainer *t, int k)
{
    const int64_t done = t->step - t->epoch_step;
    return t->data && k == t->accumulate - 1 && (done % 64 == 1 || t->per_epoch == 1);
}

/* Begins to give t->fed the next batch of the data. */
static void stage_batch(void *ctx)
{
    trainer *t = ctx;
    const void *batch[NNC_COUNT(t->in)];
    const program *p = t->fed;
    const int64_t begin = nnc_now_ns();
    nnc_status s = nnc_data_next(t->data, batch, t->sink);
    const int64_t copy = nnc_now_ns();
    t->next_ns = copy - begin;
    for (int i = 0; i < t->n_in && !s; i++) {
        const int input = trainer_input_of(p, t->in[i].name);
        if (input >= 0)
            s = nnc_session_stage(p->session, input, batch[i], t->sink);
        if (s == NNC_E_MODEL)
            note_row(t, p, input, i, batch[i]);
    }
    t->ahead = s;
    t->staged = true;
    t->staged_at = nnc_now_ns();
    t->times.copy += p == &t->train ? t->staged_at - copy : 0;
}

void trainer_begin(trainer *t, nnc_data_part part, int64_t epoch, int64_t first)
{
    nnc_data_begin(t->data, part, epoch, first);
    t->staged = false;
}

/* Sets the next batch of the data as p's inputs. */
static nnc_status set_batch(trainer *t, program *p)
{
    t->fed = p;
    if (!t->staged)
        stage_batch(t);
    t->staged = false;
    NNC_TRY(t->ahead);
    return nnc_session_take(p->session, t->sink);
}

/* Updates the states; where that is a device's work, the epoch's next batch is uploaded meanwhile. A wait for its data is hidden when the
 * device was still busy afterwards. */
static nnc_status update_all(trainer *t, int k)
{
    enum { BUSY = 50000 }; /* ns: longer than a wait for a device that is done */
    if (trace_wanted(t))
        return trace_run(t, SEC_accumulate, k == t->accumulate - 1 ? SEC_step : SEC_accumulate, k);
    if (is_measured(t, k))
        return nnc_session_shares(
            t->train.session, SEC_accumulate, SEC_step, &t->times.in_update, t->sink);
    if (t->data && (k + 1 < t->accumulate || t->at + 1 < t->per_epoch))
        (void)nnc_session_beside(t->train.session, stage_batch, t);
    NNC_TRY(nnc_session_update(t->train.session, k == t->accumulate - 1, t->sink));
    if (t->staged && nnc_now_ns() - t->staged_at > BUSY)
        t->hidden_ns += t->next_ns;
    return NNC_OK;
}

static nnc_status timed_update(trainer *t, int k)
{
    const int64_t begin = nnc_now_ns(), hidden = t->hidden_ns, copy = t->times.copy;
    NNC_TRY(update_all(t, k));
    t->times.update += nnc_now_ns() - begin;
    t->times.copy = copy; /* what was copied meanwhile took no other time */
    if (t->staged && t->hidden_ns == hidden) /* it was longer than the update: a wait */
        t->times.update -= t->next_ns;
    return NNC_OK;
}

/* A number for the dropouts of each micro-batch of run k. */
static nnc_status set_keys(trainer *t, program *p, int k)
{
    const int key = trainer_input_of(p, NNC_TRAIN_KEY);
    const uint64_t run = (uint64_t)(t->step * t->accumulate + k),
                   seed = nnc_rng_key("dropout", t->o->seed);
    if (key < 0)
        return NNC_OK;
    NNC_FREED uint32_t *now = nnc_malloc((size_t)t->micro * sizeof *now);
    NNC_NEED(now, t->sink);
    for (int i = 0; i < t->micro; i++)
        now[i] = nnc_rng_u32(seed, run * (uint64_t)t->micro + (uint64_t)i);
    return nnc_session_input(p->session, key, now, t->sink);
}

/* Sets the inputs that depend on the step, such as the learning rate, for batch k of step t->step + 1. */
static nnc_status set_step(trainer *t, program *p, int k)
{
    const nnc_training *of = &t->o->training;
    const double n = (double)(t->updates + 1);
    const int first = trainer_input_of(p, NNC_TRAIN_FIRST);
    const bool is_first = k == 0;
    NNC_TRY(set_keys(t, p, k));
    if (first >= 0)
        NNC_TRY(nnc_session_input(p->session, first, &is_first, t->sink));
    NNC_TRY(set_number(t, p, NNC_TRAIN_LR, trainer_rate(t)));
    NNC_TRY(set_number(t, p, NNC_TRAIN_SCALE1, 1 / (1 - pow(of->beta1, n))));
    return set_number(t, p, NNC_TRAIN_SCALE2, 1 / sqrt(1 - pow(of->beta2, n)));
}

static nnc_status run_main(trainer *t, program *p, int k)
{
    if (p == &t->train && trace_wanted(t))
        return trace_run(t, SEC_main, SEC_main, k);
    if (p != &t->train || !is_measured(t, k))
        return nnc_session_run(p->session, t->sink);
    return nnc_session_shares(p->session, SEC_main, SEC_main, &t->times.in_main, t->sink);
}

nnc_status trainer_forward(trainer *t, program *p, int k, double *loss)
{
    const int64_t set = nnc_now_ns();
    NNC_TRY(set_step(t, p, k));
    const int64_t begin = nnc_now_ns();
    NNC_TRY(run_main(t, p, k));
    const int64_t end = nnc_now_ns();
    NNC_TRY(read_outputs(t, p));
    *loss = 0;
    for (int i = 0; i < t->micro; i++)
        *loss += (double)p->loss_of[i] / t->micro;
    if (p == &t->train) {
        t->times.forward += end - begin;
        t->times.copy += begin - set + nnc_now_ns() - end;
    }
    return NNC_OK;
}

nnc_status trainer_run(trainer *t, program *p, int k, double *loss)
{
    NNC_TRY(set_batch(t, p));
    return trainer_forward(t, p, k, loss);
}

/* Adds those of the last run to the epoch's. */
static void add_results(const trainer *t, program *p)
{
    for (int i = 0; i < t->micro; i++) {
        const double counted = (double)p->counted_of[i], loss = (double)p->loss_of[i];
        const double n = isnan(counted) ? (double)t->targets / t->micro : counted;
        p->correct += (double)p->correct_of[i];
        p->counted += n;
        p->loss += p == &t->eval ? loss * n : loss; /* its last batch may have fewer */
        p->batches++;
    }
}

nnc_status trainer_update(trainer *t, int k)
{
    NNC_TRY(timed_update(t, k));
    add_results(t, &t->train);
    return NNC_OK;
}

void trainer_count(trainer *t, bool skipped)
{
    t->skipped += skipped;
    t->updates += !skipped;
    t->step++;
    t->at++;
    t->dirty = true;
}

/* Takes a step of the next batches. The updates follow only when the loss is known to be finite: otherwise the states are as before. */
static nnc_status take_step(trainer *t)
{
    double loss = 0;
    bool skipped = false;
    const double rate = trainer_rate(t);
    const int64_t begin = nnc_now_ns();
    NNC_TRY(skip_begin(t));
    for (int k = 0; k < t->accumulate && !skipped; k++) {
        double part;
        NNC_TRY(trainer_run(t, &t->train, k, &part));
        for (int i = 0; i < t->micro; i++)
            loss += (double)t->train.loss_of[i] / (t->accumulate * t->micro);
        if (!isfinite(part) && t->o->on_nan == NNC_NAN_stop) {
            NNC_TRY(report_step(t, part, rate, nnc_now_ns() - begin));
            return nan_report(t, part, k);
        }
        skipped = !isfinite(part);
        NNC_TRY(skipped ? skip_step(t, k) : trainer_update(t, k));
    }
    NNC_TRY(report_step(t, loss, rate, nnc_now_ns() - begin));
    trainer_count(t, skipped);
    return NNC_OK;
}

static nnc_status validate(trainer *t)
{
    double loss;
    t->eval.loss = t->eval.correct = t->eval.counted = 0;
    t->eval.batches = 0;
    if (!t->eval.session)
        return NNC_OK;
    trainer_begin(t, NNC_DATA_validation, 0, 0);
    for (int64_t i = nnc_data_batches(t->data, NNC_DATA_validation); i > 0; i--) {
        NNC_TRY(trainer_run(t, &t->eval, 0, &loss));
        add_results(t, &t->eval);
    }
    return NNC_OK;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------------------- */

/* What is written is finite. */
static nnc_status checkpoint(trainer *t)
{
    t->dirty = false;
    if (!t->o->checkpoint)
        return NNC_OK;
    NNC_TRY(nan_check(t));
    return checkpoint_write(t);
}

/* The steps of the epoch that are not done. */
static nnc_status train_rest(trainer *t)
{
    const int every = t->o->checkpoint_every;
    if (t->at < t->per_epoch)
        trainer_begin(t, NNC_DATA_train, t->epoch, t->at * t->accumulate);
    while (t->at < t->per_epoch && t->step < t->steps && !t->stopped) {
        NNC_TRY(take_step(t));
        const bool asked = (t->o->stop && *t->o->stop) || nnc_env_stops(t->e);
        t->stopped = asked && t->step < t->steps;
        if (!t->stopped && !(every && t->step % every == 0))
            continue;
        const int64_t begin = nnc_now_ns();
        NNC_TRY(checkpoint(t));
        t->times.checkpoint += nnc_now_ns() - begin;
    }
    return NNC_OK;
}

static nnc_status train_epoch(trainer *t)
{
    const int64_t begin = nnc_now_ns(), first = t->at;
    t->epoch_step = t->step;
    t->times = (step_times){0};
    t->skipped = t->hidden_ns = 0;
    (void)nnc_data_take_times(t->data); /* of the batch that a checkpoint describes the data by */
    if (t->at == 0) {
        t->train.loss = t->train.correct = t->train.counted = 0;
        t->train.batches = 0;
    }
    NNC_TRY(train_rest(t));
    const int64_t ns = nnc_now_ns() - begin;
    nnc_data_times load = nnc_data_take_times(t->data);
    load.wait_ns = nnc_max64(load.wait_ns - t->hidden_ns, 0);
    if (t->stopped)
        return NNC_OK;
    if (t->o->on_nan == NNC_NAN_stop)
        NNC_TRY(nan_check(t));
    NNC_TRY(validate(t));
    NNC_TRY(save_epoch(t));
    (void)nnc_data_take_times(t->data); /* of the validation */
    NNC_TRY(report_epoch(t, first, ns, load));
    t->told = t->step;
    t->dirty = true;
    if (t->at < t->per_epoch)
        return NNC_OK;
    t->epoch++;
    t->at = 0;
    return t->o->checkpoint_every ? NNC_OK : checkpoint(t);
}

static nnc_status open_data(trainer *t)
{
    const nnc_type *y = nnc_typeof(t->model, t->model->output[0]);
    nnc_data_options o = t->o->data;
    o.seed = t->o->seed;
    const bool classes = t->o->training.loss == NNC_LOSS_cross_entropy;
    NNC_TRY(nnc_data_open(&o, t->n_in, t->in,
        classes ? y->dim[nnc_class_axis(&t->o->training, y->rank)] : 0, &t->data, t->sink));
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

/* ---- begin and end ----------------------------------------------------------------------------------------------------------- */

nnc_status trainer_check_file(const char *file, const char *what, nnc_sink *sink)
{
    if (!nnc_tensors_named(file))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = file},
            "%s by name: name a file .npz or .safetensors", what);
    return nnc_file_can_write(file, sink);
}

/* Reports files that cannot be written before the first step, not after the last. */
static nnc_status check_files(const trainer *t)
{
    const nnc_train_options *o = t->o;
    if (o->training.grad_inputs)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--grad-inputs: nnc train does not write gradients with respect to inputs; nnc run "
            "--mode=step --output NAME.gradient=FILE does, and nnc_trainer_gradient in C");
    if (o->save)
        NNC_TRY(trainer_check_file(o->save, "weights are saved", t->sink));
    if (o->checkpoint)
        NNC_TRY(trainer_check_file(o->checkpoint, "states are saved", t->sink));
    if (o->keep != NNC_KEEP_last && !o->save)
        return nnc_fail0(t->sink, NNC_E_USAGE, "--keep is of the weights that --save=FILE names");
    if (!o->checkpoint && (o->resume || o->checkpoint_every))
        return nnc_fail0(t->sink, NNC_E_USAGE, "%s needs --checkpoint=FILE",
            o->resume ? "--resume" : "--checkpoint-every");
    if (o->checkpoint && !o->resume && nnc_file_exists(o->checkpoint))
        return nnc_fail(t->sink, NNC_E_USAGE, (nnc_loc){.file = o->checkpoint},
            "there is a checkpoint already: --resume continues it; remove it to begin again");
    return o->log ? nnc_file_can_write(o->log, t->sink) : NNC_OK;
}

static nnc_status open_all(trainer *t)
{
    NNC_TRY(check_files(t));
    NNC_TRY(trainer_open(t));
    NNC_TRY(open_data(t));
    NNC_TRY(trainer_compile(t));
    if (nnc_data_samples(t->data, NNC_DATA_validation))
        return trainer_open_evaluation(t);
    if (t->o->keep == NNC_KEEP_best)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--keep=best is by the validation: give --validation=SHARE or --validation-data");
    return NNC_OK;
}

/* The best weights so far are in a file that this run has not written. */
static nnc_status check_best(const trainer *t)
{
    if (!t->best_epoch || t->o->keep != NNC_KEEP_best || nnc_file_exists(t->o->save))
        return NNC_OK;
    return nnc_fail(t->sink, NNC_E_USAGE, (nnc_loc){.file = t->o->save},
        "does not exist: it would have the best weights so far, those of epoch %lld; give the same "
        "--save",
        (long long)t->best_epoch);
}

/* Continues from the checkpoint, where there is one. */
static nnc_status begin(trainer *t)
{
    int64_t log = -1;
    t->epoch = 1;
    if (t->o->checkpoint) {
        NNC_TRY(checkpoint_check(t));
        NNC_TRY(checkpoint_options(t));
    }
    if (t->o->resume && nnc_file_exists(t->o->checkpoint)) {
        NNC_TRY(checkpoint_read(t, &log));
        NNC_TRY(check_best(t));
    } else if (t->o->resume) {
        nnc_note(t->sink, (nnc_loc){.file = t->o->checkpoint},
            "there is no checkpoint yet: training begins with step 1");
    }
    NNC_TRY(report_open(t, log));
    return save_begin(t);
}

static nnc_status run_training(trainer *t)
{
    NNC_TRY(open_all(t));
    nnc_env_watch(t->e, t->o->stop);
    if (nnc_env_rank(t->e) > 0)
        return nnc_env_follow(t->e, t->sink);
    NNC_TRY(begin(t));
    if (t->o->ready)
        t->o->ready(t->o->ctx, t->sink);
    report_begin(t);
    t->json = (nnc_json_writer){.out = t->out, .csv = t->format == NNC_CSV};
    if (t->format == NNC_JSON)
        nnc_json_open(&t->json, NULL, '[');
    while (t->epoch <= t->o->epochs && !t->stopped && (t->step < t->steps || t->told < t->step))
        NNC_TRY(train_epoch(t));
    if (t->format == NNC_JSON)
        nnc_json_end(&t->json, ']');
    NNC_TRY(nan_check(t)); /* the last update may have left weights that no later loss has shown */
    if (t->dirty)
        NNC_TRY(checkpoint(t));
    if (t->o->save && !t->stopped && t->o->keep != NNC_KEEP_best)
        NNC_TRY(save_weights(t));
    report_end(t);
    return NNC_OK;
}

nnc_status nnc_train(nnc_env *e, const nnc_model *m, const nnc_train_options *o, nnc_format f,
    nnc_text *out, nnc_sink *sink)
{
    nnc_train_options own = *o;
    trainer t = {.e = e, .o = &own, .model = m, .out = out, .format = f, .sink = sink};
    nnc_status s = trainer_set(&t, &own);
    s = s ? s : run_training(&t);
    if (t.log && fclose(t.log) && !s)
        s = nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = o->log}, "cannot write");
    trace_end(&t);
    nnc_data_close(t.data);
    trainer_deinit(&t);
    return s;
}
