/* plugins/llvm/kernel.c -- emits a kernel as a function: the loop over work items, the outer axes computed from the item's number, the
 * stages and their loops.
 *
 * Vectors run over the schedule's vector axis. If it is an outer axis ("columns"), each work item is a block of it and all stages run
 * inside the vector loop. If it is an inner one, each stage has its own vector axis. Whole vectors come first, then one step masked by a
 * constant. Body instructions are emitted at the outermost loop that they depend on; small loops are unrolled. */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <string.h>

enum {
    PIECE = 32,
    BLOCK_PIECE = 128,
    MOST_PIECES = 32
}; /* terms of a partial sum, in a register block; sums at once */
#define UNROLL_TRIPS 16
#define UNROLL_INS 160 /* maximum of body instructions after unrolling */

typedef struct stage {
    const nnc_kstage *st;
    int n, n_map; /* own axes; the first n_map are map axes */
    uint8_t ax[NNC_KAXES];
    bool unroll[NNC_KAXES];
    int vlevel; /* position of the vector axis in ax, -1 when the stage has none */
    int64_t stride[NNC_KAXES]; /* of reduce axes: argmax index strides, by position in ax */
} stage;

/* ---- dependences -------------------------------------------------------------------------------------------------- */

static uint32_t axes_of(const ll_emit *e, const nnc_kins *ins)
{
    uint32_t s = nnc_kins_axes(ins);
    if (ins->op != KO_const && ins->op != KO_index)
        for (int a = 0; a < 3; a++)
            if (ins->arg[a] >= 0 && (ins->op != KO_sop || a < nnc_sops[ins->sop].arity))
                s |= e->dep[ins->arg[a]];
    return s;
}

static bool reads_stored(const ll_emit *e, int from, int to, const nnc_kins *load)
{
    for (int i = from; load->op == KO_load && i < to; i++)
        if (e->k->ins[i].op == KO_store && e->k->ins[i].buf == load->buf)
            return true;
    return false;
}

/* A reduction's result does not depend on the stage's reduce axes, unless the body reads it. A load from memory that the body stores to
 * depends on all of the stage's axes. One from memory that the epilogue stores to depends on those around the epilogue. */
static void depend(ll_emit *e)
{
    for (int s = 0; s < e->k->n_stage; s++) {
        const nnc_kstage *st = &e->k->stage[s];
        uint32_t red = st->axes & nnc_kernel_axes(e->k, KA_reduce);
        for (int i = st->body0; i < st->body1; i++) {
            const nnc_kins *ins = &e->k->ins[i];
            e->dep[i] = axes_of(e, ins) & ~(ins->op == KO_reduce ? red : 0);
            if (reads_stored(e, st->body0, st->body1, ins) || ins->running)
                e->dep[i] |= st->axes; /* emitted in the innermost loop */
            if (reads_stored(e, st->post0, st->post1, ins))
                e->dep[i] |= st->axes & ~red;
        }
        for (int i = st->post0; i < st->post1; i++)
            e->dep[i] = axes_of(e, &e->k->ins[i]);
    }
}

/* Number of the stage's loops that enclose instruction i. */
static int level_of(const ll_emit *e, const stage *s, int i)
{
    const nnc_kins *ins = &e->k->ins[i];
    if (ins->op == KO_store || ins->op == KO_reduce)
        return s->n;
    for (int l = s->n; l > 0; l--)
        if (e->dep[i] >> s->ax[l - 1] & 1)
            return l;
    return 0;
}

/* ---- instructions ------------------------------------------------------------------------------------------------- */

static V index_value(ll_emit *e, const nnc_kins *ins)
{
    V v = e->axis[ins->i];
    assert(v && "an axis is used outside its loop");
    if (e->shift[ins->i])
        v = LLVMBuildAdd(e->m->b, v, ll_i64(e->m, e->shift[ins->i]), "");
    if (ins->i == e->vax)
        v = LLVMBuildAdd(e->m->b, ll_splat(e->m, v, e->lanes), ll_iota(e->m->i64, e->lanes, 1), "");
    return ll_cast(e->m, v, DT_i64, (nnc_dtype)ins->dtype);
}

static V constant(ll_emit *e, const nnc_kins *ins)
{
    T t = ll_dtype(e->m, (nnc_dtype)ins->dtype);
    if (nnc_is_float((nnc_dtype)ins->dtype))
        return LLVMConstReal(t, ins->f);
    return LLVMConstInt(t, (unsigned long long)ins->i, 1);
}

void ll_ins(ll_emit *e, int i)
{
    const nnc_kins *ins = &e->k->ins[i];
    V arg[3] = {0};
    switch ((nnc_kop)ins->op) {
    case KO_const: e->val[i] = constant(e, ins); break;
    case KO_index: e->val[i] = index_value(e, ins); break;
    case KO_load: e->val[i] = e->given && e->given[i] ? e->given[i] : ll_load(e, ins); break;
    case KO_store: ll_store(e, ins); break;
    case KO_sop:
        for (int a = 0; a < nnc_sops[ins->sop].arity; a++)
            arg[a] = e->val[ins->arg[a]];
        e->m->live = e->mask;
        e->val[i] = ll_sop(e->m, e->k, ins, arg);
        e->m->live = NULL;
        break;
    case KO_reduce: break;
    }
}

static void emit_ins(ll_emit *e, const stage *s, int i)
{
    const nnc_kins *ins = &e->k->ins[i];
    if (ins->op != KO_reduce) {
        ll_ins(e, i);
        return;
    }
    for (int r = 0; r < e->n_red; r++)
        if (e->red[r] == i) {
            ll_red_step(e, r, s->ax + s->n_map, s->stride + s->n_map, s->n - s->n_map);
            e->val[i] = ins->running ? e->acc[2 * r] : e->val[i];
        }
}

