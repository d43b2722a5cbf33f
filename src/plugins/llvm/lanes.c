/* plugins/llvm/lanes.c -- calls libm lane by lane, where speed does not justify code: f64 transcendental functions and large quotients
 * of fmodf. One internal helper per function and module; the object loader resolves libm's symbol. */
#include "plugins/llvm/internal.h"

/* define internal void @nnc.name(ptr a, ptr b, i64 n): for i < n: a[i] = name(a[i], b[i]) */
static V helper(ll_mod *m, const char *name, T elem, int arity)
{
    char sym[64];
    snprintf(sym, sizeof sym, "nnc.%s", name);
    ll_helper h;
    if (!ll_helper_begin(m, &h, sym, 2))
        return h.fn;
    T two[2] = {elem, elem}, libm_t = LLVMFunctionType(elem, two, (unsigned)arity, 0);
    V libm = LLVMAddFunction(m->m, name, libm_t), arg[2], place = NULL;
    ll_attr(m, libm, "nounwind");
    for (int i = arity - 1; i >= 0; i--) {
        place = ll_helper_at(m, &h, i, elem);
        arg[i] = LLVMBuildLoad2(m->b, elem, place, "");
    }
    LLVMBuildStore(m->b, LLVMBuildCall2(m->b, libm_t, libm, arg, (unsigned)arity, ""), place);
    ll_helper_end(m, &h);
    return h.fn;
}

V ll_lanes_call(ll_mod *m, const char *name, V a, V b)
{
    if (b)
        ll_match(m, &a, &b);
    int lanes = ll_lanes(a);
    V f = helper(m, name, ll_elem(a), b ? 2 : 1);
    V p = ll_slot_put(m, 0, a), q = b ? ll_slot_put(m, 1, b) : p;
    V arg[3] = {p, q, ll_i64(m, lanes ? lanes : 1)};
    LLVMBuildCall2(m->b, LLVMGlobalGetValueType(f), f, arg, 3, "");
    return ll_slot_get(m, 0, LLVMTypeOf(a));
}
