/* plugins/onednn/onednn.c -- the engine "onednn": convolutions, matrix products and average pooling on the CPU.
 *
 * Activations have the memory order of their nnc types; constant weights have the implementation's preferred layout (made by CALL_pack
 * in init). Other weights are relayouted into the workspace at every run (convolutions; some by Winograd's algorithm, winograd.c) or used
 * as they are (matmul). Scratch memory comes from the plan. Primitives are created for the call's number of threads. */
#include "base/signals.h"
#include "plugins/onednn/calls.h"
#include "plugins/onednn/tail.h"
#include "plugins/onednn/watch.h"
#include "plugins/onednn/wgrad.h"
#include "plugins/onednn/winograd.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_ARGS = 6 };

typedef struct dn_handle {
    nnc_call call;
    dnnl_primitive_t prim, reorder; /* weights into the workspace, or all the work of CALL_pack */
    dnnl_primitive_t again; /* the call without its tail, for runs that are not checked for NaN */
    dnnl_memory_t again_scratch;
    dnnl_stream_t stream;
    int threads;
    int tail; /* first post-operation that is not oneDNN's; n_post = none */
    int64_t aside_at; /* offset in the workspace of prim's result, -1 = dst */
    int n;
    dnnl_exec_arg_t arg[MOST_ARGS];
    int from[MOST_ARGS]; /* index of the argument at run time; -1 scratch, -2 reordered weights */
    void *seen
        [MOST_ARGS]; /* handles are set only when they change, since setting one may write padding */
    dnnl_memory_t raw; /* weights as given, source of the reorder */
    void *raw_seen;
    int raw_from;
    int64_t packed_at; /* offset of reordered weights in the workspace */
    int copy_from,
        dst_from; /* argument of a sum that is not dst itself, copied to dst first; -1 = none */
    int64_t copy_bytes;
    dn_grad *grad; /* the gradient of weights; nothing else then */
    bool winograd; /* winograd.c computes it; nothing else then */
    bool moves_stack; /* no signal may be handled while it runs */
} dn_handle;

/* ---- choose ------------------------------------------------------------------------------------------------------- */

/* How a call runs: with packed weights, weights as given, or weights reordered at each run; and, where oneDNN's relu drops NaN, how
 * NaN is kept. */
typedef struct way {
    dn_call d; /* without the tail when `apart` */
    dn_call
        again; /* the call without its tail, for runs that are not checked; pd NULL: not needed */
    int tail; /* first post-operation of the tail, which is nnc's code; n_post = no tail */
    bool apart; /* the tail always runs as nnc's code */
    bool
        aside; /* the tail adds dst's former contents: the primitive's result goes to the workspace */
    bool each_run;
} way;

static bool has_weights(const nnc_call *c)
{
    return c->kind == CALL_conv || c->kind == CALL_conv_transpose || c->kind == CALL_matmul;
}

static void leave_way(way *w)
{
    dn_call_deinit(&w->d);
    dn_call_deinit(&w->again);
}

/* Calls have both forms where they can: oneDNN's epilogue for runs that are checked, ours for the others. A sum after the relu needs our
 * epilogue in any case. */
static void find_tail(way *w, const nnc_call *c, dn_form form)
{
    for (int i = w->tail + 1; i < c->n_post; i++)
        w->aside = w->aside || c->post[i].kind == PO_sum;
    if (!w->aside && dn_watch_works(c->threads)) {
        dn_form same = {.any = form.any,
            .like = has_weights(c) ? dn_query(w->d.pd, dnnl_query_weights_md) : NULL};
        dn_describe(&w->again, c, w->tail, same);
        if (w->again.pd)
            return;
    }
    leave_way(w);
    dn_describe(&w->d, c, w->tail, form);
    w->apart = true;
}

static void find_way(way *w, const nnc_call *c)
{
    const dn_form form = {
        .any = c->packed || c->kind == CALL_conv || c->kind == CALL_conv_transpose};
    *w = (way){.tail = dn_tail_first(c)};
    dn_describe(&w->d, c, c->n_post, form);
    if (w->d.pd && w->tail < c->n_post)
        find_tail(w, c, form);
    w->each_run = !c->packed && w->d.reorders;
}

