/* tests/api/artifact.c -- artifacts. What is loaded computes what was compiled. The same model gives the same bytes, with
 * any number of jobs and in any process. Anything damaged, cut, foreign, or made elsewhere is refused with a reason. */
#include "cases.h"

#include <locale.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[256];

static const char *in_dir(const char *name)
{
    return api_in(dir, name);
}

static nnc_env *open_env(void)
{
    nnc_env *e = NULL;
    CHECK(api_tmpdir(dir, sizeof dir));
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 2, .no_cache = true}, &e, test_sink));
    return e;
}

static void close_env(nnc_env *e)
{
    nnc_env_destroy(e);
    api_rmdir(dir);
}

static nnc_model *open_mlp(void)
{
    static const nnc_arg arg[] = {{"batch", "3"}, {"hidden", "40"}};
    nnc_model *m = nnc_model_open(
        "models/mlp.json", &(nnc_open_options){.arg = arg, .n_arg = 2, .seed = 5}, test_sink);
    CHECK(m != NULL);
    return m;
}

static nnc_artifact *compile(nnc_env *e, const nnc_model *m, int jobs)
{
    nnc_compile_options o = nnc_compile_defaults;
    nnc_artifact *a = NULL;
    o.jobs = jobs;
    CHECK_OK(nnc_compile(e, m, &o, &a, test_sink));
    return a;
}

typedef struct bytes {
    char *p;
    size_t n;
} bytes;

static bytes read_all(const char *file)
{
    bytes b = {NULL, 0};
    CHECK_OK(nnc_file_read(file, 0, &b.p, &b.n, test_sink));
    return b;
}

static bool same_files(const char *a, const char *b)
{
    bytes x = read_all(a), y = read_all(b);
    bool same = x.p && y.p && x.n == y.n && !memcmp(x.p, y.p, x.n);
    nnc_free(x.p);
    nnc_free(y.p);
    return same;
}

/* ---- round trips ---- */

static void same_text(nnc_env *e, const nnc_artifact *a, const nnc_artifact *b, const char *stage)
{
    nnc_text x = {0}, y = {0};
    CHECK_OK(nnc_emit_text(e, a, stage, &x, test_sink));
    CHECK_OK(nnc_emit_text(e, b, stage, &y, test_sink));
    /* embedded weights are read from the artifact itself: the plan says so */
    CHECK_STR(nnc_text_str(&x), nnc_text_str(&y));
    nnc_text_deinit(&x);
    nnc_text_deinit(&y);
}

/* Saves, loads, compares reports, runs: the same bytes as `want`. */
static void check_loaded(
    nnc_env *e, const nnc_artifact *a, const api_data *d, const api_run *want, bool embed)
{
    nnc_artifact *b = NULL;
    api_run got = {0};
    nnc_text why = {0};
    const char *file = in_dir(embed ? "embedded.nnc" : "plain.nnc");
    CHECK_OK(nnc_artifact_save(a, file, embed, test_sink));
    CHECK(nnc_is_artifact(file));
    CHECK_OK(nnc_artifact_load(e, file, &b, test_sink));
    if (!b)
        return;
    same_text(e, a, b, "graph");
    same_text(e, a, b, "kernels");
    same_text(e, a, b, "remarks");
    if (!embed)
        same_text(e, a, b, "plan");
    nnc_cost x = nnc_graph_cost(nnc_artifact_source(a)), y = nnc_graph_cost(nnc_artifact_source(b));
    CHECK(x.bytes == y.bytes && x.flops == y.flops && x.launches == y.launches);
    if (!api_check_artifact(b, &why, test_sink) ||
        !api_run_artifact(e, b, d, &got, &why, test_sink))
        test_fail(
            __FILE__, __LINE__, "loaded%s: %s", embed ? ", embedded" : "", nnc_text_str(&why));
    CHECK_INT(got.n_out, want->n_out);
    for (int i = 0; i < got.n_out && i < want->n_out; i++) {
        const nnc_ptensor *t = &a->plan->tensor[a->plan->output[i]];
        CHECK(!memcmp(got.out[i], want->out[i], (size_t)nnc_type_bytes(&t->type)));
    }
    api_run_free(&got);
    nnc_artifact_destroy(b);
    nnc_text_deinit(&why);
}

