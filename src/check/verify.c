/* check/verify.c -- test folders of ONNX: model.onnx, and inputs with the outputs that they should give. */
#include "check/check.h"
#include "session/session.h"
#include "onnx/onnx.h"
#include <math.h>

enum { MAX_TENSORS = 256 };

typedef struct tensors {
    nnc_tensor at[MAX_TENSORS];
    int n;
} tensors;

static void tensors_deinit(tensors *t)
{
    for (int i = 0; i < t->n; i++)
        nnc_tensor_deinit(&t->at[i]);
}

/* Reads folder/test_data_set_N/KIND_0.pb and on. */
static nnc_status read_all(
    const char *folder, int set, const char *kind, tensors *out, nnc_arena *a, nnc_sink *sink)
{
    for (;; out->n++) {
        const char *file =
            nnc_arena_printf(a, "%s/test_data_set_%d/%s_%d.pb", folder, set, kind, out->n);
        NNC_NEED(file, sink);
        if (!nnc_file_exists(file))
            return NNC_OK;
        if (out->n == MAX_TENSORS)
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = file},
                "more than %d tensors are not read", MAX_TENSORS);
        NNC_TRY(nnc_onnx_read_tensor(file, &out->at[out->n], sink));
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool close_enough(double got, double want, double rtol, double atol)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want))
        return got == want;
    return fabs(got - want) <= atol + rtol * fabs(want);
}

/* Appends a line for output `name`; false: it differs. */
static bool compare(const char *name, const nnc_type *t, const void *got, const nnc_tensor *want,
    const nnc_verify_options *o, nnc_text *out)
{
    int64_t n = nnc_type_numel(t), bad = 0, first = -1;
    nnc_dtype d = (nnc_dtype)t->dtype;
    /* two units in the last place of bf16, as ONNX's own runner allows them */
    const double rtol = d == DT_bf16 ? fmax(o->rtol, 0x1p-6) : o->rtol;
    nnc_printf(out, "  %s ", name);
    nnc_put_type(out, t);
    if (t->dtype != want->type.dtype || !nnc_type_same_shape(t, &want->type)) {
        nnc_puts(out, ": differs, expected ");
        nnc_put_type(out, &want->type);
        nnc_putc(out, '\n');
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        if (!close_enough(nnc_get_f64(d, got, i), nnc_get_f64(d, want->data, i), rtol, o->atol))
            first = bad++ ? first : i;
    if (bad)
        nnc_printf(out, ": differs in %lld of %lld, first at %lld: %.9g, expected %.9g\n",
            (long long)bad, (long long)n, (long long)first, nnc_get_f64(d, got, first),
            nnc_get_f64(d, want->data, first));
    else
        nnc_puts(out, ": agrees\n");
    return !bad;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct run {
    nnc_env *e;
    const nnc_verify_options *o;
    const nnc_model *m;
    const void *input[MAX_TENSORS]; /* of the model's inputs that did not become constants */
    const tensors *want;
    nnc_text *out;
    nnc_sink *sink;
    bool agrees;
} run;

static nnc_status by_reference(run *r)
{
    nnc_rval v[MAX_TENSORS];
    const nnc_graph *g = r->m;
    NNC_TRY(nnc_eval(g, r->input, nnc_env_threads(r->e), v, r->sink));
    nnc_status st = NNC_OK;
    for (uint32_t k = 0; k < g->n_output; k++) {
        nnc_type t = nnc_type_make((nnc_dtype)v[k].type.dtype, v[k].type.rank, v[k].type.dim);
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(&t));
        if (!data)
            st = nnc_nomem(r->sink);
        if (data) {
            nnc_rval_store(&v[k], data);
            r->agrees &= compare(g->output_name[k], &t, data, &r->want->at[k], r->o, r->out);
        }
        nnc_rval_free(&v[k]);
    }
    return st;
}

static nnc_status run_session(run *r, nnc_session *s)
{
    for (int i = 0; i < nnc_session_inputs(s); i++)
        NNC_TRY(nnc_session_input(s, i, r->input[i], r->sink));
    NNC_TRY(nnc_session_run(s, r->sink));
    for (int k = 0; k < nnc_session_results(s); k++) {
        const nnc_type *t = nnc_session_output_type(s, k);
        NNC_FREED void *data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
        NNC_NEED(data, r->sink);
        NNC_TRY(nnc_session_output(s, k, data, r->sink));
        r->agrees &= compare(nnc_session_output_name(s, k), t, data, &r->want->at[k], r->o, r->out);
    }
    return NNC_OK;
}

static nnc_status by_plan(run *r)
{
    NNC_OWNED(nnc_artifact) *a = NULL;
    NNC_OWNED(nnc_session) *s = NULL;
    NNC_TRY(nnc_compile(r->e, r->m, &r->o->compile, &a, r->sink));
    NNC_TRY(nnc_session_create(r->e, a, &s, r->sink));
    return run_session(r, s);
}

/* A model's outputs without elements are left out. */
static void drop_empty(tensors *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->at[i].data)
            t->at[n++] = t->at[i];
    t->n = n;
}

