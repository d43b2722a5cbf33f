/* passes/mincut.c -- minimum cut by Dinic's algorithm, integers only: selects one of two choices for each node of a graph at the least
 * total cost. Depth-first search keeps its path in an array, so that long chains need no deep stack. */
#include "passes/internal.h"

struct mincut_arc { /* arcs come in pairs: i and i^1 are each other's reverse */
    uint32_t to, next; /* next: index + 1 */
    int64_t left;
};

void mincut_init(mincut *m, nnc_arena *a, uint32_t max_vertices)
{
    *m = (mincut){.a = a, .n = max_vertices};
    m->head = ARENA_NEW(a, uint32_t, max_vertices);
    m->level = ARENA_NEW(a, uint32_t, max_vertices);
    m->at = ARENA_NEW(a, uint32_t, max_vertices);
    m->oom = !m->head || !m->level || !m->at;
}

static void push(mincut *m, uint32_t from, uint32_t to, int64_t capacity)
{
    m->arc[m->n_arc++] = (struct mincut_arc){to, m->head[from], capacity};
    m->head[from] = (uint32_t)m->n_arc;
}

void mincut_arc(mincut *m, uint32_t from, uint32_t to, int64_t capacity)
{
    if (m->oom || from == to || capacity <= 0)
        return;
    if (!ARENA_ROOM(m->a, m->arc, m->cap_arc, m->n_arc + 2)) {
        m->oom = true;
        return;
    }
    push(m, from, to, nnc_min64(capacity, MINCUT_INF));
    push(m, to, from, 0);
}

/* Levels by breadth-first search over arcs with remaining capacity; true when the sink is reached. queue has room for n. */
static bool find_levels(mincut *m, uint32_t *queue)
{
    memset(m->level, 0, m->n * sizeof *m->level);
    uint32_t first = 0, n = 0;
    m->level[0] = 1;
    queue[n++] = 0;
    while (first < n) {
        uint32_t v = queue[first++];
        for (uint32_t a = m->head[v]; a; a = m->arc[a - 1].next) {
            const struct mincut_arc *arc = &m->arc[a - 1];
            if (arc->left > 0 && !m->level[arc->to]) {
                m->level[arc->to] = m->level[v] + 1;
                queue[n++] = arc->to;
            }
        }
    }
    return m->level[1] != 0;
}

/* Blocking flow along the levels; path[] holds the arcs (1-based) from the source. */
static void push_flow(mincut *m, uint32_t *path)
{
    memcpy(m->at, m->head, m->n * sizeof *m->at);
    uint32_t n = 0, v = 0;
    for (;;) {
        if (v == 1) {
            int64_t flow = MINCUT_INF;
            uint32_t cut = 0;
            for (uint32_t i = 0; i < n; i++)
                flow = nnc_min64(flow, m->arc[path[i] - 1].left);
            for (uint32_t i = n; i-- > 0;) {
                m->arc[path[i] - 1].left -= flow;
                m->arc[(path[i] - 1) ^ 1].left += flow;
                if (m->arc[path[i] - 1].left == 0)
                    cut = i;
            }
            n = cut; /* continue from the first saturated arc */
            v = m->arc[(path[cut] - 1) ^ 1].to;
            continue;
        }
        uint32_t a = m->at[v];
        while (a && !(m->arc[a - 1].left > 0 && m->level[m->arc[a - 1].to] == m->level[v] + 1))
            a = m->arc[a - 1].next;
        m->at[v] = a;
        if (a) {
            path[n++] = a;
            v = m->arc[a - 1].to;
        } else if (n == 0) {
            return;
        } else {
            m->level[v] = 0; /* a dead end */
            v = m->arc[(path[--n] - 1) ^ 1].to;
        }
    }
}

bool mincut_run(mincut *m, bool *side)
{
    uint32_t *queue = ARENA_NEW(m->a, uint32_t, m->n + 1);
    if (m->oom || !queue)
        return false;
    while (find_levels(m, queue))
        push_flow(m, queue);
    for (uint32_t v = 0; v < m->n; v++)
        side[v] = m->level[v] != 0;
    return true;
}
