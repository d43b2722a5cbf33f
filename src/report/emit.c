/* report/emit.c -- the stages of a compile as text, single passes, and the tables of ops and passes. */
#include "report/report.h"
#include "session/session.h"
#include "onnx/onnx.h"
#include <limits.h>
#include <string.h>

nnc_status nnc_optimize(nnc_env *e, nnc_model **m, const char *const *pass, int n_pass,
    const nnc_compile_options *o, nnc_sink *sink)
{
    NNC_LOCAL(nnc_remarks) r = {0};
    NNC_TRY(nnc_check_precision(o, sink));
    nnc_env_settle(e);
    nnc_pass_options p = nnc_env_passes(e, o);
    p.only = pass;
    p.n_only = n_pass;
    return nnc_passes_run(m, &p, &r, sink);
}

void nnc_print_model(const nnc_model *m, nnc_text *out)
{
    nnc_graph_print(out, m);
}

/* The layers that kernel k computes, from the first command that launches it. */
static const char *layers_of(const nnc_plan *p, int k)
{
    for (int i = 0; i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_kernel && p->cmd[i].item == k)
            return p->cmd[i].layers ? p->cmd[i].layers : "";
    return "";
}

static void emit_kernels(const nnc_plan *p, nnc_text *out)
{
    for (int k = 0; k < p->n_kernel; k++) {
        nnc_printf(out, "%s# %s\n", k ? "\n" : "", layers_of(p, k));
        nnc_puts(out, p->kernel[k].ir);
    }
}

nnc_status nnc_plan_kernels(
    const nnc_plan *p, const nnc_unit *u, nnc_kernel **k, nnc_arena *a, nnc_sink *sink)
{
    for (int i = 0; i < u->n; i++) {
        const nnc_pkernel *pk = &p->kernel[u->kernel[i]];
        nnc_scan s;
        nnc_scan_init(&s, pk->symbol, pk->ir, strlen(pk->ir));
        k[i] = nnc_schedule_parse(&s, a, sink);
        if (!k[i])
            return nnc_sink_cause(sink, NNC_E_BUG);
    }
    return NNC_OK;
}

bool nnc_several_targets(const nnc_plan *p)
{
    bool several = false;
    for (int d = 1; d < p->n_device; d++)
        several = several || strcmp(p->device[d].target, p->device[0].target) != 0;
    return several;
}

void nnc_put_device(nnc_text *t, const nnc_plan *p, int d)
{
    const nnc_plan_device *v = &p->device[d];
    nnc_puts(t, v->name);
    if (nnc_several_targets(p))
        nnc_printf(t, " (%.*s)", (int)strcspn(v->target, "#"), v->target);
}

/* Takes kernel k, and with it those of later units that share its function. */
static int *take_shared(const nnc_plan *p, int *device, int k, int d, int *at, nnc_unit *u)
{
    for (int i = k; i < p->n_kernel; i++) {
        if (device[i] < 0 || strcmp(p->device[device[i]].target, p->device[d].target) != 0 ||
            (i > k && !nnc_pkernel_shares(&p->kernel[k], &p->kernel[i])))
            continue;
        device[i] = -1; /* not again, either for another device with the target */
        *at++ = i;
        u->n++;
    }
    return at;
}

int nnc_plan_units(const nnc_plan *p, bool gpu, int size, nnc_unit **out)
{
    const size_t most = (size_t)p->n_kernel + 1;
    int n = 0, *at, *device;
    *out = nnc_malloc(most * (sizeof **out + sizeof *at + sizeof *device));
    if (!*out)
        return -1;
    at = (int *)(*out + most);
    device = at + most;
    for (int k = 0; k < p->n_kernel; k++)
        device[k] = -1;
    for (int i = p->n_cmd; i-- > 0;)
        if (p->cmd[i].kind == CMD_kernel)
            device[p->cmd[i].item] = p->cmd[i].device;
    for (int d = 0; d < p->n_device; d++) {
        int in = size; /* functions of the last unit */
        if (nnc_plan_on_gpu(&p->device[d]) != gpu)
            continue;
        for (int k = 0; k < p->n_kernel; k++) {
            if (device[k] < 0 || strcmp(p->device[device[k]].target, p->device[d].target) != 0)
                continue;
            if (in == size) {
                (*out)[n++] = (nnc_unit){.device = d, .kernel = at};
                in = 0;
            }
            at = take_shared(p, device, k, d, at, &(*out)[n - 1]);
            in++;
        }
    }
    return n;
}

