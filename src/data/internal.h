/* data/internal.h -- shared by the files of this folder: pictures, sources of samples (one a format), and augmentation. */
#ifndef NNC_DATA_INTERNAL_H
#define NNC_DATA_INTERNAL_H

#include "data/data.h"

/* ---- pictures (picture.c) ---- */

/* View of a picture's 8-bit values: channel c of pixel (y, x) is at[c * dc + y * dy + x * dx]. */
typedef struct nnc_pixels {
    const uint8_t *at;
    int c, h, w;
    int64_t dc, dy, dx;
} nnc_pixels;

/* Values of a picture by channel, row and column, in memory that grows. */
typedef struct nnc_picture {
    int c, h, w;
    float *at;
    size_t room;
} nnc_picture;
/* Makes room for a picture of this size. The old contents are lost. */
nnc_status nnc_picture_size(nnc_picture *p, int c, int h, int w, nnc_sink *sink) NNC_MUST;
/* Converts the pixels to values 0..1 in `channels` channels. 3 become 1 as luminance (Pillow's "L"); 1 becomes 3 equal ones. */
nnc_status nnc_picture_set(nnc_picture *p, const nnc_pixels *from, int channels, nnc_sink *sink) NNC_MUST;

/* Scratch memory of one thread, reused for each sample. */
typedef struct nnc_scratch {
    nnc_picture now, next; /* the sample's picture, and the result of an augmentation step */
    nnc_picture weights, rows; /* temporaries of a resize */
    uint8_t *decoded; /* pixels of a file */
    size_t room;
} nnc_scratch;
void nnc_scratch_deinit(nnc_scratch *s);

/* ---- sources ---- */

typedef struct nnc_source nnc_source;
typedef struct nnc_source_ops {
    /* Reads sample i for input k as a picture into s->now. */
    nnc_status (*picture)(const nnc_source *o, int64_t i, int k, int channels, nnc_scratch *s, nnc_sink *sink);
    /* Reads sample i for input k, in the input's type. For pictures it reads the class, for the target. */
    nnc_status (*row)(const nnc_source *o, int64_t i, int k, void *to, nnc_sink *sink);
    /* For messages: appends the file of sample i, and sets its place there ("record 12") if the file has several. */
    void (*name)(const nnc_source *o, int64_t i, nnc_text *file, char place[64]);
    void (*close)(nnc_source *o); /* frees what is not in the arena */
} nnc_source_ops;

struct nnc_source {
    const nnc_source_ops *ops;
    const char *format; /* "CIFAR-10" */
    nnc_arena arena;    /* freed with the source */
    int64_t n;          /* samples */
    bool pictures;      /* samples are pictures of 8-bit numbers with a class; otherwise rows of tensors */
    int c, h, w;        /* size of each picture; 0: they differ */
};

typedef struct nnc_request {
    const char *path, *labels; /* labels: or NULL */
    int n;
    const nnc_data_input *in;
    int64_t classes; /* of the target; 0: the target is no class */
    const nnc_source *like; /* for validation: the training samples, whose class names it shares; otherwise NULL */
    bool moves;      /* tensors are augmented, so their height and width may differ from the model's */
} nnc_request;
/* Recognises the format and opens it. */
nnc_status nnc_source_open(const nnc_request *q, nnc_source **out, nnc_sink *sink) NNC_MUST;
void nnc_source_close(nnc_source *o); /* or NULL */
/* Called by formats with the status of opening o: sets *out to o, or closes o on failure. Returns s. */
nnc_status nnc_source_made(nnc_source *o, nnc_status s, nnc_source **out) NNC_MUST;
nnc_status nnc_source_class(int64_t class, void *to) NNC_MUST; /* writes the row of a class */
/* Fails with a message that begins with the file and place of sample i. */
nnc_status nnc_source_fail(const nnc_source *o, int64_t i, nnc_sink *sink, const char *fmt, ...) NNC_PRINTF(4, 5);

/* Names of a folder's files or folders, sorted by bytes, without those that begin with a dot. */
typedef struct nnc_names {
    char **at;
    size_t n, room;
} nnc_names;
nnc_status nnc_list_folder(nnc_arena *a, const char *path, bool folders, nnc_names *out, nnc_sink *sink) NNC_MUST;
bool nnc_name_ends(const char *name, const char *end); /* ignores case */

