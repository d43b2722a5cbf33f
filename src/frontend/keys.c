/* frontend/keys.c -- fills the fe_spec of the layer being built from JSON, by the kinds of keys.def and the defaults of layers.def;
 * and checks shared by builders. */
#include "frontend/internal.h"
#include <math.h>
#include <string.h>

const nnc_item *fe_item(const fe_layer *l, const char *key)
{
    return nnc_is_object(l->item) ? nnc_json_get(l->item, key) : NULL;
}

bool fe_has(const fe_layer *l, fe_key key)
{
    return l->s.has >> key & 1;
}

nnc_ref fe_bad(fe_layer *l, const char *key, const char *fmt, ...)
{
    va_list ap;
    const nnc_item *item = key ? fe_item(l, key) : NULL;
    va_start(ap, fmt);
    const char *message = nnc_arena_vprintf(&l->f->a, fmt, ap);
    va_end(ap);
    if (!message)
        fe_nomem(l->f);
    else if (!l->item) /* not from JSON */
        fe_stop(l->f, nnc_fail(l->f->sink, NNC_E_MODEL, l->loc, "%s", message));
    else
        fe_fail_at(l->f, item ? item : l->item, false, l->path, "%s", message);
    return NNC_NONE;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool fe_read_bool(
    fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, bool *out)
{
    int64_t i = item->number != 0;
    if (!nnc_is_bool(item) && !nnc_is_string(item) && !nnc_is_number(item))
        return FE_FALSE_AT(
            f, item, path, "%s: expected true, false or a condition such as \"bn == 1\"", what);
    if (!nnc_is_bool(item) && !fe_read_int(f, item, path, env, what, 0, 1, &i))
        return false;
    *out = i != 0;
    return true;
}

/* "-inf", "nan", "2.5e-3": a float as text. JSON has no hexadecimal floats. */
static bool float_text(const char *s, double *out)
{
    char *end;
    const char *p = s + (*s == '-' || *s == '+');
    if (strcmp(p, "inf") != 0 && strcmp(p, "nan") != 0 &&
        (*p == 0 || p[strspn(p, "0123456789.eE+-")] || *p == 'e' || *p == 'E'))
        return false;
    *out = nnc_strtod(s, &end);
    return *end == 0;
}

/* Reads a JSON number; "inf", "-inf", "nan"; or an expression, whose word (an arg) may be such a text. */
static bool read_float(fe_layer *l, const char *key, const nnc_item *v, double *out)
{
    fe_val x;
    if (nnc_is_number(v)) {
        *out = v->number;
        return true;
    }
    if (!nnc_is_string(v))
        return FE_FALSE(l, key, "%s: expected a number, or one of \"inf\", \"-inf\", \"nan\"", key);
    if (float_text(v->text, out))
        return true;
    if (!fe_eval(l->f, v, l->path, l->ctx->env, key, &x))
        return false;
    const char *word = x.is_word ? nnc_arena_strndup(&l->f->a, x.word, (size_t)x.n) : "";
    if (!word)
        return fe_oom(l->f);
    *out = (double)x.i;
    return !x.is_word || float_text(word, out) ||
           FE_FALSE(l, key, "%s: expected a number, found the word '%.60s'", key, word);
}

static bool read_choice(fe_layer *l, const fe_use *u, const nnc_item *v, const char **out)
{
    const char *w, *names[8], *key = fe_keys[u->key].name;
    size_t n = 0;
    if (!fe_read_word(l->f, v, l->path, l->ctx->env, key, &w))
        return false;
    for (const char *c = u->choices; *c && n < 8; n++) {
        size_t len = strcspn(c, ",");
        names[n] = nnc_arena_strndup(&l->f->a, c, len);
        if (!names[n])
            return fe_oom(l->f);
        if (!strcmp(names[n], w)) {
            *out = names[n];
            return true;
        }
        c += len + (c[len] == ',');
    }
    return FE_FALSE(l, key, "%s: expected one of %s, found `%.60s`%s", key, u->choices, w,
        fe_hint(l->f, w, names, n));
}

static bool read_list(fe_layer *l, const fe_key_row *k, const nnc_item *v, fe_list *out)
{
    static const char *const same[] = {"same", "same_lower"};
    const char *s = k->kind == LK_pad && nnc_is_string(v) ? v->text : "";
    for (int i = 0; i < 2; i++)
        if (!strcmp(s, same[i])) {
            out->n = i ? FE_SAME_LOWER : FE_SAME_UPPER;
            return true;
        }
    if (!strncmp(s, "s", 1) && nnc_nearest(s, same, 2))
        return FE_FALSE(
            l, k->name, "%s: `%.20s` is not a way to pad%s", k->name, s, fe_hint(l->f, s, same, 2));
    out->one = !nnc_is_list(v);
    return fe_read_ints(
        l->f, v, l->path, l->ctx->env, k->name, k->lo, k->hi, 2 * NNC_MAX_RANK, &out->n, out->v);
}

static bool read_key(fe_layer *l, const fe_use *u, const nnc_item *v, void *out)
{
    const fe_key_row *k = &fe_keys[u->key];
    switch (k->kind) {
    case LK_int:
    case LK_count: return fe_read_int(l->f, v, l->path, l->ctx->env, k->name, k->lo, k->hi, out);
    case LK_spatial:
    case LK_pad:
    case LK_ints: return read_list(l, k, v, out);
    case LK_bool: return fe_read_bool(l->f, v, l->path, l->ctx->env, k->name, out);
    case LK_float: return read_float(l, k->name, v, out);
    case LK_dtype: return fe_read_dtype(l->f, v, l->path, l->ctx->env, out);
    case LK_word: return read_choice(l, u, v, out);
    }
    return false;
}

/* Sets a default. Defaults that are no values ("all", "kernel") are handled by the builder as absent keys. */
static void set_default(fe_layer *l, const fe_key_row *k, const char *text, void *out)
{
    char *end;
    double v = nnc_strtod(text, &end);
    bool number = *text && !*end;
    if (k->kind == LK_bool)
        *(bool *)out = !strcmp(text, "true");
    else if (k->kind == LK_float && number)
        *(double *)out = v;
    else if (k->kind == LK_word)
        *(const char **)out = nnc_arena_strdup(&l->f->a, text);
    else if ((k->kind == LK_int || k->kind == LK_count) && number)
        *(int64_t *)out = (int64_t)v;
    else if (number)
        *(fe_list *)out = (fe_list){1, true, {(int64_t)v}};
}

bool fe_read_spec(fe_layer *l)
{
    fe_use u;
    for (const char *p = l->row.keys; fe_use_next(&p, &u);) {
        const fe_key_row *k = &fe_keys[u.key];
        const nnc_item *v = fe_item(l, k->name);
        void *out = (char *)&l->s + k->at;
        if (!v)
            set_default(l, k, u.dflt, out);
        else if (!read_key(l, &u, v, out))
            return false;
        l->s.has |= (uint64_t)(v != NULL) << u.key;
    }
    return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

bool fe_fits(fe_layer *l, const char *key, double v, nnc_dtype d, const char *whose)
{
    uint64_t room = 0;
    nnc_set_f64(d, &room, 0, v);
    double held = nnc_get_f64(d, &room, 0);
    if (nnc_is_float(d) ? isfinite(held) || !isfinite(v) : held == v)
        return true;
    if (!nnc_is_float(d) && isfinite(v) && v != floor(v))
        return FE_FALSE(l, key, "%s: expected a whole number because %s is %s, found %g", key,
            whose, nnc_dtype_name(d), v);
    return FE_FALSE(
        l, key, "%s: %.15g does not fit in %s, the type of %s", key, v, nnc_dtype_name(d), whose);
}

bool fe_axis(fe_layer *l, const char *key, int rank, int64_t *axis)
{
    if (*axis < -rank || *axis >= rank)
        return FE_FALSE(l, key,
            "%s %lld is outside the %d dimensions of the input: expected %d to %d", key,
            (long long)*axis, rank, -rank, rank - 1);
    *axis += *axis < 0 ? rank : 0;
    return true;
}

bool fe_axes(
    fe_layer *l, const char *key, int rank, const fe_list *list, int *n, int64_t out[NNC_MAX_RANK])
{
    bool seen[NNC_MAX_RANK + 1] = {false};
    for (int i = 0; i < list->n; i++) {
        int64_t v = list->v[i];
        if (!fe_axis(l, key, rank, &v))
            return false;
        if (seen[v])
            return FE_FALSE(l, key, "%s: dimension %lld is named twice", key, (long long)v);
        seen[v] = true;
    }
    *n = 0;
    for (int i = 0; i < rank; i++)
        if (seen[i])
            out[(*n)++] = i;
    return true;
}

const char *fe_type_text(fe *f, const nnc_type *t)
{
    NNC_LOCAL(nnc_text) x = {0};
    nnc_put_type(&x, t);
    const char *s = nnc_arena_strdup(&f->a, nnc_text_str(&x));
    return s ? s : "?";
}

const char *fe_dims_text(fe *f, int n, const int64_t *d)
{
    NNC_LOCAL(nnc_text) x = {0};
    for (int i = 0; i < n; i++)
        nnc_printf(&x, "%s%lld", i ? "x" : "", (long long)d[i]);
    const char *s = nnc_arena_strdup(&f->a, nnc_text_str(&x));
    return s ? s : "?";
}
