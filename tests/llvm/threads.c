/* tests/llvm/threads.c -- the emitter is used by many threads at once: each gets the bytes that
 * one thread alone gets. */
#include "kb.h"

#include <pthread.h>

enum { THREADS = 4, TIMES = 5 };

static kb b;

typedef struct job {
    const nnc_emitter *e;
    char *first; /* expected bytes */
    size_t n;
    int wrong;
} job;

static void *work(void *p)
{
    job *j = p;
    const nnc_kernel *k = &b.k;
    for (int i = 0; i < TIMES; i++) {
        char *bytes = NULL;
        size_t n = 0;
        nnc_status s = j->e->emit(&k, 1, kb_host(), EMIT_object, &bytes, &n, NULL);
        j->wrong += s != NNC_OK || n != j->n || memcmp(bytes, j->first, n);
        nnc_free(bytes);
    }
    return NULL;
}

TEST(emitter_on_many_threads)
{
    job j[THREADS];
    pthread_t t[THREADS];
    kb_code c;
    if (!kb_emitter())
        return;
    kb_init(&b, "k_threads");
    int a = kb_axis(&b, KA_outer, 1000);
    int x = kb_buf(&b, KB_in, DT_f32, 1000), y = kb_buf(&b, KB_out, DT_f32, 1000);
    kb_stage(&b, 0);
    int v = kb_op(&b, SC_sin, DT_f32, kb_load(&b, x, (nnc_affine){.k = {1}}), -1, -1);
    kb_store(&b, y, (nnc_affine){.k = {1}}, v);
    kb_done(&b, a, 16, 0);
    if (!kb_compile(&b, kb_host(), &c))
        return;
    for (int i = 0; i < THREADS; i++) {
        j[i] = (job){kb_emitter(), c.bytes, c.n, 0};
        CHECK(!pthread_create(&t[i], NULL, work, &j[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        CHECK_INT(j[i].wrong, 0);
    }
    kb_free(&c);
}
