"""Kernels by two trees, timed in turns: those whose machine code differs.

    python benchmarks/paired_kernels.py OLD NEW [--groups convolutions,packers] [--kernels REGEX] [--processes 2]
        [--architecture sm_90a] [--programs FOLDER]

OLD and NEW are checkouts; each makes the kernels of its own corpus, and `same_machine_code.py` says which differ. A
program has both kernels of each of so many pairs, launches each a few times in a row, old and new in turns, 31 times,
and prints medians. Tensors are 0, of 2 GiB each: for kernels whose time does not depend on values. With `--programs`
they are built and kept there, not run, which needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Key = tuple[str, str, str]
"""Group, case, kernel."""
PART = 20
"""Pairs a program: nvcc takes minutes for more."""

HEAD = """\
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
constexpr size_t bytes = size_t(2) << 30;  // the largest tensor of the tasks has 1.8e9
constexpr float sample = 2000;  // microseconds of launches in a row, or one launch
"""
MAIN = """\
static char* memory(int k) {
    static std::vector<char*> held;
    while (static_cast<int>(held.size()) <= k) {
        char* more = nullptr;
        if (cudaMalloc(&more, bytes) || cudaMemset(more, 0, bytes)) std::exit(1);
        held.push_back(more);
    }
    return held[k];
}

template <typename Launch>
static float microseconds(Launch launch, int launches) {
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    cudaEventRecord(begin);
    for (int k = 0; k < launches; ++k) launch();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return ms * 1000 / launches;
}

template <typename Old, typename New>
static void pair(const char* name, Old before, New after) {
    std::vector<float> olds, news, ratios;
    const int launches = std::max(1, std::min(50, int(sample / std::max(1.0f, microseconds(before, 1)))));
    for (int round = 0; round < 32; ++round) {
        const float one = microseconds(before, launches), other = microseconds(after, launches);
        if (round) olds.push_back(one), news.push_back(other), ratios.push_back(other / one);
    }
    for (auto* each : {&olds, &news, &ratios}) std::sort(each->begin(), each->end());
    const cudaError_t error = cudaGetLastError();
    std::printf("%s\\t%.3f\\t%.3f\\t%.4f\\t%s\\n", name, olds[15], news[15], ratios[15], cudaGetErrorString(error));
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path)
    parser.add_argument("--groups", default="convolutions,packers")
    parser.add_argument("--kernels", default="", help="those whose group, case and name have this in them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--programs", type=Path, help="where to build them, which then are not run")
    parser.add_argument("--launches", type=Path, help="write the kernels of the tree that is imported")
    args = parser.parse_args()
    groups = args.groups.split(",")
    if args.launches:
        args.launches.write_text(json.dumps(launches(groups)))
        return
    if len(args.trees) != 2:
        parser.error("two trees are compared")
    old, new = (launches_of_tree(tree, groups) for tree in args.trees)
    found = differing(old, new, args)
    with tempfile.TemporaryDirectory() as folder:
        place = args.programs or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        parts = [found[k : k + PART] for k in range(0, len(found), PART)]
        with ThreadPoolExecutor(args.processes) as pool:
            built = list(pool.map(lambda k: build(place / f"pairs{k}", parts[k], args.architecture), range(len(parts))))
        print(f"{len(found)} kernels in {len(built)} programs", flush=True)
        if built and not args.programs:
            report([row for program in built for row in run(program)])


def launches(groups: Sequence[str]) -> list[list[Any]]:
    """Of the corpus: group, case, kernel, and how it is launched."""
    import kernel_corpus

    made, text_of = {}, kernel_corpus.text_of

    def kept(kernel: Any) -> str:
        text: str = text_of(kernel)
        made[text] = kernel
        return text

    kernel_corpus.text_of = kept
    return [
        [group, case, name, launched(made[text], text)]
        for group in groups
        for case, texts in kernel_corpus.GROUPS[group]()
        for name, text in texts.items()
    ]


