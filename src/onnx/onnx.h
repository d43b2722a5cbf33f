/* onnx/onnx.h -- reads ONNX models into graphs, and tensors of ONNX's test folders. The file is mapped and read in place. Weights stay in
 * the file, and the graph refers to them.
 *
 * An operator of ONNX is a row of ops.def, which names the builder that decomposes it into ops of the graph IR. Values that depend only
 * on constants are computed while the model is read, by the IR's reference evaluator, since static shapes follow from them. */
#ifndef NNC_ONNX_H
#define NNC_ONNX_H

#include "ir/ir.h"

/* The extents of an input: --shapes=x:1x3x224x224. */
typedef struct nnc_shape {
    const char *name;
    int rank; /* -1: unknown */
    int64_t dim[NNC_MAX_RANK]; /* -1: unknown */
    const char *file; /* the file that has them; NULL: --shapes */
    const char *why; /* why the file's tensor cannot be read; NULL: it can */
} nnc_shape;
/* Reads "x:1x3x224x224"; "x:" or "x:scalar" is a scalar. The name is copied to `a`. */
nnc_status nnc_shape_parse(const char *text, nnc_shape *out, nnc_arena *a, nnc_sink *sink) NNC_MUST;

typedef struct nnc_onnx_options {
    const nnc_shape *shape; /* of inputs, by name */
    int n_shape;
    /* Inputs that will get values, and the shapes of these values, for extents that the model and `shape` leave open. An input with a
     * default (an initializer) becomes an input of the graph only if it is one of these, of `shape` or of `was`. Other names are
     * ignored. */
    const nnc_shape *input;
    int n_input;
    /* Values of the first n_value inputs. They determine the shapes; inputs that decide a shape become constants. */
    const nnc_tensor *value;
    int n_value;
    bool *bound; /* by input, n_value of them: whether it became a constant; may be NULL */
    nnc_given *given; /* when importing again: what was kept of the model's files; otherwise NULL */
    const nnc_shape *was; /* when importing again: previous shapes, for extents that the model and `shape` leave open */
    int n_was;
    bool held; /* nnc_onnx_parse: the bytes outlive the graph, whose weights refer to them */
    nnc_text *coverage; /* appended: the operators that the model uses; may be NULL */
} nnc_onnx_options;

/* True when a file that starts with these bytes, or has this name, is read as ONNX. */
bool nnc_onnx_looks(const char *file, const void *data, size_t n);
/* NULL: rejected, with the reasons in the sink, which list all unsupported operators. */
nnc_graph *nnc_onnx_load(const char *file, const nnc_onnx_options *o, nnc_sink *sink);
/* Reads the model that o->given describes. */
nnc_graph *nnc_onnx_again(const nnc_onnx_options *o, nnc_sink *sink);
/* The same for a model in memory, whose weights are copied unless o->held. `file`: for messages, and for the folder of external data. */
nnc_graph *nnc_onnx_parse(
    const char *file, const void *data, size_t n, const nnc_onnx_options *o, nnc_sink *sink);
/* Reads a file that holds one TensorProto. A tensor without elements has no data, and a dimension of 0. */
nnc_status nnc_onnx_read_tensor(const char *file, nnc_tensor *out, nnc_sink *sink) NNC_MUST;
/* Where weights go that do not fit into the model's file. */
typedef struct nnc_onnx_place {
    const char *data; /* path of a file in the model's folder, written only if needed. NULL: if needed, that is an error */
    int64_t most; /* most bytes of weights in the model's file; 0: as many as protocol buffers allow */
} nnc_onnx_place;
/* Appends g as an ONNX model, with its weights: fused nodes become functions. Updates are left out. place may be NULL. NNC_E_MODEL: the
 * message lists the nodes that nnc does not write as ONNX. */
nnc_status nnc_onnx_export(
    const nnc_graph *g, const nnc_onnx_place *place, nnc_text *out, nnc_sink *sink) NNC_MUST;

#endif
