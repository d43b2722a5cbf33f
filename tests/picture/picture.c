/* tests/picture/picture.c -- traces and SVG of drawn timelines: well-formed, complete, nothing that overlaps, equal bytes again. */
#include "picture/picture.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

/* ---- XML ------------------------------------------------------------------------------------------------- */

/* Is the text well-formed? Elements nest, attributes are quoted, & begins one of four entities. */
static bool is_well_formed(const char *s)
{
    char open[64][16];
    int depth = 0;
    while (*s) {
        if (*s == '&' && strncmp(s, "&lt;", 4) && strncmp(s, "&gt;", 4) && strncmp(s, "&amp;", 5) &&
            strncmp(s, "&quot;", 6))
            return false;
        if ((unsigned char)*s < 0x20 && *s != '\n')
            return false;
        if (*s != '<') {
            s++;
            continue;
        }
        const bool closes = s[1] == '/';
        const char *name = s + 1 + closes;
        const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        if (!n || n > 15)
            return false;
        s = name + n;
        if (closes) {
            if (!depth || strlen(open[depth - 1]) != n || strncmp(open[--depth], name, n) ||
                *s++ != '>')
                return false;
            continue;
        }
        while (*s == ' ') { /* name="value" */
            s += 1 + strcspn(s + 1, "=");
            if (s[0] != '=' || s[1] != '"')
                return false;
            s += 2 + strcspn(s + 2, "\"<");
            if (*s++ != '"')
                return false;
        }
        const bool empty = *s == '/';
        s += empty;
        if (*s++ != '>' || depth == 64)
            return false;
        if (!empty)
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)n, name);
    }
    return depth == 0;
}

/* Without strstr, with which a sanitizer goes to the text's end each time: 20 s for a large chart. */
static int count(const char *s, const char *part)
{
    const size_t len = strlen(part);
    int n = 0;
    for (; *s; s++)
        n += *s == *part && !strncmp(s, part, len);
    return n;
}

TEST(the_checker_of_xml_finds_damage)
{
    CHECK(is_well_formed("<svg a=\"1\"><g/><text>a &amp; b</text></svg>\n"));
    CHECK(!is_well_formed("<svg><g></svg>"));
    CHECK(!is_well_formed("<svg a=1></svg>"));
    CHECK(!is_well_formed("<svg>a & b</svg>"));
    CHECK(!is_well_formed("<svg>"));
    CHECK(!is_well_formed("<svg>\x01</svg>"));
}

/* ---- timelines ------------------------------------------------------------------------------------------- */

static uint32_t drawn(uint64_t *seed, uint32_t below)
{
    return nnc_rng_u32(nnc_rng_key("picture", test_seed), (*seed)++) % below;
}

/* Spans at random, which overlap; arrows; memory. */
static nnc_timeline *random_timeline(uint64_t *seed)
{
    const int devices = 1 + (int)drawn(seed, 5);
    nnc_timeline *t = nnc_timeline_create(drawn(seed, 2) ? "predicted" : "mea<su>red", devices);
    if (!t)
        return NULL;
    for (int d = 0; d < devices; d++) {
        nnc_timeline_lane(t, d, "stream 0", false);
        nnc_timeline_lane(t, d, "sends & \"more\"", true);
        t->capacity[d] = drawn(seed, 2) ? 1 << 30 : 0;
    }
    for (int i = 0, n = (int)drawn(seed, 200); i < n; i++) {
        const int64_t start = drawn(seed, 1000000), length = drawn(seed, 30000);
        const int s = nnc_timeline_add(t, (nnc_slice){.start_ps = start,
                                              .end_ps = start + length,
                                              .lane = (int32_t)drawn(seed, 2 * (uint32_t)devices),
                                              .micro = (int32_t)drawn(seed, 20) - 1,
                                              .kind = (uint8_t)drawn(seed, WORK__COUNT),
                                              .bytes = drawn(seed, 3) ? 0 : 1000,
                                              .name = drawn(seed, 2) ? "/layers/<0>\x02&" : NULL});
        if (s > 0 && drawn(seed, 4) == 0)
            nnc_timeline_arrow(t, (int)drawn(seed, (uint32_t)s), s);
    }
    for (int d = 0; d < devices; d++)
        for (int i = 0, n = (int)drawn(seed, 50); i < n; i++) {
            nnc_level l = {.ps = 20000 * i, .device = d, .name = "/layers/3"};
            for (int k = 0; k < HOLD__COUNT; k++)
                l.bytes[k] = drawn(seed, 1 << 28);
            nnc_timeline_level(t, l);
        }
    return t;
}

