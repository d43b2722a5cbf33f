/* onnx/empty.c -- results of operators whose operands have no elements: batches of 0, no boxes, no past. The node is built twice, with
 * 2 and with 3 in place of each extent of 0; extents of its results that grow with them, as c N^k, are 0. The nodes are dropped again. */
#include "onnx/internal.h"
#include <string.h>

/* The node with operands whose extents of 0 are n; its results' types. false: it cannot be built, which is reported to `quiet`. */
static bool build_with(ox_build *b, int64_t n, nnc_sink *quiet, ox_value *in, nnc_type *out)
{
    ox *x = b->x;
    nnc_graph *g = x->g;
    nnc_sink *const sink = x->sink;
    const uint32_t n_node = g->n_node, n_value = g->n_value;
    ox_refusal *const refusal = x->refusal;
    const int refused = x->refused;
    ox_value *const own = b->in;
    x->sink = g->sink = quiet;
    x->refusal = NULL;
    b->stand_in = n;
    b->in = memcpy(in, own, (size_t)b->n_in * sizeof *in);
    for (int i = 0; i < b->n_in; i++)
        if (in[i].state == OX_empty && !ox_row_const(b->row, (size_t)i)) {
            for (int k = 0; k < in[i].rank; k++)
                in[i].dim[k] = in[i].dim[k] ? in[i].dim[k] : n;
            in[i].ref = ox_broadcast(b, ox_num(b, in[i].dtype, 1), in[i].rank, in[i].dim);
            in[i].state = OX_here;
        }
    bool ok = b->row->build(b) && !g->status;
    for (int i = 0; ok && i < b->n_out; i++)
        if (b->out[i].state == OX_here || b->out[i].state == OX_empty)
            out[i] = ox_type_of(b, &b->out[i]);
    if (x->refusal)
        nnc_fail0(quiet, NNC_E_MODEL, "%s", x->refusal->why);
    g->n_node = n_node;
    g->n_value = n_value;
    x->sink = g->sink = sink;
    x->refusal = refusal;
    x->refused = refused;
    b->refused = false;
    b->in = own;
    b->stand_in = 0;
    return ok;
}

/* Is it c 2^n of c 3^n, n > 0? */
static bool grows(int64_t of2, int64_t of3)
{
    while (of2 != of3 && of2 % 2 == 0 && of3 % 3 == 0) {
        of2 /= 2;
        of3 /= 3;
    }
    return of2 == of3;
}

/* Result i from its types with 2 and with 3 in place of 0. */
static bool none_of(ox_build *b, int i, const nnc_type *t2, const nnc_type *t3)
{
    nnc_type t = *t2;
    for (int k = 0; k < t.rank; k++)
        if (t2->dim[k] != t3->dim[k]) {
            if (!grows(t2->dim[k], t3->dim[k]))
                return ox_refuse(
                    b, "an operand without elements decides its result's dimension %d", k);
            t.dim[k] = 0;
        }
    return ox_any_0(t.rank, t.dim) ? ox_none(b, i, t.dtype, t.rank, t.dim)
                                   : ox_refuse(b, "its result has elements, an operand has none");
}

static bool build_empty(ox_build *b, nnc_sink *quiet)
{
    ox *x = b->x;
    ox_value *in = ARENA_NEW(&x->a, ox_value, b->n_in + 1);
    nnc_type *t = ARENA_NEW(&x->a, nnc_type, 2 * b->n_out + 1);
    if (!in || !t || !quiet)
        return ox_nomem(x);
    for (int k = 0; k < 2; k++)
        if (!build_with(b, 2 + k, quiet, in, t + k * b->n_out)) {
            const bool memory = x->status == NNC_E_NOMEM || x->g->status == NNC_E_NOMEM;
            x->status = x->g->status = NNC_OK;
            return memory ? ox_nomem(x)
                          : ox_wrong(b, "an operand has no elements; with %d in place of 0: %s",
                                2 + k, nnc_sink_at(quiet, 0) ? nnc_sink_at(quiet, 0)->message : "");
        }
    for (int i = 0; i < b->n_out; i++)
        if (b->out[i].state == OX_sequence)
            return ox_refuse(b, "a sequence of tensors without elements is unsupported");
        else if (b->out[i].state != OX_unset && !none_of(b, i, &t[i], &t[b->n_out + i]))
            return false;
    return true;
}

bool ox_empty_results(ox_build *b)
{
    nnc_sink *quiet = nnc_sink_create();
    const bool ok = build_empty(b, quiet);
    nnc_sink_destroy(quiet);
    return ok;
}
