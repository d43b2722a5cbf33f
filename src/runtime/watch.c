/* runtime/watch.c -- the check of an engine over a whole run of main (nnc_watch of plan.h), on plans of one stream whose memory the host
 * sees. When a check fails, main runs once more: so it must give the same results again, which it does as long as it writes neither inputs
 * nor what lasts between runs. After a failure no run is checked any more: data that had a NaN once will have it again. */
#include "runtime/exec.h"
#include <stdatomic.h>
#include <string.h>

static bool repeatable(const nnc_plan *p)
{
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[SEC_main]; i++) {
        const nnc_cmd *c = &p->cmd[i];
        for (int k = nnc_plan_first_written(p, c); k < c->n_arg; k++) {
            int32_t t = c->arg[k];
            bool input = p->tensor[t].is_input;
            for (; p->tensor[t].alias_of >= 0; t = p->tensor[t].alias_of)
                input = input || p->tensor[p->tensor[t].alias_of].is_input;
            if (input || p->tensor[t].space != SP_arena)
                return false;
        }
    }
    return true;
}

void nnc_exec_find_watch(nnc_exec *e)
{
    const nnc_plan *p = e->p;
    if (e->n_stream != 1 || !e->dev[0].api->host_memory || !repeatable(p))
        return;
    for (int i = nnc_plan_first(p, SEC_main); i < p->end[SEC_main]; i++) {
        const nnc_watch *w = e->handle[i] ? e->handle[i]->engine->watch : NULL;
        e->watch = w && w->wanted(e->handle[i]->handle) ? w : e->watch;
    }
}

static nnc_status begin(void *handle, void *const *args, void *work)
{
    nnc_exec *e = handle;
    (void)args, (void)work;
    e->watched = !atomic_load(&e->unwatched);
    if (e->watched)
        e->watch->begin();
    return NNC_OK;
}

static nnc_status repeat(nnc_exec *e, const table *t, int i)
{
    const nnc_cmd *c = &e->p->cmd[i];
    void *const *arg = t->arg + e->first_arg[i];
    if (c->kind == CMD_copy)
        memcpy(arg[1], arg[0], (size_t)e->p->tensor[c->arg[1]].bytes);
    if (c->kind != CMD_kernel && c->kind != CMD_call)
        return NNC_OK;
    const nnc_ptensor *w = c->work >= 0 ? &e->p->tensor[c->work] : NULL;
    char *work = w ? (char *)e->dev[0].base[w->space] + w->offset : NULL;
    return e->engine[c->engine]->run(e->handle[i]->handle, arg, work);
}

/* Also where a command failed: the engine must not take later runs of this thread for watched ones. */
static nnc_status end(void *handle, void *const *args, void *work)
{
    const table *t = handle;
    nnc_exec *e = t->e;
    (void)args, (void)work;
    if (!e->watched)
        return NNC_OK; /* or begin was skipped */
    e->watched = false;
    if (!e->watch->end())
        return NNC_OK;
    atomic_store(&e->unwatched, true);
    for (int i = nnc_plan_first(e->p, SEC_main); i < e->p->end[SEC_main]; i++)
        NNC_TRY(repeat(e, t, i));
    return NNC_OK;
}

nnc_status nnc_exec_watch(nnc_exec *e, bool first)
{
    const nnc_work w = {.run = first ? begin : end,
        .handle = first ? (void *)e : (void *)e->use,
        .name = "check for NaN",
        .always = !first};
    return e->dev[0].api->launch(e->dev[0].stream[0], &w);
}
