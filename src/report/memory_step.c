/* report/memory_step.c -- what fills the memory of a training step: weights and the optimizer's state, and the arena's peak. At the peak
 * there are results of the forward pass, kept or computed again, gradients, packed weights, inputs and workspace. */
#include "report/report.h"
#include <string.h>

const char *const nnc_fill_names[FILL__COUNT] = {
#define FILL(name, doc) #name,
#include "report/memory.def"
};
const char *const nnc_fill_docs[FILL__COUNT] = {
#define FILL(name, doc) doc,
#include "report/memory.def"
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
        const int n = nnc_plan_first_written(p, c);
        bool reads = false;
        for (int a = 0; a < n; a++)
            reads = reads || nnc_plan_root(p, c->arg[a]) == t;
        if (reads && !strstr(c->layers, "/optimizer"))
            return false;
        updates = updates || reads;
    }
    return updates;
}

/* ---- what tensors of the arena are computed from ---------------------------------------------------------------- */

typedef enum source { FROM_data, FROM_weights, FROM_gradients } source;

/* Is one of the command's layers the loss's gradient, where gradients begin? */
static bool begins_gradients(const nnc_cmd *c)
{
    for (const char *at = c->layers; at && *at;) {
        const size_t n = strcspn(at, "+");
        if (nnc_path_is(at, n, "/loss/backward"))
            return true;
        at += n + (at[n] == '+');
    }
    return false;
}

static source source_of(const nnc_plan *p, const nnc_cmd *c, const uint8_t *from)
{
    const int n = nnc_plan_first_written(p, c);
    source s = n ? FROM_weights : FROM_data;
    if (begins_gradients(c))
        return FROM_gradients;
    for (int a = 0; a < n && s != FROM_gradients; a++) {
        const int32_t r = nnc_plan_root(p, c->arg[a]);
        if (p->tensor[r].space == SP_arena)
            s = from[r] == FROM_weights ? s : (source)from[r];
    }
    return s;
}

/* By root, as of the peak: memory that is overwritten in place has another source then. */
static void find_sources(const nnc_plan *p, int32_t peak, uint8_t *from)
{
    for (int32_t i = p->end[SEC_init]; i <= peak && i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        const source s = source_of(p, c, from);
        for (int a = nnc_plan_first_written(p, c); a < c->n_arg; a++)
            from[nnc_plan_root(p, c->arg[a])] = (uint8_t)s;
    }
}

static nnc_fill fill_of(const nnc_plan *p, int32_t t, int32_t peak, int32_t backward, source from)
{
    const nnc_ptensor *x = &p->tensor[t];
    if (peak < p->n_cmd && t == p->cmd[peak].work)
        return FILL_workspace;
    if (x->is_input)
        return FILL_inputs;
    if (x->first < backward && x->last >= backward)
        return FILL_kept;
    if (x->first >= backward && nnc_is_gradient(p, t))
        return FILL_gradients;
    if (from == FROM_weights)
        return FILL_packed_weights;
    if (x->first < backward)
        return FILL_activations;
    return from == FROM_gradients ? FILL_activation_gradients : FILL_recomputed;
}

uint8_t *nnc_find_kinds(const nnc_plan *p, int device)
{
    const nnc_plan_device *v = &p->device[device];
    const int32_t backward = nnc_backward_begin(p);
    uint8_t *kind = nnc_calloc((size_t)p->n_tensor + 1, sizeof *kind);
    if (!kind)
        return NULL;
    if (v->arena_bytes)
        find_sources(p, v->peak_cmd, kind);
    for (int32_t t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        const bool live = x->device == device && x->space == SP_arena && x->alias_of < 0 &&
                          x->first <= v->peak_cmd && v->peak_cmd <= x->last && v->arena_bytes;
        kind[t] =
            live ? (uint8_t)fill_of(p, t, v->peak_cmd, backward, (source)kind[t]) : FILL__COUNT;
    }
    return kind;
}

int64_t nnc_optimizer_bytes(const nnc_plan *p, int device)
{
    int64_t sum = 0;
    for (int i = 0; i < p->end[SEC_init]; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind != CMD_weight || !nnc_path_is(c->layers, strlen(c->layers), "/optimizer"))
            continue;
        const nnc_ptensor *x = &p->tensor[c->arg[0]];
        if (x->device == device && x->space == SP_persist)
            sum += nnc_align_up(x->bytes, nnc_plan_align(&p->device[device]));
    }
    return sum;
}

bool nnc_find_fill(const nnc_plan *p, int device, int64_t fill[FILL__COUNT])
{
    const nnc_plan_device *v = &p->device[device];
    uint8_t *kind = nnc_find_kinds(p, device);
    memset(fill, 0, FILL__COUNT * sizeof *fill);
    fill[FILL_optimizer] = nnc_optimizer_bytes(p, device);
    fill[FILL_weights] = v->persist_bytes - fill[FILL_optimizer];
    for (int32_t t = 0; t < p->n_tensor && kind; t++)
        if (kind[t] < FILL__COUNT)
            fill[kind[t]] += nnc_align_up(p->tensor[t].bytes, nnc_plan_align(v));
    const bool ok = kind != NULL;
    nnc_free(kind);
    return ok;
}
