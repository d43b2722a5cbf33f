/* frontend/keys.c -- the keys of the layer being built, read by the kind that keys.def gives
 * them. */
#include "frontend/internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const cJSON *fe_key(const fe_layer *l, const char *key)
{
    return cJSON_IsObject(l->item) ? cJSON_GetObjectItemCaseSensitive(l->item, key) : NULL;
}

nnc_ref fe_bad(fe_layer *l, const char *key, const char *fmt, ...)
{
    va_list ap;
    nnc_text t = {0};
    const cJSON *item = key ? fe_key(l, key) : NULL;
    va_start(ap, fmt);
    nnc_vprintf(&t, fmt, ap);
    va_end(ap);
    if (t.oom)
        fe_nomem(l->f);
    else
        fe_fail_at(l->f, item ? item : l->item, false, l->path, "%s", nnc_text_str(&t));
    nnc_text_deinit(&t);
    return NNC_NONE;
}

bool fe_int(fe_layer *l, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    const cJSON *v = fe_key(l, key);
    return !v || fe_read_int(l->f, v, l->path, l->ctx->env, key, lo, hi, out);
}

bool fe_ints(
    fe_layer *l, const char *key, int64_t lo, int64_t hi, int *n, int64_t out[2 * NNC_MAX_RANK])
{
    const cJSON *v = fe_key(l, key);
    return !v || fe_read_ints(l->f, v, l->path, l->ctx->env, key, lo, hi, 2 * NNC_MAX_RANK, n, out);
}

bool fe_bool(fe_layer *l, const char *key, bool *out)
{
    const cJSON *v = fe_key(l, key);
    int64_t i = 0;
    if (!v)
        return true;
    if (cJSON_IsBool(v)) {
        *out = cJSON_IsTrue(v);
        return true;
    }
    if (!cJSON_IsString(v) && !cJSON_IsNumber(v))
        return fe_bad(l, key, "%s: expected true, false or a condition such as \"bn == 1\"", key) !=
               NNC_NONE;
    if (!fe_read_int(l->f, v, l->path, l->ctx->env, key, 0, 1, &i))
        return false;
    *out = i != 0;
    return true;
}

/* "-inf", "nan", "2.5e-3": a float as text. Hexadecimal floats are no part of JSON's spelling. */
static bool float_text(const char *s, double *out)
{
    char *end;
    const char *p = s + (*s == '-' || *s == '+');
    if (strcmp(p, "inf") != 0 && strcmp(p, "nan") != 0 &&
        (*p == 0 || p[strspn(p, "0123456789.eE+-")] || *p == 'e' || *p == 'E'))
        return false;
    *out = strtod(s, &end);
    return *end == 0;
}

/* A JSON number; "inf", "-inf", "nan"; or an expression, whose word (an arg) may be such a text. */
bool fe_float(fe_layer *l, const char *key, double *out)
{
    const cJSON *v = fe_key(l, key);
    fe_val x;
    if (!v)
        return true;
    if (cJSON_IsNumber(v)) {
        *out = v->valuedouble;
        return true;
    }
    if (!cJSON_IsString(v))
        return fe_bad(l, key, "%s: expected a number, or one of \"inf\", \"-inf\", \"nan\"", key) !=
               NNC_NONE;
    if (float_text(v->valuestring, out))
        return true;
    if (!fe_eval(l->f, v, l->path, l->ctx->env, key, &x))
        return false;
    const char *word = x.is_word ? nnc_arena_strndup(&l->f->a, x.word, (size_t)x.n) : "";
    if (!word)
        return fe_nomem(l->f) != NNC_NONE;
    *out = (double)x.i;
    return !x.is_word || float_text(word, out) ||
           fe_bad(l, key, "%s: expected a number, found the word '%.60s'", key, word) != NNC_NONE;
}

bool fe_number(fe_layer *l, const char *key, nnc_dtype d, const char *whose, double *out)
{
    uint64_t room = 0;
    if (!fe_float(l, key, out))
        return false;
    nnc_set_f64(d, &room, 0, *out);
    double held = nnc_get_f64(d, &room, 0);
    if (nnc_is_float(d) ? isfinite(held) || !isfinite(*out) : held == *out)
        return true;
    if (!nnc_is_float(d) && isfinite(*out) && *out != floor(*out))
        return fe_bad(l, key, "%s: expected a whole number because %s is %s, found %g", key, whose,
                   nnc_dtype_name(d), *out) != NNC_NONE;
    return fe_bad(l, key, "%s: %.17g does not fit in %s, the type of %s", key, *out,
               nnc_dtype_name(d), whose) != NNC_NONE;
}

