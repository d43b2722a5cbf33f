/* plan/kernels.c -- kernels of the plan. Identical ones for devices of one kind are shared. Each has a machine-code object of its own, so
 * that the cache shares objects between models. For compilers with a high fixed cost, several consecutive kernels share one. Missing
 * objects are emitted by `jobs` threads, which start while further kernels are selected. Neither their number nor the cache's contents
 * nor a missing compiler changes the plan: objects that cannot be made are empty. */
#include "base/signals.h"
#include "plan/maker.h"
#include <string.h>

static bool same_key(const kernel_entry *a, const kernel_entry *b)
{
    return a->hash.lo == b->hash.lo && a->hash.hi == b->hash.hi && a->kind == b->kind &&
           strcmp(a->given, b->given) == 0;
}

static uint32_t probe(const maker *m, const kernel_entry *e)
{
    uint32_t i = (uint32_t)e->hash.lo & m->hash_mask;
    while (m->by_hash[i] && !same_key(&m->kernel[m->by_hash[i] - 1], e))
        i = (i + 1) & m->hash_mask;
    return i;
}

static bool grow_table(maker *m)
{
    uint32_t size = m->by_hash ? (m->hash_mask + 1) * 2 : 64;
    int32_t *t = ARENA_NEW(&m->scratch, int32_t, size);
    if (!t)
        return false;
    m->by_hash = t;
    m->hash_mask = size - 1;
    for (int i = 0; i < m->p->n_kernel; i++)
        t[probe(m, &m->kernel[i])] = i + 1;
    return true;
}

/* A name consists of some ops and 32 bits of the hash, which two kernels may share. The later one then gets its full hash appended. Code is
 * found in an object by name, and a translation unit may not define a name twice. NULL: out of memory. */
static const nnc_kernel *named_apart(maker *m, const kernel_entry *e)
{
    char hex[33];
    bool taken = false;
    const nnc_kernel *k = e->k;
    for (int i = 0; i < m->p->n_kernel && !taken; i++)
        taken = m->kernel[i].kind == e->kind && !strcmp(m->kernel[i].k->name, k->name);
    if (!taken)
        return k;
    nnc_kernel *other = ARENA_NEW(&m->scratch, nnc_kernel, 1);
    nnc_hash_hex(e->hash, hex);
    if (!other)
        return NULL;
    *other = *k;
    other->name = nnc_arena_printf(&m->scratch, "%s_%s", k->name, hex);
    return other->name ? other : NULL;
}

static nnc_status add_kernel(maker *m, const kernel_entry *e)
{
    nnc_plan *p = m->p;
    size_t n = (size_t)p->n_kernel + 1;
    NNC_NEED(ARENA_ROOM(&p->arena, p->kernel, m->cap_kernel, n) &&
                 ARENA_ROOM(&m->scratch, m->kernel, m->cap_entry, n),
        m->sink);
    NNC_LOCAL(nnc_text) t = {0};
    const nnc_kernel *k = named_apart(m, e);
    NNC_NEED(k, m->sink);
    nnc_kernel_print(&t, k);
    nnc_pkernel *pk = &p->kernel[p->n_kernel];
    *pk = (nnc_pkernel){.domain = k->sched.domain,
        .grain = k->sched.grain,
        .scratch_bytes = nnc_kernel_work(k),
        .threads = (int)nnc_par_parts(k->sched.domain, k->sched.grain, m->on[e->kind].threads),
        .object = -1};
    for (int b = 0; b < k->n_buf; b++) {
        pk->n_args += k->buf[b].role != KB_tmp;
        pk->n_out += k->buf[b].role == KB_out;
    }
    pk->symbol = nnc_arena_strdup(&p->arena, k->name);
    pk->ir = t.oom ? NULL : nnc_arena_strndup(&p->arena, nnc_text_str(&t), t.n);
    NNC_NEED(pk->symbol && pk->ir, m->sink);
    m->kernel[p->n_kernel] = *e;
    m->kernel[p->n_kernel++].k = k;
    return NNC_OK;
}

/* ---- machine code -------------------------------------------------------------------------- */

/* Kernels with one object, for devices of one kind, in the plan's order. */
typedef struct unit {
    int16_t kind;
    int n, functions, *kernel;
    const nnc_kernel **k; /* the same */
    size_t cap_kernel, cap_k;
    nnc_hash128 key; /* key in the cache; all ones: not cached */
    bool wanted, cached,
        failed; /* its object was requested; was in the cache; could not be emitted */
    char *data; /* the object, allocated with nnc_malloc; NULL: it failed, or is yet to be made */
    size_t size;
    struct unit *next; /* in a list */
} unit;

