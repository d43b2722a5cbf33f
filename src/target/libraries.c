/* target/libraries.c -- NVIDIA's libraries on a described GPU's machine: which versions plans and predictions assume.
 *
 * Sources: NVIDIA's release notes. CUDA 13 begins at sm_75, and so do its cuBLASLt (13.x) and cuDNN from 9.11 on (also for CUDA 12);
 * CUDA 12's cuBLASLt (12.x) and cuDNN 9 up to 9.10 begin at sm_50. NCCL's versions are the same for all of them. */
#include "target/internal.h"
#include <string.h>

typedef struct library {
    const char *name, *title;
    size_t at; /* of its version in nnc_target */
    const char *modern, *older; /* versions from sm_75 on, before */
    int major, minor; /* the first version that begins at sm_75; 0: none */
    int old_major; /* the first version that begins at sm_50 */
} library;

static const library libraries[] = {
    {"cudnn", "cuDNN", offsetof(nnc_target, cudnn), "9.19", "9.10", 9, 11, 9},
    {"cublaslt", "cuBLASLt", offsetof(nnc_target, cublaslt), "13.1", "12.9", 13, 0, 12},
    {"nccl", "NCCL", offsetof(nnc_target, nccl), "2.28", "2.27", 0, 0, 0},
};

static const char **version_of(nnc_target *t, const library *l)
{
    return (const char **)((char *)t + l->at);
}

static const char *version_in(const nnc_target *t, const library *l)
{
    const char *v = *(const char *const *)((const char *)t + l->at);
    return v ? v : "";
}

static const library *library_named(const char *name)
{
    for (size_t i = 0; i < NNC_COUNT(libraries); i++)
        if (!strcmp(libraries[i].name, name))
            return &libraries[i];
    return NULL;
}

const char *nnc_target_library_default(const nnc_target *t, const char *name)
{
    const library *l = library_named(name);
    return !l || t->kind != NNC_T_cuda ? "" : t->sm >= 75 ? l->modern : l->older;
}

void target_default_libraries(nnc_target *t)
{
    for (size_t i = 0; i < NNC_COUNT(libraries); i++)
        *version_of(t, &libraries[i]) = nnc_target_library_default(t, libraries[i].name);
}

/* "9.19" or "9.19.0": two or three numbers. */
static bool read_version(const char *text, int *major, int *minor)
{
    int n = 0, third;
    char more;
    const int k = sscanf(text, "%4d.%4d%n.%6d%c", major, minor, &n, &third, &more);
    return strspn(text, "0123456789.") == strlen(text) && *text >= '0' && *text <= '9' &&
           (k == 3 || (k == 2 && !text[n]));
}

int nnc_target_library_first_sm(const char *name, int major, int minor)
{
    const library *l = library_named(name);
    if (!l || !l->major)
        return 0;
    return major > l->major || (major == l->major && minor >= l->minor) ? 75
           : major >= l->old_major                                      ? 50
                                                                        : 35;
}

static nnc_status read_library(
    const nnc_field_reader *r, const library *l, const nnc_item *v, nnc_target *t)
{
    int major = 0, minor = 0;
    if (v->kind == NNC_JSON_null) {
        *version_of(t, l) = "";
        return NNC_OK;
    }
    if (!nnc_is_string(v) || !read_version(v->text, &major, &minor))
        return nnc_fields_bad(r, v, l->name, "a version (\"9.10\"), or null where it is absent");
    const int first = nnc_target_library_first_sm(l->name, major, minor);
    if (t->sm < first) {
        char expected[96];
        snprintf(expected, sizeof expected,
            "a version that supports sm_%d; %s %s supports sm_%d and later", t->sm, l->title,
            v->text, first);
        return nnc_fields_bad(r, v, l->name, expected);
    }
    *version_of(t, l) = nnc_arena_strdup(r->arena, v->text);
    return *version_of(t, l) ? NNC_OK : nnc_nomem(r->sink);
}

/* Without a library its engine is taken away. */
static void drop_engine(nnc_target *t, const char *name)
{
    int n = 0;
    for (int i = 0; i < t->n_engines; i++)
        if (strcmp(t->engine[i].name, name) != 0)
            t->engine[n++] = t->engine[i];
    t->n_engines = n;
}

nnc_status target_read_libraries(const nnc_field_reader *r, const nnc_item *machine, nnc_target *t)
{
    const nnc_item *object = nnc_json_get(machine, "libraries");
    if (object && t->kind != NNC_T_cuda)
        return nnc_fields_bad(r, object, "libraries", "\"kind\": \"cuda\" where it is given");
    if (object && !nnc_is_object(object))
        return nnc_fields_bad(r, object, "libraries", "an object: {\"cudnn\": \"9.10\"}");
    if (object)
        NNC_TRY(nnc_fields_read(r, object, NULL, 0, "cudnn cublaslt nccl", NULL));
    for (size_t i = 0; i < NNC_COUNT(libraries); i++) {
        const nnc_item *v = object ? nnc_json_get(object, libraries[i].name) : NULL;
        if (v)
            NNC_TRY(read_library(r, &libraries[i], v, t));
        if (!*version_in(t, &libraries[i]))
            drop_engine(t, libraries[i].name);
    }
    return NNC_OK;
}

void nnc_target_libraries_json(nnc_text *out, const nnc_target *t)
{
    nnc_puts(out, "{");
    for (size_t i = 0; i < NNC_COUNT(libraries); i++) {
        const char *v = version_in(t, &libraries[i]);
        nnc_printf(out, "%s\"%s\": ", i ? ", " : "", libraries[i].name);
        if (*v)
            nnc_put_json_string(out, v);
        else
            nnc_puts(out, "null");
    }
    nnc_puts(out, "}");
}

void nnc_target_put_libraries(nnc_text *out, const nnc_target *t)
{
    for (size_t i = 0; i < NNC_COUNT(libraries); i++) {
        const char *v = version_in(t, &libraries[i]);
        nnc_printf(out, "%s%s%s%s%s", i ? ", " : "", *v ? "" : "no ", libraries[i].title,
            *v ? " " : "", v);
    }
}
