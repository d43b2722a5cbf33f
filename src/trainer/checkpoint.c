/* trainer/checkpoint.c -- checkpoints: everything that the next step depends on, in one file of tensors.
 *
 *     conv1.weight, ...         the weights and running statistics, by the names that --weights reads
 *     /train/state/NAME         the other states: moments of the optimizer, ... and those of copies on other devices
 *     /train/position           i64: step, epoch, steps of it that are done, batches in its sums, step of the last
 *                           epoch's report, bytes of the log, best epoch
 *     /train/sums               f64: loss, correct predictions and targets of the epoch so far; accuracy and loss of the best epoch
 *     /train/options            u8, text: what defines the training, a line for each setting
 *     /train/checksums          u8, text: a line "HASH NAME" for each tensor before it
 *
 * All else follows from the seed and the position: the order of samples, dropouts, learning rates. The file is replaced atomically. */
#include "session/session.h"
#include "session/train.h"
#include "strategy/strategy.h"
#include "trainer/state.h"
#include "tensors/tensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN "/train/" /* no weight begins with it */

enum { N_POSITION = 8, N_SUMS = 5 };

/* ---- what defines the training --------------------------------------------------------------------------------------------- */

/* The length of a training changes no step of it, unless the learning rate follows it. */
static bool is_length(const trainer *t, const char *name)
{
    return t->o->rate.schedule != NNC_LR_cosine &&
           (!strcmp(name, "--epochs") || !strcmp(name, "--steps"));
}

static void put_settings(const trainer *t, nnc_text *out)
{
    for (size_t i = 0; i < nnc_n_train_settings; i++) {
        const nnc_flag *f = &nnc_train_settings[i];
        if ((f->group != FLAGS_training && f->group != FLAGS_loop) ||
            f->value.kind == NNC_SET_FILE || is_length(t, f->value.name))
            continue;
        if (!t->data && !nnc_train_is_offered(f)) /* of the caller's data */
            continue;
        if (!strcmp(
                f->value.name, "--replicas")) /* "replicas" below, which --strategy=data has, too */
            continue;
        nnc_printf(out, "%s=", f->value.name);
        nnc_setting_put(&f->value, t->o, out);
        nnc_putc(out, '\n');
    }
}

/* The model as it was written, without the numbers of its weights. */
static nnc_status put_model(const trainer *t, nnc_text *out)
{
    NNC_OWNED(nnc_graph) *g = nnc_graph_clone(t->model, t->sink);
    NNC_NEED(g, t->sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        g->node[i].device = -1;
        if (g->node[i].op == OP_param)
            g->node[i].weight = NULL;
    }
    const nnc_hash128 h = nnc_graph_hash(g);
    nnc_printf(out, "model=%016llx%016llx\n", (unsigned long long)h.hi, (unsigned long long)h.lo);
    return NNC_OK;
}

/* The samples: how many, and those of the first batch. */
static nnc_status put_data(trainer *t, nnc_text *out)
{
    const void *batch[NNC_COUNT(t->in)];
    uint64_t h = 0;
    if (!t->data) { /* the caller has them */
        nnc_printf(out, "batch=%lld\n", (long long)(t->batch / t->micro));
        return NNC_OK;
    }
    trainer_begin(t, NNC_DATA_train, 1, 0);
    NNC_TRY(nnc_data_next(t->data, batch, t->sink));
    for (int i = 0; i < t->n_in; i++)
        h = nnc_hash64(batch[i], (size_t)(nnc_type_bytes(&t->in[i].type) / t->micro), h);
    nnc_printf(out, "samples=%lld\nbatch=%lld\ndata=%016llx\n",
        (long long)nnc_data_samples(t->data, NNC_DATA_train), (long long)(t->batch / t->micro),
        (unsigned long long)h);
    return NNC_OK;
}

