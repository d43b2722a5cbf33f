/* train/tasks.c -- what each node of a training step is for, and the task of a schedule that computes it.
 *
 * A task is the forward pass, the backward pass or the weight gradients of one stage for one micro-batch. Without chunks a device is a
 * stage. With them layers go round the devices, and a layer's stage is the number of devices that its operands have passed. A node's task
 * is never before those of its operands: a gradient of weights that two stages share is computed in the later one's. */
#include "train/distribute.h"
#include <string.h>

/* ---- uses ---------------------------------------------------------------------------------------------------------------- */

/* need[i]: node i is computed for an output, with `gradients` also for the gradients of inputs. Or with `sums` for
 * the new value of a state that sums gradients, with `statistics` of any that accumulates. */
static bool *find_needed(const step_facts *f, bool gradients, bool sums, bool statistics)
{
    const nnc_graph *s = f->s;
    const uint32_t results = nnc_result_outputs(s);
    bool *need = ARENA_NEW(f->a, bool, s->n_node + 1);
    for (uint32_t i = 0; need && i < s->n_output; i++) {
        const nnc_ref state = i < results ? NNC_NONE : s->output_state[i];
        if (state == NNC_NONE ? gradients || !nnc_output_is_gradient(s, i)
                              : nnc_def(s, state)->accumulates &&
                                    (is_gradient_sum(nnc_def(s, state)) ? sums : statistics))
            need[s->value[s->output[i]].node] = true;
    }
    for (uint32_t i = s->n_node; need && i-- > 0;) {
        const nnc_node *n = &s->node[i];
        for (int k = 0; k < n->n_in && need[i]; k++)
            need[s->value[n->in[k]].node] = true;
    }
    return need;
}

/* of_samples[i]: node i depends on samples, or on states that accumulate. */
static bool *find_of_samples(const step_facts *f)
{
    const nnc_graph *s = f->s;
    bool *of = ARENA_NEW(f->a, bool, s->n_node + 1);
    for (uint32_t i = 0; of && i < s->n_node; i++) {
        const nnc_node *n = &s->node[i];
        const char *name = s->value[n->out].name;
        of[i] = n->op == OP_input &&
                (nnc_typeof(s, n->out)->rank || (name && !strcmp(name, NNC_TRAIN_KEY)));
        of[i] = of[i] || (n->op == OP_param && n->accumulates && f->o->micro > 1);
        for (int k = 0; k < n->n_in && !of[i]; k++)
            of[i] = of[s->value[n->in[k]].node];
    }
    return of;
}

/* Gradients, and those that the optimizer puts side by side. */
static bool is_gradient(const step_facts *f, uint32_t i)
{
    const nnc_node *n = &f->s->node[i];
    bool yes = !in_optimizer(n) || nnc_op_class((nnc_op)n->op) == CL_move;
    for (int k = 0; k < n->n_in && yes && in_optimizer(n); k++) {
        const uint32_t d = f->s->value[n->in[k]].node;
        yes = f->use[d] == USE_backward || f->use[d] == USE_forward;
    }
    return yes;
}

static nnc_status find_uses(step_facts *f)
{
    const nnc_graph *s = f->s;
    const bool many = f->o->micro > 1;
    const bool *output = find_needed(f, false, false, false),
               *batch = find_needed(f, true, true, many), *of = find_of_samples(f);
    NNC_NEED(output && batch && of, f->sink);
    for (uint32_t i = 0; i < s->n_node; i++)
        f->use[i] = nnc_is_leaf(&s->node[i]) || !of[i] ? USE_shared
                    : output[i]                        ? USE_forward
                    : batch[i] || is_gradient(f, i)    ? USE_backward
                                                       : USE_once;
    return NNC_OK;
}

