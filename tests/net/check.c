/* tests/net/check.c -- what must hold of a model and flags: exit codes, numbers near the reference, equal bytes where they are promised. */
#include "net.h"
#include "passes/passes.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- which models have numbers that can be compared ---------------------------------------------------------------------- */

static bool turns(const nnc_graph *g, const nnc_node *n)
{
    bool from_float = n->n_in > 0 && nnc_is_float((nnc_dtype)nnc_typeof(g, n->in[0])->dtype);
    if (n->op == OP_cast)
        return from_float && !nnc_is_float((nnc_dtype)nnc_typeof(g, n->out)->dtype);
    return from_float &&
           (n->op == OP_sign || n->op == OP_floor || n->op == OP_ceil || n->op == OP_round ||
               n->op == OP_trunc || n->op == OP_mod || n->op == OP_argmax || n->op == OP_argmin ||
               n->op == OP_topk || nnc_ops[n->op].flags & OF_bool);
}

/* A decision about a float that was rounded on the way may fall otherwise elsewhere, and an index from outside may lie beyond the table. */
static const char *decides(const nnc_graph *g, nnc_arena *a)
{
    bool *exact = ARENA_NEW(a, bool, g->n_value + 1), *fixed = nnc_static_values(g, a);
    for (uint32_t i = 0; exact && fixed && i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        bool all = true;
        for (int k = 0; k < n->n_in; k++)
            all = all && exact[n->in[k]];
        if (turns(g, n) && !all)
            return "decision";
        uint16_t index = nnc_index_operand(n) ? nnc_def(g, n->in[1])->op : OP_iota;
        if (nnc_index_operand(n) && !fixed[n->in[1]] && index != OP_argmax && index != OP_argmin &&
            index != OP_input)
            return "index";
        for (uint32_t o = 0; o < n->n_out; o++) {
            bool moved = nnc_op_class((nnc_op)n->op) == CL_leaf ||
                         nnc_op_class((nnc_op)n->op) == CL_move || n->op == OP_identity;
            exact[n->out + o] =
                !nnc_is_float((nnc_dtype)nnc_typeof(g, n->out + o)->dtype) || (moved && all);
        }
    }
    return NULL;
}

static double at(const nnc_rval *v, int64_t i)
{
    return v->f ? v->f[i] : (double)v->i[i];
}

/* Differences of numbers from the reference. */
typedef struct moments {
    double diff2, ref2, n; /* where both are finite */
    int64_t
        wrong; /* number of elements that are finite, infinite or NaN where the reference has another of these */
    int64_t at; /* the last of them */
    double got;
} moments;

static void add(moments *m, int64_t i, double got, double want)
{
    if (isfinite(got) && isfinite(want)) {
        m->diff2 += (got - want) * (got - want);
        m->ref2 += want * want;
        m->n++;
    } else if (got != want && !(isnan(got) && isnan(want))) {
        m->wrong++;
        m->at = i;
        m->got = got;
    }
}

/* By how much one draw of simulated rounding changes each output of g. Marks in open (by output and element; NULL: none) where it is
 * wrong. There a partial result leaves the range of its type (f16's largest number), or an operand a function's domain (asin beyond 1). */
static bool rounded(
    const nnc_graph *g, const api_data *d, nnc_rounding r, moments *m, bool **open, nnc_sink *sink)
{
    nnc_rval *v = nnc_calloc(d->n_out + 1, sizeof *v);
    bool ok = v && nnc_eval_rounded(g, (const void *const *)d->in, 1, &r, v, sink) == NNC_OK;
    for (uint32_t o = 0; ok && o < d->n_out; o++) {
        for (int64_t i = 0; i < nnc_type_numel(&v[o].type); i++) {
            const int64_t wrong = m[o].wrong;
            if (!open || !open[o][i])
                add(&m[o], i, at(&v[o], i), at(&d->want[o], i));
            if (m[o].wrong > wrong && open)
                open[o][i] = true;
        }
        nnc_rval_free(&v[o]);
    }
    nnc_free(v);
    return ok;
}

