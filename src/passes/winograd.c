/* passes/winograd.c -- f32 convolutions with 3x3 windows by Winograd's algorithm (ir/winograd.c), where that is expected to take less time
 * than the direct sums. Weights are transformed once, in `init`; trained ones at each run.
 *
 *     conv(x, w, b)  ->  fused(x, u, b) { winograd(x, u) + b },   u = reshape(matmul(t, transpose(reshape(w)))): [points, K/k, C, k].
 *
 * A transposed convolution, the gradient of a source, is one with the reversed window. A weight gradient is the sum over blocks.
 *
 *     conv_wgrad(x, dy)  ->  fused(winograd_wgrad(x, dy)) { transpose(reduce_sum) }.
 *
 * Blocks of tiles are the kernel's work items: their points stay in a core's cache, and the transformed weights are read once for each.
 * Declined with --math=exact: an infinite or NaN element spreads to a whole tile. Terminates: each application removes a convolution. */
#include "kernel/kernel.h"
#include "passes/internal.h"

#include <math.h>

/* One way to compute a convolution, or the gradient of its weights. */
typedef struct way {
    int points; /* 36 or 16 */
    int64_t images, rows; /* of a block of tiles */
    double ns;
} way;

/* Sizes of a convolution. */
typedef struct sizes {
    int64_t images, channels, outputs, height, width; /* of the results */
    bool gradient; /* of the weights */
} sizes;

/* The convolution's result, or dy, the gradient of it. */
static const nnc_type *result_of(const nnc_graph *g, const nnc_node *c)
{
    return nnc_typeof(g, c->op == OP_conv_wgrad ? c->in[1] : c->out);
}

static sizes sizes_of(const nnc_graph *g, const nnc_node *c)
{
    const nnc_type *x = nnc_typeof(g, c->in[0]), *y = result_of(g, c);
    return (sizes){y->dim[0], x->dim[1], y->dim[1], y->dim[2], y->dim[3], c->op == OP_conv_wgrad};
}

static bool channels_last(const nnc_type *t)
{
    return t->order[0] == 0 && t->order[3] == 1;
}

static bool all_ones(const nnc_node *n, nnc_akey key)
{
    const int64_t *v;
    for (int i = nnc_attr_ints(n, key, &v); i-- > 0;)
        if (v[i] != 1)
            return false;
    return true;
}

/* Whether the algorithm computes convolution c, whose weights have type k. */
static bool applies(const nnc_graph *g, const nnc_node *c, const nnc_type *k)
{
    const nnc_type *x = nnc_typeof(g, c->in[0]), *y = result_of(g, c);
    const int64_t *pads;
    const int n = nnc_attr_ints(c, AT_pads, &pads);
    bool ok = c->op == OP_conv || c->op == OP_conv_transpose || c->op == OP_conv_wgrad;
    for (int i = 0; i < n; i++)
        ok = ok && pads[i] < NNC_WINOGRAD_TAPS;
    for (int d = 0; d < 2 && ok && c->op == OP_conv_wgrad; d++) /* all windows have a gradient */
        ok = x->rank == 4 && x->dim[d + 2] + (n ? pads[d] + pads[d + 2] : 0) ==
                                 y->dim[d + 2] + NNC_WINOGRAD_TAPS - 1;
    return ok && x->rank == 4 && x->dtype == DT_f32 && k->dim[2] == 3 && k->dim[3] == 3 &&
           nnc_attr_int(c, AT_groups, 1) == 1 && all_ones(c, AT_strides) &&
           all_ones(c, AT_dilations) && channels_last(x) && channels_last(y) &&
           (nnc_type_is_row_major(k) || c->op == OP_conv_wgrad) && y->dim[2] > 1 && y->dim[3] > 1;
}

/* ---- price ----------------------------------------------------------------------------------------------------------- */

typedef struct price {
    double rate; /* FLOPs of a product per nanosecond and thread */
    double point_ns; /* per element of a transform in the nearest large cache */
    int64_t threads, lanes, strip, cache;
} price;

/* Nanoseconds of transforms with `elements` elements in use at a time. */
static double points_ns(const price *q, double elements)
{
    return elements * q->point_ns * (elements * 4 > 2 * (double)q->cache ? 2 : 1);
}

