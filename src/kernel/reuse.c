/* kernel/reuse.c -- values that several stages of a point need (softmax: the exponentials that were summed). A result that a reduction
 * computes on its way is stored there, if its own stage would have no other. Otherwise cheap values are recomputed. Expensive ones are
 * stored in a tmp buffer of the worker, if a row of them fits the nearest caches and rows are contiguous. A kernel over columns recomputes
 * them, since its buffer would need an element for every lane. */
#include "kernel/link.h"
#include <assert.h>
#include <string.h>

enum { REUSED_BYTES = 256 << 10 };

/* True when rows are contiguous: the unit-stride axis of the largest result is an axis of the row. */
static bool rows_along_memory(const nx *t)
{
    const nx_ins *best = NULL;
    for (int i = 0; i < t->n_store; i++) {
        const nx_ins *o = &t->ins[t->store[i]];
        if (!best ||
            nnc_type_numel(nnc_typeof(t->g, o->v)) > nnc_type_numel(nnc_typeof(t->g, best->v)))
            best = o;
    }
    assert(best); /* a kernel stores something */
    for (int a = 0; a < t->k->n_axis; a++)
        if (best->k.at.k[a] == 1)
            return t->k->axis[a].kind == KA_map;
    return false;
}

/* True when consumer p and producer q compute the same element of their value, if p's own axes (those in `axes`) equal q's mates. Fills
 * mate[axis of p] = axis of q. */
static bool mirrors(const nnc_kernel *k, const nnc_affine *p, const nnc_affine *q, int rank,
    uint32_t axes, uint32_t mates, int mate[])
{
    for (int d = 0; d < rank; d++) {
        if (p[d].c != q[d].c)
            return false;
        for (int a = 0; a < k->n_axis; a++) {
            if (k->axis[a].kind == KA_outer && p[d].k[a] != q[d].k[a])
                return false;
            if (!(axes >> a & 1) || p[d].k[a] == 0)
                continue;
            int b = mate[a] < 0 && mates >> a & 1 ? a : mate[a];
            for (int c = 0; b < 0 && c < k->n_axis; c++)
                if (mates >> c & 1 && k->axis[c].extent == k->axis[a].extent &&
                    q[d].k[c] == p[d].k[a])
                    b = c;
            if (b < 0 || q[d].k[b] != p[d].k[a])
                return false;
            mate[a] = b;
        }
    }
    return true;
}

/* True when every axis of the producer's context is a mate: the buffer then has an element for each of the value. */
static bool covers(const nnc_kernel *k, uint32_t axes, const int mate[])
{
    uint32_t seen = 0;
    for (int a = 0; a < k->n_axis; a++)
        if (mate[a] >= 0) {
            assert(!(seen >> mate[a] & 1)); /* one axis would index two dimensions */
            seen |= 1u << mate[a];
        }
    return seen == axes;
}

static bool reuse(nl *l, int32_t consumer, int32_t producer, const int mate[])
{
    const nx *t = l->t;
    nl_reuse *r = &l->reuse[l->n_reuse];
    nnc_dtype d = (nnc_dtype)t->ins[consumer].k.dtype;
    int64_t numel = 1;
    *r = (nl_reuse){.consumer = consumer, .producer = producer, .buf = l->k->n_buf};
    for (int i = 0; i < l->n_reuse; i++)
        if (l->reuse[i].producer == producer) {
            r->buf = l->reuse[i].buf;
            r->stored = true;
        }
    for (int b = l->k->n_axis - 1; b >= 0; b--) {
        if (!(t->ctx[t->ins[producer].at.ctx].axes >> b & 1))
            continue;
        r->store_at.k[b] = numel;
        for (int a = 0; a < l->k->n_axis; a++)
            if (mate[a] == b)
                r->at.k[a] = numel;
        numel *= l->k->axis[b].extent;
    }
    if (numel * nnc_dtype_size(d) > REUSED_BYTES)
        return false;
    if (!r->stored)
        l->k->buf[l->k->n_buf++] = (nnc_kbuf){.role = KB_tmp, .dtype = d, .numel = numel};
    l->n_reuse++;
    return true;
}

