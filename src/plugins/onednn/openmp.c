/* plugins/onednn/openmp.c -- the part of OpenMP's runtime that oneDNN calls, on nnc's team of threads. A second team, libgomp's, would
 * fight with nnc's for the cores (spinning, ten times slower; sleeping, 5 to 50 us a region), and ends the process where it cannot start
 * a thread.
 *
 * These definitions come before libgomp's in the scope in which the dynamic linker binds oneDNN, which is opened by this plug-in. They do
 * not where the program itself brought libgomp into the global scope or has opened oneDNN before: then oneDNN has libgomp's threads, and
 * dn_has_team says so. */
#include "base/par.h"
#include "plugins/onednn/calls.h"
#include "plugins/onednn/watch.h"
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>

typedef struct region {
    void (*fn)(void *);
    void *data;
    int n; /* threads */
    int most; /* of regions inside, as in the thread that opened this one */
    bool parallel;
    atomic_bool invalid; /* a thread's flag went up (watch.h) */
    _Atomic int arrived; /* at the barrier */
    _Atomic unsigned barriers;
} region;

static _Thread_local region *in;
static _Thread_local int me, most = 1;
static atomic_bool asked; /* oneDNN has called a function of this file */

#define EXPORT __attribute__((visibility("default")))
EXPORT int omp_get_max_threads(void);
EXPORT int omp_get_num_threads(void);
EXPORT int omp_get_thread_num(void);
EXPORT int omp_in_parallel(void);
EXPORT void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
EXPORT void GOMP_barrier(void);

int omp_get_max_threads(void)
{
    atomic_store_explicit(&asked, true, memory_order_relaxed);
    return most;
}

int omp_get_num_threads(void)
{
    return in ? in->n : 1;
}

int omp_get_thread_num(void)
{
    return me;
}

int omp_in_parallel(void)
{
    return in && in->parallel;
}

static void run_part(void *ctx, int part, int parts)
{
    region *r = ctx, *outer = in;
    const int id = me, most_before = most;
    (void)parts;
    in = r;
    me = part;
    most = r->most;
    const bool flag = dn_flag_lower();
    r->fn(r->data);
    if (dn_flag_restore(flag))
        atomic_store_explicit(&r->invalid, true, memory_order_relaxed);
    in = outer;
    me = id;
    most = most_before;
}

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags)
{
    const int n = omp_in_parallel() ? 1 : threads ? (int)threads : most;
    region r = {fn, data, n, most, n > 1 || omp_in_parallel(), false, 0, 0};
    (void)flags; /* how threads are bound */
    nnc_par_run(n, run_part, &r);
    if (atomic_load_explicit(&r.invalid, memory_order_relaxed))
        (void)dn_flag_restore(true);
}

void GOMP_barrier(void)
{
    enum { SPINS = 1000 };
    if (!in || in->n == 1)
        return;
    const unsigned now = atomic_load(&in->barriers);
    if (atomic_fetch_add(&in->arrived, 1) == in->n - 1) {
        atomic_store(&in->arrived, 0);
        atomic_store(&in->barriers, now + 1);
        return;
    }
    for (int i = 0; atomic_load_explicit(&in->barriers, memory_order_acquire) == now; i++)
        if (i >= SPINS)
            sched_yield();
}

int dn_threads(int n)
{
    const int before = most;
    most = n > 1 ? n : 1;
    if (!atomic_load_explicit(&asked, memory_order_relaxed)) {
        /* libgomp's, of which oneDNN brings one along in any case */
        void (*theirs)(int);
        *(void **)&theirs = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
        if (theirs)
            theirs(most);
    }
    return before;
}

/* The program hands over its nnc_par_run when it opens the plug-in. */
EXPORT void nnc_plugin_par_set(void (*run)(int threads, nnc_par_body body, void *ctx));
void nnc_plugin_par_set(void (*run)(int threads, nnc_par_body body, void *ctx))
{
    nnc_par_set(run);
}

bool dn_has_team(void)
{
    return atomic_load(&asked);
}
