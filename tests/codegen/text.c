/* tests/codegen/text.c -- the text form: what a kernel looks like, what is refused, and random
 * damage. */
#include "help.h"

#include "../gen/gen.h"

#include <stdlib.h>

static const char add_text[] =
    "kernel k_test {\n"
    "  axis i0 outer 8\n"
    "  axis r0 reduce 5\n"
    "  buf x0 in f32 40\n"
    "  buf y0 out f16 8\n"
    "  schedule vector i0 8 quick parallel 1 grain 1\n"
    "  stage r0 {\n"
    "    %0 = const f32 -0.5\n"
    "    %1 = load f32 x0[i0*5 + r0 + -1] if 0 <= i0*5 + r0 + -1 < 40 else %0\n"
    "    %2 = reduce sum f32 %1\n"
    "  post\n"
    "    %3 = store f32 y0[i0] %2\n"
    "  }\n"
    "}\n";

static nnc_kernel *parse(const char *text, size_t n, nnc_arena *a)
{
    nnc_scan s;
    nnc_scan_init(&s, "k", text, n);
    return nnc_schedule_parse(&s, a, test_sink);
}

TEST(reads_and_prints)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_kernel *k = parse(add_text, sizeof add_text - 1, &a);
    CHECK(k != NULL);
    nnc_text t = {0};
    if (k)
        nnc_kernel_print(&t, k);
    else
        nnc_sink_print(test_sink, stderr);
    CHECK_STR(nnc_text_str(&t), add_text);
    nnc_text_deinit(&t);
    nnc_arena_deinit(&a);
}

/* Replaces the first `from` by `to`; the text must then be refused. */
static void refused(const char *from, const char *to, const char *why)
{
    nnc_arena a;
    nnc_text t = {0};
    const char *at = strstr(add_text, from);
    nnc_arena_init(&a, 0);
    nnc_sink_clear(test_sink);
    CHECK(at != NULL);
    if (at) {
        nnc_putn(&t, add_text, (size_t)(at - add_text));
        nnc_puts(&t, to);
        nnc_puts(&t, at + strlen(from));
        if (parse(nnc_text_str(&t), t.n, &a))
            test_fail(__FILE__, __LINE__, "accepted with '%s' for '%s'", to, from);
        else
            CHECK_DIAG(why);
    }
    nnc_text_deinit(&t);
    nnc_arena_deinit(&a);
}

TEST(dangerous_text_is_refused)
{
    refused(" if 0 <= i0*5 + r0 + -1 < 40 else %0", "", "may leave its buffer");
    refused("in f32 40", "in f32 38", "may leave its buffer");
    refused(" else %0", "", "needs a fill");
    refused("y0[i0]", "x0[i0]", "stores to an input");
    refused("y0[i0]", "y0[i0 + r0]", "axis that does not run here");
    refused("y0[i0] %2", "y0[i0] %1", "something else than it says");
    refused("reduce sum f32 %1", "reduce sum f32 %2", "not visible");
    refused("parallel 1", "parallel 2", "contradicts");
    refused("vector i0 8", "tile i0 4 vector i0 8", "contradicts");
    refused("vector i0 8", "vector i0 8 prefetch 1", "only a register block");
    refused("vector i0 8", "vector i0 8 prefetch 0", "number in range");
    refused("vector i0 8", "tile r0 17 vector i0 8", "does not fit the stages");
    refused("vector i0 8", "order r0 vector i0 8", "contradicts");
    refused("vector i0 8", "order i0 i0 vector i0 8", "one directive of a kind");
    refused("vector i0 8", "tile i0 8 tile i0 8 vector i0 8", "one directive of a kind");
    refused("vector i0 8", "vector i0 8 vector r0 8", "contradicts");
    refused("vector i0 8", "unroll i0 2 vector i0 8", "contradicts");
    refused("vector i0 8", "transpose i0 vector i0 8", "contradicts");
    refused("vector i0 8 quick", "tile i0 8", "tiled beside an inner vector axis");
    refused("vector i0 8", "bend i0 8", "a directive, or parallel");
    refused("f32 %1\n", "f64 %1\n", "types do not fit");
    refused("stage r0", "stage", "axis that does not run here");
    refused("outer 8", "outer 0", "number in range");
    refused("%1 = load", "%2 = load", "numbered");
    refused("x0[", "z0[", "a buffer");
    refused("sum", "median", "argmin");
    refused("post", "stage i0 {}", "expected");
    refused("i0*5 + r0 + -1]", "i0*-9223372036854775808 + r0]", "out of range");
    refused("< 40", "< 9223372036854775807", "out of range");
    refused("if 0", "if -9223372036854775808", "out of range");
    refused("outer 8", "outer 4611686018427387903", "too many points");
    refused("reduce 5", "reduce 4611686018427387903", "too many points");
    refused("    %2 = reduce sum f32 %1", "    %2 = not bool %1", "types do not fit");
    static const char sum_and_store[] =
        "    %2 = reduce sum f32 %1\n  post\n    %3 = store f32 y0[i0] %2\n";
    static const char *const of_bool[] = {"lt bool %2 %2", "add bool %2 %2", "reduce max bool %2"};
    for (size_t i = 0; i < NNC_COUNT(of_bool); i++) {
        char to[100];
        snprintf(to, sizeof to, "    %%2 = ne bool %%1 %%1\n    %%3 = %s\n", of_bool[i]);
        refused(sum_and_store, to, "bool has no arithmetic");
    }
    refused("    %2 = reduce sum f32 %1", "    %2 = const i8 128", "outside its type's range");
    refused("    %2 = reduce sum f32 %1", "    %2 = const u16 -1", "outside its type's range");
    refused("    %2 = reduce sum f32 %1", "    %2 = const bool 2", "outside its type's range");
    refused("    %2 = reduce sum f32 %1", "    %2 = const f32 1e39", "outside its type's range");
    refused("    %2 = reduce sum f32 %1", "    %2 = add f32 %1 %3", "operand is not visible");
    refused("in f32 40", "in f64 40", "type differs from the buffer's");
    refused("stage r0 {", "stage i0 r0 {", "axes that are not its own");
    refused("    %3 = store f32 y0[i0] %2",
        "    %3 = reduce sum f32 %2\n    %4 = store f32 y0[i0] %2",
        "reduces where no reduce axis runs");
}

