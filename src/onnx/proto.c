/* onnx/proto.c -- ONNX's messages. Strings are copied, numbers of tensors stay in the file. Fields that are not listed are skipped, as
 * protocol buffers require. */
#include "onnx/internal.h"
#include <stdarg.h>
#include <string.h>

/* Reports; false. */
NNC_PRINTF(2, 3) static bool damaged(ox_reader *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!r->status)
        r->status = nnc_vfail(
            r->sink, NNC_E_MODEL, (nnc_loc){.file = r->file}, "damaged ONNX file", fmt, ap);
    va_end(ap);
    return false;
}

static bool oom(ox_reader *r)
{
    if (!r->status)
        r->status = nnc_nomem(r->sink);
    return false;
}

/* The end of a message: was it complete, and nothing reported? */
static bool ended(ox_reader *r, const ox_wire *w, const char *what)
{
    if (w->bad)
        damaged(r, "%s is cut off, or its fields are no protocol buffer", what);
    return !r->status;
}

/* Counts the fields `no` of a message, so that their array is allocated once. */
static size_t count(ox_span s, uint32_t no)
{
    ox_field f;
    size_t n = 0;
    for (ox_wire w = ox_open(s); ox_next(&w, &f);)
        n += f.no == no;
    return n;
}

static const char *text(ox_reader *r, const ox_field *f, const char *what)
{
    if (f->kind != OX_bytes || memchr(f->s.p, 0, f->s.n) || f->s.n > 65536) {
        damaged(r, "%s is not a text", what);
        return "";
    }
    const char *s = nnc_arena_strndup(r->a, (const char *)f->s.p, f->s.n);
    if (!s)
        oom(r);
    return s ? s : "";
}

static bool is_bytes(ox_reader *r, const ox_field *f, const char *what)
{
    return f->kind == OX_bytes || damaged(r, "%s is not a message", what);
}

/* The numbers of a repeated field, packed or not. */
typedef struct numbers {
    ox_wire w, list;
    uint32_t no;
    ox_kind kind; /* of a number */
} numbers;

/* False: the end, or x->list is cut off (x->list.bad). */
static bool next_number(numbers *x, uint64_t *v)
{
    ox_field f;
    while (x->list.p == x->list.end) {
        if (!ox_next(&x->w, &f))
            return false;
        *v = f.v;
        if (f.no == x->no && f.kind == x->kind)
            return true;
        if (f.no == x->no && f.kind == OX_bytes)
            x->list = ox_open(f.s);
    }
    return x->kind == OX_varint ? ox_varint(&x->list, v)
                                : ox_fixed(&x->list, x->kind == OX_fixed32 ? 4 : 8, v);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const struct {
    int64_t code;
    nnc_dtype d;
} dtypes[] = {{OXD_f32, DT_f32}, {OXD_u8, DT_u8}, {OXD_i8, DT_i8}, {OXD_u16, DT_u16},
    {OXD_i16, DT_i16}, {OXD_i32, DT_i32}, {OXD_i64, DT_i64}, {OXD_bool, DT_bool}, {OXD_f16, DT_f16},
    {OXD_f64, DT_f64}, {OXD_u32, DT_u32}, {OXD_u64, DT_u64}, {OXD_bf16, DT_bf16}, {OXD_u4, DT_u8},
    {OXD_i4, DT_i8}, {OXD_u2, DT_u8}, {OXD_i2, DT_i8}};

bool ox_dtype(int64_t code, nnc_dtype *out)
{
    for (size_t i = 0; i < NNC_COUNT(dtypes); i++)
        if (dtypes[i].code == code) {
            *out = dtypes[i].d;
            return true;
        }
    return false;
}

int64_t ox_code(nnc_dtype d)
{
    size_t i = 0;
    while (dtypes[i].d != d)
        i++;
    return dtypes[i].code;
}

int ox_bits(int64_t code)
{
    return code == OXD_u4 || code == OXD_i4 ? 4 : code == OXD_u2 || code == OXD_i2 ? 2 : 0;
}

const char *ox_dtype_name(int64_t code)
{
    static const char *const names[] = {"undefined", "float", "uint8", "int8", "uint16", "int16",
        "int32", "int64", "string", "bool", "float16", "double", "uint32", "uint64", "complex64",
        "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
        "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2", "float6e2m3", "float6e3m2"};
    return code >= 0 && code < (int64_t)NNC_COUNT(names) ? names[code] : "unknown";
}

static bool read_dims(ox_reader *r, ox_tensor *t)
{
    numbers x = {.w = ox_open(t->msg), .no = TENSOR_dims};
    uint64_t v;
    while (next_number(&x, &v)) {
        if ((int64_t)v < 0)
            return damaged(r, "tensor `%.60s` has a negative dimension", t->name);
        if (t->rank == NNC_MAX_RANK)
            t->many = true;
        else
            t->dim[t->rank++] = (int64_t)v;
    }
    return ended(r, &x.list, "a list of dimensions");
}

bool ox_read_tensor(ox_reader *r, ox_span s, ox_tensor *out)
{
    ox_field f;
    *out = (ox_tensor){.name = "", .msg = s};
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        if (f.no == TENSOR_type)
            out->code = (int64_t)f.v;
        else if (f.no == TENSOR_name)
            out->name = text(r, &f, "a tensor's name");
        else if (f.no == TENSOR_raw && is_bytes(r, &f, "raw_data"))
            out->raw = f.s;
        else if (f.no == TENSOR_location)
            out->external = f.v == 1;
    }
    return ended(r, &w, "a tensor") && read_dims(r, out);
}

