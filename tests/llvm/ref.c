/* tests/llvm/ref.c -- walks a kernel point by point, as the kernel IR's comment defines it, in f64 rounded
 * to the type after every operation. This oracle shares nothing with the emitter or the interpreter. */
#include "kb.h"

#include <math.h>

typedef struct val {
    double f;
    int64_t i;
} val;

typedef struct walk {
    const nnc_kernel *k;
    void **buf;
    int64_t axis[NNC_KAXES];
    val v[KB_INS], acc[KB_INS];
    int64_t place[KB_INS];
} walk;

static int64_t affine(const walk *w, const nnc_affine *a)
{
    int64_t s = a->c;
    for (int i = 0; i < w->k->n_axis; i++)
        s += a->k[i] * w->axis[i];
    return s;
}

static val rounded(nnc_dtype d, val v)
{
    if (d == DT_f32)
        v.f = (float)v.f;
    return v;
}

static val load(walk *w, const nnc_kins *n)
{
    nnc_dtype d = w->k->buf[n->buf].dtype;
    for (int g = 0; g < n->n_guard; g++) {
        int64_t e = affine(w, &n->guard[g].e);
        if (e < n->guard[g].lo || e >= n->guard[g].hi)
            return n->arg[1] >= 0 ? w->v[n->arg[1]] : (val){0, 0};
    }
    int64_t at = affine(w, &n->at);
    if (n->arg[0] >= 0) {
        int64_t i = w->v[n->arg[0]].i;
        at += (i < 0 ? 0 : i >= n->limit ? n->limit - 1 : i) * n->scale;
    }
    return nnc_is_float(d) ? (val){nnc_get_f64(d, w->buf[n->buf], at), 0}
                           : (val){0, nnc_get_i64(d, w->buf[n->buf], at)};
}

static val sop(walk *w, const nnc_kins *n)
{
    const nnc_kins *a = &w->k->ins[n->arg[0]];
    val x[3] = {{0, 0}, {0, 0}, {0, 0}}, r = {0, 0};
    for (int i = 0; i < nnc_sops[n->sop].arity; i++)
        x[i] = w->v[n->arg[i]];
    nnc_dtype from = (nnc_dtype)a->dtype, to = (nnc_dtype)n->dtype;
    if (n->sop == SC_select)
        return x[0].i ? x[1] : x[2];
    if (n->sop == SC_cast) {
        if (to == DT_f32 && (n->cast_to == DT_f16 || n->cast_to == DT_bf16))
            to = (nnc_dtype)n->cast_to;
        uint64_t cell = 0;
        if (nnc_is_float(from) || nnc_is_float(to))
            nnc_set_f64(to, &cell, 0,
                nnc_is_float(from) ? x[0].f
                : from == DT_u64   ? (double)(uint64_t)x[0].i
                                   : (double)x[0].i);
        else
            nnc_set_i64(to, &cell, 0, x[0].i);
        if (nnc_is_float(to))
            return (val){nnc_get_f64(to, &cell, 0), 0};
        return (val){0, nnc_get_i64(to, &cell, 0)};
    }
    bool bool_out = n->dtype == DT_bool;
    if (nnc_is_float(from))
        r.f = nnc_sop_eval_f64((nnc_sop)n->sop, x[0].f, x[1].f, x[2].f);
    else
        r.i = nnc_sop_eval_i64((nnc_sop)n->sop, from, x[0].i, x[1].i, x[2].i);
    if (bool_out && nnc_is_float(from))
        r.i = r.f != 0;
    return rounded(to, r);
}

static void store(walk *w, const nnc_kins *n)
{
    nnc_dtype d = w->k->buf[n->buf].dtype;
    for (int g = 0; g < n->n_guard; g++) {
        int64_t e = affine(w, &n->guard[g].e);
        if (e < n->guard[g].lo || e >= n->guard[g].hi)
            return;
    }
    int64_t at = affine(w, &n->at);
    if (nnc_is_float(d))
        nnc_set_f64(d, w->buf[n->buf], at, w->v[n->arg[0]].f);
    else
        nnc_set_i64(d, w->buf[n->buf], at, w->v[n->arg[0]].i);
}

static bool beats(const walk *w, const nnc_kins *n, val x, val a)
{
    bool max = n->sop == KR_argmax || n->sop == KR_max;
    if (nnc_is_float((nnc_dtype)w->k->ins[n->arg[0]].dtype))
        return a.f == a.f && (x.f != x.f || (max ? x.f > a.f : x.f < a.f));
    if (w->k->ins[n->arg[0]].dtype == DT_u64)
        return max ? (uint64_t)x.i > (uint64_t)a.i : (uint64_t)x.i < (uint64_t)a.i;
    return max ? x.i > a.i : x.i < a.i;
}

