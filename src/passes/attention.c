/* passes/attention.c -- the part of fuse_products for GPUs: attention as one kernel.
 *
 *     s = q k^T,  p = softmax(f(s)),  y = p v   ->   y = fused(q, k, v, ..) { ... }
 *
 * f: any elementwise ops, so a scale and masks. Movement before it (heads that are transposes, parts of one projection) becomes index maps,
 * too. The kernel keeps scores in registers (schedule/attend.c), and competes with the ops apart by the estimates that engines are chosen
 * by. What it does not compute, such as a softmax whose empty rows are zeros, stays as it is, and the remark says why. */
#include "passes/products.h"
#include "schedule/schedule.h"

#include <string.h>

/* ---- movement before the products ------------------------------------------------------------------------------------- */

/* Are the node's results read only by ops of the run? */
static bool feeds_only(const pass *p, const product_run *r, const nnc_node *n)
{
    for (uint32_t o = 0; o < n->n_out; o++) {
        if (edit_is_output(p, n->out + o))
            return false;
        for (uint32_t u = 0, i; edit_next_user(p, n->out + o, &u, &i);)
            if (!run_has(r, i))
                return false;
    }
    return true;
}

static bool moves(nnc_op op)
{
    return op == OP_transpose || op == OP_reshape || op == OP_slice || op == OP_split;
}

/* Is the node an elementwise op of one tensor and numbers, or a fused node of such ops and movement? */
static bool is_scaled(const pass *p, const nnc_node *n)
{
    double number;
    int tensors = 0;
    if (n->n_out != 1)
        return false;
    if (n->op == OP_fused) {
        for (uint32_t i = 0; i < n->body->n_node; i++) {
            const nnc_op op = n->body->node[i].op;
            if (op != OP_input && op != OP_constant && !moves(op) && !nnc_op_is_ewise(op))
                return false;
        }
        return n->n_in == 1;
    }
    for (int k = 0; k < n->n_in; k++)
        tensors += !nnc_const_scalar(p->g, n->in[k], &number);
    return nnc_op_is_ewise(n->op) && tensors == 1;
}

/* Does the node compare two indices, as a causal mask does? */
static bool compares_indices(const pass *p, const nnc_node *n)
{
    return (n->op == OP_ge || n->op == OP_le || n->op == OP_gt || n->op == OP_lt) &&
           def_of(p, n->in[0])->op == OP_iota && def_of(p, n->in[1])->op == OP_iota;
}

static void put_first(product_run *r, uint32_t i)
{
    memmove(r->node + 1, r->node, sizeof r->node[0] * (size_t)r->n++);
    r->node[0] = i;
    r->first++, r->last++;
}

/* Adds comparisons of indices, which other layers may use as well. They take instructions, where a static mask would be loaded for each
 * score. */
static void take_indices(const pass *p, product_run *r)
{
    for (int k = 0; k < r->n; k++) {
        const nnc_node *n = &p->g->node[r->node[k]];
        for (int j = 0; j < n->n_in && r->n + 3 < MOST_RUN; j++) {
            const uint32_t d = p->g->value[n->in[j]].node;
            const nnc_node *from = &p->g->node[d];
            if (!compares_indices(p, from) || run_has(r, d))
                continue;
            put_first(r, d);
            for (int i = 0; i < 2; i++)
                if (!run_has(r, p->g->value[from->in[i]].node))
                    put_first(r, p->g->value[from->in[i]].node);
            return;
        }
    }
}

/* Adds movement that only the run reads: it becomes index maps of the kernel. `scales`: adds elementwise ops of one tensor, too. */
static void take_movement(const pass *p, product_run *r, bool scales)
{
    for (int k = 0; k < r->n; k++) {
        const nnc_node *n = &p->g->node[r->node[k]];
        for (int j = 0; j < n->n_in && r->n < MOST_RUN; j++) {
            const uint32_t d = p->g->value[n->in[j]].node;
            const nnc_node *from = &p->g->node[d];
            if (!(moves(from->op) || (scales && is_scaled(p, from))) || run_has(r, d) ||
                p->e.is_static[d] || nnc_is_in_place(from) || placed_apart(from, n) ||
                !feeds_only(p, r, from))
                continue;
            put_first(r, d);
            k = -1; /* its operands may now feed only the run: start again */
            break;
        }
    }
}

/* ---- times ------------------------------------------------------------------------------------------------------------ */

