/* passes/in_place.c -- concat, slice and split without copies. The operands of a concat are parts of the result's memory, and their
 * producers write them there. The results of a slice or split are parts of the operand's memory.
 *
 *   y1 = conv(..);  c1 = concat(x, y1);  y2 = conv(.. c1 ..);  c2 = concat(c1, y2)      a dense block: x, y1, y2 side by side in c2.
 *
 * Concats are visited from last to first: one that is an operand of a later concat is placed before its own operands are. An operand may be
 * a part if:
 *   - A command computes it (no input, no weight, no view) and it has no place yet.
 *   - It is no output of the graph.
 *   - Its memory order is the result's, and everything is on one device.
 *   - Its producer and consumers can address memory with gaps: generated kernels can, library calls cannot. An activation in a
 *     contraction's epilogue counts as the contraction.
 * Any other operand is copied to its place. A concat stays a copy where placing its operands takes longer. Examples: `fuse` makes it part
 * of its only consumer's kernel, or computes its operands in its kernel. A slice or split stays where `fuse` makes it an index map of its
 * consumers. Terminates: each node is visited once.
 *
 * States that are concatenated, updated as one value and sliced again share one memory block. An optimizer's kernel then reads and writes
 * all weights at once, and no other op is affected.
 *
 *   w = concat(w1, w2);  v = f(w, ..);  update w1 <- slice(v), w2 <- slice(v)      w1, w2 are parts of w, and v is stored over it. */
#include "kernel/kernel.h"
#include "passes/internal.h"

enum {
    GPU_ALIGN = 64
}; /* alignment of parts and their rows in bytes on a GPU, the same that cuBLASLt is told for every tensor */

typedef struct parts {
    pass *p;
    nnc_ref n_value; /* values of the graph before the pass; the arrays below are by these */
    nnc_place *place;
    nnc_ref *copy; /* copy in a concat's result, of known place and type; or NNC_NONE */
    nnc_place *copied_to;
    uint32_t *n_part; /* by root */
} parts;

typedef enum how { IS_THERE, WRITTEN, COPIED } how;

/* Do the calls and kernels of node n address memory with gaps? */
static bool takes_gaps(const pass *p, const nnc_node *n)
{
    if (nnc_op_class(n->op) == CL_collective) /* messages are contiguous */
        return false;
    if (nnc_op_class(n->op) != CL_contract || is_kernel_conv(p, n, NULL))
        return true;
    return target_of(p, n)->kind == NNC_T_cpu && engine_of(p, n);
}

/* The contraction that computes v in its epilogue, if fuse_epilogue runs, or NULL. */
static const nnc_node *in_epilogue(pass *p, nnc_ref v)
{
    return p->will_run[PASS_fuse_epilogue] ? epilogue_of(p, v) : NULL;
}

/* May a part of type t not begin at byte `at` of node n's tensor? On a GPU each contiguous run of a part is aligned as tensors are, so that
 * kernels access it in the same vectors and sectors. */
static bool misplaced(const pass *p, const nnc_node *n, const nnc_type *t, int64_t at)
{
    const int64_t size = nnc_dtype_size(t->dtype);
    int64_t stride[NNC_MAX_RANK];
    bool gaps = false, bad = at % GPU_ALIGN != 0;
    nnc_type_strides(t, stride);
    for (int i = t->rank; i-- > 0;) {
        const int d = t->order[i];
        bad = bad || (gaps && t->dim[d] > 1 && stride[d] * size % GPU_ALIGN);
        gaps = gaps || t->gap[d];
    }
    return bad && target_of(p, n)->kind == NNC_T_cuda;
}

/* At level 1, which keeps every bit: does n sum over axes that a kernel merges or vectorises only if its operand has no gaps? */
static bool adds_in_order(const pass *p, const nnc_node *n)
{
    const nnc_class class = nnc_op_class(n->op);
    return p->o->level == 1 &&
           (class == CL_reduce || class == CL_comp || class == CL_contract || class == CL_window) &&
           !(nnc_ops[n->op].flags & OF_exact) && nnc_is_float(type_of(p, n->in[0])->dtype);
}

