/* session/tensors.c -- inputs from files of tensors, outputs and weights to them. */
#include "session/session.h"
#include "tensors/tensors.h"
#include "train/train.h"
#include <math.h>
#include <string.h>

static const char *numpy_name(nnc_dtype d)
{
    static const char *const name[DT__COUNT] = {[DT_f64] = "float64",
        [DT_f32] = "float32",
        [DT_f16] = "float16",
        [DT_bf16] = "bfloat16",
        [DT_i8] = "int8",
        [DT_i16] = "int16",
        [DT_i32] = "int32",
        [DT_i64] = "int64",
        [DT_u8] = "uint8",
        [DT_u16] = "uint16",
        [DT_u32] = "uint32",
        [DT_u64] = "uint64",
        [DT_bool] = "bool"};
    return name[d];
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The tensor of a file for `name`: the file's only one without a name, or the one of that name. */
static const nnc_tensor_entry *pick(const nnc_tensors *t, const char *name)
{
    bool unnamed = nnc_tensors_count(t) == 1 && !*nnc_tensors_at(t, 0)->name;
    return unnamed ? nnc_tensors_at(t, 0) : nnc_tensors_find(t, name);
}

/* Reads the tensor for input `name` to *data, or to new memory if NULL. If it does not fit, notes why; *data is NULL then. */
static nnc_status read_one(const nnc_tensors *t, const nnc_tensor_entry *e, const char *name,
    const char *where, const nnc_type *want, nnc_mismatch *m, void **data, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) more = {0};
    void *to = *data;
    *data = NULL;
    nnc_puts(&more, where);
    if (!e) {
        nnc_mismatch_missing(m, name, want, nnc_text_str(&more));
        return NNC_OK;
    }
    if (e->why || !nnc_type_same_shape(&e->type, want) || e->type.dtype != want->dtype) {
        if (!e->why && nnc_type_same_shape(&e->type, want))
            nnc_printf(&more, " (in NumPy: a.astype(\"%s\"))", numpy_name((nnc_dtype)want->dtype));
        nnc_mismatch_wrong(m, name, want, e, nnc_text_str(&more));
        return NNC_OK;
    }
    NNC_FREED void *made = to ? NULL : nnc_aligned_alloc(64, (size_t)e->size);
    if (!to && !made)
        return nnc_nomem_for(sink, "input %s", name);
    NNC_TRY(nnc_tensors_read(t, e, to ? to : made, sink));
    *data = to ? to : made;
    made = NULL;
    return NNC_OK;
}

/* FILE, or FILE:TENSOR: a tensor of another name. Returns FILE, in path[] where it is followed by one. */
static const char *split_file(const char *file, char path[PATH_MAX], const char **tensor)
{
    *tensor = NULL;
    for (const char *c = file; !nnc_file_exists(file) && (c = strchr(c, ':')) != NULL; c++)
        if (c - file < PATH_MAX) {
            snprintf(path, PATH_MAX, "%.*s", (int)(c - file), file);
            *tensor = c + 1;
            if (nnc_file_exists(path))
                break;
        }
    return *tensor ? path : file;
}

/* The tensor of a file for input `name` alone; NULL: none. */
static const nnc_tensor_entry *pick_own(const nnc_tensors *t, const char *tensor, const char *name)
{
    const nnc_tensor_entry *e = tensor ? nnc_tensors_find(t, tensor) : pick(t, name);
    return e || tensor || nnc_tensors_count(t) != 1 ? e : nnc_tensors_at(t, 0);
}

static nnc_status read_file(const char *file, const char *name, const nnc_type *want,
    nnc_mismatch *m, void **data, nnc_sink *sink)
{
    NNC_OWNED(nnc_tensors) *t = NULL;
    char path[PATH_MAX];
    const char *tensor;
    file = split_file(file, path, &tensor);
    NNC_TRY(nnc_tensors_open(file, want, &t, sink));
    const nnc_tensor_entry *e = pick_own(t, tensor, name);
    NNC_LOCAL(nnc_text) where = {0};
    nnc_printf(&where, ", in %s%s%s", file, tensor ? ":" : "", tensor ? tensor : "");
    return read_one(t, e, name, nnc_text_str(&where), want, m, data, sink);
}

nnc_status nnc_read_input(
    const char *file, const char *name, const nnc_type *want, void **data, nnc_sink *sink)
{
    NNC_LOCAL(nnc_mismatch) m = {.missing = 0};
    *data = NULL;
    NNC_TRY(read_file(file, name, want, &m, data, sink));
    return nnc_mismatch_report(&m, file, "input", sink);
}

