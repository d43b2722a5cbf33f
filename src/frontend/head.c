/* frontend/head.c -- replaces the head of a classifier: its last contraction gets another number of outputs, with generated weights. */
#include "frontend/internal.h"
#include <math.h>
#include <string.h>

/* Ops between the head and the output: they keep its classes apart. */
static bool passes(nnc_op op)
{
    switch (op) {
    case OP_softmax:
    case OP_log_softmax:
    case OP_sigmoid:
    case OP_relu:
    case OP_dropout:
    case OP_identity:
    case OP_cast:
    case OP_reshape:
    case OP_transpose:
    case OP_avgpool:
    case OP_global_avgpool:
    case OP_reduce_mean:
    case OP_add: return true;
    default: return false;
    }
}

/* The param of node n's operand i, before a cast; NULL: it is computed, or missing. */
static nnc_node *param_of(const nnc_graph *g, const nnc_node *n, int i)
{
    nnc_node *p = i < n->n_in ? nnc_def(g, n->in[i]) : NULL;
    if (p && p->op == OP_cast)
        p = nnc_def(g, p->in[0]);
    return p && p->op == OP_param && p->weight ? p : NULL;
}

/* The head: from the first output back, the last linear, conv or matmul with a weight. `bias`: of an add after it, or its own. */
static nnc_node *find_head(const nnc_graph *g, nnc_node **weight, nnc_node **bias)
{
    nnc_node *n = nnc_def(g, g->output[0]);
    *bias = NULL;
    while (passes(n->op)) {
        nnc_node *of = n->op == OP_add ? param_of(g, n, 1) : NULL;
        if (n->op == OP_add && !of)
            return NULL;
        *bias = of ? of : *bias;
        n = nnc_def(g, n->in[0]);
    }
    if (n->op != OP_linear && n->op != OP_conv && n->op != OP_matmul)
        return NULL;
    *weight = param_of(g, n, 1);
    *bias = *bias ? *bias : param_of(g, n, 2);
    return *weight ? n : NULL;
}

/* Which dimension of the weight counts the classes. */
static int classes_of(const nnc_node *head, const nnc_type *weight)
{
    if (head->op != OP_matmul)
        return 0;
    return nnc_attr_int(head, AT_transpose_b, 0) ? weight->rank - 2 : weight->rank - 1;
}

/* Gives the param another extent, and numbers from the seed, zeros for a bias: the same ones when an artifact's model is read again. */
static void renew(nnc_graph *g, nnc_node *p, int dim, int64_t n, double fan_in, uint64_t seed)
{
    nnc_type *t = &g->value[p->out].type;
    int64_t extent[NNC_MAX_RANK];
    memcpy(extent, t->dim, sizeof extent);
    extent[dim] = n;
    *t = nnc_type_make(t->dtype, t->rank, extent);
    *p->weight = (nnc_weight){.kind = NNC_W_gen,
        .name = p->weight->name,
        .seed = seed,
        .scale = fan_in > 0 ? (float)sqrt(3 / fan_in) : 0};
}

/* Infers the types after the head again; constant shapes get the new number instead of the old one. */
static nnc_status infer_again(nnc_graph *g, int64_t old, int64_t n, nnc_sink *sink)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_node *x = &g->node[i];
        nnc_type type[8];
        bool changed = false;
        if (nnc_op_class(x->op) == CL_leaf || x->n_out > (int)NNC_COUNT(type))
            continue;
        if (x->op == OP_reshape &&
            nnc_type_numel(nnc_typeof(g, x->in[0])) != nnc_type_numel(nnc_typeof(g, x->out))) {
            int64_t dim[NNC_MAX_RANK];
            const nnc_type *t = nnc_typeof(g, x->out);
            for (int d = 0; d < t->rank; d++) {
                dim[d] = t->dim[d] == old && !changed ? n : t->dim[d];
                changed = changed || t->dim[d] == old;
            }
            const int64_t *kept = nnc_arena_memdup(&g->arena, dim, (size_t)t->rank * sizeof *dim);
            NNC_NEED(kept, sink);
            x->attr[0].ints = kept; /* its only attribute is the shape */
        }
        NNC_TRY(nnc_infer(g, x, type, sink));
        for (int k = 0; k < x->n_out; k++)
            g->value[x->out + (nnc_ref)k].type = type[k];
    }
    return NNC_OK;
}

static bool is_shared(const nnc_graph *g, const nnc_node *p)
{
    int uses = 0;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            uses += g->node[i].in[k] == p->out;
    return uses > 1;
}

void fe_forget_head(const nnc_graph *g, nnc_mismatch *m)
{
    nnc_node *weight, *bias;
    if (!find_head(g, &weight, &bias))
        return;
    nnc_mismatch_drop(m, weight->weight->name);
    if (bias)
        nnc_mismatch_drop(m, bias->weight->name);
}

/* Lists each weight and where its numbers are from, and the tensors of the file that are left out. How many of each. */
typedef struct sources {
    int read, generated, left;
    nnc_text kinds; /* of those left out */
} sources;

