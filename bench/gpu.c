/* bench/gpu.c -- what limits generated kernels on a GPU, read off their machine code: instructions per element on the usual path
 * against what the GPU issues while it moves that element's bytes. Needs NVRTC, and no GPU: nothing is timed.
 * usage: bench_gpu [cuda:sm_NN...]   (default: sm_75, sm_80, sm_90, sm_100)
 *
 * An SM issues 128 lanes a clock; floats go at the rate that the data sheet's FLOP/s say, integers at 64 lanes, special functions at 16
 * (CUDA C++ Programming Guide, throughput of native arithmetic instructions). The longest of the five times is the kernel's. */
#include "api/nnc.h"
#include "cuda/cuda.h"
#include "plan/plan.h"
#include "target/target.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *text;
} cases[] = {
    {"relu f32", "%x = input : f32[67108864]\n%y = relu %x\n"},
    {"sin x4 f32",
        "%x = input : f32[67108864]\n%a = sin %x\n%b = sin %a\n%c = sin %b\n%y = sin %c\n"},
    {"sin x4 f16",
        "%x = input : f16[67108864]\n%a = sin %x\n%b = sin %a\n%c = sin %b\n%y = sin %c\n"},
    {"sin x16 f32", "%x = input : f32[67108864]\n%a = sin %x\n%b = sin %a\n%c = sin %b\n%d = sin "
                    "%c\n%e = sin %d\n%f = sin %e\n"
                    "%g = sin %f\n%h = sin %g\n%i = sin %h\n%j = sin %i\n%k = sin %j\n%l = sin "
                    "%k\n%m = sin %l\n%n = sin %m\n%o = sin %n\n"
                    "%y = sin %o\n"},
    {"softmax 4096x1000 f32", "%x = input : f32[4096,1000]\n%y = softmax %x {axis=1}\n"},
    {"softmax 4096x1000 f16", "%x = input : f16[4096,1000]\n%y = softmax %x {axis=1}\n"},
    {"layernorm 4096x1024 f32", "%x = input : f32[4096,1024]\n%s = input : f32[1024]\n%b = input : "
                                "f32[1024]\n%y = layernorm %x, %s, %b\n"},
    {"bias+gelu f32",
        "%x = input : f32[8192,4096]\n%b = input : f32[4096]\n%a = add %x, %b\n%y = gelu %a\n"},
    {"bias+gelu f16",
        "%x = input : f16[8192,4096]\n%b = input : f16[4096]\n%a = add %x, %b\n%y = gelu %a\n"},
    {"maxpool 2x2 f32",
        "%x = input : f32[32,64,112,112]\n%y = maxpool %x {kernel=[2,2], strides=[2,2]}\n"},
};

static nnc_sink *sink;

static int fail(const char *what)
{
    fprintf(stderr, "%s:\n", what);
    nnc_sink_print(sink, stderr);
    nnc_sink_clear(sink);
    return 1;
}

static nnc_model *open_text(const char *text)
{
    char path[] = "/tmp/nnc-gpu-XXXXXX.nnc", all[2048];
    int n = snprintf(all, sizeof all, "graph @case {\n%sreturn %%y as \"y\"\n}\n", text),
        fd = mkstemps(path, 4);
    nnc_model *m = NULL;
    if (fd >= 0 && write(fd, all, (size_t)n) == n)
        m = nnc_model_open(path, &(nnc_open_options){0}, sink);
    if (fd >= 0)
        close(fd);
    unlink(path);
    return m;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* One kernel of `elements` outputs of `size` bytes that moves `bytes`. */
static void row(const char *name, const nnc_target *t, const nnc_cubin_kernel *k, double elements,
    double size, double bytes)
{
    static const char *const limits[] = {"memory", "issue", "float", "integer", "special"};
    double each =
        size / (k->path_stored > 0 ? k->path_stored
                                   : size); /* element of a path: 1 over those that it stores */
    double clocks = (double)t->sms * (double)t->clock_hz, real = (double)t->flops_f32 / 2 / clocks;
    double issue = k->path * each, special = k->path_n[CC_mufu] * each;
    double time[] = {bytes / (double)t->copy_bytes_s, issue * elements / (128 * clocks),
        k->path_n[CC_real] * each * elements / (real * clocks),
        (k->path_n[CC_integer] + k->path_n[CC_move]) * each * elements / (64 * clocks),
        special * elements / (16 * clocks)};
    int longest = 0;
    for (int i = 1; i < 5; i++)
        longest = time[i] > time[longest] ? i : longest;
    printf("%-24s sm_%-4d %9d %6d %8.1f %8.1f %8.2f %8.1f %8.1f  %-8s %9.1f\n", name, t->sm,
        k->registers, k->stack_bytes, bytes / elements, issue, special,
        time[0] > 0 ? issue * most(time[0], 0) / time[1] : 0, k->path_n[CC_real] * each,
        limits[longest], time[longest] * 1e6);
}

static int run_case(nnc_env *e, const nnc_target *t, size_t i)
{
    nnc_model *m = open_text(cases[i].text);
    nnc_artifact *a = NULL;
    nnc_arena mem;
    nnc_cubin_kernel *k;
    int n, sm, bad = 0;
    if (!m || nnc_compile(e, m, &nnc_compile_defaults, &a, sink)) {
        nnc_model_close(m);
        return fail(cases[i].name);
    }
    const nnc_plan *p = nnc_artifact_plan(a);
    const nnc_ptensor *out = &p->tensor[p->output[0]];
    int64_t flops, bytes, launches;
    nnc_artifact_work(a, &flops, &bytes, &launches);
    nnc_arena_init(&mem, 0);
    if (p->n_object != 1 ||
        nnc_cubin_read(p->object[0].data, p->object[0].n, &mem, &k, &n, &sm, sink))
        bad = fail(cases[i].name);
    for (int j = 0; !bad && j < n; j++)
        row(n == 1 ? cases[i].name : k[j].name, t, &k[j], (double)nnc_type_numel(&out->type),
            nnc_dtype_size((nnc_dtype)out->type.dtype), (double)bytes / n);
    nnc_arena_deinit(&mem);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    return bad;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};
    const char *const *target = argc > 1 ? (const char *const *)argv + 1 : usual;
    int n = argc > 1 ? argc - 1 : (int)NNC_COUNT(usual), bad = 0;
    sink = nnc_sink_create();
    printf("%-24s %-7s %9s %6s %8s %8s %8s %8s %8s  %-8s %9s\n", "", "", "registers", "stack",
        "bytes", "instr.", "special", "budget", "float", "bound by", "us");
    for (int i = 0; sink && i < n; i++) {
        nnc_env *e;
        nnc_target t;
        if (nnc_env_create(&(nnc_env_options){.target = target[i], .no_cache = true}, &e, sink) ||
            nnc_target_cuda(&t, target[i], sink))
            return fail(target[i]);
        for (size_t c = 0; c < NNC_COUNT(cases); c++)
            bad |= run_case(e, &t, c);
        nnc_target_deinit(&t);
        nnc_env_destroy(e);
    }
    nnc_sink_destroy(sink);
    return bad;
}
