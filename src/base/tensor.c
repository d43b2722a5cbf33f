/* base/tensor.c -- element types, tensor types, dense host tensors. */
#include "base/base.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int size;
    nnc_dkind kind;
} dtypes[DT__COUNT] = {
#define DT(name, bytes, kind, ctype, doc) {#name, bytes, kind},
#include "base/dtypes.def"
};

int nnc_dtype_size(nnc_dtype d)
{
    return dtypes[d].size;
}

nnc_dkind nnc_dtype_kind(nnc_dtype d)
{
    return dtypes[d].kind;
}

int64_t nnc_int_end(nnc_dtype d, bool top)
{
    int bits = 8 * nnc_dtype_size(d);
    if (d == DT_bool)
        return top;
    if (nnc_dtype_kind(d) == NNC_INT)
        return top ? (int64_t)(UINT64_MAX >> (65 - bits)) : (int64_t)(UINT64_MAX << (bits - 1));
    return top ? (int64_t)(UINT64_MAX >> (64 - bits)) : 0;
}

const char *nnc_dtype_name(nnc_dtype d)
{
    return dtypes[d].name;
}

bool nnc_dtype_parse(const char *name, size_t n, nnc_dtype *out)
{
    for (int i = 0; i < DT__COUNT; i++)
        if (strlen(dtypes[i].name) == n && !memcmp(dtypes[i].name, name, n)) {
            *out = (nnc_dtype)i;
            return true;
        }
    return false;
}

/* ---- precisions ------------------------------------------------------------------------------ */

static const char *const precisions[NNC_PRECISION__COUNT] = {
    "default", "f32", "tf32", "f16", "bf16"};

const char *nnc_precision_name(nnc_precision p)
{
    return precisions[p];
}

bool nnc_precision_parse(const char *name, nnc_precision *out)
{
    for (int i = NNC_PRECISION_f32; i < NNC_PRECISION__COUNT; i++)
        if (!strcmp(precisions[i], name)) {
            *out = (nnc_precision)i;
            return true;
        }
    return false;
}

nnc_dtype nnc_precision_dtype(nnc_precision p)
{
    return p == NNC_PRECISION_f16 ? DT_f16 : p == NNC_PRECISION_bf16 ? DT_bf16 : DT_f32;
}

nnc_precision nnc_policy_precision(const nnc_policy *p)
{
    if (nnc_precision_dtype(p->precision) != DT_f32)
        return p->precision;
    return p->tf32 ? NNC_PRECISION_tf32 : NNC_PRECISION_f32;
}

/* ---- types ----------------------------------------------------------------------------------- */

nnc_type nnc_type_make(nnc_dtype d, int rank, const int64_t *dim)
{
    nnc_type t = {.dtype = (uint8_t)d, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++) {
        t.dim[i] = dim[i];
        t.order[i] = (uint8_t)i;
    }
    return t;
}

const char *nnc_type_dtype(const nnc_type *t)
{
    return nnc_dtype_name(t->dtype);
}

int nnc_type_rank(const nnc_type *t)
{
    return t->rank;
}

int64_t nnc_type_dim(const nnc_type *t, int i)
{
    return i >= 0 && i < t->rank ? t->dim[i] : 0;
}

int64_t nnc_type_extents(const nnc_type *t, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= t->dim[i];
    return n;
}

int64_t nnc_type_numel(const nnc_type *t)
{
    return nnc_type_extents(t, 0, t->rank);
}

int64_t nnc_type_bytes(const nnc_type *t)
{
    return nnc_type_numel(t) * nnc_dtype_size((nnc_dtype)t->dtype);
}

void nnc_type_strides(const nnc_type *t, int64_t stride[NNC_MAX_RANK])
{
    int64_t s = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        stride[t->order[i]] = s;
        s *= t->dim[t->order[i]] + t->gap[t->order[i]];
    }
}

int64_t nnc_type_span(const nnc_type *t)
{
    int64_t stride[NNC_MAX_RANK], last = 0;
    nnc_type_strides(t, stride);
    for (int i = 0; i < t->rank; i++)
        last += (t->dim[i] - 1) * stride[i];
    return last + 1;
}

bool nnc_type_is_dense(const nnc_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->gap[i])
            return false;
    return true;
}

nnc_type nnc_type_dense(const nnc_type *t)
{
    nnc_type d = *t;
    memset(d.gap, 0, sizeof d.gap);
    return d;
}

