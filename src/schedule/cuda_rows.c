/* schedule/cuda_rows.c -- plans groups of threads that share a point. Decides how each stage's own axes are distributed over the group, and
 * which loads and tmp buffers stay in registers. Sizes a split kernel's partial results. The CUDA emitter follows this plan. */
#include "schedule/schedule.h"
#include <string.h>

enum {
    KEEP_INS = 4096, /* maximum of instructions, since loads are compared pairwise */
    MANY_PARTS =
        16 /* partial results of a point from which the second launch uses several threads per point */
};

/* ---- distribution of stages ---- */

static uint32_t own(const nnc_kernel *k, const nnc_kstage *s, nnc_kaxis_kind kind)
{
    uint32_t m = 0;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if ((s->axes >> a & 1) && k->axis[a].kind == kind && k->axis[a].extent > 1)
            m |= 1u << a;
    return m;
}

static int stage_vec(const nnc_kernel *k, const nnc_kstage *s, uint32_t spread, int most)
{
    int a = cu_last_axis(spread);
    for (int vec = most; a >= 0 && vec > 1; vec /= 2)
        for (int32_t i = s->body0; i < s->post1 && k->axis[a].extent % vec == 0; i++)
            if ((k->ins[i].op == KO_load || k->ins[i].op == KO_store) &&
                cu_vector(k, &k->ins[i], a, vec))
                return vec;
    return 1;
}

bool cu_rows_mixed(const nnc_kernel *k)
{
    for (int i = 0; i < k->n_stage; i++)
        if (nnc_stage_in_order(k, &k->stage[i]) ||
            (own(k, &k->stage[i], KA_map) && own(k, &k->stage[i], KA_reduce)))
            return true;
    return false;
}

/* True when two accesses have the same address at the same step of the same thread. Distributed axes are matched in pairs. */
static bool same_place(
    const nnc_kernel *k, const nnc_kins *x, uint32_t sx, const nnc_kins *y, uint32_t sy)
{
    if (x->buf != y->buf || x->at.c != y->at.c)
        return false;
    for (int a = 0; a < k->n_outer; a++)
        if (x->at.k[a] != y->at.k[a])
            return false;
    for (int a = 0, b = 0; a < k->n_axis; a++) {
        if (!(sx >> a & 1))
            continue;
        while (!(sy >> b & 1))
            b++;
        if (x->at.k[a] != y->at.k[b++])
            return false;
    }
    return true;
}

static bool same_spread(const nnc_kernel *k, uint32_t sx, uint32_t sy)
{
    if (__builtin_popcount(sx) != __builtin_popcount(sy))
        return false;
    for (int a = 0, b = 0; a < k->n_axis; a++) {
        if (!(sx >> a & 1))
            continue;
        while (!(sy >> b & 1))
            b++;
        if (k->axis[a].extent != k->axis[b++].extent)
            return false;
    }
    return true;
}

static bool plain(const nnc_kins *in)
{
    return in->n_guard == 0 && (in->op == KO_store || in->arg[0] < 0);
}

/* True when id is in the body of a stage with few enough steps for registers. */
static bool in_spread(const cu_rows *r, const nnc_kstage *s, int g, int32_t id)
{
    return r->stage[g].spread && r->stage[g].trips <= r->keep && id < s->post1;
}

/* True for one vector access or a uniform value, which a register array of vectors can hold. */
static bool in_one(const nnc_kernel *k, const nnc_kgrid *g, const cu_spread *p, const nnc_kins *in)
{
    int axis = g->cls == KC_column ? g->axis : cu_last_axis(p->spread);
    int vec = g->cls == KC_column ? g->vec : p->vec;
    return vec == 1 || in->at.k[axis] == 0 || cu_vector(k, in, axis, vec);
}

