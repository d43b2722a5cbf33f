/* base/plugin.c -- plug-ins: libraries of nnc that are loaded when they are first needed, with the libraries that they stand for. */
#include "base/base.h"
#include "base/lock.h"
#include "layout.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { MAX_PLUGINS = 16 };
static struct plugin {
    char name[32];
    void *handle;
    char why[768];
} plugins[MAX_PLUGINS];
static int n_plugins;
static pthread_mutex_t plugin_lock = PTHREAD_MUTEX_INITIALIZER;
static char own_folder
    [PATH_MAX]; /* of the program or shared library that contains this code; "" when unknown */

/* Debian's packages of the libraries, by plug-in. */
static const struct {
    const char *name, *package;
} packages[] = {{"llvm", "llvm-19-dev"}, {"mpi", "libopenmpi-dev openmpi-bin"},
    {"jpeg", "libjpeg-dev"}, {"png", "libpng-dev"}};

/* Runs when the program starts: names may be relative to the working directory of that moment. For a program, dladdr returns argv[0],
 * which may lack a path. Without /proc, the kernel's name of the executed file is the next best. */
__attribute__((constructor)) static void find_own_folder(void)
{
    Dl_info info;
    char path[PATH_MAX] = "";
    const char *executed = (const char *)getauxval(AT_EXECFN);
    if (dladdr((void *)&plugin_lock, &info) && strstr(info.dli_fname, ".so"))
        (void)!realpath(info.dli_fname, path);
    if (!*path && readlink("/proc/self/exe", path, sizeof path - 1) < 0 &&
        (!executed || !realpath(executed, path)))
        path[0] = 0;
    const char *slash = strrchr(path, '/');
    snprintf(own_folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 0, path);
}

/* Path of the plug-in's file; false when it does not exist. Search order: NNC_PLUGIN_DIR; the folder of the program or library (a
 * build folder); nnc/ beside the library (lib/); ../lib/nnc relative to the program (bin/). Last comes this build's default
 * installation folder, for programs linked with the static library. */
static bool find_plugin(const char *name, char path[PATH_MAX])
{
    const char *env = getenv("NNC_PLUGIN_DIR"), *own = own_folder;
    const char *const dirs[] = {env ? env : "", own, own, own, NNC_INSTALLED_PLUGINS};
    const char *const sub[] = {"", "", "/nnc", "/../lib/nnc", ""};
    for (size_t i = 0; i < NNC_COUNT(dirs); i++) {
        if (!*dirs[i])
            continue;
        int n = snprintf(path, PATH_MAX, "%s%s/libnnc_%.32s.so", dirs[i], sub[i], name);
        if (n < PATH_MAX && nnc_file_exists(path))
            return true;
    }
    return false;
}

bool nnc_plugin_exists(const char *name)
{
    char path[PATH_MAX];
    return find_plugin(name, path);
}

/* Was the plug-in built with this nnc? */
static bool is_built(const char *name)
{
    const size_t n = strlen(name);
    for (const char *s = NNC_BUILT_PLUGINS; *s; s += strcspn(s, " "), s += *s == ' ')
        if (strcspn(s, " ") == n && !strncmp(s, name, n))
            return true;
    return false;
}

static const char *package_of(const char *name)
{
    for (size_t i = 0; i < NNC_COUNT(packages); i++)
        if (!strcmp(packages[i].name, name))
            return packages[i].package;
    return NULL;
}

/* There is no file of the plug-in. */
static void explain_absent(struct plugin *p)
{
    const char *package = package_of(p->name);
    if (is_built(p->name))
        snprintf(p->why, sizeof p->why,
            "libnnc_%s.so is not in %.500s, nor where it is installed: %s", p->name,
            *own_folder ? own_folder : "nnc's folder",
            strcmp(p->name, "mpi") ? "build or install nnc again"
                                   : "install nnc-mpi, or build nnc");
    else
        snprintf(p->why, sizeof p->why,
            "nnc was built without libnnc_%s.so (%s%s%sbuild nnc again)", p->name,
            package ? "Debian: apt-get install " : "", package ? package : "",
            package ? ", then " : "");
}

/* The system refuses the file: its libraries may be missing. */
static void explain_failure(struct plugin *p, const char *failed)
{
    const char *package = package_of(p->name);
    snprintf(p->why, sizeof p->why, "%.600s%s%s%s", failed ? failed : "",
        package ? " (Debian: apt-get install " : "", package ? package : "", package ? ")" : "");
}

/* False for a file that lacks its last part: the dynamic linker would touch pages beyond its end. Other damage it reports itself. */
static bool is_whole(const char *path)
{
    nnc_map m;
    if (nnc_map_open(&m, path, NULL))
        return true;
    ElfW(Ehdr) head;
    bool whole = true;
    if (m.n >= sizeof head && !memcmp(m.data, ELFMAG, SELFMAG)) {
        memcpy(&head, m.data, sizeof head);
        whole = head.e_phoff <= m.n && (m.n - head.e_phoff) / sizeof(ElfW(Phdr)) >= head.e_phnum;
        for (int i = 0; whole && i < head.e_phnum; i++) {
            ElfW(Phdr) part;
            memcpy(
                &part, (const char *)m.data + head.e_phoff + (size_t)i * sizeof part, sizeof part);
            whole = part.p_offset <= m.n && part.p_filesz <= m.n - part.p_offset;
        }
    }
    nnc_map_close(&m);
    return whole;
}

