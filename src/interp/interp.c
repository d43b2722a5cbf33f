/* interp/interp.c -- executes kernel IR directly, a block of a few hundred elements per instruction, which amortises the cost of
 * interpreting. Blocks run along the schedule's vector axis; values that do not vary along it are computed once per block. Values live
 * in stack slots, which are reused when a value is dead.
 *
 * Thread-safe: a run writes only its stack, the arguments and its scratch. */
#include "interp/internal.h"
#include "math/formula.h"

#include <stddef.h>
#include <string.h>

enum { STACK_BYTES = 192 << 10, MAX_BLOCK = 512, MIN_BLOCK = 8 };

typedef struct plan_ins {
    int32_t slot; /* of the value; reductions: of the accumulator lanes */
    int32_t at_slot; /* argmax, argmin: of the indices; otherwise -1 */
    bool varies; /* differs along the stage's vector axis */
    bool spread; /* uniform, but read by a varying instruction: broadcast to all lanes */
    nnc_formula *formula; /* math function: its formula, of which only the steps are allocated */
} plan_ins;

struct nnc_interp {
    const nnc_kernel *k;
    plan_ins *ins;
    nnc_product *product; /* by stage */
    int32_t n_slot;
    int block; /* lanes of a slot */
    bool constants; /* they have slots of their own, which are set once in a run */
    nnc_arena arena; /* of the rings and nests */
    nnc_kernel nested;
    uint32_t *nest; /* by stage: axes that enclose it and its neighbours with the same ones */
    nnc_kring *ring; /* by buffer */
    int64_t *tmp_at; /* by buffer: byte offset in scratch, or -1 */
    int32_t *arg_of; /* by buffer: argument index, or -1 */
};

typedef struct run {
    const nnc_interp *s;
    const nnc_kernel *k;
    void *const *args;
    char *scratch;
    int64_t at[NNC_KAXES]; /* current index of each axis; vector axis: of the first lane */
    int64_t from
        [NNC_KAXES]; /* first index in the work item; of a ring's row axis: of the current stage */
    int vec; /* vector axis of the current stage, -1 = none */
    int lanes; /* lanes along it */
    char *mem;
} run;

/* ---- preparation ---- */

static bool ins_varies(const nnc_interp *s, int id, int v)
{
    const nnc_kins *in = &s->k->ins[id];
    bool varies = v >= 0 && nnc_kins_axes(in) >> v & 1;
    for (int j = 0; j < 3; j++)
        varies |= in->arg[j] >= 0 && s->ins[in->arg[j]].varies;
    return varies;
}

/* True when the stage reduces along its vector axis, so that lanes are combined at the end of a row. */
static bool folds(const nnc_kernel *k, const nnc_kstage *g)
{
    int v = nnc_stage_vec(k, g);
    return v >= 0 && k->axis[v].kind == KA_reduce;
}

static void mark_varying(nnc_interp *s)
{
    const nnc_kernel *k = s->k;
    for (int i = 0; i < k->n_stage; i++) {
        const nnc_kstage *g = &k->stage[i];
        int v = nnc_stage_vec(k, g);
        for (int id = g->body0; id < g->body1; id++)
            s->ins[id].varies = ins_varies(s, id, v);
        if (folds(k, g)) /* its results are uniform */
            for (int id = g->body0; id < g->body1; id++)
                if (k->ins[id].op == KO_reduce)
                    s->ins[id].varies = false;
        for (int id = g->post0; id < g->post1; id++)
            s->ins[id].varies = ins_varies(s, id, folds(k, g) ? -1 : v);
        for (int id = g->body0; id < g->post1; id++) {
            bool lanes = s->ins[id].varies || (k->ins[id].op == KO_reduce && folds(k, g));
            for (int j = 0; j < 3; j++)
                if (k->ins[id].arg[j] >= 0 && lanes && !s->ins[k->ins[id].arg[j]].varies)
                    s->ins[k->ins[id].arg[j]].spread = true;
        }
    }
}