static int64_t packed_bytes(const dn_call *d)
{
    return d->reorders ? (int64_t)dnnl_memory_desc_get_size(dn_query(d->pd, dnnl_query_weights_md))
                       : 0;
}

/* Workspace: scratch memory, reordered weights, the primitive's result where the tail adds dst. */
typedef struct work_layout {
    int64_t weights, aside, bytes;
} work_layout;

static work_layout lay_out_work(const way *w, const nnc_call *c)
{
    work_layout l;
    l.weights = nnc_align_up(dn_scratch_bytes(w->d.pd), 64);
    if (w->again.pd)
        l.weights = nnc_max64(l.weights, nnc_align_up(dn_scratch_bytes(w->again.pd), 64));
    l.bytes = l.weights + (w->each_run ? packed_bytes(&w->d) : 0);
    l.aside = w->aside ? nnc_align_up(l.bytes, 64) : l.bytes;
    if (w->aside)
        l.bytes = l.aside + nnc_type_bytes(&c->dst);
    return l;
}

static int64_t work_bytes(const way *w, const nnc_call *c)
{
    return lay_out_work(w, c).bytes;
}

/* A copy of an implementation's name, valid until the thread's next question: a choice outlives its descriptor. */
static const char *keep_name(const char *name)
{
    static _Thread_local char kept[64];
    snprintf(kept, sizeof kept, "%s", name);
    return kept;
}

/* Sizes that are valid whether the plan packs the weights or not. */
static void fill_choice(nnc_choice *out, const nnc_call *c)
{
    nnc_call as_is = *c, packs = *c;
    as_is.packed = false;
    packs.packed = true;
    way w;
    /* the weights' layout influences the choice of a matmul implementation, so both are asked; a convolution always uses the
     * implementation's layout */
    bool may_pack = c->kind == CALL_matmul && c->wei.rank == 2;
    if (may_pack) {
        find_way(&w, &packs);
        if (w.d.pd) {
            out->ok = true;
            out->reason = keep_name(w.d.impl);
            out->packed_bytes = packed_bytes(&w.d);
            out->workspace_bytes = work_bytes(&w, c);
        }
        leave_way(&w);
        if (c->packed && out->ok)
            return;
    }
    find_way(&w, c->packed ? c : &as_is);
    if (w.d.pd) {
        out->packed_bytes = may_pack || !has_weights(c) ? out->packed_bytes : packed_bytes(&w.d);
        out->workspace_bytes = nnc_max64(work_bytes(&w, c), out->workspace_bytes);
        out->reason = keep_name(w.d.impl);
    } else {
        out->reason = w.d.why;
    }
    out->ok = w.d.pd != NULL;
    leave_way(&w);
}

static void choose_wgrad(nnc_choice *out, const nnc_call *c)
{
    way w;
    find_way(&w, c);
    out->ok = w.d.pd != NULL;
    out->reason = out->ok ? keep_name(w.d.impl) : w.d.why;
    out->workspace_bytes = out->ok ? dn_grad_bytes(&w.d) : 0;
    leave_way(&w);
}

static nnc_status choose(const nnc_call *c, nnc_choice *out, nnc_sink *sink)
{
    (void)sink;
    *out = (nnc_choice){.ok = c->kind == CALL_pack, .reason = "reorder"};
    if (dn_winograd_takes(c)) {
        *out = (nnc_choice){.ok = true, .reason = "winograd 4x3"};
        out->workspace_bytes = dn_winograd_bytes(c);
    } else if (c->kind != CALL_pack) {
        int before = dn_threads(c->threads);
        (c->kind == CALL_conv_wgrad ? choose_wgrad : fill_choice)(out, c);
        dn_threads(before);
    }
    return NNC_OK;
}

/* ---- load --------------------------------------------------------------------------------------------------------- */

