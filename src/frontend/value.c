/* frontend/value.c -- reads JSON values as numbers, words, lists, types and shapes; evaluates expressions and substitutes ${...}.
 * Errors state the location, what was found and what was expected. */
#include "frontend/internal.h"
#include <math.h>
#include <string.h>

/* After an error the graph's builders do nothing, so that builders of layers need not check each call. */
nnc_status fe_stop(fe *f, nnc_status st)
{
    f->status = st;
    if (f->g && !f->g->status)
        f->g->status = st;
    return st;
}

nnc_status fe_fail_at(fe *f, const nnc_item *item, bool key, const char *path, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *msg = nnc_arena_vprintf(&f->a, fmt, ap);
    va_end(ap);
    if (!msg)
        return fe_stop(f, nnc_nomem(f->sink));
    nnc_loc loc = nnc_json_loc(&f->j, item, key);
    loc.path = path && *path ? path : NULL;
    return fe_stop(f, nnc_fail(f->sink, NNC_E_MODEL, loc, "%s", msg));
}

void fe_warn_once(fe *f, nnc_loc loc, const char *fmt, ...)
{
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < nnc_sink_count(f->sink); i++) {
        const nnc_diag *d = nnc_sink_at(f->sink, i);
        if (d->loc.line == loc.line && d->loc.col == loc.col && d->loc.file &&
            !strcmp(d->loc.file, f->file) && !strcmp(d->message, msg)) /* of one of several files */
            return;
    }
    nnc_warn(f->sink, loc, "%s", msg);
}

nnc_ref fe_nomem(fe *f)
{
    if (!f->status)
        fe_stop(f, nnc_nomem(f->sink));
    return NNC_NONE;
}

const char *fe_hint(fe *f, const char *word, const char *const *names, size_t n)
{
    const char *near = nnc_nearest(word, names, n);
    const char *s = near ? nnc_arena_printf(&f->a, "; did you mean `%s`?", near) : "";
    return s ? s : "";
}

const char *fe_kind_name(const nnc_item *v)
{
    static const char *const name[] = {
        "null", "true or false", "a number", "a string", "a list", "an object"};
    return name[v->kind];
}

/* Reports an error inside a string at the token's column, which is exact if the string has no escapes. */
static bool expr_fail(
    fe *f, const nnc_item *item, const char *path, const char *what, int at, const char *why)
{
    nnc_loc loc = nnc_json_loc(&f->j, item, false);
    if (loc.line)
        loc.col += 1 + at;
    loc.path = path && *path ? path : NULL;
    fe_stop(f, nnc_fail(f->sink, NNC_E_MODEL, loc, "%s: in \"%.80s\": %s", what, item->text, why));
    return false;
}

bool fe_eval(
    fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, fe_val *out)
{
    fe_expr_error err;
    if (nnc_is_bool(item)) {
        *out = (fe_val){.i = item->number != 0};
        return true;
    }
    if (nnc_is_number(item)) {
        double v = item->number;
        if (v != floor(v) || fabs(v) >= 0x1p53)
            return FE_FALSE_AT(f, item, path, "%s: expected a whole number, found %g", what, v);
        *out = (fe_val){.i = (int64_t)v};
        return true;
    }
    if (!nnc_is_string(item))
        return FE_FALSE_AT(f, item, path,
            "%s: expected a whole number or an expression such as \"64*width\", found %s", what,
            fe_kind_name(item));
    if (!fe_expr(item->text, strlen(item->text), env, out, &err))
        return expr_fail(f, item, path, what, err.at, err.text);
    return true;
}

bool fe_eval_arg(
    fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, fe_val *out)
{
    double v = nnc_is_number(item) ? item->number : 0;
    if (v == floor(v) && fabs(v) < 0x1p53)
        return fe_eval(f, item, path, env, what, out);
    NNC_LOCAL(nnc_text) t = {0};
    nnc_put_double(&t, v);
    const char *word = t.oom ? NULL : nnc_arena_strdup(&f->a, nnc_text_str(&t));
    *out = (fe_val){.is_word = true, .word = word, .n = (int)t.n};
    return word || fe_oom(f);
}

bool fe_read_int(fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what,
    int64_t lo, int64_t hi, int64_t *out)
{
    fe_val v;
    if (nnc_is_bool(item))
        return FE_FALSE_AT(f, item, path, "%s: expected a whole number, found %s", what,
            item->number != 0 ? "true" : "false");
    if (!fe_eval(f, item, path, env, what, &v))
        return false;
    if (v.is_word)
        return FE_FALSE_AT(f, item, path, "%s: expected a whole number, found the word '%.*s'",
            what, v.n > 60 ? 60 : v.n, v.word);
    const char *is = nnc_is_string(item) ? " is" : "";
    const char *text = nnc_is_string(item) ? nnc_arena_printf(&f->a, "\"%.80s\"", item->text) : "";
    if (!text)
        return fe_oom(f);
    if (v.i < lo || v.i > hi) {
        if (hi == INT64_MAX || v.i < lo)
            fe_fail_at(f, item, false, path, "%s: %s%s%s%lld: expected at least %lld", what, text,
                is, *is ? " " : "", (long long)v.i, (long long)lo);
        else
            fe_fail_at(f, item, false, path, "%s: %s%s%s%lld: expected at most %lld", what, text,
                is, *is ? " " : "", (long long)v.i, (long long)hi);
        return false;
    }
    *out = v.i;
    return true;
}

