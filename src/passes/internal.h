/* passes/internal.h -- shared by the passes: the pass in progress, the editor that tracks costs, remarks. Included in this folder
 * only.
 *
 * A rewrite is: edit_at (context of new nodes), nnc_build..., edit_replace, then one applied remark, which accounts for the change of
 * cost since the previous remark. Costs are stored per node, so a rewrite affects only its neighbourhood. */
#ifndef NNC_PASSES_INTERNAL_H
#define NNC_PASSES_INTERNAL_H

#include "passes/passes.h"

#include <stdarg.h>
#include <string.h>

enum { PF_rowmajor = 1, PF_target = 2 };

typedef enum pass_id {
#define PASS(name, level, fusion, needs, doc) PASS_##name,
#include "passes/passes.def"
    PASS__COUNT
} pass_id;

/* Users of values, as lists in one pool. Per node: whether it is dead or static, and its cost. */
typedef struct use {
    uint32_t node, next; /* next: 1-based index into the pool; 0 ends */
} use;

typedef struct edit {
    nnc_graph *g;
    nnc_arena *a;
    uint32_t *head, *tail; /* per value, 1-based into uses; entries of dead nodes stay */
    uint32_t *n_use;       /* per value: operands of live nodes and outputs */
    uint32_t *n_out_use;   /* per value: outputs alone */
    size_t cap_value, cap_head, cap_tail, cap_n_use, cap_out;
    use *uses;
    size_t n_uses, cap_uses;
    bool *dead, *is_static; /* per node */
    nnc_cost *cost;
    size_t cap_dead, cap_static, cap_cost;
    uint32_t n_node, n_value; /* registered so far */
    uint32_t taken_node;      /* nodes below existed when the last remark was made */
    int64_t bytes, launches;  /* of live, non-static nodes, less what remarks have accounted for */
} edit;

typedef struct pass {
    pass_id id;
    const char *name;
    nnc_graph *g;
    const nnc_pass_options *o;
    nnc_remarks *remarks;
    nnc_sink *sink;
    nnc_arena *a; /* scratch, freed after the pass */
    edit e;
    bool ran[PASS__COUNT], will_run[PASS__COUNT]; /* which passes ran before this one, which will run after it */
    int changed;        /* applied remarks */
    bool again;         /* the pass is to run again on its result */
    bool edited;        /* a value was replaced: equal constants are merged without a remark */
    nnc_status status; /* sticky */
} pass;

typedef nnc_status (*pass_fn)(pass *p);

#define PASS(name, level, fusion, needs, doc) nnc_status pass_##name(pass *p);
#include "passes/passes.def"

/* Zeroed memory that is freed after the pass; NULL: out of memory, and p->status is set. */
void *pass_alloc(pass *p, size_t n, size_t size);
#define PASS_NEW(p, T, n) ((T *)pass_alloc((p), (size_t)(n), sizeof(T)))
void pass_nomem(pass *p); /* sets p->status to "out of memory" */
bool pass_made(pass *p, bool allocated); /* returns `allocated`; where it is false, the pass is out of memory */
/* ARENA_ROOM in p->a; false: out of memory, and p->status is set. */
#define PASS_ROOM(p, at, cap, n) pass_made((p), ARENA_ROOM((p)->a, (at), (cap), (n)))
/* The target of the device that node n is placed on; NULL: none is described. */
static inline const nnc_target *target_of(const pass *p, const nnc_node *n)
{
    return nnc_target_on(p->o->target, p->o->n_target, n->device);
}
static inline nnc_node *def_of(const pass *p, nnc_ref v) { return nnc_def(p->g, v); }
static inline const nnc_type *type_of(const pass *p, nnc_ref v) { return nnc_typeof(p->g, v); }
static inline int64_t numel_of(const pass *p, nnc_ref v) { return nnc_type_numel(type_of(p, v)); }
static inline int64_t bytes_of(const pass *p, nnc_ref v) { return nnc_type_bytes(type_of(p, v)); }
static inline bool on_one_device(const nnc_node *a, const nnc_node *b)
{
    return a->device == b->device || (a->device < 1 && b->device < 1); /* -1 is device 0 */
}
/* Why nodes a and b cannot be one command; NULL: their places do not forbid it. */
static inline const char *placed_apart(const nnc_node *a, const nnc_node *b)
{
    return !on_one_device(a, b) ? "they are placed on different devices"
           : a->task != b->task ? "they belong to different tasks of a schedule"
                                : NULL;
}
/* May f32 operands be rounded to tf32, and does the target gain by it? */
static inline bool uses_tf32(const pass *p, const nnc_target *t) { return p->o->policy.tf32 && t && t->flops_tf32 > 0; }

