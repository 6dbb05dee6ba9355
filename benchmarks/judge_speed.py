"""Seconds a verdict takes, stage by stage, and beside it what KernelBench's evaluator takes for the same candidates.

    python benchmarks/judge_speed.py FILE [--kernelbench FOLDER] [--only WORD,...] [--device auto] [--limit 280]
    python benchmarks/judge_speed.py FILE --task tasks/conv3d... [--candidates FILE ...]
    python benchmarks/judge_speed.py FILE --device cpu --only plain        shows that it works, without a GPU

Ten candidates of one elementwise task: six that need no build (PyTorch, Triton; one of them wrong), four built by
load_inline. First everything that later runs share is made in a home of its own (precompiled headers, baselines), by a
run of the plain candidate alone; then all are judged afresh. FOLDER is a checkout of KernelBench (`LICENSE` and of
`src/kernelbench` the files `__init__`, `eval`, `timing`, `dataset` and `utils` will do), whose evaluator runs each
candidate in a process of its own with its scripts' settings (5 trials, 100 samples), as long as --limit seconds have
not passed since the start; what was not reached is named, and what FILE has of it already is not run again where
`--resume` is given. FILE is written after each part and after each of the evaluator's candidates.

`stages` in FILE says where the seconds went: of those without a build and of those with one, the median of each stage
of the candidate's process, of what was waited for (the oracle by what it was asked, baselines), and of the judge's own
code; and of a build, what ninja's log says of each of its steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import crucible
from crucible import hardware
from crucible.judge.prepared import prepared_headers
from crucible.judge.verdict.evidence import Measured
from crucible.judge.worker.halved import WHY_WHOLE
from crucible.listening import Listener
from crucible.run import Run

TASK = """
import torch
import torch.nn as nn

rows = 8192
columns = 4096
SMALL = {"rows": 33, "columns": 64}

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y = x + self.bias
        return y * torch.sigmoid(1.5 * y) + 0.25 * x

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return [columns]
"""
_MODULE = """
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        {body}
"""
_PLAIN = "import torch\nimport torch.nn as nn\n" + _MODULE
_TRITON = '''
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def gate(x_at, bias_at, y_at, columns, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_at + i, mask=i < n)
    y = x + tl.load(bias_at + i % columns, mask=i < n)
    tl.store(y_at + i, y * tl.sigmoid(1.5 * y) + 0.25 * x, mask=i < n)

def gated(x, bias):
    x = x.contiguous()
    y = torch.empty_like(x)
    gate[(triton.cdiv(x.numel(), {block}),)](x, bias, y, x.shape[-1], x.numel(), BLOCK={block})
    return y
''' + _MODULE.format(body="return gated(x, self.bias)").replace("{", "{{").replace("}", "}}")  # fmt: skip
_CUDA = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
{includes}
{kernel}
torch::Tensor gated(torch::Tensor x, torch::Tensor bias) {{
  x = x.contiguous();
  auto y = torch::empty_like(x);
  const int n = x.numel();
  const int blocks = (n / {items} + 255) / 256;
  {launch}
  return y;
}}
"""
module = load_inline("judge_speed_{name}", "torch::Tensor gated(torch::Tensor x, torch::Tensor bias);", source,
                     functions=["gated"], extra_cuda_cflags=[{flags}])
