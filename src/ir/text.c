/* ir/text.c -- prints a graph in the text form of docs/graph-ir.md, which parse.c reads back. parse(print(g)) prints the same text, and
 * every number in it is exact. */
#include "ir/graph.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Inline data of up to this many elements is a list; more is a splat or hex. */
#define LIST_MAX 64

static void put_ref(nnc_text *t, const nnc_graph *g, nnc_ref r)
{
    const char *name = r < g->n_value ? g->value[r].name : NULL;
    const char *word = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789";
    nnc_puts(t, "%");
    if (!name)
        nnc_printf(t, "%u", r);
    else if (name[strspn(name, word)] || *name == '.' || (*name >= '0' && *name <= '9'))
        nnc_put_json_string(t, name);
    else
        nnc_puts(t, name);
}

static void put_refs(nnc_text *t, const nnc_graph *g, int n, const nnc_ref *r)
{
    for (int i = 0; i < n; i++) {
        nnc_puts(t, i ? ", " : " ");
        put_ref(t, g, r[i]);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Element i in the fewest digits that read back (through a double) to the same bytes. False: impossible (a NaN with a payload, a bool that
 * is not 0 or 1). */
static bool element_text(nnc_dtype d, const void *p, int64_t i, char *buf, size_t cap)
{
    int size = nnc_dtype_size(d);
    const char *want = (const char *)p + i * size;
    uint64_t back = 0;
    if (!nnc_is_float(d)) {
        int64_t v = nnc_get_i64(d, p, i);
        snprintf(buf, cap, "%" PRId64, v);
        nnc_set_i64(d, &back, 0, v);
        return !memcmp(&back, want, (size_t)size);
    }
    double v = nnc_get_f64(d, p, i);
    if (v == rint(v) && fabs(v) < 1e6) { /* 65504, not 6.55e+04 */
        snprintf(buf, cap, "%.0f", v);
        return true;
    }
    for (int digits = 1; digits <= 17; digits++) {
        nnc_snprintf(buf, cap, "%.*g", digits, v);
        nnc_set_f64(d, &back, 0, nnc_strtod(buf, NULL));
        if (!memcmp(&back, want, (size_t)size))
            return true;
    }
    return false;
}

static bool all_readable(const nnc_type *t, const void *data, int64_t n)
{
    char buf[40];
    for (int64_t i = 0; i < n; i++)
        if (!element_text(t->dtype, data, i, buf, sizeof buf))
            return false;
    return true;
}

static void put_data(nnc_text *t, const nnc_type *type, const void *data)
{
    int64_t n = nnc_type_numel(type), size = nnc_dtype_size(type->dtype);
    bool splat = n > 1 && !memcmp(data, (const char *)data + size, (size_t)((n - 1) * size));
    bool list = n <= LIST_MAX;
    char buf[40];
    if (!(splat || list) || !all_readable(type, data, splat ? 1 : n)) {
        nnc_puts(t, "hex ");
        nnc_put_hex(t, data, n * size);
        return;
    }
    if (splat) {
        element_text(type->dtype, data, 0, buf, sizeof buf);
        nnc_printf(t, "splat %s", buf);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        element_text(type->dtype, data, i, buf, sizeof buf);
        nnc_printf(t, "%s%s", i ? ", " : "[", buf);
    }
    nnc_putc(t, ']');
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void put_float32(nnc_text *t, float v)
{
    char buf[40];
    element_text(DT_f32, &v, 0, buf, sizeof buf);
    nnc_puts(t, buf);
}

/* " part(first, run, stride)" of a weight that is a part of another one. */
static void put_part(nnc_text *t, const nnc_weight *w)
{
    if (w->n_part)
        nnc_printf(t, " part(%" PRId64 ", %" PRId64 ", %" PRId64 ")", w->part.first, w->part.run,
            w->part.stride);
}

static void put_weight(nnc_text *t, const nnc_type *type, const nnc_weight *w)
{
    nnc_puts(t, " = ");
    switch (w->kind) {
    case NNC_W_gen:
        nnc_puts(t, "gen(");
        nnc_put_json_string(t, w->name ? w->name : "");
        nnc_printf(t, ", seed=%" PRId64 ", scale=", (int64_t)w->seed);
        put_float32(t, w->scale);
        nnc_puts(t, ", shift=");
        put_float32(t, w->shift);
        nnc_putc(t, ')');
        put_part(t, w);
        return;
    case NNC_W_file:
        nnc_puts(t, "file(");
        nnc_put_json_string(t, w->file);
        if (w->name) {
            nnc_puts(t, ", name=");
            nnc_put_json_string(t, w->name);
        }
        nnc_printf(t, ", offset=%" PRId64 ", size=%" PRId64 ", hash=%" PRId64 ")", w->offset,
            w->size, (int64_t)w->header_hash);
        put_part(t, w);
        return;
    case NNC_W_inline:
        if (w->name) {
            nnc_puts(t, "name ");
            nnc_put_json_string(t, w->name);
            nnc_putc(t, ' ');
        }
        put_data(t, type, w->data);
        return;
    }
}

static void put_attr(nnc_text *t, const nnc_attr *a)
{
    nnc_printf(t, "%s=", nnc_attrs[a->key].name);
    switch (nnc_attrs[a->key].kind) {
    case AK_int:
    case AK_bool: nnc_printf(t, "%" PRId64, a->i); break;
    case AK_float: nnc_put_double(t, a->f); break;
    case AK_ints:
        for (int i = 0; i < a->n; i++)
            nnc_printf(t, "%s%" PRId64, i ? "," : "[", a->ints[i]);
        nnc_puts(t, a->n ? "]" : "[]");
        break;
    case AK_dtype: nnc_puts(t, nnc_dtype_name((nnc_dtype)a->i)); break;
    case AK_word: nnc_puts(t, a->word); break;
    }
}

static void put_body(nnc_text *t, const nnc_graph *g, int depth);

static void put_node(nnc_text *t, const nnc_graph *g, const nnc_node *n, int depth)
{
    nnc_printf(t, "%*s", 2 * depth, "");
    for (uint32_t i = 0; i < n->n_out; i++) {
        nnc_puts(t, i ? ", " : "");
        put_ref(t, g, n->out + i);
    }
    nnc_printf(t, " = %s", nnc_ops[n->op].name);
    put_refs(t, g, n->n_in, n->in);
    for (int i = 0; i < n->n_attr; i++) {
        nnc_puts(t, i ? ", " : " {");
        put_attr(t, &n->attr[i]);
    }
    nnc_puts(t, n->n_attr ? "}" : "");
    if (n->body) {
        nnc_puts(t, " {\n");
        put_body(t, n->body, depth + 1);
        nnc_printf(t, "%*s}", 2 * depth, "");
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        nnc_puts(t, i ? ", " : " : ");
        nnc_put_type(t, nnc_typeof(g, n->out + i));
    }
    if (n->weight)
        put_weight(t, nnc_typeof(g, n->out), n->weight);
    if (n->frozen)
        nnc_puts(t, " frozen");
    if (n->device >= 0)
        nnc_printf(t, " device %d", n->device);
    if (n->task >= 0)
        nnc_printf(t, " task %d", n->task);
    if (n->micro > 0)
        nnc_printf(t, " micro %d", n->micro);
    if (n->origin) {
        nnc_puts(t, " loc ");
        nnc_put_json_string(t, n->origin);
    }
    nnc_putc(t, '\n');
}

/* Nodes and return; shared by graphs and bodies of fused nodes. */
static void put_body(nnc_text *t, const nnc_graph *g, int depth)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        put_node(t, g, &g->node[i], depth);
    nnc_printf(t, "%*sreturn", 2 * depth, "");
    uint32_t n = nnc_result_outputs(g);
    for (uint32_t i = 0; i < n; i++) {
        nnc_puts(t, i ? ", " : " ");
        put_ref(t, g, g->output[i]);
        if (g->output_name[i]) {
            nnc_puts(t, " as ");
            nnc_put_json_string(t, g->output_name[i]);
        }
    }
    nnc_putc(t, '\n');
    for (uint32_t i = n; i < g->n_output; i++) {
        nnc_printf(t, "%*s%s ", 2 * depth, "",
            nnc_def(g, g->output_state[i])->accumulates ? "accumulate" : "update");
        put_ref(t, g, g->output_state[i]);
        nnc_puts(t, " <- ");
        put_ref(t, g, g->output[i]);
        nnc_putc(t, '\n');
    }
    for (uint32_t i = 0; i < g->n_empty; i++) {
        nnc_printf(t, "%*sempty ", 2 * depth, "");
        nnc_put_json_string(t, g->empty[i].name);
        nnc_printf(t, " %s", nnc_dtype_name(g->empty[i].type.dtype));
        for (int k = 0; k < g->empty[i].type.rank; k++)
            nnc_printf(t, " %lld", (long long)g->empty[i].type.dim[k]);
        nnc_putc(t, '\n');
    }
}

static bool is_word(const char *s)
{
    if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_'))
        return false;
    return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")] == 0;
}

void nnc_graph_print(nnc_text *t, const nnc_graph *g)
{
    nnc_puts(t, "graph @");
    if (is_word(g->name))
        nnc_puts(t, g->name);
    else
        nnc_put_json_string(t, g->name);
    nnc_puts(t, " {\n");
    put_body(t, g, 1);
    nnc_puts(t, "}\n");
}
