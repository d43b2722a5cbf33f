/* tests/cuda_fake/collectives.c -- NCCL through nnc's table, on the fake: results, order under the checker, and mistakes that it finds. */
#include "fake.h"
#include "runtime/runtime.h"
#include "test.h"

enum { RANKS = 4, N = 12, SEEDS = 6, F32 = 7, SUM = 0, AVG = 4 };

static const nnc_device_api *const api = &nnc_device_cuda;

typedef struct rank {
    nnc_device *d;
    nnc_stream *s, *other;
    nccl_comm c;
    cuda_stream raw;
    float *a, *b; /* N and RANKS N elements on the device */
} rank;

static const nnc_cuda_nccl *nccl(void)
{
    return NNC_CUDA(nccl, NULL);
}

/* An engine's run that only looks which stream it is given. */
static nnc_status look(void *handle, void *const *args, void *work)
{
    (void)args, (void)work;
    *(cuda_stream *)handle = nnc_cuda_current();
    return NNC_OK;
}

static cuda_stream raw_stream(nnc_stream *s)
{
    cuda_stream seen = NULL;
    CHECK_OK(api->launch(s, &(nnc_work){.run = look, .handle = &seen, .name = "look"}));
    CHECK(seen != NULL);
    return seen;
}

/* Element i of rank r's operand. */
static float operand(int r, int i)
{
    return (float)(100 * r + i);
}

static void up(rank *k, uint64_t seed)
{
    fake_begin(seed);
    nccl_comm c[RANKS] = {NULL};
    for (int r = 0; r < RANKS; r++) {
        float x[N];
        void *p;
        CHECK_OK(api->open(r, &k[r].d, test_sink));
        CHECK_OK(api->stream_create(k[r].d, 1, false, &k[r].s, test_sink));
        CHECK_OK(api->stream_create(k[r].d, 1, false, &k[r].other, test_sink));
        k[r].raw = raw_stream(k[r].s);
        CHECK_OK(api->alloc(k[r].d, sizeof x, &p, test_sink));
        k[r].a = p;
        CHECK_OK(api->alloc(k[r].d, RANKS * sizeof x, &p, test_sink));
        k[r].b = p;
        for (int i = 0; i < N; i++)
            x[i] = operand(r, i);
        CHECK_OK(api->upload(k[r].s, k[r].a, x, sizeof x));
    }
    CHECK_INT(nccl()->ncclCommInitAll(c, RANKS, NULL), 0);
    for (int r = 0; r < RANKS; r++)
        k[r].c = c[r];
}

static int down(rank *k, char why[512])
{
    for (int r = 0; r < RANKS; r++) {
        if (k[r].c)
            (void)nccl()->ncclCommDestroy(k[r].c);
        api->stream_destroy(k[r].s);
        api->stream_destroy(k[r].other);
        api->free(k[r].d, k[r].a);
        api->free(k[r].d, k[r].b);
        api->close(k[r].d);
    }
    return fake_end(why);
}

static void down_well(rank *k)
{
    char why[512];
    if (down(k, why))
        test_fail(__FILE__, __LINE__, "%s", why);
}

/* Rank r's part of collective `which`, on its stream, to its b. */
static int take_part(const rank *k, int r, int which)
{
    const rank *me = &k[r];
    switch (which) {
    case 0: return nccl()->ncclAllReduce(me->a, me->b, N, F32, SUM, me->c, me->raw);
    case 1: return nccl()->ncclAllReduce(me->a, me->b, N, F32, AVG, me->c, me->raw);
    case 2: return nccl()->ncclAllGather(me->a, me->b, N, F32, me->c, me->raw);
    case 3: return nccl()->ncclReduceScatter(me->a, me->b, N / RANKS, F32, SUM, me->c, me->raw);
    case 4: return nccl()->ncclBroadcast(me->a, me->b, N, F32, 2, me->c, me->raw);
    default: { /* around a ring */
        int result = nccl()->ncclSend(me->a, N, F32, (r + 1) % RANKS, me->c, me->raw);
        return result ? result
                      : nccl()->ncclRecv(me->b, N, F32, (r + RANKS - 1) % RANKS, me->c, me->raw);
    }
    }
}

/* Element i of what rank r gets, and how many there are. */
static float expected(int which, int r, int i, int *n)
{
    const float sum = 100.0f * (RANKS * (RANKS - 1) / 2);
    *n = which == 2 ? RANKS * N : which == 3 ? N / RANKS : N;
    switch (which) {
    case 0: return sum + (float)(RANKS * i);
    case 1: return sum / RANKS + (float)i;
    case 2: return operand(i / N, i % N);
    case 3: return sum + (float)(RANKS * (r * N / RANKS + i));
    case 4: return operand(2, i);
    default: return operand((r + RANKS - 1) % RANKS, i);
    }
}