static void round_trip(nnc_env *e, const nnc_model *m, uint64_t seed, nnc_precision precision)
{
    nnc_compile_options o = nnc_compile_defaults;
    api_data d;
    api_run r = {0};
    nnc_text why = {0};
    o.precision = precision;
    CHECK(api_inputs(&d, m, seed, false));
    if (!api_compile_and_run(e, m, &o, &d, &r, &why, test_sink)) {
        test_fail(
            __FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed, nnc_text_str(&why));
    } else {
        CHECK_INT(r.a->plan->precision, precision ? precision : NNC_PRECISION_f32);
        check_loaded(e, r.a, &d, &r, false);
        check_loaded(e, r.a, &d, &r, true);
    }
    api_run_free(&r);
    api_data_free(&d);
    nnc_text_deinit(&why);
}

TEST(artifact_round_trip)
{
    nnc_env *e = open_env();
    nnc_model *m = open_mlp();
    if (e && m)
        round_trip(e, m, 1, NNC_PRECISION_default);
    if (e && m)
        round_trip(e, m, 1, NNC_PRECISION_bf16);
    nnc_model_close(m);
    for (uint64_t k = 0; e && k < (api_sanitized ? 8 : 20); k++) {
        test_graph c = case_make(k, test_sink);
        if (c.g)
            round_trip(e, c.g, c.seed, NNC_PRECISION_default);
        nnc_graph_destroy(c.g);
    }
    close_env(e);
}

/* ---- determinism ---- */

/* Another process runs this test alone, with a file to write. */
TEST(artifact_child)
{
    const char *file = getenv("NNC_TEST_SAVE");
    if (!file)
        return;
    nnc_env *e = NULL;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.threads = 2,
                                .no_cache = !getenv("NNC_TEST_CACHE"),
                                .cache_dir = getenv("NNC_TEST_CACHE")},
        &e, test_sink));
    nnc_model *m = open_mlp();
    nnc_artifact *a = e && m ? compile(e, m, 2) : NULL;
    if (a)
        CHECK_OK(nnc_artifact_save(a, file, true, test_sink));
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(e);
}

static pid_t start_child(const char *file)
{
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        setenv("NNC_TEST_SAVE", file, 1);
        (void)!freopen("/dev/null", "w", stdout);
        execl("/proc/self/exe", "test_api", "artifact_child", (char *)NULL);
        _exit(99);
    }
    return p;
}

