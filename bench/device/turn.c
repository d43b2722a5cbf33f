/* bench/device/turn.c -- whose turn it is on the GPU, between processes: the lock of a file (flock; turns.py does the same). Who times
 * something holds it alone; checks, which only compute, share it. Waiting does not count towards a result's limit. */
#include "device.h"
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

bool turn_open(turn *t, const char *path)
{
    *t = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    return !path || *t >= 0;
}

void turn_take(const turn *t, bool alone)
{
    if (*t < 0)
        return;
    unsigned left = alarm(0);
    while (flock(*t, alone ? LOCK_EX : LOCK_SH)) {
    }
    alarm(left);
}

void turn_give(const turn *t)
{
    if (*t < 0)
        return;
    flock(*t, LOCK_UN);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* whoever waits for it comes first */
}
