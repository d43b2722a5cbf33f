/* frontend/expr.c -- integer expressions in sizes and conditions. Precedence as in C: ?:  ||  &&  == !=  < <= > >=  + -  * / %  unary
 * - !.  Values are 64-bit integers, checked for overflow, and words ('quoted', or args whose value is a word), which can only be
 * compared. / and % round down. The branch of ?: && || that is not taken is parsed but not evaluated, so it may divide by zero. */
#include "frontend/internal.h"
#include <ctype.h>
#include <string.h>

#define MAX_DEPTH 64

typedef struct ex {
    const char *s, *p, *end;
    const fe_env *env;
    fe_expr_error *err;
    int depth;
    int skip; /* > 0: parse without evaluating */
    bool failed;
} ex;

static fe_val ternary(ex *e);

static fe_val int_value(int64_t i)
{
    return (fe_val){.i = i};
}

static fe_val fail(ex *e, const char *at, const char *fmt, ...) NNC_PRINTF(3, 4);
static fe_val fail(ex *e, const char *at, const char *fmt, ...)
{
    if (!e->failed) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->err->text, sizeof e->err->text, fmt, ap);
        va_end(ap);
        e->err->at = (int)(at - e->s);
    }
    e->failed = true;
    e->p = e->end;
    return int_value(0);
}

static void blanks(ex *e)
{
    while (e->p < e->end && (*e->p == ' ' || *e->p == '\t'))
        e->p++;
}

/* Consumes operator `op` if it is next; "<" does not match "<=", "!" not "!=". */
static bool eat(ex *e, const char *op)
{
    blanks(e);
    size_t n = strlen(op);
    if ((size_t)(e->end - e->p) < n || memcmp(e->p, op, n))
        return false;
    if (n == 1 && strchr("<>!=", *op) && e->end - e->p > 1 && e->p[1] == '=')
        return false;
    e->p += n;
    return true;
}

static bool need_int(ex *e, fe_val v, const char *at, const char *op)
{
    if (e->failed || e->skip || !v.is_word)
        return !e->failed;
    fail(e, at, "`%s` needs integers, but '%.*s' is a word (words compare with == and !=)", op,
        v.n > 60 ? 60 : v.n, v.word);
    return false;
}

static fe_val arith(ex *e, fe_val a, char op, fe_val b, const char *at)
{
    char name[2] = {op, 0};
    if (!need_int(e, a, at, name) || !need_int(e, b, at, name) || e->skip)
        return int_value(0);
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case '+': over = __builtin_add_overflow(a.i, b.i, &r); break;
    case '-': over = __builtin_sub_overflow(a.i, b.i, &r); break;
    case '*': over = __builtin_mul_overflow(a.i, b.i, &r); break;
    default:
        if (b.i == 0)
            return fail(e, at, "division by zero");
        if (b.i == -1) { /* INT64_MIN / -1 traps */
            over = op == '/' && a.i == INT64_MIN;
            r = op == '/' && !over ? -a.i : 0;
        } else {
            int64_t q = a.i / b.i - ((a.i % b.i != 0) && ((a.i < 0) != (b.i < 0)));
            r = op == '/' ? q : a.i - q * b.i;
        }
    }
    if (over)
        return fail(
            e, at, "%lld %c %lld does not fit in 64 bits", (long long)a.i, op, (long long)b.i);
    return int_value(r);
}

static fe_val call(ex *e, bool is_min, const char *at)
{
    fe_val r = int_value(0);
    int n = 0;
    if (!eat(e, "("))
        return fail(e, e->p, "expected ( after %s", is_min ? "min" : "max");
    do {
        fe_val v = ternary(e);
        if (!need_int(e, v, at, is_min ? "min" : "max"))
            return r;
        r = n++ == 0 ? v : int_value(is_min ? nnc_min64(r.i, v.i) : nnc_max64(r.i, v.i));
    } while (eat(e, ","));
    if (!e->failed && !eat(e, ")"))
        return fail(e, e->p, "expected , or )");
    return r;
}

static fe_val variable(ex *e)
{
    const char *w = e->p;
    while (e->p < e->end && (isalnum((unsigned char)*e->p) || *e->p == '_'))
        e->p++;
    size_t n = (size_t)(e->p - w);
    if (n == 3 && (!memcmp(w, "min", 3) || !memcmp(w, "max", 3)))
        return call(e, w[1] == 'i', w);
    const char *names[FE_MAX_ARGS];
    size_t n_names = 0;
    for (const fe_env *v = e->env; v; v = v->up) {
        if (strlen(v->name) == n && !memcmp(v->name, w, n))
            return v->v;
        if (n_names < NNC_COUNT(names))
            names[n_names++] = v->name;
    }
    char word[FE_MAX_NAME + 1];
    snprintf(word, sizeof word, "%.*s", (int)(n > FE_MAX_NAME ? FE_MAX_NAME : n), w);
    const char *near = nnc_nearest(word, names, n_names);
    if (near)
        return fail(e, w, "`%s` is not an arg here; did you mean `%s`?", word, near);
    char list[160] = "";
    for (size_t i = 0, k = 0; i < n_names && k + strlen(names[i]) + 3 < sizeof list; i++)
        k += (size_t)snprintf(list + k, sizeof list - k, "%s%s", i ? ", " : "", names[i]);
    return fail(e, w, "`%s` is not an arg here (known: %s)%s", word, *list ? list : "none",
        !strchr(e->s, '\'') && (strstr(e->s, "==") || strstr(e->s, "!="))
            ? "; words stand in single quotes"
            : "");
}

