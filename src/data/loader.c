/* data/loader.c -- threads that load batches ahead of their use.
 *
 *     ring of SLOTS batches   | b: in use | b + 1: loaded | b + 2: loading |
 *
 * A batch is divided into pieces of rows; a thread takes the next piece of the pass whose slot is free. A piece's place in the ring
 * follows from its number, so that batches are the same for any number of threads. A row that fails marks its batch: who takes the batch
 * loads it once more, in order, and reports the first failure. */
#include "base/signals.h"
#include "data/internal.h"

#include <pthread.h>

enum { SLOTS = NNC_DATA_BATCHES };

typedef struct slot {
    void *data[NNC_DATA_INPUTS];
    int64_t missing; /* pieces of its batch that are not loaded */
    bool failed;
} slot;

typedef struct thread {
    nnc_loader *l;
    pthread_t id;
    nnc_scratch scratch;
} thread;

struct nnc_loader {
    nnc_load w;
    int64_t piece, pieces; /* rows of a piece; pieces of a batch */
    thread *thread;
    int n_thread;
    int n_slot;
    slot slot[SLOTS];
    nnc_scratch scratch; /* of the caller */
    pthread_mutex_t lock; /* of what follows, and of slots but their data */
    pthread_cond_t work; /* there may be a piece to load, or none ever */
    pthread_cond_t done; /* a batch is loaded, or no thread is busy */
    int64_t next, end; /* pieces of the pass: the next that a thread takes */
    int64_t last; /* batch after the pass's last */
    int64_t batch, free; /* the next that is taken; batches before `free` are no longer used */
    int busy;
    bool stop;
    nnc_data_times times;
};

/* ---- loading --------------------------------------------------------------------------------- */

static nnc_status load_rows(
    const nnc_loader *l, int64_t batch, int64_t from, int64_t to, nnc_scratch *s, nnc_sink *sink)
{
    const slot *at = &l->slot[batch % l->n_slot];
    for (int64_t r = from; r < to; r++)
        NNC_TRY(l->w.row(l->w.ctx, batch, r, at->data, s, sink));
    return NNC_OK;
}

/* Loads piece p. The lock is held, but not meanwhile. */
static void load_piece(nnc_loader *l, int64_t p, nnc_scratch *s)
{
    const int64_t batch = p / l->pieces, from = p % l->pieces * l->piece;
    l->busy++;
    pthread_mutex_unlock(&l->lock);
    const int64_t begin = nnc_now_ns();
    const nnc_status status =
        load_rows(l, batch, from, nnc_min64(from + l->piece, l->w.rows), s, NULL);
    const int64_t ns = nnc_now_ns() - begin;
    pthread_mutex_lock(&l->lock);
    slot *at = &l->slot[batch % SLOTS];
    at->failed |= status != NNC_OK;
    l->times.load_ns += ns;
    l->busy--;
    if (!--at->missing || !l->busy)
        pthread_cond_broadcast(&l->done);
}

