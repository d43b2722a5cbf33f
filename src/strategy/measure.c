/* strategy/measure.c -- what a model's layers cost, from its plan for one device. Each command's time, FLOPs and bytes go to the layers
 * that it names, each tensor's bytes to the layers of the command that writes it.
 *
 * A command of several layers (a fused kernel) divides its time among them in proportion to what they would take alone. Layers that a
 * command of the forward pass joins are one block, which is not cut. */
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "sim/sim.h"
#include <string.h>

typedef struct measure {
    nnc_env *e;
    const nnc_target *t;
    const nnc_training *training; /* NULL: inference */
    const nnc_graph *g; /* the forward graph as written */
    nnc_partition_model *m;
    nnc_arena *a; /* of results */
    nnc_arena own; /* of the rest */
    nnc_sink *sink;
    int32_t *layer_of; /* by node of g: its layer, -1: a leaf, or without a path */
    int64_t *alone; /* by layer: nanoseconds as written */
    const nnc_plan *plan;
    const nnc_plan *adding; /* of a step that accumulates; NULL: none */
    int64_t *measured; /* by command: nanoseconds; NULL: predicted */
    int64_t *adding_measured; /* of `adding` */
    int64_t chunks; /* runs of the plan that make a run of the model */
    uint8_t *part; /* by command: nnc_part */
    bool *gradient; /* by root tensor: only the optimizer reads it */
    bool *kept; /* by root tensor: from the forward pass for the backward pass */
    int *hit; /* layers of a command */
    int n_hit;
    nnc_layer_costs cost; /* by layer */
    int64_t *trained; /* by layer: bytes of parameters that are trained */
} measure;

static void measure_deinit(measure *s)
{
    nnc_arena_deinit(&s->own);
}

/* ---- layers -------------------------------------------------------------------------------------------- */

static int find_layer(const nnc_partition_model *m, const char *path, size_t n)
{
    for (int i = m->n_layer - 1; i >= 0; i--)
        if (!strncmp(m->layer[i], path, n) && !m->layer[i][n])
            return i;
    return -1;
}

static nnc_status find_layers(measure *s)
{
    nnc_partition_model *m = s->m;
    const nnc_graph *g = s->g;
    NNC_NEED(ARENA_ARRAYS(s->a, g->n_node + 1, m->layer, m->device, m->generated) &&
                 ARENA_ARRAYS(&s->own, g->n_node + 1, s->layer_of, s->alone),
        s->sink);
    m->n_layer = nnc_model_layers(g, m->layer, s->layer_of);
    for (int l = 0; l < m->n_layer; l++)
        NNC_NEED(m->layer[l] = nnc_arena_strdup(s->a, m->layer[l]), s->sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const int at = s->layer_of[i];
        if (at < 0)
            continue;
        m->device[at] = g->node[i].device;
        const nnc_cost c = nnc_node_cost(g, &g->node[i]);
        s->alone[at] += c.launches ? nnc_target_time_ns(s->t, c.flops, c.bytes) : 0;
    }
    if (!m->n_layer)
        return nnc_fail0(s->sink, NNC_E_MODEL,
            "%s has no layers to partition: its nodes carry no paths of layers", g->name);
    return NNC_OK;
}

/* The layers that a command names; those of the loss count as the last layer's. */
static void find_hits(measure *s, const char *layers)
{
    static const char back[] = "/backward";
    s->n_hit = 0;
    for (const char *p = layers ? layers : ""; *p;) {
        const size_t whole = strcspn(p, "+");
        size_t n = whole;
        if (n > sizeof back - 1 && !memcmp(p + n - (sizeof back - 1), back, sizeof back - 1))
            n -= sizeof back - 1;
        int at = find_layer(s->m, p, n);
        if (at < 0 && n >= 5 && !memcmp(p, "/loss", 5))
            at = s->m->n_layer - 1;
        for (int k = 0; at >= 0 && k < s->n_hit; k++)
            at = s->hit[k] == at ? -1 : at;
        if (at >= 0)
            s->hit[s->n_hit++] = at;
        p += whole + (p[whole] == '+');
    }
}

