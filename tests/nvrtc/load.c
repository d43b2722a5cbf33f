/* tests/nvrtc/load.c -- where libraries are looked for, what is said when they are absent, too old or do not match. The libraries are
 * fakes (fake/fake.c) in folders laid out like a toolkit's and like those of NVIDIA's wheels. */
#include "cuda/cuda.h"
#include "test.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a machine's folders ------------------------------------------------------------------------------------------ */

static char root[64];
static char *was_path, *was_venv; /* what the other tests are run with */

static char *keep(const char *variable)
{
    const char *value = getenv(variable);
    return value ? strdup(value) : NULL;
}

static void restore(const char *variable, char *value)
{
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
    free(value);
}

static void folder(const char *path)
{
    char full[300];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(full, 0755);
            *p = '/';
        }
    mkdir(full, 0755);
}

/* Puts the fake `file` of the build at root/path/name. */
static void put(const char *file, const char *path, const char *name)
{
    char from[500], to[300];
    folder(path);
    snprintf(from, sizeof from, "%s/%s", FAKE_DIR, file);
    snprintf(to, sizeof to, "%s/%s/%s", root, path, name);
    if (symlink(from, to) != 0)
        test_fail(__FILE__, __LINE__, "cannot link %s to %s", to, from);
}

static void set(const char *variable, const char *path)
{
    char full[300];
    snprintf(full, sizeof full, "%s/%s", root, path);
    setenv(variable, full, 1);
}

/* A fresh folder; nothing is known, and nothing is found but through NNC_CUDA_PATH. */
static void begin(void)
{
    snprintf(root, sizeof root, "/tmp/nnc-cuda-XXXXXX");
    if (!mkdtemp(root))
        test_fail(__FILE__, __LINE__, "cannot make a folder");
    was_path = keep("NNC_CUDA_PATH");
    was_venv = keep("VIRTUAL_ENV");
    set("NNC_CUDA_PATH", "none");
    unsetenv("VIRTUAL_ENV");
    nnc_cuda_forget();
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK_INT(system(command), 0);
    restore("NNC_CUDA_PATH", was_path);
    restore("VIRTUAL_ENV", was_venv);
    nnc_cuda_forget();
}

/* ---- finding ------------------------------------------------------------------------------------------------------ */

TEST(cuda_absent)
{
    begin();
    CHECK(nnc_cuda_table(CUDA_nvrtc, test_sink) == NULL);
    CHECK_DIAG("nvrtc is missing: libnvrtc.so.13 was not found (nnc doctor)");
    nnc_cuda_found f;
    nnc_cuda_look(CUDA_cudnn, &f);
    CHECK(!f.ok && !*f.path && !*f.version);
    CHECK_STR(f.why, "libcudnn.so.9 was not found");
    end();
}

static void check_found(const char *at)
{
    nnc_cuda_found f;
    char want[300];
    snprintf(want, sizeof want, "%s/%s", root, at);
    nnc_cuda_look(CUDA_cudart, &f);
    CHECK(f.ok);
    CHECK_STR(f.path, want);
    CHECK_STR(f.version, strstr(at, ".13") ? "13.0" : "12.8");
}

/* The layouts: a folder of libraries, a toolkit, wheels of CUDA 13 and of CUDA 12. */
TEST(cuda_layouts)
{
    static const struct {
        const char *dir, *so, *path;
    } layout[] = {
        {"plain", "libcudart.so.13", "plain"},
        {"toolkit/lib64", "libcudart.so.13", "toolkit"},
        {"toolkit/lib", "libcudart.so.12", "toolkit"},
        {"venv/lib/python3.11/site-packages/nvidia/cu13/lib", "libcudart.so.13", "venv"},
        {"venv/lib/python3.9/site-packages/nvidia/cuda_runtime/lib", "libcudart.so.12", "venv"},
    };
    for (size_t i = 0; i < NNC_COUNT(layout); i++) {
        char at[200];
        begin();
        put(strstr(layout[i].so, ".13") ? "libcudart13.so" : "libcudart12.so", layout[i].dir,
            layout[i].so);
        set("NNC_CUDA_PATH", layout[i].path);
        snprintf(at, sizeof at, "%s/%s", layout[i].dir, layout[i].so);
        check_found(at);
        end();
    }
}

TEST(cuda_order_in_a_list)
{
    char list[300];
    begin();
    put("libcudart12.so", "a", "libcudart.so.12");
    put("libcudart13.so", "b/lib64", "libcudart.so.13");
    snprintf(list, sizeof list, "%s/none::%s/a:%s/b", root, root, root);
    setenv("NNC_CUDA_PATH", list, 1);
    check_found("b/lib64/libcudart.so.13"); /* 13 before 12 */
    end();
}

/* ---- what is wrong ------------------------------------------------------------------------------------------------ */

TEST(cuda_too_old)
{
    begin();
    put("libcudart_old.so", "old", "libcudart.so.12");
    set("NNC_CUDA_PATH", "old");
    CHECK(nnc_cuda_table(CUDA_cudart, test_sink) == NULL);
    CHECK_DIAG("lacks cudaLibraryLoadData: nnc needs CUDA 12.8 or newer");
    /* one that does is taken from the next place */
    put("libcudart13.so", "new", "libcudart.so.13");
    char list[300];
    snprintf(list, sizeof list, "%s/old:%s/new", root, root);
    setenv("NNC_CUDA_PATH", list, 1);
    nnc_cuda_forget();
    check_found("new/libcudart.so.13");
    end();
}