/* Plug-ins load large libraries: LLVM takes 50 to 130 MiB of address space, most of it mapped from its file. */
#define PLUGIN_ROOM ((size_t)64 << 20)

static void *load_plugin(struct plugin *p)
{
    char path[PATH_MAX];
    if (!find_plugin(p->name, path)) {
        explain_absent(p);
        return NULL;
    }
    if (!nnc_has_room(PLUGIN_ROOM)) {
        snprintf(
            p->why, sizeof p->why, "out of host memory: too little is left to load %.600s", path);
        return NULL;
    }
    if (!is_whole(path)) {
        snprintf(p->why, sizeof p->why, "%.600s is cut off: build or install nnc again", path);
        return NULL;
    }
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        explain_failure(p, dlerror());
    const char *layout = h ? dlsym(h, "nnc_plugin_layout") : NULL;
    if (h && (!layout || strcmp(layout, NNC_LAYOUT) != 0)) { /* its structs may be others */
        snprintf(p->why, sizeof p->why, "%.600s is of another build of nnc: install both together",
            path);
        dlclose(h);
        h = NULL;
    }
    return h;
}

/* The plug-in, loaded; NULL: too many have been asked for. The caller holds the lock. */
static struct plugin *open_plugin(const char *name)
{
    for (int i = 0; i < n_plugins; i++)
        if (!strcmp(plugins[i].name, name))
            return &plugins[i];
    if (n_plugins == MAX_PLUGINS || strlen(name) >= sizeof plugins->name)
        return NULL;
    struct plugin *p = &plugins[n_plugins++];
    strcpy(p->name, name);
    p->handle = load_plugin(p);
    return p;
}

void *nnc_plugin(const char *name, const char *symbol, const char **why)
{
    nnc_lock(&plugin_lock);
    struct plugin *p = open_plugin(name);
    void *found = p && p->handle ? dlsym(p->handle, symbol) : NULL;
    if (p && p->handle && !found)
        snprintf(p->why, sizeof p->why, "libnnc_%s.so lacks the symbol %s", name, symbol);
    if (!found && why)
        *why = p ? p->why : "too many plug-ins";
    nnc_unlock(&plugin_lock);
    return found;
}

/* ---- whether a plug-in loads ------------------------------------------------------------------ */

/* A plug-in that loaded once does so again while its file and its libraries are the same. So a program whose kernels are all cached
 * need not load the plug-in to know that it could. */

static bool record_key(const char *name, char path[PATH_MAX], nnc_hash128 *key)
{
    NNC_LOCAL(nnc_text) t = {0};
    const char *search = getenv("LD_LIBRARY_PATH");
    if (!find_plugin(name, path))
        return false;
    nnc_printf(&t, "%s %llx %s %s", path, (unsigned long long)nnc_file_version(path), NNC_LAYOUT,
        search ? search : "");
    *key = nnc_hash(nnc_text_str(&t), t.n);
    return !t.oom;
}

/* A record is a line for each library of the process then: version, path. */
static bool is_as_recorded(const char *record)
{
    for (const char *s = record; *s; s += strcspn(s, "\n"), s += *s == '\n') {
        char *end, path[PATH_MAX];
        const uint64_t version = strtoull(s, &end, 16);
        snprintf(path, sizeof path, "%.*s", (int)strcspn(end, "\n") - 1, end + 1);
        if (*end != ' ' || nnc_file_version(path) != version)
            return false;
    }
    return true;
}

static void record_libraries(const char *name, nnc_cache *cache, nnc_hash128 key)
{
    NNC_LOCAL(nnc_text) t = {0};
    struct link_map *m = NULL;
    nnc_lock(&plugin_lock);
    const struct plugin *p = open_plugin(name);
    if (p && p->handle && dlinfo(p->handle, RTLD_DI_LINKMAP, &m) != 0)
        m = NULL;
    while (m && m->l_prev)
        m = m->l_prev;
    for (; m; m = m->l_next)
        if (m->l_name[0] == '/')
            nnc_printf(&t, "%llx %s\n", (unsigned long long)nnc_file_version(m->l_name), m->l_name);
    nnc_unlock(&plugin_lock);
    if (!t.oom && t.n)
        nnc_cache_put(cache, "plugin", key, nnc_text_str(&t), t.n + 1);
}

bool nnc_plugin_loads(const char *name, const char *symbol, nnc_cache *cache)
{
    char path[PATH_MAX];
    nnc_hash128 key;
    NNC_FREED char *record = NULL;
    size_t n = 0;
    const bool keyed = cache && record_key(name, path, &key);
    if (keyed && nnc_cache_get(cache, "plugin", key, &record, &n) && n && !record[n - 1] &&
        is_as_recorded(record))
        return true;
    if (!nnc_plugin(name, symbol, NULL))
        return false;
    if (keyed)
        record_libraries(name, cache, key);
    return true;
}