/* Adds v to the entries of the layers that were hit, in proportion to `share` (NULL, or zeros: evenly). The parts add up to v. */
static void divide(const measure *s, int64_t *to, int64_t v, const int64_t *share)
{
    __int128 all = 0, before = 0;
    for (int k = 0; k < s->n_hit; k++)
        all += share ? share[s->hit[k]] : 0;
    for (int k = 0; k < s->n_hit; k++) {
        const __int128 after = before + (all ? share[s->hit[k]] : 1);
        const __int128 of = all ? all : s->n_hit;
        to[s->hit[k]] += (int64_t)(v * after / of - v * before / of);
        before = after;
    }
}

/* ---- commands ------------------------------------------------------------------------------------------- */

static bool computes(const nnc_cmd *c)
{
    return c->kind == CMD_kernel || c->kind == CMD_call || c->kind == CMD_copy;
}

/* Nanoseconds of a kernel on t, a CPU, by its schedule; 0: out of memory. */
static int64_t scheduled_ns(const nnc_target *t, const nnc_plan *p, int32_t kernel)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_OWNED(nnc_sink) *sink = nnc_sink_create();
    nnc_kernel *k = NULL;
    const nnc_unit one = {.n = 1, .kernel = &kernel};
    const bool ok = sink && !nnc_plan_kernels(p, &one, &k, &a, sink);
    return ok ? nnc_max64(nnc_kernel_ns(k, t, NULL, &a), 0) : 0;
}

int64_t nnc_predict_command_ns(const nnc_env *env, const nnc_plan *p, const nnc_cmd *c)
{
    nnc_target cold = env->target[0]; /* a model's other layers leave the shared cache to theirs */
    const nnc_target *t = &cold;
    cold.l3_bytes = cold.kind == NNC_T_cpu ? 0 : cold.l3_bytes;
    if (env->cluster)
        return nnc_ceildiv(nnc_sim_command_ps(p, c, nnc_cluster_kind_of(env->cluster, 0)), 1000);
    const nnc_target_engine *e =
        c->engine >= 0 ? nnc_target_engine_named(t, p->engine[c->engine]) : NULL;
    const int64_t plain = nnc_target_time_ns(t, c->flops, c->bytes);
    if (!e || c->kind == CMD_copy)
        return plain;
    if (c->kind == CMD_call) {
        const nnc_ask ask = nnc_plan_ask(&p->call[c->item], c->flops, c->bytes);
        const nnc_offer o = nnc_target_offer(t, &ask);
        return o.ok ? o.time_ns : plain;
    }
    const double share = nnc_sim_engine_share(c->op_class), reached = e->efficiency * share;
    const int64_t ns = reached > 0 && reached < 1
                           ? nnc_target_time_ns(t, (int64_t)((double)c->flops / reached), c->bytes)
                       : t->kind == NNC_T_cpu && share == 0 ? scheduled_ns(t, p, c->item)
                                                            : 0;
    return nnc_max64(ns, plain);
}

static int64_t command_ns(const measure *s, const nnc_cmd *c)
{
    return s->measured ? s->measured[c - s->plan->cmd] : nnc_predict_command_ns(s->e, s->plan, c);
}

/* gradient[], kept[] */
static nnc_status find_tensors(measure *s)
{
    const nnc_plan *p = s->plan;
    bool *other = ARENA_NEW(&s->own, bool, p->n_tensor + 1);
    s->part = ARENA_NEW(&s->own, uint8_t, p->n_cmd + 1);
    s->hit = ARENA_NEW(&s->own, int, s->m->n_layer + 1);
    NNC_NEED(
        other && s->part && s->hit && ARENA_ARRAYS(&s->own, p->n_tensor + 1, s->gradient, s->kept),
        s->sink);
    if (s->m->step)
        NNC_TRY(nnc_step_parts(p, s->part, s->sink));
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd && s->m->step; i++) {
        const nnc_cmd *c = &p->cmd[i];
        for (int k = 0; computes(c) && k < nnc_plan_first_written(p, c); k++)
            (s->part[i] == PART_optimizer ? s->gradient : other)[nnc_plan_root(p, c->arg[k])] =
                true;
    }
    for (int32_t t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        const bool root = x->alias_of < 0 && x->space == SP_arena;
        s->gradient[t] = root && s->gradient[t] && !other[t] && x->first >= p->end[SEC_main];
        s->kept[t] = root && s->m->step && x->last >= p->end[SEC_main] &&
                     x->first < p->end[SEC_main] && !x->is_output;
    }
    return NNC_OK;
}

