/* api/train_trace.c -- nnc train --trace: the commands of one step as a trace. */
#include "api/timeline.h"
#include "api/trainer.h"

bool trace_wanted(const trainer *t)
{
    const int64_t left = t->steps - t->began_step;
    return t->o->trace && t->step == t->began_step + (left > 1);
}

nnc_status trace_run(trainer *t, nnc_section first, nnc_section last, int k)
{
    if (!t->trace)
        NNC_TRY(nnc_tracing_create(t->train.session, &t->trace, t->sink));
    nnc_status st = nnc_tracing_run(t->trace, first, last, k, t->sink);
    if (st || last != SEC_step)
        return st;
    st = nnc_tracing_write(
        t->trace, t->e, t->o->trace, t->o->predict, SEC_step, t->accumulate, t->sink);
    nnc_tracing_destroy(t->trace);
    t->trace = NULL;
    return st;
}
