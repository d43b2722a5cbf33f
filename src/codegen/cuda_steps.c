/* codegen/cuda_steps.c -- recurrences: a block has some rows of the batch ("lanes" of a section, along an outer axis). At each step its
 * threads lie along the elements, so that weights are read side by side. `group` rows of threads divide each sum. They combine partial
 * results through shared memory, each for other rows of the batch. `split` blocks are a cluster and divide the elements.
 *
 *     for steps, in order:
 *         for elements m of this thread:
 *             sums of terms t, t + group, ... for all rows
 *             for rows t, t + group, ...: the combined sums, and what the step stores
 *         __syncthreads(), or a barrier of the cluster */
#include "codegen/cuda.h"
#include "schedule/schedule.h"

#include <string.h>

enum {
    UNROLLED = 4, /* unrolled terms, unless loads are in flight */
    WIDE = CU_STEP_WIDE,
};

static int lanes(const cu *c)
{
    return c->g->threads / c->g->group;
}

/* Returns the number of loops opened. */
static int open_axes(cu *c, uint32_t axes)
{
    int n = 0;
    for (int a = c->k->n_outer; a < c->k->n_axis; a++)
        if (axes >> a & 1 && c->k->axis[a].extent > 1) {
            const char *x = c->axis_name[a];
            cu_open(
                c, "for (%T %s = 0; %s < %lld; %s++) {", x, x, (long long)c->k->axis[a].extent, x);
            n++;
        }
    return n;
}

/* The loop over a thread's terms of a sum: every group-th of the last axis, or every group-th run of `flight` terms. */
static int open_terms(cu *c, uint32_t axes)
{
    const int group = c->g->group, last = cu_last_axis(axes), flight = c->g->flight;
    if (last < 0)
        return 0;
    int n = open_axes(c, axes & ~(1u << last));
    const char *x = c->axis_name[last];
    if (flight > 1) {
        cu_open(c,
            group > 1 ? "for (%T term = t * %d; term < %lld; term += %d) {"
                      : "for (%T term = %d; term < %lld; term += %d) {",
            group > 1 ? flight : 0, (long long)c->k->axis[last].extent, group * flight);
        n++;
    } else if (c->k->axis[last].extent > 1) {
        cu_line(c, "#pragma unroll %d", UNROLLED);
        cu_open(c, "for (%T %s = %s; %s < %lld; %s += %d) {", x, group > 1 ? "t" : "0", x,
            (long long)c->k->axis[last].extent, x, group);
        n++;
    } else if (group > 1) {
        cu_open(c, "if (t == 0) {");
        n++;
    }
    return n;
}

/* Elements of each block of a cluster. */
static long long own_elements(const cu *c, const cu_step *p)
{
    return (long long)p->elements / c->g->split;
}

/* Ends the step: makes stores visible to the block or cluster. */
static void wait_for_step(cu *c)
{
    if (c->g->split > 1)
        cu_line(c, "NNC_CLUSTER_SYNC(%d);", c->g->split);
    else
        cu_line(c, "__syncthreads();");
}

/* Declares the indices of the axes along threads, from element j; returns the number of scopes opened. If sums are combined, all threads
 * run the loop; beyond the last element they have its index. */
static int open_elements(cu *c, const nnc_kstage *s, const cu_step *p)
{
    const int per = lanes(c);
    const bool joins = c->g->group > 1;
    char base[24] = "";
    if (c->g->split > 1)
        snprintf(base, sizeof base, "base_%d + ", (int)(s - c->k->stage));
    const long long n = own_elements(c, p);
    int scopes = 0;
    int64_t below = 1;
    if (!joins || n > per) {
        cu_open(c,
            joins ? "for (int from = 0; from < %lld; from += %d) {"
                  : "for (int from = lane; from < %lld; from += %d) {",
            n, per);
        scopes++;
    }
    if (!joins)
        cu_line(c, "const int j = %sfrom;", base);
    else if (n > per)
        cu_line(c,
            n % per ? "const int j = %s(from + lane < %lld ? from + lane : %lld);"
                    : "const int j = %sfrom + lane;",
            base, n, n - 1);
    else
        cu_line(c,
            n < per ? "const int j = %s(lane < %lld ? lane : %lld);" : "const int j = %slane;",
            base, n, n - 1);
    for (int a = c->k->n_axis - 1; a >= 0; a--) {
        if (!(p->maps >> a & 1) || c->k->axis[a].extent == 1)
            continue;
        const uint32_t rest = p->maps & ((1u << a) - 1);
        if (cu_axes_used(c, s) >> a & 1)
            cu_digit(c, c->axis_name[a], "j", below, rest ? c->k->axis[a].extent : 0, 1);
        below *= c->k->axis[a].extent;
    }
    return scopes;
}

/* ---- terms that are loaded before any is used ---- */

