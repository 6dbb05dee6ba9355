"""The tasks of a KernelBench level with sizes for the emulator, so that all of it can be judged without a GPU.

    python benchmarks/small_level.py CHECKOUT LEVEL FOLDER [--only 5,36]
    python benchmarks/judge_level.py FOLDER LEVEL ANOTHER --scale small

FOLDER/levelN has the benchmark's own files with a `SMALL` behind: what is named as KernelBench names sizes goes to what
`MOST` says, or stays where that is more.
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

from kernelbench import task_files

MOST = {
    "batch_size": 4,
    **dict.fromkeys(("in_channels", "out_channels"), 16),
    **dict.fromkeys(("groups", "num_groups"), 8),
    **dict.fromkeys(("in_features", "input_size"), 96),
    **dict.fromkeys(("out_features", "hidden_size", "output_size"), 64),
    **dict.fromkeys(("depth", "height", "width", "D", "H", "W"), 12),
}
MOST_OF_VOLUMES = {**MOST, "batch_size": 2, **dict.fromkeys(("depth", "height", "width", "D", "H", "W"), 8)}
"""Where three dims are convolved."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("level", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="numbers of tasks")
    args = parser.parse_args()
    place = args.folder / f"level{args.level}"
    place.mkdir(parents=True, exist_ok=True)
    for file in task_files(args):
        text = file.read_text()
        (place / file.name).write_text(f"{text.rstrip()}\n\nSMALL = {sizes(text)}\n")


def sizes(text: str) -> dict[str, int]:
    """The new values of a task's module-level sizes, however they are assigned (`height = width = 128`)."""
    most = MOST_OF_VOLUMES if "3d" in text else MOST
    found = {}
    for node in ast.parse(text).body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and name.id in most:
                    found[name.id] = min(value.value, most[name.id])
    return found


if __name__ == "__main__":
    main()
