/* fit/memory.c -- planned memory of a model before it runs: sizes in bytes, tensors live at the peak, and the timeline. */
#include "report/report.h"
#include "session/session.h"
#include "data/data.h"
#include <stdlib.h>
#include <string.h>

enum { LONG_TIMELINE = 64, KEEP_ROWS = 40, BAR = 24, LAYERS = 52, AT_PEAK = 10 };

typedef struct timeline {
    const nnc_plan *p;
    int device;
    int64_t *live; /* arena bytes while command i runs */
    const uint8_t *kind; /* nnc_find_kinds */
    int32_t *at_peak; /* tensors that are live at the peak, the largest first */
    int n_at_peak;
} timeline;

/* Sums up live ranges in one sweep. */
static bool measure(timeline *m)
{
    const nnc_plan *p = m->p;
    m->live = nnc_calloc((size_t)p->n_cmd + 1, sizeof *m->live);
    if (!m->live)
        return false;
    for (int k = 0; k < p->n_tensor; k++) {
        const nnc_ptensor *x = &p->tensor[k];
        int first = x->first > 0 ? x->first : 0, last = x->last < p->n_cmd ? x->last : p->n_cmd - 1;
        if (x->device != m->device || x->space != SP_arena || x->alias_of >= 0 || first > last)
            continue;
        int64_t placed = nnc_align_up(x->bytes, nnc_plan_align(&p->device[m->device]));
        m->live[first] += placed;
        m->live[last + 1] -= placed;
    }
    for (int i = 1; i <= p->n_cmd; i++)
        m->live[i] += m->live[i - 1];
    return true;
}

static int by_size(const void *a, const void *b, void *ctx)
{
    const nnc_plan *p = ctx;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return nnc_then(nnc_cmp(p->tensor[y].bytes, p->tensor[x].bytes), nnc_cmp(x, y));
}

static bool find_peak(timeline *m)
{
    const nnc_plan *p = m->p;
    m->kind = nnc_find_kinds(p, m->device);
    m->at_peak = nnc_malloc(((size_t)p->n_tensor + 1) * sizeof *m->at_peak);
    for (int32_t t = 0; t < p->n_tensor && m->kind && m->at_peak; t++)
        if (m->kind[t] < FILL__COUNT)
            m->at_peak[m->n_at_peak++] = t;
    if (m->n_at_peak)
        qsort_r(m->at_peak, (size_t)m->n_at_peak, sizeof *m->at_peak, by_size, (void *)p);
    return m->kind && m->at_peak;
}

static void release(timeline *m)
{
    nnc_free(m->live);
    nnc_free((void *)m->kind);
    nnc_free(m->at_peak);
}

/* True when command i is part of the timeline. */
static bool stands(const timeline *m, int i)
{
    const nnc_cmd *c = &m->p->cmd[i];
    return c->device == m->device && c->kind != CMD_record && c->kind != CMD_wait;
}

static const char *layers_of(const nnc_plan *p, int i)
{
    return i >= 0 && i < p->n_cmd && p->cmd[i].layers ? p->cmd[i].layers : "";
}

/* ---- JSON, CSV --------------------------------------------------------------------------------------- */

static void put_command(
    nnc_json_writer *w, const char *device, const char *op, const char *layers, int64_t live)
{
    NNC_JSON_ROW(w, 3, J_STRING("device", device), J_STRING("op", op), J_STRING("layers", layers),
        J_INT("live", live));
}

/* All tensors that are live at the peak. */
static void put_peak_rows(nnc_json_writer *w, const timeline *m)
{
    const nnc_plan *p = m->p;
    nnc_json_open_at(w, 2, "peak", '[');
    for (int k = 0; k < m->n_at_peak; k++) {
        const nnc_ptensor *x = &p->tensor[m->at_peak[k]];
        NNC_LOCAL(nnc_text) type = {.into = w->out};
        nnc_put_type(&type, &x->type);
        NNC_JSON_ROW(w, 3, J_STRING("tensor", x->name ? x->name : ""),
            J_STRING("type", nnc_text_str(&type)),
            J_STRING("kind", nnc_is_step(p) ? nnc_fill_names[m->kind[m->at_peak[k]]] : ""),
            J_INT("bytes", x->bytes));
    }
    nnc_json_close(w, ']');
}

