/* ir/infer_collective.c -- shape rules of collectives: an operand and a result for each participating device, in the order of the ranks. */
#include "ir/infer.h"

#include <inttypes.h>
#include <string.h>

static nnc_status check_devices(infer *c)
{
    const int64_t *device;
    const int n = nnc_attr_ints(c->n, AT_devices, &device);
    if (nnc_attr_find(c->n, AT_devices) && n != c->n->n_in)
        return fail(c, "devices has %d numbers for %d participants", n, c->n->n_in);
    for (int i = 0; i < n; i++) {
        if (device[i] < 0 || device[i] > INT16_MAX)
            return fail(c, "device %" PRId64 " of participant %d does not exist", device[i], i + 1);
        for (int k = 0; k < i; k++)
            if (device[k] == device[i])
                return fail(c, "participants %d and %d are both on device %" PRId64, k + 1, i + 1,
                    device[i]);
    }
    return NNC_OK;
}

/* Operands are of one dtype, and of one shape but for the extent along axis `but` (-1: no exception). */
static nnc_status check_members(infer *c, int but)
{
    const nnc_type *a = arg(c, 0);
    NNC_TRY(nnc_infer_same_dtype(c));
    NNC_TRY(check_devices(c));
    for (int i = 1; i < c->n->n_in; i++) {
        const nnc_type *b = arg(c, i);
        bool same = a->rank == b->rank;
        for (int d = 0; same && d < a->rank; d++)
            same = d == but || a->dim[d] == b->dim[d];
        if (!same)
            return fail(c,
                "operand %d is %s but operand %d is %s; all participants need the same "
                "dimensions%s",
                1, nnc_infer_show(c, a), i + 1, nnc_infer_show(c, b),
                but >= 0 ? ", except along the axis" : "");
    }
    return NNC_OK;
}

static nnc_status check_reduction(infer *c)
{
    const nnc_attr *a = nnc_attr_find(c->n, AT_reduction);
    NNC_TRY(nnc_infer_number(c, 0));
    if (!a || !strcmp(a->word, "add") || !strcmp(a->word, "min") || !strcmp(a->word, "max"))
        return NNC_OK;
    return fail(c, "reduction is %s; expected add, min or max", a->word);
}

nnc_status nnc_infer_allreduce(infer *c)
{
    NNC_TRY(check_members(c, -1));
    NNC_TRY(check_reduction(c));
    for (int i = 0; i < c->n->n_in; i++) {
        c->out[i] = nnc_type_make(arg(c, i)->dtype, arg(c, i)->rank, arg(c, i)->dim);
        nnc_infer_follow(c, i, arg(c, i));
    }
    return NNC_OK;
}

nnc_status nnc_infer_allgather(infer *c)
{
    const nnc_type *a = arg(c, 0);
    const int64_t axis = nnc_attr_int(c->n, AT_axis, 0);
    nnc_type y = nnc_type_make(a->dtype, a->rank, a->dim);
    NNC_TRY(nnc_infer_axis(c, axis, a->rank, "axis"));
    NNC_TRY(check_members(c, (int)axis));
    y.dim[axis] = 0;
    for (int i = 0; i < c->n->n_in; i++)
        y.dim[axis] = nnc_add_sat(y.dim[axis], arg(c, i)->dim[axis]);
    for (int i = 0; i < c->n->n_in; i++)
        c->out[i] = y;
    return NNC_OK;
}

nnc_status nnc_infer_reduce_scatter(infer *c)
{
    const nnc_type *a = arg(c, 0);
    const int64_t axis = nnc_attr_int(c->n, AT_axis, 0);
    nnc_type y = nnc_type_make(a->dtype, a->rank, a->dim);
    NNC_TRY(nnc_infer_axis(c, axis, a->rank, "axis"));
    NNC_TRY(check_members(c, -1));
    NNC_TRY(check_reduction(c));
    if (a->dim[axis] % c->n->n_in)
        return fail(c,
            "dimension %" PRId64 " has extent %" PRId64
            ", which %d participants cannot share evenly",
            axis, a->dim[axis], c->n->n_in);
    y.dim[axis] = a->dim[axis] / c->n->n_in;
    for (int i = 0; i < c->n->n_in; i++)
        c->out[i] = y;
    return NNC_OK;
}