static void unload(void *handle)
{
    NNC_FREED dn_handle *h = handle;
    if (!h)
        return;
    for (int i = 0; i < h->n; i++)
        dnnl_memory_destroy(h->arg[i].memory);
    if (h->raw)
        dnnl_memory_destroy(h->raw);
    if (h->again_scratch)
        dnnl_memory_destroy(h->again_scratch);
    if (h->prim)
        dnnl_primitive_destroy(h->prim);
    if (h->again)
        dnnl_primitive_destroy(h->again);
    if (h->reorder)
        dnnl_primitive_destroy(h->reorder);
    if (h->stream)
        dnnl_stream_destroy(h->stream);
    dn_grad_free(h->grad);
}

static bool add_arg(dn_handle *h, int dnnl_arg, dn_ref md, int from)
{
    dnnl_memory_t m;
    if (!md || dnnl_memory_create(&m, md, dn_engine(), DNNL_MEMORY_NONE) != dnnl_success)
        return false;
    h->arg[h->n] = (dnnl_exec_arg_t){dnnl_arg, m};
    h->from[h->n] = from;
    h->n++;
    return true;
}

static bool make_reorder(dn_handle *h, dn_ref from, dn_ref to)
{
    dnnl_primitive_desc_t pd;
    if (dnnl_reorder_primitive_desc_create(&pd, from, dn_engine(), to, dn_engine(), NULL) !=
        dnnl_success)
        return false;
    bool ok = dnnl_primitive_create(&h->reorder, pd) == dnnl_success;
    dnnl_primitive_desc_destroy(pd);
    return ok && dnnl_memory_create(&h->raw, from, dn_engine(), DNNL_MEMORY_NONE) == dnnl_success;
}

static bool load_pack(dn_handle *h, const nnc_call *packs)
{
    nnc_call as_packed = *packs;
    way w;
    as_packed.packed = true;
    find_way(&w, &as_packed);
    bool ok = w.d.pd != NULL && w.d.wei.set;
    if (ok) {
        dn_ref to = dn_query(w.d.pd, dnnl_query_weights_md);
        ok = (int64_t)dnnl_memory_desc_get_size(to) <= packs->packed_bytes &&
             make_reorder(h, dn_md_ref(&w.d.wei), to) && add_arg(h, DNNL_ARG_TO, to, 1);
    }
    h->raw_from = 0;
    leave_way(&w);
    return ok;
}

/* Binds the call without its tail to the same arguments, with scratch memory of its own. Done when the plan is loaded, since running
 * must not allocate. */
static bool bind_again(dn_handle *h, const way *w)
{
    if (!w->again.pd)
        return true;
    dn_ref scratch = dn_query(w->again.pd, dnnl_query_scratchpad_md);
    if (dn_scratch_bytes(w->again.pd) && dnnl_memory_create(&h->again_scratch, scratch, dn_engine(),
                                             DNNL_MEMORY_NONE) != dnnl_success)
        return false;
    return dnnl_primitive_create(&h->again, w->again.pd) == dnnl_success;
}

/* Binds the arguments in the order given in plan.h. */
static bool bind(dn_handle *h, const nnc_call *c, const way *w)
{
    const dnnl_primitive_desc_t pd = w->d.pd;
    int next = 1;
    bool ok = add_arg(h, DNNL_ARG_SRC, dn_query(pd, dnnl_query_src_md), 0);
    if (has_weights(c)) {
        h->raw_from = next;
        ok = ok && add_arg(h, DNNL_ARG_WEIGHTS, dn_query(pd, dnnl_query_weights_md),
                       w->each_run ? -2 : next);
        next++;
    }
    if (c->has_bias)
        ok = ok && add_arg(h, DNNL_ARG_BIAS,
                       dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1), next++);
    for (int p = 0; p < c->n_post; p++)
        if (c->post[p].kind == PO_sum && !c->post[p].in_place)
            h->copy_from = next++;
    h->dst_from = next;
    h->copy_bytes = nnc_type_bytes(&c->dst);
    ok = ok && add_arg(h, DNNL_ARG_DST, dn_query(pd, dnnl_query_dst_md), next);
    int64_t scratch = dn_scratch_bytes(pd);
    const work_layout l = lay_out_work(w, c);
    h->packed_at = l.weights;
    h->aside_at = w->aside ? l.aside : -1;
    h->tail = w->apart || w->again.pd ? w->tail : c->n_post;
    if (scratch)
        ok = ok && add_arg(h, DNNL_ARG_SCRATCHPAD, dn_query(pd, dnnl_query_scratchpad_md), -1);
    if (w->each_run)
        ok = ok && make_reorder(h, dn_md_ref(&w->d.wei), dn_query(pd, dnnl_query_weights_md));
    return ok && dnnl_primitive_create(&h->prim, pd) == dnnl_success && bind_again(h, w);
}