/* Does command i compute gradients of weights and nothing else? */
static bool computes_gradients(const measure *s, int i)
{
    const nnc_cmd *c = &s->plan->cmd[i];
    for (int k = nnc_plan_first_written(s->plan, c); k < c->n_arg; k++)
        if (!s->gradient[nnc_plan_root(s->plan, c->arg[k])])
            return false;
    return true;
}

/* A product that adds its result, the gradient, to the weight. Where strategies come between the two, the product remains, and the update
 * is that of a plan that accumulates (add_updates). */
static bool is_gradient_and_update(const measure *s, int i)
{
    const char *class = s->plan->cmd[i].op_class;
    return s->part[i] == PART_optimizer && class && nnc_sim_class_contracts(class);
}

static void add_command(measure *s, int i)
{
    const nnc_cmd *c = &s->plan->cmd[i];
    const int64_t ns = nnc_mul_sat(command_ns(s, c), s->chunks);
    const bool both = is_gradient_and_update(s, i);
    if (s->part[i] == PART_optimizer && !both) {
        for (s->n_hit = 0; s->n_hit < s->m->n_layer; s->n_hit++)
            s->hit[s->n_hit] = s->n_hit;
        divide(s, s->cost.optimizer, ns, s->trained);
        return;
    }
    find_hits(s, c->layers);
    if (!s->n_hit) /* of no layer: what the model ends with */
        s->hit[s->n_hit++] = s->m->n_layer - 1;
    int64_t *to = both                          ? s->cost.weight
                  : s->part[i] != PART_backward ? s->cost.forward
                  : computes_gradients(s, i)    ? s->cost.weight
                                                : s->cost.backward;
    divide(s, to, ns, s->alone);
    const bool windows =
        c->op_class && (nnc_sim_class_contracts(c->op_class) || !strcmp(c->op_class, "pool"));
    for (int k = 0; k < s->n_hit && to == s->cost.forward && windows; k++)
        s->m->generated[s->hit[k]] = c->kind == CMD_kernel;
    if (to == s->cost.forward)
        divide(s, s->cost.filled, (int64_t)((double)ns * nnc_sim_command_share(s->plan, c, s->t)),
            s->alone);
    divide(s, s->cost.flops, nnc_mul_sat(c->flops, s->chunks), s->alone);
}

/* accumulate[]: time of a micro-batch's commands in a plan that accumulates, less their time in one that does not. Sums are made within the
 * products of gradients, or in commands of the optimizer, which are divided by the bytes of weights. */
static void add_accumulation(measure *s)
{
    measure of = *s;
    const nnc_plan *p = of.plan = s->adding;
    of.measured = s->adding_measured;
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[SEC_accumulate]; i++) {
        if (!computes(&p->cmd[i]))
            continue;
        const int64_t ns = nnc_mul_sat(command_ns(&of, &p->cmd[i]), s->chunks);
        find_hits(&of, p->cmd[i].layers);
        if (of.n_hit) {
            divide(&of, s->cost.accumulate, ns, s->alone);
            continue;
        }
        for (of.n_hit = 0; of.n_hit < s->m->n_layer; of.n_hit++)
            of.hit[of.n_hit] = of.n_hit;
        divide(&of, s->cost.accumulate, ns, s->trained);
    }
    for (int l = 0; l < s->m->n_layer; l++)
        s->cost.accumulate[l] -= s->cost.forward[l] + s->cost.backward[l] + s->cost.weight[l];
}

/* optimizer[] of a plan whose products update weights: the commands after the sums of gradients in the plan that accumulates. */
static void add_updates(measure *s)
{
    measure of = *s;
    const nnc_plan *p = of.plan = s->adding;
    bool any = false;
    of.measured = s->adding_measured;
    for (int i = nnc_plan_first(s->plan, SEC_main); i < s->plan->n_cmd && !any; i++)
        any = is_gradient_and_update(s, i);
    for (of.n_hit = 0; of.n_hit < s->m->n_layer; of.n_hit++) {
        of.hit[of.n_hit] = of.n_hit;
        s->cost.optimizer[of.n_hit] = any ? 0 : s->cost.optimizer[of.n_hit];
    }
    for (int i = p->end[SEC_accumulate]; any && i < p->end[SEC_step]; i++)
        if (computes(&p->cmd[i]))
            divide(&of, s->cost.optimizer, nnc_mul_sat(command_ns(&of, &p->cmd[i]), s->chunks),
                s->trained);
}

