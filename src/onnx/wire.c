/* onnx/wire.c -- fields of protocol buffers, read in place. */
#include "onnx/internal.h"

bool ox_varint(ox_wire *w, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 64 && w->p < w->end; shift += 7) {
        uint8_t c = *w->p++;
        *v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return true;
    }
    w->bad = true;
    return false;
}

bool ox_fixed(ox_wire *w, size_t n, uint64_t *v)
{
    *v = 0;
    if ((size_t)(w->end - w->p) < n) {
        w->bad = true;
        return false;
    }
    for (size_t i = 0; i < n; i++)
        *v |= (uint64_t)w->p[i] << 8 * i;
    w->p += n;
    return true;
}

bool ox_next(ox_wire *w, ox_field *f)
{
    uint64_t key, n;
    if (w->bad || w->p == w->end || !ox_varint(w, &key))
        return false;
    *f = (ox_field){.no = (uint32_t)(key >> 3), .kind = (ox_kind)(key & 7)};
    w->bad = key >> 3 == 0 || key >> 3 > (1u << 29) - 1;
    if (w->bad)
        return false;
    switch (f->kind) {
    case OX_varint: return ox_varint(w, &f->v);
    case OX_fixed64: return ox_fixed(w, 8, &f->v);
    case OX_fixed32: return ox_fixed(w, 4, &f->v);
    case OX_bytes:
        if (!ox_varint(w, &n))
            return false;
        w->bad = n > (uint64_t)(w->end - w->p);
        if (w->bad)
            return false;
        f->s = (ox_span){w->p, (size_t)n};
        w->p += n;
        return true;
    }
    w->bad = true; /* groups, which ONNX never had */
    return false;
}