/* cse.c: merges equal static values of several tasks, such as weights that a pass packed for each micro-batch. */
nnc_status merge_of_tasks(pass *p) NNC_MUST;

/* ---- edit.c ---------------------------------------------------------------------------------------------- */

nnc_status edit_open(pass *p) NNC_MUST;
/* Registers nodes built since the last call; also called by the functions below. False: p->status is a failure. */
bool edit_sync(pass *p);
/* New nodes get origin, location and device of node i. */
void edit_at(pass *p, uint32_t i);
/* The same for a node whose result replaces v, an operand of node `reader` or its result. A collective has no device: each of its operands
 * stays on the device that computes it. */
void edit_at_operand(pass *p, uint32_t reader, nnc_ref v);
/* May `reader` read `other`, a value computed from v, instead of v? */
bool edit_may_read(const pass *p, uint32_t reader, nnc_ref v, nnc_ref other);
/* Redirects all uses of `from` to `to` and removes nodes that are then unused. Types must be equal, memory order included; a dense
 * `to` gets the strides of `from`, which may be part of a larger value. */
void edit_replace(pass *p, nnc_ref from, nnc_ref to);
/* v in the memory order of `want` (same dimensions): itself, or a relayout. */
nnc_ref edit_in_order(pass *p, nnc_ref v, const nnc_type *want);
/* Returns v in the memory order of `from`, which it will replace. Copies where v is a view and `from` an operand of an in-place concat. */
nnc_ref edit_like(pass *p, nnc_ref v, nnc_ref from);
/* Sets node i's operand k to r (its type may differ in order: call edit_refresh when the node's own type changes). */
void edit_set_operand(pass *p, uint32_t i, int k, nnc_ref r);
/* Sets output number o to r. */
void edit_set_output(pass *p, uint32_t o, nnc_ref r);
/* Recomputes node i's cost, and whether it is static. */
void edit_refresh(pass *p, uint32_t i);
bool edit_unused(const pass *p, uint32_t i); /* no result of node i is used */
/* Removes a node without users, and nodes that only it used. */
void edit_sweep(pass *p, uint32_t i);
/* The only live node that reads v, when v has exactly one use and is not an output; otherwise NULL. */
nnc_node *edit_only_user(const pass *p, nnc_ref v);
/* Iterates over the live nodes that read v, once for each use: for (uint32_t at = 0, i; edit_next_user(p, v, &at, &i);). The loop may add
 * uses. */
static inline bool edit_next_user(const pass *p, nnc_ref v, uint32_t *at, uint32_t *node)
{
    do {
        *at = *at ? p->e.uses[*at - 1].next : p->e.head[v];
        *node = *at ? p->e.uses[*at - 1].node : 0;
    } while (*at && p->e.dead[*node]);
    return *at != 0;
}
static inline bool edit_static(const pass *p, nnc_ref v) { return p->e.is_static[p->g->value[v].node]; }
static inline bool edit_is_output(const pass *p, nnc_ref v) { return p->e.n_out_use[v] > 0; }
static inline uint32_t node_index(const pass *p, const nnc_node *n) { return (uint32_t)(n - p->g->node); }

/* ---- remark.c -------------------------------------------------------------------------------------------- */

/* The layers of a remark, in order, each once. */
typedef struct layers {
    const char **at;
    size_t n, cap;
    uint32_t *table, mask; /* hash table of at[]: index + 1 */
} layers;

/* Adds the layer paths of node i (a fused node: of all its members). */
void layers_add(pass *p, layers *l, uint32_t i);
/* `rule` must be static or in the remark list's arena (remark_text). */
void remark_applied(pass *p, const layers *l, const char *rule, const char *fmt, ...) NNC_PRINTF(4, 5);
void remark_declined(pass *p, const layers *l, const char *rule, const char *fmt, ...) NNC_PRINTF(4, 5);
void decline_node(pass *p, uint32_t i, const char *rule, const char *fmt, ...) NNC_PRINTF(4, 5); /* of one node */
/* Sets bytes_kept of the last remark. */
void remark_bytes_kept(pass *p, int64_t bytes);
const char *remark_text(pass *p, const char *fmt, ...) NNC_PRINTF(2, 3); /* never NULL */
/* The same for one or two nodes. */
layers layers_of(pass *p, uint32_t a, uint32_t b); /* b = NNC_NONE: one */
/* "25.7 MB" etc. in the remark arena. */
const char *text_bytes(pass *p, int64_t bytes);
const char *text_of(pass *p, const nnc_text *t); /* a copy that lasts as remark_text does */
/* The name of a node in remarks: its op, and for a fused node the ops in it. */
const char *node_word(pass *p, const nnc_node *n);

/* ---- shared questions -------------------------------------------------------------------------------------- */

