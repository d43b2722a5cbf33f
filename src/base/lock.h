/* base/lock.h -- locks that a fork finds free. Defined in par.c. */
#ifndef NNC_LOCK_H
#define NNC_LOCK_H

#include <pthread.h>

/* Locks m, for a short time: fork(), which waits for the holder, finds no such lock held. So the new process can take it, too. */
void nnc_lock(pthread_mutex_t *m);
void nnc_unlock(pthread_mutex_t *m);

#endif
