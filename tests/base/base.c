/* tests/base/base.c -- status and sink, arena, text, scanner, numbers, types. */
#include "base/json_writer.h"
#include "base/lock.h"
#include "test.h"
#include <dirent.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <math.h>
#include <stdlib.h>

TEST(sink_keeps_order_and_codes)
{
    nnc_loc at = {"m.json", 3, 7, "/layers/0/conv"};
    CHECK_INT(nnc_fail(test_sink, NNC_E_MODEL, at, "kernel %d", 7), NNC_E_MODEL);
    nnc_warn(test_sink, at, "slow");
    CHECK_INT(nnc_sink_count(test_sink), 2);
    CHECK_INT(nnc_sink_errors(test_sink), 1);
    CHECK_DIAG("m.json:3:7: /layers/0/conv: kernel 7");
}

TEST(warnings_and_notes_come_once)
{
    nnc_sink *s = nnc_sink_create();
    const nnc_loc at = {"m.json", 3, 1, "/layers/0"}, below = {"m.json", 4, 1, "/layers/0"};
    for (int i = 0; i < 2; i++) {
        nnc_warn(s, at, "nothing uses %s", "it");
        nnc_note(s, at, "nothing uses %s", "it");
        nnc_warn(s, below, "nothing uses %s", "it");
        nnc_warn(s, (nnc_loc){0}, "nothing uses %s", "it");
        (void)nnc_fail(s, NNC_E_MODEL, at, "wrong");
    }
    CHECK_INT(nnc_sink_count(s), 6); /* each error counts */
    CHECK_INT(nnc_sink_errors(s), 2);
    nnc_sink_destroy(s);
}

TEST(milliseconds_have_four_digits)
{
    static const struct {
        double ms;
        const char *text;
    } t[] = {{123.456, "123.5"}, {12.3456, "12.35"}, {1.23456, "1.235"}, {0.0123456, "0.01235"},
        {0.00041, "0.000410"}, {0.000001, "0.000001"}, {0.00000049, "<0.000001"}, {0, "0"}};
    for (size_t i = 0; i < NNC_COUNT(t); i++) {
        nnc_text s = {0};
        nnc_put_ms(&s, t[i].ms, 0);
        CHECK_STR(nnc_text_str(&s), t[i].text);
        nnc_text_deinit(&s);
    }
}

TEST(sink_survives_no_memory)
{
    nnc_fail_alloc_after(1);
    CHECK_INT(nnc_fail0(test_sink, NNC_E_MODEL, "lost"), NNC_E_MODEL);
    nnc_fail_alloc_after(0);
    CHECK_INT(nnc_sink_count(test_sink), 1);
    CHECK_INT(nnc_sink_at(test_sink, 0)->code, NNC_E_NOMEM);
    CHECK_INT(nnc_nomem(test_sink), NNC_E_NOMEM);
}

TEST(sink_limits_what_it_keeps)
{
    for (int i = 0; i < 1000; i++)
        (void)nnc_fail0(test_sink, NNC_E_MODEL, "%d", i);
    CHECK_INT(nnc_sink_errors(test_sink), 1000);
    CHECK(nnc_sink_count(test_sink) <= 200);
}

TEST(exit_codes)
{
    static const int want[] = {0, 1, 2, 3, 4, 5, 6, 5, 4, 70};
    for (int i = 0; i <= NNC_E_BUG; i++)
        CHECK_INT(nnc_exit_code((nnc_status)i), want[i]);
    CHECK_INT(nnc_exit_code((nnc_status)99), 70);
}

TEST(nearest_word)
{
    static const char *const names[] = {"conv", "linear", "maxpool", "relu"};
    CHECK_STR(nnc_nearest("cnov", names, 4), "conv");
    CHECK_STR(nnc_nearest("max_pool", names, 4), "maxpool");
    CHECK_STR(nnc_nearest("rellu", names, 4), "relu");
    CHECK(!nnc_nearest("attention", names, 4));
    CHECK(!nnc_nearest("", names, 0));
}

