/* tests/passes/golden.c -- runs the cases of tests/golden/ (every .nnc file): a `# run: nnc opt
 * --passes=a,b [-O2] [--engines=llvm|interp] [--target=cuda:sm_N [--tf32]] [--math=exact|fast]
 * [--remarks [--times]]` line, a graph, and the expected output after `#> `. A file holds any number of
 * cases. Estimated times in remarks are printed as `_ us` or `_ ms`, so that other prices change prices.nnc only, whose cases ask for
 * --times. NNC_BLESS=1 in the environment rewrites the expected lines. */
#include "help.h"

#include <dirent.h>
#include <stdlib.h>

enum { MAX_PASSES = 16 };

typedef struct request {
    char text[512];
    const char *pass[MAX_PASSES];
    int n_pass, level, price, segments;
    bool kernels, remarks, times, tf32;
    nnc_math math;
    nnc_precision precision;
    const char *target; /* a GPU's name; NULL: help_target */
} request;

static bool parse_request(request *q, const char *line, size_t n)
{
    *q = (request){.level = 2};
    if (n >= sizeof q->text)
        return false;
    memcpy(q->text, line, n);
    for (char *save = NULL, *w = strtok_r(q->text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (!strncmp(w, "--passes=", 9)) {
            char *inner = NULL;
            for (char *s = strtok_r(w + 9, ",", &inner); s && q->n_pass < MAX_PASSES;
                 s = strtok_r(NULL, ",", &inner))
                q->pass[q->n_pass++] = s;
        } else if (!strncmp(w, "-O", 2)) {
            q->level = atoi(w + 2);
        } else if (!strncmp(w, "--engines=", 10)) {
            q->kernels = !strcmp(w + 10, "llvm");
        } else if (!strncmp(w, "--target=", 9)) {
            q->target = w + 9;
        } else if (!strncmp(w, "--precision=", 12)) {
            if (!nnc_precision_parse(w + 12, &q->precision))
                return false;
        } else if (!strncmp(w, "--memory-price=", 15)) {
            q->price = atoi(w + 15);
        } else if (!strncmp(w, "--segments=", 11)) {
            q->segments = atoi(w + 11);
        } else if (!strcmp(w, "--math=exact") || !strcmp(w, "--math=fast")) {
            q->math = w[7] == 'e' ? MATH_exact : MATH_fast;
        } else if (!strcmp(w, "--tf32")) {
            q->tf32 = true;
        } else if (!strcmp(w, "--remarks")) {
            q->remarks = true;
        } else if (!strcmp(w, "--times")) {
            q->times = true;
        } else if (strcmp(w, "nnc") && strcmp(w, "opt")) {
            return false;
        }
    }
    return true;
}

/* The text, its numbers of microseconds as `_`. */
static void put_without_times(nnc_text *t, const char *s)
{
    while (*s) {
        const size_t n = strspn(s, "0123456789.");
        if (n && (!strncmp(s + n, " us", 3) || !strncmp(s + n, " ms", 3)))
            nnc_putc(t, '_');
        else
            nnc_putn(t, s, n ? n : 1);
        s += n ? n : 1;
    }
}

static void put_remark(nnc_text *t, const nnc_remark *r, bool times)
{
    nnc_printf(t, "%s %s: %s [", r->applied ? "applied" : "declined", r->pass, r->rule);
    for (int i = 0; i < r->n_layers; i++)
        nnc_printf(t, "%s%s", i ? " " : "", r->layer[i]);
    nnc_puts(t, "]");
    if (r->applied)
        nnc_printf(t, " bytes %lld launches %lld", (long long)r->bytes_saved,
            (long long)r->launches_saved);
    nnc_puts(t, ": ");
    if (times)
        nnc_puts(t, r->reason);
    else
        put_without_times(t, r->reason);
    nnc_putc(t, '\n');
}

/* What the command prints: remarks when asked for, then the graph; or the diagnostics. */
static void run_case(nnc_text *out, const char *file, const request *q, const char *graph, size_t n)
{
    nnc_target target = q->kernels ? help_kernels() : help_target();
    if (q->target) {
        CHECK_OK(nnc_target_cuda(&target, q->target, test_sink));
    }
    nnc_remarks r;
    nnc_remarks_init(&r);
    nnc_graph *g = help_parse(file, graph, n);
    nnc_pass_options o = {.level = q->level,
        .policy = {.math = q->math,
            .precision = q->precision,
            .tf32 = q->tf32 && target.flops_tf32 > 0},
        .target = &target,
        .memory_price = q->price,
        .segments = q->segments,
        .only = q->pass,
        .n_only = q->n_pass};
    if (g && nnc_passes_run(&g, &o, &r, test_sink) == NNC_OK) {
        for (size_t i = 0; q->remarks && i < r.n; i++)
            put_remark(out, &r.at[i], q->times);
        nnc_graph_print(out, g);
    } else {
        for (size_t i = 0; i < nnc_sink_count(test_sink); i++)
            nnc_printf(out, "%s\n", nnc_sink_at(test_sink, i)->message);
    }
    nnc_graph_destroy(g);
    nnc_remarks_deinit(&r);
    if (q->target)
        nnc_target_deinit(&target);
}

static const char *line_end(const char *p)
{
    const char *e = strchr(p, '\n');
    return e ? e + 1 : p + strlen(p);
}

/* One case at p; appends what the file should hold to `blessed`. Returns where the next begins. */
static const char *one_case(const char *file, const char *p, nnc_text *blessed, int *count)
{
    nnc_text graph = {0}, want = {0}, got = {0}, next = {0}; /* next: comments on the next case */
    request q;
    const char *run = p, *e = line_end(p);
    bool ok = parse_request(&q, p + 6, (size_t)(e - p - 6 - (e[-1] == '\n')));
    nnc_putn(blessed, p, (size_t)(e - p));
    for (p = e; *p && strncmp(p, "# run:", 6); p = e) {
        e = line_end(p);
        if (!strncmp(p, "#>", 2))
            nnc_putn(&want, p + 2 + (p[2] == ' '), (size_t)(e - p - 2 - (p[2] == ' ')));
        else if (want.n)
            nnc_putn(&next, p, *p == '\n' ? 0 : (size_t)(e - p));
        else if (*p != '\n' || e[0] == 0 || strncmp(e, "# run:", 6))
            nnc_putn(&graph, p, (size_t)(e - p));
    }
    nnc_putn(blessed, nnc_text_str(&graph), graph.n);
    nnc_sink_clear(test_sink);
    if (ok)
        run_case(&got, file, &q, nnc_text_str(&graph), graph.n);
    for (const char *s = nnc_text_str(&got); *s; s = line_end(s))
        nnc_printf(blessed, "#> %.*s", (int)(line_end(s) - s), s);
    if (*p)
        nnc_printf(blessed, "\n%s", nnc_text_str(&next));
    if (!ok)
        test_fail(file, 0, "bad run line: %.*s", (int)(line_end(run) - run), run);
    else if (!getenv("NNC_BLESS") && strcmp(nnc_text_str(&got), nnc_text_str(&want)))
        test_fail(file, 0, "%.*sgives\n%snot\n%s", (int)(line_end(run) - run), run,
            nnc_text_str(&got), nnc_text_str(&want));
    (*count)++;
    nnc_text_deinit(&graph);
    nnc_text_deinit(&want);
    nnc_text_deinit(&got);
    nnc_text_deinit(&next);
    return p;
}

static int one_file(const char *path)
{
    char *text;
    size_t n;
    int count = 0;
    nnc_text blessed = {0};
    nnc_status s = nnc_file_read(path, 0, &text, &n, test_sink);
    CHECK_OK(s);
    if (s != NNC_OK)
        return 0;
    const char *p = strncmp(text, "# run:", 6) ? strstr(text, "\n# run:") : text;
    p = p && p != text ? p + 1 : p;
    nnc_putn(&blessed, text, p ? (size_t)(p - text) : n);
    while (p && *p)
        p = one_case(path, p, &blessed, &count);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(path, nnc_text_str(&blessed), blessed.n, false, test_sink));
    nnc_text_deinit(&blessed);
    nnc_free(text);
    return count;
}

static int is_case(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 4 && !strcmp(d->d_name + n - 4, ".nnc");
}

TEST(golden)
{
    struct dirent **entry = NULL;
    int count = 0, n = scandir("tests/golden", &entry, is_case, alphasort);
    CHECK(n > 0);
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "tests/golden/%s", entry[i]->d_name);
        count += one_file(path);
        free(entry[i]);
    }
    free(entry);
    CHECK(count >= 40);
}
