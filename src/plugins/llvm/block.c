/* plugins/llvm/block.c -- register blocks. `unroll a n` divides a kernel along axis a into several, which are emitted one after the other.
 * Whole strips of n neighbours come first, each one point with n accumulators (schedule/strip.c). The points that are left are one shorter
 * strip, so that the code of whole strips asks for no ends. Strips that see no edges of the source are kernels of their own as well, where
 * each step of the sum would ask for edges. A second unrolled axis divides each of these kernels in turn.
 *
 * Rows at once, along an axis with `unroll a n` beside an inner vector axis, are strips as well. Each stage has n rows' instructions, and
 * the rows that are left are a loop. */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <string.h>

/* Points from .. from + n - 1 of outer axis a, in groups of `strip`, and in *point without groups; NULL: out of memory. */
static nnc_kernel *cut(const nnc_kernel *k, int a, int64_t from, int64_t n, int strip,
    nnc_kernel *point, nnc_arena *mem)
{
    nnc_kernel *c = ARENA_NEW(mem, nnc_kernel, 1);
    nnc_kins *ins = nnc_arena_memdup(mem, k->ins, sizeof *ins * (size_t)k->n_ins);
    if (!c || !ins)
        return NULL;
    *c = *k;
    c->ins = ins;
    c->axis[a].extent = n;
    for (int i = 0; i < k->n_ins; i++) {
        ins[i].at.c += ins[i].at.k[a] * from;
        if (ins[i].n_guard == 0)
            continue;
        size_t bytes = sizeof *ins[i].guard * ins[i].n_guard;
        if (!(ins[i].guard = nnc_arena_memdup(mem, ins[i].guard, bytes)))
            return NULL;
        for (int g = 0; g < ins[i].n_guard; g++)
            ins[i].guard[g].e.c += ins[i].guard[g].e.k[a] * from;
    }
    *point = *c;
    return strip > 1 && !nnc_kernel_strip(c, a, strip, mem) ? NULL : c;
}

/* Is the epilogue of a strip's points a loop? Functions take most of a strip's code, and more registers than its sums leave. The
 * points' kernel has one sum in f32, and nothing else passes from its body to its epilogue. */
static bool loops_over_points(const nnc_kernel *point, const nnc_kernel *strip)
{
    enum { FEW = 4 };
    const nnc_kstage *s = point->stage;
    bool slow = false, only = point->n_stage == 1 && nnc_kernel_added_axis(point) < 0 &&
                              !(s->axes & nnc_kernel_axes(point, KA_map));
    int sums = 0, all = 0;
    for (int i = s->body0; i < s->body1; i++) {
        const nnc_kins *in = &point->ins[i];
        only = only && in->op != KO_store &&
               (in->op != KO_reduce || (in->sop == KR_sum && in->dtype == DT_f32 && !in->running));
        sums += in->op == KO_reduce;
    }
    for (int i = s->post0; i < s->post1; i++) {
        const nnc_kins *in = &point->ins[i];
        slow |= in->op == KO_sop && nnc_sops[in->sop].flags & OF_slow;
        for (int j = 0; j < 3; j++) {
            const int32_t x = in->arg[j];
            only = only && (x < 0 || x >= s->post0 || point->ins[x].op == KO_reduce ||
                               point->ins[x].op == KO_const);
        }
    }
    for (int i = 0; i < strip->n_ins; i++)
        all += strip->ins[i].op == KO_reduce;
    return only && slow && sums == 1 && all >= FEW;
}

/* The axis to be unrolled next, or -1. */
static int unrolled(const ll_emit *e)
{
    const nnc_kschedule *s = &e->k->sched;
    for (int i = 0; i < s->n; i++)
        if (s->d[i].what == KD_unroll && !((e->stripped | e->rows) >> s->d[i].axis & 1))
            return s->d[i].axis;
    return -1;
}

/* Does the load have a guard for each lane's element? One element for all lanes is outside at a strip's ends only: a few guards, which cost
 * less than code of edges. */
