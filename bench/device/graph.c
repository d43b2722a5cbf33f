/* bench/device/graph.c -- a model as JSON: what peers.py builds the same computation from, with the same numbers. */
#include "session/session.h"
#include "device.h"
#include "train/train.h"
#include <string.h>

void type_json(const nnc_type *y, nnc_text *t)
{
    nnc_printf(t, "\"dtype\": \"%s\", \"shape\": [", nnc_dtype_name((nnc_dtype)y->dtype));
    for (int i = 0; i < y->rank; i++)
        nnc_printf(t, "%s%lld", i ? ", " : "", (long long)y->dim[i]);
    nnc_putc(t, ']');
}

static void put_attr(const nnc_attr *a, nnc_text *t)
{
    nnc_printf(t, "\"%s\": ", nnc_attrs[a->key].name);
    switch (nnc_attrs[a->key].kind) {
    case AK_int: nnc_printf(t, "%lld", (long long)a->i); break;
    case AK_bool: nnc_puts(t, a->i ? "true" : "false"); break;
    case AK_float: nnc_printf(t, "%.9g", a->f); break;
    case AK_ints:
        for (int i = 0; i < a->n; i++)
            nnc_printf(t, "%s%lld", i ? ", " : "[", (long long)a->ints[i]);
        nnc_puts(t, a->n ? "]" : "[]");
        break;
    case AK_dtype: nnc_put_json_string(t, nnc_dtype_name((nnc_dtype)a->i)); break;
    case AK_word: nnc_put_json_string(t, a->word); break;
    }
}

/* "input" (by name) or "param" (by generator): key and scale of its numbers (base/num.h). */
static void put_leaf(const nnc_node *n, const nnc_value *v, nnc_text *t)
{
    const nnc_weight *w = n->weight;
    const char *name = w && w->name ? w->name : v->name ? v->name : "";
    uint64_t key = w ? nnc_rng_key(name, w->seed) : nnc_rng_key(name, 0x696e707574u);
    nnc_puts(t, ", \"name\": ");
    nnc_put_json_string(t, name);
    nnc_printf(t, ", \"key\": \"%016llx\", \"scale\": %.9g, \"shift\": %.9g, \"period\": %d",
        (unsigned long long)key, w ? (double)w->scale : 1.0, w ? (double)w->shift : 0.0,
        w || !nnc_is_float((nnc_dtype)v->type.dtype) ? 0 : (int)INPUT_PERIOD);
    if (n->frozen)
        nnc_puts(t, ", \"frozen\": true");
}

/* The numbers of a constant: of the indices and weights of an interpolation, not of tensors. */
static void put_numbers(const nnc_node *n, const nnc_type *type, nnc_text *t)
{
    int64_t count = nnc_type_numel(type);
    nnc_puts(t, ", \"value\": [");
    for (int64_t i = 0; i < count && count <= 65536; i++)
        nnc_printf(
            t, "%s%.17g", i ? ", " : "", nnc_get_f64((nnc_dtype)type->dtype, n->weight->data, i));
    nnc_puts(t, "]");
}

static void put_node(const nnc_graph *g, const nnc_node *n, nnc_text *t)
{
    const nnc_value *v = &g->value[n->out];
    bool leaf = n->op == OP_input || (n->weight && n->weight->kind == NNC_W_gen);
    nnc_printf(t, "{\"op\": \"%s\", \"out\": %u, \"n_out\": %d, ", nnc_ops[n->op].name,
        (unsigned)n->out, n->n_out);
    type_json(&v->type, t);
    nnc_puts(t, ", \"in\": [");
    for (int i = 0; i < n->n_in; i++)
        nnc_printf(t, "%s%u", i ? ", " : "", (unsigned)n->in[i]);
    nnc_puts(t, "], \"attr\": {");
    for (int i = 0; i < n->n_attr; i++) {
        nnc_puts(t, i ? ", " : "");
        put_attr(&n->attr[i], t);
    }
    nnc_puts(t, "}");
    if (n->op == OP_constant)
        put_numbers(n, &v->type, t);
    if (leaf)
        put_leaf(n, v, t);
    nnc_puts(t, "}");
}

void graph_json(const nnc_graph *g, nnc_text *t)
{
    nnc_puts(t, ",\n \"graph\": [");
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_puts(t, i ? ",\n  " : "\n  ");
        put_node(g, &g->node[i], t);
    }
    nnc_puts(t, "],\n \"outputs\": [");
    for (uint32_t i = 0; i < g->n_output; i++)
        nnc_printf(t, "%s%u", i ? ", " : "", (unsigned)g->output[i]);
    nnc_puts(t, "]");
}

static const char *const losses[] = {"cross_entropy", "mse", "bce"}; /* by nnc_loss */
static const char *const optimizers[] = {"sgd", "adam", "adamw"}; /* by nnc_optimizer */

static bool word_of(const char *v, const char *const words[3], int *out)
{
    for (*out = 0; v && *out < 3; ++*out)
        if (!strcmp(v, words[*out]))
            return true;
    *out = 0;
    return !v;
}

bool training_of(const char *loss, const char *optimizer, nnc_training *out)
{
    int l, o;
    if (!word_of(loss, losses, &l) || !word_of(optimizer, optimizers, &o))
        return false;
    out->loss = (nnc_loss)l;
    out->optimizer = (nnc_optimizer)o;
    return true;
}

void training_json(const nnc_training *of, const nnc_graph *step, nnc_text *t)
{
    nnc_printf(t, ",\n \"training\": {\"loss\": \"%s\", \"optimizer\": \"%s\", \"momentum\": %.9g",
        losses[of->loss], optimizers[of->optimizer], of->momentum);
    for (uint32_t i = 0; i < step->n_node; i++) {
        const nnc_value *v = &step->value[step->node[i].out];
        if (step->node[i].op != OP_input || !v->name || strcmp(v->name, NNC_TRAIN_TARGET) != 0)
            continue;
        nnc_puts(t, ", \"target\": {");
        type_json(&v->type, t);
        put_leaf(&step->node[i], v, t);
        nnc_puts(t, "}");
    }
    nnc_puts(t, "}");
}
