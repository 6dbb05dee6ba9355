"""Writes architectures of timm, torchvision, transformers, MONAI and segmentation_models_pytorch, and holds each plan
against the module in float64.

    python benchmarks/zoo.py RECORD.json [--of timm,torchvision,transformers,monai,segmentation_models_pytorch]
        [--only bert,swin] [--seconds 150]

On a CPU, without a kernel being built: a network is traced at a small input, planned, written, the file is run over
tensors without elements, forward and backward, and the plan is carried out in float64 beside the module, where that
takes eager less than SECONDS_A_CALL. Of timm it is the smallest model of each family, of transformers two layers of an
architecture, of MONAI what segments volumes, narrow. Weights are drawn, nothing is fetched. The libraries are not
installed along; what is not there is left out, and said. RECORD is written after each network, and what is in it is
left as it is.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.metadata
import json
import platform
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/plan")]

from test_networks import compare  # noqa: E402

from crucible.capture import trace  # noqa: E402
from crucible.emission.file import emit  # noqa: E402
from crucible.errors import CrucibleError  # noqa: E402
from crucible.plan.planner import fuse  # noqa: E402
from crucible.trial import check_runs  # noqa: E402

SECONDS_A_CALL = 2.0
NEAR = 3e-6
"""Of the largest value: the norms of 16 layers, which ask for float32, come to 1.5e-6 (gemma4_vit_167m)."""
SMALL = ("tiny", "nano", "atto", "pico", "_xxs", "_s", "18", "small", "mini", "lite")
"""In names of timm's models, of which the first with one of these is taken."""
Made = tuple[nn.Module, list[torch.Tensor]]
Zoo = Iterator[tuple[str, Callable[[], Made]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--of", default=",".join(ZOOS))
    parser.add_argument("--only", default="", help="names")
    parser.add_argument("--seconds", type=int, default=150, help="for one network")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, _late)
    record = json.loads(args.record.read_text()) if args.record.exists() else {"libraries": {}}
    only = set(filter(None, args.only.split(",")))
    for library in args.of.split(","):
        try:
            version = importlib.metadata.version(library)
            zoo = ZOOS[library](importlib.import_module(library))
        except ImportError as error:
            print(f"{library} is left out: {error}")
            continue
        of = record["libraries"].setdefault(library, {"version": version, "networks": {}})
        for name, make in zoo:
            if name not in of["networks"] and (not only or name in only):
                of["networks"][name] = {mode: tried(make, mode, args.seconds) for mode in ("train", "eval")}
                record |= {"torch": torch.__version__, "python": platform.python_version()}
                args.record.write_text(json.dumps(record, indent=1) + "\n")
                print(library, name, of["networks"][name], flush=True)
    print(markdown(record))


def _late(*_: Any) -> None:
    raise TimeoutError


def tried(make: Callable[[], Made], mode: str, seconds: int) -> dict[str, Any]:
    """What became of a network: `taken` and perhaps `right`, or why not."""
    found: dict[str, Any] = {}
    signal.alarm(seconds)
    try:
        torch.manual_seed(0)
        module, inputs = make()
        module.train(mode == "train")
        took = _eager(module, inputs)
        start = time.monotonic()
        plan = fuse(trace(module, inputs, drops=True))
        check_runs(emit(plan, "network"), module, inputs)
        found |= {"operations": len(plan.graph.operations), "steps": len(plan.steps)}
        found |= {"seconds": round(time.monotonic() - start, 1), "taken": True}
        if took < SECONDS_A_CALL:
            compare(plan, module, inputs, NEAR)
            found["right"] = True
    except TimeoutError:
        found["ended"] = f"after {seconds} s"
    except CrucibleError as error:
        found["refused"] = str(error)[:300]
    except Exception as error:  # noqa: BLE001 - what is wrong with one is a result
        found["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.alarm(0)
    return found


def _eager(module: nn.Module, inputs: list[torch.Tensor]) -> float:
    """Seconds of a call of a copy."""
    start = time.monotonic()
    with torch.no_grad():
        copy.deepcopy(module)(*inputs)
    return time.monotonic() - start


def of_timm(timm: Any) -> Zoo:
    families = timm.models._registry._module_to_models
    for family in sorted(families):
        first = min(families[family], key=lambda name: (not any(word in name for word in SMALL), len(name), name))
        yield first, lambda first=first: _of_timm(timm, first)


def _of_timm(timm: Any, name: str) -> Made:
    """At 64 pixels, or at its own size where it does not take that."""
    for size, more in ((64, {"img_size": 64}), (64, {}), (None, {})):
        try:
            module = timm.create_model(name, pretrained=False, num_classes=10, **more)
            size = size or module.pretrained_cfg["input_size"][-1]
            inputs = [torch.randn(2, 3, size, size)]
            _eager(module, inputs)
        except (TypeError, AssertionError, RuntimeError):
            continue
        return module, inputs
    raise ValueError(f"eager does not take {name} at its own size")


def of_torchvision(torchvision: Any) -> Zoo:
    models = torchvision.models
    for name in (
        "alexnet", "vgg11_bn", "resnet18", "resnext50_32x4d", "squeezenet1_1", "densenet121", "googlenet",
        "inception_v3", "shufflenet_v2_x0_5", "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "efficientnet_b0",
        "efficientnet_v2_s", "regnet_y_400mf", "convnext_tiny", "vit_b_16", "swin_t", "swin_v2_t", "maxvit_t",
    ):  # fmt: skip
        size = {"inception_v3": 299, "vit_b_16": 224, "maxvit_t": 224}.get(name, 64)
        yield (
            name,
            lambda name=name, size=size: (getattr(models, name)(num_classes=10), [torch.randn(2, 3, size, size)]),
        )
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        make = getattr(models.segmentation, name)
        yield name, lambda make=make: (
            make(weights=None, weights_backbone=None, num_classes=5), [torch.randn(2, 3, 64, 64)],
        )  # fmt: skip
    for name in ("r3d_18", "mc3_18", "r2plus1d_18", "s3d"):
        make = getattr(models.video, name)
        shape = (16, 224, 224) if name == "s3d" else (8, 32, 32)
        yield name, lambda make=make, shape=shape: (make(num_classes=5), [torch.randn(2, 3, *shape)])


WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WORDS = {**WIDTH, "vocab_size": 100}
KEYS = {**WORDS, "num_key_value_heads": 1}
HEADS = {**KEYS, "head_dim": 16}
TRANSFORMERS: Mapping[str, tuple[str, str, Mapping[str, Any], tuple[int, ...]]] = {
    "bert": ("BertConfig", "BertModel", WORDS, ()),
    "roberta": ("RobertaConfig", "RobertaModel", WORDS, ()),
    "distilbert": (
        "DistilBertConfig", "DistilBertModel",
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 100}, (),
    ),
    "albert": ("AlbertConfig", "AlbertModel", {**WORDS, "embedding_size": 16}, ()),
    "electra": ("ElectraConfig", "ElectraModel", {**WORDS, "embedding_size": 16}, ()),
    "deberta-v2": (
        "DebertaV2Config", "DebertaV2Model", {**WORDS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, (),
    ),
    "t5 encoder": (
        "T5Config", "T5EncoderModel",
        {"d_model": 32, "num_layers": 2, "num_heads": 2, "d_kv": 16, "d_ff": 64, "vocab_size": 100}, (),
    ),
    "gpt2": (
        "GPT2Config", "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 64}, (),
    ),
    "gpt-neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", WORDS, ()),
    "opt": (
        "OPTConfig", "OPTForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64, "vocab_size": 100,
         "word_embed_proj_dim": 32}, (),
    ),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100}, ()),
    "falcon": ("FalconConfig", "FalconForCausalLM", WORDS, ()),
    "llama": ("LlamaConfig", "LlamaForCausalLM", KEYS, ()),
    "mistral": ("MistralConfig", "MistralForCausalLM", KEYS, ()),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", KEYS, ()),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", HEADS, ()),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", HEADS, ()),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", HEADS, ()),
    "phi": ("PhiConfig", "PhiForCausalLM", WORDS, ()),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {**WORDS, "num_key_value_heads": 2, "pad_token_id": 0}, ()),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", {**WORDS, "num_key_value_heads": 2}, ()),
    "cohere": ("CohereConfig", "CohereForCausalLM", {**WORDS, "num_key_value_heads": 2}, ()),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {**KEYS, "num_local_experts": 2}, ()),
    "mamba": (
        "MambaConfig", "MambaForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": 100}, (),
    ),
    "mamba2": (
        "Mamba2Config", "Mamba2ForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "vocab_size": 100, "num_heads": 4, "head_dim": 16,
         "chunk_size": 4, "n_groups": 1}, (),
    ),
    "vit": ("ViTConfig", "ViTModel", {**WIDTH, "image_size": 32, "patch_size": 8}, (3, 32, 32)),
    "swin": (
        "SwinConfig", "SwinModel",
        {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "image_size": 32, "patch_size": 4, "window_size": 4},
        (3, 32, 32),
    ),
    "dinov2": (
        "Dinov2Config", "Dinov2Model",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
        (3, 28, 28),
    ),
    "segformer": ("SegformerConfig", "SegformerModel", {}, (3, 64, 64)),
    "wav2vec2": (
        "Wav2Vec2Config", "Wav2Vec2Model",
        {**WIDTH, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
         "mask_time_prob": 0.0, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}, (800,),
    ),
    "convnextv2": (
        "ConvNextV2Config", "ConvNextV2Model", {"hidden_sizes": [8, 16, 32, 64], "depths": [1] * 4}, (3, 64, 64),
    ),
}  # fmt: skip
"""Configuration and model, sizes, and the shape of an item; of none it is twelve words."""


