/* plan/make.c -- graph to plan, step by step.
 *
 *   facts      Which values are static, which are views of which, where each is stored.
 *   schedule   Main's commands in order, on streams, with copies and events (schedule.c).
 *   select     A library call (call.c) or a generated kernel for each, and what happens in place (select.c).
 *   init       What is computed once: weights and static values (init.c).
 *   objects    Machine code of the kernels, begun while they are selected (kernels.c).
 *   emit       Tensors and commands (emit.c).
 *   place      Offsets in the arenas (memory.c, pack.c). */
#include "plan/maker.h"
#include <string.h>

static bool alloc_facts(maker *m)
{
    nnc_arena *a = &m->scratch;
    size_t n = (size_t)m->g->n_value + 1, slots = n * (size_t)m->n_dev;
    m->root = ARENA_NEW(a, nnc_ref, n);
    m->at = ARENA_NEW(a, int64_t, n);
    m->home = ARENA_NEW(a, int16_t, n);
    m->is_out = ARENA_NEW(a, bool, n);
    m->state_of = ARENA_NEW(a, nnc_ref, n);
    m->updated = ARENA_NEW(a, uint8_t, n);
    m->section = ARENA_NEW(a, uint8_t, m->g->n_node + (size_t)1);
    m->tensor = ARENA_NEW(a, int32_t, slots);
    m->use = ARENA_NEW(a, int32_t, slots);
    m->made = ARENA_NEW(a, uint8_t, slots);
    m->want = ARENA_NEW(a, uint8_t, slots);
    m->is_static = nnc_static_values(m->g, a);
    if (!m->root || !m->at || !m->home || !m->is_out || !m->tensor || !m->use || !m->made ||
        !m->want || !m->is_static || !m->state_of || !m->section || !m->updated)
        return false;
    memset(m->state_of, 0xff, n * sizeof *m->state_of);
    memset(m->tensor, 0xff, slots * sizeof *m->tensor);
    memset(m->use, 0xff, slots * sizeof *m->use);
    return true;
}

/* Finds the section of each node: the first that needs it. */
static void find_sections(maker *m, uint32_t results)
{
    const nnc_graph *g = m->g;
    uint8_t *section = m->section;
    memset(section, SEC_step, g->n_node * sizeof *section);
    for (uint32_t i = g->n_output; i-- > 0;) {
        uint8_t *first = &section[g->value[g->output[i]].node];
        if (i < results)
            *first = SEC_main;
        else if (nnc_def(g, g->output_state[i])->accumulates)
            *first = SEC_accumulate;
    }
    for (uint32_t i = g->n_node; i-- > 0;)
        for (int k = 0; k < g->node[i].n_in; k++) {
            uint8_t *first = &section[g->value[g->node[i].in[k]].node];
            *first = *first < section[i] ? *first : section[i];
        }
}

/* Checks that no node of step reads the old value of a state that accumulates. */
static nnc_status check_accumulated(const maker *m)
{
    const nnc_graph *g = m->g;
    for (uint32_t i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in && m->section[i] == SEC_step; k++) {
            const nnc_ref r = m->root[g->node[i].in[k]];
            if (m->updated[r] == SEC_accumulate)
                return nnc_fail(m->sink, NNC_E_MODEL, nnc_def(g, r)->loc,
                    "%s is accumulated: what only updates need can read its new value, not its "
                    "old one",
                    g->value[r].name ? g->value[r].name : "a param");
        }
    return NNC_OK;
}

/* Notes that the root of v is the new value of the root of state s. */
static nnc_status find_update(maker *m, nnc_ref s, nnc_ref v)
{
    const nnc_graph *g = m->g;
    const nnc_ref to = m->root[s], from = m->root[v];
    const bool same = m->at[s] == m->at[v] &&
                      nnc_type_bytes(nnc_typeof(g, to)) == nnc_type_bytes(nnc_typeof(g, from));
    const bool first = m->state_of[from] == NNC_NONE;
    m->is_out[from] = true;
    if (same && first)
        m->state_of[from] = to;
    return to == s || (same && m->state_of[from] == to)
               ? NNC_OK
               : nnc_fail(m->sink, NNC_E_BUG, nnc_def(g, s)->loc,
                     "a part of a state is updated otherwise than the whole");
}

