/* api/report.c -- the answers to explain, memory, show, doctor and devices, as text and JSON (docs/formats.md). */
#include "api/internal.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static nnc_status done(const nnc_text *t)
{
    return t->oom ? NNC_E_NOMEM : NNC_OK;
}

/* ---- explain ----------------------------------------------------------------------------------------- */

static void json_remark(nnc_text *t, const nnc_remark *r)
{
    nnc_puts(t, "{\"pass\": ");
    nnc_put_json_string(t, r->pass);
    nnc_printf(t, ", \"verdict\": \"%s\", \"rule\": ", r->applied ? "applied" : "declined");
    nnc_put_json_string(t, r->rule);
    nnc_puts(t, ", \"layers\": [");
    for (int i = 0; i < r->n_layers; i++) {
        nnc_puts(t, i ? ", " : "");
        nnc_put_json_string(t, r->layer[i]);
    }
    nnc_puts(t, "], \"reason\": ");
    nnc_put_json_string(t, r->reason ? r->reason : "");
    nnc_printf(t, ", \"bytes_saved\": %lld, \"launches_saved\": %lld}", (long long)r->bytes_saved,
        (long long)r->launches_saved);
}

/* "/layers/3/conv + /layers/4/relu"; long lists keep their ends. */
static void put_layers(nnc_text *t, const nnc_remark *r)
{
    for (int i = 0; i < r->n_layers; i++) {
        if (r->n_layers > 6 && i == 3) {
            nnc_printf(t, " + ... %d more ...", r->n_layers - 5);
            i = r->n_layers - 3;
            continue;
        }
        nnc_printf(t, "%s%s", i ? " + " : "", r->layer[i]);
    }
}

static void text_remark(nnc_text *t, const nnc_remark *r)
{
    nnc_printf(t, "  %s %-28s ", r->applied ? "yes" : "no ", r->rule);
    put_layers(t, r);
    nnc_putc(t, '\n');
    nnc_printf(t, "      %s", r->reason ? r->reason : "");
    if (r->applied && (r->bytes_saved || r->launches_saved)) {
        nnc_printf(t, " [%+lld launch%s, ", (long long)-r->launches_saved,
            r->launches_saved == 1 || r->launches_saved == -1 ? "" : "es");
        nnc_putc(t, r->bytes_saved > 0 ? '-' : '+');
        nnc_put_bytes(t, r->bytes_saved > 0 ? r->bytes_saved : -r->bytes_saved);
        nnc_putc(t, ']');
    }
    nnc_putc(t, '\n');
}

typedef struct totals {
    int applied, declined;
    int64_t bytes, launches;
} totals;

static totals sum(const nnc_remarks *r, const char *pass)
{
    totals s = {0};
    for (size_t i = 0; i < r->n; i++) {
        if (pass && strcmp(r->at[i].pass, pass))
            continue;
        r->at[i].applied ? s.applied++ : s.declined++;
        s.bytes += r->at[i].applied ? r->at[i].bytes_saved : 0;
        s.launches += r->at[i].applied ? r->at[i].launches_saved : 0;
    }
    return s;
}

static void text_totals(nnc_text *t, totals s)
{
    nnc_printf(t, "%d applied, %d declined", s.applied, s.declined);
    if (s.launches || s.bytes) {
        nnc_printf(t, "; %lld launches and ", (long long)s.launches);
        nnc_put_bytes(t, s.bytes);
        nnc_puts(t, " saved");
    }
}

