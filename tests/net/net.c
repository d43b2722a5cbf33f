/* tests/net/net.c -- every model with flags that a covering array combines, random model files with random flags, and the files that such
 * runs once failed on.
 *
 * NNC_NET_CASES=FROM-TO runs these random files (default: test_draws of 500, fewer under a sanitizer). NNC_NET_SAVE=DIR writes each failing
 * case, made small, into a file there; one that stays goes to tests/net/found with the bug's fix. */
#include "net.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SECONDS = 120, TRIES = 400, NNC_NET_RANDOM = 500, NNC_NET_SANITIZED = 200 };

static int workers(void)
{
    return (int)nnc_min64(nnc_cpu_count(), 4);
}

/* ---- models by flags ------------------------------------------------------------------------------------------------------ */

enum { MAX_ARGS = 6 };
typedef struct model {
    const char *file;
    nnc_arg arg[MAX_ARGS];
} model;

static const model models[] = {
    {"models/conv.json", {{"batch", "1"}, {"image", "56"}}},
    {"models/conv_fc_stack.json", {{"batch", "1"}, {"image", "7"}, {"conv", "2"}, {"fc", "1"},
                                      {"channels", "8"}, {"features", "24"}}},
    {"models/densenet121.json", {{"image", "48"}, {"layers1", "3"}, {"layers2", "2"},
                                    {"layers3", "2"}, {"layers4", "1"}, {"growth", "12"}}},
    {"models/efficientnet_b0.json", {{"batch", "1"}, {"image", "17"}, {"classes", "5"}}},
    {"models/layernorm.json", {{"batch", "5"}, {"cols", "129"}}},
    {"models/linear.json", {{"batch", "3"}}},
    {"models/matmul.json", {{"dim", "17"}}},
    {"models/maxpool.json", {{"batch", "1"}}},
    {"models/mlp.json", {{"batch", "5"}, {"hidden", "24"}, {"act", "gelu"}}},
    {"models/mobilenet_v2.json", {{"batch", "1"}, {"image", "33"}}},
    {"models/nested_sin.json", {{"n", "1003"}, {"depth", "5"}}},
    {"models/relu.json", {{"batch", "1"}}},
    {"models/softmax.json", {{"batch", "3"}, {"cols", "257"}}},
    {"models/transformer_mlp.json", {{"batch", "1"}, {"tokens", "5"}, {"dim", "24"}}},
    {"models/vgg16.json", {{"image", "32"}, {"slim", "4"}}},
    {"models/bert_base.json", {{"batch", "2"}, {"tokens", "6"}, {"vocabulary", "50"},
                                  {"layers", "2"}, {"dim", "24"}, {"inner", "40"}}},
    {"models/efficientnet_b3.json", {{"image", "17"}, {"slim", "8"}, {"classes", "5"}}},
    {"models/efficientnet_b5.json", {{"image", "17"}, {"slim", "16"}, {"classes", "5"}}},
    {"models/googlenet.json", {{"image", "33"}, {"slim", "8"}, {"classes", "5"}}},
    {"models/inception_v3.json", {{"image", "75"}, {"slim", "16"}, {"classes", "5"}}},
    {"models/lstm_classifier.json", {{"batch", "3"}, {"length", "6"}, {"vocabulary", "50"},
                                        {"embedding", "7"}, {"hidden", "16"}, {"layers", "2"}}},
    {"models/multi_conv1d.json",
        {{"models", "3"}, {"batch", "2"}, {"in", "8"}, {"out", "12"}, {"length", "5"}}},
    {"models/multi_gconv1d.json",
        {{"models", "3"}, {"batch", "2"}, {"in", "8"}, {"out", "12"}, {"length", "5"}}},
    {"models/multi_linear.json", {{"models", "5"}, {"batch", "3"}, {"in", "16"}, {"out", "24"}}},
    {"models/resnet101.json",
        {{"image", "32"}, {"width", "4"}, {"layers3", "4"}, {"classes", "5"}}},
    {"models/resnet50.json", {{"image", "33"}, {"width", "8"}, {"layers3", "2"}, {"classes", "5"}}},
    {"models/unet.json", {{"image", "18"}, {"channels", "4"}, {"batch", "2"}}},
    {"models/vit_b16.json", {{"image", "32"}, {"patch", "8"}, {"layers", "2"}, {"dim", "24"},
                                {"mlp", "40"}, {"batch", "2"}}},
};

static int n_args(const model *m)
{
    int n = 0;
    while (n < MAX_ARGS && m->arg[n].name)
        n++;
    return n;
}

typedef struct table {
    int *row; /* model, then the factors of flags */
    int n;
} table;

