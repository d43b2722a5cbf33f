/* trainer/report.c -- what a training tells: lines of JSON in the log, a line for each epoch, progress. */
#include "session/train.h"
#include "trainer/state.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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

/* Until it is closed; where files cannot be locked two programs may write to it. */
static nnc_status lock_log(const trainer *t)
{
    struct stat st;
    const int fd = fileno(t->log);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !flock(fd, LOCK_EX | LOCK_NB) ||
        errno != EWOULDBLOCK)
        return NNC_OK;
    return nnc_fail(t->sink, NNC_E_IO, (nnc_loc){.file = t->o->log},
        "another program writes to it: is it the log of two trainings?");
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

/* Empties the log. Where the model has a new head, the first line says where the numbers of each weight are from. */
static nnc_status begin_log(trainer *t)
{
    NNC_LOCAL(nnc_text) line = {0};
    struct stat st;
    if (!fstat(fileno(t->log), &st) && S_ISREG(st.st_mode) && ftruncate(fileno(t->log), 0))
        return log_failed(t);
    if (!t->model->head)
        return NNC_OK;
    nnc_puts(&line, "{\"weights\": [");
    for (const char *p = t->model->head; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        NNC_LOCAL(nnc_text) one = {.into = &line};
        nnc_putn(&one, p, strcspn(p, "\n"));
        nnc_puts(&line, p > t->model->head ? ", " : "");
        nnc_put_json_string(&line, nnc_text_str(&one));
    }
    nnc_putc(&line, ']');
    return log_line(t, &line);
}

nnc_status report_open(trainer *t, int64_t keep)
{
    t->began_ns = nnc_now_ns();
    t->began_step = t->step;
    if (!t->o->log)
        return NNC_OK;
    const bool there = keep >= 0 && nnc_file_exists(t->o->log);
    t->log = fopen(t->o->log, there ? "r+e" : "ae"); /* not "w": it may be another's */
    if (!t->log)
        return log_failed(t);
    t->log_bytes = there ? keep : 0;
    NNC_TRY(lock_log(t));
    return there ? cut_log(t, keep) : begin_log(t);
}

static void hand_on(trainer *t, size_t before);

/* Samples of a part, and those of them that no batch has. */
static void put_samples(const trainer *t, nnc_data_part part, int64_t used, nnc_text *out)
{
    const int64_t n = nnc_data_samples(t->data, part);
    nnc_printf(out, "%lld samples", (long long)n);
    if (used < n)
        nnc_printf(out, " (each epoch leaves out %lld, beyond whole %s)", (long long)(n - used),
            t->accumulate > 1 && part == NNC_DATA_train ? "steps" : "batches");
}

void report_begin(trainer *t)
{
    const size_t before = t->out->n;
    const int64_t batches = nnc_data_batches(t->data, NNC_DATA_validation);
    if (t->format != NNC_TEXT)
        return;
    nnc_printf(t->out, "%s: training on ", nnc_data_format(t->data));
    put_samples(t, NNC_DATA_train, t->per_epoch * t->accumulate * t->batch, t->out);
    nnc_printf(t->out, ", %lld steps an epoch", (long long)t->per_epoch);
    if (batches) {
        nnc_puts(t->out, "; validation on ");
        put_samples(t, NNC_DATA_validation, batches * t->batch, t->out);
    }
    nnc_putc(t->out, '\n');
    hand_on(t, before);
}

