/* plan/collective.c -- collectives: a command for each participant, one after the other in the list. The bytes of their messages and of
 * their workspace follow from the tensors (nnc_collective_work); the executor, the planner and the verifier share them. */
#include "plan/maker.h"
#include "plan/verify.h"
#include <string.h>

/* ---- planning ------------------------------------------------------------------------------------------------------- */

static nnc_collective_kind kind_of(const nnc_node *n)
{
    return n->op == OP_allreduce   ? COLL_allreduce
           : n->op == OP_allgather ? COLL_allgather
                                   : COLL_reduce_scatter;
}

static nnc_reduction reduction_of(const nnc_node *n)
{
    const nnc_attr *a = nnc_attr_find(n, AT_reduction);
    return !a || !strcmp(a->word, "add") ? RED_add : !strcmp(a->word, "min") ? RED_min : RED_max;
}

nnc_status make_collective(maker *m, const nnc_node *n, nnc_collective *out)
{
    const nnc_type *first = nnc_typeof(m->g, n->in[0]);
    *out = (nnc_collective){
        .kind = kind_of(n), .reduction = reduction_of(n), .n = n->n_in, .outer = 1};
    for (int64_t d = 0; n->op != OP_allreduce && d < nnc_attr_int(n, AT_axis, 0); d++)
        out->outer = nnc_mul_sat(out->outer, first->dim[d]);
    for (int k = 0; k < n->n_in; k++) {
        const nnc_type *x = nnc_typeof(m->g, n->in[k]), *y = nnc_typeof(m->g, n->out + (nnc_ref)k);
        const int home = m->home[n->out + (nnc_ref)k];
        const bool rows = nnc_type_is_row_major(x) && nnc_type_is_row_major(y);
        const bool alike = nnc_type_is_dense(x) && nnc_type_equal(x, first) && nnc_type_equal(x, y);
        if (!rows && !(n->op == OP_allreduce && alike))
            return nnc_fail(m->sink, NNC_E_MODEL, n->loc,
                "%s: operand %d and result %d are not in row-major order: add a relayout",
                nnc_ops[n->op].name, k + 1, k + 1);
        for (int i = 0; i < k; i++)
            if (m->home[n->out + (nnc_ref)i] == home)
                return nnc_fail(m->sink, NNC_E_MODEL, n->loc,
                    "%s: operands %d and %d are both computed on device %d; expected one on each "
                    "device that takes part",
                    nnc_ops[n->op].name, i + 1, k + 1, home);
    }
    return NNC_OK;
}

/* ---- verifying ------------------------------------------------------------------------------------------------------ */

typedef struct seen {
    int32_t first, last; /* commands */
    int n; /* how many so far */
    int64_t src_sum;
} seen;

static const char *member_fault(const check *v, const nnc_cmd *c, const seen *s)
{
    const nnc_plan *p = v->p;
    const nnc_collective *k = &p->collective[c->item];
    const nnc_ptensor *x = &p->tensor[c->arg[0]], *y = &p->tensor[c->arg[1]];
    const nnc_ptensor *first = &p->tensor[p->cmd[s->first].arg[0]];
    if (!nnc_type_is_dense(&x->type) || !nnc_type_is_dense(&y->type))
        return "a collective takes contiguous tensors";
    if (x->type.dtype != y->type.dtype || x->type.dtype != first->type.dtype)
        return "the participants' types differ";
    if (x->type.dtype == DT_bool && k->kind != COLL_allgather)
        return "bools are not reduced";
    if (k->kind != COLL_allgather && x->bytes != first->bytes)
        return "the participants' sizes differ";
    if (k->kind == COLL_allreduce && y->bytes != x->bytes)
        return "the result has another size than the operand";
    if (k->kind == COLL_reduce_scatter && y->bytes != x->bytes / k->n)
        return "the result is not one of equal parts";
    if (k->kind == COLL_reduce_scatter && x->bytes % k->n)
        return "the operand has no equal parts";
    const int64_t size = nnc_dtype_size(x->type.dtype);
    const int64_t small = k->kind == COLL_reduce_scatter ? y->bytes : x->bytes;
    if (small % k->outer || small / k->outer % size)
        return "its tensors are not as many rows as it has";
    const int64_t need = nnc_plan_on_gpu(&p->device[c->device])
                             ? 0 /* in host memory, or managed by the library */
                             : nnc_collective_work(k, x->bytes, y->bytes, size);
    if (need && (c->work < 0 || p->tensor[c->work].bytes < need))
        return "its workspace is too small";
    return NULL;
}

/* Between the participants' commands may be only records, and waits for events recorded before the first one. Everything that a participant
 * needs is then before the first one, so no deadlock is possible: the first unfinished command can always run. */
static const char *between_fault(const check *v, int32_t i, const seen *s, const int32_t *record)
{
    const nnc_plan *p = v->p;
    for (int32_t k = s->last + 1; k < i; k++) {
        const nnc_cmd *c = &p->cmd[k];
        if (c->kind != CMD_record && (c->kind != CMD_wait || record[c->item] > s->first))
            return "commands that another participant may wait for are between a collective's";
    }
    for (int32_t k = s->first; k < i; k++)
        if (p->cmd[k].kind == CMD_collective && p->cmd[k].device == p->cmd[i].device)
            return "two participants of a collective are on one device";
    return NULL;
}

nnc_status plan_check_collectives(const check *v, nnc_arena *a)
{
    const nnc_plan *p = v->p;
    seen *s = ARENA_NEW(a, seen, p->n_collective + 1);
    int32_t *record = ARENA_NEW(a, int32_t, p->n_event + 1);
    NNC_NEED(s && record, v->sink);
    for (int32_t i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        const char *why = NULL;
        if (c->kind == CMD_record)
            record[c->item] = i;
        if (c->kind != CMD_collective)
            continue;
        seen *at = &s[c->item];
        if (!at->n)
            at->first = at->last = i;
        why = at->n ? between_fault(v, i, at, record) : NULL;
        why = why ? why : member_fault(v, c, at);
        at->n++;
        at->last = i;
        at->src_sum = nnc_add_sat(at->src_sum, p->tensor[c->arg[0]].bytes);
        for (int e = 0; e < SEC__COUNT && !why; e++)
            if (at->first < p->end[e] && i >= p->end[e])
                why = "a collective's participants are in two sections";
        if (why)
            return nnc_fail0(v->sink, v->code, "plan: command %d: %s", i, why);
    }
    for (int k = 0; k < p->n_collective; k++) {
        const char *why =
            s[k].n != p->collective[k].n ? "it has not one command for each participant" : NULL;
        for (int32_t i = s[k].first;
             !why && p->collective[k].kind == COLL_allgather && i <= s[k].last; i++)
            if (p->cmd[i].kind == CMD_collective &&
                p->tensor[p->cmd[i].arg[1]].bytes != s[k].src_sum)
                why = "a result is not as large as all operands";
        if (why)
            return nnc_fail0(v->sink, v->code, "plan: collective %d: %s", k, why);
    }
    return NNC_OK;
}
