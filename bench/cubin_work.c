/* bench/cubin_work.c -- the work of a kernel's thread, read from its machine code: instructions inside and outside of
 * loops, and what it waits for.
 *
 * Bits 105 to 121 of an instruction are its control code. They are stall clocks before the next instruction (4 bits) and a yield hint.
 * Then come the barriers that its result and the reading of its operands release (3 bits each, 7: none), and those that it waits for (6
 * bits). The layout is that of Volta and later (Jia et al. 2018, arXiv 1804.06826; checked against nvdisasm for sm_75 to sm_100). */
#include "cuda/internal.h"
#include "gpu_share.h"
#include <string.h>

enum {
    BARRIERS = 6,
    COPIES = BARRIERS /* of cp.async, which DEPBAR waits for */,
    OP_LDGSTS = 0x1ae,
    OP_DEPBAR = 0x11a
};

typedef struct step { /* the best path from here to an exit */
    int64_t stored, loaded; /* bytes; stored -1: none */
    int length, next;
} step;

typedef struct code {
    const uint8_t *at;
    int64_t n;
    int sm;
} code;

typedef struct word {
    uint64_t low, high;
    int bits;
    nnc_cubin_class class;
} word;

static word word_at(const code *c, int64_t i)
{
    word w;
    memcpy(&w.low, c->at + i * INSTRUCTION, 8);
    memcpy(&w.high, c->at + i * INSTRUCTION + 8, 8);
    w.bits = (int)(w.low & (CUBIN_OPS - 1));
    w.class = cubin_class(c->sm, w.bits);
    return w;
}

static int64_t target(const code *c, int64_t i, const word *w)
{
    return cubin_branch(c->sm, i, w->low, w->high);
}

static bool better(const step *a, const step *b)
{
    if (a->stored != b->stored)
        return a->stored > b->stored;
    return a->loaded != b->loaded ? a->loaded > b->loaded : a->length < b->length;
}

/* The best way out of the loop from `to` to the unconditional branch `i` back. It is the target of a branch in it that leads out. */
static int64_t way_out(const code *c, const step *at, int64_t to, int64_t i)
{
    int64_t best = c->n;
    for (int64_t j = to; j < i; j++) {
        const word w = word_at(c, j);
        const int64_t out = w.bits == OP_BRA || w.bits == OP_CALL ? target(c, j, &w) : 0;
        if (out > i && out < c->n && better(&at[out], &at[best]))
            best = out;
    }
    return best;
}

/* From the last instruction to the first, so that the targets of forward branches are done; the end of a loop goes on with what
 * follows the loop. */
static void find_steps(const code *c, step *at)
{
    at[c->n] = (step){.stored = -1};
    for (int64_t i = c->n - 1; i >= 0; i--) {
        const word w = word_at(c, i);
        const bool plain = (w.low >> 12 & 15) == PREDICATE_TRUE;
        int64_t next = i + 1;
        step end = {.next = -1};
        const step *way = &at[next];
        if ((w.bits == OP_EXIT || w.bits == OP_RET) && plain) {
            way = &end;
            next = -1;
        } else if (w.bits == OP_BRA) {
            const int64_t to = target(c, i, &w);
            const bool forward = to > i && to < c->n, always = cubin_branch_always(w.low, w.high);
            if (forward && (always || better(&at[to], way)))
                next = to;
            else if (always)
                next = to >= 0 && to < i ? way_out(c, at, to, i) : c->n;
            way = &at[next];
        } else if (
            w.bits ==
            OP_CALL) { /* of code that stores: a branch out of a loop, which goes on otherwise */
            const int64_t to = target(c, i, &w);
            if (to > i && to < c->n && at[to].stored > nnc_max64(way->stored, 0))
                next = to;
            way = &at[next];
        }
        at[i] = (step){way->stored, way->loaded, way->length + 1, (int)next};
        if (way->stored >= 0 && w.class == CC_store_global)
            at[i].stored += (int64_t)1 << cubin_width(w.high);
        if (w.class == CC_load_global)
            at[i].loaded += (int64_t)1 << cubin_width(w.high);
    }
}

static bool loads_between(const code *c, int64_t from, int64_t to)
{
    bool any = false;
    for (int64_t i = from; i < to && !any; i++)
        any = word_at(c, i).class == CC_load_global;
    return any;
}

/* Marks the instructions of loops that the path goes through: from the target of a backward branch on it to the branch. `loading`: loops
 * that load from memory, whose iterations are known by what they load. Returns whether there are any. */
static bool mark_loops(const code *c, const step *at, bool loading, bool *inside)
{
    bool any = false;
    for (int64_t i = 0; i >= 0 && i < c->n; i = at[i].next) {
        const word w = word_at(c, i);
        const int64_t to = w.bits == OP_BRA ? target(c, i, &w) : i;
        if (to < 0 || to >= i || (loading && !loads_between(c, to, i)))
            continue;
        for (int64_t j = to; j <= i; j++)
            inside[j] = true;
        any = true;
    }
    return any;
}

