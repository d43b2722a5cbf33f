/* tensors/internal.h -- shared by the files of this folder. */
#ifndef NNC_TENSORS_INTERNAL_H
#define NNC_TENSORS_INTERNAL_H

#include "tensors/tensors.h"

/* Storage of an entry's numbers in the file. */
typedef struct nnc_packing {
    const uint8_t *p; /* .npy: header and numbers, compressed or not; raw: the numbers */
    uint64_t n, size; /* bytes in the file, and inflated */
    uint64_t head; /* bytes of .npy's header, part of `size` */
    bool deflated, checked; /* checked: against crc */
    uint32_t crc;
    bool swap, fortran;
} nnc_packing;

struct nnc_tensors {
    nnc_arena a;
    nnc_map map;
    const char *file;
    nnc_tensor_entry *entry; /* by name */
    int n;
    uint64_t hash;
};

/* ---- npy.c ---- */

typedef struct nnc_npy_header {
    nnc_type type;
    bool swap, fortran;
    size_t size; /* bytes of the header */
} nnc_npy_header;
/* Parses the header at p, of which n bytes are present; more are needed only for a longer header. Returns NULL, or what is wrong. */
const char *nnc_npy_parse(const uint8_t *p, size_t n, nnc_npy_header *h);
/* Converts numbers from the file's byte order and memory order to this machine's, row-major. */
void nnc_npy_convert(const nnc_type *t, bool swap, bool fortran, const uint8_t *src, void *dst);
void nnc_npy_put_header(nnc_text *x, const nnc_type *t);

/* ---- safetensors.c ---- */

nnc_status nnc_safetensors_list(nnc_tensors *t, nnc_sink *sink) NNC_MUST;
nnc_status nnc_safetensors_put(const nnc_tensor_source *s, nnc_out *out, nnc_sink *sink) NNC_MUST;

/* ---- zip.c ---- */

nnc_status nnc_npz_list(nnc_tensors *t, nnc_sink *sink) NNC_MUST;
nnc_status nnc_npz_put(const nnc_tensor_source *s, nnc_out *out, nnc_sink *sink) NNC_MUST;
/* Inflates k->p: the first `head` bytes to a, the rest to b. Returns NULL, or what is wrong. */
const char *nnc_unzip(const nnc_packing *k, uint8_t *a, uint64_t head, uint8_t *b);
uint32_t nnc_crc32(uint32_t crc, const void *data, size_t n); /* zip's CRC; starts with 0 */

#endif
