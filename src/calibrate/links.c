/* calibrate/links.c -- copies between devices, and collectives, as plans do them. A copy takes from the end of a command on one device
 * to the start of the next one on another. That includes data, event and wake-up. A collective is the time from when its last
 * participant comes to when the last one is done. */
#include "calibrate/measure.h"
#include <math.h>
#include <stdlib.h>

enum { HOPS = CAL_HOPS, REPEATS = CAL_REPEATS, RUNS = 9 };
static const double COPY_SHARE = 0.85, GROUP_SHARE = 1;
/* The ends of the table first: what there is no time for lies between. */
static const int64_t sizes[CAL_SIZES] = {4 << 10, 8 << 20, 512 << 10, 64 << 10, 2 << 20};
enum { LEAST_SIZES = 3 };

NNC_ORDER(by_bytes, nnc_point, nnc_cmp(a->work, b->work))

/* ---- copies ---------------------------------------------------------------------------------------------- */

void cal_copies_write(nnc_text *t, int64_t bytes, int devices)
{
    cal_nets_write(t, &(cal_net){"copies", CAL_rows, 1, (int)(bytes / 4), devices, false}, 1, 1);
}

static bool is_work(const nnc_cmd *c)
{
    return c->kind == CMD_kernel || c->kind == CMD_call;
}

/* Over all hops and runs: the median time from one kernel to the next. */
static nnc_status measure_copies(calibration *c, cal_program *p, void *ctx)
{
    int64_t *ns = ctx;
    const nnc_plan *plan = p->a->plan;
    const nnc_cmd *cmd = &plan->cmd[nnc_plan_first(plan, SEC_main)];
    int64_t hop[HOPS * RUNS];
    int n = 0;
    double spread = 0;
    for (int k = -2; k < RUNS; k++) {
        NNC_TRY(cal_profile(c, p, false));
        for (int i = 0, last = -1; i < p->n_cmd && k >= 0; i++) {
            if (!is_work(&cmd[i]))
                continue;
            if (last >= 0 && cmd[last].device != cmd[i].device && n < HOPS * RUNS)
                hop[n++] = nnc_max64(p->from[i] - p->to[last], 1);
            last = i;
        }
    }
    *ns = cal_median_of(hop, n, &spread);
    c->copy_spread = fmax(c->copy_spread, spread);
    return NNC_OK;
}

/* Measures a run's time outside the span from its first command's start to its last one's end. */
static nnc_status measure_run(calibration *c, cal_program *p, void *ctx)
{
    int64_t whole[RUNS], commands[RUNS];
    (void)ctx;
    for (int k = -2; k < RUNS; k++) {
        const int64_t from = nnc_now_ns();
        NNC_TRY(nnc_session_run(p->s, c->sink));
        const int64_t took = nnc_now_ns() - from;
        NNC_TRY(cal_profile(c, p, false));
        int64_t first = INT64_MAX, last = 0;
        for (int i = 0; i < p->n_cmd; i++) {
            first = p->from[i] > 0 ? nnc_min64(first, p->from[i]) : first;
            last = nnc_max64(last, p->to[i]);
        }
        if (k >= 0) {
            whole[k] = took;
            commands[k] = last - first;
        }
    }
    c->run_ns =
        nnc_max64(cal_median_of(whole, RUNS, NULL) - cal_median_of(commands, RUNS, NULL), 1);
    return NNC_OK;
}

/* From the end of the last command on device 0 to the start of the first one on device 1, less what a short wait takes. */
static nnc_status measure_wait(calibration *c, cal_program *p, void *ctx)
{
    const nnc_plan *plan = p->a->plan;
    const nnc_cmd *cmd = &plan->cmd[nnc_plan_first(plan, SEC_main)];
    int64_t v[RUNS];
    (void)ctx;
    for (int k = -2; k < RUNS; k++) {
        int64_t end = 0, start = INT64_MAX;
        NNC_TRY(cal_profile(c, p, false));
        for (int i = 0; i < p->n_cmd; i++) {
            if (is_work(&cmd[i]) && cmd[i].device == 0)
                end = nnc_max64(end, p->to[i]);
            if (is_work(&cmd[i]) && cmd[i].device == 1)
                start = nnc_min64(start, p->from[i]);
        }
        if (k >= 0)
            v[k] = start - end;
    }
    c->wake_ns = nnc_max64(cal_median_of(v, RUNS, NULL) - c->copy[0].ns, 0);
    return NNC_OK;
}

