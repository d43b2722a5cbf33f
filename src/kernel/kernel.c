/* kernel/kernel.c -- facts about kernels: ranges of affine forms, the parallel domain, hashes. */
#include "kernel/kernel.h"

#include <string.h>

const char *const nnc_kred_names[6] = {"sum", "prod", "max", "min", "argmax", "argmin"};
const char *const nnc_kaxis_names[3] = {"outer", "map", "reduce"};
const char *const nnc_kclass_names[9] = {
    "none", "point", "tile", "row", "column", "steps", "scatter", "attend", "contract"};
const char *const nnc_khint_names[NNC_KHINTS] = {
    "bounded", "halfpi", "nonneg", "nonan", "exact", "fast"};

bool nnc_affine_equal(const nnc_affine *a, const nnc_affine *b)
{
    return a->c == b->c && memcmp(a->k, b->k, sizeof a->k) == 0;
}

uint32_t nnc_affine_axes(const nnc_affine *e)
{
    uint32_t axes = 0;
    for (int a = 0; a < NNC_KAXES; a++)
        axes |= (uint32_t)(e->k[a] != 0) << a;
    return axes;
}

uint32_t nnc_kins_axes(const nnc_kins *in)
{
    uint32_t axes = in->op == KO_index ? 1u << in->i : 0;
    if (in->op != KO_load && in->op != KO_store)
        return axes;
    axes = nnc_affine_axes(&in->at);
    for (int g = 0; g < in->n_guard; g++)
        axes |= nnc_affine_axes(&in->guard[g].e);
    return axes;
}

uint32_t nnc_kernel_axes(const nnc_kernel *k, nnc_kaxis_kind kind)
{
    uint32_t axes = 0;
    for (int a = 0; a < k->n_axis; a++)
        axes |= (uint32_t)(k->axis[a].kind == kind) << a;
    return axes;
}

int64_t nnc_kernel_points(const nnc_kernel *k, uint32_t axes)
{
    int64_t n = 1;
    for (int a = 0; a < k->n_axis; a++)
        if ((axes >> a & 1) && !nnc_mul_ok(n, k->axis[a].extent, &n))
            return INT64_MAX;
    return n;
}

uint32_t nnc_reduce_axes(const nnc_kernel *k, int id)
{
    for (int s = 0; s < k->n_stage; s++)
        if (id >= k->stage[s].body0 && id < k->stage[s].body1)
            return k->stage[s].axes & nnc_kernel_axes(k, KA_reduce);
    return 0;
}

bool nnc_kguard_equal(const nnc_kguard *a, const nnc_kguard *b)
{
    return a->lo == b->lo && a->hi == b->hi && nnc_affine_equal(&a->e, &b->e);
}

bool nnc_kins_equal(const nnc_kins *a, const nnc_kins *b)
{
    if (a->op != b->op || a->dtype != b->dtype || a->sop != b->sop || a->n_guard != b->n_guard ||
        a->cast_to != b->cast_to || a->running != b->running || a->buf != b->buf ||
        a->scale != b->scale || a->limit != b->limit || a->i != b->i ||
        memcmp(&a->f, &b->f, sizeof a->f) != 0 || memcmp(a->arg, b->arg, sizeof a->arg) != 0 ||
        !nnc_affine_equal(&a->at, &b->at))
        return false;
    for (int g = 0; g < a->n_guard; g++)
        if (!nnc_kguard_equal(&a->guard[g], &b->guard[g]))
            return false;
    return true;
}

/* Ranges of the axes, inclusive. */
typedef struct box {
    int64_t lo[NNC_KAXES], hi[NNC_KAXES];
} box;

static box whole_box(const nnc_kernel *k)
{
    box b = {{0}, {0}};
    for (int a = 0; a < k->n_axis; a++)
        b.hi[a] = k->axis[a].extent - 1;
    return b;
}

/* Range of e without the term of axis `skip` (-1: all terms). */
static nnc_span span_in(const nnc_kernel *k, const box *b, const nnc_affine *e, int skip)
{
    nnc_span s = {e->c, e->c, true};
    for (int a = 0; a < NNC_KAXES; a++) {
        int64_t x, y;
        if (e->k[a] == 0 || a == skip)
            continue;
        if (a >= k->n_axis || !nnc_mul_ok(e->k[a], b->lo[a], &x) ||
            !nnc_mul_ok(e->k[a], b->hi[a], &y) || !nnc_add_ok(s.lo, nnc_min64(x, y), &s.lo) ||
            !nnc_add_ok(s.hi, nnc_max64(x, y), &s.hi))
            return (nnc_span){0, 0, false};
    }
    return s;
}

nnc_span nnc_affine_span(const nnc_kernel *k, const nnc_affine *e)
{
    box b = whole_box(k);
    return span_in(k, &b, e, -1);
}

