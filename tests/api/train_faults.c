/* tests/api/train_faults.c -- nnc train when memory runs out, with damaged checkpoints, and with damaged sections "train".
 * NNC_FUZZ_SECONDS: for so long each of the latter, otherwise some hundred rounds; --seed N repeats a failure. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/trainer.h"
#include "help.h"
#include "tensors/tensors.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ROWS = 48, WIDE = 6 };

typedef struct fixture {
    char dir[256], x[300], y[300], save[300], log[300], checkpoint[300];
    nnc_env *e;
    nnc_graph *g;
} fixture;

static const char model[] =
    "{\"inputs\": {\"x\": [8, 6]}, \"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"out\": 5}, "
    "{\"op\": \"batchnorm\", \"name\": \"n\"}, \"relu\", {\"op\": \"dropout\", \"alpha\": 0.1}, "
    "{\"op\": \"linear\", \"name\": \"b\", \"out\": 3}]}";

static bool begin(fixture *f)
{
    static float x[ROWS][WIDE];
    int64_t y[ROWS];
    if (!api_tmpdir(f->dir, sizeof f->dir))
        return false;
    for (int r = 0; r < ROWS; r++) {
        y[r] = r % 3;
        for (int i = 0; i < WIDE; i++)
            x[r][i] = (float)(i % 3 == r % 3) +
                      nnc_rng_uniform(nnc_rng_key("x", 1), (uint64_t)(r * WIDE + i));
    }
    const int64_t dim[] = {ROWS, WIDE};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    snprintf(f->x, sizeof f->x, "%s/x.npy", f->dir);
    snprintf(f->y, sizeof f->y, "%s/y.npy", f->dir);
    snprintf(f->save, sizeof f->save, "%s/w.npz", f->dir);
    snprintf(f->log, sizeof f->log, "%s/log", f->dir);
    snprintf(f->checkpoint, sizeof f->checkpoint, "%s/c.safetensors", f->dir);
    CHECK_OK(nnc_write_output(f->x, &tx, x, test_sink));
    CHECK_OK(nnc_write_output(f->y, &ty, y, test_sink));
    const nnc_env_options o = {.threads = 1, .no_cache = true, .no_llvm = true};
    CHECK_OK(nnc_env_create(&o, &f->e, test_sink));
    f->g = nnc_model_parse("m.json", model, sizeof model - 1, NULL, test_sink);
    return f->e && f->g;
}

static void end(fixture *f)
{
    nnc_graph_destroy(f->g);
    nnc_env_destroy(f->e);
    api_rmdir(f->dir);
}

static nnc_train_options options_of(const fixture *f)
{
    nnc_train_options o = nnc_train_defaults;
    o.data.path = f->x;
    o.data.labels = f->y;
    o.data.validation = 0.3;
    o.data.loaders = -1; /* allocations are counted in one thread */
    o.compile.jobs = 1;
    o.training.optimizer = NNC_OPT_adamw;
    o.epochs = 2;
    o.save = f->save;
    o.keep = NNC_KEEP_best;
    o.log = f->log;
    o.checkpoint = f->checkpoint;
    o.resume = true;
    return o;
}

static nnc_status train(const fixture *f, const nnc_train_options *o)
{
    NNC_LOCAL(nnc_text) out = {0};
    return nnc_train(f->e, f->g, o, NNC_TEXT, &out, test_sink);
}

static void clear(const fixture *f)
{
    unlink(f->save);
    unlink(f->log);
    unlink(f->checkpoint);
    nnc_sink_clear(test_sink);
}

/* A training whose allocations fail: one that begins or, with the bytes of a checkpoint, one that is resumed; `want`: its weights. */
typedef struct faulty {
    const fixture *f;
    const nnc_train_options *o;
    const char *checkpoint, *want;
    size_t n_checkpoint, n_want;
    int failed, resumed;
} faulty;

/* Trains, and the n-th allocation fails. What is left on the disk is whole, and is continued to the same weights. Returns the number of
 * allocations before the one that fails; of all, where there are fewer than n. */
