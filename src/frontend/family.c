/* frontend/family.c -- when most weights do not match: the family of models that the file's names belong to, and what to do. */
#include "frontend/internal.h"
#include <string.h>

static const struct family {
    const char *library, *family, *model, *tensor;
} families[] = {
#define FAMILY(library, family, model, tensor) {library, family, model, tensor},
#include "frontend/family.def"
};

/* Is it the name, or what follows a dot in it? */
static bool ends(const char *name, const char *tensor)
{
    const size_t n = strlen(name), k = strlen(tensor);
    return n >= k && !strcmp(name + n - k, tensor) && (n == k || name[n - k - 1] == '.');
}

/* A family, and the name that tells it. */
typedef struct sign {
    const struct family *family; /* NULL: none */
    const char *name;
} sign;

/* name(f, i): the i-th of n names. */
static sign find(const char *(*name)(const fe *f, int i), const fe *f, int n)
{
    for (size_t k = 0; k < NNC_COUNT(families); k++)
        for (int i = 0; i < n; i++)
            if (ends(name(f, i), families[k].tensor))
                return (sign){&families[k], name(f, i)};
    return (sign){NULL, ""};
}

static const char *in_file(const fe *f, int i)
{
    return nnc_tensors_at(f->st, i)->name;
}

static const char *in_model(const fe *f, int i)
{
    return f->weight[i].name;
}

void fe_hint_family(fe *f)
{
    nnc_text *t = &f->mismatch.lines;
    const sign in = find(in_file, f, nnc_tensors_count(f->st)),
               out = find(in_model, f, (int)f->n_weight);
    const struct family *is = in.family, *want = out.family;
    if (!is || (size_t)(f->mismatch.missing + f->mismatch.wrong) * 4 < f->n_weight)
        return;
    const bool same = want && !strcmp(is->family, want->family);
    const int prefix = (int)(strlen(in.name) - strlen(is->tensor));
    nnc_printf(
        t, "\n  the file's names are those of %s in %s (`%s`)", is->family, is->library, in.name);
    if (is == want && prefix && !strcmp(out.name, want->tensor))
        nnc_printf(t, ", as the model's, with `%.*s` before them: --rename='%.*s*=*' takes it away",
            prefix, in.name, prefix, in.name);
    else if (same && (is == want || f->timm.used))
        nnc_puts(t, ", as the model's: its size is another; set the model's args, or take another "
                    "model file");
    else if (is->model)
        nnc_printf(t, ": models/%s.json has them", is->model);
    else
        nnc_printf(t,
            "%s%s: export that model to ONNX with its weights, or map the names with --rename",
            same ? ", the model's those in " : "", same ? want->library : "");
}
