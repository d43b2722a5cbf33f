/* codegen/cuda_point.c -- one thread per point: pointwise kernels, windows (pooling, depthwise convolution), and whatever no other
 * schedule class supports. */
#include "codegen/cuda.h"

#include <math.h>

enum {
    WRITTEN_OUT = 8, /* steps of a window that are fully unrolled */
    MOST_RUN = 32 /* consecutive elements in registers */
};

/* Declares the indices of work item q: `along` varies fastest, in vectors; then the other outer axes. */
void cu_place(cu *c, const char *q)
{
    const nnc_kernel *k = c->k;
    int order[NNC_KAXES], n = 0;
    int64_t below = 1;
    uint32_t used = 0;
    for (int i = 0; i < k->n_stage; i++)
        used |= cu_axes_used(c, &k->stage[i]);
    if (c->g->axis >= 0 && k->axis[c->g->axis].extent > 1)
        order[n++] = c->g->axis;
    for (int a = k->n_outer - 1; a >= 0; a--)
        if (a != c->g->axis && k->axis[a].extent > 1)
            order[n++] = a;
    for (int i = 0; i < n; i++) {
        int vec = order[i] == c->g->axis ? c->g->vec : 1;
        int64_t count = (k->axis[order[i]].extent + vec - 1) / vec, from = below;
        below *= count;
        if (!(used >> order[i] & 1))
            continue;
        cu_digit(c, c->axis_name[order[i]], q, from, i + 1 < n ? count : 0, vec);
    }
}

static int64_t units(const cu *c)
{
    int64_t n = 1;
    for (int a = 0; a < c->k->n_outer; a++) {
        int64_t vec = a == c->g->axis ? c->g->vec : 1;
        n *= (c->k->axis[a].extent + vec - 1) / vec;
    }
    return n;
}

/* Size in bytes up to which a thread's arrays stay in registers, since every index is then constant. */
enum { REGISTER_TMP = 64 };

/* Loads in flight of a long serial reduction; without a limit the compiler unrolls hundreds of steps. */
enum { REDUCE_UNROLL = 4 };

/* Chooses the unrolling of the loop over axis a: full, partial, or the compiler's choice. */
static void unroll_loop(cu *c, const nnc_kstage *s, int a, bool all)
{
    bool last = true;
    for (int b = a + 1; b < c->k->n_axis; b++)
        last = last && !(s->axes >> b & 1 && c->k->axis[b].extent > 1);
    if (all)
        cu_line(c, "#pragma unroll");
    else if (last && c->k->axis[a].kind == KA_reduce && c->k->axis[a].extent > REDUCE_UNROLL)
        cu_line(c, "#pragma unroll %d", REDUCE_UNROLL);
}

/* ---- overlapping windows ---- */

/* The last reduce axis of stage s, if it is fully unrolled; otherwise -1. */
static int written_out(const cu *c, const nnc_kstage *s)
{
    int last = -1;
    for (int a = c->k->n_outer; a < c->k->n_axis; a++)
        if ((s->axes >> a & 1) && c->k->axis[a].extent > 1)
            last = a;
    return last >= 0 && c->k->axis[last].kind == KA_reduce &&
                   c->k->axis[last].extent <= WRITTEN_OUT && nnc_window_kernel(c->k)
               ? last
               : -1;
}

/* Number of elements that load id reads along axis r for all lanes. 0: they are not consecutive, overlap, or do not begin 16-byte aligned
 * (or aligned to their total size, if smaller). */
static int run_length(const cu *c, int32_t id, int r)
{
    const nnc_kernel *k = c->k;
    const nnc_kins *in = &k->ins[id];
    if (in->op != KO_load)
        return 0;
    const int64_t w = k->axis[r].extent, n = w * c->lanes;
    const int64_t size = nnc_dtype_size(k->buf[in->buf].dtype), bytes = n * size;
    if (!c->v[id].live || c->v[id].vector || in->arg[0] >= 0 || in->n_guard > 0 ||
        in->at.k[r] != 1 || c->ragged || n > MOST_RUN || (c->lanes > 1 && in->at.k[c->axis] != w))
        return 0;
    if (bytes % 16 != 0 && (bytes > 16 || (bytes & (bytes - 1)) != 0))
        return 0;
    const int64_t whole = nnc_min64(bytes, 16) / size;
    for (int a = 0; a < k->n_axis; a++)
        if (a != r && k->axis[a].extent > 1 && in->at.k[a] * (a == c->axis ? c->lanes : 1) % whole)
            return 0;
    return in->at.c % whole == 0 ? (int)n : 0;
}

