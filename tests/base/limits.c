/* tests/base/limits.c -- limits of control groups, read from folders of files as systemd, Slurm, Docker and Kubernetes make them;
 * messages of allocations that fail. */
#include "test.h"
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_MOUNT(of) \
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" \
    "35 31 0:32 " of " /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
#define CPU_MOUNT "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define V2_MOUNT(of, at) "30 23 0:27 " of " " at " rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

enum { FILES = 7 };
static const struct limits_case {
    const char *what, *group, *mounts;
    struct {
        const char *path, *text; /* below /sys/fs/cgroup */
    } file[FILES];
    int64_t memory; /* 0: none */
    int cpus;
} cases[] = {
    {"nothing", NULL, NULL, {{0}}, 0, 0},
    {"no mount", "0::/\n", "", {{"memory.max", "5000"}}, 0, 0},
    {"v2, the root's group", "0::/\n", V2_MOUNT("/", "/sys/fs/cgroup"), {{0}}, 0, 0},
    {"v2, a systemd unit", "0::/system.slice/job.service\n", V2_MOUNT("/", "/sys/fs/cgroup"),
        {{"system.slice/job.service/memory.max", "2000000000\n"},
            {"system.slice/memory.max", "max\n"},
            {"system.slice/job.service/cpu.max", "150000 100000\n"}},
        2000000000, 2},
    {"v2, the slice above has less", "0::/a/b/c\n", V2_MOUNT("/", "/sys/fs/cgroup"),
        {{"a/b/c/memory.max", "3000\n"}, {"a/b/memory.max", "max\n"}, {"a/memory.max", "1000\n"},
            {"a/b/c/cpu.max", "max 100000\n"}, {"a/b/cpu.max", "800000 100000\n"},
            {"a/cpu.max", "300000 100000\n"}},
        1000, 3},
    {"v2, memory.high", "0::/a\n", V2_MOUNT("/", "/sys/fs/cgroup"),
        {{"a/memory.max", "3000\n"}, {"a/memory.high", "2000\n"}}, 2000, 0},
    {"v2, no limit", "0::/a\n", V2_MOUNT("/", "/sys/fs/cgroup"),
        {{"a/memory.max", "max\n"}, {"a/memory.high", "max\n"}, {"a/cpu.max", "max 100000\n"}}, 0,
        0},
    {"v2, a group's name like another's first part", "0::/ab\n", V2_MOUNT("/", "/sys/fs/cgroup"),
        {{"a/memory.max", "1000\n"}, {"ab/memory.max", "2000\n"}}, 2000, 0},
    {"v2, a container with its own name space", "0::/\n", V2_MOUNT("/", "/sys/fs/cgroup"),
        {{"memory.max", "4000\n"}, {"cpu.max", "50000 100000\n"}}, 4000, 1},
    {"v2, a container that sees its part", "0::/docker/f00/job\n",
        V2_MOUNT("/docker/f00", "/sys/fs/cgroup"),
        {{"memory.max", "4000\n"}, {"job/memory.max", "5000\n"}}, 4000, 0},
    {"v2, outside the mounted part", "0::/../other\n", V2_MOUNT("/", "/sys/fs/cgroup"),
        {{"memory.max", "4000\n"}}, 4000, 0},
    {"v2, mounted elsewhere", "0::/a\n", V2_MOUNT("/", "/sys/fs/cgroup/unified"),
        {{"unified/a/memory.max", "700\n"}, {"memory.max", "5\n"}}, 700, 0},
    {"v1", "9:name=systemd:/x\n4:memory:/slurm/uid_1/job_2\n2:cpu,cpuacct:/slurm\n",
        MEMORY_MOUNT("/") CPU_MOUNT,
        {{"memory/slurm/uid_1/job_2/memory.limit_in_bytes", "6000\n"},
            {"memory/slurm/uid_1/memory.limit_in_bytes", "9223372036854771712\n"},
            {"memory/slurm/memory.limit_in_bytes", "8000\n"},
            {"cpu,cpuacct/slurm/cpu.cfs_quota_us", "50000\n"},
            {"cpu,cpuacct/slurm/cpu.cfs_period_us", "20000\n"}},
        6000, 3},
    {"v1, a container that sees its part", "4:memory:/docker/f00\n", MEMORY_MOUNT("/docker/f00"),
        {{"memory/memory.limit_in_bytes", "6000\n"}}, 6000, 0},
    {"v1, no quota", "2:cpu,cpuacct:/a\n", CPU_MOUNT,
        {{"cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n"},
            {"cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}},
        0, 0},
    {"both versions", "4:memory:/a\n0::/b\n",
        MEMORY_MOUNT("/") V2_MOUNT("/", "/sys/fs/cgroup/unified"),
        {{"memory/a/memory.limit_in_bytes", "6000\n"}, {"unified/b/memory.max", "5000\n"}}, 5000,
        0},
};

static void put_file(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *s = strchr(full + strlen(root) + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        (void)mkdir(full, 0777);
        *s = '/';
    }
    CHECK_OK(nnc_file_write(full, text, strlen(text), false, test_sink));
}

TEST(limits_of_control_groups)
{
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        const struct limits_case *c = &cases[i];
        char root[] = "/tmp/nnc-groups-XXXXXX", path[256], command[64];
        CHECK(mkdtemp(root));
        if (c->group)
            put_file(root, "/proc/self/cgroup", c->group);
        if (c->mounts)
            put_file(root, "/proc/self/mountinfo", c->mounts);
        for (int k = 0; k < FILES && c->file[k].path; k++) {
            snprintf(path, sizeof path, "/sys/fs/cgroup/%s", c->file[k].path);
            put_file(root, path, c->file[k].text);
        }
        const nnc_groups g = nnc_groups_read(root);
        if (g.memory != (c->memory ? c->memory : INT64_MAX) || g.cpus != c->cpus)
            test_fail(__FILE__, __LINE__, "%s: %lld bytes and %d CPUs, not %lld and %d", c->what,
                (long long)g.memory, g.cpus, (long long)c->memory, c->cpus);
        snprintf(command, sizeof command, "rm -r %s", root);
        CHECK_INT(system(command), 0);
    }
}

TEST(limits_of_this_process)
{
    const nnc_memory all = nnc_memory_limit(), left = nnc_memory_free();
    CHECK(all.bytes > 1 << 20 && left.bytes > 1 << 20);
    CHECK(nnc_has_room(1 << 20));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static bool has(const char *text, const char *part)
{
    if (!strstr(text, part))
        printf("\"%s\" lacks \"%s\"\n", text, part);
    return strstr(text, part);
}

/* Within a limit, which the memory of the machine then is, in a child: allocations beyond it say what they wanted and what there is. */
static bool is_limited(int resource, const char *by)
{
    const struct rlimit most = {1 << 30, 1 << 30};
    nnc_sink *s = nnc_sink_create();
    if (!s || setrlimit((__rlimit_resource_t)resource, &most) != 0)
        return false;
    const nnc_memory all = nnc_memory_limit(), left = nnc_memory_free();
    bool ok = all.bytes == 1 << 30 && all.by && !strcmp(all.by, by) && left.bytes < 1 << 30;
    ok = ok && nnc_has_room(100 << 20) && !nnc_has_room((size_t)1 << 30);
    void *p = nnc_malloc((size_t)2 << 30);
    ok = ok && !p && nnc_nomem_for(s, "input %s", "x") == NNC_E_NOMEM && nnc_sink_count(s) == 1;
    const char *said = nnc_sink_at(s, 0)->message;
    ok = ok && has(said, "out of host memory: 2147483648 bytes are wanted for input x, ") &&
         has(said, " are available (ulimit -") && has(said, by);
    nnc_sink_destroy(s);
    const struct rlimit least = {1 << 20, 1 << 20};
    ok = ok && (s = nnc_sink_create()) && !nnc_need_library_room(s) &&
         !setrlimit((__rlimit_resource_t)resource, &least) &&
         nnc_need_library_room(s) == NNC_E_NOMEM &&
         has(nnc_sink_at(s, 0)->message,
             "out of host memory: 16777216 bytes are wanted for calls of libraries, ");
    return ok;
}

TEST(limits_by_ulimit)
{
    const struct {
        int resource;
        const char *by;
    } of[] = {{RLIMIT_AS, "ulimit -v"}, {RLIMIT_DATA, "ulimit -d"}};
    for (size_t i = 0; i < NNC_COUNT(of); i++) {
        int rc;
        fflush(stdout);
        const pid_t child = fork();
        if (!child) {
            const bool ok = is_limited(of[i].resource, of[i].by);
            fflush(stdout);
            _exit(ok ? 0 : 1);
        }
        CHECK(waitpid(child, &rc, 0) == child && WIFEXITED(rc) && WEXITSTATUS(rc) == 0);
    }
}
#endif

TEST(limits_in_messages)
{
    nnc_sink *s = nnc_sink_create();
    nnc_fail_alloc_after(1);
    CHECK(!nnc_malloc(12345));
    CHECK_INT(nnc_nomem(s), NNC_E_NOMEM);
    CHECK_STR(nnc_sink_at(s, 0)->message, "out of host memory: 12345 bytes are wanted");
    CHECK_INT(nnc_nomem_for(s, "another"), NNC_E_NOMEM); /* the first failure is the cause */
    CHECK_STR(nnc_sink_at(s, 0)->message, "out of host memory: 12345 bytes are wanted");
    nnc_sink_destroy(s);
}
