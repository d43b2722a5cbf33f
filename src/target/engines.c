/* target/engines.c -- the engines by name: where they run and what they compute. */
#include "target/internal.h"
#include <string.h>

enum {
    CONVS = 1 << ASK_conv | 1 << ASK_conv_transpose | 1 << ASK_conv_wgrad,
    PRODUCTS = 1 << ASK_matmul
};

typedef struct known {
    const char *name;
    nnc_tkind kind;
    int contracts; /* bits of nnc_ask_kind */
    bool runs_kernels, interprets;
} known;

static const known engines[] = {{"cudnn", NNC_T_cuda, CONVS}, {"cublaslt", NNC_T_cuda, PRODUCTS},
    {"cuda", NNC_T_cuda, 0, true}, {"llvm", NNC_T_cpu, CONVS | PRODUCTS, true},
    {"interp", NNC_T_cpu, CONVS | PRODUCTS, true, true}};

static const known *named(const char *name)
{
    static const known other = {""};
    for (size_t i = 0; i < NNC_COUNT(engines); i++)
        if (!strcmp(engines[i].name, name))
            return &engines[i];
    return &other;
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
