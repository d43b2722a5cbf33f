/* codegen/cuda_formula.c -- math functions as CUDA C: each formula (math/formula.h) that a kernel uses becomes a function. */
#include "codegen/cuda.h"

enum { LINE = 96 }; /* longer expressions are split into named values */

static const nnc_machine gpu = {.fma = true, .gpu = true};

typedef struct writer {
    const nnc_formula *f;
    nnc_text expr[NNC_FSTEPS];
    int uses[NNC_FSTEPS];
    bool arm
        [NNC_FSTEPS]; /* operand of a select, with a name of its own: inside the select it would become a branch */
    bool early[NNC_FSTEPS]; /* used before the branch that ends the function */
    bool named[NNC_FSTEPS]; /* declared as v<step> */
} writer;

static const char *c_type(int t)
{
    static const char *const names[] = {[FT_bool] = "bool",
        [FT_f32] = "float",
        [FT_f64] = "double",
        [FT_i32] = "unsigned",
        [FT_i64] = "unsigned long long"};
    return names[t];
}

static void put_number(nnc_text *t, const nnc_fstep *s)
{
    cu c = {.t = t};
    if (s->type == FT_f32 || s->type == FT_f64)
        cu_number(&c, s->type == FT_f32 ? DT_f32 : DT_f64, s->f, 0);
    else
        nnc_printf(t, s->i >= 0 && s->i < 100 ? "%llu%s" : "0x%llx%s", (unsigned long long)s->i,
            s->type == FT_i64 ? "ull" : "u");
}

/* bare: no parentheses needed around an operator. */
static void operand(const writer *w, nnc_text *t, int id, bool bare)
{
    const nnc_fstep *s = &w->f->step[id];
    if (s->op == FO_arg)
        nnc_puts(t, s->n ? "y" : "x");
    else if (s->op == FO_num)
        put_number(t, s);
    else if (w->named[id])
        nnc_printf(t, "v%d", id);
    else
        nnc_printf(t, bare ? "%s" : "(%s)", nnc_text_str(&w->expr[id]));
}

static void from_template(const writer *w, nnc_text *t, const nnc_fstep *s, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p != '%') {
            nnc_putc(t, *p);
            continue;
        }
        char before = p > text ? p[-1] : ' ', after = p[2];
        bool after_comma = p > text + 1 && p[-1] == ' ' && p[-2] == ',';
        operand(w, t, s->arg[*++p - '0'],
            (before == '(' || after_comma) && (after == ')' || after == ','));
    }
}

static void expression(const writer *w, nnc_text *t, const nnc_fstep *s)
{
    char name[64];
    switch (s->op) {
    case FO_poly:
        nnc_puts(t, "nnc_poly(");
        operand(w, t, s->arg[0], true);
        for (int i = 0; i < s->n; i++) {
            nnc_fstep c = {.op = FO_num,
                .type = s->type,
                .f = s->type == FT_f32 ? (double)(float)s->c[i] : s->c[i]};
            nnc_puts(t, ", ");
            put_number(t, &c);
        }
        nnc_puts(t, ")");
        break;
    case FO_wide:
        from_template(w, t, s, s->type == FT_f64 ? "(double)(%0)" : "(unsigned long long)(%0)");
        break;
    case FO_word: from_template(w, t, s, "nnc_two_over_pi[%0]"); break;
    case FO_far:
        nnc_formula_name(
            name, sizeof name, (nnc_fkey){.sop = (uint8_t)s->n, .type = s->type, .far = true});
        from_template(w, t, s, "fabsf(%0) <= 105615.0f ? %1 : ");
        nnc_printf(t, "%s(", name);
        from_template(w, t, s, "%0)");
        break;
    case FO_call:
        nnc_printf(t, "%s(", s->n == SC_erf1 ? "erfc" : nnc_sops[s->n].name);
        from_template(w, t, s, s->arg[1] < 0 ? "%0)" : "%0, %1)");
        break;
    default: {
        int of = s->type == FT_bool ? w->f->step[s->arg[0]].type : s->type;
        from_template(w, t, s, nnc_fops[s->op].cuda[of == FT_f64 || of == FT_i64]);
    }
    }
}

