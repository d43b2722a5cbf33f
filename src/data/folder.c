/* data/folder.c -- a folder for each class, in the order of their names, with its JPEG and PNG files, which are decoded when a sample is
 * needed. */
#include "data/internal.h"

#include <string.h>

typedef struct picture_file {
    const char *name;
    int32_t class;
} picture_file;

enum { JPEG, PNG, KINDS };

typedef struct folder {
    nnc_source o;
    const char *path;
    nnc_names classes;
    picture_file *file;
    size_t room;
    const nnc_decoder *decoder[KINDS]; /* NULL: there is none */
    const char *why[KINDS]; /* and why */
} folder;

static const char *const kinds[] = {"JPEG", "PNG"};

/* ---- samples --------------------------------------------------------------------------------- */

static void put_name(const nnc_source *o, int64_t i, nnc_text *file, char place[64])
{
    const folder *f = (const folder *)o;
    const picture_file *at = &f->file[i];
    (void)place;
    nnc_printf(file, "%s/%s/%s", f->path, f->classes.at[at->class], at->name);
}

/* The picture to decode, and the memory that it goes to. */
typedef struct target {
    nnc_decoded d; /* first: room's argument is that of a target */
    nnc_scratch *s;
} target;

static uint8_t *room(nnc_decoded *d, size_t bytes)
{
    nnc_scratch *s = ((target *)d)->s;
    if (bytes > s->room) {
        nnc_free(s->decoded);
        s->decoded = nnc_malloc(bytes);
        s->room = s->decoded ? bytes : 0;
    }
    return s->decoded;
}

/* Files are what their first bytes say: some have another's ending. */
static nnc_status decode(
    const folder *f, const nnc_map *m, nnc_decoded *d, const char *path, nnc_sink *sink)
{
    const int kind = m->n >= 4 && !memcmp(m->data, "\x89PNG", 4) ? PNG : JPEG;
    const nnc_loc loc = {.file = path};
    if (!f->decoder[kind])
        return nnc_fail(sink, NNC_E_MODEL, loc, "is a %s file, which nnc cannot read here: %s",
            kinds[kind], f->why[kind]);
    const nnc_status s = f->decoder[kind]->decode(m->data, m->n, d);
    if (s == NNC_E_NOMEM)
        return nnc_nomem(sink);
    return s ? nnc_fail(sink, s, loc, "is not a whole %s file: %s", kinds[kind], d->why) : NNC_OK;
}

static nnc_status picture(
    const nnc_source *o, int64_t i, int k, int channels, nnc_scratch *s, nnc_sink *sink)
{
    const folder *f = (const folder *)o;
    NNC_LOCAL(nnc_text) path = {0};
    target t = {.d = {.room = room}, .s = s};
    const nnc_decoded *d = &t.d;
    nnc_map m;
    (void)k;
    put_name(o, i, &path, NULL);
    NNC_NEED(!path.oom, sink);
    NNC_TRY(nnc_map_open(&m, nnc_text_str(&path), sink));
    const nnc_status status = decode(f, &m, &t.d, nnc_text_str(&path), sink);
    nnc_map_close(&m);
    NNC_TRY(status);
    const nnc_pixels p = {d->at, d->c, d->h, d->w, 1, (int64_t)d->w * d->c, d->c};
    return nnc_picture_set(&s->now, &p, channels, sink);
}

static nnc_status row(const nnc_source *o, int64_t i, int k, void *to, nnc_sink *sink)
{
    (void)k, (void)sink;
    return nnc_source_class(((const folder *)o)->file[i].class, to);
}

static const nnc_source_ops ops = {picture, row, put_name, NULL};

/* ---- opening --------------------------------------------------------------------------------- */

/* By its name's ending: JPEG, PNG, or KINDS for others. */
static int kind_of(const char *name)
{
    return nnc_name_ends(name, ".jpg") || nnc_name_ends(name, ".jpeg") ? JPEG
           : nnc_name_ends(name, ".png")                               ? PNG
                                                                       : KINDS;
}