static bool asks(const nnc_kernel *k, const nnc_kins *in)
{
    return in->op == KO_load && in->n_guard > 0 && in->at.k[nnc_sched_vec(&k->sched)] != 0;
}

/* The points *lo <= i < *hi of axis a at which such guards that see the axis hold, whatever the other axes are. */
static void inner_points(const nnc_kernel *k, int a, int64_t *lo, int64_t *hi)
{
    *lo = 0;
    *hi = k->axis[a].extent;
    for (int i = 0; i < k->n_ins; i++)
        for (int g = 0; g < k->ins[i].n_guard && asks(k, &k->ins[i]); g++) {
            const nnc_kguard *q = &k->ins[i].guard[g];
            nnc_affine rest = q->e;
            int64_t step = rest.k[a];
            rest.k[a] = 0;
            nnc_span s = nnc_affine_span(k, &rest);
            if (step <= 0 || !s.ok)
                continue;
            *lo = nnc_max64(*lo, nnc_ceildiv(q->lo - s.lo, step));
            *hi = nnc_min64(*hi, nnc_ceildiv(q->hi - s.hi, step));
        }
}

/* Adds the part of strips from .. to - 1, of n points each, or of one strip of n points. Rows that are left follow one after the other,
 * since they are few. False: out of memory. */
static bool add_part(
    ll_emit *e, int a, int64_t from, int64_t to, int64_t each, int64_t n, nnc_arena *mem)
{
    ll_strips *p = &e->part[e->n_part];
    int axis;
    if (from >= to)
        return true;
    const bool rows = nnc_kernel_rows(e->k, &axis) > 1;
    nnc_kernel *point = ARENA_NEW(mem, nnc_kernel, 1);
    nnc_kernel *c = point ? cut(e->k, a, from * each, (to - from) * n,
                                rows && n < each ? 1 : (int)n, point, mem)
                          : NULL;
    p->e = ARENA_NEW(mem, ll_emit, 1);
    if (!c || !p->e)
        return false;
    e->n_part++;
    p->from = from;
    p->to = to;
    p->each = c->axis[a].extent / (to - from); /* 1, but where a body was too long for strips */
    *p->e = *e;
    p->e->point = NULL; /* of one axis only */
    p->e->n_part = 0;
    if (rows)
        p->e->rows |= 1u << a;
    else
        p->e->stripped |= 1u << a;
    p->e->k = c;
    if (!e->stripped && !rows && loops_over_points(point, c)) {
        p->e->point = ARENA_NEW(mem, ll_emit, 1);
        if (!p->e->point)
            return false;
        *p->e->point = *e;
        p->e->point->n_part = 0;
        p->e->point->k = point;
        if (!ll_open(p->e->point, mem))
            return false;
    }
    return ll_open(p->e, mem) && ll_block_open(p->e, mem);
}

bool ll_point_posts(ll_emit *e)
{
    ll_mod *m = e->m;
    ll_emit *p = e->point;
    bool wide = p && e->n_red > 1;
    for (int r = 0; wide && r < e->n_red && !e->totals; r++)
        wide = e->lanes > 0 && ll_lanes(e->acc[2 * r]) == e->lanes;
    if (!wide)
        return false;
    const nnc_kstage *s = p->k->stage;
    const int a = __builtin_ctz(e->stripped);
    ll_loop l;
    if (!e->totals)
        ll_totals_begin(e);
    V first = LLVMBuildNSWMul(m->b, e->axis[a], ll_i64(m, e->n_red), "");
    ll_loop_begin(m, &l, ll_i64(m, 0), ll_i64(m, e->n_red), ll_i64(m, 1), NULL, NULL, 0);
    memcpy(p->axis, e->axis, sizeof e->axis);
    memcpy(p->shift, e->shift, sizeof e->shift);
    memset(p->sum, 0, sizeof p->sum);
    p->axis[a] = LLVMBuildNSWAdd(m->b, first, l.i, "");
    p->vax = e->vax;
    p->lanes = e->lanes;
    p->mask = e->mask;
    p->args = e->args;
    p->stream = e->stream;
    for (int i = s->body0; i < s->body1; i++)
        if (p->k->ins[i].op == KO_const)
            ll_ins(p, i);
        else if (p->k->ins[i].op == KO_reduce)
            p->val[i] = ll_total_get(e, l.i);
    for (int i = s->post0; i < s->post1; i++)
        ll_post(e, p, s, i);
    ll_loop_end(m, &l);
    e->totals = NULL;
    e->oom |= p->oom;
    return true;
}

