/* frontend/table.c -- the layer types with their keys, and the JSON Schema made from them. The rows are layers.def (layers with a
 * builder of their own) and, for every other op available in model files, ir/ops.def with its attributes as keys. */
#include "frontend/internal.h"
#include <string.h>

static const fe_row own[] = {
#define LAYER(name, n_min, n_max, op, build, keys, doc) \
    {#name, n_min, n_max, OP_##op, true, keys, build, doc},
#include "frontend/layers.def"
};
enum { N_OWN = NNC_COUNT(own) };

const fe_key_row fe_keys[FK__COUNT] = {
#define KEY(name, kind, lo, hi, choices, doc) \
    {#name, LK_##kind, offsetof(fe_spec, name), lo, hi, choices, doc},
#include "frontend/keys.def"
};

/* Keys of ops with attributes; the defaults are those of inference, lowering and evaluation for absent attributes. */
static const struct {
    nnc_op op;
    const char *keys;
} op_keys[] = {{OP_argmax, "axis=-1 keepdims=true"}, {OP_argmin, "axis=-1 keepdims=true"},
    {OP_leaky_relu, "alpha=0.01"}, {OP_clip, "lo=-inf hi=inf"}, {OP_gelu, "approximate=none"},
    {OP_hardsigmoid, "alpha=1/6 beta=0.5"}, {OP_elu, "alpha=1"}, {OP_gather, "axis=0"},
    {OP_matmul, "transpose_a=false transpose_b=false"}, {OP_softmax, "axis=-1"},
    {OP_log_softmax, "axis=-1"}};

const char *const fe_common[] = {"op", "layers", "name", "in", "device", "dtype", "frozen", "when",
    "repeat", "index", "weights", "output", "doc"};
const int fe_n_common = NNC_COUNT(fe_common);

bool fe_is_common(const char *key)
{
    for (int i = 0; i < fe_n_common; i++)
        if (!strcmp(key, fe_common[i]))
            return true;
    return false;
}

static const fe_row *find_own(const char *name)
{
    for (int i = 0; i < N_OWN; i++)
        if (!strcmp(own[i].name, name))
            return &own[i];
    return NULL;
}

static bool op_row(nnc_op op, fe_row *out)
{
    const nnc_op_info *o = &nnc_ops[op];
    if (find_own(o->name) || o->cls == CL_leaf || op == OP_relayout || op == OP_fused)
        return false;
    *out = (fe_row){o->name, o->n_min, o->n_max, op, false, o->attrs, fe_build_op, o->doc};
    if (o->cls == CL_ewise && o->n_max == 2) {
        out->n_min = 1;
        out->keys = "value?";
        out->build = fe_build_binary;
    } else if (o->cls == CL_reduce) { /* argmax and argmin: op_keys */
        out->keys = "axes=all keepdims=true";
    }
    for (size_t i = 0; i < NNC_COUNT(op_keys); i++)
        if (op_keys[i].op == op)
            out->keys = op_keys[i].keys;
    return true;
}

bool fe_layer_find(const char *name, fe_row *out)
{
    const fe_row *r = find_own(name);
    nnc_op op;
    if (r)
        *out = *r;
    return r || (nnc_op_parse(name, strlen(name), &op) && op_row(op, out));
}

int fe_layer_count(void)
{
    int n = N_OWN;
    fe_row r;
    for (int op = 0; op < OP__COUNT; op++)
        n += op_row((nnc_op)op, &r);
    return n;
}

fe_row fe_layer_at(int i)
{
    fe_row r = own[0];
    if (i < N_OWN)
        return own[i];
    i -= N_OWN;
    for (int op = 0; op < OP__COUNT; op++)
        if (op_row((nnc_op)op, &r) && i-- == 0)
            break;
    return r;
}

bool fe_key_parse(const char *name, size_t n, fe_key *out)
{
    for (int i = 0; i < FK__COUNT; i++)
        if (strlen(fe_keys[i].name) == n && !memcmp(fe_keys[i].name, name, n)) {
            *out = (fe_key)i;
            return true;
        }
    return false;
}

bool fe_use_next(const char **p, fe_use *u)
{
    while (**p == ' ')
        ++*p;
    size_t n = strcspn(*p, " ?="), all = strcspn(*p, " ");
    if (n == 0 ||
        !fe_key_parse(*p, n, &u->key)) /* tests check that every name is a row of keys.def */
        return false;
    u->must = n == all;
    snprintf(u->dflt, sizeof u->dflt, "%.*s", (*p)[n] == '=' ? (int)(all - n - 1) : 0, *p + n + 1);
    *p += all;
    return true;
}

bool fe_row_takes(const fe_row *r, fe_key key)
{
    fe_use u;
    for (const char *p = r->keys; fe_use_next(&p, &u);)
        if (u.key == key)
            return true;
    return false;
}

/* ---- JSON Schema (draft-07, which editors support best) ------------------------------------------------------------ */

/* Text of the schema, where ' stands for ". */
static void put_quoted(nnc_text *t, const char *text)
{
    for (; *text; text++)
        nnc_putc(t, *text == '\'' ? '"' : *text);
}

static const char head[] =
    "{\n"
    "  '$schema': 'http://json-schema.org/draft-07/schema#',\n"
    "  'title': 'nnc model',\n"
    "  'description': 'See docs/model.md. Made by nnc from its layer table; nnc itself checks far "
    "more.',\n"
    "  'type': 'object',\n"
    "  'required': ['inputs', 'layers'],\n"
    "  'additionalProperties': false,\n"
    "  'properties': {\n"
    "    '$schema': {'type': 'string'},\n"
    "    'name': {'type': 'string'},\n"
    "    'doc': {'type': 'string'},\n"
    "    'args': {'$ref': '#/definitions/args'},\n"
    "    'blocks': {'type': 'object', 'additionalProperties': {'$ref': '#/definitions/block'}},\n"
    "    'inputs': {'type': 'object', 'minProperties': 1, "
    "'additionalProperties': {'$ref': '#/definitions/input'}},\n"
    "    'layers': {'$ref': '#/definitions/layers'},\n"
    "    'outputs': {'$ref': '#/definitions/names'}\n"
    "  },\n"
    "  'definitions': {\n"
    "    'int': {'type': ['integer', 'string']},\n"
    "    'ints': {'anyOf': [{'$ref': '#/definitions/int'}, {'type': 'array', "
    "'items': {'$ref': '#/definitions/int'}}]},\n"
    "    'float': {'type': ['number', 'string']},\n"
    "    'bool': {'anyOf': [{'type': ['boolean', 'string']}, {'enum': [0, 1]}]},\n"
    "    'word': {'type': 'string'},\n"
    "    'names': {'anyOf': [{'type': 'string'}, {'type': 'array', 'minItems': 1, "
    "'items': {'type': 'string'}}]},\n"
    "    'shape': {'type': 'array', 'items': {'$ref': '#/definitions/int'}, 'maxItems': 8},\n"
    "    'input': {'anyOf': [{'$ref': '#/definitions/shape'}, {'type': 'object', "
    "'required': ['shape'], 'additionalProperties': false,\n"
    "      'properties': {'shape': {'$ref': '#/definitions/shape'}, 'dtype': {'type': 'string'}, "
    "'doc': {'type': 'string'}}}]},\n"
    "    'layers': {'type': 'array', 'minItems': 1, 'items': {'$ref': '#/definitions/layer'}},\n"
    "    'arg': {'anyOf': [{'type': ['number', 'string']}, {'type': 'object', "
    "'additionalProperties': false,\n"
    "      'properties': {'default': {'type': ['number', 'string']}, 'min': {'type': 'integer'}, "
    "'max': {'type': 'integer'},\n"
    "        'choices': {'type': 'array', 'items': {'type': ['integer', 'string']}}, "
    "'doc': {'type': 'string'}}}]},\n"
    "    'args': {'type': 'object', 'additionalProperties': {'$ref': '#/definitions/arg'}},\n"
    "    'block': {'type': 'object', 'required': ['layers'], 'additionalProperties': false, "
    "'properties': {\n"
    "      'doc': {'type': 'string'},\n"
    "      'args': {'anyOf': [{'type': 'array', 'items': {'type': 'string'}}, "
    "{'$ref': '#/definitions/args'}]},\n"
    "      'inputs': {'type': 'array', 'minItems': 1, 'items': {'type': 'string'}},\n"
    "      'layers': {'$ref': '#/definitions/layers'},\n"
    "      'output': {'$ref': '#/definitions/names'}}},\n";

static const char layer[] = "    'layer': {'anyOf': [\n"
                            "      {'type': 'string'},\n"
                            "      {'$ref': '#/definitions/layer_object'}]},\n"
                            "    'layer_object': {'type': 'object', 'properties': {\n"
                            "        'op': {'anyOf': [{'enum': [";

static const char common_props[] =
    "]},\n"
    "          {'type': 'string', 'description': 'a block of this file, or ${...}'}]},\n"
    "        'layers': {'$ref': '#/definitions/layers'},\n"
    "        'name': {'type': 'string'},\n"
    "        'in': {'$ref': '#/definitions/names'},\n"
    "        'device': {'$ref': '#/definitions/int'},\n"
    "        'dtype': {'type': 'string'},\n"
    "        'frozen': {'$ref': '#/definitions/bool'},\n"
    "        'when': {'type': ['boolean', 'integer', 'string']},\n"
    "        'repeat': {'$ref': '#/definitions/int'},\n"
    "        'index': {'type': 'string'},\n"
    "        'weights': {'type': 'string'},\n"
    "        'output': {'$ref': '#/definitions/names'},\n"
    "        'doc': {'type': 'string'}},\n"
    "      'allOf': [\n"
    "      {'oneOf': [{'required': ['op']}, {'required': ['layers']}]}";

static void put_kind(nnc_text *t, const fe_key_row *k)
{
    static const char *const ref[] = {[LK_int] = "int",
        [LK_count] = "int",
        [LK_spatial] = "ints",
        [LK_pad] = "ints",
        [LK_ints] = "ints",
        [LK_bool] = "bool",
        [LK_float] = "float",
        [LK_dtype] = "word",
        [LK_word] = "word"};
    nnc_printf(
        t, "{\"allOf\": [{\"$ref\": \"#/definitions/%s\"}], \"description\": ", ref[k->kind]);
    nnc_put_json_string(t, k->doc);
    nnc_puts(t, "}");
}

/* One branch per layer type, which allows its keys only. */
static void put_layer(nnc_text *t, const fe_row *r)
{
    fe_use u;
    nnc_printf(t,
        ",\n      {\"if\": {\"properties\": {\"op\": {\"const\": \"%s\"}}, \"required\": "
        "[\"op\"]},\n"
        "       \"then\": {\"properties\": {",
        r->name);
    for (int i = 0; i < fe_n_common; i++)
        if (strcmp(fe_common[i], "layers") != 0 && strcmp(fe_common[i], "output") != 0)
            nnc_printf(t, "%s\"%s\": true", i ? ", " : "", fe_common[i]);
    for (const char *p = r->keys; fe_use_next(&p, &u);)
        nnc_printf(t, ", \"%s\": {\"$ref\": \"#/definitions/key_%s\"}", fe_keys[u.key].name,
            fe_keys[u.key].name);
    nnc_puts(t, "}, \"additionalProperties\": false");
    const char *sep = ", \"required\": [";
    for (const char *p = r->keys; fe_use_next(&p, &u);)
        if (u.must) {
            nnc_printf(t, "%s\"%s\"", sep, fe_keys[u.key].name);
            sep = ", ";
        }
    nnc_puts(t, sep[2] ? "}}" : "]}}");
}

void nnc_model_schema(nnc_text *t)
{
    int n = fe_layer_count();
    put_quoted(t, head);
    for (int i = 0; i < FK__COUNT;
         i++) { /* not keys of every layer: a block may have an arg of that name */
        nnc_printf(t, "    \"key_%s\": ", fe_keys[i].name);
        put_kind(t, &fe_keys[i]);
        nnc_puts(t, ",\n");
    }
    put_quoted(t, layer);
    for (int i = 0; i < n; i++)
        nnc_printf(t, "%s\"%s\"",
            i == 0  ? ""
            : i % 8 ? ", "
                    : ",\n          ",
            fe_layer_at(i).name);
    put_quoted(t, common_props);
    for (int i = 0; i < n; i++) {
        fe_row r = fe_layer_at(i);
        put_layer(t, &r);
    }
    nnc_puts(t, "]}\n  }\n}\n");
}
