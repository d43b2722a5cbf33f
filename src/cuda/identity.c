/* cuda/identity.c -- what tells a library's files from others: their paths, sizes and times, so that what a library once answered can be
 * kept without opening it again (cuDNN takes a tenth of a second to open). */
#include "cuda/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the loader's path --------------------------------------------------------------------------------------------- */

/* The list that ldconfig keeps (glibc, dl-cache.h): a header, entries, and strings by their distance from the header. */
typedef struct loader_head {
    char magic[20];
    uint32_t n, string_bytes, unused[5];
} loader_head;
typedef struct loader_entry {
    int32_t flags;
    uint32_t name, path, os_version;
    uint64_t hardware;
} loader_entry;

static const char *loader_string(const char *data, size_t n, uint32_t at)
{
    return at < n && memchr(data + at, 0, n - at) ? data + at : "";
}

static bool in_loader_list(const char *soname, char out[512])
{
    char *file, *data = NULL;
    size_t n;
    loader_head h = {0};
    bool found = false;
    if (nnc_file_read("/etc/ld.so.cache", 16 << 20, &file, &n, NULL))
        return false;
    for (data = file; (size_t)(data - file) + sizeof h <= n; data += 4)
        if (!memcmp(data, "glibc-ld.so.cache1.1", sizeof h.magic)) {
            memcpy(&h, data, sizeof h);
            break;
        }
    n -= (size_t)(data - file);
    for (size_t i = 0; i < h.n && !found && sizeof h + (i + 1) * sizeof(loader_entry) <= n; i++) {
        loader_entry e;
        memcpy(&e, data + sizeof h + i * sizeof e, sizeof e);
        found = !strcmp(loader_string(data, n, e.name), soname);
        if (found)
            snprintf(out, 512, "%s", loader_string(data, n, e.path));
    }
    nnc_free(file);
    return found;
}

/* Where the loader would find a name without a folder. It may know better (rpath, hardware's own folders): whoever keeps an answer
 * asks again once the library is open, and then this is not asked. */
static bool on_loader_path(const char *soname, char out[512])
{
    const char *list = getenv("LD_LIBRARY_PATH");
    for (const char *p = list ? list : ""; *p;) {
        size_t n = strcspn(p, ":");
        snprintf(out, 512, "%.*s/%.64s", (int)n, p, soname);
        if (n && nnc_file_exists(out))
            return true;
        p += n + (p[n] == ':');
    }
    return in_loader_list(soname, out);
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

bool cuda_file_stat(nnc_cuda_lib lib, char path[512], struct stat *st)
{
    cuda_file f;
    if (!cuda_file_of(lib, &f))
        return false;
    memcpy(path, f.path, sizeof f.path);
    return (strchr(path, '/') || on_loader_path(f.path, path)) && stat(path, st) == 0;
}

static void put_file(nnc_text *out, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0)
        nnc_printf(out, "%s %lld %lld.%09ld\n", path, (long long)st.st_size,
            (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

bool nnc_cuda_identity(nnc_cuda_lib lib, nnc_text *out)
{
    static const char *const parts[] = {"graph", "heuristic", "engines_precompiled", "cnn", "ops"};
    struct stat st;
    char path[512], part[600];
    if (!cuda_file_stat(lib, path, &st))
        return false;
    put_file(out, path);
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; lib == CUDA_cudnn && slash && i < NNC_COUNT(parts); i++) {
        snprintf(part, sizeof part, "%.*s/libcudnn_%s.so.9", (int)(slash - path), path, parts[i]);
        put_file(out, part); /* libcudnn.so.9 is a front of these, in its own folder */
    }
    return true;
}
