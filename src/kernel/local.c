/* kernel/local.c -- windows over computed values. Where windows overlap, an elementwise producer inside the kernel would be computed once
 * for each window that reads it. Instead a stage of its own computes it into a tmp buffer, over all axes within a row, for the windows.
 *
 *     for i, j                                            for i
 *       y[i, j] = max r, q: f(x[i + r, j + q])     ->       t[m, n] = f(x[i + m, n])                       for m < R, all n
 *                                                          y[i, j] = max r, q: t[r, j + q]                for all j.
 *
 * Rows overlap from one i to the next, so that a schedule may keep them in a ring. Where windows reach over the operand's edge, separate
 * stages compute the places beyond it: the stage between needs no edge conditions along a row. */
#include "kernel/kernel.h"

enum {
    SMALL_BUFFER = 4096, /* elements; a ring gains nothing where all rows fit the nearest cache */
    MANY_POINTS = 8,
    SEGMENTS = 3, /* before the edge, between the edges, after */
};

typedef enum section { FILL, BODY, POST } section;

typedef struct local {
    const nnc_kernel *from;
    nnc_kernel k; /* the new kernel */
    nnc_arena *a;
    nnc_kform *form; /* of from's instructions */
    int stage; /* of from: the windows */
    int32_t x; /* instruction of `from`: the stored value */
    bool *cone; /* instructions of `from` that x is computed from */
    int inner; /* from this outer axis of `from` on, axes become map axes */
    int with
        [NNC_KAXES]; /* by reduce axis: the outer axis that advances with it; by outer axis: the reduce axis; or -1 */
    int64_t step[NNC_KAXES]; /* by reduce axis: its steps for one of the outer axis */
    int fill[NNC_KAXES],
        own[NNC_KAXES]; /* by axis: the storing stage's, the windows' axis of k, or -1 */
    int dim[NNC_KAXES], n_dim; /* axes along which values are stored, rows first */
    int64_t stride[NNC_KAXES]; /* of these axes: in the buffer */
    int split; /* the one of them that is divided at the edges, or -1 */
    int64_t from_at[SEGMENTS + 1]; /* first place of each segment, and the end */
    int piece[SEGMENTS]; /* its axis of k; -1: none */
    int segment; /* the current one */
    int32_t *copy[3]; /* by section and instruction of from */
    int32_t most; /* instructions of k */
    bool oom, full;
} local;

/* ---- what is there -------------------------------------------------------------------------------------------------- */

/* Finds the only stage with axes, which is the last and has only reduce axes. Also its only reduction, and the kernel's only store, in its
 * post. */
static bool find_stage(local *l, int32_t *reduce)
{
    const nnc_kernel *k = l->from;
    int stores = 0;
    *reduce = -1;
    l->stage = k->n_stage - 1;
    for (int s = 0; s < k->n_stage; s++)
        if ((k->stage[s].axes != 0) != (s == l->stage))
            return false;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (k->axis[a].kind != KA_reduce || !(k->stage[l->stage].axes >> a & 1))
            return false;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_store && (in->n_guard || i < k->stage[l->stage].post0))
            return false;
        stores += in->op == KO_store;
        if (in->op == KO_reduce && (*reduce >= 0 || in->sop > KR_min || in->arg[1] >= 0))
            return false;
        if (in->op == KO_reduce)
            *reduce = i;
    }
    return *reduce >= 0 && stores == 1;
}

static void mark_cone(local *l, int32_t id)
{
    if (id < 0 || l->cone[id])
        return;
    l->cone[id] = true;
    for (int j = 0; j < 3; j++)
        mark_cone(l, l->from->ins[id].arg[j]);
}

