/* session/train_settings.c -- the settings of training: flags of the program and keys of a model file's section "train", in one table.
 *
 * A row makes both: "--weight-decay" is the key "weight_decay"; a switch "--no-shuffle" the key "shuffle", true or false. To add a
 * setting: a field of nnc_train_options (or of nnc_training, where the graph of a step depends on it: then --mode=step has it too) and a
 * row. Groups: k, the graph of a step; l, the loop; u, files and threads of the loop, which are flags only; F, keys only. Settings of k and
 * l are stored in checkpoints, and must be equal when training is resumed. */
#include "session/train.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

#define AT(f) offsetof(nnc_train_options, f)
const nnc_flag nnc_train_settings[] = {
    {FLAGS_loop, {"--data", NNC_SET_FILE, AT(data.path), 0, 0, 0, "PATH"},
        "Samples, a file or folder: .npz or .safetensors with a tensor for each input and the "
        "target, .npy of the only input; CIFAR-10 or CIFAR-100 (binary); idx (MNIST); a folder of "
        "JPEG and PNG files for each class"},
    {FLAGS_loop, {"--labels", NNC_SET_FILE, AT(data.labels), 0, 0, 0, "FILE"},
        "Read the target from this file instead: class indices, or numbers (default: in --data; of "
        "idx: the file named after --data)"},
    {FLAGS_loop, {"--validation-data", NNC_SET_FILE, AT(data.validation_path), 0, 0, 0, "PATH"},
        "Samples for validation, instead of a share of --data"},
    {FLAGS_loop, {"--validation-labels", NNC_SET_FILE, AT(data.validation_labels), 0, 0, 0, "FILE"},
        "Their target, as --labels"},
    {FLAGS_loop, {"--resize", NNC_SET_TEXT, AT(data.resize), 0, 0, 0, "SIZE|HxW"},
        "Resize pictures: the shorter side to SIZE, or height and width (bilinear, antialiased)"},
    {FLAGS_loop,
        {"--crop", NNC_SET_CHOICE, AT(data.crop), 0, NNC_CROP_none, 0, "none|centre|random"},
        "Crop pictures to the model's height and width; random: at the centre where it is "
        "validation (default: none)"},
    {FLAGS_loop, {"--pad", NNC_SET_INT, AT(data.pad), 0, 0, 4096, "N"},
        "Pad pictures with this many zeros on each side before --crop (default: 0)"},
    {FLAGS_loop, {"--flip", NNC_SET_BOOL, AT(data.flip)},
        "Mirror half of the pictures in training, left to right"},
    {FLAGS_loop, {"--rotate", NNC_SET_REAL, AT(data.rotate), 0, 0, 180, "DEGREES"},
        "Rotate pictures in training by a random angle of up to this (default: 0)"},
    {FLAGS_loop, {"--mean", NNC_SET_TEXT, AT(data.mean), 0, 0, 0, "M|M,M,M"},
        "Subtract this from pictures, by channel; 8-bit files have values 0..1 (default: 0)"},
    {FLAGS_loop, {"--std", NNC_SET_TEXT, AT(data.std), 0, 0, 0, "S|S,S,S"},
        "Then divide pictures by this, by channel (default: 1)"},
    {FLAGS_job, {"--loaders", NNC_SET_INT, AT(data.loaders), 0, 0, 1024, "N", true},
        "Threads that read and augment samples ahead of their use (default: a quarter of the "
        "CPUs)"},
    {FLAGS_training,
        {"--loss", NNC_SET_CHOICE, AT(training.loss), 0, NNC_LOSS_cross_entropy, 0,
            "cross_entropy|mse|bce"},
        "Loss function. cross_entropy (default): logits [N,C,...] and class indices; mse: mean "
        "squared error; bce: logits and targets in 0..1"},
    {FLAGS_training,
        {"--label-smoothing", NNC_SET_REAL, AT(training.label_smoothing), 0, 0, 1, "S"},
        "cross_entropy: share of each target that is spread over all classes (default: 0)"},
    {FLAGS_training,
        {"--optimizer", NNC_SET_CHOICE, AT(training.optimizer), 0, NNC_OPT_sgd, 0,
            "sgd|adam|adamw"},
        "Optimizer, as PyTorch defines it (default: sgd)"},
    {FLAGS_loop, {"--lr", NNC_SET_REAL, AT(rate.lr), 0, 0, 0, "RATE"},
        "Learning rate (default: 0.01)"},
    {FLAGS_loop,
        {"--schedule", NNC_SET_CHOICE, AT(rate.schedule), 0, NNC_LR_constant, 0,
            "constant|step|cosine"},
        "Learning rate after the warm-up: constant (default); step: multiplied by --gamma at "
        "intervals; cosine: down to --min-lr"},
    {FLAGS_loop, {"--decay-every", NNC_SET_TEXT, AT(rate.every), 0, 0, 0, "N|Nsteps"},
        "step: multiply the rate by --gamma every N epochs or steps"},
    {FLAGS_loop, {"--decay-at", NNC_SET_LIST, AT(rate.at), AT(rate.n_at), 0, 0, "N|Nsteps,..."},
        "step: multiply the rate by --gamma after these epochs or steps"},
    {FLAGS_loop, {"--gamma", NNC_SET_REAL, AT(rate.gamma), 0, 0, 0, "G"},
        "step: factor of each decay (default: 0.1)"},
    {FLAGS_loop, {"--min-lr", NNC_SET_REAL, AT(rate.min), 0, 0, 0, "RATE"},
        "cosine: final rate (default: 0)"},
    {FLAGS_loop, {"--warmup-steps", NNC_SET_INT, AT(rate.warmup), 0, 0, 1000000000, "N"},
        "Steps in which the learning rate rises to its scheduled value (default: 0)"},
    {FLAGS_training, {"--accumulate", NNC_SET_INT, AT(training.accumulate), 0, 1, 1000000, "N"},
        "Batches per step, whose gradients are averaged (default: 1)"},
    {FLAGS_training, {"--momentum", NNC_SET_REAL, AT(training.momentum), 0, 0, 1, "M"},
        "sgd: momentum (default: 0)"},
    {FLAGS_training, {"--nesterov", NNC_SET_BOOL, AT(training.nesterov)}, "sgd: Nesterov momentum"},
    {FLAGS_training, {"--beta1", NNC_SET_REAL, AT(training.beta1), 0, 0, 1, "B"},
        "adam, adamw: decay rate of the running mean of gradients (default: 0.9)"},
    {FLAGS_training, {"--beta2", NNC_SET_REAL, AT(training.beta2), 0, 0, 1, "B"},
        "adam, adamw: decay rate of the running mean of squared gradients (default: 0.999)"},
    {FLAGS_training, {"--eps", NNC_SET_REAL, AT(training.eps), 0, 0, 0, "E"},
        "adam, adamw: added to the root of the latter (default: 1e-8)"},
    {FLAGS_training, {"--weight-decay", NNC_SET_REAL, AT(training.weight_decay), 0, 0, 0, "D"},
        "sgd, adam: D times the weight is added to its gradient; adamw: decoupled from the "
        "gradient (default: 0)"},
    {FLAGS_training, {"--clip-norm", NNC_SET_REAL, AT(training.clip_norm), 0, 0, 0, "N"},
        "Clip gradients to this global norm (default: no clipping)"},
    {FLAGS_training, {"--class-axis", NNC_SET_INT, AT(training.class_axis), 0, -7, 7, "D"},
        "cross_entropy: dimension of the classes in the prediction; -1, the last one, for [N,T,C] "
        "(default: 1)"},
    {FLAGS_training,
        {"--ignore-index", NNC_SET_INT, AT(training.ignore_index), 0, -1000000000, 1000000000, "N"},
        "cross_entropy: leave targets N out of loss and accuracy, as in --ignore-index=-100 "
        "(default: none)"},
    {FLAGS_training,
        {"--freeze", NNC_SET_LIST, AT(training.freeze), AT(training.n_freeze), 0, 0, "PATTERN,..."},
        "Do not train these weights, by name or layer: features.*, /layers/0/* (in addition to "
        "those that the model freezes)"},
    {FLAGS_training,
        {"--train-only", NNC_SET_LIST, AT(training.only), AT(training.n_only), 0, 0, "PATTERN,..."},
        "Train only these weights; all others are frozen"},
    {FLAGS_training, {"--grad-inputs", NNC_SET_BOOL, AT(training.grad_inputs)},
        "With --mode=step: also compute the gradient of the loss with respect to each float input, "
        "as output NAME.gradient; a model without weights has a step then"},
    {FLAGS_training,
        {"--bn", NNC_SET_CHOICE, AT(training.bn), 0, NNC_BN_auto, 0, "auto|train|eval"},
        "Batch norm. train: use and update the batch's statistics; eval: use the stored ones; auto "
        "(default): by the layer's key bn, otherwise train, but eval in frozen layers"},
    {FLAGS_training, {"--loss-scale", NNC_SET_REAL, AT(training.loss_scale), 0, 0, 0, "S"},
        "Initial loss scale (default: with --precision=f16 65536, otherwise none)"},
    {FLAGS_training,
        {"--scale-growth", NNC_SET_INT, AT(training.scale_growth), 0, 1, 1000000000, "N"},
        "Steps after which the loss scale doubles (default: 2000)"},
    {FLAGS_loop, {"--epochs", NNC_SET_INT, AT(epochs), 0, 1, 1000000000, "N"},
        "Number of passes over the samples (default: 1)"},
    {FLAGS_loop, {"--steps", NNC_SET_INT, AT(steps), 0, 1, 1000000000, "N"},
        "Stop after this many steps (default: no limit)"},
    {FLAGS_loop, {"--validation", NNC_SET_REAL, AT(data.validation), 0, 0, 1, "SHARE"},
        "Share of the samples held out for validation; its loss and accuracy are printed after "
        "each epoch (default: 0)"},
    {FLAGS_loop, {"--no-shuffle", NNC_SET_BOOL, AT(data.no_shuffle)}, "Use samples in file order"},
    {FLAGS_job, {"--save", NNC_SET_FILE, AT(save), 0, 0, 0, "FILE"},
        "Write the weights after the last step: .safetensors or .npz"},
    {FLAGS_job,
        {"--strategy", NNC_SET_CHOICE, AT(strategy), 0, 0, 0, nnc_train_strategies + 1,
            .names = nnc_strategy_names},
        "How the --devices share the training (default: one device for each rank). layers "
        "(default): each layer runs on the device that it names. data: each device has all layers "
        "and a batch of its own; gradients are averaged. tensor, channel, spatial: ops are split "
        "over the devices (docs/partition.md). The others: pipeline schedules of --micro-batches, "
        "with stages cut by --place, the model file or nnc partition"},
    {FLAGS_job, {"--micro-batches", NNC_SET_INT, AT(micro), 0, 1, 4096, "M"},
        "Microbatches per run of the plan, each as large as the model's batch, with the results of "
        "--accumulate=M (default: in a pipeline as --accumulate, otherwise 1)"},
    {FLAGS_loop, {"--replicas", NNC_SET_INT, AT(replicas), 0, 1, 64, "R"},
        "Number of pipelines or device groups side by side, each with an equal part of --devices "
        "and batches of its own; gradients are averaged over all (default: 1)"},
    {FLAGS_job, {"--zero", NNC_SET_INT, AT(zero), 0, 0, NNC_ZERO_MOST, NNC_ZERO_STAGES},
        "ZeRO stage of --strategy=data or --replicas. 1: each replica has a shard of the optimizer "
        "states and updates its shard of the weights, which the others then get. 2: accumulated "
        "gradients are sharded, too (default: 0)"},
    {FLAGS_job, {"--bucket-mb", NNC_SET_REAL, AT(bucket_mb), 0, 0, 1000000, "MB"},
        "Size of the buckets in which replicas sum gradients, in 10^6 bytes (default: the "
        "gradients that one kernel of the optimizer reads)"},
    {FLAGS_job, {"--chunks", NNC_SET_INT, AT(chunks), 0, 2, 64, "N"},
        "interleaved: stages of a device (default: 2)"},
    {FLAGS_job, {"--keep", NNC_SET_CHOICE, AT(keep), 0, NNC_KEEP_last, 0, "last|best|all"},
        "What --save writes. last (default): the weights after the last step; best: those of the "
        "epoch with the best validation accuracy, or least loss; all: also those of each epoch N, "
        "as FILE-N"},
    {FLAGS_job, {"--log", NNC_SET_FILE, AT(log), 0, 0, 0, "FILE"},
        "Write a line of JSON for each step and each epoch to this file"},
    {FLAGS_job, {"--checkpoint", NNC_SET_FILE, AT(checkpoint), 0, 0, 0, "FILE"},
        "Write weights, optimizer states and position to this file after each epoch and on "
        "interruption: .safetensors or .npz"},
    {FLAGS_job, {"--checkpoint-every", NNC_SET_INT, AT(checkpoint_every), 0, 1, 1000000000, "N"},
        "Write the checkpoint every N steps instead (default: after each epoch)"},
    {FLAGS_job, {"--resume", NNC_SET_BOOL, AT(resume)},
        "Continue from the --checkpoint file, if it exists, as if training had not stopped"},
    {FLAGS_loop, {"--on-nan", NNC_SET_CHOICE, AT(on_nan), 0, NNC_NAN_stop, 0, "stop|skip"},
        "When the loss is NaN or infinite: stop (default) and report where it arose, or skip the "
        "update"},
    {FLAGS_file, {"--batch", NNC_SET_INT, AT(batch), 0, 1, 1000000000}, "The model's arg `batch`"},
    {FLAGS_file, {"--seed", NNC_SET_SEED, AT(seed)}, "As --seed"},
};
const size_t nnc_n_train_settings = NNC_COUNT(nnc_train_settings);
_Static_assert(NNC_COUNT(nnc_train_settings) <= NNC_TRAIN_SETTINGS, "nnc_train_options.given");

