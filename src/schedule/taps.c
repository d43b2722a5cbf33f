/* schedule/taps.c -- gradients of depthwise weights on a GPU, channels last. Each element of a window is a sum over all places of images.
 *
 *     for r: for s: for i: for y: for x: dw[r][s] += source[i][y + r][x + s] dy[i][y][x].
 *
 * As points of their own, each of these sums loads and converts two values for one product. Here a thread has the sums of a row of the
 * window. The places of a row are divided into unrolled blocks: a 5x5 window and 7 places take 18 loads for 35 products. All rows of the
 * window would take 62 loads for 175. But such kernels compile four times as long, and their second launch, which adds up 25 sums of few
 * points, takes as long as the first. */
#include "schedule/schedule.h"

enum {
    MOST_SUMS = 8, /* of a point: all elements of small windows */
    MOST_TAPS = 8, /* of the window, along one dimension */
    WIDEST = 8, /* most places of an unrolled block */
    LEAST_SUMMED = 1024 /* places */
};

typedef struct taps {
    int axis[2],
        place
            [2]; /* the window's outer axes, slowest first, and the places' reduce axes; axis[0] -1: there is only one */
    int32_t source, other; /* loads */
} taps;

/* The reduce axis along which the load moves like along outer axis a, times an integer; -1: none. */
static int place_of(const nnc_kernel *k, const nnc_kins *in, int a)
{
    for (int r = k->n_outer; r < k->n_axis; r++)
        if (in->at.k[a] != 0 && in->at.k[r] != 0 && in->at.k[r] % in->at.k[a] == 0 &&
            in->at.k[r] / in->at.k[a] <= MOST_TAPS)
            return r;
    return -1;
}

/* Finds the two loads of the only product. One of them moves along the window's elements. */
static bool find_loads(const nnc_kernel *k, taps *t)
{
    const nnc_kstage *s = &k->stage[0];
    int loads = 0, sums = 0;
    int32_t at[2] = {-1, -1};
    for (int32_t i = s->body0; i < s->body1; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_load && loads < 2)
            at[loads] = i;
        loads += in->op == KO_load;
        sums += in->op == KO_reduce;
        if ((in->op == KO_load && nnc_kins_index(in) >= 0) || in->op == KO_index ||
            (in->op == KO_sop && (in->sop != SC_fma || in->dtype != DT_f32)) ||
            (in->op == KO_reduce && (in->sop != KR_sum || in->arg[1] >= 0 || in->running)))
            return false;
    }
    for (int32_t i = s->post0; i < s->post1; i++)
        if (k->ins[i].op == KO_index)
            return false;
    t->source = at[0];
    t->other = at[1];
    return loads == 2 && sums == 1;
}

static bool find_taps(const nnc_kernel *k, taps *t)
{
    int n = 0;
    if (k->n_stage != 1 || nnc_kernel_scratch(k) > 0 || nnc_kernel_in_order(k) ||
        nnc_kernel_axes(k, KA_map) || !find_loads(k, t))
        return false;
    const int fast = nnc_cuda_fast_axis(k);
    for (int turn = 0; turn < 2 && n == 0; turn++) {
        const int32_t first = t->source;
        for (int a = 0; a < k->n_outer && n <= 2; a++) {
            const int r =
                a == fast || k->axis[a].extent == 1 ? -1 : place_of(k, &k->ins[t->source], a);
            if (r < 0 || k->ins[t->other].at.k[a] != 0 || k->ins[t->other].at.k[r] == 0)
                continue;
            if (n < 2) {
                t->axis[n] = a;
                t->place[n] = r;
            }
            n++;
        }
        if (n == 0) {
            t->source = t->other;
            t->other = first;
        }
    }
    if (n == 1) {
        t->axis[1] = t->axis[0];
        t->place[1] = t->place[0];
        t->axis[0] = -1;
    }
    return (n == 1 || n == 2) && k->ins[t->source].at.k[fast] == 1 &&
           k->ins[t->other].at.k[fast] == 1 && k->axis[t->axis[1]].extent <= MOST_TAPS;
}

/* Places of a block: with few beyond the row's end, and few source columns per place. */
static int64_t block_of(int64_t places, int64_t columns, int64_t stride)
{
    int64_t best = 1;
    double least = 1e9;
    for (int64_t n = 1; n <= WIDEST && n <= places; n++) {
        const double all = (double)(nnc_ceildiv(places, n) * (n * stride + columns + n));
        if (all < least) {
            least = all;
            best = n;
        }
    }
    return best;
}

/* Guards loads beyond the row's end, which give zeros. */
static bool guard_end(nnc_kernel *k, const taps *t, int x, int64_t n, int64_t places, nnc_arena *a)
{
    const int32_t loads[] = {t->source, t->other};
    const int32_t zero = k->ins[t->source].arg[1] >= 0  ? k->ins[t->source].arg[1]
                         : k->ins[t->other].arg[1] >= 0 ? k->ins[t->other].arg[1]
                                                        : -1;
    for (int i = 0; i < 2; i++) {
        nnc_kins *in = &k->ins[loads[i]];
        nnc_kguard *g = ARENA_NEW(a, nnc_kguard, in->n_guard + 1);
        if (!g)
            return false;
        for (int j = 0; j < in->n_guard; j++)
            g[j] = in->guard[j];
        g[in->n_guard] = (nnc_kguard){.lo = 0, .hi = places};
        g[in->n_guard].e.k[x] = n;
        g[in->n_guard].e.k[x + 1] = 1;
        in->guard = g;
        in->n_guard++;
        in->arg[1] = zero;
    }
    return true;
}

bool nnc_tap_strips(nnc_kernel *k, const nnc_target *target, nnc_arena *mem)
{
    taps t;
    if (!target || target->kind != NNC_T_cuda || !find_taps(k, &t))
        return true;
    const int x = t.place[1], fast = nnc_cuda_fast_axis(k);
    const int64_t wide = k->axis[t.axis[1]].extent, places = k->axis[x].extent;
    const int64_t high = t.axis[0] >= 0 ? k->axis[t.axis[0]].extent : 1;
    const int64_t stride = k->ins[t.source].at.k[x] / k->ins[t.source].at.k[t.axis[1]];
    const nnc_kins *in = &k->ins[t.source], *other = &k->ins[t.other];
    const int32_t fill = in->arg[1] >= 0 ? in->arg[1] : other->arg[1];
    if (nnc_own_points(k, &k->stage[0]) < LEAST_SUMMED || k->axis[fast].extent % 2 ||
        k->n_axis == NNC_KAXES || in->n_guard == NNC_KGUARDS || other->n_guard == NNC_KGUARDS)
        return true;
    int64_t n = block_of(places, wide, stride);
    if (places % n != 0 && !(nnc_kins_is_zero(k, fill) && fill < t.source && fill < t.other))
        n = 1; /* loads beyond the end cannot give zeros */
    if (n > 1 && n < places) {
        if (!nnc_kernel_divide(k, x, x + 1, KA_reduce, n, mem) ||
            (places % n != 0 && !guard_end(k, &t, x, n, places, mem)))
            return false;
    }
    const int inner = n < places ? x + 1 : x;
    if (wide > 1 && !nnc_kernel_strip(k, t.axis[1], (int)wide, mem))
        return false;
    if (high > 1 && high <= MOST_TAPS && high * wide <= MOST_SUMS &&
        !nnc_kernel_strip(k, t.axis[0], (int)high, mem))
        return false;
    return n == 1 || nnc_kernel_unroll(k, inner, mem);
}