def of_transformers(transformers: Any) -> Zoo:
    for name, (config, model, sizes, shape) in TRANSFORMERS.items():

        def make(config: str = config, model: str = model, sizes: Any = sizes, shape: Any = shape) -> Made:
            given = getattr(transformers, config)(**sizes)
            given.use_cache = False
            inputs = torch.randn(2, *shape) if shape else torch.randint(1, 99, (2, 12))
            return First(getattr(transformers, model)(given)), [inputs]

        yield name, make


class First(nn.Module):
    """The first of a model's outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(x)[0]
        return found


VOLUME = (1, 1, 32, 32, 32)
MONAI: Mapping[str, tuple[Mapping[str, Any], tuple[int, ...]]] = {
    "UNet": ({"out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2), "num_res_units": 2}, VOLUME),
    "BasicUNet": ({"out_channels": 2, "features": (8, 8, 16, 32, 64, 8)}, VOLUME),
    "VNet": ({"out_channels": 2}, VOLUME),
    "SegResNet": ({"init_filters": 8, "out_channels": 2}, VOLUME),
    "SegResNetDS": ({"init_filters": 8, "out_channels": 2}, VOLUME),
    "SegResNetVAE": ({"input_image_size": VOLUME[2:], "init_filters": 8, "out_channels": 2}, VOLUME),
    "DynUNet": (
        {"out_channels": 2, "kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2],
         "filters": [8, 16, 32]}, VOLUME,
    ),
    "AttentionUnet": ({"out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2)}, VOLUME),
    "UNETR": (
        {"out_channels": 2, "img_size": VOLUME[2:], "feature_size": 8, "hidden_size": 48, "mlp_dim": 96,
         "num_heads": 4}, VOLUME,
    ),
    "SwinUNETR": ({"out_channels": 2, "feature_size": 12}, (1, 1, 64, 64, 64)),
    "HighResNet": ({"out_channels": 2}, (1, 1, 16, 16, 16)),
    "MedNeXt": ({"init_filters": 8, "out_channels": 2}, VOLUME),
    "AutoEncoder": ({"out_channels": 1, "channels": (4, 8, 16), "strides": (2, 2, 2)}, VOLUME),
    "AutoencoderKL": (
        {"out_channels": 1, "channels": (32, 32), "latent_channels": 3, "num_res_blocks": (1, 1),
         "attention_levels": (False, False)}, (1, 1, 16, 16, 16),
    ),
    "ViT": (
        {"img_size": VOLUME[2:], "patch_size": (16, 16, 16), "hidden_size": 48, "mlp_dim": 96, "num_layers": 2,
         "num_heads": 4, "classification": True}, VOLUME,
    ),
    "DenseNet121": ({"out_channels": 2}, (2, 1, 64, 64, 64)),
    "SEResNet50": ({"num_classes": 2}, (2, 1, 64, 64, 64)),
}  # fmt: skip


def of_monai(monai: Any) -> Zoo:
    nets = importlib.import_module("monai.networks.nets")
    for name, (given, shape) in MONAI.items():
        own = {} if name == "SegResNetVAE" else {"spatial_dims": 3}
        yield name, lambda name=name, given={**own, "in_channels": 1, **given}, shape=shape: (
            getattr(nets, name)(**given), [torch.randn(*shape)],
        )  # fmt: skip


def of_segmentation(library: Any) -> Zoo:
    for name in (
        "Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3", "DeepLabV3Plus", "UPerNet",
        "Segformer",
    ):  # fmt: skip
        yield name, lambda name=name: (
            getattr(library, name)("resnet18", encoder_weights=None, classes=2), [torch.randn(2, 3, 64, 64)],
        )  # fmt: skip


ZOOS: Mapping[str, Callable[[Any], Zoo]] = {
    "timm": of_timm,
    "torchvision": of_torchvision,
    "transformers": of_transformers,
    "monai": of_monai,
    "segmentation_models_pytorch": of_segmentation,
}


def markdown(record: Mapping[str, Any]) -> str:
    """A table of libraries, and why each that was not taken was not."""
    lines = [
        "| library | networks | in train and eval | taken | compared | right | longest |",
        "|---|---|---|---|---|---|---|",
    ]
    left = []
    for library, of in record["libraries"].items():
        each = [(name, mode, found) for name, modes in of["networks"].items() for mode, found in modes.items()]
        taken = [found for _, _, found in each if found.get("taken")]
        compared = sum("right" in found or "failed" in found for found in taken)
        cells = [f"{library} {of['version']}", len(of["networks"]), len(each), len(taken), compared]
        cells += [sum("right" in found for found in taken), f"{max(found['seconds'] for found in taken):.0f} s"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        for name, mode, found in each:
            why = found.get("refused") or found.get("failed") or found.get("ended")
            left += [f"- {library}'s {name} in {mode}: {why}"] if why else []
    return "\n".join([*lines, "", *left])


if __name__ == "__main__":
    main()
