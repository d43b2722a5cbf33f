/* ir/hash.c -- content hash of a graph: everything that determines results and placement (ops, operands, types, attributes, weights,
 * bodies, devices, tasks), without names, origins and locations. Chained over small blocks, so that nothing is allocated. */
#include "ir/graph.h"

#include <string.h>

typedef struct mixer {
    nnc_hash128 h; /* of everything before `buf` */
    uint8_t buf[1024];
    size_t n;
} mixer;

static void flush(mixer *m)
{
    uint8_t block[sizeof m->h + sizeof m->buf];
    memcpy(block, &m->h, sizeof m->h);
    memcpy(block + sizeof m->h, m->buf, m->n);
    m->h = nnc_hash(block, sizeof m->h + m->n);
    m->n = 0;
}

static void mix(mixer *m, const void *p, size_t n)
{
    nnc_hash128 long_hash;
    if (n > sizeof m->buf) {
        long_hash = nnc_hash(p, n);
        p = &long_hash;
        n = sizeof long_hash;
    }
    if (m->n + n > sizeof m->buf)
        flush(m);
    memcpy(m->buf + m->n, p, n);
    m->n += n;
}

static void put_int(mixer *m, int64_t v)
{
    mix(m, &v, sizeof v);
}

static void put_str(mixer *m, const char *s)
{
    put_int(m, s ? (int64_t)strlen(s) : -1);
    if (s && *s)
        mix(m, s, strlen(s));
}

static void put_type(mixer *m, const nnc_type *t)
{
    bool plain = nnc_type_is_row_major(t); /* {0,1,..} and an equivalent order have the same hash */
    put_int(m, t->dtype);
    put_int(m, t->rank);
    for (int i = 0; i < t->rank; i++) {
        put_int(m, t->dim[i]);
        put_int(m, plain ? i : t->order[i]);
        put_int(m, t->gap[i]);
    }
}

static void put_attr(mixer *m, const nnc_attr *a)
{
    put_int(m, a->key);
    put_int(m, a->i);
    mix(m, &a->f, sizeof a->f);
    put_int(m, a->n);
    if (a->n > 0)
        mix(m, a->ints, (size_t)a->n * sizeof *a->ints);
    put_str(m, a->word);
}

static void put_weight(mixer *m, const nnc_weight *w)
{
    put_int(m, w->kind);
    if (w->n_part)
        mix(m, &w->part, sizeof w->part);
    switch (w->kind) {
    case NNC_W_inline:
        put_int(m, w->size);
        mix(m, w->data, (size_t)w->size);
        break;
    case NNC_W_file:
        put_str(m, w->file);
        put_int(m, w->offset);
        put_int(m, w->size);
        put_int(m, (int64_t)w->header_hash);
        break;
    case NNC_W_gen: /* the name is the generator's key */
        put_str(m, w->name);
        put_int(m, (int64_t)w->seed);
        mix(m, &w->scale, sizeof w->scale);
        mix(m, &w->shift, sizeof w->shift);
        break;
    }
}

/* Tasks belong to whole kernels, not to what is in them (`inner`). */
static void put_graph(mixer *m, const nnc_graph *g, bool inner)
{
    put_int(m, g->n_node);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        put_str(m, nnc_ops[n->op].name); /* rows of ops.def may move */
        put_int(m, n->device);
        if (!inner && n->task >= 0)
            put_int(m, -2 - (int64_t)n->task);
        put_int(m, n->frozen + 2 * n->accumulates);
        put_int(m, n->n_in);
        for (int k = 0; k < n->n_in; k++)
            put_int(m, n->in[k]);
        put_int(m, n->n_out);
        for (uint32_t k = 0; k < n->n_out; k++)
            put_type(m, nnc_typeof(g, n->out + k));
        put_int(m, n->n_attr);
        for (int k = 0; k < n->n_attr; k++)
            put_attr(m, &n->attr[k]);
        if (n->weight)
            put_weight(m, n->weight);
        if (n->body)
            put_graph(m, n->body, true);
    }
    put_int(m, g->n_output);
    for (uint32_t i = 0; i < g->n_output; i++)
        put_int(m, g->output[i]);
    for (uint32_t i = nnc_result_outputs(g); i < g->n_output; i++)
        put_int(m, g->output_state[i]);
}

/* Numbers are part of the kernel. */
static void put_operand(mixer *m, const nnc_graph *g, nnc_ref v)
{
    const nnc_node *d = nnc_def(g, v);
    double f;
    put_type(m, nnc_typeof(g, v));
    bool number = nnc_const_scalar(g, v, &f);
    put_int(m, number);
    while (number && d->op != OP_constant)
        d = nnc_def(g, d->in[0]);
    for (int k = 0; k < d->n_attr && number; k++)
        put_attr(m, &d->attr[k]);
    if (number && d->weight)
        put_weight(m, d->weight);
}

nnc_hash128 nnc_node_hash(const nnc_graph *g, const nnc_node *n)
{
    mixer m = {0};
    put_int(&m, n->op);
    put_int(&m, n->n_in);
    put_int(&m, n->n_out);
    for (int k = 0; k < n->n_in; k++) {
        int first = 0;
        while (n->in[first] != n->in[k])
            first++;
        put_int(&m, first);
        if (first == k)
            put_operand(&m, g, n->in[k]);
    }
    for (uint32_t k = 0; k < n->n_out; k++)
        put_type(&m, nnc_typeof(g, n->out + k));
    put_int(&m, n->n_attr);
    for (int k = 0; k < n->n_attr; k++)
        put_attr(&m, &n->attr[k]);
    if (n->body)
        put_graph(&m, n->body, true);
    flush(&m);
    return m.h;
}

nnc_hash128 nnc_graph_hash(const nnc_graph *g)
{
    mixer m = {0};
    put_graph(&m, g, false);
    flush(&m);
    return m.h;
}
