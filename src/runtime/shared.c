/* runtime/shared.c -- static values (weights, packed and folded weights) in memory that executors share. Values that two plans compute in
 * the same way from the same weights are computed and held once.
 *
 * A value's key is a hash of how init makes it: the weight's source, the kernel's text, and the keys of what the command reads. Memory is
 * allocated in blocks, one for each executor and device, with the values that no earlier block has. A block lives as long as an executor
 * uses a value of it. Not shared: state, except by executors that are created with another's, what several commands write, and results of
 * libraries' calls. */
#include "runtime/exec.h"
#include "base/lock.h"
#include <string.h>

enum { BUCKETS = 1024 };

typedef struct nnc_block {
    nnc_device *device; /* the block's own, of this kind */
    const nnc_device_api *api;
    char *base;
    int64_t bytes;
    int users; /* executors */
} block;

typedef struct value {
    nnc_hash128 key;
    const char *at;
    block *in;
    struct value *next;
} value;

struct nnc_shared {
    pthread_mutex_t lock; /* of all below */
    int users;
    value *value[BUCKETS]; /* by key */
};

nnc_shared *nnc_shared_create(void)
{
    nnc_shared *s = nnc_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->users = 1;
    return s;
}

nnc_shared *nnc_shared_join(nnc_shared *s)
{
    nnc_lock(&s->lock);
    s->users++;
    nnc_unlock(&s->lock);
    return s;
}

void nnc_shared_drop(nnc_shared *s)
{
    if (!s)
        return;
    nnc_lock(&s->lock);
    bool last = --s->users == 0;
    nnc_unlock(&s->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&s->lock);
    nnc_free(s);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A static tensor that owns memory, as init makes it; aliases have no entry of their own. */
typedef struct nnc_static {
    nnc_hash128 key; /* of its contents so far */
    int writes;
    bool unknown; /* no other executor has it */
    bool read; /* by a command that runs */
    bool found; /* another executor has it */
    int64_t offset; /* in this executor's block, where it is not found */
    const char *at;
} nnc_static;

static bool is_static(const nnc_plan *p, int t)
{
    return p->tensor[t].space == SP_persist && p->tensor[t].alias_of < 0;
}

static void put_key(nnc_text *t, nnc_hash128 h)
{
    char hex[33];
    nnc_hash_hex(h, hex);
    nnc_puts(t, hex);
}

static void put_source(nnc_text *t, const nnc_weight *w)
{
    nnc_printf(t, "weight %s ", w->name ? w->name : "");
    if (w->n_part)
        nnc_printf(t, "part %lld %lld %lld ", (long long)w->part.first, (long long)w->part.run,
            (long long)w->part.stride);
    if (w->kind == NNC_W_gen)
        nnc_printf(
            t, "gen %llu %a %a", (unsigned long long)w->seed, (double)w->scale, (double)w->shift);
    else if (w->kind == NNC_W_inline)
        put_key(t, nnc_hash(w->data, (size_t)w->size));
    else
        nnc_printf(t, "%s %p %lld %lld %llu", w->file ? w->file : "", w->data, (long long)w->offset,
            (long long)w->size, (unsigned long long)w->header_hash);
}

/* False: another executor's may differ. */
static bool put_command(const nnc_exec *e, const nnc_cmd *c, nnc_text *t)
{
    const nnc_plan *p = e->p;
    switch ((nnc_cmd_kind)c->kind) {
    case CMD_weight: put_source(t, &p->weight[c->item]); return true;
    case CMD_kernel:
        nnc_printf(t, "%s %s", e->engine[c->engine]->name, p->kernel[c->item].ir);
        return true;
    case CMD_copy: nnc_puts(t, "copy"); return true;
    case CMD_call: return false;
    default: return true;
    }
}

/* Enters what the command writes. */
static void follow(const nnc_exec *e, const nnc_cmd *c, nnc_static *s, nnc_text *t)
{
    const nnc_plan *p = e->p;
    const int written = nnc_plan_first_written(p, c);
    bool known = put_command(e, c, t);
    for (int k = 0; k < c->n_arg; k++) {
        const nnc_ptensor *a = &p->tensor[c->arg[k]];
        const int root = nnc_plan_root(p, c->arg[k]);
        nnc_printf(t, "\n%lld ", (long long)(a->offset - p->tensor[root].offset));
        nnc_put_type(t, &a->type);
        put_key(t, s[root].key); /* of a result: what other commands wrote there before */
        known = known && !s[root].unknown;
    }
    const nnc_hash128 made = nnc_hash(nnc_text_str(t), t->n);
    for (int k = written; k < c->n_arg; k++) {
        nnc_static *to = &s[nnc_plan_root(p, c->arg[k])];
        const nnc_hash128 both[2] = {made, {(uint64_t)k, 0}};
        to->key = nnc_hash(both, sizeof both);
        to->unknown = !known;
        to->writes++;
    }
}

static nnc_status find_keys(nnc_exec *e, nnc_static *s, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < p->end[SEC_init]; i++) {
        if (!nnc_exec_owns(e, p->cmd[i].device))
            continue;
        nnc_text_clear(&t);
        follow(e, &p->cmd[i], s, &t);
        NNC_NEED(!t.oom, sink);
    }
    for (int i = 0; i < p->n_update; i++)
        s[nnc_plan_root(p, p->update[i].state)].unknown = true;
    for (int i = 0; i < p->n_tensor; i++) {
        const nnc_ptensor *r = &p->tensor[i];
        nnc_text_clear(&t);
        nnc_printf(&t, "%s %lld ", p->device[r->device].name, (long long)r->bytes);
        put_key(&t, s[i].key);
        NNC_NEED(!t.oom, sink);
        s[i].unknown = s[i].unknown || s[i].writes != 1;
        s[i].key = nnc_hash(nnc_text_str(&t), t.n);
    }
    return NNC_OK;
}

