/* cuda/nvrtc.c -- compiles CUDA C to machine code: translation units in parallel, results cached by content. */
#include "cuda/internal.h"
#include <stdatomic.h>
#include <string.h>

enum { MAX_OPTIONS = 24, NVRTC_NOMEM = 1, NVRTC_BAD_OPTION = 5, NVRTC_COMPILATION = 6 };

typedef struct batch {
    nnc_nvrtc_unit *unit;
    const int *todo;
    int n;
    const nnc_cuda_nvrtc *nvrtc;
    bool ptx;
    const char *option[MAX_OPTIONS];
    int n_option;
    atomic_int next;
    int *error; /* NVRTC's result by unit */
    char **log; /* error log by unit */
} batch;

/* ---- one unit ----------------------------------------------------------------------------------------------------- */

/* Returns the log without trailing newlines; NULL: empty, or out of memory. */
static char *read_log(const nnc_cuda_nvrtc *l, nvrtc_program p)
{
    size_t n = 0;
    char *log = l->nvrtcGetProgramLogSize(p, &n) || !n ? NULL : nnc_malloc(n + 1);
    if (log && l->nvrtcGetProgramLog(p, log)) {
        nnc_free(log);
        return NULL;
    }
    if (!log)
        return NULL;
    log[n] = 0;
    n = strlen(log);
    while (n && log[n - 1] == '\n')
        log[--n] = 0;
    return log;
}

static int read_code(const batch *b, nvrtc_program p, nnc_nvrtc_unit *u)
{
    const nnc_cuda_nvrtc *l = b->nvrtc;
    int error = b->ptx ? l->nvrtcGetPTXSize(p, &u->n) : l->nvrtcGetCUBINSize(p, &u->n);
    if (error)
        return error;
    u->code = nnc_malloc(u->n ? u->n : 1);
    if (!u->code)
        return NVRTC_NOMEM;
    return b->ptx ? l->nvrtcGetPTX(p, u->code) : l->nvrtcGetCUBIN(p, u->code);
}

static void compile_unit(batch *b, int i)
{
    nnc_nvrtc_unit *u = &b->unit[i];
    nvrtc_program p;
    int64_t began = nnc_now_ns();
    b->error[i] = b->nvrtc->nvrtcCreateProgram(&p, u->source, u->name, 0, NULL, NULL);
    if (b->error[i])
        return;
    b->error[i] = b->nvrtc->nvrtcCompileProgram(p, b->n_option, b->option);
    if (b->error[i])
        b->log[i] = read_log(b->nvrtc, p);
    else
        b->error[i] = read_code(b, p, u);
    b->nvrtc->nvrtcDestroyProgram(&p);
    u->ns = nnc_now_ns() - began;
}

static void compile_some(void *ctx, int part, int parts)
{
    batch *b = ctx;
    (void)part;
    (void)parts;
    for (int i; (i = atomic_fetch_add(&b->next, 1)) < b->n;)
        compile_unit(b, b->todo[i]);
}

/* ---- options and keys --------------------------------------------------------------------------------------------- */

/* --minimal leaves out textures and device-side launches, which no kernel uses, and halves the compile time of small
 * units. */
static nnc_status set_options(
    batch *b, const nnc_nvrtc_options *o, const nnc_nvrtc_target *w, char arch[32], nnc_sink *sink)
{
    snprintf(arch, 32, "-arch=%s_%d", w->ptx ? "compute" : "sm", w->arch);
    b->option[b->n_option++] = arch;
    b->option[b->n_option++] = "--std=c++17";
    b->option[b->n_option++] = "-default-device";
    if (w->lib == CUDA_nvrtc && strncmp(w->version, "12.", 3) != 0)
        b->option[b->n_option++] = "--minimal";
    if (o->lineinfo)
        b->option[b->n_option++] = "-lineinfo";
    if (o->fast && w->lib == CUDA_nvrtc && strncmp(w->version, "12.", 3) != 0)
        b->option[b->n_option++] = "--Ofast-compile=max";
    if (o->n_option > MAX_OPTIONS - b->n_option)
        return nnc_fail0(
            sink, NNC_E_USAGE, "more than %d options for NVRTC", MAX_OPTIONS - b->n_option);
    for (int i = 0; i < o->n_option; i++)
        b->option[b->n_option++] = o->option[i];
    return NNC_OK;
}

