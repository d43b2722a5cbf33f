/* tests/plan/objects.c -- machine code of kernels. Identical kernels are one, the cache serves a warm run without the emitter, and threads
 * of emission change nothing. A failing emitter means the interpreter, or an error where there is none; kernels in units share objects. */
#include "help.h"
#include "plan/maker.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int emitted;
static int asked;
static bool emitter_fails, emitter_busy, no_interpreter;
static int unit = 1; /* kernels of one object */

static nnc_status emit(const nnc_kernel *const *k, int n, const nnc_target *t, nnc_emit what,
    char **out, size_t *size, nnc_sink *sink)
{
    if (n > unit || (what != EMIT_object && what != EMIT_idle) || emitter_fails)
        return nnc_fail0(sink, NNC_E_DEVICE, "the fake emitter fails");
    if (what == EMIT_idle && emitter_busy)
        return NNC_OK;
    atomic_fetch_add(&emitted, 1);
    nnc_text text = {0};
    nnc_puts(&text, "ELF");
    for (int i = 0; i < n; i++)
        nnc_printf(&text, " %s%s", k[i]->name, t->features);
    *size = text.n;
    *out = text.s;
    return text.oom ? NNC_E_NOMEM : NNC_OK;
}

static const nnc_emitter fake_emitter = {"fake", "1", emit};

static const nnc_emitter *emitter(void)
{
    asked++;
    return &fake_emitter;
}

static nnc_status load(const nnc_load *l, void **handle, nnc_sink *sink)
{
    (void)l;
    *handle = NULL;
    return nnc_fail0(sink, NNC_E_BUG, "a fake engine does not run");
}

static const nnc_engine code = {.name = "llvm", .version = "1", .load_kernel = load};

static const char net[] = "graph @t {\n"
                          "%x = input : f32[4,16]\n"
                          "%z = input : f32[4,16]\n"
                          "%a = exp %x loc \"/a\"\n"
                          "%b = exp %z loc \"/b\"\n"
                          "%c = add %a, %b loc \"/c\"\n"
                          "%d = softmax %c {axis=1} loc \"/d\"\n"
                          "return %d }";

static nnc_status make_status; /* of the last plan */

/* A plan with a device for each of at most two targets. */
static nnc_plan *make_for(const char *graph, const nnc_target *t, int n_target, nnc_cache *cache,
    int jobs, int *hits, int *misses, const char *version)
{
    static const nnc_engine *const engines[] = {&fake_library, &code, &fake_kernels};
    const nnc_compiler compiler[2] = {{emitter, version, unit}, {emitter, version, unit}};
    *hits = *misses = asked = 0;
    emitted = 0;
    nnc_plan_options o = {.target = t,
        .n_target = n_target,
        .engine = engines,
        .n_engine = 3,
        .compiler = compiler,
        .cache = cache,
        .jobs = jobs,
        .streams = 1,
        .devices = n_target,
        .cache_hits = hits,
        .cache_misses = misses};
    nnc_plan *p = NULL;
    nnc_graph *g = help_graph(graph);
    make_status = g ? nnc_plan_make(g, &o, &p, test_sink) : NNC_E_BUG;
    nnc_graph_destroy(g);
    return make_status ? NULL : p;
}

static void compiled_target(nnc_target *t)
{
    help_target(t, 2);
    t->engine[2] = t->engine[1];
    t->engine[1] = (nnc_target_engine){.name = "llvm"};
    t->n_engines = no_interpreter ? 2 : 3;
}

static nnc_plan *make(nnc_cache *cache, int jobs, int *hits, int *misses, const char *version)
{
    nnc_target t;
    compiled_target(&t);
    return make_for(net, &t, 1, cache, jobs, hits, misses, version);
}

static bool same(const nnc_plan *p, const nnc_plan *q)
{
    nnc_hash128 a = nnc_plan_hash(p), b = nnc_plan_hash(q);
    return a.lo == b.lo && a.hi == b.hi;
}

