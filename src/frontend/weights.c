/* frontend/weights.c -- the source of each weight's numbers: the generator, or a tensor of a file.
 *
 * Generated weights keep the magnitude of activations through a deep net (He et al. 2015). A contraction with fan-in n is uniform in
 * +-sqrt(6/n) before a relu-like activation, which halves the second moment, otherwise in +-sqrt(3/n). A branch that ends in a
 * residual add is scaled by half, so that a chain of residual blocks grows slowly. The consumers are known only when the model is
 * complete, so these scales are set at the end. */
#include "frontend/internal.h"
#include <math.h>
#include <string.h>

static const char *stored_name(fe_layer *l, const char *suffix)
{
    if (!suffix)
        return l->weights;
    return nnc_arena_printf(&l->f->a, "%s.%s", l->weights, suffix);
}

/* The end of a weight's line in the list of those that the file should have: its layer, and a hint. */
static const char *remark(fe_layer *l, const char *hint)
{
    const char *s = nnc_arena_printf(&l->f->a, ", for %s%s", l->path, hint);
    return s ? s : "";
}

static void note_missing(fe_layer *l, const char *name, const nnc_type *t)
{
    fe *f = l->f;
    int n = nnc_tensors_count(f->st);
    const char **names = ARENA_NEW(&f->a, const char *, n + 1);
    for (int i = 0; names && i < n; i++)
        names[i] = nnc_tensors_at(f->st, i)->name;
    const char *dot = strrchr(name, '.'), *hint = names ? fe_hint(f, name, names, (size_t)n) : "";
    bool bias = dot && !strcmp(dot, ".bias") && fe_row_takes(&l->row, FK_bias);
    bool none = bias && (!*hint || strstr(hint, ".bias`"));
    nnc_mismatch_missing(&f->mismatch, name, t,
        remark(l, none ? "; without one, the layer wants \"bias\": false" : hint));
}

/* w as a reference to e's bytes in the file or, where they need conversion, the converted ones in memory of the arena. */
static nnc_status take_entry(const nnc_tensors *st, const nnc_tensor_entry *e, const char *file,
    nnc_arena *a, nnc_weight *w, nnc_sink *sink)
{
    *w = (nnc_weight){
        .kind = e->offset < 0 ? NNC_W_inline : NNC_W_file, .name = w->name, .size = e->size};
    if (e->offset >= 0) {
        w->file = file;
        w->data = e->data;
        w->offset = e->offset;
        w->header_hash = nnc_tensors_hash(st);
        return NNC_OK;
    }
    void *data = nnc_arena_alloc(a, 1, (size_t)e->size);
    NNC_NEED(data, sink);
    w->data = data;
    return nnc_tensors_read(st, e, data, sink);
}

/* Have both as many rows and columns, if all dimensions but the first are one? */
static bool is_same_matrix(const nnc_type *a, const nnc_type *b)
{
    return a->rank > b->rank && b->rank == 2 && a->dim[0] == b->dim[0] &&
           nnc_type_numel(a) == nnc_type_numel(b);
}

