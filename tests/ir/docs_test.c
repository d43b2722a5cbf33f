/* tests/ir/docs_test.c -- docs/ops.md is made from the tables; the committed file must be current.
 * With NNC_BLESS=1 in the environment it is written instead. */
#include "help.h"

#include <stdlib.h>
#include <string.h>

#define FILE_NAME "docs/ops.md"

static const char *const class_title[] = {"Leaves", "Elementwise", "Elementwise, with a lowering",
    "Reductions", "Movement", "Windows", "Contractions", "Named ops with reductions",
    "In order along an axis", "Collectives", "Regions"};

/* Breaks a text at spaces, into lines of at most 136 columns; further lines begin with `indent`. */
static void put_wrapped(nnc_text *t, const char *text, const char *indent)
{
    size_t column = 0;
    for (size_t n; *text; text += n, text += *text == ' ') {
        n = strcspn(text, " ");
        bool fits = column + 1 + n <= 136;
        if (column)
            nnc_printf(t, "%s", fits ? " " : "\n");
        if (column && !fits)
            nnc_puts(t, indent);
        nnc_putn(t, text, n);
        column = column && fits ? column + 1 + n : n + (column ? strlen(indent) : 0);
    }
    nnc_puts(t, "\n");
}

/* A paragraph that lists the ops with a flag. */
static void put_list(nnc_text *t, const char *title, uint32_t flag)
{
    NNC_LOCAL(nnc_text) line = {0};
    nnc_printf(&line, "%s:", title);
    for (int i = 0; i < OP__COUNT; i++)
        if (nnc_ops[i].flags & flag)
            nnc_printf(&line, " `%s`", nnc_ops[i].name);
    nnc_puts(t, "\n");
    put_wrapped(t, nnc_text_str(&line), "");
}

static void put_attrs(nnc_text *t)
{
    static const char *const kind[] = {"integer", "number", "integers", "bool", "dtype", "word"};
    nnc_puts(t, "\n## Attributes\n\n");
    for (int i = 0; i < AT__COUNT; i++) {
        NNC_LOCAL(nnc_text) line = {0};
        nnc_printf(&line, "* `%s` (%s)%s%s", nnc_attrs[i].name, kind[nnc_attrs[i].kind],
            *nnc_attrs[i].doc ? ": " : "", nnc_attrs[i].doc);
        put_wrapped(t, nnc_text_str(&line), "  ");
    }
}

/* Cells must not hold the column mark. */
static void put_cell(nnc_text *t, const char *s)
{
    for (; *s; s++)
        nnc_puts(t, *s == '|' ? "\\|" : (char[]){*s, 0});
}

/* A table for each class. Those of elementwise ops have only the right sides of their formulas, "y = a + b". */
static void put_ops(nnc_text *t)
{
    for (int cls = 0; cls <= CL_fused; cls++) {
        const bool formulas = cls == CL_ewise || cls == CL_ecomp;
        nnc_printf(
            t, "\n## %s\n\n| op | %s |\n|---|---|\n", class_title[cls], formulas ? "y" : "result");
        for (int i = 0; i < OP__COUNT; i++) {
            const nnc_op_info *o = &nnc_ops[i];
            if ((int)o->cls != cls)
                continue;
            nnc_printf(t, *o->attrs ? "| `%s {%s}` | " : "| `%s` | ", o->name, o->attrs);
            put_cell(t, o->doc + (formulas ? strlen("y = ") : 0));
            nnc_puts(t, " |\n");
        }
    }
}

static const char head[] =
    "# Ops\n\nThe ops of the graph IR ([graph-ir.md](graph-ir.md)) and their attributes. `nnc ops` "
    "also prints how many operands each has.\n\n"
    "Attributes stand in braces; one with `?` may be left out. This page is made from "
    "`src/ir/ops.def` and "
    "`attrs.def`\n(`NNC_BLESS=1 test_ir docs`). `ops.def` also holds the facts that passes use "
    "(ranges, monotony, what keeps NaN).\nThe scalar ops of kernels, with their derivatives and "
    "CUDA C, are rows of `scalar.def`.\n";

static void put_tables(nnc_text *t)
{
    nnc_puts(t, head);
    put_ops(t);
    nnc_puts(t, "\n## Types\n");
    put_list(t, "Operands must be floats", OF_float);
    put_list(t, "Operands must be integers", OF_int);
    put_list(t, "The result is bool", OF_bool);
    put_list(t, "16 bits suffice ([gpu-libraries.md](gpu-libraries.md))", OF_half);
    put_attrs(t);
}

TEST(docs_ops_current)
{
    nnc_text t = {0};
    char *have = NULL;
    size_t n = 0;
    put_tables(&t);
    if (getenv("NNC_BLESS"))
        CHECK_OK(nnc_file_write(FILE_NAME, nnc_text_str(&t), t.n, false, test_sink));
    if (nnc_file_read(FILE_NAME, 0, &have, &n, test_sink) != NNC_OK)
        test_fail(__FILE__, __LINE__, FILE_NAME " is missing (tests run in the repository's root)");
    else if (n != t.n || memcmp(have, nnc_text_str(&t), n))
        test_fail(__FILE__, __LINE__, FILE_NAME " is not current: run NNC_BLESS=1 test_ir docs");
    nnc_free(have);
    nnc_text_deinit(&t);
}
