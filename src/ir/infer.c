/* ir/infer.c -- shape inference: dispatch, rules that hold for every op (operand counts, attributes, dtypes), leaves, elementwise ops and
 * fused regions. The other classes are in infer_move.c, infer_window.c and infer_nest.c.
 *
 * Messages are for the author of the model. They say which op, what was found, what would be right, and the nearest valid choice, if
 * any. */
#include "ir/infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

nnc_status nnc_infer_fail(infer *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    nnc_vfail(c->sink, NNC_E_MODEL, nnc_node_loc(c->n), op_name(c), fmt, ap);
    va_end(ap);
    return NNC_E_MODEL;
}

/* "1,2,3" into s[0..cap). */
static void list_into(char *s, size_t cap, const int64_t *v, int n, char by)
{
    size_t at = 0;
    s[0] = 0;
    for (int i = 0; i < n; i++) {
        int k = snprintf(s + at, cap - at, "%.*s%" PRId64, i > 0, &by, v[i]);
        if (k < 0 || (size_t)k >= cap - at) {
            snprintf(s + (at < cap - 4 ? at : cap - 4), 4, "...");
            return;
        }
        at += (size_t)k;
    }
}

const char *nnc_infer_list(infer *c, const int64_t *v, int n, char by)
{
    char *s = c->text[c->next++ & 3];
    list_into(s, sizeof c->text[0], v, n, by);
    return s;
}

static const char *shown(infer *c, const char *dtype, const nnc_type *t)
{
    char list[200], *s = c->text[c->next++ & 3];
    list_into(list, sizeof list, t->dim, t->rank, ',');
    snprintf(s, sizeof c->text[0], "%s[%s]", dtype, list);
    return s;
}

const char *nnc_infer_dims(infer *c, const nnc_type *t)
{
    return shown(c, "", t);
}

const char *nnc_infer_show(infer *c, const nnc_type *t)
{
    return shown(c, nnc_dtype_name(t->dtype), t);
}

/* ---- shared checks --------------------------------------------------------------------------- */

/* The wider of two dtypes, for the cast that a message suggests: float over integer over bool, then by size. */
static nnc_dtype wider(nnc_dtype a, nnc_dtype b)
{
    int ka = nnc_is_float(a) ? 2 : nnc_dtype_kind(a) != NNC_BOOL;
    int kb = nnc_is_float(b) ? 2 : nnc_dtype_kind(b) != NNC_BOOL;
    if (ka != kb)
        return ka > kb ? a : b;
    return nnc_dtype_size(a) >= nnc_dtype_size(b) ? a : b;
}

static nnc_status same_dtype(infer *c, int i, int k)
{
    nnc_dtype a = arg(c, i)->dtype, b = arg(c, k)->dtype;
    if (a == b)
        return NNC_OK;
    nnc_dtype w = wider(a, b);
    return fail(c,
        "operand %d is %s but operand %d is %s; nothing is converted silently: cast operand %d "
        "to %s",
        i + 1, nnc_dtype_name(a), k + 1, nnc_dtype_name(b), w == a ? k + 1 : i + 1,
        nnc_dtype_name(w));
}

nnc_status nnc_infer_same_dtype(infer *c)
{
    for (int i = 1; i < c->n->n_in; i++)
        NNC_TRY(same_dtype(c, 0, i));
    return NNC_OK;
}

nnc_status nnc_infer_number(infer *c, int i)
{
    if (arg(c, i)->dtype != DT_bool)
        return NNC_OK;
    return fail(c, "operand %d is bool, which has no arithmetic; cast it to i32 or f32", i + 1);
}

nnc_status nnc_infer_float(infer *c, int i)
{
    nnc_dtype d = arg(c, i)->dtype;
    if (nnc_is_float(d))
        return NNC_OK;
    return fail(
        c, "operand %d is %s; it must be a float: cast it to f32", i + 1, nnc_dtype_name(d));
}

nnc_status nnc_infer_integer(infer *c, int i)
{
    nnc_dtype d = arg(c, i)->dtype;
    if (nnc_dtype_kind(d) == NNC_INT || nnc_dtype_kind(d) == NNC_UINT)
        return NNC_OK;
    return fail(c, "the index is %s; it must be an integer: cast it to i64", nnc_dtype_name(d));
}

