/* ir/dot.c -- Graphviz text of a graph: one box a node, edges with their types; constants and
 * params are small, bodies of fused nodes are lists inside their box. */
#include "ir/graph.h"

#include <string.h>

/* Text inside a double-quoted DOT string. */
static void put_escaped(nnc_text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            nnc_putc(t, '\\');
        if (*s == '\n')
            nnc_puts(t, "\\n");
        else
            nnc_putc(t, *s);
    }
}

static const char *colour(const nnc_node *n)
{
    switch (nnc_op_class(n->op)) {
    case CL_leaf:
        return n->op == OP_input ? "#cfe8cf" : "#eeeeee";
    case CL_contract:
        return "#cfdcf5";
    case CL_fused:
        return "#f7e3c0";
    case CL_reduce:
    case CL_comp:
    case CL_window:
        return "#f5d5e5";
    default:
        return "#ffffff";
    }
}

static void put_box(nnc_text *t, const nnc_graph *g, uint32_t i)
{
    const nnc_node *n = &g->node[i];
    nnc_printf(
        t, "  n%u [style=filled, fillcolor=\"%s\", label=\"%s", i, colour(n), nnc_ops[n->op].name);
    if (n->n_out && g->value[n->out].name && nnc_op_class(n->op) == CL_leaf)
        nnc_printf(t, " %s", g->value[n->out].name);
    for (uint32_t k = 0; n->body && k < n->body->n_node; k++)
        if (n->body->node[k].op != OP_input)
            nnc_printf(t, "\\n- %s", nnc_ops[n->body->node[k].op].name);
    if (n->origin) {
        nnc_puts(t, "\\n");
        put_escaped(t, n->origin);
    }
    if (n->device >= 0)
        nnc_printf(t, "\\ndevice %d", n->device);
    nnc_puts(t, "\"];\n");
}

static void put_edge(nnc_text *t, const nnc_graph *g, nnc_ref r, const char *to, uint32_t id)
{
    nnc_printf(t, "  n%u -> %s%u [label=\"", g->value[r].node, to, id);
    nnc_put_type(t, nnc_typeof(g, r));
    nnc_puts(t, "\"];\n");
}

void nnc_graph_dot(nnc_text *t, const nnc_graph *g)
{
    nnc_puts(t, "digraph \"");
    put_escaped(t, g->name);
    nnc_puts(t, "\" {\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n"
                "  edge [fontname=\"sans-serif\", fontsize=8];\n");
    for (uint32_t i = 0; i < g->n_node; i++)
        put_box(t, g, i);
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            put_edge(t, g, g->node[i].in[k], "n", i);
    for (uint32_t i = 0; i < g->n_output; i++) {
        nnc_printf(t, "  out%u [shape=ellipse, label=\"", i);
        put_escaped(t, g->output_name[i] ? g->output_name[i] : "result");
        nnc_puts(t, "\"];\n");
        put_edge(t, g, g->output[i], "out", i);
    }
    nnc_puts(t, "}\n");
}