static void join_child(pid_t p)
{
    int st = -1;
    CHECK(p > 0 && waitpid(p, &st, 0) == p && WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

TEST(artifact_same_bytes)
{
    nnc_env *e = open_env();
    nnc_model *m = open_mlp();
    static const int jobs[] = {1, 2, 7, 0};
    char name[4][32];
    for (size_t i = 0; e && m && i < NNC_COUNT(jobs); i++) {
        nnc_artifact *a = compile(e, m, jobs[i]);
        snprintf(name[i], sizeof name[i], "jobs%d.nnc", jobs[i]);
        if (a)
            CHECK_OK(nnc_artifact_save(a, in_dir(name[i]), true, test_sink));
        nnc_artifact_destroy(a);
        CHECK(same_files(in_dir(name[0]), in_dir(name[i])));
    }
    join_child(start_child(in_dir("child.nnc")));
    CHECK(same_files(in_dir(name[0]), in_dir("child.nnc")));
    nnc_model_close(m);
    close_env(e);
}

/* ---- the kernel cache ---- */

static bool same_as(const char *file, const bytes *want)
{
    bytes b = read_all(file);
    bool same = b.p && b.n == want->n && !memcmp(b.p, want->p, b.n);
    nnc_free(b.p);
    return same;
}

/* Cuts, overwrites or empties each entry. */
static int damage_entries(const char *path, int how)
{
    char cmd[700];
    static const char *const act[] = {"truncate -s -1", "truncate -s 0",
        "sh -c 'printf damaged | dd of=\"$0\" bs=1 seek=40 conv=notrunc status=none'"};
    snprintf(
        cmd, sizeof cmd, "find '%s' -type f | while read f; do %s \"$f\"; done", path, act[how]);
    return system(cmd);
}

TEST(cache_cold_warm_damaged)
{
    nnc_env *plain = open_env();
    nnc_model *m = open_mlp();
    nnc_artifact *a = plain && m ? compile(plain, m, 1) : NULL;
    if (!a || !plain->has_emitter) {
        test_skip("no emitter of machine code");
        nnc_artifact_destroy(a);
        nnc_model_close(m);
        close_env(plain);
        return;
    }
    CHECK_OK(nnc_artifact_save(a, in_dir("want.nnc"), true, test_sink));
    nnc_artifact_destroy(a);
    bytes want = read_all(in_dir("want.nnc"));
    for (int round = 0; round < 5; round++) { /* cold, warm, three kinds of damage */
        nnc_env *e = NULL;
        if (round >= 2)
            CHECK_INT(damage_entries(in_dir("cache"), round - 2), 0);
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.threads = 2, .cache_dir = in_dir("cache")}, &e, test_sink));
        a = e ? compile(e, m, 2) : NULL;
        if (a) {
            const nnc_compile_stats *s = nnc_artifact_stats(a);
            CHECK(round == 1 ? s->cache_misses == 0 && s->cache_hits > 0
                             : s->cache_misses > 0 && s->cache_hits == 0);
            CHECK_OK(nnc_artifact_save(a, in_dir("got.nnc"), true, test_sink));
            CHECK(same_as(in_dir("got.nnc"), &want));
        }
        nnc_artifact_destroy(a);
        nnc_env_destroy(e);
    }
    nnc_free(want.p);
    nnc_model_close(m);
    close_env(plain);
}

TEST(cache_concurrent)
{
    nnc_env *plain = open_env();
    nnc_model *m = open_mlp();
    nnc_artifact *a = plain && m ? compile(plain, m, 1) : NULL;
    pid_t child[4];
    if (a)
        CHECK_OK(nnc_artifact_save(a, in_dir("want.nnc"), true, test_sink));
    bytes want = read_all(in_dir("want.nnc"));
    setenv("NNC_TEST_CACHE", in_dir("cache"), 1);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++) {
            char name[32];
            snprintf(name, sizeof name, "child%d.nnc", i);
            child[i] = start_child(in_dir(name));
        }
        for (int i = 0; i < 4; i++) {
            char name[32];
            snprintf(name, sizeof name, "child%d.nnc", i);
            join_child(child[i]);
            CHECK(same_as(in_dir(name), &want));
        }
    }
    unsetenv("NNC_TEST_CACHE");
    nnc_free(want.p);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    close_env(plain);
}

/* ---- damage ---- */

typedef struct damaged {
    nnc_env *e;
    bytes good;
    nnc_text plan, graph; /* of the good one */
    int loaded, refused;
} damaged;

static void write_bytes(const char *file, const char *p, size_t n)
{
    FILE *f = fopen(file, "wb");
    CHECK(f && fwrite(p, 1, n, f) == n);
    if (f)
        fclose(f);
}

/* Loads a damaged file. It is refused as a model with one clear line. If the damage meets nothing that counts
 * (padding, the case of a hex digit), it is the good artifact. */