TEST(every_instruction_is_in_a_stage)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    nnc_kernel *k = parse(add_text, sizeof add_text - 1, &a);
    CHECK(k != NULL);
    if (k) {
        k->stage[0].post1--;
        CHECK_INT(nnc_kernel_verify(k, test_sink), NNC_E_BUG);
    }
    nnc_arena_deinit(&a);
}

/* Neighbouring axes become one where every stage, index and guard sees them as one. */
TEST(axes_that_stay_apart)
{
    static const struct {
        const char *stages;
        int n_axis;
    } cases[] = {
        {"stage r0 r1 { %0 = load f32 x0[i0*20 + r0*5 + r1] %1 = reduce sum f32 %0 post %2 = store "
         "f32 "
         "y0[i0] %1 }",
            2},
        {"stage r0 r1 { %0 = load f32 x0[i0*20 + r0 + r1*4] %1 = reduce sum f32 %0 post %2 = store "
         "f32 "
         "y0[i0] %1 }",
            3},
        {"stage r0 r1 { %0 = const f32 0 %1 = load f32 x0[i0*20 + r0*5 + r1] if 0 <= r1 + -1 < 2 "
         "else %0 "
         "%2 = reduce sum f32 %1 post %3 = store f32 y0[i0] %2 }",
            3},
        {"stage r0 r1 { %0 = index i64 r1 %1 = load f32 x0[i0*20 + r0*5 + r1] %2 = cast f32 f32 %0 "
         "%3 = "
         "add f32 %1 %2 %4 = reduce sum f32 %3 post %5 = store f32 y0[i0] %4 }",
            3},
        {"stage r0 { %0 = load f32 x0[i0] %1 = reduce sum f32 %0 post } stage r1 { %2 = load f32 "
         "x0[i0] %3 = "
         "reduce prod f32 %2 post %4 = add f32 %1 %3 %5 = store f32 y0[i0] %4 }",
            3},
        /* five ones are added in the second stage, which has r1 alone; not twenty */
        {"stage r0 r1 { %0 = load f32 x0[i0*20 + r0*5 + r1] %1 = reduce sum f32 %0 post } "
         "stage r1 { %2 = const f32 1 %3 = reduce sum f32 %2 post %4 = add f32 %1 %3 "
         "%5 = store f32 y0[i0] %4 }",
            3},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_arena a;
        nnc_text t = {0};
        nnc_scan s;
        nnc_arena_init(&a, 0);
        nnc_printf(&t,
            "kernel k_test { axis i0 outer 8 axis r0 reduce 4 axis r1 reduce 5 buf x0 in f32 160 "
            "buf y0 out "
            "f32 8 %s }",
            cases[i].stages);
        nnc_scan_init(&s, "k", nnc_text_str(&t), t.n);
        nnc_kernel *k = nnc_kernel_parse(&s, &a, test_sink);
        CHECK(k != NULL);
        if (k) {
            nnc_kernel_merge_axes(k, true);
            CHECK_INT(k->n_axis, cases[i].n_axis);
            CHECK_OK(nnc_kernel_verify(k, test_sink));
        } else {
            nnc_sink_print(test_sink, stderr);
        }
        nnc_text_deinit(&t);
        nnc_arena_deinit(&a);
    }
}

typedef struct kernel_text {
    const char *text, *why; /* why it is refused; NULL: it is accepted */
} kernel_text;

static void check_texts(const kernel_text *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        nnc_arena a;
        nnc_arena_init(&a, 0);
        nnc_sink_clear(test_sink);
        nnc_kernel *k = parse(t[i].text, strlen(t[i].text), &a);
        if (!k != (t[i].why != NULL)) {
            test_fail(__FILE__, __LINE__, "%s: %s", k ? "accepted" : "refused", t[i].text);
            nnc_sink_print(test_sink, stderr);
        } else if (t[i].why) {
            CHECK_DIAG(t[i].why);
        }
        nnc_arena_deinit(&a);
    }
}

/* A copy with its axes swapped, in squares of a tile. */
#define SQUARES(schedule) \
    "kernel k_test { axis i0 outer 32 axis i1 outer 64 buf x0 in f32 2048 buf y0 out f32 2048\n" \
    "schedule " schedule " grain 1\n" \
    "stage { %0 = load f32 x0[i0*64 + i1] %1 = store f32 y0[i1*32 + i0] %0 } }"
/* A sum over rows, several rows at once. */
#define ROWS(extra, schedule) \
    "kernel k_test { axis i0 outer 32 axis i1 outer 64 " extra \
    " axis r0 reduce 5 buf x0 in f32 160 buf y0 " \
    "out f32 2048\nschedule " schedule " grain 1\n" \
    "stage r0 { %0 = load f32 x0[i0*5 + r0] %1 = reduce sum f32 %0 post %2 = store f32 y0[i0*64 " \
    "+ i1] %1 } }"
