/* train/inputs.c -- gradients with respect to the model's inputs (nnc_training.grad_inputs), as outputs of the step. So a model without
 * weights has a backward pass, and the first layer all of its own. */
#include "train/internal.h"

static bool is_of_model(const nnc_graph *g, const nnc_node *n)
{
    return n->op == OP_input && !is_added_input(g->value[n->out].name);
}

static bool is_float_input(const nnc_graph *g, const nnc_node *n)
{
    return is_of_model(g, n) && nnc_is_float((nnc_dtype)nnc_typeof(g, n->out)->dtype);
}

int find_float_inputs(const nnc_graph *g, nnc_ref *x)
{
    int n = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (is_float_input(g, &g->node[i]))
            x[n++] = g->node[i].out;
    return n;
}

nnc_status check_float_inputs(const nnc_graph *m, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) others = {0};
    int floats = 0;
    for (uint32_t i = 0; i < m->n_node; i++) {
        const nnc_node *n = &m->node[i];
        floats += is_float_input(m, n);
        if (is_of_model(m, n) && !is_float_input(m, n))
            nnc_printf(&others, "%s%s (%s)", others.n ? ", " : "", m->value[n->out].name,
                nnc_dtype_name((nnc_dtype)nnc_typeof(m, n->out)->dtype));
    }
    NNC_NEED(!others.oom, sink);
    if (!floats)
        return nnc_fail0(sink, NNC_E_MODEL,
            "--grad-inputs: the model has no input of floats, and there are no gradients with "
            "respect to %s",
            others.n ? nnc_text_str(&others) : "anything else");
    if (others.n)
        nnc_note(sink, (nnc_loc){0},
            "--grad-inputs: no gradients with respect to inputs that are no floats: %s",
            nnc_text_str(&others));
    return NNC_OK;
}

/* The gradient of the loss itself, in the input's type. */
static nnc_ref unscaled(nnc_graph *g, nnc_ref grad, nnc_ref scale)
{
    if (scale == NNC_NONE || grad == NNC_NONE)
        return grad;
    const nnc_dtype d = (nnc_dtype)nnc_typeof(g, grad)->dtype;
    const nnc_ref wide = d == DT_f64 ? grad : nnc_cast(g, grad, DT_f32);
    const nnc_ref by = d == DT_f64 ? nnc_cast(g, scale, DT_f64) : scale;
    return nnc_cast(g, nnc_build2(g, OP_div, wide, by), d);
}

void add_input_gradients(nnc_graph *g, int n, const nnc_ref *x, const nnc_ref *grad, nnc_ref scale)
{
    const int16_t device = g->device;
    const char *origin = g->origin;
    for (int i = 0; i < n && g->status == NNC_OK; i++) {
        const nnc_type t = nnc_type_dense(nnc_typeof(g, x[i]));
        const nnc_node *of = nnc_def(g, grad[i] != NNC_NONE ? grad[i] : x[i]);
        g->device = of->device;
        g->origin = of->origin;
        nnc_ref y = unscaled(g, grad[i], scale);
        if (y == NNC_NONE && g->status == NNC_OK) /* the loss does not depend on it */
            y = nnc_broadcast(g, nnc_scalar(g, (nnc_dtype)t.dtype, 0), t.rank, t.dim);
        char *name = nnc_arena_printf(
            &g->arena, "%s" NNC_GRADIENT, g->value[x[i]].name ? g->value[x[i]].name : "input");
        if (!name)
            g->status = nnc_nomem(g->sink);
        else if (y != NNC_NONE)
            nnc_output(g, y, name);
    }
    g->device = device;
    g->origin = origin;
}
