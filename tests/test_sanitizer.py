"""compute-sanitizer's words: read into records, put to lines of the candidate's file, and asked for on a GPU alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import crucible
from crucible import cli, hardware
from crucible.candidate import Candidate
from crucible.contract import CONTRACTS
from crucible.emulator import toolchain
from crucible.errors import DeviceError
from crucible.hardware import Device
from crucible.judge import examine
from crucible.judge.boundary.bundles import write_bundle
from crucible.judge.diagnosis import sanitizer
from crucible.judge.examine import Examination, Setting
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.timing.contestants import Contestants
from crucible.judge.timing.race import CPU_PACE
from crucible.judge.verdict.sanitizer_reports import (
    MOST_REPORTS,
    NotSanitized,
    Report,
    Sanitized,
    merged,
    reports,
    short_name,
)
from crucible.judge.verdict.verdict import Verdict
from crucible.task import Task
from sanitizer_texts import BARRIER, CLEAN, COPIED, MISALIGNED, OUT_OF_BOUNDS, RACE, REFUSED, UNINITIALISED
from support import SMALL_TASK, TESTS, some, write

RECORD = TESTS.parent / "benchmarks/results/emulator_on_gpu.json"

# --- the text


@pytest.mark.parametrize(
    ("text", "kernel", "file", "line", "block", "thread"),
    [
        (MISALIGNED, "add_rows", "misaligned_float4.cu", 14, (0, 0, 0), (1, 0, 0)),
        (OUT_OF_BOUNDS, "histogram<4>", "bins.cu", 12, (1, 0, 0), (3, 0, 0)),
        (RACE, "matmul16", "tiles.cu", 15, None, None),
        (BARRIER, "reduce", "guarded.cu", 13, (0, 0, 0), (0, 0, 0)),
        (UNINITIALISED, "accumulate", "plus.cu", 10, (0, 0, 0), (0, 0, 0)),
        (COPIED, "", "", 0, None, None),
        (REFUSED, "", "", 0, None, None),
    ],
)
def test_a_report_names_kernel_line_block_and_thread(
    text: str, kernel: str, file: str, line: int, block: object, thread: object
) -> None:
    first = reports(text)[0]
    assert (first.kernel, first.file, first.line, first.block, first.thread) == (kernel, file, line, block, thread)


def test_without_lineinfo_there_is_a_kernel_and_no_line() -> None:
    (race,) = reports(RACE.replace(" in tiles.cu:15", "").replace(" in tiles.cu:19", "").replace(" in tiles.cu:20", ""))
    assert (race.kind, race.kernel, race.file, race.line, race.lines) == ("race-shared", "matmul16", "", 0, ())


def test_the_hosts_frames_name_no_kernel() -> None:
    (refused,) = reports(REFUSED)
    assert "Host Frame" not in refused.text and refused.kind == "launch-limits"


def test_headings_of_the_run_on_an_h200_are_read_as_they_were() -> None:
    """What is kept of 110 planted faults under compute-sanitizer 2025.3.1."""
    faults: dict[str, Any] = json.loads(RECORD.read_text())["faults"]
    kept = [(name, report) for name, of in faults.items() for report in of["reports"]]
    assert len(kept) > 100
    races = 0
    for name, report in kept:
        found = reports(f"========= COMPUTE-SANITIZER\n========= {report['heading']}\n=========\n")
        kinds = [one.kind for one in found]
        # Misaligned, and never written before a copy to the host: told by the line after the heading.
        if report["kind"] == "misaligned":
            assert kinds == [f"out-of-bounds-{found[0].heading.split('__')[1]}"]
        elif report["heading"].startswith("Host API"):
            assert kinds == ["out-of-bounds-global"]
        else:
            assert kinds == [report["kind"]]
        if "Race reported" in report["heading"]:
            races += 1
            assert (found[0].file, found[0].line > 0) == (f"{name}.cu", True)
            assert found[0].kernel and not set(found[0].kernel) & set(" (:"), found[0].kernel
    assert races >= 20


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("void in_bins::histogram<(int)4>(const int *, int)", "histogram<4>"),
        ("copy(const float *, float *, int)", "copy"),
        ("in_x::sums(const float *, int)::[lambda(int) (instance 1)]::operator ()(int) const", "sums"),
        ("unsigned char cub::Reduce<unsigned char, (int)65>::Sum<(bool)1>(unsigned char, int)", "Sum<1>"),
        ("(anonymous namespace)::fill(float *)", "fill"),
        ("triton_kernel", "triton_kernel"),
        ("__syncthreads()", "__syncthreads"),
    ],
)
def test_a_kernel_is_named_as_it_is_launched(function: str, name: str) -> None:
    assert short_name(function) == name


@pytest.mark.parametrize(
    "text",
    [
        CLEAN,
        "",
        "a candidate's own words\n",
        REFUSED.replace("cudaLaunchKernel", "cudaPointerGetAttributes"),
        "========= COMPUTE-SANITIZER\n========= Warning: Maximum number of hazards reached. Environment variable "
        "NV_COMPUTE_SANITIZER_MAX_RACECHECK_HAZARDS can be used to increase this count.\n=========\n",
    ],
)
def test_what_is_no_error_is_no_report(text: str) -> None:
    assert reports(text) == []


def test_threads_that_do_the_same_are_one_report_with_a_count() -> None:
    one = UNINITIALISED.replace("========= ERROR SUMMARY: 1 error\n", "")
    other = one.replace("thread (0,0,0)", "thread (7,0,0)")
    elsewhere = one.replace("plus.cu:10", "plus.cu:11")
    found = merged(reports(one + other + elsewhere + other))
    assert [(report.line, report.count, report.thread) for report in found] == [(10, 3, (0, 0, 0)), (11, 1, (0, 0, 0))]


def test_a_tool_that_finds_no_end_of_errors_is_cut_off() -> None:
    many = "".join(UNINITIALISED.replace("plus.cu:10", f"plus.cu:{line}") for line in range(1, 200))
    assert len(merged(reports(many))) == MOST_REPORTS


# --- lines of the candidate's file

SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline
CUDA = r"""
__global__ void copy(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];
}
"""
'''
STRING = SOURCE.split('"""')[1]
HEADERS = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