bool ll_block_open(ll_emit *e, nnc_arena *mem)
{
    const nnc_kernel *k = e->k;
    int a = unrolled(e);
    if (a < 0)
        return true;
    int64_t n = nnc_sched_n(&k->sched, KD_unroll, a), full = k->axis[a].extent / n, lo, hi;
    inner_points(k, a, &lo, &hi);
    lo = nnc_min64(nnc_ceildiv(lo, n), full);
    hi = nnc_min64(hi / n, full);
    if (hi - lo < 1 || (lo == 0 && hi == full) || nnc_sched_vec(&k->sched) >= k->n_outer)
        lo = hi = full;
    return add_part(e, a, 0, lo, n, n, mem) && add_part(e, a, lo, hi, n, n, mem) &&
           add_part(e, a, hi, full, n, n, mem) &&
           add_part(e, a, full, nnc_ceildiv(k->axis[a].extent, n), n, k->axis[a].extent % n, mem);
}

static void run_part(ll_emit *e, ll_emit *part, int a, V strip, const V *index)
{
    memcpy(part->axis, e->axis, sizeof e->axis);
    memset(part->sum, 0, sizeof part->sum);
    part->axis[a] = strip;
    part->args = e->args;
    part->stream = e->stream;
    part->narrow = e->narrow;
    part->added = e->added;
    part->complete = e->complete;
    part->ahead = e->ahead;
    part->ahead_step = e->ahead_step;
    for (int r = e->k->n_outer; r < e->k->n_axis; r++) {
        part->first[r] = e->first[r];
        part->last[r] = e->last[r];
    }
    if (part->n_part)
        ll_block_run(part, index);
    else
        ll_vectors(part, index);
    e->oom |= part->oom;
}

void ll_block_run(ll_emit *e, const V *index)
{
    ll_mod *m = e->m;
    const nnc_kschedule *s = &e->k->sched;
    int a = unrolled(e);
    int64_t n = nnc_sched_n(s, KD_unroll, a), tile = nnc_sched_n(s, KD_tile, a) / n;
    bool whole = nnc_kernel_blocks(e->k, a) == 1;
    V first = whole ? NULL : LLVMBuildNSWMul(m->b, index[a], ll_size(m, tile), "");
    for (int i = 0; i < e->n_part; i++) {
        const ll_strips *p = &e->part[i];
        V from[2] = {first, ll_size(m, p->from)}, to[2] = {NULL, ll_size(m, p->to)};
        LLVMBasicBlockRef next = NULL;
        if (!whole) { /* the strips of the block that are the part's */
            to[0] = LLVMBuildNSWAdd(m->b, first, ll_size(m, tile), "");
            from[1] = p->from ? ll_call(m, "llvm.smax", m->i64, from, 2) : first;
            to[1] = ll_call(m, "llvm.smin", m->i64, to, 2);
            next = ll_branch(m, LLVMBuildICmp(m->b, LLVMIntSLT, from[1], to[1], ""), "part");
        }
        V back = ll_offset(m, -p->from), each = ll_i64(m, p->each);
        from[1] = LLVMBuildNSWMul(m->b, LLVMBuildNSWAdd(m->b, from[1], back, ""), each, "");
        to[1] = LLVMBuildNSWMul(m->b, LLVMBuildNSWAdd(m->b, to[1], back, ""), each, "");
        if (p->to - p->from == 1 && p->each == 1) {
            run_part(e, p->e, a, ll_i64(m, 0), index);
        } else {
            ll_loop l;
            ll_loop_begin(m, &l, from[1], to[1], ll_i64(m, 1), NULL, NULL, 0);
            run_part(e, p->e, a, l.i, index);
            ll_loop_end(m, &l);
        }
        ll_join(m, next);
    }
}

