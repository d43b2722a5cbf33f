/* picture/scatter.c -- strategies as points of time and memory: the capacity as a line, the Pareto front joined, and a label for every
 * point. Points that coincide share a label. A label goes to the nearest of some places around its point where it covers nothing. */
#include "picture/internal.h"
#include <math.h>
#include <string.h>

enum {
    WIDTH = 700,
    HEIGHT = 420,
    MARGIN = 16,
    TEXT = 11,
    LINE = 13,
    DOT = 5,
    NEAR = 12, /* pixels within which points share a label */
    PIECES = 12, /* of a slanting line, for what labels avoid */
    LABEL = 260, /* bytes of a label */
    RINGS = 24, /* of places for a label around its point */
    SHORT = 26 /* characters of a line of a label */
};
#define FITS "#2c6fb3"
#define NOT "#c2571a"

typedef struct label {
    char text[LABEL]; /* lines between \n */
    int n_line;
    svg_box box;
    bool far; /* needs a line to its point */
} label;

typedef struct plot {
    const nnc_scatter *s;
    nnc_text *out;
    axis_scale x, y;
    double left, top;
    double *px, *py; /* by point, in pixels */
    double *corner; /* x, y of the front\'s line */
    int n_corner;
    int *group; /* by point: the first of those that share its label */
    label *label; /* by group */
    bool capacity_shown; /* otherwise it is far above all points, and a text says so */
    char capacity_name[64];
    svg_box named; /* where it stands */
    svg_box *taken;
    int n_taken, cap_taken;
} plot;

static double x_of(const plot *p, double v)
{
    return p->left + WIDTH * axis_along(&p->x, v);
}

static double y_of(const plot *p, double v)
{
    return p->top + HEIGHT * (1 - axis_along(&p->y, v));
}

static void find_scales(plot *p)
{
    double x[2] = {INFINITY, 0}, y[2] = {INFINITY, 0};
    for (int i = 0; i < p->s->n; i++) {
        const nnc_scatter_point *q = &p->s->point[i];
        x[0] = fmin(x[0], q->x);
        x[1] = fmax(x[1], q->x);
        y[0] = fmin(y[0], fmax((double)q->y, 1));
        y[1] = fmax(y[1], (double)q->y);
    }
    const double c = (double)p->s->capacity;
    p->capacity_shown = c > 0 && c < 5 * y[1];
    if (p->capacity_shown) {
        y[0] = fmin(y[0], c);
        y[1] = fmax(y[1], c);
    }
    p->x = axis_of(x[0], x[1]);
    p->y = axis_of(y[0], y[1]);
}

/* ---- the front -------------------------------------------------------------------------------------------- */

/* Is there no point that fits and is better in one respect and no worse in the other? Of equal ones the first counts. */
static bool is_best(const nnc_scatter *s, int i)
{
    const nnc_scatter_point *a = &s->point[i];
    for (int k = 0; k < s->n; k++) {
        const nnc_scatter_point *b = &s->point[k];
        if (k != i && b->fits && b->x <= a->x && b->y <= a->y &&
            (b->x < a->x || b->y < a->y || k < i))
            return false;
    }
    return a->fits;
}

/* From the fastest to the smallest, as stairs: between two points what is reached is the slower one's memory. */
static void find_front(plot *p)
{
    double after = -1;
    for (;;) {
        int next = -1;
        for (int i = 0; i < p->s->n; i++)
            if (is_best(p->s, i) && p->s->point[i].x > after &&
                (next < 0 || p->s->point[i].x < p->s->point[next].x))
                next = i;
        if (next < 0)
            return;
        double *at = p->corner + 2 * p->n_corner;
        if (p->n_corner) {
            at[0] = p->px[next];
            at[1] = at[-1];
            at += 2;
            p->n_corner++;
        }
        at[0] = p->px[next];
        at[1] = p->py[next];
        p->n_corner++;
        after = p->s->point[next].x;
    }
}

/* ---- labels ---------------------------------------------------------------------------------------------- */

static bool overlap(const svg_box *a, const svg_box *b)
{
    return a->x < b->x + b->w && b->x < a->x + a->w && a->y < b->y + b->h && b->y < a->y + a->h;
}

