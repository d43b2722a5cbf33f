/* session/compile_cuda.c -- compiling for NVIDIA GPUs: CUDA C from codegen, machine code from NVRTC. Needs neither a GPU nor a driver. */
#include "session/session.h"
#include "cuda/cuda.h"
#include <string.h>

/* the kernel IR states which products and sums are fused; NVRTC must not fuse others */
static const char *const options[] = {"--fmad=false"};

/* ---- the emitter -------------------------------------------------------------------------------------------------- */

static nnc_status source_of(
    const nnc_kernel *const *k, int n, const nnc_target *t, char **out, nnc_sink *sink)
{
    size_t size;
    return nnc_emitter_cuda.emit(k, n, t, EMIT_cuda, out, &size, sink);
}

nnc_status nnc_cuda_make(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what,
    nnc_cache *cache, char **out, size_t *size, nnc_sink *sink)
{
    char *source;
    NNC_TRY(source_of(k, n, t, &source, sink));
    if (what == EMIT_cuda) {
        *out = source;
        *size = strlen(source);
        return NNC_OK;
    }
    nnc_nvrtc_unit u = {.name = n == 1 ? k[0]->name : "kernels.cu", .source = source};
    nnc_nvrtc_options o = {.sm = t->sm,
        .ptx = what == EMIT_ptx,
        .jobs = 1,
        .cache = cache,
        .option = options,
        .n_option = NNC_COUNT(options)};
    nnc_status st = nnc_nvrtc_compile(&u, 1, &o, sink);
    nnc_free(source);
    *out = u.code;
    *size = u.n;
    return st;
}

/* The emitter of plans. */
static nnc_status emit(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what,
    char **out, size_t *size, nnc_sink *sink)
{
    return nnc_cuda_make(k, n, t, what, NULL, out, size, sink);
}

static const nnc_emitter emitter = {"nvrtc", "", emit};

static const nnc_emitter *get_emitter(void)
{
    return &emitter;
}

/* Without NVRTC the plan has no code, which is enough for every question about it. */
nnc_compiler nnc_env_cuda_compiler(
    nnc_env *e, const nnc_target *t, char version[NNC_VERSION_BYTES], nnc_sink *said)
{
    nnc_nvrtc_target w = {0};
    nnc_status st = nnc_nvrtc_resolve(t->sm, false, e->cache, &w, said);
    snprintf(version, NNC_VERSION_BYTES, "%s nvrtc %s %s_%d %s", nnc_emitter_cuda.version,
        w.version, w.ptx ? "compute" : "sm", w.arch, options[0]);
    return (nnc_compiler){st ? NULL : get_emitter, version, NNC_UNIT_FUNCTIONS, nnc_cuda_share};
}

void nnc_env_cuda_tell(
    const nnc_env *e, const nnc_compiler *of_target, const nnc_sink *said, nnc_sink *sink)
{
    bool code = true;
    for (int i = 0; i < e->n_target; i++)
        code = code && (e->target[i].kind != NNC_T_cuda || of_target[i].emitter);
    for (size_t i = 0; i < nnc_sink_count(said); i++) {
        const nnc_diag *d = nnc_sink_at(said, i);
        if (!code)
            nnc_warn(sink, (nnc_loc){0}, "kernels get no machine code: %s", d->message);
        else
            nnc_note(sink, (nnc_loc){0}, "%s", d->message);
    }
}

/* ---- the target --------------------------------------------------------------------------------------------------- */

/* "cuda" is this machine's first GPU with the numbers that its driver reports. */
nnc_status nnc_env_cuda(nnc_target *t, const char *name, nnc_sink *sink)
{
    nnc_cuda_device d = {0};
    char of_first[32];
    if (strcmp(name, "cuda") != 0)
        return nnc_target_cuda(t, name, sink);
    if (!nnc_cuda_devices(&d, 1, sink))
        return nnc_fail0(sink, NNC_E_DEVICE,
            "--target=cuda needs a usable GPU in this machine (nnc doctor); "
            "--target=cuda:sm_90 compiles for a GPU elsewhere");
    snprintf(of_first, sizeof of_first, "cuda:sm_%d", d.sm);
    NNC_TRY(nnc_target_cuda(t, of_first, sink));
    nnc_target_gpu g = {d.name, d.sms, d.sm_threads, d.shared_bytes, d.l2_bytes, d.memory_bytes,
        d.clock_hz, d.bytes_s};
    nnc_status st = nnc_target_cuda_ask(t, &g, sink);
    if (st)
        nnc_target_deinit(t);
    return st;
}

void nnc_env_cuda_engines(nnc_env *e)
{
    e->engine[e->n_engine++] = &nnc_engine_cudnn;
    e->engine[e->n_engine++] = &nnc_engine_cublaslt;
    e->engine[e->n_engine++] = &nnc_engine_cuda;
}
