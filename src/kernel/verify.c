/* kernel/verify.c -- verifies a kernel: visibility and types of SSA values, axes, and that no access leaves its buffer. A kernel from
 * a file that passes here reads and writes only its arguments and its scratch. */
#include "kernel/kernel.h"
#include <math.h>

typedef struct verifier {
    const nnc_kernel *k;
    nnc_sink *sink;
    uint8_t *seen; /* per instruction: 0 not visible, 1 in this section, 2 in all later ones */
} verifier;

static nnc_status bad(const verifier *v, int id, const char *what)
{
    return nnc_fail0(v->sink, NNC_E_BUG, "kernel %s: instruction %d: %s",
        v->k->name ? v->k->name : "?", id, what);
}

nnc_status nnc_bad_kernel(const nnc_kernel *k, nnc_sink *sink, const char *what)
{
    return nnc_fail0(sink, NNC_E_BUG, "kernel %s: %s", k->name ? k->name : "?", what);
}

static bool visible(const verifier *v, int32_t id)
{
    return id >= 0 && id < v->k->n_ins && v->seen[id] && v->k->ins[id].op != KO_store;
}

static bool typed(const verifier *v, int32_t id, int dtype)
{
    return visible(v, id) && v->k->ins[id].dtype == dtype;
}

static bool is_int(int d)
{
    return d >= DT_i8 && d <= DT_u64;
}
static bool is_logic(nnc_sop op)
{
    return op == SC_and || op == SC_or || op == SC_xor || op == SC_not;
}
/* Does the op take bool operands, besides conditions and select's, as in graphs (ir/infer.c)? */
static bool takes_bool(nnc_sop op)
{
    return is_logic(op) || op == SC_identity || op == SC_eq || op == SC_ne || op == SC_select;
}
static bool ssa_dtype(int d)
{
    return d < DT__COUNT && d != DT_f16 && d != DT_bf16;
}

static bool affine_ok(const nnc_affine *e, uint32_t axes)
{
    for (int a = 0; a < NNC_KAXES; a++)
        if (e->k[a] != 0 && !(axes >> a & 1))
            return false;
    return true;
}

/* Is v so small that sums and small multiples fit in 64 bits? Real sizes are below 2^47. */
static bool tame(int64_t v)
{
    return v >= -((int64_t)1 << 55) && v <= (int64_t)1 << 55;
}

static bool affine_tame(const nnc_kernel *k, const nnc_affine *e)
{
    nnc_span s = nnc_affine_span(k, e);
    bool ok = s.ok && tame(s.lo) && tame(s.hi);
    for (int a = 0; a < NNC_KAXES; a++)
        ok = ok && tame(e->k[a]);
    return ok;
}

static bool numbers_tame(const nnc_kernel *k, const nnc_kins *in)
{
    bool ok = affine_tame(k, &in->at);
    for (int g = 0; g < in->n_guard; g++) {
        const nnc_kguard *q = &in->guard[g];
        ok = ok && affine_tame(k, &q->e) && tame(q->lo) && tame(q->hi);
    }
    return ok;
}

static nnc_status access_ok(const verifier *v, int id, uint32_t axes)
{
    const nnc_kernel *k = v->k;
    const nnc_kins *in = &k->ins[id];
    bool load = in->op == KO_load;
    if (in->buf < 0 || in->buf >= k->n_buf)
        return bad(v, id, "no such buffer");
    const nnc_kbuf *b = &k->buf[in->buf];
    if (nnc_kdtype(b->dtype) != in->dtype)
        return bad(v, id, "type differs from the buffer's");
    if (!load && b->role == KB_in)
        return bad(v, id, "stores to an input");
    if (in->n_guard > NNC_KGUARDS)
        return bad(v, id, "too many guards");
    if (!affine_ok(&in->at, axes))
        return bad(v, id, "index uses an axis that does not run here");
    for (int g = 0; g < in->n_guard; g++)
        if (!affine_ok(&in->guard[g].e, axes))
            return bad(v, id, "guard uses an axis that does not run here");
    if (!numbers_tame(k, in))
        return bad(v, id, "a number is out of range");
    nnc_span s = nnc_access_span(k, in);
    if (s.ok && nnc_kins_index(in) >= 0) {
        int64_t most;
        if (in->limit < 1 || !nnc_mul_ok(in->scale, in->limit - 1, &most))
            return bad(v, id, "bad indirect range");
        s.ok = most >= 0 ? nnc_add_ok(s.hi, most, &s.hi) : nnc_add_ok(s.lo, most, &s.lo);
    }
    if (!s.ok || s.lo < 0 || s.hi >= b->numel)
        return bad(v, id, "may leave its buffer");
    return NNC_OK;
}

