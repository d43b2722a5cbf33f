/* api/train_data.h -- data of training in memory; between train.c and train_data.c. */
#ifndef NNC_API_TRAIN_DATA_H
#define NNC_API_TRAIN_DATA_H

#include "api/internal.h"
#include "api/train.h"

typedef struct rows {
    const char *name; /* of the graph's input */
    nnc_type type;    /* of a batch */
    void *data;       /* of all rows, in that dtype */
    int64_t n, row;   /* rows, and bytes of one */
} rows;

typedef struct dataset {
    rows rows[16];
    int n_rows;
    int64_t n, *order; /* sample i is row order[i] */
} dataset;

/* Reads rows for the inputs d->rows, whose names and types are set. classes: of the target's indices; 0: they are no indices. */
nnc_status dataset_read(dataset *d, const char *data, const char *labels, int64_t classes, nnc_sink *sink) NNC_MUST;
/* Permutes samples first..first+n-1. */
void dataset_shuffle(dataset *d, int64_t first, int64_t n, uint64_t seed, const char *name);
/* The batch of input `which` from sample `first` on. */
void dataset_batch(const dataset *d, int which, int64_t first, void *to);
void dataset_deinit(dataset *d);

#endif