static bool is_free(const plot *p, const svg_box *b)
{
    const svg_box all = {p->left + 2, p->top + 2, WIDTH - 4, HEIGHT - 4};
    if (b->x < all.x || b->y < all.y || b->x + b->w > all.x + all.w || b->y + b->h > all.y + all.h)
        return false;
    for (int i = 0; i < p->n_taken; i++)
        if (overlap(b, &p->taken[i]))
            return false;
    return true;
}

/* Appends a name to a label, on a new line when the last one is full. */
static void add_name(label *l, const char *name)
{
    const char *last = strrchr(l->text, '\n');
    const size_t used = strlen(l->text), on_line = used - (last ? (size_t)(last + 1 - l->text) : 0);
    const bool first = !used, full = !first && on_line + 2 + strlen(name) > SHORT;
    nnc_snprintf(l->text + used, LABEL - used, "%s%s", first ? "" : full ? ",\n" : ", ", name);
    l->n_line += first || full;
}

static void find_groups(plot *p)
{
    for (int i = 0; i < p->s->n; i++) {
        int g = 0;
        while (
            g < i && (p->group[g] != g || hypot(p->px[i] - p->px[g], p->py[i] - p->py[g]) > NEAR))
            g++;
        p->group[i] = g;
        add_name(&p->label[g], p->s->point[i].name);
    }
}

static double width_of(const label *l)
{
    double w = 0;
    for (const char *s = l->text; *s;) {
        char line[LABEL];
        const size_t n = strcspn(s, "\n");
        nnc_snprintf(line, sizeof line, "%.*s", (int)n, s);
        w = fmax(w, svg_text_width(line, TEXT));
        s += n + (s[n] == '\n');
    }
    return w;
}

static void take_box(plot *p, svg_box b)
{
    if (p->n_taken < p->cap_taken)
        p->taken[p->n_taken++] = b;
}

static double distance(const svg_box *b, double x, double y)
{
    return hypot(
        fmax(fmax(b->x - x, x - b->x - b->w), 0), fmax(fmax(b->y - y, y - b->y - b->h), 0));
}

/* Does another group's point look like the one that a label in this place names? A label with a line to its point may be nearer. */
static bool names_another(const plot *p, int g, const svg_box *b, bool far)
{
    const double own = distance(b, p->px[g], p->py[g]), room = far ? DOT + 4 : own + DOT;
    bool any = false;
    for (int i = 0; i < p->s->n; i++)
        any = any || (p->group[i] != g && distance(b, p->px[i], p->py[i]) < room);
    return any;
}

/* Places in rings around the point, right ones first. */
static void place(plot *p, int g)
{
    /* right, left, above, below, and between: unit vectors of the label's nearest side */
    static const int way[][2] = {
        {1, 0}, {-1, 0}, {1, -1}, {1, 1}, {-1, -1}, {-1, 1}, {0, -1}, {0, 1}};
    label *l = &p->label[g];
    const double w = width_of(l), h = LINE * l->n_line;
    for (int ring = 0; ring < RINGS; ring++)
        for (size_t k = 0; k < NNC_COUNT(way); k++) {
            const double far = DOT + 4 + 9 * ring, dx = way[k][0] * far, dy = way[k][1] * far;
            const double x = p->px[g] + dx, y = p->py[g] + dy;
            const svg_box b = {way[k][0] > 0   ? x
                               : way[k][0] < 0 ? x - w
                                               : x - w / 2,
                way[k][1] > 0   ? y
                : way[k][1] < 0 ? y - h
                                : y - h / 2,
                w, h};
            if (!is_free(p, &b) || (ring < RINGS / 2 && names_another(p, g, &b, ring > 0)))
                continue;
            l->box = b;
            l->far = ring > 0;
            take_box(p, b);
            return;
        }
    l->n_line = 0; /* no room: the point's tip still names it */
}

/* A line, as boxes along it. */
static void take_line(plot *p, double x0, double y0, double x1, double y1)
{
    const int n = x0 == x1 || y0 == y1 ? 1 : PIECES;
    for (int i = 0; i < n; i++) {
        const double ax = x0 + (x1 - x0) * i / n, bx = x0 + (x1 - x0) * (i + 1) / n,
                     ay = y0 + (y1 - y0) * i / n, by = y0 + (y1 - y0) * (i + 1) / n;
        take_box(
            p, (svg_box){fmin(ax, bx) - 1, fmin(ay, by) - 1, fabs(bx - ax) + 2, fabs(by - ay) + 2});
    }
}

