/* api/partition_times.c -- measured times of commands, found again by what a command computes: the kernel or call, its tensors' types and its
 * threads. So a plan for several devices has the times that were measured in a plan for one. */
#include "api/partition.h"
#include <string.h>

typedef struct known {
    nnc_hash128 key;
    int64_t ns; /* sum */
    int n;
} known;

struct nnc_command_times {
    nnc_arena *a;
    known *at;
    size_t n, cap;
};

nnc_command_times *nnc_command_times_create(nnc_arena *a)
{
    nnc_command_times *t = ARENA_NEW(a, nnc_command_times, 1);
    if (t)
        t->a = a;
    return t;
}

static void put_numbers(nnc_text *t, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++)
        nnc_printf(t, " %lld", (long long)v[i]);
}

static void put_call(nnc_text *t, const nnc_call *c)
{
    const nnc_type *const types[] = {&c->src, &c->wei, &c->bias, &c->dst};
    nnc_printf(t, "call %d %d %d%d%d%d%d%d%d threads %d groups %lld:", c->kind, c->spatial,
        c->has_bias, c->trans_a, c->trans_b, c->count_pad, c->packed, c->tf32, c->exact, c->threads,
        (long long)c->groups);
    put_numbers(t, c->kernel, c->spatial);
    put_numbers(t, c->stride, c->spatial);
    put_numbers(t, c->dilation, c->spatial);
    put_numbers(t, c->pad_lo, c->spatial);
    put_numbers(t, c->pad_hi, c->spatial);
    for (size_t i = 0; i < NNC_COUNT(types); i++) {
        nnc_putc(t, ' ');
        nnc_put_type(t, types[i]);
    }
    for (int i = 0; i < c->n_post; i++)
        nnc_printf(t, " post %d %d", c->post[i].kind, c->post[i].in_place);
}

/* The key's text; nothing for a command that does not compute. */
static void put_command(nnc_text *t, const nnc_plan *p, const nnc_cmd *c)
{
    if (c->kind == CMD_kernel)
        nnc_printf(t, "kernel %s threads %d", p->kernel[c->item].symbol, p->kernel[c->item].threads);
    else if (c->kind == CMD_call)
        put_call(t, &p->call[c->item]);
    else if (c->kind == CMD_copy && p->tensor[c->arg[0]].device == p->tensor[c->arg[1]].device)
        nnc_printf(t, "copy %lld", (long long)p->tensor[c->arg[1]].bytes);
}

static known *find(const nnc_command_times *t, nnc_hash128 key)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->at[i].key.lo == key.lo && t->at[i].key.hi == key.hi)
            return &t->at[i];
    return NULL;
}

bool nnc_command_times_add(nnc_command_times *t, const nnc_plan *p, const nnc_cmd *c, int64_t ns)
{
    NNC_LOCAL(nnc_text) text = {0};
    put_command(&text, p, c);
    if (text.oom)
        return false;
    if (!text.n)
        return true;
    const nnc_hash128 key = nnc_hash(nnc_text_str(&text), text.n);
    known *k = find(t, key);
    if (!k) {
        if (!ARENA_ROOM(t->a, t->at, t->cap, t->n + 1))
            return false;
        k = &t->at[t->n++];
        *k = (known){.key = key};
    }
    k->ns += ns;
    k->n++;
    return true;
}

int64_t nnc_command_times_ps(void *ctx, const nnc_plan *p, const nnc_cmd *c)
{
    NNC_LOCAL(nnc_text) text = {0};
    put_command(&text, p, c);
    if (!text.n || text.oom)
        return -1;
    const known *k = find(ctx, nnc_hash(nnc_text_str(&text), text.n));
    return k ? nnc_mul_sat(k->ns / k->n, 1000) : -1;
}
