/* api/options.c -- options by name, as nnc.h offers them: one table a kind of options; each object owns its strings. */
#include "api/internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind {
    O_int, /* int, lo..hi */
    O_seed, /* uint64_t */
    O_real, /* double >= 0 */
    O_flag, /* bool: "1" or "0" */
    O_unset, /* bool, inverted */
    O_text, /* const char * */
    O_math, /* compile options' math_fast and math_exact */
    O_precision, /* nnc_precision */
    O_list, /* array of const char *, count at `count` */
    O_pairs, /* array of nnc_arg */
} kind;

typedef struct option {
    const char *name;
    kind kind;
    size_t at, count;
    int64_t lo, hi;
    bool none; /* 0 is stored as -1, "none": in the field 0 is the default */
} option;

#define AT(T, f) offsetof(struct nnc_##T##_options, f)
static const option env_rows[] = {
    {"threads", O_int, AT(env, threads), 0, 0, 1024},
    {"target", O_text, AT(env, target)},
    {"cache-dir", O_text, AT(env, cache_dir)},
    {"no-cache", O_flag, AT(env, no_cache)},
    {"tuning", O_text, AT(env, tuning)},
    {"tune", O_flag, AT(env, tune)},
    {"no-llvm", O_flag, AT(env, no_llvm)},
    {"no-onednn", O_flag, AT(env, no_onednn)},
};
static const option open_rows[] = {
    {"set", O_pairs, AT(open, arg), AT(open, n_arg)},
    {"seed", O_seed, AT(open, seed)},
    {"weights", O_text, AT(open, weights)},
};
#define COMPILE_ROWS(T, base) \
    {"O", O_int, (base) + AT(compile, level), 0, 0, 3}, {"math", O_math, base}, \
        {"precision", O_precision, (base) + AT(compile, precision)}, \
        {"skip", O_list, (base) + AT(compile, skip), (base) + AT(compile, n_skip)}, \
        {"streams", O_int, (base) + AT(compile, streams), 0, 1, 64}, \
        {"devices", O_int, (base) + AT(compile, devices), 0, 1, 64}, \
    { \
        "jobs", O_int, (base) + AT(compile, jobs), 0, 0, 1024 \
    }
static const option compile_rows[] = {COMPILE_ROWS(compile, (size_t)0)};
static const option compare_rows[] = {
    COMPILE_ROWS(compare, AT(compare, compile)),
    {"seed", O_seed, AT(compare, seed)},
    {"warmup", O_int, AT(compare, warmup), 0, 0, 1000000, true},
    {"iterations", O_int, AT(compare, iterations), 0, 0, 1000000000},
    {"duration", O_int, AT(compare, duration_ms), 0, 0, 86400000},
    {"no-steps", O_unset, AT(compare, steps)},
    {"no-reference", O_flag, AT(compare, no_reference)},
    {"tolerance", O_real, AT(compare, tolerance), .none = true},
    {"input", O_pairs, AT(compare, input), AT(compare, n_input)},
};

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct setting {
    const option *row;
    void *at;
    int *count;
    const char *value;
    nnc_arena *strings;
    nnc_sink *sink;
} setting;

static nnc_status wrong(const setting *s, const char *expected)
{
    return nnc_fail0(s->sink, NNC_E_USAGE, "option %s: `%s` is not valid; expected %s",
        s->row->name, s->value, expected);
}

static nnc_status set_int(const setting *s)
{
    char *end;
    errno = 0;
    const long long v = strtoll(s->value, &end, 10);
    if (!*s->value || *end || errno || v < s->row->lo || v > s->row->hi) {
        char range[64];
        snprintf(range, sizeof range, "an integer from %lld to %lld", (long long)s->row->lo,
            (long long)s->row->hi);
        return wrong(s, range);
    }
    *(int *)s->at = v == 0 && s->row->none ? -1 : (int)v;
    return NNC_OK;
}

static nnc_status set_seed(const setting *s)
{
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(s->value, &end, 10);
    if (!*s->value || *end || errno || *s->value == '-')
        return wrong(s, "an integer from 0 to 2^64 - 1");
    *(uint64_t *)s->at = v;
    return NNC_OK;
}

static nnc_status set_real(const setting *s)
{
    char *end;
    const double v = strtod(s->value, &end);
    if (!*s->value || *end || !(v >= 0))
        return wrong(s, "a number >= 0");
    *(double *)s->at = v == 0 && s->row->none ? -1 : v;
    return NNC_OK;
}

