/* report/page.c -- what nnc's HTML pages share: their style, in light and dark, and how data is put into their scripts. */
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
    "button { font: inherit; color: inherit; background: none; border: 1px solid var(--line);\n"
    "  border-radius: 4px; padding: 2px 10px; margin: 0 4px 4px 0; cursor: pointer }\n"
    "button.on { background: var(--bar); font-weight: 600 }\n"
    "input { font: inherit; color: inherit; background: none; border: 1px solid var(--line); "
    "border-radius: 4px;\n"
    "  padding: 2px 8px; width: 14em; max-width: 100% }\n"
    ".wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: 14px }\n"
    "th, td { text-align: right; padding: 3px 9px; border-bottom: 1px solid var(--line); "
    "white-space: nowrap;\n"
    "  font-variant-numeric: tabular-nums }\n"
    "th { cursor: pointer; user-select: none; position: sticky; top: 0; background: var(--paper) "
    "}\n"
    "th.l, td.l { text-align: left } td.name { white-space: normal; min-width: 16em; "
    "overflow-wrap: anywhere }\n"
    "tbody tr:hover { background: var(--bar) }\n";

void nnc_page_begin(nnc_text *out, const char *title, const char *own)
{
    nnc_printf(out,
        "<!doctype html>\n<html lang=en><meta charset=utf-8>\n"
        "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
        "<link rel=icon href=\"data:,\">\n<title>%s</title>\n<style>\n%s%s</style>\n",
        title, style, own);
}

void nnc_page_data(nnc_text *out, const char *json)
{
    for (; *json; json++)
        *json == '<' ? nnc_puts(out, "\\u003c") : nnc_putc(out, *json);
}
