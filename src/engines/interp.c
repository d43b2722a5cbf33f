/* engines/interp.c -- the engine "interp": runs kernels by interpreting their text, where machine code is not available. */
#include "codegen/codegen.h"
#include "engines/engines.h"

#include <string.h>

typedef struct loaded {
    nnc_arena arena; /* holds the kernel */
    nnc_kernel *k;
    nnc_interp *interp;
    const nnc_pkernel *entry;
} loaded;

static void unload(void *handle)
{
    NNC_FREED loaded *h = handle;
    if (!h)
        return;
    nnc_interp_destroy(h->interp);
    nnc_arena_deinit(&h->arena);
}

/* Verifies that the plan entry agrees with the kernel's text: a plan from a file may be wrong. */
static nnc_status check(const loaded *h, nnc_sink *sink)
{
    const nnc_pkernel *e = h->entry;
    int n = 0;
    for (int b = 0; b < h->k->n_buf; b++)
        n += h->k->buf[b].role != KB_tmp;
    if (n != e->n_args || h->k->sched.domain != e->domain || h->k->scratch_bytes > e->scratch_bytes)
        return nnc_fail0(
            sink, NNC_E_MODEL, "kernel %s: the plan's entry disagrees with its text", e->symbol);
    return NNC_OK;
}

static nnc_status load_kernel(const nnc_load *l, void **handle, nnc_sink *sink)
{
    loaded *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    nnc_scan s;
    h->entry = &l->plan->kernel[l->item];
    const char *text = h->entry->ir ? h->entry->ir : "";
    nnc_scan_init(&s, h->entry->symbol, text, strlen(text));
    h->k = nnc_schedule_parse(&s, &h->arena, sink);
    nnc_status status = h->k ? check(h, sink) : nnc_sink_cause(sink, NNC_E_MODEL);
    if (status == NNC_OK && !(h->interp = nnc_interp_create(h->k)))
        status = nnc_nomem(sink);
    if (status != NNC_OK) {
        unload(h);
        return status;
    }
    *handle = h;
    return NNC_OK;
}

static void run_domain(void *ctx, void *const *args, int64_t begin, int64_t end, void *scratch)
{
    const loaded *h = ctx;
    nnc_interp_run(h->interp, args, begin, end, scratch);
}

static nnc_status run_kernel(void *handle, void *const *args, void *work)
{
    loaded *h = handle;
    nnc_run_domain(run_domain, h, h->entry, args, work);
    return NNC_OK;
}

const nnc_engine nnc_engine_interp = {
    .name = "interp",
    .version = "1",
    .load_kernel = load_kernel,
    .run = run_kernel,
    .unload = unload,
};
