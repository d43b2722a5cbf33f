/* api/train_report.c -- what a training tells: lines of JSON in the log, a line for each epoch, progress. */
#include "api/trainer.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static nnc_status log_failed(const trainer *t)
{
    return nnc_fail(
        t->sink, NNC_E_IO, (nnc_loc){.file = t->o->log}, "cannot write: %s", strerror(errno));
}

/* Keeps the first `keep` bytes of the log: lines of steps after the checkpoint are written again. */
static nnc_status cut_log(trainer *t, int64_t keep)
{
    const nnc_loc loc = {.file = t->o->log};
    char end = '\n';
    bool there = fseek(t->log, 0, SEEK_END) == 0 && ftell(t->log) >= keep;
    if (there && keep > 0)
        there = fseek(t->log, (long)keep - 1, SEEK_SET) == 0 && fread(&end, 1, 1, t->log) == 1;
    if (!there || end != '\n')
        return nnc_fail(t->sink, NNC_E_IO, loc,
            "is not the log of the training that the checkpoint %s continues: it had %lld bytes "
            "then; name that one, or another file",
            t->o->checkpoint, (long long)keep);
    if (fseek(t->log, (long)keep, SEEK_SET) || ftruncate(fileno(t->log), (off_t)keep))
        return log_failed(t);
    return NNC_OK;
}

nnc_status report_open(trainer *t, int64_t keep)
{
    t->began_ns = nnc_now_ns();
    t->began_step = t->step;
    if (!t->o->log)
        return NNC_OK;
    const bool there = keep >= 0 && nnc_file_exists(t->o->log);
    t->log = fopen(t->o->log, there ? "r+e" : "we");
    if (!t->log)
        return log_failed(t);
    t->log_bytes = there ? keep : 0;
    return there ? cut_log(t, keep) : NNC_OK;
}

static void put_number(nnc_text *t, const char *key, double v)
{
    nnc_printf(t, ", \"%s\": ", key);
    if (isfinite(v))
        nnc_printf(t, "%.9g", v);
    else
        nnc_puts(t, "null"); /* JSON has no other form of NaN and infinity */
}

static nnc_status log_line(trainer *t, nnc_text *line)
{
    nnc_puts(line, "}\n");
    NNC_NEED(!line->oom, t->sink);
    if (fwrite(nnc_text_str(line), 1, line->n, t->log) != line->n || fflush(t->log))
        return log_failed(t);
    t->log_bytes += (int64_t)line->n;
    return NNC_OK;
}

/* Accuracy over the targets that are not ignored. */
static double share(const program *p)
{
    return p->correct / p->counted;
}

/* "epoch 2/10, step 45/300, loss 0.1234, accuracy 91.2 %, 53021 samples/s, 12 s left" */
static void show_progress(trainer *t)
{
    const program *p = &t->train;
    char line[256], accuracy[32] = "";
    const double s = (double)(nnc_now_ns() - t->began_ns) * 1e-9,
                 done = (double)(t->step + 1 - t->began_step);
    if (!t->o->progress)
        return;
    if (isfinite(p->correct))
        nnc_snprintf(accuracy, sizeof accuracy, ", accuracy %.1f %%", 100 * share(p));
    nnc_snprintf(line, sizeof line,
        "epoch %lld/%d, step %lld/%lld, loss %.4f%s, %.0f samples/s, %.0f s left",
        (long long)t->epoch, t->o->epochs, (long long)t->step + 1, (long long)t->steps,
        p->loss / (double)p->batches, accuracy,
        done * (double)(t->batch * t->accumulate) / fmax(s, 1e-9),
        s * (double)(t->steps - t->step - 1) / done);
    t->o->progress(t->o->ctx, "training", line);
}

nnc_status report_step(trainer *t, double loss, double rate, int64_t ns)
{
    NNC_LOCAL(nnc_text) line = {0};
    show_progress(t);
    if (!t->log)
        return NNC_OK;
    nnc_printf(
        &line, "{\"step\": %lld, \"epoch\": %lld", (long long)t->step + 1, (long long)t->epoch);
    put_number(&line, "loss", loss);
    put_number(&line, "lr", rate);
    put_number(&line, "samples_per_s",
        nnc_decimals((double)(t->batch * t->accumulate) * 1e9 / (double)nnc_max64(ns, 1), 1));
    return log_line(t, &line);
}

typedef struct epoch_number {
    const char *key;
    double v;
} epoch_number;

