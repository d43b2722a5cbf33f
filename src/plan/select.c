/* plan/select.c -- selects how a node is computed: contractions by the library of the target that supports them (engine.c), everything
 * else by a generated kernel. Also decides what is computed in place. */
#include "plan/maker.h"
#include <string.h>

/* ---- last uses ------------------------------------------------------------------------------------------------------ */

/* May main's job `at` overwrite root r on device dev? r must be computed in main and not be an output, and all its other consumers must
 * certainly be done. */
static bool dies(const maker *m, nnc_ref r, int dev, int32_t at)
{
    bool copy = dev != m->home[r];
    if (at < 0 || m->is_static[r] || (!copy && m->is_out[r]))
        return false;
    if (!copy && nnc_def(m->g, r)->op == OP_input)
        return false;
    for (int32_t u = m->use[slot(m, r, dev)]; u >= 0; u = m->uses[u].next)
        if (m->uses[u].job != at && !plan_before(&m->order, m->uses[u].job, at))
            return false;
    return true;
}

/* How often root r occurs among the node's operands. */
static int count_root(const maker *m, const nnc_node *n, nnc_ref r)
{
    int k = 0;
    for (int i = 0; i < n->n_in; i++)
        k += m->root[n->in[i]] == r && !nnc_operand_repeats(n, i);
    return k;
}

static bool may_take(const maker *m, const job *j, int32_t at, nnc_ref operand, nnc_ref result)
{
    const nnc_node *n = &m->g->node[j->node];
    nnc_ref r = m->root[operand];
    bool state = m->updated[r] && j->device == m->home[r];
    if (m->root[result] != result || (nnc_is_in_place(nnc_def(m->g, r)) && !state))
        return false; /* parts of one value have fixed places */
    if (state && (m->state_of[result] != r || m->at[operand] || j->section != m->updated[r]))
        return false; /* only its new value may overwrite a state's memory */
    int64_t bytes = nnc_type_bytes(nnc_typeof(m->g, result));
    return nnc_type_bytes(nnc_typeof(m->g, r)) == bytes && count_root(m, n, r) == 1 &&
           dies(m, r, j->device, at);
}

/* ---- calls --------------------------------------------------------------------------------- */

/* True when the call's result may overwrite its k-th sum. Not when the call reads that memory as another argument too (a convolution
 * added to its own source). */
static bool may_sum_in_place(const maker *m, const job *j, int32_t at, int k, nnc_ref result)
{
    const call_args *a = &j->args;
    nnc_ref r = m->root[a->sum[k]];
    const nnc_ref others[] = {a->src, a->wei, a->bias};
    int reads = 0;
    for (size_t i = 0; i < NNC_COUNT(others); i++)
        reads += others[i] != NNC_NONE && m->root[others[i]] == r;
    for (int i = 0; i < a->n_sum; i++)
        reads += m->root[a->sum[i]] == r;
    return reads == 1 && may_take(m, j, at, a->sum[k], result);
}

static nnc_status keep_call(maker *m, job *j, nnc_call *c, const nnc_choice *got)
{
    nnc_plan *p = m->p;
    c->work_bytes = got->workspace_bytes;
    j->work_bytes = got->workspace_bytes;
    NNC_NEED(ARENA_ROOM(&p->arena, p->call, m->cap_call, p->n_call + 1), m->sink);
    j->item = p->n_call;
    j->is_call = true;
    p->call[p->n_call] = *c;
    p->call[p->n_call++].env = NULL;
    return NNC_OK;
}

/* Tries to make the node a call; j->is_call tells whether it is one. The reason against it is appended to `why`. */
static nnc_status select_call(maker *m, job *j, int32_t at, nnc_text *why)
{
    const nnc_node *n = &m->g->node[j->node];
    const nnc_engine_env *env = &m->on[j->device].env;
    const char *reason = "not supported";
    nnc_call c;
    nnc_choice got;
    if (!make_call(m->g, n, &c, &j->args, &reason)) {
        NNC_NEED(reason, m->sink);
        if (env->target->kind != NNC_T_cpu)
            nnc_puts(why, reason);
        return NNC_OK;
    }
    call_for_target(&c, &m->o->policy, env);
    int sum = -1; /* first operand that may be overwritten */
    for (int k = 0; k < j->args.n_sum && sum < 0; k++)
        if (may_sum_in_place(m, j, at, k, n->out))
            sum = k;
    NNC_TRY(make_choice(m, j, &c, sum < 0 ? -1 : j->args.sum_post[sum], &got, &j->reason, why));
    if (!got.ok)
        return NNC_OK;
    if (sum >= 0 && c.post[j->args.sum_post[sum]].in_place) {
        NNC_NEED(j->over = ARENA_NEW(&m->scratch, nnc_ref, 1), m->sink);
        j->over[0] = j->args.sum[sum];
        for (int k = sum + 1; k < j->args.n_sum; k++)
            j->args.sum[k - 1] = j->args.sum[k];
        j->args.n_sum--;
    }
    return keep_call(m, j, &c, &got);
}

