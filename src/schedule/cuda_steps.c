/* schedule/cuda_steps.c -- recurrences on a GPU. A block has `vec` rows of the batch. Its threads share the elements of each step and, in
 * `group` rows of threads, the sums. The next step begins when all of them have stored theirs.
 *
 * Each block reads all weights at each step from the level-2 cache, at most 64 bytes a cycle of an SM. That bounds the time of a step. More
 * rows in a block read them less often, but leave SMs idle. */
#include "schedule/schedule.h"

enum {
    STEP_THREADS =
        512, /* 128 registers each: the sums of eight rows, and the loads of a few terms */
    STEP_ROWS = 8,
    STEP_CLUSTER = 8, /* blocks, which every GPU with clusters can have */
    CLUSTERS = 90, /* sm_90 is the first with clusters */
    STEP_GROUP = 16,
    STEP_FLIGHT = 16, /* loads in flight per thread: with 16 warps and 4 bytes, 32 KiB of an SM */
    STEP_HELD = 64, /* registers of a thread for the loads of its rows in flight */
    STEP_TERMS = 16, /* least terms of a sum per thread that shares it */
    STEP_ELEMENTS = 8, /* least elements; with fewer, a thread per row is as good */
};

/* The axes of stage s that run in order, that run in parallel, and that are summed; false: the stage is no step. */
static bool step_axes(const nnc_kernel *k, const nnc_kstage *s, cu_step *to)
{
    *to = (cu_step){0};
    for (int a = k->n_outer; a < k->n_axis; a++) {
        const nnc_kaxis *x = &k->axis[a];
        if (!(s->axes >> a & 1))
            continue;
        if (x->seq && (x->kind == KA_reduce || to->maps || to->sums))
            return false;
        *(x->seq ? &to->order : x->kind == KA_map ? &to->maps : &to->sums) |= 1u << a;
    }
    to->elements = nnc_kernel_points(k, to->maps);
    to->terms = nnc_kernel_points(k, to->sums);
    return to->order && to->sums;
}

bool cu_step_of(const nnc_kernel *k, const nnc_kstage *s, cu_step *to)
{
    if (!step_axes(k, s, to))
        return false;
    for (int32_t i = s->body0; i < s->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_store || (in->op == KO_reduce && (in->running || in->sop >= KR_argmax)))
            return false;
    }
    return true;
}

/* Is every stage a step, and are only results kept between them? */
static bool recurrence(const nnc_kernel *k, cu_step *longest)
{
    *longest = (cu_step){.elements = 1, .terms = 1};
    for (int i = 0; i < k->n_stage; i++) {
        cu_step s;
        if (!cu_step_of(k, &k->stage[i], &s))
            return false;
        longest->elements = nnc_max64(longest->elements, s.elements);
        longest->terms = nnc_max64(longest->terms, s.terms);
    }
    return k->n_stage > 0 && nnc_kernel_scratch(k) == 0;
}

bool cu_step_holds(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id)
{
    const nnc_kins *in = &k->ins[id];
    (void)axis;
    if (in->op != KO_load || in->arg[0] >= 0)
        return false;
    const int32_t fill = in->arg[1];
    return fill < s->body0 || k->ins[fill].op == KO_const || cu_step_holds(k, s, axis, fill);
}

/* Does the access read consecutive, aligned elements along the axis, under guards that are the same for all? */
static bool consecutive(const nnc_kernel *k, int axis, const nnc_kins *in)
{
    return in->op == KO_load && in->arg[0] < 0 && cu_vector(k, in, axis, CU_STEP_WIDE);
}

bool cu_step_wide(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id)
{
    const nnc_kins *in = &k->ins[id];
    if (!cu_step_holds(k, s, axis, id) || !consecutive(k, axis, in))
        return false;
    const nnc_kins *fill = in->arg[1] >= 0 ? &k->ins[in->arg[1]] : NULL;
    return !fill || fill->op == KO_const || (fill->n_guard == 0 && consecutive(k, axis, fill));
}

bool cu_step_fills(const nnc_kernel *k, const nnc_kstage *s, int axis, int32_t id)
{
    bool fills = false;
    for (int32_t i = s->body0; i < s->body1; i++)
        for (int j = 0; j < 3; j++) {
            if (k->ins[i].arg[j] != id)
                continue;
            if (j != 1 || !cu_step_wide(k, s, axis, i))
                return false;
            fills = true;
        }
    return fills;
}

