/* cuda/loader.c -- finds a library's file as the loader would, without opening it. */
#include "cuda/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the loader's path -------------------------------------------------------------------------------------------- */

/* ldconfig's cache (glibc, dl-cache.h): a header, entries, and strings at offsets from the header. */
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

/* Finds a library name without a folder in ldconfig's cache. The loader may choose another file (rpath,
 * hardware-specific folders). */
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

/* ---- files -------------------------------------------------------------------------------------------------------- */

bool cuda_file_stat(nnc_cuda_lib lib, char path[512], struct stat *st)
{
    cuda_file f;
    if (!cuda_file_of(lib, &f))
        return false;
    memcpy(path, f.path, sizeof f.path);
    return (strchr(path, '/') || on_loader_path(f.path, path)) && stat(path, st) == 0;
}