/* Tells weight gradients apart: no other layer's gradient depends on them. */
static nnc_status find_weight_gradients(step_facts *f)
{
    const nnc_graph *s = f->s;
    bool *passed = ARENA_NEW(f->a, bool, s->n_node + 1); /* another layer's gradient needs it */
    NNC_NEED(passed, f->sink);
    for (uint32_t i = s->n_node; i-- > 0;) {
        const nnc_node *n = &s->node[i];
        for (int k = 0; k < n->n_in && f->use[i] == USE_backward; k++) {
            const uint32_t d = s->value[n->in[k]].node;
            const bool same = in_optimizer(n) || (s->node[d].origin && n->origin &&
                                                     !strcmp(s->node[d].origin, n->origin));
            passed[d] = passed[d] || passed[i] || !same;
        }
    }
    for (uint32_t i = 0; i < s->n_node; i++)
        if (f->use[i] == USE_backward && !passed[i])
            f->use[i] = USE_weight;
    return NNC_OK;
}

/* ---- states that accumulate ---------------------------------------------------------------------------------------------- */

/* The value that v is a part of; *at: the part's place. */
static nnc_ref part_of(const nnc_graph *s, nnc_ref v, int64_t *at)
{
    const int64_t *start = NULL;
    *at = 0;
    while (nnc_def(s, v)->op == OP_reshape)
        v = nnc_def(s, v)->in[0];
    if (nnc_def(s, v)->op != OP_slice)
        return v;
    nnc_attr_ints(nnc_def(s, v), AT_starts, &start);
    *at = start[0];
    return nnc_def(s, v)->in[0];
}

/* The value that has the new values of node n's operands, which are states, at their places; NNC_NONE: there is none. */
static nnc_ref chain_of(const step_facts *f, const nnc_node *n)
{
    const nnc_graph *s = f->s;
    nnc_ref whole = NNC_NONE;
    int64_t want = 0, at;
    for (int k = 0; k < n->n_in; k++) {
        nnc_ref v = n->in[k];
        while (nnc_def(s, v)->op == OP_reshape)
            v = nnc_def(s, v)->in[0];
        if (f->update[v] == NNC_NONE)
            return NNC_NONE;
        const nnc_ref w = part_of(s, f->update[v], &at);
        if (at != want || (k && w != whole))
            return NNC_NONE;
        whole = w;
        want += nnc_type_numel(nnc_typeof(s, v));
    }
    return whole != NNC_NONE && nnc_type_equal(nnc_typeof(s, whole), nnc_typeof(s, n->out))
               ? whole
               : NNC_NONE;
}

static nnc_status find_chains(step_facts *f)
{
    const nnc_graph *s = f->s;
    const size_t n = (size_t)s->n_value + 1;
    NNC_NEED(ARENA_ARRAYS(f->a, n, f->update, f->chain), f->sink);
    memset(f->update, 0xff, n * sizeof *f->update);
    memset(f->chain, 0xff, n * sizeof *f->chain);
    for (uint32_t i = nnc_result_outputs(s); i < s->n_output; i++)
        if (nnc_def(s, s->output_state[i])->accumulates)
            f->update[s->output_state[i]] = s->output[i];
    for (uint32_t i = 0; i < s->n_node; i++) {
        const nnc_node *x = &s->node[i];
        if (x->op == OP_reshape || (x->op == OP_concat && nnc_typeof(s, x->out)->rank == 1))
            f->chain[x->out] = chain_of(f, x);
    }
    f->first = NNC_NONE;
    for (uint32_t i = 0; i < s->n_node; i++) {
        const char *name = s->node[i].op == OP_input ? s->value[s->node[i].out].name : NULL;
        if (name && !strcmp(name, NNC_TRAIN_FIRST))
            f->first = s->node[i].out;
    }
    return NNC_OK;
}

/* ---- stages and tasks ---------------------------------------------------------------------------------------------------- */

static int placed_on(const step_facts *f, const nnc_node *n)
{
    return n->device < 0 || f->o->devices == 1 ? 0 : n->device;
}

static nnc_status not_in_order(const step_facts *f, const nnc_node *n, const nnc_node *d)
{
    nnc_loc loc = n->loc;
    loc.path = n->origin;
    return nnc_fail(f->sink, NNC_E_USAGE, loc,
        "is placed on device %d and reads %s on device %d: the layers of a pipeline are on devices "
        "0, 1, ... in the order of the layers%s",
        placed_on(f, n), d->origin ? d->origin : nnc_ops[d->op].name, placed_on(f, d),
        f->o->stages > f->o->devices ? ", round and round" : "");
}

