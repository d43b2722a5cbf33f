/* cli/paths.c -- rejects files that a command would write although it reads them, would write twice, or whose ending is another
 * format's. */
#include "cli/cli.h"
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct named {
    const char *flag, *path;
    const char *formats; /* the endings of what is written, "json svg"; NULL: any */
} named;

static bool is_stdio(const char *path)
{
    return !strcmp(path, "-");
}

/* True when both are the same file. A file that does not exist yet is identified by its folder and name. Pipes and devices never
 * match. */
static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    bool there = stat(a, &x) == 0;
    if (there != (stat(b, &y) == 0) || is_stdio(a) || is_stdio(b))
        return false;
    if (there)
        return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    const char *const path[] = {a, b};
    char full[2][PATH_MAX];
    const char *base[2];
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(path[i], '/');
        char dir[PATH_MAX];
        base[i] = slash ? slash + 1 : path[i];
        snprintf(
            dir, sizeof dir, "%.*s", slash ? (int)(slash - path[i]) + 1 : 1, slash ? path[i] : ".");
        if (!realpath(dir, full[i]))
            return false;
    }
    return !strcmp(full[0], full[1]) && !strcmp(base[0], base[1]);
}

/* True when --dump-dir would write this file. */
static bool is_dumped(const char *dir, const char *path)
{
    static const char *const names[] = {"graph.txt", "plan.txt", "kernels.txt", "remarks.json",
        "kernels.ll", "kernels.s", "code.txt", "unit*.cu", "unit*.ptx", "unit*.cubin"};
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char there[PATH_MAX];
    snprintf(there, sizeof there, "%s/%s", dir, base);
    for (size_t i = 0; i < NNC_COUNT(names); i++)
        if (!fnmatch(names[i], base, 0))
            return same_file(there, path);
    return false;
}

/* Only -o goes to standard output: with the others the command prints its report there. */
static nnc_status not_stdout(const char *flag, const char *of, const char *path, nnc_sink *sink)
{
    return is_stdio(path)
               ? nnc_fail0(sink, NNC_E_USAGE, "%s%s%s=-: standard output has the report; name a %s",
                     flag, *of ? " " : "", of, strcmp(flag, "--dump-dir") ? "file" : "folder")
               : NNC_OK;
}

/* True when the blank-separated words have this one. */
static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

/* Rejects the ending of another format, for which a program that opens the file would take it. */
static nnc_status check_ending(const named *out, nnc_sink *sink)
{
    static const char known[] =
        "bmp csv cu cubin dot eps gif gz html jpeg jpg json ll nnc npy npz onnx pdf png ps ptx "
        "s safetensors svg webp xml zip";
    const char *slash = strrchr(out->path, '/'), *dot = strrchr(slash ? slash : out->path, '.');
    if (!out->formats || !dot || !dot[1] || !has_word(known, dot + 1) ||
        has_word(out->formats, dot + 1))
        return NNC_OK;
    const char *second = strchr(out->formats, ' ');
    return nnc_fail0(sink, NNC_E_USAGE, "%s writes no %s files: end the name of %s in .%.*s%s%s",
        out->flag, dot, out->path, (int)strcspn(out->formats, " "), out->formats,
        second ? " or ." : "", second ? second + 1 : "");
}

/* Endings of what --emit=STAGE writes; NULL: no such stage. */
static const char *emits(const char *stage)
{
    static const char *const of[][2] = {{"graph", "txt nnc"}, {"kernels", "txt nnc"},
        {"plan", "txt nnc"}, {"dot", "dot"}, {"svg", "svg"}, {"onnx", "onnx"}, {"remarks", "json"},
        {"llvm", "ll txt"}, {"asm", "s txt"}, {"cuda", "cu txt"}, {"ptx", "ptx txt"},
        {"cubin", "cubin"}};
    for (size_t i = 0; i < NNC_COUNT(of); i++)
        if (!strcmp(of[i][0], stage))
            return of[i][1];
    return NULL;
}

