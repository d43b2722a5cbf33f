/* trainer/step.c -- the trainers of nnc.h: the steps of nnc train, on batches that the caller has. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/state.h"

#include <math.h>
#include <string.h>

struct nnc_trainer {
    trainer t;
    nnc_train_options *own; /* t.o */
    nnc_model *model; /* t.model */
    int k; /* batches of the step so far */
    bool stepped; /* a batch was given to nnc_trainer_step */
    int64_t skipped; /* steps */
    double loss, correct; /* of the last batch */
};

/* ---- begin and end ------------------------------------------------------------------------------------------------------------ */

/* Does the text count epochs: "30", not "500steps"? */
static bool counts_epochs(const char *text)
{
    return text && !strstr(text, "steps");
}

/* A schedule that follows the length of the training needs to know it. */
static nnc_status check_length(const nnc_train_options *o, nnc_sink *sink)
{
    bool epochs = counts_epochs(o->rate.every);
    for (int i = 0; i < o->rate.n_at; i++)
        epochs = epochs || counts_epochs(o->rate.at[i]);
    if (o->rate.schedule == NNC_LR_cosine && !o->steps)
        return nnc_fail0(sink, NNC_E_USAGE,
            "schedule=cosine ends with the training: set steps=N, the number of its steps");
    if (epochs && !o->per_epoch)
        return nnc_fail0(sink, NNC_E_USAGE,
            "decay-every and decay-at count epochs: set steps-per-epoch=N, or give them in steps "
            "(500steps)");
    return NNC_OK;
}

static nnc_status open_trainer(nnc_trainer *x, nnc_env *e, const nnc_model *m)
{
    trainer *t = &x->t;
    if (nnc_env_world(e) > 1)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "a trainer is of one process; several train together with mpirun -n N nnc train");
    x->model = nnc_graph_clone(m, t->sink);
    NNC_NEED(x->model, t->sink);
    t->model = x->model;
    t->o = x->own;
    t->e = e;
    NNC_TRY(nnc_train_options_read(x->model, x->own, t->sink));
    NNC_TRY(check_length(x->own, t->sink));
    NNC_TRY(trainer_set(t, x->own));
    t->per_epoch = x->own->per_epoch ? x->own->per_epoch : INT64_MAX;
    t->steps = x->own->steps ? x->own->steps : INT64_MAX;
    t->epoch = 1;
    NNC_TRY(trainer_open(t));
    NNC_TRY(trainer_compile(t));
    return checkpoint_options(t);
}

nnc_status nnc_trainer_create(
    nnc_env *e, const nnc_model *m, const nnc_train_options *o, nnc_trainer **out, nnc_sink *sink)
{
    nnc_trainer *x = nnc_calloc(1, sizeof *x);
    *out = NULL;
    NNC_NEED(x, sink);
    x->t.sink = sink;
    x->loss = x->correct = NAN;
    x->own = nnc_train_options_copy(o);
    const nnc_status s = x->own ? open_trainer(x, e, m) : nnc_nomem(sink);
    if (s)
        nnc_trainer_destroy(x);
    else
        *out = x;
    return s;
}

void nnc_trainer_destroy(nnc_trainer *x)
{
    if (!x)
        return;
    trainer_deinit(&x->t);
    nnc_model_close(x->model);
    nnc_train_options_destroy(x->own);
    nnc_free(x);
}

/* ---- batches ------------------------------------------------------------------------------------------------------------------ */

int nnc_trainer_inputs(const nnc_trainer *x)
{
    return x->t.n_in;
}

const char *nnc_trainer_input_name(const nnc_trainer *x, int i)
{
    return i >= 0 && i < x->t.n_in ? x->t.in[i].name : NULL;
}

const nnc_type *nnc_trainer_input_type(const nnc_trainer *x, int i)
{
    return i >= 0 && i < x->t.n_in ? &x->t.in[i].type : NULL;
}

/* Targets that are class indices name classes that the prediction has. */
static nnc_status check_classes(const trainer *t, const nnc_data_input *in, const void *data)
{
    const nnc_type *y = nnc_typeof(t->model, t->model->output[0]);
    const int64_t n = nnc_type_numel(&in->type), rows = in->type.dim[0];
    if (t->o->training.loss != NNC_LOSS_cross_entropy || !in->target)
        return NNC_OK;
    const int64_t classes = y->dim[nnc_class_axis(&t->o->training, y->rank)];
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = nnc_get_i64((nnc_dtype)in->type.dtype, data, i);
        const bool ignored =
            t->o->training.ignore_index != NNC_IGNORE_none && v == t->o->training.ignore_index;
        if ((v < 0 || v >= classes) && !ignored)
            return nnc_fail0(t->sink, NNC_E_MODEL,
                "target has class %lld in sample %lld of the batch; the model predicts classes 0 "
                "to %lld",
                (long long)v, (long long)(i / (n / rows)), (long long)classes - 1);
    }
    return NNC_OK;
}

static nnc_status give(trainer *t, program *p, const void *const *batch)
{
    for (int i = 0; i < t->n_in; i++)
        NNC_TRY(check_classes(t, &t->in[i], batch[i]));
    for (int i = 0; i < t->n_in; i++) {
        const int input = trainer_input_of(p, t->in[i].name);
        if (input >= 0)
            NNC_TRY(nnc_session_input(p->session, input, batch[i], t->sink));
    }
    return NNC_OK;
}

/* The loss of the batch, and how many of its predictions are right. */
static void keep_results(nnc_trainer *x, const program *p, double loss)
{
    x->loss = loss;
    x->correct = 0;
    for (int i = 0; i < x->t.micro; i++)
        x->correct += (double)p->correct_of[i];
}