static const char *file_of(const nnc_compare_options *o, const char *name)
{
    for (int k = 0; k < o->n_input; k++)
        if (!strcmp(o->input[k].name, name))
            return o->input[k].value;
    return NULL;
}

/* Tensors of the --inputs file that no input takes; without elements, they may be inputs that the graph does not have. */
static void note_extra(
    const nnc_artifact *a, const nnc_compare_options *o, const nnc_tensors *all, nnc_mismatch *m)
{
    for (int k = 0; k < nnc_tensors_count(all); k++) {
        const nnc_tensor_entry *e = nnc_tensors_at(all, k);
        bool taken = false;
        for (int i = 0; i < a->plan->n_input; i++)
            taken |= pick(all, a->plan->input_name[i]) == e && !file_of(o, a->plan->input_name[i]);
        if (!taken && e->size > 0)
            nnc_mismatch_extra(m, e->name, e, "");
    }
}

/* Numbers that a training step takes besides its samples: those of its first step. With a learning rate of 0 weights stay, so that
 * steps can be repeated. False: `name` is no such number. */
static bool step_number(const nnc_training *t, const char *name, float *v)
{
    const struct {
        const char *name;
        double v;
    } of[] = {{NNC_TRAIN_LR, 0}, {NNC_TRAIN_SCALE1, t ? 1 / (1 - t->beta1) : 0},
        {NNC_TRAIN_SCALE2, t ? 1 / sqrt(1 - t->beta2) : 0}};
    for (size_t i = 0; t && i < NNC_COUNT(of); i++)
        if (!strcmp(name, of[i].name)) {
            *v = (float)of[i].v;
            return true;
        }
    return false;
}

static nnc_status generate(const nnc_artifact *a, const nnc_compare_options *o, uint64_t seed,
    int i, void *data, nnc_sink *sink)
{
    const char *name = nnc_artifact_own_input(a, i);
    if (step_number(o->training, name, data))
        return NNC_OK;
    if (o->training && !strcmp(name, NNC_TRAIN_FIRST)) {
        *(bool *)data = true;
        return NNC_OK;
    }
    NNC_TRY(nnc_artifact_fill_input(a, i, seed, data, sink));
    const bool shares = o->training && o->training->loss == NNC_LOSS_bce;
    float *v = shares && !strcmp(name, NNC_TRAIN_TARGET) ? data : NULL;
    for (int64_t k = 0; v && k < nnc_type_numel(nnc_whole_input(a, i)); k++)
        v[k] = (v[k] + 1) / 2; /* targets of bce are in 0..1 */
    return NNC_OK;
}

/* Inputs that are made: for a session, one after the other, or for the caller, who keeps them. */
typedef struct inputs {
    const nnc_artifact *a;
    const nnc_compare_options *o;
    uint64_t seed;
    nnc_tensors *all; /* of --inputs; NULL: none */
    nnc_mismatch m;
    nnc_session *s; /* NULL: they are kept in `data` */
    void **data;
} inputs;

/* Makes input i at *data, or in new memory if NULL. If it does not fit that is noted, and *data is NULL. */
static nnc_status make_one(inputs *x, int i, void **data, nnc_sink *sink)
{
    const char *name = x->a->plan->input_name[i], *file = file_of(x->o, name);
    const nnc_type *t = nnc_whole_input(x->a, i);
    float number;
    const bool needed = !step_number(x->o->training, nnc_artifact_own_input(x->a, i), &number);
    if (file)
        return read_file(file, name, t, &x->m, data, sink);
    if (x->all && (needed || pick(x->all, name)))
        return read_one(x->all, pick(x->all, name), name, "", t, &x->m, data, sink);
    if (!*data)
        *data = nnc_aligned_alloc(64, (size_t)nnc_type_bytes(t));
    if (!*data)
        return nnc_nomem_for(sink, "input %s", name);
    return generate(x->a, x->o, x->seed, i, *data, sink);
}

static nnc_status set_one(inputs *x, int i, nnc_sink *sink)
{
    void *const own = nnc_session_input_memory(x->s, i), *data = own;
    nnc_status st = make_one(x, i, &data, sink);
    if (!st && data)
        st = nnc_session_input(x->s, i, data, sink);
    if (data != own)
        nnc_free(data);
    return st;
}

