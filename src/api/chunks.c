/* api/chunks.c -- models larger than their GPU: the plan is that of some rows, and a run does it as often as there are such parts, copies
 * of one beside the computing of another (runtime/pipe.c).
 *
 * Rows are dimension 0 of the outputs and of the inputs that carry it through every node untouched (ir/sample.c decides, by what each
 * node does with its dimensions); other inputs go to every chunk whole. Chunks are of one size. Where it does not divide the rows, the
 * last chunk begins that much earlier and computes some rows a second time: one plan serves, and the same rows give the same numbers.
 * The smallest number of chunks is looked for by planning without machine code: as many as the bytes of the last plan suggest, between
 * the largest number known not to fit and the smallest known to; after a few of these, halfway. */
#include "api/internal.h"
#include <string.h>

const nnc_pass_info nnc_chunk_notes = {
    "chunks", 0, false, "what is larger than the device runs in parts"};

enum { RESERVE = 32 }; /* a 32nd of the memory stays free: the context, libraries, other programs */

static int64_t need_of(const nnc_plan *p)
{
    int64_t most = 0;
    for (int d = 0; d < p->n_device; d++)
        most = nnc_max64(most, p->device[d].persist_bytes +
                                   nnc_max64(p->device[d].arena_bytes, p->device[d].init_bytes));
    return most;
}

/* The slots that chunks take turns with: a second set of inputs, two of outputs. */
static int64_t slots_of(const nnc_plan *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_input; i++)
        n += p->tensor[p->input[i]].bytes;
    for (int i = 0; i < p->n_output; i++)
        n += 2 * p->tensor[p->output[i]].bytes;
    return n;
}

static int64_t rows_of(const nnc_graph *g)
{
    const nnc_type *t = g->n_output ? nnc_typeof(g, g->output[0]) : NULL;
    return t && t->rank ? t->dim[0] : 1;
}

/* Rows of one of k chunks of n rows. Large ones that do not come out even are rounded up to whole cache lines of any type, so that each
 * begins on one, for less than a hundredth of the work twice. */
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
    nnc_text t = {0};
    nnc_puts(&t, "it needs ");
    nnc_put_bytes(&t, need);
    nnc_puts(&t, ", the device has ");
    nnc_put_bytes(&t, have);
    nnc_printf(&t, ": %s", then);
    nnc_status st =
        remark(a, applied, applied ? "runs in chunks of rows" : "does not fit the device", &t);
    if (!applied) /* the run will fail; else it, explain and memory say so */
        nnc_note(sink, (nnc_loc){0}, "%s: %s", a->source->name, nnc_text_str(&t));
    nnc_text_deinit(&t);
    return st ? nnc_nomem(sink) : NNC_OK;
}

/* Compiles `rows` rows of the model into b, which is empty; without `code` to know the plan's memory alone. *ok: they can be computed
 * alone. */
static nnc_status compile_rows(nnc_env *e, const nnc_compile_options *o, const nnc_artifact *a,
    int64_t rows, bool code, nnc_artifact *b, bool *ok, nnc_sink *sink)
{
    bool *in = nnc_calloc(a->source->n_node + 1, sizeof *in),
         *out = nnc_calloc(a->source->n_output + 1, sizeof *out);
    nnc_status st =
        in && out ? nnc_graph_sample(a->source, rows, &b->graph, in, out, sink) : nnc_nomem(sink);
    *ok = !st && b->graph;
    for (uint32_t i = 0; i < a->source->n_output; i++)
        *ok = *ok && out[i];
    nnc_free(in);
    nnc_free(out);
    return st || !*ok ? st : nnc_compile_graph(e, o, code, b, sink);
}

static void drop(nnc_artifact *b)
{
    nnc_plan_destroy(b->plan);
    nnc_graph_destroy(b->graph);
    nnc_remarks_deinit(&b->remarks);
    b->plan = NULL;
    b->graph = NULL;
}

/* What was made of some rows takes the place of what was made of all. */
static nnc_status take(nnc_artifact *a, nnc_artifact *b, nnc_sink *sink)
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
    int64_t all = rows_of(a->source);
    NNC_TRY(take(a, b, sink));
    int n = snprintf(then, sizeof then,
        "a run is %lld chunks of %lld rows each, copies of one beside the computing of another",
        (long long)a->chunks, (long long)rows);
    if (all % rows)
        snprintf(then + n, sizeof then - (size_t)n,
            "; the last computes %lld rows of the one before again, as %lld do not divide %lld",
            (long long)(a->chunks * rows - all), (long long)rows, (long long)all);
    return say(a, true, need, have, then, sink);
}

/* Numbers of chunks: `lo` do not fit, `hi` do (0: none known to). */
typedef struct range {
    int64_t all, have; /* rows; bytes */
    int64_t lo, hi;
    int64_t
        least; /* chunks that the last plan's bytes suggest, were they in proportion to its rows but for the weights */
    int tries;
} range;

static int64_t suggest(const range *r, const nnc_plan *p, int64_t rows)
{
    int64_t fixed = p->device[0].persist_bytes, room = r->have - fixed;
    double each = (double)(need_of(p) - fixed + slots_of(p)) / (double)rows;
    double n = room > 0 ? (double)r->all * each / (double)room : (double)r->all;
    return n < (double)r->all ? nnc_max64(2, (int64_t)n + (n > (double)(int64_t)n)) : r->all;
}

/* The next number to try, between lo and hi. */
static int64_t next_number(const range *r)
{
    enum { GUESSES = 3 };
    if (!r->hi)
        return nnc_min64(r->all, nnc_max64(r->least, r->tries < GUESSES ? r->lo + 1 : 2 * r->lo));
    if (r->tries >= GUESSES)
        return r->lo + (r->hi - r->lo) / 2;
    return nnc_max64(r->lo + 1, nnc_min64(r->least, r->hi - 1));
}

/* Plans k chunks, and notes whether they fit. */
static nnc_status try_number(nnc_env *e, const nnc_compile_options *o, const nnc_artifact *a,
    range *r, int64_t k, bool *ok, nnc_sink *sink)
{
    int64_t rows = rows_per_chunk(r->all, k);
    nnc_artifact b = {.source = a->source, .level = a->level};
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
    nnc_artifact b = {.source = a->source, .level = a->level};
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
    range r = {.all = rows_of(a->source), .have = have, .lo = 1};
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
        a, false, need, have, "a single row, or the weights alone, need more than that", sink);
}

int64_t nnc_chunks_room(const nnc_env *e)
{
    return e->target.memory_bytes - e->target.memory_bytes / RESERVE;
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
    if (e->target.kind != NNC_T_cuda || need <= have)
        return NNC_OK;
    return search(e, o, a, need, have, sink);
}

int64_t nnc_artifact_chunks(const nnc_artifact *a)
{
    return a->chunks;
}

nnc_graph *nnc_chunks_source(const nnc_artifact *a)
{
    nnc_graph *part = NULL;
    bool *in = nnc_calloc(a->source->n_node + 1, sizeof *in),
         *out = nnc_calloc(a->source->n_output + 1, sizeof *out);
    const nnc_plan *p = a->plan;
    nnc_status st =
        a->chunks > 1 && in && out
            ? nnc_graph_sample(a->source, p->tensor[p->output[0]].type.dim[0], &part, in, out, NULL)
            : NNC_OK;
    nnc_free(in);
    nnc_free(out);
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

/* Is `whole` the same but for `all` rows in the place of `part`'s `rows`? */
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
        return nnc_fail0(sink, NNC_E_MODEL, "the plan is not that of the model");
    a->chunks = all / rows + (all % rows != 0);
    return NNC_OK;
}
