/* kernel/directive.c -- the list of directives of a CPU schedule, and the division of the outer axes into work items that it defines. */
#include "kernel/kernel.h"

#include <string.h>

const char *const nnc_kdo_names[KD__COUNT] = {"tile", "order", "vector", "unroll", "transpose",
    "ring", "prefetch", "panel", "nontemporal", "quick"};

static int find_directive(const nnc_kschedule *s, nnc_kdo what, int axis)
{
    for (int i = 0; i < s->n; i++)
        if (s->d[i].what == what && (axis < 0 || s->d[i].axis == axis))
            return i;
    return -1;
}

int64_t nnc_sched_n(const nnc_kschedule *s, nnc_kdo what, int axis)
{
    int i = find_directive(s, what, axis);
    return i < 0 ? 0 : s->d[i].n;
}

int nnc_sched_axis(const nnc_kschedule *s, nnc_kdo what)
{
    int i = find_directive(s, what, -1);
    return i < 0 ? -1 : s->d[i].axis;
}

bool nnc_sched_has_for(const nnc_kschedule *s, nnc_kdo what, int axis)
{
    return find_directive(s, what, axis) >= 0;
}

bool nnc_sched_has(const nnc_kschedule *s, nnc_kdo what)
{
    return find_directive(s, what, -1) >= 0;
}

static bool insert(nnc_kschedule *s, nnc_kdirective d)
{
    if (s->n == NNC_KDIRECTIVES)
        return false;
    int i = s->n++;
    for (; i > 0 && s->d[i - 1].what > d.what; i--)
        s->d[i] = s->d[i - 1];
    s->d[i] = d;
    return true;
}

bool nnc_sched_put(nnc_kschedule *s, nnc_kdo what, int axis, int64_t n)
{
    int i = find_directive(s, what, axis);
    nnc_kdirective d = {(uint8_t)what, (int8_t)axis, -1, n};
    if (i < 0)
        return insert(s, d);
    s->d[i] = d;
    return true;
}

bool nnc_sched_has_ring(const nnc_kschedule *s, int buf)
{
    for (int i = 0; i < s->n; i++)
        if (s->d[i].what == KD_ring && s->d[i].buf == buf)
            return true;
    return false;
}

bool nnc_sched_put_ring(nnc_kschedule *s, int buf, int axis, int64_t n)
{
    return insert(s, (nnc_kdirective){KD_ring, (int8_t)axis, (int16_t)buf, n});
}

void nnc_sched_drop(nnc_kschedule *s, nnc_kdo what, int axis)
{
    for (int i; (i = find_directive(s, what, axis)) >= 0;)
        memmove(&s->d[i], &s->d[i + 1], sizeof s->d[0] * (size_t)(--s->n - i));
}

int nnc_kernel_digits(const nnc_kernel *k, int *axis)
{
    int n = 0, v = nnc_sched_vec(&k->sched);
    for (int i = 0; i < k->sched.n; i++)
        if (k->sched.d[i].what == KD_order && n < NNC_KAXES)
            axis[n++] = k->sched.d[i].axis;
    if (n > 0)
        return n;
    for (int a = 0; a < k->n_outer; a++)
        if (a != v)
            axis[n++] = a;
    if (v >= 0 && v < k->n_outer)
        axis[n++] = v;
    return n;
}

int64_t nnc_kernel_blocks(const nnc_kernel *k, int axis)
{
    int64_t tile = nnc_sched_n(&k->sched, KD_tile, axis);
    if (tile > 0)
        return (k->axis[axis].extent + tile - 1) / tile;
    return axis == nnc_sched_vec(&k->sched) ? 1 : k->axis[axis].extent;
}

int64_t nnc_kernel_domain(const nnc_kernel *k)
{
    int64_t d = 1;
    for (int a = 0; a < k->n_outer; a++)
        if (!nnc_mul_ok(d, nnc_kernel_blocks(k, a), &d))
            return -1;
    return d;
}

