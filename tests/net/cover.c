/* tests/net/cover.c -- counts of what random files draw, so that a layer type, key, dtype or flag that the generator cannot reach is
 * known. The tables are the frontend's own, and a new row must be drawn as well. */
#include "frontend/frontend.h"
#include "frontend/internal.h"
#include "net.h"
#include "test.h"

#include <sys/mman.h>

/* What a model file may carry beside the keys of layer types; counted by the name of the member. */
static const char *const common[] = {"in", "when", "repeat", "index", "weights", "frozen", "device",
    "dtype", "name", "layers", "args", "inputs", "output", "outputs", "doc"};

static const char *const keys[] = {
#define KEY(name, ...) #name,
#include "frontend/keys.def"
};

enum { MOST_LAYERS = 256, MOST_CHOICES = 40 };

typedef struct cover {
    _Atomic int layer[MOST_LAYERS], key[NNC_COUNT(keys)], common[NNC_COUNT(common)];
    _Atomic int dtype[DT__COUNT], choice[NF__COUNT][MOST_CHOICES], expression, files;
} cover;

static cover *seen;

bool net_cover_begin(void)
{
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        seen = NULL;
    return seen && fe_layer_count() <= MOST_LAYERS;
}

static void count_name(const char *const *names, size_t n, _Atomic int *count, const char *name)
{
    for (size_t i = 0; i < n; i++)
        count[i] += !strcmp(names[i], name);
}

static void count_layer(const char *name)
{
    for (int i = fe_layer_count() - 1; i >= 0; i--)
        if (!strcmp(fe_layer_at(i).name, name)) {
            seen->layer[i]++;
            return;
        }
}

static void count_members(const cJSON *object)
{
    for (const cJSON *c = object->child; c; c = c->next) {
        nnc_dtype d;
        const char *word = cJSON_IsString(c) ? c->valuestring : NULL;
        if (c->string) {
            count_name(keys, NNC_COUNT(keys), seen->key, c->string);
            count_name(common, NNC_COUNT(common), seen->common, c->string);
            if (word && !strcmp(c->string, "op"))
                count_layer(word);
            if (word && (!strcmp(c->string, "dtype") || !strcmp(c->string, "to")) &&
                nnc_dtype_parse(word, strlen(word), &d))
                seen->dtype[d]++;
        }
        seen->expression += word && strpbrk(word, "$()+") != NULL;
        count_members(c);
    }
}

void net_cover(const char *text, const net_flags *f)
{
    cJSON *root = seen ? cJSON_Parse(text) : NULL;
    if (!root)
        return;
    seen->files++;
    count_members(root);
    for (int i = 0; i < NF__COUNT; i++)
        seen->choice[i][f->at[i]]++;
    cJSON_Delete(root);
}

/* A name with its count, in lines of moderate width; 0 fails when all are to be there. */
static void put(int *column, bool all, const char *name, int count)
{
    char word[64];
    int n = snprintf(word, sizeof word, "%s %d", name, count);
    if (*column + n > 130 || *column == 0)
        *column = printf("%s    ", *column ? "\n" : "") - 1;
    *column += printf("%s, ", word);
    if (all && count == 0)
        test_fail(__FILE__, __LINE__, "%s was never drawn", name);
}

static int heading(const char *text)
{
    return printf("\n  %s: ", text) * 0;
}

void net_cover_end(bool all)
{
    if (!seen)
        return;
    int column = heading("layer types");
    for (int i = 0; i < fe_layer_count(); i++)
        put(&column, all, fe_layer_at(i).name, seen->layer[i]);
    column = heading("keys");
    for (size_t i = 0; i < NNC_COUNT(keys); i++)
        put(&column, all, keys[i], seen->key[i]);
    for (size_t i = 0; i < NNC_COUNT(common); i++)
        put(&column, all, common[i], seen->common[i]);
    put(&column, all, "expressions", seen->expression);
    column = heading("dtypes");
    for (int i = 0; i < DT__COUNT; i++)
        put(&column, all, nnc_dtype_name((nnc_dtype)i), seen->dtype[i]);
    column = heading("flags");
    for (int f = 0; f < NF__COUNT; f++)
        for (int i = 0; i < net_choices(f); i++)
            put(&column, all, *net_choice(f, i) ? net_choice(f, i) : "(default)",
                seen->choice[f][i]);
    printf("\n  of %d files\n", (int)seen->files);
    munmap(seen, sizeof *seen);
    seen = NULL;
}