/* Does each say the same, whatever its machine code is? */
static bool same_text(const nnc_plan *p, const nnc_plan *q)
{
    nnc_text a = {0}, b = {0};
    nnc_plan_print(&a, p);
    nnc_plan_print(&b, q);
    const bool is = !strcmp(nnc_text_str(&a), nnc_text_str(&b));
    nnc_text_deinit(&a);
    nnc_text_deinit(&b);
    return is;
}

TEST(objects)
{
    char dir[] = "/tmp/nnc-objects-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    nnc_cache *cache = nnc_cache_open(dir);
    int hits, misses;
    nnc_plan *cold = make(cache, 1, &hits, &misses, "1");
    CHECK(cache && cold);
    if (!cache || !cold)
        return;
    /* two exps are one kernel */
    CHECK_INT(cold->n_kernel, 3);
    CHECK_INT(cold->n_object, 3);
    CHECK(hits == 0 && misses == 3 && emitted == 3 && asked == 1);
    CHECK_STR(cold->engine[help_cmd(cold, "/a")->engine], "llvm");
    CHECK_INT(help_cmd(cold, "/a")->item, help_cmd(cold, "/b")->item);
    CHECK_OK(nnc_plan_verify(cold, test_sink));
    nnc_plan *warm = make(cache, 1, &hits, &misses, "1");
    CHECK(hits == 3 && misses == 0 && emitted == 0 && asked == 0);
    CHECK(warm && same(cold, warm));
    nnc_plan *jobs = make(NULL, 4, &hits, &misses, "1");
    CHECK(jobs && same(cold, jobs) && emitted == 3);
    emitter_busy = true;
    nnc_plan *later = make(NULL, 2, &hits, &misses, "1");
    emitter_busy = false;
    CHECK(later && same(cold, later) && emitted == 3);
    nnc_plan *newer = make(cache, 1, &hits, &misses, "2");
    CHECK(newer && hits == 0 && misses == 3);
    emitter_fails = true;
    nnc_plan *plain = make(NULL, 2, &hits, &misses, "1");
    emitter_fails = false;
    CHECK(plain && same_text(cold, plain) && !nnc_pkernel_code(plain, &plain->kernel[0]));
    CHECK_OK(nnc_plan_verify(plain, test_sink));
    CHECK_DIAG("has no machine code");
    nnc_plan_destroy(cold);
    nnc_plan_destroy(warm);
    nnc_plan_destroy(jobs);
    nnc_plan_destroy(later);
    nnc_plan_destroy(newer);
    nnc_plan_destroy(plain);
    nnc_cache_close(cache);
    char cmd[64];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    CHECK_INT(system(cmd), 0);
}

TEST(objects_in_units)
{
    char dir[] = "/tmp/nnc-objects-XXXXXX", cmd[64], want[256];
    CHECK(mkdtemp(dir) != NULL);
    nnc_cache *cache = nnc_cache_open(dir);
    int hits, misses;
    unit = 2;
    nnc_plan *cold = make(cache, 2, &hits, &misses, "1");
    CHECK(cache && cold);
    if (cache && cold) {
        CHECK_INT(cold->n_kernel, 3);
        CHECK_INT(cold->n_object, 2);
        CHECK(hits == 0 && misses == 3 && emitted == 2);
        CHECK(cold->kernel[0].object == 0 && cold->kernel[1].object == 0 &&
              cold->kernel[2].object == 1);
        int n = snprintf(
            want, sizeof want, "ELF %s %s", cold->kernel[0].symbol, cold->kernel[1].symbol);
        CHECK(cold->object[0].n == (size_t)n && !memcmp(cold->object[0].data, want, (size_t)n));
        CHECK_OK(nnc_plan_verify(cold, test_sink));
        nnc_plan *warm = make(cache, 1, &hits, &misses, "1");
        CHECK(warm && same(cold, warm) && hits == 3 && misses == 0 && asked == 0);
        nnc_plan_destroy(warm);
    }
    unit = 1; /* the objects of units are not those of their kernels */
    nnc_plan *one = make(cache, 1, &hits, &misses, "1");
    CHECK(one && one->n_object == 3 && hits == 1 && misses == 2);
    unit = 1000; /* as many as there may be */
    nnc_plan *all = make(NULL, 1, &hits, &misses, "1");
    CHECK(all && all->n_object == 1);
    unit = 1;
    nnc_plan_destroy(cold);
    nnc_plan_destroy(one);
    nnc_plan_destroy(all);
    nnc_cache_close(cache);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    CHECK_INT(system(cmd), 0);
}

