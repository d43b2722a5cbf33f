/* runtime/difference.c -- why ranks have different plans: each describes its own, a fact a line, and the first line that differs is named.
 * Facts that explain others come first: without an engine, commands differ, too. */
#include "runtime/job.h"
#include <string.h>

enum {
    DESCRIPTION = 8192
}; /* bytes that ranks exchange; more devices and inputs than fit are left out */

/* The engines of the plan's commands. */
static void put_engines(const nnc_plan *p, nnc_text *t)
{
    nnc_puts(t, "engines: ");
    for (int i = 0, n = 0; i < p->n_engine; i++) {
        bool used = false;
        for (int k = 0; k < p->n_cmd && !used; k++)
            used = p->cmd[k].engine == i &&
                   (p->cmd[k].kind == CMD_kernel || p->cmd[k].kind == CMD_call);
        if (used)
            nnc_printf(t, "%s%s", n++ ? ", " : "", p->engine[i]);
    }
    nnc_putc(t, '\n');
}

static void put_devices(const nnc_plan *p, nnc_text *t)
{
    nnc_printf(t, "devices: %d\n", p->n_device);
    for (int i = 0; i < p->n_device; i++)
        nnc_printf(t, "target of %s: %s\n", p->device[i].name, p->device[i].target);
    for (int i = 0; i < p->n_device; i++)
        nnc_printf(t, "threads of %s: %d\nstreams of %s: %d\n", p->device[i].name,
            p->device[i].threads, p->device[i].name, p->device[i].streams);
}

static void put_inputs(const nnc_plan *p, nnc_text *t)
{
    for (int i = 0; i < p->n_input; i++) {
        nnc_printf(t, "input %s: ", p->input_name[i] ? p->input_name[i] : "");
        nnc_put_type(t, &p->tensor[p->input[i]].type);
        nnc_putc(t, '\n');
    }
}

static void put_hash(nnc_text *t, const char *what, nnc_hash128 h)
{
    char hex[33];
    nnc_hash_hex(h, hex);
    nnc_printf(t, "%s: %s\n", what, hex);
}

/* Names, seeds, and places in files. */
static void put_weights(const nnc_plan *p, nnc_text *t)
{
    NNC_LOCAL(nnc_text) all = {0};
    for (int i = 0; i < p->n_weight; i++) {
        const nnc_weight *w = &p->weight[i];
        nnc_printf(&all, "%d %s %llu %a %a %lld %lld %llu\n", (int)w->kind, w->name ? w->name : "",
            (unsigned long long)w->seed, (double)w->scale, (double)w->shift, (long long)w->offset,
            (long long)w->size, (unsigned long long)w->header_hash);
    }
    nnc_printf(t, "number of weights: %d\n", p->n_weight);
    put_hash(t, "weights (their files, or --seed)", nnc_hash(nnc_text_str(&all), all.n));
}

static void put_commands(const nnc_plan *p, nnc_text *t)
{
    static const char *const kind[CMD__COUNT] = {[CMD_weight] = "weights",
        [CMD_kernel] = "kernels",
        [CMD_call] = "library calls",
        [CMD_copy] = "copies",
        [CMD_collective] = "collectives"};
    NNC_LOCAL(nnc_text) all = {0};
    for (int k = 0; k < CMD__COUNT; k++) {
        int n = 0;
        for (int i = 0; i < p->n_cmd; i++)
            n += p->cmd[i].kind == k;
        if (kind[k])
            nnc_printf(t, "number of commands that are %s: %d\n", kind[k], n);
    }
    for (int i = 0; i < p->n_cmd; i++)
        nnc_printf(&all, "%s %s\n", p->cmd[i].layers ? p->cmd[i].layers : "",
            p->cmd[i].reason ? p->cmd[i].reason : "");
    for (int i = 0; i < p->n_kernel; i++)
        nnc_puts(&all, p->kernel[i].ir ? p->kernel[i].ir : "");
    put_hash(t, "layers and how they are computed", nnc_hash(nnc_text_str(&all), all.n));
}

static void describe(const nnc_plan *p, char out[DESCRIPTION])
{
    NNC_LOCAL(nnc_text) t = {0};
    nnc_printf(&t, "version of nnc: " NNC_VERSION "\n");
    put_engines(p, &t);
    put_devices(p, &t);
    put_inputs(p, &t);
    put_weights(p, &t);
    put_commands(p, &t);
    memset(out, 0, DESCRIPTION);
    memcpy(out, nnc_text_str(&t), nnc_min64((int64_t)t.n, DESCRIPTION - 1));
}

static size_t line_of(const char *s)
{
    return strcspn(s, "\n");
}

/* The first line that one has otherwise than the other. */
static void put_difference(const char *theirs, const char *first, nnc_text *out)
{
    static const char engines[] = "engines: ";
    const char *a = theirs, *b = first;
    while (*a && line_of(a) == line_of(b) && !strncmp(a, b, line_of(a))) {
        a += line_of(a) + (a[line_of(a)] != 0);
        b += line_of(b) + (b[line_of(b)] != 0);
    }
    if (!*a && !*b)
        return;
    const char *value = strstr(b, ": ");
    const size_t name = value ? (size_t)(value + 2 - b) : 0;
    const bool same = value && name <= line_of(b) && !strncmp(a, b, name);
    nnc_printf(out, "; it has %.*s, rank 0 %.*s", (int)line_of(a), a,
        (int)(line_of(b) - (same ? name : 0)), b + (same ? name : 0));
    if (!strncmp(a, engines, sizeof engines - 1) && same)
        nnc_puts(
            out, ": is a library missing there, or is there no memory to load it (nnc doctor)?");
}

nnc_status nnc_ranks_difference(exec_ranks *k, const nnc_plan *p, int rank, nnc_text *out)
{
    static const char what[] = "comparing what plans were made for";
    NNC_FREED char *mine = nnc_malloc(2 * DESCRIPTION);
    char *other = mine + DESCRIPTION;
    nnc_comm *c = k->job->comm;
    if (!mine)
        return NNC_E_NOMEM;
    describe(p, mine);
    if (k->rank)
        NNC_TRY(nnc_comm_send(c, mine, DESCRIPTION, 0, TAG_join, what));
    NNC_TRY(nnc_comm_recv(c, other, DESCRIPTION, k->rank ? 0 : rank, TAG_join, what));
    if (!k->rank)
        NNC_TRY(nnc_comm_send(c, mine, DESCRIPTION, rank, TAG_join, what));
    other[DESCRIPTION - 1] = 0;
    put_difference(k->rank ? mine : other, k->rank ? other : mine, out);
    return NNC_OK;
}