typedef struct nnc_known_work {
    nnc_hash128 node; /* nnc_node_hash */
    int16_t device;
    int64_t bytes;
} nnc_known_work;

static nnc_status ask_work_bytes(maker *m, uint32_t i, int64_t *bytes)
{
    const nnc_node *n = &m->g->node[i];
    job j = {.kind = J_node, .node = i, .device = device_of_node(n)};
    const char *reason = "";
    nnc_call c;
    nnc_choice got = {0};
    NNC_LOCAL(nnc_text) why = {0};
    if (!make_call(m->g, n, &c, &j.args, &reason))
        return reason ? NNC_OK : nnc_nomem(m->sink);
    call_for_target(&c, &m->o->policy, &m->on[j.device].env);
    NNC_TRY(make_choice(m, &j, &c, -1, &got, &reason, &why));
    *bytes = got.ok ? got.workspace_bytes : 0;
    return NNC_OK;
}

static nnc_status collective_work_bytes(maker *m, const nnc_node *n, int64_t *bytes)
{
    nnc_collective coll;
    NNC_TRY(make_collective(m, n, &coll));
    for (int k = 0; k < n->n_in; k++)
        if (target_of(m, m->home[n->in[k]])->kind != NNC_T_cuda)
            *bytes += nnc_collective_work(&coll, nnc_type_bytes(nnc_typeof(m->g, n->in[k])),
                nnc_type_bytes(nnc_typeof(m->g, n->out + (nnc_ref)k)),
                nnc_dtype_size(nnc_typeof(m->g, n->in[k])->dtype));
    return NNC_OK;
}

nnc_status make_work_bytes(maker *m, uint32_t i, int64_t *bytes)
{
    const nnc_node *n = &m->g->node[i];
    const int16_t device = device_of_node(n);
    nnc_work_memo *w = m->memo;
    if (is_collective(n))
        return collective_work_bytes(m, n, bytes);
    if (!nnc_has_call(m->on[device].env.target, m->g, n))
        return NNC_OK;
    if (!w)
        return ask_work_bytes(m, i, bytes);
    const nnc_hash128 hash = nnc_node_hash(m->g, n);
    for (size_t k = 0; k < w->n; k++)
        if (w->at[k].node.hi == hash.hi && w->at[k].node.lo == hash.lo &&
            w->at[k].device == device) {
            *bytes = w->at[k].bytes;
            return NNC_OK;
        }
    NNC_TRY(ask_work_bytes(m, i, bytes));
    NNC_NEED(ARENA_ROOM(w->arena, w->at, w->cap, w->n + 1), m->sink);
    w->at[w->n++] = (nnc_known_work){hash, device, *bytes};
    return NNC_OK;
}

/* ---- kernels ------------------------------------------------------------------------------- */

/* Distinct operands in order: the kernel's input buffers. */
static int distinct(const nnc_node *n, nnc_ref *v)
{
    int k = 0;
    for (int a = 0; a < n->n_in; a++)
        if (!nnc_operand_repeats(n, a))
            v[k++] = n->in[a];
    return k;
}

/* Is operand v overwritten by another result already? */
static bool is_taken(const maker *m, const nnc_node *n, const nnc_ref *over, nnc_ref v)
{
    bool taken = false;
    for (int r = 0; r < n->n_out; r++)
        taken = taken || (over[r] != NNC_NONE && m->root[over[r]] == m->root[v]);
    return taken;
}

