/* schedule/cuda_scatter.c -- scattering on a GPU: y = x, then in order y[place(n)] = f(y[place(n)], u[n]). Rows of y, which the places
 * count, are divided over blocks: each copies its own rows, and then goes through all updates and performs those of its rows, so that
 * their order is kept and nothing is atomic. Places that are the same for all points of a block are looked for by its threads together. */
#include "schedule/schedule.h"

enum {
    SCATTER_THREADS = 256,
    ALONE =
        8, /* threads go through the places alone: a point for so many that the machine may have */
};

/* The first stage: y = x, or y = a constant, along at most one own axis. */
static bool copies(const nnc_kernel *k, cu_scatter *s)
{
    const nnc_kstage *g = &k->stage[0];
    s->rows = 1;
    for (int a = k->n_outer; a < k->n_axis; a++) {
        if (!(g->axes >> a & 1) || k->axis[a].extent == 1)
            continue;
        if (k->axis[a].kind != KA_map || k->axis[a].seq || s->rows > 1)
            return false;
        s->axis = a;
        s->rows = k->axis[a].extent;
    }
    if (g->body1 - g->body0 != 2 || g->post0 != g->post1 || s->rows < 2)
        return false;
    const nnc_kins *from = &k->ins[g->body0], *to = from + 1;
    s->copied = g->body0 + 1;
    s->unit = to->at.k[s->axis];
    return to->op == KO_store && to->arg[0] == g->body0 && to->arg[1] < 0 && to->n_guard == 0 &&
           s->unit > 0 &&
           (from->op == KO_const ||
               (from->op == KO_load && from->arg[0] < 0 && from->n_guard == 0 &&
                   k->buf[from->buf].dtype == k->buf[to->buf].dtype));
}

/* Do both accesses have the outer axes and the constant alike, and no own axis but that of the rows? */
static bool alike(const nnc_kernel *k, const cu_scatter *s, const nnc_kins *in)
{
    const nnc_affine *to = &k->ins[s->copied].at;
    bool same = in->at.c == to->c;
    for (int a = 0; a < k->n_axis; a++)
        same &= in->at.k[a] == (a < k->n_outer ? to->k[a] : 0) || k->axis[a].extent == 1;
    return same;
}

bool cu_scatter_of(const nnc_kernel *k, cu_scatter *s)
{
    *s = (cu_scatter){.axis = -1, .store = -1, .shared = true};
    if (k->n_stage != 2 || nnc_kernel_scratch(k) > 0 || !copies(k, s))
        return false;
    const nnc_kstage *g = &k->stage[1];
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (g->axes >> a & 1 && (!k->axis[a].seq || k->axis[a].kind != KA_map))
            return false;
    const int y = k->ins[s->copied].buf;
    for (int32_t i = g->body0; i < g->body1; i++)
        if (k->ins[i].op == KO_store) {
            if (s->store >= 0)
                return false;
            s->store = i;
        }
    const nnc_kins *to = s->store >= 0 ? &k->ins[s->store] : NULL;
    if (!to || g->post0 != g->post1 || to->arg[1] < 0 || to->buf != y || !alike(k, s, to) ||
        to->scale < 1 || (to->limit - 1) * to->scale >= s->rows * s->unit)
        return false;
    nnc_kernel_cone(k, to->arg[1], &s->cone);
    for (int32_t i = g->body0; i < g->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        const bool old = in->op == KO_load && in->buf == y;
        if (old && (in->arg[0] != to->arg[1] || in->scale != to->scale || in->limit != to->limit ||
                       in->n_guard > 0 || !alike(k, s, in) || nnc_kset_has(&s->cone, i)))
            return false;
        if (nnc_kset_has(&s->cone, i) && nnc_kins_axes(in) & ((1u << k->n_outer) - 1))
            s->shared = false;
    }
    s->updates = nnc_kernel_points(k, g->axes);
    return s->updates <= INT32_MAX / 2;
}

/* Rows of y that a block has, of a part. */
int64_t cu_scatter_rows(const cu_scatter *s, const nnc_kgrid *g)
{
    return nnc_ceildiv(s->rows, g->split);
}

bool cu_scatter_derive(const nnc_kernel *k, nnc_kgrid *g)
{
    cu_scatter s;
    if (g->vec != 1 || g->flight != 1 || g->group != 1 || g->keep || g->spill ||
        !cu_scatter_of(k, &s) || nnc_ceildiv(s.rows, cu_scatter_rows(&s, g)) != g->split)
        return false;
    g->blocks = nnc_ceildiv(cu_points(k, -1, 1), g->threads);
    g->index = cu_narrow(k, cu_points(k, -1, 1)) ? 32 : 64;
    return g->blocks >= 1 && nnc_mul_ok(g->blocks, g->split, &g->blocks);
}

bool cu_scatter_choose(nnc_kernel *k, const nnc_target *t)
{
    nnc_kgrid *g = &k->grid;
    cu_scatter s;
    if (!cu_scatter_of(k, &s))
        return false;
    const int64_t points = cu_points(k, -1, 1), resident = nnc_cuda_resident(t);
    g->cls = KC_scatter;
    g->axis = (int16_t)nnc_cuda_fast_axis(k);
    g->threads = SCATTER_THREADS;
    while (g->threads > 32 && points <= g->threads / 2)
        g->threads /= 2;
    const int64_t blocks = nnc_ceildiv(points, g->threads);
    int64_t parts = s.shared ? resident / g->threads / blocks : resident / ALONE / points;
    parts = nnc_min64(nnc_min64(nnc_max64(parts, 1), s.rows), 4096);
    g->split = (int16_t)nnc_ceildiv(s.rows, nnc_ceildiv(s.rows, parts));
    return nnc_cuda_derive(k, g);
}
