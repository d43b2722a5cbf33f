/* tests/plan/pack.c -- offset assignment: answers on paper, exhaustive search on small cases,
 * properties on generated ones. */
#include "plan/make.h"
#include "test.h"
#include <string.h>

static int64_t pack_for(nnc_block *b, int n, int64_t align, int threads, int64_t *least)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    int64_t size = nnc_pack_blocks(b, n, align, threads, NULL, NULL, least, &a);
    nnc_arena_deinit(&a);
    return size;
}

static int64_t pack(nnc_block *b, int n, int64_t align, int64_t *least)
{
    return pack_for(b, n, align, 1, least);
}

static bool together(const nnc_block *x, const nnc_block *y)
{
    return x->first <= y->last && y->first <= x->last;
}

/* First fault of a placement, or NULL. */
static const char *fault(const nnc_block *b, int n, int64_t align, int64_t size)
{
    for (int i = 0; i < n; i++) {
        if (b[i].offset < 0 || b[i].offset % align || b[i].offset + b[i].bytes > size)
            return "outside";
        for (int j = 0; j < i; j++)
            if (together(&b[i], &b[j]) && b[i].offset < b[j].offset + b[j].bytes &&
                b[j].offset < b[i].offset + b[i].bytes)
                return "overlap";
    }
    return NULL;
}

TEST(pack_nothing)
{
    int64_t least = -1;
    CHECK_INT(pack(NULL, 0, 64, &least), 0);
    CHECK_INT(least, 0);
}

TEST(pack_on_paper)
{
    /* a chain: neighbours live together, so two places alternate */
    nnc_block chain[] = {{100, 0, 1, -1}, {200, 1, 2, -1}, {300, 2, 3, -1}, {64, 3, 4, -1}};
    int64_t least;
    CHECK_INT(pack(chain, 4, 64, &least), 256 + 320);
    CHECK_INT(least, 256 + 320);
    /* three that live together need their sum; the fourth comes when two are gone */
    nnc_block four[] = {{64, 0, 5, -1}, {128, 0, 2, -1}, {64, 0, 2, -1}, {192, 3, 5, -1}};
    CHECK_INT(pack(four, 4, 64, &least), 256);
    CHECK(!fault(four, 4, 64, 256));
    nnc_block one[] = {{1, 7, 7, -1}};
    CHECK_INT(pack(one, 1, 64, &least), 64);
    CHECK_INT(one[0].offset, 0);
}

/* Each thread computes one half: within the same size, the third lies around the middle of the first, whose lines each thread has. */
TEST(pack_keeps_the_lines_of_threads)
{
    const nnc_block chain[] = {{512, 0, 1, -1}, {256, 1, 2, -1}, {256, 2, 3, -1}};
    nnc_block one[3], two[3];
    memcpy(one, chain, sizeof chain);
    memcpy(two, chain, sizeof chain);
    CHECK_INT(pack(one, 3, 64, NULL), 768);
    CHECK_INT(one[2].offset, 0);
    CHECK_INT(pack_for(two, 3, 64, 2, NULL), 768);
    CHECK_INT(two[0].offset, 0);
    CHECK_INT(two[1].offset, 512);
    CHECK_INT(two[2].offset, 128);
}

static bool odd_even(void *ctx, int i, int j)
{
    (void)ctx;
    return (i ^ j) & 1;
}

TEST(pack_conflict_callback)
{
    /* never alive together, but blocks of other parity may not share */
    nnc_block b[] = {{64, 0, 0, -1, 3}, {64, 1, 1, -1, 3}, {64, 2, 2, -1, 3}, {64, 3, 3, -1, 3}};
    nnc_arena a;
    nnc_arena_init(&a, 0);
    int64_t least;
    CHECK_INT(nnc_pack_blocks(b, 4, 64, 1, odd_even, NULL, &least, &a), 128);
    CHECK_INT(least, 64);
    CHECK_INT(b[0].offset, b[2].offset);
    CHECK_INT(b[1].offset, b[3].offset);
    nnc_arena_deinit(&a);
}

/* Best size over all orders of first-fit placement: for up to 6 blocks some order gives the
 * optimum. */
