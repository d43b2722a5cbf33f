/* data/tensors.c -- rows of tensors as samples: .npz and .safetensors with a tensor for each input and the target, or an .npy file of the
 * only input. Numbers stay in their file where it has them as they are in memory, and are converted row by row. */
#include "data/internal.h"
#include "tensors/tensors.h"

#include <assert.h>
#include <string.h>

/* The tensor of an input. */
typedef struct column {
    const char *file, *name;
    nnc_type is, want; /* of all rows in the file; of a batch of the model */
    const uint8_t *at;
    void *own; /* numbers that do not lie in the file as in memory, or NULL */
    int64_t numbers; /* of a row */
} column;

typedef struct rows {
    nnc_source o;
    nnc_tensors *data, *labels;
    column *column;
    int n_column;
} rows;

/* ---- samples --------------------------------------------------------------------------------- */

static const uint8_t *row_at(const column *c, int64_t i)
{
    return c->at + i * c->numbers * nnc_dtype_size((nnc_dtype)c->is.dtype);
}

/* Number k of unaligned ones. */
static const void *aligned(nnc_dtype d, const uint8_t *p, int64_t k, uint64_t *to)
{
    const size_t n = (size_t)nnc_dtype_size(d);
    assert(p);
    memcpy(to, p + k * (int64_t)n, n);
    return to;
}

static nnc_status picture(
    const nnc_source *o, int64_t i, int k, int channels, nnc_scratch *s, nnc_sink *sink)
{
    const column *c = &((const rows *)o)->column[k];
    const nnc_dtype of = (nnc_dtype)c->is.dtype;
    const uint8_t *p = row_at(c, i);
    uint64_t x;
    NNC_TRY(nnc_picture_size(&s->now, channels, (int)c->is.dim[2], (int)c->is.dim[3], sink));
    for (int64_t j = 0; of == DT_u8 && j < c->numbers; j++)
        s->now.at[j] = p[j];
    for (int64_t j = 0; of != DT_u8 && of != DT_f32 && j < c->numbers; j++)
        s->now.at[j] = (float)nnc_get_f64(of, aligned(of, p, j, &x), 0);
    if (of == DT_f32)
        memcpy(s->now.at, p, (size_t)c->numbers * sizeof(float));
    return NNC_OK;
}

/* Numbers as the model's input has them: floats from any others, indices from integers. */
static nnc_status row(const nnc_source *o, int64_t i, int k, void *to, nnc_sink *sink)
{
    const column *c = &((const rows *)o)->column[k];
    const nnc_dtype want = (nnc_dtype)c->want.dtype, of = (nnc_dtype)c->is.dtype;
    const uint8_t *p = row_at(c, i);
    uint64_t x;
    (void)sink;
    if (want == of)
        memcpy(to, p, (size_t)(c->numbers * nnc_dtype_size(of)));
    for (int64_t j = 0; want != of && j < c->numbers; j++) {
        const void *number = aligned(of, p, j, &x);
        nnc_is_float(want) ? nnc_set_f64(want, to, j, nnc_get_f64(of, number, 0))
                           : nnc_set_i64(want, to, j, nnc_get_i64(of, number, 0));
    }
    return NNC_OK;
}

static void put_name(const nnc_source *o, int64_t i, nnc_text *file, char place[64])
{
    snprintf(place, 64, "row %lld", (long long)i);
    nnc_puts(file, ((const rows *)o)->column[0].file);
}

static void close_rows(nnc_source *o)
{
    rows *r = (rows *)o;
    for (int k = 0; k < r->n_column; k++)
        nnc_free(r->column[k].own);
    nnc_tensors_close(r->data);
    nnc_tensors_close(r->labels);
}

static const nnc_source_ops ops = {picture, row, put_name, close_rows};

/* ---- opening --------------------------------------------------------------------------------- */

/* The tensor of this name, or (any) the only one of a file that has no names. */
static const nnc_tensor_entry *entry_of(const nnc_tensors *t, const char *name, bool any)
{
    const nnc_tensor_entry *e = nnc_tensors_find(t, name);
    if (e || nnc_tensors_count(t) != 1 || !any)
        return e;
    e = nnc_tensors_at(t, 0);
    return *e->name ? NULL : e;
}

/* Are rows of `is` a model's rows, their height and width aside where these change? */
static bool fits(const column *c, bool moves)
{
    const nnc_type *want = &c->want, *is = &c->is;
    bool ok = want->rank == is->rank && want->rank > 0 && is->dim[0] > 0;
    for (int d = 1; d < want->rank && ok; d++)
        ok = want->dim[d] == is->dim[d] || (moves && d > 1);
    return ok;
}

