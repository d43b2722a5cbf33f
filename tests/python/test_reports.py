"""Reports, the program's commands, and training."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import nnc
from test_model import DENSE, MATMUL, close, numbers

NET = {
    "name": "net",
    "args": {"batch": 8},
    "inputs": {"x": ["batch", 4]},
    "layers": [{"op": "linear", "name": "fc", "out": 16}, "relu", {"op": "linear", "name": "out", "out": 2}],
}


def samples(n):
    x = numbers(n, 4, seed=5)
    return x, (x[:, 0] > x[:, 1]).astype("i8")


def test_compare_and_verify_of_a_model(tmp_path):
    model = nnc.compile(DENSE, weights={"fc.weight": numbers(4, 3), "fc.bias": numbers(4)}, math="exact", O=3)
    compared = model.compare(iterations=2, no_steps=True)
    assert compared.agrees and "fused" in str(compared) and isinstance(compared.to_dict(), dict)
    x = numbers(2, 3)
    verified = model.verify(inputs={"x": x}, against={"prob": model(x).prob})
    assert verified.agrees and verified.to_dict()["agree"] is True
    model.save(tmp_path / "m.nnc")
    assert nnc.load(tmp_path / "m.nnc").verify(inputs={"x": x}, against={"prob": model(x).prob}).agrees
    wrong = model.verify(inputs={"x": x}, against={"prob": model(x).prob + 1})
    assert wrong.agrees is False and "prob" in str(wrong)


def test_profile(tmp_path):
    profile = nnc.compile(DENSE, threads=1).profile(by="layer", iterations=2)
    assert profile.to_dict() and "ms" in repr(profile) and "<iframe" in profile._repr_html_()
    rows, page = tmp_path / "p.json", tmp_path / "p.html"  # the user's own files
    profile = nnc.compile(DENSE, threads=1).profile(json=rows, html=page, iterations=2)
    assert profile.to_dict() == json.loads(rows.read_text()) and "<iframe" in profile._repr_html_() and page.read_text()
    with pytest.raises(nnc.UsageError, match="did you mean"):
        nnc.compile(DENSE).profile(bye="layer")
    with pytest.warns(nnc.NncWarning, match="LLVM is switched off"):
        assert nnc.compile(DENSE, threads=1, no_llvm=True, tune=False).profile(iterations=1, mode=None).to_dict()


def test_partition_and_sweep():
    parts = nnc.partition(NET, devices=2, mode="step", target="cuda:sm_80", strategy=["single", "data"])
    assert parts.fits and "data" in str(parts) and isinstance(parts.to_dict(), (dict, list))
    assert tempfile.gettempdir() not in f"{parts} {parts.to_dict()}", "the report names a file that is gone"
    rows = nnc.sweep(NET, set={"batch": "1..4x2"}, iterations=1, warmup=0)
    assert "batch" in str(rows) and rows.to_dict()
    assert len(nnc.sweep(NET, set={"batch": [1, 2]}, iterations=1, warmup=0).to_dict()["rows"]) == len(rows.to_dict()["rows"]) - 1


def test_commands(tmp_path):
    assert "fc" in str(nnc.command("show", NET)) and "[3,4]" in str(nnc.command("show", NET, set={"batch": np.int64(3)}))
    assert isinstance(nnc.command("ops").to_dict(), (dict, list))
    with pytest.raises(nnc.ModelError) as caught:
        nnc.command("check", {"layers": [3]})
    assert caught.value.file == "<dict>"
    with pytest.raises(nnc.UsageError, match="did you mean show"):
        nnc.command("shaw", NET)
    with pytest.raises(nnc.UsageError, match="nnc version prints no JSON"):
        nnc.command("version").to_dict()


def test_a_forked_process_leaves_its_parents_files(in_child):
    made = [nnc.command("show", NET)]
    in_child(made.clear)
    assert made[0].to_dict()


def test_train(tmp_path):
    x, target = samples(256)
    trained = nnc.train(NET, {"x": x, "target": target}, epochs=6, lr=0.1, optimizer="adam")
    assert len(trained.losses) == 6 and trained.losses[-1] < trained.losses[0]
    assert set(trained.weights) == {"fc.weight", "fc.bias", "out.weight", "out.bias"}
    y = nnc.compile(NET, set={"batch": 256}, weights=trained.weights)(x)[0]
    assert (y.argmax(1) == target).mean() > 0.9
    kept = nnc.train(NET, {"x": x, "target": target}, epochs=6, lr=0.1, optimizer="adam", save=str(tmp_path / "w.safetensors"))
    assert kept.weights is None and kept.losses == trained.losses
    again = nnc.compile(NET, set={"batch": 256}, weights=tmp_path / "w.safetensors")
    assert (again(x)[0] == y).all()
    for data in ({"x": x}, {"x": x, "target": target[1:]}):
        with pytest.raises(nnc.Error, match="^<data>:.* target"):
            nnc.train(NET, data)
    with pytest.raises(nnc.DiffersError, match="finite"):
        nnc.train(NET, {"x": x, "target": target}, epochs=6, lr=1e30)


def test_interrupted_training_writes_its_checkpoint(tmp_path):
    x, target = samples(4096)
    np.savez(tmp_path / "data.npz", x=x, target=target)
    (tmp_path / "net.json").write_text(json.dumps(NET))
    work = "import nnc; nnc.train('net.json', 'data.npz', epochs=1000000, checkpoint='c.npz', log='log.json')"
    given = {**os.environ, "PYTHONPATH": str(Path(nnc.__file__).parents[1])}
    child = subprocess.Popen([sys.executable, "-c", work], cwd=tmp_path, env=given, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not (tmp_path / "log.json").exists():
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in child.communicate(timeout=60)[1]
    steps = max(json.loads(line).get("step", 0) for line in (tmp_path / "log.json").read_text().splitlines())
    more = nnc.train(NET, {"x": x, "target": target}, steps=steps + 2, epochs=1000000, checkpoint=tmp_path / "c.npz", resume=True)
    assert [r["step"] for r in more.to_dict() if "step" in r] == [steps + 1, steps + 2]


def test_trainer(tmp_path):
    x, target = samples(64)
    trainer = nnc.Trainer(NET, optimizer="sgd", lr=0.1, grad_inputs=True, seed=3)
    assert [t.name for t in trainer.inputs] == ["x", "target"] and np.isnan(trainer.loss)
    first = trainer.evaluate(x[:8], target[:8])
    assert trainer.steps == 0 and 0 <= trainer.correct <= 8
    assert trainer.step(x[:8], target=target[:8]) == pytest.approx(first)
    assert trainer.gradient("x").shape == (8, 4)
    trainer.write_checkpoint(tmp_path / "c.npz")
    losses = [trainer.step(x[i : i + 8], target[i : i + 8]) for i in range(8, 64, 8)]
    again = nnc.Trainer(NET, optimizer="sgd", lr=0.1, grad_inputs=True, seed=3)
    again.read_checkpoint(tmp_path / "c.npz")
    assert [again.step(x[i : i + 8], target[i : i + 8]) for i in range(8, 64, 8)] == losses
    weights = trainer.weights()
    trainer.save(tmp_path / "w.npz")
    assert (np.load(tmp_path / "w.npz")["fc.weight"] == weights["fc.weight"]).all()
    trainer.rate = 0.5
    assert trainer.rate == 0.5 and trainer.steps == 8 and "8 steps" in repr(trainer)
    h = np.maximum(x[:8] @ weights["fc.weight"].T + weights["fc.bias"], 0)
    close(nnc.compile(NET, weights=weights)(x[:8])[0], h @ weights["out.weight"].T + weights["out.bias"])
    with pytest.raises(nnc.UsageError, match="missing input: target"):
        trainer.step(x[:8])


def test_onnx_from_memory(tmp_path):
    onnx = pytest.importorskip("onnx")
    w = numbers(300, 64)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["n", 300])],
        [onnx.helper.make_tensor_value_info("y", 1, ["n", 64])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    for given in (proto, proto.SerializeToString()):
        model = nnc.compile(given)
        del given
        for n in (1, 5):
            x = numbers(n, 300)
            close(model.specialize(shapes={"x": (n, 300)})(x).y, x.astype("f8") @ w)
        model.save(tmp_path / "m.nnc")
        close(nnc.load(tmp_path / "m.nnc").specialize(shapes={"x": (5, 300)})(x).y, x.astype("f8") @ w)


def test_onnx_bytes_that_nnc_wrote(tmp_path):
    w, x = numbers(300, 64), numbers(2, 300)
    text = MATMUL.replace("[3,4]", "[300,64]").replace("[2,3]", "[2,300]")
    model = nnc.compile(text, weights={"w": w})
    model = nnc.compile(model.emit("onnx"))
    close(model(x)[0], x.astype("f8") @ w)
    model.save(tmp_path / "m.nnc")
    del model
    close(nnc.load(tmp_path / "m.nnc")(x)[0], x.astype("f8") @ w)


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    w = torch.nn.Parameter(torch.randn(3, 4))
    x, y, z = torch.randn(2, 3), torch.empty(2, 4), torch.empty(2, 4)
    model = nnc.compile(MATMUL, weights={"w": w})
    out = model(x, out=(y, z))
    assert out[0] is y
    torch.testing.assert_close(y, (x @ w).detach())
    assert (model(torch._neg_view(x))[0] == -model(x)[0]).all()
    half = nnc.compile(MATMUL.replace("f32", "bf16"), weights={"w": w.bfloat16()})
    y, z = y.bfloat16(), z.bfloat16()
    half(x.bfloat16(), out=(y, z))
    torch.testing.assert_close(y, (x.bfloat16().float() @ w.bfloat16().float()).bfloat16(), rtol=1e-2, atol=1e-2)
    assert half.verify(inputs={"x": x.bfloat16()}, against={"y": y, "relu.z": z}).agrees
    y = torch._neg_view(x) @ w
    assert model.verify(inputs={"x": torch._neg_view(x)}, against={"y": y, "relu.z": y.relu()}).agrees


def test_modules_of_pytorch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("nnc.torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 3)
    for args in ((x,), x):
        close(nnc.compile(net, args)(x)[0], net(x).detach().numpy())
    with pytest.raises(nnc.UsageError, match="its own"):
        nnc.compile(net, (x,), weights=net.state_dict())


def test_reports_are_json_in_files(tmp_path):
    file = tmp_path / "p.json"
    given = nnc.command("profile", NET, json=str(file), iterations=1)
    assert "ms" in str(given) and json.loads(file.read_text())
