/* report/report.c -- the reports show, doctor and devices as text, JSON and CSV (docs/formats.md). */
#include "report/report.h"
#include "session/session.h"
#include "data/data.h"
#include "tensors/tensors.h"
#include <string.h>

static nnc_status done(const nnc_text *t)
{
    return t->oom ? NNC_E_NOMEM : NNC_OK;
}

/* ---- show -------------------------------------------------------------------------------------------- */

static void json_ports(nnc_json_writer *w, const nnc_graph *g, const char *key, bool inputs)
{
    nnc_json_open(w, key, '[');
    for (uint32_t i = 0; i < (inputs ? g->n_node : g->n_output); i++) {
        if (inputs && g->node[i].op != OP_input)
            continue;
        nnc_ref r = inputs ? g->node[i].out : g->output[i];
        const char *name = inputs ? g->value[r].name : g->output_name[i];
        nnc_json_open(w, NULL, '{');
        NNC_JSON(w, J_STRING("name", name ? name : ""),
            J_STRING("dtype", nnc_dtype_name((nnc_dtype)nnc_typeof(g, r)->dtype)));
        nnc_json_open(w, "shape", '[');
        for (int k = 0; k < nnc_typeof(g, r)->rank; k++)
            NNC_JSON(w, J_INT(NULL, nnc_typeof(g, r)->dim[k]));
        nnc_json_close(w, ']');
        nnc_json_close(w, '}');
    }
    nnc_json_close(w, ']');
}

/* Number of parameter elements that a node reads. */
static int64_t weights_of(const nnc_graph *g, const nnc_node *n)
{
    int64_t count = 0;
    for (int k = 0; k < n->n_in; k++)
        if (g->node[g->value[n->in[k]].node].op == OP_param && !nnc_reads_statistic(n, k))
            count += nnc_type_numel(nnc_typeof(g, n->in[k]));
    return count;
}

static bool is_layer(const nnc_node *n)
{
    return nnc_op_class((nnc_op)n->op) != CL_leaf;
}

static void text_layer(nnc_text *t, const nnc_graph *g, const nnc_node *n)
{
    NNC_LOCAL(nnc_text) ty = {.into = t};
    nnc_cost c = nnc_node_cost(g, n);
    int64_t w = weights_of(g, n);
    nnc_put_type(&ty, nnc_typeof(g, n->out));
    nnc_printf(t, "  %-14s %-26s", nnc_ops[n->op].name, nnc_text_str(&ty));
    if (w)
        nnc_printf(t, " %12lld", (long long)w);
    else
        nnc_printf(t, " %12s", "");
    if (c.flops)
        nnc_printf(t, " %12.3f", (double)c.flops * 1e-6);
    else
        nnc_printf(t, " %12s", "");
    if (c.bytes)
        nnc_put_bytes_column(t, c.bytes, 12, false);
    else
        nnc_printf(t, "%12s", "");
    nnc_puts(t, "  ");
    nnc_put_layers(t, n->origin ? n->origin : "", 0);
    nnc_putc(t, '\n');
}

static void text_ports(nnc_text *t, const nnc_graph *g)
{
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_input) {
            nnc_printf(t, "  input  %-12s ", g->value[g->node[i].out].name);
            nnc_put_type(t, nnc_typeof(g, g->node[i].out));
            nnc_putc(t, '\n');
        }
    for (uint32_t i = 0; i < g->n_output; i++) {
        nnc_printf(t, "  output %-12s ", g->output_name[i] ? g->output_name[i] : "");
        nnc_put_type(t, nnc_typeof(g, g->output[i]));
        nnc_putc(t, '\n');
    }
}

