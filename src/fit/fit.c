/* fit/fit.c -- nnc memory --fit: the largest value of an arg of the model whose plan fits, by bisection over real plans (without machine
 * code). Memory usually grows with the arg; where it does not, the report says so. */
#include "fit/fit.h"
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "sim/sim.h"
#include <stdlib.h>
#include <string.h>

enum { GRID = 5, MOST_PROBES = 512, KINDS = 3, PAST = 2, MOVES = 4 };

typedef struct use { /* of a device */
    const char *name;
    int64_t need, have;
} use;

typedef struct probe {
    int64_t value, other; /* of the first and second arg */
    bool fits;
    int n;
    use *use;
    const char *place; /* NULL: as the model says */
    const char *why; /* does not fit: what lacks, and what fills it */
} probe;

typedef struct search {
    nnc_env *e;
    const nnc_fit_options *o;
    nnc_compile_options c; /* without functions that are told of passes */
    probe *at;
    int n, planned;
    const char *model;
    nnc_arena a;
    nnc_sink *sink;
} search;

nnc_status nnc_fit_parse(const nnc_arg *a, nnc_fit_arg *out, nnc_sink *sink)
{
    char *end;
    *out = (nnc_fit_arg){.name = a->name, .lo = strtoll(a->value, &end, 10)};
    const bool first = end > a->value && !strncmp(end, "..", 2);
    const char *second = end + 2;
    if (first)
        out->hi = strtoll(second, &end, 10);
    if (!first || end == second || *end)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--fit: expected NAME=LOW..HIGH, as in --fit batch=1..512, found `%s=%s`", a->name,
            a->value);
    if (out->lo > out->hi)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--fit %s=%s: the range ends before it begins: %s=%lld..%lld", a->name, a->value,
            a->name, (long long)out->hi, (long long)out->lo);
    return NNC_OK;
}

/* ---- what a device's memory is filled with ------------------------------------------------------------------------ */

static bool is_live(const nnc_plan *p, const nnc_ptensor *x, int d)
{
    const int at = p->device[d].peak_cmd;
    return x->device == d && x->space == SP_arena && x->alias_of < 0 && x->first <= at &&
           at <= x->last;
}

/* Tensors of equal type that are live at the peak, the types with most bytes first. */
static void put_kinds(nnc_text *t, const nnc_plan *p, int d)
{
    int64_t below = INT64_MAX;
    for (int shown = 0; shown < KINDS; shown++) {
        int64_t most = 0;
        const nnc_ptensor *of = NULL;
        int count = 0;
        for (int i = 0; i < p->n_tensor; i++) {
            const nnc_ptensor *x = &p->tensor[i];
            int64_t all = 0;
            int n = 0;
            for (int k = 0; is_live(p, x, d) && k < p->n_tensor; k++)
                if (is_live(p, &p->tensor[k], d) && nnc_type_equal(&x->type, &p->tensor[k].type)) {
                    all += p->tensor[k].bytes;
                    n++;
                }
            if (all > most && all < below) {
                most = all;
                of = x;
                count = n;
            }
        }
        if (!of)
            return;
        nnc_printf(t, "%s%d x ", shown ? ", " : "", count);
        nnc_put_type(t, &of->type);
        nnc_puts(t, " of ");
        nnc_put_bytes(t, of->bytes);
        below = most;
    }
}

/* Bytes that other devices sent and that are live at the peak. */
static int64_t received(const nnc_plan *p, int d)
{
    int64_t n = 0;
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        const nnc_ptensor *to = c->kind == CMD_copy ? &p->tensor[c->arg[1]] : NULL;
        if (to && to->device == d && p->tensor[c->arg[0]].device != d && is_live(p, to, d))
            n += to->bytes;
    }
    return n;
}