/* The equal instruction in the earliest stage before `consumer`'s, or -1. */
static int32_t find_producer(const nl *l, int32_t consumer, int mate[])
{
    const nx *t = l->t;
    const nx_ins *p = &t->ins[consumer];
    int first = nl_stage_of(l, p->at.ctx);
    int32_t producer = -1;
    for (int32_t i = 0; i < t->n_ins; i++) {
        const nx_ins *q = &t->ins[i];
        int stage, with[NNC_KAXES];
        if (q->v != p->v || q->part != p->part || t->ctx[q->at.ctx].output || q->guard >= 0 ||
            (stage = nl_stage_of(l, q->at.ctx)) < 0 || stage >= first)
            continue;
        memset(with, -1, sizeof with);
        if (mirrors(t->k, p->idx, q->idx, nnc_typeof(t->g, p->v)->rank,
                t->ctx[p->at.ctx].axes & ~t->outer, t->ctx[q->at.ctx].axes, with) &&
            covers(t->k, t->ctx[q->at.ctx].axes, with)) {
            memcpy(mate, with, sizeof with);
            producer = i;
            first = stage;
        }
    }
    return producer;
}

static bool is_reused(nl *l, int32_t consumer)
{
    int mate[NNC_KAXES];
    int32_t producer = find_producer(l, consumer, mate);
    return producer >= 0 && reuse(l, consumer, producer, mate);
}

/* Moves a store to the reduction that computes its value, at the same place in memory. */
static bool store_early(nl *l, int32_t store)
{
    const nx_ins *o = &l->t->ins[store];
    int mate[NNC_KAXES];
    const int32_t x = o->k.arg[0];
    if (o->guard >= 0 || l->t->ins[x].part < 0 || l->t->ins[x].at.ctx != o->at.ctx ||
        l->n_early == NX_REUSED)
        return false;
    int32_t producer = find_producer(l, x, mate);
    for (int a = 0; a < l->k->n_axis && producer >= 0; a++)
        if (o->at.axes & ~l->t->outer & 1u << a && mate[a] < 0) /* a broadcast of the value */
            producer = -1;
    if (producer < 0 || !(l->t->ins[producer].at.axes & ~l->t->outer)) /* computed once for all */
        return false;
    nl_early *e = &l->early[l->n_early++];
    *e = (nl_early){.producer = producer, .store = store, .at = {.c = o->k.at.c}};
    for (int a = 0; a < l->k->n_axis; a++)
        e->at.k[mate[a] >= 0 ? mate[a] : a] += o->k.at.k[a];
    return true;
}

void nl_choose_early(nl *l)
{
    const nx *t = l->t;
    for (int c = 0; c < t->n_ctx && t->n_reduce > 0; c++) {
        const int before = l->n_early;
        bool all = t->ctx[c].output;
        for (int i = 0; i < t->n_store && all; i++) {
            const nx_place *at = &t->ins[t->store[i]].at;
            all = at->ctx != c || !(at->axes & ~t->outer) || store_early(l, t->store[i]);
        }
        l->n_early = all ? l->n_early : before;
    }
}

void nl_choose_reused(nl *l)
{
    const nx *t = l->t;
    if (t->n_reduce == 0 || !rows_along_memory(t))
        return;
    bool *covered = ARENA_NEW(l->scratch, bool, t->n_ins + 1);
    if (!covered) {
        l->oom = true;
        return;
    }
    for (int32_t i = t->n_ins - 1; i >= 0; i--) {
        const nx_ins *p = &t->ins[i];
        bool wanted = p->part >= 0 && (p->at.axes & ~t->outer) && p->expensive;
        if (covered[i] || (wanted && l->n_reuse < NX_REUSED && is_reused(l, i)))
            for (int j = 0; j < 3; j++)
                if (p->k.arg[j] >= 0)
                    covered[p->k.arg[j]] = true;
    }
}