/* Expected time of the run's ops as separate kernels. */
static int64_t apart_ns(const pass *p, const product_run *r)
{
    int64_t ns = 0;
    for (int i = 0; i < r->n; i++) {
        const nnc_node *n = &p->g->node[r->node[i]];
        const nnc_target *t = target_of(p, n);
        const nnc_cost cost = edit_static(p, n->out) ? (nnc_cost){0} : nnc_node_cost(p->g, n);
        nnc_ask ask;
        nnc_offer o;
        if (i == r->first || i == r->last) {
            contraction_ask(p, n, &ask);
            o = nnc_target_offer(t, &ask);
            ns = nnc_add_sat(ns, o.ok ? o.time_ns : INT64_MAX);
        } else if (cost.launches) {
            ns = nnc_add_sat(ns, nnc_target_time_ns(t, cost.flops, cost.bytes));
        }
    }
    return ns;
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------- */

/* Is an op exp, of the graph or in a fused node? */
static bool takes_exp(const nnc_node *n)
{
    for (uint32_t i = 0; n->op == OP_fused && i < n->body->n_node; i++)
        if (n->body->node[i].op == OP_exp)
            return true;
    return n->op == OP_exp;
}

static const char *const no_attention =
    "a GPU kernel has two products only with a softmax of f32, f16 or bf16 rows between them "
    "(several queries, heads of at most 256 elements)";

static const char *blocker(pass *p, const product_run *r)
{
    const nnc_node *a = &p->g->node[r->node[r->first]];
    bool exp = false;
    for (int i = r->first + 1; i < r->last; i++)
        exp = exp || takes_exp(&p->g->node[r->node[i]]);
    if (!exp)
        return no_attention;
    for (int i = 0; i < r->n; i++) {
        const nnc_node *n = &p->g->node[r->node[i]];
        if (placed_apart(n, a))
            return placed_apart(n, a);
        if (nnc_is_in_place(n))
            return remark_text(p, "the %s between them is in place", node_word(p, n));
    }
    return NULL;
}

/* The fused node's kernel where it is attention; NULL: *why, or p->status. */
static const nnc_kernel *kernel_of(pass *p, const nnc_node *n, nnc_arena *mem, const char **why)
{
    const nnc_kernel *k = products_kernel(p, n, mem, why);
    if (!k || k->grid.cls == KC_attend)
        return k;
    *why = no_attention;
    return NULL;
}

/* The region with its mask in memory, for a library's attention, if that takes less time than kernel *k of region v; otherwise v. */
static nnc_ref with_mask(pass *p, nnc_ref v, const nnc_kernel **k, nnc_arena *mem, mask_list *made)
{
    const nnc_target *t = target_of(p, def_of(p, v));
    const char *why;
    if (!*k || (*k)->grid.spill || t->sm < 80)
        return v;
    const nnc_ref w = attention_mask_outside(p, v, made);
    const nnc_kernel *other = w == NNC_NONE ? NULL : kernel_of(p, def_of(p, w), mem, &why);
    if (w == NNC_NONE)
        return v;
    /* one separate kernel computes the mask, for all layers that use it */
    const bool wins =
        other && other->grid.spill && nnc_attend_ns(other, t) + t->launch_ns < nnc_attend_ns(*k, t);
    edit_sweep(p, p->g->value[wins ? v : w].node);
    *k = wins ? other : *k;
    return wins ? w : v;
}

void fuse_attention(pass *p, const product_run *found, layers *l, const char *rule, mask_list *made)
{
    product_run r = *found;
    const char *why = blocker(p, &r);
    if (why) {
        remark_declined(p, l, rule, "%s", why);
        return;
    }
    const nnc_target *t = target_of(p, &p->g->node[r.node[r.first]]);
    const nnc_ref out = p->g->node[r.node[r.n - 1]].out;
    const int64_t inside = bytes_of(p, p->g->node[r.node[r.first]].out);
    NNC_LOCAL(nnc_arena) mem = {0};
    nnc_ref v = NNC_NONE;
    const nnc_kernel *k = NULL;
    for (int scales = 1; scales >= 0 && !k && p->status == NNC_OK; scales--) {
        if (v != NNC_NONE) /* the kernel cannot also compute its operands */
            edit_sweep(p, p->g->value[v].node);
        r = *found;
        take_indices(p, &r);
        take_movement(p, &r, scales);
        v = region_build(p, r.node, r.n, &out, 1);
        k = v == NNC_NONE ? NULL : kernel_of(p, def_of(p, v), &mem, &why);
    }
    if (p->status != NNC_OK || v == NNC_NONE)
        return;
    const int64_t apart = apart_ns(p, &r);
    v = with_mask(p, v, &k, &mem, made);
    if (p->status != NNC_OK)
        return;
    const int64_t one = k ? nnc_attend_ns(k, t) : 0;
    if (k)
        why = remark_text(p, "%s takes %s by estimate, the ops apart %s",
            k->grid.spill ? "it" : "one kernel", text_us_beside(p, one, apart),
            text_us_beside(p, apart, one));
    if (!k || !nnc_target_for_kernels(t) || nnc_add_sat(one, one / 3) > apart) {
        edit_sweep(p, p->g->value[v].node);
        remark_declined(
            p, l, rule, "%s%s", why, k && one < apart ? ": too little less for an estimate" : "");
        return;
    }
    edit_replace(p, out, v);
    if (k->grid.spill)
        remark_applied(p, l, rule,
            "attention: one call of cuDNN, so %s of scores are neither stored nor loaded; %s",
            text_bytes(p, inside), why);
    else
        remark_applied(p, l, rule,
            "attention: blocks of %d rows pass over blocks of %d keys, so %s of scores are neither "
            "stored nor loaded; %s",
            8 * k->grid.vec, k->grid.group, text_bytes(p, inside), why);
}
