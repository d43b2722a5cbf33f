/* base/par.c -- teams of threads.
 *
 * How threads wait. Between two loops of a run, and at a loop's end, a thread spins. A loop then starts and ends without a system call, in
 * a fraction of the time that waking a sleeping thread takes. Spinning takes the core from whoever else wants it, so each wait is bounded
 * and then sleeps (futex):
 *   AWAKE     inside the team: longer than the serial parts between two loops
 *   LINGER    outside: back-to-back runs find the team awake
 *   CROWDED   while other programs, or more threads than cores, want the cores. A thread notices that by the clock: it did not run
 *             between two looks at it, or another member takes far longer for its part. Without this, two programs with two threads
 *             each on two cores spend whole time slices spinning for threads that the other one's spinning keeps from running.
 *
 * A thread that is not there when a loop begins (asleep, preempted) is not waited for: member 0 does its parts as well.
 *
 * Cores. Schedulers like to wake a thread on the core of the one that wakes it. Two threads of a team on one core are slower than one
 * thread. A worker that finds itself on another member's core excludes the team's cores from its own affinity mask. The mask of the thread
 * that entered the team stays the user's. */
#include "base/base.h"
#include "base/lock.h"
#include "base/signals.h"
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { AWAKE = 1000000, LINGER = 50000, CROWDED = 20000 }; /* ns */
enum {
    PREEMPTED = 300000
}; /* ns between two looks at the clock, which are 2 to 4 us apart otherwise */
enum { CALM = 100000000 }; /* ns that a preempted team stays in CROWDED */
enum {
    UNEVEN = 50000
}; /* ns: a part that takes longer than three times member 0's and this belongs to a preempted thread */
enum { LOOKS = 32 }; /* pauses between two looks at the clock */

/* A number that others wait to change. */
typedef struct cell {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} cell;

typedef struct member {
    cell done; /* the last loop whose parts its thread has finished */
    _Atomic uint32_t claimed; /* the last loop whose parts some thread has begun */
    _Atomic int cpu;
    nnc_team *team;
    pthread_t thread;
} member;

struct nnc_team {
    cell loop; /* number of loops given so far; what follows describes the last one */
    nnc_par_body body;
    void *ctx;
    int parts;
    _Atomic bool stop; /* a thread that is late for the last loop may read it while the team ends */
    _Alignas(64) _Atomic bool inside;
    _Atomic int64_t crowded_until;
    bool crowded; /* more threads than CPUs */
    uint32_t forks; /* nnc_forks when its threads were started */
    pid_t caller;
    int n; /* members; member 0 is the thread inside */
    member member[];
};

static _Thread_local nnc_team *entered;
static _Thread_local bool in_part; /* nested calls are serial */
static _Thread_local pid_t self; /* of the thread; 0: not asked yet */

/* ---- forks ----------------------------------------------------------------------------------- */

static uint32_t forks; /* changes only in a new process, which has one thread */
static pthread_rwlock_t forking = PTHREAD_RWLOCK_INITIALIZER; /* readers hold locks */

static void before_fork(void)
{
    pthread_rwlock_wrlock(&forking);
}

static void after_fork(void)
{
    pthread_rwlock_unlock(&forking);
}

static void note_fork(void)
{
    /* It counts threads of the parent that wait. */
    forking = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    forks++;
    self = 0;
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, note_fork); /* fails only without memory */
}

uint32_t nnc_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    return forks;
}

void nnc_lock(pthread_mutex_t *m)
{
    (void)nnc_forks(); /* watches them from now on */
    pthread_rwlock_rdlock(&forking);
    pthread_mutex_lock(m);
}