TEST(objects_without_an_interpreter)
{
    int hits, misses;
    no_interpreter = emitter_fails = true;
    nnc_plan *p = make(NULL, 2, &hits, &misses, "1");
    no_interpreter = emitter_fails = false;
    CHECK(p == NULL);
    CHECK_INT(make_status, NNC_E_DEVICE);
    CHECK_DIAG("the fake emitter fails");
    nnc_plan_destroy(p);
}

/* Kernel i of a plan, in `a`. */
static nnc_kernel *kernel_of(const nnc_plan *p, int i, nnc_arena *a)
{
    nnc_scan s;
    nnc_scan_init(&s, "k", p->kernel[i].ir, strlen(p->kernel[i].ir));
    nnc_kernel *k = nnc_schedule_parse(&s, a, test_sink);
    if (k)
        k->hash = nnc_kernel_hash(k);
    return k;
}

/* Kernels that differ but have the same ops and the same 32 bits of their hashes: both keep code of their own. */
TEST(equal_names_of_other_kernels)
{
    int hits, misses, same = 0;
    nnc_arena a;
    const nnc_kernel *k[2];
    nnc_plan *from = make(NULL, 1, &hits, &misses, "1");
    nnc_target t;
    help_target(&t, 2);
    nnc_plan_options o = {.target = &t};
    machine on = {.env.target = &t, .threads = 2};
    maker m = {.o = &o, .on = &on, .sink = test_sink, .p = nnc_plan_create()};
    nnc_arena_init(&a, 0);
    nnc_arena_init(&m.scratch, 0);
    for (int i = 0; from && i < 2; i++) {
        nnc_kernel *parsed = kernel_of(from, i, &a);
        CHECK(parsed != NULL);
        parsed->name = "k_same_00000000";
        k[i] = parsed;
    }
    for (int i = 0; from && i < 200; i++) { /* and the table grows meanwhile */
        job j = {0};
        nnc_kernel other = *k[i % 2];
        if (i >= 4)
            other.name = nnc_arena_printf(&a, "k_%d", i);
        CHECK_OK(make_kernel(&m, &j, i < 4 || i > 190 ? k[i % 2] : &other, false));
        same += j.item == i % 2;
    }
    CHECK_INT(same, 4 + 9);
    CHECK_STR(m.p->kernel[0].symbol, "k_same_00000000");
    CHECK(strncmp(m.p->kernel[1].symbol, "k_same_00000000_", 16) == 0);
    CHECK_INT(strlen(m.p->kernel[1].symbol), 16 + 32);
    CHECK(strstr(m.p->kernel[1].ir, m.p->kernel[1].symbol) != NULL);
    for (int i = 0; i < m.p->n_kernel; i++)
        for (int j = 0; j < i; j++)
            CHECK(strcmp(m.p->kernel[i].symbol, m.p->kernel[j].symbol) != 0);
    nnc_arena_deinit(&m.scratch);
    nnc_arena_deinit(&a);
    nnc_plan_destroy(m.p);
    nnc_plan_destroy(from);
    nnc_target_deinit(&t);
}

static const nnc_kernel *selected[2];