''' + _MODULE.format(body="return module.gated(x, self.bias)").replace("{", "{{").replace("}", "}}")  # fmt: skip
_FORMULA = "y * (1.0f / (1.0f + expf(-1.5f * y))) + 0.25f * x[i]"
_SCALAR = f"""\
__global__ void gate(const float* x, const float* bias, float* out, int columns, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{ float y = x[i] + bias[i % columns]; out[i] = {_FORMULA}; }}
}}"""
_STRIDED = f"""\
__global__ void gate(const float* x, const float* bias, float* out, int columns, int n) {{
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {{
    float y = x[i] + bias[i % columns];
    out[i] = {_FORMULA};
  }}
}}"""
_TEMPLATE = _SCALAR.replace("__global__", "template <typename T> __global__").replace("float*", "T*")
_ARGUMENTS = "(x.data_ptr<{0}>(), bias.data_ptr<{0}>(), y.data_ptr<{0}>(), x.size(1), n)"
_DISPATCHED = (
    'AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gate", ([&] { gate<scalar_t><<<blocks, 256>>>'
    + _ARGUMENTS.format("scalar_t")
    + "; }));"
)


def _cuda(name: str, kernel: str, *, includes: str = "", launch: str = "", flags: str = "", items: int = 1) -> str:
    launch = launch or "gate<<<blocks, 256>>>" + _ARGUMENTS.format("float") + ";"
    return _CUDA.format(name=name, kernel=kernel, includes=includes, launch=launch, flags=flags, items=items)


CANDIDATES = {
    "plain": _PLAIN.format(body="y = x + self.bias\n        return y * torch.sigmoid(1.5 * y) + 0.25 * x"),
    "plain_in_place": _PLAIN.format(
        body="y = x + self.bias\n        return torch.sigmoid(1.5 * y).mul(y).add(x, alpha=0.25)"
    ),
    "plain_wrong": _PLAIN.format(body="y = x + self.bias\n        return y * torch.sigmoid(y) + 0.25 * x"),
    **{f"triton_{block}": _TRITON.format(block=block) for block in (256, 1024, 4096)},
    "cuda_scalar": _cuda("scalar", _SCALAR),
    "cuda_strided": _cuda("strided", _STRIDED, flags='"-O3", "--use_fast_math"', items=4),
    "cuda_extension_header": _cuda("header", _SCALAR, includes="#include <torch/extension.h>", flags='"-O3"'),
    "cuda_dispatched": _cuda("dispatched", _TEMPLATE, launch=_DISPATCHED),
}
_EVALUATE = '''
import importlib.abc, importlib.machinery, json, os, sys, time, types

