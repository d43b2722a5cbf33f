/* target/engines.c -- the engines, in order of preference: where they run, what they compute, and at which share of the peak. */
#include "target/internal.h"
#include <string.h>

enum {
    CONVS = 1 << ASK_conv | 1 << ASK_conv_transpose | 1 << ASK_conv_wgrad,
    PRODUCTS = 1 << ASK_matmul
};

typedef struct known {
    const char *name;
    nnc_tkind kind;
    double efficiency;
    int contracts; /* bits of nnc_ask_kind */
    bool runs_kernels, interprets, winograd;
} known;

static const known engines[] = {{"cudnn", NNC_T_cuda, 0.6, CONVS, .winograd = true},
    {"cublaslt", NNC_T_cuda, 0.7, PRODUCTS}, {"cuda", NNC_T_cuda, 0.6, 0, true},
    {"llvm", NNC_T_cpu, 0.92, CONVS | PRODUCTS, true},
    {"interp", NNC_T_cpu, 0.02, CONVS | PRODUCTS, true, true}};

static const known *named(const char *name)
{
    static const known other = {""};
    for (size_t i = 0; i < NNC_COUNT(engines); i++)
        if (!strcmp(engines[i].name, name))
            return &engines[i];
    return &other;
}

static void add(nnc_target *t, const known *k)
{
    t->engine[t->n_engines++] = (nnc_target_engine){.name = k->name, .efficiency = k->efficiency};
}

void target_engines(nnc_target *t)
{
    t->n_engines = 0;
    for (size_t i = 0; i < NNC_COUNT(engines); i++)
        if (engines[i].kind == t->kind)
            add(t, &engines[i]);
}

void nnc_target_restrict(nnc_target *t, bool have_llvm)
{
    int n = 0;
    bool kernels = false;
    for (int i = 0; i < t->n_engines; i++) {
        const known *k = named(t->engine[i].name);
        if (!have_llvm && k->kind == NNC_T_cpu && k->runs_kernels && !k->interprets)
            continue;
        t->engine[n++] = t->engine[i];
        kernels |= k->runs_kernels;
    }
    const bool none = n < t->n_engines && !kernels;
    t->n_engines = n;
    if (none) /* of LLVM alone: the interpreter is always there */
        add(t, &engines[NNC_COUNT(engines) - 1]);
}

bool nnc_engine_has_winograd(const char *name)
{
    return named(name)->winograd;
}

bool nnc_target_engine_kind(const char *name, nnc_tkind *kind)
{
    *kind = named(name)->kind;
    return *named(name)->name;
}

bool nnc_target_runs_kernels(const nnc_target_engine *e)
{
    return named(e->name)->runs_kernels;
}

bool nnc_target_engine_interprets(const nnc_target_engine *e)
{
    return named(e->name)->interprets;
}

const nnc_target_engine *nnc_target_engine_named(const nnc_target *t, const char *name)
{
    for (int i = 0; i < t->n_engines; i++)
        if (strcmp(t->engine[i].name, name) == 0)
            return &t->engine[i];
    return NULL;
}

const nnc_target_engine *nnc_target_engine_for(const nnc_target *t, nnc_ask_kind kind)
{
    for (int i = 0; i < t->n_engines; i++)
        if (named(t->engine[i].name)->contracts >> kind & 1)
            return &t->engine[i];
    return NULL;
}

const nnc_target_engine *nnc_target_for_kernels(const nnc_target *t)
{
    for (int i = 0; i < t->n_engines; i++)
        if (nnc_target_runs_kernels(&t->engine[i]))
            return &t->engine[i];
    return NULL;
}

bool nnc_target_interprets(const nnc_target *t)
{
    const nnc_target_engine *e = nnc_target_for_kernels(t);
    return e && nnc_target_engine_interprets(e);
}

bool nnc_target_channels_last(const nnc_target *t, nnc_dtype d, bool tf32)
{
    return t->kind != NNC_T_cuda || d != DT_f32 || tf32;
}