static nnc_status check_type(const column *c, bool moves, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) wanted = {0}, is = {0};
    const nnc_dtype to = (nnc_dtype)c->want.dtype, of = (nnc_dtype)c->is.dtype;
    const nnc_loc loc = {.file = c->file};
    if (!fits(c, moves)) {
        nnc_put_type(&is, &c->is);
        nnc_put_type(&wanted, &c->want);
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "the rows of %s are %s; a batch of the model is %s, so each row has its dimensions but "
            "the first%s",
            c->name, nnc_text_str(&is), nnc_text_str(&wanted),
            to == DT_i64 && c->want.rank == 1
                ? ": a class index for each sample (the argmax of one-hot rows)"
                : "");
    }
    if (moves && (c->is.dim[2] > 65535 || c->is.dim[3] > 65535))
        return nnc_fail(sink, NNC_E_MODEL, loc, "%s has sides longer than 65535", c->name);
    if (!nnc_is_float(to) && nnc_is_float(of))
        return nnc_fail(sink, NNC_E_MODEL, loc, "%s holds %s; it must hold integers", c->name,
            nnc_dtype_name(of));
    return NNC_OK;
}

static nnc_status open_column(
    const nnc_tensors *t, bool any, bool moves, column *c, int64_t *n, nnc_sink *sink)
{
    const nnc_tensor_entry *e = entry_of(t, c->name, any);
    if (!e) {
        NNC_LOCAL(nnc_text) has = {0};
        for (int i = 0; i < nnc_tensors_count(t) && i < 8; i++)
            nnc_printf(&has, "%s%s", i ? ", " : "", nnc_tensors_at(t, i)->name);
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = c->file},
            "there is no tensor named %s, which the model needs for training (the file has: %s%s)",
            c->name, *nnc_text_str(&has) ? nnc_text_str(&has) : "one without a name",
            nnc_tensors_count(t) > 8 ? ", ..." : "");
    }
    if (e->why)
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = c->file}, "%s: %s", c->name, e->why);
    c->is = e->type;
    NNC_TRY(check_type(c, moves, sink));
    c->numbers = nnc_type_numel(&c->is) / c->is.dim[0];
    *n = c->is.dim[0];
    const void *at;
    NNC_TRY(nnc_tensors_mapped(t, e, &at, sink));
    c->at = at;
    if (c->at)
        return NNC_OK;
    c->own = nnc_malloc((size_t)e->size);
    NNC_NEED(c->own, sink);
    c->at = c->own;
    return nnc_tensors_read(t, e, c->own, sink);
}

/* All indices must be classes. */
static nnc_status check_classes(const column *c, int64_t classes, int64_t ignored, nnc_sink *sink)
{
    const nnc_dtype of = (nnc_dtype)c->is.dtype;
    const int64_t n = nnc_type_numel(&c->is);
    uint64_t x;
    for (int64_t i = 0; i < n && classes; i++) {
        const int64_t v = nnc_get_i64(of, aligned(of, c->at, i, &x), 0);
        char at[40] = "";
        if ((v >= 0 && v < classes) || v == ignored)
            continue;
        if (c->numbers > 1)
            nnc_snprintf(at, sizeof at, ", number %lld", (long long)(i % c->numbers));
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = c->file},
            "%s has class %lld in row %lld%s; the model's prediction has classes 0 to %lld%s",
            c->name, (long long)v, (long long)(i / c->numbers), at, (long long)classes - 1,
            v == -100 || v == -1 || v == 255 ? "; --ignore-index leaves such targets out" : "");
    }
    return NNC_OK;
}

static nnc_status open_columns(rows *r, const nnc_request *q, nnc_sink *sink)
{
    r->column = ARENA_NEW(&r->o.arena, column, q->n);
    char *const path = nnc_arena_strdup(&r->o.arena, q->path);
    char *const labels = nnc_arena_strdup(&r->o.arena, q->labels);
    NNC_NEED(r->column && path && (labels || !q->labels), sink);
    r->n_column = q->n;
    NNC_TRY(nnc_tensors_open(path, NULL, &r->data, sink));
    if (labels)
        NNC_TRY(nnc_tensors_open(labels, NULL, &r->labels, sink));
    for (int k = 0; k < q->n; k++) {
        const nnc_data_input *in = &q->in[k];
        const bool apart = in->target && labels;
        const bool any = in->target ? apart : q->n == 2; /* the file is of this tensor alone */
        const bool moves = q->moves && !in->target && in->type.rank == 4;
        column *c = &r->column[k];
        int64_t n = 0;
        *c = (column){.file = apart ? labels : path, .name = in->name, .want = in->type};
        NNC_TRY(open_column(apart ? r->labels : r->data, any, moves, c, &n, sink));
        if (in->target)
            NNC_TRY(check_classes(c, q->classes, in->ignored, sink));
        if (k && n != r->o.n)
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = c->file},
                "%s has %lld rows, %s %lld", c->name, (long long)n, q->in[0].name,
                (long long)r->o.n);
        r->o.n = n;
    }
    return NNC_OK;
}

nnc_status nnc_tensors_source(const nnc_request *q, nnc_source **out, nnc_sink *sink)
{
    rows *r = nnc_calloc(1, sizeof *r);
    NNC_NEED(r, sink);
    r->o = (nnc_source){.ops = &ops, .format = "tensors"};
    return nnc_source_made(&r->o, open_columns(r, q, sink), out);
}
