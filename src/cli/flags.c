/* cli/flags.c -- the flags of all commands in one table, used for parsing and --help. */
#include "cli/cli.h"
#include "report/report.h"
#include "session/train.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The headings of groups in --help; NULL: no flags of a command. */
static const char *const heading_of[FLAGS__COUNT] = {
    [FLAGS_model] = "model",
    [FLAGS_passes] = "passes",
    [FLAGS_place] = "model",
    [FLAGS_sharing] = "model",
    [FLAGS_mode] = "model",
    [FLAGS_training] = "training",
    [FLAGS_loop] = "training",
    [FLAGS_job] = "training",
    [FLAGS_compiling] = "compiling",
    [FLAGS_planning] = "compiling",
    [FLAGS_partition] = "partitioning",
    [FLAGS_fit] = "memory",
    [FLAGS_limit] = "memory",
    [FLAGS_calibrate] = "measuring",
    [FLAGS_debugging] = "compiling, for those who work on nnc",
    [FLAGS_artifact] = "result",
    [FLAGS_picture] = "result",
    [FLAGS_trace] = "result",
    [FLAGS_inputs] = "inputs and outputs",
    [FLAGS_outputs] = "inputs and outputs",
    [FLAGS_timing] = "timing",
    [FLAGS_percentile] = "timing",
    [FLAGS_compare] = "comparing",
    [FLAGS_tolerance] = "comparing",
    [FLAGS_layers] = "comparing",
    [FLAGS_onnx_tests] = "comparing, test folders of ONNX",
    [FLAGS_machine] = "machine",
    [FLAGS_ranks] = "several ranks",
    [FLAGS_hardware] = "machine",
    [FLAGS_format] = "printing",
    [FLAGS_json] = "printing",
    [FLAGS_verbose] = "printing",
    [FLAGS_help] = "all commands",
};