/* A row kept between two stages. */
#define KEPT(schedule) \
    "kernel k_test { axis i0 outer 7 axis m0 map 9 axis m1 map 9 buf x0 in f32 63 buf y0 out f32 " \
    "63 buf t0 tmp " \
    "f32 9\nschedule " schedule " grain 1\n" \
    "stage m0 { %0 = load f32 x0[i0*9 + m0] %1 = exp f32 %0 %2 = store f32 t0[m0] %1 }\n" \
    "stage m1 { %3 = load f32 t0[8 + m1*-1] %4 = store f32 y0[i0*9 + m1] %3 } }"

/* Rows of squares, of which three in a row are summed. */
#define RING(schedule, square, store, load) \
    "kernel k_test { axis i0 outer 8 axis i1 outer 2 axis m0 map 3 axis m1 map 5 axis r0 reduce " \
    "3 " \
    "axis m2 map 5 buf x0 in f32 50 buf y0 out f32 80 buf t0 tmp f32 15\n" \
    "schedule " schedule " grain 1\n" \
    "stage { post %0 = load f32 x0[i0] }\n" \
    "stage m0 m1 { " square " " store " }\n" \
    "stage r0 m2 { %3 = " load \
    " %4 = reduce sum f32 %3 post %5 = store f32 y0[i0*10 + i1*5 + m2] " \
    "%4 } }"
#define SQUARE "%1 = load f32 x0[i0*5 + m0*5 + m1]"
#define STORE "%2 = store f32 t0[m0*5 + m1] %1"
#define LOAD "load f32 t0[r0*5 + m2]"
#define USUAL "order i1 i0 tile i0 4 vector m1 5 ring t0 i0 3 parallel 4"

/* The same, with %2 of an earlier stage added to the rows. */
#define RING_WITH(one, two) \
    "kernel k_test { axis i0 outer 8 axis i1 outer 2 axis m0 map 3 axis m1 map 5 axis r0 reduce " \
    "3 axis m2 map 5 buf x0 in f32 50 buf y0 out f32 80 buf t0 tmp f32 15\n" \
    "schedule " USUAL " grain 1\nstage { post %0 = const f32 1 %1 = " one " %2 = " two " }\n" \
    "stage m0 m1 { %3 = load f32 x0[i0*5 + m0*5 + m1] %4 = add f32 %3 %2 " \
    "%5 = store f32 t0[m0*5 + m1] %4 }\n" \
    "stage r0 m2 { %6 = " LOAD " %7 = reduce sum f32 %6 post " \
    "%8 = store f32 y0[i0*10 + i1*5 + m2] %7 } }"

