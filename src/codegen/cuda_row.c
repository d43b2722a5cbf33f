/* codegen/cuda_row.c -- threads that share a point: each stage's own axes are spread over the group; sums of the group go
 * through shuffles (a warp or a part of it) or shared memory. In rows the group is neighbouring threads and vectors lie along
 * own axes; in columns neighbouring threads have neighbouring points, vectors lie along that outer axis, and the group
 * is one thread of each warp. What several stages load from the same place, and what one
 * stage keeps for another, stays in registers where a thread's share of the row is small enough. */
#include "codegen/cuda.h"

#include <string.h>

enum {
    KEEP_INS = 4096, /* instructions of a kernel whose loads are compared with each other */
    MANY_PARTS = 16 /* of a point, for the second launch to put several threads on it */
};

/* ---- how stages are spread ---- */

static int64_t product(const nnc_kernel *k, uint32_t axes)
{
    int64_t n = 1;
    for (int a = 0; a < k->n_axis; a++)
        if ((axes >> a & 1) && !nnc_mul_ok(n, k->axis[a].extent, &n))
            return INT64_MAX;
    return n;
}

static uint32_t own(const nnc_kernel *k, const nnc_kstage *s, nnc_kaxis_kind kind)
{
    uint32_t m = 0;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if ((s->axes >> a & 1) && k->axis[a].kind == kind && k->axis[a].extent > 1)
            m |= 1u << a;
    return m;
}

static int last_of(uint32_t axes)
{
    return axes ? 31 - __builtin_clz(axes) : -1;
}

/* Accesses of the stage that are neighbours along axis a. */
static int unit_strides(const nnc_kernel *k, const nnc_kstage *s, int a)
{
    int n = 0;
    for (int32_t i = s->body0; a >= 0 && i < s->post1; i++)
        n += (k->ins[i].op == KO_load || k->ins[i].op == KO_store) && k->ins[i].at.k[a] == 1;
    return n;
}

static uint32_t spread_axes(const nnc_kernel *k, const nnc_kstage *s, int group)
{
    uint32_t map = own(k, s, KA_map), reduce = own(k, s, KA_reduce);
    if (!map || !reduce)
        return map | reduce;
    int64_t m = product(k, map), r = product(k, reduce);
    bool along = unit_strides(k, s, last_of(map)) >= unit_strides(k, s, last_of(reduce));
    if (m >= group && (along || r < group))
        return map;
    return r >= group || r > m ? reduce : map;
}

static int stage_vec(const nnc_kernel *k, const nnc_kstage *s, uint32_t spread, int most)
{
    int a = last_of(spread);
    for (int vec = most; a >= 0 && vec > 1; vec /= 2)
        for (int32_t i = s->body0; i < s->post1 && k->axis[a].extent % vec == 0; i++)
            if ((k->ins[i].op == KO_load || k->ins[i].op == KO_store) &&
                cu_vector(k, &k->ins[i], a, vec))
                return vec;
    return 1;
}

