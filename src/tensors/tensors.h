/* tensors/tensors.h -- files of named tensors: .npy, .npz, safetensors, and raw numbers (.bin, .raw) in and out.
 *
 * A file is mapped and its list of tensors verified when it is opened; numbers are read when they are asked for. Formats are told apart
 * by their first bytes; written files have the format of their extension. */
#ifndef NNC_TENSORS_H
#define NNC_TENSORS_H

#include "base/base.h"
#include "base/setting.h"

typedef struct nnc_tensors nnc_tensors;

typedef struct nnc_tensor_entry {
    const char *name; /* "" in an .npy file, which has one */
    nnc_type type; /* row-major */
    /* From the file's start, of numbers that lie there as in memory; -1: nnc_tensors_read inflates or converts them. */
    int64_t offset;
    int64_t size; /* bytes of the numbers in memory */
    const char *why; /* reason why nnc cannot read it (type is undefined then); NULL: it can */
    const struct nnc_packing *packing; /* for nnc_tensors_read */
} nnc_tensor_entry;

/* raw: the type of the one tensor of a file without a header (.bin, .raw), or NULL. */
nnc_status nnc_tensors_open(
    const char *file, const nnc_type *raw, nnc_tensors **out, nnc_sink *sink) NNC_MUST;
/* The same for a file whose list is known: the weights that were read from it, which keep their numbers where those were converted. */
nnc_status nnc_tensors_listed(const char *file, int n, const nnc_weight *const *w,
    const nnc_type *const *type, nnc_tensors **out, nnc_sink *sink) NNC_MUST;
void nnc_tensors_close(nnc_tensors *t);
bool nnc_npy_is_empty(const char *file); /* a .npy file of a tensor without elements */
int nnc_tensors_count(const nnc_tensors *t);
const nnc_tensor_entry *nnc_tensors_at(const nnc_tensors *t, int i); /* by name */
const nnc_tensor_entry *nnc_tensors_find(const nnc_tensors *t, const char *name);
/* Gives tensors other names, each by the first rule that it matches: {"module.*", "*"} takes a prefix away, {"fc.w", "fc.weight"} names
 * one; with the value "-" they are left out. A rule without a match is a warning. */
nnc_status nnc_tensors_rename(
    nnc_tensors *t, const nnc_arg *rule, int n_rule, nnc_sink *sink) NNC_MUST;
uint64_t nnc_tensors_hash(const nnc_tensors *t); /* of the file, as nnc_weight.header_hash */
/* Fills dst, e->size bytes. Checksums of the format are verified. */
nnc_status nnc_tensors_read(
    const nnc_tensors *t, const nnc_tensor_entry *e, void *dst, nnc_sink *sink) NNC_MUST;

/* The same where nothing needs to be converted: *out is where the numbers lie in the mapped file, at any alignment. NULL: they must be
 * read. */
nnc_status nnc_tensors_mapped(
    const nnc_tensors *t, const nnc_tensor_entry *e, const void **out, nnc_sink *sink) NNC_MUST;

/* Tensors to write. data(ctx, i, ...) gives the numbers of tensor i, row-major, valid until its next call; each is asked for once, in
 * order. */
typedef struct nnc_tensor_source {
    int n;
    const char *const *name;
    const nnc_type *const *type;
    nnc_status (*data)(void *ctx, int i, const void **out, nnc_sink *sink);
    void *ctx;
    bool durable; /* the file is on the disk before it takes its place */
} nnc_tensor_source;
/* Writes them in the format of the file's extension: .npz, .safetensors (.st); .npy, .bin and .raw for a single tensor, which goes to
 * .npy where the name has no extension. */
nnc_status nnc_tensors_write(const char *file, const nnc_tensor_source *s, nnc_sink *sink) NNC_MUST;
/* One tensor in memory, under this name. */
nnc_status nnc_tensor_write(const char *file, const char *name, const nnc_type *t, const void *data,
    nnc_sink *sink) NNC_MUST;
/* NNC_E_USAGE, reported: n tensors cannot be written to a file of this name. */
nnc_status nnc_tensors_check_name(const char *file, int n, nnc_sink *sink) NNC_MUST;
/* True when the extension is that of a format with names. */
bool nnc_tensors_named(const char *file);

/* zlib, which compressed .npz files need; NULL: nnc was built without it. */
const char *nnc_zlib_version(void);

/* ---- which tensors there should be ------------------------------------------------------------------------------ */

/* Differences between the tensors that are wanted and those that a file has, for one message. */
typedef struct nnc_mismatch {
    nnc_text lines;
    int missing, extra, wrong;
} nnc_mismatch;
void nnc_mismatch_deinit(nnc_mismatch *m);
/* `more` ends the line: a hint, or the layer. */
void nnc_mismatch_missing(
    nnc_mismatch *m, const char *name, const nnc_type *want, const char *more);
void nnc_mismatch_wrong(nnc_mismatch *m, const char *name, const nnc_type *want,
    const nnc_tensor_entry *found, const char *more);
void nnc_mismatch_extra(
    nnc_mismatch *m, const char *name, const nnc_tensor_entry *found, const char *more);
/* Takes what was noted about the tensor out again. */
void nnc_mismatch_drop(nnc_mismatch *m, const char *name);
/* Appends the lines: the first five of each kind, and how many more there are. */
void nnc_mismatch_put(nnc_text *t, const nnc_mismatch *m);
/* Tensors by the last part of their names, the five most frequent kinds: "51 num_batches_tracked, 2 bias". */
void nnc_put_tensor_kinds(nnc_text *t, int n, const char *const *name);
/* NNC_OK without differences; otherwise one error at `file`: "the weights do not match the model: ...". */
nnc_status nnc_mismatch_report(
    const nnc_mismatch *m, const char *file, const char *what, nnc_sink *sink) NNC_MUST;

#endif
