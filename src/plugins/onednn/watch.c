/* plugins/onednn/watch.c -- see watch.h. */
#include "plugins/onednn/watch.h"
#include "plugins/onednn/calls.h"
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
enum { HAS_FLAGS = 1, INVALID = _MM_EXCEPT_INVALID };
static unsigned flags(void)
{
    return _mm_getcsr();
}

static void set_flags(unsigned f)
{
    _mm_setcsr(f);
}
#else
enum { HAS_FLAGS = 0, INVALID = 1 };
static unsigned flags(void)
{
    return INVALID; /* not supported: treat as raised */
}

static void set_flags(unsigned f)
{
    (void)f;
}
#endif

bool dn_flag_lower(void)
{
    const unsigned f = flags();
    set_flags(f & ~(unsigned)INVALID);
    return f & INVALID;
}

bool dn_flag_restore(bool before)
{
    const unsigned f = flags();
    if (before)
        set_flags(f | INVALID);
    return f & INVALID;
}

/* ---- self-test ---------------------------------------------------------------------------------------------------- */

static size_t weight_bytes(const_dnnl_primitive_desc_t pd)
{
    return dnnl_memory_desc_get_size(dn_query(pd, dnnl_query_weights_md));
}

static bool run_once(const_dnnl_primitive_desc_t pd, void *in, void *out, void *scratch)
{
    const dn_ref md[] = {dn_query(pd, dnnl_query_src_md), dn_query(pd, dnnl_query_weights_md),
        dn_query(pd, dnnl_query_dst_md), dn_query(pd, dnnl_query_scratchpad_md)};
    void *const at[] = {in, in, out, scratch};
    const int kind[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t arg[NNC_COUNT(kind)];
    dnnl_primitive_t prim = NULL;
    dnnl_stream_t stream = NULL;
    int n = 0, most = dn_scratch_bytes(pd) ? 4 : 3;
    for (; n < most; n++) {
        arg[n].arg = kind[n];
        if (dnnl_memory_create(&arg[n].memory, md[n], dn_engine(), at[n]) != dnnl_success)
            break;
    }
    bool ok = n == most && dnnl_primitive_create(&prim, pd) == dnnl_success &&
              dnnl_stream_create(&stream, dn_engine(), dnnl_stream_default_flags) == dnnl_success &&
              dnnl_primitive_execute(prim, stream, n, arg) == dnnl_success &&
              dnnl_stream_wait(stream) == dnnl_success;
    while (n > 0)
        dnnl_memory_destroy(arg[--n].memory);
    if (stream)
        dnnl_stream_destroy(stream);
    if (prim)
        dnnl_primitive_destroy(prim);
    return ok;
}

/* Weights of any form that the implementation likes, scratch memory, everything: NaN. */
static bool flag_rises(void)
{
    enum { SIDE = 8, CHANNELS = 16, IMAGES = 4, FLOATS = 1 << 15 };
    static _Alignas(64) float nan[FLOATS], out[FLOATS], scratch[FLOATS];
    nnc_call c = {.kind = CALL_conv, .spatial = 2, .groups = 1, .n_post = 1, .threads = 1};
    c.src = c.dst = nnc_type_make(DT_f32, 4, (int64_t[]){IMAGES, CHANNELS, SIDE, SIDE});
    c.wei = nnc_type_make(DT_f32, 4, (int64_t[]){CHANNELS, CHANNELS, 1, 1});
    nnc_type_channels_last(&c.src);
    nnc_type_channels_last(&c.dst);
    c.post[0].kind = PO_relu;
    for (int d = 0; d < 2; d++)
        c.kernel[d] = c.stride[d] = c.dilation[d] = 1;
    memset(nan, 0xff, sizeof nan);
    dn_call d;
    dn_describe(&d, &c, c.n_post, (dn_form){.any = true});
    const size_t bytes = sizeof nan;
    bool fits = d.pd && weight_bytes(d.pd) <= bytes && (size_t)dn_scratch_bytes(d.pd) <= bytes;
    const bool before = dn_flag_lower();
    bool ran = fits && run_once(d.pd, nan, out, scratch), raised = dn_flag_restore(before);
    dn_call_deinit(&d);
    return ran && raised;
}

static bool works[2]; /* on one thread, on several */

static void try_out(void)
{
    const unsigned runtime = dnnl_version()->cpu_runtime;
    if (!HAS_FLAGS || (runtime != DNNL_RUNTIME_SEQ && runtime != DNNL_RUNTIME_OMP))
        return;
    int were = dn_threads(1);
    works[0] = flag_rises();
    dn_threads(were);
    /* without threads of its own everything happens on the calling one */
    works[1] = works[0] && (runtime == DNNL_RUNTIME_SEQ || dn_has_team());
}

bool dn_watch_works(int threads)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, try_out);
    return works[threads > 1];
}