TEST(arena_limits_and_overflow)
{
    nnc_arena a;
    nnc_arena_init(&a, 1000);
    CHECK(!nnc_arena_alloc(&a, SIZE_MAX / 2, 4));
    CHECK(!nnc_arena_alloc(&a, 1001, 1));
    char *p = nnc_arena_alloc(&a, 100, 1);
    CHECK(p && ((uintptr_t)p & 15) == 0);
    for (int i = 0; p && i < 100; i++)
        CHECK_INT(p[i], 0);
    CHECK_STR(nnc_arena_printf(&a, "%s-%d", "x", 4), "x-4");
    nnc_arena_deinit(&a);
    CHECK_INT(a.used, 0);
    nnc_arena_init(&a, 0);
    size_t cap = 0;
    int *v = NULL;
    for (int i = 0; i < 10000; i++) {
        v = nnc_arena_grow(&a, v, &cap, (size_t)i + 1, sizeof *v);
        v[i] = i;
    }
    CHECK_INT(v[9999] + v[0], 9999);
    nnc_arena_deinit(&a);
}

/* Random bits, decimals of few digits, and floats: all numbers of digits, the smallest doubles too. */
static double drawn_double(int i)
{
    const uint64_t key = test_seed, r = (uint64_t)nnc_rng_u32(key, 2 * (uint64_t)i) << 32 |
                                        nnc_rng_u32(key, 2 * (uint64_t)i + 1);
    double v;
    memcpy(&v, &r, sizeof v);
    switch (i % 4) {
    case 0: return v;
    case 1: return (double)(r >> 32) * pow(10, (double)(r % 40) - 20);
    case 2: return (double)(float)(int32_t)(r >> 32) / 3;
    default: return (r % 2 ? -1 : 1) * (double)(r >> 8) * 0x1p-1074;
    }
}

/* The smallest number of digits that reads as v, found by trying each. */
TEST(text_doubles_have_the_fewest_digits)
{
    for (int i = 0; i < test_draws(20000); i++) {
        const double v = drawn_double(i);
        char want[40];
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(want, sizeof want, "%.*g", digits, v);
            if (strtod(want, NULL) == v)
                break;
        }
        nnc_text t = {0};
        nnc_put_double(&t, v);
        if (!isnan(v))
            CHECK_STR(nnc_text_str(&t), want);
        nnc_text_deinit(&t);
    }
}

TEST(text_doubles_are_shortest_and_exact)
{
    nnc_text t = {0};
    static const double v[] = {0.1, 1e300, -0.0, 1.0 / 3, 123456789, 5e-324};
    for (size_t i = 0; i < NNC_COUNT(v); i++) {
        nnc_text_clear(&t);
        nnc_put_double(&t, v[i]);
        CHECK(strtod(nnc_text_str(&t), NULL) == v[i]);
    }
    nnc_text_clear(&t);
    nnc_put_double(&t, 0.1);
    nnc_putc(&t, ' ');
    nnc_put_double(&t, -INFINITY);
    nnc_putc(&t, ' ');
    nnc_put_bytes(&t, 1536);
    nnc_put_json_string(&t, "a\"\n\x01");
    CHECK_STR(nnc_text_str(&t), "0.1 -inf 1.50 KiB\"a\\\"\\n\\u0001\"");
    nnc_text_clear(&t);
    nnc_put_json_string(
        &t, "\xc3\xa9 \xff\xe2\x82 \xf0\x9f\x98\x80"); /* whatever comes in, JSON goes out */
    CHECK_STR(
        nnc_text_str(&t), "\"\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x98\x80\"");
    nnc_text_deinit(&t);
}

