/* plugins/llvm/lanes.c -- libm lane by lane: f64 transcendental functions and the far cases of
 * fmodf, where speed is not worth code. One internal helper per function and module; the object
 * loader resolves libm's name. */
#include "plugins/llvm/internal.h"

#include <string.h>

/* define internal void @nnc.name(ptr a, ptr b, i64 n): for i < n: a[i] = name(a[i], b[i]) */
static V helper(ll_mod *m, const char *name, T elem, int arity)
{
    char sym[64];
    snprintf(sym, sizeof sym, "nnc.%s", name);
    V f = LLVMGetNamedFunction(m->m, sym);
    if (f)
        return f;
    T two[2] = {elem, elem}, par[3] = {m->ptr, m->ptr, m->i64};
    T libm_t = LLVMFunctionType(elem, two, (unsigned)arity, 0);
    V libm = LLVMAddFunction(m->m, name, libm_t);
    ll_attr(m, libm, "nounwind");
    f = LLVMAddFunction(m->m, sym, LLVMFunctionType(LLVMVoidTypeInContext(m->c), par, 3, 0));
    LLVMSetLinkage(f, LLVMInternalLinkage);
    ll_attr(m, f, "nounwind");
    ll_attr(m, f, "noinline");

    LLVMBasicBlockRef here = LLVMGetInsertBlock(m->b);
    V fn = m->fn;
    m->fn = f;
    LLVMPositionBuilderAtEnd(m->b, ll_block(m, "entry"));
    ll_loop l;
    ll_loop_begin(m, &l, ll_i64(m, 0), LLVMGetParam(f, 2), ll_i64(m, 1), NULL, NULL, 0);
    V arg[2], place = NULL;
    for (int i = arity - 1; i >= 0; i--) {
        place = LLVMBuildGEP2(m->b, elem, LLVMGetParam(f, (unsigned)i), &l.i, 1, "");
        arg[i] = LLVMBuildLoad2(m->b, elem, place, "");
    }
    LLVMBuildStore(m->b, LLVMBuildCall2(m->b, libm_t, libm, arg, (unsigned)arity, ""), place);
    ll_loop_end(m, &l);
    LLVMBuildRetVoid(m->b);
    m->fn = fn;
    LLVMPositionBuilderAtEnd(m->b, here);
    return f;
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
