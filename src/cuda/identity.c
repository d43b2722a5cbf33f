/* cuda/identity.c -- identifies a library's files, so that answers of a library can be cached and reused without
 * opening it (opening cuDNN takes 100 ms): by build id, a hash of the contents written by the linker and the same on
 * every machine; for files without one by path, size and time. */
#include "cuda/internal.h"
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
 * hardware-specific folders), so results are stored under the identity of the opened library, where this search is
 * not used. */
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

enum { MAX_NOTES = 4096, MAX_HEADERS = 64, MAX_ID = 64 };

/* Finds the build id among ELF notes: size of the name, size of the contents, kind, name and contents, both padded
 * to four bytes. */
static int find_id(const uint8_t *note, size_t n, uint8_t id[MAX_ID])
{
    Elf64_Nhdr h;
    for (size_t at = 0; at + sizeof h <= n;) {
        memcpy(&h, note + at, sizeof h);
        size_t name = at + sizeof h, data = name + (((size_t)h.n_namesz + 3) & ~(size_t)3);
        if (h.n_namesz > n || h.n_descsz > n || data > n || h.n_descsz > n - data)
            return 0;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(note + name, "GNU", 4) &&
            h.n_descsz >= 8 && h.n_descsz <= MAX_ID) {
            memcpy(id, note + data, h.n_descsz);
            return (int)h.n_descsz;
        }
        at = data + (((size_t)h.n_descsz + 3) & ~(size_t)3);
    }
    return 0;
}

static bool read_at(int fd, void *to, size_t n, uint64_t at)
{
    return at < INT64_MAX && pread(fd, to, n, (off_t)at) == (ssize_t)n;
}

/* Returns the length of the file's build id in bytes; 0: none. */
static int build_id(const char *path, uint8_t id[MAX_ID])
{
    Elf64_Ehdr e;
    Elf64_Phdr p;
    uint8_t note[MAX_NOTES];
    int n = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    bool elf = read_at(fd, &e, sizeof e, 0) && !memcmp(e.e_ident, ELFMAG, SELFMAG) &&
               e.e_ident[EI_CLASS] == ELFCLASS64 && e.e_phentsize == sizeof p;
    for (int i = 0; elf && !n && i < e.e_phnum && i < MAX_HEADERS; i++)
        if (read_at(fd, &p, sizeof p, e.e_phoff + (uint64_t)i * sizeof p) && p.p_type == PT_NOTE &&
            p.p_filesz <= sizeof note && read_at(fd, note, p.p_filesz, p.p_offset))
            n = find_id(note, p.p_filesz, id);
    close(fd);
    return n;
}

/* Appends the identity of one file; name: of this part of the library. */
static void put_file(nnc_text *out, const char *name, const char *path)
{
    struct stat st;
    uint8_t id[MAX_ID];
    int n = build_id(path, id);
    if (n)
        nnc_printf(out, "%s build ", name);
    for (int i = 0; i < n; i++)
        nnc_printf(out, "%02x%s", id[i], i + 1 < n ? "" : "\n");
    if (!n && stat(path, &st) == 0)
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
    put_file(out, "library", path);
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; lib == CUDA_cudnn && slash && i < NNC_COUNT(parts); i++) {
        snprintf(part, sizeof part, "%.*s/libcudnn_%s.so.9", (int)(slash - path), path, parts[i]);
        put_file(out, parts[i],
            part); /* libcudnn.so.9 only forwards to these, which lie in its folder */
    }
    return true;
}
