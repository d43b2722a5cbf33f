/* codegen/cuda_row.c -- groups of threads that share a point. Each stage's own axes are distributed over the group. Its partial sums are
 * combined through shuffles (a warp or part of one) or shared memory. In rows, the group is neighbouring threads, and vectors run along own
 * axes. In columns, neighbouring threads have neighbouring points and vectors run along that outer axis; the group is one thread of each
 * warp. Values that several stages load from one address, or one keeps for another, stay in registers where a thread's share is small
 * enough. */
#include "codegen/cuda.h"

#include <string.h>

/* ---- loops ---- */

/* Declares the indices of the distributed axes from work item j, the last varying fastest. */
static void place_spread(cu *c, uint32_t axes, uint32_t used, int vec)
{
    int64_t below = 1;
    for (int a = c->k->n_axis - 1; a >= 0; a--) {
        if (!(axes >> a & 1))
            continue;
        int v = a == cu_last_axis(axes) ? vec : 1;
        int64_t count = c->k->axis[a].extent / v;
        uint32_t rest = axes & ((1u << a) - 1);
        int64_t from = below;
        below *= count;
        if (!(used >> a & 1))
            continue;
        cu_digit(c, c->axis_name[a], "j", from, rest ? count : 0, v);
    }
}

/* Unrolled steps of a split sum's loop. They keep some 64 bytes per thread in flight, even in loops of few iterations. */
static int unrolled(const cu *c, const nnc_kstage *s, const cu_spread *p)
{
    const int vec = c->g->cls == KC_column ? c->g->vec : p->vec;
    int bytes = 0;
    for (int32_t i = s->body0; i < s->body1; i++) {
        const nnc_kins *in = &c->k->ins[i];
        if (in->op == KO_load && nnc_kins_axes(in) & p->spread)
            bytes += vec * nnc_dtype_size(c->k->buf[in->buf].dtype);
    }
    return bytes >= 32 ? 2 : 4;
}

/* The loop of a split sum over j. If the step is a parameter, the loop counts iterations: NVRTC finds their number only where it knows the
 * step. Otherwise it would have no loads in flight together. */
static void open_split(cu *c, const nnc_kstage *s, const cu_spread *p, const char *j)
{
    const int64_t group = c->g->group, step = group * c->g->split;
    if (!c->sizes) {
        cu_line(c, "#pragma unroll %d", unrolled(c, s, p));
        cu_open(
            c, "for (%T %s = slice * %i + t; %s < %i; %s += %i) {", j, group, j, p->units, j, step);
        return;
    }
    cu_indent(c);
    cu_put(c, "const %T steps = (%z - slice * %i - t) / ", p->units + step - 1, group);
    cu_divisor(c, step);
    nnc_puts(c->t, ";\n");
    cu_line(c, "#pragma unroll %d", unrolled(c, s, p));
    cu_open(c, "for (%T step = 0; step < steps; step++) {");
    cu_line(c, "const %T %s = slice * %i + t + step * %z;", j, group, step);
}

/* Returns the number of scopes opened. */
static int open_spread(cu *c, const nnc_kstage *s, const cu_spread *p, bool kept)
{
    int group = c->g->group, scopes = 1;
    int a = cu_last_axis(p->spread);
    bool single = __builtin_popcount(p->spread) == 1 && p->vec == 1;
    const char *j = single ? c->axis_name[a] : "j";
    bool named = cu_axes_used(c, s) & p->spread;
    c->unroll = p->trips == 1 ? "0" : "k";
    if (kept && p->trips > 1) {
        cu_line(c, "#pragma unroll");
        cu_open(c, "for (int k = 0; k < %lld; k++) {", (long long)p->trips);
        if (named || p->units % group)
            cu_line(c, "const %T %s = t + k * %d;", j, group);
        if (p->units % group) {
            cu_open(c, "if (%s < %z) {", j, p->units);
            scopes++;
        }
    } else if (c->g->split > 1) {
        open_split(c, s, p, j);
    } else if (p->units <= group) {
        if (p->units < group)
            cu_open(c, "if (t < %z) {", p->units);
        else
            cu_open(c, "{");
        if (named)
            cu_line(c, "const %T %s = t;", j);
    } else {
        cu_open(c, "for (%T %s = t; %s < %z; %s += %d) {", j, j, p->units, j, group);
    }
    if (!single)
        place_spread(c, p->spread, cu_axes_used(c, s), p->vec);
    return scopes;
}

/* ---- combining a group's partial sums ---- */

static bool across_warps(const cu *c)
{
    return c->g->group > 32 || (c->g->cls == KC_column && c->g->group > 1);
}

