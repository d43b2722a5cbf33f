/* strategy/several.c -- nnc partition of several models: each alone, all in sequence on one device, and on streams of one device. On
 * several devices the longest comes first, on the device with the least to do (LPT). On described hardware the simulator runs the plans
 * that nnc run would execute; otherwise times are sums of commands by the cost rules. */
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "sim/sim.h"

typedef struct run { /* a way to run all of them */
    const char *how;
    int streams, devices;
    int *device; /* by model */
    int64_t ns; /* 0: not predicted */
    int64_t *bytes; /* by device */
    bool fits;
    const char *why_not; /* it was not predicted; NULL: it was */
} run;

typedef struct several {
    nnc_env *e;
    nnc_model *const *m;
    const char *const *name;
    int n, devices;
    bool step;
    const nnc_partition_options *o;
    int64_t *ns, *bytes; /* by model: alone */
    run at[3];
    int n_run;
    nnc_arena a;
    nnc_sink *sink;
} several;

/* Expected time of the plan's commands on its devices; those of a device are one after the other. */
static nnc_status time_of(several *s, const nnc_plan *p, int64_t *ns)
{
    *ns = 0;
    if (s->e->cluster) {
        const nnc_sim_plan_options o = {.first = SEC_main, .last = SEC_step};
        NNC_LOCAL(nnc_sim_plan) sim = {0};
        NNC_TRY(nnc_sim_plan_run(&sim, p, s->e->cluster, &o, s->sink));
        *ns = nnc_ceildiv(sim.total_ps, 1000);
        return NNC_OK;
    }
    for (int d = 0; d < p->n_device; d++) {
        int64_t sum = 0;
        for (int i = nnc_plan_first(p, SEC_main); i < p->n_cmd; i++)
            if (p->cmd[i].device == d && p->cmd[i].kind != CMD_record && p->cmd[i].kind != CMD_wait)
                sum = nnc_add_sat(sum, nnc_predict_command_ns(s->e, p, &p->cmd[i]));
        *ns = nnc_max64(*ns, sum);
    }
    return NNC_OK;
}

static nnc_status measure_alone(several *s, int k)
{
    nnc_compile_options o = s->o->compile;
    NNC_OWNED(nnc_artifact) *a = NULL;
    NNC_OWNED(nnc_graph) *g = nnc_graph_clone(s->m[k], s->sink);
    NNC_NEED(g, s->sink);
    for (uint32_t i = 0; i < g->n_node; i++)
        g->node[i].device = -1;
    o.devices = o.streams = 1;
    NNC_TRY(nnc_partition_compile(s->e, g, &o, false, &a, s->sink));
    if (a->chunks > 1)
        return nnc_fail0(s->sink, NNC_E_FIT,
            "%s does not fit a device as a whole: set a smaller batch", s->name[k]);
    s->bytes[k] = nnc_device_needs(a->plan, 0);
    return time_of(s, a->plan, &s->ns[k]);
}

/* Plans and times all models together; what the planner refuses is no failure. */
static nnc_status measure_run(several *s, run *r)
{
    nnc_compile_options o = s->o->compile;
    NNC_OWNED(nnc_graph) *g = NULL;
    NNC_OWNED(nnc_artifact) *a = NULL;
    o.streams = r->streams;
    o.devices = r->devices;
    NNC_TRY(nnc_graph_join((const nnc_graph *const *)s->m, s->name, r->device, s->n, &g, s->sink));
    NNC_TRY(nnc_partition_compile(s->e, g, &o, false, &a, s->sink));
    if (a->chunks > 1) {
        r->why_not = "does not fit the device";
        return NNC_OK;
    }
    r->fits = true;
    for (int d = 0; d < a->plan->n_device && d < r->devices; d++) {
        r->bytes[d] = nnc_device_needs(a->plan, d);
        r->fits = r->fits && r->bytes[d] <= nnc_device_room(s->e, d);
    }
    return time_of(s, a->plan, &r->ns);
}

