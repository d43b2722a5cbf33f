/* kernel/ring.c -- tmp buffers whose rows overlap from one point of an outer axis to the next, so that a ring of rows may be kept. The
 * proof is by forms. Suppose all that the storing stage reads depends on outer axis a and its row axis m as step a + m. Then row m of point
 * a is row m - step of point a + 1. */
#include "kernel/kernel.h"

static nnc_kform product_of(const nnc_kform *x, const nnc_kform *y)
{
    const nnc_kform *by = x;
    nnc_kform f = {.ok = true};
    for (int a = 0; a < NNC_KAXES; a++)
        if (x->e.k[a] != 0)
            by = y;
    for (int a = 0; a < NNC_KAXES; a++)
        f.ok = f.ok && by->e.k[a] == 0;
    const nnc_affine *e = by == x ? &y->e : &x->e;
    f.ok = f.ok && nnc_mul_ok(e->c, by->e.c, &f.e.c);
    for (int a = 0; a < NNC_KAXES && f.ok; a++)
        f.ok = nnc_mul_ok(e->k[a], by->e.c, &f.e.k[a]);
    return f;
}

static nnc_kform sum_of(const nnc_kform *x, const nnc_kform *y)
{
    nnc_kform f = {.ok = nnc_add_ok(x->e.c, y->e.c, &f.e.c)};
    for (int a = 0; a < NNC_KAXES && f.ok; a++)
        f.ok = nnc_add_ok(x->e.k[a], y->e.k[a], &f.e.k[a]);
    return f;
}

nnc_kform *nnc_kernel_forms(const nnc_kernel *k, nnc_arena *a)
{
    nnc_kform *f = ARENA_NEW(a, nnc_kform, k->n_ins + 1);
    for (int i = 0; f && i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->dtype != DT_i64)
            continue;
        f[i].ok = in->op == KO_const || in->op == KO_index;
        if (in->op == KO_const)
            f[i].e.c = in->i;
        if (in->op == KO_index)
            f[i].e.k[in->i] = 1;
        if (in->op != KO_sop || (in->sop != SC_add && in->sop != SC_mul) || !f[in->arg[0]].ok ||
            !f[in->arg[1]].ok)
            continue;
        const nnc_kform *x = &f[in->arg[0]], *y = &f[in->arg[1]];
        f[i] = in->sop == SC_add ? sum_of(x, y) : product_of(x, y);
    }
    return f;
}

/* ---- the storing stage ---------------------------------------------------------------------------------------------- */

/* Does the form depend on the outer axis and the row axis only as step axis + row? Finds the step first. */
static bool advances(nnc_kring *r, const nnc_affine *e)
{
    int64_t a = e->k[r->axis], m = e->k[r->row], want;
    if (m == 0)
        return a == 0;
    if (r->step == 0) {
        if (a % m || a / m < 1)
            return false;
        r->step = a / m;
    }
    return nnc_mul_ok(m, r->step, &want) && a == want;
}

/* Does a value of an earlier stage depend on the axis? */
static bool depends(const nnc_kernel *k, int32_t id, int axis, int depth)
{
    const nnc_kins *in = &k->ins[id];
    if (depth == 0 || in->op == KO_reduce || (in->op == KO_index && in->i == axis))
        return true;
    if (in->op == KO_load && (k->buf[in->buf].role != KB_in || in->at.k[axis] != 0))
        return true;
    for (int g = 0; g < in->n_guard; g++)
        if (in->guard[g].e.k[axis] != 0)
            return true;
    for (int j = 0; j < 3; j++)
        if (in->arg[j] >= 0 && depends(k, in->arg[j], axis, depth - 1))
            return true;
    return false;
}

/* The stage's only store, if it is to the buffer and at every point; otherwise NULL. */
static const nnc_kins *only_store(const nnc_kernel *k, const nnc_kstage *s, int buf)
{
    const nnc_kins *store = NULL;
    for (int i = s->body0; i < s->post1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op != KO_store)
            continue;
        if (store || in->buf != buf || in->n_guard)
            return NULL;
        store = in;
    }
    return store;
}

/* Does the store change rows only along the row axis, by one row per index? */
static bool stores_rows(
    const nnc_kernel *k, const nnc_kstage *s, const nnc_kins *store, const nnc_kring *r)
{
    nnc_affine row, place;
    nnc_ring_split(r, &store->at, &row, &place);
    bool ok = row.k[r->row] == 1;
    row.k[r->row] = 0;
    nnc_span x = nnc_affine_span(k, &place), other = nnc_affine_span(k, &row);
    return ok && x.ok && x.lo >= 0 && x.hi < r->size && other.ok && other.lo == 0 &&
           other.hi == 0 && place.k[r->axis] == 0 && nnc_stage_vec(k, s) != r->row;
}

/* The map axis that counts the buffer's rows in the first stage that stores to it; or -1. */
static int row_axis(const nnc_kernel *k, int buf, const nnc_kring *r)
{
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kins *store = only_store(k, &k->stage[s], buf);
        for (int a = k->n_outer; a < k->n_axis && store; a++)
            if (store->at.k[a] == r->size && (k->stage[s].axes >> a & 1) &&
                k->axis[a].kind == KA_map && k->axis[a].extent == r->rows)
                return a;
    }
    return -1;
}

