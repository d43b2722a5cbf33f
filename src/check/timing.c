/* check/timing.c -- times programs against each other.
 *
 * Clock rates and other load drift by more than many differences of interest. So compared programs run alternately within the same seconds,
 * a burst of runs each. A burst starts with a warm-up run that is not counted, since it finds caches, TLBs and open memory pages as another
 * program left them. That takes time, as much for both programs, and would hide their difference. The other runs of a burst show the steady
 * state.
 *
 * A round is one burst of each program; every other round runs in reverse order, so that no program always precedes another. The confidence
 * interval is computed from pairs. Fused and unfused bursts of one round are adjacent in time, so drift affects both. The ratios of their
 * medians vary less than single runs. */
#include "check/check.h"
#include "check/compare.h"
#include "report/report.h"
#include "session/session.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    BURST_NS = 30000000,
    BURST_RUNS = 3,
    BURSTS =
        9, /* 6 pairs give a 95 % interval, from the smallest to the largest ratio; with 9 a single outlier no longer determines its
            * bounds */
    WARMUP_NS = 50000000,
    WARMUP_RUNS = 100,
    DEFAULT_MS = 1000,
    STEP_BURSTS = 6, /* the minimum for an interval; each is one run of a slow step */
    STRETCH =
        7, /* factor on the default duration that a slow model may use to reach BURSTS bursts: 7 of one that takes 300 ms */
    STEP_STRETCH = 8 /* the same for a step, whose default is a quarter, and STEP_BURSTS */
};

/* Amount of timing of a program: exactly `runs`, or when that is 0 at least `ns`, and up to most_ns to reach `bursts`. */
typedef struct quota {
    int64_t runs, ns, most_ns;
    int bursts, burst_runs; /* burst_runs: minimum runs of a burst */
} quota;

/* Steps get a quarter of the time. */
static quota quota_of(const comparison *c, const program *p)
{
    int ms = c->o->duration_ms > 0 ? c->o->duration_ms : DEFAULT_MS;
    bool side = p == &c->p[c->unfused] || p == &c->p[c->fused], stretch = c->o->duration_ms <= 0;
    int64_t ns = (int64_t)ms * 1000000 / (side ? 1 : 4);
    int64_t most_ns = (side ? STRETCH : STEP_STRETCH) * ns;
    return (quota){c->o->iterations, ns, stretch ? most_ns : ns, side ? BURSTS : STEP_BURSTS,
        side ? BURST_RUNS : 1};
}

static bool has_enough(const timed *p, quota q)
{
    if (q.runs)
        return p->run.n >= q.runs;
    return p->run.spent_ns >= q.ns && p->n_burst > 0 &&
           (p->n_burst >= q.bursts || p->run.spent_ns >= q.most_ns);
}

static bool burst_ends(const timed *p, quota q, int ran, int64_t spent)
{
    if (q.runs && (p->run.n >= q.runs || ran >= (q.runs + BURSTS - 1) / BURSTS))
        return true;
    int64_t ns = q.runs ? BURST_NS : nnc_min64(BURST_NS, q.ns / BURSTS);
    return ran >= q.burst_runs && spent >= ns;
}

/* ---- runs -------------------------------------------------------------------------------------------- */

/* A program, and which of its times is measured. */
typedef struct subject {
    program *p;
    timed *t;
    bool io;
} subject;

enum { LEAST_RUNS = 3 };

typedef enum way { ALONE, STEP, WITH_COPIES } way; /* main, main and step, main and its copies */

static way way_of(const nnc_compare_options *o, bool io)
{
    return io ? WITH_COPIES : o->training ? STEP : ALONE;
}

/* One run, or with copies as many as `want` in a pipeline. ns[0..*n): their times. */
static nnc_status run_some(
    nnc_session *s, way how, int64_t want, int64_t *ns, int *n, nnc_sink *sink)
{
    if (how == WITH_COPIES) {
        *n = (int)nnc_min64(NNC_STREAM_RUNS, want);
        return nnc_session_stream(s, *n, ns, sink);
    }
    int64_t t0 = nnc_now_ns();
    NNC_TRY(how == STEP ? nnc_session_step(s, sink) : nnc_session_run(s, sink));
    *ns = nnc_now_ns() - t0;
    *n = 1;
    return NNC_OK;
}