/* given: inputs of the test that did not become constants. */
static nnc_status run_model(run *r, const char *file, int given)
{
    if (r->m->n_output != (uint32_t)r->want->n)
        return nnc_fail(r->sink, NNC_E_MODEL, (nnc_loc){.file = file},
            "the model has %u outputs, the test %d", r->m->n_output, r->want->n);
    int wanted = 0;
    for (uint32_t i = 0; i < r->m->n_node; i++)
        wanted += r->m->node[i].op == OP_input;
    if (wanted > given)
        return nnc_fail(r->sink, NNC_E_MODEL, (nnc_loc){.file = file},
            "the model has %d more inputs than the test", wanted - given);
    return r->o->by == NNC_BY_REFERENCE ? by_reference(r) : by_plan(r);
}

static nnc_status run_set(run *r, const char *folder, int set, nnc_arena *a)
{
    NNC_LOCAL(tensors) in = {.n = 0}, want = {.n = 0};
    bool bound[MAX_TENSORS] = {false};
    const char *file = nnc_arena_printf(a, "%s/model.onnx", folder);
    NNC_NEED(file, r->sink);
    NNC_TRY(read_all(folder, set, "input", &in, a, r->sink));
    NNC_TRY(read_all(folder, set, "output", &want, a, r->sink));
    drop_empty(&want);
    const nnc_onnx_options o = {.value = in.at, .n_value = in.n, .bound = bound};
    NNC_OWNED(nnc_graph) *g = nnc_onnx_load(file, &o, r->sink);
    if (!g)
        return nnc_sink_cause(r->sink, NNC_E_MODEL);
    r->m = g;
    r->want = &want;
    int given = 0;
    for (int i = 0; i < in.n; i++)
        if (!bound[i])
            r->input[given++] = in.at[i].data;
    nnc_status st = run_model(r, file, given);
    r->want = NULL;
    r->m = NULL;
    return st;
}

nnc_status nnc_verify_folder(nnc_env *e, const char *folder, const nnc_verify_options *o,
    nnc_text *out, bool *agrees, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    run r = {.e = e, .o = o, .out = out, .sink = sink, .agrees = true};
    *agrees = false;
    for (int set = 0;; set++) {
        const char *dir = nnc_arena_printf(&a, "%s/test_data_set_%d", folder, set);
        NNC_NEED(dir, sink);
        if (!nnc_file_exists(dir) && set > 0)
            break;
        if (!nnc_file_exists(dir))
            return nnc_fail(sink, NNC_E_IO, (nnc_loc){.file = dir},
                "does not exist: expected a test folder with model.onnx and test_data_set_0/");
        nnc_printf(out, "%s\n", dir);
        NNC_TRY(run_set(&r, folder, set, &a));
    }
    *agrees = r.agrees;
    return NNC_OK;
}