/* ---- one stage ---------------------------------------------------------------------------------------------------- */

static void nest(ll_emit *e, stage *s, int level);

/* Loop with `step` over 0..to (a multiple) of the axis at `level`; without a loop when there is one step only. */
static void loop_axis(ll_emit *e, stage *s, int level, int64_t to, int64_t step)
{
    int a = s->ax[level], phis = level >= s->n_map ? 2 * e->n_red : 0;
    V from = e->first[a] ? e->first[a] : ll_i64(e->m, 0);
    V end = e->last[a] ? e->last[a] : ll_size(e->m, to);
    if (!e->last[a] && (s->unroll[level] || to == step)) {
        for (int64_t i = 0; i < to; i += step) {
            e->axis[a] = ll_i64(e->m, i);
            nest(e, s, level + 1);
        }
        return;
    }
    ll_loop l;
    ll_loop_begin(e->m, &l, from, end, ll_i64(e->m, step), e->acc,
        e->node + (size_t)level * 2 * (size_t)e->n_red, phis);
    e->axis[a] = l.i;
    nest(e, s, level + 1);
    ll_loop_end(e->m, &l);
}

/* Strips along the register-blocked axes that the guard sees. */
static int64_t strips_of(const ll_emit *e, const nnc_kguard *g)
{
    int64_t n = 1;
    for (int a = 0; a < e->k->n_outer; a++)
        if (g->e.k[a] && e->stripped >> a & 1)
            n *= nnc_ceildiv(e->whole->axis[a].extent, nnc_sched_n(&e->whole->sched, KD_unroll, a));
    return n;
}

/* True when constant indices along this axis, around the innermost one, decide at compile time which sources are outside. The register
 * block must have few strips. Otherwise the code of its edges is longer than it is worth. */
static bool decides(const ll_emit *e, const stage *s, int level)
{
    enum { TAPS = 5, FEW = 6 };
    int a = s->ax[level];
    if (level < s->n_map || level != s->n - 2 || !e->stripped || e->k->axis[a].extent > TAPS)
        return false;
    for (int i = s->st->body0; i < s->st->body1; i++) {
        const nnc_kins *in = &e->k->ins[i];
        const nnc_kins *x = in->op == KO_reduce ? ll_source(e, in) : NULL;
        for (int g = 0; x && g < x->n_guard; g++) {
            bool open = x->guard[g].e.k[a] == 0 || strips_of(e, &x->guard[g]) > FEW;
            int64_t c;
            for (int b = 0; b < e->k->n_axis; b++)
                open |=
                    b != a && x->guard[g].e.k[b] && !(e->axis[b] && ll_const_int(e->axis[b], &c));
            if (!open)
                return true;
        }
    }
    return false;
}

static void run_axis(ll_emit *e, stage *s, int level)
{
    int a = s->ax[level], lanes = e->lanes;
    int64_t n = e->k->axis[a].extent;
    s->unroll[level] |= decides(e, s, level);
    if (level != s->vlevel) {
        loop_axis(e, s, level, n, 1);
        e->axis[a] = NULL;
        return;
    }
    int64_t full = n / lanes * lanes;
    const bool row = level == s->n - 1 && s->n == s->n_map;
    V some = row ? ll_reached(e, s->st, a) : NULL;
    LLVMBasicBlockRef next = some ? ll_branch(e->m, some, "stored") : NULL;
    if (row)
        ll_hoist(e, s->st, a);
    if (full)
        loop_axis(e, s, level, full, lanes);
    if (full < n) {
        if (level < s->n_map || level == s->n - 1) /* accumulators keep their number of lanes */
            e->lanes = ll_pow2_up(n - full) < 2 ? 2 : ll_pow2_up(n - full);
        e->mask = n - full < e->lanes ? ll_lanes_mask(e->m, e->lanes, n - full) : NULL;
        e->axis[a] = ll_i64(e->m, full);
        nest(e, s, level + 1);
        e->mask = NULL;
        e->lanes = lanes;
    }
    if (row) {
        memset(e->base, 0, sizeof *e->base * (size_t)e->k->n_ins);
        e->n_held = 0;
        ll_join(e->m, next);
    }
    e->axis[a] = NULL;
}

/* Accumulators are vectors where the value is one: always along a vector reduce axis, otherwise where it depends on the vector axis. */
static bool wide_acc(const ll_emit *e, int r)
{
    const nnc_kins *ins = &e->k->ins[e->red[r]];
    uint32_t d = e->dep[ins->arg[0]] | (ins->arg[1] >= 0 ? e->dep[ins->arg[1]] : 0);
    return e->vec_red || (e->vax >= 0 && d >> e->vax & 1);
}

static bool is_float_sum(const ll_emit *e, int r)
{
    const nnc_kins *in = &e->k->ins[e->red[r]];
    return in->sop == KR_sum && nnc_is_float((nnc_dtype)in->dtype) && !in->running;
}

/* Terms of a partial sum: few, but so many that a register block's totals, which are in memory, cost little. */
static int piece(const ll_emit *e)
{
    return e->stripped ? BLOCK_PIECE : PIECE;
}

/* Steps of the loop over axis a, of which a block of terms has a part. */
static int64_t steps_of(const ll_emit *e, int a)
{
    const int64_t n = e->last[a] ? nnc_sched_n(&e->k->sched, KD_tile, a) : 0;
    return n > 0 ? n : e->k->axis[a].extent;
}