static void count_uses(writer *w)
{
    for (int i = 0; i < w->f->n; i++)
        for (int j = 0; j < 3; j++)
            if (w->f->step[i].arg[j] >= 0) {
                w->uses[w->f->step[i].arg[j]]++;
                w->arm[w->f->step[i].arg[j]] |= w->f->step[i].op == FO_select && j > 0;
            }
}

/* Writes the steps before `end` that are, or are not, early. */
static void statements(writer *w, nnc_text *t, int end, bool early)
{
    for (int i = 0; i < end; i++) {
        const nnc_fstep *s = &w->f->step[i];
        if (s->op == FO_arg || s->op == FO_num || w->early[i] != early)
            continue;
        bool slow = s->op == FO_sqrt || s->op == FO_div; /* expensive enough for a branch */
        expression(w, &w->expr[i], s);
        w->named[i] = w->uses[i] > 1 || (w->arm[i] && !slow) || w->expr[i].n > LINE;
        if (w->named[i])
            nnc_printf(
                t, "    const %s v%d = %s;\n", c_type(s->type), i, nnc_text_str(&w->expr[i]));
    }
}

static void give_back(const writer *w, nnc_text *t, int id, bool narrow)
{
    nnc_puts(t, narrow ? "return (float)(" : "return ");
    operand(w, t, id, true);
    nnc_puts(t, narrow ? ");\n" : ";\n");
}

static void function(nnc_text *t, nnc_fkey key, const nnc_formula *f)
{
    writer w = {.f = f};
    char name[64];
    const int last = f->n - 1;
    const bool narrow = f->step[last].op == FO_narrow;
    const int result = narrow ? f->step[last].arg[0] : last;
    const nnc_fstep *r = &f->step[result];
    nnc_formula_name(name, sizeof name, key);
    nnc_printf(t, "%s %s %s(%s x", key.far ? "static __device__ __noinline__" : "NNC_FN",
        c_type(f->step[last].type), name, key.far ? "float" : c_type(key.type));
    nnc_printf(t, nnc_sops[key.sop].arity == 2 ? ", %s y)\n{\n" : ")\n{\n", c_type(key.type));
    count_uses(&w);
    if (r->op == FO_branch) {
        w.early[r->arg[0]] = w.early[r->arg[1]] = true;
        for (int i = result; i >= 0; i--)
            for (int j = 0; w.early[i] && j < 3; j++)
                if (f->step[i].arg[j] >= 0)
                    w.early[f->step[i].arg[j]] = true;
        statements(&w, t, result, true);
        nnc_puts(t, "    if (");
        operand(&w, t, r->arg[0], true);
        nnc_puts(t, ")\n        ");
        give_back(&w, t, r->arg[1], narrow);
    }
    statements(&w, t, result + (r->op != FO_branch), false);
    nnc_puts(t, "    ");
    give_back(&w, t, r->op == FO_branch ? r->arg[2] : result, narrow);
    nnc_puts(t, "}\n");
    for (int i = 0; i < f->n; i++) {
        t->oom |= w.expr[i].oom;
        nnc_text_deinit(&w.expr[i]);
    }
}

static void with_far(nnc_text *t, nnc_fkey key)
{
    nnc_formula f;
    char name[64];
    nnc_formula_name(name, sizeof name, key);
    if (cu_names(nnc_text_str(t), name))
        return;
    nnc_formula_make(&f, key, gpu);
    for (int i = 0; i < f.n; i++)
        if (f.step[i].op == FO_far)
            with_far(
                t, (nnc_fkey){.sop = (uint8_t)f.step[i].n, .type = f.step[i].type, .far = true});
    function(t, key, &f);
}

void cu_formulas(nnc_text *t, const nnc_kernel *const *k, int n, const char *text)
{
    char name[64];
    for (int i = 0; i < n; i++)
        for (int id = 0; id < k[i]->n_ins; id++) {
            const nnc_kins *in = &k[i]->ins[id];
            if (in->op != KO_sop ||
                !nnc_has_formula((nnc_sop)in->sop, (nnc_dtype)k[i]->ins[in->arg[0]].dtype))
                continue;
            nnc_fkey key = nnc_formula_key(k[i], in);
            nnc_formula_name(name, sizeof name, key);
            if (!cu_names(nnc_text_str(t), name) && cu_names(text, name))
                with_far(t, key);
        }
}
