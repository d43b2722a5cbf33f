/* codegen/lower.c -- a node to a kernel: its nest (ir/nest.h) becomes stages, its points
 * instructions, its axes loops. */
#include "codegen/lower.h"

#include "codegen/collapse.h"

#include <string.h>

/* ---- stages ---- */

static void add_stage(lw *l, uint32_t axes, int level, int space, int ctx)
{
    l->stage[l->n_stage++] = (lw_stage){axes, level, space, ctx};
}

/* Rows before all reductions, then level by level the reductions of one space together, then
 * the outputs. */
static bool plan_stages(lw *l)
{
    const nnc_nest *s = l->nest;
    int levels = 0;
    l->flat = true;
    for (int a = 0; a < s->n_axis; a++)
        l->flat = l->flat && s->axis[a].kind == NX_outer;
    for (int r = 0; r < s->n_reduce; r++)
        levels = s->reduce[r].level > levels ? s->reduce[r].level : levels;
    l->row_section = ARENA_NEW(&l->scratch, int, levels + 1);
    if (!l->row_section)
        return false;
    add_stage(l, 0, 0, -1, -1);
    l->row_section[0] = 1;
    for (int level = 1; level <= levels; level++) {
        int first = l->n_stage;
        for (int r = 0; r < s->n_reduce; r++) {
            int have = first;
            while (have < l->n_stage && l->stage[have].space != s->reduce[r].space)
                have++;
            if (s->reduce[r].level == level && have == l->n_stage)
                add_stage(l, s->ctx[s->reduce[r].ctx].axes, level, s->reduce[r].space, -1);
        }
        l->row_section[level] = 2 * (l->n_stage - 1) + 1;
    }
    for (int c = 0; c < s->n_ctx; c++)
        if (s->ctx[c].output && (s->ctx[c].axes & ~s->outer))
            add_stage(l, s->ctx[c].axes & ~s->outer, 0, -1, c);
    return true;
}

static bool emit_all(lw *l)
{
    const nnc_nest *s = l->nest;
    l->value = ARENA_NEW(&l->scratch, int32_t, s->n_point + 1);
    l->row = ARENA_NEW(&l->scratch, int32_t, s->n_reduce + 1);
    if (!l->value || !l->row || !plan_stages(l))
        return false;
    memset(l->bucket, -1, sizeof l->bucket);
    for (int i = 0; i < s->n_point; i++)
        l->value[i] = -1;
    lw_choose_kept(l);
    for (int g = 0; g < l->n_stage; g++)
        for (int r = 0; r < s->n_reduce; r++)
            if (l->stage[g].ctx < 0 && l->stage[g].level == s->reduce[r].level &&
                l->stage[g].space == s->reduce[r].space && !lw_emit_reduce(l, g, r))
                return false;
    for (int i = 0; i < s->n_store; i++)
        if (!lw_emit_store(l, &s->store[i]))
            return false;
    return !l->oom;
}

/* ---- the kernel ---- */

static bool add_buffers(lw *l)
{
    nnc_kernel *k = l->k;
    int n = l->n_operand + l->n_result;
    if (n + (int)NNC_COUNT(l->keep) > NNC_KMAX_BUF)
        return false;
    k->buf = ARENA_NEW(l->out, nnc_kbuf, n + (int)NNC_COUNT(l->keep));
    if (!k->buf)
        return false;
    for (int i = 0; i < n; i++) {
        bool in = i < l->n_operand;
        const nnc_type *t = in ? &l->operand_type[i] : &l->result_type[i - l->n_operand];
        k->buf[k->n_buf++] = (nnc_kbuf){
            .role = in ? KB_in : KB_out, .dtype = (nnc_dtype)t->dtype, .numel = nnc_type_numel(t)};
    }
    return true;
}

