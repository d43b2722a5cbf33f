/* kernel/parts.c -- divides a kernel of several products (chain.c) into kernels that run one after the other for each block of rows.
 *
 *     for blocks of rows                                  for blocks of rows
 *       for rows i of the block                             for rows i of the block:  t[i, j] = sum d: q[i, d] k[j, d]
 *         t[j] = sum d: q[i, d] k[j, d]             ->      for rows i of the block:  t[i, j] = exp(t[i, j] - max) / sum
 *         t[j] = exp(t[j] - max) / sum                      for rows i of the block:  y[i, n] = sum j: t[i, j] v[j, n]
 *         y[n] = sum j: t[j] v[j, n]
 *
 * A product's map axes are outer axes of its kernel, so that it is an ordinary product, in strips of rows.
 *
 * Where windows read a product's result, the text has a row of the tmp buffer for each row m of point i's window. Neighbouring points have
 * rows in common. All that the product reads advances with step i + m. So its part computes each row of a block once.
 *
 *     for rows i of the block:  t[i + m] = ... for m < 3     ->      for j < rows of the block + 2:  t[block + j] = ...
 *
 * Some parts' stages pass on each point's elements of map axes. They are nested in these axes, and their buffer has one point's elements.
 *
 *     for points p, i:  t[p, i] = ...                        ->      for points p:
 *     for points p, j:  ... = t[p, j]                                  for i:  t[i] = ...
 *                                                                      for j:  ... = t[j] */
#include "kernel/kernel.h"

static bool is_access(const nnc_kins *in)
{
    return in->op == KO_load || in->op == KO_store;
}

/* Does the stage sum products for each point of its map axes? */
static bool is_product(const nnc_kernel *k, const nnc_kstage *s)
{
    int sums = 0;
    if (!(s->axes & nnc_kernel_axes(k, KA_map)) || !(s->axes & nnc_kernel_axes(k, KA_reduce)))
        return false;
    for (int i = s->body0; i < s->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_store)
            return false;
        if (in->op != KO_reduce)
            continue;
        const nnc_kins *f = &k->ins[in->arg[0] < 0 ? i : in->arg[0]];
        if (sums++ || in->sop != KR_sum || in->arg[1] >= 0 || in->running || f->op != KO_sop ||
            (f->sop != SC_fma && f->sop != SC_mul))
            return false;
    }
    return sums == 1;
}

static int first_ins(const nnc_kernel *k, const nnc_kpart *p)
{
    return k->stage[p->stage].body0;
}

static int end_ins(const nnc_kernel *k, const nnc_kpart *p)
{
    return k->stage[p->end - 1].post1;
}

/* The last axis of each of the part's stages, along which their vectors run. */
static uint32_t last_axes(const nnc_kernel *k, const nnc_kpart *p)
{
    uint32_t last = 0;
    for (int s = p->stage; s < p->end; s++)
        last |= k->stage[s].axes ? 1u << (31 - __builtin_clz(k->stage[s].axes)) : 0;
    return last;
}

/* Do values pass between parts only in buffers? */
static bool is_apart(const nnc_kernel *k, const nnc_kpart *p)
{
    for (int i = first_ins(k, p); i < end_ins(k, p); i++)
        for (int j = 0; j < 3; j++)
            if (k->ins[i].arg[j] >= 0 && k->ins[i].arg[j] < first_ins(k, p))
                return false;
    return true;
}

/* ---- nests ----------------------------------------------------------------------------------------------------------- */

/* Is b a tmp buffer that only this part reads and writes? */
static bool is_private(const nnc_kernel *k, const nnc_kpart *p, int b)
{
    for (int i = 0; i < k->n_ins; i++)
        if (is_access(&k->ins[i]) && k->ins[i].buf == b &&
            (i < first_ins(k, p) || i >= end_ins(k, p)))
            return false;
    return k->buf[b].role == KB_tmp;
}

static void leave_out(nnc_affine *e, uint32_t axes)
{
    for (int a = 0; a < NNC_KAXES; a++)
        e->k[a] = axes >> a & 1 ? 0 : e->k[a];
}