static fe_val primary(ex *e)
{
    blanks(e);
    const char *at = e->p;
    if (e->p == e->end)
        return fail(e, at, "the expression ends where a value is expected");
    if (isdigit((unsigned char)*e->p)) {
        int64_t v = 0;
        for (; e->p < e->end && isdigit((unsigned char)*e->p); e->p++)
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *e->p - '0', &v))
                return fail(e, at, "a number does not fit in 64 bits");
        if (e->p < e->end && (isalpha((unsigned char)*e->p) || *e->p == '_' || *e->p == '.'))
            return fail(
                e, e->p, "expected an operator after %lld, found `%c`", (long long)v, *e->p);
        return int_value(v);
    }
    if (isalpha((unsigned char)*e->p) || *e->p == '_')
        return variable(e);
    if (*e->p == '\'') {
        const char *w = ++e->p;
        while (e->p < e->end && *e->p != '\'')
            e->p++;
        if (e->p == e->end)
            return fail(e, at, "a quoted word has no closing '");
        return (fe_val){.is_word = true, .word = w, .n = (int)(e->p++ - w)};
    }
    if (eat(e, "(")) {
        fe_val v = ternary(e);
        if (!e->failed && !eat(e, ")"))
            return fail(e, e->p, "expected )");
        return v;
    }
    return fail(e, at, "expected a number, an arg or (, found `%c`", *e->p);
}

static fe_val unary(ex *e)
{
    if (++e->depth > MAX_DEPTH)
        return fail(e, e->p, "the expression is nested deeper than %d", MAX_DEPTH);
    blanks(e);
    const char *at = e->p;
    fe_val v;
    if (eat(e, "-")) {
        v = unary(e);
        v = arith(e, int_value(0), '-', v, at);
    } else if (eat(e, "!")) {
        v = unary(e);
        v = need_int(e, v, at, "!") ? int_value(!v.i) : int_value(0);
    } else {
        v = primary(e);
    }
    e->depth--;
    return v;
}

/* Operators of two operands by precedence, the weakest first; of one level those that begin like others come first. */
static const char *const binary_ops[][5] = {
    {"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};
enum { LEVEL_and = 1, LEVEL_equal, LEVEL_order, LEVEL_sum, LEVELS = NNC_COUNT(binary_ops) };

static fe_val equal(ex *e, fe_val a, bool want, fe_val b, const char *at)
{
    if (e->failed)
        return a;
    if (a.is_word != b.is_word && !e->skip)
        return fail(e, at, "compares a word with an integer");
    bool same = a.is_word ? a.n == b.n && !memcmp(a.word, b.word, (size_t)a.n) : a.i == b.i;
    return int_value(same == want);
}

/* a op b of a level above arithmetic. `known`: a alone decides || or &&. */
static fe_val condition(
    ex *e, int level, fe_val a, const char *op, fe_val b, bool known, const char *at)
{
    if (level == LEVEL_equal)
        return equal(e, a, *op == '=', b, at);
    if (!need_int(e, a, at, op) || !need_int(e, b, at, op))
        return int_value(0);
    if (level == LEVEL_order)
        return int_value(
            op[1] ? (*op == '<' ? a.i <= b.i : a.i >= b.i) : (*op == '<' ? a.i < b.i : a.i > b.i));
    return int_value(level == LEVEL_and ? !known && a.i && b.i : known || a.i || b.i);
}

static fe_val binary(ex *e, int level)
{
    if (level == LEVELS)
        return unary(e);
    fe_val a = binary(e, level + 1);
    for (;;) {
        const char *op = NULL;
        blanks(e);
        const char *at = e->p;
        for (int i = 0; !op && binary_ops[level][i]; i++)
            op = eat(e, binary_ops[level][i]) ? binary_ops[level][i] : NULL;
        if (!op)
            return a;
        bool known = level <= LEVEL_and && !e->failed && !a.is_word && (a.i != 0) == (*op == '|');
        e->skip += known;
        fe_val b = binary(e, level + 1);
        e->skip -= known;
        a = level >= LEVEL_sum ? arith(e, a, *op, b, at) : condition(e, level, a, op, b, known, at);
        if (e->failed)
            return a;
    }
}

static fe_val ternary(ex *e)
{
    if (++e->depth > MAX_DEPTH)
        return fail(e, e->p, "the expression is nested deeper than %d", MAX_DEPTH);
    fe_val c = binary(e, 0);
    blanks(e);
    const char *at = e->p;
    if (eat(e, "?")) {
        if (!need_int(e, c, at, "?:"))
            return c;
        e->skip += !c.i;
        fe_val a = ternary(e);
        e->skip -= !c.i;
        if (!e->failed && !eat(e, ":"))
            return fail(e, e->p, "expected : of ?:");
        e->skip += c.i != 0;
        fe_val b = ternary(e);
        e->skip -= c.i != 0;
        c = c.i ? a : b;
    }
    e->depth--;
    return c;
}

bool fe_expr(const char *s, size_t n, const fe_env *env, fe_val *out, fe_expr_error *err)
{
    ex e = {.s = s, .p = s, .end = s + n, .env = env, .err = err};
    *out = n > 4096 ? fail(&e, s, "the expression is longer than 4096 characters") : ternary(&e);
    blanks(&e);
    if (!e.failed && e.p != e.end)
        fail(&e, e.p, "expected an operator, found `%c`", *e.p);
    return !e.failed;
}

bool fe_is_name(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}
