/* passes/fuse_products.c -- fuses a product, ops on its rows, and a product that sums these rows into one kernel. It computes one block of
 * rows after another (kernel/chain.c), so that the values between them stay in a core's cache.
 *
 *     s = matmul(q, k),  p = softmax(s),  y = matmul(p, v)   ->   y = fused(q, k, v) { ... }
 *
 *     t = conv(x, w),  u = depthwise conv(t, v),  y = conv(u, z)   ->   the same, in blocks of the image's rows.
 *
 * Transposes of the first product's source and of the result become index maps. Second operands are packed into panels (pack_weights),
 * since generated kernels read them contiguously. The estimates that choose engines compare the fused kernel with separate ops. On GPUs
 * only attention is fused (attention.c). Terminates: each fusion leaves fewer contractions. */
#include "kernel/kernel.h"
#include "passes/products.h"
#include "schedule/schedule.h"

#include <math.h>
#include <string.h>

enum { MOST = 16, ROWS = 16 };
_Static_assert(MOST + 2 <= (int)MOST_RUN, "a run with its transposes");

typedef product_run run;

static bool is_product(const nnc_node *core)
{
    return core && (core->op == OP_matmul || core->op == OP_linear);
}

/* The first node outside the run that reads one of its results. NNC_NONE: no such node, or a result is an output of the graph. */
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

/* Does product i sum the run's last result, and read no other value of it? */
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

/* Does an op outside of the run read a value between its products? */
static bool escapes(const pass *p, const run *r)
{
    for (int k = r->first; k < r->last; k++)
        for (uint32_t o = 0; o < p->g->node[r->node[k]].n_out; o++)
            for (uint32_t u = 0, i; edit_next_user(p, p->g->node[r->node[k]].out + o, &u, &i);)
                if (!run_has(r, i))
                    return true;
    return false;
}

