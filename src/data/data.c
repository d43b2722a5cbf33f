/* data/data.c -- a data set for training: its parts, the order of their samples, and how a sample becomes a row of a batch. */
#include "data/internal.h"

#include <string.h>

/* How an input is filled. */
typedef struct view {
    bool picture;
    int c, h, w; /* of a picture */
    int64_t numbers; /* of a row */
} view;

typedef struct part {
    nnc_source *source; /* NULL: that of training */
    int64_t n, *order; /* sample i is order[i] of the source */
} part;

struct nnc_data {
    nnc_data_options o;
    nnc_augment augment;
    nnc_arena arena;
    int n;
    nnc_data_input *in;
    view view[NNC_DATA_INPUTS];
    int64_t batch; /* samples */
    int64_t
        pad; /* target of rows beyond the last sample for validation; NNC_DATA_none: there are none */
    part part[NNC_DATA_PARTS];
    int64_t *shuffled; /* of training, in the epoch */
    const nnc_source *source; /* of the pass, and its samples in order */
    const int64_t *order;
    int64_t samples; /* of the pass */
    int64_t at; /* the batch that nnc_data_next gives next */
    nnc_draws draws; /* of sample 0 */
    nnc_loader *loader;
};

/* ---- a row ----------------------------------------------------------------------------------- */

static nnc_status fill_picture(
    const nnc_data *d, int k, int64_t sample, void *to, nnc_scratch *s, nnc_sink *sink)
{
    const nnc_source *o = d->source;
    const view *v = &d->view[k];
    const nnc_dtype type = (nnc_dtype)d->in[k].type.dtype;
    nnc_draws draws = d->draws;
    const char *why;
    draws.first = (uint64_t)sample * NNC_DRAWS;
    NNC_TRY(o->ops->picture(o, sample, k, v->c, s, sink));
    const int h = s->now.h, w = s->now.w;
    NNC_TRY(nnc_augment_apply(&d->augment, &draws, v->h, v->w, s, &why, sink));
    if (why)
        return nnc_source_fail(o, sample, sink, "the picture is %dx%d, the model takes %dx%d: %s",
            h, w, v->h, v->w, why);
    if (type == DT_f32)
        memcpy(to, s->now.at, (size_t)v->numbers * sizeof(float));
    for (int64_t i = 0; type != DT_f32 && i < v->numbers; i++)
        nnc_set_f64(type, to, i, (double)s->now.at[i]);
    return NNC_OK;
}

static nnc_status load_row(
    void *ctx, int64_t batch, int64_t row, void *const *to, nnc_scratch *s, nnc_sink *sink)
{
    const nnc_data *d = ctx;
    const int64_t at = batch * d->batch + row, sample = d->order[nnc_min64(at, d->samples - 1)];
    for (int k = 0; k < d->n; k++) {
        const int64_t numbers = d->view[k].numbers;
        char *p = (char *)to[k] + row * numbers * nnc_dtype_size((nnc_dtype)d->in[k].type.dtype);
        NNC_TRY(d->view[k].picture ? fill_picture(d, k, sample, p, s, sink)
                                   : d->source->ops->row(d->source, sample, k, p, sink));
        for (int64_t i = 0; d->in[k].target && at >= d->samples && i < numbers; i++)
            nnc_set_i64(DT_i64, p, i, d->pad);
    }
    return NNC_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Picture formats have one input, and a class as the target. */
static nnc_status check_inputs(const nnc_data *d, const nnc_source *o, nnc_sink *sink)
{
    int others = 0;
    for (int k = 0; k < d->n; k++) {
        const nnc_type *t = &d->in[k].type;
        others += !d->in[k].target;
        if (d->in[k].target && (t->dtype != DT_i64 || t->rank != 1))
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = d->o.path},
                "is %s, which has one class for each picture: train with --loss=cross_entropy, on "
                "a prediction [N,classes]",
                o->format);
    }
    return others == 1 ? NNC_OK
                       : nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = d->o.path},
                             "is %s; the model has %d inputs, where pictures are for one",
                             o->format, others);
}

