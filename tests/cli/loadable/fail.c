/* tests/cli/loadable/fail.c -- preloaded into nnc: the N-th system call on a file that a training writes fails. NNC_FAIL_AT=N counts calls
 * of open for writing, write, fsync, link, rename and ftruncate; NNC_FAIL_ERRNO is how. When the program ends without one, it leaves the
 * file NNC_FAIL_NONE: there were fewer calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long left = -1;
static int number, failed;

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("NNC_FAIL_AT"), *how = getenv("NNC_FAIL_ERRNO");
    left = at ? strtol(at, NULL, 10) : 0;
    number = how ? (int)strtol(how, NULL, 10) : ENOSPC;
}

__attribute__((destructor)) static void end(void)
{
    const char *file = getenv("NNC_FAIL_NONE");
    const int fd = file && !failed ? open(file, O_CREAT | O_RDONLY, 0666) : -1;
    if (fd >= 0)
        close(fd);
}

static int fails(void)
{
    if (left <= 0 || --left)
        return 0;
    failed = 1;
    errno = number;
    return 1;
}

#define REAL(name) ((__typeof__(&name))(__UINTPTR_TYPE__)dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
    va_end(ap);
    return (flags & O_ACCMODE) != O_RDONLY && fails() ? -1 : REAL(open)(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    return *mode != 'r' && fails() ? NULL : REAL(fopen)(path, mode);
}

ssize_t write(int fd, const void *p, size_t n)
{
    return fd > 2 && fails() ? -1 : REAL(write)(fd, p, n);
}

size_t fwrite(const void *p, size_t size, size_t n, FILE *f)
{
    return fileno(f) > 2 && fails() ? 0 : REAL(fwrite)(p, size, n, f);
}

int fflush(FILE *f)
{
    return f && fileno(f) > 2 && fails() ? EOF : REAL(fflush)(f);
}

int fsync(int fd)
{
    return fails() ? -1 : REAL(fsync)(fd);
}

int linkat(int from, const char *path, int to, const char *name, int flags)
{
    return fails() ? -1 : REAL(linkat)(from, path, to, name, flags);
}

int rename(const char *from, const char *to)
{
    return fails() ? -1 : REAL(rename)(from, to);
}

int ftruncate(int fd, off_t n)
{
    return fails() ? -1 : REAL(ftruncate)(fd, n);
}
