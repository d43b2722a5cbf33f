/* tests/runtime/exec.c -- the executor on plans made by hand: results, memory to the byte,
 * several runs, profile, and the sweep that fails every device call in turn. */
#include "plans.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

static float x[VALUES], y[VALUES];

static void inputs(int round)
{
    for (int i = 0; i < VALUES; i++)
        x[i] = (float)(i + round);
}

static void check_result(float (*want)(int, float), int round)
{
    for (int i = 0; i < VALUES; i++)
        if (y[i] != want(i, (float)(i + round))) {
            CHECK_NEAR(y[i], want(i, (float)(i + round)), 0);
            return;
        }
}

static void run_rounds(const nnc_plan *p, float (*want)(int, float))
{
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    if (!e)
        return;
    for (int d = 0; d < p->n_device; d++) {
        CHECK_INT(nnc_exec_requested(e, d).arena, p->device[d].arena_bytes);
        CHECK_INT(nnc_exec_requested(e, d).persist, p->device[d].persist_bytes);
        CHECK_INT(nnc_exec_requested(e, d).init, p->device[d].init_bytes);
    }
    for (int round = 0; round < 30; round++) {
        inputs(round);
        memset(y, 0, sizeof y);
        CHECK_OK(nnc_exec_upload(e, 0, x));
        for (int again = 0; again < 3; again++) /* runs one after the other without sync */
            CHECK_OK(nnc_exec_run(e, test_sink));
        CHECK_OK(nnc_exec_download(e, 0, y));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        check_result(want, round);
    }
    nnc_exec_destroy(e);
    CHECK_INT(toy_loaded, 0);
}

TEST(exec_line)
{
    nnc_plan *p = plan_line();
    run_rounds(p, line_result);
    plan_free(p);
}

TEST(exec_diamond)
{
    nnc_plan *p = plan_diamond();
    run_rounds(p, diamond_result);
    plan_free(p);
}

TEST(exec_shares_handles_of_a_stream)
{
    nnc_plan *p = plan_line();
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    p->device[0].streams = 2; /* main has one kernel on streams 1, 0, 1 */
    p->cmd[3].stream = 1;
    p->cmd[4].item = p->cmd[3].item;
    p->cmd[p->n_cmd++] = p->cmd[3];
    p->end[SEC_main] = p->end[SEC_accumulate] = p->end[SEC_step] = p->n_cmd;
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    CHECK_INT(toy_loaded, 2);
    nnc_exec_destroy(e);
    CHECK_INT(toy_loaded, 0);
    plan_free(p);
}

/* ---- calls that do not load ------------------------------------------------------------------- */

static int loads;

static nnc_status load_but_one(const nnc_load *l, void **handle, nnc_sink *sink)
{
    static int any;
    if (l->item == 1)
        return nnc_fail0(sink, NNC_E_DEVICE, "call %d does not load", l->item);
    loads++;
    *handle = &any;
    return NNC_OK;
}

static void unload_counted(void *handle)
{
    loads -= handle != NULL;
}

TEST(exec_unloads_calls_where_one_does_not_load)
{
    nnc_plan *p = plan_line();
    nnc_call calls[3] = {{.kind = CALL_matmul}, {.kind = CALL_matmul}, {.kind = CALL_matmul}};
    nnc_engine e = toy_engine;
    const nnc_engine *const engines[] = {&e};
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    nnc_exec *exec = NULL;
    int n = 0;
    e.load_call = load_but_one;
    e.unload = unload_counted;
    o.engine = engines;
    p->call = calls;
    p->n_call = 3;
    for (int i = 0; i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_kernel) {
            p->cmd[i].kind = CMD_call;
            p->cmd[i].item = n++ % 3;
        }
    CHECK(n >= 2);
    /* told once, by name, and the others are unloaded */
    CHECK_INT(nnc_exec_create(p, &o, &exec, test_sink), NNC_E_DEVICE);
    CHECK_DIAG("call 1 does not load");
    CHECK_INT(nnc_sink_count(test_sink), 1);
    CHECK_INT(loads, 0);
    p->call = NULL;
    p->n_call = 0;
    plan_free(p);
}

static int objects_alive, objects_loaded, objects_allowed;

static nnc_status load_toy_object(const nnc_plan *p, const nnc_blob *b, void **out, nnc_sink *sink)
{
    (void)p;
    if (objects_loaded == objects_allowed)
        return nnc_fail0(sink, NNC_E_DEVICE, "an object does not load");
    objects_loaded++;
    objects_alive++;
    *out = (void *)(uintptr_t)b->data;
    return NNC_OK;
}

static void unload_toy_object(void *object)
{
    objects_alive -= object != NULL;
}