/* Parses the kernels of a unit from their text and passes them to the emitter. */
static nnc_status emit_unit(nnc_env *e, const nnc_plan *p, const nnc_unit *u, const nnc_emitter *em,
    nnc_emit what, nnc_text *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_kernel **k = ARENA_NEW(&a, nnc_kernel *, u->n);
    NNC_FREED char *text = NULL;
    size_t n = 0;
    NNC_NEED(k, sink);
    NNC_TRY(nnc_plan_kernels(p, u, k, &a, sink));
    NNC_TRY(em->emit((const nnc_kernel *const *)k, u->n,
        nnc_target_on(e->target, e->n_target, u->device), what, &text, &n, sink));
    if (text)
        nnc_putn(out, text, n);
    return NNC_OK;
}

static nnc_status emit_machine(
    nnc_env *e, const nnc_plan *p, nnc_emit what, nnc_text *out, nnc_sink *sink)
{
    if (!nnc_env_has(e, NNC_T_cpu))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--emit=llvm and --emit=asm need a CPU target; %s has cuda, ptx and cubin",
            nnc_text_str(&e->name));
    const char *why = "it is switched off";
    const nnc_emitter *em = nnc_env_emits(e, &why);
    if (!em)
        return nnc_fail0(sink, NNC_E_DEVICE, "--emit=llvm and --emit=asm need LLVM: %s", why);
    NNC_FREED nnc_unit *unit = NULL;
    int n = nnc_plan_units(p, false, INT_MAX, &unit);
    for (int u = 0; u < n; u++)
        NNC_TRY(emit_unit(e, p, &unit[u], em, what, out, sink));
    return n < 0 ? nnc_nomem(sink) : NNC_OK;
}

const char *nnc_stage_name(int i)
{
    static const char *const names[] = {"graph", "kernels", "plan", "llvm", "asm", "cuda", "ptx",
        "cubin", "dot", "svg", "onnx", "remarks"};
    return i < (int)NNC_COUNT(names) ? names[i] : NULL;
}

/* data: the file of weights that one file of ONNX does not hold, or NULL. */
static nnc_status emit_onnx(const nnc_artifact *a, const char *data, nnc_text *out, nnc_sink *sink)
{
    if (a->chunks > 1)
        return nnc_fail0(sink, NNC_E_MODEL,
            "the model runs in %lld chunks of rows, and its graph is that of one chunk: compile it "
            "for a device with more memory, as with --target=cpu",
            (long long)a->chunks);
    return nnc_onnx_export(a->graph, &(nnc_onnx_place){.data = data}, out, sink);
}

static nnc_status draw_graph(const nnc_graph *g, nnc_text *out, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) dot = {0};
    nnc_graph_dot(&dot, g);
    return nnc_dot_to_svg(&dot, out, sink);
}

nnc_status nnc_emit_text(
    nnc_env *e, const nnc_artifact *a, const char *stage, nnc_text *out, nnc_sink *sink)
{
    nnc_status st = NNC_OK;
    if (!strcmp(stage, "graph"))
        nnc_graph_print(out, a->graph);
    else if (!strcmp(stage, "onnx"))
        st = emit_onnx(a, NULL, out, sink);
    else if (!strcmp(stage, "dot"))
        nnc_graph_dot(out, a->graph);
    else if (!strcmp(stage, "svg"))
        st = draw_graph(a->graph, out, sink);
    else if (!strcmp(stage, "plan"))
        nnc_plan_print(out, a->plan);
    else if (!strcmp(stage, "kernels"))
        emit_kernels(a->plan, out);
    else if (!strcmp(stage, "remarks"))
        st = nnc_report_explain(a, NNC_JSON, true, out);
    else if (!strcmp(stage, "llvm") || !strcmp(stage, "asm"))
        st = emit_machine(e, a->plan, !strcmp(stage, "asm") ? EMIT_asm : EMIT_llvm, out, sink);
    else if (!strcmp(stage, "cuda") || !strcmp(stage, "ptx") || !strcmp(stage, "cubin"))
        st = nnc_cuda_emit(e, a, stage, out, sink);
    else
        return nnc_fail0(sink, NNC_E_USAGE,
            "--emit=%s is unknown; expected graph, kernels, plan, llvm, asm, cuda, ptx, cubin, "
            "dot, svg, onnx, remarks",
            stage);
    return st ? st : out->oom ? nnc_nomem(sink) : NNC_OK;
}