def launched(kernel: Any, text: str) -> dict[str, Any]:
    own = {"name": kernel.name, "grid": math.prod(kernel.grid), "threads": kernel.threads}
    return own | {"shared": kernel.shared_bytes, "text": text}


def launches_of_tree(tree: Path, groups: Sequence[str]) -> dict[Key, Any]:
    """By its own writer, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "launches.json"
        paths = os.pathsep.join(str(tree.resolve() / room) for room in ("src", "tests"))
        command = [sys.executable, str(Path(__file__).resolve()), "--launches", str(file), "--groups", ",".join(groups)]
        subprocess.run(command, cwd=tree, check=True, env={**os.environ, "PYTHONPATH": paths})
        return {(group, case, name): own for group, case, name, own in json.loads(file.read_text())}


def differing(old: dict[Key, Any], new: dict[Key, Any], args: argparse.Namespace) -> list[tuple[Key, Any, Any]]:
    """Each pair of other machine code once."""
    from same_machine_code import compared  # puts its own tree in front, which those that make launches are not to have

    asked = [key for key in old if key in new and re.search(args.kernels, " ".join(key))]
    before, after = ({key: side[key]["text"] for key in asked} for side in (old, new))
    words = compared(before, after, args.architecture, args.processes)
    found = {
        (before[key], after[key]): (key, old[key], new[key])
        for key in asked
        if words[key].startswith("other machine code")
    }
    return list(found.values())


def program(pairs: Sequence[tuple[Key, Any, Any]]) -> str:
    texts = [each["text"] for _, *pair in pairs for each in pair]
    includes = dict.fromkeys(line for text in texts for line in text.splitlines() if line.startswith("#include"))
    spaces = [
        "\n".join([f"namespace space_{k} {{", *(x for x in text.splitlines() if not x.startswith("#include")), "}"])
        for k, text in enumerate(texts)
    ]
    calls = [
        f'    pair("{" ".join(key)}", {launch(old, 2 * k)}, {launch(new, 2 * k + 1)});'
        for k, (key, old, new) in enumerate(pairs)
    ]
    return "\n".join([*includes, HEAD, *spaces, MAIN, "int main() {", *calls, "}", ""])


def launch(kernel: dict[str, Any], space: int) -> str:
    """A function that does so: it takes each tensor's type from the kernel."""
    types = re.search(rf"{kernel['name']}\(([^)]*)\)", kernel["text"][kernel["text"].index("__global__") :])
    assert types
    given = [
        f"reinterpret_cast<{each.split('*')[0].strip()}*>(memory({k}))" for k, each in enumerate(types[1].split(","))
    ]
    call = f"space_{space}::{kernel['name']}"
    allow = f"cudaFuncSetAttribute({call}, cudaFuncAttributeMaxDynamicSharedMemorySize, {kernel['shared']});"
    return (
        f"[] {{ {allow if kernel['shared'] > 48 << 10 else ''} {call}<<<{kernel['grid']}, {kernel['threads']},"
        f" {kernel['shared']}>>>({', '.join(given)}); }}"
    )


def build(place: Path, pairs: Sequence[tuple[Key, Any, Any]], architecture: str) -> Path:
    place.with_suffix(".cu").write_text(program(pairs))
    code = f"arch={architecture.replace('sm', 'compute')},code={architecture}"
    command = ["nvcc", "-gencode", code, "-std=c++17", "-O3", "-o", place.name, place.with_suffix(".cu").name]
    subprocess.run(command, cwd=place.parent, check=True)
    return place


def run(program: Path) -> list[list[str]]:
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def report(rows: list[list[str]]) -> None:
    for name, old, new, ratio, error in sorted(rows, key=lambda row: float(row[3])):
        print(f"{ratio}  {old} us to {new} us  {name}{'' if error == 'no error' else f': {error}'}")
    ratios = [float(row[3]) for row in rows]
    print(f"{len(rows)} kernels, new over old: geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.4f},"
          f" {min(ratios):.4f} to {max(ratios):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