/* True when the terms along the stage's last axis are summed separately: long float sums are split into partial sums, which keeps rounding
 * errors small. A chain of n terms has an error of sqrt(n / 2) roundings, one of pieces of p that of sqrt(p / 2 + n / p / 2). */
static bool sums_pieces(const ll_emit *e, const stage *s, int level)
{
    int64_t terms = 1;
    if (level < s->n_map || level == s->vlevel || s->unroll[level] || e->n_red > MOST_PIECES ||
        steps_of(e, s->ax[level]) < piece(e) / 2)
        return false;
    for (int l = s->n_map; l < s->n; l++)
        terms *= steps_of(e, s->ax[l]);
    for (int r = 0; r < e->n_red; r++)
        if (!is_float_sum(e, r) || e->k->ins[e->red[r]].dtype != DT_f32)
            return false;
    return terms > 2 * piece(e);
}

/* True when the stage's totals are in memory while its terms are summed: where registers do not hold them beside the partial sums. */
static bool keeps_totals(const ll_emit *e, const stage *s)
{
    const int bits = e->m->t->vector_bits, registers = nnc_target_registers(e->m->t);
    const int each = (int)nnc_max64(e->lanes * 32 / nnc_max64(bits, 128), 1);
    bool all = e->stripped && 2 * e->n_red * each >= registers && e->lanes > 0 && s->n > s->n_map &&
               sums_pieces(e, s, s->n - 1);
    for (int r = 0; r < e->n_red; r++)
        all = all && wide_acc(e, r);
    return all;
}

static void run_pieces(ll_emit *e, stage *s, int level)
{
    ll_mod *m = e->m;
    V total[MOST_PIECES] = {NULL}, node[MOST_PIECES];
    int a = s->ax[level];
    const int64_t each = piece(e);
    const bool several = steps_of(e, a) > each;
    V first = e->first[a] ? e->first[a] : ll_i64(m, 0),
      end = e->last[a] ? e->last[a] : ll_size(m, e->k->axis[a].extent);
    ll_loop outer, inner;
    for (int r = 0; r < e->n_red; r++)
        total[r] = e->acc[2 * r];
    if (several)
        ll_loop_begin(m, &outer, first, end, ll_i64(m, each), total, node, e->n_red);
    for (int r = 0; r < e->n_red; r++)
        ll_red_init(e, r, wide_acc(e, r));
    V from = several ? outer.i : first;
    V to[2] = {LLVMBuildNSWAdd(m->b, from, ll_i64(m, each), ""), end};
    to[0] = several ? ll_call(m, "llvm.smin", m->i64, to, 2) : to[1];
    ll_loop_begin(m, &inner, from, to[0], ll_i64(m, 1), e->acc,
        e->node + (size_t)level * 2 * (size_t)e->n_red, 2 * e->n_red);
    e->axis[a] = inner.i;
    nest(e, s, level + 1);
    ll_loop_end(m, &inner);
    if (e->totals)
        ll_totals_add(e);
    for (int r = 0; r < e->n_red && !e->totals; r++)
        total[r] = LLVMBuildFAdd(m->b, total[r], e->acc[2 * r], "");
    if (several)
        ll_loop_end(m, &outer);
    for (int r = 0; r < e->n_red; r++)
        e->acc[2 * r] = total[r];
    e->axis[a] = NULL;
}

/* True when this load reads a row of the work item along one of these axes, and another row for the next item. */
static bool reads_row(const ll_emit *e, const nnc_kins *ins, uint32_t axes)
{
    if (ins->op != KO_load || e->k->buf[ins->buf].role != KB_in || ins->arg[0] >= 0 ||
        ins->n_guard > 0 || ins->at.k[e->k->n_outer - 1] == 0)
        return false;
    for (int a = e->k->n_outer; a < e->k->n_axis; a++)
        if (axes >> a & 1 && ins->at.k[a] == 1)
            return true;
    return false;
}

/* True when this stage prefetches the next work item's rows: the longest stage that reads rows, since it hides the most latency. */
static bool fetches(const ll_emit *e, const nnc_kstage *st)
{
    const nnc_kstage *best = NULL;
    const bool rows = nnc_sched_vec(&e->k->sched) >= e->k->n_outer;
    for (int g = 0; g < e->k->n_stage && rows && nnc_sched_has(&e->k->sched, KD_prefetch); g++) {
        const nnc_kstage *c = &e->k->stage[g];
        bool row = false;
        for (int i = c->body0; i < c->body1; i++)
            row |= reads_row(e, &e->k->ins[i], c->axes);
        if (row && (!best || c->body1 - c->body0 > best->body1 - best->body0))
            best = c;
    }
    return best == st;
}

/* Prefetches the lines of one vector. */
static void fetch_lines(ll_emit *e, const nnc_kins *ins, bool near, bool write)
{
    int per_line = 64 / nnc_dtype_size(e->k->buf[ins->buf].dtype);
    for (int l = 0; l < e->lanes; l += per_line) {
        e->shift[e->vax] = l;
        ll_prefetch(e, ins, near, write);
    }
    e->shift[e->vax] = 0;
}

/* Prefetches as many lines of the next work item's rows as this step reads of its own. */
static void fetch_ahead(ll_emit *e, const nnc_kstage *st)
{
    int next = e->k->n_outer - 1;
    for (int i = st->body0; i < st->body1 && e->vax >= 0; i++) {
        const nnc_kins *ins = &e->k->ins[i];
        if (!reads_row(e, ins, 1u << e->vax))
            continue;
        e->shift[next] = 1;
        fetch_lines(e, ins, false, false);
        e->shift[next] = 0;
    }
}