static void keep_loads(cu_rows *r, const nnc_kernel *k, const nnc_kgrid *grid)
{
    for (int g = 0; g < k->n_stage; g++)
        for (int32_t id = k->stage[g].body0; id < k->stage[g].post1; id++) {
            const nnc_kins *in = &k->ins[id];
            if (in->op != KO_load || !plain(in) || k->buf[in->buf].role != KB_in ||
                !in_spread(r, &k->stage[g], g, id) || r->as[id] >= 0 ||
                !in_one(k, grid, &r->stage[g], in))
                continue;
            for (int h = g + 1; h < k->n_stage; h++)
                for (int32_t j = k->stage[h].body0; j < k->stage[h].post1; j++)
                    if (k->ins[j].op == KO_load && plain(&k->ins[j]) && r->as[j] < 0 &&
                        in_spread(r, &k->stage[h], h, j) && r->stage[g].vec == r->stage[h].vec &&
                        same_spread(k, r->stage[g].spread, r->stage[h].spread) &&
                        same_place(k, in, r->stage[g].spread, &k->ins[j], r->stage[h].spread)) {
                        r->as[j] = id;
                        r->held[id] = r->held[j] = true;
                    }
        }
}

/* Keeps a tmp buffer in registers if it is stored once, and each thread loads only elements that it stored. */
static void keep_tmp(cu_rows *r, const nnc_kernel *k, int b)
{
    int32_t at = -1;
    int home = -1;
    for (int pass = 0; pass < 2; pass++)
        for (int g = 0; g < k->n_stage; g++)
            for (int32_t id = k->stage[g].body0; id < k->stage[g].post1; id++) {
                const nnc_kins *in = &k->ins[id];
                if ((in->op != KO_load && in->op != KO_store) || in->buf != b ||
                    (in->op == KO_store) != (pass == 0))
                    continue;
                if (!plain(in) || !in_spread(r, &k->stage[g], g, id))
                    return;
                if (pass == 0) {
                    if (at >= 0 || k->ins[in->arg[0]].op != KO_sop ||
                        in->arg[0] < k->stage[g].body0)
                        return;
                    at = id;
                    home = g;
                } else if (at < 0 || r->stage[g].vec != r->stage[home].vec ||
                           !same_spread(k, r->stage[g].spread, r->stage[home].spread) ||
                           !same_place(
                               k, &k->ins[at], r->stage[home].spread, in, r->stage[g].spread)) {
                    return;
                }
            }
    if (at < 0 || nnc_kdtype(k->buf[b].dtype) != k->buf[b].dtype)
        return;
    r->in_registers[b] = true;
    r->held[k->ins[at].arg[0]] = true;
    for (int32_t id = 0; id < k->n_ins; id++)
        if (k->ins[id].op == KO_load && k->ins[id].buf == b) {
            r->as[id] = k->ins[at].arg[0];
            r->held[id] = true;
        }
}

/* ---- values of which a part is in shared memory ---- */

/* The last instruction that reads held value id, or a load that it replaces. */
static int32_t last_use(const cu_rows *r, const nnc_kernel *k, int32_t id)
{
    int32_t last = id;
    for (int32_t i = id + 1; i < k->n_ins; i++)
        for (int j = 0; j < 3; j++) {
            const int32_t a = k->ins[i].arg[j];
            if (a >= 0 && (a == id || r->as[a] == id))
                last = i;
        }
    return last;
}

static bool parks(const cu_rows *r, const nnc_kernel *k, int stage, int32_t id)
{
    const nnc_kins *in = &k->ins[id];
    const cu_spread *p = &r->stage[stage];
    return r->held[id] && r->as[id] < 0 && p->vec > 1 && p->trips == r->keep &&
           (in->op != KO_load || cu_vector(k, in, cu_last_axis(p->spread), p->vec));
}

/* Gives each held vector an array. A vector computed at the last use of another takes over its array: elements are computed one by one from
 * others with the same index. */
