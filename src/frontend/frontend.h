/* frontend/frontend.h -- reads the user's models into graphs. */
#ifndef NNC_FRONTEND_H
#define NNC_FRONTEND_H

#include "base/setting.h"
#include "ir/ir.h"
#include "onnx/onnx.h"

typedef struct nnc_set { const char *name; int64_t value; } nnc_set;      /* --set batch=8 */
typedef struct nnc_set_word { const char *name, *value; } nnc_set_word;   /* --set order=pool-relu, dtype=f16 */

typedef struct nnc_model_options {
    const nnc_set *set;
    int n_set;
    const nnc_set_word *word;
    int n_word;
    uint64_t seed; /* of generated weights */
    bool trains; /* the section "train" sets the arg `batch` and, without has_seed, the seed */
    bool has_seed;
    const char *place; /* --place: "LAYERS=DEVICE,..."; NULL: as the model says; nnc_model_again: unchanged */
    int classes; /* outputs of a new head (--replace-head); 0: keep the head; nnc_model_again: unchanged */
    const char *weights; /* file of tensors, or what messages call `own`; NULL = generate */
    const nnc_weight *const *own; /* the tensors instead of the file, in memory that outlives the graph */
    const nnc_type *const *own_type;
    int n_own;
    const nnc_arg *rename; /* rules for its tensors (nnc_tensors_rename) */
    int n_rename;
    nnc_onnx_options onnx; /* of ONNX models */
    const nnc_graph *again; /* nnc_model_again: the model to read again; otherwise NULL */
} nnc_model_options;

/* Loads a model file: .json (model), graph text ("graph @...") or .onnx, recognised by content. NULL: an error, located in the sink. */
nnc_graph *nnc_model_load(const char *file, const nnc_model_options *o, nnc_sink *sink);
nnc_graph *nnc_model_parse(const char *file, const char *text, size_t n, const nnc_model_options *o, nnc_sink *sink);

/* Reads the model that g was read from (g->given) again, for the args and shapes of o; the rest stays the same. Nothing is read from its
 * files: weights are those of g. NULL: an error, located in the sink. */
nnc_graph *nnc_model_again(const nnc_graph *g, const nnc_model_options *o, nnc_sink *sink);

/* Lists the layers of a model in order in path[], which has room for its nodes. Sets layer_of[] by node; -1: leaves and nodes without a
 * path. Returns the number of layers. */
int nnc_model_layers(const nnc_graph *g, const char **path, int32_t *layer_of);

/* Puts layers on devices by a --place text, "LAYERS=DEVICE,...". NNC_E_USAGE: unknown layers, layers placed twice or not at all. */
nnc_status nnc_model_place(nnc_graph *g, const char *place, nnc_sink *sink) NNC_MUST;
/* Applies rules "LAYERS=WORD,..." of a flag. of[i] is the index of node i's word, -1 if its layer has none; rule[i] is the rule within
 * `rules`, up to its comma. NNC_E_USAGE: unknown layers or words, layers with two words. */
nnc_status nnc_model_words(const nnc_graph *g, const char *flag, const char *rules, const char *const *word, int n_word, int *of,
    const char **rule, nnc_sink *sink) NNC_MUST;

/* Appends the layer types with their keys, defaults and documentation, as text or JSON. */
void nnc_layers_list(bool json, nnc_text *t);

/* Limits, stated in docs/model.md and checked before memory is allocated. */
#define NNC_MAX_LAYERS 100000
#define NNC_MAX_NESTING 32
#define NNC_MAX_MODEL_BYTES (64 << 20)

#endif
