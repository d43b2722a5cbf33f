/* onnx/import.c -- one import: inputs with their shapes, weights, and the nodes in order. Functions of the model are inlined where they
 * are called. Nodes that cannot be imported are noted and skipped, so that all are reported at once. */
#include "onnx/internal.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct ox_name {
    const char *name;
    ox_value v;
} ox_name;

bool ox_stop(ox *x, nnc_status st)
{
    if (!x->status)
        x->status = st;
    return false;
}

bool ox_nomem(ox *x)
{
    return x->status ? false : ox_stop(x, nnc_nomem(x->sink));
}

static bool damaged(ox *x, const char *fmt, ...) NNC_PRINTF(2, 3);
static bool damaged(ox *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!x->status)
        x->status = nnc_vfail(x->sink, NNC_E_MODEL, (nnc_loc){.file = x->file}, NULL, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- names ----------------------------------------------------------------------------------- */

static ox_name *slot_of(ox_name *slot, size_t n, const char *name)
{
    size_t i = nnc_hash64(name, strlen(name), 0) & (n - 1);
    while (slot[i].name && strcmp(slot[i].name, name) != 0)
        i = (i + 1) & (n - 1);
    return &slot[i];
}

ox_value *ox_lookup(ox_scope *s, const char *name)
{
    for (; s; s = s->up) {
        ox_name *e = s->n_slot ? slot_of(s->slot, s->n_slot, name) : NULL;
        if (e && e->name)
            return &e->v;
    }
    return NULL;
}

bool ox_define(ox *x, ox_scope *s, const char *name, ox_value v)
{
    if (2 * (s->n_name + 1) > s->n_slot) { /* at most half full */
        size_t more = s->n_slot ? 2 * s->n_slot : 64;
        ox_name *slot = ARENA_NEW(&x->a, ox_name, more);
        if (!slot)
            return ox_nomem(x);
        for (size_t i = 0; i < s->n_slot; i++)
            if (s->slot[i].name)
                *slot_of(slot, more, s->slot[i].name) = s->slot[i];
        s->slot = slot;
        s->n_slot = more;
    }
    ox_name *e = slot_of(s->slot, s->n_slot, name);
    if (e->name)
        return damaged(x, "the value `%.100s` is defined twice", name);
    *e = (ox_name){name, v};
    s->n_name++;
    return true;
}

/* ---- refusals -------------------------------------------------------------------------------- */

enum { MAX_NAMED = 8 }; /* nodes that a message names */

bool ox_refuse(ox_build *b, const char *fmt, ...)
{
    ox *x = b->x;
    va_list ap;
    va_start(ap, fmt);
    const char *why = nnc_arena_vprintf(&x->a, fmt, ap);
    va_end(ap);
    b->refused = true;
    x->refused++;
    if (!why)
        return ox_nomem(x);
    ox_refusal **p = &x->refusal, *r;
    for (r = *p; r && (strcmp(r->op, b->n->op) || strcmp(r->why, why)); r = *p)
        p = &r->next;
    if (!r && !(r = *p = ARENA_NEW(&x->a, ox_refusal, 1)))
        return ox_nomem(x);
    r->op = b->n->op;
    r->why = why;
    if (r->n++ < MAX_NAMED)
        nnc_printf(&r->nodes, "%s%.100s", r->n > 1 ? ", " : "", b->path);
    return false;
}

bool ox_wrong(const ox_build *b, const char *fmt, ...)
{
    ox *x = b->x;
    const nnc_loc loc = {.file = x->file, .path = b->path};
    va_list ap;
    va_start(ap, fmt);
    if (!x->status)
        x->status = nnc_vfail(x->sink, NNC_E_MODEL, loc, b->n->op, fmt, ap);
    va_end(ap);
    return false;
}

/* Reports all refusals; false when there are any. */
static bool report_refusals(ox *x)
{
    for (ox_refusal *r = x->refusal; r; r = r->next) {
        nnc_fail(x->sink, NNC_E_MODEL, (nnc_loc){.file = x->file}, "%s: %s (%d node%s: %s%s)",
            r->op, r->why, r->n, r->n == 1 ? "" : "s", nnc_text_str(&r->nodes),
            r->n > MAX_NAMED ? ", ..." : "");
        nnc_text_deinit(&r->nodes);
    }
    if (!x->refusal)
        return true;
    return damaged(x,
        "%d of the %d nodes that were read cannot be imported; docs/onnx.md lists "
        "the operators",
        x->refused, x->nodes);
}

static bool count_use(ox *x, const char *op)
{
    ox_use **p = &x->use;
    while (*p && strcmp((*p)->op, op) != 0)
        p = &(*p)->next;
    if (!*p && !(*p = ARENA_NEW(&x->a, ox_use, 1)))
        return ox_nomem(x);
    (*p)->op = op;
    (*p)->n++;
    return true;
}

static void put_coverage(const ox *x, nnc_text *t)
{
    int kinds = 0, nodes = 0;
    for (const ox_use *u = x->use; u; u = u->next, kinds++)
        nodes += u->n;
    nnc_printf(t, "%d node%s of %d operator%s, all of them supported\n", nodes,
        nodes == 1 ? "" : "s", kinds, kinds == 1 ? "" : "s");
    for (const ox_use *u = x->use; u; u = u->next)
        nnc_printf(t, "  %-24s %d\n", u->op, u->n);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static const char *plain_domain(const char *domain)
{
    return strcmp(domain, "ai.onnx") ? domain : "";
}

static int64_t opset_of(const ox_scope *s, const char *domain)
{
    for (size_t i = 0; i < s->n_opset; i++)
        if (!strcmp(s->opset[i].domain, domain))
            return s->opset[i].version;
    return 0;
}

/* The function that the node calls; NULL: it is an operator. */
static const ox_function *find_function(const ox *x, const ox_node *n)
{
    for (size_t i = 0; i < x->m.n_function; i++) {
        const ox_function *f = &x->m.function[i];
        if (!strcmp(f->name, n->op) && !strcmp(f->overload, n->overload) &&
            !strcmp(plain_domain(f->domain), plain_domain(n->domain)))
            return f;
    }
    return NULL;
}

/* "/layer1/conv" of the node's name, or "/Conv_3"; '+' joins paths, so that names have none. */
static const char *make_path(ox *x, const ox_scope *s, const ox_node *n)
{
    const char *up = s->prefix ? s->prefix : "";
    char *p = *n->name ? nnc_arena_printf(&x->a, "%s%s%s", up, *n->name == '/' ? "" : "/", n->name)
                       : nnc_arena_printf(&x->a, "%s/%s_%d", up, n->op, x->nodes);
    for (char *c = p; c && *c; c++)
        *c = *c == '+' ? '_' : *c;
    return p;
}

static bool run_nodes(ox *x, ox_scope *s, const ox_node *node, size_t n);

/* Enters a graph or function inside the current one; false: too deep. */
static bool enter(ox *x)
{
    if (x->depth == OX_MAX_DEPTH)
        return damaged(x, "graphs and functions are nested more than %d deep", OX_MAX_DEPTH);
    x->depth++;
    return true;
}

static bool call_function(ox_build *b, const ox_function *f)
{
    ox *x = b->x;
    ox_scope s = {.opset = f->opset, .n_opset = f->n_opset, .call = b, .prefix = b->path};
    b->function = f;
    if ((size_t)b->n_in > f->n_in || (size_t)b->n_out > f->n_out)
        return ox_wrong(b, "the function has %zu inputs and %zu outputs, the node %d and %d",
            f->n_in, f->n_out, b->n_in, b->n_out);
    if (!enter(x))
        return false;
    for (size_t i = 0; i < f->n_in; i++)
        if (!ox_define(x, &s, f->in[i], i < (size_t)b->n_in ? b->in[i] : (ox_value){0}))
            return false;
    bool ok = ox_order(x, f->node, f->n_node) && run_nodes(x, &s, f->node, f->n_node);
    for (int i = 0; ok && i < b->n_out; i++) {
        ox_value *v = ox_lookup(&s, f->out[i]);
        if (!v)
            return ox_wrong(b, "the function does not compute its output `%.60s`", f->out[i]);
        b->out[i] = *v;
    }
    x->depth--;
    return ok;
}

nnc_status ox_run_graph(ox *x, ox_scope *s, const ox_graph *g)
{
    if (!enter(x))
        return x->status;
    if (g->sparse)
        damaged(x, "it has sparse initializers, which are unsupported");
    for (size_t i = 0; !x->status && i < g->n_init; i++) {
        nnc_dtype d;
        const ox_value *given = x->depth == 1 ? ox_lookup(s, g->init[i].name) : NULL;
        if (given && given->state == OX_here && nnc_def(x->g, given->ref)->op == OP_input)
            continue;
        ox_value v = {.state = OX_untyped, .rank = (int)g->init[i].code};
        if (!ox_dtype(g->init[i].code, &d) || ox_weight(x, &g->init[i], "initializer", &v))
            ox_define(x, s, g->init[i].name, v);
    }
    if (!x->status)
        run_nodes(x, s, g->node, g->n_node);
    x->depth--;
    return x->status;
}

/* Inputs and results of the node. */
static bool resolve(ox_build *b)
{
    ox *x = b->x;
    b->n_in = (int)b->n->n_in;
    b->n_out = (int)b->n->n_out;
    while (b->n_in && !*b->n->in[b->n_in - 1]) /* left out at the end */
        b->n_in--;
    b->in = ARENA_NEW(&x->a, ox_value, b->n_in + 1);
    b->out = ARENA_NEW(&x->a, ox_value, b->n_out + 1);
    if (!b->in || !b->out)
        return ox_nomem(x);
    for (int i = 0; i < b->n_in; i++) {
        const char *name = b->n->in[i];
        ox_value *v = *name ? ox_lookup(b->scope, name) : NULL;
        if (*name && !v)
            return ox_wrong(b, "its input `%.100s` is computed by no node", name);
        if (v && v->state == OX_untyped)
            return ox_wrong(b,
                "its input `%.100s`, an initializer, has the type %s, which is unsupported", name,
                ox_dtype_name(v->rank));
        b->in[i] = v ? *v : (ox_value){0};
    }
    return true;
}

static bool any_missing(const ox_build *b)
{
    for (int i = 0; i < b->n_in; i++)
        if (b->in[i].state == OX_missing)
            return true;
    return false;
}

/* The row that imports the node; NULL: noted or reported. */
static const ox_row *choose_row(ox_build *b)
{
    bool known;
    const char *domain = plain_domain(b->n->domain);
    const ox_row *row = ox_find_row(domain, b->n->op, b->opset, &known);
    if (*domain && !known)
        return ox_refuse(b, "operators of domain %.60s are unsupported%s", domain,
                   !strcmp(domain, OX_MICROSOFT) ? ", except those in docs/onnx.md"
                   : !strcmp(domain, OX_MICROSOFT ".nchwc")
                       ? ": its weights are packed for one CPU; let ONNX Runtime save the model at "
                         "level extended"
                       : ""),
               NULL;
    if (b->opset == 0)
        return ox_wrong(b, "the model imports no operator set of %s", *domain ? domain : "ai.onnx"),
               NULL;
    if (!row)
        return ox_refuse(b, known ? "unsupported in operator set %lld" : "no operator of ONNX",
                   (long long)b->opset),
               NULL;
    if (!row->build)
        return ox_refuse(b, "unsupported: needs %s", row->limits), NULL;
    return row;
}

static bool refuse_attribute(ox_build *b, const char *name)
{
    const int last = ox_attr_until(b->n->op, b->opset, name);
    if (last)
        return ox_refuse(b,
            "`%.60s` is no attribute since operator set %d but an input, and this model imports "
            "%lld",
            name, last + 1, (long long)b->opset);
    return ox_refuse(b, "its attribute `%.60s` is unsupported", name);
}

static bool check_node(ox_build *b)
{
    const ox_row *row = b->row;
    for (size_t i = 0; i < b->n->n_attr; i++)
        if (!ox_row_takes(row, b->n->attr[i].name))
            return refuse_attribute(b, b->n->attr[i].name);
    if (b->n_in < row->n_min || (row->n_max >= 0 && b->n_in > row->n_max))
        return ox_wrong(b, "it has %d inputs; expected %d%s", b->n_in,
            b->n_in < row->n_min ? row->n_min : row->n_max,
            row->n_min == row->n_max ? ""
            : b->n_in < row->n_min   ? " or more"
                                     : " or fewer");
    for (int i = 0; i < b->n_in; i++) {
        char optional[24], past[24];
        snprintf(optional, sizeof optional, "?%d", i);
        snprintf(past, sizeof past, "?past%d", i);
        ox_value *v = &b->in[i];
        if (v->state == OX_empty && v->rank > 1 && !v->dim[v->rank - 2] && ox_row_takes(row, past))
            *v = (ox_value){0};
        if (i < row->n_min && b->in[i].state == OX_unset && !ox_row_takes(row, optional))
            return ox_wrong(b, "its input %d is missing", i);
        if (b->in[i].state == OX_sequence && !ox_row_takes(row, "?list"))
            return ox_refuse(b, "its input %d is a sequence", i);
        if (i == 0 && b->in[0].state != OX_sequence && ox_row_takes(row, "?list0"))
            return ox_wrong(b, "its input 0 is no sequence");
    }
    return true;
}

/* Its row has no rule for operands without elements, and there is one whose values are not read while the model is. */
static bool needs_elements(const ox_build *b)
{
    for (int i = 0; i < b->n_in; i++)
        if (b->in[i].state == OX_empty && !ox_row_const(b->row, (size_t)i))
            return !ox_row_takes(b->row, "?empty");
    return false;
}

static bool build_by_row(ox_build *b)
{
    ox *x = b->x;
    b->row = choose_row(b);
    if (!b->row || any_missing(b) || !check_node(b))
        return false;
    uint32_t first = x->g->n_node;
    const char *origin = x->g->origin;
    nnc_loc loc = x->g->loc;
    x->g->origin = b->path;
    x->g->loc = (nnc_loc){.file = x->file, .path = b->path};
    bool ok = needs_elements(b) ? ox_empty_results(b) : b->row->build(b);
    x->g->origin = origin;
    x->g->loc = loc;
    if (x->g->status)
        return ox_stop(x, x->g->status);
    for (int i = 0; ok && i < b->n_out; i++)
        if (ox_wants(b, i) && b->out[i].state == OX_unset)
            ok = ox_refuse(b, "its output %d is unsupported", i);
    if (!ok && !x->status &&
        !x->refused) /* no builder gave a reason: it took an operand for data */
        return ox_refuse(b, "an operand without elements is unsupported");
    return ok && ox_fold(x, first, b->out, b->n_out);
}

static bool run_node(ox *x, ox_scope *s, const ox_node *n)
{
    if (x->nodes++ == OX_MAX_NODES)
        return damaged(x, "it has more than %d nodes when its functions are inlined", OX_MAX_NODES);
    ox_build b = {.x = x, .scope = s, .n = n, .path = make_path(x, s, n)};
    if (!b.path)
        return ox_nomem(x);
    const ox_function *f = find_function(x, n);
    if ((!f && !count_use(x, n->op)) || !resolve(&b))
        return false;
    b.opset = opset_of(s, plain_domain(n->domain));
    bool ok = f ? call_function(&b, f) : build_by_row(&b);
    for (int i = 0; !x->status && i < b.n_out; i++)
        if (*n->out[i])
            ox_define(x, s, n->out[i], ok ? b.out[i] : (ox_value){.state = OX_missing});
    return !x->status;
}

static bool run_nodes(ox *x, ox_scope *s, const ox_node *node, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!run_node(x, s, &node[i]))
            return false;
    return true;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool mark_decisive(ox *x, const ox_graph *g, ox_scope *marks, int depth);

bool ox_mark(ox *x, ox_scope *marks, const char *name)
{
    return ox_lookup(marks, name) || ox_define(x, marks, name, (ox_value){0});
}

/* The graphs of a node; *marked: one of its results decides, or afterwards an input of such a graph. */
static bool mark_nested(ox *x, const ox_node *n, ox_scope *marks, int depth, bool *marked)
{
    for (size_t k = 0; k < n->n_attr && depth < OX_MAX_DEPTH; k++) {
        ox_graph g;
        const size_t nodes = x->r.n_node;
        if (n->attr[k].type != OXA_graph)
            continue;
        if (!ox_open_graph(x, n->attr[k].bytes, &g))
            return false;
        x->r.n_node = nodes; /* they are counted when they are imported */
        for (size_t i = 0; i < g.n_out && *marked; i++)
            if (!ox_mark(x, marks, g.out[i].name))
                return false;
        if (!mark_decisive(x, &g, marks, depth + 1))
            return false;
        for (size_t i = 0; i < g.n_in; i++)
            *marked = *marked || ox_lookup(marks, g.in[i].name);
    }
    return true;
}

/* Marks names whose values decide shapes: inputs that a row names, and all operands of these. */
static bool mark_decisive(ox *x, const ox_graph *g, ox_scope *marks, int depth)
{
    for (size_t k = g->n_node; k-- > 0;) {
        const ox_node *n = &g->node[k];
        bool known, marked = false, shape = !strcmp(n->op, "Shape") || !strcmp(n->op, "Size");
        const char *domain = plain_domain(n->domain);
        const ox_row *row = ox_find_row(domain, n->op, opset_of(marks, domain), &known);
        for (size_t i = 0; i < n->n_out && !shape; i++)
            marked = marked || ox_lookup(marks, n->out[i]);
        if (!mark_nested(x, n, marks, depth, &marked))
            return false;
        for (size_t i = 0; i < n->n_in; i++)
            if ((marked || (row && ox_row_const(row, i))) && !ox_mark(x, marks, n->in[i]))
                return false;
    }
    return true;
}

static const nnc_shape *shape_of(const nnc_shape *shape, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(shape[i].name, name))
            return &shape[i];
    return NULL;
}

static const char *dims_text(ox *x, int rank, const int64_t *dim)
{
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < rank; i++)
        nnc_printf(&t, dim[i] < 0 ? "%s?" : "%s%lld", i ? "x" : "", (long long)dim[i]);
    const char *s = nnc_arena_strdup(&x->a, nnc_text_str(&t));
    return s ? s : "";
}

