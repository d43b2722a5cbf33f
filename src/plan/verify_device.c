/* plan/verify_device.c -- verifies that the devices of a plan, which may be of several kinds, get code for their own targets. */
#include "plan/maker.h"
#include "plan/verify.h"
#include <string.h>

static const char *device_fault(const nnc_plan *p, int i)
{
    const nnc_plan_device *d = &p->device[i];
    size_t kind = strcspn(d->name, ":");
    if (!kind || !d->name[kind] || d->name[kind + 1 + strspn(d->name + kind + 1, "0123456789")] ||
        !d->name[kind + 1])
        return "its name is not a kind and a number, as in cpu:0";
    if (strncmp(d->target, nnc_plan_on_gpu(d) ? "cpu#" : "cuda:", nnc_plan_on_gpu(d) ? 4 : 5) == 0)
        return "its target is of another kind"; /* targets from files may have any name */
    for (int k = 0; k < i; k++)
        if (!strcmp(p->device[k].name, d->name))
            return "another device has its name";
    return NULL;
}

/* Objects are ELF files of the host or of a GPU, or PTX. */
static bool object_fits(const nnc_blob *b, bool gpu)
{
    enum { AT_MACHINE = 18, MACHINE_CUDA = 190 };
    const unsigned char *c = b->data;
    if (b->n <= AT_MACHINE + 1 || memcmp(c, "\177ELF", 4) != 0)
        return true; /* the engine checks it */
    return ((c[AT_MACHINE] | c[AT_MACHINE + 1] << 8) == MACHINE_CUDA) == gpu;
}

/* `first`: by kernel and call, the device of its first command + 1. */
static const char *code_fault(const check *v, const nnc_cmd *c, int32_t *first)
{
    const nnc_plan *p = v->p;
    const nnc_plan_device *d = &p->device[c->device];
    const bool gpu = nnc_plan_on_gpu(d), kernel = c->kind == CMD_kernel;
    nnc_tkind on;
    if (nnc_target_engine_kind(p->engine[c->engine], &on) && (on == NNC_T_cuda) != gpu)
        return gpu ? "its engine works on CPUs, its device is a GPU"
                   : "its engine works on GPUs, its device is none";
    if (kernel && v->gpu[c->item] != gpu)
        return gpu ? "its kernel has a CPU's schedule, its device is a GPU"
                   : "its kernel has a GPU's schedule, its device is none";
    if (kernel && p->kernel[c->item].threads > d->threads)
        return "it has more threads than its device"; /* a barrier among them would never be reached */
    const nnc_blob *object = kernel ? nnc_pkernel_code(p, &p->kernel[c->item]) : NULL;
    if (object && !object_fits(object, gpu))
        return "its machine code is for another kind of device";
    int32_t *at = &first[kernel ? c->item : p->n_kernel + c->item];
    if (*at && strcmp(p->device[*at - 1].target, d->target) != 0)
        return "its kernel or call also runs on a device of another target";
    *at = *at ? *at : c->device + 1;
    return NULL;
}

/* Each stream costs a thread or a CUDA stream: a plan from a file may not name more than it uses. */
static nnc_status check_streams(const check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    int *first = ARENA_NEW(a, int, p->n_device + 1); /* of each device in used[] */
    NNC_NEED(first, v->sink);
    for (int d = 0; d < p->n_device; d++)
        first[d + 1] = first[d] + p->device[d].streams;
    bool *used = ARENA_NEW(a, bool, first[p->n_device] + 1);
    NNC_NEED(used, v->sink);
    for (int i = 0; i < p->n_cmd; i++)
        used[first[p->cmd[i].device] + p->cmd[i].stream] = true;
    for (int d = 0; d < p->n_device; d++)
        for (int s = 1; s < p->device[d].streams; s++)
            if (!used[first[d] + s])
                return nnc_fail0(v->sink, v->code,
                    "plan: device %d: no command uses stream %d of %d", d, s, p->device[d].streams);
    return NNC_OK;
}

nnc_status plan_check_devices(const check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    const char *why;
    int32_t *first = ARENA_NEW(a, int32_t, (size_t)p->n_kernel + (size_t)p->n_call + 1);
    NNC_NEED(first, v->sink);
    for (int i = 0; i < p->n_device; i++)
        if ((why = device_fault(p, i)))
            return nnc_fail0(v->sink, v->code, "plan: device %d: %s", i, why);
    for (int i = 0; i < p->n_cmd; i++)
        if ((p->cmd[i].kind == CMD_kernel || p->cmd[i].kind == CMD_call) &&
            (why = code_fault(v, &p->cmd[i], first)))
            return nnc_fail0(v->sink, v->code, "plan: command %d: %s", i, why);
    return check_streams(v, a);
}