static void put_filled(nnc_text *t, const nnc_plan *p, int d, int64_t nccl)
{
    int64_t fill[FILL__COUNT];
    const bool step = nnc_is_step(p);
    t->oom |= !nnc_find_fill(p, d, fill);
    bool any = false;
    if (!step) {
        fill[FILL_activations] += fill[FILL_kept];
        fill[FILL_kept] = 0;
    }
    for (int k = 0; k < FILL__COUNT; k++) {
        if (!fill[k])
            continue;
        nnc_printf(t, "%s%s ", any ? ", " : "", nnc_fill_names[k]);
        nnc_put_bytes(t, fill[k]);
        any = true;
    }
    const int64_t from = received(p, d);
    if (from) {
        nnc_puts(t, ", of it received from other devices ");
        nnc_put_bytes(t, from);
    }
    if (nccl) {
        nnc_puts(t, ", NCCL's buffers ");
        nnc_put_bytes(t, nccl);
    }
    if (p->device[d].arena_bytes) {
        nnc_puts(t, "; at the peak ");
        put_kinds(t, p, d);
    }
}

/* The device of a room that needs most. */
static int device_of(const nnc_env *e, const nnc_plan *p, const char *room)
{
    int best = -1;
    for (int d = 0; d < p->n_device; d++) {
        const bool in = !strcmp(p->device[d].name, room) ||
                        !strcmp(nnc_target_on(e->target, e->n_target, d)->name, room);
        if (in && (best < 0 || nnc_device_needs(p, d) > nnc_device_needs(p, best)))
            best = d;
    }
    return best < 0 ? 0 : best;
}

static nnc_status explain(search *s, const nnc_plan *p, const use *u, int fails_at, probe *out)
{
    NNC_LOCAL(nnc_text) t = {0};
    const int d = device_of(s->e, p, u->name);
    nnc_printf(&t, "%s lacks ", u->name);
    if (fails_at >= 0) {
        nnc_text_clear(&t);
        nnc_printf(&t, "%s is out of memory at ", u->name);
        nnc_put_layers(&t, p->cmd[fails_at].layers, 60);
        nnc_puts(&t, " with ");
        nnc_put_bytes(&t, u->need);
        nnc_puts(&t, " reserved");
    } else {
        nnc_put_bytes(&t, u->need - u->have);
        nnc_printf(&t, " (%lld bytes)", (long long)(u->need - u->have));
    }
    nnc_puts(&t, ": ");
    put_filled(&t, p, d, fails_at < 0 ? nnc_nccl_bytes(s->e, p, d) : 0);
    out->why = t.oom ? NULL : nnc_arena_strdup(&s->a, nnc_text_str(&t));
    return out->why ? NNC_OK : nnc_nomem(s->sink);
}

/* ---- one plan ------------------------------------------------------------------------------------------------------ */

static nnc_status judge_nnc(search *s, const nnc_artifact *a, probe *out)
{
    nnc_room at[NNC_MAX_DEVICES];
    int worst = -1;
    out->n = nnc_find_rooms(s->e, a, at);
    out->use = ARENA_NEW(&s->a, use, out->n + 1);
    NNC_NEED(out->use, s->sink);
    out->fits = nnc_rooms_suffice(at, out->n);
    for (int i = 0; i < out->n; i++) {
        out->use[i] = (use){nnc_arena_strdup(&s->a, at[i].name), at[i].need, at[i].have};
        NNC_NEED(out->use[i].name, s->sink);
        if (worst < 0 || at[i].need - at[i].have > at[worst].need - at[worst].have)
            worst = i;
    }
    return out->fits ? NNC_OK : explain(s, a->plan, &out->use[worst], -1, out);
}

