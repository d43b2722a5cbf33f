/* tests/api/sweep.c -- nnc sweep. Tests the grammar of sizes, crossings of made-up curves, memory to the byte, and what does not fit. A
 * stopped sweep goes on where it was, and never with rows of another model, other flags or another machine. */
#include "sweep/sweep.h"
#include "help.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char matmul[] =
    "{\"name\": \"m\", \"args\": {\"dim\": {\"default\": 4, \"min\": 1, \"max\": 512}}, "
    "\"inputs\": {\"a\": [\"dim\", \"dim\"], \"b\": [\"dim\", \"dim\"]}, "
    "\"layers\": [{\"op\": \"matmul\", \"in\": [\"a\", \"b\"]}]}";
static const char chain[] =
    "{\"name\": \"m\", \"args\": {\"dim\": {\"default\": 4, \"min\": 1}}, "
    "\"inputs\": {\"a\": [\"dim\", \"dim\"]}, \"layers\": [\"sin\", \"relu\"]}";

/* ---- sizes ----------------------------------------------------------------------------------------------- */

static void check_sizes(const char *text, const char *want)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(nnc_text) got = {0};
    nnc_sizes s;
    nnc_sink_clear(test_sink);
    const nnc_status st = nnc_sizes_parse(&(nnc_arg){"n", text}, &s, &a, test_sink);
    for (int i = 0; !st && i < s.n; i++)
        nnc_printf(&got, "%s%lld", i ? " " : "", (long long)s.at[i]);
    CHECK_INT(st, want ? NNC_OK : NNC_E_USAGE);
    CHECK_STR(nnc_text_str(&got), want ? want : "");
    CHECK_INT(nnc_sink_errors(test_sink), want ? 0 : 1);
}

TEST(sweep_sizes)
{
    check_sizes("7", "7");
    check_sizes("1..16x2", "1 2 4 8 16");
    check_sizes("1..15x2", "1 2 4 8");
    check_sizes("1..20x1.5", "1 2 3 5 8 11 17");
    check_sizes("64..256+64", "64 128 192 256");
    check_sizes("4,1,2,4", "1 2 4");
    check_sizes("2^3", "8");
    check_sizes("2^0..2^4x4,5,10..20+5", "1 4 5 10 15 16 20");
    check_sizes("-4..4+4", "-4 0 4");
    check_sizes("1..9000000000000000x1000000000", "1 1000000000");
    check_sizes("8999999999999999..9000000000000000+1", "8999999999999999 9000000000000000");
    static const char *const bad[] = {"", "x", "1..", "1..4", "1..4x", "1..4x1", "1..4x0", "1..4+0",
        "1..4+-1", "1..4+0.5", "1..4x2,", ",1", "1,,2", "4..1x2", "0..4x2", "1..4x2y", "2^-1",
        "9^99", "1..5000+1", "1..4xnan", "1..4xinf", "99999999999999999999",
        "9007199254740992..9007199254740994+1", "1..9223372036854775807x2", "1..4x1.000000000001",
        "10^16"};
    for (size_t i = 0; i < NNC_COUNT(bad); i++)
        check_sizes(bad[i], NULL);
}

/* ---- crossings ------------------------------------------------------------------------------------------- */

/* A sweep of two series with these medians at 1, 2, 4, ...; NaN: no time. Their quartiles are `spread` of them away. */
static void make_up(
    nnc_sweep *s, nnc_sweep_options *o, const double *a, const double *b, int n, double spread)
{
    static const nnc_sweep_series two[] = {{.name = "a"}, {.name = "b"}};
    *o = (nnc_sweep_options){.sizes = {.name = "n"}, .series = two, .n_series = 2, .flags = ""};
    *s = (nnc_sweep){.o = o, .n = 2 * n, .complete = true};
    s->row = ARENA_NEW(&s->arena, nnc_sweep_row, 2 * n);
    s->machine = ARENA_NEW(&s->arena, const char *, 2);
    s->machine[0] = s->machine[1] = "here";
    for (int i = 0; i < 2 * n; i++) {
        const double ms = i % 2 ? b[i / 2] : a[i / 2];
        s->row[i] = (nnc_sweep_row){.size = INT64_C(1) << (i / 2), .series = i % 2};
        s->row[i].p = (nnc_sweep_point){.median_ms = ms,
            .low_ms = ms * (1 - spread),
            .high_ms = ms * (1 + spread),
            .best_ms = ms,
            .cpu_share = 1,
            .runs = 3,
            .chunks = 1};
        if (isnan(ms))
            s->row[i].p.kind = SWEEP_no_fit;
    }
}

