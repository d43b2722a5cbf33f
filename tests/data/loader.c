/* tests/data/loader.c -- loader threads: the same bits for any number of them and from any batch on, failures in order, early ends. */
#include "help.h"
#include <stdatomic.h>
#include <time.h>

enum { SAMPLES = 101 };

static const td_model model = {{8, 3, 24, 24}, 4, 10};

static nnc_data_options everything(int loaders)
{
    return (nnc_data_options){.path = td_path("all.bin"),
        .validation = 0.2,
        .seed = 5,
        .resize = "28",
        .crop = NNC_CROP_random,
        .pad = 2,
        .flip = true,
        .rotate = 15,
        .mean = "0.5,0.4,0.3",
        .std = "0.25",
        .loaders = loaders};
}

static void write_samples(void)
{
    NNC_LOCAL(nnc_text) t = {0};
    td_cifar(&t, 1, 0, SAMPLES);
    td_write("all.bin", t.s, t.n);
}

TEST(same_bits_for_any_number_of_threads)
{
    static const int threads[] = {-1, 1, 4, 13};
    uint64_t want[3] = {0}, rest = 0;
    write_samples();
    for (size_t i = 0; i < NNC_COUNT(threads); i++) {
        const nnc_data_options o = everything(threads[i]);
        nnc_data *d = NULL;
        CHECK_OK(td_open(&o, &model, &d));
        if (!d)
            continue;
        CHECK_INT(nnc_data_samples(d, NNC_DATA_validation), 16);
        const uint64_t validation = td_hash(d, &model, NNC_DATA_validation, 0, 0);
        const uint64_t one = td_hash(d, &model, NNC_DATA_train, 1, 0);
        const uint64_t two = td_hash(d, &model, NNC_DATA_train, 2, 0);
        const uint64_t late = td_hash(d, &model, NNC_DATA_train, 2, 4);
        CHECK(one != two && validation != one);
        if (i)
            CHECK(one == want[0] && two == want[1] && validation == want[2] && late == rest);
        want[0] = one;
        want[1] = two;
        want[2] = validation;
        rest = late;
        nnc_data_close(d);
    }
    td_remove();
}

/* Pictures for validation are cropped at the centre, and neither mirrored nor rotated. */
TEST(validation_is_not_augmented)
{
    uint64_t hash[2] = {0};
    write_samples();
    for (int plain = 0; plain < 2; plain++) {
        nnc_data_options o = everything(2);
        nnc_data *d = NULL;
        o.crop = plain ? NNC_CROP_centre : o.crop;
        o.flip = !plain;
        o.rotate = plain ? 0 : o.rotate;
        CHECK_OK(td_open(&o, &model, &d));
        hash[plain] = d ? td_hash(d, &model, NNC_DATA_validation, 0, 0) : 0;
        nnc_data_close(d);
    }
    CHECK(hash[0] && hash[0] == hash[1]);
    td_remove();
}

/* The last batch for validation has the remaining samples; its other rows have a target that is ignored. */
TEST(padded_validation)
{
    static const int threads[] = {-1, 3};
    const td_model padded = {{8, 3, 24, 24}, 4, 10, true};
    const void *at[2];
    write_samples();
    for (size_t i = 0; i < NNC_COUNT(threads); i++) {
        const nnc_data_options o = everything(threads[i]);
        nnc_data *d = NULL;
        CHECK_OK(td_open(&o, &padded, &d));
        if (!d)
            continue;
        CHECK_INT(nnc_data_samples(d, NNC_DATA_validation), 20);
        CHECK_INT(nnc_data_samples(d, NNC_DATA_train), SAMPLES - 20);
        CHECK_INT(nnc_data_batches(d, NNC_DATA_validation), 3);
        CHECK_INT(nnc_data_batches(d, NNC_DATA_train), (SAMPLES - 20) / 8);
        nnc_data_begin(d, NNC_DATA_validation, 0, 0);
        for (int b = 0; b < 3; b++) {
            CHECK_OK(nnc_data_next(d, at, test_sink));
            for (int k = 0; k < 8; k++) {
                const int64_t class = ((const int64_t *)at[1])[k];
                CHECK((class == TD_PAD) == (b == 2 && k >= 4));
                CHECK(class == TD_PAD || (class >= 0 && class < 10));
            }
        }
        NNC_LOCAL(nnc_text) where = {0};
        nnc_data_where(d, 7, &where); /* of a padded row: the sample that stands in it */
        CHECK(strstr(nnc_text_str(&where), "all.bin") != NULL);
        nnc_data_close(d);
    }
    td_remove();
}

