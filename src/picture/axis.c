/* picture/axis.c -- linear and logarithmic axes with ticks at round numbers, and units. */
#include "picture/internal.h"
#include <math.h>

enum { TICK = 11 /* size of text */ };

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

axis_scale axis_of(double lo, double hi)
{
    if (!(lo > 0) || hi < 8 * lo)
        return (axis_scale){false, 0, hi > 0 ? hi * 1.08 : 1};
    const double room = 0.06 * log10(hi / lo);
    return (axis_scale){true, log10(lo) - room, log10(hi) + room};
}

double axis_along(const axis_scale *a, double v)
{
    const double at = a->log ? log10(v) : v;
    return a->hi > a->lo ? (at - a->lo) / (a->hi - a->lo) : 0.5;
}

/* The k-th tick: in steps, or 1, 2, 5, 10, ... of a logarithmic axis. false: beyond it. */
static bool tick(const axis_scale *a, double step, int k, double *v)
{
    static const double of_ten[] = {1, 2, 5};
    *v = k * step;
    if (a->log) {
        *v = of_ten[k % 3];
        for (int i = 0; i < k / 3; i++)
            *v *= 10;
        *v *= step; /* a power of ten below all */
    }
    return a->log ? log10(*v) <= a->hi : *v <= a->hi;
}

static void draw_tick(
    const axis_scale *a, svg_box in, bool of_x, double v, const char *text, nnc_text *out)
{
    const double along = axis_along(a, v), x = in.x + in.w * along, y = in.y + in.h * (1 - along);
    if (of_x) {
        svg_line(out, x, in.y, x, in.y + in.h, GRID, 1, NULL);
        svg_text(out, x, in.y + in.h + 16,
            (svg_font){.size = TICK, .anchor = SVG_middle, .fill = PALE}, text);
    } else {
        svg_line(out, in.x, y, in.x + in.w, y, GRID, 1, NULL);
        svg_text(
            out, in.x - 6, y + 4, (svg_font){.size = TICK, .anchor = SVG_end, .fill = PALE}, text);
    }
}

void axis_draw(const axis_scale *a, svg_box in, bool of_x, double unit, nnc_text *out)
{
    const double step = a->log ? 1e-6 : axis_step(a->hi / unit, 8);
    const axis_scale in_units = a->log
                                    ? (axis_scale){true, a->lo - log10(unit), a->hi - log10(unit)}
                                    : (axis_scale){false, 0, a->hi / unit};
    /* a long logarithmic axis has room for 1, 10, ... only, or for every second of them */
    char last[40];
    nnc_snprintf(last, sizeof last, "%g", a->log ? pow(10, floor(in_units.hi)) : 0);
    const double decade = (of_x ? in.w : in.h) / (a->hi - a->lo),
                 room = of_x ? svg_text_width(last, TICK) + 6 : TICK + 1;
    const int every = !a->log || 0.3 * decade > room ? 1 : decade > room ? 3 : 6;
    double v;
    for (int k = 0; tick(&in_units, step, k, &v); k++) {
        char text[40];
        if ((a->log && log10(v) < in_units.lo) || k % every)
            continue;
        nnc_snprintf(text, sizeof text, "%g", v);
        draw_tick(a, in, of_x, v * unit, text, out);
    }
}
