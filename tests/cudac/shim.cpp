/* tests/cudac/shim.cpp -- runs kernels that were compiled over shim.h, one block at a time, every thread a fiber. Compiled once, and linked
 * into each library of kernels, which has its state. The order is chosen to find what barriers are missing: a warp runs as far as it can
 * before the next one starts (or, reversed, the last warp first), so a value that should have come from another warp is still poison when
 * it is read. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#define SHIM_RUNS
#include "shim.h"

#pragma GCC visibility push(hidden)
shim_dim threadIdx, blockIdx, blockDim, gridDim;
char *shim_dynamic;
#pragma GCC visibility pop

enum { SHIM_THREADS = 1024, SHIM_STACK = 96 << 10, SHIM_BLOCKS = 8 };
enum shim_state { SHIM_RUN, SHIM_WARP, SHIM_BLOCK, SHIM_CLUSTER, SHIM_DONE };

/* Where a fiber goes on. swapcontext would do everywhere, but it asks the system for the signal mask each time, and under a sanitizer
 * the whole stack is wiped with it: ten times the time of the kernel. */
#ifdef __x86_64__
typedef void **shim_at; /* the stack's end: what a call keeps, then the address */
extern "C" __attribute__((visibility("hidden"))) void shim_switch(shim_at *from, const shim_at *to);
asm(".text\n"
    ".hidden shim_switch\n"
    ".type shim_switch, @function\n"
    "shim_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\n"
    "mov (%rsi), %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
    "ret\n");

static void shim_make(shim_at *at, char *stack, size_t bytes, void (*entry)())
{
    void **top = (void **)(((uintptr_t)stack + bytes) & ~(uintptr_t)63);
    memset(top - 8, 0, 8 * sizeof *top);
    memcpy(&top[-2], &entry, sizeof entry); /* where it returns to nobody: entry never does */
    *at = top - 8;
}
#else
typedef ucontext_t shim_at;
static void shim_switch(shim_at *from, const shim_at *to)
{
    swapcontext(from, to);
}

static void shim_make(shim_at *at, char *stack, size_t bytes, void (*entry)())
{
    getcontext(at);
    at->uc_stack.ss_sp = stack;
    at->uc_stack.ss_size = bytes;
    at->uc_link = NULL;
    makecontext(at, entry, 0);
}
#endif

/* A copy that was not waited for: its bytes are poison until then, since they may come at any time. */
struct shim_copy {
    char *to;
    const char *from; /* NULL: zeros */
    int group;
};
enum { SHIM_COPIES = 64 };

struct shim_thread {
    shim_copy copy[SHIM_COPIES];
    int copies, groups; /* not waited for; committed */
    shim_fragments shown[2]; /* by the parity */
    shim_at at;
    char *stack;
    shim_state state;
    unsigned parity, votes;
    uint64_t slot[2]; /* what it shows to its warp, by the parity of the shuffle */
};

static shim_thread shim_all[SHIM_BLOCKS][SHIM_THREADS], *shim_of = shim_all[0]; /* of a cluster, of the block that runs */
static int shim_cluster; /* blocks of the cluster, told at its barrier */
static shim_at shim_main;
static int shim_me;
static char *shim_memory;
static void (*shim_thunk)(void *const *);
static void *const *shim_args;
static const char *shim_fault; /* what a thread did wrong */
static shim_fragments shim_lanes[32];

static void shim_yield(shim_state s)
{
    shim_of[shim_me].state = s;
    shim_switch(&shim_of[shim_me].at, &shim_main);
}

void __syncthreads()
{
    shim_yield(SHIM_BLOCK);
}

void __syncwarp(unsigned)
{
    shim_yield(SHIM_WARP);
}

void shim_cluster_sync(int blocks)
{
    shim_cluster = blocks;
    shim_yield(SHIM_CLUSTER);
}

int shim_lane()
{
    return shim_me & 31;
}

/* Every lane shows its value and waits for the others; the next shuffle shows in the other slot. */
unsigned long long shim_exchange(unsigned long long bits, int from)
{
    const int me = shim_me;
    const unsigned p = shim_of[me].parity ^= 1;
    shim_of[me].slot[p] = bits;
    shim_yield(SHIM_WARP);
    return shim_of[(me & ~31) | from].slot[p];
}