/* Finds the last instruction that reads each value; a value computed before a stage and read in its loop lives to the stage's end. */
static void find_last(const nnc_kernel *k, int32_t *last)
{
    for (int i = 0; i < k->n_ins; i++)
        last[i] = i;
    for (int i = 0; i < k->n_stage; i++) {
        const nnc_kstage *g = &k->stage[i];
        for (int id = g->body0; id < g->post1; id++) {
            if (k->ins[id].op == KO_reduce)
                last[id] = last[id] > g->post1 ? last[id] : g->post1;
            for (int j = 0; j < 3; j++) {
                int32_t a = k->ins[id].arg[j];
                if (a < 0)
                    continue;
                int32_t until = a < g->body0 ? g->post1 : id;
                last[a] = last[a] > until ? last[a] : until;
            }
        }
    }
}

static bool assign_slots(nnc_interp *s)
{
    enum { MOST = 32 };
    const nnc_kernel *k = s->k;
    int constants = 0;
    for (int i = 0; i < k->n_ins; i++)
        constants += k->ins[i].op == KO_const;
    s->constants = constants <= MOST;
    int32_t *last = nnc_calloc((size_t)k->n_ins + 1, sizeof *last);
    int32_t *ends = nnc_calloc(
        2 * (size_t)k->n_ins + 1, sizeof *ends); /* by slot: end of the last live range */
    if (last && ends) {
        find_last(k, last);
        for (int i = 0; i < k->n_stage; i++)
            for (int pass = 0; pass < 2;
                 pass++) /* accumulators first, since they live through the body */
                for (int id = k->stage[i].body0; id < k->stage[i].post1; id++) {
                    bool acc = k->ins[id].op == KO_reduce;
                    if (acc != (pass == 0) || k->ins[id].op == KO_store)
                        continue;
                    const bool constant = s->constants && k->ins[id].op == KO_const;
                    int from = constant ? -1 : acc ? k->stage[i].body0 : id;
                    int need = acc && k->ins[id].sop >= KR_argmax ? 2 : 1;
                    for (int n = 0; n < need; n++) {
                        int32_t slot = 0;
                        while (slot < s->n_slot && ends[slot] >= from)
                            slot++;
                        if (slot == s->n_slot)
                            s->n_slot++;
                        ends[slot] = constant ? INT32_MAX : last[id];
                        *(n ? &s->ins[id].at_slot : &s->ins[id].slot) = slot;
                    }
                }
    }
    bool ok = last && ends;
    nnc_free(last);
    nnc_free(ends);
    return ok;
}

static void place_buffers(nnc_interp *s)
{
    const nnc_kernel *k = s->k;
    int64_t at = 0;
    int32_t arg = 0;
    for (int b = 0; b < k->n_buf; b++) {
        bool tmp = k->buf[b].role == KB_tmp;
        s->tmp_at[b] = tmp ? at : -1;
        s->arg_of[b] = tmp ? -1 : arg++;
        if (tmp)
            at += nnc_align_up(k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype), 64);
    }
}

/* Finds the formulas, those of the LLVM emitter for a CPU with fused multiply-add. False: out of memory. */
static bool find_formulas(nnc_interp *s)
{
    for (int i = 0; i < s->k->n_ins; i++) {
        const nnc_kins *in = &s->k->ins[i];
        nnc_formula f;
        if (in->op != KO_sop ||
            !nnc_has_formula((nnc_sop)in->sop, (nnc_dtype)s->k->ins[in->arg[0]].dtype))
            continue;
        nnc_formula_make(&f, nnc_formula_key(s->k, in), (nnc_machine){.fma = true});
        const size_t bytes = offsetof(nnc_formula, step) + sizeof f.step[0] * (size_t)f.n;
        s->ins[i].formula = nnc_malloc(bytes);
        if (!s->ins[i].formula)
            return false;
        memcpy(s->ins[i].formula, &f, bytes);
    }
    return true;
}

