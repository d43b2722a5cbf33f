/* session/compile.c -- from a model to an artifact: open, passes, plan. */
#include "session/session.h"
#include "session/train.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

nnc_status nnc_read_open_options(
    const nnc_open_options *o, nnc_model_options *f, nnc_arena *a, nnc_sink *sink)
{
    nnc_set *set = ARENA_NEW(a, nnc_set, o->n_arg + 1);
    nnc_set_word *word = ARENA_NEW(a, nnc_set_word, o->n_arg + 1);
    nnc_shape *shape = ARENA_NEW(a, nnc_shape, o->n_shape + 1);
    nnc_shape *input = ARENA_NEW(a, nnc_shape, o->n_value + o->n_input + 1);
    NNC_NEED(set && word && shape && input, sink);
    *f = (nnc_model_options){.set = set,
        .word = word,
        .seed = o->seed,
        .trains = o->trains,
        .has_seed = o->has_seed,
        .classes = o->classes,
        .place = o->place,
        .weights = o->n_own ? "(memory)" : o->weights,
        .own = o->own,
        .own_type = o->own_type,
        .n_own = o->n_own,
        .rename = o->rename,
        .n_rename = o->n_rename,
        .onnx = {.shape = shape,
            .n_shape = o->n_shape,
            .input = input,
            .n_input = o->n_value + o->n_input,
            .coverage = o->coverage}};
    for (int i = 0; i < o->n_arg; i++) {
        char *end;
        errno = 0;
        long long v = strtoll(o->arg[i].value, &end, 10);
        if (*o->arg[i].value && !*end && !errno)
            set[f->n_set++] = (nnc_set){o->arg[i].name, v};
        else
            word[f->n_word++] = (nnc_set_word){o->arg[i].name, o->arg[i].value};
    }
    for (int i = 0; i < o->n_value + o->n_input; i++)
        input[i] = i < o->n_value ? o->value[i]
                                  : (nnc_shape){.name = o->input[i - o->n_value], .rank = -1};
    for (int i = 0; i < o->n_shape; i++)
        NNC_TRY(nnc_shape_parse(o->shape[i], &shape[i], a, sink));
    return NNC_OK;
}

nnc_status nnc_model_read(const char *name, const void *data, size_t size,
    const nnc_open_options *o, nnc_model **out, nnc_sink *sink)
{
    nnc_model_options f;
    NNC_LOCAL(nnc_arena) a = {0};
    *out = NULL;
    NNC_TRY(nnc_read_open_options(o ? o : &nnc_open_defaults, &f, &a, sink));
    f.onnx.held = data != NULL;
    NNC_OWNED(nnc_graph) *m =
        data ? nnc_model_parse(name, data, size, &f, sink) : nnc_model_load(name, &f, sink);
    nnc_train_options checked = nnc_train_defaults;
    if (!m)
        return nnc_sink_cause(sink, NNC_E_MODEL);
    NNC_TRY(nnc_train_read(m, &checked, &a, sink));
    *out = m;
    m = NULL;
    return NNC_OK;
}

nnc_model *nnc_model_open(const char *file, const nnc_open_options *o, nnc_sink *sink)
{
    nnc_model *m;
    return nnc_model_read(file, NULL, 0, o, &m, sink) ? NULL : m;
}

void nnc_model_close(nnc_model *m)
{
    nnc_graph_destroy(m);
}

/* Inputs and outputs of the model are row-major: a text graph with an output in another memory order gets a relayout. */
static nnc_status normalise(nnc_graph *g, nnc_sink *sink)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->op == OP_input && !nnc_type_is_row_major(nnc_typeof(g, n->out)))
            return nnc_fail(sink, NNC_E_MODEL, n->loc,
                "inputs are row-major; expected an input without {...}, and a relayout after it");
    }
    for (uint32_t i = 0; i < g->n_output; i++) {
        nnc_ref old = g->output[i];
        if (nnc_type_is_row_major(nnc_typeof(g, old)))
            continue;
        nnc_ref r = nnc_row_major(g, old);
        if (r == NNC_NONE)
            return g->status ? g->status : nnc_nomem(sink);
        for (uint32_t k = i; k < g->n_output; k++)
            if (g->output[k] == old)
                g->output[k] = r;
    }
    return NNC_OK;
}