static void load_damaged(damaged *d, const char *p, size_t n, const char *what, size_t where)
{
    nnc_artifact *a = NULL;
    const char *file = in_dir("damaged.nnc");
    write_bytes(file, p, n);
    nnc_sink_clear(test_sink);
    nnc_status st = nnc_artifact_load(d->e, file, &a, test_sink);
    if (st == NNC_OK) {
        nnc_text t = {0}, g = {0};
        nnc_plan_print(&t, a->plan);
        nnc_graph_print(&g, a->graph);
        bool weights = strstr(nnc_text_str(&d->plan), "damaged.nnc") != NULL;
        if (n != d->good.n || (!weights && strcmp(nnc_text_str(&t), nnc_text_str(&d->plan))) ||
            strcmp(nnc_text_str(&g), nnc_text_str(&d->graph)))
            test_fail(__FILE__, __LINE__, "%s at %zu is accepted", what, where);
        nnc_text_deinit(&t);
        nnc_text_deinit(&g);
        d->loaded++;
    } else {
        if (st != NNC_E_MODEL || nnc_sink_errors(test_sink) == 0 || !test_has_diag("damaged.nnc"))
            test_fail(__FILE__, __LINE__, "%s at %zu: %s", what, where, nnc_status_name(st));
        d->refused++;
    }
    nnc_artifact_destroy(a);
}

static bool open_damaged(damaged *d)
{
    *d = (damaged){.e = open_env()};
    nnc_model *m = open_mlp();
    nnc_artifact *a = d->e && m ? compile(d->e, m, 1) : NULL, *b = NULL;
    if (a) {
        CHECK_OK(nnc_artifact_save(a, in_dir("damaged.nnc"), true, test_sink));
        CHECK_OK(nnc_artifact_load(d->e, in_dir("damaged.nnc"), &b, test_sink));
    }
    if (b) {
        d->good = read_all(in_dir("damaged.nnc"));
        nnc_plan_print(&d->plan, b->plan);
        nnc_graph_print(&d->graph, b->graph);
    }
    nnc_artifact_destroy(a);
    nnc_artifact_destroy(b);
    nnc_model_close(m);
    return d->good.p != NULL;
}

static void close_damaged(damaged *d)
{
    nnc_free(d->good.p);
    nnc_text_deinit(&d->plan);
    nnc_text_deinit(&d->graph);
    close_env(d->e);
}

TEST(artifact_truncated)
{
    damaged d;
    if (open_damaged(&d)) {
        size_t step = nnc_max64(1, (int64_t)d.good.n / 300);
        for (size_t n = 0; n < d.good.n; n += n < 80 ? 1 : step)
            load_damaged(&d, d.good.p, n, "a cut", n);
        load_damaged(&d, d.good.p, d.good.n - 1, "a cut", d.good.n - 1);
        CHECK_INT(d.loaded, 0);
        printf("  %d lengths of %zu bytes\n", d.refused, d.good.n);
    }
    close_damaged(&d);
}

TEST(artifact_flipped)
{
    damaged d;
    uint64_t key = nnc_rng_key("flip", test_seed);
    const int n = test_draws(api_sanitized ? 1000 : 2000);
    if (open_damaged(&d)) {
        char *p = nnc_malloc(d.good.n);
        size_t weights = d.good.n; /* most bytes are weights: half of the flips hit the rest */
        for (int i = 0; p && i < n; i++) {
            uint32_t u = nnc_rng_u32(key, 3 * (uint64_t)i),
                     v = nnc_rng_u32(key, 3 * (uint64_t)i + 1);
            size_t room = i % 2 ? weights : (size_t)nnc_min64((int64_t)weights, 65536);
            size_t at = i < 200 ? (size_t)i : (size_t)u % room;
            memcpy(p, d.good.p, d.good.n);
            if (i % 7 == 3)
                memset(p + at, (int)v, nnc_min64(1 + v % 64, (int64_t)(d.good.n - at)));
            else
                p[at] = (char)(p[at] ^ 1 << v % 8);
            if (memcmp(p, d.good.p, d.good.n))
                load_damaged(&d, p, d.good.n, "a flip", at);
        }
        CHECK_USUAL(d.refused > 10 * d.loaded);
        printf("  %d refused, %d only in padding or letter case\n", d.refused, d.loaded);
        nnc_free(p);
    }
    close_damaged(&d);
}

