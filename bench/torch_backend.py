#!/usr/bin/env python3
"""Runs models of torchvision, timm and transformers with random weights through torch.compile(backend="nnc"), and prints for each: whether
nnc runs it whole (or in how many programs, and which aten ops PyTorch runs), the largest errors of it and of eager
against float64 over the largest magnitude, the time to the first result, and the run time beside eager's, timed in turn.

    python3 bench/torch_backend.py --venv DIR                     all models
    ... --only resnet18,bert                                      these
    ... --inductor                                                torch.compile's own backend, too
    ... --threads 2 --rounds 5                                    rounds 0: without run times

Run times are the best of the rounds and their median, in ms. nnc's
seconds are those of lowering and nnc.compile; the rest of the first result is Dynamo, AOTAutograd, packing of weights and the run. Needs the package nnc in DIR or on
PYTHONPATH."""

import argparse
import copy
import json
import os
import subprocess
import sys
import time
import warnings

VISION = """alexnet vgg16 resnet18 resnet50 resnet101 resnext50_32x4d densenet121 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
    efficientnet_b0 efficientnet_b3 efficientnet_v2_s googlenet inception_v3 squeezenet1_1 shufflenet_v2_x1_0 mnasnet1_0 regnet_y_400mf
    convnext_tiny vit_b_16 swin_t swin_v2_t maxvit_t""".split()
SEGMENTATION = "fcn_resnet50 deeplabv3_resnet50 lraspp_mobilenet_v3_large".split()
TIMM = """resnet50 efficientnet_b0 convnext_nano vit_small_patch16_224 deit_tiny_patch16_224 mixer_s32_224 resmlp_12_224 gmlp_s16_224
    regnety_004 nf_resnet50 dm_nfnet_f0 ghostnet_100 hrnet_w18_small mobilenetv4_conv_small mobilevit_s levit_128s coat_lite_tiny
    pit_ti_224 cait_xxs24_224 beit_base_patch16_224 eva02_tiny_patch14_224 swin_tiny_patch4_window7_224 tf_efficientnetv2_b0 fastvit_t8
    edgenext_small poolformer_s12 volo_d1_224 xcit_nano_12_p16_224""".split()
TEXT = """bert roberta distilbert albert electra deberta gpt2 gpt_neox opt llama qwen2 mistral gemma phi mamba t5 bart whisper vit_hf clip
    mpnet xlnet""".split()


