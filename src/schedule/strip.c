/* schedule/strip.c -- overlapping windows. Groups n neighbouring points of an outer axis (a strip; the axis then counts strips). Unrolls
 * the reduce axis that advances with it. Each element that several windows of a strip read is then one instruction, loaded once.
 *
 *     y[i] = sum r: x[i + r] w[r]   ->   y[2 i] = sum of x[2 i + r] w[r],  y[2 i + 1] = sum of x[2 i + 1 + r] w[r],  r = 0, 1, 2.
 *
 * The strip reads x[2 i] .. x[2 i + 3] and w[0] .. w[2] once: seven loads instead of twelve. Both rewrites preserve the kernel's meaning. A
 * strip that extends beyond the axis' end stores under guards; its superfluous loads stay inside their buffers.
 *
 * The points of a strip may also be spread over the axis: y[i] and y[i + extent / 2] instead of y[2 i] and y[2 i + 1]. */
#include "schedule/schedule.h"

#include <string.h>

enum { MOST_INS = 2048 };

typedef struct writer {
    nnc_kernel k; /* the new kernel */
    const nnc_kernel *from;
    nnc_arena *a;
    int64_t times, apart; /* point j of strip i is times i + apart j */
    int32_t *map[NNC_STRIP]; /* by instruction of `from`: its copy number j */
    int section; /* first instruction of the current section */
    bool rows; /* rows at once: each point has its own row of a tmp buffer */
    bool oom, failed;
} writer;

/* ---- instructions --------------------------------------------------------------------------------------------------- */

/* Appends the instruction, or finds an equal one in the same section. */
static int32_t append(writer *w, const nnc_kins *in)
{
    nnc_kernel *k = &w->k;
    if (w->oom || w->failed) /* guards may be missing */
        return 0;
    for (int32_t i = w->section; in->op != KO_store && i < k->n_ins; i++)
        if (nnc_kins_equal(&k->ins[i], in))
            return i;
    if (k->n_ins == MOST_INS) {
        w->failed = true;
        return 0;
    }
    k->ins[k->n_ins] = *in;
    return k->n_ins++;
}

static nnc_kins blank(nnc_kop op, nnc_dtype d)
{
    return (nnc_kins){
        .op = (uint8_t)op, .dtype = (uint8_t)d, .buf = -1, .arg = {-1, -1, -1}, .lo = 1};
}

static int32_t put_sop(writer *w, nnc_sop op, nnc_dtype d, int32_t a, int32_t b, int32_t c)
{
    nnc_kins in = blank(KO_sop, d);
    in.sop = (uint8_t)op;
    in.arg[0] = a;
    in.arg[1] = b;
    in.arg[2] = c;
    return append(w, &in);
}

static int32_t put_int(writer *w, int64_t v)
{
    nnc_kins in = blank(KO_const, DT_i64);
    in.i = v;
    in.lo = in.hi = (double)v;
    return append(w, &in);
}

/* Substitutes times a + plus for axis a in e. */
static void shift(nnc_affine *e, int a, int64_t times, int64_t plus)
{
    e->c += e->k[a] * plus;
    e->k[a] *= times;
}

/* Returns `in` with the copies j of its operands, and times a + apart j for axis a. */
static nnc_kins copy_of(writer *w, const nnc_kins *in, int a, int64_t times, int j)
{
    nnc_kins out = *in;
    for (int i = 0; i < 3; i++)
        if (out.arg[i] >= 0)
            out.arg[i] = w->map[j][out.arg[i]];
    shift(&out.at, a, times, w->apart * j);
    if (w->rows && (out.op == KO_load || out.op == KO_store) &&
        w->from->buf[out.buf].role == KB_tmp)
        out.at.c += nnc_kernel_tmp_step(w->from, out.buf) * j;
    if (out.n_guard == 0)
        return out;
    out.guard = nnc_arena_memdup(w->a, in->guard, sizeof *in->guard * in->n_guard);
    w->oom |= !out.guard;
    for (int g = 0; out.guard && g < out.n_guard; g++)
        shift(&out.guard[g].e, a, times, w->apart * j);
    return out;
}

