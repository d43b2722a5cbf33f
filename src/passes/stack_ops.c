/* passes/stack_ops.c -- the op of all models that equals one op of each. A product per model becomes one batched product, and n
 * convolutions one with n times the groups. Where all read one tensor, one product or convolution has the results of all.
 *
 * Each stack has its models along a dimension of its own (stack.h). Products need them first. Convolutions need them before the channels,
 * as the parts of one tensor are. Elementwise ops follow their largest operand. */
#include "passes/stack.h"

#include <string.h>

enum {
    LARGE = 1 << 16 /* results of a contraction from which a launch does not count on a CPU */
};

static const stack none = {NNC_NONE, 0};

/* ---- where the models are ----------------------------------------------------------------------------------------------------- */

/* r transposed; an existing transpose is reused. */
static nnc_ref transposed(stacks *s, nnc_ref r, const int64_t *perm)
{
    const int rank = type_of(s->p, r)->rank;
    const int64_t *v;
    edit_sync(s->p);
    for (uint32_t u = 0, i; s->p->status == NNC_OK && edit_next_user(s->p, r, &u, &i);) {
        const nnc_node *n = &s->p->g->node[i];
        if (n->op == OP_transpose && n->device == s->p->g->device &&
            nnc_attr_ints(n, AT_perm, &v) == rank && !memcmp(v, perm, sizeof *v * (size_t)rank))
            return n->out;
    }
    s->now.moved_bytes = nnc_add_sat(s->now.moved_bytes, 2 * bytes_of(s->p, r));
    return nnc_transpose(s->p->g, r, perm);
}

/* Order of dimensions after moving dimension `from` to `to`. */
static void order_of(int rank, int from, int to, int64_t *perm)
{
    for (int d = 0, at = 0; d < rank; d++) {
        if (d == to) {
            perm[d] = from;
            continue;
        }
        at += at == from;
        perm[d] = at++;
    }
}

/* x, reshaped to dim, with dimension `from` moved to `to`. */
static nnc_ref turned(stacks *s, nnc_ref x, int rank, const int64_t *dim, int from, int to)
{
    const nnc_type *t = type_of(s->p, x);
    int64_t perm[NNC_MAX_RANK], to_dim[NNC_MAX_RANK], between = 1;
    order_of(rank, from, to, perm);
    for (int d = 0; d < rank; d++) {
        to_dim[d] = dim[perm[d]];
        between *= d != from && d >= nnc_min64(from, to) && d <= nnc_max64(from, to) ? dim[d] : 1;
    }
    if (between == 1)
        return nnc_reshape(s->p->g, x, rank, to_dim);
    return transposed(s, t->rank == rank ? x : nnc_reshape(s->p->g, x, rank, dim), perm);
}

nnc_ref stack_turn(stacks *s, nnc_ref all, int from, int to)
{
    if (all == NNC_NONE || from == to)
        return all;
    const nnc_type t = *type_of(s->p, all);
    return turned(s, all, t.rank, t.dim, from, to);
}

/* The stack with members padded to `rank` by leading dimensions of 1, and its models along `to`. */
static nnc_ref of_rank(stacks *s, stack x, int rank, int to)
{
    const nnc_type t = *type_of(s->p, x.all);
    const int more = rank + 1 - t.rank;
    int64_t dim[NNC_MAX_RANK];
    if (more <= 0)
        return stack_turn(s, x.all, x.axis, to);
    for (int d = 0; d <= rank; d++)
        dim[d] = d < more ? 1 : t.dim[d - more];
    return turned(s, x.all, rank + 1, dim, x.axis + more, to);
}

nnc_ref stack_merge(stacks *s, stack x, int axis)
{
    const nnc_ref r = stack_turn(s, x.all, x.axis, axis);
    if (r == NNC_NONE)
        return r;
    const nnc_type *t = type_of(s->p, r);
    const int rank = t->rank - 1;
    int64_t dim[NNC_MAX_RANK];
    for (int d = 0; d < rank; d++)
        dim[d] = d < axis ? t->dim[d] : t->dim[d + 1] * (d == axis ? s->n : 1);
    return nnc_reshape(s->p->g, r, rank, dim);
}