/* Returns the array with room for one more element; NULL: out of memory, and the array is unchanged. */
static void *grown(void *at, int n, int *cap, size_t size)
{
    if (n < *cap)
        return at;
    int more = *cap ? *cap * 2 : 64;
    void *p = nnc_realloc(at, (size_t)more * size);
    *cap = p ? more : *cap;
    return p;
}

nnc_status nnc_times_add(nnc_times *t, const int64_t *ns, int n, nnc_sink *sink)
{
    for (int i = 0; i < n; i++) {
        int64_t *at = grown(t->ns, t->n, &t->cap, sizeof *at);
        NNC_NEED(at, sink);
        t->ns = at;
        t->ns[t->n++] = ns[i];
        t->spent_ns += ns[i];
    }
    return NNC_OK;
}

/* Runs `want` times; 0: for WARMUP_NS, negative: not at all. *done: number of runs. */
static nnc_status warm_up(nnc_session *s, way how, int want, int64_t *done, nnc_sink *sink)
{
    int64_t ns[NNC_STREAM_RUNS], spent = 0;
    if (want < 0)
        return NNC_OK;
    do {
        int n;
        NNC_TRY(run_some(s, how, want ? want - *done : LEAST_RUNS, ns, &n, sink));
        for (int i = 0; i < n; i++)
            spent += ns[i];
        *done += n;
    } while (want ? *done < want : spent < WARMUP_NS && *done < WARMUP_RUNS);
    if (how == WITH_COPIES)
        nnc_session_stream_reset(s);
    return NNC_OK;
}

static void sort_times(nnc_times *t, int from)
{
    if (t->n > from)
        nnc_sort64(t->ns + from, (size_t)(t->n - from));
}

double nnc_times_at(const nnc_times *t, double share)
{
    if (!t->n)
        return NAN;
    double x = share * (t->n - 1);
    int i = (int)x, j = i + 1 < t->n ? i + 1 : i;
    return ((double)t->ns[i] + (double)(t->ns[j] - t->ns[i]) * (x - i)) * 1e-6;
}

double nnc_times_mean(const nnc_times *t)
{
    return t->n ? (double)t->spent_ns * 1e-6 / t->n : NAN;
}

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* How long threads of this process have been ready and waited for a core; NaN: the kernel does not count it (CONFIG_SCHED_INFO). */
static double delay_ns(void)
{
    DIR *d = opendir("/proc/self/task");
    double sum = d ? 0 : NAN;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300];
        long long ns;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        FILE *f = *e->d_name == '.' ? NULL : fopen(path, "re");
        if (f)
            sum += fscanf(f, "%*s %lld", &ns) == 1 ? (double)ns : NAN;
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return sum;
}

/* Do nnc's threads leave each other a core? Several streams have more threads than their teams. */
static bool has_cores(const nnc_artifact *a)
{
    const nnc_plan *p = a->plan;
    return p->n_device == 1 && p->device[0].streams == 1 && !nnc_plan_on_gpu(&p->device[0]) &&
           nnc_artifact_threads(a) <= nnc_cpu_count();
}

nnc_status nnc_session_time(
    nnc_session *s, const nnc_compare_options *o, bool io, nnc_times *t, nnc_sink *sink)
{
    const double cpu = (double)cpu_ns(), delay = delay_ns();
    const int64_t goal = (o->duration_ms ? o->duration_ms : DEFAULT_MS) * INT64_C(1000000);
    int64_t ns[NNC_STREAM_RUNS], warmed = 0;
    int n;
    if (io)
        NNC_TRY(nnc_session_stream_open(s, sink));
    NNC_TRY(warm_up(s, way_of(o, io), o->warmup, &warmed, sink));
    while (!(o->stop && *o->stop) &&
           (o->iterations ? t->n < o->iterations : t->n < LEAST_RUNS || t->spent_ns < goal)) {
        int64_t fit = t->n ? (goal - t->spent_ns) / (t->spent_ns / t->n + 1) : 0;
        int64_t want = o->iterations ? o->iterations - t->n : nnc_max64(fit, LEAST_RUNS);
        NNC_TRY(run_some(s, way_of(o, io), want, ns, &n, sink));
        NNC_TRY(nnc_times_add(t, ns, n, sink));
    }
    sort_times(t, 0);
    const double ran = (double)cpu_ns() - cpu, waited = delay_ns() - delay;
    t->cpu_share = has_cores(s->a)
                       ? ran / (ran + (waited < 0 ? 0 : waited)) /* < 0: a thread ended */
                       : NAN;
    return NNC_OK;
}