#define AT(f) offsetof(options, f)
static const nnc_flag own[] = {
    {FLAGS_model, {"--set", NNC_SET_PAIRS, AT(model.arg), AT(model.n_arg), 0, 0, "NAME=VALUE"},
        "Set an argument of the model file, as in --set batch=8 (repeatable, once a name); of an "
        "artifact: plan its model for it, sharing its weights"},
    {FLAGS_model, {"--seed", NNC_SET_SEED, AT(model.seed), 0, 0, 0, "N"},
        "Seed of generated weights and inputs (default: 0)"},
    {FLAGS_model, {"--weights", NNC_SET_TEXT, AT(model.weights), 0, 0, 0, "FILE"},
        "Read the weights from this file, .safetensors or .npz (default: generated from the seed); "
        "of an artifact: its file of weights now"},
    {FLAGS_model,
        {"--rename", NNC_SET_PAIRS, AT(model.rename), AT(model.n_rename), 0, 0, "NAME=NAME"},
        "Map names of tensors in the --weights file to names of weights (repeatable; the first "
        "match counts): module.*=* removes a prefix, NAME=- ignores a tensor"},
    {FLAGS_model,
        {"--shapes", NNC_SET_LIST, AT(model.shape), AT(model.n_shape), 0, 0,
            "NAME:1x3x224x224,..."},
        "Shapes of an ONNX model's inputs whose dimensions the file leaves open (default: a first "
        "dimension is 1; of an artifact: those that it was compiled for)"},
    {FLAGS_model, {"--replace-head", NNC_SET_PAIRS, AT(head), AT(n_head), 0, 0, "classes=N"},
        "Give the model's last linear, conv or matmul N outputs, with generated weights, and read "
        "the others from --weights"},
    {FLAGS_place, {"--place", NNC_SET_TEXT, AT(model.place), 0, 0, 0, "LAYERS=DEVICE,..."},
        "Put layers on devices: by index as nnc partition --layers lists them, 0-9=0,10-=1, or by "
        "name, conv1*=0 "
        "(docs/partition.md)"},
    {FLAGS_sharing,
        {"--strategy", NNC_SET_CHOICE, AT(sharing), 0, 0, 0, nnc_run_strategies + 1,
            .names = nnc_strategy_names},
        "How the --devices share the work (default: one device for each rank). layers (default): "
        "each layer runs on the device that it names. pipeline: parts of the batch pass through "
        "stages, cut by --place, the model file or nnc partition. data: each device has all layers "
        "and an "
        "equal part of the batch, or a batch of a training step (compare and verify take neither "
        "of these two, nor --zero). tensor, channel, spatial: ops are split over the devices, by "
        "columns and rows, by channels, or by rows of the image"},
    {FLAGS_sharing, {"--split", NNC_SET_TEXT, AT(compare.compile.split), 0, 0, 0, "LAYERS=HOW,..."},
        "Split these layers, named as --place names them, over the --devices: by columns (or "
        "channels), rows (or input-channels), batch, height, width, or whole (docs/partition.md)"},
    {FLAGS_mode, {"--mode", NNC_SET_CHOICE, AT(mode), 0, MODE_forward, 0, "forward|step"},
        "step: the model's training step instead: loss, gradients and optimizer (default: "
        "forward)"},
    {FLAGS_passes, {"--passes", NNC_SET_LIST, AT(pass), AT(n_pass), 0, 0, "PASS,..."},
        "Run exactly these passes, in this order (default: those of the -O level)"},
    {FLAGS_compiling, {"-O", NNC_SET_INT, AT(compare.compile.level), 0, 0, 3, "0..3"},
        "Optimisation level. 0: each layer as written; 1: only what keeps every bit of the result; "
        "2 (default): fuse and choose layouts; 3: with --math=fast also reorder sums"},
    {FLAGS_compiling,
        {"--math", NNC_SET_CHOICE, AT(compare.compile.math), 0, MATH_exact, 0, NNC_MATH_WORDS},
        "Accuracy of math functions in generated kernels (docs/math.md). exact: <= 0.8 ulp, "
        "evaluated as written, no Winograd convolutions, NaN survives every relu; ulp2 (default): "
        "<= 2.5 ulp; fast: relative "
        "error <= 2^-15, -O3 may reorder sums, GPUs may round f32 operands of contractions to tf32 "
        "(--precision)"},
    {FLAGS_compiling,
        {"--precision", NNC_SET_CHOICE, AT(compare.compile.precision), 0, NNC_PRECISION_f32, 0,
            NNC_PRECISION_WORDS},
        "Precision of convolutions and matrix products. f32 (default); tf32 (default with "
        "--math=fast): GPUs round f32 operands to 10 bits; f16, bf16: 16-bit operands, and 16-bit "
        "tensors between them where that is safe (nnc explain lists them). Sums stay f32, inputs "
        "and outputs keep their types"},
    {FLAGS_compiling,
        {"--skip", NNC_SET_LIST, AT(compare.compile.skip), AT(compare.compile.n_skip), 0, 0,
            "PASS,..."},
        "Leave these passes out (nnc passes lists them)"},
    {FLAGS_compiling,
        {"--memory-budget", NNC_SET_TEXT, AT(compare.compile.memory_budget), 0, 0, 0, "BYTES"},
        "Training steps: recompute results of the forward pass so that a device needs at most this "
        "much memory: 800MiB, 1.5GiB, or a share of what it usually needs, 60%"},
    {FLAGS_compiling, {"--join-siblings", NNC_SET_BOOL, AT(compare.compile.join_siblings)},
        "Join independent contractions (pass siblings) even where the estimate says that this is "
        "slower; compare times both"},
    {FLAGS_planning, {"--streams", NNC_SET_INT, AT(compare.compile.streams), 0, 1, 64, "N"},
        "Command streams per device (default: 1)"},
    {FLAGS_sharing,
        {"--streams-by", NNC_SET_CHOICE, AT(compare.compile.schedule), 0, NNC_SCHEDULE_list, 0,
            NNC_SCHEDULE_WORDS},
        "How work is assigned to several --streams. list (default): any command that is ready, "
        "longest path first. ios: stages of IOS's dynamic program (inference of one model on one "
        "device)"},
    {FLAGS_planning,
        {"--devices", NNC_SET_INT, AT(compare.compile.devices), 0, 1, 65536, "N|cpu:0,cpu:1,..."},
        "Number of devices that layers may name or several models use (default: as many as "
        "--target lists; with --strategy or --split over ranks, one for each rank). Further "
        "devices equal the last target; virtual CPU devices share the machine"},
    {FLAGS_sharing, {"--batch-parts", NNC_SET_INT, AT(parts), 0, 1, 4096, "M"},
        "Number of parts of the batch that follow each other through a pipeline (default: 2 for "
        "each device)"},
    {FLAGS_sharing, {"--replicas", NNC_SET_INT, AT(replicas), 0, 1, 64, "R"},
        "Number of pipelines or device groups side by side; each has an equal part of --devices "
        "and of the batch (default: 1)"},
    {FLAGS_sharing, {"--zero", NNC_SET_INT, AT(zero), 0, 0, NNC_ZERO_MOST, NNC_ZERO_STAGES},
        "With --mode=step: ZeRO stage of the replicas. 1 shards the optimizer states, 2 also the "
        "accumulated gradients (default: 0)"},
    {FLAGS_debugging,
        {"--print-after", NNC_SET_LIST, AT(print_after), AT(n_print_after), 0, 0, "PASS,...|all"},
        "Print the graph after these passes to standard error"},
    {FLAGS_debugging, {"--time-passes", NNC_SET_BOOL, AT(time_passes)},
        "Print the time of every pass to standard error"},
    {FLAGS_planning, {"--jobs", NNC_SET_INT, AT(compare.compile.jobs), 0, 1, 1024, "N"},
        "Number of threads that compile (default: all); never changes the result"},
    {FLAGS_partition,
        {"--strategy", NNC_SET_LIST, AT(partition.strategy), AT(partition.n_strategy), 0, 0,
            "all|NAME,..."},
        "Strategies to evaluate (default: all of the mode; docs/partition.md lists them)"},
    {FLAGS_partition, {"--layers", NNC_SET_BOOL, AT(partition.layers)},
        "List the layers with their costs and the indices that --place takes"},
    {FLAGS_partition, {"--measure", NNC_SET_BOOL, AT(partition.measure)},
        "Measure the plan's commands on this machine, the median of nine runs each, instead of "
        "predicting them"},
    {FLAGS_partition, {"--run", NNC_SET_BOOL, AT(partition.run)},
        "Also run the strategies that nnc executes on this machine, in turn, and print measured "
        "times beside predicted ones; under mpirun over its ranks"},
    {FLAGS_partition, {"--duration", NNC_SET_INT, AT(partition.run_ms), 0, 1, 86400000, "MS"},
        "With --run: time to measure each strategy for, in milliseconds, at least 3 iterations "
        "(default: 2000)"},
    {FLAGS_partition,
        {"--iterations", NNC_SET_INT, AT(partition.run_iterations), 0, 1, 1000000, "N"},
        "With --run: number of timed iterations of each strategy (default: as many as fit "
        "--duration)"},
    {FLAGS_partition, {"--batches", NNC_SET_INT, AT(partition.micro), 0, 1, 65536, "N"},
        "Batches of an iteration, each as large as the model's: the microbatches of strategies "
        "(default: 4 for each device)"},
    {FLAGS_partition, {"--chunks", NNC_SET_INT, AT(partition.chunks), 0, 2, 64, "N"},
        "Stages of each device in the interleaved schedule (default: 2)"},
    {FLAGS_partition, {"--hardware", NNC_SET_TEXT, AT(env.hardware), 0, 0, 0, "FILE"},
        "Take the devices and links of this hardware file (models/hardware/*.json, "
        "docs/hardware.md) instead of --target and --link-*"},
    {FLAGS_partition, {"--simulate", NNC_SET_BOOL, AT(partition.simulate)},
        "With --hardware: also simulate the strategies that nnc executes, from their own plans"},
    {FLAGS_partition, {"--sensitivity", NNC_SET_BOOL, AT(partition.sensitivity)},
        "Also print the time of an iteration with 1/4, 1/2, 2 and 4 times the link bandwidth, each "
        "planned for it"},
    {FLAGS_partition, {"--svg", NNC_SET_TEXT, AT(partition.svg), 0, 0, 0, "FILE.svg|FOLDER"},
        "Draw a picture: time and memory of several strategies, or the Gantt chart of one; in a "
        "folder: all of these, and memory over time of what is simulated"},
    {FLAGS_partition, {"--trace", NNC_SET_TEXT, AT(partition.trace), 0, 0, 0, "FILE"},
        "Write the strategies' timelines to this file, in Chrome's trace format (Perfetto, "
        "chrome://tracing); FILE.svg: as a picture"},
    {FLAGS_partition, {"--dot", NNC_SET_TEXT, AT(partition.dot), 0, 0, 0, "FILE"},
        "Write the graph of one strategy, coloured by device, for Graphviz; FILE.svg: drawn by its "
        "program dot"},
    {FLAGS_partition,
        {"--link-gbs", NNC_SET_REAL, AT(partition.link_gbs), 0, 0, 1000000, "GB/S", true},
        "Bandwidth of the link between every pair of devices, in 10^9 bytes a second (default: "
        "10)"},
    {FLAGS_partition, {"--link-us", NNC_SET_REAL, AT(partition.link_us), 0, 0, 1000000, "US", true},
        "Latency of a link in microseconds (default: 5)"},
    {FLAGS_partition,
        {"--bucket-mb", NNC_SET_REAL, AT(partition.bucket_mb), 0, 0, 1000000, "MB", true},
        "Size of the buckets in which gradients are summed, in 10^6 bytes (default: each large "
        "weight alone, all others together, as in nnc train; auto and hybrid: 25)"},
    {FLAGS_partition, {"--overlap-slowdown", NNC_SET_REAL, AT(partition.slowdown), 0, 1, 100, "X"},
        "Factor by which computing takes longer while a collective runs (default: 1; 1.126 was "
        "measured on 8 GPUs)"},
    {FLAGS_fit, {"--fit", NNC_SET_PAIRS, AT(fit), AT(n_fit), 0, 0, "NAME=LOW..HIGH"},
        "Find the largest value of this arg of the model for which the plan fits; with a second "
        "--fit: for several values of that arg"},
    {FLAGS_fit, {"--hardware", NNC_SET_TEXT, AT(env.hardware), 0, 0, 0, "FILE"},
        "Use the devices of this hardware file (models/hardware/*.json, docs/hardware.md), less "
        "the memory that their contexts and libraries take"},
    {FLAGS_fit,
        {"--allocator", NNC_SET_CHOICE, AT(allocator), 0, ALLOCATOR_nnc, 0, "nnc|torch-caching"},
        "torch-caching, with --hardware: also print what PyTorch's caching allocator would request "
        "for the same tensors, and where it would run out of memory"},
    {FLAGS_limit, {"--memory-limit", NNC_SET_TEXT, AT(env.memory_limit), 0, 0, 0, "BYTES"},
        "Usable memory of a device: 800MiB, 1.5GiB, or a share of what it has, 60%; a plan that "
        "needs more is refused before it runs"},
    {FLAGS_calibrate, {"-o", NNC_SET_TEXT, AT(out), 0, 0, 0, "FILE"},
        "Write the hardware file to this file (default: standard output)"},
    {FLAGS_calibrate, {"--devices", NNC_SET_INT, AT(compare.compile.devices), 0, 1, 64, "N"},
        "Number of devices (default: as many as ranks; in one process as many as threads, at least "
        "2, which they share, or all GPUs with --target=cuda)"},
    {FLAGS_calibrate, {"--budget", NNC_SET_REAL, AT(calibrate.budget_s), 0, 1, 86400, "SECONDS"},
        "Approximate time for measurements (default: 25)"},
    {FLAGS_artifact, {"-o", NNC_SET_TEXT, AT(out), 0, 0, 0, "FILE"},
        "Write the artifact, or the text of --emit, to this file (default for --emit: standard "
        "output)"},
    {FLAGS_artifact, {"--emit", NNC_SET_TEXT, AT(emit), 0, 0, 0, "STAGE"},
        "Print a stage instead of writing an artifact: graph (after the passes), kernels, plan, "
        "dot (for Graphviz; coloured by device), svg (drawn by its program dot), onnx (a model, "
        "fused layers as its functions; beyond 2 GiB, weights "
        "in FILE.data), remarks (JSON); for a CPU llvm, asm; for a GPU cuda, ptx, cubin"},
    {FLAGS_artifact, {"--dump-dir", NNC_SET_TEXT, AT(dump_dir), 0, 0, 0, "FOLDER"},
        "Also write every stage to files in this folder, a GPU's sources and machine code "
        "included"},
    {FLAGS_artifact, {"--save-weights", NNC_SET_TEXT, AT(save_weights), 0, 0, 0, "FILE"},
        "Also write the model's weights by name to this file, .safetensors or .npz"},
    {FLAGS_artifact, {"--embed-weights", NNC_SET_BOOL, AT(embed)},
        "Store the weights in the artifact instead of references to them"},
    {FLAGS_picture, {"--svg", NNC_SET_TEXT, AT(svg), 0, 0, 0, "FILE"},
        "Also draw the memory of each device over estimated time"},
    {FLAGS_trace, {"--trace", NNC_SET_TEXT, AT(trace), 0, 0, 0, "FILE"},
        "Also write one measured run (in training: the second step), command by command, to this "
        "file in Chrome's trace format (Perfetto, chrome://tracing); FILE.svg: as a Gantt chart"},
    {FLAGS_trace, {"--predict", NNC_SET_TEXT, AT(predict), 0, 0, 0, "FILE"},
        "With --trace: add the simulator's prediction of the same plan on this hardware file's "
        "devices"},
    {FLAGS_inputs,
        {"--input", NNC_SET_PAIRS, AT(compare.input), AT(compare.n_input), 0, 0, "NAME=FILE"},
        "Read an input from a file: .npy; .npz or .safetensors, in which it has that name "
        "(FILE:TENSOR: another); .bin, .raw: its bytes (default: generated from the seed; "
        "repeatable, once a name)"},
    {FLAGS_inputs, {"--inputs", NNC_SET_TEXT, AT(compare.inputs), 0, 0, 0, "FILE"},
        "Read the other inputs by name from this file, .npz or .safetensors"},
    {FLAGS_outputs, {"--output", NNC_SET_PAIRS, AT(output), AT(n_output), 1, 0, "NAME=FILE"},
        "Write an output to a file, .npy, .npz, .safetensors, or .bin for its bytes (repeatable; "
        "one output may go to several files)"},
    {FLAGS_outputs, {"--outputs", NNC_SET_TEXT, AT(outputs), 0, 0, 0, "FILE"},
        "Write all outputs by name to this file, .npz or .safetensors"},
    {FLAGS_timing, {"--iterations", NNC_SET_INT, AT(compare.iterations), 0, 1, 1000000000, "N"},
        "Number of timed runs of each program (default: as many as fit --duration)"},
    {FLAGS_timing, {"--warmup", NNC_SET_INT, AT(compare.warmup), 0, 0, 1000000, "N", true},
        "Number of untimed runs before the first timed one (default: about 50 ms of them)"},
    {FLAGS_timing, {"--duration", NNC_SET_INT, AT(compare.duration_ms), 0, 1, 86400000, "MS"},
        "Time to measure each program for, in milliseconds (default: 1000; compare: a quarter of "
        "it for steps, up to 7000 for slow models)"},
    {FLAGS_timing, {"--io", NNC_SET_CHOICE, AT(compare.io), 0, 0, 0, "exclude|include|both"},
        "Time copies to and from the device? exclude (default): inputs are on the device, outputs "
        "stay there; include: each run uploads its inputs and downloads its outputs while the next "
        "one computes, and the overlap is printed; both: one after the other"},
    {FLAGS_percentile, {"--percentile", NNC_SET_REAL, AT(percentile), 0, 0, 100, "P"},
        "Also print this percentile of the times (default: 99)"},
    {FLAGS_compare, {"--no-steps", NNC_SET_UNSET, AT(compare.steps)},
        "Compare only unfused and fused, not pass by pass"},
    {FLAGS_compare, {"--no-reference", NNC_SET_BOOL, AT(compare.no_reference)},
        "Compare the programs only with each other, not with float64"},
    {FLAGS_tolerance, {"--tolerance", NNC_SET_REAL, AT(compare.tolerance), 0, 0, 1, "NMSE", true},
        "Largest nmse, the sum of squared errors over the sum of squares, at which an output "
        "counts as equal (default by type: 1e-24 f64, 1e-11 f32, 1e-6 f16, 1e-4 bf16, with "
        "--precision=tf32 or f16 1e-5, bf16 1e-3). An output beyond it is equal, too, within 16 "
        "times its simulated rounding error, or where near ties explain it"},
    {FLAGS_layers, {"--against", NNC_SET_TEXT, AT(against), 0, 0, 0, "FILE"},
        "Also compare the outputs with those of this file, .npz or .safetensors"},
    {FLAGS_layers, {"--reduce", NNC_SET_TEXT, AT(reduce), 0, 0, 0, "FILE"},
        "When a layer differs, write the smallest model found that shows it to this file, as graph "
        "text"},
    {FLAGS_onnx_tests, {"--rtol", NNC_SET_REAL, AT(rtol), 0, 0, 1, "R"},
        "Largest relative error (default: 0.001): |got - want| <= atol + rtol |want|"},
    {FLAGS_onnx_tests, {"--atol", NNC_SET_REAL, AT(atol), 0, 0, 1, "A"},
        "Largest absolute error (default: 1e-7)"},
    {FLAGS_onnx_tests, {"--reference", NNC_SET_BOOL, AT(reference)},
        "Evaluate the model in float64 instead of compiling and running it"},
    {FLAGS_machine, {"--threads", NNC_SET_INT, AT(env.threads), 0, 1, 1024, "N"},
        "Number of threads that compute (default: all)"},
    {FLAGS_machine,
        {"--target", NNC_SET_TEXT, AT(env.target), 0, 0, 0,
            "cpu|cpu:x86-64-vN|cuda|cuda:sm_NN|FILE,..."},
        "Machine to compile for: this CPU (default), this CPU with the instructions of x86-64-v2, "
        "-v3 or -v4 only (as NNC_CPU=x86-64-v3), this machine's GPU, a GPU (sm_61, 70, 75, 80, "
        "86, 89, 90, 100, 120), or a machine file as nnc devices --format=json prints it; "
        "cpu,cuda:sm_90: of device 0 and device 1"},
    {FLAGS_machine, {"--cache-dir", NNC_SET_TEXT, AT(env.cache_dir), 0, 0, 0, "DIR"},
        "Folder of compiled kernels (default: $XDG_CACHE_HOME/nnc or ~/.cache/nnc)"},
    {FLAGS_machine, {"--tuning", NNC_SET_TEXT, AT(env.tuning), 0, 0, 0, "FILE"},
        "Read the measured algorithms of a GPU's libraries from this file; they are replayed when "
        "a model is loaded"},
    {FLAGS_machine, {"--tune", NNC_SET_BOOL, AT(env.tune)},
        "Measure algorithms missing from the --tuning file and add them"},
    {FLAGS_machine, {"--no-cache", NNC_SET_BOOL, AT(env.no_cache)}, "Compile every kernel again"},
    {FLAGS_machine, {"--no-llvm", NNC_SET_BOOL, AT(env.no_llvm)},
        "Interpret kernels instead of compiling them (slow)"},
    {FLAGS_ranks, {"--comm-timeout", NNC_SET_REAL, AT(env.comm_timeout), 0, 0, 1000000, "SECONDS"},
        "Time without an answer after which another rank counts as lost and all ranks end "
        "(default: 600)"},
    {FLAGS_ranks, {"--comm", NNC_SET_CHOICE, AT(env.comm), 0, 0, 0, "auto|staged|nccl"},
        "How collectives between GPUs run: nccl, which rounds sums in another order, or staged "
        "through host memory (default: auto, NCCL where it can)"},
    {FLAGS_ranks, {"--rank", NNC_SET_INT, AT(env.rank), 0, 0, 1000000, "N", true},
        "Rank of this process, from 0 (default: from the variables of mpirun or srun)"},
    {FLAGS_ranks, {"--world", NNC_SET_INT, AT(env.world), 0, 1, 1000000, "N"},
        "Number of ranks (default: from the variables of mpirun or srun); 1: this process runs "
        "alone, whatever they say"},
    {FLAGS_hardware, {"--hardware", NNC_SET_TEXT, AT(hardware), 0, 0, 0, "FILE"},
        "Describe the machine of this hardware file (models/hardware/*.json, docs/hardware.md) "
        "instead: devices, links, bandwidths, times of collectives"},
    {FLAGS_format, {"--format", NNC_SET_CHOICE, AT(format), 0, 0, 0, "text|json|csv"},
        "Format of the report (default: text)"},
    {FLAGS_json, {"--format", NNC_SET_CHOICE, AT(format), 0, 0, 0, "text|json"},
        "Format of the report (default: text)"},
    {FLAGS_verbose, {"--verbose", NNC_SET_BOOL, AT(verbose)},
        "List what the text sums up: decisions that differ only in their layers; with "
        "--replace-head each weight that was read or generated"},
    {FLAGS_help, {"--quiet", NNC_SET_BOOL, AT(quiet)}, "Do not show progress on the terminal"},
    {FLAGS_help, {"--help", NNC_SET_BOOL, AT(help)}, "Print this text"},
};