/* Narrows axis a of the box to where q can hold for any values of the other axes. */
static void narrow_axis(const nnc_kernel *k, box *b, const nnc_kguard *q, int a)
{
    static const int64_t large =
        (int64_t)1 << 61; /* bounds numbers in untrusted text; real sizes are below 2^47 */
    int64_t c = q->e.k[a], lo, hi;
    nnc_span rest = span_in(k, b, &q->e, a);
    if (c == 0 || c < -large || c > large || !rest.ok || q->hi == INT64_MIN ||
        __builtin_sub_overflow(q->lo, rest.hi, &lo) ||
        __builtin_sub_overflow(q->hi - 1, rest.lo, &hi) || lo < -large || lo > large ||
        hi < -large || hi > large)
        return;
    if (c < 0) {
        int64_t t = -lo;
        lo = -hi;
        hi = t;
        c = -c;
    }
    b->lo[a] = nnc_max64(b->lo[a], nnc_ceildiv(lo, c));
    b->hi[a] = nnc_min64(b->hi[a], nnc_floordiv(hi, c));
}

/* Bounds of the axes where all guards hold; false: nowhere. */
static bool guarded_box(const nnc_kernel *k, const nnc_kins *in, box *b)
{
    *b = whole_box(k);
    for (int round = 0; round < 2; round++)
        for (int g = 0; g < in->n_guard; g++) {
            nnc_span s = span_in(k, b, &in->guard[g].e, -1);
            if (s.ok && (s.hi < in->guard[g].lo || s.lo >= in->guard[g].hi))
                return false;
            for (int a = 0; a < k->n_axis; a++) {
                narrow_axis(k, b, &in->guard[g], a);
                if (b->lo[a] > b->hi[a])
                    return false;
            }
        }
    return true;
}

/* rest = at - m e; false when it overflows 64 bits. */
static bool subtract(nnc_affine *rest, int64_t m, const nnc_affine *e)
{
    int64_t v;
    for (int a = 0; a < NNC_KAXES; a++)
        if (!nnc_mul_ok(m, e->k[a], &v) || __builtin_sub_overflow(rest->k[a], v, &rest->k[a]))
            return false;
    return nnc_mul_ok(m, e->c, &v) && !__builtin_sub_overflow(rest->c, v, &rest->c);
}

/* Guards first narrow the axes. Then `at` is written as sum m_g e_g + rest. Guard g bounds e_g to [lo, hi), and thereby m_g e_g, more
 * tightly than the axes may. A multiple is kept only where it narrows the span, so the result is always a bound. */
nnc_span nnc_access_span(const nnc_kernel *k, const nnc_kins *in)
{
    nnc_affine rest = in->at;
    int64_t lo = 0, hi = 0;
    box b;
    if (!guarded_box(k, in, &b))
        return (nnc_span){0, 0, true}; /* never executed */
    nnc_span best = span_in(k, &b, &rest, -1);
    for (int g = 0; g < in->n_guard; g++) {
        const nnc_kguard *q = &in->guard[g];
        int64_t m = 0, x, y;
        for (int a = 0; a < NNC_KAXES && m == 0; a++)
            if (q->e.k[a] != 0 && rest.k[a] != 0 && rest.k[a] % q->e.k[a] == 0)
                m = rest.k[a] / q->e.k[a];
        nnc_affine r = rest;
        if (m == 0 || !subtract(&r, m, &q->e))
            continue;
        nnc_span s = span_in(k, &b, &r, -1), own = span_in(k, &b, &q->e, -1);
        int64_t from = own.ok ? nnc_max64(q->lo, own.lo) : q->lo;
        int64_t to = own.ok ? nnc_min64(q->hi - 1, own.hi) : q->hi - 1;
        int64_t nlo = lo, nhi = hi;
        if (!s.ok || from > to || !nnc_mul_ok(m, from, &x) || !nnc_mul_ok(m, to, &y))
            continue;
        if (!nnc_add_ok(nlo, nnc_min64(x, y), &nlo) || !nnc_add_ok(nhi, nnc_max64(x, y), &nhi) ||
            !nnc_add_ok(s.lo, nlo, &s.lo) || !nnc_add_ok(s.hi, nhi, &s.hi))
            continue;
        if (best.ok && s.hi - s.lo > best.hi - best.lo)
            continue;
        best = s;
        rest = r;
        lo = nlo;
        hi = nhi;
    }
    return best;
}

int nnc_store_axis(const nnc_kernel *k)
{
    uint32_t along = (1u << k->n_outer) - 1;
    if (k->n_stage != 1 || k->stage[0].axes)
        return -1;
    for (int i = 0; i < k->n_ins; i++)
        for (int a = 0; k->ins[i].op == KO_store && a < k->n_outer; a++)
            if (k->ins[i].at.k[a] != 1 || k->axis[a].extent < 2)
                along &= ~(1u << a);
    return along ? __builtin_ctz(along) : -1;
}

