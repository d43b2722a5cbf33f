/* plan/kernels.c -- kernels of the plan: identical ones are one, and each has an object of
 * machine code of its own, so that the cache shares them between models. Missing objects are
 * emitted by `jobs` threads; neither their number nor the cache's contents changes a byte of
 * the plan. Without an emitter, kernels are interpreted. */
#include "plan/maker.h"
#include <stdatomic.h>
#include <string.h>

static bool same_key(const kernel_entry *e, nnc_hash128 h, const char *name)
{
    return e->hash.lo == h.lo && e->hash.hi == h.hi && strcmp(e->k->name, name) == 0;
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
        t[probe(m, m->kernel[i].hash, m->kernel[i].k->name)] = i + 1;
    return true;
}

/* Threads that have work: never more than there are grains in the domain. */
static int useful_threads(const maker *m, const nnc_kernel *k)
{
    int64_t grain = k->sched.grain > 0 ? k->sched.grain : 1;
    int64_t parts = (k->sched.domain + grain - 1) / grain;
    return parts < m->threads ? (parts > 1 ? (int)parts : 1) : m->threads;
}

static nnc_status add_kernel(maker *m, const nnc_kernel *k, nnc_hash128 h)
{
    nnc_plan *p = m->p;
    size_t n = (size_t)p->n_kernel + 1;
    nnc_pkernel *pk = nnc_arena_grow(&p->arena, p->kernel, &m->cap_kernel, n, sizeof *pk);
    kernel_entry *e = nnc_arena_grow(&m->scratch, m->kernel, &m->cap_entry, n, sizeof *e);
    if (!pk || !e)
        return nnc_nomem(m->sink);
    p->kernel = pk;
    m->kernel = e;
    nnc_text t = {0};
    nnc_kernel_print(&t, k);
    pk = &p->kernel[p->n_kernel];
    *pk = (nnc_pkernel){.domain = k->sched.domain,
        .grain = k->sched.grain,
        .scratch_bytes = k->scratch_bytes,
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
    m->kernel[p->n_kernel] = (kernel_entry){h, (nnc_kernel *)k, p->n_kernel};
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

/* The first engine that runs machine code, or NULL: the interpreter then. */
static const nnc_engine *code_engine(const maker *m)
{
    for (int e = 0; e < m->o->n_engine; e++) {
        const nnc_engine *g = m->o->engine[e];
        const nnc_target_engine *row = nnc_target_engine_named(m->o->target, g->name);
        if (g->load_kernel && row && row->kernels)
            return strcmp(g->name, "interp") ? g : NULL;
    }
    return NULL;
}

static nnc_hash128 object_key(const maker *m, const kernel_entry *e, nnc_hash128 target)
{
    nnc_text t = {0};
    char a[33], b[33];
    nnc_hash_hex(e->hash, a);
    nnc_hash_hex(target, b);
    nnc_printf(&t, "object 1 %s %s %s %s", a, e->k->name, b,
        m->o->emitter_version ? m->o->emitter_version : "");
    nnc_hash128 h = nnc_hash(nnc_text_str(&t), t.n);
    if (t.oom)
        h = (nnc_hash128){0};
    nnc_text_deinit(&t);
    return h;
}

typedef struct emission {
    maker *m;
    const nnc_emitter *e;
    const int *todo;
    int n;
    atomic_int next, failed;
    char **data; /* by todo */
    size_t *size;
} emission;

static void emit_some(void *ctx, int part, int parts)
{
    emission *x = ctx;
    (void)part;
    (void)parts;
    for (int i; (i = atomic_fetch_add(&x->next, 1)) < x->n;) {
        const nnc_kernel *k = x->m->kernel[x->todo[i]].k;
        if (x->e->emit(&k, 1, x->m->o->target, EMIT_object, &x->data[i], &x->size[i], NULL) !=
            NNC_OK) {
            x->data[i] = NULL;
            atomic_store(&x->failed, i + 1);
        }
    }
}

/* Objects are parallel to kernels while they are collected; a kernel without one is interpreted. */
static nnc_status keep_object(maker *m, int kernel, const char *data, size_t n)
{
    nnc_blob *b = &m->p->object[kernel];
    b->data = nnc_arena_memdup(&m->p->arena, data, n);
    b->n = n;
    return b->data ? NNC_OK : nnc_nomem(m->sink);
}

static nnc_status emit_missing(maker *m, const int *todo, int n, nnc_hash128 target)
{
    if (!n) /* asking for the emitter loads a compiler */
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
        const kernel_entry *k = &m->kernel[todo[i]];
        if (x.data[i] && status == NNC_OK)
            status = keep_object(m, todo[i], x.data[i], x.size[i]);
        if (x.data[i] && m->o->cache)
            nnc_cache_put(m->o->cache, "object", object_key(m, k, target), x.data[i], x.size[i]);
        if (!x.data[i])
            nnc_warn(m->sink, (nnc_loc){0},
                "kernel %s has no machine code (the emitter failed); it is interpreted",
                k->k->name);
        nnc_free(x.data[i]);
    }
    return status;
}

/* Drops kernels without an object from object[], which was parallel to kernel[]. */
static void number_objects(nnc_plan *p)
{
    p->n_object = 0;
    for (int i = 0; i < p->n_kernel; i++) {
        p->kernel[i].object = -1;
        if (!p->object[i].data)
            continue;
        p->kernel[i].object = p->n_object;
        p->object[p->n_object++] = p->object[i];
    }
}

nnc_status make_objects(maker *m)
{
    nnc_plan *p = m->p;
    int64_t began = nnc_now_ns();
    int hits = 0, n = 0;
    if (!code_engine(m) || !p->n_kernel)
        return NNC_OK;
    nnc_hash128 target = nnc_target_hash(m->o->target);
    p->object = ARENA_NEW(&p->arena, nnc_blob, p->n_kernel);
    int *todo = ARENA_NEW(&m->scratch, int, p->n_kernel);
    if (!p->object || !todo)
        return nnc_nomem(m->sink);
    for (int i = 0; i < p->n_kernel; i++) {
        char *data;
        size_t size;
        if (!m->o->cache || !nnc_cache_get(m->o->cache, "object",
                                object_key(m, &m->kernel[i], target), &data, &size)) {
            todo[n++] = i;
            continue;
        }
        nnc_status status = keep_object(m, i, data, size);
        nnc_free(data);
        NNC_TRY(status);
        hits++;
    }
    NNC_TRY(emit_missing(m, todo, n, target));
    number_objects(p);
    if (m->o->cache_hits)
        *m->o->cache_hits += hits;
    if (m->o->cache_misses)
        *m->o->cache_misses += n;
    if (m->o->codegen_ns)
        *m->o->codegen_ns += nnc_now_ns() - began;
    return NNC_OK;
}