static bool operand_advances(const nnc_kernel *k, const nnc_kstage *s, const nnc_kform *form,
    nnc_kring *r, const nnc_kins *in, int32_t arg)
{
    enum { DEPTH = 8 };
    if (arg < 0 || (form[in - k->ins].ok && form[arg].ok))
        return true; /* the form of its user is checked instead */
    if (form[arg].ok)
        return advances(r, &form[arg].e);
    return arg >= s->body0 || !depends(k, arg, r->axis, DEPTH);
}

static const char *stage_advances(
    const nnc_kernel *k, const nnc_kstage *s, const nnc_kform *form, nnc_kring *r)
{
    bool ok = true;
    for (int i = s->body0; i < s->post1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_load && k->buf[in->buf].role != KB_in)
            return "a ring's rows are computed from inputs alone";
        ok = ok && (in->op != KO_load || advances(r, &in->at));
        for (int g = 0; g < in->n_guard; g++)
            ok = ok && advances(r, &in->guard[g].e);
        for (int j = 0; j < 3; j++)
            ok = ok && operand_advances(k, s, form, r, in, in->arg[j]);
    }
    return ok ? NULL : "the ring's rows do not advance with its axis";
}

/* ---- the stages that read -------------------------------------------------------------------------------------------- */

void nnc_ring_split(const nnc_kring *r, const nnc_affine *at, nnc_affine *row, nnc_affine *place)
{
    *row = *place = (nnc_affine){0};
    row->c = nnc_floordiv(at->c, r->size);
    place->c = at->c - row->c * r->size;
    for (int a = 0; a < NNC_KAXES; a++)
        if (at->k[a] % r->size == 0)
            row->k[a] = at->k[a] / r->size;
        else
            place->k[a] = at->k[a];
}

/* Does the load read one row of a point, at a place that does not depend on the ring's axis? */
static bool reads_row(
    const nnc_kernel *k, const nnc_kstage *s, const nnc_kins *in, const nnc_kring *r)
{
    nnc_affine row, place;
    nnc_ring_split(r, &in->at, &row, &place);
    nnc_span x = nnc_affine_span(k, &row), y = nnc_affine_span(k, &place);
    int v = nnc_stage_vec(k, s);
    return in->arg[0] < 0 && in->at.k[r->axis] == 0 && x.ok && x.lo >= 0 && x.hi < r->rows &&
           y.ok && y.lo >= 0 && y.hi < r->size && (v < 0 || row.k[v] == 0);
}

/* Checks that stages along the rows store them, and that other, later stages read them. */
static const char *stage_wrong(
    const nnc_kernel *k, int i, const nnc_kform *form, int buf, nnc_kring *r, bool *reads)
{
    const nnc_kstage *s = &k->stage[i];
    if (s->axes >> r->row & 1) {
        const nnc_kins *store = *reads ? NULL : only_store(k, s, buf);
        if (!store || !stores_rows(k, s, store, r))
            return "a stage along the ring's rows does not store them, first, and nothing else";
        return stage_advances(k, s, form, r);
    }
    for (int j = s->body0; j < s->post1; j++) {
        const nnc_kins *in = &k->ins[j];
        if ((in->op != KO_load && in->op != KO_store) || in->buf != buf)
            continue;
        if (in->op == KO_store || !reads_row(k, s, in, r))
            return "an access leaves the ring's rows";
        *reads = true;
    }
    return NULL;
}

const char *nnc_kernel_ring(
    const nnc_kernel *k, const nnc_kform *form, int buf, int axis, int64_t rows, nnc_kring *r)
{
    bool reads = false;
    const char *why = NULL;
    *r = (nnc_kring){.axis = axis, .rows = rows};
    if (buf < 0 || buf >= k->n_buf || k->buf[buf].role != KB_tmp || axis < 0 ||
        axis >= k->n_outer || rows < 2 || k->buf[buf].numel % rows)
        return "a ring needs a tmp buffer of whole rows, and an outer axis";
    r->size = k->buf[buf].numel / rows;
    r->row = row_axis(k, buf, r);
    if (r->row < 0)
        return "no stage stores the ring's rows";
    for (int s = 0; s < k->n_stage && !why; s++)
        why = stage_wrong(k, s, form, buf, r, &reads);
    int64_t way; /* the first row of the last point */
    if (!why && (r->step < 1 || r->step >= r->rows))
        why = "the ring's rows do not overlap";
    if (!why && (!nnc_mul_ok(k->axis[axis].extent, r->step, &way) || way > (int64_t)1 << 55))
        why = "the ring's rows are beyond 2^55";
    return why;
}

bool nnc_kernel_rings(const nnc_kernel *k, nnc_arena *a, nnc_kring **out)
{
    nnc_kring *r = *out = ARENA_NEW(a, nnc_kring, k->n_buf + 1);
    const bool any = nnc_sched_has(&k->sched, KD_ring);
    const nnc_kform *form = any ? nnc_kernel_forms(k, a) : NULL;
    for (int i = 0; r && form && i < k->sched.n; i++) {
        const nnc_kdirective *d = &k->sched.d[i];
        if (d->what == KD_ring)
            (void)nnc_kernel_ring(k, form, d->buf, d->axis, d->n, &r[d->buf]);
    }
    return r && (form || !any);
}
