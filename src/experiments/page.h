/* experiments/page.h -- own style and script of the HTML page of a report, whose data is the JSON object P. */
#ifndef NNC_EXPERIMENTS_PAGE_H
#define NNC_EXPERIMENTS_PAGE_H

static const char page_style[] =
    "#about { border-left: 3px solid var(--line); padding: 2px 0 2px 12px; margin: 10px 0 }\n"
    "#about p { overflow-wrap: anywhere } code { font-size: 13px }\n"
    "td.name { min-width: 8em } td.on { white-space: normal; min-width: 8em } tbody tr { cursor: pointer }\n"
    "tr.on { background: var(--bar) } .near { color: #2e8540 } .far { color: #c2571a }\n"
    "@media (prefers-color-scheme: dark) { .near { color: #6fcf87 } .far { color: #f0a060 } }\n"
    "@media (max-width: 700px) {\n"
    "  table, thead, tbody { display: block } thead tr { display: flex; flex-wrap: wrap } tbody tr { display: block;\n"
    "    border-bottom: 2px solid var(--line); padding: 6px 0 } th { position: static }\n"
    "  td { display: flex; justify-content: space-between; gap: 1em; border: 0; white-space: normal; text-align: right }\n"
    "  td::before { content: attr(data-of); color: var(--soft); text-align: left; white-space: nowrap }\n"
    "  td.name { min-width: 0; font-weight: 600 }\n"
    "  td:empty { display: none } }\n";

static const char page_head[] =
    "<h1>Published experiments</h1><p id=head class=soft></p><p id=sum></p><div id=about hidden></div>\n";
static const char page_after[] =
    "<p class=soft>over: predicted or measured here, over what was published. * measured with smaller sizes. A row shows\n"
    "its source and its doubts when it is clicked.</p>\n";

static const char page_script[] =
    "const four = v => Math.abs(v) >= 1000 ? v.toFixed(0) : String(+v.toPrecision(4));\n"
    "const isTime = n => !['ratio', 'allreduces', 'largest'].includes(n.what);\n"
    "const unit = n => n.what == 'allreduces' ? ' %' : isTime(n) ? ' ms' : '';\n"
    "const value = (n, v, is, star) => v === null ? (is == 'does not fit' || is == 'failed' ? is : '') : four(v) + unit(n) + star;\n"
    "const published = n => n.published_low === null && n.low === null ? '' : n.low === null\n"
    "  ? four(n.published_low) + (n.published_high > n.published_low ? '-' + four(n.published_high) : '') + ' ' + n.unit\n"
    "  : four(n.low) + (n.high > n.low ? '-' + four(n.high) : '') + unit(n);\n"
    "const rows = P.experiments.flatMap(e => e.runs.flatMap(r => r.numbers.map(n => ({e, r, n}))));\n"
    "const columns = [['experiment', x => x.e.title, x => x.e.title, 'l name'],\n"
    "  ['run', x => x.r.name, x => x.r.name, 'l name'],\n"
    "  ['number', x => x.n.what, x => x.n.what == 'ratio' ? 'over ' + x.n.to : x.n.what, 'l name'],\n"
    "  ['published', x => x.n.low, x => published(x.n)],\n"
    "  ['predicted', x => x.n.predicted, x => value(x.n, x.n.predicted, x.n.predicted_is, '')],\n"
    "  ['over', x => x.n.predicted_over, x => x.n.predicted_over === null ? '' : x.n.predicted_over.toFixed(2), 'over'],\n"
    "  ['here', x => x.n.here, x => value(x.n, x.n.here, x.n.here_is, x.n.reduced ? ' *' : '')],\n"
    "  ['over', x => x.n.here_over, x => x.n.here_over === null ? '' : x.n.here_over.toFixed(2), 'over'],\n"
    "  ['predicted for', x => x.n.predicted_on, x => x.n.predicted_on, 'l on']];\n"
    "const near = v => v <= P.near && v >= 1 / P.near;\n"
    "const all = rows.filter(x => x.n.predicted_over !== null), ok = all.filter(x => near(x.n.predicted_over));\n"
    "$('head').textContent = P.experiments.length + ' experiments, ' + rows.length + ' numbers. ' +\n"
    "  (P.here ? 'Measured here: ' + P.here + '.' : 'Nothing was measured here.');\n"
    "if (all.length) $('sum').textContent = ok.length + ' of ' + all.length +\n"
    "  ' predictions are within a factor of ' + P.near + ' of what was published.';\n"
    "let only = null, open = null;\n"
    "const word = s => /^[\\w./:=,@%+-]+$/.test(s) ? s : \"'\" + s.replaceAll(\"'\", \"'\\\\''\") + \"'\";\n"
    "function tell(x) {\n"
    "  const a = $('about'); a.replaceChildren(); a.hidden = !x; if (!x) return;\n"
    "  const line = (head, s) => { if (s) a.append(make('p', head + s)) };\n"
    "  a.append(make('b', x.e.title + ': ' + x.r.name)); line('', x.e.about); line('Published for: ', x.e.machine);\n"
    "  line('Predicted for: ', x.n.predicted_on);\n"
    "  const p = make('p'), words = [...x.r.arguments, '--hardware=' + x.r.hardware]; a.append(p);\n"
    "  p.append(make('code', (x.n.what == 'largest' ? 'nnc memory ' : 'nnc profile ') + words.map(word).join(' ')));\n"
    "  line('Predicted: ', x.r.predicted_note); line('Here with ', x.n.reduced); line('Here: ', x.r.here_note);\n"
    "  line('Note: ', x.r.note); line('Source: ', x.e.source); line('Doubts: ', x.e.doubts) }\n"
    "const show = table(() => columns, word => rows.filter(x => (!only || x.e === only) &&\n"
    "  (x.e.title + ' ' + x.r.name + ' ' + x.n.what).toLowerCase().includes(word)), (tr, x, before) => {\n"
    "  if (at < 0 && before && before.e === x.e) tr.firstChild.textContent = '';\n"
    "  if (x === open) tr.className = 'on';\n"
    "  tr.onclick = () => { open = open === x ? null : x; tell(open); show() };\n"
    "  columns.forEach((c, k) => { const v = c[1](x);\n"
    "    if (c[3] == 'over' && v !== null) tr.children[k].classList.add(near(v) ? 'near' : 'far') }) });\n"
    "tabs(['all', ...P.experiments.map(e => e.title)], i => { only = i ? P.experiments[i - 1] : null; show() })(0);\n";

#endif
