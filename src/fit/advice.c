/* fit/advice.c -- what would fit where a model does not: a way to compute results again, a smaller batch, more devices, 16-bit
 * contractions. Each is planned, without machine code, before it is offered. */
#include "fit/fit.h"
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include <stdio.h>
#include <string.h>

enum {
    MOST_ACCUMULATED = 1000000, /* of --accumulate, in train_settings.c */
    DIVISORS = 1024,
    MOST_SPLIT = 8 /* devices */
};

typedef struct advice {
    nnc_env *e;
    const nnc_compile_options
        *o; /* without functions that are told of passes, and without a budget */
    const nnc_model *m;
    const nnc_reopen *other;
    int64_t budget; /* bytes of a device; -1: its memory */
    bool step;
    int n; /* of what was offered */
    nnc_text *t;
    nnc_sink *sink; /* of failed attempts */
} advice;

/* The memory that a plan needs, and whether it fits. */
typedef struct need {
    int64_t bytes, ns, nccl;
    bool fits;
} need;

/* Bytes of NCCL's buffers on the device that has the most. */
static int64_t nccl_of(const nnc_env *e, const nnc_plan *p)
{
    int64_t most = 0;
    for (int d = 0; d < p->n_device; d++)
        most = nnc_max64(most, nnc_nccl_bytes(e, p, d));
    return most;
}

/* Plans m, as usual or within a budget. */
static nnc_status plan(const advice *v, const nnc_model *m, const nnc_compile_options *o, need *n)
{
    NNC_OWNED(nnc_artifact) *a = NULL;
    NNC_TRY(nnc_plan_model(v->e, m, o, false, &a, v->sink));
    nnc_plan_needs(v->e, a->plan, &n->bytes, &n->ns);
    n->nccl = nccl_of(v->e, a->plan);
    n->fits = v->budget >= 0 ? n->bytes <= v->budget : nnc_fits_devices(v->e, a);
    return NNC_OK;
}

static void begin(advice *v, const char *flags)
{
    nnc_printf(v->t, "%s%s (", v->n++ ? "; " : "", flags);
}

/* The device's memory as a budget. One target only: several share it in ways that a budget does not know. */
static void offer_budget(advice *v, const need *usual)
{
    char text[32];
    nnc_compile_options o = *v->o;
    need n = {0};
    if (!v->step || v->budget >= 0 || v->e->n_target != 1)
        return;
    snprintf(text, sizeof text, "%lld", (long long)nnc_device_room(v->e, 0));
    o.memory_budget = text;
    if (plan(v, v->m, &o, &n) || !n.fits)
        return;
    snprintf(text, sizeof text, "--memory-budget=%lld", (long long)n.bytes);
    begin(v, text);
    nnc_put_bytes(v->t, n.bytes);
    nnc_put_slowdown(v->t, n.ns, usual->ns);
    nnc_puts(v->t, ")");
}

static int64_t batch_of(const nnc_model *m)
{
    for (uint32_t i = 0; i < m->n_node; i++)
        if (m->node[i].op == OP_input) {
            const nnc_type *t = nnc_typeof(m, m->node[i].out);
            return t->rank ? t->dim[0] : 0;
        }
    return 0;
}

/* Plans the model for a batch, with so many batches a step (`times` as many as now). */
static nnc_status plan_batch(const advice *v, int64_t batch, int64_t times, need *n)
{
    NNC_OWNED(nnc_graph) *m = NULL;
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)batch);
    const nnc_arg arg = {"batch", text};
    const nnc_reopening how = {
        .arg = &arg, .n_arg = 1, .accumulate = (int)(times * v->other->accumulate)};
    NNC_TRY(v->other->open(v->other->ctx, &how, &m, v->sink));
    if (batch_of(m) != batch)
        return NNC_E_USAGE; /* the arg is something else */
    return plan(v, m, v->o, n);
}

static void put_batch(advice *v, int64_t batch, int64_t times, const need *n)
{
    char text[80];
    int end = snprintf(text, sizeof text, "--set batch=%lld", (long long)batch);
    if (times > 1)
        snprintf(text + end, sizeof text - (size_t)end, " --accumulate=%lld",
            (long long)(times * v->other->accumulate));
    begin(v, text);
    nnc_put_bytes(v->t, n->bytes);
    nnc_puts(v->t, times > 1 ? ", as many samples a step)"
                   : v->step ? ", fewer samples a step)"
                             : ")");
}

/* Offers the largest of some batches that fits; accumulate: with as many samples a step as now. False: none does. */
static bool offer_one_of(advice *v, const int64_t *size, int n, int64_t all, bool accumulate)
{
    need at = {0}, best = {0};
    int low = 0;
    for (int high = n; low < high;) { /* size[0 .. low) fit, size[high .. n) do not */
        const int k = low + (high - low) / 2;
        if (plan_batch(v, size[k], accumulate ? all / size[k] : 1, &at))
            return false;
        low = at.fits ? k + 1 : low;
        high = at.fits ? high : k;
        best = at.fits ? at : best;
    }
    if (low)
        put_batch(v, size[low - 1], accumulate ? all / size[low - 1] : 1, &best);
    return low > 0;
}