nnc_status nnc_infer_axis(infer *c, int64_t axis, int rank, const char *what)
{
    if (axis >= 0 && axis < rank)
        return NNC_OK;
    if (rank == 0)
        return fail(
            c, "%s is %" PRId64 ", but the operand is a scalar: it has no dimensions", what, axis);
    if (axis < 0 && axis >= -rank)
        return fail(c, "%s is %" PRId64 "; the graph counts from the front only: write %" PRId64,
            what, axis, axis + rank);
    return fail(
        c, "%s is %" PRId64 ", but the operand has dimensions 0 to %d", what, axis, rank - 1);
}

nnc_status nnc_infer_axes(infer *c, const int64_t *axes, int n, int rank)
{
    if (n == 0)
        return fail(c, "axes is empty; name at least one dimension");
    for (int i = 0; i < n; i++) {
        NNC_TRY(nnc_infer_axis(c, axes[i], rank, "an axis"));
        if (i > 0 && axes[i] <= axes[i - 1])
            return fail(
                c, "axes [%s] must ascend, each named once", nnc_infer_list(c, axes, n, ','));
    }
    return NNC_OK;
}

nnc_status nnc_infer_vector(infer *c, int i, int64_t extent, const char *name)
{
    const nnc_type *t = arg(c, i);
    if (t->rank == 1 && t->dim[0] == extent)
        return NNC_OK;
    return fail(
        c, "%s has the shape %s; it must be [%" PRId64 "]", name, nnc_infer_dims(c, t), extent);
}

nnc_status nnc_infer_broadcast(infer *c, const nnc_type *a, const nnc_type *b, nnc_type *out)
{
    out->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= out->rank; i++) { /* from the right, as numpy aligns */
        int64_t p = i <= a->rank ? a->dim[a->rank - i] : 1;
        int64_t q = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (p != q && p != 1 && q != 1)
            return fail(c,
                "shapes %s and %s do not broadcast: dimension %d from the right is %" PRId64
                " against %" PRId64 "; they must be equal, or one of them 1",
                nnc_infer_dims(c, a), nnc_infer_dims(c, b), i, p, q);
        out->dim[out->rank - i] = p == 1 ? q : p;
    }
    return NNC_OK;
}

nnc_status nnc_infer_set(infer *c, nnc_dtype d, int rank, const int64_t *dim)
{
    c->out[0] = nnc_type_make(d, rank, dim);
    return NNC_OK;
}

nnc_status nnc_infer_follow(infer *c, int i, const nnc_type *t)
{
    if (t->rank == c->out[i].rank)
        nnc_type_set_order(&c->out[i], t->order);
    return NNC_OK;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* True when the op's row allows (or, with `required`, requires) this attribute. */
static bool row_has(const char *row, const char *name, bool *required)
{
    size_t n = strlen(name);
    for (const char *p = row; *p;) {
        size_t len = strcspn(p, " ");
        size_t word = len && p[len - 1] == '?' ? len - 1 : len;
        if (word == n && !memcmp(p, name, n)) {
            *required = word == len;
            return true;
        }
        p += len + strspn(p + len, " ");
    }
    return false;
}

static nnc_status check_word(infer *c, const nnc_attr *a)
{
    static const char *const modes[] = {"constant", "reflect", "edge"};
    static const char *const forms[] = {"none", "tanh"};
    static const char *const updates[] = {"none", "add", "mul", "min", "max"};
    static const char *const steps[] = {"tanh", "relu"}, *const bn[] = {"auto", "train", "eval"};
    const struct {
        nnc_akey key;
        const char *const *words;
        size_t n;
    } list[] = {{AT_mode, modes, NNC_COUNT(modes)}, {AT_reduction, updates, NNC_COUNT(updates)},
        {AT_activation, steps, NNC_COUNT(steps)}, {AT_bn, bn, NNC_COUNT(bn)}};
    const char *const *words = forms;
    size_t n = NNC_COUNT(forms);
    for (size_t i = 0; i < NNC_COUNT(list); i++)
        if (list[i].key == a->key) {
            words = list[i].words;
            n = list[i].n;
        }
    for (size_t i = 0; i < n; i++)
        if (a->word && !strcmp(a->word, words[i]))
            return NNC_OK;
    const char *near = a->word ? nnc_nearest(a->word, words, n) : NULL;
    char all[64] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof all; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s",
            i == 0      ? ""
            : i + 1 < n ? ", "
                        : " or ",
            words[i]);
    return fail(c, "%s is \"%s\"; it must be %s%s%s%s", nnc_attrs[a->key].name,
        a->word ? a->word : "", all, near ? "; did you mean \"" : "", near ? near : "",
        near ? "\"?" : "");
}

