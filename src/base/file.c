/* base/file.c -- reading whole files, atomic replacement, memory maps. */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static nnc_status io_fail(nnc_sink *sink, const char *path, const char *what)
{
    return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = path}, "%s: %s", what, strerror(errno));
}

/* Reads fd to its end; grows as it goes, so that pipes work too. */
static nnc_status read_all(
    int fd, const char *path, size_t limit, char **out, size_t *n, nnc_sink *sink)
{
    size_t cap = 65536, used = 0;
    char *buf = nnc_malloc(cap + 1);
    NNC_NEED(buf, sink);
    for (;;) {
        ssize_t got = read(fd, buf + used, cap - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            nnc_free(buf);
            return io_fail(sink, path, "cannot read");
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (limit && used > limit) {
            nnc_free(buf);
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = path},
                "larger than the limit of %zu MiB", limit >> 20);
        }
        if (used == cap) {
            char *more = nnc_realloc(buf, cap * 2 + 1);
            if (!more) {
                nnc_free(buf);
                return nnc_nomem(sink);
            }
            buf = more;
            cap *= 2;
        }
    }
    buf[used] = 0;
    *out = buf;
    *n = used;
    return NNC_OK;
}

nnc_status nnc_file_read(const char *path, size_t limit, char **out, size_t *n, nnc_sink *sink)
{
    bool std_in = !strcmp(path, "-");
    int fd = std_in ? 0 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return io_fail(sink, path, "cannot open");
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = path}, "is a folder, not a file");
    }
    nnc_status s = read_all(fd, path, limit, out, n, sink);
    if (!std_in)
        close(fd);
    return s;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        p += w;
        n -= (size_t)w;
    }
    return true;
}

struct nnc_out {
    int fd, error; /* errno of the failure */
};

nnc_status nnc_out_put(nnc_out *o, const void *p, size_t n)
{
    if (write_all(o->fd, p, n))
        return NNC_OK;
    o->error = errno ? errno : EIO;
    return NNC_E_IO;
}

/* Runs make on fd; -1: opening failed. */
static nnc_status fill(int fd, const char *path, nnc_status (*make)(void *ctx, nnc_out *out),
    void *ctx, bool durable, nnc_sink *sink)
{
    nnc_out o = {.fd = fd};
    if (fd < 0)
        return io_fail(sink, path, "cannot write");
    nnc_status s = make(ctx, &o);
    if (!s && durable && fsync(fd) != 0)
        o.error = errno;
    errno = o.error;
    return o.error ? io_fail(sink, path, "cannot write") : s;
}

static nnc_status close_file(int fd, const char *path, nnc_status s, nnc_sink *sink)
{
    return fd >= 0 && close(fd) != 0 && !s ? io_fail(sink, path, "cannot write") : s;
}

size_t nnc_file_start(const char *path, void *to, size_t n)
{
    struct stat st;
    bool regular = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    int fd = regular ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = fd < 0 ? 0 : read(fd, to, n);
    if (fd >= 0)
        close(fd);
    return got < 0 ? 0 : (size_t)got;
}

bool nnc_file_resolve(const char *path, char out[PATH_MAX])
{
    enum { MAX_LINKS = 40 }; /* as Linux */
    struct stat st;
    snprintf(out, PATH_MAX, "%s", path);
    for (int i = 0; i < MAX_LINKS; i++) {
        char to[PATH_MAX], full[PATH_MAX];
        if (!strncmp(out, "/dev/std", 8) || !strncmp(out, "/dev/fd/", 8) ||
            !strncmp(out, "/proc/", 6))
            return true;
        ssize_t n = readlink(out, to, sizeof to - 1);
        if (n < 0)
            return stat(out, &st) == 0 && !S_ISREG(st.st_mode);
        to[n] = 0;
        char *slash = strrchr(out, '/');
        int dir = to[0] == '/' || !slash ? 0 : (int)(slash - out) + 1;
        if (snprintf(full, sizeof full, "%.*s%s", dir, out, to) >= (int)sizeof full)
            return true;
        snprintf(out, PATH_MAX, "%s", full);
    }
    return true; /* a loop: open reports it */
}

/* Opens an unnamed file in the folder of `path`, so that a killed process leaves nothing behind. File systems without such files, and
 * systems without /proc, by which they are named, get one named path.tmp-XXXXXX. tmp: its name, or "". */