@pytest.mark.parametrize(
    ("built", "line", "wanted"),
    [
        (HEADERS + STRING, 7, 7),
        (STRING, 4, 7),
        (HEADERS + STRING.replace("int n", "int m"), 7, 7),
        (HEADERS + STRING, 2, 0),
        (HEADERS + "// x\n" + STRING.replace("out[i] = x[i];", "out[j] = x[j];"), 8, 0),
        (HEADERS + STRING, 99, 0),
    ],
)
def test_a_line_of_what_was_compiled_is_one_of_the_candidates_file(
    tmp_path: Path, built: str, line: int, wanted: int
) -> None:
    file = write(tmp_path / "copy/cuda.cu", "")
    file.write_text(built)
    report = Report("out-of-bounds-global", "Invalid", file="cuda.cu", line=line)
    assert sanitizer.located(report, SOURCE, [file]).python_line == wanted
    whole = Report("out-of-bounds-global", "Invalid", file=str(file), line=line)
    assert sanitizer.located(whole, SOURCE, [file]).python_line == wanted


def test_a_line_of_one_of_two_files_of_that_name_is_not_told(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}/cuda.cu", name + STRING) for name in ("one", "two")]
    report = Report("out-of-bounds-global", "Invalid", file="cuda.cu", line=4)
    assert sanitizer.located(report, SOURCE, files[:1]).python_line == 7
    assert sanitizer.located(report, SOURCE, files).python_line == 0


def test_a_line_that_stands_twice_is_told_by_its_number(tmp_path: Path) -> None:
    store = "    out[i] = x[i];\n"
    file = write(tmp_path / "cuda.cu", "")
    file.write_text(HEADERS + STRING.replace(store, 2 * store))
    report = Report("out-of-bounds-global", "Invalid", file="cuda.cu", line=8)
    assert sanitizer.located(report, SOURCE.replace(store, 2 * store), [file]).python_line == 8


def test_a_line_of_a_python_file_stays() -> None:
    report = Report("out-of-bounds-global", "Invalid", file="/x/candidate.py", line=12)
    assert sanitizer.located(report, "", []).python_line == 12


# --- what is missing

TOOL = """#!/bin/sh
printf '%s\\n' "$@" > {arguments}."$2"
while [ "$1" != --log-file ]; do shift; done
cat {text} > "$2"
shift 2
exec "$@"
"""


def stand_in(folder: Path, text: str) -> Path:
    """A program in the place of NVIDIA's: it writes a recorded text where the option says, and runs the command."""
    write(folder / "text", "").write_text(text)
    tool = write(folder / "compute-sanitizer", TOOL.format(arguments=folder / "arguments", text=folder / "text"))
    tool.chmod(0o755)
    return tool


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = stand_in(tmp_path / "bin", OUT_OF_BOUNDS)
    monkeypatch.setenv("PATH", f"{found.parent}{os.pathsep}{os.environ['PATH']}")
    return found