nnc_status checkpoint_options(trainer *t)
{
    nnc_text *out = &t->options;
    NNC_LOCAL(nnc_text) compile = {0};
    nnc_json_writer w = {.out = &compile};
    nnc_compile_options one = t->o->compile;
    one.devices = 1; /* where layers are, and the order of micro-batches, change no bit */
    nnc_json_open(&w, NULL, '{');
    nnc_compile_options_put(&one, &w);
    nnc_json_close(&w, '}');
    put_settings(t, out);
    nnc_printf(out, "--seed=%llu\ncompiled with=%s\nreplicas=%d\n", (unsigned long long)t->o->seed,
        nnc_text_str(&compile), t->sharing.replicas);
    if (nnc_is_split(t->o->strategy) && t->o->compile.devices > 1) /* states are parts of weights */
        nnc_printf(out, "split=%s over %d devices\n", nnc_strategy_names[t->o->strategy],
            t->o->compile.devices / (t->o->replicas > 1 ? t->o->replicas : 1));
    else
        nnc_puts(out, "split=\n");
    if (t->sharing.zero) /* moments are parts of vectors */
        nnc_printf(out, "--zero=1 or 2 over %d devices\n", t->o->compile.devices);
    else
        nnc_puts(out, "--zero=\n");
    NNC_TRY(put_model(t, out));
    NNC_TRY(put_data(t, out));
    nnc_printf(out, "~--target=%s\n~--threads=%d\n", nnc_env_target(t->e), nnc_env_threads(t->e));
    return out->oom || compile.oom ? nnc_nomem(t->sink) : NNC_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------------------- */

typedef struct stored {
    const char **name;
    const nnc_type **type;
    int *state; /* of the session; -1: of `weight` or `own` */
    const nnc_weight **weight;
    const void **own;
    char **sum; /* where its checksum stands; NULL: it has none */
    int n;
    nnc_session *s;
    nnc_weight_files files;
    void *data;
} stored;

static nnc_status get(stored *x, int i, const void **out, nnc_sink *sink)
{
    *out = x->own[i] ? x->own[i] : x->data;
    if (x->own[i])
        return NNC_OK;
    if (x->state[i] >= 0)
        return nnc_session_state(x->s, x->state[i], x->data, sink);
    NNC_TRY(nnc_weight_read(
        x->weight[i], x->type[i], 0, nnc_type_numel(x->type[i]), x->data, &x->files, sink));
    return nnc_session_put_parts(x->s, x->name[i], x->data, sink);
}

enum { HASH_DIGITS = 16 };

static void put_hash(const void *data, const nnc_type *type, char to[HASH_DIGITS])
{
    char digits[HASH_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016llx",
        (unsigned long long)nnc_hash64(data, (size_t)nnc_type_bytes(type), 0));
    memcpy(to, digits, HASH_DIGITS);
}

static nnc_status give(void *ctx, int i, const void **out, nnc_sink *sink)
{
    stored *x = ctx;
    NNC_TRY(get(x, i, out, sink));
    if (x->sum[i])
        put_hash(*out, x->type[i], x->sum[i]);
    return NNC_OK;
}

static void add_tensor(stored *x, const char *name, const nnc_type *type, int state,
    const nnc_weight *w, const void *own)
{
    x->name[x->n] = name;
    x->type[x->n] = type;
    x->state[x->n] = state;
    x->weight[x->n] = w;
    x->own[x->n++] = own;
}

int trainer_state_named(const nnc_session *s, const char *name)
{
    for (int i = 0; i < nnc_session_states(s); i++)
        if (!strcmp(nnc_session_state_name(s, i), name))
            return i;
    return -1;
}

static const nnc_node *weight_named(const nnc_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && g->node[i].weight && g->node[i].weight->name &&
            !strcmp(g->node[i].weight->name, name))
            return &g->node[i];
    return NULL;
}

