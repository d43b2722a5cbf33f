/* tests/onnx/writer.c -- see writer.h. */
#include "writer.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void pb_varint(nnc_text *t, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        nnc_putc(t, (char)(v | 0x80));
    nnc_putc(t, (char)v);
}

static void key(nnc_text *t, int field, int kind)
{
    pb_varint(t, (uint64_t)field << 3 | (uint64_t)kind);
}

void pb_int(nnc_text *t, int field, int64_t v)
{
    key(t, field, 0);
    pb_varint(t, (uint64_t)v);
}

void pb_float(nnc_text *t, int field, float v)
{
    key(t, field, 5);
    nnc_putn(t, (const char *)&v, 4);
}

void pb_bytes(nnc_text *t, int field, const void *p, size_t n)
{
    key(t, field, 2);
    pb_varint(t, n);
    if (n)
        nnc_putn(t, p, n);
}

void pb_str(nnc_text *t, int field, const char *s)
{
    pb_bytes(t, field, s, strlen(s));
}

void pb_msg(nnc_text *t, int field, nnc_text *m)
{
    pb_bytes(t, field, nnc_text_str(m), m->n);
    nnc_text_deinit(m);
    *m = (nnc_text){0};
}

void om_deinit(om *m)
{
    nnc_text_deinit(&m->graph);
    nnc_text_deinit(&m->rest);
}

/* The next word of *p, up to a blank; NULL at the end. */
static const char *word(const char **p, char to[128])
{
    *p += strspn(*p, " ");
    size_t n = strcspn(*p, " ");
    snprintf(to, 128, "%.*s", (int)n, *p);
    *p += n;
    return n ? to : NULL;
}

static bool is_number(const char *s)
{
    return (*s >= '0' && *s <= '9') || *s == '-';
}

void om_port(nnc_text *t, int field, const char *name, int code, const char *dims)
{
    nnc_text shape = {0}, tensor = {0}, type = {0}, port = {0}, dim = {0};
    char w[128];
    for (const char *p = dims; p && word(&p, w);) {
        if (is_number(w))
            pb_int(&dim, 1, strtoll(w, NULL, 10));
        else if (*w != '?')
            pb_str(&dim, 2, w);
        pb_msg(&shape, 1, &dim);
    }
    pb_int(&tensor, 1, code);
    if (dims)
        pb_msg(&tensor, 2, &shape);
    pb_msg(&type, 1, &tensor);
    pb_str(&port, 1, name);
    pb_msg(&port, 2, &type);
    pb_msg(t, field, &port);
}

void om_input(om *m, const char *name, int code, const char *dims)
{
    om_port(&m->graph, 11, name, code, dims);
}

void om_output(om *m, const char *name)
{
    om_port(&m->graph, 12, name, OM_F32, NULL);
}

void om_tensor(
    nnc_text *t, const char *name, int code, const char *dims, const void *data, size_t bytes)
{
    char w[128];
    for (const char *p = dims; word(&p, w);)
        pb_int(t, 1, strtoll(w, NULL, 10));
    pb_int(t, 2, code);
    pb_str(t, 8, name);
    pb_bytes(t, 9, data, bytes);
}

void om_floats(om *m, const char *name, const char *dims, float scale)
{
    nnc_text t = {0};
    char w[128];
    int64_t n = 1;
    for (const char *p = dims; word(&p, w);)
        n *= strtoll(w, NULL, 10);
    float *v = nnc_malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; v && i < n; i++)
        v[i] = scale * (float)(i % 7) * (i % 2 ? 1 : -1);
    om_tensor(&t, name, OM_F32, dims, v, (size_t)n * sizeof *v);
    pb_msg(&m->graph, 5, &t);
    nnc_free(v);
}

void om_ints(om *m, const char *name, int n, const int64_t *v)
{
    nnc_text t = {0};
    char dims[16];
    snprintf(dims, sizeof dims, "%d", n);
    om_tensor(&t, name, OM_I64, dims, v, (size_t)n * sizeof *v);
    pb_msg(&m->graph, 5, &t);
}

/* Behind the number from v to end in a list; the end of the list if there is none. */
static const char *after(const char *v, const char *end)
{
    CHECK(end > v);
    return end > v ? end + (*end == ',') : "";
}

