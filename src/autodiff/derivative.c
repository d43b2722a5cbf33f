/* autodiff/derivative.c -- elementwise ops. An operand's gradient is the result's gradient times the derivative, an expression of
 * ir/scalar.def in graph ops. Its names are the operands (x, or a, b, c), the result y and the attribute alpha:
 *
 *     expression = number | name | op "(" expression { "," expression } ")"
 *
 * One with dy in it is the gradient itself: where it selects, no 0 is multiplied by an infinity. So it is for a comparison, which chooses
 * which operand the gradient goes to. At kinks and ties, gradients are those of PyTorch 2.9 (tools/autograd/derivatives.yaml). */
#include "autodiff/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct reader {
    visit *a;
    const char *s;
    nnc_ref like; /* a value of the type that numbers take */
    bool whole; /* dy was read */
} reader;

static nnc_ref expression(reader *r);

static nnc_ref parse_number(reader *r)
{
    char *end;
    double v = nnc_strtod(r->s, &end);
    r->s = end;
    return nnc_scalar(r->a->g, dtype_of(r->a, r->like), v);
}

/* Smooth functions with lowerings in pieces that are not smooth, or of which an unused piece may overflow. */
static const struct {
    nnc_op op;
    const char *deriv;
    double alpha; /* by default */
} compound[] = {
    {OP_softplus, "sigmoid(x)", 0},
    {OP_mish, "add(tanh(softplus(x)),mul(mul(x,sigmoid(x)),sub(1,square(tanh(softplus(x))))))", 0},
    {OP_elu, "select(gt(y,0),dy,mul(dy,add(y,alpha)))", 1},
    {OP_selu, "select(gt(y,0),mul(dy,1.0507009873554805),mul(dy,add(y,1.7580993408473768)))", 0},
    {OP_hardsigmoid, "select(and(gt(y,0),lt(y,1)),mul(dy,alpha),0)", 1.0 / 6},
    {OP_hardswish, "select(gt(x,-3),select(lt(x,3),mul(dy,add(div(x,3),0.5)),dy),0)", 0},
};

static int find_compound(nnc_op op)
{
    int i = 0;
    while (i < (int)NNC_COUNT(compound) && compound[i].op != op)
        i++;
    return i < (int)NNC_COUNT(compound) ? i : -1;
}

bool has_derivative(nnc_op op)
{
    return nnc_op_class(op) == CL_ewise || find_compound(op) >= 0;
}

static double alpha_of(const visit *a)
{
    return nnc_attr_float(&a->n, AT_alpha, compound[find_compound(a->n.op)].alpha);
}

/* max(x, 2) is a clamp: where x = 2, all of the gradient is x's, not half. */
static const char *clamp_derivative(const visit *a)
{
    double v;
    bool first = nnc_const_scalar(a->g, a->n.in[0], &v);
    if (!first && !nnc_const_scalar(a->g, a->n.in[1], &v))
        return NULL;
    if (a->n.op == OP_max)
        return first ? ";ge(b,a)" : "ge(a,b)";
    return first ? ";le(b,a)" : "le(a,b)";
}

/* Does v consist of sums and products of squares or other powers, and positive numbers? Where it is 0, its derivatives are. */
static bool sums_powers(const nnc_graph *g, nnc_ref v, int depth)
{
    const nnc_node *n = nnc_def(g, v);
    double e;
    bool linear = false;
    switch (n->op) {
    case OP_square: return true;
    case OP_pow: return nnc_const_scalar(g, n->in[1], &e) && e > 1;
    case OP_constant: return nnc_const_scalar(g, v, &e) && e > 0;
    case OP_mul:
    case OP_add:
    case OP_div:
    case OP_conv:
    case OP_avgpool:
    case OP_reduce_sum:
    case OP_reduce_mean:
    case OP_broadcast:
    case OP_reshape:
    case OP_transpose: linear = true; break;
    default: break;
    }
    if (n->op == OP_mul && n->in[0] == n->in[1])
        return true;
    for (int i = 0; linear && i < n->n_in; i++)
        linear = depth && sums_powers(g, n->in[i], depth - 1);
    return linear;
}

/* sqrt(v), or v to a power below 1, of such a sum is a norm, or a deviation: of zeros it has gradient 0, not 0 times infinity. */
static const char *norm_derivative(const visit *a)
{
    double e = 0.5;
    if (a->n.op == OP_pow && (!nnc_const_scalar(a->g, a->n.in[1], &e) || e <= 0 || e >= 1))
        return NULL;
    return !sums_powers(a->g, a->n.in[0], 8) ? NULL
           : a->n.op == OP_sqrt              ? "select(eq(y,0),0,mul(dy,div(0.5,y)))"
                                             : "select(eq(y,0),0,mul(dy,mul(b,pow(a,sub(b,1)))))";
}

static const char *derivative_of(const visit *a)
{
    const nnc_op of = a->n.op;
    const char *clamp = of == OP_max || of == OP_min    ? clamp_derivative(a)
                        : of == OP_sqrt || of == OP_pow ? norm_derivative(a)
                                                        : NULL;
    nnc_sop op;
    int i = find_compound(of);
    if (clamp)
        return clamp;
    if (i < 0)
        return nnc_sop_of(of, &op) ? nnc_sops[op].deriv : "";
    if (of == OP_elu && alpha_of(a) < 0) /* y has not the sign of x */
        return "select(gt(x,0),dy,mul(dy,add(y,alpha)))";
    return compound[i].deriv;
}

static nnc_ref named(reader *r, const char *name, size_t n)
{
    const nnc_node *node = &r->a->n;
    if (n > 2)
        return nnc_scalar(r->a->g, dtype_of(r->a, r->like), alpha_of(r->a));
    if (n == 2) {
        r->whole = true;
        return r->a->dy[0];
    }
    return *name == 'y' ? node->out : node->in[*name == 'x' ? 0 : *name - 'a'];
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
        return parse_number(r);
    while (isalnum((unsigned char)*r->s))
        r->s++;
    return *r->s == '(' ? call(r, s, (size_t)(r->s - s)) : named(r, s, (size_t)(r->s - s));
}

/* dy times the derivative that s stands for, or the gradient for which it does. */
static nnc_ref times(visit *a, const char *s, size_t n)
{
    nnc_ref dy = a->dy[0];
    if (n == 1 && *s == '1')
        return dy;
    if (n == 2 && s[0] == '-' && s[1] == '1')
        return nnc_build1(a->g, OP_neg, dy);
    reader r = {.a = a, .s = s, .like = dy};
    nnc_ref f = expression(&r);
    if (f == NNC_NONE || r.whole)
        return f;
    if (dtype_of(a, f) == DT_bool)
        return nnc_build3(a->g, OP_select, f, dy, nnc_scalar(a->g, dtype_of(a, dy), 0));
    return nnc_build2(a->g, OP_mul, dy, f);
}

void ewise_rule(visit *a)
{
    if (a->n.op == OP_cast) {
        give(a, 0, nnc_cast(a->g, a->dy[0], dtype_of(a, a->n.in[0])));
        return;
    }
    const char *s = derivative_of(a);
    for (int k = 0; k < a->n.n_in && *s; k++) {
        size_t n = strcspn(s, ";");
        if (n && wanted(a, k))
            give(a, k, times(a, s, n));
        s += n + (s[n] == ';');
    }
}
