/* base/file.h -- whole files, atomic replacement, cache directories, memory maps, plug-ins. */
#ifndef NNC_FILE_H
#define NNC_FILE_H

#include "base/num.h"

#include "base/arena.h"
#include "base/text.h"
#include <limits.h>

/* Reads a whole file into *out (allocated with nnc_malloc, NUL appended, freed with nnc_free). limit 0 = none. */
nnc_status nnc_file_read(const char *path, size_t limit, char **out, size_t *n, nnc_sink *sink) NNC_MUST;
/* Writes path atomically: temporary file in the same folder, fsync when `durable`, rename. For a symbolic link, its target is replaced
 * or created. A pipe or device is written directly. */
nnc_status nnc_file_write(const char *path, const void *data, size_t n, bool durable, nnc_sink *sink) NNC_MUST;
/* The same for what make(ctx, out) writes, piece by piece, so that many GB need not be in memory together. When
 * make fails, path is unchanged and its status is returned. */
typedef struct nnc_out nnc_out;
nnc_status nnc_file_write_by(
    const char *path, nnc_status (*make)(void *ctx, nnc_out *out), void *ctx, bool durable, nnc_sink *sink) NNC_MUST;
nnc_status nnc_out_put(nnc_out *o, const void *p, size_t n) NNC_MUST; /* NNC_E_IO: make returns it, and the writer reports the reason */
/* NNC_E_IO where nnc_file_write could not write path. Changes no file. */
nnc_status nnc_file_can_write(const char *path, nnc_sink *sink) NNC_MUST;
/* Reserves n bytes of disk space beside path, where nnc_file_write would write, until *fd is closed (-1: a pipe or device, which needs
 * none). NNC_E_IO: the disk has less. Changes no file. */
nnc_status nnc_file_reserve(const char *path, int64_t n, int *fd, nnc_sink *sink) NNC_MUST;
bool nnc_file_exists(const char *path);
/* A number that changes when the file is replaced or written to; 0: it does not exist. */
uint64_t nnc_file_version(const char *path);
/* Reads the first n bytes of a regular file; the number that were read: 0 also for a pipe, of which nothing is taken. */
size_t nnc_file_start(const char *path, void *to, size_t n);
/* Resolves symbolic links of the last component; the file need not exist. out: the file that nnc_file_write replaces. True when the file
 * is written in place instead: a pipe or device, or a descriptor of a process (/dev/stdout). */
bool nnc_file_resolve(const char *path, char out[PATH_MAX]);

typedef struct nnc_map { /* a read-only private mapping */
    const uint8_t *data;
    size_t n;
} nnc_map;
nnc_status nnc_map_open(nnc_map *m, const char *path, nnc_sink *sink) NNC_MUST;
/* Gives back the memory of whole pages of a range, which are read from the file again when they are needed. */
void nnc_map_drop(const nnc_map *m, size_t from, size_t n);
/* n zeros that take memory where they are written. */
nnc_status nnc_map_blank(nnc_map *m, size_t n, nnc_sink *sink) NNC_MUST;
void nnc_map_close(nnc_map *m);

/* Content-addressed cache: one file per key in $XDG_CACHE_HOME/nnc or ~/.cache/nnc (or `dir` when not NULL). Entries have a checksum;
 * a damaged one is treated as a miss and removed. Safe under concurrent processes (temporary file + rename). All failures are silent
 * misses, since correctness never depends on the cache. */
typedef struct nnc_cache nnc_cache;
nnc_cache *nnc_cache_open(const char *dir); /* NULL: no caching (the folder does not exist and cannot be created) */
bool nnc_cache_writable(const nnc_cache *c); /* false: entries are only read; false for NULL */
void nnc_cache_close(nnc_cache *c);
bool nnc_cache_get(nnc_cache *c, const char *kind, nnc_hash128 key, char **out, size_t *n); /* free with nnc_free */
void nnc_cache_put(nnc_cache *c, const char *kind, nnc_hash128 key, const void *data, size_t n);
/* Reads an entry of n bytes into memory that exists, on so many threads. False: a miss; the memory's contents are undefined. */
bool nnc_cache_read(nnc_cache *c, const char *kind, nnc_hash128 key, void *to, size_t n, int threads);
/* nnc_cache_put, with at most `most` bytes of this kind in the cache: those read longest ago are removed first. */
void nnc_cache_put_large(nnc_cache *c, const char *kind, nnc_hash128 key, const void *data, size_t n, uint64_t most);

/* Loads "libnnc_<name>.so" once per process and returns its symbol `symbol`. It is in $NNC_PLUGIN_DIR or a folder found relative to the
 * library or program that contains this code (plugin.c). NULL when absent, with the reason, and where a package would help its name, in
 * *why (never freed). Thread-safe. */
void *nnc_plugin(const char *name, const char *symbol, const char **why);
/* Does nnc_plugin return the symbol? Earlier successes are recorded in the cache (NULL: none) and answered without loading. */
bool nnc_plugin_loads(const char *name, const char *symbol, nnc_cache *cache);
bool nnc_plugin_exists(const char *name); /* does its file? */

#endif
