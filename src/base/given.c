/* base/given.c -- see given.h. */
#include "base/base.h"
#include <stdatomic.h>
#include <string.h>

nnc_given *nnc_given_create(int files, int pieces, int args)
{
    nnc_given *g = nnc_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    atomic_init(&g->users, 1);
    g->n_file = files;
    g->n_piece = pieces;
    g->n_arg = args;
    g->file = ARENA_NEW(&g->arena, nnc_given_file, files + 1);
    g->piece = ARENA_NEW(&g->arena, nnc_given_piece, pieces + 1);
    g->arg = ARENA_NEW(&g->arena, nnc_arg, args + 1);
    if (g->file && g->piece && g->arg)
        return g;
    nnc_given_drop(g);
    return NULL;
}

nnc_given *nnc_given_share(nnc_given *g)
{
    if (g)
        atomic_fetch_add(&g->users, 1);
    return g;
}

void nnc_given_drop(nnc_given *g)
{
    if (!g || atomic_fetch_sub(&g->users, 1) > 1)
        return;
    nnc_arena_deinit(&g->arena);
    nnc_free(g);
}

bool nnc_given_keep(nnc_given *g, int i, int file, int64_t at, const void *data, int64_t size)
{
    nnc_given_piece *p = &g->piece[i];
    *p = (nnc_given_piece){file, at, size, nnc_arena_memdup(&g->arena, data, (size_t)size)};
    return p->data != NULL;
}

bool nnc_given_has(const nnc_given *g, int file, int64_t at, int64_t size)
{
    for (int i = 0; i < g->n_piece; i++) {
        const nnc_given_piece *p = &g->piece[i];
        if (p->file == file && p->at <= at && size <= p->size && at - p->at <= p->size - size)
            return true;
    }
    return false;
}

nnc_status nnc_given_map(const nnc_given *g, int i, nnc_map *out, nnc_sink *sink)
{
    NNC_TRY(nnc_map_blank(out, (size_t)g->file[i].size, sink));
    for (int k = 0; k < g->n_piece; k++)
        if (g->piece[k].file == i)
            memcpy(
                (uint8_t *)out->data + g->piece[k].at, g->piece[k].data, (size_t)g->piece[k].size);
    return NNC_OK;
}