void nnc_type_set_part(nnc_type *t, const nnc_type *whole)
{
    bool matters = false; /* does a dimension outside of this one step over its gap? */
    for (int i = 0; i < t->rank; i++) {
        int d = t->order[i];
        t->gap[d] = matters ? whole->dim[d] + whole->gap[d] - t->dim[d] : 0;
        matters = matters || t->dim[d] > 1;
    }
}

bool nnc_type_is_row_major(const nnc_type *t)
{
    nnc_type r = nnc_type_make((nnc_dtype)t->dtype, t->rank, t->dim);
    return nnc_type_same_strides(t, &r);
}

bool nnc_type_same_strides(const nnc_type *a, const nnc_type *b)
{
    int64_t s[NNC_MAX_RANK] = {0}, r[NNC_MAX_RANK] = {0};
    if (a->rank != b->rank)
        return false;
    nnc_type_strides(a, s);
    nnc_type_strides(b, r);
    for (int i = 0; i < a->rank; i++)
        if ((a->dim[i] > 1 || b->dim[i] > 1) && s[i] != r[i])
            return false;
    return true;
}

bool nnc_type_same_shape(const nnc_type *a, const nnc_type *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]);
}

bool nnc_type_same_memory(const nnc_type *a, const nnc_type *b)
{
    return a->dtype == b->dtype && nnc_type_same_shape(a, b) && nnc_type_same_strides(a, b);
}

bool nnc_type_equal(const nnc_type *a, const nnc_type *b)
{
    return a->dtype == b->dtype && nnc_type_same_shape(a, b) &&
           !memcmp(a->order, b->order, a->rank) &&
           !memcmp(a->gap, b->gap, a->rank * sizeof a->gap[0]);
}

void nnc_type_channels_last(nnc_type *t)
{
    if (t->rank < 3)
        return;
    t->order[0] = 0;
    for (int i = 2; i < t->rank; i++)
        t->order[i - 1] = (uint8_t)i;
    t->order[t->rank - 1] = 1;
}

bool nnc_type_orders_differ(const nnc_type *t)
{
    nnc_type a = nnc_type_make((nnc_dtype)t->dtype, t->rank, t->dim), b = a;
    nnc_type_channels_last(&b);
    return !nnc_type_same_memory(&a, &b);
}

bool nnc_type_check(const nnc_type *t, const char **what)
{
    int64_t bytes = nnc_dtype_size((nnc_dtype)t->dtype);
    if (t->rank > NNC_MAX_RANK) {
        *what = "more than 8 dimensions";
        return false;
    }
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] < 1) {
            *what = "a dimension below 1";
            return false;
        }
        if (t->gap[i] < 0) {
            *what = "more elements in a dimension than there are in memory";
            return false;
        }
        if (t->gap[i] > (int64_t)1 << 46 || !nnc_mul_ok(bytes, t->dim[i] + t->gap[i], &bytes) ||
            bytes > (int64_t)1 << 46) {
            *what = "more than 64 TiB";
            return false;
        }
    }
    return true;
}

bool nnc_type_in_order(const nnc_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->order[i] != i)
            return false;
    return true;
}

void nnc_put_type(nnc_text *t, const nnc_type *ty)
{
    nnc_printf(t, "%s[", nnc_dtype_name((nnc_dtype)ty->dtype));
    for (int i = 0; i < ty->rank; i++) {
        nnc_printf(t, "%s%lld", i ? "," : "", (long long)ty->dim[i]);
        if (ty->gap[i])
            nnc_printf(t, "/%lld", (long long)(ty->dim[i] + ty->gap[i]));
    }
    nnc_putc(t, ']');
    if (nnc_type_in_order(ty))
        return;
    for (int i = 0; i < ty->rank; i++)
        nnc_printf(t, "%c%d", i ? ',' : '{', ty->order[i]);
    nnc_putc(t, '}');
}

static nnc_status scan_order(nnc_scan *s, nnc_sink *sink, nnc_type *t)
{
    unsigned seen = 0;
    for (int i = 0; i < t->rank; i++) {
        int64_t v;
        if ((i && !nnc_scan_eat(s, ",")) || !nnc_scan_int(s, &v) || v < 0 || v >= t->rank ||
            (seen >> v & 1))
            return nnc_scan_fail(s, sink, "a permutation of the dimensions as memory order");
        seen |= 1u << v;
        t->order[i] = (uint8_t)v;
    }
    return nnc_scan_eat(s, "}") ? NNC_OK : nnc_scan_fail(s, sink, "`}` after the memory order");
}