static void say_burst(const comparison *c, const subject *s, quota q)
{
    char detail[96];
    const program *p = s->p;
    const timed *t = s->t;
    const char *name = p->name ? p->name : "step";
    const char *pass = p->name ? "" : p->pass;
    const char *plus = p->name ? "" : " + ";
    if (q.runs)
        snprintf(detail, sizeof detail, "%s%s%s, run %d of %lld", name, plus, pass, t->run.n + 1,
            (long long)q.runs);
    else
        nnc_snprintf(detail, sizeof detail, "%s%s%s, %d run%s, %.1f of %.1f s", name, plus, pass,
            t->run.n, t->run.n == 1 ? "" : "s", (double)t->run.spent_ns * 1e-9,
            (double)q.ns * 1e-9);
    nnc_compare_say(c, s->io ? "timing with copies" : "timing", detail);
}

/* Number of runs in a burst with copies, from the times so far; the first upload and the last download overlap with no run. */
static int64_t row_length(const timed *t, quota q)
{
    if (q.runs)
        return nnc_min64(q.runs - t->run.n, nnc_max64(BURSTS, (q.runs + BURSTS - 1) / BURSTS));
    int64_t each = t->run.n ? t->run.spent_ns / t->run.n + 1 : BURST_NS;
    return nnc_max64(q.burst_runs, nnc_min64(BURST_NS, q.ns / BURSTS) / each);
}

static nnc_status timed_runs(comparison *c, const subject *s, quota q)
{
    timed *t = s->t;
    int64_t ns[NNC_STREAM_RUNS], spent = 0;
    int first = t->run.n, n;
    do {
        NNC_TRY(run_some(s->p->s, way_of(c->o, s->io), row_length(t, q), ns, &n, c->sink));
        NNC_TRY(nnc_times_add(&t->run, ns, n, c->sink));
        for (int i = 0; i < n; i++)
            spent += ns[i];
    } while (!burst_ends(t, q, t->run.n - first, spent));
    return NNC_OK;
}

/* One burst. `again`: the program also ran last, so that caches are warm. */
static nnc_status burst(comparison *c, const subject *s, quota q, bool again)
{
    timed *t = s->t;
    int64_t ns[NNC_STREAM_RUNS];
    int first = t->run.n, n;
    say_burst(c, s, q);
    if (!t->n_untimed) {
        NNC_TRY(warm_up(s->p->s, way_of(c->o, s->io), c->o->warmup, &t->n_untimed, c->sink));
    } else if (!again && !s->io) { /* a pipeline starts with an untimed run of its own */
        NNC_TRY(run_some(s->p->s, way_of(c->o, false), 1, ns, &n, c->sink));
        t->n_untimed++;
    }
    NNC_TRY(timed_runs(c, s, q));
    double *at = grown(t->burst_ms, t->n_burst, &t->cap_burst, sizeof *at);
    NNC_NEED(at, c->sink);
    t->burst_ms = at;
    sort_times(&t->run, first);
    const nnc_times last = {.ns = t->run.ns + first, .n = t->run.n - first};
    t->burst_ms[t->n_burst++] = nnc_times_at(&last, 0.5);
    return NNC_OK;
}

/* ---- pairs ------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bounds of the sign test's confidence interval of a median: the k-th smallest and the k-th largest of n. k is the largest with P(X < k)
 * <= 2.5 %, X the heads among n coin flips (W. J. Conover, Practical Nonparametric Statistics, 3.2). Returns k; 0: n is too small. */
