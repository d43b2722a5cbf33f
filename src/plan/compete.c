/* plan/compete.c -- selects the engine of a call. All engines of the target that support it, and a generated kernel where the target's
 * offers include one, compete by estimated time; the first in order of preference wins ties. So the choice depends only on the
 * target's numbers and the engines' rules. */
#include "plan/maker.h"
#include <string.h>

static bool may(const nnc_call *c, const nnc_engine *e)
{
    return e->choose && nnc_target_engine_named(c->env->target, e->name);
}

/* Operations of a convolution or one of its gradients: each element of the convolution's result sums a window of a group's channels. */
static int64_t conv_flops(const nnc_call *c)
{
    const nnc_type *y = c->kind == CALL_conv             ? &c->dst
                        : c->kind == CALL_conv_transpose ? &c->src
                                                         : &c->wei,
                   *x = c->kind == CALL_conv_transpose ? &c->dst : &c->src;
    int64_t n = nnc_mul_sat(2 * x->dim[1] / c->groups, nnc_type_numel(y));
    for (int d = 0; d < c->spatial; d++)
        n = nnc_mul_sat(n, c->kernel[d]);
    return n;
}

/* Does a convolution that may be rounded to tf32 take less time in strict f32, since its tensors are row-major and a GPU's library would
 * copy them to channels last and back? */
static bool stays_strict(const nnc_call *c)
{
    const nnc_target *t = c->env->target;
    const nnc_target_engine *e = nnc_target_for_convs(t);
    nnc_ask a;
    bool strict = false;
    if (t->kind != NNC_T_cuda || c->kind > CALL_conv_wgrad || c->groups != 1 || !e)
        return false;
    const int64_t bytes =
        nnc_type_bytes(&c->src) + nnc_type_bytes(&c->wei) + nnc_type_bytes(&c->dst);
    if (nnc_plan_ask(c, conv_flops(c), bytes, &a) && a.nchw)
        (void)nnc_target_tf32_conv_ns(t, e, &a, true, &strict);
    return strict;
}

void call_for_target(nnc_call *c, const nnc_policy *o, const nnc_engine_env *env, int threads)
{
    c->threads = threads;
    c->env = env;
    c->tf32 =
        o->tf32 && env->target->flops_tf32 > 0 && c->src.dtype == DT_f32 && c->kind <= CALL_matmul;
    c->tf32 = c->tf32 && !stays_strict(c);
    c->exact = o->math == MATH_exact && c->kind <= CALL_conv_wgrad;
}

/* ---- times --------------------------------------------------------------------------------- */

bool nnc_plan_ask(const nnc_call *c, int64_t flops, int64_t bytes, nnc_ask *out)
{
    static const uint8_t kind[] = {[CALL_conv] = ASK_conv,
        [CALL_conv_transpose] = ASK_conv_transpose,
        [CALL_conv_wgrad] = ASK_conv_wgrad,
        [CALL_matmul] = ASK_matmul,
        [CALL_maxpool] = ASK_pool,
        [CALL_avgpool] = ASK_pool};
    if (c->kind == CALL_pack)
        return false;
    nnc_ask a = {.kind = kind[c->kind],
        .dtype = c->src.dtype,
        .bias = c->has_bias,
        .exact = c->exact,
        .tf32 = c->tf32,
        .grouped = c->groups > 1,
        .n_post = c->n_post,
        .flops = flops,
        .bytes = bytes,
        .dynamic = true, /* of a kernel: weights that lie in panels are no call's */
        .dynamic_k_major = c->trans_b && !c->packed,
        .results = nnc_type_numel(&c->dst),
        .result_bytes = nnc_type_bytes(&c->dst)};
    if (c->kind == CALL_matmul)
        a.outputs = c->dst.dim[c->dst.rank - 1];
    else if (kind[c->kind] != ASK_pool)
        a.outputs = c->dst.dim[1] / c->groups;
    const bool wgrad = c->kind == CALL_conv_wgrad;
    const nnc_type *y = wgrad ? &c->wei : &c->dst;
    if (wgrad)
        a.outputs = y->dim[1] / c->groups;
    a.channels = wgrad || kind[c->kind] == ASK_conv ? c->src.dim[1] / c->groups : 0;
    a.groups = c->groups;
    a.width = y->rank ? y->dim[y->rank - 1] : 0;
    a.places = a.channels ? nnc_type_numel(y) / (y->dim[0] * y->dim[1]) : 0;
    a.source = a.channels ? nnc_type_numel(&c->src) / (c->src.dim[0] * c->src.dim[1]) : 0;
    if (a.kind != ASK_pool && !c->trans_a)
        nnc_ask_product(&a, &c->src, &c->wei);
    a.nchw = c->spatial && nnc_type_orders_differ(&c->src) && nnc_type_is_row_major(&c->src);
    memcpy(a.post, c->post, sizeof a.post);
    *out = a;
    return true;
}