/* Elements of buffer b that the part accesses at index 0 of the axes of `nest`: the last one + 1. */
static int64_t end_within(const nnc_kernel *k, const nnc_kpart *p, int b, uint32_t nest)
{
    int64_t end = 0;
    for (int i = first_ins(k, p); i < end_ins(k, p); i++) {
        nnc_affine at = k->ins[i].at;
        if (!is_access(&k->ins[i]) || k->ins[i].buf != b)
            continue;
        leave_out(&at, nest);
        const nnc_span s = nnc_affine_span(k, &at);
        end = nnc_max64(end, s.ok && s.lo >= 0 && s.hi < INT64_MAX ? s.hi + 1 : INT64_MAX);
    }
    return end;
}

/* The axes of `nest` along which all accesses to buffer b advance equally; 0: points share elements. */
static uint32_t keeps_apart(const nnc_kernel *k, const nnc_kpart *p, int b, uint32_t nest)
{
    const nnc_kins *at = NULL;
    for (int i = first_ins(k, p); i < end_ins(k, p); i++) {
        const nnc_kins *in = &k->ins[i];
        if (!is_access(in) || in->buf != b)
            continue;
        at = at ? at : in;
        for (int a = 0; a < k->n_axis; a++)
            if (in->at.k[a] != at->at.k[a] || in->at.k[a] <= 0)
                nest &= ~(1u << a);
        nest = nnc_kins_index(in) < 0 ? nest : 0;
    }
    int64_t reach = end_within(k, p, b, nest);
    for (uint32_t left = at ? nest : 0; left;) { /* the axis of the least step first */
        int least = __builtin_ctz(left);
        for (int a = least; a < k->n_axis; a++)
            least = left >> a & 1 && at->at.k[a] < at->at.k[least] ? a : least;
        if (reach == INT64_MAX || (k->axis[least].extent > 1 && at->at.k[least] < reach))
            return 0;
        reach = nnc_add_sat(reach, nnc_mul_sat(at->at.k[least], k->axis[least].extent - 1));
        left &= ~(1u << least);
    }
    return nest;
}

/* Map axes that may enclose all stages of the part, because stages pass on elements at equal points of them; 0: none. A stage's last map
 * axis is excluded. */
static uint32_t nest_of(const nnc_kernel *k, const nnc_kpart *p)
{
    enum { LOADS = 1, STORES = 2 };
    uint32_t nest = p->product || p->end - p->stage < 2 ? 0 : nnc_kernel_axes(k, KA_map);
    bool passes = false;
    nest &= ~last_axes(k, p);
    for (int s = p->stage; s < p->end && nest; s++) {
        nest &= k->stage[s].axes;
        for (int i = k->stage[s].body0; i < k->stage[s].post1; i++) {
            nest = k->ins[i].op == KO_reduce ? 0 : nest;
            for (int j = 0; j < 3; j++) /* values of other stages */
                nest = k->ins[i].arg[j] >= 0 && k->ins[i].arg[j] < k->stage[s].body0 ? 0 : nest;
        }
    }
    for (int b = 0; b < k->n_buf && nest; b++) {
        int uses = 0;
        for (int i = first_ins(k, p); i < end_ins(k, p); i++)
            if (is_access(&k->ins[i]) && k->ins[i].buf == b)
                uses |= k->ins[i].op == KO_store ? STORES : LOADS;
        if (uses == (LOADS | STORES))
            nest = keeps_apart(k, p, b, nest);
        passes |= uses == (LOADS | STORES);
    }
    return passes ? nest : 0;
}

int nnc_kernel_parts(const nnc_kernel *k, nnc_kpart *part)
{
    nnc_kpart at[NNC_KPARTS];
    int n = 0, products = 0;
    uint32_t seen = 0, taken = 0; /* axes of parts; of products, or of any vectors */
    for (int s = 0; s < k->n_stage; s++) {
        bool product = is_product(k, &k->stage[s]);
        products += product;
        if (n == 0 || product || at[n - 1].product) {
            if (n == NNC_KPARTS)
                return 0;
            at[n++] = (nnc_kpart){.stage = s, .product = product};
        }
        at[n - 1].end = s + 1;
        at[n - 1].axes |= k->stage[s].axes;
    }
    const bool apart = products > 1 || (products && n > 2);
    for (int i = 0; i < n && apart; i++) {
        nnc_kpart p = at[i];
        const uint32_t own = p.product ? p.axes : last_axes(k, &p);
        if (seen & own || taken & p.axes || !is_apart(k, &p) || nnc_kernel_in_order(k))
            return 0;
        seen |= p.axes;
        taken |= own;
        if (part) {
            part[i] = p;
            part[i].nest = nest_of(k, &p);
        }
    }
    return apart ? n : 0;
}

