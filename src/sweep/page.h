/* sweep/page.h -- own style and script of the HTML page of a sweep, whose data is the JSON object P. */
#ifndef NNC_SWEEP_PAGE_H
#define NNC_SWEEP_PAGE_H

/* Charts are drawn twice, for wide and for narrow windows; dark mode inverts their lightness and keeps their hues. */
static const char page_style[] =
    "@media (prefers-color-scheme: dark) { svg { filter: invert(.92) hue-rotate(180deg) } }\n"
    "body { max-width: 1460px } p { white-space: pre-line } main { display: flex; flex-wrap: wrap }\n"
    "figure { margin: 8px 8px 8px 0 } svg { border-radius: 4px; display: block } .small { display: none }\n"
    "@media (max-width: 760px) { .small { display: block } .large { display: none } } table { width: auto }\n";

static const char page_script[] =
    "const four = v => v === null ? '' : String(+v.toPrecision(4));\n"
    "const kind = r => r.kind + (r.chunks > 1 ? ' in ' + r.chunks + ' chunks' : '') + (r.message ? ': ' + r.message : '');\n"
    "const share = r => r.limit && r.median_ms ? 100 * r.roofline_ms / r.median_ms : null;\n"
    "const number = r => P.series.findIndex(s => s.name == r.series);\n"
    "const columns = [[P.arg, r => r.size, r => r.size], ['series', number, r => r.series, 'l'],\n"
    "  ['ms', r => r.median_ms, r => four(r.median_ms)], ['GFLOP/s', r => r.gflop_s, r => four(r.gflop_s)],\n"
    "  ['GB/s', r => r.gb_s, r => four(r.gb_s)], ['limit, %', share, r => four(share(r))], ['of', r => r.limit, r => r.limit, 'l'],\n"
    "  ['MiB', r => r.memory_bytes, r => (r.memory_bytes / 1048576).toFixed(2)],\n"
    "  ['CPU, %', r => r.cpu_share, r => r.cpu_share === null ? '' : (100 * r.cpu_share).toFixed(0)], ['kind', kind, kind, 'l']];\n"
    "table(() => columns, word => P.rows.filter(r => (r.series + ' ' + kind(r)).toLowerCase().includes(word)))();\n";

#endif
