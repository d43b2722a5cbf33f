/* tests/llvm/threads.c -- the emitter is used by many threads at once. Each gets the bytes that one thread alone gets, of code that it
 * compiles beside others, and of code that one compiles for all. */
#include "kb.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, TIMES = 5, NAME = 40 };

typedef struct object {
    char name[NAME], *bytes;
    size_t n;
} object;

typedef struct job {
    kb b;
    int number;
    object own[TIMES], shared[TIMES];
    int failed;
} job;

/* y[i] = sin(x[i]) + .. + sin(x[i]), of so many terms. */
static void sines(kb *b, const char *name, int64_t n, int terms)
{
    kb_init(b, name);
    const int a = kb_axis(b, KA_outer, n), x = kb_buf(b, KB_in, DT_f32, n),
              y = kb_buf(b, KB_out, DT_f32, n);
    kb_stage(b, 0);
    const int s = kb_op(b, SC_sin, DT_f32, kb_load(b, x, (nnc_affine){.k = {1}}), -1, -1);
    int v = s;
    for (int i = 1; i < terms; i++)
        v = kb_op(b, SC_add, DT_f32, v, s, -1);
    kb_store(b, y, (nnc_affine){.k = {1}}, v);
    kb_done(b, a, 16, 0);
}

/* Twice the same kernel: an object of several shares no code. Where another thread compiles the same code, the second call waits for it. */
static int emit(kb *b, int n, object *o)
{
    const nnc_kernel *k[2] = {&b->k, &b->k};
    const nnc_emitter *e = kb_emitter();
    if (e->emit(k, n, kb_host(), EMIT_idle, &o->bytes, &o->n, NULL) == NNC_OK && o->bytes)
        return 0;
    return e->emit(k, n, kb_host(), EMIT_object, &o->bytes, &o->n, NULL) != NNC_OK || !o->bytes;
}

/* Kernel i of all threads has the same code, in other sizes. */
static int emit_shared(kb *b, int number, int i, object *o)
{
    snprintf(o->name, sizeof o->name, "k_%02d%d", number, i);
    sines(b, o->name, 992 + 16 * number, i + 2);
    return emit(b, 1, o);
}

static void *work(void *p)
{
    job *j = p;
    for (int i = 0; i < TIMES; i++) {
        j->failed += emit_shared(&j->b, j->number, i, &j->shared[i]);
        snprintf(j->own[i].name, sizeof j->own[i].name, "k%d%d_threads", j->number, i);
        sines(&j->b, j->own[i].name, 1000, 1);
        j->failed += emit(&j->b, 2, &j->own[i]);
    }
    return NULL;
}

/* Is it the other one but for the name? */
static bool same(const object *a, object *b)
{
    const size_t length = strlen(a->name);
    char *name = b->bytes ? memmem(b->bytes, b->n, b->name, length) : NULL;
    if (name)
        memcpy(name, a->name, length);
    return name && a->n == b->n && !memcmp(a->bytes, b->bytes, b->n);
}

TEST(emitter_on_many_threads)
{
    static job j[THREADS];
    pthread_t t[THREADS];
    if (!kb_emitter())
        return;
    for (int i = 0; i < THREADS; i++) {
        j[i] = (job){.number = i};
        CHECK(!pthread_create(&t[i], NULL, work, &j[i]));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(j[i].failed, 0);
        for (int k = 0; k < TIMES; k++) {
            object again = {0};
            CHECK(!emit_shared(&j[i].b, i, k, &again) && same(&again, &j[i].shared[k]));
            CHECK((i == 0 && k == 0) || same(&j[0].own[0], &j[i].own[k]));
            nnc_free(again.bytes);
        }
    }
    for (int i = 0; i < THREADS * TIMES; i++) {
        nnc_free(j[i / TIMES].own[i % TIMES].bytes);
        nnc_free(j[i / TIMES].shared[i % TIMES].bytes);
    }
}
