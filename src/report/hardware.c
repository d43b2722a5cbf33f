/* report/hardware.c -- a described machine (nnc devices --hardware): devices, how they are connected, bandwidths, times of collectives. */
#include "api/nnc.h"
#include "report/report.h"
#include "base/json_writer.h"
#include "cluster/cluster.h"
#include "sim/sim.h"

enum { MATRIX = 16 /* devices of the matrix at most */, COUNTS = 24 };

static const int64_t sizes[] = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30};

/* Numbers of devices for which collectives are shown: 2, 3, 4, ... of a small node; powers of two beyond 8; all. */
static int counts_of(const nnc_cluster *c, int count[COUNTS])
{
    int n = 0;
    for (int k = 2; k <= c->n_device && n < COUNTS - 1; k += k < 8 ? 1 : k)
        count[n++] = k;
    if (n && count[n - 1] != c->n_device)
        count[n++] = c->n_device;
    return n;
}

/* Both ends of a copy: the devices of the first node, host memory as -1, and a device of the second node. */
static int ends_of(const nnc_cluster *c, int end[MATRIX + 2])
{
    int n = 0;
    end[n++] = NNC_HOST;
    for (int d = 0; d < c->per_node && d < MATRIX; d++)
        end[n++] = d;
    if (c->n_node > 1)
        end[n++] = c->per_node;
    return n;
}

typedef struct report {
    const nnc_cluster *c;
    nnc_text *out;
    nnc_json_writer w;
    nnc_arena *arena;
    int32_t *every; /* 0, 1, 2, ... */
    nnc_sink *sink;
} report;

static nnc_status collective(report *r, nnc_group_op kind, int n, int64_t bytes, nnc_transfer *t)
{
    return nnc_cluster_collective(r->c, kind, r->every, n, bytes, t, r->arena, r->sink);
}

/* ---- text --------------------------------------------------------------------------------------------------------- */

static void put_rate(nnc_text *t, const char *name, int64_t flops)
{
    if (flops > 0)
        nnc_printf(t, ", %.4g %s", (double)flops * 1e-12, name);
}

/* The classes that are measured, and the rate of each at its largest point. */
static void text_ops(const nnc_cluster_kind *k, nnc_text *t)
{
    NNC_LOCAL(nnc_text) all = {.into = t};
    for (int i = 0; i < k->n_op; i++) {
        const nnc_op_speed *x = &k->op[i];
        const nnc_point *last = x->n_point ? &x->point[x->n_point - 1] : NULL;
        if (!last)
            continue;
        const double rate = (double)last->work / (double)last->ns;
        nnc_printf(
            &all, "%s%s", all.n ? "; " : "measured ops, the rate of their largest: ", x->op_class);
        if (!x->any_dtype)
            nnc_printf(&all, " %s", x->tf32 ? "tf32" : nnc_dtype_name(x->dtype));
        if (nnc_sim_class_contracts(x->op_class))
            nnc_printf(&all, " %.4g TFLOP/s", rate * 1e-3);
        else
            nnc_printf(&all, " %.4g GB/s", rate);
    }
    if (!all.n)
        return;
    nnc_puts(t, "    ");
    nnc_put_wrapped(t, nnc_text_str(&all), 4, 4, REPORT_WIDTH);
    nnc_putc(t, '\n');
}

static void text_kind(report *r, const nnc_cluster_kind *k)
{
    nnc_text *t = r->out;
    const nnc_target *g = &k->target;
    nnc_printf(t, "  %d x %s%s%s%s: memory ", k->count, *g->card ? g->card : g->name,
        *g->card ? " (" : "", *g->card ? g->name : "", *g->card ? ")" : "");
    nnc_put_bytes(t, g->memory_bytes);
    nnc_printf(t, ", of which ");
    nnc_put_bytes(t, k->context_bytes + k->library_bytes);
    nnc_printf(t, " context and libraries; copies %.0f GB/s\n    TFLOP/s: %.4g f32",
        (double)g->copy_bytes_s * 1e-9, (double)g->flops_f32 * 1e-12);
    put_rate(t, "tf32", g->flops_tf32);
    put_rate(t, "f16", k->flops[DT_f16]);
    put_rate(t, "bf16", k->flops[DT_bf16]);
    put_rate(t, "i8", k->flops[DT_i8]);
    put_rate(t, "f64", k->flops[DT_f64]);
    if (k->overlap > 1)
        nnc_printf(t, "; ops take %.3f times as long beside a collective", k->overlap);
    nnc_putc(t, '\n');
    if (g->kind == NNC_T_cuda) {
        nnc_puts(t, "    ");
        nnc_target_put_libraries(t, g);
        nnc_putc(t, '\n');
    }
    if (k->host_ns > 0 || k->run_ns > 0)
        nnc_printf(t,
            "    launch of a command %.4g us, by itself %.4g us; of a run, waited for, %.4g us\n",
            (double)k->command_ns * 1e-3, (double)k->host_ns * 1e-3, (double)k->run_ns * 1e-3);
    text_ops(k, t);
    if (*k->source) {
        nnc_puts(t, "    ");
        nnc_put_wrapped(t, k->source, 4, 4, REPORT_WIDTH);
        nnc_putc(t, '\n');
    }
}