/* Keeps every step-th row, others with the next seed; returns how many. */
static int thin(const table *t, int step)
{
    int n = 0;
    for (int i = (int)(test_seed % (uint64_t)step); i < t->n; i += step)
        memcpy(t->row + n++ * (1 + NF__COUNT), t->row + i * (1 + NF__COUNT),
            (1 + NF__COUNT) * sizeof *t->row);
    return n;
}

static net_case model_case(const table *t, uint64_t i, const char *dir)
{
    const int *row = t->row + i * (1 + NF__COUNT);
    const model *m = &models[row[0]];
    net_case c = {.file = m->file, .arg = m->arg, .n_arg = n_args(m), .dir = dir};
    for (int f = 0; f < NF__COUNT; f++)
        c.flags.at[f] = row[1 + f];
    return c;
}

static bool check_model(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    net_case c = model_case(ctx, i, dir);
    net_surroundings(dir);
    return net_check(&c, why);
}

static void model_failed(uint64_t i, const char *why, void *ctx)
{
    net_case c = model_case(ctx, i, "");
    nnc_text t = {0};
    net_print_flags(&c.flags, &t);
    test_fail(__FILE__, __LINE__, "row %llu, %s, %s: %s", (unsigned long long)i, c.file,
        nnc_text_str(&t), why);
    nnc_text_deinit(&t);
}

TEST(models_by_flags)
{
    int count[1 + NF__COUNT] = {NNC_COUNT(models)};
    for (int f = 0; f < NF__COUNT; f++)
        count[1 + f] = net_choices(f) - (f == NF_action ? NET_SMALL_ACTIONS : 0);
    table t;
    t.n = net_pairs(count, 1 + NF__COUNT, &t.row);
    CHECK(t.n > 100);
    const char *one = getenv("NNC_NET_ROW");
    uint64_t from = one ? strtoull(one, NULL, 0) : 0;
    /* Not all of them where fewer are drawn; a sanitizer takes minutes for them, and gets half as many. */
    const int some = test_draws(t.n), step = some < t.n ? t.n / some : 1;
    if (!one)
        t.n = thin(&t, api_sanitized ? 2 * step : step);
    net_run(from, one ? from + 1 : (uint64_t)t.n, one ? 1 : workers(), SECONDS, check_model, &t,
        model_failed);
    printf("  %d rows\n", t.n);
    free(t.row);
}

TEST(every_model_is_in_the_table)
{
    DIR *d = opendir("models");
    CHECK(d != NULL);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        bool known = !strstr(e->d_name, ".json");
        for (size_t i = 0; i < NNC_COUNT(models); i++)
            known = known || !strcmp(models[i].file + strlen("models/"), e->d_name);
        if (!known)
            test_fail(__FILE__, __LINE__, "models/%s is not tested", e->d_name);
    }
    if (d)
        closedir(d);
}

/* ---- random files ------------------------------------------------------------------------------------------------------------ */

static net_flags random_flags(uint64_t seed)
{
    uint64_t key = nnc_rng_key("net_flags", seed);
    net_flags f = {{0}};
    for (int i = 0; i < NF__COUNT; i++)
        if (nnc_rng_u32(key, 100 + (uint64_t)i) % 2 ||
            i == NF_action) /* half of them stand at their defaults */
            f.at[i] = (int)(nnc_rng_u32(key, (uint64_t)i) % (uint32_t)net_choices(i));
    return f;
}

/* The numbers at these flags, and as written without LLVM; then the command. */
static bool check_file(
    const char *file, const net_flags *flags, bool set, const char *dir, nnc_text *why)
{
    static const nnc_arg width = {"width", "3"};
    net_case c = {.file = file, .flags = *flags, .dir = dir, .arg = &width, .n_arg = set ? 1 : 0};
    if (!net_check(&c, why))
        return false;
    c.flags.at[NF_action] = 0;
    if (flags->at[NF_action] && !net_check(&c, why))
        return false;
    c.flags = (net_flags){{[NF_level] = 1, [NF_llvm] = 1, [NF_devices] = 1}};
    return net_check(&c, why);
}

static bool check_text(const char *text, const net_flags *flags, const char *dir, nnc_text *why)
{
    char file[400];
    net_flags f = *flags;
    if (strstr(text, "\"device\""))
        f.at[NF_devices] = 1;
    nnc_sink *sink = nnc_sink_create();
    snprintf(file, sizeof file, "%s/model.json", dir);
    net_surroundings(dir);
    bool ok = nnc_file_write(file, text, strlen(text), false, sink) == NNC_OK;
    if (!ok)
        nnc_puts(why, "the model cannot be written");
    nnc_sink_destroy(sink);
    return ok && check_file(file, &f, strstr(text, NET_SET) != NULL, dir, why);
}

