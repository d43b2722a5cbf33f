/* tensors/safetensors.c -- files of named tensors: 8 bytes little-endian header length, a JSON header {name: {dtype, shape,
 * data_offsets}}, then the bytes. The header is verified: lengths against the file, and sizes against shapes. As the format requires,
 * the offsets must cover the data without gaps or overlaps. */
#include "tensors/internal.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER (100 << 20) /* bytes; the limit of the format's own readers */

static const struct dtype_name {
    const char *name;
    nnc_dtype d;
} dtypes[] = {{"F64", DT_f64}, {"F32", DT_f32}, {"F16", DT_f16}, {"BF16", DT_bf16}, {"I8", DT_i8},
    {"I16", DT_i16}, {"I32", DT_i32}, {"I64", DT_i64}, {"U8", DT_u8}, {"U16", DT_u16},
    {"U32", DT_u32}, {"U64", DT_u64}, {"BOOL", DT_bool}};

static nnc_status bad(const char *file, nnc_sink *sink, const char *name, const char *why)
{
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
        "damaged safetensors file: tensor `%.100s`: %s", name, why);
}

static bool whole(const nnc_item *v, int64_t *out)
{
    if (!nnc_is_number(v) || !(v->number >= 0 && v->number <= 0x1p53) ||
        v->number != (double)(int64_t)v->number)
        return false;
    *out = (int64_t)v->number;
    return true;
}

/* Fills e. A damaged entry is an error; a valid one that nnc cannot read is an error only for the weight that needs it (e->why). */
static nnc_status read_entry(
    const char *file, const nnc_item *item, nnc_tensor_entry *e, nnc_sink *sink)
{
    const nnc_item *d = nnc_json_get(item, "dtype"), *shape = nnc_json_get(item, "shape"),
                   *off = nnc_json_get(item, "data_offsets");
    int64_t dim[NNC_MAX_RANK], extent, end;
    int rank = 0;
    bool empty = false;
    size_t k = 0;
    if (!nnc_is_string(d))
        return bad(file, sink, item->key, "its dtype is missing");
    while (k < NNC_COUNT(dtypes) && strcmp(d->text, dtypes[k].name) != 0)
        k++;
    if (!nnc_is_list(shape))
        return bad(file, sink, item->key, "its shape is missing");
    for (const nnc_item *s = shape->child; s; s = s->next, rank++) {
        if (!whole(s, &extent))
            return bad(file, sink, item->key, "its shape is not a list of extents");
        if (rank < NNC_MAX_RANK)
            dim[rank] = extent;
        empty |= extent == 0;
    }
    if (!nnc_is_list(off) || off->n != 2 || !whole(off->child, &e->offset) ||
        !whole(off->child->next, &end) || end < e->offset)
        return bad(file, sink, item->key, "its data_offsets are not two ascending numbers");
    e->size = end - e->offset;
    e->why = k == NNC_COUNT(dtypes) ? "its dtype is unsupported"
             : empty                ? "it is empty"
             : rank > NNC_MAX_RANK  ? "it has more than 8 dimensions"
                                    : NULL;
    if (e->why)
        return NNC_OK;
    const char *why;
    e->type = nnc_type_make(dtypes[k].d, rank, dim);
    if (!nnc_type_check(&e->type, &why))
        return bad(file, sink, item->key, why);
    if (e->size != nnc_type_bytes(&e->type))
        return bad(file, sink, item->key, "its data_offsets do not match its shape and dtype");
    return NNC_OK;
}

NNC_ORDER(by_offset, nnc_tensor_entry, nnc_cmp(a->offset, b->offset),
    nnc_cmp(a->size, b->size) /* empty ones first */)