/* Divisors of all, ascending, that are less than it by a factor that --accumulate takes. At most n, the largest. */
static int divisors(int64_t all, int64_t most, int64_t *size, int n)
{
    int begin = n;
    for (int64_t times = 2; times <= most && times <= all && begin; times++)
        if (all % times == 0)
            size[--begin] = all / times;
    memmove(size, size + begin, (size_t)(n - begin) * sizeof *size);
    return n - begin;
}

/* Smaller batches: for a step divisors of its batch, which accumulated are as many samples. That takes one more number for each weight.
 * Otherwise powers of two. */
static void offer_batch(advice *v)
{
    const int64_t all = batch_of(v->m);
    int64_t size[DIVISORS];
    int n = 0;
    if (!v->other)
        return;
    if (v->step) {
        n = divisors(all, MOST_ACCUMULATED / v->other->accumulate, size, DIVISORS);
        if (offer_one_of(v, size, n, all, true))
            return;
    }
    for (n = 0; n < 63 && (INT64_C(1) << n) < all; n++)
        size[n] = INT64_C(1) << n;
    (void)offer_one_of(v, size, n, all, false);
}

static void offer_precision(advice *v)
{
    nnc_compile_options o = *v->o;
    need n = {0};
    if (nnc_precision_dtype(o.precision) != DT_f32 || o.level < 2)
        return;
    o.precision = NNC_PRECISION_bf16;
    if (plan(v, v->m, &o, &n) || !n.fits)
        return;
    begin(v, "--precision=bf16");
    nnc_put_bytes(v->t, n.bytes);
    nnc_puts(v->t, ")");
}

/* Layers over more of the described devices, as few as suffice. */
static bool plan_split(advice *v, int devices, nnc_text *place, need *n)
{
    NNC_OWNED(nnc_graph) *forward = NULL, *m = NULL;
    nnc_compile_options o = *v->o;
    const nnc_reopen *x = v->other;
    o.devices = devices;
    nnc_text_clear(place);
    return !x->open(x->ctx, &(nnc_reopening){.forward = true}, &forward, v->sink) &&
           !nnc_sequential_place(v->e, forward, x->training, v->o, devices, place, v->sink) &&
           !x->open(x->ctx, &(nnc_reopening){.place = nnc_text_str(place)}, &m, v->sink) &&
           !plan(v, m, &o, n) && n->fits;
}

static void offer_split(advice *v)
{
    const int all = v->e->cluster ? v->e->cluster->n_device : 0, now = v->o->devices;
    NNC_LOCAL(nnc_text) place = {0}, flags = {0};
    need n = {0};
    if (!v->other || v->budget >= 0 || now > 1)
        return;
    for (int devices = 2; devices <= all && devices <= MOST_SPLIT; devices *= 2) {
        if (!plan_split(v, devices, &place, &n))
            continue;
        nnc_printf(&flags, "--devices=%d --place=%s", devices, nnc_text_str(&place));
        begin(v, nnc_text_str(&flags));
        nnc_put_bytes(v->t, n.bytes);
        nnc_puts(v->t, " on the fullest)");
        return;
    }
}

static nnc_status offer_all(advice *v, const char *budget, const nnc_artifact *refused)
{
    need usual = {0};
    const int64_t limit = v->e->memory_limit;
    NNC_TRY(plan(v, v->m, v->o, &usual));
    if (budget && (v->budget = nnc_parse_budget(budget, usual.bytes)) < 0)
        return NNC_OK;
    /* m is one replica: what connects the replicas stays beside it */
    const int64_t beside = refused ? nccl_of(v->e, refused->plan) - usual.nccl : 0;
    if (beside > 0)
        v->e->memory_limit = nnc_max64(nnc_device_room(v->e, 0) - beside, 1);
    offer_budget(v, &usual);
    offer_batch(v);
    offer_split(v);
    offer_precision(v);
    v->e->memory_limit = limit;
    return v->t->oom ? NNC_E_NOMEM : NNC_OK;
}

nnc_status nnc_advise_memory(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    const nnc_reopen *other, const nnc_artifact *refused, nnc_text *t)
{
    nnc_compile_options usual = *o;
    advice v = {.e = e,
        .o = &usual,
        .m = m,
        .other = other,
        .budget = -1,
        .step = nnc_graph_is_step(m),
        .t = t,
        .sink = nnc_sink_create()};
    if (!v.sink)
        return NNC_E_NOMEM;
    usual.memory_budget = NULL;
    usual.after_pass = NULL;
    usual.on_kernel = NULL;
    const nnc_status st = offer_all(&v, o->memory_budget, refused);
    nnc_sink_destroy(v.sink);
    return st == NNC_E_NOMEM ? st : NNC_OK;
}