/* Prefetches lines of the results where the last stage's stores cross them: the CPU requests such lines only when the store executes. */
static void want_results(ll_emit *e, const nnc_kstage *st)
{
    const nnc_kernel *k = e->k;
    const nnc_kstage *last = &k->stage[k->n_stage - 1];
    int vax = e->vax, to = last->axes ? 31 - __builtin_clz(last->axes) : -1;
    if (last == st || vax < 0 || to < 0 || k->axis[to].extent != k->axis[vax].extent)
        return;
    V own = e->axis[to];
    e->axis[to] = e->axis[vax];
    e->vax = to;
    for (int i = last->body0; i < last->body1; i++) {
        const nnc_kins *ins = &k->ins[i];
        if (ins->op == KO_store && k->buf[ins->buf].role == KB_out && ins->at.k[to] == 1 &&
            !(nnc_affine_axes(&ins->at) & last->axes & ~(1u << to)) && ll_splits_lines(e, ins))
            fetch_lines(e, ins, true, true);
    }
    e->vax = vax;
    e->axis[to] = own;
}

/* Prefetches lines of a register block's weights, some steps of the innermost axis early. They are one stream among many of the
 * source, whose lines the CPU fetches late. */
static void fetch_weights(ll_emit *e, const stage *s)
{
    enum { STEPS = 16 };
    int last = s->n > s->n_map ? s->ax[s->n - 1] : -1;
    if (!e->stripped || last < 0 || e->vax < 0 || e->k->axis[last].extent < 2 * STEPS)
        return;
    for (int i = s->st->body0; i < s->st->body1; i++) {
        const nnc_kins *ins = &e->k->ins[i];
        if (ins->op != KO_load || ins->n_guard || ins->arg[0] >= 0 || ins->at.k[e->vax] != 1 ||
            ins->at.k[last] < 1)
            continue;
        e->shift[last] = STEPS;
        fetch_lines(e, ins, true, false);
        e->shift[last] = 0;
    }
}

/* Lines of a register block's results, before a short sum: those beyond the caches of a core would be requested by the stores only. And an
 * update's old values, of the next strip: into L2, since few lines can be on their way to the nearest cache (kernel-ir.md). */
static void fetch_results(ll_emit *e, const stage *s)
{
    enum { SHORT = 64 };
    int64_t terms = 1;
    for (int l = s->n_map; l < s->n; l++)
        terms *= e->k->axis[s->ax[l]].extent;
    for (int i = s->st->post0; i < s->st->post1; i++) {
        const nnc_kins *ins = &e->k->ins[i];
        const nnc_kbuf *b = &e->k->buf[ins->buf];
        if (!e->stripped || s->n == s->n_map || e->vax < 0)
            return;
        const int strips = 31 - __builtin_clz(e->stripped);
        if (nnc_kernel_updates(e->k, ins) || (e->added && ins->op == KO_store)) {
            e->shift[strips] = 1;
            fetch_lines(e, ins, false, false);
            e->shift[strips] = 0;
        }
        if (terms <= SHORT && ins->op == KO_store && ins->n_guard == 0 && ins->at.k[e->vax] == 1 &&
            b->numel * nnc_dtype_size(b->dtype) > e->m->t->l2_bytes)
            fetch_lines(e, ins, true, true);
    }
}

/* The product of sum i that becomes a part of its multiply-add and that nothing else uses, or -1. */
static int32_t product_of(const ll_emit *e, const stage *s, int i)
{
    const int32_t p = e->k->ins[i].arg[0];
    int users = 0;
    bool fused = false;
    for (int j = s->st->body0; j < s->st->body1; j++)
        for (int a = 0; a < 3; a++)
            users += e->k->ins[j].arg[a] == p;
    for (int r = 0; r < e->n_red; r++)
        fused |= e->red[r] == i && ll_red_fused(e, r);
    return users == 1 && fused ? p : -1;
}

/* Emits the instructions of this level that sum i is computed from, and that are not `done`. */
static void emit_sum(ll_emit *e, const stage *s, int i, nnc_kset *done)
{
    const int32_t product = product_of(e, s, i);
    nnc_kset cone;
    nnc_kernel_cone(e->k, i, &cone);
    for (int j = s->st->body0; j <= i; j++)
        if (nnc_kset_has(&cone, j) && level_of(e, s, j) == s->n && !nnc_kset_has(done, j)) {
            nnc_kset_add(done, j);
            if (j != product)
                emit_ins(e, s, j);
        }
}

/* Emits a level's instructions of the body. In a register block each sum follows its own operands, so that few of these are in registers at
 * once. LLVM keeps the order, and 14 broadcast values before 14 sums do not fit AVX2's registers. */
static void emit_body(ll_emit *e, const stage *s, int level)
{
    const nnc_kstage *st = s->st;
    nnc_kset done = {0};
    bool block = e->stripped && level == s->n;
    for (int i = st->body0; i < st->body1; i++)
        block &= e->k->ins[i].op != KO_store;
    for (int i = st->body0; i < st->body1 && block; i++)
        if (e->k->ins[i].op == KO_reduce)
            emit_sum(e, s, i, &done);
    for (int i = st->body0; i < st->body1; i++)
        if (level_of(e, s, i) == level && !(block && nnc_kset_has(&done, i)))
            emit_ins(e, s, i);
}