/* Extents that were given to named dimensions: the same name has the same extent everywhere. */
typedef struct params {
    const char *name[64];
    int64_t dim[64];
    int n;
} params;

static bool bind_param(ox *x, params *p, const char *name, int64_t dim, const char *input)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->name[i], name))
            return p->dim[i] == dim ||
                   damaged(x, "dimension `%.60s` is %lld, and %lld for input `%.60s`", name,
                       (long long)p->dim[i], (long long)dim, input);
    if (p->n < (int)NNC_COUNT(p->name)) {
        p->name[p->n] = name;
        p->dim[p->n++] = dim;
    }
    return true;
}

static int64_t param_dim(const params *p, const char *name)
{
    for (int i = 0; name && i < p->n; i++)
        if (!strcmp(p->name[i], name))
            return p->dim[i];
    return -1;
}

/* Do these extents agree where both are known? */
static bool agree(int rank, const int64_t *dim, int rank2, const int64_t *dim2)
{
    bool ok = rank < 0 || rank2 < 0 || rank == rank2;
    for (int i = 0; ok && i < rank && i < rank2; i++)
        ok = dim[i] < 0 || dim2[i] < 0 || dim[i] == dim2[i];
    return ok;
}

/* Fits the shape that the user gave to the one that the model states. */
static bool fit_shape(ox *x, ox_port *p, int rank, const int64_t *dim, params *names)
{
    if (!agree(p->rank, p->dim, rank, dim))
        return damaged(x, "input `%.60s` has the shape %s, which %s does not fit", p->name,
            dims_text(x, p->rank, p->dim), dims_text(x, rank, dim));
    for (int i = 0; p->rank >= 0 && i < rank; i++)
        if (dim[i] >= 0 && p->param[i] && !bind_param(x, names, p->param[i], dim[i], p->name))
            return false;
    for (int i = 0; i < rank; i++)
        if (p->rank < 0 || dim[i] >= 0)
            p->dim[i] = dim[i];
    p->rank = rank;
    return true;
}

