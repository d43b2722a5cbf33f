/* tests/cuda_fake/kinds.c -- plans over devices of several kinds, each with its own target: two plans joined by a copy run in one
 * executor. */
#include "api/internal.h"
#include "help.h"
#include <math.h>

enum { N = 1000 };

/* The k-th of n elements of each array of the joined plan comes from p, the others from q. */
#define JOIN(field, count) \
    do { \
        j->field = \
            nnc_arena_alloc(&j->arena, (size_t)(p->count + q->count) + 1, sizeof *j->field); \
        for (int i_ = 0; i_ < p->count + q->count; i_++) \
            j->field[i_] = i_ < p->count ? p->field[i_] : q->field[i_ - p->count]; \
        j->count = p->count + q->count; \
    } while (0)

/* A command of q in the joined plan. */
static void shift(const nnc_plan *p, nnc_arena *a, nnc_cmd *c)
{
    int32_t *arg = nnc_arena_alloc(a, (size_t)c->n_arg + 1, sizeof *arg);
    for (int k = 0; k < c->n_arg; k++)
        arg[k] = c->arg[k] + p->n_tensor;
    c->arg = arg;
    c->device = 1;
    c->item += p->n_kernel;
    c->engine = (int16_t)(c->engine + p->n_engine);
    c->work = c->work >= 0 ? c->work + p->n_tensor : -1;
}

static nnc_cmd sync(nnc_cmd_kind kind, int device)
{
    return (nnc_cmd){.kind = (uint8_t)kind,
        .device = (int16_t)device,
        .engine = -1,
        .work = -1,
        .layers = "",
        .op_class = "sync",
        .reason = ""};
}

/* q of p: p's only command, a copy of its result to q's input on device 1, q's only command. The live ranges are those of the five
 * commands. */
static nnc_plan *join(const nnc_plan *p, const nnc_plan *q, const char *second)
{
    nnc_plan *j = nnc_plan_create();
    int32_t *copy = nnc_arena_alloc(&j->arena, 2, sizeof *copy);
    CHECK(p->n_cmd == 1 && q->n_cmd == 1 && p->n_tensor == 2 && q->n_tensor == 2);
    j->precision = p->precision;
    JOIN(engine, n_engine);
    JOIN(device, n_device);
    JOIN(tensor, n_tensor);
    JOIN(kernel, n_kernel);
    JOIN(object, n_object);
    j->device[1].name = second;
    j->device[1].peak_cmd = 4;
    for (int k = p->n_kernel; k < j->n_kernel; k++)
        j->kernel[k].object += j->kernel[k].object >= 0 ? p->n_object : 0;
    for (int t = 2; t < 4; t++)
        j->tensor[t].device = 1;
    j->n_cmd = 5;
    j->n_event = 1;
    j->cmd = nnc_arena_alloc(&j->arena, 5, sizeof *j->cmd);
    copy[0] = p->output[0];
    copy[1] = q->input[0] + 2;
    j->cmd[0] = p->cmd[0];
    j->cmd[1] = sync(CMD_copy, 0);
    j->cmd[1].arg = copy;
    j->cmd[1].n_arg = 2;
    j->cmd[2] = sync(CMD_record, 0);
    j->cmd[3] = sync(CMD_wait, 1);
    j->cmd[4] = q->cmd[0];
    shift(p, &j->arena, &j->cmd[4]);
    j->end[SEC_main] = j->end[SEC_step] = 5;
    nnc_ptensor *made = &j->tensor[copy[0]], *moved = &j->tensor[copy[1]];
    made->is_output = moved->is_input = false;
    made->last = moved->first = 1;
    moved->last = 4;
    j->tensor[p->input[0]].last = 4; /* inputs live to the end */
    j->tensor[q->output[0] + 2].first = j->tensor[q->output[0] + 2].last = 4;
    j->input = p->input;
    j->input_name = p->input_name;
    j->n_input = j->n_output = 1;
    j->output = nnc_arena_alloc(&j->arena, 1, sizeof *j->output);
    j->output[0] = q->output[0] + 2;
    j->output_name = q->output_name;
    return j;
}

