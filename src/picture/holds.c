/* picture/holds.c -- memory over time: a panel for each device, stacked by kind. */
#include "picture/internal.h"
#include <string.h>

enum {
    MOST_PANELS = 16,
    COLUMNS =
        1200, /* of a panel at most: of what falls into one, the level with most bytes is drawn */
    WIDTH = 860,
    HEIGHT = 170,
    MARGIN = 16,
    LEFT = 74,
    GAP = 46,
    TEXT = 11
};

typedef struct panel {
    const nnc_timeline *t;
    nnc_text *out;
    int device;
    int64_t most; /* bytes of the axis */
    double top;
    int n;
    const nnc_level **at; /* by column that has one; each lasts until the next */
} panel;

static int64_t sum_of(const nnc_level *l)
{
    int64_t n = 0;
    for (int k = 0; k < HOLD__COUNT; k++)
        n += l->bytes[k];
    return n;
}

static double x_of(const panel *p, int64_t ps)
{
    return MARGIN + LEFT + WIDTH * (double)ps / (double)nnc_max64(p->t->total_ps, 1);
}

static double y_of(const panel *p, double bytes)
{
    return p->top + HEIGHT * (1 - bytes / (double)nnc_max64(p->most, 1));
}

static int column_of(const panel *p, const nnc_level *l)
{
    return (int)((double)l->ps / (double)nnc_max64(p->t->total_ps, 1) * COLUMNS);
}

/* The levels to draw: of a column the last one, and before it the largest. */
static void find_levels(panel *p)
{
    const nnc_level *last = NULL, *most = NULL;
    p->n = 0;
    for (int i = 0; i < p->t->n_level; i++) {
        const nnc_level *l = &p->t->level[i];
        if (l->device != p->device)
            continue;
        if (last && column_of(p, l) != column_of(p, last)) {
            if (most != last)
                p->at[p->n++] = most;
            p->at[p->n++] = last;
            most = NULL;
        }
        last = l;
        most = !most || sum_of(l) >= sum_of(most) ? l : most;
    }
    if (last && most != last)
        p->at[p->n++] = most;
    if (last)
        p->at[p->n++] = last;
}

static double below(const nnc_level *l, int kind)
{
    double n = 0;
    for (int k = 0; k < kind; k++)
        n += (double)l->bytes[k];
    return n;
}

static double end_of(const panel *p, int i)
{
    return x_of(p, i + 1 < p->n ? p->at[i + 1]->ps : p->t->total_ps);
}

/* One kind: along its upper edge, and back along the lower one. */
static void draw_kind(const panel *p, int kind)
{
    bool any = false;
    for (int i = 0; i < p->n; i++)
        any = any || p->at[i]->bytes[kind];
    if (!any)
        return;
    svg_path_begin(p->out);
    for (int i = 0; i < p->n; i++) {
        const double y = y_of(p, below(p->at[i], kind + 1));
        svg_path_to(p->out, x_of(p, p->at[i]->ps), y, !i);
        svg_path_to(p->out, end_of(p, i), y, false);
    }
    for (int i = p->n; i-- > 0;) {
        const double y = y_of(p, below(p->at[i], kind));
        svg_path_to(p->out, end_of(p, i), y, false);
        svg_path_to(p->out, x_of(p, p->at[i]->ps), y, false);
    }
    svg_path_end(p->out, nnc_hold_colours[kind], NULL, 0, NULL);
}

static void draw_grid(const panel *p)
{
    double unit;
    const char *name = axis_byte_unit(p->most, &unit);
    const double range = (double)p->most / unit, step = axis_step(range, 4);
    char text[64];
    for (int i = 0; i * step <= range; i++) {
        const double y = y_of(p, i * step * unit);
        svg_line(p->out, MARGIN + LEFT, y, MARGIN + LEFT + WIDTH, y, GRID, 1, NULL);
        axis_tick_text(i * step, step, text, sizeof text);
        if (i) {
            const size_t n = strlen(text);
            nnc_snprintf(text + n, sizeof text - n, " %s", name);
        }
        svg_text(p->out, MARGIN + LEFT - 6, y + 4,
            (svg_font){.size = TEXT, .anchor = SVG_end, .fill = PALE}, text);
    }
}

static void draw_level(const panel *p, int64_t bytes, const char *colour, const char *dashes)
{
    if (bytes <= 0 || bytes > p->most)
        return;
    const double y = y_of(p, (double)bytes);
    svg_line(p->out, MARGIN + LEFT, y, MARGIN + LEFT + WIDTH, y, colour, 1.4, dashes);
}

