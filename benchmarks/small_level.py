"""The tasks of a KernelBench level with sizes for the emulator, so that all of it can be judged without a GPU.

    python benchmarks/small_level.py CHECKOUT LEVEL FOLDER [--only 5,36] [--dtype bfloat16]
    python benchmarks/judge_level.py FOLDER LEVEL ANOTHER --scale small

FOLDER/levelN has the benchmark's own files with a `SMALL` behind: what is named as levels 1 to 3 name sizes goes to
what `MOST` says where that is less. Networks that were made for one size of image keep it. With a dtype the module and
its inputs are in that.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelbench import task_files

_SPACE = ("depth", "height", "width", "D", "H", "W", "dim1", "dim2", "dim3", "input_length", "length",
          *(f"{name}_in" for name in ("depth", "height", "width")))  # fmt: skip
MOST = {
    "batch_size": 4,
    **dict.fromkeys(("in_channels", "out_channels", "channels", "features"), 16),
    **dict.fromkeys(("num_features", "num_input_features", "num_output_features", "feature_size"), 16),
    **dict.fromkeys(("groups", "num_groups", "n_heads"), 8),
    **dict.fromkeys(("in_features", "input_size"), 96),
    **dict.fromkeys(("out_features", "hidden_size", "output_size"), 64),
    **dict.fromkeys(_SPACE, 12),
    # of products, all different
    "M": 72,
    "N": 56,
    "K": 104,
    "L": 40,
    "m": 40,
    "k": 72,
    "n": 24,
    **dict.fromkeys("bijl", 12),
    # of rows, and of what attends to each other or follows
    "dim": 384,
    "input_shape": 300,
    "num_classes": 50,
    "mlp_dim": 96,
    "n_embd": 96,
    "embed_dim": 32,
    "embedding_dimension": 32,
    "num_clusters": 8,
    "ghost_clusters": 4,
    "d_head": 16,
    "d_state": 8,
    "block_len": 16,
    "sequence_length": 32,
    "seq_len": 32,
    "seq_length": 32,
    "max_seqlen": 64,
    "num_layers": 2,
    # of networks
    "layer_sizes": 72,
    "hidden_layer_sizes": 72,
    "growth_rate": 8,
    "image_height": 32,
    "image_width": 32,
    **dict.fromkeys(("expand1x1_channels", "expand3x3_channels", "out_1x1", "out_3x3"), 12),
    **dict.fromkeys(("reduce_3x3", "reduce_5x5", "out_5x5", "pool_proj"), 8),
}
MOST_OF_VOLUMES = {**MOST, "batch_size": 2, **dict.fromkeys(_SPACE, 8)}
"""Where three dims are convolved or pooled."""
_HALVED = {"height": 64, "width": 64}
"""Images that are halved five times."""
OTHERWISE = {
    "15_DenseNet121": _HALVED,
    "16_DenseNet201": _HALVED,
    "18_SqueezeNet": _HALVED,
    "45_UNet": _HALVED,
    "19_MobileNetV1": {"height": 224, "width": 224},  # pooled by seven in the end
    "25_ShuffleNetUnit": {"input_channels": 24, "out_channels": 48},  # divided by three groups
    "80_conv_standard_2D": {"height": 34, "width": 34},  # under a kernel that reaches over 25
    "100_HingeLoss": {"batch_size": 48, "input_shape": 48},  # one along the other
}
"""By how a task's name begins."""
CAST = """

_inputs = get_inputs


class Model(Float32Model):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.to(torch.{dtype})


def get_inputs():
    return [x.to(torch.{dtype}) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in _inputs()]
"""
"""Behind a task whose `Model` is called `Float32Model`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("level", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="numbers of tasks")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    args = parser.parse_args()
    place = args.folder / f"level{args.level}"
    place.mkdir(parents=True, exist_ok=True)
    for file in task_files(args):
        text = file.read_text()
        cast = text if args.dtype == "float32" else in_dtype(text, args.dtype)
        (place / file.name).write_text(f"{cast.rstrip()}\n\nSMALL = {sizes(text, file.name)}\n")


def in_dtype(text: str, dtype: str) -> str:
    """The task whose module and inputs are cast."""
    return re.sub(r"\bModel\b", "Float32Model", text).rstrip() + "\n" + CAST.format(dtype=dtype)


def sizes(text: str, name: str = "") -> dict[str, Any]:
    """The new values of a task's module-level sizes, however they are assigned (`height = width = 128`, `N = 2048 * 2`,
    `shape = (32768,)`)."""
    own = next((each for beginning, each in OTHERWISE.items() if name.startswith(beginning)), {})
    most = {**(MOST_OF_VOLUMES if "3d" in text else MOST), **own}
    found = {size: (value, _at_most(value, most[size])) for size, value in _assigned(text) if size in most}
    return {size: small for size, (value, small) in found.items() if small != value}


def _assigned(text: str) -> Iterator[tuple[str, Any]]:
    """What a module's constants are, by name."""
    for node in ast.parse(text).body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
            yield from ((name.id, _value(value)) for name, value in pairs if isinstance(name, ast.Name))


def _value(node: ast.expr) -> Any:
    """Of numbers, their products, and lists and tuples of these; else None."""
    match node:
        case ast.Constant(int(number)):
            return number
        case ast.BinOp(left, ast.Mult(), right):
            one, other = _value(left), _value(right)
            return None if one is None or other is None else one * other
        case ast.List(items) | ast.Tuple(items):
            values = [_value(item) for item in items]
            return None if None in values else values if isinstance(node, ast.List) else tuple(values)
    return None


def _at_most(value: Any, most: int) -> Any:
    """A size, or each of some; a few layers stand for many."""
    if isinstance(value, list | tuple):
        return type(value)(min(size, most) for size in value[:4])
    return min(value, most) if isinstance(value, int) else value


if __name__ == "__main__":
    main()