/* Why value v, whose type would be `t`, cannot be a part of a larger one because of a reader; NULL: it can. */
static const char *reader_objects(
    const parts *s, nnc_ref v, const nnc_type *t, const nnc_node *there)
{
    const pass *p = s->p;
    bool dense = nnc_type_is_dense(t);
    for (uint32_t u = 0, i; edit_next_user(p, v, &u, &i);) {
        const nnc_node *n = &p->g->node[i];
        if (!on_one_device(n, there))
            return "is read on another device";
        if (!dense && !nnc_is_in_place(n) && nnc_is_view(p->g, n))
            return "is read under another shape";
        if (!dense && !takes_gaps(p, n))
            return "is read by a library";
        if (!dense && adds_in_order(p, n))
            return "is reduced: gaps would change the order of additions";
    }
    return NULL;
}

/* Is v, or a reshape of it, the new value of a state? */
static bool updates_state(const pass *p, nnc_ref v)
{
    for (uint32_t o = nnc_result_outputs(p->g); o < p->g->n_output; o++)
        if (nnc_reshaped(p->g, p->g->output[o]) == v)
            return true;
    return false;
}

/* Is v cut into the new values of states? They may become one state, which v then overwrites. */
static bool is_cut_into_states(const pass *p, nnc_ref v)
{
    bool yes = false;
    for (uint32_t u = 0, i; !yes && edit_next_user(p, v, &u, &i);) {
        const nnc_node *n = &p->g->node[i];
        yes = n->op == OP_reshape ? is_cut_into_states(p, n->out)
                                  : n->op == OP_slice && updates_state(p, n->out);
    }
    return yes;
}

/* Why operand k of concat n, a part of type t of its result, is copied to its place; NULL: it is written there. */
static const char *why_copied(const parts *s, const nnc_node *n, int k, const nnc_type *t)
{
    pass *p = s->p;
    const nnc_ref v = nnc_reshaped(p->g, n->in[k]);
    const nnc_node *d = def_of(p, v);
    if (nnc_op_class(d->op) == CL_leaf)
        return d->op == OP_input ? "is an input" : "is a weight";
    if (edit_static(p, v))
        return "is computed when weights are loaded";
    if (nnc_is_view(p->g, d))
        return "is a view of another value";
    for (int i = 0; i < k; i++)
        if (nnc_reshaped(p->g, n->in[i]) == v)
            return "is an operand twice";
    if (s->place[v].root != v)
        return "is a part of another concat's result";
    if (edit_is_output(p, v))
        return "is an output";
    if (is_cut_into_states(p, v))
        return "is cut into the new values of states";
    if (nnc_op_class(d->op) == CL_collective) /* each result is on its operand's device */
        return "is a result of a collective";
    if (!on_one_device(d, n))
        return "is computed on another device";
    if (v == n->in[k] && memcmp(type_of(p, v)->order, t->order, t->rank))
        return "has another memory order";
    const nnc_node *by = in_epilogue(p, v);
    if (!nnc_type_is_dense(t) && !takes_gaps(p, by ? by : d))
        return "is written by a library";
    const char *why = reader_objects(s, v, t, n);
    return why || v == n->in[k] ? why : reader_objects(s, n->in[k], t, n);
}

static nnc_type part_type(const pass *p, const nnc_node *n, int k)
{
    nnc_type t = *type_of(p, n->out), y = t;
    int64_t axis = nnc_attr_int(n, AT_axis, 0);
    t.dim[axis] = type_of(p, n->in[k])->dim[axis];
    nnc_type_set_part(&t, &y);
    return t;
}

/* First element of operand k in the result's memory. */
static int64_t part_at(const pass *p, const nnc_node *n, int k)
{
    int64_t stride[NNC_MAX_RANK], axis = nnc_attr_int(n, AT_axis, 0), at = 0;
    nnc_type_strides(type_of(p, n->out), stride);
    while (k-- > 0)
        at += type_of(p, n->in[k])->dim[axis] * stride[axis];
    return at;
}

/* Operand v or its copy, if it is part of `root`'s memory, at `at`; otherwise NNC_NONE. */
static nnc_ref lies_at(const parts *s, nnc_ref v, nnc_ref root, int64_t at)
{
    if (s->place[v].root == root && s->place[v].at == at)
        return v;
    bool copy = s->copy[v] != NNC_NONE && s->copied_to[v].root == root && s->copied_to[v].at == at;
    return copy ? s->copy[v] : NNC_NONE;
}

