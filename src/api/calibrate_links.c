/* api/calibrate_links.c -- copies between devices, and collectives, as plans do them. A copy is the time from the end of a command on one
 * device to the start of the next one on another: data, event and wake-up. A collective is the time from when its last participant comes
 * to when the last one is done. */
#include "api/calibrate.h"
#include <math.h>
#include <string.h>

enum { HOPS = 9, REPEATS = 4, RUNS = 9 };
static const double COPY_SHARE = 0.85, GROUP_SHARE = 1;
static const int64_t sizes[CAL_SIZES] = {4 << 10, 64 << 10, 512 << 10, 2 << 20, 8 << 20};

/* ---- copies ---------------------------------------------------------------------------------------------- */

/* A tensor that goes back and forth between devices 0 and 1, squared at each. */
static void copy_text(nnc_text *t, int64_t bytes)
{
    nnc_printf(t, "graph @copies {\n  %%0 = input : f32[%lld]\n", (long long)(bytes / 4));
    for (int i = 0; i < HOPS; i++)
        nnc_printf(t, "  %%%d = mul %%%d, %%%d device %d loc \"/hop%d\"\n", i + 1, i, i, i % 2, i);
    nnc_printf(t, "  return %%%d as \"y\"\n}\n", HOPS);
}

static bool is_work(const nnc_cmd *c)
{
    return c->kind == CMD_kernel || c->kind == CMD_call;
}

/* Over all hops and runs: the median time from one kernel to the next. */
static nnc_status measure_copies(calibration *c, cal_program *p, void *ctx)
{
    nnc_point *out = ctx;
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
    out->ns = cal_median_of(hop, n, &spread);
    c->copy_spread = fmax(c->copy_spread, spread);
    return NNC_OK;
}

/* Latency and rate with the least relative errors: ns = latency + bytes / rate. */
static void fit_copies(calibration *c)
{
    double ss = 0, sx = 0, xx = 0, s = 0, x = 0; /* weights 1 / ns^2 */
    for (int i = 0; i < c->n_copy; i++) {
        const double t = (double)c->copy[i].ns, b = (double)c->copy[i].work;
        ss += 1 / (t * t);
        sx += b / (t * t);
        xx += b * b / (t * t);
        s += 1 / t;
        x += b / t;
    }
    const double det = ss * xx - sx * sx;
    double latency = det > 0 ? (s * xx - x * sx) / det : 0, slope = det > 0 ? (x * ss - s * sx) / det : 0;
    if (slope <= 0 || latency < 0) { /* the ends of the table */
        const nnc_point *big = &c->copy[c->n_copy - 1];
        latency = (double)c->copy[0].ns;
        slope = fmax((double)(big->ns - c->copy[0].ns), 1) / (double)big->work;
    }
    c->copy_latency_ns = llround(latency);
    c->copy_bytes_s = nnc_max64(1, llround(1e9 / slope));
}

static nnc_status copies(calibration *c)
{
    for (int i = 0; i < CAL_SIZES; i++) {
        NNC_LOCAL(nnc_text) text = {0};
        cal_program p = {0};
        bool yes;
        NNC_TRY(cal_has_time(c, COPY_SHARE, &yes));
        if (!yes && i >= 3)
            break;
        copy_text(&text, sizes[i]);
        c->copy[i].work = sizes[i];
        nnc_status st = cal_load(c, &text, c->devices, false, false, &p);
        if (!st)
            st = cal_lead(c, &p, measure_copies, &c->copy[i]);
        cal_unload(&p);
        NNC_TRY(st);
        c->n_copy++;
    }
    if (cal_leads(c))
        fit_copies(c);
    return NNC_OK;
}

/* ---- collectives ------------------------------------------------------------------------------------------ */

/* REPEATS collectives of tensors of their own; n: participants; bytes: of the whole tensor. */
static void group_text(nnc_text *t, nnc_group_op kind, int n, int64_t bytes)
{
    static const char *const op[GROUP__COUNT] = {"allreduce", "reduce_scatter", "allgather"};
    const int64_t whole = bytes / 4 / n * n, each = kind == GROUP_allgather ? whole / n : whole;
    nnc_puts(t, "graph @collectives {\n");
    for (int k = 0; k < REPEATS; k++) {
        for (int d = 0; d < n; d++)
            nnc_printf(t, "  %%x%d.%d = input : f32[%lld]\n", k, d, (long long)each);
        for (int d = 0; d < n; d++)
            nnc_printf(t, "  %%s%d.%d = mul %%x%d.%d, %%x%d.%d device %d loc \"/square\"\n", k, d, k,
                d, k, d, d);
        for (int d = 0; d < n; d++)
            nnc_printf(t, "%s%%y%d.%d", d ? ", " : "  ", k, d);
        nnc_printf(t, " = %s ", op[kind]);
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

typedef struct measured_group {
    int n; /* participants */
    nnc_point *out;
    double *spread;
} measured_group;

static nnc_status measure_group(calibration *c, cal_program *p, void *ctx)
{
    const measured_group *g = ctx;
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
            if (++at == g->n) {
                v[n++] = nnc_max64(done - come, 1);
                at = 0;
            }
        }
    }
    g->out->ns = cal_median_of(v, n, &spread);
    *g->spread = fmax(*g->spread, spread);
    return NNC_OK;
}

/* The points of one collective; *ended: no time is left. */
static nnc_status one_group(calibration *c, cal_group *g, bool *ended)
{
    for (int i = 0; i < CAL_SIZES; i++) {
        NNC_LOCAL(nnc_text) text = {0};
        cal_program p = {0};
        bool yes;
        NNC_TRY(cal_has_time(c, GROUP_SHARE, &yes));
        *ended = !yes;
        if (!yes && i >= 2)
            return NNC_OK;
        group_text(&text, g->kind, g->devices, sizes[i]);
        g->point[i].work = sizes[i] / 4 / g->devices * g->devices * 4;
        measured_group m = {g->devices, &g->point[i], &g->spread};
        nnc_status st = cal_load(c, &text, c->devices, false, false, &p);
        if (!st)
            st = cal_lead(c, &p, measure_group, &m);
        cal_unload(&p);
        NNC_TRY(st);
        g->n_point++;
    }
    return NNC_OK;
}

nnc_status cal_links(calibration *c)
{
    static const nnc_group_op kinds[] = {GROUP_allreduce, GROUP_allgather, GROUP_reduce_scatter};
    bool ended = false;
    NNC_TRY(copies(c));
    for (size_t k = 0; k < NNC_COUNT(kinds); k++)
        for (int n = c->devices; n >= 2; n = n > 2 ? 2 : 0) {
            if ((ended && c->n_group) || c->n_group == CAL_GROUPS)
                return NNC_OK;
            cal_group *g = &c->group[c->n_group++];
            *g = (cal_group){.kind = kinds[k], .devices = n};
            NNC_TRY(one_group(c, g, &ended));
        }
    return NNC_OK;
}