static int64_t fail_at(faulty *x, int64_t n)
{
    const fixture *f = x->f;
    char *got = NULL;
    size_t n_got = 0;
    clear(f);
    if (x->checkpoint)
        CHECK_OK(nnc_file_write(f->checkpoint, x->checkpoint, x->n_checkpoint, false, test_sink));
    nnc_fail_alloc_after(n);
    const nnc_status s = train(f, x->o);
    const int64_t left = nnc_fail_alloc_after(0);
    if (s && s != NNC_E_NOMEM && s != NNC_E_FIT) /* FIT: of a device */
        test_fail(__FILE__, __LINE__, "allocation %lld: %s", (long long)n, nnc_status_name(s));
    CHECK(!s == !nnc_sink_errors(test_sink));
    x->failed += s != NNC_OK;
    if (s && !nnc_file_exists(f->checkpoint))
        return n - left;
    x->resumed += s != NNC_OK;
    nnc_sink_clear(test_sink);
    CHECK_OK(train(f, x->o));
    CHECK_OK(nnc_file_read(f->save, 0, &got, &n_got, test_sink));
    CHECK(n_got == x->n_want && !memcmp(got, x->want, x->n_want));
    nnc_free(got);
    return n - left;
}

/* Most allocations are those of compiling: the last ones, of steps and checkpoints, fail one by one. */
static void sweep(faulty x)
{
    enum { LAST = 8 };
    const int64_t all = fail_at(&x, INT64_MAX);
    CHECK(!x.failed);
    for (int64_t n = 1; n <= all - LAST; n += 1 + n / test_draws(30))
        fail_at(&x, n);
    for (int64_t n = all - LAST + 1; n <= all; n++)
        fail_at(&x, n);
    if (x.failed < 2 * LAST + test_draws(30) || x.resumed < 1)
        test_fail(__FILE__, __LINE__, "%d failed, %d were resumed", x.failed, x.resumed);
}

TEST(out_of_memory_training)
{
    fixture f;
    char *want = NULL, *half = NULL;
    size_t n_want = 0, n_half = 0;
    CHECK(begin(&f));
    nnc_train_options o = options_of(&f);
    o.keep = NNC_KEEP_last;
    o.steps = 3;
    CHECK_OK(train(&f, &o));
    CHECK_OK(nnc_file_read(f.checkpoint, 0, &half, &n_half, test_sink));
    o.steps = 0;
    o.checkpoint_every = 1;
    CHECK_OK(train(&f, &o));
    CHECK_OK(nnc_file_read(f.save, 0, &want, &n_want, test_sink));
    sweep((faulty){&f, &o, .want = want, .n_want = n_want});
    o.log = NULL;
    sweep((faulty){&f, &o, half, want, n_half, n_want});
    nnc_free(want);
    nnc_free(half);
    end(&f);
}

/* ---- random damage ------------------------------------------------------------------------------------------------------------ */

static void damage(nnc_text *x, uint64_t key)
{
    uint64_t at = 0;
#define DRAW(n) ((n) ? nnc_rng_u32(key, at++) % (uint32_t)(n) : 0)
    for (uint32_t times = 1 + DRAW(4); times && x->n; times--) {
        const size_t near = DRAW(2) ? 400 : x->n, i = DRAW(near < x->n ? near : x->n);
        switch (DRAW(5)) {
        case 0: x->s[i] ^= (char)(1 << DRAW(8)); break;
        case 1: x->s[i] = (char)DRAW(256); break;
        case 2: x->n = i; break;
        case 3: x->s[i] = "0123456789-.,:{}[]\""[DRAW(19)]; break;
        default: nnc_putc(x, (char)DRAW(256)); break;
        }
    }
#undef DRAW
}

/* Is there a round more? */
static bool goes_on(uint64_t i, uint64_t rounds, int64_t began)
{
    const char *seconds = getenv("NNC_FUZZ_SECONDS");
    return seconds ? nnc_now_ns() - began < strtoll(seconds, NULL, 10) * 1000000000 : i < rounds;
}