/* Are all operands of concat n already adjacent in memory, such as the first operands of a larger concat? Then its place is theirs. */
static bool all_there(parts *s, const nnc_node *n)
{
    const pass *p = s->p;
    nnc_ref v = n->in[0];
    nnc_place first = s->place[v].root != v    ? s->place[v]
                      : s->copy[v] != NNC_NONE ? s->copied_to[v]
                                               : (nnc_place){n->out, 0};
    if (first.root == n->out || s->place[n->out].root != n->out || edit_is_output(p, n->out))
        return false;
    nnc_type y = nnc_type_dense(type_of(p, n->out));
    nnc_type_set_part(&y, type_of(p, first.root));
    int64_t stride[NNC_MAX_RANK], axis = nnc_attr_int(n, AT_axis, 0), at = first.at;
    nnc_type_strides(&y, stride);
    for (int k = 0; k < n->n_in; k++) {
        nnc_ref there = lies_at(s, n->in[k], first.root, at);
        const nnc_node *d = there == NNC_NONE ? NULL : def_of(p, there);
        if (!d || !nnc_is_part(type_of(p, there), &y) || !on_one_device(d, n) ||
            (d->op != OP_concat && nnc_is_view(p->g, d)))
            return false;
        at += type_of(p, there)->dim[axis] * stride[axis];
    }
    int64_t size = nnc_dtype_size(y.dtype);
    if (reader_objects(s, n->out, &y, n) || misplaced(p, n, &y, first.at * size))
        return false;
    s->place[n->out] = first;
    p->g->value[n->out].type = y;
    return true;
}

/* ---- what it gives ----------------------------------------------------------------------------- */

/* Does fuse compute operand k in the kernel of concat n, and store it nowhere else? */
static bool is_absorbed(pass *p, const nnc_node *n, int k)
{
    const nnc_ref v = nnc_reshaped(p->g, n->in[k]);
    const nnc_node *d = def_of(p, v);
    nnc_class c = nnc_op_class(d->op);
    if (c == CL_comp || c == CL_reduce || c == CL_window)
        return false; /* possible, but such a kernel is slow with the concat's other operands */
    return p->will_run[PASS_fuse] && c != CL_leaf && !edit_static(p, v) && d->op != OP_concat &&
           !is_contraction(p, d) && edit_only_user(p, v) && !in_epilogue(p, v);
}

/* Number of values that a kernel of concat n loads: those of concats that only n reads. */
static int pieces(pass *p, const nnc_node *n)
{
    int sum = 0;
    for (int k = 0; k < n->n_in; k++) {
        const nnc_node *d = def_of(p, n->in[k]);
        sum += d->op == OP_concat && edit_only_user(p, n->in[k]) ? pieces(p, d) : 1;
    }
    return sum;
}

/* Use of a concat's result if the concat is not in place. */
typedef struct use_of {
    bool fused; /* fuse makes the concat part of a kernel that reads it */
    bool stored; /* its result goes to memory, for others */
    int64_t ns; /* time that it takes within that kernel; 0: not known before ops are expanded */
} use_of;

/* The time that concat n takes within its reader's kernel, which stores its result too if it is `stored`; -1: a kernel for each takes
 * less. */
static int64_t joined_ns(pass *p, const nnc_node *n, const nnc_node *reader, bool stored)
{
    const uint32_t node[] = {node_index(p, n), node_index(p, reader)};
    nnc_ref *out = PASS_NEW(p, nnc_ref, reader->n_out + 1);
    int n_out = 0;
    if (target_of(p, n)->kind != NNC_T_cpu || !out)
        return 0;
    out[n_out++] = n->out;
    for (uint32_t o = 0; o < reader->n_out; o++)
        out[n_out++] = reader->out + o;
    int64_t one = expected_ns(p, node, 2, stored ? out : out + 1, n_out - !stored, NULL);
    int64_t alone = expected_ns(p, node + 1, 1, out + 1, n_out - 1, NULL);
    return one > alone + expected_ns(p, node, 1, out, 1, NULL) ? -1 : nnc_max64(one - alone, 1);
}

