/* tensors/tensors.h -- files of named tensors: .npy, .npz, safetensors, and raw numbers (.bin, .raw) in and out.
 *
 * Opening a file maps it and verifies its list of tensors; numbers are read on demand. A file's first bytes tell its format. Files are
 * written in the format of their extension. */
#ifndef NNC_TENSORS_H
#define NNC_TENSORS_H

#include "base/base.h"
#include "base/setting.h"

typedef struct nnc_tensors nnc_tensors;

typedef struct nnc_tensor_entry {
    const char *name; /* "" in an .npy file, which has one */
    nnc_type type; /* row-major */
    /* Offset in the file, if the numbers are stored as in memory; -1: nnc_tensors_read inflates or converts them. */
    int64_t offset;
    int64_t size; /* bytes of the numbers in memory */
    const char *why; /* why nnc cannot read it (type then has extents only if one of them is 0); NULL: it can */
    const void *data; /* nnc_tensors_listed: where the numbers at `offset` are in memory; NULL: only in the file */
    const struct nnc_packing *packing; /* for nnc_tensors_read */
} nnc_tensor_entry;

/* raw: type of the only tensor of a file without a header (.bin, .raw), or NULL. */
nnc_status nnc_tensors_open(
    const char *file, const nnc_type *raw, nnc_tensors **out, nnc_sink *sink) NNC_MUST;
/* The same for a known list: weights that were read from the file before, which keep converted numbers, or that are in the caller's
 * memory. */
nnc_status nnc_tensors_listed(const char *file, int n, const nnc_weight *const *w,
    const nnc_type *const *type, nnc_tensors **out, nnc_sink *sink) NNC_MUST;
void nnc_tensors_close(nnc_tensors *t);
NNC_OWNER(nnc_tensors, nnc_tensors_close)
/* True for a .npy file of a tensor without elements; *type, which may be NULL, is its type. */
bool nnc_npy_is_empty(const char *file, nnc_type *type);
int nnc_tensors_count(const nnc_tensors *t);
const nnc_tensor_entry *nnc_tensors_at(const nnc_tensors *t, int i); /* entry i, sorted by name */
const nnc_tensor_entry *nnc_tensors_find(const nnc_tensors *t, const char *name);
/* Renames tensors, each by the first rule that matches. {"module.*", "*"} removes a prefix, {"fc.w", "fc.weight"} renames one tensor, and
 * the value "-" leaves tensors out. Warns of rules without a match. */
nnc_status nnc_tensors_rename(
    nnc_tensors *t, const nnc_arg *rule, int n_rule, nnc_sink *sink) NNC_MUST;
uint64_t nnc_tensors_hash(const nnc_tensors *t); /* hash of the file, for nnc_weight.header_hash */
/* Reads e->size bytes into dst. Verifies the format's checksums. */
nnc_status nnc_tensors_read(
    const nnc_tensors *t, const nnc_tensor_entry *e, void *dst, nnc_sink *sink) NNC_MUST;

/* The same without a copy: *out points into the mapped file, at any alignment. NULL: the numbers must be converted, by
 * nnc_tensors_read. */
nnc_status nnc_tensors_mapped(
    const nnc_tensors *t, const nnc_tensor_entry *e, const void **out, nnc_sink *sink) NNC_MUST;

/* Tensors to write. data(ctx, i, ...) gives the numbers of tensor i, row-major, valid until its next call. It is called once for each
 * tensor, in order. */
typedef struct nnc_tensor_source {
    int n;
    const char *const *name;
    const nnc_type *const *type;
    nnc_status (*data)(void *ctx, int i, const void **out, nnc_sink *sink);
    void *ctx;
    bool durable; /* sync the file to disk before it replaces the old one */
} nnc_tensor_source;
/* Writes them in the format of the file's extension: .npz or .safetensors (.st), for a single tensor also .npy, .bin or .raw. A single
 * tensor without an extension is .npy. */
nnc_status nnc_tensors_write(const char *file, const nnc_tensor_source *s, nnc_sink *sink) NNC_MUST;
/* Writes one tensor in memory, under this name. */
nnc_status nnc_tensor_write(const char *file, const char *name, const nnc_type *t, const void *data,
    nnc_sink *sink) NNC_MUST;
/* NNC_E_USAGE: n tensors cannot be written to a file of this name. */
nnc_status nnc_tensors_check_name(const char *file, int n, nnc_sink *sink) NNC_MUST;
/* Whether the extension is that of raw numbers, which have no types and shapes. */
bool nnc_tensors_raw(const char *file);
/* Whether the extension is that of a format with names. */
bool nnc_tensors_named(const char *file);

/* Version of zlib, which compressed .npz files need; NULL: nnc was built without it. */
const char *nnc_zlib_version(void);

/* ---- which tensors there should be ------------------------------------------------------------------------------ */

/* Differences between the required tensors and those of a file, for one message. */
typedef struct nnc_mismatch {
    nnc_text lines;
    int missing, extra, wrong;
} nnc_mismatch;
void nnc_mismatch_deinit(nnc_mismatch *m);
/* Record a difference. `more` ends its line: a hint, or the layer. */
void nnc_mismatch_missing(
    nnc_mismatch *m, const char *name, const nnc_type *want, const char *more);
void nnc_mismatch_wrong(nnc_mismatch *m, const char *name, const nnc_type *want,
    const nnc_tensor_entry *found, const char *more);
void nnc_mismatch_extra(
    nnc_mismatch *m, const char *name, const nnc_tensor_entry *found, const char *more);
/* Removes what was recorded about the tensor. */
void nnc_mismatch_drop(nnc_mismatch *m, const char *name);
/* Appends the lines: the first five of each kind, and how many more there are. */
void nnc_mismatch_put(nnc_text *t, const nnc_mismatch *m);
/* Appends how many tensors there are by the last part of their names, for the five most frequent: "51 num_batches_tracked, 2 bias". */
void nnc_put_tensor_kinds(nnc_text *t, int n, const char *const *name);
/* Reports all differences as one error at `file`: "the weights do not match the model: ...". NNC_OK: there are none. */
nnc_status nnc_mismatch_report(
    const nnc_mismatch *m, const char *file, const char *what, nnc_sink *sink) NNC_MUST;

#endif