TEST(rings_that_fit)
{
    static const kernel_text texts[] = {
        {RING(USUAL, SQUARE, STORE, LOAD), NULL},
        {RING("vector m1 5 parallel 16", SQUARE, STORE, LOAD), NULL},
        {RING("vector m1 5 ring t0 i0 3 parallel 16", SQUARE, STORE, LOAD), "has no tile"},
        {RING("tile i0 4 vector m1 5 parallel 4", SQUARE, STORE, LOAD), "without a ring"},
        {RING("tile i0 4 tile i1 2 vector m1 5 ring t0 i0 3 ring t0 i0 3 parallel 2", SQUARE, STORE,
             LOAD),
            "one ring for a buffer"},
        {RING("tile i0 4 tile i1 2 vector m1 5 ring t0 i0 3 parallel 2", SQUARE, STORE, LOAD),
            "without a ring"},
        {RING("tile i0 4 vector i1 2 ring t0 i0 3 parallel 2", SQUARE, STORE, LOAD),
            "needs an inner vector axis"},
        {RING("tile i0 4 vector m1 5 ring x0 i0 3 parallel 4", SQUARE, STORE, LOAD),
            "needs a tmp buffer"},
        {RING("tile i0 4 vector m1 5 ring t0 m0 3 parallel 4", SQUARE, STORE, LOAD),
            "contradicts the axes"},
        {RING("tile i0 4 vector m1 5 ring t0 i0 4 parallel 4", SQUARE, STORE, LOAD),
            "needs a tmp buffer of whole rows"},
        {RING("tile i0 4 vector m1 5 ring t0 i0 5 parallel 4", SQUARE, STORE, LOAD),
            "no stage stores the ring's rows"},
        {RING("tile i0 4 vector m1 5 ring z0 i0 3 parallel 4", SQUARE, STORE, LOAD),
            "a buffer's name"},
        {RING("tile i1 2 vector m1 5 ring t0 i1 3 parallel 8", SQUARE, STORE, LOAD),
            "do not advance"},
        {RING(USUAL, "%1 = load f32 x0[i0*3 + m0 + m1]", STORE, LOAD), "do not overlap"},
        {RING(USUAL, "%1 = load f32 x0[i0*2 + m0*5 + m1]", STORE, LOAD), "do not advance"},
        {RING(USUAL, "%1 = load f32 x0[i0*5 + m1]", STORE, LOAD), "do not advance"},
        {RING("tile i0 2 vector m1 5 ring t0 i0 3 parallel 8", "%1 = load f32 x0[m0*5 + m1]", STORE,
             LOAD),
            "do not advance"},
        {RING(USUAL, "%1 = load f32 x0[i0*5 + m0*5 + m1] if 0 <= i0 < 8 else %0", STORE, LOAD),
            "do not advance"},
        {RING(USUAL, SQUARE, "%2 = store f32 t0[m0*5 + m1] %0", LOAD), "do not advance"},
        {RING(USUAL, SQUARE, "%2 = store f32 t0[m0*5 + m1] %1 if 0 <= m1 < 4", LOAD),
            "no stage stores the ring's rows"},
        {RING(USUAL, SQUARE, "%2 = store f32 t0[m0*5 + 4 + m1*-1] %1", LOAD), NULL},
        {RING(USUAL, SQUARE, STORE, "load f32 t0[5 + r0*5 + m2] if 0 <= r0 < 2 else %0"),
            "leaves the ring's rows"},
        {RING(USUAL, SQUARE, STORE, "load f32 t0[r0 + m2*2]"), "leaves the ring's rows"},
        {RING(USUAL, SQUARE, STORE, "load f32 t0[i0] if 0 <= i0 < 5 else %0"),
            "leaves the ring's rows"},
        {RING_WITH("load f32 x0[i1]", "neg f32 %1"), NULL},
        {RING_WITH("load f32 x0[i0]", "neg f32 %1"), "do not advance"},
        {RING_WITH("load f32 x0[i1]", "load f32 x0[i1] if 0 <= i0 < 4 else %0"), "do not advance"},
        /* one of two operands is the same at each point, whichever is read first */
        {"kernel k_test { axis i0 outer 8 axis i1 outer 2 axis m0 map 3 axis m1 map 5 axis r0 "
         "reduce 3 axis m2 map 5\n"
         "buf x0 in f32 50 buf y0 out f32 80 buf t0 tmp f32 15\nschedule " USUAL " grain 1\n"
         "stage m0 m1 { %0 = load f32 x0[m0*5 + m1] %1 = load f32 x0[i0*5 + m0*5 + m1]\n"
         "%2 = add f32 %0 %1 %3 = store f32 t0[m0*5 + m1] %2 }\n"
         "stage r0 m2 { %4 = " LOAD " %5 = reduce sum f32 %4 post\n"
         "%6 = store f32 y0[i0*10 + i1*5 + m2] %5 } }",
            "do not advance"},
        /* rows are numbered from the first point's, which overflows in the last ones */
        {"kernel k_test { axis i0 outer 35184372088832 axis m0 map 1048577 axis m1 map 2 axis m2 "
         "map 2\n"
         "buf y0 out i64 2 buf t0 tmp i64 2097154\n"
         "schedule tile i0 2 vector m1 4 ring t0 i0 1048577 parallel 17592186044416 grain 1\n"
         "stage m0 m1 { %0 = index i64 i0 %1 = const i64 1048576 %2 = mul i64 %0 %1\n"
         "%3 = index i64 m0 %4 = add i64 %2 %3 %5 = store i64 t0[m0*2 + m1] %4 }\n"
         "stage m2 { %6 = load i64 t0[m2] %7 = store i64 y0[m2] %6 } }",
            "beyond 2^55"},
    };
    check_texts(texts, NNC_COUNT(texts));
}

/* Products of a source that is computed. */
#define PANEL(schedule, load, source, factor) \
    "kernel k_test { axis i0 outer 8 axis i1 outer 32 axis r0 reduce 6 buf x0 in f32 48 buf x1 " \
    "in f32 192 buf y0 out f32 256\nschedule " schedule " grain 1\n" \
    "stage r0 { %0 = load f32 " load " %1 = " source " %2 = load f32 x1[r0*32 + i1] " \
    "%3 = mul f32 " factor " %2 %4 = reduce sum f32 %3 post %5 = store f32 y0[i0*32 + i1] %4 } }"
#define TILED "tile i0 4 tile i1 16 vector i1 16 unroll i0 2 panel 128 parallel 4"

