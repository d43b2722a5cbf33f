/* tests/cudnn/help.h -- what the tests of calls over false libraries share. */
#ifndef TEST_CUDNN_HELP_H
#define TEST_CUDNN_HELP_H

#include "cuda/cudnn.h"
#include "oracle.h"
#include "fake.h"
#include "target/target.h"

extern nnc_target gpu; /* between gpu_begin and gpu_end */
extern const nnc_engine_env gpu_env; /* with that target alone */

/* The false libraries, with a driver or without, for a GPU as nnc_target_cuda names it. */
void gpu_begin(const char *name, bool driver);
/* Takes them away; checks that all they made was given back. */
void gpu_end(void);

/* What is selected for a call when it is loaded within so many bytes of workspace, on the described GPU or (NULL) the current one.
 * engine -1: nothing, with the reason. */
typedef struct selection {
    int64_t engine, workspace; /* bytes that it needs */
    uint32_t numerical;
    bool fallback;
    char why[192];
} selection;
nnc_cudnn_device described_device(const nnc_target *t); /* strings are the target's */
/* Room for relayouts of both tensors and any transform. */
int64_t call_plenty(const nnc_call *c);
selection selected(const nnc_cudnn_device *d, const nnc_call *c, int64_t limit);

/* cuDNN's engine, but without the last of what follows the convolution: a fault to be found. */
nnc_engine wrong_end(void);

#endif