/* Loads a program of all devices, and measures it into ctx. */
static nnc_status measure_text(calibration *c, const nnc_text *text,
    nnc_status (*measure)(calibration *c, cal_program *p, void *ctx), void *ctx)
{
    NNC_LOCAL(cal_program) p = {0};
    NNC_TRY(cal_load(c, text, c->devices, false, false, &p));
    return cal_lead(c, &p, measure, ctx);
}

static nnc_status runs_and_waits(calibration *c)
{
    NNC_LOCAL(nnc_text) run = {0};
    NNC_LOCAL(nnc_text) wait = {0};
    cal_copies_write(&run, sizes[0], 2);
    cal_nets_write(&wait, &(cal_net){"waits", CAL_rows, 256, 1024, 0, false}, 1, 1);
    NNC_TRY(measure_text(c, &run, measure_run, NULL));
    return measure_text(c, &wait, measure_wait, NULL);
}

/* ns = latency + bytes / rate, by least squares of relative errors. If a busy machine made a small copy slower than a large one, the line
 * falls, or is too flat for a device's rate. Then the fastest copy is the latency, and at least half of the largest one's time is
 * transfer. */
void cal_fit_line(const nnc_point *p, int n, int64_t *latency_ns, int64_t *bytes_s)
{
    const double whole = (double)p[n - 1].ns, bytes = (double)p[n - 1].work;
    double ss = 0, sx = 0, xx = 0, s = 0, x = 0, fastest = whole; /* weights 1 / ns^2 */
    for (int i = 0; i < n; i++) {
        const double t = (double)p[i].ns, b = (double)p[i].work;
        ss += 1 / (t * t);
        sx += b / (t * t);
        xx += b * b / (t * t);
        s += 1 / t;
        x += b / t;
        fastest = fmin(fastest, t);
    }
    const double det = ss * xx - sx * sx;
    double latency = det > 0 ? (s * xx - x * sx) / det : 0,
           slope = det > 0 ? (x * ss - s * sx) / det : 0;
    if (latency < 0 || slope * bytes < whole / 16) {
        latency = fastest;
        slope = fmax(whole - fastest, whole / 2) / bytes;
    }
    *latency_ns = llround(latency);
    *bytes_s = nnc_max64(1, llround(1e9 / slope));
}

nnc_status cal_copies(calibration *c, double share, int least,
    nnc_status (*measure)(calibration *c, int64_t bytes, int64_t *ns))
{
    for (int i = 0; i < CAL_SIZES; i++) {
        bool yes;
        NNC_TRY(cal_has_time(c, share, &yes));
        if (!yes && i >= least)
            break;
        c->copy[i].work = sizes[i];
        NNC_TRY(measure(c, sizes[i], &c->copy[i].ns));
        c->n_copy++;
    }
    qsort(c->copy, (size_t)c->n_copy, sizeof *c->copy, by_bytes);
    if (cal_leads(c))
        cal_fit_line(c->copy, c->n_copy, &c->copy_latency_ns, &c->copy_bytes_s);
    return NNC_OK;
}

static nnc_status one_copy(calibration *c, int64_t bytes, int64_t *ns)
{
    NNC_LOCAL(nnc_text) text = {0};
    cal_copies_write(&text, bytes, 2);
    return measure_text(c, &text, measure_copies, ns);
}

/* ---- collectives ------------------------------------------------------------------------------------------ */