static const char *sum_type(const cu *c, int32_t id)
{
    return cu_type((nnc_dtype)c->k->ins[c->k->ins[id].arg[0]].dtype);
}

static void join_one(cu *c, int32_t id)
{
    const char *type = sum_type(c, id), *red = nnc_kred_names[c->k->ins[id].sop];
    bool arg = c->k->ins[id].sop >= KR_argmax, column = c->g->cls == KC_column;
    bool block = c->g->group > 32 || column;
    if (block) {
        const int parts = column ? c->g->threads : c->g->threads / 32;
        cu_line(c, "__shared__ %s part_%d[%d];", type, id, parts);
        if (arg)
            cu_line(c, "__shared__ %T place_%d[%d];", id, parts);
    }
    if (arg && block)
        cu_line(c, "nnc_%s_arg<%d, nnc_combine_%s>(best_%d, %n, part_%d, place_%d);",
            column ? "column" : "block", c->g->group, red, id, id, id, id);
    else if (arg)
        cu_line(c, "nnc_warp_arg<%d, nnc_combine_%s>(best_%d, %n);", c->g->group, red, id, id);
    else if (block)
        cu_line(
            c, "%n = nnc_block<%d, nnc_combine_%s>(%n, part_%d);", id, c->g->group, red, id, id);
    else
        cu_line(c, "%n = nnc_warp<%d, nnc_combine_%s>(%n);", id, c->g->group, red, id);
}

static bool joins(const cu *c, int32_t id)
{
    return c->k->ins[id].op == KO_reduce && c->v[id].live;
}

/* Are reductions i and j of one kind, so that both may be combined at once? */
static bool alike(const cu *c, int32_t i, int32_t j)
{
    const nnc_kins *a = &c->k->ins[i], *b = &c->k->ins[j];
    return joins(c, j) && a->sop == b->sop && a->sop < KR_argmax && a->dtype == b->dtype &&
           c->k->ins[a->arg[0]].dtype == c->k->ins[b->arg[0]].dtype &&
           c->v[i].lanes == c->v[j].lanes;
}

/* Combines n reductions, a power of two up to 32, for the first thread of the group. */
static void join_all(cu *c, const int32_t *id, int n)
{
    const char *type = sum_type(c, id[0]);
    cu_line(c, "__shared__ %s part_%d[%d];", type, id[0], c->g->threads / 32 * n);
    cu_line(c, "%s all_%d[%d] = {", type, id[0], n);
    for (int i = 0; i < n; i++)
        cu_line(c, i < n - 1 ? "    %n," : "    %n};", id[i]);
    cu_line(c, "nnc_block_all<%d, %d, nnc_combine_%s>(all_%d, part_%d);", c->g->group, n,
        nnc_kred_names[c->k->ins[id[0]].sop], id[0], id[0]);
    for (int i = 0; i < n; i++)
        cu_line(c, "%n = all_%d[%d];", id[i], id[0], i);
}

static void assign_lanes(cu *c, const int32_t *id, int n, int lanes, bool back)
{
    if (lanes > 1) {
        cu_line(c, "#pragma unroll");
        cu_open(c, "for (int e = 0; e < %d; e++)%s", lanes, n > 1 ? " {" : "");
    }
    for (int i = 0; i < n; i++) {
        char at[24];
        snprintf(at, sizeof at, lanes > 1 ? "%d + e" : "%d", i * lanes);
        const char *e = lanes > 1 ? "[e]" : "";
        if (back)
            cu_line(c, "%n%s = all_%d[%s];", id[i], e, id[0], at);
        else
            cu_line(c, "all_%d[%s] = %n%s;", id[0], at, id[i], e);
    }
    if (lanes > 1 && n > 1)
        cu_close(c, "}");
    else if (lanes > 1)
        c->depth--;
}

/* Combines the rows of a column's threads, for n reductions at once, a power of two. all: every thread gets the results. */
static void join_column(cu *c, const int32_t *id, int n, int group, bool all)
{
    const int lanes = c->v[id[0]].lanes ? c->lanes : 1, parts = 32 * group * lanes * n;
    const char *type = sum_type(c, id[0]), *red = nnc_kred_names[c->k->ins[id[0]].sop];
    cu_line(c,
        lanes * n > 1 ? "alignas(16) __shared__ %s part_%d[%d];" : "__shared__ %s part_%d[%d];",
        type, id[0], parts);
    if (n == 1) {
        cu_line(c, "%n = nnc_column<%d, nnc_combine_%s, %s>(%n, part_%d);", id[0], group, red,
            all ? "true" : "false", id[0], id[0]);
        return;
    }
    cu_line(c, "nnc_vec<%s, %d> all_%d;", type, lanes * n, id[0]);
    assign_lanes(c, id, n, lanes, false);
    cu_line(c, "all_%d = nnc_column<%d, nnc_combine_%s, %s>(all_%d, part_%d);", id[0], group, red,
        all ? "true" : "false", id[0], id[0]);
    assign_lanes(c, id, n, lanes, true);
}

