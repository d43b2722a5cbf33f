/* passes/precision.c -- --precision=f16|bf16: contractions use 16-bit operands and accumulate in f32. Values between them are 16 bits wide,
 * everything else is unchanged.
 *
 * One forward and two backward steps over the nodes, in order, decide which use 16 bits.
 *   forward  An f32 contraction that the target's engines support in 16 bits uses them. So does an op for which 16 bits suffice
 *            (OF_half), once all its operands computed by main are 16 bits wide. Rounding an f32 operand earlier costs accuracy and saves
 *            nothing, since the cast is part of the kernel that computes it.
 *   back     An op that rounds, all of whose users need f32, reverts to f32: the users convert when they read.
 *   back     A movement that reads no more than it writes, and whose users all use 16 bits, uses 16 bits. Moving rounded numbers gives the
 *            same bits, at half the size.
 * Casts are inserted at the boundaries, one for all users of a value. Weights are cast once, by `init`; constants are rounded here. Running
 * the pass again changes nothing: no f32 contraction remains that an engine supports in 16 bits. */
#include "passes/internal.h"

#include <math.h>

typedef struct prec {
    pass *p;
    nnc_dtype d; /* f16, bf16 */
    bool *half; /* per node */
    const char **
        why; /* per node: the reason why it stays f32, where it reads 16-bit values or is a contraction */
    nnc_ref *other; /* per value: its cast, or NNC_NONE */
    uint32_t n_node; /* of the graph before casts */
} prec;

static nnc_dtype dtype_of(const prec *s, nnc_ref v)
{
    return type_of(s->p, v)->dtype;
}

/* ---- selection ----------------------------------------------------------------------------------------------------- */

/* True when x stays finite in type d if it is finite; `alone`: and does not become zero. */
static bool fits(nnc_dtype d, double x, bool alone)
{
    uint64_t bits = 0;
    nnc_set_f64(d, &bits, 0, x);
    double y = nnc_get_f64(d, &bits, 0);
    return !isfinite(x) || (isfinite(y) && (y != 0 || x == 0 || !alone));
}

/* Inline constants: a single number, or one of many. */
static bool constant_fits(const prec *s, nnc_ref v, double *bad)
{
    const nnc_node *n = def_of(s->p, v);
    if (nnc_const_scalar(s->p->g, v, bad))
        return fits(s->d, *bad, true);
    if (n->op != OP_constant || n->weight->kind != NNC_W_inline || dtype_of(s, v) != DT_f32)
        return true;
    int64_t numel = numel_of(s->p, v);
    for (int64_t i = 0; i < numel; i++) {
        *bad = nnc_get_f64(DT_f32, n->weight->data, i);
        if (!fits(s->d, *bad, false))
            return false;
    }
    return true;
}

/* True when the numbers in the node's text fit: constant operands, attributes. */
static bool numbers_fit(const prec *s, const nnc_node *n, double *bad)
{
    for (int k = 0; k < n->n_in; k++)
        if (!constant_fits(s, n->in[k], bad))
            return false;
    for (int k = 0; k < n->n_attr; k++) {
        *bad = n->attr[k].f;
        if (nnc_attrs[n->attr[k].key].kind == AK_float && !fits(s->d, *bad, true))
            return false;
    }
    return true;
}

static bool results_are_f32(const prec *s, const nnc_node *n)
{
    for (uint32_t o = 0; o < n->n_out; o++)
        if (dtype_of(s, n->out + o) != DT_f32)
            return false;
    return n->n_out > 0;
}

/* Number of f32 operands computed by main that are 16 bits wide now; *wide: one that is not. */
static int half_operands(const prec *s, const nnc_node *n, nnc_ref *wide)
{
    int k16 = 0;
    *wide = NNC_NONE;
    for (int k = 0; k < n->n_in; k++) {
        nnc_ref v = n->in[k];
        if (dtype_of(s, v) != DT_f32 || edit_static(s->p, v))
            continue;
        if (s->half[s->p->g->value[v].node])
            k16++;
        else
            *wide = v;
    }
    return k16;
}