static nnc_status find_states(maker *m)
{
    const nnc_graph *g = m->g;
    uint32_t results = nnc_result_outputs(g);
    for (uint32_t i = 0; i < g->n_node; i++)
        if (g->node[i].state)
            m->updated[m->root[g->node[i].out]] =
                g->node[i].accumulates ? SEC_accumulate : SEC_step;
    for (uint32_t i = 0; i < g->n_output; i++) {
        const nnc_ref v = g->output[i], r = m->root[v], s = g->output_state[i];
        if (i >= results && r == m->root[s] && m->at[v] == m->at[s])
            continue; /* keeps its value */
        if (m->updated[r])
            return nnc_fail(m->sink, NNC_E_MODEL, nnc_def(g, r)->loc,
                "%s is updated, so its old value cannot be %s: compute something from it, or take "
                "its new value",
                g->value[r].name ? g->value[r].name : "a param",
                i < results ? "an output" : "the new value of another");
        if (i < results)
            m->is_out[r] = true;
        else
            NNC_TRY(find_update(m, s, v));
    }
    find_sections(m, results);
    NNC_TRY(make_tasks(m));
    return check_accumulated(m);
}

int make_sources(maker *m, nnc_ref v, const nnc_ref **out)
{
    int n = 0, room = 1; /* s[0..n): sources; s[n..room): values to visit */
    nnc_ref *s = nnc_arena_grow(&m->scratch, m->source, &m->cap_source, 1, sizeof *s);
    if (s)
        s[0] = v;
    while (s && n < room) {
        const nnc_node *d = nnc_def(m->g, s[n]);
        if (nnc_op_class(d->op) == CL_leaf || !nnc_is_view(m->g, d)) {
            n++;
            continue;
        }
        s[n] = d->in[0];
        int more = d->n_in - 1;
        size_t need = (size_t)room + (size_t)more;
        s = nnc_arena_grow(&m->scratch, s, &m->cap_source, need, sizeof *s);
        for (int k = 0; s && k < more; k++)
            s[room++] = d->in[k + 1];
    }
    m->source = s;
    *out = s;
    return s ? n : -1;
}

/* Reports a node on a device that the plan does not have. */
static nnc_status fail_place(const maker *m, const nnc_node *n)
{
    if (n->device >= NNC_MAX_DEVICES)
        return nnc_fail(m->sink, NNC_E_MODEL, n->loc,
            "placed on device %d, but a plan has at most %d devices, numbered from 0", n->device,
            NNC_MAX_DEVICES);
    return nnc_fail(m->sink, NNC_E_MODEL, n->loc,
        "placed on device %d of only %d, numbered from 0 (--devices=%d makes enough)", n->device,
        m->n_dev, n->device + 1);
}

static int16_t home_of_participant(const maker *m, const nnc_node *n, int k)
{
    const nnc_attr *device = nnc_attr_find(n, AT_devices);
    return device ? (int16_t)device->ints[k] : m->home[n->in[k]];
}

/* Is the node, or a participant of the collective, on a device that the plan does not have? */
static bool is_elsewhere(const maker *m, const nnc_node *n)
{
    const int64_t *device;
    bool any = n->device >= m->n_dev;
    for (int k = nnc_attr_ints(n, AT_devices, &device); k-- > 0 && !any;)
        any = device[k] >= m->n_dev;
    return any;
}

static nnc_status find_facts(maker *m)
{
    const nnc_graph *g = m->g;
    const nnc_place *place = nnc_places(g, &m->scratch);
    NNC_NEED(place && alloc_facts(m), m->sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        if (is_elsewhere(m, n))
            return fail_place(m, n);
        bool view = nnc_op_class(n->op) != CL_leaf && nnc_is_view(g, n);
        for (int r = 0; r < n->n_out; r++) {
            nnc_ref v = n->out + (nnc_ref)r;
            m->root[v] = place[v].root;
            m->at[v] = place[v].at;
            m->home[v] = view               ? m->home[n->in[0]]
                         : is_collective(n) ? home_of_participant(m, n, r)
                         : n->device < 0    ? 0
                                            : n->device;
        }
    }
    return find_states(m);
}

static nnc_status add_use(maker *m, nnc_ref r, int dev, int32_t at)
{
    int32_t *head = &m->use[slot(m, r, dev)];
    if (m->is_static[r] || (*head >= 0 && m->uses[*head].job == at))
        return NNC_OK;
    NNC_NEED(ARENA_ROOM(&m->scratch, m->uses, m->cap_uses, m->n_uses + 1), m->sink);
    m->uses[m->n_uses] = (job_use){at, *head};
    *head = m->n_uses++;
    return NNC_OK;
}

static nnc_status find_uses(maker *m)
{
    for (int32_t i = 0; i < m->main.n; i++) {
        const job *j = &m->main.at[i];
        if (j->kind == J_copy || j->kind == J_update)
            NNC_TRY(add_use(m, m->root[j->value], j->device, i));
        if (j->kind == J_collective)
            NNC_TRY(add_use(m, m->root[m->g->node[j->node].in[j->item]], j->device, i));
        if (j->kind != J_node)
            continue;
        const nnc_node *n = &m->g->node[j->node];
        for (int k = 0; k < n->n_in; k++)
            NNC_TRY(add_use(m, m->root[n->in[k]], j->device, i));
    }
    return NNC_OK;
}

