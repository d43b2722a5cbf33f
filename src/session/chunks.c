/* session/chunks.c -- models larger than their GPU. The plan is for a part of the rows and is executed once per part (chunk). Copies of one
 * chunk overlap with computing of another (runtime/pipe.c). The command nnc sweep divides models larger than a CPU's memory in the same
 * way.
 *
 * Rows are dimension 0 of the outputs and of those inputs that carry it unchanged through every node. ir/sample.c decides that from the
 * nodes' dimensions; other inputs are passed whole to every chunk. All chunks have the same size. Where it does not divide the rows, the
 * last chunk begins earlier and recomputes some rows, so that one plan suffices. The smallest number of chunks is found by planning without
 * machine code. It lies between the largest number known not to fit and the smallest known to fit. The last plan's bytes suggest the next
 * attempt; after a few of them, bisection does. */
#include "session/session.h"
#include <string.h>

const nnc_pass_info nnc_chunk_notes = {
    "chunks", 0, false, "models larger than the device run in chunks"};

enum {
    RESERVE = 32
}; /* 1/32 of the memory stays free: for the context, libraries, other programs */

static int64_t need_of(const nnc_plan *p)
{
    int64_t most = 0;
    for (int d = 0; d < p->n_device; d++)
        most = nnc_max64(most, nnc_device_needs(p, d));
    return most;
}

/* Slots of double buffering: a second set of inputs, two sets of outputs. None on CPUs, where chunks run one by one. */
static int64_t slots_of(const nnc_plan *p)
{
    int64_t n = 0;
    if (!nnc_plan_on_gpu(&p->device[0]))
        return 0;
    for (int i = 0; i < p->n_input; i++)
        n += p->tensor[p->input[i]].bytes;
    for (int i = 0; i < p->n_output; i++)
        n += 2 * p->tensor[p->output[i]].bytes;
    return n;
}

int64_t nnc_rows_of(const nnc_graph *g)
{
    const nnc_type *t = g->n_output ? nnc_typeof(g, g->output[0]) : NULL;
    return t && t->rank ? t->dim[0] : 1;
}

/* Rows of one of k chunks of n rows. Large chunks that do not divide n are rounded up so that each begins on a cache line for any
 * dtype. Less than 1 % of the work is repeated. */
static int64_t rows_per_chunk(int64_t n, int64_t k)
{
    enum { LINE = 64, LARGE = 100 * LINE };
    int64_t rows = n / k + (n % k != 0);
    return n % k && rows >= LARGE ? nnc_align_up(rows, LINE) : rows;
}

static nnc_status remark(nnc_artifact *a, bool applied, const char *rule, const nnc_text *why)
{
    nnc_remarks *r = &a->remarks;
    nnc_remark m = {.pass = nnc_chunk_notes.name, .applied = applied, .rule = rule, .n_layers = 1};
    m.reason = nnc_arena_strdup(&r->arena, nnc_text_str(why));
    m.layer = ARENA_NEW(&r->arena, const char *, 1);
    if (m.layer)
        m.layer[0] = a->source->name;
    bool ok = !why->oom && m.reason && m.layer && nnc_remarks_add(r, &m);
    return ok ? NNC_OK : NNC_E_NOMEM;
}

static nnc_status say(
    nnc_artifact *a, bool applied, int64_t need, int64_t have, const char *then, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_puts(&t, "it needs ");
    nnc_put_bytes(&t, need);
    nnc_puts(&t, ", the device has ");
    nnc_put_bytes(&t, have);
    nnc_printf(&t, ": %s", then);
    nnc_status st =
        remark(a, applied, applied ? "runs in chunks of rows" : "does not fit the device", &t);
    if (!applied) /* if not, the run will fail; otherwise the run, explain and memory report it */
        nnc_note(sink, (nnc_loc){0}, "%s: %s", a->source->name, nnc_text_str(&t));
    return st ? nnc_nomem(sink) : NNC_OK;
}

/* Compiles `rows` rows of the model into the empty b; without `code` only to learn the plan's memory. *ok: the rows are independent. */
static nnc_status compile_rows(nnc_env *e, const nnc_compile_options *o, const nnc_artifact *a,
    int64_t rows, bool code, nnc_artifact *b, bool *ok, nnc_sink *sink)
{
    NNC_FREED bool *in = nnc_calloc(a->source->n_node + 1, sizeof *in),
                   *out = nnc_calloc(a->source->n_output + 1, sizeof *out);
    *ok = false;
    NNC_NEED(in && out, sink);
    NNC_TRY(nnc_graph_sample(a->source, rows, &b->graph, in, out, sink));
    *ok = b->graph;
    for (uint32_t i = 0; i < a->source->n_output; i++)
        *ok = *ok && out[i];
    return *ok ? nnc_compile_graph(e, o, code, b, sink) : NNC_OK;
}