void nnc_unlock(pthread_mutex_t *m)
{
    pthread_mutex_unlock(m);
    pthread_rwlock_unlock(&forking);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    /* Waits some ten cycles; the hint `yield` does nothing on most cores. */
    __asm__ volatile("isb");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t patience(const nnc_team *t, int64_t now)
{
    if (t->crowded || now < atomic_load_explicit(&t->crowded_until, memory_order_relaxed))
        return CROWDED;
    return atomic_load_explicit(&t->inside, memory_order_relaxed) ? AWAKE : LINGER;
}

/* Spins until c is no longer `old` (true), patience ends, or the wait has become longer than it can be when all members run. */
static bool spin(nnc_team *t, const cell *c, uint32_t old, int64_t longest)
{
    int64_t begin = 0, last = 0;
    for (unsigned i = 1; atomic_load_explicit(&c->value, memory_order_acquire) == old; i++) {
        pause_cpu();
        if (i % LOOKS)
            continue;
        int64_t now = clock_ns();
        begin = begin ? begin : now;
        if ((last && now - last > PREEMPTED) || now - begin > longest)
            atomic_store_explicit(&t->crowded_until, now + CALM, memory_order_relaxed);
        if (now - begin > patience(t, now))
            return false;
        last = now;
    }
    return true;
}

static void wait_change(nnc_team *t, cell *c, uint32_t old, int64_t longest)
{
    if (spin(t, c, old, longest))
        return;
    atomic_fetch_add(&c->sleepers, 1);
    while (atomic_load(&c->value) == old)
        (void)syscall(SYS_futex, &c->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&c->sleepers, 1);
}

static void change(cell *c, uint32_t value)
{
    atomic_store(&c->value, value);
    if (atomic_load(&c->sleepers))
        (void)syscall(SYS_futex, &c->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* ---- cores ----------------------------------------------------------------------------------- */

static void move_away(const nnc_team *t)
{
    cpu_set_t mask;
    if (sched_getaffinity(t->caller, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) < t->n)
        return;
    for (int i = 0; i < t->n; i++) {
        int cpu = atomic_load_explicit(&t->member[i].cpu, memory_order_relaxed);
        if (cpu >= 0)
            CPU_CLR(cpu, &mask);
    }
    if (CPU_COUNT(&mask) > 0)
        (void)sched_setaffinity(0, sizeof mask, &mask); /* refused: slower, not wrong */
}

/* Notes the calling member's core. A worker looks at the other workers' every 16th time only. */
static void take_place(nnc_team *t, int me, uint32_t loop)
{
    int cpu = sched_getcpu();
    if (cpu != atomic_load_explicit(&t->member[me].cpu, memory_order_relaxed))
        atomic_store_explicit(&t->member[me].cpu, cpu, memory_order_relaxed);
    for (int i = 0; me && i < (loop % 16 ? 1 : t->n); i++)
        if (i != me && cpu >= 0 && cpu < CPU_SETSIZE &&
            atomic_load_explicit(&t->member[i].cpu, memory_order_relaxed) == cpu) {
            move_away(t);
            return;
        }
}

/* ---- members --------------------------------------------------------------------------------- */

static void take_parts(const nnc_team *t, int me)
{
    for (int i = me; i < t->parts; i += t->n)
        t->body(t->ctx, i, t->parts);
}

/* Member `me`'s parts of a loop are done by its own thread or, when that is late, by member 0. */
static bool claim(nnc_team *t, int me, uint32_t loop)
{
    uint32_t before = loop - 1;
    return atomic_compare_exchange_strong(&t->member[me].claimed, &before, loop);
}

static void *work(void *arg)
{
    member *m = arg;
    nnc_team *t = m->team;
    int me = (int)(m - t->member);
    in_part = true;
    for (uint32_t loop = 0;;) {
        wait_change(t, &t->loop, loop, INT64_MAX);
        loop = atomic_load(&t->loop.value);
        if (t->stop)
            return NULL;
        if (claim(t, me, loop)) {
            take_place(t, me, loop);
            take_parts(t, me);
            change(&m->done, loop);
        }
    }
}

/* Starts the threads of members 1 to n-1, or as many as can be. */
static void start_threads(nnc_team *t)
{
    sigset_t before;
    t->forks = nnc_forks();
    t->loop = (cell){0};
    for (int i = 0; i < t->n; i++)
        t->member[i] = (member){.team = t, .cpu = -1};
    nnc_signals_hold(&before);
    for (int i = 1; i < t->n; i++)
        if (pthread_create(&t->member[i].thread, NULL, work, &t->member[i]) != 0)
            t->n = i;
    nnc_signals_release(&before);
}

/* As many of `threads` members as can be started; NULL: not even memory for them. */
static nnc_team *start(int threads)
{
    size_t bytes = sizeof(nnc_team) + (size_t)threads * sizeof(member);
    nnc_team *t = nnc_aligned_alloc(64, (size_t)nnc_align_up((int64_t)bytes, 64));
    if (!t)
        return NULL;
    memset(t, 0, bytes);
    t->crowded = threads > nnc_cpu_count();
    t->n = threads; /* workers read it in their first loop */
    start_threads(t);
    return t;
}

nnc_status nnc_team_create(int threads, nnc_team **out, nnc_sink *sink)
{
    *out = threads > 1 ? start(threads) : NULL;
    if (threads > 1 && !*out)
        return nnc_nomem(sink);
    int n = *out ? (*out)->n : threads;
    if (n == threads)
        return NNC_OK;
    nnc_team_destroy(*out);
    *out = NULL;
    return nnc_fail0(sink, NNC_E_DEVICE,
        "cannot start %d threads, only %d: use --threads=%d, or raise the limits on processes and "
        "memory (ulimit -u, ulimit -v, the container's pids limit)",
        threads, n, n);
}

void nnc_team_destroy(nnc_team *t)
{
    if (!t)
        return;
    if (t->forks == nnc_forks()) {
        t->stop = true;
        change(&t->loop, atomic_load(&t->loop.value) + 1);
        for (int i = 1; i < t->n; i++)
            pthread_join(t->member[i].thread, NULL);
    }
    nnc_free(t);
}

void nnc_team_enter(nnc_team *t)
{
    entered = t;
    if (!t)
        return;
    if (t->forks != nnc_forks())
        start_threads(t);
    self = self ? self : gettid();
    t->caller = self;
    atomic_store_explicit(&t->inside, true, memory_order_relaxed);
}

void nnc_team_leave(nnc_team *t)
{
    entered = NULL;
    if (t)
        atomic_store_explicit(&t->inside, false, memory_order_relaxed);
}

/* ---- loops ----------------------------------------------------------------------------------- */

static void run_on(nnc_team *t, int parts, nnc_par_body body, void *ctx)
{
    uint32_t before = atomic_load_explicit(&t->loop.value, memory_order_relaxed), old;
    t->body = body;
    t->ctx = ctx;
    t->parts = parts;
    take_place(t, 0, before + 1);
    change(&t->loop, before + 1);
    const int64_t begin = clock_ns();
    in_part = true;
    take_parts(t, 0);
    const int64_t longest = UNEVEN + 2 * (clock_ns() - begin);
    for (int i = 1; i < t->n; i++) {
        member *m = &t->member[i];
        if (claim(t, i, before + 1))
            take_parts(t, i);
        else if ((old = atomic_load(&m->done.value)) != before + 1)
            wait_change(t, &m->done, old, longest);
    }
    in_part = false;
}

void nnc_par_run(int threads, nnc_par_body body, void *ctx)
{
    const bool serial = threads <= 1 || in_part;
    nnc_team *own = serial || entered ? NULL : start(threads);
    if (own)
        nnc_team_enter(own);
    if (!serial && entered)
        run_on(entered, threads, body, ctx);
    for (int i = 0; (serial || !entered) && i < nnc_max64(threads, 1); i++)
        body(ctx, i, (int)nnc_max64(threads, 1));
    if (own) {
        nnc_team_leave(own);
        nnc_team_destroy(own);
    }
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

int nnc_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                        : (int)sysconf(_SC_NPROCESSORS_ONLN);
    const int q = nnc_groups_read("").cpus;
    if (q && q < n)
        n = q;
    return n < 1 ? 1 : n;
}
