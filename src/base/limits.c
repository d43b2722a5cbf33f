/* base/limits.c -- see limits.h. */
#include "base/base.h"
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Reads the first bytes of a small system file, without a heap; "" when it cannot be read. */
static const char *slurp(const char *path, char *text, size_t room)
{
    const int f = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = f < 0 ? 0 : read(f, text, room - 1);
    if (f >= 0)
        close(f);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* ---- control groups -------------------------------------------------------------------------- */

/* A hierarchy: the folders from the process's group up to where it is mounted. Version 2 has one for all controllers. */
typedef struct hierarchy {
    const char *root, *controller;
    bool v2;
    char group[PATH_MAX]; /* of the process, as /proc/self/cgroup names it */
    char at[PATH_MAX]; /* of that group */
    size_t top; /* length of the folder where it is mounted */
} hierarchy;

/* "cpu,cpuacct" has the word "cpu". */
static bool lists(const char *s, size_t n, const char *word)
{
    const size_t w = strlen(word);
    for (const char *end = s + n; s < end; s += strcspn(s, ",") + 1)
        if ((size_t)(end - s) >= w && !strncmp(s, word, w) && (s + w == end || s[w] == ','))
            return true;
    return false;
}

/* Lines of /proc/self/cgroup: "4:memory:/user/job", of version 2 "0::/user/job". False: the process is in no such hierarchy. */
static bool find_group(hierarchy *h)
{
    char path[PATH_MAX], line[PATH_MAX + 256];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", h->root);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *list = strchr(line, ':'), *group = list ? strchr(++list, ':') : NULL;
        if (!group)
            continue;
        const size_t n = (size_t)(group - list);
        found = h->v2 ? !n && line[0] == '0' : lists(list, n, h->controller);
        if (found)
            snprintf(h->group, sizeof h->group, "%.*s", (int)strcspn(group + 1, "\n"), group + 1);
    }
    if (f)
        fclose(f);
    return found;
}

/* The part of the group's name below the mounted folder `of`. A container sees a part of the hierarchy, and may name its group by the
 * path outside. "": the group is the mounted folder, or outside it. */
static const char *below(const char *group, const char *of)
{
    const size_t n = strcmp(of, "/") ? strlen(of) : 0;
    if (strncmp(group, of, n) != 0 || (group[n] && group[n] != '/') || !strncmp(group, "/..", 3))
        return "";
    return strcmp(group + n, "/") ? group + n : "";
}

/* Lines of /proc/self/mountinfo: "35 31 0:32 ROOT FOLDER options - TYPE source options" (proc_pid_mountinfo(5)). */
static bool find_folder(hierarchy *h)
{
    char path[PATH_MAX], line[2 * PATH_MAX + 512], of[PATH_MAX], folder[PATH_MAX], type[32],
        options[512];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", h->root);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", of, folder) != 2 ||
            sscanf(rest, " - %31s %*s %511s", type, options) != 2)
            continue;
        found = h->v2 ? !strcmp(type, "cgroup2")
                      : !strcmp(type, "cgroup") && lists(options, strlen(options), h->controller);
    }
    if (f)
        fclose(f);
    if (!found)
        return false;
    const int top = snprintf(h->at, sizeof h->at, "%s%s", h->root, folder);
    const size_t n = top > 0 ? (size_t)top : sizeof h->at;
    if (n >= sizeof h->at || n + strlen(below(h->group, of)) >= sizeof h->at)
        return false;
    h->top = n;
    strcpy(h->at + n, below(h->group, of));
    return true;
}

static bool open_hierarchy(hierarchy *h, const char *root, const char *controller, bool v2)
{
    h->root = root;
    h->controller = controller;
    h->v2 = v2;
    return find_group(h) && find_folder(h);
}

/* Goes on to the group above. False: it is not mounted. */
static bool go_up(hierarchy *h)
{
    if (strlen(h->at) <= h->top)
        return false;
    *strrchr(h->at, '/') = 0;
    return true;
}

static const char *file_of(const hierarchy *h, const char *name, char *text, size_t room)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", h->at, name);
    return slurp(path, text, room);
}

