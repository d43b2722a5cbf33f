/* onnx/attention.h -- shared by the builders of ONNX's attention (build_attention.c) and ONNX Runtime's (build_attention_ms.c). */
#ifndef NNC_ONNX_ATTENTION_H
#define NNC_ONNX_ATTENTION_H

#include "onnx/internal.h"

typedef struct attention {
    nnc_dtype d;
    int64_t batch, heads, kv_heads, rows, cols; /* rows: queries; cols: keys, including the cache */
    int64_t share; /* query heads per key head */
    bool flat; /* operands are [batch, rows, heads * size] */
    nnc_ref q, k, v; /* [batch, heads, rows, size] */
    nnc_ref offset; /* position of the first query: one number, or [batch, 1, 1, 1] */
    nnc_ref allowed; /* mask of the pairs (query, key) that take part; NNC_NONE: all */
    nnc_ref bias; /* added to their scores, or NNC_NONE */
    bool can_be_empty; /* a query may have no key */
} attention;

/* x as [batch, heads, rows, size]; NNC_NONE: reported. */
nnc_ref ox_by_head(ox_build *b, nnc_ref x, int64_t heads);
/* Fills in the extents by q, k and v. */
bool ox_attention_extents(ox_build *b, attention *a);
/* Positions of queries and keys, each along its dimension. */
void ox_attention_positions(ox_build *b, const attention *a, nnc_ref *row, nnc_ref *col);
void ox_attention_allow(ox_build *b, attention *a, nnc_ref condition);
/* Builds attention in the operands' form. step[]: scores, scores with the cap, masked scores, weights. NNC_NONE: reported. */
nnc_ref ox_attend(ox_build *b, const attention *a, nnc_ref step[4]);
/* Rotary embedding: rotates the first n numbers of each head of x [batch, heads, rows, size] by the angles of cosines and sines [batch or
 * 1, 1, rows, n / 2]. near: pairs are neighbours, not halves. */
nnc_ref ox_turned(ox_build *b, nnc_ref x, nnc_ref cosines, nnc_ref sines, int64_t n, bool near);

#endif