def text_model(name):
    """A small configuration of the architecture, and its inputs."""
    import torch
    import transformers as tf

    ids = torch.randint(0, 1000, (2, 64))
    mask = torch.ones_like(ids)
    mask[1, 50:] = 0
    small = {"vocab_size": 1000}
    bert = {**small, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    llama = {**bert, "num_key_value_heads": 2, "max_position_embeddings": 128}
    mel = torch.randn(1, 80, 3000)
    pixels = torch.randn(1, 3, 224, 224)
    make = {
        "bert": lambda: (tf.BertModel(tf.BertConfig(**bert)), {"input_ids": ids, "attention_mask": mask}),
        "roberta": lambda: (tf.RobertaModel(tf.RobertaConfig(**bert)), {"input_ids": ids, "attention_mask": mask}),
        "electra": lambda: (tf.ElectraModel(tf.ElectraConfig(**bert)), {"input_ids": ids, "attention_mask": mask}),
        "albert": lambda: (tf.AlbertModel(tf.AlbertConfig(**bert)), {"input_ids": ids, "attention_mask": mask}),
        "mpnet": lambda: (tf.MPNetModel(tf.MPNetConfig(**bert)), {"input_ids": ids, "attention_mask": mask}),
        "deberta": lambda: (tf.DebertaV2Model(tf.DebertaV2Config(**bert)), {"input_ids": ids, "attention_mask": mask}),
        "xlnet": lambda: (tf.XLNetModel(tf.XLNetConfig(**small, d_model=256, n_layer=4, n_head=4, d_inner=1024)), {"input_ids": ids}),
        "distilbert": lambda: (
            tf.DistilBertModel(tf.DistilBertConfig(**small, dim=256, n_layers=4, n_heads=4, hidden_dim=1024)),
            {"input_ids": ids, "attention_mask": mask},
        ),
        "gpt2": lambda: (tf.GPT2LMHeadModel(tf.GPT2Config(**small, n_embd=256, n_layer=4, n_head=4, use_cache=False)), {"input_ids": ids}),
        "gpt_neox": lambda: (tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**bert, use_cache=False)), {"input_ids": ids}),
        "opt": lambda: (
            tf.OPTForCausalLM(
                tf.OPTConfig(
                    **small,
                    hidden_size=256,
                    word_embed_proj_dim=256,
                    num_hidden_layers=4,
                    num_attention_heads=4,
                    ffn_dim=1024,
                    use_cache=False,
                )
            ),
            {"input_ids": ids, "attention_mask": mask},
        ),
        "llama": lambda: (tf.LlamaForCausalLM(tf.LlamaConfig(**llama, use_cache=False)), {"input_ids": ids, "attention_mask": mask}),
        "qwen2": lambda: (tf.Qwen2ForCausalLM(tf.Qwen2Config(**llama, use_cache=False)), {"input_ids": ids}),
        "mistral": lambda: (tf.MistralForCausalLM(tf.MistralConfig(**llama, use_cache=False)), {"input_ids": ids}),
        "gemma": lambda: (tf.GemmaForCausalLM(tf.GemmaConfig(**llama, head_dim=64, use_cache=False)), {"input_ids": ids}),
        "phi": lambda: (tf.PhiForCausalLM(tf.PhiConfig(**bert, use_cache=False)), {"input_ids": ids}),
        "mamba": lambda: (
            tf.MambaForCausalLM(tf.MambaConfig(**small, hidden_size=128, num_hidden_layers=2, use_cache=False)),
            {"input_ids": ids[:, :16]},
        ),
        "t5": lambda: (
            tf.T5Model(tf.T5Config(**small, d_model=256, d_kv=64, d_ff=1024, num_layers=3, num_heads=4, use_cache=False)),
            {"input_ids": ids, "decoder_input_ids": ids[:, :20]},
        ),
        "bart": lambda: (
            tf.BartModel(
                tf.BartConfig(
                    **small,
                    d_model=256,
                    encoder_layers=3,
                    decoder_layers=3,
                    encoder_attention_heads=4,
                    decoder_attention_heads=4,
                    encoder_ffn_dim=1024,
                    decoder_ffn_dim=1024,
                    use_cache=False,
                )
            ),
            {"input_ids": ids},
        ),
        "whisper": lambda: (tf.WhisperModel(tf.WhisperConfig(use_cache=False)), {"input_features": mel, "decoder_input_ids": ids[:1, :8]}),
        "vit_hf": lambda: (tf.ViTModel(tf.ViTConfig(num_hidden_layers=4)), {"pixel_values": pixels}),
        "clip": lambda: (
            tf.CLIPModel(
                tf.CLIPConfig(
                    text_config={**bert, "max_position_embeddings": 64, "eos_token_id": 2},
                    vision_config={"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
                )
            ),
            {"input_ids": ids, "pixel_values": pixels, "attention_mask": mask},
        ),
    }
    return make[name]()


