/* onnx/export.c -- writes a graph as an ONNX model. Nodes have the paths of the user's layers as names; a fused node is a function of the
 * model, named after its layers. Memory orders are left out: the model has the logical shapes. */
#include "onnx/export.h"
#include <ctype.h>
#include <string.h>

enum { OPSET = 21, IR_VERSION = 10 };
#define DOMAIN "nnc"

/* ---- nodes ----------------------------------------------------------------------------------- */

void op_in(op_node *o, const char *name)
{
    op_text(&o->t, NODE_input, name);
}

op_node op_begin_of(exporter *x, const char *op, size_t n, const char *const *in)
{
    op_node o = op_begin(x, op);
    for (size_t i = 0; i < n; i++)
        op_in(&o, in[i]);
    return o;
}

op_node op_begin_all(exporter *x, const char *op)
{
    op_node o = op_begin(x, op);
    for (int i = 0; i < x->n->n_in; i++)
        op_in(&o, op_operand(x, i));
    return o;
}

static nnc_text attribute(const char *name, int type)
{
    nnc_text a = {0};
    op_text(&a, ATTR_name, name);
    op_int(&a, ATTR_type, type);
    return a;
}

static void put_attribute(op_node *o, nnc_text *a)
{
    op_message(&o->t, NODE_attribute, a);
    nnc_text_deinit(a);
}

void op_attr_int(op_node *o, const char *name, int64_t v)
{
    nnc_text a = attribute(name, OXA_int);
    op_int(&a, ATTR_i, v);
    put_attribute(o, &a);
}

static void attr_float(op_node *o, const char *name, double v)
{
    nnc_text a = attribute(name, OXA_float);
    op_float(&a, ATTR_f, (float)v);
    put_attribute(o, &a);
}

void op_attr_ints(op_node *o, const char *name, int n, const int64_t *v)
{
    nnc_text a = attribute(name, OXA_ints);
    for (int i = 0; i < n; i++)
        op_int(&a, ATTR_ints, v[i]);
    put_attribute(o, &a);
}

void op_attr_text(op_node *o, const char *name, const char *v)
{
    nnc_text a = attribute(name, OXA_string);
    op_text(&a, ATTR_s, v);
    put_attribute(o, &a);
}

void op_attr_words(op_node *o, const char *name, const char *v)
{
    nnc_text a = attribute(name, OXA_strings);
    op_text(&a, ATTR_strings, v);
    put_attribute(o, &a);
}

static void put_attr(op_node *o, const char *name, const char *key, const char *dflt)
{
    const nnc_node *n = o->x->n;
    const int64_t *v;
    nnc_akey k = AT_axis;
    const bool known = nnc_attr_parse(key, strlen(key), &k);
    const nnc_attr *a = known ? nnc_attr_find(n, k) : NULL;
    const int kind = known ? nnc_attrs[k].kind : AK_int,
              count = kind == AK_ints ? nnc_attr_ints(n, k, &v) : 0;
    if (kind == AK_ints && (count || dflt))
        op_attr_ints(o, name, count, v);
    else if (kind == AK_float && (a || dflt))
        attr_float(o, name, a ? a->f : nnc_strtod(dflt, NULL));
    else if (kind == AK_word && (a || dflt))
        op_attr_text(o, name, a ? a->word : dflt);
    else if (a ? a->i || dflt : dflt && kind == AK_int)
        op_attr_int(o, name, a ? a->i : *dflt - '0');
}

void op_attrs(op_node *o, const char *list)
{
    while (*list) {
        char word[64];
        const size_t n = strcspn(list, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, list);
        list += n + strspn(list + n, " ");
        char *dflt = strchr(word, '='), *key = strchr(word, ':');
        if (dflt)
            *dflt++ = 0;
        if (key)
            *key++ = 0;
        put_attr(o, word, key ? key : word, dflt);
    }
}

/* True the first time that a node of this layer is named. */
static bool is_first(exporter *x, const char *path)
{
    const uint64_t h = nnc_hash64(path, strlen(path), 0) | 1;
    size_t i = h % x->n_seen;
    while (x->seen[i] && x->seen[i] != h)
        i = (i + 1) % x->n_seen;
    const bool first = !x->seen[i];
    x->seen[i] = h;
    return first;
}

