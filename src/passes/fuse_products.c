/* passes/fuse_products.c -- fuses a product, ops on its rows, and a product that sums these rows into one kernel, which computes a block of
 * rows after the other (kernel/chain.c), so that what passes between them stays in a core's cache:
 *
 *     s = matmul(q, k),  p = softmax(s),  y = matmul(p, v)   ->   y = fused(q, k, v) { ... }
 *
 * Transposes of the first product's source and of the result become index maps. Second operands are put into panels (pack_weights), since
 * generated kernels read them contiguously. The fused kernel competes, by the estimates that engines are chosen by, with what computes the
 * ops apart. On GPUs only attention is fused (attention.c). Terminates: each fusion leaves fewer contractions. */
#include "kernel/kernel.h"
#include "passes/products.h"
#include "schedule/schedule.h"

#include <string.h>

enum { MOST = 16, ROWS = 16 };
_Static_assert(MOST + 2 <= (int)MOST_RUN, "a run with its transposes");

typedef product_run run;

static bool is_product(const nnc_node *core)
{
    return core && (core->op == OP_matmul || core->op == OP_linear);
}

/* The first node that reads a result of the run's nodes and is not in it; NNC_NONE: a result is the graph's, or there is none. */
static uint32_t next_reader(const pass *p, const run *r)
{
    uint32_t next = NNC_NONE;
    for (int k = 0; k < r->n; k++) {
        const nnc_node *n = &p->g->node[r->node[k]];
        for (uint32_t o = 0; o < n->n_out; o++) {
            if (edit_is_output(p, n->out + o))
                return NNC_NONE;
            for (uint32_t u = 0, i; edit_next_user(p, n->out + o, &u, &i);)
                next = run_has(r, i) || i > next ? next : i;
        }
    }
    return next;
}

/* Does product i sum what the run computes last, and read nothing else of it? */
static bool sums_rows(const pass *p, const run *r, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    int operand, reads = 0;
    for (int k = 0; k < n->n_in; k++)
        reads += run_has(r, p->g->value[n->in[k]].node);
    return n->n_out == 1 && is_product(contraction_in(n, 0, &operand)) && operand >= 0 &&
           reads == 1 && run_has(r, p->g->value[n->in[operand]].node);
}

static bool is_transpose(const pass *p, const nnc_node *n)
{
    return n && n->op == OP_transpose && !p->e.is_static[node_index(p, n)] && !nnc_is_view(p->g, n);
}

/* Do ops of the run reduce rows? Products with elementwise ops between them read large weights, and are fast as they are. */
static bool reduces(const pass *p, const run *r)
{
    for (int k = 0; k < r->n; k++) {
        const nnc_node *n = &p->g->node[r->node[k]];
        for (uint32_t i = 0; i < (n->op == OP_fused ? n->body->n_node : 1); i++)
            if (nnc_op_class((nnc_op)(n->op == OP_fused ? n->body->node[i].op : n->op)) ==
                CL_reduce)
                return true;
    }
    return false;
}

/* Does an op outside of the run read what lies between its products? */
static bool escapes(const pass *p, const run *r)
{
    for (int k = r->first; k < r->last; k++)
        for (uint32_t o = 0; o < p->g->node[r->node[k]].n_out; o++)
            for (uint32_t u = 0, i; edit_next_user(p, p->g->node[r->node[k]].out + o, &u, &i);)
                if (!run_has(r, i))
                    return true;
    return false;
}

