/* cli/main.c -- the program: finds the command, parses its flags, runs it, prints diagnostics, chooses the exit code. */
#include "cli/cli.h"
#include "session/train.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define F(group) NNC_FLAGS(group)
#define MODEL_FLAGS (F(model) | F(mode) | F(training))
#define COMPILE_FLAGS (MODEL_FLAGS | F(place) | F(compiling) | F(planning))
#define PRINT_FLAGS (F(format) | F(verbose))

const command commands[] = {
    {"compile", "MODEL...", "compile to an artifact, or print a stage of the compile",
        COMPILE_FLAGS | F(sharing) | F(debugging) | F(artifact) | F(machine) | F(verbose), 1,
        MOST_FILES, cmd_compile,
        "examples:\n"
        "  nnc compile models/vgg16.json -o vgg16.nnc && nnc run vgg16.nnc\n"
        "  nnc compile models/softmax.json --emit=kernels\n"
        "  nnc compile models/mlp.json --emit=dot | dot -Tsvg > mlp.svg\n"},
    {"run", "MODEL...|ARTIFACT", "run and time a model; write its outputs",
        COMPILE_FLAGS | PRINT_FLAGS | F(sharing) | F(debugging) | F(trace) | F(inputs) |
            F(outputs) | F(timing) | F(percentile) | F(limit) | F(machine) | F(ranks),
        1, MOST_FILES, cmd_run,
        "examples:\n"
        "  nnc run models/mlp.json --set batch=8 --input x=digits.npy --output prob=prob.npy\n"
        "  nnc run models/vgg16.json --iterations 100 --percentile 99.9 --format=json\n"
        "  nnc run models/resnet101.json models/densenet121.json --devices=cpu:0,cpu:1\n"
        "  nnc compile model.onnx -o m.nnc && nnc run m.nnc --shapes=x:7x3x224x224\n"},
    {"profile", "MODEL...|ARTIFACT",
        "measure or predict where the time of a run goes, and what bounds it",
        COMPILE_FLAGS | PRINT_FLAGS | F(sharing) | F(debugging) | F(profile) | F(trace) |
            F(inputs) | F(timing) | F(both) | F(limit) | F(machine) | F(ranks),
        1, MOST_FILES, cmd_profile,
        "`limit` is the least time over the time; `of` is what that least time is bound by: "
        "arithmetic, "
        "memory or a cache.\n\n"
        "examples:\n"
        "  nnc profile models/resnet50.json --by=module\n"
        "  nnc profile models/vgg16.json --mode=step --by=part --trace=step.json\n"
        "  nnc profile models/vgg16.json --hardware=models/hardware/gtx1080ti_x2.json --by=op\n"
        "  nnc profile models/unet.json --format=json >old.json && nnc profile models/unet.json "
        "--against=old.json --sort=change\n"},
    {"sweep", "MODEL...",
        "measure or predict time and memory over sizes, and say where series cross",
        MODEL_FLAGS | F(compiling) | F(planning) | F(sweep) | F(timing) | F(limit) | F(machine) |
            F(format),
        1, MOST_FILES, cmd_sweep,
        "--set NAME=SIZES gives the sizes: 1..32768x2 (each twice the last), 64..1024+64, or "
        "1,2,4; an integer may be a power, 2^15.\nSeveral values of another --set make series, as "
        "do those of --target, --hardware, --threads, --precision, --math, -O,\n--fusion, --io, "
        "--streams and --devices. The product of all is measured; with --hardware and other "
        "described "
        "targets it is predicted.\nCtrl-C prints the rows so far.\n\n"
        "examples:\n"
        "  nnc sweep models/matmul.json --set dim=1..4096x2 --precision=f32,bf16 -o rows.json "
        "--html=page.html\n"
        "  nnc sweep models/nested_sin.json --set n=2^10..2^32x4 --fusion=on,off "
        "--hardware=models/hardware/gtx1080ti_x2.json\n"
        "  nnc sweep models/vgg16.json --set batch=1..64x2 --mode=step --threads=1,2\n"},
    {"compare", "MODEL...|ARTIFACT",
        "compare fused, unfused and float64: numbers, time, gain of each pass",
        COMPILE_FLAGS | PRINT_FLAGS | F(sharing) | F(debugging) | F(inputs) | F(timing) |
            F(compare) | F(tolerance) | F(both) | F(machine),
        1, MOST_FILES, cmd_compare,
        "Unfused is the same -O level without the fusion passes: layout and libraries are equal on "
        "both sides.\nnmse is the sum of squared errors over the sum of squares. Exit code 1 when "
        "the numbers differ.\n\n"
        "examples:\n"
        "  nnc compare models/vgg16.json --set batch=8\n"
        "  nnc compare models/nested_sin.json --set n=67108864 --set depth=16 --format=json\n"},
    {"explain", "MODEL...|ARTIFACT", "list every decision of the passes and its reason",
        COMPILE_FLAGS | F(sharing) | F(debugging) | F(machine) | F(format) | F(verbose), 1,
        MOST_FILES, cmd_explain,
        "example:\n  nnc explain models/vgg16.json --set order=pool-relu --verbose\n"},
    {"memory", "MODEL...|ARTIFACT",
        "print peak memory and its timeline before running; exit code 4 when it does not fit",
        COMPILE_FLAGS | PRINT_FLAGS | F(sharing) | F(fit) | F(limit) | F(picture) | F(debugging) |
            F(machine),
        1, MOST_FILES, cmd_memory,
        "examples:\n"
        "  nnc memory models/vgg16.json --set batch=64 --format=csv\n"
        "  nnc memory models/vgg16.json --mode=step --fit batch=1..512 "
        "--hardware=models/hardware/gtx1080ti_x2.json\n"},
    {"partition", "MODEL...",
        "predict what strategies make of a model on several devices; exit code 4 when none fits",
        COMPILE_FLAGS | PRINT_FLAGS | F(partition) | F(debugging) | F(machine) | F(ranks), 1,
        MOST_FILES, cmd_partition,
        "Predictions follow from the model's plan for one device: docs/partition.md. What "
        "nnc train and nnc run execute has `yes` under `runs`, and the last line of its "
        "paragraph is the command.\n\n"
        "examples:\n"
        "  nnc partition models/vgg16.json --devices=4 --mode=step --target=cuda:sm_70 "
        "--link-gbs=12\n"
        "  nnc partition models/vgg16.json --devices=4 "
        "--hardware=models/hardware/a100x8.json --mode=step\n"
        "  nnc partition models/resnet50.json --devices=2 --strategy=sequential,pipeline "
        "--format=json\n"},
    {"report", "[FOLDER|FILE...]",
        "compare published experiments with predictions and with this machine",
        F(report) | F(machine) | F(format), 0, MOST_FILES, cmd_report,
        "FOLDER has files as those of models/experiments (default), which docs/formats.md "
        "describes. Each number is printed as\npublished, as predicted for the described hardware, "
        "and as measured here, both with their ratio to what was published.\nA run that does not "
        "fit this machine or the time has smaller sizes, marked with *.\n\n"
        "examples:\n"
        "  nnc report --html=report.html\n"
        "  nnc report models/experiments/conv_fc.json --budget=0\n"},
    {"calibrate", "", "measure this machine, or the ranks of a job on it, into a hardware file",
        F(calibrate) | F(machine) | F(ranks), 0, 0, cmd_calibrate,
        "Measures op classes, launches, copies between devices and collectives by running plans, "
        "and prints a hardware file\n(docs/hardware.md) for nnc partition --hardware.\n\n"
        "examples:\n"
        "  nnc calibrate -o here.json && nnc partition models/vgg16.json --hardware=here.json "
        "--run --simulate\n"
        "  mpirun -n 4 nnc calibrate --budget=60 -o ranks.json\n"
        "  nnc calibrate --target=cuda -o gpu.json && nnc partition models/vgg16.json --devices=1 "
        "--strategy=single --hardware=gpu.json --run --simulate\n"},
    {"show", "MODEL...|ARTIFACT", "list layers, shapes, parameters, FLOPs",
        MODEL_FLAGS | PRINT_FLAGS, 1, MOST_FILES, cmd_show,
        "example:\n  nnc show models/vgg16.json --set image=64\n"},
    {"check", "MODEL|ARTIFACT", "check a file; exit code 3 when it is rejected", F(model), 1, 1,
        cmd_check, "example:\n  nnc check models/vgg16.json --set batch=0\n"},
    {"verify", "MODEL|ARTIFACT|FOLDER",
        "compare fused, unfused and float64 layer by layer; exit code 1 when they differ",
        COMPILE_FLAGS | F(sharing) | F(inputs) | F(tolerance) | F(layers) | F(onnx_tests) |
            F(machine) | F(json) | F(both) | F(verbose),
        1, 1, cmd_verify,
        "Names the first layer that is over its limit, and whether a kernel or a pass is wrong. A "
        "layer that only passes through\nregisters of a fused kernel has no number of its own.\n"
        "FOLDER is a test folder of ONNX: model.onnx and test_data_set_N/ with input_K.pb and "
        "output_K.pb.\n\n"
        "examples:\n"
        "  nnc verify models/vgg16.json --set image=64\n"
        "  nnc verify model.json --weights=w.safetensors --inputs=in.npz --against=outputs.npz\n"
        "  nnc verify tests/cli/onnx/agrees\n"},
    {"train", "MODEL", "train a model: loss, gradients, optimizer",
        PRINT_FLAGS | F(model) | F(place) | F(training) | F(loop) | F(job) | F(compiling) |
            F(planning) | F(trace) | F(machine) | F(ranks),
        1, 1, cmd_train,
        "The file of --data holds a tensor for each input of the model, with a row for each "
        "sample, and one named target; a\n.npy file holds one input alone, and --labels the "
        "target. The batch "
        "is the first dimension of the model's inputs; rows\nbeyond whole batches are left out.\n\n"
        "examples:\n"
        "  python3 scripts/digits.py digits.npz && nnc train examples/digits.json "
        "--data=digits.npz\n"
        "  nnc train net.json --data=x.npy --labels=y.npy --optimizer=adamw --lr=1e-3 "
        "--validation=0.1 --save=w.safetensors\n"
        "  nnc train examples/digits.json --data=digits.npz --devices=2 --strategy=1f1b "
        "--micro-batches=8\n"},
    {"opt", "MODEL", "run passes on a model or graph text; print graph text",
        MODEL_FLAGS | F(passes) | F(compiling) | F(machine) | F(debugging), 1, 1, cmd_opt,
        "example:\n  nnc compile models/mlp.json -O0 --emit=graph | nnc opt - "
        "--passes=fuse_epilogue\n"},
    {"layers", "", "list the layer types of model files, with their keys and defaults", F(json), 0,
        0, .list = nnc_report_layers},
    {"ops", "", "list the ops of the graph IR", F(json), 0, 0, .list = nnc_report_ops},
    {"passes", "", "list the passes in the order in which they run", F(json), 0, 0,
        .list = nnc_report_passes},
    {"devices", "", "describe this machine, or that of a hardware file",
        F(machine) | F(hardware) | F(format), 0, 0, cmd_devices,
        "examples:\n"
        "  nnc devices --hardware=models/hardware/v100x8.json\n"
        "  nnc devices --target=cuda:sm_90 --format=json > machine.json\n"},
    {"doctor", "", "list optional libraries, present or missing, and the effect of missing ones",
        F(machine) | F(json), 0, 0, cmd_doctor, NULL},
};
const int n_commands = NNC_COUNT(commands);

