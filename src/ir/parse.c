/* ir/parse.c -- parses the text form of docs/graph-ir.md. Types of inferable ops may be omitted; given types must agree with inference
 * and determine the memory order. Stops at the first error. Sizes are bounded by the text's length, inline data by DATA_MAX, nesting
 * by one level. */
#include "ir/graph.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* Maximum bytes of one inline constant; more belongs in a file. */
#define DATA_MAX ((int64_t)256 << 20)
#define RESULTS_MAX 65535

typedef struct parser {
    nnc_scan *s;
    nnc_sink *sink;
    nnc_graph *g;
    int depth;
} parser;

/* A node being read. */
typedef struct draft {
    nnc_node node;
    nnc_loc loc;
    char **name; /* of the results; numbers as digits */
    size_t n_name, cap_name;
    nnc_ref *in;
    size_t cap_in;
    nnc_attr *attr;
    size_t cap_attr;
    nnc_type *type;
    size_t n_type, cap_type;
    nnc_weight weight;
    void *data; /* an inline weight's data until the node is built */
} draft;

static nnc_status expected(parser *p, const char *what)
{
    return nnc_scan_fail(p->s, p->sink, what);
}

static nnc_status need(parser *p, const char *lit)
{
    char text[32];
    if (nnc_scan_eat(p->s, lit))
        return NNC_OK;
    snprintf(text, sizeof text, "`%s`", lit);
    return expected(p, text);
}

/* Ensures room for one more element. */
#define GROW(p, array, count, cap) \
    (ARENA_ROOM(&(p)->g->arena, array, cap, (size_t)(count) + 1) ? NNC_OK : nnc_nomem((p)->sink))

static nnc_status scan_string(parser *p, char **out)
{
    if (!nnc_scan_is(p->s, "\""))
        return expected(p, "a string in double quotes");
    if (nnc_scan_string(p->s, &p->g->arena, out))
        return NNC_OK;
    /* malformed, or out of memory? The rest of the line contains the string, if it is one. */
    const char *line = memchr(p->s->p, '\n', (size_t)(p->s->end - p->s->p));
    NNC_NEED(
        nnc_arena_alloc(&p->g->arena, (size_t)((line ? line : p->s->end) - p->s->p), 1), p->sink);
    if (nnc_scan_string(p->s, &p->g->arena, out))
        return NNC_OK;
    return expected(p, "a string with its closing quote and valid escapes");
}

/* First character of names of values that have only a number: %0 is not %"0". */
#define NUMBERED '\n'

static const char *label(const char *name)
{
    assert(name);
    return name + (*name == NUMBERED);
}

static bool can_be_name(const char *s)
{
    const char *c = s;
    while ((unsigned char)*c >= ' ')
        c++;
    return *s && !*c;
}

/* The name after '%': a word, a number, or a string. */
static nnc_status scan_name(parser *p, char **out)
{
    const char *word;
    size_t n;
    int64_t number;
    if (!nnc_scan_eat(p->s, "%"))
        return expected(p, "a value such as %x");
    if (nnc_scan_is(p->s, "\"")) {
        const nnc_loc loc = nnc_scan_loc(p->s);
        NNC_TRY(scan_string(p, out));
        return can_be_name(*out) ? NNC_OK
                                 : nnc_fail(p->sink, NNC_E_MODEL, loc,
                                       "a name needs a character, and has no control characters");
    }
    if (nnc_scan_word(p->s, &word, &n))
        *out = nnc_arena_strndup(&p->g->arena, word, n);
    else if (nnc_scan_int(p->s, &number) && number >= 0)
        *out = nnc_arena_printf(&p->g->arena, "%c%" PRId64, NUMBERED, number);
    else
        return expected(p, "a name or a number after %");
    return *out ? NNC_OK : nnc_nomem(p->sink);
}

