/* schedule/estimate_interp.c -- the time that the interpreter is expected to take for a kernel (interp/interp.c). Counts instructions, each
 * for a block of lanes along its stage's vector axis, and lanes. Short rows pay an instruction's start for few lanes. cost/prices.def has
 * the prices. */
#include "schedule/schedule.h"

enum { BLOCK = 512, CHUNK = 64 };

/* A section of a stage: its executions for all points, and lanes and blocks of each along the vector axis. */
typedef struct section {
    int64_t n, lanes, blocks;
} section;

static void add_count(int64_t *count, int what, int64_t n, int64_t times)
{
    count[what] = nnc_add_sat(count[what], nnc_mul_sat(n, times));
}

/* Counts an instruction of the section, for all lanes if `wide`, otherwise for one. */
static void count_ins(
    int64_t *count, const nnc_kernel *k, const nnc_kins *in, section s, int vax, bool wide)
{
    const int64_t lanes = nnc_mul_sat(s.n, wide ? s.lanes : s.blocks);
    if (in->op == KO_const)
        return;
    add_count(count, NNC_I_start, s.n, s.blocks);
    if (in->op == KO_sop &&
        (nnc_sops[in->sop].flags & OF_slow || in->sop == SC_rsqrt || in->sop == SC_recip)) {
        const int64_t chunks = wide ? nnc_ceildiv(s.lanes, CHUNK) : s.blocks;
        add_count(count, NNC_I_function, lanes, nnc_sops[in->sop].cost);
        add_count(count, NNC_I_chunk, nnc_mul_sat(s.n, chunks), nnc_sops[in->sop].cost);
    } else {
        add_count(count, NNC_I_op, lanes, 1);
    }
    if (in->op != KO_load && in->op != KO_store)
        return;
    const int64_t stride = vax >= 0 ? in->at.k[vax] : 0;
    if (in->arg[0] >= 0 && in->op == KO_load)
        add_count(count, NNC_I_apart, lanes, 8);
    else if (stride < 0 || stride > 1)
        add_count(count, NNC_I_apart, lanes, 1);
    if (nnc_dtype_size(k->buf[in->buf].dtype) == 2)
        add_count(count, NNC_I_convert, lanes, 1);
}

/* Points of an own axis for each point of the outer ones; rows that a ring keeps are not computed again. */
static int64_t points_along(const nnc_kernel *k, const nnc_kstage *g, const nnc_kring *ring, int a)
{
    for (int i = g->body0; i < g->body1; i++)
        if (k->ins[i].op == KO_store && ring[k->ins[i].buf].rows > 0 &&
            ring[k->ins[i].buf].row == a)
            return ring[k->ins[i].buf].step;
    return k->axis[a].extent;
}

/* Product of the points along the stage's own axes of a kind, without its vector axis v. */
static int64_t all_points(
    const nnc_kernel *k, const nnc_kstage *g, const nnc_kring *ring, nnc_kaxis_kind kind, int v)
{
    int64_t n = 1;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (a != v && g->axes >> a & 1 && k->axis[a].kind == kind)
            n = nnc_mul_sat(n, points_along(k, g, ring, a));
    return n;
}

static void count_stage(int64_t *count, const nnc_kernel *k, const nnc_kstage *g,
    const uint32_t *dep, const nnc_kring *ring, int64_t points)
{
    const int v = nnc_stage_vec(k, g);
    const int64_t lanes = v >= 0 ? k->axis[v].extent : 1, blocks = nnc_ceildiv(lanes, BLOCK);
    const bool folds = v >= 0 && k->axis[v].kind == KA_reduce;
    section post = {nnc_mul_sat(points, all_points(k, g, ring, KA_map, v)), lanes, blocks};
    section body = {nnc_mul_sat(post.n, all_points(k, g, ring, KA_reduce, v)), lanes, blocks};
    nnc_product sum;
    const bool product = nnc_product_find(k, g, v, &sum);
    if (folds)
        post.lanes = post.blocks = 1;
    add_count(count, NNC_I_row, post.n, post.blocks);
    if (product) {
        add_count(count, NNC_I_product, body.n, lanes);
        add_count(count, NNC_I_row, body.n / k->axis[sum.axis].extent, blocks);
    }
    for (int i = g->body0; i < g->body1 && !product; i++)
        count_ins(count, k, &k->ins[i], body, v,
            v >= 0 && (k->ins[i].op == KO_reduce || dep[i] >> v & 1));
    for (int i = g->post0; i < g->post1; i++)
        count_ins(count, k, &k->ins[i], post, v, v >= 0 && !folds && dep[i] >> v & 1);
}

int64_t nnc_interpreted_ps(const nnc_kernel *k, const uint32_t *dep, const nnc_kring *ring)
{
    int64_t count[NNC_I__COUNT] = {0}, points = 1, ps = 0;
    const int v = nnc_sched_vec(&k->sched);
    for (int a = 0; a < k->n_outer; a++)
        points = a == v ? points : nnc_mul_sat(points, k->axis[a].extent);
    for (int s = 0; s < k->n_stage; s++)
        count_stage(count, k, &k->stage[s], dep, ring, points);
    add_count(count, NNC_I_item, k->sched.domain, 1);
    for (int i = 0; i < NNC_I__COUNT; i++)
        ps = nnc_add_sat(ps, nnc_mul_sat(count[i], nnc_interpreted_price[i]));
    return ps;
}