/* The stage's innermost loop, over a reduce axis; left out where all of its sources are outside. */
static void run_last(ll_emit *e, stage *s, int level)
{
    ll_mod *m = e->m;
    V some = ll_reached(e, s->st, s->ax[level]);
    LLVMBasicBlockRef at[2] = {LLVMGetInsertBlock(m->b)};
    LLVMBasicBlockRef next = some ? ll_branch(m, some, "reached") : NULL;
    memcpy(e->kept, e->acc, sizeof *e->acc * 2 * (size_t)e->n_red);
    ll_hoist(e, s->st, s->ax[level]);
    ll_ahead_strip(e, 0, false);
    if (sums_pieces(e, s, level))
        run_pieces(e, s, level);
    else
        run_axis(e, s, level);
    ll_ahead_strip(e, e->k->axis[s->ax[level]].extent, true);
    memset(e->base, 0, sizeof *e->base * (size_t)e->k->n_ins);
    e->n_held = 0;
    at[1] = LLVMGetInsertBlock(m->b);
    ll_join(m, next);
    for (int r = 0; next && r < 2 * e->n_red; r++) {
        V from[2] = {e->kept[r], e->acc[r]};
        if (!from[0])
            continue;
        e->acc[r] = LLVMBuildPhi(m->b, LLVMTypeOf(from[0]), "");
        LLVMAddIncoming(e->acc[r], from, at, 2);
    }
}

static void nest(ll_emit *e, stage *s, int level)
{
    if (level == s->n_map)
        fetch_results(e, s);
    if (level == s->n)
        fetch_weights(e, s);
    if (level == s->n && e->ahead_from)
        ll_ahead_step(e, e->axis[s->ax[level - 1]]);
    if (level == s->n && !e->mask && fetches(e, s->st)) {
        fetch_ahead(e, s->st);
        want_results(e, s->st);
    }
    for (int r = 0; r < e->n_red && level == s->n_map; r++)
        ll_red_init(e, r, wide_acc(e, r));
    if (level == s->n_map)
        ll_red_begin(e, s->st);
    if (level == s->n_map && keeps_totals(e, s))
        ll_totals_begin(e);
    emit_body(e, s, level);
    if (level == s->n - 1 && level >= s->n_map)
        run_last(e, s, level);
    else if (level < s->n)
        run_axis(e, s, level);
    if (level != s->n_map || ll_point_posts(e))
        return;
    if (e->totals)
        ll_totals_end(e);
    if (!e->added && ll_pack_posts(e, s->st))
        return;
    ll_red_all(e);
    if (e->added)
        ll_block_add(e, s->st);
    for (int i = s->st->post0; i < s->st->post1 && !e->added; i++)
        ll_post(e, e, s->st, i);
}

static void order_axes(ll_emit *e, stage *s)
{
    const nnc_kernel *k = e->k;
    for (int kind = KA_map; kind <= KA_reduce; kind++) {
        for (int a = 0; a < k->n_axis; a++)
            if (s->st->axes >> a & 1 && k->axis[a].kind == (nnc_kaxis_kind)kind)
                s->ax[s->n++] = (uint8_t)a;
        if (kind == KA_map)
            s->n_map = s->n;
    }
    int64_t stride = 1;
    for (int l = s->n - 1; l >= s->n_map; l--) {
        s->stride[l] = stride;
        stride *= k->axis[s->ax[l]].extent;
    }
}

/* Elements per vector: the schedule's; fewer in the second copy of a streaming kernel, which runs only for unaligned outputs and
 * should compile quickly. */
static int vector_width(const ll_emit *e)
{
    int w = nnc_sched_width(&e->k->sched), p = 1;
    while (p * 2 <= w && p < (e->narrow ? 16 : LL_MAX_LANES))
        p *= 2;
    return p;
}

/* The stage's vector axis: the schedule's if the stage has it, otherwise its last one. */
static void pick_vector(ll_emit *e, stage *s)
{
    s->vlevel = -1;
    e->vec_red = 0;
    int w = vector_width(e), vec = nnc_sched_vec(&e->k->sched);
    if (e->vax >= 0 || vec < 0 || vec < e->k->n_outer || s->n == 0 || w < 2)
        return;
    s->vlevel = s->n - 1;
    for (int l = 0; l < s->n; l++)
        if (s->ax[l] == vec)
            s->vlevel = l;
        else if (!(s->st->axes >> vec & 1) && s->ax[l] > s->ax[s->vlevel])
            s->vlevel = l;
    int64_t n = e->k->axis[s->ax[s->vlevel]].extent;
    if (n < 3 || e->k->axis[s->ax[s->vlevel]].seq) {
        s->vlevel = -1;
        return;
    }
    e->vax = s->ax[s->vlevel];
    for (e->lanes = w; e->lanes / 2 >= n;)
        e->lanes /= 2;
    e->vec_red = s->vlevel >= s->n_map;
}

static void pick_unroll(ll_emit *e, stage *s)
{
    int64_t cost = s->st->body1 - s->st->body0;
    for (int i = s->st->body0; i < s->st->body1; i++)
        if (e->k->ins[i].op == KO_sop && e->k->ins[i].sop >= SC_exp && e->k->ins[i].sop <= SC_erf)
            cost += 20;
    for (int l = s->n - 1; l >= 0 && l != s->vlevel; l--) {
        int64_t n = e->k->axis[s->ax[l]].extent;
        if (n > UNROLL_TRIPS || cost * n > UNROLL_INS || e->first[s->ax[l]])
            break;
        s->unroll[l] = true;
        cost *= n;
    }
}

/* ---- blocked sums ------------------------------------------------------------------------------------------------- */

/* Accumulator r of the current vector, in memory. */
static V accumulator(ll_emit *e, int r)
{
    ll_mod *m = e->m;
    int64_t at = 0;
    int64_t n = e->k->axis[e->vax].extent, chunk = nnc_sched_n(&e->k->sched, KD_tile, e->vax);
    for (int i = 0; i < r; i++)
        at += nnc_align_up(
            nnc_align_up(chunk > 0 && chunk < n ? chunk : n, nnc_sched_width(&e->k->sched)) *
                nnc_dtype_size((nnc_dtype)e->k->ins[e->red[i]].dtype),
            64);
    V off = ll_i64(m, at), i = e->axis[e->vax];
    int64_t c;
    i = LLVMBuildNSWSub(m->b, ll_const_int(i, &c) ? ll_size(m, c) : i, e->start, "");
    V p = LLVMBuildGEP2(m->b, m->i8, e->memory, &off, 1, "");
    return LLVMBuildGEP2(m->b, ll_red_type(e, r), p, &i, 1, "");
}