/* The layer's path; further nodes of the same layer have their operator and a number after it, since names are unique. */
static void put_name(exporter *x, nnc_text *t, const char *op)
{
    nnc_text name = {0};
    const char *path = x->n->origin ? x->n->origin : nnc_ops[x->n->op].name;
    nnc_puts(&name, path);
    if (x->helpers++ || !is_first(x, path))
        nnc_printf(&name, "/%s_%d", op, ++*x->serial);
    op_message(t, NODE_name, &name);
    nnc_text_deinit(&name);
}

static void write_node(exporter *x, nnc_text *t, const char *op)
{
    put_name(x, t, op);
    op_text(t, NODE_op, op);
    op_message(x->nodes, x->field, t);
    nnc_text_deinit(t);
}

/* Writes the node that op_end has kept. */
static void flush(exporter *x)
{
    if (x->last_name) {
        op_text(&x->last, NODE_output, x->last_name);
        write_node(x, &x->last, x->last_op);
        x->last_name = NULL;
    }
}

static const char *own_name(op_node *o)
{
    const char *name = nnc_arena_printf(o->x->a, "nnc:%s:%d", o->op, ++*o->x->serial);
    o->x->nodes->oom |= !name;
    return name ? name : "";
}

const char *op_end(op_node *o)
{
    exporter *x = o->x;
    const char *name = own_name(o);
    flush(x);
    x->last = o->t;
    x->last_op = o->op;
    x->last_name = name;
    return name;
}

void op_outputs(op_node *o, int n, const char **out)
{
    flush(o->x);
    for (int i = 0; i < n; i++) {
        out[i] = own_name(o);
        op_text(&o->t, NODE_output, out[i]);
    }
    write_node(o->x, &o->t, o->op);
}

void op_results(op_node *o)
{
    const nnc_node *n = o->x->n;
    flush(o->x);
    for (uint16_t i = 0; i < n->n_out; i++)
        op_text(&o->t, NODE_output, o->x->name[n->out + i]);
    write_node(o->x, &o->t, o->op);
}

const char *op_1(exporter *x, const char *op, const char *a)
{
    op_node o = OP_OF(x, op, a);
    return op_end(&o);
}

const char *op_2(exporter *x, const char *op, const char *a, const char *b)
{
    op_node o = OP_OF(x, op, a, b);
    return op_end(&o);
}

void op_give(exporter *x, int i, const char *a)
{
    op_node o;
    if (a != x->last_name) {
        o = OP_OF(x, "Identity", a);
        (void)op_end(&o);
    }
    x->last_name = x->name[x->n->out + (nnc_ref)i]; /* nothing has read it yet */
    flush(x);
}

