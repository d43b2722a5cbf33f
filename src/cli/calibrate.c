/* cli/calibrate.c -- nnc calibrate: measures this machine into a hardware file. */
#include "cli/cli.h"
#include "calibrate/calibrate.h"

nnc_status cmd_calibrate(const options *o, work *w, nnc_sink *sink)
{
    options with = *o;
    with.env.ranked = true;
    NNC_TRY(open_env(&with, w, sink));
    nnc_calibrate_options c = o->calibrate;
    c.devices = o->has_devices ? o->compare.compile.devices : 0;
    progress((void *)o, "measuring", NULL);
    NNC_TRY(nnc_calibrate(w->env, &c, &w->text, sink));
    w->no_text = nnc_env_rank(w->env) > 0;
    return w->no_text ? nnc_env_follow(w->env, sink) : NNC_OK;
}