/* The inputs that the commands generate, so that what is judged here is what `nnc compare` computes. */
static bool inputs(api_data *d, const nnc_graph *g)
{
    *d = (api_data){.in = nnc_calloc(g->n_node + 1, sizeof *d->in), .n_out = g->n_output};
    for (uint32_t i = 0; d->in && i < g->n_node; i++) {
        if (g->node[i].op != OP_input)
            continue;
        const nnc_value *v = &g->value[g->node[i].out];
        nnc_index_use use = {0};
        void *p = nnc_malloc((size_t)nnc_type_bytes(&v->type));
        if (!p)
            return false;
        d->in[d->n_in++] = p;
        nnc_fill_input(v->name, &v->type, 0, p);
        if (!nnc_is_float((nnc_dtype)v->type.dtype) && nnc_indexes(g, g->node[i].out, &use))
            return false;
        for (int64_t k = 0; use.any && k < nnc_type_numel(&v->type); k++)
            nnc_set_i64((nnc_dtype)v->type.dtype, p, k,
                nnc_get_i64((nnc_dtype)v->type.dtype, p, k) % use.any);
    }
    return d->in != NULL;
}

/* Numbers beyond these sizes may overflow or underflow in f32 though the reference in f64 has them. */
static const double LARGEST = 1000, SMALLEST = 1e-30;
enum { MOST_ELEMENTS = 1 << 15, MOST_OPS = 20000000 };

/* All values of g: finite, of moderate size, and little changed by rounding. */
static const char *unstable(nnc_graph *all, nnc_sink *sink)
{
    api_data d = {0};
    const char *why = NULL;
    for (uint32_t r = 0; r < all->n_value; r++)
        if (nnc_def(all, r)->op != OP_param)
            nnc_output(all, r, NULL);
    moments *m = nnc_calloc(all->n_output + (size_t)1, sizeof *m);
    if (!m || !inputs(&d, all) || api_truth(&d, all, sink) != NNC_OK)
        why = "reference";
    for (uint32_t o = 0; !why && o < d.n_out; o++)
        for (int64_t i = 0; d.want[o].f && i < nnc_type_numel(&d.want[o].type); i++)
            if (!(fabs(d.want[o].f[i]) <= LARGEST) ||
                (d.want[o].f[i] != 0 && fabs(d.want[o].f[i]) < SMALLEST))
                why = "size";
    nnc_rounding coarse = {.operand_unit = 0x1p-8, .result_unit = 0x1p-8};
    for (coarse.seed = 7; !why && coarse.seed < 9; coarse.seed++)
        if (!rounded(all, &d, coarse, m, NULL, sink))
            why = "reference";
    for (uint32_t o = 0; !why && o < d.n_out; o++)
        if (m[o].wrong || !(m[o].diff2 <= 1e-2 * fmax(m[o].ref2, 1e-4 * m[o].n)))
            why = "conditioning";
    api_data_free(&d);
    nnc_free(m);
    return why;
}

/* decisions: may rounding turn any? In a training step, the masks of relu always are some. */
static bool fit(const nnc_graph *g, bool decisions, const char **why)
{
    int64_t ops, peak;
    nnc_arena a;
    nnc_sink *sink = nnc_sink_create();
    nnc_arena_init(&a, 0);
    nnc_eval_cost(g, &ops, &peak);
    *why = ops > MOST_OPS ? "work" : NULL;
    for (uint32_t r = 0; !*why && r < g->n_value; r++)
        if (nnc_type_numel(nnc_typeof(g, r)) > MOST_ELEMENTS)
            *why = "work";
    if (!*why && decisions)
        *why = decides(g, &a);
    nnc_graph *all = *why ? NULL : nnc_graph_clone(g, sink);
    if (all)
        *why = unstable(all, sink);
    nnc_graph_destroy(all);
    nnc_arena_deinit(&a);
    nnc_sink_destroy(sink);
    return !*why;
}

bool net_sound(const nnc_graph *g, const char **why)
{
    return fit(g, true, why);
}

bool net_fits_training(const nnc_graph *step, const char **why)
{
    return fit(step, false, why);
}

/* ---- through the library -------------------------------------------------------------------------------------------------- */