/* Product i, the ops on its rows, and the product that sums these; false: there are none. */
static bool find_run(const pass *p, uint32_t i, run *r)
{
    int operand;
    uint32_t next;
    const nnc_node *a = &p->g->node[i], *core = contraction_in(a, 0, &operand);
    if (!is_product(core) || a->n_out != 1)
        return false;
    *r = (run){.node = {i}, .n = 1};
    while ((next = next_reader(p, r)) != NNC_NONE && !is_contraction(p, &p->g->node[next])) {
        if (r->n == MOST - 1 || next < i || nnc_op_class((nnc_op)p->g->node[next].op) == CL_loop)
            return false;
        r->node[r->n++] = next;
    }
    if (next == NNC_NONE || !reduces(p, r) || !sums_rows(p, r, next))
        return false;
    r->last = r->n;
    r->node[r->n++] = next;
    const nnc_node *after = edit_only_user(p, p->g->node[next].out);
    const nnc_node *source = operand < 0 ? NULL : nnc_def(p->g, a->in[operand]);
    if (escapes(p, r))
        return false;
    if (is_transpose(p, after))
        r->node[r->n++] = node_index(p, after);
    if (is_transpose(p, source) && edit_only_user(p, source->out) == a) {
        memmove(r->node + 1, r->node, sizeof r->node[0] * (size_t)r->n++);
        r->node[0] = node_index(p, source);
        r->first++, r->last++;
    }
    return true;
}

/* Why no kernel computes the run well; NULL: ask what it takes. */
static const char *blocker(pass *p, const run *r)
{
    const uint32_t first = r->node[r->first], last = r->node[r->last];
    const nnc_node *a = &p->g->node[first], *c = &p->g->node[last];
    const nnc_target *t = target_of(p, a);
    const nnc_type *s = nnc_typeof(p->g, a->out);
    const int64_t row = s->rank ? s->dim[s->rank - 1] * nnc_dtype_size((nnc_dtype)s->dtype) : 0;
    const char *why;
    int operand;
    if (nnc_target_interprets(t))
        return "interpreted kernels gain nothing by blocks of rows";
    for (int i = 0; i < r->n; i++)
        if (placed_apart(&p->g->node[r->node[i]], a))
            return placed_apart(&p->g->node[r->node[i]], a);
    for (int i = 0; i < r->n; i++)
        if (nnc_is_in_place(&p->g->node[r->node[i]])) /* its results are parts of other values */
            return remark_text(
                p, "the %s between them is in place", node_word(p, &p->g->node[r->node[i]]));
    if (s->dtype != DT_f32 && s->dtype != DT_f64)
        return remark_text(p, "kernels of several products are of f32 or f64, not of %s",
            nnc_dtype_name((nnc_dtype)s->dtype));
    if (nnc_mul_sat(row, ROWS) > nnc_target_local_bytes(t))
        return remark_text(
            p, "%d rows of %s do not fit half of the L2 cache", ROWS, text_bytes(p, row));
    const nnc_node *core = contraction_in(a, 1, &operand);
    if ((core->op == OP_linear || nnc_attr_int(core, AT_transpose_b, 0)) &&
        (why = panels_blocked(p, first)))
        return remark_text(p, "the first product's second operand is not packed: %s", why);
    core = contraction_in(c, 1, &operand);
    if ((core->op == OP_linear || nnc_attr_int(core, AT_transpose_b, 0)) &&
        (why = panels_blocked(p, last)))
        return remark_text(p, "the second product's second operand is not packed: %s", why);
    return NULL;
}

/* ---- times --------------------------------------------------------------------------------------------------------- */

static int64_t copy_ns(const pass *p, nnc_ref v)
{
    const nnc_target *t = target_of(p, nnc_def(p->g, v));
    return edit_static(p, v) ? 0
                             : nnc_target_time_ns(t, 0, 2 * nnc_type_bytes(nnc_typeof(p->g, v)));
}

/* Is v a copy of an operand's transpose, which panels are made from directly? */
static bool is_turned(const pass *p, nnc_ref v)
{
    return is_transpose(p, nnc_def(p->g, v)) && edit_only_user(p, v);
}

/* The second operand of product i, in its node or NNC_NONE, and the bytes that each of its matrices has. */
static nnc_ref second_of(const pass *p, uint32_t i, int64_t *bytes)
{
    const nnc_node *n = &p->g->node[i];
    int operand;
    const nnc_node *core = contraction_in(n, 1, &operand);
    const nnc_type *w = nnc_typeof(n->op == OP_fused ? n->body : p->g, core->in[1]);
    *bytes = nnc_dtype_size((nnc_dtype)w->dtype);
    for (int d = w->rank; d > 0 && d > w->rank - 2; d--)
        *bytes = nnc_mul_sat(*bytes, w->dim[d - 1]);
    return operand < 0 ? NNC_NONE : n->in[operand];
}