/* Removes guards that always hold. False: one never holds, so a load gives its fill value and a store does nothing. */
static bool settle(const nnc_kernel *k, nnc_kins *in)
{
    uint8_t n = 0;
    for (int g = 0; g < in->n_guard; g++) {
        nnc_kguard q = in->guard[g];
        nnc_span s = nnc_affine_span(k, &q.e);
        if (s.ok && (s.hi < q.lo || s.lo >= q.hi))
            return false;
        if (!s.ok || s.lo < q.lo || s.hi >= q.hi)
            in->guard[n++] = q;
    }
    if (n == 0 && in->n_guard > 0 && in->op == KO_load)
        in->arg[1] = -1;
    in->n_guard = n;
    return true;
}

/* append() for an access after settle(). */
static int32_t put_settled(writer *w, nnc_kins *in)
{
    if (w->oom || w->failed)
        return 0;
    if (settle(&w->k, in))
        return append(w, in);
    return in->op == KO_load ? in->arg[1] : 0;
}

/* ---- strips --------------------------------------------------------------------------------------------------------- */

static bool inside(const nnc_kernel *k, const nnc_kins *in)
{
    nnc_span s = nnc_access_span(k, in);
    return in->arg[0] < 0 && s.ok && s.lo >= 0 && s.hi < k->buf[in->buf].numel;
}

/* Guards an access of copy j to stay within the axis. A load without other guards gives 0 beyond it. */
static void guard_end(writer *w, nnc_kins *in, int a, int64_t n, int j)
{
    nnc_kguard *g = ARENA_NEW(w->a, nnc_kguard, in->n_guard + 1);
    w->oom |= !g;
    w->failed |= in->n_guard == NNC_KGUARDS;
    if (!g || w->failed)
        return;
    if (in->n_guard)
        memcpy(g, in->guard, sizeof *g * in->n_guard);
    g[in->n_guard] = (nnc_kguard){.lo = 0, .hi = w->from->axis[a].extent};
    g[in->n_guard].e.k[a] = n;
    g[in->n_guard].e.c = j;
    in->guard = g;
    in->n_guard++;
    if (in->op != KO_load || in->arg[1] >= 0)
        return;
    nnc_kins zero = blank(KO_const, (nnc_dtype)in->dtype);
    in->arg[1] = append(w, &zero);
}

static int32_t put_index(writer *w, const nnc_kins *in, int64_t n, int j)
{
    nnc_kins at = *in;
    at.hi = (double)w->k.axis[in->i].extent - 1;
    int32_t x = append(w, &at), by = put_int(w, n), off = put_int(w, j);
    x = put_sop(w, SC_mul, DT_i64, x, by, -1);
    w->k.ins[x].lo = 0;
    w->k.ins[x].hi = at.hi * (double)n;
    if (j == 0)
        return x;
    x = put_sop(w, SC_add, DT_i64, x, off, -1);
    w->k.ins[x].lo = j;
    w->k.ins[x].hi = at.hi * (double)n + j;
    return x;
}

static void strip_one(writer *w, int32_t id, int a, int64_t n, int j, bool ragged)
{
    const nnc_kins *in = &w->from->ins[id];
    if (in->op == KO_index && in->i == a && n > 1) {
        w->map[j][id] = put_index(w, in, n, j);
        return;
    }
    nnc_kins c = copy_of(w, in, a, w->times, j);
    bool access = in->op == KO_load || in->op == KO_store;
    if (ragged && access && in->at.k[a] != 0 && (in->op == KO_store || !inside(&w->k, &c)))
        guard_end(w, &c, a, n, j);
    if (!w->oom && !w->failed)
        w->map[j][id] = put_settled(w, &c);
}

/* Writes a section: each instruction for all points in turn or, with `whole`, all instructions for each point in turn. */
static void strip_section(writer *w, int32_t begin, int32_t end, int a, int n, bool whole)
{
    bool ragged = w->from->axis[a].extent % n != 0;
    int count = end - begin;
    w->section = w->k.n_ins;
    for (int i = 0; i < count * n && !w->oom && !w->failed; i++)
        strip_one(w, begin + (whole ? i % count : i / n), a, n, whole ? i / count : i % n, ragged);
}

/* ---- unrolling ----------------------------------------------------------------------------------------------------- */

/* True when the only user of id is the sum over r. */
static bool summed_alone(const nnc_kernel *k, int32_t id)
{
    int n = 0, sums = 0;
    for (int32_t i = id + 1; i < k->n_ins; i++)
        for (int j = 0; j < 3; j++)
            if (k->ins[i].arg[j] == id) {
                n++;
                sums += k->ins[i].op == KO_reduce && k->ins[i].sop == KR_sum;
            }
    return n == 1 && sums == 1;
}