/* tf32 with --precision=tf32 or --math=fast, which also affects contractions that f16 and bf16 leave in f32. */
static nnc_policy policy_of(const nnc_env *e, const nnc_compile_options *o)
{
    bool tf32 = o->precision == NNC_PRECISION_tf32 ||
                (o->math == MATH_fast && o->precision != NNC_PRECISION_f32);
    bool has_tf32 = false;
    for (int i = 0; i < e->n_target; i++)
        has_tf32 = has_tf32 || e->target[i].flops_tf32 > 0;
    return (nnc_policy){.math = o->math, .precision = o->precision, .tf32 = tf32 && has_tf32};
}

nnc_pass_options nnc_env_passes(const nnc_env *e, const nnc_compile_options *o)
{
    return (nnc_pass_options){
        .level = o->level,
        .policy = policy_of(e, o),
        .target = e->target,
        .n_target = e->n_target,
        .skip = o->skip,
        .n_skip = o->n_skip,
        .join_siblings = o->join_siblings,
        .memory_price = NNC_MEMORY_PRICE,
        .after = o->after_pass,
        .after_ctx = o->ctx,
    };
}

nnc_status nnc_compile_passes(nnc_env *e, const nnc_compile_options *o, const char *from,
    const char *until, nnc_artifact *a, nnc_sink *sink)
{
    nnc_env_settle(e);
    nnc_pass_options p = nnc_env_passes(e, o);
    p.from = from;
    p.until = until;
    p.memory_price = a->memory_price;
    p.segments = a->segments;
    return nnc_passes_run(&a->graph, &p, &a->remarks, sink);
}

/* The compiler of kernels for target i; known[]: of the targets before. */
static nnc_compiler compiler_of(
    nnc_env *e, const nnc_compiler *known, int i, char *version, nnc_sink *said)
{
    for (int k = 0; k < i; k++)
        if (!strcmp(e->target[k].name, e->target[i].name))
            return known[k];
    if (e->target[i].kind == NNC_T_cuda)
        return nnc_env_cuda_compiler(e, &e->target[i], version, said);
    return (nnc_compiler){e->has_emitter ? nnc_env_emitter : NULL, nnc_engine_llvm.version, 0};
}

static nnc_plan_options plan_options(const nnc_env *e, const nnc_compile_options *o)
{
    return (nnc_plan_options){
        .target = e->target,
        .n_target = e->n_target,
        .engine = e->engine,
        .n_engine = e->n_engine,
        .jobs = o->jobs > 0 ? o->jobs : nnc_cpu_count(),
        .streams = o->streams > 0 ? o->streams : 1,
        .ios = o->schedule == NNC_SCHEDULE_ios,
        .lanes = o->lanes,
        .devices = o->devices > e->n_target ? o->devices : e->n_target,
        .own_threads = e->own_threads,
        .policy = policy_of(e, o),
    };
}

nnc_status nnc_estimate_graph(nnc_env *e, const nnc_compile_options *o, const nnc_graph *g,
    nnc_work_memo *memo, int64_t *bytes, int64_t *ns, nnc_sink *sink)
{
    nnc_env_settle(e);
    const nnc_plan_options p = plan_options(e, o);
    return nnc_plan_estimate(g, &p, memo, bytes, ns, sink);
}

