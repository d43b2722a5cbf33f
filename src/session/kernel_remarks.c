/* session/kernel_remarks.c -- simplifications that lowering made inside kernels, as remarks beside those of the passes. */
#include "session/session.h"
#include <string.h>

const nnc_pass_info nnc_kernel_remarks = {
    "kernels", 0, false, "simplifications inside kernels by value ranges"};

/* Splits "a+b+c" into a list. NULL: out of memory. */
static const char **split(nnc_arena *a, const char *layers, int *n)
{
    int most = 1;
    for (const char *s = layers; *s; s++)
        most += *s == '+';
    const char **at = ARENA_NEW(a, const char *, most);
    *n = 0;
    while (at && *layers) {
        size_t len = strcspn(layers, "+");
        if (len && !(at[(*n)++] = nnc_arena_strndup(a, layers, len)))
            return NULL;
        layers += len + (layers[len] == '+');
    }
    return at;
}

/* Adds one remark from a line "rule: reason". */
static bool add_remark(nnc_remarks *r, const char *layers, const char *line, size_t n)
{
    nnc_remark m = {.pass = nnc_kernel_remarks.name, .applied = true};
    const char *colon = memchr(line, ':', n);
    size_t rule = colon ? (size_t)(colon - line) : n, skip = colon ? rule + 2 : n;
    m.rule = nnc_arena_strndup(&r->arena, line, rule);
    m.reason = nnc_arena_strndup(&r->arena, line + skip, n - skip);
    m.layer = split(&r->arena, layers, &m.n_layers);
    return m.rule && m.reason && m.layer && nnc_remarks_add(r, &m);
}

void nnc_note_kernel(void *ctx, const nnc_kernel *k, const char *layers)
{
    nnc_kernel_remarker *n = ctx;
    for (const char *s = k->note; s && *s && !n->oom;) {
        size_t len = strcspn(s, "\n");
        n->oom = !add_remark(&n->a->remarks, layers, s, len);
        s += len + (s[len] == '\n');
    }
    if (n->o->on_kernel)
        n->o->on_kernel(n->o->ctx, k, layers);
}
