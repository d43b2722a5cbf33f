/* tests/cuda_fake/shapes.c -- one artifact at several shapes on the fake GPU: sessions side by side, eager and replayed, which share their
 * weights in the device's memory. */
#include "session/session.h"
#include "help.h"

#include <stdlib.h>
#include <string.h>

static const char text[] =
    "{\"args\": {\"batch\": 16}, \"inputs\": {\"x\": [\"batch\", 40]}, \"layers\": ["
    "{\"op\": \"linear\", \"name\": \"a\", \"out\": 24},"
    "\"gelu\", {\"op\": \"layernorm\", \"name\": \"b\"},"
    "{\"op\": \"linear\", \"name\": \"c\", \"out\": 8}]}";
enum { MOST = 16 * 40 };

static void run(nnc_session *s, uint64_t seed, float out[MOST])
{
    float in[MOST];
    nnc_fill_input("x", nnc_session_input_type(s, 0), seed, in);
    CHECK_OK(nnc_session_input(s, 0, in, test_sink));
    CHECK_OK(nnc_session_run(s, test_sink));
    CHECK_OK(nnc_session_output(s, 0, out, test_sink));
}

static nnc_artifact *at_batch(const loaded *l, const char *batch)
{
    nnc_artifact *a = NULL;
    const nnc_arg arg = {"batch", batch};
    CHECK_OK(
        nnc_artifact_for(l->e, l->a, &(nnc_open_options){.arg = &arg, .n_arg = 1}, &a, test_sink));
    return a;
}

/* The numbers of a plan that shares nothing. */
static void make_want(const loaded *l, float out[MOST])
{
    nnc_artifact *a = NULL;
    nnc_session *s = NULL;
    const nnc_arg arg = {"batch", "5"};
    nnc_model *m =
        nnc_artifact_model(l->a, &(nnc_open_options){.arg = &arg, .n_arg = 1}, test_sink);
    CHECK_OK(nnc_compile(l->e, m, NULL, &a, test_sink));
    CHECK_OK(nnc_session_create(l->e, a, &s, test_sink));
    run(s, 1, out);
    nnc_session_destroy(s);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
}

TEST(shapes_share_weights_on_a_gpu)
{
    float want[2][MOST], got[MOST];
    char why[512];
    loaded l;
    if (no_compiler())
        return;
    fake_begin(3);
    compile(&l, text, "cuda:sm_90", 1, 1);
    CHECK_OK(nnc_session_create(l.e, l.a, &l.s, test_sink));
    run(l.s, 1, want[0]);
    make_want(&l, want[1]);
    nnc_artifact *five = at_batch(&l, "5");
    nnc_session *s = NULL;
    CHECK_OK(nnc_session_create(l.e, five, &s, test_sink));
    CHECK(nnc_exec_requested(l.s->exec, 0).persist == l.a->plan->device[0].persist_bytes);
    CHECK_INT(nnc_exec_requested(s->exec, 0).persist, 0);
    for (int i = 0; s && i < 4; i++) { /* eager, captured, replayed */
        run(s, 1, got);
        CHECK(!memcmp(got, want[1], 5 * 8 * sizeof(float)));
        run(l.s, 1, got);
        CHECK(!memcmp(got, want[0], 16 * 8 * sizeof(float)));
    }
    nnc_session_destroy(l.s); /* which has allocated the weights */
    l.s = NULL;
    run(s, 1, got);
    CHECK(!memcmp(got, want[1], 5 * 8 * sizeof(float)));
    nnc_session_destroy(s);
    nnc_artifact_destroy(five);
    unload(&l);
    if (fake_end(why))
        test_fail(__FILE__, __LINE__, "%s", why);
}