nnc_interp *nnc_interp_create(const nnc_kernel *k)
{
    nnc_interp *s = nnc_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->nest = ARENA_NEW(&s->arena, uint32_t, k->n_stage + 1);
    const bool in_parts = nnc_kernel_in_parts(k);
    const bool nested =
        s->nest && (!in_parts || nnc_parts_nested(k, &s->arena, &s->nested, s->nest));
    s->k = k = in_parts ? &s->nested : k;
    s->ins = nnc_calloc((size_t)k->n_ins + 1, sizeof *s->ins);
    s->tmp_at = nnc_calloc((size_t)k->n_buf + 1, sizeof *s->tmp_at);
    s->arg_of = nnc_calloc((size_t)k->n_buf + 1, sizeof *s->arg_of);
    s->product = nnc_calloc((size_t)k->n_stage + 1, sizeof *s->product);
    if (!nested || !s->ins || !s->tmp_at || !s->arg_of || !s->product ||
        !nnc_kernel_rings(k, &s->arena, &s->ring)) {
        nnc_interp_destroy(s);
        return NULL;
    }
    for (int i = 0; i < k->n_ins; i++)
        s->ins[i].at_slot = -1;
    mark_varying(s);
    if (!assign_slots(s) || !find_formulas(s)) {
        nnc_interp_destroy(s);
        return NULL;
    }
    place_buffers(s);
    int64_t longest = 1;
    for (int i = 0; i < k->n_stage; i++) {
        int v = nnc_stage_vec(k, &k->stage[i]);
        if (!nnc_product_find(k, &k->stage[i], v, &s->product[i]) ||
            s->ring[k->ins[s->product[i].x].buf].rows > 0 ||
            s->ring[k->ins[s->product[i].w].buf].rows > 0)
            s->product[i].axis = -1;
        longest = v >= 0 ? nnc_max64(longest, k->axis[v].extent) : longest;
    }
    s->block = (int)nnc_min64(MAX_BLOCK, nnc_align_up(nnc_min64(longest, MAX_BLOCK), MIN_BLOCK));
    while (s->block > 1 && (int64_t)s->block * 8 * s->n_slot > STACK_BYTES)
        s->block /= 2;
    return s;
}

void nnc_interp_destroy(nnc_interp *s)
{
    if (!s)
        return;
    for (int i = 0; s->ins && i < s->k->n_ins; i++)
        nnc_free(s->ins[i].formula);
    nnc_free(s->ins);
    nnc_free(s->product);
    nnc_free(s->tmp_at);
    nnc_free(s->arg_of);
    nnc_arena_deinit(&s->arena);
    nnc_free(s);
}

/* ---- one instruction ---- */

static void *slot(const run *r, int32_t i)
{
    return r->mem + (size_t)i * (size_t)r->s->block * 8;
}
static void *value(const run *r, int32_t id)
{
    return id < 0 ? NULL : slot(r, r->s->ins[id].slot);
}

static int64_t form(const run *r, const nnc_affine *e)
{
    int64_t v = e->c;
    for (int a = 0; a < r->k->n_axis; a++)
        v += e->k[a] * r->at[a];
    return v;
}

/* Offset of a direct access. */
static int64_t offset(const run *r, const nnc_kins *in)
{
    const nnc_kring *g = &r->s->ring[in->buf];
    if (g->rows == 0)
        return form(r, &in->at);
    nnc_affine row, place;
    nnc_ring_split(g, &in->at, &row, &place);
    return (r->at[g->axis] * g->step + form(r, &row)) % g->rows * g->size + form(r, &place);
}

/* Range first..end-1 of the n lanes that satisfies all guards, each of which bounds an affine form of the lane. */
static void guarded(const run *r, const nnc_kins *in, int n, int *first, int *end)
{
    int64_t lo = 0, hi = n;
    for (int g = 0; g < in->n_guard; g++) {
        const nnc_kguard *q = &in->guard[g];
        int64_t e = form(r, &q->e), k = r->vec >= 0 ? q->e.k[r->vec] : 0;
        if (k == 0) {
            if (e < q->lo || e >= q->hi)
                hi = 0;
        } else if (k > 0) {
            lo = nnc_max64(lo, nnc_ceildiv(q->lo - e, k));
            hi = nnc_min64(hi, nnc_ceildiv(q->hi - e, k));
        } else {
            lo = nnc_max64(lo, nnc_floordiv(e - q->hi, -k) + 1);
            hi = nnc_min64(hi, nnc_floordiv(e - q->lo, -k) + 1);
        }
    }
    *first = (int)(lo < n ? lo : n);
    *end = (int)(hi > *first ? hi : *first);
}