/* Flags of this file, then those of training, which model files share: their values stand in options.train. */
enum { OWN = NNC_COUNT(own), FLAGS = OWN + NNC_TRAIN_SETTINGS };

static size_t n_flags(void)
{
    return OWN + nnc_n_train_settings;
}

static const nnc_flag *flag_at(size_t i)
{
    return i < OWN ? &own[i] : &nnc_train_settings[i - OWN];
}

static bool takes(const command *c, nnc_flag_group group)
{
    return group == FLAGS_help || c->groups >> group & 1;
}

static bool applies(const command *c, const nnc_flag *f)
{
    return takes(c, f->group);
}

static void print_flag(const nnc_flag *f, FILE *out)
{
    enum { INDENT = 32, WIDTH = 110 };
    const char *name = f->value.name, *value = f->value.expected;
    const char *between = !strcmp(name, "-O") ? "" : name[1] == '-' ? "=" : " ";
    int at = fprintf(out, "  %s%s%s", name, value ? between : "", value ? value : "");
    if (at < INDENT)
        at += fprintf(out, "%*s", INDENT - at, "");
    if (at > INDENT)
        at = fprintf(out, "\n%*s", INDENT, "") - 1;
    for (const char *p = f->doc; *p;) {
        int n = (int)strcspn(p, " ");
        if (at > INDENT && at + 1 + n > WIDTH)
            at = fprintf(out, "\n%*s", INDENT, "") - 1;
        at += fprintf(out, "%s%.*s", at > INDENT ? " " : "", n, p);
        p += n;
        p += *p == ' ';
    }
    fputc('\n', out);
}