/* " (batch)": the name of dimension i. */
static const char *named(ox *x, const ox_port *p, int i)
{
    const char *s = p->param[i] ? nnc_arena_printf(&x->a, " (%.60s)", p->param[i]) : "";
    return s ? s : "";
}

/* Sets extents that are still unknown: from named dimensions, from earlier ones of the input, and 1 for the first dimension, a batch. */
static bool complete_shape(ox *x, ox_port *p, const params *names)
{
    const nnc_shape *was = shape_of(x->o->was, x->o->n_was, p->name);
    if (p->rank < 0 && was) {
        p->rank = was->rank;
        memcpy(p->dim, was->dim, sizeof p->dim);
    }
    if (p->rank < 0)
        return damaged(x, "input `%.60s` has no shape: give it, as in --shapes=%.60s:1x3x224x224",
            p->name, p->name);
    const char *stated = dims_text(x, p->rank, p->dim);
    for (int i = 0; i < p->rank; i++) {
        if (p->dim[i] < 0)
            p->dim[i] = param_dim(names, p->param[i]);
        if (p->dim[i] < 0 && was && was->rank == p->rank)
            p->dim[i] = was->dim[i];
        if (p->dim[i] < 0 && i == 0) {
            nnc_note(x->sink, (nnc_loc){.file = x->file},
                "input `%.60s` %s: its first dimension%s is taken as 1; --shapes sets it", p->name,
                stated, named(x, p, i));
            p->dim[i] = 1;
        }
        if (p->dim[i] < 0)
            return damaged(x,
                "input `%.60s` %s: dimension %d%s has no extent: give the shape, as in "
                "--shapes=%.60s:1x3x224x224",
                p->name, stated, i, named(x, p, i), p->name);
    }
    return true;
}

