/* sweep/page.h -- the HTML page of a sweep around its charts and the rows of its table. */
#ifndef NNC_SWEEP_PAGE_H
#define NNC_SWEEP_PAGE_H

/* Charts are drawn twice, for wide and for narrow windows; dark mode inverts their lightness and keeps their hues. */
static const char page_style[] =
    "@media (prefers-color-scheme: dark) { svg { filter: invert(.92) hue-rotate(180deg) } }\n"
    "body { max-width: 1460px } p { white-space: pre-line } main { display: flex; flex-wrap: wrap }\n"
    "figure { margin: 8px 8px 8px 0 } svg { border-radius: 4px; display: block } .small { display: none }\n"
    "@media (max-width: 760px) { .small { display: block } .large { display: none } } table { width: auto }\n";

static const char page_table[] = "</main>\n<div class=wide><table><thead><tr><th>";
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