int nnc_across_axis(const nnc_kernel *k, int v, int64_t *elements)
{
    int w = -1;
    *elements = 0;
    for (int a = 0; v >= 0 && a < k->n_outer; a++) {
        int64_t n = 0;
        for (int i = 0; i < k->n_ins; i++)
            if (a != v && nnc_kernel_tiles(k, &k->ins[i], v, a))
                n += k->buf[k->ins[i].buf].numel;
        if (n > *elements) {
            *elements = n;
            w = a;
        }
    }
    return w >= 0 && k->axis[v].extent >= 8 && k->axis[w].extent >= 8 ? w : -1;
}

int nnc_kernel_rows(const nnc_kernel *k, int *axis)
{
    const int a = nnc_sched_axis(&k->sched, KD_unroll);
    *axis = a;
    if (a < 0 || nnc_sched_vec(&k->sched) < k->n_outer || nnc_kernel_in_parts(k))
        return 1;
    return (int)nnc_sched_n(&k->sched, KD_unroll, a);
}

int64_t nnc_kernel_tmp_bytes(const nnc_kernel *k, int b)
{
    return nnc_align_up(k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype), 64);
}

int64_t nnc_kernel_scratch(const nnc_kernel *k)
{
    int64_t n = nnc_sched_n(&k->sched, KD_panel, -1);
    int axis;
    const int rows = nnc_kernel_rows(k, &axis);
    if (nnc_kernel_in_parts(k))
        return nnc_parts_scratch(k);
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp)
            n = nnc_add_sat(n, nnc_mul_sat(nnc_kernel_tmp_bytes(k, b), rows));
    return n;
}

int nnc_stage_vec(const nnc_kernel *k, const nnc_kstage *s)
{
    int v = nnc_sched_vec(&k->sched);
    for (int i = 0; i < k->sched.n; i++) /* its part's vector axis, if the kernel has parts */
        if (k->sched.d[i].what == KD_vector && s->axes >> k->sched.d[i].axis & 1)
            return k->sched.d[i].axis;
    if (v < k->n_outer)
        return v;
    int last = s->axes ? 31 - __builtin_clz(s->axes) : -1;
    return last >= 0 && k->axis[last].seq ? -1 : last;
}

bool nnc_stage_in_order(const nnc_kernel *k, const nnc_kstage *s)
{
    for (int a = k->n_outer; a < k->n_axis; a++)
        if ((s->axes >> a & 1) && k->axis[a].seq)
            return true;
    return false;
}

bool nnc_kernel_in_order(const nnc_kernel *k)
{
    for (int s = 0; s < k->n_stage; s++)
        if (nnc_stage_in_order(k, &k->stage[s]))
            return true;
    return false;
}

nnc_kschedule nnc_cuda_sched(const nnc_kernel *k)
{
    int64_t points = nnc_kernel_points(k, (1u << k->n_outer) - 1);
    return (nnc_kschedule){.grain = 1, .domain = points < INT64_MAX ? points : -1};
}

nnc_hash128 nnc_kernel_hash(const nnc_kernel *k)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_kernel_print_as(&t, k, false);
    nnc_hash128 h = nnc_hash(nnc_text_str(&t), t.n);
    if (t.oom)
        h = (nnc_hash128){(uint64_t)nnc_now_ns(), ~(uint64_t)0};
    return h;
}

static bool name_parts(nnc_kernel *k, nnc_arena *mem)
{
    static const char *const axis[3] = {"i", "m", "r"}, *const buf[3] = {"x", "y", "t"};
    int count[3] = {0};
    for (int b = 0; b < k->n_buf; b++)
        if (!(k->buf[b].name =
                    nnc_arena_printf(mem, "%s%d", buf[k->buf[b].role], count[k->buf[b].role]++)))
            return false;
    memset(count, 0, sizeof count);
    for (int a = 0; a < k->n_axis; a++)
        if (!(k->axis[a].name =
                    nnc_arena_printf(mem, "%s%d", axis[k->axis[a].kind], count[k->axis[a].kind]++)))
            return false;
    return true;
}

/* Names the kernel "k_add_relu_1a2b3c4d": the node's first ops, and the hash. */
bool nnc_kernel_name(nnc_kernel *k, const nnc_node *n, nnc_arena *a)
{
    char text[96] = "k";
    size_t at = 1;
    uint32_t last = OP__COUNT;
    int count = n->op == OP_fused ? (int)n->body->n_node : 1, shown = 0;
    for (int i = 0; i < count && shown < 4; i++) {
        uint32_t op = n->op == OP_fused ? n->body->node[i].op : n->op;
        if ((nnc_op_class((nnc_op)op) == CL_leaf && op != OP_iota) || op == last)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "_%s", nnc_ops[op].name);
        last = op;
        shown++;
    }
    k->hash = nnc_kernel_hash(k);
    if (k->hash.hi == ~(uint64_t)0 || !name_parts(k, a))
        return false;
    k->name = nnc_arena_printf(a, "%s_%08x", text, (unsigned)(k->hash.lo & 0xffffffffu));
    return k->name != NULL;
}