/* Combines the n reductions of a column, those of one kind at once. */
static void join_columns(cu *c, const int32_t *id, int n, int group, bool all)
{
    enum { MOST = 32 }; /* values of a thread */
    for (int i = 0, m, whole; i < n; i += whole) {
        const int lanes = c->v[id[i]].lanes ? c->lanes : 1;
        for (m = 1; i + m < n && (m + 1) * lanes <= MOST && alike(c, id[i], id[i + m]); m++)
            ;
        for (whole = 1; whole * 2 <= m; whole *= 2) /* a vector's length is a power of two */
            ;
        if (c->k->ins[id[i]].sop >= KR_argmax)
            join_one(c, id[i]);
        else
            join_column(c, id + i, whole, group, all);
    }
}

/* only_first: only stores of the group's first thread depend on the results. */
static void join_rows(cu *c, const int32_t *id, int n, bool only_first)
{
    enum { MOST = 32 };
    const bool many = only_first && c->g->group > 32;
    for (int i = 0, m, whole; i < n; i += whole) {
        for (m = 1; many && i + m < n && m < MOST && id[i + m] == id[i] + m && !c->v[id[i]].lanes &&
                    alike(c, id[i], id[i + m]);
             m++)
            ;
        for (whole = 1; whole * 2 <= m; whole *= 2)
            ;
        if (whole == 1)
            join_one(c, id[i]);
        else
            join_all(c, id + i, whole);
    }
}

/* The stage's reductions, allocated; *n: their number. NULL: out of memory. */
static int32_t *reductions_of(cu *c, const nnc_kstage *s, int *n)
{
    int32_t *id = nnc_malloc((size_t)(s->body1 - s->body0 + 1) * sizeof *id);
    *n = 0;
    c->t->oom |= !id;
    for (int32_t i = s->body0; id && i < s->body1; i++)
        if (joins(c, i))
            id[(*n)++] = i;
    return id;
}

static void join(cu *c, const nnc_kstage *s, bool only_first)
{
    int n;
    int32_t *id = reductions_of(c, s, &n);
    if (n > 0)
        c->synced = s->body1;
    if (c->g->group > 1 && c->g->cls == KC_column)
        join_columns(c, id, n, c->g->group, !only_first);
    else if (c->g->group > 1)
        join_rows(c, id, n, only_first);
    nnc_free(id);
}

/* ---- stages ---- */

static bool touches(const nnc_kernel *k, const nnc_kstage *s, int b, int op)
{
    for (int32_t id = s->body0; id < s->post1; id++)
        if (k->ins[id].op == op && k->ins[id].buf == b)
            return true;
    return false;
}

/* Synchronises the group before stage i if it reads data that other threads wrote since the last barrier, or overwrites data that they
 * read. */
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
    c->synced = k->stage[i].body0;
}

/* May store id, of the group's first thread, overwrite data that other threads have yet to load since the last barrier? Plans let a result
 * have an operand's memory (nnc_kernel_in_place). */
static bool overtakes(const cu *c, int32_t id)
{
    const nnc_kernel *k = c->k;
    for (int32_t l = c->synced; k->ins[id].op == KO_store && l < id; l++)
        if (k->ins[l].op == KO_load && nnc_kernel_may_overlay(k, k->ins[l].buf, k->ins[id].buf))
            return true;
    return false;
}

/* Writes a section that all threads of a group compute, with stores by the first one. */
static void first_stores(cu *c, const nnc_kstage *s, int32_t begin, int32_t end)
{
    for (int32_t id = begin; id < end && c->g->group > 1; id++) {
        if (!overtakes(c, id))
            continue;
        cu_section(c, s, begin, id);
        cu_line(c, across_warps(c) ? "__syncthreads();" : "__syncwarp();");
        c->synced = begin = id;
    }
    cu_section(c, s, begin, end);
}

/* Loads that this stage needs first. */
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

static void open_parts(cu *c, int32_t id)
{
    const char *type = cu_type((nnc_dtype)c->k->ins[id].dtype);
    cu_line(c, "%s *const parts_%d = reinterpret_cast<%s *>(work + %z);", type, id, type,
        cu_part_at(c->k, c->g->split, id));
}

