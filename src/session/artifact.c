/* session/artifact.c -- a compiled model in one file: a first line with the manifest's size and hash, the manifest (JSON), then the
 * sections that it lists. They are the graph before and after the passes, plan, remarks, machine code, and embedded weights. Every section
 * has a checksum. The same model, target and version give the same bytes. Layout: docs/formats.md. */
#include "session/session.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANY_MAGIC "nnc-artifact "
#define MAGIC ANY_MAGIC "2 "
enum { TEXTS = 5, MAX_SECTIONS = 1 << 20, ALIGN = 64, CHUNK = 1 << 20 };

typedef struct section {
    const char *name; /* "source", "graph", "plan", "remarks", "model", "object/N", "weight/N" */
    const void *data; /* in memory, or NULL: weight `weight` of the plan is streamed */
    int weight;
    int64_t offset, size; /* offset from the end of the manifest, aligned */
    nnc_hash128 hash;
} section;

typedef struct writer {
    const nnc_artifact *a;
    section *s;
    int n;
    nnc_text text[TEXTS];
    nnc_text manifest;
    nnc_arena arena;
    const nnc_type **type; /* of the plan's weights */
    nnc_weight_files files;
    nnc_sink *sink;
} writer;

/* ---- paths of weights ------------------------------------------------------------------------------------ */

/* The resolved folder of a file, which may not exist yet. False: there is no such folder. */
static bool folder_of(const char *file, char out[PATH_MAX])
{
    char dir[PATH_MAX];
    const char *slash = strrchr(file, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - file) + 1 : 1, slash ? file : ".");
    return realpath(dir, out) != NULL;
}

/* The path of `file` relative to the folder that the artifact is written into, so that both can be moved together. It is absolute where it
 * was given so, or where the artifact has no folder (a pipe). */
static const char *path_from(nnc_arena *a, const char *artifact, const char *file)
{
    char to[PATH_MAX], from[PATH_MAX], target[PATH_MAX];
    if (file[0] == '/' || !realpath(file, to))
        return file;
    if (nnc_file_resolve(artifact, target) || !folder_of(target, from))
        return nnc_arena_strdup(a, to);
    NNC_LOCAL(nnc_text) t = {0};
    size_t common = 0;
    for (size_t i = 0; from[i] == to[i] || (!from[i] && to[i] == '/'); i++) {
        if (to[i] == '/' && (!from[i] || from[i] == '/'))
            common = i;
        if (!from[i])
            break;
    }
    for (const char *p = from + common; *p && p[1]; p = p + 1 + strcspn(p + 1, "/"))
        nnc_puts(&t, "../");
    nnc_puts(&t, to + common + 1);
    return t.oom ? NULL : nnc_arena_strdup(a, nnc_text_str(&t));
}

/* The plan's text with paths of weights relative to the artifact. Weights that are embedded again keep the sources by which the model
 * knows them. */