/* True for a product that starts a sum, x w + 0, with no other user: it is emitted where it is summed. */
static bool begins_sum(const nnc_kernel *k, int32_t id)
{
    return k->ins[id].op == KO_sop && k->ins[id].sop == SC_fma &&
           nnc_kins_is_zero(k, k->ins[id].arg[2]) && summed_alone(k, id);
}

/* Combines `sum`, the result so far, with reduction `in`'s operand at this element. */
static int32_t fold(writer *w, const nnc_kins *in, int32_t sum)
{
    static const nnc_sop op[] = {SC_add, SC_mul, SC_max, SC_min};
    const nnc_kernel *k = w->from;
    int32_t x = in->arg[0];
    if (in->sop == KR_sum && begins_sum(k, x)) {
        nnc_kins f = k->ins[x];
        /* beyond the edge of the picture, as settle() found */
        const bool nothing =
            !(f.hint & KH_exact) && (nnc_kins_is_zero(&w->k, w->map[0][f.arg[0]]) ||
                                        nnc_kins_is_zero(&w->k, w->map[0][f.arg[1]]));
        if (nothing)
            return sum < 0 ? w->map[0][f.arg[2]] : sum;
        nnc_kins c = blank(KO_sop, (nnc_dtype)f.dtype);
        c.sop = SC_fma;
        c.arg[0] = w->map[0][f.arg[0]];
        c.arg[1] = w->map[0][f.arg[1]];
        c.arg[2] = sum < 0 ? w->map[0][f.arg[2]] : sum;
        c.hint = f.hint & KH_exact;
        return append(w, &c);
    }
    if (sum < 0)
        return w->map[0][x];
    nnc_kins c = blank(KO_sop, (nnc_dtype)in->dtype);
    c.sop = (uint8_t)op[in->sop];
    c.arg[0] = sum;
    c.arg[1] = w->map[0][x];
    c.hint = in->sop >= KR_max ? in->hint & KH_nonan : 0;
    return append(w, &c);
}

static void unroll_body(writer *w, const nnc_kstage *s, int r, int32_t *sum)
{
    const nnc_kernel *k = w->from;
    w->section = w->k.n_ins;
    for (int32_t id = s->body0; id < s->body1; id++)
        sum[id] = -1;
    for (int q = 0; q < k->axis[r].extent; q++)
        for (int32_t id = s->body0; id < s->body1 && !w->oom && !w->failed; id++) {
            const nnc_kins *in = &k->ins[id];
            if (in->op == KO_reduce) {
                sum[id] = fold(w, in, sum[id]);
            } else if (in->op == KO_index && in->i == r) {
                w->map[0][id] = put_int(w, q);
            } else if (!begins_sum(k, id)) {
                nnc_kins c = copy_of(w, in, r, 0, 0);
                c.at.c += in->at.k[r] * q;
                for (int g = 0; !w->oom && g < c.n_guard; g++)
                    c.guard[g].e.c += in->guard[g].e.k[r] * q;
                w->map[0][id] = put_settled(w, &c);
            }
        }
    for (int32_t id = s->body0; id < s->body1; id++)
        if (k->ins[id].op == KO_reduce) {
            nnc_kins c = k->ins[id];
            c.arg[0] = sum[id];
            w->map[0][id] = append(w, &c);
        }
}

/* ---- both ----------------------------------------------------------------------------------------------------------- */

static bool begin(writer *w, const nnc_kernel *k, int copies, nnc_arena *a)
{
    int axis;
    *w = (writer){.k = *k, .from = k, .a = a, .times = copies, .apart = 1};
    w->rows = nnc_kernel_rows(k, &axis) > 1;
    w->k.ins = ARENA_NEW(a, nnc_kins, MOST_INS);
    w->k.stage = nnc_arena_memdup(a, k->stage, sizeof *k->stage * (size_t)k->n_stage);
    w->k.n_ins = 0;
    w->k.buf = nnc_arena_memdup(a, k->buf, sizeof *k->buf * (size_t)k->n_buf);
    bool ok = w->k.ins && w->k.stage && w->k.buf;
    for (int b = 0; b < k->n_buf && ok && w->rows; b++)
        if (k->buf[b].role == KB_tmp)
            w->k.buf[b].numel = nnc_kernel_tmp_step(k, b) * copies;
    for (int j = 0; j < copies; j++) {
        w->map[j] = ARENA_NEW(a, int32_t, k->n_ins + 1);
        ok = ok && w->map[j];
    }
    return ok;
}