/* One executor loads an object once for all its kernels, and keeps those of main only; another one has objects of its own. */
TEST(exec_shares_objects_between_kernels)
{
    nnc_plan *p = plan_line();
    nnc_blob blobs[2] = {{"a", 1}, {"b", 1}};
    nnc_engine e = toy_engine;
    const nnc_engine *const engines[] = {&e};
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    nnc_exec *exec[2];
    e.load_object = load_toy_object;
    e.unload_object = unload_toy_object;
    o.engine = engines;
    p->object = blobs;
    p->n_object = 2;
    objects_allowed = 100;
    for (int both = 0; both < 2; both++) { /* kernel 0 in init and main, or in init only */
        p->kernel[0].object = 0;
        p->kernel[1].object = both ? 0 : 1;
        p->cmd[3].item = both ? 0 : 1;
        objects_loaded = 0;
        CHECK_OK(nnc_exec_create(p, &o, &exec[0], test_sink));
        CHECK_INT(objects_loaded, both ? 1 : 2);
        CHECK_INT(objects_alive, 1);
        CHECK_OK(nnc_exec_create(p, &o, &exec[1], test_sink));
        CHECK_INT(objects_alive, 2);
        nnc_exec_destroy(exec[0]);
        CHECK_INT(objects_alive, 1);
        nnc_exec_destroy(exec[1]);
        CHECK_INT(objects_alive, 0);
    }
    p->kernel[1].object = 1;
    objects_loaded = 0;
    objects_allowed = 1;
    CHECK_INT(nnc_exec_create(p, &o, &exec[0], test_sink), NNC_E_DEVICE);
    CHECK_DIAG("an object does not load");
    CHECK_INT(objects_loaded, 1);
    CHECK_INT(objects_alive, 0);
    CHECK_INT(toy_loaded, 0);
    p->object = NULL;
    p->n_object = 0;
    plan_free(p);
}

TEST(exec_profile)
{
    nnc_plan *p = plan_diamond();
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    int64_t start[32], end[32];
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    inputs(5);
    CHECK_OK(nnc_exec_upload(e, 0, x));
    for (int again = 0; again < 2; again++) {
        CHECK_OK(nnc_exec_profile_behind(e, 0, SEC_main, SEC_main, start, end, test_sink));
        for (int i = 0; i < p->n_cmd - nnc_plan_first(p, SEC_main); i++)
            CHECK(start[i] > 0 && end[i] >= start[i]);
        CHECK(end[0] - start[0] >= 300000); /* slow_add sleeps that long */
        CHECK(start[6] >= end[0]); /* cpu:1 doubles what cpu:0 made */
    }
    CHECK_OK(nnc_exec_download(e, 0, y));
    CHECK_OK(nnc_exec_sync(e, test_sink));
    check_result(diamond_result, 5);
    nnc_exec_destroy(e);
    plan_free(p);
}

TEST(exec_rejects_bad_plans)
{
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    nnc_plan *p = plan_line();
    p->cmd[3].n_arg = 2;
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_BUG);
    CHECK_DIAG("command 3: it has the wrong number of arguments");
    p->cmd[3].n_arg = 3;
    for (int k = 0; k < 2; k++) {
        int32_t arg = p->cmd[3].arg[0];
        p->cmd[3].arg[0] = k ? p->n_tensor : -1;
        CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_BUG);
        CHECK_DIAG("command 3: an argument does not exist");
        p->cmd[3].arg[0] = arg;
        nnc_sink_clear(test_sink);
    }
    int32_t init = p->end[SEC_init];
    p->end[SEC_init] = 0;
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_BUG);
    CHECK_DIAG("weights are read in init only");
    p->end[SEC_init] = init;
    int streams = p->device[0].streams;
    p->device[0].streams = 0;
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_BUG);
    CHECK_DIAG("device 0 has no stream");
    p->device[0].streams = streams;
    p->cmd[4].stream = 1;
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_BUG);
    p->cmd[4].stream = 0;
    p->cmd[4].item = 99;
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_BUG);
    p->cmd[4].item = 1;
    p->engine[0] = "warp";
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_DEVICE);
    CHECK_DIAG("'warp'");
    CHECK(e == NULL);
    plan_free(p);
}

TEST(exec_downloads_parts_that_are_there)
{
    nnc_plan *p = plan_line();
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    char part[16];
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    const int64_t n = 4 * VALUES,
                  wrong[][2] = {{-4, 8}, {0, -1}, {n + 1, 0}, {n - 8, 16}, {8, INT64_MAX}};
    for (size_t i = 0; i < NNC_COUNT(wrong); i++)
        CHECK_INT(nnc_exec_download_part(e, 0, wrong[i][0], wrong[i][1], part), NNC_E_BUG);
    CHECK_OK(nnc_exec_download_part(e, 0, n - 16, 16, part));
    for (int i = -1; i <= 1; i += 2) { /* there is one input and one output */
        CHECK_INT(nnc_exec_upload(e, i, part), NNC_E_BUG);
        CHECK_INT(nnc_exec_download(e, i, part), NNC_E_BUG);
        CHECK_INT(nnc_exec_download_part(e, i, 0, 4, part), NNC_E_BUG);
    }
    CHECK_OK(nnc_exec_sync(e, test_sink));
    nnc_exec_destroy(e);
    plan_free(p);
}