static void forward(prec *s, uint32_t i)
{
    pass *p = s->p;
    const nnc_node *n = &p->g->node[i];
    nnc_ref wide;
    double bad = 0;
    int k16 = half_operands(s, n, &wide);
    if (nnc_op_class(n->op) == CL_contract && results_are_f32(s, n)) {
        const nnc_target *t = target_of(p, n);
        if (!nnc_target_contracts(t, s->d))
            s->why[i] = remark_text(
                p, "%s has no engine for contractions of %s", t->name, nnc_dtype_name(s->d));
        else if (!numbers_fit(s, n, &bad))
            s->why[i] = remark_text(
                p, "its number %g is not representable in %s", bad, nnc_dtype_name(s->d));
        s->half[i] = !s->why[i];
        return;
    }
    if (!k16)
        return;
    if (!(nnc_ops[n->op].flags & OF_half) || !results_are_f32(s, n))
        s->why[i] = remark_text(p,
            "%s would amplify the rounding of its operands, or exceed the range of %s: it reads %s "
            "and computes in f32",
            node_word(p, n), nnc_dtype_name(s->d), nnc_dtype_name(s->d));
    else if (wide != NNC_NONE)
        s->why[i] = remark_text(p, "its operand from %s is f32, and rounding that saves nothing",
            nnc_ops[def_of(p, wide)->op].name);
    else if (!numbers_fit(s, n, &bad))
        s->why[i] =
            remark_text(p, "its number %g is not representable in %s", bad, nnc_dtype_name(s->d));
    else
        s->half[i] = true;
}

/* Counts live users of node i's results that use 16 bits and those that do not; outputs do not. */
static void count_readers(const prec *s, uint32_t i, int *narrow, int *wide)
{
    const nnc_node *n = &s->p->g->node[i];
    *narrow = *wide = 0;
    for (uint32_t o = 0; o < n->n_out; o++) {
        *wide += edit_is_output(s->p, n->out + o);
        for (uint32_t u = 0, r; edit_next_user(s->p, n->out + o, &u, &r);)
            *(s->half[r] ? narrow : wide) += 1;
    }
}

static void give_up(prec *s, uint32_t i)
{
    int narrow, wide;
    nnc_op op = s->p->g->node[i].op;
    bool moves =
        nnc_op_class(op) == CL_contract || (!nnc_op_is_ewise(op) && nnc_ops[op].flags & OF_exact);
    if (!s->half[i] || moves)
        return;
    count_readers(s, i, &narrow, &wide);
    if (narrow)
        return;
    s->half[i] = false;
    s->why[i] = remark_text(s->p, "all consumers of its result need f32, so it stays f32");
}

static void take_up(prec *s, uint32_t i)
{
    pass *p = s->p;
    const nnc_node *n = &p->g->node[i];
    int narrow, wide, of_f32 = 0;
    int64_t read = 0;
    double bad;
    for (int k = 0; k < n->n_in; k++) {
        of_f32 += dtype_of(s, n->in[k]) == DT_f32;
        if (dtype_of(s, n->in[k]) == DT_f32 && !edit_static(p, n->in[k]))
            read += numel_of(p, n->in[k]);
    }
    if (s->half[i] || nnc_op_class(n->op) != CL_move || n->n_out != 1 || !of_f32 ||
        !results_are_f32(s, n) || read > numel_of(p, n->out) || !numbers_fit(s, n, &bad))
        return;
    count_readers(s, i, &narrow, &wide);
    s->half[i] = narrow > 0 && wide == 0;
}

static void choose_types(prec *s)
{
    for (uint32_t i = 0; i < s->n_node; i++)
        if (!s->p->e.is_static[i] && s->p->g->node[i].n_in)
            forward(s, i);
    for (uint32_t i = s->n_node; i-- > 0;)
        give_up(s, i);
    for (uint32_t i = s->n_node; i-- > 0;)
        if (!s->p->e.is_static[i])
            take_up(s, i);
}

/* ---- casts ------------------------------------------------------------------------------------- */

