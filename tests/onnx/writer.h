/* tests/onnx/writer.h -- writes ONNX models for tests: a wire writer, and messages on top of it. */
#ifndef TEST_ONNX_WRITER_H
#define TEST_ONNX_WRITER_H

#include "onnx/onnx.h"
#include "test.h"

/* Fields of a message under construction. */
void pb_varint(nnc_text *t, uint64_t v);
void pb_int(nnc_text *t, int field, int64_t v);
void pb_float(nnc_text *t, int field, float v);
void pb_bytes(nnc_text *t, int field, const void *p, size_t n);
void pb_str(nnc_text *t, int field, const char *s);
void pb_msg(nnc_text *t, int field, nnc_text *m); /* and empties m */

typedef struct om { /* a model under construction: its GraphProto, and what else it has */
    nnc_text graph, rest;
    int64_t opset;
    const char *domain; /* of the operator set; NULL: not written */
} om;
void om_deinit(om *m);
enum { OM_F32 = 1, OM_I64 = 7, OM_STRING = 8, OM_BOOL = 9 };
/* Extents as "1 3 x 8": a word is a named dimension, "?" an unknown one. NULL: no shape. */
void om_port(nnc_text *t, int field, const char *name, int code, const char *dims);
void om_input(om *m, const char *name, int code, const char *dims);
void om_output(om *m, const char *name);
/* A TensorProto with raw data: extents as "2 3". */
void om_tensor(
    nnc_text *t, const char *name, int code, const char *dims, const void *data, size_t bytes);
void om_floats(om *m, const char *name, const char *dims,
    float scale); /* an initializer of 0, 1, -2, 3, -4 ... times scale */
void om_ints(om *m, const char *name, int n, const int64_t *v); /* an initializer i64[n] */
/* A node. Names between blanks, "-" for one left out. Attributes are "axis=1 pads=1,1,0,0 alpha=0.5 mode='linear' to=[1] a=[0.5,1.0]
 * w=['x','y'] equation=i,j->ij". A number with a point is a float, several numbers or brackets a list, all else a word. */
void om_node(om *m, const char *op, const char *in, const char *out, const char *attrs);
void om_put_node(nnc_text *graph, int field, const char *op, const char *domain, const char *in,
    const char *out, const char *attrs);
void om_put(om *m, nnc_text *out); /* the ModelProto */

nnc_graph *om_parse(om *m, const nnc_onnx_options *o); /* reads it; empties m */
/* Reads a model whose end is the end of a page: no byte after it can be read. */
nnc_graph *om_parse_bytes(const void *data, size_t n, const nnc_onnx_options *o);

/* Checks that the graph is valid, and that its text holds each of these parts; "!x": it does not hold x. Destroys it. */
void om_check(nnc_graph *g, const char *const *want);
#define HAS(g, ...) om_check(g, (const char *const[]){__VA_ARGS__, NULL})

#endif
