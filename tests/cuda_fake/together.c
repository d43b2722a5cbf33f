/* tests/cuda_fake/together.c -- collectives of plans over several GPUs of one process. They are staged through host memory and go by
 * NCCL, with every order of streams that the seeds give. The bits are those of one CPU for each device. */
#include "api/nnc.h"
#include "help.h"
#include <math.h>

enum { N = 12, DEVICES = 3, RUNS = 4, SEEDS = 4 };

static const char text[] =
    "graph @s {\n%x = input : f32[12,5] device 0\n%y = input : f32[12,5] device 1\n"
    "%z = input : f32[12,5] device 2\n"
    "%p = neg %x device 0\n%q = neg %y device 1\n%r = neg %z device 2\n"
    "%a, %b, %c = allreduce %p, %q, %r\n"
    "%d, %e, %f = allgather %a, %q, %r {axis=0}\n"
    "%g, %h, %i = reduce_scatter %d, %e, %f {axis=0}\n"
    "%j, %k, %l = allreduce %g, %h, %i {reduction=max}\n"
    "%m, %n, %o = allgather %j, %h, %i {axis=1}\n"
    "%s = add %m, %m device 0\n%t = add %n, %n device 1\n%u = add %o, %o device 2\n"
    "return %s, %t, %u }";

enum { OUT = N * 15 };

static void run(loaded *l, float out[DEVICES][OUT])
{
    CHECK_OK(nnc_session_create(l->e, l->a, &l->s, test_sink));
    for (int r = 0; l->s && r < RUNS; r++) {
        float x[N * 5];
        for (int d = 0; d < DEVICES; d++) {
            for (int i = 0; i < N * 5; i++)
                x[i] = (float)(((i + r) * 37 + d * 11) % 101) / 7.0f - 6.0f;
            CHECK_OK(nnc_session_input(l->s, d, x, test_sink));
        }
        CHECK_OK(nnc_session_run(l->s, test_sink));
        for (int d = 0; d < DEVICES; d++)
            CHECK_OK(nnc_session_output(l->s, d, out[d], test_sink));
    }
}

static void on_gpus(uint64_t seed, int streams, nnc_comm_by by, float want[DEVICES][OUT])
{
    static float got[DEVICES][OUT];
    loaded l;
    char why[512];
    fake_begin(seed);
    compile(&l, text, "cuda:sm_90", streams, DEVICES);
    if (l.a) {
        l.e->comm_by = by;
        run(&l, got);
        for (int d = 0; d < DEVICES; d++)
            for (int i = 0; i < OUT; i++) /* three operands in order, and NCCL of the fake in f64 */
                if (by != NNC_COMM_staged ? !(fabsf(got[d][i] - want[d][i]) < 1e-4f)
                                          : got[d][i] != want[d][i]) {
                    test_fail(__FILE__, __LINE__, "device %d: element %d is %g, not %g", d, i,
                        (double)got[d][i], (double)want[d][i]);
                    break;
                }
        CHECK((fake_count.collectives > 0) == (by != NNC_COMM_staged));
        CHECK_INT(
            fake_count.replays, 0); /* one collective of them is staged: of parts along axis 1 */
    }
    unload(&l);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "seed %d, %d streams: %s", (int)seed, streams, why);
}

TEST(plans_with_collectives_on_gpus)
{
    static float want[DEVICES][OUT];
    loaded l;
    if (no_compiler())
        return;
    compile(&l, text, "cpu", 1, DEVICES);
    if (l.a)
        run(&l, want);
    unload(&l);
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (int streams = 1; streams <= 2; streams++)
            for (int by = NNC_COMM_auto; by <= NNC_COMM_nccl; by++)
                on_gpus(seed, streams, (nnc_comm_by)by, want);
}

/* All by NCCL: runs are captured, collectives included. Two devices of one GPU: staged, and told why. */
TEST(collectives_are_replayed)
{
    static const char sum[] =
        "graph @s {\n%x = input : f32[64] device 0\n%y = input : f32[64] device 1\n"
        "%p = neg %x device 0\n%q = neg %y device 1\n"
        "%a, %b = allreduce %p, %q\n%s = neg %a device 0\n%t = neg %b device 1\n"
        "return %s, %t }";
    if (no_compiler())
        return;
    for (int shared = 0; shared < 2; shared++) {
        loaded l;
        char why[512];
        float x[64], y[64];
        fake_begin(2);
        fake_devices = shared ? 1 : FAKE_USUAL_DEVICES;
        compile(&l, sum, "cuda:sm_90", 2, 2);
        CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
        for (int r = 0; l.s && r < RUNS; r++) {
            for (int i = 0; i < 64; i++)
                x[i] = (float)(i * r);
            CHECK_OK(nnc_session_input(l.s, 0, x, test_sink));
            CHECK_OK(nnc_session_input(l.s, 1, x, test_sink));
            CHECK_OK(nnc_session_run(l.s, test_sink));
            for (int d = 0; d < 2; d++) {
                CHECK_OK(nnc_session_output(l.s, d, y, test_sink));
                for (int i = 0; i < 64; i++)
                    CHECK_NEAR(y[i], 2 * i * r, 0);
            }
        }
        CHECK(shared ? fake_count.collectives == 0 : fake_count.replays > 0);
        if (shared)
            CHECK_DIAG("are one GPU (0000:00:00.0), which NCCL does not support");
        nnc_sink_clear(test_sink);
        unload(&l);
        if (fake_end(why))
            test_fail(__FILE__, __LINE__, "%s", why);
    }
}

/* Whatever call of CUDA or NCCL fails, creating a session or running it: an error, nothing is left, and nothing hangs. */
TEST(any_call_of_collectives_may_fail)
{
    static const char sum[] =
        "graph @s {\n%x = input : f32[64] device 0\n%y = input : f32[64] device 1\n"
        "%a, %b = allreduce %x, %y\n%s = neg %a device 0\n%t = neg %b device 1\n"
        "return %s, %t }";
    if (no_compiler())
        return;
    for (int by = NNC_COMM_staged; by <= NNC_COMM_nccl; by++) {
        bool all = false;
        for (int at = 1; at < 2000 && !all; at += 1 + at / 40) {
            loaded l;
            char why[512];
            float x[64] = {0};
            fake_begin(0);
            compile(&l, sum, "cuda:sm_90", 1, 2);
            l.e->comm_by = (nnc_comm_by)by;
            fake_calls = 0;
            fake_fail_at = at;
            fake_fail_with = 46;
            nnc_status st = nnc_session_create(l.e, l.a, &l.s, test_sink);
            for (int r = 0; r < 3 && !st; r++) {
                st = nnc_session_input(l.s, 0, x, test_sink);
                st = st ? st : nnc_session_input(l.s, 1, x, test_sink);
                st = st ? st : nnc_session_run(l.s, test_sink);
                st = st ? st : nnc_session_output(l.s, 0, x, test_sink);
            }
            all = fake_calls < at;
            nnc_sink_clear(test_sink);
            unload(&l);
            if (fake_end(why) && fake_left)
                test_fail(__FILE__, __LINE__, "call %d: %s", at, why);
        }
        CHECK(all);
    }
}