/* Finds the value that windows read; in a sum of products the first factor. False: it is a load, or does not depend on the windows. */
static bool find_value(local *l, int32_t reduce)
{
    const nnc_kernel *k = l->from;
    l->x = k->ins[reduce].arg[0];
    const nnc_kins *x = &k->ins[l->x];
    if (x->op == KO_sop && x->sop == SC_fma && nnc_kins_is_zero(k, x->arg[2]))
        l->x = x->arg[0];
    mark_cone(l, l->x);
    bool load = false;
    for (int i = 0; i < k->n_ins; i++)
        load |= l->cone[i] && k->ins[i].op == KO_load && k->ins[i].arg[0] < 0;
    return load && k->ins[l->x].op == KO_sop && !l->form[l->x].ok && k->ins[l->x].dtype != DT_bool;
}

/* ---- axes ----------------------------------------------------------------------------------------------------------- */

/* Calls each(l, form, r, a) for every form on which the value depends, until it returns false. */
typedef bool (*form_rule)(const local *l, const nnc_affine *e, int r, int a);

static bool all_forms(const local *l, form_rule rule, int r, int a)
{
    const nnc_kernel *k = l->from;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (!l->cone[i])
            continue;
        if (in->op == KO_load && !rule(l, &in->at, r, a))
            return false;
        for (int g = 0; g < in->n_guard; g++)
            if (!rule(l, &in->guard[g].e, r, a))
                return false;
        for (int j = 0; j < 3 && !l->form[i].ok; j++)
            if (in->arg[j] >= 0 && l->form[in->arg[j]].ok && !rule(l, &l->form[in->arg[j]].e, r, a))
                return false;
    }
    return true;
}

static bool without(const local *l, const nnc_affine *e, int r, int a)
{
    (void)l;
    (void)a;
    return e->k[r] == 0;
}

static bool together(const local *l, const nnc_affine *e, int r, int a)
{
    int64_t want;
    return nnc_mul_ok(e->k[r], l->step[r], &want) && e->k[a] == want;
}

/* The step of reduce axis r for one of outer axis a in the first form with both; 0: none. */
static int64_t first_step(const local *l, int r, int a)
{
    for (int i = 0; i < l->from->n_ins; i++) {
        const nnc_affine *e = &l->from->ins[i].at;
        if (l->cone[i] && l->from->ins[i].op == KO_load && e->k[r] != 0 && e->k[a] % e->k[r] == 0)
            return nnc_max64(e->k[a] / e->k[r], 0);
    }
    return 0;
}

/* Pairs each reduce axis with the outer axis that moves the same forms with the least step. True: some windows overlap. */
static bool pair_axes(local *l)
{
    const nnc_kernel *k = l->from;
    bool overlap = false;
    for (int a = 0; a < NNC_KAXES; a++)
        l->with[a] = -1;
    for (int r = k->n_outer; r < k->n_axis; r++) {
        int64_t best = 0;
        for (int a = 0; a < k->n_outer; a++) {
            l->step[r] = first_step(l, r, a);
            if (l->step[r] < 1 || (best && l->step[r] >= best) || l->with[a] >= 0 ||
                !all_forms(l, together, r, a))
                continue;
            best = l->step[r];
            l->with[r] = a;
        }
        l->step[r] = best;
        if (best)
            l->with[l->with[r]] = r;
        overlap |= best && best < k->axis[r].extent;
    }
    return overlap;
}

/* Extent that windows along reduce axis r read, over all points of its outer axis. */
static int64_t reach(const local *l, int r)
{
    const nnc_kaxis *x = l->from->axis;
    return l->with[r] < 0 ? x[r].extent : (x[l->with[r]].extent - 1) * l->step[r] + x[r].extent;
}

static int add_axis(local *l, nnc_kaxis_kind kind, int64_t extent)
{
    if (l->k.n_axis < NNC_KAXES)
        l->k.axis[l->k.n_axis] = (nnc_kaxis){.kind = kind, .extent = extent};
    return l->k.n_axis++;
}

/* The first outer axis whose places are stored. It is that of the rows where a buffer for all of them is small and other axes keep threads
 * busy, otherwise the next. */