static nnc_ask ask_of(const maker *m, const nnc_call *c, const job *j)
{
    const nnc_cost cost = nnc_node_cost(m->g, &m->g->node[j->node]);
    nnc_ask a = {0};
    nnc_plan_ask(c, cost.flops, cost.bytes, &a);
    a.exact = m->o->policy.math == MATH_exact;
    a.dynamic_k_major = c->trans_b && !m->is_static[j->args.wei];
    return a;
}

/* Why the engine, by its offer, declines the contraction alone, and is not asked; NULL: it does not. */
static const char *declines(const maker *m, const nnc_engine *e, const nnc_call *c, const job *j)
{
    const nnc_target *t = c->env->target;
    nnc_ask a = ask_of(m, c, j);
    a.n_post = 0;
    a.bias = false;
    nnc_offer o = nnc_target_offer(t, nnc_target_engine_named(t, e->name), &a);
    return o.ok ? NULL : o.why ? o.why : "not supported";
}

/* The engine's offer; a call accepted against its rules counts as the contraction alone, then a pass over its results for each op. */
static int64_t expected_ns(const maker *m, const nnc_engine *e, const nnc_call *c, const job *j)
{
    const nnc_target *t = c->env->target;
    const nnc_target_engine *row = nnc_target_engine_named(t, e->name);
    nnc_ask a = ask_of(m, c, j);
    nnc_offer o = nnc_target_offer(t, row, &a);
    if (o.ok)
        return o.time_ns;
    const int64_t passes =
        nnc_target_move_ns(t, nnc_mul_sat(2 * a.result_bytes, a.n_post), t->threads);
    a.n_post = 0;
    o = nnc_target_offer(t, row, &a);
    return nnc_add_sat(passes, o.ok ? o.time_ns : nnc_target_contraction_ns(t, row, &a, a.flops));
}

/* ---- asking -------------------------------------------------------------------------------- */

/* Asks one engine: with packed weights where they are static, otherwise unpacked. */
static nnc_status ask(maker *m, const nnc_engine *e, nnc_call *c, bool may_pack, nnc_choice *got)
{
    c->packed = may_pack;
    NNC_TRY(e->choose(c, got, m->sink));
    if (may_pack && got->ok && got->packed_bytes > 0)
        return NNC_OK;
    c->packed = false;
    return may_pack ? e->choose(c, got, m->sink) : NNC_OK;
}

/* Asks with an in-place sum first (when legal), then with the sum as an argument. */
static nnc_status ask_with_sum(
    maker *m, const nnc_engine *e, nnc_call *c, bool may_pack, int sum_post, nnc_choice *got)
{
    for (int in_place = sum_post >= 0; in_place >= 0; in_place--) {
        if (sum_post >= 0)
            c->post[sum_post].in_place = in_place;
        NNC_TRY(ask(m, e, c, may_pack, got));
        if (got->ok)
            break;
    }
    return NNC_OK;
}

/* True for a matrix product of more than a few rows whose second operand is contiguous along the results: in rows of one number, too.
 * Generated kernels read other weights only in panels, which the pass pack_weights makes where needed. */
static bool is_kernel_product(const maker *m, const nnc_node *n)
{
    const nnc_node *core = n;
    const nnc_graph *g = m->g;
    for (uint32_t i = 0; n->body && i < n->body->n_node; i++)
        if (nnc_op_class((nnc_op)n->body->node[i].op) == CL_contract) {
            core = &n->body->node[i];
            g = n->body;
        }
    const nnc_type *y = nnc_typeof(g, core->out);
    if ((core->op != OP_matmul && core->op != OP_linear) ||
        nnc_type_numel(y) <= 8 * y->dim[y->rank - 1])
        return false;
    const nnc_type *w = nnc_typeof(g, core->in[1]);
    const bool along = core->op == OP_linear || nnc_attr_int(core, AT_transpose_b, 0);
    return (!along || w->dim[w->rank - 1] == 1) && nnc_type_is_row_major(w) &&
           nnc_type_is_row_major(y);
}