static nnc_status scan_ref(parser *p, nnc_ref *out)
{
    nnc_loc loc = nnc_scan_loc(p->s);
    char *name = NULL;
    NNC_TRY(scan_name(p, &name));
    *out = nnc_name_find(p->g, name);
    if (*out == NNC_NONE)
        return nnc_fail(
            p->sink, NNC_E_MODEL, loc, "%%%s is not defined before its use", label(name));
    return NNC_OK;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static nnc_status scan_ints(parser *p, nnc_attr *a)
{
    int64_t *v = NULL;
    size_t cap = 0;
    NNC_TRY(need(p, "["));
    while (!nnc_scan_eat(p->s, "]")) {
        if (a->n > 0)
            NNC_TRY(need(p, ","));
        if (a->n >= RESULTS_MAX)
            return expected(p, "fewer numbers");
        NNC_TRY(GROW(p, v, a->n, cap));
        if (!nnc_scan_int(p->s, &v[a->n++]))
            return expected(p, "an integer");
    }
    a->ints = v;
    return NNC_OK;
}

static nnc_status scan_attr_value(parser *p, nnc_attr *a)
{
    const char *word;
    size_t n;
    nnc_dtype d;
    switch (nnc_attrs[a->key].kind) {
    case AK_int:
    case AK_bool: return nnc_scan_int(p->s, &a->i) ? NNC_OK : expected(p, "an integer");
    case AK_float: return nnc_scan_double(p->s, &a->f) ? NNC_OK : expected(p, "a number");
    case AK_ints: return scan_ints(p, a);
    case AK_dtype:
        if (!nnc_scan_word(p->s, &word, &n) || !nnc_dtype_parse(word, n, &d))
            return expected(p, "an element type such as f32");
        a->i = d;
        return NNC_OK;
    case AK_word:
        if (!nnc_scan_word(p->s, &word, &n))
            return expected(p, "a word");
        a->word = nnc_arena_strndup(&p->g->arena, word, n);
        return a->word ? NNC_OK : nnc_nomem(p->sink);
    }
    return NNC_E_BUG;
}

static nnc_status unknown(parser *p, nnc_loc loc, const char *what, const char *word, size_t n,
    const char *const *names, size_t n_names)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)(n < 60 ? n : 60), word);
    const char *near = nnc_nearest(text, names, n_names);
    return nnc_fail(p->sink, NNC_E_MODEL, loc, "there is no %s \"%s\"%s%s%s", what, text,
        near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static nnc_status unknown_attr(parser *p, nnc_loc loc, const char *word, size_t n)
{
    const char *names[AT__COUNT];
    for (int i = 0; i < AT__COUNT; i++)
        names[i] = nnc_attrs[i].name;
    return unknown(p, loc, "attribute", word, n, names, AT__COUNT);
}

static nnc_status scan_attrs(parser *p, draft *d)
{
    while (!nnc_scan_eat(p->s, "}")) {
        const char *word;
        size_t n;
        nnc_akey key;
        if (d->node.n_attr > 0)
            NNC_TRY(need(p, ","));
        nnc_loc loc = nnc_scan_loc(p->s);
        if (!nnc_scan_word(p->s, &word, &n))
            return expected(p, "the name of an attribute");
        if (!nnc_attr_parse(word, n, &key))
            return unknown_attr(p, loc, word, n);
        if (d->node.n_attr >= AT__COUNT)
            return expected(p, "fewer attributes");
        NNC_TRY(need(p, "="));
        NNC_TRY(GROW(p, d->attr, d->node.n_attr, d->cap_attr));
        nnc_attr *a = &d->attr[d->node.n_attr++];
        *a = (nnc_attr){.key = (uint8_t)key};
        NNC_TRY(scan_attr_value(p, a));
    }
    return NNC_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

static nnc_status scan_element(parser *p, nnc_dtype d, void *data, int64_t i)
{
    double f;
    int64_t v;
    if (nnc_is_float(d)) {
        if (!nnc_scan_double(p->s, &f))
            return expected(p, "a number");
        nnc_set_f64(d, data, i, f);
        return NNC_OK;
    }
    if (!nnc_scan_int(p->s, &v))
        return expected(p, "an integer");
    nnc_set_i64(d, data, i, v);
    if (nnc_get_i64(d, data, i) != v)
        return nnc_fail(p->sink, NNC_E_MODEL, nnc_scan_loc(p->s), "%" PRId64 " does not fit in %s",
            v, nnc_dtype_name(d));
    return NNC_OK;
}

/* "[1, 2]", "splat 1" or "hex "..."" for the first type of the node. */
static nnc_status scan_data(parser *p, draft *d)
{
    const nnc_type *t = &d->type[0];
    int64_t n = nnc_type_numel(t), bytes = nnc_type_bytes(t), size = nnc_dtype_size(t->dtype);
    int64_t left = p->s->end - p->s->p;
    bool splat = nnc_scan_eat(p->s, "splat"), hex = !splat && nnc_scan_eat(p->s, "hex");
    if (bytes > DATA_MAX)
        return nnc_fail(p->sink, NNC_E_MODEL, d->loc,
            "%" PRId64 " bytes of inline data; at most %" PRId64 ": put them into a file", bytes,
            (int64_t)DATA_MAX);
    if (!splat && n > left) /* each element takes at least one character */
        return expected(p, "as many numbers as the type has elements");
    NNC_NEED((d->data = nnc_malloc((size_t)bytes)), p->sink);
    d->weight.data = d->data;
    d->weight.size = bytes;
    if (hex)
        return nnc_scan_hex(p->s, d->data, bytes)
                   ? NNC_OK
                   : expected(p,
                         "two hexadecimal digits (0-9 a-f) for each byte of the type, in quotes");
    if (splat) {
        NNC_TRY(scan_element(p, t->dtype, d->data, 0));
        for (int64_t i = 1; i < n; i++)
            memcpy((char *)d->data + i * size, d->data, (size_t)size);
        return NNC_OK;
    }
    NNC_TRY(need(p, "["));
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            NNC_TRY(need(p, ","));
        NNC_TRY(scan_element(p, t->dtype, d->data, i));
    }
    return need(p, "]");
}

static nnc_status scan_field(parser *p, const char *name)
{
    NNC_TRY(need(p, ","));
    NNC_TRY(need(p, name));
    return need(p, "=");
}

static nnc_status scan_field_int(parser *p, const char *name, int64_t *v)
{
    NNC_TRY(scan_field(p, name));
    return nnc_scan_int(p->s, v) ? NNC_OK : expected(p, "an integer");
}

static nnc_status scan_field_float(parser *p, const char *name, float *v)
{
    double f = 0;
    NNC_TRY(scan_field(p, name));
    if (!nnc_scan_double(p->s, &f))
        return expected(p, "a number");
    *v = (float)f;
    return NNC_OK;
}

static nnc_status scan_gen(parser *p, nnc_weight *w)
{
    char *name = NULL;
    int64_t seed = 0;
    w->kind = NNC_W_gen;
    NNC_TRY(need(p, "("));
    NNC_TRY(scan_string(p, &name));
    w->name = name;
    NNC_TRY(scan_field_int(p, "seed", &seed));
    w->seed = (uint64_t)seed;
    NNC_TRY(scan_field_float(p, "scale", &w->scale));
    if (!nnc_scan_is(p->s, ")"))
        NNC_TRY(scan_field_float(p, "shift", &w->shift));
    return need(p, ")");
}

static nnc_status scan_file(parser *p, nnc_weight *w)
{
    char *text = NULL;
    int64_t hash = 0;
    w->kind = NNC_W_file;
    NNC_TRY(need(p, "("));
    NNC_TRY(scan_string(p, &text));
    w->file = text;
    nnc_scan before = *p->s;
    if (nnc_scan_eat(p->s, ",") && nnc_scan_eat(p->s, "name")) {
        NNC_TRY(need(p, "="));
        NNC_TRY(scan_string(p, &text));
        w->name = text;
    } else {
        *p->s = before;
    }
    NNC_TRY(scan_field_int(p, "offset", &w->offset));
    NNC_TRY(scan_field_int(p, "size", &w->size));
    if (!nnc_scan_is(p->s, ")"))
        NNC_TRY(scan_field_int(p, "hash", &hash));
    w->header_hash = (uint64_t)hash;
    return need(p, ")");
}

/* "part(first, run, stride)", or nothing. */
static nnc_status scan_part(parser *p, nnc_weight *w)
{
    if (!nnc_scan_eat(p->s, "part"))
        return NNC_OK;
    int64_t *const number[] = {&w->part.first, &w->part.run, &w->part.stride};
    for (size_t i = 0; i < NNC_COUNT(number); i++) {
        NNC_TRY(need(p, i ? "," : "("));
        if (!nnc_scan_int(p->s, number[i]))
            return expected(p, "an integer");
    }
    w->n_part = 1;
    return need(p, ")");
}

static nnc_status scan_weight(parser *p, draft *d)
{
    nnc_weight *w = &d->weight;
    if (d->node.op != OP_param && d->node.op != OP_constant)
        return expected(p, "no `=`: only param and constant hold numbers");
    if (d->n_type != 1)
        return expected(p, "one type before `=`");
    d->node.weight = w;
    const bool gen = nnc_scan_eat(p->s, "gen");
    if (gen || nnc_scan_eat(p->s, "file")) {
        NNC_TRY(gen ? scan_gen(p, w) : scan_file(p, w));
        return scan_part(p, w);
    }
    w->kind = NNC_W_inline;
    if (nnc_scan_eat(p->s, "name")) {
        char *name;
        NNC_TRY(scan_string(p, &name));
        w->name = name;
    }
    return scan_data(p, d);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static nnc_graph *parse_graph(nnc_scan *s, nnc_sink *sink, const char *name, int depth);

static nnc_status scan_op(parser *p, draft *d)
{
    const char *word, *names[OP__COUNT];
    size_t n;
    nnc_op op;
    nnc_loc loc = nnc_scan_loc(p->s);
    if (!nnc_scan_word(p->s, &word, &n))
        return expected(p, "the name of an op");
    if (nnc_op_parse(word, n, &op)) {
        d->node.op = (uint16_t)op;
        return NNC_OK;
    }
    for (int i = 0; i < OP__COUNT; i++)
        names[i] = nnc_ops[i].name;
    return unknown(p, loc, "op", word, n, names, OP__COUNT);
}

static nnc_status scan_results(parser *p, draft *d)
{
    do {
        if (d->n_name >= RESULTS_MAX)
            return expected(p, "fewer results");
        NNC_TRY(GROW(p, d->name, d->n_name, d->cap_name));
        nnc_loc loc = nnc_scan_loc(p->s);
        NNC_TRY(scan_name(p, &d->name[d->n_name]));
        if (nnc_name_find(p->g, d->name[d->n_name]) != NNC_NONE)
            return nnc_fail(
                p->sink, NNC_E_MODEL, loc, "%%%s is defined twice", label(d->name[d->n_name]));
        d->n_name++;
    } while (nnc_scan_eat(p->s, ","));
    return need(p, "=");
}

static nnc_status scan_operands(parser *p, draft *d)
{
    if (!nnc_scan_is(p->s, "%"))
        return NNC_OK;
    /* "%y = ..." on the next line is the next node, not an operand */
    if (nnc_ops[d->node.op].n_max == 0)
        return NNC_OK;
    do {
        if (d->node.n_in >= RESULTS_MAX)
            return expected(p, "fewer operands");
        NNC_TRY(GROW(p, d->in, d->node.n_in, d->cap_in));
        NNC_TRY(scan_ref(p, &d->in[d->node.n_in]));
        d->node.n_in++;
    } while (nnc_scan_eat(p->s, ","));
    return NNC_OK;
}

static nnc_status scan_types(parser *p, draft *d)
{
    do {
        if (d->n_type >= RESULTS_MAX)
            return expected(p, "fewer types");
        NNC_TRY(GROW(p, d->type, d->n_type, d->cap_type));
        NNC_TRY(nnc_scan_type(p->s, p->sink, &d->type[d->n_type]));
        d->n_type++;
    } while (nnc_scan_eat(p->s, ","));
    return NNC_OK;
}

/* "NAME 3" with a number from lo to hi; otherwise dflt. */
static nnc_status scan_number(
    parser *p, const char *name, int64_t lo, int64_t hi, int64_t dflt, const char *what, int64_t *v)
{
    *v = dflt;
    return !nnc_scan_eat(p->s, name) || (nnc_scan_int(p->s, v) && *v >= lo && *v <= hi)
               ? NNC_OK
               : expected(p, what);
}

/* frozen, device, task, micro and loc. */
static nnc_status scan_tail(parser *p, draft *d)
{
    int64_t device, task, micro;
    char *origin;
    d->node.frozen = nnc_scan_eat(p->s, "frozen");
    if (d->node.frozen && d->node.op != OP_param)
        return nnc_fail(p->sink, NNC_E_MODEL, d->loc, "only a param can be frozen");
    NNC_TRY(scan_number(p, "device", 0, INT16_MAX, -1, "a device number from 0 to 32767", &device));
    NNC_TRY(scan_number(p, "task", 0, INT32_MAX, -1, "a task's number from 0 on", &task));
    NNC_TRY(scan_number(p, "micro", 1, INT32_MAX, 0, "a micro-batch's number from 1 on", &micro));
    d->node.device = (int16_t)device;
    d->node.task = (int32_t)task;
    d->node.micro = (int32_t)micro;
    if (nnc_scan_eat(p->s, "loc")) {
        NNC_TRY(scan_string(p, &origin));
        d->node.origin = origin;
    }
    return NNC_OK;
}

static nnc_status scan_draft(parser *p, draft *d)
{
    NNC_TRY(scan_results(p, d));
    NNC_TRY(scan_op(p, d));
    NNC_TRY(scan_operands(p, d));
    if (d->node.op == OP_fused) {
        if (p->depth > 0)
            return nnc_fail(p->sink, NNC_E_MODEL, d->loc, "a body holds no fused node");
        NNC_TRY(need(p, "{"));
        d->node.body = parse_graph(p->s, p->sink, "body", p->depth + 1);
        if (!d->node.body)
            return NNC_E_MODEL;
    } else if (nnc_scan_eat(p->s, "{")) {
        NNC_TRY(scan_attrs(p, d));
    }
    if (nnc_scan_eat(p->s, ":"))
        NNC_TRY(scan_types(p, d));
    if (nnc_scan_eat(p->s, "="))
        NNC_TRY(scan_weight(p, d));
    return scan_tail(p, d);
}

static nnc_status add_draft(parser *p, draft *d)
{
    nnc_node *n = &d->node;
    n->in = d->in;
    n->attr = d->attr;
    n->loc = d->loc;
    if (nnc_op_class(n->op) == CL_leaf && d->n_type == 0)
        return nnc_fail(
            p->sink, NNC_E_MODEL, d->loc, "%s needs its type: `: f32[...]`", nnc_ops[n->op].name);
    size_t results = (size_t)nnc_result_count(n);
    if (results != d->n_name || (d->n_type && d->n_type != results))
        return nnc_fail(p->sink, NNC_E_MODEL, d->loc,
            "%s has %zu results here, but %zu names and %zu types stand for them",
            nnc_ops[n->op].name, results, d->n_name, d->n_type);
    nnc_ref r = nnc_add_node(p->g, n, d->n_type ? d->type : NULL);
    n->body = NULL; /* owned by the graph, or destroyed */
    if (r == NNC_NONE)
        return p->g->status;
    for (uint32_t i = 0; i < d->n_name; i++) {
        char *name = d->name[i];
        if (!nnc_name_claim(p->g, name, r + i))
            return p->g->status != NNC_OK ? p->g->status
                                          : nnc_fail(p->sink, NNC_E_MODEL, d->loc,
                                                "%%%s is defined twice", label(name));
        if (*name != NUMBERED)
            p->g->value[r + i].name = name;
    }
    return NNC_OK;
}

static nnc_status parse_node(parser *p)
{
    draft d = {.loc = nnc_scan_loc(p->s)};
    nnc_status s = scan_draft(p, &d);
    if (s == NNC_OK)
        s = add_draft(p, &d);
    nnc_graph_destroy(d.node.body);
    nnc_free(d.data);
    return s;
}

/* `update %w <- %w2` or `accumulate %w <- %w2`, after the outputs */
static nnc_status parse_updates(parser *p)
{
    nnc_ref state, value;
    nnc_scan at = *p->s;
    bool each = false;
    for (; nnc_scan_eat(p->s, "update") || (each = nnc_scan_eat(p->s, "accumulate")); at = *p->s) {
        NNC_TRY(scan_ref(p, &state));
        NNC_TRY(need(p, "<"));
        NNC_TRY(need(p, "-"));
        NNC_TRY(scan_ref(p, &value));
        const char *why =
            p->depth ? "a fused node updates nothing" : nnc_update_fault(p->g, state, value);
        if (why)
            return nnc_fail(p->sink, NNC_E_MODEL, nnc_scan_loc(&at), "update: %s", why);
        (each ? nnc_accumulate : nnc_update)(p->g, state, value);
        each = false;
    }
    return p->g->status;
}

/* `empty "name" f32 2 0`, an output without elements with its dimensions, after the updates */
static nnc_status parse_empty(parser *p)
{
    while (!p->depth && nnc_scan_eat(p->s, "empty")) {
        const char *word = NULL;
        char *name = NULL;
        size_t n = 0;
        nnc_dtype d;
        int64_t dim[NNC_MAX_RANK];
        int rank = 0;
        bool none = false;
        NNC_TRY(scan_string(p, &name));
        if (!nnc_scan_word(p->s, &word, &n) || !nnc_dtype_parse(word, n, &d))
            return expected(p, "a type such as f32");
        while (rank < NNC_MAX_RANK && nnc_scan_int(p->s, &dim[rank]) && dim[rank] >= 0)
            none |= dim[rank++] == 0;
        if (!none)
            return expected(p, "dimensions, one of which is 0");
        const nnc_type t = nnc_type_make(d, rank, dim);
        nnc_output_empty(p->g, &t, name);
    }
    return p->g->status;
}

static nnc_status parse_return(parser *p)
{
    if (!nnc_scan_is(p->s, "%"))
        return NNC_OK;
    do {
        nnc_ref r;
        char *name = NULL;
        NNC_TRY(scan_ref(p, &r));
        if (nnc_scan_eat(p->s, "as"))
            NNC_TRY(scan_string(p, &name));
        nnc_output(p->g, r, name);
    } while (nnc_scan_eat(p->s, ","));
    return p->g->status;
}

/* Parses nodes, return and the closing brace. */
static nnc_graph *parse_graph(nnc_scan *s, nnc_sink *sink, const char *name, int depth)
{
    nnc_graph *g = nnc_graph_create(name, sink);
    if (!g) {
        (void)nnc_nomem(sink);
        return NULL;
    }
    parser p = {.s = s, .sink = sink, .g = g, .depth = depth};
    nnc_status status = NNC_OK;
    while (status == NNC_OK && !nnc_scan_eat(s, "return"))
        status = parse_node(&p);
    if (status == NNC_OK)
        status = parse_return(&p);
    if (status == NNC_OK)
        status = parse_updates(&p);
    if (status == NNC_OK)
        status = parse_empty(&p);
    if (status == NNC_OK)
        status = need(&p, "}");
    if (status == NNC_OK)
        return g;
    nnc_graph_destroy(g);
    return NULL;
}

nnc_graph *nnc_graph_parse(nnc_scan *s, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) scratch = {0};
    const char *word;
    char *name = NULL;
    size_t n;
    nnc_graph *g = NULL;
    if (!nnc_scan_eat(s, "graph") || !nnc_scan_eat(s, "@")) {
        (void)nnc_scan_fail(s, sink, "`graph @name {`");
    } else if (nnc_scan_word(s, &word, &n)) {
        if (!(name = nnc_arena_strndup(&scratch, word, n)))
            (void)nnc_nomem(sink);
    } else if (!nnc_scan_string(s, &scratch, &name)) {
        (void)nnc_scan_fail(s, sink, "the name of the graph, a word or a string");
    }
    if (name) {
        if (nnc_scan_eat(s, "{"))
            g = parse_graph(s, sink, name, 0);
        else
            (void)nnc_scan_fail(s, sink, "`{`");
    }
    return g;
}