static nnc_status judge_torch(search *s, const nnc_artifact *a, probe *out)
{
    const nnc_sim_plan_options o = {
        .first = SEC_main, .last = SEC_step, .policy = SIM_torch_caching};
    NNC_LOCAL(nnc_sim_plan) sim = {0};
    NNC_TRY(nnc_sim_plan_run(&sim, a->plan, s->e->cluster, &o, s->sink));
    out->n = sim.n_device;
    NNC_NEED(out->use = ARENA_NEW(&s->a, use, out->n + 1), s->sink);
    out->fits = true;
    for (int d = 0; d < sim.n_device; d++) {
        const nnc_sim_device *x = &sim.by_device[d];
        const int64_t usable = nnc_cluster_usable_bytes(s->e->cluster, d);
        out->use[d] = (use){nnc_arena_strdup(&s->a, a->plan->device[d].name),
            x->bytes - (x->capacity - usable), usable};
        if (!x->fits && out->fits)
            NNC_TRY(explain(s, a->plan, &out->use[d], x->fails_at, out));
        out->fits = out->fits && x->fits;
    }
    return NNC_OK;
}

static nnc_status plan(search *s, const nnc_model *m, probe *out)
{
    NNC_OWNED(nnc_artifact) *a = NULL;
    /* true: a step has been made of the split model */
    NNC_TRY(nnc_plan_model(s->e, m, &s->c, true, &a, s->sink));
    return s->o->torch ? judge_torch(s, a, out) : judge_nnc(s, a, out);
}

/* Opens the model and plans it. */
static nnc_status try_place(search *s, const nnc_reopening *how, probe *out)
{
    NNC_OWNED(nnc_graph) *m = NULL;
    NNC_TRY(s->o->model->open(s->o->model->ctx, how, &m, s->sink));
    s->model = s->model ? s->model : nnc_arena_strdup(&s->a, m->name);
    return s->model ? plan(s, m, out) : nnc_nomem(s->sink);
}

/* Moves a block from the device that lacks most to the neighbour with more room. False: neither has any. */
static bool move_block(const probe *p, nnc_sequential *cut)
{
    int worst = 0;
    for (int d = 1; d < p->n; d++)
        if (p->use[d].need - p->use[d].have > p->use[worst].need - p->use[worst].have)
            worst = d;
    const int64_t before = worst ? p->use[worst - 1].have - p->use[worst - 1].need : 0,
                  after = worst + 1 < p->n ? p->use[worst + 1].have - p->use[worst + 1].need : 0;
    if ((before <= 0 && after <= 0) || cut->cut[worst + 1] - cut->cut[worst] < 2)
        return false;
    if (before > after)
        cut->cut[worst]++;
    else
        cut->cut[worst + 1]--;
    return true;
}

/* Layers over the devices: the ledger's cut, and where its plan does not fit, cuts beside it. */
static nnc_status try_cuts(search *s, nnc_reopening *how, probe *out)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(nnc_text) place = {0};
    NNC_OWNED(nnc_graph) *forward = NULL;
    nnc_sequential cut = {0};
    const nnc_reopen *x = s->o->model;
    how->forward = true;
    NNC_TRY(x->open(x->ctx, how, &forward, s->sink));
    how->forward = false;
    NNC_TRY(nnc_sequential_cut(s->e, forward, x->training, &s->c, s->c.devices, &cut, &a, s->sink));
    nnc_status st = NNC_OK;
    bool more = true;
    for (int i = 0; more && !st; i++) {
        nnc_text_clear(&place);
        nnc_put_cut(&cut, &place);
        how->place = nnc_text_str(&place);
        out->place = place.oom ? NULL : nnc_arena_strdup(&s->a, how->place);
        st = out->place ? try_place(s, how, out) : nnc_nomem(s->sink);
        more = !st && !out->fits && i < MOVES && out->n == s->c.devices && !s->o->torch &&
               move_block(out, &cut);
        s->planned++;
    }
    how->place = NULL;
    return st;
}

static const probe *known(const search *s, int64_t value, int64_t other)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i].value == value && s->at[i].other == other)
            return &s->at[i];
    return NULL;
}

