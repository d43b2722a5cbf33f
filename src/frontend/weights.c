/* frontend/weights.c -- the source of each weight's numbers: the generator, or a tensor of a safetensors file.
 *
 * Generated weights keep the magnitude of activations through a deep net: a contraction with fan-in n is uniform in +-sqrt(6/n) when a
 * relu-like activation follows (He et al. 2015: relu halves the second moment), otherwise in +-sqrt(3/n); a branch that ends in a
 * residual add is scaled by half, so that a chain of residual blocks grows slowly. The consumers are known only when the model is
 * complete, so these scales are set at the end. */
#include "frontend/internal.h"
#include <math.h>
#include <string.h>

enum { MAX_MISSING = 10, MAX_UNUSED = 10 };

static const char *stored_name(fe_layer *l, const char *suffix)
{
    if (!suffix)
        return l->weights;
    return nnc_arena_printf(&l->f->a, "%s.%s", l->weights, suffix);
}

static void report_missing(fe_layer *l, const char *name, const nnc_type *t)
{
    fe *f = l->f;
    int n = nnc_safetensors_count(f->st);
    const char **names = ARENA_NEW(&f->a, const char *, n ? n : 1);
    if (++f->missing > MAX_MISSING || !names)
        return;
    for (int i = 0; i < n; i++)
        names[i] = nnc_safetensors_at(f->st, i)->name;
    const char *dot = strrchr(name, '.'), *hint = fe_hint(f, name, names, (size_t)n);
    bool bias = dot && !strcmp(dot, ".bias") && fe_row_takes(&l->row, FK_bias);
    nnc_fail(f->sink, NNC_E_MODEL, l->loc, "weights file %s has no tensor `%s` (%s)%s",
        f->o->weights, name, fe_type_text(f, t),
        bias && (!*hint || strstr(hint, ".bias`"))
            ? "; without one, the layer wants \"bias\": false"
            : hint);
}

/* Makes w a tensor of the file, whose dtype may be another float type. false = reported. */
static bool from_file(fe_layer *l, nnc_weight *w, nnc_type *t)
{
    fe *f = l->f;
    const nnc_st_entry *e = nnc_safetensors_find(f->st, w->name);
    if (!e) {
        report_missing(l, w->name, t);
        return true; /* continues, so that all are reported */
    }
    f->st_used[e - nnc_safetensors_at(f->st, 0)] = true; /* entries lie in one array */
    if (e->why)
        return FE_FALSE(l, NULL, "weight `%s`: the model needs %s, but %s cannot give it: %s",
            w->name, fe_type_text(f, t), f->o->weights, e->why);
    bool both_float = nnc_is_float((nnc_dtype)e->type.dtype) && nnc_is_float((nnc_dtype)t->dtype);
    if (!nnc_type_same_shape(&e->type, t) || (e->type.dtype != t->dtype && !both_float)) {
        bool one = fe_row_takes(&l->row, FK_slopes) && nnc_type_numel(&e->type) == 1;
        fe_stop(f,
            nnc_fail(f->sink, NNC_E_MODEL, l->loc, "weight `%s`: the model needs %s, %s holds %s%s",
                w->name, fe_type_text(f, t), f->o->weights, fe_type_text(f, &e->type),
                one ? "; one slope is \"slopes\": 1" : ""));
        return false;
    }
    *w = (nnc_weight){.kind = NNC_W_file,
        .name = w->name,
        .file = f->o->weights,
        .offset = e->offset,
        .size = e->size,
        .header_hash = nnc_safetensors_header_hash(f->st)};
    *t = e->type;
    return true;
}

static bool check_size(fe_layer *l, const char *name, const nnc_type *t)
{
    const char *why;
    if (!nnc_type_check(t, &why))
        return FE_FALSE(l, NULL, "weight `%s` %s: %s", name, fe_type_text(l->f, t), why);
    l->f->weight_bytes += nnc_type_bytes(t);
    if (l->f->weight_bytes > FE_MAX_WEIGHT_BYTES)
        return FE_FALSE(l, NULL, "the weights exceed %lld bytes", (long long)FE_MAX_WEIGHT_BYTES);
    return true;
}