/* May `flight` terms be in flight? */
static bool may_fly(const nnc_kernel *k, int flight)
{
    if (flight == 1)
        return true;
    for (int i = 0; i < k->n_stage; i++) {
        cu_step s;
        if (!cu_step_of(k, &k->stage[i], &s) || k->axis[cu_last_axis(s.sums)].extent % flight)
            return false;
    }
    return flight % CU_STEP_WIDE == 0 && flight <= STEP_FLIGHT && !(flight & (flight - 1));
}

/* May a cluster of `blocks` blocks divide the elements of each step? */
static bool may_divide(const nnc_kernel *k, int blocks)
{
    cu_step s;
    for (int i = 0; i < k->n_stage; i++)
        if (!cu_step_of(k, &k->stage[i], &s) || s.elements % blocks)
            return false;
    return blocks >= 1 && blocks <= STEP_CLUSTER && !(blocks & (blocks - 1));
}

/* Loads of a term of stage s that differ from thread to thread. */
static int stage_loads(const nnc_kernel *k, const nnc_kstage *s)
{
    cu_step of;
    int n = 0;
    (void)cu_step_of(k, s, &of);
    for (int32_t id = s->body0; id < s->body1; id++)
        n += k->ins[id].op == KO_load && (nnc_affine_axes(&k->ins[id].at) & of.maps);
    return n > 1 ? n : 1;
}

static int apart(const nnc_kernel *k)
{
    int most = 1;
    for (int i = 0; i < k->n_stage; i++) {
        const int n = stage_loads(k, &k->stage[i]);
        most = n > most ? n : most;
    }
    return most;
}

int64_t cu_step_part(const nnc_kernel *k, const nnc_kgrid *g, int32_t id)
{
    int64_t at = 0;
    for (int32_t i = 0; i < id && i < k->n_ins; i++)
        if (k->ins[i].op == KO_reduce)
            at += nnc_align_up(
                (int64_t)g->vec * g->threads * nnc_dtype_size((nnc_dtype)k->ins[i].dtype), 16);
    return at;
}

bool cu_steps_derive(const nnc_kernel *k, nnc_kgrid *g)
{
    cu_step s;
    const int lanes = g->threads / g->group;
    if (g->threads % g->group || lanes % 32 || g->vec > STEP_ROWS || (g->vec & (g->vec - 1)) ||
        !may_fly(k, g->flight) || !may_divide(k, g->split) || g->keep || g->spill ||
        (g->vec > 1 && g->axis < 0) || (g->axis >= 0 && k->axis[g->axis].extent % g->vec) ||
        !recurrence(k, &s) || s.elements > INT32_MAX / 4)
        return false;
    g->blocks = cu_points(k, g->axis, g->vec);
    g->shared = g->group > 1 ? cu_step_part(k, g, k->n_ins) : 0;
    g->index = cu_narrow(k, g->blocks) ? 32 : 64;
    return g->blocks >= 1 && nnc_mul_ok(g->blocks, g->split, &g->blocks) &&
           g->shared <= NNC_SM_shared;
}

/* Cycles of a step with these choices and `loads` loads per term: the slowest resource, plus its barrier, for each wave of blocks. */
static int64_t step_cycles(const nnc_kernel *k, const cu_step *s, int64_t loads, int64_t sms)
{
    const nnc_kgrid *g = &k->grid;
    const int64_t blocks = cu_points(k, g->axis, g->vec) * g->split;
    const int64_t terms = s->elements / g->split * s->terms, bytes = terms * loads * 4;
    const int64_t port = bytes / NNC_SM_port,
                  far = nnc_min64(blocks, sms) * bytes / (NNC_SM_far * sms);
    const int64_t near = terms / 32 * (4 * loads + g->vec) / 4,
                  fma = terms * loads * g->vec / NNC_SM_lanes;
    const int64_t most = nnc_max64(nnc_max64(port, far), nnc_max64(near, fma));
    return (most + (g->split > 1 ? 2 : 1) * NNC_SM_barrier) * nnc_ceildiv(blocks, sms);
}