/* The number of such a file; INT64_MAX: "max", or there is none. */
static int64_t bytes_of(const hierarchy *h, const char *name)
{
    char text[64];
    const long long v = strtoll(file_of(h, name, text, sizeof text), NULL, 10);
    return v > 0 ? v : INT64_MAX;
}

/* CPUs of a quota and its period in microseconds, rounded up; 0: no limit. */
static int cpus_of(const hierarchy *h)
{
    char text[64], period[64], *end;
    const long long quota =
        strtoll(file_of(h, h->v2 ? "cpu.max" : "cpu.cfs_quota_us", text, sizeof text), &end, 10);
    const long long of =
        strtoll(h->v2 ? end : file_of(h, "cpu.cfs_period_us", period, sizeof period), NULL, 10);
    return quota > 0 && of > 0 ? (int)nnc_min64(nnc_ceildiv(quota, of), INT_MAX) : 0;
}

nnc_groups nnc_groups_read(const char *root)
{
    static const char *const files[2][2] = {
        {"memory.limit_in_bytes", "memory.limit_in_bytes"}, {"memory.max", "memory.high"}};
    nnc_groups g = {INT64_MAX, 0};
    hierarchy h;
    for (int v2 = 0; v2 < 2; v2++) {
        for (bool on = open_hierarchy(&h, root, "memory", v2); on; on = go_up(&h))
            for (int i = 0; i < 2; i++)
                g.memory = nnc_min64(g.memory, bytes_of(&h, files[v2][i]));
        for (bool on = open_hierarchy(&h, root, "cpu", v2); on; on = go_up(&h)) {
            const int cpus = cpus_of(&h);
            g.cpus = cpus && (!g.cpus || cpus < g.cpus) ? cpus : g.cpus;
        }
    }
    return g;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A line of /proc/meminfo in bytes; -1: there is none. */
static int64_t meminfo(const char *name)
{
    char text[4096];
    const char *line = strstr(slurp("/proc/meminfo", text, sizeof text), name);
    return line ? strtoll(line + strlen(name), NULL, 10) * 1024 : -1;
}

static int64_t physical(void)
{
    const int64_t total = meminfo("MemTotal:");
    return total > 0 ? total : (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

/* Bytes of this process that each limit counts. */
typedef struct usage {
    int64_t resident, space, data;
} usage;

/* proc_pid_statm(5): pages of address space, resident, shared, code, 0, data and stack. */
static usage used(void)
{
    char text[128];
    const int64_t page = sysconf(_SC_PAGESIZE);
    long long n[6] = {0};
    (void)!sscanf(slurp("/proc/self/statm", text, sizeof text), "%lld %lld %lld %lld %lld %lld",
        &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]);
    return (usage){n[1] * page, n[0] * page, n[5] * page};
}

static void limit(nnc_memory *m, int64_t bytes, const char *by)
{
    if (bytes < m->bytes)
        *m = (nnc_memory){nnc_max64(bytes, 0), by};
}

/* Limits of the process: `less`: what of them is used already. */
static void limit_process(nnc_memory *m, const usage *less)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur < INT64_MAX)
        limit(m, (int64_t)most.rlim_cur - less->space, "ulimit -v");
    if (getrlimit(RLIMIT_DATA, &most) == 0 && most.rlim_cur < INT64_MAX)
        limit(m, (int64_t)most.rlim_cur - less->data, "ulimit -d");
}

nnc_memory nnc_memory_limit(void)
{
    nnc_memory m = {physical(), NULL};
    limit(&m, nnc_groups_read("").memory, "its control group");
    limit_process(&m, &(usage){0});
    return m;
}

nnc_memory nnc_memory_free(void)
{
    const int64_t available = meminfo("MemAvailable:"), swap = meminfo("SwapFree:");
    const usage u = used();
    nnc_memory m = {available >= 0 ? available + nnc_max64(swap, 0) : physical(), NULL};
    limit(&m, nnc_groups_read("").memory - u.resident, "its control group");
    limit_process(&m, &u);
    return m;
}

nnc_memory nnc_memory_of_ulimit(void)
{
    nnc_memory m = {INT64_MAX, NULL};
    const usage u = used();
    limit_process(&m, &u);
    return m;
}

bool nnc_has_room(size_t bytes)
{
    return (uint64_t)nnc_memory_of_ulimit().bytes >= bytes;
}
