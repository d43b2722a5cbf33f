/* passes/split_search.c -- chooses rows or columns for each layer that leaves the choice. The ops after it decide its cost: a pooling makes
 * a later gather cheap, a residual sum makes it expensive. The search starts from the best choices one by one, and from columns for all. It
 * changes one choice at a time, as long as fewer bytes are sent in all. */
#include "passes/split.h"
#include <string.h>

/* Bytes of all moves that the decisions take. */
static int64_t bytes_sent(const splitter *c)
{
    int64_t bytes = c->moved;
    for (uint32_t i = 0; i < c->s->n_node; i++) {
        const nnc_node *x = &c->s->node[i];
        for (nnc_ref v = x->out; v < x->out + x->n_out; v++) {
            const int64_t whole = c->fixed[v] ? 0 : value_bytes(c, v),
                          all = nnc_mul_sat(c->n - 1, whole);
            const bool everywhere = (c->demand[v] & DEMAND_all) != 0;
            int64_t sent = 0;
            if (c->gathered[v]) /* of parts, or a sum */
                sent = c->choice[i].out == L_sum ? (everywhere ? nnc_mul_sat(2, all) : all)
                       : everywhere              ? all
                                                 : all / c->n;
            else if (everywhere && c->choice[i].out == L_full && !c->local[i])
                sent = all;
            bytes = nnc_add_sat(bytes, sent);
        }
    }
    return bytes;
}

/* Tries all choices for node i together with those for the open node before it (i: none). *better: one of them sends fewer bytes. */
static nnc_status improve(
    splitter *c, uint32_t before, uint32_t i, int64_t *best, bool *better, int64_t *tries)
{
    static const uint8_t ways[] = {NNC_SPLIT_columns, NNC_SPLIT_rows};
    for (int k = 0; k < 4 && *tries > 0; k++) {
        const uint8_t was[] = {c->pick[before], c->pick[i]};
        c->pick[before] = ways[k & 1];
        c->pick[i] = ways[k >> 1];
        if (c->pick[before] == was[0] && c->pick[i] == was[1])
            continue;
        NNC_TRY(split_decide(c));
        const int64_t bytes = bytes_sent(c);
        --*tries;
        if (bytes < *best) {
            *best = bytes;
            *better = true;
        } else {
            c->pick[before] = was[0];
            c->pick[i] = was[1];
        }
    }
    return NNC_OK;
}

/* Descends from the same choice for all nodes while bytes decrease, for at most `tries` tries. */
static nnc_status descend(splitter *c, uint8_t start, int64_t tries, int64_t *best)
{
    enum { SWEEPS = 3 };
    bool better = true;
    for (uint32_t i = 0; i < c->s->n_node; i++)
        c->pick[i] = c->by[i] == NNC_SPLIT_features ? start : 0;
    NNC_TRY(split_decide(c));
    *best = bytes_sent(c);
    for (int sweep = 0; sweep < SWEEPS && better && tries > 0; sweep++) {
        uint32_t before = NNC_NONE;
        better = false;
        for (uint32_t i = 0; i < c->s->n_node; i++) {
            if (c->by[i] != NNC_SPLIT_features || !c->s->node[i].n_in)
                continue;
            NNC_TRY(improve(c, before == NNC_NONE ? i : before, i, best, &better, &tries));
            before = i;
        }
    }
    return NNC_OK;
}

nnc_status split_search(splitter *c)
{
    enum { WORK = 500000 }; /* most operands visited, about half a second */
    int64_t open = 0, operands = 1, greedy, columns;
    NNC_TRY(split_decide(c));
    for (uint32_t i = 0; c->by && i < c->s->n_node; i++) {
        open += c->by[i] == NNC_SPLIT_features && c->choice[i].out != L_full;
        operands += 1 + c->s->node[i].n_in;
    }
    if (!open || c->n < 2 || c->trains) /* training and validation must choose alike */
        return NNC_OK;
    uint8_t *first = ARENA_NEW(c->a, uint8_t, c->s->n_node + 1);
    NNC_NEED(first, c->sink);
    NNC_TRY(descend(c, 0, WORK / operands, &greedy));
    memcpy(first, c->pick, c->s->n_node);
    NNC_TRY(descend(c, NNC_SPLIT_columns, WORK / operands, &columns));
    if (greedy <= columns)
        memcpy(c->pick, first, c->s->n_node);
    return split_decide(c);
}