/* The model's weights, then the other states. */
static nnc_status add_states(const trainer *t, stored *x, nnc_arena *a)
{
    const nnc_graph *m = t->model;
    x->s = t->train.session;
    for (uint32_t i = 0; i < m->n_node; i++) {
        const nnc_node *n = &m->node[i];
        if (n->op == OP_param && n->weight && n->weight->name)
            add_tensor(x, n->weight->name, nnc_typeof(m, n->out),
                trainer_state_named(x->s, n->weight->name), n->weight, NULL);
    }
    for (int i = 0; i < nnc_session_states(x->s); i++) {
        const char *name = nnc_session_state_name(x->s, i);
        const nnc_node *n = weight_named(m, name);
        if ((n && trainer_state_named(x->s, name) == i) ||
            nan_is_sum(t, nnc_session_state_of(x->s, i)))
            continue; /* between steps nobody needs sums of gradients */
        const char *full = nnc_arena_printf(a, OWN "state/%s", name);
        NNC_NEED(full, t->sink);
        add_tensor(x, full, nnc_session_state_type(x->s, i), i, NULL, NULL);
    }
    return NNC_OK;
}

/* Tensors are read by name: a file that has one twice could not be read. */
static nnc_status check_names(const trainer *t, const stored *x, nnc_arena *a)
{
    const char **name = nnc_arena_memdup(a, x->name, ((size_t)x->n + 1) * sizeof *name);
    NNC_NEED(name, t->sink);
    qsort(name, (size_t)x->n, sizeof *name, nnc_by_text);
    for (int i = 1; i < x->n; i++)
        if (!strcmp(name[i - 1], name[i]))
            return nnc_fail(t->sink, NNC_E_MODEL, (nnc_loc){.file = t->o->checkpoint},
                "two states of the training are called %s, and a checkpoint has them by name: give "
                "each weight a name of its own",
                name[i]);
    return NNC_OK;
}

static nnc_status make_stored(const trainer *t, stored *x, nnc_arena *a)
{
    const int most = (int)t->model->n_node + nnc_session_states(t->train.session) + 4;
    NNC_NEED(ARENA_ARRAYS(a, most, x->name, x->type, x->state, x->weight, x->own, x->sum), t->sink);
    NNC_TRY(add_states(t, x, a));
    NNC_TRY(check_names(t, x, a));
    int64_t bytes = 1;
    for (int i = 0; i < x->n; i++)
        bytes = nnc_max64(bytes, nnc_type_bytes(x->type[i]));
    x->data = nnc_arena_alloc(a, 1, (size_t)bytes);
    NNC_NEED(x->data, t->sink);
    return NNC_OK;
}

nnc_status checkpoint_check(const trainer *t)
{
    NNC_LOCAL(nnc_arena) a = {0};
    stored x = {0};
    int64_t bytes = 0;
    int fd = -1;
    NNC_TRY(make_stored(t, &x, &a));
    for (int i = 0; i < x.n; i++)
        bytes = nnc_add_sat(bytes, nnc_type_bytes(x.type[i]));
    NNC_TRY(nnc_file_reserve(t->o->checkpoint, bytes, &fd, t->sink));
    if (fd >= 0)
        close(fd);
    return NNC_OK;
}

static nnc_type line_of(nnc_dtype d, int64_t n)
{
    return nnc_type_make(d, 1, &n);
}

/* Another process may have replaced it: then each of both trainings would destroy what the other needs. */
static nnc_status check_version(const trainer *t)
{
    const uint64_t now = nnc_file_version(t->o->checkpoint);
    return !now || now == t->checkpoint
               ? NNC_OK
               : nnc_fail(t->sink, NNC_E_IO, (nnc_loc){.file = t->o->checkpoint},
                     "another program has written it since: is it the checkpoint of two trainings? "
                     "Nothing was written");
}

