#!/bin/sh
# tests/page.sh SOURCE BUILD -- the page of nnc profile in a browser: no error, tables of all kinds, sorting, searching.
set -u
source=$1
nnc=$2/nnc
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "SKIP: no Chromium to show the page"
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
"$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$dir/user" --enable-logging=stderr \
    --window-size=400,800 --dump-dom "file://$dir/p.html" >"$dir/dom" 2>"$dir/log"
grep -q '<title>said true true true true true true true true true true true true true true true</title>' "$dir/dom" || {
    echo "FAIL: $(grep -o '<title>.*</title>' "$dir/dom")"
    grep CONSOLE "$dir/log"
    exit 1
}
if grep CONSOLE "$dir/log"; then
    echo "FAIL: the browser's console is not empty"
    exit 1
fi
echo "1 passed, 0 failed, 0 skipped"
