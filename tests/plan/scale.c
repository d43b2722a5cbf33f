/* tests/plan/scale.c -- the verifier at the size of a cluster: 1,024 devices with 10,000 commands each, in bounded memory. */
#include "help.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES = 1024, SLOTS = 3, BYTES = 64, MEGABYTE = 1 << 10 /* in KiB */ };

static const char *name(nnc_arena *a, int device)
{
    char text[32];
    snprintf(text, sizeof text, "sim:%d", device);
    return nnc_arena_strdup(a, text);
}

/* A ring. In each round every device copies what it has to its right neighbour and records an event, then waits for both neighbours. It
 * needs what came from the left; the right one must have passed on what will be overwritten. */
static nnc_plan *ring(int rounds)
{
    nnc_plan *p = nnc_plan_create();
    nnc_arena *a = &p->arena;
    p->n_device = DEVICES;
    p->device = ARENA_NEW(a, nnc_plan_device, DEVICES);
    p->tensor = ARENA_NEW(a, nnc_ptensor, DEVICES * (rounds + 1));
    p->cmd = ARENA_NEW(a, nnc_cmd, DEVICES * rounds * 4);
    p->input = ARENA_NEW(a, int32_t, DEVICES);
    p->input_name = ARENA_NEW(a, const char *, DEVICES);
    int32_t *arg = ARENA_NEW(a, int32_t, 2 * DEVICES * rounds);
    int64_t dim = BYTES;
    for (int d = 0; d < DEVICES; d++)
        p->device[d] = (nnc_plan_device){.name = name(a, d),
            .target = "sim#ring",
            .threads = 1,
            .arena_bytes = SLOTS * BYTES,
            .streams = 1};
    for (int r = 0; r <= rounds; r++)
        for (int d = 0; d < DEVICES; d++)
            p->tensor[p->n_tensor++] = (nnc_ptensor){.name = "x",
                .type = nnc_type_make(DT_u8, 1, &dim),
                .device = (int16_t)d,
                .bytes = BYTES,
                .offset = (int64_t)(r % SLOTS) * BYTES,
                .alias_of = -1,
                .is_input = r == 0};
    for (int d = 0; d < DEVICES; d++) {
        p->input[p->n_input] = d;
        p->input_name[p->n_input++] = "x";
    }
    const nnc_cmd none = {.engine = -1, .work = -1, .layers = "", .op_class = "", .reason = ""};
    for (int r = 0; r < rounds; r++) {
        for (int d = 0; d < DEVICES; d++) {
            nnc_cmd *c = &p->cmd[p->n_cmd];
            c[0] = c[1] = none;
            c[0].kind = CMD_copy;
            c[0].n_arg = 2;
            c[0].arg = arg;
            *arg++ = r * DEVICES + d;
            *arg++ = (r + 1) * DEVICES + (d + 1) % DEVICES;
            c[1].kind = CMD_record;
            c[1].item = r * DEVICES + d;
            c[0].device = c[1].device = (int16_t)d;
            p->n_cmd += 2;
        }
        for (int d = 0; d < DEVICES; d++)
            for (int right = 0; right < 2; right++) {
                nnc_cmd *c = &p->cmd[p->n_cmd++];
                *c = none;
                c->kind = CMD_wait;
                c->device = (int16_t)d;
                c->item = r * DEVICES + (d + (right ? 1 : DEVICES - 1)) % DEVICES;
            }
    }
    p->n_event = DEVICES * rounds;
    p->end[SEC_main] = p->end[SEC_accumulate] = p->end[SEC_step] = p->n_cmd;
    for (int t = 0; t < p->n_tensor; t++) { /* written in one round, read in the next */
        int r = t / DEVICES, d = t % DEVICES;
        p->tensor[t].first = r ? (r - 1) * DEVICES * 4 + 2 * ((d + DEVICES - 1) % DEVICES) : -1;
        p->tensor[t].last = r == 0        ? p->n_cmd - 1
                            : r == rounds ? p->tensor[t].first
                                          : r * DEVICES * 4 + 2 * d;
    }
    return p;
}

/* The inputs of a plan live to its end, so the third slot is not theirs to give. */
static void move_inputs(nnc_plan *p)
{
    for (int d = 0; d < DEVICES; d++) {
        p->device[d].arena_bytes += BYTES;
        p->tensor[d].offset = SLOTS * BYTES;
    }
}

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* In a process of its own, whose peak of memory is then the verifier's. Returns 0 when all is well, 1 rejected, 2 too much memory. */
static int verify_apart(int rounds, long most_kib)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        nnc_plan *p = ring(rounds);
        move_inputs(p);
        long before = peak_kib();
        nnc_status status = nnc_plan_verify(p, test_sink);
        long grown = peak_kib() - before;
        nnc_sink_print(test_sink, stderr);
        _exit(status != NNC_OK ? 1 : grown > most_kib ? 2 : 0);
    }
    int state = 0;
    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(scale_verifier)
{
    CHECK_INT(verify_apart(2500, 1024 * MEGABYTE), 0); /* 4 commands a round */
}

TEST(scale_verifier_sees_a_missing_wait)
{
    nnc_plan *p = ring(4);
    move_inputs(p);
    CHECK_OK(nnc_plan_verify(p, test_sink));
    /* device 7 does not wait for its left neighbour in the last round but one */
    nnc_cmd *c = &p->cmd[2 * DEVICES * 4 + 2 * DEVICES + 2 * 7];
    CHECK_INT(c->kind, CMD_wait);
    c->item = 2 * DEVICES + 8;
    CHECK_INT(nnc_plan_verify(p, test_sink), NNC_E_MODEL);
    CHECK_DIAG("is read on a stream that does not wait for its write");
    nnc_plan_destroy(p);
}