/* Is there a line "read NAME ..."? */
static bool is_read(nnc_text *list, const char *name)
{
    NNC_LOCAL(nnc_text) line = {0};
    nnc_printf(&line, "read %s ", name);
    return !line.oom && list->n && strstr(nnc_text_str(list), nnc_text_str(&line));
}

/* Lists the tensors of the file that no weight is read from. */
static nnc_status list_left(const nnc_tensors *file, sources *n, nnc_text *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    fe_timm timm;
    NNC_FREED const char **left = nnc_malloc(((size_t)nnc_tensors_count(file) + 1) * sizeof *left);
    NNC_NEED(left, sink);
    NNC_TRY(fe_timm_open(&timm, file, &a, sink));
    for (int i = 0; i < nnc_tensors_count(file); i++) {
        const nnc_tensor_entry *e = nnc_tensors_at(file, i);
        if (is_read(out, e->name) || (timm.as && timm.as[i] && is_read(out, timm.as[i])))
            continue;
        nnc_printf(out, "left out %s ", e->name);
        nnc_put_type(out, &e->type);
        nnc_putc(out, '\n');
        left[n->left++] = e->name;
    }
    nnc_put_tensor_kinds(&n->kinds, n->left, left);
    return NNC_OK;
}

static nnc_status list_weights(
    const nnc_graph *g, const nnc_model_options *o, sources *n, nnc_text *out, nnc_sink *sink)
{
    nnc_tensors *file = NULL;
    if (o->weights)
        NNC_TRY(fe_open_weights(o, &file, sink));
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_weight *w = g->node[i].op == OP_param ? g->node[i].weight : NULL;
        if (!w || !w->name)
            continue;
        const bool made = w->kind == NNC_W_gen;
        nnc_printf(out, "%s %s ", made ? "generated" : "read", w->name);
        nnc_put_type(out, nnc_typeof(g, g->node[i].out));
        nnc_putc(out, '\n');
        n->read += !made;
        n->generated += made;
    }
    const nnc_status st = file ? list_left(file, n, out, sink) : NNC_OK;
    nnc_tensors_close(file);
    return st ? st : out->oom || n->kinds.oom ? nnc_nomem(sink) : NNC_OK;
}

/* Says what is new, and keeps the list of the weights. */
static nnc_status report(nnc_graph *g, const nnc_model_options *o, int64_t old, const char *weight,
    bool bias, nnc_loc loc, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) list = {0}, left = {0};
    sources n = {0};
    char others[64] = "";
    if (o->again)
        return NNC_OK;
    const nnc_status listed = list_weights(g, o, &n, &list, sink);
    if (n.left)
        nnc_printf(&left, ", %d of its tensors %s left out (%s)", n.left, n.left > 1 ? "are" : "is",
            nnc_text_str(&n.kinds));
    nnc_text_deinit(&n.kinds);
    NNC_TRY(listed);
    NNC_NEED(!left.oom, sink);
    g->head = nnc_arena_strdup(&g->arena, nnc_text_str(&list));
    NNC_NEED(g->head, sink);
    if (n.generated > 1 + bias)
        snprintf(others, sizeof others, ", as %d others", n.generated - 1 - bias);
    if (!n.read) {
        nnc_warn(sink, loc,
            "new head: %d classes instead of %lld; all weights are generated (--weights reads "
            "them)",
            o->classes, (long long)old);
        return NNC_OK;
    }
    nnc_warn(sink, loc,
        "new head: %d classes instead of %lld; %s%s generated%s; %d other weights are read from "
        "%s%s (--verbose lists them)",
        o->classes, (long long)old, weight, bias ? " and its bias are" : " is", others, n.read,
        o->weights ? o->weights : "the model's files", nnc_text_str(&left));
    return NNC_OK;
}

nnc_status fe_replace_head(nnc_graph *g, const nnc_model_options *o, nnc_sink *sink)
{
    nnc_node *weight, *bias, *head = find_head(g, &weight, &bias);
    nnc_loc loc = nnc_def(g, g->output[0])->loc;
    if (!head)
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "--replace-head: the model's first output is not that of a linear, conv or matmul with "
            "its own weight (an activation or pooling may follow)");
    loc = head->loc;
    loc.path = head->origin;
    const nnc_type was = *nnc_typeof(g, weight->out);
    const int dim = classes_of(head, &was);
    const int64_t old = was.dim[dim];
    if (is_shared(g, weight) || nnc_attr_int(head, AT_groups, 1) != 1)
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "--replace-head: other layers use the weight %s as well, or it has groups",
            weight->weight->name);
    renew(g, weight, dim, o->classes, (double)nnc_type_numel(&was) / (double)old, o->seed);
    for (int d = 0; bias && d < nnc_typeof(g, bias->out)->rank; d++)
        if (nnc_typeof(g, bias->out)->dim[d] == old) {
            renew(g, bias, d, o->classes, 0, o->seed);
            break;
        }
    NNC_TRY(infer_again(g, old, o->classes, sink));
    NNC_TRY(report(g, o, old, weight->weight->name, bias != NULL, loc, sink));
    return nnc_verify(g, sink);
}