static void store_parts(cu *c, const nnc_kstage *s, const char *lead)
{
    const char *unit = strstr(lead, "live") ? "q" : "p";
    int vec = c->g->cls == KC_column ? c->g->vec : 1;
    for (int32_t id = s->body0; id < s->body1; id++) {
        if (c->k->ins[id].op != KO_reduce || !c->v[id].live)
            continue;
        const int64_t points = cu_all_points(c->k);
        open_parts(c, id);
        cu_line(c, "if (%s)", lead);
        if (c->v[id].lanes) /* parts are 16-byte aligned, and vec divides the points */
            cu_line(c, "    nnc_store<%d>(&parts_%d[slice * %Z + %s * %d], %n);", vec, id, points,
                unit, vec, id);
        else
            cu_line(c, "    parts_%d[slice * %Z + %s] = %n;", id, points, unit, id);
    }
}

/* Declares q, the point that a thread of the second launch combines; in a group, t is the thread's row. */
static void place_finish(cu *c, int group, int64_t n)
{
    const char *wide = c->g->index == 64 ? "(long long)" : "";
    if (group == 1) {
        cu_line(c, "const %T q = %sblockIdx.x * %d + threadIdx.x;", wide, c->g->threads);
        cu_line(c, "if (q >= %z)", n);
        cu_line(c, "    return;");
        return;
    }
    cu_line(c, "const int t = threadIdx.x / 32;");
    cu_line(c, "const %T %s = %sblockIdx.x * 32 + threadIdx.x %% 32;", n % 32 ? "p" : "q", wide);
    if (n % 32)
        cu_line(c, "const %T q = p < %z ? p : %z;", n, n - 1);
}

/* Combines a thread's partial results in order, for all reductions in one loop, so that their loads are in flight together. */
static void finish_parts(cu *c, const int32_t *id, int n, int group, int64_t points)
{
    enum { FLIGHT = 8 }; /* loads */
    for (int i = 0; i < n; i++)
        open_parts(c, id[i]);
    cu_line(c, "#pragma unroll %d", n > 0 ? (FLIGHT + n - 1) / n : 1);
    cu_open(c, "for (int s = %s; s < %z; s += %d) {", group > 1 ? "t" : "0", (int64_t)c->g->split,
        group);
    for (int i = 0; i < n; i++)
        cu_line(c, "%n = nnc_combine_%s()(%n, parts_%d[s * %Z + q]);", id[i],
            nnc_kred_names[c->k->ins[id[i]].sop], id[i], id[i], points);
    cu_close(c, "}");
}

/* The second launch: each thread combines partial results of a point in order, then the group combines its threads' results in order. */
void cu_finish(cu *c)
{
    const int last = cu_split_stage(c->k);
    const nnc_kstage *s = &c->k->stage[last];
    const int group = cu_finish_group(c->k, c->g);
    nnc_kgrid g = *c->g;
    const int64_t n = cu_all_points(c->k);
    int sums;
    g.vec = 1;
    c->g = &g;
    c->store_if = NULL;
    for (int32_t i = s->body0; i < s->post1; i++) {
        c->v[i].live &= i >= s->body1 || c->k->ins[i].op == KO_reduce;
        c->v[i].lanes = false; /* the first launch stored vectors */
    }
    for (int32_t i = 0; i < s->body0; i++)
        c->v[i].lanes = false;
    for (int i = 0; i <= last; i++)
        cu_analyse(c, &c->k->stage[i], -1, 1);
    place_finish(c, group, n);
    cu_place(c, "q");
    for (int i = 0; i < last; i++)
        cu_section(c, &c->k->stage[i], c->k->stage[i].body0, c->k->stage[i].post1);
    cu_declare(c, s);
    int32_t *id = reductions_of(c, s, &sums);
    finish_parts(c, id, sums, group, n);
    if (group > 1) {
        join_columns(c, id, sums, group, false);
        cu_line(c, n % 32 ? "if (t > 0 || p >= %z)" : "if (t > 0)", n);
        cu_line(c, "    return;");
    }
    cu_section(c, s, s->post0, s->post1);
    nnc_free(id);
}

