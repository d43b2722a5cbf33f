"""The stubs have the public names, methods and parameters of the package."""
import ast
import functools
import importlib
import inspect
from pathlib import Path

import pytest


@pytest.fixture(params=["nnc", "nnc.torch"])
def stubbed(request):
    """A module, and the definitions in its stubs by name."""
    if request.param == "nnc.torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    module = importlib.import_module(request.param)
    body = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text()).body
    names = {n.target.id: n for n in body if isinstance(n, ast.AnnAssign) and n.target.id in module.__all__}
    return module, names | {n.name: n for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}


def parameters(function):
    a = function.args
    names = [*a.posonlyargs, *a.args, *filter(None, [a.vararg]), *a.kwonlyargs, *filter(None, [a.kwarg])]
    return [n.arg for n in names]


def test_public_names(stubbed):
    module, defined = stubbed
    assert sorted(defined) == sorted(module.__all__)
    for name, node in defined.items():
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(getattr(module, name)).parameters), name
        if not isinstance(node, ast.AnnAssign):
            assert getattr(module, name).__doc__, name


def test_methods_and_docstrings(stubbed):
    module, defined = stubbed
    for node in defined.values():
        if not isinstance(node, ast.ClassDef) or node.name == "Tensor":
            continue
        made = getattr(module, node.name)
        methods = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
        public = [n for n, f in vars(made).items() if inspect.isfunction(f) and not n.startswith("_")]
        assert set(public) <= set(methods), node.name
        data = {n for n, f in vars(made).items() if isinstance(f, property) and not f.fset}
        assert not data & {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}, "can be set by the stubs alone"
        for name, f in methods.items():
            found = inspect.getattr_static(made, name)
            if not isinstance(found, (property, functools.cached_property)):
                assert parameters(f) == list(inspect.signature(getattr(made, name)).parameters), (node.name, name)
        for name in public:
            assert getattr(made, name).__doc__, (node.name, name)
