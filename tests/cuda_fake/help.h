/* tests/cuda_fake/help.h -- models from text, compiled and loaded: shared by the tests of the fake GPU. */
#ifndef TEST_CUDA_FAKE_HELP_H
#define TEST_CUDA_FAKE_HELP_H

#include "session/session.h"
#include "fake.h"
#include "plan/plan.h"
#include "test.h"

/* Skips the test where kernels cannot be built for this machine. */
bool no_compiler(void);
/* A model file's text, opened; NULL: the test has failed. */
nnc_model *model(const char *text);

/* Do the outputs of g agree with float64 within o->tolerance, or within what the outputs' conditioning explains, as nnc compare judges
 * without one? *t: the report. */
bool compared(nnc_env *e, const nnc_graph *g, const nnc_compare_options *o, nnc_text *t);

typedef struct loaded {
    nnc_env *e;
    nnc_model *m;
    nnc_artifact *a;
    nnc_session *s;
} loaded;

void compile(loaded *l, const char *text, const char *target, int streams, int devices);
void unload(loaded *l);

#endif
