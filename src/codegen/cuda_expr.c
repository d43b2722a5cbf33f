/* codegen/cuda_expr.c -- pieces of CUDA C: types, numbers, index forms, values and scalar operations. What C leaves undefined (signed
 * overflow, division by zero, out-of-range conversion) goes through helpers of the prelude. */
#include "codegen/cuda.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cu_type(nnc_dtype d)
{
    switch (d) {
    case DT_f64: return "double";
    case DT_bool: return "bool";
    case DT_i8: return "signed char";
    case DT_i16: return "short";
    case DT_i32: return "int";
    case DT_i64: return "long long";
    case DT_u8: return "unsigned char";
    case DT_u16: return "unsigned short";
    case DT_u32: return "unsigned";
    case DT_u64: return "unsigned long long";
    default: return "float";
    }
}

const char *cu_storage(nnc_dtype d)
{
    return d == DT_f16    ? "nnc_f16"
           : d == DT_bf16 ? "nnc_bf16"
           : d == DT_bool ? "nnc_bool"
                          : cu_type(d);
}

const char *cu_index(const cu *c)
{
    return c->g->index == 64 ? "long long" : "int";
}

/* ---- lines ---- */

void cu_indent(const cu *c)
{
    for (int i = 0; i < c->depth; i++)
        nnc_puts(c->t, "    ");
}

static void put_format(const cu *c, const char *fmt, va_list ap)
{
    va_list rest;
    va_copy(rest, ap);
    for (const char *p; *(p = strchrnul(fmt, '%'));) {
        nnc_putn(c->t, fmt, (size_t)(p - fmt));
        fmt = p + (p[1] == 'l' ? 4 : 2);
        switch (p[1]) {
        case 'r': cu_ref(c, va_arg(rest, int)); break;
        case 'n': cu_name(c, va_arg(rest, int)); break;
        case 'a': cu_affine(c, va_arg(rest, const nnc_affine *)); break;
        case 'i': cu_int(c, va_arg(rest, int64_t)); break;
        case 'z': cu_size(c, va_arg(rest, int64_t)); break;
        case 'Z': cu_size_long(c, va_arg(rest, int64_t)); break;
        case 'T': nnc_puts(c->t, cu_index(c)); break;
        case 's': nnc_puts(c->t, va_arg(rest, const char *)); break;
        case 'd': nnc_printf(c->t, "%d", va_arg(rest, int)); break;
        case 'l': nnc_printf(c->t, "%lld", va_arg(rest, long long)); break;
        default: nnc_putc(c->t, '%');
        }
    }
    nnc_puts(c->t, fmt);
    va_end(rest);
}

void cu_put(const cu *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_format(c, fmt, ap);
    va_end(ap);
}

void cu_line(cu *c, const char *fmt, ...)
{
    va_list ap;
    if (fmt[0] != '#')
        cu_indent(c);
    va_start(ap, fmt);
    put_format(c, fmt, ap);
    va_end(ap);
    nnc_putc(c->t, '\n');
}

void cu_open(cu *c, const char *fmt, ...)
{
    va_list ap;
    cu_indent(c);
    va_start(ap, fmt);
    put_format(c, fmt, ap);
    va_end(ap);
    nnc_putc(c->t, '\n');
    c->depth++;
}

void cu_typed(const cu *c, const char *type, int lanes)
{
    cu_indent(c);
    cu_put(c, lanes > 1 ? "nnc_vec<%s, %d> " : "%s ", type, lanes);
}

void cu_close(cu *c, const char *text)
{
    c->depth--;
    cu_line(c, "%s", text);
}

void cu_close_all(cu *c, int scopes)
{
    while (scopes-- > 0)
        cu_close(c, "}");
}

/* ---- numbers and index forms ---- */

void cu_int(const cu *c, int64_t v)
{
    if (v == INT64_MIN)
        nnc_puts(c->t, "(-9223372036854775807ll - 1)");
    else
        nnc_printf(c->t, "%lld%s", (long long)v, v > INT32_MAX || v < -INT32_MAX ? "ll" : "");
}

static void put_float(const cu *c, double f, bool single)
{
    if (isnan(f) || isinf(f)) {
        const char *name = isnan(f) ? "nnc_nan" : "nnc_inf";
        nnc_printf(c->t, "%s%s%s()", f < 0 ? "-" : "", single ? "" : "(double)", name);
        return;
    }
    char s[40];
    nnc_snprintf(s, sizeof s, single ? "%.9g" : "%.17g", f);
    for (int digits = 1; digits < (single ? 9 : 17); digits++) {
        char shorter[40];
        nnc_snprintf(shorter, sizeof shorter, "%.*g", digits, f);
        double back = nnc_strtod(shorter, NULL);
        if (single ? (float)back == (float)f : back == f) {
            memcpy(s, shorter, sizeof s);
            break;
        }
    }
    nnc_printf(c->t, "%s%s%s", s, strpbrk(s, ".e") ? "" : ".0", single ? "f" : "");
}

