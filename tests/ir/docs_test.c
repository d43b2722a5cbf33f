/* tests/ir/docs_test.c -- docs/ops.md is made from the tables; the committed file must be current.
 * With NNC_BLESS=1 in the environment it is written instead. */
#include "help.h"

#include <stdlib.h>

#define FILE_NAME "docs/ops.md"

static const char *const class_title[] = {"Leaves", "Elementwise", "Elementwise, with a lowering",
    "Reductions", "Movement", "Windows", "Contractions", "Named ops with reductions",
    "In order along an axis", "Collectives", "Regions"};

static void put_flags(nnc_text *t, uint32_t flags)
{
    static const struct {
        uint32_t flag;
        const char *word;
    } words[] = {{OF_comm, "commutative"}, {OF_assoc, "associative"}, {OF_nondec, "non-decreasing"},
        {OF_zero, "f(0)=0"}, {OF_nan, "keeps NaN"}, {OF_idem, "f(f(x))=f(x)"},
        {OF_invol, "f(f(x))=x"}, {OF_sign, "odd"}, {OF_float, "floats only"},
        {OF_int, "integers only"}, {OF_bool, "gives bool"}, {OF_exact, "no rounding"},
        {OF_half, "16 bits suffice"}, {OF_slow, "costs like exp"}, {OF_relu, "like relu"}};
    bool first = true;
    for (size_t i = 0; i < NNC_COUNT(words); i++)
        if (flags & words[i].flag) {
            nnc_printf(t, "%s%s", first ? "" : ", ", words[i].word);
            first = false;
        }
}

/* Cells must not hold the column mark. */
static void put_cell(nnc_text *t, const char *s)
{
    for (; *s; s++)
        nnc_puts(t, *s == '|' ? "\\|" : (char[]){*s, 0});
}

static void put_range(nnc_text *t, double lo, double hi)
{
    nnc_putc(t, '[');
    nnc_put_double(t, lo);
    nnc_puts(t, ", ");
    nnc_put_double(t, hi);
    nnc_putc(t, ']');
}

static void put_ops(nnc_text *t)
{
    for (int cls = 0; cls <= CL_fused; cls++) {
        nnc_printf(t,
            "\n## %s\n\n| op | operands | attributes | result | facts | range "
            "|\n|---|---|---|---|---|---|\n",
            class_title[cls]);
        for (int i = 0; i < OP__COUNT; i++) {
            const nnc_op_info *o = &nnc_ops[i];
            if ((int)o->cls != cls)
                continue;
            nnc_printf(t, "| `%s` | ", o->name);
            if (o->n_max < 0)
                nnc_printf(t, "%d or more", o->n_min);
            else if (o->n_max > o->n_min)
                nnc_printf(t, "%d to %d", o->n_min, o->n_max);
            else
                nnc_printf(t, "%d", o->n_min);
            nnc_printf(t, " | %s | ", o->attrs);
            put_cell(t, o->doc);
            nnc_puts(t, " | ");
            put_flags(t, o->flags);
            nnc_puts(t, " | ");
            put_range(t, o->lo, o->hi);
            nnc_puts(t, " |\n");
        }
    }
}

static void put_tables(nnc_text *t)
{
    static const char *const kind[] = {
        "integer", "number", "integers", "0 or 1", "element type", "word"};
    nnc_puts(t, "# Ops\n\nMade from `src/ir/ops.def`, `attrs.def` and `scalar.def` (`NNC_BLESS=1 "
                "test_ir docs`). "
                "The text form is described in [graph-ir.md](graph-ir.md).\n\nAn attribute with "
                "`?` may be left out. "
                "The range holds for all operands that are not NaN.\n");
    put_ops(t);
    nnc_puts(t, "\n## Attributes\n\n| attribute | kind | meaning |\n|---|---|---|\n");
    for (int i = 0; i < AT__COUNT; i++) {
        nnc_printf(t, "| `%s` | %s | ", nnc_attrs[i].name, kind[nnc_attrs[i].kind]);
        put_cell(t, nnc_attrs[i].doc);
        nnc_puts(t, " |\n");
    }
    nnc_puts(t, "\n## Scalar ops of kernels\n\n| op | operands | CUDA C | derivative | note "
                "|\n|---|---|---|---|---|\n");
    for (int i = 0; i < SC__COUNT; i++) {
        nnc_printf(t, "| `%s` | %d | `", nnc_sops[i].name, nnc_sops[i].arity);
        put_cell(t, nnc_sops[i].cuda);
        nnc_puts(t, "` | ");
        put_cell(t, nnc_sops[i].deriv);
        nnc_puts(t, " | ");
        put_cell(t, nnc_sops[i].doc);
        nnc_puts(t, " |\n");
    }
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
