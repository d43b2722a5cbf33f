/* picture/svg.c -- writes elements of SVG 1.1 as text. */
#include "picture/internal.h"
#include <string.h>

/* Text of XML: markup is escaped; control characters and invalid UTF-8, which XML does not allow, become U+FFFD. */
static void put_xml(nnc_text *out, const char *s)
{
    const char *end = s + strlen(s);
    while (s < end) {
        const int n = nnc_utf8_length(s, end);
        const unsigned char c = (unsigned char)*s;
        if (n == 0 || c < 0x20)
            nnc_puts(out, "\xef\xbf\xbd");
        else if (c == '&')
            nnc_puts(out, "&amp;");
        else if (c == '<')
            nnc_puts(out, "&lt;");
        else if (c == '>')
            nnc_puts(out, "&gt;");
        else if (c == '"')
            nnc_puts(out, "&quot;");
        else
            nnc_putn(out, s, (size_t)n);
        s += n ? n : 1;
    }
}

void svg_number(nnc_text *out, double v)
{
    char s[40];
    nnc_snprintf(s, sizeof s, "%.2f", v);
    char *end = s + strlen(s);
    while (end[-1] == '0')
        *--end = 0;
    if (end[-1] == '.')
        end[-1] = 0;
    nnc_puts(out, strcmp(s, "-0") ? s : "0");
}

static void put_attribute(nnc_text *out, const char *name, double v)
{
    nnc_printf(out, " %s=\"", name);
    svg_number(out, v);
    nnc_putc(out, '"');
}

void svg_open(nnc_text *out, double width, double height, const char *title)
{
    nnc_puts(out, "<svg xmlns=\"http://www.w3.org/2000/svg\"");
    put_attribute(out, "width", width);
    put_attribute(out, "height", height);
    nnc_puts(out, " viewBox=\"0 0 ");
    svg_number(out, width);
    nnc_putc(out, ' ');
    svg_number(out, height);
    nnc_puts(out, "\" font-family=\"Helvetica, Arial, sans-serif\" role=\"img\">\n<title>");
    put_xml(out, title);
    nnc_puts(out, "</title>\n");
    svg_rect(out, (svg_box){0, 0, width, height}, "#ffffff", NULL, NULL);
}

void svg_close(nnc_text *out)
{
    nnc_puts(out, "</svg>\n");
}

static void put_end(nnc_text *out, const char *element, const char *tip)
{
    if (!tip) {
        nnc_puts(out, "/>\n");
        return;
    }
    nnc_puts(out, "><title>");
    put_xml(out, tip);
    nnc_printf(out, "</title></%s>\n", element);
}

static void put_stroke(nnc_text *out, const char *stroke, double width, const char *dashes)
{
    if (!stroke)
        return;
    nnc_printf(out, " stroke=\"%s\"", stroke);
    put_attribute(out, "stroke-width", width);
    if (dashes)
        nnc_printf(out, " stroke-dasharray=\"%s\"", dashes);
}

void svg_rect(nnc_text *out, svg_box b, const char *fill, const char *stroke, const char *tip)
{
    nnc_puts(out, "<rect");
    put_attribute(out, "x", b.x);
    put_attribute(out, "y", b.y);
    put_attribute(out, "width", b.w);
    put_attribute(out, "height", b.h);
    nnc_printf(out, " fill=\"%s\"", fill);
    put_stroke(out, stroke, 0.6, NULL);
    put_end(out, "rect", tip);
}

void svg_line(nnc_text *out, double x0, double y0, double x1, double y1, const char *stroke,
    double width, const char *dashes)
{
    nnc_puts(out, "<line");
    put_attribute(out, "x1", x0);
    put_attribute(out, "y1", y0);
    put_attribute(out, "x2", x1);
    put_attribute(out, "y2", y1);
    put_stroke(out, stroke, width, dashes);
    put_end(out, "line", NULL);
}

