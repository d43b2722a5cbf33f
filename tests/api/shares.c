/* tests/api/shares.c -- what the devices of a run spend its time on. Made-up times give what counting instants gives. Parts of measured
 * steps over devices and several models add up to the run. */
#include "help.h"
#include "profile/profile.h"
#include "strategy/strategy.h"
#include "train/train.h"
#include <math.h>
#include <string.h>

static const char net[] =
    "{\"inputs\": {\"x\": [4, 3, 8, 8]}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 8, \"kernel\": 3, \"pad\": 1}, \"relu\", "
    "\"flatten\", {\"op\": \"linear\", \"name\": \"a\", \"out\": 12}, \"tanh\", "
    "{\"op\": \"linear\", \"name\": \"out\", \"out\": 5}]}";

typedef enum how { HOW_replicas, HOW_stages, HOW_models, HOW__COUNT } how;
static const char *const models[] = {"one", "two"};

typedef struct made {
    nnc_env *e;
    nnc_graph *g;
    nnc_artifact *a;
    nnc_training training;
} made;

static nnc_graph *step_of(const made *x)
{
    nnc_graph *g = nnc_model_parse("net.json", net, strlen(net), NULL, test_sink), *step = NULL;
    CHECK(g != NULL);
    CHECK_OK(nnc_train_graph(g, &x->training, &step, test_sink));
    nnc_graph_destroy(g);
    return step;
}

/* A step on two devices: replicas with allreduces, stages with copies between them, or two models. */
static bool make(made *x, how of, int streams)
{
    static const int device[] = {0, 1};
    const nnc_env_options eo = {.threads = 2, .no_llvm = true};
    nnc_compile_options c = nnc_compile_defaults;
    *x = (made){.training = nnc_training_defaults};
    nnc_graph *step = step_of(x), *other = of == HOW_models ? step_of(x) : NULL;
    nnc_status st = step ? NNC_OK : NNC_E_MODEL;
    c.devices = 2;
    c.streams = streams;
    if (!st && of == HOW_stages)
        for (uint32_t i = 0; i < step->n_node; i++)
            step->node[i].device =
                (int16_t) !(step->node[i].origin && strstr(step->node[i].origin, "/layers/0"));
    if (!st && of == HOW_replicas)
        st = nnc_replicate(step, 2, 1, &x->g, test_sink);
    if (!st && of == HOW_models)
        st = nnc_models_join(
            (nnc_model *[]){step, other}, models, device, 2, NULL, &x->g, test_sink);
    if (!x->g && !st) {
        x->g = step;
        step = NULL;
    }
    nnc_graph_destroy(step);
    nnc_graph_destroy(other);
    st = st ? st : nnc_env_create(&eo, &x->e, test_sink);
    st = st ? st : nnc_compile(x->e, x->g, &c, &x->a, test_sink);
    CHECK_OK(st);
    return !st;
}

static void drop(made *x)
{
    nnc_artifact_destroy(x->a);
    nnc_env_destroy(x->e);
    nnc_graph_destroy(x->g);
}

/* ---- made-up times ------------------------------------------------------------------------------------------------------------- */

enum { LONGEST = 60 };

static bool counts(const nnc_plan_times *t, int i)
{
    const int kind = t->plan->cmd[t->first + i].kind;
    return kind != CMD_record && kind != CMD_wait && t->start_ps[i] >= 0;
}

/* Start of the last participant of command i's collective. */
static int64_t met(const nnc_plan_times *t, int i)
{
    int64_t last = 0;
    for (int k = 0; k < t->n; k++) {
        const nnc_cmd *a = &t->plan->cmd[t->first + i], *b = &t->plan->cmd[t->first + k];
        if (counts(t, k) && b->kind == CMD_collective && b->item == a->item)
            last = nnc_max64(last, t->start_ps[k]);
    }
    return last;
}

/* Adds instant `at` of the device. */
static void count_instant(
    const nnc_plan_times *t, const uint8_t *part, int device, int64_t at, nnc_shares *s)
{
    const nnc_plan *p = t->plan;
    bool runs[PART__COUNT] = {false}, waits = false;
    int first = 0;
    for (int i = 0; i < t->n; i++) {
        const nnc_cmd *c = &p->cmd[t->first + i];
        const bool copies = c->kind == CMD_copy && (p->tensor[c->arg[0]].device == device ||
                                                       p->tensor[c->arg[1]].device == device);
        if (!counts(t, i) || at < t->start_ps[i] || at >= t->end_ps[i] ||
            (c->device != device && !copies))
            continue;
        if (c->kind == CMD_collective && at < met(t, i))
            waits = true;
        else
            runs[part[t->first + i]] = true;
    }
    while (first < PART__COUNT && !runs[first])
        first++;
    if (first < PART__COUNT)
        s->part[first]++;
    else if (waits)
        s->waits++;
    else
        s->idle++;
    s->hidden += runs[PART_communication] && first < PART_communication;
}