static use_of use_of_result(const parts *s, const nnc_node *n)
{
    pass *p = s->p;
    use_of r = {.stored = edit_is_output(p, n->out) || s->place[n->out].root != n->out};
    bool needed = r.stored || !edit_only_user(p, n->out);
    for (uint32_t u = 0, i; edit_next_user(p, n->out, &u, &i);) {
        const nnc_node *reader = &p->g->node[i];
        if (nnc_is_in_place(reader))
            continue;
        bool may = p->will_run[PASS_fuse] && !is_contraction(p, reader) &&
                   pieces(p, n) <= NNC_KERNEL_CONCAT;
        int64_t ns = may ? joined_ns(p, n, reader, needed) : 0;
        may = may && ns >= 0;
        r.stored = r.stored || !may || r.fused;
        r.fused = r.fused || may;
        r.ns = may ? ns : r.ns;
    }
    return r;
}

/* The concat's own kernel. */
static int64_t concat_ns(pass *p, const nnc_node *n)
{
    const nnc_target *t = target_of(p, n);
    const uint32_t node = node_index(p, n);
    int64_t ns = t->kind == NNC_T_cpu ? expected_ns(p, &node, 1, &n->out, 1, NULL) : 0;
    return ns ? ns : nnc_target_time_ns(t, 0, 2 * bytes_of(p, n->out));
}

/* Cost of operand k of concat n in place, written there or copied. `share`: the operand's part of the time of a concat kernel, in which it
 * is loaded and stored. An operand that fuse would compute in that kernel gets its own. */
static int64_t operand_ns(
    pass *p, const nnc_node *n, int k, use_of result, bool copied, int64_t share)
{
    int64_t launch = nnc_target_start_ns(target_of(p, n), 1), ns = copied ? share + launch : 0;
    if (is_absorbed(p, n, k))
        ns += (result.fused ? share / 2 : share) + launch;
    return ns;
}

/* ---- rewriting --------------------------------------------------------------------------------- */

static void copy_operand(parts *s, uint32_t i, int k, const nnc_type *t, nnc_place place)
{
    pass *p = s->p;
    nnc_node n = p->g->node[i];
    nnc_ref v = n.in[k];
    edit_at(p, i);
    nnc_attr axis = nnc_ai(AT_axis, nnc_attr_int(&n, AT_axis, 0));
    s->copy[v] = nnc_build_typed(p->g, OP_concat, 1, &v, 1, &axis, t);
    s->copied_to[v] = place;
    edit_set_operand(p, i, k, s->copy[v]);
}

static void set_in_place(pass *p, uint32_t i)
{
    nnc_node *n = &p->g->node[i];
    nnc_attr *a = ARENA_NEW(&p->g->arena, nnc_attr, n->n_attr + 1);
    if (!a) {
        pass_nomem(p);
        return;
    }
    int k = 0, at = 0; /* sorted by key */
    while (k < n->n_attr && n->attr[k].key < AT_in_place)
        a[at++] = n->attr[k++];
    a[at++] = nnc_ai(AT_in_place, 1);
    while (k < n->n_attr)
        a[at++] = n->attr[k++];
    n->attr = a;
    n->n_attr++;
    edit_refresh(p, i);
}

static void apply(parts *s, uint32_t i, const how *way)
{
    pass *p = s->p;
    nnc_ref y = p->g->node[i].out, root = s->place[y].root;
    const char *why = NULL;
    int copies = 0, n_in = p->g->node[i].n_in;
    int64_t bytes = 0;
    for (int k = 0; k < n_in && p->status == NNC_OK; k++) {
        nnc_ref v = p->g->node[i].in[k];
        nnc_type t = part_type(p, &p->g->node[i], k);
        nnc_place at = {root, s->place[y].at + part_at(p, &p->g->node[i], k)};
        bytes += way[k] == COPIED ? 0 : nnc_type_bytes(&t);
        s->n_part[root] += way[k] != IS_THERE;
        if (way[k] == COPIED) {
            why = why ? why : why_copied(s, &p->g->node[i], k, &t);
            copies++;
            copy_operand(s, i, k, &t, at);
        } else if (way[k] == WRITTEN) {
            p->g->value[v].type = t;
            s->place[v] = s->place[nnc_reshaped(p->g, v)] = at;
        } else {
            edit_set_operand(p, i, k, lies_at(s, v, root, at.at));
        }
    }
    if (p->status == NNC_OK)
        set_in_place(p, i);
    layers l = layers_of(p, i, NNC_NONE);
    if (copies)
        remark_applied(p, &l, "concat in place",
            "%s of its operands are computed where the result lies; %d of %d %s copied there: the "
            "first one %s",
            text_bytes(p, bytes), copies, n_in, copies == 1 ? "is" : "are", why);
    else
        remark_applied(p, &l, "concat in place",
            "its operands are computed where the result lies: %s are not copied",
            text_bytes(p, bytes));
}

