/* tests/frontend/make_docs.c -- makes what the docs have of the layer table: docs/schema/model.schema.json (JSON Schema draft-07, which
 * editors support best) and the tables of docs/model.md. */
#include "session/train.h"
#include "frontend/internal.h"
#include "schema.h"
#include <string.h>

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
    "    'outputs': {'$ref': '#/definitions/names'},\n"
    "    'train': {'$ref': '#/definitions/train'}\n"
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

static void put_setting(nnc_text *t, const nnc_setting *s)
{
    switch (s->kind) {
    case NNC_SET_BOOL:
    case NNC_SET_UNSET: nnc_puts(t, "\"type\": \"boolean\""); break;
    case NNC_SET_FILE: nnc_puts(t, "\"type\": \"string\""); break;
    case NNC_SET_TEXT:
    case NNC_SET_LIST:
    case NNC_SET_PAIRS: nnc_puts(t, "\"$ref\": \"#/definitions/words\""); break;
    case NNC_SET_CHOICE:
        nnc_puts(t, "\"enum\": [\"");
        for (const char *p = s->expected; *p; p++)
            nnc_printf(t, *p == '|' ? "\", \"" : "%c", *p);
        nnc_puts(t, "\"]");
        break;
    case NNC_SET_INT:
    case NNC_SET_SEED:
    case NNC_SET_REAL:
        nnc_printf(t, "\"type\": \"%s\", \"minimum\": %lld",
            s->kind == NNC_SET_REAL ? "number" : "integer", (long long)s->lo);
        if (s->hi)
            nnc_printf(t, ", \"maximum\": %lld", (long long)s->hi);
        break;
    }
}

/* The section "train": a key for each setting of nnc train that defines the training. */
static void put_train(nnc_text *t)
{
    put_quoted(t, "    'words': {'anyOf': [{'type': ['number', 'string']}, {'type': 'array', "
                  "'minItems': 1, 'items': {'type': ['number', 'string']}}]},\n"
                  "    'train': {'type': 'object', 'additionalProperties': false, 'description': "
                  "'settings of nnc train: docs/training.md', 'properties': {");
    for (size_t i = 0, n = 0; i < nnc_n_train_settings; i++) {
        const nnc_flag *f = &nnc_train_settings[i];
        char key[NNC_TRAIN_KEY_SIZE];
        if (f->group == FLAGS_job)
            continue;
        (void)nnc_train_key(f, key);
        nnc_printf(t, "%s\n      \"%s\": {\"allOf\": [{", n++ ? "," : "", key);
        put_setting(t, &f->value);
        nnc_puts(t, "}], \"description\": ");
        nnc_put_json_string(t, f->doc);
        nnc_puts(t, "}");
    }
    nnc_puts(t, "}},\n");
}

void model_schema(nnc_text *t)
{
    int n = fe_layer_count();
    put_quoted(t, head);
    for (int i = 0; i < FK__COUNT;
         i++) { /* not keys of every layer: a block may have an arg of that name */
        nnc_printf(t, "    \"key_%s\": ", fe_keys[i].name);
        put_kind(t, &fe_keys[i]);
        nnc_puts(t, ",\n");
    }
    put_train(t);
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

/* Breaks a paragraph at spaces, into lines of at most 136 columns. */
static void put_paragraph(nnc_text *t, const char *text)
{
    size_t column = 0;
    for (size_t n; *text; text += n, text += *text == ' ') {
        n = strcspn(text, " ");
        if (column)
            nnc_puts(t, column + 1 + n > 136 ? "\n" : " ");
        column = column && column + 1 + n <= 136 ? column + 1 + n : n;
        nnc_putn(t, text, n);
    }
    nnc_puts(t, "\n\n");
}

/* Keys of layers with a builder of their own; those of ops are attributes, which docs/ops.md describes. */
static bool is_listed(int key)
{
    for (int i = 0; i < fe_layer_count(); i++) {
        const fe_row r = fe_layer_at(i);
        if (r.own && fe_row_takes(&r, (fe_key)key))
            return true;
    }
    return false;
}

/* The keys by what they take, each kind at its first key. */
static void put_keys(nnc_text *t)
{
    for (int first = 0; first < FK__COUNT; first++) {
        const char *kind = fe_kind_text(fe_keys[first].kind);
        int i = 0;
        while (i < FK__COUNT && (!is_listed(i) || strcmp(fe_kind_text(fe_keys[i].kind), kind) != 0))
            i++;
        if (i != first)
            continue;
        nnc_printf(t, "Keys (%s):\n\n", kind);
        for (; i < FK__COUNT; i++)
            if (is_listed(i) && !strcmp(fe_kind_text(fe_keys[i].kind), kind))
                nnc_printf(t, "* `%s`: %s\n", fe_keys[i].name, fe_keys[i].doc);
        nnc_puts(t, "\n");
    }
}

/* Layer types that are ops with keys, in parentheses after each. */
static void put_ops_with_keys(nnc_text *t)
{
    NNC_LOCAL(nnc_text) line = {0};
    const char *sep = "Ops with keys ([ops.md](ops.md) describes them): ";
    for (int i = 0; i < fe_layer_count(); i++) {
        fe_row r = fe_layer_at(i);
        if (r.own || !*r.keys || !strcmp(r.keys, "value?"))
            continue;
        nnc_printf(&line, "%s`%s` (", sep, r.name);
        fe_put_uses(&line, &r, "`");
        nnc_putc(&line, ')');
        sep = ", ";
    }
    put_paragraph(t, nnc_text_str(&line));
}

/* A table of the layers with a builder of their own, then lists of those that are ops. */
void layers_markdown(nnc_text *t)
{
    nnc_puts(t, "| type | keys | |\n| --- | --- | --- |\n");
    for (int i = 0; i < fe_layer_count(); i++) {
        fe_row r = fe_layer_at(i);
        if (!r.own)
            continue;
        nnc_printf(t, "| `%s` | ", r.name);
        fe_put_uses(t, &r, "`");
        nnc_printf(t, " | %s |\n", r.doc);
    }
    nnc_puts(t, "\n");
    put_ops_with_keys(t);
    put_paragraph(t,
        "The other elementwise ops, `global_avgpool` and `global_maxpool` are layer types, "
        "too, without keys. Those of two operands take two inputs, or one and a number as "
        "`value`.");
    put_keys(t);
}