/* ---- made to fit ---- */

/* Replaces `from` by `to` (as long) in the manifest and gives it its checksum. */
static bool edit_manifest(bytes *b, const char *from, const char *to)
{
    unsigned long long size;
    char *line = b->p, *manifest = memchr(b->p, '\n', b->n);
    if (!manifest || sscanf(line, "nnc-artifact 2 %llx", &size) != 1)
        return false;
    char *at = memmem(++manifest, size, from, strlen(from));
    if (!at)
        return false;
    memcpy(at, to, strlen(to));
    char hex[24];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)nnc_hash64(manifest, size, 0));
    memcpy(manifest - 17, hex, 16);
    return true;
}

TEST(artifact_of_another_version)
{
    damaged d;
    nnc_artifact *a = NULL;
    if (open_damaged(&d)) {
        CHECK(edit_manifest(&d.good, "\"nnc\": \"" NNC_VERSION "\"", "\"nnc\": \"9.9.9\""));
        write_bytes(in_dir("v.nnc"), d.good.p, d.good.n);
        CHECK_INT(nnc_artifact_load(d.e, in_dir("v.nnc"), &a, test_sink), NNC_E_MODEL);
        CHECK_DIAG("9.9.9");
        CHECK_DIAG(NNC_VERSION);
        CHECK(a == NULL);
    }
    close_damaged(&d);
}

/* A section's number is written in decimal digits alone. */
TEST(artifact_section_without_a_number)
{
    static const char *const name[] = {"\"weight/x\"", "\"weight/-\"", "\"weight/ \""};
    damaged d;
    if (open_damaged(&d)) {
        for (size_t i = 0; i < NNC_COUNT(name); i++) {
            nnc_artifact *a = NULL;
            CHECK(edit_manifest(&d.good, i ? name[i - 1] : "\"weight/0\"", name[i]));
            write_bytes(in_dir("v.nnc"), d.good.p, d.good.n);
            nnc_sink_clear(test_sink);
            CHECK_INT(nnc_artifact_load(d.e, in_dir("v.nnc"), &a, test_sink), NNC_E_MODEL);
            CHECK_DIAG("an embedded weight does not match the plan");
            nnc_artifact_destroy(a);
        }
    }
    close_damaged(&d);
}

/* The host program's locale changes nothing. */
TEST(artifact_in_a_locale_with_a_decimal_comma)
{
    static const char model[] =
        "{\"inputs\":{\"x\":[3,40]},\"layers\":[{\"op\":\"mul\",\"value\":0.37},{\"op\":\"gelu\"},"
        "{\"op\":\"linear\",\"out\":7},{\"op\":\"add\",\"value\":-1.5},{\"op\":\"softmax\"}]}";
    static const char *const name[] = {"point.nnc", "comma.nnc"};
    nnc_env *e = open_env();
    write_bytes(in_dir("m.json"), model, sizeof model - 1);
    for (int i = 0; e && i < 2; i++) {
        if (i == 1 && !test_decimal_comma())
            break;
        nnc_model *m = nnc_model_open(in_dir("m.json"), &(nnc_open_options){0}, test_sink);
        nnc_artifact *a = m ? compile(e, m, 1) : NULL, *b = NULL;
        CHECK(a != NULL);
        if (a)
            CHECK_OK(nnc_artifact_save(a, in_dir(name[i]), true, test_sink));
        if (a)
            CHECK_OK(nnc_artifact_load(e, in_dir(name[0]), &b, test_sink));
        CHECK(same_files(in_dir(name[0]), in_dir(name[i])));
        nnc_artifact_destroy(b);
        nnc_artifact_destroy(a);
        nnc_model_close(m);
    }
    setlocale(LC_ALL, "C");
    close_env(e);
}