nnc_status nnc_report_explain(const nnc_artifact *a, nnc_format f, bool verbose, nnc_text *t)
{
    const nnc_remarks *r = &a->remarks;
    if (f == NNC_JSON) {
        for (size_t i = 0; i < r->n; i++) {
            nnc_puts(t, i ? ",\n " : "[");
            json_remark(t, &r->at[i]);
        }
        nnc_puts(t, r->n ? "]\n" : "[]\n");
        return done(t);
    }
    nnc_cost before = nnc_graph_cost(a->source), after = nnc_graph_cost(a->graph);
    nnc_printf(t, "%s: %d -> %d launches, ", a->source->name, before.launches, after.launches);
    nnc_put_bytes(t, before.bytes);
    nnc_puts(t, " -> ");
    nnc_put_bytes(t, after.bytes);
    nnc_puts(t, " moved per run\n");
    for (int p = 0; p < nnc_pass_count; p++) {
        totals s = sum(r, nnc_pass_table[p].name);
        if (!s.applied && !s.declined)
            continue;
        nnc_printf(t, "\n%s: ", nnc_pass_table[p].name);
        text_totals(t, s);
        nnc_putc(t, '\n');
        for (size_t i = 0; i < r->n; i++)
            if (!strcmp(r->at[i].pass, nnc_pass_table[p].name))
                text_remark(t, &r->at[i]);
    }
    (void)verbose;
    return done(t);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

/* Bytes live in main's arena of a device while command i runs, and the layer. */
static int64_t live_at(const nnc_plan *p, int device, int i)
{
    int64_t n = 0;
    for (int k = 0; k < p->n_tensor; k++) {
        const nnc_ptensor *x = &p->tensor[k];
        if (x->device == device && x->space == SP_arena && x->alias_of < 0 && x->first <= i &&
            i <= x->last)
            n += x->bytes;
    }
    return n;
}

static const char *peak_layer(const nnc_plan *p, const nnc_plan_device *d)
{
    bool known = d->peak_cmd >= 0 && d->peak_cmd < p->n_cmd && p->cmd[d->peak_cmd].layers;
    return known ? p->cmd[d->peak_cmd].layers : "";
}

static void json_device(nnc_text *t, const nnc_plan *p, int d)
{
    const nnc_plan_device *v = &p->device[d];
    nnc_puts(t, "{\"device\": ");
    nnc_put_json_string(t, v->name);
    nnc_printf(t,
        ", \"weights\": %lld, \"arena\": %lld, \"workspace\": %lld, \"init\": %lld, \"total\": "
        "%lld, \"lower_bound\": %lld, \"peak_at\": ",
        (long long)v->persist_bytes, (long long)v->arena_bytes, (long long)v->workspace_bytes,
        (long long)v->init_bytes, (long long)(v->persist_bytes + v->arena_bytes),
        (long long)v->lower_bound);
    nnc_put_json_string(t, peak_layer(p, v));
    nnc_puts(t, ",\n  \"timeline\": [");
    bool first = true;
    for (int i = p->main_first; i < p->n_cmd; i++) {
        if (p->cmd[i].device != d || p->cmd[i].kind == CMD_record || p->cmd[i].kind == CMD_wait)
            continue;
        nnc_puts(t, first ? "{\"layers\": " : ",\n   {\"layers\": ");
        nnc_put_json_string(t, p->cmd[i].layers ? p->cmd[i].layers : "");
        nnc_printf(t, ", \"live\": %lld}", (long long)live_at(p, d, i));
        first = false;
    }
    nnc_puts(t, "]}");
}

static void text_timeline(nnc_text *t, const nnc_plan *p, int d)
{
    int64_t peak = nnc_max64(p->device[d].lower_bound, 1);
    nnc_puts(t, "        live  while\n");
    for (int i = p->main_first; i < p->n_cmd; i++) {
        if (p->cmd[i].device != d || p->cmd[i].kind == CMD_record || p->cmd[i].kind == CMD_wait)
            continue;
        int64_t live = live_at(p, d, i);
        nnc_text b = {0};
        nnc_put_bytes(&b, live);
        nnc_printf(
            t, "%12s  %-50.50s ", nnc_text_str(&b), p->cmd[i].layers ? p->cmd[i].layers : "");
        nnc_text_deinit(&b);
        for (int64_t k = 0; k < live * 24 / peak; k++)
            nnc_putc(t, '#');
        nnc_puts(t, i == p->device[d].peak_cmd ? "  <- peak\n" : "\n");
    }
}

static void text_line(nnc_text *t, const char *what, int64_t bytes, const char *note)
{
    nnc_text b = {0};
    nnc_put_bytes(&b, bytes);
    nnc_printf(t, "  %-12s %14lld B  %11s  %s\n", what, (long long)bytes, nnc_text_str(&b), note);
    nnc_text_deinit(&b);
}

static void text_device(nnc_text *t, const nnc_plan *p, int d)
{
    const nnc_plan_device *v = &p->device[d];
    nnc_printf(t, "%s\n", v->name);
    text_line(
        t, "weights", v->persist_bytes, "as long as the model is loaded, packed forms included");
    text_line(t, "arena", v->arena_bytes, "activations and workspace, reused by liveness");
    text_line(t, "  workspace", v->workspace_bytes, "part of the arena at its peak");
    text_line(t, "total", v->persist_bytes + v->arena_bytes, "");
    text_line(t, "init", v->init_bytes, "given back before the first run");
    text_line(t, "lower bound", v->lower_bound, "of the arena: most bytes live at once");
    nnc_printf(t, "  peak at      %s\n\n", peak_layer(p, v));
    text_timeline(t, p, d);
}

nnc_status nnc_report_memory(
    nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *t, bool *fits)
{
    const nnc_plan *p = a->plan;
    int64_t need = 0;
    for (int d = 0; d < p->n_device; d++) /* virtual CPU devices share the machine's memory */
        need += p->device[d].persist_bytes +
                nnc_max64(p->device[d].arena_bytes, p->device[d].init_bytes);
    *fits = need <= e->target.memory_bytes;
    nnc_puts(t, f == NNC_JSON ? "{\"devices\": [" : "");
    for (int d = 0; d < p->n_device; d++) {
        if (f == NNC_JSON) {
            nnc_puts(t, d ? ",\n " : "");
            json_device(t, p, d);
        } else {
            text_device(t, p, d);
        }
    }
    if (f == NNC_JSON) {
        nnc_printf(t, "], \"fits\": %s}\n", *fits ? "true" : "false");
    } else {
        nnc_printf(t, "\n%s: ", *fits ? "Fits" : "Does not fit");
        nnc_put_bytes(t, need);
        nnc_puts(t, " needed at most, ");
        nnc_put_bytes(t, e->target.memory_bytes);
        nnc_puts(t, " on this machine.\n");
    }
    return done(t);
}

/* ---- show -------------------------------------------------------------------------------------------- */

static void json_ports(nnc_text *t, const nnc_graph *g, const char *key, bool inputs)
{
    int n = 0;
    nnc_printf(t, ", \"%s\": [", key);
    for (uint32_t i = 0; i < (inputs ? g->n_node : g->n_output); i++) {
        if (inputs && g->node[i].op != OP_input)
            continue;
        nnc_ref r = inputs ? g->node[i].out : g->output[i];
        const char *name = inputs ? g->value[r].name : g->output_name[i];
        nnc_puts(t, n++ ? ", {\"name\": " : "{\"name\": ");
        nnc_put_json_string(t, name ? name : "");
        nnc_printf(t, ", \"dtype\": \"%s\", \"shape\": [",
            nnc_dtype_name((nnc_dtype)nnc_typeof(g, r)->dtype));
        for (int k = 0; k < nnc_typeof(g, r)->rank; k++)
            nnc_printf(t, "%s%lld", k ? ", " : "", (long long)nnc_typeof(g, r)->dim[k]);
        nnc_puts(t, "]}");
    }
    nnc_putc(t, ']');
}

static void text_layer(nnc_text *t, const nnc_graph *g, const nnc_node *n)
{
    nnc_text ty = {0};
    nnc_cost c = nnc_node_cost(g, n);
    nnc_put_type(&ty, nnc_typeof(g, n->out));
    nnc_printf(t, "  %-14s %-28s %10.3f  ", nnc_ops[n->op].name, nnc_text_str(&ty),
        (double)c.flops * 1e-6);
    nnc_put_bytes(t, c.bytes);
    nnc_printf(t, "  %s\n", n->origin ? n->origin : "");
    nnc_text_deinit(&ty);
}

static void text_show(nnc_text *t, const nnc_graph *g)
{
    int64_t params = nnc_param_count(g);
    nnc_cost c = nnc_graph_cost(g);
    nnc_printf(t, "%s: %lld parameters, %.3f GFLOP per run, %d launches as written\n\n", g->name,
        (long long)params, (double)c.flops * 1e-9, c.launches);
    nnc_puts(t, "  op             result                           MFLOP  moves  layer\n");
    for (uint32_t i = 0; i < g->n_node; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) != CL_leaf || g->node[i].op == OP_input)
            text_layer(t, g, &g->node[i]);
}