static void *load_pieces(void *arg)
{
    thread *t = arg;
    nnc_loader *l = t->l;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (l->next < l->end && l->next / l->pieces < l->free + SLOTS)
            load_piece(l, l->next++, &t->scratch);
        else
            pthread_cond_wait(&l->work, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- passes ---------------------------------------------------------------------------------- */

void nnc_loader_pause(nnc_loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->end = l->next;
    while (l->busy)
        pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static void reset(nnc_loader *l, int64_t batch)
{
    slot *s = &l->slot[batch % l->n_slot];
    s->missing = l->pieces;
    s->failed = false;
}

void nnc_loader_start(nnc_loader *l, int64_t first, int64_t end)
{
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_slot; i++)
        reset(l, first + i);
    l->batch = l->free = first;
    l->last = end;
    l->next = first * l->pieces;
    l->end = end * l->pieces;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

/* Waits for batch l->batch, which has slot s, and loads the pieces that no thread has begun. Threads may be late, on cores that others
 * use. The slot of the batch before is free from now on. */
static bool wait_for(nnc_loader *l, const slot *s)
{
    pthread_mutex_lock(&l->lock);
    if (l->free < l->batch) {
        reset(l, l->free + SLOTS);
        l->free = l->batch;
        pthread_cond_broadcast(&l->work);
    }
    while (s->missing) {
        if (l->next < l->end && l->next / l->pieces == l->batch)
            load_piece(l, l->next++, &l->scratch);
        else
            pthread_cond_wait(&l->done, &l->lock);
    }
    const bool failed = s->failed;
    pthread_mutex_unlock(&l->lock);
    return failed;
}

nnc_status nnc_loader_next(nnc_loader *l, const void **batch, nnc_sink *sink)
{
    const int64_t begin = nnc_now_ns();
    const slot *s = &l->slot[l->batch % l->n_slot];
    nnc_status status = NNC_OK;
    if (l->batch >= l->last)
        return nnc_fail0(sink, NNC_E_BUG, "there is no further batch");
    if (!l->n_thread || wait_for(l, s))
        status = load_rows(l, l->batch, 0, l->w.rows, &l->scratch, sink);
    for (int k = 0; k < l->w.n; k++)
        batch[k] = s->data[k];
    const int64_t ns = nnc_now_ns() - begin;
    pthread_mutex_lock(&l->lock);
    l->batch++;
    l->times.wait_ns += ns;
    l->times.load_ns += l->n_thread ? 0 : ns;
    pthread_mutex_unlock(&l->lock);
    return status;
}

nnc_data_times nnc_loader_take_times(nnc_loader *l)
{
    pthread_mutex_lock(&l->lock);
    const nnc_data_times t = l->times;
    l->times = (nnc_data_times){0};
    pthread_mutex_unlock(&l->lock);
    return t;
}

/* ---- creation -------------------------------------------------------------------------------- */

static nnc_status start_threads(nnc_loader *l, int threads, nnc_sink *sink)
{
    sigset_t before;
    nnc_signals_hold(&before);
    for (int i = 0; i < threads; i++, l->n_thread++) {
        l->thread[i].l = l;
        if (pthread_create(&l->thread[i].id, NULL, load_pieces, &l->thread[i]) != 0)
            break;
    }
    nnc_signals_release(&before);
    if (l->n_thread == threads)
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_DEVICE,
        "cannot start %d loader threads, only %d: use --loaders=%d, or raise the limits on "
        "processes and memory",
        threads, l->n_thread, l->n_thread);
}

static nnc_status make_slots(nnc_loader *l, nnc_sink *sink)
{
    for (int i = 0; i < l->n_slot; i++)
        for (int k = 0; k < l->w.n; k++) {
            l->slot[i].data[k] = nnc_aligned_alloc(
                64, (size_t)nnc_align_up(nnc_max64(l->w.bytes[k] * l->w.rows, 1), 64));
            NNC_NEED(l->slot[i].data[k], sink);
        }
    return NNC_OK;
}

nnc_status nnc_loader_create(const nnc_load *w, int threads, nnc_loader **out, nnc_sink *sink)
{
    nnc_loader *l = nnc_calloc(1, sizeof *l);
    *out = NULL;
    NNC_NEED(l, sink);
    l->w = *w;
    l->n_slot = threads ? SLOTS : 1;
    l->piece = nnc_max64(w->rows / (4 * nnc_max64(threads, 1)), 1);
    l->pieces = nnc_ceildiv(w->rows, l->piece);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    l->thread = nnc_calloc((size_t)threads + 1, sizeof *l->thread);
    nnc_status s = l->thread ? make_slots(l, sink) : nnc_nomem(sink);
    if (!s)
        s = start_threads(l, threads, sink);
    if (s)
        nnc_loader_destroy(l);
    else
        *out = l;
    return s;
}

void nnc_loader_destroy(nnc_loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_thread; i++) {
        pthread_join(l->thread[i].id, NULL);
        nnc_scratch_deinit(&l->thread[i].scratch);
    }
    for (int i = 0; i < l->n_slot; i++)
        for (int k = 0; k < l->w.n; k++)
            nnc_free(l->slot[i].data[k]);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    nnc_scratch_deinit(&l->scratch);
    nnc_free(l->thread);
    nnc_free(l);
}
