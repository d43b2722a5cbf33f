/* session/env.c -- a machine: the target description of each device, the available engines, the kernel cache. Plug-ins are loaded on first
 * use: a run with a warm cache never loads LLVM. */
#include "session/session.h"
#include "base/lock.h"
#include "engines/engines.h"
#include <string.h>
#include <unistd.h>

/* ---- environment ------------------------------------------------------------------------------------- */

/* The plug-in that has the emitter of machine code for CPUs, and its symbol. */
#define EMITTER nnc_engine_llvm.name, "nnc_emitter_llvm"

const nnc_emitter *nnc_env_emitter(void)
{
    return nnc_plugin(EMITTER, NULL);
}

const nnc_emitter *nnc_env_emits(const nnc_env *e, const char **why)
{
    return e->no_llvm ? NULL : nnc_plugin(EMITTER, why);
}

void nnc_env_settle(nnc_env *e)
{
    nnc_lock(&e->lock);
    const bool again = e->settled || !nnc_env_has_host(e);
    e->settled = true;
    if (!again)
        e->has_emitter = e->has_emitter && nnc_plugin_loads(EMITTER, e->cache);
    for (int i = 0; i < e->n_target && !again; i++)
        if (e->target[i].host)
            nnc_target_restrict(&e->target[i], e->has_emitter);
    nnc_unlock(&e->lock);
}

#define TARGETS \
    "cpu (this machine), cpu:x86-64-v3 (without newer instructions; or v2, v4), " \
    "cpu:neoverse-n1 or another AArch64 CPU, cuda (its GPU), cuda:sm_90 or another GPU, or a " \
    "machine file as nnc devices --format=json prints it. Several between commas: one for each " \
    "device"

/* cpu:LEVEL is this machine with a level's instructions, cpu:CORE the described machine with that core. */
static nnc_status open_named_cpu(
    const nnc_env *e, const nnc_env_options *o, const char *name, nnc_target *t, nnc_sink *sink)
{
    const char *colon = strchr(name, ':');
    if (colon && nnc_target_core(colon + 1)) {
        const int threads = o->threads > 0 ? nnc_env_rank_threads(e, o->threads) : 0;
        NNC_TRY(nnc_target_aarch64(t, name, threads, sink));
        nnc_target_restrict(t, !o->no_llvm);
        return NNC_OK;
    }
    nnc_status st = colon ? nnc_cpu_limit_to(colon + 1, "--target=cpu:", sink) : NNC_OK;
    for (int i = 0; st && strncmp(name, "cpu:x86-64-v", 12) && nnc_target_core_at(i); i++)
        nnc_note(sink, (nnc_loc){0}, "described AArch64 CPU: cpu:%s, %d cores of %s",
            nnc_target_core_at(i)->name, nnc_target_core_at(i)->cores,
            nnc_target_core_at(i)->machine);
    NNC_TRY(st);
    return nnc_target_host(
        t, nnc_env_machine_cores(e), nnc_env_rank_threads(e, o->threads), e->has_emitter, sink);
}

/* Opens the machine that --target names: a word, or a file. A name that is neither and does not look like a file is reported as a
 * word. */
static nnc_status open_target(
    const nnc_env *e, const nnc_env_options *o, const char *name, nnc_target *t, nnc_sink *sink)
{
    if (!strcmp(name, "cpu") || !strncmp(name, "cpu:", 4))
        return open_named_cpu(e, o, name, t, sink);
    if (!strncmp(name, "cuda", 4) && (!name[4] || name[4] == ':'))
        return nnc_env_cuda(t, name, sink);
    if (!strpbrk(name, "./") && access(name, F_OK) != 0)
        return nnc_fail0(sink, NNC_E_USAGE, "--target=%s is unknown; expected " TARGETS, name);
    nnc_status st = nnc_target_load(t, name, sink);
    if (st && st != NNC_E_NOMEM)
        nnc_note(sink, (nnc_loc){0}, "--target is " TARGETS);
    if (!st && o->threads > 0)
        t->threads = nnc_env_rank_threads(e, o->threads);
    if (!st)
        nnc_target_restrict(t, !o->no_llvm);
    return st;
}

/* The target is the first device of a hardware file. */
static nnc_status open_hardware(nnc_env *e, const nnc_env_options *o, nnc_sink *sink)
{
    if (o->target)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--hardware=%s and --target=%s both name the devices: leave one out", o->hardware,
            o->target);
    e->cluster = nnc_cluster_load(o->hardware, sink);
    if (!e->cluster)
        return nnc_sink_cause(sink, NNC_E_USAGE);
    e->target = nnc_calloc(1, sizeof *e->target);
    NNC_NEED(e->target, sink);
    nnc_target *t = &e->target[e->n_target++];
    *t = *nnc_cluster_target(e->cluster, 0);
    nnc_arena_init(&t->arena, 0); /* what the copy shares remains the cluster's */
    if (o->threads > 0)
        t->threads = o->threads;
    nnc_target_restrict(t, !o->no_llvm);
    nnc_puts(&e->name, t->name);
    e->own_threads = true;
    return e->name.oom ? nnc_nomem(sink) : NNC_OK;
}

