/* plan/tasks.c -- tasks: what a strategy says about the order of each device (nnc_node.task).
 *
 * On a device, nodes of lower tasks run before those of higher ones. A node without a task belongs to the latest task of its operands. A
 * node that an earlier task needs runs in that one, whatever its own task. If outputs have a task, nodes of lower tasks run in main, too,
 * so that forward and backward passes of different micro-batches may alternate. Only writers of states wait for their section. */
#include "plan/maker.h"

static bool writes_state(const maker *m, const nnc_node *n)
{
    bool any = false;
    for (nnc_ref v = n->out; v < n->out + n->n_out; v++)
        any = any || m->state_of[m->root[v]] != NNC_NONE || m->updated[m->root[v]];
    return any;
}

/* Moves nodes with tasks below main's last one to main. */
static void move_to_main(maker *m)
{
    const nnc_graph *g = m->g;
    int32_t last = -1;
    for (uint32_t i = 0; i < g->n_node; i++)
        if (m->section[i] == SEC_main && g->node[i].task > last)
            last = g->node[i].task;
    for (uint32_t i = g->n_node; i-- > 0;) {
        const nnc_node *n = &g->node[i];
        if (n->task >= 0 && n->task < last && !writes_state(m, n))
            m->section[i] = SEC_main;
        for (int k = 0; k < n->n_in && m->section[i] == SEC_main; k++)
            m->section[g->value[n->in[k]].node] = SEC_main;
    }
    for (uint32_t i = 0; i < g->n_node; i++) { /* collectives of the last gradients, too */
        bool all = is_collective(&g->node[i]);
        for (int k = 0; k < g->node[i].n_in && all; k++)
            all = m->section[g->value[g->node[i].in[k]].node] == SEC_main;
        m->section[i] = all ? (uint8_t)SEC_main : m->section[i];
    }
}

/* Finds nodes that only updates need but that depend only on main: the mask of a relu, the index of a max pooling. */
static void find_early(maker *m)
{
    const nnc_graph *g = m->g;
    for (uint32_t i = 0; i < g->n_node; i++) {
        m->early[i] = m->section[i] > SEC_main;
        for (int k = 0; k < g->node[i].n_in; k++)
            m->early[i] = m->early[i] && m->section[g->value[g->node[i].in[k]].node] == SEC_main;
    }
}

nnc_status make_tasks(maker *m)
{
    const nnc_graph *g = m->g;
    bool any = false;
    for (uint32_t i = 0; i < g->n_node && !any; i++)
        any = g->node[i].task >= 0;
    if (!any)
        return NNC_OK;
    NNC_NEED(ARENA_ARRAYS(&m->scratch, g->n_node + 1, m->task, m->early), m->sink);
    find_early(m);
    move_to_main(m);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        m->task[i] = n->task >= 0 ? n->task : 0;
        for (int k = 0; k < n->n_in && n->task < 0; k++)
            if (m->task[g->value[n->in[k]].node] > m->task[i])
                m->task[i] = m->task[g->value[n->in[k]].node];
    }
    for (uint32_t i = g->n_node; i-- > 0;)
        for (int k = 0; k < g->node[i].n_in; k++) {
            const uint32_t d = g->value[g->node[i].in[k]].node;
            if (m->section[d] == m->section[i] && m->task[d] > m->task[i])
                m->task[d] = m->task[i];
        }
    return NNC_OK;
}
