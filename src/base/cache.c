/* base/cache.c -- the content-addressed cache: one file per entry, with checksums. */
#include "base/base.h"
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct nnc_cache {
    char dir[PATH_MAX - 128];
    bool writable;
};

typedef struct entry_head {
    char magic[8];
    uint64_t n;
    nnc_hash128 sum; /* hash of the chunks' hashes; threads check chunks in parallel */
} entry_head;

static const char entry_magic[8] = "nncache2";
enum { CHUNK = 1 << 20 };

static bool make_dirs(char *path)
{
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(path, 0777);
            *p = '/';
        }
    mkdir(path, 0777);
    return access(path, R_OK | X_OK) == 0;
}

nnc_cache *nnc_cache_open(const char *dir)
{
    nnc_cache *c = nnc_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (dir)
        n = snprintf(c->dir, sizeof c->dir, "%s", dir);
    else if (xdg && *xdg)
        n = snprintf(c->dir, sizeof c->dir, "%s/nnc", xdg);
    else if (home && *home)
        n = snprintf(c->dir, sizeof c->dir, "%s/.cache/nnc", home);
    if (n > 0 && n < (int)sizeof c->dir && make_dirs(c->dir)) {
        c->writable = access(c->dir, W_OK) == 0;
        return c;
    }
    nnc_free(c);
    return NULL;
}

bool nnc_cache_writable(const nnc_cache *c)
{
    return c && c->writable;
}

void nnc_cache_close(nnc_cache *c)
{
    nnc_free(c);
}

static void entry_path(const nnc_cache *c, const char *kind, nnc_hash128 key, char path[PATH_MAX])
{
    char hex[33];
    nnc_hash_hex(key, hex);
    snprintf(path, PATH_MAX, "%s/%.40s-%s", c->dir, kind, hex);
}