/* saved[], working[]: tensors of the arena and workspaces. */
static void add_tensors(measure *s)
{
    const nnc_plan *p = s->plan;
    const int64_t align = nnc_plan_align(&p->device[0]);
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        int64_t live = 0;
        find_hits(s, p->cmd[i].layers);
        for (int32_t t = 0; t < p->n_tensor; t++) {
            const nnc_ptensor *x = &p->tensor[t];
            const bool root = x->space == SP_arena && x->alias_of < 0;
            if (!root || s->gradient[t])
                continue;
            if (s->kept[t] && (x->first == i || (x->first < 0 && i == nnc_plan_first(p, SEC_main))))
                divide(s, s->cost.saved, nnc_align_up(x->bytes, align), NULL);
            if (!s->kept[t] && x->first <= i && i <= x->last)
                live += nnc_align_up(x->bytes, align);
        }
        for (int k = 0; k < s->n_hit; k++)
            s->cost.working[s->hit[k]] = nnc_max64(s->cost.working[s->hit[k]], live);
    }
}

/* weights[] of inference: what the plan keeps of them, transformed ones too, at the layers of the command that reads them first. */
static nnc_status add_kept(measure *s)
{
    const nnc_plan *p = s->plan;
    bool *seen = ARENA_NEW(&s->own, bool, p->n_tensor + 1); /* by root tensor */
    NNC_NEED(seen, s->sink);
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
        for (int k = 0; k < p->cmd[i].n_arg; k++) {
            const int32_t t = nnc_plan_root(p, p->cmd[i].arg[k]);
            if (seen[t] || p->tensor[t].space != SP_persist)
                continue;
            seen[t] = true;
            find_hits(s, p->cmd[i].layers);
            if (!s->n_hit)
                s->hit[s->n_hit++] = s->m->n_layer - 1;
            divide(s, s->cost.weights, p->tensor[t].bytes, NULL);
        }
    return NNC_OK;
}

/* weights[], gradients[], states[] and trained[] of a step, from the graph as written; a weight of several layers counts at the first. */
static nnc_status add_weights(measure *s)
{
    const nnc_graph *g = s->g;
    bool *seen = ARENA_NEW(&s->own, bool, g->n_value + 1);
    int64_t states = 0, all = 0;
    NNC_NEED(seen, s->sink);
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; s->layer_of[i] >= 0 && k < g->node[i].n_in; k++) {
            const nnc_ref r = g->node[i].in[k];
            const nnc_node *w = nnc_def(g, r);
            if (w->op != OP_param || seen[r])
                continue;
            seen[r] = true;
            const int64_t bytes = nnc_type_bytes(nnc_typeof(g, r));
            s->cost.weights[s->layer_of[i]] += bytes;
            if (nnc_train_freezes(s->training, w) || nnc_reads_statistic(&g->node[i], k))
                continue;
            s->trained[s->layer_of[i]] += bytes;
            s->cost.gradients[s->layer_of[i]] += bytes;
            s->cost.small[s->layer_of[i]] += nnc_train_updates_alone(nnc_typeof(g, r)) ? 0 : bytes;
            all += bytes;
        }
    for (int i = 0; i < s->plan->end[SEC_init]; i++) {
        const nnc_cmd *c = &s->plan->cmd[i];
        if (c->kind == CMD_weight && !strcmp(c->layers, "/optimizer"))
            states += s->plan->tensor[c->arg[0]].bytes;
    }
    for (s->n_hit = 0; s->n_hit < s->m->n_layer; s->n_hit++)
        s->hit[s->n_hit] = s->n_hit;
    if (all)
        divide(s, s->cost.states, states, s->trained);
    return NNC_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------ */

/* joined[i]: layer i is in the block of layer i - 1. */
static nnc_status find_blocks(measure *s, int **block_of)
{
    nnc_partition_model *m = s->m;
    const nnc_plan *p = s->plan;
    bool *joined = ARENA_NEW(&s->own, bool, m->n_layer + 1);
    int *of = *block_of = ARENA_NEW(&s->own, int, m->n_layer + 2);
    m->first = ARENA_NEW(s->a, int, m->n_layer + 1);
    NNC_NEED(joined && of && m->first, s->sink);
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        if (!computes(&p->cmd[i]) || s->part[i] != PART_forward)
            continue;
        find_hits(s, p->cmd[i].layers);
        for (int a = 0; a < s->n_hit; a++)
            for (int l = s->hit[0] + 1; l <= s->hit[a]; l++)
                joined[l] = true;
        for (int a = 0; a < s->n_hit; a++)
            for (int l = s->hit[a] + 1; l <= s->hit[0]; l++)
                joined[l] = true;
    }
    for (int l = 0; l < m->n_layer; l++) {
        if (!l || !joined[l])
            m->first[m->n_block++] = l;
        of[l] = m->n_block - 1;
    }
    m->first[m->n_block] = m->n_layer;
    of[m->n_layer] = m->n_block;
    return NNC_OK;
}

