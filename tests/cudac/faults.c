/* tests/cudac/faults.c -- faults planted in the text are found. Without barriers values come from the wrong time; beyond its
 * end a row touches a page that may not be touched. Each set runs well without its fault. */
#include "ct.h"

/* Overwrites all places of `from` with `to`, which is as long. */
static void replace(char *text, const char *from, const char *to)
{
    int n = 0;
    for (char *p = text; (p = strstr(p, from)); p += strlen(to), n++)
        memcpy(p, to, strlen(to));
    if (n == 0)
        test_fail(__FILE__, __LINE__, "the text has no %s", from);
}

static void drop_barriers(char *text)
{
    replace(text, "__syncthreads();", "               ;");
}

static void drop_cluster_barriers(char *text)
{
    replace(text, "NNC_CLUSTER_SYNC(2);", "__syncthreads();    ");
}

static void drop_warp_barriers(char *text)
{
    replace(text, "__syncwarp();", "            ;");
}

static void reach_further(char *text)
{
    replace(text, "t < 250", "t < 256");
}

static void forget_tail(char *text)
{
    replace(text, "if (i < left)", "if (i < 1000)");
}

/* One kernel, from a graph or from kernel text; found: what the fault's report must say. */
static void planted(const char *text, void (*edit)(char *), const char *found)
{
    for (int fault = 0; fault < 2; fault++) {
        ct_set s = {0};
        char why[256] = "";
        if (strncmp(text, "kernel", 6) == 0) {
            nnc_scan scan;
            nnc_arena_init(&s.arena, 0);
            s.open = true;
            nnc_scan_init(&scan, "k", text, strlen(text));
            const nnc_kernel *k = nnc_schedule_parse(&scan, &s.arena, test_sink);
            if (k)
                ct_add(&s, k);
            else
                nnc_sink_print(test_sink, stderr);
        } else {
            ct_add_text(&s, text);
        }
        CHECK_INT(s.n, 1);
        if (s.n == 1 && ct_build(&s, fault ? edit : NULL)) {
            bool ok = ct_run(&s, 0, test_seed, why);
            if (ok == (fault == 1) || (fault && !strstr(why, found)))
                test_fail(__FILE__, __LINE__, "%s fault: %s\n%s", fault ? "with" : "without",
                    ok ? "not found" : why, text);
        }
        ct_set_deinit(&s);
    }
}

TEST(missing_barriers_are_found)
{
    planted("graph @t {\n%x = input : f32[5,1000]\n%y = softmax %x {axis=1}\nreturn %y }",
        drop_barriers, "interpreted");
    planted("graph @t {\n%x = input : f32[100,120]\n%y = transpose %x {perm=[1,0]}\nreturn %y }",
        drop_barriers, "interpreted");
    planted("graph @t {\n%x = input : f32[300,64]\n%y = argmax %x {axis=0}\nreturn %y }",
        drop_barriers, "interpreted");
}

static void refused(const char *text)
{
    nnc_arena a;
    nnc_scan scan;
    nnc_arena_init(&a, 0);
    nnc_scan_init(&scan, "k", text, strlen(text));
    nnc_sink_clear(test_sink);
    if (nnc_schedule_parse(&scan, &a, test_sink))
        test_fail(__FILE__, __LINE__, "accepted: %s", text);
    CHECK(nnc_sink_errors(test_sink) > 0);
    nnc_arena_deinit(&a);
    nnc_sink_clear(test_sink);
}

/* A row turned round through shared memory, by a warp, by a block, and through device memory. */
#define REVERSE(schedule) \
    "kernel k_reverse { axis i0 outer 7 axis m0 map 96 axis m1 map 96\n" \
    "buf x0 in f32 672 buf y0 out f32 672 buf t0 tmp f32 96\n" schedule "\n" \
    "stage m0 { %0 = load f32 x0[i0*96 + m0] %1 = exp f32 %0 %2 = store f32 t0[m0] %1 }\n" \
    "stage m1 { %3 = load f32 t0[95 + m1*-1] %4 = store f32 y0[i0*96 + m1] %3 } }"

TEST(shared_memory_is_waited_for)
{
    planted(REVERSE("schedule cuda row threads 64 group 32 blocks 4 shared 768"),
        drop_warp_barriers, "interpreted");
    planted(REVERSE("schedule cuda row threads 64 vec 4 group 64 keep 2 blocks 7 shared 384"),
        drop_barriers, "interpreted");
    planted(REVERSE("schedule cuda row threads 128 group 64 spill 1 blocks 4 work 3072"),
        drop_barriers, "interpreted");
}

/* h[t, j] = sum over k of h[t - 1, k] w[k, j], by the two blocks of a cluster and by one. */
#define POWERS(schedule) \
    "kernel k_powers { axis m0 map 3 seq axis m1 map 128 axis r0 reduce 128\n" \
    "buf x0 in f32 128 buf x1 in f32 16384 buf y0 out f32 384\n" schedule "\n" \
    "stage m0 m1 r0 { %0 = load f32 x0[r0] %1 = load f32 y0[m0*128 + r0 + -128] if 0 <= m0 + -1 " \
    "< " \
    "3 else %0\n" \
    "%2 = load f32 x1[r0*128 + m1] %3 = mul f32 %1 %2 %4 = reduce sum f32 %3\n" \
    "post %5 = tanh f32 %4 %6 = store f32 y0[m0*128 + m1] %5 } }"