/* A damaged checkpoint is refused with a message, or is one of other numbers. */
static void damaged_checkpoints(fixture *f, const char *name)
{
    char *whole = NULL;
    size_t n = 0;
    int refused = 0;
    snprintf(f->checkpoint, sizeof f->checkpoint, "%s/%s", f->dir, name);
    nnc_train_options o = options_of(f);
    o.log = o.save = NULL;
    o.keep = NNC_KEEP_last;
    CHECK_OK(train(f, &o));
    CHECK_OK(nnc_file_read(f->checkpoint, 0, &whole, &n, test_sink));
    const int64_t began = nnc_now_ns();
    for (uint64_t i = 0; goes_on(i, (uint64_t)test_draws(120), began); i++) {
        NNC_LOCAL(nnc_text) x = {0};
        nnc_putn(&x, whole, n);
        damage(&x, nnc_rng_key(name, test_seed + i));
        nnc_sink_clear(test_sink);
        CHECK_OK(nnc_file_write(f->checkpoint, nnc_text_str(&x), x.n, false, test_sink));
        const nnc_status s = train(f, &o); /* it is complete: it is only read */
        refused += s != NNC_OK;
        if (s && s != NNC_E_MODEL && s != NNC_E_DIFFERS)
            test_fail(__FILE__, __LINE__, "--seed %llu: %s", (unsigned long long)(test_seed + i),
                nnc_status_name(s));
        CHECK(!s == !nnc_sink_errors(test_sink));
    }
    CHECK_USUAL(refused > test_draws(10));
    nnc_free(whole);
}

/* Byte `at` of a tensor is another one. */
static void changed_byte(
    fixture *f, const char *name, const char *tensor, int at, char byte, const char *why)
{
    char *whole = NULL, *found = NULL, data[4096];
    size_t n = 0;
    snprintf(f->checkpoint, sizeof f->checkpoint, "%s/%s", f->dir, name);
    nnc_train_options o = options_of(f);
    o.log = o.save = NULL;
    o.keep = NNC_KEEP_last;
    CHECK_OK(train(f, &o));
    CHECK_OK(nnc_file_read(f->checkpoint, 0, &whole, &n, test_sink));
    nnc_tensors *t;
    CHECK_OK(nnc_tensors_open(f->checkpoint, NULL, &t, test_sink));
    const nnc_tensor_entry *e = nnc_tensors_find(t, tensor);
    const size_t size = (size_t)nnc_type_bytes(&e->type);
    CHECK(size <= sizeof data);
    CHECK_OK(nnc_tensors_read(t, e, data, test_sink));
    nnc_tensors_close(t);
    for (size_t i = 0; i + size <= n && !found; i++)
        found = memcmp(whole + i, data, size) ? NULL : whole + i;
    CHECK(found != NULL);
    if (found)
        found[at] = found[at] == byte ? (char)~byte : byte;
    CHECK_OK(nnc_file_write(f->checkpoint, whole, n, false, test_sink));
    CHECK_INT(train(f, &o), NNC_E_MODEL);
    CHECK(test_has_diag(why));
    nnc_sink_clear(test_sink);
    nnc_free(whole);
}

TEST(a_changed_byte_of_a_checkpoint_is_refused)
{
    fixture f;
    CHECK(begin(&f));
    changed_byte(&f, "c.safetensors", "a.weight", 17, 4, "a.weight");
    changed_byte(&f, "d.safetensors", "/train/checksums", 0, 0, "it has 0 checksums");
    changed_byte(&f, "c.npz", "a.weight", 17, 4, "a.weight");
    end(&f);
}

/* A limit of files' sizes stands for a full disk. */
static void lacks_room(bool checkpoint)
{
    fixture f;
    NNC_LOCAL(nnc_text) out = {0};
    CHECK(begin(&f));
    nnc_train_options o = options_of(&f);
    o.keep = NNC_KEEP_last;
    o.log = NULL;
    o.resume = false;
    if (checkpoint)
        o.save = NULL;
    else
        o.checkpoint = NULL;
    struct rlimit was, small;
    CHECK(!getrlimit(RLIMIT_FSIZE, &was));
    small = (struct rlimit){512, was.rlim_max};
    void (*const before)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(!setrlimit(RLIMIT_FSIZE, &small));
    CHECK_INT(nnc_train(f.e, f.g, &o, NNC_TEXT, &out, test_sink), NNC_E_IO);
    CHECK(!setrlimit(RLIMIT_FSIZE, &was));
    signal(SIGXFSZ, before);
    CHECK(test_has_diag("cannot write"));
    CHECK(!strstr(nnc_text_str(&out), "epoch"));
    nnc_sink_clear(test_sink);
    end(&f);
}

TEST(room_for_weights_is_taken_before_the_first_step)
{
    lacks_room(false);
}

TEST(room_for_checkpoints_is_checked_before_the_first_step)
{
    lacks_room(true);
}

static void write_over(void *ctx, nnc_sink *sink)
{
    const fixture *f = ctx;
    CHECK_OK(nnc_file_write(f->save, "another's", 9, false, sink));
}