static nnc_status check_output(const named *in, int n_in, const named *out, int k, nnc_sink *sink)
{
    for (int i = 0; i < n_in; i++)
        if (same_file(in[i].path, out[k].path))
            return nnc_fail0(sink, NNC_E_USAGE, "%s %s would overwrite %s%s%s: name another file",
                out[k].flag, out[k].path, in[i].flag, *in[i].flag ? " " : "", in[i].path);
    for (int i = 0; i < k; i++)
        if (same_file(out[i].path, out[k].path))
            return nnc_fail0(sink, NNC_E_USAGE,
                "%s %s and %s %s are the same file: name another for one of them", out[i].flag,
                out[i].path, out[k].flag, out[k].path);
    return check_ending(&out[k], sink);
}

nnc_status check_paths(options *o, nnc_sink *sink)
{
    const int n_inputs = o->compare.n_input;
    const nnc_arg *input = o->compare.input;
    const named others[] = {{"--hardware", o->env.hardware, NULL}, {"--predict", o->predict, NULL},
        {"--against", o->against, NULL}, {"--weights", o->model.weights, NULL},
        {"--target", o->env.target, NULL}, {"--tuning", o->env.tuning, NULL},
        {"--inputs", o->compare.inputs, NULL}, {"--data", o->train.data.path, NULL},
        {"--labels", o->train.data.labels, NULL},
        {"--validation-data", o->train.data.validation_path, NULL},
        {"--validation-labels", o->train.data.validation_labels, NULL}};
    const char *const emitted = !o->n_file ? "json" /* nnc calibrate */
                                : !o->emit ? "nnc"
                                           : emits(o->emit);
    const named writes[] = {{"--svg", o->svg, "svg"}, {"--svg", o->partition.svg, "svg"},
        {"--trace", o->trace, "json svg"}, {"--trace", o->partition.trace, "json svg"},
        {"-o", o->sweep.file, "json"}, {"--html", o->html, "html"}, {"--json", o->json, "json"},
        {"--dot", o->partition.dot, "dot svg"}, {"-o", o->out, emitted},
        {"--outputs", o->outputs, NULL}, {"--save-weights", o->save_weights, NULL},
        {"--reduce", o->reduce, "txt"}, {"--save", o->train.save, NULL},
        {"--log", o->train.log, "json"}, {"--checkpoint", o->train.checkpoint, NULL}};
    named *in = ARENA_NEW(&o->strings, named, o->n_file + n_inputs + (int)NNC_COUNT(others));
    named *out = ARENA_NEW(&o->strings, named, o->n_output + (int)NNC_COUNT(writes));
    int n_in = 0, n_out = 0, n_stdin = 0;
    NNC_NEED(in && out, sink);
    for (int i = 0; i < o->n_file; i++)
        in[n_in++] = (named){.flag = "", .path = o->file[i]};
    for (int i = 0; i < n_inputs; i++)
        in[n_in++] = (named){.flag = "--input", .path = input[i].value};
    for (size_t i = 0; i < NNC_COUNT(others); i++)
        if (others[i].path)
            in[n_in++] = others[i];
    for (size_t i = 0; i < NNC_COUNT(writes); i++)
        if (writes[i].path) {
            if (writes[i].path != o->out)
                NNC_TRY(not_stdout(writes[i].flag, "", writes[i].path, sink));
            out[n_out++] = writes[i];
        }
    for (int i = 0; i < o->n_output; i++) {
        NNC_TRY(not_stdout("--output", o->output[i].name, o->output[i].value, sink));
        out[n_out++] = (named){.flag = "--output", .path = o->output[i].value};
    }
    if (o->dump_dir)
        NNC_TRY(not_stdout("--dump-dir", "", o->dump_dir, sink));
    for (int i = 0; i < n_in; i++)
        n_stdin += is_stdio(in[i].path);
    if (n_stdin > 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "- (standard input) is given %d times, but can be read only once", n_stdin);
    for (int i = 0; i < n_out; i++)
        NNC_TRY(check_output(in, n_in, out, i, sink));
    for (int i = 0; o->dump_dir && i < n_in; i++)
        if (is_dumped(o->dump_dir, in[i].path))
            return nnc_fail0(sink, NNC_E_USAGE,
                "--dump-dir %s would overwrite %s: name another folder", o->dump_dir, in[i].path);
    if (o->dump_dir && o->out && is_dumped(o->dump_dir, o->out))
        return nnc_fail0(
            sink, NNC_E_USAGE, "-o %s is one of the files of --dump-dir: name another", o->out);
    return NNC_OK;
}