/* The size of pictures that input k takes; false: it takes none. */
static bool takes_pictures(const nnc_data *d, const nnc_source *o, int k, view *v)
{
    const nnc_type *t = &d->in[k].type;
    const int64_t *dim = t->dim;
    int64_t size[3] = {o->c, o->h, o->w};
    if (!nnc_is_float((nnc_dtype)t->dtype))
        return false;
    if (t->rank == 4)
        memcpy(size, dim + 1, sizeof size);
    else if (t->rank == 3)
        memcpy(size, (int64_t[]){1, dim[1], dim[2]}, sizeof size);
    else if (t->rank != 2 || dim[1] != size[0] * size[1] * size[2]) /* rank 2: flattened */
        return false;
    if (size[0] > 65535 || size[1] > 65535 || size[2] > 65535)
        return false;
    v->c = (int)size[0];
    v->h = (int)size[1];
    v->w = (int)size[2];
    return !o->pictures || v->c == 1 || v->c == 3;
}

static nnc_status check_picture(
    const nnc_data *d, const nnc_source *o, const char *path, int k, nnc_sink *sink)
{
    view v;
    const nnc_loc loc = {.file = path};
    const bool sized = d->augment.h || d->augment.crop;
    if (!takes_pictures(d, o, k, &v)) {
        NNC_LOCAL(nnc_text) is = {0};
        nnc_put_type(&is, &d->in[k].type);
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "has pictures, the model's input %s is %s; expected [N,C,height,width] of floats with "
            "1 "
            "or 3 channels",
            d->in[k].name, nnc_text_str(&is));
    }
    if (o->h && !sized && (o->h != v.h || o->w != v.w))
        return nnc_fail(sink, NNC_E_MODEL, loc,
            "has pictures of %dx%d, the model takes %dx%d: set --resize, --crop or both", o->h,
            o->w, v.h, v.w);
    const int n[] = {d->augment.n_mean, d->augment.n_std};
    for (int i = 0; i < 2; i++)
        if (n[i] > 1 && n[i] != v.c)
            return nnc_fail0(sink, NNC_E_USAGE, "%s has %d numbers; expected 1, or %d for input %s",
                i ? "--std" : "--mean", n[i], v.c, d->in[k].name);
    return NNC_OK;
}

/* Which inputs are pictures: of tensors those of four dimensions, where there is something to do with them. */
static nnc_status find_views(nnc_data *d, const nnc_source *o, const char *path, nnc_sink *sink)
{
    int pictures = 0;
    const bool any = nnc_augment_any(&d->augment);
    for (int k = 0; k < d->n; k++) {
        const nnc_type *t = &d->in[k].type;
        view *v = &d->view[k];
        v->numbers = nnc_type_numel(t) / t->dim[0];
        v->picture = !d->in[k].target && (o->pictures || (any && t->rank == 4));
        pictures += v->picture;
        if (v->picture) {
            NNC_TRY(check_picture(d, o, path, k, sink));
            (void)takes_pictures(d, o, k, v);
        }
        if (d->in[k].target && t->rank > 1 && nnc_augment_moves(&d->augment))
            return nnc_fail0(sink, NNC_E_USAGE,
                "the target has several numbers a sample, which --resize, --crop, --flip and "
                "--rotate would not move with the picture: leave them out");
    }
    if (any && !pictures)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--resize, --crop, --flip, --rotate, --mean and --std are of pictures: no input of the "
            "model is [N,C,height,width]");
    return NNC_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static nnc_status check_labels(
    const nnc_data *d, const nnc_source *o, int64_t classes, nnc_sink *sink)
{
    int64_t class;
    for (int k = 0; k < d->n; k++)
        for (int64_t i = 0; d->in[k].target && i < o->n; i++) {
            NNC_TRY(o->ops->row(o, i, k, &class, sink));
            if (class < 0 || class >= classes)
                return nnc_source_fail(o, i, sink,
                    "its class is %lld; the model's prediction has classes 0 to %lld",
                    (long long)class, (long long)classes - 1);
        }
    return NNC_OK;
}