static int first_inner(const local *l)
{
    const nnc_kernel *k = l->from;
    int rows = 0;
    int64_t all = 1, points = 1;
    for (; l->with[rows] < 0; rows++)
        points = nnc_mul_sat(points, k->axis[rows].extent);
    for (int a = rows; a < k->n_outer; a++)
        all = nnc_mul_sat(all, l->with[a] < 0 ? k->axis[a].extent : reach(l, l->with[a]));
    bool last = rows == k->n_outer - 1;
    return last || (points >= MANY_POINTS && all <= SMALL_BUFFER) ? rows : rows + 1;
}

/* Converts a condition lo <= f < hi that depends only on place w of the split axis to *from <= w < *to. */
static void condition(
    const local *l, const nnc_affine *e, int64_t lo, int64_t hi, int64_t *from, int64_t *to)
{
    nnc_affine f = *e;
    int64_t step = f.k[l->split];
    f.k[l->split] = 0;
    f.k[l->with[l->split]] = 0;
    for (int a = 0; a < NNC_KAXES; a++)
        if (f.k[a] != 0 || step < 1)
            return;
    if (lo > INT64_MIN)
        *from = nnc_max64(*from, nnc_ceildiv(lo - f.c, step));
    if (hi < INT64_MAX)
        *to = nnc_min64(*to, nnc_ceildiv(hi - f.c, step));
}

/* Does the instruction compare a form with a number? */
static bool is_limit(const local *l, int32_t id, int64_t *limit)
{
    const nnc_kins *in = &l->from->ins[id];
    if (in->op != KO_sop || (in->sop != SC_ge && in->sop != SC_lt) || !l->form[in->arg[0]].ok ||
        l->from->ins[in->arg[1]].op != KO_const || l->from->ins[in->arg[1]].dtype != DT_i64)
        return false;
    *limit = l->from->ins[in->arg[1]].i;
    return true;
}

/* Divides the last axis of the row with edges. */
static void find_segments(local *l)
{
    const nnc_kernel *k = l->from;
    l->split = -1;
    for (int d = 0; d < l->n_dim; d++)
        if (l->dim[d] >= k->n_outer && l->with[l->dim[d]] >= l->inner)
            l->split = l->dim[d];
    if (l->split < 0)
        return;
    int64_t limit, n = reach(l, l->split), from = 0, to = n;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        for (int g = 0; g < in->n_guard && l->cone[i]; g++)
            condition(l, &in->guard[g].e, in->guard[g].lo, in->guard[g].hi, &from, &to);
        if (l->cone[i] && is_limit(l, i, &limit))
            condition(l, &l->form[in->arg[0]].e, in->sop == SC_ge ? limit : INT64_MIN,
                in->sop == SC_ge ? INT64_MAX : limit, &from, &to);
    }
    if (from >= to) {
        from = 0;
        to = n;
    }
    l->from_at[1] = from;
    l->from_at[2] = to;
    l->from_at[3] = n;
}

/* The axes along which values are stored. */
static void find_dims(local *l)
{
    const nnc_kernel *k = l->from;
    bool seen[NNC_KAXES] = {false};
    int rows = l->inner > 0 ? l->with[l->inner - 1] : -1;
    if (rows >= 0) {
        l->dim[l->n_dim++] = rows;
        seen[rows] = true;
    }
    for (int a = l->inner; a < k->n_axis; a++) {
        int r = a < k->n_outer && l->with[a] >= 0 ? l->with[a] : a;
        if (seen[r] || all_forms(l, without, r, 0))
            continue;
        seen[r] = true;
        l->dim[l->n_dim++] = r;
    }
}

/* Orders the axes: the outer ones before `inner`; the storing stages', rows first; the windows' reduce axes; their map axes. Vectors run
 * along the last map axis. */