static void check_said(const double *a, const double *b, int n, double spread, const char *want)
{
    NNC_LOCAL(nnc_text) said = {0};
    nnc_sweep_options o;
    nnc_sweep s;
    make_up(&s, &o, a, b, n, spread);
    nnc_sweep_say(&s, &said);
    CHECK_STR(nnc_text_str(&said), want);
    nnc_arena_deinit(&s.arena);
}

TEST(sweep_crossings)
{
    static const double rises[] = {1, 2, 4, 8, 16}, flat[] = {3, 3, 3, 3, 3},
                        near[] = {1.2, 2.4, 4.8, 9.6, 19.2}, twice[] = {4, 2, 1, 4, 32},
                        gap[] = {3, NAN, 3, 3, NAN}, equal[] = {1.005, 2.01, 4.02, 8.04, 16.08};
    check_said(rises, flat, 5, 0,
        "a is faster than b; from n 4 on b is faster than a (the curves cross at about 3): 5.33 "
        "times at 16.\n");
    check_said(flat, rises, 5, 0,
        "b is faster than a; from n 4 on a is faster than b (the curves cross at about 3): 5.33 "
        "times at 16.\n");
    check_said(rises, near, 5, 0, "a is faster than b: 1.20 times at 16.\n");
    check_said(
        rises, near, 5, 0.2, "a and b do not differ by more than the spread of their runs.\n");
    check_said(
        rises, equal, 5, 0, "a and b do not differ by more than the spread of their runs.\n");
    /* at 2 their medians are equal: the change is said from where it is certain */
    check_said(rises, twice, 5, 0,
        "a is faster than b; from n 4 on b is faster than a (the curves cross at about 2); from n "
        "16 on a is faster than b (the curves cross at about 11.3): 2.00 times at 16.\n");
    check_said(rises, gap, 4, 0,
        "a is faster than b; from n 4 on b is faster than a (the curves cross at about 3): 2.67 "
        "times at 8.\n");
    nnc_sweep_options o;
    nnc_sweep s;
    NNC_LOCAL(nnc_text) said = {0};
    make_up(&s, &o, rises, flat, 5, 0);
    s.row[9].p.runs = s.row[4].p.runs = 2; /* of sizes 16 and 4: too few to tell */
    nnc_sweep_say(&s, &said);
    CHECK_STR(nnc_text_str(&said),
        "a is faster than b; from n 8 on b is faster than a (the curves cross at about 3): 2.67 "
        "times at 8.\n");
    for (int i = 0; i < s.n; i++)
        s.row[i].size <<= 12;
    said.n = 0;
    nnc_sweep_say(&s, &said);
    CHECK_STR(nnc_text_str(&said),
        "a is faster than b; from n 32768 on b is faster than a (the curves cross at about 12288): "
        "2.67 times at 32768.\n");
    nnc_arena_deinit(&s.arena);
    /* where they differ from the second size on, that is said */
    static const double late[] = {1, 3, 6, 12, 24};
    check_said(rises, late, 5, 0, "From n 2 on a is faster than b: 1.50 times at 16.\n");
}

/* ---- runs ------------------------------------------------------------------------------------------------ */

typedef struct opener {
    const char *text;
} opener;

static nnc_status open_model(void *ctx, const nnc_reopening *how, nnc_model **out, nnc_sink *sink)
{
    const opener *o = ctx;
    nnc_set set[4];
    for (int i = 0; i < how->n_arg; i++)
        set[i] = (nnc_set){how->arg[i].name, strtoll(how->arg[i].value, NULL, 10)};
    const nnc_model_options m = {.set = set, .n_set = how->n_arg};
    *out = nnc_model_parse("m.json", o->text, strlen(o->text), &m, sink);
    return *out ? NNC_OK : nnc_sink_cause(sink, NNC_E_MODEL);
}

/* A sweep over dim on one thread and on two; the progress function stops it before row `stop_at`. */
typedef struct swept {
    opener open;
    nnc_sweep_series series[2];
    nnc_sweep_options o;
    nnc_sweep s;
    int begun, stop_at;
    volatile sig_atomic_t stop;
    int64_t sizes[8];
} swept;