static void drop(nnc_artifact *b)
{
    nnc_plan_destroy(b->plan);
    nnc_graph_destroy(b->graph);
    nnc_remarks_deinit(&b->remarks);
    b->plan = NULL;
    b->graph = NULL;
}

/* Replaces the artifact for all rows by the one for a chunk. */
static nnc_status replace_artifact(nnc_artifact *a, nnc_artifact *b, nnc_sink *sink)
{
    nnc_artifact whole = {.plan = a->plan, .graph = a->graph, .remarks = a->remarks};
    a->plan = b->plan;
    a->graph = b->graph;
    a->remarks = b->remarks;
    drop(&whole);
    b->plan = NULL;
    b->graph = NULL;
    nnc_remarks_init(&b->remarks);
    return nnc_chunks_count(a, sink);
}

static nnc_status accept(
    nnc_artifact *a, nnc_artifact *b, int64_t need, int64_t have, int64_t rows, nnc_sink *sink)
{
    char then[240];
    int64_t all = nnc_rows_of(a->source);
    NNC_TRY(replace_artifact(a, b, sink));
    int n = snprintf(then, sizeof then,
        "a run is %lld chunks of %lld rows each; copies of one overlap with the computing of "
        "another",
        (long long)a->chunks, (long long)rows);
    if (all % rows)
        snprintf(then + n, sizeof then - (size_t)n,
            "; the last recomputes %lld rows of the one before, as %lld does not divide %lld",
            (long long)(a->chunks * rows - all), (long long)rows, (long long)all);
    return say(a, true, need, have, then, sink);
}

/* Numbers of chunks: `lo` do not fit, `hi` do (0: none known). */
typedef struct range {
    int64_t all, have; /* rows; bytes */
    int64_t lo, hi;
    int64_t
        least; /* chunks needed if the last plan's bytes, without weights, scale with its rows */
    int tries;
} range;

static int64_t suggest(const range *r, const nnc_plan *p, int64_t rows)
{
    int64_t fixed = p->device[0].persist_bytes, room = r->have - fixed;
    double each = (double)(need_of(p) - fixed + slots_of(p)) / (double)rows;
    double n = room > 0 ? (double)r->all * each / (double)room : (double)r->all;
    return n < (double)r->all ? nnc_max64(2, (int64_t)n + (n > (double)(int64_t)n)) : r->all;
}

/* The next number of chunks to try, between lo and hi. */
static int64_t next_number(const range *r)
{
    enum { GUESSES = 3 };
    if (!r->hi)
        return nnc_min64(r->all, nnc_max64(r->least, r->tries < GUESSES ? r->lo + 1 : 2 * r->lo));
    if (r->tries >= GUESSES)
        return r->lo + (r->hi - r->lo) / 2;
    return nnc_max64(r->lo + 1, nnc_min64(r->least, r->hi - 1));
}

/* Plans k chunks and records whether they fit. */
static nnc_status try_number(nnc_env *e, const nnc_compile_options *o, const nnc_artifact *a,
    range *r, int64_t k, bool *ok, nnc_sink *sink)
{
    int64_t rows = rows_per_chunk(r->all, k);
    nnc_artifact b = {.source = a->source, .options = a->options};
    nnc_remarks_init(&b.remarks);
    nnc_compile_options quiet = *o;
    quiet.after_pass = NULL;
    quiet.on_kernel = NULL;
    nnc_status st = compile_rows(e, &quiet, a, rows, false, &b, ok, sink);
    if (!st && *ok) {
        bool fits = need_of(b.plan) + slots_of(b.plan) <= r->have;
        *(fits ? &r->hi : &r->lo) = k;
        while (fits && r->hi - 1 > r->lo && rows_per_chunk(r->all, r->hi - 1) == rows)
            r->hi--;
        r->least = suggest(r, b.plan, rows);
        r->tries++;
    }
    drop(&b);
    return st;
}

static nnc_status use_number(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a,
    int64_t need, const range *r, nnc_sink *sink)
{
    bool ok;
    int64_t rows = rows_per_chunk(r->all, r->hi);
    nnc_artifact b = {.source = a->source, .options = a->options};
    nnc_remarks_init(&b.remarks);
    nnc_status st = compile_rows(e, o, a, rows, true, &b, &ok, sink);
    if (!st)
        st = accept(a, &b, need, r->have, rows, sink);
    drop(&b);
    return st;
}

static nnc_status search(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, int64_t need,
    int64_t have, nnc_sink *sink)
{
    range r = {.all = nnc_rows_of(a->source), .have = have, .lo = 1};
    bool ok = true;
    r.least = suggest(&r, a->plan, r.all);
    while (r.lo < r.all && r.hi - r.lo != 1) {
        NNC_TRY(try_number(e, o, a, &r, next_number(&r), &ok, sink));
        if (!ok)
            return say(a, false, need, have,
                "its rows are not independent of each other, so it cannot run in chunks", sink);
    }
    if (r.hi)
        return use_number(e, o, a, need, &r, sink);
    return say(
        a, false, need, have, "a single row, or just the weights, need more than that", sink);
}

