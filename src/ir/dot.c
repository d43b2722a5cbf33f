/* ir/dot.c -- Graphviz text of a graph: one box per op with its result. A launch (fused node) is a frame around its ops, and the layers of
 * a block or repeat have a frame of their own. Edges are labelled with the bytes that go through memory, thicker for more. Within a launch
 * they are dotted, since results stay in registers. Weights and constants are lines in the box that reads them. Where ops are on several
 * devices, boxes have their device's colour, and edges between devices are bold. */
#include "ir/graph.h"

#include <math.h>
#include <string.h>

/* Escapes text for a double-quoted DOT string. */
static void put_escaped(nnc_text *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            nnc_putc(t, '\\');
        if (s[i] == '\n')
            nnc_puts(t, "\\n");
        else
            nnc_putc(t, s[i]);
    }
}

/* Colours of devices, safe for colour-blind readers; reused for more devices. */
static const char *const device_colours[] = {
    "#9ecae9", "#f6b26b", "#a3d9b1", "#d7b5e3", "#f3e37c", "#f2a9a9", "#b8c4cc", "#c9b79c"};

static int device_of(const nnc_node *n)
{
    return n->device > 0 ? n->device : 0;
}

/* device: gives the box its colour; -1: the colour of the op's class. */
static const char *colour(const nnc_node *n, int device)
{
    if (device >= 0)
        return device_colours[(size_t)device % NNC_COUNT(device_colours)];
    switch (nnc_op_class(n->op)) {
    case CL_leaf: return "#d9ead3";
    case CL_contract: return "#cfe2f3";
    case CL_reduce:
    case CL_loop:
    case CL_comp: return "#ead1dc";
    case CL_window: return "#fce5cd";
    case CL_collective: return "#fff2cc";
    case CL_move: return "#eeeeee";
    default: return "#ffffff";
    }
}

/* Leaves that are shown as lines in their users' boxes. */
static bool hidden(const nnc_node *n)
{
    return nnc_op_class(n->op) == CL_leaf && n->op != OP_input;
}

static const nnc_node *maker(const nnc_graph *g, nnc_ref r)
{
    return &g->node[g->value[r].node];
}

/* The operand of the fused node that corresponds to input `node` of its body. */
static int operand_of(const nnc_graph *body, uint32_t node)
{
    int k = 0;
    for (uint32_t i = 0; i < node; i++)
        k += body->node[i].op == OP_input;
    return k;
}

/* The box of the node that defines r: "n3", or "n3_2" inside a kernel. */
static void put_maker(nnc_text *t, const nnc_graph *g, nnc_ref r)
{
    const nnc_node *n = maker(g, r);
    while (n->body) {
        const nnc_graph *b = n->body;
        nnc_ref inner = b->output[r - n->out];
        uint32_t k = b->value[inner].node;
        if (b->node[k].op != OP_input) {
            nnc_printf(t, "n%u_%u", g->value[r].node, k);
            return;
        }
        r = n->in[operand_of(b, k)]; /* passed through unchanged */
        n = maker(g, r);
    }
    nnc_printf(t, "n%u", g->value[r].node);
}

/* ---- boxes ------------------------------------------------------------------------------------------- */

/* Appends lines for the weights and constants among a node's operands. In a body they are operands of the fused node `outer` in `g`. */
static void put_weights(
    nnc_text *t, const nnc_graph *in, const nnc_node *n, const nnc_graph *g, const nnc_node *outer)
{
    for (int i = 0; i < n->n_in; i++) {
        const nnc_node *m = maker(in, n->in[i]);
        if (outer && m->op == OP_input)
            m = maker(g, outer->in[operand_of(in, in->value[n->in[i]].node)]);
        if (!hidden(m))
            continue;
        nnc_printf(t, "\\n%s ", m->op == OP_param ? "weight" : nnc_ops[m->op].name);
        nnc_put_type(t, nnc_typeof(in, n->in[i]));
    }
}

