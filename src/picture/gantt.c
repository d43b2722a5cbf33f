/* picture/gantt.c -- a timeline as a Gantt chart.
 *
 *     title, note, legend
 *     device 0   [0][1][2][3]      [0]   [1]       idle 25 %
 *                 --  --                           a thin row: copies
 *     device 1      [0]   [0] ...
 *                +---------+---------+  time
 *
 * A run that only computes forward, without microbatches, would be one box for each device. There each command has a box, in the colour of
 * its op. */
#include "picture/internal.h"
#include <math.h>
#include <string.h>

enum {
    MOST_DEVICES = 64, /* that are drawn */
    MOST_BOXES = 20000, /* beyond them the chart ends in time */
    LANE = 22,
    THIN = 9,
    GAP = 9, /* between devices */
    MARGIN = 16,
    LEAST = 760, /* width of the time's part */
    WIDE = 1500,
    MOST = 2400,
    TEXT = 11,
    OPS = 8 /* colours; the last one is of communication and all further ops */
};

static const char *const op_colours[OPS] = {
    "#9ecae9", "#f6c48f", "#9fd3b0", "#f6cbd0", "#cdb7dd", "#f7ec9a", "#c9c1a8", "#cccccc"};

typedef struct chart {
    const nnc_timeline *t;
    nnc_text *out;
    int32_t *order; /* spans by lane and start */
    int n_device; /* that are drawn */
    int64_t end_ps; /* of what is drawn */
    double left, width, top, bottom;
    double *lane_y;
    /* Families of ops, in the order of their first spans; op[0] NULL: boxes are coloured by kind. */
    const char *op[OPS];
} chart;

static double x_of(const chart *c, int64_t ps)
{
    return c->left + c->width * (double)ps / (double)nnc_max64(c->end_ps, 1);
}

static bool is_drawn(const chart *c, const nnc_slice *s)
{
    return c->t->lane[s->lane].device < c->n_device && s->start_ps < c->end_ps;
}

/* The chart ends where it has as many boxes as fit a file that a viewer opens. */
static void limit(chart *c)
{
    int n = 0;
    c->n_device = c->t->n_device < MOST_DEVICES ? c->t->n_device : MOST_DEVICES;
    c->end_ps = c->t->known_ps > 0 ? c->t->known_ps : c->t->total_ps;
    for (int i = 0; i < c->t->n_span; i++)
        n += is_drawn(c, &c->t->span[i]);
    while (n > MOST_BOXES) { /* spans of a run are spread evenly enough */
        c->end_ps = (int64_t)((double)c->end_ps * 0.95 * MOST_BOXES / n);
        n = 0;
        for (int i = 0; i < c->t->n_span; i++)
            n += is_drawn(c, &c->t->span[i]);
    }
}

/* ---- ops ------------------------------------------------------------------------------------------------- */

/* "conv" for "conv3x3", "depthwise" and "winograd_wgrad", "matmul" for "matmul_thin": the classes of docs/hardware.md have more colours
 * than a reader tells apart. Otherwise the op itself. */
static const char *family(const char *op)
{
    static const char *const begin[][2] = {{"conv", "conv"}, {"depthwise", "conv"},
        {"winograd", "conv"}, {"matmul", "matmul"}, {"recurrent", "recurrent"}, {"ewise", "ewise"}};
    for (size_t i = 0; i < NNC_COUNT(begin); i++)
        if (!strncmp(op, begin[i][0], strlen(begin[i][0])))
            return begin[i][1];
    return op;
}

static int number_of_op(const chart *c, const nnc_slice *s)
{
    int k = 0;
    while (
        s->kind == WORK_forward && k < OPS - 1 && c->op[k] && strcmp(c->op[k], family(s->op)) != 0)
        k++;
    return s->kind == WORK_forward && c->op[k] ? k : OPS - 1;
}