/* ---- the section of a model file ----------------------------------------------------------------------------------------- */

bool nnc_train_key(const nnc_flag *f, char key[NNC_TRAIN_KEY_SIZE])
{
    const char *name = f->value.name + 2;
    const bool inverted = !strncmp(name, "no-", 3);
    snprintf(key, NNC_TRAIN_KEY_SIZE, "%s", name + (inverted ? 3 : 0));
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    return inverted;
}

/* Names of other frameworks. */
static const char *const elsewhere[][2] = {{"learning_rate", "lr"}, {"batch_size", "batch"},
    {"num_epochs", "epochs"}, {"max_epochs", "epochs"}, {"max_steps", "steps"},
    {"criterion", "loss"}, {"lr_scheduler", "schedule"}, {"scheduler", "schedule"},
    {"warmup", "warmup_steps"}, {"clip_grad_norm", "clip_norm"}, {"gradient_clip_val", "clip_norm"},
    {"betas", "beta1"}, {"random_seed", "seed"}, {"dataset", "data"},
    {"validation_split", "validation"}};

const char *nnc_train_calls(const char *name)
{
    char key[NNC_TRAIN_KEY_SIZE];
    const size_t n = strcspn(name, "="), skip = strspn(name, "-");
    snprintf(key, sizeof key, "%.*s", (int)(n - (skip < n ? skip : n)), name + skip);
    for (char *p = key; *p; p++)
        *p = *p == '-' ? '_' : *p;
    for (size_t i = 0; i < NNC_COUNT(elsewhere); i++)
        if (!strcmp(key, elsewhere[i][0]))
            return elsewhere[i][1];
    return NULL;
}

