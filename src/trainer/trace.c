/* trainer/trace.c -- nnc train --trace: the commands of one step as a trace. */
#include "report/report.h"
#include "session/session.h"
#include "trainer/state.h"

bool trace_wanted(const trainer *t)
{
    const int64_t left = t->steps - t->began_step;
    return t->o->trace && !t->traced && t->step >= t->began_step + (left > 1);
}

nnc_status trace_run(trainer *t, nnc_section first, nnc_section last, int k)
{
    if (first == SEC_main && k == 0) { /* what is there is of a step that was skipped */
        nnc_tracing_destroy(t->trace);
        NNC_TRY(nnc_tracing_create(t->train.session, &t->trace, t->sink));
    }
    nnc_status st = nnc_tracing_run(t->trace, first, last, k, t->sink);
    if (st || last != SEC_step)
        return st;
    t->traced = true;
    return nnc_tracing_write(
        t->trace, t->e, t->o->trace, t->o->predict, SEC_step, t->accumulate, t->sink);
}

void trace_end(trainer *t)
{
    nnc_tracing_destroy(t->trace);
    t->trace = NULL;
    if (t->o->trace && !t->traced && nnc_env_rank(t->e) == 0)
        nnc_note(t->sink, (nnc_loc){.file = t->o->trace},
            "not written: no step was taken that could be traced");
}