/* Instants in which commands of both models run. */
static int64_t count_overlap(const nnc_plan_times *t, int64_t at)
{
    bool runs[2] = {false};
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < 2; k++)
            runs[k] =
                runs[k] || (counts(t, i) && at >= t->start_ps[i] && at < t->end_ps[i] &&
                               nnc_layers_of_model(t->plan->cmd[t->first + i].layers, models[k]));
    return runs[0] && runs[1];
}

static void check_times(const nnc_plan_times *t)
{
    const nnc_plan *p = t->plan;
    const nnc_profile_options o = {.model = models, .n_model = 2};
    NNC_FREED uint8_t *part = nnc_calloc((size_t)p->n_cmd + 1, 1);
    nnc_shares got[2] = {{{0}}}, want[2] = {{{0}}};
    int64_t begin = INT64_MAX, end = 0, both = 0, overlap = 0;
    CHECK_OK(nnc_step_parts(p, part, test_sink));
    for (int i = 0; i < t->n; i++)
        if (counts(t, i)) {
            begin = nnc_min64(begin, t->start_ps[i]);
            end = nnc_max64(end, t->end_ps[i]);
        }
    for (int64_t at = begin; at < end; at++) {
        for (int d = 0; d < 2; d++)
            count_instant(t, part, d, at, &want[d]);
        overlap += count_overlap(t, at);
    }
    CHECK_OK(nnc_add_shares(t, 1, got, test_sink));
    CHECK_OK(nnc_profile_overlap(t, &o, &both, test_sink));
    CHECK_INT(both, overlap);
    for (int d = 0; d < 2; d++) {
        CHECK(!memcmp(&got[d], &want[d], sizeof got[d]));
        CHECK_INT(nnc_shares_total(&got[d]), end - begin);
    }
    CHECK_OK(nnc_add_shares(t, 2, got, test_sink)); /* two more */
    CHECK_INT(got[1].hidden, 3 * want[1].hidden);
    CHECK_INT(nnc_shares_total(&got[1]), 3 * (end - begin));
}

/* A timeline has what participants of collectives wait beside the collective: together they are the command's time. */
static void check_waiting(const nnc_plan_times *t)
{
    NNC_OWNED(nnc_timeline) *line = NULL;
    int64_t waits = 0, all = 0;
    CHECK_OK(nnc_timeline_of_plan("made up", t->plan, &line, test_sink));
    CHECK_OK(nnc_timeline_add_run(line, t, test_sink));
    for (int i = 0; i < t->n; i++)
        if (counts(t, i)) {
            all += t->end_ps[i] - t->start_ps[i];
            if (t->plan->cmd[t->first + i].kind == CMD_collective)
                waits += nnc_min64(met(t, i), t->end_ps[i]) - t->start_ps[i];
        }
    for (int i = 0; i < line->n_span; i++) {
        const int64_t ps = line->span[i].end_ps - line->span[i].start_ps;
        waits -= strncmp(line->span[i].name, "waiting for", 11) ? 0 : ps;
        all -= ps;
    }
    CHECK_INT(waits, 0);
    CHECK_INT(all, 0);
}

TEST(shares_of_made_up_times)
{
    for (int of = 0; of < HOW__COUNT; of++) {
        made x;
        if (make(&x, (how)of, 2)) {
            const nnc_plan *p = x.a->plan;
            const int32_t first = nnc_plan_first(p, SEC_main);
            const int n = p->n_cmd - first;
            NNC_FREED int64_t *start = nnc_calloc((size_t)n + 1, sizeof *start),
                              *end = nnc_calloc((size_t)n + 1, sizeof *end);
            for (uint64_t round = 0; round < 40; round++) {
                const uint64_t key = nnc_rng_key("times", test_seed + round);
                for (int i = 0; i < n; i++) {
                    const uint32_t v = nnc_rng_u32(key, (uint64_t)i);
                    start[i] = v % 7 ? (int64_t)(v / 7 % LONGEST) : -1;
                    end[i] = start[i] < 0 ? -1 : start[i] + (int64_t)(v / 700 % (1 + round % 20));
                }
                const nnc_plan_times t = {
                    .plan = p, .first = first, .n = n, .start_ps = start, .end_ps = end};
                check_times(&t);
                check_waiting(&t);
            }
        }
        drop(&x);
    }
}

/* ---- measured times ------------------------------------------------------------------------------------------------------------ */

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-8;
}

