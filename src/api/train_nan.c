/* api/train_nan.c -- where a loss that is NaN or infinite arose. */
#include "api/trainer.h"

#include <math.h>

/* The first number that is not finite; -1: there is none. */
static int64_t first_bad(const nnc_type *t, const void *data)
{
    const int64_t n = nnc_type_numel(t);
    const nnc_dtype d = (nnc_dtype)t->dtype;
    if (d == DT_f32) { /* states, many of them: quickly */
        const float *f = data;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(f[i]))
                return i;
        return -1;
    }
    for (int64_t i = 0; nnc_is_float(d) && i < n; i++)
        if (!isfinite(nnc_get_f64(d, data, i)))
            return i;
    return -1;
}

/* The first state that has a number that is not finite; -1: none. */
static nnc_status bad_state(trainer *t, nnc_session *s, int *state)
{
    for (*state = 0; *state < nnc_session_states(s); ++*state) {
        const nnc_type *type = nnc_session_state_type(s, *state);
        NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(type));
        NNC_NEED(data, t->sink);
        NNC_TRY(nnc_session_state(s, *state, data, t->sink));
        if (first_bad(type, data) >= 0)
            return NNC_OK;
    }
    *state = -1;
    return NNC_OK;
}

nnc_status nan_check(trainer *t)
{
    int state;
    NNC_TRY(bad_state(t, t->train.session, &state));
    return state < 0 ? NNC_OK
                     : nnc_fail0(t->sink, NNC_E_DIFFERS,
                           "%s is no longer finite after step %lld: a smaller --lr or --clip-norm "
                           "may help; nothing was saved",
                           nnc_session_state_name(t->train.session, state), (long long)t->step);
}

nnc_status nan_report(trainer *t, double loss, int k)
{
    (void)k;
    return nnc_fail0(t->sink, NNC_E_DIFFERS,
        "the loss is %g in step %lld: a smaller --lr or --clip-norm may help; nothing was saved",
        loss, (long long)t->step + 1);
}