/* Does any instruction except the prefetched loads name the axis? */
static bool names(const cu *c, const nnc_kstage *s, int axis)
{
    bool any = false;
    for (int32_t id = s->body0; id < s->body1; id++)
        any |= c->v[id].live && !c->v[id].held && nnc_kins_axes(&c->k->ins[id]) >> axis & 1;
    return any;
}

/* Opens a loop over the terms in flight, by `step`, with their index along the axis if it is named. */
static void open_flight(cu *c, int axis, int step, bool named)
{
    cu_line(c, "#pragma unroll");
    cu_open(c, step > 1 ? "for (int u = 0; u < %d; u += %d) {" : "for (int u = 0; u < %d; u++) {",
        c->g->flight, step);
    if (named)
        cu_line(c, "const %T %s = term + u;", c->axis_name[axis]);
}

/* Opens a scope: a loop over rows if each has its own value. */
static void open_rows(cu *c, int32_t id)
{
    c->in_lanes = c->v[id].lanes;
    if (c->in_lanes)
        cu_line(c, "#pragma unroll");
    cu_open(c, c->in_lanes ? "for (int e = 0; e < %d; e++) {" : "{", c->lanes);
}

static void close_rows(cu *c)
{
    c->in_lanes = false;
    cu_close(c, "}");
}

/* Loads several terms at once, and likewise the values used where a guard fails. */
static void load_wide(cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id], *fill = in->arg[1] >= 0 ? &c->k->ins[in->arg[1]] : NULL;
    open_rows(c, id);
    cu_indent(c);
    nnc_puts(c->t, "const auto part = ");
    if (cu_guarded(c, in)) {
        cu_guards(c, in);
        nnc_puts(c->t, " ? ");
    }
    cu_put(c, "nnc_load<%d>(%s + %a)", WIDE, c->buf_name[in->buf], &in->at);
    if (fill && cu_guarded(c, in) && fill->op == KO_load)
        cu_put(c, " : nnc_load<%d>(%s + %a)", WIDE, c->buf_name[fill->buf], &fill->at);
    else if (cu_guarded(c, in))
        cu_put(c, " : nnc_splat<%d>(%r)", WIDE, in->arg[1]);
    nnc_puts(c->t, ";\n");
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int w = 0; w < %d; w++)", WIDE);
    cu_line(c, c->v[id].lanes ? "    %n[u + w][e] = part[w];" : "    %n[u + w] = part[w];", id);
    close_rows(c);
}

/* Loads the terms in flight: first those along threads, which have the longest latency. */
static void load_flight(cu *c, const nnc_kstage *s, int axis)
{
    bool wide[2] = {false, false}, named = false;
    c->unroll = "u";
    for (int32_t id = s->body0; id < s->body1; id++) {
        cu_value *v = &c->v[id];
        if (!cu_step_holds(c->k, s, axis, id) || !v->live)
            continue;
        if (cu_step_fills(c->k, s, axis, id)) {
            v->live = false;
            continue;
        }
        v->held = true;
        v->lanes = v->varies;
        v->vector = false;
        wide[cu_step_wide(c->k, s, axis, id)] = true;
        named |= !cu_step_wide(c->k, s, axis, id) && nnc_kins_axes(&c->k->ins[id]) >> axis & 1;
        cu_typed(c, cu_type((nnc_dtype)c->k->ins[id].dtype), v->lanes ? c->lanes : 1);
        cu_put(c, "%n[%d];\n", id, c->g->flight);
    }
    for (int w = 0; w < 2; w++) {
        if (!wide[w])
            continue;
        open_flight(c, axis, w ? WIDE : 1, w || named);
        for (int32_t id = s->body0; id < s->body1; id++) {
            if (!c->v[id].held || cu_step_wide(c->k, s, axis, id) != w)
                continue;
            if (w) {
                load_wide(c, id);
                continue;
            }
            if (c->v[id].lanes)
                open_rows(c, id);
            cu_load(c, id);
            if (c->v[id].lanes)
                close_rows(c);
        }
        cu_close(c, "}");
    }
}

/* ---- joining ---- */

static bool joined(const cu *c, int32_t id)
{
    return c->k->ins[id].op == KO_reduce && c->v[id].live;
}

/* Stores each thread's partial sums, by row of the batch, row of threads and element. */
static void store_parts(cu *c, const nnc_kstage *s)
{
    for (int32_t id = s->body0; id < s->body1; id++) {
        if (!joined(c, id))
            continue;
        if (!c->v[id].lanes) {
            cu_line(c, "part_%d[threadIdx.x] = %n;", id, id);
            continue;
        }
        cu_line(c, "#pragma unroll");
        cu_line(c, "for (int e = 0; e < %d; e++)", c->g->vec);
        cu_line(c, "    part_%d[e * %d + threadIdx.x] = %n[e];", id, c->g->threads, id);
    }
    cu_line(c, "__syncthreads();");
}

