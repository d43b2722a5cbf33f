/* profile/rows.c -- groups a profile's commands into rows: by layer, op, kernel, device, ... */
#include "profile/profile.h"
#include "session/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const nnc_profile_by_names[BY__COUNT] = {
    "command", "layer", "module", "op", "kernel", "part", "device", "model"};

/* Least time of a layer as written, by which fused kernels are divided. */
typedef struct written {
    const char *layer;
    double ns;
} written;

typedef struct grouping {
    const nnc_profile *p;
    const nnc_profile_options *o;
    nnc_profile_rows *out;
    size_t cap;
    int32_t *slot; /* hash table of rows + 1 */
    size_t slots;
    written *layer; /* sorted by name */
    int n_layer;
    uint8_t *part;
} grouping;

/* ---- rows by name ---------------------------------------------------------------------------------------- */

/* The row of that name, made at its first use; of commands each has its own. */
static nnc_profile_row *row_of(grouping *g, const char *name, size_t n)
{
    size_t at = (size_t)nnc_hash64(name, n, 0) & (g->slots - 1);
    for (; g->o->by != BY_command && g->slot[at]; at = (at + 1) & (g->slots - 1)) {
        nnc_profile_row *r = &g->out->row[g->slot[at] - 1];
        if (strlen(r->name) == n && !memcmp(r->name, name, n))
            return r;
    }
    char *copy = nnc_arena_strndup(&g->out->arena, name, n);
    if (!copy || !ARENA_ROOM(&g->out->arena, g->out->row, g->cap, (size_t)g->out->n + 1))
        return NULL;
    nnc_profile_row *r = &g->out->row[g->out->n++];
    *r = (nnc_profile_row){.name = copy, .first = -1};
    const int devices = g->p->artifact->plan->n_device;
    if (devices > 1 && !(r->on = ARENA_NEW(&g->out->arena, double, devices)))
        return NULL;
    g->slot[at] = g->out->n;
    return r;
}

/* Adds a share of a command to the row of that name. within: it is of a module in that one. */
static bool add(
    grouping *g, const char *name, size_t n, const nnc_profile_cmd *c, double share, bool within)
{
    const nnc_plan *p = g->p->artifact->plan;
    const nnc_cmd *of = &p->cmd[c->cmd];
    nnc_profile_row *r = row_of(g, name, n);
    if (!r)
        return false;
    const char *engine = of->kind == CMD_kernel || of->kind == CMD_call ? p->engine[of->engine]
                         : of->kind == CMD_copy                         ? "copy"
                                                                        : "collective";
    if (r->first < 0) {
        NNC_LOCAL(nnc_text) shape = {0};
        r->first = c->cmd;
        r->engine = engine;
        r->op = of->op_class ? of->op_class : "";
        if (of->n_arg) {
            const nnc_type *t = &p->tensor[of->arg[of->n_arg - 1]].type;
            const nnc_type logical = nnc_type_make((nnc_dtype)t->dtype, t->rank, t->dim);
            nnc_put_type(&shape, &logical);
        }
        r->shape = nnc_arena_strdup(&g->out->arena, nnc_text_str(&shape));
    }
    if (strcmp(r->engine, engine) != 0)
        r->engine = "";
    if (!of->op_class || strcmp(r->op, of->op_class) != 0)
        r->op = "";
    r->calls++;
    r->divided |= share < 1;
    r->ms += share * c->ms;
    r->self_ms += within ? 0 : share * c->ms;
    if (r->on)
        r->on[of->device] += share * c->ms;
    r->least_ms += share * c->least_ms;
    r->bound_ms[c->bound] += share * c->least_ms;
    r->flops += share * (double)of->flops;
    r->bytes += share * (double)of->bytes;
    r->allocated += share * (double)c->allocated;
    r->alive = nnc_max64(r->alive, c->alive);
    return r->shape != NULL;
}

/* ---- layers ---------------------------------------------------------------------------------------------- */

static int by_layer(const void *a, const void *b)
{
    return strcmp(((const written *)a)->layer, ((const written *)b)->layer);
}