/* The operand that result r of the node may overwrite, or NNC_NONE. `state`: it must be the state that r is a new value of. */
static nnc_ref find_overwritten(const maker *m, const job *j, int32_t at, const nnc_kernel *k,
    const nnc_ref *in, int n_in, int r, bool state)
{
    const nnc_node *n = &m->g->node[j->node];
    const nnc_ref to = n->out + (nnc_ref)r;
    for (int i = 0; i < n_in; i++)
        if ((m->root[in[i]] == m->state_of[to]) == state && !is_taken(m, n, j->over, in[i]) &&
            may_take(m, j, at, in[i], to) && nnc_kernel_in_place(k, i, n_in + r))
            return in[i];
    return NNC_NONE;
}

static nnc_status find_in_place(maker *m, job *j, int32_t at, const nnc_kernel *k)
{
    const nnc_node *n = &m->g->node[j->node];
    if (at < 0 || (int64_t)n->n_in * n->n_out > PLAN_PAIRS)
        return NNC_OK;
    nnc_ref *in = ARENA_NEW(&m->scratch, nnc_ref, n->n_in + 1);
    j->over = ARENA_NEW(&m->scratch, nnc_ref, n->n_out);
    NNC_NEED(in && j->over, m->sink);
    const int n_in = distinct(n, in);
    memset(j->over, 0xff, n->n_out * sizeof *j->over);
    /* in two rounds: first states, so that their new values are not copied */
    for (int state = 1; state >= 0; state--)
        for (int r = 0; r < n->n_out; r++)
            if (j->over[r] == NNC_NONE)
                j->over[r] = find_overwritten(m, j, at, k, in, n_in, r, state);
    return NNC_OK;
}

static bool interpret_once(maker *m, const nnc_kernel *k)
{
    const int64_t ns = nnc_kernel_interpreted_ns(k, &m->scratch);
    return ns >= 0 && ns <= NNC_T_interpret_ns;
}

/* Should the kernel be compiled without optimisation? Half of a model's kernels may run once, or for less than 0.1 us: optimising them
 * takes longer than it saves. Unoptimised code keeps every value in memory, so bodies must be short. Math functions, some 20 instructions
 * each, take twice as long without optimisation. */
static bool compile_soon(const nnc_kernel *k, bool once)
{
    enum { SHORT = 64, FEW = 4096, ONCE = 16 << 20, FUNCTION = 20 };
    int64_t steps = k->n_ins, most = once ? ONCE : FEW;
    for (int i = 0; i < k->n_ins && !once; i++)
        if (k->ins[i].op == KO_sop && nnc_is_float(k->ins[i].dtype) &&
            nnc_sops[k->ins[i].sop].flags & OF_slow)
            steps += FUNCTION - 1;
    for (int a = 0; a < k->n_axis && steps <= most; a++)
        steps *= k->axis[a].extent;
    return k->n_ins <= SHORT && steps <= most;
}

static lowered *find_lowered(const maker *m, nnc_hash128 h)
{
    uint32_t i = (uint32_t)h.lo & m->lowered_mask;
    while (m->lowered[i].k && (m->lowered[i].node.lo != h.lo || m->lowered[i].node.hi != h.hi))
        i = (i + 1) & m->lowered_mask;
    return &m->lowered[i];
}

static nnc_status keep_lowered(maker *m, const lowered *x)
{
    if (m->n_lowered * 2 >= m->lowered_mask) {
        uint32_t size = m->lowered ? (m->lowered_mask + 1) * 2 : 64;
        lowered *old = m->lowered, *all = ARENA_NEW(&m->scratch, lowered, size);
        uint32_t n = old ? m->lowered_mask + 1 : 0;
        NNC_NEED(all, m->sink);
        m->lowered = all;
        m->lowered_mask = size - 1;
        for (uint32_t i = 0; i < n; i++)
            if (old[i].k)
                *find_lowered(m, old[i].node) = old[i];
    }
    *find_lowered(m, x->node) = *x;
    m->n_lowered++;
    return NNC_OK;
}

static void show_kernel(const maker *m, const nnc_node *n, const nnc_kernel *k)
{
    if (m->o->on_kernel)
        m->o->on_kernel(m->o->on_kernel_ctx, k, n->origin ? n->origin : nnc_ops[n->op].name);
}