/* Loops over the points of the work item's blocks, from outer axis a inwards. */
static void run_tiles(ll_emit *e, const V *index, int a)
{
    ll_mod *m = e->m;
    const nnc_kernel *k = e->k;
    const bool rows = nnc_sched_vec(&k->sched) >= k->n_outer; /* whose code depends on no extent */
    int64_t tile = 0;
    for (; a < k->n_outer; a++) { /* register-blocked and vector axes come last */
        tile = nnc_sched_n(&k->sched, KD_tile, a);
        if (tile > !(rows && k->axis[a].extent == 1) && a != nnc_sched_vec(&k->sched) &&
            !nnc_sched_n(&k->sched, KD_unroll, a))
            break;
    }
    if (a == k->n_outer) {
        if (e->n_part)
            ll_block_run(e, index);
        else
            ll_vectors(e, index);
        return;
    }
    V from, to = ll_block_range(m, index[a], tile, k->axis[a].extent, &from);
    ll_loop l;
    e->first[a] = from;
    ll_loop_begin(m, &l, from, to, ll_i64(m, 1), NULL, NULL, 0);
    e->axis[a] = l.i;
    run_tiles(e, index, a + 1);
    ll_loop_end(m, &l);
}

/* Loops over blocks of terms (nnc_kernel_added_axis), from reduce axis a inwards, around those over points. */
static void run_terms(ll_emit *e, const V *index, int a)
{
    ll_mod *m = e->m;
    ll_loop l;
    V earlier = e->added;
    const int last = nnc_kernel_added_axis(e->k);
    if (a > last) {
        run_tiles(e, index, 0);
        return;
    }
    V n = ll_i64(m, a < last ? 1 : nnc_sched_n(&e->k->sched, KD_tile, a));
    V extent = ll_size(m, e->k->axis[a].extent);
    ll_loop_begin(m, &l, ll_i64(m, 0), extent, n, NULL, NULL, 0);
    V to[2] = {LLVMBuildNSWAdd(m->b, l.i, n, ""), extent};
    V begun = LLVMBuildICmp(m->b, LLVMIntNE, l.i, ll_i64(m, 0), "");
    e->added = earlier ? LLVMBuildOr(m->b, earlier, begun, "") : begun;
    e->first[a] = l.i;
    e->last[a] = ll_call(m, "llvm.smin", m->i64, to, 2);
    e->complete = LLVMBuildICmp(m->b, LLVMIntEQ, e->last[a], extent, "");
    run_terms(e, index, a + 1);
    e->first[a] = e->last[a] = NULL;
    e->added = earlier;
    ll_loop_end(m, &l);
}

void ll_block_add(ll_emit *e, const nnc_kstage *st)
{
    const nnc_kernel *k = e->k;
    bool plain = true;
    for (int i = st->post0; i < st->post1; i++) {
        const nnc_kins *y = &k->ins[i];
        nnc_kset cone;
        int sum = st->body0;
        if (y->op != KO_store)
            continue;
        nnc_kernel_cone(k, y->arg[0], &cone);
        while (sum < st->body1 && (k->ins[sum].op != KO_reduce || !nnc_kset_has(&cone, sum)))
            sum++;
        plain &= sum == y->arg[0];
        if (sum == st->body1) /* the result is no sum */
            continue;
        e->val[y->arg[0]] = e->val[sum];
        ll_store(e, y);
        e->val[sum] = e->val[y->arg[0]];
    }
    if (plain)
        return;
    V added = e->added;
    LLVMBasicBlockRef next = ll_branch(e->m, e->complete, "complete");
    e->added = NULL;
    for (int i = st->post0; i < st->post1; i++)
        ll_ins(e, i);
    e->added = added;
    ll_join(e->m, next);
}

void ll_tiles_run(ll_emit *e, const V *index)
{
    for (int a = 0; a < e->k->n_outer; a++)
        e->axis[a] = index[a];
    run_terms(e, index, e->k->n_outer);
}