/* What the run's ops are expected to take as they are. */
static int64_t apart_ns(pass *p, const run *r)
{
    int64_t ns = 0, bytes;
    for (int i = 0; i < r->n; i++) {
        const uint32_t at = r->node[i];
        const nnc_node *n = &p->g->node[at];
        const nnc_target *t = target_of(p, n);
        NNC_LOCAL(nnc_arena) mem = {0};
        if (i == r->first || i == r->last) {
            nnc_ask ask;
            contraction_ask(p, n, &ask);
            const nnc_offer o = nnc_target_offer(t, &ask);
            const nnc_ref w = second_of(p, at, &bytes);
            ns = nnc_add_sat(
                ns, nnc_add_sat(o.time_ns, w != NNC_NONE && is_turned(p, w) ? copy_ns(p, w) : 0));
        } else if (i < r->first || i > r->last) {
            ns = nnc_add_sat(ns, copy_ns(p, n->out));
        } else if (!nnc_is_view(p->g, n)) {
            nnc_kernel *k = nnc_kernel_build(p->g, n, &mem, p->sink);
            int64_t each =
                k && nnc_kernel_arrange(k, t, &mem) ? nnc_kernel_ns(k, t, NULL, &mem) : -1;
            if (each < 0)
                pass_nomem(p);
            ns = nnc_add_sat(ns, each);
        }
    }
    return ns;
}

/* What product i takes on one thread as part of a kernel: of panels, and without the rows that pass between products. */
static int64_t product_ns(pass *p, const run *r, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    nnc_target one = *target_of(p, n);
    nnc_ask ask;
    int operand;
    contraction_ask(p, n, &ask);
    ask.dynamic = false;
    const nnc_ref rows =
        i == r->node[r->first] ? n->out : n->in[contraction_in(n, 0, &operand) ? operand : 0];
    ask.bytes -= nnc_type_bytes(nnc_typeof(p->g, rows));
    one.threads = 1;
    const nnc_offer o = nnc_target_offer(&one, &ask);
    return o.ok ? o.time_ns : INT64_MAX;
}

/* What kernel k, of the run, is expected to take, with copies to panels before it. Second operands that do not fit the cache beside a
 * block of rows are read again for each. */
static int64_t kernel_ns(pass *p, const run *r, const nnc_kernel *k, nnc_arena *mem)
{
    enum { REST = 4 }; /* of L2 is left for rows */
    const nnc_target *t = target_of(p, &p->g->node[r->node[r->first]]);
    nnc_kpart part[NNC_KPARTS];
    const int n = nnc_kernel_parts(k, part);
    const int64_t *row = nnc_parts_rows(k, part, n, mem);
    int64_t ns = 0, copies = 0, all = 0, bytes, work;
    const int products[2] = {r->first, r->last};
    for (int i = 0; i < 2; i++) {
        const nnc_ref w = second_of(p, r->node[products[i]], &bytes);
        ns = nnc_add_sat(ns, product_ns(p, r, r->node[products[i]]));
        copies = nnc_add_sat(copies, w == NNC_NONE ? 0 : copy_ns(p, w));
        all = nnc_add_sat(all, bytes);
    }
    for (int i = 0; i < n && row; i++) {
        work = 0;
        if (part[i].product)
            continue;
        if (nnc_kernel_part(k, nnc_parts_tiled(k), row, &part[i], mem) ||
            nnc_kernel_ns(&part[i].k, t, &work, mem) < 0)
            pass_nomem(p);
        ns = nnc_add_sat(ns, work);
    }
    const int64_t units = k->sched.domain,
                  threads = nnc_par_parts(units, k->sched.grain, t->threads);
    ns = nnc_mul_sat(ns / units, nnc_ceildiv(units, threads));
    if (all > t->l2_bytes - t->l2_bytes / REST)
        ns = nnc_add_sat(ns, nnc_mul_sat(nnc_target_move_ns(t, all, threads), units));
    return nnc_add_sat(ns, copies) + nnc_target_start_ns(t, threads);
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------- */

nnc_kernel *products_kernel(pass *p, const nnc_node *n, nnc_arena *mem, const char **why)
{
    const nnc_graph *g = n->body;
    int count = 0;
    uint32_t *list = PASS_NEW(p, uint32_t, g->n_node);
    for (uint32_t i = 0; list && i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) != CL_leaf || g->node[i].op == OP_iota)
            list[count++] = i;
    *why = NULL;
    nnc_kernel *k =
        list ? nnc_kernel_of(g, list, count, g->output, (int)g->n_output, mem, why) : NULL;
    if (k ? nnc_kernel_arrange(k, target_of(p, n), mem) : *why != NULL)
        return k;
    pass_nomem(p);
    return NULL;
}

