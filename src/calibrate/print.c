/* calibrate/print.c -- the hardware file of what nnc calibrate measured (docs/hardware.md). */
#include "calibrate/measure.h"
#include "session/session.h"
#include <math.h>

static void put_points(nnc_text *t, const nnc_point *p, int n)
{
    nnc_puts(t, "\"points\": [");
    for (int i = 0; i < n; i++)
        nnc_printf(t, "%s[%lld, %lld]", i ? ", " : "", (long long)p[i].work, (long long)p[i].ns);
    nnc_puts(t, "]");
}

void cal_put_groups(nnc_text *t, const calibration *c)
{
    for (int i = 0; i < c->n_group; i++) {
        const cal_group *g = &c->group[i];
        nnc_printf(t, "%s\n            {\"collective\": \"%s\", \"devices\": %d, ",
            i ? "," : ",\n        \"measured\": [", nnc_group_op_names[g->kind], g->devices);
        put_points(t, g->point, g->n_point);
        nnc_puts(t, "}");
    }
    nnc_puts(t, c->n_group ? "\n        ]\n    }\n" : "\n    }\n");
}

static void put_share(nnc_text *t, const char *name, double v)
{
    nnc_printf(t, "\"%s\": %.4g, ", name, v);
}

void cal_put_ops(const calibration *c, nnc_text *t)
{
    int n = 0;
    nnc_puts(t, "            \"ops\": [");
    for (int i = 0; i < c->n_class; i++) {
        const cal_class *x = &c->class[i];
        if (!x->n_point)
            continue;
        nnc_printf(t, "%s\n                {\"class\": \"%s\", \"dtype\": \"%s\", ", n++ ? "," : "",
            x->name, x->tf32 ? "tf32" : nnc_dtype_name(x->dtype));
        if (x->contention > 0)
            put_share(t, "contention", x->contention);
        if (x->memory > 0)
            put_share(t, "memory", fmin(x->memory, 16));
        if (x->efficiency > 0)
            put_share(t, "efficiency", x->efficiency);
        put_share(t, "spread", x->spread);
        put_points(t, x->point, x->n_point);
        nnc_puts(t, "}");
    }
    nnc_puts(t, "\n            ]\n");
}

static void put_devices(const calibration *c, nnc_text *t)
{
    const nnc_env *e = c->e;
    nnc_printf(t,
        "    \"devices\": [\n        {\n            \"count\": %d,\n            \"target\": "
        "\"cpu\",\n"
        "            \"source\": \"measured: %d profiles of %d small nets, medians; contention "
        "with "
        "as many devices as cores\",\n            \"command_ns\": %lld,\n            \"machine\": ",
        c->devices, c->n_profile, c->n_program, (long long)c->command_ns);
    nnc_target_print_json(t, &e->target[0]);
    while (t->n && t->s[t->n - 1] == '\n')
        t->s[--t->n] = 0;
    nnc_puts(t, ",\n");
    cal_put_ops(c, t);
    nnc_puts(t, "        }\n    ],\n");
}

/* Waits after which a device goes on as late as ever. MPI is polled more and more rarely (comm/comm.c), where the system's timer adds its
 * own delay. A thread sleeps at once, and its core soon after. */
enum { POLLS_NS = 3200000, YIELDS_NS = 100000, SLEEPS_NS = 50000 };

static void put_links(const calibration *c, nnc_text *t)
{
    const bool ranks = nnc_env_world(c->e) > 1;
    const int64_t rate =
                      c->copy_bytes_s > 0 ? c->copy_bytes_s : nnc_max64(c->memory_bytes_s / 2, 1),
                  memory = nnc_max64(2 * rate * c->devices, c->memory_bytes_s);
    nnc_printf(t,
        "    \"sockets\": {\n        \"source\": \"copies of %d sizes between devices 0 and 1, "
        "with "
        "event and wake-up; spread up to %.3g\",\n        \"count\": 1,\n        \"cores\": %d,\n"
        "        \"memory_bytes_s\": %lld,\n        \"copy_bytes_s\": %lld,\n        "
        "\"latency_ns\": "
        "%lld,\n        \"run_ns\": %lld,\n        \"wake_ns\": %lld,\n        \"wake_after_ns\": "
        "%d,\n        \"wake_from_ns\": %d,\n        \"processes\": %s\n    },\n",
        c->n_copy, c->copy_spread, c->cores, (long long)memory, (long long)rate,
        (long long)c->copy_latency_ns, (long long)c->run_ns, (long long)c->wake_ns,
        ranks ? POLLS_NS : SLEEPS_NS, ranks ? YIELDS_NS : 0, ranks ? "true" : "false");
    const int64_t least = c->n_group ? c->group[0].point[0].ns : c->copy_latency_ns;
    nnc_printf(t,
        "    \"collectives\": {\n        \"source\": \"plans of collectives, the time from the "
        "last "
        "participant's arrival; base_ns of the smallest allreduce\",\n        \"base_ns\": %lld,\n"
        "        \"hop_ns\": 0",
        (long long)least);
    cal_put_groups(t, c);
}

void cal_print(const calibration *c, nnc_text *t)
{
    NNC_LOCAL(nnc_text) name = {0};
    const int world = nnc_env_world(c->e);
    nnc_target_host_name(&name);
    nnc_puts(t, "{\n    \"name\": ");
    NNC_LOCAL(nnc_text) title = {0};
    if (world > 1)
        nnc_printf(&title, "%d ranks of %s", world, nnc_text_str(&name));
    else
        nnc_printf(&title, "%d virtual devices of %s", c->devices, nnc_text_str(&name));
    nnc_put_json_string(t, nnc_text_str(&title));
    nnc_printf(t,
        ",\n    \"source\": \"nnc calibrate in %.1f s: %d device%s of %d thread%s on %d core%s, "
        "%s\",\n",
        (double)(nnc_now_ns() - c->begin_ns) * 1e-9, c->devices, c->devices > 1 ? "s" : "",
        c->threads, c->threads > 1 ? "s" : "", c->cores, c->cores > 1 ? "s" : "",
        world > 1 ? "messages of MPI" : "one process");
    put_devices(c, t);
    put_links(c, t);
    nnc_puts(t, "}\n");
}
