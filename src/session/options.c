/* session/options.c -- options by name, as offered by nnc.h: one table per kind of options; each object owns its strings. */
#include "session/session.h"
#include <string.h>

#define AT(T, f) offsetof(struct nnc_##T##_options, f)
static const nnc_setting env_rows[] = {
    {"threads", NNC_SET_INT, AT(env, threads), 0, 0, 1024},
    {"target", NNC_SET_TEXT, AT(env, target)},
    {"cache-dir", NNC_SET_TEXT, AT(env, cache_dir)},
    {"no-cache", NNC_SET_BOOL, AT(env, no_cache)},
    {"tuning", NNC_SET_TEXT, AT(env, tuning)},
    {"tune", NNC_SET_BOOL, AT(env, tune)},
    {"no-llvm", NNC_SET_BOOL, AT(env, no_llvm)},
};
static const nnc_setting open_rows[] = {
    {"set", NNC_SET_PAIRS, AT(open, arg), AT(open, n_arg), .expected = "NAME=VALUE"},
    {"seed", NNC_SET_SEED, AT(open, seed)},
    {"weights", NNC_SET_TEXT, AT(open, weights)},
    {"rename", NNC_SET_PAIRS, AT(open, rename), AT(open, n_rename), .expected = "NAME=NAME"},
    {"shapes", NNC_SET_LIST, AT(open, shape), AT(open, n_shape), .expected = "NAME:1x3x224x224"},
    {"input", NNC_SET_LIST, AT(open, input), AT(open, n_input), .expected = "NAME"},
    {"train", NNC_SET_BOOL, AT(open, trains)},
    {"replace-head", NNC_SET_INT, AT(open, classes), 0, 1, 1000000},
};
#define COMPILE_ROWS(base) \
    {"O", NNC_SET_INT, (base) + AT(compile, level), 0, 0, 3}, \
        {"math", NNC_SET_CHOICE, (base) + AT(compile, math), .lo = MATH_exact, \
            .expected = NNC_MATH_WORDS}, \
        {"precision", NNC_SET_CHOICE, (base) + AT(compile, precision), .lo = NNC_PRECISION_f32, \
            .expected = NNC_PRECISION_WORDS}, \
        {"skip", NNC_SET_LIST, (base) + AT(compile, skip), (base) + AT(compile, n_skip), \
            .expected = "PASS"}, \
        {"memory-budget", NNC_SET_TEXT, (base) + AT(compile, memory_budget)}, \
        {"join-siblings", NNC_SET_BOOL, (base) + AT(compile, join_siblings)}, \
        {"streams", NNC_SET_INT, (base) + AT(compile, streams), 0, 1, 64}, \
        {"streams-by", NNC_SET_CHOICE, (base) + AT(compile, schedule), .lo = NNC_SCHEDULE_list, \
            .expected = NNC_SCHEDULE_WORDS}, \
        {"devices", NNC_SET_INT, (base) + AT(compile, devices), 0, 1, 64}, \
        {"strategy", NNC_SET_TEXT, (base) + AT(compile, strategy)}, \
        {"split", NNC_SET_TEXT, (base) + AT(compile, split)}, \
    { \
        "jobs", NNC_SET_INT, (base) + AT(compile, jobs), 0, 0, 1024 \
    }
static const nnc_setting compile_rows[] = {COMPILE_ROWS((size_t)0)};
static const nnc_setting compare_rows[] = {
    COMPILE_ROWS(AT(compare, compile)),
    {"seed", NNC_SET_SEED, AT(compare, seed)},
    {"warmup", NNC_SET_INT, AT(compare, warmup), 0, 0, 1000000, .none = true},
    {"iterations", NNC_SET_INT, AT(compare, iterations), 0, 0, 1000000000},
    {"duration", NNC_SET_INT, AT(compare, duration_ms), 0, 0, 86400000},
    {"no-steps", NNC_SET_UNSET, AT(compare, steps)},
    {"no-reference", NNC_SET_BOOL, AT(compare, no_reference)},
    {"tolerance", NNC_SET_REAL, AT(compare, tolerance), .none = true},
    {"input", NNC_SET_PAIRS, AT(compare, input), AT(compare, n_input), .expected = "NAME=FILE"},
    {"inputs", NNC_SET_TEXT, AT(compare, inputs)},
};

static nnc_status set_option(const nnc_setting *rows, size_t n, void *o, nnc_arena *strings,
    const char *name, const char *value, nnc_sink *sink)
{
    const char *names[32];
    for (size_t i = 0; i < n; i++) {
        names[i] = rows[i].name;
        if (!strcmp(rows[i].name, name))
            return nnc_setting_set(&rows[i], "option ", o, value, strings, sink);
    }
    const char *near = nnc_nearest(name, names, n);
    return nnc_fail0(sink, NNC_E_USAGE, "no option is named %s%s%s", name,
        near ? "; did you mean " : "", near ? near : "");
}

/* ---- the four kinds -------------------------------------------------------------------------- */