static bool find_layers(grouping *g, const nnc_target *t)
{
    const nnc_graph *m = g->p->artifact->source;
    int n = 0;
    g->layer = ARENA_NEW(&g->out->arena, written, (size_t)m->n_node + 1);
    for (uint32_t i = 0; g->layer && i < m->n_node; i++) {
        const nnc_cost c = nnc_node_cost(m, &m->node[i]);
        if (m->node[i].origin && c.launches)
            g->layer[n++] = (written){
                m->node[i].origin, (double)nnc_target_least_ns(t, DT_f32, false, c.flops, c.bytes)};
    }
    if (!g->layer)
        return false;
    qsort(g->layer, (size_t)n, sizeof *g->layer, by_layer);
    for (int i = 0; i < n; i++) /* a layer of several nodes */
        if (g->n_layer && !strcmp(g->layer[g->n_layer - 1].layer, g->layer[i].layer))
            g->layer[g->n_layer - 1].ns += g->layer[i].ns;
        else
            g->layer[g->n_layer++] = g->layer[i];
    return true;
}

/* Least time as written of a layer, or of the layer whose gradients "X/backward" computes; 1 ns of what the model file does not have. */
static double written_ns(const grouping *g, const char *layer, size_t n)
{
    static const char back[] = "/backward";
    const size_t m = sizeof back - 1;
    char name[512];
    const bool backward = n > m && !memcmp(layer + n - m, back, m);
    n -= backward ? m : 0;
    if (n >= sizeof name)
        return 1;
    memcpy(name, layer, n);
    name[n] = 0;
    const written key = {name, 0},
                  *w = bsearch(&key, g->layer, (size_t)g->n_layer, sizeof key, by_layer);
    return w ? (backward ? 2 : 1) * w->ns + 1 : 1;
}

/* Adds to the row of each prefix of a path, "/layers/3", "/layers/3/block", ..., the path itself last. */
static bool add_module(
    grouping *g, const char *path, size_t n, const nnc_profile_cmd *c, double share)
{
    bool ok = true;
    size_t i = n > 8 && !memcmp(path, "/layers/", 8) ? 8 : 1;
    for (; ok && i <= n; i++)
        if (i == n || path[i] == '/')
            ok = add(g, path, i, c, share, i < n);
    return ok;
}

/* Removes modules that hold only one other: rows in the order of paths, of which the next one is within them and takes as long. */
static void drop_wrappers(nnc_profile_rows *rows)
{
    int n = 0;
    for (int i = 0; i < rows->n; i++) {
        const nnc_profile_row *r = &rows->row[i], *next = i + 1 < rows->n ? r + 1 : NULL;
        const size_t length = strlen(r->name);
        if (!next || strncmp(next->name, r->name, length) != 0 || next->name[length] != '/' ||
            !r->calls || next->calls != r->calls || next->ms < r->ms * (1 - 1e-9))
            rows->row[n++] = *r;
    }
    rows->n = n;
}

static bool add_layers(grouping *g, const nnc_profile_cmd *c)
{
    const char *layers = g->p->artifact->plan->cmd[c->cmd].layers;
    double sum = 0;
    bool ok = true;
    if (!layers || !*layers)
        return add(g, "(no layer)", 10, c, 1, false);
    for (const char *s = layers; *s; s += strcspn(s, "+"), s += *s == '+')
        sum += written_ns(g, s, strcspn(s, "+"));
    for (const char *s = layers; ok && *s; s += strcspn(s, "+"), s += *s == '+') {
        const size_t n = strcspn(s, "+");
        const double share = written_ns(g, s, n) / sum;
        ok = g->o->by == BY_module ? add_module(g, s, n, c, share) : add(g, s, n, c, share, false);
    }
    return ok;
}

/* ---- grouping -------------------------------------------------------------------------------------------- */

/* Appends the models whose layers the command computes, of several, or the only one. */
static void put_models(const nnc_profile *p, const char *layers, nnc_text *t)
{
    const size_t before = t->n;
    for (int k = 0; k < p->n_model; k++)
        if (nnc_layers_of_model(layers, p->model[k]))
            nnc_printf(t, "%s%s", t->n > before ? "+" : "", p->model[k]);
    if (t->n == before)
        nnc_puts(t, p->n_model ? "(no model)" : p->artifact->source->name);
}

