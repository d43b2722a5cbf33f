/* tests/api/profile.c -- nnc profile: whatever a row is, rows and idle time add up to the run, and FLOPs and bytes to those of the plan;
 * fused kernels are divided among their layers; modules hold what is in them; a prediction is the simulator's; the page is whole. */
#include "profile/profile.h"
#include "help.h"
#include <math.h>
#include <string.h>

static const char text[] =
    "{\"name\": \"m\", \"inputs\": {\"x\": [2, 8, 12, 12]}, \"layers\": ["
    "{\"op\": \"conv\", \"name\": \"c\", \"channels\": 16, \"kernel\": 3, \"pad\": 1}, "
    "{\"op\": \"batchnorm\", \"name\": \"n\"}, \"relu\", "
    "{\"name\": \"block\", \"layers\": [{\"op\": \"conv\", \"name\": \"a\", \"channels\": 8, "
    "\"kernel\": 1}, \"sigmoid\", "
    "{\"op\": \"conv\", \"name\": \"b\", \"channels\": 8, \"kernel\": 1}]}, "
    "\"global_avgpool\", \"flatten\", {\"op\": \"linear\", \"name\": \"out\", \"out\": 5}]}";

typedef struct profiled {
    nnc_env *e;
    nnc_graph *g;
    nnc_artifact *a;
    nnc_session *s;
    nnc_profile p;
} profiled;

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-15;
}

/* streams: of the CPU. hardware: predicted on it. */
static bool profile(profiled *x, int streams, const char *hardware)
{
    const nnc_env_options eo = {.threads = hardware ? 0 : 2, .no_llvm = true, .hardware = hardware};
    nnc_compile_options c = nnc_compile_defaults;
    nnc_compare_options t = nnc_compare_defaults;
    t.iterations = 2;
    t.warmup = 0;
    c.streams = streams;
    const nnc_profile_options o = {.active = 4};
    *x = (profiled){0};
    x->g = nnc_model_parse("m.json", text, strlen(text), NULL, test_sink);
    nnc_status st = x->g ? nnc_env_create(&eo, &x->e, test_sink) : NNC_E_MODEL;
    if (!st)
        st = (hardware ? nnc_compile_plan : nnc_compile)(x->e, x->g, &c, &x->a, test_sink);
    if (!st && hardware)
        st = nnc_profile_predict(x->e, x->a, false, &o, &x->p, test_sink);
    if (!st && !hardware)
        st = nnc_session_create(x->e, x->a, &x->s, test_sink);
    if (!st && !hardware)
        st = nnc_session_make_inputs(x->s, &t, 0, test_sink);
    if (!st && !hardware)
        st = nnc_profile_measure(x->e, x->s, false, &t, &o, &x->p, test_sink);
    CHECK_OK(st);
    return !st;
}

static void close_profile(profiled *x)
{
    nnc_arena_deinit(&x->p.arena);
    nnc_session_destroy(x->s);
    nnc_artifact_destroy(x->a);
    nnc_env_destroy(x->e);
    nnc_graph_destroy(x->g);
}

/* A module's row, of rows that hold no other: what leaves and modules count twice is left out. */
static bool is_leaf(const nnc_profile_rows *r, int i)
{
    const size_t n = strlen(r->row[i].name);
    for (int k = 0; k < r->n; k++)
        if (k != i && !strncmp(r->row[k].name, r->row[i].name, n) && r->row[k].name[n] == '/')
            return false;
    return true;
}

static void check_sums(const profiled *x)
{
    int64_t flops = 0, bytes = 0;
    const nnc_plan *plan = x->a->plan;
    for (int32_t i = nnc_plan_first(plan, SEC_main); i < plan->end[SEC_main]; i++) {
        flops += plan->cmd[i].flops;
        bytes += plan->cmd[i].bytes;
    }
    CHECK(x->p.n > 0 && x->p.wall_ms > 0);
    for (nnc_profile_by by = 0; by < BY__COUNT; by++) {
        const nnc_profile_options o = {.by = by};
        nnc_profile_rows r;
        double ms = 0, f = 0, b = 0;
        CHECK_OK(nnc_profile_group(&x->p, &o, &r, test_sink));
        for (int i = 0; i < r.n; i++) {
            if (by == BY_module && !is_leaf(&r, i))
                continue;
            ms += r.row[i].ms;
            f += r.row[i].flops;
            b += r.row[i].bytes;
        }
        if (!near(f, (double)flops) || !near(b, (double)bytes) ||
            !near(ms + x->p.idle_ms, x->p.wall_ms * x->p.lanes))
            test_fail(__FILE__, __LINE__, "by %s: %.17g ms and %.17g idle of %.17g",
                nnc_profile_by_names[by], ms, x->p.idle_ms, x->p.wall_ms * x->p.lanes);
        nnc_arena_deinit(&r.arena);
    }
}