/* ---- keys on disk ---------------------------------------------------------------------------- */

/* Enters what a value's contents depend on beside its key: machine code, and the version of a file. False: data of this process. */
static bool put_origin(const nnc_plan *p, const nnc_cmd *c, nnc_text *t)
{
    const nnc_weight *w = c->kind == CMD_weight ? &p->weight[c->item] : NULL;
    const nnc_blob *code = c->kind == CMD_kernel ? nnc_pkernel_code(p, &p->kernel[c->item]) : NULL;
    if (w && w->kind == NNC_W_file && w->data)
        return false;
    if (w && w->kind == NNC_W_file)
        nnc_printf(t, "%llu ", (unsigned long long)nnc_file_version(w->file));
    if (code)
        put_key(t, nnc_hash(code->data, code->n));
    return true;
}

/* Raised when generated weights, the interpreter or the order of static values change: of kernels with machine code that is in the key. */
#define REVISION "1"

bool nnc_exec_static_key(const nnc_exec *e, int d, nnc_hash128 *key)
{
    const nnc_plan *p = e->p;
    NNC_LOCAL(nnc_text) t = {0};
    bool known = !e->ranks && e->dev[d].api->host_memory;
    nnc_puts(&t, "nnc " NNC_VERSION " " REVISION);
    for (int i = 0; i < p->end[SEC_init] && known; i++)
        known = put_origin(p, &p->cmd[i], &t);
    for (int i = 0; i < p->n_tensor && known; i++) {
        const nnc_static *s = &e->made[i];
        if (!is_static(p, i) || p->tensor[i].device != d)
            continue;
        known = !s->unknown && !s->found;
        nnc_printf(&t, "\n%lld ", (long long)s->offset);
        put_key(&t, s->key);
    }
    *key = nnc_hash(nnc_text_str(&t), t.n);
    return known && !t.oom;
}