static nnc_graph *open_case(const net_case *c, nnc_text *why, nnc_sink *sink)
{
    nnc_open_options o = {.arg = c->arg, .n_arg = c->n_arg};
    nnc_graph *g = nnc_model_open(c->file, &o, sink);
    if (!g) {
        nnc_puts(why, "the model does not open");
        api_put_sink(why, sink);
    }
    return g;
}

/* The training step of g, whose new weights are outputs as all others. NULL: it has none, which the sink says, or *why. */
static nnc_graph *step_of(const net_case *c, const nnc_graph *g, nnc_text *why, nnc_sink *sink)
{
    nnc_training t;
    nnc_graph *step = NULL;
    (void)net_training(&c->flags, &t);
    nnc_status st = nnc_train_graph(g, &t, &step, sink);
    if (st && (st != NNC_E_MODEL || nnc_sink_cause(sink, NNC_OK) != NNC_E_MODEL)) {
        nnc_printf(why, "training graph: %s", nnc_status_name(st));
        api_put_sink(why, sink);
    }
    for (uint32_t i = 0; step && i < step->n_output; i++)
        step->output_state[i] = NNC_NONE;
    for (uint32_t i = 0; step && i < step->n_node; i++)
        step->node[i].state = step->node[i].accumulates = false;
    return step;
}

/* Element k of an output; NaN for an integer that differs, which no rounding explains. */
static double number_or_wrong(const nnc_type *t, const void *out, const nnc_rval *want, int64_t k)
{
    const nnc_dtype d = (nnc_dtype)t->dtype;
    return want->f                                ? nnc_get_f64(d, out, k)
           : nnc_get_i64(d, out, k) == want->i[k] ? at(want, k)
                                                  : NAN;
}

/* Is each output off by no more than rounding explains, and a few units in the last place? The draws may have met single elements with
 * little luck: 100 times their mean square m. Where outputs of one element are spread as a Gauss curve, one in 500 is beyond that after
 * three draws, one in 30 million after sixteen. (The F distribution with 1 and 3 or 16 degrees of freedom.) */
static bool is_explained(const nnc_graph *g, const api_data *d, const api_run *r, const moments *m,
    bool *const *open, nnc_text *why)
{
    const double unit = fmax(api_coarsest(g), 0x1p-53);
    for (uint32_t i = 0; i < d->n_out; i++) {
        const nnc_type *t = nnc_typeof(g, g->output[i]);
        const nnc_rval *want = &d->want[i];
        const double n = fmax(m[i].n, 1);
        moments x = {0};
        for (int64_t k = 0; k < nnc_type_numel(t); k++)
            if (!open[i][k])
                add(&x, k, number_or_wrong(t, r->out[i], want, k), at(want, k));
        const double square = x.diff2 / fmax(x.n, 1);
        if (!x.wrong && square <= 100 * m[i].diff2 / n + 16 * unit * unit * m[i].ref2 / n)
            continue;
        nnc_printf(why,
            "output %u (%s): %lld of another kind, element %lld is %.9g, not %.9g; mean square "
            "%.3g, rounding explains %.3g",
            (unsigned)i, g->output_name[i], (long long)x.wrong, (long long)x.at, x.got,
            at(want, x.at), square, m[i].diff2 / n);
        return false;
    }
    return true;
}

static bool near(const nnc_graph *g, const api_data *d, const api_run *r,
    const nnc_compile_options *o, nnc_text *why, nnc_sink *sink)
{
    static const uint64_t draws[] = {3, 16};
    nnc_rounding how = {.function_error = o->math == MATH_fast ? 0x1p-15 : 0};
    if (o->precision == NNC_PRECISION_f16 || o->precision == NNC_PRECISION_bf16)
        how.operand_unit = how.result_unit = o->precision == NNC_PRECISION_f16 ? 0x1p-11 : 0x1p-8;
    NNC_LOCAL(nnc_arena) a = {0};
    moments *m = ARENA_NEW(&a, moments, d->n_out + 1);
    bool **open = ARENA_NEW(&a, bool *, d->n_out + 1), ok = false, drawn = m && open;
    for (uint32_t i = 0; drawn && i < d->n_out; i++)
        drawn = (open[i] = ARENA_NEW(&a, bool, nnc_type_numel(&d->want[i].type) + 1)) != NULL;
    for (size_t k = 0; drawn && !ok && k < NNC_COUNT(draws); k++) {
        while (drawn && how.seed < draws[k]) {
            how.seed++;
            drawn = rounded(g, d, how, m, open, sink);
        }
        nnc_text_clear(why);
        ok = drawn && is_explained(g, d, r, m, open, why);
    }
    if (!drawn)
        nnc_puts(why, "the conditioning cannot be computed");
    return ok;
}