/* Chooses how each operand of concat n gets to its place. Returns why the concat stays as it is, or NULL. */
static const char *choose_way(const parts *s, const nnc_node *n, how *way)
{
    pass *p = s->p;
    use_of result = use_of_result(s, n);
    int64_t all = concat_ns(p, n);
    const int64_t moves = nnc_max64(all - nnc_target_start_ns(target_of(p, n), 1), 0);
    int64_t ns = !result.fused ? all : result.ns ? result.ns : moves / 2; /* saved */
    int64_t size = nnc_dtype_size(type_of(p, n->out)->dtype);
    double total = (double)bytes_of(p, n->out);
    int copies = 0;
    if (result.fused && !result.stored && !result.ns)
        return "it is part of the kernel that reads it";
    if (s->n_part[s->place[n->out].root] + (uint32_t)n->n_in > NNC_MAX_PARTS)
        return "its result would have more than 1024 parts";
    for (int k = 0; k < n->n_in; k++) {
        nnc_type t = part_type(p, n, k);
        int64_t at = (s->place[n->out].at + part_at(p, n, k)) * size;
        if (misplaced(p, n, &t, at))
            return "on a GPU parts and their rows begin at multiples of 64 bytes";
        way[k] = why_copied(s, n, k, &t) ? COPIED : WRITTEN;
        copies += way[k] == COPIED;
        int64_t share = (int64_t)((double)all * (double)nnc_type_bytes(&t) / total);
        ns -= operand_ns(p, n, k, result, way[k] == COPIED, share);
    }
    if (copies == n->n_in)
        return "each of its operands would be copied to its place, as now";
    if (ns <= 0)
        return copies
                   ? remark_text(p, "copies of %d of its %d operands take as long", copies, n->n_in)
                   : "one kernel computes its operands and stores them side by side";
    return NULL;
}

static void look_at(parts *s, uint32_t i)
{
    pass *p = s->p;
    const nnc_node *n = &p->g->node[i];
    how *way = PASS_NEW(p, how, n->n_in + 1); /* all IS_THERE */
    layers l = layers_of(p, i, NNC_NONE);
    if (!way)
        return;
    const char *why = all_there(s, n) ? NULL : choose_way(s, n, way);
    if (why)
        remark_declined(p, &l, "concat in place", "%s", why);
    else
        apply(s, i, way);
}

/* ---- states that are one ----------------------------------------------------------------------- */

/* The common new value of a concat's states. */
typedef struct one_state {
    nnc_ref value; /* parts of this; NNC_NONE: nothing seen yet */
    nnc_type type;
    int64_t at; /* elements seen */
    int accumulates; /* as all of them; -1: none seen yet */
    bool ok;
} one_state;

/* The value that updates state v. */
static nnc_ref update_of(const pass *p, nnc_ref v)
{
    uint32_t o = nnc_result_outputs(p->g);
    while (o < p->g->n_output && p->g->output_state[o] != v)
        o++;
    return o < p->g->n_output ? p->g->output[o] : NNC_NONE;
}

/* Is the update of state v the part of o->value, of one dimension, at o->at? */
static bool is_updated_by_part(const pass *p, nnc_ref v, one_state *o)
{
    const nnc_node *d = def_of(p, v);
    const nnc_ref to = d->state ? update_of(p, v) : NNC_NONE;
    const nnc_node *cut = to == NNC_NONE ? NULL : def_of(p, nnc_reshaped(p->g, to));
    const int64_t *axes, *starts, *steps = NULL;
    if (!cut || cut->op != OP_slice || nnc_attr_ints(cut, AT_axes, &axes) != 1 ||
        (nnc_attr_ints(cut, AT_steps, &steps) && steps[0] != 1))
        return false;
    nnc_attr_ints(cut, AT_starts, &starts);
    o->value = o->value == NNC_NONE ? cut->in[0] : o->value;
    return o->value == cut->in[0] && starts[0] == o->at &&
           nnc_type_equal(type_of(p, o->value), &o->type) && on_one_device(d, cut);
}

