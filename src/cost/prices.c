/* cost/prices.c -- rows of prices.def as numbers. */
#include "cost/cost.h"
#include <string.h>

enum { INTEL, AMD, FAMILIES };

static const nnc_core_prices core[FAMILIES] = {[INTEL] = {.ps =
                                                              {
#define PRICE(name, intel, amd, what) intel,
#include "cost/prices.def"
                                                              }},
    [AMD] = {.by_registers = true,
        .ps = {
#define PRICE(name, intel, amd, what) amd,
#include "cost/prices.def"
        }}};

const int64_t nnc_interpreted_price[] = {
#define INTERPRETED(name, ps, what) ps,
#include "cost/prices.def"
};

const double nnc_element_ns[] = {
#define ELEMENT(name, ps, what) (ps) / 1e3,
#include "cost/prices.def"
};

const double nnc_gpu_price[] = {
#define GPU(name, price, what) price,
#include "cost/prices.def"
};

const nnc_core_prices *nnc_target_prices(const nnc_target *t)
{
    return &core[t->core && !strcmp(t->core, "amd") ? AMD : INTEL];
}