const char *op_cast(exporter *x, const char *a, nnc_dtype to)
{
    op_node o = OP_OF(x, "Cast", a);
    op_attr_int(&o, "to", ox_code(to));
    return op_end(&o);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static op_node constant(exporter *x, const nnc_type *type, const void *data)
{
    nnc_text a = attribute("value", OXA_tensor);
    NNC_LOCAL(nnc_text) t = {0};
    op_node o = op_begin(x, "Constant");
    op_tensor_head(&t, type, NULL);
    op_bytes(&t, TENSOR_raw, data, (size_t)nnc_type_bytes(type));
    op_message(&a, ATTR_t, &t);
    put_attribute(&o, &a);
    return o;
}

const char *op_numbers(exporter *x, nnc_dtype d, int n, const double *v, bool scalar)
{
    const int64_t dim = n;
    const nnc_type type = nnc_type_make(d, scalar ? 0 : 1, &dim);
    NNC_FREED void *data = nnc_malloc((size_t)n * 8 + 1);
    if (!data) {
        x->nodes->oom = true;
        return "";
    }
    for (int i = 0; i < n; i++)
        if (nnc_is_float(d))
            nnc_set_f64(d, data, i, v[i]);
        else
            nnc_set_i64(d, data, i, (int64_t)v[i]);
    op_node o = constant(x, &type, data);
    return op_end(&o);
}

const char *op_list(exporter *x, int n, const int64_t *v)
{
    const int64_t dim = n;
    const nnc_type type = nnc_type_make(DT_i64, 1, &dim);
    op_node o = constant(x, &type, v);
    return op_end(&o);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

typedef struct model { /* what all parts of the model share */
    nnc_arena a;
    nnc_sink *sink;
    nnc_text functions, refused;
    int serial;
    op_weights weights;
    nnc_text *out;
} model;

/* A name for a value that none of the graph's ports has. */
static const char *free_name(model *m, const nnc_graph *g, const char *name)
{
    bool taken = !*name;
    for (uint32_t i = 0; i < g->n_node && !taken; i++)
        if (g->node[i].op == OP_input)
            taken = g->value[g->node[i].out].name && !strcmp(g->value[g->node[i].out].name, name);
    for (uint32_t i = 0; i < g->n_output && !taken; i++)
        taken = g->output_name[i] && !strcmp(g->output_name[i], name);
    return taken ? nnc_arena_printf(&m->a, "%s_%d", name, ++m->serial) : name;
}

/* Names of all values: inputs and outputs have their own. */
static bool set_names(model *m, exporter *x)
{
    const nnc_graph *g = x->g;
    x->name = ARENA_NEW(&m->a, const char *, g->n_value + 1);
    x->n_seen = 2 * (size_t)g->n_node + 1;
    x->seen = ARENA_NEW(&m->a, uint64_t, x->n_seen);
    for (uint32_t i = 0; x->name && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        for (uint32_t k = 0; k < n->n_out; k++) {
            const nnc_ref r = n->out + k;
            const char *name = n->weight && n->weight->name ? n->weight->name : g->value[r].name;
            if (n->op != OP_input || !name)
                name = free_name(m, g, name ? name : "");
            if (!name)
                return false;
            x->name[r] = *name ? name : "_";
        }
    }
    for (uint32_t i = 0; x->name && i < nnc_result_outputs(g); i++) {
        const nnc_node *n = nnc_def(g, g->output[i]);
        if (nnc_op_class(n->op) != CL_leaf && g->output_name[i])
            x->name[g->output[i]] = g->output_name[i];
    }
    return x->name && x->seen;
}

/* Counting along a dimension, and numbers, as nodes: functions hold no initializers. */
static void write_leaf(exporter *x)
{
    const nnc_type *t = op_type(x);
    if (x->n->op == OP_constant) {
        op_node o = constant(x, t, x->n->weight->data);
        op_results(&o);
        return;
    }
    const int dim = (int)nnc_attr_int(x->n, AT_dim, 0);
    const nnc_dtype d = t->dtype;
    int64_t along[NNC_MAX_RANK];
    op_node o = op_begin(x, "Range");
    op_in(&o, op_scalar(x, DT_i64, 0));
    op_in(&o, op_scalar(x, DT_i64, t->rank ? (double)t->dim[dim] : 1));
    op_in(&o, op_scalar(x, DT_i64, 1));
    for (int i = 0; i < t->rank; i++)
        along[i] = i == dim ? t->dim[i] : 1;
    const char *v = op_cast(x, op_end(&o), d);
    v = op_2(x, "Reshape", v, op_list(x, t->rank, along));
    op_give(x, 0, op_2(x, "Expand", v, op_list(x, t->rank, t->dim)));
}

static nnc_status write_function(model *m, const nnc_node *n, char *name);

static nnc_status write_fused(model *m, exporter *x)
{
    char name[128];
    NNC_TRY(write_function(m, x->n, name));
    op_node o = op_begin_all(x, name);
    op_text(&o.t, NODE_domain, DOMAIN);
    if (x->n->origin)
        op_text(&o.t, NODE_doc, x->n->origin);
    op_results(&o);
    return NNC_OK;
}

static void refuse(exporter *x)
{
    NNC_LOCAL(nnc_text) type = {0};
    nnc_put_type(&type, x->n->n_in ? op_type_in(x, 0) : op_type(x));
    nnc_printf(x->refused, "\n  %s of %s%s%s", nnc_ops[x->n->op].name, nnc_text_str(&type),
        x->n->origin ? ", " : "", x->n->origin ? x->n->origin : "");
}

static nnc_status write_nodes(model *m, exporter *x)
{
    const nnc_graph *g = x->g;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = x->n = &g->node[i];
        x->helpers = 0;
        if (n->op == OP_input || n->op == OP_param || op_absorbed(x, n))
            continue;
        if (n->op == OP_fused)
            NNC_TRY(write_fused(m, x));
        else if (nnc_op_class(n->op) == CL_leaf)
            write_leaf(x);
        else if (!op_write(x))
            refuse(x);
        flush(x);
    }
    return x->nodes->oom ? nnc_nomem(m->sink) : NNC_OK;
}

/* Outputs that are inputs, weights, or a value that another output has already. */
static void write_copies(exporter *x)
{
    for (uint32_t i = 0; i < nnc_result_outputs(x->g); i++) {
        const nnc_ref r = x->g->output[i];
        const char *name = x->g->output_name[i];
        if (!name || !strcmp(name, x->name[r]))
            continue;
        nnc_text t = {0};
        op_text(&t, NODE_input, x->name[r]);
        op_text(&t, NODE_output, name);
        op_text(&t, NODE_op, "Identity");
        op_message(x->nodes, x->field, &t);
        nnc_text_deinit(&t);
    }
}

/* An identifier of the last names of the layers' paths, and a number. */
static void function_name(model *m, const nnc_node *n, char name[128])
{
    size_t k = 0;
    const char *word = n->origin ? n->origin : "fused";
    for (const char *p = word; *p && k < 90; p++) {
        if (*p == '/')
            while (k > 0 && name[k - 1] != '.')
                k--;
        else
            name[k++] = isalnum((unsigned char)*p) ? *p : *p == '+' ? '.' : '_';
    }
    for (size_t i = 0; i < k; i++)
        if (name[i] == '.')
            name[i] = '_';
    snprintf(name + k, 128 - k, "_%d", ++m->serial);
}

static void put_opset(nnc_text *t, uint32_t field, const char *domain, int64_t version)
{
    NNC_LOCAL(nnc_text) s = {0};
    op_text(&s, OPSET_domain, domain);
    op_int(&s, OPSET_version, version);
    op_message(t, field, &s);
}

static nnc_status write_function(model *m, const nnc_node *n, char *name)
{
    const nnc_graph *g = n->body;
    NNC_LOCAL(nnc_text) f = {0};
    exporter x = {.g = g,
        .a = &m->a,
        .sink = m->sink,
        .nodes = &f,
        .field = FUNCTION_node,
        .serial = &m->serial,
        .refused = &m->refused};
    function_name(m, n, name);
    NNC_NEED(set_names(m, &x), m->sink);
    op_text(&f, FUNCTION_name, name);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input)
            op_text(&f, FUNCTION_input, x.name[g->node[i].out]);
    NNC_TRY(write_nodes(m, &x));
    for (uint32_t i = 0; i < g->n_output; i++) {
        const nnc_ref r = g->output[i];
        const char *out = x.name[r];
        bool again = nnc_def(g, r)->op == OP_input;
        for (uint32_t k = 0; k < i; k++)
            again |= g->output[k] == r;
        if (again) { /* results have names of their own */
            x.n = nnc_def(g, r);
            x.helpers = 1;
            out = op_1(&x, "Identity", out);
            flush(&x);
        }
        op_text(&f, FUNCTION_output, out);
    }
    if (n->origin)
        op_text(&f, FUNCTION_doc, n->origin);
    put_opset(&f, FUNCTION_opset, "", OPSET);
    op_text(&f, FUNCTION_domain, DOMAIN);
    op_message(&m->functions, MODEL_functions, &f);
    return m->functions.oom ? nnc_nomem(m->sink) : NNC_OK;
}

