/* plan/kernels.c -- kernels of the plan: identical ones are shared, and each has a machine-code object of its own, so that the cache
 * shares objects between models; for compilers with a high fixed cost, several consecutive kernels share one (options.unit). Missing
 * objects are emitted by `jobs` threads; neither their number nor the cache's contents changes the plan. Without an emitter, kernels
 * are interpreted. */
#include "plan/maker.h"
#include <stdatomic.h>
#include <string.h>

static bool same_key(const kernel_entry *e, nnc_hash128 h, const char *name)
{
    return e->hash.lo == h.lo && e->hash.hi == h.hi && strcmp(e->given, name) == 0;
}

static uint32_t probe(const maker *m, nnc_hash128 h, const char *name)
{
    uint32_t i = (uint32_t)h.lo & m->hash_mask;
    while (m->by_hash[i] && !same_key(&m->kernel[m->by_hash[i] - 1], h, name))
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
        t[probe(m, m->kernel[i].hash, m->kernel[i].given)] = i + 1;
    return true;
}

/* Number of threads with work: at most the grains in the domain. */
static int useful_threads(const maker *m, const nnc_kernel *k)
{
    int64_t grain = k->sched.grain > 0 ? k->sched.grain : 1;
    int64_t parts = (k->sched.domain + grain - 1) / grain;
    return parts < m->threads ? (parts > 1 ? (int)parts : 1) : m->threads;
}

/* A name is some ops and 32 bits of the hash, which two kernels may share. Then the later one gets its full hash appended: code is
 * found in an object by name, and a translation unit may not define a name twice. NULL: out of memory. */
static const nnc_kernel *named_apart(maker *m, const nnc_kernel *k, nnc_hash128 h)
{
    char hex[33];
    bool taken = false;
    for (int i = 0; i < m->p->n_kernel && !taken; i++)
        taken = !strcmp(m->kernel[i].k->name, k->name);
    if (!taken)
        return k;
    nnc_kernel *other = ARENA_NEW(&m->scratch, nnc_kernel, 1);
    nnc_hash_hex(h, hex);
    if (!other)
        return NULL;
    *other = *k;
    other->name = nnc_arena_printf(&m->scratch, "%s_%s", k->name, hex);
    return other->name ? other : NULL;
}

static nnc_status add_kernel(maker *m, const nnc_kernel *given, nnc_hash128 h)
{
    nnc_plan *p = m->p;
    size_t n = (size_t)p->n_kernel + 1;
    if (!ARENA_ROOM(&p->arena, p->kernel, m->cap_kernel, n) ||
        !ARENA_ROOM(&m->scratch, m->kernel, m->cap_entry, n))
        return nnc_nomem(m->sink);
    nnc_text t = {0};
    const nnc_kernel *k = named_apart(m, given, h);
    if (!k)
        return nnc_nomem(m->sink);
    nnc_kernel_print(&t, k);
    nnc_pkernel *pk = &p->kernel[p->n_kernel];
    *pk = (nnc_pkernel){.domain = k->sched.domain,
        .grain = k->sched.grain,
        .scratch_bytes = nnc_kernel_work(k),
        .threads = useful_threads(m, k),
        .object = -1};
    for (int b = 0; b < k->n_buf; b++) {
        pk->n_args += k->buf[b].role != KB_tmp;
        pk->n_out += k->buf[b].role == KB_out;
    }
    pk->symbol = nnc_arena_strdup(&p->arena, k->name);
    pk->ir = t.oom ? NULL : nnc_arena_strndup(&p->arena, nnc_text_str(&t), t.n);
    nnc_text_deinit(&t);
    if (!pk->symbol || !pk->ir)
        return nnc_nomem(m->sink);
    m->kernel[p->n_kernel] = (kernel_entry){h, given->name, k, p->n_kernel};
    p->n_kernel++;
    return NNC_OK;
}

