/* plan/verify_kernel.c -- parses and verifies the kernels' texts, and compares them with the plan's rows, so that no kernel gets a
 * wrong buffer, workspace or domain. */
#include "plan/maker.h"
#include "plan/verify.h"
#include <string.h>

static nnc_status bad(const check *v, int i, const char *why)
{
    return nnc_fail0(v->sink, v->code, "plan: kernel %d: %s", i, why);
}

/* Fills the kernel's part of in_place. False: out of memory. */
static bool find_in_place(check *v, int i, const nnc_kernel *k, nnc_arena *a)
{
    const int out = v->p->kernel[i].n_out, n = v->p->kernel[i].n_args - out;
    const bool few = (int64_t)n * out <= PLAN_PAIRS;
    v->in_place[i] = few ? ARENA_NEW(a, bool, n *out + 1) : NULL;
    for (int p = 0; v->in_place[i] && p < n * out; p++)
        v->in_place[i][p] = nnc_kernel_in_place(k, p / out, n + p % out);
    return v->in_place[i] || !few;
}

/* Fills the kernel's part of arg_bytes. */
static const char *compare(check *v, int i, const nnc_kernel *k)
{
    const nnc_pkernel *pk = &v->p->kernel[i];
    int n = 0, out = 0;
    for (int b = 0; b < k->n_buf; b++) {
        if (k->buf[b].role == KB_tmp)
            continue;
        int64_t bytes;
        if (k->buf[b].numel < 1 ||
            !nnc_mul_ok(k->buf[b].numel, nnc_dtype_size(k->buf[b].dtype), &bytes))
            return "a buffer's size is out of range";
        if (out && k->buf[b].role != KB_out)
            return "its written buffers are not the last";
        if (n == pk->n_args)
            return "its text has more buffers than arguments";
        v->arg_bytes[v->first_arg[i] + n++] = bytes;
        out += k->buf[b].role == KB_out;
    }
    if (n != pk->n_args || out != pk->n_out)
        return "its text has other buffers than arguments";
    v->gpu[i] = k->grid.cls != KC_none;
    if (strcmp(k->name, pk->symbol) != 0)
        return "its text has another name";
    if (k->sched.domain != pk->domain || nnc_kernel_work(k) != pk->scratch_bytes)
        return "its text has another domain or scratch size";
    return NULL;
}

static nnc_status check_kernel(check *v, int i, nnc_arena *all)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_scan s;
    nnc_scan_init(&s, "kernel", v->p->kernel[i].ir, strlen(v->p->kernel[i].ir));
    nnc_kernel *k = nnc_schedule_parse(&s, &a, v->sink);
    if (!k)
        return nnc_sink_cause(v->sink, NNC_E_MODEL) == NNC_E_NOMEM
                   ? NNC_E_NOMEM
                   : bad(v, i, "its text does not parse");
    if (!nnc_scan_end(&s))
        return bad(v, i, "its text goes on after the kernel");
    nnc_status status = nnc_schedule_verify(k, v->sink);
    if (status != NNC_OK)
        return status == NNC_E_NOMEM ? status : bad(v, i, "its text is not sound");
    const char *why = compare(v, i, k);
    if (why)
        return bad(v, i, why);
    NNC_NEED(find_in_place(v, i, k, all), v->sink);
    return NNC_OK;
}

nnc_status plan_check_kernels(check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    int32_t n = 0;
    v->first_arg = ARENA_NEW(a, int32_t, p->n_kernel + 1);
    NNC_NEED(v->first_arg, v->sink);
    for (int i = 0; i < p->n_kernel; i++) {
        v->first_arg[i] = n;
        if (p->kernel[i].n_args > INT32_MAX - 1 - n)
            return bad(v, i, "the kernels have too many arguments");
        n += p->kernel[i].n_args;
    }
    v->gpu = ARENA_NEW(a, bool, p->n_kernel + 1);
    v->in_place = ARENA_NEW(a, bool *, p->n_kernel + 1);
    v->arg_bytes = ARENA_NEW(a, int64_t, n + 1);
    NNC_NEED(v->gpu && v->in_place && v->arg_bytes, v->sink);
    for (int i = 0; i < p->n_kernel; i++)
        NNC_TRY(check_kernel(v, i, a));
    return NNC_OK;
}
