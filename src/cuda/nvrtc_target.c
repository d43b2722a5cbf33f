/* cuda/nvrtc_target.c -- chooses the NVRTC and the kind of code for a GPU. Opening NVRTC takes 10 to 80 ms, so its
 * version and architectures are cached by the library file's path, size and time. */
#include "cuda/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_ARCHS = 64 };

typedef struct known {
    nnc_cuda_lib lib;
    char version[32];
    int major;
    int n;
    int arch[MAX_ARCHS]; /* as NVRTC lists them, ascending */
} known;

/* ---- asking and remembering --------------------------------------------------------------------------------------- */

static bool file_key(nnc_cuda_lib lib, nnc_hash128 *key, long long *bytes)
{
    struct stat st;
    char path[512], text[700];
    if (!cuda_file_stat(lib, path, &st))
        return false;
    int n = snprintf(text, sizeof text, "nvrtc 1 %s %lld %lld.%09ld", path, (long long)st.st_size,
        (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    *key = nnc_hash(text, (size_t)n);
    *bytes = (long long)st.st_size;
    return true;
}

/* Parses "13.0-109338064 75 80 86": the version, then the architectures. */
static bool read_memo(const char *text, known *k)
{
    int at = 0;
    k->n = 0;
    if (sscanf(text, "%31s%n", k->version, &at) != 1)
        return false;
    k->major = (int)strtol(k->version, NULL, 10);
    for (char *end; k->n < MAX_ARCHS; at = (int)(end - text)) {
        long arch = strtol(text + at, &end, 10);
        if (end == text + at)
            break;
        k->arch[k->n++] = (int)arch;
    }
    return k->n > 0;
}

static void write_memo(const known *k, nnc_hash128 key, nnc_cache *cache)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_puts(&t, k->version);
    for (int i = 0; i < k->n; i++)
        nnc_printf(&t, " %d", k->arch[i]);
    if (!t.oom)
        nnc_cache_put(cache, "nvrtc", key, nnc_text_str(&t), t.n + 1);
}

static bool ask(const nnc_cuda_nvrtc *l, known *k)
{
    int minor = 0, n = 0;
    int list[256];
    if (l->nvrtcVersion(&k->major, &minor) || l->nvrtcGetNumSupportedArchs(&n) || n < 1 ||
        n > (int)NNC_COUNT(list) || l->nvrtcGetSupportedArchs(list))
        return false;
    k->n = 0;
    for (int i = 0; i < n && k->n < MAX_ARCHS; i++)
        k->arch[k->n++] = list[i];
    snprintf(k->version, sizeof k->version, "%d.%d", k->major, minor);
    return true;
}

/* Gets what NVRTC `lib` supports; false when it is missing (reason in the sink). */
static bool know(nnc_cuda_lib lib, nnc_cache *cache, known *k, nnc_sink *sink)
{
    nnc_hash128 key;
    long long bytes = 0;
    char *text;
    size_t n;
    *k = (known){.lib = lib};
    bool file = file_key(lib, &key, &bytes);
    if (file && cache && nnc_cache_get(cache, "nvrtc", key, &text, &n)) {
        bool ok = n > 0 && !text[n - 1] && read_memo(text, k);
        nnc_free(text);
        if (ok)
            return true;
    }
    const nnc_cuda_nvrtc *l = nnc_cuda_table(lib, sink);
    if (!l)
        return false;
    if (!ask(l, k)) {
        (void)nnc_fail0(
            sink, NNC_E_DEVICE, "NVRTC does not list the architectures that it supports");
        return false;
    }
    size_t at = strlen(k->version); /* distinguishes builds of one version by file size */
    snprintf(k->version + at, sizeof k->version - at, "-%lld", bytes);
    if (file && cache)
        write_memo(k, key, cache);
    return true;
}

/* ---- deciding ----------------------------------------------------------------------------------------------------- */

/* Systems on a chip: other GPUs cannot run their machine code. */
static bool on_chip(int sm)
{
    return sm == 53 || sm == 62 || sm == 72 || sm == 87 || sm == 88 || sm == 101 || sm == 110;
}

static bool knows(const known *k, int sm)
{
    for (int i = 0; i < k->n; i++)
        if (k->arch[i] == sm)
            return true;
    return false;
}

/* The newest architecture below sm, within its generation when `same`; 0 = none. */
static int below(const known *k, int sm, bool same)
{
    int best = 0;
    for (int i = 0; i < k->n; i++)
        if (k->arch[i] < sm && k->arch[i] > best && !on_chip(k->arch[i]) &&
            (!same || k->arch[i] / 10 == sm / 10))
            best = k->arch[i];
    return best;
}

static void set_library(nnc_nvrtc_target *w, const known *k, int arch, bool ptx)
{
    *w = (nnc_nvrtc_target){.lib = k->lib, .arch = arch, .ptx = ptx};
    snprintf(w->version, sizeof w->version, "%s", k->version);
}

static int plain(const known *k) /* length of the version without the build's file size */
{
    return (int)strcspn(k->version, "-");
}

/* Chooses a fallback for an sm that NVRTC does not list. */
static nnc_status stand_in(const known *k, int sm, bool ptx, nnc_nvrtc_target *w, nnc_sink *sink)
{
    int same = ptx || on_chip(sm) ? 0 : below(k, sm, true), older = below(k, sm, false);
    if (same) {
        nnc_note(sink, (nnc_loc){0},
            "NVRTC %.*s does not support sm_%d: compiling for sm_%d, whose code runs there too",
            plain(k), k->version, sm, same);
        set_library(w, k, same, false);
        return NNC_OK;
    }
    if (older) {
        nnc_note(sink, (nnc_loc){0},
            "NVRTC %.*s does not support sm_%d: emitting PTX for compute_%d, which the driver "
            "compiles when the model is loaded",
            plain(k), k->version, sm, older);
        set_library(w, k, older, true);
        return NNC_OK;
    }
    return nnc_fail0(sink, NNC_E_DEVICE,
        "NVRTC %.*s supports sm_%d and newer; sm_%d needs CUDA 12's NVRTC as well (pip "
        "install nvidia-cuda-nvrtc-cu12, in an active Python environment)",
        plain(k), k->version, k->arch[0], sm);
}

nnc_status nnc_nvrtc_resolve(
    int sm, bool ptx, nnc_cache *cache, nnc_nvrtc_target *w, nnc_sink *sink)
{
    known newest, old;
    if (!know(CUDA_nvrtc, cache, &newest, sink))
        return NNC_E_DEVICE;
    if (knows(&newest, sm)) {
        set_library(w, &newest, sm, ptx);
        return NNC_OK;
    }
    bool older = newest.major > 12 && sm < newest.arch[0] && know(CUDA_nvrtc12, cache, &old, NULL);
    if (older && knows(&old, sm)) {
        set_library(w, &old, sm, ptx);
        return NNC_OK;
    }
    return stand_in(&newest, sm, ptx, w, sink);
}
