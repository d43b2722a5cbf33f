/* tests/ir/help.h -- small graphs from text, for the tests of this folder. */
#ifndef TESTS_IR_HELP_H
#define TESTS_IR_HELP_H

#include "ir/ir.h"
#include "test.h"

/* Parses a whole graph; NULL (reported in test_sink) when it is rejected. */
static inline nnc_graph *parse_text(const char *text)
{
    nnc_scan s;
    nnc_scan_init(&s, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    if (g && !nnc_scan_end(&s)) {
        (void)nnc_scan_fail(&s, test_sink, "the end");
        nnc_graph_destroy(g);
        return NULL;
    }
    return g;
}

/* "f32[2,3]; f32[3]" and "add" and " {..}": a graph of inputs %a, %b, ... and the node; results
 * %r0, %r1, ... are returned. */
static inline void node_text(
    nnc_text *t, const char *inputs, const char *op, const char *attrs, int results)
{
    int n = 0;
    nnc_puts(t, "graph @t {\n");
    for (const char *p = inputs; *p; n++) {
        size_t len = strcspn(p, ";");
        nnc_printf(t, "  %%%c = input : %.*s\n", 'a' + n, (int)len, p);
        p += len + (p[len] == ';');
    }
    for (int i = 0; i < results; i++)
        nnc_printf(t, "%s%%r%d", i ? ", " : "  ", i);
    nnc_printf(t, " = %s", op);
    for (int i = 0; i < n; i++)
        nnc_printf(t, "%s%%%c", i ? ", " : " ", 'a' + i);
    nnc_printf(t, " %s\n  return", attrs);
    for (int i = 0; i < results; i++)
        nnc_printf(t, "%s%%r%d", i ? ", " : " ", i);
    nnc_puts(t, "\n}\n");
}

static inline nnc_graph *parse_node_text(
    const char *inputs, const char *op, const char *attrs, int results)
{
    nnc_text t = {0};
    node_text(&t, inputs, op, attrs, results);
    nnc_graph *g = parse_text(nnc_text_str(&t));
    nnc_text_deinit(&t);
    return g;
}

#endif