static void put_end(nnc_text *t, const nnc_cluster *c, int end)
{
    char name[24];
    if (end == NNC_HOST)
        nnc_snprintf(name, sizeof name, "host");
    else
        nnc_snprintf(name, sizeof name, "%s%d", end >= c->per_node ? "other " : "", end);
    nnc_printf(t, "%9s", name);
}

static nnc_status text_matrix(report *r)
{
    int end[MATRIX + 2];
    const int n = ends_of(r->c, end);
    nnc_puts(
        r->out, "\nBandwidth of a copy from the row's device to the column's, GB/s:\n         ");
    for (int b = 0; b < n; b++)
        put_end(r->out, r->c, end[b]);
    for (int a = 0; a < n; a++) {
        nnc_putc(r->out, '\n');
        put_end(r->out, r->c, end[a]);
        for (int b = 0; b < n; b++) {
            nnc_transfer t;
            const bool hosts =
                (end[a] == NNC_HOST || end[b] == NNC_HOST) &&
                (end[a] == end[b] || end[a] >= r->c->per_node || end[b] >= r->c->per_node);
            if (hosts || a == b) {
                nnc_printf(r->out, "%9s", "-");
                continue;
            }
            NNC_TRY(nnc_cluster_p2p(r->c, end[a], end[b], &t, r->arena, r->sink));
            nnc_printf(r->out, "%9.1f", t.bytes_s * 1e-9);
        }
    }
    nnc_putc(r->out, '\n');
    return NNC_OK;
}

static nnc_status text_collectives(report *r)
{
    int count[COUNTS];
    const int n = counts_of(r->c, count);
    nnc_puts(r->out, "\nTime of an allreduce on the first N devices, ms:\n         ");
    for (int i = 0; i < n; i++)
        nnc_printf(r->out, "%9d", count[i]);
    for (size_t s = 0; s < NNC_COUNT(sizes); s++) {
        nnc_putc(r->out, '\n');
        nnc_put_bytes_column(r->out, sizes[s], 9, false);
        for (int i = 0; i < n; i++) {
            nnc_transfer t;
            NNC_TRY(collective(r, GROUP_allreduce, count[i], sizes[s], &t));
            nnc_put_ms(r->out, (double)nnc_transfer_ps(&t, sizes[s]) * 1e-9, 9);
        }
    }
    nnc_puts(r->out, "\nBus bandwidth at 1 GiB, GB/s, and the algorithm:\n         ");
    for (int i = 0; i < n; i++) {
        nnc_transfer t;
        NNC_TRY(collective(r, GROUP_allreduce, count[i], 1 << 30, &t));
        nnc_printf(r->out, "%9.1f", t.bytes_s * 2 * (count[i] - 1) / count[i] * 1e-9);
    }
    nnc_puts(r->out, "\n  ");
    for (int i = 0; i < n; i++) {
        nnc_transfer t;
        NNC_TRY(collective(r, GROUP_allreduce, count[i], 1 << 30, &t));
        nnc_printf(r->out, "%s%d %s", i ? ", " : "", count[i], t.how);
    }
    nnc_putc(r->out, '\n');
    return NNC_OK;
}

static nnc_status text_report(report *r)
{
    const nnc_cluster *c = r->c;
    nnc_printf(r->out, "%s: %d node%s, %d device%s\n", c->name, c->n_node,
        nnc_plural(c->n_node, "s"), c->n_device, nnc_plural(c->n_device, "s"));
    for (int k = 0; k < c->n_kind; k++)
        text_kind(r, &c->kind[k]);
    NNC_TRY(text_matrix(r));
    return c->n_device > 1 ? text_collectives(r) : NNC_OK;
}

/* ---- JSON, CSV ---------------------------------------------------------------------------------------------------- */

