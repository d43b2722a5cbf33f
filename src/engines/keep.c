/* engines/keep.c -- the cache of algorithms selected by GPU engines. */
#include "engines/engines.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nnc_cache *cache;

void nnc_engines_keep(bool on, const char *dir)
{
    pthread_mutex_lock(&lock);
    nnc_cache_close(cache);
    cache = on ? nnc_cache_open(dir) : NULL;
    pthread_mutex_unlock(&lock);
}

bool nnc_engines_kept(const char *kind, nnc_hash128 key, char **out, size_t *n)
{
    pthread_mutex_lock(&lock);
    bool hit = cache && nnc_cache_get(cache, kind, key, out, n);
    pthread_mutex_unlock(&lock);
    return hit;
}

void nnc_engines_put(const char *kind, nnc_hash128 key, const void *data, size_t n)
{
    pthread_mutex_lock(&lock);
    if (cache)
        nnc_cache_put(cache, kind, key, data, n);
    pthread_mutex_unlock(&lock);
}