static bool check_random(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    int rejected;
    net_flags flags = random_flags(test_seed + i);
    const uint64_t *run = ctx; /* cases beyond are only drawn */
    char *text = net_draw(test_seed + i, &rejected, why);
    if (getenv("NNC_NET_PRINT"))
        puts(text ? text : "");
    if (text)
        net_cover(text, &flags);
    bool ok = text && (i >= *run || check_text(text, &flags, dir, why));
    free(text);
    return ok;
}

static bool check_damaged(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    int rejected;
    char file[400];
    nnc_sink *sink = nnc_sink_create();
    net_case c = {.file = file, .dir = dir};
    char *text = net_draw(test_seed + i, &rejected, why),
         *damaged = text ? net_damage(text, test_seed + i) : NULL;
    (void)ctx;
    snprintf(file, sizeof file, "%s/damaged.json", dir);
    net_surroundings(dir);
    c.flags.at[NF_target] = (int)(i % 4);
    if (damaged && getenv("NNC_NET_PRINT")) {
        puts(damaged);
        fflush(stdout);
    }
    bool ok = damaged && nnc_file_write(file, damaged, strlen(damaged), false, sink) == NNC_OK &&
              net_check_reports(&c, why);
    if (!ok)
        nnc_printf(why, "\n%s", damaged ? damaged : "nothing drawn");
    nnc_sink_destroy(sink);
    free(text);
    free(damaged);
    return ok;
}

static void damaged_failed(uint64_t i, const char *why, void *ctx)
{
    (void)ctx;
    test_fail(__FILE__, __LINE__, "damaged file %llu (--seed %llu): %s", (unsigned long long)i,
        (unsigned long long)test_seed, why);
}

/* Of cases FROM-TO as below. */
static void case_range(unsigned long long *from, unsigned long long *to)
{
    const char *range = getenv("NNC_NET_CASES");
    *from = 0;
    *to = (unsigned)test_draws(api_sanitized ? NNC_NET_SANITIZED : NNC_NET_RANDOM);
    if (range && sscanf(range, "%llu-%llu", from, to) != 2)
        *to = (*from = strtoull(range, NULL, 0)) + 1;
}

TEST(damaged_files)
{
    unsigned long long from, to;
    case_range(&from, &to);
    net_run(from, to, workers(), SECONDS, check_damaged, NULL, damaged_failed);
}

/* ---- long files ---------------------------------------------------------------------------------------------------------------- */

static bool check_long(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    static const char text[] = "{\"inputs\": {\"x\": [2, 7]}, \"layers\": [{\"op\": \"linear\", "
                               "\"out\": 7, \"dtype\": \"bf16\", \"repeat\": 8192}]}";
    const struct rlimit most = {(rlim_t)1 << 30, (rlim_t)1 << 30};
    char file[400];
    const char *argv[] = {"nnc", "memory", file, NULL};
    nnc_text out = {0}, err = {0};
    nnc_sink *sink = nnc_sink_create();
    (void)i, (void)ctx;
    snprintf(file, sizeof file, "%s/long.json", dir);
    net_surroundings(dir);
    const bool set = (api_sanitized || !setrlimit(RLIMIT_AS, &most)) &&
                     !nnc_file_write(file, text, strlen(text), false, sink);
    const int code = set ? net_command(dir, argv, &out, &err) : -1;
    if (code)
        nnc_printf(why, "exit code %d of nnc memory:\n%s", code, nnc_text_str(&err));
    nnc_text_deinit(&out);
    nnc_text_deinit(&err);
    nnc_sink_destroy(sink);
    return code == 0;
}

static void long_failed(uint64_t i, const char *why, void *ctx)
{
    (void)i, (void)ctx;
    test_fail(__FILE__, __LINE__, "%s", why);
}

/* Compiling 8192 layers takes memory in proportion to their number: 0.3 GB. (A map of all values for each packed weight was 1.4.) */
TEST(long_files_take_little_memory)
{
    net_run(0, 1, 1, SECONDS, check_long, NULL, long_failed);
}

/* ---- smaller files ------------------------------------------------------------------------------------------------------------- */

/* A smaller file must fail in the same way: by a crash, or with a message that begins alike; and be a sound model. */
typedef struct retry {
    const char *text, *why;
    net_flags flags;
    bool failed;
} retry;