enum { QUEUES = 64 };
typedef struct emission { /* the threads that emit */
    maker *m;
    pthread_mutex_t lock, loading; /* of the queues; of loading compilers */
    pthread_cond_t changed;
    unit *queue[QUEUES]; /* units to be emitted, by the logarithm of their code size */
    bool closed; /* no more come */
    pthread_t *thread;
    int n_thread;
} emission;

static const nnc_target_engine *runner(const maker *m, int kind)
{
    for (int e = 0; e < m->o->n_engine; e++) {
        const nnc_engine *g = m->o->engine[e];
        const nnc_target_engine *row = nnc_target_engine_named(target_of(m, kind), g->name);
        if (g->load_kernel && row && nnc_target_runs_kernels(row))
            return row;
    }
    return NULL;
}

const char *kernel_engine(const maker *m, int kind)
{
    const nnc_target_engine *e = runner(m, kind);
    return e ? e->name : NULL;
}

static bool can_interpret(const nnc_target *t)
{
    for (int i = 0; i < t->n_engines; i++)
        if (nnc_target_engine_interprets(&t->engine[i]))
            return true;
    return false;
}

/* Do the unit's kernels run as machine code? Otherwise they are interpreted. */
static bool runs_code(const maker *m, const unit *u)
{
    const nnc_target_engine *e = runner(m, u->kind);
    bool needed = !can_interpret(target_of(m, u->kind));
    for (int i = 0; i < u->n; i++)
        needed = needed || !m->kernel[u->kernel[i]].interpreted;
    return needed && e && !nnc_target_engine_interprets(e);
}

static int unit_size(const machine *on)
{
    return on->compiler && on->compiler->unit > 1 ? on->compiler->unit : 1;
}

/* Is each kernel a unit of its own, whatever the others are? */
static bool is_alone(const machine *on)
{
    return unit_size(on) == 1 && !(on->compiler && on->compiler->share);
}

/* Asks the compiler which kernels of a kind share a function. */
static nnc_status share_functions(maker *m, int kind)
{
    nnc_plan *p = m->p;
    const nnc_compiler *by = m->on[kind].compiler;
    const nnc_kernel **k = ARENA_NEW(&m->scratch, const nnc_kernel *, p->n_kernel + 1);
    const char **code = ARENA_NEW(&m->scratch, const char *, p->n_kernel + 1);
    int *index = ARENA_NEW(&m->scratch, int, p->n_kernel + 1), n = 0;
    NNC_NEED(k && code && index, m->sink);
    for (int i = 0; i < p->n_kernel; i++)
        if (m->kernel[i].kind == kind) {
            index[n] = i;
            k[n++] = m->kernel[i].k;
        }
    if (n == 0 || !by || !by->share)
        return NNC_OK;
    NNC_TRY(by->share(k, n, &m->scratch, code, m->sink));
    for (int i = 0; i < n; i++) {
        if (!code[i])
            continue;
        p->kernel[index[i]].code = nnc_arena_strdup(&p->arena, code[i]);
        NNC_NEED(p->kernel[index[i]].code, m->sink);
    }
    return NNC_OK;
}

/* Adds kernel i to a unit; NULL: a new one. Returns the unit, or NULL: out of memory. */
static unit *add_to(maker *m, unit *u, int i)
{
    u = u ? u : ARENA_NEW(&m->scratch, unit, 1);
    if (!u || !ARENA_ROOM(&m->scratch, u->kernel, u->cap_kernel, u->n + 1) ||
        !ARENA_ROOM(&m->scratch, u->k, u->cap_k, u->n + 1))
        return NULL;
    u->kind = m->kernel[i].kind;
    u->kernel[u->n] = i;
    u->k[u->n++] = m->kernel[i].k;
    return m->kernel[i].unit = u;
}

/* Distributes kernels without a unit over units. Kernels that share a function are adjacent, as the shared function's comment needs. */
static bool make_units(maker *m)
{
    const int n = m->p->n_kernel;
    unit **last = ARENA_NEW(&m->scratch, unit *, m->n_dev); /* by kind */
    for (int k = 0; last && k < n; k++) {
        const kernel_entry *e = &m->kernel[k];
        const machine *on = &m->on[e->kind];
        unit *u = last[e->kind];
        if (e->unit)
            continue;
        if (!(u = add_to(m, u && u->functions < unit_size(on) ? u : NULL, k)))
            return false;
        u->functions++;
        last[e->kind] = u;
        for (int i = k + 1; i < n && m->p->kernel[k].code; i++)
            if (m->kernel[i].kind == e->kind && !m->kernel[i].unit &&
                nnc_pkernel_shares(&m->p->kernel[k], &m->p->kernel[i]) && !add_to(m, u, i))
                return false;
    }
    return last != NULL;
}