static const nnc_profile_row *row(const nnc_profile_rows *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->row[i].name, name))
            return &r->row[i];
    return NULL;
}

TEST(profile_rows_add_up_to_the_run)
{
    for (int streams = 1; streams < 3; streams++) {
        profiled x;
        if (profile(&x, streams, NULL))
            check_sums(&x);
        close_profile(&x);
    }
}

TEST(profile_divides_fused_kernels_among_layers)
{
    profiled x;
    nnc_profile_rows r = {0};
    const nnc_profile_options o = {.by = BY_layer}, m = {.by = BY_module};
    if (profile(&x, 1, NULL)) {
        CHECK_OK(nnc_profile_group(&x.p, &o, &r, test_sink));
        const nnc_profile_row *c = row(&r, "/layers/0/c"), *relu = row(&r, "/layers/2/relu");
        double within = 0;
        CHECK(c && relu && c->divided && relu->divided && c->ms > relu->ms && relu->ms > 0);
        for (int i = 0; i < r.n; i++)
            within += strncmp(r.row[i].name, "/layers/3/block/", 16) ? 0 : r.row[i].ms;
        nnc_arena_deinit(&r.arena);
        CHECK_OK(nnc_profile_group(&x.p, &m, &r, test_sink));
        const nnc_profile_row *block = row(&r, "/layers/3/block");
        CHECK(block && within > 0 && near(block->ms, within));
    }
    nnc_arena_deinit(&r.arena);
    close_profile(&x);
}

TEST(profile_sorts_rows)
{
    profiled x;
    if (profile(&x, 1, NULL))
        for (nnc_profile_sort s = SORT_time; s <= SORT_gap; s++) {
            const nnc_profile_options o = {.sort = s};
            nnc_profile_rows r;
            CHECK_OK(nnc_profile_group(&x.p, &o, &r, test_sink));
            for (int i = 1; i < r.n; i++) {
                const nnc_profile_row *a = &r.row[i - 1], *b = &r.row[i];
                CHECK(s == SORT_order ? a->first < b->first
                      : s == SORT_gap ? a->ms - a->least_ms >= b->ms - b->least_ms
                                      : a->ms >= b->ms);
            }
            nnc_arena_deinit(&r.arena);
        }
    close_profile(&x);
}

TEST(profile_predicts_as_the_simulator)
{
    profiled x;
    if (profile(&x, 1, "models/hardware/a100x8.json")) {
        const nnc_sim_plan_options o = {.first = SEC_main, .last = SEC_main};
        nnc_sim_plan s;
        check_sums(&x);
        CHECK_OK(nnc_sim_plan_run(&s, x.a->plan, x.e->cluster, &o, test_sink));
        CHECK(x.p.predicted && near(x.p.wall_ms, (double)s.total_ps * 1e-9));
        nnc_sim_plan_deinit(&s);
    }
    close_profile(&x);
}

/* Nothing is measured on this machine. */
TEST(profile_of_a_described_cpu_has_its_rates)
{
    profiled x;
    if (profile(&x, 1, "models/hardware/cpu.json")) {
        const nnc_target *t = &x.e->target[0];
        CHECK(x.p.rates.flops_s == (double)t->flops_f32);
        CHECK(x.p.rates.bytes_s[LEVEL_memory] == (double)t->copy_bytes_s);
        check_sums(&x);
    }
    close_profile(&x);
}

TEST(profile_page_keeps_names_in_its_script)
{
    profiled x;
    NNC_LOCAL(nnc_text) page = {0};
    if (profile(&x, 1, NULL)) {
        const char *name = x.a->source->name;
        x.a->source->name = "</script>c"; /* as an ONNX file may call it */
        CHECK_OK(nnc_profile_html(x.e, &x.p, &page, test_sink));
        const char *s = nnc_text_str(&page), *end = strstr(s, "</script>");
        CHECK(strstr(s, "\\u003c/script>c") && end && !strstr(end + 1, "</script>"));
        CHECK(!strstr(s, "http")); /* nothing from elsewhere */
        x.a->source->name = name;
    }
    close_profile(&x);
}