static void count(void *ctx, const char *phase, const char *detail)
{
    swept *x = ctx;
    CHECK_STR(phase, "sweeping");
    CHECK(strstr(detail, "dim=") != NULL);
    x->stop = ++x->begun == x->stop_at;
}

static void prepare(swept *x, const char *text, const char *file, int n, const char *hardware)
{
    *x = (swept){.open = {text}};
    nnc_compare_options t = nnc_compare_defaults;
    t.iterations = 3;
    t.warmup = -1;
    for (int i = 0; i < 2; i++)
        x->series[i] = (nnc_sweep_series){.name = i ? "second" : "first",
            .env = {TEST_CACHED, .threads = i + 1, .no_llvm = true, .hardware = hardware},
            .time = t,
            .model = {open_model, &x->open, 1, NULL},
            .predict = hardware != NULL};
    for (int i = 0; i < n; i++)
        x->sizes[i] = INT64_C(4) << i;
    x->o = (nnc_sweep_options){.sizes = {"dim", n, x->sizes},
        .series = x->series,
        .n_series = 2,
        .flags = "-O2",
        .file = file,
        .stop = &x->stop,
        .progress = count,
        .progress_ctx = x};
}

static nnc_status sweep(swept *x)
{
    nnc_sink_clear(test_sink);
    return nnc_sweep_run(&x->o, &x->s, test_sink);
}

TEST(sweep_measures)
{
    swept x;
    char dir[400];
    nnc_env *e = NULL;
    nnc_rates rates;
    CHECK(api_tmpdir(dir, sizeof dir));
    prepare(&x, matmul, NULL, 3, NULL);
    x.series[0].env.cache_dir = dir;
    x.series[0].env.no_cache = false;
    CHECK_OK(sweep(&x));
    CHECK_OK(nnc_env_create(&x.series[0].env, &e, test_sink));
    nnc_rates_open(&rates, e); /* the machine's, kept for the next command */
    CHECK(rates.since_s > 0 && rates.bytes_s[LEVEL_l1] > 0);
    nnc_env_destroy(e);
    api_rmdir(dir);
    CHECK(x.s.complete && x.s.n == 6);
    CHECK_STR(x.s.model, "m");
    for (int i = 0; i < x.s.n; i++) {
        const nnc_sweep_row *r = &x.s.row[i];
        const int64_t d = r->size;
        CHECK_INT(d, 4 << (i / 2));
        CHECK_INT(r->series, i % 2);
        CHECK_INT(r->p.kind, SWEEP_measured);
        CHECK_INT(r->p.runs, 3);
        CHECK(r->p.best_ms > 0 && r->p.best_ms <= r->p.low_ms && r->p.low_ms <= r->p.median_ms);
        CHECK(isnan(r->p.cpu_share) || (r->p.cpu_share > 0 && r->p.cpu_share <= 1));
        CHECK(r->p.median_ms <= r->p.high_ms && r->p.limit_ms > 0 && r->p.compile_ms > 0);
        CHECK_INT(r->p.flops, 2 * d * d * d);
        CHECK_INT(r->p.bytes, 3 * d * d * 4);
        CHECK(r->p.need >= 3 * d * d * 4 && r->p.need < r->p.room);
        CHECK_NEAR(nnc_sweep_gflops(&r->p), 2e-6 * (double)(d * d * d) / r->p.median_ms, 1e-9);
    }
    nnc_arena_deinit(&x.s.arena);
}

/* A size that the model rejects is a row; where it rejects the first one, that is the error. */
TEST(sweep_rejected_sizes)
{
    swept x;
    prepare(&x, matmul, NULL, 2, NULL);
    x.sizes[1] = 1024;
    CHECK_OK(sweep(&x));
    CHECK_INT(x.s.n, 4);
    CHECK_INT(x.s.row[1].p.kind, SWEEP_measured);
    CHECK_INT(x.s.row[2].p.kind, SWEEP_failed);
    CHECK(strstr(x.s.row[2].p.message, "512") != NULL);
    nnc_arena_deinit(&x.s.arena);
    prepare(&x, matmul, NULL, 1, NULL);
    x.series[1].name = "first";
    CHECK_INT(sweep(&x), NNC_E_USAGE);
    CHECK_DIAG("two series have the name `first`");
    nnc_arena_deinit(&x.s.arena);
    prepare(&x, matmul, NULL, 1, NULL);
    x.sizes[0] = 0;
    CHECK(sweep(&x) != NNC_OK);
    CHECK_DIAG("dim");
    nnc_arena_deinit(&x.s.arena);
}