const nnc_kstage *nnc_kernel_sums(const nnc_kernel *k)
{
    const nnc_kstage *s = &k->stage[k->n_stage - 1];
    if (k->n_stage > 2 || !s->axes || s->axes & (s->axes - 1) ||
        k->axis[__builtin_ctz(s->axes)].kind != KA_reduce || (k->n_stage == 2 && s[-1].axes))
        return NULL;
    return s;
}

/* The stage's only store, if it is an unguarded f32 result that needs no body value but the sum: it can hold partial sums. Otherwise
 * NULL. */
static const nnc_kins *only_store(const nnc_kernel *k, const nnc_kstage *s, int sum)
{
    const nnc_kins *y = NULL;
    for (int i = s->post0; i < s->post1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_store && y)
            return NULL;
        y = in->op == KO_store ? in : y;
        for (int j = 0; j < 3; j++) {
            const int32_t x = in->arg[j];
            if (x >= 0 && x < s->post0 && x != sum && k->ins[x].op != KO_const)
                return NULL;
        }
    }
    const bool ok = y && y->arg[1] < 0 && y->n_guard == 0 && k->buf[y->buf].dtype == DT_f32 &&
                    k->buf[y->buf].role == KB_out;
    return ok ? y : NULL;
}

bool nnc_kernel_adds_ok(const nnc_kernel *k)
{
    const nnc_kstage *s = k->stage;
    const int v = nnc_sched_vec(&k->sched);
    int sum = -1;
    if (k->n_stage != 1 || v < 0 || v >= k->n_outer || !nnc_sched_has(&k->sched, KD_unroll) ||
        nnc_sched_has(&k->sched, KD_panel) || k->n_axis <= k->n_outer ||
        s->axes != ((1u << k->n_axis) - (1u << k->n_outer)))
        return false;
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (k->axis[a].kind != KA_reduce)
            return false;
    for (int i = s->body0; i < s->body1; i++) {
        if (k->ins[i].op == KO_store || (k->ins[i].op == KO_reduce && sum >= 0))
            return false;
        sum = k->ins[i].op == KO_reduce ? i : sum;
    }
    if (sum < 0 || k->ins[sum].sop != KR_sum || k->ins[sum].dtype != DT_f32 ||
        k->ins[sum].arg[1] >= 0 || k->ins[sum].running)
        return false;
    const nnc_kins *y = only_store(k, s, sum);
    return y && (y->arg[0] == sum || k->n_axis == k->n_outer + 1);
}

int nnc_kernel_added_axis(const nnc_kernel *k)
{
    for (int a = k->n_outer; a < k->n_axis; a++)
        if (nnc_sched_n(&k->sched, KD_tile, a) > 0 && nnc_kernel_adds_ok(k))
            return a;
    return -1;
}

bool nnc_kernel_blocked_ok(const nnc_kernel *k)
{
    const nnc_kschedule *s = &k->sched;
    int v = nnc_sched_vec(s), width = nnc_sched_width(s);
    const nnc_kstage *sums = nnc_kernel_sums(k);
    if (v < 0 || v >= k->n_outer || nnc_sched_has(s, KD_transpose) || nnc_sched_has(s, KD_unroll) ||
        width < 2 || width > 128 || width & (width - 1) || !sums)
        return false;
    int64_t n = k->axis[v].extent, tile = nnc_sched_n(s, KD_tile, v), bytes = 0;
    int64_t chunk = nnc_align_up(tile > 0 && tile < n ? tile : n, width);
    if (n < width || (chunk < n && chunk != tile))
        return false;
    for (int i = sums->body0; i < sums->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_store && (in->n_guard || nnc_kins_index(in) >= 0))
            return false;
        if (in->op != KO_reduce)
            continue;
        if (in->sop == KR_argmax || in->sop == KR_argmin || in->dtype == DT_bool ||
            chunk > NNC_KBLOCK_BYTES)
            return false;
        bytes += nnc_align_up(chunk * nnc_dtype_size((nnc_dtype)in->dtype), 64);
    }
    return bytes > 0 && bytes <= NNC_KBLOCK_BYTES;
}
