/* base/par.c -- data parallelism: a pthread pool per calling thread, unless the OpenMP plug-in has been installed. */
#include "base/base.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORKERS = 255, SPIN = 2000 };

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    atomic_uint epoch; /* one higher for every job */
    atomic_int running; /* workers still in the current job */
    bool stop;
    int n; /* workers: parts 1..n */
    nnc_par_body body;
    void *ctx;
    int parts;
    pthread_t thread[MAX_WORKERS];
} pool;

typedef struct worker {
    pool *p;
    int part;
    unsigned seen; /* epoch at which it was made */
} worker;

static void (*installed)(int threads, nnc_par_body body, void *ctx);
static pthread_key_t pool_key;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static __thread bool inside; /* nested calls run serially */

static unsigned next_epoch(pool *p, unsigned seen, bool *stop)
{
    for (int i = 0; i < SPIN; i++) {
        unsigned e = atomic_load(&p->epoch);
        if (e != seen)
            break;
        if (i % 64 == 63)
            sched_yield();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->epoch) == seen && !p->stop)
        pthread_cond_wait(&p->start, &p->lock);
    *stop = p->stop;
    unsigned e = atomic_load(&p->epoch);
    pthread_mutex_unlock(&p->lock);
    return e;
}

static void *work(void *arg)
{
    worker w = *(worker *)arg;
    bool stop = false;
    nnc_free(arg);
    inside = true;
    for (unsigned seen = w.seen;;) {
        seen = next_epoch(w.p, seen, &stop);
        if (stop)
            return NULL;
        if (w.part < w.p->parts)
            w.p->body(w.p->ctx, w.part, w.p->parts);
        pthread_mutex_lock(&w.p->lock);
        if (atomic_fetch_sub(&w.p->running, 1) == 1)
            pthread_cond_signal(&w.p->done);
        pthread_mutex_unlock(&w.p->lock);
    }
}

static void destroy(void *arg)
{
    pool *p = arg;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    nnc_free(p);
}

static void make_key(void)
{
    pthread_key_create(&pool_key, destroy);
}

static pool *my_pool(void)
{
    pthread_once(&pool_once, make_key);
    pool *p = pthread_getspecific(pool_key);
    if (p)
        return p;
    p = nnc_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    if (pthread_setspecific(pool_key, p) != 0) {
        destroy(p);
        return NULL;
    }
    return p;
}

static bool add_worker(pool *p)
{
    worker *w = nnc_malloc(sizeof *w);
    if (!w)
        return false;
    *w = (worker){p, p->n + 1, atomic_load(&p->epoch)};
    if (pthread_create(&p->thread[p->n], NULL, work, w) != 0) {
        nnc_free(w);
        return false;
    }
    p->n++;
    return true;
}

void nnc_par_run(int threads, nnc_par_body body, void *ctx)
{
    if (threads <= 1 || inside) {
        for (int i = 0; i < (threads < 1 ? 1 : threads); i++)
            body(ctx, i, threads < 1 ? 1 : threads);
        return;
    }
    if (installed) {
        installed(threads, body, ctx);
        return;
    }
    pool *p = my_pool();
    while (p && p->n < threads - 1 && p->n < MAX_WORKERS && add_worker(p))
        ;
    int n = p ? p->n : 0;
    if (n) {
        pthread_mutex_lock(&p->lock);
        p->body = body;
        p->ctx = ctx;
        p->parts = threads;
        atomic_store(&p->running, n);
        atomic_fetch_add(&p->epoch, 1);
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->lock);
    }
    inside = true;
    body(ctx, 0, threads);
    for (int i = n + 1; i < threads; i++)
        body(ctx, i, threads);
    inside = false;
    if (!n)
        return;
    for (int i = 0; i < SPIN && atomic_load(&p->running); i++)
        if (i % 64 == 63)
            sched_yield();
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->running))
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void nnc_par_set(void (*run)(int threads, nnc_par_body body, void *ctx))
{
    installed = run;
}

void nnc_par_thread_exit(void)
{
    pthread_once(&pool_once, make_key);
    destroy(pthread_getspecific(pool_key));
    pthread_setspecific(pool_key, NULL);
}

/* CPUs worth of time that the cgroup grants, 0 = no limit (cgroup v2 cpu.max, then v1). */
static int quota_cpus(void)
{
    long long quota = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2)
            quota = 0;
        fclose(f);
    } else if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re"))) {
        if (fscanf(f, "%lld", &quota) != 1)
            quota = 0;
        fclose(f);
        period = 100000;
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int nnc_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                        : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int q = quota_cpus();
    if (q && q < n)
        n = q;
    return n < 1 ? 1 : n;
}

/* ---- can threads be started? ---------------------------------------------------------------------------------- */

static void *wait_for_end(void *end)
{
    pthread_mutex_lock(end);
    pthread_mutex_unlock(end);
    return NULL;
}

int nnc_par_available(int threads)
{
    pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *t = nnc_malloc((size_t)nnc_max64(threads, 1) * sizeof *t);
    int n = 0;
    if (!t)
        return 1;
    pthread_mutex_lock(&end); /* all are alive at once */
    while (n < threads - 1 && pthread_create(&t[n], NULL, wait_for_end, &end) == 0)
        n++;
    pthread_mutex_unlock(&end);
    for (int i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    pthread_mutex_destroy(&end);
    nnc_free(t);
    return n + 1;
}

nnc_status nnc_par_check(int threads, nnc_sink *sink)
{
    int n = nnc_par_available(threads);
    if (n >= threads)
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_DEVICE,
        "cannot start %d threads, only %d: use --threads=%d, or raise the limits on processes and "
        "memory (ulimit -u, ulimit -v, the container's pids limit)",
        threads, n, n);
}