/* Points that a product computes for n neighbours, in strips of one length. */
static int64_t in_strips(const price *q, int64_t n)
{
    const int64_t strips = nnc_ceildiv(n, q->strip);
    return strips * nnc_max64(nnc_ceildiv(n, strips), nnc_min64(NNC_W_strip, q->strip));
}

/* Nanoseconds of blocks of `images` images and `rows` rows of tiles, on the thread with the most blocks. */
static double blocks_ns(const price *q, const sizes *s, int points, int64_t images, int64_t rows)
{
    enum { TAPS = NNC_WINOGRAD_TAPS * NNC_WINOGRAD_TAPS };
    const int tile = points == 36 ? 4 : 2;
    const int64_t c = nnc_align_up(s->channels, q->lanes), k = nnc_align_up(s->outputs, q->lanes),
                  all = nnc_ceildiv(s->height, tile),
                  tiles = images * rows * nnc_ceildiv(s->width, tile),
                  blocks = s->images / images * nnc_ceildiv(all, rows);
    const double matrix = (double)points * (double)c * (double)k, bytes = matrix * 4,
                 transforms = points_ns(q, (double)points * (double)tiles * (double)(c + k)),
                 turns = (double)nnc_ceildiv(blocks, q->threads);
    if (s->gradient) { /* sums over tiles, their transform, and the sum over blocks */
        const double product = (double)points * (double)c * (double)in_strips(q, s->outputs) *
                               (2 * (double)tiles + NNC_W_end) / q->rate,
                     added = (double)(blocks + 1) * TAPS * (double)c * (double)k * 8;
        return turns * (product + transforms + points_ns(q, matrix)) +
               added / NNC_W_sums / (double)q->threads;
    }
    const double product = (double)points * (double)in_strips(q, tiles) * (double)k *
                           (2 * (double)c + NNC_W_end) / q->rate,
                 cold = bytes / NNC_W_cold_weights,
                 streamed = bytes <= (double)q->cache ? 0 : bytes / NNC_W_weights;
    return turns * (fmax(product, streamed) + transforms) + fmax(cold - product, 0) + cold / 4;
}

/* Do gradients of weights take too much memory? Each worker has their sums in its memory, and all blocks' gradients are live beside dy. */
static bool is_large(const price *q, const sizes *s, int points, int64_t images, int64_t rows)
{
    enum { FEW_BLOCKS = 4, TAPS = NNC_WINOGRAD_TAPS * NNC_WINOGRAD_TAPS };
    const int64_t blocks = s->images / images *
                           nnc_ceildiv(nnc_ceildiv(s->height, points == 36 ? 4 : 2), rows),
                  matrix = s->channels * s->outputs;
    return 4 * points * matrix > NNC_W_summed * q->cache ||
           (blocks > FEW_BLOCKS && blocks * TAPS * matrix > s->images * s->height * s->width *
                                                                (s->channels + s->outputs));
}

static void compare(
    const price *q, const sizes *s, int points, int64_t images, int64_t rows, way *best)
{
    const int tile = points == 36 ? 4 : 2;
    const int64_t bytes =
        4 * points * images * rows * nnc_ceildiv(s->width, tile) * (s->channels + s->outputs);
    const double ns = blocks_ns(q, s, points, images, rows);
    if ((images * rows > 1 && bytes > (s->gradient ? NNC_W_summed : NNC_W_near) * q->cache) ||
        (s->gradient && is_large(q, s, points, images, rows)))
        return;
    if (best->points == 0 || ns < best->ns)
        *best = (way){points, images, rows, ns};
}

