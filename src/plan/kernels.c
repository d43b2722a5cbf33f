/* plan/kernels.c -- kernels of the plan. Identical ones for devices of one kind are shared. Each has a machine-code object of its own, so
 * that the cache shares objects between models. For compilers with a high fixed cost, several consecutive kernels share one. Missing
 * objects are emitted by `jobs` threads. Neither their number nor the cache's contents nor a missing compiler changes the plan: objects
 * that cannot be made are empty. */
#include "plan/maker.h"
#include <stdatomic.h>
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

/* A name is some ops and 32 bits of the hash, which two kernels may share. Then the later one gets its full hash appended: code is
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

nnc_status make_kernel(maker *m, job *j, const nnc_kernel *k, bool interpreted)
{
    const kernel_entry e = {.hash = nnc_kernel_hash(k),
        .kind = m->on[j->device].kind,
        .given = k->name,
        .k = k,
        .interpreted = interpreted};
    bool lost = e.hash.hi == ~(uint64_t)0;
    if (lost || ((uint32_t)m->p->n_kernel * 2 >= m->hash_mask && !grow_table(m)))
        return nnc_nomem(m->sink);
    uint32_t at = probe(m, &e);
    if (!m->by_hash[at]) {
        NNC_TRY(add_kernel(m, &e));
        m->by_hash[at] = m->p->n_kernel;
    }
    j->item = m->by_hash[at] - 1;
    m->kernel[j->item].interpreted &= interpreted;
    const nnc_pkernel *pk = &m->p->kernel[j->item];
    j->work_bytes = nnc_align_up(pk->scratch_bytes, 64) * pk->threads;
    return NNC_OK;
}

/* ---- machine code -------------------------------------------------------------------------- */

/* Kernels that share an object: for devices of one kind, in the plan's order. */
typedef struct unit {
    int16_t kind;
    int n, functions, *kernel;
    const nnc_kernel **k; /* the same */
} unit;