static bool name_parts(lw *l)
{
    static const char *const axis[3] = {"i", "m", "r"}, *const buf[3] = {"x", "y", "t"};
    nnc_kernel *k = l->k;
    int count[3] = {0};
    for (int b = 0; b < k->n_buf; b++)
        if (!(k->buf[b].name =
                    nnc_arena_printf(l->out, "%s%d", buf[k->buf[b].role], count[k->buf[b].role]++)))
            return false;
    memset(count, 0, sizeof count);
    for (int a = 0; a < k->n_axis; a++)
        if (!(k->axis[a].name = nnc_arena_printf(
                  l->out, "%s%d", axis[k->axis[a].kind], count[k->axis[a].kind]++)))
            return false;
    return true;
}

/* Copies the instructions of one section behind those before it. */
static bool take_section(lw *l, int section, int32_t *map)
{
    nnc_kernel *k = l->k;
    for (int i = 0; i < l->n_ins; i++) {
        if (l->ins[i].section != section)
            continue;
        nnc_kins *in = &k->ins[k->n_ins];
        *in = l->ins[i].k;
        for (int j = 0; j < 3; j++)
            if (in->arg[j] >= 0)
                in->arg[j] = map[in->arg[j]];
        if (in->n_guard > 0 &&
            !(in->guard = nnc_arena_memdup(l->out, in->guard, sizeof *in->guard * in->n_guard)))
            return false;
        map[i] = k->n_ins++;
    }
    return true;
}

static void add_axes(lw *l)
{
    nnc_kernel *k = l->k;
    for (int a = 0; a < l->nest->n_axis; a++) {
        static const nnc_kaxis_kind kind[3] = {KA_outer, KA_map, KA_reduce};
        k->axis[a] = (nnc_kaxis){kind[l->nest->axis[a].kind], l->nest->axis[a].extent, NULL};
        k->n_outer += kind[l->nest->axis[a].kind] == KA_outer;
    }
    k->n_axis = l->nest->n_axis;
}

static bool assemble(lw *l)
{
    nnc_kernel *k = l->k;
    int32_t *map = ARENA_NEW(&l->scratch, int32_t, l->n_ins + 1);
    k->ins = ARENA_NEW(l->out, nnc_kins, l->n_ins + 1);
    k->stage = ARENA_NEW(l->out, nnc_kstage, l->n_stage + 1);
    if (!map || !k->ins || !k->stage)
        return false;
    for (int s = 0; s < l->n_stage; s++) {
        nnc_kstage g = {.axes = l->stage[s].axes, .body0 = k->n_ins};
        if (!take_section(l, 2 * s, map))
            return false;
        g.body1 = g.post0 = k->n_ins;
        if (!take_section(l, 2 * s + 1, map))
            return false;
        g.post1 = k->n_ins;
        if (g.body0 < g.post1)
            k->stage[k->n_stage++] = g;
    }
    return true;
}

/* "k_add_relu_1a2b3c4d": the first ops of the node, and the hash. */
static bool name_kernel(lw *l, const nnc_node *n)
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
    nnc_hash128 h = nnc_kernel_hash(l->k);
    if (h.hi == ~(uint64_t)0)
        return false;
    l->k->name = nnc_arena_printf(l->out, "%s_%08x", text, (unsigned)(h.lo & 0xffffffffu));
    return l->k->name != NULL;
}

/* ---- what ranges say ---- */

static const nnc_sop decidable[] = {SC_max, SC_min, SC_abs, SC_select, SC_isnan, SC_isinf, SC_eq,
    SC_ne, SC_lt, SC_le, SC_gt, SC_ge, SC_and, SC_or, SC_not};

static void count_decidable(const nnc_kernel *k, int *count)
{
    for (size_t j = 0; j < NNC_COUNT(decidable); j++) {
        count[j] = 0;
        for (int i = 0; i < k->n_ins; i++)
            count[j] += k->ins[i].op == KO_sop && k->ins[i].sop == decidable[j];
    }
}

/* Ranges, and a line for what they decided. */
static void find_ranges(nnc_kernel *k, nnc_text *note)
{
    int before[NNC_COUNT(decidable)], after[NNC_COUNT(decidable)], n = 0;
    count_decidable(k, before);
    nnc_kernel_ranges(k);
    count_decidable(k, after);
    for (size_t j = 0; j < NNC_COUNT(decidable); j++) {
        if (after[j] >= before[j])
            continue;
        nnc_printf(note, "%s%s", n++ ? ", " : "", nnc_sops[decidable[j]].name);
        if (before[j] - after[j] > 1)
            nnc_printf(note, " x%d", before[j] - after[j]);
    }
    if (n)
        nnc_puts(note, ": decided by the range of its argument, gone\n");
}