bool fe_word(fe_layer *l, const char *key, const char **out)
{
    const cJSON *v = fe_key(l, key);
    const fe_key_row *k = fe_key_find(key);
    const char *w, *near = NULL;
    size_t best = 0;
    if (!v)
        return true;
    if (!fe_read_word(l->f, v, l->path, l->ctx->env, key, &w))
        return false;
    const char *names[8];
    for (const char *c = k->choices; *c && best < 8;) {
        size_t n = strcspn(c, "|");
        names[best] = nnc_arena_strndup(&l->f->a, c, n);
        if (!names[best])
            return fe_nomem(l->f) != NNC_NONE;
        if (!strcmp(names[best], w)) {
            *out = names[best];
            return true;
        }
        best++;
        c += n + (c[n] == '|');
    }
    near = nnc_nearest(w, names, best);
    return fe_bad(l, key, "%s: expected one of %s, found `%.60s`%s%s%s", key, k->choices, w,
               near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "") != NNC_NONE;
}

static bool normal_axis(fe_layer *l, const char *key, int rank, int64_t *axis)
{
    if (*axis < -rank || *axis >= rank)
        return fe_bad(l, key,
                   "%s %lld is outside the %d dimensions of the input: expected %d to %d", key,
                   (long long)*axis, rank, -rank, rank - 1) != NNC_NONE;
    *axis += *axis < 0 ? rank : 0;
    return true;
}

bool fe_axis(fe_layer *l, const char *key, int rank, int64_t *out)
{
    if (!fe_int(l, key, INT32_MIN, INT32_MAX, out))
        return false;
    return normal_axis(l, key, rank, out);
}

bool fe_axes(fe_layer *l, const char *key, int rank, int *n, int64_t out[NNC_MAX_RANK])
{
    int64_t v[2 * NNC_MAX_RANK] = {0};
    bool seen[NNC_MAX_RANK + 1] = {false};
    if (!fe_key(l, key))
        return true;
    if (!fe_ints(l, key, INT32_MIN, INT32_MAX, n, v))
        return false;
    for (int i = 0; i < *n; i++) {
        if (!normal_axis(l, key, rank, &v[i]))
            return false;
        if (seen[v[i]])
            return fe_bad(l, key, "%s: dimension %lld stands twice", key, (long long)v[i]) !=
                   NNC_NONE;
        seen[v[i]] = true;
    }
    *n = 0;
    for (int i = 0; i < rank; i++)
        if (seen[i])
            out[(*n)++] = i;
    return true;
}

bool fe_spatial(fe_layer *l, const char *key, int n, int64_t lo, int64_t out[3])
{
    int64_t v[2 * NNC_MAX_RANK] = {0};
    int m = 0;
    const cJSON *item = fe_key(l, key);
    if (!item)
        return true;
    if (!fe_ints(l, key, lo, INT32_MAX, &m, v))
        return false;
    bool one = !cJSON_IsArray(item);
    if (!one && m != n)
        return fe_bad(l, key,
                   "%s: expected one number, or %d (one per spatial dimension of the input), found "
                   "%d",
                   key, n, m) != NNC_NONE;
    for (int i = 0; i < n; i++)
        out[i] = v[one ? 0 : i];
    return true;
}

const char *fe_type_text(fe *f, const nnc_type *t)
{
    nnc_text x = {0};
    nnc_put_type(&x, t);
    const char *s = nnc_arena_strdup(&f->a, nnc_text_str(&x));
    nnc_text_deinit(&x);
    return s ? s : "?";
}

const char *fe_dims_text(fe *f, int n, const int64_t *d)
{
    nnc_text x = {0};
    for (int i = 0; i < n; i++)
        nnc_printf(&x, "%s%lld", i ? "x" : "", (long long)d[i]);
    const char *s = nnc_arena_strdup(&f->a, nnc_text_str(&x));
    nnc_text_deinit(&x);
    return s ? s : "?";
}
