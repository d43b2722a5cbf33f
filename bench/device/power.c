/* bench/device/power.c -- energy, power and clocks of GPU 0 through NVML. */
#include "cuda/cuda.h"
#include "device.h"
#include <math.h>

power power_open(void)
{
    power p = {NULL, NULL};
    char pci[32] = "";
    const nnc_cuda_nvml *l = NNC_CUDA(nvml, NULL);
    const nnc_cuda_cudart *rt = NNC_CUDA(cudart, NULL);
    if (!l || !rt || rt->cudaDeviceGetPCIBusId(pci, sizeof pci, 0) || l->nvmlInit_v2())
        return p;
    if (l->nvmlDeviceGetHandleByPciBusId_v2(pci, &p.device))
        l->nvmlShutdown();
    else
        p.nvml = l;
    return p;
}

void power_close(power *p)
{
    if (p->nvml)
        p->nvml->nvmlShutdown();
    *p = (power){NULL, NULL};
}

double power_joules(const power *p)
{
    unsigned long long mj = 0;
    if (!p->nvml || !p->nvml->nvmlDeviceGetTotalEnergyConsumption ||
        p->nvml->nvmlDeviceGetTotalEnergyConsumption(p->device, &mj))
        return NAN;
    return (double)mj * 1e-3;
}

double power_watts(const power *p)
{
    unsigned mw = 0;
    return !p->nvml || p->nvml->nvmlDeviceGetPowerUsage(p->device, &mw) ? NAN : (double)mw * 1e-3;
}

double power_mhz(const power *p, int clock)
{
    unsigned mhz = 0;
    return !p->nvml || p->nvml->nvmlDeviceGetClockInfo(p->device, clock, &mhz) ? NAN : (double)mhz;
}