/* The chain of ops after contraction i that fuse_epilogue would fuse: node[0..n), in order. stop: the node that ended it (NNC_NONE: none),
 * why: the reason. */
#define MAX_CHAIN 8
enum { MAX_EPILOGUE = 6 }; /* NNC_MAX_POST */
typedef struct epilogue {
    uint32_t node[MAX_CHAIN];
    int n;
    uint32_t stop;
    const char *why;
} epilogue;
void epilogue_plan(pass *p, uint32_t i, epilogue *out);
/* Estimated nanoseconds of a kernel for the chain's ops after node i, which has a contraction; 0: other kernels compute them. */
int64_t epilogue_rest_ns(pass *p, uint32_t i, const epilogue *chain);
/* The contraction that will compute v in its epilogue after fuse_epilogue, or NULL. */
const nnc_node *epilogue_of(pass *p, nnc_ref v);
/* Price of elementwise op o in a kernel, in FLOPs at the peak rate. */
static inline int op_flops(nnc_op o) { return nnc_op_is_expensive(o) ? NNC_F_function : 1; }
/* siblings.c: if v is a result of splits or slices along one dimension *axis: the divided tensor *x, and v's first index in it. Follows
 * them back to the tensor `until`, or as far as possible. False: v is no such result. */
bool place_in(
    const pass *p, nnc_ref v, nnc_ref until, nnc_ref *x, int64_t *axis, int64_t *start);
/* Concatenates the n values at v along dimension 0, as a tree of concats, since kernels copy only few operands fast. Overwrites v[]. */
nnc_ref concat_in_steps(pass *p, int n, nnc_ref *v);
/* Builds convolution c with operands `in` and n times its groups. */
nnc_ref conv_of_groups(pass *p, const nnc_node *c, const nnc_ref *in, int n);
void sort_nodes(uint32_t *node, size_t n); /* group.c: ascending */
/* stacks.c: the part of pass_siblings that joins models trained side by side, with their gradients and updates. */
void join_trained(pass *p);
/* Parts of pass_fuse_epilogue on GPUs. update_product.c: fuses an update w - lr * gradient into the product that computes the gradient. */
void add_to_weights(pass *p);
/* turned_operands.c: lets products of a library read transposed operands. */
void read_turned(pass *p);
/* small_products.c: rules of algebra.c. */
nnc_ref rule_one_place(pass *p, const nnc_node *n);
nnc_ref rule_few_terms(pass *p, const nnc_node *n);
bool has_one_place(const pass *p, const nnc_node *c); /* do convolution c's operands and result have one place each, without pads? */
nnc_ref rule_update(pass *p, const nnc_node *n);
/* expect.c: estimated nanoseconds on a CPU of one kernel of these nodes (ascending) with the results `out`; 0: they cannot be one kernel.
 * *work (may be NULL): the same on one thread. */
int64_t expected_ns(pass *p, const uint32_t *nodes, int n, const nnc_ref *out, int n_out, int64_t *work);
/* Nanoseconds for `bytes` that one kernel of a CPU stores and the next loads, beyond what either takes in cache. */
int64_t spill_ns(const nnc_target *t, int64_t bytes);
const char *text_us(pass *p, int64_t ns);
/* A time that a reason compares with `other`: with enough digits to tell them apart. */
const char *text_us_beside(pass *p, int64_t ns, int64_t other);
const char *text_us_to(pass *p, int64_t ns, int more); /* with `more` further digits (nnc_us_digits) */
/* The operand of a binary op that is not x. */
static inline nnc_ref other_operand(const nnc_node *n, nnc_ref x) { return n->in[0] == x ? n->in[1] : n->in[0]; }
/* NULL if op n, applied to x, can follow the chain `so_far` in contraction i's epilogue; otherwise the reason. */
const char *epilogue_allows(pass *p, uint32_t i, const epilogue *so_far, const nnc_node *n, nnc_ref x);
/* True for a contraction that a library computes, or a fused node that contains one. */
bool is_contraction(const pass *p, const nnc_node *n);
/* True for a convolution that becomes a generated kernel on its device; *why (may be NULL) is the reason. */
bool is_kernel_conv(const pass *p, const nnc_node *n, const char **why);
/* Writes the users of v to out[0..cap), each once, with views replaced by their users. Returns their number. */
int users_through_views(pass *p, nnc_ref v, uint32_t *out, int cap);
/* Builds a `fused` node from these nodes (operands before users; of a fused one its members) with the results outs. Returns the first
 * result. Does not redirect uses. The origin is the union of the nodes' origins. */
