/* cost/prices.c -- rows of prices.def as numbers. */
#include "cost/cost.h"
#include <string.h>

enum { INTEL, AMD, FAMILIES };

static const nnc_core_prices core[FAMILIES] = {[INTEL] = {.window = 512,
                                                   .ps =
                                                       {
#define PRICE(name, intel, amd, aarch64, what) intel,
#include "cost/prices.def"
                                                       }},
    [AMD] = {.by_registers = true,
        .ps = {
#define PRICE(name, intel, amd, aarch64, what) amd,
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

/* The clock follows from the peak: two operations for each lane of the vectors that a core starts in a cycle. */
static nnc_core_prices described(const nnc_core *c, const nnc_target *t)
{
    const double cycles[] = {
#define PRICE(name, intel, amd, aarch64, what) aarch64,
#include "cost/prices.def"
    };
    const double each = c->vectors * 2 * t->vector_bits / 32 * (t->cores > 0 ? t->cores : 1),
                 ps = each * 1e12 / (double)nnc_max64(t->flops_f32, 1);
    nnc_core_prices p = {.window = c->window};
    for (int i = 0; i < NNC_P__COUNT; i++)
        p.ps[i] = (int64_t)(cycles[i] * ps + 0.5);
    return p;
}

nnc_core_prices nnc_target_prices(const nnc_target *t)
{
    const nnc_core *c = nnc_target_core(t->core);
    return c ? described(c, t) : core[t->core && !strcmp(t->core, "amd") ? AMD : INTEL];
}