void print_flags(const command *c, FILE *out)
{
    const char *heading = "";
    for (nnc_flag_group g = 0; g < FLAGS__COUNT; g++) {
        if (!takes(c, g))
            continue;
        if (strcmp(heading, heading_of[g]))
            fprintf(out, "\n%s:\n", heading_of[g]);
        heading = heading_of[g];
        for (size_t i = 0; i < n_flags(); i++)
            if (flag_at(i)->group == g)
                print_flag(flag_at(i), out);
    }
}

static bool is_switch(const nnc_flag *f)
{
    return f->value.kind == NNC_SET_BOOL || f->value.kind == NNC_SET_UNSET;
}

/* Accepts a flag of one value twice when both values are equal (scripts append flags); two different values are an error. */
static nnc_status check_twice(
    const nnc_flag *f, const char **before, const char *value, nnc_sink *sink)
{
    bool one_value =
        !is_switch(f) && f->value.kind != NNC_SET_LIST && f->value.kind != NNC_SET_PAIRS;
    const char *first = *before;
    if (!one_value)
        return NNC_OK;
    *before = value;
    if (!first || !strcmp(first, value))
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_USAGE, "%s is given twice, as %s and as %s: leave one out",
        f->value.name, first, value);
}

/* Refuses pairs of flags that contradict each other. */
static nnc_status check_exclusive(const options *o, nnc_sink *sink)
{
    if (o->compare.iterations && o->compare.duration_ms)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--iterations and --duration both say how long to measure: leave one out");
    if (o->env.no_cache && o->env.cache_dir)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--no-cache uses no cache, --cache-dir names one: leave one out");
    if (o->model.n_rename && !o->model.weights)
        return nnc_fail0(sink, NNC_E_USAGE, "--rename is of the tensors in --weights=FILE");
    const nnc_compile_options *c = &o->compare.compile;
    if (c->schedule == NNC_SCHEDULE_ios &&
        (c->streams < 2 || c->devices > 1 || o->mode == MODE_step || o->n_file > 1))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--streams-by=ios are stages of inference of one model on one device: it needs "
            "--streams=N of 2 or more, without --mode=step, several --devices and other models");
    if (o->predict && !o->trace)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--predict is for a measured run: it needs the file of both, --trace=FILE");
    if (o->env.tune && !o->env.tuning)
        return nnc_fail0(sink, NNC_E_USAGE, "--tune needs the file to add to: --tuning=FILE");
    if (o->mode == MODE_step && o->compare.io != NNC_IO_EXCLUDE)
        return nnc_fail0(sink, NNC_E_USAGE,
            "steps of a training are timed without copies to and from the device: leave --io out");
    if (o->parts && !nnc_is_pipeline(o->sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--batch-parts=%d divides the batch for a pipeline: it needs --strategy=pipeline",
            o->parts);
    NNC_LOCAL(nnc_text) splits = {0};
    nnc_put_strategies(&splits, nnc_is_split, " or ");
    if (o->replicas > 1 && !nnc_is_pipeline(o->sharing) && !nnc_is_split(o->sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--replicas=%d are of --strategy=pipeline, %s (data has one on each device)",
            o->replicas, nnc_text_str(&splits));
    if (o->zero && o->mode != MODE_step)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--zero=%d divides states of a training step among replicas: it needs --mode=step",
            o->zero);
    if (o->zero && o->sharing != NNC_STRATEGY_data && o->replicas < 2)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--zero=%d divides states among replicas: it needs --strategy=data, or --replicas=R",
            o->zero);
    if (o->training_flag && o->mode != MODE_step)
        return nnc_fail0(
            sink, NNC_E_USAGE, "%s is of a training step: it needs --mode=step", o->training_flag);
    return NNC_OK;
}

