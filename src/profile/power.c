/* profile/power.c -- power while a model runs: of CPUs by the counters of RAPL that Linux shows as powercap, of GPUs by NVML.
 *
 * RAPL (Intel SDM 3B, 15.10; AMD has the same counters): each package counts the energy of its cores and its uncore, and servers count
 * their DRAM besides. A counter begins again at 0 after max_energy_range_uj, within minutes at the earliest. The counters are of the whole
 * machine, whatever runs on it, so its idle power is measured first. */
#include "cuda/cuda.h"
#include "profile/profile.h"
#include "session/session.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    IDLE_MS = 200,
    LEAST_MS = 100
}; /* counters change each millisecond (RAPL) to 100 ms (NVML) */

/* ---- RAPL ---------------------------------------------------------------------------------------------------- */

/* Reads a number, or a word, of the file `name` in a folder of powercap. errno: why it is not there. */
static bool read_file(const char *folder, const char *name, char *text, size_t room)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    const bool got = fgets(text, (int)room, f) != NULL;
    const int error = errno;
    fclose(f);
    errno = error;
    if (got)
        text[strcspn(text, "\n")] = 0;
    return got;
}

static bool read_number(const char *folder, const char *name, int64_t *v)
{
    char text[32], *end = text;
    *v = read_file(folder, name, text, sizeof text) ? strtoll(text, &end, 10) : -1;
    return end != text && *v >= 0;
}

/* Adds the zone if it is a package or DRAM. Parts of packages (core, uncore) are counted by these, and so is psys, the whole platform. */
static void add_zone(nnc_meter *m, const char *root, const char *zone)
{
    char name[32];
    nnc_meter_counter c = {0};
    int64_t now;
    snprintf(c.folder, sizeof c.folder, "%.200s/%.40s", root, zone);
    if (m->n == NNC_METER_COUNTERS || !read_file(c.folder, "name", name, sizeof name) ||
        (strncmp(name, "package", 7) != 0 && strcmp(name, "dram") != 0))
        return;
    if (!read_number(c.folder, "max_energy_range_uj", &c.range_uj) ||
        !read_number(c.folder, "energy_uj", &now)) {
        snprintf(m->why, sizeof m->why, "%s/energy_uj cannot be read: %s%s", c.folder,
            strerror(errno),
            errno == EACCES ? " (allow it: chmod a+r on its energy_uj, as root)" : "");
        return;
    }
    m->dram |= *name == 'd';
    m->packages += *name == 'p';
    m->counter[m->n++] = c;
}

static void find_rapl(nnc_meter *m, const char *root)
{
    DIR *d = opendir(root);
    bool any = false;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "intel-rapl:", 11) != 0)
            continue;
        any = true;
        add_zone(m, root, e->d_name);
    }
    if (d)
        closedir(d);
    if (!any)
        snprintf(m->why, sizeof m->why,
            "%.120s has no intel-rapl: the CPU's counters are hidden, as in most virtual machines",
            root);
    if (*m->why)
        m->n = 0; /* one package of two is no power of the machine */
}

/* ---- NVML ---------------------------------------------------------------------------------------------------- */

static bool add_gpu(nnc_meter *m, int ordinal)
{
    const nnc_cuda_nvml *l = NNC_CUDA(nvml, NULL);
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    unsigned long long mj;
    char pci[24];
    nnc_meter_counter c = {0};
    if (!l || !rt || m->n == NNC_METER_COUNTERS || (!m->gpus && l->nvmlInit_v2())) {
        snprintf(m->why, sizeof m->why, "NVML is missing (nnc doctor)");
        return false;
    }
    m->gpus++;
    if (rt->cudaDeviceGetPCIBusId(pci, sizeof pci, ordinal) ||
        l->nvmlDeviceGetHandleByPciBusId_v2(pci, &c.gpu) ||
        !l->nvmlDeviceGetTotalEnergyConsumption ||
        l->nvmlDeviceGetTotalEnergyConsumption(c.gpu, &mj)) {
        snprintf(m->why, sizeof m->why, "GPU %d has no counter of energy (they begin with sm_70)",
            ordinal);
        return false;
    }
    m->counter[m->n++] = c;
    return true;
}

/* ---- meters -------------------------------------------------------------------------------------------------- */

void nnc_meter_open(nnc_meter *m, const nnc_plan *p, const char *powercap)
{
    const char *root = powercap ? powercap : getenv("NNC_POWERCAP");
    bool cpu = false;
    *m = (nnc_meter){0};
    if (!p)
        snprintf(m->why, sizeof m->why, "each of several ranks would have to measure its own");
    for (int d = 0; p && d < p->n_device && !*m->why; d++) {
        const char *colon = strchr(p->device[d].name, ':');
        if (!nnc_plan_on_gpu(&p->device[d]))
            cpu = true;
        else if (!add_gpu(m, colon ? (int)strtol(colon + 1, NULL, 10) : d))
            m->n = 0;
    }
    if (cpu && !*m->why)
        find_rapl(m, root && *root ? root : "/sys/class/powercap");
}