static void put_rows(nnc_json_writer *w, const nnc_env *e, const timeline *m)
{
    const nnc_plan *p = m->p;
    const nnc_plan_device *v = &p->device[m->device];
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("device", v->name));
    if (nnc_several_targets(p)) {
        NNC_LOCAL(nnc_text) name = {.into = w->out};
        nnc_putn(&name, v->target, strcspn(v->target, "#"));
        NNC_JSON(w, J_STRING("target", nnc_text_str(&name)));
    }
    if (v->libraries)
        NNC_JSON(w, J_STRING("libraries", v->libraries));
    NNC_JSON(w, J_INT("weights", v->persist_bytes), J_INT("arena", v->arena_bytes),
        J_INT("workspace", v->workspace_bytes), J_INT("init", v->init_bytes),
        J_INT("total", v->persist_bytes + v->arena_bytes), J_INT("lower_bound", v->lower_bound),
        J_STRING("peak_at", v->arena_bytes ? layers_of(p, v->peak_cmd) : ""));
    const int64_t nccl = nnc_nccl_bytes(e, p, m->device);
    if (nccl)
        NNC_JSON(w, J_INT("nccl", nccl));
    if (e->cluster || e->memory_limit > 0) {
        const int64_t need = nnc_device_needs(p, m->device) + nccl,
                      have = nnc_device_room(e, m->device);
        NNC_JSON(w, J_INT("capacity", have), J_INT("lacks", nnc_max64(need - have, 0)));
    }
    if (nnc_is_step(p)) {
        int64_t fill[FILL__COUNT];
        w->out->oom |= !nnc_find_fill(p, m->device, fill);
        nnc_json_open(w, "fill", '{');
        for (int k = 0; k < FILL__COUNT; k++)
            NNC_JSON(w, J_INT(nnc_fill_names[k], fill[k]));
        nnc_json_close(w, '}');
    }
    if (!w->csv)
        put_peak_rows(w, m);
    nnc_json_open_at(w, 2, "timeline", '[');
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        if (!stands(m, i))
            continue;
        put_command(w, v->name, p->cmd[i].op_class, layers_of(p, i), m->live[i]);
    }
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}

/* ---- text -------------------------------------------------------------------------------------------- */

/* For a long timeline: the minimum bytes of the rows shown. */
static int64_t least_shown(const timeline *m)
{
    int n = 0;
    int64_t *sorted = nnc_malloc((size_t)m->p->n_cmd * sizeof *sorted + 1), least = 0;
    for (int i = nnc_plan_first(m->p, SEC_main); sorted && i < m->p->n_cmd; i++)
        if (stands(m, i))
            sorted[n++] = m->live[i];
    if (n > LONG_TIMELINE) {
        nnc_sort64(sorted, (size_t)n);
        least = sorted[n - KEEP_ROWS];
    }
    nnc_free(sorted);
    return least;
}

static void put_row(nnc_text *t, const timeline *m, int i)
{
    const nnc_plan_device *v = &m->p->device[m->device];
    nnc_put_bytes_column(t, m->live[i], 12, false);
    const char *class = m->p->cmd[i].op_class; /* up to the first _ */
    nnc_printf(t, "  %-9.*s ", (int)nnc_min64((int64_t)strcspn(class, "_"), 9), class);
    nnc_put_layers_column(t, layers_of(m->p, i), LAYERS);
    nnc_puts(t, "  ");
    for (int64_t k = 0; k < m->live[i] * BAR / nnc_max64(v->lower_bound, 1); k++)
        nnc_putc(t, '#');
    nnc_trim(t);
    nnc_puts(t, i == v->peak_cmd ? "  <- peak\n" : "\n");
}