static void stage(cu *c, const cu_rows *r, int i, const char *live, const char *lead)
{
    const nnc_kstage *s = &c->k->stage[i];
    const cu_spread *p = &r->stage[i];
    bool maps = p->spread && c->k->axis[cu_last_axis(p->spread)].kind == KA_map;
    c->store_if = live;
    if (c->g->cls == KC_row) {
        c->axis = p->vec > 1 ? cu_last_axis(p->spread) : -1;
        c->lanes = p->vec;
    }
    if (!maps)
        cu_declare(c, s);
    int scopes = p->spread ? open_spread(c, s, p, uses_held(c, r, s)) : 0;
    if (maps) {
        load_held(c, r, s);
        cu_declare(c, s);
        cu_section(c, s, s->body0, s->body1);
        cu_finish_arg(c, s);
        cu_section(c, s, s->post0, s->post1);
        cu_close_all(c, scopes);
        return;
    }
    load_held(c, r, s);
    if (!p->spread) {
        c->store_if = lead;
        first_stores(c, s, s->body0, s->body1);
    } else {
        cu_section(c, s, s->body0, s->body1);
    }
    cu_close_all(c, scopes);
    if (p->spread)
        join(c, s, i == c->k->n_stage - 1);
    if (c->g->finish > 0 && i == cu_split_stage(c->k)) {
        store_parts(c, s, lead);
        return;
    }
    cu_finish_arg(c, s);
    c->store_if = lead;
    if (c->g->cls == KC_row)
        c->lanes = 1;
    first_stores(c, s, s->post0, s->post1);
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
            const int vec = c->g->cls == KC_column ? c->g->vec : r->stage[i].vec;
            if (r->slot[id] >= 0 && c->v[id].lanes) {
                cu_line(c, "nnc_kept<nnc_vec<%s, %d>, %d, %d> %n;", type, vec,
                    c->g->keep - c->g->park, c->g->threads, id);
                cu_line(c, "%n.rest = reinterpret_cast<nnc_vec<%s, %d> *>(shared + %lld) + t;", id,
                    type, vec, (long long)(r->scratch + r->slot[id] * r->slot_bytes));
                continue;
            }
            cu_typed(c, type, c->v[id].lanes ? vec : 1);
            cu_put(c, "%n[%lld];\n", id, (long long)r->stage[i].trips);
        }
}

static void place_tmp(cu *c, const cu_rows *r)
{
    const nnc_kernel *k = c->k;
    bool shared = !c->g->spill;
    int64_t at = 0;
    if (r->scratch == 0 && r->slots == 0)
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

/* t: the thread's index in its group; p: the group's point, or vector of points. */
static void place_threads(cu *c, int per_block, bool point)
{
    const nnc_kgrid *g = c->g;
    const char *wide = g->index == 64 ? "(long long)" : "", *block = "blockIdx.x";
    if (g->split > 1) {
        cu_indent(c);
        nnc_puts(c->t, "const int slice = blockIdx.x % ");
        cu_divisor(c, g->split);
        nnc_puts(c->t, ", block = blockIdx.x / ");
        cu_divisor(c, g->split);
        nnc_puts(c->t, ";\n");
        block = "block";
    }
    if (g->cls == KC_column) {
        cu_line(c, "const int t = threadIdx.x / 32;");
        cu_line(c, "const %T p = %s%s * 32 + threadIdx.x %% 32;", wide, block);
    } else if (per_block == 1) {
        cu_line(c, "const int t = threadIdx.x;");
        if (point)
            cu_line(c, "const %T p = %s;", block);
    } else if (g->group == 1) {
        cu_line(c, "const int t = 0;");
        cu_line(c, "const %T p = %s%s * %d + threadIdx.x;", wide, block, per_block);
    } else {
        cu_line(c, "const int t = threadIdx.x %% %d;", g->group);
        cu_line(c, "const %T p = %s%s * %d + threadIdx.x / %d;", wide, block, per_block, g->group);
    }
}

void cu_row(cu *c)
{
    const nnc_kgrid *g = c->g;
    int per_block = g->threads / g->group, since = 0;
    int64_t points = cu_all_points(c->k);
    NNC_LOCAL(cu_rows) r = {0};
    if (!cu_rows_plan(&r, c->k, g)) {
        c->t->oom = true;
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
            cu_analyse(c, &c->k->stage[i], cu_last_axis(r.stage[i].spread), r.stage[i].vec);
    uint32_t used = 0;
    for (int i = 0; i < c->k->n_stage; i++)
        used |= cu_axes_used(c, &c->k->stage[i]);
    bool point = g->spill || g->split > 1;
    for (int a = 0; a < c->k->n_outer; a++)
        point |= (used >> a & 1) && c->k->axis[a].extent > 1;
    place_threads(c, per_block, point);
    if (inexact) {
        cu_line(c, "const bool live = p < %z;", points);
        if (point)
            cu_line(c, "const %T q = live ? p : %z;", points - 1);
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
}