/* An inline constant in type d, rounded here. */
static nnc_ref round_constant(prec *s, nnc_ref v)
{
    const nnc_node *n = def_of(s->p, v);
    nnc_type t = *type_of(s->p, v);
    int64_t numel = nnc_type_numel(&t);
    t.dtype = (uint8_t)s->d;
    void *data = pass_alloc(s->p, (size_t)nnc_type_bytes(&t), 8);
    if (!data)
        return NNC_NONE;
    for (int64_t i = 0; i < numel; i++)
        nnc_set_f64(s->d, data, i, nnc_get_f64(DT_f32, n->weight->data, i));
    return nnc_constant(s->p->g, &t, data);
}

/* v in the wanted type: itself, or a cast shared by all users. */
static nnc_ref in_type(prec *s, nnc_ref v, nnc_dtype d, uint32_t reader)
{
    pass *p = s->p;
    const nnc_node *n = def_of(p, v);
    if (dtype_of(s, v) == d)
        return v;
    if (!edit_may_read(p, reader, v, s->other[v])) {
        edit_at_operand(p, reader, v);
        bool known = n->op == OP_constant && n->weight->kind == NNC_W_inline;
        s->other[v] = known ? round_constant(s, v) : nnc_cast(p->g, v, d);
    }
    return s->other[v];
}

static void narrow(prec *s, uint32_t i)
{
    pass *p = s->p;
    for (int k = 0; k < p->g->node[i].n_in && p->status == NNC_OK; k++) {
        nnc_ref v = p->g->node[i].in[k];
        if (dtype_of(s, v) == DT_f32)
            edit_set_operand(p, i, k, in_type(s, v, s->d, i));
    }
    const nnc_node *n = &p->g->node[i];
    for (uint32_t o = 0; o < n->n_out; o++)
        p->g->value[n->out + o].type.dtype = (uint8_t)s->d;
    edit_refresh(p, i);
}

/* Under --math=fast, gelu of a product takes its tanh form, within 5e-4 of the exact one. A GPU's library computes it in 16 bits in the
 * product's epilogue, so that no kernel reads and writes the result again. */
static bool take_tanh(const prec *s, uint32_t i)
{
    pass *p = s->p;
    nnc_node *n = &p->g->node[i];
    const nnc_node *c = n->n_in ? def_of(p, n->in[0]) : n;
    nnc_post post;
    if (p->o->policy.math != MATH_fast || n->op != OP_gelu || !nnc_node_post(n, &post) ||
        post.kind != PO_gelu_erf || target_of(p, n)->kind != NNC_T_cuda ||
        (c->op != OP_linear && c->op != OP_matmul) || edit_only_user(p, c->out) != n)
        return false;
    n->attr = ARENA_NEW(&p->g->arena, nnc_attr, 1);
    n->n_attr = n->attr != NULL;
    if (pass_made(p, n->attr != NULL))
        n->attr[0] = nnc_aw(AT_approximate, "tanh");
    return n->attr != NULL;
}

/* Gives users of v that need f32 a cast, now that v is 16 bits wide. */
static void widen_readers(prec *s, nnc_ref v)
{
    pass *p = s->p;
    for (uint32_t u = 0, i; p->status == NNC_OK && edit_next_user(p, v, &u, &i);)
        for (int k = 0; i < s->n_node && !s->half[i] && k < p->g->node[i].n_in; k++)
            if (p->g->node[i].in[k] == v)
                edit_set_operand(p, i, k, in_type(s, v, DT_f32, i));
    for (uint32_t o = 0; edit_is_output(p, v) && o < p->g->n_output; o++)
        if (p->g->output[o] == v)
            edit_set_output(p, o, in_type(s, v, DT_f32, p->g->value[v].node));
}

/* ---- regions ----------------------------------------------------------------------------------- */

/* Number of casts in main among the nodes from `from` on. */
static int count_casts(const prec *s, uint32_t from)
{
    int n = 0;
    for (uint32_t i = from; i < s->p->g->n_node; i++)
        n += s->p->g->node[i].op == OP_cast && !s->p->e.is_static[i] && !s->p->e.dead[i];
    return n;
}

