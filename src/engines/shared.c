/* engines/shared.c -- see shared.h. */
#include "engines/shared.h"

#include <pthread.h>

typedef struct shared_entry {
    const shared_kind *kind;
    const nnc_plan *plan;
    const void *data;
    size_t n;
    void *object;
    int users;
    struct shared_entry *next;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *all;

static nnc_status add(
    const shared_kind *kind, const nnc_plan *p, const nnc_blob *b, entry **out, nnc_sink *sink)
{
    entry *e = nnc_malloc(sizeof *e);
    if (!e)
        return nnc_nomem(sink);
    *e = (entry){kind, p, b->data, b->n, NULL, 0, all};
    nnc_status s = kind->load(p, b, &e->object, sink);
    if (s != NNC_OK) {
        nnc_free(e);
        return s;
    }
    *out = all = e;
    return NNC_OK;
}

nnc_status shared_acquire(
    const shared_kind *kind, const nnc_plan *p, int object, shared_object *out, nnc_sink *sink)
{
    const nnc_blob *b = &p->object[object];
    nnc_status s = NNC_OK;
    pthread_mutex_lock(&lock);
    entry *e = all;
    while (e && (e->kind != kind || e->plan != p || e->data != b->data || e->n != b->n))
        e = e->next;
    if (!e)
        s = add(kind, p, b, &e, sink);
    if (s == NNC_OK) {
        e->users++;
        *out = (shared_object){e->object, e};
    }
    pthread_mutex_unlock(&lock);
    return s;
}

void shared_release(shared_object *o)
{
    entry *e = o->entry;
    if (!e)
        return;
    pthread_mutex_lock(&lock);
    if (--e->users == 0) {
        entry **at = &all;
        while (*at != e)
            at = &(*at)->next;
        *at = e->next;
        e->kind->unload(e->object);
        nnc_free(e);
    }
    pthread_mutex_unlock(&lock);
    *o = (shared_object){0};
}