nnc_ref fe_weight(fe_layer *l, const char *suffix, const nnc_type *t, float scale, float shift)
{
    fe *f = l->f;
    if (f->status)
        return NNC_NONE;
    const char *name = stored_name(l, suffix);
    l->n_weight++;
    if (!name)
        return fe_nomem(f);
    fe_name *old = fe_find(f->weight, f->wslot, f->n_wslot, 0, name);
    if (old && l->ctx->tied && nnc_type_equal(nnc_typeof(f->g, old->ref[0]), t))
        return old->ref[0];
    if (old && l->ctx->tied)
        return fe_bad(l, "weights",
            "weight `%s` is %s at line %d, %s here: a shared weight needs the same type", name,
            fe_type_text(f, nnc_typeof(f->g, old->ref[0])), old->line, fe_type_text(f, t));
    if (old)
        return fe_bad(l, "name",
            "weight `%s` already belongs to the layer at line %d; choose another name, or share it "
            "with \"weights\"",
            name, old->line);
    if (!check_size(l, name, t))
        return NNC_NONE;
    if (!nnc_is_float((nnc_dtype)t->dtype) && !fe_has(l, FK_scale))
        scale = 4; /* integers: -3 .. 3 */
    nnc_weight w = {
        .kind = NNC_W_gen, .name = name, .seed = f->o->seed, .scale = scale, .shift = shift};
    nnc_type stored = *t;
    if (f->st && !from_file(l, &w, &stored))
        return NNC_NONE;
    nnc_ref r = nnc_param(f->g, &stored, &w);
    if (r == NNC_NONE)
        return r;
    nnc_set_name(f->g, r, name);
    nnc_def(f->g, r)->frozen = l->ctx->frozen || (suffix && !strncmp(suffix, "running_", 8));
    if (stored.dtype != t->dtype)
        r = nnc_cast(f->g, r, (nnc_dtype)t->dtype);
    fe_name *e =
        fe_add(f, &f->weight, &f->n_weight, &f->cap_weight, &f->wslot, &f->n_wslot, 0, name);
    nnc_ref *first = ARENA_NEW(&f->a, nnc_ref, 1);
    if (!e || !first)
        return fe_nomem(f);
    *first = r;
    e->ref = first;
    e->n_ref = 1;
    e->line = l->loc.line;
    return r;
}

bool fe_scale_later(fe *f, nnc_ref weight, nnc_ref user, double fan_in)
{
    if (weight == NNC_NONE || user == NNC_NONE)
        return false;
    const nnc_node *n = nnc_def(f->g, weight);
    if (n->op != OP_param || n->weight->kind != NNC_W_gen ||
        !nnc_is_float((nnc_dtype)nnc_typeof(f->g, weight)->dtype))
        return true;
    if (!ARENA_ROOM(&f->a, f->scaled, f->cap_scaled, f->n_scaled + 1))
        return fe_oom(f);
    f->scaled[f->n_scaled++] = (fe_scaled){f->g->value[weight].node, user, fan_in};
    return true;
}

/* ---- at the end ------------------------------------------------------------------------------ */

static bool keeps_size(nnc_op op)
{
    return op == OP_batchnorm || op == OP_maxpool || op == OP_avgpool || op == OP_reshape ||
           op == OP_transpose || op == OP_identity || op == OP_dropout || op == OP_cast ||
           op == OP_relayout;
}

/* user[v] = first node that reads v. */
static double gain(const nnc_graph *g, const uint32_t *user, nnc_ref v)
{
    while (user[v] != UINT32_MAX) { /* terminates: each step goes to a later node */
        const nnc_node *n = &g->node[user[v]];
        if (nnc_ops[n->op].flags & OF_relu)
            return 6;
        if (n->op == OP_add && n->n_in == 2) {
            nnc_ref other = n->in[n->in[0] == v];
            if (nnc_op_class((nnc_op)nnc_def(g, other)->op) != CL_leaf)
                return 0.75;
        } else if (!keeps_size((nnc_op)n->op)) {
            return 3;
        }
        v = n->out;
    }
    return 3;
}