nnc_status make_kernel(maker *m, job *j, const nnc_kernel *k)
{
    nnc_hash128 h = nnc_kernel_hash(k);
    bool lost = h.hi == ~(uint64_t)0;
    if (lost || ((uint32_t)m->p->n_kernel * 2 >= m->hash_mask && !grow_table(m)))
        return nnc_nomem(m->sink);
    uint32_t at = probe(m, h, k->name);
    if (!m->by_hash[at]) {
        NNC_TRY(add_kernel(m, k, h));
        m->by_hash[at] = m->p->n_kernel;
    }
    j->item = m->by_hash[at] - 1;
    const nnc_pkernel *pk = &m->p->kernel[j->item];
    j->work_bytes = nnc_align_up(pk->scratch_bytes, 64) * pk->threads;
    return NNC_OK;
}

/* ---- machine code -------------------------------------------------------------------------- */

/* The first engine that runs machine code; NULL: the interpreter is used. */
static const nnc_engine *code_engine(const maker *m)
{
    for (int e = 0; e < m->o->n_engine; e++) {
        const nnc_engine *g = m->o->engine[e];
        const nnc_target_engine *row = nnc_target_engine_named(m->o->target, g->name);
        if (g->load_kernel && row && nnc_target_runs_kernels(row))
            return strcmp(g->name, "interp") ? g : NULL;
    }
    return NULL;
}

/* Unit u: kernels first .. first + n - 1 of the plan, which share an object. */
typedef struct unit {
    int first, n;
} unit;

static int unit_size(const maker *m)
{
    int n = m->o->unit > 1 ? m->o->unit : 1;
    return n < NNC_MAX_UNIT ? n : NNC_MAX_UNIT;
}

static unit unit_of(const maker *m, int u)
{
    int size = unit_size(m), first = u * size, left = m->p->n_kernel - first;
    return (unit){first, left < size ? left : size};
}

static int count_units(const maker *m)
{
    int size = unit_size(m);
    return (m->p->n_kernel + size - 1) / size;
}

/* False: out of memory, since an incomplete key could match other kernels. */
static bool object_key(const maker *m, unit u, nnc_hash128 target, nnc_hash128 *key)
{
    nnc_text t = {0};
    char a[33], b[33];
    nnc_hash_hex(target, b);
    nnc_puts(&t, "object 1");
    for (int i = u.first; i < u.first + u.n; i++) {
        nnc_hash_hex(m->kernel[i].hash, a);
        nnc_printf(&t, " %s %s", a, m->kernel[i].k->name);
    }
    nnc_printf(&t, " %s %s", b, m->o->emitter_version ? m->o->emitter_version : "");
    bool whole = !t.oom;
    *key = nnc_hash(nnc_text_str(&t), t.n);
    nnc_text_deinit(&t);
    return whole;
}

typedef struct emission {
    maker *m;
    const nnc_emitter *e;
    const int *todo; /* units */
    int n;
    atomic_int next;
    char **data; /* by todo; NULL: failed */
    size_t *size;
} emission;

static nnc_status emit_unit(emission *x, int i, nnc_sink *sink)
{
    const nnc_kernel *k[NNC_MAX_UNIT];
    unit u = unit_of(x->m, x->todo[i]);
    for (int j = 0; j < u.n; j++)
        k[j] = x->m->kernel[u.first + j].k;
    nnc_status s = x->e->emit(k, u.n, x->m->o->target, EMIT_object, &x->data[i], &x->size[i], sink);
    if (s != NNC_OK)
        x->data[i] = NULL;
    return s;
}

static void emit_some(void *ctx, int part, int parts)
{
    emission *x = ctx;
    (void)part;
    (void)parts;
    for (int i; (i = atomic_fetch_add(&x->next, 1)) < x->n;)
        (void)emit_unit(x, i, NULL);
}

/* Objects are indexed by unit while they are collected; a kernel without one is interpreted. */
static nnc_status keep_object(maker *m, int u, const char *data, size_t n)
{
    nnc_blob *b = &m->p->object[u];
    b->data = nnc_arena_memdup(&m->p->arena, data, n);
    b->n = n;
    return b->data ? NNC_OK : nnc_nomem(m->sink);
}

static bool can_interpret(const maker *m)
{
    const nnc_target_engine *row = nnc_target_engine_named(m->o->target, "interp");
    return row && nnc_target_runs_kernels(row);
}