/* Rejects NaN, and infinities except for clip's bounds and pad's value. */
static nnc_status check_float(infer *c, const nnc_attr *a)
{
    bool open = a->key == AT_lo || a->key == AT_hi || a->key == AT_value;
    if (a->key == AT_value || (isfinite(a->f) && a->key != AT_eps))
        return NNC_OK;
    if (isnan(a->f) || (!open && isinf(a->f)))
        return fail(c, "%s is %g; it must be a%s number", nnc_attrs[a->key].name, a->f,
            open ? "" : " finite");
    if (a->key == AT_eps && a->f < 0)
        return fail(c, "eps is %g; it must not be negative", a->f);
    return NNC_OK;
}

static nnc_status check_attr(infer *c, const nnc_attr *a)
{
    const char *name = nnc_attrs[a->key].name;
    bool required;
    if (!row_has(nnc_ops[c->n->op].attrs, name, &required))
        return fail(c, "there is no attribute \"%s\"; it has: %s", name,
            nnc_ops[c->n->op].attrs[0] ? nnc_ops[c->n->op].attrs : "none");
    switch (nnc_attrs[a->key].kind) {
    case AK_bool:
        if (a->i != 0 && a->i != 1)
            return fail(c, "%s is %" PRId64 "; it must be 0 or 1", name, a->i);
        return NNC_OK;
    case AK_dtype:
        if (a->i < 0 || a->i >= DT__COUNT)
            return fail(c, "%s is no type", name);
        return NNC_OK;
    case AK_float: return check_float(c, a);
    case AK_word: return check_word(c, a);
    case AK_int:
    case AK_ints: return NNC_OK;
    }
    return NNC_OK;
}

static nnc_status check_attrs(infer *c)
{
    const nnc_node *n = c->n;
    for (int i = 0; i < n->n_attr; i++) {
        NNC_TRY(check_attr(c, &n->attr[i]));
        if (i > 0 && n->attr[i].key == n->attr[i - 1].key)
            return fail(c, "the attribute \"%s\" is given twice", nnc_attrs[n->attr[i].key].name);
    }
    for (const char *p = nnc_ops[n->op].attrs; *p;) {
        size_t len = strcspn(p, " ");
        nnc_akey key;
        if (p[len - 1] != '?' && nnc_attr_parse(p, len, &key) && !nnc_attr_find(n, key))
            return fail(
                c, "the attribute \"%.*s\" is missing (%s)", (int)len, p, nnc_attrs[key].doc);
        p += len + strspn(p + len, " ");
    }
    return NNC_OK;
}

static nnc_status check_count(infer *c)
{
    const nnc_op_info *o = &nnc_ops[c->n->op];
    int n = c->n->n_in;
    if (n >= o->n_min && (o->n_max < 0 || n <= o->n_max))
        return NNC_OK;
    if (o->n_max < 0)
        return fail(c, "%d operands; it takes at least %d", n, o->n_min);
    if (o->n_min == o->n_max)
        return fail(c, "%d operand%s; it takes %d", n, n == 1 ? "" : "s", o->n_min);
    return fail(c, "%d operand%s; it takes %d to %d", n, n == 1 ? "" : "s", o->n_min, o->n_max);
}

/* ---- leaves, elementwise, regions ------------------------------------------------------------ */