static bool same_file(const char *a, const char *b, nnc_text *why, nnc_sink *sink)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    bool ok = nnc_file_read(a, 0, &x, &n, sink) == NNC_OK &&
              nnc_file_read(b, 0, &y, &m, sink) == NNC_OK && n == m && !memcmp(x, y, n);
    if (!ok)
        nnc_printf(why, "%s and %s have other bytes", a, b);
    nnc_free(x);
    nnc_free(y);
    return ok;
}

/* Saved, and loaded again: the same numbers. A second compile with three jobs: the same file. */
static bool artifact(const net_case *c, nnc_env *e, const nnc_graph *g, nnc_compile_options o,
    const api_run *r, const api_data *d, nnc_text *why, nnc_sink *sink)
{
    char one[400], two[400];
    nnc_artifact *b = NULL, *l = NULL;
    api_run again = {0};
    snprintf(one, sizeof one, "%s/one.nnc", c->dir);
    snprintf(two, sizeof two, "%s/two.nnc", c->dir);
    o.jobs = 3;
    nnc_status st = nnc_artifact_save(r->a, one, false, sink);
    st = st ? st : nnc_compile(e, g, &o, &b, sink);
    st = st ? st : nnc_artifact_save(b, two, false, sink);
    st = st ? st : nnc_artifact_load(e, one, &l, sink);
    bool ok = !st;
    if (st) {
        nnc_printf(
            why, "an artifact is not written, made again or loaded: %s", nnc_status_name(st));
        api_put_sink(why, sink);
    }
    ok = ok && same_file(one, two, why, sink) && api_check_artifact(l, why, sink);
    if (ok && !net_gpu(&c->flags))
        ok = api_run_artifact(e, l, d, &again, why, sink);
    for (int i = 0; ok && !net_gpu(&c->flags) && i < again.n_out; i++)
        if (!api_same(nnc_typeof(g, g->output[i]), r->out[i], again.out[i])) {
            nnc_printf(why, "output %d of the loaded artifact has other bits", i);
            ok = false;
        }
    api_run_free(&again);
    nnc_artifact_destroy(b);
    nnc_artifact_destroy(l);
    return ok;
}

/* Not asm, which the commands print: its machine code is that of the object, generated a second time. */
static const char *const stages[] = {"graph", "kernels", "plan", "dot", "remarks", "cuda", "llvm"};

static bool emitted(
    nnc_env *e, const nnc_artifact *a, bool cuda, bool llvm, nnc_text *why, nnc_sink *sink)
{
    for (size_t i = 0; i < NNC_COUNT(stages); i++) {
        nnc_text t = {0};
        if (i >= 5 && !(i == 5 ? cuda : llvm))
            continue;
        nnc_status st = nnc_emit_text(e, a, stages[i], &t, sink);
        nnc_text_deinit(&t);
        if (st) {
            nnc_printf(why, "--emit=%s: %s", stages[i], nnc_status_name(st));
            api_put_sink(why, sink);
            return false;
        }
    }
    return true;
}

