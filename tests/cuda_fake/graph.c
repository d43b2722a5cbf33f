/* tests/cuda_fake/graph.c -- capture and replay. A graph is what each stream was given, and a replay gives it again. The first stream's
 * part goes to the stream that replays, the others to streams of their own. So the checker sees of a replay what it sees of a run. */
#include "internal.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum {
    INVALID_VALUE = 1,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_MERGE = 906,
    CAPTURED_EVENT = 907,
};

int fake_capturing, fake_graph_fail;
static cuda_graph graphs;
static cuda_stream member[FAKE_STREAMS]; /* those that take part in the capture under way */

captured *fake_captured_by(cuda_stream s)
{
    cuda_graph g = s->capturing;
    for (int i = 0; i < g->n; i++)
        if (g->part[i].by == s)
            return &g->part[i];
    g->part[g->n] = (captured){.device = s->device, .by = s};
    member[g->n] = s;
    return &g->part[g->n++];
}

int fake_graph_join(cuda_stream s, const firing *f)
{
    if (!f->graph)
        return s->capturing ? CAPTURE_ISOLATION : 0;
    if (!f->graph->open)
        return CAPTURED_EVENT;
    if (!s->capturing)
        s->capturing = f->graph;
    return s->capturing == f->graph ? 0 : CAPTURE_MERGE;
}

/* As fake_gives, for a call of this kind. */
static int gives(int kind)
{
    bool fails = kind == fake_graph_fail;
    fake_graph_fail = fails ? 0 : fake_graph_fail;
    return fake_gives(fails ? fake_fail_with : 0);
}

static int begin(cuda_stream s, int mode)
{
    int error = gives(FAKE_CAPTURE_BEGIN);
    if (error)
        return error;
    if (mode != CUDA_CAPTURE_THREAD_LOCAL || fake_capturing || !s)
        return fake_gives(INVALID_VALUE);
    cuda_graph g = calloc(1, sizeof *g);
    g->next = graphs;
    g->users = 1;
    g->open = true;
    graphs = g;
    s->capturing = g;
    fake_capturing++;
    (void)fake_captured_by(s);
    return 0;
}

/* Does the first stream wait for the last command of part i, which is a record? */
static bool joined(const struct cuda_graph_of *g, int i)
{
    const command *last = g->part[i].last;
    if (!last || last->kind != C_record)
        return !last;
    for (const command *c = g->part[0].first; c; c = c->next)
        if (c->kind == C_wait && c->f == last->f)
            return true;
    return false;
}

static int end(cuda_stream s, cuda_graph *out)
{
    cuda_graph g = s->capturing;
    *out = NULL;
    if (!g || g->part[0].by != s)
        return fake_gives(CAPTURE_UNMATCHED);
    bool whole = true;
    for (int i = 0; i < g->n; i++) {
        whole &= i == 0 || joined(g, i);
        member[i]->capturing = NULL;
    }
    g->open = false;
    fake_capturing--;
    int error = whole ? gives(FAKE_CAPTURE_END) : fake_gives(CAPTURE_UNJOINED);
    if (!error)
        *out = g;
    return error;
}

static int instantiate(cuda_graph_exec *x, cuda_graph g, unsigned long long flags)
{
    int error = flags ? fake_gives(INVALID_VALUE) : gives(FAKE_GRAPH_INSTANTIATE);
    if (error)
        return error;
    for (int i = 0; i < g->n; i++)
        for (command *c = g->part[i].first; c; c = c->next)
            c->clone = fake_cupti_node(c->node);
    g->users++;
    fake_count.libraries++; /* counted with what must be given back */
    *x = (cuda_graph_exec)g;
    return 0;
}

static int upload(cuda_graph_exec x, cuda_stream s)
{
    (void)x;
    (void)s;
    return gives(FAKE_GRAPH_UPLOAD);
}

static void *copy_of(const void *p)
{
    size_t n = p ? malloc_usable_size((void *)(uintptr_t)p) : 0;
    return p ? memcpy(malloc(n), p, n) : NULL;
}

static void replay_part(const captured *p, cuda_stream s, uint32_t call)
{
    for (const command *c = p->first; c; c = c->next) {
        command *d = fake_push(s, c->kind, c->what);
        d->run = c->run;
        d->ready = c->ready;
        d->ctx = copy_of(c->ctx);
        d->access = copy_of(c->access);
        d->n_access = c->n_access;
        d->any_device = c->any_device;
        d->engine = c->engine;
        d->node = c->clone;
        d->correlation = call;
        d->f = c->f ? c->f->now : NULL;
    }
}

static int graph_launch(cuda_graph_exec x, cuda_stream s)
{
    cuda_graph g = (cuda_graph)x;
    int error = fake_gives(0);
    if (error)
        return error;
    const uint32_t call = fake_cupti_call();
    fake_count.replays++;
    for (int i = 0; i < g->n; i++)
        for (command *c = g->part[i].first; c; c = c->next)
            if (c->kind == C_record)
                c->f->now = fake_firing();
    for (int i = 0; i < g->n; i++) {
        cuda_stream to = i ? fake_stream_create(g->part[i].device) : s;
        while (!to && fake_step()) /* too many replays are under way: the call blocks */
            to = fake_stream_create(g->part[i].device);
        if (!to)
            return fake_gives(INVALID_VALUE);
        to->inner = i > 0;
        replay_part(&g->part[i], to, call);
    }
    return 0;
}

static int exec_destroy(cuda_graph_exec x)
{
    ((cuda_graph)x)->users--;
    fake_count.libraries--;
    return fake_gives(0);
}

static int destroy(cuda_graph g)
{
    g->users--;
    return fake_gives(0);
}

void fake_graphs_end(void)
{
    while (graphs) {
        cuda_graph g = graphs;
        graphs = g->next;
        for (int i = 0; i < g->n; i++)
            for (command *c = g->part[i].first, *next; c; c = next) {
                next = c->next;
                fake_command_free(c);
            }
        free(g);
    }
    fake_capturing = 0;
}

void fake_graph_table(nnc_cuda_cudart *t)
{
    t->cudaStreamBeginCapture = begin;
    t->cudaStreamEndCapture = end;
    t->cudaGraphInstantiate = instantiate;
    t->cudaGraphUpload = upload;
    t->cudaGraphLaunch = graph_launch;
    t->cudaGraphExecDestroy = exec_destroy;
    t->cudaGraphDestroy = destroy;
}
