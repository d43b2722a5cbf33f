/* check/roofline.c -- the least time of a program's run, and what it is bound by. On a CPU the rates are measured. The target's own numbers
 * are typical of servers: they decide about plans, which must not depend on what else runs. But a printed share of the roofline must be one
 * of what this machine does.
 *
 * Bandwidth: each thread copies its own part of a buffer repeatedly, with plain and with non-temporal stores; the faster of the two counts.
 * Arithmetic: independent chains of multiply-adds in registers. Of several tries the best. */
#include "check/compare.h"
#include "session/session.h"

#include <math.h>
#include <string.h>
#include <time.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { TRIES = 3, CACHE_NS = 1000000, MOST_PARTS = 256, MOST_BYTES = 256 << 20 };

const char *const nnc_level_names[LEVEL__COUNT] = {"L1", "L2", "L3", "memory", "arithmetic"};

/* ---- kept rates -------------------------------------------------------------------------------------- */

static bool key_of(const nnc_env *e, nnc_hash128 *key)
{
    NNC_LOCAL(nnc_text) t = {0};
    const nnc_target *cpu = e->target;
    if (!e->cache || e->n_target != 1 || !cpu->host || cpu->kind != NNC_T_cpu)
        return false;
    nnc_puts(&t, "rates, nnc " NNC_VERSION ", ");
    nnc_target_host_name(&t);
    nnc_printf(&t, ", %d threads, %d cores, caches %lld %lld %lld", cpu->threads, cpu->cores,
        (long long)cpu->l1_bytes, (long long)cpu->l2_bytes, (long long)cpu->l3_bytes);
    *key = nnc_hash(nnc_text_str(&t), t.n);
    return !t.oom;
}

void nnc_rates_open(nnc_rates *r, const nnc_env *e)
{
    nnc_hash128 key;
    NNC_FREED char *entry = NULL;
    size_t n = 0;
    *r = (nnc_rates){0};
    if (key_of(e, &key) && nnc_cache_get(e->cache, "rates", key, &entry, &n) && n == sizeof *r)
        memcpy(r, entry, n);
    r->measured_ns = r->again = 0;
}

void nnc_rates_close(const nnc_rates *r, const nnc_env *e)
{
    nnc_hash128 key;
    nnc_rates keep = *r, before;
    if (!r->changed || !key_of(e, &key))
        return;
    nnc_rates_open(&before, e);
    for (int l = 0; l < LEVEL_arithmetic; l++)
        keep.bytes_s[l] = fmax(keep.bytes_s[l], before.bytes_s[l]);
    keep.flops_s = fmax(keep.flops_s, before.flops_s);
    keep.changed = false;
    nnc_cache_put(e->cache, "rates", key, &keep, sizeof keep);
}

bool nnc_rates_again(nnc_rates *r, double least_ms, double ms)
{
    enum { MOST = 2, LATER_S = 5 };
    const bool later = nnc_now_ns() - r->measured_ns > LATER_S * INT64_C(1000000000),
               again = least_ms > NNC_TOO_FAST * ms && r->since_s && (later || r->again < MOST);
    if (again)
        *r = (nnc_rates){.again = later ? 1 : r->again + 1};
    return again;
}

static void note_measured(nnc_rates *r, bool measured)
{
    if (!measured)
        return;
    r->since_s = r->since_s ? r->since_s : (int64_t)time(NULL);
    r->measured_ns = nnc_now_ns();
    r->changed = true;
}

/* ---- measuring --------------------------------------------------------------------------------------- */

typedef struct copying {
    char *from, *to;
    int64_t bytes; /* of each buffer */
    bool past; /* past the caches */
    bool cached; /* repeated for CACHE_NS */
    double rate[MOST_PARTS];
} copying;

/* Copies past the caches, of addresses and sizes that are multiples of 64. */
static void copy_past(char *to, const char *from, int64_t n)
{
#if defined(__SSE2__)
    for (int64_t i = 0; i < n; i += 64)
        for (int k = 0; k < 64; k += 16)
            _mm_stream_si128((__m128i *)(void *)(to + i + k),
                _mm_load_si128((const __m128i *)(const void *)(from + i + k)));
    _mm_sfence();
#else
    memcpy(to, from, (size_t)n);
#endif
}

static void copy_part(void *ctx, int part, int parts)
{
    copying *c = ctx;
    int64_t begin, end, times = 0, passed = 0;
    nnc_par_range(c->bytes, 64, part, parts, &begin, &end);
    if (end == begin)
        return;
    if (c->cached) /* what it copies comes into the caches */
        memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
    const int64_t start = nnc_now_ns();
    do {
        const int64_t most = c->cached ? nnc_max64((INT64_C(1) << 18) / (end - begin), 1) : 1;
        for (int64_t i = 0; i < most; i++) {
            if (c->past)
                copy_past(c->to + begin, c->from + begin, end - begin);
            else
                memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
            __asm__ volatile("" ::: "memory");
        }
        times += most;
        passed = nnc_now_ns() - start;
    } while (c->cached && passed < CACHE_NS);
    c->rate[part] =
        2.0 * (double)(end - begin) * (double)times * 1e9 / (double)nnc_max64(passed, 1);
}