/* The plan for these values, made once. */
static nnc_status look(search *s, int64_t value, int64_t other, const probe **out)
{
    char text[2][32];
    const nnc_fit_options *o = s->o;
    if ((*out = known(s, value, other)) != NULL)
        return NNC_OK;
    if (s->n == MOST_PROBES)
        return nnc_fail0(s->sink, NNC_E_BUG, "--fit made %d plans", s->n);
    snprintf(text[0], sizeof text[0], "%lld", (long long)value);
    snprintf(text[1], sizeof text[1], "%lld", (long long)other);
    const nnc_arg arg[2] = {
        {o->arg[0].name, text[0]}, {o->n_arg > 1 ? o->arg[1].name : "", text[1]}};
    nnc_reopening how = {.arg = arg, .n_arg = o->n_arg, .place = o->place};
    if (o->progress)
        o->progress(o->progress_ctx, o->arg[0].name, text[0]);
    probe *p = &s->at[s->n];
    *p = (probe){.value = value, .other = other};
    nnc_status st;
    if (o->place || o->placed || s->c.devices < 2) {
        st = try_place(s, &how, p);
        s->planned++;
    } else {
        st = try_cuts(s, &how, p);
    }
    s->n += !st;
    *out = p;
    return st;
}

/* The largest value that fits; NULL: none does. */
static nnc_status bisect(search *s, int64_t other, const probe **best)
{
    int64_t lo = s->o->arg[0].lo, hi = s->o->arg[0].hi;
    const probe *x;
    *best = NULL;
    NNC_TRY(look(s, lo, other, &x));
    *best = x->fits ? x : NULL;
    NNC_TRY(look(s, hi, other, &x)); /* may fit where the least does not */
    *best = x->fits ? x : *best;
    if (x->fits || !*best)
        return NNC_OK;
    while (hi - lo > 1) { /* lo fits, hi does not */
        const int64_t mid = lo + (hi - lo) / 2;
        NNC_TRY(look(s, mid, other, &x));
        *best = x->fits ? x : *best;
        lo = x->fits ? mid : lo;
        hi = x->fits ? hi : mid;
    }
    for (int64_t v = hi + 1; v <= hi + PAST && v <= s->o->arg[0].hi; v++)
        NNC_TRY(look(s, v, other, &x)); /* what is beyond it does not fit either */
    for (int i = 0; i < s->n; i++)
        if (s->at[i].other == other && s->at[i].fits && s->at[i].value > (*best)->value)
            *best = &s->at[i];
    return NNC_OK;
}

/* ---- report -------------------------------------------------------------------------------------------------------- */

NNC_ORDER(by_value, probe, nnc_cmp(a->other, b->other), nnc_cmp(a->value, b->value))

static int64_t most(const probe *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n; i++)
        n = nnc_max64(n, p->use[i].need);
    return n;
}

/* The first neighbours of which the larger value needs less, or fits where the smaller does not; NULL: there are none. Probes are
 * sorted. */
static const probe *find_fall(const search *s)
{
    for (int i = 0; i + 1 < s->n; i++) {
        const probe *p = &s->at[i], *q = p + 1;
        const bool falls = s->o->torch ? false : most(q) < most(p);
        if (p->other == q->other && (falls || (q->fits && !p->fits)))
            return p;
    }
    return NULL;
}

static void put_args(const search *s, const probe *p, nnc_text *t)
{
    nnc_printf(t, "%s=%lld", s->o->arg[0].name, (long long)p->value);
    if (s->o->n_arg > 1)
        nnc_printf(t, " %s=%lld", s->o->arg[1].name, (long long)p->other);
}

static void put_probe(const search *s, const probe *p, nnc_text *t)
{
    NNC_LOCAL(nnc_text) args = {.into = t};
    put_args(s, p, &args);
    nnc_printf(t, "  %-24s", nnc_text_str(&args));
    for (int i = 0; i < p->n; i++) {
        nnc_printf(t, "%s%s ", i ? "  " : "", p->use[i].name);
        nnc_put_bytes_column(t, p->use[i].need, 11, false);
    }
    nnc_puts(t, p->fits ? "  fits\n" : "  does not fit\n");
}