/* oneDNN's matrix products of f32 for AVX2 and AVX-512 (jit_avx_gemm_f32, jit_avx512_common_gemm_f32; all versions up to 3.7) set the stack
 * pointer to a workspace of malloc's: a handler's frame, some kilobytes, would overwrite what lies before it. Kernels with loops of
 * their own, whose names begin as here, do not call them. */
static bool moves_stack(const dn_call *d)
{
    return d->pd && strncmp(d->impl, "brg", 3) != 0 && strncmp(d->impl, "jit", 3) != 0;
}

/* Checks buffer sizes, since a plan from a file may be wrong. */
static bool fits(const nnc_call *c, const way *w)
{
    if (c->kind == CALL_conv_wgrad)
        return dn_grad_bytes(&w->d) <= c->work_bytes;
    return work_bytes(w, c) <= c->work_bytes &&
           (!c->packed || (int64_t)dnnl_memory_desc_get_size(
                              dn_query(w->d.pd, dnnl_query_weights_md)) <= c->packed_bytes);
}

static nnc_status load_call(const nnc_load *l, void **handle, nnc_sink *sink)
{
    const nnc_plan *p = l->plan;
    const nnc_call *c = &p->call[l->item];
    bool pack = c->kind == CALL_pack;
    if (pack &&
        (c->pack_for < 0 || c->pack_for >= p->n_call || !has_weights(&p->call[c->pack_for])))
        return nnc_fail0(sink, NNC_E_BUG, "plan: call %d packs weights that no call uses", l->item);
    dn_handle *h = nnc_calloc(1, sizeof *h);
    NNC_NEED(h, sink);
    h->copy_from = h->aside_at = -1;
    h->threads = c->threads;
    h->call = *c;
    int before = dn_threads(c->threads);
    const char *why = "out of memory";
    bool ok = dn_engine() && dnnl_stream_create(&h->stream, dn_engine(),
                                 dnnl_stream_default_flags) == dnnl_success;
    if (ok && pack) {
        dn_threads(p->call[c->pack_for].threads);
        ok = load_pack(h, &p->call[c->pack_for]);
        why = "the packed weights have another size";
    } else if (ok && dn_winograd_takes(c)) {
        h->winograd = true;
        ok = dn_winograd_bytes(c) <= c->work_bytes;
        why = "the buffers are too small";
    } else if (ok) {
        way w;
        find_way(&w, c);
        ok = w.d.pd && fits(c, &w);
        h->moves_stack = moves_stack(&w.d) || moves_stack(&w.again);
        if (ok && c->kind == CALL_conv_wgrad)
            ok = (h->grad = dn_grad_load(&w.d)) != NULL;
        else if (ok)
            ok = bind(h, c, &w);
        why = !w.d.pd ? w.d.why : fits(c, &w) ? why : "the buffers are too small";
        leave_way(&w);
    }
    dn_threads(before);
    if (!ok) {
        unload(h);
        return nnc_fail0(
            sink, NNC_E_DEVICE, "oneDNN cannot run call %d of the plan: %s", l->item, why);
    }
    *handle = h;
    return NNC_OK;
}

static bool layout(const void *handle, nnc_hash128 *out)
{
    const dn_handle *h = handle;
    dn_ref md;
    for (int i = 0; i < h->n; i++)
        if (h->arg[i].arg == DNNL_ARG_WEIGHTS && h->from[i] >= 0 && h->call.packed)
            return dnnl_memory_get_memory_desc(h->arg[i].memory, &md) == dnnl_success &&
                   dn_md_layout(md, out);
    return false;
}

/* Runs of this process that were repeated because of a NaN. */
__attribute__((visibility("default"))) _Atomic uint64_t nnc_onednn_reruns;

static _Thread_local bool watching, met_nan; /* this run is checked; a call of it met a NaN */