static nnc_status read_header(
    nnc_tensors *s, const nnc_item *root, int64_t data, int64_t n_data, nnc_sink *sink)
{
    const char *file = s->file;
    int64_t at = 0;
    if (!nnc_is_object(root))
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
            "damaged safetensors file: its header is not an object");
    s->entry = ARENA_NEW(&s->a, nnc_tensor_entry, root->n + 1);
    NNC_NEED(s->entry, sink);
    for (const nnc_item *i = root->child; i; i = i->next) {
        if (!strcmp(i->key, "__metadata__") && nnc_is_object(i))
            continue;
        if (!strcmp(i->key, "__metadata__"))
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
                "damaged safetensors file: its __metadata__ is not an object");
        NNC_TRY(read_entry(file, i, &s->entry[s->n], sink));
        s->entry[s->n].name = nnc_arena_strdup(&s->a, i->key);
        NNC_NEED(s->entry[s->n++].name, sink);
    }
    qsort(s->entry, (size_t)s->n, sizeof *s->entry, by_offset);
    for (int i = 0; i < s->n; i++) {
        if (s->entry[i].offset != at)
            return bad(
                file, sink, s->entry[i].name, "its bytes overlap another's, or leave a hole");
        at += s->entry[i].size;
        if (at > n_data)
            return bad(file, sink, s->entry[i].name, "its bytes lie beyond the end of the file");
        s->entry[i].offset += data;
    }
    if (at != n_data)
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
            "damaged safetensors file: the tensors take %lld bytes, the file holds %lld",
            (long long)at, (long long)n_data);
    return NNC_OK;
}

nnc_status nnc_safetensors_list(nnc_tensors *t, nnc_sink *sink)
{
    uint64_t len = 0;
    NNC_LOCAL(nnc_json) j = {0};
    const nnc_map *m = &t->map;
    nnc_loc loc = {.file = t->file};
    if (m->n < 8)
        return nnc_fail(sink, NNC_E_MODEL, loc, "not a safetensors file: it has %zu bytes", m->n);
    for (int i = 7; i >= 0; i--)
        len = len << 8 | m->data[i];
    if (len > m->n - 8 || len > MAX_HEADER)
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "not a safetensors file: its header would have %llu bytes, the file has %zu",
            (unsigned long long)len, m->n);
    NNC_TRY(nnc_json_parse(&j, t->file, (const char *)m->data + 8, (size_t)len, sink));
    return read_header(t, j.root, 8 + (int64_t)len, (int64_t)(m->n - 8 - len), sink);
}

/* ---- writing --------------------------------------------------------------------------------- */

static const char *name_of(nnc_dtype d)
{
    size_t k = 0;
    while (dtypes[k].d != d)
        k++;
    return dtypes[k].name;
}

nnc_status nnc_safetensors_put(const nnc_tensor_source *s, nnc_out *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) x = {0};
    int64_t at = 0;
    nnc_putc(&x, '{');
    for (int i = 0; i < s->n; i++) {
        const nnc_type *t = s->type[i];
        nnc_puts(&x, i ? "," : "");
        nnc_put_json_string(&x, s->name[i]);
        nnc_printf(&x, ":{\"dtype\":\"%s\",\"shape\":[", name_of((nnc_dtype)t->dtype));
        for (int k = 0; k < t->rank; k++)
            nnc_printf(&x, "%s%lld", k ? "," : "", (long long)t->dim[k]);
        nnc_printf(&x, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
            (long long)(at + nnc_type_bytes(t)));
        at += nnc_type_bytes(t);
    }
    nnc_putc(&x, '}');
    while (x.n % 8 && !x.oom) /* so that the first tensor is aligned */
        nnc_putc(&x, ' ');
    if (x.oom)
        return nnc_nomem(sink);
    uint8_t len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (uint8_t)((uint64_t)x.n >> 8 * i);
    NNC_TRY(nnc_out_put(out, len, 8));
    NNC_TRY(nnc_out_put(out, x.s, x.n));
    for (int i = 0; i < s->n; i++) {
        const void *data;
        NNC_TRY(s->data(s->ctx, i, &data, sink));
        NNC_TRY(nnc_out_put(out, data, (size_t)nnc_type_bytes(s->type[i])));
    }
    return NNC_OK;
}
