/* cli/help.c -- what the program says about itself: --help, and the same as manual pages. Both print the tables of commands and flags. */
#include "cli/cli.h"
#include <ctype.h>
#include <string.h>

#define MODEL_HELP \
    "MODEL is a model file (.json, docs/model.md; .onnx, docs/onnx.md) or graph text " \
    "(docs/graph-ir.md); - is standard input.\n"
#define ARTIFACT_HELP "ARTIFACT is a file made by nnc compile -o.\n"
#define SEVERAL_HELP \
    "Several models are one run, each called by its file: --set NAME.batch=8, --output " \
    "NAME.prob=FILE (docs/partition.md).\n"
#define EXIT_HELP \
    "exit codes: 0 done, 1 compared and differs, 2 usage, 3 model rejected, 4 does not fit, 5 " \
    "device, library or file\n" \
    "missing or failed, 6 a peer lost, 70 bug in nnc\n"

#define USAGE_HELP \
    "nnc COMMAND --help lists a command's flags and examples; nnc --version the version.\n" \
    "A flag that is given twice with different values is an error.\n" \
    "Data goes to standard output, messages to standard error.\n" \
    "NNC_CPU=x86-64-v2, -v3 or -v4 in the environment: use no newer instructions than this " \
    "level's (docs/hardware.md).\n"
#define SUMMARY "compiles neural networks to fused kernels and runs them"

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
    [FLAGS_profile] = "profiling",
    [FLAGS_sweep] = "sweeping",
    [FLAGS_report] = "reporting",
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
    [FLAGS_both] = "printing",
    [FLAGS_verbose] = "printing",
    [FLAGS_help] = "all commands",
};

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

static void print_flags(const command *c, FILE *out, void (*print)(const nnc_flag *, FILE *),
    const char *heading_format)
{
    const char *heading = "";
    const nnc_flag *f;
    for (nnc_flag_group g = 0; g < FLAGS__COUNT; g++)
        for (size_t i = 0; (f = next_flag(c, &i));)
            if (f->group == g) {
                if (strcmp(heading, heading_of[g]))
                    fprintf(out, heading_format, heading_of[g]);
                heading = heading_of[g];
                print(f, out);
            }
}

void print_usage(FILE *out)
{
    fputs("nnc: " SUMMARY "\n\nusage: nnc COMMAND [FILE] [flags]\n\n", out);
    for (int i = 0; i < n_commands; i++)
        fprintf(out, "  %-10s%-22s %s\n", commands[i].name, commands[i].args, commands[i].doc);
    fputs("\n" USAGE_HELP "\n" MODEL_HELP ARTIFACT_HELP EXIT_HELP, out);
}

void print_help(const command *c)
{
    printf("nnc %s%s%s [flags]: %s\n", c->name, *c->args ? " " : "", c->args, c->doc);
    if (*c->args)
        fputs("\n" MODEL_HELP, stdout);
    if (strstr(c->args, "ARTIFACT"))
        fputs(ARTIFACT_HELP, stdout);
    if (strstr(c->args, "..."))
        fputs(SEVERAL_HELP, stdout);
    print_flags(c, stdout, print_flag, "\n%s:\n");
    fputs("\nA flag may come twice only with the same value; repeatable ones and lists add up.\n",
        stdout);
    if (c->more)
        printf("\n%s", c->more);
}

/* ---- manual pages (man(7)) -------------------------------------------------------------------- */

/* As one line, or where `wrap` is set with line ends between words, which roff fills again. */
static void put_roff(FILE *out, const char *s, size_t n, bool wrap)
{
    enum { WIDTH = 50 };
    static const char plain[] = "-\\'`^~", *const name[] = {"-", "e", "(aq", "(ga", "(ha", "(ti"};
    const char *line = s; /* begin of the output line */
    for (const char *p = s; p < s + n; p++) {
        const char *special = strchr(plain, *p);
        if (wrap && *p == ' ' && p - line > WIDTH) {
            line = p + 1;
            fputc('\n', out);
        } else if (special) {
            fprintf(out, "\\%s", name[special - plain]);
        } else {
            fprintf(out, "%s%c", *p == '.' && p == line ? "\\&" : "", *p);
        }
    }
}

