/* tests/cuda_fake/chunks.c -- models larger than the (fake) GPU: they run in chunks with the same results, or it is said why not. */
#include "session/session.h"
#include "help.h"
#include <stdlib.h>
#include <unistd.h>

static const char sins[] =
    "{\"inputs\": {\"x\": [65536]}, \"layers\": [{\"op\": \"sin\", \"repeat\": 4}]}";
static const char rows[] = "{\"inputs\": {\"x\": [192, 256]}, \"layers\": [{\"op\": \"layernorm\"},"
                           "{\"op\": \"softmax\"}]}";
/* Sums over the rows. */
static const char columns[] =
    "{\"inputs\": {\"x\": [512, 256]}, \"layers\": [{\"op\": \"softmax\", \"axis\": 0}]}";

static void end(void)
{
    char why[512];
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* One run of the model on a GPU with so much memory; the output is the caller's. */
static void *run(const char *text, size_t memory, uint64_t seed, int64_t *chunks, bool artifact)
{
    char file[] = "/tmp/nnc_chunks_XXXXXX.nnc";
    void *out = NULL;
    loaded l;
    fake_begin(seed);
    fake_gpu.memory_bytes = memory;
    compile(&l, text, "cuda", 1, 1);
    if (artifact) {
        int fd = mkstemps(file, 4);
        if (fd >= 0)
            close(fd);
        CHECK_OK(nnc_artifact_save(l.a, file, true, test_sink));
        nnc_artifact_destroy(l.a);
        l.a = NULL;
        CHECK_OK(nnc_artifact_load(l.e, file, &l.a, test_sink));
    }
    *chunks = nnc_artifact_chunks(l.a);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    const nnc_type *t = nnc_session_input_type(l.s, 0), *y = nnc_session_output_type(l.s, 0);
    void *x = nnc_malloc((size_t)nnc_type_bytes(t));
    nnc_fill_input("x", t, 5, x);
    CHECK_OK(nnc_session_input(l.s, 0, x, test_sink));
    out = nnc_malloc((size_t)nnc_type_bytes(y));
    for (int i = 0; i < 3; i++) /* the later ones replayed */
        CHECK_OK(nnc_session_run(l.s, test_sink));
    CHECK_OK(nnc_session_output(l.s, 0, out, test_sink));
    nnc_free(x);
    unload(&l);
    if (artifact)
        unlink(file);
    end();
    return out;
}

static void check_same(const char *text, size_t memory, size_t bytes, bool artifact)
{
    int64_t one, many;
    void *want = run(text, (size_t)1 << 30, 0, &one, false);
    CHECK_INT(one, 1);
    for (uint64_t seed = 0; seed < 3; seed++) {
        void *got = run(text, memory, seed, &many, artifact);
        CHECK(many > 1);
        CHECK(!memcmp(want, got, bytes));
        nnc_free(got);
    }
    nnc_free(want);
}

TEST(chunks_give_the_same_bytes)
{
    if (no_compiler())
        return;
    check_same(sins, 300 << 10, 65536 * 4, false);
    check_same(sins, 100 << 10, 65536 * 4, true);
    check_same(rows, 256 << 10, 192 * 256 * 4, false);
}

/* Chunks that no number of rows divides into: the last one begins earlier. */
static const char prime_sins[] =
    "{\"inputs\": {\"x\": [65521]}, \"layers\": [{\"op\": \"sin\", \"repeat\": 4}]}";
static const char prime_rows[] = "{\"inputs\": {\"x\": [191, 256]}, \"layers\": [{\"op\": "
                                 "\"layernorm\"}, {\"op\": \"softmax\"}]}";
static const char few_rows[] = "{\"inputs\": {\"x\": [7, 1001]}, \"layers\": [{\"op\": "
                               "\"layernorm\"}, {\"op\": \"softmax\"}]}";

TEST(uneven_chunks_give_the_same_bytes)
{
    if (no_compiler())
        return;
    check_same(prime_sins, 100 << 10, 65521 * 4, true);
    check_same(prime_rows, 256 << 10, 191 * 256 * 4, true);
    check_same(few_rows, 40 << 10, 7 * 1001 * 4, false);
}

static void check_text(const nnc_text *t, const char *part)
{
    if (!strstr(nnc_text_str(t), part))
        test_fail(__FILE__, __LINE__, "no %s in\n%s", part, nnc_text_str(t));
}

/* The smallest number of chunks that fits: of one less, the plan's bytes and slots are more than there are. */
TEST(fewest_chunks)
{
    static const char *const model[] = {sins, rows, prime_sins};
    for (size_t bytes = 60 << 10; bytes <= 480 << 10; bytes += 70 << 10)
        for (size_t k = 0; k < NNC_COUNT(model); k++) {
            loaded l, big;
            fake_begin(0);
            fake_gpu.memory_bytes = bytes;
            compile(&l, model[k], "cuda", 1, 1);
            int64_t n = nnc_artifact_chunks(l.a), room = nnc_chunks_room(l.e);
            const nnc_type *part = &nnc_artifact_plan(l.a)->tensor[0].type;
            CHECK(n >= 1 && nnc_chunks_need(l.a, n > 1) <= room);
            int64_t all = nnc_whole_input(l.a, 0)->dim[0],
                    fewer = n > 1 ? (all + n - 2) / (n - 1) : 0;
            CHECK(n == 1 || fewer > part->dim[0]);
            if (n > 2) {
                char text[200];
                int64_t inner = part->rank > 1 ? part->dim[1] : 0;
                snprintf(text, sizeof text, "{\"inputs\": {\"x\": [%lld%s]}, \"layers\": [%s]}",
                    (long long)fewer, inner ? ", 256" : "",
                    inner ? "{\"op\": \"layernorm\"}, {\"op\": \"softmax\"}"
                          : "{\"op\": \"sin\", \"repeat\": 4}");
                fake_gpu.memory_bytes = (size_t)1 << 30;
                compile(&big, text, "cuda", 1, 1);
                CHECK(nnc_chunks_need(big.a, true) > room);
                unload(&big);
            }
            unload(&l);
            end();
        }
}

TEST(chunks_are_explained)
{
    nnc_text t = {0}, u = {0}, j = {0};
    bool fits = false;
    loaded l;
    fake_begin(0);
    fake_gpu.memory_bytes = 300 << 10;
    compile(&l, sins, "cuda", 1, 1);
    CHECK_OK(nnc_report_explain(l.a, NNC_TEXT, false, &t));
    check_text(&t, "runs in chunks of rows");
    check_text(&t, "chunks of 13120 rows each");
    CHECK_OK(nnc_report_memory(l.e, l.a, NNC_TEXT, &u, &fits));
    CHECK(fits);
    check_text(&u, "A run is 5 chunks, of which this is one; double buffering adds 153.8 KiB");
    CHECK_OK(nnc_report_memory(l.e, l.a, NNC_JSON, &j, &fits));
    check_text(&j, "\"chunks\": 5, \"chunk_slots\": 157440, \"fits\": true}");
    nnc_text_deinit(&t);
    nnc_text_deinit(&u);
    nnc_text_deinit(&j);
    unload(&l);
    end();
}

/* A prime number of rows is no reason for as many chunks: 2^32 - 5 sins on a card of 16 GB. */
TEST(a_prime_number_of_rows)
{
    nnc_text t = {0};
    loaded l;
    fake_begin(0);
    compile(&l,
        "{\"inputs\": {\"x\": [4294967291]}, \"layers\": [{\"op\": \"sin\", \"repeat\": 4}]}",
        "cuda:sm_75", 1, 1);
    int64_t n = nnc_artifact_chunks(l.a), part = nnc_artifact_plan(l.a)->tensor[0].type.dim[0];
    CHECK_INT(n, 6); /* of 5 each would be 3.2 GiB, and takes five times that */
    CHECK(part % 64 == 0 && (n - 1) * part < 4294967291 && n * part >= 4294967291);
    CHECK_OK(nnc_report_explain(l.a, NNC_TEXT, false, &t));
    check_text(&t, "computes 133 rows");
    nnc_text_deinit(&t);
    unload(&l);
    end();
}

TEST(rows_that_depend_on_each_other_do_not_fit)
{
    nnc_session *s = NULL;
    loaded l;
    fake_begin(0);
    fake_gpu.memory_bytes = 300 << 10;
    compile(&l, columns, "cuda", 1, 1);
    CHECK_INT(nnc_artifact_chunks(l.a), 1);
    CHECK_DIAG("its rows are not independent of each other");
    CHECK_INT(nnc_session_create(l.e, l.a, &s, test_sink), NNC_E_FIT);
    unload(&l);
    fake_gpu.memory_bytes =
        300 << 10; /* rows are independent, but each chunk would update the state */
    compile(&l,
        "graph @s {\n%x = input : f32[65536]\n%w = param : f32[65536] = gen(\"w\", seed=1, "
        "scale=1)\n"
        "%y = sin %x\n%v = mul %x, %x\nreturn %y\nupdate %w <- %v }",
        "cuda", 1, 1);
    CHECK_INT(nnc_artifact_chunks(l.a), 1);
    unload(&l);
    fake_gpu.memory_bytes = 16; /* not one row */
    compile(&l, sins, "cuda", 1, 1);
    CHECK_INT(nnc_artifact_chunks(l.a), 1);
    CHECK_INT(nnc_session_create(l.e, l.a, &s, test_sink), NNC_E_FIT);
    unload(&l);
    end();
}

TEST(chunks_are_compared)
{
    nnc_text t = {0};
    nnc_env *e = NULL;
    bool agrees = false;
    nnc_compare_options o = {.compile = nnc_compile_defaults, .iterations = 2, .warmup = 1};
    if (no_compiler())
        return;
    fake_begin(1);
    fake_gpu.memory_bytes = 300 << 10;
    CHECK_OK(nnc_env_create(&(nnc_env_options){.target = "cuda", .no_cache = true}, &e, test_sink));
    nnc_model *m = model(sins);
    CHECK_OK(nnc_compare(e, m, &o, NNC_JSON, &t, &agrees, test_sink));
    CHECK(agrees);
    check_text(&t, "\"io\": \"include\"");
    nnc_text_deinit(&t);
    nnc_model_close(m);
    nnc_env_destroy(e);
    end();
}
