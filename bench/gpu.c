/* bench/gpu.c -- limits of generated kernels on a GPU, read off their machine code. Instructions per element on the usual path are compared
 * with what the GPU issues while it moves that element's bytes. Beside it is the function as a person writes it, with CUDA's sinf,
 * expf and erff (gpu_plain.h), compiled by the same NVRTC and options. Needs NVRTC, and no GPU: nothing is timed.
 * usage: bench_gpu [--json=FILE] [--models=PATTERN | --steps=PATTERN] [cuda:sm_NN...]   (default: sm_75, sm_80, sm_90, sm_100)
 * --models=PATTERN (of files of models): instead of the cases every launch of these models, in f32 and f16. Batches are 1 and, where they
 * have it as an argument, 128.
 * --steps=PATTERN: every launch of training steps of these models in bf16 and f32, batch 32, and the CPU time of each compile, almost all
 * NVRTC's.
 *
 * An SM issues 128 lanes a clock. Floats go at the rate that the data sheet's FLOP/s say, integers at 64 lanes, special functions at 16
 * (CUDA C++ Programming Guide, throughput of native arithmetic instructions). The longest of the five times is the kernel's. */
#include "session/session.h"
#include "cuda/cuda.h"
#include "gpu_plain.h"
#include "gpu_share.h"
#include "plan/plan.h"
#include "target/target.h"
#include "train/train.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* As in EfficientNets: a batch of 32, between two 1x1 convolutions, bias and relu6 after. */
#define DEPTHWISE(type, c, size, k, s, pad) \
    { \
        "dw " c "@" size " " k "x" k " s" s " " type, \
            "%x = input : " type "[32," c "," size "," size "]\n%v = param : " type "[" c "," c \
            ",1,1] = gen(\"v\", seed=0, scale=0.1, shift=0)\n%w = param : " type "[" c ",1," k \
            "," k "] = gen(\"w\", seed=0, scale=0.1, shift=0)\n%b = param : " type "[" c \
            "] = gen(\"b\", seed=0, scale=0.1, shift=0)\n%p = conv %x, %v\n%c = conv %p, %w, " \
            "%b {groups=" c ", strides=[" s "," s "], pads=[" pad "," pad "," pad "," pad \
            "]}\n%r = relu6 %c\n%y = conv %r, %v\n", \
            NULL, "_conv" \
    }

