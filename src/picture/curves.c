/* picture/curves.c -- curves of several series over one axis, with a dot for each point and a legend above. */
#include "picture/internal.h"
#include <math.h>

enum { MARGIN = 16, LEFT = 58, ROW = 18, DOT = 3, TEXT = 12 };

typedef struct plot {
    const nnc_curves *c;
    nnc_text *out;
    axis_scale x, y;
    svg_box in;
} plot;

static const char *const colours[] = {
    "#2c6fb3", "#c2571a", "#2c8a6a", "#8a5fb0", "#b3303f", "#7d6a1f", "#3d8f9f", "#9a4f86"};

/* A limit has the colour of the curve before it. */
static const char *colour_of(const nnc_curves *c, int k)
{
    size_t n = 0;
    for (int i = 1; i <= k; i++)
        n += !c->curve[i].limit;
    return colours[n % NNC_COUNT(colours)];
}

static bool is_point(const nnc_curve *c, int i)
{
    return c->x[i] > 0 && c->y[i] > 0;
}

static void find_axes(plot *p)
{
    double x[2] = {INFINITY, 0}, y[2] = {INFINITY, 0};
    for (int k = 0; k < p->c->n; k++)
        for (int i = 0; i < p->c->curve[k].n; i++) {
            const nnc_curve *c = &p->c->curve[k];
            if (!is_point(c, i))
                continue;
            x[0] = fmin(x[0], c->x[i]);
            x[1] = fmax(x[1], c->x[i]);
            y[0] = fmin(y[0], c->y[i]);
            y[1] = fmax(y[1], c->y[i]);
        }
    if (p->c->room > 0 && p->c->room < 20 * y[1])
        y[1] = fmax(y[1], p->c->room);
    p->x = axis_of(x[0], x[1]);
    p->y = axis_of(y[0], y[1]);
}

static double x_of(const plot *p, double v)
{
    return p->in.x + p->in.w * axis_along(&p->x, v);
}

static double y_of(const plot *p, double v)
{
    return p->in.y + p->in.h * (1 - axis_along(&p->y, v));
}

static void draw_curve(const plot *p, const nnc_curve *c, const char *colour)
{
    bool open = false;
    for (int i = 0; i <= c->n; i++) {
        const bool point = i < c->n && is_point(c, i);
        if (point && !open)
            svg_path_begin(p->out);
        if (point)
            svg_path_to(p->out, x_of(p, c->x[i]), y_of(p, c->y[i]), !open);
        else if (open)
            svg_path_end(p->out, NULL, colour, c->limit ? 1.2 : 1.8, c->limit ? "5 4" : NULL);
        open = point;
    }
    for (int i = 0; i < c->n && !c->limit; i++)
        if (is_point(c, i))
            svg_circle(p->out, x_of(p, c->x[i]), y_of(p, c->y[i]), DOT, colour, colour,
                c->tip ? c->tip[i] : NULL);
}

/* Names in rows of the picture's width; with `draw` false only counted. Returns their number of rows. */
static int legend(const plot *p, double y, double width, bool draw)
{
    double x = MARGIN;
    int rows = 1;
    bool limit = false;
    for (int k = 0; k <= p->c->n; k++) {
        const bool last = k == p->c->n;
        const char *name = last ? "least time of its commands" : p->c->curve[k].name;
        limit = limit || (!last && p->c->curve[k].limit);
        if (last ? !limit : p->c->curve[k].limit)
            continue;
        const double w = 30 + svg_text_width(name, TEXT) + 18;
        if (x > MARGIN && x + w > width) {
            x = MARGIN;
            rows++;
        }
        const double at = y + ROW * (rows - 1);
        if (draw)
            svg_line(p->out, x, at - 4, x + 22, at - 4, last ? PALE : colour_of(p->c, k),
                last ? 1.2 : 2.4, last ? "5 4" : NULL);
        if (draw)
            svg_text(p->out, x + 28, at, (svg_font){.size = TEXT}, name);
        x += w;
    }
    return rows;
}

static void draw_axes(const plot *p)
{
    double unit = 1;
    const char *name = p->c->y_axis;
    char text[120];
    if (p->c->bytes)
        name = axis_byte_unit((int64_t)fmin(p->y.log ? pow(10, p->y.hi) : p->y.hi, 9e18), &unit);
    svg_rect(p->out, p->in, "#ffffff", FRAME, NULL);
    axis_draw(&p->x, p->in, true, 1, p->out);
    axis_draw(&p->y, p->in, false, unit, p->out);
    svg_text(p->out, p->in.x + p->in.w / 2, p->in.y + p->in.h + 36,
        (svg_font){.size = TEXT, .anchor = SVG_middle}, p->c->x_axis);
    nnc_snprintf(text, sizeof text, "%s%s", name, p->y.log ? " (logarithmic)" : "");
    svg_text(p->out, MARGIN, p->in.y - 10, (svg_font){.size = TEXT}, text);
}

static void draw_room(const plot *p)
{
    const double y = p->c->room > 0 ? y_of(p, p->c->room) : 0;
    if (y < p->in.y + 14)
        return;
    svg_line(p->out, p->in.x, y, p->in.x + p->in.w, y, "#888888", 1.4, "2 3");
    svg_text(p->out, p->in.x + 6, y - 5, (svg_font){.size = 11, .fill = PALE}, p->c->room_name);
}

void nnc_curves_put(const nnc_curves *c, nnc_text *out)
{
    plot p = {.c = c, .out = out};
    const double width = LEFT + c->width + MARGIN, head = svg_head_height(c->note) + 14;
    const int rows = legend(&p, 0, width, false);
    p.in = (svg_box){LEFT, head + ROW * rows + 22, c->width, c->height};
    find_axes(&p);
    svg_open(out, width, p.in.y + c->height + 48, c->title);
    svg_head(out, c->title, c->note, width);
    legend(&p, head, width, true);
    draw_axes(&p);
    draw_room(&p);
    for (int k = 0; k < c->n; k++)
        draw_curve(&p, &c->curve[k], colour_of(c, k));
    for (int k = 0; k < c->n_mark; k++)
        svg_circle(out, x_of(&p, c->mark[k][0]), y_of(&p, c->mark[k][1]), 7, "none", PALE, NULL);
    svg_close(out);
}