/* Its text is read again; it runs, and gives sin(x) / 2 + 1. */
static void check(const nnc_plan *j, const nnc_exec_options *o)
{
    float x[N], y[N];
    nnc_exec *e = NULL;
    nnc_text once = {0}, twice = {0};
    nnc_scan s;
    CHECK_OK(nnc_plan_verify(j, test_sink));
    nnc_plan_print(&once, j);
    nnc_scan_init(&s, "plan", nnc_text_str(&once), once.n);
    nnc_plan *again = nnc_plan_parse(&s, test_sink);
    CHECK(again != NULL);
    if (again)
        nnc_plan_print(&twice, again);
    CHECK_STR(nnc_text_str(&twice), nnc_text_str(&once));
    nnc_plan_destroy(again);
    nnc_text_deinit(&once);
    nnc_text_deinit(&twice);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.01f;
    CHECK_OK(nnc_exec_create(j, o, &e, test_sink));
    for (int run = 0; e && run < 3; run++) {
        x[0] = (float)run;
        CHECK_OK(nnc_exec_upload(e, 0, x));
        CHECK_OK(nnc_exec_run(e, test_sink));
        CHECK_OK(nnc_exec_download(e, 0, y));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        for (int i = 0; i < N; i++)
            if (!(fabs((double)y[i] - (sin((double)x[i]) / 2 + 1)) < 1e-6)) {
                CHECK_NEAR(y[i], sin((double)x[i]) / 2 + 1, 1e-6);
                break;
            }
    }
    nnc_exec_destroy(e);
}

static void refused(nnc_plan *j, const char *why)
{
    nnc_sink_clear(test_sink);
    CHECK_INT(nnc_plan_verify(j, test_sink), NNC_E_MODEL);
    CHECK_DIAG(why);
    nnc_sink_clear(test_sink);
}

/* A kernel of the first device's plan on both. */
static void check_pairings(nnc_plan *j, bool gpus)
{
    nnc_cmd *c = &j->cmd[4], was = *c;
    c->item = 0;
    c->engine = j->cmd[0].engine;
    refused(
        j, gpus ? "also runs on a device of another target" : "works on CPUs, its device is a GPU");
    c->engine = was.engine;
    refused(
        j, gpus ? "also runs on a device of another target" : "its kernel has a CPU's schedule");
    *c = was;
}

TEST(devices_of_several_kinds)
{
    static const struct {
        const char *first, *second, *name;
    } pairs[] = {{NULL, "cuda:sm_90", "cuda:0"}, {"cuda:sm_75", "cuda:sm_90", "cuda:1"},
        {"cuda:sm_90", NULL, "cpu:0"}};
    static const nnc_device_api *const devices[] = {&nnc_device_cpu, &nnc_device_cuda};
    static const char sine[] = "graph @s {\n%x = input : f32[1000]\n%y = sin %x\nreturn %y }",
                      line[] = "graph @l {\n%x = input : f32[1000]\n%h = constant : f32[] = [0.5]\n"
                               "%o = constant : f32[] = [1]\n%m = mul %x, %h\n%y = add %m, %o\n"
                               "return %y }";
    char why[512];
    if (no_compiler())
        return;
    for (size_t i = 0; i < NNC_COUNT(pairs); i++) {
        loaded a, b;
        const nnc_engine *engine[2 * MAX_ENGINES];
        int n = 0;
        fake_begin(i);
        compile(&a, sine, pairs[i].first, 1, 1);
        compile(&b, line, pairs[i].second, 1, 1);
        for (int k = 0; k < a.e->n_engine; k++)
            engine[n++] = a.e->engine[k];
        for (int k = 0; k < b.e->n_engine; k++)
            engine[n++] = b.e->engine[k];
        const nnc_exec_options o = {
            .device = devices, .n_device = 2, .engine = engine, .n_engine = n};
        nnc_plan *j = join(nnc_artifact_plan(a.a), nnc_artifact_plan(b.a), pairs[i].name);
        check(j, &o);
        if (i < 2)
            check_pairings(j, i == 1);
        j->cmd[4].item = 0; /* a GPU's kernel on a CPU, by an engine that could be of both */
        j->engine[j->cmd[4].engine] = "both";
        if (i == 2)
            refused(j, "its kernel has a GPU's schedule, its device is none");
        nnc_plan_destroy(j);
        unload(&a);
        unload(&b);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "%s", why);
    }
}
