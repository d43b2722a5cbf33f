/* api/memory.h -- what fills the memory of a training step. Internal to api/. */
#ifndef NNC_API_MEMORY_H
#define NNC_API_MEMORY_H

#include "plan/plan.h"

typedef enum nnc_fill {
#define FILL(name, doc) FILL_##name,
#include "api/memory.def"
    FILL__COUNT
} nnc_fill;
extern const char *const nnc_fill_names[FILL__COUNT], *const nnc_fill_docs[FILL__COUNT];

bool nnc_is_step(const nnc_plan *p); /* has it a section step, or gradients of inputs? */
int32_t nnc_backward_begin(const nnc_plan *p); /* the first command of the step's backward pass */
/* Bytes of each kind on a device: the first two are its persistent memory, the others add up to the arena's lower bound. */
void nnc_find_fill(const nnc_plan *p, int device, int64_t fill[FILL__COUNT]);

/* Is the arena's tensor t, a root, read by the optimizer alone, but for the command that computes it? */
bool nnc_is_gradient(const nnc_plan *p, int32_t t);

#endif
