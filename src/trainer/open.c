/* trainer/open.c -- opens a training: the graphs of its step and of evaluation, shared among the devices, compiled like all others. For
 * nnc train and for the trainers of nnc.h. */
#include "report/report.h"
#include "session/session.h"
#include "session/train.h"
#include "strategy/strategy.h"
#include "trainer/state.h"

#include <string.h>

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

/* with: the session whose states it has; NULL: of its own */
static nnc_status open_program(trainer *t, program *p, nnc_session *with)
{
    if (t->o->progress)
        t->o->progress(t->o->ctx, "compiling", with ? "validation" : "training step");
    NNC_TRY(nnc_compile(t->e, p->graph, &t->o->compile, &p->artifact, t->sink));
    if (!with)
        NNC_TRY(nnc_check_room(t->e, p->artifact, nnc_batches_bytes(p->artifact->plan), t->sink));
    return nnc_session_create_with(t->e, p->artifact, with, &p->session, t->sink);
}

void trainer_close(program *p)
{
    nnc_session_destroy(p->session);
    nnc_artifact_destroy(p->artifact);
    nnc_model_close(p->graph);
    nnc_free(p->loss_of);
}

/* ---- inputs ---------------------------------------------------------------------------------------------------------------- */

/* The target in rows of a batch for validation that have no sample. */
static int pad_of(const trainer *t)
{
    const int ignored = t->o->training.ignore_index;
    return ignored == NNC_IGNORE_none ? NNC_IGNORE_none + 1 : ignored;
}

/* The inputs that data are read for: those of the model, and the target. */
static nnc_status find_inputs(trainer *t)
{
    static const char *const others[] = {
        NNC_TRAIN_LR, NNC_TRAIN_SCALE1, NNC_TRAIN_SCALE2, NNC_TRAIN_FIRST, NNC_TRAIN_KEY};
    const nnc_graph *g = t->train.graph;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const char *name = g->value[g->node[i].out].name;
        bool own = g->node[i].op != OP_input;
        for (size_t k = 0; k < NNC_COUNT(others) && !own; k++)
            own = !strcmp(name, others[k]);
        if (own)
            continue;
        const nnc_type type = *nnc_typeof(g, g->node[i].out);
        if (t->n_in == (int)NNC_COUNT(t->in) || !type.rank)
            return nnc_fail0(t->sink, NNC_E_MODEL,
                "training takes models of at most %d inputs, each with a first dimension for the "
                "samples of a batch",
                (int)NNC_COUNT(t->in) - 1);
        const bool target = !strcmp(name, NNC_TRAIN_TARGET);
        const bool classes = target && t->o->training.loss == NNC_LOSS_cross_entropy;
        const int ignored = t->o->training.ignore_index, none = NNC_IGNORE_none;
        t->in[t->n_in++] = (nnc_data_input){name, nnc_type_dense(&type), target,
            ignored == none ? NNC_DATA_none : ignored, classes ? pad_of(t) : NNC_DATA_none};
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

/* ---- devices --------------------------------------------------------------------------------------------------------------- */

/* The graph becomes that of all devices and micro-batches. */
static nnc_status share(const trainer *t, nnc_model **g, bool forward)
{
    nnc_graph *all = NULL;
    NNC_TRY(nnc_strategy_graph(*g, &t->sharing, forward, &all, t->sink));
    if (!all)
        return NNC_OK;
    nnc_model_close(*g);
    *g = all;
    return NNC_OK;
}

static void warn_strategy(const trainer *t)
{
    if (t->o->strategy != NNC_STRATEGY_layers && t->o->compile.devices < 2)
        nnc_warn(t->sink, (nnc_loc){0},
            "--strategy=%s has no effect: it belongs to --devices=N of 2 or more",
            nnc_strategy_names[t->o->strategy]);
}

/* How the devices share the step. A pipeline's micro-batches are those that the step takes. */
static nnc_status find_sharing(trainer *t, nnc_train_options *own)
{
    const bool pipeline = nnc_is_pipeline(own->strategy) && own->compile.devices > 1;
    const int batches = own->training.accumulate > 1 ? own->training.accumulate : 1;
    t->micro = own->micro ? own->micro : pipeline ? batches : 1;
    t->accumulate = own->micro || !pipeline ? batches : 1;
    if (pipeline && t->micro < 2)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--strategy=%s works on several micro-batches: give --micro-batches=M, a multiple of "
            "the "
            "devices at best, for the results of --accumulate=M",
            nnc_strategy_names[own->strategy]);
    if (own->chunks && own->strategy != NNC_STRATEGY_interleaved)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--chunks=%d are stages of a device in the interleaved schedule: it needs "
            "--strategy=interleaved",
            own->chunks);
    const bool splits = nnc_is_split(own->strategy);
    if (splits && own->micro > 1)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--strategy=%s splits the ops of one batch: leave --micro-batches=%d out "
            "(--accumulate=N takes several batches, --replicas=R as many side by side)",
            nnc_strategy_names[own->strategy], own->micro);
    if (nnc_mul_sat(t->micro, t->accumulate) > 1000000)
        return nnc_fail0(t->sink, NNC_E_USAGE, "a step of more than 1000000 batches");
    const int replicas = own->strategy == NNC_STRATEGY_data ? own->compile.devices
                         : own->replicas                    ? own->replicas
                                                            : 1;
    if (own->replicas > 1 &&
        (own->strategy == NNC_STRATEGY_data || own->compile.devices % replicas))
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--replicas=%d are on equal parts of the devices: --devices=N is a multiple of it, and "
            "--strategy not data, which has a replica on each device",
            own->replicas);
    if (splits && own->replicas > 1 && own->replicas == own->compile.devices)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--replicas=%d of %d devices leave one to each, where --strategy=%s has nothing to "
            "split: give more devices, or --strategy=data",
            replicas, own->compile.devices, nnc_strategy_names[own->strategy]);
    if (own->zero && replicas < 2)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--zero=%d divides the optimizer's states%s among replicas: it needs --devices=N of 2 "
            "or "
            "more with --strategy=data, or --replicas=R",
            own->zero, own->zero > 1 ? " and sums of gradients" : "");
    if (own->bucket_mb > 0 && replicas < 2)
        return nnc_fail0(t->sink, NNC_E_USAGE,
            "--bucket-mb is of gradients that replicas sum: it needs --devices=N of 2 or more with "
            "--strategy=data, or --replicas=R");
    own->training.shards = own->zero ? replicas : 0;
    own->training.accumulate = t->micro * t->accumulate;
    t->sharing =
        (nnc_sharing){.strategy = pipeline || !nnc_is_pipeline(own->strategy) ? own->strategy
                                                                              : NNC_STRATEGY_layers,
            .devices = own->compile.devices,
            .replicas = replicas,
            .micro = t->micro,
            .batches = t->accumulate,
            .chunks = own->chunks ? own->chunks : 2,
            .bucket_bytes = (int64_t)(own->bucket_mb * 1e6),
            .zero = own->zero};
    return NNC_OK;
}

