/* runtime/threads.c -- puts nnc's data parallelism on libgomp, see runtime.h. */
#include "runtime/runtime.h"
#include <stdlib.h>

bool nnc_threads_init(const char **why)
{
    *why = NULL;
    if (!getenv("OMP_WAIT_POLICY"))
        setenv("GOMP_SPINCOUNT", NNC_GOMP_SPINCOUNT, 0);
    void *run = nnc_plugin("openmp", "nnc_par_openmp", why);
    if (!run)
        return false;
    void (*par)(int, nnc_par_body, void *);
    *(void **)&par = run; /* ISO C has no cast from object to function pointers; POSIX does */
    nnc_par_set(par);
    return true;
}