/* False: out of memory, since an incomplete key could match other kernels. */
static bool object_key(const maker *m, const unit *u, nnc_hash128 *key)
{
    const machine *on = &m->on[u->kind];
    NNC_LOCAL(nnc_text) t = {0};
    char a[33], b[33];
    nnc_hash_hex(on->hash, b);
    nnc_puts(&t, "object 1");
    for (int i = 0; i < u->n; i++) {
        const kernel_entry *e = &m->kernel[u->kernel[i]];
        nnc_hash_hex(e->hash, a);
        nnc_printf(&t, " %s %s", a, e->k->name);
    }
    nnc_printf(&t, " %s %s", b, on->compiler && on->compiler->version ? on->compiler->version : "");
    bool whole = !t.oom;
    *key = nnc_hash(nnc_text_str(&t), t.n);
    return whole;
}

/* ---- threads that emit --------------------------------------------------------------------- */

/* The compiler, loaded by the first call; NULL: none is available. */
static const nnc_emitter *emitter_of(emission *x, int kind)
{
    machine *on = &x->m->on[kind];
    pthread_mutex_lock(&x->loading);
    if (!on->asked)
        on->emitter = on->compiler->emitter();
    on->asked = true;
    pthread_mutex_unlock(&x->loading);
    return on->emitter;
}

static nnc_status emit_unit(emission *x, unit *u, nnc_emit what, nnc_sink *sink)
{
    const maker *m = x->m;
    const machine *on = &m->on[u->kind];
    const nnc_emitter *by = emitter_of(x, u->kind);
    if (!by)
        return NNC_E_DEVICE;
    nnc_status s = by->emit(u->k, u->n, on->env.target, what, &u->data, &u->size, sink);
    if (s != NNC_OK)
        u->data = NULL;
    u->failed = s != NNC_OK;
    if (u->data && u->key.hi != ~(uint64_t)0)
        nnc_cache_put(m->o->cache, "object", u->key, u->data, u->size);
    return s;
}

/* Roughly the instructions of a unit's code. */
static int64_t code_of(const unit *u)
{
    int64_t all = 1;
    for (int i = 0; i < u->n; i++) {
        const nnc_kschedule *s = &u->k[i]->sched;
        int64_t n = u->k[i]->n_ins;
        for (int d = 0; d < s->n; d++)
            n = nnc_mul_sat(n, s->d[d].what == KD_unroll ? s->d[d].n : 1);
        all = nnc_add_sat(all, n);
    }
    return all;
}

/* Takes the longest unit, so that all threads end at about the same time. Waits for a unit until the queues are closed. */
static unit *take_unit(emission *x)
{
    unit *u = NULL;
    pthread_mutex_lock(&x->lock);
    while (!u) {
        for (int i = QUEUES; i-- > 0 && !u;)
            if ((u = x->queue[i]))
                x->queue[i] = u->next;
        if (u || x->closed)
            break;
        pthread_cond_wait(&x->changed, &x->lock);
    }
    pthread_mutex_unlock(&x->lock);
    return u;
}

/* Emits units. Those whose code another thread is compiling come last: that thread has then finished. */
static void *emit_some(void *ctx)
{
    emission *x = ctx;
    unit *later = NULL;
    for (unit *u; (u = take_unit(x));)
        if (emit_unit(x, u, EMIT_idle, NULL) == NNC_OK && !u->data) {
            u->next = later;
            later = u;
        }
    for (; later; later = later->next)
        (void)emit_unit(x, later, EMIT_object, NULL);
    return NULL;
}

/* Queues a unit, and starts a thread for it if there are fewer than jobs - 1. The caller emits later, too. */
static void queue_unit(emission *x, unit *u)
{
    unit **to = &x->queue[63 - __builtin_clzll((uint64_t)code_of(u))];
    sigset_t before;
    pthread_mutex_lock(&x->lock);
    u->next = *to;
    *to = u;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
    nnc_signals_hold(&before);
    if (x->n_thread < x->m->o->jobs - 1 &&
        pthread_create(&x->thread[x->n_thread], NULL, emit_some, x) == 0)
        x->n_thread++;
    nnc_signals_release(&before);
}

/* Ends emission; without `all`, units that are still queued are dropped. */
static void end_emission(emission *x, bool all)
{
    pthread_mutex_lock(&x->lock);
    x->closed = true;
    if (!all)
        memset(x->queue, 0, sizeof x->queue);
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    (void)emit_some(x);
    while (x->n_thread > 0)
        pthread_join(x->thread[--x->n_thread], NULL);
}

