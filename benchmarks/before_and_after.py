"""The three tasks, the modules of tests/modules and the sweep's shapes, as two versions of Crucible write them: timed
in turns, in one run.

    PYTHONPATH=TREE/src python benchmarks/before_and_after.py write FOLDER [--only WORD,WORD]
    python benchmarks/before_and_after.py time FILE BEFORE AFTER [--gpus 0,1] [--processes 12] [--seconds 0.5]
    python benchmarks/before_and_after.py merge FILE FILE...

`write` needs no GPU: texts for an H200, by whichever Crucible is on the path, TF32 for all. `time` builds the texts of
both folders side by side, holds each new one's outputs and gradients against float64, as `written_modules.py` does, and
races it with the old one, forward and with gradients. What FILE holds already is left as it is; with several GPUs there
is one FILE each, `FILE.0` and so on, which `merge` puts together. Functions import what they need themselves: `write`
runs by another version of Crucible, which has not all of it.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
WORST = 1.03
"""Times what it took, from which on a case is told by its name."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "time", "merge"))
    parser.add_argument("places", type=Path, nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--gpus", default="")
    parser.add_argument("--share", default="0/1", help="of the cases: which of how many parts")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a race")
    args = parser.parse_args()
    {"write": write, "time": timed, "merge": merge}[args.what](args)


# written


def cases(only: str) -> Iterator[tuple[str, Any]]:
    """By name the module with its inputs, on this machine's CPU or GPU: a function, since each takes memory."""
    words = only.split(",")
    files = [*sorted((ROOT / "tasks").glob("*/reference.py")), *sorted((ROOT / "tests/modules").glob("*.py"))]
    for file in files:
        name = file.parent.name if file.name == "reference.py" else file.stem
        if any(word in name for word in words):
            yield name, file
    import crucible

    sys.path.insert(0, str(Path(crucible.__file__).parents[2] / "benchmarks"))  # of the Crucible that is on the path
    import sweep

    for shape in (*sweep.SHAPES, *sweep.FURTHER):
        if any(word in shape.name for word in words):
            yield shape.name.replace(", ", "_").replace(" ", "_"), shape


def write(args: argparse.Namespace) -> None:
    """Texts into a folder, a file a case; refusals as `<name>.txt`."""
    from crucible.capture import trace
    from crucible.emission.file import emit
    from crucible.errors import MisuseError
    from crucible.gpus import H200
    from crucible.plan.planner import fuse

    (folder,) = args.places
    folder.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.allow_tf32 = True
    for name, case in cases(args.only):
        module, inputs = loaded(case, "cpu")
        try:
            text = emit(fuse(trace(module, inputs), tf32=True, gpu=H200), name)
        except MisuseError as error:
            (folder / f"{name}.txt").write_text(str(error))
            continue
        (folder / f"{name}.py").write_text(text)
        print(name, flush=True)


def loaded(case: Any, place: str) -> tuple[torch.nn.Module, list[Any]]:
    """A case's module and inputs, the same each time."""
    if not isinstance(case, Path):
        return _layer(case, place)
    from crucible.judge.oracle.reference import Reference
    from crucible.task import Task

    task = Task.load(case).at(scale="full", training=True, mode="train", small_by_default=False)
    reference = Reference(task.source, str(case), task.sizes, mode="train", seed=0, device=torch.device(place))
    inputs = [each.to(place) if isinstance(each, torch.Tensor) else each for each in reference.inputs(0)]
    return reference.model.to(place), inputs


def _layer(shape: Any, place: str) -> tuple[torch.nn.Module, list[Any]]:
    import sweep

    torch.manual_seed(0)
    batch, size = sweep.SIZES["full"][shape.rank]
    module = torch.nn.Sequential(shape.layer(), torch.nn.ReLU())
    extents = (batch, shape.channels, *size) if shape.rank else (batch, *size, shape.channels)
    return module.to(place), [torch.randn(extents).to(place).requires_grad_()]


# timed


def timed(args: argparse.Namespace) -> None:
    """In one process a GPU, once all is built."""
    file, before, after = args.places
    if args.gpus:
        gpus = args.gpus.split(",")
        _built([*before.glob("*.py"), *after.glob("*.py")], args.processes)
        jobs = [
            subprocess.Popen(
                [sys.executable, __file__, "time", f"{file}.{n}", str(before), str(after), "--share",
                 f"{n}/{len(gpus)}", "--seconds", str(args.seconds), "--only", args.only],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
            )
            for n, gpu in enumerate(gpus)
        ]  # fmt: skip
        sys.exit(max(job.wait() for job in jobs))
    number, parts = map(int, args.share.split("/"))
    from resuming import held

    from crucible import hardware

    device = hardware.find_device()
    record = {"device": device.name, "driver": device.driver, "versions": hardware.versions()}
    known = held(file, record, "cases") or {}
    for place, (name, case) in enumerate(cases(args.only)):
        if (
            place % parts == number
            and name not in known
            and all((each / f"{name}.py").exists() for each in (before, after))
        ):
            known[name] = _one(case, before / f"{name}.py", after / f"{name}.py", args.seconds)
            print(name, json.dumps(known[name])[:160], flush=True)
            file.write_text(json.dumps({**record, "cases": known}, indent=1) + "\n")


def _built(texts: list[Path], processes: int) -> None:
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for job in as_completed([pool.submit(_imported, text) for text in texts]):
            job.result()
    print(f"{len(texts)} texts are built", flush=True)


def _imported(path: Path) -> Any:
    """Named by its folder: two versions of a case are two extensions, which share a name where their text is one."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"written_{path.parent.name}_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return None if multiprocessing.parent_process() else module


def _one(case: Any, before: Path, after: Path, seconds: float) -> dict[str, Any]:
    """One case: checked, and both raced."""
    import written_modules
    from written_modules import COVERS, Subject, check, race, step

    from crucible import hardware

    written_modules.PACE = written_modules.GPU_PACE.within(seconds)
    module, inputs = loaded(case, hardware.find_device().kind)
    subject = Subject(module, inputs)
    try:
        texts = {word: _imported(path) for word, path in (("before", before), ("written", after))}
        everyone = {word: Subject(_written(module, text.forward), inputs) for word, text in texts.items()}
        wrong = check(subject, everyone["written"])
        if wrong:
            return {"wrong": wrong}
        found = {
            covers: race({word: step(each, covers) for word, each in everyone.items()}, covers) for covers in COVERS
        }
        return {"same_text": before.read_text() == after.read_text(), **found}
    except RuntimeError as error:
        return {"failed": str(error)[-500:]}


def _written(module: torch.nn.Module, function: Any) -> torch.nn.Module:
    """A module by a function that was written for it; its parameters are the module's."""
    other = copy.copy(module)
    other.__class__ = type("Written", (type(module),), {"forward": function})
    return other


# told


def merge(args: argparse.Namespace) -> None:
    """Files of several GPUs as one, and what it says."""
    into, *files = args.places
    records = [json.loads(file.read_text()) for file in files]
    every = {name: each for record in records for name, each in record["cases"].items()}
    into.write_text(json.dumps({**records[0], "cases": dict(sorted(every.items()))}, indent=1) + "\n")
    print(told(every))


def told(every: Mapping[str, Mapping[str, Any]]) -> str:
    """Times what each case took before; below 1 it takes less."""
    lines = []
    for covers in ("forward", "forward+backward"):
        ratios = {
            name: each[covers]["median_ms"]["written"] / each[covers]["median_ms"]["before"]
            for name, each in every.items()
            if covers in each
        }
        mean = math.exp(sum(map(math.log, ratios.values())) / max(1, len(ratios)))
        slower = {name: round(ratio, 3) for name, ratio in sorted(ratios.items(), key=lambda p: -p[1]) if ratio > WORST}
        lines.append(f"{covers}: {len(ratios)} cases, {mean:.3f} times what they took; more than {WORST}: {slower}")
    failed = {name: each for name, each in every.items() if "forward" not in each}
    return "\n".join([*lines, f"not timed: {failed}"])


if __name__ == "__main__":
    main()