/* Handles a unit whose code generation failed. Threads share no sink, so where that is an error, it is repeated to get the message. */
static nnc_status without_code(emission *x, int i)
{
    maker *m = x->m;
    if (!can_interpret(m))
        return emit_unit(x, i, m->sink);
    nnc_warn(m->sink, (nnc_loc){0},
        "kernel %s has no machine code (the emitter failed); it is interpreted",
        m->kernel[unit_of(m, x->todo[i]).first].k->name);
    return NNC_OK;
}

static nnc_status collect(emission *x, int i, nnc_hash128 target)
{
    maker *m = x->m;
    nnc_status status = x->data[i] ? NNC_OK : without_code(x, i);
    if (!x->data[i])
        return status;
    status = keep_object(m, x->todo[i], x->data[i], x->size[i]);
    nnc_hash128 key;
    if (m->o->cache && object_key(m, unit_of(m, x->todo[i]), target, &key))
        nnc_cache_put(m->o->cache, "object", key, x->data[i], x->size[i]);
    return status;
}

static nnc_status emit_missing(maker *m, const int *todo, int n, nnc_hash128 target)
{
    if (!n) /* getting the emitter loads a compiler */
        return NNC_OK;
    const nnc_emitter *e = m->o->emitter ? m->o->emitter() : NULL;
    if (!e)
        return NNC_OK;
    emission x = {.m = m, .e = e, .todo = todo, .n = n};
    x.data = ARENA_NEW(&m->scratch, char *, n);
    x.size = ARENA_NEW(&m->scratch, size_t, n);
    if (!x.data || !x.size)
        return nnc_nomem(m->sink);
    int jobs = m->o->jobs < n ? m->o->jobs : n;
    nnc_par_run(jobs > 1 ? jobs : 1, emit_some, &x);
    nnc_status status = NNC_OK;
    for (int i = 0; i < n; i++) {
        if (status == NNC_OK)
            status = collect(&x, i, target);
        nnc_free(x.data[i]);
    }
    return status;
}

/* Assigns each kernel its unit's object, and removes units without one. */
static void number_objects(maker *m)
{
    nnc_plan *p = m->p;
    p->n_object = 0;
    for (int u = 0; u < count_units(m); u++) {
        unit k = unit_of(m, u);
        bool made = p->object[u].data != NULL;
        for (int i = k.first; i < k.first + k.n; i++)
            p->kernel[i].object = made ? p->n_object : -1;
        if (made)
            p->object[p->n_object++] = p->object[u];
    }
}

nnc_status make_objects(maker *m)
{
    nnc_plan *p = m->p;
    int64_t began = nnc_now_ns();
    int hits = 0, misses = 0, n = 0, units = count_units(m);
    if (!code_engine(m) || !p->n_kernel)
        return NNC_OK;
    nnc_hash128 key, target = nnc_target_hash(m->o->target);
    if (target.hi == ~(uint64_t)0)
        return nnc_nomem(m->sink);
    p->object = ARENA_NEW(&p->arena, nnc_blob, units);
    int *todo = ARENA_NEW(&m->scratch, int, units);
    if (!p->object || !todo)
        return nnc_nomem(m->sink);
    for (int u = 0; u < units; u++) {
        char *data;
        size_t size;
        unit k = unit_of(m, u);
        if (!m->o->cache || !object_key(m, k, target, &key) ||
            !nnc_cache_get(m->o->cache, "object", key, &data, &size)) {
            todo[n++] = u;
            misses += k.n;
            continue;
        }
        nnc_status status = keep_object(m, u, data, size);
        nnc_free(data);
        NNC_TRY(status);
        hits += k.n;
    }
    NNC_TRY(emit_missing(m, todo, n, target));
    number_objects(m);
    if (m->o->cache_hits)
        *m->o->cache_hits += hits;
    if (m->o->cache_misses)
        *m->o->cache_misses += misses;
    if (m->o->codegen_ns)
        *m->o->codegen_ns += nnc_now_ns() - began;
    return NNC_OK;
}
