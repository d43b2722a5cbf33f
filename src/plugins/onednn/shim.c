/* plugins/onednn/shim.c -- see shim.h. */
#include "plugins/onednn/shim.h"

/* A blocked format in numbers; of each array the entries that are in use. */
typedef struct form {
    int64_t type, rank, blocks, offset;
    const dnnl_dim_t *dim, *padded, *shift, *stride, *block, *blocked;
} form;

static bool hash_form(const form *f, nnc_hash128 *out)
{
    enum { MOST = DNNL_MAX_NDIMS };
    const dnnl_dim_t *const list[] = {f->dim, f->padded, f->shift, f->stride, f->block, f->blocked};
    int64_t all[4 + 6 * MOST] = {f->type, f->rank, f->blocks, f->offset};
    if (f->rank > MOST || f->blocks > MOST)
        return false;
    for (int l = 0; l < 6; l++)
        for (int64_t i = 0; i < (l < 4 ? f->rank : f->blocks); i++)
            all[4 + l * MOST + i] = list[l][i];
    *out = nnc_hash(all, sizeof all);
    return true;
}

#if DNNL_VERSION_MAJOR >= 3

static bool list_of(dn_ref m, dnnl_query_t what, const dnnl_dim_t **out)
{
    const dnnl_dims_t *dims = NULL;
    if (dnnl_memory_desc_query(m, what, &dims) != dnnl_success || !dims)
        return false;
    *out = *dims;
    return true;
}

bool dn_md_layout(dn_ref m, nnc_hash128 *out)
{
    dnnl_format_kind_t kind;
    dnnl_data_type_t type;
    int rank, blocks;
    form f = {0};
    if (dnnl_memory_desc_query(m, dnnl_query_format_kind, &kind) != dnnl_success ||
        kind != dnnl_blocked || dnnl_memory_desc_query(m, dnnl_query_data_type, &type) != 0 ||
        dnnl_memory_desc_query(m, dnnl_query_ndims_s32, &rank) != dnnl_success ||
        dnnl_memory_desc_query(m, dnnl_query_inner_nblks_s32, &blocks) != dnnl_success ||
        dnnl_memory_desc_query(m, dnnl_query_submemory_offset_s64, &f.offset) != dnnl_success)
        return false;
    f.type = type;
    f.rank = rank;
    f.blocks = blocks;
    return (type == dnnl_f32 || type == dnnl_bf16 || type == dnnl_f16) && /* no compensation */
           list_of(m, dnnl_query_dims, &f.dim) && list_of(m, dnnl_query_padded_dims, &f.padded) &&
           list_of(m, dnnl_query_padded_offsets, &f.shift) &&
           list_of(m, dnnl_query_strides, &f.stride) &&
           list_of(m, dnnl_query_inner_blks, &f.block) &&
           list_of(m, dnnl_query_inner_idxs, &f.blocked) && hash_form(&f, out);
}

dnnl_status_t dn_md_init(
    dn_md *m, int rank, const int64_t *dim, dnnl_data_type_t type, const int64_t *stride)
{
    dnnl_status_t s =
        stride ? dnnl_memory_desc_create_with_strides(&m->own, rank, dim, type, stride)
               : dnnl_memory_desc_create_with_tag(&m->own, rank, dim, type, dnnl_format_tag_any);
    m->set = s == dnnl_success;
    return s;
}

dnnl_status_t dn_md_copy(dn_md *m, dn_ref from)
{
    dnnl_status_t s = dnnl_memory_desc_clone(&m->own, from);
    m->set = s == dnnl_success;
    return s;
}

void dn_md_deinit(dn_md *m)
{
    if (m->set)
        dnnl_memory_desc_destroy(m->own);
    m->set = false;
}

dn_ref dn_md_ref(const dn_md *m)
{
    return m->set ? m->own : NULL;
}

dnnl_status_t dn_append_sum(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t dn_append_eltwise(dnnl_post_ops_t p, dnnl_alg_kind_t alg, float alpha, float beta)
{
    if (alg == dnnl_eltwise_hardswish) { /* 2.x has these built in */
        alpha = 1.0f / 6;
        beta = 0.5f;
    }
    return dnnl_post_ops_append_eltwise(p, alg, alpha, beta);
}

dnnl_status_t dn_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t e, bool transposed, dn_ref src,
    dn_ref wei, dn_ref bias, dn_ref dst, const dn_window *w, const_dnnl_primitive_attr_t attr)
{
    if (transposed)
        return dnnl_deconvolution_forward_primitive_desc_create(pd, e, dnnl_forward_inference,
            dnnl_deconvolution_direct, src, wei, bias, dst, w->stride, w->dilation, w->pad_lo,
            w->pad_hi, attr);
    return dnnl_convolution_forward_primitive_desc_create(pd, e, dnnl_forward_inference,
        dnnl_convolution_direct, src, wei, bias, dst, w->stride, w->dilation, w->pad_lo, w->pad_hi,
        attr);
}