void cu_number(const cu *c, nnc_dtype d, double f, int64_t i)
{
    if (d == DT_f32 || d == DT_f64)
        put_float(c, f, d == DT_f32);
    else if (d == DT_bool)
        nnc_puts(c->t, i ? "true" : "false");
    else if (d == DT_u64)
        nnc_printf(c->t, "%lluull", (unsigned long long)i);
    else if (d == DT_u32)
        nnc_printf(c->t, "%lldu", (long long)i);
    else if (d == DT_i64) {
        cu_int(c, i);
        nnc_puts(c->t, i > INT32_MAX || i < -INT32_MAX ? "" : "ll");
    } else if (d == DT_i32) {
        nnc_printf(
            c->t, i == INT32_MIN ? "(%lld - 1)" : "%lld", (long long)(i == INT32_MIN ? i + 1 : i));
    } else {
        nnc_printf(c->t, "(%s)%lld", cu_type(d), (long long)i);
    }
}

void cu_axis(const cu *c, int a)
{
    if (c->in_lanes && a == c->axis)
        nnc_printf(c->t, "(%s + e)", c->axis_name[a]);
    else
        nnc_puts(c->t, c->axis_name[a]);
}

/* Axes of extent 1 have index 0 and are not written. */
static bool stands(const cu *c, const nnc_affine *e, int a)
{
    return e->k[a] != 0 && c->k->axis[a].extent > 1;
}

/* May a stride along axis a be a parameter? Not if a loop over it is unrolled: it would no longer be part of an instruction. */
static bool is_size(const cu *c, int a)
{
    return !(c->in_lanes && a == c->axis) &&
           (c->k->axis[a].kind == KA_outer || c->g->cls == KC_column);
}

void cu_affine(const cu *c, const nnc_affine *e)
{
    bool first = true;
    for (int a = 0; a < c->k->n_axis; a++) {
        int64_t k = e->k[a];
        if (!stands(c, e, a))
            continue;
        nnc_puts(c->t, first ? k < 0 ? "-" : "" : k < 0 ? " - " : " + ");
        cu_axis(c, a);
        if (k != 1 && k != -1)
            cu_put(c, is_size(c, a) ? " * %z" : " * %i", k < 0 ? -k : k);
        first = false;
    }
    if (first)
        cu_int(c, e->c);
    else if (e->c != 0)
        cu_put(c, e->c < 0 ? " - %i" : " + %i", e->c < 0 ? -e->c : e->c);
}

/* Which bounds of a guard are not known to hold? */
static void open_bounds(const cu *c, const nnc_kguard *q, bool *lo, bool *hi)
{
    nnc_span s = nnc_affine_span(c->k, &q->e);
    bool held = false;
    for (int i = 0; i < c->n_holds; i++)
        held |= nnc_kguard_equal(c->holds[i], q);
    *lo = !held && (!s.ok || s.lo < q->lo);
    *hi = !held && (!s.ok || s.hi >= q->hi);
}

bool cu_guarded(const cu *c, const nnc_kins *in)
{
    bool any = false;
    for (int g = 0; g < in->n_guard; g++) {
        bool lo, hi;
        open_bounds(c, &in->guard[g], &lo, &hi);
        any |= lo || hi;
    }
    return any;
}

void cu_guard_list(const cu *c, const nnc_kguard *const *list, int n)
{
    bool first = true;
    for (int g = 0; g < n; g++) {
        const nnc_kguard *q = list[g];
        nnc_affine e = q->e;
        bool lo, hi;
        open_bounds(c, q, &lo, &hi);
        e.c = 0; /* constants are moved to the other side */
        for (int half = 0; half < 2; half++) {
            if (half ? !hi : !lo)
                continue;
            cu_put(c, "%s%a %s %i", first ? "" : " && ", &e,
                half ? "<" : ">=", (half ? q->hi : q->lo) - q->e.c);
            first = false;
        }
    }
    if (first)
        nnc_puts(c->t, "true");
}

void cu_guards(const cu *c, const nnc_kins *in)
{
    const nnc_kguard *list[NNC_KGUARDS];
    for (int g = 0; g < in->n_guard; g++)
        list[g] = &in->guard[g];
    cu_guard_list(c, list, in->n_guard);
}