static nnc_status make_all(inputs *x, nnc_sink *sink)
{
    for (int i = 0; i < x->a->plan->n_input; i++)
        NNC_TRY(x->s ? set_one(x, i, sink) : make_one(x, i, &x->data[i], sink));
    if (x->all)
        note_extra(x->a, x->o, x->all, &x->m);
    return nnc_mismatch_report(&x->m, x->o->inputs, "inputs", sink);
}

static nnc_status open_and_make(inputs *x, nnc_sink *sink)
{
    const nnc_artifact *a = x->a;
    NNC_TRY(nnc_artifact_check_names(a, false, x->o->input, x->o->n_input, sink));
    if (x->o->inputs)
        NNC_TRY(nnc_tensors_open(
            x->o->inputs, a->plan->n_input == 1 ? nnc_whole_input(a, 0) : NULL, &x->all, sink));
    const nnc_status st = make_all(x, sink);
    nnc_tensors_close(x->all);
    nnc_mismatch_deinit(&x->m);
    return st;
}

/* *out: the file's tensors; NULL: it has no list, or can be read only once. */
static nnc_status open_list(const char *file, nnc_tensors **out, nnc_sink *sink)
{
    char c;
    const bool once = !strcmp(file, "-") || (nnc_file_exists(file) && !nnc_file_start(file, &c, 1));
    *out = NULL;
    return once || nnc_tensors_raw(file) ? NNC_OK : nnc_tensors_open(file, NULL, out, sink);
}

/* Appends the shape of input `name`, whose values are e. why: their file cannot be read. */
static nnc_status add_shape(nnc_shape *s, int *n, const char *name, const nnc_tensor_entry *e,
    const char *why, const char *file, nnc_arena *a, nnc_sink *sink)
{
    nnc_shape *v = &s[(*n)++];
    *v = (nnc_shape){.name = nnc_arena_strdup(a, name), .rank = -1, .file = file};
    NNC_NEED(v->name, sink);
    if (why)
        NNC_NEED(v->why = nnc_arena_strdup(a, why), sink);
    if (e && (!e->why || nnc_type_numel(&e->type) == 0)) {
        v->rank = e->type.rank;
        memcpy(v->dim, e->type.dim, sizeof v->dim);
    } else if (e) {
        NNC_NEED(v->why = nnc_arena_strdup(a, e->why), sink);
    }
    return NNC_OK;
}

/* Appends the shape of an input with a file of its own. */
static nnc_status add_own(nnc_shape *s, int *n, const nnc_arg *input, nnc_arena *a, nnc_sink *sink)
{
    NNC_OWNED(nnc_tensors) *t = NULL;
    char path[PATH_MAX];
    const char *tensor;
    nnc_tensor_entry empty = {0};
    if (nnc_npy_is_empty(input->value, &empty.type))
        return add_shape(s, n, input->name, &empty, NULL, input->value, a, sink);
    NNC_OWNED(nnc_sink) *quiet = nnc_sink_create();
    NNC_NEED(quiet, sink);
    const nnc_status failed = open_list(split_file(input->value, path, &tensor), &t, quiet);
    const char *why = failed && nnc_sink_at(quiet, 0) ? nnc_sink_at(quiet, 0)->message : NULL;
    return add_shape(
        s, n, input->name, t ? pick_own(t, tensor, input->name) : NULL, why, input->value, a, sink);
}

nnc_status nnc_given_inputs(
    const nnc_compare_options *o, nnc_arena *a, const nnc_shape **out, int *n, nnc_sink *sink)
{
    NNC_OWNED(nnc_tensors) *all = NULL;
    *n = 0;
    if (o->inputs)
        NNC_TRY(open_list(o->inputs, &all, sink));
    const int n_all = all ? nnc_tensors_count(all) : 0;
    nnc_shape *s = ARENA_NEW(a, nnc_shape, o->n_input + n_all + 1);
    *out = s;
    NNC_NEED(s, sink);
    for (int k = 0; k < o->n_input; k++)
        NNC_TRY(add_own(s, n, &o->input[k], a, sink));
    for (int k = 0; k < n_all; k++) {
        const nnc_tensor_entry *e = nnc_tensors_at(all, k);
        if (!file_of(o, e->name))
            NNC_TRY(add_shape(s, n, e->name, e, NULL, o->inputs, a, sink));
    }
    return NNC_OK;
}