nnc_status nnc_tensors_source(const nnc_request *q, nnc_source **out, nnc_sink *sink) NNC_MUST;
/* files: those of the folder q->path; NULL: q->path is the file. */
nnc_status nnc_cifar_source(const nnc_request *q, const nnc_names *files, nnc_source **out, nnc_sink *sink) NNC_MUST;
/* Whether the file is idx, compressed or not, by its first bytes. */
bool nnc_is_idx(const char *path);
/* pictures: the file of pictures. Without q->labels, labels are in the file with the corresponding name. */
nnc_status nnc_idx_source(const nnc_request *q, const char *pictures, nnc_source **out, nnc_sink *sink) NNC_MUST;
nnc_status nnc_folder_source(const nnc_request *q, const nnc_names *classes, nnc_source **out, nnc_sink *sink) NNC_MUST;

/* ---- augmentation (augment.c, resize.c) ---- */

typedef struct nnc_augment {
    int h, w; /* resize; w 0: the shorter side gets h; h 0: no resize */
    nnc_crop crop;
    int pad;
    bool flip;
    double rotate;
    int n_mean, n_std;
    float mean[4], std[4]; /* by channel, or one for all */
} nnc_augment;
/* Parses the options that are texts. NNC_E_USAGE names the flag. */
nnc_status nnc_augment_read(const nnc_data_options *o, nnc_augment *a, nnc_sink *sink) NNC_MUST;
/* Whether it moves values to other positions. */
static inline bool nnc_augment_moves(const nnc_augment *a) { return a->h || a->crop || a->flip || a->rotate > 0; }
static inline bool nnc_augment_any(const nnc_augment *a) { return nnc_augment_moves(a) || a->n_mean || a->n_std; }

/* Random numbers of one sample in one epoch. */
typedef struct nnc_draws {
    uint64_t key, first; /* elements first..first+NNC_DRAWS-1 of the stream */
    bool train;          /* false: no random choices */
} nnc_draws;
enum { NNC_DRAWS = 8 };
/* Augments s->now, to h x w if a->crop is set. *why: NULL, or what is wrong with the picture's size. */
nnc_status nnc_augment_apply(
    const nnc_augment *a, const nnc_draws *r, int h, int w, nnc_scratch *s, const char **why, nnc_sink *sink) NNC_MUST;
/* Resizes s->now bilinearly, with antialiasing when it shrinks. */
nnc_status nnc_resize(int h, int w, nnc_scratch *s, nnc_sink *sink) NNC_MUST;
/* Exchanges now and next. */
void nnc_scratch_swap(nnc_scratch *s);

/* ---- loader (loader.c): threads fill a ring of batches in any order; one thread takes them in order ---- */

enum { NNC_DATA_INPUTS = 16 };
typedef struct nnc_load { /* what is loaded; constant during a pass */
    int n;                            /* number of inputs */
    int64_t bytes[NNC_DATA_INPUTS];   /* by input: bytes of a row */
    int64_t rows;                     /* rows of a batch */
    nnc_status (*row)(void *ctx, int64_t batch, int64_t row, void *const *to, nnc_scratch *s, nnc_sink *sink);
    void *ctx;
} nnc_load;
typedef struct nnc_loader nnc_loader;
/* threads 0: nnc_loader_next loads the rows itself. */
nnc_status nnc_loader_create(const nnc_load *w, int threads, nnc_loader **out, nnc_sink *sink) NNC_MUST;
void nnc_loader_destroy(nnc_loader *l); /* or NULL; also in the middle of a pass */
/* nnc_loader_start begins a pass over batches first..end-1. nnc_loader_pause comes before another start; after it no thread loads. */
void nnc_loader_pause(nnc_loader *l);
void nnc_loader_start(nnc_loader *l, int64_t first, int64_t end);
nnc_status nnc_loader_next(nnc_loader *l, const void **batch, nnc_sink *sink) NNC_MUST;
nnc_data_times nnc_loader_take_times(nnc_loader *l);

#endif