static nnc_status sop_ok(const verifier *v, int id)
{
    const nnc_kins *in = &v->k->ins[id];
    if (in->sop >= SC__COUNT)
        return bad(v, id, "no such operation");
    const nnc_sop_info *o = &nnc_sops[in->sop];
    for (int i = 0; i < o->arity; i++)
        if (!visible(v, in->arg[i]))
            return bad(v, id, "operand is not visible here");
    int d0 = v->k->ins[in->arg[0]].dtype;
    if (in->sop == SC_cast) {
        if (in->cast_to >= DT__COUNT || nnc_kdtype((nnc_dtype)in->cast_to) != in->dtype)
            return bad(v, id, "cast's types differ");
        return NNC_OK;
    }
    bool ok = true;
    if (o->res == SR_select)
        ok = d0 == DT_bool && typed(v, in->arg[1], in->dtype) && typed(v, in->arg[2], in->dtype);
    else
        for (int i = 1; i < o->arity; i++)
            ok = ok && typed(v, in->arg[i], d0);
    if (o->res == SR_same)
        ok = ok && in->dtype == d0;
    if (o->res == SR_bool)
        ok = ok && in->dtype == DT_bool;
    if ((o->flags & OF_float) && !nnc_is_float((nnc_dtype)d0))
        ok = false;
    if ((o->flags & OF_int) && !is_int(d0))
        ok = false;
    if (is_logic((nnc_sop)in->sop) && d0 != DT_bool)
        ok = false;
    if (d0 == DT_bool && !takes_bool((nnc_sop)in->sop))
        return bad(v, id, "bool has no arithmetic");
    return ok ? NNC_OK : bad(v, id, "operand types do not fit");
}

static nnc_status reduce_ok(const verifier *v, int id, uint32_t axes, bool body)
{
    const nnc_kins *in = &v->k->ins[id];
    if (!body || !(axes & nnc_kernel_axes(v->k, KA_reduce)))
        return bad(v, id, "reduces where no reduce axis runs");
    if (in->sop > KR_argmin || !visible(v, in->arg[0]))
        return bad(v, id, "operand is not visible here");
    if (in->arg[1] >= 0 && !typed(v, in->arg[1], DT_bool))
        return bad(v, id, "mask must be a bool");
    if (v->k->ins[in->arg[0]].dtype == DT_bool)
        return bad(v, id, "bool has no arithmetic");
    for (int a = 0; a < v->k->n_axis && in->running; a++)
        if (in->sop >= KR_argmax ||
            ((axes >> a & 1) && v->k->axis[a].kind == KA_reduce && !v->k->axis[a].seq))
            return bad(v, id, "scans along axes that do not run in order");
    int want = in->sop >= KR_argmax ? (int)DT_i64 : v->k->ins[in->arg[0]].dtype;
    return in->dtype == want ? NNC_OK : bad(v, id, "operand types do not fit");
}

static bool const_ok(const nnc_kins *in)
{
    const nnc_dtype d = (nnc_dtype)in->dtype;
    if (nnc_is_float(d))
        return d == DT_f64 || !isfinite(in->f) || isfinite((float)in->f);
    return nnc_sop_eval_i64(SC_cast, d, in->i, 0, 0) == in->i;
}

static bool index_ok(const verifier *v, const nnc_kins *in)
{
    int32_t i = nnc_kins_index(in);
    return i < 0 || (visible(v, i) && is_int(v->k->ins[i].dtype));
}

static bool seq_in(const nnc_kernel *k, uint32_t axes)
{
    for (int a = 0; a < k->n_axis; a++)
        if ((axes >> a & 1) && k->axis[a].seq)
            return true;
    return false;
}

static nnc_status ins_ok(const verifier *v, int id, uint32_t axes, bool body)
{
    const nnc_kins *in = &v->k->ins[id];
    if (!ssa_dtype(in->dtype))
        return bad(v, id, "16-bit floats live in buffers only");
    switch (in->op) {
    case KO_const:
        return const_ok(in) ? NNC_OK : bad(v, id, "the constant is outside its type's range");
    case KO_index:
        if (in->i < 0 || in->i >= v->k->n_axis || !(axes >> in->i & 1) || in->dtype != DT_i64)
            return bad(v, id, "index of an axis that does not run here");
        return NNC_OK;
    case KO_load:
        if (!index_ok(v, in))
            return bad(v, id, "index must be a visible integer");
        if (in->arg[1] >= 0 && !typed(v, in->arg[1], in->dtype))
            return bad(v, id, "fill has another type");
        if (in->n_guard > 0 && in->arg[1] < 0)
            return bad(v, id, "a guarded load needs a fill");
        return access_ok(v, id, axes);
    case KO_store:
        if (!typed(v, in->arg[0], in->dtype))
            return bad(v, id, "stores something else than it says");
        if (!index_ok(v, in))
            return bad(v, id, "index must be a visible integer");
        if (in->arg[1] >= 0 && !seq_in(v->k, axes))
            return bad(v, id, "a store at a computed index needs an axis that runs in order");
        return access_ok(v, id, axes);
    case KO_sop: return sop_ok(v, id);
    case KO_reduce: return reduce_ok(v, id, axes, body);
    default: return bad(v, id, "no such instruction");
    }
}