/* --replace-head=classes=100 */
static nnc_status read_head(options *o, nnc_sink *sink)
{
    char *end = NULL;
    if (!o->n_head)
        return NNC_OK;
    const long n = strtol(o->head->value, &end, 10);
    if (o->n_head > 1 || strcmp(o->head->name, "classes") != 0 || *end || n < 1 || n > 1000000000)
        return nnc_fail0(sink, NNC_E_USAGE, "--replace-head: expected classes=N, found `%s=%s`",
            o->head->name, o->head->value);
    o->model.classes = (int)n;
    return NNC_OK;
}

/* Finds the flag that `arg` names, and its attached value ("--set=a=1", "-O2"). */
static const nnc_flag *find_flag(const command *c, char *arg, char **value, size_t *at)
{
    size_t n = strcspn(arg, "=");
    *value = NULL;
    for (size_t i = 0; i < n_flags(); i++) {
        const nnc_flag *f = flag_at(*at = i);
        if (!applies(c, f))
            continue;
        bool one_letter = f->value.name[1] != '-';
        if (one_letter && !strncmp(f->value.name, arg, 2) && arg[2] && arg[2] != '=') {
            *value = arg + 2;
            return f;
        }
        if (strlen(f->value.name) == n && !strncmp(f->value.name, arg, n)) {
            if (arg[n] == '=')
                *value = arg + n + 1;
            return f;
        }
    }
    return NULL;
}