static void search(nnc_block *b, int n, unsigned placed, int64_t top, int64_t *best)
{
    if (placed == (1u << n) - 1 && top < *best)
        *best = top;
    for (int i = 0; i < n && top < *best; i++) {
        if (placed >> i & 1)
            continue;
        int64_t at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (int j = 0; j < n; j++)
                if ((placed >> j & 1) && together(&b[i], &b[j]) && at < b[j].offset + b[j].bytes &&
                    b[j].offset < at + b[i].bytes) {
                    at = b[j].offset + b[j].bytes;
                    moved = true;
                }
        }
        b[i].offset = at;
        search(b, n, placed | 1u << i, nnc_max64(top, at + b[i].bytes), best);
    }
}

TEST(pack_near_the_best)
{
    uint64_t key = nnc_rng_key("pack", test_seed);
    int optimal = 0, cases = 300;
    for (int c = 0; c < cases; c++) {
        nnc_block b[6], s[6];
        int n = 2 + (int)(nnc_rng_u32(key, (uint64_t)c * 32) % 5);
        for (int i = 0; i < n; i++) {
            uint64_t at = (uint64_t)c * 32 + 1 + (uint64_t)i * 3;
            b[i].bytes = 1 + nnc_rng_u32(key, at) % 9;
            b[i].first = (int32_t)(nnc_rng_u32(key, at + 1) % 8);
            b[i].last = b[i].first + (int32_t)(nnc_rng_u32(key, at + 2) % 5);
            s[i] = b[i];
        }
        int64_t best = INT64_MAX, least, size = pack(b, n, 1, &least);
        search(s, n, 0, 0, &best);
        const char *why = fault(b, n, 1, size);
        if (why || size < best || least > best || size * 4 > best * 5)
            test_fail(__FILE__, __LINE__, "case %d seed %llu: %s size %lld best %lld bound %lld", c,
                (unsigned long long)test_seed, why ? why : "", (long long)size, (long long)best,
                (long long)least);
        optimal += size == best;
    }
    CHECK_USUAL(optimal * 100 >= cases * 97);
}

TEST(pack_generated)
{
    uint64_t key = nnc_rng_key("pack2", test_seed);
    int moved = 0;
    for (int c = 0; c < 20; c++) {
        enum { N = 400 };
        static nnc_block b[N], again[N], divided[N];
        for (int i = 0; i < N; i++) {
            uint64_t at = ((uint64_t)c * N + (uint64_t)i) * 3;
            b[i].bytes = 1 + nnc_rng_u32(key, at) % 100000;
            b[i].first = (int32_t)(nnc_rng_u32(key, at + 1) % 600);
            b[i].last = b[i].first + (int32_t)(nnc_rng_u32(key, at + 2) % (c % 2 ? 8 : 60));
            again[i] = b[i];
        }
        int64_t least, size = pack(b, N, 64, &least), second = pack(again, N, 64, NULL);
        CHECK(!fault(b, N, 64, size));
        memcpy(divided, again, sizeof again);
        CHECK_INT(pack_for(divided, N, 64, 2 + c % 7, NULL), size);
        CHECK(!fault(divided, N, 64, size));
        moved += memcmp(divided, b, sizeof b) != 0;
        CHECK(size >= least && size < least * 2);
        CHECK_INT(second, size);
        for (int i = 0; i < N; i++)
            CHECK_INT(again[i].offset, b[i].offset);
    }
    CHECK(moved > 0);
}

/* For blocks whose live ranges do not overlap, as if of different streams. */
static bool some(void *ctx, int i, int j)
{
    (void)ctx;
    return (i ^ j) % 3 == 0;
}

/* Where nearly all blocks may conflict, neighbours are not listed. The same places come out as beside so many blocks of one byte, each
 * alone in time, that they are. */
