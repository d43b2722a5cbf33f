/* bench/device/machine.c -- the part "machine": what a table of results has at its head. */
#include "session/session.h"
#include "cuda/cuda.h"
#include "device.h"
#include <math.h>
#include <string.h>

static void put_string(nnc_text *t, const char *name, const char *value)
{
    nnc_printf(t, ",\n \"%s\": ", name);
    nnc_put_json_string(t, value);
}

static void cpu_name(char *out, size_t n)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, n, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, n, "%.200s", colon + 2);
        break;
    }
    if (f)
        fclose(f);
}

static void put_libraries(nnc_text *t)
{
    nnc_puts(t, ",\n \"libraries\": {");
    for (int i = 0; i < CUDA__LIBS; i++) {
        nnc_cuda_found f;
        nnc_cuda_look((nnc_cuda_lib)i, &f);
        nnc_printf(t, "%s\n  \"%s\": ", i ? "," : "", f.name);
        nnc_put_json_string(t, f.ok ? f.version : "absent");
    }
    nnc_puts(t, "}");
}

static void put_gpu(nnc_text *t)
{
    nnc_cuda_device d;
    char driver[80] = "";
    if (!nnc_cuda_devices(&d, 1, NULL))
        return;
    power p = power_open();
    nnc_text limits = {0};
    put_string(t, "gpu", d.name);
    nnc_cuda_limits(&limits, 0);
    put_string(t, "limits", limits.n > 2 ? nnc_text_str(&limits) + 2 : "");
    nnc_text_deinit(&limits);
    nnc_printf(t,
        ", \"sm\": %d, \"sms\": %d, \"memory_bytes\": %lld, \"l2_bytes\": %lld, \"clock_hz\": "
        "%lld, \"memory_bytes_s\": %lld",
        d.sm, d.sms, (long long)d.memory_bytes, (long long)d.l2_bytes, (long long)d.clock_hz,
        (long long)d.bytes_s);
    if (p.nvml && !p.nvml->nvmlSystemGetDriverVersion(driver, sizeof driver))
        put_string(t, "driver", driver);
    for (int c = 1; c <= 2; c++) {
        unsigned max = 0;
        if (p.nvml && !p.nvml->nvmlDeviceGetMaxClockInfo(p.device, c, &max))
            nnc_printf(t, ", \"%s\": %u, \"%s\": %.0f", c == 1 ? "sm_mhz_max" : "memory_mhz_max",
                max, c == 1 ? "sm_mhz" : "memory_mhz", power_mhz(&p, c));
    }
    unsigned mw = 0;
    if (p.nvml && !p.nvml->nvmlDeviceGetEnforcedPowerLimit(p.device, &mw))
        nnc_printf(t, ", \"power_limit_watts\": %.0f", mw * 1e-3);
    power_close(&p);
}

int part_machine(job *j)
{
    nnc_text t = {0};
    nnc_env *e = NULL;
    char name[256];
    cpu_name(name, sizeof name);
    nnc_puts(&t, "{\"nnc\": ");
    nnc_put_json_string(&t, NNC_VERSION);
    put_string(&t, "cpu", name);
    nnc_printf(&t, ", \"cpus\": %d", nnc_cpu_count());
    nnc_status st = nnc_env_create(
        &(nnc_env_options){.target = j->target, .cache_dir = j->cache_dir}, &e, j->sink);
    if (!st)
        put_string(&t, "target", nnc_env_target(e));
    put_libraries(&t);
    put_gpu(&t);
    nnc_puts(&t, "}\n");
    if (st)
        nnc_sink_print(j->sink, stderr);
    else
        fputs(nnc_text_str(&t), stdout);
    nnc_env_destroy(e);
    nnc_text_deinit(&t);
    return nnc_exit_code(st);
}