/* The fastest way by Winograd's algorithm; direct_ns: the direct sums' time. */
static way fastest(const nnc_target *t, const nnc_ask *a, const sizes *s, int64_t direct_ns)
{
    enum { MOST_IMAGES = 64 };
    const int64_t threads = nnc_max64(t->threads < t->cores ? t->threads : t->cores, 1),
                  lanes = nnc_max64(t->vector_bits / 32, 1);
    const double flops = (double)a->flops + NNC_F_block * (double)a->results;
    const price q = {.rate = flops / (double)nnc_max64(direct_ns * threads, 1),
        .point_ns = NNC_W_point_ps / 1000. / (double)lanes,
        .threads = threads,
        .lanes = lanes,
        .strip = nnc_target_registers(t) > 16 ? 14 : 6,
        .cache = nnc_target_local_bytes(t)};
    way best = {0};
    for (int points = 16; points <= 36; points += 20) {
        const int64_t rows = nnc_ceildiv(s->height, points == 36 ? 4 : 2);
        int64_t r = 1, blocks; /* of r rows, as even as possible */
        do {
            compare(&q, s, points, 1, r, &best);
            blocks = nnc_ceildiv(rows, r);
            r = nnc_ceildiv(rows, nnc_max64(blocks - 1, 1));
        } while (blocks > 1);
        for (int64_t n = 2; n <= s->images && n <= MOST_IMAGES; n++)
            if (s->images % n == 0)
                compare(&q, s, points, n, rows, &best);
    }
    if (a->dynamic && !s->gradient) /* its weights are transformed at each run */
        best.ns += (double)best.points * (double)s->channels * (double)s->outputs *
                   NNC_W_weight_ps / 1000 / (double)threads;
    return best;
}

/* ---- rewriting ------------------------------------------------------------------------------------------------------- */

/* Weights w [K,C,3,3], or [C,K,3,3] of a transposed convolution, transformed: [points, K/k, C, k]. */
static nnc_ref transformed(pass *p, nnc_ref w, int points, int64_t panel, bool back)
{
    enum { TAPS = NNC_WINOGRAD_TAPS * NNC_WINOGRAD_TAPS };
    float m[TAPS * NNC_WINOGRAD_SIDE * NNC_WINOGRAD_SIDE];
    nnc_winograd of;
    const nnc_type k = *nnc_typeof(p->g, w);
    (void)nnc_winograd_of(points, &of);
    for (int j = 0; j < points; j++)
        for (int i = 0; i < TAPS; i++)
            m[j * TAPS + (back ? TAPS - 1 - i : i)] =
                (float)(of.weight[j / of.side][i / NNC_WINOGRAD_TAPS] *
                        of.weight[j % of.side][i % NNC_WINOGRAD_TAPS]);
    const nnc_type t = nnc_type_make(DT_f32, 2, (int64_t[]){points, TAPS});
    const int64_t split[2][4] = {{k.dim[0] / panel, panel, k.dim[1], TAPS},
        {k.dim[0], k.dim[1] / panel, panel, TAPS}},
                  perm[2][4] = {{3, 0, 2, 1}, {3, 1, 0, 2}},
                  all[] = {points, k.dim[back] / panel, k.dim[!back], panel};
    const nnc_ref taps = nnc_transpose(p->g, nnc_reshape(p->g, w, 4, split[back]), perm[back]);
    const nnc_ref in[2] = {nnc_constant(p->g, &t, m),
        nnc_reshape(p->g, taps, 2, (int64_t[]){TAPS, k.dim[0] * k.dim[1]})};
    return nnc_reshape(p->g, nnc_build(p->g, OP_matmul, 2, in, 0, NULL), 4, all);
}

/* Rebuilds convolution c with transformed weights; its other operands are at `in`. */
static nnc_ref convolution(
    nnc_graph *body, const nnc_type *result, const nnc_node *c, const nnc_ref *in, const way *best)
{
    const nnc_type y = nnc_type_dense(result);
    const int64_t *pads;
    const bool back = c->op == OP_conv_transpose, any = nnc_attr_ints(c, AT_pads, &pads) > 0;
    int64_t of[4];
    for (int i = 0; i < 4; i++)
        of[i] = back ? NNC_WINOGRAD_TAPS - 1 - (any ? pads[i] : 0) : any ? pads[i] : 0;
    const nnc_attr at[] = {
        nnc_av(AT_pads, 4, of), nnc_av(AT_block, 2, ((int64_t[]){best->images, best->rows}))};
    nnc_ref v = nnc_build_typed(body, OP_winograd, 2, in, NNC_COUNT(at), at, &y);
    if (c->n_in < 3)
        return v;
    const nnc_ref sum[2] = {v, nnc_reshape(body, in[2], 3, (int64_t[]){y.dim[1], 1, 1})};
    return nnc_build_typed(body, OP_add, 2, sum, 0, NULL, &y);
}

