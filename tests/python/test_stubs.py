"""The stubs have the public names, methods and parameters of the package."""
import ast
import inspect
from pathlib import Path

import nnc

STUBS = ast.parse(Path(nnc.__file__).with_suffix(".pyi").read_text())


def parameters(function):
    a = function.args
    names = [*a.posonlyargs, *a.args, *filter(None, [a.vararg]), *a.kwonlyargs, *filter(None, [a.kwarg])]
    return [n.arg for n in names]


def test_public_names():
    defined = {n.name: n for n in STUBS.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    assert sorted(defined) == sorted(nnc.__all__)
    for name, node in defined.items():
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(getattr(nnc, name)).parameters), name


def test_methods_and_docstrings():
    for node in STUBS.body:
        if not isinstance(node, ast.ClassDef) or node.name == "Tensor":
            continue
        made = getattr(nnc, node.name)
        stubbed = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
        public = [n for n, f in vars(made).items() if inspect.isfunction(f) and not n.startswith("_")]
        assert set(public) <= set(stubbed), node.name
        for name, f in stubbed.items():
            assert parameters(f) == list(inspect.signature(getattr(made, name)).parameters), (node.name, name)
        for name in [*public, None]:
            assert (getattr(made, name) if name else made).__doc__, (node.name, name)
    assert all(getattr(nnc, name).__doc__ for name in nnc.__all__)