/* acc of reduce i takes the current point in; place < 0: nothing yet. */
static void reduce(walk *w, int i, uint32_t own)
{
    const nnc_kins *n = &w->k->ins[i];
    if (n->arg[1] >= 0 && !w->v[n->arg[1]].i)
        return;
    int64_t place = 0;
    for (int a = 0; a < w->k->n_axis; a++)
        if (own >> a & 1 && w->k->axis[a].kind == KA_reduce)
            place = place * w->k->axis[a].extent + w->axis[a];
    val x = w->v[n->arg[0]];
    bool first = w->place[i] < 0, keep = n->sop == KR_sum || n->sop == KR_prod;
    if (keep) {
        nnc_sop op = n->sop == KR_sum ? SC_add : SC_mul;
        if (nnc_is_float((nnc_dtype)n->dtype)) /* not rounded: the true sum */
            w->acc[i].f = nnc_sop_eval_f64(op, first ? n->sop != KR_sum : w->acc[i].f, x.f, 0);
        else
            w->acc[i].i = nnc_sop_eval_i64(
                op, (nnc_dtype)n->dtype, first ? n->sop != KR_sum : w->acc[i].i, x.i, 0);
        w->place[i] = 0;
    } else if (first || beats(w, n, x, w->acc[i])) {
        w->acc[i] = x;
        w->place[i] = place;
    }
}

static void run(walk *w, int i, uint32_t own)
{
    const nnc_kins *n = &w->k->ins[i];
    switch ((nnc_kop)n->op) {
    case KO_const: w->v[i] = rounded((nnc_dtype)n->dtype, (val){n->f, n->i}); break;
    case KO_index: w->v[i] = (val){0, w->axis[n->i]}; break;
    case KO_load: w->v[i] = load(w, n); break;
    case KO_store: store(w, n); break;
    case KO_sop: w->v[i] = sop(w, n); break;
    case KO_reduce: reduce(w, i, own); break;
    }
}

static void finish(walk *w, const nnc_kstage *s)
{
    for (int i = s->body0; i < s->body1; i++) {
        const nnc_kins *n = &w->k->ins[i];
        if (n->op != KO_reduce)
            continue;
        if (n->sop == KR_argmax || n->sop == KR_argmin)
            w->v[i].i = w->place[i] < 0 ? 0 : w->place[i];
        else
            w->v[i] = rounded((nnc_dtype)n->dtype, w->acc[i]);
    }
    for (int i = s->post0; i < s->post1; i++)
        run(w, i, 0);
}

/* Axis a of the stage on; kinds in order: map, then reduce. */
static void loops(walk *w, const nnc_kstage *s, int kind, int a)
{
    for (; a < w->k->n_axis; a++)
        if (s->axes >> a & 1 && w->k->axis[a].kind == (nnc_kaxis_kind)kind)
            break;
    if (a < w->k->n_axis) {
        for (int64_t i = 0; i < w->k->axis[a].extent; i++) {
            w->axis[a] = i;
            loops(w, s, kind, a + 1);
        }
        return;
    }
    if (kind == KA_map) {
        for (int i = 0; i < w->k->n_ins; i++) {
            w->place[i] = -1;
            w->acc[i] = (val){0, 0};
        }
        loops(w, s, KA_reduce, 0);
        finish(w, s);
        return;
    }
    for (int i = s->body0; i < s->body1; i++)
        run(w, i, s->axes);
}

static void outer(walk *w, int a)
{
    if (a < w->k->n_outer) {
        for (int64_t i = 0; i < w->k->axis[a].extent; i++) {
            w->axis[a] = i;
            outer(w, a + 1);
        }
        return;
    }
    for (int s = 0; s < w->k->n_stage; s++)
        loops(w, &w->k->stage[s], KA_map, 0);
}

void kb_reference(const nnc_kernel *k, void *const *args, void *scratch)
{
    static walk w;
    static void *buf[16];
    char *tmp = scratch;
    memset(&w, 0, sizeof w);
    w.k = k;
    w.buf = buf;
    for (int i = 0, n = 0; i < k->n_buf; i++) {
        if (k->buf[i].role != KB_tmp) {
            buf[i] = args[n++];
            continue;
        }
        buf[i] = tmp;
        tmp += nnc_align_up(k->buf[i].numel * nnc_dtype_size(k->buf[i].dtype), 64);
    }
    outer(&w, 0);
}