class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for packages that only ask language models or fetch data sets, where they are not installed."""
    names = {"requests", "openai", "litellm", "dotenv", "tqdm", "pydantic"}

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.names else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = self.thing
        return module

    def exec_module(self, module):
        pass

    def thing(self, name):
        if name.startswith("__"):  # `inspect` asks every module for its __file__
            raise AttributeError(name)
        return Record if name == "BaseModel" else (lambda *a, **k: None)

class Record:
    def __init__(self, **fields):
        for name in type(self).__annotations__:
            setattr(self, name, fields.get(name, getattr(type(self), name, None)))

folder, task, candidate, build_dir, backend = sys.argv[1:]
sys.path.insert(0, folder + "/src")
start = time.monotonic()
import torch
sys.meta_path.append(Absent())  # asked last, and by nobody but the evaluator: what is installed is itself
from kernelbench import eval as evaluator
imported = time.monotonic()
read = lambda path: open(path).read()
found = evaluator.eval_kernel_against_ref(
    read(task), read(candidate), num_correct_trials=5, num_perf_trials=100, measure_performance=True,
    build_dir=build_dir, device=torch.device("cuda:0"), backend=backend)
done = time.monotonic()
runtime = getattr(found, "runtime", None)
result = {"compiled": bool(found and found.compiled), "correct": bool(found and found.correctness),
          "runtime_ms": runtime if isinstance(runtime, (int, float)) else -1.0,
          "why": str(getattr(found, "metadata", ""))[:500],
          "import_s": imported - start, "evaluate_s": done - imported}
print("RESULT " + json.dumps(result))
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--task", type=Path)
    parser.add_argument("--candidates", type=Path, nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--scale", default=None)
    parser.add_argument("--home", type=Path, help="a store with what is shared; else a new one")
    parser.add_argument("--limit", type=float, default=280.0)
    parser.add_argument("--resume", action="store_true", help="go on with what FILE has")
    args = parser.parse_args()
    deadline = time.monotonic() + args.limit
    device = hardware.find_device(args.device)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["CRUCIBLE_HOME"] = str(args.home or folder / "home")
        task, candidates = _chosen(args, folder)
        record: dict[str, Any] = {
            "device": device.name,
            "driver": device.driver,
            "versions": hardware.versions(),
            "cores": hardware.cores(),
            "task": task.stem if task.is_file() else task.name,
        }
        options = {"device": args.device, "scale": args.scale, "fresh": True}
        known = json.loads(args.file.read_text()) if args.resume and args.file.exists() else {}
        if {key: known.get(key) for key in record} != record or "judge" not in known:
            start = time.monotonic()
            loaded = [crucible.Candidate.load(file) for file in candidates]
            prepared_headers(loaded, device, hardware.versions(), _say(start))
            record["headers_s"] = time.monotonic() - start
            record["prepared"] = _judged(task, candidates[:1], **options)
            _write(args.file, record)
            record["judge"] = _judged(task, candidates, **options)
            record["stages"] = stages(record["judge"]["candidates"])
            _write(args.file, record)
        else:
            record = known

        def evaluated(rows: dict[str, Any]) -> None:
            record["kernelbench"] = rows
            _write(args.file, record)

        rest = (task, candidates, folder, deadline, record.get("kernelbench", {}), evaluated)
        evaluated(_evaluated(args.kernelbench, device.kind, *rest))
    print(table(record))
    print(stages_table(record))


def _chosen(args: argparse.Namespace, folder: Path) -> tuple[Path, list[Path]]:
    """The task's file or folder and the candidates' files."""
    words = [word for word in args.only.split(",") if word]
    if args.task is not None:
        given = args.candidates or sorted((args.task / "candidates").glob("*.py"))
        return args.task, [file for file in given if not words or any(word in file.stem for word in words)]
    task = folder / "gate.py"
    task.write_text(TASK)
    files = []
    for name, text in CANDIDATES.items():
        if not words or any(word in name for word in words):
            files.append(folder / f"{name}.py")
            files[-1].write_text(text)
    return task, files


def _judged(task: Path, candidates: list[Path], **options: Any) -> dict[str, Any]:
    """One run: its seconds, and for each candidate what it took by stages."""
    start, builds = time.monotonic(), Builds()
    run = crucible.judge(task, list(candidates), say=_say(start), listener=builds, **options)
    seconds = time.monotonic() - start
    rows = []
    for verdict in run.verdicts:
        timing = verdict.timing
        speedups = timing.speedups if isinstance(timing, Measured) else ()
        rows.append(
            {
                "name": verdict.candidate,
                "verdict": verdict.outcome.kind,
                "words": verdict.outcome.words,
                "runtime_ms": verdict.runtime_ms,
                "build_s": verdict.build_s,
                "total_s": verdict.total_s,
                "after_build_s": verdict.total_s - verdict.build_s,
                "stages_s": dict(verdict.stages_s),
                "waits_s": dict(verdict.waits_s),
                "steps_s": builds.steps_s.get(verdict.candidate, {}),
                "speedups": {s.baseline: [s.ratio, *s.interval, s.kept] for s in speedups},
            }
        )
    baselines = {v.candidate: {"runtime_ms": v.runtime_ms, "kept": v.cached, "total_s": v.total_s}
                 for v in run.ground.baselines}  # fmt: skip
    return {"seconds": seconds, "candidates": rows, "baselines": baselines, "trouble": run.trouble}


class Builds(Listener):
    """Hears of verdicts, and reads what ninja wrote in their folders while those are there."""

    def __init__(self) -> None:
        self.folders: Mapping[str, Path] = {}
        self.steps_s: dict[str, dict[str, list[float]]] = {}

    def began(self, work: Path, folders: Mapping[str, Path]) -> None:
        self.folders = folders

    def reached(self, run: Run) -> None:
        for verdict in run.verdicts:
            self.steps_s[verdict.candidate] = ninja_steps(self.folders[verdict.candidate] / "extensions")


def ninja_steps(folder: Path) -> dict[str, list[float]]:
    """For each file that ninja made below the folder, by its name: when its step began and ended, in seconds."""
    steps = {}
    for log in sorted(folder.rglob(".ninja_log")):
        for line in log.read_text(errors="replace").splitlines():
            if not line.startswith("#") and len(fields := line.split("\t")) >= 4:
                steps[Path(fields[3]).name] = [int(fields[0]) / 1e3, int(fields[1]) / 1e3]
    for file in sorted(folder.rglob(WHY_WHOLE)):
        steps[f"whole, not by halves: {file.read_text(errors='replace')[:200]}"] = [0.0, 0.0]
    return steps


def stages(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median seconds of what passed, of those without a build and of those with one."""
    passed = [row for row in rows if row["verdict"] == "passed"]
    groups = {
        "without a build": [row for row in passed if not row["steps_s"]],
        "with a build": [row for row in passed if row["steps_s"]],
    }
    return {name: _medians(group) for name, group in groups.items() if group}


