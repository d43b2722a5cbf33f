/* tests/cudnn/golden.c -- see golden.h. */
#include "golden.h"
#include "cuda/cudnn.h"
#include "test.h"
#include <dlfcn.h>
#include <stdlib.h>

/* The newest first: cuDNN 9.19 keeps of the first GPU that a process asks about whether there are tensor cores for tf32. */
const char *const golden_gpu[] = {
    "cuda:sm_90", "cuda:sm_80", "cuda:sm_75", "cuda:sm_70", "cuda:sm_61"};

size_t golden_gpus(void)
{
    return NNC_CUDA(cudnn, NULL)->cudnnGetVersion() < 91100 ? 5 : 3;
}

bool golden_absent(void)
{
    nnc_cuda_forget();
    if (NNC_CUDA(cudnn, NULL)) {
        nnc_cudnn *g;
        const nnc_cudnn_device d = {
            "H200", 90, 132, 2048, INT64_C(141) << 30, 227 << 10, 60 << 20, 1980000000};
        nnc_status st = nnc_cudnn_create(&d, &g, NULL);
        nnc_cudnn_destroy(g);
        if (!st)
            return false;
        test_skip("this cuDNN needs a driver to be asked");
        return true;
    }
    test_skip("there is no cuDNN (pip install nvidia-cudnn-cu13, and NNC_CUDA_PATH)");
    return true;
}

bool golden_without_driver(void)
{
    if (golden_absent())
        return true;
    if (dlopen("libcuda.so.1", RTLD_NOW) || dlopen(FAKE_LIBCUDA, RTLD_NOW | RTLD_GLOBAL))
        return false;
    test_skip("%s", dlerror());
    return true;
}

/* Lines that differ; of another version: in whether anything computes the graph. */
static void compare(const char *got, const char *want, bool same_version)
{
    while (*got && *want) {
        size_t n = strcspn(got, "\n"), m = strcspn(want, "\n");
        bool none = n >= 4 && !strncmp(got + n - 4, "none", 4),
             none_before = m >= 4 && !strncmp(want + m - 4, "none", 4);
        if (same_version ? n != m || strncmp(got, want, n) : none && !none_before)
            test_fail(__FILE__, __LINE__, "cuDNN says\n%.*s\nnot\n%.*s", (int)n, got, (int)m, want);
        got += n + (got[n] != 0);
        want += m + (want[m] != 0);
    }
    CHECK(!*got && !*want);
}

void golden_head(nnc_text *t)
{
    size_t v = NNC_CUDA(cudnn, NULL)->cudnnGetVersion();
    nnc_printf(t, "cuDNN %zu.%zu\n", v / 10000, v / 100 % 100);
}

void golden_check(nnc_text *t, const char *file)
{
    char *golden = NULL;
    size_t n;
    CHECK(!t->oom);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(file, nnc_text_str(t), t->n, false, test_sink));
    CHECK_OK(nnc_file_read(file, 0, &golden, &n, test_sink));
    if (golden) {
        size_t head = strcspn(golden, "\n") + 1;
        bool same = !strncmp(golden, nnc_text_str(t), head);
        if (!same)
            printf("     %s is of another version of cuDNN: only what is computed at all is "
                   "compared\n",
                file);
        compare(strchr(nnc_text_str(t), '\n') + 1, golden + head, same);
    }
    nnc_free(golden);
    nnc_text_deinit(t);
}