static nnc_status select_all(maker *m)
{
    for (int32_t i = 0; i < m->main.n; i++)
        if (m->main.at[i].kind == J_node)
            NNC_TRY(make_select(m, &m->main.at[i], i));
    NNC_TRY(make_init(m));
    make_notes(m);
    return NNC_OK;
}

void nnc_plan_target_text(nnc_text *out, const nnc_target *t)
{
    char hex[33];
    nnc_hash128 h = nnc_target_hash(t);
    out->oom |= h.hi == ~(uint64_t)0;
    nnc_hash_hex(h, hex);
    nnc_printf(out, "%s#%s", t->name, hex);
    if (t->asked) /* the target gave further numbers that the plan depends on */
        nnc_printf(out, " %s: %lld bytes, %lld MHz, %lld GB/s", t->card, (long long)t->memory_bytes,
            (long long)t->clock_hz / 1000000, (long long)t->copy_bytes_s / 1000000000);
}

static bool same_kind(const machine *a, const machine *b)
{
    return !strcmp(a->text, b->text) &&
           (a->libraries == b->libraries ||
               (a->libraries && b->libraries && !strcmp(a->libraries, b->libraries)));
}

static nnc_status find_devices(maker *m)
{
    m->on = ARENA_NEW(&m->scratch, machine, m->n_dev);
    for (int d = 0; m->on && d < m->n_dev; d++) {
        const nnc_target *t = nnc_target_on(m->o->target, m->o->n_target, d);
        const ptrdiff_t at = t - m->o->target;
        m->on[d] = (machine){
            .env = {.target = t}, .compiler = m->o->compiler ? &m->o->compiler[at] : NULL};
        machine *to = &m->on[d];
        NNC_LOCAL(nnc_text) text = {0}, libraries = {0};
        nnc_plan_target_text(&text, t);
        if (t->kind == NNC_T_cuda) {
            nnc_target_put_libraries(&libraries, t);
            to->libraries =
                libraries.oom ? NULL : nnc_arena_strdup(&m->p->arena, nnc_text_str(&libraries));
            NNC_NEED(to->libraries, m->sink);
        }
        to->hash = nnc_target_hash(t);
        to->text = text.oom ? NULL : nnc_arena_strdup(&m->p->arena, nnc_text_str(&text));
        if (!to->text || to->hash.hi == ~(uint64_t)0)
            return nnc_nomem(m->sink);
        while (!same_kind(&m->on[to->kind], to))
            to->kind++;
    }
    return m->on ? NNC_OK : nnc_nomem(m->sink);
}

static nnc_status make_all(maker *m)
{
    m->p->precision = nnc_policy_precision(&m->o->policy);
    NNC_TRY(find_devices(m));
    NNC_TRY(find_facts(m));
    NNC_TRY(make_schedule(m));
    NNC_TRY(find_uses(m));
    NNC_TRY(make_objects(m, select_all));
    NNC_TRY(make_commands(m));
    NNC_TRY(plan_place(m->p, m->sink));
    /* with several devices verifies memory and order, too: an error in a pass would end in wrong numbers */
    return m->n_dev > 1 ? nnc_plan_verify(m->p, m->sink) : plan_check_rows(m->p, m->sink);
}

static nnc_status estimate(maker *m, int64_t *bytes, int64_t *ns)
{
    NNC_TRY(find_devices(m));
    NNC_TRY(find_facts(m));
    return make_estimate(m, bytes, ns);
}

nnc_status nnc_plan_estimate(const nnc_graph *g, const nnc_plan_options *o, nnc_work_memo *memo,
    int64_t *bytes, int64_t *ns, nnc_sink *sink)
{
    maker m = {
        .g = g, .o = o, .sink = sink, .n_dev = o->devices, .p = nnc_plan_create(), .memo = memo};
    const nnc_status st = m.p ? estimate(&m, bytes, ns) : nnc_nomem(sink);
    nnc_arena_deinit(&m.scratch);
    nnc_plan_destroy(m.p);
    return st;
}

nnc_status nnc_plan_make(
    const nnc_graph *g, const nnc_plan_options *o, nnc_plan **out, nnc_sink *sink)
{
    *out = NULL;
    if (o->streams < 1 || o->streams > 64 || o->devices < 1 || o->devices > NNC_MAX_DEVICES)
        return nnc_fail0(sink, NNC_E_USAGE, "%d streams on %d devices: expected 1 to 64 of each",
            o->streams, o->devices);
    maker m = {.g = g, .o = o, .sink = sink, .n_dev = o->devices};
    m.p = nnc_plan_create();
    nnc_status status = m.p ? make_all(&m) : nnc_nomem(sink);
    nnc_arena_deinit(&m.scratch);
    if (status != NNC_OK) {
        nnc_plan_destroy(m.p);
        return status;
    }
    *out = m.p;
    return NNC_OK;
}