nnc_status nnc_given_rows(
    const char *file, nnc_arena *a, const nnc_shape **out, int *n, nnc_sink *sink)
{
    const nnc_compare_options of = {.inputs = file};
    *out = NULL;
    *n = 0;
    if (!file || !nnc_tensors_named(file) || !nnc_file_exists(file))
        return NNC_OK;
    NNC_TRY(nnc_given_inputs(&of, a, out, n, sink));
    for (int i = 0; i < *n; i++)
        ((nnc_shape *)*out)[i].dim[0] = -1; /* in the arena */
    return NNC_OK;
}

nnc_status nnc_artifact_make_inputs(
    const nnc_artifact *a, const nnc_compare_options *o, uint64_t seed, void **data, nnc_sink *sink)
{
    inputs x = {.a = a, .o = o, .seed = seed, .data = data};
    memset(data, 0, (size_t)a->plan->n_input * sizeof *data);
    const nnc_status st = open_and_make(&x, sink);
    for (int i = 0; st && i < a->plan->n_input; i++) {
        nnc_free(data[i]);
        data[i] = NULL;
    }
    return st;
}

nnc_status nnc_session_make_inputs(
    nnc_session *s, const nnc_compare_options *o, uint64_t seed, nnc_sink *sink)
{
    inputs x = {.a = s->a, .o = o, .seed = seed, .s = s};
    return open_and_make(&x, sink);
}

nnc_status nnc_artifact_check_names(
    const nnc_artifact *a, bool outputs, const nnc_arg *arg, int n, nnc_sink *sink)
{
    const char *const *name = outputs ? a->plan->output_name : a->plan->input_name;
    const int n_name = outputs ? a->plan->n_output : a->plan->n_input;
    for (int k = 0; k < n; k++) {
        NNC_LOCAL(nnc_text) t = {0};
        /* an input without elements is not in the graph: no op reads it */
        bool known = !outputs && nnc_npy_is_empty(arg[k].value, NULL);
        for (uint32_t i = 0; outputs && i < a->graph->n_empty; i++)
            known |= !strcmp(a->graph->empty[i].name, arg[k].name);
        for (int i = 0; i < n_name; i++) {
            known |= !strcmp(name[i], arg[k].name);
            nnc_printf(&t, "%s%s", i ? ", " : "", name[i]);
        }
        if (!known)
            return nnc_fail0(sink, NNC_E_USAGE, "the model has no %s `%s`; it has %s",
                outputs ? "output" : "input", arg[k].name, nnc_text_str(&t));
    }
    return NNC_OK;
}

/* ---- outputs --------------------------------------------------------------------------------- */

nnc_status nnc_artifact_check_output(
    const nnc_artifact *a, const char *file, bool all, nnc_sink *sink)
{
    if (nnc_artifact_reads(a, file))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = file},
            "holds the model's weights: name another file for %s",
            all ? "the outputs" : "the output");
    NNC_TRY(
        nnc_tensors_check_name(file, all ? a->plan->n_output + (int)a->graph->n_empty : 1, sink));
    return nnc_file_can_write(file, sink);
}

nnc_status nnc_write_output(const char *file, const nnc_type *t, const void *data, nnc_sink *sink)
{
    return nnc_tensor_write(file, "output", t, data, sink);
}

/* Tensors made one at a time: in place, if the host can access that, otherwise in memory for the largest. */
typedef struct making {
    nnc_session *s;
    const nnc_graph *g;
    nnc_weight_files files;
    const uint32_t *node; /* of g, of each weight */
    const char **name;
    const nnc_type **type;
    int n;
    void *data; /* NULL: not needed so far */
} making;

static nnc_status make_room(making *m, const void **out, nnc_sink *sink)
{
    int64_t most = 1;
    for (int i = 0; i < m->n; i++)
        most = nnc_max64(most, nnc_type_bytes(m->type[i]));
    if (!m->data)
        m->data = nnc_aligned_alloc(64, (size_t)most);
    *out = m->data;
    return m->data ? NNC_OK : nnc_nomem_for(sink, "the largest tensor to write");
}

static nnc_status write_made(making *m, const char *file,
    nnc_status (*make)(void *ctx, int i, const void **out, nnc_sink *sink), nnc_sink *sink)
{
    const nnc_tensor_source s = {m->n, m->name, m->type, make, m};
    nnc_status st = nnc_tensors_write(file, &s, sink);
    nnc_free(m->data);
    return st;
}

static nnc_status make_output(void *ctx, int i, const void **out, nnc_sink *sink)
{
    making *m = ctx;
    *out = nnc_session_output_memory(m->s, i);
    if (*out)
        return NNC_OK;
    NNC_TRY(make_room(m, out, sink));
    return nnc_session_output(m->s, i, m->data, sink);
}