/* The typed field that holds elements of d: its number, and the wire kind of one element. */
static uint32_t typed_field(nnc_dtype d, ox_kind *kind)
{
    *kind = d == DT_f32 ? OX_fixed32 : d == DT_f64 ? OX_fixed64 : OX_varint;
    return d == DT_f32                  ? TENSOR_f32
           : d == DT_f64                ? TENSOR_f64
           : d == DT_i64                ? TENSOR_i64
           : d == DT_u32 || d == DT_u64 ? TENSOR_u64
                                        : TENSOR_i32;
}

static void put_element(nnc_dtype d, void *dst, int64_t i, uint64_t v)
{
    if (nnc_is_float(d)) /* bits */
        memcpy((char *)dst + i * nnc_dtype_size(d), &v, (size_t)nnc_dtype_size(d));
    else
        nnc_set_i64(d, dst, i, d == DT_bool ? v != 0 : (int64_t)v);
}

static const char *tensor_data(const ox_tensor *t, nnc_dtype d, int64_t n, void *dst)
{
    int64_t size = nnc_dtype_size(d), k = 0;
    if (t->raw.p) {
        if ((int64_t)t->raw.n != n * size)
            return "its raw data have another size than its shape and type say";
        memcpy(dst, t->raw.p, t->raw.n);
        for (int64_t i = 0; d == DT_bool && i < n; i++)
            ((uint8_t *)dst)[i] = ((uint8_t *)dst)[i] != 0;
        return NULL;
    }
    numbers x = {.w = ox_open(t->msg)};
    uint64_t v;
    x.no = typed_field(d, &x.kind);
    for (; k <= n && next_number(&x, &v); k++)
        if (k < n)
            put_element(d, dst, k, v);
    if (x.list.bad)
        return "a number is cut off";
    return k == n ? NULL : "it has another number of elements than its shape says";
}

/* Numbers of fewer bits, several in a byte, the first in the low bits. */
static void unpack(uint8_t *v, int64_t n, int bits, bool is_signed)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        int x = v[i * bits / 8] >> i * bits % 8 & ((1 << bits) - 1);
        v[i] = (uint8_t)(is_signed && x >> (bits - 1) ? x - (1 << bits) : x);
    }
}

