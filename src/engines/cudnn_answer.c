/* engines/cudnn_answer.c -- cache on disk of cuDNN's answers for calls, so that the next compile does not open cuDNN. The key is
 * cuDNN's build, the GPU's numbers, the graph and the filter, so entries are valid on other machines too. An entry is one line:
 *
 *     <cuDNN's version> ok <engine> <numerical notes, hex> <1: a fallback> <workspace>
 *     <cuDNN's version> no <reason> */
#include "engines/cudnn.h"
#include "target/target.h"
#include <stdlib.h>
#include <string.h>

/* A GPU described by the driver is replaced by its data sheet where that has the same number of SMs: memory and clocks differ a little
 * from card to card, and each would be a different key for the same engines. Plans that run are made on the device itself. */
void cudnn_device_of(const nnc_target *own, nnc_cudnn_device *d)
{
    nnc_target sheet = {0};
    const nnc_target *t = own;
    if (own->asked && nnc_target_cuda(&sheet, own->name, NULL) == NNC_OK && sheet.sms == own->sms &&
        sheet.sm_threads == own->sm_threads && sheet.shared_bytes == own->shared_bytes)
        t = &sheet;
    *d = (nnc_cudnn_device){.name = t->card, /* from the data sheet: static */
        .sm = t->sm,
        .sms = t->sms,
        .sm_threads = t->sm_threads,
        .memory_bytes = t->memory_bytes,
        .shared_bytes = t->shared_bytes,
        .l2_bytes = t->l3_bytes,
        .clock_hz = t->clock_hz};
    if (own->asked)
        nnc_target_deinit(&sheet);
}

/* Engines built on cuBLASLt count as precompiled where cuBLASLt is present. NVIDIA_TF32_OVERRIDE=0 excludes tensor cores. False:
 * cuDNN's files are not known, or out of memory. */
static bool answer_key(
    const nnc_call *c, const cudnn_lowering *w, const nnc_cudnn_filter *f, nnc_hash128 *key)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_cudnn_device d;
    nnc_cudnn *g;
    const char *tf32 = getenv("NVIDIA_TF32_OVERRIDE");
    bool known = nnc_cuda_identity(CUDA_cudnn, &t);
    (void)nnc_cuda_identity(CUDA_cublaslt, &t);
    cudnn_device_of(c->env->target, &d);
    nnc_printf(&t, "answer 3 override %s without %x precompiled %d limit %lld ", tf32 ? tf32 : "-",
        f->without, f->precompiled, (long long)f->workspace_limit);
    if (f->with)
        nnc_printf(&t, "with %x ", f->with);
    nnc_cudnn_device_json(&t, &d);
    known = known && nnc_cudnn_sketch(&t, &g) == NNC_OK;
    if (known) {
        cudnn_describe_core(g, c, w);
        nnc_cudnn_destroy(g);
    }
    *key = nnc_hash(nnc_text_str(&t), t.n);
    known = known && !t.oom;
    return known;
}

static bool read_answer(const char *text, size_t n, cudnn_answer *a)
{
    char word[3] = "";
    long long version, engine, workspace;
    int fallback, at = 0, end = 0;
    unsigned numerical;
    *a = (cudnn_answer){0};
    if (!n || text[n - 1] || strlen(text) != n - 1 ||
        sscanf(text, "%lld %2s %n", &version, word, &at) != 2 || !at)
        return false;
    a->version = version;
    if (!strcmp(word, "no")) {
        snprintf(a->why, sizeof a->why, "%s", text + at);
        return true;
    }
    if (strcmp(word, "ok") != 0 || sscanf(text + at, "%lld %x %d %lld%n", &engine, &numerical,
                                       &fallback, &workspace, &end) != 4)
        return false;
    a->ok = true;
    a->engine = engine;
    a->numerical = numerical;
    a->fallback = fallback;
    a->workspace = workspace;
    return text[at + end] == 0 && workspace >= 0;
}

bool cudnn_answer_load(
    const nnc_call *c, const cudnn_lowering *w, const nnc_cudnn_filter *f, cudnn_answer *a)
{
    nnc_hash128 key;
    char *text;
    size_t n;
    if (!answer_key(c, w, f, &key) || !nnc_cache_get(c->env->cache, "choice", key, &text, &n))
        return false;
    bool ok = read_answer(text, n, a) && a->workspace <= f->workspace_limit;
    nnc_free(text);
    return ok;
}

void cudnn_answer_store(
    const nnc_call *c, const cudnn_lowering *w, const nnc_cudnn_filter *f, const cudnn_answer *a)
{
    nnc_hash128 key;
    NNC_LOCAL(nnc_text) t = {0};
    if (!answer_key(c, w, f, &key)) /* for the files that were opened */
        return;
    if (a->ok)
        nnc_printf(&t, "%lld ok %lld %x %d %lld", (long long)a->version, (long long)a->engine,
            a->numerical, a->fallback, (long long)a->workspace);
    else
        nnc_printf(&t, "%lld no %s", (long long)a->version, a->why);
    if (!t.oom)
        nnc_cache_put(c->env->cache, "choice", key, nnc_text_str(&t), t.n + 1);
}