static int64_t *gather(measure *s, const int64_t *of, const int *block, bool max)
{
    int64_t *to = ARENA_NEW(s->a, int64_t, s->m->n_block + 1);
    for (int l = 0; to && l < s->m->n_layer; l++)
        to[block[l]] = max ? nnc_max64(to[block[l]], of[l]) : nnc_add_sat(to[block[l]], of[l]);
    return to;
}

enum { COSTS = sizeof(nnc_layer_costs) / sizeof(int64_t *) }; /* its fields, all of them arrays */

static nnc_status gather_all(measure *s, const int *block)
{
    nnc_layer_costs *const b = &s->m->cost;
    int64_t **const from = &s->cost.forward, **const to = &b->forward;
    for (size_t i = 0; i < COSTS; i++)
        NNC_NEED(to[i] = gather(s, from[i], block, &from[i] == &s->cost.working), s->sink);
    for (int i = 0; i < s->m->n_block; i++)
        b->accumulate[i] = nnc_max64(b->accumulate[i], 0);
    return NNC_OK;
}

/* Tensors between blocks: values of the forward graph, without weights and what depends only on weights. */
static nnc_status find_edges(measure *s, const int *block)
{
    nnc_partition_model *m = s->m;
    const nnc_graph *g = s->g;
    size_t cap_user = 0;
    m->edge = ARENA_NEW(s->a, nnc_edge, g->n_value + 1);
    m->boundary = ARENA_NEW(s->a, int64_t, m->n_block + 1);
    NNC_NEED(m->edge && m->boundary, s->sink);
    for (nnc_ref r = 0; r < g->n_value; r++) {
        const uint32_t by = g->value[r].node;
        if (nnc_is_leaf(&g->node[by]) ? g->node[by].op != OP_input : s->layer_of[by] < 0)
            continue;
        nnc_edge x = {.bytes = nnc_type_bytes(nnc_typeof(g, r)),
            .maker = nnc_is_leaf(&g->node[by]) ? -1 : block[s->layer_of[by]]};
        int *user = NULL;
        for (uint32_t i = by + 1; i <= g->n_node; i++) {
            bool uses = false;
            for (int k = 0; i < g->n_node && k < g->node[i].n_in; k++)
                uses = uses || g->node[i].in[k] == r;
            for (uint32_t o = 0; i == g->n_node && o < g->n_output; o++)
                uses = uses || g->output[o] == r;
            const int at = i == g->n_node        ? m->n_block
                           : s->layer_of[i] >= 0 ? block[s->layer_of[i]]
                                                 : -1;
            if (!uses || at < 0 || at == x.maker || (x.n_user && user[x.n_user - 1] == at))
                continue;
            if (!user)
                cap_user = 0;
            NNC_NEED(ARENA_ROOM(s->a, user, cap_user, x.n_user + 1), s->sink);
            user[x.n_user++] = at;
        }
        x.user = user;
        if (x.n_user)
            m->edge[m->n_edge++] = x;
    }
    nnc_edges_boundary(m->edge, m->n_edge, m->n_block, m->boundary);
    return NNC_OK;
}

/* ---- times on this machine --------------------------------------------------------------------------------- */

static nnc_status measure_commands(measure *s, const nnc_artifact *a, const nnc_training *training)
{
    const nnc_plan *p = s->plan;
    s->measured = ARENA_NEW(&s->own, int64_t, p->n_cmd + 1);
    s->m->times = nnc_command_times_create(s->a);
    NNC_NEED(s->measured && s->m->times, s->sink);
    NNC_TRY(nnc_partition_time_plan(s->e, a, training, s->measured, s->sink));
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
        if (computes(&p->cmd[i]) &&
            !nnc_command_times_add(s->m->times, p, &p->cmd[i], s->measured[i]))
            return nnc_nomem(s->sink);
    return NNC_OK;
}

