/* tests/api/judge.c -- verdicts of compare: each output by itself, limits from the conditioning that simulated rounding measures, and
 * elements that are not finite. */
#include "base/limits.h"
#include "check/compare.h"
#include "check/ties.h"
#include "session/session.h"
#include "help.h"
#include <math.h>
#include <string.h>
#include <sys/mman.h>

static nnc_model *model(const char *json)
{
    char dir[256], file[300];
    CHECK(api_tmpdir(dir, sizeof dir));
    snprintf(file, sizeof file, "%s/m.json", dir);
    CHECK_OK(nnc_file_write(file, json, strlen(json), false, test_sink));
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){.seed = 1}, test_sink);
    CHECK(m != NULL);
    api_rmdir(dir);
    return m;
}

/* What compare says of a model. */
static bool compared_as(const char *json, nnc_compare_options o, nnc_format f, nnc_text *t)
{
    bool agrees = false;
    nnc_env *e = NULL;
    nnc_model *m = model(json);
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED}, &e, test_sink));
    o.iterations = 1;
    o.warmup = 1;
    CHECK_OK(nnc_compare(e, m, &o, f, t, &agrees, test_sink));
    nnc_model_close(m);
    nnc_env_destroy(e);
    return agrees;
}

static cJSON *compared(const char *json, nnc_compare_options o, bool *agrees)
{
    NNC_LOCAL(nnc_text) t = {0};
    *agrees = compared_as(json, o, NNC_JSON, &t);
    cJSON *j = cJSON_Parse(nnc_text_str(&t));
    CHECK(j != NULL);
    return j;
}

/* Output i of the fused program. */
static const cJSON *output(const cJSON *j, int i)
{
    const cJSON *run = cJSON_GetArrayItem(cJSON_GetObjectItem(j, "runs"), 1);
    return cJSON_GetArrayItem(cJSON_GetObjectItem(run, "outputs"), i);
}