/* Collects product i, the ops on its rows, and the product that sums these rows; false: there is no such run. */
static bool find_run(const pass *p, uint32_t i, run *r)
{
    int operand;
    uint32_t next;
    const nnc_node *a = &p->g->node[i], *core = contraction_in(a, 0, &operand);
    if (!is_product(core) || a->n_out != 1)
        return false;
    *r = (run){.node = {i}, .n = 1};
    while ((next = next_reader(p, r)) != NNC_NONE && !is_contraction(p, &p->g->node[next])) {
        if (r->n == MOST - 1 || next < i || nnc_op_class(p->g->node[next].op) == CL_loop)
            return false;
        r->node[r->n++] = next;
    }
    if (next == NNC_NONE || !reduces(p, r) || !sums_rows(p, r, next))
        return false;
    r->last = r->n;
    r->node[r->n++] = next;
    const nnc_node *after = edit_only_user(p, p->g->node[next].out);
    const nnc_node *source = operand < 0 ? NULL : def_of(p, a->in[operand]);
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

static bool is_conv(const nnc_node *core)
{
    return core && core->op == OP_conv;
}

static bool has_windows(const pass *p, const run *r)
{
    int operand;
    return is_conv(contraction_in(&p->g->node[r->node[r->first]], 0, &operand));
}

static bool is_elementwise(const nnc_node *n)
{
    bool all = n->n_out == 1;
    for (uint32_t i = 0; i < (n->op == OP_fused ? n->body->n_node : 1) && all; i++) {
        const nnc_class c = nnc_op_class((nnc_op)(n->op == OP_fused ? n->body->node[i].op : n->op));
        all = c == CL_ewise || c == CL_ecomp || (n->op == OP_fused && c == CL_leaf);
    }
    return all;
}

/* Collects convolution i, up to most - 1 further ones, and the elementwise ops between them. Each reads only the previous result. False:
 * fewer convolutions, or none is depthwise. */
static bool find_convs(const pass *p, uint32_t i, int most, run *r)
{
    int operand, n = 1;
    bool depthwise = false;
    const nnc_node *a = &p->g->node[i], *next = a;
    if (!is_conv(contraction_in(a, 0, &operand)) || a->n_out != 1)
        return false;
    *r = (run){.node = {i}, .n = 1};
    while (n < most && r->n < MOST && !edit_is_output(p, next->out)) {
        const nnc_node *from = next;
        next = edit_only_user(p, from->out);
        const nnc_node *core = next ? contraction_in(next, 0, &operand) : NULL;
        if (!next || next->n_out != 1 || p->e.is_static[node_index(p, next)] ||
            (is_conv(core) ? operand < 0 || next->in[operand] != from->out : !is_elementwise(next)))
            break;
        r->node[r->n++] = node_index(p, next);
        if (!is_conv(core))
            continue;
        n++;
        r->last = r->n - 1;
        depthwise |= nnc_attr_int(core, AT_groups, 1) > 1;
    }
    r->n = r->last + 1;
    return n == most && depthwise;
}

/* Bytes of the values between ops of the run. Of a product's rows only the first value counts, since the ops on them overwrite it. */
static int64_t bytes_inside(const pass *p, const run *r)
{
    const bool convs = has_windows(p, r);
    int64_t sum = 0;
    for (int i = r->first; i < r->last; i++)
        if (convs || i == r->first)
            sum = nnc_add_sat(sum, bytes_of(p, p->g->node[r->node[i]].out));
    return sum;
}

/* Time for the tensors between convolutions that do not fit in the caches. Their total counts, since weights and other threads' data are
 * cached, too. */
static int64_t spills_ns(const pass *p, const run *r)
{
    return has_windows(p, r)
               ? spill_ns(target_of(p, &p->g->node[r->node[r->first]]), bytes_inside(p, r))
               : 0;
}

/* Why no kernel computes the run well; NULL: ask what it takes. */
static const char *blocker(pass *p, const run *r)
{
    const nnc_node *a = &p->g->node[r->node[r->first]];
    const nnc_target *t = target_of(p, a);
    const nnc_type *s = type_of(p, a->out);
    const int64_t row = s->rank ? s->dim[s->order[s->rank - 1]] * nnc_dtype_size(s->dtype) : 0;
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
            nnc_dtype_name(s->dtype));
    if (has_windows(p, r) && spills_ns(p, r) == 0)
        return remark_text(p, "%s pass between them, which stay in the L2 cache",
            text_bytes(p, bytes_inside(p, r)));
    if (nnc_mul_sat(row, ROWS) > nnc_target_local_bytes(t))
        return remark_text(
            p, "%d rows of %s do not fit half of the L2 cache", ROWS, text_bytes(p, row));
    for (int i = r->first; i <= r->last; i++) {
        const nnc_node *core = contraction_in(&p->g->node[r->node[i]], 1, &operand);
        if (is_contraction(p, &p->g->node[r->node[i]]) &&
            (core->op != OP_matmul || nnc_attr_int(core, AT_transpose_b, 0)) &&
            (why = panels_blocked(p, r->node[i])))
            return remark_text(p, "the %s product's second operand is not packed: %s",
                i == r->first  ? "first"
                : i == r->last ? "last"
                               : "second",
                why);
    }
    return NULL;
}

/* ---- times --------------------------------------------------------------------------------------------------------- */

static int64_t copy_ns(const pass *p, nnc_ref v)
{
    const nnc_target *t = target_of(p, def_of(p, v));
    return edit_static(p, v) ? 0 : nnc_target_time_ns(t, 0, 2 * bytes_of(p, v));
}

/* The second operand of product i, or NNC_NONE if its node computes it; *bytes: of each of its matrices. */
static nnc_ref second_of(const pass *p, uint32_t i, int64_t *bytes)
{
    const nnc_node *n = &p->g->node[i];
    int operand;
    const nnc_node *core = contraction_in(n, 1, &operand);
    const nnc_type *w = nnc_typeof(n->op == OP_fused ? n->body : p->g, core->in[1]);
    const int least = core->op == OP_conv ? 0 : w->rank - 2;
    *bytes = nnc_dtype_size(w->dtype);
    for (int d = w->rank; d > 0 && d > least; d--)
        *bytes = nnc_mul_sat(*bytes, w->dim[d - 1]);
    return operand < 0 ? NNC_NONE : n->in[operand];
}