/* Times that a reason compares have the digits that tell them apart. */
TEST(text_times_differ_where_they_do)
{
    static const struct {
        int64_t a, b;
        const char *text;
    } at[] = {{612, 612, "0.61 us 0.61 us"}, {612, 618, "0.61 us 0.62 us"},
        {612, 614, "0.612 us 0.614 us"}, {9999, 10000, "9.999 us 10.000 us"},
        {12340, 12310, "12.34 us 12.31 us"}, {123400, 123300, "123.4 us 123.3 us"},
        {99999999, 100000000, "99999.999 us 100000.000 us"}, {0, 1, "0.000 us 0.001 us"},
        {50000, 2000, "50.0 us 2.00 us"}};
    for (size_t i = 0; i < NNC_COUNT(at); i++) {
        NNC_LOCAL(nnc_text) t = {0};
        const int more = nnc_us_digits(at[i].a, at[i].b);
        nnc_put_us(&t, at[i].a, more);
        nnc_putc(&t, ' ');
        nnc_put_us(&t, at[i].b, more);
        CHECK_STR(nnc_text_str(&t), at[i].text);
    }
}

TEST(json_writer)
{
    nnc_text t = {0};
    nnc_json_writer w = {.out = &t};
    nnc_json_open(&w, NULL, '{');
    NNC_JSON(&w, J_STRING("a\"b", "x\n\xff\xc3\xa9"));
    nnc_json_open(&w, "list", '[');
    NNC_JSON(&w, J_INT(NULL, INT64_MIN));
    nnc_json_line(&w, 2);
    NNC_JSON(&w, J_REAL(NULL, 0.1));
    nnc_json_open(&w, NULL, '{');
    nnc_json_close(&w, '}');
    nnc_json_close(&w, ']');
    NNC_JSON(&w, J_REAL("nan", NAN), J_MS("ms", 1.23456789), J_MS("inf", INFINITY),
        J_STRING("null", NULL), J_BOOL("yes", true));
    nnc_json_item(&w, "raw");
    nnc_puts(&t, "[]");
    nnc_json_close(&w, '}');
    CHECK_STR(nnc_text_str(&t),
        "{\"a\\\"b\": \"x\\n\xef\xbf\xbd\xc3\xa9\", \"list\": [-9223372036854775808,\n  0.1, {}], "
        "\"nan\": null, \"ms\": 1.234568, \"inf\": null, \"null\": null, \"yes\": true, \"raw\": "
        "[]}");
    nnc_text_deinit(&t);
}

/* The rows of a report, in both formats. */
TEST(json_rows)
{
    static const char *const words[] = {"a", "b\"c"};
    static const char *const want[] = {"{\"list\": [\n {\"name\": \"x,y\", \"n\": 1, \"r\": 50, "
                                       "\"at\": [\"a\", \"b\\\"c\"]},\n {\"name\": "
                                       "null, \"n\": 2, \"r\": null, \"at\": []}]}\n",
        "name,n,r,at\n\"x,y\",1,50,\"a+b\"\"c\"\n,2,nan,\n"};
    for (int csv = 0; csv < 2; csv++) {
        nnc_text t = {0};
        nnc_json_writer w = {.out = &t, .csv = csv};
        nnc_json_open(&w, NULL, '{');
        nnc_json_open(&w, "list", '[');
        nnc_json_line(&w, 1);
        for (int i = 0; i < 2; i++)
            NNC_JSON_ROW(&w, 1, J_STRING("name", i ? NULL : "x,y"), J_INT("n", i + 1),
                J_REAL("r", i ? NAN : 50), J_WORDS("at", words, i ? 0 : 2));
        nnc_json_close(&w, ']');
        nnc_json_end(&w, '}');
        CHECK_STR(nnc_text_str(&t), want[csv]);
        nnc_text_deinit(&t);
    }
}

TEST(text_survives_no_memory)
{
    nnc_text t = {0};
    nnc_fail_alloc_after(1);
    nnc_puts(&t, "hello");
    nnc_fail_alloc_after(0);
    CHECK(t.oom);
    CHECK_STR(nnc_text_str(&t), "");
    nnc_text_deinit(&t);
}

