/* codegen/cuda_scatter.c -- scattering: a block has rows `first` to `last` of those that places count, for some points of the outer axes.
 * It copies them, then performs their updates in order. If all its points have the same places, its threads search them together, each at
 * another update, and list the block's. Otherwise each thread goes through all of them. */
#include "codegen/cuda.h"
#include "schedule/schedule.h"

enum {
    IN_FLIGHT = 8, /* copied elements of a thread, loaded before any is stored */
    LOOKS = 8, /* updates that a thread checks between barriers */
};

/* y = x, unconverted. */
static void copy(cu *c, const cu_scatter *s)
{
    const nnc_kstage *g = &c->k->stage[0];
    const nnc_kins *from = &c->k->ins[g->body0], *to = &c->k->ins[s->copied];
    const char *m = c->axis_name[s->axis];
    if (from->op == KO_const) {
        cu_line(c, "#pragma unroll %d", IN_FLIGHT);
        cu_open(c, "for (%T %s = first; %s < last; %s++) {", m, m, m);
        cu_analyse(c, g, -1, 1);
        cu_section(c, g, g->body0, g->body1);
        cu_close(c, "}");
        return;
    }
    const char *x = c->buf_name[from->buf], *y = c->buf_name[to->buf];
    if (nnc_kernel_may_overlay(c->k, from->buf, to->buf))
        cu_line(c, "if (%s != %s)", x, y);
    cu_open(c, "for (%T from = first; from < last; from += %d) {", IN_FLIGHT);
    cu_line(c, "%s old[%d];", cu_storage(c->k->buf[to->buf].dtype), IN_FLIGHT);
    for (int half = 0; half < 2; half++) {
        cu_line(c, "#pragma unroll");
        cu_open(c, "for (int u = 0; u < %d; u++) {", IN_FLIGHT);
        cu_line(c, "const %T %s = from + u;", m);
        cu_line(c, "if (%s < last)", m);
        if (half)
            cu_line(c, "    %s[%a] = old[u];", y, &to->at);
        else
            cu_line(c, "    old[u] = %s[%a];", x, &from->at);
        cu_close(c, "}");
    }
    cu_close(c, "}");
}

/* Makes live the operands of the places, or all other values that were live. */
static void only(cu *c, const cu_scatter *s, const bool *was, bool places)
{
    const nnc_kstage *g = &c->k->stage[1];
    for (int32_t id = g->body0; id < g->body1; id++)
        c->v[id].live = was[id] && nnc_kset_has(&s->cone, id) == places;
}

/* Declares the indices of the second stage's axes from the number of the update. */
static void place_update(cu *c, uint32_t axes)
{
    int64_t below = 1;
    for (int a = c->k->n_axis - 1; a >= 0; a--) {
        const int64_t n = c->k->axis[a].extent;
        const uint32_t rest = axes & ((1u << a) - 1);
        if (!(axes >> a & 1) || n == 1)
            continue;
        cu_digit(c, c->axis_name[a], "n", below, rest ? n : 0, 1);
        below *= n;
    }
}

/* Declares `mine`: the update's place is in one of the block's rows. */
static void find_mine(cu *c, const cu_scatter *s)
{
    const nnc_kins *to = &c->k->ins[s->store];
    cu_line(c, "const %T place = (%T)nnc_clamp(%r, %lldll) * %lld;", to->arg[1],
        (long long)to->limit, (long long)to->scale);
    cu_line(c, "const bool mine = place >= first * %lld && place < last * %lld;",
        (long long)s->unit, (long long)s->unit);
}

/* Each thread checks several updates before it waits for the others; mostly none of them is the block's. */
static void look(cu *c, const cu_scatter *s, const bool *was)
{
    const nnc_kstage *g = &c->k->stage[1];
    const long long n = (long long)s->updates;
    const int threads = c->g->threads;
    const bool exact = n % (threads * LOOKS) == 0;
    cu_line(c, "unsigned found = 0;");
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int u = 0; u < %d; u++) {", LOOKS);
    cu_line(c, "const int at = from + u * %d + threadIdx.x;", threads);
    cu_line(c, exact ? "const int n = at;" : "const int n = at < %lld ? at : %lld;", n, n - 1);
    only(c, s, was, true);
    place_update(c, g->axes);
    cu_section(c, g, g->body0, g->body1);
    find_mine(c, s);
    cu_line(
        c, exact ? "found |= (unsigned)mine << u;" : "found |= (unsigned)(mine && at == n) << u;");
    cu_close(c, "}");
    for (int32_t id = g->body0; id < g->body1; id++)
        c->v[id].live = was[id];
}

