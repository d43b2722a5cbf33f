/* profile/devices.c -- how the devices of a run, and several models in one, share its time. */
#include "profile/profile.h"
#include "session/session.h"
#include <math.h>

static double ms_of(int64_t ps)
{
    return (double)ps * 1e-9;
}

static int devices_of(const nnc_profile *p)
{
    return p->artifact->plan->n_device;
}

static int rank_of(const nnc_profile *p, int d)
{
    return nnc_rank_of(d, devices_of(p), p->world);
}

void nnc_profile_put_device(nnc_text *t, const nnc_profile *p, int d)
{
    nnc_put_device(t, p->artifact->plan, d);
    if (p->world > 1)
        nnc_printf(t, ", rank %d", rank_of(p, d));
}

nnc_profile_spread nnc_profile_spread_of(const nnc_profile *p, const nnc_profile_row *r)
{
    nnc_profile_spread s = {.slowest = r->calls ? p->artifact->plan->cmd[r->first].device : 0};
    for (int d = 0; r->on && d < devices_of(p); d++) {
        s.devices += r->on[d] > 0;
        s.slowest = r->on[d] > r->on[s.slowest] ? d : s.slowest;
    }
    s.devices = s.devices ? s.devices : 1;
    s.mean_ms = r->ms / s.devices;
    s.slowest_ms = r->on ? r->on[s.slowest] : r->ms;
    return s;
}

/* ---- devices --------------------------------------------------------------------------------------------- */

/* The device that computes longest. */
static int slowest(const nnc_profile *p)
{
    int most = 0;
    for (int d = 1; d < devices_of(p); d++)
        most =
            nnc_shares_computing(&p->device[d]) > nnc_shares_computing(&p->device[most]) ? d : most;
    return most;
}

static void text_communication(nnc_text *t, const nnc_profile *p)
{
    nnc_shares all = {0};
    const int n = devices_of(p), most = slowest(p);
    nnc_sum_shares(&all, p->device, n);
    const double total = (double)nnc_max64(nnc_shares_total(&all), 1),
                 mean = (double)nnc_shares_computing(&all) / n;
    nnc_profile_put_device(t, p, most);
    nnc_printf(t, " computes longest, %.1f %% above the mean.",
        100 * ((double)nnc_shares_computing(&p->device[most]) / fmax(mean, 1) - 1));
    if (all.part[PART_communication] || all.hidden)
        nnc_printf(t,
            " Communication takes %.1f %% of the devices' time that computing does not hide "
            "(exposed), and %.1f %% that it does.",
            100 * (double)all.part[PART_communication] / total, 100 * (double)all.hidden / total);
    if (all.waits)
        nnc_printf(t, " In collectives they wait for the last one for %.1f %%.",
            100 * (double)all.waits / total);
}

static void text_devices(nnc_text *t, const nnc_profile *p)
{
    static const char *const title[] = {"computing", "exposed", "waiting", "idle", "hidden"};
    nnc_putc(t, '\n');
    for (size_t i = 0; i < NNC_COUNT(title); i++)
        nnc_printf(t, "%11s", title[i]);
    nnc_puts(t, "  device (ms)\n");
    for (int d = 0; d < devices_of(p); d++) {
        const nnc_shares *s = &p->device[d];
        const int64_t v[] = {
            nnc_shares_computing(s), s->part[PART_communication], s->waits, s->idle, s->hidden};
        for (size_t i = 0; i < NNC_COUNT(v); i++)
            nnc_put_ms(t, ms_of(v[i]), 11);
        nnc_puts(t, "  ");
        nnc_profile_put_device(t, p, d);
        nnc_putc(t, '\n');
    }
    NNC_LOCAL(nnc_text) line = {.into = t};
    text_communication(&line, p);
    nnc_put_wrapped(t, nnc_text_str(&line), 0, 0, REPORT_WIDTH);
    nnc_putc(t, '\n');
}

/* Prints what running together costs model k: its commands' time, beside that of running by itself. */
static void text_model(nnc_text *t, const nnc_profile *p, int k)
{
    const nnc_together_model *m = p->together ? &p->together->model[k] : NULL;
    const double alone = !m ? NAN : p->predicted ? (double)m->predicted_ns * 1e-6 : m->alone_ms;
    double ms = 0;
    for (int i = 0; i < p->n; i++)
        if (nnc_layers_of_model(p->artifact->plan->cmd[p->cmd[i].cmd].layers, p->model[k]))
            ms += p->cmd[i].ms;
    nnc_printf(t, " %s's take ", p->model[k]);
    nnc_put_ms(t, ms, 0);
    nnc_puts(t, " ms");
    if (alone > 0) {
        nnc_puts(t, ", a run of it alone ");
        nnc_put_ms(t, alone, 0);
        const double more = 100 * (ms / alone - 1);
        nnc_printf(t, " ms (%+.1f %%)", fabs(more) < 0.05 ? 0 : more);
    }
    nnc_putc(t, k + 1 < p->n_model ? ';' : '.');
}