stack stack_divide(stacks *s, nnc_ref r, const nnc_type *y, int axis)
{
    int64_t dim[NNC_MAX_RANK];
    for (int d = 0; d <= y->rank; d++)
        dim[d] = d < axis ? y->dim[d] : d == axis ? s->n : y->dim[d - 1];
    return r == NNC_NONE ? none : (stack){nnc_reshape(s->p->g, r, y->rank + 1, dim), axis};
}

/* ---- contractions ------------------------------------------------------------------------------------------------------------- */

/* The time that is expected for a contraction, or 0. */
static int64_t work_ns(const pass *p, const nnc_node *c)
{
    nnc_ask a;
    contraction_ask(p, c, &a);
    return nnc_target_offer(target_of(p, c), &a).time_ns;
}

/* Adds the cost of contraction r for all models, instead of c for each; false: they stay separate. */
static bool count(stacks *s, const nnc_node *c, nnc_ref r)
{
    if (!edit_sync(s->p) || r == NNC_NONE)
        return false;
    const int64_t each = work_ns(s->p, c);
    if (each && !work_ns(s->p, def_of(s->p, r))) {
        s->why = "no engine computes one of all";
        return false;
    }
    s->now.all_ns = nnc_add_sat(s->now.all_ns, nnc_mul_sat(each, s->n));
    s->now.commands++;
    return true;
}

static bool on_gpu(const pass *p, const nnc_node *c)
{
    const nnc_target *t = target_of(p, c);
    return (t && t->kind == NNC_T_cuda) || p->o->join_siblings;
}

/* [n, rows, k] of the first operand of products, whose members may have several dimensions of rows. */
static nnc_ref rows_of(stacks *s, stack x)
{
    const nnc_ref r = stack_turn(s, x.all, x.axis, 0);
    const nnc_type t = r == NNC_NONE ? (nnc_type){0} : *type_of(s->p, r);
    if (r == NNC_NONE || t.rank == 3)
        return r;
    const int64_t k = t.dim[t.rank - 1], dim[] = {s->n, nnc_type_numel(&t) / k / s->n, k};
    return nnc_reshape(s->p->g, r, 3, dim);
}

/* A product for each model: one batched product, [n, rows, k] times [n, k, m], and a bias [n, 1, m]. */
static stack batched(stacks *s, const nnc_node *c, const stack *in, const bool *shared)
{
    nnc_graph *g = s->p->g;
    const nnc_type y = *type_of(s->p, c->out);
    const nnc_attr t = nnc_ai(AT_transpose_b, 1);
    const bool linear = c->op == OP_linear;
    const int64_t bias[] = {s->n, 1, y.dim[y.rank - 1]};
    const nnc_ref v[] = {shared[0] ? in[0].all : rows_of(s, in[0]),
        shared[1] ? in[1].all : stack_turn(s, in[1].all, in[1].axis, 0)};
    if (v[0] == NNC_NONE || v[1] == NNC_NONE)
        return none;
    nnc_ref r = linear ? nnc_build(g, OP_matmul, 2, v, 1, &t)
                       : nnc_build(g, OP_matmul, 2, v, c->n_attr, c->attr);
    if (!count(s, c, r))
        return none;
    if (linear && c->n_in == 3)
        r = nnc_build2(g, OP_add, r, shared[2] ? in[2].all : nnc_reshape(g, in[2].all, 3, bias));
    return y.rank == 2 ? (stack){r, 0} : stack_divide(s, r, &y, 0);
}

/* Products of one tensor with a matrix for each model: one product with all results side by side, [rows, n m]. */
static stack of_one_tensor(stacks *s, const nnc_node *c, const stack *in, const bool *shared)
{
    nnc_graph *g = s->p->g;
    const nnc_type y = *type_of(s->p, c->out);
    const int axis = y.rank - 1;
    if (c->n_in == 3 && shared[2])
        return none;
    nnc_ref v[] = {
        in[0].all, stack_merge(s, in[1], 0), c->n_in == 3 ? stack_merge(s, in[2], 0) : NNC_NONE};
    if (v[1] == NNC_NONE)
        return none;
    const nnc_ref r = nnc_build(g, OP_linear, c->n_in, v, 0, NULL);
    return count(s, c, r) ? stack_divide(s, r, &y, axis) : none;
}

