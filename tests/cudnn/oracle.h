/* tests/cudnn/oracle.h -- runs one call on one engine, and the same by simple float64 loops. */
#ifndef TEST_CALLS_H
#define TEST_CALLS_H

#include "plan/plan.h"
#include "test.h"

/* A call with everything dense and unpadded; then change what the test is about. spatial 0: matmul. */
nnc_call conv_call(int spatial, int64_t n, int64_t c, int64_t size, int64_t k, int64_t kernel, int64_t stride, int64_t pad);
nnc_call matmul_call(int64_t m, int64_t n, int64_t k, bool trans_b);
void call_dtype(nnc_call *c, nnc_dtype d);
void call_bias(nnc_call *c);
void call_post(nnc_call *c, nnc_post_kind kind);
void call_channels_last(nnc_call *c); /* the activations */
void call_wgrad(nnc_call *c); /* of a convolution: the gradient of its weights */
/* dst's spatial extents from the rest (conv floors, transposed conv dense). */
void call_fix_dst(nnc_call *c);

/* Random operands; runs the call on the engine (choose, load, run twice) and compares with float64 loops:
 * |difference| <= tol * (1 + largest result). Returns false (and says why) when the engine declines. */
extern int64_t call_samples; /* elements that are compared, about; the rest only has to be the same call's doing */
/* Operand of call_check's calls that has one NaN, in its middle; NaNs in the result must be exactly the loops'. */
typedef enum call_operand { CALL_NONE, CALL_SRC, CALL_WEI, CALL_BIAS, CALL_SUM } call_operand;
extern call_operand call_nan_in;
extern int *call_found; /* of a test that plants a fault: differences are counted here, and are no failures; NULL = none */
bool call_check(const nnc_engine *e, const nnc_call *c, double tol, const char *what);

#endif