static const char columns[] =
    "{\"name\": \"m\", \"args\": {\"dim\": {\"default\": 4, \"min\": 1}}, "
    "\"inputs\": {\"a\": [\"dim\", \"dim\"]}, "
    "\"layers\": [\"sin\", {\"op\": \"softmax\", \"axis\": 0}]}";

/* The need of a row is what the plan requests. One byte less is too little, where rows of the model depend on each other. */
TEST(sweep_says_what_does_not_fit)
{
    swept x;
    char limit[2][24];
    prepare(&x, columns, NULL, 5, NULL);
    CHECK_OK(sweep(&x));
    const int64_t need = x.s.row[6].p.need;
    CHECK(x.s.row[4].p.need < need && need < x.s.row[8].p.need);
    nnc_arena_deinit(&x.s.arena);
    for (int less = 0; less < 2; less++) {
        prepare(&x, columns, NULL, 5, NULL);
        snprintf(limit[less], sizeof limit[less], "%lld", (long long)need - less);
        x.series[0].env.memory_limit = x.series[1].env.memory_limit = limit[less];
        CHECK_OK(sweep(&x));
        for (int i = 0; i < x.s.n; i++) {
            const nnc_sweep_point *p = &x.s.row[i].p;
            const bool fits = i / 2 < 4 - less;
            CHECK_INT(p->kind, fits ? SWEEP_measured : SWEEP_no_fit);
            CHECK_INT(p->room, need - less);
            CHECK_STR(p->room_by, "--memory-limit");
            CHECK(fits == (p->need <= p->room) && isnan(p->median_ms) == !fits);
            CHECK(fits || (p->status == NNC_E_FIT && strstr(p->message, "(--memory-limit)")));
        }
        nnc_arena_deinit(&x.s.arena);
    }
}

/* A model whose rows are independent runs in chunks instead, with the work of all of them. What every row reads is in each chunk. */
TEST(sweep_measures_chunks)
{
    static const char *const models[] = {matmul, chain}, *const limit[] = {"700000", "400000"};
    for (int m = 0; m < 2; m++) {
        int64_t flops[2];
        swept x;
        for (int k = 0; k < 2; k++) {
            prepare(&x, models[m], NULL, 1, NULL);
            x.sizes[0] = 256;
            x.series[0].env.memory_limit = x.series[1].env.memory_limit = k ? limit[m] : NULL;
            x.series[0].time.iterations = 1;
            CHECK_OK(sweep(&x));
            CHECK_INT(x.s.n, 2);
            const nnc_sweep_point *p = &x.s.row[0].p;
            flops[k] = p->flops;
            CHECK_INT(p->kind, SWEEP_measured);
            CHECK_INT(p->runs, 1);
            CHECK_INT(x.s.row[1].p.runs, 3);
            CHECK(p->median_ms > 0 && p->limit_ms > 0 && p->need <= p->room);
            CHECK(k ? p->chunks > 2 && p->need <= p->room / 2 : p->chunks == 1);
            nnc_arena_deinit(&x.s.arena);
        }
        CHECK(flops[1] >= flops[0] && flops[1] < flops[0] * 5 / 4); /* the last may repeat rows */
    }
}

/* A run that takes longer than the budget is predicted, and the row says why; one that is nearly as long runs once. */
TEST(sweep_keeps_to_its_budget)
{
    swept x;
    prepare(&x, matmul, NULL, 2, NULL);
    x.sizes[0] = 512;
    x.sizes[1] = 16;
    x.o.budget_ms = 1e-3;
    CHECK_OK(sweep(&x));
    for (int i = 0; i < 2; i++) {
        const nnc_sweep_point *p = &x.s.row[2 + i].p;
        CHECK_INT(p->kind, SWEEP_predicted);
        CHECK(p->median_ms > 1e-3 && strstr(p->message, "--budget"));
    }
    x.o.budget_ms = 2 * x.s.row[2].p.median_ms;
    nnc_arena_deinit(&x.s.arena);
    CHECK_OK(sweep(&x));
    CHECK_INT(x.s.row[2].p.kind, SWEEP_measured);
    CHECK(x.s.row[2].p.runs == 1 || x.s.row[2].p.runs == 2); /* in one turn or two */
    nnc_arena_deinit(&x.s.arena);
}