static void put_hidden(nnc_text *t, int n, int64_t most)
{
    if (n == 0)
        return;
    nnc_printf(t, "%12s  %d command%s with at most ", "...", n, nnc_plural(n, "s"));
    nnc_put_bytes(t, most);
    nnc_putc(t, '\n');
}

static void put_timeline(nnc_text *t, const timeline *m)
{
    int64_t least = least_shown(m), most = 0;
    int hidden = 0, shown = 0;
    nnc_puts(t, "        live  while\n");
    for (int i = nnc_plan_first(m->p, SEC_main); i < m->p->n_cmd; i++) {
        if (!stands(m, i))
            continue;
        bool show = m->live[i] >= least && (!least || shown < LONG_TIMELINE);
        if (!show && i != m->p->device[m->device].peak_cmd) {
            hidden++;
            most = nnc_max64(most, m->live[i]);
            continue;
        }
        put_hidden(t, hidden, most);
        hidden = 0;
        most = 0;
        shown++;
        put_row(t, m, i);
    }
    put_hidden(t, hidden, most);
}

static void put_line(nnc_text *t, const char *what, int64_t bytes, const char *note)
{
    nnc_printf(t, "  %-12s%16lld B", what, (long long)bytes);
    nnc_put_bytes_column(t, bytes, 12, false);
    nnc_printf(t, "%s%s\n", *note ? "  " : "", note);
}

/* Lists the largest tensors live at the peak, which have to shrink for a lower peak. */
static void put_peak(nnc_text *t, const timeline *m)
{
    const nnc_plan *p = m->p;
    int64_t rest = 0;
    nnc_puts(t, "  peak at     ");
    nnc_put_layers(t, layers_of(p, p->device[m->device].peak_cmd), 90);
    nnc_puts(t, ", where these are live:\n");
    for (int k = 0; k < m->n_at_peak; k++) {
        const nnc_ptensor *x = &p->tensor[m->at_peak[k]];
        if (k >= AT_PEAK) {
            rest += x->bytes;
            continue;
        }
        nnc_put_bytes_column(t, x->bytes, 26, false);
        if (nnc_is_step(p))
            nnc_printf(t, "  %-20s", nnc_fill_names[m->kind[m->at_peak[k]]]);
        nnc_puts(t, "  ");
        nnc_put_layers(t, x->name ? x->name : "", 60);
        nnc_puts(t, "  ");
        nnc_put_type(t, &x->type);
        nnc_putc(t, '\n');
    }
    if (m->n_at_peak <= AT_PEAK)
        return;
    nnc_put_bytes_column(t, rest, 26, false);
    nnc_printf(t, "  in %d more\n", m->n_at_peak - AT_PEAK);
}

/* Prints what a training step's memory is used for. */
static void put_fill(nnc_text *t, const timeline *m)
{
    int64_t fill[FILL__COUNT];
    t->oom |= !nnc_find_fill(m->p, m->device, fill);
    nnc_puts(t, "  of a step, at the arena's peak:\n");
    for (int k = 0; k < FILL__COUNT; k++)
        if (fill[k]) {
            nnc_printf(t, "  %-20s%15lld B", nnc_fill_names[k], (long long)fill[k]);
            nnc_put_bytes_column(t, fill[k], 12, false);
            nnc_printf(t, "  %s\n", nnc_fill_docs[k]);
        }
}