static nnc_status print_plan(writer *w, const char *artifact, bool embed, nnc_text *t)
{
    nnc_plan p = *w->a->plan;
    const nnc_weight *of = embed && w->a->listed ? w->a->listed : p.weight;
    nnc_weight *weight = ARENA_NEW(&w->arena, nnc_weight, p.n_weight + 1);
    NNC_NEED(weight, w->sink);
    for (int i = 0; i < p.n_weight; i++) {
        weight[i] = of[i];
        if (weight[i].kind != NNC_W_file)
            continue;
        if (!embed && weight[i].data && access(weight[i].file, R_OK) != 0)
            return nnc_fail0(w->sink, NNC_E_USAGE,
                "weight %s is in memory, not in a file: embed the weights", weight[i].name);
        weight[i].file = path_from(&w->arena, artifact, weight[i].file);
        NNC_NEED(weight[i].file, w->sink);
    }
    p.weight = weight;
    nnc_plan_print(t, &p);
    return NNC_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------- */

/* The types of the plan's weights. NULL: no command of the plan, which need not be verified, reads the weight. */
static const nnc_type **weight_types(nnc_arena *a, const nnc_plan *p)
{
    const nnc_type **type = ARENA_NEW(a, const nnc_type *, p->n_weight + 1);
    for (int i = 0; type && i < p->n_cmd; i++) {
        const nnc_cmd *c = &p->cmd[i];
        if (c->kind == CMD_weight && c->item >= 0 && c->item < p->n_weight && c->n_arg == 1 &&
            c->arg[0] < p->n_tensor)
            type[c->item] = &p->tensor[c->arg[0]].type;
    }
    return type;
}

/* Passes the bytes of a section to `put` in chunks, so that weights larger than memory can be embedded. */
static nnc_status stream(
    writer *w, const section *s, nnc_status (*put)(void *ctx, const void *p, size_t n), void *ctx)
{
    if (s->data)
        return put(ctx, s->data, (size_t)s->size);
    const nnc_plan *p = w->a->plan;
    const nnc_type *t = w->type[s->weight];
    int64_t size = nnc_dtype_size((nnc_dtype)t->dtype), n = nnc_type_numel(t), step = CHUNK / size;
    NNC_FREED char *buf = nnc_malloc(CHUNK);
    NNC_NEED(buf, w->sink);
    for (int64_t i = 0; i < n; i += step) {
        int64_t m = nnc_min64(step, n - i);
        NNC_TRY(nnc_weight_read(&p->weight[s->weight], t, i, m, buf, &w->files, w->sink));
        NNC_TRY(put(ctx, buf, (size_t)(m * size)));
    }
    return NNC_OK;
}

/* The checksum of a streamed section: a hash over the hashes of its chunks. */
static nnc_status add_hash(void *ctx, const void *p, size_t n)
{
    nnc_hash128 *h = ctx;
    for (size_t i = 0; i < n || (n == 0 && i == 0); i += CHUNK) {
        size_t m = n - i < CHUNK ? n - i : CHUNK;
        nnc_hash128 both[2] = {*h, nnc_hash((const char *)p + i, m)};
        *h = nnc_hash(both, sizeof both);
    }
    return NNC_OK;
}

static nnc_hash128 hash_bytes(const void *p, size_t n)
{
    nnc_hash128 h = {0};
    (void)add_hash(&h, p, n);
    return h;
}

static void add_section(writer *w, const char *name, const void *data, size_t size, int weight)
{
    section *s = &w->s[w->n];
    *s = (section){.name = name, .data = data, .weight = weight, .size = (int64_t)size};
    if (w->n)
        s->offset = nnc_align_up(s[-1].offset + s[-1].size, ALIGN);
    w->n++;
}

void nnc_put_remark_json(nnc_json_writer *w, const nnc_remark *x)
{
    NNC_JSON_ROW(w, 1, J_STRING("pass", x->pass),
        J_STRING("verdict", x->applied ? "applied" : "declined"), J_STRING("rule", x->rule),
        J_WORDS("layers", x->layer, x->n_layers), J_STRING("reason", x->reason ? x->reason : ""),
        J_INT("bytes_saved", x->bytes_saved), J_INT("launches_saved", x->launches_saved),
        J_INT("bytes_kept", x->bytes_kept));
}

static void put_remarks(nnc_text *t, const nnc_remarks *r)
{
    nnc_json_writer w = {.out = t};
    nnc_json_open(&w, NULL, '[');
    for (size_t i = 0; i < r->n; i++)
        nnc_put_remark_json(&w, &r->at[i]);
    nnc_json_end(&w, ']');
}

static nnc_status collect(writer *w, const char *file, bool embed)
{
    const nnc_plan *p = w->a->plan;
    static const char *const names[TEXTS] = {"source", "graph", "plan", "remarks", "model"};
    const int texts = w->a->source->given ? TEXTS : TEXTS - 1;
    w->s = nnc_calloc((size_t)(TEXTS + p->n_object + p->n_weight), sizeof *w->s);
    w->type = weight_types(&w->arena, p);
    NNC_NEED(w->s && w->type, w->sink);
    nnc_graph_print(&w->text[0], w->a->source);
    nnc_graph_print(&w->text[1], w->a->graph);
    NNC_TRY(print_plan(w, file, embed, &w->text[2]));
    put_remarks(&w->text[3], &w->a->remarks);
    if (w->a->source->given)
        nnc_given_bytes(w->a->source->given, &w->text[4]);
    for (int i = 0; i < texts; i++) {
        if (w->text[i].oom)
            return nnc_nomem(w->sink);
        add_section(w, names[i], nnc_text_str(&w->text[i]), w->text[i].n, -1);
    }
    for (int i = 0; i < p->n_object; i++)
        if (p->object[i].n)
            add_section(w, nnc_arena_printf(&w->arena, "object/%d", i), p->object[i].data,
                p->object[i].n, -1);
    for (int i = 0; embed && i < p->n_weight; i++) {
        const nnc_type *t = w->type[i];
        if (t && p->weight[i].kind != NNC_W_inline)
            add_section(
                w, nnc_arena_printf(&w->arena, "weight/%d", i), NULL, (size_t)nnc_type_bytes(t), i);
    }
    for (int i = 0; i < w->n; i++) {
        NNC_NEED(w->s[i].name, w->sink);
        NNC_TRY(stream(w, &w->s[i], add_hash, &w->s[i].hash));
    }
    return NNC_OK;
}

static void manifest(writer *w)
{
    char hex[33];
    const nnc_plan *p = w->a->plan;
    NNC_LOCAL(nnc_text) targets = {.into = &w->manifest};
    bool cpu = false;
    for (int d = 0; d < p->n_device; d++)
        cpu = cpu || !nnc_plan_on_gpu(&p->device[d]);
    nnc_put_targets(&targets, p, false);
    nnc_json_writer j = {.out = &w->manifest};
    nnc_json_open(&j, NULL, '{');
    NNC_JSON(&j, J_STRING("nnc", NNC_VERSION), J_STRING("model", w->a->source->name),
        J_INT("level", w->a->options->level), J_INT("threads", p->device[0].threads),
        J_STRING("target", nnc_text_str(&targets)),
        J_STRING("precision", nnc_precision_name(p->precision)));
    if (cpu)
        NNC_JSON(&j, J_STRING("machine", w->a->machine));
    nnc_json_open(&j, "flags", '{');
    nnc_compile_options_put(w->a->options, &j);
    nnc_json_close(&j, '}');
    NNC_JSON(&j, J_BOOL("llvm", w->a->with_llvm));
    nnc_json_open_at(&j, 1, "sections", '[');
    for (int i = 0; i < w->n; i++) {
        nnc_hash_hex(w->s[i].hash, hex);
        NNC_JSON_ROW(&j, 2, J_STRING("name", w->s[i].name), J_INT("offset", w->s[i].offset),
            J_INT("size", w->s[i].size), J_STRING("hash", hex));
    }
    nnc_json_close(&j, ']');
    if (w->a->source->given)
        nnc_given_put(w->a->source->given, &j);
    nnc_json_end(&j, '}');
}

static nnc_status put_out(void *out, const void *p, size_t n)
{
    return nnc_out_put(out, p, n);
}

/* Writes the first line and the manifest, padded so that sections are aligned. */
static nnc_status write_all(void *ctx, nnc_out *out)
{
    static const char zero[ALIGN];
    writer *w = ctx;
    char line[128];
    nnc_text *m = &w->manifest;
    int n = snprintf(line, sizeof line, MAGIC "%016zx %016llx\n", m->n,
        (unsigned long long)nnc_hash64(m->s, m->n, 0));
    NNC_TRY(nnc_out_put(out, line, (size_t)n));
    NNC_TRY(nnc_out_put(out, m->s, m->n));
    int64_t at = n + (int64_t)m->n, base = nnc_align_up(at, ALIGN);
    for (int i = 0; i < w->n; i++) {
        NNC_TRY(nnc_out_put(out, zero, (size_t)(base + w->s[i].offset - at)));
        NNC_TRY(stream(w, &w->s[i], put_out, out));
        at = base + w->s[i].offset + w->s[i].size;
    }
    return NNC_OK;
}

bool nnc_artifact_reads(const nnc_artifact *a, const char *file)
{
    struct stat x, y;
    if (stat(file, &x) != 0 || !S_ISREG(x.st_mode))
        return false;
    for (int i = -1; i < a->plan->n_weight; i++) {
        const char *used = i < 0                                   ? a->file
                           : a->plan->weight[i].kind == NNC_W_file ? a->plan->weight[i].file
                                                                   : NULL;
        if (used && stat(used, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino)
            return true;
    }
    return false;
}

nnc_status nnc_artifact_save(const nnc_artifact *a, const char *file, bool embed, nnc_sink *sink)
{
    writer w = {.a = a, .sink = sink};
    if (nnc_artifact_reads(a, file))
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = file},
            "holds the model's weights: name another file for the artifact");
    nnc_status st = collect(&w, file, embed);
    if (!st) {
        manifest(&w);
        st = w.manifest.oom ? nnc_nomem(sink) : nnc_file_write_by(file, write_all, &w, true, sink);
    }
    for (int i = 0; i < TEXTS; i++)
        nnc_text_deinit(&w.text[i]);
    nnc_text_deinit(&w.manifest);
    nnc_arena_deinit(&w.arena);
    nnc_weight_files_deinit(&w.files);
    nnc_free(w.s);
    return st;
}