TEST(exec_names_the_missing_weight_file)
{
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    nnc_plan *p = plan_line();
    p->weight[1] = (nnc_weight){
        .kind = NNC_W_file, .name = "v", .file = "no-such.safetensors", .size = 4 * VALUES};
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_IO);
    CHECK_DIAG("no-such.safetensors");
    CHECK_INT(toy_loaded, 0);
    plan_free(p);
}

TEST(exec_rejects_weights_in_another_order)
{
    nnc_plan *p = plan_line();
    int64_t dim[2] = {64, 64};
    const uint8_t columns[] = {1, 0};
    p->tensor[0].type = nnc_type_make(DT_f32, 2, dim);
    nnc_type_set_order(&p->tensor[0].type, columns);
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_BUG);
    CHECK_DIAG("a weight is stored row-major");
    plan_free(p);
}

/* A participant whose operand could not be computed takes part all the same; the failure is reported, and the next run works. */
TEST(exec_failing_kernel_before_a_collective)
{
    nnc_plan *p = plan_meeting();
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    p->kernel[1].symbol = "fail_once";
    inputs(0);
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    CHECK_OK(nnc_exec_upload(e, 0, x));
    CHECK_OK(nnc_exec_run(e, test_sink));
    CHECK_INT(nnc_exec_sync(e, test_sink), NNC_E_DEVICE);
    for (int again = 0; again < 3; again++) {
        CHECK_OK(nnc_exec_run(e, test_sink));
        CHECK_OK(nnc_exec_download(e, 0, y));
        CHECK_OK(nnc_exec_sync(e, test_sink));
        check_result(meeting_result, 0);
    }
    nnc_exec_destroy(e);
    plan_free(p);
}

TEST(exec_failing_kernel)
{
    nnc_plan *p = plan_diamond();
    nnc_exec *e;
    nnc_exec_options o = exec_options(&nnc_device_cpu);
    p->kernel[1].symbol = "fail"; /* main only */
    CHECK_OK(nnc_exec_create(p, &o, &e, test_sink));
    for (int again = 0; again < 3; again++) {
        CHECK_OK(nnc_exec_run(e, test_sink));
        CHECK_INT(nnc_exec_sync(e, test_sink), NNC_E_DEVICE);
        CHECK_DIAG("/toy");
    }
    nnc_exec_destroy(e);
    p->kernel[0].symbol = "fail"; /* init */
    CHECK_INT(nnc_exec_create(p, &o, &e, test_sink), NNC_E_DEVICE);
    CHECK_INT(toy_loaded, 0);
    plan_free(p);
}

/* Everything an executor is used for. */
static nnc_status use(const nnc_plan *p)
{
    nnc_exec *e;
    nnc_exec_options o = exec_options(&faulty_device);
    int64_t start[32], end[32];
    nnc_status s = nnc_exec_create(p, &o, &e, test_sink);
    if (s == NNC_OK)
        s = nnc_exec_upload(e, 0, x);
    if (s == NNC_OK)
        s = nnc_exec_run(e, test_sink);
    if (s == NNC_OK)
        s = nnc_exec_download(e, 0, y);
    if (s == NNC_OK)
        s = nnc_exec_sync(e, test_sink);
    if (s == NNC_OK)
        s = nnc_exec_profile_behind(e, 0, SEC_main, SEC_main, start, end, test_sink);
    nnc_exec_destroy(e);
    return s;
}

static void sweep(nnc_plan *p, float (*want)(int, float))
{
    inputs(0);
    faulty_at = 0;
    faulty_calls = 0;
    faulty_alive = 0;
    CHECK_OK(use(p));
    check_result(want, 0);
    int calls = faulty_calls;
    CHECK(calls > 20);
    for (int n = 1; n <= calls; n++) {
        faulty_at = n;
        faulty_calls = 0;
        nnc_sink_clear(test_sink);
        CHECK_INT(use(p), NNC_E_DEVICE);
        CHECK_INT(faulty_alive, 0);
        CHECK_INT(toy_loaded, 0);
    }
    faulty_at = 0;
}

TEST(every_device_call_may_fail)
{
    nnc_plan *line = plan_line(), *diamond = plan_diamond(), *meeting = plan_meeting();
    sweep(line, line_result);
    sweep(diamond, diamond_result);
    sweep(meeting, meeting_result);
    plan_free(meeting);
    plan_free(line);
    plan_free(diamond);
}

static void sweep_allocations(nnc_plan *p)
{
    faulty_at = 0;
    inputs(0);
    for (int n = 1;; n++) {
        nnc_sink_clear(test_sink);
        nnc_fail_alloc_after(n);
        nnc_status s = use(p);
        nnc_fail_alloc_after(0);
        CHECK_INT(faulty_alive, 0);
        CHECK_INT(toy_loaded, 0);
        if (s == NNC_OK)
            break;
        CHECK(s == NNC_E_NOMEM || s == NNC_E_FIT || s == NNC_E_IO);
        if (n > 500) {
            test_fail(__FILE__, __LINE__, "the sweep does not end");
            break;
        }
    }
    plan_free(p);
}

TEST(every_allocation_may_fail)
{
    sweep_allocations(plan_diamond());
    sweep_allocations(plan_meeting());
}
