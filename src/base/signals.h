/* base/signals.h -- where the program's signals are handled. */
#ifndef NNC_SIGNALS_H
#define NNC_SIGNALS_H

#include "base/status.h"
#include <pthread.h>
#include <signal.h>

/* Until nnc_signals_release this thread handles only signals of its own faults. Threads that it starts meanwhile never handle others,
 * which are for the program's own threads. */
static inline void nnc_signals_hold(sigset_t *before)
{
    static const int fault[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < NNC_COUNT(fault); i++)
        sigdelset(&held, fault[i]);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

static inline void nnc_signals_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

#endif