TEST(pack_dense)
{
    enum { N = 900, ALONE = 12000 };
    static nnc_block b[N], listed[N + ALONE];
    for (int k = 0; k < test_draws(12); k++) {
        uint64_t r = test_seed + (uint64_t)k * 77;
        for (int i = 0; i < N; i++) {
            r = r * 6364136223846793005u + 1442695040888963407u;
            int32_t first = (int32_t)((r >> 33) % 500),
                    last = first + (int32_t)((r >> 20) % (k % 2 ? 300 : 900));
            b[i] = (nnc_block){1 + (int64_t)((r >> 40) % 4000), first, last, -1,
                last + (int32_t)((r >> 50) % 100)};
        }
        memcpy(listed, b, sizeof b);
        for (int i = N; i < N + ALONE; i++)
            listed[i] = (nnc_block){1, 2000 + i, 2000 + i, -1, 2000 + i};
        nnc_arena a;
        nnc_arena_init(&a, 0);
        bool (*conflict)(void *, int, int) = k / 2 % 2 ? some : NULL;
        int64_t least[2], size = nnc_pack_blocks(b, N, 64, 1, conflict, NULL, &least[0], &a);
        CHECK_INT(nnc_pack_blocks(listed, N + ALONE, 64, 1, conflict, NULL, &least[1], &a), size);
        CHECK_INT(least[0], least[1]);
        CHECK(!fault(b, N, 64, size));
        CHECK(!memcmp(listed, b, sizeof b));
        int shared = 0;
        for (int i = 0; conflict && i < N; i++)
            for (int j = 0; j < N; j++)
                shared += b[j].first > b[i].last && b[j].first <= b[i].reach && some(NULL, i, j) &&
                          b[i].offset < b[j].offset + b[j].bytes &&
                          b[j].offset < b[i].offset + b[i].bytes;
        CHECK_INT(shared, 0);
        nnc_arena_deinit(&a);
    }
}

/* Blocks after a block's reach are not looked at: the time and memory of plans with several streams grow with the conflicts. */
static bool count_calls(void *ctx, int i, int j)
{
    *(int *)ctx += 1;
    return i + j < 0;
}

TEST(pack_asks_within_reach)
{
    enum { N = 5000 };
    static nnc_block b[N];
    int calls = 0;
    nnc_arena a;
    nnc_arena_init(&a, 0);
    for (int i = 0; i < N; i++)
        b[i] = (nnc_block){64, 2 * i, 2 * i, -1, 2 * i + 7};
    CHECK_INT(nnc_pack_blocks(b, N, 64, 1, count_calls, &calls, NULL, &a), 64);
    CHECK(calls > 0 && calls < 8 * N);
    nnc_arena_deinit(&a);
}

static bool count_pairs(void *ctx, int i, int j)
{
    *(int *)ctx += 1;
    return some(NULL, i, j);
}

/* Many orders are tried, but whether two blocks conflict is asked once. */
TEST(pack_asks_once)
{
    enum { N = 400 };
    static nnc_block b[N];
    int calls = 0;
    nnc_arena a;
    nnc_arena_init(&a, 0);
    for (int i = 0; i < N; i++)
        b[i] = (nnc_block){64 + i % 7 * 100, 2 * i, 2 * i, -1, 2 * N};
    CHECK(nnc_pack_blocks(b, N, 64, 1, count_pairs, &calls, NULL, &a) > 0);
    CHECK_INT(calls, N * (N - 1) / 2);
    nnc_arena_deinit(&a);
}

/* Sums beyond 63 bits are INT64_MAX, not negative. */
TEST(pack_more_than_all)
{
    nnc_block b[5];
    int64_t least;
    for (int i = 0; i < 5; i++)
        b[i] = (nnc_block){i == 3 ? INT64_MAX : INT64_MAX / 3, i, 10, -1, 10};
    CHECK_INT(pack(b, 5, 256, &least), INT64_MAX);
    CHECK_INT(least, INT64_MAX);
}

TEST(pack_out_of_memory)
{
    for (int64_t n = 1; n < 12; n++) {
        nnc_block b[] = {{100, 0, 1, -1}, {200, 1, 2, -1}, {300, 2, 3, -1}};
        nnc_fail_alloc_after(n);
        int64_t size = pack(b, 3, 64, NULL);
        nnc_fail_alloc_after(0);
        CHECK(size == -1 || size == 576);
    }
}