static void text_device(nnc_text *t, const nnc_env *e, const timeline *m)
{
    const nnc_plan_device *v = &m->p->device[m->device];
    nnc_puts(t, m->device ? "\n" : "");
    nnc_put_device(t, m->p, m->device);
    if (v->libraries)
        nnc_printf(t, ", planned with %s", v->libraries);
    nnc_putc(t, '\n');
    put_line(
        t, "weights", v->persist_bytes, "as long as the model is loaded, packed forms included");
    put_line(t, "arena", v->arena_bytes, "activations and workspace, reused by liveness");
    put_line(t, "total", v->persist_bytes + v->arena_bytes, "");
    put_line(t, "workspace", v->workspace_bytes, "part of the arena at its peak");
    put_line(t, "lower bound", v->lower_bound, "of the arena: most bytes live at once");
    put_line(t, "init", v->init_bytes, "only while loading: given back before the first run");
    const int64_t nccl = nnc_nccl_bytes(e, m->p, m->device);
    if (nccl)
        put_line(t, "NCCL", nccl, "its buffers, beside the total: an estimate");
    if (!v->arena_bytes) /* the device computes nothing */
        return;
    if (nnc_is_step(m->p))
        put_fill(t, m);
    put_peak(t, m);
    nnc_putc(t, '\n');
    put_timeline(t, m);
}

/* Says that the numbers above are those of one chunk. */
static void put_chunks(nnc_text *t, const nnc_artifact *a)
{
    if (a->chunks == 1)
        return;
    nnc_printf(t, "\nA run is %lld chunks, of which this is one; double buffering adds ",
        (long long)a->chunks);
    nnc_put_bytes(t, nnc_chunks_bytes(a));
    nnc_puts(t, " of inputs and outputs.\n");
}

/* Says what nnc train, which reads samples ahead, needs beside the step. */
static void put_batches(nnc_text *t, const nnc_plan *p)
{
    if (!nnc_is_step(p))
        return;
    nnc_printf(
        t, "\nnnc train also holds %d batches of samples in the host's memory, ", NNC_DATA_BATCHES);
    nnc_put_bytes(t, nnc_batches_bytes(p));
    nnc_puts(t, ".\n");
}

static void put_end(nnc_json_writer *w, const nnc_artifact *a, bool fits)
{
    nnc_json_close(w, ']');
    if (a->chunks > 1) {
        NNC_JSON(w, J_INT("chunks", a->chunks), J_INT("chunk_slots", nnc_chunks_bytes(a)));
    }
    NNC_JSON(w, J_BOOL("fits", fits));
    nnc_json_end(w, '}');
}

/* Device d in format f; false: out of memory. */
static bool put_device(nnc_json_writer *w, const nnc_env *e, const nnc_plan *p, int d, nnc_format f)
{
    timeline m = {.p = p, .device = d};
    const bool ok = measure(&m) && find_peak(&m);
    if (d && ok)
        nnc_json_line(w, 1);
    if (f == NNC_TEXT && ok)
        text_device(w->out, e, &m);
    else if (ok)
        put_rows(w, e, &m);
    release(&m);
    return ok;
}

nnc_status nnc_report_memory(
    nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *t, bool *fits)
{
    const nnc_plan *p = a->plan;
    nnc_json_writer w = {.out = t, .csv = f == NNC_CSV};
    nnc_room at[NNC_MAX_DEVICES];
    const int n = nnc_find_rooms(e, a, at);
    *fits = nnc_rooms_suffice(at, n);
    if (f != NNC_TEXT) {
        nnc_json_open(&w, NULL, '{');
        nnc_json_open(&w, "devices", '[');
    }
    for (int d = 0; d < p->n_device; d++)
        if (!put_device(&w, e, p, d, f))
            return NNC_E_NOMEM;
    w.empty = w.csv && !w.more;
    if (w.empty)
        put_command(&w, "", "", "", 0);
    if (f != NNC_TEXT) {
        put_end(&w, a, *fits);
    } else {
        put_chunks(t, a);
        put_batches(t, p);
        nnc_putc(t, '\n');
        for (int i = 0; i < n; i++)
            nnc_put_room(t, e, &at[i], n > 1);
    }
    return t->oom ? NNC_E_NOMEM : NNC_OK;
}