static nnc_status unknown_key(const char *key, nnc_loc loc, nnc_sink *sink)
{
    char name[NNC_TRAIN_SETTINGS][NNC_TRAIN_KEY_SIZE];
    const char *names[NNC_TRAIN_SETTINGS], *near = NULL;
    size_t n = 0;
    for (size_t i = 0; i < nnc_n_train_settings; i++) {
        (void)nnc_train_key(&nnc_train_settings[i], name[n]);
        if (nnc_train_settings[i].group == FLAGS_job && !strcmp(name[n], key))
            return nnc_fail(sink, NNC_E_MODEL, loc,
                "`%s` is not a key of \"train\": files and how devices share the work are of a "
                "run, with %s",
                key, nnc_train_settings[i].value.name);
        names[n] = name[n];
        n += nnc_train_settings[i].group != FLAGS_job;
    }
    if (nnc_train_calls(key))
        return nnc_fail(sink, NNC_E_MODEL, loc, "unknown key \"%s\"; nnc calls it `%s`", key,
            nnc_train_calls(key));
    near = nnc_nearest(key, names, n);
    return nnc_fail(sink, NNC_E_MODEL, loc, "unknown key \"%s\"%s%s%s", key,
        near ? "; did you mean `" : " (`nnc train --help` lists the settings)", near ? near : "",
        near ? "`?" : "");
}