static void count_step(nnc_trainer *x, bool skipped)
{
    trainer *t = &x->t;
    x->k = 0;
    x->skipped += skipped;
    trainer_count(t, skipped);
    if (t->at >= t->per_epoch) {
        t->epoch++;
        t->at = 0;
    }
}

nnc_status nnc_trainer_step(nnc_trainer *x, const void *const *batch, nnc_sink *sink)
{
    trainer *t = &x->t;
    double loss;
    t->sink = sink;
    if (x->k == 0)
        NNC_TRY(skip_begin(t));
    NNC_TRY(give(t, &t->train, batch));
    NNC_TRY(trainer_forward(t, &t->train, x->k, &loss));
    x->stepped = true;
    keep_results(x, &t->train, loss);
    if (!isfinite(loss) && x->own->on_nan == NNC_NAN_stop) {
        x->k = 0;
        return nnc_fail0(sink, NNC_E_DIFFERS,
            "step %lld: the loss is %g, and the weights are as before: a smaller lr or clip-norm "
            "may "
            "help; on-nan=skip leaves such steps out",
            (long long)t->step + 1, loss);
    }
    if (!isfinite(loss)) {
        NNC_TRY(skip_step(t, x->k));
        count_step(x, true);
        return NNC_OK;
    }
    NNC_TRY(trainer_update(t, x->k));
    if (++x->k == t->accumulate)
        count_step(x, false);
    return NNC_OK;
}

nnc_status nnc_trainer_evaluate(nnc_trainer *x, const void *const *batch, nnc_sink *sink)
{
    trainer *t = &x->t;
    double loss;
    t->sink = sink;
    if (!t->eval.session)
        NNC_TRY(trainer_open_evaluation(t));
    NNC_TRY(give(t, &t->eval, batch));
    NNC_TRY(trainer_forward(t, &t->eval, 0, &loss));
    keep_results(x, &t->eval, loss);
    return NNC_OK;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------------ */

double nnc_trainer_loss(const nnc_trainer *x)
{
    return x->loss;
}

static int gradient_output(const nnc_session *s, const char *input)
{
    const size_t n = strlen(input);
    for (int i = 0; i < nnc_session_outputs(s); i++) {
        const char *name = nnc_session_output_name(s, i);
        if (!strncmp(name, input, n) && !strcmp(name + n, NNC_TRAIN_GRADIENT))
            return i;
    }
    return -1;
}

nnc_status nnc_trainer_gradient(const nnc_trainer *x, int i, void *data, nnc_sink *sink)
{
    const char *name = nnc_trainer_input_name(x, i);
    const int output = name ? gradient_output(x->t.train.session, name) : -1;
    if (!name)
        return nnc_fail0(sink, NNC_E_USAGE, "a batch has inputs 0 to %d, not %d", x->t.n_in - 1, i);
    if (output < 0)
        return nnc_fail0(sink, NNC_E_USAGE, "there is no gradient with respect to %s%s", name,
            x->own->training.grad_inputs ? ", which is no model's input of floats"
                                         : ": create the trainer with the option grad-inputs");
    if (!x->stepped)
        return nnc_fail0(sink, NNC_E_USAGE,
            "there is no gradient with respect to %s before the first step", name);
    return nnc_session_output(x->t.train.session, output, data, sink);
}

double nnc_trainer_correct(const nnc_trainer *x)
{
    return x->correct;
}

int64_t nnc_trainer_steps(const nnc_trainer *x)
{
    return x->t.step;
}

int64_t nnc_trainer_skipped(const nnc_trainer *x)
{
    return x->skipped;
}

double nnc_trainer_rate(const nnc_trainer *x)
{
    return trainer_rate(&x->t);
}

nnc_status nnc_trainer_set_rate(nnc_trainer *x, double rate, nnc_sink *sink)
{
    if (!(rate >= 0) || !isfinite(rate))
        return nnc_fail0(
            sink, NNC_E_USAGE, "a learning rate is a number of at least 0, found %g", rate);
    x->own->rate = (nnc_rate){.lr = rate};
    return NNC_OK;
}

/* ---- files -------------------------------------------------------------------------------------------------------------------- */

nnc_status nnc_trainer_save(nnc_trainer *x, const char *file, nnc_sink *sink)
{
    x->t.sink = sink;
    NNC_TRY(trainer_check_file(file, "weights are saved", sink));
    return nnc_session_write_weights(x->t.train.session, x->model, file, sink);
}

nnc_status nnc_trainer_write_checkpoint(nnc_trainer *x, const char *file, nnc_sink *sink)
{
    trainer *t = &x->t;
    t->sink = sink;
    NNC_TRY(trainer_check_file(file, "states are saved", sink));
    if (x->k)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = file},
            "a checkpoint is of whole steps: batch %d of %d of step %lld was the last one", x->k,
            t->accumulate, (long long)t->step + 1);
    x->own->checkpoint = file;
    t->checkpoint =
        nnc_file_version(file); /* the caller may write any file, one that exists, too */
    nnc_status s = nan_check(t);
    s = s ? s : checkpoint_write(t);
    x->own->checkpoint = NULL;
    return s;
}

nnc_status nnc_trainer_read_checkpoint(nnc_trainer *x, const char *file, nnc_sink *sink)
{
    int64_t log;
    x->t.sink = sink;
    x->own->checkpoint = file;
    const nnc_status s = checkpoint_read(&x->t, &log);
    x->own->checkpoint = NULL;
    x->k = 0;
    return s;
}
