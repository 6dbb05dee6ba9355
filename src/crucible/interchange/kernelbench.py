"""KernelBench's files: the kernels of `runs/NAME/`, the results and baseline times that its own scripts score.

    runs/NAME/level_L_problem_P_sample_S_kernel.py   read
    runs/NAME/eval_results.json                      {"P": [{sample_id, compiled, correctness, runtime, ...}]}
    results/timing/HARDWARE/baseline_time_*.json     {"levelL": {"P_name.py": {mean, std, ...}}}

Times are milliseconds, as its timing functions have them. What others wrote into these files stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible import legible, store
from crucible.candidate import Candidate
from crucible.errors import MisuseError
from crucible.judge.verdict.evidence import Measured, Moments
from crucible.judge.verdict.verdict import DoesNotBuild, DoesNotImport, NotJudged, TimedOut, Verdict, Wrong
from crucible.run import Run

RESULTS = "eval_results.json"
BASELINE_FILES = {
    "eager": "baseline_time_torch.json",
    "compile": "baseline_time_torch_compile_inductor_default.json",
    "max-autotune": "baseline_time_torch_compile_inductor_max-autotune-no-cudagraphs.json",
}
"""By our baselines' names: those that KernelBench has a file for."""
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_PROBLEM = re.compile(r"(\d+)_.*\.py")
_OURS = "crucible"
"""The key under which our own entries say so."""


@dataclass(frozen=True)
class Sample:
    """One kernel of a run."""

    problem: int
    number: int
    candidate: Candidate


def samples(folder: Path, level: int) -> list[Sample]:
    """The kernels of a level, by problem and sample. Raises MisuseError where there is none."""
    if not folder.is_dir():
        raise MisuseError(f"no folder {folder}: give a run's, as KernelBench's generate_samples.py writes it")
    found = []
    for file in folder.iterdir():
        named = _KERNEL.fullmatch(file.name)
        if named and int(named[1]) == level:
            found.append(Sample(int(named[2]), int(named[3]), Candidate.load(file)))
    if not found:
        raise MisuseError(f"no level_{level}_problem_P_sample_S_kernel.py in {folder}")
    return sorted(found, key=lambda sample: (sample.problem, sample.number))


def problems(checkout: Path, level: int) -> dict[int, Path]:
    """The task files of a level by number. Raises MisuseError where the folder is no checkout."""
    folder = checkout / "KernelBench" / f"level{level}"
    found = {int(named[1]): file for file in folder.glob("*.py") if (named := _PROBLEM.fullmatch(file.name))}
    if not found:
        raise MisuseError(f"no tasks in {folder}: name a KernelBench checkout with --checkout")
    return found


def checkout_of(folder: Path) -> Path:
    """The checkout that a run's folder lies in (`CHECKOUT/runs/NAME`), else the current folder."""
    above = folder.resolve().parents
    return next((place for place in above if (place / "KernelBench").is_dir()), Path())


class Results:
    """A run's `eval_results.json`, written anew after each task; entries of others stay as they are."""

    def __init__(self, folder: Path) -> None:
        """Raises MisuseError where the file is there and is something else."""
        self.file = folder / RESULTS
        self._entries()

    def holds(self, sample: Sample) -> bool:
        """Whether there is a result that stands: one of ours for another text of the kernel does not."""
        entry = next((e for e in self._of(sample.problem) if e.get("sample_id") == sample.number), None)
        if entry is None:
            return False
        ours = entry.get("metadata", {}).get(_OURS) if isinstance(entry.get("metadata"), dict) else None
        return not isinstance(ours, dict) or ours.get("digest") == sample.candidate.digest

    def add(self, run: Run, judged: Sequence[Sample]) -> list[str]:
        """Writes what a task's run says of its samples; names those without a verdict, which are left out: neither
        right nor wrong is no False. Raises StoreError."""
        verdicts = {verdict.candidate: verdict for verdict in run.verdicts}
        entries, left_out = self._entries(), []
        for sample in judged:
            verdict = verdicts.get(sample.candidate.name)
            if verdict is None or isinstance(verdict.outcome, NotJudged):
                left_out.append(sample.candidate.name)
                continue
            others = [e for e in entries.get(str(sample.problem), []) if e.get("sample_id") != sample.number]
            found = [*others, entry_of(run, verdict, sample)]
            entries[str(sample.problem)] = sorted(found, key=lambda entry: int(entry["sample_id"]))
        if len(left_out) < len(judged):
            store.write_text(self.file, _text(dict(sorted(entries.items(), key=lambda item: int(item[0])))))
        return left_out

    def _of(self, problem: int) -> list[dict[str, Any]]:
        return self._entries().get(str(problem), [])

    def _entries(self) -> dict[str, list[dict[str, Any]]]:
        data = _read(self.file)
        if not all(key.isdecimal() and _is_list_of_results(value) for key, value in data.items()):
            raise MisuseError(f"{self.file} holds something else than KernelBench's results: move it away")
        return data


