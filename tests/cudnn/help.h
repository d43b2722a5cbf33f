/* tests/cudnn/help.h -- what the tests of calls over false libraries share. */
#ifndef TEST_CUDNN_HELP_H
#define TEST_CUDNN_HELP_H

#include "engines/calls.h"
#include "fake.h"
#include "target/target.h"

extern nnc_target gpu; /* between gpu_begin and gpu_end */
extern const nnc_engine_env gpu_env; /* with that target alone */

/* The false libraries, with a driver or without, for a GPU as nnc_target_cuda names it. */
void gpu_begin(const char *name, bool driver);
/* Takes them away; checks that all they made was given back. */
void gpu_end(void);

/* cuDNN's engine, but with the first two of what follows the convolution in the wrong order: a fault to be found. */
nnc_engine wrong_order(void);

#endif
