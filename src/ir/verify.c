/* ir/verify.c -- checks the invariants of ir.h after every pass. A failure is a bug in nnc, not in the model. (That parse(print(g))
 * prints the same text is tested in the tests of text.c and parse.c.) */
#include "ir/graph.h"

static nnc_status broken(nnc_sink *sink, const nnc_node *n, const char *what)
{
    return nnc_fail(sink, NNC_E_BUG, nnc_node_loc(n), "verify: %s: %s", nnc_ops[n->op].name, what);
}

static bool is_permutation(const nnc_type *t)
{
    uint32_t seen = 0;
    for (int i = 0; i < t->rank; i++)
        seen |= 1u << (t->order[i] & 31);
    return seen == (1u << t->rank) - 1;
}

/* Compares a result's type with the inferred one, including the memory order where the op determines it. */
static nnc_status check_type(
    const nnc_graph *g, const nnc_node *n, nnc_ref r, const nnc_type *want, nnc_sink *sink)
{
    const nnc_type *t = nnc_typeof(g, r);
    bool ordered = n->op == OP_relayout || n->op == OP_fused;
    const nnc_type dense = nnc_type_dense(t); /* nnc_check_places checks gaps */
    if (!is_permutation(t))
        return broken(sink, n, "the memory order of a result is not a permutation");
    if (t->dtype == want->dtype &&
        (ordered ? nnc_type_same_memory(&dense, want) : nnc_type_same_shape(t, want)))
        return NNC_OK;
    NNC_LOCAL(nnc_text) is = {0}, said = {0};
    nnc_put_type(&said, t);
    nnc_put_type(&is, want);
    return nnc_fail(sink, NNC_E_BUG, nnc_node_loc(n),
        "verify: %s: a result's type is %s, but inference says %s", nnc_ops[n->op].name,
        nnc_text_str(&said), nnc_text_str(&is));
}

static nnc_status check_types(const nnc_graph *g, nnc_node *n, nnc_sink *sink)
{
    nnc_type few[8], *t = few;
    if (n->n_out > NNC_COUNT(few) && !(t = nnc_calloc(n->n_out, sizeof *t)))
        return nnc_nomem(sink);
    nnc_status s = nnc_infer(g, n, t, sink);
    if (s != NNC_OK && s != NNC_E_NOMEM)
        s = NNC_E_BUG;
    for (uint32_t i = 0; s == NNC_OK && i < n->n_out; i++)
        s = check_type(g, n, n->out + i, &t[i], sink);
    if (t != few)
        nnc_free(t);
    return s;
}

static nnc_status check_node(const nnc_graph *g, uint32_t i, uint32_t next, nnc_sink *sink)
{
    nnc_node *n = &g->node[i];
    if (n->op >= OP__COUNT)
        return nnc_fail0(sink, NNC_E_BUG, "verify: node %u has op %u", i, n->op);
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= next)
            return broken(sink, n, "an operand is not defined before the node");
    if (n->n_out != nnc_result_count(n))
        return broken(sink, n, "the number of results is wrong");
    if (n->out != next || n->n_out > g->n_value - next)
        return broken(sink, n, "the results are not numbered in order");
    for (uint32_t k = 0; k < n->n_out; k++) {
        const nnc_value *v = &g->value[n->out + k];
        if (v->node != i || v->result != k)
            return broken(sink, n, "a result does not name its node");
        if (v->name && nnc_name_find(g, v->name) != n->out + k)
            return broken(sink, n, "the name of a result is not its own");
    }
    if (n->device < -1)
        return broken(sink, n, "the device is below -1");
    if (n->task < -1)
        return broken(sink, n, "the task is below -1");
    if (n->frozen && n->op != OP_param)
        return broken(sink, n, "only a param can be frozen");
    if ((n->body != NULL) != (n->op == OP_fused))
        return broken(sink, n, "a body belongs to a fused node");
    if (n->body)
        NNC_TRY(nnc_verify(n->body, sink));
    return check_types(g, n, sink);
}

const char *nnc_update_fault(const nnc_graph *g, nnc_ref state, nnc_ref value)
{
    if (nnc_def(g, state)->op != OP_param)
        return "only a param can be updated";
    if (nnc_def(g, state)->state)
        return "the param is updated twice";
    const nnc_type *a = nnc_typeof(g, state), *b = nnc_typeof(g, value);
    return nnc_type_equal(a, b) ? NULL : "the new value has another type than the param";
}

/* Checks that updates come last, each of a different param marked as state, by a value of the same type. */
static nnc_status check_updates(const nnc_graph *g, nnc_sink *sink)
{
    uint32_t n = nnc_result_outputs(g), states = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        states += g->node[i].state;
    for (uint32_t i = 0; i < g->n_output; i++) {
        nnc_ref s = g->output_state[i];
        if (i < n ? s != NNC_NONE : s >= g->n_value || !nnc_def(g, s)->state)
            return nnc_fail0(
                sink, NNC_E_BUG, "verify: output %u of @%s updates no state", i, g->name);
        if (i >= n && !nnc_type_equal(nnc_typeof(g, s), nnc_typeof(g, g->output[i])))
            return broken(sink, nnc_def(g, s), "the update has another type");
    }
    if (states != g->n_output - n)
        return nnc_fail0(sink, NNC_E_BUG, "verify: @%s has %u states and %u updates", g->name,
            states, g->n_output - n);
    return NNC_OK;
}

nnc_status nnc_verify(const nnc_graph *g, nnc_sink *sink)
{
    uint32_t next = 0;
    if (g->status != NNC_OK)
        return nnc_fail0(sink, NNC_E_BUG, "verify: graph @%s carries a failure", g->name);
    for (uint32_t i = 0; i < g->n_node; i++) {
        NNC_TRY(check_node(g, i, next, sink));
        next += g->node[i].n_out;
    }
    if (next != g->n_value)
        return nnc_fail0(sink, NNC_E_BUG, "verify: graph @%s has values without a node", g->name);
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i] >= g->n_value)
            return nnc_fail0(sink, NNC_E_BUG, "verify: output %u of @%s is no value", i, g->name);
    NNC_TRY(nnc_check_places(g, sink));
    return check_updates(g, sink);
}