static bool lay_axes(local *l)
{
    const nnc_kernel *k = l->from;
    l->inner = first_inner(l);
    find_dims(l);
    find_segments(l);
    l->k.n_axis = l->k.n_outer = l->inner;
    for (int a = 0; a < NNC_KAXES; a++)
        l->fill[a] = l->own[a] = a < l->inner ? a : -1;
    for (int d = 0; d < l->n_dim; d++) {
        int b = l->dim[d];
        int64_t n = b < k->n_outer || l->with[b] < l->inner ? k->axis[b].extent : reach(l, b);
        for (int s = 0; b == l->split && s < SEGMENTS; s++) {
            n = l->from_at[s + 1] - l->from_at[s];
            l->piece[s] = n > 0 ? add_axis(l, KA_map, n) : -1;
        }
        if (b != l->split)
            l->fill[b] = add_axis(l, KA_map, n);
    }
    for (int r = k->n_outer; r < k->n_axis; r++)
        l->own[r] = add_axis(l, KA_reduce, k->axis[r].extent);
    for (int a = l->inner; a < k->n_outer; a++)
        l->own[a] = add_axis(l, KA_map, k->axis[a].extent);
    return l->k.n_axis <= NNC_KAXES && l->inner < k->n_outer;
}

static bool add_buffer(local *l, int64_t most)
{
    const nnc_kernel *k = l->from;
    nnc_dtype t = (nnc_dtype)k->ins[l->x].dtype;
    int64_t numel = 1;
    for (int d = l->n_dim - 1; d >= 0; d--) {
        int b = l->dim[d];
        l->stride[b] = numel;
        numel =
            nnc_mul_sat(numel, b == l->split ? l->from_at[SEGMENTS] : l->k.axis[l->fill[b]].extent);
    }
    if (nnc_mul_sat(numel, nnc_dtype_size(t)) > most || k->n_buf >= NNC_KMAX_BUF)
        return false;
    l->k.buf = ARENA_NEW(l->a, nnc_kbuf, k->n_buf + 1);
    l->oom |= !l->k.buf;
    for (int b = 0; l->k.buf && b < k->n_buf; b++)
        l->k.buf[b] = k->buf[b];
    if (l->k.buf)
        l->k.buf[l->k.n_buf++] = (nnc_kbuf){.role = KB_tmp, .dtype = t, .numel = numel};
    return true;
}

/* ---- instructions --------------------------------------------------------------------------------------------------- */

static int32_t append(local *l, nnc_kins in)
{
    l->full |= l->k.n_ins >= l->most;
    if (l->oom || l->full)
        return 0;
    l->k.ins[l->k.n_ins] = in;
    return l->k.n_ins++;
}

/* The form over a section's axes. In FILL a paired outer axis and its reduce axis are one axis of places, counted from the segment's
 * first. */
static nnc_affine moved(const local *l, section s, const nnc_affine *e)
{
    nnc_affine f = {.c = e->c};
    const int *to = s == FILL ? l->fill : l->own;
    for (int a = 0; a < l->from->n_axis; a++)
        if (to[a] >= 0)
            f.k[to[a]] += e->k[a];
    if (s == FILL && l->split >= 0)
        f.c += e->k[l->split] * l->from_at[l->segment];
    return f;
}

static int32_t put_int(local *l, nnc_kop op, nnc_sop sop, int64_t i, int32_t a, int32_t b)
{
    return append(l, (nnc_kins){.op = (uint8_t)op,
                         .dtype = DT_i64,
                         .sop = (uint8_t)sop,
                         .buf = -1,
                         .i = i,
                         .arg = {a, b, -1},
                         .lo = op == KO_const ? (double)i : 1,
                         .hi = op == KO_const ? (double)i : 0});
}

static int32_t put_form(local *l, const nnc_affine *e)
{
    int32_t sum = put_int(l, KO_const, 0, e->c, -1, -1);
    for (int a = 0; a < l->k.n_axis; a++) {
        if (e->k[a] == 0)
            continue;
        int32_t x = put_int(l, KO_index, 0, a, -1, -1),
                by = put_int(l, KO_const, 0, e->k[a], -1, -1);
        x = e->k[a] == 1 ? x : put_int(l, KO_sop, SC_mul, 0, x, by);
        sum = put_int(l, KO_sop, SC_add, 0, sum, x);
    }
    return sum;
}

