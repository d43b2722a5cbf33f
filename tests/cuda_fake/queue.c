/* tests/cuda_fake/queue.c -- streams as queues of commands, run in an order that the seed chooses, under the checker's eyes. */
#include "internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fake_counts fake_count;
int fake_sticky, fake_left;

static cuda_stream stream[FAKE_STREAMS]; /* by id */
static uint32_t host[FAKE_STREAMS], last_time[FAKE_STREAMS];
static firing *firings;
static memory *memories;
static uint64_t order, steps;
static int n_wrong, last_id;
static char first_wrong[512];

void fake_wrong(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!n_wrong++)
        vsnprintf(first_wrong, sizeof first_wrong, fmt, ap);
    va_end(ap);
}

static void join(uint32_t *to, const uint32_t *from)
{
    for (int i = 0; i < FAKE_STREAMS; i++)
        if (to[i] < from[i])
            to[i] = from[i];
}

static uint32_t published[FAKE_STREAMS];

void fake_publish(cuda_stream s)
{
    join(published, s->clock);
}

void fake_hear(cuda_stream s)
{
    join(s->clock, published);
    join(s->clock, host);
}

/* ---- time ---------------------------------------------------------------------------------------------------------- */

fake_speeds fake_speed;
static bool timed;
static int64_t host_ns;

static int64_t host_clock(void)
{
    return host_ns += 100;
}

void fake_clock(const fake_speeds *s)
{
    fake_speed = *s;
    timed = true;
    host_ns = 1000000000;
    nnc_set_clock(host_clock);
}

static void host_waits_until(int64_t ns)
{
    host_ns = timed && ns > host_ns ? ns : host_ns;
}

/* How long a command takes: that of its largest argument for copies, of all for work. */
static int64_t cost(const command *c)
{
    const double speed[] = {fake_speed.compute, fake_speed.up, fake_speed.down};
    size_t bytes = 0;
    for (int i = 0; i < c->n_access; i++)
        bytes = c->engine == E_compute   ? bytes + c->access[i].n
                : c->access[i].n > bytes ? c->access[i].n
                                         : bytes;
    return c->kind == C_work ? (int64_t)((double)bytes / speed[c->engine]) : 0;
}

