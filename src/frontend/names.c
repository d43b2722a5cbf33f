/* frontend/names.c -- layer names by scope, and the values that `in` and `output` refer to. A scope is the model, a group's body, or a
 * block's body, in which outer names are not visible. */
#include "frontend/internal.h"
#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(uint32_t scope, const char *name)
{
    return nnc_hash64(name, strlen(name), scope);
}

fe_name *fe_find(
    fe_name *names, const uint32_t *slot, size_t n_slot, uint32_t scope, const char *name)
{
    if (n_slot == 0)
        return NULL;
    for (size_t i = hash_of(scope, name) & (n_slot - 1); slot[i]; i = (i + 1) & (n_slot - 1)) {
        fe_name *e = &names[slot[i] - 1];
        if (e->scope == scope && !strcmp(e->name, name))
            return e;
    }
    return NULL;
}

static void place(uint32_t *slot, size_t n_slot, const fe_name *e, uint32_t id)
{
    size_t i = hash_of(e->scope, e->name) & (n_slot - 1);
    while (slot[i])
        i = (i + 1) & (n_slot - 1);
    slot[i] = id;
}

/* Appends a name that the caller has checked to be new. NULL = out of memory. */
fe_name *fe_add(fe *f, fe_name **names, size_t *n, size_t *cap, uint32_t **slot, size_t *n_slot,
    uint32_t scope, const char *name)
{
    if (!ARENA_ROOM(&f->a, *names, *cap, *n + 1))
        return NULL;
    fe_name *p = *names;
    if ((*n + 1) * 2 > *n_slot) { /* at most half full */
        size_t more = *n_slot ? *n_slot * 2 : 64;
        uint32_t *s = ARENA_NEW(&f->a, uint32_t, more);
        if (!s)
            return NULL;
        for (size_t i = 0; i < *n; i++)
            place(s, more, &p[i], (uint32_t)i + 1);
        *slot = s;
        *n_slot = more;
    }
    p[*n] = (fe_name){.scope = scope, .name = name};
    place(*slot, *n_slot, &p[*n], (uint32_t)*n + 1);
    return &p[(*n)++];
}

static bool visible(const fe_scope *s, uint32_t id)
{
    for (; s; s = s->up)
        if (s->id == id)
            return true;
    return false;
}

/* Returns the line of a later layer of this list with the name, or 0. */
static int defined_later(const nnc_item *item, const char *name)
{
    for (const nnc_item *l = item; l; l = l->next) {
        const nnc_item *n = nnc_json_get(l, "name");
        if (nnc_is_string(n) && !strcmp(n->text, name))
            return l->line;
    }
    return 0;
}

static bool unknown(fe *f, const nnc_item *at, const nnc_item *layer, const fe_ctx *c,
    const char *path, const char *name)
{
    size_t n = 1, k = 0;
    for (size_t i = 0; i < f->n_name; i++)
        n += visible(c->scope, f->name[i].scope);
    const char **names = ARENA_NEW(&f->a, const char *, n);
    if (!names)
        return fe_oom(f);
    for (size_t i = 0; i < f->n_name; i++)
        if (visible(c->scope, f->name[i].scope))
            names[k++] = f->name[i].name;
    names[k++] = "prev";
    const char *near = nnc_nearest(name, names, n);
    int later = layer ? defined_later(layer, name) : 0;
    if (later) {
        fe_fail_at(f, at, false, path,
            "layer `%.60s` is defined later, at line %d; a layer can use only those before it",
            name, later);
    } else if (near) {
        fe_fail_at(f, at, false, path, "no layer or input is named `%.60s`; did you mean `%s`?",
            name, near);
    } else {
        NNC_LOCAL(nnc_text) t = {0};
        for (size_t i = k; i-- > 0 && t.n < 200;)
            nnc_printf(&t, "%s%s", t.n ? ", " : "", names[i]);
        fe_fail_at(f, at, false, path, "no layer or input is named `%.60s` (known here: %s%s)",
            name, nnc_text_str(&t), t.n >= 200 ? ", ..." : "");
    }
    return false;
}

static bool resolve(fe *f, const nnc_item *at, const nnc_item *layer, const fe_ctx *c,
    const char *path, const char *name, const nnc_ref *prev, nnc_ref *out)
{
    const char *colon = strchr(name, ':');
    char *end = NULL;
    long k = 0;
    if (colon) {
        k = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end || k < 0)
            return FE_FALSE_AT(
                f, at, path, "`%.60s`: expected a result number after `:`, as in `parts:1`", name);
        name = nnc_arena_strndup(&f->a, name, (size_t)(colon - name));
        if (!name)
            return fe_oom(f);
    }
    if (!strcmp(name, "prev") && prev && !colon) {
        *out = *prev;
        return true;
    }
    for (const fe_scope *s = c->scope; s; s = s->up) {
        const fe_name *e = fe_find(f->name, f->slot, f->n_slot, s->id, name);
        if (!e)
            continue;
        if (k >= e->n_ref)
            return FE_FALSE_AT(f, at, path,
                "`%s` has %d result%s, counted from 0; `:%ld` does not exist", name, e->n_ref,
                e->n_ref == 1 ? "" : "s", k);
        *out = e->ref[k];
        return true;
    }
    return unknown(f, at, layer, c, path, name);
}

/* Resolves a name or a list of names into an array in the arena. */
bool fe_resolve_list(fe *f, const nnc_item *v, const nnc_item *layer, const fe_ctx *c,
    const char *path, const char *what, const nnc_ref *prev, int *n, nnc_ref **out)
{
    const char *name;
    int count = nnc_is_list(v) ? v->n : 1;
    if (nnc_is_list(v) && (count == 0 || count > FE_MAX_INPUTS))
        return FE_FALSE_AT(
            f, v, path, "%s: expected 1 to %d names, found %d", what, FE_MAX_INPUTS, count);
    *out = ARENA_NEW(&f->a, nnc_ref, count);
    if (!*out)
        return fe_oom(f);
    *n = 0;
    for (const nnc_item *e = nnc_is_list(v) ? v->child : v; e;
         e = nnc_is_list(v) ? e->next : NULL) {
        if (!fe_read_word(f, e, path, c->env, what, &name) ||
            !resolve(f, e, layer, c, path, name, prev, &(*out)[*n]))
            return false;
        ++*n;
    }
    return true;
}

bool fe_define(fe *f, const nnc_item *at, const fe_ctx *c, const char *path, const char *name,
    int n, const nnc_ref *ref, bool absent)
{
    fe_name *e = fe_find(f->name, f->slot, f->n_slot, c->scope->id, name);
    if (e && absent)
        return true;
    if (e && !e->absent)
        return FE_FALSE_AT(f, at, path, "the name `%s` is already taken at line %d", name, e->line);
    if (!e)
        e = fe_add(f, &f->name, &f->n_name, &f->cap_name, &f->slot, &f->n_slot, c->scope->id, name);
    if (!e)
        return fe_oom(f);
    e->ref = ref;
    e->n_ref = n;
    e->absent = absent;
    e->line = at ? at->line : 0;
    return true;
}