/* The capacity's name, above its line where no point is. */
static void place_capacity(plot *p)
{
    NNC_LOCAL(nnc_text) text = {0};
    const double y = p->capacity_shown ? y_of(p, (double)p->s->capacity) : p->top + 20;
    nnc_puts(&text, "capacity ");
    nnc_put_bytes(&text, p->s->capacity);
    nnc_puts(&text, p->capacity_shown ? "" : ", above this picture");
    nnc_snprintf(p->capacity_name, sizeof p->capacity_name, "%s", nnc_text_str(&text));
    const double w = svg_text_width(p->capacity_name, TEXT);
    for (int i = 0; i < PIECES; i++) {
        p->named =
            (svg_box){p->left + (WIDTH - w - 12) * (1 - (double)i / PIECES) + 6, y - 17, w, 15};
        if (is_free(p, &p->named))
            break;
    }
    take_box(p, p->named);
    if (p->capacity_shown)
        take_line(p, p->left, y, p->left + WIDTH, y);
}

static void place_labels(plot *p)
{
    for (int i = 1; i < p->n_corner; i++)
        take_line(
            p, p->corner[2 * i - 2], p->corner[2 * i - 1], p->corner[2 * i], p->corner[2 * i + 1]);
    for (int i = 0; i < p->s->n; i++)
        take_box(p, (svg_box){p->px[i] - DOT - 1, p->py[i] - DOT - 1, 2 * DOT + 2, 2 * DOT + 2});
    if (p->s->capacity > 0)
        place_capacity(p);
    for (int i = 0; i < p->s->n; i++)
        if (p->group[i] == i)
            place(p, i);
}

static void draw_label(const plot *p, int g)
{
    const label *l = &p->label[g];
    int line = 0;
    if (!l->n_line)
        return;
    if (l->far) {
        const double x = fmin(fmax(p->px[g], l->box.x), l->box.x + l->box.w),
                     y = fmin(fmax(p->py[g], l->box.y), l->box.y + l->box.h);
        svg_line(p->out, p->px[g], p->py[g], x, y, FRAME, 0.8, NULL);
    }
    for (const char *s = l->text; *s; line++) {
        char text[LABEL];
        const size_t n = strcspn(s, "\n");
        nnc_snprintf(text, sizeof text, "%.*s", (int)n, s);
        const bool left = l->box.x + l->box.w <= p->px[g];
        svg_text(p->out, left ? l->box.x + l->box.w : l->box.x, l->box.y + LINE * line + 10,
            (svg_font){.size = TEXT, .anchor = left ? SVG_end : SVG_start}, text);
        s += n + (s[n] == '\n');
    }
}

/* ---- axes ------------------------------------------------------------------------------------------------ */

static double byte_unit(const plot *p, const char **name)
{
    double unit;
    *name = axis_byte_unit((int64_t)(p->y.log ? pow(10, p->y.hi) : p->y.hi), &unit);
    return unit;
}

static void draw_axes(const plot *p)
{
    const char *unit_name;
    char text[120];
    const double unit = byte_unit(p, &unit_name);
    const svg_box all = {p->left, p->top, WIDTH, HEIGHT};
    svg_rect(p->out, all, "#ffffff", FRAME, NULL);
    axis_draw(&p->x, all, true, 1, p->out);
    axis_draw(&p->y, all, false, unit, p->out);
    nnc_snprintf(text, sizeof text, "%s%s", p->s->x_axis, p->x.log ? " (logarithmic)" : "");
    svg_text(p->out, p->left + WIDTH / 2.0, p->top + HEIGHT + 36,
        (svg_font){.size = 12, .anchor = SVG_middle}, text);
    nnc_snprintf(
        text, sizeof text, "%s, %s%s", p->s->y_axis, unit_name, p->y.log ? " (logarithmic)" : "");
    svg_text(p->out, p->left - 40, p->top - 10, (svg_font){.size = 12}, text);
}

/* ---- what is drawn --------------------------------------------------------------------------------------- */

static void draw_capacity(const plot *p)
{
    const double y = y_of(p, (double)p->s->capacity);
    if (p->s->capacity <= 0)
        return;
    if (p->capacity_shown) {
        svg_rect(p->out, (svg_box){p->left, p->top, WIDTH, y - p->top}, "#f8ece4", NULL, NULL);
        svg_line(p->out, p->left, y, p->left + WIDTH, y, NOT, 1.4, "6 4");
    }
    svg_text(p->out, p->named.x, p->named.y + p->named.h - 3, (svg_font){.size = TEXT, .fill = NOT},
        p->capacity_name);
}