nnc_status nnc_emit_file(
    nnc_env *e, const nnc_artifact *a, const char *stage, const char *file, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) t = {0};
    NNC_LOCAL(nnc_text) data = {0};
    char path[PATH_MAX];
    const bool onnx = !strcmp(stage, "onnx") && !nnc_file_resolve(file, path);
    nnc_printf(&data, "%s.data", file);
    const char *const written[] = {file, nnc_text_str(&data)};
    for (int i = 0; i < 1 + onnx; i++)
        if (nnc_artifact_reads(a, written[i]))
            return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = written[i]},
                "holds the model's weights: name another file for --emit=%s", stage);
    NNC_NEED(!data.oom, sink);
    nnc_status st =
        onnx ? emit_onnx(a, written[1], &t, sink) : nnc_emit_text(e, a, stage, &t, sink);
    return st ? st : nnc_file_write(file, nnc_text_str(&t), t.n, true, sink);
}

static const char *class_name(nnc_class c)
{
    static const char *const name[] = {[CL_leaf] = "leaf",
        [CL_ewise] = "elementwise",
        [CL_ecomp] = "elementwise, composite",
        [CL_reduce] = "reduction",
        [CL_move] = "movement",
        [CL_window] = "window",
        [CL_contract] = "contraction",
        [CL_comp] = "composite",
        [CL_loop] = "in order along an axis",
        [CL_collective] = "collective",
        [CL_fused] = "region"};
    return name[c];
}

void nnc_report_layers(nnc_format f, nnc_text *out)
{
    nnc_layers_list(f == NNC_JSON, out);
}

static void json_op(nnc_json_writer *w, const nnc_op_info *o)
{
    nnc_json_open(w, NULL, '{');
    NNC_JSON(w, J_STRING("op", o->name), J_STRING("class", class_name(o->cls)));
    nnc_json_open(w, "operands", '[');
    NNC_JSON(w, J_INT(NULL, o->n_min));
    NNC_JSON(w, J_INT(NULL, o->n_max));
    nnc_json_close(w, ']');
    NNC_JSON(w, J_STRING("attributes", o->attrs), J_STRING("doc", o->doc));
    nnc_json_close(w, '}');
}

void nnc_report_ops(nnc_format f, nnc_text *out)
{
    nnc_json_writer w = {.out = out};
    if (f == NNC_JSON)
        nnc_json_open(&w, NULL, '[');
    for (int i = 0; i < OP__COUNT; i++) {
        const nnc_op_info *o = &nnc_ops[i];
        if (f == NNC_JSON) {
            w.line = i ? 2 : 0;
            json_op(&w, o);
            continue;
        }
        if (i == 0 || o->cls != nnc_ops[i - 1].cls)
            nnc_printf(out, "%s%s\n", i ? "\n" : "", class_name(o->cls));
        nnc_printf(out, "  %-15s %-40s %s\n", o->name, o->attrs, o->doc);
    }
    if (f == NNC_JSON)
        nnc_json_end(&w, ']');
}

const char *nnc_pass_name(int i)
{
    return i < nnc_pass_count ? nnc_pass_table[i].name : NULL;
}

void nnc_report_passes(nnc_format f, nnc_text *out)
{
    nnc_json_writer w = {.out = out};
    if (f == NNC_JSON)
        nnc_json_open(&w, NULL, '[');
    for (int i = 0; i < nnc_pass_count; i++) {
        const nnc_pass_info *p = &nnc_pass_table[i];
        if (f != NNC_JSON) {
            nnc_printf(out, "  -O%d  %-18s %-7s %s\n", p->level, p->name, p->fusion ? "fusion" : "",
                p->doc);
            continue;
        }
        NNC_JSON_ROW(&w, 1, J_STRING("pass", p->name), J_INT("level", p->level),
            J_BOOL("fusion", p->fusion), J_STRING("doc", p->doc));
    }
    if (f == NNC_JSON)
        nnc_json_end(&w, ']');
}