/* several: ops are on several devices. */
static void put_box(nnc_text *t, const nnc_graph *in, uint32_t i, const nnc_graph *g,
    const nnc_node *outer, uint32_t outer_id, bool several)
{
    const nnc_node *n = &in->node[i];
    if (outer)
        nnc_printf(t, "n%u_%u", outer_id, i);
    else
        nnc_printf(t, "n%u", i);
    nnc_printf(t, " [fillcolor=\"%s\", label=\"%s",
        colour(n, several ? device_of(outer ? outer : n) : -1), nnc_ops[n->op].name);
    if (n->op == OP_input && in->value[n->out].name) {
        nnc_putc(t, ' ');
        put_escaped(t, in->value[n->out].name, strlen(in->value[n->out].name));
    }
    for (int k = 0; k < n->n_out; k++) {
        nnc_puts(t, k ? ", " : "\\n");
        nnc_put_type(t, nnc_typeof(in, n->out + (nnc_ref)k));
    }
    put_weights(t, in, n, g, outer);
    if (n->device > 0)
        nnc_printf(t, "\\ndevice %d", n->device);
    nnc_puts(t, "\", tooltip=\"");
    put_escaped(t, n->origin ? n->origin : "", n->origin ? strlen(n->origin) : 0);
    nnc_puts(t, "\"];\n");
}

static void put_kernel(nnc_text *t, const nnc_graph *g, uint32_t i, bool several)
{
    const nnc_node *n = &g->node[i];
    nnc_printf(t,
        "subgraph cluster_k%u { style=\"rounded,filled\"; color=\"#b45f06\"; "
        "fillcolor=\"#fff8e6\"; label=\"one launch",
        i);
    if (n->device > 0)
        nnc_printf(t, " on device %d", n->device);
    nnc_puts(t, "\";\n");
    for (uint32_t k = 0; k < n->body->n_node; k++)
        if (n->body->node[k].op != OP_input && !hidden(&n->body->node[k]))
            put_box(t, n->body, k, g, n, i, several);
    nnc_puts(t, "}\n");
}

/* ---- frames of layers -------------------------------------------------------------------------------- */

/* Length of the parent path of a node's first layer: "/layers/0/conv1[1]" of "/layers/0/conv1[1]/0/conv+...". 0: top level. */
static size_t way(const nnc_node *n)
{
    size_t end = n->origin ? strcspn(n->origin, "+") : 0, slashes = 0;
    while (end > 0 && (n->origin[--end] != '/' || ++slashes < 2))
        continue;
    return end > strlen("/layers") ? end : 0;
}

static bool same_way(const nnc_node *a, const nnc_node *b)
{
    size_t n = way(a);
    return n > 0 && n == way(b) && !memcmp(a->origin, b->origin, n);
}

static void put_nodes(nnc_text *t, const nnc_graph *g, bool several)
{
    const nnc_node *open = NULL; /* node whose frame is open */
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (hidden(n))
            continue;
        if (open && !same_way(open, n)) {
            nnc_puts(t, "}\n");
            open = NULL;
        }
        if (!open && way(n)) {
            open = n;
            nnc_printf(t,
                "subgraph cluster_l%u { style=\"rounded,dashed\"; color=\"#999999\"; "
                "label=\"",
                i);
            put_escaped(t, n->origin, way(n));
            nnc_puts(t, "\";\n");
        }
        if (n->body)
            put_kernel(t, g, i, several);
        else
            put_box(t, g, i, g, NULL, 0, several);
    }
    nnc_puts(t, open ? "}\n" : "");
}

/* ---- edges ------------------------------------------------------------------------------------------- */

/* user: the node at its end; NULL: an output, on any device. */
static void put_memory_edge(
    nnc_text *t, const nnc_graph *g, nnc_ref r, const char *to, const nnc_node *user)
{
    int64_t bytes = nnc_type_bytes(nnc_typeof(g, r));
    const bool cut = user && device_of(user) != device_of(maker(g, r));
    put_maker(t, g, r);
    nnc_printf(t, " -> %s [label=\" ", to);
    nnc_put_bytes(t, bytes);
    if (cut)
        nnc_puts(t, "\", style=bold, color=\"#b3261e\", fontcolor=\"#b3261e\", fontsize=11, "
                    "penwidth=4];\n");
    else
        nnc_printf(t, "\", penwidth=%.1f];\n", fmax(0.7, fmin(5, log2((double)bytes + 1) / 4 - 2)));
}

