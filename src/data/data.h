/* data/data.h -- data sets for training: recognises and reads their formats, divides them for training and validation, augments pictures,
 * and prefetches batches on its own threads.
 *
 * A batch depends only on options, part, epoch and the batch's number. Neither the number of loader threads nor the batch at which an
 * epoch begins changes its bits. */
#ifndef NNC_DATA_H
#define NNC_DATA_H

#include "base/base.h"

typedef enum nnc_crop { NNC_CROP_none, NNC_CROP_centre, NNC_CROP_random } nnc_crop;

/* Zeros are the defaults, but `path` must be set. Strings are borrowed while data are open. */
typedef struct nnc_data_options {
    const char *path;   /* a file or folder: tensors (.npz, .safetensors, .npy), CIFAR, idx, or folders of pictures by class */
    const char *labels; /* separate file with the target of tensors or idx, or NULL */
    const char *validation_path, *validation_labels; /* another data set whose samples are all for validation, or NULL */
    double validation;  /* without validation_path: share of the samples for validation */
    bool no_shuffle;    /* samples in the order of the files */
    uint64_t seed;      /* of the division, the order and the augmentation */
    const char *resize; /* pictures: "256" (the shorter side) or "224x224" (height and width); NULL: unchanged */
    nnc_crop crop;      /* to the model's height and width; `random` uses the centre in validation */
    int pad;            /* zeros on each side before the crop */
    bool flip;          /* training: mirror half of the pictures, left to right */
    double rotate;      /* training: rotate by a random angle of -rotate..rotate degrees */
    const char *mean, *std; /* "0.5" or "0.485,0.456,0.406", by channel: (x - mean) / std; NULL: 0 and 1 */
    int loaders;        /* loader threads; 0: a quarter of the CPUs; -1: none, batches are loaded on demand */
} nnc_data_options;

#define NNC_DATA_none INT64_MIN

/* An input of the graph that gets data. */
typedef struct nnc_data_input {
    const char *name;
    nnc_type type; /* of a batch, row-major: the first dimension counts samples */
    bool target;
    int64_t ignored; /* target: a valid index that is no class; NNC_DATA_none: none */
    int64_t pad; /* target: index for rows after the last validation sample; NNC_DATA_none: skip incomplete batches */
} nnc_data_input;

typedef enum nnc_data_part { NNC_DATA_train, NNC_DATA_validation, NNC_DATA_PARTS } nnc_data_part;

typedef struct nnc_data nnc_data;
/* Opens a data set. The target consists of class indices 0..classes-1; classes 0: of other numbers. NNC_E_MODEL: the data are damaged or
 * do not match the inputs. NNC_E_USAGE: invalid options. NNC_E_IO: a file cannot be read. */
nnc_status nnc_data_open(const nnc_data_options *o, int n, const nnc_data_input *in, int64_t classes,
    nnc_data **out, nnc_sink *sink) NNC_MUST;
void nnc_data_close(nnc_data *d); /* also in the middle of an epoch */
int64_t nnc_data_samples(const nnc_data *d, nnc_data_part part);
int64_t nnc_data_batches(const nnc_data *d, nnc_data_part part); /* complete batches; in validation also a padded one */
const char *nnc_data_format(const nnc_data *d); /* "CIFAR-10", for reports */

/* Begins an epoch (from 1) of a part with batch `first` (from 0). Loader threads prefetch it and those after it. */
void nnc_data_begin(nnc_data *d, nnc_data_part part, int64_t epoch, int64_t first);
/* Gets the next batch: batch[i] is for in[i], valid until the next call of begin, next or close. Must not be called after the epoch's last
 * batch. NNC_E_MODEL, NNC_E_IO: a sample cannot be read; the message names it. */
nnc_status nnc_data_next(nnc_data *d, const void **batch, nnc_sink *sink) NNC_MUST;

/* Appends the origin of row `row` of the last batch: its file, and its place there. */
void nnc_data_where(const nnc_data *d, int64_t row, nnc_text *out);

typedef struct nnc_data_times {
    int64_t load_ns; /* spent loading, the sum over threads */
    int64_t wait_ns; /* part that was not hidden: time in nnc_data_next */
} nnc_data_times;
nnc_data_times nnc_data_take_times(nnc_data *d); /* since the last call */

/* ---- decoders of pictures: the plug-ins jpeg (symbol nnc_decoder_jpeg) and png (nnc_decoder_png) ---- */

/* A picture's 8-bit numbers by row, pixel and channel: c is 1 (grey) or 3 (red, green, blue). */
typedef struct nnc_decoded {
    int c, h, w;
    uint8_t *at;
    /* Makes room for the numbers; NULL: out of memory. */
    uint8_t *(*room)(struct nnc_decoded *d, size_t bytes);
    char why[200]; /* of NNC_E_MODEL: what is wrong with the file */
} nnc_decoded;

enum { NNC_DATA_BATCHES = 3 }; /* batches that a loader's threads hold */
enum { NNC_MAX_PICTURE = 1 << 28 }; /* largest number of values in a picture */

typedef struct nnc_decoder {
    const char *version;
    /* Decodes the file of n bytes at p. NNC_E_MODEL, with d->why; NNC_E_NOMEM. Any number of threads may call it at the same time. */
    nnc_status (*decode)(const uint8_t *p, size_t n, nnc_decoded *d);
} nnc_decoder;

#endif