static void find_ops(chart *c)
{
    for (int i = 0; i < c->t->n_span; i++) {
        const nnc_slice *s = &c->t->span[i];
        if (s->micro >= 0 || (s->kind != WORK_forward && s->kind != WORK_communication) ||
            (s->kind == WORK_forward && !s->op)) {
            memset(c->op, 0, sizeof c->op);
            return;
        }
        for (int k = 0; s->kind == WORK_forward && k < OPS - 1; k++) {
            if (!c->op[k])
                c->op[k] = family(s->op);
            if (!strcmp(c->op[k], family(s->op)))
                break;
        }
    }
}

/* The last part of the first layer's path: "conv2" of "/layers/3/conv2+/layers/4/relu". */
static void put_label(const nnc_slice *s, char *label, size_t size)
{
    const char *name = s->name ? s->name : "", *from = name;
    const size_t n = strcspn(name, "+");
    for (size_t i = 0; i < n; i++)
        if (name[i] == '/')
            from = name + i + 1;
    nnc_snprintf(label, size, "%.*s", (int)strcspn(from, "+"), from);
}

/* ---- boxes ----------------------------------------------------------------------------------------------- */

static void put_time(nnc_text *out, int64_t ps)
{
    if (ps)
        nnc_put_ms(out, (double)ps * 1e-9, 0);
    else
        nnc_putc(out, '0');
}

/* Text that a browser shows over a box, which n spans share. */
static void put_tip(nnc_text *tip, const chart *c, const nnc_slice *s, int n, int64_t end)
{
    const nnc_lane *l = &c->t->lane[s->lane];
    nnc_puts(tip, c->op[0] && s->kind == WORK_forward ? s->op : nnc_work_names[s->kind]);
    if (s->micro >= 0)
        nnc_printf(tip, " of micro-batch %d", s->micro);
    if (s->chunk)
        nnc_printf(tip, " through chunk %d", s->chunk);
    nnc_printf(tip, ", %s: ", c->t->device[l->device]);
    put_time(tip, s->start_ps);
    nnc_puts(tip, " to ");
    put_time(tip, end);
    nnc_puts(tip, " ms");
    if (n > 1)
        nnc_printf(tip, ", %d commands", n);
    else if (s->name)
        nnc_printf(tip, ", %s", s->name);
    if (n == 1 && s->bytes) {
        nnc_puts(tip, ", ");
        nnc_put_bytes(tip, s->bytes);
    }
}

static void draw_box(const chart *c, const nnc_slice *s, int n, int64_t end)
{
    NNC_LOCAL(nnc_text) tip = {.into = c->out};
    const nnc_lane *l = &c->t->lane[s->lane];
    const double y = c->lane_y[s->lane], h = l->thin ? THIN - 2 : LANE - 2,
                 x = x_of(c, s->start_ps);
    const double w = fmax(x_of(c, nnc_min64(end, c->end_ps)) - x, 0.3);
    char label[64] = "";
    put_tip(&tip, c, s, n, end);
    svg_rect(c->out, (svg_box){x, y, w, h},
        c->op[0] ? op_colours[number_of_op(c, s)] : nnc_work_colours[s->chunk & 1][s->kind],
        w > 3 ? "#555555" : NULL, nnc_text_str(&tip));
    if (c->op[0])
        put_label(s, label, sizeof label);
    else if (s->micro >= 0)
        nnc_snprintf(label, sizeof label, "%d", s->micro);
    else
        nnc_snprintf(label, sizeof label, "%s", nnc_work_names[s->kind]);
    if (!l->thin && svg_text_width(label, TEXT) + 3 <= w)
        svg_text(c->out, x + w / 2, y + h / 2 + TEXT * 0.36,
            (svg_font){.size = TEXT, .anchor = SVG_middle}, label);
}

/* Whether span k belongs to the box that s begins and that ends at `last`: alike, and begins at most `touch` after it. */
static bool is_alike(
    const chart *c, const nnc_slice *s, const nnc_slice *k, int64_t last, double touch)
{
    const bool same = k->lane == s->lane && k->kind == s->kind && k->micro == s->micro &&
                      k->chunk == s->chunk && (double)(k->start_ps - last) <= touch;
    if (c->op[0]) /* commands of one op that are too short to be seen alone */
        return same && number_of_op(c, s) == number_of_op(c, k) &&
               (double)(k->end_ps - s->start_ps) <= 2 * touch;
    return same && !c->t->lane[s->lane].thin;
}