def entry_of(run: Run, verdict: Verdict, sample: Sample) -> dict[str, Any]:
    """A sample's result in the benchmark's fields."""
    timed = verdict.timing if verdict.evaluation and isinstance(verdict.timing, Measured) else None
    return {
        "sample_id": sample.number,
        "compiled": _is_compiled(verdict),
        "correctness": verdict.evaluation,
        "metadata": _metadata(run, verdict, sample),
        "runtime": _mean(timed) if timed else -1.0,
        "runtime_stats": statistics_of(run, timed) if timed else {},
    }


def statistics_of(run: Run, timed: Measured) -> dict[str, Any]:
    """Of a runtime, in the benchmark's fields (milliseconds)."""
    found = timed.moments
    known: dict[str, float] = {}
    if isinstance(found, Moments):
        known = {"std": found.deviation_ms, "min": found.least_ms, "max": found.most_ms}
    return {
        "mean": _mean(timed),
        **known,
        "num_trials": timed.samples,
        "hardware": run.device.name,
        "device": run.device.kind,
        "median": timed.median_ms,
    }


class Timings:
    """Baseline files of one machine. Entries that somebody else measured stay."""

    def __init__(self, folder: Path, level: int) -> None:
        """`folder` is `results/timing/HARDWARE`. Raises MisuseError where a file there is something else."""
        self.folder = folder
        self._level = f"level{level}"
        for name in BASELINE_FILES.values():
            self._read(folder / name)

    def add(self, run: Run, problem: Path) -> list[Path]:
        """Writes the baselines that the run has measured; the files that changed. Raises StoreError."""
        written = []
        for baseline in run.ground.baselines:
            name = BASELINE_FILES.get(baseline.candidate)
            if name and baseline.evaluation and isinstance(baseline.timing, Measured):
                file = self.folder / name
                data = self._read(file)
                entries = data.setdefault(self._level, {})
                if _OURS in entries.get(problem.name, {_OURS: True}):
                    entries[problem.name] = {**statistics_of(run, baseline.timing), _OURS: _version(run)}
                    store.write_text(file, _text(data))
                    written.append(file)
        return written

    def _read(self, file: Path) -> dict[str, dict[str, Any]]:
        data = _read(file)
        levels = [level for level in data.values() if isinstance(level, dict)]
        if len(levels) < len(data) or not all(isinstance(one, dict) for level in levels for one in level.values()):
            raise MisuseError(f"{file} holds something else than KernelBench's baseline times: move it away")
        return data


def hardware_name(name: str) -> str:
    """A device's name as a folder's: `NVIDIA_H200`."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "unknown"


def _mean(timed: Measured) -> float:
    """What the benchmark calls a runtime; of an old record the median, which is all it has."""
    return timed.moments.mean_ms if isinstance(timed.moments, Moments) else timed.median_ms


def _is_compiled(verdict: Verdict) -> bool:
    """Whether it came as far as a module; the benchmark counts a Python file that raises as not compiled."""
    outcome = verdict.outcome
    if isinstance(outcome, TimedOut):
        return outcome.stage != "import or build"
    return not isinstance(outcome, DoesNotBuild | DoesNotImport)


def _metadata(run: Run, verdict: Verdict, sample: Sample) -> dict[str, Any]:
    outcome = verdict.outcome
    kept: dict[str, Any] = {"hardware": run.device.name, "device": run.device.kind}
    if not verdict.evaluation:
        key = "correctness_issue" if isinstance(outcome, Wrong) else "runtime_error"
        kept[key if _is_compiled(verdict) else "compilation_error"] = legible.lines(outcome.words)
    ours = {"verdict": outcome.kind, "contract": run.contract.name, "digest": sample.candidate.digest}
    return {**kept, _OURS: {**ours, "version": _version(run)}}


def _version(run: Run) -> str:
    return run.versions.get("crucible-kernels", "-")


def _read(file: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is no file. Raises MisuseError."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise MisuseError(f"{file} cannot be read ({error}): move it away") from error
    if not isinstance(data, dict):
        raise MisuseError(f"{file} holds no JSON object: move it away")
    return data


def _is_list_of_results(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(e, dict) and isinstance(e.get("sample_id"), int) for e in value)


def _text(data: Any) -> str:
    return json.dumps(data, indent=4, allow_nan=False) + "\n"