/* Gradients of such matrices, dy^T x: [rows, n m] transposed times [rows, k]. */
static stack gradients_of_one_tensor(stacks *s, const nnc_node *c, const stack *in)
{
    const nnc_type y = *type_of(s->p, c->out);
    const nnc_ref v[] = {stack_merge(s, in[0], 1), in[1].all};
    if (v[0] == NNC_NONE)
        return none;
    const nnc_ref r = nnc_build(s->p->g, OP_matmul, 2, v, c->n_attr, c->attr);
    return count(s, c, r) ? stack_divide(s, r, &y, 0) : none;
}

/* linear or matmul. */
static stack product(stacks *s, const nnc_node *c, const stack *in, const bool *shared)
{
    const nnc_type *y = type_of(s->p, c->out), *x = type_of(s->p, c->in[0]);
    const bool gpu = on_gpu(s->p, c), linear = c->op == OP_linear,
               ta = nnc_attr_int(c, AT_transpose_a, 0),
               tb = linear || nnc_attr_int(c, AT_transpose_b, 0);
    if (nnc_type_numel(y) > LARGE && !gpu && !nnc_attr_int(c, AT_as_kernel, 0))
        return none;
    if (type_of(s->p, c->in[1])->rank != 2 || x->rank < 2 || (x->rank > 2 && !(linear && gpu)) ||
        ((shared[0] || shared[1]) && !gpu) || (shared[0] && shared[1]))
        return none;
    if (shared[0] && linear)
        return of_one_tensor(s, c, in, shared);
    if (shared[1] && ta && !tb)
        return gradients_of_one_tensor(s, c, in);
    return shared[0] && x->rank > 2 ? none : batched(s, c, in, shared);
}

/* Convolutions side by side: one with n times the groups. With one tensor and one group: one with the channels of all. */
static stack convolution(stacks *s, const nnc_node *c, const stack *in, const bool *shared)
{
    const nnc_type y = *type_of(s->p, c->out);
    const bool wgrad = c->op == OP_conv_wgrad,
               one = shared[0] && nnc_attr_int(c, AT_groups, 1) == 1;
    if ((shared[0] && (!one || c->op == OP_conv_transpose)) || shared[1] ||
        (c->n_in == 3 && shared[2]))
        return none;
    nnc_ref v[] = {shared[0] ? in[0].all : stack_merge(s, in[0], 1), stack_merge(s, in[1], wgrad),
        c->n_in == 3 ? stack_merge(s, in[2], 0) : NNC_NONE};
    if (v[0] == NNC_NONE || v[1] == NNC_NONE)
        return none;
    const nnc_ref r = conv_of_groups(s->p, c, v, one ? 1 : s->n);
    return count(s, c, r) ? stack_divide(s, r, &y, !wgrad) : none;
}

/* ---- the rest ----------------------------------------------------------------------------------------------------------------- */

static stack reduction(stacks *s, const nnc_node *c, stack in)
{
    const int64_t *axes;
    int64_t of[NNC_MAX_RANK];
    const int n = nnc_attr_ints(c, AT_axes, &axes);
    const bool keeps = nnc_attr_int(c, AT_keepdims, 1);
    int before = 0;
    for (int i = 0; i < n; i++) {
        of[i] = axes[i] + (axes[i] >= in.axis);
        before += axes[i] < in.axis;
    }
    s->now.commands++;
    return (stack){
        nnc_reduce(s->p->g, c->op, in.all, n, of, keeps), in.axis - (keeps ? 0 : before)};
}

/* Reshapes members of type x to type y. The model dimension stays if as many elements precede it in both. */
static stack reshaped(stacks *s, stack in, const nnc_type *x, const nnc_type *y)
{
    const int64_t before = nnc_type_extents(x, 0, in.axis);
    int axis = 0;
    while (axis < y->rank && nnc_type_extents(y, 0, axis) != before)
        axis++;
    const bool stays = nnc_type_extents(y, 0, axis) == before;
    return stack_divide(s, stays ? in.all : stack_turn(s, in.all, in.axis, 0), y, stays ? axis : 0);
}