/* The stage of each node of the forward pass. */
static nnc_status find_forward_stages(const step_facts *f, int *stage)
{
    const nnc_graph *s = f->s;
    const int p = f->o->devices;
    for (uint32_t i = 0; i < s->n_node; i++) {
        const nnc_node *n = &s->node[i];
        stage[i] = placed_on(f, n);
        for (int k = 0; k < n->n_in && f->use[i] == USE_forward; k++) {
            const uint32_t d = s->value[n->in[k]].node;
            if (f->use[d] != USE_forward)
                continue;
            const int hops = (placed_on(f, n) - placed_on(f, &s->node[d]) + p) % p;
            stage[i] = stage[d] + hops > stage[i] ? stage[d] + hops : stage[i];
            if (stage[i] >= f->o->stages)
                return not_in_order(f, n, &s->node[d]);
        }
    }
    return NNC_OK;
}

/* That of the forward pass of its layer: paths of gradients end in "/backward". */
static int backward_stage(const step_facts *f, const int *stage, const nnc_node *n)
{
    static const char back[] = "/backward";
    const size_t length = n->origin ? strlen(n->origin) : 0, end = sizeof back - 1;
    const bool is = length > end && !strcmp(n->origin + length - end, back);
    for (uint32_t i = f->s->n_node; is && i-- > 0;) {
        const nnc_node *x = &f->s->node[i];
        if (f->use[i] == USE_forward && x->origin && strlen(x->origin) == length - end &&
            !strncmp(x->origin, n->origin, length - end))
            return stage[i];
    }
    return placed_on(f, n);
}

static nnc_status find_stages(const step_facts *f, int *stage)
{
    const nnc_graph *s = f->s;
    NNC_TRY(find_forward_stages(f, stage));
    for (uint32_t i = 0; i < s->n_node && f->o->stages > f->o->devices; i++)
        if (f->use[i] == USE_backward || f->use[i] == USE_weight)
            stage[i] = backward_stage(f, stage, &s->node[i]);
    return NNC_OK;
}

/* The task of operand v of a node, for micro-batch k; -1: none. */
static int32_t rank_of_operand(const step_facts *f, nnc_ref v, int k)
{
    const int m = f->o->micro;
    if (f->chain[v] != NNC_NONE || f->update[v] != NNC_NONE) {
        v = f->chain[v] != NNC_NONE ? f->chain[v] : f->update[v];
        k--;
    }
    return k < 0 ? -1 : f->rank[(size_t)f->s->value[v].node * (size_t)m + (size_t)k];
}

static nnc_status find_ranks(step_facts *f)
{
    const nnc_graph *s = f->s;
    const nnc_distribution *o = f->o;
    int *stage = ARENA_NEW(f->a, int, s->n_node + 1);
    const size_t m = (size_t)o->micro, each = (size_t)o->stages * m;
    f->rank = ARENA_NEW(f->a, int32_t, s->n_node * m + 1);
    NNC_NEED(stage && f->rank, f->sink);
    NNC_TRY(find_stages(f, stage));
    for (int k = 0; k < o->micro; k++)
        for (uint32_t i = 0; i < s->n_node; i++) {
            int32_t *to = &f->rank[i * m + (size_t)k];
            *to = -1;
            if (f->use[i] == USE_shared || f->use[i] == USE_once)
                continue;
            const size_t kind = (size_t)(f->use[i] - USE_forward);
            *to = o->rank[kind * each + (size_t)stage[i] * m + (size_t)k];
            for (int j = 0; j < s->node[i].n_in; j++) {
                const int32_t of = rank_of_operand(f, s->node[i].in[j], k);
                *to = *to > of ? *to : of;
            }
            f->n_rank = f->n_rank > *to + 1 ? f->n_rank : *to + 1;
        }
    return NNC_OK;
}

nnc_status find_step_facts(step_facts *f)
{
    f->use = ARENA_NEW(f->a, uint8_t, f->s->n_node + 1);
    NNC_NEED(f->use, f->sink);
    NNC_TRY(find_uses(f));
    NNC_TRY(find_chains(f));
    if (f->o->split)
        NNC_TRY(find_weight_gradients(f));
    return f->o->rank ? find_ranks(f) : NNC_OK;
}