nnc_status nnc_report_show(const nnc_model *g, nnc_format f, nnc_text *t)
{
    if (f != NNC_JSON) {
        text_show(t, g);
        return done(t);
    }
    nnc_puts(t, "{\"name\": ");
    nnc_put_json_string(t, g->name);
    nnc_printf(t, ", \"parameters\": %lld, \"flops\": %lld, \"nodes\": %u",
        (long long)nnc_param_count(g), (long long)nnc_graph_cost(g).flops, g->n_node);
    json_ports(t, g, "inputs", true);
    json_ports(t, g, "outputs", false);
    nnc_puts(t, "}\n");
    return done(t);
}

/* ---- doctor, devices --------------------------------------------------------------------------------- */

typedef struct part {
    const char *name, *what, *without;
} part;

static const part parts[] = {
    {"llvm", "machine code for generated kernels (LLVM)",
        "kernels run in the interpreter, 10 to 100 times slower: apt-get install llvm-19-dev, then "
        "build again"},
    {"onednn", "convolutions and matrix products (oneDNN)",
        "they run in plain loops, several times slower: apt-get install libdnnl-dev, then build "
        "again"},
    {"openmp", "threads shared with oneDNN (OpenMP)", "threads come from pthreads"},
};

nnc_status nnc_report_doctor(nnc_env *e, nnc_format f, nnc_text *t)
{
    nnc_puts(t, f == NNC_JSON ? "{\"version\": \"" NNC_VERSION "\", \"parts\": ["
                              : "nnc " NNC_VERSION "\n\n");
    for (size_t i = 0; i < NNC_COUNT(parts); i++) {
        const char *why = NULL, *symbol = i == 0   ? "nnc_emitter_llvm"
                                          : i == 1 ? "nnc_engine_onednn"
                                                   : "nnc_par_openmp";
        const void *p = nnc_plugin(parts[i].name, symbol, &why);
        const char *version = !p       ? ""
                              : i == 0 ? ((const nnc_emitter *)p)->version
                              : i == 1 ? ((const nnc_engine *)p)->version
                                       : "";
        if (f == NNC_JSON) {
            nnc_printf(t, "%s{\"name\": \"%s\", \"found\": %s, \"version\": ", i ? ", " : "",
                parts[i].name, p ? "true" : "false");
            nnc_put_json_string(t, version);
            nnc_puts(t, ", \"note\": ");
            nnc_put_json_string(t, p ? "" : why);
            nnc_putc(t, '}');
        } else {
            nnc_printf(t, "  %-8s %-8s %-44s %s\n", parts[i].name, p ? "found" : "absent",
                parts[i].what, version);
            if (!p)
                nnc_printf(t, "           %s\n           %s\n", why, parts[i].without);
        }
    }
    if (f == NNC_JSON) {
        nnc_puts(t, "], \"machine\": ");
        nnc_target_print_json(t, &e->target);
        nnc_puts(t, "}\n");
        return done(t);
    }
    nnc_puts(t, "\n");
    return nnc_report_devices(e, f, t);
}

nnc_status nnc_report_devices(nnc_env *e, nnc_format f, nnc_text *t)
{
    const nnc_target *g = &e->target;
    if (f == NNC_JSON) {
        nnc_target_print_json(t, g);
        return done(t);
    }
    nnc_printf(t, "  %s: %s, %d core%s, %d-bit vectors, %d threads used; memory ", g->name,
        g->cpu && *g->cpu ? g->cpu : "this CPU", g->cores, g->cores == 1 ? "" : "s", g->vector_bits,
        g->threads);
    nnc_put_bytes(t, g->memory_bytes);
    nnc_printf(t, "\n  peak %.0f GFLOP/s (f32), copies %.0f GB/s; %s\n",
        (double)g->flops_f32 * 1e-9, (double)g->copy_bytes_s * 1e-9,
        g->measured ? "measured" : "described from what the system says, not measured");
    nnc_printf(t, "  virtual devices cpu:0, cpu:1, ... share this machine (--devices)\n");
    return done(t);
}
