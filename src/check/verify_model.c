/* check/verify_model.c -- nnc verify MODEL: fused, unfused and float64 compared layer by layer, and outputs with those in a file. */
#include "check/check.h"
#include "check/layers.h"
#include "report/report.h"
#include "session/session.h"
#include "tensors/tensors.h"
#include <math.h>
#include <string.h>

/* An output compared with that of a file. */
typedef struct stored {
    nnc_error against; /* fused against the file */
    nnc_error reference; /* the file against float64 */
    double limit;
    bool agrees;
} stored;

static void compare_stored(
    const layers *l, int o, const nnc_tensor_entry *e, const void *data, stored *s)
{
    const layer *y = &l->at[o];
    const nnc_reference *r = &l->reference;
    const nnc_dtype have = (nnc_dtype)e->type.dtype;
    const bool rows = r->rows && r->carried_out[o];
    const int64_t n = nnc_type_numel(&y->type), row = n / (rows ? y->type.dim[0] : 1);
    for (int64_t i = 0; i < n; i++)
        if (r->rows || !nnc_is_open(r, o, i))
            nnc_error_add(&s->against, nnc_get_f64((nnc_dtype)y->type.dtype, l->result[o], i),
                nnc_get_f64(have, data, i));
    for (int64_t k = 0; k < (rows ? r->rows : 1); k++)
        for (int64_t i = 0; i < row; i++)
            nnc_error_add_reference(&s->reference, r, o, k * row + i,
                nnc_get_f64(have, data, (rows ? r->row[k] : 0) * row + i), 0, false);
    /* both may be at their limits: the square of their difference may be four times as large */
    s->limit = 4 * fmax(y->limit, l->o->tolerance != 0 ? 0 : nnc_default_tolerance(have));
    s->agrees = nnc_error_within(&s->against, s->limit * s->against.ref2);
}

static nnc_status check_stored(const layers *l, const nnc_tensors *t, nnc_sink *sink)
{
    NNC_LOCAL(nnc_mismatch) m = {.missing = 0};
    for (int o = 0; o < l->n_output; o++) {
        const char *name = l->source->output_name[o];
        const nnc_type *want = &l->at[o].type;
        const nnc_tensor_entry *e = nnc_tensors_find(t, name);
        const bool floats = e && !e->why && nnc_is_float((nnc_dtype)e->type.dtype) &&
                            nnc_is_float((nnc_dtype)want->dtype);
        if (!e)
            nnc_mismatch_missing(&m, name, want, "");
        else if (e->why || !nnc_type_same_shape(&e->type, want) ||
                 (e->type.dtype != want->dtype && !floats))
            nnc_mismatch_wrong(&m, name, want, e, "");
    }
    for (int i = 0; i < nnc_tensors_count(t); i++) {
        const nnc_tensor_entry *e = nnc_tensors_at(t, i);
        bool known = false;
        for (int o = 0; o < l->n_output; o++)
            known |= !strcmp(e->name, l->source->output_name[o]);
        if (!known)
            nnc_mismatch_extra(&m, e->name, e, "");
    }
    return nnc_mismatch_report(&m, l->against, "outputs", sink);
}