static void load_runs(cu *c, const nnc_kstage *s, int r)
{
    c->run_axis = r;
    for (int32_t id = s->body0; id < s->body1; id++) {
        int n = run_length(c, id, r);
        c->v[id].run = n > 0;
        if (n > 0)
            cu_load_run(c, id, n);
    }
}

/* ---- loops ---- */

/* Opens loops over the stage's own axes of kind `kind`; returns their number. */
static int open_loops(cu *c, const nnc_kstage *s, nnc_kaxis_kind kind)
{
    int n = 0;
    const int64_t tmp = nnc_kernel_scratch(c->k);
    const bool unrolled = tmp > 0 && tmp <= REGISTER_TMP;
    const int last = kind == KA_reduce ? written_out(c, s) : -1;
    for (int a = c->k->n_outer; a < c->k->n_axis; a++) {
        const nnc_kaxis *x = &c->k->axis[a];
        if (x->kind != kind || !(s->axes >> a & 1) || x->extent == 1)
            continue;
        if (a == last)
            load_runs(c, s, a);
        unroll_loop(c, s, a,
            (unrolled && !x->seq) ||
                (kind == KA_reduce && x->extent <= WRITTEN_OUT && nnc_window_kernel(c->k)));
        cu_open(c, "for (%T %s = 0; %s < %lld; %s++) {", c->axis_name[a], c->axis_name[a],
            (long long)x->extent, c->axis_name[a]);
        n++;
    }
    return n;
}

/* Marks values of stages without map axes that later stages read. */
void cu_find_outside(cu *c)
{
    const nnc_kernel *k = c->k;
    for (int i = 0; i < k->n_stage; i++)
        for (int32_t id = k->stage[i].body0; id < k->stage[i].post1; id++)
            for (int j = 0; j < 3; j++) {
                int32_t a = k->ins[id].arg[j];
                if (a >= 0 && a < k->stage[i].body0)
                    c->v[a].outside = true;
            }
}

/* ---- window rows outside the operand ---- */

static bool guarded_by(const nnc_kins *in, const nnc_kguard *q)
{
    for (int g = 0; g < in->n_guard; g++)
        if (nnc_kguard_equal(&in->guard[g], q))
            return true;
    return false;
}

/* True when instruction id is the neutral element of the reduction `kind` (sum, maximum or minimum) where guard q does not hold. */
static bool gives_nothing(
    const cu *c, const nnc_kstage *s, int32_t id, nnc_kred kind, const nnc_kguard *q)
{
    const nnc_kins *k = c->k->ins, *in = &k[id];
    if (id < s->body0 || (in->op != KO_load && in->op != KO_sop))
        return in->op == KO_const && kind == KR_sum && in->f == 0 && in->i == 0;
    if (in->op == KO_load) {
        const nnc_kins *fill = in->arg[1] >= 0 ? &k[in->arg[1]] : NULL;
        return fill && fill->op == KO_const && guarded_by(in, q) &&
               (kind == KR_sum      ? fill->f == 0 && fill->i == 0
                   : kind == KR_max ? fill->f == -INFINITY
                                    : fill->f == INFINITY);
    }
    bool nothing[3];
    for (int i = 0; i < 3; i++)
        nothing[i] = in->arg[i] >= 0 && gives_nothing(c, s, in->arg[i], kind, q);
    switch ((nnc_sop)in->sop) {
    case SC_fma: /* exact: 0 times infinity is NaN */
        return kind == KR_sum && (nothing[0] || nothing[1]) && nothing[2] &&
               (!(in->hint & KH_exact) || (nothing[0] && nothing[1]));
    case SC_add: return kind == KR_sum && nothing[0] && nothing[1];
    case SC_max: return kind == KR_max && nothing[0] && nothing[1];
    case SC_min: return kind == KR_min && nothing[0] && nothing[1];
    default: return false;
    }
}