/* One attribute, "name=value". */
static void put_attr(nnc_text *node, const char *w)
{
    nnc_text a = {0};
    char *end;
    const char *v = strchr(w, '=') + 1;
    pb_bytes(&a, 1, w, (size_t)(v - 1 - w));
    const bool list = *v == '[' || strchr(v, ','), real = strchr(v, '.') != NULL;
    const size_t quote = *v == '\'';
    if (quote || (*v != '[' && v[strspn(v, "0123456789.,+-e")])) { /* a word */
        pb_bytes(&a, 4, v + quote, strlen(v) - 2 * quote);
        pb_int(&a, 20, 3);
    } else if (!strncmp(v, "['", 2)) { /* words */
        for (v += 2; *v; v += strspn(v, "',]")) {
            size_t n = strcspn(v, "'");
            pb_bytes(&a, 9, v, n);
            v += n;
        }
        pb_int(&a, 20, 8);
    } else if (real && *v == '[') {
        for (v++; *v && *v != ']';) {
            pb_float(&a, 7, strtof(v, &end));
            v = after(v, end);
        }
        pb_int(&a, 20, 6);
    } else if (real) {
        pb_float(&a, 2, (float)nnc_strtod(v, NULL));
        pb_int(&a, 20, 1);
    } else if (!list) {
        pb_int(&a, 3, strtoll(v, NULL, 10));
        pb_int(&a, 20, 2);
    } else {
        nnc_text numbers = {0};
        for (v += *v == '['; *v && *v != ']';) {
            pb_varint(&numbers, (uint64_t)strtoll(v, &end, 10));
            v = after(v, end);
        }
        pb_msg(&a, 8, &numbers);
        pb_int(&a, 20, 7);
    }
    pb_msg(node, 5, &a);
}

void om_put_node(nnc_text *graph, int field, const char *op, const char *domain, const char *in,
    const char *out, const char *attrs)
{
    nnc_text n = {0};
    char w[128];
    for (const char *p = in; word(&p, w);)
        pb_str(&n, 1, strcmp(w, "-") ? w : "");
    for (const char *p = out; word(&p, w);)
        pb_str(&n, 2, strcmp(w, "-") ? w : "");
    pb_str(&n, 3, out);
    pb_str(&n, 4, op);
    for (const char *p = attrs; word(&p, w);)
        put_attr(&n, w);
    if (*domain)
        pb_str(&n, 7, domain);
    pb_msg(graph, field, &n);
}

void om_node(om *m, const char *op, const char *in, const char *out, const char *attrs)
{
    om_put_node(&m->graph, 1, op, "", in, out, attrs);
}

void om_put(om *m, nnc_text *out)
{
    nnc_text opset = {0};
    pb_int(out, 1, 8);
    if (m->domain)
        pb_str(&opset, 1, m->domain);
    pb_int(&opset, 2, m->opset ? m->opset : 17);
    pb_msg(out, 8, &opset);
    pb_msg(out, 7, &m->graph);
    nnc_putn(out, nnc_text_str(&m->rest), m->rest.n);
    nnc_text_deinit(&m->rest);
}

nnc_graph *om_parse_bytes(const void *data, size_t n, const nnc_onnx_options *o)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (n + page - 1) / page * page;
    char *p = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && mprotect(p + whole, page, PROT_NONE) == 0);
    if (n)
        memcpy(p + whole - n, data, n);
    nnc_graph *g = nnc_onnx_parse("m.onnx", p + whole - n, n, o, test_sink);
    munmap(p, whole + page);
    return g;
}

nnc_graph *om_parse(om *m, const nnc_onnx_options *o)
{
    nnc_text t = {0};
    om_put(m, &t);
    nnc_graph *g = om_parse_bytes(nnc_text_str(&t), t.n, o);
    nnc_text_deinit(&t);
    return g;
}

void om_check(nnc_graph *g, const char *const *want)
{
    NNC_LOCAL(nnc_text) t = {0};
    if (!g) {
        test_fail(__FILE__, __LINE__, "rejected");
        nnc_sink_print(test_sink, stderr);
        return;
    }
    CHECK_OK(nnc_verify(g, test_sink));
    nnc_graph_print(&t, g);
    for (; *want; want++) {
        bool no = **want == '!';
        if (!strstr(nnc_text_str(&t), *want + no) != no)
            test_fail(__FILE__, __LINE__, "%s: %s\n%s", no ? "unexpected" : "missing", *want + no,
                nnc_text_str(&t));
    }
    nnc_graph_destroy(g);
}
