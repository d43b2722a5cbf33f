/* schedule/schedule_window.c -- kernels of windows (pooling, depthwise convolution): the number of neighbouring results per thread. */
#include "schedule/schedule.h"

enum {
    WIDEST = 8, /* results per thread along one axis */
    MOST_TAPS = 200, /* elements of a window per thread */
    ACCUMULATORS = 32, /* accumulator vectors in registers */
    MOST_LOADED = 100, /* elements of a row of the window that are loaded at once */
    THREADS = 256
};

/* True when one load advances with both outer axis a and reduce axis r: neighbouring windows may overlap. */
static bool move_together(const nnc_kernel *k, int a, int r)
{
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if (in->op == KO_load && k->axis[r].extent > 1 && k->axis[a].extent > 1 &&
            in->at.k[a] != 0 && in->at.k[r] != 0 &&
            (in->at.k[a] % in->at.k[r] == 0 || in->at.k[r] % in->at.k[a] == 0))
            return true;
    }
    return false;
}

bool nnc_window_kernel(const nnc_kernel *k)
{
    bool any = false;
    for (int s = 0; s < k->n_stage; s++)
        if (nnc_own_points(k, &k->stage[s]) > MOST_TAPS)
            return false;
    if (nnc_kernel_scratch(k) > 0 || nnc_kernel_in_order(k))
        return false;
    for (int a = k->n_outer; a < k->n_axis; a++) {
        if (k->axis[a].kind == KA_map && k->axis[a].extent > 1)
            return false;
        for (int o = 0; o < k->n_outer; o++)
            any |= move_together(k, o, a);
    }
    return any;
}

/* Elements that n neighbouring windows read along a and r. */
static int places(const nnc_kernel *k, int a, int r, int n)
{
    int64_t seen[WIDEST * MOST_TAPS];
    int most = 0;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        int count = 0;
        if (in->op != KO_load || in->at.k[a] == 0 || in->at.k[r] == 0)
            continue;
        for (int j = 0; j < n; j++)
            for (int q = 0; q < k->axis[r].extent; q++) {
                int64_t at = in->at.k[a] * j + in->at.k[r] * q;
                int m = 0;
                while (m < count && seen[m] != at)
                    m++;
                if (m == count)
                    seen[count++] = at;
            }
        most = count > most ? count : most;
    }
    return most;
}

int nnc_window_vec(const nnc_kernel *k, int vec)
{
    int sums = 0;
    for (int i = 0; i < k->n_ins; i++)
        sums += k->ins[i].op == KO_reduce;
    while (vec > 4 && sums * vec > ACCUMULATORS && nnc_window_kernel(k))
        vec /= 2;
    return vec;
}

static bool of_16_bits(const nnc_kernel *k)
{
    bool all = true;
    for (int b = 0; b < k->n_buf; b++)
        all &= nnc_dtype_size(k->buf[b].dtype) == 2;
    return all;
}

/* Number of operands that the window reads; each part of a concat counts. */
static int sources(const nnc_kernel *k, int a, int r)
{
    int n = 0;
    for (int i = 0; i < k->n_ins; i++)
        n += k->ins[i].op == KO_load && k->ins[i].at.k[a] != 0 && k->ins[i].at.k[r] != 0;
    return n;
}

/* Chooses the number of results with the fewest loads per result that leaves threads for a quarter of the machine. Longer strips may use
 * vectors of 8 instead of 16 bytes: each element of 16 bits is converted, so that longer strips save instructions. */
static int pick_length(const nnc_kernel *k, const nnc_target *t, int a, int r, int fast)
{
    int64_t points = nnc_kernel_points(k, (1u << k->n_outer) - 1), extent = k->axis[a].extent;
    int most = nnc_cuda_vec(k, fast), best = 1;
    const int parts = of_16_bits(k) ? sources(k, a, r) : 1;
    double least = places(k, a, r, 1);
    for (int n = 2; n <= WIDEST && n <= extent; n++) {
        int vec = most;
        while (vec > 4 && n * vec > ACCUMULATORS)
            vec /= 2;
        int64_t strips = nnc_ceildiv(extent, n);
        double loads = (double)(strips * places(k, a, r, n)) / (double)extent;
        if (n * vec <= ACCUMULATORS && loads < 0.95 * least &&
            (parts == 1 || parts * places(k, a, r, n) * vec <= MOST_LOADED) &&
            points / extent * strips / vec >= nnc_cuda_resident(t) / 4) {
            least = loads;
            best = n;
        }
    }
    return best;
}

/* True when r can be unrolled (plain sums, products, maxima, minima) and every store advances with a. */
static bool plain(const nnc_kernel *k, int a)
{
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if ((in->op == KO_reduce && (in->sop >= KR_argmax || in->arg[1] >= 0)) ||
            (in->op == KO_store && in->at.k[a] == 0))
            return false;
    }
    return true;
}

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