TEST(artifact_for_another_machine)
{
    damaged d;
    nnc_artifact *a = NULL;
    nnc_env *other = NULL;
    nnc_text t = {0};
    if (open_damaged(&d)) {
        nnc_target far = *d.e->target;
        far.vector_bits = far.vector_bits == 128 ? 256 : 128;
        far.threads = 5;
        nnc_target_print_json(&t, &far);
        write_bytes(in_dir("far.json"), nnc_text_str(&t), t.n);
        CHECK_OK(nnc_env_create(
            &(nnc_env_options){.target = in_dir("far.json"), .no_cache = true}, &other, test_sink));
        if (other) {
            CHECK_INT(nnc_artifact_load(other, in_dir("damaged.nnc"), &a, test_sink), NNC_E_DEVICE);
            CHECK_DIAG("compile the model again");
        }
        CHECK(a == NULL);
    }
    nnc_text_deinit(&t);
    nnc_env_destroy(other);
    close_damaged(&d);
}

static char *find_manifest(const bytes *b, unsigned long long *size)
{
    char *line = memchr(b->p, '\n', b->n);
    return line && sscanf(b->p, "nnc-artifact 2 %llx", size) == 1 ? line + 1 : NULL;
}

static void reseal_manifest(bytes *b)
{
    unsigned long long size;
    char *manifest = find_manifest(b, &size), hex[24];
    if (!manifest)
        return;
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)nnc_hash64(manifest, size, 0));
    memcpy(manifest - 17, hex, 16);
}

/* The file's checksums are right, its parts are not: read, never run. */
static void reseal(bytes *b)
{
    unsigned long long size;
    char *manifest = find_manifest(b, &size);
    if (!manifest)
        return;
    size_t base = ((size_t)(manifest - b->p) + size + 63) / 64 * 64;
    for (char *p = manifest;
         (p = memmem(p, (size_t)(manifest + size - p), "{\"name\": ", 9)) != NULL; p++) {
        unsigned long long at, n;
        char *o = strstr(p, "\"offset\": "), *h = strstr(p, "\"hash\": \""), hex[33];
        if (!o || !h || sscanf(o, "\"offset\": %llu, \"size\": %llu", &at, &n) != 2 || at > b->n ||
            n > b->n || base + at + n > b->n)
            break; /* behind the sections: what the model was read from */
        nnc_hash128 sum = {0, 0};
        for (unsigned long long i = 0; i < n || i == 0; i += 1 << 20) {
            size_t m = n - i < 1 << 20 ? n - i : 1 << 20;
            nnc_hash128 both[2] = {sum, nnc_hash(b->p + base + at + i, m)};
            sum = nnc_hash(both, sizeof both);
        }
        nnc_hash_hex(sum, hex);
        memcpy(h + 9, hex, 32);
    }
    reseal_manifest(b);
}

static void mutate(char *p, size_t n, uint64_t key, int i)
{
    static const char letters[] = "0123456789-{}[](),=:%\" \nabcdefx";
    for (int k = 0; k < 1 + i % 3; k++) {
        uint32_t u = nnc_rng_u32(key, (uint64_t)i * 8 + (uint64_t)k), v = u >> 16;
        size_t at = nnc_rng_u32(~key, (uint64_t)i * 8 + (uint64_t)k) % n;
        if (v % 4 == 0)
            memmove(p + at, p + (at + 7 < n ? at + 7 : at), at + 7 < n ? n - at - 7 : 0);
        else
            p[at] = letters[u % (sizeof letters - 1)];
    }
}

