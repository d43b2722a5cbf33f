/* kernel/panel.c -- contractions that compute their source (a prologue). The sums of all panels of the weights read the same source, and
 * each would compute it again. With the directive `panel` a worker computes the source of a block once, into its scratch memory, before the
 * block's first panel.
 *
 *     for blocks of the source                              for blocks of the source
 *       for panels of the weights                             t[u, c] = f(x[u, c])               for all u of the block, all c
 *         y[u, o] = sum c: f(x[u, c]) w[o, c]        ->       for panels of the weights
 *                                                               y[u, o] = sum c: t[u, c] w[o, c].
 *
 * The kernel stays as it is: the directive only changes how it is computed. */
#include "kernel/kernel.h"

#include <string.h>

/* The first factor of the only sum, in the only stage with axes; -1: there is none. */
static int32_t source_of(const nnc_kernel *k, const nnc_kstage **stage)
{
    int32_t sum = -1;
    *stage = NULL;
    for (int s = 0; s < k->n_stage; s++) {
        if (k->stage[s].axes && *stage)
            return -1;
        *stage = k->stage[s].axes ? &k->stage[s] : *stage;
    }
    for (int a = k->n_outer; *stage && a < k->n_axis; a++)
        if (k->axis[a].kind != KA_reduce || !((*stage)->axes >> a & 1))
            return -1;
    for (int i = 0; i < k->n_ins; i++) {
        if (k->ins[i].op == KO_reduce && sum >= 0)
            return -1;
        sum = k->ins[i].op == KO_reduce ? i : sum;
    }
    if (sum < 0 || k->ins[sum].sop != KR_sum || k->ins[sum].arg[1] >= 0)
        return -1;
    const nnc_kins *f = &k->ins[k->ins[sum].arg[0]];
    return f->op == KO_sop && (f->sop == SC_fma || f->sop == SC_mul) ? f->arg[0] : -1;
}

/* Adds the operands of the set's instructions. */
static void add_operands(const nnc_kernel *k, nnc_kset *s)
{
    for (int i = k->n_ins; i-- > 0;)
        for (int j = 0; nnc_kset_has(s, i) && j < 3; j++)
            if (k->ins[i].arg[j] >= 0)
                nnc_kset_add(s, k->ins[i].arg[j]);
}

void nnc_kernel_cone(const nnc_kernel *k, int32_t id, nnc_kset *cone)
{
    memset(cone->word, 0, sizeof cone->word[0] * ((size_t)k->n_ins / 64 + 1));
    nnc_kset_add(cone, id);
    add_operands(k, cone);
}

/* Lays out the panel: the axes of the sum innermost, then the tiled outer axes, which count from the block's first point. */
static bool lay_out(const nnc_kernel *k, nnc_kpanel *p)
{
    int64_t n = 1;
    for (int a = k->n_axis; a-- > 0;) {
        int64_t tile = a < k->n_outer ? nnc_sched_n(&k->sched, KD_tile, a) : k->axis[a].extent;
        p->stride[a] = tile > 1 && p->axes >> a & 1 ? n : 0;
        if (p->stride[a] && !nnc_mul_ok(n, nnc_min64(tile, k->axis[a].extent), &n))
            return false;
    }
    p->bytes = nnc_align_up(nnc_mul_sat(n, nnc_dtype_size((nnc_dtype)k->ins[p->x].dtype)), 64);
    return n <= INT32_MAX;
}

const char *nnc_kernel_panel(const nnc_kernel *k, nnc_kpanel *p)
{
    const nnc_kstage *stage = NULL;
    int v = nnc_sched_vec(&k->sched);
    *p = (nnc_kpanel){.x = source_of(k, &stage)};
    if (p->x < 0 || !stage || v < 0 || v >= k->n_outer)
        return "only products summed along an outer vector axis have a panel";
    if (k->ins[p->x].op != KO_sop)
        return "the sum's source is not computed";
    nnc_kset cone;
    nnc_kernel_cone(k, p->x, &cone);
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (nnc_kset_has(&cone, i) && in->op == KO_load && k->buf[in->buf].role != KB_in)
            return "the sum's source is not computed from operands alone";
        p->axes |= nnc_kset_has(&cone, i) ? nnc_kins_axes(in) : 0;
    }
    if (p->axes >> v & 1 || (p->axes & stage->axes) == 0)
        return "the sum's source depends on the vector axis, or on no axis of the sum";
    return lay_out(k, p) ? NULL : "the panel is too large";
}

