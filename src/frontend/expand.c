/* frontend/expand.c -- expands the layers with their conditions, repeats, groups and blocks, and builds each layer in order. Limits
 * are checked before memory is allocated: NNC_MAX_NESTING levels, NNC_MAX_LAYERS layers and iterations in total. */
#include "frontend/internal.h"
#include <string.h>

typedef struct flow { /* results of a layer */
    const nnc_ref *ref;
    int n;
    const char *name; /* of the layer, NULL */
} flow;

typedef struct use { /* a layer of the file, in one iteration of one block */
    const nnc_item *item;
    const char *op; /* NULL: a group */
    const char *name; /* NULL: unnamed */
    const char *path, *prefix;
    nnc_ref *in;
    int n_in;
    int64_t repeat; /* -1: not repeated */
    const char *index;
} use;

static bool run_layers(fe *f, const fe_ctx *c, const nnc_item *layers, flow in, flow *out);

static bool count_step(fe *f, const nnc_item *item, const char *path)
{
    if (++f->steps <= NNC_MAX_LAYERS)
        return true;
    return FE_FALSE_AT(f, item, path, "more than %d layers and iterations", NNC_MAX_LAYERS);
}

/* ---- one op ---------------------------------------------------------------------------------- */

static bool check_arity(fe_layer *l)
{
    const fe_row *r = &l->row;
    bool given = fe_item(l, "in") != NULL;
    if (r->n_max == 0 && given)
        return FE_FALSE(l, "in", "%s takes no input", r->name);
    if (r->n_max == 0)
        l->n_in = 0;
    if (l->n_in >= r->n_min && (r->n_max < 0 || l->n_in <= r->n_max))
        return true;
    if (r->n_min > 1 && !given)
        return FE_FALSE(l, NULL, "%s takes %d inputs: name them, as in \"in\": [\"a\", \"b\"%s]",
            r->name, r->n_min, r->n_min > 2 ? ", \"c\"" : "");
    return FE_FALSE(l, "in", "%s takes %d input%s, found %d", r->name,
        l->n_in < r->n_min ? r->n_min : r->n_max,
        (l->n_in < r->n_min ? r->n_min : r->n_max) == 1 ? "" : "s", l->n_in);
}

/* True for operands that hold indices, a condition or a mask of type d, which "dtype" does not convert. */
static bool is_index(const fe_row *r, int i, nnc_dtype d)
{
    const nnc_node n = {.op = (uint16_t)r->op};
    bool attention = fe_row_takes(r, FK_heads);
    return r->build == fe_build_embedding || (nnc_index_operand(&n) && i == 1) ||
           (r->op == OP_select && i == 0) || (attention && d == DT_bool);
}

/* True for layers that are defined for floats only, and those with weights or sums. */
static bool wants_floats(const fe_row *r)
{
    return nnc_op_class(r->op) == CL_contract || r->op == OP_prelu || r->op == OP_leaky_relu ||
           (nnc_ops[r->op].flags & OF_float);
}

/* "dtype" of a layer: its operands are cast, so that it computes in that type and returns it. The dtype of a group or block does not
 * affect integers in layers that support integers, since indices are computed there too. */
static bool cast_inputs(fe_layer *l)
{
    fe *f = l->f;
    bool own = fe_item(l, "dtype") != NULL;
    if (l->row.op == OP_cast)
        return !own || FE_FALSE(l, "dtype", "dtype: the result type of cast is its key \"to\"");
    if (l->dtype < 0 || l->n_in == 0)
        return true;
    if (!nnc_is_float(l->dtype))
        return FE_FALSE(l, "dtype",
            "dtype: %s computes in a float type, not %s; use a cast layer to convert", l->row.name,
            nnc_dtype_name(l->dtype));
    nnc_ref *in = nnc_arena_memdup(&f->a, l->in, (size_t)l->n_in * sizeof *in);
    if (!in)
        return fe_oom(f);
    l->in = in;
    for (int i = 0; i < l->n_in; i++) {
        nnc_dtype d = nnc_typeof(f->g, in[i])->dtype;
        bool convert = nnc_is_float(d) || own || wants_floats(&l->row);
        if (convert && d != (nnc_dtype)l->dtype && !is_index(&l->row, i, d))
            in[i] = nnc_cast(f->g, in[i], l->dtype);
        if (in[i] == NNC_NONE)
            return false;
    }
    return true;
}

