/* frontend/table.c -- the layer types with their keys. The rows are layers.def (layers with a builder of their own) and, for every
 * other op available in model files, ir/ops.def with its attributes as keys. */
#include "frontend/internal.h"
#include <string.h>

static const fe_row own[] = {
#define LAYER(name, n_min, n_max, op, build, keys, doc) \
    {#name, n_min, n_max, OP_##op, true, keys, build, doc},
#include "frontend/layers.def"
};
enum { N_OWN = NNC_COUNT(own) };

const fe_key_row fe_keys[FK__COUNT] = {
#define KEY(name, kind, lo, hi, doc) {#name, LK_##kind, offsetof(fe_spec, name), lo, hi, doc},
#include "frontend/keys.def"
};

/* Keys of ops with attributes; the defaults are those of inference, lowering and evaluation for absent attributes. */
static const struct {
    nnc_op op;
    const char *keys;
} op_keys[] = {{OP_argmax, "axis=-1 keepdims=true"}, {OP_argmin, "axis=-1 keepdims=true"},
    {OP_leaky_relu, "alpha=0.01"}, {OP_clip, "lo=-inf hi=inf"}, {OP_gelu, "approximate=none,tanh"},
    {OP_hardsigmoid, "alpha=1/6 beta=0.5"}, {OP_elu, "alpha=1"}, {OP_gather, "axis=0"},
    {OP_matmul, "transpose_a=false transpose_b=false"}, {OP_softmax, "axis=-1"},
    {OP_log_softmax, "axis=-1"}, {OP_cumsum, "axis exclusive=false reverse=false"},
    {OP_cumprod, "axis exclusive=false reverse=false"}, {OP_topk, "k axis=-1 largest=true"},
    {OP_scatter, "axis=0 reduction=none,add,mul,min,max"},
    {OP_scatter_nd, "reduction=none,add,mul,min,max"}, {OP_gather_elements, "axis=0"},
    {OP_gather_nd, "batch_dims=0"}};

const char *const fe_common[] = {"op", "layers", "name", "in", "device", "dtype", "frozen", "when",
    "repeat", "index", "weights", "output", "doc"};
const int fe_n_common = NNC_COUNT(fe_common);

bool fe_is_common(const char *key)
{
    for (int i = 0; i < fe_n_common; i++)
        if (!strcmp(key, fe_common[i]))
            return true;
    return false;
}

static const fe_row *find_own(const char *name)
{
    for (int i = 0; i < N_OWN; i++)
        if (own[i].name[0] == name[0] && !strcmp(own[i].name, name))
            return &own[i];
    return NULL;
}

/* Ops that only passes and autodiff make, and collectives, whose results are on several devices. */
static bool is_inner(nnc_op op)
{
    static const nnc_op inner[] = {OP_relayout, OP_fused, OP_argmaxpool, OP_maxpool_grad,
        OP_conv_wgrad, OP_winograd, OP_winograd_wgrad, OP_linear_scan, OP_recurrent_grad};
    for (size_t i = 0; i < NNC_COUNT(inner); i++)
        if (inner[i] == op)
            return true;
    return nnc_op_class(op) == CL_collective;
}

/* Is the op a layer type with its attributes as keys? */
static bool has_row(nnc_op op)
{
    return nnc_op_class(op) != CL_leaf && !is_inner(op) && !find_own(nnc_ops[op].name);
}

static fe_row op_row(nnc_op op)
{
    const nnc_op_info *o = &nnc_ops[op];
    fe_row row = (fe_row){o->name, o->n_min, o->n_max, op, false, o->attrs, fe_build_op, o->doc};
    if (o->cls == CL_ewise && o->n_max == 2) {
        row.n_min = 1;
        row.keys = "value?";
        row.build = fe_build_binary;
    } else if (o->cls == CL_reduce) { /* argmax and argmin: op_keys */
        row.keys = "axes=all keepdims=true";
    }
    for (size_t i = 0; i < NNC_COUNT(op_keys); i++)
        if (op_keys[i].op == op)
            row.keys = op_keys[i].keys;
    return row;
}

bool fe_layer_find(const char *name, fe_row *out)
{
    const fe_row *r = find_own(name);
    nnc_op op;
    if (r)
        *out = *r;
    else if (nnc_op_parse(name, strlen(name), &op) && has_row(op))
        *out = op_row(op);
    else
        return false;
    return true;
}

int fe_layer_count(void)
{
    int n = N_OWN;
    for (int op = 0; op < OP__COUNT; op++)
        n += has_row((nnc_op)op);
    return n;
}

fe_row fe_layer_at(int i)
{
    int op = 0;
    if (i < N_OWN)
        return own[i];
    for (i -= N_OWN; op + 1 < OP__COUNT && (!has_row((nnc_op)op) || i-- > 0); op++)
        ;
    return op_row((nnc_op)op);
}

bool fe_key_parse(const char *name, size_t n, fe_key *out)
{
    for (int i = 0; i < FK__COUNT; i++)
        if (strlen(fe_keys[i].name) == n && !memcmp(fe_keys[i].name, name, n)) {
            *out = (fe_key)i;
            return true;
        }
    return false;
}

bool fe_use_next(const char **p, fe_use *u)
{
    while (**p == ' ')
        ++*p;
    size_t n = strcspn(*p, " ?="), all = strcspn(*p, " ");
    if (n == 0 ||
        !fe_key_parse(*p, n, &u->key)) /* tests check that every name is a row of keys.def */
        return false;
    u->must = n == all;
    bool given = (*p)[n] == '=';
    snprintf(u->choices, sizeof u->choices, "%.*s", given ? (int)(all - n - 1) : 0, *p + n + 1);
    snprintf(u->dflt, sizeof u->dflt, "%.*s", (int)strcspn(u->choices, ","), u->choices);
    *p += all;
    return true;
}

bool fe_row_takes(const fe_row *r, fe_key key)
{
    fe_use u;
    for (const char *p = r->keys; fe_use_next(&p, &u);)
        if (u.key == key)
            return true;
    return false;
}