static int by_place(const void *a, const void *b)
{
    const nnc_slice *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return (x->start_ps > y->start_ps) - (x->start_ps < y->start_ps);
}

static int64_t length(const nnc_timeline *t, int device)
{
    int64_t sum = 0;
    for (int i = 0; i < t->n_span; i++)
        if (t->lane[t->span[i].lane].device == device)
            sum += t->span[i].end_ps - t->span[i].start_ps;
    return sum;
}

TEST(packed_spans_do_not_overlap)
{
    uint64_t seed = 0;
    for (int round = 0; round < 60; round++) {
        nnc_timeline *t = random_timeline(&seed);
        const int n = t->n_span;
        const int64_t before = length(t, 0), busy = nnc_timeline_busy(t, 0);
        nnc_timeline_pack(t);
        CHECK(!t->oom);
        CHECK_INT(t->n_span, n);
        CHECK_INT(length(t, 0), before);
        CHECK_INT(nnc_timeline_busy(t, 0), busy);
        CHECK(busy <= t->total_ps);
        qsort(t->span, (size_t)n, sizeof *t->span, by_place);
        for (int i = 1; i < n; i++)
            CHECK(t->span[i].lane != t->span[i - 1].lane ||
                  t->span[i].start_ps >= t->span[i - 1].end_ps);
        nnc_timeline_destroy(t);
    }
}

/* ---- traces ---------------------------------------------------------------------------------------------- */

static double number(const nnc_item *o, const char *key)
{
    const nnc_item *v = nnc_json_get(o, key);
    return nnc_is_number(v) ? v->number : -1;
}

typedef struct slice {
    double pid, tid, ts, dur;
} slice;

static int by_thread(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    return (x->ts > y->ts) - (x->ts < y->ts);
}

/* Slices of a thread follow each other; as many as there are spans; each arrow has two ends in slices; names for all processes. */
static void check_trace(const nnc_text *text, int spans, int arrows, int levels, int devices)
{
    nnc_json json;
    slice *all = nnc_calloc((size_t)spans + 1, sizeof *all);
    int n = 0, ends[2] = {0}, counters = 0, names = 0;
    CHECK_OK(nnc_json_parse(&json, "trace", nnc_text_str(text), text->n, test_sink));
    for (const nnc_item *v = nnc_json_first(nnc_json_get(json.root, "traceEvents")); v;
         v = v->next) {
        const char *ph = nnc_json_text(v, "ph"), *name = nnc_json_text(v, "name");
        CHECK(ph && name && number(v, "pid") >= 1 && number(v, "pid") <= devices);
        if (ph && !strcmp(ph, "X") && n < spans)
            all[n++] =
                (slice){number(v, "pid"), number(v, "tid"), number(v, "ts"), number(v, "dur")};
        else if (ph && !strcmp(ph, "X"))
            n++;
        ends[0] += ph && !strcmp(ph, "s");
        ends[1] += ph && !strcmp(ph, "f");
        counters += ph && !strcmp(ph, "C");
        names += ph && !strcmp(ph, "M") && name && !strcmp(name, "process_name");
    }
    CHECK_INT(n, spans);
    CHECK_INT(ends[0], arrows);
    CHECK_INT(ends[1], arrows);
    CHECK_INT(counters, levels);
    CHECK_INT(names, devices);
    qsort(all, (size_t)(n < spans ? n : spans), sizeof *all, by_thread);
    for (int i = 1; i < n && i < spans; i++)
        CHECK(all[i].pid != all[i - 1].pid || all[i].tid != all[i - 1].tid ||
              all[i].ts >= all[i - 1].ts + all[i - 1].dur - 1e-9);
    nnc_free(all);
    nnc_json_deinit(&json);
}

