/* onnx/put.c -- writes fields of protocol buffers. */
#include "onnx/export.h"
#include <string.h>

static void put_varint(nnc_text *t, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        nnc_putc(t, (char)(v | 0x80));
    nnc_putc(t, (char)v);
}

static void put_key(nnc_text *t, uint32_t field, uint32_t kind)
{
    put_varint(t, (uint64_t)field << 3 | kind);
}

void op_int(nnc_text *t, uint32_t field, int64_t v)
{
    put_key(t, field, 0);
    put_varint(t, (uint64_t)v);
}

void op_float(nnc_text *t, uint32_t field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    put_key(t, field, 5);
    for (int i = 0; i < 4; i++)
        nnc_putc(t, (char)(bits >> 8 * i));
}

void op_head(nnc_text *t, uint32_t field, size_t n)
{
    put_key(t, field, 2);
    put_varint(t, n);
}

void op_bytes(nnc_text *t, uint32_t field, const void *p, size_t n)
{
    op_head(t, field, n);
    nnc_putn(t, p, n);
}