static nnc_status set_flag(const setting *s, bool inverted)
{
    const bool on = !strcmp(s->value, "1");
    if (!on && strcmp(s->value, "0") != 0)
        return wrong(s, "1 or 0");
    *(bool *)s->at = on != inverted;
    return NNC_OK;
}

static nnc_status set_text(const setting *s)
{
    const char *copy = nnc_arena_strdup(s->strings, s->value);
    if (!copy)
        return nnc_nomem(s->sink);
    *(const char **)s->at = copy;
    return NNC_OK;
}

static nnc_status set_math(const setting *s)
{
    nnc_compile_options *o = s->at;
    const bool exact = !strcmp(s->value, "exact"), fast = !strcmp(s->value, "fast");
    if (!exact && !fast && strcmp(s->value, "ulp2") != 0)
        return wrong(s, "exact, ulp2 or fast");
    o->math_exact = exact;
    o->math_fast = fast;
    return NNC_OK;
}

/* A copy of the array of *count elements at *old with one zeroed element more, which it returns; NULL: out of memory. */
static void *append(const setting *s, const void **old, size_t size)
{
    char *grown = nnc_arena_alloc(s->strings, (size_t)*s->count + 1, size);
    if (!grown)
        return NULL;
    if (*s->count)
        memcpy(grown, *old, (size_t)*s->count * size);
    *old = grown;
    return grown + (size_t)(*s->count)++ * size;
}

static nnc_status set_list(const setting *s)
{
    const char *copy = nnc_arena_strdup(s->strings, s->value);
    const char **slot = copy ? append(s, s->at, sizeof *slot) : NULL;
    if (!slot)
        return nnc_nomem(s->sink);
    *slot = copy;
    return NNC_OK;
}

static nnc_status set_pair(const setting *s)
{
    const char *eq = strchr(s->value, '=');
    if (!eq || eq == s->value)
        return wrong(s, "NAME=VALUE");
    const nnc_arg *old = *(const nnc_arg **)s->at;
    for (int i = 0; i < *s->count; i++)
        if (!strncmp(old[i].name, s->value, (size_t)(eq - s->value)) && !old[i].name[eq - s->value])
            return wrong(s, "each name once");
    const char *name = nnc_arena_strndup(s->strings, s->value, (size_t)(eq - s->value));
    const char *value = nnc_arena_strdup(s->strings, eq + 1);
    nnc_arg *slot = name && value ? append(s, s->at, sizeof *slot) : NULL;
    if (!slot)
        return nnc_nomem(s->sink);
    *slot = (nnc_arg){name, value};
    return NNC_OK;
}

static nnc_status set_value(const setting *s)
{
    switch (s->row->kind) {
    case O_int:
        return set_int(s);
    case O_seed:
        return set_seed(s);
    case O_real:
        return set_real(s);
    case O_flag:
    case O_unset:
        return set_flag(s, s->row->kind == O_unset);
    case O_text:
        return set_text(s);
    case O_math:
        return set_math(s);
    case O_precision:
        return nnc_precision_parse(s->value, s->at) ? NNC_OK : wrong(s, "f32, tf32, f16 or bf16");
    case O_list:
        return set_list(s);
    case O_pairs:
        return set_pair(s);
    }
    return NNC_E_BUG;
}

static nnc_status set_option(const option *rows, size_t n, void *o, nnc_arena *strings,
    const char *name, const char *value, nnc_sink *sink)
{
    const char *names[32];
    for (size_t i = 0; i < n; i++) {
        const option *r = &rows[i];
        names[i] = r->name;
        if (strcmp(r->name, name) != 0)
            continue;
        return set_value(&(setting){
            r, (char *)o + r->at, (int *)(void *)((char *)o + r->count), value, strings, sink});
    }
    const char *near = nnc_nearest(name, names, n);
    return nnc_fail0(sink, NNC_E_USAGE, "no option is named %s%s%s", name,
        near ? "; did you mean " : "", near ? near : "");
}

/* ---- the four kinds -------------------------------------------------------------------------- */

/* The options are the first member, so that their address is the object's. */
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
        nnc_arena_init(&h->strings, 0); \
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

const char *nnc_version(void)
{
    return NNC_VERSION;
}
