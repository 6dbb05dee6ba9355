"""Every command that the README and the docs show does what it is shown for: each is run, in a folder made for them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interchange.a_dataset import DEFINITION, RANDOM, REFERENCE, RIGHT, dataset, solution
from support import PLAIN, SMALL_TASK, write
from test_check import SCRIPT
from test_readme import ROOT, commands

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = sorted({command for page in PAGES for command in commands(page.read_text())})
STANDS_FOR = {
    "TASK": "reference.py",
    "TASKS": "tasks",
    "CANDIDATE": "candidate.py",
    "CANDIDATES": "candidates",
    "FOLDER": "exported",
    "NAME": "mine",
    "DATASET": "dataset",
    "PROBLEM": "problem",
}
TRIED_ELSEWHERE = {
    "crucible judge tasks/conv3d_leakyrelu_sum_clamp_gelu": "tests/test_tasks.py: every candidate's verdict",
    "crucible fuse tasks/convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool -o fused.py": (
        "tests/emission/test_fuse_command.py: its file is judged, too"
    ),
}
"""Whole, and for a minute of processor time: not twice."""
UNTIL_TOLD = {
    "crucible serve": "serving on http",
    "crucible serve --port 8000 --workers 2": "serving on http",
    "crucible judge reference.py candidate.py --watch": "passed",
}
"""Those that run on, and what they have said once they are up: then Ctrl-C ends them."""
ENDS_WITH = {"crucible check scale.cu --sarif scale.sarif": 1}
"""Exit codes other than 0: the one that is shown with a finding."""
ASKED_S = 240.0

SCALE = """
#include <cuda_runtime.h>
__global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= %s) x[i] *= 2.0f;
}
int main() {
    float* x;
    cudaMalloc(&x, 1000 * sizeof(float));
    cudaMemset(x, 0, 1000 * sizeof(float));
    scale<<<4, 256>>>(x, 1000);
    return cudaDeviceSynchronize();
}
"""


def test_those_tried_elsewhere_are_shown() -> None:
    assert TRIED_ELSEWHERE.keys() | UNTIL_TOLD.keys() | ENDS_WITH.keys() <= set(SHOWN)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands name: a checkout in KernelBench's form, tasks, candidates, kernels, a dataset."""
    folder = tmp_path_factory.mktemp("shown")
    reference, plain = linear((SMALL_TASK / "reference.py").read_text()), linear(PLAIN.read_text())
    for place in ("reference.py", "tasks/small.py", "kernels/reference.py"):
        write(folder / place, reference)
    write(folder / "KernelBench/level2/1_Small.py", reference)
    for place in (
        "candidate.py",
        "candidates/small_plain.py",
        "kernels/candidates/plain.py",
    ):
        write(folder / place, plain)
    for place in ("generated/1_Small_plain.py", "runs/mine/level_2_problem_1_sample_0_kernel.py"):
        write(folder / place, plain)
    write(folder / "kernels.cu", SCALE % "n - 1")
    write(folder / "scale.cu", SCALE % "n")
    write(folder / "kernels/launches.py", SCRIPT.replace("{last}", "pass"))
    dataset(folder / "dataset", [RANDOM], [solution("right", RIGHT)])
    write(folder / "problem/definition.json", json.dumps({**DEFINITION, "reference": REFERENCE}))
    write(folder / "problem/workload.jsonl", json.dumps(RANDOM) + "\n")
    write(folder / "solution.json", json.dumps(solution("right", RIGHT, sol=True)))
    ended(folder, "crucible judge reference.py candidate.py --baselines none --json run.json")
    return folder


def linear(source: str) -> str:
    """The layer alone, for which torch.compile has nothing to compile: that is 7 s of g++ a run."""
    fused = "F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias"
    assert fused in source
    return source.replace(fused, "self.linear(x)")


def started(folder: Path, command: str) -> subprocess.Popen[str]:
    words = {**STANDS_FOR, "RUN": newest(folder)}
    text = re.sub(r"\b[A-Z]+\b", lambda found: words.get(found[0], found[0]), command.replace("8000", "0"))
    text = f"{text} --port 0" if text == "crucible serve" else text  # its own may be taken here
    text = re.sub(r"^crucible", f"{sys.executable} -m crucible", text)
    environment = {**os.environ, "CRUCIBLE_HOME": str(folder / "home"), "GITHUB_STEP_SUMMARY": "summary.md"}
    return subprocess.Popen(
        ["bash", "-c", f"exec {text}"],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def newest(folder: Path) -> str:
    runs = sorted((folder / "home/runs").glob("*-*"))
    return runs[-1].name if runs else ""


def ended(folder: Path, command: str, code: int = 0) -> str:
    process = started(folder, command)
    said, _ = process.communicate(timeout=ASKED_S)
    assert process.returncode == code, f"{command}\n{said}"
    return said


@pytest.mark.parametrize("command", sorted(set(SHOWN) - TRIED_ELSEWHERE.keys() - UNTIL_TOLD.keys()))
def test_what_is_shown_runs(scene: Path, command: str) -> None:
    if "ray" in command:
        pytest.importorskip("ray", reason="Ray, an extra, is not installed; tests/fleet/test_ray.py says the same")
    said = ended(scene, command, ENDS_WITH.get(command, 0))
    for file in re.findall(r"[\w.]+\.(?:json|jsonl|html|xml|sarif)\b", command):
        assert (scene / file).is_file() and (scene / file).stat().st_size, said


@pytest.mark.parametrize("command", sorted(UNTIL_TOLD))
def test_what_runs_on_is_ended_by_ctrl_c(scene: Path, command: str) -> None:
    process = started(scene, command)
    said = ""
    assert process.stdout
    while UNTIL_TOLD[command] not in said:
        line = process.stdout.readline()
        assert line, f"{command} ended with {process.wait()}\n{said}"
        said += line
    os.killpg(process.pid, signal.SIGINT)
    try:
        rest, _ = process.communicate(timeout=ASKED_S)
    except subprocess.TimeoutExpired as late:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"{command} runs on after Ctrl-C:\n{said}{(late.output or b'').decode()}")
    assert process.returncode in (0, 130), said + rest
    assert "Traceback" not in said + rest
