"""docs/tutorial.ipynb runs from top to bottom, its reports show as text and pages, and it is stored without outputs."""
import os
import sys

import pytest
from conftest import ROOT

nbformat = pytest.importorskip("nbformat")
client = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")


def test_tutorial(tmp_path, monkeypatch):
    notebook = nbformat.read(ROOT / "docs/tutorial.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert code and not any(c.outputs for c in code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("TEST_CACHE", str(tmp_path)))
    kernel = tmp_path / "kernels/python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(
        '{"argv": ["%s", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3", "language": "python"}'
        % sys.executable
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [str(o.data.get("text/html", o.data.get("text/plain", ""))) for c in code for o in c.outputs if "data" in o]
    text = "\n".join(shown)
    for part in ("launches", "arena", "Same numbers", "iframe", "1f1b", "(4, 10)"):
        assert part in text, part
    target = os.environ.get("NNC_NOTEBOOK")  # keeps what was executed, to look at it
    if target:
        nbformat.write(notebook, target)
