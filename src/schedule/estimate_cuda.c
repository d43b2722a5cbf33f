/* schedule/estimate_cuda.c -- the time that a scheduled kernel is expected to take on a GPU: its launches, plus the longer of data movement
 * and instructions. Bandwidth is what the kernel's threads can ask for: a thread of a sum has some 20 bytes in flight. So kernels with few
 * threads are seen to leave most of the machine idle. Meant for comparing kernels of reductions, where that is a large factor; estimates of
 * others are less accurate. Recurrences use the cycles of their steps (cuda_steps.c), attention and contractions their own estimates
 * (attend.c, cuda_contract.c). */
#include "schedule/schedule.h"

#include <math.h>

enum { UNKNOWN_COST = 30 };

int64_t cu_elements(const nnc_kernel *k, const nnc_kins *in)
{
    const bool any = nnc_kins_index(in) >= 0;
    const int64_t n = any ? INT64_MAX : nnc_kernel_points(k, nnc_affine_axes(&in->at));
    return nnc_min64(n, k->buf[in->buf].numel);
}

/* Does the L2 cache keep data until a later stage reads it again? For rows: those that run at a time. For columns: the whole tensor. */
static bool near(const nnc_kernel *k, const nnc_target *t, const nnc_kins *in)
{
    const int64_t bytes = nnc_mul_sat(cu_elements(k, in), nnc_dtype_size(k->buf[in->buf].dtype));
    const int64_t part = k->grid.cls == KC_row && k->grid.blocks > 0
                             ? nnc_mul_sat(bytes / k->grid.blocks, 2 * (int64_t)t->sms)
                             : bytes;
    return nnc_min64(part, bytes) <= t->l3_bytes / 2; /* of a GPU: its L2 */
}

/* Bytes of memory that the kernel moves; bytes in the L2 cache count half. -1: out of memory. */
static int64_t moved_bytes(const nnc_kernel *k, const nnc_target *t)
{
    cu_rows r = {0};
    const bool rows = k->grid.cls == KC_row || k->grid.cls == KC_column;
    int64_t bytes = 0;
    if (rows && !cu_rows_plan(&r, k, &k->grid)) {
        cu_rows_deinit(&r);
        return -1;
    }
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        if ((in->op != KO_load && in->op != KO_store) || k->buf[in->buf].role == KB_tmp)
            continue;
        int64_t n = nnc_mul_sat(cu_elements(k, in), nnc_dtype_size(k->buf[in->buf].dtype));
        bool held = false;
        int64_t before =
            0; /* bytes that an earlier load has read, such as the first element of a row */
        for (int j = 0; j < i && in->op == KO_load; j++)
            if (k->ins[j].op == KO_load && k->ins[j].buf == in->buf) {
                const int64_t b =
                    nnc_mul_sat(cu_elements(k, &k->ins[j]), nnc_dtype_size(k->buf[in->buf].dtype));
                before = nnc_min64(nnc_max64(before, b), n);
                held = held || (rows && k->grid.keep > 0 && r.held[j]);
            }
        n -= held ? before : near(k, t, in) ? before / 2 : 0;
        bytes = nnc_add_sat(bytes, n);
    }
    cu_rows_deinit(&r);
    return bytes;
}

int64_t cu_cost(const nnc_kins *in)
{
    const int cost = in->op == KO_sop ? nnc_sops[in->sop].cost : 1;
    return cost > 0 ? cost : nnc_sops[in->sop].flags & OF_slow ? UNKNOWN_COST : 1;
}

/* Instructions of all threads. */
static int64_t instructions(const nnc_kernel *k)
{
    int64_t sum = 0;
    const int64_t points = nnc_kernel_points(k, (1u << k->n_outer) - 1);
    for (int s = 0; s < k->n_stage; s++) {
        const nnc_kstage *g = &k->stage[s];
        const int64_t own = nnc_own_points(k, g);
        for (int i = g->body0; i < g->post1; i++) {
            sum = nnc_add_sat(
                sum, nnc_mul_sat(nnc_mul_sat(points, i < g->body1 ? own : 1), cu_cost(&k->ins[i])));
        }
    }
    return sum;
}

/* Active threads, in thousandths of those that saturate the GPU's bandwidth. */
static int64_t filled(const nnc_kernel *k, const nnc_target *t)
{
    nnc_walk w;
    const int64_t full =
        (int64_t)t->sms * (nnc_walk_of(k, &w) ? NNC_SM_full_walks : NNC_SM_full_threads);
    const int64_t threads = nnc_mul_sat(k->grid.blocks, k->grid.threads);
    return nnc_max64(nnc_min64(threads, full) * 1000 / nnc_max64(full, 1), 1);
}

int64_t cu_kernel_ns(const nnc_kernel *k, const nnc_target *t)
{
    const int64_t known = nnc_max64(nnc_attend_ns(k, t), cu_contract_ns(k, t)),
                  bytes = known < 0 ? moved_bytes(k, t) : 0;
    if (known >= 0)
        return known;
    if (bytes < 0)
        return -1;
    const double share = (double)filled(k, t) / 1000;
    const double move = (double)bytes / (double)nnc_max64(t->copy_bytes_s, 1);
    const double work = (double)instructions(k) / nnc_target_issue(t);
    const double ns = k->grid.cls == KC_steps ? fmax((double)cu_steps_ns(k, t), move * 1e9)
                                              : (move > work ? move : work) / share * 1e9;
    return (ns < 1e15 ? (int64_t)ns : INT64_C(1000000000000000)) +
           t->launch_ns * (k->grid.finish > 0 ? 2 : 1);
}