/* The load of the value at the windows' place. */
static int32_t put_load(local *l)
{
    const nnc_kins *x = &l->from->ins[l->x];
    nnc_kins in = {.op = KO_load,
        .dtype = x->dtype,
        .buf = (int16_t)(l->k.n_buf - 1),
        .arg = {-1, -1, -1},
        .lo = x->lo,
        .hi = x->hi,
        .maybe_nan = x->maybe_nan};
    for (int d = 0; d < l->n_dim; d++) {
        int b = l->dim[d], a = l->with[b];
        in.at.k[l->own[b]] += l->stride[b];
        if (b >= l->from->n_outer && a >= l->inner)
            in.at.k[l->own[a]] += l->stride[b] * l->step[b];
    }
    return append(l, in);
}

static int32_t copy_ins(local *l, section s, int32_t id);

/* Moves the guards, except those that always hold here. False: one never holds. */
static bool move_guards(local *l, section s, nnc_kins *in)
{
    uint8_t n = 0;
    if (in->n_guard == 0)
        return true;
    in->guard = nnc_arena_memdup(l->a, in->guard, sizeof *in->guard * in->n_guard);
    l->oom |= !in->guard;
    for (int g = 0; in->guard && g < in->n_guard; g++) {
        nnc_kguard q = in->guard[g];
        q.e = moved(l, s, &q.e);
        nnc_span x = nnc_affine_span(&l->k, &q.e);
        if (x.ok && (x.hi < q.lo || x.lo >= q.hi))
            return false;
        if (!x.ok || x.lo < q.lo || x.hi >= q.hi)
            in->guard[n++] = q;
    }
    in->n_guard = n;
    return true;
}

/* Does a condition hold here? 0: nowhere, 1: everywhere, -1: at some points. */
static int holds(const local *l, section s, int32_t id)
{
    const nnc_kins *in = &l->from->ins[id];
    int64_t limit;
    if (in->op == KO_sop && in->sop == SC_and) {
        int x = holds(l, s, in->arg[0]), y = holds(l, s, in->arg[1]);
        return x == 0 || y == 0 ? 0 : x == 1 && y == 1 ? 1 : -1;
    }
    if (!is_limit(l, id, &limit))
        return -1;
    nnc_affine e = moved(l, s, &l->form[in->arg[0]].e);
    nnc_span x = nnc_affine_span(&l->k, &e);
    if (!x.ok || (x.lo < limit && x.hi >= limit))
        return -1;
    return (x.lo >= limit) == (in->sop == SC_ge);
}

/* The operand that replaces a select or `and` with a condition known here; or -1. */
static int32_t decided(local *l, section s, const nnc_kins *in)
{
    if (in->op != KO_sop || (in->sop != SC_select && in->sop != SC_and))
        return -1;
    int x = holds(l, s, in->arg[0]), y = in->sop == SC_and ? holds(l, s, in->arg[1]) : -1;
    if (in->sop == SC_select)
        return x < 0 ? -1 : copy_ins(l, s, in->arg[x ? 1 : 2]);
    return x == 1 ? copy_ins(l, s, in->arg[1]) : y == 1 ? copy_ins(l, s, in->arg[0]) : -1;
}

/* Copies an instruction into a section, with those that it needs. */
static int32_t copy_ins(local *l, section s, int32_t id)
{
    if (id < 0 || l->copy[s][id] >= 0 || l->oom || l->full)
        return id < 0 ? -1 : l->copy[s][id];
    nnc_kins in = l->from->ins[id];
    if (s == POST && in.op == KO_reduce)
        return l->copy[BODY][id];
    if (s == BODY && id == l->x)
        return l->copy[s][id] = put_load(l);
    if (l->form[id].ok && in.op != KO_const) {
        nnc_affine e = moved(l, s, &l->form[id].e);
        return l->copy[s][id] = put_form(l, &e);
    }
    int32_t other = decided(l, s, &in);
    if (other >= 0)
        return l->copy[s][id] = other;
    if (!move_guards(l, s, &in))
        return l->copy[s][id] = copy_ins(l, s, in.arg[1]);
    if (in.op == KO_load && in.n_guard == 0)
        in.arg[1] = -1;
    for (int j = 0; j < 3; j++)
        in.arg[j] = copy_ins(l, s, in.arg[j]);
    in.at = moved(l, s, &in.at);
    return l->copy[s][id] = append(l, in);
}

