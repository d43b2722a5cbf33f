/* onnx/given.c -- keeps what a new import of a model's files for other shapes needs. That is all but the numbers of large weights,
 * which only runs read. Files beside the model are kept as far as constants were read from them. */
#include "onnx/internal.h"
#include <stdlib.h>

bool ox_note_range(ox *x, ox_outside *file, int64_t at, int64_t size)
{
    if (x->o->given)
        return true;
    if (!ARENA_ROOM(&x->a, x->range, x->cap_range, x->n_range + 1))
        return ox_nomem(x);
    x->range[x->n_range++] = (ox_place){file, at, size};
    return true;
}

NNC_ORDER(by_place, ox_place, nnc_cmp(a->at, b->at))

/* Keeps the model's bytes between the weights that stay in the file. Sorts these weights. */
static bool keep_model(const ox *x, nnc_given *v)
{
    const int64_t end = (int64_t)x->data.n;
    int64_t at = 0;
    bool ok = true;
    for (size_t i = 0; ok && i <= x->n_range; i++) {
        const ox_place *r = i < x->n_range ? &x->range[i] : &(ox_place){NULL, end, 0};
        if (!r->file && r->at > at)
            ok = nnc_given_keep(v, v->n_piece++, 0, at, x->data.p + at, r->at - at);
        if (!r->file)
            at = nnc_max64(at, r->at + r->size);
    }
    return ok;
}

nnc_given *ox_keep(ox *x)
{
    int files = 1, i = 1;
    for (const ox_outside *f = x->outside; f; f = f->next)
        files++;
    if (x->n_range)
        qsort(x->range, x->n_range, sizeof *x->range, by_place);
    nnc_given *v = nnc_given_create(files, (int)x->n_range + 1, 0);
    bool ok = v && (v->file[0].name = nnc_arena_strdup(&v->arena, x->file));
    if (ok) {
        v->n_piece = 0;
        v->file[0].size = (int64_t)x->data.n;
        v->file[0].hash = x->file_hash;
        ok = keep_model(x, v);
    }
    for (const ox_outside *f = x->outside; ok && f; f = f->next, i++) {
        v->file[i] =
            (nnc_given_file){nnc_arena_strdup(&v->arena, f->location), (int64_t)f->map.n, f->hash};
        ok = v->file[i].name != NULL;
        for (size_t k = 0; ok && k < x->n_range; k++)
            if (x->range[k].file == f)
                ok = nnc_given_keep(v, v->n_piece++, i, x->range[k].at,
                    f->map.data + x->range[k].at, x->range[k].size);
    }
    if (ok)
        return v;
    nnc_given_drop(v);
    (void)ox_nomem(x);
    return NULL;
}