/* ---- reading ----------------------------------------------------------------------------------------- */

bool nnc_is_artifact(const char *file)
{
    char head[sizeof ANY_MAGIC] = "";
    size_t n = nnc_file_start(file, head, sizeof ANY_MAGIC - 1);
    return n == sizeof ANY_MAGIC - 1 && !memcmp(head, ANY_MAGIC, n);
}

typedef struct reader {
    nnc_artifact *a;
    const char *file;
    const uint8_t *base; /* start of section offsets */
    int64_t room; /* bytes available from there */
    const nnc_type **type; /* of the plan's weights; NULL: no plan yet */
    nnc_blob model;
    uint64_t hash; /* of the file, for weights that others read from it */
    nnc_json manifest;
    nnc_sink *sink;
} reader;

static nnc_status reject(const reader *r, const char *what)
{
    return nnc_fail(
        r->sink, NNC_E_MODEL, (nnc_loc){.file = r->file}, "%s; compile the model again", what);
}

static nnc_status open_manifest(reader *r)
{
    enum { LINE = sizeof MAGIC - 1 + 16 + 1 + 16 + 1 };
    const nnc_map *m = &r->a->map;
    char line[LINE + 1] = "", *end;
    if (m->n < LINE)
        return reject(r, "is cut short");
    if (memcmp(m->data, MAGIC, sizeof MAGIC - 1) != 0)
        return reject(r, "is an nnc artifact of another format than this nnc reads");
    memcpy(line, m->data, LINE);
    unsigned long long size = strtoull(line + sizeof MAGIC - 1, &end, 16),
                       hash = strtoull(end, &end, 16);
    if (*end != '\n' || size > m->n - LINE)
        return reject(r, "is damaged or cut short: its first line does not match its size");
    if (nnc_hash64(m->data + LINE, size, 0) != hash)
        return reject(r, "is damaged: the manifest's checksum is wrong");
    int64_t base = nnc_align_up(LINE + (int64_t)size, ALIGN);
    r->hash = nnc_weight_file_hash(m->data, m->n);
    r->base = m->data + base;
    r->room = (int64_t)m->n - base;
    return nnc_json_parse(&r->manifest, r->file, (const char *)m->data + LINE, size, r->sink);
}