static bool library(const net_case *c, const nnc_graph *g, nnc_text *why, nnc_sink *sink)
{
    nnc_env_options eo;
    nnc_compile_options o;
    const char *skip[1];
    nnc_env *e = NULL;
    api_data d = {0};
    api_run r = {0};
    nnc_training t;
    const char *unsound;
    bool gpu = net_gpu(&c->flags), unfit = net_training(&c->flags, &t) && !fit(g, false, &unsound);
    net_options(&c->flags, &eo, &o, skip);
    if (o.level < 2 && nnc_precision_dtype(o.precision) != DT_f32)
        return true; /* refused: the commands say so */
    nnc_status st = nnc_env_create(&eo, &e, sink);
    bool ok = !st && inputs(&d, g) && (gpu || api_truth(&d, g, sink) == NNC_OK);
    if (!ok)
        nnc_puts(why, "no environment, or no reference");
    if (ok && gpu) {
        st = nnc_compile(e, g, &o, &r.a, sink);
        ok = !st && api_check_artifact(r.a, why, sink);
        if (st) {
            nnc_printf(why, "compile: %s", nnc_status_name(st));
            api_put_sink(why, sink);
        }
    } else if (ok) {
        ok = api_compile_and_run(e, g, &o, &d, &r, why, sink) &&
             (unfit || near(g, &d, &r, &o, why, sink));
    }
    ok = ok &&
         emitted(e, r.a, gpu, net_cpu(&c->flags) && !eo.no_llvm && nnc_plugin_exists("llvm"), why,
             sink) &&
         artifact(c, e, g, o, &r, &d, why, sink);
    if (!ok) {
        nnc_puts(why, "\n  in the library, with flags ");
        net_print_flags(&c->flags, why);
    }
    api_run_free(&r);
    api_data_free(&d);
    nnc_env_destroy(e);
    return ok;
}

/* ---- through the commands -------------------------------------------------------------------------------------------------- */

/* Groups of flags that a command takes, a letter each. g --mode, k training, c compiling, s planning, p debugging, t timing, q percentile,
 * e machine, x compare. n tolerance, f formats, v verbose, h all commands'. NULL: not a command of the program. */
static const struct {
    const char *action, *groups;
} commands[] = {
    {"numbers", NULL},
    {"run", "gkcspteqfh"},
    {"compare", "gkcsptexnfh"},
    {"verify", "gkcsneh"},
    {"explain", "gkcspefvh"},
    {"memory", "gkcspefh"},
    {"profile", "gkcsptefvh"},
    {"partition", "gkcspefvh"},
    {"show", "gkfh"},
    {"check", "h"},
    {"opt", "gkceph"},
};

enum { MAY_LACK = -1 }; /* ONNX has no operators for some ops of gradients */

static char group_of(int factor, int choice)
{
    switch (factor) {
    case NF_other: return net_other_group(choice);
    case NF_level:
    case NF_math:
    case NF_precision:
    case NF_skip: return 'c';
    case NF_streams:
    case NF_devices: return 's';
    case NF_format: return 'f';
    case NF_mode: return 'g';
    case NF_training: return 'k';
    default: return 'e';
    }
}

/* The exit code that docs and help promise. */
static int expected(const net_case *c, const char *action, const char *groups)
{
    const net_flags *f = &c->flags;
    bool gpu = net_gpu(f), half = f->at[NF_precision] >= 2,
         low = f->at[NF_level] == 1 || f->at[NF_level] == 2;
    bool machine = !strcmp(action, "llvm") || !strcmp(action, "asm"),
         cubin = !strcmp(action, "ptx") || !strcmp(action, "cubin");
    if (f->at[NF_mode] &&
        (!strcmp(action, "run") || !strcmp(action, "compare") || !strcmp(action, "profile")) &&
        !strncmp(net_choice(NF_other, f->at[NF_other]), "--io", 4))
        return 2; /* steps are timed without copies */
    if (!strcmp(action, "partition") &&
        (strchr(net_choice(NF_target, f->at[NF_target]), ',') ||
            (f->at[NF_mode] && !strncmp(net_choice(NF_training, f->at[NF_training]), "--acc", 5))))
        return 2; /* its devices are equal, and strategies divide the batches */
    if (c->no_step && strchr(groups, 'g'))
        return 3;
    if (strchr(groups, 'c') && half && low)
        return 2;
    if (!strcmp(action, "run") || !strcmp(action, "compare") || !strcmp(action, "verify") ||
        !strcmp(action, "profile"))
        return gpu ? 5 : 0;
    if (machine)
        return !net_cpu(f) ? 2 : f->at[NF_llvm] || !nnc_plugin_exists("llvm") ? 5 : 0;
    if (f->at[NF_mode] && !strcmp(action, "onnx"))
        return MAY_LACK;
    if (cubin || !strcmp(action, "cuda"))
        return !gpu ? 2 : cubin ? 5 : 0;
    return 0;
}

typedef struct line {
    const char *argv[40];
    char text[40][300];
    int n;
} line;