/* The pair of axes to group: of the outer axes that do not vary fastest, the one whose windows overlap most. */
static bool pick_pair(const nnc_kernel *k, int fast, int *axis, int *reduce)
{
    int64_t nearest = INT64_MAX;
    for (int a = 0; a < k->n_outer; a++)
        for (int r = k->n_outer; r < k->n_axis; r++) {
            if (a == fast || !move_together(k, a, r) ||
                places(k, a, r, 2) >= 2 * places(k, a, r, 1))
                continue;
            for (int i = 0; i < k->n_ins; i++) {
                int64_t at = magnitude(k->ins[i].at.k[a]);
                if (k->ins[i].op == KO_load && at > 0 && at < nearest) {
                    nearest = at;
                    *axis = a;
                    *reduce = r;
                }
            }
        }
    return nearest < INT64_MAX;
}

/* ---- walks ------------------------------------------------------------------------------------------------------------- */

/* Columns that a strip of n results reads. A strip of the whole axis does not read those beyond the image. */
static int columns(const nnc_kernel *k, int a, int r, int n)
{
    int count = 0;
    for (int i = 0; i < k->n_ins && n == k->axis[a].extent; i++)
        for (int g = 0; g < k->ins[i].n_guard && k->ins[i].op == KO_load; g++) {
            const nnc_kguard *q = &k->ins[i].guard[g];
            if (q->e.k[a] == 1 && q->e.k[r] == 1)
                count = (int)nnc_min64(q->hi - q->lo, places(k, a, r, n));
        }
    return count ? count : places(k, a, r, n);
}

/* Instructions per result, without those after the sums, of strips of n results with windows of `taps` by `rows` elements. Elements of the
 * source are loaded, converted and checked for their place. Weights are loaded and converted. */
static double strip_cost(const nnc_kernel *k, const int pair[2][2], int n, int vec)
{
    const int64_t wide = k->axis[pair[0][0]].extent, taps = k->axis[pair[0][1]].extent,
                  rows = k->axis[pair[1][1]].extent;
    const double sources = (double)columns(k, pair[0][0], pair[0][1], n) * (double)rows,
                 weights = (double)(taps * rows);
    const double all = sources * (vec + nnc_gpu_price[NNC_G_strip_load]) + weights * (vec + 1) +
                       nnc_gpu_price[NNC_G_strip_row] * (double)rows +
                       (double)n * vec * (weights + 1);
    return all * (double)nnc_ceildiv(wide, n) / (double)(wide * vec);
}

/* Instructions that the GPU issues while it moves an element to and from memory. */
static double affordable(const nnc_target *t)
{
    enum { BYTES = 4 };
    return t->copy_bytes_s > 0 ? BYTES * nnc_target_issue(t) / (double)t->copy_bytes_s : 1e9;
}

double nnc_window_rounded(const nnc_target *t, int64_t threads, int block)
{
    const int64_t sms = nnc_target_sms(t), blocks = nnc_ceildiv(threads, block);
    const double each = (double)blocks / (double)sms;
    return each < 1 ? 1 : (double)nnc_ceildiv(blocks, sms) / each;
}

/* Considers walks where strips of n results of a row take more instructions than memory time hides. Rewrites the kernel as walks (*done) if
 * these take a twelfth fewer. False: out of memory. */
static bool pick_walk(
    nnc_kernel *k, const nnc_target *t, int fast, int pair[2][2], int n, bool *done, nnc_arena *mem)
{
    const int vec = (int)nnc_min64(nnc_cuda_vec(k, fast), 4), a = pair[0][0], r = pair[0][1];
    *done = false;
    if (vec < 2 || !nnc_walk_rows(k, fast, a, r, pair[1]) || !plain(k, pair[1][0]))
        return true;
    const int64_t wide = k->axis[a].extent, threads = nnc_kernel_points(k, (1u << k->n_outer) - 1) /
                                                      wide * nnc_ceildiv(wide, n) / vec;
    const double cost = strip_cost(k, pair, n, vec);
    if (cost + nnc_gpu_price[NNC_G_strip_after] <= affordable(t))
        return true;
    return nnc_window_walk(
        k, t, pair, cost * nnc_window_rounded(t, threads, THREADS) * 11 / 12, done, mem);
}

bool nnc_window_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem)
{
    int pair[2][2] = {{0}};
    bool done = false;
    if (!t || t->kind != NNC_T_cuda || !nnc_window_kernel(k))
        return true;
    int fast = nnc_cuda_fast_axis(k);
    if (!pick_pair(k, fast, &pair[0][0], &pair[0][1]) || !plain(k, pair[0][0]))
        return true;
    const int a = pair[0][0], r = pair[0][1];
    const int n = pick_length(k, t, a, r, fast);
    if (n > 1 && of_16_bits(k) && !pick_walk(k, t, fast, pair, n, &done, mem))
        return false;
    return done || n == 1 || (nnc_kernel_strip(k, a, n, mem) && nnc_kernel_unroll(k, r, mem));
}
