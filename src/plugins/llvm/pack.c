/* plugins/llvm/pack.c -- epilogues of several results at once. A strip of results that are sums along a row (nnc_product_strips) has each
 * as one number, once the lanes of its sum are added up. Where the epilogue evaluates functions, the results become lanes of a vector
 * again:
 *
 *     store y[64 j] = tanh(sum[j] + b[64 j]), j = 0 .. 3   ->   v = tanh(sums + (b[0], b[64], b[128], b[192])), store y[64 j] = v[j]
 *
 * Trees of instructions that are alike are one tree of vectors, from the stores down to the sums and loads. A number that is the same in
 * all of them stays one number. Operands adjacent in memory are one access, all others are inserted lane by lane. */
#include "plugins/llvm/internal.h"

#include <string.h>

enum {
    LANES = 16, /* results at once */
    MOST_STORES = 64,
    MOST_STEPS = 4096, /* of comparing trees, whose nodes may be shared */
};

typedef struct packed { /* a vector, found by its lane 0 */
    int32_t id[LANES];
    V v;
} packed;

typedef struct packer {
    ll_emit *e;
    const nnc_kstage *st;
    bool *done; /* by instruction: e->val has its value as a number */
    packed *by;
    int n, live; /* lanes; of them the first, the rest repeat the last one */
    int steps;
} packer;

/* ---- which results --------------------------------------------------------------------------------------------------- */

static int operands(const nnc_kins *in)
{
    return in->op == KO_const || in->op == KO_index ? 0
           : in->op == KO_sop                       ? nnc_sops[in->sop].arity
                                                    : 3;
}

/* Does value i of the posts evaluate a function? */
static bool has_function(packer *p, int32_t i)
{
    const nnc_kins *in = &p->e->k->ins[i];
    if (i < p->st->post0 || p->steps++ > MOST_STEPS)
        return false;
    if (in->op == KO_sop && nnc_is_float((nnc_dtype)in->dtype) && nnc_sops[in->sop].flags & OF_slow)
        return true;
    for (int a = 0; a < operands(in); a++)
        if (in->arg[a] >= 0 && has_function(p, in->arg[a]))
            return true;
    return false;
}

/* Are the instructions that compute values i and j alike, down to sums, loads and constants? Functions have a form for the range of their
 * operand. */
static bool alike(packer *p, int32_t i, int32_t j)
{
    const nnc_kins *a = &p->e->k->ins[i], *b = &p->e->k->ins[j];
    if (i == j)
        return true;
    if (a->op != b->op || a->dtype != b->dtype || a->lo != b->lo || a->hi != b->hi ||
        p->steps++ > MOST_STEPS)
        return false;
    if (a->op != KO_sop || i < p->st->post0)
        return true;
    bool same = a->sop == b->sop && a->hint == b->hint && a->cast_to == b->cast_to;
    for (int k = 0; k < operands(a) && same; k++)
        same = alike(p, a->arg[k], b->arg[k]);
    return same;
}

/* Do instructions id[] access n neighbouring elements, in order? */
static bool side_by_side(const packer *p, const int32_t *id, int n)
{
    const nnc_kernel *k = p->e->k;
    const nnc_kins *a = &k->ins[id[0]];
    for (int j = 0; j < n; j++) {
        const nnc_kins *b = &k->ins[id[j]];
        if (b->buf != a->buf || b->n_guard || nnc_kins_index(b) >= 0 || b->at.c != a->at.c + j ||
            memcmp(b->at.k, a->at.k, sizeof a->at.k) != 0)
            return false;
    }
    return p->e->ring[a->buf].rows == 0;
}

/* May the stage's results be computed in another order? Its posts are emitted once for a point, and read nothing that they store. */
static bool may_pack(const ll_emit *e, const nnc_kstage *st)
{
    const nnc_kernel *k = e->k;
    if (!e->vec_red || e->mask || e->phase != LL_WHOLE || e->stream || k->n_stage > 1)
        return false;
    for (int i = st->post0; i < st->post1; i++)
        for (int j = st->post0; j < st->post1 && k->ins[i].op == KO_load; j++)
            if (k->ins[j].op == KO_store && k->ins[j].buf == k->ins[i].buf)
                return false;
    return true;
}

/* ---- values ---------------------------------------------------------------------------------------------------------- */

static int reduction(const ll_emit *e, int32_t i)
{
    int r = 0;
    while (r < e->n_red && e->red[r] != i)
        r++;
    return r;
}

/* Emits value i as a number. */
static V scalar_of(packer *p, int32_t i)
{
    ll_emit *e = p->e;
    const nnc_kins *in = &e->k->ins[i];
    const bool own = i >= p->st->post0 || in->op == KO_reduce;
    if (!own || p->done[i])
        return e->val[i];
    p->done[i] = true;
    if (in->op == KO_reduce)
        return e->val[i] = ll_red_done(e, reduction(e, i), e->vec_red);
    for (int a = 0; a < operands(in); a++)
        if (in->arg[a] >= 0)
            (void)scalar_of(p, in->arg[a]);
    ll_ins(e, i);
    return e->val[i];
}

static V lanes_of(packer *p, const int32_t *id);

/* The results of reductions; NULL: one by one. */
static V sums(packer *p, const int32_t *id)
{
    int r[LANES];
    for (int j = 0; j < p->n; j++) {
        r[j] = reduction(p->e, id[j]);
        if (r[j] == p->e->n_red || p->done[id[j]])
            return NULL;
    }
    return ll_red_together(p->e, r, p->n);
}

