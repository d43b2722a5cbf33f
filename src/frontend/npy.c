/* frontend/npy.c -- one tensor in NumPy's format, versions 1 to 3: magic, version, header length, a Python dictionary of descr,
 * fortran_order and shape, then the bytes. Reads either byte order, writes little-endian. NumPy has no bfloat16: as in ml_dtypes it is
 * the 2-byte void type V2, which is read back as bf16 (in NumPy: a.view(ml_dtypes.bfloat16)). */
#include "frontend/internal.h"
#include <ctype.h>
#include <string.h>

typedef struct header {
    nnc_dtype dtype;
    bool swap, fortran;
    int rank;
    int64_t dim[NNC_MAX_RANK];
} header;

typedef struct cursor {
    const char *p, *end;
} cursor;

static const struct code {
    char kind;
    int size;
    nnc_dtype d;
} codes[] = {{'f', 8, DT_f64}, {'f', 4, DT_f32}, {'f', 2, DT_f16}, {'V', 2, DT_bf16},
    {'i', 1, DT_i8}, {'i', 2, DT_i16}, {'i', 4, DT_i32}, {'i', 8, DT_i64}, {'u', 1, DT_u8},
    {'u', 2, DT_u16}, {'u', 4, DT_u32}, {'u', 8, DT_u64}, {'b', 1, DT_bool}};

static nnc_status bad(const char *file, nnc_sink *sink, const char *why)
{
    return nnc_fail(
        sink, NNC_E_MODEL, (nnc_loc){.file = file}, "not a .npy file that nnc reads: %s", why);
}

static bool eat(cursor *c, const char *s)
{
    while (c->p < c->end && isspace((unsigned char)*c->p))
        c->p++;
    size_t n = strlen(s);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, s, n))
        return false;
    c->p += n;
    return true;
}

/* A quoted Python string without escapes, at most 31 characters. */
static bool quoted(cursor *c, char out[32])
{
    char q = eat(c, "'") ? '\'' : eat(c, "\"") ? '"' : 0;
    const char *end = q ? memchr(c->p, q, (size_t)(c->end - c->p)) : NULL;
    if (!end || end - c->p > 31)
        return false;
    memcpy(out, c->p, (size_t)(end - c->p));
    out[end - c->p] = 0;
    c->p = end + 1;
    return true;
}

static const char *read_descr(const char *s, header *h)
{
    int size = 0;
    if (!strchr("<>|=", *s) || !*s || !s[1])
        return "its dtype is structured or of objects";
    for (const char *p = s + 2; isdigit((unsigned char)*p) && size < 1000; p++)
        size = size * 10 + (*p - '0');
    for (size_t i = 0; i < NNC_COUNT(codes); i++)
        if (codes[i].kind == s[1] && codes[i].size == size) {
            h->dtype = codes[i].d;
            h->swap = *s == '>';
            return NULL;
        }
    return "its dtype is unsupported; expected f2 f4 f8 i1-i8 u1-u8 b1 or V2 (bf16)";
}

static const char *read_shape(cursor *c, header *h)
{
    if (!eat(c, "("))
        return "its shape is not a tuple";
    for (h->rank = 0; !eat(c, ")"); h->rank++) {
        int64_t v = 0;
        const char *start;
        if (h->rank == NNC_MAX_RANK)
            return "it has more than 8 dimensions";
        eat(c, "");
        for (start = c->p; c->p < c->end && isdigit((unsigned char)*c->p); c->p++)
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *c->p - '0', &v))
                return "an extent does not fit in 64 bits";
        if (c->p == start)
            return "its shape is damaged";
        eat(c, "L"); /* Python 2 */
        h->dim[h->rank] = v;
        if (!eat(c, ",") && !(c->p < c->end && *c->p == ')'))
            return "its shape is damaged";
    }
    return NULL;
}

static const char *read_dict(cursor *c, header *h)
{
    int seen = 0;
    char key[32], descr[32];
    const char *why = NULL;
    if (!eat(c, "{"))
        return "its header is not a dictionary";
    while (!eat(c, "}") && !why) {
        if (!quoted(c, key) || !eat(c, ":"))
            return "its header is damaged";
        if (!strcmp(key, "descr")) {
            why = quoted(c, descr) ? read_descr(descr, h) : "its dtype is structured";
            seen |= 1;
        } else if (!strcmp(key, "fortran_order")) {
            h->fortran = eat(c, "True");
            if (!h->fortran && !eat(c, "False"))
                return "fortran_order is neither True nor False";
            seen |= 2;
        } else if (!strcmp(key, "shape")) {
            why = read_shape(c, h);
            seen |= 4;
        } else {
            return "its header has an unknown key";
        }
        if (!why && !eat(c, ",") && !(c->p < c->end && *c->p == '}'))
            return "its header is damaged";
    }
    return why ? why : seen == 7 ? NULL : "its header lacks descr, fortran_order or shape";
}

