/* target/host.c -- describes this machine from cpuid, /proc, sysfs and control groups. Nothing is timed, so the same machine always gives
 * the same target; speeds are estimates from these facts (`measured` is false). */
#include "target/internal.h"
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#define X86 1
#endif

/* Reads the first bytes of a small system file; "" when it cannot be read. */
const char *target_slurp(const char *path, char *buf, size_t cap)
{
    buf[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return buf;
    size_t n = fread(buf, 1, cap - 1, f);
    buf[n] = 0;
    fclose(f);
    return buf;
}

/* "48K", "2048K", "480M" -> bytes; 0: not a size. */
static int64_t size_of(const char *s)
{
    char *end;
    long long v = strtoll(s, &end, 10);
    if (end == s || v < 0 || v > (1LL << 40))
        return 0;
    return v * (*end == 'K' ? 1024 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1);
}

/* Number of CPUs in a list such as "0-3,8-11". */
static int list_count(const char *s)
{
    int n = 0;
    while (*s >= '0' && *s <= '9') {
        char *end;
        long a = strtol(s, &end, 10), b = a;
        if (*end == '-')
            b = strtol(end + 1, &end, 10);
        n += b >= a && b - a < 65536 ? (int)(b - a) + 1 : 1;
        s = *end == ',' ? end + 1 : end;
    }
    return n > 0 ? n : 1;
}

/* Clock rate of one core in Hz, rounded to 50 MHz: the highest that the system reports, otherwise `typical_mhz`. Where that is 0, half the
 * BogoMIPS, or a guess. (On x86 that is the rate of the time stamp counter, which unlike "cpu MHz" is constant.) */
static int64_t clock_hz(int typical_mhz)
{
    char buf[4096];
    const char *p =
        target_slurp("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", buf, sizeof buf);
    double hz = 1e3 * (double)strtoll(p, NULL, 10);
    if (hz <= 0)
        hz = 1e6 * typical_mhz;
    if (hz <= 0) {
        p = strcasestr(target_slurp("/proc/cpuinfo", buf, sizeof buf), "bogomips");
        p = p ? strchr(p, ':') : NULL;
        hz = p ? nnc_strtod(p + 1, NULL) / 2 * 1e6 : 0;
    }
    if (hz < 4e8 || hz > 1e10)
        hz = 2.5e9;
    return (int64_t)(hz / 5e7 + 0.5) * 50000000;
}

/* ---- instruction set ----------------------------------------------------------------------- */

#ifdef X86
typedef struct regs {
    unsigned a, b, c, d;
} regs;

static regs leaf(unsigned n, unsigned sub)
{
    regs r = {0};
    if (!__get_cpuid_count(n, sub, &r.a, &r.b, &r.c, &r.d))
        r = (regs){0};
    return r;
}

static bool in_vm(void)
{
    return leaf(1, 0).c >> 31 & 1;
}

/* Instructions of generated code, and peak FLOP/s: two vector units, a multiply-add is two operations. A level names no family: its
 * instructions cost the same on all CPUs, as in LLVM's tables for it. */
static void compute(nnc_target *t)
{
    t->cpu = nnc_cpu_limit();
    t->core = !*nnc_cpu_limit() && leaf(0, 0).b == signature_AMD_ebx ? "amd" : "";
    target_instructions(t);
    t->flops_f32 = clock_hz(0) * (t->vector_bits / 32 * 2 * (t->fma ? 2 : 1)) * t->cores;
}

void target_host_signature(nnc_text *t)
{
    regs one = leaf(1, 0), seven = leaf(7, 0), more = leaf(7, 1), vendor = leaf(0, 0);
    nnc_printf(t, " host=%x.%x.%x:%x:%x.%x:%x.%x.%x:%x:%llx", vendor.b, vendor.c, vendor.d, one.a,
        one.c, one.d, seven.b, seven.c, seven.d, more.a, (unsigned long long)nnc_cpu_features());
}
#else
static bool in_vm(void)
{
    return false;
}

static void compute(nnc_target *t)
{
    const nnc_core *c = target_host_core();
    target_core(t, c);
    t->flops_f32 = target_core_flops(c, clock_hz(c->mhz), t->cores);
}

/* Code for AArch64 is that of the base instruction set. */
void target_host_signature(nnc_text *t)
{
    (void)t;
}
#endif

/* ---- caches ------------------------------------------------------------------------ */

static void caches(nnc_target *t)
{
    t->l1_bytes = 32 << 10;
    t->l2_bytes = 512 << 10;
    t->l3_bytes = 0;
    for (int i = 0; i < 8; i++) {
        char path[96], level[16], type[32], size[32], shared[512];
        const char *dir = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof path, "%s%d/level", dir, i);
        if (!*target_slurp(path, level, sizeof level))
            break;
        snprintf(path, sizeof path, "%s%d/type", dir, i);
        target_slurp(path, type, sizeof type);
        snprintf(path, sizeof path, "%s%d/size", dir, i);
        int64_t bytes = size_of(target_slurp(path, size, sizeof size));
        snprintf(path, sizeof path, "%s%d/shared_cpu_list", dir, i);
        int users = list_count(target_slurp(path, shared, sizeof shared));
        if (strncmp(type, "Instruction", 11) == 0 || bytes <= 0)
            continue;
        if (level[0] == '1')
            t->l1_bytes = bytes;
        else if (level[0] == '2')
            t->l2_bytes = users > 1 ? nnc_max64(bytes / users, 1 << 17) : bytes;
        else if (level[0] == '3')
            t->l3_bytes = t->cores < users ? bytes / users * t->cores : bytes;
    }
    /* a virtual machine sees the socket's whole last-level cache, which it shares with others */
    if (in_vm())
        t->l3_bytes = nnc_min64(t->l3_bytes, (int64_t)t->cores * (32 << 20));
}

/* ---- the target ---------------------------------------------------------------------------- */

void target_cpu_numbers(nnc_target *t)
{
    t->launch_ns = 1500; /* a parallel region and its dispatch */
    target_engines(t);
}

nnc_status nnc_target_host(nnc_target *t, int cores, int threads, bool have_llvm, nnc_sink *sink)
{
    *t = (nnc_target){.kind = NNC_T_cpu, .host = true, .name = "cpu", .features = "", .card = ""};
    t->cores = cores ? cores : nnc_cpu_count();
    if (threads < 0 || threads > 1024)
        return nnc_fail0(
            sink, NNC_E_USAGE, "%d threads: expected 1 to 1024, or 0 for all cores", threads);
    t->threads = threads ? threads : t->cores;
    compute(t);
    caches(t);
    t->memory_bytes = nnc_max64(nnc_memory_limit().bytes - NNC_T_PROCESS_BYTES, 1);
    /* Typical of servers: bytes read and written by one core's copies, from memory (a socket has no more than ten times that) and within
     * its L2. */
    t->copy_bytes_s =
        (int64_t)15e9 * (t->cores < NNC_T_MEMORY_CORES ? t->cores : NNC_T_MEMORY_CORES);
    t->cache_bytes_s = (int64_t)60e9 * t->cores;
    target_cpu_numbers(t);
    nnc_target_restrict(t, have_llvm);
    return NNC_OK;
}
