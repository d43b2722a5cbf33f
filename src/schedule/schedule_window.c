/* schedule/schedule_window.c -- kernels of windows (pooling, depthwise convolution): the number of neighbouring results per thread. */
#include "schedule/schedule.h"

enum {
    WIDEST = 8, /* results per thread */
    MOST_TAPS = 200, /* elements of a window per thread */
    ACCUMULATORS = 32, /* accumulator vectors in registers */
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

/* Chooses the number of results with the fewest loads per result that leaves enough threads for a quarter of the machine. Results beyond
 * those of vectors of 16 bytes have vectors of 8: each element of 16 bits is converted, so that longer strips save instructions. */
static int pick_length(const nnc_kernel *k, const nnc_target *t, int a, int r, int fast)
{
    int64_t points = nnc_kernel_points(k, (1u << k->n_outer) - 1), extent = k->axis[a].extent;
    int most = nnc_cuda_vec(k, fast), best = 1;
    double least = places(k, a, r, 1);
    for (int n = 2; n <= WIDEST && n <= extent; n++) {
        int vec = most;
        while (vec > 4 && n * vec > ACCUMULATORS)
            vec /= 2;
        int64_t strips = nnc_ceildiv(extent, n);
        double loads = (double)(strips * places(k, a, r, n)) / (double)extent;
        if (n * vec <= ACCUMULATORS && loads < 0.95 * least &&
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

/* The pair of axes to group: among the outer axes that do not vary fastest, the one whose windows overlap most. */
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

bool nnc_window_strips(nnc_kernel *k, const nnc_target *t, nnc_arena *mem)
{
    int a = 0, r = 0;
    if (!t || t->kind != NNC_T_cuda || !nnc_window_kernel(k))
        return true;
    int fast = nnc_cuda_fast_axis(k);
    if (!pick_pair(k, fast, &a, &r) || !plain(k, a))
        return true;
    int n = pick_length(k, t, a, r, fast);
    return n == 1 || (nnc_kernel_strip(k, a, n, mem) && nnc_kernel_unroll(k, r, mem));
}