static void keep_accumulators(ll_emit *e)
{
    for (int r = 0; r < e->n_red; r++)
        LLVMSetAlignment(LLVMBuildStore(e->m->b, e->acc[2 * r], accumulator(e, r)), 8);
}

static void take_accumulators(ll_emit *e)
{
    for (int r = 0; r < e->n_red; r++) {
        T t = ll_vec(ll_red_type(e, r), e->lanes);
        e->acc[2 * r] = LLVMBuildLoad2(e->m->b, t, accumulator(e, r), "");
        LLVMSetAlignment(e->acc[2 * r], 8);
        e->acc[2 * r + 1] = NULL;
    }
}

/* Emits the stage's current phase for one vector of columns. A phase's terms are summed before the accumulator is added: partial sums,
 * as in run_pieces. */
static void emit_phase(ll_emit *e, stage *s)
{
    V total[MOST_PIECES] = {NULL};
    int next = s->ax[0];
    if (e->phase == LL_INIT) {
        for (int r = 0; r < e->n_red; r++)
            ll_red_init(e, r, true);
        keep_accumulators(e);
        return;
    }
    take_accumulators(e);
    if (e->phase == LL_DONE) {
        for (int r = 0; r < e->n_red; r++)
            e->val[e->red[r]] = e->acc[2 * r];
        for (int i = s->st->post0; i < s->st->post1; i++)
            emit_ins(e, s, i);
        return;
    }
    for (int r = 0; r < e->n_red && r < MOST_PIECES; r++)
        if (is_float_sum(e, r)) {
            total[r] = e->acc[2 * r];
            ll_red_init(e, r, true);
        }
    for (int step = -1; step < e->steps; step++) {
        e->shift[next] = step < 0 ? 0 : step;
        for (int i = s->st->body0; i < s->st->body1; i++)
            if (level_of(e, s, i) == (step >= 0))
                emit_ins(e, s, i);
    }
    e->shift[next] = 0;
    for (int r = 0; r < e->n_red && r < MOST_PIECES; r++)
        if (total[r])
            e->acc[2 * r] = LLVMBuildFAdd(e->m->b, total[r], e->acc[2 * r], "");
    keep_accumulators(e);
}

static void emit_stage(ll_emit *e, const nnc_kstage *st)
{
    stage s = {.st = st};
    int vax = e->vax, lanes = e->lanes;
    order_axes(e, &s);
    e->n_red = 0;
    for (int i = st->body0; i < st->body1; i++)
        if (e->k->ins[i].op == KO_reduce)
            e->red[e->n_red++] = i;
    pick_vector(e, &s);
    pick_unroll(e, &s);
    if (e->phase == LL_WHOLE)
        nest(e, &s, 0);
    else if (st->axes)
        emit_phase(e, &s);
    for (int i = st->body0; i < st->post1 && e->phase != LL_WHOLE && !st->axes; i++)
        if (e->k->ins[i].op != KO_store || e->phase == LL_DONE)
            emit_ins(e, &s, i); /* values of a column, in each phase */
    e->vax = vax;
    e->lanes = lanes;
}

/* Where the rings stand at the current point, and the first rows that it stores. */
static void place_rings(ll_emit *e)
{
    ll_mod *m = e->m;
    for (int b = 0; b < e->k->n_buf; b++) {
        const nnc_kring *r = &e->ring[b];
        if (r->rows == 0)
            continue;
        V at = LLVMBuildNSWMul(m->b, e->axis[r->axis], ll_i64(m, r->step), "");
        V begin = LLVMBuildICmp(m->b, LLVMIntEQ, e->axis[r->axis], e->first[r->axis], "");
        e->ring_at[b] = LLVMBuildURem(m->b, at, ll_i64(m, r->rows), "");
        e->first[r->row] =
            LLVMBuildSelect(m->b, begin, ll_i64(m, 0), ll_i64(m, r->rows - r->step), "");
    }
}

void ll_stages(ll_emit *e)
{
    place_rings(e);
    for (int s = 0; s < e->k->n_stage; s++)
        emit_stage(e, &e->k->stage[s]);
}

/* ---- work items --------------------------------------------------------------------------------------------------- */

static void stages_at(void *emit, V at, int live)
{
    ll_emit *e = emit;
    const int lanes = e->lanes;
    if (live < lanes) {
        e->lanes = ll_pow2_up(live) < 2 ? 2 : ll_pow2_up(live);
        e->mask = live < e->lanes ? ll_lanes_mask(e->m, e->lanes, live) : NULL;
    }
    e->axis[nnc_sched_vec(&e->k->sched)] = at;
    ll_stages(e);
    e->mask = NULL;
    e->lanes = lanes;
}

/* One block of an outer vector axis. */
static void run_chunk(ll_emit *e, V index, int64_t chunk)
{
    int vax = nnc_sched_vec(&e->k->sched), lanes = vector_width(e);
    int64_t n = e->k->axis[vax].extent;
    while (lanes > 1 && (lanes / 2 >= chunk || (chunk < n && chunk % lanes)))
        lanes /= 2;
    e->vax = lanes > 1 ? vax : -1;
    e->lanes = lanes > 1 ? lanes : 0;
    ll_spans(e->m, index, chunk, n, lanes, stages_at, e);
}

