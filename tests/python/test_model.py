"""Compiling, calling, saving: numbers against NumPy's in float64."""
import copy
import doctest
import gc
import json
import pickle
import threading
import types
import warnings
import weakref

import numpy as np
import pytest

import nnc

MATMUL = """graph @net {
  %x = input : f32[2,3]
  %w = param : f32[3,4] = gen("w", seed=0, scale=1)
  %y = matmul %x, %w
  %z = relu %y
  return %y, %z as "relu.z"
}
"""
DENSE = {
    "name": "dense",
    "args": {"batch": 2},
    "inputs": {"x": ["batch", 3]},
    "layers": [{"op": "linear", "name": "fc", "out": 4}, {"op": "softmax", "name": "prob"}],
}


def numbers(*shape, seed=0, dtype="f4"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def dense(x, w, b):
    y = x.astype("f8") @ w.astype("f8").T + b
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


def test_graph_text_with_weights_in_memory():
    x, w = numbers(2, 3), numbers(3, 4, seed=1)
    y = nnc.compile(MATMUL, weights={"w": w})(x)
    close(y[0], x @ w)
    close(y["relu.z"], np.maximum(x @ w, 0))
    assert y.keys() == ("y", "relu.z") and y.y is y[0] and dict(y)["y"] is y[0]
    a, b = y
    assert a is y[0] and b is y[1]


def test_weights_are_read_in_place_at_the_first_call():
    w = np.zeros((3, 4), "f4")
    model = nnc.compile(MATMUL, weights={"w": w})
    w[...] = numbers(3, 4, seed=2)
    x = numbers(2, 3)
    close(model(x)[0], x @ w)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_dict_by_name_and_dtype_of_weights(dtype):
    w, b, x = numbers(4, 3, dtype=dtype), numbers(4, seed=3, dtype=dtype), numbers(2, 3)
    model = nnc.compile(DENSE, weights={"fc.weight": w, "fc.bias": b})
    assert model.inputs == (nnc.Tensor("x", "f32", (2, 3)),)
    assert model.outputs == (nnc.Tensor("prob", "f32", (2, 4)),)
    y = model(x=x)
    close(y.prob, dense(x, w, b))
    close(np.asarray(y), dense(x, w, b))


def test_byte_order_and_views_of_weights():
    w, x = numbers(3, 4, seed=1), numbers(2, 3)
    want = nnc.compile(MATMUL, weights={"w": w})(x)[0]
    for same in (w.astype(">f4"), np.asfortranarray(w), np.repeat(w, 2, axis=1)[:, ::2]):
        assert (nnc.compile(MATMUL, weights={"w": same})(x)[0] == want).all()
    bits = np.full((3, 4), 0x3F80, "u2").view("V2")  # ones in bf16, as np.load has them of files that nnc writes
    y = nnc.compile(MATMUL.replace("f32", "bf16"), weights={"w": bits})(np.full((2, 3), 0x3F80, "u2"))[0]
    assert (y.view("u2") == 0x4040).all()


def test_specialize_keeps_weights():
    w, b = numbers(4, 3), numbers(4, seed=3)
    model = nnc.compile(DENSE, weights={"fc.weight": w, "fc.bias": b})
    for batch in (5, 1, 5):
        x = numbers(batch, 3, seed=batch)
        other = model.specialize(set={"batch": batch})
        close(other(x).prob, dense(x, w, b))
    del model
    close(other(x).prob, dense(x, w, b))


def test_save_and_load(tmp_path):
    w, b, x = numbers(4, 3), numbers(4, seed=3), numbers(2, 3)
    model = nnc.compile(DENSE, weights={"fc.weight": w, "fc.bias": b})
    want = model(x).prob
    model.save(tmp_path / "m.nnc")
    del model
    loaded = nnc.load(tmp_path / "m.nnc")
    assert (loaded(x).prob == want).all()
    with pytest.raises(nnc.UsageError, match="is in memory"):
        nnc.compile(MATMUL, weights={"w": numbers(3, 4)}).save(tmp_path / "beside.nnc", embed=False)
    wide = numbers(7, 3)
    close(loaded.specialize(set={"batch": 7})(wide).prob, dense(wide, w, b))


def test_path_and_text_of_a_model(tmp_path, models):
    file = tmp_path / "dense.json"
    file.write_text(json.dumps(DENSE))
    x = numbers(2, 3)
    want = nnc.compile(DENSE, seed=4)(x).prob
    for given in (file, str(file), json.dumps(DENSE), json.dumps(DENSE).encode()):
        assert (nnc.compile(given, seed=4)(x).prob == want).all()
    assert nnc.compile(models / "mlp.json", set={"batch": 3}).inputs[0].shape == (3, 784)


@pytest.mark.parametrize("file", ["README.md", "docs/python.md"])
def test_examples_of_documents(file, models, tmp_path, monkeypatch):
    (tmp_path / "models").symlink_to(models)
    bad = DENSE | {"layers": [{"op": "linear", "name": "fc", "oot": 4}]}
    (tmp_path / "net.json").write_text(json.dumps(bad, indent=1))
    monkeypatch.chdir(tmp_path)
    text = (models.parent / file).read_text().replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {"nnc": nnc, "np": np}, file, file, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(examples).attempted > 1 and runner.failures == 0


def test_arrays_that_are_not_contiguous_and_lists():
    model = nnc.compile(MATMUL, seed=1)
    x = numbers(2, 3)
    want = model(x)[0]
    assert (model(np.asfortranarray(x))[0] == want).all()
    assert (model(np.repeat(x, 2, axis=1)[:, ::2])[0] == want).all()
    assert (model(x.tolist())[0] == want).all()
    assert (model(memoryview(x))[0] == want).all()
    assert (model(x.astype(">f4").view(">f4").astype("=f4"))[0] == want).all()


def test_outputs_into_the_callers_memory():
    model = nnc.compile(MATMUL, seed=1)
    x = numbers(2, 3)
    y, z = np.empty((2, 4), "f4"), np.empty((2, 4), "f4")
    result = model(x, out=(y, z))
    assert result[0] is y and result[1] is z and (y == model(x)[0]).all()
    with pytest.raises(nnc.UsageError, match="contiguous"):
        model(x, out=(np.empty((4, 2), "f4").T, z))
    for one in ((y,), y):
        with pytest.raises(nnc.UsageError, match="1 arrays for 2 outputs"):
            model(x, out=one)


def test_outputs_are_copied_and_pickled():
    y = nnc.compile(MATMUL, seed=1)(numbers(2, 3))
    for same in (copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        assert same.keys() == y.keys() and (same["relu.z"] == y["relu.z"]).all()


def test_models_and_reports_are_copied_and_pickled():
    x = numbers(2, 3)
    model = nnc.compile(MATMUL, weights={"w": numbers(3, 4)}, threads=1)
    assert copy.copy(model) is model and copy.deepcopy(model) is model
    same = pickle.loads(pickle.dumps(model))
    gc.collect()
    assert (same(x)[0] == model(x)[0]).all() and same._machine == model._machine
    for report in (model.memory(), nnc.command("show", DENSE)):
        again = pickle.loads(pickle.dumps(report))
        assert again.to_dict() == report.to_dict() and str(again) == str(report) and again.fits == report.fits
    for other in (model.session(), nnc.Trainer(DENSE, optimizer="sgd", lr=0.1)):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            pickle.dumps(other)


def test_outputs_without_elements():
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Slice", ["x", "none", "none", "axis"], ["y"]), onnx.helper.make_node("Neg", ["x"], ["z"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 3])],
        [onnx.helper.make_tensor_value_info("y", 1, [2, 0]), onnx.helper.make_tensor_value_info("z", 1, [2, 3])],
        [onnx.numpy_helper.from_array(np.array([k]), n) for k, n in ((0, "none"), (1, "axis"))],
    )
    model = nnc.compile(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    x, out = numbers(2, 3), [np.empty(t.shape, "f4") for t in model.outputs]
    y = model(x, out=out)
    assert y.y.shape == (2, 0) and (y.z == -x).all() and y.z is out[model.outputs.index(nnc.Tensor("z", "f32", (2, 3)))]


def test_sessions_in_place():
    model = nnc.compile(MATMUL, weights={"w": numbers(3, 4, seed=1)})
    session = model.session()
    one, copies = nnc.compile(MATMUL.replace("return %y, %z as \"relu.z\"", "return %z"), seed=1).session(), []
    for k in range(3):
        x = numbers(2, 3, seed=k)
        session.inputs["x"][...] = x
        y = session.run()
        assert (y.y == model(x).y).all() and (y[1] == model(x)[1]).all()
        one.inputs["x"][...] = x
        copies.append(np.array(one.run()))
    assert (copies[0] != copies[1]).any(), "the next run has written into a copy"
    with pytest.raises(TypeError):
        session.inputs["x"] = x  # it would not be the session's memory
    kept = y.y
    want = kept.copy()
    del session, y, model
    assert (kept == want).all()  # an array keeps its memory


def test_errors_are_located(tmp_path):
    file = tmp_path / "bad.json"
    file.write_text('{\n "name": "bad",\n "inputs": {"x": [1, 3]},\n "layers": [\n  {"op": "linear", "oot": 4}\n ]\n}\n')
    with pytest.raises(nnc.ModelError) as caught:
        nnc.compile(file)
    error = caught.value
    assert (error.file, error.line, error.code) == (str(file), 5, 3)
    assert "oot" in str(error) and isinstance(error, ValueError) and isinstance(error, nnc.Error)
    with pytest.raises(nnc.UsageError, match="did you mean math") as caught:
        nnc.compile(DENSE, mat="exact")
    assert caught.value.code == 2
    with pytest.raises(nnc.UsageError, match="math"):
        nnc.compile(DENSE, math="exat")
    with pytest.raises(nnc.UsageError, match=r'an argument of a model file is set={"batch": 2}'):
        nnc.compile(DENSE, batch=2)
    with pytest.raises(nnc.UsageError, match="of a torch.nn.Module"):
        nnc.compile(DENSE, {"batch": 2})
    with pytest.raises(nnc.DeviceError):
        nnc.compile(tmp_path / "absent.json")
    with pytest.raises(nnc.ModelError, match="no compiled model"):
        nnc.load(file)
    with pytest.raises(nnc.ModelError, match="weights"):
        nnc.compile(DENSE, weights={"fc.weight": numbers(4, 3)})
    for weights in ({}, 3):
        with pytest.raises(nnc.UsageError, match="a mapping from names to arrays"):
            nnc.compile(DENSE, weights=weights)
    with pytest.raises(nnc.UsageError, match="no dtype"):
        nnc.compile(DENSE, weights={"fc.weight": np.zeros(3, "c8")})
    with pytest.raises(nnc.UsageError, match="int is no source of a model"):
        nnc.compile(3)
    with pytest.raises(nnc.ModelError, match="contains itself"):
        nnc.compile(DENSE | {"layers": (itself := []).append(itself) or itself})
    for wrong in ({1: numbers(3, 4)}, {"w": [[1], [1, 2]]}):
        with pytest.raises(nnc.UsageError, match="weight"):
            nnc.compile(MATMUL, weights=wrong)
    for f in (nnc.load, nnc.compile(MATMUL).save):
        with pytest.raises(nnc.UsageError, match="a path is expected"):
            f(None)
        with pytest.raises(nnc.UsageError, match="is no path"):
            f("a\0b")


def test_numbers_of_numpy_in_a_dict():
    n, shape = np.int64(4), np.array([2, 3])
    net = types.MappingProxyType({"inputs": {"x": shape}, "layers": [{"op": "linear", "name": "fc", "out": n, "bias": np.bool_(False)}]})
    model = nnc.compile(net)
    assert model.inputs[0].shape == (2, 3) and model.outputs[0].shape == (2, 4)
    for wrong, layer in (({"out": {3}}, "/layers/0/out"), ({"out": [1, b"2"]}, "/layers/0/out/1"), ({"out": 3, 4: 5}, "/layers/0")):
        with pytest.raises(nnc.ModelError) as caught:
            nnc.compile({"inputs": {"x": [2, 3]}, "layers": [{"op": "linear", **wrong}]})
        assert (caught.value.file, caught.value.layer) == ("<dict>", layer)


def test_wrong_inputs():
    model = nnc.compile(MATMUL)
    with pytest.raises(nnc.UsageError, match=r'astype\("float32"\)'):
        model(np.zeros((2, 3)))
    with pytest.raises(nnc.UsageError, match=r"float32\[3, 2\]; the model has f32\[2, 3\]"):
        model(np.zeros((3, 2), "f4"))
    for ragged in ([[1], [1, 2]], [["a"]]):
        with pytest.raises(nnc.UsageError, match="input x: "):
            model(ragged)
    with pytest.raises(nnc.UsageError, match="missing input: x"):
        model()
    with pytest.raises(nnc.UsageError, match="no input z; it has x"):
        model(z=numbers(2, 3))
    with pytest.raises(nnc.UsageError, match="twice"):
        model(numbers(2, 3), x=numbers(2, 3))
    with pytest.raises(nnc.UsageError, match="2 arrays for 1 input"):
        model(numbers(2, 3), numbers(2, 3))
    with pytest.raises(AttributeError, match="it has y, relu.z"):
        model(numbers(2, 3)).prob


def test_warnings_are_pythons():
    weights = {"w": numbers(3, 4), "unused": numbers(2)}
    with pytest.warns(nnc.NncWarning, match="unused") as caught:
        nnc.compile(MATMUL, weights=weights)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nnc.compile(MATMUL)


def test_threads_share_models_and_the_machine():
    shared = nnc.compile(DENSE, threads=1)
    wrong = []

    def work(k):
        model = shared if k % 2 else nnc.compile(DENSE, threads=1)
        x = numbers(2, 3, seed=k)
        want = model(x).prob
        for _ in range(50):
            if not (model(x).prob == want).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


WIDE = {
    "name": "wide",
    "inputs": {"x": [128, 256]},
    "layers": [
        {"op": "linear", "name": "a", "in": "x", "out": 256},
        {"op": "linear", "name": "b", "in": "x", "out": 256},
        {"op": "add", "name": "sum", "in": ["a", "b"]},
        {"op": "softmax", "name": "prob"},
    ],
}


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 3}, {"threads": 4, "streams": 2}])
def test_a_forked_process_goes_on(in_child, options):
    model, x = nnc.compile(WIDE, **options), numbers(128, 256)
    want = model(x)[0]
    session = model.session()

    def again():
        for _ in range(3):
            assert (model(x)[0] == want).all()
        session.inputs["x"][...] = x
        assert (session.run()[0] == want).all()
        assert (nnc.compile(WIDE, **options)(x)[0] == want).all()

    in_child(again)
    in_child(lambda: None)  # ends without a run
    assert (model(x)[0] == want).all()


