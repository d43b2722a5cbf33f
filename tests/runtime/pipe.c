/* tests/runtime/pipe.c -- runs with overlapped copies. Every run gets its own inputs and gives its own outputs, on every device
 * here, in plans of one stream and of several. Every call may fail. */
#include "plans.h"
#include <stdlib.h>

enum { RUNS = 9 };

typedef struct fixture {
    nnc_plan *p;
    nnc_exec *e;
    nnc_pipe *pipe;
    float *in[RUNS], *out; /* RUNS times VALUES, one after the other */
    char *in_at[1], *out_at[1];
    int64_t step[1];
} fixture;

static nnc_status up(fixture *f, nnc_plan *p, const nnc_device_api *api)
{
    *f = (fixture){.p = p, .step = {VALUES * sizeof(float)}};
    f->in[0] = malloc(sizeof(float) * VALUES * RUNS);
    f->out = calloc(VALUES * RUNS, sizeof(float));
    for (int i = 0; i < VALUES * RUNS; i++)
        f->in[0][i] = (float)(i % VALUES + i / VALUES * 3);
    f->in_at[0] = (char *)f->in[0];
    f->out_at[0] = (char *)f->out;
    nnc_exec_options o = exec_options(api);
    NNC_TRY(nnc_exec_create(p, &o, &f->e, test_sink));
    return nnc_pipe_create(f->e, &f->pipe, test_sink);
}

static void down(fixture *f)
{
    nnc_pipe_destroy(f->pipe);
    nnc_exec_destroy(f->e);
    plan_free(f->p);
    free(f->in[0]);
    free(f->out);
}

static nnc_status run(fixture *f, int64_t n, nnc_pipe_span *span)
{
    return nnc_pipe_run(f->pipe,
        (nnc_pipe_side[NNC_WAYS]){{f->in_at, f->step, NULL}, {f->out_at, f->step, NULL}}, n, span,
        test_sink);
}

static void check(const fixture *f, float (*want)(int, float))
{
    for (int r = 0; r < RUNS; r++)
        for (int i = 0; i < VALUES; i++)
            if (f->out[r * VALUES + i] != want(i, (float)(i + r * 3))) {
                test_fail(__FILE__, __LINE__, "run %d: y[%d] is %g, not %g", r, i,
                    (double)f->out[r * VALUES + i], (double)want(i, (float)(i + r * 3)));
                return;
            }
}

static void check_spans(const nnc_pipe_span *s)
{
    for (int r = 0; r < RUNS; r++) {
        CHECK(s[r].up[0] > 0 && s[r].up[0] <= s[r].up[1] && s[r].up[1] <= s[r].run[0]);
        CHECK(s[r].run[0] <= s[r].run[1] && s[r].run[1] <= s[r].down[0]);
        CHECK(s[r].down[0] <= s[r].down[1]);
        CHECK(r == 0 || s[r - 1].run[1] <= s[r].run[0]);
        CHECK(r < 2 || s[r - 2].run[1] <= s[r].up[0]); /* the slot is free */
        CHECK(r < 2 || s[r - 2].down[1] <= s[r].run[0]);
        CHECK(s[r].given_up > 0 && s[r].given_up <= s[r].given_down);
    }
}

TEST(every_run_has_its_own_data)
{
    nnc_plan *(*const plan[])(void) = {plan_line, plan_diamond};
    float (*const want[])(int, float) = {line_result, diamond_result};
    for (int k = 0; k < 2; k++) {
        fixture f;
        nnc_pipe_span span[NNC_PIPE_SPANS];
        CHECK_OK(up(&f, plan[k](), &nnc_device_cpu));
        for (int again = 0; again < 3 && f.pipe; again++) {
            memset(f.out, 0, sizeof(float) * VALUES * RUNS);
            CHECK_OK(run(&f, RUNS, again ? span : NULL));
            check(&f, want[k]);
        }
        if (f.pipe)
            check_spans(span);
        int64_t bytes = 0;
        for (int d = 0; f.pipe && d < f.p->n_device; d++)
            bytes += nnc_pipe_bytes(f.pipe, d);
        CHECK(
            bytes >= (int64_t)(3 * VALUES * sizeof(float))); /* an input, and each slot's output */
        down(&f);
    }
}

TEST(more_runs_than_spans)
{
    fixture f;
    nnc_pipe_span span[NNC_PIPE_SPANS];
    CHECK_OK(up(&f, plan_line(), &nnc_device_cpu));
    f.step[0] = 0; /* the same data for all */
    CHECK_OK(run(&f, 3 * NNC_PIPE_SPANS, span));
    CHECK_INT((int)f.out[7], (int)line_result(7, 7));
    CHECK_OK(run(&f, 0, span));
    down(&f);
}