static void run_phase(ll_emit *e, V index, int64_t chunk, enum ll_phase phase, int steps)
{
    e->phase = (uint8_t)phase;
    e->steps = steps;
    run_chunk(e, index, chunk);
    e->phase = LL_WHOLE;
}

/* The same block, with the vector loop inside a loop over steps of the reduce axis. */
static void run_blocks(ll_emit *e, V index, int64_t chunk)
{
    ll_mod *m = e->m;
    int next = __builtin_ctz(nnc_kernel_sums(e->k)->axes);
    int step = (int)nnc_sched_n(&e->k->sched, KD_tile, next);
    int64_t n = e->k->axis[next].extent, full = n / step * step;
    e->start = LLVMBuildNSWMul(m->b, index, ll_size(m, chunk), "");
    run_phase(e, index, chunk, LL_INIT, 0);
    if (full) {
        ll_loop l;
        ll_loop_begin(m, &l, ll_i64(m, 0), ll_size(m, full), ll_i64(m, step), NULL, NULL, 0);
        e->axis[next] = l.i;
        run_phase(e, index, chunk, LL_STEP, step);
        ll_loop_end(m, &l);
    }
    e->axis[next] = ll_i64(m, full);
    if (full < n)
        run_phase(e, index, chunk, LL_STEP, (int)(n - full));
    e->axis[next] = NULL;
    run_phase(e, index, chunk, LL_DONE, 0);
}

V ll_digit(ll_mod *m, V *u, int64_t n)
{
    V q = ll_quotient(m, *u, n), d = LLVMBuildMul(m->b, q, ll_size(m, n), "");
    d = LLVMBuildSub(m->b, *u, d, "");
    *u = q;
    return d;
}

/* True when the loop over vectors is nested in a loop over steps of the reduce axis. */
static bool sums_by_blocks(const nnc_kernel *k)
{
    const nnc_kstage *s = nnc_kernel_sums(k);
    return s && nnc_sched_n(&k->sched, KD_tile, __builtin_ctz(s->axes)) > 0 &&
           !nnc_sched_has(&k->sched, KD_unroll);
}

void ll_vectors(ll_emit *e, const V *index)
{
    const nnc_kernel *k = e->k;
    int vec = nnc_sched_vec(&k->sched);
    if (vec < 0 || vec >= k->n_outer) {
        ll_stages(e);
        return;
    }
    int64_t n = k->axis[vec].extent, tile = nnc_sched_n(&k->sched, KD_tile, vec);
    int64_t chunk = tile > 0 && tile < n ? tile : n;
    if (sums_by_blocks(k))
        run_blocks(e, index[vec], chunk);
    else
        run_chunk(e, index[vec], chunk);
}

/* for (u = begin; u < end; u++) emit work item u. */
static void run_units(ll_emit *e)
{
    ll_mod *m = e->m;
    const nnc_kernel *k = e->k;
    int digits[NNC_KAXES], across = nnc_sched_axis(&k->sched, KD_transpose), first = 0;
    V index[NNC_KAXES] = {NULL};
    ll_loop l;
    ll_loop_begin(
        m, &l, LLVMGetParam(m->fn, 1), LLVMGetParam(m->fn, 2), ll_i64(m, 1), NULL, NULL, 0);
    int n_digit = nnc_kernel_digits(k, digits);
    while (first < n_digit && nnc_kernel_blocks(k, digits[first]) == 1)
        first++;
    V u = l.i;
    for (int i = n_digit - 1; i >= 0; i--) {
        int64_t n = nnc_kernel_blocks(k, digits[i]);
        index[digits[i]] = n == 1 ? ll_i64(m, 0) : i == first ? u : ll_digit(m, &u, n);
    }
    if (e->panel)
        ll_panel_fill(e, l.i, index);
    ll_ahead_begin(e, l.i, index);
    for (int a = 0; a < k->n_outer && across >= 0; a++)
        e->axis[a] = index[a];
    if (across >= 0)
        ll_tiles(e, index[nnc_sched_vec(&k->sched)], index[across]);
    else
        ll_tiles_run(e, index);
    e->vax = -1;
    e->lanes = 0;
    ll_loop_end(m, &l);
}

/* ---- the function ------------------------------------------------------------------------------------------------- */