/* Combines the sums of row e of the batch in the order of the threads. */
static void join(cu *c, const nnc_kstage *s)
{
    for (int32_t id = s->body0; id < s->body1; id++) {
        if (!joined(c, id))
            continue;
        char at[48] = "lane";
        const nnc_kins *in = &c->k->ins[id];
        if (c->v[id].lanes)
            snprintf(at, sizeof at, "e * %d + lane", c->g->threads);
        cu_line(c, "%s %n = part_%d[%s];", cu_type((nnc_dtype)in->dtype), id, id, at);
        cu_line(c, "#pragma unroll");
        cu_line(c, "for (int g = 1; g < %d; g++)", c->g->group);
        cu_line(c, "    %n = nnc_combine_%s()(%n, part_%d[%s + g * %d]);", id,
            nnc_kred_names[in->sop], id, id, at, lanes(c));
    }
}

/* Writes the step's post, for the thread that owns the row of the batch. */
static void post_of_rows(cu *c, const nnc_kstage *s, const cu_step *p)
{
    const int group = c->g->group, rows = c->g->vec;
    int scopes = 0;
    char name[sizeof c->axis_name[0]] = "";
    const long long n = own_elements(c, p);
    if (n % lanes(c)) {
        cu_open(c, n > lanes(c) ? "if (from + lane < %lld) {" : "if (lane < %lld) {", n);
        scopes++;
    }
    if (rows > 1) {
        if (rows % group == 0)
            cu_line(c, "#pragma unroll");
        cu_open(c, "for (int e = t; e < %d; e += %d) {", rows, group);
    } else {
        cu_open(c, "if (t == 0) {");
    }
    join(c, s);
    if (rows > 1) {
        memcpy(name, c->axis_name[c->g->axis], sizeof name);
        cu_line(c, "const %T row = %s + e;", name);
        snprintf(c->axis_name[c->g->axis], sizeof name, "row");
    }
    cu_analyse(c, s, -1, 1);
    cu_section(c, s, s->post0, s->post1);
    if (rows > 1)
        memcpy(c->axis_name[c->g->axis], name, sizeof name);
    cu_close_all(c, scopes + 1);
}

static void steps(cu *c, const nnc_kstage *s)
{
    cu_step p;
    (void)cu_step_of(c->k, s, &p);
    cu_analyse(c, s, c->g->axis, c->g->vec);
    if (c->g->split > 1)
        cu_line(c, "const int base_%d = blockIdx.x %% %d * %lld;", (int)(s - c->k->stage),
            c->g->split, own_elements(c, &p));
    const int order = open_axes(c, p.order), elements = open_elements(c, s, &p);
    cu_declare(c, s);
    const int sums = open_terms(c, p.sums), axis = cu_last_axis(p.sums);
    if (c->g->flight > 1) {
        load_flight(c, s, axis);
        open_flight(c, axis, 1, names(c, s, axis));
    }
    cu_section(c, s, s->body0, s->body1);
    cu_close_all(c, sums + (c->g->flight > 1));
    const bool passes = own_elements(c, &p) > lanes(c), joins = c->g->group > 1;
    if (joins) {
        store_parts(c, s);
        post_of_rows(c, s, &p);
    } else {
        cu_section(c, s, s->post0, s->post1);
    }
    if (joins && passes)
        cu_line(
            c, "__syncthreads();"); /* the parts are read; of the last elements: all is stored */
    cu_close_all(c, elements);
    if (!joins || !passes || c->g->split > 1)
        wait_for_step(c);
    cu_close_all(c, order);
}

void cu_steps(cu *c)
{
    const nnc_kernel *k = c->k;
    const bool wide = c->g->index == 64;
    if (c->g->group > 1) {
        cu_line(c, "NNC_DYNAMIC(shared);");
        for (int32_t id = 0; id < k->n_ins; id++)
            if (joined(c, id)) {
                const char *type = cu_type((nnc_dtype)k->ins[id].dtype);
                cu_line(c, "%s *const part_%d = reinterpret_cast<%s *>(shared + %lld);", type, id,
                    type, (long long)cu_step_part(k, c->g, id));
            }
        cu_line(c, "const int t = threadIdx.x / %d, lane = threadIdx.x %% %d;", lanes(c), lanes(c));
    } else {
        cu_line(c, "const int lane = threadIdx.x;");
    }
    for (int i = 0; i < k->n_stage; i++)
        cu_analyse(c, &k->stage[i], c->g->axis, c->g->vec);
    const char *block = wide ? "(long long)blockIdx.x" : "(int)blockIdx.x";
    if (c->g->split > 1)
        cu_line(c, "const %T block = %s / %d;", block, c->g->split);
    cu_place(c, c->g->split > 1 ? "block" : block);
    for (int i = 0; i < k->n_stage; i++)
        steps(c, &k->stage[i]);
}