static void put_result(const search *s, const probe *best, nnc_text *t)
{
    const probe *next = NULL, *top = NULL;
    for (int i = 0; i < s->n; i++) {
        const probe *p = &s->at[i];
        if (p->other != best->other || p->value <= best->value)
            continue;
        next = !next && !p->fits ? p : next;
        top = p;
    }
    nnc_puts(t, "Largest that fits: ");
    put_args(s, best, t);
    for (int i = 0; i < best->n; i++) {
        nnc_printf(t, "%s%s needs %lld of %lld bytes", i ? ", " : ": ", best->use[i].name,
            (long long)best->use[i].need, (long long)best->use[i].have);
    }
    nnc_puts(t, ".\n");
    if (best->place)
        nnc_printf(t, "  layers: --devices=%d --place=%s\n", s->c.devices, best->place);
    if (!top) {
        nnc_puts(t, "  It is the end of the range: larger ones may fit.\n");
        return;
    }
    if (next) {
        nnc_puts(t, "  ");
        put_args(s, next, t);
        nnc_printf(t, " does not: ");
        const int at = 2;
        nnc_put_wrapped(t, next->why ? next->why : "", at + 30, 4, REPORT_WIDTH);
        nnc_puts(t, ".\n");
    }
}

static void put_fall(const search *s, nnc_text *t)
{
    const probe *p = find_fall(s);
    if (!p)
        return;
    nnc_puts(t, "Memory does not grow with ");
    nnc_puts(t, s->o->arg[0].name);
    nnc_puts(t, " everywhere: ");
    put_args(s, p, t);
    nnc_puts(t, " needs ");
    nnc_put_bytes(t, most(p));
    nnc_puts(t, " at most, ");
    put_args(s, p + 1, t);
    nnc_puts(t, " ");
    nnc_put_bytes(t, most(p + 1));
    nnc_puts(t, ". What was not planned may fit, too.\n");
}

static void put_head(const search *s, nnc_text *t)
{
    const nnc_env *e = s->e;
    nnc_printf(t, "%s%s%s", s->model, s->o->model->training ? ", training step" : ", inference",
        s->o->torch ? ", memory as PyTorch's caching allocator requests it" : "");
    for (int i = 0; s->n && i < s->at[0].n; i++) {
        nnc_printf(t, "%s%s of ", i ? ", " : "; ", s->at[0].use[i].name);
        nnc_put_bytes(t, s->at[0].use[i].have);
    }
    if (e->cluster) {
        const nnc_cluster_kind *k = nnc_cluster_kind_of(e->cluster, 0);
        nnc_printf(t, " (%s) without ", e->cluster->name);
        nnc_put_bytes(t, k->context_bytes + k->library_bytes);
        nnc_puts(t, " of context and libraries");
    }
    nnc_printf(t, "; %d plan%s\n", s->planned, nnc_plural(s->planned, "s"));
}

static void text_report(search *s, const probe *const *best, int n, nnc_text *t)
{
    put_head(s, t);
    for (int i = 0; i < s->n; i++)
        put_probe(s, &s->at[i], t);
    for (int i = 0; i < n; i++)
        if (best[i])
            put_result(s, best[i], t);
    for (int i = 0; i < n && !best[i]; i++)
        if (i + 1 == n) {
            nnc_puts(t, "Nothing that was planned fits: ");
            nnc_put_wrapped(t, s->at[0].why ? s->at[0].why : "", 31, 4, REPORT_WIDTH);
            nnc_puts(t, ".\n");
        }
    put_fall(s, t);
}

static void put_members(const search *s, const probe *p, int d, nnc_json_writer *w)
{
    const nnc_json_member m[] = {J_INT(s->o->arg[0].name, p->value),
        J_INT(s->o->n_arg > 1 ? s->o->arg[1].name : "", p->other),
        J_STRING("device", p->use[d].name), J_INT("need", p->use[d].need),
        J_INT("have", p->use[d].have), J_BOOL("fits", p->fits),
        J_STRING(p->place || s->o->place ? "place" : "", p->place ? p->place : s->o->place)};
    nnc_json_member own[NNC_COUNT(m)];
    size_t n = 0;
    for (size_t i = 0; i < NNC_COUNT(m); i++)
        if (*m[i].key)
            own[n++] = m[i];
    nnc_json_row(w, 2, own, n);
}

