/* plan/engine.c -- selects the engine of a call: the first of the target's, in order of preference, that supports it. So the choice
 * depends only on the target and the engines' rules. */
#include "plan/maker.h"
#include <string.h>

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

/* May a convolution be rounded to tf32 but take less time in strict f32? Its tensors are row-major, and a GPU's library would copy them to
 * channels last and back. */
static bool stays_strict(const nnc_call *c)
{
    const nnc_target *t = c->env->target;
    bool strict = false;
    if (t->kind != NNC_T_cuda || c->kind > CALL_conv_wgrad || c->groups != 1 ||
        !nnc_target_engine_for(t, ASK_conv))
        return false;
    const int64_t bytes =
        nnc_type_bytes(&c->src) + nnc_type_bytes(&c->wei) + nnc_type_bytes(&c->dst);
    const nnc_ask a = nnc_plan_ask(c, conv_flops(c), bytes);
    if (a.nchw)
        (void)nnc_target_tf32_conv_ns(t, &a, true, &strict);
    return strict;
}

void call_for_target(nnc_call *c, const nnc_policy *o, const nnc_engine_env *env)
{
    c->env = env;
    c->tf32 =
        o->tf32 && env->target->flops_tf32 > 0 && c->src.dtype == DT_f32 && c->kind <= CALL_matmul;
    c->tf32 = c->tf32 && !stays_strict(c);
    c->exact = o->math == MATH_exact && c->kind <= CALL_conv_wgrad;
}

/* ---- offers --------------------------------------------------------------------------------- */

nnc_ask nnc_plan_ask(const nnc_call *c, int64_t flops, int64_t bytes)
{
    _Static_assert((int)CALL_matmul == (int)ASK_matmul, "kinds of calls are those of contractions");
    nnc_ask a = {.kind = c->kind,
        .dtype = c->src.dtype,
        .bias = c->has_bias,
        .exact = c->exact,
        .tf32 = c->tf32,
        .n_post = c->n_post,
        .flops = flops,
        .bytes = bytes};
    if (c->kind == CALL_conv || c->kind == CALL_conv_wgrad)
        a.channels = c->src.dim[1] / c->groups;
    a.nchw = c->spatial && nnc_type_orders_differ(&c->src) && nnc_type_is_row_major(&c->src);
    memcpy(a.post, c->post, sizeof a.post);
    return a;
}

/* ---- asking -------------------------------------------------------------------------------- */

/* Asks with an in-place sum first (when legal), then with the sum as an argument. */
static nnc_status ask_with_sum(
    const maker *m, const nnc_engine *e, nnc_call *c, int sum_post, nnc_choice *got)
{
    for (int in_place = sum_post >= 0; in_place >= 0; in_place--) {
        if (sum_post >= 0)
            c->post[sum_post].in_place = in_place;
        NNC_TRY(e->choose(c, got, m->sink));
        if (got->ok)
            break;
    }
    return NNC_OK;
}

nnc_status make_choice(maker *m, job *j, nnc_call *c, int sum_post, nnc_choice *got,
    const char **reason, nnc_text *why)
{
    *got = (nnc_choice){0};
    for (int e = 0; e < m->o->n_engine && !got->ok; e++) {
        const nnc_engine *g = m->o->engine[e];
        nnc_call one = *c;
        if (!g->choose || !nnc_target_engine_named(c->env->target, g->name))
            continue;
        NNC_TRY(ask_with_sum(m, g, &one, sum_post, got));
        if (got->ok) {
            *c = one;
            j->engine = (int16_t)e;
            /* the engine's text is valid only until the next question */
            *reason = nnc_arena_strdup(&m->p->arena, got->reason ? got->reason : g->name);
            NNC_NEED(*reason, m->sink);
        } else {
            nnc_printf(why, "%s%s: %s", why->n ? "; " : "", g->name,
                got->reason ? got->reason : "not supported");
        }
    }
    return NNC_OK;
}
