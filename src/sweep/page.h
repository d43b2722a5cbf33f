/* sweep/page.h -- the HTML page of a sweep around its charts and the rows of its table. */
#ifndef NNC_SWEEP_PAGE_H
#define NNC_SWEEP_PAGE_H

/* Charts are drawn twice, for wide and for narrow windows; dark mode inverts their lightness and keeps their hues. */
static const char page_head[] =
    "<!doctype html>\n<html lang=en><meta charset=utf-8>\n"
    "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
    "<link rel=icon href=\"data:,\">\n<title>nnc sweep</title>\n<style>\n"
    ":root { color-scheme: light dark; --ink: #1d2430; --paper: #fff; --soft: #667; --line: #d8dbe2; --bar: #e8ecf4 }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ink: #e4e7ee; --paper: #14171d; --soft: #9aa3b2; --line: #333a46; --bar: #2a3240 }\n"
    "  svg { filter: invert(.92) hue-rotate(180deg) } }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;\n"
    "  max-width: 1460px; padding: 16px }\n"
    "h1 { font-size: 22px; margin: 0 0 4px } p { margin: 6px 0; max-width: 90ch; white-space: pre-line }\n"
    ".soft { color: var(--soft) } main { display: flex; flex-wrap: wrap } figure { margin: 8px 8px 8px 0 }\n"
    "svg { border-radius: 4px; display: block } .narrow { display: none }\n"
    "@media (max-width: 760px) { .narrow { display: block } .wide { display: none } }\n"
    ".rows { overflow-x: auto } table { border-collapse: collapse; font-size: 14px }\n"
    "th, td { text-align: right; padding: 3px 9px; border-bottom: 1px solid var(--line); white-space: nowrap;\n"
    "  font-variant-numeric: tabular-nums } th { cursor: pointer; user-select: none } th.l, td.l { text-align: left }\n"
    "tbody tr:hover { background: var(--bar) }\n</style>\n<h1>";

static const char page_table[] = "</main>\n<div class=rows><table><thead><tr><th>";
static const char page_columns[] =
    "<th class=l>series<th>ms<th>GFLOP/s<th>GB/s<th>limit, %<th class=l>of<th>memory<th class=l>kind<tbody>\n";

/* A click on a column sorts by it, a second one the other way. */
static const char page_tail[] =
    "</table></div>\n<script>\n"
    "const head = [...document.querySelectorAll('th')], body = document.querySelector('tbody');\n"
    "let at = -1, down = false;\n"
    "const value = row => { const c = row.children[at], n = parseFloat(c.dataset.v ?? c.textContent);\n"
    "  return head[at].className == 'l' ? c.textContent : isNaN(n) ? -1 : n };\n"
    "head.forEach((h, k) => { const name = h.textContent; h.onclick = () => {\n"
    "  down = k == at ? !down : h.className != 'l'; at = k;\n"
    "  head.forEach(x => x.textContent = x.textContent.replace(/ [\\u2191\\u2193]$/, ''));\n"
    "  h.textContent = name + (down ? ' \\u2193' : ' \\u2191');\n"
    "  const rows = [...body.children].sort((a, b) => { const x = value(a), y = value(b);\n"
    "    return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1) });\n"
    "  body.replaceChildren(...rows) } });\n"
    "</script>\n</html>\n";

#endif