typedef struct change {
    const nnc_node *c; /* the convolution */
    const way *best;
} change;

/* A member, with transformed weights if it is the convolution. */
static nnc_ref changed(
    void *ctx, nnc_graph *body, const nnc_graph *from, const nnc_node *m, const nnc_ref *in)
{
    const change *x = ctx;
    if (!m)
        return *in;
    return m->out == x->c->out ? convolution(body, nnc_typeof(from, m->out), m, in, x->best)
                               : nnc_copy_node(body, from, m, in);
}

/* Why the body is no kernel, or NULL; "": out of memory. */
static const char *not_kernel(pass *p, const nnc_graph *body)
{
    uint32_t *node = ARENA_NEW(p->a, uint32_t, body->n_node + 1);
    const char *why = "";
    int n = 0;
    for (uint32_t i = 0; node && i < body->n_node; i++)
        if (nnc_op_class((nnc_op)body->node[i].op) != CL_leaf)
            node[n++] = i;
    if (!node ||
        nnc_kernel_possible(body, node, n, body->output, (int)body->n_output, -1, 0, p->a, &why))
        return node ? NULL : "";
    return why ? why : "";
}

/* Takes a max pooling into the kernel of convolution v, if nothing else reads its result. */
static void take_pool(pass *p, nnc_ref v)
{
    const nnc_node *pool = edit_only_user(p, v);
    if (!pool || edit_is_output(p, v) || pool->op != OP_maxpool || !nnc_halves(p->g, pool) ||
        !channels_last(nnc_typeof(p->g, pool->out)) ||
        placed_apart(&p->g->node[p->g->value[v].node], pool))
        return;
    const uint32_t two[] = {p->g->value[v].node, node_index(p, pool)};
    const nnc_ref out = pool->out;
    layers l = layers_of(p, two[0], two[1]);
    const nnc_ref r = region_build(p, two, 2, &out, 1);
    const char *why = r == NNC_NONE ? "" : not_kernel(p, nnc_def(p->g, r)->body);
    if (why && *why)
        remark_declined(p, &l, "maxpool into winograd", "%s", why);
    if (why)
        return;
    edit_replace(p, out, r);
    remark_applied(p, &l, "maxpool into winograd",
        "a tile has all results of its windows, of which only the largest are stored");
}

static void rewrite(
    pass *p, uint32_t i, const nnc_node *c, int weights, const way *best, const char *times)
{
    nnc_node n = p->g->node[i];
    const bool back = c->op == OP_conv_transpose;
    const nnc_type *w = nnc_typeof(p->g, n.in[weights]);
    const int64_t outputs = w->dim[back], channels = w->dim[!back],
                  panel = panel_of(target_of(p, &n), DT_f32, outputs), k = panel ? panel : outputs;
    const nnc_type u =
        nnc_type_make(DT_f32, 4, (int64_t[]){best->points, outputs / k, channels, k});
    nnc_ref *in = PASS_NEW(p, nnc_ref, n.n_in);
    layers l = layers_of(p, i, NNC_NONE);
    nnc_graph *body = nnc_graph_create("body", p->sink);
    const char *why = "";
    if (body && in && region_copy(p, body, &n, weights, &u, changed, &(change){c, best}))
        why = not_kernel(p, body);
    if (why) {
        if (!*why)
            p->status = body && body->status != NNC_OK ? body->status : nnc_nomem(p->sink);
        else
            decline_node(p, i, "Winograd's algorithm", "%s", why);
        nnc_graph_destroy(body);
        return;
    }
    memcpy(in, n.in, sizeof *in * (size_t)n.n_in);
    edit_at(p, i);
    in[weights] = transformed(p, n.in[weights], best->points, k, back);
    const nnc_ref r = nnc_fused(p->g, body, n.n_in, in);
    edit_sync(p);
    if (p->status != NNC_OK)
        return;
    for (int o = 0; o < n.n_out; o++)
        edit_replace(p, n.out + (nnc_ref)o, r + (nnc_ref)o);
    remark_applied(p, &l, "Winograd's algorithm", "%s", times);
    if (n.n_out == 1)
        take_pool(p, r);
}