static nnc_status unknown(const command *c, const char *arg, nnc_sink *sink)
{
    const char *names[FLAGS];
    char word[64];
    size_t n = 0;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(arg, "="), arg);
    for (size_t i = 0; i < n_flags(); i++)
        if (applies(c, flag_at(i)))
            names[n++] = flag_at(i)->value.name;
    const char *near = nnc_nearest(word, names, n), *value = arg[strlen(word)] ? arg + 2 : NULL;
    if (!strcmp(word, "--micro-batches") && takes(c, FLAGS_partition))
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc %s: unknown flag %s; did you mean --batches?", c->name, word);
    if (!strcmp(word, "--micro-batches") && takes(c, FLAGS_sharing))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unknown flag %s, which are whole batches of nnc train; --batch-parts=M "
            "divides the batch into M parts",
            c->name, word);
    for (size_t i = 0; i < n_flags(); i++)
        if (flag_at(i)->group != FLAGS_file && !strcmp(flag_at(i)->value.name, word))
            return nnc_fail0(sink, NNC_E_USAGE,
                "nnc %s: unknown flag %s (other commands have it); nnc %s --help lists the flags",
                c->name, word, c->name);
    const char *ours = takes(c, FLAGS_training) ? nnc_train_calls(word) : NULL;
    if (ours && !strcmp(ours, "batch"))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unknown flag %s; did you mean the model's argument, --set batch=%s?", c->name,
            word, arg[strlen(word)] ? arg + strlen(word) + 1 : "N");
    if (ours)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc %s: unknown flag %s; did you mean --%s?", c->name, word, ours);
    if (value && !strncmp(arg, "--", 2) && takes(c, FLAGS_model))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unknown flag %s; did you mean %s%sthe model's argument, --set %s?", c->name,
            word, near ? near : "", near ? ", or " : "", value);
    if (near)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc %s: unknown flag %s; did you mean %s?", c->name, word, near);
    return nnc_fail0(sink, NNC_E_USAGE, "nnc %s: unknown flag %s; nnc %s --help lists the flags",
        c->name, word, c->name);
}