/* ---- predictions ----------------------------------------------------------------------------------------- */

static void put_json(const swept *x, nnc_text *t)
{
    nnc_json_writer w = {.out = t};
    nnc_sweep_json(&x->s, &w);
}

TEST(sweep_predicts)
{
    NNC_LOCAL(nnc_text) first = {0}, second = {0};
    swept x;
    for (int i = 0; i < 2; i++) {
        prepare(&x, matmul, NULL, 4, "models/hardware/gtx1080ti_x2.json");
        CHECK_OK(sweep(&x));
        put_json(&x, i ? &second : &first);
        for (int k = 0; k < x.s.n; k++) {
            const nnc_sweep_point *p = &x.s.row[k].p;
            CHECK_INT(p->kind, SWEEP_predicted);
            CHECK(p->median_ms >= p->limit_ms && p->limit_ms > 0 && isnan(p->compile_ms));
            CHECK(k < 2 || p->median_ms >= x.s.row[k - 2].p.median_ms);
        }
        nnc_arena_deinit(&x.s.arena);
    }
    CHECK_STR(nnc_text_str(&first), nnc_text_str(&second));
}

/* A model larger than a described GPU is predicted in chunks, bound by its copies. */
TEST(sweep_predicts_chunks)
{
    swept x;
    prepare(&x, chain, NULL, 1, "models/hardware/gtx1080ti_x2.json");
    x.sizes[0] = 65536; /* two tensors of 16 GiB */
    CHECK_OK(sweep(&x));
    CHECK_INT(x.s.row[0].p.kind, SWEEP_predicted);
    CHECK(x.s.row[0].p.chunks > 3 && x.s.row[0].p.need <= x.s.row[0].p.room);
    /* 16 GiB each way at 12 GB/s */
    CHECK(x.s.row[0].p.median_ms > 1400 && x.s.row[0].p.median_ms < 3000);
    nnc_arena_deinit(&x.s.arena);
}

/* ---- files ----------------------------------------------------------------------------------------------- */

/* Continues `file` with a sweep that `edit` has changed; NNC_E_USAGE or _MODEL with this message. */
static void check_refused(const char *file, const char *part, void (*edit)(swept *x))
{
    swept x;
    char *before, *after;
    size_t n, m;
    prepare(&x, matmul, file, 4, NULL);
    if (edit)
        edit(&x);
    CHECK_OK(nnc_file_read(file, 0, &before, &n, test_sink));
    const nnc_status st = sweep(&x);
    CHECK(st == NNC_E_USAGE || st == NNC_E_MODEL);
    CHECK_DIAG(part);
    CHECK_DIAG(file);
    nnc_arena_deinit(&x.s.arena);
    CHECK_OK(nnc_file_read(file, 0, &after, &m, test_sink));
    CHECK(n == m && !memcmp(before, after, n)); /* it stays as it was */
    nnc_free(before);
    nnc_free(after);
}

static void other_model(swept *x)
{
    x->open.text = chain;
}

static void other_model_and_sizes(swept *x)
{
    x->open.text = chain;
    x->sizes[0] = 256;
    x->o.sizes.n = 1;
}

static void other_flags(swept *x)
{
    x->o.flags = "-O3";
}

static void other_series(swept *x)
{
    x->series[1].name = "third";
}

static void fewer_series(swept *x)
{
    x->o.n_series = 1;
}

static void other_machine(swept *x)
{
    x->series[1].env.threads = 3;
}

static void other_arg(swept *x)
{
    x->o.sizes.name = "n";
}

/* Writes the file with `from` replaced by `to`, or, where `to` is NULL, cut after it. */
static void rewrite(const char *from_file, const char *file, const char *from, const char *to)
{
    NNC_LOCAL(nnc_text) t = {0};
    char *text;
    size_t n;
    CHECK_OK(nnc_file_read(from_file, 0, &text, &n, test_sink));
    const char *at = strstr(text, from);
    CHECK(at != NULL);
    if (at) {
        nnc_putn(&t, text, (size_t)(at - text) + (to ? 0 : strlen(from)));
        nnc_puts(&t, to ? to : "");
        nnc_puts(&t, to ? at + strlen(from) : "");
    }
    CHECK_OK(nnc_file_write(file, nnc_text_str(&t), t.n, false, test_sink));
    nnc_free(text);
}