int nnc_parts_tiled(const nnc_kernel *k)
{
    for (int a = 0; a < k->n_outer; a++)
        if (nnc_sched_n(&k->sched, KD_tile, a) > 1)
            return a;
    return -1;
}

/* The only store to tmp buffer b, and its stage; NULL: there are several. */
static const nnc_kins *only_store(const nnc_kernel *k, int b, const nnc_kstage **stage)
{
    const nnc_kins *store = NULL;
    for (int s = 0; s < k->n_stage; s++)
        for (int i = k->stage[s].body0; i < k->stage[s].post1; i++) {
            if (k->ins[i].op != KO_store || k->ins[i].buf != b)
                continue;
            if (store)
                return NULL;
            store = &k->ins[i];
            *stage = &k->stage[s];
        }
    return store;
}

/* Do all operand loads of the stage depend on outer axis u and m only as *step u + m? Finds the step. */
static bool advances(const nnc_kernel *k, const nnc_kstage *s, int u, int m, int64_t *step)
{
    int64_t want;
    *step = 0;
    for (int i = s->body0; i < s->post1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_index && (in->i == u || in->i == m))
            return false;
        for (int g = -1; g < in->n_guard; g++) {
            const nnc_affine *e = g < 0 ? &in->at : &in->guard[g].e;
            if (!is_access(in) || (g < 0 && k->buf[in->buf].role == KB_tmp))
                continue;
            if (*step == 0 && e->k[m] > 0 && e->k[u] > 0)
                *step = e->k[u] / e->k[m];
            if (!nnc_mul_ok(*step, e->k[m], &want) || e->k[u] != want)
                return false;
        }
    }
    return *step > 0;
}

/* Overlapping rows of windows in a tmp buffer: row m of point i of outer axis u is row step i + m of one sequence. */
typedef struct overlap {
    int u, m;
    int64_t step;
} overlap;

/* The overlap of least step; false: each point has rows of its own. */
static bool find_overlap(const nnc_kernel *k, int b, overlap *o)
{
    const nnc_kstage *s = NULL;
    const nnc_kins *store = only_store(k, b, &s);
    int64_t step, all;
    *o = (overlap){.u = -1, .m = -1};
    for (int m = k->n_outer; store && m < k->n_axis; m++) {
        if (k->axis[m].kind != KA_map || !(s->axes >> m & 1) || store->at.k[m] <= 0 ||
            k->axis[m].extent < 2 || !nnc_mul_ok(store->at.k[m], k->axis[m].extent, &all) ||
            all != k->buf[b].numel)
            continue;
        for (int u = 0; u < k->n_outer; u++)
            if (advances(k, s, u, m, &step) && (o->u < 0 || step <= o->step))
                *o = (overlap){u, m, step};
    }
    return o->u >= 0;
}

int nnc_parts_axis(const nnc_kernel *k)
{
    overlap o;
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp && find_overlap(k, b, &o))
            return o.u;
    return -1;
}

/* Elements from one row of a tmp buffer to the next. Adds a cache line where rows would compete for few cache sets. */
static int64_t row_of(const nnc_kernel *k, int buf)
{
    enum { LINE = 64, SETS = 512 };
    const nnc_kbuf *b = &k->buf[buf];
    overlap o;
    if (find_overlap(k, buf, &o))
        return nnc_mul_sat(b->numel / k->axis[o.m].extent, o.step);
    const int64_t size = nnc_dtype_size(b->dtype), line = LINE / size,
                  row = nnc_align_up(b->numel, line);
    return row * size % SETS == 0 ? row + line : row;
}