bool fe_read_ints(fe *f, const nnc_item *item, const char *path, const fe_env *env,
    const char *what, int64_t lo, int64_t hi, int max, int *n, int64_t *out)
{
    *n = 0;
    if (!nnc_is_list(item)) {
        *n = 1;
        return fe_read_int(f, item, path, env, what, lo, hi, out);
    }
    for (const nnc_item *e = item->child; e; e = e->next) {
        if (*n == max)
            return FE_FALSE_AT(
                f, e, path, "%s: expected at most %d number%s", what, max, max == 1 ? "" : "s");
        if (!fe_read_int(f, e, path, env, what, lo, hi, &out[*n]))
            return false;
        ++*n;
    }
    return true;
}

bool fe_read_word(fe *f, const nnc_item *item, const char *path, const fe_env *env,
    const char *what, const char **out)
{
    if (!nnc_is_string(item))
        return FE_FALSE_AT(
            f, item, path, "%s: expected a string, found %s", what, fe_kind_name(item));
    const char *s = item->text, *dollar = strstr(s, "${");
    if (!dollar) {
        *out = s;
        return true;
    }
    NNC_LOCAL(nnc_text) t = {0};
    for (; dollar; dollar = strstr(s, "${")) {
        fe_val v;
        fe_expr_error err;
        const char *close = strchr(dollar, '}');
        int at = (int)(dollar - item->text);
        nnc_putn(&t, s, (size_t)(dollar - s));
        if (!close)
            return expr_fail(f, item, path, what, at, "${ has no closing }");
        if (!fe_expr(dollar + 2, (size_t)(close - dollar - 2), env, &v, &err))
            return expr_fail(f, item, path, what, at + 2 + err.at, err.text);
        if (v.is_word)
            nnc_putn(&t, v.word, (size_t)v.n);
        else
            nnc_printf(&t, "%lld", (long long)v.i);
        s = close + 1;
        if (t.n > 65536)
            return expr_fail(f, item, path, what, at, "grows beyond 65536 characters");
    }
    nnc_puts(&t, s);
    *out = t.oom ? NULL : nnc_arena_strdup(&f->a, nnc_text_str(&t));
    return *out || fe_oom(f);
}

/* Names of a dtype in other frameworks. */
static const char *dtype_elsewhere(const char *w)
{
    static const char *const names[][2] = {{"double", "f64"}, {"float", "f32"}, {"half", "f16"},
        {"float64", "f64"}, {"float32", "f32"}, {"float16", "f16"}, {"bfloat16", "bf16"},
        {"fp64", "f64"}, {"fp32", "f32"}, {"fp16", "f16"}, {"int8", "i8"}, {"int16", "i16"},
        {"int32", "i32"}, {"int", "i32"}, {"int64", "i64"}, {"long", "i64"}, {"uint8", "u8"},
        {"byte", "u8"}, {"uint16", "u16"}, {"uint32", "u32"}, {"uint64", "u64"},
        {"boolean", "bool"}};
    for (size_t i = 0; i < NNC_COUNT(names); i++)
        if (!strcmp(w, names[i][0]))
            return names[i][1];
    return NULL;
}

bool fe_read_dtype(fe *f, const nnc_item *item, const char *path, const fe_env *env, nnc_dtype *out)
{
    const char *w;
    const char *names[DT__COUNT];
    if (!fe_read_word(f, item, path, env, "dtype", &w))
        return false;
    if (nnc_dtype_parse(w, strlen(w), out))
        return true;
    NNC_LOCAL(nnc_text) t = {0};
    for (int i = 0; i < DT__COUNT; i++) {
        names[i] = nnc_dtype_name((nnc_dtype)i);
        nnc_printf(&t, "%s%s", i ? " " : "", names[i]);
    }
    const char *near = dtype_elsewhere(w);
    if (!near)
        near = nnc_nearest(w, names, DT__COUNT);
    fe_fail_at(f, item, false, path, "unknown dtype `%.60s`%s%s%s (there are: %s)", w,
        near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "", nnc_text_str(&t));
    return false;
}

bool fe_read_shape(
    fe *f, const nnc_item *item, const char *path, const fe_env *env, nnc_dtype d, nnc_type *out)
{
    int64_t dim[NNC_MAX_RANK];
    int n;
    const char *why;
    if (!nnc_is_list(item))
        return FE_FALSE_AT(f, item, path,
            "shape: expected a list of extents such as [\"batch\", 3, 224, 224], found %s",
            fe_kind_name(item));
    if (!fe_read_ints(f, item, path, env, "shape", 1, FE_MAX_DIM, NNC_MAX_RANK, &n, dim))
        return false;
    *out = nnc_type_make(d, n, dim);
    if (!nnc_type_check(out, &why))
        return FE_FALSE_AT(f, item, path, "shape: %s", why);
    return true;
}

/* Names are used in paths, weight files and `in`: letters, digits, _ . - but not ':' or '/'. */
bool fe_name_ok(fe *f, const nnc_item *item, const char *path, const char *name)
{
    size_t n = strlen(name);
    const char *bad =
        name + strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    if (n == 0)
        return FE_FALSE_AT(f, item, path, "a name must not be empty");
    if (n > FE_MAX_NAME)
        return FE_FALSE_AT(
            f, item, path, "a name has at most %d characters, this one %zu", FE_MAX_NAME, n);
    if (*bad)
        return FE_FALSE_AT(f, item, path,
            "name `%s` holds `%c`: letters, digits, _ . and - may stand in names", name,
            (unsigned char)*bad < 0x20 || (unsigned char)*bad > 0x7e ? '?' : *bad);
    return true;
}