static void text_models(nnc_text *t, const nnc_profile *p)
{
    NNC_LOCAL(nnc_text) line = {.into = t};
    nnc_printf(&line, "Commands of at least two of the %d models run at once for ", p->n_model);
    nnc_put_ms(&line, p->together_ms, 0);
    nnc_printf(&line, " ms, %.1f %% of the run:", 100 * p->together_ms / fmax(p->wall_ms, 1e-9));
    for (int k = 0; k < p->n_model; k++)
        text_model(&line, p, k);
    nnc_putc(t, '\n');
    nnc_put_wrapped(t, nnc_text_str(&line), 0, 0, REPORT_WIDTH);
    nnc_putc(t, '\n');
}

void nnc_profile_devices_text(nnc_text *t, const nnc_profile *p)
{
    if (devices_of(p) > 1)
        text_devices(t, p);
    if (p->n_model)
        text_models(t, p);
    if (p->together)
        nnc_report_together(p->together, t);
}

void nnc_profile_devices_json(nnc_json_writer *w, const nnc_profile *p)
{
    nnc_json_open(w, "devices", '[');
    for (int d = 0; d < devices_of(p); d++) {
        const nnc_shares *s = &p->device[d];
        NNC_JSON_OBJECT(w, NULL, J_STRING("device", p->artifact->plan->device[d].name),
            J_INT("rank", rank_of(p, d)), J_MS("computing_ms", ms_of(nnc_shares_computing(s))),
            J_MS("exposed_ms", ms_of(s->part[PART_communication])),
            J_MS("waiting_ms", ms_of(s->waits)), J_MS("idle_ms", ms_of(s->idle)),
            J_MS("hidden_ms", ms_of(s->hidden)));
    }
    nnc_json_close(w, ']');
    if (p->n_model)
        NNC_JSON(w, J_MS("models_together_ms", p->together_ms));
    if (p->together)
        nnc_report_together_json(p->together, w);
}

/* ---- several models -------------------------------------------------------------------------------------- */

/* Appends the stretches in which model k's commands run, apart from each other; returns their number. */
static int gather_model(const nnc_plan_times *t, const char *model, int k, nnc_stretch *s)
{
    int n = 0, joined = 0;
    for (int i = 0; i < t->n; i++) {
        const nnc_cmd *c = &t->plan->cmd[t->first + i];
        if (c->kind != CMD_record && c->kind != CMD_wait && t->start_ps[i] >= 0 &&
            t->end_ps[i] > t->start_ps[i] && nnc_layers_of_model(c->layers, model))
            s[n++] = (nnc_stretch){t->start_ps[i], t->end_ps[i], k};
    }
    nnc_sort_stretches(s, n);
    for (int i = 0; i < n; i++)
        if (joined && s[i].start <= s[joined - 1].end)
            s[joined - 1].end = nnc_max64(s[joined - 1].end, s[i].end);
        else
            s[joined++] = s[i];
    return joined;
}

nnc_status nnc_profile_overlap(
    const nnc_plan_times *t, const nnc_profile_options *o, int64_t *ps, nnc_sink *sink)
{
    int n = 0;
    int64_t one = 0, two = 0; /* until when one model runs, and until when two */
    *ps = 0;
    if (!o->n_model)
        return NNC_OK;
    NNC_FREED nnc_stretch *s = nnc_malloc(((size_t)t->n * (size_t)o->n_model + 1) * sizeof *s);
    NNC_NEED(s, sink);
    for (int k = 0; k < o->n_model; k++)
        n += gather_model(t, o->model[k], k, s + n);
    nnc_sort_stretches(s, n);
    for (int i = 0; i < n; i++) {
        const int64_t end = nnc_min64(s[i].end, one), begin = nnc_max64(s[i].start, two);
        *ps += nnc_max64(end - begin, 0);
        two = nnc_max64(two, end);
        one = nnc_max64(one, s[i].end);
    }
    return NNC_OK;
}