/* The options are the first member, so that both have the same address. */
#define OPTIONS(T, ...) \
    typedef struct T##_holder { \
        nnc_##T##_options o; \
        nnc_arena strings; \
    } T##_holder; \
    nnc_##T##_options *nnc_##T##_options_create(void) \
    { \
        T##_holder *h = nnc_calloc(1, sizeof *h); \
        if (!h) \
            return NULL; \
        h->o = (nnc_##T##_options){__VA_ARGS__}; \
        return &h->o; \
    } \
    nnc_status nnc_##T##_options_set( \
        nnc_##T##_options *o, const char *name, const char *value, nnc_sink *sink) \
    { \
        T##_holder *h = (T##_holder *)(void *)o; \
        return set_option(T##_rows, NNC_COUNT(T##_rows), &h->o, &h->strings, name, value, sink); \
    } \
    void nnc_##T##_options_destroy(nnc_##T##_options *o) \
    { \
        T##_holder *h = (T##_holder *)(void *)o; \
        if (h) \
            nnc_arena_deinit(&h->strings); \
        nnc_free(h); \
    }

#define COMPILE_DEFAULTS .level = 2, .streams = 1, .devices = 1
OPTIONS(env, .threads = 0)
OPTIONS(open, .seed = 0)
OPTIONS(compile, COMPILE_DEFAULTS)
OPTIONS(compare, .compile = {COMPILE_DEFAULTS}, .steps = true)

const nnc_env_options nnc_env_defaults = {.threads = 0};
const nnc_open_options nnc_open_defaults = {.seed = 0};
const nnc_compile_options nnc_compile_defaults = {COMPILE_DEFAULTS};
const nnc_compare_options nnc_compare_defaults = {.compile = {COMPILE_DEFAULTS}, .steps = true};

nnc_status nnc_open_options_tensor(nnc_open_options *o, const char *name, const char *dtype,
    int rank, const int64_t *dim, const void *data, nnc_sink *sink)
{
    nnc_arena *a = &((open_holder *)(void *)o)->strings;
    nnc_dtype d;
    const char *why = NULL;
    if (!nnc_dtype_parse(dtype, strlen(dtype), &d))
        return nnc_fail0(sink, NNC_E_USAGE, "weight %s: no dtype is named %s", name, dtype);
    if (rank < 0 || rank > NNC_MAX_RANK)
        return nnc_fail0(sink, NNC_E_USAGE, "weight %s has %d dimensions; at most %d are possible",
            name, rank, NNC_MAX_RANK);
    nnc_type *t = ARENA_NEW(a, nnc_type, 1);
    nnc_weight *w = ARENA_NEW(a, nnc_weight, 1);
    NNC_NEED(t && w && ARENA_ROOM(a, o->own, o->room_own, o->n_own + 1) &&
                 ARENA_ROOM(a, o->own_type, o->room_type, o->n_own + 1),
        sink);
    *t = nnc_type_make(d, rank, dim);
    if (!nnc_type_check(t, &why))
        return nnc_fail0(sink, NNC_E_USAGE, "weight %s: %s", name, why);
    const nnc_weight *last = o->n_own ? o->own[o->n_own - 1] : w;
    *w = (nnc_weight){.kind = NNC_W_file, /* of a file with all of them, one after the other */
        .name = nnc_arena_strdup(a, name),
        .data = data,
        .offset = o->n_own ? last->offset + last->size : 0,
        .size = nnc_type_bytes(t)};
    NNC_NEED(w->name, sink);
    o->own[o->n_own] = w;
    o->own_type[o->n_own++] = t;
    return NNC_OK;
}

/* ---- of an artifact -------------------------------------------------------------------------- */

/* The value of row i as text, where it is not the default and affects the result. */
static bool differs(const nnc_compile_options *o, size_t i, nnc_text *value, bool *oom)
{
    NNC_LOCAL(nnc_text) usual = {0};
    nnc_text_clear(value);
    nnc_setting_put(&compile_rows[i], o, value);
    nnc_setting_put(&compile_rows[i], &nnc_compile_defaults, &usual);
    *oom = *oom || value->oom || usual.oom;
    return !*oom && value->n && strcmp(compile_rows[i].name, "jobs") != 0 &&
           strcmp(nnc_text_str(value), nnc_text_str(&usual)) != 0;
}

nnc_compile_options *nnc_compile_options_copy(const nnc_compile_options *o)
{
    NNC_LOCAL(nnc_text) value = {0};
    nnc_compile_options *copy = nnc_compile_options_create();
    bool oom = !copy;
    for (size_t i = 0; !oom && i < NNC_COUNT(compile_rows); i++)
        if (differs(o, i, &value, &oom) &&
            nnc_compile_options_set(copy, compile_rows[i].name, nnc_text_str(&value), NULL))
            oom = true;
    if (!oom)
        return copy;
    nnc_compile_options_destroy(copy);
    return NULL;
}

void nnc_compile_options_put(const nnc_compile_options *o, nnc_json_writer *w)
{
    NNC_LOCAL(nnc_text) value = {0};
    bool oom = false;
    for (size_t i = 0; i < NNC_COUNT(compile_rows); i++)
        if (differs(o, i, &value, &oom))
            NNC_JSON(w, J_STRING(compile_rows[i].name, nnc_text_str(&value)));
    w->out->oom |= oom;
}

const nnc_compile_options *nnc_artifact_options(const nnc_artifact *a)
{
    return a->options;
}

const char *nnc_version(void)
{
    return NNC_VERSION;
}