static bool input_dtype(ox *x, const ox_port *p, nnc_dtype *d)
{
    if (!p->code)
        return damaged(x, "input `%.60s` is a %s; tensors are supported", p->name, p->kind);
    return ox_dtype(p->code, d) || damaged(x, "input `%.60s` has the type %s, which is unsupported",
                                       p->name, ox_dtype_name(p->code));
}

/* An input of the graph, or the constant that stands for its value. */
static bool add_input(
    ox *x, ox_scope *s, const ox_port *p, nnc_dtype d, const nnc_tensor *value, bool bound)
{
    const char *why;
    bool empty = ox_any_0(p->rank, p->dim);
    ox_value v = {.state = empty ? OX_empty : OX_here,
        .ref = NNC_NONE,
        .bits = (uint8_t)ox_bits(p->code),
        .dtype = d,
        .rank = p->rank};
    memcpy(v.dim, p->dim, sizeof v.dim);
    if (value && value->type.dtype != d)
        return damaged(x, "input `%.60s` is %s, its value %s", p->name, nnc_dtype_name(d),
            nnc_dtype_name(value->type.dtype));
    if (empty)
        return ox_define(x, s, p->name, v);
    nnc_type t = nnc_type_make(d, p->rank, p->dim);
    if (!nnc_type_check(&t, &why))
        return damaged(x, "input `%.60s` %s: %s", p->name, dims_text(x, p->rank, p->dim), why);
    v.ref = bound ? nnc_constant(x->g, &t, value->data) : nnc_input(x->g, p->name, &t);
    return v.ref == NNC_NONE ? ox_stop(x, x->g->status) : ox_define(x, s, p->name, v);
}