static void check_rows(const nnc_profile *p, nnc_profile_by by)
{
    const nnc_profile_options o = {.by = by};
    nnc_profile_rows r;
    double ms = 0;
    CHECK_OK(nnc_profile_group(p, &o, &r, test_sink));
    for (int i = 0; i < r.n; i++) {
        const nnc_profile_spread s = nnc_profile_spread_of(p, &r.row[i]);
        ms += r.row[i].ms;
        CHECK(s.devices >= 1 && s.devices <= 2 && s.slowest >= 0 && s.slowest < 2);
        CHECK(s.slowest_ms >= s.mean_ms * (1 - 1e-9) && s.slowest_ms <= r.row[i].ms * (1 + 1e-9));
    }
    CHECK(near(ms + p->idle_ms, p->wall_ms * p->lanes));
    nnc_arena_deinit(&r.arena);
}

TEST(shares_of_measured_steps_add_up)
{
    for (int of = 0; of < HOW__COUNT; of++)
        for (int streams = 1; streams <= 2; streams++) {
            made x;
            nnc_session *s = NULL;
            nnc_profile p = {0};
            nnc_compare_options t = nnc_compare_defaults;
            const nnc_profile_options o = {
                .active = 4, .model = models, .n_model = of == HOW_models ? 2 : 0};
            t.iterations = 2;
            t.warmup = 0;
            if (make(&x, (how)of, streams)) {
                t.training = &x.training;
                CHECK_OK(nnc_session_create(x.e, x.a, &s, test_sink));
                CHECK_OK(nnc_session_make_inputs(s, &t, 0, test_sink));
                CHECK_OK(nnc_profile_measure(x.e, s, true, &t, &o, &p, test_sink));
                CHECK(nnc_profile_phase_ms(&p, PHASE_first) > 0);
            }
            for (int d = 0; p.device && d < 2; d++) {
                const nnc_shares *is = &p.device[d];
                CHECK(near((double)nnc_shares_total(is) * 1e-9, p.wall_ms));
                CHECK(nnc_shares_computing(is) > 0 && is->waits >= 0 && is->idle >= 0);
                CHECK((is->part[PART_communication] + is->hidden > 0) == (of != HOW_models));
            }
            CHECK(p.together_ms >= 0 && p.together_ms <= p.wall_ms);
            CHECK(of == HOW_models || p.together_ms == 0);
            for (int by = 0; p.device && by < BY__COUNT; by++)
                if (by != BY_module)
                    check_rows(&p, (nnc_profile_by)by);
            nnc_arena_deinit(&p.arena);
            nnc_session_destroy(s);
            drop(&x);
        }
}

/* Memory runs out at each allocation of profiles of measured and of described devices: a message, or the same report. */
TEST(profiles_out_of_memory)
{
    enum { MOST = 100000 };
    made x;
    nnc_session *s = NULL;
    nnc_env *described = NULL;
    nnc_compare_options t = nnc_compare_defaults;
    const nnc_env_options eo = {.hardware = "models/hardware/cpu.json"};
    const nnc_profile_options o = {.active = 1, .model = models, .n_model = 2};
    t.iterations = 1;
    t.warmup = 0;
    CHECK_OK(nnc_env_create(&eo, &described, test_sink));
    if (make(&x, HOW_models, 1)) {
        t.training = &x.training;
        CHECK_OK(nnc_session_create(x.e, x.a, &s, test_sink));
        CHECK_OK(nnc_session_make_inputs(s, &t, 0, test_sink));
    }
    for (int predicted = 0; s && predicted < 2; predicted++) {
        int fine = 0;
        for (int64_t n = 1; fine < 5 && n < MOST; n += 1 + n / test_draws(25)) {
            NNC_LOCAL(nnc_text) text = {0};
            nnc_profile p = {0};
            nnc_sink_clear(test_sink);
            nnc_fail_alloc_after(n);
            nnc_status st = predicted ? nnc_profile_predict(described, x.a, true, &o, &p, test_sink)
                                      : nnc_profile_measure(x.e, s, true, &t, &o, &p, test_sink);
            if (!st)
                st = nnc_profile_print(x.e, &p, &o, NNC_TEXT, &text, test_sink);
            if (!st)
                st = nnc_profile_html(x.e, &p, &text, test_sink);
            nnc_fail_alloc_after(0);
            fine = st ? 0 : fine + 1;
            if (st && st != NNC_E_NOMEM)
                test_fail(__FILE__, __LINE__, "%d, allocation %lld: %s", predicted, (long long)n,
                    nnc_status_name(st));
            nnc_arena_deinit(&p.arena);
        }
        CHECK_INT(fine, 5);
    }
    nnc_sink_clear(test_sink);
    nnc_session_destroy(s);
    nnc_env_destroy(described);
    drop(&x);
}