static nnc_status section_ok(const verifier *v, int b, int e, uint32_t axes, bool body)
{
    for (int i = b; i < e; i++) {
        NNC_TRY(ins_ok(v, i, axes, body));
        v->seen[i] = v->k->ins[i].op != KO_reduce ||
                     v->k->ins[i].running; /* a reduction's result is visible only in the post */
    }
    return NNC_OK;
}

static nnc_status stage_ok(const verifier *v, const nnc_kstage *s, uint32_t outer)
{
    const nnc_kernel *k = v->k;
    uint32_t map = 0;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (k->axis[a].kind == KA_map)
            map |= 1u << a;
    uint32_t all = (1u << k->n_axis) - 1;
    if (s->axes & (outer | ~all))
        return nnc_bad_kernel(k, v->sink, "a stage runs over axes that are not its own");
    int64_t points = 1;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if ((s->axes >> a & 1) &&
            (!nnc_mul_ok(points, k->axis[a].extent, &points) || !tame(points)))
            return nnc_bad_kernel(k, v->sink, "too many points in a stage");
    NNC_TRY(section_ok(v, s->body0, s->body1, outer | s->axes, true));
    for (int i = s->body0; i < s->body1; i++)
        v->seen[i] = k->ins[i].op == KO_reduce;
    NNC_TRY(section_ok(v, s->post0, s->post1, outer | (s->axes & map), false));
    bool keep = !(s->axes & map);
    for (int i = s->body0; i < s->post1; i++)
        if (v->seen[i])
            v->seen[i] = keep ? 2 : 0;
    return NNC_OK;
}

static nnc_status shape_ok(const nnc_kernel *k, nnc_sink *sink)
{
    if (k->n_axis < 0 || k->n_axis > NNC_KAXES || k->n_outer < 0 || k->n_outer > k->n_axis)
        return nnc_bad_kernel(k, sink, "bad number of axes");
    int64_t points = 1, bytes = 0;
    for (int a = 0; a < k->n_axis; a++) {
        if (k->axis[a].extent < 1 || k->axis[a].kind > KA_reduce ||
            (k->axis[a].kind == KA_outer) != (a < k->n_outer) || (k->axis[a].seq && a < k->n_outer))
            return nnc_bad_kernel(k, sink, "bad axis");
        if (a < k->n_outer && (!nnc_mul_ok(points, k->axis[a].extent, &points) || !tame(points)))
            return nnc_bad_kernel(k, sink, "too many points");
    }
    for (int b = 0; b < k->n_buf; b++) {
        const nnc_kbuf *u = &k->buf[b];
        if (u->role > KB_tmp || (int)u->dtype < 0 || u->dtype >= DT__COUNT || u->numel < 1 ||
            u->numel > (int64_t)1 << 46)
            return nnc_bad_kernel(k, sink, "bad buffer");
        if (u->role == KB_tmp)
            bytes += u->numel * nnc_dtype_size(u->dtype) + 64;
        if (bytes > (int64_t)1 << 40)
            return nnc_bad_kernel(k, sink, "too much scratch");
    }
    if (k->n_stage < 1)
        return nnc_bad_kernel(k, sink, "no stage");
    return NNC_OK;
}

nnc_status nnc_kernel_verify(const nnc_kernel *k, nnc_sink *sink)
{
    NNC_TRY(shape_ok(k, sink));
    verifier v = {k, sink, nnc_calloc((size_t)k->n_ins + 1, 1)};
    NNC_NEED(v.seen, sink);
    uint32_t outer = k->n_outer ? (1u << k->n_outer) - 1 : 0;
    nnc_status s = NNC_OK;
    int at = 0;
    for (int i = 0; i < k->n_stage && s == NNC_OK; i++) {
        const nnc_kstage *g = &k->stage[i];
        if (g->body0 != at || g->body1 < g->body0 || g->post0 != g->body1 || g->post1 < g->post0 ||
            g->post1 > k->n_ins)
            s = nnc_bad_kernel(k, sink, "stages do not cover the instructions in order");
        else
            s = stage_ok(&v, g, outer);
        at = g->post1;
    }
    if (s == NNC_OK && at != k->n_ins)
        s = nnc_bad_kernel(k, sink, "stages do not cover the instructions in order");
    nnc_free(v.seen);
    return s;
}