/* ---- run ---------------------------------------------------------------------------------------------------------- */

static nnc_status reorder_weights(dn_handle *h, void *raw, dnnl_memory_t to)
{
    if (raw != h->raw_seen && dnnl_memory_set_data_handle(h->raw, raw) != dnnl_success)
        return NNC_E_DEVICE;
    h->raw_seen = raw;
    const dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, h->raw}, {DNNL_ARG_TO, to}};
    return dnnl_primitive_execute(h->reorder, h->stream, 2, arg) == dnnl_success ? NNC_OK
                                                                                 : NNC_E_DEVICE;
}

static nnc_status place_args(dn_handle *h, void *const *args, void *work)
{
    for (int i = 0; i < h->n; i++) {
        void *at = h->from[i] >= 0    ? args[h->from[i]]
                   : h->from[i] == -1 ? work
                                      : (char *)work + h->packed_at;
        if (h->arg[i].arg == DNNL_ARG_DST && h->aside_at >= 0)
            at = (char *)work + h->aside_at;
        if (at != h->seen[i] && dnnl_memory_set_data_handle(h->arg[i].memory, at) != dnnl_success)
            return NNC_E_DEVICE;
        h->seen[i] = at;
        if (h->reorder && (h->from[i] == -2 || !h->prim))
            NNC_TRY(reorder_weights(h, args[h->raw_from], h->arg[i].memory));
    }
    return NNC_OK;
}

static nnc_status execute(dn_handle *h, dnnl_primitive_t prim, int n, const dnnl_exec_arg_t *arg)
{
    if (dnnl_primitive_execute(prim, h->stream, n, arg) != dnnl_success)
        return NNC_E_DEVICE;
    return dnnl_stream_wait(h->stream) == dnnl_success ? NNC_OK : NNC_E_DEVICE;
}

/* The call without oneDNN's relu, which nnc's code computes. */
static nnc_status run_keeping_nan(dn_handle *h, void *dst, void *work)
{
    dnnl_exec_arg_t arg[MOST_ARGS];
    int n = 0;
    for (int i = 0; i < h->n; i++)
        if (h->arg[i].arg != DNNL_ARG_SCRATCHPAD)
            arg[n++] = h->arg[i];
    if (h->again_scratch) {
        if (dnnl_memory_set_data_handle(h->again_scratch, work) != dnnl_success)
            return NNC_E_DEVICE;
        arg[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, h->again_scratch};
    }
    NNC_TRY(execute(h, h->again, n, arg));
    dn_tail(&h->call, h->tail, dst, dst);
    return NNC_OK;
}

static nnc_status run_all(dn_handle *h, void *const *args, void *work)
{
    if (h->grad)
        return dn_grad_run(h->grad, h->stream, args, work);
    if (h->winograd) {
        dn_winograd_run(&h->call, args, work);
        return NNC_OK;
    }
    NNC_TRY(place_args(h, args, work));
    if (!h->prim)
        return dnnl_stream_wait(h->stream) == dnnl_success ? NNC_OK : NNC_E_DEVICE;
    void *dst = args[h->dst_from];
    if (h->copy_from >= 0)
        memcpy(dst, args[h->copy_from], (size_t)h->copy_bytes);
    if (h->again && !watching)
        return run_keeping_nan(h, dst, work);
    const bool flag = h->again && dn_flag_lower();
    NNC_TRY(execute(h, h->prim, h->n, h->arg));
    if (h->again)
        met_nan = dn_flag_restore(flag) || met_nan;
    if (!h->again && h->tail < h->call.n_post)
        dn_tail(&h->call, h->tail, h->aside_at >= 0 ? (char *)work + h->aside_at : dst, dst);
    return NNC_OK;
}

static nnc_status run_call(void *handle, void *const *args, void *work)
{
    dn_handle *h = handle;
    sigset_t before;
    if (h->moves_stack)
        nnc_signals_hold(&before);
    const int threads = dn_threads(h->threads);
    nnc_status status = run_all(h, args, work);
    dn_threads(threads);
    if (h->moves_stack)
        nnc_signals_release(&before);
    return status;
}

/* ---- checking a run for NaN --------------------------------------------------------------------------------------- */