int64_t *nnc_parts_rows(const nnc_kernel *k, const nnc_kpart *part, int n, nnc_arena *a)
{
    int *user = ARENA_NEW(a, int, k->n_buf + 1);
    int64_t *row = ARENA_NEW(a, int64_t, k->n_buf + 1);
    for (int p = 0; user && row && p < n; p++)
        for (int i = first_ins(k, &part[p]); i < end_ins(k, &part[p]); i++) {
            const nnc_kins *in = &k->ins[i];
            if (!is_access(in) || k->buf[in->buf].role != KB_tmp)
                continue;
            if (user[in->buf] && user[in->buf] != p + 1)
                row[in->buf] = row_of(k, in->buf);
            user[in->buf] = p + 1;
        }
    return user ? row : NULL;
}

int64_t nnc_parts_bytes(const nnc_kernel *k, int b)
{
    const int tiled = nnc_parts_tiled(k);
    const int64_t rows = tiled < 0 ? 1 : nnc_sched_n(&k->sched, KD_tile, tiled);
    const int64_t row = row_of(k, b), last = nnc_max64(row, k->buf[b].numel),
                  n = nnc_add_sat(nnc_mul_sat(rows - 1, row), last),
                  all = nnc_mul_sat(n, nnc_dtype_size(k->buf[b].dtype));
    return nnc_align_up(nnc_min64(all, (int64_t)1 << 50), 64);
}

int64_t nnc_parts_scratch(const nnc_kernel *k)
{
    nnc_kpart part[NNC_KPARTS];
    const int parts = nnc_kernel_parts(k, part);
    int64_t all = 0;
    for (int b = 0; b < k->n_buf; b++) {
        int64_t bytes = k->buf[b].role == KB_tmp ? nnc_parts_bytes(k, b) : 0; /* as if shared */
        for (int i = 0; i < parts; i++)
            if (part[i].nest && is_private(k, &part[i], b))
                bytes = nnc_align_up(nnc_mul_sat(end_within(k, &part[i], b, part[i].nest),
                                         nnc_dtype_size(k->buf[b].dtype)),
                    64);
        all = nnc_add_sat(all, bytes);
    }
    return all;
}

bool nnc_parts_nested(const nnc_kernel *k, nnc_arena *a, nnc_kernel *out, uint32_t *nest)
{
    nnc_kpart part[NNC_KPARTS];
    const int parts = nnc_kernel_parts(k, part);
    *out = *k;
    out->ins = nnc_arena_memdup(a, k->ins, sizeof *k->ins * (size_t)k->n_ins);
    out->buf = nnc_arena_memdup(a, k->buf, sizeof *k->buf * (size_t)k->n_buf);
    for (int i = 0; out->ins && out->buf && i < parts; i++) {
        const nnc_kpart *p = &part[i];
        for (int s = p->stage; s < p->end; s++)
            nest[s] = p->nest;
        for (int b = 0; b < k->n_buf && p->nest; b++) {
            if (!is_private(k, p, b))
                continue;
            out->buf[b].numel = end_within(k, p, b, p->nest);
            for (int j = first_ins(k, p); j < end_ins(k, p); j++)
                if (is_access(&k->ins[j]) && k->ins[j].buf == b)
                    leave_out(&out->ins[j].at, p->nest);
        }
    }
    return out->ins && out->buf;
}

/* The rows that windows read of the part's result; false: there are none. */
static bool part_overlap(const nnc_kernel *k, const nnc_kpart *p, const int64_t *row, overlap *o)
{
    for (int i = first_ins(k, p); i < end_ins(k, p) && p->product; i++)
        if (k->ins[i].op == KO_store && row[k->ins[i].buf] && find_overlap(k, k->ins[i].buf, o))
            return true;
    *o = (overlap){.u = -1, .m = -1};
    return false;
}

/* Numbers the axes: k's outer ones, a product's map axes, all other own ones. */
static void number_axes(const nnc_kernel *k, nnc_kpart *p)
{
    nnc_kernel *q = &p->k;
    for (int a = 0; a < NNC_KAXES; a++)
        p->to[a] = -1;
    q->n_axis = q->n_outer = 0;
    for (int late = 0; late < 2; late++)
        for (int a = 0; a < k->n_axis; a++) {
            nnc_kaxis x = k->axis[a];
            if ((p->product && x.kind == KA_map) || p->nest >> a & 1)
                x.kind = KA_outer;
            if ((a >= k->n_outer && !(p->axes >> a & 1)) || (x.kind != KA_outer) != late)
                continue;
            p->to[a] = q->n_axis;
            q->axis[q->n_axis++] = x;
            q->n_outer += x.kind == KA_outer;
        }
}