static bool build_op(fe *f, const fe_ctx *c, const use *u, const char *path, const char *name,
    const char *weights, flow *out)
{
    fe_layer l = {.f = f,
        .item = u->item,
        .ctx = c,
        .path = path,
        .weights = weights,
        .n_in = u->n_in,
        .in = u->in,
        .dtype = c->dtype,
        .n_out = 1};
    if (!fe_layer_find(u->op, &l.row))
        return fe_oom(f); /* unreachable: fe_check_op found it */
    l.loc = (nnc_loc){f->file, u->item->line, u->item->col, path};
    f->g->origin = path;
    f->g->loc = l.loc;
    f->g->device = c->device;
    uint32_t before = f->g->n_value;
    if (!check_arity(&l) || !cast_inputs(&l) || !fe_read_spec(&l))
        return false;
    nnc_ref r = l.row.build(&l);
    if (f->g->status && !f->status)
        f->status = f->g->status;
    if (r == NNC_NONE || f->status)
        return f->status ? false : (fe_bad(&l, NULL, "%s could not be built", u->op), false);
    nnc_ref *refs = ARENA_NEW(&f->a, nnc_ref, l.n_out);
    if (!refs)
        return fe_oom(f);
    for (int i = 0; i < l.n_out; i++)
        refs[i] = r + (nnc_ref)i;
    static const char *const of_weights[] = {"weights", "frozen"};
    for (int i = 0; i < 2 && l.n_weight == 0; i++)
        if (fe_item(&l, of_weights[i]))
            fe_warn_once(
                f, l.loc, "\"%s\" has no effect: this layer has no weights", of_weights[i]);
    if (u->name && r >= before && nnc_def(f->g, r)->op != OP_param)
        nnc_set_name(f->g, r, name);
    *out = (flow){refs, l.n_out, u->name};
    return true;
}

/* ---- groups and blocks ----------------------------------------------------------------------- */

static bool body_result(
    fe *f, const fe_ctx *in, const nnc_item *where, const char *path, flow last, flow *out)
{
    const nnc_item *o = nnc_json_get(where, "output");
    nnc_ref *ref;
    *out = last;
    if (!o)
        return true;
    if (!fe_resolve_list(f, o, NULL, in, path, "output", last.ref, &out->n, &ref))
        return false;
    out->ref = ref;
    return true;
}

/* Binds the block's args to the layer's keys or their defaults; the model's args are visible below them. */
static bool bind_args(fe *f, const fe_ctx *c, const use *u, const nnc_item *block, const char *path,
    const fe_env **out)
{
    const nnc_item *args = nnc_json_get(block, "args");
    *out = f->globals;
    for (const nnc_item *a = args ? args->child : NULL; a; a = a->next) {
        const char *name = nnc_is_list(args) ? a->text : a->key;
        const nnc_item *v = nnc_json_get(u->item, name);
        fe_env *e = ARENA_NEW(&f->a, fe_env, 1);
        if (!e)
            return fe_oom(f);
        *e = (fe_env){.name = name, .up = *out};
        if (v ? !fe_eval_arg(f, v, path, c->env, name, &e->v) : !fe_arg_default(f, a, path, &e->v))
            return false;
        if (!nnc_is_list(args) && !fe_arg_allowed(f, a, name, &e->v, v, path))
            return false;
        *out = e;
    }
    return true;
}

static bool define_inputs(
    fe *f, const fe_ctx *in, const use *u, const nnc_item *block, const char *path)
{
    const nnc_item *names = nnc_json_get(block, "inputs");
    int want = names ? names->n : 1, i = 0;
    if (want != u->n_in)
        return FE_FALSE_AT(f, nnc_json_get(u->item, "in") ? nnc_json_get(u->item, "in") : u->item,
            path, "block %s takes %d input%s, found %d: name them with \"in\"", u->op, want,
            want == 1 ? "" : "s", u->n_in);
    if (!names)
        return fe_define(f, block, in, path, "input", 1, u->in, false);
    for (const nnc_item *n = names->child; n; n = n->next, i++) {
        if (!fe_define(f, n, in, path, n->text, 1, &u->in[i], false))
            return false;
    }
    return true;
}

