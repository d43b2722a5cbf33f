/* math/collapse_edit.c -- replaces instructions of a kernel by several others. */
#include "math/collapse.h"

#include <string.h>

bool nnc_kedit_begin(nnc_kedit *e, nnc_kernel *k, int extra, nnc_arena *a)
{
    *e = (nnc_kedit){.k = k,
        .ins = ARENA_NEW(a, nnc_kins, k->n_ins + extra + 1),
        .map = ARENA_NEW(a, int32_t, k->n_ins + extra + 1)};
    return e->ins && e->map;
}

int32_t nnc_kedit_sop(nnc_kedit *e, nnc_sop op, nnc_dtype d, int32_t x, int32_t y, int32_t z)
{
    nnc_dtype res = nnc_sops[op].res == SR_bool ? DT_bool : d;
    bool nan =
        e->ins[x].maybe_nan || (y >= 0 && e->ins[y].maybe_nan) || (z >= 0 && e->ins[z].maybe_nan);
    e->ins[e->n] = (nnc_kins){.op = KO_sop,
        .dtype = (uint8_t)res,
        .sop = (uint8_t)op,
        .cast_to = (uint8_t)(op == SC_cast ? d : 0),
        .buf = -1,
        .arg = {x, y, z},
        .lo = 1,
        .maybe_nan = nan};
    return e->n++;
}

int32_t nnc_kedit_const(nnc_kedit *e, nnc_dtype d, double v)
{
    e->ins[e->n] = (nnc_kins){.op = KO_const,
        .dtype = (uint8_t)d,
        .buf = -1,
        .arg = {-1, -1, -1},
        .f = v,
        .i = nnc_is_float(d) ? 0 : (int64_t)v,
        .lo = v,
        .hi = v};
    return e->n++;
}

void nnc_kedit_copy(nnc_kedit *e, int i)
{
    nnc_kins in = e->k->ins[i];
    for (int j = 0; j < 3; j++)
        if (in.arg[j] >= 0)
            in.arg[j] = e->map[in.arg[j]];
    e->ins[e->n] = in;
    e->map[i] = e->n++;
}

void nnc_kedit_run(nnc_kedit *e, void (*rewrite)(void *ctx, nnc_kedit *e, int i), void *ctx)
{
    nnc_kernel *k = e->k;
    for (int s = 0; s < k->n_stage; s++) {
        nnc_kstage *g = &k->stage[s], to = {.axes = g->axes, .body0 = e->n};
        for (int i = g->body0; i < g->body1; i++)
            rewrite(ctx, e, i);
        to.body1 = to.post0 = e->n;
        for (int i = g->post0; i < g->post1; i++)
            rewrite(ctx, e, i);
        to.post1 = e->n;
        *g = to;
    }
    k->ins = e->ins;
    k->n_ins = e->n;
    memset(e->map, 0, sizeof *e->map * ((size_t)e->n + 1));
    nnc_kernel_compact(k, e->map);
}
