/* strategy/memory.c -- decides whether a strategy fits. Estimates of memory ignore the order of commands, and what is computed in place. So
 * nnc plans the strategies that it executes, and the plan's bytes decide. A plan of many micro-batches takes seconds, so plans of rows
 * whose estimate is far from the devices' memory have a budget of nodes. A table of all strategies plans only some of the others, too. The
 * fastest ones by estimate come first, until one fits; then those with the smallest graphs. */
#include "session/session.h"
#include "strategy/strategy.h"

enum {
    CLEARLY_LESS = 8, /* the estimate fits, if it is less than the memory by this factor */
    CLEARLY_MORE = 4, /* it does not fit, if it is more */
    BUDGET = 30000, /* nodes of plans that decide, of a table of all strategies: a few seconds */
    BUDGET_CLEAR = 20000, /* of its other plans */
    BUDGET_NAMED = 100000 /* of the same, of strategies named by --strategy */
};

int64_t nnc_partition_fullest(const nnc_partition_table *t, const nnc_partition_row *row)
{
    int64_t most = 0;
    for (int d = 0; d < t->devices; d++)
        most = nnc_max64(most, row->use[d].bytes);
    return most;
}

static bool is_clear(const nnc_partition_table *t, const nnc_partition_row *row)
{
    const int64_t most = nnc_partition_fullest(t, row), room = nnc_partition_capacity(t);
    return most <= room / CLEARLY_LESS || most / CLEARLY_MORE > room;
}

/* Estimate of the nodes in the graph that is planned for the row. */
static int64_t nodes_of(const nnc_partition_table *t, const nnc_partition_row *row)
{
    const nnc_partition_way *w = &row->way;
    const int copies = w->micro > 1 ? w->micro : 1, replicas = w->replicas > 1 ? w->replicas : 1,
              devices = row->place ? replicas : w->devices;
    return nnc_mul_sat((int64_t)t->m->n_layer * (t->m->step ? 4 : 1), (int64_t)copies * devices);
}

static bool is_executed(const nnc_partition_table *t, const nnc_partition_row *row)
{
    return !row->why_not && row->way.runs && t->devices <= NNC_MAX_DEVICES;
}

/* The row without a plan, open or clear, that has the least time, or the fewest nodes. NULL: there is none. */
static nnc_partition_row *next_row(const nnc_partition_table *t, bool open, bool fastest)
{
    nnc_partition_row *next = NULL;
    int64_t least = INT64_MAX;
    for (int i = 0; i < t->n_row; i++) {
        nnc_partition_row *row = &t->row[i];
        const int64_t of = fastest ? row->iteration_ns : nodes_of(t, row);
        if (is_executed(t, row) && row->open == open && !row->planned && !row->refused &&
            of < least) {
            next = row;
            least = of;
        }
    }
    return next;
}

/* Plans the rows that are clear by their estimates, within a budget. */
static nnc_status plan_clear(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_table *t, int64_t left, nnc_arena *arena, nnc_sink *sink)
{
    for (nnc_partition_row *row; (row = next_row(t, false, false)) != NULL;) {
        if (nnc_partition_take_equal(t, row))
            continue;
        left -= nodes_of(t, row);
        if (left < 0)
            return NNC_OK;
        NNC_TRY(nnc_partition_plan_row(e, m, training, t, row, arena, sink));
    }
    return NNC_OK;
}

nnc_status nnc_partition_decide(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_table *t, nnc_arena *arena, nnc_sink *sink)
{
    const bool named = nnc_partition_named(t);
    bool any = false;
    int64_t left = BUDGET;
    for (int i = 0; i < t->n_row; i++) {
        nnc_partition_row *row = &t->row[i];
        row->open = is_executed(t, row) && !row->planned && !is_clear(t, row);
        any = any || (is_executed(t, row) && row->fits && !row->open);
    }
    for (nnc_partition_row *row;
         (named || !any || left > 0) && (row = next_row(t, true, !any)) != NULL;) {
        if (nnc_partition_take_equal(t, row))
            continue;
        left -= nodes_of(t, row);
        NNC_TRY(nnc_partition_plan_row(e, m, training, t, row, arena, sink));
        any = any || (row->planned && row->fits);
    }
    NNC_TRY(plan_clear(e, m, training, t, named ? BUDGET_NAMED : BUDGET_CLEAR, arena, sink));
    for (int i = 0; i < t->n_row; i++) {
        nnc_partition_row *row = &t->row[i];
        if (is_executed(t, row) && !row->planned && !nnc_partition_take_equal(t, row) && row->open)
            row->fits = false; /* not known */
    }
    return NNC_OK;
}