/* Appends the name of the command's row. */
static void put_name(const grouping *g, const nnc_profile_cmd *c, nnc_text *t)
{
    static const char *const calls[CALL__COUNT] = {
        "conv", "conv_transpose", "conv_wgrad", "matmul"};
    const nnc_plan *p = g->p->artifact->plan;
    const nnc_cmd *of = &p->cmd[c->cmd];
    switch (g->o->by) {
    case BY_op: nnc_puts(t, of->op_class ? of->op_class : ""); break;
    case BY_part: nnc_puts(t, nnc_part_names[g->part[c->cmd]]); break;
    case BY_device:
        nnc_profile_put_device(t, g->p, of->device);
        if (p->device[of->device].streams > 1)
            nnc_printf(t, " stream %d", of->stream);
        break;
    case BY_kernel:
        if (of->kind == CMD_kernel) {
            const char *name;
            const size_t n = nnc_pkernel_function(&p->kernel[of->item], &name);
            nnc_putn(t, name, n);
        } else if (of->kind == CMD_call) {
            nnc_printf(t, "%s %s", p->engine[of->engine], calls[p->call[of->item].kind]);
        } else {
            nnc_puts(t, of->kind == CMD_copy ? "copy" : "collective");
        }
        break;
    case BY_model: put_models(g->p, of->layers, t); break;
    default: nnc_puts(t, of->layers && *of->layers ? of->layers : of->op_class);
    }
}

static bool add_command(grouping *g, const nnc_profile_cmd *c)
{
    NNC_LOCAL(nnc_text) name = {0};
    if (g->o->by == BY_layer || g->o->by == BY_module)
        return add_layers(g, c);
    put_name(g, c, &name);
    return !name.oom && add(g, nnc_text_str(&name), name.n, c, 1, false);
}

static int by_order(const void *a, const void *b)
{
    const nnc_profile_row *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : nnc_compare_paths(x->name, y->name);
}

static int by_time(const void *a, const void *b)
{
    const nnc_profile_row *x = a, *y = b;
    return x->ms != y->ms ? (x->ms < y->ms ? 1 : -1) : by_order(a, b);
}

static int by_gap(const void *a, const void *b)
{
    const nnc_profile_row *x = a, *y = b;
    const double p = x->ms - x->least_ms, q = y->ms - y->least_ms;
    return p != q ? (p < q ? 1 : -1) : by_order(a, b);
}

static int by_change(const void *a, const void *b)
{
    const double p = fabs(nnc_profile_change(a)), q = fabs(nnc_profile_change(b));
    return p != q ? (p < q ? 1 : -1) : by_order(a, b);
}

static int by_path(const void *a, const void *b)
{
    return nnc_compare_paths(
        ((const nnc_profile_row *)a)->name, ((const nnc_profile_row *)b)->name);
}

nnc_status nnc_profile_group(
    const nnc_profile *p, const nnc_profile_options *o, nnc_profile_rows *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_plan *plan = p->artifact->plan;
    grouping g = {.p = p, .o = o, .out = out, .slots = 64};
    int (*const compare[])(const void *, const void *) = {by_time, by_order, by_gap, by_change};
    *out = (nnc_profile_rows){0};
    size_t names = (size_t)p->n;
    for (int i = 0; i < p->n; i++)
        for (const char *s = plan->cmd[p->cmd[i].cmd].layers; s && *s; s++)
            names += *s == '+' || *s == '/';
    while (g.slots < 2 * names)
        g.slots *= 2;
    g.slot = ARENA_NEW(&a, int32_t, g.slots);
    g.part = ARENA_NEW(&a, uint8_t, plan->n_cmd + 1);
    NNC_NEED(g.slot && g.part && find_layers(&g, p->target), sink);
    NNC_TRY(nnc_step_parts(plan, g.part, sink));
    for (int i = 0; i < p->n; i++)
        NNC_NEED(add_command(&g, &p->cmd[i]), sink);
    if (nnc_profile_compared(p, o->by))
        NNC_NEED(nnc_profile_match(p->old, out, &g.cap), sink);
    qsort(out->row, (size_t)out->n, sizeof *out->row,
        o->by == BY_module ? by_path : compare[o->sort]);
    if (o->by == BY_module)
        drop_wrappers(out);
    return NNC_OK;
}

roof_level nnc_profile_bound(const nnc_profile_row *r)
{
    int most = 0;
    for (int i = 0; i < LEVEL__COUNT; i++)
        most = r->bound_ms[i] > r->bound_ms[most] ? i : most;
    return (roof_level)most;
}
