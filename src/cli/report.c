/* cli/report.c -- nnc report: reads the words of experiments' runs as those of a command line, for the hardware that they name and for this
 * machine. */
#include "cli/cli.h"
#include "report/report.h"
#include "session/session.h"
#include <string.h>

/* A run's words are flags of nnc run that change no file, or with --fit flags of nnc memory. */
static const command words = {"report", "MODEL...", "",
    NNC_FLAGS(model) | NNC_FLAGS(mode) | NNC_FLAGS(training) | NNC_FLAGS(place) |
        NNC_FLAGS(compiling) | NNC_FLAGS(planning) | NNC_FLAGS(sharing) | NNC_FLAGS(fit),
    1, MOST_FILES, NULL, NULL, NULL};

typedef struct own { /* what the flags and objects of one run are in */
    options o;
    work w;
} own;

static void close_run(void *ctx, nnc_opened *opened)
{
    own *r = opened->own;
    (void)ctx;
    close_work(&r->w);
    nnc_arena_deinit(&r->o.strings);
    nnc_free(r);
}

/* Parses the words for a machine: that of the hardware file, or the one that the report's own flags name. */
static nnc_status parse_words(const options *report, const char *const *word, int n,
    const char *hardware, own *r, nnc_sink *sink)
{
    options *o = &r->o;
    *r = (own){.o = default_options()};
    o->sink = report->sink;
    o->quiet = report->quiet;
    NNC_TRY(parse_flags(&words, n, (char **)(uintptr_t)word, 0, o, sink));
    if (o->help)
        return nnc_fail0(sink, NNC_E_USAGE, "--help is not a flag of a run");
    if (o->env.hardware)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--hardware is not a flag of a run: the key \"hardware\" names the file");
    o->env = report->env;
    o->no_machine = false;
    if (hardware) {
        o->env.hardware = hardware;
        o->env.target = NULL;
        o->env.threads = 0;
        o->env.memory_limit = NULL;
    }
    return NNC_OK;
}

static nnc_status open_run(void *ctx, const char *const *word, int n, const char *hardware,
    nnc_opened *out, nnc_sink *sink)
{
    own *r = nnc_malloc(sizeof *r);
    NNC_NEED(r, sink);
    *out = (nnc_opened){.own = r};
    nnc_status st = parse_words(ctx, word, n, hardware, r, sink);
    nnc_compile_options c = nnc_compile_defaults;
    if (!st)
        st = open_whole(&r->o, &r->w, &c, sink);
    if (!st && r->w.artifact)
        st = nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = r->o.file[0]},
            "is compiled already: an experiment names the model");
    out->env = r->w.env;
    out->model = r->w.model;
    out->time = r->o.compare;
    out->time.compile = c;
    out->time.seed = r->o.model.seed;
    out->time.training = r->o.mode == MODE_step ? &r->o.train.training : NULL;
    if (st)
        close_run(ctx, out);
    return st;
}

static nnc_status find_largest(
    void *ctx, const char *const *word, int n, const char *hardware, int64_t *out, nnc_sink *sink)
{
    own r;
    bool fits;
    nnc_status st = parse_words(ctx, word, n, hardware, &r, sink);
    if (!st)
        st = fit_memory(&r.o, &r.w, &fits, out, sink);
    close_work(&r.w);
    nnc_arena_deinit(&r.o.strings);
    return st;
}

nnc_status cmd_report(const options *o, work *w, nnc_sink *sink)
{
    const char *const usual[] = {"models/experiments"};
    const char *const *path = o->n_file ? o->file : usual;
    const nnc_opener by = {open_run, close_run, find_largest, progress, (void *)o};
    nnc_experiments x = {0};
    nnc_status st = check_reports(o, sink);
    NNC_LOCAL(nnc_text) page = {0};
    for (int i = 0; !st && i < (o->n_file ? o->n_file : 1); i++)
        st = nnc_experiments_read(&x, path[i], sink);
    if (!st)
        st = nnc_experiments_take(&x, &by, &o->report, sink);
    if (!st)
        st = nnc_experiments_print(&x, o->format, terminal_columns(), &w->text, sink);
    if (!st && o->html)
        st = nnc_experiments_html(&x, &page, sink);
    if (!st && o->html)
        st = nnc_write_picture(&page, o->html, sink);
    nnc_arena_deinit(&x.arena);
    return st;
}