static const char *manifest_string(const reader *r, const char *key)
{
    const char *s = nnc_json_text(r->manifest.root, key);
    return s ? s : "";
}

/* Checks one entry of the section list and returns its bytes in *out. */
static nnc_status open_section(const reader *r, const nnc_item *e, const char **name, nnc_blob *out)
{
    const nnc_item *o = nnc_json_get(e, "offset"), *n = nnc_json_get(e, "size");
    const char *hash = nnc_json_text(e, "hash");
    char hex[33];
    *name = nnc_json_text(e, "name");
    if (!*name || !hash || !nnc_is_number(o) || !nnc_is_number(n) || !(o->number >= 0) ||
        !(n->number >= 0))
        return reject(r, "is damaged: a section of the manifest is malformed");
    if (o->number > (double)r->room || n->number > (double)r->room - o->number)
        return reject(r, "is cut short: a section lies beyond its end");
    int64_t at = (int64_t)o->number, size = (int64_t)n->number;
    nnc_hash_hex(hash_bytes(r->base + at, (size_t)size), hex);
    if (strcmp(hex, hash))
        return reject(r, "is damaged: a section's checksum is wrong");
    *out = (nnc_blob){r->base + at, (size_t)size};
    return NNC_OK;
}

static nnc_status read_graph(const reader *r, nnc_blob b, nnc_graph **g)
{
    nnc_scan s;
    nnc_scan_init(&s, r->file, b.data, b.n);
    *g = nnc_graph_parse(&s, r->sink);
    return *g ? NNC_OK : nnc_sink_cause(r->sink, NNC_E_MODEL);
}