static void *buffer(const run *r, int b)
{
    return r->s->tmp_at[b] >= 0 ? r->scratch + r->s->tmp_at[b] : r->args[r->s->arg_of[b]];
}

static size_t lane_size(nnc_dtype d)
{
    return nnc_lane_of(d) == LANE_f32 ? 4 : 8;
}

/* Loads or stores lanes first..end-1 at computed indices. */
static void indirect(
    const run *r, const nnc_kins *in, int first, int end, int64_t at, int64_t stride, char *y)
{
    const int32_t id = nnc_kins_index(in);
    const int64_t *index = value(r, id);
    bool one = !r->s->ins[id].varies && !r->s->ins[id].spread;
    bool big = r->k->ins[id].dtype == DT_u64;
    nnc_dtype d = r->k->buf[in->buf].dtype;
    for (int i = first; i < end; i++) {
        int64_t j = index[one ? 0 : i];
        if (j < 0)
            j = big ? in->limit - 1 : 0;
        if (j >= in->limit)
            j = in->limit - 1;
        char *lane = y + lane_size((nnc_dtype)in->dtype) * (size_t)i;
        int64_t to = at + i * stride + j * in->scale;
        if (in->op == KO_load)
            nnc_lanes_load(d, buffer(r, in->buf), to, 1, 1, lane);
        else
            nnc_lanes_store(d, buffer(r, in->buf), to, 1, 1, lane);
    }
}

static void run_load(const run *r, const nnc_kins *in, int n, char *y)
{
    int first, end;
    int64_t stride = r->vec >= 0 ? in->at.k[r->vec] : 0, at = offset(r, in);
    size_t size = lane_size((nnc_dtype)in->dtype);
    guarded(r, in, n, &first, &end);
    if (first > 0 || end < n) {
        const char *fill = value(r, in->arg[1]);
        nnc_lane l = nnc_lane_of((nnc_dtype)in->dtype);
        if (r->s->ins[in->arg[1]].varies) {
            memcpy(y, fill, size * (size_t)n);
        } else {
            nnc_lanes_fill(l, y, 0, first, fill);
            nnc_lanes_fill(l, y, end, n, fill);
        }
    }
    if (first >= end)
        return;
    if (in->arg[0] >= 0)
        indirect(r, in, first, end, at, stride, y);
    else
        nnc_lanes_load(r->k->buf[in->buf].dtype, buffer(r, in->buf), at + first * stride, stride,
            end - first, y + size * (size_t)first);
}

static void run_store(const run *r, const nnc_kins *in, int n)
{
    int first, end;
    int64_t stride = r->vec >= 0 ? in->at.k[r->vec] : 0, at = offset(r, in);
    size_t size = lane_size((nnc_dtype)in->dtype);
    guarded(r, in, n, &first, &end);
    if (in->arg[1] >= 0)
        indirect(r, in, first, end, at, stride, value(r, in->arg[0]));
    else if (first < end)
        nnc_lanes_store(r->k->buf[in->buf].dtype, buffer(r, in->buf), at + first * stride, stride,
            end - first, (char *)value(r, in->arg[0]) + size * (size_t)first);
}

/* Row-major number of the point among the stage's reduce axes, and its increment along the vector axis. */
static int64_t reduce_number(const run *r, const nnc_kstage *g, int64_t *step)
{
    int64_t i = 0;
    *step = 0;
    for (int a = 0; a < r->k->n_axis; a++) {
        if (r->k->axis[a].kind != KA_reduce || !(g->axes >> a & 1))
            continue;
        i = i * r->k->axis[a].extent + r->at[a];
        *step = *step * r->k->axis[a].extent + (a == r->vec);
    }
    return i;
}