static void park(cu_rows *r, const nnc_kernel *k, const nnc_kgrid *g)
{
    enum { MOST = 8 };
    int32_t until[MOST];
    for (int s = 0; s < k->n_stage; s++)
        for (int32_t id = k->stage[s].body0; id < k->stage[s].post1 && r->slots < MOST; id++) {
            int i = 0;
            if (!parks(r, k, s, id))
                continue;
            while (i < r->slots && until[i] > id)
                i++;
            r->slots += i == r->slots;
            until[i] = last_use(r, k, id);
            r->slot[id] = (int8_t)i;
            const int64_t bytes = (int64_t)nnc_dtype_size((nnc_dtype)k->ins[id].dtype) *
                                  r->stage[s].vec * g->park * g->threads;
            r->slot_bytes = nnc_max64(r->slot_bytes, nnc_align_up(bytes, 16));
        }
}

bool cu_rows_plan(cu_rows *r, const nnc_kernel *k, const nnc_kgrid *g)
{
    size_t ins = (size_t)k->n_ins + 1;
    *r = (cu_rows){.keep = g->keep};
    r->stage = nnc_calloc((size_t)k->n_stage + 1, sizeof *r->stage);
    r->as = nnc_calloc(ins, sizeof *r->as);
    r->held = nnc_calloc(ins + (size_t)k->n_buf, 1);
    r->slot = nnc_malloc(ins);
    if (!r->stage || !r->as || !r->held || !r->slot)
        return false;
    memset(r->slot, -1, ins);
    r->in_registers = r->held + ins;
    for (int32_t id = 0; id < k->n_ins; id++)
        r->as[id] = -1;
    for (int i = 0; i < k->n_stage; i++) {
        const nnc_kstage *s = &k->stage[i];
        cu_spread *p = &r->stage[i];
        p->spread = own(k, s, KA_map) | own(k, s, KA_reduce);
        p->vec = g->cls == KC_column ? 1 : stage_vec(k, s, p->spread, g->vec);
        p->units = nnc_kernel_points(k, p->spread) / p->vec;
        p->trips = (p->units + g->group - 1) / g->group;
    }
    bool few = k->n_ins <= KEEP_INS;
    if (few && g->keep > 0)
        keep_loads(r, k, g);
    for (int b = 0; few && g->keep > 0 && b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp)
            keep_tmp(r, k, b);
    if (few && g->park > 0)
        park(r, k, g);
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp && !r->in_registers[b])
            r->scratch += nnc_align_up(k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype), 16);
    return true;
}

void cu_rows_deinit(cu_rows *r)
{
    nnc_free(r->stage);
    nnc_free(r->as);
    nnc_free(r->held);
    nnc_free(r->slot);
}

/* ---- partial results of a group, and of a split kernel ---- */

int64_t cu_all_points(const nnc_kernel *k)
{
    return nnc_kernel_points(k, (1u << k->n_outer) - 1);
}

int64_t cu_part_at(const nnc_kernel *k, int split, int32_t id)
{
    int64_t at = 0, n = 0;
    for (int32_t i = 0; i < id; i++)
        if (k->ins[i].op == KO_reduce) {
            int size = nnc_dtype_size((nnc_dtype)k->ins[i].dtype);
            if (!nnc_mul_ok(cu_all_points(k), (int64_t)size * split, &n) || n > (int64_t)1 << 40)
                return -1;
            at += nnc_align_up(n, 16);
        }
    return at;
}

int64_t cu_work(const nnc_kernel *k, const nnc_kgrid *g)
{
    return cu_part_at(k, g->split, k->n_ins);
}

int64_t cu_part_bytes(const nnc_kernel *k)
{
    int64_t bytes = 0;
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_reduce) {
            int size = nnc_dtype_size((nnc_dtype)k->ins[k->ins[i].arg[0]].dtype);
            bytes += (size > 4 ? size : 4) + (k->ins[i].sop >= KR_argmax ? 8 : 0);
        }
    return bytes;
}

int cu_finish_group(const nnc_kernel *k, const nnc_kgrid *g)
{
    return g->split >= MANY_PARTS && cu_part_bytes(k) * g->threads <= 48 << 10 ? g->threads / 32
                                                                               : 1;
}