def build(name):
    """A model by its name, "FAMILY.NAME", and its arguments."""
    import torch

    torch.manual_seed(0)
    family, _, name = name.partition(".")
    if family == "text":
        return text_model(name)
    size = 299 if name == "inception_v3" else 224
    if family == "timm":
        import timm

        return timm.create_model(name, pretrained=False), {"x": torch.randn(1, 3, 224, 224)}
    import torchvision

    source = torchvision.models.segmentation if family == "segmentation" else torchvision.models
    more = (
        {"weights_backbone": None} if family == "segmentation" else {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    )
    return getattr(source, name)(weights=None, **more), {"x": torch.randn(1, 3, size, size)}


def adapt(model, kwargs):
    """Gives BatchNorm the statistics of this input, and zeros random values: with the initial weights a deep net would compute little else
    than its last bias."""
    import torch

    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for m in norms:
        m.momentum = None
        m.reset_running_stats()
        m.train()
    if norms:
        with torch.no_grad():
            model(torch.cat([kwargs["x"], kwargs["x"].flip(-1) * 1.5]))
    with torch.no_grad():
        for p in model.parameters():  # such as heads that begin as zeros
            if not p.any():
                p.normal_(0, 0.02)
    model.eval()


def tensors(y):
    import torch
    from torch.utils import _pytree as pytree

    if hasattr(y, "to_tuple"):
        y = y.to_tuple()
    return [t for t in pytree.tree_leaves(y) if isinstance(t, torch.Tensor)]


def error(got, exact):
    """The largest difference over the largest magnitude of an output; the largest of all outputs."""
    return max(
        float((p.double() - q.double()).abs().max() / q.double().abs().max().clamp(min=1e-30)) for p, q in zip(got, exact, strict=True)
    )


def in_float64(model, args, kwargs):
    import torch

    def wide(x):
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return tensors(copy.deepcopy(model).double()(*map(wide, args), **{k: wide(v) for k, v in kwargs.items()}))


def measure(name, a):
    import torch
    import nnc.torch as nt

    torch.set_num_threads(a.threads)
    torch._dynamo.reset()
    del nt.reports[:]
    model, kwargs = build(name)
    model.eval()
    adapt(model, kwargs)
    args = ()
    if "x" in kwargs:
        args, kwargs = (kwargs["x"],), {}
    row = {"model": name}
    seen = []
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = in_float64(model, args, kwargs)
        runs = {"eager": model, "nnc": torch.compile(model, backend=nt.backend)}
        if a.inductor:
            runs["inductor"] = torch.compile(model)
        for kind, f in runs.items():
            start = time.perf_counter()
            y = tensors(f(*args, **kwargs))
            row[kind + "_first"] = time.perf_counter() - start
            if kind == "eager":
                want = y
            elif kind == "nnc":
                row["error"], row["eager_error"] = error(y, exact), error(want, exact)
                for r in nt.reports:
                    seen += list(r.missing)
                row["graphs"], row["programs"] = len(nt.reports), sum(r.parts for r in nt.reports)
                row["whole"] = len(nt.reports) == 1 and nt.reports[0].whole
                row["missing"] = sorted(set(seen))
                row["nnc_seconds"] = sum(r.seconds for r in nt.reports)
        times = {kind: [] for kind in runs}
        for _ in range(a.rounds):
            for kind, f in runs.items():
                f(*args, **kwargs)
                start, n = time.perf_counter(), 0
                while n < 2 or time.perf_counter() - start < a.duration:
                    f(*args, **kwargs)
                    n += 1
                times[kind].append((time.perf_counter() - start) / n * 1e3)
        for kind, t in times.items():
            if t:
                row[kind] = [min(t), sorted(t)[len(t) // 2]]
    return row


def print_row(r):
    if "failed" in r:
        print("%-38s failed: %s" % (r["model"], r["failed"]), flush=True)
        return
    what = "whole" if r["whole"] else "%d graphs, %d programs" % (r["graphs"], r["programs"])
    cells = " ".join("%s %.2f/%.2f" % (k, *r[k]) for k in ("eager", "nnc", "inductor") if k in r)
    first = " ".join("%s %.2f" % (k, r[k + "_first"]) for k in ("nnc", "inductor") if k in r) + " (%.2f nnc's)" % r["nnc_seconds"]
    print(
        "%-38s %-22s error %.1e (eager %.1e)  first s: %s  ms: %s  %s"
        % (r["model"], what, r["error"], r["eager_error"], first, cells, ", ".join(r["missing"])),
        flush=True,
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--venv")
    p.add_argument("--only", default="")
    p.add_argument("--inductor", action="store_true")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--duration", type=float, default=0.3, help="seconds of a round")
    p.add_argument("--json")
    p.add_argument("--one", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one:
        for name in a.one.split(","):
            try:
                row = measure(name, a)
            except Exception as e:  # of a model, of any kind: the others go on
                row = {"model": name, "failed": "%s: %s" % (type(e).__name__, " ".join(str(e).split())[:200])}
            print("RESULT " + json.dumps(row), flush=True)
        return 0
    python = os.path.join(a.venv, "bin", "python") if a.venv else sys.executable
    names = (
        ["vision." + n for n in VISION]
        + ["segmentation." + n for n in SEGMENTATION]
        + ["timm." + n for n in TIMM]
        + ["text." + n for n in TEXT]
    )
    only = a.only.split(",") if a.only else []
    left = [n for n in names if not only or n in only or n.partition(".")[2] in only or n.partition(".")[0] in only]
    rows = []
    while left:  # a process that ends in the middle of a model leaves the others to the next one
        command = [
            python,
            __file__,
            "--one",
            ",".join(left),
            "--threads",
            str(a.threads),
            "--rounds",
            str(a.rounds),
            "--duration",
            str(a.duration),
        ]
        child = subprocess.Popen(
            command + ["--inductor"] * a.inductor,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(a.threads)},
        )
        for line in child.stdout:
            if line.startswith("RESULT "):
                rows.append(json.loads(line[7:]))
                left.remove(rows[-1]["model"])
                print_row(rows[-1])
        if child.wait() and left:
            rows.append({"model": left.pop(0), "failed": "exit %d" % child.returncode})
            print_row(rows[-1])
    done = [r for r in rows if "failed" not in r]
    print("%d models, %d whole, %d failed" % (len(rows), sum(r["whole"] for r in done), len(rows) - len(done)))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
