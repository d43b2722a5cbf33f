/* kernel/reuse.c -- values that several stages of a point need (softmax: the exponentials that were summed). Cheap ones are
 * recomputed; expensive ones are stored in a tmp buffer of the worker, if a row of them fits the nearest caches and rows are
 * contiguous (a kernel over columns recomputes, since its buffer would need an element for every lane). */
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

/* True when consumer p and producer q compute the same element of their value where p's own axes (those in `axes`) have the values of q's
 * mates. Fills mate[axis of p] = axis of q. */
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

/* True when every axis of the producer's context is a mate: an element of the buffer for each of the value. */
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

/* The first stage that computes what instruction `consumer` does stores it. */
static bool find_producer(nl *l, int32_t consumer)
{
    const nx *t = l->t;
    const nx_ins *p = &t->ins[consumer];
    int first = nl_stage_of(l, p->at.ctx), mate[NNC_KAXES];
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
            memcpy(mate, with, sizeof mate);
            producer = i;
            first = stage;
        }
    }
    return producer >= 0 && reuse(l, consumer, producer, mate);
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
        if (covered[i] || (wanted && l->n_reuse < NX_REUSED && find_producer(l, i)))
            for (int j = 0; j < 3; j++)
                if (p->k.arg[j] >= 0)
                    covered[p->k.arg[j]] = true;
    }
}
