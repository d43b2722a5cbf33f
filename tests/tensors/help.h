/* tests/tensors/help.h -- files of tensors made by hand, whole and damaged. */
#ifndef NNC_TESTS_TENSORS_HELP_H
#define NNC_TESTS_TENSORS_HELP_H

#include "tensors/tensors.h"
#include "test.h"

/* Writes the bytes to a file of this process with extension ext (".npy"); its path, valid until the next call. */
const char *tt_file(const char *ext, const void *data, size_t n);
void tt_remove(void); /* the last of each extension */

/* Append: an .npy file of this dictionary; a safetensors file of this header; data of n bytes, NULL: 0, 1, 2, ... */
void tt_npy(nnc_text *t, int version, const char *dict, const void *data, size_t n);
void tt_safetensors(nnc_text *t, const char *header, size_t n);

/* An entry of a zip archive. */
typedef struct tt_entry {
    const char *name;
    const void *data;
    size_t n;
    bool deflate; /* in blocks that are stored as they are, which every inflate reads */
} tt_entry;
/* Numbers that are written instead of the right ones; 0: the right ones. */
typedef struct tt_lies {
    uint32_t crc, size, packed, at, method, flags, n_entries, directory_at, directory_bytes, disk,
        zip64;
} tt_lies;
void tt_zip(nnc_text *t, int n, const tt_entry *e, const tt_lies *l);

/* 2x3 numbers 0 to 5 as an .npy file. */
extern const char tt_small_dict[];
void tt_small(nnc_text *t);
/* What numpy.savez_compressed wrote: a = fortran = swapped = [[0, 1, 2], [3, 4, 5]], flags = [True, False, True], text = ["abc"]. */
extern const char tt_numpy[];
extern const size_t tt_numpy_bytes;

#endif
