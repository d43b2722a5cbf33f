/* codegen/kernel.c -- small facts about kernels: affine forms over the axes' extents, the
 * parallel domain, hashes. */
#include "codegen/internal.h"

#include <string.h>

const char *const nnc_kred_names[6] = {"sum", "prod", "max", "min", "argmax", "argmin"};
const char *const nnc_kaxis_names[3] = {"outer", "map", "reduce"};
const char *const nnc_khint_names[4] = {"bounded", "halfpi", "nonneg", "nonan"};

bool nnc_affine_equal(const nnc_affine *a, const nnc_affine *b)
{
    return a->c == b->c && memcmp(a->k, b->k, sizeof a->k) == 0;
}

nnc_span nnc_affine_span(const nnc_kernel *k, const nnc_affine *e)
{
    nnc_span s = {e->c, e->c, true};
    for (int a = 0; a < NNC_KAXES; a++) {
        int64_t most;
        if (e->k[a] == 0)
            continue;
        if (a >= k->n_axis || !nnc_mul_ok(e->k[a], k->axis[a].extent - 1, &most))
            return (nnc_span){0, 0, false};
        if (!(most >= 0 ? nnc_add_ok(s.hi, most, &s.hi) : nnc_add_ok(s.lo, most, &s.lo)))
            return (nnc_span){0, 0, false};
    }
    return s;
}

/* rest = at - m e; false when it leaves 64 bits. */
static bool subtract(nnc_affine *rest, int64_t m, const nnc_affine *e)
{
    int64_t v;
    for (int a = 0; a < NNC_KAXES; a++)
        if (!nnc_mul_ok(m, e->k[a], &v) || __builtin_sub_overflow(rest->k[a], v, &rest->k[a]))
            return false;
    return nnc_mul_ok(m, e->c, &v) && !__builtin_sub_overflow(rest->c, v, &rest->c);
}

/* Writes at = sum m_g e_g + rest: where guard g bounds e_g to [lo, hi), m_g e_g is bounded by
 * that rather than by the axes. A multiple is kept only where it narrows the span, so the
 * answer is always a bound. */
nnc_span nnc_access_span(const nnc_kernel *k, const nnc_kins *in)
{
    nnc_affine rest = in->at;
    nnc_span best = nnc_affine_span(k, &rest);
    int64_t lo = 0, hi = 0;
    for (int g = 0; g < in->n_guard; g++) {
        const nnc_kguard *q = &in->guard[g];
        int64_t m = 0, x, y;
        for (int a = 0; a < NNC_KAXES && m == 0; a++)
            if (q->e.k[a] != 0 && rest.k[a] != 0 && rest.k[a] % q->e.k[a] == 0)
                m = rest.k[a] / q->e.k[a];
        nnc_affine r = rest;
        if (m == 0 || q->hi <= q->lo || !subtract(&r, m, &q->e))
            continue;
        nnc_span s = nnc_affine_span(k, &r), own = nnc_affine_span(k, &q->e);
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

int64_t nnc_kernel_domain(const nnc_kernel *k)
{
    int64_t d = 1;
    for (int a = 0; a < k->n_outer; a++)
        if (a != k->sched.vec_axis && !nnc_mul_ok(d, k->axis[a].extent, &d))
            return -1;
    int v = k->sched.vec_axis;
    if (v >= 0 && v < k->n_outer && k->sched.chunk > 0) {
        int64_t n = (k->axis[v].extent + k->sched.chunk - 1) / k->sched.chunk;
        if (!nnc_mul_ok(d, n, &d))
            return -1;
    }
    return d;
}

int64_t nnc_kernel_scratch(const nnc_kernel *k)
{
    int64_t n = 0;
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].role == KB_tmp)
            n += nnc_align_up(k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype), 64);
    return n;
}

int nnc_stage_vec(const nnc_kernel *k, const nnc_kstage *s)
{
    int v = k->sched.vec_axis;
    if (v < 0 || v < k->n_outer)
        return v;
    return s->axes ? 31 - __builtin_clz(s->axes) : -1;
}

nnc_hash128 nnc_kernel_hash(const nnc_kernel *k)
{
    nnc_text t = {0};
    nnc_kernel_print_as(&t, k, false);
    nnc_hash128 h = nnc_hash(nnc_text_str(&t), t.n);
    nnc_text_deinit(&t);
    return h;
}