/* Adds the text of the checksums, which are filled in as the tensors are written. */
static nnc_status add_sums(const trainer *t, stored *x, nnc_text *text, nnc_type *type)
{
    for (int i = 0; i < x->n; i++)
        nnc_printf(text, "%*s %s\n", HASH_DIGITS, "", x->name[i]);
    NNC_NEED(!text->oom, t->sink);
    char *at = text->s;
    for (int i = 0; i < x->n; i++) {
        x->sum[i] = at;
        at += HASH_DIGITS + strlen(x->name[i]) + 2;
    }
    *type = line_of(DT_u8, (int64_t)text->n);
    add_tensor(x, OWN "checksums", type, -1, NULL, text->s);
    return NNC_OK;
}

nnc_status checkpoint_write(trainer *t)
{
    NNC_LOCAL(nnc_text) sums_text = {0};
    nnc_type of_checksums;
    NNC_LOCAL(nnc_arena) a = {0};
    stored x = {0};
    const int64_t position[N_POSITION] = {t->step, t->epoch, t->at, t->train.batches, t->told,
        t->log_bytes, t->best_epoch, t->updates};
    const double sums[N_SUMS] = {
        t->train.loss, t->train.correct, t->train.counted, t->best_accuracy, t->best_loss};
    const nnc_type of_position = line_of(DT_i64, N_POSITION), of_sums = line_of(DT_f64, N_SUMS),
                   of_options = line_of(DT_u8, (int64_t)t->options.n);
    NNC_TRY(check_version(t));
    NNC_TRY(make_stored(t, &x, &a));
    add_tensor(&x, OWN "position", &of_position, -1, NULL, position);
    add_tensor(&x, OWN "sums", &of_sums, -1, NULL, sums);
    add_tensor(&x, OWN "options", &of_options, -1, NULL, nnc_text_str(&t->options));
    NNC_TRY(add_sums(t, &x, &sums_text, &of_checksums));
    const nnc_tensor_source s = {x.n, x.name, x.type, give, &x, .durable = true};
    nnc_status st = nnc_tensors_write(t->o->checkpoint, &s, t->sink);
    t->checkpoint = nnc_file_version(t->o->checkpoint);
    nnc_weight_files_deinit(&x.files);
    return st;
}

/* ---- reading ----------------------------------------------------------------------------------------------------------------- */

/* The value of a line "KEY=VALUE"; NULL: there is no such line. */
static const char *value_of(const char *lines, const char *key, size_t n_key, size_t *n)
{
    for (const char *p = lines; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (!strncmp(p, key, n_key) && p[n_key] == '=') {
            *n = strcspn(p + n_key + 1, "\n");
            return p + n_key + 1;
        }
    *n = 0;
    return NULL;
}

/* Appends a line for each setting in which `now` and `then` differ. machine: only settings of the machine, else only the rest. */
static void list_differences(const char *now, const char *then, bool machine, nnc_text *out)
{
    for (const char *p = now; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        const size_t n_key = strcspn(p, "="), n = strcspn(p + n_key + 1, "\n");
        size_t n_was;
        const char *is = p + n_key + 1, *was = value_of(then, p, n_key, &n_was);
        const bool same = n == n_was && (!n || !strncmp(is, was, n)); /* no line: none */
        if ((*p == '~') != machine || same)
            continue;
        const bool none = !n, was_none = !n_was;
        nnc_printf(out, "\n  %.*s: %.*s%s, the checkpoint has %.*s%s", (int)(n_key - machine),
            p + machine, (int)n, is, none ? "none" : "", (int)n_was, was ? was : "",
            was_none ? "none" : "");
    }
}

static nnc_status check_options(const trainer *t, const char *then)
{
    const nnc_loc loc = {.file = t->o->checkpoint};
    NNC_LOCAL(nnc_text) other = {0}, machine = {0};
    list_differences(nnc_text_str(&t->options), then, false, &other);
    list_differences(nnc_text_str(&t->options), then, true, &machine);
    NNC_NEED(!other.oom && !machine.oom, t->sink);
    if (other.n)
        return nnc_fail(t->sink, NNC_E_MODEL, loc,
            "is the checkpoint of another training: give the same settings, or another file:%s",
            nnc_text_str(&other));
    if (machine.n)
        nnc_warn(t->sink, loc,
            "was written with another target or number of threads, so that numbers may be rounded "
            "otherwise:%s",
            nnc_text_str(&machine));
    return NNC_OK;
}

static nnc_status read_own(const trainer *t, const nnc_tensors *f, const char *name, nnc_dtype d,
    int64_t n, void *to, nnc_sink *sink)
{
    const nnc_tensor_entry *e = nnc_tensors_find(f, name);
    const bool ok = e && !e->why && e->type.dtype == d && nnc_type_numel(&e->type) == n;
    return ok ? nnc_tensors_read(f, e, to, sink)
              : nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = t->o->checkpoint},
                    "is not a checkpoint of nnc train: %s is missing", name);
}