/* The shape that the user gave, or the one of the value's file where the model leaves extents open. */
static bool fit_given(ox *x, ox_port *p, params *names)
{
    const nnc_shape *shape = shape_of(x->o->shape, x->o->n_shape, p->name);
    const nnc_shape *file = shape_of(x->o->input, x->o->n_input, p->name);
    bool open = p->rank < 0;
    for (int i = 0; i < p->rank; i++)
        open = open || p->dim[i] < 0;
    if (file && file->why && open && !shape)
        return damaged(x, "input `%.60s` in %s: %s", p->name, file->file, file->why);
    if (file && file->rank < 0)
        file = NULL;
    if (shape && file && !agree(shape->rank, shape->dim, file->rank, file->dim))
        return ox_stop(x, nnc_fail(x->sink, NNC_E_USAGE, (nnc_loc){.file = x->file},
                              "input `%.60s` is %s by --shapes, and %s in %s", p->name,
                              dims_text(x, shape->rank, shape->dim),
                              dims_text(x, file->rank, file->dim), file->file));
    if (shape)
        return fit_shape(x, p, shape->rank, shape->dim, names);
    if (!file || !open) /* a file that does not fit is refused with its type when it is read */
        return true;
    if (!agree(p->rank, p->dim, file->rank, file->dim))
        return damaged(x, "input `%.60s` has the shape %s, which %s in %s does not fit", p->name,
            dims_text(x, p->rank, p->dim), dims_text(x, file->rank, file->dim), file->file);
    return fit_shape(x, p, file->rank, file->dim, names);
}