static void put_body_edges(nnc_text *t, const nnc_graph *g, uint32_t i)
{
    const nnc_node *n = &g->node[i];
    const nnc_graph *b = n->body;
    char to[64];
    for (uint32_t k = 0; k < b->n_node; k++)
        for (int j = 0; j < b->node[k].n_in; j++) {
            nnc_ref r = b->node[k].in[j];
            const nnc_node *m = maker(b, r);
            snprintf(to, sizeof to, "n%u_%u", i, k);
            if (m->op != OP_input && !hidden(m)) {
                nnc_printf(t, "n%u_%u -> %s [style=dotted];\n", i, b->value[r].node, to);
                continue;
            }
            nnc_ref outer = m->op == OP_input ? n->in[operand_of(b, b->value[r].node)] : 0;
            if (m->op == OP_input && !hidden(maker(g, outer)))
                put_memory_edge(t, g, outer, to, n);
        }
}

static void put_edges(nnc_text *t, const nnc_graph *g)
{
    char to[64];
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->body) {
            put_body_edges(t, g, i);
            continue;
        }
        snprintf(to, sizeof to, "n%u", i);
        for (int k = 0; k < n->n_in; k++)
            if (!hidden(maker(g, n->in[k])))
                put_memory_edge(t, g, n->in[k], to, n);
    }
}

static void put_devices(nnc_text *t, int n)
{
    nnc_puts(t, "subgraph cluster_devices { label=\"devices\"; style=\"rounded\"; "
                "color=\"#999999\";\n");
    for (int d = 0; d < n; d++)
        nnc_printf(t, "device%d [fillcolor=\"%s\", label=\"device %d\"];\n", d,
            device_colours[(size_t)d % NNC_COUNT(device_colours)], d);
    nnc_puts(t, "{ rank=same; "); /* side by side, in order */
    for (int d = 0; d < n; d++)
        nnc_printf(t, "%sdevice%d", d ? " -> " : "", d);
    nnc_puts(t, " [style=invis] }\n}\n");
}

void nnc_graph_dot(nnc_text *t, const nnc_graph *g)
{
    enum { MOST_LISTED = 16 };
    const int n_device = nnc_graph_devices(g);
    char to[64];
    nnc_puts(t, "digraph \"");
    put_escaped(t, g->name, strlen(g->name));
    nnc_puts(t,
        "\" {\n"
        "node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11, "
        "height=0.3, color=\"#666666\"];\n"
        "edge [fontname=\"Helvetica\", fontsize=9, color=\"#444444\", fontcolor=\"#444444\", "
        "arrowsize=0.6];\n"
        "graph [fontname=\"Helvetica\", fontsize=10, fontcolor=\"#666666\", nodesep=0.25, "
        "ranksep=0.3, labeljust=l];\n");
    if (n_device > 1 && n_device <= MOST_LISTED)
        put_devices(t, n_device);
    put_nodes(t, g, n_device > 1);
    for (uint32_t i = 0; i < g->n_output; i++) {
        const char *state =
            g->output_state[i] == NNC_NONE ? NULL : g->value[g->output_state[i]].name;
        bool update = g->output_state[i] != NNC_NONE;
        nnc_printf(t, "out%u [fillcolor=\"#d9ead3\", label=\"%s ", i, update ? "update" : "output");
        if (state)
            put_escaped(t, state, strlen(state));
        if (g->output_name[i])
            put_escaped(t, g->output_name[i], strlen(g->output_name[i]));
        nnc_puts(t, "\"];\n");
    }
    put_edges(t, g);
    for (uint32_t i = 0; i < g->n_output; i++) {
        snprintf(to, sizeof to, "out%u", i);
        if (!hidden(maker(g, g->output[i])))
            put_memory_edge(t, g, g->output[i], to, NULL);
    }
    nnc_puts(t, "}\n");
}