static nnc_status add_run(several *s, const char *how, int streams, int devices, run **out)
{
    run *r = *out = &s->at[s->n_run++];
    *r = (run){.how = how,
        .streams = streams,
        .devices = devices,
        .device = ARENA_NEW(&s->a, int, s->n + 1),
        .bytes = ARENA_NEW(&s->a, int64_t, devices + 1)};
    NNC_NEED(r->device && r->bytes, s->sink);
    return NNC_OK;
}

static nnc_status add_devices(several *s)
{
    run *r;
    int64_t total, *room = ARENA_NEW(&s->a, int64_t, s->devices + 1);
    NNC_NEED(room, s->sink);
    for (int d = 0; d < s->devices; d++)
        room[d] = nnc_device_room(s->e, d);
    NNC_TRY(add_run(s, "devices", 1, s->devices, &r));
    NNC_TRY(nnc_models_lpt(s->ns, s->bytes, s->n, s->devices, room, r->device, &total, s->sink));
    for (int k = 0; k < s->n; k++)
        if (r->device[k] < 0) {
            r->why_not = nnc_arena_printf(&s->a, "%s fits no device beside the others", s->name[k]);
            NNC_NEED(r->why_not, s->sink);
            return NNC_OK;
        }
    return measure_run(s, r);
}

static nnc_status measure_all(several *s)
{
    run *r;
    NNC_NEED(ARENA_ARRAYS(&s->a, s->n + 1, s->ns, s->bytes), s->sink);
    for (int k = 0; k < s->n; k++)
        NNC_TRY(measure_alone(s, k));
    NNC_TRY(add_run(s, "one after the other", 1, 1, &r));
    NNC_TRY(measure_run(s, r));
    NNC_TRY(add_run(s, "streams", s->o->compile.streams > 1 ? s->o->compile.streams : s->n, 1, &r));
    if (s->e->cluster)
        NNC_TRY(measure_run(s, r));
    else
        r->why_not = "how much streams slow each other is simulated: --hardware=FILE";
    return add_devices(s);
}

/* ---- report -------------------------------------------------------------------------------------------------------- */

static int64_t most(const run *r)
{
    int64_t n = 0;
    for (int d = 0; d < r->devices; d++)
        n = nnc_max64(n, r->bytes[d]);
    return n;
}

/* "resnet101+densenet121": the models on device d. */
static void put_models(nnc_text *t, const several *s, const run *r, int d)
{
    bool any = false;
    for (int k = 0; k < s->n; k++) {
        if ((r->devices > 1 ? r->device[k] : 0) != d)
            continue;
        nnc_printf(t, "%s%s", any ? "+" : "", s->name[k]);
        any = true;
    }
}

static void text_head(const several *s, nnc_text *t)
{
    const nnc_target *g = &s->e->target[0];
    nnc_printf(t, "%d models, %s, on %d device%s %s of ", s->n,
        s->step ? "training steps" : "inference", s->devices, nnc_plural(s->devices, "s"), g->name);
    nnc_put_bytes(t, nnc_device_room(s->e, 0));
    nnc_printf(t, "%s%s\n", s->e->cluster ? ", linked as in " : "",
        s->e->cluster ? s->e->cluster->name : "");
    if (g->kind == NNC_T_cuda) {
        nnc_puts(t, "The GPUs have ");
        nnc_target_put_libraries(t, g);
        nnc_puts(t, ".\n");
    }
    nnc_puts(t, s->e->cluster
                    ? "Times are simulated from the plans (docs/hardware.md), not measured.\n"
                    : "Times are predicted from the cost rules of the target, not measured.\n");
    nnc_printf(t, "  %-28s%14s%12s%10s\n", "model", "alone ms", "memory", "device");
    for (int k = 0; k < s->n; k++) {
        nnc_printf(t, "  %-28s", s->name[k]);
        nnc_put_ms(t, nnc_ms(s->ns[k]), 14);
        nnc_put_bytes_column(t, s->bytes[k], 12, false);
        nnc_printf(t, "%10d\n", s->at[s->n_run - 1].device[k]);
    }
}