/* Is it an input with a default, an initializer, that no value is given for? */
static bool is_default(const ox *x, const ox_graph *g, const char *name)
{
    const nnc_onnx_options *o = x->o;
    if (shape_of(o->input, o->n_input, name))
        return false;
    if (shape_of(o->shape, o->n_shape, name) || shape_of(o->was, o->n_was, name))
        return false;
    for (size_t i = 0; i < g->n_init; i++)
        if (!strcmp(g->init[i].name, name))
            return true;
    return false;
}

/* Shapes that name no input are an error, which lists the inputs. */
static bool check_shapes(ox *x, const ox_graph *g)
{
    for (int k = 0; k < x->o->n_shape; k++) {
        const char *names[64];
        size_t n = 0;
        bool found = false;
        for (size_t i = 0; i < g->n_in; i++) {
            found = found || !strcmp(g->in[i].name, x->o->shape[k].name);
            if (n < NNC_COUNT(names) && !is_default(x, g, g->in[i].name))
                names[n++] = g->in[i].name;
        }
        if (found)
            continue;
        NNC_LOCAL(nnc_text) t = {0};
        for (size_t i = 0; i < n; i++)
            nnc_printf(&t, "%s%.60s%s", i ? ", " : " (it has: ", names[i], i + 1 < n ? "" : ")");
        return ox_stop(x, nnc_fail(x->sink, NNC_E_USAGE, (nnc_loc){.file = x->file},
                              "--shapes: the model has no input `%.60s`%s", x->o->shape[k].name,
                              n ? nnc_text_str(&t) : ", and no others"));
    }
    return true;
}