/* Paths of weights are relative to the artifact's folder. */
static nnc_status read_plan(reader *r, nnc_blob b)
{
    nnc_scan s;
    nnc_artifact *a = r->a;
    int dir = (int)(strrchr(a->file, '/') - a->file) + 1;
    nnc_scan_init(&s, r->file, b.data, b.n);
    a->plan = nnc_plan_parse(&s, r->sink);
    if (!a->plan)
        return nnc_sink_cause(r->sink, NNC_E_MODEL);
    r->type = weight_types(&a->arena, a->plan);
    a->listed = ARENA_NEW(&a->arena, nnc_weight, a->plan->n_weight + 1);
    NNC_NEED(r->type && a->listed, r->sink);
    for (int i = 0; i < a->plan->n_weight; i++)
        a->listed[i] = a->plan->weight[i];
    for (int i = 0; i < a->plan->n_weight; i++) {
        nnc_weight *w = &a->plan->weight[i];
        if (w->kind != NNC_W_file || !w->file || w->file[0] == '/')
            continue;
        w->file = nnc_arena_printf(&a->arena, "%.*s%s", dir, a->file, w->file);
        NNC_NEED(w->file, r->sink);
    }
    return NNC_OK;
}

static const char *text_of(nnc_remarks *out, const nnc_item *e, const char *key)
{
    const char *s = nnc_json_text(e, key);
    return nnc_arena_strdup(&out->arena, s ? s : "");
}

static int64_t int_of(const nnc_item *e, const char *key)
{
    const nnc_item *v = nnc_json_get(e, key);
    return nnc_is_number(v) && fabs(v->number) <= 0x1p53 ? (int64_t)v->number : 0;
}

static bool flag_of(const nnc_item *e, const char *key)
{
    const nnc_item *v = nnc_json_get(e, key);
    return nnc_is_bool(v) && v->number != 0;
}

static bool add_remark(nnc_remarks *out, const nnc_item *e)
{
    nnc_remark r = {.pass = text_of(out, e, "pass"),
        .rule = text_of(out, e, "rule"),
        .reason = text_of(out, e, "reason"),
        .bytes_saved = int_of(e, "bytes_saved"),
        .launches_saved = int_of(e, "launches_saved"),
        .bytes_kept = int_of(e, "bytes_kept")};
    const char *verdict = text_of(out, e, "verdict");
    const nnc_item *layers = nnc_json_get(e, "layers");
    r.layer = ARENA_NEW(&out->arena, const char *, (layers ? layers->n : 0) + 1);
    if (!r.pass || !r.rule || !r.reason || !verdict || !r.layer)
        return false;
    r.applied = !strcmp(verdict, "applied");
    for (const nnc_item *l = nnc_json_first(layers); l; l = l->next) {
        r.layer[r.n_layers] = nnc_arena_strdup(&out->arena, l->text ? l->text : "");
        if (!r.layer[r.n_layers++])
            return false;
    }
    return nnc_remarks_add(out, &r);
}