static void text_report(const several *s, nnc_text *t)
{
    text_head(s, t);
    nnc_printf(t, "  %-28s%14s%12s%10s  fits\n", "together", "ms", "most memory", "speed-up");
    for (int i = 0; i < s->n_run; i++) {
        const run *r = &s->at[i];
        NNC_LOCAL(nnc_text) how = {0};
        nnc_puts(&how, r->how);
        if (r->streams > 1)
            nnc_printf(&how, " (%d of one device)", r->streams);
        if (r->devices > 1)
            nnc_printf(&how, " (%d, LPT)", r->devices);
        nnc_printf(t, "  %-28s", nnc_text_str(&how));
        if (r->why_not) {
            nnc_printf(t, "  %s\n", r->why_not);
            continue;
        }
        nnc_put_ms(t, nnc_ms(r->ns), 14);
        nnc_put_bytes_column(t, most(r), 12, false);
        nnc_printf(t, "%10.2f  %s\n", (double)s->at[0].ns / (double)nnc_max64(r->ns, 1),
            r->fits ? "yes" : "NO");
    }
}

static void json_report(const several *s, nnc_json_writer *w)
{
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("mode", s->step ? "step" : "forward"),
        J_STRING("target", s->e->target[0].name),
        J_STRING("times", s->e->cluster ? "simulated" : "predicted"), J_INT("devices", s->devices));
    if (s->e->target[0].kind == NNC_T_cuda && !w->csv) {
        nnc_json_item(w, "libraries");
        nnc_target_libraries_json(w->out, &s->e->target[0]);
    }
    nnc_json_open_at(w, 1, "models", '[');
    for (int k = 0; k < s->n && !w->csv; k++)
        NNC_JSON_ROW(w, 2, J_STRING("model", s->name[k]), J_NS("alone_ms", s->ns[k]),
            J_INT("memory_bytes", s->bytes[k]));
    nnc_json_close(w, ']');
    nnc_json_open_at(w, 1, "together", '[');
    for (int i = 0; i < s->n_run; i++) {
        const run *r = &s->at[i];
        for (int d = 0; d < r->devices; d++) {
            NNC_LOCAL(nnc_text) on = {0};
            put_models(&on, s, r, d);
            NNC_JSON_ROW(w, 2, J_STRING("how", r->how), J_INT("streams", r->streams),
                J_INT("device", d), J_STRING("models", nnc_text_str(&on)), J_NS("ms", r->ns),
                J_INT("memory_bytes", r->bytes[d]),
                J_INT("capacity_bytes", nnc_device_room(s->e, d)), J_BOOL("fits", r->fits),
                J_STRING("impossible", r->why_not ? r->why_not : ""));
        }
    }
    nnc_json_close(w, ']');
    nnc_json_end(w, '}');
}

nnc_status nnc_partition_several_report(nnc_env *e, nnc_model *const *m, const char *const *name,
    int n, bool step, const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits,
    nnc_sink *sink)
{
    several s = {.e = e, .m = m, .name = name, .n = n, .step = step, .o = o, .sink = sink};
    s.devices = o->compile.devices > 0 ? o->compile.devices : e->cluster ? e->cluster->n_device : 2;
    if (e->n_target > 1)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc partition takes one --target: its devices are equal");
    if (s.devices > NNC_MAX_DEVICES)
        s.devices = NNC_MAX_DEVICES;
    if (e->cluster && s.devices > e->cluster->n_device)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = e->cluster->file},
            "describes %d device%s, fewer than --devices=%d", e->cluster->n_device,
            nnc_plural(e->cluster->n_device, "s"), s.devices);
    const nnc_status st = measure_all(&s);
    nnc_json_writer w = {.out = out, .csv = f == NNC_CSV};
    if (!st && f == NNC_TEXT)
        text_report(&s, out);
    else if (!st)
        json_report(&s, &w);
    *fits = !st && s.at[s.n_run - 1].fits;
    const char *why = st || *fits ? NULL : s.at[s.n_run - 1].why_not;
    if (!st && !*fits)
        nnc_note(sink, (nnc_loc){0}, "the models do not fit %d device%s together: %s", s.devices,
            nnc_plural(s.devices, "s"), why ? why : "a plan needs more than a device has");
    nnc_arena_deinit(&s.a);
    return st ? st : out->oom ? nnc_nomem(sink) : NNC_OK;
}