int64_t nnc_chunks_room(const nnc_env *e)
{
    const nnc_target *t = e->target;
    bool divides = e->n_target == 1 && t->kind == NNC_T_cuda;
    return divides ? t->memory_bytes - t->memory_bytes / RESERVE : INT64_MAX;
}

int64_t nnc_chunks_need(const nnc_artifact *a, bool copies)
{
    return need_of(a->plan) + (copies || a->chunks > 1 ? slots_of(a->plan) : 0);
}

nnc_status nnc_chunks_make(
    nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, nnc_sink *sink)
{
    int64_t need = need_of(a->plan), have = nnc_chunks_room(e);
    a->chunks = 1;
    if (need <= have)
        return NNC_OK;
    return search(e, o, a, need, have, sink);
}

nnc_status nnc_chunks_part(nnc_env *e, const nnc_compile_options *o, nnc_artifact *a, int64_t have,
    int64_t *chunks, nnc_sink *sink)
{
    NNC_TRY(search(e, o, a, need_of(a->plan), have, sink));
    *chunks = a->chunks;
    if (a->chunks == 1)
        return NNC_OK;
    nnc_graph *part = nnc_chunks_source(a);
    NNC_NEED(part, sink);
    nnc_graph_destroy(a->source);
    a->source = part;
    a->chunks = 1;
    return NNC_OK;
}

int64_t nnc_artifact_chunks(const nnc_artifact *a)
{
    return a->chunks;
}

nnc_graph *nnc_chunks_source(const nnc_artifact *a)
{
    nnc_graph *part = NULL;
    NNC_FREED bool *in = nnc_calloc(a->source->n_node + 1, sizeof *in),
                   *out = nnc_calloc(a->source->n_output + 1, sizeof *out);
    const nnc_plan *p = a->plan;
    nnc_status st =
        a->chunks > 1 && in && out
            ? nnc_graph_sample(a->source, p->tensor[p->output[0]].type.dim[0], &part, in, out, NULL)
            : NNC_OK;
    return st ? NULL : part;
}

int64_t nnc_chunks_bytes(const nnc_artifact *a)
{
    return a->chunks > 1 ? slots_of(a->plan) : 0;
}

/* ---- types of all rows ----------------------------------------------------------------------------------------------- */

static const nnc_type *source_input(const nnc_artifact *a, const char *name)
{
    const nnc_graph *g = a->source;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input && g->value[g->node[i].out].name &&
            !strcmp(g->value[g->node[i].out].name, name))
            return nnc_typeof(g, g->node[i].out);
    return NULL;
}

const nnc_type *nnc_whole_input(const nnc_artifact *a, int i)
{
    const nnc_type *t = &a->plan->tensor[a->plan->input[i]].type;
    return a->chunks > 1 ? source_input(a, a->plan->input_name[i]) : t;
}

const nnc_type *nnc_whole_output(const nnc_artifact *a, int i)
{
    const nnc_type *t = &a->plan->tensor[a->plan->output[i]].type;
    return a->chunks > 1 ? nnc_typeof(a->source, a->source->output[i]) : t;
}

/* True when `whole` equals `part` except for `all` rows instead of `rows`. */
static bool extends(const nnc_type *whole, const nnc_type *part, int64_t all, int64_t rows)
{
    if (!whole || whole->rank != part->rank || whole->dtype != part->dtype || !whole->rank ||
        whole->dim[0] != all || part->dim[0] != rows)
        return false;
    for (int d = 1; d < whole->rank; d++)
        if (whole->dim[d] != part->dim[d])
            return false;
    return true;
}

nnc_status nnc_chunks_count(nnc_artifact *a, nnc_sink *sink)
{
    const nnc_plan *p = a->plan;
    const nnc_graph *g = a->source;
    a->chunks = 1;
    if (!p->n_output || (uint32_t)p->n_output != g->n_output)
        return NNC_OK;
    const nnc_type *whole = nnc_typeof(g, g->output[0]), *part = &p->tensor[p->output[0]].type;
    if (!whole->rank || whole->rank != part->rank || part->dim[0] < 1 ||
        whole->dim[0] == part->dim[0])
        return NNC_OK;
    int64_t all = whole->dim[0], rows = part->dim[0];
    bool ok = all > rows;
    for (int i = 0; i < p->n_output && ok; i++)
        ok = extends(nnc_typeof(g, g->output[i]), &p->tensor[p->output[i]].type, all, rows);
    for (int i = 0; i < p->n_input && ok; i++) {
        const nnc_type *t = source_input(a, p->input_name[i]), *q = &p->tensor[p->input[i]].type;
        ok = t && (extends(t, q, all, rows) || (nnc_type_same_shape(t, q) && t->dtype == q->dtype));
    }
    if (!ok)
        return nnc_fail0(sink, NNC_E_MODEL, "the plan does not match the model");
    a->chunks = all / rows + (all % rows != 0);
    return NNC_OK;
}