/* Expands the layers of a block, or of the group u->item when block is NULL. A group can use outer names; a block cannot. */
static bool run_body(
    fe *f, const fe_ctx *c, const use *u, const nnc_item *block, const char *path, flow *out)
{
    fe_scope scope = {block ? NULL : c->scope, ++f->n_scope};
    fe_ctx in = *c;
    flow first = {u->in, 1, NULL};
    const nnc_item *body = block ? block : u->item;
    in.up = c;
    in.scope = &scope;
    in.path = path;
    in.block = block;
    in.depth = c->depth + 1;
    for (const fe_ctx *p = c; p && block; p = p->up)
        if (p->block == block)
            return FE_FALSE_AT(f, u->item, path, "block `%s` uses itself", u->op);
    if (in.depth > NNC_MAX_NESTING)
        return FE_FALSE_AT(
            f, u->item, path, "groups and blocks are nested deeper than %d", NNC_MAX_NESTING);
    if (!block && u->n_in != 1)
        return FE_FALSE_AT(f, nnc_json_get(u->item, "in"), path,
            "a group takes 1 input, found %d: its layers can name earlier layers themselves",
            u->n_in);
    if (block && !bind_args(f, c, u, block, path, &in.env))
        return false;
    if (block ? !define_inputs(f, &in, u, block, path)
              : !fe_define(f, u->item, &in, path, "input", 1, u->in, false))
        return false;
    return run_layers(f, &in, nnc_json_get(body, "layers"), first, out) &&
           body_result(f, &in, body, path, *out, out);
}

/* ---- one layer of the file ------------------------------------------------------------------- */

static bool run_once(
    fe *f, const fe_ctx *c, const use *u, const char *path, const char *prefix, flow *out)
{
    const nnc_item *block = u->op && f->blocks ? nnc_json_get(f->blocks, u->op) : NULL;
    const nnc_item *w = nnc_json_get(u->item, "weights");
    const char *weights = prefix;
    fe_ctx in = *c;
    if (w && !fe_read_word(f, w, path, c->env, "weights", &weights))
        return false;
    in.tied |= w != NULL;
    if (u->op && !block)
        return build_op(f, &in, u, path, prefix, weights, out);
    in.prefix = nnc_arena_printf(&f->a, "%s.", weights);
    if (!in.prefix)
        return fe_oom(f);
    return run_body(f, &in, u, block, path, out);
}

/* Iteration k > 0 takes the result of the one before as its first input; the other inputs stay. */
static bool run_repeated(fe *f, const fe_ctx *c, use *u, flow *out)
{
    nnc_ref *in = nnc_arena_memdup(&f->a, u->in, (size_t)u->n_in * sizeof *in);
    if (!in)
        return fe_oom(f);
    *out = (flow){in, 1, u->name};
    use once = *u;
    for (int64_t k = 0; k < u->repeat; k++) {
        fe_env var = {u->index, {.i = k}, c->env};
        fe_ctx inner = *c;
        const char *path = nnc_arena_printf(&f->a, "%s[%lld]", u->path, (long long)k);
        const char *prefix = nnc_arena_printf(&f->a, "%s.%lld", u->prefix, (long long)k);
        inner.env = &var;
        once.in = nnc_arena_memdup(&f->a, u->in, (size_t)u->n_in * sizeof *in);
        if (!path || !prefix || !once.in)
            return fe_oom(f);
        once.in[0] = out->ref[0];
        if (!count_step(f, u->item, path) || !run_once(f, &inner, &once, path, prefix, out))
            return false;
    }
    out->name = u->name;
    return true;
}

/* Placement, dtype and frozen: the layer's own, else inherited. */
static bool read_context(fe *f, const use *u, fe_ctx *c)
{
    const nnc_item *d = nnc_json_get(u->item, "device"), *t = nnc_json_get(u->item, "dtype"),
                   *z = nnc_json_get(u->item, "frozen");
    int64_t i = c->device;
    nnc_dtype dtype = DT_f32;
    if (d && !fe_read_int(f, d, u->path, c->env, "device", 0, INT16_MAX, &i))
        return false;
    c->device = (int16_t)i;
    if (t && !fe_read_dtype(f, t, u->path, c->env, &dtype))
        return false;
    if (t)
        c->dtype = dtype;
    if (z && !fe_read_bool(f, z, u->path, c->env, "frozen", &c->frozen))
        return false;
    return true;
}