/* The stage that stores the current segment. */
static void put_fill(local *l)
{
    nnc_kstage *g = &l->k.stage[l->k.n_stage++];
    *g = (nnc_kstage){.body0 = l->k.n_ins};
    for (int i = 0; i < l->from->n_ins; i++)
        l->copy[FILL][i] = -1;
    nnc_kins store = {.op = KO_store,
        .dtype = l->from->ins[l->x].dtype,
        .buf = (int16_t)(l->k.n_buf - 1),
        .arg = {copy_ins(l, FILL, l->x), -1, -1},
        .lo = 1};
    if (l->split >= 0)
        store.at.c = l->stride[l->split] * l->from_at[l->segment];
    for (int d = 0; d < l->n_dim; d++) {
        int b = l->dim[d];
        g->axes |= 1u << l->fill[b];
        store.at.k[l->fill[b]] = l->stride[b];
    }
    (void)append(l, store);
    g->body1 = g->post0 = g->post1 = l->k.n_ins;
}

static void put_fills(local *l)
{
    for (l->segment = 0; l->split >= 0 && l->segment < SEGMENTS; l->segment++) {
        l->fill[l->split] = l->piece[l->segment];
        if (l->piece[l->segment] >= 0)
            put_fill(l);
    }
    if (l->split < 0)
        put_fill(l);
}

static void put_windows(local *l, int32_t reduce)
{
    const nnc_kstage *from = &l->from->stage[l->stage];
    nnc_kstage *g = &l->k.stage[l->k.n_stage++];
    *g = (nnc_kstage){.body0 = l->k.n_ins};
    for (int b = l->inner; b < l->from->n_axis; b++)
        g->axes |= 1u << l->own[b];
    (void)copy_ins(l, BODY, reduce);
    g->body1 = g->post0 = l->k.n_ins;
    for (int32_t i = from->post0; i < from->post1; i++)
        if (l->from->ins[i].op == KO_store)
            (void)copy_ins(l, POST, i);
    g->post1 = l->k.n_ins;
}

static bool open_writer(local *l)
{
    const size_t n = (size_t)l->from->n_ins + 1;
    l->k.n_ins = 0;
    l->k.n_stage = 0;
    l->k.stage = ARENA_NEW(l->a, nnc_kstage, SEGMENTS + 1);
    l->most = (int32_t)nnc_min64(16 * (int64_t)n + 256, NNC_KMAX_INS);
    l->k.ins = ARENA_NEW(l->a, nnc_kins, l->most);
    for (int s = 0; s < 3; s++) {
        l->copy[s] = ARENA_NEW(l->a, int32_t, n);
        l->oom |= !l->copy[s];
        for (size_t i = 0; l->copy[s] && i < n; i++)
            l->copy[s][i] = -1;
    }
    l->oom |= !l->k.stage || !l->k.ins;
    return !l->oom;
}

bool nnc_kernel_local(nnc_kernel *k, int64_t most, nnc_arena *a, bool *done)
{
    local l = {.from = k, .k = *k, .a = a};
    int32_t reduce;
    *done = false;
    l.form = nnc_kernel_forms(k, a);
    l.cone = ARENA_NEW(a, bool, k->n_ins + 1);
    if (!l.form || !l.cone)
        return false;
    if (!find_stage(&l, &reduce) || !find_value(&l, reduce) || !pair_axes(&l) || !lay_axes(&l) ||
        !add_buffer(&l, most) || l.oom || !open_writer(&l))
        return !l.oom;
    put_fills(&l);
    put_windows(&l, reduce);
    if (l.oom || l.full)
        return !l.oom;
    l.k.scratch_bytes = nnc_kernel_scratch(&l.k);
    *k = l.k;
    *done = true;
    return true;
}
