/* base/weight.c -- reads the numbers of a weight: bytes in memory, a byte range of a file, or the counter-based generator. */
#include "base/base.h"
#include <stdatomic.h>
#include <string.h>

struct nnc_weight_file {
    struct nnc_weight_file *next;
    uint64_t hash;
    nnc_map map;
    char path[];
};

void nnc_weight_files_deinit(nnc_weight_files *files)
{
    struct nnc_weight_file *f = atomic_load(&files->first), *next;
    for (; f; f = next) {
        next = f->next;
        nnc_map_close(&f->map);
        nnc_free(f);
    }
    atomic_init(&files->first, NULL);
}

uint64_t nnc_weight_file_hash(const void *data, size_t n)
{
    enum { END = 4096 };
    uint64_t len = n;
    if (n >= 8)
        memcpy(&len, data, 8);
    if (n >= 8 && len <= n - 8)
        return nnc_hash64(data, 8 + (size_t)len, 0);
    size_t end = n < END ? n : END;
    return nnc_hash64((const char *)data + n - end, end, nnc_hash64(data, end, n));
}

static nnc_status check_header(const nnc_map *m, const nnc_weight *w, nnc_sink *sink)
{
    if (w->header_hash && nnc_weight_file_hash(m->data, m->n) != w->header_hash)
        return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = w->file},
            "is not the weight file that the model was compiled with (its header differs)");
    return NNC_OK;
}

/* The weight's file, mapped at its first use. Two threads that open it at the same time both keep it in the list. */
static nnc_status open_file(
    nnc_weight_files *files, const nnc_weight *w, const nnc_map **out, nnc_sink *sink)
{
    struct nnc_weight_file *f = atomic_load(&files->first);
    while (f && (f->hash != w->header_hash || strcmp(f->path, w->file) != 0))
        f = f->next;
    if (!f) {
        size_t n = strlen(w->file) + 1;
        f = nnc_calloc(1, sizeof *f + n);
        NNC_NEED(f, sink);
        memcpy(f->path, w->file, n);
        f->hash = w->header_hash;
        nnc_status st = nnc_map_open(&f->map, f->path, sink);
        if (!st)
            st = check_header(&f->map, w, sink);
        if (st) {
            nnc_map_close(&f->map);
            nnc_free(f);
            return st;
        }
        f->next = atomic_load(&files->first);
        while (!atomic_compare_exchange_weak(&files->first, &f->next, f))
            ;
    }
    *out = &f->map;
    return NNC_OK;
}

/* Part by part, so that the process never holds a large file and its copy. */
static void copy_part(const nnc_map *m, size_t from, size_t n, char *dst)
{
    enum { PART = 1 << 19 };
    if (n < PART) {
        memcpy(dst, m->data + from, n);
        return;
    }
    for (size_t i = 0, some; i < n; i += some) {
        some = n - i < PART ? n - i : PART;
        memcpy(dst + i, m->data + from + i, some);
        nnc_map_drop(m, from + i, some);
    }
}

static nnc_status read_file(const nnc_weight *w, int64_t skip, int64_t bytes, void *dst,
    nnc_weight_files *files, nnc_sink *sink)
{
    const nnc_map *m;
    NNC_TRY(open_file(files, w, &m, sink));
    int64_t size = (int64_t)m->n, end;
    if (w->offset < 0 || skip < 0 || skip + bytes > w->size ||
        !nnc_add_ok(w->offset, skip + bytes, &end) || end > size)
        return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = w->file},
            "ends before weight %s does: %lld bytes at offset %lld, the file has %lld",
            w->name ? w->name : "", (long long)w->size, (long long)w->offset, (long long)size);
    copy_part(m, (size_t)(w->offset + skip), (size_t)bytes, dst);
    return NNC_OK;
}