static double number(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItem(j, key);
    return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

static const char cancels[] =
    "{\"inputs\":{\"x\":[64,100]},\"layers\":[{\"op\":\"mul\",\"name\":\"big\",\"in\":\"x\","
    "\"value\":1000000},{\"op\":\"add\",\"name\":\"a\",\"in\":\"x\",\"value\":1000000},"
    "{\"op\":\"sub\",\"name\":\"b\",\"in\":\"a\",\"value\":1000000}],\"outputs\":[\"big\",\"b\"]}";

/* The large output does not hide the small one, whose digits the model itself cancels: both numbers are printed. */
TEST(judge_each_output)
{
    bool agrees = false;
    cJSON *j = compared(cancels, (nnc_compare_options){.compile = nnc_compile_defaults}, &agrees);
    CHECK(agrees);
    CHECK(number(output(j, 0), "nmse") < 1e-14 && number(output(j, 0), "limit") == 1e-11);
    CHECK(isnan(number(output(j, 0), "conditioning")));
    double nmse = number(output(j, 1), "nmse"), own = number(output(j, 1), "conditioning");
    CHECK(nmse > 1e-4 && nmse < 1e-2);
    CHECK(own > nmse / 10 && own < nmse * 10);
    CHECK(number(cJSON_GetArrayItem(cJSON_GetObjectItem(j, "runs"), 1), "nmse") == nmse);
    cJSON_Delete(j);
    /* without conditioning to explain it, it differs */
    nnc_compare_options strict = {.compile = nnc_compile_defaults, .tolerance = 1e-6};
    j = compared(cancels, strict, &agrees);
    CHECK(!agrees);
    CHECK(cJSON_IsTrue(cJSON_GetObjectItem(output(j, 0), "agree")));
    CHECK(cJSON_IsFalse(cJSON_GetObjectItem(output(j, 1), "agree")));
    cJSON_Delete(j);
}

/* A result of f32 after f16 cannot be better than f16, at any level, with and without a reference. */
TEST(judge_by_the_types_on_the_way)
{
    static const char json[] = "{\"inputs\":{\"x\":{\"shape\":[8,100],\"dtype\":\"f16\"}},"
                               "\"layers\":[{\"op\":\"linear\",\"out\":50,\"dtype\":\"f16\"},"
                               "{\"op\":\"softmax\",\"dtype\":\"f32\"}]}";
    for (int level = 0; level < 3; level++)
        for (int reference = 0; reference < 2; reference++) {
            bool agrees = false;
            nnc_compare_options o = {.compile = nnc_compile_defaults, .no_reference = !reference};
            o.compile.level = level;
            cJSON *j = compared(json, o, &agrees);
            CHECK(agrees);
            cJSON_Delete(j);
        }
}

/* Under --math=fast a chain that ends in gelu(x) + 2 may be one polynomial, with an error of 2^-15 of the sum, not of gelu. */
TEST(judge_chains_of_functions)
{
    static const char json[] = "{\"inputs\":{\"x\":[4096]},\"layers\":[\"softmax\",\"gelu\","
                               "{\"op\":\"add\",\"value\":2,\"name\":\"y\"}]}";
    bool agrees = false;
    nnc_compare_options o = {.compile = nnc_compile_defaults};
    o.compile.math = MATH_fast;
    cJSON *j = compared(json, o, &agrees);
    double nmse = number(output(j, 0), "nmse"), own = number(output(j, 0), "conditioning");
    CHECK(agrees);
    CHECK(nmse > 1e-11); /* beyond the limit of f32 */
    CHECK(own > 1e-11 && own < 1e-8); /* 2^-30 is 9e-10 */
    cJSON_Delete(j);
}

/* A coarse precision of contractions excuses only outputs that a contraction is part of. */
TEST(judge_by_the_contractions_on_the_way)
{
    static const char json[] =
        "{\"inputs\":{\"x\":[8,100]},\"layers\":[{\"op\":\"linear\",\"name\":\"l\",\"out\":50},"
        "{\"op\":\"sigmoid\",\"name\":\"s\"},{\"op\":\"softmax\",\"name\":\"p\",\"in\":\"x\"}],"
        "\"outputs\":[\"s\",\"p\"]}";
    bool agrees = false;
    nnc_compare_options o = {.compile = nnc_compile_defaults};
    o.compile.precision = NNC_PRECISION_bf16;
    cJSON *j = compared(json, o, &agrees);
    CHECK(agrees);
    CHECK(number(output(j, 0), "limit") == 1e-3);
    CHECK(number(output(j, 1), "limit") == 1e-11);
    cJSON_Delete(j);
}

/* What verify says of a model. */
static bool verified(const char *json, nnc_text *t)
{
    bool agrees = false;
    nnc_env *e = NULL;
    nnc_model *m = model(json);
    const nnc_compare_options o = {.compile = nnc_compile_defaults};
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED}, &e, test_sink));
    CHECK_OK(nnc_verify_model(e, m, &o, NULL, NNC_TEXT, t, &agrees, test_sink));
    nnc_model_close(m);
    nnc_env_destroy(e);
    return agrees;
}

/* Elements that are NaN in float64, too, agree, be they some or all: compare and verify say so, with their number. */
TEST(judge_what_is_not_finite)
{
    static const char json[] = "{\"inputs\":{\"x\":[8,100]},\"layers\":[%s{\"op\":\"log\"}]}",
                      *const layers[] = {"", "\"abs\",\"neg\","};
    for (int i = 0; i < 2; i++) {
        char text[256];
        bool agrees = false;
        nnc_text said = {0};
        snprintf(text, sizeof text, json, layers[i]);
        cJSON *j = compared(text, (nnc_compare_options){.compile = nnc_compile_defaults}, &agrees);
        CHECK(agrees && verified(text, &said));
        CHECK(strstr(nnc_text_str(&said), "elements that are NaN or infinite in float64, too"));
        nnc_text_deinit(&said);
        double bad = number(output(j, 0), "not_finite");
        CHECK(i ? bad == 800 : bad > 100 && bad < 700);
        CHECK_INT(number(output(j, 0), "mismatched"), 0);
        cJSON_Delete(j);
    }
}

/* Products of a 0 and of others beyond f32 are 0 or NaN, by the order. They are open, and others are not: compare and verify leave them
 * out, and say so. */