/* REPEATS collectives of tensors of their own; n: participants; bytes: of the whole tensor. Model files have no collectives. */
void cal_group_text(nnc_text *t, nnc_group_op kind, int n, int64_t bytes)
{
    const int64_t whole = bytes / 4 / n * n, each = kind == GROUP_allgather ? whole / n : whole;
    nnc_puts(t, "graph @collectives {\n");
    for (int k = 0; k < REPEATS; k++) {
        for (int d = 0; d < n; d++)
            nnc_printf(t, "  %%x%d.%d = input : f32[%lld]\n", k, d, (long long)each);
        for (int d = 0; d < n; d++)
            nnc_printf(t, "  %%s%d.%d = mul %%x%d.%d, %%x%d.%d device %d loc \"/square\"\n", k, d,
                k, d, k, d, d);
        for (int d = 0; d < n; d++)
            nnc_printf(t, "%s%%y%d.%d", d ? ", " : "  ", k, d);
        nnc_printf(t, " = %s ", nnc_group_op_names[kind]);
        for (int d = 0; d < n; d++)
            nnc_printf(t, "%s%%s%d.%d", d ? ", " : "", k, d);
        nnc_puts(t, " loc \"/collective\"\n");
    }
    nnc_puts(t, "  return ");
    for (int k = 0; k < REPEATS; k++)
        for (int d = 0; d < n; d++)
            nnc_printf(t, "%s%%y%d.%d as \"y%d.%d\"", k + d ? ", " : "", k, d, k, d);
    nnc_puts(t, "\n}\n");
}

static nnc_status measure_group(calibration *c, cal_program *p, void *ctx)
{
    cal_group *g = ctx;
    const nnc_plan *plan = p->a->plan;
    const nnc_cmd *cmd = &plan->cmd[nnc_plan_first(plan, SEC_main)];
    int64_t v[REPEATS * RUNS];
    int n = 0;
    double spread = 0;
    for (int k = -2; k < RUNS; k++) {
        int64_t come = 0, done = 0;
        NNC_TRY(cal_profile(c, p, false));
        for (int i = 0, at = 0; i < p->n_cmd && k >= 0; i++) {
            if (cmd[i].kind != CMD_collective)
                continue;
            come = at ? nnc_max64(come, p->from[i]) : p->from[i];
            done = at ? nnc_max64(done, p->to[i]) : p->to[i];
            if (++at == g->devices) {
                v[n++] = nnc_max64(done - come, 1);
                at = 0;
            }
        }
    }
    g->point[g->n_point].ns = cal_median_of(v, n, &spread);
    g->spread = fmax(g->spread, spread);
    return NNC_OK;
}

/* The next point of a collective. */
static nnc_status one_group(calibration *c, cal_group *g, int64_t bytes)
{
    NNC_LOCAL(nnc_text) text = {0};
    cal_group_text(&text, g->kind, g->devices, bytes);
    return measure_text(c, &text, measure_group, g);
}

/* The points of one collective; *ended: no time is left. */
static nnc_status measure_sizes(calibration *c, cal_group *g, int least,
    nnc_status (*measure)(calibration *c, cal_group *g, int64_t bytes), bool *ended)
{
    for (int i = 0; i < CAL_SIZES; i++) {
        bool yes;
        NNC_TRY(cal_has_time(c, GROUP_SHARE, &yes));
        *ended = !yes;
        if (!yes && i >= least)
            break;
        g->point[i].work = sizes[i] / 4 / g->devices * g->devices * 4;
        NNC_TRY(measure(c, g, sizes[i]));
        g->n_point++;
    }
    qsort(g->point, (size_t)g->n_point, sizeof *g->point, by_bytes);
    return NNC_OK;
}

nnc_status cal_groups(
    calibration *c, int least, nnc_status (*measure)(calibration *c, cal_group *g, int64_t bytes))
{
    static const nnc_group_op kinds[] = {GROUP_allreduce, GROUP_allgather, GROUP_reduce_scatter};
    bool ended = false;
    for (size_t k = 0; k < NNC_COUNT(kinds); k++)
        for (int n = c->devices; n >= 2; n = n > 2 ? 2 : 0) {
            if ((ended && c->n_group) || c->n_group == CAL_GROUPS)
                return NNC_OK;
            cal_group *g = &c->group[c->n_group++];
            *g = (cal_group){.kind = kinds[k], .devices = n};
            NNC_TRY(measure_sizes(c, g, least, measure, &ended));
        }
    return NNC_OK;
}

nnc_status cal_links(calibration *c)
{
    NNC_TRY(cal_copies(c, COPY_SHARE, LEAST_SIZES, one_copy));
    NNC_TRY(runs_and_waits(c));
    return cal_groups(c, LEAST_SIZES, one_group);
}