/* Votes go round in three places: one that is read, one that others may be in already, one that is empty. */
static unsigned shim_vote[3];
int __syncthreads_or(int x)
{
    unsigned n = shim_of[shim_me].votes++;
    shim_vote[n % 3] |= x != 0;
    shim_yield(SHIM_BLOCK);
    shim_vote[(n + 2) % 3] = 0;
    return (int)shim_vote[n % 3];
}

unsigned __ballot_sync(unsigned, bool x)
{
    const int me = shim_me;
    unsigned p = shim_of[me].parity ^= 1, all = 0;
    shim_of[me].slot[p] = x;
    shim_yield(SHIM_WARP);
    for (int l = 0; l < 32; l++)
        all |= (unsigned)shim_of[(me & ~31) | l].slot[p] << l;
    return all;
}

/* ---- tensor cores ---- */

static bool shim_is_aligned(const void *p)
{
    if ((uintptr_t)p % 16)
        shim_fault = "an access of 16 bytes is not aligned";
    return (uintptr_t)p % 16 == 0;
}

void shim_copy16(void *to, const void *from, bool in)
{
    shim_thread *t = &shim_of[shim_me];
    if (!shim_is_aligned(to) || (in && !shim_is_aligned(from)) || t->copies == SHIM_COPIES)
        return;
    t->copy[t->copies++] = {(char *)to, in ? (const char *)from : NULL, t->groups};
    memset(to, 0xff, 16);
}

void shim_commit()
{
    shim_of[shim_me].groups++;
}

void shim_wait(int left)
{
    shim_thread *t = &shim_of[shim_me];
    int n = 0;
    for (int i = 0; i < t->copies; i++) {
        const shim_copy *c = &t->copy[i];
        if (c->group >= t->groups - left)
            t->copy[n++] = *c;
        else if (c->from)
            memcpy(c->to, c->from, 16);
        else
            memset(c->to, 0, 16);
    }
    t->copies = n;
}

/* Reads elements 2 (lane % 4) and the next of row lane / 4 of each matrix. Lane 8 m + r has the address of row r of matrix m. */
void shim_matrices(unsigned x[4], const void *p)
{
    const int me = shim_me;
    const unsigned q = shim_of[me].parity ^= 1;
    shim_of[me].slot[q] = (uint64_t)(uintptr_t)p;
    if (!shim_is_aligned(p))
        return;
    shim_yield(SHIM_WARP);
    for (int m = 0; m < 4; m++)
        memcpy(&x[m], (const char *)(uintptr_t)shim_of[(me & ~31) | (8 * m + me % 32 / 4)].slot[q] + me % 4 * 4, 4);
}

const shim_fragments *shim_show(const unsigned a[4], unsigned b0, unsigned b1)
{
    const int me = shim_me;
    const unsigned q = shim_of[me].parity ^= 1;
    shim_of[me].shown[q] = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    shim_yield(SHIM_WARP);
    for (int l = 0; l < 32; l++)
        shim_lanes[l] = shim_of[(me & ~31) | l].shown[q];
    return shim_lanes;
}

/* What the special function unit gives: right to `bits` of the last place, wrong by as much as it may be, one way or the other. */
float shim_approx(double y, double bits)
{
    uint64_t h;
    float near = (float)y;
    if (!(y == y) || near == 0 || y - y != 0 || fabs(y) >= 0x1p126)
        return near;
    memcpy(&h, &y, 8);
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return (float)(y * (1 + (h >> 63 ? 1 : -1) * (bits - 0.5) * 0x1p-23));
}
/* ---- running ---- */

static void shim_entry()
{
    shim_thunk(shim_args);
    shim_yield(SHIM_DONE);
}

static void shim_begin(int t)
{
    shim_thread *f = &shim_of[t];
    if (!f->stack)
        f->stack = (char *)malloc(SHIM_STACK);
    shim_make(&f->at, f->stack, SHIM_STACK - (size_t)t % 16 * 192, shim_entry); /* not all on the same lines of the cache */
    f->state = SHIM_RUN;
    f->votes = 0;
    f->copies = f->groups = 0;
}

