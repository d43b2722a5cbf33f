/* tests/cudnn/golden.h -- tables of what one version of cuDNN answers. */
#ifndef TEST_CUDNN_GOLDEN_H
#define TEST_CUDNN_GOLDEN_H

#include "base/base.h"

bool golden_absent(void); /* skips the test where there is no cuDNN */
bool golden_without_driver(void); /* also where no libcuda.so.1 can be opened, a false one (fake/libcuda.c) neither */
/* Architectures that the installed cuDNN supports, the first ones of golden_gpu: from 9.11 on none before sm_75. */
extern const char *const golden_gpu[];
size_t golden_gpus(void);
void golden_head(nnc_text *t); /* the version's line */
/* Compares a table with a file and frees it. Tables of the same version are compared line by line, others in what is computed at all
 * (a line that ends in "none" is not). NNC_BLESS=1 writes the file. */
void golden_check(nnc_text *t, const char *file);

#endif