TEST(collectives_compute)
{
    for (int which = 0; which < 6; which++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            rank k[RANKS];
            up(k, seed);
            CHECK_INT(nccl()->ncclGroupStart(), 0);
            for (int j = 0; j < RANKS; j++)
                CHECK_INT(take_part(k, (j + (int)seed) % RANKS, which), 0);
            CHECK_INT(nccl()->ncclGroupEnd(), 0);
            for (int r = 0; r < RANKS; r++) {
                float y[RANKS * N];
                int n;
                (void)expected(which, r, 0, &n);
                CHECK_OK(api->download(k[r].s, y, k[r].b, (size_t)n * sizeof *y));
                CHECK_OK(api->sync(k[r].s, test_sink));
                for (int i = 0; i < n; i++)
                    CHECK_NEAR(y[i], expected(which, r, i, &n), 0);
            }
            down_well(k);
        }
}

/* A stream that does not wait for the one on which its rank takes part reads too early: a race, whatever the order. */
TEST(collectives_are_ordered_by_their_streams)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        rank k[RANKS];
        char why[512];
        float y[N] = {0};
        up(k, seed);
        CHECK_OK(api->upload(k[1].other, k[1].b, y, sizeof y));
        CHECK_OK(api->sync(k[1].other, test_sink));
        (void)nccl()->ncclGroupStart();
        for (int r = 0; r < RANKS; r++)
            CHECK_INT(take_part(k, r, 0), 0);
        (void)nccl()->ncclGroupEnd();
        CHECK_OK(api->download(k[1].other, y, k[1].b, sizeof y));
        CHECK_OK(api->sync(k[1].other, test_sink));
        CHECK(down(k, why) > 0);
        if (!strstr(why, "nothing puts one after the other") && !strstr(why, "may not have read"))
            test_fail(__FILE__, __LINE__, "seed %d: \"%s\"", (int)seed, why);
    }
}

TEST(collectives_find_mistakes)
{
    static const char *const said[] = {"that nothing will record", "ranks disagree",
        "outside a group", "does not know", "communicators"};
    for (int mistake = 0; mistake < 5; mistake++) {
        rank k[RANKS];
        char why[512];
        up(k, 0);
        if (mistake != 2)
            (void)nccl()->ncclGroupStart();
        for (int r = 0; r < RANKS - (mistake == 0); r++) { /* 0: the last rank does not come */
            int n = mistake == 1 && r == 2 ? N - 1 : N;
            cuda_stream s = mistake == 3 && r == 1 ? k[0].raw : k[r].raw;
            (void)nccl()->ncclAllReduce(k[r].a, k[r].b, (size_t)n, F32, SUM, k[r].c, s);
        }
        if (mistake != 2)
            (void)nccl()->ncclGroupEnd();
        if (mistake == 4)
            k[3].c = NULL;
        if (mistake == 0)
            CHECK(api->sync(k[0].s, test_sink) != NNC_OK);
        CHECK(down(k, why) > 0);
        if (!strstr(why, said[mistake]))
            test_fail(__FILE__, __LINE__, "mistake %d: \"%s\"", mistake, why);
    }
}

/* Ranks that join by an id, as processes do; and a call that fails. */
TEST(collectives_by_id)
{
    rank k[RANKS];
    nccl_id id;
    up(k, 3);
    CHECK_INT(nccl()->ncclGetUniqueId(&id), 0);
    (void)nccl()->ncclGroupStart();
    for (int r = 0; r < RANKS; r++) {
        CHECK_INT(nccl()->ncclCommDestroy(k[r].c), 0);
        CHECK_INT(NNC_CUDA(cudart, NULL)->cudaSetDevice(r), 0);
        CHECK_INT(nccl()->ncclCommInitRank(&k[r].c, RANKS, id, r), 0);
    }
    (void)nccl()->ncclGroupEnd();
    fake_fail_at = fake_calls + 1;
    fake_fail_with = 2;
    CHECK_INT(nccl()->ncclAllReduce(k[0].a, k[0].b, N, F32, SUM, k[0].c, k[0].raw), 1);
    fake_fail_at = 0;
    (void)NNC_CUDA(cudart, NULL)->cudaGetLastError();
    (void)nccl()->ncclGroupStart();
    for (int r = 0; r < RANKS; r++)
        CHECK_INT(take_part(k, r, 1), 0);
    (void)nccl()->ncclGroupEnd();
    down_well(k);
}
