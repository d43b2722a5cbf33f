/* schedule/cuda_scatter.c -- scattering on a GPU: y = x, then in order y[place(n)] = f(y[place(n)], u[n]). The rows of y are divided over
 * blocks. Each block copies its rows, then goes through all updates and performs those of its rows: their order is kept and nothing is
 * atomic. A block's threads search together for places that are the same for all its points.
 *
 * With few rows, most updates are for other blocks, and each block has many. Where updates are added (multiplied, maximised), each row's
 * are then a reduction over all of them with a mask, scheduled like other reductions. Its order is fixed, but differs from that of the
 * updates: a sum of n floats differs as that of reduce_sum does. */
#include "schedule/schedule.h"

enum {
    SCATTER_THREADS = 256,
    ALONE =
        8, /* if each thread goes through all places, one in ALONE of the machine's threads is used */
    FEW = 8, /* most rows that each read all updates */
    MANY = 32, /* updates of a row */
    EXTRA = 24, /* instructions of a reduction besides those of an update */
};

/* Is the first stage y = x or y = constant, along at most one own axis? */
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

/* Do both accesses have equal outer axes and constants, and no own axis except the rows'? */
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

/* Rows of y per block. */
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

/* ---- few rows ---- */

typedef struct writer {
    const nnc_kernel *from;
    nnc_kins *ins;
    int32_t n, *map; /* by instruction of `from`: its copy */
} writer;

static int32_t put(writer *w, nnc_kins in)
{
    in.lo = 1; /* no range computed */
    in.hi = 0;
    w->ins[w->n] = in;
    return w->n++;
}

static int32_t put_int(writer *w, int64_t v)
{
    return put(
        w, (nnc_kins){.op = KO_const, .dtype = DT_i64, .i = v, .buf = -1, .arg = {-1, -1, -1}});
}

static int32_t put_sop(writer *w, nnc_sop op, nnc_dtype d, int32_t a, int32_t b)
{
    return put(w, (nnc_kins){.op = KO_sop,
                      .dtype = (uint8_t)d,
                      .sop = (uint8_t)op,
                      .cast_to = op == SC_cast ? (uint8_t)d : 0,
                      .buf = -1,
                      .arg = {a, b, -1}});
}

static void copy_ins(writer *w, int32_t id)
{
    nnc_kins in = w->from->ins[id];
    for (int j = 0; j < 3; j++)
        in.arg[j] = in.arg[j] >= 0 ? w->map[in.arg[j]] : -1;
    w->ins[w->n] = in;
    w->map[id] = w->n++;
}

/* Adds a reduction over the updates whose place is the row. */
static int32_t put_sum(writer *w, const cu_scatter *s, const nnc_kins *update, nnc_kred how)
{
    const nnc_kins *to = &w->from->ins[s->store];
    int32_t i = w->map[to->arg[1]];
    if (w->ins[i].dtype != DT_i64)
        i = put_sop(w, SC_cast, DT_i64, i, -1);
    i = put_sop(w, SC_min, DT_i64, i, put_int(w, to->limit - 1));
    i = put_sop(w, SC_max, DT_i64, i, put_int(w, 0));
    i = put_sop(w, SC_mul, DT_i64, i, put_int(w, to->scale));
    int32_t row = put(w,
        (nnc_kins){.op = KO_index, .dtype = DT_i64, .i = s->axis, .buf = -1, .arg = {-1, -1, -1}});
    row = put_sop(w, SC_mul, DT_i64, row, put_int(w, s->unit));
    const int32_t mine = put_sop(w, SC_eq, DT_bool, i, row), u = w->map[update->arg[1]];
    return put(w, (nnc_kins){.op = KO_reduce,
                      .dtype = w->ins[u].dtype,
                      .sop = (uint8_t)how,
                      .buf = -1,
                      .arg = {u, mine, -1}});
}

/* The reduction that computes the same as the updates; -1: none. */
static int as_reduction(const nnc_kernel *k, const cu_scatter *s)
{
    const nnc_kins *to = &k->ins[s->store], *f = &k->ins[to->arg[0]];
    if (f->op != KO_sop || to->n_guard > 0 || k->ins[to->arg[1]].dtype == DT_u64 ||
        f->dtype == DT_bool)
        return -1;
    const nnc_kins *old = &k->ins[f->arg[0]];
    if (old->op != KO_load || old->buf != to->buf)
        return -1;
    return f->sop == SC_add   ? KR_sum
           : f->sop == SC_mul ? KR_prod
           : f->sop == SC_min ? KR_min
           : f->sop == SC_max ? KR_max
                              : -1;
}

bool cu_scatter_sums(nnc_kernel *k, nnc_arena *a)
{
    cu_scatter s;
    if (!cu_scatter_of(k, &s) || s.rows > FEW || s.updates < MANY * s.rows ||
        s.axis != k->n_outer || k->stage[0].axes != 1u << s.axis)
        return true;
    const int how = as_reduction(k, &s);
    const nnc_kins *to = &k->ins[s.store];
    const int32_t update = to->arg[0], old = how < 0 ? -1 : k->ins[update].arg[0];
    if (how < 0)
        return true;
    writer w = {.from = k,
        .ins = ARENA_NEW(a, nnc_kins, k->n_ins + EXTRA),
        .map = ARENA_NEW(a, int32_t, k->n_ins + 1)};
    nnc_kstage *g = ARENA_NEW(a, nnc_kstage, 1);
    if (!w.ins || !w.map || !g)
        return false;
    for (int32_t id = k->stage[1].body0; id < k->stage[1].body1; id++)
        if (id != old && id != update && id != s.store)
            copy_ins(&w, id);
    const int32_t sum = put_sum(&w, &s, &k->ins[update], (nnc_kred)how);
    *g = (nnc_kstage){.axes = k->stage[1].axes, .body1 = w.n, .post0 = w.n};
    copy_ins(&w, k->stage[0].body0);
    nnc_kins f = k->ins[update], y = k->ins[s.copied];
    f.arg[0] = w.map[k->stage[0].body0];
    f.arg[1] = sum;
    y.arg[0] = put(&w, f);
    g->post1 = put(&w, y) + 1;
    for (int b = k->n_outer + 1; b < k->n_axis; b++) {
        k->axis[b].kind = KA_reduce;
        k->axis[b].seq = false;
    }
    k->axis[k->n_outer++].kind = KA_outer;
    k->n_stage = 1;
    k->stage = g;
    k->n_ins = w.n;
    k->ins = w.ins;
    return true;
}
