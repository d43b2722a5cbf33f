/* strategy/ios.c -- the strategy `ios`: blocks of the forward pass side by side on streams of one device, in the stages that IOS's
 * dynamic program finds. */
#include "report/report.h"
#include "session/session.h"
#include "strategy/row.h"
#include "strategy/strategy.h"
#include "picture/picture.h"

enum { IOS_STREAMS = 4 }; /* where --streams does not say */

nnc_status row_operands(const rows *r, int **start, int **need)
{
    const nnc_partition_model *m = r->m;
    size_t cap = 0;
    *start = ARENA_NEW(r->a, int, m->n_block + 1);
    *need = NULL;
    NNC_NEED(*start && ARENA_ROOM(r->a, *need, cap, 1), r->sink);
    for (int b = 0, k = 0; b < m->n_block; b++, (*start)[b] = k)
        for (int e = 0; e < m->n_edge; e++)
            for (int u = 0; u < m->edge[e].n_user; u++)
                if (m->edge[e].user[u] == b && m->edge[e].maker >= 0) {
                    NNC_NEED(ARENA_ROOM(r->a, *need, cap, k + 1), r->sink);
                    (*need)[k++] = m->edge[e].maker;
                }
    return NNC_OK;
}

/* Times on one of the streams, and the shares of the device that blocks fill. Streams of a CPU have their part of its threads each, so
 * that ops take longer. */
static nnc_status find_times(const rows *r, int streams, int64_t **time, int **share)
{
    const nnc_partition_model *m = r->m;
    const nnc_target *t = r->t->target;
    const bool cpu = t->kind == NNC_T_cpu;
    const int slower = !cpu ? 1 : t->threads < streams ? t->threads : streams;
    *time = ARENA_NEW(r->a, int64_t, m->n_block + 1);
    *share = ARENA_NEW(r->a, int, m->n_block + 1);
    NNC_NEED(*time && *share, r->sink);
    for (int b = 0; b < m->n_block; b++) {
        const int64_t ns = m->cost.forward[b];
        (*time)[b] = nnc_mul_sat(ns, slower);
        (*share)[b] = cpu ? 1000 / slower : ns ? (int)(1000 * m->cost.filled[b] / ns) : 0;
    }
    return NNC_OK;
}

nnc_status row_ios(rows *r, nnc_partition_row *row)
{
    const nnc_partition_model *m = r->m;
    const int n = m->n_block, own = r->t->o->compile.streams;
    const int streams = own > 1 ? own : IOS_STREAMS;
    int *start, *need, *share, *stage = ARENA_NEW(r->a, int, n + 1),
                               *place = ARENA_NEW(r->a, int, n + 1), stages = 0;
    int64_t *time, *begin = ARENA_NEW(r->a, int64_t, n + 1), *ns = ARENA_NEW(r->a, int64_t, n + 1),
                   total, list;
    row_tasks t;
    bool exact;
    NNC_NEED(stage && place && begin && ns, r->sink);
    NNC_TRY(row_operands(r, &start, &need));
    NNC_TRY(find_times(r, streams, &time, &share));
    const nnc_ios_problem p = {.n_op = n,
        .time = time,
        .share = share,
        .start = start,
        .need = need,
        .streams = streams,
        .sync_ns = r->t->target->launch_ns};
    NNC_TRY(nnc_ios_segments(&p, stage, ns, &total, &exact, r->sink));
    const nnc_branch_problem b = {
        .n_op = n, .time = time, .start = start, .need = need, .n_place = streams};
    NNC_TRY(nnc_branch_list(&b, place, begin, &list, r->sink));
    for (int i = 0; i < n; i++)
        stages = stage[i] + 1 > stages ? stage[i] + 1 : stages;
    nnc_device_use *u = &row->use[0];
    row_add_blocks(r, u, 0, n, 1);
    u->layers = row_layers(r, NULL, 0, n);
    NNC_TRY(row_tasks_make(r, 1, &t));
    t.repeat = r->micro;
    t.each = 1;
    t.lane = "waits";
    for (int k = 0; k < stages; k++)
        (void)row_task_compute(&t, 0, WORK_forward, 0, ns[k]);
    NNC_TRY(row_tasks_run(&t, row));
    NNC_LOCAL(nnc_text) alone = {0}, listed = {0};
    nnc_put_ms(&alone, (double)nnc_mul_sat(r->micro, row_range(m->cost.forward, 0, n)) / 1e6, 0);
    nnc_put_ms(&listed, (double)nnc_mul_sat(r->micro, list) / 1e6, 0);
    row->note = nnc_arena_printf(r->a,
        "%d block%s in %d stage%s on %d streams of one device%s; one stream: %s ms, list "
        "scheduling, were streams not to slow each other: %s ms",
        n, nnc_plural(n, "s"), stages, nnc_plural(stages, "s"), streams,
        exact ? "" : ", not all of them the best: too many blocks side by side",
        nnc_text_str(&alone), nnc_text_str(&listed));
    NNC_NEED(u->layers && row->note, r->sink);
    row_executes(r, row,
        (nnc_partition_way){
            .runs = r->micro, .devices = 1, .streams = streams, .schedule = NNC_SCHEDULE_ios});
    return row_finish(r, row);
}