TEST(scanner)
{
    static const char text[] =
        "# head\n  graph @net -12 0x1p-3 inf \"a\\u00e9\\n\" 99999999999999999999 relu6";
    nnc_scan s;
    nnc_arena a;
    const char *w;
    char *str;
    size_t n;
    int64_t i;
    double d;
    nnc_arena_init(&a, 0);
    nnc_scan_init(&s, "t", text, strlen(text));
    CHECK_INT(nnc_scan_loc(&s).line, 2);
    CHECK_INT(nnc_scan_loc(&s).col, 3);
    CHECK(!nnc_scan_eat(&s, "gra"));
    CHECK(nnc_scan_eat(&s, "graph"));
    CHECK(nnc_scan_eat(&s, "@"));
    CHECK(nnc_scan_word(&s, &w, &n) && n == 3);
    CHECK(nnc_scan_int(&s, &i));
    CHECK_INT(i, -12);
    CHECK(nnc_scan_double(&s, &d) && d == 0.125);
    CHECK(nnc_scan_double(&s, &d) && isinf(d));
    CHECK(nnc_scan_string(&s, &a, &str));
    CHECK_STR(str, "a\xc3\xa9\n");
    CHECK(!nnc_scan_int(&s, &i));
    CHECK_INT(nnc_scan_fail(&s, test_sink, "a count"), NNC_E_MODEL);
    CHECK_DIAG("t:2:41: : expected a count, found `99999999999999999999 rel`");
    static const struct {
        const char *text, *want; /* NULL: malformed */
    } strings[] = {
        {"\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
        {"\"a\\ud83d\\ude00b\"", "a\xf0\x9f\x98\x80"
                                 "b"},
        {"\"\\ud83d\"", NULL},
        {"\"\\ud83d\\u0041\"", NULL},
        {"\"\\ude00\\ud83d\"", NULL},
        {"\"\\u0000\"", NULL},
        {"\"\\u12g4\"", NULL},
    };
    for (size_t k = 0; k < NNC_COUNT(strings); k++) {
        nnc_scan_init(&s, "t", strings[k].text, strlen(strings[k].text));
        CHECK_INT(nnc_scan_string(&s, &a, &str), strings[k].want != NULL);
        if (strings[k].want)
            CHECK_STR(str, strings[k].want);
    }
    nnc_arena_deinit(&a);
}

TEST(f16_round_trips_and_rounds)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = nnc_f16_to_f32((uint16_t)h), b = nnc_bf16_to_f32((uint16_t)h);
        if (isnan(f))
            CHECK(isnan(nnc_f16_to_f32(nnc_f32_to_f16(f))));
        else if (nnc_f32_to_f16(f) != h)
            CHECK_INT(nnc_f32_to_f16(f), h);
        if (!isnan(b) && (nnc_f32_to_bf16(b) != h || nnc_f64_to_bf16(b) != h))
            CHECK_INT(nnc_f64_to_bf16(b), h);
    }
    CHECK_INT(nnc_f64_to_f16(65519.99), 0x7bff);
    CHECK_INT(nnc_f64_to_f16(65520), 0x7c00);
    CHECK_INT(nnc_f64_to_f16(0x1p-25), 0);
    CHECK_INT(nnc_f64_to_f16(0x1.8p-25), 1);
    CHECK_INT(nnc_f64_to_f16(1 + 0x1p-11), 0x3c00); /* tie to even */
    CHECK_INT(nnc_f64_to_f16(1 + 0x1p-11 + 0x1p-40), 0x3c01); /* one rounding, not two */
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t u = nnc_rng_u32(test_seed, i);
        float f;
        memcpy(&f, &u, 4);
        if (!isnan(f) && nnc_f32_to_bf16(f) != nnc_f64_to_bf16(f))
            CHECK_INT(nnc_f32_to_bf16(f), nnc_f64_to_bf16(f));
    }
}

/* Known answer of Philox 4x32-10 with key and counter 0 (Random123's kat_vectors). */
TEST(philox_known_answer)
{
    CHECK_INT(nnc_rng_u32(0, 0), 0x6627e8d5);
    CHECK_INT(nnc_rng_u32(0, 1), 0xe169c58d);
    CHECK_INT(nnc_rng_u32(0, 2), 0xbc57ac4c);
    CHECK_INT(nnc_rng_u32(0, 3), 0x9b00dbd8);
}