/* A number, a word, or several between commas, as the flag takes them. False: it is of another kind. */
static bool put_value(const nnc_item *v, nnc_setting_kind kind, nnc_text *t)
{
    const bool number = kind == NNC_SET_INT || kind == NNC_SET_SEED || kind == NNC_SET_REAL,
               text = kind == NNC_SET_TEXT || kind == NNC_SET_LIST;
    if (nnc_is_number(v) && (number || text)) {
        if (v->number == rint(v->number) && fabs(v->number) < 1e15)
            nnc_printf(t, "%.0f", v->number); /* 50 is no integer as 5e+01 */
        else
            nnc_put_double(t, v->number);
        return true;
    }
    if (nnc_is_string(v) && !number) {
        nnc_puts(t, v->text);
        return true;
    }
    for (const nnc_item *e = nnc_is_list(v) && text ? v->child : NULL; e; e = e->next) {
        nnc_puts(t, e == v->child ? "" : ",");
        if (nnc_is_list(e) || !put_value(e, kind, t))
            return false;
    }
    return nnc_is_list(v) && text && v->child;
}

static nnc_status wrong_kind(
    const char *key, const nnc_item *v, const nnc_setting *s, nnc_loc loc, nnc_sink *sink)
{
    static const char *const name[] = {
        "null", "true or false", "a number", "a string", "a list", "an object"};
    static const char *const want[] = {[NNC_SET_INT] = "an integer",
        [NNC_SET_SEED] = "an integer",
        [NNC_SET_REAL] = "a number",
        [NNC_SET_BOOL] = "true or false",
        [NNC_SET_UNSET] = "true or false",
        [NNC_SET_TEXT] = "a string",
        [NNC_SET_FILE] = "a path in quotes",
        [NNC_SET_LIST] = "a list of strings",
        [NNC_SET_PAIRS] = "a list of strings"};
    return nnc_fail(sink, NNC_E_MODEL, loc, "%s: expected %s, found %s", key,
        s->kind == NNC_SET_CHOICE ? s->expected : want[s->kind], name[v->kind]);
}

