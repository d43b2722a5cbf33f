/* frontend/frontend.h -- reads the user's files: JSON models into graphs, and tensor files (.npy, safetensors). */
#ifndef NNC_FRONTEND_H
#define NNC_FRONTEND_H

#include "ir/ir.h"

typedef struct nnc_set { const char *name; int64_t value; } nnc_set;      /* --set batch=8 */
typedef struct nnc_set_word { const char *name, *value; } nnc_set_word;   /* --set order=pool-relu, dtype=f16 */

typedef struct nnc_model_options {
    const nnc_set *set; int n_set;
    const nnc_set_word *word; int n_word;
    uint64_t seed;            /* of generated weights */
    const char *weights;      /* safetensors file, NULL = generate */
} nnc_model_options;

/* Loads a model file, .json (model) or .nnc (text graph, "graph @..."), distinguished by content. NULL on error, located in the sink. */
nnc_graph *nnc_model_load(const char *file, const nnc_model_options *o, nnc_sink *sink);
nnc_graph *nnc_model_parse(const char *file, const char *text, size_t n, const nnc_model_options *o, nnc_sink *sink);

/* The layer types with their keys, defaults and documentation, as text or JSON. */
void nnc_layers_list(bool json, nnc_text *t);

/* Limits, stated in docs/model.md and checked before memory is allocated. */
#define NNC_MAX_LAYERS 100000
#define NNC_MAX_NESTING 32
#define NNC_MAX_MODEL_BYTES (64 << 20)

/* Reads one tensor into newly allocated row-major memory. Dtypes f64 f32 f16 ints bool; Fortran order is converted. */
nnc_status nnc_npy_load(const char *file, nnc_tensor *out, nnc_sink *sink) NNC_MUST;
nnc_status nnc_npy_save(const char *file, const nnc_type *t, const void *row_major, nnc_sink *sink) NNC_MUST;

/* A memory-mapped safetensors file. */
typedef struct nnc_safetensors nnc_safetensors;
typedef struct nnc_st_entry {
    const char *name;
    nnc_type type;
    int64_t offset, size; /* offset from the file's start */
    const char *why;      /* reason why nnc cannot read it (type is undefined then); NULL: it can */
} nnc_st_entry;
nnc_status nnc_safetensors_open(const char *file, nnc_safetensors **out, nnc_sink *sink) NNC_MUST;
void nnc_safetensors_close(nnc_safetensors *s);
int nnc_safetensors_count(const nnc_safetensors *s);
const nnc_st_entry *nnc_safetensors_at(const nnc_safetensors *s, int i);
const nnc_st_entry *nnc_safetensors_find(const nnc_safetensors *s, const char *name);
uint64_t nnc_safetensors_header_hash(const nnc_safetensors *s);

#endif