/* An epoch begun at a later batch has the batches that the whole one has there, as a resumed training needs. */
TEST(an_epoch_from_the_middle)
{
    const nnc_data_options o = everything(3);
    nnc_data *d = NULL;
    const void *at[2];
    uint64_t hash[16] = {0};
    write_samples();
    CHECK_OK(td_open(&o, &model, &d));
    const int n = d ? (int)nnc_data_batches(d, NNC_DATA_train) : 0;
    for (int first = 0; first < n; first++) {
        nnc_data_begin(d, NNC_DATA_train, 3, first);
        for (int b = first; b < n; b++) {
            CHECK_OK(nnc_data_next(d, at, test_sink));
            const uint64_t h = nnc_hash64(at[0], (size_t)td_numel(&model) * 4, 0);
            CHECK(!first || h == hash[b]);
            hash[b] = h;
            if (b == first + 2)
                break; /* and the next one begins before the epoch's end */
        }
        for (int b = 0; !first && b < n; b++) { /* all of them once */
            if (!b)
                nnc_data_begin(d, NNC_DATA_train, 3, 0);
            CHECK_OK(nnc_data_next(d, at, test_sink));
            hash[b] = nnc_hash64(at[0], (size_t)td_numel(&model) * 4, 0);
        }
    }
    CHECK(n > 5);
    nnc_data_close(d);
    td_remove();
}

/* Each sample is used once in an epoch, and never in both parts. */
TEST(every_sample_once)
{
    int64_t dim[] = {SAMPLES, 1}, seen[SAMPLES];
    float x[SAMPLES];
    int64_t y[SAMPLES] = {0};
    const nnc_type tx = nnc_type_make(DT_f32, 2, dim), ty = nnc_type_make(DT_i64, 1, dim);
    const td_model m = {{5, 1}, 2, 10};
    nnc_data *d = NULL;
    for (int i = 0; i < SAMPLES; i++)
        x[i] = (float)i;
    td_write_tensors("a.npz", 2, (const char *const[]){"x", "target"},
        (const nnc_type *const[]){&tx, &ty}, (const void *const[]){x, y});
    const nnc_data_options o = {.path = td_path("a.npz"), .validation = 0.3, .loaders = 2};
    CHECK_OK(td_open(&o, &m, &d));
    CHECK_INT(nnc_data_samples(d, NNC_DATA_validation), 30);
    CHECK_INT(nnc_data_samples(d, NNC_DATA_train), 71);
    for (int epoch = 1; d && epoch < 4; epoch++) {
        int64_t order = 0;
        memset(seen, 0, sizeof seen);
        for (int p = 0; p < NNC_DATA_PARTS; p++) {
            nnc_data_begin(d, (nnc_data_part)p, epoch, 0);
            for (int64_t b = 0; b < nnc_data_batches(d, (nnc_data_part)p); b++) {
                const void *at[2];
                CHECK_OK(nnc_data_next(d, at, test_sink));
                for (int k = 0; k < 5; k++) {
                    const int i = (int)((const float *)at[0])[k];
                    seen[i]++;
                    order += b * 5 + k == i;
                }
            }
        }
        int once = 0, more = 0;
        for (int i = 0; i < SAMPLES; i++) {
            once += seen[i] == 1;
            more += seen[i] > 1;
        }
        CHECK_INT(once, 100);
        CHECK_INT(more, 0);
        CHECK(order < 30);
    }
    nnc_data_close(d);
    td_remove();
}

/* ---- the loader itself ------------------------------------------------------------------------------------------------------- */