def _medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By stage, by what was waited for, and by a build's steps; each library has its candidate's name."""
    every = [_told(row) for row in rows]
    names = dict.fromkeys(name for one in every for name in one)
    steps: dict[str, list[float]] = {}
    for row in rows:
        for file, (began, ended) in row["steps_s"].items():
            steps.setdefault("the library" if file.endswith(".so") else file, []).append(ended - began)
    found = {name: round(statistics.median(one.get(name, 0.0) for one in every), 3) for name in names}
    total = statistics.median(row["total_s"] for row in rows)
    return {
        "candidates": len(rows),
        "total_s": round(total, 3),
        "build_s": round(statistics.median(row["build_s"] for row in rows), 3),
        "seconds": found,
        "steps_s": {name: round(statistics.median(seconds), 3) for name, seconds in steps.items()},
    }


def _told(row: dict[str, Any]) -> dict[str, float]:
    """A verdict's seconds, all of them: the candidate's process by stage, others, and what is left."""
    parts = {f"its process: {stage}": seconds for stage, seconds in row["stages_s"].items()} | row["waits_s"]
    return parts | {"the judge's own code": row["total_s"] - sum(parts.values())}


def _say(start: float) -> Any:
    return lambda text: print(f"{time.monotonic() - start:6.1f} s  {text}", file=sys.stderr, flush=True)


def _evaluated(
    folder: Path | None,
    kind: str,
    task: Path,
    candidates: list[Path],
    work: Path,
    deadline: float,
    known: dict[str, Any],
    write: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """KernelBench's evaluator on each candidate that is not known, one after another, or why not."""
    if folder is None:
        return {"skipped": "no checkout was given (--kernelbench FOLDER)"}
    if kind != "cuda":
        return {"skipped": "its evaluator runs on a GPU alone, and this device is a CPU"}
    if not (folder / "src/kernelbench/eval.py").is_file():
        return {"skipped": f"{folder} has no src/kernelbench/eval.py: give a checkout of KernelBench"}
    reference = task / "reference.py" if task.is_dir() else task
    rows = [row for row in known.get("candidates", ()) if "failed" not in row]
    done, left = {row["name"] for row in rows}, []
    for candidate in [candidate for candidate in candidates if candidate.stem not in done]:
        remaining = deadline - time.monotonic()
        if remaining < 5:
            left.append(candidate.stem)
            continue
        rows.append({"name": candidate.stem, **_one(folder, reference, candidate, work, remaining)})
        write({"candidates": rows, "not_reached": []})
        _say(0)(f"KernelBench, {candidate.stem}: {rows[-1]['seconds']:.1f} s")
    return {"candidates": rows, "not_reached": left}


def _one(folder: Path, reference: Path, candidate: Path, work: Path, limit_s: float) -> dict[str, Any]:
    build = work / "kernelbench" / candidate.stem
    build.mkdir(parents=True)
    backend = "triton" if "import triton" in candidate.read_text() else "cuda"
    command = [sys.executable, "-c", _EVALUATE, *map(str, (folder, reference, candidate, build)), backend]
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(build), "TRITON_CACHE_DIR": str(build / "triton")}
    start = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"seconds": time.monotonic() - start, "failed": "it was not done when the time was up"}
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    seconds = time.monotonic() - start
    if not found:
        return {"seconds": seconds, "failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
    return {"seconds": seconds, **json.loads(found[-1].removeprefix("RESULT "))}


def table(record: dict[str, Any]) -> str:
    """Markdown: a candidate a row."""
    other = {row["name"]: row for row in record["kernelbench"].get("candidates", ())}
    lines = ["| candidate | verdict | build s | after it s | KernelBench s | it says |", "|---|---|---|---|---|---|"]
    for row in record["judge"]["candidates"]:
        theirs = other.get(row["name"], {})
        says = "-" if not theirs else theirs.get("failed") or ("correct" if theirs["correct"] else "not correct")
        cells = [row["name"], row["words"], f"{row['build_s']:.1f}", f"{row['after_build_s']:.1f}"]
        lines.append("| " + " | ".join([*cells, f"{theirs['seconds']:.1f}" if theirs else "-", says]) + " |")
    total = record["judge"]["seconds"]
    beside = sum(row["seconds"] for row in other.values())
    lines.append(f"| all | | | {total:.1f} (the run) | {beside:.1f} | {record['kernelbench'].get('skipped', '')} |")
    return "\n".join(lines)


def stages_table(record: dict[str, Any]) -> str:
    """Markdown: a stage a row, the longest first."""
    lines = []
    for name, group in record["stages"].items():
        lines += ["", f"| {name} ({group['candidates']}) | s |", "|---|---|"]
        seconds = sorted(group["seconds"].items(), key=lambda item: -item[1])
        lines += [f"| {what} | {taken:.2f} |" for what, taken in seconds if taken >= 0.01]
        lines += [f"| ... of a build: {what} | {taken:.2f} |" for what, taken in group["steps_s"].items()]
        lines += [f"| in all | {group['total_s']:.2f} |"]
    return "\n".join(lines)


def _write(file: Path, record: dict[str, Any]) -> None:
    file.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