/* Skips window rows that lie outside the operand; the code inside then needs no guard. */
static bool open_row(cu *c, const nnc_kstage *s)
{
    bool reduces = false;
    for (int32_t id = s->body0; id < s->body1 && c->n_holds == 0; id++)
        for (int g = 0; g < c->k->ins[id].n_guard; g++) {
            const nnc_kguard *q = &c->k->ins[id].guard[g];
            bool all = c->axis < 0 || q->e.k[c->axis] == 0, known = false;
            for (int32_t r = s->body0; r < s->body1 && all; r++) {
                const nnc_kins *in = &c->k->ins[r];
                reduces |= in->op == KO_reduce;
                all = in->op != KO_store &&
                      (in->op != KO_reduce ||
                          (in->sop != KR_prod && in->sop < KR_argmax &&
                              gives_nothing(c, s, in->arg[0], (nnc_kred)in->sop, q)));
            }
            for (int i = 0; i < c->n_holds; i++)
                known |= nnc_kguard_equal(c->holds[i], q);
            if (all && reduces && !known)
                c->holds[c->n_holds++] = q;
        }
    if (c->n_holds == 0)
        return false;
    int n = c->n_holds;
    c->n_holds = 0; /* known to hold inside */
    cu_indent(c);
    nnc_puts(c->t, "if (");
    cu_guard_list(c, c->holds, n);
    nnc_puts(c->t, ") {\n");
    c->n_holds = n;
    c->depth++;
    return true;
}

static void stage(cu *c, const nnc_kstage *s)
{
    if (cu_walk(c, s))
        return;
    int maps = open_loops(c, s, KA_map);
    cu_declare(c, s);
    int reduces = open_loops(c, s, KA_reduce);
    bool row = reduces > 0 && open_row(c, s);
    cu_section(c, s, s->body0, s->body1);
    c->n_holds = 0;
    cu_close_all(c, reduces + row);
    cu_finish_arg(c, s);
    cu_section(c, s, s->post0, s->post1);
    cu_close_all(c, maps);
}

/* Loads everything that is vectorised or uniform, for all of the thread's vectors, before its first use. */
static bool hold_loads(cu *c, const nnc_kstage *s)
{
    bool any = false;
    for (int32_t id = s->body0; id < s->post1; id++) {
        const nnc_kins *in = &c->k->ins[id];
        cu_value *v = &c->v[id];
        if (in->op != KO_load || !v->live || in->arg[0] >= 0 || (v->varies && !v->vector) ||
            (cu_guarded(c, in) && c->k->ins[in->arg[1]].op != KO_const))
            continue;
        v->held = any = true;
        cu_typed(c, cu_type((nnc_dtype)in->dtype), v->lanes ? c->lanes : 1);
        cu_put(c, "%n[%d];\n", id, c->g->flight);
    }
    return any;
}

static void open_unit(cu *c, bool loop, bool inexact)
{
    if (loop) {
        cu_line(c, "#pragma unroll");
        cu_open(c, "for (int u = 0; u < %d; u++) {", c->g->flight);
        cu_line(c, "const %T q = first + u * %d;", c->g->threads);
    }
    if (inexact) {
        cu_line(c, "if (q >= %z)", units(c));
        cu_line(c, loop ? "    break;" : "    return;");
    }
    cu_place(c, "q");
}

void cu_point(cu *c)
{
    const nnc_kernel *k = c->k;
    const nnc_kgrid *g = c->g;
    bool wide = g->index == 64;
    char left[96];
    cu_find_outside(c);
    bool ragged = g->vec > 1 && k->axis[g->axis].extent % g->vec;
    if (ragged) {
        snprintf(left, sizeof left, "%lld%s - %s", (long long)k->axis[g->axis].extent,
            wide ? "ll" : "", c->axis_name[g->axis]);
        c->ragged = left;
    }
    for (int i = 0; i < k->n_stage; i++)
        cu_analyse(c, &k->stage[i], g->axis, g->vec);
    bool inexact = units(c) % ((int64_t)g->threads * g->flight) != 0, loop = g->flight > 1;
    cu_line(c, "const %T %s = %sblockIdx.x * %d + threadIdx.x;", loop ? "first" : "q",
        wide ? "(long long)" : "", g->threads * g->flight);
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp)
            cu_line(c, "%s %s[%lld];", cu_storage(k->buf[b].dtype), c->buf_name[b],
                (long long)k->buf[b].numel);
    c->unroll = "u";
    if (loop && hold_loads(c, &k->stage[0])) {
        open_unit(c, true, inexact);
        for (int32_t id = 0; id < k->n_ins; id++)
            if (c->v[id].held)
                cu_load(c, id);
        cu_close(c, "}");
    }
    open_unit(c, loop, inexact);
    for (int i = 0; i < k->n_stage; i++)
        stage(c, &k->stage[i]);
    if (loop)
        cu_close(c, "}");
}
