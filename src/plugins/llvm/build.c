/* plugins/llvm/build.c -- types, constants and small instruction patterns over scalars and
 * vectors alike. */
#include "plugins/llvm/internal.h"

#include <assert.h>
#include <string.h>

T ll_vec(T elem, int lanes)
{
    return lanes ? LLVMVectorType(elem, (unsigned)lanes) : elem;
}

T ll_dtype(ll_mod *m, nnc_dtype d)
{
    switch (d) {
    case DT_f64: return m->f64;
    case DT_f32:
    case DT_f16:
    case DT_bf16: return m->f32;
    case DT_bool: return m->i1;
    case DT_i8:
    case DT_u8: return m->i8;
    case DT_i16:
    case DT_u16: return m->i16;
    case DT_i32:
    case DT_u32: return m->i32;
    default: return m->i64;
    }
}

static T elem_of(T t)
{
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetElementType(t) : t;
}

T ll_elem(V v)
{
    return elem_of(LLVMTypeOf(v));
}

int ll_lanes(V v)
{
    T t = LLVMTypeOf(v);
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(t) : 0;
}

/* Broadcasts a constant. */
static V same(T t, V c)
{
    if (LLVMGetTypeKind(t) != LLVMVectorTypeKind)
        return c;
    unsigned n = LLVMGetVectorSize(t);
    V one[256];
    assert(n <= NNC_COUNT(one));
    for (unsigned i = 0; i < n; i++)
        one[i] = c;
    return LLVMConstVector(one, n);
}

V ll_splat(ll_mod *m, V v, int lanes)
{
    if (!lanes || ll_lanes(v) == lanes)
        return v;
    assert(ll_lanes(v) == 0 && "vectors of two widths meet");
    T t = LLVMVectorType(LLVMTypeOf(v), (unsigned)lanes);
    if (LLVMIsConstant(v))
        return same(t, v);
    V undef = LLVMGetPoison(t);
    V one = LLVMBuildInsertElement(m->b, undef, v, LLVMConstInt(m->i32, 0, 0), "");
    return LLVMBuildShuffleVector(
        m->b, one, undef, LLVMConstNull(LLVMVectorType(m->i32, (unsigned)lanes)), "");
}

void ll_match(ll_mod *m, V *a, V *b)
{
    int la = ll_lanes(*a), lb = ll_lanes(*b);
    if (la < lb)
        *a = ll_splat(m, *a, lb);
    else
        *b = ll_splat(m, *b, la);
}

V ll_fk(V like, double v)
{
    T t = LLVMTypeOf(like);
    return same(t, LLVMConstReal(elem_of(t), v));
}

V ll_ik(V like, int64_t v)
{
    T t = LLVMTypeOf(like);
    return same(t, LLVMConstInt(elem_of(t), (unsigned long long)v, 1));
}

V ll_i64(ll_mod *m, int64_t v)
{
    return LLVMConstInt(m->i64, (unsigned long long)v, 1);
}

V ll_iota(T elem, int lanes, int64_t scale)
{
    V c[256];
    assert(lanes > 0 && lanes <= (int)NNC_COUNT(c));
    for (int i = 0; i < lanes; i++)
        c[i] = LLVMConstInt(elem, (unsigned long long)(i * scale), 1);
    return LLVMConstVector(c, (unsigned)lanes);
}

V ll_call2(ll_mod *m, const char *intrinsic, T first, T second, V *arg, int n)
{
    unsigned id = LLVMLookupIntrinsicID(intrinsic, strlen(intrinsic));
    assert(id && "no such intrinsic");
    T o[2] = {first, second};
    size_t no = second ? 2 : first ? 1 : 0;
    V f = LLVMGetIntrinsicDeclaration(m->m, id, o, no);
    return LLVMBuildCall2(m->b, LLVMIntrinsicGetType(m->c, id, o, no), f, arg, (unsigned)n, "");
}

V ll_call(ll_mod *m, const char *intrinsic, T overload, V *arg, int n)
{
    return ll_call2(m, intrinsic, overload, NULL, arg, n);
}

V ll_un(ll_mod *m, const char *intrinsic, V a)
{
    return ll_call(m, intrinsic, LLVMTypeOf(a), &a, 1);
}

V ll_select(ll_mod *m, V c, V a, V b)
{
    ll_match(m, &a, &b);
    ll_match(m, &c, &a);
    b = ll_splat(m, b, ll_lanes(a));
    return LLVMBuildSelect(m->b, c, a, b, "");
}

V ll_bits(ll_mod *m, V f)
{
    T e = ll_elem(f) == m->f64 ? m->i64 : m->i32;
    return LLVMBuildBitCast(m->b, f, ll_vec(e, ll_lanes(f)), "");
}

V ll_float(ll_mod *m, V i)
{
    T e = ll_elem(i) == m->i64 ? m->f64 : m->f32;
    return LLVMBuildBitCast(m->b, i, ll_vec(e, ll_lanes(i)), "");
}