TEST(panels_that_fit)
{
    static const kernel_text texts[] = {
        {PANEL(TILED, "x0[i0*6 + r0]", "abs f32 %0", "%1"), NULL},
        {PANEL("vector i1 32 panel 64 parallel 8", "x0[i0*6 + r0]", "abs f32 %0", "%1"), NULL},
        {PANEL("tile i0 4 vector i1 32 panel 96 parallel 2", "x0[i0*6 + r0]", "abs f32 %0", "%1"),
            "the panel has another size"},
        {PANEL("tile i0 4 vector i1 32 panel 128 panel 128 parallel 2", "x0[i0*6 + r0]",
             "abs f32 %0", "%1"),
            "one directive of a kind"},
        {PANEL("vector r0 8 panel 64 parallel 256", "x0[i0*6 + r0]", "abs f32 %0", "%1"),
            "along an outer vector axis"},
        {PANEL(TILED, "x0[i0*6 + r0]", "abs f32 %0", "%0"), "source is not computed"},
        {PANEL(TILED, "x0[i1 + r0]", "abs f32 %0", "%1"), "depends on the vector axis"},
        {PANEL(TILED, "x0[i0*6]", "abs f32 %0", "%1"), "on no axis of the sum"},
        {"kernel k_test { axis i0 outer 8 axis i1 outer 32 axis r0 reduce 6 buf x0 in f32 48 buf "
         "y0 out f32 256\nschedule vector i1 32 panel 64 parallel 8 grain 1\n"
         "stage r0 { %0 = load f32 x0[i0*6 + r0] %1 = abs f32 %0 %2 = reduce sum f32 %1 post "
         "%3 = store f32 y0[i0*32 + i1] %2 } }",
            "only products"},
        {"kernel k_test { axis i0 outer 8 axis i1 outer 32 axis r0 reduce 6 buf x0 in f32 48 buf "
         "x1 in f32 192 buf y0 out f32 256\nschedule vector i1 32 panel 64 parallel 8 grain 1\n"
         "stage r0 { %0 = load f32 x0[i0*6 + r0] %1 = abs f32 %0 %2 = load f32 x1[r0*32 + i1] "
         "%3 = mul f32 %1 %2 %4 = reduce max f32 %3 post %5 = store f32 y0[i0*32 + i1] %4 } }",
            "only products"},
        {"kernel k_test { axis i0 outer 65536 axis i1 outer 32 axis r0 reduce 65536 buf x0 in f32 "
         "4294967296 buf x1 in f32 2097152 buf y0 out f32 2097152\n"
         "schedule tile i0 65536 vector i1 32 panel 64 parallel 1 grain 1\n"
         "stage r0 { %0 = load f32 x0[i0*65536 + r0] %1 = abs f32 %0 %2 = load f32 x1[r0*32 + i1] "
         "%3 = mul f32 %1 %2 %4 = reduce sum f32 %3 post %5 = store f32 y0[i0*32 + i1] %4 } }",
            "the panel is too large"},
        /* a source that an earlier stage stores */
        {"kernel k_test { axis i0 outer 8 axis i1 outer 32 axis r0 reduce 6 buf x0 in f32 48 buf "
         "x1 in f32 192 buf y0 out f32 256 buf y1 out f32 8\nschedule vector i1 32 panel 64 "
         "parallel 8 grain 1\n"
         "stage { post %0 = load f32 x0[i0*6] %1 = store f32 y1[i0] %0 }\n"
         "stage r0 { %2 = load f32 y1[i0] %3 = load f32 x0[i0*6 + r0] %4 = add f32 %2 %3 "
         "%5 = load f32 x1[r0*32 + i1] %6 = mul f32 %4 %5 %7 = reduce sum f32 %6 post "
         "%8 = store f32 y0[i0*32 + i1] %7 } }",
            "from operands alone"},
        /* two sums, a second stage with axes, and a map axis */
        {"kernel k_test { axis i0 outer 8 axis i1 outer 32 axis r0 reduce 6 buf x0 in f32 48 buf "
         "x1 in f32 192 buf y0 out f32 256 buf y1 out f32 256\nschedule vector i1 32 panel 64 "
         "parallel 8 grain 1\n"
         "stage r0 { %0 = load f32 x0[i0*6 + r0] %1 = abs f32 %0 %2 = load f32 x1[r0*32 + i1] "
         "%3 = mul f32 %1 %2 %4 = reduce sum f32 %3 %5 = reduce sum f32 %3 post "
         "%6 = store f32 y0[i0*32 + i1] %4 %7 = store f32 y1[i0*32 + i1] %5 } }",
            "only products"},
        {"kernel k_test { axis i0 outer 8 axis i1 outer 32 axis r0 reduce 6 buf x0 in f32 48 buf "
         "x1 in f32 192 buf y0 out f32 256 buf y1 out f32 1536\nschedule vector i1 32 panel 64 "
         "parallel 8 grain 1\n"
         "stage r0 { %0 = load f32 x0[i0*6 + r0] %1 = abs f32 %0 %2 = load f32 x1[r0*32 + i1] "
         "%3 = mul f32 %1 %2 %4 = reduce sum f32 %3 post %5 = store f32 y0[i0*32 + i1] %4 }\n"
         "stage r0 { %6 = load f32 x0[i0*6 + r0] %7 = store f32 y1[i0*192 + r0*32 + i1] %6 } }",
            "only products"},
        {"kernel k_test { axis i0 outer 8 axis i1 outer 32 axis r0 reduce 6 axis m0 map 2 buf x0 "
         "in f32 48 buf x1 in f32 192 buf y0 out f32 512\nschedule vector i1 32 panel 64 parallel "
         "8 grain 1\n"
         "stage r0 m0 { %0 = load f32 x0[i0*6 + r0] %1 = abs f32 %0 %2 = load f32 x1[r0*32 + i1] "
         "%3 = mul f32 %1 %2 %4 = reduce sum f32 %3 post %5 = store f32 y0[i0*64 + m0*32 + i1] %4 "
         "} }",
            "only products"},
    };
    check_texts(texts, NNC_COUNT(texts));
}