static stack movement(stacks *s, const nnc_node *c, stack in)
{
    const nnc_type y = *type_of(s->p, c->out), x = *type_of(s->p, c->in[0]);
    const int64_t *v;
    int64_t dim[NNC_MAX_RANK], perm[NNC_MAX_RANK];
    int axis = in.axis;
    if (c->op == OP_reshape)
        return reshaped(s, in, &x, &y);
    if (c->op == OP_broadcast)
        axis = in.axis ? in.axis + y.rank - x.rank : 0;
    for (int d = 0; d <= y.rank; d++)
        dim[d] = d < axis ? y.dim[d] : d == axis ? s->n : y.dim[d - 1];
    if (c->op == OP_broadcast)
        return (stack){nnc_broadcast(s->p->g, of_rank(s, in, y.rank, axis), y.rank + 1, dim), axis};
    nnc_attr_ints(c, AT_perm, &v);
    for (int d = 0; d <= y.rank; d++) {
        const int64_t from = d == axis ? 0 : v[d - (d > axis)];
        perm[d] = d == axis ? axis : from + (from >= axis);
    }
    return (stack){nnc_transpose(s->p->g, in.all, perm), axis};
}

/* The model dimension of the largest operand of an op of this rank, so that as few elements as possible are moved. */
static int axis_of_largest(
    stacks *s, const nnc_node *c, const stack *in, const bool *shared, int rank)
{
    int64_t most = -1;
    int axis = 0;
    for (int j = 0; j < c->n_in; j++) {
        const nnc_type *t = shared[j] ? NULL : type_of(s->p, in[j].all);
        const int64_t numel = t ? nnc_type_numel(t) : -1;
        const int at = t && in[j].axis ? in[j].axis + rank + 1 - t->rank : 0;
        if (numel > most || (numel == most && t && at < axis)) {
            most = numel;
            axis = at;
        }
    }
    return axis;
}

/* A value that all share, with a dimension of 1 at the stack's model dimension. */
static nnc_ref beside_models(stacks *s, nnc_ref v, int rank, int axis)
{
    const nnc_type t = *type_of(s->p, v);
    const int at = axis - (rank - t.rank);
    int64_t dim[NNC_MAX_RANK];
    if (at <= 0)
        return v;
    for (int d = 0; d <= t.rank; d++)
        dim[d] = d < at ? t.dim[d] : d == at ? 1 : t.dim[d - 1];
    return nnc_reshape(s->p->g, v, t.rank + 1, dim);
}

static stack elementwise(stacks *s, const nnc_node *c, const stack *in, const bool *shared)
{
    const int rank = type_of(s->p, c->out)->rank, axis = axis_of_largest(s, c, in, shared, rank);
    nnc_ref v[3];
    for (int j = 0; j < c->n_in; j++)
        v[j] = shared[j] ? beside_models(s, in[j].all, rank, axis) : of_rank(s, in[j], rank, axis);
    return (stack){nnc_build(s->p->g, c->op, c->n_in, v, c->n_attr, c->attr), axis};
}

static bool is_movement(const nnc_node *c)
{
    return c->op == OP_reshape || c->op == OP_broadcast || c->op == OP_transpose;
}

bool stack_knows(const pass *p, const nnc_node *c)
{
    const bool sums = nnc_op_class(c->op) == CL_reduce && c->op != OP_argmax && c->op != OP_argmin;
    return c->n_out == 1 && c->n_in > 0 && c->n_in <= 3 && c->op != OP_dropout &&
           (nnc_op_is_ewise(c->op) || sums || is_movement(c) || c->op == OP_linear ||
               c->op == OP_matmul || (nnc_op_is_conv(c->op) && on_gpu(p, c)));
}

stack stack_op(stacks *s, const nnc_node *c, const stack *in, const bool *shared)
{
    if (c->op == OP_linear || c->op == OP_matmul)
        return product(s, c, in, shared);
    if (nnc_op_is_conv(c->op))
        return convolution(s, c, in, shared);
    if (is_movement(c))
        return movement(s, c, in[0]);
    return nnc_op_is_ewise(c->op) ? elementwise(s, c, in, shared) : reduction(s, c, in[0]);
}