V ll_any(ll_mod *m, V mask)
{
    return ll_lanes(mask) ? ll_un(m, "llvm.vector.reduce.or", mask) : mask;
}

V ll_wide(ll_mod *m, V x)
{
    return LLVMBuildFPExt(m->b, x, ll_vec(m->f64, ll_lanes(x)), "");
}

V ll_narrow(ll_mod *m, V x)
{
    return LLVMBuildFPTrunc(m->b, x, ll_vec(m->f32, ll_lanes(x)), "");
}

V ll_shuffle(ll_mod *m, V a, V b, const int *lane, int n)
{
    V c[256];
    assert(n <= (int)NNC_COUNT(c));
    for (int i = 0; i < n; i++)
        c[i] = LLVMConstInt(m->i32, (unsigned)lane[i], 0);
    b = b ? b : LLVMGetPoison(LLVMTypeOf(a));
    return LLVMBuildShuffleVector(m->b, a, b, LLVMConstVector(c, (unsigned)n), "");
}

V ll_row(ll_mod *m, V a, V b, int from, int step, int n)
{
    int lane[256];
    for (int i = 0; i < n; i++)
        lane[i] = from + i * step;
    return ll_shuffle(m, a, b, lane, n);
}

V ll_part(ll_mod *m, V v, int from, int n)
{
    if (n == 1)
        return LLVMBuildExtractElement(m->b, v, LLVMConstInt(m->i32, (unsigned)from, 0), "");
    return ll_row(m, v, NULL, from, 1, n);
}

V ll_lanes_mask(ll_mod *m, int lanes, int64_t live)
{
    V c[256];
    for (int i = 0; i < lanes; i++)
        c[i] = LLVMConstInt(m->i1, i < live, 0);
    return LLVMConstVector(c, (unsigned)lanes);
}

int ll_pow2_up(int64_t n)
{
    int p = 1;
    while (p < n)
        p *= 2;
    return p;
}

V ll_table(ll_mod *m, const char *name, V numbers, unsigned align)
{
    V g = LLVMGetNamedGlobal(m->m, name);
    if (g)
        return g;
    g = LLVMAddGlobal(m->m, LLVMTypeOf(numbers), name);
    LLVMSetInitializer(g, numbers);
    LLVMSetGlobalConstant(g, 1);
    LLVMSetLinkage(g, LLVMInternalLinkage);
    if (align)
        LLVMSetAlignment(g, align);
    return g;
}

V ll_stack(ll_mod *m, int64_t bytes)
{
    LLVMBasicBlockRef here = LLVMGetInsertBlock(m->b), entry = LLVMGetEntryBasicBlock(m->fn);
    LLVMPositionBuilder(m->b, entry, LLVMGetFirstInstruction(entry));
    V p = LLVMBuildAlloca(m->b, LLVMArrayType2(m->i8, (uint64_t)bytes), "");
    LLVMSetAlignment(p, 64);
    LLVMPositionBuilderAtEnd(m->b, here);
    return p;
}

V ll_slot(ll_mod *m, int i)
{
    assert(i < LL_SLOTS);
    m->slot[i] = m->slot[i] ? m->slot[i] : ll_stack(m, m->slot_bytes);
    return m->slot[i];
}

V ll_slot_put(ll_mod *m, int i, V v)
{
    V p = ll_slot(m, i);
    LLVMSetAlignment(LLVMBuildStore(m->b, v, p), 64);
    return p;
}

V ll_slot_get(ll_mod *m, int i, T t)
{
    V v = LLVMBuildLoad2(m->b, t, ll_slot(m, i), "");
    LLVMSetAlignment(v, 64);
    return v;
}

LLVMBasicBlockRef ll_block(ll_mod *m, const char *name)
{
    return LLVMAppendBasicBlockInContext(m->c, m->fn, name);
}

void ll_attr(ll_mod *m, V fn, const char *name)
{
    unsigned id = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(
        fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(m->c, id, 0));
}

bool ll_const_int(V v, int64_t *out)
{
    if (!LLVMIsAConstantInt(v))
        return false;
    *out = LLVMConstIntGetSExtValue(v);
    return true;
}

bool ll_const_float(V v, double *out)
{
    LLVMBool loses;
    if (!LLVMIsAConstantFP(v))
        return false;
    *out = LLVMConstRealGetDouble(v, &loses);
    return true;
}

LLVMBasicBlockRef ll_branch(ll_mod *m, V condition, const char *name)
{
    LLVMBasicBlockRef yes = ll_block(m, name), next = ll_block(m, "");
    LLVMBuildCondBr(m->b, condition, yes, next);
    LLVMPositionBuilderAtEnd(m->b, yes);
    return next;
}

void ll_join(ll_mod *m, LLVMBasicBlockRef next)
{
    if (!next)
        return;
    LLVMBuildBr(m->b, next);
    LLVMPositionBuilderAtEnd(m->b, next);
}