/* Rewrites a gradient of weights as the sum of the blocks' gradients, in the weights' order. */
static void rewrite_gradient(pass *p, uint32_t i, const way *best, const char *times)
{
    const nnc_node n = p->g->node[i];
    const nnc_type w = *nnc_typeof(p->g, n.out);
    const int64_t *pads, none[4] = {0}, order[4] = {w.order[0], w.order[1], w.order[2], w.order[3]};
    layers l = layers_of(p, i, NNC_NONE);
    const nnc_attr at[] = {nnc_ai(AT_tile, best->points == 36 ? 4 : 2),
        nnc_av(AT_pads, 4, nnc_attr_ints(&n, AT_pads, &pads) ? pads : none),
        nnc_av(AT_block, 2, ((int64_t[]){best->images, best->rows}))};
    nnc_graph *body = nnc_graph_create("body", p->sink);
    edit_at(p, i);
    const nnc_ref blocks = nnc_build(p->g, OP_winograd_wgrad, 2, n.in, NNC_COUNT(at), at);
    if (!body || blocks == NNC_NONE) {
        nnc_graph_destroy(body);
        p->status = body ? p->g->status : nnc_nomem(p->sink);
        return;
    }
    const nnc_ref x = nnc_input(body, NULL, nnc_typeof(p->g, blocks)),
                  sum = nnc_reduce(body, OP_reduce_sum, x, 1, (int64_t[]){0}, false);
    nnc_ref all = nnc_transpose(body, sum, (int64_t[]){2, 3, 0, 1});
    if (!nnc_type_is_row_major(&w))
        all = nnc_build(body, OP_relayout, 1, &all, 1, (nnc_attr[]){nnc_av(AT_order, 4, order)});
    nnc_output(body, all, NULL);
    const nnc_ref r = nnc_fused(p->g, body, 1, &blocks);
    edit_sync(p);
    if (p->status != NNC_OK)
        return;
    edit_replace(p, n.out, r);
    remark_applied(p, &l, "Winograd's algorithm", "%s", times);
}

static void decide(pass *p, uint32_t i, const nnc_node *c, int weights)
{
    const nnc_node *n = &p->g->node[i];
    const nnc_graph *g = n->op == OP_fused ? n->body : p->g;
    const nnc_target *t = target_of(p, n);
    nnc_ask a;
    contraction_ask(p, n, &a);
    const nnc_offer direct = nnc_target_offer(t, &a);
    if (!direct.ok)
        return;
    const sizes s = sizes_of(g, c);
    const way best = fastest(t, &a, &s, direct.time_ns);
    if (best.points == 0) {
        decline_node(p, i, "Winograd's algorithm",
            "its sums, or the gradients of its blocks, would take too much memory");
        return;
    }
    const int64_t ns = (int64_t)best.ns;
    const int tile = best.points == 36 ? 4 : 2;
    const char *times = remark_text(p, "tiles of %dx%d results take %s by estimate, direct sums %s",
        tile, tile, text_us_beside(p, ns, direct.time_ns), text_us_beside(p, direct.time_ns, ns));
    if (ns >= direct.time_ns)
        decline_node(p, i, "Winograd's algorithm", "%s", times);
    else if (s.gradient)
        rewrite_gradient(p, i, &best, times);
    else
        rewrite(p, i, c, weights, &best, times);
}

nnc_status pass_winograd(pass *p)
{
    /* not if memory is short: transformed weights take four times the memory, and points a workspace */
    const uint32_t n = p->o->memory_price > NNC_MEMORY_PRICE ? 0 : p->g->n_node;
    for (uint32_t i = 0; i < n && p->status == NNC_OK; i++) {
        const nnc_node *c = &p->g->node[i];
        if (p->e.dead[i] || p->e.is_static[i] || !is_contraction(p, c))
            continue;
        const nnc_target *t = target_of(p, c);
        int weights;
        const nnc_node *core = contraction_in(c, 1, &weights);
        if (t->kind != NNC_T_cpu || nnc_target_interprets(t) || p->o->policy.math == MATH_exact ||
            !core || weights < 0 || (core->op == OP_conv_wgrad && core != c) ||
            !applies(c->op == OP_fused ? c->body : p->g, core,
                nnc_typeof(p->g, core->op == OP_conv_wgrad ? c->out : c->in[weights])))
            continue;
        decide(p, i, core, weights);
    }
    return p->status;
}