/* *out: the text of this name, which the caller frees. */
static nnc_status read_text(const trainer *t, const nnc_tensors *f, const char *name, char **out)
{
    const nnc_tensor_entry *e = nnc_tensors_find(f, name);
    const int64_t n = e && !e->why ? nnc_type_numel(&e->type) : 0;
    NNC_NEED(*out = nnc_calloc((size_t)n + 1, 1), t->sink);
    return read_own(t, f, name, DT_u8, n, *out, t->sink);
}

static nnc_status read_options(const trainer *t, const nnc_tensors *f)
{
    NNC_FREED char *text = NULL;
    NNC_TRY(read_text(t, f, OWN "options", &text));
    return check_options(t, text);
}

static nnc_status check_sum(
    const trainer *t, const nnc_tensors *f, const nnc_tensor_entry *e, const char *line)
{
    char is[HASH_DIGITS];
    if (e->why)
        return NNC_OK; /* reported where it is read */
    NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(&e->type) + 1);
    NNC_NEED(data, t->sink);
    NNC_TRY(nnc_tensors_read(f, e, data, t->sink));
    put_hash(data, &e->type, is);
    return !memcmp(is, line, HASH_DIGITS)
               ? NNC_OK
               : nnc_fail(t->sink, NNC_E_MODEL, (nnc_loc){.file = t->o->checkpoint},
                     "is damaged: %s does not have the bytes that were written", e->name);
}

/* Are the tensors those that were written? */
static nnc_status check_sums(const trainer *t, const nnc_tensors *f)
{
    NNC_FREED char *text = NULL;
    NNC_TRY(read_text(t, f, OWN "checksums", &text));
    int n = 0;
    for (char *p = text; *p; n++) {
        char *end = p + strcspn(p, "\n"), *name = p + HASH_DIGITS + 1;
        const bool more = *end != 0;
        *end = 0;
        const nnc_tensor_entry *e = end > name ? nnc_tensors_find(f, name) : NULL;
        if (!e)
            return nnc_fail(t->sink, NNC_E_MODEL, (nnc_loc){.file = t->o->checkpoint},
                "is damaged: %s is missing", end > name ? name : "a checksum");
        NNC_TRY(check_sum(t, f, e, p));
        p = end + more;
    }
    return n == nnc_tensors_count(f) - 1
               ? NNC_OK
               : nnc_fail(t->sink, NNC_E_MODEL, (nnc_loc){.file = t->o->checkpoint},
                     "is damaged: it has %d checksums of %d tensors", n, nnc_tensors_count(f) - 1);
}

/* Row-major data of the tensor for a state or a frozen weight; what does not fit is noted. */
static nnc_status read_tensor(const nnc_tensors *f, const char *name, const nnc_type *type,
    void *data, nnc_mismatch *m, nnc_sink *sink)
{
    const nnc_tensor_entry *e = nnc_tensors_find(f, name);
    if (!e)
        nnc_mismatch_missing(m, name, type, "");
    else if (e->why || !nnc_type_same_shape(&e->type, type) || e->type.dtype != type->dtype)
        nnc_mismatch_wrong(m, name, type, e, "");
    else
        return nnc_tensors_read(f, e, data, sink);
    return NNC_OK;
}