TEST(sweep_resumes)
{
    char dir[400];
    swept x, y;
    NNC_LOCAL(nnc_text) text = {0};
    CHECK(api_tmpdir(dir, sizeof dir));
    char file[500], bad[500];
    snprintf(file, sizeof file, "%s/rows.json", dir);
    snprintf(bad, sizeof bad, "%s/bad.json", dir);
    prepare(&x, matmul, file, 3, NULL);
    x.stop_at = 6; /* three rows of six: two turns of the first size, and one row */
    CHECK_OK(sweep(&x));
    CHECK(x.s.n == 3 && !x.s.complete && x.begun == 6);
    prepare(&y, matmul, file, 4, NULL); /* and a size more */
    CHECK_OK(sweep(&y));
    CHECK(y.s.n == 8 && y.s.complete && y.begun == 10); /* five rows in two turns */
    for (int i = 0; i < 3; i++) {
        CHECK_INT(y.s.row[i].size, x.s.row[i].size);
        CHECK_NEAR(y.s.row[i].p.median_ms, x.s.row[i].p.median_ms, 1e-6);
        CHECK_STR(y.s.row[i].model, x.s.row[i].model);
        CHECK_INT(y.s.row[i].p.need, x.s.row[i].p.need);
    }
    nnc_arena_deinit(&x.s.arena);
    nnc_arena_deinit(&y.s.arena);
    prepare(&y, matmul, file, 2, NULL); /* fewer sizes: the rows of others stay */
    CHECK_OK(sweep(&y));
    CHECK(y.s.n == 8 && y.s.complete && y.begun == 0);
    nnc_arena_deinit(&y.s.arena);
    check_refused(file, "is of another model", other_model);
    check_refused(file, "is of another model", other_model_and_sizes);
    check_refused(file, "have flags `-O2`, and this sweep has `-O3`", other_flags);
    check_refused(file, "have name `second`, and this sweep has `third`", other_series);
    check_refused(file, "further series", fewer_series);
    check_refused(file, "3 threads", other_machine);
    check_refused(file, "have arg `dim`, and this sweep has `n`", other_arg);
    static const char *const edits[][3] = {{"\"complete\": true", NULL, "expected"},
        {"\"size\": 8", NULL, "expected"}, {"\"version\": \"", "\"version\": \"9.", "have version"},
        {"\"rows\": [", "\"others\": [", "rows"},
        {"\"kind\": \"measured\"", "\"kind\": \"x\"", "kind"},
        {"\"size\": 8", "\"size\": 4", "each row once"},
        {"\"flops\": 128", "\"flops\": -1", "flops"},
        {"\"median_ms\":", "\"median\":", "median_ms"},
        {"\"series\": \"first\"", "\"series\": 7", "series"}};
    for (size_t i = 0; i < NNC_COUNT(edits); i++) {
        rewrite(file, bad, edits[i][0], edits[i][1]);
        check_refused(bad, edits[i][2], NULL);
    }
    prepare(&y, matmul, file, 1, NULL); /* rows of other sizes are not counted */
    y.sizes[0] = 64;
    y.stop_at = 1;
    CHECK_OK(sweep(&y));
    CHECK(y.s.n == 8 && !y.s.complete);
    nnc_sweep_print(&y.s, NNC_TEXT, &text);
    CHECK(strstr(nnc_text_str(&text), "Interrupted: 0 of 2 rows; the same command"));
    nnc_arena_deinit(&y.s.arena);
    api_rmdir(dir);
}

/* Memory may be free by now. */
TEST(sweep_tries_again_what_did_not_fit)
{
    char dir[400], file[500];
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(file, sizeof file, "%s/rows.json", dir);
    for (int again = 0; again < 2; again++) {
        swept x;
        prepare(&x, matmul, file, 1, NULL);
        x.series[0].env.memory_limit = x.series[1].env.memory_limit = again ? NULL : "1";
        CHECK_OK(sweep(&x));
        CHECK(x.s.n == 2 && x.s.complete && x.begun == 2 + 2 * again);
        for (int i = 0; i < x.s.n; i++)
            CHECK_INT(x.s.row[i].p.kind, again ? SWEEP_measured : SWEEP_no_fit);
        nnc_arena_deinit(&x.s.arena);
    }
    api_rmdir(dir);
}