/* Makes w a tensor of the file, whose dtype may be another float type. Differences are noted: all are reported at the end. */
static bool from_file(fe_layer *l, nnc_weight *w, nnc_type *t)
{
    fe *f = l->f;
    const nnc_tensor_entry *e = nnc_tensors_find(f->st, w->name);
    const bool own = e != NULL;
    e = e ? e : fe_timm_find(&f->timm, w->name);
    if (!e) {
        note_missing(l, w->name, t);
        return true;
    }
    f->st_used[e - nnc_tensors_at(f->st, 0)] = true; /* entries lie in one array */
    const bool floats = !e->why && nnc_is_float(e->type.dtype) && nnc_is_float(t->dtype);
    nnc_type found = e->type;
    if (!own && !e->why && is_same_matrix(&e->type, t)) /* a convolution that is a linear layer */
        found = nnc_type_make(e->type.dtype, t->rank, t->dim);
    if (e->why || !nnc_type_same_shape(&found, t) || (e->type.dtype != t->dtype && !floats)) {
        bool one = !e->why && fe_row_takes(&l->row, FK_slopes) && nnc_type_numel(&e->type) == 1;
        nnc_mismatch_wrong(
            &f->mismatch, w->name, t, e, remark(l, one ? "; one slope is \"slopes\": 1" : ""));
        return true;
    }
    *t = found;
    nnc_status st = take_entry(f->st, e, f->o->weights, &f->a, w, f->sink);
    return !st || (fe_stop(f, st), false);
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
    if (!nnc_is_float(t->dtype) && !fe_has(l, FK_scale))
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
    nnc_def(f->g, r)->frozen = l->ctx->frozen;
    if (stored.dtype != t->dtype)
        r = nnc_cast(f->g, r, t->dtype);
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
        !nnc_is_float(nnc_typeof(f->g, weight)->dtype))
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
            if (nnc_op_class(nnc_def(g, other)->op) != CL_leaf)
                return 0.75;
        } else if (!keeps_size(n->op)) {
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

/* The named weights of a graph, all of them from one file, as the tensors of that file. */
static nnc_status list_again(const nnc_model_options *o, nnc_tensors **out, nnc_sink *sink)
{
    const nnc_graph *g = o->again;
    NNC_LOCAL(nnc_arena) a = {0};
    const nnc_weight **w = ARENA_NEW(&a, const nnc_weight *, g->n_node + 1);
    const nnc_type **t = ARENA_NEW(&a, const nnc_type *, g->n_node + 1);
    int n = 0;
    NNC_NEED(w && t, sink);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_param && g->node[i].weight && g->node[i].weight->name &&
            !(o->classes && g->node[i].weight->kind == NNC_W_gen)) { /* of the new head */
            w[n] = g->node[i].weight;
            t[n++] = nnc_typeof(g, g->node[i].out);
        }
    return nnc_tensors_listed(o->weights, n, w, t, out, sink);
}

nnc_status fe_open_weights(const nnc_model_options *o, nnc_tensors **out, nnc_sink *sink)
{
    if (o->again)
        return list_again(o, out, sink);
    NNC_TRY(o->n_own ? nnc_tensors_listed(o->weights, o->n_own, o->own, o->own_type, out, sink)
                     : nnc_tensors_open(o->weights, NULL, out, sink));
    return nnc_tensors_rename(*out, o->rename, o->n_rename, sink);
}

nnc_status fe_weights_open(fe *f)
{
    if (!f->o->weights)
        return NNC_OK;
    NNC_TRY(fe_open_weights(f->o, &f->st, f->sink));
    f->st_used = ARENA_NEW(&f->a, bool, nnc_tensors_count(f->st) + 1);
    NNC_NEED(f->st_used, f->sink);
    return fe_timm_open(&f->timm, f->st, &f->a, f->sink);
}

/* Has no weight taken tensor i of the file? num_batches_tracked is part of PyTorch's batchnorm, and used by training only. */
static bool is_extra(const nnc_tensors *st, const bool *used, int i)
{
    const char *dot = strrchr(nnc_tensors_at(st, i)->name, '.');
    return !used[i] && (!dot || strcmp(dot, ".num_batches_tracked") != 0);
}

/* Tensors of the file that no weight has taken. */
static void note_extra(const nnc_tensors *st, const bool *used, nnc_mismatch *m)
{
    for (int i = 0; i < nnc_tensors_count(st); i++)
        if (is_extra(st, used, i))
            nnc_mismatch_extra(m, nnc_tensors_at(st, i)->name, nnc_tensors_at(st, i), "");
}

static nnc_status put_unused_kinds(
    const nnc_tensors *st, const bool *used, nnc_text *kinds, nnc_sink *sink)
{
    int n = 0;
    NNC_FREED const char **name = nnc_malloc(((size_t)nnc_tensors_count(st) + 1) * sizeof *name);
    NNC_NEED(name, sink);
    for (int i = 0; i < nnc_tensors_count(st); i++)
        if (is_extra(st, used, i))
            name[n++] = nnc_tensors_at(st, i)->name;
    nnc_put_tensor_kinds(kinds, n, name);
    return kinds->oom ? nnc_nomem(sink) : NNC_OK;
}

/* Has the file all of the model's weights behind this prefix? */
static bool all_begin_with(const fe *f, const char *prefix, int n)
{
    bool ok = true;
    for (size_t k = 0; ok && k < f->n_weight; k++) {
        NNC_LOCAL(nnc_text) name = {0};
        nnc_printf(&name, "%.*s%s", n, prefix, f->weight[k].name);
        ok = !name.oom && nnc_tensors_find(f->st, nnc_text_str(&name));
    }
    return ok;
}

