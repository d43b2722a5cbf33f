/* picture/internal.h -- the SVG writer and axes, shared by the files of picture/ only. */
#ifndef NNC_PICTURE_INTERNAL_H
#define NNC_PICTURE_INTERNAL_H

#include "picture/picture.h"

#define INK "#222222"   /* text */
#define PALE "#666666"  /* text of less weight */
#define GRID "#e3e3e3"
#define FRAME "#9a9a9a"

/* timeline.c. Spans by lane and start; the caller frees it. NULL: out of memory. */
int32_t *timeline_order(const nnc_timeline *t);
extern const char *const nnc_work_colours[2][WORK__COUNT]; /* of even chunks, of odd ones */
extern const char *const nnc_hold_names[HOLD__COUNT], *const nnc_hold_colours[HOLD__COUNT];

/* ---- svg.c: elements; coordinates in pixels, at most two decimals ---- */

typedef struct svg_box { double x, y, w, h; } svg_box;

void svg_open(nnc_text *out, double width, double height, const char *title); /* white, with a title for readers of screens */
void svg_close(nnc_text *out);
/* tip: text that browsers show over it, NULL: none. stroke NULL: none. */
void svg_rect(nnc_text *out, svg_box b, const char *fill, const char *stroke, const char *tip);
void svg_line(nnc_text *out, double x0, double y0, double x1, double y1, const char *stroke, double width, const char *dashes);
void svg_circle(nnc_text *out, double x, double y, double r, const char *fill, const char *stroke, const char *tip);
/* A path: begin, points, end. close: filled, otherwise a line of this width. */
void svg_path_begin(nnc_text *out);
void svg_path_to(nnc_text *out, double x, double y, bool first);
void svg_path_end(nnc_text *out, const char *fill, const char *stroke, double width, const char *dashes);
typedef enum svg_anchor { SVG_start, SVG_middle, SVG_end } svg_anchor;
typedef struct svg_font { double size; svg_anchor anchor; const char *fill; bool bold; } svg_font;
void svg_text(nnc_text *out, double x, double y, svg_font f, const char *text); /* y: of the baseline */
void svg_number(nnc_text *out, double v);
/* Width of a text of this size in Helvetica or Arial, about. */
double svg_text_width(const char *text, double size);
/* Title and lines of a note at the top left, smaller where they are wider than the picture; returns the y below them. */
double svg_head(nnc_text *out, const char *title, const char *note, double width);
double svg_head_height(const char *note);
/* Coloured boxes with names in a row from x on; returns where it ends. */
double svg_legend(nnc_text *out, double x, double y, const char *fill, const char *name);
double svg_legend_width(const char *name);

/* ---- axis.c: steps and texts of ticks ---- */

/* The step of about n ticks over `range`: 1, 2 or 5 times a power of ten. */
double axis_step(double range, int n);
/* Unit for times up to most_ps: its name, and picoseconds. */
const char *axis_time_unit(int64_t most_ps, double *ps);
/* Unit for bytes up to `most`: B, KiB, MiB, ... */
const char *axis_byte_unit(int64_t most, double *bytes);
/* An axis; of a logarithmic one lo and hi are logarithms to base 10. */
typedef struct axis_scale { bool log; double lo, hi; } axis_scale;
/* For values from lo to hi: linear from zero, or logarithmic where they differ more than eight times. */
axis_scale axis_of(double lo, double hi);
double axis_along(const axis_scale *a, double v); /* 0 at its begin, 1 at its end */
/* Draws ticks and lines of a grid in a box, below or left of it; at round numbers of `unit`s. */
void axis_draw(const axis_scale *a, svg_box in, bool of_x, double unit, nnc_text *out);
/* A tick's value with as many digits as the step has. */
void axis_tick_text(double v, double step, char *s, size_t n);

#endif
