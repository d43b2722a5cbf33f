/* passes/driver.c -- runs passes by the table, verifies the graph after each, and checks the accounts. The applied remarks of a pass must
 * add up to the change of nnc_graph_cost; otherwise the pass is wrong (NNC_E_BUG). */
#include "passes/internal.h"

typedef struct row {
    uint8_t needs;
    pass_fn run;
} row;

const nnc_pass_info nnc_pass_table[] = {
#define PASS(name, level, fusion, needs, doc) {#name, level, fusion, doc},
#include "passes/passes.def"
};
const int nnc_pass_count = (int)NNC_COUNT(nnc_pass_table);

static const row rows[] = {
#define PASS(name, level, fusion, needs, doc) {needs, pass_##name},
#include "passes/passes.def"
};

int nnc_pass_find(const char *name)
{
    for (int i = 0; i < nnc_pass_count; i++)
        if (!strcmp(nnc_pass_table[i].name, name))
            return i;
    return -1;
}

static nnc_status unknown_pass(const char *name, nnc_sink *sink)
{
    const char *names[PASS__COUNT];
    for (int i = 0; i < nnc_pass_count; i++)
        names[i] = nnc_pass_table[i].name;
    const char *near = nnc_nearest(name, names, (size_t)nnc_pass_count);
    return nnc_fail0(sink, NNC_E_USAGE, "unknown pass `%s`%s%s%s", name,
        near ? "; did you mean `" : "", near ? near : "",
        near ? "`?" : "; `nnc passes` lists them");
}

static bool all_live(const nnc_graph *g, nnc_arena *a)
{
    uint32_t *count = nnc_use_counts(g, a);
    for (uint32_t i = 0; count && i < g->n_node; i++) {
        bool used = g->node[i].op == OP_input;
        for (uint32_t k = 0; k < g->node[i].n_out; k++)
            used = used || count[g->node[i].out + k];
        if (!used)
            return false;
    }
    return true; /* every node has a user: an unused sink would have none */
}

/* Selects the passes to run, in order. only[] may name a pass several times. If the graph has dead code, dce comes first. Otherwise
 * nnc_graph_tidy would remove it after another first pass, without a remark, and that pass's accounts would be wrong. */
static nnc_status select(
    const nnc_pass_options *o, bool live, nnc_arena *a, int **out, int *n, nnc_sink *sink)
{
    int *list = ARENA_NEW(a, int, 1 + nnc_pass_count + o->n_only);
    bool skip[PASS__COUNT] = {false};
    NNC_NEED(list, sink);
    *n = 0;
    *out = list;
    for (int i = 0; i < o->n_skip; i++) {
        int id = nnc_pass_find(o->skip[i]);
        if (id < 0)
            return unknown_pass(o->skip[i], sink);
        skip[id] = true;
    }
    for (int i = 0; i < o->n_only; i++) {
        int id = nnc_pass_find(o->only[i]);
        if (id < 0)
            return unknown_pass(o->only[i], sink);
        list[(*n)++] = id;
    }
    for (int i = 0; o->n_only == 0 && i < nnc_pass_count; i++)
        if (nnc_pass_table[i].level <= o->level && !skip[i])
            list[(*n)++] = i;
    if (!live && (*n == 0 || list[0] != PASS_dce)) {
        memmove(list + 1, list, (size_t)(*n)++ * sizeof *list);
        list[0] = PASS_dce;
    }
    return NNC_OK;
}

static bool all_row_major(const nnc_graph *g)
{
    for (uint32_t v = 0; v < g->n_value; v++)
        if (!nnc_type_is_row_major(&g->value[v].type))
            return false;
    return true;
}

static nnc_status check_accounts(
    const pass *p, size_t first_remark, nnc_cost before, nnc_cost after)
{
    int64_t bytes = 0, launches = 0;
    for (size_t i = first_remark; i < p->remarks->n; i++) {
        bytes += p->remarks->at[i].bytes_saved;
        launches += p->remarks->at[i].launches_saved;
    }
    int64_t db = before.bytes - after.bytes, dl = before.launches - after.launches;
    if (bytes == db && launches == dl)
        return NNC_OK;
    return nnc_fail0(p->sink, NNC_E_BUG,
        "pass %s: its remarks say %lld bytes and %lld launches saved, the graph says %lld and %lld",
        p->name, (long long)bytes, (long long)launches, (long long)db, (long long)dl);
}

