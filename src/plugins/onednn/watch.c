/* plugins/onednn/watch.c -- see watch.h. */
#include "plugins/onednn/watch.h"
#include "base/seats.h"
#include "plugins/onednn/calls.h"
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
enum { HAS_FLAGS = 1, INVALID = _MM_EXCEPT_INVALID };
static unsigned flags(void)
{
    return _mm_getcsr();
}

static void set_flags(unsigned f)
{
    _mm_setcsr(f);
}
#else
enum { HAS_FLAGS = 0, INVALID = 1 };
static unsigned flags(void)
{
    return INVALID; /* not known: as bad as seen */
}

static void set_flags(unsigned f)
{
    (void)f;
}
#endif

/* ---- flags of a team ------------------------------------------------------------------------- */

/* libgomp ends threads that a smaller team has no use for; the new ones after that have no stamp. */
static _Thread_local uint64_t stamp; /* of the watch that this thread takes part in; 0 = none */
static _Thread_local unsigned before; /* the calling thread's flag when the watch began */
static _Thread_local int team; /* threads that took part at the beginning */
static _Atomic uint64_t watches;

typedef struct tally {
    int raised, known, size;
} tally;

/* Returns the team's size. The region also parts threads that share a core: oneDNN's own regions, next, do not look. */
static int lower_flags(int threads)
{
    uint64_t mark = atomic_fetch_add_explicit(&watches, 1, memory_order_relaxed) + 1;
    int size = 1;
    if (threads <= 1) {
        set_flags(flags() & ~(unsigned)INVALID);
        stamp = mark;
        return size;
    }
    nnc_seats seats = nnc_seats_new();
#pragma omp parallel num_threads(threads)
    {
        set_flags(flags() & ~(unsigned)INVALID);
        stamp = mark;
        nnc_sit(&seats, omp_get_num_threads(), omp_get_thread_num() > 0);
        if (omp_get_thread_num() == 0)
            size = omp_get_num_threads();
    }
    return size;
}

static tally count_flags(int threads)
{
    const uint64_t mark = stamp;
    int raised = 0, known = 0;
    if (threads <= 1)
        return (tally){(flags() & INVALID) != 0, 1, 1};
    int size = 1;
#pragma omp parallel num_threads(threads)
    {
        if (flags() & INVALID) {
#pragma omp atomic
            raised++;
        }
        if (stamp == mark) {
#pragma omp atomic
            known++;
        }
        if (omp_get_thread_num() == 0)
            size = omp_get_num_threads();
    }
    return (tally){raised, known, size};
}

void dn_watch_begin(int threads)
{
    before = flags() & INVALID;
    team = lower_flags(threads);
}

bool dn_watch_end(int threads)
{
    tally t = count_flags(threads);
    if (before)
        set_flags(flags() | before);
    return t.raised || t.known != team || (threads > 1 && omp_get_dynamic());
}

/* ---- does it work? --------------------------------------------------------------------------- */

static size_t weight_bytes(const_dnnl_primitive_desc_t pd)
{
    return dnnl_memory_desc_get_size(dn_query(pd, dnnl_query_weights_md));
}

static bool run_once(const_dnnl_primitive_desc_t pd, void *in, void *out, void *scratch)
{
    const dn_ref md[] = {dn_query(pd, dnnl_query_src_md), dn_query(pd, dnnl_query_weights_md),
        dn_query(pd, dnnl_query_dst_md), dn_query(pd, dnnl_query_scratchpad_md)};
    void *const at[] = {in, in, out, scratch};
    const int kind[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t arg[NNC_COUNT(kind)];
    dnnl_primitive_t prim = NULL;
    dnnl_stream_t stream = NULL;
    int n = 0, most = dn_scratch_bytes(pd) ? 4 : 3;
    for (; n < most; n++) {
        arg[n].arg = kind[n];
        if (dnnl_memory_create(&arg[n].memory, md[n], dn_engine(), at[n]) != dnnl_success)
            break;
    }
    bool ok = n == most && dnnl_primitive_create(&prim, pd) == dnnl_success &&
              dnnl_stream_create(&stream, dn_engine(), dnnl_stream_default_flags) == dnnl_success &&
              dnnl_primitive_execute(prim, stream, n, arg) == dnnl_success &&
              dnnl_stream_wait(stream) == dnnl_success;
    while (n > 0)
        dnnl_memory_destroy(arg[--n].memory);
    if (stream)
        dnnl_stream_destroy(stream);
    if (prim)
        dnnl_primitive_destroy(prim);
    return ok;
}

/* Weights of any form that the implementation likes, scratch memory, everything: NaN. */
static bool all_threads_raise(int threads)
{
    enum { SIDE = 8, CHANNELS = 16, IMAGES = 4, FLOATS = 1 << 15 };
    static _Alignas(64) float nan[FLOATS], out[FLOATS], scratch[FLOATS];
    nnc_call c = {.kind = CALL_conv, .spatial = 2, .groups = 1, .n_post = 1, .threads = threads};
    c.src = c.dst = nnc_type_make(DT_f32, 4, (int64_t[]){IMAGES, CHANNELS, SIDE, SIDE});
    c.wei = nnc_type_make(DT_f32, 4, (int64_t[]){CHANNELS, CHANNELS, 1, 1});
    nnc_type_channels_last(&c.src);
    nnc_type_channels_last(&c.dst);
    c.post[0].kind = PO_relu;
    for (int d = 0; d < 2; d++)
        c.kernel[d] = c.stride[d] = c.dilation[d] = 1;
    memset(nan, 0xff, sizeof nan);
    dn_call d;
    dn_describe(&d, &c, c.n_post, (dn_form){.any = true});
    const size_t bytes = sizeof nan;
    bool fits = d.pd && weight_bytes(d.pd) <= bytes && (size_t)dn_scratch_bytes(d.pd) <= bytes;
    int size = lower_flags(threads);
    bool ran = fits && run_once(d.pd, nan, out, scratch);
    tally t = count_flags(threads);
    set_flags(flags() & ~(unsigned)INVALID);
    dn_call_deinit(&d);
    return ran && t.raised == size && t.known == size;
}

static bool works[2]; /* by one thread, by more */

/* A thread of its own: libgomp keeps a team for each thread that ever opened a region, and lets waiting threads spin a tenth as long once
 * there are more of them than cores (mlp by two threads: 1.6 ms a run instead of 1.2). This team ends with its thread. */
static void *try_team(void *ok)
{
    dn_threads(2);
    *(bool *)ok = all_threads_raise(2);
    return NULL;
}

static bool team_raises(void)
{
    pthread_t thread;
    bool ok = false;
    return pthread_create(&thread, NULL, try_team, &ok) == 0 && pthread_join(thread, NULL) == 0 &&
           ok;
}

static void try_out(void)
{
    unsigned runtime = dnnl_version()->cpu_runtime;
    bool known = runtime == DNNL_RUNTIME_SEQ || runtime == DNNL_RUNTIME_OMP;
    if (!HAS_FLAGS || !known)
        return;
    int were = dn_threads(1);
    works[0] = all_threads_raise(1);
    dn_threads(were);
    /* without threads of its own everything happens on the calling one */
    works[1] = works[0] && (runtime == DNNL_RUNTIME_SEQ || team_raises());
}

bool dn_watch_works(int threads)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, try_out);
    return works[threads > 1];
}