static void generate(const nnc_weight *w, nnc_dtype d, int64_t first, int64_t n, void *dst)
{
    uint64_t key = nnc_rng_key(w->name ? w->name : "", w->seed);
    if (d == DT_f32) {
        nnc_rng_fill(key, (uint64_t)first, (size_t)n, w->scale, dst);
        if (w->shift != 0)
            for (int64_t i = 0; i < n; i++)
                ((float *)dst)[i] += w->shift;
        return;
    }
    float buf[1024];
    for (int64_t i = 0; i < n; i += 1024) {
        int64_t m = nnc_min64(1024, n - i);
        nnc_rng_fill(key, (uint64_t)(first + i), (size_t)m, w->scale, buf);
        for (int64_t k = 0; k < m; k++)
            nnc_set_f64(d, dst, i + k, buf[k] + w->shift);
    }
}

const char *nnc_weight_fault(const nnc_weight *w, const nnc_type *t)
{
    const int64_t n = nnc_type_numel(t), size = nnc_dtype_size((nnc_dtype)t->dtype);
    const int64_t first = w->part.first, run = w->part.run, stride = w->part.stride;
    int64_t end = 0;
    if (!w->n_part)
        return w->kind == NNC_W_gen || w->size == nnc_type_bytes(t) ? NULL : "it has another size";
    if (w->n_part != 1 || w->kind == NNC_W_inline)
        return "parts are of generated weights and of those in files";
    if (first < 0 || run < 1 || stride < run || n % run)
        return "its part has no such runs";
    if (!nnc_mul_ok(n / run - 1, stride, &end) || !nnc_add_ok(end, first, &end) ||
        !nnc_add_ok(end, run, &end) || !nnc_mul_ok(end, size, &end))
        return "its part is too large";
    return w->kind == NNC_W_gen || end <= w->size ? NULL : "its part lies outside the weight";
}

bool nnc_weight_slice(nnc_weight *w, nnc_type *t, int axis, int64_t from, int64_t to)
{
    int64_t inner = 1;
    const int64_t extent = t->dim[axis];
    for (int d = 0; d < t->rank; d++)
        inner *= d > axis ? t->dim[d] : 1;
    if (w->kind == NNC_W_inline)
        return false;
    const int64_t before = w->n_part ? w->part.first : 0;
    if (w->n_part && w->part.run < nnc_type_numel(t))
        return false;
    w->n_part = 1;
    w->part = (nnc_weight_part){before + from * inner, (to - from) * inner, extent * inner};
    t->dim[axis] = to - from;
    return true;
}

/* A part, run by run. */
static nnc_status read_part(const nnc_weight *w, const nnc_type *t, int64_t first, int64_t n,
    void *dst, nnc_weight_files *files, nnc_sink *sink)
{
    const int64_t size = nnc_dtype_size((nnc_dtype)t->dtype), run = w->part.run;
    nnc_weight whole = *w;
    whole.n_part = 0;
    for (int64_t i = first, some; i < first + n; i += some) {
        some = nnc_min64(run - i % run, first + n - i);
        NNC_TRY(nnc_weight_read(&whole, t, w->part.first + i / run * w->part.stride + i % run, some,
            (char *)dst + (i - first) * size, files, sink));
    }
    return NNC_OK;
}

nnc_status nnc_weight_read(const nnc_weight *w, const nnc_type *t, int64_t first, int64_t n,
    void *dst, nnc_weight_files *files, nnc_sink *sink)
{
    if (w->n_part)
        return read_part(w, t, first, n, dst, files, sink);
    int64_t size = nnc_dtype_size((nnc_dtype)t->dtype);
    if (w->kind == NNC_W_gen) {
        generate(w, (nnc_dtype)t->dtype, first, n, dst);
        return NNC_OK;
    }
    if (w->kind == NNC_W_file && !w->data)
        return read_file(w, first * size, n * size, dst, files, sink);
    if (!w->data || (first + n) * size > w->size)
        return nnc_fail0(sink, NNC_E_BUG, "weight %s has %lld bytes in memory, too few",
            w->name ? w->name : "", (long long)w->size);
    memcpy(dst, (const char *)w->data + first * size, (size_t)(n * size));
    return NNC_OK;
}
