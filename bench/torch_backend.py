#!/usr/bin/env python3
"""Runs models of torchvision, timm and transformers with random weights through torch.compile(backend="nnc"), and prints for each: whether
nnc runs it whole (or in how many programs, and which aten ops PyTorch runs), the largest errors of it and of eager
against float64 over the largest magnitude, the time to the first result, and the run time beside eager's, timed in turn.

    python3 bench/torch_backend.py --venv DIR                     all models
    ... --only resnet18,bert                                      these, or whole families: vision, timm, text
    ... --inductor                                                torch.compile's own backend, too
    ... --threads 2 --rounds 5                                    rounds 0: without run times
    ... --rows FILE --budget 1800                                 adds rows to FILE, one a line, for half an hour; the same command again
                                                                  goes on with the models that FILE does not have

A model gets --limit seconds; then it has failed. Exit code: 1 where a model failed, or an error is far beyond eager's.

Run times are the best of the rounds and their median, in ms. nnc's
seconds are those of lowering and nnc.compile; the rest of the first result is Dynamo, AOTAutograd, packing of weights and the run. CPU
seconds have inductor's compilers in them only with TORCHINDUCTOR_COMPILE_THREADS=1. Needs the package nnc in DIR or on
PYTHONPATH."""

import argparse
import copy
import gc
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
import warnings

VISION = """alexnet vgg16 resnet18 resnet50 resnet101 resnext50_32x4d densenet121 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
    efficientnet_b0 efficientnet_b3 efficientnet_v2_s googlenet inception_v3 squeezenet1_1 shufflenet_v2_x1_0 mnasnet1_0 regnet_y_400mf
    convnext_tiny vit_b_16 swin_t swin_v2_t maxvit_t""".split()
VIDEO = "r3d_18 s3d mvit_v1_b".split()
DETECTION = "ssdlite320_mobilenet_v3_large fasterrcnn_mobilenet_v3_large_320_fpn".split()
SEGMENTATION = "fcn_resnet50 deeplabv3_resnet50 lraspp_mobilenet_v3_large".split()
TIMM = """resnet50 efficientnet_b0 convnext_nano vit_small_patch16_224 deit_tiny_patch16_224 mixer_s32_224 resmlp_12_224 gmlp_s16_224
    regnety_004 nf_resnet50 dm_nfnet_f0 ghostnet_100 hrnet_w18_small mobilenetv4_conv_small mobilevit_s levit_128s coat_lite_tiny
    pit_ti_224 cait_xxs24_224 beit_base_patch16_224 eva02_tiny_patch14_224 swin_tiny_patch4_window7_224 tf_efficientnetv2_b0 fastvit_t8
    edgenext_small poolformer_s12 volo_d1_224 xcit_nano_12_p16_224 convnextv2_atto maxvit_tiny_tf_224 inception_v4 xception41 res2net50_26w_4s
    resnest14d skresnet18 seresnet50 gcresnet33ts eca_halonext26ts botnet26t_256 lambda_resnet26t efficientformer_l1 efficientformerv2_s0
    efficientvit_b0 efficientvit_m0 repvgg_a0 repvit_m1 mobileone_s0 crossvit_tiny_240 twins_svt_small tnt_s_patch16_224 convit_tiny
    convmixer_768_32 visformer_tiny nest_tiny pvt_v2_b0 davit_tiny focalnet_tiny_srf mvitv2_tiny hiera_tiny_224 tiny_vit_5m_224
    vit_base_patch16_siglip_224 inception_next_tiny starnet_s1 ghostnetv2_100 lcnet_050 dla34 dpn68 cspdarknet53 rexnet_100 sequencer2d_s
    vgg11 swinv2_tiny_window8_256 mobilevitv2_050 deit3_small_patch16_224 coatnet_0_rw_224 nfnet_l0 hardcorenas_a selecsls42 gernet_s""".split()