static nnc_status open_part(
    nnc_data *d, part *p, const char *path, const char *labels, int64_t classes, nnc_sink *sink)
{
    const nnc_request q = {.path = path,
        .labels = labels,
        .n = d->n,
        .in = d->in,
        .classes = classes,
        .like = p > d->part ? d->part->source : NULL,
        .moves = d->augment.h || d->augment.crop};
    NNC_TRY(nnc_source_open(&q, &p->source, sink));
    const nnc_source *o = p->source;
    if (o->pictures) {
        NNC_TRY(check_inputs(d, o, sink));
        NNC_TRY(check_labels(d, o, classes, sink));
    }
    NNC_TRY(find_views(d, o, path, sink));
    p->n = o->n;
    p->order = ARENA_NEW(&d->arena, int64_t, p->n);
    NNC_NEED(p->order, sink);
    for (int64_t i = 0; i < p->n; i++)
        p->order[i] = i;
    return NNC_OK;
}

static void shuffle(int64_t *order, int64_t n, uint64_t seed, const char *name)
{
    const uint64_t key = nnc_rng_key(name, seed);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j =
            (int64_t)((uint64_t)nnc_rng_u32(key, (uint64_t)i) * (uint64_t)(i + 1) >> 32);
        const int64_t at = order[i];
        order[i] = order[j];
        order[j] = at;
    }
}

/* Divides the samples, in an order of the seed, into those for training and for validation. Both are whole batches, unless the last one is
 * padded. */
static nnc_status divide_set(nnc_data *d, nnc_sink *sink)
{
    part *t = &d->part[NNC_DATA_train], *v = &d->part[NNC_DATA_validation];
    const int64_t all = t->n;
    const double share = d->o.validation;
    if (!v->source) {
        if (!d->o.no_shuffle)
            shuffle(t->order, all, d->o.seed, "split");
        const int64_t whole = d->pad == NNC_DATA_none ? d->batch : 1;
        v->n = (int64_t)((double)all * share) / whole * whole;
        t->n -= v->n;
        v->order = t->order + t->n;
        if (share > 0 && !v->n)
            return nnc_fail0(sink, NNC_E_USAGE,
                "--validation=%g of %lld samples is less than %s%lld: keep a larger share", share,
                (long long)all, whole > 1 ? "a batch of " : "", (long long)whole);
    }
    for (const part *p = d->part; p < d->part + NNC_DATA_PARTS; p++)
        if (p->n < d->batch && (p == t || (v->source && d->pad == NNC_DATA_none)))
            return nnc_fail0(sink, NNC_E_MODEL,
                "%lld samples for %s are less than a batch of %lld: set a smaller one (--set "
                "batch=...)%s",
                (long long)p->n, p == t ? "training" : "validation", (long long)d->batch,
                p == t && share > 0 ? " or a smaller --validation" : "");
    d->shuffled = ARENA_NEW(&d->arena, int64_t, t->n);
    NNC_NEED(d->shuffled, sink);
    return NNC_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static nnc_status check_options(const nnc_data_options *o, nnc_sink *sink)
{
    if (o->validation_path && o->validation > 0)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--validation keeps a share of --data, --validation-data names other samples: leave "
            "one out");
    if (o->validation_labels && !o->validation_path)
        return nnc_fail0(
            sink, NNC_E_USAGE, "--validation-labels is of the samples in --validation-data");
    return NNC_OK;
}

static nnc_status make_loader(nnc_data *d, nnc_sink *sink)
{
    nnc_load w = {.n = d->n, .rows = d->batch, .row = load_row, .ctx = d};
    const int64_t some = nnc_max64(nnc_cpu_count() / 4, 1);
    for (int k = 0; k < d->n; k++)
        w.bytes[k] = d->view[k].numbers * nnc_dtype_size((nnc_dtype)d->in[k].type.dtype);
    return nnc_loader_create(&w,
        d->o.loaders < 0 ? 0
        : d->o.loaders   ? d->o.loaders
                         : (int)some,
        &d->loader, sink);
}

