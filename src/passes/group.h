/* passes/group.h -- groups of nodes that will become one kernel each, with an acyclic order of the groups. */
#ifndef NNC_PASSES_GROUP_H
#define NNC_PASSES_GROUP_H

#include "passes/internal.h"

typedef struct group {
    uint32_t *member; /* ascending */
    uint32_t n, n_real; /* number of members; of those that are not views */
    int64_t rows; /* least number of results of a reduction in it; INT64_MAX: no reduction */
    int64_t numel; /* of its largest result */
    int64_t bytes; /* of the largest value it reads or writes */
    int64_t
        ns; /* expected time of its kernel on a CPU, or of its parts' kernels if they took less; 0: not known yet */
    int64_t work; /* the same on one thread */
    bool
        flat; /* elementwise ops of one size without broadcasts: faster merged with another such group */
} group;

typedef struct groups {
    pass *p;
    uint32_t n_node;
    uint32_t *parent; /* union-find over nodes; a root represents its group */
    group *group; /* by root */
    bool *fusable; /* may join a kernel */
    const bool *late, *last, *gradient; /* find_late, find_last, find_gradients */
    const int64_t
        *updates; /* by node: bytes of the state that is its result's new value; or NULL */
    const uint32_t *
        place; /* fuse_wait.c, by node: the last forward node among its direct and indirect operands; or NULL */
    const int64_t
        *before; /* by node: bytes of earlier nodes' results that are kept for the backward pass */
    int64_t peak; /* estimated peak memory of a training step, whatever is fused */
    uint32_t *ord; /* by root: position in a topological order of groups; unique */
    uint32_t *kept, *moved,
        *since; /* by root: its position when groups_keep was called, if its stamp `since` is n_keep; such groups */
    uint32_t n_moved, n_keep;
    uint32_t *mark; /* per value that existed at the start: stamps */
    uint32_t n_value;
    uint32_t *seen; /* per node: stamps */
    uint32_t stamp;
    uint32_t *stack, *ahead, *behind; /* scratch of searches */
    uint32_t n_ahead, n_behind;
    int64_t ns,
        work; /* expected time of the last two groups' common kernel, and on one thread; 0: not known */
    uint32_t *joined; /* scratch: members of two groups */
    nnc_ref *result;  /* scratch: results of a kernel */
    const char **taken; /* by node: why groups_take_apart divided its kernel; NULL: it did not */
    bool apart; /* groups_take_apart divided some */
} groups;

bool groups_init(groups *s, pass *p); /* false: out of memory */
/* A group of only this node; the caller sets its member. */
group groups_alone(const nnc_graph *g, uint32_t i);
uint32_t group_of(const groups *s, uint32_t node);
/* True when merging a and b (a feeds b) creates no cycle. */
bool groups_can_merge(groups *s, uint32_t a, uint32_t b);
/* Merges; groups_can_merge must have returned true. */
void groups_merge(groups *s, uint32_t a, uint32_t b);
/* Records the current order of groups, for groups_part. */
void groups_keep(groups *s);
/* Undoes merges of these nodes, each of which was a group when groups_keep was called, and nothing else has merged since. */
void groups_part(groups *s, const uint32_t *nodes, uint32_t n);
/* Members of both, ascending; valid until the next call. */
const uint32_t *groups_joined(groups *s, uint32_t a, uint32_t b, uint32_t *n);
/* Marks these nodes in s->seen; valid until the next search of groups. */
void groups_mark(groups *s, const uint32_t *nodes, uint32_t n);
bool groups_leave(const groups *s, nnc_ref v); /* do unmarked nodes read v? */

/* ---- fuse.c ---- */
/* The groups that become kernels. */
nnc_status groups_find(groups *s, pass *p) NNC_MUST;
/* True when these nodes (ascending) can be one kernel. */
bool groups_one_kernel(groups *s, const uint32_t *nodes, uint32_t n, const char **why);
/* Expected time of one kernel of these nodes, *work: on one thread of a CPU; 0: no kernel can compute them. */
int64_t groups_nodes_ns(groups *s, const uint32_t *nodes, uint32_t n, int64_t *work);
/* Merges the groups of these nodes (ascending) that are connected. */
void groups_merge_nest(groups *s, const uint32_t *nodes, uint32_t n);
/* Bytes that one kernel for both saves: b's reads of a's results, writes without other users, shared operands. */
int64_t groups_bytes_saved(groups *s, uint32_t a, uint32_t b);

/* ---- fuse_step.c ---- */
void groups_of_step(groups *s); /* finds what step_blocker asks */
/* Why groups a and b (a feeds b) of a training step stay apart, or NULL. */
const char *step_blocker(groups *s, uint32_t a, uint32_t b);

/* ---- fuse_wait.c ---- */
void groups_of_wait(groups *s); /* finds what waits_for_gradient asks */
/* Why group a of the backward pass stays apart from b; NULL: it need not. Only b needs gradients, and it reads a's results. */
const char *waits_for_gradient(groups *s, uint32_t a, uint32_t b);
/* Would one kernel of these nodes raise the step's peak memory, by results of the forward pass that it computes again? */
bool raises_peak(groups *s, const uint32_t *nodes, uint32_t n);
/* Reason to keep groups a and b of the backward pass apart, where one needs gradients and one computes again what others read; or NULL. */
const char *computes_beside(groups *s, uint32_t a, uint32_t b);

/* ---- fuse_apart.c ---- */
/* On a CPU, not in training steps: divides groups that are expected to take longer than their layers as written. True: there were some. */
bool groups_take_apart(groups *s);
/* Why groups a and b were divided, if they are parts of one that was; NULL: they are not. */
const char *groups_taken_apart(const groups *s, uint32_t a, uint32_t b);

#endif