static bool add_inputs(ox *x, ox_scope *s, ox_graph *g)
{
    ox_scope marks = {.opset = s->opset, .n_opset = s->n_opset};
    params names = {.n = 0};
    int k = 0;
    if (!check_shapes(x, g) || (x->o->n_value && !mark_decisive(x, g, &marks, 0)))
        return false;
    for (size_t i = 0, v = 0; i < g->n_in; i++) {
        if (is_default(x, g, g->in[i].name))
            continue;
        const nnc_tensor *value = (int)v < x->o->n_value ? &x->o->value[v] : NULL;
        v++;
        if (!fit_given(x, &g->in[i], &names))
            return false;
        if (value && !fit_shape(x, &g->in[i], value->type.rank, value->type.dim, &names))
            return false;
    }
    for (size_t i = 0; i < g->n_in; i++) {
        if (is_default(x, g, g->in[i].name))
            continue;
        nnc_dtype d = DT_f32;
        const nnc_tensor *value = k < x->o->n_value ? &x->o->value[k] : NULL;
        bool bound = value && (!value->data || ox_lookup(&marks, g->in[i].name));
        if (value && x->o->bound)
            x->o->bound[k] = bound;
        k++;
        if (!input_dtype(x, &g->in[i], &d) || !complete_shape(x, &g->in[i], &names) ||
            !add_input(x, s, &g->in[i], d, value, bound))
            return false;
    }
    return true;
}

/* ---- the import ------------------------------------------------------------------------------ */

static bool add_outputs(ox *x, ox_scope *s, const ox_graph *g)
{
    for (size_t i = 0; i < g->n_out; i++) {
        const char *name = g->out[i].name;
        ox_value *v = ox_lookup(s, name);
        if (!v || v->state == OX_unset)
            return damaged(x, "no node computes the output `%.100s`", name);
        if (v->state == OX_untyped)
            return damaged(x,
                "the output `%.100s`, an initializer, has the type %s, which is unsupported", name,
                ox_dtype_name(v->rank));
        if (v->state == OX_sequence)
            return damaged(x, "the output `%.100s` is a sequence; tensors are supported", name);
        if (v->state == OX_empty) {
            const nnc_type t = nnc_type_make(v->dtype, v->rank, v->dim);
            nnc_output_empty(x->g, &t, name);
        }
        if (v->state == OX_here)
            nnc_output(x->g, v->ref, name);
    }
    return g->n_out > 0 || damaged(x, "the graph has no outputs");
}

