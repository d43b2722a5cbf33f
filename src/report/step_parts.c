/* report/step_parts.c -- parts of a training step: forward, loss, backward, optimizer, communication. */
#include "report/report.h"
#include "session/session.h"
#include <string.h>

const char *const nnc_part_names[PART__COUNT] = {
    "forward", "loss", "backward", "optimizer", "communication"};

/* The part that a layer's path names. */
nnc_part nnc_layer_part_n(const char *path, size_t n)
{
    static const char back[] = "/backward";
    const size_t m = sizeof back - 1;
    if (n >= m && !memcmp(path + n - m, back, m))
        return PART_backward;
    if (nnc_path_is(path, n, "/loss"))
        return PART_loss;
    return nnc_path_is(path, n, "/optimizer") ? PART_optimizer : PART_forward;
}

nnc_part nnc_layer_part(const char *path)
{
    return nnc_layer_part_n(path, strlen(path));
}

/* The set of parts of "a+b/backward+c". */
static unsigned parts_of(const char *layers)
{
    unsigned set = 0;
    for (const char *p = layers ? layers : ""; *p;) {
        const size_t n = strcspn(p, "+");
        set |= 1u << nnc_layer_part_n(p, n);
        p += n + (p[n] == '+');
    }
    return set;
}

static nnc_part last_of(unsigned set)
{
    int part = PART_optimizer;
    while (part > 0 && !(set >> part & 1))
        part--;
    return (nnc_part)part;
}

/* Copies of new values to states have the state's layer: they count as what computed the value. */
static unsigned set_of(const nnc_plan *p, int i, const unsigned *maker)
{
    const nnc_cmd *c = &p->cmd[i];
    const bool update =
        c->kind == CMD_copy && i >= p->end[SEC_main] && p->tensor[c->arg[1]].space == SP_persist;
    return update ? 1u << last_of(maker[nnc_plan_root(p, c->arg[0])]) : parts_of(c->layers);
}

nnc_status nnc_step_parts(const nnc_plan *p, uint8_t *part, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    unsigned *maker = ARENA_NEW(&a, unsigned, p->n_tensor + 1); /* by root: parts of its writer */
    unsigned *set = ARENA_NEW(&a, unsigned, p->n_cmd + 1);
    int32_t *reader = ARENA_NEW(&a, int32_t, p->n_tensor + 1); /* by root: command + 1; 0: none */
    NNC_NEED(maker && set && reader, sink);
    memset(part, PART_forward, (size_t)p->n_cmd);
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_record || c->kind == CMD_wait)
            continue;
        set[i] = set_of(p, i, maker);
        for (int k = nnc_plan_first_written(p, c); k < c->n_arg; k++)
            maker[nnc_plan_root(p, c->arg[k])] = set[i];
    }
    for (int i = p->n_cmd - 1; i >= nnc_plan_first(p, SEC_main); i--) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_record || c->kind == CMD_wait)
            continue;
        int32_t first = 0;
        const int written = nnc_plan_first_written(p, c);
        for (int k = written; k < c->n_arg; k++) {
            const int32_t by = reader[nnc_plan_root(p, c->arg[k])];
            first = by && (!first || by < first) ? by : first;
        }
        const bool in_set = first && set[i] >> part[first - 1] & 1;
        part[i] = (uint8_t)(in_set ? part[first - 1] : last_of(set[i]));
        for (int k = 0; k < written; k++)
            reader[nnc_plan_root(p, c->arg[k])] = i + 1;
    }
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
        if (nnc_plan_connects(p, &p->cmd[i]))
            part[i] = PART_communication;
    return NNC_OK;
}

nnc_status nnc_session_part_times(nnc_session *s, double ms[PART__COUNT], nnc_sink *sink)
{
    enum { LEAST = 3, MOST = 15, ENOUGH_MS = 1000 };
    int64_t all[PART__COUNT][MOST];
    double spent = 0;
    int n = 0;
    for (; n < LEAST || (n < MOST && spent < ENOUGH_MS); n++) {
        nnc_shares x = {0};
        NNC_TRY(nnc_session_shares(s, SEC_main, SEC_step, &x, sink));
        for (int i = 0; i < PART__COUNT; i++) {
            all[i][n] = x.part[i];
            spent += (double)x.part[i] * 1e-9;
        }
    }
    const int middle = n / 2;
    for (int i = 0; i < PART__COUNT; i++) {
        nnc_sort64(all[i], (size_t)n);
        ms[i] = (double)all[i][middle] * 1e-9;
    }
    return NNC_OK;
}

void nnc_put_gradient_updates(const nnc_plan *p, nnc_text *out)
{
    NNC_LOCAL(nnc_arena) a = {0};
    uint8_t *part = ARENA_NEW(&a, uint8_t, p->n_cmd + 1);
    int all = 0, both = 0;
    if (!part || nnc_step_parts(p, part, NULL)) {
        out->oom = true;
        return;
    }
    for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_record || c->kind == CMD_wait || part[i] != PART_optimizer)
            continue;
        all++;
        both += parts_of(c->layers) >> PART_backward & 1;
    }
    if (both)
        nnc_printf(out, " (%d of %d command%s also compute%s gradients of weights)", both, all,
            nnc_plural(all, "s"), both == 1 ? "s" : "");
}

void nnc_report_parts(const nnc_session *s, const double ms[PART__COUNT], nnc_text *out)
{
    for (int i = 0; i < PART__COUNT - (ms[PART_communication] == 0); i++) {
        nnc_printf(out, "%s%s ", i ? ", " : "a run is a training step: ", nnc_part_names[i]);
        nnc_put_ms(out, ms[i], 0);
        nnc_puts(out, ms[i] > 0 ? " ms" : " (no commands of its own)");
        if (i == PART_optimizer)
            nnc_put_gradient_updates(s->plan, out);
    }
    nnc_puts(out, "; sums of the devices' times\n");
}

void nnc_report_parts_json(const double ms[PART__COUNT], nnc_json_writer *w)
{
    nnc_json_open(w, "parts", '{');
    for (int i = 0; i < PART__COUNT; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_ms", nnc_part_names[i]);
        NNC_JSON(w, J_MS(key, ms[i]));
    }
    nnc_json_close(w, '}');
}
