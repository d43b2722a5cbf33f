/* tests/data/help.h -- data sets made by hand in a folder of this process. */
#ifndef NNC_TESTS_DATA_HELP_H
#define NNC_TESTS_DATA_HELP_H

#include "data/data.h"
#include "data/internal.h"
#include "tensors/tensors.h"
#include "test.h"

/* The folder, made at the first call; td_path: of a file in it, valid during a test. */
const char *td_dir(void);
const char *td_path(const char *name);
const char *td_write(const char *name, const void *data, size_t n); /* folders of the name are made; its path */
void td_remove(void); /* all of it */

/* Append: records of CIFAR (head 1: CIFAR-10, 2: CIFAR-100), number `first` and so on; idx pictures or labels; the bytes as .gz. */
void td_cifar(nnc_text *t, int head, int first, int n);
uint8_t td_cifar_byte(int record, int at); /* of the pixels */
void td_idx_pictures(nnc_text *t, int n, int h, int w);
void td_idx_labels(nnc_text *t, int n);
uint8_t td_idx_byte(int picture, int at);
/* A PNG file of random numbers; in palettes entry i has the colours 7 i, 7 i + 50, 7 i + 100. Both bytes of 16-bit numbers are equal. */
void td_png(nnc_text *t, int type, int bits, int channels, int h, int w);
int td_png_number(int i, int bits); /* number i of its rows */
void td_gz(nnc_text *t, const void *data, size_t n);
void td_idx_files(int n, int h, int w); /* train-images-idx3-ubyte and train-labels-idx1-ubyte */

/* Opens data for an input x of this type (f32; rank and dims with the batch first) and a target of classes. */
typedef struct td_model {
    int64_t dim[4];
    int rank;
    int64_t classes;
    bool padded; /* the last batch of validation, with targets TD_PAD */
} td_model;
enum { TD_PAD = -77 };
nnc_status td_open(const nnc_data_options *o, const td_model *m, nnc_data **out);
/* Number of values of x in a batch. */
int64_t td_numel(const td_model *m);
/* A hash of the batches first.. of an epoch; each adds x and the target. */
uint64_t td_hash(nnc_data *d, const td_model *m, nnc_data_part part, int64_t epoch, int64_t first);

/* An .npz or .safetensors file of these tensors. */
void td_write_tensors(const char *name, int n, const char *const *names, const nnc_type *const *type,
    const void *const *data);

#endif