const char *ox_tensor_data(const ox_tensor *t, nnc_dtype d, int64_t n, void *dst)
{
    int bits = ox_bits(t->code);
    if (!bits)
        return tensor_data(t, d, n, dst);
    const char *why = tensor_data(t, DT_u8, nnc_ceildiv(n * bits, 8), dst);
    if (!why)
        unpack(dst, n, bits, d == DT_i8);
    return why;
}

static bool read_pair(ox_reader *r, ox_span s, const char **key, const char **value)
{
    ox_field f;
    ox_wire w = ox_open(s);
    *key = *value = "";
    while (!r->status && ox_next(&w, &f)) {
        if (f.no == ENTRY_key)
            *key = text(r, &f, "a key");
        else if (f.no == ENTRY_value)
            *value = text(r, &f, "a value");
    }
    return ended(r, &w, "an entry");
}

static bool whole_number(const char *s, int64_t *out)
{
    *out = 0;
    for (; *s >= '0' && *s <= '9'; s++)
        if (!nnc_mul_ok(*out, 10, out) || !nnc_add_ok(*out, *s - '0', out))
            return false;
    return !*s;
}

bool ox_tensor_place(
    ox_reader *r, const ox_tensor *t, const char **location, int64_t *offset, int64_t *length)
{
    ox_field f;
    const char *key, *value;
    ox_wire w = ox_open(t->msg);
    *location = "";
    *offset = 0;
    *length = -1;
    while (ox_next(&w, &f)) {
        if (f.no != TENSOR_external)
            continue;
        if (!is_bytes(r, &f, "external_data") || !read_pair(r, f.s, &key, &value))
            return false;
        int64_t *number = !strcmp(key, "offset") ? offset : !strcmp(key, "length") ? length : NULL;
        if (!strcmp(key, "location"))
            *location = value;
        else if (number && !whole_number(value, number))
            return damaged(r, "tensor `%.60s`: %s \"%.40s\" is not a number", t->name, key, value);
    }
    return **location || damaged(r, "tensor `%.60s` lies in another file, and names none", t->name);
}

/* ---- attributes and nodes ---------------------------------------------------------------------- */

static double as_float(uint64_t bits)
{
    uint32_t b = (uint32_t)bits;
    float f;
    memcpy(&f, &b, 4);
    return f;
}

static bool read_lists(ox_reader *r, ox_span s, ox_attr *a)
{
    const bool floats = a->type == OXA_floats;
    const numbers all = {.w = ox_open(s),
        .no = floats ? ATTR_floats : ATTR_ints,
        .kind = floats ? OX_fixed32 : OX_varint};
    numbers x = all;
    uint64_t v;
    for (a->n = 0; next_number(&x, &v); a->n++)
        continue;
    if (x.list.bad)
        return damaged(r, "the numbers of attribute `%.60s` are cut off", a->name);
    if (a->n > OX_MAX_LIST)
        return damaged(r, "attribute `%.60s` has %zu numbers; at most %d are read", a->name, a->n,
            OX_MAX_LIST);
    double *f = floats ? ARENA_NEW(r->a, double, a->n + 1) : NULL;
    int64_t *i = floats ? NULL : ARENA_NEW(r->a, int64_t, a->n + 1);
    if (!f && !i)
        return oom(r);
    a->floats = f;
    a->ints = i;
    for (x = all; next_number(&x, &v);)
        if (floats)
            *f++ = as_float(v);
        else
            *i++ = (int64_t)v;
    return true;
}

/* Older writers leave the type out: then the field that is present says it. */
static int type_of(uint32_t no)
{
    static const uint8_t type[] = {[ATTR_f] = OXA_float,
        [ATTR_i] = OXA_int,
        [ATTR_s] = OXA_string,
        [ATTR_t] = OXA_tensor,
        [ATTR_g] = OXA_graph,
        [ATTR_floats] = OXA_floats,
        [ATTR_ints] = OXA_ints,
        [ATTR_strings] = OXA_strings};
    return no < sizeof type ? type[no] : 0;
}