static const char *read_header(const nnc_map *m, header *h, size_t *data)
{
    if (m->n < 10 || memcmp(m->data, "\x93NUMPY", 6) != 0)
        return "its first bytes are not \\x93NUMPY";
    int version = m->data[6];
    if (version < 1 || version > 3)
        return "its version is unsupported; expected 1, 2 or 3";
    size_t at = version == 1 ? 10 : 12, len = m->data[8] | (size_t)m->data[9] << 8;
    if (m->n < at)
        return "it ends in its header";
    if (version > 1)
        len |= (size_t)m->data[10] << 16 | (size_t)m->data[11] << 24;
    if (len > m->n - at)
        return "it ends in its header";
    cursor c = {(const char *)m->data + at, (const char *)m->data + at + len};
    *data = at + len;
    const char *why = read_dict(&c, h);
    eat(&c, "");
    return why ? why : c.p != c.end ? "something follows its header" : NULL;
}

static void copy_bytes(uint8_t *dst, const uint8_t *src, int size, bool swap)
{
    for (int i = 0; i < size; i++)
        dst[i] = src[swap ? size - 1 - i : i];
}

/* Converts column-major bytes to row-major. */
static void from_fortran(const nnc_type *t, const uint8_t *src, uint8_t *dst, bool swap)
{
    int size = nnc_dtype_size((nnc_dtype)t->dtype), rank = t->rank;
    int64_t n = nnc_type_numel(t), at[NNC_MAX_RANK] = {0}, stride[NNC_MAX_RANK], s = 1, off = 0;
    for (int i = 0; i < rank; i++) {
        stride[i] = s;
        s *= t->dim[i];
    }
    for (int64_t i = 0; i < n; i++) {
        copy_bytes(dst + i * size, src + off * size, size, swap);
        for (int k = rank - 1; k >= 0; k--) {
            off += stride[k];
            if (++at[k] < t->dim[k])
                break;
            off -= stride[k] * t->dim[k];
            at[k] = 0;
        }
    }
}

static nnc_status read_mapped(const char *file, const nnc_map *m, nnc_tensor *out, nnc_sink *sink)
{
    header h = {0};
    size_t data = 0;
    const char *why = read_header(m, &h, &data);
    if (why)
        return bad(file, sink, why);
    nnc_type t = nnc_type_make(h.dtype, h.rank, h.dim);
    if (!nnc_type_check(&t, &why))
        return bad(file, sink, why);
    int64_t bytes = nnc_type_bytes(&t), there = (int64_t)(m->n - data);
    if (bytes != there)
        return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
            "its shape needs %lld bytes of data, the file has %lld", (long long)bytes,
            (long long)there);
    NNC_TRY(nnc_tensor_alloc(out, &t, sink));
    int size = nnc_dtype_size(h.dtype);
    if (h.fortran && h.rank > 1)
        from_fortran(&t, m->data + data, out->data, h.swap);
    else if (h.swap && size > 1)
        for (int64_t i = 0; i < bytes; i += size)
            copy_bytes((uint8_t *)out->data + i, m->data + data + i, size, true);
    else
        memcpy(out->data, m->data + data, (size_t)bytes);
    for (int64_t i = 0; h.dtype == DT_bool && i < bytes; i++) /* C allows only 0 and 1 in a bool */
        ((uint8_t *)out->data)[i] = ((uint8_t *)out->data)[i] != 0;
    return NNC_OK;
}

nnc_status nnc_npy_load(const char *file, nnc_tensor *out, nnc_sink *sink)
{
    nnc_map m;
    *out = (nnc_tensor){0};
    NNC_TRY(nnc_map_open(&m, file, sink));
    nnc_status st = read_mapped(file, &m, out, sink);
    nnc_map_close(&m);
    return st;
}

nnc_status nnc_npy_save(const char *file, const nnc_type *t, const void *row_major, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) x = {0};
    size_t k = 0;
    while (codes[k].d != (nnc_dtype)t->dtype)
        k++;
    nnc_putn(&x, "\x93NUMPY\x01\x00\x00\x00", 10);
    nnc_printf(&x, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
        codes[k].size == 1 ? '|' : '<', codes[k].kind, codes[k].size);
    for (int i = 0; i < t->rank; i++)
        nnc_printf(&x, "%s%lld%s", i ? " " : "", (long long)t->dim[i],
            i + 1 < t->rank || t->rank == 1 ? "," : "");
    nnc_puts(&x, "), }");
    while ((x.n + 1) % 64 && !x.oom)
        nnc_putc(&x, ' ');
    nnc_putc(&x, '\n');
    if (x.oom)
        return nnc_nomem(sink);
    x.s[8] = (char)((x.n - 10) & 0xff);
    x.s[9] = (char)((x.n - 10) >> 8);
    nnc_piece piece[2] = {{x.s, x.n}, {row_major, (size_t)nnc_type_bytes(t)}};
    return nnc_file_write_pieces(file, 2, piece, false, sink);
}