nnc_status nnc_session_write(nnc_session *s, const char *file, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const int n = nnc_session_outputs(s);
    making m = {.s = s,
        .n = n,
        .name = ARENA_NEW(&a, const char *, n + 1),
        .type = ARENA_NEW(&a, const nnc_type *, n + 1)};
    NNC_NEED(m.name && m.type, sink);
    for (int i = 0; i < n; i++) {
        m.name[i] = nnc_session_output_name(s, i);
        m.type[i] = nnc_session_output_type(s, i);
    }
    return write_made(&m, file, make_output, sink);
}

/* ---- weights --------------------------------------------------------------------------------- */

static nnc_status make_weight(void *ctx, int i, const void **out, nnc_sink *sink)
{
    making *m = ctx;
    NNC_TRY(make_room(m, out, sink));
    return nnc_weight_read(m->g->node[m->node[i]].weight, m->type[i], 0, nnc_type_numel(m->type[i]),
        m->data, &m->files, sink);
}

static int state_named(const nnc_session *s, const char *name)
{
    for (int i = 0; s && i < nnc_session_states(s); i++)
        if (!strcmp(nnc_session_state_name(s, i), name))
            return i;
    return -1;
}

/* Puts the elements of part `of` where they are in the whole weight. */
static void put_part(const nnc_weight_part *of, int64_t n, int size, const char *from, char *to)
{
    for (int64_t i = 0; i < n; i += of->run)
        memcpy(to + (of->first + i / of->run * of->stride) * size, from + i * size,
            (size_t)(of->run * size));
}

/* The state is a part of this weight. */
static const nnc_weight *part_of(const nnc_session *s, int state, const char *name)
{
    const nnc_weight *w = nnc_session_state_part_of(s, state);
    return w && w->name && !strcmp(w->name, name) ? w : NULL;
}

bool nnc_session_has_parts(const nnc_session *s, const char *name)
{
    for (int k = 0; k < nnc_session_states(s); k++)
        if (part_of(s, k, name))
            return true;
    return false;
}

nnc_status nnc_session_put_parts(nnc_session *s, const char *name, void *whole, nnc_sink *sink)
{
    for (int k = 0; k < nnc_session_states(s); k++) {
        const nnc_weight *w = part_of(s, k, name);
        const nnc_type *t = nnc_session_state_type(s, k);
        if (!w)
            continue;
        NNC_FREED char *part = nnc_malloc((size_t)nnc_type_bytes(t));
        NNC_NEED(part, sink);
        NNC_TRY(nnc_session_state(s, k, part, sink));
        put_part(&w->part, nnc_type_numel(t), nnc_dtype_size((nnc_dtype)t->dtype), part, whole);
    }
    return NNC_OK;
}

/* A weight whose parts several devices have: the parts that are states over what it was at first. */
static nnc_status make_of_parts(making *m, int i, const void **out, nnc_sink *sink)
{
    NNC_TRY(make_weight(m, i, out, sink));
    return m->s ? nnc_session_put_parts(m->s, m->name[i], m->data, sink) : NNC_OK;
}

static nnc_status make_current(void *ctx, int i, const void **out, nnc_sink *sink)
{
    making *m = ctx;
    const int state = state_named(m->s, m->name[i]);
    if (state < 0)
        return make_of_parts(m, i, out, sink);
    *out = nnc_session_state_memory(m->s, state);
    if (*out)
        return NNC_OK;
    NNC_TRY(make_room(m, out, sink));
    return nnc_session_state(m->s, state, m->data, sink);
}

nnc_status nnc_model_write_weights(const nnc_model *g, const char *file, nnc_sink *sink)
{
    return nnc_session_write_weights(NULL, g, file, sink);
}

nnc_status nnc_session_write_weights(
    nnc_session *session, const nnc_model *g, const char *file, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    uint32_t *node = ARENA_NEW(&a, uint32_t, g->n_node + 1);
    making m = {.s = session,
        .g = g,
        .name = ARENA_NEW(&a, const char *, g->n_node + 1),
        .type = ARENA_NEW(&a, const nnc_type *, g->n_node + 1),
        .node = node};
    NNC_NEED(m.name && m.type && node, sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (n->op != OP_param || !n->weight || !n->weight->name)
            continue;
        node[m.n] = i;
        m.name[m.n] = n->weight->name;
        m.type[m.n++] = nnc_typeof(g, n->out);
    }
    nnc_status st = write_made(&m, file, make_current, sink);
    nnc_weight_files_deinit(&m.files);
    return st;
}