static void put_port(nnc_text *t, uint32_t field, const char *name, const nnc_type *type)
{
    NNC_LOCAL(nnc_text) port = {0};
    NNC_LOCAL(nnc_text) any = {0};
    NNC_LOCAL(nnc_text) tensor = {0};
    NNC_LOCAL(nnc_text) shape = {0};
    for (int i = 0; i < type->rank; i++) {
        NNC_LOCAL(nnc_text) dim = {0};
        op_int(&dim, DIM_value, type->dim[i]);
        op_message(&shape, SHAPE_dim, &dim);
    }
    op_int(&tensor, TENSOR_TYPE_element, ox_code(type->dtype));
    op_message(&tensor, TENSOR_TYPE_shape, &shape);
    op_message(&any, TYPE_tensor, &tensor);
    op_text(&port, PORT_name, name);
    op_message(&port, PORT_type, &any);
    op_message(t, field, &port);
}

void op_attr_product(op_node *o, const char *name, const nnc_type *type, bool before)
{
    static const char *const port[4] = {"state", "term", "product", "result"};
    nnc_text a = attribute(name, OXA_graph);
    NNC_LOCAL(nnc_text) g = {0};
    for (int i = 0; i < 2; i++) { /* product = state term; result = product, or state */
        NNC_LOCAL(nnc_text) t = {0};
        op_text(&t, NODE_input, port[i && !before ? 2 : 0]);
        if (i == 0)
            op_text(&t, NODE_input, port[1]);
        op_text(&t, NODE_output, port[2 + i]);
        op_text(&t, NODE_op, i ? "Identity" : "Mul");
        op_message(&g, GRAPH_node, &t);
    }
    op_text(&g, GRAPH_name, name);
    for (int i = 0; i < 4; i++)
        put_port(&g, i < 2 ? GRAPH_input : GRAPH_output, port[i], type);
    op_message(&a, ATTR_g, &g);
    put_attribute(o, &a);
}