/* What an epoch's lines say after its loss; how many numbers. */
static int epoch_numbers(const trainer *t, double rate, epoch_number n[5])
{
    const program *p = &t->train, *v = &t->eval;
    const bool classes = isfinite(p->correct), checked = v->batches > 0;
    int k = 0;
    n[k++] = (epoch_number){"samples_per_s", nnc_decimals(rate, 1)};
    if (classes)
        n[k++] = (epoch_number){"accuracy", share(p)};
    if (checked)
        n[k++] = (epoch_number){"validation_loss", v->loss / (double)v->batches};
    if (checked && classes)
        n[k++] = (epoch_number){"validation_accuracy", share(v)};
    return k;
}

static nnc_status log_epoch(trainer *t, const epoch_number *n, int n_number)
{
    NNC_LOCAL(nnc_text) line = {0};
    if (!t->log)
        return NNC_OK;
    nnc_printf(&line, "{\"epoch\": %lld, \"steps\": %lld", (long long)t->epoch, (long long)t->step);
    put_number(&line, "train_loss", t->train.loss / (double)t->train.batches);
    for (int i = 0; i < n_number; i++)
        put_number(&line, n[i].key, n[i].v);
    return log_line(t, &line);
}

static void print_epoch(trainer *t, double rate, int64_t ns, nnc_data_times load)
{
    const program *p = &t->train, *v = &t->eval;
    const bool classes = isfinite(p->correct), checked = v->batches > 0;
    nnc_printf(t->out, "epoch %lld: loss %.4f", (long long)t->epoch, p->loss / (double)p->batches);
    if (classes)
        nnc_printf(t->out, ", accuracy %.2f %%", 100 * share(p));
    if (checked)
        nnc_printf(t->out, "; validation: loss %.4f", v->loss / (double)v->batches);
    if (checked && classes)
        nnc_printf(t->out, ", accuracy %.2f %%", 100 * share(v));
    nnc_printf(t->out, "; %.0f samples/s; compute %.3g s, load %.3g s, waited %.3g s\n", rate,
        (double)(ns - load.wait_ns) * 1e-9, (double)load.load_ns * 1e-9,
        (double)load.wait_ns * 1e-9);
}

/* Hands the text from `before` on to the caller's function, where there is one. */
static void hand_on(trainer *t, size_t before)
{
    if (!t->o->report)
        return;
    t->o->report(t->o->ctx, nnc_text_str(t->out) + before);
    t->out->n = before;
}

nnc_status report_epoch(trainer *t, int64_t first, int64_t ns, nnc_data_times load)
{
    epoch_number n[5];
    const double rate =
        (double)((t->at - first) * t->accumulate * t->batch) * 1e9 / (double)nnc_max64(ns, 1);
    const int k = epoch_numbers(t, rate, n);
    const size_t before = t->out->n;
    NNC_TRY(log_epoch(t, n, k));
    if (t->format == NNC_TEXT) {
        print_epoch(t, rate, ns, load);
        hand_on(t, before);
        return NNC_OK;
    }
    nnc_json_member m[11] = {J_INT("epoch", t->epoch), J_INT("steps", t->step),
        J_REAL("loss", t->train.loss / (double)t->train.batches)};
    for (int i = 0; i < k; i++)
        m[3 + i] = (nnc_json_member)J_REAL(n[i].key, n[i].v);
    m[3 + k] = (nnc_json_member)J_INT("compute_ns", ns - load.wait_ns);
    m[4 + k] = (nnc_json_member)J_INT("load_ns", load.load_ns);
    m[5 + k] = (nnc_json_member)J_INT("load_wait_ns", load.wait_ns);
    nnc_json_row(&t->json, 2, m, (size_t)(6 + k));
    return NNC_OK;
}

void report_end(trainer *t)
{
    const size_t before = t->out->n;
    const double s = (double)(nnc_now_ns() - t->began_ns) * 1e-9;
    const int64_t done = t->step - t->began_step;
    if (t->format != NNC_TEXT)
        return;
    nnc_printf(t->out,
        "%s after step %lld of %lld: %lld steps in %.1f s, validation included; %.0f samples/s\n",
        t->stopped ? "stopped" : "done", (long long)t->step, (long long)t->steps, (long long)done,
        s, (double)(done * t->batch * t->accumulate) / fmax(s, 1e-9));
    hand_on(t, before);
}
