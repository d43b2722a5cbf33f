/* data/source.c -- recognises the format of a file or folder of samples, and opens it. */
#include "data/internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

void nnc_source_close(nnc_source *o)
{
    if (!o)
        return;
    if (o->ops->close)
        o->ops->close(o);
    nnc_arena_deinit(&o->arena);
    nnc_free(o);
}

nnc_status nnc_source_made(nnc_source *o, nnc_status s, nnc_source **out)
{
    if (s)
        nnc_source_close(o);
    else
        *out = o;
    return s;
}

nnc_status nnc_source_class(int64_t class, void *to)
{
    memcpy(to, &class, sizeof class);
    return NNC_OK;
}

nnc_status nnc_source_fail(const nnc_source *o, int64_t i, nnc_sink *sink, const char *fmt, ...)
{
    char place[64] = "";
    NNC_LOCAL(nnc_text) file = {0};
    o->ops->name(o, i, &file, place);
    const nnc_loc loc = {.file = nnc_text_str(&file)};
    va_list ap;
    va_start(ap, fmt);
    nnc_status s = nnc_vfail(sink, NNC_E_MODEL, loc, *place ? place : NULL, fmt, ap);
    va_end(ap);
    return s;
}

/* ---- folders --------------------------------------------------------------------------------- */

bool nnc_name_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && !strcasecmp(name + n - m, end);
}

/* Is the entry a folder? 1, 0, or -1: neither a folder nor a file, or it cannot be looked at. */
static int is_folder(DIR *d, const struct dirent *e)
{
    struct stat st;
    if (e->d_type == DT_DIR || e->d_type == DT_REG)
        return e->d_type == DT_DIR;
    if (fstatat(dirfd(d), e->d_name, &st, 0) != 0)
        return -1;
    return S_ISDIR(st.st_mode) ? 1 : S_ISREG(st.st_mode) ? 0 : -1;
}

nnc_status nnc_list_folder(
    nnc_arena *a, const char *path, bool folders, nnc_names *out, nnc_sink *sink)
{
    DIR *d = opendir(path);
    nnc_status s = NNC_OK;
    if (!d)
        return nnc_fail(
            sink, NNC_E_IO, (nnc_loc){.file = path}, "cannot open: %s", strerror(errno));
    *out = (nnc_names){0};
    for (const struct dirent *e; !s && (e = readdir(d)) != NULL;) {
        if (*e->d_name == '.' || is_folder(d, e) != folders)
            continue;
        if (ARENA_ROOM(a, out->at, out->room, out->n + 1))
            out->at[out->n] = nnc_arena_strdup(a, e->d_name);
        if (out->n == out->room || !out->at[out->n++])
            s = nnc_nomem(sink);
    }
    closedir(d);
    if (!s && out->n)
        qsort(out->at, out->n, sizeof *out->at, nnc_by_text);
    return s;
}

/* ---- recognition ----------------------------------------------------------------------------- */

/* The one file of a folder that has the pictures of idx, those of tests left out. */
static nnc_status find_idx(
    const nnc_request *q, nnc_arena *a, const nnc_names *files, const char **found, nnc_sink *sink)
{
    int n = 0;
    *found = NULL;
    for (size_t i = 0; i < files->n; i++) {
        const char *name = files->at[i];
        if (!strstr(name, "images") || strstr(name, "t10k") || strstr(name, "test"))
            continue;
        const char *path = nnc_arena_printf(a, "%s/%s", q->path, name);
        NNC_NEED(path, sink);
        if (nnc_is_idx(path) && ++n)
            *found = path;
    }
    return n < 2 ? NNC_OK
                 : nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = q->path},
                       "has several files of pictures (idx), such as %s: name one of them", *found);
}

/* Names that end so; false: there are none. */
static bool keep(nnc_names *names, const char *end)
{
    size_t n = 0;
    for (size_t i = 0; i < names->n; i++)
        if (nnc_name_ends(names->at[i], end))
            names->at[n++] = names->at[i];
    if (n)
        names->n = n;
    return n > 0;
}

static nnc_status open_folder(const nnc_request *q, nnc_arena *a, nnc_source **out, nnc_sink *sink)
{
    const char *idx = NULL;
    nnc_names files = {0}, folders = {0};
    NNC_TRY(nnc_list_folder(a, q->path, false, &files, sink));
    NNC_TRY(nnc_list_folder(a, q->path, true, &folders, sink));
    NNC_TRY(find_idx(q, a, &files, &idx, sink));
    if (idx)
        return nnc_idx_source(q, idx, out, sink);
    if (keep(&files, ".bin"))
        return nnc_cifar_source(q, &files, out, sink);
    if (folders.n)
        return nnc_folder_source(q, &folders, out, sink);
    return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = q->path},
        "has no samples: expected a folder for each class with its JPEG and PNG files, the .bin "
        "files of CIFAR, or the idx files of MNIST");
}

static nnc_status open_file(const nnc_request *q, nnc_source **out, nnc_sink *sink)
{
    if (nnc_is_idx(q->path))
        return nnc_idx_source(q, q->path, out, sink);
    return nnc_name_ends(q->path, ".bin") ? nnc_cifar_source(q, NULL, out, sink)
                                          : nnc_tensors_source(q, out, sink);
}

nnc_status nnc_source_open(const nnc_request *q, nnc_source **out, nnc_sink *sink)
{
    struct stat st;
    *out = NULL;
    if (stat(q->path, &st) != 0)
        return nnc_fail(
            sink, NNC_E_IO, (nnc_loc){.file = q->path}, "cannot open: %s", strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return open_file(q, out, sink);
    nnc_arena a = {0};
    nnc_status s = open_folder(q, &a, out, sink);
    nnc_arena_deinit(&a);
    return s;
}