TEST(artifact_resealed)
{
    damaged d;
    uint64_t key = nnc_rng_key("reseal", test_seed);
    const int n = test_draws(api_sanitized ? 800 : 1500);
    int accepted = 0, refused = 0;
    if (open_damaged(&d)) {
        bytes b = {nnc_malloc(d.good.n + 1), d.good.n};
        char *manifest = memchr(d.good.p, '\n', d.good.n);
        unsigned long long size = 0;
        CHECK(b.p && manifest && sscanf(d.good.p, "nnc-artifact 2 %llx", &size) == 1);
        size_t first = (size_t)(manifest + 1 - d.good.p) + size;
        size_t room = nnc_min64((int64_t)(d.good.n - first), 65536);
        memcpy(b.p, d.good.p, d.good.n);
        b.p[d.good.n] = 0;
        reseal(&b);
        CHECK(!memcmp(b.p, d.good.p, d.good.n)); /* this test's checksums are nnc's */
        for (int i = 0; b.p && i < n; i++) {
            nnc_artifact *a = NULL;
            memcpy(b.p, d.good.p, d.good.n);
            if (i % 8 == 0)
                mutate(b.p + (manifest + 1 - d.good.p), size, key, i);
            else
                mutate(b.p + first, room, key, i);
            reseal(&b);
            write_bytes(in_dir("sealed.nnc"), b.p, b.n);
            nnc_sink_clear(test_sink);
            nnc_status st = nnc_artifact_load(d.e, in_dir("sealed.nnc"), &a, test_sink);
            if (st != NNC_OK && st != NNC_E_MODEL && st != NNC_E_DEVICE) {
                test_fail(__FILE__, __LINE__, "mutation %d: %s", i, nnc_status_name(st));
                nnc_sink_print(test_sink, stderr);
            }
            CHECK(st == NNC_OK || nnc_sink_errors(test_sink) > 0);
            st ? refused++ : accepted++;
            nnc_artifact_destroy(a);
        }
        printf("  %d refused, %d still make sense\n", refused, accepted);
        nnc_free(b.p);
    }
    close_damaged(&d);
}

/* Numbers of the manifest that no file has: more than a double, than 64 bits, than the file, and less than nothing. */
TEST(artifact_sizes_beyond_all)
{
    static const char *const key[] = {"\"offset\": ", "\"size\": "};
    static const char *const number[] = {"9e99", "9e18", "9e15", "-1e9"};
    damaged d;
    if (open_damaged(&d)) {
        bytes b = {nnc_malloc(d.good.n + 1), d.good.n};
        for (size_t i = 0; b.p && i < NNC_COUNT(key) * NNC_COUNT(number); i++) {
            nnc_artifact *a = NULL;
            memcpy(b.p, d.good.p, d.good.n);
            b.p[d.good.n] = 0;
            char *plan = strstr(b.p, "{\"name\": \"plan\""),
                 *at = plan ? strstr(plan, key[i % 2]) + strlen(key[i % 2]) : NULL;
            CHECK(at != NULL);
            if (!at)
                continue;
            size_t digits = strspn(at, "0123456789");
            CHECK(digits >= 4);
            memset(at, ' ', digits);
            memcpy(at, number[i / 2], 4);
            reseal_manifest(&b);
            write_bytes(in_dir("sealed.nnc"), b.p, b.n);
            nnc_sink_clear(test_sink);
            CHECK_INT(nnc_artifact_load(d.e, in_dir("sealed.nnc"), &a, test_sink), NNC_E_MODEL);
            CHECK(a == NULL && nnc_sink_errors(test_sink) > 0);
        }
        nnc_free(b.p);
    }
    close_damaged(&d);
}

/* An embedded weight whose command names no tensor. */
TEST(artifact_weight_of_no_tensor)
{
    damaged d;
    if (open_damaged(&d)) {
        bytes b = {nnc_malloc(d.good.n + 1), d.good.n};
        nnc_artifact *a = NULL;
        memcpy(b.p, d.good.p, d.good.n);
        b.p[d.good.n] = 0;
        char *at = memmem(b.p, b.n, " weight item=0 ", 15), *digits = at ? strchr(at, '(') : NULL;
        CHECK(digits != NULL);
        if (digits) {
            memset(digits + 1, ' ', strspn(digits + 1, "0123456789"));
            reseal(&b);
            write_bytes(in_dir("sealed.nnc"), b.p, b.n);
            CHECK_INT(nnc_artifact_load(d.e, in_dir("sealed.nnc"), &a, test_sink), NNC_E_MODEL);
            CHECK_DIAG("an embedded weight does not match the plan");
        }
        nnc_free(b.p);
    }
    close_damaged(&d);
}