static void json_report(search *s, const probe *const *best, int n, nnc_json_writer *w)
{
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("model", s->model),
        J_STRING("mode", s->o->model->training ? "step" : "forward"),
        J_STRING("allocator", s->o->torch ? "torch-caching" : "nnc"),
        J_BOOL("monotone", !find_fall(s)));
    nnc_json_open_at(w, 1, "largest", '[');
    for (int i = 0; i < n; i++)
        for (int d = 0; best[i] && !w->csv && d < best[i]->n; d++)
            put_members(s, best[i], d, w);
    nnc_json_close(w, ']');
    nnc_json_open_at(w, 1, "plans", '[');
    for (int i = 0; i < s->n; i++)
        for (int d = 0; d < s->at[i].n; d++)
            put_members(s, &s->at[i], d, w);
    nnc_json_close(w, ']');
    nnc_json_end(w, '}');
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

/* Value i of n from lo to hi. */
static int64_t grid(const nnc_fit_arg *a, int i, int n)
{
    return n < 2 ? a->lo : a->lo + (a->hi - a->lo) * i / (n - 1);
}

static nnc_status search_all(search *s, nnc_format f, nnc_text *out, bool *fits, int64_t *largest)
{
    const nnc_fit_options *o = s->o;
    const int64_t wide = o->n_arg > 1 ? o->arg[1].hi - o->arg[1].lo + 1 : 1;
    const int n = (int)nnc_min64(wide, GRID);
    struct {
        int64_t value, other;
        bool any;
    } found[GRID] = {{0, 0, false}};
    const probe *best[GRID] = {NULL};
    s->at = ARENA_NEW(&s->a, probe, MOST_PROBES);
    NNC_NEED(s->at, s->sink);
    for (int i = 0; i < n; i++) {
        const probe *b;
        const int64_t other = o->n_arg > 1 ? grid(&o->arg[1], i, n) : 0;
        NNC_TRY(bisect(s, other, &b));
        found[i].any = b != NULL;
        found[i].value = b ? b->value : 0;
        found[i].other = other;
        *fits = *fits || b;
        *largest = nnc_max64(*largest, found[i].value);
    }
    qsort(s->at, (size_t)s->n, sizeof *s->at, by_value);
    for (int i = 0; i < n; i++)
        best[i] = found[i].any ? known(s, found[i].value, found[i].other) : NULL;
    nnc_json_writer w = {.out = out, .csv = f == NNC_CSV};
    if (f == NNC_TEXT)
        text_report(s, best, n, out);
    else
        json_report(s, best, n, &w);
    return out->oom ? nnc_nomem(s->sink) : NNC_OK;
}

nnc_status nnc_fit_report(nnc_env *e, const nnc_fit_options *o, nnc_format f, nnc_text *out,
    bool *fits, int64_t *largest, nnc_sink *sink)
{
    search s = {.e = e, .o = o, .c = o->compile, .sink = sink};
    s.c.after_pass = NULL;
    s.c.on_kernel = NULL;
    *fits = false;
    *largest = 0;
    if (o->torch && !e->cluster)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--allocator=torch-caching is replayed on described hardware: give its file, as in "
            "--hardware=models/hardware/gtx1080ti_x2.json");
    if (e->cluster && o->compile.devices > e->cluster->n_device)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = e->cluster->file},
            "describes %d device%s, fewer than --devices=%d", e->cluster->n_device,
            nnc_plural(e->cluster->n_device, "s"), o->compile.devices);
    s.sink = nnc_sink_create(); /* warnings of each size would be many */
    const nnc_status st = s.sink ? search_all(&s, f, out, fits, largest) : nnc_nomem(sink);
    if (st && s.sink)
        nnc_sink_pass_errors(s.sink, sink);
    nnc_sink_destroy(s.sink);
    nnc_arena_deinit(&s.a);
    return st;
}