TEST(rng_fill_is_the_same_in_any_pieces)
{
    enum { N = 1003 };
    static float whole[N], piece[N];
    uint64_t key = nnc_rng_key("conv1.weight", 7), big = ((uint64_t)1 << 34) - 100;
    nnc_rng_fill(key, big, N, 0.5f, whole);
    for (size_t i = 0, n = 1; i < N; i += n, n = (n * 7 + 3) % 90 + 1)
        nnc_rng_fill(key, big + i, n < N - i ? n : N - i, 0.5f, piece + i);
    CHECK(!memcmp(whole, piece, sizeof whole));
    double sum = 0;
    for (int i = 0; i < N; i++) {
        CHECK(whole[i] >= -0.5f && whole[i] < 0.5f);
        CHECK_NEAR(whole[i], ((double)nnc_rng_uniform(key, big + (uint64_t)i) * 2 - 1) * 0.5, 1e-7);
        sum += whole[i];
    }
    CHECK_NEAR(sum / N, 0, 0.05);
}

TEST(floor_and_ceil_division)
{
    for (int a = -20; a <= 20; a++)
        for (int b = 1; b <= 7; b++) {
            CHECK_INT(nnc_floordiv(a, b), (int)floor((double)a / b));
            CHECK_INT(nnc_ceildiv(a, b), (int)ceil((double)a / b));
        }
}

static nnc_status scan_type(const char *text, nnc_type *t)
{
    nnc_scan s;
    nnc_scan_init(&s, "t", text, strlen(text));
    return nnc_scan_type(&s, test_sink, t);
}

TEST(types)
{
    nnc_type t, u;
    int64_t st[NNC_MAX_RANK];
    nnc_text x = {0};
    CHECK_OK(scan_type("f32[2,3,4,5]{0,2,3,1}", &t));
    nnc_type_strides(&t, st);
    CHECK_INT(st[0], 60);
    CHECK_INT(st[1], 1);
    CHECK_INT(st[2], 15);
    CHECK_INT(st[3], 3);
    CHECK_INT(nnc_type_bytes(&t), 480);
    CHECK(!nnc_type_is_row_major(&t));
    nnc_put_type(&x, &t);
    CHECK_STR(nnc_text_str(&x), "f32[2,3,4,5]{0,2,3,1}");
    nnc_text_deinit(&x);
    u = nnc_type_make(DT_f32, 4, t.dim);
    nnc_type_channels_last(&u);
    CHECK(nnc_type_equal(&t, &u));
    CHECK_OK(scan_type("f32[2,3,1,1]{0,2,3,1}", &t));
    CHECK(nnc_type_is_row_major(&t)); /* extents of 1 do not matter */
    CHECK_OK(scan_type("bool[]", &t));
    CHECK_INT(nnc_type_numel(&t), 1);
    CHECK_INT(scan_type("f32[0]", &t), NNC_E_MODEL);
    CHECK_INT(scan_type("f32[1000000000,1000000000]", &t), NNC_E_MODEL);
    CHECK_INT(scan_type("f32[1,1,1,1,1,1,1,1,1]", &t), NNC_E_MODEL);
    CHECK_INT(scan_type("f33[1]", &t), NNC_E_MODEL);
    CHECK_INT(scan_type("f32[2,3]{0,0}", &t), NNC_E_MODEL);
}

TEST(elements_convert)
{
    char buf[16];
    for (int d = 0; d < DT__COUNT; d++) {
        nnc_set_f64((nnc_dtype)d, buf, 0, 1);
        CHECK(nnc_get_f64((nnc_dtype)d, buf, 0) == 1);
        CHECK_INT(nnc_get_i64((nnc_dtype)d, buf, 0), 1);
        nnc_set_f64((nnc_dtype)d, buf, 0, NAN);
        if (nnc_is_float((nnc_dtype)d))
            CHECK(isnan(nnc_get_f64((nnc_dtype)d, buf, 0)));
    }
    nnc_set_f64(DT_i8, buf, 0, 200.9);
    CHECK_INT(nnc_get_i64(DT_i8, buf, 0), 200 - 256);
    nnc_set_f64(DT_u64, buf, 0, 0x1p63);
    CHECK(nnc_get_f64(DT_u64, buf, 0) == 0x1p63);
}

