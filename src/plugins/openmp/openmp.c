/* plugins/openmp/openmp.c -- nnc_par_run on OpenMP. One thread pool in the process then serves oneDNN and nnc's own
 * loops: two spinning pools on the same cores slow each other down tenfold. libgomp keeps one team per calling thread,
 * so every stream's worker has its own. */
#include "base/par.h"
#include "base/seats.h"
#include <omp.h>

__attribute__((visibility("default"))) void nnc_par_openmp(
    int threads, nnc_par_body body, void *ctx);

void nnc_par_openmp(int threads, nnc_par_body body, void *ctx)
{
    if (threads <= 1) {
        body(ctx, 0, 1);
        return;
    }
    nnc_seats s = nnc_seats_new();
#pragma omp parallel num_threads(threads)
    {
        /* a smaller team than asked for (nested, limits): its threads take the parts in turn */
        int team = omp_get_num_threads(), me = omp_get_thread_num();
        nnc_sit(&s, team, me > 0);
        for (int p = me; p < threads; p += team)
            body(ctx, p, threads);
    }
}