static int open_temporary(const char *path, char tmp[PATH_MAX])
{
    char dir[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    mode_t mask = umask(0);
    umask(mask);
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    *tmp = 0;
    int fd =
        access("/proc/self/fd", X_OK) == 0 ? open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    if (fd < 0 && snprintf(tmp, PATH_MAX, "%s.tmp-XXXXXX", path) < PATH_MAX)
        fd = mkostemp(tmp, O_CLOEXEC);
    if (fd >= 0) /* a replaced file keeps its permissions */
        (void)fchmod(fd, stat(path, &st) == 0 ? st.st_mode & 0777 : 0666 & ~mask);
    return fd;
}

/* Links fd, an unnamed file, as `tmp`, a name that starts with `path`. */
static bool name_temporary(int fd, const char *path, char tmp[PATH_MAX])
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    for (int i = 0; i < 100; i++) { /* skips names left by processes that were killed just here */
        if (snprintf(tmp, PATH_MAX, "%s.tmp-%d-%d", path, (int)getpid(), i) >= PATH_MAX) {
            errno = ENAMETOOLONG;
            break;
        }
        if (linkat(AT_FDCWD, self, AT_FDCWD, tmp, AT_SYMLINK_FOLLOW) == 0)
            return true;
        if (errno != EEXIST)
            break;
    }
    *tmp = 0;
    return false;
}

nnc_status nnc_file_write_by(const char *path, nnc_status (*make)(void *ctx, nnc_out *out),
    void *ctx, bool durable, nnc_sink *sink)
{
    char target[PATH_MAX], tmp[PATH_MAX];
    if (strlen(path) >= PATH_MAX - 32)
        return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = path}, "the path is too long");
    if (nnc_file_resolve(path, target)) {
        int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
        nnc_status s = fill(fd, path, make, ctx, false, sink);
        return close_file(fd, path, s, sink);
    }
    int fd = open_temporary(target, tmp);
    nnc_status s = fill(fd, path, make, ctx, durable, sink);
    if (!s && !*tmp && !name_temporary(fd, target, tmp))
        s = io_fail(sink, path, "cannot write");
    s = close_file(fd, path, s, sink);
    if (!s && rename(tmp, target) != 0)
        s = io_fail(sink, path, "cannot write");
    if (s && *tmp)
        unlink(tmp);
    return s;
}

nnc_status nnc_file_can_write(const char *path, nnc_sink *sink)
{
    char target[PATH_MAX], tmp[PATH_MAX];
    struct stat st;
    bool in_place = nnc_file_resolve(path, target);
    int fd = in_place ? -1 : open_temporary(target, tmp);
    if (fd >= 0 && *tmp)
        unlink(tmp);
    if (fd >= 0)
        return close_file(fd, path, NNC_OK, sink);
    if (in_place && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        errno = EISDIR;
    else if (in_place && access(path, W_OK) == 0)
        return NNC_OK;
    return io_fail(sink, path, "cannot write");
}

nnc_status nnc_file_reserve(const char *path, int64_t n, int *fd, nnc_sink *sink)
{
    char target[PATH_MAX], tmp[PATH_MAX];
    *fd = -1;
    if (nnc_file_resolve(path, target))
        return NNC_OK;
    if ((*fd = open_temporary(target, tmp)) < 0)
        return io_fail(sink, path, "cannot write");
    if (*tmp)
        unlink(tmp); /* what is open keeps its room */
    if (fallocate(*fd, 0, 0, n) == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return NNC_OK;
    nnc_status s = nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = path}, "cannot write %lld bytes: %s",
        (long long)n, strerror(errno));
    close(*fd);
    *fd = -1;
    return s;
}

typedef struct bytes {
    const void *p;
    size_t n;
} bytes;

static nnc_status put_bytes(void *ctx, nnc_out *out)
{
    const bytes *all = ctx;
    return nnc_out_put(out, all->p, all->n);
}

nnc_status nnc_file_write(
    const char *path, const void *data, size_t n, bool durable, nnc_sink *sink)
{
    bytes all = {data, n};
    return nnc_file_write_by(path, put_bytes, &all, durable, sink);
}

bool nnc_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

uint64_t nnc_file_version(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 0;
    const int64_t of[] = {(int64_t)st.st_ino, st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    return nnc_hash64(of, sizeof of, (uint64_t)st.st_dev) | 1;
}

nnc_status nnc_map_open(nnc_map *m, const char *path, nnc_sink *sink)
{
    *m = (nnc_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return io_fail(sink, path, "cannot open");
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = path}, "is not a regular file");
    }
    void *p = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (p == MAP_FAILED)
        return io_fail(sink, path, "cannot map");
    m->data = p;
    m->n = (size_t)st.st_size;
    return NNC_OK;
}

nnc_status nnc_map_blank(nnc_map *m, size_t n, nnc_sink *sink)
{
    *m = (nnc_map){0};
    void *p = n ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0)
                : NULL;
    NNC_NEED(p != MAP_FAILED, sink);
    *m = (nnc_map){p, n};
    return NNC_OK;
}

void nnc_map_drop(const nnc_map *m, size_t from, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), start = (from + page - 1) / page * page;
    size_t end = (from + n) / page * page;
    if (end > start)
        madvise((char *)m->data + start, end - start, MADV_DONTNEED);
}

void nnc_map_close(nnc_map *m)
{
    if (m->data)
        munmap((void *)m->data, m->n);
    *m = (nnc_map){0};
}