/* Expected time of the run's ops as separate kernels. */
static int64_t apart_ns(pass *p, const run *r)
{
    int64_t ns = 0, bytes;
    for (int i = 0; i < r->n; i++) {
        const uint32_t at = r->node[i];
        const nnc_node *n = &p->g->node[at];
        const nnc_target *t = target_of(p, n);
        NNC_LOCAL(nnc_arena) mem = {0};
        if (is_contraction(p, n)) {
            nnc_ask ask;
            contraction_ask(p, n, &ask);
            const nnc_offer o = nnc_target_offer(t, &ask);
            const nnc_ref w = second_of(p, at, &bytes);
            /* panels are packed directly from the transpose's operand */
            const bool turned =
                w != NNC_NONE && is_transpose(p, def_of(p, w)) && edit_only_user(p, w);
            ns = nnc_add_sat(ns, nnc_add_sat(o.time_ns, turned ? copy_ns(p, w) : 0));
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

/* Time of product i on one thread as part of a kernel: with panels, and without moving the rows between products. */
static int64_t product_ns(pass *p, const run *r, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    nnc_target one = *target_of(p, n);
    nnc_ask ask;
    int operand;
    contraction_ask(p, n, &ask);
    ask.dynamic = false;
    const nnc_ref source = n->in[contraction_in(n, 0, &operand) ? operand : 0];
    ask.bytes -= i == r->node[r->first] ? 0 : bytes_of(p, source);
    ask.bytes -= i == r->node[r->last] ? 0 : bytes_of(p, n->out);
    one.threads = 1;
    const nnc_offer o = nnc_target_offer(&one, &ask);
    return o.ok ? o.time_ns : INT64_MAX;
}

/* Time of k's work items, one thread taking `work` for all. Each loads its `weights` bytes again if they do not fit beside its rows. */
static int64_t units_ns(const nnc_target *t, const nnc_kernel *k, int64_t work, int64_t weights)
{
    enum { REST = 4 }; /* of L2 is left for rows */
    const int64_t units = k->sched.domain,
                  threads = nnc_par_parts(units, k->sched.grain, t->threads);
    int64_t ns = nnc_mul_sat(work / units, nnc_ceildiv(units, threads));
    if (weights > t->l2_bytes - t->l2_bytes / REST)
        ns = nnc_add_sat(ns, nnc_mul_sat(nnc_target_move_ns(t, weights, threads), units));
    return nnc_add_sat(ns, nnc_target_start_ns(t, threads));
}

static bool has_functions(const nnc_node *n)
{
    bool any = nnc_op_is_expensive(n->op);
    for (uint32_t i = 0; n->op == OP_fused && i < n->body->n_node; i++)
        any |= nnc_op_is_expensive(n->body->node[i].op);
    return any;
}

/* Expected time of kernel k of convolutions. Rows that several blocks need are computed for each block. */
static int64_t convs_ns(pass *p, const run *r, const nnc_kernel *k, nnc_arena *mem)
{
    /* Math functions of sums in registers take a third longer than in a kernel of their own (measured: 1.2 to 1.7 times). */
    enum { WAITS = 3 };
    nnc_kpart part[NNC_KPARTS];
    const int n = nnc_kernel_parts(k, part);
    const int64_t *row = nnc_parts_rows(k, part, n, mem);
    const int64_t blocks =
        nnc_kernel_blocks(k, nnc_parts_tiled(k)); /* the image's edges are not computed */
    int64_t work = 0, weights = 0, bytes;
    if (!row)
        pass_nomem(p);
    for (int i = 0, j = 0; i < r->n && row; i++) {
        const nnc_node *c = &p->g->node[r->node[i]];
        if (nnc_is_view(p->g, c))
            continue;
        if (!is_contraction(p, c)) { /* an epilogue */
            int64_t each = 0;
            (void)expected_ns(p, &r->node[i], 1, &c->out, 1, &each);
            work = nnc_add_sat(work, nnc_add_sat(each, has_functions(c) ? each / WAITS : 0));
            continue;
        }
        if (j == n || nnc_kernel_part(k, nnc_parts_tiled(k), row, &part[j], mem)) {
            pass_nomem(p);
            return 0;
        }
        const nnc_kernel *q = &part[j++].k;
        const double results = (double)nnc_max64(numel_of(p, c->out), 1),
                     points = (double)nnc_kernel_points(q, (1u << q->n_outer) - 1),
                     again = 1 + (points / results - 1) * (double)(blocks - 1) / (double)blocks;
        (void)second_of(p, r->node[i], &bytes);
        weights = nnc_add_sat(weights, bytes);
        work =
            nnc_add_sat(work, (int64_t)fmin((double)product_ns(p, r, r->node[i]) * again, 0x1p62));
    }
    return units_ns(target_of(p, &p->g->node[r->node[0]]), k, work, weights);
}

/* Expected time of the run's kernel k, with packing of panels before it. Second operands that do not fit the cache beside a block of rows
 * are read again for each block. */
static int64_t kernel_ns(pass *p, const run *r, const nnc_kernel *k, nnc_arena *mem)
{
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
    return nnc_add_sat(units_ns(t, k, ns, all), copies);
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------- */

nnc_kernel *products_kernel(pass *p, const nnc_node *n, nnc_arena *mem, const char **why)
{
    const nnc_graph *g = n->body;
    int count = 0;
    uint32_t *list = PASS_NEW(p, uint32_t, g->n_node);
    for (uint32_t i = 0; list && i < g->n_node; i++)
        if (nnc_op_class(g->node[i].op) != CL_leaf || g->node[i].op == OP_iota)
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
    const bool parts = k && nnc_kernel_in_parts(k);
    if (!k || (parts && nnc_parts_tiled(k) >= 0))
        return k;
    *why = parts ? "they have no rows in common"
                 : "one of the products has no strips of such rows with contiguous second operands";
    return NULL;
}

/* Builds the kernel, and keeps it if it takes less time. */
static bool compete(pass *p, const run *r, const layers *l, const char *rule)
{
    /* Errors of the estimates, ERROR as in fuse. */
    enum { ERROR = 16, MARGIN = 24 };
    const nnc_ref out = p->g->node[r->node[r->n - 1]].out;
    const bool convs = has_windows(p, r);
    const int64_t inside = bytes_inside(p, r);
    const int64_t apart = nnc_add_sat(apart_ns(p, r), spills_ns(p, r));
    NNC_LOCAL(nnc_arena) mem = {0};
    const char *why = "";
    nnc_ref v = p->status == NNC_OK ? region_build(p, r->node, r->n, &out, 1) : NNC_NONE;
    v = v == NNC_NONE ? v : pack_products(p, v);
    nnc_kernel *k = v == NNC_NONE ? NULL : kernel_of(p, def_of(p, v), &mem, &why);
    if (p->status != NNC_OK)
        return false;
    const int64_t one = !k ? 0 : convs ? convs_ns(p, r, k, &mem) : kernel_ns(p, r, k, &mem);
    if (p->status != NNC_OK)
        return false;
    if (k)
        why = remark_text(p, "one kernel takes %s by estimate, the ops apart %s",
            text_us_beside(p, one, apart), text_us_beside(p, apart, one));
    if (!k || one - apart > (convs ? -apart / MARGIN : apart / ERROR)) {
        edit_sweep(p, p->g->value[v].node);
        remark_declined(p, l, rule, "%s", why);
        return false;
    }
    const int u = nnc_parts_tiled(k);
    edit_replace(p, out, v);
    remark_applied(p, l, rule,
        "blocks of %lld rows pass from one %s to the next in cache: %s are neither stored nor "
        "loaded; %s%s",
        (long long)nnc_min64(nnc_sched_n(&k->sched, KD_tile, u), k->axis[u].extent),
        convs ? "convolution" : "product", text_bytes(p, inside), why,
        one > apart ? ": as long, within the error" : "");
    return true;
}

/* Decides whether a run becomes one kernel. True: it does. */
static bool decide(pass *p, const run *r, mask_list *masks)
{
    layers l = {0};
    for (int k = 0; k < r->n; k++)
        layers_add(p, &l, r->node[k]);
    const char *rule = remark_text(p, "%s and %s in one kernel",
        node_word(p, &p->g->node[r->node[r->first]]), node_word(p, &p->g->node[r->node[r->last]]));
    if (target_of(p, &p->g->node[r->node[0]])->kind == NNC_T_cuda) {
        if (!has_windows(p, r))
            fuse_attention(p, r, &l, rule, masks);
        return false;
    }
    const char *why = blocker(p, r);
    if (!why)
        return compete(p, r, &l, rule);
    remark_declined(p, &l, rule, "%s", why);
    return false;
}

nnc_status pass_fuse_products(pass *p)
{
    const uint32_t n = p->g->n_node;
    mask_list masks = {0};
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        run r;
        if (p->e.dead[i] || p->e.is_static[i] || !is_contraction(p, &p->g->node[i]))
            continue;
        if (find_run(p, i, &r))
            (void)decide(p, &r, &masks);
        for (int most = 3; most > 1 && !p->e.dead[i]; most--)
            if (find_convs(p, i, most, &r) && decide(p, &r, &masks))
                break;
    }
    return p->status;
}