static bool read_attr(ox_reader *r, ox_span s, ox_attr *a)
{
    ox_field f;
    int seen = 0;
    *a = (ox_attr){.name = "", .s = ""};
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        seen = type_of(f.no) ? type_of(f.no) : seen;
        switch (f.no) {
        case ATTR_name: a->name = text(r, &f, "an attribute's name"); break;
        case ATTR_f: a->f = as_float(f.v); break;
        case ATTR_i: a->i = (int64_t)f.v; break;
        case ATTR_s: /* bytes: only words are needed */
            a->s = f.kind == OX_bytes && f.s.n < 4096 && !memchr(f.s.p, 0, f.s.n)
                       ? text(r, &f, "an attribute")
                       : "";
            break;
        case ATTR_t:
        case ATTR_g:
            if (is_bytes(r, &f, "an attribute"))
                a->bytes = f.s;
            break;
        case ATTR_strings: /* words, with blanks between them */
            if (strlen(a->s) > 4096)
                return damaged(r, "attribute `%.60s` has too many words", a->name);
            a->s = nnc_arena_printf(
                r->a, "%s%s%.40s", a->s, *a->s ? " " : "", text(r, &f, "an attribute"));
            if (!a->s)
                return oom(r);
            break;
        case ATTR_type: a->type = f.v <= 14 ? (int)f.v : -1; break;
        case ATTR_ref: a->ref = text(r, &f, "a reference to an attribute"); break;
        default: break;
        }
    }
    a->type = a->type ? a->type : seen;
    if (a->type == OXA_floats || a->type == OXA_ints)
        read_lists(r, s, a);
    return ended(r, &w, "an attribute");
}

static bool read_node(ox_reader *r, ox_span s, ox_node *n)
{
    ox_field f;
    *n = (ox_node){.name = "", .op = "", .domain = "", .overload = ""};
    size_t in = count(s, NODE_input), out = count(s, NODE_output), attr = count(s, NODE_attribute);
    if (in > OX_MAX_OPERANDS || out > OX_MAX_OPERANDS || attr > OX_MAX_OPERANDS)
        return damaged(r, "a node has more than %d inputs, outputs or attributes", OX_MAX_OPERANDS);
    n->in = ARENA_NEW(r->a, const char *, in + 1);
    n->out = ARENA_NEW(r->a, const char *, out + 1);
    n->attr = ARENA_NEW(r->a, ox_attr, attr + 1);
    if (!n->in || !n->out || !n->attr)
        return oom(r);
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        switch (f.no) {
        case NODE_input: n->in[n->n_in++] = text(r, &f, "an input's name"); break;
        case NODE_output: n->out[n->n_out++] = text(r, &f, "an output's name"); break;
        case NODE_name: n->name = text(r, &f, "a node's name"); break;
        case NODE_op: n->op = text(r, &f, "an operator's name"); break;
        case NODE_attribute:
            if (is_bytes(r, &f, "an attribute"))
                read_attr(r, f.s, &n->attr[n->n_attr++]);
            break;
        case NODE_domain: n->domain = text(r, &f, "a domain"); break;
        case NODE_overload: n->overload = text(r, &f, "an overload"); break;
        default: break;
        }
    }
    return ended(r, &w, "a node");
}

