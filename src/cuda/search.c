/* cuda/search.c -- finds the files of NVIDIA's libraries: toolkits, the loader's path, Python wheels of CUDA 12
 * (nvidia/cuda_nvrtc/lib, ...) and 13 (nvidia/cu13/lib). Looks at files, opens none. */
#include "cuda/internal.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    const char *const *soname; /* NULL-terminated, best first */
    int skip;
    cuda_file *out;
} search;

/* Searches one folder. True when this is the match that was asked for. */
static bool in_folder(search *s, const char *folder, const char *soname, const char *place)
{
    int n = snprintf(s->out->path, sizeof s->out->path, "%s/%s", folder, soname);
    s->out->place = place;
    return n > 0 && n < (int)sizeof s->out->path && nnc_file_exists(s->out->path) && s->skip-- == 0;
}

static int versions_first(const struct dirent **a, const struct dirent **b)
{
    return versionsort(b, a);
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Visits the folders in `parent` whose names begin with `prefix`, newest version first, with `tail` appended. */
typedef bool each_folder(search *s, const char *folder, const char *soname, const char *place);
static bool below(search *s, const char *parent, const char *prefix, const char *tail,
    const char *soname, const char *place, each_folder *visit)
{
    struct dirent **entry;
    int n = scandir(parent, &entry, visible, versions_first);
    bool found = false;
    for (int i = 0; i < n; i++) {
        char folder[400];
        int len = snprintf(folder, sizeof folder, "%s/%s%s", parent, entry[i]->d_name, tail);
        if (!found && !strncmp(entry[i]->d_name, prefix, strlen(prefix)) &&
            len < (int)sizeof folder)
            found = visit(s, folder, soname, place);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    return found;
}

static bool in_wheels(search *s, const char *site, const char *soname, const char *place)
{
    return below(s, site, "", "/lib", soname, place, in_folder);
}

static bool in_environment(search *s, const char *root, const char *soname, const char *place)
{
    char lib[400];
    if (snprintf(lib, sizeof lib, "%s/lib", root) >= (int)sizeof lib)
        return false;
    return below(s, lib, "python3", "/site-packages/nvidia", soname, place, in_wheels);
}

/* Searches a toolkit, or a folder of libraries. */
static bool in_toolkit(search *s, const char *root, const char *soname, const char *place)
{
    static const char *const sub[] = {"", "/lib64", "/lib", "/extras/CUPTI/lib64"};
    for (size_t i = 0; i < NNC_COUNT(sub); i++) {
        char folder[400];
        if (snprintf(folder, sizeof folder, "%s%s", root, sub[i]) < (int)sizeof folder &&
            in_folder(s, folder, soname, place))
            return true;
    }
    return false;
}

/* Searches every folder of a colon-separated list. */
static bool in_list(search *s, const char *list, const char *soname)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ":");
        char root[400];
        if (n && n < sizeof root) {
            memcpy(root, p, n);
            root[n] = 0;
            if (in_toolkit(s, root, soname, "NNC_CUDA_PATH") ||
                in_environment(s, root, soname, "NNC_CUDA_PATH"))
                return true;
        }
        p += n + (p[n] == ':');
    }
    return false;
}

static bool in_toolkits(search *s, const char *soname)
{
    static const char *const variable[] = {"CUDA_HOME", "CUDA_PATH"};
    for (size_t i = 0; i < NNC_COUNT(variable); i++) {
        const char *root = getenv(variable[i]);
        if (root && *root && in_toolkit(s, root, soname, "toolkit"))
            return true;
    }
    return in_toolkit(s, "/usr/local/cuda", soname, "toolkit") ||
           below(s, "/usr/local", "cuda-", "", soname, "toolkit", in_toolkit);
}

/* A name without a folder, which only the loader can resolve. */
static bool on_path(search *s, const char *soname)
{
    snprintf(s->out->path, sizeof s->out->path, "%s", soname);
    s->out->place = "loader's path";
    return s->skip-- == 0;
}

bool cuda_search(const char *const *soname, bool of_driver, int skip, cuda_file *out)
{
    const char *only = getenv("NNC_CUDA_PATH"), *venv = getenv("VIRTUAL_ENV");
    search s = {.soname = soname, .skip = skip, .out = out};
    const char *const *name;
    for (name = soname; only && *only && *name; name++)
        if (in_list(&s, only, *name))
            return true;
    bool elsewhere = !(only && *only);
    for (name = soname; elsewhere && !of_driver && *name; name++)
        if (in_toolkits(&s, *name))
            return true;
    for (name = soname; (elsewhere || of_driver) && *name; name++)
        if (on_path(&s, *name))
            return true;
    for (name = soname; elsewhere && !of_driver && venv && *venv && *name; name++)
        if (in_environment(&s, venv, *name, "Python wheels"))
            return true;
    return false;
}