TEST(traces_hold_all_spans_and_none_overlap)
{
    uint64_t seed = 1000000;
    for (int round = 0; round < 40; round++) {
        nnc_timeline *a = random_timeline(&seed), *b = random_timeline(&seed);
        NNC_LOCAL(nnc_text) text = {0};
        NNC_LOCAL(nnc_text) again = {0};
        nnc_timeline_pack(a);
        nnc_timeline_pack(b);
        const nnc_timeline *both[] = {a, b};
        nnc_trace_put(both, 2, &text);
        nnc_trace_put(both, 2, &again);
        CHECK(!text.oom);
        CHECK_STR(nnc_text_str(&text), nnc_text_str(&again));
        check_trace(&text, a->n_span + b->n_span, a->n_arrow + b->n_arrow, a->n_level + b->n_level,
            a->n_device + b->n_device);
        nnc_timeline_destroy(a);
        nnc_timeline_destroy(b);
    }
}

/* ---- Gantt charts, memory -------------------------------------------------------------------------------- */

TEST(charts_of_any_timeline_are_well_formed)
{
    uint64_t seed = 2000000;
    for (int round = 0; round < 40; round++) {
        nnc_timeline *t = random_timeline(&seed);
        NNC_LOCAL(nnc_text) gantt = {0};
        NNC_LOCAL(nnc_text) again = {0};
        NNC_LOCAL(nnc_text) holds = {0};
        nnc_timeline_pack(t);
        nnc_gantt_put(t, "a < b & \"c\"", "one\ntwo", &gantt);
        nnc_gantt_put(t, "a < b & \"c\"", "one\ntwo", &again);
        nnc_holds_put(t, "a < b", NULL, "time", &holds);
        CHECK(is_well_formed(nnc_text_str(&gantt)));
        CHECK(is_well_formed(nnc_text_str(&holds)));
        CHECK_STR(nnc_text_str(&gantt), nnc_text_str(&again));
        for (int d = 0; d < t->n_device; d++)
            CHECK(strstr(nnc_text_str(&gantt), t->device[d]) &&
                  strstr(nnc_text_str(&holds), t->device[d]));
        nnc_timeline_destroy(t);
    }
}

/* Boxes that differ in kind or micro-batch are all there; those that look alike and touch are one. */
TEST(a_chart_has_a_box_for_each_task)
{
    nnc_timeline *t = nnc_timeline_create("predicted", 2);
    const int first = nnc_timeline_lane(t, 0, "computing", false),
              second = nnc_timeline_lane(t, 1, "computing", false);
    NNC_LOCAL(nnc_text) svg = {0};
    for (int m = 0; m < 30; m++)
        for (int d = 0; d < 2; d++)
            nnc_timeline_add(t, (nnc_slice){.start_ps = 1000 * (m + d),
                                    .end_ps = 1000 * (m + d) + 900,
                                    .lane = d ? second : first,
                                    .micro = m});
    for (int i = 0; i < 3; i++) /* commands of one update */
        nnc_timeline_add(t, (nnc_slice){.start_ps = 40000 + 100 * i,
                                .end_ps = 40100 + 100 * i,
                                .lane = first,
                                .micro = -1,
                                .kind = WORK_update});
    nnc_gantt_put(t, "pipeline", NULL, &svg);
    CHECK_INT(count(nnc_text_str(&svg), "<title>forward of micro-batch"), 60);
    CHECK_INT(count(nnc_text_str(&svg), "<title>update"), 1);
    CHECK_INT(count(nnc_text_str(&svg), "3 commands"), 1);
    CHECK(strstr(nnc_text_str(&svg), "idle") && strstr(nnc_text_str(&svg), ">29</text>"));
    nnc_timeline_destroy(t);
}

