/* train/schedule.c -- the learning rate of each step. */
#include "train/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "30" epochs or "500steps" as steps; 0: neither. */
static int64_t steps_of(const char *text, int64_t per_epoch)
{
    char *end;
    const int64_t n = strtoll(text, &end, 10);
    const bool steps = !strcmp(end, "steps");
    if (end == text || n < 1 || (*end && !steps))
        return 0;
    return steps ? n : nnc_mul_sat(n, per_epoch);
}

nnc_status nnc_rate_check(const nnc_rate *r, nnc_sink *sink)
{
    const bool drops = r->every || r->n_at;
    for (int i = -1; i < r->n_at; i++) {
        const char *text = i < 0 ? r->every : r->at[i];
        if (text && !steps_of(text, 1))
            return nnc_fail0(sink, NNC_E_USAGE,
                "%s: expected a number of epochs (30) or of steps (500steps), found `%s`",
                i < 0 ? "--decay-every" : "--decay-at", text);
    }
    if (r->schedule != NNC_LR_step && drops)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--decay-every and --decay-at belong to --schedule=step");
    if (r->schedule == NNC_LR_step && !drops)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--schedule=step needs --decay-every=N or --decay-at=N,..: when the learning rate "
            "falls");
    warn_unused_rate(r, sink);
    return NNC_OK;
}

/* Number of times that the rate has fallen before the step. */
static int64_t drops(const nnc_rate *r, int64_t step, int64_t per_epoch)
{
    int64_t n = r->every ? step / nnc_max64(steps_of(r->every, per_epoch), 1) : 0;
    for (int i = 0; i < r->n_at; i++)
        n += step >= steps_of(r->at[i], per_epoch);
    return n;
}

double nnc_rate_at(const nnc_rate *r, int64_t step, int64_t steps, int64_t per_epoch)
{
    double lr = r->lr;
    if (r->schedule == NNC_LR_step)
        lr *= pow(r->gamma, (double)drops(r, step, per_epoch));
    if (step < r->warmup)
        return lr * (double)(step + 1) / r->warmup;
    if (r->schedule == NNC_LR_cosine) {
        const double left = (double)nnc_max64(steps - r->warmup, 1);
        lr = r->min + (lr - r->min) * (1 + cos(M_PI * (double)(step - r->warmup) / left)) / 2;
    }
    return lr;
}
