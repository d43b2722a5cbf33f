/* tests/cuda_fake/help.c -- see help.h. */
#include "help.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool no_compiler(void)
{
    if (*NNC_TEST_CXX)
        return false;
    test_skip("no C++ compiler to build kernels for the CPU");
    return true;
}

nnc_model *model(const char *text)
{
    char file[] = "/tmp/nnc_session_XXXXXX.json";
    int fd = mkstemps(file, 5);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    nnc_model *m = ok ? nnc_model_open(file, &(nnc_open_options){.seed = 1}, test_sink) : NULL;
    unlink(file);
    CHECK(m != NULL);
    return m;
}

bool compared(nnc_env *e, const nnc_graph *g, const nnc_compare_options *o, nnc_text *t)
{
    nnc_compare_options how = *o;
    bool agrees = false;
    for (int k = 0; !agrees && k < 2; k++) {
        nnc_text_clear(t);
        CHECK_OK(nnc_compare(e, g, &how, NNC_TEXT, t, &agrees, test_sink));
        how.tolerance = 0;
    }
    return agrees;
}

void compile(loaded *l, const char *text, const char *target, int streams, int devices)
{
    nnc_compile_options o = nnc_compile_defaults;
    o.streams = streams;
    o.devices = devices;
    *l = (loaded){.m = model(text)};
    CHECK_OK(
        nnc_env_create(&(nnc_env_options){.target = target, .no_cache = true}, &l->e, test_sink));
    CHECK_OK(nnc_compile(l->e, l->m, &o, &l->a, test_sink));
}

void unload(loaded *l)
{
    nnc_session_destroy(l->s);
    nnc_artifact_destroy(l->a);
    nnc_model_close(l->m);
    nnc_env_destroy(l->e);
}