/* Selects a kernel, waits until it is emitted, selects another and fails. */
static nnc_status select_two(maker *m)
{
    job j = {0};
    NNC_TRY(make_kernel(m, &j, selected[0], false));
    for (int i = 0; i < 60000 && emitted == 0; i++)
        usleep(1000);
    CHECK_INT(emitted, 1);
    NNC_TRY(make_kernel(m, &j, selected[1], false));
    return nnc_fail0(m->sink, NNC_E_MODEL, "the selection fails");
}

/* Emission begins while kernels are selected; what a failed selection leaves is dropped. */
TEST(emission_beside_selection)
{
    static const nnc_engine *const engines[] = {&code};
    int hits, misses;
    nnc_arena a;
    nnc_target t;
    nnc_plan *from = make(NULL, 1, &hits, &misses, "1");
    compiled_target(&t);
    const nnc_compiler by = {emitter, "1", 1};
    const nnc_plan_options o = {.target = &t, .engine = engines, .n_engine = 1, .jobs = 2};
    machine on = {.env.target = &t, .threads = 2, .compiler = &by};
    maker m = {.o = &o, .on = &on, .n_dev = 1, .sink = test_sink, .p = nnc_plan_create()};
    nnc_arena_init(&a, 0);
    nnc_arena_init(&m.scratch, 0);
    for (int i = 0; from && i < 2; i++)
        selected[i] = kernel_of(from, i, &a);
    CHECK(from && selected[0] && selected[1]);
    emitted = 0;
    if (from && selected[0] && selected[1])
        CHECK_INT(make_objects(&m, select_two), NNC_E_MODEL);
    CHECK_DIAG("the selection fails");
    CHECK_INT(m.p->n_object, 0);
    nnc_arena_deinit(&m.scratch);
    nnc_arena_deinit(&a);
    nnc_plan_destroy(m.p);
    nnc_plan_destroy(from);
    nnc_target_deinit(&t);
}

/* Code of one target is not taken from the cache for another, nor compiled for a device whose kernels are interpreted. */
TEST(objects_of_several_targets)
{
    static const char both[] = "graph @t {\n%x = input : f32[4,16]\n"
                               "%a = exp %x device 0 loc \"/a\"\n"
                               "%b = sin %x device 1 loc \"/b\"\nreturn %a, %b }",
                      one[] = "graph @t {\n%x = input : f32[4,16]\n"
                              "%b = sin %x loc \"/b\"\nreturn %b }";
    char dir[] = "/tmp/nnc-objects-XXXXXX", cmd[64];
    int hits, misses;
    nnc_target t[2];
    CHECK(mkdtemp(dir) != NULL);
    nnc_cache *cache = nnc_cache_open(dir);
    for (int i = 0; i < 2; i++)
        compiled_target(&t[i]);
    t[1].features = "-of-another-cpu";
    nnc_plan *p = make_for(both, t, 2, cache, 1, &hits, &misses, "1");
    CHECK(p && p->n_object == 2 && emitted == 2);
    nnc_plan_destroy(p);
    for (int i = 0; i < 2; i++) {
        p = make_for(one, &t[i], 1, cache, 1, &hits, &misses, "1");
        CHECK(p && p->n_object == 1 && hits == i && misses == !i);
        if (p)
            CHECK((memmem(p->object[0].data, p->object[0].n, "-of-another-cpu", 15) != NULL) == i);
        nnc_plan_destroy(p);
    }
    t[1].engine[1] = t[1].engine[2];
    t[1].n_engines = 2;
    p = make_for(both, t, 2, NULL, 1, &hits, &misses, "1");
    CHECK(p && p->n_object == 1 && emitted == 1 && misses == 1);
    if (p)
        CHECK_STR(p->engine[help_cmd(p, "/b")->engine], "interp");
    nnc_plan_destroy(p);
    nnc_cache_close(cache);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    CHECK_INT(system(cmd), 0);
}