/* Rejects unknown passes of --print-after and unknown stages before compiling. */
static nnc_status check_names(const options *o, nnc_sink *sink)
{
    const char *stage;
    if (o->emit && !nnc_is_stage(o->emit, &stage))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--emit: unknown stage `%s`%s%s; expected graph, kernels, plan, llvm, asm, cuda, ptx, "
            "cubin, dot, svg, onnx, remarks",
            o->emit, stage ? "; did you mean " : "", stage ? stage : "");
    for (int i = 0; i < o->n_print_after; i++) {
        const char *near, *name = o->print_after[i];
        if (strcmp(name, "all") && !nnc_is_pass(name, &near))
            return nnc_fail0(sink, NNC_E_USAGE,
                near ? "--print-after: unknown pass `%s`; did you mean `%s`?"
                     : "--print-after: unknown pass `%s`; nnc passes lists them%s",
                name, near ? near : "");
    }
    return NNC_OK;
}

/* Short forms. */
static char *alias(char *arg)
{
    static char help[] = "--help", verbose[] = "--verbose";
    return !strcmp(arg, "-h") ? help : !strcmp(arg, "-v") ? verbose : arg;
}

/* Keeps flags for the commands that nnc partition prints. (nnc train does not take --grad-inputs.) */
static nnc_status keep_typed(const nnc_flag *f, const char *value, options *o, nnc_sink *sink)
{
    const uint64_t printed = NNC_FLAGS(model) | NNC_FLAGS(training) | NNC_FLAGS(compiling);
    const char *name = f->value.name, **to = &o->typed;
    NNC_LOCAL(nnc_text) t = {0};
    if (!strcmp(name, "--set") && !strncmp(value, "batch=", 6)) { /* those of a strategy differ */
        to = &o->partition.typed_batch;
    } else if (!strcmp(name, "--place")) {
        to = &o->partition.typed_place;
    } else if (printed >> f->group & 1 && strcmp(name, "--grad-inputs") != 0) {
        nnc_printf(&t, "%s %s", o->typed ? o->typed : "", name);
        if (value && strcmp(name, "-O") != 0)
            nnc_putc(&t, f->value.kind == NNC_SET_PAIRS ? ' ' : '=');
    } else {
        return NNC_OK;
    }
    if (value)
        put_word(&t, value);
    *to = nnc_arena_strdup(&o->strings, nnc_text_str(&t));
    NNC_NEED(*to && !t.oom, sink);
    return NNC_OK;
}

