/* ir/ops.c -- the tables of ops, scalar ops and attributes, made from ops.def, scalar.def and
 * attrs.def, and the look-up of their names. The sorted indices are made once per process, at the
 * first look-up. */
#include "ir/ir.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const nnc_op_info nnc_ops[OP__COUNT] = {
#define OP(name, nmin, nmax, cls, flags, work, lo, hi, attrs, doc) \
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

static uint8_t op_index[OP__COUNT], sop_index[SC__COUNT], attr_index[AT__COUNT];
static int16_t sop_of[OP__COUNT]; /* -1: none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *op_name(int i)
{
    return nnc_ops[i].name;
}
static const char *sop_name(int i)
{
    return nnc_sops[i].name;
}
static const char *attr_name(int i)
{
    return nnc_attrs[i].name;
}

/* Insertion sort: a hundred names, once. */
static void sort_names(uint8_t *index, int n, const char *(*name)(int))
{
    for (int i = 0; i < n; i++) {
        int j = i;
        for (; j > 0 && strcmp(name(index[j - 1]), name(i)) > 0; j--)
            index[j] = index[j - 1];
        index[j] = (uint8_t)i;
    }
}

/* Position of the name in the table, or -1. */
static int find_name(
    const uint8_t *index, int n, const char *(*name)(int), const char *word, size_t len)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        const char *m = name(index[mid]);
        int c = strncmp(m, word, len);
        if (c == 0 && m[len] == 0)
            return index[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return -1;
}

static void make_indices(void)
{
    sort_names(op_index, OP__COUNT, op_name);
    sort_names(sop_index, SC__COUNT, sop_name);
    sort_names(attr_index, AT__COUNT, attr_name);
    for (int i = 0; i < OP__COUNT; i++) {
        const char *s = nnc_ops[i].name;
        sop_of[i] = -1;
        if (nnc_ops[i].cls == CL_ewise)
            sop_of[i] = (int16_t)find_name(sop_index, SC__COUNT, sop_name, s, strlen(s));
    }
}

bool nnc_op_parse(const char *name, size_t n, nnc_op *out)
{
    pthread_once(&once, make_indices);
    int i = find_name(op_index, OP__COUNT, op_name, name, n);
    if (i >= 0)
        *out = (nnc_op)i;
    return i >= 0;
}

bool nnc_sop_parse(const char *name, size_t n, nnc_sop *out)
{
    pthread_once(&once, make_indices);
    int i = find_name(sop_index, SC__COUNT, sop_name, name, n);
    if (i >= 0)
        *out = (nnc_sop)i;
    return i >= 0;
}

bool nnc_attr_parse(const char *name, size_t n, nnc_akey *out)
{
    pthread_once(&once, make_indices);
    int i = find_name(attr_index, AT__COUNT, attr_name, name, n);
    if (i >= 0)
        *out = (nnc_akey)i;
    return i >= 0;
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

nnc_attr nnc_ai(nnc_akey k, int64_t v)
{
    return (nnc_attr){.key = (uint8_t)k, .i = v};
}
nnc_attr nnc_af(nnc_akey k, double v)
{
    return (nnc_attr){.key = (uint8_t)k, .f = v};
}
nnc_attr nnc_aw(nnc_akey k, const char *word)
{
    return (nnc_attr){.key = (uint8_t)k, .word = word};
}
nnc_attr nnc_av(nnc_akey k, int n, const int64_t *v)
{
    return (nnc_attr){.key = (uint8_t)k, .n = n, .ints = v};
}

int nnc_result_count(const nnc_node *n)
{
    const int64_t *sizes;
    if (n->op == OP_split)
        return nnc_attr_ints(n, AT_sizes, &sizes);
    if (n->op == OP_fused)
        return n->body ? (int)n->body->n_output : 0;
    return 1;
}
