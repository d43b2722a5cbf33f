/* frontend/listing.c -- lists the layer types with their keys and defaults, for `nnc layers`. */
#include "base/json_writer.h"
#include "frontend/internal.h"

void fe_put_uses(nnc_text *t, const fe_row *r, const char *quote)
{
    fe_use u;
    int n = 0;
    for (const char *p = r->keys; fe_use_next(&p, &u); n++)
        nnc_printf(t, "%s%s%s%s%s%s%s", n ? " " : "", quote, fe_keys[u.key].name,
            *u.dflt ? "=" : "", u.choices, quote, u.must || *u.dflt ? "" : "?");
}

const char *fe_kind_text(fe_kind k)
{
    static const char *const text[] = {[LK_int] = "integer",
        [LK_count] = "integer",
        [LK_spatial] = "integer or list",
        [LK_pad] = "integer, list or word",
        [LK_ints] = "integer or list",
        [LK_bool] = "true or false",
        [LK_float] = "number",
        [LK_dtype] = "dtype",
        [LK_word] = "word"};
    return text[k];
}

/* "1", "1..2", "1.." */
static void put_arity(nnc_text *t, const fe_row *r)
{
    nnc_printf(t,
        r->n_min == r->n_max ? "%d"
        : r->n_max < 0       ? "%d.."
                             : "%d..%d",
        r->n_min, r->n_max);
}

static void put_json(nnc_json_writer *w, const fe_row *r, const char *inputs)
{
    fe_use u;
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("type", r->name), J_STRING("inputs", inputs), J_STRING("doc", r->doc));
    nnc_json_open(w, "keys", '[');
    for (const char *p = r->keys; fe_use_next(&p, &u);) {
        const fe_key_row *k = &fe_keys[u.key];
        const nnc_json_member choices = J_STRING("choices", u.choices);
        nnc_json_open(w, NULL, '{');
        NNC_JSON(w, J_STRING("key", k->name), J_STRING("kind", fe_kind_text(k->kind)),
            J_BOOL("required", u.must), J_STRING("default", *u.dflt ? u.dflt : NULL));
        nnc_json_members(w, &choices, k->kind == LK_word);
        NNC_JSON(w, J_STRING("doc", k->doc));
        nnc_json_close(w, '}');
    }
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}

static void put_key_docs(nnc_text *t)
{
    nnc_puts(t, "\nKeys (key: required; key=x: x unless given; key=a,b: a word of these, a unless "
                "given; key?: may be left out):\n\n");
    for (int i = 0; i < FK__COUNT; i++) {
        nnc_printf(t, "  %-18s %-22s %s\n", fe_keys[i].name, fe_kind_text(fe_keys[i].kind),
            fe_keys[i].doc);
    }
    nnc_puts(t, "\nEvery layer also takes name, in, when, repeat, index, dtype, device, frozen, "
                "weights and doc: docs/model.md.\n");
}

void nnc_layers_list(bool json, nnc_text *t)
{
    nnc_json_writer w = {.out = t};
    if (json)
        nnc_json_open(&w, NULL, '[');
    for (int i = 0; i < fe_layer_count(); i++) {
        const fe_row r = fe_layer_at(i);
        NNC_LOCAL(nnc_text) in = {0};
        put_arity(&in, &r);
        if (json) {
            put_json(&w, &r, nnc_text_str(&in));
            nnc_json_line(&w, 1);
            continue;
        }
        nnc_printf(t, "%s%-20s %-7s ", i ? "" : "type                 inputs  keys: what it does\n",
            r.name, nnc_text_str(&in));
        fe_put_uses(t, &r, "");
        nnc_printf(t, "%s%s\n", *r.keys ? ": " : "", r.doc);
    }
    if (json)
        nnc_json_end(&w, ']');
    else
        put_key_docs(t);
}
