/* passes/compiled.c -- epilogues that need a runtime-compiled kernel of the convolution's engine. Such a kernel saves the traffic of
 * the next kernel, but may multiply more slowly than a precompiled one: the engine's offers decide. */
#include "kernel/kernel.h"
#include "passes/internal.h"

/* Times of two alternatives: a precompiled kernel and a second one for the rest, or one runtime-compiled kernel. */
typedef struct ways {
    int64_t apart_ns, rest_ns, compiled_ns; /* apart: including the rest */
} ways;

/* Extends the chain by what a runtime-compiled kernel supports, as long as each result has one user. */
static epilogue lengthened(pass *p, uint32_t i, const epilogue *e, nnc_offer *o)
{
    epilogue r = *e;
    nnc_ref v = e->n ? p->g->node[e->node[e->n - 1]].out : p->g->node[i].out;
    r.stop = NNC_NONE;
    r.why = "the result is an output, or has several consumers";
    for (const nnc_node *u; (u = edit_only_user(p, v)); v = u->out) {
        const nnc_type *y = nnc_typeof(p->g, v), *out = nnc_typeof(p->g, u->out);
        r.stop = node_index(p, u);
        r.why = remark_text(p, "%s is not supported by runtime-compiled epilogues of %s",
            nnc_ops[u->op].name, engine_name(p, &p->g->node[i]));
        if (r.n >= MAX_EPILOGUE || u->n_out != 1 || y->dtype != out->dtype ||
            !nnc_type_same_memory(y, out) || placed_apart(&p->g->node[i], u))
            break;
        r.node[r.n] = r.stop;
        nnc_offer longer = epilogue_offer(p, i, &r, r.n + 1, true);
        if (!longer.ok && longer.why && p->o->policy.math == MATH_exact)
            r.why = remark_text(p, "%s", longer.why);
        if (!longer.ok)
            break;
        r.n++;
        *o = longer;
    }
    return r;
}

/* ---- kernels that absorb the rest ----------------------------------------------------------------------------------- */

/* True when this user's kernel computes its operand as well; costly ops only if once per element. */
static bool absorbs(const pass *p, const nnc_node *n, nnc_ref v, bool costly)
{
    nnc_class c = nnc_op_class(n->op);
    if (is_contraction(p, n))
        return false;
    if (!costly)
        return true;
    if (c == CL_move)
        return n->op != OP_broadcast && !nnc_index_operand(n);
    bool once = c == CL_ewise || c == CL_ecomp || c == CL_reduce || c == CL_comp;
    return once && nnc_type_numel(nnc_typeof(p->g, n->out)) <= nnc_type_numel(nnc_typeof(p->g, v));
}

/* True when the rest of the chain, from node `first` on, is part of a kernel that is needed in any case. */
bool epilogue_absorbed(pass *p, const epilogue *all, int first)
{
    uint32_t user[16];
    nnc_ref v = p->g->node[all->node[all->n - 1]].out;
    int n = users_through_views(p, v, user, NNC_COUNT(user));
    bool costly = false, yes = n > 0 && n <= (int)NNC_COUNT(user) && !edit_is_output(p, v);
    for (int k = first; k < all->n; k++)
        costly = costly || nnc_op_is_expensive((nnc_op)p->g->node[all->node[k]].op);
    for (int k = 0; k < n && yes; k++)
        yes = absorbs(p, &p->g->node[user[k]], v, costly);
    return yes && (n == 1 || !costly);
}

/* ---- decision ------------------------------------------------------------------------------------------------------- */

/* Asks the caller's function, with the resulting node. NULL: supported. */
static const char *refused(pass *p, uint32_t i, const epilogue *all)
{
    uint32_t nodes[MAX_CHAIN + 1] = {i};
    const char *why = NULL;
    bool yes = false;
    if (!p->o->compiles)
        return NULL;
    memcpy(nodes + 1, all->node, (size_t)all->n * sizeof *nodes);
    nnc_ref out = p->g->node[all->node[all->n - 1]].out;
    nnc_ref r = region_build(p, nodes, all->n + 1, &out, 1);
    if (r == NNC_NONE)
        return "out of memory";
    uint32_t at = p->g->value[r].node;
    nnc_status st = p->o->compiles(
        p->o->compiles_ctx, &p->o->policy, p->g, &p->g->node[at], &yes, &why, p->sink);
    why = yes || st ? NULL : remark_text(p, "%s", why);
    edit_sweep(p, at);
    p->status = p->status ? p->status : st;
    return why;
}

void epilogue_compile(pass *p, uint32_t i, epilogue *e, const char **how)
{
    const nnc_node *c = &p->g->node[i];
    const nnc_target_engine *engine = engine_of(p, c);
    if (!engine || !p->o->policy.compiles || c->op != OP_conv || e->stop == NNC_NONE)
        return;
    nnc_offer longest = {0};
    epilogue all = lengthened(p, i, e, &longest);
    if (all.n == e->n) {
        e->why = p->o->policy.math == MATH_exact && all.stop != NNC_NONE &&
                         strstr(all.why, "--math=exact")
                     ? all.why
                     : e->why;
        return;
    }
    const char *name = engine->name;
    if (epilogue_absorbed(p, &all, e->n)) {
        e->why = remark_text(
            p, "its consumer's kernel computes it too, without runtime compilation by %s", name);
        return;
    }
    ways w = {.rest_ns = epilogue_rest_ns(p, i, &all, e->n), .compiled_ns = longest.time_ns};
    w.apart_ns = w.rest_ns + epilogue_offer(p, i, e, e->n, false).time_ns;
    const char *numbers = remark_text(p, "%s instead of %s with a separate kernel for it (%s)",
        text_us_beside(p, w.compiled_ns, w.apart_ns), text_us_beside(p, w.apart_ns, w.compiled_ns),
        text_us(p, w.rest_ns));
    if (!longest.compiled || w.compiled_ns >= w.apart_ns) {
        e->why = remark_text(p,
            "runtime-compiled kernels of %s reach %.2f of the peak, precompiled ones %.2f: %s",
            name, engine->compiled_efficiency, engine->efficiency, numbers);
        return;
    }
    const char *no = refused(p, i, &all);
    if (no) {
        e->why = no;
        return;
    }
    *e = all;
    *how = remark_text(p,
        "%s compiles one kernel for the %s with this epilogue when the plan is loaded: %s", name,
        nnc_ops[c->op].name, numbers);
}