nnc_status nnc_infer_leaf(infer *c)
{
    const nnc_node *n = c->n;
    const char *what;
    if (n->out != NNC_NONE) /* already in the graph, with its type */
        c->out[0] = c->g->value[n->out].type;
    if (!nnc_type_check(&c->out[0], &what))
        return fail(c, "%s", what);
    if (!nnc_type_is_dense(&c->out[0]))
        return fail(c, "its type is a part of a larger tensor; it must be a whole one");
    if (n->op == OP_iota) {
        if (c->out[0].dtype == DT_bool)
            return fail(c, "its type is bool; it must be a number: i64 or f32");
        return nnc_infer_axis(c, nnc_attr_int(n, AT_dim, 0), c->out[0].rank, "dim");
    }
    if (n->op == OP_input)
        return n->weight ? fail(c, "an input holds no numbers; make it a param") : NNC_OK;
    if (!n->weight)
        return fail(c, "its numbers are missing: generated, from a file, or inline");
    if (n->op == OP_constant && n->weight->kind != NNC_W_inline)
        return fail(c, "its numbers must stand in the graph; make it a param");
    int64_t bytes = nnc_type_bytes(&c->out[0]);
    if (n->weight->n_part && nnc_weight_fault(n->weight, &c->out[0]))
        return fail(c, "%s: %s", n->weight->name ? n->weight->name : "the weight",
            nnc_weight_fault(n->weight, &c->out[0]));
    if (n->weight->kind == NNC_W_file && !n->weight->n_part && n->weight->size != bytes)
        return fail(c, "%s holds %" PRId64 " bytes in the file, but %s needs %" PRId64,
            n->weight->name ? n->weight->name : "the weight", n->weight->size,
            nnc_infer_show(c, &c->out[0]), bytes);
    if (n->weight->kind == NNC_W_file && (n->weight->offset < 0 || !n->weight->file))
        return fail(c, "its place in the file is wrong: offset %" PRId64, n->weight->offset);
    if (n->weight->kind == NNC_W_gen && !n->weight->name)
        return fail(c, "a generated weight needs a name");
    return NNC_OK;
}

/* The dtypes that an elementwise op supports, and that of its result. */
static nnc_status ewise_dtype(infer *c, nnc_dtype *out)
{
    nnc_op op = c->n->op;
    uint32_t flags = nnc_ops[op].flags;
    bool logic = op == OP_not || op == OP_and || op == OP_or || op == OP_xor;
    bool any = op == OP_identity || op == OP_cast || op == OP_dropout || op == OP_eq || op == OP_ne;
    int first = op == OP_select;
    if (op == OP_select && arg(c, 0)->dtype != DT_bool)
        return fail(c, "the condition is %s; it must be bool (a comparison gives one)",
            nnc_dtype_name(arg(c, 0)->dtype));
    for (int i = first; i < c->n->n_in; i++) {
        if (logic && arg(c, i)->dtype != DT_bool)
            return fail(c, "operand %d is %s; it must be bool (a comparison gives one)", i + 1,
                nnc_dtype_name(arg(c, i)->dtype));
        if (flags & OF_float || op == OP_leaky_relu || op == OP_prelu)
            NNC_TRY(nnc_infer_float(c, i));
        if (!logic && !any && op != OP_select)
            NNC_TRY(nnc_infer_number(c, i));
        if (flags & OF_int && nnc_is_float(arg(c, i)->dtype))
            return fail(c, "operand %d is %s; it must be an integer", i + 1,
                nnc_dtype_name(arg(c, i)->dtype));
        NNC_TRY(same_dtype(c, first, i));
    }
    *out = arg(c, first)->dtype;
    if (op == OP_cast)
        *out = (nnc_dtype)nnc_attr_int(c->n, AT_to, DT_f32);
    else if (flags & OF_bool)
        *out = DT_bool;
    return NNC_OK;
}

static nnc_status check_clip(infer *c)
{
    double lo = nnc_attr_float(c->n, AT_lo, -INFINITY), hi = nnc_attr_float(c->n, AT_hi, INFINITY);
    if (lo > hi)
        return fail(c, "lo %g is above hi %g", lo, hi);
    if (nnc_is_float(arg(c, 0)->dtype))
        return NNC_OK;
    const double bound[2] = {lo, hi};
    for (int i = 0; i < 2; i++)
        if (isfinite(bound[i]) && (bound[i] != floor(bound[i]) || fabs(bound[i]) > 0x1p53))
            return fail(c, "the bound %g of a %s must be an integer up to 2^53", bound[i],
                nnc_dtype_name(arg(c, 0)->dtype));
    return NNC_OK;
}

