/* passes/join_casts.c -- training steps in 16 bits on GPUs: cast several weights in one kernel.
 *
 *   h1 = cast(w1);  h2 = cast(w2);  ..    ->    h = cast(concat(w1, w2, ..));  h1, h2, ..: parts of h
 *
 * States are f32. Each step computes their 16-bit copies. Most weights are so small that a launch takes as long as the cast. Weights are
 * not moved: the kernel reads a few tensors in turn (NNC_KERNEL_CONCAT). The parts are views that begin at multiples of 64 bytes. They are
 * joined in forward order, a few at a time, so that no copy lives much longer than before. A cast to another memory order is not joined,
 * since it transposes. Terminates: a joined cast does not read a param. */
#include "kernel/kernel.h"
#include "passes/internal.h"

enum { ALIGN = 32 }; /* elements of 64 bytes */

typedef struct casts {
    uint32_t node[NNC_KERNEL_CONCAT];
    int n;
} casts;

static bool read_by_contractions(const pass *p, nnc_ref v)
{
    bool all = !edit_is_output(p, v) && !edit_unused(p, p->g->value[v].node);
    for (uint32_t at = 0, u; all && edit_next_user(p, v, &at, &u);)
        all = nnc_op_class(p->g->node[u].op) == CL_contract;
    return all;
}

static bool is_candidate(const pass *p, const bool *late, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    if (n->op != OP_cast || p->e.dead[i] || p->e.is_static[i] || late[i] ||
        target_of(p, n)->kind != NNC_T_cuda || nnc_dtype_size(type_of(p, n->out)->dtype) != 2)
        return false;
    const nnc_type *t = type_of(p, n->in[0]);
    return def_of(p, n->in[0])->op == OP_param && t->dtype == DT_f32 && nnc_type_is_row_major(t) &&
           nnc_type_numel(t) % ALIGN == 0 && read_by_contractions(p, n->out);
}

/* May b be joined with a? */
static bool are_alike(const pass *p, uint32_t a, uint32_t b)
{
    const nnc_node *x = &p->g->node[a], *y = &p->g->node[b];
    return type_of(p, x->out)->dtype == type_of(p, y->out)->dtype && !placed_apart(x, y);
}

/* Builds the joined cast, of one dimension; NNC_NONE: p->status. */
static nnc_ref build(pass *p, const casts *c)
{
    nnc_ref line[NNC_KERNEL_CONCAT];
    edit_at(p, c->node[0]);
    p->g->origin = union_origin(p, c->node, c->n);
    for (int k = 0; k < c->n; k++) {
        const nnc_ref w = p->g->node[c->node[k]].in[0];
        const int64_t numel = numel_of(p, w);
        line[k] = nnc_reshape(p->g, w, 1, &numel);
    }
    const nnc_dtype to = type_of(p, p->g->node[c->node[0]].out)->dtype;
    const nnc_ref y = nnc_cast(p->g, nnc_concat(p->g, c->n, line, 0), to);
    return edit_sync(p) ? y : NNC_NONE;
}

static void replace(pass *p, const casts *c, nnc_ref y)
{
    int64_t at = 0, end;
    for (int k = 0; k < c->n && p->status == NNC_OK; k++, at = end) {
        const nnc_ref old = p->g->node[c->node[k]].out;
        const nnc_type t = *type_of(p, old);
        end = at + nnc_type_numel(&t);
        const nnc_attr cut[] = {nnc_av(AT_starts, 1, &at), nnc_av(AT_ends, 1, &end),
            nnc_av(AT_axes, 1, &(int64_t){0}), nnc_ai(AT_in_place, 1)};
        edit_at(p, c->node[k]);
        const nnc_ref part = nnc_build(p->g, OP_slice, 1, &y, 4, cut);
        const nnc_ref v = nnc_reshape(p->g, part, t.rank, t.dim);
        if (edit_sync(p))
            edit_replace(p, old, edit_like(p, v, old));
    }
}

/* Joins these casts if one kernel is expected to take less time. */
static void join_list(pass *p, const casts *c)
{
    const uint32_t first = p->g->n_node;
    layers l = {0};
    int64_t apart = 0, bytes = 0;
    uint32_t node[2 * NNC_KERNEL_CONCAT + 2];
    int n = 0;
    for (int k = 0; k < c->n; k++) {
        const nnc_ref v = p->g->node[c->node[k]].out;
        layers_add(p, &l, c->node[k]);
        apart += expected_ns(p, &c->node[k], 1, &v, 1, NULL);
        bytes += bytes_of(p, v);
    }
    const nnc_ref y = build(p, c);
    if (y == NNC_NONE)
        return;
    for (uint32_t i = first; i < p->g->n_node && n < (int)NNC_COUNT(node); i++)
        node[n++] = i;
    const int64_t one = expected_ns(p, node, n, &y, 1, NULL);
    const char *rule = "casts of weights in one kernel";
    if (!one || one >= apart) {
        if (one)
            remark_declined(p, &l, rule, "one kernel is expected to take %s, the %d casts %s",
                text_us_beside(p, one, apart), c->n, text_us_beside(p, apart, one));
        else
            remark_declined(p, &l, rule, "there is no kernel for them");
        edit_sweep(p, p->g->value[y].node);
        return;
    }
    replace(p, c, y);
    remark_applied(p, &l, rule,
        "one kernel writes the 16-bit copies of %d weights, %s: expected to take %s, the %d casts "
        "%s (fuse regains the cost)",
        c->n, text_bytes(p, bytes), text_us_beside(p, one, apart), c->n,
        text_us_beside(p, apart, one));
}

nnc_status pass_join_casts(pass *p)
{
    const uint32_t n_node = p->g->n_node;
    const bool *late = find_late(p);
    bool *seen = PASS_NEW(p, bool, n_node + 1);
    for (uint32_t i = 0; i < n_node && late && seen && p->status == NNC_OK; i++) {
        casts c = {.node = {i}, .n = 1};
        if (seen[i] || !is_candidate(p, late, i))
            continue;
        for (uint32_t k = i + 1; k < n_node && c.n < NNC_KERNEL_CONCAT; k++)
            if (!seen[k] && is_candidate(p, late, k) && are_alike(p, i, k)) {
                seen[k] = true;
                c.node[c.n++] = k;
            }
        if (c.n > 1)
            join_list(p, &c);
    }
    return p->status;
}
