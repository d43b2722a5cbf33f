/* tensors/file.c -- opens, reads and writes a file of tensors in the format that it has. */
#include "tensors/internal.h"
#include <stdlib.h>
#include <string.h>

/* The extension, with its dot, of the last component; "" = none, as of the folders . and .. */
static const char *extension(const char *file)
{
    const char *slash = strrchr(file, '/'), *dot = strrchr(slash ? slash : file, '.');
    return dot && dot[1] ? dot : "";
}

static bool has(const char *file, const char *ext)
{
    return !strcmp(extension(file), ext);
}

bool nnc_tensors_raw(const char *file)
{
    return has(file, ".bin") || has(file, ".raw");
}

bool nnc_tensors_named(const char *file)
{
    return has(file, ".npz") || has(file, ".safetensors") || has(file, ".st");
}

/* ---- opening --------------------------------------------------------------------------------- */

static nnc_status list_one(
    nnc_tensors *t, const nnc_tensor_entry *e, const nnc_packing *k, nnc_sink *sink)
{
    nnc_packing *kept = nnc_arena_memdup(&t->a, k, sizeof *k);
    t->entry = nnc_arena_memdup(&t->a, e, sizeof *e);
    NNC_NEED(kept && t->entry, sink);
    t->entry->name = "";
    t->entry->packing = kept;
    t->n = 1;
    return NNC_OK;
}

static nnc_status list_npy(nnc_tensors *t, nnc_sink *sink)
{
    nnc_npy_header h;
    const nnc_map *m = &t->map;
    const char *why = nnc_npy_parse(m->data, m->n, &h);
    const nnc_loc loc = {.file = t->file};
    if (why)
        return nnc_fail(sink, NNC_E_MODEL, loc, "not a .npy file that nnc reads: %s", why);
    const int64_t bytes = nnc_type_bytes(&h.type), there = (int64_t)(m->n - h.size);
    if (bytes != there)
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "its shape needs %lld bytes of data, the file has %lld", (long long)bytes,
            (long long)there);
    bool as_is = !h.swap && !h.fortran && h.type.dtype != DT_bool;
    const nnc_tensor_entry e = {
        .type = h.type, .offset = as_is ? (int64_t)h.size : -1, .size = bytes};
    const nnc_packing k = {
        m->data, m->n, m->n, .head = h.size, .swap = h.swap, .fortran = h.fortran};
    return list_one(t, &e, &k, sink);
}

bool nnc_npy_is_empty(const char *file, nnc_type *type)
{
    nnc_map m;
    nnc_npy_header h;
    bool none = false;
    char c;
    if (!nnc_file_start(file, &c, 1) || nnc_map_open(&m, file, NULL) != NNC_OK)
        return false;
    (void)nnc_npy_parse(m.data, m.n, &h); /* extents of 0 are refused after the type is set */
    for (int i = 0; i < h.type.rank; i++)
        none |= h.type.dim[i] == 0;
    if (type)
        *type = h.type;
    nnc_map_close(&m);
    return none;
}

static nnc_status list_raw(nnc_tensors *t, const nnc_type *raw, nnc_sink *sink)
{
    const nnc_map *m = &t->map;
    const nnc_loc loc = {.file = t->file};
    if (!raw)
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "has raw numbers without names and shapes; expected .npz or .safetensors");
    const nnc_tensor_entry e = {.type = *raw, .size = nnc_type_bytes(raw)};
    const nnc_packing k = {m->data, m->n, m->n};
    if ((int64_t)m->n == e.size)
        return list_one(t, &e, &k, sink);
    NNC_LOCAL(nnc_text) want = {0};
    nnc_put_type(&want, raw);
    return nnc_fail(sink, NNC_E_MODEL, loc, "raw numbers of a %s take %lld bytes, the file has %zu",
        nnc_text_str(&want), (long long)e.size, m->n);
}

/* A header of at most 100 MB, the format's limit, and its opening brace. Text may have a brace at the same place. */
static bool begins_safetensors(const nnc_map *m)
{
    uint64_t header = 0;
    if (m->n <= 8 || m->data[8] != '{')
        return false;
    for (int i = 8; i-- > 0;)
        header = header << 8 | m->data[i];
    return header <= 100000000;
}