static void man_flag(const nnc_flag *f, FILE *out)
{
    const char *name = f->value.name, *value = f->value.expected;
    fputs(".TP\n\\fB", out);
    put_roff(out, name, strlen(name), false);
    fputs("\\fR", out);
    if (value) {
        fprintf(out, "%s\\fI", !strcmp(name, "-O") ? "" : name[1] == '-' ? "=" : " ");
        put_roff(out, value, strlen(value), false);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    put_roff(out, f->doc, strlen(f->doc), true);
    fputc('\n', out);
}

/* Paragraphs of help text. Lines after "examples:" are commands, shown as they are. */
static void man_text(FILE *out, const char *text)
{
    bool code = false;
    for (const char *line = text; line && *line; line += *line == '\n') {
        const size_t n = strcspn(line, "\n");
        if (!strncmp(line, "example", 7)) {
            fputs(".SH EXAMPLES\n.EX\n", out);
            code = true;
        } else if (n) {
            put_roff(out, line, n, !code);
            fputc('\n', out);
        } else if (line[1] && strncmp(line + 1, "example", 7) != 0) {
            fputs(".PP\n", out);
        }
        line += n;
    }
    fputs(code ? ".EE\n" : "", out);
}

/* Opens FOLDER/nnc[-COMMAND].1 and prints its head. */
static FILE *man_open(const char *folder, const command *c, const char *date)
{
    NNC_LOCAL(nnc_text) path = {0};
    const char *dash = c ? "-" : "", *name = c ? c->name : "";
    nnc_printf(&path, "%s/nnc%s%s.1", folder, dash, name);
    FILE *out = path.oom ? NULL : fopen(nnc_text_str(&path), "w");
    if (!out)
        return perror(nnc_text_str(&path)), NULL;
    fprintf(out, ".TH NNC%s", dash);
    for (const char *p = name; *p; p++)
        fputc(toupper((unsigned char)*p), out);
    fprintf(out, " 1 %s \"nnc " NNC_VERSION "\"\n.ad l\n.SH NAME\nnnc%s%s \\- ", date,
        c ? "\\-" : "", name);
    man_text(out, c ? c->doc : SUMMARY);
    fprintf(out, ".SH SYNOPSIS\n\\fBnnc%s%s\\fR \\fI%s\\fR [flags]\n.SH DESCRIPTION\n",
        c ? " " : "", name, c ? c->args : "COMMAND [FILE]");
    return out;
}

static bool man_close(FILE *out)
{
    const bool lost = ferror(out);
    return fclose(out) == 0 && !lost;
}

static bool man_of_command(const char *folder, const command *c, const char *date)
{
    FILE *out = man_open(folder, c, date);
    if (!out)
        return false;
    man_text(out, *c->args ? MODEL_HELP : "It takes no files.\n");
    man_text(out, strstr(c->args, "ARTIFACT") ? ARTIFACT_HELP : "");
    man_text(out, strstr(c->args, "...") ? SEVERAL_HELP : "");
    const char *example = c->more ? strstr(c->more, "example") : NULL;
    NNC_LOCAL(nnc_text) more = {0};
    if (c->more)
        nnc_putn(&more, c->more, example ? (size_t)(example - c->more) : strlen(c->more));
    fputs(more.n ? ".PP\n" : "", out);
    man_text(out, nnc_text_str(&more));
    fputs(".SH OPTIONS\n", out);
    print_flags(c, out, man_flag, ".SS %s\n");
    man_text(out, example);
    fputs(".SH SEE ALSO\n\\fBnnc\\fR(1)\n", out);
    return man_close(out) && !more.oom;
}

bool write_manual(const char *folder, const char *date)
{
    FILE *out = man_open(folder, NULL, date);
    bool all = out;
    if (!out)
        return false;
    man_text(out, USAGE_HELP "\n" MODEL_HELP ARTIFACT_HELP);
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; i < n_commands; i++) {
        const command *c = &commands[i];
        fprintf(out, ".TP\n\\fBnnc\\-%s\\fR(1) \\fI%s\\fR\n", c->name, c->args);
        man_text(out, c->doc);
        all = man_of_command(folder, c, date) && all;
    }
    fputs(".SH EXIT STATUS\n", out);
    man_text(out, EXIT_HELP);
    return man_close(out) && all;
}
