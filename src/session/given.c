/* session/given.c -- what a model was read from (base/given.h), in an artifact: sizes and names in the manifest, the bytes, one piece after
 * another, in the section "model". */
#include "session/session.h"
#include <math.h>
#include <stdlib.h>

void nnc_given_put(const nnc_given *v, nnc_json_writer *w)
{
    char text[32];
    nnc_json_open(w, "given", '{');
    snprintf(text, sizeof text, "%llu", (unsigned long long)v->seed);
    NNC_JSON(w, J_STRING("seed", text));
    if (v->weights)
        NNC_JSON(w, J_STRING("weights", v->weights));
    if (v->place)
        NNC_JSON(w, J_STRING("place", v->place));
    if (v->classes)
        NNC_JSON(w, J_INT("classes", v->classes));
    nnc_json_open(w, "args", '[');
    for (int i = 0; i < v->n_arg; i++)
        NNC_JSON_ROW(w, 2, J_STRING("name", v->arg[i].name), J_STRING("value", v->arg[i].value));
    nnc_json_close(w, ']');
    nnc_json_open(w, "files", '[');
    for (int i = 0; i < v->n_file; i++) {
        snprintf(text, sizeof text, "%016llx", (unsigned long long)v->file[i].hash);
        NNC_JSON_ROW(w, 2, J_STRING("name", v->file[i].name), J_INT("size", v->file[i].size),
            J_STRING("hash", text));
    }
    nnc_json_close(w, ']');
    nnc_json_open(w, "pieces", '[');
    for (int i = 0; i < v->n_piece; i++)
        NNC_JSON_ROW(w, 2, J_INT("file", v->piece[i].file), J_INT("at", v->piece[i].at),
            J_INT("size", v->piece[i].size));
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}

void nnc_given_bytes(const nnc_given *v, nnc_text *out)
{
    for (int i = 0; i < v->n_piece; i++)
        nnc_putn(out, v->piece[i].data, (size_t)v->piece[i].size);
}

/* ---- back ------------------------------------------------------------------------------------ */

static int length(const nnc_item *o, const char *key)
{
    const nnc_item *list = nnc_json_get(o, key);
    return nnc_is_list(list) ? list->n : -1;
}

/* An integer from 0 to `most`; -1: it is none. */
static int64_t int_of(const nnc_item *o, const char *key, int64_t most)
{
    const nnc_item *v = nnc_json_get(o, key);
    bool ok = nnc_is_number(v) && v->number >= 0 && v->number <= (double)most &&
              v->number == floor(v->number);
    return ok ? (int64_t)v->number : -1;
}

/* *out: a copy of the string. */
static nnc_status string(nnc_given *v, const nnc_item *o, const char *key, const char **out)
{
    const char *text = nnc_json_text(o, key);
    *out = nnc_arena_strdup(&v->arena, text);
    return *out ? NNC_OK : text ? NNC_E_NOMEM : NNC_E_MODEL;
}

static nnc_status read_pieces(const nnc_item *o, nnc_blob bytes, nnc_given *v)
{
    int i = 0;
    int64_t from = 0;
    for (const nnc_item *e = nnc_json_get(o, "pieces")->child; e; e = e->next, i++) {
        int64_t file = int_of(e, "file", v->n_file - 1), size = int_of(e, "size", (int64_t)bytes.n);
        int64_t at = file >= 0 ? int_of(e, "at", v->file[file].size) : -1;
        if (at < 0 || size < 0 || size > (int64_t)bytes.n - from || at > v->file[file].size - size)
            return NNC_E_MODEL;
        if (!nnc_given_keep(v, i, (int)file, at, (const char *)bytes.data + from, size))
            return NNC_E_NOMEM;
        from += size;
    }
    return from == (int64_t)bytes.n ? NNC_OK : NNC_E_MODEL;
}

static nnc_status read_lists(const nnc_item *o, nnc_blob bytes, nnc_given *v)
{
    int i = 0;
    for (const nnc_item *e = nnc_json_get(o, "args")->child; e; e = e->next, i++) {
        NNC_TRY(string(v, e, "name", &v->arg[i].name));
        NNC_TRY(string(v, e, "value", &v->arg[i].value));
    }
    i = 0;
    for (const nnc_item *e = nnc_json_get(o, "files")->child; e; e = e->next, i++) {
        const char *hash = nnc_json_text(e, "hash");
        v->file[i].size = int_of(e, "size", (int64_t)1 << 46);
        v->file[i].hash = hash ? strtoull(hash, NULL, 16) : 0;
        if (!hash || v->file[i].size < 0)
            return NNC_E_MODEL;
        NNC_TRY(string(v, e, "name", &v->file[i].name));
    }
    return read_pieces(o, bytes, v);
}

NNC_OWNER(nnc_given, nnc_given_drop)

nnc_status nnc_given_read(const nnc_item *o, nnc_blob bytes, nnc_given **out)
{
    const char *seed = nnc_json_text(o, "seed");
    int files = length(o, "files"), pieces = length(o, "pieces"), args = length(o, "args");
    if (!seed || files < 1 || pieces < 0 || args < 0)
        return NNC_E_MODEL;
    NNC_OWNED(nnc_given) *v = nnc_given_create(files, pieces, args);
    if (!v)
        return NNC_E_NOMEM;
    v->seed = strtoull(seed, NULL, 10);
    v->classes = (int)nnc_max64(int_of(o, "classes", INT32_MAX), 0);
    if (nnc_json_text(o, "weights"))
        NNC_TRY(string(v, o, "weights", &v->weights));
    if (nnc_json_text(o, "place"))
        NNC_TRY(string(v, o, "place", &v->place));
    NNC_TRY(read_lists(o, bytes, v));
    *out = v;
    v = NULL;
    return NNC_OK;
}