typedef struct waiting {
    int bytes[BARRIERS + 1]; /* of global loads */
    int64_t since[BARRIERS + 1]; /* clocks of the path before the last of them */
    bool other[BARRIERS + 1];
    int all;
    int64_t clocks; /* of the path so far */
} waiting;

static int64_t bytes_of(const word *w)
{
    return (int64_t)1 << cubin_width(w->high);
}

/* The barriers that instruction w waits for. */
static unsigned waited(const word *w)
{
    return (unsigned)(w->high >> 52 & 63) | (w->bits == OP_DEPBAR ? 1u << COPIES : 0);
}

/* What instruction w waits for, and what it leaves to wait for. */
static void wait_for(waiting *s, const word *w, nnc_cubin_work *out)
{
    const unsigned mask = waited(w),
                   sets = w->bits == OP_LDGSTS ? COPIES : (unsigned)(w->high >> 46 & 7);
    const int64_t now = s->clocks;
    bool loads = false, others = false;
    s->clocks += (int64_t)(w->high >> 41 & 15);
    for (int b = 0; b <= COPIES; b++)
        if (mask >> b & 1) {
            loads |= s->bytes[b] > 0;
            others |= s->other[b];
            s->bytes[b] = 0;
            s->other[b] = false;
        }
    out->waits += loads;
    out->other_waits += (!loads && others) || w->class == CC_barrier;
    if (loads)
        *s = (waiting){.clocks = s->clocks};
    if (sets > COPIES || (sets == COPIES && w->bits != OP_LDGSTS))
        return;
    if (w->class == CC_load_global) {
        s->bytes[sets] += (int)bytes_of(w);
        s->since[sets] = now;
        s->all += (int)bytes_of(w);
    } else {
        s->other[sets] = true;
    }
}

/* Clocks between the last load of an iteration of a loop, `from` to its branch back, and where the next iteration first waits for one.
 * So much of the latency passes while the thread computes. s: what is waited for at the branch; entered: clocks at `from`. */
static int carried(
    const code *c, const step *at, waiting s, int64_t from, int64_t branch, int64_t entered)
{
    for (int64_t i = from; i >= 0 && i != branch && i < c->n; i = at[i].next) {
        const word w = word_at(c, i);
        const unsigned mask = waited(&w);
        int64_t last = -1;
        for (int b = 0; b <= COPIES; b++)
            if ((mask >> b & 1) && s.bytes[b] > 0)
                last = s.since[b] > last ? s.since[b] : last;
        if (last >= 0)
            return last >= entered ? (int)(s.clocks - last) : 0;
        s.clocks += (int64_t)(w.high >> 41 & 15);
    }
    return 0;
}

static bool walk(const code *c, const step *at, const bool *inside, nnc_cubin_path *k)
{
    waiting s = {0};
    NNC_FREED int64_t *entered = nnc_calloc((size_t)c->n + 1, sizeof *entered);
    if (!entered)
        return false;
    for (int64_t i = 0; i >= 0 && i < c->n; i = at[i].next) {
        const word w = word_at(c, i);
        const int64_t to = w.bits == OP_BRA ? target(c, i, &w) : i;
        entered[i] = s.clocks;
        nnc_cubin_work *out = inside[i] ? &k->loop : &k->once;
        out->n[w.class]++;
        out->issued += w.class != CC_nothing;
        out->stalls += (int)(w.high >> 41 & 15);
        wait_for(&s, &w, out);
        out->loads += w.class == CC_load_global ? (int)bytes_of(&w) : 0;
        out->stores += w.class == CC_store_global ? (int)bytes_of(&w) : 0;
        out->local += w.class == CC_load_local || w.class == CC_store_local ? (int)bytes_of(&w) : 0;
        k->flight = s.all > k->flight ? s.all : k->flight;
        if (inside[i] && to >= 0 && to < i)
            out->ahead += carried(c, at, s, to, i, entered[to]);
    }
    return true;
}

bool nnc_cubin_path_of(const nnc_cubin_kernel *k, nnc_cubin_path *out)
{
    const code c = {k->code, k->n_code, k->sm};
    NNC_FREED step *at = nnc_calloc((size_t)c.n + 1, sizeof *at);
    NNC_FREED bool *inside = nnc_calloc((size_t)c.n + 1, sizeof *inside);
    *out = (nnc_cubin_path){0};
    if (!at || !inside)
        return false;
    find_steps(&c, at);
    if (at[0].stored >= 0) {
        if (!mark_loops(&c, at, true, inside))
            (void)mark_loops(&c, at, false, inside);
        return walk(&c, at, inside, out);
    }
    return true;
}