static bool import_model(ox *x)
{
    ox_graph g;
    x->r = (ox_reader){.a = &x->a, .sink = x->sink, .file = x->file};
    if (!ox_read_model(&x->r, x->data, &x->m))
        return ox_stop(x, x->r.status);
    if (!ox_open_graph(x, x->m.graph, &g))
        return false;
    ox_scope s = {.opset = x->m.opset, .n_opset = x->m.n_opset};
    x->g = nnc_graph_create(*g.name ? g.name : "model", x->sink);
    if (!x->g)
        return ox_nomem(x);
    x->g->device = -1;
    if (!add_inputs(x, &s, &g) || ox_run_graph(x, &s, &g))
        return false;
    if (!report_refusals(x) || !add_outputs(x, &s, &g) || !ox_separate_statistics(x))
        return false;
    x->g->origin = NULL;
    x->g->loc = (nnc_loc){0};
    nnc_status st = x->g->status ? x->g->status : nnc_graph_tidy(x->g);
    return st ? ox_stop(x, st) : true;
}

static nnc_graph *import(
    const char *file, ox_span data, bool mapped, const nnc_onnx_options *o, nnc_sink *sink)
{
    static const nnc_onnx_options none = {0};
    ox x = {.o = o ? o : &none, .file = file, .sink = sink, .data = data, .mapped = mapped};
    if (mapped)
        x.file_hash = x.o->given ? x.o->given->file[0].hash : nnc_weight_file_hash(data.p, data.n);
    bool ok = import_model(&x);
    if (ok)
        ok = (x.g->given = x.o->given ? nnc_given_share(x.o->given) : ox_keep(&x)) != NULL;
    if (ok && x.o->coverage)
        put_coverage(&x, x.o->coverage);
    for (ox_refusal *r = x.refusal; r; r = r->next)
        nnc_text_deinit(&r->nodes);
    ox_close_outside(&x);
    if (!ok) {
        nnc_graph_destroy(x.g);
        x.g = NULL;
    }
    nnc_arena_deinit(&x.a);
    return x.g;
}

nnc_graph *nnc_onnx_parse(
    const char *file, const void *data, size_t n, const nnc_onnx_options *o, nnc_sink *sink)
{
    return import(file, (ox_span){data, n}, o && o->held, o, sink);
}

nnc_graph *nnc_onnx_again(const nnc_onnx_options *o, nnc_sink *sink)
{
    nnc_map m;
    const nnc_given_file *f = &o->given->file[0];
    if (nnc_given_map(o->given, 0, &m, sink))
        return NULL;
    nnc_graph *g = import(f->name, (ox_span){m.data, m.n}, f->hash != 0, o, sink);
    nnc_map_close(&m);
    return g;
}

nnc_graph *nnc_onnx_load(const char *file, const nnc_onnx_options *o, nnc_sink *sink)
{
    nnc_map m;
    if (nnc_map_open(&m, file, sink))
        return NULL;
    nnc_graph *g = import(file, (ox_span){m.data, m.n}, true, o, sink);
    nnc_map_close(&m);
    return g;
}

bool nnc_onnx_looks(const char *file, const void *data, size_t n)
{
    const char *dot = file ? strrchr(file, '.') : NULL;
    return (dot && !strcmp(dot, ".onnx")) || (n > 1 && *(const uint8_t *)data == 8);
}

nnc_status nnc_shape_parse(const char *text, nnc_shape *out, nnc_arena *a, nnc_sink *sink)
{
    const char *colon = strrchr(text, ':'), *p = colon ? colon + 1 : "";
    *out = (nnc_shape){0};
    bool ok = colon && colon > text;
    while (ok && *p) {
        char *end;
        long long v = strtoll(p, &end, 10);
        ok = end > p && v >= 0 && v <= INT64_C(1) << 40 && out->rank < NNC_MAX_RANK &&
             (!*end || ((*end == 'x' || *end == ',') && end[1]));
        if (ok)
            out->dim[out->rank++] = v;
        p = *end ? end + 1 : end;
    }
    if (!ok)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--shapes: expected NAME:1x3x224x224, found `%.100s`", text);
    out->name = nnc_arena_strndup(a, text, (size_t)(colon - text));
    return out->name ? NNC_OK : nnc_nomem(sink);
}