static void text_show(nnc_text *t, const nnc_graph *g)
{
    nnc_cost c = nnc_graph_cost(g);
    int64_t parameters, statistics;
    t->oom |= !nnc_param_count(g, &parameters, &statistics);
    nnc_printf(t, "%s: %lld parameters", g->name, (long long)parameters);
    if (statistics)
        nnc_printf(t, " and %lld running statistics", (long long)statistics);
    nnc_printf(t, ", %.3f GFLOP, ", (double)c.flops * 1e-9);
    nnc_put_bytes(t, c.bytes);
    nnc_printf(t, " moved per run in %d launch%s as written\n\n", c.launches,
        nnc_plural(c.launches, "es"));
    text_ports(t, g);
    nnc_puts(t, "\n  op             result                       parameters        MFLOP       "
                "moves  layer\n");
    for (uint32_t i = 0; i < g->n_node; i++)
        if (is_layer(&g->node[i]))
            text_layer(t, g, &g->node[i]);
}

static void put_layers(nnc_json_writer *w, const nnc_graph *g)
{
    nnc_json_open_at(w, 1, "layers", '[');
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (!is_layer(n))
            continue;
        nnc_cost c = nnc_node_cost(g, n);
        NNC_LOCAL(nnc_text) type = {.into = w->out};
        nnc_put_type(&type, nnc_typeof(g, n->out));
        NNC_JSON_ROW(w, 2, J_STRING("op", nnc_ops[n->op].name),
            J_STRING("result", nnc_text_str(&type)), J_INT("parameters", weights_of(g, n)),
            J_INT("flops", c.flops), J_INT("bytes_moved", c.bytes),
            J_STRING("layer", n->origin ? n->origin : ""));
    }
    nnc_json_close(w, ']');
}

static void print_show(nnc_json_writer *w, const nnc_graph *g)
{
    int64_t parameters, statistics;
    w->out->oom |= !nnc_param_count(g, &parameters, &statistics);
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("name", g->name), J_INT("parameters", parameters),
        J_INT("statistics", statistics), J_INT("flops", nnc_graph_cost(g).flops),
        J_INT("nodes", g->n_node));
    json_ports(w, g, "inputs", true);
    json_ports(w, g, "outputs", false);
    put_layers(w, g);
    nnc_json_end(w, '}');
}

nnc_status nnc_report_show(const nnc_model *g, nnc_format f, nnc_text *t)
{
    nnc_json_writer w = {.out = t, .csv = f == NNC_CSV};
    if (f == NNC_TEXT)
        text_show(t, g);
    else
        print_show(&w, g);
    return done(t);
}

/* ---- doctor, devices --------------------------------------------------------------------------------- */

typedef struct part {
    const char *name, *what, *without;
} part;

static const part parts[] = {
    {"llvm", "machine code for generated kernels (LLVM)",
        "kernels run in the interpreter, 10 to 100 times slower"},
    {"mpi", "one model over several processes (MPI)", "all devices are in one process"},
    {"jpeg", "JPEG files of pictures (libjpeg)", "nnc train reads none of them"},
    {"png", "PNG files of pictures (libpng)", "nnc train reads none of them"},
    {"zlib", "compressed .npz files (zlib)", "only uncompressed ones are read"},
};

static void put_cpu(const nnc_target *g, nnc_text *t)
{
    const char *cpu = nnc_target_core(g->core) ? g->core : g->cpu;
    bool known = cpu && *cpu;
    nnc_printf(t, "  %s: %s%s%d core%s, %d-bit vectors, %d thread%s used; memory ", g->name,
        known ? cpu : "", known ? ", " : "", g->cores, nnc_plural(g->cores, "s"), g->vector_bits,
        g->threads, nnc_plural(g->threads, "s"));
    nnc_put_bytes(t, g->memory_bytes);
    nnc_printf(t, "\n  peak %.0f GFLOP/s (f32), copies %.0f GB/s; %s\n",
        (double)g->flops_f32 * 1e-9, (double)g->copy_bytes_s * 1e-9,
        g->measured ? "measured" : "described, not measured");
    nnc_printf(t, "  virtual devices cpu:0, cpu:1, ... share this machine (--devices)\n");
}