static bool read_repeat(fe *f, const fe_ctx *c, use *u)
{
    const nnc_item *r = nnc_json_get(u->item, "repeat"), *i = nnc_json_get(u->item, "index");
    u->repeat = -1;
    u->index = "i";
    if (i && (!nnc_is_string(i) || !fe_is_name(i->text) || strlen(i->text) > FE_MAX_NAME))
        return FE_FALSE_AT(f, i, u->path, "index: expected the name of a variable");
    if (i)
        u->index = i->text;
    if (i && !r)
        return fe_fail_at(
                   f, i, true, u->path, "index: it counts a \"repeat\", which the layer lacks"),
               false;
    return !r || fe_read_int(f, r, u->path, c->env, "repeat", 0, NNC_MAX_LAYERS, &u->repeat);
}

static bool read_use(fe *f, const fe_ctx *c, int index, use *u)
{
    const nnc_item *op = nnc_is_string(u->item) ? u->item : nnc_json_get(u->item, "op"),
                   *name = nnc_json_get(u->item, "name");
    const char *label = "group", *here = nnc_arena_printf(&f->a, "%s/%d", c->path, index);
    if (!here)
        return fe_oom(f);
    if (op && (!fe_read_word(f, op, here, c->env, "op", &u->op)))
        return false;
    if (name && (!fe_read_word(f, name, here, c->env, "name", &u->name) ||
                    !fe_name_ok(f, name, here, u->name)))
        return false;
    if (name && (!strcmp(u->name, "prev")))
        return FE_FALSE_AT(f, name, here, "`prev` means the layer before; choose another name");
    label = u->name ? u->name : u->op ? u->op : label;
    u->path = nnc_arena_printf(&f->a, "%s/%d/%.*s", c->path, index, FE_MAX_NAME, label);
    u->prefix = u->name ? nnc_arena_printf(&f->a, "%s%s", c->prefix, u->name)
                        : nnc_arena_printf(&f->a, "%s%d", c->prefix, index);
    if (!u->path || !u->prefix)
        return fe_oom(f);
    if (strlen(u->path) > FE_MAX_PATH)
        return FE_FALSE_AT(
            f, u->item, NULL, "the layer's path is longer than %d characters", FE_MAX_PATH);
    return !op || !strstr(op->text, "${") || fe_check_op(f, u->item, u->op, u->path);
}

static bool run_layer(fe *f, const fe_ctx *c, const nnc_item *item, int index, flow prev, flow *out)
{
    use u = {.item = item};
    int64_t when = 1;
    if (!read_use(f, c, index, &u) || !count_step(f, item, u.path))
        return false;
    const nnc_item *w = nnc_json_get(item, "when"), *in = nnc_json_get(item, "in");
    fe_val v;
    if (w) {
        if (!fe_eval(f, w, u.path, c->env, "when", &v))
            return false;
        if (v.is_word)
            return FE_FALSE_AT(f, w, u.path,
                "when: expected a condition such as \"bn == 1\" or \"order == "
                "'relu-pool'\"");
        when = v.i;
    }
    if (in) {
        if (!fe_resolve_list(f, in, item, c, u.path, "in", prev.ref, &u.n_in, &u.in))
            return false;
    } else {
        u.in = (nnc_ref *)prev.ref;
        u.n_in = 1;
    }
    fe_ctx inner = *c;
    if (!read_context(f, &u, &inner) || !read_repeat(f, c, &u))
        return false;
    if (!when)
        *out = in ? (flow){u.in, 1, u.name} : prev;
    else if (u.repeat >= 0 ? !run_repeated(f, &inner, &u, out)
                           : !run_once(f, &inner, &u, u.path, u.prefix, out))
        return false;
    out->name = when ? u.name : prev.name;
    return !u.name || fe_define(f, item, c, u.path, u.name, out->n, out->ref, !when);
}

static bool run_layers(fe *f, const fe_ctx *c, const nnc_item *layers, flow in, flow *out)
{
    int i = 0;
    *out = in;
    for (const nnc_item *l = layers->child; l; l = l->next) {
        flow prev = *out;
        if (!run_layer(f, c, l, i++, prev, out))
            return false;
    }
    return true;
}

/* ---- the model ------------------------------------------------------------------------------- */