TEST(schedules_that_fit)
{
    static const kernel_text texts[] = {
        {SQUARES("tile i0 16 tile i1 16 vector i1 16 transpose i0 parallel 8"), NULL},
        {SQUARES("tile i0 16 tile i1 16 vector i1 12 transpose i0 parallel 8"),
            "tile does not fit the axes"},
        {SQUARES("tile i0 12 tile i1 16 vector i1 16 transpose i0 parallel 12"),
            "tile does not fit the axes"},
        {ROWS("", "tile i0 4 tile i1 64 vector i1 16 unroll i0 4 parallel 8"), NULL},
        {ROWS("", "tile i0 4 tile i1 64 vector i1 16 unroll i0 3 parallel 8"),
            "tiled by a multiple, is unrolled"},
        {ROWS("", "tile r0 5 tile i1 64 vector i1 16 parallel 32"), NULL},
        {KEPT("vector m0 8 parallel 7"), NULL},
        {KEPT("tile i0 4 vector m0 8 unroll i0 2 parallel 2"), NULL},
        {KEPT("tile i0 3 vector m0 8 unroll i0 2 parallel 3"), "tiled by a multiple, is unrolled"},
        {KEPT("vector m0 8 unroll i0 2 parallel 7"), "tiled by a multiple, is unrolled"},
        {KEPT("tile i0 2 vector m0 8 parallel 4"), "without a ring or unroll"},
        /* a maximum's place is not found in blocks */
        {"kernel k_test { axis i0 outer 32 axis i1 outer 64 axis r0 reduce 5 buf x0 in f32 160 buf "
         "y0 out i64 2048\n"
         "schedule tile r0 5 tile i1 64 vector i1 16 parallel 32 grain 1\nstage r0 { %0 = load f32 "
         "x0[i0*5 + r0]\n"
         "%1 = reduce argmax i64 %0 post %2 = store i64 y0[i0*64 + i1] %1 } }",
            "reduce axis' tile does not fit the stages"},
        /* what a guard never lets happen leaves no buffer */
        {"kernel k_test { axis i0 outer 8 buf x0 in f32 8 buf y0 out f32 8 schedule vector i0 8 "
         "quick parallel 1 "
         "grain 1 stage { %0 = const f32 0 %1 = load f32 x0[i0 + 100] if 0 <= 9 < 8 else %0 %2 = "
         "store f32 y0[i0] "
         "%1 } }",
            NULL},
        {KEPT("vector i0 4 parallel 1"), "tmp buffers need an inner vector axis"},
    };
    check_texts(texts, NNC_COUNT(texts));
}

/* A product of 7 rows with weights in panels of 16 columns, `gap` more from one to the next. */
#define PANELS(gap, weights, schedule) \
    "kernel k_test { axis i0 outer 7 axis i1 outer 3 axis i2 outer 16 axis r0 reduce 5 " \
    "buf x0 in f32 35 buf x1 in f32 1000 buf y0 out f32 336\nschedule " schedule " grain 1\n" \
    "stage r0 { %0 = load f32 x0[i0*5 + r0] %1 = load f32 x1[" weights " + r0*" gap "] " \
    "%2 = mul f32 %0 %1 %3 = reduce sum f32 %2 post %4 = store f32 y0[i0*48 + i1*16 + i2] %3 } }"

TEST(weights_that_are_prefetched)
{
#define BLOCK "vector i2 16 unroll i0 3 prefetch 1 parallel "
    static const kernel_text texts[] = {
        {PANELS("16", "i1*80 + i2", "tile i0 9 " BLOCK "3"), NULL},
        {PANELS("16", "i1*80 + i2", "tile i0 3 order i1 i0 i2 " BLOCK "9"), "the same weights"},
        {PANELS("16", "i2", "tile i0 9 " BLOCK "3"), "the same weights"},
        {PANELS("17", "i1*90 + i2", "tile i0 9 " BLOCK "3"), "not contiguous"},
        {PANELS("16", "i1*80 + i2", "tile i0 9 tile i1 2 " BLOCK "2"), "the same weights"},
        {PANELS("16", "i1*80 + i2", "vector i2 16 prefetch 1 parallel 21"),
            "only a register block"},
    };
    nnc_kahead p;
    nnc_arena a;
    check_texts(texts, NNC_COUNT(texts));
    nnc_arena_init(&a, 0);
    const nnc_kernel *k = parse(texts[0].text, strlen(texts[0].text), &a);
    const bool ok = k && !nnc_kernel_ahead(k, &p);
    CHECK(ok);
    if (ok) {
        CHECK_INT(p.load, 1);
        CHECK_INT(p.next, 80);
        CHECK_INT(p.bytes, 320);
        CHECK_INT(p.strips, 3);
        CHECK_INT(p.steps, 15);
    }
    nnc_arena_deinit(&a);
}

/* A stage with a map axis and a reduce axis. */
#define MIXED(maps, schedule) \
    "kernel k_test { axis i0 outer 64 axis m0 map " maps " axis r0 reduce 5 " \
    "buf x0 in f32 1280 buf y0 out f32 256\nschedule cuda " schedule "\n" \
    "stage m0 r0 { %0 = load f32 x0[i0*20 + r0*4 + m0] %1 = reduce sum f32 %0 post " \
    "%2 = store f32 y0[i0*4 + m0] %1 } }"

/* Groups of threads on a GPU share either the results of a stage or its sums. */
TEST(groups_share_one_kind_of_axes)
{
    static const kernel_text texts[] = {
        {MIXED("1", "row threads 128 group 32 blocks 16"), NULL},
        {MIXED("4", "row threads 128 group 32 blocks 16"), "schedule"},
        {MIXED("1", "column along i0 threads 64 group 2 blocks 2"), NULL},
        {MIXED("4", "column along i0 threads 64 group 2 blocks 2"), "schedule"},
    };
    check_texts(texts, NNC_COUNT(texts));
}

TEST(sets_hold_all_instructions)
{
    struct {
        nnc_kset cone;
        uint64_t behind;
    } s = {.behind = 7};
    nnc_kernel k = {.n_ins = NNC_KMAX_INS, .ins = calloc(NNC_KMAX_INS, sizeof *k.ins)};
    for (int32_t i = 0; k.ins && i < NNC_KMAX_INS; i++)
        k.ins[i] = (nnc_kins){.op = KO_sop, .arg = {i < 64 ? -1 : i - 64, -1, -1}};
    if (k.ins)
        nnc_kernel_cone(&k, NNC_KMAX_INS - 1, &s.cone);
    for (int32_t i = 0; k.ins && i < NNC_KMAX_INS; i++)
        CHECK_INT(nnc_kset_has(&s.cone, i), i % 64 == 63);
    CHECK(!nnc_kset_has(&s.cone, NNC_KMAX_INS));
    CHECK_INT((int)s.behind, 7);
    free(k.ins);
}

