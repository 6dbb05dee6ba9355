"""Kernels of convolutions by two trees, timed in turns: for those of which `same_machine_code.py` says "other".

    python benchmarks/paired_kernels.py OLD NEW [--kernels REGEX] [--architecture sm_90a] [--source FILE]

OLD and NEW are checkouts; each lowers the cases of its own tests. One program has both kernels of each pair, launches
each 50 times in a row, old and new in turns, 31 times, and prints medians. Tensors are 0, of 64 MiB each: for kernels
whose time does not depend on values. With `--source` the program is written and not run. Needs nvcc, and a GPU to run.
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
from pathlib import Path
from typing import Any

HEAD = """\
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
"""
MAIN = """\
static char* memory(int k) {
    static std::vector<char*> held;
    while (static_cast<int>(held.size()) <= k) {
        char* more = nullptr;
        if (cudaMalloc(&more, 64 << 20) || cudaMemset(more, 0, 64 << 20)) std::exit(1);
        held.push_back(more);
    }
    return held[k];
}

template <typename Launch>
static float microseconds(Launch launch) {
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    cudaEventRecord(begin);
    for (int k = 0; k < 50; ++k) launch();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    return ms * 20;
}

template <typename Old, typename New>
static void pair(const char* name, Old before, New after) {
    std::vector<float> olds, news, ratios;
    for (int round = 0; round < 32; ++round) {
        const float one = microseconds(before), other = microseconds(after);
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
    parser.add_argument("--kernels", default=r"_(pack|finish)$", help="those whose names have this in them")
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--source", type=Path, help="where to write the program, which then is not run")
    parser.add_argument("--launches", type=Path, help="write the kernels of the tree that is imported")
    args = parser.parse_args()
    if args.launches:
        args.launches.write_text(json.dumps(launches()))
        return
    if len(args.trees) != 2:
        parser.error("two trees are compared")
    old, new = map(launches_of_tree, args.trees)
    pairs = {
        key: (old[key], new[key])
        for key in old
        if key in new and old[key]["text"] != new[key]["text"] and re.search(args.kernels, key)
    }
    text = program(pairs)
    if args.source:
        args.source.write_text(text)
        return
    report(run(text, args.architecture))


def launches() -> dict[str, Any]:
    """Of all cases of tests of convolutions, by case and kernel."""
    import kernel_corpus

    found = {}
    for test in kernel_corpus.WITH_CASES:
        for case in kernel_corpus.imported(test).CASES:
            if hasattr(case, "lowered"):
                lowered = case.lowered() if callable(case.lowered) else case.lowered
                for kernel in lowered.kernels:
                    own = {"name": kernel.name, "grid": math.prod(kernel.grid), "threads": kernel.threads}
                    own |= {"shared": kernel.shared_bytes, "tensors": len(kernel.reads) + len(kernel.writes)}
                    found[f"{test} {case.name} {kernel.name}"] = {**own, "text": kernel_corpus.text_of(kernel)}
    return found


def launches_of_tree(tree: Path) -> dict[str, Any]:
    """By its own writer, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "launches.json"
        paths = os.pathsep.join(str(tree.resolve() / room) for room in ("src", "tests"))
        command = [sys.executable, str(Path(__file__).resolve()), "--launches", str(file)]
        subprocess.run(command, cwd=tree, check=True, env={**os.environ, "PYTHONPATH": paths})
        made: dict[str, Any] = json.loads(file.read_text())
        return made


def program(pairs: dict[str, tuple[Any, Any]]) -> str:
    texts = [each["text"] for pair in pairs.values() for each in pair]
    includes = dict.fromkeys(line for text in texts for line in text.splitlines() if line.startswith("#include"))
    spaces = [
        "\n".join([f"namespace space_{k} {{", *(x for x in text.splitlines() if not x.startswith("#include")), "}"])
        for k, text in enumerate(texts)
    ]
    calls = [
        f'    pair("{key}", {launch(old, 2 * k)}, {launch(new, 2 * k + 1)});'
        for k, (key, (old, new)) in enumerate(pairs.items())
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


def run(text: str, architecture: str) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pairs.cu"
        source.write_text(text)
        command = ["nvcc", f"-arch={architecture}", "-std=c++17", "-O3", "-o", "pairs", source.name]
        subprocess.run(command, cwd=folder, check=True)
        done = subprocess.run(["./pairs"], cwd=folder, check=True, capture_output=True, text=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def report(rows: list[list[str]]) -> None:
    for name, old, new, ratio, error in sorted(rows, key=lambda row: float(row[3])):
        print(f"{ratio}  {old} us to {new} us  {name}{'' if error == 'no error' else f': {error}'}")
    ratios = [float(row[3]) for row in rows]
    print(f"{len(rows)} kernels, new over old: geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.4f},"
          f" {min(ratios):.4f} to {max(ratios):.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
