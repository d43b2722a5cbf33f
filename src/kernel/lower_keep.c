/* kernel/lower_keep.c -- values that an earlier stage of the row has computed already
 * (softmax: the exponentials that were summed). Cheap ones are computed again; expensive ones
 * are kept in a per-worker buffer, if a row of them stays in the nearest caches and rows run
 * along memory (a kernel over columns recomputes: its buffer would need a place for every
 * lane). */
#include "kernel/lower.h"
#include <assert.h>

enum { KEEP_BYTES = 256 << 10 };

/* Do rows lie along memory: is the unit-stride axis of the largest result inside the row? */
static bool rows_along_memory(const lw *l)
{
    const nnc_nest_store *best = NULL;
    for (int i = 0; i < l->nest->n_store; i++) {
        const nnc_nest_store *o = &l->nest->store[i];
        if (!best ||
            nnc_type_numel(nnc_typeof(l->g, o->v)) > nnc_type_numel(nnc_typeof(l->g, best->v)))
            best = o;
    }
    assert(best); /* a nest stores something */
    int j = 0;
    while (l->result[j] != best->v)
        j++;
    nnc_affine at = lw_offset(&l->result_type[j], best->idx, l->result_type[j].rank);
    for (int a = 0; a < l->nest->n_axis; a++)
        if (at.k[a] == 1)
            return l->nest->axis[a].kind == NX_map;
    return false;
}

/* Is q's map p's with reduce axes in place of map axes? Fills mate[map axis] = reduce axis. */
static bool mirrors(
    const nnc_nest *s, const nnc_nest_map *p, const nnc_nest_map *q, int rank, int mate[])
{
    for (int d = 0; d < rank; d++) {
        if (p[d].c != q[d].c)
            return false;
        for (int a = 0; a < s->n_axis; a++) {
            if (s->axis[a].kind == NX_outer && p[d].k[a] != q[d].k[a])
                return false;
            if (s->axis[a].kind != NX_map || p[d].k[a] == 0)
                continue;
            int b = mate[a];
            for (int c = 0; b < 0 && c < s->n_axis; c++)
                if (s->axis[c].kind == NX_reduce && s->axis[c].extent == s->axis[a].extent &&
                    q[d].k[c] == p[d].k[a])
                    b = c;
            if (b < 0 || q[d].k[b] != p[d].k[a])
                return false;
            mate[a] = b;
        }
    }
    return true;
}

/* Every axis of the producer's context has exactly one mate. */
static bool covers(const nnc_nest *s, uint32_t axes, const int mate[])
{
    uint32_t seen = 0;
    for (int a = 0; a < s->n_axis; a++)
        if (mate[a] >= 0) {
            if (seen >> mate[a] & 1)
                return false;
            seen |= 1u << mate[a];
        }
    return seen == axes;
}

static bool keep(lw *l, int32_t consumer, int32_t producer, const int mate[])
{
    const nnc_nest *s = l->nest;
    lw_keep *k = &l->keep[l->n_keep];
    nnc_dtype d = nnc_kdtype((nnc_dtype)nnc_typeof(l->g, s->point[consumer].v)->dtype);
    int64_t numel = 1;
    *k = (lw_keep){.consumer = consumer, .producer = producer, .buf = l->k->n_buf};
    for (int b = s->n_axis - 1; b >= 0; b--) {
        if (!(s->ctx[s->point[producer].ctx].axes >> b & 1))
            continue;
        k->store_at.k[b] = numel;
        for (int a = 0; a < s->n_axis; a++)
            if (mate[a] == b)
                k->at.k[a] = numel;
        numel *= s->axis[b].extent;
    }
    if (numel * nnc_dtype_size(d) > KEEP_BYTES)
        return false;
    l->k->buf[l->k->n_buf++] = (nnc_kbuf){.role = KB_tmp, .dtype = d, .numel = numel};
    l->n_keep++;
    return true;
}

static bool find_producer(lw *l, int32_t consumer)
{
    const nnc_nest *s = l->nest;
    const nnc_nest_point *p = &s->point[consumer];
    for (int32_t i = 0; i < s->n_point; i++) {
        const nnc_nest_point *q = &s->point[i];
        int mate[NNC_NEST_AXES];
        if (q->v != p->v || q->what != p->what || s->ctx[q->ctx].output || q->guard >= 0)
            continue;
        for (int a = 0; a < NNC_NEST_AXES; a++)
            mate[a] = -1;
        if (mirrors(s, p->idx, q->idx, nnc_typeof(l->g, p->v)->rank, mate) &&
            covers(s, s->ctx[q->ctx].axes, mate))
            return keep(l, consumer, i, mate);
    }
    return false;
}

void lw_choose_kept(lw *l)
{
    const nnc_nest *s = l->nest;
    if (s->n_reduce == 0 || !rows_along_memory(l))
        return;
    bool *covered = ARENA_NEW(&l->scratch, bool, s->n_point + 1);
    if (!covered) {
        l->oom = true;
        return;
    }
    for (int32_t i = s->n_point - 1; i >= 0; i--) {
        const nnc_nest_point *p = &s->point[i];
        if (covered[i]) {
            for (int j = 0; j < p->n_arg; j++)
                covered[s->arg[p->arg + j]] = true;
            continue;
        }
        if (p->what != NP_ewise || !s->ctx[p->ctx].output || !(p->axes & ~s->outer) ||
            p->guard >= 0)
            continue;
        if (l->n_keep < 8 && nnc_op_is_expensive((nnc_op)nnc_def(l->g, p->v)->op) &&
            find_producer(l, i))
            for (int j = 0; j < p->n_arg; j++)
                covered[s->arg[p->arg + j]] = true;
    }
}