/* A run that only computes forward has a box for each command, named by its layer; those too short to be seen share one. */
TEST(a_chart_of_inference_has_a_box_for_each_command)
{
    static const char *const ops[] = {"conv3x3", "pool", "conv1x1", "matmul"},
                             *const layers[] = {"/layers/0/c1+/layers/1/relu", "/layers/2/p",
                                 "/layers/3/c2", "/layers/4/fc"};
    nnc_timeline *t = nnc_timeline_create("measured", 1);
    const int lane = nnc_timeline_lane(t, 0, "stream 0", false);
    NNC_LOCAL(nnc_text) svg = {0};
    for (int i = 0; i < 4; i++)
        nnc_timeline_add(t, (nnc_slice){.start_ps = 100000 * i,
                                .end_ps = 100000 * (i + 1),
                                .lane = lane,
                                .micro = -1,
                                .name = layers[i],
                                .op = ops[i]});
    for (int i = 0; i < 5; i++)
        nnc_timeline_add(t, (nnc_slice){.start_ps = 400000 + 10 * i,
                                .end_ps = 400010 + 10 * i,
                                .lane = lane,
                                .micro = -1,
                                .name = "/layers/5/tiny",
                                .op = "ewise"});
    nnc_gantt_put(t, "inference", NULL, &svg);
    const char *s = nnc_text_str(&svg);
    CHECK_INT(count(s, "<title>conv3x3, ") + count(s, "<title>conv1x1, "), 2);
    CHECK_INT(count(s, ">conv</text>"), 1); /* both have one colour */
    CHECK_INT(count(s, "<title>ewise, "), 1);
    CHECK_INT(count(s, "5 commands"), 1);
    CHECK(strstr(s, ">c1</text>") && strstr(s, ">p</text>") && strstr(s, ">fc</text>"));
    CHECK(strstr(s, ">matmul</text>") && !strstr(s, ">forward</text>"));
    nnc_timeline_destroy(t);
}

/* The file of a pipeline of thousands of devices stays one that a viewer opens, and says what it leaves out. */
TEST(a_chart_of_a_large_run_says_what_it_leaves_out)
{
    nnc_timeline *t = nnc_timeline_create("predicted", 100);
    NNC_LOCAL(nnc_text) svg = {0};
    for (int d = 0; d < 100; d++) {
        const int lane = nnc_timeline_lane(t, d, "computing", false);
        for (int m = 0; m < 1000; m++)
            nnc_timeline_add(t, (nnc_slice){.start_ps = 1000000 * (int64_t)(m + d),
                                    .end_ps = 1000000 * (int64_t)(m + d + 1),
                                    .lane = lane,
                                    .micro = m});
    }
    nnc_gantt_put(t, "pipeline", NULL, &svg);
    CHECK(svg.n < 8000000);
    CHECK(count(nnc_text_str(&svg), "<rect") < 21000);
    CHECK(strstr(nnc_text_str(&svg), "Drawn: the first") != NULL);
    CHECK(strstr(nnc_text_str(&svg), "Drawn: 64 of 100 devices") != NULL);
    nnc_timeline_destroy(t);
}

/* Where an allocation fails, the text says that something is missing. */
TEST(pictures_out_of_memory)
{
    static const nnc_scatter_point point[] = {
        {.name = "a", .x = 1, .y = 8, .fits = true}, {.name = "b", .x = 2, .y = 4, .fits = true}};
    static const nnc_scatter s = {
        .title = "t", .x_axis = "x", .y_axis = "y", .capacity = 10, .n = 2, .point = point};
    uint64_t seed = 4000000;
    for (int what = 0; what < 5; what++) {
        bool whole = false;
        int failed = 0;
        for (int64_t k = 1; !whole && k < 100000; k++) {
            NNC_LOCAL(nnc_text) out = {0};
            seed = 4000000;
            nnc_timeline *t = random_timeline(&seed), *all = NULL;
            nnc_fail_alloc_after(k);
            if (what == 0)
                nnc_gantt_put(t, "t", "n", &out);
            else if (what == 1)
                nnc_holds_put(t, "t", "n", "x", &out);
            else if (what == 2)
                nnc_scatter_put(&s, &out);
            else if (what == 3)
                nnc_trace_put((const nnc_timeline *const[]){t}, 1, &out);
            else
                all = nnc_timeline_beside((const nnc_timeline *const[]){t, t}, 2);
            nnc_fail_alloc_after(0);
            if (what == 4)
                out.oom = !all || all->oom;
            whole = !out.oom;
            failed += out.oom;
            CHECK(!whole || what == 4 || out.n > 100);
            nnc_timeline_destroy(all);
            nnc_timeline_destroy(t);
        }
        CHECK(whole && failed > 0);
    }
}