/* Paths are relative to the model file's folder. */
static void put_path(const char *model, const char *path, nnc_text *t)
{
    const char *slash = *path == '/' || !strcmp(path, "-") ? NULL : strrchr(model, '/');
    nnc_printf(t, "%.*s%s", slash ? (int)(slash - model) + 1 : 0, model, path);
}

static nnc_status read_setting(const nnc_flag *f, const char *key, bool inverted, const nnc_json *j,
    const nnc_item *v, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_setting row = f->value;
    nnc_loc loc = nnc_json_loc(j, v, false);
    loc.path = "/train";
    row.name = key;
    const bool is_switch = row.kind == NNC_SET_BOOL || row.kind == NNC_SET_UNSET;
    if (is_switch && nnc_is_bool(v))
        nnc_puts(&t, (v->number != 0) != inverted ? "1" : "0");
    else if (row.kind == NNC_SET_FILE && nnc_is_string(v))
        put_path(j->file, v->text, &t);
    else if (is_switch || row.kind == NNC_SET_FILE || !put_value(v, row.kind, &t))
        return wrong_kind(key, v, &row, loc, sink);
    NNC_NEED(!t.oom, sink);
    return nnc_setting_read(&row, loc, o, nnc_text_str(&t), strings, sink);
}

static nnc_status read_key(
    const nnc_json *j, const nnc_item *v, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink)
{
    char key[NNC_TRAIN_KEY_SIZE];
    for (size_t i = 0; i < nnc_n_train_settings; i++) {
        const nnc_flag *f = &nnc_train_settings[i];
        const bool inverted = nnc_train_key(f, key);
        if (f->group == FLAGS_job || strcmp(key, v->key) != 0)
            continue;
        nnc_train_options checked = *o; /* also what a flag overrides is checked */
        return read_setting(f, key, inverted, j, v, o->given[i] ? &checked : o, strings, sink);
    }
    nnc_loc loc = nnc_json_loc(j, v, true);
    loc.path = "/train";
    return unknown_key(v->key, loc, sink);
}

nnc_status nnc_train_read(
    const nnc_model *m, nnc_train_options *o, nnc_arena *strings, nnc_sink *sink)
{
    const nnc_given *given = m->given;
    NNC_LOCAL(nnc_json) j = {0};
    nnc_status st = NNC_OK;
    if (!given || !given->trains)
        return NNC_OK;
    NNC_TRY(nnc_json_parse(
        &j, given->file[0].name, given->piece[0].data, (size_t)given->piece[0].size, sink));
    const nnc_item *section = nnc_json_get(j.root, "train");
    for (const nnc_item *v = nnc_json_first(section); v; v = v->next) {
        nnc_status s = read_key(&j, v, o, strings, sink);
        st = st ? st : s;
    }
    return st;
}
