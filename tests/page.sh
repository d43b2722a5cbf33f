#!/bin/sh
# tests/page.sh SOURCE BUILD -- nnc's pages in a browser: no error, tables of all kinds, sorting, searching, charts.
set -u
source=$1
nnc=$2/nnc
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "skipped: there is no Chromium to show the page"
    exit 77
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME="${TEST_CACHE:-$dir/cache}" NNC_CUDA_PATH=/nowhere
# Against the prediction for another machine, of which some fused kernels are others.
"$nnc" profile "$source/models/resnet50.json" --hardware="$source/models/hardware/cpu.json" --format=json >"$dir/old.json" || exit 1
"$nnc" profile "$source/models/resnet50.json" --hardware="$source/models/hardware/a100x8.json" --against="$dir/old.json" --html="$dir/p.html" \
    >/dev/null || exit 1
# Drives the page, and leaves what it sees in the document's title.
cat >>"$dir/p.html" <<'END'
<script>
{
const cells = k => [...document.querySelectorAll('tbody tr')].map(r => r.children[k].textContent), said = [];
said.push(document.querySelectorAll('#bars i').length == P.rows.command.length);
document.querySelectorAll('th')[0].click();
const ms = cells(0).map(Number);
said.push(ms.length == P.rows.command.length && ms.every((v, i) => !i || ms[i - 1] >= v));
document.querySelectorAll('th')[0].click();
const up = cells(0).map(Number);
said.push(up.every((v, i) => !i || up[i - 1] <= v));
for (const b of document.querySelectorAll('nav button')) {
  b.click();
  said.push(cells(0).length == P.rows[b.textContent].length && b.className == 'on');
}
document.querySelectorAll('nav button')[0].click();
document.getElementById('find').value = 'layer4';
document.getElementById('find').oninput();
said.push(cells(2).length > 0 && cells(2).length < P.rows.command.length && cells(2).every(s => s.includes('layer4')));
document.querySelector('#bars i').onmouseenter();
said.push(document.getElementById('tip').textContent.includes(' ms, '));
// Columns of the comparison: of rows by command alone.
document.querySelectorAll('nav button')[0].click();
const heads = () => [...document.querySelectorAll('th')].map(h => h.textContent), value = document.getElementById('find');
value.value = '';
value.oninput();
said.push(heads().includes('there, ms') && document.getElementById('against').textContent.includes('Largest differences: '));
said.push(cells(4).every((s, i) => s == 'new' ? cells(3)[i] == '' : s == 'gone' || s == '' || Number(s) > 0));
document.querySelectorAll('nav button')[3].click();
said.push(!heads().includes('ratio'));
document.title = 'said ' + said.join(' ');
}
</script>
END
# show PAGE COUNT: the page says `true` so many times, and nothing on the console.
show() {
    "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$dir/user" --enable-logging=stderr \
        --window-size=400,800 --dump-dom "file://$dir/$1" >"$dir/dom" 2>"$dir/log"
    said=$(grep -o '<title>said .*</title>' "$dir/dom")
    [ "$said" = "<title>said$(printf ' true%.0s' $(seq "$2"))</title>" ] || {
        echo "FAIL: $1: $said"
        grep CONSOLE "$dir/log"
        exit 1
    }
    if grep CONSOLE "$dir/log"; then
        echo "FAIL: $1: the browser's console is not empty"
        exit 1
    fi
}
show p.html 16
"$nnc" sweep "$source/models/matmul.json" --set dim=1..32768x2 --target=cuda:sm_61,cuda:sm_90 --html="$dir/s.html" >/dev/null || exit 1
# Of the charts, those for narrow windows are shown, and fit in.
cat >>"$dir/s.html" <<'END'
<script>
{
const cells = k => [...document.querySelectorAll('tbody tr')].map(r => r.children[k].textContent), said = [];
const rising = k => cells(k).map(parseFloat).every((v, i, all) => !i || !(all[i - 1] > v));
const click = k => document.querySelectorAll('th')[k].click();
said.push(cells(0).length == 32 && rising(0));
click(2);
said.push(rising(2) === false && document.querySelectorAll('th')[2].textContent == 'ms \u2193');
click(2);
said.push(rising(2) && document.querySelectorAll('th')[2].textContent == 'ms \u2191');
click(1);
said.push(cells(1).slice(0, 16).every(s => s == 'cuda:sm_61') && document.querySelectorAll('th')[2].textContent == 'ms');
const charts = [...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width > 0);
said.push(charts.length == 3 && charts.every(s => s.getBoundingClientRect().right <= window.innerWidth));
said.push(charts.every(s => s.querySelectorAll('path').length >= 2 && s.querySelectorAll('circle title').length == 32));
said.push(document.documentElement.scrollWidth <= window.innerWidth);
document.title = 'said ' + said.join(' ');
}
</script>
END
show s.html 7
"$nnc" report "$source/tests/cli/experiments" --budget=0 --html="$dir/r.html" >/dev/null || exit 1
cat >>"$dir/r.html" <<'END'
<script>
{
const texts = k => [...document.querySelectorAll('tbody tr')].map(r => r.children[k].textContent), said = [];
said.push(texts(0).length == rows.length && document.getElementById('about').hidden);
document.querySelectorAll('th')[5].click();
const over = texts(5).filter(Boolean).map(Number);
said.push(over.length > 3 && over.every((v, i) => !i || over[i - 1] >= v) && texts(5).indexOf('') == over.length);
document.querySelector('tbody tr').click();
said.push(document.getElementById('about').textContent.includes('made up') && document.querySelectorAll('tr.on').length == 1);
document.querySelectorAll('nav button')[2].click();
said.push(texts(1).every(s => s == 'in one run' || s == 'of none'));
document.querySelectorAll('nav button')[0].click();
document.getElementById('find').value = 'allreduces';
document.getElementById('find').oninput();
said.push(texts(2).length == 1 && texts(2)[0] == 'allreduces');
document.title = 'said ' + said.join(' ');
}
</script>
END
show r.html 5
echo "3 passed, 0 failed, 0 skipped"