static const struct {
    const char *name, *text;
    const char *plain; /* a kernel of a person's hand, or NULL */
    const char *op; /* the kernel of this op alone; NULL: all */
} cases[] = {
    {"relu f32", "%x = input : f32[67108864]\n%y = relu %x\n", PLAIN_RELU},
    {"sin x4 f32",
        "%x = input : f32[67108864]\n%a = sin %x\n%b = sin %a\n%c = sin %b\n%y = sin %c\n",
        PLAIN_SIN4},
    {"sin x4 f16",
        "%x = input : f16[67108864]\n%a = sin %x\n%b = sin %a\n%c = sin %b\n%y = sin %c\n",
        PLAIN_SIN4_F16},
    {"sin x16 f32",
        "%x = input : f32[67108864]\n%a = sin %x\n%b = sin %a\n%c = sin %b\n%d = sin "
        "%c\n%e = sin %d\n%f = sin %e\n"
        "%g = sin %f\n%h = sin %g\n%i = sin %h\n%j = sin %i\n%k = sin %j\n%l = sin "
        "%k\n%m = sin %l\n%n = sin %m\n%o = sin %n\n"
        "%y = sin %o\n",
        PLAIN_SIN16},
    {"sin x16 f16",
        "%x = input : f16[67108864]\n%a = sin %x\n%b = sin %a\n%c = sin %b\n%d = sin "
        "%c\n%e = sin %d\n%f = sin %e\n"
        "%g = sin %f\n%h = sin %g\n%i = sin %h\n%j = sin %i\n%k = sin %j\n%l = sin "
        "%k\n%m = sin %l\n%n = sin %m\n%o = sin %n\n"
        "%y = sin %o\n",
        PLAIN_SIN16_F16},
    {"softmax 4096x1000 f32", "%x = input : f32[4096,1000]\n%y = softmax %x {axis=1}\n",
        PLAIN_SOFTMAX},
    {"softmax 4096x1000 f16", "%x = input : f16[4096,1000]\n%y = softmax %x {axis=1}\n"},
    {"layernorm 4096x1024 f32",
        "%x = input : f32[4096,1024]\n%s = input : f32[1024]\n%b = input : "
        "f32[1024]\n%y = layernorm %x, %s, %b\n",
        PLAIN_LAYERNORM},
    {"bias+gelu f32",
        "%x = input : f32[8192,4096]\n%b = input : f32[4096]\n%a = add %x, %b\n%y = gelu %a\n",
        PLAIN_GELU},
    {"bias+gelu f16",
        "%x = input : f16[8192,4096]\n%b = input : f16[4096]\n%a = add %x, %b\n%y = gelu %a\n",
        PLAIN_GELU_F16},
    {"maxpool 2x2 f32",
        "%x = input : f32[32,64,112,112]\n%y = maxpool %x {kernel=[2,2], strides=[2,2]}\n"},
    {"maxpool 3x3 s2 f32", "%x = input : f32[32,64,112,112]\n%y = maxpool %x {kernel=[3,3], "
                           "strides=[2,2], pads=[1,1,1,1]}\n"},
    DEPTHWISE("f32", "32", "112", "3", "1", "1"),
    DEPTHWISE("f16", "32", "112", "3", "1", "1"),
    DEPTHWISE("bf16", "32", "112", "3", "1", "1"),
    DEPTHWISE("f16", "96", "112", "3", "2", "1"),
    DEPTHWISE("f32", "144", "56", "5", "2", "2"),
    DEPTHWISE("f16", "144", "56", "5", "2", "2"),
    DEPTHWISE("f16", "240", "28", "5", "1", "2"),
    DEPTHWISE("bf16", "240", "28", "5", "1", "2"),
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

typedef struct cost { /* of one element */
    double issue, special, real; /* instructions */
    const char *bound; /* what takes longest, and how long for all of them */
    double us;
} cost;

/* One kernel of `elements` outputs of `size` bytes that moves `bytes`. An element's part of a path: 1 over those that the path stores. */
static cost cost_of(
    const nnc_target *t, const nnc_cubin_kernel *k, double elements, double size, double bytes)
{
    static const char *const limits[] = {"memory", "issue", "float", "integer", "special"};
    nnc_cubin_usual path;
    if (!nnc_cubin_usual_of(k, &path))
        return (cost){0};
    double each = path.stored > 0 ? size / path.stored : 1;
    double clocks = (double)t->sms * (double)t->clock_hz, rate = (double)t->flops_f32 / 2 / clocks;
    cost c = {path.length * each, path.n[CC_mufu] * each, path.n[CC_real] * each, NULL, 0};
    double time[] = {bytes / (double)t->copy_bytes_s, c.issue * elements / (128 * clocks),
        c.real * elements / (rate * clocks),
        (path.n[CC_integer] + path.n[CC_move]) * each * elements / (64 * clocks),
        c.special * elements / (16 * clocks)};
    int longest = 0;
    for (int i = 1; i < 5; i++)
        longest = time[i] > time[longest] ? i : longest;
    c.bound = limits[longest];
    c.us = time[longest] * 1e6;
    return c;
}

/* The hand-written kernel; false: there is none, or it does not compile. */
static bool read_plain(const nnc_target *t, const char *source, nnc_arena *a, nnc_cubin_kernel *out)
{
    static const char *const option[] = {"--fmad=false"};
    nnc_nvrtc_unit u = {.name = "plain.cu", .source = source};
    nnc_cubin_kernel *k;
    int n = 0, sm;
    if (!source || nnc_nvrtc_compile(&u, 1,
                       &(nnc_nvrtc_options){.sm = t->sm, .option = option, .n_option = 1}, sink))
        return false;
    const void *code = nnc_arena_memdup(a, u.code, u.n); /* k points into it */
    bool ok = code && nnc_cubin_read(code, u.n, a, &k, &n, &sm, sink) == NNC_OK && n == 1;
    if (ok)
        *out = k[0];
    nnc_free(u.code);
    return ok;
}

static void put_json(nnc_text *json, const char *name, const nnc_target *t, double elements,
    const nnc_gpu_launch *l, const nnc_cubin_kernel *plain, const cost *p)
{
    const nnc_gpu_share *s = &l->share;
    nnc_printf(json,
        "%s\n  {\"kernel\": \"%s\", \"sm\": %d, \"bytes\": %.2f, \"registers\": %d, \"stack\": %d, "
        "\"instructions\": %.2f, \"threads\": %d, \"resident\": %d, \"flight\": %.0f, \"needed\": "
        "%.0f, "
        "\"bound\": \"%s\", \"us\": %.2f, \"share\": %.3f",
        json->n > 1 ? "," : "", name, t->sm, l->bytes / elements, l->code->registers,
        l->code->stack_bytes, s->instructions, l->threads, s->resident, s->flight,
        nnc_gpu_needed(t), nnc_gpu_limit_names[s->bound], s->total_us, s->share);
    if (plain)
        nnc_printf(json,
            ", \"plain\": {\"registers\": %d, \"stack\": %d, \"instructions\": %.2f, \"special\": "
            "%.2f, \"bound\": \"%s\", \"us\": %.2f}",
            plain->registers, plain->stack_bytes, p->issue, p->special, p->bound, p->us);
    nnc_putc(json, '}');
}

static void row(const char *name, const nnc_target *t, const nnc_gpu_launch *l, double elements,
    double size, const nnc_cubin_kernel *plain, nnc_text *json)
{
    const nnc_gpu_share *s = &l->share;
    const double budget =
        l->bytes / (double)t->copy_bytes_s * 128 * (double)t->sms * (double)t->clock_hz / elements;
    printf("%-32s sm_%-4d %5d %5d %3dx%-4d %6.1f %7.1f %7.1f %7.1f  %-8s %9.1f %6.2f", name, t->sm,
        l->code->registers, l->code->stack_bytes, s->resident, l->threads, s->flight / 1024,
        l->bytes / elements, s->instructions, budget, nnc_gpu_limit_names[s->bound], s->total_us,
        s->share);
    cost p = {0};
    if (plain) {
        p = cost_of(t, plain, elements, size, l->bytes);
        printf("  | %5d %5d %7.1f %7.2f  %-8s %9.1f %6.2f", plain->registers, plain->stack_bytes,
            p.issue, p.special, p.bound, p.us, p.us / s->total_us);
    }
    putchar('\n');
    put_json(json, name, t, elements, l, plain, &p);
}

static int run_case(nnc_env *e, const nnc_target *t, size_t i, nnc_text *json)
{
    nnc_model *m = open_text(cases[i].text);
    nnc_artifact *a = NULL;
    nnc_arena mem;
    nnc_gpu_launches all;
    nnc_cubin_kernel plain;
    if (strstr(cases[i].text, "bf16") && t->sm < 80) { /* not cuDNN's there */
        nnc_model_close(m);
        return 0;
    }
    if (!m || nnc_compile(e, m, &nnc_compile_defaults, &a, sink)) {
        nnc_model_close(m);
        return fail(cases[i].name);
    }
    const nnc_plan *p = nnc_artifact_plan(a);
    const nnc_ptensor *out = &p->tensor[p->output[0]];
    nnc_arena_init(&mem, 0);
    int bad = nnc_gpu_launches_of(p, t, &mem, &all, sink) ? fail(cases[i].name) : 0;
    bool has = !bad && all.n == 1 && read_plain(t, cases[i].plain, &mem, &plain);
    if (!bad && cases[i].plain && !has)
        bad = fail(cases[i].name);
    for (int j = 0; !bad && j < all.n; j++)
        if (!cases[i].op || strstr(all.launch[j].symbol, cases[i].op))
            row(all.n == 1 || cases[i].op ? cases[i].name : all.launch[j].symbol, t, &all.launch[j],
                (double)nnc_type_numel(&out->type), nnc_dtype_size((nnc_dtype)out->type.dtype),
                has ? &plain : NULL, json);
    nnc_arena_deinit(&mem);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    return bad;
}

static void rows_of(const nnc_target *t, const nnc_gpu_launches *all, nnc_text *json)
{
    for (int j = 0; j < all->n; j++)
        row(all->launch[j].symbol, t, &all->launch[j], all->launch[j].elements, 1, NULL, json);
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Every launch of a training step. */
static int run_step(
    nnc_env *e, const nnc_target *t, const char *file, nnc_precision precision, nnc_text *json)
{
    const nnc_arg arg = {"batch", "32"};
    nnc_training training = nnc_training_defaults;
    nnc_compile_options o = nnc_compile_defaults;
    nnc_model *m = nnc_model_open(file, &(nnc_open_options){.arg = &arg, .n_arg = 1}, sink);
    nnc_graph *step = NULL;
    nnc_artifact *a = NULL;
    nnc_gpu_launches all = {0};
    nnc_arena mem;
    training.momentum = 0.9;
    o.precision = precision;
    nnc_arena_init(&mem, 0);
    nnc_status st = m ? nnc_train_graph(m, &training, &step, sink) : NNC_E_MODEL;
    const double began = cpu_seconds();
    st = st ? st : nnc_compile(e, step, &o, &a, sink);
    const double cpu = cpu_seconds() - began;
    st = st ? st : nnc_gpu_launches_of(nnc_artifact_plan(a), t, &mem, &all, sink);
    if (!st)
        printf("%s, step, batch 32, %s: %d kernels in %d objects, %.2f s of CPU to compile; %d "
               "launches, %.1f us; %d others\n",
            file, nnc_precision_name(precision), nnc_artifact_plan(a)->n_kernel,
            nnc_artifact_plan(a)->n_object, cpu, all.n, all.us, all.others);
    rows_of(t, &all, json);
    nnc_arena_deinit(&mem);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(step);
    nnc_model_close(m);
    return st ? fail(file) : 0;
}

/* Every launch of one model. A batch that it has no argument for is no failure. */
static int run_model(nnc_env *e, const nnc_target *t, const char *file, const char *batch,
    nnc_precision precision, nnc_text *json)
{
    const nnc_arg arg = {"batch", batch};
    nnc_model *m =
        nnc_model_open(file, &(nnc_open_options){.arg = &arg, .n_arg = batch ? 1 : 0}, sink);
    nnc_artifact *a = NULL;
    nnc_compile_options o = nnc_compile_defaults;
    nnc_gpu_launches all;
    nnc_arena mem;
    o.precision = precision;
    if (!m && batch) {
        nnc_sink_clear(sink);
        return 0;
    }
    if (!m || nnc_compile(e, m, &o, &a, sink)) {
        nnc_model_close(m);
        return fail(file);
    }
    nnc_arena_init(&mem, 0);
    int bad = nnc_gpu_launches_of(nnc_artifact_plan(a), t, &mem, &all, sink) ? fail(file) : 0;
    printf("%s, batch %s, %s: %d launches of generated kernels, %d others\n", file,
        batch ? batch : "as given", precision == NNC_PRECISION_f16 ? "f16" : "f32", bad ? 0 : all.n,
        bad ? 0 : all.others);
    if (!bad)
        rows_of(t, &all, json);
    nnc_arena_deinit(&mem);
    nnc_artifact_destroy(a);
    nnc_model_close(m);
    return bad;
}

static int run_models(
    nnc_env *e, const nnc_target *t, const char *pattern, bool steps, nnc_text *json)
{
    static const nnc_precision as[] = {NNC_PRECISION_f32, NNC_PRECISION_f16},
                               step[] = {NNC_PRECISION_bf16, NNC_PRECISION_f32};
    static const char *const batch[] = {NULL, "128"};
    glob_t files;
    int bad = glob(pattern, 0, NULL, &files) ? fail(pattern) : 0;
    for (size_t i = 0; steps && i < 2 * files.gl_pathc; i++)
        bad |= run_step(e, t, files.gl_pathv[i / 2], step[i % 2], json);
    for (size_t i = 0; !bad && !steps && i < files.gl_pathc; i++)
        for (size_t j = 0; j < 4; j++)
            bad |= run_model(e, t, files.gl_pathv[i], batch[j / 2], as[j % 2], json);
    globfree(&files);
    return bad;
}

static int run_target(const char *target, const char *models, bool steps, nnc_text *json)
{
    nnc_env *e;
    nnc_target t;
    int bad = 0;
    if (nnc_env_create(&(nnc_env_options){.target = target, .no_cache = true}, &e, sink) ||
        nnc_target_cuda(&t, target, sink))
        return fail(target);
    if (models)
        bad = run_models(e, &t, models, steps, json);
    for (size_t c = 0; c < NNC_COUNT(cases) && !models; c++)
        bad |= run_case(e, &t, c, json);
    nnc_target_deinit(&t);
    nnc_env_destroy(e);
    return bad;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"cuda:sm_75", "cuda:sm_80", "cuda:sm_90", "cuda:sm_100"};
    const char *file = NULL, *models = NULL;
    bool steps = false;
    int first = 1;
    for (; first < argc && argv[first][0] == '-'; first++) {
        if (!strncmp(argv[first], "--json=", 7))
            file = argv[first] + 7;
        else if (!strncmp(argv[first], "--models=", 9))
            models = argv[first] + 9;
        else if (!strncmp(argv[first], "--steps=", 8) && (steps = true))
            models = argv[first] + 8;
        else
            return nnc_exit_code(NNC_E_USAGE);
    }
    const char *const *target = argc > first ? (const char *const *)argv + first : usual;
    int n = argc > first ? argc - first : (int)NNC_COUNT(usual), bad = 0;
    nnc_text json = {0};
    sink = nnc_sink_create();
    nnc_putc(&json, '[');
    printf("%-32s %-7s %5s %5s %8s %6s %7s %7s %7s  %-8s %9s %6s  | %s\n", "", "", "regs", "stack",
        "resident", "KB/SM", "bytes", "instr.", "budget", "bound by", "us", "share",
        "by hand, with CUDA's functions: registers, stack, instr., special, bound by, us, times as "
        "long");
    for (int i = 0; sink && i < n; i++)
        bad |= run_target(target[i], models, steps, &json);
    nnc_puts(&json, "\n]\n");
    if (file && nnc_file_write(file, nnc_text_str(&json), json.n, false, sink))
        bad = fail(file);
    nnc_text_deinit(&json);
    nnc_sink_destroy(sink);
    return bad;
}