/* "device 0: 1.3 GiB of 80 GiB; at most 1.2 GiB live, at /layers/3/conv" above the panel, and a mark at the peak. */
static void draw_peak(const panel *p)
{
    NNC_LOCAL(nnc_text) text = {.into = p->out};
    const nnc_level *peak = NULL;
    const int64_t capacity = p->t->capacity[p->device], asked = p->t->requested[p->device];
    for (int i = 0; i < p->n; i++)
        if (!peak || sum_of(p->at[i]) > sum_of(peak))
            peak = p->at[i];
    nnc_printf(&text, "%s", p->t->device[p->device]);
    if (peak) {
        nnc_puts(&text, asked > 0 ? ": " : ": at most ");
        nnc_put_bytes(&text, asked > 0 ? asked : sum_of(peak));
        if (capacity > 0) {
            nnc_puts(&text, " of ");
            nnc_put_bytes(&text, capacity);
        }
        if (asked > 0) {
            nnc_puts(&text, "; at most ");
            nnc_put_bytes(&text, sum_of(peak));
            nnc_puts(&text, " live");
        }
        if (peak->name && *peak->name)
            nnc_printf(&text, ", at %.80s", peak->name);
        svg_circle(p->out, x_of(p, peak->ps), y_of(p, (double)sum_of(peak)), 3, INK, NULL, NULL);
    }
    svg_text(p->out, MARGIN + LEFT, p->top - 7, (svg_font){.size = 12}, nnc_text_str(&text));
}

static void draw_time(const panel *p, const char *axis)
{
    double unit;
    char text[120];
    const char *name = axis_time_unit(p->t->total_ps, &unit);
    const double range = (double)p->t->total_ps / unit, step = axis_step(range, 9);
    for (int i = 0; i * step <= range * (1 + 1e-9); i++) {
        const double x = x_of(p, (int64_t)(i * step * unit));
        svg_line(p->out, x, p->top + HEIGHT, x, p->top + HEIGHT + 4, FRAME, 1, NULL);
        axis_tick_text(i * step, step, text, sizeof text);
        svg_text(p->out, x, p->top + HEIGHT + 17,
            (svg_font){.size = TEXT, .anchor = SVG_middle, .fill = PALE}, text);
    }
    nnc_snprintf(text, sizeof text, "%s, %s", axis, name);
    svg_text(p->out, MARGIN + LEFT + WIDTH / 2.0, p->top + HEIGHT + 35,
        (svg_font){.size = 12, .anchor = SVG_middle}, text);
}

/* The same axis of bytes for all devices. The capacity is on it unless that would flatten the rest. */
static int64_t axis_bytes(const nnc_timeline *t)
{
    int64_t most = 1, capacity = 0;
    for (int i = 0; i < t->n_level; i++)
        most = nnc_max64(most, sum_of(&t->level[i]));
    for (int d = 0; d < t->n_device; d++) {
        capacity = nnc_max64(capacity, t->capacity[d]);
        most = nnc_max64(most, t->requested[d]);
    }
    return (int64_t)((double)(capacity < 2 * most ? nnc_max64(most, capacity) : most) * 1.05);
}

static void draw_legend(const nnc_timeline *t, double y, nnc_text *out)
{
    bool used[HOLD__COUNT] = {false};
    double x = MARGIN;
    for (int i = 0; i < t->n_level; i++)
        for (int k = 0; k < HOLD__COUNT; k++)
            used[k] = used[k] || t->level[i].bytes[k];
    for (int k = 0; k < HOLD__COUNT; k++)
        if (used[k])
            x = svg_legend(out, x, y, nnc_hold_colours[k], nnc_hold_names[k]);
}

void nnc_holds_put(
    const nnc_timeline *t, const char *title, const char *note, const char *axis, nnc_text *out)
{
    const int n = t->n_device < MOST_PANELS ? t->n_device : MOST_PANELS;
    panel p = {.t = t, .out = out, .most = axis_bytes(t)};
    NNC_FREED const nnc_level **at = nnc_calloc((size_t)t->n_level + 1, sizeof *at);
    NNC_LOCAL(nnc_text) all = {.into = out};
    p.at = at;
    out->oom = out->oom || t->oom || !at;
    if (out->oom)
        return;
    nnc_puts(&all, note ? note : "");
    if (n < t->n_device)
        nnc_printf(&all, "%sDrawn: %d of %d devices", all.n ? "\n" : "", n, t->n_device);
    const double head = svg_head_height(nnc_text_str(&all)) + 24,
                 height = head + n * (HEIGHT + GAP) + 30;
    const double width = 2 * MARGIN + LEFT + WIDTH + 12;
    svg_open(out, width, height, title);
    draw_legend(t, svg_head(out, title, nnc_text_str(&all), width) + 14, out);
    for (int d = 0; d < n; d++) {
        p.device = d;
        p.top = head + d * (HEIGHT + GAP) + 28;
        find_levels(&p);
        draw_grid(&p);
        for (int k = 0; k < HOLD__COUNT; k++)
            draw_kind(&p, k);
        draw_level(&p, t->capacity[d], "#c2571a", "6 4");
        draw_level(&p, t->requested[d], INK, "2 3");
        draw_peak(&p);
    }
    p.top = head + (n - 1) * (HEIGHT + GAP) + 28;
    draw_time(&p, axis);
    svg_close(out);
}
