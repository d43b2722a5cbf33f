/* ir/ops.c -- the tables of ops, scalar ops and attributes, made from ops.def, scalar.def and attrs.def, and name look-up. The sorted
 * indices are built at the first look-up. */
#include "ir/ir.h"

#include <pthread.h>
#include <string.h>

const nnc_op_info nnc_ops[OP__COUNT] = {
#define OP(name, nmin, nmax, cls, rule, flags, work, lo, hi, attrs, doc) \
    [OP_##name] = {#name, nmin, nmax, cls, flags, work, lo, hi, attrs, doc},
#include "ir/ops.def"
};

const nnc_sop_info nnc_sops[SC__COUNT] = {
#define SC(name, arity, res, flags, lo, hi, cost, ulp, value, cuda, deriv, doc) \
    [SC_##name] = {#name, arity, res, flags, lo, hi, cost, ulp, cuda, deriv, doc},
#include "ir/scalar.def"
};

const nnc_attr_info nnc_attrs[AT__COUNT] = {
#define AT(name, kind, doc) [AT_##name] = {#name, kind, doc},
#include "ir/attrs.def"
};

_Static_assert(
    OP__COUNT <= 256 && SC__COUNT <= 256 && AT__COUNT <= 64, "indices and sets are small");

/* The rows of a table, whose first member is their name, in the order of the names. */
typedef struct names {
    const void *row;
    size_t size;
    int n;
    uint8_t index[256];
} names;

static names op_names = {nnc_ops, sizeof nnc_ops[0], OP__COUNT, {0}};
static names sop_names = {nnc_sops, sizeof nnc_sops[0], SC__COUNT, {0}};
static names attr_names = {nnc_attrs, sizeof nnc_attrs[0], AT__COUNT, {0}};
static int16_t sop_of[OP__COUNT]; /* -1: none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *name_of(const names *t, int i)
{
    return *(const char *const *)((const char *)t->row + (size_t)i * t->size);
}

/* Insertion sort: a hundred names, once. */
static void sort_names(names *t)
{
    for (int i = 0; i < t->n; i++) {
        int j = i;
        for (; j > 0 && strcmp(name_of(t, t->index[j - 1]), name_of(t, i)) > 0; j--)
            t->index[j] = t->index[j - 1];
        t->index[j] = (uint8_t)i;
    }
}

/* The row of that name, or -1. */
static int find_name(const names *t, const char *word, size_t len)
{
    int lo = 0, hi = t->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        const char *m = name_of(t, t->index[mid]);
        int c = strncmp(m, word, len);
        if (c == 0 && m[len] == 0)
            return t->index[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

static void make_indices(void)
{
    sort_names(&op_names);
    sort_names(&sop_names);
    sort_names(&attr_names);
    for (int i = 0; i < OP__COUNT; i++) {
        const char *s = nnc_ops[i].name;
        bool ewise = nnc_ops[i].cls == CL_ewise;
        sop_of[i] = (int16_t)(ewise ? find_name(&sop_names, s, strlen(s)) : -1);
    }
}

static bool parse_name(const names *t, const char *name, size_t n, int *out)
{
    pthread_once(&once, make_indices);
    int i = find_name(t, name, n);
    if (i >= 0)
        *out = i;
    return i >= 0;
}

bool nnc_op_parse(const char *name, size_t n, nnc_op *out)
{
    return parse_name(&op_names, name, n, (int *)out);
}

bool nnc_sop_parse(const char *name, size_t n, nnc_sop *out)
{
    return parse_name(&sop_names, name, n, (int *)out);
}

bool nnc_attr_parse(const char *name, size_t n, nnc_akey *out)
{
    return parse_name(&attr_names, name, n, (int *)out);
}

bool nnc_sop_of(nnc_op op, nnc_sop *out)
{
    pthread_once(&once, make_indices);
    if (sop_of[op] < 0)
        return false;
    *out = (nnc_sop)sop_of[op];
    return true;
}

const nnc_attr *nnc_attr_find(const nnc_node *n, nnc_akey k)
{
    for (int i = 0; i < n->n_attr; i++)
        if (n->attr[i].key == k)
            return &n->attr[i];
    return NULL;
}

int64_t nnc_attr_int(const nnc_node *n, nnc_akey k, int64_t dflt)
{
    const nnc_attr *a = nnc_attr_find(n, k);
    return a ? a->i : dflt;
}

double nnc_attr_float(const nnc_node *n, nnc_akey k, double dflt)
{
    const nnc_attr *a = nnc_attr_find(n, k);
    return a ? a->f : dflt;
}

int nnc_attr_ints(const nnc_node *n, nnc_akey k, const int64_t **out)
{
    const nnc_attr *a = nnc_attr_find(n, k);
    *out = a ? a->ints : NULL;
    return a ? a->n : 0;
}

int nnc_index_operand(const nnc_node *n)
{
    return n->op == OP_gather || n->op == OP_gather_elements || n->op == OP_gather_nd ||
           n->op == OP_scatter || n->op == OP_scatter_nd;
}

int nnc_result_count(const nnc_node *n)
{
    const int64_t *sizes;
    if (n->op == OP_split)
        return nnc_attr_ints(n, AT_sizes, &sizes);
    if (nnc_op_class(n->op) == CL_collective)
        return n->n_in;
    if (n->op == OP_fused)
        return n->body ? (int)n->body->n_output : 0;
    return n->op == OP_topk || n->op == OP_lstm || n->op == OP_recurrent_grad ? 2 : 1;
}
