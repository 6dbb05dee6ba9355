"""The emulator's corpus on a real GPU: right kernels against their references and the emulator's answers, planted
faults under NVIDIA's compute-sanitizer.

python benchmarks/emulator_on_gpu.py [--part 1/2] [--minutes 7] [--results FILE]   # needs a GPU, nvcc, g++
python benchmarks/emulator_on_gpu.py --self-check                                   # what needs no GPU, on one batch
python benchmarks/emulator_on_gpu.py --table FILE                                   # a record as Markdown

What the results file holds already is not run again (but for `--again PREFIX`, whose names begin so), and what time did
not suffice for is run by the next call. Kernels are compiled twenty to a file, since PyTorch's headers cost each file a
minute of processor time.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/emulator_on_gpu.json"
SELF_CHECK = 6
"""Kernels that the self-check builds."""
BUILD_S, RUN_S, TOOL_S, HANG_S = 420, 180, 150, 45
"""Limits of one process: compiler, plain run, run under a tool, run of a kernel that is meant to hang."""
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests/emulator"), str(ROOT / "benchmarks")]

import corpus  # noqa: E402
import sanitizer  # noqa: E402
import torch  # noqa: E402
from emulator_record import Json, judged, summary, table  # noqa: E402

from crucible.hardware import compute_sanitizer  # noqa: E402
from crucible.judge.verdict.sanitizer_reports import reports  # noqa: E402

Item = TypeVar("Item")
Ended = Iterator[tuple[Item, "Done"]]
FIRST_PORT, PORTS = 49152, 12000
_runs = itertools.count()
ALL_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclass(frozen=True)
class Batch:
    """Kernels of one sort (`right`, `faults`, `twins`) that are compiled together, and where."""

    sort: str
    kernels: tuple[corpus.Kernel, ...]
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.sort}_{self.kernels[0].name}_{len(self.kernels)}"

    @property
    def here(self) -> Path:
        return self.folder / self.name

    def command(self, what: str, kernels: Iterable[corpus.Kernel] = ()) -> list[str]:
        """This script on this batch, or on some of its kernels, in a process of its own."""
        names = [str(kernel.path) for kernel in kernels or self.kernels]
        return [sys.executable, str(Path(__file__).resolve()), "--job", what, self.sort, str(self.here), *names]


def kernels(sort: str) -> list[corpus.Kernel]:
    """All of the corpus of one sort."""
    folders = ["field", "mutation"] if sort == "right" else ["faults"]
    return [corpus.Kernel(path) for folder in folders for path in sorted((corpus.KERNELS / folder).glob("*.cu"))]


def batches(pending: dict[str, list[corpus.Kernel]], folder: Path, workers: int) -> list[Batch]:
    """Kernels in as many files as processors can compile at once, and no more: each file costs PyTorch's headers."""
    size = max(1, -(-sum(map(len, pending.values())) // max(1, workers - len(pending))))
    return [
        Batch(sort, tuple(chosen[first : first + size]), folder)
        for sort, chosen in pending.items()
        for first in range(0, len(chosen), size)
    ]


# Jobs: each runs in a process of its own and prints one line of JSON at its end.


def job_build(sort: str, here: Path, chosen: list[corpus.Kernel]) -> Json:
    """Compiles with nvcc: an extension where there is a GPU, object code alone elsewhere."""
    here.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_EXTENSIONS_DIR"] = str(here)
    text = ("#define REPAIRED\n" if sort == "twins" else "") + corpus.source(chosen)
    from torch.utils import cpp_extension

    if not torch.cuda.is_available():
        from crucible.emulator import nvcc

        compiler = nvcc.find("sm_90", cpp_extension.COMMON_NVCC_FLAGS)
        assert compiler, "there is no nvcc here"
        compiler.unit(text, [], here.name)
        return {}
    file = here / "batch.cu"
    file.write_text(text)
    os.environ.update({"TORCH_CUDA_ARCH_LIST": "9.0", "MAX_JOBS": "1"})
    cpp_extension.load(here.name, [str(file)], extra_cuda_cflags=["-lineinfo"], build_directory=str(here))
    return {}


def job_emulate(sort: str, here: Path, chosen: list[corpus.Kernel]) -> Json:
    """The emulator's answers, kept in a file, and its faults."""
    from crucible.emulator import session

    session.start().thread_limit(1.0)
    built = corpus.build(chosen, f"emulated_{here.name}")
    outcomes = {k.path.stem: [corpus.run(built, k, which) for which in range(k.input_sets)] for k in chosen}
    here.mkdir(parents=True, exist_ok=True)
    answers = {name: [corpus.tensors(each.result) for each in of if not each.error] for name, of in outcomes.items()}
    torch.save(answers, here / "emulated.pt")
    return {name: [fault.words for each in of for fault in each.faults] for name, of in outcomes.items()}


def job_compare(sort: str, here: Path, chosen: list[corpus.Kernel]) -> Json:
    """Right kernels on the GPU: the greatest distance from reference and emulator, in units of the tolerance."""
    built = _extension(here)
    kept = here / "emulated.pt"
    emulated = torch.load(kept) if kept.exists() else {}
    found: Json = {}
    for kernel in chosen:
        near = corpus.tolerance(kernel)
        of = found[kernel.path.stem] = {"reference": 0.0, "emulator": 0.0 if kernel.path.stem in emulated else None}
        for which in range(kernel.input_sets):
            got = [tensor.cpu() for tensor in corpus.tensors(_call(built, kernel, which))]
            wanted = corpus.tensors(kernel.reference()(*kernel.inputs(which)))
            of["reference"] = max(of["reference"], distance(got, wanted, near))
            if of["emulator"] is not None:
                of["emulator"] = max(of["emulator"], distance(got, emulated[kernel.path.stem][which], near))
    return found


def job_call(sort: str, here: Path, chosen: list[corpus.Kernel]) -> Json:
    """Kernels on the GPU, nothing compared: for the tools, and for those that hang."""
    built, errors = _extension(here), {}
    for kernel in chosen:
        for which in range(kernel.input_sets):
            try:
                for tensor in corpus.tensors(_call(built, kernel, which)):
                    tensor.cpu()
            except RuntimeError as error:
                errors[kernel.path.stem] = str(error).splitlines()[0]
    return errors


JOBS: dict[str, Callable[[str, Path, list[corpus.Kernel]], Json]] = {
    "build": job_build,
    "emulate": job_emulate,
    "compare": job_compare,
    "call": job_call,
}


def _extension(here: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(here.name, here / f"{here.name}.so")
    assert spec and spec.loader, here
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call(built: types.ModuleType, kernel: corpus.Kernel, which: int) -> Any:
    inputs = [value.cuda() if isinstance(value, torch.Tensor) else value for value in kernel.inputs(which)]
    result = getattr(built, kernel.name)(*inputs)
    torch.cuda.synchronize()
    return result


def distance(got: list[torch.Tensor], wanted: list[torch.Tensor], near: float) -> float:
    """1 is where `torch.allclose` begins to refuse; infinite where shapes or NaN differ."""
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
            return float("inf")
        a, b = a.double().nan_to_num(), b.to(a.dtype).double().nan_to_num()
        if a.numel():
            worst = max(worst, ((a - b).abs() / (near * (1 + b.abs()))).max().item())
    return worst


# Processes: what they start dies with them, also what hangs on the GPU.


@dataclass
class Done:
    """A process that ended, or was ended."""

    output: str
    status: int | None
    seconds: float

    @property
    def hung(self) -> bool:
        return self.status is None

    @property
    def died(self) -> bool:
        """Of a GPU's error that PyTorch met where it could not raise: it aborts."""
        return self.status is not None and self.status < 0 and "CUDA error" in self.output

    @property
    def answer(self) -> Json | None:
        """The JSON of a job; None where it did not come so far."""
        last = self.output.strip().splitlines()[-1:] or [""]
        return json.loads(last[0]) if self.status == 0 and last[0].startswith("{") else None


def run(command: list[str], limit_s: float) -> Done:
    """Runs a command in a session of its own and ends all of that session after the limit."""
    start = time.monotonic()
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        # To a file: a pipe would be held open by whatever outlives the command.
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment)
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        _end_session(process.pid)
        process.wait()
        output.seek(0)
        return Done(output.read(), status, time.monotonic() - start)


def _end_session(session: int) -> None:
    """Kills what is left of a session, children in process groups of their own too."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, IndexError):
                continue


def tool_command(batch: Batch, tool: str, chosen: Iterable[corpus.Kernel]) -> list[str]:
    """compute-sanitizer around the kernels of a batch."""
    options = ["--tool", tool, "--print-limit", "50", "--launch-timeout", "120"]
    options += ["--target-processes", "application-only", "--show-backtrace", "device"]
    # Its own ten ports: the tool tries no more than ten from the first, and sixteen run side by side.
    options += ["--ignore-getprocaddress-notfound", "--port", str(FIRST_PORT + 10 * next(_runs) % PORTS)]
    options += ["--padding", "4096"] if tool == "memcheck" else []
    return [find_sanitizer(), *options, *batch.command("call", chosen)]


def find_sanitizer() -> str:
    """Its path. Raises FileNotFoundError with what to install."""
    if found := compute_sanitizer():
        return found
    raise FileNotFoundError("no compute-sanitizer on PATH or in /usr/local/cuda/bin: it is part of the CUDA toolkit")


@dataclass
class Campaign:
    """One call of this script: what is left to do, where, until when."""

    folder: Path
    until: float
    results: Path
    record: Json
    workers: int = field(default_factory=lambda: max(1, len(os.sched_getaffinity(0))))

    def each(
        self, start: Callable[[Item], Done], items: Iterable[Item], workers: int = 0
    ) -> Iterator[tuple[Item, Done]]:
        """Processes side by side, as they end; none begins after the time is up. The record is kept after each."""

        def unless_late(item: Item) -> Done | None:
            return start(item) if time.monotonic() < self.until else None

        with ThreadPoolExecutor(workers or self.workers) as pool:
            jobs = {pool.submit(unless_late, item): item for item in items}
            for job in as_completed(jobs):
                if done := job.result():
                    yield jobs[job], done
                    self.write()

    def write(self) -> None:
        """Keeps what is known so far."""
        self.record["summary"] = summary(self.record)
        self.results.write_text(json.dumps(self.record, indent=1, sort_keys=True) + "\n")

    def pending(self, sort: str, part: int, parts: int) -> list[corpus.Kernel]:
        """Kernels of this part whose record is missing or not complete."""
        known = self.record[sort]
        return [k for k in kernels(sort)[part - 1 :: parts] if not _complete(sort, known.get(k.path.stem, {}))]


def _complete(sort: str, of: Json) -> bool:
    tools = {"faults": 0, "twins": 1, "right": len(ALL_TOOLS)}[sort]
    return "does not build" in of or (bool(of) and len(of.get("tools", {})) >= tools)


def build(campaign: Campaign, wanted: list[Batch]) -> list[Batch]:
    """Compiles; a batch that does not compile is taken apart. Returns what compiled."""
    built: list[Batch] = []

    def compile_(batch: Batch) -> Done:
        return run(batch.command("build"), BUILD_S)

    def keep(batch: Batch, done: Done) -> None:
        print(f"{batch.name}: {done.seconds:.0f} s, {'built' if done.answer is not None else 'NOT built'}", flush=True)
        if done.answer is not None:
            built.append(batch)
        elif len(batch.kernels) == 1:
            words = "took too long" if done.hung else done.output[-1500:]
            kernel = batch.kernels[0]
            campaign.record[batch.sort][kernel.path.stem] = {"kind": kernel.kind, "does not build": words}

    tried = []
    for batch, done in campaign.each(compile_, wanted):
        tried.append(batch)
        keep(batch, done)
    apart = [batch for batch in tried if batch not in built and len(batch.kernels) > 1]
    singles = [Batch(batch.sort, (kernel,), batch.folder) for batch in apart for kernel in batch.kernels]
    for batch, done in campaign.each(compile_, singles):
        keep(batch, done)
    return built


def emulate(campaign: Campaign, built: list[Batch]) -> dict[str, list[str]]:
    """What the emulator says of each kernel, by file; a kernel is missing where the emulator did not run."""
    said: dict[str, list[str]] = {}
    wanted = [batch for batch in built if batch.sort != "twins"]
    for batch, done in campaign.each(lambda batch: run(batch.command("emulate"), BUILD_S), wanted):
        if done.answer is None:
            campaign.record["emulator's failures"][batch.name] = done.output[-1500:]
        said.update(done.answer or {})
    return said


def plant(campaign: Campaign, built: list[Batch], said: dict[str, list[str]]) -> None:
    """Planted faults, each in its own process under the tool for its kind; last those that hang a GPU."""

    def start(job: tuple[Batch, corpus.Kernel]) -> Done:
        batch, kernel = job
        tool = _tool(kernel)
        command = tool_command(batch, tool, [kernel]) if tool else batch.command("call", [kernel])
        return run(command, HANG_S if kernel.kind in sanitizer.HANGS else TOOL_S)

    jobs = [(batch, kernel) for batch in built if batch.sort == "faults" for kernel in batch.kernels]
    jobs.sort(key=lambda job: job[1].kind in sanitizer.HANGS)
    for (_, kernel), done in campaign.each(start, jobs):
        name, tool = kernel.path.stem, _tool(kernel)
        found = reports(done.output)
        same = sanitizer.seen(found, kernel.kind)
        ran = bool(found) or ("SUMMARY" in done.output if tool else done.answer is not None)
        ended = "hung" if done.hung else "" if ran else "died" if done.died else "failed"
        told = {report.heading: report.kind for report in [*same, *found]}
        of = campaign.record["faults"][name] = {
            "kind": kernel.kind,
            "emulator": said.get(name),
            "tool": tool or "none",
            "reports": [{"kind": kind, "heading": heading} for heading, kind in told.items()][:5],
            "same line": bool(kernel.lines & {line for report in same for line in report.lines}),
            "ended": ended,
            "output": _last_words(done.output) if ended in ("died", "failed") else "",
        }
        of["verdict"] = judged(name, of)


def _last_words(output: str) -> str:
    """The first lines that tell of an error, which long stacks push out of sight, and the end."""
    errors = [line for line in output.splitlines() if "error" in line.lower()]
    return "\n".join([*errors[:3], output[-800:]])


def _tool(kernel: corpus.Kernel) -> str:
    return sanitizer.TOOLS.get(kernel.kind, "")


def repaired(campaign: Campaign, built: list[Batch]) -> None:
    """Twins under the tool that saw, or could not see, the fault."""
    jobs = []
    for batch in (batch for batch in built if batch.sort == "twins"):
        by_tool: dict[str, list[corpus.Kernel]] = {}
        for kernel in batch.kernels:
            by_tool.setdefault(_tool(kernel) or "memcheck", []).append(kernel)
        jobs += [(batch, tool, tuple(chosen)) for tool, chosen in by_tool.items()]
    _clean(campaign, jobs)


def compare(campaign: Campaign, built: list[Batch], said: dict[str, list[str]]) -> None:
    """Right kernels, on the GPU alone and then under every tool."""
    right = [batch for batch in built if batch.sort == "right"]
    for batch, done in campaign.each(lambda batch: run(batch.command("compare"), RUN_S), right, workers=4):
        for kernel in batch.kernels:
            found = (done.answer or {}).get(kernel.path.stem) or {"failed": done.output[-1500:] or "hung"}
            found["emulator's faults"] = said.get(kernel.path.stem)
            campaign.record["right"][kernel.path.stem] = found
    _clean(campaign, [(batch, tool, batch.kernels) for batch in right for tool in ALL_TOOLS])


def _clean(campaign: Campaign, jobs: list[tuple[Batch, str, tuple[corpus.Kernel, ...]]]) -> None:
    """Kernels in which a tool must find nothing, many in a process; a report is put down to the kernel it names."""
    for (batch, tool, chosen), done in campaign.each(lambda job: run(tool_command(*job), TOOL_S), jobs):
        found = reports(done.output)
        broken = "hung" if done.hung else "" if "SUMMARY" in done.output else done.output[-800:] or "no output"
        for kernel in chosen:
            own = [report.heading for report in found if sanitizer.corpus_kernel(report) == kernel.name]
            own += [
                f"some kernel of these: {report.heading}" for report in found if not sanitizer.corpus_kernel(report)
            ]
            of = campaign.record[batch.sort].setdefault(kernel.path.stem, {})
            of.setdefault("tools", {})[tool] = broken or "; ".join(dict.fromkeys(own)) or "clean"


def versions() -> Json:
    """Device, tools and date of a record."""

    def said(*command: str) -> str:
        if not shutil.which(command[0]):
            return ""
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return {
        "date": datetime.date.today().isoformat(),
        "device": said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "nvcc": said("nvcc", "--version").splitlines()[-2:],
        "sanitizer": said(find_sanitizer(), "--version").splitlines()[-1:],
        "torch": torch.__version__,
    }


def whole(part: int, parts: int, minutes: float, results: Path, again: str = "") -> Json:
    """Everything that is pending, in the time there is; or, of faults and twins, those whose names begin with `again`
    too."""
    sorts = ("faults", "twins", "right")
    record: Json = {**{sort: {} for sort in sorts}, "emulator's failures": {}, **versions()}
    if results.exists():
        record = {**record, **json.loads(results.read_text())}
    for sort in ("faults", "twins"):
        record[sort] = {name: of for name, of in record[sort].items() if not again or not name.startswith(again)}
    with tempfile.TemporaryDirectory(prefix="crucible-on-gpu-") as folder:
        campaign = Campaign(Path(folder), time.monotonic() + 60 * minutes, results, record)
        pending = {sort: campaign.pending(sort, part, parts) for sort in (sorts[:2] if again else sorts)}
        wanted = batches(pending, campaign.folder, campaign.workers)
        print({sort: len(of) for sort, of in pending.items()}, flush=True)
        built = build(campaign, wanted)
        said = emulate(campaign, built)
        plant(campaign, built, said)
        repaired(campaign, built)
        compare(campaign, built, said)
        campaign.write()
    return campaign.record


def self_check() -> Json:
    """One batch through the jobs that need no GPU: seconds of the build, faults found."""
    with tempfile.TemporaryDirectory(prefix="crucible-on-gpu-") as folder:
        batch = Batch("faults", tuple(kernels("faults")[:SELF_CHECK]), Path(folder))
        built = run(batch.command("build"), BUILD_S)
        said = run(batch.command("emulate"), BUILD_S)
        missing = run(batch.command("call"), RUN_S)
    assert built.answer is not None, built.output
    assert said.answer is not None, said.output
    assert missing.answer is None, "a call of an extension that is not there went well"
    silent = [k.path.stem for k in batch.kernels if not any(w.startswith(k.kind) for w in said.answer[k.path.stem])]
    assert not silent, silent
    return {"kernels": len(batch.kernels), "build_s": round(built.seconds, 1), "emulate_s": round(said.seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1", metavar="I/N")
    parser.add_argument("--minutes", type=float, default=7.0, help="no process is started after as many")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--again", default="", metavar="PREFIX", help="runs faults and twins named so once more, and no right kernels"
    )
    parser.add_argument("--self-check", action="store_true")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        what, sort, here, *files = asked.job
        print("\n" + json.dumps(JOBS[what](sort, Path(here), [corpus.Kernel(Path(file)) for file in files])))
    elif asked.self_check:
        print(json.dumps(self_check(), indent=1))
    elif asked.table:
        print(table(json.loads(asked.table.read_text())))
    elif not torch.cuda.is_available():
        sys.exit("there is no GPU here: --self-check runs what needs none")
    else:
        part, parts = map(int, asked.part.split("/"))
        print(table(whole(part, parts, asked.minutes, asked.results, asked.again)))


if __name__ == "__main__":
    main()
