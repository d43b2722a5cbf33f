/* passes/remark.c -- remarks: each decision with the user's layers and one sentence. An applied remark accounts for the change of cost
 * since the previous one, so that remarks add up. */
#include "passes/internal.h"

void nnc_remarks_init(nnc_remarks *r)
{
    *r = (nnc_remarks){0};
    nnc_arena_init(&r->arena, 0);
}

void nnc_remarks_deinit(nnc_remarks *r)
{
    nnc_arena_deinit(&r->arena);
    *r = (nnc_remarks){0};
}

bool nnc_remarks_add(nnc_remarks *r, const nnc_remark *m)
{
    if (!ARENA_ROOM(&r->arena, r->at, r->cap, r->n + 1))
        return false;
    r->at[r->n++] = *m;
    return true;
}

/* The table's entry for a path of n bytes: its index + 1, or 0. */
static uint32_t *find_layer(const layers *l, const char *s, size_t n)
{
    uint32_t i = (uint32_t)nnc_hash64(s, n, 0) & l->mask;
    while (l->table[i] && (strncmp(l->at[l->table[i] - 1], s, n) != 0 || l->at[l->table[i] - 1][n]))
        i = (i + 1) & l->mask;
    return &l->table[i];
}

static void add_layer(pass *p, layers *l, const char *s, size_t n)
{
    if (2 * l->n >= l->mask) {
        const uint32_t size = l->table ? 2 * (l->mask + 1) : 8;
        if (!(l->table = ARENA_NEW(p->a, uint32_t, size))) {
            pass_nomem(p);
            return;
        }
        l->mask = size - 1;
        for (uint32_t i = 0; i < l->n; i++)
            *find_layer(l, l->at[i], strlen(l->at[i])) = i + 1;
    }
    uint32_t *known = find_layer(l, s, n);
    if (*known)
        return;
    char *c = nnc_arena_strndup(&p->remarks->arena, s, n);
    if (c && ARENA_ROOM(p->a, l->at, l->cap, l->n + 1)) {
        l->at[l->n++] = c;
        *known = (uint32_t)l->n;
    } else {
        pass_nomem(p);
    }
}

void layers_add(pass *p, layers *l, uint32_t i)
{
    const nnc_node *n = &p->g->node[i];
    const char *s = n->origin;
    if (!s || !*s) {
        const char *name = p->g->value[n->out].name;
        s = name ? remark_text(p, "%%%s", name) : nnc_ops[n->op].name;
    }
    while (*s) {
        size_t len = strcspn(s, "+");
        if (len)
            add_layer(p, l, s, len);
        s += len + (s[len] == '+');
    }
}

layers layers_of(pass *p, uint32_t a, uint32_t b)
{
    layers l = {0};
    layers_add(p, &l, a);
    if (b != NNC_NONE)
        layers_add(p, &l, b);
    return l;
}

const char *remark_text(pass *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *s = nnc_arena_vprintf(&p->remarks->arena, fmt, ap);
    va_end(ap);
    if (s)
        return s;
    pass_nomem(p);
    return "";
}

const char *text_of(pass *p, const nnc_text *t)
{
    if (t->oom)
        pass_nomem(p);
    return remark_text(p, "%s", nnc_text_str(t));
}

const char *text_bytes(pass *p, int64_t bytes)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_put_bytes(&t, bytes);
    return text_of(p, &t);
}

const char *text_us_to(pass *p, int64_t ns, int more)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_put_us(&t, ns, more);
    return text_of(p, &t);
}

const char *text_us(pass *p, int64_t ns)
{
    return text_us_to(p, ns, 0);
}

const char *text_us_beside(pass *p, int64_t ns, int64_t other)
{
    return text_us_to(p, ns, nnc_us_digits(ns, other));
}

const char *node_word(pass *p, const nnc_node *n)
{
    if (n->op != OP_fused)
        return nnc_ops[n->op].name;
    NNC_LOCAL(nnc_text) t = {0};
    int left = 3;
    for (uint32_t i = 0; i < n->body->n_node; i++) {
        const nnc_node *m = &n->body->node[i];
        if (nnc_op_class(m->op) == CL_leaf || nnc_is_view(n->body, m))
            continue;
        if (left-- == 0) {
            nnc_puts(&t, "+...");
            break;
        }
        nnc_printf(&t, "%s%s", t.n ? "+" : "", nnc_ops[m->op].name);
    }
    return text_of(p, &t);
}

static void put(
    pass *p, bool applied, const layers *l, const char *rule, const char *fmt, va_list ap)
{
    nnc_remarks *r = p->remarks;
    edit *e = &p->e;
    edit_sync(p);
    /* nodes that a rewrite built but nobody uses are removed */
    for (uint32_t i = e->taken_node; applied && i < e->n_node && p->status == NNC_OK; i++)
        edit_sweep(p, i);
    const char **copy = nnc_arena_memdup(&r->arena, l->at, l->n * sizeof *l->at);
    const char *why = nnc_arena_vprintf(&r->arena, fmt, ap);
    nnc_remark remark = {.pass = nnc_pass_table[p->id].name,
        .applied = applied,
        .rule = rule,
        .n_layers = (int)l->n,
        .layer = copy,
        .reason = why,
        .bytes_saved = applied ? -e->bytes : 0,
        .launches_saved = applied ? -e->launches : 0};
    if (!why || (l->n && !copy) || !nnc_remarks_add(r, &remark)) {
        pass_nomem(p);
    } else if (applied) {
        e->bytes = e->launches = 0;
        e->taken_node = e->n_node;
        p->changed++;
    }
}

void remark_applied(pass *p, const layers *l, const char *rule, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put(p, true, l, rule, fmt, ap);
    va_end(ap);
}

void remark_declined(pass *p, const layers *l, const char *rule, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put(p, false, l, rule, fmt, ap);
    va_end(ap);
}

void decline_node(pass *p, uint32_t i, const char *rule, const char *fmt, ...)
{
    layers l = layers_of(p, i, NNC_NONE);
    va_list ap;
    va_start(ap, fmt);
    put(p, false, &l, rule, fmt, ap);
    va_end(ap);
}

void remark_bytes_kept(pass *p, int64_t bytes)
{
    if (p->status == NNC_OK)
        p->remarks->at[p->remarks->n - 1].bytes_kept = bytes;
}