void nnc_meter_close(nnc_meter *m)
{
    if (m->gpus)
        NNC_CUDA(nvml, NULL)->nvmlShutdown();
    *m = (nnc_meter){0};
}

/* The counter's energy in uJ; -1: it cannot be read any more. */
static int64_t read_counter(const nnc_meter_counter *c)
{
    int64_t uj;
    unsigned long long mj;
    if (!c->gpu)
        return read_number(c->folder, "energy_uj", &uj) ? uj : -1;
    return NNC_CUDA(nvml, NULL)->nvmlDeviceGetTotalEnergyConsumption(c->gpu, &mj)
               ? -1
               : (int64_t)mj * 1000;
}

void nnc_meter_begin(nnc_meter *m)
{
    m->begun_ns = nnc_now_ns();
    for (int i = 0; i < m->n; i++)
        m->counter[i].begun_uj = read_counter(&m->counter[i]);
}

double nnc_meter_joules(const nnc_meter *m)
{
    double uj = m->n ? 0 : NAN;
    for (int i = 0; i < m->n; i++) {
        const nnc_meter_counter *c = &m->counter[i];
        const int64_t now = read_counter(c);
        if (now < 0 || c->begun_uj < 0)
            return NAN;
        uj += (double)(now - c->begun_uj) + (now < c->begun_uj ? (double)c->range_uj : 0);
    }
    return uj * 1e-6;
}

/* Mean watts since nnc_meter_begin. */
static double watts_of(const nnc_meter *m)
{
    const int64_t ns = nnc_now_ns() - m->begun_ns;
    return nnc_meter_joules(m) * 1e9 / (double)nnc_max64(ns, 1);
}

void nnc_power_begin(nnc_power *w, const nnc_plan *p, const char *powercap, bool idle)
{
    *w = (nnc_power){.watts = NAN, .idle_watts = NAN};
    nnc_meter_open(&w->meter, p, powercap);
    if (!w->meter.n)
        return;
    nnc_meter_begin(&w->meter);
    if (!idle)
        return;
    nanosleep(&(struct timespec){.tv_nsec = IDLE_MS * 1000000}, NULL);
    w->idle_watts = watts_of(&w->meter);
    nnc_meter_begin(&w->meter);
}

void nnc_power_end(nnc_power *w)
{
    const bool brief = nnc_now_ns() - w->meter.begun_ns < LEAST_MS * INT64_C(1000000);
    w->watts = brief ? NAN : watts_of(&w->meter);
    snprintf(w->why, sizeof w->why, "%s",
        !w->meter.n       ? w->meter.why
        : brief           ? "the runs are too short for its counters: --duration"
        : isnan(w->watts) ? "a counter cannot be read any more"
                          : "");
    if (isnan(w->watts)) {
        nnc_meter_close(&w->meter);
        return;
    }
    if (w->meter.gpus)
        snprintf(w->of, sizeof w->of, "%d GPU%s by NVML%s", w->meter.gpus,
            nnc_plural(w->meter.gpus, "s"), w->meter.packages ? ", CPU by RAPL" : "");
    else
        snprintf(w->of, sizeof w->of, "%d CPU package%s%s by RAPL", w->meter.packages,
            nnc_plural(w->meter.packages, "s"), w->meter.dram ? " and DRAM" : "");
    nnc_meter_close(&w->meter);
}

void nnc_power_put(const nnc_power *w, double run_ms, nnc_text *out)
{
    if (isnan(w->watts)) {
        nnc_printf(out, "Power was not measured: %s", w->why);
        return;
    }
    nnc_printf(out, "Power: %.1f W (%s, other programs included), %.4g J a run", w->watts, w->of,
        w->watts * run_ms * 1e-3);
    if (!isnan(w->idle_watts) && w->watts > 0)
        nnc_printf(out, "; %.1f W when idle, %.0f %% of it", w->idle_watts,
            100 * w->idle_watts / w->watts);
}

void nnc_power_json(const nnc_power *w, double run_ms, nnc_json_writer *out)
{
    NNC_JSON_OBJECT(out, "power", J_REAL("watts", nnc_decimals(w->watts, 3)),
        J_REAL("idle_watts", nnc_decimals(w->idle_watts, 3)),
        J_REAL("joules", nnc_decimals(w->watts * run_ms * 1e-3, 9)), J_STRING("of", w->of),
        J_STRING("why_not", w->why));
}
