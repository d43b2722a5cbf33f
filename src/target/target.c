/* target/target.c -- questions about a target: types, sizes, the cache key. */
#include "target/internal.h"

void nnc_target_deinit(nnc_target *t)
{
    nnc_arena_deinit(&t->arena);
    *t = (nnc_target){0};
}

bool nnc_target_contracts(const nnc_target *t, nnc_dtype d)
{
    return d != DT_bf16 || t->kind != NNC_T_cuda || t->sm >= 80;
}

/* From cuDNN 9.19's workspaces (tests/cudnn/support.txt): bf16 is padded to 8 channels, or uses slow engines. f16 has engines for any
 * number of channels in windows up to 5x5; in larger ones it is padded to 4. */
int64_t nnc_target_channel_step(const nnc_target *t, nnc_dtype d, int64_t window)
{
    if (t->kind != NNC_T_cuda || (d != DT_f16 && d != DT_bf16))
        return 1;
    return d == DT_bf16 ? 8 : window > 25 ? 4 : 1;
}

int64_t nnc_target_local_bytes(const nnc_target *t)
{
    return (t && t->l2_bytes > 0 ? t->l2_bytes : (int64_t)1 << 20) / 2;
}

/* Engine rows and speeds affect the choice of kernels but not their code. They are left out, so that a calibrated machine file keeps
 * its cache. For this machine without a limit (NNC_CPU), its signature is hashed, too, since caches may be shared between machines. */
nnc_hash128 nnc_target_hash(const nnc_target *t)
{
    NNC_LOCAL(nnc_text) x = {0};
    nnc_printf(&x, "kind=%d cpu=%s features=%s bits=%d fma=%d f16c=%d bf16=%d", t->kind,
        t->cpu ? t->cpu : "", t->features ? t->features : "", t->vector_bits, t->fma, t->f16c,
        t->avx512_bf16);
    if (nnc_target_core(t->core)) /* LLVM orders instructions for it */
        nnc_printf(&x, " core=%s", t->core);
    nnc_printf(&x, " threads=%d l1=%lld l2=%lld l3=%lld", t->threads, (long long)t->l1_bytes,
        (long long)t->l2_bytes, (long long)t->l3_bytes);
    if (t->kind == NNC_T_cuda)
        nnc_printf(&x, " sm=%d sms=%d sm_threads=%d shared=%lld", t->sm, t->sms, t->sm_threads,
            (long long)t->shared_bytes);
    if (t->host && !(t->cpu && *t->cpu))
        target_host_signature(&x);
    nnc_hash128 h = nnc_hash(nnc_text_str(&x), x.n);
    if (x.oom) /* out of memory: a key that matches nothing */
        h = (nnc_hash128){(uint64_t)nnc_now_ns(), ~(uint64_t)0};
    return h;
}