/* Estimates a generated kernel for the node by the engine that offers one; NULL: none does. */
static const nnc_target_engine *kernel_ns(
    const maker *m, const nnc_call *c, const job *j, int64_t *ns, int64_t *bid)
{
    const nnc_target *t = c->env->target;
    nnc_ask a = ask_of(m, c, j);
    for (int i = 0; i < t->n_engines; i++) {
        if (!nnc_target_runs_kernels(&t->engine[i]) || !is_kernel_product(m, &m->g->node[j->node]))
            continue;
        nnc_offer o = nnc_target_offer(t, &t->engine[i], &a);
        *ns = o.time_ns;
        *bid = nnc_target_bid_ns(&t->engine[i], o.long_sum, o.time_ns);
        if (o.ok)
            return &t->engine[i];
    }
    return NULL;
}

/* *digits: so many more tell the winner's time from all of theirs. */
static void put_loser(nnc_text *losers, const char *name, int64_t ns, int64_t least, int *digits)
{
    const int more = nnc_us_digits(ns, least);
    nnc_printf(losers, "%s%s ", losers->n ? ", " : "", name);
    if (ns == least)
        nnc_puts(losers, "the same");
    else
        nnc_put_us(losers, ns, more);
    *digits = more > *digits ? more : *digits;
}

nnc_status make_choice(maker *m, job *j, nnc_call *c, bool may_pack, int sum_post, nnc_choice *got,
    const char **reason, nnc_text *why)
{
    const nnc_call asked = *c;
    NNC_LOCAL(nnc_text) losers = {0}, best = {0};
    int64_t ns, bid;
    int digits = 0;
    nnc_status status = NNC_OK;
    *got = (nnc_choice){0};
    for (int e = 0; e < m->o->n_engine && status == NNC_OK; e++) {
        const nnc_engine *g = m->o->engine[e];
        nnc_call one = asked;
        nnc_choice choice = {0};
        if (!may(c, g))
            continue;
        const char *declined = declines(m, g, &one, j);
        if (!declined)
            status = ask_with_sum(m, g, &one, may_pack, sum_post, &choice);
        if (!choice.ok) {
            nnc_printf(why, "%s%s%s%s", why->n ? "; " : "", declined ? "" : g->name,
                declined ? "" : ": ",
                declined        ? declined
                : choice.reason ? choice.reason
                                : "not supported");
            continue;
        }
        choice.time_ns = choice.time_ns ? choice.time_ns : expected_ns(m, g, &one, j);
        if (got->ok && choice.time_ns >= got->time_ns) {
            put_loser(&losers, g->name, choice.time_ns, got->time_ns, &digits);
            continue;
        }
        if (got->ok)
            put_loser(
                &losers, m->o->engine[j->engine]->name, got->time_ns, choice.time_ns, &digits);
        *got = choice;
        *c = one;
        j->engine = (int16_t)e;
        nnc_text_clear(&best); /* the engine's text is valid until the next question */
        nnc_puts(&best, choice.reason ? choice.reason : g->name);
    }
    const nnc_target_engine *kernel =
        status == NNC_OK && got->ok ? kernel_ns(m, &asked, j, &ns, &bid) : NULL;
    if (kernel) {
        const char *library = m->o->engine[j->engine]->name;
        bool wins = bid < got->time_ns;
        put_loser(&losers, wins ? library : "a generated kernel", wins ? got->time_ns : ns,
            wins ? ns : got->time_ns, &digits);
        nnc_puts(&losers, wins ? nnc_target_lost(nnc_target_engine_named(c->env->target, library),
                                     got->time_ns, ns)
                               : nnc_target_lost(kernel, ns, got->time_ns));
        if (wins) {
            *got = (nnc_choice){.time_ns = ns};
            nnc_text_clear(&best);
            nnc_puts(&best, "generated kernel, sums in registers");
        }
    }
    if (losers.n) {
        nnc_puts(&best, ", ");
        nnc_put_us(&best, got->time_ns, digits);
        nnc_printf(&best, " by estimate (%s)", nnc_text_str(&losers));
    }
    *reason = best.n ? nnc_arena_strdup(&m->p->arena, nnc_text_str(&best)) : NULL;
    if (status == NNC_OK && (losers.oom || best.oom || (best.n && !*reason)))
        status = nnc_nomem(m->sink);
    return status;
}
