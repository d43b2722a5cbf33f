/* plan/pack.c -- offsets for blocks with live ranges, so that blocks that are live at the same time do not overlap. This is dynamic storage
 * allocation, which is NP-hard and in practice solved by greedy placement in a good order. Six orders are tried and the smallest result is
 * kept. On inference graphs of CNNs it equals the lower bound (the largest number of bytes live at once). Where it does not, orders are
 * repaired: blocks that end above the bound come first.
 *
 * Each block is placed in the smallest gap that fits between the conflicting blocks already placed, or on top of them. Ties are broken by
 * index, so the result is deterministic. Where several threads run each command, blocks then move within the size that was found. */
#include "plan/make.h"
#include <stdlib.h>
#include <string.h>

typedef bool (*conflict_fn)(void *ctx, int i, int j);

enum {
    FEW_PAIRS = 64, /* pairs per block that may conflict, below which conflicts are listed */
    ORDERS = 6,
    REPAIRED = 2, /* orders that are repaired: the first, by contention */
    REPAIRS = 6,
    NEAR = 512, /* near enough: within 1/NEAR of the bound */
    MOST_ROWS = 1 << 14, /* blocks whose conflicts are kept as bits: 32 MiB */
};

typedef struct key {
    int64_t a, b; /* larger first */
    int32_t i; /* smaller first */
} key;

typedef struct packer {
    nnc_block *b;
    int n, threads;
    conflict_fn conflict; /* NULL: only overlapping live ranges conflict */
    void *ctx;
    int64_t *size; /* aligned */
    int64_t *near0; /* CSR: blocks that conflict with i: near[near0[i] .. near0[i+1]) */
    int32_t *near;
    int64_t *contention; /* maximum of live bytes during the block's live range */
    key *key;
    int64_t *at, *best; /* offsets: being tried (-1: not placed), best so far */
    int64_t top; /* size of the best; INT64_MAX: none yet */
    int32_t *urgent; /* by block: in how many repairs it ended too high */
    int64_t (*gap)[2]; /* begin and end of the placed neighbours */
    bool
        dense; /* too many pairs to list: near0 and near are unused, placed[] is sorted by offset */
    uint64_t *
        row; /* if dense: bit j of row i (row_words words) says that i and j conflict; NULL: too many blocks */
    size_t row_words;
    int32_t *placed;
    int n_placed;
    bool partial; /* an order no smaller than the best is abandoned: at[] is incomplete */
} packer;

NNC_ORDER(by_key, key, nnc_cmp(b->a, a->a), nnc_cmp(b->b, a->b), nnc_cmp(a->i, b->i))

/* ---- conflicts ----------------------------------------------------------------------------------------------------- */

/* The last start of a block that may conflict with block i. */
static int32_t reach(const packer *p, int32_t i)
{
    return p->conflict ? p->b[i].reach : p->b[i].last;
}

static bool conflicts(const packer *p, int32_t i, int32_t j)
{
    if (p->b[j].first < p->b[i].first)
        return conflicts(p, j, i);
    return p->b[j].first <= p->b[i].last ||
           (p->b[j].first <= reach(p, i) && p->conflict(p->ctx, i, j));
}