/* A run alone between two rows finds the plan's own inputs where they were. */
TEST(runs_alone_between)
{
    fixture f;
    float *x = malloc(sizeof(float) * VALUES), *y = malloc(sizeof(float) * VALUES);
    CHECK_OK(up(&f, plan_line(), &nnc_device_cpu));
    for (int i = 0; i < VALUES; i++)
        x[i] = (float)i;
    CHECK_OK(run(&f, RUNS, NULL));
    CHECK_OK(nnc_exec_upload(f.e, 0, x));
    CHECK_OK(nnc_exec_run(f.e, test_sink));
    CHECK_OK(nnc_exec_download(f.e, 0, y));
    CHECK_OK(nnc_exec_sync(f.e, test_sink));
    CHECK(y[100] == line_result(100, 100));
    CHECK_OK(run(&f, RUNS, NULL));
    check(&f, line_result);
    free(x);
    free(y);
    down(&f);
}

/* Two outputs in one place have one block of memory a slot; what init made is not moved at all. */
TEST(outputs_in_one_place_and_outputs_that_last)
{
    fixture f;
    nnc_plan *p = plan_line();
    int32_t made = p->cmd[2].arg[2], z = p->output[0];
    char *out[3];
    int64_t step[3], bytes[2];
    float *y = calloc(3 * RUNS * VALUES, sizeof *y);
    nnc_free(p->output);
    p->output = nnc_calloc(3, sizeof *p->output);
    p->output[0] = p->output[1] = z;
    p->output[2] = made;
    for (int k = 0; k < 3; k++) {
        out[k] = (char *)(y + k * RUNS * VALUES);
        step[k] = VALUES * sizeof(float);
    }
    for (p->n_output = 1; p->n_output <= 3; p->n_output += 2) {
        CHECK_OK(up(&f, p, &nnc_device_cpu));
        bytes[p->n_output / 2] = nnc_pipe_bytes(f.pipe, 0);
        const nnc_pipe_side io[NNC_WAYS] = {{f.in_at, f.step, NULL}, {out, step, NULL}};
        CHECK_OK(nnc_pipe_run(f.pipe, io, RUNS, NULL, test_sink));
        nnc_pipe_destroy(f.pipe);
        nnc_exec_destroy(f.e);
        free(f.in[0]);
        free(f.out);
    }
    CHECK_INT(bytes[0], bytes[1]);
    for (int i = 0; i < RUNS * VALUES; i++) {
        CHECK(y[i] == y[RUNS * VALUES + i]);
        CHECK(y[2 * RUNS * VALUES + i] == (float)(i % VALUES % 7) + 2);
    }
    free(y);
    plan_free(p);
}

/* An output is the input itself: it is copied down before the next input comes to its place. */
TEST(an_output_that_is_the_input)
{
    fixture f;
    nnc_plan *p = plan_line();
    nnc_pipe_span span[NNC_PIPE_SPANS];
    int32_t z = p->output[0];
    nnc_free(p->output);
    p->output = nnc_calloc(2, sizeof *p->output);
    p->output[0] = z;
    p->output[1] = p->input[0];
    p->n_output = 2;
    p->tensor[p->input[0]].is_output = true;
    float *same = calloc(RUNS * VALUES, sizeof *same);
    CHECK_OK(up(&f, p, &nnc_device_cpu));
    const int64_t step[2] = {VALUES * sizeof(float), VALUES * sizeof(float)};
    char *out[2] = {(char *)f.out, (char *)same};
    const nnc_pipe_side io[NNC_WAYS] = {{f.in_at, f.step, NULL}, {out, step, NULL}};
    for (int again = 0; again < 5 && f.pipe; again++) {
        CHECK_OK(nnc_pipe_run(f.pipe, io, RUNS, span, test_sink));
        check(&f, line_result);
        CHECK(!memcmp(same, f.in[0], sizeof *same * RUNS * VALUES));
        for (int r = 2; r < RUNS; r++)
            CHECK(span[r - 2].down[1] <= span[r].up[0]);
    }
    free(same);
    down(&f);
}

TEST(every_call_of_a_pipe_may_fail)
{
    bool all = false;
    for (int at = 1; at < 2000 && !all; at++) {
        fixture f;
        faulty_calls = faulty_alive = 0;
        faulty_at = at;
        nnc_status st = up(&f, plan_diamond(), &faulty_device);
        st = st ? st : run(&f, 3, NULL);
        all = faulty_calls < at;
        faulty_at = 0;
        down(&f);
        CHECK(st == NNC_OK ? all : st == NNC_E_DEVICE);
        CHECK_INT(faulty_alive, 0);
    }
    CHECK(all);
}

TEST(memory_of_a_pipe_may_run_out)
{
    int fine = 0;
    for (int64_t n = 1; fine < 5 && n < 1000; n++) {
        fixture f;
        nnc_plan *p = plan_line();
        nnc_fail_alloc_after(n);
        nnc_status st = up(&f, p, &nnc_device_cpu);
        nnc_fail_alloc_after(0);
        fine = st == NNC_OK ? fine + 1 : 0;
        CHECK(st == NNC_OK || st == NNC_E_NOMEM || st == NNC_E_FIT);
        if (st == NNC_OK)
            CHECK_OK(run(&f, RUNS, NULL));
        down(&f);
    }
    CHECK_INT(fine, 5);
}