static void json_kind(report *r, const nnc_cluster_kind *k)
{
    nnc_json_open(&r->w, NULL, '{');
    NNC_JSON(&r->w, J_STRING("target", k->target.name), J_STRING("card", k->target.card),
        J_INT("count", k->count), J_INT("memory_bytes", k->target.memory_bytes),
        J_INT("context_bytes", k->context_bytes), J_INT("library_bytes", k->library_bytes),
        J_INT("copy_bytes_s", k->target.copy_bytes_s), J_REAL("overlap", k->overlap),
        J_INT("command_ns", k->command_ns >= 0 ? k->command_ns : k->target.launch_ns),
        J_INT("host_ns", k->host_ns), J_INT("run_ns", k->run_ns), J_INT("op_classes", k->n_op),
        J_STRING("source", k->source));
    if (k->target.kind == NNC_T_cuda) {
        nnc_json_item(&r->w, "libraries");
        nnc_target_libraries_json(r->out, &k->target);
    }
    nnc_json_open(&r->w, "flops", '{');
    for (int d = 0; d < DT__COUNT; d++)
        if (k->flops[d])
            NNC_JSON(&r->w, J_INT(nnc_dtype_name((nnc_dtype)d), k->flops[d]));
    if (k->target.flops_tf32)
        NNC_JSON(&r->w, J_INT("tf32", k->target.flops_tf32));
    nnc_json_close(&r->w, '}');
    nnc_json_close(&r->w, '}');
}

/* A row of the list "times", which are also the lines of the CSV form. */
static void put_row(report *r, const char *what, int from, int to, int devices, int64_t bytes,
    const nnc_transfer *t)
{
    NNC_JSON_ROW(&r->w, 4, J_STRING("what", what), J_INT("from", from), J_INT("to", to),
        J_INT("devices", devices), J_INT("bytes", bytes),
        J_REAL("us", nnc_decimals((double)nnc_transfer_ps(t, bytes) * 1e-6, 3)),
        J_REAL("gb_s", nnc_decimals(t->bytes_s * 1e-9, 3)), J_STRING("how", t->how));
}

static nnc_status put_rows(report *r)
{
    int end[MATRIX + 2], count[COUNTS];
    const int n_end = ends_of(r->c, end), n = counts_of(r->c, count);
    nnc_transfer t;
    for (int a = 0; a < n_end; a++)
        for (int b = 0; b < n_end; b++) {
            const bool host = end[a] == NNC_HOST || end[b] == NNC_HOST;
            if (a == b || (host && (end[a] >= r->c->per_node || end[b] >= r->c->per_node)))
                continue;
            NNC_TRY(nnc_cluster_p2p(r->c, end[a], end[b], &t, r->arena, r->sink));
            put_row(r, "copy", end[a], end[b], 2, 1 << 20, &t);
        }
    for (int kind = 0; kind < GROUP__COUNT; kind++)
        for (int i = 0; i < n; i++)
            for (size_t s = 0; s < NNC_COUNT(sizes); s++) {
                NNC_TRY(collective(r, (nnc_group_op)kind, count[i], sizes[s], &t));
                put_row(r, nnc_group_op_names[kind], 0, count[i] - 1, count[i], sizes[s], &t);
            }
    return NNC_OK;
}

static nnc_status json_report(report *r)
{
    const nnc_cluster *c = r->c;
    nnc_json_open(&r->w, NULL, '{');
    NNC_JSON(&r->w, J_STRING("name", c->name), J_STRING("source", c->source),
        J_INT("nodes", c->n_node), J_INT("devices", c->n_device));
    nnc_json_open(&r->w, "kinds", '[');
    for (int k = 0; k < c->n_kind; k++)
        json_kind(r, &c->kind[k]);
    nnc_json_close(&r->w, ']');
    nnc_json_open(&r->w, "links", '[');
    for (int l = 0; l < c->n_link / c->n_node; l++) {
        NNC_LOCAL(nnc_text) name = {.into = r->w.out};
        nnc_cluster_link_name(c, l, &name);
        nnc_json_line(&r->w, 4);
        NNC_JSON_OBJECT(&r->w, NULL, J_STRING("name", nnc_text_str(&name)),
            J_INT("bytes_s", c->link[l].bytes_s));
    }
    nnc_json_close(&r->w, ']');
    nnc_json_open(&r->w, "times", '[');
    NNC_TRY(put_rows(r));
    nnc_json_close(&r->w, ']');
    nnc_json_end(&r->w, '}');
    return NNC_OK;
}

nnc_status nnc_report_hardware(const char *file, nnc_format f, nnc_text *out, nnc_sink *sink)
{
    NNC_OWNED(nnc_cluster) *c = nnc_cluster_load(file, sink);
    NNC_LOCAL(nnc_arena) a = {0};
    if (!c)
        return nnc_sink_cause(sink, NNC_E_USAGE);
    report r = {
        .c = c, .out = out, .w = {.out = out, .csv = f == NNC_CSV}, .arena = &a, .sink = sink};
    NNC_NEED(r.every = ARENA_NEW(&a, int32_t, c->n_device), sink);
    for (int i = 0; i < c->n_device; i++)
        r.every[i] = i;
    return f == NNC_TEXT ? text_report(&r) : f == NNC_CSV ? put_rows(&r) : json_report(&r);
}