/* Times the commands of the plan that accumulates, for add_accumulation. */
static nnc_status measure_adding(measure *s, const nnc_artifact *a, const nnc_training *training)
{
    s->adding_measured = ARENA_NEW(&s->own, int64_t, a->plan->n_cmd + 1);
    NNC_NEED(s->adding_measured, s->sink);
    return nnc_partition_time_plan(s->e, a, training, s->adding_measured, s->sink);
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

static nnc_status attribute(measure *s)
{
    int *block;
    for (size_t i = 0; i <= COSTS; i++)
        NNC_NEED(*(i < COSTS ? &s->cost.forward + i : &s->trained) =
                     ARENA_NEW(&s->own, int64_t, s->m->n_layer + 1),
            s->sink);
    NNC_TRY(find_tensors(s));
    NNC_TRY(s->training ? add_weights(s) : add_kept(s));
    for (int i = nnc_plan_first(s->plan, SEC_main); i < s->plan->n_cmd; i++)
        if (computes(&s->plan->cmd[i]))
            add_command(s, i);
    add_tensors(s);
    if (s->adding) {
        add_accumulation(s);
        add_updates(s);
    }
    NNC_TRY(find_blocks(s, &block));
    NNC_TRY(gather_all(s, block));
    return find_edges(s, block);
}

/* The graph to compile: on one device. */
static nnc_graph *on_one_device(const nnc_model *m, const nnc_training *training, nnc_sink *sink)
{
    nnc_graph *g = nnc_graph_clone(m, sink), *step = NULL;
    for (uint32_t i = 0; g && i < g->n_node; i++)
        g->node[i].device = -1;
    if (!g || !training)
        return g;
    const nnc_status st = nnc_train_graph(g, training, &step, sink);
    nnc_graph_destroy(g);
    return st ? NULL : step;
}

static int64_t batch_of(const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input && nnc_typeof(g, g->node[i].out)->rank > 0)
            return nnc_typeof(g, g->node[i].out)->dim[0];
    return 1;
}

nnc_status nnc_partition_compile(nnc_env *e, const nnc_graph *g, const nnc_compile_options *o,
    bool code, nnc_artifact **out, nnc_sink *sink)
{
    return code ? nnc_compile(e, g, o, out, sink) : nnc_compile_plan(e, g, o, out, sink);
}

/* The plan of a step that adds its gradients to those before. */
static nnc_status compile_adding(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_compile_options *o, nnc_artifact **out, nnc_sink *sink)
{
    nnc_training step = *training;
    step.accumulate = 2;
    NNC_OWNED(nnc_graph) *g = on_one_device(m, &step, sink);
    return g ? nnc_partition_compile(e, g, o, false, out, sink) : nnc_sink_cause(sink, NNC_E_MODEL);
}

nnc_status nnc_partition_measure(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_options *options, nnc_partition_model *out, nnc_arena *a, nnc_sink *sink)
{
    /* An iteration's micro-batches replace --accumulate, and gradients have a row of their own. A plan that accumulates would
     * have their sums among the optimizer's states. */
    nnc_training step = training ? *training : (nnc_training){0};
    step.accumulate = 1;
    training = training ? &step : NULL;
    NNC_LOCAL(measure) s = {.e = e, .t = &e->target[0], .g = m, .m = out, .a = a, .sink = sink};
    s.training = training;
    nnc_compile_options one = options->compile;
    NNC_OWNED(nnc_artifact) *artifact = NULL, *adding = NULL;
    one.devices = one.streams = 1;
    *out = (nnc_partition_model){.step = training != NULL, .batch = batch_of(m)};
    NNC_OWNED(nnc_graph) *g = on_one_device(m, training, sink);
    if (!g)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    NNC_TRY(nnc_partition_compile(e, g, &one, options->measure, &artifact, sink));
    s.plan = artifact->plan;
    s.chunks = artifact->chunks;
    out->plan_bytes = s.plan->device[0].persist_bytes + s.plan->device[0].arena_bytes;
    NNC_NEED(out->name = nnc_arena_strdup(a, m->name), sink);
    NNC_TRY(find_layers(&s));
    if (options->measure)
        NNC_TRY(measure_commands(&s, artifact, training));
    if (training)
        NNC_TRY(compile_adding(e, m, training, &one, &adding, sink));
    s.adding = adding ? adding->plan : NULL;
    if (adding && options->measure)
        NNC_TRY(measure_adding(&s, adding, training));
    return attribute(&s);
}
