/* comm/internal.h -- shared by the files of comm/. */
#ifndef NNC_COMM_INTERNAL_H
#define NNC_COMM_INTERNAL_H

#include "comm/comm.h"
#include <pthread.h>
#include <string.h>

/* What the communicators of a rank have in common. */
typedef struct comm_root {
    const nnc_transport *by;
    pthread_mutex_t lock; /* of the transport, and of all below */
    int users;
    int rank, world, local_rank;
    double timeout_s;
    void *first;          /* the transport's own communicator; closed with the last user */
    bool broken, told;
    nnc_status code;      /* of broken: NNC_E_PEER, or NNC_E_NOMEM */
    char why[512];        /* of broken */
} comm_root;

extern const nnc_transport comm_self, comm_tcp;
/* The group of rank `rank` among n in one process; the first call makes them, *shared: of all. NULL: out of memory. */
void *comm_self_join(void **shared, int rank, int n);

/* Frees a list, whose elements begin with the pointer to the next one. */
static inline void comm_drop(void *first)
{
    for (void *next; first; first = next) {
        memcpy(&next, first, sizeof next);
        nnc_free(first);
    }
}

/* guard.c. Calls fn(ctx), which cannot be interrupted; the process ends with a message and exit code 6 when it takes longer. False: no
 * thread for it. */
bool comm_guarded(void (*fn)(void *ctx), void *ctx, double timeout_s, const char *message);

#endif
