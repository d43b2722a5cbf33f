/* tensors/internal.h -- shared by the files of this folder. */
#ifndef NNC_TENSORS_INTERNAL_H
#define NNC_TENSORS_INTERNAL_H

#include "tensors/tensors.h"

/* How the numbers of an entry lie in the file. */
typedef struct nnc_packing {
    const uint8_t *p; /* of the .npy file: header and numbers, compressed or not; of raw numbers: the numbers */
    uint64_t n, size; /* bytes in the file; bytes when inflated */
    uint64_t head; /* bytes of .npy's header, of `size` */
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
/* Reads the header at p; NULL, or what is wrong. Bytes from `n` on need not be there when it ends before them. */
const char *nnc_npy_parse(const uint8_t *p, size_t n, nnc_npy_header *h);
/* Converts numbers from the file's byte order and memory order to row-major ones of this machine. */
void nnc_npy_convert(const nnc_type *t, bool swap, bool fortran, const uint8_t *src, void *dst);
void nnc_npy_put_header(nnc_text *x, const nnc_type *t);

/* ---- safetensors.c ---- */

nnc_status nnc_safetensors_list(nnc_tensors *t, nnc_sink *sink) NNC_MUST;
nnc_status nnc_safetensors_put(const nnc_tensor_source *s, nnc_out *out, nnc_sink *sink) NNC_MUST;

/* ---- zip.c ---- */

nnc_status nnc_npz_list(nnc_tensors *t, nnc_sink *sink) NNC_MUST;
nnc_status nnc_npz_put(const nnc_tensor_source *s, nnc_out *out, nnc_sink *sink) NNC_MUST;
/* Inflates k->p to `head` bytes at a, the rest at b. NULL, or what is wrong. */
const char *nnc_unzip(const nnc_packing *k, uint8_t *a, uint64_t head, uint8_t *b);
uint32_t nnc_crc32(uint32_t crc, const void *data, size_t n); /* of zip; starts with 0 */

#endif
