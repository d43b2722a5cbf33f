/* plan/plan.c -- creation, destruction and hash of a plan. */
#include "plan/internal.h"

nnc_plan *nnc_plan_create(void)
{
    return nnc_calloc(1, sizeof(nnc_plan));
}

void nnc_plan_destroy(nnc_plan *p)
{
    if (!p)
        return;
    nnc_arena_deinit(&p->arena);
    nnc_free(p);
}

/* The text form contains everything except the objects. Zero when out of memory. */
nnc_hash128 nnc_plan_hash(const nnc_plan *p)
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_plan_print(&t, p);
    for (int i = 0; i < p->n_object; i++) {
        nnc_hash128 h = nnc_hash(p->object[i].data, p->object[i].n);
        nnc_putn(&t, (const char *)&h, sizeof h);
    }
    nnc_hash128 h = {0};
    if (!t.oom)
        h = nnc_hash(nnc_text_str(&t), t.n);
    return h;
}
