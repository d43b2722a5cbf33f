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

/* Costs of one op for all models, compared with an op for each. */
typedef struct stack_cost {
    int commands; /* ops that are one command instead of n */
    int64_t all_ns; /* of the models' separate contractions */
    int64_t moved_bytes; /* of copies that move a stack's model dimension */
} stack_cost;

typedef struct stacked { /* what has been built */
    const nnc_ref *v; /* members */
    int n;
    stack stack;
    bool states; /* their new values must be stacked, too */
    bool computed; /* by one op for all models */
    uint32_t run; /* number of the run that it was built for */
    stack_cost cost;
} stacked;

typedef struct stacks {
    pass *p;
    int n; /* number of models of the run being built */
    uint32_t run; /* its number */
    uint32_t *group; /* by run: set of runs that share stacks (find_root) */
    stacked *at;
    size_t n_at, cap_at, cap_group;
    int depth;
    stack_cost now; /* of the op that is being built */
    const char *why; /* why a contraction cannot be one for all models, or NULL */
} stacks;

/* The stack with its models along another dimension. */
nnc_ref stack_turn(stacks *s, nnc_ref all, int from, int to);
/* The stack as one value with the models along the members' dimension `axis`: [.., n e, ..]. */
nnc_ref stack_merge(stacks *s, stack x, int axis);
/* r, [.., n e, ..], as the stack of members of type y. */
stack stack_divide(stacks *s, nnc_ref r, const nnc_type *y, int axis);
/* Can c be one op for all models? */
bool stack_knows(const pass *p, const nnc_node *c);
/* Builds the op for all models that c is for one. shared[j]: all share operand j, and in[j].all is the value itself. */
stack stack_op(stacks *s, const nnc_node *c, const stack *in, const bool *shared);

#endif