static nnc_status lower_node(maker *m, job *j, const nnc_node *n, const nnc_kernel **out)
{
    nnc_hash128 h = nnc_node_hash(m->g, n);
    /* kernels that run once may be compiled differently, and each kind of device has its own */
    h.hi ^= 2 * (uint64_t)m->on[j->device].kind + m->is_static[n->out];
    const lowered *known = m->lowered ? find_lowered(m, h) : NULL;
    if (known && known->k) {
        show_kernel(m, n, *out = known->k);
        j->item = known->item;
        j->work_bytes = known->work_bytes;
        return NNC_OK;
    }
    nnc_kernel *k =
        nnc_lower(m->g, n, target_of(m, j->device), m->o->policy.math, &m->scratch, m->sink);
    if (!k)
        return nnc_sink_cause(m->sink, NNC_E_BUG);
    const bool once = m->is_static[n->out] && k->grid.cls == KC_none;
    if (k->grid.cls == KC_none && compile_soon(k, once)) {
        (void)nnc_sched_put(&k->sched, KD_quick, -1, 0);
        nnc_sched_drop(&k->sched, KD_nontemporal, -1);
    }
    show_kernel(m, n, *out = k);
    NNC_TRY(make_kernel(m, j, k, once && interpret_once(m, k)));
    return keep_lowered(m, &(lowered){h, k, j->item, j->work_bytes});
}

static nnc_status select_kernel(maker *m, job *j, int32_t at)
{
    const nnc_node *n = &m->g->node[j->node];
    const nnc_kernel *k = NULL;
    NNC_TRY(lower_node(m, j, n, &k));
    return find_in_place(m, j, at, k);
}

/* Counts a contraction that no engine supports. */
static nnc_status count_unserved(maker *m, const nnc_node *n, const char *why)
{
    for (int i = 0; i < m->n_unserved; i++)
        if (m->unserved[i].op == n->op && !strcmp(m->unserved[i].why, why)) {
            m->unserved[i].n++;
            return NNC_OK;
        }
    const char *kept = nnc_arena_strdup(&m->scratch, why);
    NNC_NEED(
        kept && ARENA_ROOM(&m->scratch, m->unserved, m->cap_unserved, (size_t)m->n_unserved + 1),
        m->sink);
    m->unserved[m->n_unserved++] = (unserved){n->op, kept, n->loc, 1};
    return NNC_OK;
}

void make_notes(const maker *m)
{
    for (const unserved *u = m->unserved; u < m->unserved + m->n_unserved; u++)
        if (u->n == 1)
            nnc_note(m->sink, u->first,
                "no library computes this %s (%s): a generated kernel does, slowly",
                nnc_ops[u->op].name, u->why);
        else
            nnc_note(m->sink, u->first,
                "no library computes this %s and %d other%s (%s): generated kernels do, slowly",
                nnc_ops[u->op].name, u->n - 1, u->n == 2 ? "" : "s", u->why);
}

/* Selects a generated kernel for a contraction that no engine supports, if the target's kernels can compute it. */
static nnc_status select_sums(maker *m, job *j, int32_t at, const char *why)
{
    const nnc_node *n = &m->g->node[j->node];
    const nnc_target *t = target_of(m, j->device);
    if (!nnc_target_for_kernels(t))
        return *why ? nnc_fail(m->sink, NNC_E_DEVICE, n->loc, "no engine computes this %s: %s",
                          nnc_ops[n->op].name, why)
                    : nnc_fail(m->sink, NNC_E_DEVICE, n->loc,
                          "no engine of %s computes contractions, and this is one: %s", t->name,
                          nnc_ops[n->op].name);
    j->reason = t->kind == NNC_T_cpu
                    ? nnc_arena_printf(&m->p->arena, "generated kernel%s%s%s", *why ? " (" : "",
                          why, *why ? ")" : "")
                    : nnc_arena_printf(&m->p->arena,
                          "no library computes this %s (%s): a generated kernel does, slowly",
                          nnc_ops[n->op].name, *why ? why : "none is there");
    NNC_NEED(j->reason, m->sink);
    if (t->kind != NNC_T_cpu)
        NNC_TRY(count_unserved(m, n, *why ? why : "none is there"));
    return select_kernel(m, j, at);
}

nnc_status make_select(maker *m, job *j, int32_t main_at)
{
    const nnc_node *n = &m->g->node[j->node];
    if (!nnc_has_call(target_of(m, j->device), m->g, n))
        return select_kernel(m, j, main_at);
    NNC_LOCAL(nnc_text) why = {0};
    NNC_TRY(select_call(m, j, main_at, &why));
    NNC_NEED(!why.oom, m->sink);
    if (j->is_call)
        return NNC_OK;
    return select_sums(m, j, main_at, nnc_text_str(&why));
}
