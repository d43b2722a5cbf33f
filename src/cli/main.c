/* cli/main.c -- the program: finds the command, parses its flags, runs it, prints diagnostics, chooses the exit code. */
#include "cli/cli.h"
#include <string.h>

#define MODEL_HELP \
    "MODEL is a .json model file, a text graph, or an artifact of nnc compile where that makes " \
    "sense; - is standard input.\n"

const command commands[] = {
    {"compile", "MODEL", "compile to an artifact, or print a stage of the compile", "mceafh", 1, 1,
        cmd_compile,
        "examples:\n  nnc compile models/vgg16.json -o vgg16.nnc\n  nnc compile "
        "models/softmax.json --emit=kernels\n"},
    {"run", "MODEL|ARTIFACT", "run and time a model; write its outputs", "mcetrfh", 1, 1, cmd_run,
        "example:\n  nnc run models/mlp.json --set batch=8 --input x=a.npy --output y=b.npy\n"},
    {"compare", "MODEL",
        "fused against unfused against float64: numbers, time, what each pass gave", "mcetxfh", 1,
        1, cmd_compare,
        "Unfused is the same -O level without the fusion passes: layout and libraries are equal on "
        "both sides.\nExit code 1 when the numbers differ.\n"
        "example:\n  nnc compare models/vgg16.json --set batch=8\n"},
    {"explain", "MODEL|ARTIFACT", "every decision of the passes and its reason", "mcefh", 1, 1,
        cmd_explain, NULL},
    {"memory", "MODEL|ARTIFACT",
        "peak memory and its timeline, before running; exit code 4 when it does not fit", "mcefh",
        1, 1, cmd_memory, NULL},
    {"show", "MODEL", "layers, shapes, parameters, FLOPs", "mfh", 1, 1, cmd_show, NULL},
    {"check", "MODEL", "is the file right? (exit code 3 when not)", "mh", 1, 1, cmd_check, NULL},
    {"opt", "FILE", "graph text (or model) in, graph text out, after some passes", "mceoh", 1, 1,
        cmd_opt, "example:\n  nnc opt graph.nnc --passes=algebra,cse\n"},
    {"ops", "", "the ops of the graph IR", "fh", 0, 0, cmd_ops, NULL},
    {"passes", "", "the passes, in the order in which they run", "fh", 0, 0, cmd_passes, NULL},
    {"devices", "", "this machine as nnc sees it", "efh", 0, 0, cmd_devices, NULL},
    {"doctor", "", "which optional parts are present, and what their absence costs", "efh", 0, 0,
        cmd_doctor, NULL},
};
const int n_commands = NNC_COUNT(commands);

static void usage(FILE *out)
{
    fputs("nnc: compiles neural networks to fused kernels and runs them\n\nusage: nnc COMMAND "
          "[FILE] [flags]\n\n",
        out);
    for (int i = 0; i < n_commands; i++)
        fprintf(out, "  %-9s%-15s %s\n", commands[i].name, commands[i].args, commands[i].doc);
    fputs("\nnnc COMMAND --help lists a command's flags.  " MODEL_HELP
          "exit codes: 0 done, 1 compared and differs, 2 usage, 3 model rejected, 4 does not fit, "
          "5 device, library or file\n"
          "missing or failed, 6 a peer lost, 70 bug in nnc\n",
        out);
}

static void help(const command *c)
{
    printf("nnc %s %s -- %s\n\n", c->name, c->args, c->doc);
    print_flags(c, stdout);
    if (*c->args)
        fputs("\n" MODEL_HELP, stdout);
    if (c->more)
        printf("\n%s", c->more);
}

static const command *find_command(const char *name)
{
    for (int i = 0; i < n_commands; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[32];
    for (int i = 0; i < n_commands; i++)
        names[i] = commands[i].name;
    const char *near = nnc_nearest(name, names, (size_t)n_commands);
    fprintf(stderr, "nnc: `%s` is no command", name);
    fprintf(
        stderr, near ? "; did you mean %s?\n" : "; nnc --help lists them%s\n", near ? near : "");
    return nnc_exit_code(NNC_E_USAGE);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        const command *c = argc > 2 ? find_command(argv[2]) : NULL;
        c ? help(c) : usage(argc > 1 ? stdout : stderr);
        return argc > 1 ? 0 : nnc_exit_code(NNC_E_USAGE);
    }
    if (!strcmp(name, "--version")) {
        puts("nnc " NNC_VERSION);
        return 0;
    }
    const command *c = find_command(name);
    if (!c)
        return unknown(name);
    options o = {.level = 2};
    nnc_sink *sink = nnc_sink_create();
    if (!sink) {
        fputs("nnc: error: out of host memory\n", stderr);
        return nnc_exit_code(NNC_E_NOMEM);
    }
    nnc_status st = parse_flags(c, argc, argv, 2, &o, sink);
    if (!st && o.help)
        help(c);
    else if (!st)
        st = c->run(&o, sink);
    progress_end();
    nnc_sink_print(sink, stderr);
    if (st && !nnc_sink_errors(sink) && st != NNC_E_DIFFERS && st != NNC_E_FIT)
        fprintf(stderr, "nnc: error: %s\n", nnc_status_name(st));
    nnc_sink_destroy(sink);
    return nnc_exit_code(st);
}