static bool names_file(const nnc_flag *f)
{
    static const char *const name[] = {"FILE", "DIR", "PATH", "FOLDER"};
    for (size_t i = 0; f->value.expected && i < NNC_COUNT(name); i++)
        if (!strncmp(f->value.expected, name[i], strlen(name[i])))
            return true;
    return false;
}

/* Parses the flag at argv[*i] and its value, which may be the next argument. */
static nnc_status parse_flag(const command *c, int argc, char **argv, int *i, options *o,
    const char **before, nnc_sink *sink)
{
    char *value, *arg = argv[*i];
    size_t at;
    const nnc_flag *f = find_flag(c, alias(arg), &value, &at);
    if (!f)
        return unknown(c, arg, sink);
    if (is_switch(f) && value &&
        at < OWN) /* those of training switch off what the model file says */
        return nnc_fail0(sink, NNC_E_USAGE, "%s takes no value", f->value.name);
    const bool more = *i + 1 < argc && !(names_file(f) && !strncmp(argv[*i + 1], "--", 2));
    if (!is_switch(f) && !value && more)
        value = argv[++*i];
    if (!is_switch(f) && (!value || (!*value && names_file(f))))
        return nnc_fail0(
            sink, NNC_E_USAGE, "%s needs a value: %s", f->value.name, f->value.expected);
    NNC_TRY(check_twice(f, &before[at], value, sink));
    const uint64_t of_compile = NNC_FLAGS(model) | NNC_FLAGS(place) | NNC_FLAGS(sharing) |
                                NNC_FLAGS(compiling) | NNC_FLAGS(planning) | NNC_FLAGS(debugging);
    static const char *const of_artifacts[] = {"--seed", "--weights", "--set", "--shapes"};
    bool any = false;
    for (size_t k = 0; k < NNC_COUNT(of_artifacts); k++)
        any = any || !strcmp(f->value.name, of_artifacts[k]);
    if (of_compile >> f->group & 1 && !any)
        o->compile_flag = f->value.name;
    if (f->group == FLAGS_training && takes(c, FLAGS_mode))
        o->training_flag = f->value.name;
    if (!strcmp(f->value.name, "--seed"))
        o->model.has_seed = true;
    NNC_TRY(keep_typed(f, value, o, sink));
    char count[16];
    if (!strcmp(f->value.name, "--devices")) {
        o->has_devices = true;
        if (strchr(value, ':')) {
            NNC_TRY(read_devices(o, value, count, sink));
            value = count;
        }
    }
    if (at >= OWN)
        o->train.given[at - OWN] = true;
    return nnc_setting_set(
        &f->value, "", at < OWN ? (void *)o : &o->train, value ? value : "1", &o->strings, sink);
}

static nnc_status too_many(const command *c, const char *arg, nnc_sink *sink)
{
    if (takes(c, FLAGS_model) && strchr(arg, '='))
        return nnc_fail0(sink, NNC_E_USAGE,
            "nnc %s: unexpected argument `%s` (it takes %s); did you mean --set %s?", c->name, arg,
            c->args, arg);
    return nnc_fail0(sink, NNC_E_USAGE, "nnc %s: unexpected argument `%s` (it takes %s)", c->name,
        arg, *c->args ? c->args : "none");
}

nnc_status parse_flags(
    const command *c, int argc, char **argv, int first, options *o, nnc_sink *sink)
{
    const char *before[FLAGS] = {NULL}; /* previous value of each flag */
    bool only_files = false;
    o->no_machine = !takes(c, FLAGS_machine);
    for (int i = first; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_files && arg[0] == '-' && arg[1]) {
            if (!strcmp(arg, "--"))
                only_files = true;
            else
                NNC_TRY(parse_flag(c, argc, argv, &i, o, before, sink));
            continue;
        }
        const bool setting = o->n_file && strchr(arg, '=') && access(arg, F_OK) != 0;
        if (o->n_file == c->max_files || setting)
            return too_many(c, arg, sink);
        o->file[o->n_file++] = arg;
    }
    if (o->help)
        return NNC_OK;
    if (o->n_file < c->min_files)
        return nnc_fail0(sink, NNC_E_USAGE, "nnc %s needs %s; nnc %s --help explains", c->name,
            c->args, c->name);
    NNC_TRY(use_devices(o, sink));
    if (nnc_is_split(o->sharing))
        o->compare.compile.strategy = nnc_strategy_names[o->sharing];
    NNC_TRY(check_exclusive(o, sink));
    NNC_TRY(read_head(o, sink));
    return check_names(o, sink);
}
