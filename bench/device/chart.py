"""bench/device/chart.py -- ratios of peers to nnc as SVG, written by Python's standard library alone: a row for each cell, a mark for each
peer, on a logarithmic axis. Right of 1 nnc is faster."""
import math
from xml.sax.saxutils import escape

# name, colour, mark: colours that differ for colour-blind readers, too
SERIES = {"eager": ("eager", "#0072b2", "circle"), "compile": ("torch.compile", "#d55e00", "square"), "tuned": ("max-autotune", "#009e73", "diamond")}
ROW, TOP, LABEL, PLOT, RIGHT = 15, 80, 380, 560, 40
LOW, HIGH = 1 / 8, 32  # what lies beyond is drawn at the edge as an arrow


def x_of(ratio):
    span = math.log2(HIGH) - math.log2(LOW)
    return LABEL + PLOT * (math.log2(min(max(ratio, LOW), HIGH)) - math.log2(LOW)) / span


def text(x, y, s, size=10, anchor="start", colour="#222", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">{escape(s)}</text>')


def mark(x, y, ratio, shape, colour):
    title = f"<title>{ratio:.3g}</title>"
    if ratio > HIGH or ratio < LOW:
        d = 5 if ratio > HIGH else -5
        return f'<path d="M{x - d:.1f} {y - 4:.1f}L{x + d:.1f} {y:.1f}L{x - d:.1f} {y + 4:.1f}Z" fill="{colour}">{title}</path>'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}">{title}</circle>'
    if shape == "square":
        return f'<rect x="{x - 3.3:.1f}" y="{y - 3.3:.1f}" width="6.6" height="6.6" fill="{colour}">{title}</rect>'
    return f'<path d="M{x:.1f} {y - 4.6:.1f}L{x + 4.6:.1f} {y:.1f}L{x:.1f} {y + 4.6:.1f}L{x - 4.6:.1f} {y:.1f}Z" fill="{colour}">{title}</path>'


def axis(out, bottom):
    k = int(math.log2(LOW))
    while k <= int(math.log2(HIGH)):
        x, one = x_of(2.0**k), k == 0
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{"#222" if one else "#ddd"}" stroke-width="{1.4 if one else 1}"/>')
        for y in (TOP - 6, bottom + 14):
            out.append(text(x, y, f"{2**k}" if k >= 0 else f"1/{2**-k}", 10, "middle"))
        k += 1


def legend(out, present):
    x = LABEL
    for base in present:
        name, colour, shape = SERIES[base]
        out.append(mark(x + 5, 39, 1, shape, colour))
        out.append(text(x + 14, 43, name, 11))
        x += 34 + 7 * len(name)
    out.append(text(x_of(1) - 8, TOP - 20, "peer faster", 10, "end", "#666"))
    out.append(text(x_of(1) + 8, TOP - 20, "nnc faster", 10, "start", "#666"))


def chart(rows, title):
    """SVG of the rows that have a peer; an empty text where none has."""
    rows = [r for r in rows if any(r["ratios"].values())]
    present = [b for b in SERIES if any(r["ratios"].get(b) for r in rows)]
    if not rows:
        return ""
    groups = []
    for r in rows:
        name = r["id"].split(",")[0]
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append(r)
    lines = sum(len(of) + (len(of) > 1) for _, of in groups)
    bottom = TOP + ROW * lines + 6
    width, height = LABEL + PLOT + RIGHT, bottom + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>', text(12, 20, title, 13, weight="bold"),
           text(12, 43, "Time of a peer over nnc's", 11)]
    legend(out, present)
    axis(out, bottom)
    y = TOP + ROW
    for i, (name, of) in enumerate(groups):
        shown = ROW * (len(of) + (len(of) > 1))
        if i % 2 == 0:
            out.insert(2, f'<rect x="0" y="{y - ROW + 4:.1f}" width="{width}" height="{shown}" fill="#f6f6f6"/>')
        if len(of) > 1:
            out.append(text(12, y, name, 10, weight="bold"))
            y += ROW
        for r in of:
            label = r["id"].partition(",")[2] if len(of) > 1 else r["id"]
            out.append(text(LABEL - 10, y, label if len(label) < 64 else label[:61] + "...", 10, "end"))
            for base in present:
                if r["ratios"].get(base):
                    _, colour, shape = SERIES[base]
                    out.append(mark(x_of(r["ratios"][base]), y - 3.5, r["ratios"][base], shape, colour))
            y += ROW
    out.append("</svg>")
    return "\n".join(out) + "\n"