/* Same place at the same step of the same thread? Spread axes count in pairs. */
static bool same_place(
    const nnc_kernel *k, const nnc_kins *x, uint32_t sx, const nnc_kins *y, uint32_t sy)
{
    if (x->buf != y->buf || x->at.c != y->at.c)
        return false;
    for (int a = 0; a < k->n_axis; a++) {
        bool free = !(sx >> a & 1) && x->at.k[a] && a >= k->n_outer;
        if (free || (!(sy >> a & 1) && y->at.k[a] && a >= k->n_outer))
            return false;
        if (a < k->n_outer && x->at.k[a] != y->at.k[a])
            return false;
    }
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

/* Is id in the body of a stage whose only loop is its spread? */
static bool in_spread(const cu_rows *r, const nnc_kstage *s, int g, int32_t id)
{
    return r->stage[g].spread && r->stage[g].trips <= r->keep && id < s->post1 &&
           !r->stage[g].serial;
}

/* One access for all lanes, or the same for all: what a register array of vectors can hold. */
static bool in_one(const nnc_kernel *k, const nnc_kgrid *g, const cu_spread *p, const nnc_kins *in)
{
    int axis = g->cls == KC_column ? g->axis : last_of(p->spread);
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

/* A tmp buffer that is stored once and loaded from the same places only: its value is held. */
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

bool cu_rows_plan(cu_rows *r, const nnc_kernel *k, const nnc_kgrid *g)
{
    size_t ins = (size_t)k->n_ins + 1;
    *r = (cu_rows){.keep = g->keep};
    r->stage = nnc_calloc((size_t)k->n_stage + 1, sizeof *r->stage);
    r->as = nnc_calloc(ins, sizeof *r->as);
    r->held = nnc_calloc(ins + (size_t)k->n_buf, 1);
    if (!r->stage || !r->as || !r->held)
        return false;
    r->in_registers = r->held + ins;
    for (int32_t id = 0; id < k->n_ins; id++)
        r->as[id] = -1;
    for (int i = 0; i < k->n_stage; i++) {
        const nnc_kstage *s = &k->stage[i];
        cu_spread *p = &r->stage[i];
        uint32_t all = own(k, s, KA_map) | own(k, s, KA_reduce);
        p->spread = spread_axes(k, s, g->group);
        p->serial = all & ~p->spread;
        p->vec = g->cls == KC_column ? 1 : stage_vec(k, s, p->spread, g->vec);
        p->units = product(k, p->spread) / p->vec;
        p->trips = (p->units + g->group - 1) / g->group;
    }
    bool few = k->n_ins <= KEEP_INS;
    if (few && g->keep > 0)
        keep_loads(r, k, g);
    for (int b = 0; few && g->keep > 0 && b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp)
            keep_tmp(r, k, b);
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
}

/* ---- loops ---- */

/* Spread axes from unit j, the last fastest. */
static void place_spread(cu *c, uint32_t axes, uint32_t used, int vec)
{
    int64_t below = 1;
    for (int a = c->k->n_axis - 1; a >= 0; a--) {
        if (!(axes >> a & 1))
            continue;
        int v = a == last_of(axes) ? vec : 1;
        int64_t count = c->k->axis[a].extent / v;
        uint32_t rest = axes & ((1u << a) - 1);
        int64_t from = below;
        below *= count;
        if (!(used >> a & 1))
            continue;
        cu_indent(c);
        nnc_printf(c->t, "const %s %s = j", cu_index(c), c->axis_name[a]);
        if (from > 1)
            nnc_printf(c->t, " / %lld", (long long)from);
        if (rest)
            nnc_printf(c->t, " %% %lld", (long long)count);
        if (v > 1)
            nnc_printf(c->t, " * %d", v);
        nnc_puts(c->t, ";\n");
    }
}

/* Returns how many scopes it opened. */
static int open_spread(cu *c, const nnc_kstage *s, const cu_spread *p, bool kept)
{
    int group = c->g->group, scopes = 1;
    long long units = (long long)p->units;
    int a = last_of(p->spread);
    bool single = __builtin_popcount(p->spread) == 1 && p->vec == 1;
    const char *j = single ? c->axis_name[a] : "j";
    bool named = cu_axes_used(c, s) & p->spread;
    c->unroll = p->trips == 1 ? "0" : "k";
    if (kept && p->trips > 1) {
        cu_line(c, "#pragma unroll");
        cu_open(c, "for (int k = 0; k < %lld; k++) {", (long long)p->trips);
        if (named || p->units % group)
            cu_line(c, "const %s %s = t + k * %d;", cu_index(c), j, group);
        if (p->units % group) {
            cu_open(c, "if (%s < %lld) {", j, units);
            scopes++;
        }
    } else if (c->g->split > 1) {
        cu_line(c, "#pragma unroll 4"); /* loads in flight, also where trips are few */
        cu_open(c, "for (%s %s = slice * %d + t; %s < %lld; %s += %d) {", cu_index(c), j, group, j,
            units, j, group * c->g->split);
    } else if (p->units <= group) {
        if (p->units < group)
            cu_open(c, "if (t < %lld) {", units);
        else
            cu_open(c, "{");
        if (named)
            cu_line(c, "const %s %s = t;", cu_index(c), j);
    } else {
        cu_open(c, "for (%s %s = t; %s < %lld; %s += %d) {", cu_index(c), j, j, units, j, group);
    }
    if (!single)
        place_spread(c, p->spread, cu_axes_used(c, s), p->vec);
    return scopes;
}

static int open_serial(cu *c, uint32_t axes)
{
    int n = 0;
    for (int a = c->k->n_outer; a < c->k->n_axis; a++)
        if (axes >> a & 1) {
            cu_open(c, "for (%s %s = 0; %s < %lld; %s++) {", cu_index(c), c->axis_name[a],
                c->axis_name[a], (long long)c->k->axis[a].extent, c->axis_name[a]);
            n++;
        }
    return n;
}

static void close_all(cu *c, int n)
{
    while (n-- > 0)
        cu_close(c, "}");
}

/* ---- sums of the group ---- */

static bool across_warps(const cu *c)
{
    return c->g->group > 32 || (c->g->cls == KC_column && c->g->group > 1);
}

static void join_one(cu *c, int32_t id, bool again)
{
    const nnc_kins *in = &c->k->ins[id];
    const char *type = cu_type((nnc_dtype)c->k->ins[in->arg[0]].dtype);
    const char *red = nnc_kred_names[in->sop];
    bool arg = in->sop >= KR_argmax, column = c->g->cls == KC_column;
    bool block = c->g->group > 32 || column;
    int parts = column ? c->g->threads : c->g->threads / 32;
    const char *how = column ? "column" : "block";
    if (block && !again) {
        cu_line(
            c, "__shared__ %s part_%d[%d];", type, id, c->v[id].lanes ? parts * c->lanes : parts);
        if (arg)
            cu_line(c, "__shared__ %s place_%d[%d];", cu_index(c), id, parts);
    }
    if (arg && block)
        cu_line(c, "nnc_%s_arg<%d, nnc_join_%s>(best_%d, %s_%d, part_%d, place_%d);", how,
            c->g->group, red, id, red, id, id, id);
    else if (arg)
        cu_line(c, "nnc_warp_arg<%d, nnc_join_%s>(best_%d, %s_%d);", c->g->group, red, id, red, id);
    else if (block)
        cu_line(c, "%s_%d = nnc_%s<%d, nnc_join_%s>(%s_%d, part_%d);", red, id, how, c->g->group,
            red, red, id, id);
    else
        cu_line(c, "%s_%d = nnc_warp<%d, nnc_join_%s>(%s_%d);", red, id, c->g->group, red, red, id);
}

static void join(cu *c, const nnc_kstage *s, bool in_loop)
{
    bool any = false;
    if (c->g->group == 1)
        return;
    for (int32_t id = s->body0; id < s->body1; id++)
        if (c->k->ins[id].op == KO_reduce && c->v[id].live) {
            join_one(c, id, false);
            any = true;
        }
    if (any && in_loop && across_warps(c)) /* the next point of the loop writes the parts again */
        cu_line(c, "__syncthreads();");
}

/* ---- stages ---- */

static bool touches(const nnc_kernel *k, const nnc_kstage *s, int b, int op)
{
    for (int32_t id = s->body0; id < s->post1; id++)
        if (k->ins[id].op == op && k->ins[id].buf == b)
            return true;
    return false;
}

/* Threads of the group wait for each other before stage i, where it reads what others have
 * written since the last time, or writes what others have read. */
static void wait_before(cu *c, const cu_rows *r, int i, int *since)
{
    const nnc_kernel *k = c->k;
    bool wait = false;
    for (int b = 0; b < k->n_buf; b++) {
        if (k->buf[b].role == KB_in || (k->buf[b].role == KB_tmp && r->in_registers[b]))
            continue;
        for (int j = *since; j < i; j++) {
            bool wrote = touches(k, &k->stage[j], b, KO_store);
            bool read = touches(k, &k->stage[j], b, KO_load);
            wait |= wrote && touches(k, &k->stage[i], b, KO_load);
            wait |= read && touches(k, &k->stage[i], b, KO_store);
        }
    }
    if (!wait || c->g->group == 1)
        return;
    cu_line(c, across_warps(c) ? "__syncthreads();" : "__syncwarp();");
    *since = i;
}

/* Loads that this stage is the first to need. */
static void load_held(cu *c, const cu_rows *r, const nnc_kstage *s)
{
    for (int32_t id = s->body0; id < s->post1; id++)
        if (c->k->ins[id].op == KO_load && r->held[id] && r->as[id] < 0)
            cu_load(c, id);
}

static bool uses_held(const cu *c, const cu_rows *r, const nnc_kstage *s)
{
    for (int32_t id = s->body0; id < s->post1; id++)
        if (r->held[id] && c->v[id].live)
            return true;
    return false;
}

static int64_t all_points(const nnc_kernel *k)
{
    return product(k, (1u << k->n_outer) - 1);
}

/* Where the parts of reduction id begin in `work`: [slice][point]; id = k->n_ins: how long all are. */
static int64_t part_at(const nnc_kernel *k, int split, int32_t id)
{
    int64_t at = 0, n = 0;
    for (int32_t i = 0; i < id; i++)
        if (k->ins[i].op == KO_reduce) {
            int size = nnc_dtype_size((nnc_dtype)k->ins[i].dtype);
            if (!nnc_mul_ok(all_points(k), (int64_t)size * split, &n) || n > (int64_t)1 << 40)
                return -1;
            at += nnc_align_up(n, 16);
        }
    return at;
}

int64_t cu_work(const nnc_kernel *k, const nnc_kgrid *g)
{
    return part_at(k, g->split, k->n_ins);
}

static void open_parts(cu *c, int32_t id)
{
    const char *type = cu_type((nnc_dtype)c->k->ins[id].dtype);
    cu_line(c, "%s *const parts_%d = reinterpret_cast<%s *>(work + %lld);", type, id, type,
        (long long)part_at(c->k, c->g->split, id));
}

static void store_parts(cu *c, const nnc_kstage *s, const char *lead)
{
    const char *unit = strstr(lead, "live") ? "q" : "p";
    int vec = c->g->cls == KC_column ? c->g->vec : 1;
    for (int32_t id = s->body0; id < s->body1; id++) {
        if (c->k->ins[id].op != KO_reduce || !c->v[id].live)
            continue;
        open_parts(c, id);
        cu_indent(c);
        nnc_printf(c->t, "if (%s)\n", lead);
        c->depth++;
        if (c->v[id].lanes) {
            cu_line(c, "#pragma unroll");
            cu_line(c, "for (int e = 0; e < %d; e++)", vec);
            cu_line(c, "    parts_%d[slice * %lldll + %s * %d + e] = %s_%d[e];", id,
                (long long)all_points(c->k), unit, vec, nnc_kred_names[c->k->ins[id].sop], id);
        } else {
            cu_line(c, "parts_%d[slice * %lldll + %s] = %s_%d;", id, (long long)all_points(c->k),
                unit, nnc_kred_names[c->k->ins[id].sop], id);
        }
        c->depth--;
    }
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

/* The point that a thread of the second launch joins, q; with a group, t is its row in the group. */
static void place_finish(cu *c, int group, long long n)
{
    const char *wide = c->g->index == 64 ? "(long long)" : "";
    if (group == 1) {
        cu_line(
            c, "const %s q = %sblockIdx.x * %d + threadIdx.x;", cu_index(c), wide, c->g->threads);
        cu_line(c, "if (q >= %lld)", n);
        cu_line(c, "    return;");
        return;
    }
    cu_line(c, "const int t = threadIdx.x / 32;");
    cu_line(c, "const %s %s = %sblockIdx.x * 32 + threadIdx.x %% 32;", cu_index(c),
        n % 32 ? "p" : "q", wide);
    if (n % 32)
        cu_line(c, "const %s q = p < %lld ? p : %lld;", cu_index(c), n, n - 1);
}

/* The second launch: threads join the parts of a point, each thread in their order, then the threads in theirs. */
void cu_finish(cu *c)
{
    const nnc_kstage *s = &c->k->stage[0];
    const int group = cu_finish_group(c->k, c->g);
    nnc_kgrid g = *c->g;
    long long n = (long long)all_points(c->k);
    g.vec = 1;
    c->g = &g;
    c->store_if = NULL;
    for (int32_t id = s->body0; id < s->post1; id++) {
        c->v[id].live &= id >= s->body1 || c->k->ins[id].op == KO_reduce;
        c->v[id].lanes = false; /* the first launch stored vectors */
    }
    cu_analyse(c, s, -1, 1);
    place_finish(c, group, n);
    cu_place(c, "q");
    cu_declare(c, s);
    for (int32_t id = s->body0; id < s->body1; id++) {
        if (c->k->ins[id].op != KO_reduce || !c->v[id].live)
            continue;
        const char *red = nnc_kred_names[c->k->ins[id].sop];
        open_parts(c, id);
        cu_line(c, "#pragma unroll 8");
        cu_line(c, "for (int s = %s; s < %d; s += %d)", group > 1 ? "t" : "0", g.split, group);
        cu_line(c, "    %s_%d = nnc_join_%s()(%s_%d, parts_%d[s * %lldll + q]);", red, id, red, red,
            id, id, n);
        if (group == 1)
            continue;
        cu_line(c, "__shared__ %s part_%d[%d];", cu_type((nnc_dtype)c->k->ins[id].dtype), id,
            g.threads);
        cu_line(c, "%s_%d = nnc_column<%d, nnc_join_%s>(%s_%d, part_%d);", red, id, group, red, red,
            id, id);
    }
    if (group > 1) {
        cu_line(c, n % 32 ? "if (t > 0 || p >= %lld)" : "if (t > 0)", n);
        cu_line(c, "    return;");
    }
    cu_section(c, s, s->post0, s->post1);
}

static void stage(cu *c, const cu_rows *r, int i, const char *live, const char *lead)
{
    const nnc_kstage *s = &c->k->stage[i];
    const cu_spread *p = &r->stage[i];
    bool maps = p->spread && c->k->axis[last_of(p->spread)].kind == KA_map;
    int loops = 0, serial;
    c->store_if = live;
    if (c->g->cls == KC_row) {
        c->axis = p->vec > 1 ? last_of(p->spread) : -1;
        c->lanes = p->vec;
    }
    if (!maps)
        loops = open_serial(c, p->serial);
    if (!maps)
        cu_declare(c, s);
    int scopes = p->spread ? open_spread(c, s, p, uses_held(c, r, s)) : 0;
    if (maps) {
        load_held(c, r, s);
        cu_declare(c, s);
        serial = open_serial(c, p->serial);
        cu_section(c, s, s->body0, s->body1);
        close_all(c, serial);
        cu_finish_arg(c, s);
        cu_section(c, s, s->post0, s->post1);
        close_all(c, scopes);
        return;
    }
    load_held(c, r, s);
    if (!p->spread)
        c->store_if = lead;
    cu_section(c, s, s->body0, s->body1);
    close_all(c, scopes);
    if (p->spread)
        join(c, s, loops > 0);
    if (c->g->finish > 0) {
        store_parts(c, s, lead);
        return;
    }
    cu_finish_arg(c, s);
    c->store_if = lead;
    if (c->g->cls == KC_row)
        c->lanes = 1;
    cu_section(c, s, s->post0, s->post1);
    close_all(c, loops);
}

/* ---- the kernel ---- */

static void declare_held(cu *c, const cu_rows *r)
{
    for (int i = 0; i < c->k->n_stage; i++)
        for (int32_t id = c->k->stage[i].body0; id < c->k->stage[i].post1; id++) {
            const char *type = cu_type((nnc_dtype)c->k->ins[id].dtype);
            c->v[id].held = r->held[id];
            c->v[id].as = r->as[id];
            if (r->as[id] >= 0)
                c->v[id].lanes = c->v[r->as[id]].lanes;
            if (!r->held[id] || r->as[id] >= 0 || !c->v[id].live)
                continue;
            if (c->k->ins[id].op == KO_sop && c->v[id].varies)
                c->v[id].lanes = true;
            cu_indent(c);
            if (c->v[id].lanes)
                nnc_printf(c->t, "nnc_vec<%s, %d> ", type,
                    c->g->cls == KC_column ? c->g->vec : r->stage[i].vec);
            else
                nnc_printf(c->t, "%s ", type);
            cu_name(c, id);
            nnc_printf(c->t, "[%lld];\n", (long long)r->stage[i].trips);
        }
}

static void place_tmp(cu *c, const cu_rows *r)
{
    const nnc_kernel *k = c->k;
    bool shared = !c->g->spill;
    int64_t at = 0;
    if (r->scratch == 0)
        return;
    if (shared)
        cu_line(c, "NNC_DYNAMIC(shared);");
    for (int b = 0; b < k->n_buf; b++) {
        if (k->buf[b].role != KB_tmp || r->in_registers[b])
            continue;
        const char *type = cu_storage(k->buf[b].dtype);
        cu_indent(c);
        nnc_printf(c->t, "%s *const %s = reinterpret_cast<%s *>(", type, c->buf_name[b], type);
        if (shared && c->g->group == c->g->threads)
            nnc_puts(c->t, "shared");
        else if (shared)
            nnc_printf(
                c->t, "shared + threadIdx.x / %d * %lld", c->g->group, (long long)r->scratch);
        else
            nnc_printf(c->t, "work + (long long)p * %lld", (long long)r->scratch);
        if (at > 0)
            nnc_printf(c->t, " + %lld", (long long)at);
        nnc_puts(c->t, ");\n");
        at += nnc_align_up(k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype), 16);
    }
}

/* t: which thread of its group; p: the group's point, or the vector of points. */
static void place_threads(cu *c, int per_block, bool point)
{
    const nnc_kgrid *g = c->g;
    const char *wide = g->index == 64 ? "(long long)" : "", *block = "blockIdx.x";
    if (g->split > 1) {
        cu_line(
            c, "const int slice = blockIdx.x %% %d, block = blockIdx.x / %d;", g->split, g->split);
        block = "block";
    }
    if (g->cls == KC_column) {
        cu_line(c, "const int t = threadIdx.x / 32;");
        cu_line(c, "const %s p = %s%s * 32 + threadIdx.x %% 32;", cu_index(c), wide, block);
    } else if (per_block == 1) {
        cu_line(c, "const int t = threadIdx.x;");
        if (point)
            cu_line(c, "const %s p = %s;", cu_index(c), block);
    } else if (g->group == 1) {
        cu_line(c, "const int t = 0;");
        cu_line(c, "const %s p = %s%s * %d + threadIdx.x;", cu_index(c), wide, block, per_block);
    } else {
        cu_line(c, "const int t = threadIdx.x %% %d;", g->group);
        cu_line(c, "const %s p = %s%s * %d + threadIdx.x / %d;", cu_index(c), wide, block,
            per_block, g->group);
    }
}

void cu_row(cu *c)
{
    const nnc_kgrid *g = c->g;
    int per_block = g->threads / g->group, since = 0;
    int64_t points = product(c->k, (1u << c->k->n_outer) - 1);
    cu_rows r;
    if (!cu_rows_plan(&r, c->k, g)) {
        c->t->oom = true;
        cu_rows_deinit(&r);
        return;
    }
    if (g->cls == KC_column)
        points /= g->vec;
    bool inexact = points % per_block != 0;
    cu_find_outside(c);
    for (int i = 0; i < c->k->n_stage; i++)
        if (g->cls == KC_column)
            cu_analyse(c, &c->k->stage[i], g->axis, g->vec);
        else
            cu_analyse(c, &c->k->stage[i], last_of(r.stage[i].spread), r.stage[i].vec);
    uint32_t used = 0;
    for (int i = 0; i < c->k->n_stage; i++)
        used |= cu_axes_used(c, &c->k->stage[i]);
    bool point = g->spill || g->split > 1;
    for (int a = 0; a < c->k->n_outer; a++)
        point |= (used >> a & 1) && c->k->axis[a].extent > 1;
    place_threads(c, per_block, point);
    if (inexact) {
        cu_line(c, "const bool live = p < %lld;", (long long)points);
        if (point)
            cu_line(c, "const %s q = live ? p : %lld;", cu_index(c), (long long)points - 1);
    }
    cu_place(c, inexact ? "q" : "p");
    place_tmp(c, &r);
    c->unroll = "k";
    c->kept = r.in_registers;
    declare_held(c, &r);
    for (int i = 0; i < c->k->n_stage; i++) {
        wait_before(c, &r, i, &since);
        stage(c, &r, i, inexact ? "live" : NULL, inexact ? "t == 0 && live" : "t == 0");
    }
    c->kept = NULL;
    cu_rows_deinit(&r);
}