static void put_machines(nnc_text *t, const nnc_env *e)
{
    for (int i = 0; i < e->n_target; i++)
        if (e->target[i].kind == NNC_T_cuda)
            nnc_devices_cuda_text(&e->target[i], t);
        else
            put_cpu(&e->target[i], t);
}

/* One machine file, or several in a list. */
static void put_machines_json(nnc_text *t, const nnc_env *e)
{
    for (int i = 0; i < e->n_target; i++) {
        if (e->n_target > 1)
            nnc_puts(t, i ? ",\n" : "[");
        nnc_target_print_json(t, &e->target[i]);
    }
    if (e->n_target > 1)
        nnc_puts(t, "]\n");
}

/* Loads optional part i; NULL: absent, *why says why. */
static const void *load_part(int i, const char **version, const char **why)
{
    static const char *const symbol[] = {
        "nnc_emitter_llvm", "nnc_transport_mpi", "nnc_decoder_jpeg", "nnc_decoder_png"};
    if (i == (int)NNC_COUNT(symbol)) { /* no plug-in */
        const char *zlib = nnc_zlib_version();
        *version = zlib ? zlib : "";
        *why =
            "nnc was built without it (Debian: apt-get install zlib1g-dev, then build nnc again)";
        return zlib;
    }
    const void *p = nnc_plugin(parts[i].name, symbol[i], why);
    *version = !p       ? ""
               : i == 0 ? ((const nnc_emitter *)p)->version
               : i == 1 ? ((const nnc_transport *)p)->version()
                        : ((const nnc_decoder *)p)->version;
    return p;
}

static void json_doctor(nnc_text *t, const nnc_env *e)
{
    nnc_json_writer w = {.out = t};
    nnc_json_open(&w, NULL, '{');
    NNC_JSON(&w, J_STRING("version", NNC_VERSION));
    nnc_json_open(&w, "parts", '[');
    for (size_t i = 0; i < NNC_COUNT(parts); i++) {
        const char *why = NULL, *version;
        const void *p = load_part((int)i, &version, &why);
        NNC_JSON_OBJECT(&w, NULL, J_STRING("name", parts[i].name), J_BOOL("found", p != NULL),
            J_STRING("version", version), J_STRING("note", p ? "" : why));
    }
    nnc_json_close(&w, ']');
    nnc_doctor_cuda_json(&w);
    NNC_JSON(&w, J_STRING("limit", nnc_cpu_limit()));
    nnc_json_item(&w, "machine");
    put_machines_json(t, e);
    nnc_json_end(&w, '}');
}

static void text_doctor(nnc_text *t, const nnc_env *e)
{
    nnc_puts(t, "nnc " NNC_VERSION "\n\n");
    for (size_t i = 0; i < NNC_COUNT(parts); i++) {
        const char *why = NULL, *version;
        const void *p = load_part((int)i, &version, &why);
        nnc_printf(t, "  %-8s %-8s %-44s %s", parts[i].name, p ? "found" : "absent", parts[i].what,
            version);
        nnc_trim(t);
        nnc_putc(t, '\n');
        if (!p)
            nnc_printf(t, "           %s\n           %s\n", why, parts[i].without);
    }
    nnc_doctor_cuda_text(t);
    nnc_puts(t, "\n");
    if (*nnc_cpu_limit())
        nnc_printf(
            t, "  limited to the instructions of %s (NNC_CPU, --target=cpu:)\n", nnc_cpu_limit());
    put_machines(t, e);
}

nnc_status nnc_report_doctor(nnc_env *e, nnc_format f, nnc_text *t)
{
    nnc_env_settle(e);
    if (f == NNC_JSON)
        json_doctor(t, e);
    else
        text_doctor(t, e);
    return done(t);
}

nnc_status nnc_report_devices(nnc_env *e, nnc_format f, nnc_text *t)
{
    nnc_env_settle(e);
    if (f == NNC_JSON) {
        put_machines_json(t, e);
        return done(t);
    }
    put_machines(t, e);
    if (!strcmp(nnc_text_str(&e->name), "cpu"))
        nnc_devices_gpus_text(t);
    return done(t);
}