/* The nodes of a graph or function, in fields `no`. */
static bool read_nodes(ox_reader *r, ox_span s, uint32_t no, ox_node **out, size_t *n)
{
    ox_field f;
    size_t all = count(s, no);
    r->n_node += all;
    if (r->n_node > OX_MAX_NODES)
        return damaged(r, "it has more than %d nodes", OX_MAX_NODES);
    *n = 0;
    *out = ARENA_NEW(r->a, ox_node, all + 1);
    if (!*out)
        return oom(r);
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f))
        if (f.no == no && is_bytes(r, &f, "a node"))
            read_node(r, f.s, &(*out)[(*n)++]);
    return ended(r, &w, "a list of nodes");
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static bool read_dim(ox_reader *r, ox_span s, ox_port *p)
{
    ox_field f;
    ox_wire w = ox_open(s);
    int64_t v = -1;
    const char *param = NULL;
    while (!r->status && ox_next(&w, &f)) {
        if (f.no == DIM_value)
            v = (int64_t)f.v < 0 ? -1 : (int64_t)f.v;
        else if (f.no == DIM_param)
            param = text(r, &f, "a dimension's name");
    }
    if (p->rank == NNC_MAX_RANK)
        return damaged(r, "`%.60s` has more than %d dimensions", p->name, NNC_MAX_RANK);
    p->dim[p->rank] = v;
    p->param[p->rank++] = v < 0 && param && *param ? param : NULL;
    return ended(r, &w, "a dimension");
}

static bool read_shape(ox_reader *r, ox_span s, ox_port *p)
{
    ox_field f;
    ox_wire w = ox_open(s);
    p->rank = 0;
    while (!r->status && ox_next(&w, &f))
        if (f.no == SHAPE_dim && is_bytes(r, &f, "a dimension"))
            read_dim(r, f.s, p);
    return ended(r, &w, "a shape");
}

static bool read_tensor_type(ox_reader *r, ox_span s, ox_port *p)
{
    ox_field f;
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        if (f.no == TENSOR_TYPE_element)
            p->code = (int64_t)f.v;
        else if (f.no == TENSOR_TYPE_shape && is_bytes(r, &f, "a shape"))
            read_shape(r, f.s, p);
    }
    return ended(r, &w, "a type");
}

static bool read_type(ox_reader *r, ox_span s, ox_port *p)
{
    static const char *const kinds[] = {[TYPE_sequence] = "sequence",
        [TYPE_map] = "map",
        [TYPE_opaque] = "opaque",
        [TYPE_sparse] = "sparse tensor",
        [TYPE_optional] = "optional"};
    ox_field f;
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        if (f.no == TYPE_tensor && is_bytes(r, &f, "a type"))
            read_tensor_type(r, f.s, p);
        else if (f.no < NNC_COUNT(kinds) && kinds[f.no])
            p->kind = kinds[f.no];
    }
    return ended(r, &w, "a type");
}

static bool read_port(ox_reader *r, ox_span s, ox_port *p)
{
    ox_field f;
    ox_wire w = ox_open(s);
    *p = (ox_port){.name = "", .rank = -1, .kind = "value without a type"};
    while (!r->status && ox_next(&w, &f)) {
        if (f.no == PORT_name)
            p->name = text(r, &f, "a value's name");
        else if (f.no == PORT_type && is_bytes(r, &f, "a type"))
            read_type(r, f.s, p);
    }
    return ended(r, &w, "a value");
}

bool ox_read_graph(ox_reader *r, ox_span s, ox_graph *g)
{
    ox_field f;
    *g = (ox_graph){.name = ""};
    g->init = ARENA_NEW(r->a, ox_tensor, count(s, GRAPH_initializer) + 1);
    g->in = ARENA_NEW(r->a, ox_port, count(s, GRAPH_input) + 1);
    g->out = ARENA_NEW(r->a, ox_port, count(s, GRAPH_output) + 1);
    if (!g->init || !g->in || !g->out)
        return oom(r);
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        bool message = f.kind == OX_bytes;
        if (f.no == GRAPH_name)
            g->name = text(r, &f, "the graph's name");
        else if (f.no == GRAPH_initializer && message)
            ox_read_tensor(r, f.s, &g->init[g->n_init++]);
        else if (f.no == GRAPH_input && message)
            read_port(r, f.s, &g->in[g->n_in++]);
        else if (f.no == GRAPH_output && message)
            read_port(r, f.s, &g->out[g->n_out++]);
        else if (f.no == GRAPH_sparse)
            g->sparse = true;
    }
    return ended(r, &w, "the graph") && read_nodes(r, s, GRAPH_node, &g->node, &g->n_node);
}