static nnc_status check_dropout(infer *c)
{
    const double p = nnc_attr_float(c->n, AT_alpha, 0.5);
    return p >= 0 && p <= 1
               ? NNC_OK
               : fail(c, "alpha %g is no probability: expected a number from 0 to 1", p);
}

nnc_status nnc_infer_ewise(infer *c)
{
    nnc_dtype d = DT_f32;
    NNC_TRY(ewise_dtype(c, &d));
    nnc_type t = *arg(c, 0);
    for (int i = 1; i < c->n->n_in; i++) {
        nnc_type so_far = t;
        NNC_TRY(nnc_infer_broadcast(c, &so_far, arg(c, i), &t));
    }
    nnc_infer_set(c, d, t.rank, t.dim);
    for (int i = 0; i < c->n->n_in; i++)
        if (nnc_type_same_shape(arg(c, i), &c->out[0])) {
            nnc_infer_follow(c, 0, arg(c, i));
            break;
        }
    return c->n->op == OP_clip ? check_clip(c) : c->n->op == OP_dropout ? check_dropout(c) : NNC_OK;
}

/* Are the types equal except for gaps? A fused node's operands may be parts of larger tensors, its body's inputs are dense. */
static bool is_in_order(const nnc_type *t, const nnc_type *want)
{
    const nnc_type dense = nnc_type_dense(t);
    return nnc_type_same_memory(&dense, want);
}

nnc_status nnc_infer_fused(infer *c)
{
    const nnc_graph *b = c->n->body;
    int k = 0;
    if (!b)
        return fail(c, "the body is missing");
    if (b->n_output == 0)
        return fail(c, "the body returns nothing");
    for (uint32_t i = 0; i < b->n_node; i++) {
        const nnc_node *m = &b->node[i];
        if (m->op == OP_param || m->op == OP_fused)
            return fail(c, "a body holds no %s; make it an operand", nnc_ops[m->op].name);
        if (m->op != OP_input)
            continue;
        const nnc_type *want = nnc_typeof(b, m->out);
        if (k < c->n->n_in && !(arg(c, k)->dtype == want->dtype && is_in_order(arg(c, k), want)))
            return fail(c, "operand %d is %s, but the body's input is %s%s", k + 1,
                nnc_infer_show(c, arg(c, k)), nnc_infer_show(c, want),
                nnc_type_same_shape(arg(c, k), want) ? " in another memory order" : "");
        k++;
    }
    if (k != c->n->n_in)
        return fail(c, "%d operands, but the body has %d inputs", c->n->n_in, k);
    for (uint32_t i = 0; i < b->n_output; i++)
        c->out[i] = *nnc_typeof(b, b->output[i]);
    return NNC_OK;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

nnc_status nnc_infer(const nnc_graph *g, nnc_node *n, nnc_type *out_type, nnc_sink *sink)
{
    static nnc_status (*const rules[OP__COUNT])(infer *) = {
#define OP(name, nmin, nmax, cls, rule, flags, work, lo, hi, attrs, doc) nnc_infer_##rule,
#include "ir/ops.def"
    };
    infer c = {.g = g, .n = n, .out = out_type, .sink = sink};
    if (n->op >= OP__COUNT)
        return nnc_fail(sink, NNC_E_BUG, nnc_node_loc(n), "there is no op %d", n->op);
    NNC_TRY(check_count(&c));
    NNC_TRY(check_attrs(&c));
    NNC_TRY(rules[n->op](&c));
    int count = nnc_result_count(n);
    for (int i = 0; i < count; i++) {
        const char *what;
        out_type[i] = nnc_type_dense(&out_type[i]);
        if (!nnc_type_check(&out_type[i], &what))
            return fail(
                &c, "the result %s is too large: %s", nnc_infer_show(&c, &out_type[i]), what);
    }
    return NNC_OK;
}
