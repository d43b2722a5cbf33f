/* onnx/weights.c -- tensors of the file: weights are left where they are, and integers, which shapes may follow from, become constants.
 * External data lie in files of the model's folder, and nowhere else. */
#include "onnx/internal.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool bad(ox *x, const ox_tensor *t, const char *what, const char *why)
{
    return ox_stop(x, nnc_fail(x->sink, NNC_E_MODEL, (nnc_loc){.file = x->file}, "%s `%.100s`: %s",
                          what, t->name, why));
}

void ox_close_outside(ox *x)
{
    for (ox_outside *f = x->outside; f; f = f->next)
        nnc_map_close(&f->map);
}

/* The number of a file of which something was kept when the model was imported first; 0: there is none. */
static int kept_outside(const ox *x, const char *location)
{
    const nnc_given *v = x->o->given;
    for (int i = 1; v && i < v->n_file; i++)
        if (!strcmp(v->file[i].name, location))
            return i;
    return 0;
}

/* Does the path, links resolved, lie in the folder, or below? */
static bool lies_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return !strncmp(path, folder, n) && (path[n] == '/' || folder[n - 1] == '/');
}

/* The folder of the real file if the model is a link, as in Hugging Face's cache. The data are beside that file. */
static bool real_folder(const ox *x, char folder[PATH_MAX])
{
    char *slash = realpath(x->file, folder) ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = 0;
    return slash != NULL;
}

/* The path of a file beside the model; NULL: it lies elsewhere, or does not exist, which *why says. */
static const char *inside(ox *x, const char *location, const char **why)
{
    char folder[PATH_MAX], path[PATH_MAX];
    const char *slash = strrchr(x->file, '/');
    const char *dir =
        slash ? nnc_arena_strndup(&x->a, x->file, (size_t)(slash - x->file) + 1) : "./";
    const char *joined = dir ? nnc_arena_printf(&x->a, "%s%s", dir, location) : NULL;
    *why = "of which nothing was kept";
    if (x->o->given) /* was checked before; the folder need not exist any more */
        return kept_outside(x, location) ? joined : NULL;
    *why = "which is not in the model's folder";
    if (!joined || *location == '/')
        return NULL;
    if (!realpath(dir, folder) || !realpath(joined, path)) {
        *why = "which does not exist";
        return NULL;
    }
    bool within = lies_in(path, folder) || (real_folder(x, folder) && lies_in(path, folder));
    return within ? joined : NULL;
}

/* Maps the file, or what was kept of it when the model was imported first. */
static nnc_status map_outside(ox *x, ox_outside *f)
{
    const int i = kept_outside(x, f->location);
    if (i) {
        f->hash = x->o->given->file[i].hash;
        return nnc_given_map(x->o->given, i, &f->map, x->sink);
    }
    NNC_TRY(nnc_map_open(&f->map, f->path, x->sink));
    f->hash = nnc_weight_file_hash(f->map.data, f->map.n);
    return NNC_OK;
}

static ox_outside *open_outside(ox *x, const ox_tensor *t, const char *what, const char *location)
{
    ox_outside *f = x->outside;
    while (f && strcmp(f->location, location) != 0)
        f = f->next;
    if (f)
        return f;
    const char *why = "";
    const char *path = inside(x, location, &why);
    if (!path) {
        bad(x, t, what,
            nnc_arena_printf(&x->a, "its data are in the file `%.200s`, %s", location, why));
        return NULL;
    }
    if (!(f = ARENA_NEW(&x->a, ox_outside, 1))) {
        ox_nomem(x);
        return NULL;
    }
    *f = (ox_outside){.location = location, .path = path, .next = x->outside};
    nnc_status st = map_outside(x, f);
    if (st) {
        ox_stop(x, st);
        return NULL;
    }
    return x->outside = f;
}

/* The bytes of an external tensor, which are kept where `read`, and w as a reference to them. */
static bool external(ox *x, const ox_tensor *t, const char *what, int64_t bytes, bool read,
    nnc_weight *w, const uint8_t **p)
{
    const char *location;
    int64_t offset, length, end;
    if (!ox_tensor_place(&x->r, t, &location, &offset, &length))
        return ox_stop(x, x->r.status);
    ox_outside *f = open_outside(x, t, what, location);
    if (!f)
        return false;
    if (length >= 0 && length != bytes)
        return bad(x, t, what, "its external data have another size than its shape and type say");
    if (!nnc_add_ok(offset, bytes, &end) || end > (int64_t)f->map.n)
        return bad(x, t, what, "its external data lie beyond the end of their file");
    *p = f->map.data + offset;
    *w = (nnc_weight){.kind = NNC_W_file,
        .name = t->name,
        .file = f->path,
        .offset = offset,
        .size = bytes,
        .header_hash = f->hash};
    if (read && x->o->given &&
        !nnc_given_has(x->o->given, kept_outside(x, location), offset, bytes))
        return bad(x, t, what,
            "other shapes need its numbers, which were not kept: compile the model again");
    return !read || ox_note_range(x, f, offset, bytes);
}

/* The type of a tensor that has elements; *empty: it has none. */
static bool type_of(ox *x, const ox_tensor *t, const char *what, nnc_type *out, bool *empty)
{
    nnc_dtype d;
    const char *why;
    *empty = false;
    if (!ox_dtype(t->code, &d))
        return bad(x, t, what,
            nnc_arena_printf(&x->a, "its type %s is unsupported", ox_dtype_name(t->code)));
    if (t->many)
        return bad(x, t, what, "it has more than 8 dimensions");
    for (int i = 0; i < t->rank; i++)
        *empty = *empty || t->dim[i] == 0;
    *out = nnc_type_make(d, *empty ? 0 : t->rank, t->dim);
    return *empty || nnc_type_check(out, &why) || bad(x, t, what, why);
}