/* ---- the model --------------------------------------------------------------------------------- */

static bool read_opset(ox_reader *r, ox_span s, ox_opset *o)
{
    ox_field f;
    ox_wire w = ox_open(s);
    *o = (ox_opset){.domain = ""};
    while (!r->status && ox_next(&w, &f)) {
        if (f.no == OPSET_domain)
            o->domain = text(r, &f, "a domain");
        else if (f.no == OPSET_version)
            o->version = (int64_t)f.v;
    }
    if (!strcmp(o->domain, "ai.onnx"))
        o->domain = "";
    return ended(r, &w, "an operator set");
}

static bool read_function(ox_reader *r, ox_span s, ox_function *fn)
{
    ox_field f;
    *fn = (ox_function){.name = "", .domain = "", .overload = ""};
    size_t in = count(s, FUNCTION_input), out = count(s, FUNCTION_output);
    if (in > OX_MAX_OPERANDS || out > OX_MAX_OPERANDS)
        return damaged(r, "a function has more than %d inputs or outputs", OX_MAX_OPERANDS);
    fn->in = ARENA_NEW(r->a, const char *, in + 1);
    fn->out = ARENA_NEW(r->a, const char *, out + 1);
    fn->opset = ARENA_NEW(r->a, ox_opset, count(s, FUNCTION_opset) + 1);
    fn->attr = ARENA_NEW(r->a, ox_attr, count(s, FUNCTION_attribute) + 1);
    if (!fn->in || !fn->out || !fn->opset || !fn->attr)
        return oom(r);
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        bool message = f.kind == OX_bytes;
        switch (f.no) {
        case FUNCTION_name: fn->name = text(r, &f, "a function's name"); break;
        case FUNCTION_input: fn->in[fn->n_in++] = text(r, &f, "an input's name"); break;
        case FUNCTION_output: fn->out[fn->n_out++] = text(r, &f, "an output's name"); break;
        case FUNCTION_domain: fn->domain = text(r, &f, "a domain"); break;
        case FUNCTION_overload: fn->overload = text(r, &f, "an overload"); break;
        case FUNCTION_opset:
            if (message)
                read_opset(r, f.s, &fn->opset[fn->n_opset++]);
            break;
        case FUNCTION_attribute:
            if (message)
                read_attr(r, f.s, &fn->attr[fn->n_attr++]);
            break;
        default: break;
        }
    }
    return ended(r, &w, "a function") && read_nodes(r, s, FUNCTION_node, &fn->node, &fn->n_node);
}

bool ox_read_model(ox_reader *r, ox_span s, ox_model *m)
{
    ox_field f;
    *m = (ox_model){0};
    size_t functions = count(s, MODEL_functions), opsets = count(s, MODEL_opset);
    if (functions > OX_MAX_FUNCTIONS || opsets > OX_MAX_FUNCTIONS)
        return damaged(r, "it has more than %d functions or operator sets", OX_MAX_FUNCTIONS);
    m->opset = ARENA_NEW(r->a, ox_opset, opsets + 1);
    m->function = ARENA_NEW(r->a, ox_function, functions + 1);
    if (!m->opset || !m->function)
        return oom(r);
    ox_wire w = ox_open(s);
    while (!r->status && ox_next(&w, &f)) {
        bool message = f.kind == OX_bytes;
        if (f.no == MODEL_producer && message)
            m->of_pytorch = f.s.n == 7 && !memcmp(f.s.p, "pytorch", 7);
        else if (f.no == MODEL_graph && message) {
            m->graph = f.s;
            m->has_graph = true;
        } else if (f.no == MODEL_opset && message)
            read_opset(r, f.s, &m->opset[m->n_opset++]);
        else if (f.no == MODEL_functions && message)
            read_function(r, f.s, &m->function[m->n_function++]);
    }
    return ended(r, &w, "the model") &&
           (m->has_graph || damaged(r, "it has no graph: it is not a model"));
}