static void run_reduce(const run *r, const nnc_kstage *g, int id, int n)
{
    const nnc_kins *in = &r->k->ins[id];
    const plan_ins *p = &r->s->ins[id];
    int64_t step, first = reduce_number(r, g, &step);
    nnc_lanes_fold((nnc_kred)in->sop, (nnc_dtype)r->k->ins[in->arg[0]].dtype, n, slot(r, p->slot),
        p->at_slot >= 0 ? slot(r, p->at_slot) : NULL, value(r, in->arg[0]), value(r, in->arg[1]),
        first, step);
}

static void set_constant(const run *r, int id)
{
    const nnc_kins *in = &r->k->ins[id];
    const nnc_lane l = nnc_lane_of((nnc_dtype)in->dtype);
    char *y = slot(r, r->s->ins[id].slot);
    if (l == LANE_f32)
        *(float *)y = (float)in->f;
    else if (l == LANE_f64)
        *(double *)y = in->f;
    else
        *(int64_t *)y = in->i;
    if (r->s->ins[id].spread)
        nnc_lanes_fill(l, y, 1, r->s->block, y);
}

/* n: lanes of varying values. */
static void run_section(const run *r, const nnc_kstage *g, int b, int e, int n, bool fold)
{
    for (int id = b; id < e; id++) {
        const nnc_kins *in = &r->k->ins[id];
        const plan_ins *p = &r->s->ins[id];
        int m = p->varies ? n : 1;
        char *y = in->op == KO_store ? NULL : slot(r, p->slot);
        switch (in->op) {
        case KO_const:
            if (!r->s->constants)
                set_constant(r, id);
            continue;
        case KO_index:
            for (int i = 0; i < m; i++)
                ((int64_t *)y)[i] = r->at[in->i] + i;
            break;
        case KO_load: run_load(r, in, m, y); break;
        case KO_store: run_store(r, in, m); break;
        case KO_reduce:
            run_reduce(r, g, id, fold ? n : m);
            if (in->running)
                break;
            continue; /* broadcast at the end of the row */
        default:
            if (p->formula) {
                nnc_formula_run(p->formula, m, value(r, in->arg[0]), value(r, in->arg[1]), y);
                break;
            }
            nnc_lanes_sop(in, (nnc_dtype)r->k->ins[in->arg[0]].dtype, m, value(r, in->arg[0]),
                value(r, in->arg[1]), value(r, in->arg[2]), y);
        }
        if (p->spread && y)
            nnc_lanes_fill(nnc_lane_of((nnc_dtype)in->dtype), y, 1, r->s->block, y);
    }
}

/* ---- loops ---- */

static void start_reductions(const run *r, const nnc_kstage *g)
{
    for (int id = g->body0; id < g->body1; id++) {
        const nnc_kins *in = &r->k->ins[id];
        const plan_ins *p = &r->s->ins[id];
        if (in->op == KO_reduce)
            nnc_lanes_start((nnc_kred)in->sop, (nnc_dtype)r->k->ins[in->arg[0]].dtype, r->s->block,
                slot(r, p->slot), p->at_slot >= 0 ? slot(r, p->at_slot) : NULL);
    }
}

static void finish_reductions(const run *r, const nnc_kstage *g, int lanes, bool fold)
{
    for (int id = g->body0; id < g->body1; id++) {
        const nnc_kins *in = &r->k->ins[id];
        const plan_ins *p = &r->s->ins[id];
        if (in->op != KO_reduce)
            continue;
        nnc_dtype d = (nnc_dtype)r->k->ins[in->arg[0]].dtype;
        int64_t *at = p->at_slot >= 0 ? slot(r, p->at_slot) : NULL;
        char *acc = slot(r, p->slot);
        if (fold)
            nnc_lanes_finish((nnc_kred)in->sop, d, lanes, acc, at, acc);
        else if (at) /* an index of -1: all elements were masked */
            for (int i = 0; i < r->s->block; i++)
                ((int64_t *)acc)[i] = at[i] < 0 ? 0 : at[i];
        if (p->spread)
            nnc_lanes_fill(nnc_lane_of((nnc_dtype)in->dtype), acc, 1, r->s->block, acc);
    }
}