/* May y0 be written over x0, in a kernel of these axes after i0? */
static bool overlays_along(const char *axes, const char *stages)
{
    nnc_arena a;
    nnc_text t = {0};
    nnc_scan s;
    nnc_arena_init(&a, 0);
    nnc_printf(&t,
        "kernel k_test { axis i0 outer 4 axis %s buf x0 in f32 32 buf y0 out f32 32 buf y1 out f32 "
        "4 %s }",
        axes, stages);
    nnc_scan_init(&s, "k", nnc_text_str(&t), t.n);
    nnc_kernel *k = nnc_kernel_parse(&s, &a, test_sink);
    CHECK(k != NULL);
    if (!k)
        nnc_sink_print(test_sink, stderr);
    bool yes = k && nnc_kernel_may_overlay(k, 0, 1);
    nnc_text_deinit(&t);
    nnc_arena_deinit(&a);
    return yes;
}

static bool overlays(const char *stage)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t, "stage { %%0 = const f32 0 %s }", stage);
    return overlays_along("i1 outer 8", nnc_text_str(&t));
}

TEST(results_over_operands)
{
    CHECK(overlays("%1 = load f32 x0[i0*8 + i1] %2 = store f32 y0[i0*8 + i1] %1"));
    /* another element, by its offset and by its strides */
    CHECK(!overlays("%1 = load f32 x0[i0*8 + i1 + 1] if 0 <= i0*8 + i1 + 1 < 32 else %0 %2 = store "
                    "f32 y0[i0*8 + "
                    "i1] %1"));
    CHECK(!overlays("%1 = load f32 x0[i0 + i1*4] %2 = store f32 y0[i0*8 + i1] %1"));
    /* stored in part, stored twice, read again after it is stored */
    CHECK(!overlays("%1 = load f32 x0[i0*8 + i1] %2 = store f32 y0[i0*8 + i1] %1 if 0 <= i1 < 7"));
    CHECK(!overlays("%1 = load f32 x0[i0*8 + i1] %2 = store f32 y0[i0*8 + i1] %1 %3 = store f32 "
                    "y0[i0*8 + i1] %0"));
    CHECK(!overlays("%1 = store f32 y0[i0*8 + i1] %0 %2 = load f32 x0[i0*8 + i1]"));
    /* several points store to the same element */
    CHECK(!overlays("%1 = load f32 x0[i0*4 + i1] %2 = store f32 y0[i0*4 + i1] %1"));
    CHECK(!overlays("%1 = load f32 x0[i1] %2 = store f32 y0[i1] %1"));
    CHECK(overlays("%1 = load f32 x0[i0 + i1*4] %2 = store f32 y0[i0 + i1*4] %1"));
    CHECK(
        overlays("%1 = load f32 x0[31 + i0*-8 + i1*-1] %2 = store f32 y0[31 + i0*-8 + i1*-1] %1"));
    /* within sums: of one stage, of the last stage that reads the operand, of a stage before one that does */
    CHECK(overlays_along("r0 reduce 8",
        "stage r0 { %0 = load f32 x0[i0*8 + r0] %1 = store f32 y0[i0*8 + r0] %0 %2 "
        "= reduce sum f32 %0 post %3 = store f32 y1[i0] %2 }"));
    CHECK(!overlays_along("r0 reduce 8",
        "stage r0 { %0 = load f32 x0[r0*4 + i0] %1 = store f32 y0[i0*8 + r0] %0 %2 "
        "= reduce sum f32 %0 post %3 = store f32 y1[i0] %2 }"));
    CHECK(overlays_along("r0 reduce 8",
        "stage r0 { %0 = load f32 x0[i0*8 + r0] %1 = reduce sum f32 %0 } stage r0 { %2 = load f32 "
        "x0[i0*8 + r0] "
        "%3 = store f32 y0[i0*8 + r0] %1 %4 = reduce sum f32 %2 post %5 = store f32 y1[i0] %4 }"));
    CHECK(!overlays_along("r0 reduce 8",
        "stage r0 { %0 = load f32 x0[i0*8 + r0] %1 = store f32 y0[i0*8 + r0] %0 %2 = reduce sum "
        "f32 %0 } stage r0 "
        "{ %3 = load f32 x0[i0*8 + r0] %4 = reduce sum f32 %3 post %5 = store f32 y1[i0] %4 }"));
}

/* Damaged text is refused or read as a kernel that verifies: never a crash (and, under the
 * sanitizers, no access outside). */
TEST(random_damage)
{
    static const char bits[] = "%0123456789+-*[]{}() :<=ixyr\n#\"e.";
    uint64_t key = nnc_rng_key("kernel text", test_seed);
    int read = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        char text[sizeof add_text];
        nnc_arena a;
        memcpy(text, add_text, sizeof text);
        for (uint64_t j = 0; j <= nnc_rng_u32(key, 8 * i + 7) % 3; j++)
            text[nnc_rng_u32(key, 8 * i + 2 * j) % (sizeof text - 1)] =
                bits[nnc_rng_u32(key, 8 * i + 2 * j + 1) % (sizeof bits - 1)];
        nnc_arena_init(&a, 64 << 20);
        nnc_sink_clear(test_sink);
        nnc_kernel *k = parse(text, sizeof text - 1 - nnc_rng_u32(key, 8 * i + 6) % 20, &a);
        read += k != NULL;
        nnc_interp *s = k ? nnc_interp_create(k) : NULL;
        nnc_interp_destroy(s);
        nnc_arena_deinit(&a);
    }
    CHECK_USUAL(read > 0);
}

