/* plugins/llvm/tile.c -- kernels that transpose. Tiles of lanes x lanes elements are read along one axis, transposed in registers by
 * log2(lanes) rounds of shuffles, and written along the other. Tiles at the ends of the axes have masked or fewer rows. */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <string.h>

enum { SIDE = 16, WIDE = 4 };

typedef struct tiles {
    ll_emit *e;
    int axis[2]; /* vec, tile */
    V index[2]; /* block numbers on both axes */
    int64_t size[2]; /* elements per block */
    int live[2]; /* rows and lanes in use of the current tile */
    int64_t from; /* its first row, of several tiles at once */
    bool looped; /* rows are a loop (loop_rows), not copies of the body */
} tiles;

/* One round within lanes of `run` elements: rows i and i + half interleave their lower and upper halves. log2(run) rounds transpose
 * tiles of run elements. */
static void interleave(ll_mod *m, V *rows, int run, int n)
{
    V out[SIDE];
    for (int i = 0; i < run / 2; i++)
        for (int up = 0; up < 2; up++) {
            int lane[SIDE];
            for (int j = 0; j < n; j++)
                lane[j] = j / run * run + up * run / 2 + j % run / 2 + (j & 1) * n;
            out[2 * i + up] = ll_shuffle(m, rows[i], rows[i + run / 2], lane, n);
        }
    memcpy(rows, out, sizeof *rows * (size_t)run);
}

/* One round over whole 128-bit lanes of `count` rows: rows 2i and 2i + 1, `run` apart, exchange their even and odd lanes. */
static void separate(ll_mod *m, V *rows, int count, int run, int n)
{
    V out[SIDE] = {NULL};
    for (int i = 0; i < count / 2; i++)
        for (int odd = 0; odd < 2; odd++) {
            int lane[SIDE];
            for (int j = 0; j < n; j++)
                lane[j] = (2 * (j / run) + odd) * run + j % run;
            out[i + odd * count / 2] =
                ll_shuffle(m, rows[2 * i * run], rows[(2 * i + 1) * run], lane, n);
        }
    for (int i = 0; i < count; i++)
        rows[i * run] = out[i];
}

/* Element j of row i becomes element i of row j. Uses only shuffles that are one instruction on x86: unpack within 16-byte lanes, then
 * exchanges of whole lanes. */
static void transpose(ll_mod *m, V *rows, int n_row, int run, int n)
{
    for (int q = 0; q < n_row; q += run)
        for (int r = run; r > 1; r /= 2)
            interleave(m, rows + q, run, n);
    for (int c = 0; c < run; c++)
        for (int r = n_row / run; r > 1; r /= 2)
            separate(m, rows + c, n_row / run, run, n);
}

/* A whole tile whose vectors have two or four 16-byte lanes is loaded in halves of rows, `run` rows apart in one vector. That saves a round
 * of exchanges, and time to compile. */
static void load_halves(tiles *t, const nnc_kins *ins, int run, V *out)
{
    ll_emit *e = t->e;
    int n = (int)nnc_max64(e->lanes, 2), lane[SIDE];
    assert(n == e->lanes && n <= SIDE);
    for (int j = 0; j < n; j++)
        lane[j] = j;
    e->lanes = n / 2;
    for (int i = 0; i < n; i++) {
        V half[2];
        int h = i / (n / 2), row = i % (n / 2);
        e->shift[t->axis[1]] = h * n / 2;
        for (int high = 0; high < 2; high++) {
            e->shift[t->axis[0]] = t->from + (2 * (row / run) + high) * run + row % run;
            half[high] = ll_load_row(e, ins, n / 2);
        }
        out[i] = ll_shuffle(e->m, half[0], half[1], lane, n);
    }
    e->lanes = n;
    e->shift[t->axis[1]] = 0;
    for (int h = 0; h < 2; h++)
        transpose(e->m, out + (ptrdiff_t)h * n / 2, n / 2, run, n);
}