static double measure(const nnc_target *t, bool cached, int64_t bytes)
{
    NNC_FREED copying *c = nnc_calloc(1, sizeof *c);
    const int parts = (int)nnc_min64(nnc_max64(t->threads, 1), MOST_PARTS);
    double best = 0;
    bytes = nnc_align_up(nnc_max64(bytes / 2, (int64_t)64 * parts), 64);
    char *from = c ? nnc_aligned_alloc(64, (size_t)bytes) : NULL,
         *to = from ? nnc_aligned_alloc(64, (size_t)bytes) : NULL;
    if (to) {
        memset(from, 0, (size_t)bytes);
        memset(to, 0, (size_t)bytes);
        *c = (copying){.from = from, .to = to, .bytes = bytes, .cached = cached};
    }
    for (int i = 0; to && i < 2 * TRIES; i++) {
        double sum = 0;
        c->past = i % 2;
        nnc_par_run(parts, copy_part, c);
        for (int p = 0; p < parts; p++)
            sum += c->rate[p];
        best = fmax(best, sum);
    }
    nnc_free(from);
    nnc_free(to);
    return best;
}

typedef float vector __attribute__((vector_size(64)));
typedef struct computing {
    bool wide; /* vectors of 512 bits */
    double rate[MOST_PARTS];
    volatile float kept[MOST_PARTS];
} computing;

#define STEP(k) x[k] = x[k] * a + b;
#define STEPS(k) STEP(k) STEP((k) + 1) STEP((k) + 2) STEP((k) + 3) STEP((k) + 4) STEP((k) + 5)
/* `times` multiply-adds on each of 12 vectors, which hide the latency of two units. */
#define MULTIPLY_ADD(name, bytes) \
    typedef float name##_vector __attribute__((vector_size(bytes))); \
    NNC_BODY name##_body(int64_t times, float a, float b, float *last) \
    { \
        name##_vector x[12], sum = {0}; \
        for (int k = 0; k < 12; k++) \
            x[k] = sum + (float)k; /* all different, or the compiler would compute one */ \
        for (int64_t i = 0; i < times; i++) { \
            STEPS(0) STEPS(6) \
        } \
        for (int k = 0; k < 12; k++) \
            sum += x[k]; \
        *last = sum[0] + sum[1]; \
    } \
    NNC_DISPATCH(name, (int64_t times, float a, float b, float *last), (times, a, b, last))
MULTIPLY_ADD(multiply_add_512, 64)
MULTIPLY_ADD(multiply_add_256, 32)

static void compute_part(void *ctx, int part, int parts)
{
    enum { TIMES = 4096 };
    computing *c = ctx;
    int64_t done = 0, passed = 0;
    const int64_t start = nnc_now_ns();
    (void)parts;
    do {
        float last;
        (c->wide ? multiply_add_512 : multiply_add_256)(TIMES, 0.999F, 0.001F, &last);
        c->kept[part] = last;
        done += (int64_t)TIMES * 12 * (c->wide ? 16 : 8);
        passed = nnc_now_ns() - start;
    } while (passed < CACHE_NS);
    c->rate[part] = 2.0 * (double)done * 1e9 / (double)nnc_max64(passed, 1);
}

/* FLOP/s in f32 of t's threads together, measured once; the target's where none of the loop's versions is for its CPU. */
static double peak_of(nnc_rates *r, const nnc_target *t)
{
    const bool fast = nnc_cpu_level() > 2 || nnc_target_core(t->core),
               can = t->fma && fast && r->flops_s == 0;
    NNC_FREED computing *m = can ? nnc_calloc(1, sizeof *m) : NULL;
    const int parts = (int)nnc_min64(nnc_max64(t->threads, 1), MOST_PARTS);
    for (int i = 0; m && i < TRIES; i++) {
        double sum = 0;
        m->wide = t->vector_bits >= 512 && nnc_cpu_level() > 3;
        nnc_par_run(parts, compute_part, m);
        for (int p = 0; p < parts; p++)
            sum += m->rate[p];
        r->flops_s = fmax(r->flops_s, sum);
    }
    note_measured(r, m != NULL);
    return r->flops_s > 0 ? r->flops_s : (double)t->flops_f32;
}