TEST(weights_of_another_training_stay)
{
    fixture f;
    char *text = NULL;
    size_t n = 0;
    CHECK(begin(&f));
    nnc_train_options o = options_of(&f);
    o.keep = NNC_KEEP_last;
    o.log = o.checkpoint = NULL;
    o.resume = false;
    CHECK_OK(train(&f, &o));
    CHECK_OK(train(&f, &o)); /* a file of before is replaced */
    CHECK(!nnc_file_exists(api_in(f.dir, "w.2.npz")));
    o.ready = write_over;
    o.ctx = &f;
    CHECK_OK(train(&f, &o));
    CHECK(test_has_diag("the weights are written to"));
    CHECK_OK(nnc_file_read(f.save, 0, &text, &n, test_sink));
    CHECK(n == 9 && !memcmp(text, "another's", 9));
    CHECK(nnc_file_exists(api_in(f.dir, "w.2.npz")));
    nnc_free(text);
    nnc_sink_clear(test_sink);
    end(&f);
}

TEST(fuzz_checkpoints)
{
    fixture f;
    CHECK(begin(&f));
    damaged_checkpoints(&f, "c.safetensors");
    damaged_checkpoints(&f, "c.npz");
    end(&f);
}

/* A damaged section is refused with a message at its place, or is another one, of which a step can be made or not. */
TEST(fuzz_sections)
{
    static const char
        start[] = "{\"args\": {\"batch\": 2}, \"inputs\": {\"x\": [\"batch\", 4]}, "
                  "\"layers\": [{\"op\": \"linear\", \"name\": \"a\", \"out\": 3}], "
                  "\"train\": ",
        section[] = "{\"data\": \"d.npz\", \"validation\": 0.1, \"batch\": 4, \"epochs\": 10, "
                    "\"seed\": 1, \"loss\": \"cross_entropy\", \"label_smoothing\": 0.1, "
                    "\"optimizer\": \"adamw\", \"lr\": 3e-3, \"beta1\": 0.8, \"eps\": 1e-6, "
                    "\"weight_decay\": 0.05, \"schedule\": \"step\", \"decay_at\": [3, "
                    "\"500steps\"], \"warmup_steps\": 50, \"shuffle\": true, \"flip\": true, "
                    "\"crop\": \"random\", \"mean\": [0.5, 0.4], \"std\": 0.25, \"bn\": \"eval\", "
                    "\"clip_norm\": 1, \"freeze\": [\"*.bias\"], \"on_nan\": \"skip\", "
                    "\"accumulate\": 2, \"ignore_index\": -100}}";
    int refused = 0, taken = 0;
    const int64_t began = nnc_now_ns();
    for (uint64_t i = 0; goes_on(i, (uint64_t)test_draws(3000), began); i++) {
        NNC_LOCAL(nnc_text) x = {0}, all = {0};
        NNC_LOCAL(nnc_arena) a = {0};
        nnc_train_options o = nnc_train_defaults;
        nnc_graph *g = NULL;
        nnc_putn(&x, section, sizeof section - 2); /* without its last bracket: the file's */
        if (i)
            damage(&x, nnc_rng_key("section", test_seed + i));
        nnc_puts(&all, start);
        nnc_putn(&all, nnc_text_str(&x), x.n);
        nnc_puts(&all, "}");
        nnc_sink_clear(test_sink);
        nnc_graph *m = nnc_model_parse(
            "m.json", nnc_text_str(&all), all.n, &(nnc_model_options){.trains = true}, test_sink);
        nnc_status s = m ? nnc_train_read(m, &o, &a, test_sink) : NNC_E_MODEL;
        if (i == 0)
            CHECK_OK(s);
        if (!s)
            s = nnc_rate_check(&o.rate, test_sink);
        if (!s)
            s = nnc_train_graph(m, &o.training, &g, test_sink);
        refused += s != NNC_OK;
        taken += s == NNC_OK;
        if (!s != !nnc_sink_errors(test_sink))
            test_fail(__FILE__, __LINE__, "--seed %llu: %s with %zu messages",
                (unsigned long long)(test_seed + i), nnc_status_name(s),
                nnc_sink_errors(test_sink));
        nnc_graph_destroy(g);
        nnc_graph_destroy(m);
    }
    CHECK_USUAL(refused > 20 && taken > 0);
}