/* Advances the axes of the mask like an odometer, the last fastest; false after the last point. */
static bool step(run *r, uint32_t axes)
{
    for (int a = r->k->n_axis - 1; a >= 0; a--) {
        if (!(axes >> a & 1))
            continue;
        if (++r->at[a] < r->k->axis[a].extent)
            return true;
        r->at[a] = r->from[a];
    }
    return false;
}

/* All steps of a product along its axis; where the first factor is not there, it is what its load gives instead. */
static void run_product(run *r, const nnc_product *p, int n)
{
    enum { MOST = 1 << 30 };
    const nnc_kins *x = &r->k->ins[p->x], *w = &r->k->ins[p->w];
    const nnc_dtype d = (nnc_dtype)x->dtype;
    const int64_t extent = r->k->axis[p->axis].extent, size = nnc_dtype_size(d);
    const double zero = x->n_guard ? r->k->ins[x->arg[1]].f : 0;
    const float zero32 = (float)zero;
    const int v = r->vec;
    nnc_factor a = {.step = x->at.k[p->axis], .lane = v >= 0 ? x->at.k[v] : 0};
    nnc_factor b = {.step = w->at.k[p->axis], .lane = v >= 0 ? w->at.k[v] : 0};
    for (int64_t i = 0; i < extent; i += MOST) {
        int at[4] = {0, 0, 0, (int)nnc_min64(MOST, extent - i)};
        r->at[p->axis] = i;
        r->vec = p->axis; /* guards bound a range of steps */
        guarded(r, x, at[3], &at[1], &at[2]);
        r->vec = v;
        const char *xs = (const char *)buffer(r, x->buf) + form(r, &x->at) * size;
        const char *ws = (const char *)buffer(r, w->buf) + form(r, &w->at) * size;
        for (int j = 0; j < 3; j++) {
            a.at = xs + at[j] * a.step * size;
            b.at = ws + at[j] * b.step * size;
            const void *fill = d == DT_f32 ? (const void *)&zero32 : &zero;
            nnc_product_steps(d, n, j == 1 ? a : (nnc_factor){.at = fill}, b, at[j + 1] - at[j],
                slot(r, r->s->ins[p->sum].slot));
        }
    }
    r->at[p->axis] = 0;
}

/* All reduce points of one (outer, map) point, then the post. n: lanes along a vector axis that
 * is not reduced. */
static void run_point(run *r, const nnc_kstage *g, uint32_t reduce, int n)
{
    const nnc_product *p = &r->s->product[g - r->k->stage];
    bool fold = folds(r->k, g);
    int used = 0;
    start_reductions(r, g);
    reduce &= p->axis >= 0 ? ~(1u << p->axis) : ~0u;
    do {
        if (p->axis >= 0) {
            run_product(r, p, n);
            continue;
        }
        if (!fold) {
            run_section(r, g, g->body0, g->body1, n, false);
            continue;
        }
        int64_t extent = r->k->axis[r->vec].extent;
        for (int64_t i = 0; i < extent; i += r->s->block) {
            int m = (int)nnc_min64(r->s->block, extent - i);
            r->at[r->vec] = i;
            used = m > used ? m : used;
            run_section(r, g, g->body0, g->body1, m, true);
        }
        r->at[r->vec] = 0;
    } while (step(r, reduce));
    if (g->body0 < g->body1)
        finish_reductions(r, g, used, fold);
    run_section(r, g, g->post0, g->post1, n, false);
}

/* Sets the first rows of the rings: those that the previous point of the work item did not store. */
static void place_rings(run *r)
{
    for (int b = 0; b < r->k->n_buf; b++) {
        const nnc_kring *g = &r->s->ring[b];
        if (g->rows == 0)
            continue;
        r->from[g->row] = r->at[g->axis] == r->from[g->axis] ? 0 : g->rows - g->step;
        r->at[g->row] = r->from[g->row];
    }
}

