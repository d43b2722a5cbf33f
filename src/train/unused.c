/* train/unused.c -- settings that the others leave without effect: a warning each, as they are likely a mistake. */
#include "train/internal.h"

typedef struct setting {
    const char *flag;
    bool given, used;
    const char *owner; /* what it belongs to */
} setting;

static void warn(const setting *s, int n, nnc_sink *sink)
{
    for (int i = 0; i < n; i++)
        if (s[i].given && !s[i].used)
            nnc_warn(
                sink, (nnc_loc){0}, "%s has no effect: it belongs to %s", s[i].flag, s[i].owner);
}

void warn_unused(const nnc_training *t, nnc_sink *sink)
{
    const nnc_training *d = &nnc_training_defaults;
    const bool sgd = t->optimizer == NNC_OPT_sgd, ce = t->loss == NNC_LOSS_cross_entropy;
    const char *adam = "--optimizer=adam and adamw", *classes = "--loss=cross_entropy";
    const setting all[] = {
        {"--momentum", t->momentum != 0, sgd, "--optimizer=sgd"},
        {"--nesterov", t->nesterov, sgd && t->momentum != 0, "--optimizer=sgd with --momentum"},
        {"--beta1", t->beta1 != d->beta1, !sgd, adam},
        {"--beta2", t->beta2 != d->beta2, !sgd, adam},
        {"--eps", t->eps != d->eps, !sgd, adam},
        {"--label-smoothing", t->label_smoothing != 0, ce, classes},
        {"--class-axis", t->class_axis != d->class_axis, ce, classes},
        {"--ignore-index", t->ignore_index != d->ignore_index, ce, classes},
        {"--scale-growth", t->scale_growth != d->scale_growth, t->loss_scale > 0,
            "--loss-scale, which --precision=f16 sets"},
    };
    warn(all, (int)NNC_COUNT(all), sink);
}

void warn_unused_rate(const nnc_rate *r, nnc_sink *sink)
{
    const nnc_rate d = {NNC_RATE_DEFAULTS};
    const setting all[] = {
        {"--gamma", r->gamma != d.gamma, r->schedule == NNC_LR_step, "--schedule=step"},
        {"--min-lr", r->min != 0, r->schedule == NNC_LR_cosine, "--schedule=cosine"},
    };
    warn(all, (int)NNC_COUNT(all), sink);
}