/* False: out of memory; the cache is not used then. */
static bool unit_key(
    const batch *b, const nnc_nvrtc_target *w, const nnc_nvrtc_unit *u, nnc_hash128 *key)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t, "nvrtc 1 %s", w->version);
    for (int i = 0; i < b->n_option; i++)
        nnc_printf(&t, " %s", b->option[i]);
    nnc_printf(&t, "\n%s", u->source);
    *key = nnc_hash(nnc_text_str(&t), t.n);
    return !t.oom;
}

static const char *kind(const batch *b)
{
    return b->ptx ? "ptx" : "cubin";
}

/* ---- all units ---------------------------------------------------------------------------------------------------- */

static nnc_status report(const batch *b, int i, nnc_sink *sink)
{
    const nnc_nvrtc_unit *u = &b->unit[i];
    int errors = b->log[i] ? nvrtc_report_log(u->name, u->source, b->log[i], sink) : 0;
    if (b->error[i] == NVRTC_NOMEM)
        return nnc_nomem(sink);
    if (errors)
        return NNC_E_BUG;
    return nnc_fail(sink,
        b->error[i] == NVRTC_COMPILATION || b->error[i] == NVRTC_BAD_OPTION ? NNC_E_BUG
                                                                            : NNC_E_DEVICE,
        (nnc_loc){.file = u->name}, "NVRTC: %s%s%.400s", b->nvrtc->nvrtcGetErrorString(b->error[i]),
        b->log[i] ? ": " : "", b->log[i] ? b->log[i] : "");
}

static nnc_status compile_missing(batch *b, const nnc_nvrtc_options *o, const nnc_nvrtc_target *w,
    const nnc_hash128 *key, nnc_sink *sink)
{
    b->nvrtc = nnc_cuda_table(w->lib, sink);
    if (!b->nvrtc)
        return NNC_E_DEVICE;
    int jobs = o->jobs < b->n ? o->jobs : b->n;
    nnc_par_run(jobs > 1 ? jobs : 1, compile_some, b);
    nnc_status st = NNC_OK;
    for (int t = 0; t < b->n; t++) {
        int i = b->todo[t];
        if (b->error[i]) {
            nnc_status s = report(b, i, sink);
            st = st ? st : s;
        } else if (o->cache && key[i].hi != ~(uint64_t)0) {
            nnc_cache_put(o->cache, kind(b), key[i], b->unit[i].code, b->unit[i].n);
        }
        nnc_free(b->log[i]);
    }
    return st;
}

/* Takes units from the cache; lists the others in todo[]. */
static int look_up(batch *b, const nnc_nvrtc_options *o, const nnc_nvrtc_target *w, int n,
    int *todo, nnc_hash128 *key)
{
    int missing = 0;
    for (int i = 0; i < n; i++) {
        nnc_nvrtc_unit *u = &b->unit[i];
        u->code = NULL;
        u->n = 0;
        u->ns = 0;
        u->is_ptx = w->ptx;
        if (!o->cache || !unit_key(b, w, u, &key[i]))
            key[i].hi = ~(uint64_t)0;
        u->cached =
            key[i].hi != ~(uint64_t)0 && nnc_cache_get(o->cache, kind(b), key[i], &u->code, &u->n);
        if (!u->cached)
            todo[missing++] = i;
    }
    return missing;
}

nnc_status nnc_nvrtc_compile(nnc_nvrtc_unit *u, int n, const nnc_nvrtc_options *o, nnc_sink *sink)
{
    nnc_nvrtc_target w;
    char arch[32];
    NNC_LOCAL(nnc_arena) a = {0};
    for (int i = 0; i < n; i++)
        u[i].code = NULL;
    NNC_TRY(nnc_nvrtc_resolve(o->sm, o->ptx, o->cache, &w, sink));
    int *todo = ARENA_NEW(&a, int, n ? n : 1);
    nnc_hash128 *key = ARENA_NEW(&a, nnc_hash128, n ? n : 1);
    batch b = {.unit = u, .todo = todo, .ptx = w.ptx};
    b.error = ARENA_NEW(&a, int, n ? n : 1);
    b.log = ARENA_NEW(&a, char *, n ? n : 1);
    nnc_status st =
        todo && key && b.error && b.log ? set_options(&b, o, &w, arch, sink) : nnc_nomem(sink);
    if (!st)
        b.n = look_up(&b, o, &w, n, todo, key);
    if (!st && b.n)
        st = compile_missing(&b, o, &w, key, sink);
    for (int i = 0; i < n && st; i++) {
        nnc_free(u[i].code);
        u[i].code = NULL;
    }
    return st;
}