static void word(line *l, const char *fmt, ...) NNC_PRINTF(2, 3);
static void word(line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l->text[l->n], sizeof l->text[0], fmt, ap);
    va_end(ap);
    l->argv[l->n] = l->text[l->n];
    l->n++;
    l->argv[l->n] = NULL;
}

/* A gradient that cancels to 0 differs from float64's by any factor. A limit of one's own switches off the measure of its
 * conditioning, and says nothing about a step. */
static bool is_idle_tolerance(const net_flags *f, int factor)
{
    return factor == NF_other && f->at[NF_mode] &&
           !strncmp(net_choice(NF_other, f->at[NF_other]), "--tolerance", 11);
}

static void begin(
    line *l, const net_case *c, const char *command, const char *file, const char *groups)
{
    *l = (line){0};
    word(l, "nnc");
    word(l, "%s", command);
    word(l, "%s", file);
    for (int i = 0; i < c->n_arg && file == c->file; i++)
        word(l, "--set=%s=%s", c->arg[i].name, c->arg[i].value);
    for (int f = 0; f < NF_action; f++)
        if ((f != NF_training || c->flags.at[NF_mode]) && !is_idle_tolerance(&c->flags, f) &&
            strchr(groups, group_of(f, c->flags.at[f])) && *net_choice(f, c->flags.at[f]))
            word(l, "%s", net_choice(f, c->flags.at[f]));
}

static double number(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItem(o, key);
    return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

/* Does a report as JSON add up? The rows of a profile, idle time among them, are all streams' time. No device is busy for longer than an
 * iteration of its strategy takes. Times have six decimals. */
static bool adds_up(const char *command, const cJSON *j)
{
    const double digit = 1e-6;
    const cJSON *row, *device;
    if (!strcmp(command, "profile")) {
        double left = number(j, "wall_ms") * number(j, "streams"), slack = digit;
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(j, "rows"))
        {
            left -= number(row, "ms");
            slack += digit;
        }
        return fabs(left) <= slack;
    }
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(j, "strategies"))
        cJSON_ArrayForEach(device, cJSON_GetObjectItem(row, "devices"))
    {
        const double busy = number(device, "busy_ms"), idle = number(device, "idle_ms"),
                     all = number(row, "iteration_ms");
        if (idle < -digit || !(fabs(busy + idle - all) <= 2 * digit))
            return false;
    }
    return true;
}

/* Runs it and judges the exit code; for JSON also the syntax and sums of what was printed. Where 5 is expected of a stage of kernels, a
 * model without kernels has none to print. */
static bool perform(const net_case *c, const line *l, int want, bool json, nnc_text *why)
{
    nnc_text out = {0}, err = {0};
    int code = net_command(c->dir, l->argv, &out, &err);
    bool ok = code == want || (want == 5 && code == 0 && out.n == 0) ||
              (want == MAY_LACK && (code == 0 || code == 3));
    if (ok && json && code == 0) {
        cJSON *j = cJSON_Parse(nnc_text_str(&out));
        ok = j && adds_up(l->argv[1], j);
        cJSON_Delete(j);
    }
    if (!ok) {
        nnc_printf(why, "exit code %d, not %d, or no JSON that adds up:\n  ", code, want);
        for (int i = 0; i < l->n; i++)
            nnc_printf(why, "%s ", l->argv[i]);
        nnc_printf(why, "\n%s%.3000s", nnc_text_str(&err), nnc_text_str(&out));
    }
    nnc_text_deinit(&out);
    nnc_text_deinit(&err);
    return ok;
}

/* compile -o, then the commands that take an artifact. */
static bool typed_artifact(const net_case *c, int want, nnc_text *why)
{
    static const char *const then[] = {"explain", "memory", "run"};
    char file[400];
    line l;
    snprintf(file, sizeof file, "%s/typed.nnc", c->dir);
    begin(&l, c, "compile", c->file, "gkcspaeh");
    word(&l, "-o");
    word(&l, "%s", file);
    bool ok = perform(c, &l, want, false, why);
    for (size_t i = 0; ok && want == 0 && i < NNC_COUNT(then); i++) {
        bool run = i == NNC_COUNT(then) - 1;
        begin(&l, c, then[i], file, "");
        /* the machine that it was compiled for */
        word(&l, "%s", net_choice(NF_threads, c->flags.at[NF_threads]));
        if (c->flags.at[NF_target])
            word(&l, "%s", net_choice(NF_target, c->flags.at[NF_target]));
        if (run)
            word(&l, "--iterations=1");
        ok = perform(c, &l, run && net_gpu(&c->flags) ? 5 : 0, false, why);
    }
    return ok;
}