const command *find_command(const char *name)
{
    for (int i = 0; i < n_commands; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

/* Reports an unknown command. */
static int unknown(const char *name)
{
    const char *names[32];
    if (*name == '-' || access(name, F_OK) == 0) {
        fprintf(stderr, "nnc: `%s` is a %s; the command comes first: nnc COMMAND [FILE] [flags]\n",
            name, *name == '-' ? "flag" : "file");
        return nnc_exit_code(NNC_E_USAGE);
    }
    for (int i = 0; i < n_commands; i++)
        names[i] = commands[i].name;
    const char *near = nnc_nearest(name, names, (size_t)n_commands);
    fprintf(stderr, "nnc: unknown command `%s`", name);
    fprintf(
        stderr, near ? "; did you mean %s?\n" : "; nnc --help lists them%s\n", near ? near : "");
    return nnc_exit_code(NNC_E_USAGE);
}

/* Opens /dev/null for closed standard streams: otherwise the next opened file would get the descriptor and receive the output. */
static void keep_streams_apart(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
            _exit(nnc_exit_code(NNC_E_IO));
}

/* Within a limit of address space (ulimit -v) threads share glibc's heap. Each would reserve 64 MiB for one of its own, and what is left
 * is too little for libraries that crash without memory. */
static void share_heap(void)
{
#ifdef __GLIBC__
    struct rlimit most;
    if (getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY)
        (void)mallopt(M_ARENA_MAX, 1);
#endif
}

/* Reports output that could not be written, unless the reader has closed its end (| head). */
static nnc_status close_stdout(nnc_status st)
{
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && errno != EPIPE)
        fprintf(stderr, "nnc: error: cannot write to standard output: %s\n", strerror(errno));
    return lost && (!st || st == NNC_E_IO) ? NNC_E_IO : st;
}

/* Several ranks: what went wrong here, and the end of all of them. */
static void give_up(const work *w, nnc_status st, nnc_sink *sink)
{
    progress_end();
    fflush(stdout);
    nnc_env_tell(w->env, sink);
    nnc_sink_flush(sink, stderr);
    if (!nnc_sink_errors(sink) && st != NNC_E_DIFFERS && st != NNC_E_FIT)
        fprintf(stderr, "nnc: error: rank %d: %s\n", nnc_env_rank(w->env), nnc_status_name(st));
    nnc_env_abort(w->env, st);
}

/* Differences and what does not fit are results, too. */
static nnc_status run_and_print(const command *c, const options *o, nnc_sink *sink)
{
    work w = {0};
    nnc_status st = NNC_OK, printed = NNC_OK;
    if (c->list)
        c->list(o->format, &w.text);
    else
        st = c->run(o, &w, sink);
    if ((!st || st == NNC_E_DIFFERS || st == NNC_E_FIT) && !w.no_text && !nnc_sink_errors(sink))
        printed = deliver(o, &w.text, sink);
    if ((w.json.n || w.json.oom) && !printed && !nnc_sink_errors(sink))
        printed = w.json.oom ? nnc_nomem(sink)
                             : nnc_file_write(o->json, nnc_text_str(&w.json), w.json.n, true, sink);
    if ((st || printed) && w.env && nnc_env_world(w.env) > 1)
        give_up(&w, st ? st : printed, sink);
    close_work(&w);
    return printed ? printed : st;
}

options default_options(void)
{
    return (options){.compare = nnc_compare_defaults,
        .train = nnc_train_defaults,
        .percentile = 99,
        .profile = {.top = 20},
        .report = {.budget_s = 90},
        .rtol = 1e-3,
        .atol = 1e-7};
}

static nnc_status run_command(const command *c, int argc, char **argv)
{
    options o = default_options();
    nnc_sink *sink = nnc_sink_create();
    if (!sink) {
        fputs("nnc: error: out of host memory\n", stderr);
        return NNC_E_NOMEM;
    }
    o.sink = sink;
    nnc_status st = parse_flags(c, argc, argv, 2, &o, sink);
    if (!st && o.help)
        print_help(c);
    else if (!st && !(st = check_paths(&o, sink)))
        st = run_and_print(c, &o, sink);
    progress_end();
    bool silent = st && !nnc_sink_errors(sink) && st != NNC_E_DIFFERS && st != NNC_E_FIT;
    nnc_sink_flush(sink, stderr);
    nnc_sink_destroy(sink);
    nnc_arena_deinit(&o.strings);
    nnc_status end = close_stdout(st);
    if (silent && !ferror(stdout))
        fprintf(stderr, "nnc: error: %s\n", nnc_status_name(st));
    return end;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    keep_streams_apart();
    share_heap();
    catch_aborts();
    signal(SIGXFSZ, SIG_IGN); /* a file beyond ulimit -f: write fails and is reported */
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        const command *c = argc > 2 ? find_command(argv[2]) : NULL;
        if (argc > 2 && !c)
            return unknown(argv[2]);
        c ? print_help(c) : print_usage(argc > 1 ? stdout : stderr);
        return nnc_exit_code(argc > 1 ? close_stdout(NNC_OK) : NNC_E_USAGE);
    }
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        puts("nnc " NNC_VERSION);
        return nnc_exit_code(close_stdout(NNC_OK));
    }
    if (!strcmp(name, "--complete")) { /* called by the shells' completion */
        complete(argc - 2, argv + 2);
        return nnc_exit_code(close_stdout(NNC_OK));
    }
    if (!strcmp(name, "--man") && argc == 4) /* called when nnc is built */
        return nnc_exit_code(write_manual(argv[2], argv[3]) ? NNC_OK : NNC_E_IO);
    const command *c = find_command(name);
    return c ? nnc_exit_code(run_command(c, argc, argv)) : unknown(name);
}