TEST(hash_sees_code_not_names)
{
    nnc_arena a;
    nnc_arena_init(&a, 0);
    char text[sizeof add_text];
    memcpy(text, add_text, sizeof text);
    nnc_kernel *k = parse(text, sizeof text - 1, &a);
    for (char *p = text; (p = strstr(p, "x0")); p++)
        *p = 'q';
    nnc_kernel *l = parse(text, sizeof text - 1, &a);
    memcpy(strstr(text, "vector i0 8"), "vector i0 4", 11);
    nnc_kernel *m = parse(text, sizeof text - 1, &a);
    CHECK(k && l && m);
    if (k && l && m) {
        CHECK(nnc_kernel_hash(k).lo == nnc_kernel_hash(l).lo);
        CHECK(nnc_kernel_hash(k).lo != nnc_kernel_hash(m).lo);
    }
    nnc_arena_deinit(&a);
}

/* Rows of n floats in shared memory, beside the partial results of the block's 32 warps: both count against what a block may ask for. */
static bool fits_shared(int n)
{
    nnc_arena a;
    nnc_text t = {0};
    nnc_arena_init(&a, 0);
    nnc_sink_clear(test_sink);
    nnc_printf(&t,
        "kernel k_test { axis i0 outer 7 axis m0 map %d axis r0 reduce %d axis m1 map %d\n"
        "buf x0 in f32 %d buf y0 out f32 %d buf t0 tmp f32 %d\n"
        "schedule cuda row threads 1024 group 1024 blocks 7 shared %d\n"
        "stage m0 { %%0 = load f32 x0[i0*%d + m0] %%1 = exp f32 %%0 %%2 = store f32 t0[m0] %%1 }\n"
        "stage r0 { %%3 = load f32 x0[i0*%d + r0] %%4 = reduce sum f32 %%3 post }\n"
        "stage m1 { %%5 = load f32 t0[%d + m1*-1] %%6 = mul f32 %%5 %%4\n"
        "%%7 = store f32 y0[i0*%d + m1] %%6 } }",
        n, n, n, 7 * n, 7 * n, n, 4 * n, n, n, n - 1, n);
    bool ok = parse(nnc_text_str(&t), t.n, &a) != NULL;
    nnc_text_deinit(&t);
    nnc_arena_deinit(&a);
    return ok;
}

TEST(static_shared_memory_counts)
{
    enum { MOST = 227 << 10 };
    CHECK(fits_shared(MOST / 4 - 64));
    CHECK(!fits_shared(MOST / 4 - 31));
    CHECK(!fits_shared(MOST / 4));
    nnc_sink_clear(test_sink);
}

/* A kernel as it is built, without a schedule: it verifies, its text is exact, and no one takes it for one that can run. */
static bool check_unscheduled(const nnc_graph *g, const nnc_node *n, uint64_t seed)
{
    nnc_arena a;
    nnc_scan s;
    nnc_text t = {0}, u = {0};
    nnc_arena_init(&a, 0);
    nnc_kernel *k = nnc_kernel_build(g, n, &a, test_sink), *p = NULL;
    bool built = k != NULL, ok = true;
    if (built) {
        nnc_kernel_print(&t, k);
        nnc_scan_init(&s, "k", nnc_text_str(&t), t.n);
        ok = nnc_kernel_verify(k, test_sink) == NNC_OK;
        p = nnc_kernel_parse(&s, &a, test_sink);
        if (p)
            nnc_kernel_print(&u, p);
        ok = ok && p && !strcmp(nnc_text_str(&t), nnc_text_str(&u)) &&
             p->scratch_bytes == k->scratch_bytes && !strstr(nnc_text_str(&t), "schedule");
        ok = ok && nnc_schedule_verify(k, test_sink) != NNC_OK;
    }
    if (!ok)
        test_fail(__FILE__, __LINE__, "seed %llu:\n%s\nprints again as\n%s",
            (unsigned long long)seed, nnc_text_str(&t), nnc_text_str(&u));
    nnc_text_deinit(&t);
    nnc_text_deinit(&u);
    nnc_arena_deinit(&a);
    nnc_sink_clear(test_sink);
    return built;
}

TEST(unscheduled_kernels)
{
    int built = 0;
    for (uint64_t i = 0; i < (uint64_t)test_draws(200); i++) {
        gen_options o = {.seed = test_seed * 1000 + i,
            .nodes = 1 + (int)(i % 12),
            .max_elements = 600,
            .dtypes = i % 2 ? 1 << DT_f16 | 1 << DT_f32 | 1 << DT_i32 : 0};
        nnc_graph *g = gen_graph(&o, test_sink), *f = g ? gen_fused(g, test_sink) : NULL;
        CHECK(g != NULL);
        for (uint32_t k = 0; g && k < g->n_node; k++) {
            const nnc_node *n = &g->node[k];
            if ((nnc_op_class((nnc_op)n->op) != CL_leaf || n->op == OP_iota) && !nnc_is_view(g, n))
                built += check_unscheduled(g, n, o.seed);
        }
        for (uint32_t k = 0; f && k < f->n_node; k++)
            if (f->node[k].op == OP_fused)
                built += check_unscheduled(f, &f->node[k], o.seed);
        nnc_sink_clear(test_sink);
        nnc_graph_destroy(f);
        nnc_graph_destroy(g);
    }
    CHECK_USUAL(built > test_draws(500));
}