static nnc_status write_graph(model *m, exporter *x, nnc_text *t)
{
    const nnc_graph *g = x->g;
    op_text(t, GRAPH_name, g->name && *g->name ? g->name : "model");
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input)
            put_port(t, GRAPH_input, x->name[g->node[i].out], nnc_typeof(g, g->node[i].out));
    for (uint32_t i = 0; i < nnc_result_outputs(g); i++)
        put_port(t, GRAPH_output, g->output_name[i] ? g->output_name[i] : x->name[g->output[i]],
            nnc_typeof(g, g->output[i]));
    for (uint32_t i = 0; i < g->n_empty; i++) { /* an initializer */
        NNC_LOCAL(nnc_text) none = {0};
        put_port(t, GRAPH_output, g->empty[i].name, &g->empty[i].type);
        op_tensor_head(&none, &g->empty[i].type, g->empty[i].name);
        op_bytes(&none, TENSOR_raw, "", 0);
        op_message(t, GRAPH_initializer, &none);
    }
    NNC_TRY(write_nodes(m, x));
    write_copies(x);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param)
            NNC_TRY(op_put_weight(&m->weights, &g->node[i], x->name[g->node[i].out], t));
    return t->oom ? nnc_nomem(m->sink) : NNC_OK;
}

static nnc_status write_model(
    model *m, const nnc_graph *g, const nnc_onnx_place *place, nnc_text *out)
{
    NNC_LOCAL(nnc_text) graph = {0};
    exporter x = {.g = g,
        .a = &m->a,
        .sink = m->sink,
        .nodes = &graph,
        .field = GRAPH_node,
        .serial = &m->serial,
        .refused = &m->refused};
    NNC_TRY(op_weights_begin(&m->weights, g, place, m->sink));
    NNC_NEED(set_names(m, &x), m->sink);
    NNC_TRY(write_graph(m, &x, &graph));
    if (m->refused.n)
        return nnc_fail0(m->sink, NNC_E_MODEL, "these nodes cannot be written as ONNX:%s",
            nnc_text_str(&m->refused));
    op_int(out, MODEL_ir_version, IR_VERSION);
    op_text(out, MODEL_producer, "nnc");
    op_text(out, MODEL_version, NNC_VERSION);
    op_message(out, MODEL_graph, &graph);
    put_opset(out, MODEL_opset, "", OPSET);
    if (m->functions.n)
        put_opset(out, MODEL_opset, DOMAIN, 1);
    nnc_putn(out, nnc_text_str(&m->functions), m->functions.n);
    return out->oom ? nnc_nomem(m->sink) : op_weights_end(&m->weights);
}

nnc_status nnc_onnx_export(
    const nnc_graph *g, const nnc_onnx_place *place, nnc_text *out, nnc_sink *sink)
{
    model m = {.sink = sink};
    nnc_status st = write_model(&m, g, place, out);
    nnc_weight_files_deinit(&m.weights.files);
    nnc_text_deinit(&m.functions);
    nnc_text_deinit(&m.refused);
    nnc_arena_deinit(&m.a);
    return st;
}
