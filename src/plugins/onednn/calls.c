/* plugins/onednn/calls.c -- translates nnc_call to oneDNN descriptors (shapes, memory orders as strides, windows, post-operations) and
 * decides whether oneDNN has a fast implementation.
 *
 * Declined, with the reason: reference implementations (100 to 500 times slower than nnc's own loops), integers (nnc's wrap, oneDNN's
 * saturate), max pooling (oneDNN's drops NaN, nnc keeps it), averages whose last window is clipped. */
#include "plugins/onednn/calls.h"
#include "plugins/onednn/tail.h"
#include <pthread.h>
#include <string.h>

static dnnl_engine_t the_engine;

static void start(void)
{
    if (dnnl_engine_create(&the_engine, dnnl_cpu, 0) != dnnl_success)
        the_engine = NULL;
}

dnnl_engine_t dn_engine(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    return the_engine;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool data_type(uint8_t d, dnnl_data_type_t *out)
{
    switch ((nnc_dtype)d) {
    case DT_f32: *out = dnnl_f32; return true;
    case DT_bf16: *out = dnnl_bf16; return true;
    case DT_f16: *out = dnnl_f16; return true;
    default: return false;
    }
}

static bool describe_type(dn_md *m, const nnc_type *t)
{
    dnnl_data_type_t d;
    int64_t stride[NNC_MAX_RANK];
    nnc_type_strides(t, stride);
    return data_type(t->dtype, &d) && dn_md_init(m, t->rank, t->dim, d, stride) == dnnl_success;
}

/* Convolution weights: (groups,) O, I, spatial, in any memory order. */
static bool describe_weights(
    dn_md *as_is, dn_md *asked, const nnc_call *c, const nnc_type *wei, dn_form form)
{
    const bool t = c->kind == CALL_conv_transpose;
    int64_t s[NNC_MAX_RANK], dim[NNC_MAX_RANK], stride[NNC_MAX_RANK];
    dnnl_data_type_t d;
    if (!data_type(wei->dtype, &d))
        return false;
    nnc_type_strides(wei, s);
    int r = 0, o = t ? 1 : 0, i = t ? 0 : 1;
    int64_t per_group = wei->dim[0] / c->groups; /* of the leading dimension */
    if (c->groups > 1) {
        dim[r] = c->groups;
        stride[r++] = s[0] * per_group;
    }
    dim[r] = t ? wei->dim[1] : per_group;
    stride[r++] = s[o];
    dim[r] = t ? per_group : wei->dim[1];
    stride[r++] = s[i];
    for (int k = 0; k < c->spatial; k++) {
        dim[r] = wei->dim[2 + k];
        stride[r++] = s[2 + k];
    }
    return dn_md_init(as_is, r, dim, d, stride) == dnnl_success &&
           (form.like ? dn_md_copy(asked, form.like)
                      : dn_md_init(asked, r, dim, d, form.any ? NULL : stride)) == dnnl_success;
}

/* ---- attributes --------------------------------------------------------------------------------------------------- */

/* oneDNN's relu and clip turn NaN into their lower bound (2.6 and 3.2, seen on x86-64): a maximum whose second operand is the bound.
 * Its other functions keep NaN. */
int dn_tail_first(const nnc_call *c)
{
    int i = 0;
    while (i < c->n_post && c->post[i].kind != PO_relu && c->post[i].kind != PO_clip)
        i++;
    return i;
}

static dnnl_status_t append_post(dnnl_post_ops_t ops, const nnc_post *p)
{
    static const dnnl_alg_kind_t alg[] = {
#define POST(name, op, formula, onednn, cudnn) [PO_##name] = onednn,
#include "base/post.def"
    };
    if (p->kind == PO_sum)
        return dn_append_sum(ops);
    bool bounds = p->kind == PO_clip || p->kind == PO_leaky;
    float alpha = bounds ? p->alpha : p->kind == PO_silu; /* swish is x sigmoid(alpha x) */
    return dn_append_eltwise(ops, alg[p->kind], alpha, bounds ? p->beta : 0);
}

static dnnl_primitive_attr_t attributes(const nnc_call *c, int n_post)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    bool ok =
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
    if (ok && n_post && dnnl_post_ops_create(&ops) == dnnl_success) {
        for (int i = 0; i < n_post && ok; i++)
            ok = append_post(ops, &c->post[i]) == dnnl_success;
        ok = ok && dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success;
        dnnl_post_ops_destroy(ops);
    }
    if (!ok) {
        dnnl_primitive_attr_destroy(attr);
        return NULL;
    }
    return attr;
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

/* oneDNN needs padding that gives exactly dst's extents; nnc's high padding may be larger, or smaller (ceil mode, output padding). */
static void fill_window(dn_window *w, const nnc_call *c)
{
    for (int d = 0; d < c->spatial; d++) {
        const nnc_type *y = c->kind == CALL_conv_wgrad ? &c->wei : &c->dst;
        int64_t in = c->src.dim[2 + d], out = y->dim[2 + d];
        int64_t reach = (c->kernel[d] - 1) * c->dilation[d] + 1;
        w->kernel[d] = c->kernel[d];
        w->stride[d] = c->stride[d];
        w->dilation[d] = c->dilation[d] - 1;
        w->pad_lo[d] = c->pad_lo[d];
        w->pad_hi[d] = c->kind == CALL_conv_transpose
                           ? (in - 1) * c->stride[d] + reach - out - c->pad_lo[d]
                           : (out - 1) * c->stride[d] + reach - in - c->pad_lo[d];
    }
}

static void describe_conv(
    dn_call *d, const nnc_call *c, dn_form form, const_dnnl_primitive_attr_t attr)
{
    dn_md src = {0}, wei = {0}, bias = {0}, dst = {0};
    dn_window w;
    d->why = "oneDNN does not support the element type";
    fill_window(&w, c);
    if (describe_type(&src, &c->src) && describe_type(&dst, &c->dst) &&
        describe_weights(&d->wei, &wei, c, &c->wei, form) &&
        (!c->has_bias || describe_type(&bias, &c->bias))) {
        d->why = "oneDNN has no implementation";
        dn_conv(&d->pd, dn_engine(), c->kind == CALL_conv_transpose, dn_md_ref(&src),
            dn_md_ref(&wei), dn_md_ref(&bias), dn_md_ref(&dst), &w, attr);
    }
    dn_md_deinit(&src);
    dn_md_deinit(&wei);
    dn_md_deinit(&bias);
    dn_md_deinit(&dst);
}

/* True for a 3x3 convolution whose weights' gradient oneDNN 2.x computes faster by Winograd's algorithm, with copies of both operands:
 * many places, many channels (AMD, Zen 4, one thread, GFLOP/s direct / Winograd: 64-224-64 81 / 167, 128-112-128 66 / 223, 256-56-256
 * 72 / 225, 512-28-512 73 / 168, 512-14-512 90 / 81; 128-14-128, 4 images, 108 / 120). */
static bool by_winograd(const nnc_call *c)
{
    enum { LEAST_PLACES = 1024, LEAST_CHANNELS = 64 };
    const nnc_type *x = &c->src, *dy = &c->wei;
    bool ok = !c->exact && c->spatial == 2 && c->groups == 1 && x->dtype == DT_f32 &&
              x->dim[1] >= LEAST_CHANNELS && dy->dim[1] >= LEAST_CHANNELS &&
              nnc_type_numel(dy) / dy->dim[1] >= LEAST_PLACES;
    for (int d = 0; d < c->spatial && ok; d++)
        ok = c->kernel[d] == 3 && c->stride[d] == 1 && c->dilation[d] == 1;
    return ok;
}

/* Memory of a copy of t, in the order that the implementation chooses. */
static bool describe_copy(dn_md *m, const nnc_type *t)
{
    dnnl_data_type_t d;
    return data_type(t->dtype, &d) && dn_md_init(m, t->rank, t->dim, d, NULL) == dnnl_success;
}

static void describe_wgrad(dn_call *d, const nnc_call *c, const_dnnl_primitive_attr_t attr)
{
    dn_md x = {0}, dy = {0}, dw = {0};
    dn_window w;
    d->why = "oneDNN does not support the element type";
    fill_window(&w, c);
    if (describe_type(&d->src, &c->src) && describe_type(&d->dst, &c->wei) &&
        describe_weights(&d->wei, &dw, c, &c->dst, (dn_form){.any = true}) &&
        describe_copy(&x, &c->src) && describe_copy(&dy, &c->wei)) {
        d->why = "oneDNN has no implementation";
        if (by_winograd(c) && dn_conv_wgrad(&d->pd, dn_engine(), dn_md_ref(&x), dn_md_ref(&dw),
                                  dn_md_ref(&dy), &w, dnnl_convolution_winograd, attr) != 0)
            d->pd = NULL;
        if (!d->pd)
            dn_conv_wgrad(&d->pd, dn_engine(), dn_md_ref(&d->src), dn_md_ref(&dw),
                dn_md_ref(&d->dst), &w, dnnl_convolution_direct, attr);
    }
    dn_md_deinit(&x);
    dn_md_deinit(&dy);
    dn_md_deinit(&dw);
}

/* Describes an operand with the given rank; transposed ones have their last two dimensions swapped. */
static bool describe_operand(dn_md *m, const nnc_type *t, bool swap, int rank, dn_form form)
{
    int64_t s[NNC_MAX_RANK], dim[NNC_MAX_RANK], stride[NNC_MAX_RANK];
    dnnl_data_type_t d;
    if (!data_type(t->dtype, &d) || t->rank > rank)
        return false;
    nnc_type_strides(t, s);
    if (form.like)
        return dn_md_copy(m, form.like) == dnnl_success;
    int lead = rank - t->rank;
    for (int i = 0; i < rank; i++) {
        int from = i - lead;
        if (swap && i >= rank - 2)
            from = i == rank - 1 ? t->rank - 2 : t->rank - 1;
        dim[i] = from < 0 ? 1 : t->dim[from];
        stride[i] = from < 0 ? nnc_type_numel(t) : s[from];
    }
    return dn_md_init(m, rank, dim, d, form.any ? NULL : stride) == dnnl_success;
}

/* Merges the leading dimensions of [.., m, k] into m. */
static void join_rows(nnc_type *t)
{
    int64_t k = t->dim[t->rank - 1], dim[2] = {nnc_type_numel(t) / k, k};
    *t = nnc_type_make((nnc_dtype)t->dtype, 2, dim);
}

static void describe_matmul(
    dn_call *d, const nnc_call *c, dn_form form, const_dnnl_primitive_attr_t attr)
{
    const dn_form as_is = {0};
    dn_md src = {0}, wei = {0}, bias = {0}, dst = {0};
    nnc_type a = c->src, y = c->dst;
    if (c->wei.rank == 2 && a.rank > 2 && a.rank == y.rank && !c->trans_a &&
        nnc_type_is_row_major(&a) && nnc_type_is_row_major(&y)) {
        join_rows(&a);
        join_rows(&y);
    }
    const int rank = y.rank;
    int64_t bdim[NNC_MAX_RANK];
    for (int i = 0; i < rank; i++)
        bdim[i] = i == rank - 1 ? y.dim[rank - 1] : 1;
    nnc_type b = nnc_type_make((nnc_dtype)c->bias.dtype, rank, bdim);
    d->why = "oneDNN does not support the element type";
    if (describe_operand(&src, &a, c->trans_a, rank, as_is) && describe_type(&dst, &y) &&
        describe_operand(&d->wei, &c->wei, c->trans_b, rank, as_is) &&
        describe_operand(&wei, &c->wei, c->trans_b, rank, form) &&
        (!c->has_bias || describe_type(&bias, &b))) {
        d->why = "oneDNN has no implementation";
        dn_matmul(&d->pd, dn_engine(), dn_md_ref(&src), dn_md_ref(&wei), dn_md_ref(&bias),
            dn_md_ref(&dst), attr);
    }
    dn_md_deinit(&src);
    dn_md_deinit(&wei);
    dn_md_deinit(&bias);
    dn_md_deinit(&dst);
}

static void describe_pool(dn_call *d, const nnc_call *c, const_dnnl_primitive_attr_t attr)
{
    dn_md src = {0}, dst = {0};
    dn_window w;
    d->why = "oneDNN's max pooling drops NaN";
    if (c->kind == CALL_maxpool)
        return;
    fill_window(&w, c);
    d->why = "oneDNN averages over the whole last window, which is clipped here";
    for (int i = 0; i < c->spatial; i++)
        if (c->count_pad && w.pad_hi[i] > c->pad_hi[i])
            return;
    d->why = "oneDNN does not support the element type";
    dnnl_alg_kind_t alg =
        c->count_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
    if (describe_type(&src, &c->src) && describe_type(&dst, &c->dst)) {
        d->why = "oneDNN has no implementation";
        dn_pool(&d->pd, dn_engine(), alg, dn_md_ref(&src), dn_md_ref(&dst), &w, attr);
    }
    dn_md_deinit(&src);
    dn_md_deinit(&dst);
}

/* oneDNN 3.7.2's convolutions by brgemm read uninitialised memory when there is a single result column with a stride along it: in f32
 * with one input channel (of a group), in bf16 with any number. Of 31,340 small convolutions in f32 compared with plain loops, exactly the
 * 44 with all three properties were wrong; of 3000 calls drawn in f32 and bf16, the 5 in bf16. */
static bool known_wrong(const nnc_call *c, const char *impl)
{
    if (DNNL_VERSION_MAJOR < 3 || c->kind != CALL_conv || !strstr(impl, "brg"))
        return false;
    return (c->wei.dim[1] == 1 || c->src.dtype != DT_f32) && c->dst.dim[c->dst.rank - 1] == 1 &&
           c->stride[c->spatial - 1] > 1;
}

/* Extent of a window along dimension d, dilation included. */
static int64_t reach_of(const nnc_call *c, int d)
{
    return (c->kernel[d] - 1) * c->dilation[d] + 1;
}

/* Do windows that begin before the source (`before` of them) and those that end after it (from number `behind` on) meet? */
static bool borders_meet(const nnc_call *c, int d)
{
    const int64_t room = c->src.dim[2 + d] + c->pad_lo[d] - reach_of(c, d),
                  before = nnc_ceildiv(c->pad_lo[d], c->stride[d]),
                  behind = room < 0 ? 0 : room / c->stride[d] + 1;
    return behind <= before && c->wei.dim[2 + d] > behind;
}

/* oneDNN 2.6.3 and 3.7.2 read memory that they have not written in gradients of weights: in f32 with three dimensions, where borders meet
 * in the first; in bf16 where the last dimension has a stride and is hardly longer than a window, and, in code without AMX, with three
 * dimensions and borders in the first two. All 759 that were wrong of 46,800 small ones drawn with 3.7.2 were such. */
static bool known_wrong_gradient(const nnc_call *c, const char *impl)
{
    const int last = c->spatial - 1;
    if (c->kind != CALL_conv_wgrad)
        return false;
    if (c->src.dtype != DT_bf16)
        return c->spatial == 3 && borders_meet(c, 0);
    return (c->stride[last] > 1 && c->src.dim[2 + last] <= reach_of(c, last) + 1) ||
           (c->spatial == 3 && !strstr(impl, "amx") &&
               c->pad_lo[0] + c->pad_hi[0] + c->pad_lo[1] + c->pad_hi[1] > 0);
}

static void refuse(dn_call *d, const char *why)
{
    dnnl_primitive_desc_destroy(d->pd);
    d->pd = NULL;
    d->impl = NULL;
    d->why = why;
}

/* Selects the first implementation that is not reference code: oneDNN lists them from fast to slow. */
static void judge(dn_call *d, const nnc_call *c)
{
    const char *name = NULL;
    if (!d->pd)
        return;
    if (dnnl_primitive_desc_query(d->pd, dnnl_query_impl_info_str, 0, (void *)&name) !=
            dnnl_success ||
        !name)
        name = "unnamed";
    d->impl = name;
    if (strstr(name, "ref"))
        refuse(d, "oneDNN has only its slow reference code");
    else if (known_wrong(c, name))
        refuse(d, "oneDNN 3 computes a single column wrongly");
    else if (known_wrong_gradient(c, name))
        refuse(d, "oneDNN reads uninitialised memory in gradients of weights of this shape");
}

static bool posts_ok(dn_call *d, const nnc_call *c)
{
    int sums = 0;
    for (int i = 0; i < c->n_post; i++)
        sums += c->post[i].kind == PO_sum;
    d->why = "oneDNN supports one sum only";
    if (sums > 1)
        return false;
    return true;
}

void dn_describe(dn_call *d, const nnc_call *c, int n_post, dn_form form)
{
    memset(d, 0, sizeof *d);
    d->why = "oneDNN supports extents below 2^31";
    if (!nnc_call_fits_32_bits(c))
        return;
    d->why = "oneDNN cannot be initialized";
    if (!dn_engine() || !posts_ok(d, c))
        return;
    dnnl_primitive_attr_t attr = attributes(c, n_post);
    d->why = "oneDNN does not support the post-operation";
    if (!attr)
        return;
    if (c->kind == CALL_conv || c->kind == CALL_conv_transpose)
        describe_conv(d, c, form, attr);
    else if (c->kind == CALL_conv_wgrad)
        describe_wgrad(d, c, attr);
    else if (c->kind == CALL_matmul)
        describe_matmul(d, c, form, attr);
    else
        describe_pool(d, c, attr);
    dnnl_primitive_attr_destroy(attr);
    judge(d, c);
    if (d->pd && d->wei.set && c->kind != CALL_conv_wgrad)
        d->reorders =
            !dnnl_memory_desc_equal(dn_md_ref(&d->wei), dn_query(d->pd, dnnl_query_weights_md));
}

void dn_call_deinit(dn_call *d)
{
    if (d->pd)
        dnnl_primitive_desc_destroy(d->pd);
    d->pd = NULL;
    dn_md_deinit(&d->wei);
    dn_md_deinit(&d->src);
    dn_md_deinit(&d->dst);
}
