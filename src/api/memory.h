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
/* Bytes of persistent memory that the optimizer's states take. */
int64_t nnc_optimizer_bytes(const nnc_plan *p, int device);
/* Bytes of each kind on a device: the first two are its persistent memory, the others add up to the arena's lower bound. false: out of
 * memory. */
bool nnc_find_fill(const nnc_plan *p, int device, int64_t fill[FILL__COUNT]);

/* By tensor: what a root that is live at the peak of this device's arena is there for (nnc_fill); others FILL__COUNT. NULL: out of
 * memory. */
uint8_t *nnc_find_kinds(const nnc_plan *p, int device);

/* Is the arena's tensor t, a root, read by the optimizer alone, but for the command that computes it? */
bool nnc_is_gradient(const nnc_plan *p, int32_t t);

#endif
