/* engines/shared.h -- reference-counted objects of a plan, shared by the handles of its kernels. */
#ifndef NNC_ENGINES_SHARED_H
#define NNC_ENGINES_SHARED_H

#include "plan/plan.h"

typedef struct shared_object {
    void *object; /* result of `load` */
    struct shared_entry *entry;
} shared_object;

/* How one engine loads and unloads an object. */
typedef struct shared_kind {
    nnc_status (*load)(const nnc_plan *p, const nnc_blob *b, void **object, nnc_sink *sink);
    void (*unload)(void *object);
} shared_kind;

/* Returns the plan's object of that number, loaded once per plan; the blob outlives it. Thread-safe. */
nnc_status shared_acquire(
    const shared_kind *kind, const nnc_plan *p, int object, shared_object *out, nnc_sink *sink) NNC_MUST;
void shared_release(shared_object *o); /* NULL object: nothing happens */

#endif
