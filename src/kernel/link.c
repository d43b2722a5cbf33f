/* kernel/link.c -- arranges the instructions of a trace into stages and orders them. Equal instructions of one section, or of an
 * earlier one that is visible, are merged. Instructions that depend on outer axes only are computed once per outer point, in the post
 * of the last stage that they need. */
#include "kernel/link.h"

#include <string.h>

/* ---- stages ---------------------------------------------------------------------------------- */

static void add_stage(nl *l, uint32_t axes, int level, int space, int ctx)
{
    l->stage[l->n_stage++] = (nl_stage){axes, level, space, ctx};
}

/* Stages: values per row before all reductions; then, level by level, the reductions over the same space; then the outputs. */
static bool plan_stages(nl *l)
{
    const nx *t = l->t;
    int levels = 0;
    l->flat = true;
    for (int a = 0; a < t->k->n_axis; a++)
        l->flat = l->flat && t->k->axis[a].kind == KA_outer;
    for (int r = 0; r < t->n_reduce; r++)
        levels = t->reduce[r].level > levels ? t->reduce[r].level : levels;
    l->row_section = ARENA_NEW(l->scratch, int, levels + 1);
    if (!l->row_section)
        return false;
    add_stage(l, 0, 0, -1, -1);
    l->row_section[0] = 1;
    for (int level = 1; level <= levels; level++) {
        int first = l->n_stage;
        for (int r = 0; r < t->n_reduce; r++) {
            int have = first;
            while (have < l->n_stage && l->stage[have].space != t->reduce[r].space)
                have++;
            if (t->reduce[r].level == level && have == l->n_stage)
                add_stage(l, t->ctx[t->reduce[r].ctx].axes, level, t->reduce[r].space, -1);
        }
        l->row_section[level] = 2 * (l->n_stage - 1) + 1;
    }
    for (int c = 0; c < t->n_ctx; c++)
        if (t->ctx[c].output && (t->ctx[c].axes & ~t->outer))
            add_stage(l, t->ctx[c].axes & ~t->outer, 0, -1, c);
    return true;
}

static int stage_of_reduction(const nl *l, const nx_reduction *r)
{
    int s = 0;
    while (l->stage[s].ctx >= 0 || l->stage[s].level != r->level || l->stage[s].space != r->space)
        s++;
    return s;
}

int nl_stage_of(const nl *l, int ctx)
{
    for (int s = 0; s < l->n_stage; s++)
        if (l->stage[s].ctx == ctx)
            return s;
    for (int r = 0; r < l->t->n_reduce; r++)
        if (l->t->reduce[r].ctx == ctx)
            return stage_of_reduction(l, &l->t->reduce[r]);
    return -1; /* an output that depends on rows only */
}