/* Cycles that a block's threads together need for the ops after the sums in a step of stage s, with 128 lanes. */
static int64_t post_cycles(const nnc_kernel *k, const nnc_kstage *s, const cu_step *of)
{
    int64_t cost = 0;
    for (int32_t i = s->post0; i < s->post1; i++)
        cost += cu_cost(&k->ins[i]);
    return of->elements / k->grid.split * k->grid.vec * cost / NNC_SM_lanes;
}

int64_t cu_steps_ns(const nnc_kernel *k, const nnc_target *t)
{
    const int64_t sms = nnc_target_sms(t),
                  waves = nnc_ceildiv(cu_points(k, k->grid.axis, k->grid.vec) * k->grid.split, sms);
    double cycles = 0;
    for (int i = 0; i < k->n_stage; i++) {
        const nnc_kstage *s = &k->stage[i];
        cu_step of;
        if (!cu_step_of(k, s, &of))
            return -1;
        const int64_t each =
            step_cycles(k, &of, stage_loads(k, s), sms) + post_cycles(k, s, &of) * waves;
        cycles += (double)each * (double)nnc_kernel_points(k, of.order);
    }
    const double ns = cycles * 1e9 / (double)nnc_max64(t->clock_hz, 1);
    return ns < 1e15 ? (int64_t)ns : INT64_C(1000000000000000);
}

/* Chooses rows of a block and blocks of a cluster. With more rows, weights are read less often; with more blocks, each reads a smaller
 * part. */
static void divide(nnc_kernel *k, const nnc_target *t, const cu_step *s)
{
    nnc_kgrid *g = &k->grid;
    const int64_t sms = nnc_target_sms(t);
    const int64_t rows = g->axis >= 0 ? k->axis[g->axis].extent : 1;
    const int clusters = t->sm >= CLUSTERS && !t->no_clusters ? STEP_CLUSTER : 1;
    const int loads = apart(k);
    int64_t least = INT64_MAX;
    int16_t vec = 1, split = 1;
    for (g->split = 1; g->split <= clusters; g->split *= 2) {
        if (g->split > 1 && (!may_divide(k, g->split) || s->elements / g->split < 32))
            break;
        for (g->vec = 1; g->vec <= STEP_ROWS && rows % g->vec == 0; g->vec *= 2) {
            const int64_t n = step_cycles(k, s, loads, sms);
            if (n > least)
                continue;
            least = n;
            vec = g->vec;
            split = g->split;
        }
    }
    g->vec = vec;
    g->split = split;
}

bool cu_steps_choose(nnc_kernel *k, const nnc_target *t)
{
    nnc_kgrid *g = &k->grid;
    const int64_t most = cu_most_shared(t);
    cu_step s;
    if (!recurrence(k, &s) || s.elements < STEP_ELEMENTS)
        return false;
    g->cls = KC_steps;
    for (int a = 0; a < k->n_outer; a++)
        if (g->axis < 0 || k->axis[a].extent > k->axis[g->axis].extent)
            g->axis = (int16_t)a;
    divide(k, t, &s);
    const int64_t lanes = nnc_min64(nnc_align_up(s.elements / g->split, 32), STEP_THREADS);
    while (g->group < STEP_GROUP && lanes * g->group * 2 <= STEP_THREADS &&
           s.terms / (g->group * 2) >= STEP_TERMS)
        g->group *= 2;
    g->threads = (int16_t)(lanes * g->group);
    while (g->vec > 1 && g->group > 1 && cu_step_part(k, g, k->n_ins) > most)
        g->vec /= 2;
    if (g->group > 1 && cu_step_part(k, g, k->n_ins) > most) {
        g->threads = (int16_t)lanes;
        g->group = 1;
    }
    const int loads = apart(k);
    for (g->flight = STEP_FLIGHT; g->flight > 1; g->flight /= 2)
        if (g->flight * loads <= STEP_FLIGHT && g->flight * g->vec <= STEP_HELD &&
            may_fly(k, g->flight) && s.terms / g->group >= g->flight)
            break;
    if (g->flight < CU_STEP_WIDE)
        g->flight = 1;
    g->regs = (int16_t)nnc_min64(
        NNC_SM_registers / g->threads, 255); /* otherwise loads would wait for registers */
    return nnc_cuda_derive(k, g);
}
