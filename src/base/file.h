/* base/file.h -- whole files, atomic replacement, cache directories, memory maps, plug-ins. */
#ifndef NNC_FILE_H
#define NNC_FILE_H

#include "base/num.h"

#include "base/arena.h"
#include "base/text.h"

/* Reads a whole file into *out (malloc'd with nnc_malloc, NUL appended, free with nnc_free). limit 0 = none. */
nnc_status nnc_file_read(const char *path, size_t limit, char **out, size_t *n, nnc_sink *sink) NNC_MUST;
/* Writes path atomically: temporary file in the same folder, fsync when `durable`, rename. Of a symbolic link the file that it points
 * to is replaced, or made. A pipe or device is written through. */
nnc_status nnc_file_write(const char *path, const void *data, size_t n, bool durable, nnc_sink *sink) NNC_MUST;
/* The same of several pieces, one after the other: tensors of many GB are not joined in memory. */
typedef struct nnc_piece { const void *p; size_t n; } nnc_piece;
nnc_status nnc_file_write_pieces(const char *path, int n, const nnc_piece *piece, bool durable, nnc_sink *sink) NNC_MUST;
/* The same of what make(ctx, out) puts, piece by piece. Where make fails, path stays as it was, and its status comes back. */
typedef struct nnc_out nnc_out;
nnc_status nnc_file_write_by(
    const char *path, nnc_status (*make)(void *ctx, nnc_out *out), void *ctx, bool durable, nnc_sink *sink) NNC_MUST;
nnc_status nnc_out_put(nnc_out *o, const void *p, size_t n) NNC_MUST; /* NNC_E_IO: make returns it, and is told why by the writer */
bool nnc_file_exists(const char *path);

typedef struct nnc_map { /* a read-only private mapping */
    const uint8_t *data;
    size_t n;
} nnc_map;
nnc_status nnc_map_open(nnc_map *m, const char *path, nnc_sink *sink) NNC_MUST;
void nnc_map_close(nnc_map *m);

/* Content-addressed cache: one file per key under $XDG_CACHE_HOME/nnc or ~/.cache/nnc (or `dir` when not NULL).
 * Entries carry a checksum; a damaged one reads as a miss and is removed. Safe under concurrent processes
 * (write = temporary + rename). All failures are silent misses: a cache is never needed for correctness. */
typedef struct nnc_cache nnc_cache;
nnc_cache *nnc_cache_open(const char *dir); /* NULL: caching is off (the folder is not there and cannot be made) */
bool nnc_cache_writable(const nnc_cache *c); /* false: entries are read only; NULL: too */
void nnc_cache_close(nnc_cache *c);
bool nnc_cache_get(nnc_cache *c, const char *kind, nnc_hash128 key, char **out, size_t *n); /* free with nnc_free */
void nnc_cache_put(nnc_cache *c, const char *kind, nnc_hash128 key, const void *data, size_t n);

/* Loads "libnnc_<name>.so" from $NNC_PLUGIN_DIR or from a folder found relative to the library or program that this code is linked into
 * (file.c says which), once per process, and returns its exported symbol `symbol`; NULL when absent, and why in *why (static or leaked
 * text). Thread-safe. */
void *nnc_plugin(const char *name, const char *symbol, const char **why);
/* Is the plug-in's file there? Does not load it. */
bool nnc_plugin_exists(const char *name);

#endif