static nnc_status list(nnc_tensors *t, const nnc_type *raw, nnc_sink *sink)
{
    const nnc_map *m = &t->map;
    const char *const p = (const char *)m->data;
    if (nnc_tensors_raw(t->file))
        return list_raw(t, raw, sink);
    if (has(t->file, ".npy") || (m->n >= 6 && !memcmp(p, "\x93NUMPY", 6)))
        return list_npy(t, sink);
    if (has(t->file, ".npz") || (m->n >= 4 && (!memcmp(p, "PK\3\4", 4) || !memcmp(p, "PK\5\6", 4))))
        return nnc_npz_list(t, sink);
    if (has(t->file, ".safetensors") || has(t->file, ".st") || begins_safetensors(m))
        return nnc_safetensors_list(t, sink);
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = t->file},
        "is no file of tensors that nnc reads; expected .npy, .npz, .safetensors, or raw numbers "
        "(.bin)");
}

NNC_ORDER(by_name, nnc_tensor_entry, strcmp(a->name, b->name))

static nnc_status sort(nnc_tensors *t, nnc_sink *sink)
{
    qsort(t->entry, (size_t)t->n, sizeof *t->entry, by_name);
    for (int i = 1; i < t->n; i++)
        if (!strcmp(t->entry[i - 1].name, t->entry[i].name))
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = t->file},
                "has two tensors named `%.100s`", t->entry[i].name);
    return NNC_OK;
}

nnc_status nnc_tensors_open(
    const char *file, const nnc_type *raw, nnc_tensors **out, nnc_sink *sink)
{
    *out = NULL;
    nnc_tensors *t = nnc_calloc(1, sizeof *t);
    NNC_NEED(t, sink);
    t->file = nnc_arena_strdup(&t->a, file);
    nnc_status st = t->file ? nnc_map_open(&t->map, file, sink) : nnc_nomem(sink);
    if (!st)
        st = list(t, raw, sink);
    if (!st)
        st = sort(t, sink);
    if (!st)
        t->hash = nnc_weight_file_hash(t->map.data, t->map.n);
    if (st)
        nnc_tensors_close(t);
    else
        *out = t;
    return st;
}

static nnc_status list_weights(
    nnc_tensors *t, int n, const nnc_weight *const *w, const nnc_type *const *type, nnc_sink *sink)
{
    t->entry = ARENA_NEW(&t->a, nnc_tensor_entry, n + 1);
    nnc_packing *k = ARENA_NEW(&t->a, nnc_packing, n + 1);
    NNC_NEED(t->file && t->entry && k, sink);
    for (; t->n < n; t->n++) {
        const bool there = w[t->n]->kind == NNC_W_file;
        nnc_tensor_entry *e = &t->entry[t->n];
        *e = (nnc_tensor_entry){.name = nnc_arena_strdup(&t->a, w[t->n]->name),
            .type = *type[t->n],
            .offset = there ? w[t->n]->offset : -1,
            .size = w[t->n]->size,
            .data = there ? w[t->n]->data : NULL};
        NNC_NEED(e->name, sink);
        if (there)
            t->hash = w[t->n]->header_hash;
        k[t->n] = (nnc_packing){w[t->n]->data, (uint64_t)e->size, (uint64_t)e->size};
        e->packing = there ? NULL : &k[t->n];
    }
    return sort(t, sink);
}

nnc_status nnc_tensors_listed(const char *file, int n, const nnc_weight *const *w,
    const nnc_type *const *type, nnc_tensors **out, nnc_sink *sink)
{
    *out = NULL;
    nnc_tensors *t = nnc_calloc(1, sizeof *t);
    NNC_NEED(t, sink);
    t->file = nnc_arena_strdup(&t->a, file);
    nnc_status st = list_weights(t, n, w, type, sink);
    if (st)
        nnc_tensors_close(t);
    else
        *out = t;
    return st;
}