/* Spans of a lane that look alike and touch are one box. */
static void draw_boxes(const chart *c)
{
    const nnc_timeline *t = c->t;
    const double touch = 0.4 * (double)c->end_ps / c->width;
    for (int i = 0, end; i < t->n_span; i = end) {
        const nnc_slice *s = &t->span[c->order[i]];
        int64_t last = s->end_ps;
        for (end = i + 1; end < t->n_span; end++) {
            const nnc_slice *k = &t->span[c->order[end]];
            if (!is_alike(c, s, k, last, touch))
                break;
            last = nnc_max64(last, k->end_ps);
        }
        if (is_drawn(c, s) && last > s->start_ps)
            draw_box(c, s, end - i, last);
    }
}

/* ---- around them ----------------------------------------------------------------------------------------- */

static void draw_axis(const chart *c)
{
    double unit, step;
    const char *name = axis_time_unit(c->end_ps, &unit);
    const double range = (double)c->end_ps / unit;
    char text[64];
    step = axis_step(range, (int)(c->width / 100));
    for (int i = 0; i * step <= range * (1 + 1e-9); i++) {
        const double x = c->left + c->width * i * step / fmax(range, 1e-12);
        svg_line(c->out, x, c->top - 4, x, c->bottom + 4, GRID, 1, NULL);
        axis_tick_text(i * step, step, text, sizeof text);
        svg_text(c->out, x, c->bottom + 18,
            (svg_font){.size = TEXT, .anchor = SVG_middle, .fill = PALE}, text);
    }
    nnc_snprintf(text, sizeof text, "time, %s", name);
    svg_text(c->out, c->left + c->width / 2, c->bottom + 36,
        (svg_font){.size = 12, .anchor = SVG_middle}, text);
}

static void draw_legend(const chart *c, double y)
{
    bool used[WORK__COUNT] = {false}, chunks = false;
    double x = MARGIN;
    for (int i = 0; i < c->t->n_span; i++) {
        used[c->t->span[i].kind] = true;
        chunks = chunks || c->t->span[i].chunk;
    }
    for (int k = 0; k < OPS - 1 && c->op[k]; k++)
        x = svg_legend(c->out, x, y, op_colours[k], c->op[k]);
    if (c->op[0]) {
        for (int i = 0; i < c->t->n_span; i++)
            if (number_of_op(c, &c->t->span[i]) == OPS - 1) {
                (void)svg_legend(c->out, x, y, op_colours[OPS - 1], "other");
                break;
            }
        return;
    }
    for (int k = 0; k < WORK__COUNT; k++)
        if (used[k])
            x = svg_legend(c->out, x, y, nnc_work_colours[0][k], nnc_work_names[k]);
    if (chunks)
        (void)svg_legend(
            c->out, x, y, nnc_work_colours[1][0], "darker: every other chunk of a device");
}

/* Rows of devices: places of their lanes, and the whole height. */
static double place_lanes(chart *c)
{
    double y = c->top;
    for (int d = 0; d < c->n_device; d++) {
        for (int thin = 0; thin < 2; thin++)
            for (int l = 0; l < c->t->n_lane; l++)
                if (c->t->lane[l].device == d && c->t->lane[l].thin == (thin == 1)) {
                    c->lane_y[l] = y;
                    y += thin ? THIN : LANE;
                }
        y += GAP;
    }
    return y - GAP;
}

