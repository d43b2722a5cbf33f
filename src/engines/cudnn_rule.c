/* engines/cudnn_rule.c -- which calls the engine "cudnn" supports, and their workspace, by rules that depend on the call and the target
 * alone. No library is asked, so that a plan is the same on every machine; tests/cudnn/rules.c compares the rules with cuDNN. */
#include "engines/cudnn.h"
#include "target/target.h"

int64_t cudnn_zero_bytes(const nnc_call *c)
{
    return cudnn_adds_zeros(c) ? c->dst.dim[1] * nnc_dtype_size(c->dst.dtype) : 0;
}

/* ---- workspace ---------------------------------------------------------------------------------------------------- */

enum { VECTOR = 8 };

/* Bytes of a copy whose channels are padded to whole vectors; 0: they are whole vectors already. */
static int64_t padded(const nnc_type *t)
{
    const int64_t c = t->dim[1], up = nnc_align_up(c, VECTOR);
    return up == c ? 0 : nnc_mul_sat(nnc_type_bytes(t) / (c ? c : 1), up);
}

/* Enough for the engine that cuDNN would select without a limit, for nearly all convolutions of models/ (forward and both gradients).
 *
 *   always                                                         4 MiB  indices, partial sums
 *   f32 with a window, not the weights' gradient       3 x the weights    Winograd's 3x3 filters become 5x5, others are copied
 *   tf32 on sm_80 to sm_89          source, result and 3 x the weights    its engines are row-major: all are copied
 *   weights' gradient in 16 bits or tf32                          32 MiB  partial sums of a split product
 *   16 bits or tf32, channels no multiple of 8    the tensor, padded to 8 (the weights' gradient in tf32: both tensors)
 *   16 bits or tf32, row-major or in groups           source and result   copied to channels last, or group by group
 */
static int64_t workspace(const nnc_call *c)
{
    const bool wgrad = c->kind == CALL_conv_wgrad, half = c->src.dtype != DT_f32;
    const int sm = c->env->target->sm;
    const nnc_type *other = wgrad ? &c->wei : &c->dst, *filter = wgrad ? &c->dst : &c->wei;
    const bool copies = c->tf32 && sm >= 80 && sm<90, grouped = c->groups> 1 && filter->dim[1] > 1,
               planes = nnc_type_orders_differ(&c->src) && nnc_type_is_row_major(&c->src);
    int64_t n = INT64_C(4) << 20, taps = 1;
    for (int d = 0; d < c->spatial; d++)
        taps *= c->kernel[d];
    if (copies || (!half && !wgrad && taps > 1))
        n = nnc_add_sat(n, nnc_mul_sat(3, nnc_type_bytes(filter)));
    if (wgrad && (half || c->tf32))
        n = nnc_add_sat(n, INT64_C(32) << 20);
    if (copies || ((half || c->tf32) && (planes || grouped)))
        n = nnc_add_sat(n, nnc_add_sat(nnc_type_bytes(&c->src), nnc_type_bytes(other)));
    if (half || c->tf32) {
        const bool both = wgrad && c->tf32 && padded(&c->src) && !padded(other);
        n = nnc_add_sat(n, padded(&c->src));
        n = nnc_add_sat(n, both ? nnc_type_bytes(other) : padded(other));
    }
    return n;
}

/* ---- choose ------------------------------------------------------------------------------------------------------- */

nnc_status cudnn_choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    static _Thread_local char reason[160]; /* copied by the plan */
    (void)sink;
    *out = (nnc_choice){.reason = "cuDNN needs an NVIDIA GPU"};
    const nnc_target *t = c->env ? c->env->target : NULL;
    if (!t || t->kind != NNC_T_cuda || !cudnn_supports(c, &out->reason))
        return NNC_OK;
    const nnc_dtype d = c->src.dtype;
    const bool half = d != DT_f32, cores = half ? t->flops_f16 > 0 : c->tf32;
    out->reason = reason;
    if (!nnc_target_contracts(t, d)) {
        snprintf(reason, sizeof reason, "cuDNN does not support %s convolutions on sm_%d",
            nnc_dtype_name(d), t->sm);
        return NNC_OK;
    }
    snprintf(reason, sizeof reason,
        "cudnn %s by rule%s%s%s; its engine is selected when the plan is loaded", t->cudnn,
        cores ? ", tensor cores" : "", half || cores ? "" : ", strict f32",
        c->tf32 ? ", tf32 allowed" : "");
    const int64_t bytes = workspace(c), zeros = cudnn_zero_bytes(c);
    out->ok = true;
    out->workspace_bytes = zeros ? nnc_align_up(bytes, CUDNN_ALIGN) + zeros : bytes;
    return NNC_OK;
}
