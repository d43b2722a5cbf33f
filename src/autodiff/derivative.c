/* autodiff/derivative.c -- elementwise ops: the gradient of an operand is that of the result times the derivative, an expression of
 * ir/scalar.def in graph ops over the operands (x, or a, b, c) and the result y:
 *
 *     expression = number | name | op "(" expression { "," expression } ")"
 *
 * A comparison as a derivative chooses which operand the gradient goes to, so that no 0 is multiplied by an infinity. */
#include "autodiff/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    visit *a;
    const char *s;
    nnc_ref like; /* a value of the type that numbers take */
} reader;

static nnc_ref expression(reader *r);

static nnc_ref number(reader *r)
{
    char *end;
    double v = nnc_strtod(r->s, &end);
    r->s = end;
    return nnc_scalar(r->a->g, dtype_of(r->a, r->like), v);
}

static nnc_ref named(const reader *r, char name)
{
    return name == 'y' ? r->a->n.out : r->a->n.in[name == 'x' ? 0 : name - 'a'];
}

static nnc_ref call(reader *r, const char *name, size_t n)
{
    nnc_ref in[3] = {NNC_NONE, NNC_NONE, NNC_NONE};
    nnc_op op = OP_identity;
    int k = 0;
    if (!nnc_op_parse(name, n, &op))
        return NNC_NONE;
    do {
        r->s++; /* a parenthesis or comma */
        in[k++] = expression(r);
    } while (*r->s == ',' && k < 3);
    r->s++;
    return nnc_build(r->a->g, op, k, in, 0, NULL);
}

static nnc_ref expression(reader *r)
{
    const char *s = r->s;
    if (*s == '-' || isdigit((unsigned char)*s))
        return number(r);
    while (isalnum((unsigned char)*r->s))
        r->s++;
    return *r->s == '(' ? call(r, s, (size_t)(r->s - s)) : named(r, *s);
}

/* dy times the derivative that s stands for. */
static nnc_ref times(visit *a, const char *s, size_t n)
{
    nnc_ref dy = a->dy[0];
    if (n == 1 && *s == '1')
        return dy;
    if (n == 2 && s[0] == '-' && s[1] == '1')
        return nnc_build1(a->g, OP_neg, dy);
    reader r = {a, s, a->n.in[0]};
    nnc_ref f = expression(&r);
    if (f == NNC_NONE)
        return NNC_NONE;
    if (dtype_of(a, f) == DT_bool)
        return nnc_build3(a->g, OP_select, f, dy, nnc_scalar(a->g, dtype_of(a, dy), 0));
    return nnc_build2(a->g, OP_mul, dy, f);
}

static void select_rule(visit *a)
{
    nnc_ref zero = nnc_scalar(a->g, dtype_of(a, a->dy[0]), 0), c = a->n.in[0];
    if (wanted(a, 1))
        give(a, 1, nnc_build3(a->g, OP_select, c, a->dy[0], zero));
    if (wanted(a, 2))
        give(a, 2, nnc_build3(a->g, OP_select, c, zero, a->dy[0]));
}

void ewise_rule(visit *a)
{
    nnc_sop op;
    if (a->n.op == OP_select) {
        select_rule(a);
        return;
    }
    if (a->n.op == OP_cast) {
        give(a, 0, nnc_cast(a->g, a->dy[0], dtype_of(a, a->n.in[0])));
        return;
    }
    if (!nnc_sop_of((nnc_op)a->n.op, &op))
        return;
    const char *s = nnc_sops[op].deriv;
    for (int k = 0; k < a->n.n_in && *s; k++) {
        size_t n = strcspn(s, ";");
        if (n && wanted(a, k))
            give(a, k, times(a, s, n));
        s += n + (s[n] == ';');
    }
}