static bool improve(lw *l)
{
    nnc_kernel *k = l->k;
    nnc_math math = nnc_math_of(l->target);
    bool changed = false, marks = nnc_has_fma(l->target); /* else the f64 forms serve all */
    nnc_text note = {0};
    /* short forms reach further: their ranges are wider */
    bool ok = !marks || nnc_kernel_mark(k, math, NULL);
    find_ranges(k, &note);
    ok = ok && nnc_kernel_simplify(k, math, l->out, &note, &changed);
    /* what only 16 bits of are asked is known by ranges, too */
    if (ok && marks)
        ok = nnc_kernel_mark(k, math, NULL);
    if (ok && (changed || (marks && math != MATH_exact)))
        nnc_kernel_ranges(k);
    if (ok && math != MATH_exact)
        ok = nnc_kernel_collapse(k, l->target, l->out, &note);
    if (ok && marks)
        ok = nnc_kernel_join_erf(k, math, l->out, &note);
    if (ok && math == MATH_fast && nnc_has_fma(l->target))
        ok = nnc_kernel_contract(k, l->out, &note);
    if (ok && marks)
        ok = nnc_kernel_mark(k, math, &note);
    if (ok && note.n > 0)
        k->note = nnc_arena_strdup(l->out, nnc_text_str(&note));
    ok = ok && !note.oom && (note.n == 0 || k->note);
    nnc_text_deinit(&note);
    return ok;
}

static nnc_status lower(lw *l, const nnc_graph *g, const nnc_node *n)
{
    NNC_TRY(lw_open_graph(l, g, n));
    nnc_ref *outs = ARENA_NEW(&l->scratch, nnc_ref, l->n_result + 1);
    int n_out = 0;
    for (int i = 0; outs && i < l->n_result; i++) {
        int j = 0;
        while (j < n_out && outs[j] != l->result[i])
            j++;
        outs[j] = l->result[i];
        n_out += j == n_out;
    }
    l->k = ARENA_NEW(l->out, nnc_kernel, 1);
    if (!outs || !l->k)
        return nnc_nomem(l->sink);
    const char *why = NULL;
    l->nest = nnc_nest_trace(l->g, l->node, l->n_node, outs, n_out, -1, &l->scratch, &why);
    if (!l->nest)
        return why ? nnc_fail0(l->sink, NNC_E_BUG, "%s (%s): no kernel: %s", nnc_ops[n->op].name,
                         n->origin ? n->origin : "", why)
                   : nnc_nomem(l->sink);
    add_axes(l);
    if (!add_buffers(l) || !emit_all(l) || !assemble(l))
        return nnc_nomem(l->sink);
    if (!improve(l))
        return nnc_nomem(l->sink);
    lw_order_axes(l);
    nnc_kernel_merge_axes(l->k);
    if (!nnc_window_strips(l->k, l->target, l->out))
        return nnc_nomem(l->sink);
    if (!nnc_kernel_schedule(l->k, l->target))
        return nnc_nomem(l->sink);
    l->k->scratch_bytes = nnc_kernel_scratch(l->k);
    if (!name_parts(l) || !name_kernel(l, n))
        return nnc_nomem(l->sink);
    return NNC_OK;
}

nnc_kernel *nnc_lower(
    const nnc_graph *g, const nnc_node *n, const nnc_target *t, nnc_arena *a, nnc_sink *sink)
{
    lw *l = nnc_calloc(1, sizeof *l);
    if (!l) {
        (void)nnc_nomem(sink);
        return NULL;
    }
    l->target = t;
    l->sink = sink;
    l->out = a;
    nnc_arena_init(&l->scratch, 0);
    nnc_status s = lower(l, g, n);
    nnc_kernel *k = s == NNC_OK ? l->k : NULL;
    nnc_graph_destroy(l->g);
    nnc_arena_deinit(&l->scratch);
    nnc_free(l);
    return k;
}
