/* base/given.h -- what a model was read from: its files, without the numbers of large weights, and the args that were set. With it the
 * model can be read again for other args and shapes when its files are gone. Shared by a graph and its clones; never changes once the
 * model is read. */
#ifndef NNC_GIVEN_H
#define NNC_GIVEN_H

#include "base/file.h"
#include "base/setting.h"

typedef struct nnc_given_file {
    const char *name; /* as the user, or the model, spells it */
    int64_t size;
    uint64_t hash; /* nnc_weight_file_hash of all of it; 0 where no weight refers to the file */
} nnc_given_file;

typedef struct nnc_given_piece { /* bytes of a file that are kept */
    int file;
    int64_t at, size;
    const void *data; /* in the arena */
} nnc_given_piece;

typedef struct nnc_given {
    nnc_arena arena; /* of all strings, arrays and bytes */
    _Atomic int users;
    nnc_given_file *file; /* [0]: the model; then files with tensors beside it */
    nnc_given_piece *piece;
    int n_file, n_piece;
    nnc_arg *arg; /* --set */
    int n_arg;
    const char *weights; /* the file of weights; NULL: none was given */
    uint64_t seed;
    const char *place; /* --place; NULL: none */
    int classes; /* of a new head (--replace-head); 0: none */
    bool trains; /* the model has a section "train" (nnc_train_read) */
} nnc_given;

nnc_given *nnc_given_create(int files, int pieces, int args); /* NULL: out of memory */
nnc_given *nnc_given_share(nnc_given *g); /* NULL for NULL */
void nnc_given_drop(nnc_given *g);
/* Sets piece i to a copy of the bytes. False: out of memory. */
bool nnc_given_keep(nnc_given *g, int i, int file, int64_t at, const void *data, int64_t size);
/* Were all of these bytes kept? */
bool nnc_given_has(const nnc_given *g, int file, int64_t at, int64_t size);
/* File i in memory, zero where nothing was kept; nnc_map_close releases it. */
nnc_status nnc_given_map(const nnc_given *g, int i, nnc_map *out, nnc_sink *sink) NNC_MUST;

#endif
