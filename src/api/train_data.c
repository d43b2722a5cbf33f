/* api/train_data.c -- data of training: tensors with a row for each sample, held in memory in the types of the model's inputs, and an order
 * of rows. */
#include "api/train_data.h"
#include "tensors/tensors.h"

#include <string.h>

/* The tensor of this name, or (any) the only one of a file that has no names. */
static const nnc_tensor_entry *entry_of(const nnc_tensors *t, const char *name, bool any)
{
    const nnc_tensor_entry *e = nnc_tensors_find(t, name);
    if (e || nnc_tensors_count(t) != 1 || !any)
        return e;
    e = nnc_tensors_at(t, 0);
    return *e->name ? NULL : e;
}

static nnc_status mismatch(const char *file, const char *name, const nnc_type *want,
    const nnc_tensor_entry *e, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) wanted = {0}, is = {0};

    nnc_put_type(&is, &e->type);
    nnc_put_type(&wanted, want);
    const nnc_loc loc = {.file = file};
    return nnc_fail(sink, NNC_E_MODEL, loc,
        "the rows of %s are %s; a batch of the model is %s, so each row has its dimensions but the "
        "first",
        name, nnc_text_str(&is), nnc_text_str(&wanted));
}

static bool fits(const nnc_type *want, const nnc_type *is)
{
    bool ok = want->rank == is->rank && want->rank > 0 && is->dim[0] > 0;
    for (int d = 1; d < want->rank && ok; d++)
        ok = want->dim[d] == is->dim[d];
    return ok;
}

/* Numbers as the model's input has them: 32-bit floats from any others, indices from integers. */
static void convert(const rows *r, const nnc_type *is, const void *from)
{
    const nnc_dtype to = (nnc_dtype)r->type.dtype, of = (nnc_dtype)is->dtype;
    for (int64_t i = 0, n = nnc_type_numel(is); i < n; i++)
        nnc_is_float(to) ? nnc_set_f64(to, r->data, i, nnc_get_f64(of, from, i))
                         : nnc_set_i64(to, r->data, i, nnc_get_i64(of, from, i));
}

static nnc_status read_rows(
    rows *r, const nnc_tensors *t, const char *file, bool any, nnc_sink *sink)
{
    const nnc_tensor_entry *e = entry_of(t, r->name, any);
    const nnc_loc loc = {.file = file};
    if (!e)
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "there is no tensor named %s, which the model needs for training", r->name);
    if (e->why)
        return nnc_fail(sink, NNC_E_MODEL, loc, "%s: %s", r->name, e->why);
    if (!fits(&r->type, &e->type))
        return mismatch(file, r->name, &r->type, e, sink);
    const nnc_dtype to = (nnc_dtype)r->type.dtype, of = (nnc_dtype)e->type.dtype;
    if (!nnc_is_float(to) && nnc_is_float(of))
        return nnc_fail(sink, NNC_E_MODEL, loc, "%s holds %s; it must hold integers", r->name,
            nnc_dtype_name(of));
    r->row = nnc_type_numel(&r->type) / r->type.dim[0] * nnc_dtype_size(to);
    r->n = e->type.dim[0];
    r->data = nnc_malloc((size_t)(r->n * r->row));
    NNC_NEED(r->data, sink);
    if (to == of)
        return nnc_tensors_read(t, e, r->data, sink);
    NNC_FREED void *from = nnc_malloc((size_t)nnc_max64(e->size, 1));
    NNC_NEED(from, sink);
    NNC_TRY(nnc_tensors_read(t, e, from, sink));
    convert(r, &e->type, from);
    return NNC_OK;
}

/* All indices must be classes. */
static nnc_status check_classes(const rows *r, int64_t classes, const char *file, nnc_sink *sink)
{
    const int64_t n = r->n * r->row / 8;
    for (int64_t i = 0; i < n && classes; i++) {
        int64_t c = ((const int64_t *)r->data)[i];
        if (c < 0 || c >= classes)
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
                "%s has class %lld at %lld; the model's prediction has classes 0 to %lld", r->name,
                (long long)c, (long long)i, (long long)classes - 1);
    }
    return NNC_OK;
}

nnc_status dataset_read(
    dataset *d, const char *data, const char *labels, int64_t classes, nnc_sink *sink)
{
    nnc_tensors *t = NULL, *u = NULL;
    nnc_status s = nnc_tensors_open(data, NULL, &t, sink);
    if (!s && labels)
        s = nnc_tensors_open(labels, NULL, &u, sink);
    for (int i = 0; i < d->n_rows && !s; i++) {
        rows *r = &d->rows[i];
        const bool target = !strcmp(r->name, NNC_TRAIN_TARGET);
        const char *file = target && labels ? labels : data;
        const bool any = target ? u != NULL : d->n_rows == 2; /* the file is of this tensor alone */
        s = read_rows(r, target && u ? u : t, file, any, sink);
        if (!s && target)
            s = check_classes(r, classes, file, sink);
        if (!s && r->n != d->rows[0].n)
            s = nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file}, "%s has %lld rows, %s %lld",
                r->name, (long long)r->n, d->rows[0].name, (long long)d->rows[0].n);
    }
    nnc_tensors_close(t);
    nnc_tensors_close(u);
    if (!s) {
        d->n = d->rows[0].n;
        d->order = nnc_malloc((size_t)d->n * sizeof *d->order);
        NNC_NEED(d->order, sink);
        for (int64_t i = 0; i < d->n; i++)
            d->order[i] = i;
    }
    return s;
}

void dataset_shuffle(dataset *d, int64_t first, int64_t n, uint64_t seed, const char *name)
{
    const uint64_t key = nnc_rng_key(name, seed);
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)((uint64_t)nnc_rng_u32(key, (uint64_t)i) * (uint64_t)(i + 1) >> 32);
        int64_t o = d->order[first + i];
        d->order[first + i] = d->order[first + j];
        d->order[first + j] = o;
    }
}

void dataset_batch(const dataset *d, int which, int64_t first, void *to)
{
    const rows *r = &d->rows[which];
    for (int64_t i = 0; i < r->type.dim[0]; i++)
        memcpy((char *)to + i * r->row, (const char *)r->data + d->order[first + i] * r->row,
            (size_t)r->row);
}

void dataset_deinit(dataset *d)
{
    for (int i = 0; i < d->n_rows; i++)
        nnc_free(d->rows[i].data);
    nnc_free(d->order);
}