static nnc_status read_remarks(const reader *r, nnc_blob b)
{
    NNC_LOCAL(nnc_json) j = {0};
    NNC_TRY(nnc_json_parse(&j, r->file, b.data, b.n, r->sink));
    for (const nnc_item *e = j.root->child; e; e = e->next)
        NNC_NEED(add_remark(&r->a->remarks, e), r->sink);
    return NNC_OK;
}

/* An embedded weight becomes a byte range of the artifact itself. It is read from the mapping, whose checksums were verified: the file
 * of that name may be another one by then. */
static nnc_status use_weight(const reader *r, int i, nnc_blob b)
{
    nnc_plan *p = r->a->plan;
    const nnc_type *t = p && r->type && i >= 0 && i < p->n_weight ? r->type[i] : NULL;
    if (!t || (int64_t)b.n != nnc_type_bytes(t))
        return reject(r, "is damaged: an embedded weight does not match the plan");
    nnc_weight *w = &p->weight[i];
    w->kind = NNC_W_file;
    w->n_part = 0; /* the file has just the part */
    w->file = r->a->file;
    w->data = b.data;
    w->offset = (int64_t)((const uint8_t *)b.data - r->a->map.data);
    w->size = (int64_t)b.n;
    w->header_hash = r->hash;
    return NNC_OK;
}

static nnc_status use_object(const reader *r, int i, nnc_blob b)
{
    nnc_plan *p = r->a->plan;
    if (!p || i < 0 || i >= p->n_object)
        return reject(r, "is damaged: machine code that the plan does not have");
    p->object[i] = b; /* points into the mapping, which the artifact keeps */
    return NNC_OK;
}

/* -1: not the decimal digits of an int. */
static int index_of(const char *digits)
{
    char *end;
    long v = strtol(digits, &end, 10);
    return *digits < '0' || *digits > '9' || *end || v > INT_MAX ? -1 : (int)v;
}

static nnc_status use_section(reader *r, const char *name, nnc_blob b)
{
    if (!strcmp(name, "source"))
        return r->a->source ? reject(r, "is damaged: a section is listed twice")
                            : read_graph(r, b, &r->a->source);
    if (!strcmp(name, "graph"))
        return r->a->graph ? reject(r, "is damaged: a section is listed twice")
                           : read_graph(r, b, &r->a->graph);
    if (!strcmp(name, "plan"))
        return r->a->plan ? reject(r, "is damaged: a section is listed twice") : read_plan(r, b);
    if (!strcmp(name, "remarks"))
        return read_remarks(r, b);
    if (!strcmp(name, "model"))
        r->model = b;
    if (!strncmp(name, "object/", 7))
        return use_object(r, index_of(name + 7), b);
    if (!strncmp(name, "weight/", 7))
        return use_weight(r, index_of(name + 7), b);
    return NNC_OK;
}

static nnc_status check_parts(const reader *r)
{
    if (!r->a->source || !r->a->graph || !r->a->plan)
        return reject(r, "is damaged: a graph or the plan is missing");
    return nnc_plan_verify(r->a->plan, r->sink);
}

/* How it was compiled, and from what. */
static nnc_status read_how(const reader *r)
{
    nnc_artifact *a = r->a;
    const nnc_item *root = r->manifest.root, *given = nnc_json_get(root, "given");
    const nnc_item *flags = nnc_json_get(root, "flags");
    for (const nnc_item *f = nnc_json_first(flags); f; f = f->next)
        if (!f->key || !f->text || nnc_compile_options_set(a->options, f->key, f->text, NULL))
            return reject(r, "is damaged: the manifest has a flag that does not exist");
    a->with_llvm = flag_of(root, "llvm");
    a->machine = nnc_arena_strdup(&a->arena, manifest_string(r, "machine"));
    a->named = nnc_arena_strdup(&a->arena, r->file);
    NNC_NEED(a->machine && a->named, r->sink);
    nnc_status st = given ? nnc_given_read(given, r->model, &a->source->given) : NNC_OK;
    return st == NNC_E_NOMEM ? nnc_nomem(r->sink)
           : st              ? reject(r, "is damaged: what it says of its model is malformed")
                             : NNC_OK;
}