static int section_of(const nl *l, const nx_place *at)
{
    if (l->flat)
        return 0;
    if (at->home != NH_axes)
        return 2 * stage_of_reduction(l, &l->t->reduce[at->reduction]) + (at->home == NH_post);
    if (!(at->axes & ~l->t->outer))
        return l->row_section[at->level];
    return 2 * nl_stage_of(l, at->ctx);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static bool is_global(const nl *l, int section)
{
    return (section & 1) && !l->flat && l->stage[section / 2].ctx < 0;
}

static uint32_t hash_ins(const nnc_kins *in)
{
    int64_t w[8] = {in->op | in->dtype << 8 | in->sop << 16, in->buf, in->arg[0], in->arg[1],
        in->arg[2], in->i, 0, in->at.c};
    memcpy(&w[6], &in->f, 8);
    return (uint32_t)nnc_hash64(w, sizeof w, 0) & 255;
}

static int32_t append_ins(nl *l, int section, const nnc_kins *in)
{
    uint32_t h = hash_ins(in);
    if (l->oom)
        return -1;
    if (in->op != KO_store)
        for (int32_t i = l->bucket[h]; i >= 0; i = l->item[i].chain) {
            int s = l->item[i].section;
            if ((s == section || (s < section && is_global(l, s))) &&
                nnc_kins_equal(&l->item[i].k, in))
                return i;
        }
    l->oom =
        l->n_item >= NNC_KMAX_INS || !ARENA_ROOM(l->scratch, l->item, l->cap_item, l->n_item + 1);
    if (l->oom)
        return -1;
    l->item[l->n_item] = (nl_item){*in, section, l->bucket[h]};
    l->bucket[h] = l->n_item;
    return l->n_item++;
}

/* True when axes and guards prove that the load stays within its buffer. Each dimension of an operand has its own axes, so at most one
 * guard bounds it. */
static bool stays_inside(const nl *l, const nnc_kins *in)
{
    nnc_span s = nnc_access_span(l->k, in);
    int64_t most = 0;
    if (s.ok && in->arg[0] >= 0) {
        s.ok = nnc_mul_ok(in->scale, in->limit - 1, &most);
        s.ok = s.ok && (most >= 0 ? nnc_add_ok(s.hi, most, &s.hi) : nnc_add_ok(s.lo, most, &s.lo));
    }
    return s.ok && s.lo >= 0 && s.hi < l->k->buf[in->buf].numel;
}

/* Is the guard the nearest one in the chain for its index, up to a constant? The nearest guards keep a load inside its operand, and an
 * instruction has room for one per dimension. */
static bool is_nearest(const nx *t, int32_t guard, int32_t at)
{
    for (int32_t i = guard; i != at; i = t->guard[i].parent)
        if (!memcmp(t->guard[i].e.k, t->guard[at].e.k, sizeof t->guard[i].e.k))
            return false;
    return true;
}

/* Sets all guards of the chain, or only the nearest ones if there are too many and a select follows the load. */
static void set_guards(nl *l, nnc_kins *in, int32_t guard)
{
    const nx *t = l->t;
    int n = 0;
    for (int32_t i = guard; i >= 0; i = t->guard[i].parent)
        n++;
    const bool all = n <= NNC_KGUARDS || in->op == KO_store;
    in->guard = n ? ARENA_NEW(l->out, nnc_kguard, n) : NULL;
    l->oom |= n && !in->guard;
    for (int32_t i = guard; i >= 0 && in->guard; i = t->guard[i].parent) {
        const nx_guard_link *g = &t->guard[i];
        if (all || (in->n_guard < NNC_KGUARDS && is_nearest(t, guard, i)))
            in->guard[in->n_guard++] = (nnc_kguard){g->e, g->lo, g->hi};
    }
}

/* Adds the load of a value that an earlier stage stored; -1: none did. */
static int32_t add_reused(nl *l, int section, int32_t id)
{
    for (int i = 0; i < l->n_reuse; i++)
        if (l->reuse[i].consumer == id) {
            const nl_reuse *r = &l->reuse[i];
            nnc_kins in = {.op = KO_load,
                .dtype = (uint8_t)l->k->buf[r->buf].dtype,
                .buf = (int16_t)r->buf,
                .arg = {-1, -1, -1},
                .at = r->at,
                .lo = 1};
            return append_ins(l, section, &in);
        }
    return -1;
}

static void store_reused(nl *l, int section, int32_t id, int32_t x)
{
    for (int i = 0; i < l->n_reuse && x >= 0; i++)
        if (l->reuse[i].producer == id && !l->reuse[i].stored) {
            nnc_kins in = {.op = KO_store,
                .dtype = l->item[x].k.dtype,
                .buf = (int16_t)l->reuse[i].buf,
                .arg = {x, -1, -1},
                .at = l->reuse[i].store_at,
                .lo = 1};
            (void)append_ins(l, section, &in);
        }
}

/* Adds the stores of results that instruction `id` computes. */
static void put_early(nl *l, int section, int32_t id, int32_t x)
{
    for (int i = 0; i < l->n_early && x >= 0; i++)
        if (l->early[i].producer == id) {
            nnc_kins in = l->t->ins[l->early[i].store].k;
            in.at = l->early[i].at;
            in.arg[0] = x;
            in.buf = (int16_t)(in.buf + l->t->n_buf_value);
            (void)append_ins(l, section, &in);
            l->early[i].placed = true;
        }
}

static bool is_placed(const nl *l, int32_t store)
{
    for (int i = 0; i < l->n_early; i++)
        if (l->early[i].store == store)
            return l->early[i].placed;
    return false;
}

/* The item of an instruction that `section` uses; -1: out of memory. */
static int32_t place_ins(nl *l, int section, int32_t id)
{
    const nx_ins *n = &l->t->ins[id];
    nnc_kins k = n->k;
    if (k.op == KO_const)
        return append_ins(l, section, &k);
    if (l->placed[id] >= 0 || l->oom)
        return l->placed[id];
    section = section_of(l, &n->at);
    int32_t x = add_reused(l, section, id);
    if (x < 0) {
        for (int j = 0; j < 3; j++) {
            int32_t *arg = &k.arg[n->last_first ? 2 - j : j];
            *arg = *arg < 0 ? -1 : place_ins(l, section, *arg);
        }
        bool access = k.op == KO_load || k.op == KO_store;
        if (access && (k.op == KO_store || k.arg[1] >= 0))
            set_guards(l, &k, n->guard);
        l->leaves |= k.op == KO_load && !l->oom && !stays_inside(l, &k);
        if (k.op == KO_store)
            k.buf = (int16_t)(k.buf + l->t->n_buf_value);
        x = append_ins(l, section, &k);
    }
    store_reused(l, section, id, x);
    put_early(l, section, id, x);
    return l->placed[id] = x;
}

/* Is the kernel one sum of products with an epilogue? */
static bool is_product(const nl *l)
{
    bool product = l->n_stage == 2 && l->t->n_reduce == 1;
    for (int i = 0; i < l->n_item && product; i++)
        if (l->item[i].k.op == KO_reduce) {
            const nnc_kins *term = &l->item[l->item[i].k.arg[0]].k;
            product = term->op == KO_sop && term->sop == SC_fma;
        }
    return product;
}

/* Moves values that only a product's epilogue uses, such as old weights of an update, after its sums. A register block needs its registers
 * for the sums. */
static void sink_operands(nl *l)
{
    enum { BEFORE = 1, BODY = 2, EPILOGUE = 3 }; /* sections */
    for (int i = l->n_item; i-- > 0 && is_product(l);) {
        bool late = l->item[i].section == BEFORE;
        for (int j = i + 1; j < l->n_item && late; j++)
            for (int a = 0; a < 3; a++)
                late = late && (l->item[j].k.arg[a] != i || l->item[j].section == EPILOGUE);
        if (late)
            l->item[i].section = EPILOGUE;
    }
}

static bool place_all(nl *l)
{
    const nx *t = l->t;
    l->placed = ARENA_NEW(l->scratch, int32_t, t->n_ins + 1);
    if (!l->placed || !plan_stages(l))
        return false;
    memset(l->bucket, -1, sizeof l->bucket);
    memset(l->placed, -1, sizeof *l->placed * (size_t)(t->n_ins + 1));
    nl_choose_early(l);
    nl_choose_reused(l);
    for (int g = 0; g < l->n_stage; g++)
        for (int r = 0; r < t->n_reduce; r++)
            if (l->stage[g].ctx < 0 && l->stage[g].level == t->reduce[r].level &&
                l->stage[g].space == t->reduce[r].space)
                (void)place_ins(l, 2 * g + 1, t->reduce[r].result);
    for (int i = 0; i < t->n_store; i++)
        if (!is_placed(l, t->store[i]))
            (void)place_ins(l, 0, t->store[i]);
    if (!l->oom)
        sink_operands(l);
    return !l->oom;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Appends the instructions of one section to the kernel. */
static void take_section(nl *l, int section, int32_t *map)
{
    nnc_kernel *k = l->k;
    for (int i = 0; i < l->n_item; i++) {
        if (l->item[i].section != section)
            continue;
        nnc_kins *in = &k->ins[k->n_ins];
        *in = l->item[i].k;
        for (int j = 0; j < 3; j++)
            if (in->arg[j] >= 0)
                in->arg[j] = map[in->arg[j]];
        map[i] = k->n_ins++;
    }
}

static bool assemble(nl *l)
{
    nnc_kernel *k = l->k;
    int32_t *map = ARENA_NEW(l->scratch, int32_t, l->n_item + 1);
    k->ins = ARENA_NEW(l->out, nnc_kins, l->n_item + 1);
    k->stage = ARENA_NEW(l->out, nnc_kstage, l->n_stage + 1);
    if (!map || !k->ins || !k->stage)
        return false;
    for (int s = 0; s < l->n_stage; s++) {
        nnc_kstage g = {.axes = l->stage[s].axes, .body0 = k->n_ins};
        take_section(l, 2 * s, map);
        g.body1 = g.post0 = k->n_ins;
        take_section(l, 2 * s + 1, map);
        g.post1 = k->n_ins;
        if (g.body0 < g.post1)
            k->stage[k->n_stage++] = g;
    }
    return true;
}

nnc_kernel *nx_link(nx *t, nnc_arena *scratch, nnc_arena *out, const char **why)
{
    nl *l = ARENA_NEW(scratch, nl, 1);
    if (!l)
        return NULL;
    l->t = t;
    l->k = nnc_arena_memdup(out, t->k, sizeof *t->k);
    if (!l->k)
        return NULL;
    l->scratch = scratch;
    l->out = out;
    for (int a = 0; a < l->k->n_axis; a++)
        l->k->n_outer += l->k->axis[a].kind == KA_outer;
    bool placed = place_all(l);
    *why = l->leaves                   ? "a load may leave its operand"
           : l->n_item >= NNC_KMAX_INS ? NX_TOO_LONG
                                       : NULL;
    if (!placed || l->leaves || !assemble(l))
        return NULL;
    nnc_kernel_outer_first(l->k);
    l->k->scratch_bytes = nnc_kernel_scratch(l->k);
    return l->k;
}