/* A frozen weight must be that of the checkpoint: it is no state, and comes from --weights or the seed. */
static nnc_status check_frozen(const trainer *t, stored *x, int i, const void *stored_data)
{
    const void *now;
    NNC_TRY(get(x, i, &now, t->sink));
    if (!memcmp(now, stored_data, (size_t)nnc_type_bytes(x->type[i])))
        return NNC_OK;
    return nnc_fail(t->sink, NNC_E_MODEL, (nnc_loc){.file = t->o->checkpoint},
        "the frozen weight %s has other numbers in the checkpoint: give the same --weights and "
        "--seed",
        x->name[i]);
}

static nnc_status read_states(
    const trainer *t, const nnc_tensors *f, stored *x, nnc_session *s, void *data, nnc_mismatch *m)
{
    for (int i = 0; i < x->n; i++) {
        const int before = m->missing + m->wrong;
        NNC_TRY(read_tensor(f, x->name[i], x->type[i], data, m, t->sink));
        if (m->missing + m->wrong > before)
            continue;
        if (x->state[i] >= 0)
            NNC_TRY(nnc_session_set_state(s, x->state[i], data, t->sink));
        else if (!nnc_session_has_parts(x->s, x->name[i])) /* else its parts are states */
            NNC_TRY(check_frozen(t, x, i, data));
    }
    return nnc_mismatch_report(m, t->o->checkpoint, "states", t->sink);
}

static nnc_status set_states(const trainer *t, const nnc_tensors *f, nnc_session *s)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(nnc_mismatch) m = {.missing = 0};
    stored x = {0};
    NNC_TRY(make_stored(t, &x, &a));
    int64_t bytes = 1;
    for (int i = 0; i < x.n; i++)
        bytes = nnc_max64(bytes, nnc_type_bytes(x.type[i]));
    void *data = nnc_arena_alloc(&a, 1, (size_t)bytes);
    NNC_NEED(data, t->sink);
    nnc_status st = read_states(t, f, &x, s, data, &m);
    nnc_weight_files_deinit(&x.files);
    return st;
}

static nnc_status read_all(trainer *t, const nnc_tensors *f, int64_t *log)
{
    int64_t position[N_POSITION] = {0};
    double sums[N_SUMS];
    NNC_TRY(read_options(t, f)); /* first: the checkpoint may be another training's */
    NNC_TRY(check_sums(t, f));
    NNC_TRY(read_own(t, f, OWN "position", DT_i64, N_POSITION, position, t->sink));
    NNC_TRY(read_own(t, f, OWN "sums", DT_f64, N_SUMS, sums, t->sink));
    bool ok = position[1] >= 1 && position[2] <= t->per_epoch && position[7] <= position[0];
    for (int i = 0; i < N_POSITION; i++)
        ok = ok && position[i] >= 0;
    if (!ok)
        return nnc_fail(t->sink, NNC_E_MODEL, (nnc_loc){.file = t->o->checkpoint},
            "is damaged: it has an impossible position");
    NNC_TRY(set_states(t, f, t->train.session));
    t->step = position[0];
    t->epoch = position[1];
    t->at = position[2];
    t->train.batches = position[3];
    t->told = position[4];
    *log = position[5];
    t->train.loss = sums[0];
    t->train.correct = sums[1];
    t->train.counted = sums[2];
    t->best_epoch = position[6];
    t->updates = position[7];
    t->best_accuracy = sums[3];
    t->best_loss = sums[4];
    return NNC_OK;
}

nnc_status checkpoint_read(trainer *t, int64_t *log)
{
    NNC_OWNED(nnc_tensors) *f = NULL;
    t->checkpoint = nnc_file_version(t->o->checkpoint);
    NNC_TRY(nnc_tensors_open(t->o->checkpoint, NULL, &f, t->sink));
    return read_all(t, f, log);
}
