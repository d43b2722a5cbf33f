/* tensors/npy.c -- one tensor in NumPy's format, versions 1 to 3: magic, version, header length, a Python dictionary of descr,
 * fortran_order and shape, then the bytes. Reads either byte order, writes little-endian. NumPy has no bfloat16: as in ml_dtypes it is
 * the 2-byte void type V2, which is read back as bf16 (in NumPy: a.view(ml_dtypes.bfloat16)). */
#include "tensors/internal.h"
#include <ctype.h>
#include <string.h>

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

static const char *read_descr(const char *s, nnc_npy_header *h)
{
    int size = 0;
    if (!strchr("<>|=", *s) || !*s || !s[1])
        return "its dtype is structured or of objects";
    for (const char *p = s + 2; isdigit((unsigned char)*p) && size < 1000; p++)
        size = size * 10 + (*p - '0');
    for (size_t i = 0; i < NNC_COUNT(codes); i++)
        if (codes[i].kind == s[1] && codes[i].size == size) {
            h->type.dtype = (uint8_t)codes[i].d;
            h->swap = *s == '>';
            return NULL;
        }
#define EXPECTED "; expected f2 f4 f8 i1-i8 u1-u8 b1 or V2 (bf16)"
    switch (s[1]) {
    case 'U':
    case 'S': return "its dtype is a text" EXPECTED;
    case 'O': return "its dtype is object" EXPECTED;
    case 'c': return "its dtype is complex" EXPECTED;
    case 'M':
    case 'm': return "its dtype is a time" EXPECTED;
    default:
        return s[1] == 'f' && size > 8 ? "its dtype is longdouble (float96, float128)" EXPECTED
                                       : "its dtype is unsupported" EXPECTED;
    }
#undef EXPECTED
}

static const char *read_shape(cursor *c, nnc_type *t)
{
    if (!eat(c, "("))
        return "its shape is not a tuple";
    for (t->rank = 0; !eat(c, ")"); t->rank++) {
        int64_t v = 0;
        const char *start;
        if (t->rank == NNC_MAX_RANK)
            return "it has more than 8 dimensions";
        eat(c, "");
        for (start = c->p; c->p < c->end && isdigit((unsigned char)*c->p); c->p++)
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *c->p - '0', &v))
                return "an extent does not fit in 64 bits";
        if (c->p == start)
            return "its shape is damaged";
        eat(c, "L"); /* Python 2 */
        t->dim[t->rank] = v;
        if (!eat(c, ",") && !(c->p < c->end && *c->p == ')'))
            return "its shape is damaged";
    }
    return NULL;
}

static const char *read_dict(cursor *c, nnc_npy_header *h)
{
    int seen = 0;
    char key[32], descr[32];
    const char *why = NULL;
    if (!eat(c, "{"))
        return "its header is not a dictionary";
    while (!eat(c, "}") && !why) {
        if (!quoted(c, key) || !eat(c, ":"))
            return "its header is damaged";
        const int bit = !strcmp(key, "descr")           ? 1
                        : !strcmp(key, "fortran_order") ? 2
                        : !strcmp(key, "shape")         ? 4
                                                        : 0;
        if (!bit || seen & bit)
            return bit ? "its header has a key twice" : "its header has an unknown key";
        seen |= bit;
        if (bit == 1)
            why = quoted(c, descr) ? read_descr(descr, h) : "its dtype is structured";
        else if (bit == 4)
            why = read_shape(c, &h->type);
        else
            h->fortran = eat(c, "True");
        if (bit == 2 && !h->fortran && !eat(c, "False"))
            return "fortran_order is neither True nor False";
        if (!why && !eat(c, ",") && !(c->p < c->end && *c->p == '}'))
            return "its header is damaged";
    }
    return why ? why : seen == 7 ? NULL : "its header lacks descr, fortran_order or shape";
}

const char *nnc_npy_parse(const uint8_t *p, size_t n, nnc_npy_header *h)
{
    *h = (nnc_npy_header){0};
    if (n < 10 || memcmp(p, "\x93NUMPY", 6) != 0)
        return "its first bytes are not \\x93NUMPY";
    int version = p[6];
    if (version < 1 || version > 3)
        return "its version is unsupported; expected 1, 2 or 3";
    size_t at = version == 1 ? 10 : 12, len = p[8] | (size_t)p[9] << 8;
    if (n < at)
        return "it ends in its header";
    if (version > 1)
        len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (len > n - at)
        return "it ends in its header";
    cursor c = {(const char *)p + at, (const char *)p + at + len};
    const char *why = read_dict(&c, h);
    eat(&c, "");
    if (!why && c.p != c.end)
        why = "something follows its header";
    h->type = nnc_type_make((nnc_dtype)h->type.dtype, why ? 0 : h->type.rank, h->type.dim);
    h->fortran = h->fortran && h->type.rank > 1;
    h->size = at + len;
    if (!why)
        (void)nnc_type_check(&h->type, &why);
    return why;
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

void nnc_npy_convert(const nnc_type *t, bool swap, bool fortran, const uint8_t *src, void *dst)
{
    const int size = nnc_dtype_size((nnc_dtype)t->dtype);
    const int64_t bytes = nnc_type_bytes(t);
    if (fortran)
        from_fortran(t, src, dst, swap);
    else if (swap && size > 1)
        for (int64_t i = 0; i < bytes; i += size)
            copy_bytes((uint8_t *)dst + i, src + i, size, true);
    else
        memmove(dst, src, (size_t)bytes);
    for (int64_t i = 0; t->dtype == DT_bool && i < bytes; i++) /* C allows only 0 and 1 in a bool */
        ((uint8_t *)dst)[i] = ((uint8_t *)dst)[i] != 0;
}

void nnc_npy_put_header(nnc_text *x, const nnc_type *t)
{
    size_t k = 0, from = x->n;
    while (codes[k].d != (nnc_dtype)t->dtype)
        k++;
    nnc_putn(x, "\x93NUMPY\x01\x00\x00\x00", 10);
    nnc_printf(x, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
        codes[k].size == 1 ? '|' : '<', codes[k].kind, codes[k].size);
    for (int i = 0; i < t->rank; i++)
        nnc_printf(x, "%s%lld%s", i ? " " : "", (long long)t->dim[i],
            i + 1 < t->rank || t->rank == 1 ? "," : "");
    nnc_puts(x, "), }");
    while ((x->n - from + 1) % 64 && !x->oom)
        nnc_putc(x, ' ');
    nnc_putc(x, '\n');
    if (x->oom)
        return;
    x->s[from + 8] = (char)((x->n - from - 10) & 0xff);
    x->s[from + 9] = (char)((x->n - from - 10) >> 8);
}