/* At one point of the axes of `nest`. */
static void run_stage(run *r, const nnc_kstage *g, uint32_t nest)
{
    uint32_t map = 0, reduce = 0;
    int v = r->vec = nnc_stage_vec(r->k, g);
    bool own = v >= r->k->n_outer;
    for (int a = r->k->n_outer; a < r->k->n_axis; a++)
        if ((g->axes & ~nest) >> a & 1 && a != v)
            *(r->k->axis[a].kind == KA_map ? &map : &reduce) |= 1u << a;
    do {
        if (own && r->k->axis[v].kind == KA_map) {
            int64_t extent = r->k->axis[v].extent;
            for (int64_t i = 0; i < extent; i += r->s->block) {
                r->at[v] = i;
                run_point(r, g, reduce, (int)nnc_min64(r->s->block, extent - i));
            }
            r->at[v] = 0;
        } else {
            run_point(r, g, reduce, own || v < 0 ? 1 : r->lanes);
        }
    } while (step(r, map));
}

static void run_stages(run *r)
{
    place_rings(r);
    for (int s = 0, end; s < r->k->n_stage; s = end) {
        const uint32_t nest = r->s->nest[s];
        for (end = s + 1; nest && end < r->k->n_stage && r->s->nest[end] == nest;)
            end++;
        do
            for (int i = s; i < end; i++)
                run_stage(r, &r->k->stage[i], nest);
        while (step(r, nest));
    }
}

static void run_columns(run *r, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += r->s->block) {
        r->at[nnc_sched_vec(&r->k->sched)] = i;
        r->lanes = (int)nnc_min64(r->s->block, end - i);
        run_stages(r);
    }
}

/* Advances the outer axes except the vector axis from `from` to `to` like an odometer; false after the last point. */
static bool step_block(run *r, int v, const int64_t *from, const int64_t *to)
{
    for (int a = r->k->n_outer - 1; a >= 0; a--) {
        if (a == v)
            continue;
        if (++r->at[a] < to[a])
            return true;
        r->at[a] = from[a];
    }
    return false;
}

/* Work item u: its digits are block numbers on the outer axes. */
static void run_unit(run *r, int64_t u)
{
    const nnc_kernel *k = r->k;
    int digit[NNC_KAXES], v = nnc_sched_vec(&k->sched);
    int64_t *from = r->from, to[NNC_KAXES] = {0};
    bool columns = v >= 0 && v < k->n_outer;
    for (int i = nnc_kernel_digits(k, digit) - 1; i >= 0; i--) {
        int a = digit[i];
        int64_t n = k->axis[a].extent, blocks = nnc_kernel_blocks(k, a);
        int64_t tile = nnc_sched_n(&k->sched, KD_tile, a);
        tile = tile > 0 ? tile : a == v ? n : 1;
        r->at[a] = from[a] = u % blocks * tile;
        to[a] = nnc_min64(from[a] + tile, n);
        u /= blocks;
    }
    do {
        if (columns) {
            run_columns(r, from[v], to[v]);
        } else {
            r->lanes = 1;
            run_stages(r);
        }
    } while (step_block(r, v, from, to));
}

static void run_units(run *r, int64_t begin, int64_t end)
{
    for (int i = 0; r->s->constants && i < r->k->n_ins; i++)
        if (r->k->ins[i].op == KO_const)
            set_constant(r, i);
    for (int64_t u = begin; u < end; u++)
        run_unit(r, u);
}

void nnc_interp_run(
    const nnc_interp *s, void *const *args, int64_t begin, int64_t end, void *scratch)
{
    run r = {.s = s, .k = s->k, .args = args, .scratch = scratch};
    size_t bytes = (size_t)s->block * 8 * (size_t)(s->n_slot + 1);
    if (bytes <= STACK_BYTES + MAX_BLOCK * 8) {
        _Alignas(64) char mem[STACK_BYTES + MAX_BLOCK * 8];
        r.mem = mem;
        run_units(&r, begin, end);
    } else { /* more than 24000 live values (NNC_KMAX_INS bounds them): one lane each, 1 MB at most */
        _Alignas(64) char mem[bytes];
        r.mem = mem;
        run_units(&r, begin, end);
    }
}