/* Are raw data as in memory? */
static bool as_stored(const ox_tensor *t, const nnc_type *type)
{
    return type->dtype != DT_bool && !ox_bits(t->code);
}

/* Numbers that lie in the model as in memory. */
static const uint8_t *in_place(const ox_tensor *t, const nnc_type *type)
{
    return t->raw.p && as_stored(t, type) && (int64_t)t->raw.n == nnc_type_bytes(type) ? t->raw.p
                                                                                       : NULL;
}

/* A short message cannot hold many numbers: refused before memory for them is taken. */
static const char *too_short(const ox_tensor *t, int64_t n)
{
    int bits = ox_bits(t->code);
    return (uint64_t)n / (bits ? 8 / (uint64_t)bits : 1) > t->msg.n
               ? "it has fewer numbers than its shape says"
               : NULL;
}

/* The tensor's numbers in memory of their own, at *own, or where they lie. */
static const void *numbers(
    ox *x, const ox_tensor *t, const char *what, const nnc_type *type, void **own)
{
    const uint8_t *p = in_place(t, type);
    int64_t n = nnc_type_numel(type), bytes = nnc_type_bytes(type);
    ox_tensor here = *t;
    nnc_weight w;
    if (t->external) {
        int64_t stored = ox_bits(t->code) ? nnc_ceildiv(n * ox_bits(t->code), 8) : bytes;
        if (!external(x, t, what, stored, true, &w, &here.raw.p))
            return NULL;
        here.raw.n = (size_t)stored;
        p = as_stored(t, type) ? here.raw.p : NULL;
    }
    if (p)
        return p;
    const char *why = t->external ? NULL : too_short(t, n);
    if (!why && !(*own = nnc_malloc((size_t)bytes)))
        return ox_nomem(x), NULL;
    if (!why)
        why = ox_tensor_data(&here, type->dtype, n, *own);
    return why ? (bad(x, t, what, why), NULL) : *own;
}

bool ox_constant(ox *x, const ox_tensor *t, const char *what, ox_value *out)
{
    nnc_type type;
    bool empty;
    NNC_FREED void *own = NULL;
    if (!type_of(x, t, what, &type, &empty))
        return false;
    *out = (ox_value){.state = empty ? OX_empty : OX_here,
        .ref = NNC_NONE,
        .bits = (uint8_t)ox_bits(t->code),
        .dtype = type.dtype,
        .rank = t->rank};
    memcpy(out->dim, t->dim, sizeof out->dim);
    if (empty)
        return true;
    const void *data = numbers(x, t, what, &type, &own);
    if (!data)
        return false;
    out->ref = nnc_constant(x->g, &type, data);
    return out->ref != NNC_NONE || ox_stop(x, x->g->status);
}

bool ox_weight(ox *x, const ox_tensor *t, const char *what, ox_value *out)
{
    nnc_type type;
    bool empty;
    if (!type_of(x, t, what, &type, &empty))
        return false;
    bool small = !empty && nnc_type_bytes(&type) <= OX_MAX_KNOWN;
    if (empty || type.rank == 0 || (small && !nnc_is_float(type.dtype)))
        return ox_constant(x, t, what, out);
    NNC_FREED void *own = NULL;
    nnc_weight w = {.kind = NNC_W_inline, .name = t->name, .size = nnc_type_bytes(&type)};
    const uint8_t *p = in_place(t, &type);
    if (t->external && as_stored(t, &type)) {
        if (!external(x, t, what, w.size, false, &w, &p))
            return false;
    } else if (p && x->mapped) {
        w = (nnc_weight){.kind = NNC_W_file,
            .name = t->name,
            .data = x->o->held ? p : NULL,
            .file = x->file,
            .offset = p - x->data.p,
            .size = w.size,
            .header_hash = x->file_hash};
        if (w.size > OX_MAX_KNOWN && !ox_note_range(x, NULL, w.offset, w.size))
            return false;
    } else if (!(w.data = numbers(x, t, what, &type, &own))) {
        return false;
    }
    *out = (ox_value){.state = OX_here,
        .ref = nnc_param(x->g, &type, &w),
        .bits = (uint8_t)ox_bits(t->code),
        .dtype = type.dtype};
    return out->ref != NNC_NONE || ox_stop(x, x->g->status);
}

nnc_status nnc_onnx_read_tensor(const char *file, nnc_tensor *out, nnc_sink *sink)
{
    nnc_map m;
    ox_tensor t;
    nnc_type type = {0};
    bool empty;
    *out = (nnc_tensor){0};
    NNC_TRY(nnc_map_open(&m, file, sink));
    ox x = {.file = file, .sink = sink};
    x.r = (ox_reader){.a = &x.a, .sink = sink, .file = file};
    if (!ox_read_tensor(&x.r, (ox_span){m.data, m.n}, &t))
        ox_stop(&x, x.r.status);
    else if (type_of(&x, &t, "tensor", &type, &empty) && empty) {
        out->type = type; /* without data */
        out->type.rank = (uint8_t)t.rank;
        memcpy(out->type.dim, t.dim, sizeof t.dim);
    } else if (!x.status && too_short(&t, nnc_type_numel(&type)))
        bad(&x, &t, "tensor", too_short(&t, nnc_type_numel(&type)));
    else if (!x.status && !(x.status = nnc_tensor_alloc(out, &type, sink))) {
        const char *why = ox_tensor_data(&t, type.dtype, nnc_type_numel(&type), out->data);
        if (why)
            bad(&x, &t, "tensor", why);
    }
    if (x.status)
        nnc_tensor_deinit(out);
    nnc_arena_deinit(&x.a);
    nnc_map_close(&m);
    return x.status;
}
