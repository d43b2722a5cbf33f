/* trainer/skip.c -- steps that --on-nan=skip leaves out: all states are then as before the step.
 *
 * Updates follow a loss that is finite. A step of several batches (--accumulate) may have moved running statistics before the batch whose
 * loss is not finite. So they are copied before such a step, and put back. The first batch of a step replaces the sums of gradients, so
 * that these may stay. */
#include "session/session.h"
#include "session/train.h"
#include "trainer/state.h"

/* Do the commands after a batch that takes no step use the memory of tensor t? */
static bool accumulates(const nnc_plan *p, int32_t t)
{
    const int32_t root = nnc_plan_root(p, t);
    for (int c = nnc_plan_first(p, SEC_accumulate); c < p->end[SEC_accumulate]; c++)
        for (int k = 0; k < p->cmd[c].n_arg; k++)
            if (nnc_plan_root(p, p->cmd[c].arg[k]) == root)
                return true;
    return false;
}

/* Lists the states that move between the batches of a step. */
static nnc_status find_running(trainer *t)
{
    nnc_session *s = t->train.session;
    skip_copy *x = &t->before;
    int64_t bytes = 0;
    const int n = nnc_session_states(s);
    x->state = nnc_malloc(((size_t)n + 1) * sizeof *x->state);
    NNC_NEED(x->state, t->sink);
    for (int i = 0; i < n; i++)
        if (!nan_is_sum(t, nnc_session_state_of(s, i)) &&
            accumulates(s->plan, s->plan->update[i].value)) {
            x->state[x->n++] = i;
            bytes += nnc_type_bytes(nnc_session_state_type(s, i));
        }
    x->data = nnc_malloc((size_t)bytes + 1);
    NNC_NEED(x->data, t->sink);
    return NNC_OK;
}

nnc_status trainer_copy(trainer *t, const int *state, int n, char *data, bool back)
{
    nnc_session *s = t->train.session;
    for (int k = 0; k < n; k++) {
        const int i = state ? state[k] : k;
        NNC_TRY(back ? nnc_session_set_state(s, i, data, t->sink)
                     : nnc_session_state(s, i, data, t->sink));
        data += nnc_type_bytes(nnc_session_state_type(s, i));
    }
    return NNC_OK;
}

nnc_status skip_begin(trainer *t)
{
    if (t->o->on_nan != NNC_NAN_skip || t->accumulate < 2)
        return NNC_OK;
    if (!t->before.data)
        NNC_TRY(find_running(t));
    return trainer_copy(t, t->before.state, t->before.n, t->before.data, false);
}

nnc_status skip_step(trainer *t, int k)
{
    const void *batch[NNC_COUNT(t->in)];
    if (k > 0)
        NNC_TRY(trainer_copy(t, t->before.state, t->before.n, t->before.data, true));
    while (t->data && ++k < t->accumulate)
        NNC_TRY(nnc_data_next(t->data, batch, t->sink));
    return NNC_OK;
}

void skip_end(trainer *t)
{
    nnc_free(t->before.state);
    nnc_free(t->before.data);
    t->before = (skip_copy){0};
}