static void together(cu *c, const cu_scatter *s, const bool *was)
{
    const nnc_kstage *g = &c->k->stage[1];
    const int threads = c->g->threads;
    cu_line(c, "__shared__ int list[%d];", threads + threads / 32);
    cu_open(
        c, "for (int from = 0; from < %lld; from += %d) {", (long long)s->updates, threads * LOOKS);
    look(c, s, was);
    cu_line(c, "if (!__syncthreads_or(found))");
    cu_line(c, "    continue;");
    cu_open(c, "for (int u = 0; u < %d; u++) {", LOOKS);
    cu_line(c, "const int hits = nnc_list<%d>(found >> u & 1, from + u * %d + threadIdx.x, list);",
        threads, threads);
    cu_line(c, "#pragma unroll 4");
    cu_open(c, "for (int h = 0; h < hits; h++) {");
    cu_line(c, "const int n = list[h];");
    place_update(c, g->axes);
    cu_section(c, g, g->body0, g->body1);
    cu_close_all(c, 3);
}

static void alone(cu *c, const cu_scatter *s, const bool *was)
{
    const nnc_kstage *g = &c->k->stage[1];
    int scopes = 0;
    for (int a = c->k->n_outer; a < c->k->n_axis; a++)
        if (g->axes >> a & 1 && c->k->axis[a].extent > 1) {
            const char *x = c->axis_name[a];
            cu_open(
                c, "for (%T %s = 0; %s < %lld; %s++) {", x, x, (long long)c->k->axis[a].extent, x);
            scopes++;
        }
    only(c, s, was, true);
    cu_section(c, g, g->body0, g->body1);
    find_mine(c, s);
    cu_open(c, "if (mine) {");
    only(c, s, was, false);
    cu_section(c, g, g->body0, g->body1);
    cu_close_all(c, scopes + 1);
}

void cu_scatters(cu *c)
{
    const nnc_kernel *k = c->k;
    const nnc_kgrid *g = c->g;
    const char *wide = g->index == 64 ? "(long long)" : "";
    cu_scatter s;
    bool *was = nnc_calloc((size_t)k->n_ins + 1, sizeof *was);
    if (!was || !cu_scatter_of(k, &s)) {
        c->t->oom |= !was;
        nnc_free(was);
        return;
    }
    for (int32_t id = 0; id < k->n_ins; id++)
        was[id] = c->v[id].live;
    const int64_t points = cu_points(k, -1, 1);
    const long long rows = (long long)s.rows, own = (long long)cu_scatter_rows(&s, g);
    const bool inexact = points % g->threads != 0;
    cu_line(c, "const %T part = blockIdx.x %% %d, block = blockIdx.x / %d;", g->split, g->split);
    cu_line(c, "const %T first = part * %lld, last = %lld - first < %lld ? %lld : first + %lld;",
        own, rows, own, rows, own);
    cu_line(c, "const %T p = %sblock * %d + threadIdx.x;", wide, g->threads);
    if (inexact && s.shared) {
        cu_line(c, "const bool live = p < %lld;", (long long)points);
        cu_line(c, "const %T q = live ? p : %lld;", (long long)points - 1);
    } else if (inexact) {
        cu_line(c, "if (p >= %lld)", (long long)points);
        cu_line(c, "    return;");
    }
    cu_place(c, inexact && s.shared ? "q" : "p");
    if (inexact && s.shared)
        cu_line(c, "if (live)");
    cu_open(c, "{");
    copy(c, &s);
    cu_close(c, "}");
    cu_analyse(c, &k->stage[1], -1, 1);
    c->store_if = inexact && s.shared ? "live" : NULL;
    if (s.shared)
        together(c, &s, was);
    else
        alone(c, &s, was);
    c->store_if = NULL;
    nnc_free(was);
}