TEXT = """bert roberta distilbert albert electra deberta gpt2 gpt_neox opt llama qwen2 mistral gemma phi mamba t5 bart whisper vit_hf clip
    mpnet xlnet""".split()
HF = """segformer detr swin swinv2 convnext convnextv2 dinov2 deit beit mobilevit resnet regnet pvt levit poolformer vit_mae yolos vilt siglip
    wav2vec2 hubert wavlm audio_spectrogram_transformer mobilebert squeezebert convbert roformer camembert deberta_v1 fnet funnel big_bird
    longformer xlm layoutlm gptj gpt_neo bloom falcon mpt gpt_bigcode starcoder2 phi3 gemma2 gemma3 qwen3 olmo2 stablelm cohere mixtral rwkv
    mamba2 codegen mbart pegasus marian blenderbot m2m_100 led modernbert patchtst informer videomae timesformer""".split()


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


def hf_model(name):
    """Further architectures of transformers: small configurations, with its defaults for images."""
    import torch
    import transformers as tf

    ids = torch.randint(3, 1000, (2, 64))
    mask = torch.ones_like(ids)
    mask[1, 50:] = 0
    text = {"input_ids": ids, "attention_mask": mask}
    image = {"pixel_values": torch.randn(1, 3, 224, 224)}
    audio = {"input_values": torch.randn(1, 16000)}
    bert = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512}
    gpt = {"vocab_size": 1000, "n_embd": 256, "n_layer": 3, "n_head": 4, "use_cache": False}
    llama = {**bert, "num_key_value_heads": 2, "max_position_embeddings": 128, "use_cache": False, "pad_token_id": 0}
    half = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    bart = {"vocab_size": 1000, "d_model": 256, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "use_cache": False, **half}
    both = {**text, "decoder_input_ids": ids[:, :20]}
    vit = {"num_hidden_layers": 3}
    speech = {"num_hidden_layers": 3, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 512}
    window = {"past_values": torch.randn(2, 64, 3)}
    times = {"past_time_features": torch.randn(2, 71, 1), "past_observed_mask": torch.ones(2, 71)}
    future = {"future_values": torch.randn(2, 8), "future_time_features": torch.randn(2, 8, 1)}
    found = {
        "segformer": ("Segformer", {}, image),
        "detr": ("Detr", {"use_pretrained_backbone": False, "encoder_layers": 2, "decoder_layers": 2}, image),
        "swin": ("Swin", {}, image),
        "swinv2": ("Swinv2", {}, image),
        "convnext": ("ConvNext", {}, image),
        "convnextv2": ("ConvNextV2", {}, image),
        "dinov2": ("Dinov2", vit, image),
        "deit": ("DeiT", vit, image),
        "beit": ("Beit", vit, image),
        "mobilevit": ("MobileViT", {}, image),
        "resnet": ("ResNet", {}, image),
        "regnet": ("RegNet", {}, image),
        "pvt": ("Pvt", {}, image),
        "levit": ("Levit", {}, image),
        "poolformer": ("PoolFormer", {}, image),
        "vit_mae": ("ViTMAE", {**vit, "mask_ratio": 0.0}, {**image, "noise": torch.rand(1, 196)}),
        "yolos": ("Yolos", {**vit, "image_size": [224, 224]}, image),
        "vilt": ("Vilt", {**vit, "image_size": 224}, {"input_ids": ids[:1, :40], "pixel_values": torch.randn(1, 3, 224, 224)}),
        "siglip": (
            "Siglip",
            {"text_config": {**bert, "max_position_embeddings": 64}, "vision_config": speech},
            {"input_ids": ids[:1], **image},
        ),
        "wav2vec2": ("Wav2Vec2", speech, audio),
        "hubert": ("Hubert", speech, audio),
        "wavlm": ("WavLM", speech, audio),
        "audio_spectrogram_transformer": ("AST", vit, {"input_values": torch.randn(1, 1024, 128)}),
        "mobilebert": ("MobileBert", {"vocab_size": 1000, "num_hidden_layers": 3}, text),
        "squeezebert": ("SqueezeBert", {**bert, "embedding_size": 256}, text),
        "convbert": ("ConvBert", {**bert, "embedding_size": 256}, text),
        "roformer": ("RoFormer", bert, text),
        "camembert": ("Camembert", bert, text),
        "deberta_v1": ("Deberta", {**bert, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, text),
        "fnet": ("FNet", bert, {"input_ids": ids}),
        "funnel": ("Funnel", {"vocab_size": 1000, "block_sizes": [1, 1], "d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 512}, text),
        "big_bird": ("BigBird", {**bert, "attention_type": "original_full"}, text),
        "longformer": ("Longformer", {**bert, "attention_window": 16}, text),
        "xlm": ("XLM", {"vocab_size": 1000, "emb_dim": 256, "n_layers": 3, "n_heads": 4}, text),
        "layoutlm": ("LayoutLM", bert, text),
        "gptj": ("GPTJ", {**gpt, "rotary_dim": 32}, text),
        "gpt_neo": ("GPTNeo", {"vocab_size": 1000, "hidden_size": 256, "num_layers": 2, "num_heads": 4, "use_cache": False, "attention_types": [[["global", "local"], 1]]}, text),
        "bloom": ("Bloom", {"vocab_size": 1000, "hidden_size": 256, "n_layer": 3, "n_head": 4, "use_cache": False}, text),
        "falcon": ("Falcon", {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "use_cache": False}, text),
        "mpt": ("Mpt", {"vocab_size": 1000, "d_model": 256, "n_layers": 3, "n_heads": 4, "use_cache": False}, text),
        "gpt_bigcode": ("GPTBigCode", gpt, text),
        "starcoder2": ("Starcoder2", llama, text),
        "phi3": ("Phi3", llama, text),
        "gemma2": ("Gemma2", {**llama, "head_dim": 64}, text),
        "gemma3": ("Gemma3Text", {**llama, "head_dim": 64}, text),
        "qwen3": ("Qwen3", {**llama, "head_dim": 64}, text),
        "olmo2": ("Olmo2", llama, text),
        "stablelm": ("StableLm", llama, text),
        "cohere": ("Cohere", llama, text),
        "mixtral": ("Mixtral", {**llama, "num_local_experts": 4}, text),
        "rwkv": ("Rwkv", {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2, "use_cache": False}, {"input_ids": ids[:, :16]}),
        "mamba2": ("Mamba2", {"vocab_size": 1000, "hidden_size": 128, "num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 1, "num_hidden_layers": 2, "use_cache": False}, {"input_ids": ids[:, :32]}),
        "codegen": ("CodeGen", {**gpt, "rotary_dim": 32}, text),
        "mbart": ("MBart", bart, both),
        "pegasus": ("Pegasus", bart, both),
        "marian": ("Marian", {**bart, "pad_token_id": 0, "decoder_start_token_id": 0, "bos_token_id": 1}, both),
        "blenderbot": ("Blenderbot", bart, both),
        "m2m_100": ("M2M100", bart, both),
        "led": ("LED", {**bart, "attention_window": 16}, both),
        "modernbert": ("ModernBert", {**bert, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}, text),
        "patchtst": ("PatchTST", {"num_input_channels": 3, "context_length": 64, "patch_length": 8, "patch_stride": 8}, window),
        "informer": ("Informer", {"prediction_length": 8, "context_length": 64, "num_time_features": 1, "attention_type": "full"}, {"past_values": torch.randn(2, 71), **times, **future}),
        "videomae": ("VideoMAE", vit, {"pixel_values": torch.randn(1, 16, 3, 224, 224)}),
        "timesformer": ("Timesformer", {"num_hidden_layers": 2}, {"pixel_values": torch.randn(1, 8, 3, 224, 224)}),
    }  # fmt: skip
    kind, config, inputs = found[name]
    return getattr(tf, kind + "Model")(getattr(tf, kind + "Config")(**config)), inputs


def build(name):
    """A model by its name, "FAMILY.NAME", and its arguments."""
    import torch

    torch.manual_seed(0)
    family, _, name = name.partition(".")
    if family in ("text", "hf"):
        return (text_model if family == "text" else hf_model)(name)
    if family == "timm":
        import timm

        model = timm.create_model(name, pretrained=False)
        return model, {"x": torch.randn(1, *model.default_cfg["input_size"])}
    import torchvision

    source = torchvision.models if family == "vision" else getattr(torchvision.models, family)
    more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    shape = {"video": (1, 3, 16, 224, 224), "detection": (1, 3, 320, 320)}
    size = 299 if name == "inception_v3" else 224
    if family in ("segmentation", "detection"):
        more = {"weights_backbone": None}
    return getattr(source, name)(weights=None, **more), {"x": torch.randn(*shape.get(family, (1, 3, size, size)))}


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
            model(torch.cat([kwargs["x"], kwargs["x"].flip(-1) * 1.5])) if "x" in kwargs else model(**kwargs)
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
    """The largest difference over the largest magnitude of an output; the largest of all outputs, NaN where one is NaN."""
    import torch

    pairs = [(p.double(), q.double()) for p, q in zip(got, exact, strict=True)]
    return float(torch.stack([(p - q).abs().max() / q.abs().max().clamp(min=1e-30) for p, q in pairs]).max())


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
    torch._dynamo.config.allow_rnn = True
    gc.collect()
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
        try:
            exact = in_float64(model, args, kwargs)
        except (RuntimeError, TypeError):  # a model that asks for float32 itself is compared with eager
            exact = None
        runs = {"eager": model, "nnc": torch.compile(model, backend=nt.backend)}
        if a.inductor:
            runs["inductor"] = torch.compile(model)
        for kind, f in runs.items():
            start, used = time.perf_counter(), sum(os.times()[:4])
            try:
                y = tensors(f(*args, **kwargs))
            except Exception as e:
                if kind != "inductor":
                    raise
                row["inductor_failed"] = type(e).__name__
                break
            row[kind + "_first"] = time.perf_counter() - start
            row[kind + "_first_cpu"] = sum(os.times()[:4]) - used
            if kind == "eager":
                want = y
            elif kind == "nnc":
                row["error"] = error(y, exact or want)
                row["eager_error"] = error(want, exact) if exact else math.nan
                for r in nt.reports:
                    seen += list(r.missing)
                row["graphs"], row["programs"] = len(nt.reports), sum(r.parts for r in nt.reports)
                row["whole"] = len(nt.reports) == 1 and nt.reports[0].whole
                row["missing"] = sorted(set(seen))
                row["nnc_seconds"] = sum(r.seconds for r in nt.reports)
        times = {kind: [] for kind in runs if kind + "_first" in row}
        for _ in range(a.rounds):
            for kind in times:
                f = runs[kind]
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
    first = " ".join("%s %.2f/%.2f" % (k, r[k + "_first"], r.get(k + "_first_cpu", math.nan)) for k in ("nnc", "inductor") if k + "_first" in r)
    first += " (%.2f nnc's)%s" % (r["nnc_seconds"], " inductor failed: " + r["inductor_failed"] if "inductor_failed" in r else "")
    print(
        "%-38s %-22s error %.1e (eager %.1e)  first s/CPU s: %s  ms: %s  %s"
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
    p.add_argument("--rows", help="file of rows, one a line: those in it are not measured again")
    p.add_argument("--budget", type=float, default=1e9, help="seconds after which no further model is begun")
    p.add_argument("--limit", type=float, default=600, help="seconds of a model")
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
    families = {"vision": VISION, "segmentation": SEGMENTATION, "video": VIDEO, "detection": DETECTION, "timm": TIMM, "text": TEXT, "hf": HF}
    only = a.only.split(",") if a.only else []
    known = {w for f, names in families.items() for n in names for w in (f, n, f"{f}.{n}")}
    if unknown := sorted(set(only) - known):
        p.error("--only: no model or family is named " + ", ".join(unknown))
    left = [f"{f}.{n}" for f, names in families.items() for n in names if not only or {f"{f}.{n}", n, f} & set(only)]
    rows = []
    if a.rows and os.path.exists(a.rows):
        with open(a.rows) as f:
            rows = [r for r in map(json.loads, f) if r["model"] in left]
        left = [n for n in left if n not in [r["model"] for r in rows]]
        for r in rows:
            print_row(r)
    rows += list(measured(left, a))
    summarize(rows)
    return int(any(wrong(r) for r in rows))


def measured(left, a):
    """Measures the models one after another, in a process that ends with one that fails; writes and prints the rows."""
    end = time.monotonic() + a.budget
    while left and time.monotonic() < end:
        flags = ["--threads", a.threads, "--rounds", a.rounds, "--duration", a.duration, *["--inductor"] * a.inductor]
        child = subprocess.Popen(
            [os.path.join(a.venv, "bin", "python") if a.venv else sys.executable, __file__, "--one", ",".join(left), *map(str, flags)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(a.threads)},
        )
        lines = queue.Queue()
        threading.Thread(target=forward, args=(child.stdout, lines), daemon=True).start()
        while left and time.monotonic() < end:
            row = result(lines, child, left[0], a.limit)
            left.pop(0)
            if a.rows:
                with open(a.rows, "a") as f:
                    f.write(json.dumps(row) + "\n")
            print_row(row)
            yield row
            if child.poll() is not None:
                break
        child.kill()
        child.wait()


def forward(stream, lines):
    for line in stream:
        lines.put(line)
    lines.put("")


def result(lines, child, name, limit):
    """The row of this model, which the child works on."""
    try:
        while line := lines.get(timeout=limit):
            if line.startswith("RESULT "):
                return json.loads(line[7:])
        return {"model": name, "failed": "exit %d" % child.wait()}
    except queue.Empty:
        child.kill()
        child.wait()
        return {"model": name, "failed": "no result in %g s" % limit}


def mean_ratio(rows, kind):
    """The geometric mean of this kind's run times over nnc's."""
    return math.exp(statistics.fmean(math.log(r[kind][0] / r["nnc"][0]) for r in rows))


def wrong(row):
    """Whether a model failed, or nnc's results are not those of float64 or eager; NaN is wrong."""
    return "failed" in row or not row["error"] <= 20 * max(1e-6, row["eager_error"])


def summarize(rows):
    done = [r for r in rows if "failed" not in r]
    print("%d models, %d whole, %d failed" % (len(rows), sum(r["whole"] for r in done), len(rows) - len(done)))
    if found := [r["model"] for r in done if wrong(r)]:
        print("wrong: " + ", ".join(found))
    for kind in ("eager", "inductor"):
        timed = [r for r in done if kind in r]
        if timed:
            slower = sorted((r[kind][0] / r["nnc"][0], r["model"]) for r in timed)
            least = ", ".join("%.2f %s" % x for x in slower[:5])
            print("%s / nnc: geometric mean %.2f of %d models; least %s" % (kind, mean_ratio(timed, kind), len(timed), least))
    both = [r for r in done if r.get("inductor_first")]
    if both:
        for what, key in (("first result", "_first"), ("CPU time until then", "_first_cpu")):
            seconds = [statistics.median(r.get(k + key, math.nan) for r in both) for k in ("nnc", "inductor")]
            print("%s: median %.1f s, inductor %.1f s, of %d models" % (what, *seconds, len(both)))


if __name__ == "__main__":
    sys.exit(main())