static void move_form(const nnc_kpart *p, nnc_affine *e)
{
    nnc_affine f = {.c = e->c};
    for (int a = 0; a < NNC_KAXES; a++)
        if (e->k[a] && p->to[a] >= 0)
            f.k[p->to[a]] = e->k[a];
    *e = f;
}

/* The buffers that the part uses. tmp buffers of several parts are arguments. row: nnc_parts_rows. to: by k's buffer. */
static bool take_buffers(
    const nnc_kernel *k, int tiled, nnc_kpart *p, const int64_t *row, int16_t *to, nnc_arena *a)
{
    enum { LOADED = 1, STORED = 2 };
    const int64_t tile = tiled < 0 ? 1 : nnc_max64(nnc_sched_n(&k->sched, KD_tile, tiled), 1);
    uint8_t *use = ARENA_NEW(a, uint8_t, k->n_buf + 1);
    p->k.n_buf = 0;
    p->k.buf = ARENA_NEW(a, nnc_kbuf, k->n_buf + 1);
    p->buf = ARENA_NEW(a, int, k->n_buf + 1);
    for (int i = first_ins(k, p); use && i < end_ins(k, p); i++)
        if (is_access(&k->ins[i]))
            use[k->ins[i].buf] |= k->ins[i].op == KO_store ? STORED : LOADED;
    for (int b = 0; use && p->k.buf && p->buf && b < k->n_buf; b++) {
        to[b] = -1;
        if (!use[b])
            continue;
        nnc_kbuf x = k->buf[b];
        if (p->nest && x.role == KB_tmp && !row[b])
            x.numel = end_within(k, p, b, p->nest);
        if (row[b]) {
            x.role = use[b] & STORED ? KB_out : KB_in;
            x.numel += tiled < 0 ? 0 : (nnc_align_up(k->axis[tiled].extent, tile) - 1) * row[b];
        }
        p->buf[p->k.n_buf] = b;
        to[b] = (int16_t)p->k.n_buf;
        p->k.buf[p->k.n_buf++] = x;
    }
    return use && p->k.buf && p->buf;
}

static bool take_stages(const nnc_kernel *k, nnc_kpart *p, nnc_arena *a)
{
    const int first = first_ins(k, p);
    nnc_kernel *q = &p->k;
    q->n_stage = p->end - p->stage;
    q->stage = nnc_arena_memdup(a, k->stage + p->stage, sizeof *q->stage * (size_t)q->n_stage);
    for (int s = 0; q->stage && s < q->n_stage; s++) {
        nnc_kstage *g = &q->stage[s];
        uint32_t axes = 0;
        for (int b = 0; b < k->n_axis; b++)
            if ((g->axes >> b & 1) && p->to[b] >= q->n_outer)
                axes |= 1u << p->to[b];
        *g = (nnc_kstage){
            axes, g->body0 - first, g->body1 - first, g->post0 - first, g->post1 - first};
    }
    return q->stage != NULL;
}

static bool take_ins(const nnc_kernel *k, int tiled, nnc_kpart *p, const int64_t *row,
    const int16_t *to, nnc_arena *a)
{
    const int first = first_ins(k, p);
    nnc_kernel *q = &p->k;
    q->n_ins = end_ins(k, p) - first;
    q->ins = nnc_arena_memdup(a, k->ins + first, sizeof *q->ins * (size_t)q->n_ins);
    for (int i = 0; q->ins && i < q->n_ins; i++) {
        nnc_kins *in = &q->ins[i];
        for (int j = 0; j < 3; j++)
            in->arg[j] = in->arg[j] < 0 ? -1 : in->arg[j] - first;
        if (in->op == KO_index)
            in->i = p->to[in->i];
        if (!is_access(in))
            continue;
        if (k->buf[in->buf].role == KB_tmp && !row[in->buf])
            leave_out(&in->at, p->nest);
        move_form(p, &in->at);
        if (tiled >= 0)
            in->at.k[p->to[tiled]] += row[in->buf];
        in->buf = to[in->buf];
        if (in->n_guard &&
            !(in->guard = nnc_arena_memdup(a, in->guard, sizeof *in->guard * in->n_guard)))
            return false;
        for (int g = 0; g < in->n_guard; g++)
            move_form(p, &in->guard[g].e);
    }
    return q->ins != NULL;
}