void svg_circle(nnc_text *out, double x, double y, double r, const char *fill, const char *stroke,
    const char *tip)
{
    nnc_puts(out, "<circle");
    put_attribute(out, "cx", x);
    put_attribute(out, "cy", y);
    put_attribute(out, "r", r);
    nnc_printf(out, " fill=\"%s\"", fill);
    put_stroke(out, stroke, 1.6, NULL);
    put_end(out, "circle", tip);
}

void svg_path_begin(nnc_text *out)
{
    nnc_puts(out, "<path d=\"");
}

void svg_path_to(nnc_text *out, double x, double y, bool first)
{
    nnc_puts(out, first ? "M" : "L");
    svg_number(out, x);
    nnc_putc(out, ' ');
    svg_number(out, y);
}

void svg_path_end(
    nnc_text *out, const char *fill, const char *stroke, double width, const char *dashes)
{
    nnc_printf(out, "%s\" fill=\"%s\"", fill ? "Z" : "", fill ? fill : "none");
    put_stroke(out, stroke, width, dashes);
    put_end(out, "path", NULL);
}

void svg_text(nnc_text *out, double x, double y, svg_font f, const char *text)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    nnc_puts(out, "<text");
    put_attribute(out, "x", x);
    put_attribute(out, "y", y);
    put_attribute(out, "font-size", f.size);
    nnc_printf(out, "%s%s fill=\"%s\">", anchors[f.anchor], f.bold ? " font-weight=\"bold\"" : "",
        f.fill ? f.fill : INK);
    put_xml(out, text);
    nnc_puts(out, "</text>\n");
}

double svg_text_width(const char *text, double size)
{
    double w = 0;
    for (const char *p = text; *p; p++) {
        if (strchr("iljtfI.,:;'|!()[]/ -", *p))
            w += 0.31;
        else if (strchr("mwMW%@", *p))
            w += 0.87;
        else if (*p >= 'A' && *p <= 'Z')
            w += 0.69;
        else if (((unsigned char)*p & 0xc0) != 0x80)
            w += 0.56;
    }
    return w * size;
}

/* ---- what every picture has ------------------------------------------------------------------------------ */

enum { MARGIN = 16, TITLE = 16, NOTE = 12, NOTE_LINE = 16 };

static int count_lines(const char *note)
{
    int n = note && *note;
    for (const char *p = n ? note : ""; *p; p++)
        n += *p == '\n';
    return n;
}

double svg_head_height(const char *note)
{
    return MARGIN + TITLE + 6 + NOTE_LINE * count_lines(note);
}

static double fit(const char *text, double size, double width)
{
    const double is = svg_text_width(text, size), may = width - 2 * MARGIN;
    return is > may ? size * may / is : size;
}

double svg_head(nnc_text *out, const char *title, const char *note, double width)
{
    double y = MARGIN + TITLE - 3;
    /* bold letters are a tenth wider */
    svg_text(
        out, MARGIN, y, (svg_font){.size = fit(title, TITLE, width / 1.1), .bold = true}, title);
    for (const char *p = note; p && *p;) {
        char line[400];
        const size_t n = strcspn(p, "\n");
        nnc_snprintf(line, sizeof line, "%.*s", (int)n, p);
        svg_text(out, MARGIN, y += NOTE_LINE + 2,
            (svg_font){.size = fit(line, NOTE, width), .fill = PALE}, line);
        y -= 2;
        p += n + (p[n] == '\n');
    }
    return svg_head_height(note);
}

double svg_legend(nnc_text *out, double x, double y, const char *fill, const char *name)
{
    svg_rect(out, (svg_box){x, y - 10, 14, 12}, fill, "#777777", NULL);
    svg_text(out, x + 19, y, (svg_font){.size = NOTE}, name);
    return x + svg_legend_width(name);
}

double svg_legend_width(const char *name)
{
    return 19 + svg_text_width(name, NOTE) + 18;
}