/* The kernel of fused node n in blocks of rows; NULL: *why, or p->status. */
static nnc_kernel *kernel_of(pass *p, const nnc_node *n, nnc_arena *mem, const char **why)
{
    nnc_kernel *k = products_kernel(p, n, mem, why);
    if (!k || nnc_kernel_in_parts(k))
        return k;
    *why = "one of the products has no strips of such rows with contiguous second operands";
    return NULL;
}

/* Builds the kernel, and keeps it where it takes less time. */
static void compete(pass *p, const run *r, const layers *l, const char *rule)
{
    enum { ERROR = 16 }; /* of the estimates, as in fuse */
    const nnc_ref out = p->g->node[r->node[r->n - 1]].out;
    const int64_t inside = nnc_type_bytes(nnc_typeof(p->g, p->g->node[r->node[r->first]].out));
    const int64_t apart = apart_ns(p, r);
    NNC_LOCAL(nnc_arena) mem = {0};
    const char *why = "";
    nnc_ref v = p->status == NNC_OK ? region_build(p, r->node, r->n, &out, 1) : NNC_NONE;
    v = v == NNC_NONE ? v : pack_products(p, v);
    nnc_kernel *k = v == NNC_NONE ? NULL : kernel_of(p, nnc_def(p->g, v), &mem, &why);
    if (p->status != NNC_OK)
        return;
    const int64_t one = k ? kernel_ns(p, r, k, &mem) : 0;
    if (p->status != NNC_OK)
        return;
    if (k)
        why = remark_text(p, "one kernel takes %s by estimate, the ops apart %s",
            text_us_beside(p, one, apart), text_us_beside(p, apart, one));
    if (!k || one - apart > apart / ERROR) {
        edit_sweep(p, p->g->value[v].node);
        remark_declined(p, l, rule, "%s", why);
        return;
    }
    const int u = nnc_parts_tiled(k);
    edit_replace(p, out, v);
    remark_applied(p, l, rule,
        "blocks of %lld rows pass from one product to the next in cache: %s are neither stored nor "
        "loaded; %s%s",
        (long long)nnc_min64(nnc_sched_n(&k->sched, KD_tile, u), k->axis[u].extent),
        text_bytes(p, inside), why, one > apart ? ": as long, within the error" : "");
}

nnc_status pass_fuse_products(pass *p)
{
    const uint32_t n = p->g->n_node;
    mask_list masks = {0};
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        run r;
        if (p->e.dead[i] || p->e.is_static[i] || !is_contraction(p, &p->g->node[i]) ||
            !find_run(p, i, &r))
            continue;
        layers l = {0};
        for (int k = 0; k < r.n; k++)
            layers_add(p, &l, r.node[k]);
        const char *rule = remark_text(p, "%s and %s in one kernel",
            node_word(p, &p->g->node[r.node[r.first]]), node_word(p, &p->g->node[r.node[r.last]]));
        if (target_of(p, &p->g->node[i])->kind == NNC_T_cuda) {
            fuse_attention(p, &r, &l, rule, &masks);
            continue;
        }
        const char *why = blocker(p, &r);
        if (why)
            remark_declined(p, &l, rule, "%s", why);
        else
            compete(p, &r, &l, rule);
    }
    return p->status;
}