TEST(printf_equals_the_c_library)
{
    char want[512];
    const char *volatile none = NULL;
    nnc_text t = {0};
#define SAME(...) \
    do { \
        nnc_text_clear(&t); \
        nnc_printf(&t, __VA_ARGS__); \
        snprintf(want, sizeof want, __VA_ARGS__); \
        CHECK_STR(nnc_text_str(&t), want); \
    } while (0)
    SAME("100%%");
    SAME("%s|%c|%d|%d|%d|%%", "", 'x', 0, INT32_MIN, INT32_MAX);
    SAME("%lld %lld %lld", INT64_MIN + 0LL, INT64_MAX + 0LL, -7LL);
    SAME("a%db%sc%5d%-4s|%.3f%s%d", 1, "two", 3, "f", 5.0, "six", 7);
    SAME("%08x %zu %u %.*s %g", 255u, (size_t)9, 8u, 2, "abc", 1e300);
    SAME("%0100d%s", 5, "behind what did not fit at first");
    nnc_text_clear(&t);
    nnc_printf(&t, "%s", none);
    CHECK_STR(nnc_text_str(&t), "(null)");
#undef SAME
    nnc_text_deinit(&t);
}

static void count_part(void *ctx, int part, int parts)
{
    (void)parts;
    __atomic_fetch_add(&((int *)ctx)[part], 1, __ATOMIC_RELAXED);
}

TEST(par_runs_every_part_once)
{
    int hits[8] = {0};
    for (int r = 0; r < 200; r++)
        nnc_par_run(1 + r % 8, count_part, hits);
    for (int i = 0; i < 8; i++)
        CHECK_INT(hits[i], (8 - i) * 25);
    CHECK(nnc_cpu_count() >= 1);
}

/* Loops inside and outside a team, more and fewer parts than it has threads, and one inside a part. */
static void nest(void *ctx, int part, int parts)
{
    nnc_par_run(2, count_part, (int *)ctx + 2);
    count_part(ctx, part, parts);
}

TEST(team_runs_every_part_once)
{
    nnc_team *t = NULL;
    int hits[8] = {0}, nested[8] = {0};
    CHECK_OK(nnc_team_create(3, &t, test_sink));
    for (int r = 0; r < 200; r++) {
        if (r % 50 == 0)
            nnc_team_enter(t);
        nnc_par_run(1 + r % 8, count_part, hits);
        if (r % 50 == 39) { /* the last ten are run by threads of their own, the team asleep */
            nnc_team_leave(t);
            usleep(r == 39 ? 1000 : 0);
        }
    }
    for (int i = 0; i < 8; i++)
        CHECK_INT(hits[i], (8 - i) * 25);
    nnc_team_enter(t);
    nnc_par_run(2, nest, nested);
    nnc_team_leave(t);
    CHECK(nested[0] == 1 && nested[1] == 1 && nested[2] == 2 && nested[3] == 2);
    nnc_team_destroy(t);
    CHECK_OK(nnc_team_create(1, &t, test_sink));
    CHECK(t == NULL);
    nnc_team_enter(t);
    nnc_par_run(1, count_part, hits);
    nnc_team_leave(t);
    nnc_team_destroy(t);
    CHECK_INT(hits[0], 201);
}

static int tasks(char state)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], is = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        n += f && fscanf(f, "%*d (%*[^)]) %c", &is) == 1 && (!state || is == state);
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return n;
}

TEST(team_sleeps_outside)
{
    nnc_team *t = NULL;
    int hits[2] = {0}, before = tasks(0);
    CHECK_OK(nnc_team_create(2, &t, test_sink));
    CHECK_INT(tasks(0), before + 1);
    for (int r = 0; r < 3; r++) {
        nnc_team_enter(t);
        nnc_par_run(2, count_part, hits);
        nnc_team_leave(t);
        for (int i = 0; i < 5000 && tasks('S') < 1; i++)
            usleep(2000);
        CHECK_INT(tasks('S'), 1);
    }
    CHECK(hits[0] == 3 && hits[1] == 3);
    nnc_team_destroy(t);
    CHECK_INT(tasks(0), before);
}

