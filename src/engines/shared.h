/* engines/shared.h -- objects of a plan that the handles of its kernels share, counted. */
#ifndef NNC_ENGINES_SHARED_H
#define NNC_ENGINES_SHARED_H

#include "plan/plan.h"

typedef struct shared_object {
    void *object; /* what `load` gave */
    struct shared_entry *entry;
} shared_object;

/* Of one engine: how an object is made of a blob, and undone. */
typedef struct shared_kind {
    nnc_status (*load)(const nnc_plan *p, const nnc_blob *b, void **object, nnc_sink *sink);
    void (*unload)(void *object);
} shared_kind;

/* The plan's object of that number, loaded once for the plan; the blob outlives it. Thread-safe. */
nnc_status shared_acquire(
    const shared_kind *kind, const nnc_plan *p, int object, shared_object *out, nnc_sink *sink) NNC_MUST;
void shared_release(shared_object *o); /* of none: nothing */

#endif