/* True for a regular file. Opening a pipe would block. */
static bool is_entry(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

typedef struct chunks {
    int fd; /* of the entry; -1: the bytes are in memory */
    char *at;
    size_t n;
    nnc_hash128 *sum;
} chunks;

static bool read_at(int fd, char *to, size_t n, off_t from)
{
    ssize_t got;
    for (; n; to += got, from += got, n -= (size_t)got)
        if ((got = pread(fd, to, n, from)) <= 0)
            return false;
    return true;
}

static void sum_chunks(void *ctx, int part, int parts)
{
    const chunks *c = ctx;
    int64_t i, end;
    nnc_par_range((int64_t)c->n, CHUNK, part, parts, &i, &end);
    for (; i < end; i += CHUNK) {
        const size_t some = (size_t)nnc_min64(CHUNK, end - i);
        const off_t from = (off_t)sizeof(entry_head) + i;
        if (c->fd < 0 || read_at(c->fd, c->at + i, some, from))
            c->sum[i / CHUNK] = nnc_hash(c->at + i, some);
    }
}

/* The sum of all bytes, which are read first if there is a file. False: out of memory. */
static bool sum_of(chunks c, int threads, nnc_hash128 *out)
{
    const size_t n = (c.n + CHUNK - 1) / CHUNK;
    NNC_FREED nnc_hash128 *sum = nnc_calloc(n + 1, sizeof *sum);
    c.sum = sum;
    if (!sum)
        return false;
    nnc_par_run((int)nnc_min64(threads, (int64_t)n), sum_chunks, &c);
    *out = nnc_hash(sum, n * sizeof *sum);
    return true;
}

/* Opens an entry and reads its head; *path: its file. -1: there is none. A pipe in its place is not waited for. */
static int open_entry(
    const nnc_cache *c, const char *kind, nnc_hash128 key, char path[PATH_MAX], entry_head *h)
{
    struct stat st;
    if (!c)
        return -1;
    entry_path(c, kind, key, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        if (read_at(fd, (char *)h, sizeof *h, 0) && !memcmp(h->magic, entry_magic, 8) &&
            h->n == (uint64_t)st.st_size - sizeof *h)
            return fd;
        unlink(path);
    }
    close(fd);
    return -1;
}

/* Reads the entry's bytes; one that is damaged is removed. */
static bool read_entry(int fd, const char *path, const entry_head *h, void *to, int threads)
{
    nnc_hash128 sum;
    const bool summed = sum_of((chunks){fd, to, h->n, NULL}, threads, &sum);
    const bool ok = summed && h->sum.lo == sum.lo && h->sum.hi == sum.hi;
    if (summed && !ok)
        unlink(path);
    return ok;
}

bool nnc_cache_get(nnc_cache *c, const char *kind, nnc_hash128 key, char **out, size_t *n)
{
    char path[PATH_MAX];
    entry_head h;
    const int fd = open_entry(c, kind, key, path, &h);
    NNC_FREED char *buf = fd >= 0 ? nnc_malloc(h.n + 1) : NULL;
    const bool ok = buf && read_entry(fd, path, &h, buf, 1);
    if (fd >= 0)
        close(fd);
    if (!ok)
        return false;
    *out = buf;
    *n = h.n;
    buf = NULL;
    return true;
}

bool nnc_cache_read(
    nnc_cache *c, const char *kind, nnc_hash128 key, void *to, size_t n, int threads)
{
    char path[PATH_MAX];
    entry_head h;
    const int fd = open_entry(c, kind, key, path, &h);
    const bool ok = fd >= 0 && h.n == n && read_entry(fd, path, &h, to, threads);
    if (ok && c->writable)
        (void)!futimens(fd, NULL); /* used last now: see nnc_cache_put_large */
    if (fd >= 0)
        close(fd);
    return ok;
}

typedef struct entry {
    entry_head head;
    const void *data;
} entry;

static nnc_status put_entry(void *ctx, nnc_out *out)
{
    const entry *e = ctx;
    NNC_TRY(nnc_out_put(out, &e->head, sizeof e->head));
    return nnc_out_put(out, e->data, e->head.n);
}

void nnc_cache_put(nnc_cache *c, const char *kind, nnc_hash128 key, const void *data, size_t n)
{
    char path[PATH_MAX];
    entry e = {.head.n = n, .data = data};
    memcpy(e.head.magic, entry_magic, 8);
    if (!nnc_cache_writable(c) || !sum_of((chunks){-1, (char *)data, n, NULL}, 1, &e.head.sum))
        return;
    entry_path(c, kind, key, path);
    if (!is_entry(path))
        unlink(path); /* a link, pipe or device instead of an entry */
    (void)!nnc_file_write_by(path, put_entry, &e, false, NULL); /* a lost entry is only a miss */
}

/* Bytes of the entries of a kind; *path: the one that was used longest ago, or "". */
static uint64_t entries_of(const nnc_cache *c, const char *kind, char path[PATH_MAX])
{
    DIR *d = opendir(c->dir);
    struct stat st, oldest = {0};
    uint64_t bytes = 0;
    char name[PATH_MAX];
    *path = 0;
    for (struct dirent *f; d && (f = readdir(d));) {
        if (strncmp(f->d_name, kind, strlen(kind)) != 0 || f->d_name[strlen(kind)] != '-' ||
            snprintf(name, sizeof name, "%s/%s", c->dir, f->d_name) >= PATH_MAX ||
            lstat(name, &st) != 0)
            continue;
        bytes += (uint64_t)st.st_size;
        if (*path && (st.st_mtim.tv_sec > oldest.st_mtim.tv_sec ||
                         (st.st_mtim.tv_sec == oldest.st_mtim.tv_sec &&
                             st.st_mtim.tv_nsec >= oldest.st_mtim.tv_nsec)))
            continue;
        oldest = st;
        memcpy(path, name, PATH_MAX);
    }
    if (d)
        closedir(d);
    return bytes;
}

void nnc_cache_put_large(
    nnc_cache *c, const char *kind, nnc_hash128 key, const void *data, size_t n, uint64_t most)
{
    enum { SHARE = 8 }; /* an entry takes at most 1/8 of the free space */
    char oldest[PATH_MAX];
    struct statvfs fs;
    if (!nnc_cache_writable(c) || n > most || statvfs(c->dir, &fs) != 0 ||
        n > (uint64_t)fs.f_bavail * fs.f_frsize / SHARE)
        return;
    while (entries_of(c, kind, oldest) > most - n && *oldest)
        if (unlink(oldest) != 0 && errno != ENOENT) /* else another process removed it */
            return;
    nnc_cache_put(c, kind, key, data, n);
}