dnnl_status_t dn_conv_wgrad(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dn_ref src, dn_ref wei,
    dn_ref dst, const dn_window *w, dnnl_alg_kind_t alg, const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t hint;
    dnnl_status_t s =
        dnnl_convolution_forward_primitive_desc_create(&hint, e, dnnl_forward_training, alg, src,
            wei, NULL, dst, w->stride, w->dilation, w->pad_lo, w->pad_hi, attr);
    if (s != dnnl_success)
        return s;
    s = dnnl_convolution_backward_weights_primitive_desc_create(
        pd, e, alg, src, wei, NULL, dst, w->stride, w->dilation, w->pad_lo, w->pad_hi, hint, attr);
    dnnl_primitive_desc_destroy(hint);
    return s;
}

dnnl_status_t dn_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dn_ref src, dn_ref wei,
    dn_ref bias, dn_ref dst, const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, e, src, wei, bias, dst, attr);
}

dnnl_status_t dn_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_alg_kind_t alg, dn_ref src,
    dn_ref dst, const dn_window *w, const_dnnl_primitive_attr_t attr)
{
    return dnnl_pooling_forward_primitive_desc_create(pd, e, dnnl_forward_inference, alg, src, dst,
        w->stride, w->kernel, w->dilation, w->pad_lo, w->pad_hi, attr);
}

#else

bool dn_md_layout(dn_ref m, nnc_hash128 *out)
{
    const dnnl_blocking_desc_t *b = &m->format_desc.blocking;
    if (m->format_kind != dnnl_blocked || m->extra.flags != dnnl_memory_extra_flag_none)
        return false;
    const form f = {m->data_type, m->ndims, b->inner_nblks, m->offset0, m->dims, m->padded_dims,
        m->padded_offsets, b->strides, b->inner_blks, b->inner_idxs};
    return hash_form(&f, out);
}
/* 2.x */

dnnl_status_t dn_md_init(
    dn_md *m, int rank, const int64_t *dim, dnnl_data_type_t type, const int64_t *stride)
{
    dnnl_status_t s =
        stride ? dnnl_memory_desc_init_by_strides(&m->own, rank, dim, type, stride)
               : dnnl_memory_desc_init_by_tag(&m->own, rank, dim, type, dnnl_format_tag_any);
    m->set = s == dnnl_success;
    return s;
}

dnnl_status_t dn_md_copy(dn_md *m, dn_ref from)
{
    m->own = *from;
    m->set = true;
    return dnnl_success;
}

void dn_md_deinit(dn_md *m)
{
    m->set = false;
}

dn_ref dn_md_ref(const dn_md *m)
{
    return m->set ? &m->own : NULL;
}

dnnl_status_t dn_append_sum(dnnl_post_ops_t p)
{
    return dnnl_post_ops_append_sum(p, 1.0f);
}

dnnl_status_t dn_append_eltwise(dnnl_post_ops_t p, dnnl_alg_kind_t alg, float alpha, float beta)
{
    return dnnl_post_ops_append_eltwise(p, 1.0f, alg, alpha, beta);
}

dnnl_status_t dn_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t e, bool transposed, dn_ref src,
    dn_ref wei, dn_ref bias, dn_ref dst, const dn_window *w, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t d; /* deconvolution's type is the same */
    dnnl_status_t s = transposed ? dnnl_dilated_deconvolution_forward_desc_init(&d,
                                       dnnl_forward_inference, dnnl_deconvolution_direct, src, wei,
                                       bias, dst, w->stride, w->dilation, w->pad_lo, w->pad_hi)
                                 : dnnl_dilated_convolution_forward_desc_init(&d,
                                       dnnl_forward_inference, dnnl_convolution_direct, src, wei,
                                       bias, dst, w->stride, w->dilation, w->pad_lo, w->pad_hi);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, e, NULL) : s;
}

dnnl_status_t dn_conv_wgrad(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dn_ref src, dn_ref wei,
    dn_ref dst, const dn_window *w, dnnl_alg_kind_t alg, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t hint;
    dnnl_status_t s = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, alg,
        src, wei, NULL, dst, w->stride, w->dilation, w->pad_lo, w->pad_hi);
    if (s != dnnl_success || (s = dnnl_primitive_desc_create(&hint, &d, attr, e, NULL)) != 0)
        return s;
    s = dnnl_dilated_convolution_backward_weights_desc_init(
        &d, alg, src, wei, NULL, dst, w->stride, w->dilation, w->pad_lo, w->pad_hi);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_create(pd, &d, attr, e, hint);
    dnnl_primitive_desc_destroy(hint);
    return s;
}

dnnl_status_t dn_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dn_ref src, dn_ref wei,
    dn_ref bias, dn_ref dst, const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, src, wei, bias, dst);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, e, NULL) : s;
}

dnnl_status_t dn_pool(dnnl_primitive_desc_t *pd, dnnl_engine_t e, dnnl_alg_kind_t alg, dn_ref src,
    dn_ref dst, const dn_window *w, const_dnnl_primitive_attr_t attr)
{
    dnnl_pooling_v2_desc_t d;
    dnnl_status_t s = dnnl_pooling_v2_forward_desc_init(&d, dnnl_forward_inference, alg, src, dst,
        w->stride, w->kernel, w->dilation, w->pad_lo, w->pad_hi);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, e, NULL) : s;
}

#endif
