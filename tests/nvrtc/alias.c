/* tests/nvrtc/alias.c -- kernels whose result lies in an operand's memory: NVRTC must not read that operand through the path for data
 * that nobody writes (ld.global.nc). The PTX is followed from each pointer parameter to the addresses of loads. */
#include "session/session.h"
#include "cuda/cuda.h"
#include "gen/gen.h"
#include "plan/plan.h"
#include "test.h"
#include <ctype.h>
#include <stdlib.h>

enum { REGISTERS = 8192 };
#define TABLE (UINT64_C(1) << 63)

/* By 64-bit register: the parameters that its value is made of, TABLE for a constant table of the function. */
static uint64_t from[REGISTERS];

/* The next %rdN at or after *p; -1: none before the line's end. */
static int next_register(const char **p, const char *end)
{
    for (const char *q = *p; q + 3 < end; q++)
        if (!memcmp(q, "%rd", 3)) {
            char *after;
            long n = strtol(q + 3, &after, 10);
            *p = after;
            return n >= 0 && n < REGISTERS ? (int)n : -1;
        }
    return -1;
}

/* One line of PTX: which parameters reach the register that it writes. */
static void follow(const char *line, const char *end)
{
    const char *p = line, *param = memmem(line, (size_t)(end - line), "_param_", 7);
    int to = next_register(&p, end);
    if (to < 0 || memmem(line, (size_t)(end - line), "st.", 3))
        return;
    if (param && memmem(line, (size_t)(end - line), "ld.param.u64", 12)) {
        from[to] |= UINT64_C(1) << (atoi(param + 7) & 63);
        return;
    }
    const char *name = memmem(line, (size_t)(end - line), ", ", 2);
    if (memmem(line, (size_t)(end - line), "mov.u64", 7) && name &&
        (isalpha((unsigned char)name[2]) || name[2] == '_'))
        from[to] |= TABLE;
    for (int r = next_register(&p, end); r >= 0; r = next_register(&p, end))
        from[to] |= from[r];
}

typedef struct loads {
    uint64_t plain, nc; /* parameters that ld.global, and ld.global.nc, read */
    int lost; /* loads from an address that was followed from none of them */
} loads;

/* The kernel's body in `ptx`. Followed thrice, so that what a loop carries has arrived. */
static loads loads_of(const char *ptx, const nnc_pkernel *k)
{
    char head[200];
    const char *name;
    const size_t n = nnc_pkernel_function(k, &name);
    loads l = {0, 0, 0};
    snprintf(head, sizeof head, ".entry %.*s(", (int)n, name);
    const char *begin = strstr(ptx, head), *end = begin ? strstr(begin, "\n}") : NULL;
    CHECK(begin && end);
    memset(from, 0, sizeof from);
    for (int round = 0; end && round < 3; round++)
        for (const char *p = begin; p < end; p = strchr(p, '\n') + 1) {
            const char *stop = strchr(p, '\n'), *at = memchr(p, '[', (size_t)(stop - p));
            int r;
            follow(p, stop);
            bool global = memmem(p, (size_t)(stop - p), "ld.global", 9) != NULL;
            if (!global || !at || (r = next_register(&at, stop)) < 0)
                continue;
            l.lost += round == 2 && !from[r];
            if (memmem(p, (size_t)(stop - p), "ld.global.nc", 12))
                l.nc |= from[r];
            else
                l.plain |= from[r];
        }
    return l;
}

static int64_t where(const nnc_plan *p, int tensor)
{
    const nnc_ptensor *t = &p->tensor[tensor];
    return ((int64_t)t->device * 4 + t->space) << 48 | t->offset;
}

typedef struct found {
    int read; /* operands under results that are loaded */
    int nc; /* commands that load something through nc */
    int lost;
} found;

static void check_command(const nnc_plan *p, const nnc_cmd *c, const char *ptx, found *f)
{
    const nnc_pkernel *k = &p->kernel[c->item];
    int n_in = k->n_args - k->n_out;
    loads l = loads_of(ptx, k);
    f->nc += l.nc != 0;
    f->lost += l.lost;
    for (int i = 0; i < n_in; i++)
        for (int o = n_in; o < k->n_args; o++) {
            if (where(p, c->arg[i]) != where(p, c->arg[o]))
                continue;
            f->read += (int)(l.plain >> i & 1);
            if (l.nc >> i & 1)
                test_fail(__FILE__, __LINE__, "%s reads argument %d, which it overwrites, past L1",
                    k->symbol, i);
        }
}

static void check_graph(nnc_env *e, uint64_t seed, found *f)
{
    gen_options o = {.seed = seed, .nodes = 16, .classes = ~(1u << CL_contract | 1u << CL_loop)};
    nnc_compile_options one_by_one = nnc_compile_defaults;
    one_by_one.level = 0; /* many small kernels, in place where they can */
    nnc_graph *g = gen_graph(&o, test_sink);
    nnc_artifact *a = NULL;
    nnc_text ptx = {0};
    CHECK(g != NULL);
    if (g)
        CHECK_OK(nnc_compile(e, g, &one_by_one, &a, test_sink));
    if (a)
        CHECK_OK(nnc_emit_text(e, a, "ptx", &ptx, test_sink));
    const nnc_plan *p = a && ptx.n ? nnc_artifact_plan(a) : NULL;
    for (int i = p ? nnc_plan_first(p, SEC_main) : 0; p && i < p->n_cmd; i++)
        if (p->cmd[i].kind == CMD_kernel)
            check_command(p, &p->cmd[i], nnc_text_str(&ptx), f);
    nnc_text_deinit(&ptx);
    nnc_artifact_destroy(a);
    nnc_graph_destroy(g);
}

TEST(nvrtc_results_over_operands)
{
    nnc_cuda_found lib;
    nnc_env *e;
    found f = {0, 0, 0};
    nnc_cuda_look(CUDA_nvrtc, &lib);
    if (!lib.ok) {
        test_skip("no NVRTC: %s", lib.why);
        return;
    }
    CHECK_OK(nnc_env_create(
        &(nnc_env_options){.target = "cuda:sm_90", .no_cache = true}, &e, test_sink));
    for (uint64_t i = 0; e && i < 4; i++)
        check_graph(e, test_seed + i, &f);
    nnc_env_destroy(e);
    /* the graphs have such kernels; NVRTC drops what no result needs, as x of x xor x */
    CHECK_USUAL(f.read >= 4);
    CHECK_INT(f.lost, 0); /* and all loads were followed */
    CHECK_USUAL(f.nc >= 4); /* and others are read that way */
}
