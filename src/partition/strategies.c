/* partition/strategies.c -- the table of strategies, and the lists of names that flags and messages show. */
#include "partition/partition.h"
#include <string.h>

enum { PIPE_none = -1 };

const nnc_strategy_info nnc_strategies[NNC_STRATEGY__COUNT] = {
#define STRATEGY(id, name, mode, by, row, schedule, cut, zero, doc) \
    {NNC_IN_##mode, PIPE_##schedule, zero},
#include "partition/strategies.def"
};

const char *const nnc_strategy_names[NNC_STRATEGY__COUNT] = {
#define STRATEGY(id, name, ...) name,
#include "partition/strategies.def"
};

/* BY_both(1, 0) .. BY_none(1, 0): the text where `by` names the command. */
#define BY_none(run, train)
#define BY_run(run, train) run
#define BY_train(run, train) train
#define BY_both(run, train) run train
const char nnc_run_strategies[] = ""
#define STRATEGY(id, name, mode, by, ...) BY_##by("|" name, )
#include "partition/strategies.def"
    ;
const char nnc_train_strategies[] = ""
#define STRATEGY(id, name, mode, by, ...) BY_##by(, "|" name)
#include "partition/strategies.def"
    ;

nnc_strategy nnc_strategy_named(const char *name)
{
    int s = 0;
    while (s < NNC_STRATEGY__COUNT && strcmp(nnc_strategy_names[s], name) != 0)
        s++;
    return (nnc_strategy)s;
}

bool nnc_is_pipeline(nnc_strategy s)
{
    return nnc_strategies[s].schedule != PIPE_none;
}

bool nnc_is_split(nnc_strategy s)
{
    switch ((int)s) {
#define SPLIT(id, ...) case NNC_STRATEGY_##id:
#define SCHEDULE(...)
#include "partition/strategies.def"
        return true;
    default: return false;
    }
}

nnc_strategy nnc_strategy_of(nnc_pipeline_kind k)
{
    static const nnc_strategy of[] = {
#define SCHEDULE(id, ...) NNC_STRATEGY_##id,
#include "partition/strategies.def"
    };
    return of[k];
}

const char *nnc_schedule_name(nnc_pipeline_kind k)
{
    return k == PIPE_forward ? "forward" : nnc_strategy_names[nnc_strategy_of(k)];
}

void nnc_put_strategies(nnc_text *out, bool (*shown)(nnc_strategy), const char *last)
{
    int n = 0, i = 0;
    for (int s = 0; s < NNC_STRATEGY__COUNT; s++)
        n += shown((nnc_strategy)s);
    for (int s = 0; s < NNC_STRATEGY__COUNT; s++)
        if (shown((nnc_strategy)s)) {
            nnc_printf(out, "%s%s", !i ? "" : i + 1 < n ? ", " : last, nnc_strategy_names[s]);
            i++;
        }
}

nnc_status nnc_unknown_strategy(
    const char *name, bool (*shown)(nnc_strategy), bool all, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) list = {0};
    const char *names[NNC_STRATEGY__COUNT + 1] = {"all"}, *near;
    size_t n = all;
    for (int s = 0; s < NNC_STRATEGY__COUNT; s++)
        if (shown((nnc_strategy)s))
            names[n++] = nnc_strategy_names[s];
    near = nnc_nearest(name, names, n);
    nnc_put_strategies(&list, shown, all ? ", " : " or ");
    return nnc_fail0(sink, NNC_E_USAGE, "--strategy: unknown strategy `%s`%s%s; expected %s%s",
        name, near ? "; did you mean " : "", near ? near : "", all ? "all, " : "",
        nnc_text_str(&list));
}