nnc_status nnc_plan_graph(
    nnc_env *e, const nnc_compile_options *o, bool code, nnc_artifact *a, nnc_sink *sink)
{
    nnc_kernel_remarker notes = {.a = a, .o = o};
    nnc_compiler compiler[NNC_MAX_DEVICES];
    char version[NNC_MAX_DEVICES][NNC_VERSION_BYTES];
    nnc_env_settle(e);
    nnc_plan_options p = plan_options(e, o);
    p.compiler = compiler;
    p.cache = e->cache;
    p.codegen_ns = &a->stats.codegen_ns;
    p.cache_hits = &a->stats.cache_hits;
    p.cache_misses = &a->stats.cache_misses;
    p.on_kernel = nnc_note_kernel;
    p.on_kernel_ctx = &notes;
    NNC_OWNED(nnc_sink) *said = nnc_sink_create();
    NNC_NEED(said, sink);
    for (int i = 0; i < e->n_target; i++) {
        compiler[i] = compiler_of(e, compiler, i, version[i], said);
        if (!code)
            compiler[i].emitter = NULL;
    }
    if (!code)
        p.cache = NULL;
    NNC_TRY(nnc_plan_make(a->graph, &p, &a->plan, sink));
    if (code && a->plan->n_kernel > 0)
        nnc_env_cuda_tell(e, compiler, said, sink);
    if (code)
        nnc_say_missing(e, a->plan, sink);
    return notes.oom ? nnc_nomem(sink) : NNC_OK;
}

nnc_status nnc_check_precision(const nnc_compile_options *o, nnc_sink *sink)
{
    if (nnc_precision_dtype(o->precision) == DT_f32 || o->level >= 2)
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_USAGE,
        "--precision=%s rounds what -O%d leaves as it is: it needs -O2 or -O3",
        nnc_precision_name(o->precision), o->level);
}

nnc_status nnc_compile_graph(
    nnc_env *e, const nnc_compile_options *o, bool code, nnc_artifact *a, nnc_sink *sink)
{
    NNC_TRY(nnc_compile_passes(e, o, NULL, NULL, a, sink));
    return nnc_plan_graph(e, o, code, a, sink);
}

nnc_status nnc_compile(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    nnc_artifact **out, nnc_sink *sink)
{
    return nnc_compile_edited(e, m, o, NULL, NULL, out, sink);
}

nnc_artifact *nnc_artifact_create(const nnc_compile_options *o)
{
    nnc_artifact *a = nnc_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    nnc_remarks_init(&a->remarks);
    pthread_mutex_init(&a->lock, NULL);
    a->handles = 1;
    a->memory_price = NNC_MEMORY_PRICE;
    a->options = nnc_compile_options_copy(o);
    a->shared = nnc_shared_create();
    if (a->options && a->shared)
        return a;
    nnc_artifact_destroy(a);
    return NULL;
}

static nnc_status name_machine(const nnc_env *e, nnc_artifact *a, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) cpu = {0};
    if (nnc_env_has_host(e))
        nnc_target_host_name(&cpu);
    a->machine = cpu.oom ? NULL : nnc_arena_strdup(&a->arena, nnc_text_str(&cpu));
    return a->machine ? NNC_OK : nnc_nomem(sink);
}

/* Splits a->graph where options say so, and runs the passes on it. */
static nnc_status run_passes(
    nnc_env *e, const nnc_compile_options *o, bool split, nnc_artifact *a, nnc_sink *sink)
{
    if (split)
        NNC_TRY(nnc_split_graph(o, false, &a->graph, NULL, &a->remarks, sink));
    return o->memory_budget ? nnc_fit_budget(e, o, a, sink)
                            : nnc_compile_passes(e, o, NULL, NULL, a, sink);
}