static void spend(cuda_stream s, command *c)
{
    if (s->ns < c->given_ns)
        s->ns = c->given_ns;
    if (c->kind == C_wait && s->ns < c->f->ns)
        s->ns = c->f->ns;
    s->ns += cost(c);
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

void *fake_memory_create(size_t bytes, int device)
{
    memory *m = calloc(1, sizeof *m);
    m->bytes = bytes;
    m->device = device;
    m->p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (m->p)
        memset(m->p, 0xff, bytes < 1 << 18 ? bytes : 1 << 18); /* NaN, where small tensors lie */
    if (device >= 0)
        m->shadow = fake_shadow_create(bytes);
    m->next = memories;
    memories = m;
    fake_count.blocks++;
    return m->p;
}

static void free_memory(memory *m)
{
    fake_shadow_destroy(m->shadow);
    free(m->p);
    free(m);
    fake_count.blocks--;
}

bool fake_memory_destroy(void *p, bool pinned)
{
    for (memory **m = &memories; *m; m = &(*m)->next)
        if ((*m)->p == p && ((*m)->device < 0) == pinned) {
            memory *gone = *m;
            *m = gone->next;
            free_memory(gone);
            return true;
        }
    fake_wrong("memory is freed that is not there");
    return false;
}

memory *fake_memory_of(const void *p)
{
    for (memory *m = memories; m; m = m->next)
        if ((const char *)p >= m->p && (const char *)p < m->p + m->bytes)
            return m;
    return NULL;
}

static void check_access(cuda_stream s, const command *c, const fake_access *a)
{
    memory *m = fake_memory_of(a->p);
    if (!a->n)
        return;
    if (!m || (m->device >= 0 && m->device != s->device && !c->any_device)) {
        fake_wrong(
            "%s: an argument is %s", c->what, m ? "memory of another device" : "no device memory");
        return;
    }
    size_t at = (size_t)((const char *)a->p - m->p);
    const char *why =
        m->shadow ? fake_shadow_access(m->shadow, at, at + a->n, a->write, s->id, s->clock) : NULL;
    if (why)
        fake_wrong("%s: stream %d %s", c->what, s->id, why);
}

/* ---- running ------------------------------------------------------------------------------------------------------- */

static bool can_run(cuda_stream s)
{
    const command *c = s ? s->first : NULL;
    return c && (c->kind == C_wait ? c->f->fired : c->kind != C_poll || c->ready(c->ctx));
}

void fake_command_free(command *c)
{
    free(c->ctx);
    free(c->access);
    free(c);
}

static void run_first(cuda_stream s)
{
    command *c = s->first;
    s->first = c->next;
    if (!s->first)
        s->last = NULL;
    s->clock[s->id] = ++last_time[s->id];
    join(s->clock, c->host);
    if (c->kind == C_wait)
        join(s->clock, c->f->clock);
    /* reads first: a command that writes where it reads is in order with itself */
    for (int write = 0; write < 2; write++)
        for (int i = 0; i < c->n_access; i++)
            if (c->access[i].write == (write == 1))
                check_access(s, c, &c->access[i]);
    if (timed)
        spend(s, c);
    const int64_t start = timed ? s->ns - cost(c) : nnc_now_ns();
    if (c->kind == C_work && !fake_sticky) {
        c->run(c->ctx);
        fake_cupti_ran(c, s->device, start, timed ? s->ns : nnc_now_ns());
    }
    if (c->kind == C_record) {
        c->f->fired = true;
        c->f->ns = timed ? s->ns : nnc_now_ns();
        memcpy(c->f->clock, s->clock, sizeof s->clock);
    }
    fake_command_free(c);
    if (s->inner && !s->first) {
        stream[s->id] = NULL;
        free(s);
    }
}

/* One command of a stream that can go on; false: none can. */
bool fake_step(void)
{
    int ready[FAKE_STREAMS], n = 0;
    for (int i = 0; i < FAKE_STREAMS; i++)
        if (can_run(stream[i]))
            ready[n++] = i;
    if (!n)
        return false;
    int i = order == 0 ? 0 : order == 1 ? n - 1 : (int)(nnc_rng_u32(order, steps++) % (uint32_t)n);
    run_first(stream[ready[i]]);
    return true;
}

/* Runs one command; where all wait, for another process. False: none of them can. */
static bool step(void)
{
    if (fake_step())
        return true;
    bool polls = false;
    for (int i = 0; i < FAKE_STREAMS; i++)
        polls = polls || (stream[i] && stream[i]->first && stream[i]->first->kind == C_poll);
    if (polls)
        usleep(100);
    return polls;
}

int fake_until_empty(cuda_stream s)
{
    while (s->first)
        if (!step()) {
            fake_wrong("a stream waits for an event that nothing will record");
            return fake_sticky = 719;
        }
    join(host, s->clock);
    host_waits_until(s->ns);
    return fake_sticky;
}

void fake_until_idle(void)
{
    for (int i = 0; i < FAKE_STREAMS; i++)
        if (stream[i])
            (void)fake_until_empty(stream[i]);
}

int fake_until_fired(const firing *f)
{
    while (!f->fired)
        if (!step()) {
            fake_wrong("the host waits for an event that nothing will record");
            return fake_sticky = 719;
        }
    fake_host_after(f);
    return fake_sticky;
}

void fake_host_after(const firing *f)
{
    join(host, f->clock);
    host_waits_until(f->ns);
}

/* ---- giving -------------------------------------------------------------------------------------------------------- */

command *fake_push(cuda_stream s, command_kind kind, const char *what)
{
    command *c = calloc(1, sizeof *c);
    c->kind = kind;
    c->what = what;
    c->given_ns = timed ? host_ns += 1000 : 0;
    memcpy(c->host, host, sizeof host);
    captured *part = s->capturing ? fake_captured_by(s) : NULL;
    if (part)
        c->node = fake_cupti_node(0);
    else
        c->correlation = fake_cupti_call();
    command **head = part ? &part->first : &s->first, **tail = part ? &part->last : &s->last;
    if (*tail)
        (*tail)->next = c;
    else
        *head = c;
    return *tail = c;
}

command *fake_push_work(cuda_stream s, void (*run)(void *ctx), void *ctx, const fake_access *access,
    int n_access, const char *what)
{
    command *c = fake_push(s, C_work, what);
    c->run = run;
    c->ctx = ctx;
    c->n_access = n_access;
    c->access = malloc(sizeof *access * (size_t)(n_access + 1));
    if (n_access)
        memcpy(c->access, access, sizeof *access * (size_t)n_access);
    return c;
}

int fake_enqueue(cuda_stream s, void (*run)(void *ctx), void *ctx, const fake_access *access,
    int n_access, const char *what)
{
    fake_push_work(s, run, ctx, access, n_access, what);
    return 0;
}

firing *fake_firing(void)
{
    firing *f = calloc(1, sizeof *f);
    f->next = firings;
    return firings = f;
}

cuda_stream fake_stream_create(int device)
{
    for (int k = 0; k < FAKE_STREAMS; k++) {
        last_id = last_id % (FAKE_STREAMS - 1) + 1; /* never 0, the host's */
        if (!stream[last_id]) {
            cuda_stream s = calloc(1, sizeof *s);
            s->id = last_id;
            s->device = device;
            return stream[last_id] = s;
        }
    }
    return NULL;
}

bool fake_stream_destroy(cuda_stream s)
{
    if (!s || stream[s->id] != s) {
        fake_wrong("a stream is destroyed that is not there");
        return false;
    }
    (void)fake_until_empty(s);
    for (command *c = s->first, *next; c; c = next) { /* what waits for ever */
        next = c->next;
        fake_command_free(c);
    }
    stream[s->id] = NULL;
    free(s);
    return true;
}

void fake_queues_begin(uint64_t seed)
{
    order = seed;
    timed = false;
    fake_speed = (fake_speeds){0};
    nnc_set_clock(NULL);
    steps = 0;
    n_wrong = fake_sticky = last_id = 0;
    first_wrong[0] = 0;
    fake_count = (fake_counts){0};
    memset(host, 0, sizeof host);
    memset(published, 0, sizeof published);
    memset(last_time, 0, sizeof last_time);
}

void fake_queues_end(void)
{
    while (firings) {
        firing *f = firings;
        firings = f->next;
        free(f);
    }
    while (memories) {
        memory *m = memories;
        memories = m->next;
        free_memory(m);
    }
}

const char *fake_said(void)
{
    return n_wrong ? first_wrong : NULL;
}

int fake_end(char why[512])
{
    const fake_counts *n = &fake_count;
    fake_libraries_end();
    fake_left = n->streams + n->events + n->blocks + n->libraries + n->communicators;
    if (fake_left)
        fake_wrong("left: %d streams, %d events, %d blocks, %d libraries, %d communicators",
            n->streams, n->events, n->blocks, n->libraries, n->communicators);
    for (int i = 1; i < FAKE_STREAMS; i++)
        if (stream[i])
            (void)fake_stream_destroy(stream[i]);
    fake_graphs_end();
    fake_nccl_end();
    fake_cupti_end();
    fake_queues_end();
    nnc_set_clock(NULL);
    snprintf(why, 512, "%s", first_wrong);
    return n_wrong;
}
