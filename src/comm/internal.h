/* comm/internal.h -- shared by the files of comm/. */
#ifndef NNC_COMM_INTERNAL_H
#define NNC_COMM_INTERNAL_H

#include "comm/comm.h"
#include <pthread.h>
#include <string.h>

/* State that the communicators of a rank share. */
typedef struct comm_root {
    const nnc_transport *by;
    pthread_mutex_t lock; /* guards the transport and all members below */
    int users;
    int rank, world, local_rank;
    double timeout_s;
    void *first;          /* the transport's own communicator; closed with the last user */
    bool broken, told;
    nnc_status code;      /* if broken: NNC_E_PEER or NNC_E_NOMEM */
    char why[512];        /* if broken: the reason */
} comm_root;

extern const nnc_transport comm_self, comm_tcp;
/* Group of rank `rank` among n in one process. The first call makes all groups, in *shared. NULL: out of memory. */
void *comm_self_join(void **shared, int rank, int n);

/* Frees a list, whose elements begin with the pointer to the next one. */
static inline void comm_drop(void *first)
{
    for (void *next; first; first = next) {
        memcpy(&next, first, sizeof next);
        nnc_free(first);
    }
}

/* guard.c. Calls fn(ctx), which cannot be interrupted. If it takes longer than timeout_s, the process ends with a message and exit code 6.
 * False: no thread could be started. */
bool comm_guarded(void (*fn)(void *ctx), void *ctx, double timeout_s, const char *message);

#endif