/* One past the last block, sorted by first in p->key, that starts at `end` or before, and after the k-th. */
static int starts_by(const packer *p, int k, int32_t end)
{
    int lo = k + 1, hi = p->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (p->b[p->key[mid].i].first <= end)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Calls fn for every conflicting pair once. */
static void each_pair(packer *p, void (*fn)(packer *, int32_t, int32_t))
{
    for (int a = 0; a < p->n; a++) {
        int32_t i = p->key[a].i;
        int end = starts_by(p, a, reach(p, i));
        for (int c = a + 1; c < end; c++)
            if (conflicts(p, i, p->key[c].i))
                fn(p, i, p->key[c].i);
    }
}

static void count_pair(packer *p, int32_t i, int32_t j)
{
    p->near0[i + 1]++;
    p->near0[j + 1]++;
}

static void fill_pair(packer *p, int32_t i, int32_t j)
{
    p->near[p->near0[i] + p->at[i]++] = j;
    p->near[p->near0[j] + p->at[j]++] = i;
}

static void mark_pair(packer *p, int32_t i, int32_t j)
{
    p->row[(size_t)i * p->row_words + (size_t)j / 64] |= UINT64_C(1) << j % 64;
    p->row[(size_t)j * p->row_words + (size_t)i / 64] |= UINT64_C(1) << i % 64;
}

/* Computes conflicts of many blocks as bits: each pair once, while trying an order would check about half of all pairs. */
static bool mark_conflicts(packer *p, nnc_arena *a)
{
    p->placed = ARENA_NEW(a, int32_t, p->n);
    if (!p->placed || p->n > MOST_ROWS)
        return p->placed != NULL;
    p->row_words = ((size_t)p->n + 63) / 64;
    p->row = nnc_calloc((size_t)p->n * p->row_words, sizeof *p->row);
    if (p->row)
        each_pair(p, mark_pair);
    return p->row != NULL;
}

static bool find_conflicts(packer *p, nnc_arena *a)
{
    int64_t pairs = 0;
    for (int i = 0; i < p->n; i++)
        p->key[i] = (key){-(int64_t)p->b[i].first, 0, i};
    qsort(p->key, (size_t)p->n, sizeof *p->key, by_key);
    for (int k = 0; k < p->n; k++)
        pairs += starts_by(p, k, reach(p, p->key[k].i)) - k - 1;
    p->dense = pairs > FEW_PAIRS * (int64_t)p->n;
    if (p->dense)
        return mark_conflicts(p, a);
    each_pair(p, count_pair);
    for (int i = 0; i < p->n; i++)
        p->near0[i + 1] += p->near0[i];
    p->near = ARENA_NEW(a, int32_t, p->near0[p->n] + 1);
    if (!p->near)
        return false;
    memset(p->at, 0, (size_t)p->n * sizeof *p->at);
    each_pair(p, fill_pair);
    return true;
}

/* ---- live bytes ---------------------------------------------------------------------------------------------------- */

/* contention[i] = maximum of live[] from i's start to the last start within its live range, by a tree of maxima over live[]. */
static bool find_tops(packer *p, const int64_t *live, nnc_arena *a)
{
    size_t n = (size_t)p->n;
    int64_t *tree = ARENA_NEW(a, int64_t, 2 * n + 1);
    if (!tree)
        return false;
    memcpy(tree + n, live, n * sizeof *tree);
    for (size_t i = n; i-- > 1;)
        tree[i] = nnc_max64(tree[2 * i], tree[2 * i + 1]);
    for (int k = 0; k < p->n; k++) {
        size_t lo = n + (size_t)k, hi = n + (size_t)starts_by(p, k, p->b[p->key[k].i].last);
        int64_t top = live[k];
        for (; lo < hi; lo /= 2, hi /= 2) {
            if (lo & 1)
                top = nnc_max64(top, tree[lo++]);
            if (hi & 1)
                top = nnc_max64(top, tree[--hi]);
        }
        p->contention[p->key[k].i] = top;
    }
    return true;
}

/* Sweeps over starts and ends; live[k] = bytes live from the k-th start (sorted by first) to the next. *most: their maximum. Fills
 * contention. Ends are visited through a copy of the blocks sorted by last. False: out of memory. */
static bool find_contention(packer *p, int64_t *most, nnc_arena *a)
{
    size_t n = (size_t)p->n;
    key *end = ARENA_NEW(a, key, n + 1);
    int64_t *live = ARENA_NEW(a, int64_t, n + 1);
    if (!end || !live)
        return false;
    for (int i = 0; i < p->n; i++)
        end[i] = (key){-(int64_t)p->b[i].last, 0, i};
    qsort(end, n, sizeof *end, by_key);
    int64_t now = 0;
    int e = 0;
    bool full = false; /* once the sum has reached INT64_MAX, it stays there */
    *most = 0;
    for (int k = 0; k < p->n; k++) { /* p->key is sorted by first here */
        const nnc_block *b = &p->b[p->key[k].i];
        for (; p->b[end[e].i].last < b->first; e++)
            now -= full ? 0 : p->size[end[e].i];
        now = nnc_add_sat(now, p->size[p->key[k].i]);
        full |= now == INT64_MAX;
        live[k] = now;
        *most = now > *most ? now : *most;
    }
    return find_tops(p, live, a);
}

/* ---- greedy placement ---------------------------------------------------------------------- */

static int gap_of(packer *p, int n, int32_t j)
{
    p->gap[n][0] = p->at[j];
    p->gap[n][1] = nnc_add_sat(p->at[j], p->size[j]);
    return n + 1;
}

/* Fills gap[] with the placed neighbours of i, sorted by begin. */
static int find_neighbours(packer *p, int32_t i)
{
    int n = 0;
    const uint64_t *row = p->row ? p->row + (size_t)i * p->row_words : NULL;
    for (int k = 0; k < p->n_placed; k++) {
        const int32_t j = p->placed[k];
        if (row ? row[j / 64] >> j % 64 & 1 : conflicts(p, i, j))
            n = gap_of(p, n, j);
    }
    if (p->dense)
        return n;
    for (int64_t k = p->near0[i]; k < p->near0[i + 1]; k++)
        if (p->at[p->near[k]] >= 0)
            n = gap_of(p, n, p->near[k]);
    qsort(p->gap, (size_t)n, sizeof *p->gap, nnc_by_number);
    return n;
}

/* Keeps placed[] sorted by offset. */
static void add_placed(packer *p, int32_t i)
{
    int lo = 0, hi = p->n_placed;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (p->at[p->placed[mid]] <= p->at[i])
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(p->placed + lo + 1, p->placed + lo, (size_t)(p->n_placed - lo) * sizeof *p->placed);
    p->placed[lo] = i;
    p->n_placed++;
}

/* Lowest offset of the smallest gap among i's placed neighbours that fits block i. */
static int64_t best_fit(packer *p, int32_t i)
{
    int n = find_neighbours(p, i);
    int64_t top = 0, best = -1, best_gap = INT64_MAX;
    for (int k = 0; k < n; k++) {
        int64_t gap = p->gap[k][0] - top;
        if (gap >= p->size[i] && gap < best_gap) {
            best = top;
            best_gap = gap;
        }
        top = p->gap[k][1] > top ? p->gap[k][1] : top;
    }
    return best >= 0 ? best : top;
}

static int64_t place_all(packer *p)
{
    int64_t top = 0;
    memset(p->at, 0xff, (size_t)p->n * sizeof *p->at);
    qsort(p->key, (size_t)p->n, sizeof *p->key, by_key);
    p->n_placed = 0;
    for (int k = 0; k < p->n && !(p->partial && top >= p->top); k++) {
        int32_t i = p->key[k].i;
        p->at[i] = best_fit(p, i);
        if (p->dense)
            add_placed(p, i);
        top = nnc_max64(top, nnc_add_sat(p->at[i], p->size[i]));
    }
    return top;
}

/* Saturating product of bytes and commands, used only for sorting. */
static int64_t area(const packer *p, int i)
{
    return nnc_mul_sat(p->size[i], (int64_t)p->b[i].last - p->b[i].first + 1);
}

static key key_of(const packer *p, int order, int i)
{
    int64_t life = (int64_t)p->b[i].last - p->b[i].first;
    switch (order) {
    case 0: return (key){p->contention[i], area(p, i), i};
    case 1: return (key){p->contention[i], p->size[i], i};
    case 2: return (key){p->size[i], life, i};
    case 3: return (key){area(p, i), p->size[i], i};
    case 4: return (key){life, p->size[i], i};
    default: return (key){-(int64_t)p->b[i].first, p->size[i], i};
    }
}

static bool packer_alloc(packer *p, nnc_arena *a)
{
    size_t n = (size_t)p->n + 1;
    p->size = ARENA_NEW(a, int64_t, n);
    p->near0 = ARENA_NEW(a, int64_t, n);
    p->contention = ARENA_NEW(a, int64_t, n);
    p->key = ARENA_NEW(a, key, n);
    p->at = ARENA_NEW(a, int64_t, n);
    p->best = ARENA_NEW(a, int64_t, n);
    p->gap = nnc_arena_alloc(a, n, sizeof *p->gap);
    p->urgent = ARENA_NEW(a, int32_t, n);
    p->top = INT64_MAX;
    return p->urgent && p->size && p->near0 && p->contention && p->key && p->at && p->best &&
           p->gap;
}

/* Places all blocks in an order of keys, and keeps the result if it is the smallest. */
static void try_order(packer *p, int order)
{
    for (int i = 0; i < p->n; i++) {
        const key k = key_of(p, order, i);
        p->key[i] = p->urgent[i] ? (key){INT64_MAX, p->urgent[i], i} : k;
    }
    const int64_t size = place_all(p);
    if (size >= p->top)
        return;
    p->top = size;
    memcpy(p->best, p->at, (size_t)p->n * sizeof *p->best);
}

/* Repairs an order, whose result is in p->at. */
static void repair(packer *p, int order, int64_t least)
{
    memset(p->urgent, 0, (size_t)p->n * sizeof *p->urgent);
    for (int k = 0; k < REPAIRS && p->top - least > least / NEAR; k++) {
        for (int i = 0; i < p->n; i++)
            p->urgent[i] += nnc_add_sat(p->at[i], p->size[i]) > least;
        p->partial = k == REPAIRS - 1; /* no further repair needs its offsets */
        try_order(p, order);
    }
    p->partial = false;
    memset(p->urgent, 0, (size_t)p->n * sizeof *p->urgent);
}

/* ---- threads' caches ---------------------------------------------------------------------------------------------
 * Thread i of n computes part i of a result, counted in bytes. A line of a cache that another core wrote costs several times what one of
 * the core's own does, for stores as for loads. So a block is moved, within the size that was found, to where each thread finds lines
 * that it wrote last. That is mostly where the middles of two blocks coincide. */

enum {
    RECENT = 12, /* blocks before one whose lines are likely to be in a core's cache still */
    POINTS = 8, /* of a block, at which the owners are compared */
    OWN = 0, /* prices of a line: the thread's, nobody's, another thread's */
    NOBODY = 1,
    OTHER = 3,
};

static int64_t price_at(const packer *p, int32_t i, int64_t at, const int32_t *recent, int n)
{
    int64_t price = 0;
    for (int s = 1; s < 2 * POINTS; s += 2) {
        const int64_t x = at + p->size[i] / (2 * POINTS) * s;
        int k = 0;
        while (k < n && (x < p->at[recent[k]] || x >= p->at[recent[k]] + p->size[recent[k]]))
            k++;
        const int64_t owner = k < n ? (x - p->at[recent[k]]) * p->threads / p->size[recent[k]] : -1;
        price += owner < 0 ? NOBODY : owner == s * p->threads / (2 * POINTS) ? OWN : OTHER;
    }
    return price;
}

static bool is_free(const packer *p, int32_t i, int64_t at)
{
    bool is = at >= 0 && at <= p->top - p->size[i];
    for (int64_t k = p->near0[i]; k < p->near0[i + 1] && is; k++) {
        const int32_t j = p->near[k];
        is = at >= p->at[j] + p->size[j] || p->at[j] >= at + p->size[i];
    }
    return is;
}

static void settle_block(packer *p, int32_t i, const int32_t *recent, int n, int64_t align)
{
    int64_t best = p->at[i], least = price_at(p, i, best, recent, n);
    for (int k = 0; k < n && least > 0; k++) {
        const int64_t at = (p->at[recent[k]] + (p->size[recent[k]] - p->size[i]) / 2) & -align;
        const int64_t price = is_free(p, i, at) ? price_at(p, i, at, recent, n) : least;
        if (price < least) {
            least = price;
            best = at;
        }
    }
    p->at[i] = best;
}

/* Moves blocks in the order in which they are first used. */
static bool settle(packer *p, int64_t align, nnc_arena *a)
{
    const size_t n = (size_t)p->n;
    key *end = ARENA_NEW(a, key, n + 1);
    if (!end)
        return false;
    for (int i = 0; i < p->n; i++) {
        p->key[i] = (key){-(int64_t)p->b[i].first, 0, i};
        end[i] = (key){-(int64_t)p->b[i].last, 0, i};
    }
    qsort(p->key, n, sizeof *p->key, by_key);
    qsort(end, n, sizeof *end, by_key);
    memcpy(p->at, p->best, n * sizeof *p->at);
    int ended = 0;
    for (int k = 0; k < p->n; k++) {
        const int32_t i = p->key[k].i;
        int32_t recent[RECENT], m = 0;
        while (ended < k && p->b[end[ended].i].last < p->b[i].first)
            ended++;
        for (; m < RECENT && m < ended; m++)
            recent[m] = end[ended - 1 - m].i;
        settle_block(p, i, recent, m, align);
    }
    memcpy(p->best, p->at, n * sizeof *p->best);
    return true;
}

int64_t nnc_pack_blocks(nnc_block *b, int n, int64_t align, int threads, conflict_fn conflict,
    void *ctx, int64_t *lower_bound, nnc_arena *scratch)
{
    packer p = {.b = b, .n = n, .threads = threads, .conflict = conflict, .ctx = ctx};
    int64_t least = 0;
    if (!packer_alloc(&p, scratch))
        return -1;
    for (int i = 0; i < n; i++)
        p.size[i] = nnc_add_sat(b[i].bytes, align - 1) & -align;
    bool found = find_conflicts(&p, scratch) && find_contention(&p, &least, scratch);
    for (int order = 0; found && order < ORDERS && p.top > least; order++) {
        p.partial = order >= REPAIRED;
        try_order(&p, order);
        if (order < REPAIRED)
            repair(&p, order, least);
    }
    if (found && threads > 1 && !p.dense && p.top < INT64_MAX / threads)
        found = settle(&p, align, scratch);
    nnc_free(p.row);
    if (!found)
        return -1;
    for (int i = 0; i < n; i++)
        b[i].offset = p.best[i];
    if (lower_bound)
        *lower_bound = least;
    return n ? p.top : 0;
}