/* Tidies the graph after a pass, verifies it, and checks that its cost changed by the sum of the remarks. */
static nnc_status check_change(pass *p, size_t first, nnc_cost before)
{
    NNC_TRY(nnc_graph_tidy(p->g));
    NNC_TRY(nnc_verify(p->g, p->sink));
    nnc_cost after = nnc_graph_cost(p->g);
    if (after.launches < 0)
        return nnc_nomem(p->sink);
    return check_accounts(p, first, before, after);
}

static const char *unmet_need(const pass *p)
{
    const uint8_t needs = rows[p->id].needs;
    if ((needs & PF_target) && !p->o->target)
        return "no target is described";
    if ((needs & PF_rowmajor) && !all_row_major(p->g))
        return "the graph already has memory orders of its own";
    return NULL;
}

static nnc_status run_once(pass *p)
{
    const uint32_t n_node = p->g->n_node;
    const size_t first = p->remarks->n;
    const nnc_cost before = nnc_graph_cost(p->g);
    p->edited = p->again = false;
    if (before.launches < 0)
        return nnc_nomem(p->sink);
    NNC_TRY(edit_open(p));
    NNC_TRY(rows[p->id].run(p));
    edit_sync(p);
    NNC_TRY(p->status);
    if (p->changed || p->edited ||
        p->g->n_node != n_node) /* most passes find nothing in most graphs */
        NNC_TRY(check_change(p, first, before));
    return NNC_OK;
}

/* Runs one pass on *g, and repeats it while the pass requests that. */
static nnc_status run_one(pass *p, nnc_arena *scratch)
{
    p->name = nnc_pass_table[p->id].name;
    p->a = scratch;
    p->changed = 0;
    int64_t t0 = nnc_now_ns();
    const char *missing = unmet_need(p);
    if (missing) {
        layers none = {0};
        NNC_TRY(edit_open(p));
        remark_declined(p, &none, nnc_pass_table[p->id].doc, "%s", missing);
        NNC_TRY(p->status);
    } else {
        do {
            NNC_TRY(run_once(p));
        } while (p->again);
    }
    if (p->o->after)
        p->o->after(p->o->after_ctx, p->name, p->g, p->changed, nnc_now_ns() - t0);
    p->ran[p->id] = true;
    return NNC_OK;
}

static nnc_status run_all(pass *p, const int *list, int n)
{
    const int from = p->o->from ? nnc_pass_find(p->o->from) : 0,
              until = p->o->until ? nnc_pass_find(p->o->until) : nnc_pass_count;
    for (int i = 0; i < n && p->status == NNC_OK; i++) {
        if (list[i] < from || list[i] >= until) {
            p->ran[list[i]] |= list[i] < from;
            continue;
        }
        NNC_LOCAL(nnc_arena) scratch = {0};
        memset(p->will_run, 0, sizeof p->will_run);
        for (int k = i + 1; k < n; k++)
            p->will_run[list[k]] = true;
        p->id = (pass_id)list[i];
        p->status = run_one(p, &scratch);
        p->a = NULL;
    }
    return p->status;
}

nnc_status nnc_passes_run(
    nnc_graph **g, const nnc_pass_options *o, nnc_remarks *remarks, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(nnc_remarks) own = {0};
    int *list = NULL, n = 0;
    nnc_sink *theirs = (*g)->sink;
    pass p = {.g = *g, .o = o, .remarks = remarks ? remarks : &own, .sink = sink};
    nnc_status s = select(o, all_live(*g, &a), &a, &list, &n, sink);
    if (s != NNC_OK)
        return s;
    (*g)->sink = sink; /* errors of builders go to this caller */
    s = run_all(&p, list, n);
    p.g->sink = theirs;
    p.g->origin = NULL;
    p.g->loc = (nnc_loc){0};
    return s;
}
