/* base/weight.h -- the source of a weight's numbers. Shared by graph and plan; compiling never reads the numbers. */
#ifndef NNC_WEIGHT_H
#define NNC_WEIGHT_H

#include "base/tensor.h"

typedef enum nnc_wkind { NNC_W_inline, NNC_W_file, NNC_W_gen } nnc_wkind;

/* Part of a weight: element i is element first + i / run * stride + i % run of the whole weight. */
typedef struct nnc_weight_part { int64_t first, run, stride; } nnc_weight_part;

typedef struct nnc_weight {
    nnc_wkind kind;
    const char *name; /* the user's name, "conv1.weight"; key of the generator and in safetensors files */
    const void *data; /* row-major bytes, `size` of them; file: NULL, or where the range is mapped already (embedded in an artifact) */
    const char *file; /* file: byte range, and nnc_weight_file_hash of the file (0 = not checked) */
    int64_t offset, size;
    uint64_t header_hash;
    uint64_t seed;        /* gen: element i = shift + scale * u_i, u_i of nnc_rng_fill(nnc_rng_key(name, seed), ...),
                           * rounded to the dtype */
    float scale, shift;
    nnc_weight_part part; /* of a generated weight, or of one in a file, whose `size` is that of the whole weight */
    int n_part;           /* 1, or 0: the tensor is all of the weight */
} nnc_weight;

/* Why the weight cannot fill a tensor of type t: a part that does not lie in the whole weight, or another size. NULL: it can. */
const char *nnc_weight_fault(const nnc_weight *w, const nnc_type *t);
/* The indices from..to of dimension `axis` of weight w, whose type is *t and becomes that of the part. False: w is inline, or a part that
 * is not in one run. */
bool nnc_weight_slice(nnc_weight *w, nnc_type *t, int axis, int64_t from, int64_t to);

/* Hash by which a file of weights is recognised. A safetensors file: of its header (8 bytes that hold its length, then the header).
 * Another file: of its length and ends. */
uint64_t nnc_weight_file_hash(const void *data, size_t n);

/* The files of weights that were read: each is mapped, and its header hashed, once. Starts zeroed; safe to share by threads. */
typedef struct nnc_weight_files {
    struct nnc_weight_file *_Atomic first;
} nnc_weight_files;
void nnc_weight_files_deinit(nnc_weight_files *files);

/* Fills dst (dtype of `t`) with elements first..first+n of the row-major weight. A file that is too short or has another header hash
 * is NNC_E_IO with its name. Thread-safe. */
nnc_status nnc_weight_read(const nnc_weight *w, const nnc_type *t, int64_t first, int64_t n, void *dst,
    nnc_weight_files *files, nnc_sink *sink) NNC_MUST;

#endif