static V row(packer *p, const int32_t *id)
{
    ll_emit *e = p->e;
    const nnc_kins *in = &e->k->ins[id[0]];
    const int lanes = e->lanes;
    if (!side_by_side(p, id, p->live))
        return NULL;
    e->lanes = p->n;
    V v = ll_load_row(e, in, p->live);
    e->lanes = lanes;
    return ll_from_memory(e->m, v, e->k->buf[in->buf].dtype);
}

static V operation(packer *p, const int32_t *id)
{
    const nnc_kernel *k = p->e->k;
    const nnc_kins *in = &k->ins[id[0]];
    V arg[3] = {0};
    for (int a = 0; a < operands(in); a++) {
        int32_t from[LANES] = {0};
        for (int j = 0; j < p->n; j++)
            from[j] = k->ins[id[j]].arg[a];
        arg[a] = lanes_of(p, from);
    }
    return ll_sop(p->e->m, k, in, arg);
}

static V inserted(packer *p, const int32_t *id)
{
    ll_mod *m = p->e->m;
    V v = NULL;
    for (int j = 0; j < p->n; j++) {
        V x = scalar_of(p, id[j]);
        v = v ? v : LLVMGetPoison(ll_vec(LLVMTypeOf(x), p->n));
        v = LLVMBuildInsertElement(m->b, v, x, LLVMConstInt(m->i32, (unsigned)j, 0), "");
    }
    return v;
}

/* Values id[] as lanes of a vector, or one number that all of them are. */
static V lanes_of(packer *p, const int32_t *id)
{
    packed *q = &p->by[id[0]];
    const size_t bytes = sizeof *id * (size_t)p->n;
    const nnc_kins *in = &p->e->k->ins[id[0]];
    bool same = true;
    for (int j = 0; j < p->n; j++)
        same = same && id[j] == id[0];
    if (same)
        return scalar_of(p, id[0]);
    if (q->v && ll_lanes(q->v) == p->n && !memcmp(q->id, id, bytes))
        return q->v;
    V v = in->op == KO_reduce                         ? sums(p, id)
          : in->op == KO_load                         ? row(p, id)
          : in->op == KO_sop && id[0] >= p->st->post0 ? operation(p, id)
                                                      : NULL;
    q->v = v ? v : inserted(p, id);
    memcpy(q->id, id, bytes);
    return q->v;
}

/* ---- results --------------------------------------------------------------------------------------------------------- */

/* Emits the first p->live of these stores. */
static void put(packer *p, const int32_t *store)
{
    ll_emit *e = p->e;
    int32_t id[LANES] = {0};
    for (int j = 0; j < p->n; j++)
        id[j] = e->k->ins[store[nnc_min64(j, p->live - 1)]].arg[0];
    V v = ll_splat(e->m, lanes_of(p, id), p->n);
    if (side_by_side(p, store, p->live)) {
        ll_store_lanes(e, &e->k->ins[store[0]], v, p->live);
        return;
    }
    for (int j = 0; j < p->live; j++) {
        const nnc_kins *in = &e->k->ins[store[j]];
        V number_was = e->val[in->arg[0]];
        if (in->arg[1] >= 0)
            (void)scalar_of(p, in->arg[1]);
        e->val[in->arg[0]] = ll_part(e->m, v, j, 1);
        ll_ins(e, store[j]);
        e->val[in->arg[0]] = number_was;
    }
}

/* The stores alike the first one, in the order of their addresses, the lowest first. Returns their number. */
static int find_alike(packer *p, int32_t first, int32_t *store)
{
    const nnc_kins *ins = p->e->k->ins;
    int n = 0;
    for (int32_t i = first; i < p->st->post1 && n < MOST_STORES; i++) {
        p->steps = 0;
        if (ins[i].op != KO_store || p->done[i] || ins[i].buf != ins[first].buf ||
            !alike(p, ins[first].arg[0], ins[i].arg[0]))
            continue;
        int at = n++;
        for (; at > 0 && ins[store[at - 1]].at.c > ins[i].at.c; at--)
            store[at] = store[at - 1];
        store[at] = i;
    }
    return n;
}

/* Emits store `first`, with others that are alike if it evaluates functions: a run of neighbours, or any. */
static void pack(packer *p, int32_t first)
{
    int32_t store[MOST_STORES] = {0};
    p->steps = 0;
    const bool function = has_function(p, p->e->k->ins[first].arg[0]);
    const int n = function ? find_alike(p, first, store) : 0,
              most = (int)nnc_min64(nnc_min64(n, LANES), p->e->m->t->vector_bits / 32);
    int run = 1;
    while (run < most && side_by_side(p, store, run + 1))
        run++;
    if (most < 2) {
        (void)scalar_of(p, first);
        return;
    }
    p->live = run > 1 ? run : most;
    p->n = ll_pow2_up(p->live);
    put(p, store);
    for (int j = 0; j < p->live; j++)
        p->done[store[j]] = true;
}

bool ll_pack_posts(ll_emit *e, const nnc_kstage *st)
{
    const nnc_kernel *k = e->k;
    packer p = {.e = e, .st = st};
    int functions = 0;
    if (!may_pack(e, st))
        return false;
    for (int32_t i = st->post0; i < st->post1; i++) {
        p.steps = 0;
        functions += k->ins[i].op == KO_store && has_function(&p, k->ins[i].arg[0]);
    }
    if (functions < 2)
        return false;
    p.done = nnc_calloc((size_t)k->n_ins + 1, sizeof *p.done);
    p.by = nnc_calloc((size_t)k->n_ins + 1, sizeof *p.by);
    e->oom |= !p.done || !p.by;
    for (int32_t i = st->post0; i < st->post1 && !e->oom; i++)
        while (k->ins[i].op == KO_store && !p.done[i])
            pack(&p, i);
    nnc_free(p.done);
    nnc_free(p.by);
    return true;
}