TEST(judge_what_depends_on_the_order)
{
    static const char json[] = "{\"inputs\":{\"x\":[64,4]},\"layers\":[\"relu\",{\"op\":\"mul\","
                               "\"value\":1e30},{\"op\":\"reduce_prod\",\"axes\":[1]}]}";
    double mean_square[1] = {0};
    int many = 0;
    bool agrees = false;
    nnc_reference r;
    api_data d = {0};
    NNC_LOCAL(nnc_text) said = {0};
    nnc_model *m = model(json);
    CHECK(api_inputs(&d, m, 1, false));
    CHECK_OK(nnc_reference_make(m, d.in, 2, &r, test_sink));
    CHECK_OK(nnc_reference_conditioning(&r, m, d.in, 2, (nnc_rounding){0}, mean_square, test_sink));
    CHECK(r.any_open);
    for (int i = 0; i < 64 && r.any_open; i++) {
        const float *x = (const float *)d.in[0] + (ptrdiff_t)4 * i;
        const int positive = (x[0] > 0) + (x[1] > 0) + (x[2] > 0) + (x[3] > 0);
        CHECK(r.open[0][i] == (positive > 1));
        many += positive > 1;
    }
    nnc_reference_deinit(&r);
    api_data_free(&d);
    nnc_model_close(m);
    cJSON *j = compared(json, (nnc_compare_options){.compile = nnc_compile_defaults}, &agrees);
    CHECK(agrees && number(output(j, 0), "not_compared") > 0 && many > 0 && many < 64);
    CHECK_INT(number(output(j, 0), "mismatched"), 0);
    cJSON_Delete(j);
    CHECK(verified(json, &said) && strstr(nnc_text_str(&said), "elements that are not compared"));
}

/* Sums beyond f32 end as 1, and as less in float64: nothing is infinite there, and no element is compared. */
TEST(judge_what_overflows_on_the_way)
{
    static const char json[] =
        "{\"inputs\":{\"x\":[64,32]},\"layers\":[\"abs\",{\"op\":\"mul\",\"value\":1e38},"
        "{\"op\":\"reduce_sum\",\"axes\":[1]},{\"op\":\"mul\",\"value\":1e-39},\"sigmoid\"]}";
    bool agrees = false;
    NNC_LOCAL(nnc_text) said = {0};
    cJSON *j = compared(json, (nnc_compare_options){.compile = nnc_compile_defaults}, &agrees);
    CHECK(agrees);
    CHECK_INT(number(output(j, 0), "not_compared"), 64);
    cJSON_Delete(j);
    CHECK(verified(json, &said) && strstr(nnc_text_str(&said), "open      open"));
    nnc_text_clear(&said);
    CHECK(
        compared_as(json, (nnc_compare_options){.compile = nnc_compile_defaults}, NNC_TEXT, &said));
    CHECK(strstr(nnc_text_str(&said), "yes, where compared"));
}

/* Open elements count neither in conditioning nor in what ties change: what rounding does to an element near f16's largest number, or a
 * choice to it, excuses no error of another. */
TEST(judge_open_elements_apart)
{
    static const char text[] = "graph @t {\n%x = input : f32[64]\n%h = cast %x {to=f16}\n"
                               "%z = sub %h, %h\n%t = exp %z\n%one = constant : f16[] = [1]\n"
                               "%c = gt %t, %one\n%d = add %h, %h\n%n = neg %d\n"
                               "%y = select %c, %n, %d\nreturn %y\n}\n";
    float x[64];
    void *const in[] = {x};
    double mean_square[1] = {0}, ties[1] = {0}, most = 0;
    nnc_reference r;
    nnc_scan scan;
    NNC_LOCAL(nnc_ties) t = {0};
    for (int i = 0; i < 64; i++)
        x[i] = i ? 0.01F * (float)i : 32752; /* twice is 65504 */
    nnc_scan_init(&scan, "t", text, sizeof text - 1);
    nnc_graph *g = nnc_graph_parse(&scan, test_sink);
    CHECK(g != NULL);
    CHECK_OK(nnc_reference_make(g, in, 1, &r, test_sink));
    CHECK_OK(nnc_reference_conditioning(&r, g, in, 1, (nnc_rounding){0}, mean_square, test_sink));
    for (int i = 0; i < 64; i++)
        most += 16 * (double)x[i] * x[i] * (i > 0);
    CHECK(r.any_open && r.open[0][0] && !r.open[0][1]);
    CHECK(mean_square[0] > 0 && mean_square[0] < 4); /* one ulp of 65504 is 32 */
    CHECK_OK(nnc_ties_find(g, in, 1, (nnc_rounding){0}, &t, test_sink));
    CHECK(t.n > 0);
    CHECK_OK(nnc_ties_spread(g, in, 1, &t, &r, ties, test_sink));
    CHECK(ties[0] > 0 && ties[0] <= most);
    nnc_reference_deinit(&r);
    nnc_graph_destroy(g);
}

