/* trainer/save.c -- writes a training's weights. Disk space is reserved before the first step; a file that another program has written
 * since is not overwritten. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/state.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 256 }; /* bytes of a file beside a tensor's numbers, at most but for long names */

const char *save_name(const trainer *t)
{
    return t->save_as.n ? nnc_text_str((nnc_text *)&t->save_as) : t->o->save;
}

static int64_t weight_bytes(const trainer *t)
{
    int64_t n = HEADER;
    for (uint32_t i = 0; i < t->model->n_node; i++) {
        const nnc_node *p = &t->model->node[i];
        if (p->op == OP_param && p->weight && p->weight->name)
            n = nnc_add_sat(n, HEADER + nnc_type_bytes(nnc_typeof(t->model, p->out)));
    }
    return n;
}

void save_release(trainer *t)
{
    if (t->room)
        close(t->room - 1);
    t->room = 0;
}

static nnc_status hold(trainer *t, nnc_sink *sink)
{
    int fd = -1;
    NNC_TRY(nnc_file_reserve(save_name(t), weight_bytes(t), &fd, sink));
    t->room = fd + 1;
    return NNC_OK;
}

nnc_status save_begin(trainer *t)
{
    if (!t->o->save)
        return NNC_OK;
    t->saved = nnc_file_version(t->o->save);
    return hold(t, t->sink);
}

/* Has another program written the file since this training began, or since it wrote the file? */
static bool is_others(const trainer *t, const char *file)
{
    char target[PATH_MAX];
    const uint64_t now = nnc_file_version(file);
    return now && now != t->saved && !nnc_file_resolve(file, target);
}

/* Names a file beside it that does not exist. */
static nnc_status choose_other(trainer *t)
{
    const char *dot = strrchr(t->o->save, '.');
    for (int k = 2;; k++) {
        nnc_text_clear(&t->save_as);
        nnc_printf(&t->save_as, "%.*s.%d%s", (int)(dot - t->o->save), t->o->save, k, dot);
        NNC_NEED(!t->save_as.oom, t->sink);
        if (!nnc_file_exists(nnc_text_str(&t->save_as)))
            break;
    }
    t->saved = 0;
    nnc_warn(t->sink, (nnc_loc){.file = t->o->save},
        "another program has written it since this training began: the weights are written to %s",
        nnc_text_str(&t->save_as));
    return NNC_OK;
}

static nnc_status write_to(trainer *t, const char *file)
{
    save_release(t);
    return nnc_session_write_weights(t->train.session, t->model, file, t->sink);
}

nnc_status save_weights(trainer *t)
{
    while (is_others(t, save_name(t)))
        NNC_TRY(choose_other(t));
    NNC_TRY(write_to(t, save_name(t)));
    t->saved = nnc_file_version(save_name(t));
    return NNC_OK;
}

/* Is the epoch's validation better than that of the best one so far: its accuracy, or with equal ones, or without classes, its loss? */
static bool is_best(const trainer *t)
{
    const double accuracy = t->eval.correct / t->eval.counted,
                 loss = t->eval.loss / t->eval.counted;
    if (!t->best_epoch)
        return true;
    if (isfinite(accuracy) && accuracy != t->best_accuracy)
        return accuracy > t->best_accuracy;
    return loss < t->best_loss || !isfinite(t->best_loss);
}

/* Reserves space for the next file, which is written beside this one before it replaces it. */
static nnc_status hold_again(trainer *t)
{
    NNC_OWNED(nnc_sink) *own = nnc_sink_create();
    NNC_NEED(own, t->sink);
    if (hold(t, own))
        nnc_warn(t->sink, (nnc_loc){.file = save_name(t)},
            "there is no room to write the weights once more");
    return NNC_OK;
}

nnc_status save_epoch(trainer *t)
{
    NNC_LOCAL(nnc_text) file = {0};
    const char *name = t->o->save, *dot = name ? strrchr(name, '.') : NULL;
    if (!name || t->o->keep == NNC_KEEP_last)
        return NNC_OK;
    if (t->o->keep == NNC_KEEP_best) {
        if (!is_best(t))
            return NNC_OK;
        t->best_epoch = t->epoch;
        t->best_accuracy = t->eval.correct / t->eval.counted;
        t->best_loss = t->eval.loss / t->eval.counted;
        NNC_TRY(save_weights(t));
        return hold_again(t);
    }
    nnc_printf(&file, "%.*s-%lld%s", (int)(dot - name), name, (long long)t->epoch, dot);
    NNC_NEED(!file.oom, t->sink);
    NNC_TRY(write_to(t, nnc_text_str(&file)));
    return hold_again(t);
}
