/* engines/domain.c -- splits a kernel's domain over threads, for machine code and the interpreter alike. The split depends on the plan
 * only (domain, grain, threads), so that results do not depend on scheduling. */
#include "engines/engines.h"

typedef struct domain {
    nnc_domain_fn fn;
    void *ctx;
    const nnc_pkernel *k;
    void *const *args;
    char *work;
} domain;

static void run_part(void *p, int part, int parts)
{
    const domain *d = p;
    int64_t begin, end;
    nnc_par_range(d->k->domain, 1, part, parts, &begin, &end);
    char *scratch = d->work ? d->work + part * nnc_align_up(d->k->scratch_bytes, 64) : NULL;
    if (begin < end)
        d->fn(d->ctx, d->args, begin, end, scratch);
}

void nnc_run_domain(
    nnc_domain_fn fn, void *ctx, const nnc_pkernel *k, void *const *args, void *work)
{
    domain d = {fn, ctx, k, args, work};
    int64_t parts = nnc_par_parts(k->domain, k->grain, k->threads);
    if (parts <= 1)
        fn(ctx, args, 0, k->domain, work);
    else
        nnc_par_run((int)parts, run_part, &d);
}