/* The verdict on errors that are planted: `relative` in all elements of an output that cancels by a factor of 1e6, or does not. */
static bool verdict(nnc_model *m, int out, double relative, int64_t mismatched)
{
    comparison c = {.model = m, .sink = test_sink, .n = 1, .n_result = 2};
    nnc_compare_options o = {.compile = nnc_compile_defaults};
    judged j[2] = {{.agrees = false}};
    api_data d = {0};
    c.o = &o;
    nnc_arena_init(&c.arena, 0);
    CHECK_OK(nnc_env_create(&(nnc_env_options){TEST_CACHED}, &c.env, test_sink));
    CHECK_OK(nnc_compile(c.env, m, &o.compile, &c.p[0].a, test_sink));
    CHECK(api_inputs(&d, m, 1, false));
    c.input = d.in;
    CHECK_OK(nnc_reference_make(m, d.in, 1, &c.reference, test_sink));
    c.p[0].output = j;
    const nnc_rval *v = &c.reference.value[out];
    for (int64_t i = 0; i < nnc_type_numel(&v->type); i++)
        nnc_error_add(&j[out].reference, v->f[i] * (1 + (i % 2 ? relative : -relative)), v->f[i]);
    j[out].reference.mismatched = mismatched;
    CHECK_OK(nnc_judge(&c));
    nnc_artifact_destroy(c.p[0].a);
    nnc_reference_deinit(&c.reference);
    nnc_env_destroy(c.env);
    nnc_arena_deinit(&c.arena);
    api_data_free(&d);
    return j[out].agrees;
}

TEST(judge_planted_errors)
{
    nnc_model *m = model(cancels);
    CHECK(verdict(m, 0, 1e-7, 0) && !verdict(m, 0, 1e-5, 0));
    CHECK(verdict(m, 1, 0.03, 0) && !verdict(m, 1, 0.5, 0));
    CHECK(!verdict(m, 1, 0, 1));
    nnc_model_close(m);
}

/* A large mean costs the digits of what is normalised; the mean square of the results is 1. */
TEST(judge_conditioning_of_sums)
{
    static const char json[] = "{\"inputs\":{\"x\":[16,4096]},\"layers\":["
                               "{\"op\":\"add\",\"value\":%s},{\"op\":\"layernorm\"}]}";
    static const struct row {
        const char *shift;
        double least, most;
    } rows[] = {{"0", 1e-16, 1e-10}, {"10000", 1e-7, 1e-1}};
    for (int i = 0; i < 2; i++) {
        char text[512];
        double mean_square[1] = {0};
        nnc_reference r;
        api_data d = {0};
        snprintf(text, sizeof text, json, rows[i].shift);
        nnc_model *m = model(text);
        CHECK(api_inputs(&d, m, 1, false));
        CHECK_OK(nnc_reference_make(m, d.in, 2, &r, test_sink));
        CHECK_OK(
            nnc_reference_conditioning(&r, m, d.in, 2, (nnc_rounding){0}, mean_square, test_sink));
        CHECK(mean_square[0] > rows[i].least && mean_square[0] < rows[i].most);
        nnc_reference_deinit(&r);
        api_data_free(&d);
        nnc_model_close(m);
    }
}