static void string_attr(ll_mod *m, const char *key, const char *value)
{
    LLVMAttributeRef a =
        LLVMCreateStringAttribute(m->c, key, (unsigned)strlen(key), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(m->fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

V ll_function(ll_mod *m, const char *name)
{
    T par[4] = {m->ptr, m->i64, m->i64, m->ptr};
    return LLVMAddFunction(m->m, name, LLVMFunctionType(LLVMVoidTypeInContext(m->c), par, 4, 0));
}

void ll_declare(ll_mod *m, const nnc_kernel *k)
{
    char bits[16];
    int axis;
    m->fn = ll_function(m, k->name);
    ll_attr(m, m->fn, "nounwind");
    snprintf(bits, sizeof bits, "%d", m->t->vector_bits > 128 ? m->t->vector_bits : 128);
    string_attr(m, "prefer-vector-width", bits);
    string_attr(m, "min-legal-vector-width", bits);
    /* Else vectors are spilled to multiples of 16, where most of them cross a line, in most processes. */
    string_attr(m, "stackrealign", "");
    if (m->aarch64)
        string_attr(m, "tune-cpu", nnc_target_core(m->t->core)->llvm);
    /* Schedules of register blocks for some x86 CPUs (znver4) move loads away from their uses, and sums onto the stack. */
    else if (nnc_sched_has(&k->sched, KD_unroll) && nnc_kernel_rows(k, &axis) == 1)
        string_attr(m, "tune-cpu", "generic");
    memset(m->slot, 0, sizeof m->slot);
    m->slot_bytes = 8 * LL_MAX_LANES;
}

/* Base pointers of all buffers; *aligned: i1, all outputs are 64-byte aligned. */
static void buffers(ll_emit *e, V *aligned)
{
    ll_mod *m = e->m;
    int64_t arg = 0, at = 0;
    int axis;
    const int rows = nnc_kernel_rows(e->k, &axis);
    V bits = ll_i64(m, 0);
    for (int i = 0; i < e->k->n_buf; i++) {
        const nnc_kbuf *b = &e->k->buf[i];
        if (b->role == KB_tmp) {
            V off = ll_size(m, at);
            e->buf[i] = LLVMBuildGEP2(m->b, m->i8, LLVMGetParam(m->fn, 3), &off, 1, "");
            at += nnc_kernel_tmp_bytes(e->k, i) * rows;
            continue;
        }
        V idx = ll_i64(m, arg++);
        e->buf[i] =
            LLVMBuildLoad2(m->b, m->ptr, LLVMBuildGEP2(m->b, m->ptr, e->args, &idx, 1, ""), "");
        if (b->role == KB_out)
            bits = LLVMBuildOr(m->b, bits, LLVMBuildPtrToInt(m->b, e->buf[i], m->i64, ""), "");
    }
    bits = LLVMBuildAnd(m->b, bits, ll_i64(m, 63), "");
    *aligned = LLVMBuildICmp(m->b, LLVMIntEQ, bits, ll_i64(m, 0), "");
}

static bool has_reductions(const nnc_kernel *k)
{
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_reduce)
            return true;
    return false;
}

void ll_return_unless_units(ll_mod *m)
{
    LLVMBasicBlockRef some = ll_block(m, "some"), none = ll_block(m, "none");
    V any = LLVMBuildICmp(m->b, LLVMIntSLT, LLVMGetParam(m->fn, 1), LLVMGetParam(m->fn, 2), "");
    LLVMBuildCondBr(m->b, any, some, none);
    LLVMPositionBuilderAtEnd(m->b, none);
    LLVMBuildRetVoid(m->b);
    LLVMPositionBuilderAtEnd(m->b, some);
}

static void define(ll_emit *e)
{
    ll_mod *m = e->m;
    V aligned;
    LLVMPositionBuilderAtEnd(m->b, ll_block(m, "entry"));
    e->args = LLVMGetParam(m->fn, 0);
    if (sums_by_blocks(e->k)) {
        e->memory = LLVMBuildAlloca(m->b, LLVMArrayType2(m->i8, NNC_KBLOCK_BYTES), "");
        LLVMSetAlignment(e->memory, 64);
    }
    buffers(e, &aligned);
    ll_return_unless_units(m);
    if (nnc_sched_has(&e->k->sched, KD_nontemporal)) {
        LLVMBasicBlockRef yes = ll_block(m, "stream"), no = ll_block(m, "plain");
        LLVMBuildCondBr(m->b, aligned, yes, no);
        LLVMPositionBuilderAtEnd(m->b, yes);
        e->stream = true;
        run_units(e);
        e->stream = false;
        if (!m->aarch64) /* whose non-temporal stores are ordered by the barriers of other stores */
            ll_call(m, "llvm.x86.sse.sfence", NULL, NULL, 0);
        LLVMBuildRetVoid(m->b);
        LLVMPositionBuilderAtEnd(m->b, no);
        e->narrow = !has_reductions(e->k); /* lanes decide the order of sums */
    }
    run_units(e);
    LLVMBuildRetVoid(m->b);
}

bool ll_open(ll_emit *e, nnc_arena *a)
{
    const nnc_kernel *k = e->k;
    size_t n = (size_t)k->n_ins + 1;
    int most = 0;
    for (int i = 0; i < k->n_ins; i++)
        most += k->ins[i].op == KO_reduce;
    e->val = ARENA_NEW(a, V, n);
    e->base = ARENA_NEW(a, V, n);
    e->beyond = ARENA_NEW(a, int64_t, n);
    e->dep = ARENA_NEW(a, uint32_t, n);
    e->red = ARENA_NEW(a, int32_t, n);
    e->acc = ARENA_NEW(a, V, 2 * most + 2);
    e->kept = ARENA_NEW(a, V, 2 * most + 2);
    e->node = ARENA_NEW(a, V, (2 * most + 2) * (NNC_KAXES + 1));
    bool ok = e->val && e->base && e->beyond && e->dep && e->red && e->acc && e->kept && e->node;
    if (ok)
        depend(e);
    return ok;
}

nnc_status ll_kernel(ll_mod *m, const nnc_kernel *k, nnc_sink *sink)
{
    if (nnc_kernel_in_parts(k))
        return ll_parts_together(m, k, sink);
    NNC_LOCAL(nnc_arena) a = {0};
    ll_emit e = {.m = m, .k = k, .whole = k, .vax = -1};
    nnc_kring *ring = NULL;
    e.buf = ARENA_NEW(&a, V, k->n_buf + 2); /* a panel is one more */
    e.ring_at = ARENA_NEW(&a, V, k->n_buf + 2);
    NNC_NEED(e.buf && e.ring_at && ll_panel_open(&e, &a) && nnc_kernel_rings(e.k, &a, &ring), sink);
    e.ring = ring;
    NNC_NEED(ll_open(&e, &a) && ll_block_open(&e, &a), sink);
    ll_declare(m, k);
    define(&e);
    return e.oom ? nnc_nomem(sink) : NNC_OK;
}
