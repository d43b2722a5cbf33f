/* tests/api/kept.c -- static values that a process keeps on disk and a later one reads. Each run here has its own environment, as another
 * process has; machine code comes from the cache as well. */
#include "help.h"
#include <dirent.h>
#include <string.h>
#include <unistd.h>

enum { IN = 1024, OUT = 1200, HEAD = 32 }; /* HEAD: bytes before an entry's contents */

static const char json[] = "{\"inputs\":{\"x\":[1,1024]},\"layers\":[{\"op\":\"linear\","
                           "\"name\":\"fc\",\"out\":1200}]}";

/* Two devices, of which the second computes with so few weights that nothing is kept of them, as of nothing is then. */
static const char two[] = "{\"inputs\":{\"x\":[1,1024]},\"layers\":["
                          "{\"op\":\"linear\",\"name\":\"fc\",\"out\":1200,\"device\":0},"
                          "{\"op\":\"linear\",\"name\":\"small\",\"out\":8,\"device\":1}]}";

typedef struct kept {
    char dir[256], entry[512]; /* path of the last entry found */
    float x[IN], y[OUT];
} kept;

/* Number of entries of the kind "weights". */
static int entries(kept *k)
{
    int n = 0;
    DIR *d = opendir(api_in(k->dir, "cache"));
    for (struct dirent *f; d && (f = readdir(d));)
        if (!strncmp(f->d_name, "weights-", 8)) {
            snprintf(k->entry, sizeof k->entry, "%s/cache/%.64s", k->dir, f->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

/* Writes the model's results to k->y. weights: a file, or NULL for generated ones. */
static void run(kept *k, const char *weights, bool cached)
{
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    const char *dir = cached ? api_in(k->dir, "cache") : NULL;
    const nnc_env_options o = {.cache_dir = dir, .no_cache = !cached, .threads = 2};
    memset(k->y, 0, sizeof k->y);
    CHECK_OK(nnc_env_create(&o, &e, test_sink));
    nnc_model *m = nnc_model_open(
        api_in(k->dir, "l.json"), &(nnc_open_options){.weights = weights}, test_sink);
    CHECK_OK(nnc_compile(e, m, &nnc_compile_defaults, &a, test_sink));
    CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    CHECK_OK(nnc_session_input(s, 0, k->x, test_sink));
    CHECK_OK(nnc_session_run(s, test_sink));
    CHECK_OK(nnc_session_output(s, 0, k->y, test_sink));
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(e);
}

static void open_kept(kept *k)
{
    *k = (kept){.x = {1}};
    for (int i = 0; i < IN; i++)
        k->x[i] = (float)(i % 7) - 2.5f;
    CHECK(api_tmpdir(k->dir, sizeof k->dir));
    CHECK_OK(nnc_file_write(api_in(k->dir, "l.json"), json, strlen(json), false, test_sink));
}

/* Replaces the contents of the entry by zeros, whole as far as the cache knows. */
static void put_zeros(kept *k)
{
    unsigned long long hi = 0, lo = 0;
    nnc_map m;
    const char *name = strrchr(k->entry, '/') + 1;
    CHECK_INT(sscanf(name, "weights-%16llx%16llx", &hi, &lo), 2);
    CHECK_OK(nnc_map_open(&m, k->entry, test_sink));
    const size_t n = m.n - HEAD;
    nnc_map_close(&m);
    NNC_FREED char *zeros = nnc_calloc(n, 1);
    nnc_cache *c = nnc_cache_open(api_in(k->dir, "cache"));
    nnc_cache_put(c, "weights", (nnc_hash128){.hi = hi, .lo = lo}, zeros, n);
    nnc_cache_close(c);
}

TEST(kept_weights_are_read)
{
    kept k;
    float want[OUT], none[OUT] = {0};
    open_kept(&k);
    run(&k, NULL, false);
    memcpy(want, k.y, sizeof want);
    CHECK_INT(entries(&k), 0);
    for (int i = 0; i < 2; i++) { /* computes them, reads them */
        run(&k, NULL, true);
        CHECK(!memcmp(k.y, want, sizeof want));
        CHECK_INT(entries(&k), 1);
    }
    put_zeros(&k);
    run(&k, NULL, true);
    CHECK(!memcmp(k.y, none, sizeof none));
    for (int i = 0; i < 2; i++) { /* finds the damage and computes them, reads what that run kept */
        FILE *f = i ? NULL : fopen(k.entry, "r+");
        if (f) {
            fseek(f, -1, SEEK_END);
            fputc('X', f);
            fclose(f);
        }
        run(&k, NULL, true);
        CHECK(!memcmp(k.y, want, sizeof want));
        CHECK_INT(entries(&k), 1);
    }
    api_rmdir(k.dir);
}

/* A weight file of the same length, all numbers of which are `value`. */
static void write_weights(const char *file, float value)
{
    enum { N = IN * OUT + OUT };
    const char *const header =
        "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[1200,1024],\"data_offsets\":[0,4915200]},"
        "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[1200],\"data_offsets\":[4915200,4920000]}}";
    const uint8_t size[8] = {(uint8_t)strlen(header)};
    NNC_FREED float *data = nnc_malloc(N * sizeof *data);
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < N; i++)
        data[i] = value;
    nnc_putn(&t, (const char *)size, 8);
    nnc_puts(&t, header);
    nnc_putn(&t, (const char *)data, N * sizeof *data);
    CHECK_OK(nnc_file_write(file, t.s, t.n, false, test_sink));
}

TEST(kept_weights_of_a_file_that_changes)
{
    kept k;
    char file[512];
    open_kept(&k);
    snprintf(file, sizeof file, "%s/w.safetensors", k.dir);
    for (int i = 1; i <= 3; i++) {
        write_weights(file, (float)i);
        for (int again = 0; again < 2; again++) {
            float want = 1;
            for (int j = 0; j < IN; j++)
                want += k.x[j];
            run(&k, file, true);
            CHECK(k.y[0] == want * (float)i && k.y[OUT - 1] == k.y[0]);
            CHECK_INT(entries(&k), i);
        }
    }
    api_rmdir(k.dir);
}

TEST(kept_weights_are_of_all_devices_or_of_none)
{
    kept k;
    nnc_env *e = NULL;
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    nnc_compile_options c = nnc_compile_defaults;
    open_kept(&k);
    c.devices = 2;
    const nnc_env_options o = {.cache_dir = api_in(k.dir, "cache"), .threads = 1};
    CHECK_OK(nnc_file_write(api_in(k.dir, "two.json"), two, strlen(two), false, test_sink));
    CHECK_OK(nnc_env_create(&o, &e, test_sink));
    nnc_model *m = nnc_model_open(api_in(k.dir, "two.json"), &(nnc_open_options){0}, test_sink);
    CHECK(m != NULL);
    if (m)
        CHECK_OK(nnc_compile(e, m, &c, &a, test_sink));
    if (a)
        CHECK_OK(nnc_session_create(e, a, &s, test_sink));
    if (s) {
        CHECK_OK(nnc_session_input(s, 0, k.x, test_sink));
        CHECK_OK(nnc_session_run(s, test_sink));
    }
    nnc_session_destroy(s);
    CHECK_INT(entries(&k), 0);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    nnc_env_destroy(e);
    api_rmdir(k.dir);
}
