/* tests/api/profile.c -- nnc profile. Whatever a row is, rows and idle time add up to the run, and FLOPs and bytes to those of the plan.
 * Fused kernels are divided among their layers, and modules hold what is in them. A prediction is the simulator's, and the page is
 * whole. */
#include "cuda/cuda.h"
#include "profile/profile.h"
#include "help.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* streams: of the CPU. hardware: predicted on it. o: of the profile; NULL: four runs. */
static bool profile_as(
    profiled *x, int streams, const char *hardware, int level, const nnc_profile_options *how)
{
    const nnc_env_options eo = {.threads = hardware ? 0 : 2, .no_llvm = true, .hardware = hardware};
    nnc_compile_options c = nnc_compile_defaults;
    nnc_compare_options t = nnc_compare_defaults;
    t.iterations = 2;
    t.warmup = 0;
    c.streams = streams;
    c.level = level;
    const nnc_profile_options o = how ? *how : (nnc_profile_options){.active = 4};
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

static bool profile(profiled *x, int streams, const char *hardware)
{
    return profile_as(x, streams, hardware, nnc_compile_defaults.level, NULL);
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
        double ms = 0, self = 0, f = 0, b = 0;
        CHECK_OK(nnc_profile_group(&x->p, &o, &r, test_sink));
        for (int i = 0; i < r.n; i++) {
            self += r.row[i].self_ms;
            if (by == BY_module && !is_leaf(&r, i))
                continue;
            ms += r.row[i].ms;
            f += r.row[i].flops;
            b += r.row[i].bytes;
        }
        if (!near(f, (double)flops) || !near(b, (double)bytes) || !near(self, ms) ||
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
        CHECK(block && within > 0 && near(block->ms, within) && block->self_ms == 0);
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
        for (int i = 0; i < x.p.n;
             i++) /* the simulator has no caches, so they are no limit of its times */
            CHECK(x.p.cmd[i].bound >= LEVEL_memory && x.p.cmd[i].least_ms <= x.p.cmd[i].ms * 1.001);
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

/* ---- the verdict ------------------------------------------------------------------------------------------- */

/* Each command takes ms and at least least_ms, by `bound`; idle_ms besides. */
static void check_verdict(profiled *x, double ms, double least_ms, roof_level bound, double idle_ms,
    double cpu_share, const char *want)
{
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < x->p.n; i++) {
        x->p.cmd[i].ms = ms;
        x->p.cmd[i].least_ms = least_ms;
        x->p.cmd[i].bound = bound;
    }
    x->p.idle_ms = idle_ms;
    x->p.wall_ms = x->p.n * ms + idle_ms;
    x->p.device[0] = (nnc_shares){.idle = (int64_t)(idle_ms * 1e9)};
    x->p.device[0].part[PART_forward] = (int64_t)(x->p.n * ms * 1e9);
    x->p.cpu_share = cpu_share;
    nnc_profile_verdict(&x->p, &t);
    if (strncmp(nnc_text_str(&t), want, strlen(want)) != 0)
        test_fail(__FILE__, __LINE__, "expected %s, found %s", want, nnc_text_str(&t));
}

/* What was declined about a command's own layers is in the verdict, but not what concerns other layers, too. */
static void check_declined(profiled *x)
{
    const char *layers = x->a->plan->cmd[x->p.cmd[0].cmd].layers, *both[] = {NULL, "/elsewhere"};
    const char first[64] = "/layers/0/c";
    nnc_remark own[] = {
        {.pass = "p", .rule = "r", .n_layers = 1, .layer = both, .reason = "its own"},
        {.pass = "p", .rule = "r", .n_layers = 2, .layer = both, .reason = "another's"}};
    const nnc_remarks was = x->a->remarks;
    NNC_LOCAL(nnc_text) t = {0};
    CHECK(!strncmp(layers, first, strlen(first)));
    both[0] = first;
    x->a->remarks.at = own;
    x->a->remarks.n = 2;
    for (int i = 0; i < x->p.n; i++) {
        x->p.cmd[i].ms = i ? 1 : 2;
        x->p.cmd[i].least_ms = 0.5;
    }
    nnc_profile_verdict(&x->p, &t);
    CHECK(strstr(nnc_text_str(&t), "; r: declined, its own)") &&
          !strstr(nnc_text_str(&t), "another's"));
    x->a->remarks = was;
}

/* Commands are named where they are above their least time, unless other programs took most of the time. */
static void check_worst(profiled *x)
{
    static const struct {
        double least_ms, cpu_share;
        bool named;
    } rows[] = {{0.9, NAN, true}, {0.9, 0.6, true}, {0.9, 0.3, true}, {0.4, 0.3, false},
        {0.995, NAN, false}};
    for (size_t k = 0; k < NNC_COUNT(rows); k++) {
        NNC_LOCAL(nnc_text) t = {0};
        for (int i = 0; i < x->p.n; i++) {
            x->p.cmd[i].ms = 1;
            x->p.cmd[i].least_ms = rows[k].least_ms;
        }
        x->p.cpu_share = rows[k].cpu_share;
        nnc_profile_verdict(&x->p, &t);
        CHECK((strstr(nnc_text_str(&t), "Furthest above the least") != NULL) == rows[k].named);
    }
}

TEST(profile_gives_a_verdict)
{
    profiled x;
    if (profile(&x, 1, NULL)) {
        check_verdict(&x, 1, 0.7, LEVEL_arithmetic, 0, 1, "Bound by arithmetic. The least");
        check_verdict(&x, 1, 0.7, LEVEL_l2, 0, 1, "Bound by memory. The least");
        check_verdict(&x, 1, 0.7, LEVEL_memory, 100, 1, "Bound by waiting: no command runs for ");
        check_verdict(&x, 0.005, 0.001, LEVEL_memory, 0, 1, "Bound by launches: ");
        check_verdict(&x, 1, 0.1, LEVEL_memory, 0, 1, "At no limit: its commands take 10 times");
        check_verdict(&x, 1, 2, LEVEL_memory, 0, 1, "Faster than the limits: ");
        check_verdict(&x, 1, 0.3, LEVEL_memory, 0, 0.6,
            "Bound by memory. Its threads had the CPU for 60 % of the time that they needed it, "
            "other programs for the rest. The");
        check_verdict(&x, 1, 0.2, LEVEL_memory, 0, 0.6, "At no limit: its commands take 5 times");
        check_verdict(&x, 1, 0.9, LEVEL_memory, 0, 0.25, "Bound by memory. Its threads had ");
        check_verdict(&x, 1, 0.3, LEVEL_memory, 100, 0.25,
            "Bound by other programs. Its threads had the CPU for 25 % of the time that they "
            "needed it, other programs for the rest: repeat it when they have ended. The");
        check_verdict(&x, 1, 0, LEVEL_memory, 0, 1, "Nothing is computed.");
        for (int i = 0; i < x.a->plan->n_kernel; i++)
            x.a->plan->kernel[i].threads = 1;
        /* one thread for less than a time slice: the usual run meets no other program */
        check_verdict(
            &x, 0.02, 0.006, LEVEL_memory, 0, 0.25, "At no limit: its commands take 3.33 ");
        x.p.lanes = 2; /* and as many threads */
        check_verdict(&x, 0.02, 0.006, LEVEL_memory, 0, 0.25, "Bound by other programs.");
        x.p.lanes = 1;
        check_verdict(&x, 1, 0.3, LEVEL_memory, 0, 0.25, "Bound by other programs.");
        check_worst(&x);
        check_declined(&x);
    }
    close_profile(&x);
}

/* FLOPs of a library's convolutions count direct sums, which its algorithm may not need: the table says so, of no other engine. */
TEST(profile_says_what_is_beyond_its_limit)
{
    const nnc_profile_options o = {.by = BY_command};
    profiled x;
    if (profile(&x, 1, NULL)) {
        const char **own = x.a->plan->engine, *library[8];
        CHECK(x.a->plan->n_engine <= 8);
        for (int i = 0; i < 8; i++)
            library[i] = "cudnn";
        for (int i = 0; i < x.p.n; i++) {
            x.p.cmd[i].least_ms = 2 * x.p.cmd[i].ms;
            x.p.cmd[i].bound = LEVEL_arithmetic;
        }
        for (int k = 0; k < 2; k++) {
            NNC_LOCAL(nnc_text) t = {0};
            x.a->plan->engine = k ? library : own;
            CHECK_OK(nnc_profile_print(x.e, &x.p, &o, NNC_TEXT, &t, test_sink));
            CHECK((strstr(nnc_text_str(&t), "Above 100 % of the limit: ") != NULL) == (k == 1));
        }
        x.a->plan->engine = own;
    }
    close_profile(&x);
}

/* ---- against another one --------------------------------------------------------------------------------- */

/* The profile in a file, as --format=json prints it. */
static void store(const profiled *x, nnc_profile_by by, const char *file)
{
    NNC_LOCAL(nnc_text) t = {0};
    const nnc_profile_options o = {.by = by};
    CHECK_OK(nnc_profile_print(x->e, &x->p, &o, NNC_JSON, &t, test_sink));
    CHECK_OK(nnc_file_write(file, nnc_text_str(&t), t.n, false, test_sink));
}

/* With an unfused plan: all its rows are found by layer; by command the fused ones are new, and the single ones are gone. Changes of rows
 * add up to that of the run. */
static void check_against(profiled *x, nnc_profile_by by, const char *file)
{
    const nnc_profile_options o = {.by = by, .sort = SORT_change};
    nnc_profile_old old;
    nnc_profile_rows r = {0};
    NNC_LOCAL(nnc_text) words = {0};
    double change = 0;
    int fresh = 0, gone = 0;
    CHECK_OK(nnc_profile_read(file, by, &old, test_sink));
    x->p.old = &old;
    CHECK_OK(nnc_profile_group(&x->p, &o, &r, test_sink));
    for (int i = 0; i < r.n; i++) {
        fresh += isnan(r.row[i].was_ms);
        gone += !r.row[i].calls;
        change += nnc_profile_change(&r.row[i]);
        CHECK(!i || fabs(nnc_profile_change(&r.row[i - 1])) >= fabs(nnc_profile_change(&r.row[i])));
    }
    CHECK(
        fabs(change + x->p.idle_ms - old.idle_ms - x->p.wall_ms + old.wall_ms) < 1e-6 * (r.n + 2));
    CHECK((fresh > 0) == (by == BY_command) && (gone > 0) == (by == BY_command));
    nnc_profile_put_against(&x->p, &r, &words);
    CHECK(strstr(nnc_text_str(&words), "measured") &&
          strstr(nnc_text_str(&words), "Largest differences: "));
    CHECK((strstr(nnc_text_str(&words), "gone") != NULL) == (by == BY_command));
    nnc_arena_deinit(&r.arena);
    for (nnc_format f = NNC_TEXT; f <= NNC_CSV; f++) {
        nnc_text_clear(&words);
        CHECK_OK(nnc_profile_print(x->e, &x->p, &o, f, &words, test_sink));
        CHECK(strstr(nnc_text_str(&words), "ratio") != NULL);
    }
    nnc_text_clear(&words);
    CHECK_OK(nnc_profile_html(x->e, &x->p, &words, test_sink));
    CHECK(strstr(nnc_text_str(&words), "\"against\"") != NULL);
    x->p.old = NULL;
    nnc_arena_deinit(&old.arena);
}

/* A file of a comparison also lists rows that were gone: they do not belong to it. */
static void check_chain(profiled *x, const char *file)
{
    const nnc_profile_options o = {.by = BY_command};
    nnc_profile_old old, again;
    nnc_profile_rows r;
    CHECK_OK(nnc_profile_read(file, BY_command, &old, test_sink));
    x->p.old = &old;
    CHECK_OK(nnc_profile_group(&x->p, &o, &r, test_sink));
    CHECK(r.n > x->p.n);
    store(x, BY_command, file);
    CHECK_OK(nnc_profile_read(file, BY_command, &again, test_sink));
    CHECK_INT(again.n, x->p.n);
    CHECK_NEAR(again.idle_ms, x->p.idle_ms, 1e-6);
    x->p.old = NULL;
    nnc_arena_deinit(&r.arena);
    nnc_arena_deinit(&again.arena);
    nnc_arena_deinit(&old.arena);
}

TEST(profile_against_another)
{
    char dir[] = "/tmp/nnc_against_XXXXXX", file[64];
    profiled x, plain;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(file, sizeof file, "%s/p.json", dir);
    if (profile_as(&plain, 1, NULL, 0, NULL) && profile(&x, 1, NULL)) {
        nnc_profile_old old;
        NNC_OWNED(nnc_sink) *said = nnc_sink_create();
        store(&plain, BY_command, file);
        check_against(&x, BY_command, file);
        check_chain(&x, file);
        CHECK(nnc_profile_read(file, BY_layer, &old, said) == NNC_E_USAGE);
        CHECK(strstr(nnc_sink_at(said, 0)->message, "add --by=command") != NULL);
        nnc_arena_deinit(&old.arena);
        store(&plain, BY_layer, file);
        check_against(&x, BY_layer, file);
        CHECK_OK(nnc_file_write(file, "{\"rows\": []}", 12, false, test_sink));
        CHECK(nnc_profile_read(file, BY_layer, &old, said) == NNC_E_USAGE);
        nnc_arena_deinit(&old.arena);
    }
    close_profile(&x);
    close_profile(&plain);
    unlink(file);
    rmdir(dir);
}

/* With itself: no row is new or gone, and each takes as long, also those of one name. */
TEST(profile_against_itself)
{
    char dir[] = "/tmp/nnc_against_XXXXXX", file[64];
    profiled x;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(file, sizeof file, "%s/p.json", dir);
    for (nnc_profile_by by = 0; profile(&x, 1, NULL) && by < BY__COUNT; by++) {
        const nnc_profile_options o = {.by = by};
        nnc_profile_old old;
        nnc_profile_rows r;
        store(&x, by, file);
        CHECK_OK(nnc_profile_read(file, by, &old, test_sink));
        x.p.old = &old;
        CHECK_OK(nnc_profile_group(&x.p, &o, &r, test_sink));
        for (int i = 0; i < r.n; i++)
            if (!(fabs(nnc_profile_change(&r.row[i])) < 1e-6) || !r.row[i].calls)
                test_fail(__FILE__, __LINE__, "by %s: %s differs", nnc_profile_by_names[by],
                    r.row[i].name);
        nnc_arena_deinit(&r.arena);
        nnc_arena_deinit(&old.arena);
        close_profile(&x);
    }
    close_profile(&x);
    unlink(file);
    rmdir(dir);
}

/* ---- the schedule ------------------------------------------------------------------------------------------ */

TEST(profile_runs_cycles)
{
    const nnc_profile_options o = {.wait = 2, .active = 3, .repeat = 2};
    profiled x;
    if (profile_as(&x, 1, NULL, 2, &o)) {
        CHECK(isnan(x.p.cpu_share) || (x.p.cpu_share > 0 && x.p.cpu_share <= 1));
        CHECK_INT(x.p.active, 6);
        CHECK_INT(x.p.cycles, 2);
        CHECK(x.p.cycle_ms[0] > 0 && x.p.cycle_ms[1] > 0);
        CHECK(isfinite(x.p.overhead.ratio) && x.p.overhead.ratio > 0 && x.p.outside_ms > 0);
        check_sums(&x);
        for (nnc_profile_phase k = 0; k < PHASE__COUNT; k++)
            CHECK(nnc_profile_phase_ms(&x.p, k) >= 0);
        CHECK(nnc_profile_phase_ms(&x.p, PHASE_compile) > 0 &&
              nnc_profile_phase_ms(&x.p, PHASE_first) > 0);
    }
    close_profile(&x);
}

/* ---- kept rates -------------------------------------------------------------------------------------------- */

TEST(rates_are_kept)
{
    char dir[] = "/tmp/nnc_rates_XXXXXX", command[64];
    CHECK(mkdtemp(dir) != NULL);
    for (int i = 0; i < 4; i++) { /* measured, kept, of other threads, and without a cache */
        const nnc_env_options o = {.threads = i == 2 ? 1 : 2,
            .no_llvm = true,
            .cache_dir = i < 3 ? dir : NULL,
            .no_cache = i == 3};
        nnc_env *e = NULL;
        nnc_rates r;
        CHECK_OK(nnc_env_create(&o, &e, test_sink));
        nnc_rates_open(&r, e);
        CHECK(!r.changed && (r.since_s > 0) == (i == 1));
        CHECK((r.flops_s == 5e9) == (i == 1) && (r.bytes_s[LEVEL_l2] == 7e9) == (i == 1));
        CHECK(!nnc_rates_again(&r, 1.05, 1)); /* within the error of measurements */
        CHECK(nnc_rates_again(&r, 1.2, 1) == (i == 1) && !r.since_s && r.flops_s == 0);
        int again = 0; /* of rates that were measured just now, which stay wrong */
        for (r.since_s = 1, r.measured_ns = nnc_now_ns(); nnc_rates_again(&r, 1.2, 1); again++)
            r.since_s = 1, r.measured_ns = nnc_now_ns();
        CHECK_INT(again, i == 1 ? 1 : 2);
        r.measured_ns -= INT64_C(60000000000);
        CHECK(nnc_rates_again(&r, 1.2, 1) && !r.since_s);
        r = (nnc_rates){
            .flops_s = 5e9, .bytes_s = {[LEVEL_l2] = 7e9}, .since_s = 1000, .changed = i == 0};
        nnc_rates_close(&r, e);
        nnc_env_destroy(e);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_INT(system(command), 0);
}

/* ---- power ------------------------------------------------------------------------------------------------- */

/* A file of a false tree of powercap. */
static void put_file(const char *root, const char *zone, const char *name, const char *what)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", root, zone);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, zone, name);
    CHECK_OK(nnc_file_write(path, what, strlen(what), false, test_sink));
}

static void put_zone(const char *root, const char *zone, const char *name, const char *uj)
{
    put_file(root, zone, "name", name);
    put_file(root, zone, "max_energy_range_uj", "1000000\n");
    put_file(root, zone, "energy_uj", uj);
}

static const nnc_plan_device cpu_device = {.name = "cpu:0"}, gpu_device = {.name = "cuda:1"};

/* Packages and DRAM count, of which one has begun again at 0; cores and the platform are in others. */
TEST(power_adds_up_counters)
{
    char root[] = "/tmp/nnc_powercap_XXXXXX", command[64];
    nnc_plan_device device = cpu_device;
    const nnc_plan p = {.n_device = 1, .device = &device};
    nnc_meter m;
    CHECK(mkdtemp(root) != NULL);
    nnc_meter_open(&m, &p, root);
    CHECK(!m.n && strstr(m.why, "no intel-rapl") && isnan(nnc_meter_joules(&m)));
    put_zone(root, "intel-rapl:0", "package-0\n", "900000\n");
    put_zone(root, "intel-rapl:0:0", "core\n", "0\n");
    put_zone(root, "intel-rapl:0:1", "dram\n", "100\n");
    put_zone(root, "intel-rapl:1", "package-1\n", "0\n");
    put_zone(root, "intel-rapl:2", "psys\n", "0\n");
    put_zone(root, "intel-rapl-mmio:0", "package-0\n", "0\n");
    nnc_meter_open(&m, &p, root);
    CHECK_INT(m.n, 3);
    CHECK(m.packages == 2 && m.dram && !*m.why);
    nnc_meter_begin(&m);
    put_zone(root, "intel-rapl:0", "package-0\n", "50000\n"); /* 150000 */
    put_zone(root, "intel-rapl:0:0", "core\n", "900000\n");
    put_zone(root, "intel-rapl:0:1", "dram\n", "30100\n");
    put_zone(root, "intel-rapl:1", "package-1\n", "20000\n");
    put_zone(root, "intel-rapl:2", "psys\n", "900000\n");
    put_zone(root, "intel-rapl-mmio:0", "package-0\n", "900000\n");
    CHECK_NEAR(nnc_meter_joules(&m), 0.2, 1e-12);
    put_file(root, "intel-rapl:1", "energy_uj", "none\n");
    CHECK(isnan(nnc_meter_joules(&m)));
    nnc_meter_open(&m, &p, root); /* half of the machine's power is none */
    CHECK(!m.n && strstr(m.why, "energy_uj cannot be read"));
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK_INT(system(command), 0);
}

static unsigned long long gpu_mj;

static int nvml_init(void)
{
    return 0;
}

static int nvml_handle(const char *id, nvml_device *d)
{
    *d = (nvml_device)(uintptr_t)&gpu_mj;
    return strcmp(id, "0000:1:00.0");
}

static int nvml_energy(nvml_device d, unsigned long long *mj)
{
    *mj = gpu_mj;
    return !d;
}

static int pci_of(char *id, int n, int device)
{
    snprintf(id, (size_t)n, "0000:%d:00.0", device);
    return 0;
}

TEST(power_of_gpus)
{
    nnc_plan_device device = gpu_device;
    const nnc_plan p = {.n_device = 1, .device = &device};
    nnc_cuda_nvml nvml = {.nvmlInit_v2 = nvml_init,
        .nvmlShutdown = nvml_init,
        .nvmlDeviceGetHandleByPciBusId_v2 = nvml_handle};
    const nnc_cuda_cudart rt = {.cudaDeviceGetPCIBusId = pci_of};
    nnc_meter m;
    nnc_cuda_override(CUDA_cudart, &rt);
    nnc_cuda_override(CUDA_nvml, NULL);
    nnc_meter_open(&m, &p, NULL);
    CHECK(!m.n && strstr(m.why, "NVML is missing"));
    nnc_meter_close(&m);
    nnc_cuda_override(CUDA_nvml, &nvml);
    nnc_meter_open(&m, &p, NULL);
    CHECK(!m.n && strstr(m.why, "no counter of energy"));
    nnc_meter_close(&m);
    nvml.nvmlDeviceGetTotalEnergyConsumption = nvml_energy;
    gpu_mj = 5000;
    nnc_meter_open(&m, &p, NULL);
    CHECK(m.n == 1 && m.gpus == 1);
    nnc_meter_begin(&m);
    gpu_mj += 1500;
    CHECK_NEAR(nnc_meter_joules(&m), 1.5, 1e-12);
    nnc_meter_close(&m);
    nnc_cuda_forget();
}

/* The line, and the joules of rows. */
TEST(power_is_printed)
{
    NNC_LOCAL(nnc_text) t = {0};
    const nnc_power known = {.watts = 50, .idle_watts = 20, .of = "1 CPU package by RAPL"},
                    unknown = {.watts = NAN, .idle_watts = NAN, .why = "no counter"};
    profiled x;
    nnc_power_put(&known, 4, &t);
    CHECK_STR(nnc_text_str(&t), "Power: 50.0 W (1 CPU package by RAPL, other programs included), "
                                "0.2 J a run; 20.0 W when idle, 40 % of it");
    nnc_text_clear(&t);
    nnc_power_put(&unknown, 4, &t);
    CHECK_STR(nnc_text_str(&t), "Power was not measured: no counter");
    if (profile(&x, 1, NULL)) {
        const nnc_profile_options o = {.by = BY_op};
        double joules = 0;
        x.p.power = known;
        nnc_text_clear(&t);
        CHECK_OK(nnc_profile_print(x.e, &x.p, &o, NNC_JSON, &t, test_sink));
        cJSON *j = cJSON_Parse(nnc_text_str(&t)), *e;
        cJSON_ArrayForEach(e, cJSON_GetObjectItem(j, "rows")) joules +=
            cJSON_GetObjectItem(e, "joules")->valuedouble;
        CHECK_NEAR(joules, 50 * x.p.median_ms * 1e-3, 1e-7);
        cJSON_Delete(j);
    }
    close_profile(&x);
}
