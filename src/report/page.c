/* report/page.c -- what nnc's HTML pages share: their style, in light and dark, their data, and a table that sorts and searches. */
#include "report/report.h"

static const char style[] =
    ":root { color-scheme: light dark; --ink: #1d2430; --paper: #fff; --soft: #667; --line: "
    "#d8dbe2; --bar: "
    "#e8ecf4 }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ink: #e4e7ee; --paper: #14171d; --soft: #9aa3b2; --line: #333a46; --bar: #2a3240 "
    "} }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); "
    "margin: 0 auto;\n"
    "  max-width: 1240px; padding: 16px }\n"
    "h1 { font-size: 22px; margin: 0 0 4px } p { margin: 6px 0; max-width: 90ch } .soft { color: "
    "var(--soft) }\n"
    "nav { margin: 14px 0 8px } button, input { font: inherit; color: inherit; background: none;\n"
    "  border: 1px solid var(--line); border-radius: 4px }\n"
    "button { padding: 2px 10px; margin: 0 4px 4px 0; cursor: pointer }\n"
    "button.on { background: var(--bar); font-weight: 600 }\n"
    "input { padding: 2px 8px; width: 14em; max-width: 100% }\n"
    ".wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: 14px }\n"
    "th, td { text-align: right; padding: 3px 9px; border-bottom: 1px solid var(--line); "
    "white-space: nowrap;\n"
    "  font-variant-numeric: tabular-nums }\n"
    "th { cursor: pointer; user-select: none; position: sticky; top: 0; background: var(--paper) "
    "}\n"
    "th.l, td.l { text-align: left } td.name { white-space: normal; min-width: 16em; "
    "overflow-wrap: anywhere }\n"
    "tbody tr:hover { background: var(--bar) }\n";

static const char table[] =
    "<nav id=by></nav><input id=find placeholder=\"rows that contain ...\" aria-label=\"rows that "
    "contain\">\n"
    "<div class=wide><table><thead></thead><tbody></tbody></table></div>\n";
/* table: a column is a list of its title, the value by which it sorts, its text, and its class (l: text, to the left). columns(): those
 * that are shown; rows(word): a list of the rows that contain it; put(tr, row, row before): called for each row. A click on a column
 * sorts by it, a second one the other way; rows without a value come last. tabs: buttons, one of them on. */
static const char script[] =
    "<script>\n"
    "const $ = id => document.getElementById(id), make = (tag, text, cls) => {\n"
    "  const e = document.createElement(tag); if (text !== undefined) e.textContent = text;\n"
    "  if (cls) e.className = cls; return e };\n"
    "let at = -1, down = true;\n"
    "function table(columns, rows, put) {\n"
    "  const show = () => {\n"
    "    const shown = columns(), list = rows($('find').value.toLowerCase()), head = make('tr'), "
    "none = v => v === null || v === '';\n"
    "    shown.forEach((c, k) => {\n"
    "      const h = make('th', c[0] + (k == at ? (down ? ' \\u2193' : ' \\u2191') : ''), c[3]);\n"
    "      h.onclick = () => { down = k == at ? !down : !(c[3] || '').startsWith('l'); at = k; "
    "show() };\n"
    "      head.append(h) });\n"
    "    document.querySelector('thead').replaceChildren(head);\n"
    "    if (at >= 0) { const f = shown[at][1]; list.sort((x, y) => { const a = f(x), b = f(y);\n"
    "      return none(a) || none(b) ? none(a) - none(b) : (a < b ? -1 : a > b ? 1 : 0) * (down ? "
    "-1 : 1) }) }\n"
    "    document.querySelector('tbody').replaceChildren(...list.map((r, i) => {\n"
    "      const tr = make('tr');\n"
    "      for (const c of shown) { const d = make('td', c[2](r), c[3]); d.dataset.of = c[0]; "
    "tr.append(d) }\n"
    "      if (put) put(tr, r, i ? list[i - 1] : null);\n"
    "      return tr })) };\n"
    "  $('find').oninput = show;\n"
    "  return show }\n"
    "function tabs(names, pick) {\n"
    "  const all = names.map(name => make('button', name));\n"
    "  all.forEach((b, i) => b.onclick = () => { pick(i); for (const x of all) x.className = x === "
    "b ? 'on' : '' });\n"
    "  $('by').append(...all);\n"
    "  return i => all[i].click() }\n"
    "const P = ";

void nnc_page_begin(nnc_text *out, const char *title, const char *own)
{
    nnc_printf(out,
        "<!doctype html>\n<html lang=en><meta charset=utf-8>\n"
        "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
        "<link rel=icon href=\"data:,\">\n<title>%s</title>\n<style>\n%s%s</style>\n",
        title, style, own);
}

void nnc_page_end(nnc_text *out, const char *after, const char *json, const char *own)
{
    nnc_puts(out, table);
    nnc_puts(out, after);
    nnc_puts(out, script);
    for (; *json; json++) /* "<" is escaped, or a string could end the script */
        *json == '<' ? nnc_puts(out, "\\u003c") : nnc_putc(out, *json);
    nnc_printf(out, ";\n%s</script>\n</html>\n", own);
}
