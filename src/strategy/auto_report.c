/* strategy/auto_report.c -- results of the search over combinations: the best few, where their time goes, and which were
 * rejected and why. */
#include "report/report.h"
#include "strategy/strategy.h"

void nnc_partition_put_search(const nnc_auto_search *s, nnc_text *out)
{
    const nnc_search_found *f = &s->found;
    nnc_puts(out,
        "  estimated ms of the best combinations, without plans, and the fullest device:\n"
        "  iteration   schedule    compute     tensor     bubble      sends       data  "
        "   update      memory  combination\n");
    for (int k = 0; k < f->n; k++) {
        const nnc_search_result *x = &f->best[k];
        const int64_t ns[] = {
            x->ns, x->clock_ns, x->compute, x->tensor, x->bubble, x->send, x->data, x->optimizer};
        for (size_t i = 0; i < NNC_COUNT(ns); i++) {
            nnc_puts(out, i ? " " : "  ");
            if (i == 1 && !ns[i])
                nnc_printf(out, "%10s", "-");
            else
                nnc_put_ms(out, nnc_ms(ns[i]), i ? 10 : 9);
        }
        nnc_put_bytes_column(out, x->bytes, 12, false);
        nnc_printf(out, "  %s\n", s->name[k]);
    }
    nnc_printf(
        out, "  %lld combinations, %lld evaluated", (long long)f->tried, (long long)f->evaluated);
    const char *comma = "; not evaluated or rejected: ";
    for (int k = 1; k < PRUNE__COUNT; k++)
        if (f->pruned[k]) {
            nnc_printf(out, "%s%lld %s", comma, (long long)f->pruned[k], nnc_prune_reasons[k]);
            comma = "; ";
        }
    nnc_putc(out, '\n');
}

void nnc_partition_json_search(nnc_json_writer *w, const nnc_auto_search *s)
{
    const nnc_search_found *f = &s->found;
    nnc_json_open(w, "search", '{');
    nnc_json_open(w, "best", '[');
    for (int k = 0; k < f->n; k++) {
        const nnc_search_result *x = &f->best[k];
        const nnc_combination *c = &x->c;
        nnc_json_open_at(w, 3, NULL, '{');
        NNC_JSON(w, J_STRING("combination", s->name[k]), J_INT("data", c->data),
            J_INT("tensor", c->tensor), J_INT("pipeline", c->pipeline), J_INT("chunks", c->chunks),
            J_INT("micro_batches", c->micro), J_INT("micro_batch", c->size),
            J_STRING("schedule", nnc_schedule_name(c->schedule)), J_INT("zero", c->zero),
            J_BOOL("recompute", c->recompute), J_NS("iteration_ms", x->ns));
        if (x->clock_ns)
            NNC_JSON(w, J_NS("schedule_ms", x->clock_ns));
        NNC_JSON(w, J_NS("compute_ms", x->compute), J_NS("tensor_ms", x->tensor),
            J_NS("bubble_ms", x->bubble), J_NS("send_ms", x->send), J_NS("data_ms", x->data),
            J_NS("optimizer_ms", x->optimizer), J_INT("memory_bytes", x->bytes));
        nnc_json_close(w, '}');
    }
    nnc_json_close(w, ']');
    NNC_JSON(w, J_STRING("time", "estimate"), J_INT("tried", f->tried),
        J_INT("evaluated", f->evaluated));
    nnc_json_open(w, "rejected", '[');
    for (int k = 1; k < PRUNE__COUNT; k++)
        if (f->pruned[k])
            NNC_JSON_OBJECT(
                w, NULL, J_STRING("reason", nnc_prune_reasons[k]), J_INT("count", f->pruned[k]));
    nnc_json_close(w, ']');
    nnc_json_close(w, '}');
}