static void draw_devices(const chart *c)
{
    for (int d = 0; d < c->n_device; d++) {
        char text[64];
        int first = 0;
        while (first < c->t->n_lane && c->t->lane[first].device != d)
            first++;
        if (first == c->t->n_lane)
            continue;
        const double y = c->lane_y[first] + LANE / 2.0 + 3;
        svg_line(c->out, c->left, c->lane_y[first] - GAP / 2.0, c->left + c->width,
            c->lane_y[first] - GAP / 2.0, GRID, 1, NULL);
        svg_text(
            c->out, c->left - 8, y, (svg_font){.size = 12, .anchor = SVG_end}, c->t->device[d]);
        if (c->t->known_ps > 0)
            continue;
        const int64_t busy = nnc_timeline_busy(c->t, d);
        const int64_t run = c->t->run_ps[d] > 0 ? c->t->run_ps[d] : c->t->total_ps;
        const double idle = 1 - (double)busy / (double)nnc_max64(run, 1);
        c->out->oom = c->out->oom || busy < 0;
        nnc_snprintf(text, sizeof text, "idle %.1f %%", 100 * idle);
        svg_text(c->out, c->left + c->width + 8, y, (svg_font){.size = 12, .fill = PALE}, text);
    }
}

/* A width at which most numbers of micro-batches can be read. */
static double width_of(const chart *c)
{
    int64_t sum[WORK__COUNT] = {0};
    int n[WORK__COUNT] = {0};
    bool thin =
        false; /* a schedule of micro-batches; otherwise commands, which are joined to boxes */
    double least = INFINITY; /* mean of the kind whose boxes are shortest */
    for (int i = 0; i < c->t->n_span; i++) {
        const nnc_slice *s = &c->t->span[i];
        if (is_drawn(c, s) && s->micro >= 0 && !c->t->lane[s->lane].thin) {
            sum[s->kind] += s->end_ps - s->start_ps;
            n[s->kind]++;
        }
    }
    if (c->op[0])
        return fmin(fmax(30.0 * c->t->n_span / nnc_max64(c->t->n_lane, 1), LEAST), WIDE);
    for (int l = 0; l < c->t->n_lane; l++)
        thin = thin || c->t->lane[l].thin;
    for (int k = 0; k < WORK__COUNT; k++)
        if (sum[k])
            least = fmin(least, (double)sum[k] / n[k]);
    return fmin(fmax(16 * (double)c->end_ps / least, LEAST), thin ? MOST : WIDE);
}

static void put_note(const chart *c, const char *note, nnc_text *all)
{
    nnc_puts(all, note ? note : "");
    if (c->end_ps < c->t->total_ps) {
        nnc_puts(all, *nnc_text_str(all) ? "\nDrawn: the first " : "Drawn: the first ");
        put_time(all, c->end_ps);
        nnc_puts(all, " ms of ");
        put_time(all, c->t->total_ps);
    }
    if (c->n_device < c->t->n_device)
        nnc_printf(all, "%sDrawn: %d of %d devices", *nnc_text_str(all) ? "\n" : "", c->n_device,
            c->t->n_device);
}

static void draw(chart *c, const char *title, const char *note)
{
    NNC_LOCAL(nnc_text) all = {.into = c->out};
    double widest = 0;
    put_note(c, note, &all);
    for (int d = 0; d < c->n_device; d++)
        widest = fmax(widest, svg_text_width(c->t->device[d], 12));
    c->left = MARGIN + widest + 12;
    c->width = width_of(c);
    c->top = svg_head_height(nnc_text_str(&all)) + 38;
    c->bottom = place_lanes(c);
    const double width = c->left + c->width + 92;
    svg_open(c->out, width, c->bottom + 46, title);
    const double y = svg_head(c->out, title, nnc_text_str(&all), width);
    draw_legend(c, y + 14);
    draw_axis(c);
    draw_devices(c);
    draw_boxes(c);
    svg_close(c->out);
}

void nnc_gantt_put(const nnc_timeline *t, const char *title, const char *note, nnc_text *out)
{
    chart c = {.t = t, .out = out, .order = timeline_order(t)};
    c.lane_y = nnc_calloc((size_t)t->n_lane + 1, sizeof *c.lane_y);
    out->oom = out->oom || t->oom || !c.order || !c.lane_y;
    if (!out->oom) {
        limit(&c);
        find_ops(&c);
        draw(&c, title, note);
    }
    nnc_free(c.order);
    nnc_free(c.lane_y);
}
