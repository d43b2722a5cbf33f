/* bench/device/measure.c -- times one loaded model. Four times of a run, because they answer four questions:
 *
 *     waited   the host waits for each run: what one request takes, launches and the wake-up included
 *     queued   runs are given one after the other and waited for together: what the device takes where the host does not hold it up
 *     copied   inputs go up from the host's (pageable) memory and outputs come back, each run
 *     streamed the same from pinned memory, copies overlapping with other runs' computing (--io=include)
 *
 * Each is the median of bursts; a burst lasts about a fifth of the duration, and runs enough to drown the clock. */
#include "measure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BURSTS = 5, MOST_RUNS = 5000, WARM_RUNS = 3 };

/* Submits a run; of a training graph, a step. */
static nnc_status submit(nnc_session *s, nnc_sink *sink)
{
    return s->plan->n_update ? nnc_exec_step(s->exec, sink) : nnc_exec_run(s->exec, sink);
}

typedef nnc_status burst(nnc_session *s, void *ctx, int n, nnc_sink *sink);

static nnc_status waited(nnc_session *s, void *ctx, int n, nnc_sink *sink)
{
    (void)ctx;
    for (int i = 0; i < n; i++)
        NNC_TRY(nnc_session_step(s, sink));
    return NNC_OK;
}

static nnc_status queued(nnc_session *s, void *ctx, int n, nnc_sink *sink)
{
    (void)ctx;
    for (int i = 0; i < n; i++)
        NNC_TRY(submit(s, sink));
    return nnc_exec_sync(s->exec, sink);
}

static nnc_status copied(nnc_session *s, void *ctx, int n, nnc_sink *sink)
{
    const measure_data *d = ctx;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < s->plan->n_input; k++)
            NNC_TRY(nnc_exec_upload(s->exec, k, d->in[k]));
        NNC_TRY(submit(s, sink));
        for (int k = 0; k < s->plan->n_output; k++)
            NNC_TRY(nnc_exec_download(s->exec, k, d->out[k]));
        NNC_TRY(nnc_exec_sync(s->exec, sink));
    }
    return NNC_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static nnc_status once(nnc_session *s, burst *b, void *ctx, int n, double *ms, nnc_sink *sink)
{
    int64_t t0 = nnc_now_ns();
    NNC_TRY(b(s, ctx, n, sink));
    *ms = (double)(nnc_now_ns() - t0) * 1e-6;
    return NNC_OK;
}

/* Runs of a burst: what one takes is asked of a few, the first of which may be the slowest by far. */
static nnc_status runs_of(nnc_session *s, burst *b, void *ctx, int ms, int *n, nnc_sink *sink)
{
    double one = INFINITY, spent = 0;
    for (int i = 0; i < WARM_RUNS && (i < 1 || spent < 4 * ms); i++) {
        double t;
        NNC_TRY(once(s, b, ctx, 1, &t, sink));
        one = fmin(one, t);
        spent += t;
    }
    *n = (int)fmax(1, fmin(MOST_RUNS, (double)ms / BURSTS / fmax(one, 1e-4)));
    return NNC_OK;
}

static nnc_status timed(
    nnc_session *s, burst *b, void *ctx, int ms, measure_time *t, nnc_sink *sink)
{
    double at[BURSTS], spent = 0;
    int n, k = 0;
    NNC_TRY(runs_of(s, b, ctx, ms, &n, sink));
    while (k < BURSTS && (k < 1 || spent < 3 * ms)) {
        NNC_TRY(once(s, b, ctx, n, &at[k], sink));
        spent += at[k++];
    }
    qsort(at, (size_t)k, sizeof *at, by_value);
    *t = (measure_time){at[k / 2] / n, at[0] / n, at[k - 1] / n, n * k};
    return NNC_OK;
}

/* Energy of at least `ms` of queued runs, by the GPU's own counter, which moves every 20 to 100 ms. */
static nnc_status energy(nnc_session *s, const power *p, int ms, measured *m, nnc_sink *sink)
{
    int n = (int)fmax(1, fmin(1e6, 20 / fmax(m->queued.median_ms, 1e-4)));
    int64_t runs = 0, t0 = nnc_now_ns(), end = t0 + (int64_t)ms * 1000000;
    double j = power_joules(p);
    m->watts = m->mhz = NAN;
    while (nnc_now_ns() < end) {
        NNC_TRY(queued(s, NULL, n, sink));
        runs += n;
        if (isnan(m->watts) && nnc_now_ns() > t0 + (end - t0) / 2) {
            m->watts = power_watts(p);
            m->mhz = power_mhz(p, 1);
        }
    }
    double seconds = (double)(nnc_now_ns() - t0) * 1e-9;
    m->joules = (power_joules(p) - j) / (double)runs;
    if (isfinite(m->joules))
        m->watts = m->joules * (double)runs / seconds;
    return NNC_OK;
}

nnc_status measure(
    nnc_session *s, const measure_data *d, const measure_how *how, measured *m, nnc_sink *sink)
{
    m->joules = m->watts = m->mhz = NAN;
    int64_t t0 = nnc_now_ns();
    NNC_TRY(nnc_session_step(s, sink));
    m->first_ms = (double)(nnc_now_ns() - t0) * 1e-6;
    for (t0 = nnc_now_ns(); nnc_now_ns() < t0 + (int64_t)how->warm_ms * 1000000;)
        NNC_TRY(queued(s, NULL, 1, sink));
    NNC_TRY(timed(s, waited, NULL, how->ms, &m->waited, sink));
    NNC_TRY(timed(s, queued, NULL, how->ms, &m->queued, sink));
    if (how->copies)
        NNC_TRY(timed(s, copied, (void *)d, how->ms, &m->copied, sink));
    if (how->power && how->power->nvml)
        NNC_TRY(energy(s, how->power, how->energy_ms, m, sink));
    return NNC_OK;
}

/* s was made ready by nnc_session_stream_open. */
nnc_status measure_streamed(nnc_session *s, int ms, measure_time *t, nnc_sink *sink)
{
    int64_t ns[NNC_STREAM_RUNS];
    double at[BURSTS];
    int64_t t0 = nnc_now_ns();
    NNC_TRY(nnc_session_stream(s, 4, ns, sink));
    double one = (double)(nnc_now_ns() - t0) * 1e-6 / 5;
    int n = (int)fmax(2, fmin(NNC_STREAM_RUNS, (double)ms / BURSTS / fmax(one, 1e-4))), k = 0;
    for (double spent = 0; k < BURSTS && (k < 1 || spent < 3 * ms); k++) {
        at[k] = 0;
        NNC_TRY(nnc_session_stream(s, n, ns, sink));
        for (int i = 0; i < n; i++)
            at[k] += (double)ns[i] * 1e-6 / n;
        spent += at[k] * (n + 1);
    }
    qsort(at, (size_t)k, sizeof *at, by_value);
    *t = (measure_time){at[k / 2], at[0], at[k - 1], n * k};
    return NNC_OK;
}