nnc_status nnc_scan_type(nnc_scan *s, nnc_sink *sink, nnc_type *out)
{
    const char *word, *what;
    size_t n;
    nnc_dtype d;
    nnc_scan start = *s;
    if (!nnc_scan_word(s, &word, &n) || !nnc_dtype_parse(word, n, &d) || !nnc_scan_eat(s, "[")) {
        *s = start;
        return nnc_scan_fail(s, sink, "a type such as f32[1,3,224,224]");
    }
    int64_t dim[NNC_MAX_RANK], all[NNC_MAX_RANK];
    int rank = 0;
    while (!nnc_scan_eat(s, "]")) {
        if (rank == NNC_MAX_RANK || (rank && !nnc_scan_eat(s, ",")) || !nnc_scan_int(s, &dim[rank]))
            return nnc_scan_fail(s, sink, "at most 8 dimensions and `]`");
        all[rank] = dim[rank];
        if (nnc_scan_eat(s, "/") && !nnc_scan_int(s, &all[rank]))
            return nnc_scan_fail(s, sink, "how many indices the dimension has in memory");
        rank++;
    }
    *out = nnc_type_make(d, rank, dim);
    for (int i = 0; i < rank && dim[i] >= 1; i++)
        out->gap[i] = all[i] < dim[i] ? -1 : all[i] - dim[i];
    if (!nnc_type_check(out, &what))
        return nnc_fail(sink, NNC_E_MODEL, nnc_scan_loc(&start), "type has %s", what);
    return nnc_scan_eat(s, "{") ? scan_order(s, sink, out) : NNC_OK;
}

/* ---- elements -------------------------------------------------------------------------------- */

double nnc_get_f64(nnc_dtype d, const void *p, int64_t i)
{
    switch (d) {
    case DT_f64: return ((const double *)p)[i];
    case DT_f32: return ((const float *)p)[i];
    case DT_f16: return nnc_f16_to_f32(((const uint16_t *)p)[i]);
    case DT_bf16: return nnc_bf16_to_f32(((const uint16_t *)p)[i]);
    case DT_u64: return (double)((const uint64_t *)p)[i];
    default: return (double)nnc_get_i64(d, p, i);
    }
}

int64_t nnc_get_i64(nnc_dtype d, const void *p, int64_t i)
{
    switch (d) {
    case DT_i8: return ((const int8_t *)p)[i];
    case DT_i16: return ((const int16_t *)p)[i];
    case DT_i32: return ((const int32_t *)p)[i];
    case DT_i64: return ((const int64_t *)p)[i];
    case DT_u8: return ((const uint8_t *)p)[i];
    case DT_u16: return ((const uint16_t *)p)[i];
    case DT_u32: return ((const uint32_t *)p)[i];
    case DT_u64: return (int64_t)((const uint64_t *)p)[i];
    case DT_bool: return ((const uint8_t *)p)[i] != 0;
    default: {
        double v = nnc_get_f64(d, p, i);
        return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : 0;
    }
    }
}

void nnc_set_i64(nnc_dtype d, void *p, int64_t i, int64_t v)
{
    switch (d) {
    case DT_i8:
    case DT_u8: ((uint8_t *)p)[i] = (uint8_t)v; break;
    case DT_i16:
    case DT_u16: ((uint16_t *)p)[i] = (uint16_t)v; break;
    case DT_i32:
    case DT_u32: ((uint32_t *)p)[i] = (uint32_t)v; break;
    case DT_i64:
    case DT_u64: ((uint64_t *)p)[i] = (uint64_t)v; break;
    case DT_bool: ((uint8_t *)p)[i] = v != 0; break;
    default: nnc_set_f64(d, p, i, (double)v);
    }
}

void nnc_set_f64(nnc_dtype d, void *p, int64_t i, double v)
{
    switch (d) {
    case DT_f64: ((double *)p)[i] = v; break;
    case DT_f32: ((float *)p)[i] = (float)v; break;
    case DT_f16: ((uint16_t *)p)[i] = nnc_f64_to_f16(v); break;
    case DT_bf16: ((uint16_t *)p)[i] = nnc_f64_to_bf16(v); break;
    case DT_bool: ((uint8_t *)p)[i] = v != 0; break;
    case DT_u64:
        if (v >= 0x1p63 && v < 0x1p64) {
            ((uint64_t *)p)[i] = (uint64_t)v;
            break;
        }
        __attribute__((fallthrough));
    default: nnc_set_i64(d, p, i, v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : 0);
    }
}

nnc_status nnc_tensor_alloc(nnc_tensor *t, const nnc_type *type, nnc_sink *sink)
{
    t->type = *type;
    t->data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(type));
    return t->data ? NNC_OK : nnc_nomem(sink);
}

void nnc_tensor_deinit(nnc_tensor *t)
{
    nnc_free(t->data);
    t->data = NULL;
}
