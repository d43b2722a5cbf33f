/* plan/verify.h -- shared by the verifier's files. Internal to plan/. */
#ifndef NNC_PLAN_VERIFY_H
#define NNC_PLAN_VERIFY_H

#include "plan/internal.h"

typedef struct check {
    const nnc_plan *p;
    nnc_sink *sink;
    nnc_status code;
    int64_t *arg_bytes;  /* of each argument of each kernel */
    int32_t *first_arg;  /* by kernel: index of its first argument in arg_bytes */
    bool **in_place;     /* by kernel, operand and result: may this overwrite that? NULL: more than PLAN_PAIRS pairs */
    bool *gpu;           /* by kernel: whether its schedule is for a GPU */
} check;

bool plan_type_ok(const nnc_type *t); /* dims in range, order a permutation */
/* verify_kernel.c: every kernel's text is valid. Fills the sizes of its buffers. */
nnc_status plan_check_kernels(check *v, nnc_arena *a) NNC_MUST;
/* verify_device.c: every device has a name and the target of its kind, and its commands' code is for that target. */
nnc_status plan_check_devices(const check *v, nnc_arena *a) NNC_MUST;
/* collective.c: every collective has its participants, their tensors match, and none waits for another's later commands. */
nnc_status plan_check_collectives(const check *v, nnc_arena *a) NNC_MUST;
/* verify_memory.c: every read follows its write, and no live content is overwritten. */
nnc_status plan_check_memory(check *v, nnc_arena *a) NNC_MUST;

#endif