/* The stages of a pipeline, where neither the model file nor --place says them. */
static nnc_status find_stages(trainer *t)
{
    if (!nnc_is_pipeline(t->sharing.strategy) || nnc_is_placed(t->model))
        return NNC_OK;
    return nnc_strategy_place(
        t->e, t->model, &t->o->training, &t->o->compile, &t->sharing, &t->placed, t->sink);
}

/* ---- begin and end ----------------------------------------------------------------------------------------------------------- */

nnc_status trainer_set(trainer *t, nnc_train_options *own)
{
    if (own->compile.precision == NNC_PRECISION_f16 && own->training.loss_scale == 0)
        own->training.loss_scale = 65536; /* gradients below 2^-24 would be 0 */
    return find_sharing(t, own);
}

nnc_status trainer_open(trainer *t)
{
    nnc_training step = t->o->training;
    nnc_compile_options with;
    const nnc_training *of = &step;
    nnc_train_split(t->o, &with, &step);
    warn_strategy(t);
    NNC_TRY(nnc_rate_check(&t->o->rate, t->sink));
    NNC_TRY(find_stages(t));
    NNC_TRY(nnc_train_graph(t->placed ? t->placed : t->model, of, &t->train.graph, t->sink));
    NNC_TRY(share(t, &t->train.graph, false));
    return find_inputs(t);
}

nnc_status trainer_compile(trainer *t)
{
    return open_program(t, &t->train, NULL);
}

nnc_status trainer_open_evaluation(trainer *t)
{
    nnc_training eval = t->o->training;
    nnc_compile_options with;
    nnc_train_split(t->o, &with, &eval);
    if (eval.loss == NNC_LOSS_cross_entropy)
        eval.ignore_index = pad_of(t);
    NNC_TRY(nnc_evaluation_graph(t->placed ? t->placed : t->model, &eval, &t->eval.graph, t->sink));
    NNC_TRY(share(t, &t->eval.graph, true));
    NNC_TRY(open_program(t, &t->eval, t->train.session));
    return nnc_split_check(t->train.session, t->eval.session, t->sink);
}

void trainer_deinit(trainer *t)
{
    trainer_close(&t->eval);
    trainer_close(&t->train);
    nnc_model_close(t->placed);
    nnc_text_deinit(&t->options);
    nnc_text_deinit(&t->save_as);
    save_release(t);
    skip_end(t);
}