/* edit: a change between the passes and the plan, or NULL. code: kernels get machine code. */
static nnc_status compile_model(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    nnc_edit edit, void *ctx, bool code, nnc_artifact **out, nnc_sink *sink)
{
    *out = NULL;
    if (!o)
        o = &nnc_compile_defaults;
    NNC_TRY(nnc_check_precision(o, sink));
    if (o->devices > NNC_MAX_DEVICES)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--devices=%d: a plan has at most %d devices; nnc partition looks at more", o->devices,
            NNC_MAX_DEVICES);
    if (e->cluster && o->devices > e->cluster->n_device)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = e->cluster->file},
            "describes %d device%s, fewer than --devices=%d", e->cluster->n_device,
            e->cluster->n_device == 1 ? "" : "s", o->devices);
    NNC_OWNED(nnc_artifact) *a = nnc_artifact_create(o);
    NNC_NEED(a, sink);
    nnc_env_settle(e);
    a->with_llvm = nnc_env_compiles(e);
    int64_t t0 = nnc_now_ns();
    NNC_NEED(a->source = nnc_graph_clone(m, sink), sink);
    NNC_TRY(normalise(a->source, sink));
    NNC_TRY(name_machine(e, a, sink));
    NNC_NEED(a->graph = nnc_graph_clone(a->source, sink), sink);
    NNC_TRY(run_passes(e, o, true, a, sink));
    if (edit)
        NNC_TRY(edit(ctx, a->graph, sink));
    int64_t t1 = nnc_now_ns();
    NNC_TRY(nnc_plan_graph(e, o, code, a, sink));
    NNC_TRY(nnc_chunks_make(e, o, a, sink));
    int64_t t2 = nnc_now_ns();
    a->stats.passes_ns = t1 - t0;
    a->stats.plan_ns = t2 - t1 - a->stats.codegen_ns;
    a->stats.total_ns = t2 - t0;
    *out = a;
    a = NULL;
    return NNC_OK;
}

nnc_status nnc_plan_model(nnc_env *e, const nnc_model *m, const nnc_compile_options *o, bool split,
    nnc_artifact **out, nnc_sink *sink)
{
    nnc_artifact *a = *out = nnc_artifact_create(o);
    NNC_NEED(a, sink);
    NNC_NEED(a->source = nnc_graph_clone(m, sink), sink);
    NNC_NEED(a->graph = nnc_graph_clone(m, sink), sink);
    a->chunks = 1;
    NNC_TRY(run_passes(e, o, split, a, sink));
    return nnc_plan_graph(e, o, false, a, sink);
}

nnc_status nnc_compile_edited(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    nnc_edit edit, void *ctx, nnc_artifact **out, nnc_sink *sink)
{
    return compile_model(e, m, o, edit, ctx, true, out, sink);
}

nnc_status nnc_compile_plan(nnc_env *e, const nnc_model *m, const nnc_compile_options *o,
    nnc_artifact **out, nnc_sink *sink)
{
    return compile_model(e, m, o, NULL, NULL, false, out, sink);
}

const nnc_compile_stats *nnc_artifact_stats(const nnc_artifact *a)
{
    return &a->stats;
}

void nnc_artifact_work(const nnc_artifact *a, int64_t *flops, int64_t *bytes, int64_t *launches)
{
    nnc_run_work(a, SEC_main, flops, bytes, launches);
}

void nnc_artifact_step_work(
    const nnc_artifact *a, int64_t *flops, int64_t *bytes, int64_t *launches)
{
    nnc_run_work(a, SEC_step, flops, bytes, launches);
}

void nnc_run_work(
    const nnc_artifact *a, nnc_section last, int64_t *flops, int64_t *bytes, int64_t *launches)
{
    const nnc_plan *p = a->plan;
    int64_t f = 0, b = 0, l = 0;
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[last]; i++) {
        const nnc_cmd *c = &p->cmd[i];
        l += c->kind == CMD_kernel || c->kind == CMD_call || c->kind == CMD_copy ||
             c->kind == CMD_collective;
        f = nnc_add_sat(f, c->flops);
        b = nnc_add_sat(b, c->bytes);
    }
    if (flops)
        *flops = nnc_mul_sat(f, a->chunks);
    if (bytes)
        *bytes = nnc_mul_sat(b, a->chunks);
    if (launches)
        *launches = nnc_mul_sat(l, a->chunks);
}

const struct nnc_plan *nnc_artifact_plan(const nnc_artifact *a)
{
    return a->plan;
}

const struct nnc_remarks *nnc_artifact_remarks(const nnc_artifact *a)
{
    return &a->remarks;
}

const nnc_model *nnc_artifact_source(const nnc_artifact *a)
{
    return a->source;
}
