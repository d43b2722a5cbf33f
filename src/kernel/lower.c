/* kernel/lower.c -- a node to a kernel: its nest (ir/nest.h) becomes stages, its points
 * instructions, its axes loops. */
#include "kernel/lower.h"

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
    l->k->scratch_bytes = nnc_kernel_scratch(l->k);
    return NNC_OK;
}

nnc_kernel *nnc_kernel_build(const nnc_graph *g, const nnc_node *n, nnc_arena *a, nnc_sink *sink)
{
    lw *l = nnc_calloc(1, sizeof *l);
    if (!l) {
        (void)nnc_nomem(sink);
        return NULL;
    }
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