def test_all_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    here = hardware.compute_sanitizer()  # a machine may have a toolkit at its usual place
    words = "an NVIDIA GPU to run on .*" if here else "an NVIDIA GPU to run on .* and compute-sanitizer on PATH"
    with pytest.raises(DeviceError, match=f"--sanitize needs {words}"):
        sanitizer.demand(Device("cpu", "CPU", ""))
    if not here:
        with pytest.raises(DeviceError, match="--sanitize needs compute-sanitizer on PATH or in /usr/local/cuda/bin"):
            sanitizer.demand(Device("cuda", "NVIDIA H200", "580"))


def test_with_gpu_and_tool_nothing_is_missing(tool: Path) -> None:
    assert hardware.compute_sanitizer() == str(tool)
    sanitizer.demand(Device("cuda", "NVIDIA H200", "580"))


def test_the_command_says_so_and_judges_nothing(tool: Path, crucible_home: Path) -> None:
    command = ["judge", str(SMALL_TASK), "--sanitize", "--device", "cpu"]
    done = CliRunner().invoke(cli.app, command)
    assert isinstance(done.exception, DeviceError)
    assert str(done.exception).startswith("--sanitize needs an NVIDIA GPU to run on (--device emulator names")
    assert not crucible_home.exists()


# --- a candidate under a tool

CANDIDATE = """
import os, sys, time
import torch
from torch import nn
{top}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        {body}
        return x * self.weight
"""
NOTE = "open({file!r}, 'a').write(' '.join([str(x.shape[0]), *map(os.environ.get, NAMES)]) + '\\n')"
NAMES = "NAMES = ('NVCC_APPEND_FLAGS', 'PYTORCH_NO_CUDA_MEMORY_CACHING')"


def under(
    tmp_path: Path, body: str, top: str = NAMES, tools: tuple[str, ...] = ("memcheck", "initcheck"), **limits: float
) -> Any:
    """A candidate on a case of three rows, under two tools."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    write_bundle(inputs / "init", [])
    write_bundle(inputs / "weights", [["weight", True, "weight"]])
    write_bundle(inputs / "case0.state", {"weight": torch.ones(1)})
    write_bundle(inputs / "case2.inputs", [torch.rand(3, 4)])
    write_bundle(inputs / "case2.state", {"weight": torch.full((1,), 2.0)})
    write_bundle(inputs / "case2.cotangents", [torch.ones(3, 4)])
    file = write(tmp_path / "candidate.py", CANDIDATE.format(body=body, top=top))
    settings = {
        "file": str(file), "inputs": str(inputs), "device": "cpu", "allow_tf32": [False, False], "mode": "train",
        "bfloat16": False, "compile_only": False, "header": "", "emulator": "", "triton_program_s": 0.0, "seed": 0,
    }  # fmt: skip
    case = {"case": 2, "poison": False, "backward": True, "outputs": [], "clone": False, "inputs": ["input[0]"]}
    limit = crucible.Limits(**limits)
    return sanitizer.sanitized(settings, tmp_path / "under", case, "", limit, tools)


def test_each_tool_runs_the_case_in_a_process_of_its_own(tool: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    found = under(tmp_path, NOTE.format(file=str(note)))
    assert note.read_text() == "3 -lineinfo 1\n" * 2
    assert [(one.tool, one.ended) for one in found.runs] == [("memcheck", ""), ("initcheck", "")]
    assert [[report.kernel for report in one.reports] for one in found.runs] == [["histogram<4>", "look_up"]] * 2
    arguments = {one.tool: (tool.parent / f"arguments.{one.tool}").read_text().splitlines() for one in found.runs}
    assert [name for name, words in arguments.items() if "--padding" in words] == ["memcheck"]
    first, second = sorted(int(words[words.index("--port") + 1]) for words in arguments.values())
    assert 49152 <= first <= second - 10 and second <= 65520  # ten are tried from each, and 65535 is the last


ALONE = """import pathlib
        here = pathlib.Path({here!r})
        try:
            here.mkdir()
            time.sleep(4)
            here.rmdir()
        except FileExistsError:
            raise MemoryError('crowded')"""


def test_a_tool_that_fell_beside_the_others_runs_again_alone(tool: Path, tmp_path: Path) -> None:
    (tool.parent / "text").write_text("")  # as of one that died before its summary
    tool.write_text(tool.read_text().replace('exec "$@"', '"$@" && echo "ERROR SUMMARY: 0 errors" >> "$log"'))
    tool.write_text(tool.read_text().replace("cat ", 'log="$2"; cat '))
    found = under(tmp_path, ALONE.format(here=str(tmp_path / "here")))
    assert [(one.tool, one.ended) for one in found.runs] == [("memcheck", ""), ("initcheck", "")]


@pytest.mark.parametrize(
    ("body", "limit_s", "words"),
    [
        ("os._exit(3)", 60.0, "ended with exit code 3"),
        ("raise ValueError('tired')", 60.0, "ended with exit code 1: ValueError: tired"),
        ("time.sleep(2)", 1.5, "took over 1.5 s"),
    ],
)
def test_a_tool_that_does_not_come_to_its_summary_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, limit_s: float, words: str
) -> None:
    found = stand_in(tmp_path / "bin", UNINITIALISED.replace("========= ERROR SUMMARY: 1 error\n", ""))
    monkeypatch.setenv("PATH", f"{found.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sanitizer, "TOOL_S", limit_s)
    (first,) = under(tmp_path, body, tools=("memcheck",)).runs
    assert (first.ended.startswith(words), [report.kernel for report in first.reports]) == (True, ["accumulate"])


def test_a_candidate_that_does_not_build_for_the_tools_is_run_under_none(tool: Path, tmp_path: Path) -> None:
    found = under(tmp_path, "pass", top="raise RuntimeError('no compiler')")
    assert {one.ended for one in found.runs} == {
        "its build for the tools ended with exit code 1: RuntimeError: no compiler"
    }
    assert not [*tool.parent.glob("arguments*")]


# --- after a verdict


def judged(tmp_path: Path, source: str, *, sanitize: bool = True) -> Verdict:
    """A candidate's verdict as the pipeline comes to it on the emulator, which needs no GPU."""
    task = Task.load(write(tmp_path / "reference.py", TASK)).at(
        scale=None, training=False, mode="train", small_by_default=False
    )
    (tmp_path / "inputs").mkdir()
    limits = crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0)
    device = hardware.find_device("emulator")
    emulator = toolchain.prepare().folder
    setting = Setting(
        task, CONTRACTS["tf32"], device, 0, limits, tmp_path / "inputs", emulator=emulator, sanitize=sanitize
    )
    examination = Examination(Candidate("copy", Path("copy.py"), source), setting, tmp_path / "candidate")
    oracle = OracleProcess(tmp_path, limits)
    request = {
        "source": task.source, "path": str(task.path), "sizes": {}, "first": [], "smaller_weights": [],
        "further": [], "asked": False,
        "mode": "train", "training": False, "contract": "tf32", "device": "cpu", "seed": 0, "secrets": [[]],
    }  # fmt: skip
    try:
        description = oracle.prepare(request, print, lambda: None, 300)
        examination.build()
        return examination.judge(oracle, description, Contestants("cpu", CPU_PACE, print))
    finally:
        examination.close()
        oracle.kill()


TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 1.0

def get_inputs():
    return [torch.rand(2, 40)]

def get_init_inputs():
    return []
"""
KERNEL = (
    SOURCE.replace("out[i] = x[i];", "if (i < n) out[i] = x[i];").replace(
        '}\n"""', '}\ntorch::Tensor run(torch::Tensor x) {\n    auto out = torch::empty_like(x);\n'
        '    copy<<<2, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());\n    return out;\n}\n"""',
    )
    + """
extension = load_inline("copy", "torch::Tensor run(torch::Tensor x);", CUDA, functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)
"""
)  # fmt: skip


def test_a_candidate_runs_under_the_tools_when_its_verdict_is_there(
    tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the four by day: each is a process with PyTorch and a build of its own."""
    tools = tuple(some(sanitizer.TOOLS, 2))
    monkeypatch.setattr(examine, "TOOLS", tools)
    verdict = judged(tmp_path, KERNEL)
    assert verdict.evaluation, verdict.outcome.words
    assert isinstance(verdict.sanitizer, Sanitized)
    assert [(one.tool, one.ended, len(one.reports)) for one in verdict.sanitizer.runs] == [
        (name, "", 2) for name in tools
    ]


def test_without_being_asked_for_no_tool_is_run(tool: Path, tmp_path: Path) -> None:
    assert judged(tmp_path, KERNEL, sanitize=False).sanitizer == NotSanitized("not asked for")
    assert not [*tool.parent.glob("arguments*")]


@pytest.mark.parametrize(
    "source",
    [
        "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 1.0\n",
        "CUDA = '__global__'",
    ],
)
def test_what_has_no_kernels_or_never_ran_is_run_under_none(tool: Path, tmp_path: Path, source: str) -> None:
    found = judged(tmp_path, source).sanitizer
    assert isinstance(found, NotSanitized) and found.reason.startswith("only candidates with kernels of their own")
    assert not [*tool.parent.glob("arguments*")]