/* In an output of one element all of few draws may be small by chance. Of 4, one in ten has less than a quarter of the mean square. */
TEST(judge_conditioning_of_one_element)
{
    enum { OUTPUTS = 40 };
    NNC_LOCAL(nnc_text) t = {0};
    double square[OUTPUTS] = {0}, sum = 0;
    nnc_reference r;
    api_data d = {0};
    nnc_puts(&t, "graph @t {\n%x = input : f32[256]\n%e = exp %x\n");
    for (int i = 0; i < OUTPUTS; i++)
        nnc_printf(&t, "%%y%d = reduce_sum %%e {axes=[0]}\n", i);
    for (int i = 0; i < OUTPUTS; i++)
        nnc_printf(&t, "%s%%y%d", i ? ", " : "return ", i);
    nnc_puts(&t, " }");
    nnc_model *m = model(nnc_text_str(&t));
    CHECK(api_inputs(&d, m, 1, false));
    CHECK_OK(nnc_reference_make(m, d.in, 1, &r, test_sink));
    CHECK_OK(nnc_reference_conditioning(&r, m, d.in, 1, (nnc_rounding){0}, square, test_sink));
    for (int i = 0; i < OUTPUTS; i++)
        sum += square[i];
    for (int i = 0; i < OUTPUTS; i++)
        CHECK(square[i] > sum / OUTPUTS / 4);
    nnc_reference_deinit(&r);
    api_data_free(&d);
    nnc_model_close(m);
}

/* Where float64 values of all rows would take more than a sixth of the free memory, some rows are computed. They are the first, the last
 * and rows between them, with their own numbers. Inputs without these rows are used whole. Nothing is computed where rows depend on each
 * other. */
TEST(judge_some_rows)
{
    enum { ROWS = 65536 };
    static const char *const last[] = {
        "%z = neg %y", "%m = reduce_max %y {axes=[0]}\n%z = sub %y, %m"};
    const int64_t n = nnc_memory_free().bytes / 8; /* its rows need more than a sixth of that */
    float *x = mmap(NULL, (size_t)n * sizeof *x, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
          b = 0.5;
    CHECK(x != MAP_FAILED && n / 6 > ROWS);
    for (int64_t i = 0; x != MAP_FAILED && i < ROWS; i += 257)
        x[i * (n - 1) / (ROWS - 1)] = (float)(i + 1);
    for (int k = 0; x != MAP_FAILED && k < 2; k++) {
        nnc_text t = {0};
        nnc_reference r;
        void *in[] = {x, &b};
        double mean_square[2] = {NAN, NAN};
        nnc_printf(&t,
            "graph @t {\n%%x = input : f32[%lld,1]\n%%b = input : f32[1]\n%%y = add %%x, %%b\n%s\n"
            "%%w = exp %%b\nreturn %%z, %%w }",
            (long long)n, last[k]);
        nnc_model *m = model(nnc_text_str(&t));
        CHECK_OK(nnc_reference_make(m, in, 2, &r, test_sink));
        CHECK_INT(r.ran, !k);
        CHECK(strstr(r.scope, k ? "rows are not independent" : "65536 of ") != NULL);
        if (r.ran) {
            CHECK(r.rows == ROWS && r.carried_out[0] && !r.carried_out[1]);
            CHECK(r.row[0] == 0 && r.row[ROWS - 1] == n - 1);
            for (int64_t i = 0; i < ROWS; i++)
                CHECK_NEAR(r.value[0].f[i], i % 257 ? -0.5 : -0.5 - (double)(i + 1), 0);
            CHECK_NEAR(r.value[1].f[0], exp(0.5), 1e-12);
            CHECK_OK(nnc_reference_conditioning(
                &r, m, in, 2, (nnc_rounding){0}, mean_square, test_sink));
            CHECK(mean_square[0] > 0 && mean_square[0] < 1e-4 && mean_square[1] < 1e-12);
        }
        nnc_reference_deinit(&r);
        nnc_model_close(m);
        nnc_text_deinit(&t);
    }
    if (x != MAP_FAILED)
        munmap(x, (size_t)n * sizeof *x);
}