/* Runs the lanes until each stands at a block barrier or is done. */
static const char *shim_warp(int first, int lanes, bool reverse)
{
    for (;;) {
        int warp = 0, other = 0;
        for (int i = 0; i < lanes; i++) {
            int t = first + (reverse ? lanes - 1 - i : i);
            shim_me = t;
            threadIdx.x = (unsigned)t;
            if (shim_of[t].state == SHIM_RUN)
                shim_switch(&shim_main, &shim_of[t].at);
        }
        for (int i = 0; i < lanes; i++) {
            warp += shim_of[first + i].state == SHIM_WARP;
            other += shim_of[first + i].state != SHIM_WARP;
        }
        if (!warp || shim_fault)
            return shim_fault;
        if (other)
            return "a part of a warp waits for lanes that have gone elsewhere";
        for (int i = 0; i < lanes; i++)
            shim_of[first + i].state = SHIM_RUN;
    }
}

/* Runs the block until it is done, or (*waits) all of its threads stand at a barrier of the cluster. */
static const char *shim_block(int threads, bool reverse, bool *waits)
{
    for (*waits = false;;) {
        int done = 0, far = 0, warps = threads / 32;
        for (int w = 0; w < warps; w++) {
            const char *bad = shim_warp(32 * (reverse ? warps - 1 - w : w), 32, reverse);
            if (bad)
                return bad;
        }
        for (int t = 0; t < threads; t++) {
            done += shim_of[t].state == SHIM_DONE;
            far += shim_of[t].state == SHIM_CLUSTER;
            if (shim_of[t].state == SHIM_BLOCK)
                shim_of[t].state = SHIM_RUN;
        }
        *waits = far == threads;
        if (done == threads || *waits)
            return NULL;
        if (done || far)
            return "some threads are done, others wait at a barrier";
    }
}

extern "C" char __start_shim_shared[] __attribute__((weak)), __stop_shim_shared[] __attribute__((weak));

static void shim_start(char *dynamic, size_t bytes, int threads)
{
    shim_dynamic = dynamic;
    memset(shim_dynamic, 0xff, bytes);
    if (__start_shim_shared)
        memset(__start_shim_shared, 0xff, (size_t)(__stop_shim_shared - __start_shim_shared));
    memset(shim_vote, 0, sizeof shim_vote);
    for (int t = 0; t < threads; t++)
        shim_begin(t);
}

/* Runs a block, and where it waits for its cluster those after it, in turn, from one barrier to the next. In a cluster, blocks have
 * dynamic shared memory of their own only. *n: how many. */
static const char *shim_group(unsigned block, int step, char *dynamic, size_t bytes, int threads, bool reverse, int *n)
{
    shim_cluster = *n = 1;
    for (bool begun = false, any = true; any; begun = true) {
        any = false;
        for (int i = 0; i < shim_cluster; i++) {
            bool waits;
            shim_of = shim_all[i];
            shim_dynamic = dynamic + (size_t)i * bytes;
            blockIdx = {block + (unsigned)(step * i), 0, 0};
            if (!begun)
                shim_start(shim_dynamic, bytes, threads);
            for (int t = 0; begun && t < threads; t++)
                shim_of[t].state = SHIM_RUN;
            const char *bad = shim_block(threads, reverse, &waits);
            if (bad)
                return bad;
            if (i > 0 && waits != any)
                return "some blocks of a cluster are done, others wait at a barrier";
            any = waits;
        }
    }
    *n = shim_cluster;
    return NULL;
}

/* Runs blocks first .. first + count - 1 of a grid of `blocks`. NULL, or what went wrong. */
extern "C" __attribute__((visibility("default"))) const char *shim_launch(
    void (*thunk)(void *const *), void *const *args, long long blocks, long long first, long long count, int threads,
    long long shared, int reverse)
{
    const char *bad = NULL;
    shim_thunk = thunk;
    shim_args = args;
    shim_fault = NULL;
    gridDim = {(unsigned)blocks, 1, 1};
    blockDim = {(unsigned)threads, 1, 1};
    free(shim_memory); /* a kernel that was stopped has left it */
    const size_t bytes = ((size_t)shared + 127) / 64 * 64;
    shim_memory = (char *)aligned_alloc(64, bytes * SHIM_BLOCKS);
    for (int n = 1; count > 0 && !bad; count -= n) {
        const long long b = reverse ? first + count - 1 : first;
        bad = shim_group((unsigned)b, reverse ? -1 : 1, shim_memory, bytes, threads, reverse, &n);
        first += reverse ? 0 : n;
    }
    return bad;
}

__attribute__((destructor)) static void shim_end()
{
    free(shim_memory);
    for (int b = 0; b < SHIM_BLOCKS; b++)
        for (int t = 0; t < SHIM_THREADS; t++)
            free(shim_all[b][t].stack);
}