def test_forks_while_threads_compile(in_child):
    stop = threading.Event()

    def compile_on():
        n = 1
        while not stop.is_set():
            nnc.compile(DENSE, set={"batch": n})(numbers(n, 3))
            n += 1

    thread = threading.Thread(target=compile_on)
    thread.start()
    try:
        for n in range(5):
            in_child(lambda n=n: nnc.compile(DENSE, set={"batch": 100 + n})(numbers(100 + n, 3)))
    finally:
        stop.set()
        thread.join()


def test_reports(models):
    model = nnc.compile(models / "mlp.json", set={"batch": 4})
    memory = model.memory()
    assert memory.fits is True and "MiB" in str(memory) and isinstance(memory.to_dict(), (dict, list)) and "<pre" in memory._repr_html_()
    explained = model.explain()
    assert repr(explained) == str(explained) and explained.to_dict()
    assert b"graph @" in model.emit("graph")
    assert repr(model) == "<nnc.Model (x: f32[4, 784]) -> (prob: f32[4, 10])>"


def test_models_are_freed_at_once_and_in_cycles():
    gc.disable()
    try:
        model = nnc.compile(MATMUL, weights={"w": numbers(3, 4)})
        model(numbers(2, 3))
        gone = [weakref.ref(h) for h in (model, model._artifact, model._free[0]._session)]
        del model
        assert [g() for g in gone] == [None] * 3
    finally:
        gc.enable()
    for _ in range(20):  # the collector finalizes the objects of a cycle in any order
        cycle = [nnc.compile(MATMUL, weights={"w": numbers(3, 4)})]
        cycle[0](numbers(2, 3))
        cycle.append(cycle[0].session())
        cycle.append(cycle)
        del cycle
        gc.collect()


def test_a_thousand_models_leave_no_memory():
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    x = numbers(2, 3)
    w = numbers(3, 4)
    for k in range(1000):
        nnc.compile(MATMUL, weights={"w": w})(x)
        if k == 200:
            before = resident()
    assert resident() - before < 8 << 20
