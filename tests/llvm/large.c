/* tests/llvm/large.c -- more elements than 32 bits count: address arithmetic of machine code at 2^32. Memory is reserved, and touched
 * where the last units are. */
#include "kb.h"
#include <math.h>
#include <sys/mman.h>

enum { SEEN = 3000 };

static void *reserve(size_t bytes)
{
    void *p = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* y = sin x, the last elements of n. */
static void check_end(const nnc_kernel *k, nnc_kernel_fn fn, int64_t n)
{
    float *x = reserve(4 * (size_t)n), *y = reserve(4 * (size_t)n);
    if (!x || !y) {
        test_skip("no address space of 32 GiB");
        return;
    }
    for (int64_t i = 0; i < SEEN; i++)
        x[n - 1 - i] = (float)i * 0.01f - 9;
    fn((void *[]){x, y}, k->sched.domain - 2, k->sched.domain, NULL);
    for (int64_t i = n - SEEN / 2; i < n; i++) {
        double want = sin((double)x[i]);
        if (!(fabs((double)y[i] - want) < 3e-7)) {
            test_fail(__FILE__, __LINE__, "%s: y[%lld] is %g, not %g", k->name, (long long)i,
                (double)y[i], want);
            break;
        }
    }
    munmap(x, 4 * (size_t)n);
    munmap(y, 4 * (size_t)n);
}

static void check_graph(const char *text, int64_t n)
{
    const nnc_emitter *e = kb_emitter();
    nnc_arena a;
    nnc_scan s;
    if (!e)
        return;
    nnc_arena_init(&a, 0);
    nnc_scan_init(&s, "large", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    CHECK(g != NULL);
    const nnc_node *node = g ? &g->node[g->value[g->output[0]].node] : NULL;
    const nnc_kernel *k = g ? nnc_lower(g, node, kb_host(), MATH_ulp2, &a, test_sink) : NULL;
    char *bytes = NULL;
    size_t size = 0;
    CHECK(k && k->sched.domain > 4 && n / k->sched.domain < 1 << 24);
    if (k)
        CHECK_OK(e->emit(&k, 1, kb_host(), EMIT_object, &bytes, &size, test_sink));
    const char *why = NULL;
    nnc_object *o = bytes ? nnc_object_load(bytes, size, &why) : NULL;
    void *p = o ? nnc_object_symbol(o, k->name) : NULL;
    nnc_kernel_fn fn;
    memcpy(&fn, &p, sizeof fn);
    CHECK(p != NULL);
    if (p)
        check_end(k, fn, n);
    nnc_object_unload(o);
    nnc_free(bytes);
    nnc_graph_destroy(g);
    nnc_arena_deinit(&a);
}

TEST(more_elements_than_32_bits_count)
{
    int64_t n = ((int64_t)1 << 32) + 4;
    char text[200];
    snprintf(text, sizeof text, "graph @t {\n%%x = input : f32[%lld]\n%%y = sin %%x\nreturn %%y }",
        (long long)n);
    check_graph(text, n);
}