/* Costs that a file claims add up without overflow. */
TEST(artifact_costs_beyond_all)
{
    nnc_env *e = open_env();
    nnc_model *m = open_mlp();
    nnc_artifact *a = e && m ? compile(e, m, 1) : NULL;
    nnc_plan *p = a ? (nnc_plan *)nnc_artifact_plan(a) : NULL;
    for (int i = 0; p && i < p->n_cmd; i++)
        p->cmd[i].bytes = p->cmd[i].flops = INT64_MAX;
    int64_t flops = 0, moved = 0, launches = 0;
    if (a)
        nnc_artifact_work(a, &flops, &moved, &launches);
    CHECK_INT(flops, INT64_MAX);
    CHECK_INT(moved, INT64_MAX);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    close_env(e);
}

/* A convolution whose last window begins in the padding at the end. */
TEST(artifact_window_in_padding)
{
    static const char model[] = "{\"inputs\":{\"x\":[1,1,4,4]},\"layers\":[{\"op\":\"conv\","
                                "\"channels\":1,\"kernel\":1,\"pad\":2}]}";
    nnc_env *e = open_env();
    write_bytes(in_dir("m.json"), model, sizeof model - 1);
    nnc_model *m = nnc_model_open(in_dir("m.json"), &(nnc_open_options){0}, test_sink);
    nnc_artifact *a = e && m ? compile(e, m, 1) : NULL, *b = NULL;
    CHECK(a != NULL);
    if (a) {
        CHECK_OK(nnc_artifact_save(a, in_dir("m.nnc"), false, test_sink));
        CHECK_OK(nnc_artifact_load(e, in_dir("m.nnc"), &b, test_sink));
    }
    nnc_artifact_destroy(b);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    close_env(e);
}

TEST(artifact_foreign)
{
    nnc_env *e = open_env();
    nnc_artifact *a = NULL;
    static const char *const text[] = {"", "n", "nnc-artifact 2 ",
        "nnc-artifact 1 0000000000000000 0000000000000000\n",
        "nnc-artifact 2 ffffffffffffffff ffffffffffffffff\n",
        "nnc-artifact 2 0000000000000000 0000000000000000\n", "graph @g {\n}\n", "{\"layers\": []}",
        "\177ELF\002\001\001"};
    for (size_t i = 0; e && i < NNC_COUNT(text); i++) {
        write_bytes(in_dir("foreign"), text[i], strlen(text[i]));
        nnc_sink_clear(test_sink);
        CHECK_INT(nnc_artifact_load(e, in_dir("foreign"), &a, test_sink), NNC_E_MODEL);
        CHECK(a == NULL && test_has_diag("foreign"));
    }
    nnc_sink_clear(test_sink);
    if (e) {
        CHECK_INT(nnc_artifact_load(e, in_dir("absent.nnc"), &a, test_sink), NNC_E_IO);
        CHECK_DIAG("absent.nnc");
        CHECK(!nnc_is_artifact(in_dir("absent.nnc")) && !nnc_is_artifact(dir));
        CHECK(nnc_artifact_load(e, dir, &a, test_sink) != NNC_OK && a == NULL);
    }
    close_env(e);
}

/* Saving where nothing can be written leaves nothing behind. */
TEST(artifact_unwritable)
{
    nnc_env *e = open_env();
    nnc_model *m = open_mlp();
    nnc_artifact *a = e && m ? compile(e, m, 1) : NULL;
    if (a) {
        CHECK_INT(nnc_artifact_save(a, in_dir("no/such/folder.nnc"), false, test_sink), NNC_E_IO);
        CHECK_DIAG("folder.nnc");
        nnc_sink_clear(test_sink);
        CHECK(nnc_artifact_save(a, dir, false, test_sink) == NNC_E_IO); /* a folder */
        CHECK(nnc_sink_errors(test_sink) == 1);
    }
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    close_env(e);
}