static nnc_status open_all(nnc_data *d, int64_t classes, nnc_sink *sink)
{
    const nnc_data_options *o = &d->o;
    NNC_TRY(check_options(o, sink));
    NNC_TRY(nnc_augment_read(o, &d->augment, sink));
    NNC_TRY(open_part(d, &d->part[NNC_DATA_train], o->path, o->labels, classes, sink));
    if (o->validation_path)
        NNC_TRY(open_part(d, &d->part[NNC_DATA_validation], o->validation_path,
            o->validation_labels, classes, sink));
    NNC_TRY(divide_set(d, sink));
    return make_loader(d, sink);
}

nnc_status nnc_data_open(const nnc_data_options *o, int n, const nnc_data_input *in,
    int64_t classes, nnc_data **out, nnc_sink *sink)
{
    *out = NULL;
    if (n < 1 || n > NNC_DATA_INPUTS)
        return nnc_fail0(sink, NNC_E_BUG, "data for %d inputs", n);
    nnc_data *d = nnc_calloc(1, sizeof *d);
    NNC_NEED(d, sink);
    d->o = *o;
    d->n = n;
    d->batch = in[0].type.dim[0];
    d->pad = NNC_DATA_none;
    for (int k = 0; k < n; k++)
        d->pad = in[k].target ? in[k].pad : d->pad;
    d->in = nnc_arena_memdup(&d->arena, in, (size_t)n * sizeof *in);
    nnc_status s = d->in ? open_all(d, classes, sink) : nnc_nomem(sink);
    if (s)
        nnc_data_close(d);
    else
        *out = d;
    return s;
}

void nnc_data_close(nnc_data *d)
{
    if (!d)
        return;
    nnc_loader_destroy(d->loader);
    for (int p = 0; p < NNC_DATA_PARTS; p++)
        nnc_source_close(d->part[p].source);
    nnc_arena_deinit(&d->arena);
    nnc_free(d);
}

int64_t nnc_data_samples(const nnc_data *d, nnc_data_part p)
{
    return d->part[p].n;
}

int64_t nnc_data_batches(const nnc_data *d, nnc_data_part p)
{
    const bool padded = p == NNC_DATA_validation && d->pad != NNC_DATA_none;
    return (d->part[p].n + (padded ? d->batch - 1 : 0)) / d->batch;
}

const char *nnc_data_format(const nnc_data *d)
{
    return d->part[NNC_DATA_train].source->format;
}

/* ---- epochs ---------------------------------------------------------------------------------- */

void nnc_data_begin(nnc_data *d, nnc_data_part p, int64_t epoch, int64_t first)
{
    const part *t = &d->part[NNC_DATA_train], *now = &d->part[p];
    char name[48];
    nnc_loader_pause(d->loader);
    d->source = now->source ? now->source : t->source;
    d->order = now->order;
    d->samples = now->n;
    d->draws = (nnc_draws){.train = p == NNC_DATA_train};
    if (p == NNC_DATA_train) {
        snprintf(name, sizeof name, "augment epoch %lld", (long long)epoch);
        d->draws.key = nnc_rng_key(name, d->o.seed);
        memcpy(d->shuffled, t->order, (size_t)t->n * sizeof *t->order);
        if (!d->o.no_shuffle)
            shuffle(d->shuffled, t->n, d->o.seed, name + strlen("augment "));
        d->order = d->shuffled;
    }
    d->at = first;
    nnc_loader_start(d->loader, first, nnc_data_batches(d, p));
}

nnc_status nnc_data_next(nnc_data *d, const void **batch, nnc_sink *sink)
{
    d->at++;
    return nnc_loader_next(d->loader, batch, sink);
}

void nnc_data_where(const nnc_data *d, int64_t row, nnc_text *out)
{
    char place[64] = "";
    const int64_t at = nnc_min64((d->at - 1) * d->batch + row, d->samples - 1);
    d->source->ops->name(d->source, d->order[at], out, place);
    nnc_printf(out, "%s%s", *place ? ", " : "", place);
}

nnc_data_times nnc_data_take_times(nnc_data *d)
{
    return nnc_loader_take_times(d->loader);
}