/* False: out of memory. Leaves *k unchanged where the rewrite is impossible. */
static bool end(writer *w, nnc_kernel *k)
{
    if (!w->oom && !w->failed)
        *k = w->k;
    return !w->oom;
}

/* Writes all stages with axis a in strips of n, those with reduce axis r (-1: none) with it unrolled. */
static bool rewrite(writer *w, nnc_kernel *k, int a, int n, int r, int32_t *sum)
{
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kstage *g = &k->stage[s];
        nnc_kstage *to = &w->k.stage[s];
        to->body0 = w->k.n_ins;
        if (r >= 0 && g->axes >> r & 1)
            unroll_body(w, g, r, sum);
        else
            strip_section(w, g->body0, g->body1, a, n, false);
        to->body1 = to->post0 = w->k.n_ins;
        /* a function's value is used before the next point's is computed, so few are live */
        strip_section(w, g->post0, g->post1, a, n, true);
        to->post1 = w->k.n_ins;
    }
    return end(w, k);
}

bool nnc_kernel_strip(nnc_kernel *k, int a, int n, nnc_arena *mem)
{
    writer w;
    if (!begin(&w, k, n, mem))
        return false;
    w.k.axis[a].extent = nnc_ceildiv(k->axis[a].extent, n);
    return rewrite(&w, k, a, n, -1, NULL);
}

bool nnc_kernel_spread(nnc_kernel *k, int a, int n, nnc_arena *mem)
{
    writer w;
    if (!begin(&w, k, n, mem))
        return false;
    w.k.axis[a].extent /= n;
    w.times = 1;
    w.apart = w.k.axis[a].extent;
    return rewrite(&w, k, a, n, -1, NULL);
}

bool nnc_kernel_unroll(nnc_kernel *k, int r, nnc_arena *mem)
{
    writer w;
    int32_t *sum = ARENA_NEW(mem, int32_t, k->n_ins + 1);
    if (!sum || !begin(&w, k, 1, mem))
        return false;
    w.k.axis[r].extent = 1;
    return rewrite(&w, k, 0, 1, r, sum);
}

/* ---- dividing an axis ------------------------------------------------------------------------------------------------ */

static void divide_form(nnc_affine *e, int a, int at, int64_t n)
{
    for (int b = NNC_KAXES - 1; b > at; b--)
        e->k[b] = e->k[b - 1];
    e->k[at] = e->k[a];
    e->k[a] *= n;
}

/* Copies the instruction's guards, and divides them. False: out of memory. */
static bool divide_guards(nnc_kins *in, int a, int at, int64_t n, nnc_arena *mem)
{
    if (in->n_guard == 0)
        return true;
    in->guard = nnc_arena_memdup(mem, in->guard, sizeof *in->guard * in->n_guard);
    for (int g = 0; in->guard && g < in->n_guard; g++)
        divide_form(&in->guard[g].e, a, at, n);
    return in->guard != NULL;
}

bool nnc_kernel_divide(nnc_kernel *k, int a, int at, nnc_kaxis_kind kind, int64_t n, nnc_arena *mem)
{
    nnc_kins *ins = nnc_arena_memdup(mem, k->ins, sizeof *ins * (size_t)k->n_ins);
    nnc_kstage *stage = nnc_arena_memdup(mem, k->stage, sizeof *stage * (size_t)k->n_stage);
    const uint32_t low = (1u << at) - 1;
    if (!ins || !stage)
        return false;
    for (int i = 0; i < k->n_ins; i++) {
        ins[i].i += ins[i].op == KO_index && ins[i].i >= at;
        divide_form(&ins[i].at, a, at, n);
        if (!divide_guards(&ins[i], a, at, n, mem))
            return false;
    }
    for (int s = 0; s < k->n_stage; s++) {
        const uint32_t axes = stage[s].axes, has = a < k->n_outer ? 1 : axes >> a & 1;
        stage[s].axes = (axes & low) | (axes & ~low) << 1 | has << at;
    }
    memmove(&k->axis[at + 1], &k->axis[at], sizeof *k->axis * (size_t)(k->n_axis - at));
    k->axis[at] = (nnc_kaxis){.kind = kind, .extent = n};
    k->axis[a].extent = nnc_ceildiv(k->axis[a].extent, n);
    k->n_axis++;
    k->ins = ins;
    k->stage = stage;
    return true;
}