void *nnc_exec_statics(const nnc_exec *e, int d, int64_t *bytes)
{
    const block *b = e->dev[d].statics;
    *bytes = b ? b->bytes : 0;
    return b ? b->base : NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool use_block(nnc_exec *e, block *b)
{
    for (size_t i = 0; i < e->n_block; i++)
        if (e->block[i] == b)
            return true;
    if (!ARENA_ROOM(&e->arena, e->block, e->cap_block, e->n_block + 1))
        return false;
    e->block[e->n_block++] = b;
    b->users++;
    return true;
}

static const value *find_value(const nnc_shared *s, nnc_hash128 key, const nnc_device_api *api)
{
    const value *v = s->value[key.lo % BUCKETS];
    while (v && (v->key.lo != key.lo || v->key.hi != key.hi || v->in->api != api))
        v = v->next;
    return v;
}

/* Takes what other executors have. False: out of memory. */
static bool take_values(nnc_exec *e, nnc_static *s)
{
    const nnc_plan *p = e->p;
    bool ok = true;
    nnc_lock(&e->shared->lock);
    for (int i = 0; ok && i < p->n_tensor; i++) {
        const value *v = is_static(p, i) && !s[i].unknown && nnc_exec_owns(e, p->tensor[i].device)
                             ? find_value(e->shared, s[i].key, e->dev[p->tensor[i].device].api)
                             : NULL;
        if (v && (ok = use_block(e, v->in))) {
            s[i].found = true;
            s[i].at = v->at;
        }
    }
    nnc_unlock(&e->shared->lock);
    return ok;
}

/* The block of executor e with this address. */
static block *block_with(const nnc_exec *e, const char *at)
{
    for (size_t i = 0; i < e->n_block; i++)
        if (at >= e->block[i]->base && at < e->block[i]->base + e->block[i]->bytes)
            return e->block[i];
    return NULL;
}

/* The state of `from` that executor e's state t is, or -1. */
static int32_t same_state(const nnc_exec *e, int32_t t, const nnc_exec *from)
{
    const nnc_ptensor *x = &e->p->tensor[t];
    for (int i = 0; i < from->p->n_update; i++) {
        const nnc_ptensor *y = &from->p->tensor[from->p->update[i].state];
        const char *const on[] = {e->p->device[x->device].name, from->p->device[y->device].name};
        if (!strcmp(x->name, y->name) && nnc_type_equal(&x->type, &y->type) &&
            !strcmp(on[0], on[1]))
            return from->p->update[i].state;
    }
    return -1;
}

/* Takes the states that `from` has, too: what they are parts of only as a whole. */
static nnc_status take_states(nnc_exec *e, nnc_static *s, const nnc_exec *from, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    for (int k = 0; k < 2 * p->n_update;
         k++) { /* twice: what is missing may come before what is not */
        const int32_t t = p->update[k % p->n_update].state, theirs = same_state(e, t, from),
                      root = nnc_plan_root(p, t);
        const int64_t at = p->tensor[t].offset - p->tensor[root].offset;
        if (!nnc_exec_owns(e, p->tensor[t].device))
            continue;
        const char *base = theirs < 0 ? NULL : (char *)nnc_exec_address(from, theirs) - at;
        block *b = theirs < 0 ? NULL : block_with(from, base);
        if (!base && (root == t || !s[root].found))
            continue;
        if (!b || (s[root].found && s[root].at != base) ||
            base + p->tensor[root].bytes > b->base + b->bytes)
            return nnc_fail0(sink, NNC_E_USAGE,
                "the states of two sessions are shared where they lie in memory alike; %s does not",
                p->tensor[t].name);
        s[root].found = true;
        s[root].at = base;
        nnc_lock(&e->shared->lock);
        bool ok = use_block(e, b);
        nnc_unlock(&e->shared->lock);
        NNC_NEED(ok, sink);
    }
    return NNC_OK;
}

/* Finds, backwards, commands of init that need not run: all their results are found, or no running command reads them. */
static void find_idle(nnc_exec *e, nnc_static *s)
{
    const nnc_plan *p = e->p;
    for (int i = p->end[SEC_init]; i-- > 0;) {
        const nnc_cmd *c = &p->cmd[i];
        const int written = nnc_plan_first_written(p, c);
        bool runs = written == c->n_arg; /* order between streams */
        const bool own = nnc_exec_owns(e, c->device);
        for (int k = written; own && k < c->n_arg; k++) {
            const int root = nnc_plan_root(p, c->arg[k]);
            const nnc_static *to = &s[root];
            runs = runs || (p->tensor[root].space == SP_init ? to->read : !to->found);
        }
        runs = runs && own;
        e->idle[i] = !runs;
        for (int k = 0; runs && k < c->n_arg; k++)
            s[nnc_plan_root(p, c->arg[k])].read = true;
        if (runs && e->handle[i])
            e->handle[i]->init = true;
    }
}

static nnc_status create_block(
    const dev *d, int ordinal, int64_t bytes, block **out, nnc_sink *sink)
{
    block *b = nnc_calloc(1, sizeof *b);
    NNC_NEED(b, sink);
    b->api = d->api;
    nnc_status st = d->api->open(ordinal, &b->device, sink);
    void *base = NULL;
    if (!st)
        st = d->api->alloc(b->device, bytes, &base, sink);
    b->base = base;
    b->bytes = bytes;
    if (st && b->device)
        d->api->close(b->device);
    if (st)
        nnc_free(b);
    else
        *out = b;
    return st;
}

/* Places the values of device d that were not found: all of them where the plan has them, or some side by side. */
static int64_t lay_out(const nnc_plan *p, int d, nnc_static *s)
{
    const int64_t align = nnc_plan_align(&p->device[d]);
    int64_t bytes = 0;
    bool all = true;
    for (int i = 0; i < p->n_tensor; i++)
        all = all && !s[i].found;
    for (int i = 0; i < p->n_tensor; i++) {
        if (!is_static(p, i) || s[i].found || p->tensor[i].device != d)
            continue;
        s[i].offset = all ? p->tensor[i].offset : bytes;
        bytes = nnc_align_up(bytes + p->tensor[i].bytes, align);
    }
    return all ? p->device[d].persist_bytes : bytes;
}

static nnc_status place_on(nnc_exec *e, int d, nnc_static *s, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    dev *at = &e->dev[d];
    const int64_t bytes = lay_out(p, d, s);
    block *b = NULL;
    bool init = false;
    for (int i = 0; i < p->end[SEC_init]; i++)
        init = init || (p->cmd[i].n_arg && !e->idle[i]);
    at->requested.init = init ? p->device[d].init_bytes : 0;
    NNC_TRY(at->api->alloc(at->device, at->requested.init, &at->base[SP_init], sink));
    at->requested.persist = bytes;
    if (bytes == 0)
        return NNC_OK;
    NNC_TRY(create_block(at, at->ordinal, bytes, &b, sink));
    if (!use_block(e, b)) {
        at->api->free(b->device, b->base);
        at->api->close(b->device);
        nnc_free(b);
        return nnc_nomem(sink);
    }
    at->statics = b;
    for (int i = 0; i < p->n_tensor; i++)
        if (is_static(p, i) && !s[i].found && p->tensor[i].device == d)
            s[i].at = b->base + s[i].offset;
    return NNC_OK;
}

nnc_status nnc_exec_place(nnc_exec *e, const nnc_exec_options *o, nnc_sink *sink)
{
    const nnc_plan *p = e->p;
    const int64_t from = nnc_now_ns();
    nnc_static *s = ARENA_NEW(&e->arena, nnc_static, p->n_tensor + 1);
    e->idle = ARENA_NEW(&e->arena, bool, p->end[SEC_init] + 1);
    void **at = ARENA_NEW(&e->arena, void *, p->n_tensor + 1);
    nnc_shared *shared = o->states ? o->states->shared : o->shared;
    e->shared = shared ? nnc_shared_join(shared) : nnc_shared_create();
    NNC_NEED(s && e->idle && at && e->shared, sink);
    NNC_TRY(find_keys(e, s, sink));
    NNC_NEED(take_values(e, s), sink);
    if (o->states)
        NNC_TRY(take_states(e, s, o->states, sink));
    find_idle(e, s);
    for (int d = 0; d < p->n_device; d++)
        if (nnc_exec_owns(e, d))
            NNC_TRY(place_on(e, d, s, sink));
    for (int i = 0; i < p->n_tensor; i++) {
        const int root = nnc_plan_root(p, i);
        if (p->tensor[i].space == SP_persist && s[root].at)
            at[i] = (char *)s[root].at + (p->tensor[i].offset - p->tensor[root].offset);
    }
    e->fixed = at;
    e->made = s;
    nnc_exec_spent(e, NNC_PH_memory, from);
    return NNC_OK;
}

/* ---- offering and releasing ------------------------------------------------------------------ */

void nnc_exec_offer(nnc_exec *e)
{
    const nnc_plan *p = e->p;
    const nnc_static *s = e->made;
    nnc_lock(&e->shared->lock);
    for (int i = 0; i < p->n_tensor; i++) {
        const dev *d = &e->dev[p->tensor[i].device];
        value **first = &e->shared->value[s[i].key.lo % BUCKETS];
        if (!is_static(p, i) || s[i].unknown || s[i].found || !s[i].at ||
            find_value(e->shared, s[i].key, d->api))
            continue;
        value *v = nnc_malloc(sizeof *v); /* without memory it is not shared */
        if (v) {
            *v = (value){s[i].key, s[i].at, d->statics, *first};
            *first = v;
        }
    }
    nnc_unlock(&e->shared->lock);
}

/* Removes the block's values from a list. */
static void forget(value **v, const block *b)
{
    while (*v) {
        value *gone = *v;
        if (gone->in != b) {
            v = &gone->next;
            continue;
        }
        *v = gone->next;
        nnc_free(gone);
    }
}

static void destroy_block(nnc_shared *s, block *b)
{
    for (int i = 0; i < BUCKETS; i++)
        forget(&s->value[i], b);
    b->api->free(b->device, b->base);
    b->api->close(b->device);
    nnc_free(b);
}

void nnc_exec_release(nnc_exec *e)
{
    if (!e->shared)
        return;
    nnc_lock(&e->shared->lock);
    for (size_t i = 0; i < e->n_block; i++)
        if (--e->block[i]->users == 0)
            destroy_block(e->shared, e->block[i]);
    nnc_unlock(&e->shared->lock);
    nnc_shared_drop(e->shared);
}