static bool wants_watch(const void *handle)
{
    return ((const dn_handle *)handle)->again != NULL;
}

static void watch_begin(void)
{
    watching = true;
    met_nan = false;
}

static bool watch_end(void)
{
    watching = false;
    nnc_onednn_reruns += met_nan;
    return met_nan;
}

/* Primitives are machine code made at load: a third of a millisecond each. */
static bool compiles(const nnc_call *c)
{
    (void)c;
    return true;
}

static const nnc_watch watch = {wants_watch, watch_begin, watch_end};

/* The implementation of a call, and so the sizes in a plan, depends on the library and on the instruction set that it may use (the
 * CPU's, NNC_CPU's or ONEDNN_MAX_CPU_ISA's): the version contains both. */
static char version[64];

static const char *isa_name(dnnl_cpu_isa_t isa)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } known[] = {
        {dnnl_cpu_isa_sse41, "SSE4.1"},
        {dnnl_cpu_isa_avx, "AVX"},
        {dnnl_cpu_isa_avx2, "AVX2"},
        {dnnl_cpu_isa_avx2_vnni, "AVX2 VNNI"},
        {dnnl_cpu_isa_avx512_core, "AVX512"},
        {dnnl_cpu_isa_avx512_core_vnni, "AVX512 VNNI"},
        {dnnl_cpu_isa_avx512_core_bf16, "AVX512 BF16"},
        {dnnl_cpu_isa_avx512_core_amx, "AVX512 AMX"},
    };
    for (size_t i = 0; i < NNC_COUNT(known); i++)
        if (isa == known[i].isa)
            return known[i].name;
    return "ISA";
}

/* The user's own limit of oneDNN; "": none, or one that includes AMX. */
static const char *own_limit(void)
{
    const char *now = getenv("ONEDNN_MAX_CPU_ISA"), *old = getenv("DNNL_MAX_CPU_ISA");
    const char *limit = now ? now : old;
    return limit && !strstr(limit, "AMX") && strcasecmp(limit, "DEFAULT") != 0 &&
                   strcasecmp(limit, "ALL") != 0
               ? limit
               : "";
}

/* NNC_CPU limits oneDNN, too, unless the user's own limit is as low. */
static void limit_isa(void)
{
    static const struct {
        const char *level, *within;
        dnnl_cpu_isa_t isa;
    } known[] = {{"x86-64-v2", "SSE41", dnnl_cpu_isa_sse41},
        {"x86-64-v3", "SSE41 AVX2", dnnl_cpu_isa_avx2},
        {"x86-64-v4", "SSE41 AVX2 AVX512_CORE", dnnl_cpu_isa_avx512_core}};
    const char *own = own_limit();
    for (size_t i = 0; i < NNC_COUNT(known); i++)
        if (!strcmp(nnc_cpu_limit(), known[i].level) && !(*own && strcasestr(known[i].within, own)))
            (void)dnnl_set_max_cpu_isa(known[i].isa);
}

/* oneDNN 2.x must not use AMX: its bf16 gemm releases the tile configuration, and the next brgemm kernel on that thread, which assumes
 * its cached configuration is still loaded, raises SIGILL (2.6.3: a 3x3 convolution of 2x64x14x14 in bf16, NCHW, then NHWC). The limit
 * must be set before oneDNN first queries the instruction set. */
static void avoid_amx(const dnnl_version_t *v)
{
    if (v->major < 3 && !*own_limit() && !*nnc_cpu_limit())
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

__attribute__((constructor)) static void name_version(void)
{
    const dnnl_version_t *v = dnnl_version();
    limit_isa();
    avoid_amx(v);
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    snprintf(version, sizeof version, "%d.%d.%d, %s (%x)", v->major, v->minor, v->patch,
        isa_name(isa), (unsigned)isa);
}

__attribute__((visibility("default"))) extern const nnc_engine nnc_engine_onednn;
const nnc_engine nnc_engine_onednn = {
    .name = "onednn",
    .version = version,
    .choose = choose,
    .load_call = load_call,
    .run = run_call,
    .unload = unload,
    .watch = &watch,
    .compiles = compiles,
    .layout = layout,
};