#ifndef __SANITIZE_THREAD__ /* which allows no threads in the child */
TEST(team_in_a_forked_process_has_threads_of_its_own)
{
    nnc_team *t = NULL;
    int hits[3] = {0}, rc, before = tasks(0);
    CHECK_OK(nnc_team_create(3, &t, test_sink));
    nnc_team_enter(t);
    nnc_par_run(3, count_part, hits);
    nnc_team_leave(t);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        bool alone = tasks(0) == before;
        nnc_team_enter(t);
        nnc_par_run(3, count_part, hits);
        nnc_team_leave(t);
        bool started = tasks(0) == before + 2;
        nnc_team_destroy(t);
        _exit(alone && started && hits[0] == 2 && hits[1] == 2 && hits[2] == 2 ? 0 : 1);
    }
    CHECK(waitpid(child, &rc, 0) == child && WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
    child = fork();
    if (!child) {
        alarm(60);
        nnc_team_destroy(t); /* which it never entered */
        _exit(0);
    }
    CHECK(waitpid(child, &rc, 0) == child && WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
    nnc_team_destroy(t);
}

static pthread_mutex_t short_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_locked;

static void *hold_short_lock(void *ignored)
{
    nnc_lock(&short_lock);
    atomic_store(&is_locked, true);
    usleep(20000);
    nnc_unlock(&short_lock);
    return ignored;
}

TEST(forked_process_finds_no_lock_held)
{
    pthread_t holder;
    int rc;
    CHECK(pthread_create(&holder, NULL, hold_short_lock, NULL) == 0);
    while (!atomic_load(&is_locked))
        usleep(100);
    const pid_t child = fork(); /* waits for the holder */
    if (!child) {
        alarm(60);
        nnc_lock(&short_lock);
        nnc_unlock(&short_lock);
        _exit(0);
    }
    CHECK(waitpid(child, &rc, 0) == child && WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
    pthread_join(holder, NULL);
    nnc_lock(&short_lock);
    nnc_unlock(&short_lock);
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Stacks of 64 threads do not fit into 64 MiB. */
TEST(team_that_cannot_be_started)
{
    pid_t child = fork();
    int rc;
    if (!child) {
        struct rlimit as;
        char line[256];
        long kib = 0;
        int hits[64] = {0};
        nnc_team *t;
        FILE *f = fopen("/proc/self/status", "r");
        while (f && fgets(line, sizeof line, f))
            (void)!sscanf(line, "VmSize: %ld", &kib);
        getrlimit(RLIMIT_AS, &as);
        as.rlim_cur = ((rlim_t)kib << 10) + (64 << 20);
        bool ok = setrlimit(RLIMIT_AS, &as) == 0 && nnc_team_create(64, &t, NULL) == NNC_E_DEVICE;
        nnc_par_run(64, count_part, hits); /* by those that can be started */
        for (int i = 0; i < 64; i++)
            ok = ok && hits[i] == 1;
        _exit(ok ? 0 : 1);
    }
    CHECK(waitpid(child, &rc, 0) == child && WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
}
#endif

TEST(par_parts_have_enough_work)
{
    CHECK_INT(nnc_par_parts(100, 10, 4), 4);
    CHECK_INT(nnc_par_parts(39, 10, 4), 3);
    CHECK_INT(nnc_par_parts(19, 10, 4), 1); /* not 10 and 9 */
    CHECK_INT(nnc_par_parts(3, 1, 4), 3);
    CHECK_INT(nnc_par_parts(3, 0, 2), 2);
    CHECK_INT(nnc_par_parts(0, 1, 4), 1);
    CHECK_INT(nnc_par_parts(5, 1, 0), 1);
}

TEST(par_ranges_cover)
{
    for (int64_t n = 0; n < 50; n++)
        for (int parts = 1; parts < 6; parts++) {
            int64_t at = 0, b, e;
            for (int i = 0; i < parts; i++) {
                nnc_par_range(n, 4, i, parts, &b, &e);
                CHECK_INT(b, at);
                CHECK(e >= b && (e % 4 == 0 || e == n));
                at = e;
            }
            CHECK_INT(at, n);
        }
}