TEST(cuda_damaged_library)
{
    char path[300];
    begin();
    folder("bad");
    snprintf(path, sizeof path, "%s/bad/libnccl.so.2", root);
    CHECK_OK(nnc_file_write(path, "not a library", 13, false, test_sink));
    set("NNC_CUDA_PATH", "bad");
    CHECK(nnc_cuda_table(CUDA_nccl, test_sink) == NULL);
    CHECK_DIAG("bad/libnccl.so.2");
    end();
}

TEST(cuda_mismatch)
{
    nnc_text t = {0};
    begin();
    put("libcudart13.so", "x", "libcudart.so.13");
    put("libcudnn12.so", "x", "libcudnn.so.9");
    put("libcuda12.so", "x", "libcuda.so.1");
    set("NNC_CUDA_PATH", "x");
    CHECK_INT(nnc_cuda_mismatches(&t), 2);
    CHECK(strstr(
        nnc_text_str(&t), "the driver supports CUDA 12.8 at most, but the runtime is CUDA 13.0"));
    CHECK(strstr(nnc_text_str(&t), "cudnn 9.19.0 is for CUDA 12, but the runtime is CUDA 13.0"));
    nnc_text_deinit(&t);
    end();
}

TEST(cuda_devices)
{
    nnc_cuda_device d[4];
    begin();
    CHECK_INT(nnc_cuda_devices(d, 4, test_sink), 0);
    CHECK_DIAG("no GPU: the CUDA runtime is missing");
    put("libcudart13.so", "x", "libcudart.so.13");
    put("libcuda12.so", "x", "libcuda.so.1");
    set("NNC_CUDA_PATH", "x");
    nnc_cuda_forget();
    CHECK_INT(nnc_cuda_devices(d, 4, test_sink), 2);
    CHECK_STR(d[1].name, "Fake GPU");
    CHECK_INT(d[1].sm, 90);
    CHECK_INT(d[1].sms, 161);
    CHECK_INT(d[0].clock_hz, 130000);
    end();
}

/* ---- replaced tables ---------------------------------------------------------------------------------------------- */

static int three_gpus(int *n)
{
    *n = 3;
    return 0;
}

static int no_driver(int *n)
{
    *n = 0;
    return 35;
}

static const char *error_text(int error)
{
    return error == 35 ? "CUDA driver version is insufficient" : "";
}

static const char *error_name(int error)
{
    return error == 35 ? "cudaErrorInsufficientDriver" : "";
}

static int twelve(int *version)
{
    *version = 12080;
    return 0;
}

static int thirteen(int *version)
{
    *version = 13000;
    return 0;
}

static int no_attribute(int *value, int attribute, int device)
{
    (void)value;
    (void)attribute;
    (void)device;
    return 1;
}

static int no_bus(char *id, int n, int device)
{
    (void)id;
    (void)n;
    (void)device;
    return 1;
}

static int no_device(int *device)
{
    *device = 0;
    return 1;
}

static int not_set(int device)
{
    (void)device;
    return 1;
}

static int last_error(void)
{
    return 1;
}

/* Without a driver's table, and with a runtime that fails every question: names and numbers stay what is known. */
TEST(cuda_override)
{
    nnc_cuda_cudart rt = {.cudaGetDeviceCount = three_gpus,
        .cudaGetErrorString = error_text,
        .cudaGetErrorName = error_name,
        .cudaRuntimeGetVersion = thirteen,
        .cudaDeviceGetAttribute = no_attribute,
        .cudaDeviceGetPCIBusId = no_bus,
        .cudaGetDevice = no_device,
        .cudaSetDevice = not_set,
        .cudaGetLastError = last_error};
    nnc_cuda_device d[1];
    begin();
    nnc_cuda_override(CUDA_cudart, &rt);
    nnc_cuda_override(CUDA_driver, NULL);
    CHECK(NNC_CUDA(cudart, test_sink) == &rt);
    CHECK_INT(nnc_cuda_devices(d, 1, test_sink), 3); /* more than there is room for */
    CHECK_STR(d[0].name, "GPU");
    CHECK_INT(d[0].memory_bytes, 0);
    rt.cudaGetDeviceCount = no_driver;
    CHECK_INT(nnc_cuda_devices(d, 1, test_sink), 0);
    CHECK_DIAG("no GPU: there is no driver");
    static const nnc_cuda_driver driver = {.cuDriverGetVersion = twelve};
    nnc_cuda_override(CUDA_driver, &driver);
    CHECK_INT(nnc_cuda_devices(d, 1, test_sink), 0);
    CHECK_DIAG(
        "no GPU: CUDA driver version is insufficient (cudaErrorInsufficientDriver): the driver "
        "supports CUDA 12.8, the runtime is CUDA 13.0");
    nnc_cuda_override(CUDA_driver, NULL);
    nnc_text t = {0};
    CHECK_INT(nnc_cuda_explain(&t, 35, -1), NNC_E_DEVICE);
    CHECK(strstr(nnc_text_str(&t), "there is no driver (it is disabled)") != NULL);
    nnc_text_deinit(&t);
    CHECK(NNC_CUDA(driver, test_sink) == NULL);
    CHECK_DIAG("driver is missing: it is disabled");
    end();
}

/* Two threads that ask at once get the same table. */
static void ask(void *ctx, int part, int parts)
{
    (void)parts;
    ((const void **)ctx)[part] = nnc_cuda_table(CUDA_cudart, NULL);
}

TEST(cuda_threads)
{
    const void *got[8] = {0};
    begin();
    put("libcudart13.so", "x", "libcudart.so.13");
    set("NNC_CUDA_PATH", "x");
    nnc_par_run(8, ask, got);
    for (int i = 0; i < 8; i++)
        CHECK(got[i] && got[i] == got[0]);
    end();
}