void nnc_tensors_close(nnc_tensors *t)
{
    if (!t)
        return;
    nnc_map_close(&t->map);
    nnc_arena_deinit(&t->a);
    nnc_free(t);
}

int nnc_tensors_count(const nnc_tensors *t)
{
    return t->n;
}

const nnc_tensor_entry *nnc_tensors_at(const nnc_tensors *t, int i)
{
    return &t->entry[i];
}

const nnc_tensor_entry *nnc_tensors_find(const nnc_tensors *t, const char *name)
{
    nnc_tensor_entry key = {.name = name};
    return t->n ? bsearch(&key, t->entry, (size_t)t->n, sizeof key, by_name) : NULL;
}

uint64_t nnc_tensors_hash(const nnc_tensors *t)
{
    return t->hash;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Does the name match the pattern, in which one * stands for any characters? Those are at *star, *n of them. */
static bool matches(const char *pattern, const char *name, const char **star, size_t *n)
{
    const char *at = strchr(pattern, '*');
    const size_t head = at ? (size_t)(at - pattern) : 0, length = strlen(name);
    if (!at)
        return *n = 0, *star = name, !strcmp(pattern, name);
    const size_t tail = strlen(at + 1);
    if (length < head + tail || strncmp(pattern, name, head) != 0 ||
        strcmp(name + length - tail, at + 1) != 0)
        return false;
    *star = name + head;
    *n = length - head - tail;
    return true;
}

static nnc_status check_rule(const nnc_arg *r, nnc_sink *sink)
{
    const char *const name[] = {r->name, r->value};
    for (int i = 0; i < 2; i++) {
        const char *star = strchr(name[i], '*');
        if (star && (strchr(star + 1, '*') || !strchr(r->name, '*')))
            return nnc_fail0(sink, NNC_E_USAGE,
                "--rename %s=%s: expected at most one * on each side, and one on the right only "
                "with one on the left",
                r->name, r->value);
    }
    return NNC_OK;
}

nnc_status nnc_tensors_rename(nnc_tensors *t, const nnc_arg *rule, int n_rule, nnc_sink *sink)
{
    int kept = 0;
    bool *met = ARENA_NEW(&t->a, bool, n_rule + 1);
    NNC_NEED(met, sink);
    for (int r = 0; r < n_rule; r++)
        NNC_TRY(check_rule(&rule[r], sink));
    for (int i = 0; i < t->n; i++) {
        nnc_tensor_entry e = t->entry[i];
        const char *star = "";
        size_t n = 0;
        int r = 0;
        while (r < n_rule && !matches(rule[r].name, e.name, &star, &n))
            r++;
        if (r < n_rule) {
            const char *to = rule[r].value, *at = strchr(to, '*');
            met[r] = true;
            if (!strcmp(to, "-"))
                continue;
            e.name =
                at ? nnc_arena_printf(&t->a, "%.*s%.*s%s", (int)(at - to), to, (int)n, star, at + 1)
                   : nnc_arena_strdup(&t->a, to);
            NNC_NEED(e.name, sink);
        }
        t->entry[kept++] = e;
    }
    t->n = kept;
    for (int r = 0; r < n_rule; r++)
        if (!met[r])
            nnc_warn(sink, (nnc_loc){.file = t->file}, "no tensor is named %s, as --rename says",
                rule[r].name);
    return sort(t, sink);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Inflates an entry: its header to memory of its own, its numbers to dst. */
static const char *unpack(const nnc_packing *k, uint8_t *dst, uint32_t *crc)
{
    NNC_FREED uint8_t *head = nnc_malloc((size_t)k->head + 1);
    if (!head)
        return "there is no memory for it";
    const char *why = nnc_unzip(k, head, k->head, dst);
    if (!why)
        *crc = nnc_crc32(nnc_crc32(0, head, (size_t)k->head), dst, (size_t)(k->size - k->head));
    return why;
}

static nnc_status fail_file(
    const nnc_tensors *t, const nnc_tensor_entry *e, const char *why, nnc_sink *sink)
{
    return nnc_fail(
        sink, NNC_E_MODEL, (nnc_loc){.file = t->file}, "tensor `%.100s`: %s", e->name, why);
}

static const char wrong_crc[] = "its checksum is wrong";

nnc_status nnc_tensors_mapped(
    const nnc_tensors *t, const nnc_tensor_entry *e, const void **out, nnc_sink *sink)
{
    const nnc_packing *k = e->packing;
    *out = e->offset >= 0 ? t->map.data + e->offset : NULL;
    if (e->why || (*out && k && k->checked && nnc_crc32(0, k->p, (size_t)k->n) != k->crc))
        return fail_file(t, e, e->why ? e->why : wrong_crc, sink);
    return NNC_OK;
}

nnc_status nnc_tensors_read(
    const nnc_tensors *t, const nnc_tensor_entry *e, void *dst, nnc_sink *sink)
{
    const nnc_packing *k = e->packing;
    const char *why = e->why;
    uint32_t crc = k ? k->crc : 0;
    const uint8_t *src = k ? k->p + k->head : t->map.data + e->offset;
    NNC_FREED uint8_t *own = NULL;
    if (!why && k && k->deflated) {
        if (k->fortran || k->swap) /* not converted in place */
            NNC_NEED((own = nnc_malloc((size_t)e->size)), sink);
        why = unpack(k, own ? own : dst, &crc);
        src = own ? own : dst;
    } else if (!why && k && k->checked) {
        crc = nnc_crc32(0, k->p, (size_t)k->n);
    }
    if (!why && k && k->checked && crc != k->crc)
        why = wrong_crc;
    if (why)
        return fail_file(t, e, why, sink);
    nnc_npy_convert(&e->type, k && k->swap, k && k->fortran, src, dst);
    return NNC_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct writing {
    const char *file;
    const nnc_tensor_source *s;
    nnc_sink *sink;
} writing;

static nnc_status put_tensor(void *ctx, nnc_out *out)
{
    const writing *w = ctx;
    const nnc_tensor_source *s = w->s;
    if (has(w->file, ".npz"))
        return nnc_npz_put(s, out, w->sink);
    if (nnc_tensors_named(w->file))
        return nnc_safetensors_put(s, out, w->sink);
    NNC_LOCAL(nnc_text) head = {0};
    const void *data;
    if (!nnc_tensors_raw(w->file))
        nnc_npy_put_header(&head, s->type[0]);
    if (head.oom)
        return nnc_nomem(w->sink);
    NNC_TRY(s->data(s->ctx, 0, &data, w->sink));
    NNC_TRY(nnc_out_put(out, nnc_text_str(&head), head.n));
    return nnc_out_put(out, data, (size_t)nnc_type_bytes(s->type[0]));
}

nnc_status nnc_tensors_check_name(const char *file, int n, nnc_sink *sink)
{
    const nnc_loc loc = {.file = file};
    if (nnc_tensors_named(file))
        return NNC_OK;
    if (!nnc_tensors_raw(file) && !has(file, ".npy") && *extension(file))
        return nnc_fail(sink, NNC_E_USAGE, loc,
            "nnc writes no %s files: name a file .npz or .safetensors%s", extension(file),
            n == 1 ? ", or .npy or .bin, which hold one tensor" : "");
    return n == 1 ? NNC_OK
                  : nnc_fail(sink, NNC_E_USAGE, loc,
                        "holds one tensor, not %d: name a file .npz or .safetensors", n);
}

nnc_status nnc_tensors_write(const char *file, const nnc_tensor_source *s, nnc_sink *sink)
{
    writing w = {file, s, sink};
    NNC_TRY(nnc_tensors_check_name(file, s->n, sink));
    return nnc_file_write_by(file, put_tensor, &w, s->durable, sink);
}

static nnc_status the_data(void *ctx, int i, const void **out, nnc_sink *sink)
{
    (void)i, (void)sink;
    *out = ctx;
    return NNC_OK;
}

nnc_status nnc_tensor_write(
    const char *file, const char *name, const nnc_type *t, const void *data, nnc_sink *sink)
{
    const nnc_tensor_source s = {1, &name, &t, the_data, (void *)(uintptr_t)data};
    return nnc_tensors_write(file, &s, sink);
}