static bool check_retry(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    const retry *r = ctx;
    nnc_sink *sink = nnc_sink_create();
    const nnc_set width = {"width", 3};
    nnc_model_options o = {.set = &width, .n_set = strstr(r->text, NET_SET) ? 1 : 0};
    const char *unsound;
    nnc_graph *g = nnc_model_parse("m", r->text, strlen(r->text), &o, sink);
    bool sound = g && net_sound(g, &unsound);
    (void)i;
    nnc_graph_destroy(g);
    nnc_sink_destroy(sink);
    return !sound || check_text(r->text, &r->flags, dir, why);
}

static void retried(uint64_t i, const char *why, void *ctx)
{
    retry *r = ctx;
    (void)i;
    r->failed = !strncmp(why, r->why, 12);
}

static bool fails_too(const char *text, void *ctx)
{
    retry r = *(const retry *)ctx;
    r.text = text;
    net_run(0, 1, 1, SECONDS, check_retry, &r, retried);

    return r.failed;
}

static void save_case(uint64_t i, const char *text)
{
    const char *dir = getenv("NNC_NET_SAVE");
    char file[512];
    if (!dir)
        return;
    snprintf(file, sizeof file, "%s/case%llu.json", dir, (unsigned long long)i);
    CHECK_OK(nnc_file_write(file, text, strlen(text), false, test_sink));
}

static void random_failed(uint64_t i, const char *why, void *ctx)
{
    int rejected;
    nnc_text t = {0}, flags = {0};
    char *text = net_draw(test_seed + i, &rejected, &t);
    retry r = {.flags = random_flags(test_seed + i), .why = why};
    (void)ctx;
    for (int f = 0; text && f < NF__COUNT; f++) {
        int old = r.flags.at[f];
        r.flags.at[f] = 0;
        if (old && !fails_too(text, &r))
            r.flags.at[f] = old;
    }
    char *small = text ? net_shrink(text, fails_too, &r, TRIES) : NULL;
    net_print_flags(&r.flags, &flags);
    test_fail(__FILE__, __LINE__, "random file %llu (--seed %llu), %s: %s\n%s",
        (unsigned long long)i, (unsigned long long)test_seed, nnc_text_str(&flags), why,
        small ? small : nnc_text_str(&t));
    if (small)
        save_case(i, small);
    nnc_text_deinit(&t);
    nnc_text_deinit(&flags);
    free(text);
    free(small);
}

TEST(random_files)
{
    unsigned long long from, to;
    case_range(&from, &to);
    uint64_t run = to;
    /* what a full number of cases has is counted, where fewer are run, too */
    const bool whole = from == 0 && !api_sanitized && !getenv("NNC_NET_CASES");
    const uint64_t end = whole && run < NNC_NET_RANDOM ? NNC_NET_RANDOM : run;
    CHECK(net_cover_begin());
    int failed = net_run(from, end, workers(), SECONDS, check_random, &run, random_failed);
    printf("  files %llu to %llu of seed %llu: %d failed\n", from, to,
        (unsigned long long)test_seed, failed);
    net_cover_end(whole && test_seed_is_usual());
}

/* ---- files that once failed ---------------------------------------------------------------------------------------------------- */

typedef struct found {
    struct dirent **file;
    int n;
} found;

static int is_json(const struct dirent *e)
{
    return strstr(e->d_name, ".json") != NULL;
}

/* Does the factor change nothing of the numbers at its own, as only some commands read it? */
static bool is_of_commands(int factor)
{
    return factor == NF_format || factor == NF_training || factor == NF_other;
}

/* Each with one choice of each factor at a time away from the defaults, and all actions. */
static bool check_found(uint64_t i, const char *dir, void *ctx, nnc_text *why)
{
    const found *f = ctx;
    char file[400];
    snprintf(file, sizeof file, "tests/net/found/%s", f->file[i]->d_name);
    net_surroundings(dir);
    for (int factor = 0; factor < NF__COUNT; factor++)
        for (int k = factor ? 1 : 0; !is_of_commands(factor) && k < net_choices(factor); k++) {
            net_case c = {.file = file, .dir = dir};
            c.flags.at[NF_devices] = 1;
            c.flags.at[factor] = k;
            if (!net_check(&c, why))
                return false;
        }
    return true;
}

static void found_failed(uint64_t i, const char *why, void *ctx)
{
    const found *f = ctx;
    test_fail(__FILE__, __LINE__, "tests/net/found/%s: %s", f->file[i]->d_name, why);
}

TEST(found_files)
{
    found f;
    f.n = scandir("tests/net/found", &f.file, is_json, alphasort);
    CHECK(f.n > 0);
    net_run(0, f.n > 0 ? (uint64_t)f.n : 0, workers(), (api_sanitized ? 5 : 1) * SECONDS,
        check_found, &f, found_failed);
    for (int i = 0; i < f.n; i++)
        free(f.file[i]);
    if (f.n >= 0)
        free(f.file);
}