typedef struct rows {
    int64_t fails; /* row, counted from the pass's first batch; -1: none */
    _Atomic int64_t mends; /* so often it fails */
    _Atomic int64_t loaded;
} rows;

static nnc_status number(
    void *ctx, int64_t batch, int64_t row, void *const *to, nnc_scratch *s, nnc_sink *sink)
{
    rows *r = ctx;
    (void)s;
    const int64_t i = batch * 10 + row;
    if (i % 7 == 0) { /* some take longer */
        const struct timespec t = {0, 50000};
        nanosleep(&t, NULL);
    }
    if (r->fails >= 0 && i >= r->fails && atomic_fetch_sub(&r->mends, 1) > 0)
        return nnc_fail0(sink, NNC_E_MODEL, "row %lld", (long long)i);
    ((int64_t *)to[0])[row] = i;
    atomic_fetch_add(&r->loaded, 1);
    return NNC_OK;
}

static nnc_loader *make(rows *r, int threads)
{
    nnc_loader *l = NULL;
    const nnc_load w = {.n = 1, .bytes = {8}, .rows = 10, .row = number, .ctx = r};
    CHECK_OK(nnc_loader_create(&w, threads, &l, test_sink));
    return l;
}

static nnc_status take(nnc_loader *l, int64_t batch)
{
    const void *at[1];
    const nnc_status s = nnc_loader_next(l, at, test_sink);
    for (int k = 0; !s && k < 10; k++)
        CHECK_INT(((const int64_t *)at[0])[k], batch * 10 + k);
    return s;
}

/* Batches before a row that cannot be loaded arrive; the message is of the first such row. */
TEST(failures_come_in_order)
{
    for (int threads = 0; threads < 5; threads++)
        for (int64_t fails = 0; fails < 100; fails += 17) {
            rows r = {.fails = fails, .mends = INT64_MAX};
            nnc_loader *l = make(&r, threads);
            char says[32];
            snprintf(says, sizeof says, "row %lld", (long long)fails);
            nnc_loader_start(l, 0, 12);
            for (int64_t b = 0; b < fails / 10; b++)
                CHECK_OK(take(l, b));
            nnc_sink_clear(test_sink);
            CHECK_INT(take(l, fails / 10), NNC_E_MODEL);
            CHECK_DIAG(says);
            CHECK_INT(nnc_sink_errors(test_sink), 1);
            nnc_loader_pause(l);
            r.fails = -1;
            nnc_loader_start(l, 3, 12); /* it still works */
            for (int64_t b = 3; b < 12; b++)
                CHECK_OK(take(l, b));
            nnc_loader_destroy(l);
        }
}

/* A failure that passes (a network's file system) costs time only. */
TEST(a_failure_that_passes)
{
    rows r = {.fails = 25, .mends = 1};
    nnc_loader *l = make(&r, 3);
    nnc_loader_start(l, 0, 12);
    for (int64_t b = 0; b < 12; b++)
        CHECK_OK(take(l, b));
    CHECK_INT(nnc_sink_errors(test_sink), 0);
    nnc_loader_destroy(l);
}

/* Loading stays within the ring, and ends at once. */
TEST(early_ends)
{
    for (int taken = 0; taken < 6; taken++) {
        rows r = {.fails = -1};
        nnc_loader *l = make(&r, 4);
        nnc_loader_start(l, 0, 1000);
        for (int b = 0; b < taken; b++)
            CHECK_OK(take(l, b));
        const struct timespec t = {0, 3000000};
        nanosleep(&t, NULL);
        CHECK(atomic_load(&r.loaded) <= (taken + 3) * 10);
        nnc_loader_destroy(l);
    }
}

TEST(times)
{
    rows r = {.fails = -1};
    nnc_loader *l = make(&r, 2);
    nnc_loader_start(l, 0, 20);
    for (int64_t b = 0; b < 20; b++)
        CHECK_OK(take(l, b));
    const nnc_data_times t = nnc_loader_take_times(l), none = nnc_loader_take_times(l);
    CHECK(t.load_ns > 20 * 50000 && t.wait_ns > 0 && none.wait_ns == 0 && none.load_ns == 0);
    nnc_loader_destroy(l);
}
