/* tests/nvrtc/budget.h -- what NVRTC made of a generated kernel, held against its kernel IR: registers, instructions, local memory, the
 * widths of accesses.
 *
 * A thread's instructions on the usual path (nnc_cubin_usual) are at most
 *
 *     fixed + places + elements of one vector * vectors in flight * (sum over the stages: copies * (sum over instructions: cost))
 *
 * with the numbers of budget.def; `copies` is 1 for what is outside of loops over own axes, and at most the class's inside of them. All of
 * the code, tails and slow paths with it, is at most CODE_TIMES as much and CODE_FIXED.
 *
 * The numbers were fitted to the kernels of models and of the usual seed's graphs. Kernels of other graphs may have twice the instructions
 * and registers, and NVRTC may join or divide their accesses. Loops that are unrolled without end are still found.
 *
 * Of all kernels: arrays that stay in local memory, registers that ran out, and unknown instructions that branch or reach memory. */
#ifndef TEST_NVRTC_BUDGET_H
#define TEST_NVRTC_BUDGET_H

#include "codegen/codegen.h"
#include "cuda/cuda.h"

/* What is wrong with the machine code, or NULL. `why` holds the text. fitted: the numbers were fitted to such kernels. */
const char *budget_check(const nnc_kernel *k, const nnc_cubin_kernel *c, bool fitted, char why[256]);

/* What was seen of all kernels that were checked. Thread-safe. */
void budget_print(void);
void budget_reset(void);

/* Checks every kernel of a plan that was compiled and returns how many launches that were; failures are the test's, `what` names the
 * plan. Thread-safe. */
struct nnc_plan;
int budget_plan(const char *what, const struct nnc_plan *p, bool fitted);

#endif