static void convert(prec *s, const uint32_t *root, uint32_t first)
{
    pass *p = s->p;
    layers l = {0};
    int n_contract = 0, n_else = 0, n_tanh = 0;
    uint32_t before = p->g->n_node;
    for (uint32_t i = first; i < s->n_node && p->status == NNC_OK; i++)
        if (s->half[i] && root[i] == first) {
            layers_add(p, &l, i);
            *(nnc_op_class(p->g->node[i].op) == CL_contract ? &n_contract : &n_else) += 1;
            narrow(s, i);
            n_tanh += take_tanh(s, i);
        }
    for (uint32_t i = first; i < s->n_node && p->status == NNC_OK; i++)
        if (s->half[i] && root[i] == first)
            for (uint32_t o = 0; o < p->g->node[i].n_out; o++)
                widen_readers(s, p->g->node[i].out + o);
    if (!edit_sync(p))
        return;
    int casts = count_casts(s, before);
    const char *type = nnc_dtype_name(s->d);
    const char *others = n_else ? remark_text(p, " and %d op%s beside or between %s", n_else,
                                      n_else == 1 ? "" : "s", n_contract == 1 ? "it" : "them")
                                : "";
    remark_applied(p, &l, remark_text(p, "contractions in %s", type),
        "%d contraction%s%s on %s, sums in f32; %d cast%s at the border%s%s", n_contract,
        n_contract == 1 ? "" : "s", others, type, casts, casts == 1 ? "" : "s",
        casts ? ", each part of an adjacent kernel where there is one" : "",
        n_tanh ? "; gelu in its tanh form (--math=fast)" : "");
}

static void remark_kept(prec *s)
{
    const char *rule = remark_text(s->p, "stays in f32");
    for (uint32_t i = 0; i < s->n_node && s->p->status == NNC_OK; i++)
        if (s->why[i] && !s->half[i])
            decline_node(s->p, i, rule, "%s", s->why[i]);
}

/* Has no earlier device target k's name? */
static bool is_new_kind(const pass *p, int k)
{
    for (int i = 0; i < k; i++)
        if (!strcmp(p->o->target[i].name, p->o->target[k].name))
            return false;
    return true;
}

nnc_status pass_precision(pass *p)
{
    prec s = {.p = p, .d = nnc_precision_dtype(p->o->policy.precision), .n_node = p->g->n_node};
    layers none = {0};
    if (p->o->policy.precision == NNC_PRECISION_tf32)
        for (int k = 0; k < nnc_max64(p->o->n_target, 1); k++)
            if (is_new_kind(p, k) && !p->o->target[k].flops_tf32)
                remark_declined(p, &none, "contractions in tf32",
                    "%s has no tensor cores for tf32: contractions of f32 stay f32",
                    p->o->target[k].name);
    if (s.d == DT_f32)
        return NNC_OK;
    size_t n_value = p->g->n_value + (size_t)1;
    s.other = ARENA_NEW(p->a, nnc_ref, n_value);
    NNC_NEED(s.other && ARENA_ARRAYS(p->a, s.n_node + (size_t)1, s.half, s.why), p->sink);
    memset(s.other, 0xff, n_value * sizeof *s.other);
    choose_types(&s);
    const uint32_t *root = find_regions(p, s.half, s.n_node);
    if (!root)
        return p->status;
    for (uint32_t i = 0; i < s.n_node && p->status == NNC_OK; i++)
        if (s.half[i] && root[i] == i)
            convert(&s, root, i);
    if (p->status == NNC_OK)
        remark_kept(&s);
    for (int k = 0; k < nnc_max64(p->o->n_target, 1) && p->status == NNC_OK && p->changed; k++)
        if (is_new_kind(p, k) && !p->o->target[k].flops_f16)
            remark_declined(p, &none, remark_text(p, "faster in %s", nnc_dtype_name(s.d)),
                "%s computes %s no faster than f32: this saves memory, and costs time",
                p->o->target[k].name, nnc_dtype_name(s.d));
    return p->status;
}