/* Bytes that a level holds for all threads together. */
static int64_t size_of(const nnc_target *t, roof_level level)
{
    const int64_t threads = nnc_max64(t->threads, 1), cores = nnc_max64(t->cores, 1);
    return level == LEVEL_l1   ? t->l1_bytes * threads
           : level == LEVEL_l2 ? t->l2_bytes * threads
           : level == LEVEL_l3 ? t->l3_bytes + t->l2_bytes * cores
                               : INT64_MAX;
}

/* The nearest level that holds what a command reads and writes. */
static roof_level level_of(const nnc_target *t, int64_t bytes)
{
    int level = LEVEL_l1;
    while (level < LEVEL_memory && bytes > size_of(t, (roof_level)level))
        level++;
    return (roof_level)level;
}

/* Bytes per second of copies within a level, measured at its first use: in milliseconds, of memory in a tenth of a second. Without memory
 * for the buffers: the target's own number. */
static double rate_of(nnc_rates *r, const nnc_target *t, roof_level level, int64_t bytes)
{
    double *rate = &r->bytes_s[level];
    const bool memory = level == LEVEL_memory;
    if (*rate == 0) {
        *rate = measure(t, !memory,
            memory ? nnc_min64(nnc_max64(bytes, 2 * size_of(t, LEVEL_l3)), MOST_BYTES)
                   : size_of(t, level) / 2);
        note_measured(r, *rate > 0);
    }
    if (*rate == 0)
        *rate = (double)(memory ? t->copy_bytes_s : t->cache_bytes_s);
    return *rate;
}

double nnc_command_least_ns(
    nnc_rates *r, const nnc_plan *p, const nnc_target *t, const nnc_cmd *c, roof_level *bound)
{
    enum { FLOPS = 1000000000 };
    const nnc_call *call = c->kind == CMD_call ? &p->call[c->item] : NULL;
    const nnc_dtype d = call ? (nnc_dtype)call->src.dtype : DT_f32;
    const bool tf32 = call && call->tf32, host = t->kind == NNC_T_cpu && p->n_device == 1;
    double compute = (double)nnc_target_least_ns(t, d, tf32, c->flops, 0);
    if (host && compute > 0) /* the same operations in f32, by the target and as measured */
        compute *=
            1e9 / peak_of(r, t) / (double)nnc_target_least_ns(t, DT_f32, false, FLOPS, 0) * FLOPS;
    const roof_level level = host && !r->uncached ? level_of(t, c->bytes) : LEVEL_memory;
    const double move = !host          ? (double)nnc_target_least_ns(t, d, tf32, 0, c->bytes)
                        : c->bytes > 0 ? (double)c->bytes * 1e9 / rate_of(r, t, level, c->bytes)
                                       : 0;
    *bound = compute > move ? LEVEL_arithmetic : level;
    return fmax(compute, move);
}

void nnc_rates_described(nnc_rates *r, const nnc_target *t, bool simulated)
{
    r->uncached = simulated;
    for (int l = 0; l < LEVEL_arithmetic; l++)
        r->bytes_s[l] = (double)(l == LEVEL_memory ? t->copy_bytes_s : t->cache_bytes_s);
    r->flops_s = (double)t->flops_f32;
}

nnc_roofline nnc_artifact_roofline(
    nnc_env *e, nnc_rates *rates, const nnc_artifact *a, nnc_section last)
{
    const nnc_plan *plan = a->plan;
    nnc_roofline r = {0};
    for (int d = 0; d < plan->n_device; d++) {
        const nnc_target *t = nnc_target_on(e->target, e->n_target, d);
        double ns[LEVEL__COUNT] = {0}, all = 0;
        int most = 0;
        for (int i = nnc_plan_first(plan, SEC_main); i < plan->end[last]; i++)
            if (plan->cmd[i].device == d) {
                roof_level bound;
                const double least = nnc_command_least_ns(rates, plan, t, &plan->cmd[i], &bound);
                ns[bound] += least;
            }
        for (int i = 0; i < LEVEL__COUNT; i++) {
            all += ns[i];
            most = ns[i] > ns[most] ? i : most;
        }
        if (all * 1e-6 <= r.ms)
            continue;
        r.ms = all * 1e-6;
        r.level = (roof_level)most;
        r.bound = nnc_level_names[most];
        r.rate = most == LEVEL_arithmetic ? rates->flops_s : rates->bytes_s[most];
    }
    r.ms *= (double)a->chunks;
    return r;
}

void nnc_rooflines(comparison *c)
{
    nnc_rates_open(&c->rates, c->env);
    for (int i = 0; i < c->n; i++)
        c->p[i].roofline = nnc_artifact_roofline(c->env, &c->rates, c->p[i].a, c->p[i].last);
    nnc_rates_close(&c->rates, c->env);
}