/* Wrappers put a prefix before all names: DataParallel "module.", torch.compile "_orig_mod.". False: there is none. */
static bool hint_prefix(fe *f)
{
    const char *first = f->n_weight ? f->weight[0].name : NULL;
    for (int i = 0; first && i < nnc_tensors_count(f->st); i++) {
        const char *name = nnc_tensors_at(f->st, i)->name, *at = strstr(name, first);
        const int n = at ? (int)(at - name) : 0;
        if (n && !at[strlen(first)] && all_begin_with(f, name, n)) {
            nnc_printf(&f->mismatch.lines,
                "\n  all names begin with `%.*s` in the file: --rename='%.*s*=*' takes it away", n,
                name, n, name);
            return true;
        }
    }
    return false;
}

nnc_status fe_weights_close(fe *f, bool ok)
{
    nnc_status st = NNC_OK;
    if (ok && f->st) {
        if (f->o->classes)
            fe_forget_head(f->g, &f->mismatch);
        note_extra(f->st, f->st_used, &f->mismatch);
        if (!f->mismatch.missing || !hint_prefix(f))
            fe_hint_family(f);
        if (f->mismatch.extra)
            nnc_puts(&f->mismatch.lines, "\n  --rename=NAME=- leaves a tensor of the file out");
        st = nnc_mismatch_report(&f->mismatch, f->o->weights, "weights", f->sink);
        fe_timm_say(&f->timm, f->o->weights, f->sink);
    }
    if (ok && !st)
        st = settle_scales(f);
    nnc_mismatch_deinit(&f->mismatch);
    nnc_tensors_close(f->st);
    f->st = NULL;
    return st;
}

/* ---- graphs that name their weights ---------------------------------------------------------- */

static nnc_status bind(nnc_graph *g, const nnc_tensors *s, const char *file, bool *used,
    nnc_mismatch *m, nnc_sink *sink)
{
    for (uint32_t i = 0; i < g->n_node; i++) {
        nnc_node *n = &g->node[i];
        if (n->op != OP_param || !n->weight || !n->weight->name)
            continue;
        const nnc_type *t = nnc_typeof(g, n->out);
        const nnc_tensor_entry *e = nnc_tensors_find(s, n->weight->name);
        if (e)
            used[e - nnc_tensors_at(s, 0)] = true;
        if (!e)
            nnc_mismatch_missing(m, n->weight->name, t, "");
        else if (e->why || !nnc_type_equal(&e->type, t))
            nnc_mismatch_wrong(m, n->weight->name, t, e, "");
        else
            NNC_TRY(take_entry(s, e, file, &g->arena, n->weight, sink));
    }
    return NNC_OK;
}

/* Replaces the weights of a graph by those in the --weights file with the same names. Tensors that are left over are no error: a graph
 * may have lost weights to folding. */
nnc_status fe_weights_bind_graph(nnc_graph *g, const nnc_model_options *o, nnc_sink *sink)
{
    nnc_tensors *s = NULL;
    NNC_LOCAL(nnc_mismatch) m = {.missing = 0}, left = {.missing = 0};
    nnc_status st = fe_open_weights(o, &s, sink);
    bool *used = st ? NULL : nnc_arena_alloc(&g->arena, (size_t)nnc_tensors_count(s) + 1, 1);
    const char *file = nnc_arena_strdup(&g->arena, o->weights);
    if (!st && !(used && file))
        st = nnc_nomem(sink);
    if (!st)
        st = bind(g, s, file, used, &m, sink);
    if (!st && o->classes)
        fe_forget_head(g, &m);
    if (!st)
        st = nnc_mismatch_report(&m, o->weights, "weights", sink);
    if (!st)
        note_extra(s, used, &left);
    NNC_LOCAL(nnc_text) lines = {0}, kinds = {0};
    nnc_mismatch_put(&lines, &left);
    if (!st)
        st = put_unused_kinds(s, used, &kinds, sink);
    if (left.extra && !st)
        nnc_warn(sink, (nnc_loc){.file = o->weights},
            "%d of %d tensors are not used by the model (%s):%s", left.extra, nnc_tensors_count(s),
            nnc_text_str(&kinds), nnc_text_str(&lines));
    nnc_tensors_close(s);
    return st;
}
