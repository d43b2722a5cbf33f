/* report/first_run.c -- durations of the phases before the second run, as text and JSON. */
#include "report/report.h"
#include "session/session.h"

static const struct {
    const char *name, *key;
} phases[] = {
#define X(id, name, key) {name, key},
    NNC_PHASES(X)
#undef X
};

static void put_phases(nnc_text *t, const nnc_exec_phases *p, int n)
{
    const char *sep = ": ";
    for (int i = 0; i < n; i++) {
        if (p->ns[i] < 1000) /* below a microsecond */
            continue;
        nnc_printf(t, "%s%s %.*f", sep, phases[i].name, p->ns[i] < 1000000 ? 3 : 1,
            (double)p->ns[i] * 1e-6);
        sep = ", ";
    }
}

void nnc_put_loading(nnc_text *t, const nnc_exec_phases *p)
{
    put_phases(t, p, NNC_PH_prepare);
}

void nnc_put_first_run(nnc_text *t, const char *before, const nnc_exec_phases *p)
{
    int64_t sum = 0;
    for (int i = 0; i < NNC_PH__COUNT; i++)
        sum += p->ns[i];
    nnc_printf(
        t, "%s%s result after %.1f ms", before, *before ? "first" : "First", (double)sum * 1e-6);
    put_phases(t, p, NNC_PH__COUNT);
    nnc_putc(t, '\n');
}

void nnc_put_first_run_json(nnc_json_writer *w, const nnc_exec_phases *p)
{
    nnc_json_open(w, "first_run", '{');
    for (int i = 0; i < NNC_PH__COUNT; i++)
        NNC_JSON(w, J_INT(phases[i].key, p->ns[i]));
    nnc_json_close(w, '}');
}

void nnc_report_first_run(const nnc_session *s, nnc_text *out)
{
    nnc_exec_phases p = nnc_exec_first_run(s->exec);
    nnc_put_first_run(out, "", &p);
}

void nnc_report_first_run_json(const nnc_session *s, nnc_json_writer *out)
{
    nnc_exec_phases p = nnc_exec_first_run(s->exec);
    nnc_put_first_run_json(out, &p);
}