typedef struct emission {
    maker *m;
    unit *unit;
    int n_unit;
    int *todo; /* units without an object, those with most code first */
    int n;
    atomic_int next;
    int *later; /* by todo: the next one of those that a thread comes back to, or -1 */
    char **data; /* by todo; NULL: failed */
    size_t *size;
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

/* The unit of kernel k: that of the kernels that it shares its function with, or the kind's last one, or a new one. NULL: out of memory. */
static unit *unit_for(emission *x, int *unit_of, int k, int *last)
{
    maker *m = x->m;
    const int16_t kind = m->kernel[k].kind;
    for (int i = 0; i < k && m->p->kernel[k].code; i++)
        if (m->kernel[i].kind == kind && nnc_pkernel_shares(&m->p->kernel[i], &m->p->kernel[k])) {
            unit_of[k] = unit_of[i];
            return &x->unit[unit_of[k]];
        }
    if (!last[kind] || x->unit[last[kind] - 1].functions == unit_size(&m->on[kind])) {
        last[kind] = ++x->n_unit;
        unit *u = &x->unit[last[kind] - 1];
        u->kind = kind;
    }
    unit_of[k] = last[kind] - 1;
    x->unit[unit_of[k]].functions++;
    return &x->unit[unit_of[k]];
}

/* Distributes the kernels over units. */
static bool make_units(emission *x)
{
    maker *m = x->m;
    const int n = m->p->n_kernel;
    int *last = ARENA_NEW(&m->scratch, int, m->n_dev); /* by kind: its last unit + 1 */
    int *unit_of = ARENA_NEW(&m->scratch, int, n), *at = ARENA_NEW(&m->scratch, int, n);
    const nnc_kernel **all = ARENA_NEW(&m->scratch, const nnc_kernel *, n);
    x->unit = ARENA_NEW(&m->scratch, unit, n);
    if (!last || !unit_of || !at || !all || !x->unit)
        return false;
    for (int k = 0; k < n; k++)
        unit_for(x, unit_of, k, last)->n++;
    for (int u = 0, from = 0; u < x->n_unit; u++) {
        x->unit[u].kernel = at + from;
        x->unit[u].k = all + from;
        from += x->unit[u].n;
        x->unit[u].n = 0;
    }
    /* those that share a function side by side, as their comments are */
    for (int k = 0; k < n; k++)
        for (int i = k; i < n && unit_of[k] >= 0; i++) {
            if (i > k && (unit_of[i] != unit_of[k] ||
                             !nnc_pkernel_shares(&m->p->kernel[k], &m->p->kernel[i])))
                continue;
            unit *to = &x->unit[unit_of[i]];
            to->kernel[to->n] = i;
            to->k[to->n++] = m->kernel[i].k;
            unit_of[i] = i > k ? -1 : unit_of[i];
        }
    return true;
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

static nnc_status emit_unit(emission *x, int i, nnc_emit what, nnc_sink *sink)
{
    const unit *u = &x->unit[x->todo[i]];
    const machine *on = &x->m->on[u->kind];
    nnc_status s =
        on->emitter->emit(u->k, u->n, on->env.target, what, &x->data[i], &x->size[i], sink);
    if (s != NNC_OK)
        x->data[i] = NULL;
    return s;
}

/* Units whose code another thread compiles come last: by then it has. */
static void emit_some(void *ctx, int part, int parts)
{
    emission *x = ctx;
    int later = -1;
    (void)part;
    (void)parts;
    for (int i; (i = atomic_fetch_add(&x->next, 1)) < x->n;)
        if (emit_unit(x, i, EMIT_idle, NULL) == NNC_OK && !x->data[i]) {
            x->later[i] = later;
            later = i;
        }
    for (; later >= 0; later = x->later[later])
        (void)emit_unit(x, later, EMIT_object, NULL);
}

/* Roughly the instructions of a unit's code. */
static int64_t code_of(const unit *u)
{
    int64_t all = 0;
    for (int i = 0; i < u->n; i++) {
        const nnc_kschedule *s = &u->k[i]->sched;
        int64_t n = u->k[i]->n_ins;
        for (int d = 0; d < s->n; d++)
            n = nnc_mul_sat(n, s->d[d].what == KD_unroll ? s->d[d].n : 1);
        all = nnc_add_sat(all, n);
    }
    return all;
}

/* So that all threads end at about the same time. */
static void longest_first(emission *x)
{
    for (int i = 1; i < x->n; i++) {
        const int u = x->todo[i];
        int at = i;
        for (; at > 0 && code_of(&x->unit[x->todo[at - 1]]) < code_of(&x->unit[u]); at--)
            x->todo[at] = x->todo[at - 1];
        x->todo[at] = u;
    }
}

/* Objects are indexed by unit while they are collected. */
static nnc_status keep_object(maker *m, int u, const char *data, size_t n)
{
    nnc_blob *b = &m->p->object[u];
    b->data = nnc_arena_memdup(&m->p->arena, data, n);
    b->n = n;
    return b->data ? NNC_OK : nnc_nomem(m->sink);
}

/* Handles a unit whose code generation failed. Threads share no sink, so where that is an error, it is repeated to get the message. */
static nnc_status without_code(emission *x, int i)
{
    maker *m = x->m;
    const unit *u = &x->unit[x->todo[i]];
    if (!can_interpret(target_of(m, u->kind)))
        return emit_unit(x, i, EMIT_object, m->sink);
    nnc_warn(m->sink, (nnc_loc){0},
        "kernel %s has no machine code (the emitter failed); it is interpreted",
        m->kernel[u->kernel[0]].k->name);
    return NNC_OK;
}

static nnc_status collect(emission *x, int i)
{
    maker *m = x->m;
    nnc_status status = x->data[i] ? NNC_OK : without_code(x, i);
    if (!x->data[i])
        return status;
    status = keep_object(m, x->todo[i], x->data[i], x->size[i]);
    nnc_hash128 key;
    if (m->o->cache && object_key(m, &x->unit[x->todo[i]], &key))
        nnc_cache_put(m->o->cache, "object", key, x->data[i], x->size[i]);
    return status;
}

static nnc_status emit_missing(emission *x)
{
    maker *m = x->m;
    int n = 0;
    for (int i = 0; i < x->n; i++) { /* without an emitter, objects stay empty */
        machine *on = &m->on[x->unit[x->todo[i]].kind];
        if (!on->emitter && on->compiler && on->compiler->emitter) /* loads a compiler */
            on->emitter = on->compiler->emitter();
        if (on->emitter)
            x->todo[n++] = x->todo[i];
    }
    x->n = n;
    NNC_NEED(ARENA_ARRAYS(&m->scratch, n + 1, x->data, x->size, x->later), m->sink);
    longest_first(x);
    int jobs = m->o->jobs < n ? m->o->jobs : n;
    if (n)
        nnc_par_run(jobs > 1 ? jobs : 1, emit_some, x);
    nnc_status status = NNC_OK;
    for (int i = 0; i < n; i++) {
        if (status == NNC_OK)
            status = collect(x, i);
        nnc_free(x->data[i]);
    }
    return status;
}

/* Assigns each kernel its unit's object, which is empty where it could not be made; removes units of interpreted kernels. */
static void number_objects(const emission *x)
{
    nnc_plan *p = x->m->p;
    p->n_object = 0;
    for (int u = 0; u < x->n_unit; u++) {
        const bool code = runs_code(x->m, &x->unit[u]);
        for (int i = 0; i < x->unit[u].n; i++)
            p->kernel[x->unit[u].kernel[i]].object = code ? p->n_object : -1;
        if (code)
            p->object[p->n_object++] = p->object[u];
    }
}

nnc_status make_objects(maker *m)
{
    nnc_plan *p = m->p;
    int64_t began = nnc_now_ns();
    int hits = 0, misses = 0;
    emission x = {.m = m};
    if (!p->n_kernel)
        return NNC_OK;
    for (int d = 0; d < m->n_dev; d++)
        NNC_TRY(share_functions(m, d));
    p->object = make_units(&x) ? ARENA_NEW(&p->arena, nnc_blob, x.n_unit) : NULL;
    x.todo = ARENA_NEW(&m->scratch, int, x.n_unit + 1);
    NNC_NEED(p->object && x.todo, m->sink);
    for (int u = 0; u < x.n_unit; u++) {
        const unit *k = &x.unit[u];
        nnc_hash128 key;
        NNC_FREED char *data = NULL;
        size_t size;
        if (!runs_code(m, k))
            continue;
        if (!m->o->cache || !object_key(m, k, &key) ||
            !nnc_cache_get(m->o->cache, "object", key, &data, &size)) {
            x.todo[x.n++] = u;
            misses += k->n;
            continue;
        }
        nnc_status status = keep_object(m, u, data, size);
        NNC_TRY(status);
        hits += k->n;
    }
    NNC_TRY(emit_missing(&x));
    number_objects(&x);
    if (m->o->cache_hits)
        *m->o->cache_hits += hits;
    if (m->o->cache_misses)
        *m->o->cache_misses += misses;
    if (m->o->codegen_ns)
        *m->o->codegen_ns += nnc_now_ns() - began;
    return NNC_OK;
}