static bool drop_others(nnc_kernel *k, const nnc_kset *live, nnc_arena *a)
{
    int32_t *at = ARENA_NEW(a, int32_t, k->n_ins + 1), n = 0;
    nnc_kstage *stage = nnc_arena_memdup(a, k->stage, sizeof *stage * (size_t)k->n_stage);
    for (int i = 0; at && i < k->n_ins; i++) {
        at[i] = n;
        if (!nnc_kset_has(live, i))
            continue;
        k->ins[n] = k->ins[i];
        for (int j = 0; j < 3; j++)
            if (k->ins[n].arg[j] >= 0)
                k->ins[n].arg[j] = at[k->ins[n].arg[j]];
        n++;
    }
    if (!at || !stage)
        return false;
    at[k->n_ins] = n;
    for (int s = 0; s < k->n_stage; s++) {
        stage[s].body0 = at[stage[s].body0];
        stage[s].body1 = at[stage[s].body1];
        stage[s].post0 = at[stage[s].post0];
        stage[s].post1 = at[stage[s].post1];
    }
    k->stage = stage;
    k->n_ins = n;
    return true;
}

/* A copy of k with the panel as its last buffer, and room for one more instruction. */
static bool copy_kernel(const nnc_kernel *k, const nnc_kpanel *p, nnc_arena *a, nnc_kernel *to)
{
    *to = *k;
    to->ins = ARENA_NEW(a, nnc_kins, k->n_ins + 1);
    to->buf = ARENA_NEW(a, nnc_kbuf, k->n_buf + 1);
    if (!to->ins || !to->buf)
        return false;
    for (int i = 0; i < k->n_ins; i++)
        to->ins[i] = k->ins[i];
    for (int b = 0; b < k->n_buf; b++)
        to->buf[b] = k->buf[b];
    nnc_dtype d = (nnc_dtype)k->ins[p->x].dtype;
    to->buf[to->n_buf++] =
        (nnc_kbuf){.role = KB_tmp, .dtype = d, .numel = p->bytes / nnc_dtype_size(d)};
    return true;
}

bool nnc_kernel_panel_split(
    const nnc_kernel *k, const nnc_kpanel *p, nnc_arena *a, nnc_kernel *fill, nnc_kernel *sums)
{
    const nnc_kins *x = &k->ins[p->x];
    nnc_kins access = {.dtype = x->dtype,
        .buf = (int16_t)k->n_buf,
        .arg = {-1, -1, -1},
        .lo = x->lo,
        .hi = x->hi,
        .maybe_nan = x->maybe_nan};
    for (int s = 0; s < NNC_KAXES; s++)
        access.at.k[s] = p->stride[s];
    nnc_kset live;
    nnc_kernel_cone(k, p->x, &live);
    if (!copy_kernel(k, p, a, fill) || !copy_kernel(k, p, a, sums) || !drop_others(fill, &live, a))
        return false;
    fill->ins[fill->n_ins] = access;
    fill->ins[fill->n_ins].op = KO_store;
    fill->ins[fill->n_ins].arg[0] = fill->n_ins - 1; /* x, the last one */
    fill->n_ins++;
    fill->n_stage = 1;
    fill->stage = ARENA_NEW(a, nnc_kstage, 1);
    if (!fill->stage)
        return false;
    *fill->stage = (nnc_kstage){0, 0, fill->n_ins, fill->n_ins, fill->n_ins};
    fill->sched = (nnc_kschedule){.domain = k->sched.domain, .grain = 1};
    /* several machine vectors at once hide latencies; channels are often a multiple of these, so that kernels share code */
    enum { LANES = 32 };
    for (int s = 0; s < k->n_axis; s++) {
        if (s < k->n_outer && p->stride[s])
            (void)nnc_sched_put(&fill->sched, KD_tile, s, nnc_sched_n(&k->sched, KD_tile, s));
        if (s < k->n_outer || !p->stride[s])
            continue;
        fill->stage->axes |= 1u << s;
        fill->axis[s].kind = KA_map;
        nnc_sched_drop(&fill->sched, KD_vector, -1);
        (void)nnc_sched_put(&fill->sched, KD_vector, s, LANES);
    }
    sums->ins[p->x] = access;
    sums->ins[p->x].op = KO_load;
    nnc_sched_drop(&sums->sched, KD_panel, -1);
    memset(&live, 0, sizeof live);
    for (int i = 0; i < sums->n_ins; i++)
        if (sums->ins[i].op == KO_store || sums->ins[i].op == KO_reduce)
            nnc_kset_add(&live, i);
    add_operands(sums, &live);
    return drop_others(sums, &live, a);
}