static nnc_status load(reader *r, nnc_env *e)
{
    NNC_TRY(open_manifest(r));
    const char *version = manifest_string(r, "nnc");
    if (strcmp(version, NNC_VERSION))
        return nnc_fail(r->sink, NNC_E_MODEL, (nnc_loc){.file = r->file},
            "was made by nnc %s, this is nnc " NNC_VERSION "; compile the model again",
            *version ? version : "of unknown version");
    const nnc_item *list = nnc_json_get(r->manifest.root, "sections");
    for (const nnc_item *s = nnc_json_first(list); s; s = s->next) {
        const char *name;
        nnc_blob b = {NULL, 0};
        NNC_TRY(open_section(r, s, &name, &b));
        NNC_TRY(use_section(r, name, b));
    }
    NNC_TRY(check_parts(r));
    NNC_TRY(read_how(r));
    NNC_TRY(nnc_chunks_count(r->a, r->sink));
    r->a->unchecked = !e;
    return e ? nnc_check_machine(e, r->a, r->sink) : NNC_OK;
}

nnc_status nnc_artifact_load(nnc_env *e, const char *file, nnc_artifact **out, nnc_sink *sink)
{
    *out = NULL;
    nnc_artifact *a = nnc_artifact_create(&nnc_compile_defaults);
    NNC_NEED(a, sink);
    int64_t t0 = nnc_now_ns();
    reader r = {.a = a, .file = file, .sink = sink};
    char *full = realpath(file, NULL);
    a->file = full ? nnc_arena_strdup(&a->arena, full) : NULL;
    free(full);
    nnc_status st = nnc_map_open(&a->map, file, sink);
    if (!st)
        st = a->file ? load(&r, e) : nnc_nomem(sink);
    nnc_json_deinit(&r.manifest);
    a->stats.total_ns = nnc_now_ns() - t0;
    if (st)
        nnc_artifact_destroy(a);
    else
        *out = a;
    return st;
}

/* ---- weights beside the artifact ----------------------------------------------------------------------------- */

static bool is_beside(const nnc_weight *w)
{
    return w->kind == NNC_W_file && !w->data;
}

nnc_status nnc_artifact_check_weights(const nnc_artifact *a, nnc_sink *sink)
{
    uint64_t last;
    NNC_LOCAL(nnc_arena) arena = {0};
    NNC_LOCAL(nnc_weight_files) files = {NULL};
    const nnc_type **type = weight_types(&arena, a->plan);
    NNC_NEED(type, sink);
    for (int i = 0; i < a->plan->n_weight; i++) {
        const nnc_type *t = type[i];
        const nnc_weight *w = &a->plan->weight[i];
        if (!t || !is_beside(w) || nnc_type_numel(t) == 0)
            continue;
        nnc_status st = nnc_weight_read(w, t, nnc_type_numel(t) - 1, 1, &last, &files, sink);
        if (st == NNC_E_IO)
            nnc_note(sink, (nnc_loc){0},
                "weights of %s are read from there (artifacts name the file relative to their "
                "folder); --weights=FILE reads them from another place",
                a->source->name);
        NNC_TRY(st);
    }
    return NNC_OK;
}

nnc_status nnc_artifact_use_weights(nnc_artifact *a, const char *file, nnc_sink *sink)
{
    const char *copy = nnc_arena_strdup(&a->arena, file);
    int n = 0;
    NNC_NEED(copy, sink);
    for (int i = 0; i < a->plan->n_weight; i++)
        if (is_beside(&a->plan->weight[i])) {
            a->plan->weight[i].file = copy;
            n++;
        }
    if (!n)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--weights has no effect: the weights of this artifact are embedded or generated");
    return nnc_artifact_check_weights(a, sink);
}