/* Do nodes other than those of op `there`, which have it in place, read v or a reshape of it? */
static bool is_read_alone(const pass *p, nnc_ref v, nnc_op there)
{
    bool yes = false;
    for (uint32_t u = 0, i; !yes && edit_next_user(p, v, &u, &i);) {
        const nnc_node *n = &p->g->node[i];
        yes = n->op == OP_reshape ? is_read_alone(p, n->out, there) : n->op != there;
    }
    return yes;
}

/* Checks the states that concat n consists of, from o->at on. A misaligned part is allowed where only the concat reads the state, and only
 * the update its new value. */
static void look_at_states(const parts *s, const nnc_node *n, one_state *o)
{
    const pass *p = s->p;
    for (int k = 0; k < n->n_in && o->ok; k++) {
        const nnc_ref v = nnc_reshaped(p->g, n->in[k]);
        const nnc_node *d = def_of(p, v);
        if (d->op == OP_concat && !nnc_is_in_place(d)) {
            look_at_states(s, d, o);
            continue;
        }
        const nnc_type *t = type_of(p, v);
        o->accumulates = o->accumulates < 0 ? d->accumulates : o->accumulates;
        o->ok = s->place[v].root == v && is_updated_by_part(p, v, o) &&
                o->accumulates == d->accumulates && !reader_objects(s, v, t, n) &&
                !(misplaced(p, n, t, o->at * nnc_dtype_size(t->dtype)) &&
                    (is_read_alone(p, v, OP_concat) ||
                        is_read_alone(p, nnc_reshaped(p->g, update_of(p, v)), OP_reshape)));
        o->at += numel_of(p, v);
    }
}

/* Places the states of concat i, and the parts of their new value. */
static void place_states(parts *s, uint32_t i, nnc_ref root, int64_t at)
{
    pass *p = s->p;
    for (int k = 0; k < p->g->node[i].n_in && p->status == NNC_OK; k++) {
        const nnc_ref x = p->g->node[i].in[k], v = nnc_reshaped(p->g, x);
        const nnc_node *d = def_of(p, v);
        s->place[x] = s->place[v] = (nnc_place){root, at};
        if (d->op == OP_concat) {
            place_states(s, node_index(p, d), root, at);
        } else {
            const nnc_ref cut = nnc_reshaped(p->g, update_of(p, v));
            set_in_place(p, p->g->value[cut].node);
        }
        at += numel_of(p, x);
    }
    if (p->status == NNC_OK)
        set_in_place(p, i);
}

/* Makes the states of concat i one state; false: it is no concat of such states. */
static bool join_states(parts *s, uint32_t i)
{
    pass *p = s->p;
    const nnc_node *n = &p->g->node[i];
    one_state o = {NNC_NONE, *type_of(p, n->out), 0, -1, true};
    if (o.type.rank != 1 || pieces(p, n) > NNC_MAX_PARTS || s->place[n->out].root != n->out ||
        edit_is_output(p, n->out))
        return false;
    look_at_states(s, n, &o);
    const nnc_ref value = o.ok ? nnc_reshaped(p->g, o.value) : NNC_NONE;
    if (!o.ok || edit_is_output(p, o.value) || s->place[value].root != value)
        return false;
    layers l = layers_of(p, i, NNC_NONE);
    const int all = pieces(p, n);
    place_states(s, i, n->out, 0);
    remark_applied(p, &l, "states in one",
        "its %d states are updated together and lie side by side: %s are not copied", all,
        text_bytes(p, nnc_type_bytes(&o.type)));
    return true;
}

/* ---- slice and split --------------------------------------------------------------------------- */

/* Can fuse make v an index map in all its readers, also through reshapes? */
static bool is_index_map_of(const pass *p, nnc_ref v)
{
    bool yes = true;
    for (uint32_t u = 0, i; yes && edit_next_user(p, v, &u, &i);) {
        const nnc_node *n = &p->g->node[i];
        yes = n->op == OP_reshape ? is_index_map_of(p, n->out)
                                  : !is_contraction(p, n) && !nnc_is_in_place(n);
    }
    return yes;
}

static bool is_index_map(const pass *p, const nnc_node *n)
{
    bool yes = p->will_run[PASS_fuse];
    for (uint32_t o = 0; o < n->n_out && yes; o++)
        yes = is_index_map_of(p, n->out + o);
    return yes;
}

