/* picture/axis.c -- ticks at round numbers, and units. */
#include "picture/internal.h"
#include <math.h>

double axis_step(double range, int n)
{
    static const double round[] = {1, 2, 5, 10};
    if (!(range > 0))
        return 1;
    const double rough = range / n;
    double power = 1; /* no pow(): its last bit differs between libraries */
    while (power > rough)
        power /= 10;
    while (power * 10 <= rough)
        power *= 10;
    for (size_t i = 0; i < NNC_COUNT(round); i++)
        if (round[i] * power >= rough * 0.999)
            return round[i] * power;
    return 10 * power;
}

const char *axis_time_unit(int64_t most_ps, double *ps)
{
    static const struct {
        const char *name;
        double ps;
    } unit[] = {{"ns", 1e3}, {"us", 1e6}, {"ms", 1e9}, {"s", 1e12}};
    size_t i = 0;
    while (i + 1 < NNC_COUNT(unit) && (double)most_ps >= 2 * unit[i + 1].ps)
        i++;
    *ps = unit[i].ps;
    return unit[i].name;
}

const char *axis_byte_unit(int64_t most, double *bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t i = 0;
    *bytes = 1;
    for (; i + 1 < NNC_COUNT(unit) && (double)most >= 2048 * *bytes; i++)
        *bytes *= 1024;
    return unit[i];
}

void axis_tick_text(double v, double step, char *s, size_t n)
{
    int digits = 0;
    for (double x = step; x < 0.999 && digits < 9; x *= 10)
        digits++;
    nnc_snprintf(s, n, "%.*f", digits, v);
}