static nnc_status compare_file(layers *l, nnc_tensors *t, stored *s, nnc_sink *sink)
{
    NNC_TRY(check_stored(l, t, sink));
    for (int o = 0; o < l->n_output; o++) {
        const nnc_tensor_entry *e = nnc_tensors_find(t, l->source->output_name[o]);
        NNC_FREED void *data = nnc_aligned_alloc(64, (size_t)e->size);
        NNC_NEED(data, sink);
        NNC_TRY(nnc_tensors_read(t, e, data, sink));
        compare_stored(l, o, e, data, &s[o]);
        l->agrees &= s[o].agrees;
    }
    return NNC_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

static const char *nearer(const layer *y)
{
    const side *f = &y->side[FUSED], *u = &y->side[UNFUSED];
    if (!f->there || !u->there)
        return f->there ? "fused" : u->there ? "unfused" : "";
    const double a = nnc_error_nmse(&f->e), b = nnc_error_nmse(&u->e);
    return a == b ? "equal" : a < b ? "fused" : "unfused";
}

/* The layer's own name in the report: of an output, its name among the outputs. */
static const char *title(const layers *l, int i)
{
    return i < l->n_output ? l->source->output_name[i] : l->at[i].name;
}

static void put_side(nnc_text *t, const side *s)
{
    char text[32];
    if (s->there)
        snprintf(text, sizeof text, "%.2g", nnc_error_max_rel(&s->e));
    nnc_printf(t, " %9s", layers_all_open(s) ? "open" : s->there ? text : s->in ? "inside" : "-");
}

static void put_row(nnc_text *t, const layers *l, int i, int width)
{
    const layer *y = &l->at[i];
    const double worst = fmax(y->side[FUSED].there ? nnc_error_nmse(&y->side[FUSED].e) : 0,
        y->side[UNFUSED].there ? nnc_error_nmse(&y->side[UNFUSED].e) : 0);
    nnc_printf(t, "%-*s", width, title(l, i));
    for (int k = 0; k < SIDES; k++)
        put_side(t, &y->side[k]);
    nnc_printf(t, " %9.2g %9.2g  %s%s\n", sqrt(worst), sqrt(y->limit), nearer(y),
        y->agrees ? "" : "  DIFFERS");
}

/* Where passes may have gone wrong: the first layer for which the fused graph has another value, after the last one that is right. */
static const layer *first_lost(const layers *l)
{
    const layer *lost = NULL;
    for (int i = l->n - 1; i >= l->n_output; i--) {
        const layer *y = &l->at[i];
        if (y->side[FUSED].there && y->agrees)
            break;
        if (y->side[FUSED].other && !y->side[FUSED].there)
            lost = y;
    }
    return lost;
}

static void put_first(nnc_text *t, const layers *l)
{
    static const char *const word[] = {"fused", "unfused"};
    const layer *y = &l->at[l->first];
    nnc_puts(t, "first over its limit: ");
    nnc_puts(t, title(l, l->first));
    if (y->loc.file && y->loc.line)
        nnc_printf(t, " (%s:%d)", y->loc.file, y->loc.line);
    nnc_putc(t, ' ');
    nnc_put_type(t, &y->type);
    nnc_putc(t, '\n');
    const bool at_end = l->first < l->n_output || l->first >= l->n; /* an output or a state */
    const layer *lost = at_end ? first_lost(l) : NULL;
    if (lost)
        nnc_printf(t,
            "  the kernels compute what their graph says: a pass is wrong, first at %s (%s)\n",
            lost->name, lost->side[FUSED].in ? lost->side[FUSED].in : "?");
    for (int k = 0; k < SIDES; k++)
        if (y->side[k].there && nnc_error_nmse(&y->side[k].e) > 0)
            nnc_printf(t, "  %s: element %lld is %.9g, float64 %.9g; computed by %s\n", word[k],
                (long long)y->side[k].worst, y->side[k].got, y->side[k].want,
                y->side[k].in ? y->side[k].in : "?");
}

static void put_stored(nnc_text *t, const layers *l, const stored *s)
{
    for (int o = 0; o < l->n_output; o++) {
        const double ours = nnc_error_nmse(&l->at[o].side[FUSED].e),
                     theirs = nnc_error_nmse(&s[o].reference);
        nnc_printf(t,
            "%s against %s: max error %.2g, rms %.2g, limit %.2g; nearer to float64: %s%s\n",
            l->source->output_name[o], l->against, nnc_error_max_rel(&s[o].against),
            sqrt(nnc_error_nmse(&s[o].against)), sqrt(s[o].limit),
            ours == theirs  ? "equal"
            : ours < theirs ? "nnc"
                            : "the file",
            s[o].agrees ? "" : "  DIFFERS");
    }
}

static void put_ties(nnc_text *t, const layers *l)
{
    if (l->widened)
        nnc_printf(t,
            "near ties: %zu choices (the sign of a relu's operand, which of two numbers is larger) "
            "that rounding may decide either way:\nlimits allow for them\n",
            l->ties.n);
}

static void put_not_finite(nnc_text *t, const layers *l)
{
    int n = 0, open = 0;
    for (int i = 0; i < l->n + l->n_state; i++) {
        n += l->at[i].side[FUSED].e.not_finite || l->at[i].side[UNFUSED].e.not_finite;
        open += l->at[i].side[FUSED].e.open || l->at[i].side[UNFUSED].e.open;
    }
    if (open)
        nnc_printf(t,
            "%d of the rows %s elements that are not compared (open: all of a row): " NNC_OPEN "\n",
            open, open == 1 ? "has" : "have");
    if (n)
        nnc_printf(t, "%d of the rows %s elements that are NaN or infinite in float64, too\n", n,
            n == 1 ? "has" : "have");
}

static void print_text(const layers *l, const stored *s, nnc_text *t)
{
    int width = 8;
    for (int i = 0; i < l->n + l->n_state; i++)
        width = (int)nnc_max64(width, nnc_min64((int64_t)strlen(title(l, i)), 48));
    nnc_printf(t, "%-*s %9s %9s %9s %9s  nearer to float64\n", width, "layer", "fused", "unfused",
        "rms", "limit");
    for (int i = l->n_output; i < l->n; i++)
        put_row(t, l, i, width);
    nnc_puts(t, "outputs\n");
    for (int i = 0; i < l->n_output; i++)
        put_row(t, l, i, width);
    if (l->n_state)
        nnc_puts(t, "changes of states in a step\n");
    for (int i = l->n; i < l->n + l->n_state; i++)
        put_row(t, l, i, width);
    nnc_printf(t,
        "fused, unfused: largest error over the largest number; inside: only in registers of a "
        "fused kernel; -: not computed,\nother ops replace it; rms: root of the nmse of the worse "
        "of both, to be compared with the limit. Reference: %s\n",
        l->reference.scope);
    put_not_finite(t, l);
    put_ties(t, l);
    if (l->against)
        put_stored(t, l, s);
    if (l->first >= 0)
        put_first(t, l);
    else
        nnc_puts(t, l->agrees ? "all layers agree with float64\n"
                              : "all layers agree with float64, outputs differ from the file\n");
}

static void json_side(nnc_json_writer *w, const char *key, const side *s)
{
    NNC_JSON_OBJECT(w, key, J_BOOL("stored", s->there), J_STRING("in", s->in ? s->in : ""),
        J_REAL("max_rel_err", s->there ? nnc_error_max_rel(&s->e) : NAN),
        J_REAL("nmse", s->there ? nnc_error_nmse(&s->e) : NAN), J_INT("not_compared", s->e.open));
}

static void json_rows(nnc_json_writer *w, const layers *l, const char *key, int from, int to)
{
    nnc_json_open(w, key, '[');
    for (int i = from; i < to; i++) {
        const layer *y = &l->at[i];
        nnc_json_open_at(w, 1, NULL, '{');
        NNC_JSON(w, J_STRING("layer", title(l, i)), J_REAL("limit", y->limit),
            J_STRING("nearer", nearer(y)), J_BOOL("agree", y->agrees));
        json_side(w, "fused", &y->side[FUSED]);
        json_side(w, "unfused", &y->side[UNFUSED]);
        nnc_json_close(w, '}');
    }
    nnc_json_close(w, ']');
}

static void print_json(const layers *l, const stored *s, nnc_text *t)
{
    nnc_json_writer w = {.out = t};
    nnc_json_open(&w, NULL, '{');
    NNC_JSON(&w, J_STRING("model", l->source->name), J_STRING("reference", l->reference.scope),
        J_BOOL("agree", l->agrees), J_STRING("first", l->first < 0 ? "" : title(l, l->first)));
    json_rows(&w, l, "layers", l->n_output, l->n);
    json_rows(&w, l, "outputs", 0, l->n_output);
    json_rows(&w, l, "states", l->n, l->n + l->n_state);
    NNC_JSON(&w, J_INT("near_ties", l->widened ? l->ties.n : 0));
    nnc_json_open(&w, "against", '[');
    for (int o = 0; l->against && o < l->n_output; o++)
        NNC_JSON_OBJECT(&w, NULL, J_STRING("output", l->source->output_name[o]),
            J_REAL("max_rel_err", nnc_error_max_rel(&s[o].against)),
            J_REAL("nmse", nnc_error_nmse(&s[o].against)), J_REAL("limit", s[o].limit),
            J_REAL("nmse_to_float64", nnc_error_nmse(&s[o].reference)),
            J_BOOL("agree", s[o].agrees));
    nnc_json_close(&w, ']');
    nnc_json_end(&w, '}');
}

nnc_status nnc_verify_model(nnc_env *e, const nnc_model *m, const nnc_compare_options *o,
    const char *against, nnc_format f, nnc_text *out, bool *agrees, nnc_sink *sink)
{
    NNC_OWNED(nnc_tensors) *t = NULL;
    NNC_LOCAL(layers) l = {.against = against};
    *agrees = false;
    if (against)
        NNC_TRY(nnc_tensors_open(against, NULL, &t, sink));
    NNC_TRY(nnc_layers_verify(&l, e, m, o, sink));
    stored *s = ARENA_NEW(&l.a, stored, l.n_output + 1);
    NNC_NEED(s, sink);
    if (against)
        NNC_TRY(compare_file(&l, t, s, sink));
    (f == NNC_JSON ? print_json : print_text)(&l, s, out);
    if (o->json)
        print_json(&l, s, o->json);
    *agrees = l.agrees;
    return out->oom || (o->json && o->json->oom) ? nnc_nomem(sink) : NNC_OK;
}
