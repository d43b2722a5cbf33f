/* base/weight.c -- reads the numbers of a weight: inline bytes, a byte range of a file, or the counter-based generator. */
#include "base/base.h"
#include <limits.h>
#include <string.h>

static nnc_status read_file(
    const nnc_weight *w, int64_t skip, int64_t bytes, void *dst, const char *dir, nnc_sink *sink)
{
    char path[PATH_MAX];
    nnc_map m;
    bool relative = dir && w->file[0] != '/';
    if (snprintf(path, sizeof path, "%s%s%s", relative ? dir : "", relative ? "/" : "", w->file) >=
        (int)sizeof path)
        return nnc_fail0(sink, NNC_E_IO, "the path of weight file %s is too long", w->file);
    NNC_TRY(nnc_map_open(&m, path, sink));
    nnc_status st = NNC_OK;
    nnc_loc loc = {.file = path};
    int64_t size = (int64_t)m.n, end;
    if (w->header_hash) { /* safetensors: 8 bytes of header length, then the header */
        uint64_t len = 0;
        if (m.n >= 8)
            memcpy(&len, m.data, 8);
        if (m.n < 8 || len > m.n - 8 || nnc_hash64(m.data, 8 + (size_t)len, 0) != w->header_hash)
            st = nnc_fail(sink, NNC_E_IO, loc,
                "is not the weight file that the model was compiled with (its header differs)");
    }
    if (!st && (w->offset < 0 || skip < 0 || skip + bytes > w->size ||
                   !nnc_add_ok(w->offset, skip + bytes, &end) || end > size))
        st = nnc_fail(sink, NNC_E_IO, loc,
            "ends before weight %s does: %lld bytes at offset %lld, the file has %lld",
            w->name ? w->name : "", (long long)w->size, (long long)w->offset, (long long)size);
    if (!st)
        memcpy(dst, m.data + w->offset + skip, (size_t)bytes);
    nnc_map_close(&m);
    return st;
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

nnc_status nnc_weight_read(const nnc_weight *w, const nnc_type *t, int64_t first, int64_t n,
    void *dst, const char *dir, nnc_sink *sink)
{
    int64_t size = nnc_dtype_size((nnc_dtype)t->dtype);
    switch (w->kind) {
    case NNC_W_inline:
        if (!w->data || (first + n) * size > w->size)
            return nnc_fail0(sink, NNC_E_BUG, "inline weight %s has %lld bytes, too few",
                w->name ? w->name : "", (long long)w->size);
        memcpy(dst, (const char *)w->data + first * size, (size_t)(n * size));
        return NNC_OK;
    case NNC_W_file: return read_file(w, first * size, n * size, dst, dir, sink);
    case NNC_W_gen: generate(w, (nnc_dtype)t->dtype, first, n, dst); return NNC_OK;
    }
    return NNC_E_BUG;
}
