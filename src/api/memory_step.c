/* api/memory_step.c -- what fills the memory of a training step: weights and the optimizer's state, and at the arena's peak what is
 * kept of the forward pass, gradients of weights, and the rest. */
#include "api/internal.h"
#include "api/memory.h"
#include <string.h>

const char *const nnc_fill_names[FILL__COUNT] = {
#define FILL(name, doc) #name,
#include "api/memory.def"
};
const char *const nnc_fill_docs[FILL__COUNT] = {
#define FILL(name, doc) doc,
#include "api/memory.def"
};

/* Has it gradients with respect to inputs, for which main contains a backward pass? */
static bool has_input_gradients(const nnc_plan *p)
{
    static const char end[] = NNC_GRADIENT;
    for (int i = 0; i < p->n_output; i++) {
        const size_t n = strlen(p->output_name[i]), m = sizeof end - 1;
        if (n > m && !strcmp(p->output_name[i] + n - m, end))
            return true;
    }
    return false;
}

bool nnc_is_step(const nnc_plan *p)
{
    return p->end[SEC_step] > p->end[SEC_main] || has_input_gradients(p);
}

int32_t nnc_backward_begin(const nnc_plan *p)
{
    const int32_t end = p->end[SEC_main];
    if (!has_input_gradients(p))
        return end;
    for (int32_t i = nnc_plan_first(p, SEC_main); i < end; i++)
        if (p->cmd[i].layers && strstr(p->cmd[i].layers, "/loss/backward"))
            return i;
    return end;
}

bool nnc_is_gradient(const nnc_plan *p, int32_t t)
{
    bool updates = false;
    for (int i = p->tensor[t].first + 1; i <= p->tensor[t].last; i++) {
        const nnc_cmd *c = &p->cmd[i];
        bool reads = false;
        for (int a = 0; a < c->n_arg; a++)
            reads = reads || nnc_plan_root(p, c->arg[a]) == t;
        if (reads && !strstr(c->layers, "/optimizer"))
            return false;
        updates = updates || reads;
    }
    return updates;
}

static nnc_fill fill_of(const nnc_plan *p, int32_t t, int32_t peak, int32_t backward)
{
    const nnc_ptensor *x = &p->tensor[t];
    if (t == p->cmd[peak].work)
        return FILL_workspace;
    if (x->is_input)
        return FILL_inputs;
    if (x->first < backward && x->last >= backward)
        return FILL_kept;
    if (x->first >= backward && nnc_is_gradient(p, t))
        return FILL_gradients;
    return FILL_rest;
}

void nnc_find_fill(const nnc_plan *p, int device, int64_t fill[FILL__COUNT])
{
    const nnc_plan_device *v = &p->device[device];
    const int64_t align = nnc_plan_align(v);
    const int32_t backward = nnc_backward_begin(p);
    memset(fill, 0, FILL__COUNT * sizeof *fill);
    for (int i = 0; i < p->end[SEC_init]; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_weight || !nnc_path_is(c->layers, strlen(c->layers), "/optimizer"))
            continue;
        const nnc_ptensor *x = &p->tensor[c->arg[0]];
        if (x->device == device && x->space == SP_persist)
            fill[FILL_optimizer] += nnc_align_up(x->bytes, align);
    }
    fill[FILL_weights] = v->persist_bytes - fill[FILL_optimizer];
    for (int32_t t = 0; t < p->n_tensor && v->arena_bytes; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        if (x->device == device && x->space == SP_arena && x->alias_of < 0 &&
            x->first <= v->peak_cmd && v->peak_cmd <= x->last)
            fill[fill_of(p, t, v->peak_cmd, backward)] += nnc_align_up(x->bytes, align);
    }
}