static int rank_of_bound(int n)
{
    if (n > 1000) /* 2^-n underflows; the normal distribution is accurate enough */
        return (int)((n - 1.96 * sqrt(n)) / 2);
    double exactly = pow(0.5, n), fewer = 0;
    int k = 0;
    for (; fewer + exactly <= 0.025; k++) {
        fewer += exactly;
        exactly *= (double)(n - k) / (k + 1);
    }
    return k;
}

nnc_ratio nnc_pairs(double *ratio, int n)
{
    int k = rank_of_bound(n);
    nnc_ratio p = {n, NAN, NAN, NAN};
    qsort(ratio, (size_t)n, sizeof *ratio, by_value);
    if (n)
        p.ratio = (ratio[(n - 1) / 2] + ratio[n / 2]) / 2;
    if (k) {
        p.low = ratio[k - 1];
        p.high = ratio[n - k];
    }
    return p;
}

/* Ratios of the times of `now` to those of `before`, paired by rounds. */
static nnc_status pair_bursts(
    const timed *before, const timed *now, nnc_ratio *paired, nnc_sink *sink)
{
    int n = before->n_burst < now->n_burst ? before->n_burst : now->n_burst;
    NNC_FREED double *ratio = nnc_malloc((size_t)(n + 1) * sizeof *ratio);
    NNC_NEED(ratio, sink);
    for (int i = 0; i < n; i++)
        ratio[i] = now->burst_ms[i] / before->burst_ms[i];
    *paired = nnc_pairs(ratio, n);
    return NNC_OK;
}

/* Pairs fused with unfused, each step with the one before it, and variants with fused, where they ran alternately. */
static nnc_status pair_all(comparison *c, bool io)
{
    program *p = c->p;
    NNC_TRY(pair_bursts(&p[c->unfused].t[io], &p[c->fused].t[io], &c->paired[io], c->sink));
    for (int i = 1; i < c->n; i++)
        NNC_TRY(pair_bursts(
            &p[p[i].variant ? c->fused : i - 1].t[io], &p[i].t[io], &p[i].paired[io], c->sink));
    return NNC_OK;
}

/* ---- parts of a training step ------------------------------------------------------------------------ */

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

nnc_status nnc_time_parts(comparison *c, program **p, int n)
{
    enum { LEAST = 3, MOST = 15, SLOW_MS = 50 };
    double ms[MAX_PROGRAMS][PART__COUNT][MOST];
    const double each = nnc_times_at(&p[0]->t[0].run, 0.5), fit = 1000 / fmax(each, 1);
    const int most = c->o->iterations ? (int)nnc_min64(c->o->iterations, MOST) : MOST,
              rounds = (int)fmin(fmax(fit, LEAST), most);
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < n; k++) {
            const int i = r % 2 ? n - 1 - k : k;
            nnc_shares x = {0};
            if (!p[i]->name)
                continue;
            nnc_compare_say(c, "timing the parts of a step", p[i]->name);
            if (each < SLOW_MS) /* caches hold another program's data */
                NNC_TRY(nnc_session_step(p[i]->s, c->sink));
            NNC_TRY(nnc_session_shares(p[i]->s, SEC_main, SEC_step, &x, c->sink));
            for (int part = 0; part < PART__COUNT; part++)
                ms[i][part][r] = (double)x.part[part] * 1e-9;
        }
    for (int i = 0; i < n; i++)
        for (int part = 0; p[i]->name && part < PART__COUNT; part++)
            p[i]->part_ms[part] = median(ms[i][part], rounds);
    return NNC_OK;
}

nnc_status nnc_time(comparison *c, program **p, int n, bool io)
{
    const program *last = NULL;
    bool more = true;
    for (int round = 0; more; round++) {
        more = false;
        for (int i = 0; i < n; i++) {
            program *now = p[round % 2 ? n - 1 - i : i];
            subject s = {now, &now->t[io], io};
            quota q = quota_of(c, now);
            if (has_enough(s.t, q))
                continue;
            NNC_TRY(burst(c, &s, q, now == last));
            last = now;
            more |= !has_enough(s.t, q);
        }
    }
    for (int i = 0; i < n; i++) {
        sort_times(&p[i]->t[io].run, 0);
        if (io)
            p[i]->io = nnc_session_stream_report(p[i]->s);
    }
    return n == c->n && n > 1 ? pair_all(c, io) : NNC_OK;
}