V ll_block_range(ll_mod *m, V index, int64_t size, int64_t n, V *from)
{
    *from = LLVMBuildNSWMul(m->b, index, ll_size(m, size), "");
    V end[2] = {LLVMBuildNSWAdd(m->b, *from, ll_size(m, size), ""), ll_size(m, n)};
    return ll_call(m, "llvm.smin", m->i64, end, 2);
}

void ll_spans(ll_mod *m, V index, int64_t size, int64_t n, int lanes, ll_span_body body, void *ctx)
{
    const int64_t full = n / lanes * lanes;
    V from = ll_i64(m, 0), to = ll_size(m, full), end = NULL;
    LLVMBasicBlockRef next = NULL;
    if (size < n) {
        end = to = ll_block_range(m, index, size, n, &from);
        if (full < n)
            to = LLVMBuildAnd(m->b, end, ll_i64(m, -(int64_t)lanes), "");
        if (n % size && n % size < lanes)
            next = ll_branch(m, LLVMBuildICmp(m->b, LLVMIntSLT, from, to, ""), "");
    }
    if (size < n ? size == lanes : full == lanes) {
        body(ctx, from, lanes);
    } else if (full) {
        ll_loop l;
        ll_loop_begin(m, &l, from, to, ll_i64(m, lanes), NULL, NULL, 0);
        body(ctx, l.i, lanes);
        ll_loop_end(m, &l);
    }
    ll_join(m, next);
    if (full == n)
        return;
    next =
        end ? ll_branch(m, LLVMBuildICmp(m->b, LLVMIntEQ, end, ll_size(m, n), ""), "tail") : NULL;
    body(ctx, ll_i64(m, full), (int)(n - full));
    ll_join(m, next);
}

void ll_loop_begin(ll_mod *m, ll_loop *l, V from, V to, V step, V *phi, V *node, int n_phi)
{
    *l = (ll_loop){ll_block(m, ""), NULL, from, to, step, n_phi, phi, node};
    LLVMBasicBlockRef before = LLVMGetInsertBlock(m->b);
    LLVMBuildBr(m->b, l->head);
    LLVMPositionBuilderAtEnd(m->b, l->head);
    l->i = LLVMBuildPhi(m->b, m->i64, "");
    LLVMAddIncoming(l->i, &from, &before, 1);
    for (int p = 0; p < n_phi; p++) {
        if (!phi[p])
            continue;
        node[p] = LLVMBuildPhi(m->b, LLVMTypeOf(phi[p]), "");
        LLVMAddIncoming(node[p], &phi[p], &before, 1);
        phi[p] = node[p];
    }
}

void ll_loop_end(ll_mod *m, ll_loop *l)
{
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(m->b), after = ll_block(m, "");
    V next = LLVMBuildNSWAdd(m->b, l->i, l->step, "");
    LLVMAddIncoming(l->i, &next, &latch, 1);
    for (int p = 0; p < l->n_phi; p++)
        if (l->phi[p])
            LLVMAddIncoming(l->node[p], &l->phi[p], &latch, 1);
    V more = LLVMBuildICmp(m->b, LLVMIntSLT, next, l->to, "");
    LLVMBuildCondBr(m->b, more, l->head, after);
    LLVMPositionBuilderAtEnd(m->b, after);
}

bool ll_helper_begin(ll_mod *m, ll_helper *h, const char *sym, int n_ptr)
{
    *h = (ll_helper){.fn = LLVMGetNamedFunction(m->m, sym)};
    if (h->fn)
        return false;
    T par[4] = {m->ptr, m->ptr, m->ptr, m->ptr};
    assert(n_ptr < (int)NNC_COUNT(par));
    par[n_ptr] = m->i64;
    T type = LLVMFunctionType(LLVMVoidTypeInContext(m->c), par, (unsigned)n_ptr + 1, 0);
    h->fn = LLVMAddFunction(m->m, sym, type);
    LLVMSetLinkage(h->fn, LLVMInternalLinkage);
    ll_attr(m, h->fn, "nounwind");
    ll_attr(m, h->fn, "noinline");
    h->here = LLVMGetInsertBlock(m->b);
    h->outer = m->fn;
    m->fn = h->fn;
    LLVMPositionBuilderAtEnd(m->b, ll_block(m, "entry"));
    V n = LLVMGetParam(h->fn, (unsigned)n_ptr);
    ll_loop_begin(m, &h->loop, ll_i64(m, 0), n, ll_i64(m, 1), NULL, NULL, 0);
    return true;
}

V ll_helper_at(ll_mod *m, const ll_helper *h, int ptr, T elem)
{
    V i = h->loop.i;
    return LLVMBuildGEP2(m->b, elem, LLVMGetParam(h->fn, (unsigned)ptr), &i, 1, "");
}

void ll_helper_end(ll_mod *m, ll_helper *h)
{
    ll_loop_end(m, &h->loop);
    LLVMBuildRetVoid(m->b);
    m->fn = h->outer;
    LLVMPositionBuilderAtEnd(m->b, h->here);
}