/* Gets a unit's object from the cache, or queues the unit. */
static void want(maker *m, unit *u)
{
    const nnc_compiler *by = m->on[u->kind].compiler;
    if (u->wanted || !runs_code(m, u))
        return;
    u->wanted = true;
    const bool keyed = m->o->cache && object_key(m, u, &u->key);
    if (!keyed)
        u->key.hi = ~(uint64_t)0;
    u->cached = keyed && nnc_cache_get(m->o->cache, "object", u->key, &u->data, &u->size);
    if (!u->cached && by && by->emitter)
        queue_unit(m->emission, u);
}

/* ---- objects ------------------------------------------------------------------------------- */

nnc_status make_kernel(maker *m, job *j, const nnc_kernel *k, bool interpreted)
{
    kernel_entry e = {.hash = k->hash,
        .kind = m->on[j->device].kind,
        .given = k->name,
        .k = k,
        .interpreted = interpreted};
    e.hash.lo ^=
        nnc_sched_has(&k->sched, KD_quick); /* this was decided after the kernel was named */
    if ((uint32_t)m->p->n_kernel * 2 >= m->hash_mask && !grow_table(m))
        return nnc_nomem(m->sink);
    uint32_t at = probe(m, &e);
    if (!m->by_hash[at]) {
        NNC_TRY(add_kernel(m, &e));
        m->by_hash[at] = m->p->n_kernel;
    }
    j->item = m->by_hash[at] - 1;
    kernel_entry *known = &m->kernel[j->item];
    known->interpreted &= interpreted;
    if (is_alone(&m->on[e.kind])) {
        NNC_NEED(known->unit || add_to(m, NULL, j->item), m->sink);
        want(m, known->unit);
    }
    const nnc_pkernel *pk = &m->p->kernel[j->item];
    j->work_bytes = nnc_align_up(pk->scratch_bytes, 64) * pk->threads;
    return NNC_OK;
}

/* Handles a unit whose code generation failed. If that is an error, repeats it to get the message, since threads share no sink. */
static nnc_status without_code(maker *m, unit *u)
{
    if (!can_interpret(target_of(m, u->kind)))
        return emit_unit(m->emission, u, EMIT_object, m->sink);
    nnc_warn(m->sink, (nnc_loc){0},
        "kernel %s has no machine code (the emitter failed); it is interpreted", u->k[0]->name);
    return NNC_OK;
}

/* Adds a unit's object to the plan, empty if it could not be made. Interpreted kernels get none. */
static nnc_status add_object(maker *m, unit *u)
{
    nnc_plan *p = m->p;
    const bool code = runs_code(m, u);
    int *count = u->cached ? m->o->cache_hits : m->o->cache_misses;
    for (int i = 0; i < u->n; i++)
        p->kernel[u->kernel[i]].object = code ? p->n_object : -1;
    if (!code)
        return NNC_OK;
    if (u->failed)
        NNC_TRY(without_code(m, u));
    nnc_blob *to = &p->object[p->n_object++];
    if (u->data) {
        to->data = nnc_arena_memdup(&p->arena, u->data, u->size);
        to->n = u->size;
        NNC_NEED(to->data, m->sink);
    }
    if (count)
        *count += u->n;
    return NNC_OK;
}

static nnc_status want_all(maker *m)
{
    for (int d = 0; d < m->n_dev; d++)
        NNC_TRY(share_functions(m, d));
    NNC_NEED(make_units(m), m->sink);
    for (int k = 0; k < m->p->n_kernel; k++)
        want(m, m->kernel[k].unit);
    return NNC_OK;
}

nnc_status make_objects(maker *m, nnc_status (*select)(maker *m))
{
    nnc_plan *p = m->p;
    emission x = {.m = m, .thread = ARENA_NEW(&m->scratch, pthread_t, nnc_max64(m->o->jobs, 1))};
    NNC_NEED(x.thread, m->sink);
    pthread_mutex_init(&x.lock, NULL);
    pthread_mutex_init(&x.loading, NULL);
    pthread_cond_init(&x.changed, NULL);
    m->emission = &x;
    nnc_status s = select(m);
    const int64_t began = nnc_now_ns();
    s = s ? s : want_all(m);
    end_emission(&x, s == NNC_OK);
    p->object = ARENA_NEW(&p->arena, nnc_blob, p->n_kernel + 1);
    s = s || p->object ? s : nnc_nomem(m->sink);
    for (int k = 0; k < p->n_kernel; k++) {
        unit *u = m->kernel[k].unit;
        if (!u || u->kernel[0] != k)
            continue;
        s = s ? s : add_object(m, u);
        nnc_free(u->data);
    }
    pthread_cond_destroy(&x.changed);
    pthread_mutex_destroy(&x.loading);
    pthread_mutex_destroy(&x.lock);
    if (m->o->codegen_ns)
        *m->o->codegen_ns += nnc_now_ns() - began;
    return s;
}