static nnc_status settle_scales(fe *f)
{
    const nnc_graph *g = f->g;
    uint32_t *user = ARENA_NEW(&f->a, uint32_t, g->n_value + 1);
    NNC_NEED(user, f->sink);
    memset(user, 0xff, g->n_value * sizeof *user);
    for (uint32_t n = g->n_node; n-- > 0;)
        for (int i = 0; i < g->node[n].n_in; i++)
            user[g->node[n].in[i]] = n;
    for (size_t i = 0; i < f->n_scaled; i++) {
        const fe_scaled *s = &f->scaled[i];
        g->node[s->param].weight->scale = (float)sqrt(gain(g, user, s->user) / s->fan_in);
    }
    return NNC_OK;
}

nnc_status fe_weights_open(fe *f)
{
    if (!f->o->weights)
        return NNC_OK;
    NNC_TRY(nnc_safetensors_open(f->o->weights, &f->st, f->sink));
    f->st_used = ARENA_NEW(&f->a, bool, nnc_safetensors_count(f->st) + 1);
    return f->st_used ? NNC_OK : nnc_nomem(f->sink);
}

static void warn_unused(fe *f)
{
    NNC_LOCAL(nnc_text) t = {0};
    int n = 0;
    for (int i = 0; i < nnc_safetensors_count(f->st); i++) {
        const char *name = nnc_safetensors_at(f->st, i)->name, *dot = strrchr(name, '.');
        if (dot &&
            !strcmp(dot,
                ".num_batches_tracked")) /* part of PyTorch's batchnorm; used by training only */
            continue;
        if (!f->st_used[i] && n++ < MAX_UNUSED)
            nnc_printf(&t, "%s%.100s", n > 1 ? ", " : "", name);
    }
    if (n)
        nnc_warn(f->sink, (nnc_loc){.file = f->o->weights},
            "%d of %d tensors are not used by the model: %s%s", n, nnc_safetensors_count(f->st),
            nnc_text_str(&t), n > MAX_UNUSED ? ", ..." : "");
}

nnc_status fe_weights_close(fe *f, bool ok)
{
    nnc_status st = NNC_OK;
    if (ok && f->missing > MAX_MISSING)
        nnc_fail(f->sink, NNC_E_MODEL, (nnc_loc){.file = f->o->weights},
            "%d tensors are missing in all", f->missing);
    if (ok && f->missing)
        st = NNC_E_MODEL;
    if (ok && f->st)
        warn_unused(f);
    if (ok && !st)
        st = settle_scales(f);
    nnc_safetensors_close(f->st);
    f->st = NULL;
    return st;
}

/* Replaces the weights of a text graph by those in the --weights file with the same names. */
nnc_status fe_weights_bind_graph(nnc_graph *g, const nnc_model_options *o, nnc_sink *sink)
{
    nnc_safetensors *s;
    nnc_status st = NNC_OK;
    NNC_TRY(nnc_safetensors_open(o->weights, &s, sink));
    const char *file = nnc_arena_strdup(&g->arena, o->weights);
    if (!file)
        st = nnc_nomem(sink);
    for (uint32_t i = 0; i < g->n_node && !st; i++) {
        nnc_node *n = &g->node[i];
        if (n->op != OP_param || !n->weight || !n->weight->name)
            continue;
        const nnc_st_entry *e = nnc_safetensors_find(s, n->weight->name);
        if (!e)
            st = nnc_fail(sink, NNC_E_MODEL, n->loc, "weights file %s has no tensor `%s`", file,
                n->weight->name);
        else if (e->why)
            st =
                nnc_fail(sink, NNC_E_MODEL, n->loc, "weight `%s` of %s: %s", e->name, file, e->why);
        else if (!nnc_type_equal(&e->type, nnc_typeof(g, n->out)))
            st = nnc_fail(sink, NNC_E_MODEL, n->loc,
                "weight `%s` in %s has another type than the graph's", e->name, file);
        else
            *n->weight = (nnc_weight){.kind = NNC_W_file,
                .name = n->weight->name,
                .file = file,
                .offset = e->offset,
                .size = e->size,
                .header_hash = nnc_safetensors_header_hash(s)};
    }
    nnc_safetensors_close(s);
    return st;
}