static bool add_input(fe *f, const fe_ctx *c, const nnc_item *i, nnc_ref *out)
{
    const char *path = nnc_arena_printf(&f->a, "/inputs/%.*s", FE_MAX_NAME, i->key);
    const nnc_item *shape = nnc_is_object(i) ? nnc_json_get(i, "shape") : i,
                   *d = nnc_json_get(i, "dtype");
    nnc_dtype dtype = DT_f32;
    nnc_type t;
    static const char *const keys[] = {"shape", "dtype", "doc"};
    if (!path)
        return fe_oom(f);
    for (const nnc_item *k = nnc_is_object(i) ? i->child : NULL; k; k = k->next)
        if (strcmp(k->key, "shape") != 0 && strcmp(k->key, "dtype") != 0 &&
            strcmp(k->key, "doc") != 0)
            return fe_fail_at(f, k, true, path,
                       "unknown key \"%.60s\" of an input%s (it takes: shape, dtype, doc)", k->key,
                       fe_hint(f, k->key, keys, 3)),
                   false;
    if (nnc_json_get(i, "doc") && !nnc_is_string(nnc_json_get(i, "doc")))
        return FE_FALSE_AT(f, nnc_json_get(i, "doc"), path, "doc: expected a string");
    if (!shape)
        return FE_FALSE_AT(f, i, path, "an input needs \"shape\"");
    if (!fe_name_ok(f, i, path, i->key) || (d && !fe_read_dtype(f, d, path, f->globals, &dtype)) ||
        !fe_read_shape(f, shape, path, f->globals, dtype, &t))
        return false;
    if (!strcmp(i->key, "prev"))
        return fe_fail_at(f, i, true, path, "`prev` means the layer before; choose another name"),
               false;
    f->g->origin = path;
    f->g->loc = (nnc_loc){f->file, i->line, i->col, path};
    nnc_ref *ref = ARENA_NEW(&f->a, nnc_ref, 1);
    if (!ref)
        return fe_oom(f);
    *out = *ref = nnc_input(f->g, i->key, &t);
    if (f->g->status)
        f->status = f->g->status;
    return !f->status && fe_define(f, i, c, path, i->key, 1, ref, false);
}

static bool add_outputs(fe *f, const fe_ctx *c, const nnc_item *outputs, flow last)
{
    int n = last.n, i = 0;
    nnc_ref *ref;
    if (outputs) {
        if (!fe_resolve_list(f, outputs, NULL, c, "/outputs", "outputs", last.ref, &n, &ref))
            return false;
        for (const nnc_item *o = nnc_is_list(outputs) ? outputs->child : outputs; i < n;
             i++, o = o->next) {
            const char *name;
            if (!fe_read_word(f, o, "/outputs", c->env, "outputs", &name))
                return false;
            for (uint32_t k = 0; k < f->g->n_output; k++)
                if (!strcmp(f->g->output_name[k], name))
                    return FE_FALSE_AT(f, o, "/outputs", "`%s` is listed twice", name);
            nnc_output(f->g, ref[i], name);
        }
    }
    for (; !outputs && i < n; i++) {
        const char *name = last.name ? last.name : "output";
        if (n > 1 && !(name = nnc_arena_printf(&f->a, "%s_%d", name, i)))
            return fe_oom(f);
        nnc_output(f->g, last.ref[i], name);
    }
    if (f->g->status)
        f->status = f->g->status;
    return !f->status;
}

nnc_status fe_expand_model(
    fe *f, const nnc_item *inputs, const nnc_item *layers, const nnc_item *outputs)
{
    fe_scope scope = {NULL, ++f->n_scope};
    fe_ctx c = {.env = f->globals,
        .scope = &scope,
        .path = "/layers",
        .prefix = "",
        .device = -1,
        .dtype = -1};
    nnc_ref *first = ARENA_NEW(&f->a, nnc_ref, 1), r = NNC_NONE;
    flow out;
    NNC_NEED(first, f->sink);
    *first = NNC_NONE;
    for (const nnc_item *i = inputs->child; i; i = i->next) {
        if (!add_input(f, &c, i, &r))
            return f->status;
        if (*first == NNC_NONE)
            *first = r;
    }
    if (run_layers(f, &c, layers, (flow){first, 1, NULL}, &out))
        add_outputs(f, &c, outputs, out);
    return f->status;
}
