/* base/post.h -- post-operations: elementwise ops that a library applies to a call's result before storing it. */
#ifndef NNC_POST_H
#define NNC_POST_H

#include <stdbool.h>
#include <stdint.h>

/* Rows of post.def. PO_sum adds an argument tensor (in place: the destination's former contents). */
typedef enum nnc_post_kind {
#define POST(name, op) PO_##name,
#include "base/post.def"
    PO__COUNT
} nnc_post_kind;

/* Applied in order to the accumulated f32 result. */
typedef struct nnc_post {
    uint8_t kind;
    bool in_place; /* PO_sum */
} nnc_post;

#define NNC_MAX_POST 6

#endif
