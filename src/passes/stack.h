/* passes/stack.h -- alike values of n models as one: shared by stacks.c, which finds them, and stack_ops.c, which builds their ops. */
#ifndef NNC_PASSES_STACK_H
#define NNC_PASSES_STACK_H

#include "passes/internal.h"

/* The values of n models as one, with a dimension that counts the models; NNC_NONE: there is no such value. Parts of the channels of [N, n
 * C, ..] are [N, n, C, ..] without a copy, concatenated weights are [n, ..]. */
typedef struct stack {
    nnc_ref all;
    int axis;
} stack;

/* What an op of all models takes, and those of each. */
typedef struct stack_cost {
    int commands; /* ops that are one command instead of n */
    int64_t all_ns; /* of contractions, apart */
    int64_t moved_bytes; /* of copies that turn a stack's models to another dimension */
} stack_cost;

typedef struct stacked { /* what has been built */
    const nnc_ref *v; /* members */
    int n;
    stack stack;
    bool states; /* their new values must be stacked, too */
    bool computed; /* by an op of all */
    uint32_t run; /* that it was built for */
    stack_cost cost;
} stacked;

typedef struct stacks {
    pass *p;
    int n; /* models of the run that is being built */
    uint32_t run; /* its number */
    uint32_t *group; /* of runs that share stacks, by run: find_root */
    stacked *at;
    size_t n_at, cap_at, cap_group;
    int depth;
    stack_cost now; /* of the op that is being built */
    const char *why; /* a contraction cannot be one of all models, or NULL */
} stacks;

/* The stack with its models along another dimension. */
nnc_ref stack_turn(stacks *s, nnc_ref all, int from, int to);
/* The stack, its models as parts of dimension `axis` of the members: [.., n e, ..]. */
nnc_ref stack_merge(stacks *s, stack x, int axis);
/* r, [.., n e, ..], as the stack of members of type y. */
stack stack_divide(stacks *s, nnc_ref r, const nnc_type *y, int axis);
/* Is c an op that can be one of all models? */
bool stack_knows(const pass *p, const nnc_node *c);
/* The op of all models that c is for one; in[j].all of operands that all share, where shared[j], is the value itself. */
stack stack_op(stacks *s, const nnc_node *c, const stack *in, const bool *shared);

#endif
