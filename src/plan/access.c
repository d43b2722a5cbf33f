/* plan/access.c -- which tensors each command reads and writes, and the live ranges of tensors. Used by the planner to decide and by
 * the verifier to check. */
#include "plan/internal.h"
#include <string.h>

int nnc_plan_first_written(const nnc_plan *p, const nnc_cmd *c)
{
    switch (c->kind) {
    case CMD_weight:
    case CMD_copy:
    case CMD_collective:
    case CMD_call: return c->n_arg - 1;
    case CMD_kernel: return c->n_arg - p->kernel[c->item].n_out;
    default: return c->n_arg;
    }
}

int32_t nnc_plan_root(const nnc_plan *p, int32_t t)
{
    while (p->tensor[t].alias_of >= 0)
        t = p->tensor[t].alias_of;
    return t;
}

int64_t nnc_device_needs(const nnc_plan *p, int d)
{
    const nnc_plan_device *v = &p->device[d];
    return nnc_add_sat(v->persist_bytes, nnc_max64(v->arena_bytes, v->init_bytes));
}

int32_t plan_sum_operand(const nnc_plan *p, const nnc_cmd *c)
{
    if (c->kind != CMD_call || c->n_arg == 0)
        return -1;
    const nnc_call *k = &p->call[c->item];
    for (int i = 0; i < k->n_post; i++)
        if (k->post[i].kind == PO_sum && k->post[i].in_place)
            return p->tensor[c->arg[c->n_arg - 1]].alias_of;
    return -1;
}

static void touch(int32_t t, int32_t cmd, int32_t *first, int32_t *last)
{
    if (first[t] < 0)
        first[t] = cmd;
    last[t] = cmd;
}

void plan_lifetimes(const nnc_plan *p, int32_t *first, int32_t *last, int32_t *root)
{
    for (int t = 0; t < p->n_tensor; t++) {
        int32_t up = p->tensor[t].alias_of;
        root[t] = up < 0 ? t : root[up];
        first[t] = last[t] = -1;
    }
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        int32_t sum = plan_sum_operand(p, c);
        if (sum >= 0)
            touch(sum, i, first, last);
        for (int k = 0; k < c->n_arg; k++)
            touch(c->arg[k], i, first, last);
        if (c->work >= 0)
            touch(c->work, i, first, last);
    }
    /* a view is live from its operand's definition on */
    for (int t = 0; t < p->n_tensor; t++) {
        const nnc_ptensor *x = &p->tensor[t];
        if (first[t] < 0 && x->alias_of >= 0)
            first[t] = last[t] = first[x->alias_of];
    }
    for (int t = p->n_tensor - 1; t >= 0; t--) {
        const nnc_ptensor *x = &p->tensor[t];
        if (x->is_output || x->is_input || x->space == SP_persist)
            last[t] = p->n_cmd - 1;
        if (x->is_input)
            first[t] = -1;
        int32_t r = root[t];
        if (r == t)
            continue;
        last[r] = last[t] > last[r] ? last[t] : last[r];
        if (!p->tensor[r].is_input && first[t] >= 0 && (first[r] < 0 || first[t] < first[r]))
            first[r] = first[t];
    }
}

/* Is the part, of any shape, consecutive elements of the whole? (lstm writes its last states, [N,H], into [D,N,H].) */
static bool is_piece(const nnc_type *whole, const nnc_type *part)
{
    return (whole->rank == 1 || part->rank != whole->rank) && nnc_type_is_dense(whole) &&
           nnc_type_is_dense(part);
}

bool plan_box(const nnc_plan *p, int32_t whole, int32_t part, int64_t from[NNC_MAX_RANK])
{
    const nnc_ptensor *w = &p->tensor[whole], *x = &p->tensor[part];
    int64_t stride[NNC_MAX_RANK], at = x->offset - w->offset;
    int64_t size = nnc_dtype_size(w->type.dtype);
    nnc_type like = x->type;
    if (x->type.dtype != w->type.dtype || at < 0 || at % size)
        return false;
    if (is_piece(&w->type, &x->type))
        return at / size + nnc_type_numel(&x->type) <= nnc_type_numel(&w->type);
    if (x->type.rank != w->type.rank)
        return false;
    memcpy(like.order, w->type.order, sizeof like.order);
    nnc_type_set_part(&like, &w->type);
    nnc_type_strides(&w->type, stride);
    at /= size;
    for (int i = 0; i < w->type.rank; i++) {
        int d = w->type.order[i];
        from[d] = at / stride[d];
        at -= from[d] * stride[d];
        if (from[d] + x->type.dim[d] > w->type.dim[d])
            return false;
    }
    return at == 0 && nnc_type_same_strides(&x->type, &like);
}

bool plan_overlap(const nnc_plan *p, int32_t whole, int32_t a, int32_t b)
{
    int64_t x[NNC_MAX_RANK] = {0}, y[NNC_MAX_RANK] = {0};
    const nnc_ptensor *s = &p->tensor[a], *t = &p->tensor[b];
    if (s->offset >= t->offset + t->bytes || t->offset >= s->offset + s->bytes)
        return false;
    const nnc_type *w = &p->tensor[whole].type;
    if (is_piece(w, &s->type) || is_piece(w, &t->type))
        return true;
    if (!plan_box(p, whole, a, x) || !plan_box(p, whole, b, y))
        return true;
    for (int d = 0; d < s->type.rank; d++)
        if (x[d] >= y[d] + t->type.dim[d] || y[d] >= x[d] + s->type.dim[d])
            return false;
    return true;
}