/* What opt prints is a model, as a check of it says. */
static bool typed_opt(const net_case *c, int want, nnc_text *why)
{
    char file[400];
    line l;
    snprintf(file, sizeof file, "%s/stdout", c->dir); /* net_command leaves it there */
    begin(&l, c, "opt", c->file, "gkceph");
    bool ok = perform(c, &l, want, false, why);
    char copy[400];
    snprintf(copy, sizeof copy, "%s/opt.txt", c->dir);
    ok = ok && (want || rename(file, copy) == 0);
    begin(&l, c, "check", copy, "");
    return ok && (want || perform(c, &l, 0, false, why));
}

static bool typed(const net_case *c, nnc_text *why)
{
    const char *action = net_choice(NF_action, c->flags.at[NF_action]);
    line l;
    for (size_t i = 0; i < NNC_COUNT(commands); i++)
        if (!strcmp(commands[i].action, action)) {
            if (!commands[i].groups)
                return true;
            int want = expected(c, action, commands[i].groups);
            if (!strcmp(action, "opt"))
                return typed_opt(c, want, why);
            begin(&l, c, action, c->file, commands[i].groups);
            if (strchr(commands[i].groups, 't')) {
                const char *other = net_choice(NF_other, c->flags.at[NF_other]);
                if (strcmp(other, "--duration=1") != 0)
                    word(&l, "--iterations=%d", !strcmp(action, "run") ? 1 : 2);
                if (strcmp(other, "--warmup=0") != 0)
                    word(&l, "--warmup=1");
                if (!strcmp(action, "profile"))
                    word(&l, "--active=2");
            }
            return perform(
                c, &l, want, strchr(commands[i].groups, 'f') && c->flags.at[NF_format] == 1, why);
        }
    int want = expected(c, action, "gc");
    if (!strcmp(action, "artifact"))
        return typed_artifact(c, want, why);
    begin(&l, c, "compile", c->file, "gkcspeh");
    if (!strcmp(action, "dump"))
        word(&l, "--dump-dir=%s/dump", c->dir);
    else
        word(&l, "--emit=%s", action);
    return perform(c, &l, want, !strcmp(action, "remarks"), why);
}

bool net_check_reports(const net_case *c, nnc_text *why)
{
    static const char *const asked[] = {"check", "show", "memory", "explain"};
    for (size_t i = 0; i < NNC_COUNT(asked); i++) {
        nnc_text out = {0}, err = {0};
        line l;
        begin(&l, c, asked[i], c->file, i < 2 ? "" : "cse");
        int code = net_command(c->dir, l.argv, &out, &err);
        bool ok = code == 0 || ((code == 3 || code == 4) && out.n + err.n > 0);
        if (!ok)
            nnc_printf(why, "exit code %d of nnc %s:\n%s", code, asked[i], nnc_text_str(&err));
        nnc_text_deinit(&out);
        nnc_text_deinit(&err);
        if (!ok || code)
            return ok;
    }
    return true;
}

bool net_check(const net_case *c, nnc_text *why)
{
    net_case with = *c;
    nnc_sink *sink = nnc_sink_create();
    const char *action = net_choice(NF_action, c->flags.at[NF_action]);
    nnc_graph *g = open_case(c, why, sink);
    bool ok = g != NULL;
    if (ok && c->flags.at[NF_mode]) {
        nnc_graph *step = step_of(c, g, why, sink);
        nnc_graph_destroy(g);
        g = step;
        with.no_step = !g;
        ok = !why->n;
    }
    ok = ok && (!g || strcmp(action, "numbers") || library(c, g, why, sink)) && typed(&with, why);
    nnc_graph_destroy(g);
    nnc_sink_destroy(sink);
    return ok;
}