/* The samples for validation have the classes of those for training, whichever of them have a folder. */
static nnc_status take_classes(folder *f, const folder *like, nnc_sink *sink)
{
    for (size_t i = 0, k = 0; i < f->classes.n; i++, k++) {
        while (k < like->classes.n && strcmp(like->classes.at[k], f->classes.at[i]) < 0)
            k++;
        if (k == like->classes.n || strcmp(like->classes.at[k], f->classes.at[i]) != 0)
            return nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = f->path},
                "has a folder `%s`, which is no class of %s", f->classes.at[i], like->path);
    }
    f->classes = like->classes; /* in its arena: it stays open for as long */
    return NNC_OK;
}

/* Lists the pictures of a class; one that only training has may have none here. */
static nnc_status list_class(folder *f, int32_t class, bool may_lack, int64_t *met, nnc_sink *sink)
{
    nnc_names names = {0};
    nnc_arena *a = &f->o.arena;
    const int64_t before = f->o.n;
    char *path = nnc_arena_printf(a, "%s/%s", f->path, f->classes.at[class]);
    NNC_NEED(path, sink);
    if (may_lack && !nnc_file_exists(path))
        return NNC_OK;
    NNC_TRY(nnc_list_folder(a, path, false, &names, sink));
    for (size_t i = 0; i < names.n; i++) {
        const int kind = kind_of(names.at[i]);
        met[kind]++;
        if (kind == KINDS)
            continue;
        NNC_NEED(ARENA_ROOM(a, f->file, f->room, f->o.n + 1), sink);
        f->file[f->o.n++] = (picture_file){names.at[i], class};
    }
    return f->o.n > before ? NNC_OK
                           : nnc_fail(sink, NNC_E_MODEL, (nnc_loc){.file = path},
                                 "has no JPEG or PNG files; expected those of a class");
}

static nnc_status find_decoders(folder *f, const int64_t met[KINDS], nnc_sink *sink)
{
    static const char *const plugin[] = {"jpeg", "png"}, *const symbol[] = {
                                                             "nnc_decoder_jpeg", "nnc_decoder_png"};
    for (int k = 0; k < KINDS; k++) {
        f->decoder[k] = nnc_plugin(plugin[k], symbol[k], &f->why[k]);
        if (met[k] && !f->decoder[k])
            return nnc_fail(sink, NNC_E_DEVICE, (nnc_loc){.file = f->path},
                "has %lld %s file%s: %s", (long long)met[k], kinds[k], met[k] == 1 ? "" : "s",
                f->why[k]);
    }
    return NNC_OK;
}

static nnc_status list_all(
    folder *f, const nnc_request *q, const nnc_names *classes, nnc_sink *sink)
{
    int64_t met[KINDS + 1] = {0};
    nnc_arena *a = &f->o.arena;
    f->path = nnc_arena_strdup(a, q->path);
    f->classes.at = ARENA_NEW(a, char *, classes->n);
    NNC_NEED(f->path && f->classes.at, sink);
    for (size_t i = 0; i < classes->n; i++) {
        f->classes.at[i] = nnc_arena_strdup(a, classes->at[i]);
        NNC_NEED(f->classes.at[i], sink);
    }
    f->classes.n = classes->n;
    const bool named = q->like && q->like->ops == &ops;
    if (named)
        NNC_TRY(take_classes(f, (const folder *)q->like, sink));
    for (size_t i = 0; i < f->classes.n; i++)
        NNC_TRY(list_class(f, (int32_t)i, named, met, sink));
    if (met[KINDS])
        nnc_warn(sink, (nnc_loc){.file = q->path},
            met[KINDS] == 1 ? "%lld other file is left out: pictures end in .jpg, .jpeg or .png"
                            : "%lld other files are left out: pictures end in .jpg, .jpeg or .png",
            (long long)met[KINDS]);
    return find_decoders(f, met, sink);
}

nnc_status nnc_folder_source(
    const nnc_request *q, const nnc_names *classes, nnc_source **out, nnc_sink *sink)
{
    folder *f = nnc_calloc(1, sizeof *f);
    NNC_NEED(f, sink);
    f->o = (nnc_source){.ops = &ops, .format = "folders of pictures", .pictures = true};
    return nnc_source_made(&f->o, list_all(f, q, classes, sink), out);
}