nnc_ref region_build(pass *p, const uint32_t *nodes, int n, const nnc_ref *outs, int n_out);
/* Builds the copy of member m of `from` in a body, with operands `in`. m NULL: builds the value that members read for operand *in. */
typedef nnc_ref region_member(void *ctx, nnc_graph *body, const nnc_graph *from, const nnc_node *m, const nnc_ref *in);
/* Makes `body` from node n, or from a fused node's members: `make` builds each. Operand number `operand` has this type there. False:
 * body->status, or out of memory. */
bool region_copy(pass *p, nnc_graph *body, const nnc_node *n, int operand, const nnc_type *type, region_member *make, void *ctx);
/* "/a+/b": the nodes' paths, each once, in order; NULL: they have none. */
const char *union_origin(pass *p, const uint32_t *nodes, int n);
/* True when one of the axes that reduction n names is the contiguous one. */
bool reduces_contiguous(const pass *p, const nnc_node *n);
/* Connected components of the `inside` nodes among the first n: per node the first node of its region. NULL: out of memory (p->status). */
const uint32_t *find_regions(pass *p, const bool *inside, uint32_t n);
/* The only contraction in node n's body, or n itself; *operand: the operand of n that is the contraction's operand `which`, -1: it is
 * computed inside. NULL: no contraction, or several. */
const nnc_node *contraction_in(const nnc_node *n, int which, int *operand);
/* Per node: do only updates, but no outputs, depend on it? NULL: the graph has no updates, or out of memory (p->status). */
const bool *find_late(pass *p);
/* Per node: do only updates made once a step depend on it, not those of each batch (nnc_node.accumulates)? NULL: as above. */
const bool *find_last(pass *p);
/* Per node: is it the loss, or does it depend on it? `shared`: includes constants that the loss and layers share, such as the 0 of relus'
 * masks. Recompute then leaves these masks to the backward pass, where their live ranges are shorter. */
bool *find_gradients(pass *p, bool shared);
/* Does init compute v, or the value that v is a view of? */
bool made_in_init(const pass *p, nnc_ref v);
/* The type of contractions' operands of type d once `precision` has run. */
nnc_dtype later_dtype(const pass *p, const nnc_target *t, nnc_dtype d);
/* Fills *a with the question to an engine about node n: a contraction, or a fused node with an epilogue. */
void contraction_ask(const pass *p, const nnc_node *n, nnc_ask *a);
/* FLOPs of the elementwise nodes of g before node `end`. For a fused body and its contraction: FLOPs of the prologue. */
int64_t elementwise_flops(const nnc_graph *g, const nnc_node *end);
/* pack_weights.c: reason why the second operand of contraction or fused node i is not packed into panels; NULL: it is. */
const char *panels_blocked(const pass *p, uint32_t i);
/* pack_weights.c: outputs per panel, a pair of vectors; 0: pairs do not divide them, and all are a single panel. */
int64_t panel_of(const nnc_target *t, nnc_dtype d, int64_t outputs);
/* pack_weights.c: builds fused node v, of several contractions, again with packed panels for second operands that are the node's operands
 * and can be packed. Does not redirect uses. NNC_NONE: p->status. */
nnc_ref pack_products(pass *p, nnc_ref v);
/* The target's engine for contraction n, or for the one in fused node n; NULL: none. Its name, for remarks. */
const nnc_target_engine *engine_of(const pass *p, const nnc_node *n);
const char *engine_name(const pass *p, const nnc_node *n);
/* Disjoint sets of numbers. A set is named by its least member, to which the links root[i] lead. */
static inline uint32_t find_root(uint32_t *root, uint32_t i)
{
    while (root[i] != i)
        i = root[i] = root[root[i]];
    return i;
}
static inline void join_roots(uint32_t *root, uint32_t a, uint32_t b)
{
    a = find_root(root, a), b = find_root(root, b);
    root[a > b ? a : b] = a > b ? b : a;
}
/* Minimum cut (mincut.c): divides a graph of n vertices with capacities, vertex 0 the source, 1 the sink. */
typedef struct mincut {
    nnc_arena *a;
    uint32_t n;
    struct mincut_arc *arc;
    size_t n_arc, cap_arc;
    uint32_t *head, *level, *at; /* per vertex; arcs are 1-based */
    bool oom;
} mincut;
void mincut_init(mincut *m, nnc_arena *a, uint32_t max_vertices);
void mincut_arc(mincut *m, uint32_t from, uint32_t to, int64_t capacity);
/* Sets side[v] = true for vertices on the source's side; of all minimum cuts the one with the fewest of them. */
bool mincut_run(mincut *m, bool *side); /* false: out of memory */
#define MINCUT_INF (INT64_MAX / 4)
bool attrs_equal(const nnc_node *a, const nnc_node *b);
/* swap_pool_step.c: max pooling i and the relu before it, where the backward pass reads the relu's result. *pooling: the new pooling. */
bool swap_pool_in_step(pass *p, uint32_t i, uint32_t *pooling);

#endif