void cu_digit(
    cu *c, const char *name, const char *number, int64_t below, int64_t count, int64_t times)
{
    cu_indent(c);
    cu_put(c, "const %T %s = %s", name, number);
    if (below > 1) {
        nnc_puts(c->t, " / ");
        cu_divisor(c, below);
    }
    if (count > 0) {
        nnc_puts(c->t, " % ");
        cu_divisor(c, count);
    }
    cu_put(c, times > 1 ? " * %lld;\n" : ";\n", (long long)times);
}

/* ---- values ---- */

void cu_name(const cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    nnc_printf(c->t, "%s_%d",
        in->op == KO_load     ? c->buf_name[in->buf]
        : in->op == KO_reduce ? nnc_kred_names[in->sop]
                              : nnc_sops[in->sop].name,
        id);
}

void cu_ref(const cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    const cu_value *v = &c->v[id];
    if (in->op == KO_const && in->dtype == DT_f32) {
        cu_float(c, in->f);
        return;
    }
    if (in->op == KO_const) {
        cu_number(c, (nnc_dtype)in->dtype, in->f, in->i);
        return;
    }
    if (in->op == KO_index) {
        nnc_puts(c->t, c->g->index == 64 ? "" : "(long long)");
        if (c->k->axis[in->i].extent == 1)
            nnc_puts(c->t, "0");
        else
            cu_axis(c, (int)in->i);
        return;
    }
    if (in->op == KO_reduce && in->sop >= KR_argmax)
        nnc_puts(c->t, c->g->index == 64 ? "" : "(long long)");
    cu_name(c, v->as >= 0 ? v->as : id);
    if (v->held)
        nnc_printf(c->t, "[%s]", c->unroll);
    if (v->lanes && c->in_lanes)
        nnc_puts(c->t, "[e]");
}

/* ---- scalar operations ---- */

/* Appends a template with operands for %0...; in f64, C functions and literals lose their f. */
static void put_text(const cu *c, const char *text, const nnc_kins *in)
{
    const char *s = text;
    bool wide = c->k->ins[in->arg[in->sop == SC_select]].dtype == DT_f64;
    for (; *s; s++) {
        if (*s == '%' && s[1] >= '0' && s[1] <= '2') {
            const nnc_kins *x = &c->k->ins[in->arg[s[1] - '0']];
            bool minus =
                s > text && s[-1] == '-' && x->op == KO_const && (signbit(x->f) || x->i < 0);
            cu_put(c, minus ? "(%r)" : "%r", in->arg[*++s - '0']);
        } else if (isalpha((unsigned char)*s)) {
            size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz_0123456789");
            bool drop = wide && s[n - 1] == 'f' && s[n] == '(' && memcmp(s, "nnc_", 4) != 0;
            nnc_putn(c->t, s, drop ? n - 1 : n);
            s += n - 1;
        } else if (wide && *s == 'f' && isdigit((unsigned char)s[-1])) {
            continue;
        } else {
            nnc_putc(c->t, *s);
        }
    }
}

static void call(const cu *c, const char *fn, const nnc_kins *in, int n)
{
    nnc_printf(c->t, "%s(", fn);
    for (int i = 0; i < n; i++)
        cu_put(c, i ? ", %r" : "%r", in->arg[i]);
    nnc_puts(c->t, ")");
}

static void float_sop(const cu *c, const nnc_kins *in)
{
    char name[64];
    nnc_dtype d = (nnc_dtype)c->k->ins[in->arg[0]].dtype;
    nnc_fkey key = nnc_formula_key(c->k, in);
    if (nnc_has_formula((nnc_sop)in->sop, d) && (in->sop != SC_recip || key.policy || key.reach)) {
        nnc_formula_name(name, sizeof name, key);
        call(c, name, in, nnc_sops[in->sop].arity);
    } else if ((in->sop == SC_min || in->sop == SC_max) && in->hint & KH_nonan && d == DT_f32) {
        call(c, in->sop == SC_min ? "fminf" : "fmaxf", in, 2);
    } else {
        put_text(c, nnc_sops[in->sop].cuda, in);
    }
}

static void cast(const cu *c, const nnc_kins *in)
{
    nnc_dtype from = (nnc_dtype)c->k->ins[in->arg[0]].dtype, to = (nnc_dtype)in->cast_to;
    if (to == DT_f16 || to == DT_bf16)
        cu_put(c,
            nnc_is_float(from) ? "nnc_get(nnc_put<%s>(%r))" : "nnc_get(nnc_put<%s>((double)%r))",
            cu_storage(to), in->arg[0]);
    else if (to == from)
        cu_ref(c, in->arg[0]);
    else if (to == DT_bool)
        cu_put(c, "(%r != 0)", in->arg[0]);
    else
        cu_put(c, nnc_is_float(from) && !nnc_is_float(to) ? "nnc_int<%s>(%r)" : "(%s)%r",
            cu_type(to), in->arg[0]);
}