static const char golden[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"927.76\" height=\"160\" viewBox=\"0 0 "
    "927.76 160\" font-family=\"Helvetica, Arial, sans-serif\" role=\"img\">\n"
    "<title>t</title>\n"
    "<rect x=\"0\" y=\"0\" width=\"927.76\" height=\"160\" fill=\"#ffffff\"/>\n"
    "<text x=\"16\" y=\"29\" font-size=\"16\" font-weight=\"bold\" fill=\"#222222\">t</text>\n"
    "<text x=\"16\" y=\"47\" font-size=\"12\" fill=\"#666666\">n</text>\n"
    "<rect x=\"16\" y=\"58\" width=\"14\" height=\"12\" fill=\"#9ecae9\" stroke=\"#777777\" "
    "stroke-width=\"0.6\"/>\n"
    "<text x=\"35\" y=\"68\" font-size=\"12\" fill=\"#222222\">forward</text>\n"
    "<rect x=\"100.76\" y=\"58\" width=\"14\" height=\"12\" fill=\"#ee9d4c\" stroke=\"#777777\" "
    "stroke-width=\"0.6\"/>\n"
    "<text x=\"119.76\" y=\"68\" font-size=\"12\" fill=\"#222222\">backward</text>\n"
    "<line x1=\"75.76\" y1=\"88\" x2=\"75.76\" y2=\"118\" stroke=\"#e3e3e3\" stroke-width=\"1\"/>\n"
    "<text x=\"75.76\" y=\"132\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#666666\">0</text>\n"
    "<line x1=\"227.76\" y1=\"88\" x2=\"227.76\" y2=\"118\" stroke=\"#e3e3e3\" "
    "stroke-width=\"1\"/>\n"
    "<text x=\"227.76\" y=\"132\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#666666\">2</text>\n"
    "<line x1=\"379.76\" y1=\"88\" x2=\"379.76\" y2=\"118\" stroke=\"#e3e3e3\" "
    "stroke-width=\"1\"/>\n"
    "<text x=\"379.76\" y=\"132\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#666666\">4</text>\n"
    "<line x1=\"531.76\" y1=\"88\" x2=\"531.76\" y2=\"118\" stroke=\"#e3e3e3\" "
    "stroke-width=\"1\"/>\n"
    "<text x=\"531.76\" y=\"132\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#666666\">6</text>\n"
    "<line x1=\"683.76\" y1=\"88\" x2=\"683.76\" y2=\"118\" stroke=\"#e3e3e3\" "
    "stroke-width=\"1\"/>\n"
    "<text x=\"683.76\" y=\"132\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#666666\">8</text>\n"
    "<line x1=\"835.76\" y1=\"88\" x2=\"835.76\" y2=\"118\" stroke=\"#e3e3e3\" "
    "stroke-width=\"1\"/>\n"
    "<text x=\"835.76\" y=\"132\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#666666\">10</text>\n"
    "<text x=\"455.76\" y=\"150\" font-size=\"12\" text-anchor=\"middle\" fill=\"#222222\">time, "
    "ms</text>\n"
    "<line x1=\"75.76\" y1=\"87.5\" x2=\"835.76\" y2=\"87.5\" stroke=\"#e3e3e3\" "
    "stroke-width=\"1\"/>\n"
    "<text x=\"67.76\" y=\"106\" font-size=\"12\" text-anchor=\"end\" fill=\"#222222\">device "
    "0</text>\n"
    "<text x=\"843.76\" y=\"106\" font-size=\"12\" fill=\"#666666\">idle 10.0 %</text>\n"
    "<rect x=\"75.76\" y=\"92\" width=\"380\" height=\"20\" fill=\"#9ecae9\" stroke=\"#555555\" "
    "stroke-width=\"0.6\"><title>forward of micro-batch 0, device 0: 0 to 5.000 ms</title></rect>\n"
    "<text x=\"265.76\" y=\"105.96\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#222222\">0</text>\n"
    "<rect x=\"531.76\" y=\"92\" width=\"304\" height=\"20\" fill=\"#ee9d4c\" stroke=\"#555555\" "
    "stroke-width=\"0.6\"><title>backward of micro-batch 0, device 0: 6.000 to 10.00 "
    "ms</title></rect>\n"
    "<text x=\"683.76\" y=\"105.96\" font-size=\"11\" text-anchor=\"middle\" "
    "fill=\"#222222\">0</text>\n"
    "</svg>\n";

TEST(a_small_chart_is_this_one)
{
    nnc_timeline *t = nnc_timeline_create("predicted", 1);
    const int lane = nnc_timeline_lane(t, 0, "computing", false);
    NNC_LOCAL(nnc_text) svg = {0};
    nnc_timeline_add(t, (nnc_slice){.end_ps = 5000000000, .lane = lane});
    nnc_timeline_add(
        t, (nnc_slice){
               .start_ps = 6000000000, .end_ps = 10000000000, .lane = lane, .kind = WORK_backward});
    nnc_gantt_put(t, "t", "n", &svg);
    CHECK_STR(nnc_text_str(&svg), golden);
    nnc_timeline_destroy(t);
}

/* ---- strategies ------------------------------------------------------------------------------------------ */

typedef struct box {
    double x, y, w, h;
} box;

static double attribute(const char *element, const char *name)
{
    const char *p = strstr(element, name);
    return p ? nnc_strtod(p + strlen(name), NULL) : 0;
}

/* Does a line to its point come before this element? */
static bool has_line(const char *svg, const char *element)
{
    const char *p = element - 1;
    while (p > svg && p[-1] != '\n')
        p--;
    return !strncmp(p, "<line", 5);
}

/* Labels of points (font-size 11, ink): about where they are drawn. near: only those without a line to their points. */
static int find_labels(const char *svg, box *out, int most, bool near)
{
    int n = 0;
    for (const char *p = svg; (p = strstr(p, "<text")) != NULL; p++) {
        const char *end = strchr(p, '>'), *text = end + 1;
        const bool label = strstr(p, "font-size=\"11\"") && strstr(p, "font-size=\"11\"") < end &&
                           strstr(p, "#222222") && strstr(p, "#222222") < end;
        if (!label || n == most || (near && has_line(svg, p)))
            continue;
        const double w = 5.2 * (double)strcspn(text, "<"), x = attribute(p, " x=\"");
        const bool at_end = strstr(p, "\"end\"") && strstr(p, "\"end\"") < end;
        out[n++] = (box){at_end ? x - w : x, attribute(p, " y=\"") - 9, w, 11};
    }
    return n;
}

TEST(labels_of_strategies_do_not_overlap)
{
    uint64_t seed = 3000000;
    char name[40][32];
    for (int round = 0; round < 60; round++) {
        nnc_scatter_point point[40];
        box label[200];
        const int n = 1 + (int)drawn(&seed, 39);
        const bool together = drawn(&seed, 2); /* all in a corner */
        for (int i = 0; i < n; i++) {
            snprintf(name[i], sizeof name[i], "strategy%d", i);
            point[i] = (nnc_scatter_point){.name = name[i],
                .x = 1 + drawn(&seed, together ? 3 : 2000) * 0.5,
                .y = 1 + (int64_t)drawn(&seed, together ? 20 : 100) * 1000000000,
                .fits = drawn(&seed, 3) > 0,
                .runs = drawn(&seed, 2)};
        }
        const nnc_scatter s = {.title = "t",
            .x_axis = "x",
            .y_axis = "y",
            .capacity = (int64_t)drawn(&seed, 3) * 40000000000,
            .n = n,
            .point = point};
        NNC_LOCAL(nnc_text) svg = {0};
        nnc_scatter_put(&s, &svg);
        CHECK(is_well_formed(nnc_text_str(&svg)));
        CHECK_INT(count(nnc_text_str(&svg), "<title>strategy") >= n, 1);
        const int k = find_labels(nnc_text_str(&svg), label, 200, false);
        CHECK(k > 0);
        for (int i = 0; i < k; i++)
            for (int j = 0; j < i; j++)
                CHECK(label[i].x + label[i].w <= label[j].x ||
                      label[j].x + label[j].w <= label[i].x ||
                      label[i].y + label[i].h <= label[j].y ||
                      label[j].y + label[j].h <= label[i].y);
    }
}

/* Points of the chart: the strategies' circles. */
static int find_points(const char *svg, box *out, int most)
{
    int n = 0;
    for (const char *p = svg; (p = strstr(p, "<circle")) != NULL && n < most; p++)
        if (strstr(p, "<title>strategy") && strstr(p, "<title>strategy") < strchr(p, '\n'))
            out[n++] = (box){attribute(p, " cx=\""), attribute(p, " cy=\""), 0, 0};
    return n;
}

static double away(const box *label, const box *point)
{
    const double x = fmax(fmax(label->x - point->x, point->x - label->x - label->w), 0),
                 y = fmax(fmax(label->y - point->y, point->y - label->y - label->h), 0);
    return hypot(x, y);
}

/* A label without a line to its point is beside no other point. Points are some pixels apart, so that each has a label. */
TEST(labels_are_beside_their_points)
{
    uint64_t seed = 4000000;
    char name[24][24];
    int beside = 0;
    for (int round = 0; round < 60; round++) {
        nnc_scatter_point point[24];
        box label[100], at[24];
        const int n = 2 + (int)drawn(&seed, 8);
        for (int i = 0; i < n; i++) {
            snprintf(name[i], sizeof name[i], "strategy%d", i);
            point[i] = (nnc_scatter_point){.name = name[i],
                .x = 1000 + 30 * (double)drawn(&seed, 9),
                .y = 1000 + 30 * (int64_t)drawn(&seed, 9),
                .fits = true};
        }
        const nnc_scatter s = {.title = "t", .x_axis = "x", .y_axis = "y", .n = n, .point = point};
        NNC_LOCAL(nnc_text) svg = {0};
        nnc_scatter_put(&s, &svg);
        const int k = find_labels(nnc_text_str(&svg), label, 100, true),
                  m = find_points(nnc_text_str(&svg), at, 24);
        CHECK_INT(m, n);
        for (int i = 0; i < k; i++) {
            int near = 0; /* two groups of points within a label's distance of their points */
            double least = INFINITY;
            for (int j = 0; j < m; j++)
                least = fmin(least, away(&label[i], &at[j]));
            for (int j = 0; j < m && least < 14; j++) {
                bool again = false;
                for (int q = 0; q < j; q++)
                    again = again || hypot(at[q].x - at[j].x, at[q].y - at[j].y) < 13;
                near += !again && away(&label[i], &at[j]) < least + 2;
            }
            CHECK(near <= 1);
            beside += near == 1;
        }
    }
    CHECK_USUAL(beside > 100);
}

/* Four points: the slow and large one is not on the front, nor the one that does not fit. */
TEST(the_front_joins_what_nothing_beats)
{
    const nnc_scatter_point point[] = {{.name = "fast", .x = 1, .y = 8, .fits = true},
        {.name = "small", .x = 4, .y = 2, .fits = true},
        {.name = "both", .x = 5, .y = 9, .fits = true}, {.name = "no", .x = 0.5, .y = 20}};
    const nnc_scatter s = {
        .title = "t", .x_axis = "x", .y_axis = "y", .capacity = 10, .n = 4, .point = point};
    NNC_LOCAL(nnc_text) svg = {0};
    nnc_scatter_put(&s, &svg);
    const char *path = strstr(nnc_text_str(&svg), "<path");
    CHECK(path && strstr(path, "fill=\"none\""));
    /* from fast to small: along, and down */
    CHECK_INT(path ? count(path, "L") : 0, 2);
}