/* Loads the tile of load instruction `ins`, one vector per position on the tile axis. */
static void load_square(tiles *t, const nnc_kins *ins, V *out)
{
    ll_emit *e = t->e;
    nnc_dtype d = e->k->buf[ins->buf].dtype;
    const int part = 16 / nnc_dtype_size(d), run = part < e->lanes ? part : e->lanes;
    const bool whole = t->live[0] == e->lanes && t->live[1] == e->lanes;
    const bool halves = whole && (e->lanes == 2 * run || e->lanes == 4 * run);
    e->vax = t->axis[1];
    if (halves)
        load_halves(t, ins, run, out);
    for (int r = 0; r < e->lanes && !halves; r++) {
        e->shift[t->axis[0]] = t->from + r;
        out[r] = r < t->live[0] ? ll_load_row(e, ins, t->live[1])
                                : LLVMConstNull(ll_vec(ll_memory_type(e->m, d), e->lanes));
    }
    /* rows of the next tiles: too far apart for the hardware prefetcher */
    for (int r = 0; r < e->lanes && whole; r++) {
        e->shift[t->axis[0]] = t->from + r + e->lanes;
        ll_prefetch(e, ins, false, false);
    }
    e->shift[t->axis[0]] = 0;
    e->vax = t->axis[0];
    if (!halves)
        transpose(e->m, out, e->lanes, run, e->lanes);
    for (int r = 0; r < t->live[1]; r++)
        out[r] = ll_from_memory(e->m, out[r], d);
}

/* Prefetches the lines that the next tile along the vector axis writes to, where stores cross lines. The CPU requests both lines only when
 * such a store executes. Stores of whole lines need no prefetch, and for rows a power of 2 apart the lines would evict each other. */
static void want_lines(tiles *t)
{
    ll_emit *e = t->e;
    if (t->live[0] < e->lanes)
        return;
    e->shift[t->axis[0]] = 2 * e->lanes - 1;
    for (int i = 0; i < e->k->n_ins; i++)
        for (int j = 0; j < t->live[1] && ll_splits_lines(e, &e->k->ins[i]); j++) {
            e->shift[t->axis[1]] = j;
            ll_prefetch(e, &e->k->ins[i], true, true);
        }
    e->shift[t->axis[0]] = e->shift[t->axis[1]] = 0;
}

/* A tile of one lane, element by element. */
static void single(tiles *t)
{
    ll_emit *e = t->e;
    V *at = &e->axis[t->axis[1]], from = *at;
    const int vax = e->vax, lanes = e->lanes;
    ll_loop l;
    ll_loop_begin(
        e->m, &l, ll_i64(e->m, 0), ll_i64(e->m, t->live[1]), ll_i64(e->m, 1), NULL, NULL, 0);
    *at = LLVMBuildNSWAdd(e->m->b, from, l.i, "");
    e->vax = -1;
    e->lanes = 0;
    ll_stages(e);
    e->vax = vax;
    e->lanes = lanes;
    *at = from;
    ll_loop_end(e->m, &l);
}

/* Is a copy of the body for each row of a tile too much code? Vectors of bool are bits in memory, and not looped over. */
static bool is_long(const tiles *t)
{
    enum { FUNCTION = 20, MOST = 400 };
    const nnc_kernel *k = t->e->k;
    int code = 0;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->dtype == DT_bool && nnc_kernel_tiles(k, in, t->axis[0], t->axis[1]))
            return false;
        code += in->op == KO_sop && nnc_sops[in->sop].flags & OF_slow ? FUNCTION : 1;
    }
    return code * t->e->lanes > MOST;
}

/* Transposes `live` elements of rows of `wide` lanes, tile by tile, into memory. */
static V store_rows(tiles *t, const nnc_kins *ins, int live, int wide)
{
    ll_emit *e = t->e;
    ll_mod *m = e->m;
    V memory = ll_stack(m, SIDE * (int64_t)sizeof(double) * wide), row[SIDE];
    for (int q = 0; q < wide; q += e->lanes) {
        t->from = q;
        t->live[0] = (int)nnc_max64(nnc_min64(e->lanes, live - q), 0);
        load_square(t, ins, row);
        for (int j = 0; j < t->live[1]; j++) {
            V at = ll_i64(m, (j * wide + q) / e->lanes);
            LLVMBuildStore(
                m->b, row[j], LLVMBuildGEP2(m->b, LLVMTypeOf(row[j]), memory, &at, 1, ""));
        }
    }
    t->from = 0;
    t->live[0] = live;
    return memory;
}