static nnc_status open_targets(nnc_env *e, const nnc_env_options *o, nnc_sink *sink)
{
    const char *names = o->target ? o->target : "cpu";
    NNC_LOCAL(nnc_text) name = {0};
    int n = 1;
    for (const char *s = names; *s; s++)
        n += *s == ',';
    if (n > NNC_MAX_DEVICES)
        return nnc_fail0(sink, NNC_E_USAGE, "--target lists %d devices; expected at most %d", n,
            NNC_MAX_DEVICES);
    e->target = nnc_calloc((size_t)n, sizeof *e->target);
    NNC_NEED(e->target, sink);
    while (e->n_target < n) {
        size_t len = strcspn(names, ",");
        nnc_text_clear(&name);
        nnc_putn(&name, names, len);
        if (name.oom)
            return nnc_nomem(sink);
        NNC_TRY(open_target(e, o, nnc_text_str(&name), &e->target[e->n_target], sink));
        nnc_printf(&e->name, "%s%s", e->n_target ? "," : "", e->target[e->n_target].name);
        e->n_target++;
        names += len + (names[len] == ',');
    }
    return e->name.oom ? nnc_nomem(sink) : NNC_OK;
}

bool nnc_env_compiles(const nnc_env *e)
{
    for (int i = 0; i < e->n_target; i++)
        if (nnc_target_engine_named(&e->target[i], nnc_engine_llvm.name))
            return true;
    return false;
}

static void cpu_engines(nnc_env *e)
{
    if (!e->no_llvm) /* without the plug-in its kernels are interpreted */
        e->engine[e->n_engine++] = &nnc_engine_llvm;
    e->engine[e->n_engine++] = &nnc_engine_interp;
}

static nnc_status open_tuning(nnc_env *e, const nnc_env_options *o, nnc_sink *sink)
{
    if (!o->tuning)
        return NNC_OK;
    if (!nnc_env_has(e, NNC_T_cuda))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--tuning is for GPUs' libraries, which %s does not use", nnc_text_str(&e->name));
    return nnc_tuning_open(o->tuning, o->tune, &e->tuning, sink);
}

/* --memory-limit. Plans for a GPU depend on its memory: larger models run in chunks. */
static nnc_status limit_memory(nnc_env *e, const nnc_env_options *o, nnc_sink *sink)
{
    if (!o->memory_limit)
        return NNC_OK;
    const int64_t all =
        e->cluster ? nnc_cluster_usable_bytes(e->cluster, 0) : e->target[0].memory_bytes;
    e->memory_limit = nnc_parse_budget(o->memory_limit, all);
    if (e->memory_limit < 1 || (strchr(o->memory_limit, '%') && e->memory_limit > all))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--memory-limit=%s: expected bytes, as in 2000000000, 1.5GiB or 800MiB, or a share of "
            "the device's memory of at most 100%%, as in 60%%",
            o->memory_limit);
    for (int i = 0; i < e->n_target; i++)
        e->target[i].memory_bytes = nnc_min64(e->target[i].memory_bytes, e->memory_limit);
    return NNC_OK;
}

nnc_status nnc_env_create(const nnc_env_options *o, nnc_env **out, nnc_sink *sink)
{
    *out = NULL;
    if (!o)
        o = &nnc_env_defaults;
    NNC_OWNED(nnc_env) *e = nnc_calloc(1, sizeof *e);
    NNC_NEED(e, sink);
    pthread_mutex_init(&e->lock, NULL);
    e->no_llvm = o->no_llvm;
    e->comm_by = (nnc_comm_by)o->comm;
    e->has_emitter = !o->no_llvm && nnc_plugin_exists(nnc_engine_llvm.name);
    NNC_TRY(nnc_cpu_check(sink));
    NNC_TRY(nnc_env_find_ranks(e, o, sink));
    NNC_TRY(o->hardware ? open_hardware(e, o, sink) : open_targets(e, o, sink));
    NNC_TRY(limit_memory(e, o, sink));
    NNC_TRY(open_tuning(e, o, sink));
    NNC_TRY(nnc_env_join(e, o, sink));
    if (nnc_env_has(e, NNC_T_cpu))
        cpu_engines(e);
    if (nnc_env_has(e, NNC_T_cuda))
        nnc_env_cuda_engines(e);
    if (!o->no_cache)
        e->cache = nnc_cache_open(o->cache_dir);
    if (!o->no_cache && o->cache_dir && !nnc_cache_writable(e->cache))
        nnc_warn(sink, (nnc_loc){.file = o->cache_dir},
            e->cache ? "cannot be written: kernels are read from it, and new ones not kept"
                     : "cannot be created or read: compiled kernels are not stored");
    *out = e;
    e = NULL;
    return NNC_OK;
}

void nnc_env_destroy(nnc_env *e)
{
    if (!e)
        return;
    nnc_env_leave(e);
    for (int i = 0; i < e->n_target; i++)
        nnc_target_deinit(&e->target[i]);
    nnc_free(e->target);
    nnc_cluster_destroy(e->cluster);
    nnc_text_deinit(&e->name);
    nnc_cache_close(e->cache);
    nnc_tuning_close(e->tuning);
    pthread_mutex_destroy(&e->lock);
    nnc_free(e);
}

int nnc_env_threads(const nnc_env *e)
{
    int n = 0;
    for (int i = 0; i < e->n_target; i++)
        n = e->target[i].threads > n ? e->target[i].threads : n;
    return n;
}

const char *nnc_env_target(const nnc_env *e)
{
    return nnc_text_str(&e->name);
}

int nnc_env_profile_after(const nnc_env *e)
{
    enum { RUNS = 4 };
    return e->target[0].kind == NNC_T_cuda ? RUNS : 0;
}