/* True when an index sum fits its type; then it is written with + and *, otherwise with a wrapping helper. */
static bool fits(const nnc_kins *in)
{
    double most = in->dtype == DT_i64 ? 0x1p62 : in->dtype == DT_i32 ? 0x1p31 - 1 : 0;
    return in->lo <= in->hi && in->lo >= -most && in->hi <= most;
}

static void int_sop(const cu *c, const nnc_kins *in)
{
    char name[24];
    nnc_sop op = (nnc_sop)in->sop;
    if (op == SC_identity || (op >= SC_floor && op <= SC_trunc)) {
        cu_ref(c, in->arg[0]);
        return;
    }
    bool plain = op >= SC_eq && op <= SC_shr; /* comparisons, logic and bits */
    if (plain || ((op == SC_add || op == SC_sub || op == SC_mul) && fits(in))) {
        put_text(c, nnc_sops[op].cuda, in);
        return;
    }
    snprintf(name, sizeof name, "nnc_%s", op == SC_pow ? "ipow" : nnc_sops[op].name);
    call(c, name, in, nnc_sops[op].arity);
}

/* Removes the outer parentheses of "(a + b)". */
static void bare(nnc_text *t, size_t from)
{
    int depth = 0;
    if (t->n <= from || t->s[from] != '(' || t->s[t->n - 1] != ')')
        return;
    for (size_t i = from; i < t->n; i++) {
        depth += (t->s[i] == '(') - (t->s[i] == ')');
        if (depth == 0 && i + 1 < t->n)
            return;
    }
    memmove(t->s + from, t->s + from + 1, t->n - from - 2);
    t->n -= 2;
    t->s[t->n] = 0;
}

static void sop(const cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    nnc_dtype from = (nnc_dtype)c->k->ins[in->arg[0]].dtype;
    switch ((nnc_sop)in->sop) {
    case SC_cast: cast(c, in); return;
    case SC_not:
    case SC_select: put_text(c, nnc_sops[in->sop].cuda, in); return;
    default: break;
    }
    if (nnc_is_float(from))
        float_sop(c, in);
    else
        int_sop(c, in);
}

void cu_sop(const cu *c, int32_t id)
{
    size_t from = c->t->n;
    sop(c, id);
    bare(c->t, from);
}

/* ---- reductions ---- */

void cu_start(const cu *c, const nnc_kins *in)
{
    nnc_dtype d = (nnc_dtype)c->k->ins[in->arg[0]].dtype;
    double f = in->sop == KR_prod  ? 1
               : in->sop == KR_max ? -INFINITY
               : in->sop == KR_min ? INFINITY
                                   : 0;
    int64_t i = in->sop == KR_prod                       ? 1
                : in->sop == KR_max || in->sop == KR_min ? nnc_int_end(d, in->sop == KR_min)
                                                         : 0;
    cu_number(c, d, f, i);
}

/* Row-major number of the point among the stage's reduce axes. */
static nnc_affine reduce_number(const cu *c, const nnc_kstage *s)
{
    nnc_affine e = {0};
    int64_t step = 1;
    for (int a = c->k->n_axis - 1; a >= 0; a--)
        if (c->k->axis[a].kind == KA_reduce && s->axes >> a & 1) {
            e.k[a] = step;
            step *= c->k->axis[a].extent;
        }
    return e;
}

void cu_fold(cu *c, const nnc_kstage *s, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    nnc_dtype d = (nnc_dtype)c->k->ins[in->arg[0]].dtype;
    static const char *const fn[] = {"nnc_add", "nnc_mul", "nnc_max", "nnc_min"};
    const bool plain = d == DT_f32 && in->hint & KH_nonan;
    const char *e = c->v[id].lanes ? "[e]" : "";
    const nnc_affine at = reduce_number(c, s);
    cu_indent(c);
    cu_put(c, in->arg[1] >= 0 ? "if (%r) " : "", in->arg[1]);
    if (in->sop >= KR_argmax)
        cu_put(c, "nnc_%s_take(best_%d%s, %n%s, %r, %a);\n", nnc_kred_names[in->sop], id, e, id, e,
            in->arg[0], &at);
    else if (nnc_is_float(d) && in->sop <= KR_prod)
        cu_put(c, in->sop == KR_sum ? "%r += %r;\n" : "%r *= %r;\n", id, in->arg[0]);
    else
        cu_put(c, "%r = %s(%r, %r);\n", id,
            plain ? in->sop == KR_max ? "fmaxf" : "fminf" : fn[in->sop], id, in->arg[0]);
}