/* Rows of up to four tiles, in a loop: a body with functions is long, and its chains are hidden behind those of other vectors. */
static void loop_rows(tiles *t)
{
    ll_emit *e = t->e;
    ll_mod *m = e->m;
    const int lanes = e->lanes, live = t->live[0], wide = (int)nnc_max64(ll_pow2_up(live), lanes);
    V *at = &e->axis[t->axis[1]], from = *at;
    ll_loop l;
    for (int i = 0; i < e->k->n_ins; i++)
        e->given[i] = nnc_kernel_tiles(e->k, &e->k->ins[i], t->axis[0], t->axis[1])
                          ? store_rows(t, &e->k->ins[i], live, wide)
                          : NULL;
    ll_loop_begin(m, &l, ll_i64(m, 0), ll_i64(m, t->live[1]), ll_i64(m, 1), NULL, NULL, 0);
    *at = LLVMBuildNSWAdd(m->b, from, l.i, "");
    for (int i = 0; i < e->k->n_ins; i++)
        if (e->given[i]) {
            T row = ll_vec(ll_dtype(m, (nnc_dtype)e->k->ins[i].dtype), wide);
            V p = LLVMBuildGEP2(m->b, row, e->given[i], &l.i, 1, "");
            e->given[i] = LLVMBuildLoad2(m->b, row, p, "");
        }
    e->lanes = wide;
    e->mask = live < wide ? ll_lanes_mask(m, wide, live) : NULL;
    ll_stages(e);
    e->lanes = lanes;
    e->mask = NULL;
    *at = from;
    ll_loop_end(m, &l);
}

/* Few columns are gathered, and one row is copied by elements: transposing would compute, and compile, as much as for a whole tile. */
static void square(tiles *t)
{
    enum { FEW = 2 };
    ll_emit *e = t->e;
    const nnc_kernel *k = e->k;
    V *got = nnc_calloc((size_t)k->n_ins * SIDE + 1, sizeof *got);
    e->given = nnc_calloc((size_t)k->n_ins + 1, sizeof *e->given);
    if (!got || !e->given) {
        e->oom = true;
    } else if (t->looped) {
        loop_rows(t);
    } else {
        want_lines(t);
        for (int i = 0; i < k->n_ins; i++)
            if (t->live[1] > FEW && nnc_kernel_tiles(k, &k->ins[i], t->axis[0], t->axis[1]))
                load_square(t, &k->ins[i], got + (size_t)i * SIDE);
        e->mask = t->live[0] < e->lanes ? ll_lanes_mask(e->m, e->lanes, t->live[0]) : NULL;
        for (int j = 0; j < t->live[1]; j++) {
            e->shift[t->axis[1]] = j;
            for (int i = 0; i < k->n_ins; i++)
                e->given[i] = got[(size_t)i * SIDE + (size_t)j];
            ll_stages(e);
        }
        e->shift[t->axis[1]] = 0;
        e->mask = NULL;
    }
    nnc_free(got);
    nnc_free(e->given);
    e->given = NULL;
}

static void squares_at(void *tiles_of, V at, int live)
{
    tiles *t = tiles_of;
    t->e->axis[t->axis[1]] = at;
    t->live[1] = live;
    if (t->live[0] == 1)
        single(t);
    else
        square(t);
}

static void columns_at(void *tiles_of, V at, int live)
{
    tiles *t = tiles_of;
    t->e->axis[t->axis[0]] = at;
    t->live[0] = live;
    ll_spans(t->e->m, t->index[1], t->size[1], t->e->k->axis[t->axis[1]].extent, t->e->lanes,
        squares_at, t);
}

void ll_tiles(ll_emit *e, V chunk, V block)
{
    const nnc_kschedule *s = &e->k->sched;
    int v = nnc_sched_vec(s), across = nnc_sched_axis(s, KD_transpose);
    int64_t n = e->k->axis[v].extent, columns = nnc_sched_n(s, KD_tile, v);
    tiles t = {.e = e,
        .axis = {v, across},
        .index = {chunk, block},
        .size = {columns > 0 ? columns : n, nnc_sched_n(s, KD_tile, across)}};
    e->vax = v;
    e->lanes = nnc_sched_width(s);
    t.looped = is_long(&t);
    int lanes = t.looped ? WIDE * e->lanes : e->lanes;
    while (lanes > e->lanes && (lanes / 2 >= t.size[0] || (t.size[0] < n && t.size[0] % lanes)))
        lanes /= 2;
    ll_spans(e->m, chunk, t.size[0], n, lanes, columns_at, &t);
}