TEST(steps_are_waited_for)
{
    planted(POWERS("schedule cuda steps threads 64 blocks 1"), drop_barriers, "interpreted");
    planted(POWERS("schedule cuda steps threads 128 flight 4 group 2 blocks 1 shared 512"),
        drop_barriers, "interpreted");
    planted(POWERS("schedule cuda steps threads 64 group 2 blocks 1 shared 256"), drop_barriers,
        "interpreted");
    planted(POWERS("schedule cuda steps threads 32 split 2 blocks 2"), drop_cluster_barriers,
        "interpreted");
    planted(POWERS("schedule cuda steps threads 64 group 2 split 2 blocks 2 shared 256"),
        drop_cluster_barriers, "interpreted");
}

TEST(damaged_steps_are_refused)
{
    static const char *const bad[] = {
        POWERS("schedule cuda steps threads 64 blocks 2"),
        POWERS("schedule cuda steps threads 64 group 4 blocks 1 shared 256"),
        POWERS("schedule cuda steps threads 128 group 2 blocks 1 shared 256"),
        POWERS("schedule cuda steps threads 64 flight 2 blocks 1"),
        POWERS("schedule cuda steps threads 64 flight 32 blocks 1"),
        POWERS("schedule cuda steps threads 64 split 3 blocks 3"),
        POWERS("schedule cuda steps threads 32 split 16 blocks 16"),
        POWERS("schedule cuda steps along m1 threads 64 vec 2 blocks 1"),
        POWERS("schedule cuda row threads 64 group 64 blocks 1"),
        POWERS("schedule cuda scatter threads 64 blocks 1"),
        REVERSE("schedule cuda steps threads 64 blocks 7"),
    };
    for (size_t i = 0; i < NNC_COUNT(bad); i++)
        refused(bad[i]);
}

TEST(leaving_buffers_is_found)
{
    planted("graph @t {\n%x = input : f32[5,1000]\n%y = softmax %x {axis=1}\nreturn %y }",
        reach_further, "leaves its buffers");
    planted("graph @t {\n%x = input : f32[524289]\n%y = relu %x\nreturn %y }", forget_tail,
        "past argument");
}

static void put_reverse(char *text, size_t n, const char *schedule)
{
    static const char whole[] = REVERSE("@");
    const char *at = strchr(whole, '@');
    snprintf(text, n, "%.*s%s%s", (int)(at - whole), whole, schedule, at + 1);
}

/* Schedules that the axes contradict, or that ask for what a GPU has not. */
TEST(damaged_schedules_are_refused)
{
    static const char *const bad[] = {
        "schedule cuda row threads 64 group 32 blocks 4 shared 767",
        "schedule cuda row threads 64 group 32 blocks 3 shared 768",
        "schedule cuda row threads 64 group 32 blocks 4",
        "schedule cuda row threads 48 group 16 blocks 3 shared 1152",
        "schedule cuda row threads 64 group 24 blocks 4 shared 768",
        "schedule cuda row threads 64 group 32 split 2 blocks 8 finish 1 work 64",
        "schedule cuda row threads 2048 group 32 blocks 1 shared 768",
        "schedule cuda row threads 64 vec 3 group 32 blocks 4 shared 768",
        "schedule cuda point along i0 threads 64 vec 4 blocks 4",
        "schedule cuda point along m0 threads 64 blocks 4",
        "schedule cuda tile along i0 across m0 threads 256 blocks 1",
        "schedule cuda column along i0 threads 64 group 2 blocks 1",
        "schedule cuda row threads 64 group 32 index 64 blocks 4 shared 768",
        "schedule cuda none threads 64 blocks 1",
    };
    char text[600];
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        put_reverse(text, sizeof text, bad[i]);
        refused(text);
    }
}

static void scale_a_product(char *text)
{
    replace(text, "const float mul_9 = x5_8 * add_7;", "float mul_9 = x5_8*add_7*1.0001f;");
}

/* Sums of 128 products over three steps, some of which cancel from hundreds. With these operands one is off by more than four times the
 * interpreter's error, which is right. A product that is off by a ten-thousandth is wrong. */
TEST(sums_that_cancel)
{
    for (int fault = 0; fault < 2; fault++) {
        ct_set s = {.sms = 2};
        char why[256] = "";
        ct_add_text(&s,
            "graph @t {\n%y = input : f32[3,4,32]\n%p = input : f32[3,4,128]\n"
            "%w = input : f32[128,32]\n%f = input : f32[3,4,32]\n%e = input : f32[4,32]\n"
            "%a = input : f32[3,4,32]\n"
            "%d, %g = recurrent_grad %y, %p, %w, %f, %e, %a\nreturn %d, %g }");
        CHECK_INT(s.n, 1);
        if (s.n == 1 && ct_build(&s, fault ? scale_a_product : NULL) &&
            ct_run(&s, 0, 77123, why) == (fault == 1))
            test_fail(__FILE__, __LINE__, "%s", fault ? "the fault is not found" : why);
        ct_set_deinit(&s);
    }
}