static void draw_front(const plot *p)
{
    if (!p->n_corner)
        return;
    svg_path_begin(p->out);
    for (int i = 0; i < p->n_corner; i++)
        svg_path_to(p->out, p->corner[2 * i], p->corner[2 * i + 1], !i);
    svg_path_end(p->out, NULL, "#888888", 1.4, NULL);
}

static void draw_point(const plot *p, int i)
{
    const nnc_scatter_point *q = &p->s->point[i];
    NNC_LOCAL(nnc_text) tip = {.into = p->out};
    nnc_printf(&tip, "%s: ", q->name);
    nnc_put_ms(&tip, q->x, 0);
    nnc_puts(&tip, " ms, ");
    nnc_put_bytes(&tip, q->y);
    nnc_puts(&tip, q->fits ? "" : ", does not fit");
    const char *colour = q->fits ? FITS : NOT;
    svg_circle(
        p->out, p->px[i], p->py[i], DOT, q->runs ? colour : "#ffffff", colour, nnc_text_str(&tip));
}

static void draw_legend(const plot *p, double y)
{
    bool has[2] = {false}; /* runs, does not fit */
    double x = MARGIN + 6;
    for (int i = 0; i < p->s->n; i++) {
        has[0] = has[0] || p->s->point[i].runs;
        has[1] = has[1] || !p->s->point[i].fits;
    }
    const struct {
        bool shown;
        const char *fill, *stroke, *text;
    } mark[] = {{true, "#ffffff", FITS, "fits"}, {has[0], FITS, FITS, "fits, and nnc runs it"},
        {has[1], "#ffffff", NOT, "does not fit"}};
    for (size_t i = 0; i < NNC_COUNT(mark); i++)
        if (mark[i].shown) {
            svg_circle(p->out, x, y - 4, DOT, mark[i].fill, mark[i].stroke, NULL);
            svg_text(p->out, x + 11, y, (svg_font){.size = 12}, mark[i].text);
            x += 11 + svg_text_width(mark[i].text, 12) + 22;
        }
    svg_line(p->out, x - 6, y - 4, x + 14, y - 4, "#888888", 1.4, NULL);
    svg_text(p->out, x + 19, y, (svg_font){.size = 12}, "Pareto front");
}

static void draw(plot *p)
{
    const nnc_scatter *s = p->s;
    p->left = MARGIN + 44;
    p->top = svg_head_height(s->note) + 58;
    find_scales(p);
    for (int i = 0; i < s->n; i++) {
        const nnc_scatter_point *q = &s->point[i];
        p->px[i] = x_of(p, q->x);
        p->py[i] = y_of(p, fmax((double)q->y, 1));
    }
    find_front(p);
    find_groups(p);
    place_labels(p);
    const double width = p->left + WIDTH + MARGIN + 8;
    svg_open(p->out, width, p->top + HEIGHT + 50, s->title);
    draw_legend(p, svg_head(p->out, s->title, s->note, width) + 14);
    draw_axes(p);
    draw_capacity(p);
    draw_front(p);
    for (int i = 0; i < s->n; i++)
        if (p->group[i] == i)
            draw_label(p, i);
    for (int i = 0; i < s->n; i++)
        draw_point(p, i);
    svg_close(p->out);
}

void nnc_scatter_put(const nnc_scatter *s, nnc_text *out)
{
    NNC_LOCAL(nnc_arena) a = {0};
    plot p = {.s = s, .out = out};
    p.px = ARENA_NEW(&a, double, 2 * s->n + 1);
    p.py = ARENA_NEW(&a, double, 2 * s->n + 1);
    p.group = ARENA_NEW(&a, int, s->n + 1);
    p.label = ARENA_NEW(&a, label, s->n + 1);
    p.corner = ARENA_NEW(&a, double, 4 * s->n + 4);
    p.cap_taken = (5 + PIECES) * s->n + 2;
    p.taken = ARENA_NEW(&a, svg_box, p.cap_taken);
    if (p.px && p.py && p.corner && p.group && p.label && p.taken)
        draw(&p);
    else
        out->oom = true;
}