/* Takes the directives of k's schedule for the part's axes. The part runs its own work items within a block of k's, one after another. */
static bool take_schedule(const nnc_kernel *k, const overlap *o, nnc_kpart *p)
{
    nnc_kschedule *s = &p->k.sched;
    nnc_kahead ahead;
    int digit[NNC_KAXES];
    bool ok = true;
    *s = (nnc_kschedule){.grain = 1};
    for (int i = 0; i < k->sched.n; i++) {
        const nnc_kdirective *d = &k->sched.d[i];
        if (d->axis >= 0 && d->axis != o->u && p->to[d->axis] >= 0 &&
            (d->what == KD_tile || d->what == KD_vector || (d->what == KD_unroll && p->product)))
            ok = ok && nnc_sched_put(s, (nnc_kdo)d->what, p->to[d->axis], d->n);
    }
    const int n = nnc_kernel_digits(k, digit);
    for (int i = 0; i < n; i++)
        ok = ok && nnc_sched_put(s, KD_order, p->to[digit[i]], 0);
    for (int b = k->n_outer; b < p->k.n_outer; b++)
        ok = ok && nnc_sched_put(s, KD_order, b, 0) &&
             (!p->nest || nnc_sched_put(s, KD_tile, b, p->k.axis[b].extent));
    if (nnc_sched_has(&k->sched, KD_prefetch) && !nnc_kernel_ahead(&p->k, &ahead))
        ok = ok && nnc_sched_put(s, KD_prefetch, -1, 1);
    s->domain = nnc_kernel_domain(&p->k);
    return ok;
}

/* Makes outer axis u count blocks, and m the rows of a block. False: a form does not advance along both alike, or rows of the last block
 * may be outside an operand. The last block is whole to this part. */
static bool join_rows(const nnc_kernel *k, const overlap *o, nnc_kpart *p)
{
    const int u = p->to[o->u], m = p->to[o->m];
    const int64_t rows = nnc_max64(nnc_sched_n(&k->sched, KD_tile, o->u), 1);
    p->k.axis[u].extent = nnc_ceildiv(p->k.axis[u].extent, rows);
    p->k.axis[m].extent = nnc_add_sat(p->k.axis[m].extent, nnc_mul_sat(rows - 1, o->step));
    for (int i = 0; i < p->k.n_ins; i++) {
        nnc_kins *in = &p->k.ins[i];
        if (in->op == KO_index && (in->i == u || in->i == m))
            return false;
        for (int g = -1; g < in->n_guard; g++) {
            nnc_affine *e = g < 0 ? &in->at : &in->guard[g].e;
            int64_t want;
            if (!nnc_mul_ok(o->step, e->k[m], &want) || e->k[u] != want ||
                !nnc_mul_ok(e->k[u], rows, &e->k[u]))
                return false;
        }
        const nnc_span s = nnc_access_span(&p->k, in);
        if (in->op == KO_load && (!s.ok || s.lo < 0 || s.hi >= p->k.buf[in->buf].numel))
            return false;
    }
    return true;
}

const char *nnc_kernel_part(
    const nnc_kernel *k, int tiled, const int64_t *row, nnc_kpart *p, nnc_arena *a)
{
    int16_t *to = ARENA_NEW(a, int16_t, k->n_buf + 1);
    overlap o;
    p->k = (nnc_kernel){.name = k->name};
    if (part_overlap(k, p, row, &o) && o.u != tiled)
        return "windows overlap along another axis than that of the blocks";
    number_axes(k, p);
    if (!to || !take_buffers(k, tiled, p, row, to, a) || !take_stages(k, p, a) ||
        !take_ins(k, tiled, p, row, to, a))
        return "";
    for (int i = 0; i < p->k.n_ins; i++)
        if (is_access(&p->k.ins[i]) && p->k.ins[i].buf < 0)
            return "a part has too many buffers";
    if (o.u >= 0 && !join_rows(k, &o, p))
        return "the rows of windows differ from block to block";
    if (!take_schedule(k, &o, p))
        return "a part has too many directives";
    p->k.scratch_bytes = nnc_kernel_scratch(&p->k);
    return NULL;
}