/* ---- what is printed ------------------------------------------------------------------------------------- */

TEST(sweep_pages)
{
    static const double rises[] = {1, 2, 4, 8, NAN}, flat[] = {3, 3, 3, 3, NAN};
    NNC_LOCAL(nnc_text) page = {0}, svg = {0}, text = {0}, csv = {0};
    nnc_sweep_options o;
    nnc_sweep s;
    make_up(&s, &o, rises, flat, 5, 0.01);
    s.model = "<&>";
    s.row[8].p.message = "needs <more>";
    s.row[0].p.cpu_share = 0.25;
    s.row[2].p.limit_ms =
        1.51 * s.row[2].p.median_ms; /* as rates that were measured on a busy machine have it */
    for (int what = 0; what < CHART__COUNT; what++)
        nnc_sweep_svg(&s, (nnc_sweep_chart)what, 640, &svg);
    nnc_sweep_html(&s, &page);
    CHECK(strstr(nnc_text_str(&page), "&lt;&amp;> over n") && !strstr(nnc_text_str(&page), "<&>"));
    CHECK(strstr(nnc_text_str(&page), "needs \\u003cmore>") &&
          strstr(nnc_text_str(&page), "</html>"));
    CHECK(strstr(nnc_text_str(&svg), "<circle") && !strstr(nnc_text_str(&svg), "nan"));
    nnc_sweep_print(&s, NNC_TEXT, &text);
    CHECK(strstr(nnc_text_str(&text), "does not fit: needs <more>"));
    CHECK(strstr(nnc_text_str(&text), "the curves cross at about 3"));
    const char *busy = strstr(nnc_text_str(&text), "other programs had the CPU for 75 %");
    CHECK(busy && !strstr(busy + 1, "other programs"));
    const char *fast = strstr(nnc_text_str(&text), "faster than the limit: its rates were");
    CHECK(fast && !strstr(fast + 1, "faster than the limit"));
    nnc_sweep_print(&s, NNC_CSV, &csv);
    int lines = 0;
    for (const char *p = nnc_text_str(&csv); *p; p++)
        lines += *p == '\n';
    CHECK_INT(lines, 11);
    nnc_arena_deinit(&s.arena);
}

/* Whichever allocation fails, the sweep ends in order: with an error, or with rows of which some say so. */
static void check_out_of_memory(const char *file, bool chunks)
{
    for (int64_t n = 1, left = 0; left == 0; n += 1 + n / (chunks ? 8 : 16)) {
        NNC_LOCAL(nnc_text) page = {0}, text = {0};
        swept x;
        (void)remove(file);
        prepare(&x, chunks ? chain : matmul, n % 2 ? file : NULL, 1,
            chunks ? NULL : "models/hardware/gtx1080ti_x2.json");
        if (chunks) { /* two tensors of 16 KiB */
            x.sizes[0] = 64;
            x.o.n_series = 1;
            x.series[0].env.memory_limit = "20000";
        }
        x.series[0].time.compile.jobs = x.series[1].time.compile.jobs = 1;
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        const nnc_status st = nnc_sweep_run(&x.o, &x.s, test_sink);
        if (!st) {
            nnc_sweep_html(&x.s, &page);
            nnc_sweep_print(&x.s, NNC_TEXT, &text);
        }
        left = nnc_fail_alloc_after(0);
        CHECK(!st || nnc_sink_errors(test_sink) > 0);
        for (int i = 0; !st && i < x.s.n && left == 0; i++) {
            const nnc_sweep_point *p = &x.s.row[i].p;
            CHECK(p->message || p->kind == (chunks ? SWEEP_measured : SWEEP_predicted));
        }
        CHECK(left == 0 || !chunks || x.s.row[0].p.chunks > 2);
        nnc_arena_deinit(&x.s.arena);
    }
}

TEST(sweep_out_of_memory)
{
    char dir[400], file[500];
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(file, sizeof file, "%s/rows.json", dir);
    check_out_of_memory(file, false);
    check_out_of_memory(file, true);
    api_rmdir(dir);
}
