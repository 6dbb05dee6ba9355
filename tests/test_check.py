"""`crucible check`: a file's kernels with no task, in the sandbox, as text, JSON and SARIF."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from crucible.cli import app
from crucible.emulator.programs import callable_main, has_main
from crucible.errors import MisuseError
from crucible.gpus import DEFAULT, known_gpu
from crucible.judge.checking import check
from crucible.judge.process.limits import Limits

ROOT = Path(__file__).parents[1]
GPU = known_gpu(DEFAULT)
PROGRAM = """#include <cstdio>
#include "beside.cuh"
#include <cuda_runtime.h>

__global__ void reversed(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[63 - threadIdx.x];  // no barrier
}
__global__ void parted(float* x) {
    if (threadIdx.x < 32) {
        __syncthreads();
        x[threadIdx.x] = 1.0f;
    } else {
        __syncthreads();
    }
}

int main(int argc, char** argv) {
    float *x, *fresh;
    cudaMalloc(&x, 64 * sizeof(float));
    cudaMalloc(&fresh, 64 * sizeof(float));
    cudaMemset(x, 0, 64 * sizeof(float));
    reversed<<<1, 64>>>(x);
    parted<<<1, 64>>>(x);
    added<<<1, 64>>>(fresh, x);
    cudaDeviceSynchronize();
    printf("%d argument\\n", argc);
    if (argc == 1) std::exit(0);
}
"""
BESIDE = """__global__ void added(const float* x, float* out) {
    out[threadIdx.x] = x[threadIdx.x] + 1.0f;
}
"""
SCRIPT = '''
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = """
__global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    twice<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
of = load_inline("twice", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])
if __name__ == "__main__":
    x = torch.arange(100.0, device="cuda")
    assert torch.equal(of.run(x), 2 * x)
    try:
        open(__file__, "a")
    except OSError:
        print("held")
    {last}
'''


def test_a_program_s_faults_are_named_at_their_lines(tmp_path: Path) -> None:
    file, json_file, sarif_file = tmp_path / "program's.cu", tmp_path / "found.json", tmp_path / "found.sarif"
    file.write_text(PROGRAM)
    (tmp_path / "beside.cuh").write_text(BESIDE)
    done = CliRunner().invoke(app, ["check", str(file), "--json", str(json_file), "--sarif", str(sarif_file)])
    assert done.exit_code == 1, done.output
    log = json.loads(sarif_file.read_text())
    found = {
        (one["ruleId"], place["artifactLocation"]["uri"].rpartition("/")[2], place["region"]["startLine"])
        for one in log["runs"][0]["results"]
        for place in [one["locations"][0]["physicalLocation"]]
    }
    writes, reads = (
        1 + PROGRAM[: PROGRAM.index(text)].count("\n") for text in ("tile[threadIdx", "x[threadIdx.x] = tile")
    )
    second = 1 + PROGRAM[: PROGRAM.rindex("__syncthreads")].count("\n")
    name = "program%27s.cu"
    assert found == {
        ("race-shared", name, writes),
        ("race-shared", name, reads),
        ("uninitialised-shared", name, reads),
        ("divergent-barrier", name, second),
        ("uninitialised-global", "beside.cuh", 2),
    }
    assert f"{file}:{second}: divergent-barrier: " in done.stdout
    assert "not clean; 3 kernels ran, 5 findings" in done.stdout
    data = json.loads(json_file.read_text())
    assert (data["schema"], data["clean"], data["log"]) == ("crucible.check/1", False, "1 argument\n")


def test_a_python_file_runs_in_the_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "launches.py"
    file.write_text(SCRIPT.replace("{last}", "pass"))
    before = file.read_text()
    checked = check(file, GPU, Limits())
    assert (checked.is_clean, checked.faults, checked.launched, checked.log) == (True, (), ("twice",), "held\n")
    assert file.read_text() == before
    file.write_text(SCRIPT.replace("{last}", "raise ValueError('by itself')"))
    checked = check(file, GPU, Limits())
    assert (checked.is_clean, checked.raised) == (False, "ValueError: by itself")
    assert file.read_text().splitlines()[checked.line - 1].strip() == "raise ValueError('by itself')"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("kernels.cu", "__global__ void k() {}\nint domain(int main) { return f.main(main); }", "defines no main"),
        ("notes.txt", "", "give a Python file that launches kernels, or a .cu file with a main"),
        ("idle.py", "print('no kernel')", "launched no kernel that the emulator saw: nothing was checked"),
    ],
)
def test_what_cannot_be_checked_is_misuse(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(MisuseError, match=re.escape(words)):
        check(tmp_path / name, GPU, Limits())


def test_main_becomes_a_function_on_the_same_lines() -> None:
    text = 'void f() { puts("main() exit(1)"); }\nint main() {\n  if (x.exit(1)) ::exit(2);\n  std::exit(0);\n}\n'
    made = callable_main(text).partition('#line 1 "program.cu"\n')[2].splitlines()[:5]
    assert made == [
        'void f() { puts("main() exit(1)"); }',
        "int crucible_main() {",
        "  if (x.exit(1)) crucible_exit(2);",
        "  crucible_exit(0);",
        "return 0; }",
    ]
    assert has_main(text) and not has_main("int main();")


def test_the_recipe_for_github_is_a_workflow() -> None:
    page = (ROOT / "docs/emulator.md").read_text()
    (recipe,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    workflow = yaml.safe_load(recipe)
    steps = workflow["jobs"]["kernels"]["steps"]
    command = next(step["run"] for step in steps if "crucible check" in step.get("run", ""))
    upload = next(step for step in steps if "upload-sarif" in step.get("uses", ""))
    assert upload["with"]["sarif_file"] in command and upload["if"] == "always()"
    assert workflow["jobs"]["kernels"]["permissions"]["security-events"] == "write"
    options = set(re.findall(r"--[a-z-]+", command))
    help_ = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).output
    assert options <= set(re.findall(r"--[a-z-]+", help_)), options