static void put_number(nnc_text *t, const char *key, double v)
{
    nnc_printf(t, ", \"%s\": ", key);
    if (isfinite(v))
        nnc_printf(t, "%.9g", v);
    else
        nnc_puts(t, "null"); /* JSON has no other form of NaN and infinity */
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

/* Sets the numbers that an epoch's lines have after its loss; returns their count. */
static int epoch_numbers(const trainer *t, double rate, epoch_number n[5])
{
    const program *p = &t->train, *v = &t->eval;
    const bool classes = isfinite(p->correct), checked = v->batches > 0;
    int k = 0;
    n[k++] = (epoch_number){"samples_per_s", nnc_decimals(rate, 1)};
    if (classes)
        n[k++] = (epoch_number){"accuracy", share(p)};
    if (checked)
        n[k++] = (epoch_number){"validation_loss", v->loss / v->counted};
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

static int64_t share_of(int64_t ns, int64_t part, int64_t all)
{
    return all > 0 ? (int64_t)((double)ns * (double)part / (double)all) : 0;
}

/* Adds ns of commands, divided as in measured steps; all of it to *whole where none was measured. */
static void divide(step_spent *x, int64_t ns, const nnc_shares *m, int64_t *whole)
{
    const int64_t all = nnc_shares_total(m), loss = share_of(ns, m->part[PART_loss], all),
                  forward = loss + share_of(ns, m->part[PART_forward], all),
                  backward = share_of(ns, m->part[PART_backward], all),
                  optimizer = share_of(ns, m->part[PART_optimizer], all),
                  between = share_of(ns, m->part[PART_communication], all);
    x->forward += forward;
    x->backward += backward;
    x->optimizer += optimizer;
    x->communication += between;
    *(all > 0 ? &x->idle : whole) += ns - forward - backward - optimizer - between;
    x->hidden += share_of(ns, m->hidden, all);
}

static step_spent spent_on(const step_times *s, int64_t ns, nnc_data_times load)
{
    step_spent x = {.wait = load.wait_ns,
        .copy = s->copy,
        .checkpoint = s->checkpoint,
        .load = load.load_ns,
        .compute = ns - load.wait_ns - s->checkpoint,
        .total = ns};
    divide(&x, s->forward, &s->in_main, &x.forward);
    divide(&x, s->update, &s->in_update, &x.backward);
    x.other = x.compute - s->forward - s->update - s->copy;
    return x;
}

static void add_spent(step_spent *sum, const step_spent *x)
{
    int64_t *to = (int64_t *)sum;
    const int64_t *from = (const int64_t *)x;
    for (size_t i = 0; i < sizeof *x / sizeof *from; i++)
        to[i] += from[i];
}

/* In seconds, or milliseconds where the epoch computes for less than one. */
static void print_spent(nnc_text *out, const step_spent *x, bool whole)
{
    const bool ms = x->compute < 1000000000;
    const double unit = ms ? 1e-6 : 1e-9;
    const char *name = ms ? "ms" : "s";
    nnc_printf(out, "compute %.3g %s (forward %.3g, backward%s %.3g", unit * (double)x->compute,
        name, unit * (double)x->forward, whole ? " and optimizer" : "", unit * (double)x->backward);
    if (!whole)
        nnc_printf(out, ", optimizer %.3g", unit * (double)x->optimizer);
    if (x->communication || x->hidden)
        nnc_printf(out, ", communication %.3g and %.3g hidden", unit * (double)x->communication,
            unit * (double)x->hidden);
    nnc_printf(out, "), load %.3g %s, waited %.3g %s", unit * (double)x->load, name,
        unit * (double)x->wait, name);
    if (x->checkpoint > x->compute / 100)
        nnc_printf(out, ", checkpoints %.3g %s", unit * (double)x->checkpoint, name);
    nnc_putc(out, '\n');
}

/* The shares of all steps' time, which add up to it. */
static void print_all_spent(nnc_text *out, const step_spent *x)
{
    const struct {
        const char *name;
        int64_t ns;
    } part[] = {{"waiting for data", x->wait}, {"forward", x->forward}, {"backward", x->backward},
        {"optimizer", x->optimizer}, {"exposed communication", x->communication},
        {"idle devices", x->idle}, {"copies of inputs and outputs", x->copy},
        {"checkpoints", x->checkpoint}, {"other", x->other}};
    const double all = (double)nnc_max64(x->total, 1);
    nnc_puts(out, "time of the steps:");
    for (size_t i = 0; i < NNC_COUNT(part); i++)
        if (i < 4 || i == NNC_COUNT(part) - 1 || part[i].ns)
            nnc_printf(
                out, "%s %s %.1f %%", i ? "," : "", part[i].name, 100 * (double)part[i].ns / all);
    if (x->hidden)
        nnc_printf(out, "; computing hides communication of another %.1f %%",
            100 * (double)x->hidden / all);
    nnc_putc(out, '\n');
}

static void print_epoch(trainer *t, double rate, const step_spent *x)
{
    const program *p = &t->train, *v = &t->eval;
    const bool classes = isfinite(p->correct), checked = v->batches > 0;
    nnc_printf(t->out, "epoch %lld: loss %.4f", (long long)t->epoch, p->loss / (double)p->batches);
    if (classes)
        nnc_printf(t->out, ", accuracy %.2f %%", 100 * share(p));
    if (checked)
        nnc_printf(t->out, "; validation: loss %.4f", v->loss / v->counted);
    if (checked && classes)
        nnc_printf(t->out, ", accuracy %.2f %%", 100 * share(v));
    if (t->skipped)
        nnc_printf(t->out, "; %lld step%s skipped, whose loss was not finite",
            (long long)t->skipped, t->skipped == 1 ? "" : "s");
    nnc_printf(t->out, "; %.0f samples/s; ", rate);
    print_spent(t->out, x, !nnc_shares_total(&t->times.in_update));
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
    const step_spent x = spent_on(&t->times, ns, load);
    const size_t before = t->out->n;
    add_spent(&t->spent, &x);
    NNC_TRY(log_epoch(t, n, k));
    if (t->format == NNC_TEXT) {
        print_epoch(t, rate, &x);
        hand_on(t, before);
        return NNC_OK;
    }
    nnc_json_member m[21] = {J_INT("epoch", t->epoch), J_INT("steps", t->step),
        J_REAL("loss", t->train.loss / (double)t->train.batches)};
    const nnc_json_member of_time[] = {J_INT("compute_ns", x.compute),
        J_INT("forward_ns", x.forward), J_INT("backward_ns", x.backward),
        J_INT("optimizer_ns", x.optimizer), J_INT("communication_ns", x.communication),
        J_INT("communication_hidden_ns", x.hidden), J_INT("idle_ns", x.idle),
        J_INT("copy_ns", x.copy), J_INT("other_ns", x.other), J_INT("load_ns", x.load),
        J_INT("load_wait_ns", x.wait), J_INT("checkpoint_ns", x.checkpoint),
        J_INT("total_ns", x.total)};
    for (int i = 0; i < k; i++)
        m[3 + i] = (nnc_json_member)J_REAL(n[i].key, n[i].v);
    memcpy(m + 3 + k, of_time, sizeof of_time);
    nnc_json_row(&t->json, 2, m, (size_t)(3 + k) + NNC_COUNT(of_time));
    return NNC_OK;
}

void report_end(trainer *t)
{
    const size_t before = t->out->n;
    const double s = (double)(nnc_now_ns() - t->began_ns) * 1e-9;
    const int64_t done = t->step - t->began_step;
    if (t->format != NNC_TEXT)
        return;
    if (!done && t->step > t->steps)
        nnc_printf(t->out,
            "no step was made: the checkpoint is of step %lld, and --epochs or --steps end with "
            "step %lld\n",
            (long long)t->step, (long long)t->steps);
    else
        nnc_printf(t->out,
            "%s after step %lld of %lld: %lld steps in %.1f s, validation included; %.0f "
            "samples/s\n",
            t->stopped ? "stopped" : "done", (long long)t->step, (long long)t->steps,
            (long long)done, s, (double)(done * t->batch * t->accumulate) / fmax(s, 1e-9));
    if (t->spent.total > 0)
        print_all_spent(t->out, &t->spent);
    if (t->best_epoch && t->o->keep == NNC_KEEP_best) {
        nnc_printf(t->out, "%s has the weights of epoch %lld, the best one: validation loss %.4f",
            save_name(t), (long long)t->best_epoch, t->best_loss);
        if (isfinite(t->best_accuracy))
            nnc_printf(t->out, ", accuracy %.2f %%", 100 * t->best_accuracy);
        nnc_putc(t->out, '\n');
    }
    hand_on(t, before);
}