/* Why the results of slice or split n are not parts of its operand; NULL: they are, with these types and places. */
static const char *why_cut(const parts *s, const nnc_node *n, nnc_type *type, nnc_place *place)
{
    pass *p = s->p;
    const nnc_type *x = type_of(p, n->in[0]);
    int64_t stride[NNC_MAX_RANK], at = 0, size = nnc_dtype_size(x->dtype);
    const int64_t *axes = NULL, *starts = NULL, *steps = NULL;
    int n_axes = nnc_attr_ints(n, AT_axes, &axes), axis = (int)nnc_attr_int(n, AT_axis, 0);
    nnc_attr_ints(n, AT_starts, &starts);
    nnc_type_strides(x, stride);
    for (int i = nnc_attr_ints(n, AT_steps, &steps); i-- > 0;)
        if (steps[i] != 1)
            return "its steps leave elements out";
    for (int i = 0; n->op == OP_slice && i < n_axes; i++)
        at += starts[i] * stride[axes[i]];
    for (uint32_t o = 0; o < n->n_out; o++)
        if (edit_is_output(p, n->out + o))
            return "a result is an output";
    for (uint32_t o = 0; o < n->n_out; o++)
        if (s->place[n->out + o].root != n->out + o)
            return "a result is a part of a concat's";
    if (is_index_map(p, n))
        return "it is part of the kernels that read it";
    if (!on_one_device(n, def_of(p, n->in[0])) && def_of(p, n->in[0])->op != OP_input)
        return "it is on another device than its operand";
    for (uint32_t o = 0; o < n->n_out; o++) {
        type[o] = nnc_type_dense(type_of(p, n->out + o));
        if (memcmp(type[o].order, x->order, x->rank))
            return "it changes the memory order";
        nnc_type_set_part(&type[o], x);
        place[o] = (nnc_place){s->place[n->in[0]].root, s->place[n->in[0]].at + at};
        if (misplaced(p, n, &type[o], place[o].at * size))
            return "on a GPU parts and their rows begin at multiples of 64 bytes";
        at += n->op == OP_split ? type[o].dim[axis] * stride[axis] : 0;
        const char *why = reader_objects(s, n->out + o, &type[o], n);
        if (why)
            return remark_text(p, "a result %s", why);
    }
    return NULL;
}

static void cut(parts *s, uint32_t i)
{
    pass *p = s->p;
    const nnc_node *n = &p->g->node[i];
    nnc_type *type = PASS_NEW(p, nnc_type, n->n_out);
    nnc_place *place = PASS_NEW(p, nnc_place, n->n_out);
    layers l = layers_of(p, i, NNC_NONE);
    if (!type || !place)
        return;
    const char *rule = n->op == OP_slice ? "slice in place" : "split in place";
    const char *why = why_cut(s, n, type, place);
    if (why) {
        remark_declined(p, &l, rule, "%s", why);
        return;
    }
    int64_t bytes = 0;
    for (uint32_t o = 0; o < n->n_out; o++) {
        p->g->value[n->out + o].type = type[o];
        s->place[n->out + o] = place[o];
        bytes += nnc_type_bytes(&type[o]);
    }
    set_in_place(p, i);
    remark_applied(p, &l, rule, "its readers read the operand's memory: %s are not copied",
        text_bytes(p, bytes));
}

nnc_status pass_in_place(pass *p)
{
    parts s = {.p = p, .n_value = p->g->n_value};
    uint32_t n = p->g->n_node;
    s.place = nnc_places(p->g, p->a);
    NNC_NEED(s.place && ARENA_ARRAYS(p->a, s.n_value + 1, s.copy, s.copied_to, s.n_part), p->sink);
    memset(s.copy, 0xff, s.n_value * sizeof *s.copy);
    for (uint32_t i = n; i-- > 0 && p->status == NNC_OK;) {
        const nnc_node *c = &p->g->node[i];
        if (!p->e.dead[i] && c->op == OP_concat && c->n_in > 1 && !nnc_is_in_place(c) &&
            !edit_static(p, c->out) && !join_states(&s, i))
            look_at(&s, i);
    }
    s.place = nnc_places(p->g, p->a); /* of views, too */
    NNC_NEED(s.place, p->sink);
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        const nnc_node *c = &p->g->node[i];
        if (!p->e.dead[i] && (c->op == OP_slice || c->op == OP_split) && !nnc_is_in_place(c) &&
            !edit_static(p, c->out))
            cut(&s, i);
    }
    return p->status;
}
