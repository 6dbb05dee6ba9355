"""`--sanitize` on a GPU: what compute-sanitizer sees becomes findings with kernel, block, thread and line."""

from __future__ import annotations

import pytest

import crucible
from crucible import hardware
from crucible.judge.diagnosis.sanitizer import TOOLS
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.sanitizer_reports import Sanitized
from support import write

pytestmark = pytest.mark.skipif(not hardware.compute_sanitizer(), reason="there is no compute-sanitizer here")
TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.rand(10, 100)]

def get_init_inputs():
    return []
"""
CANDIDATE = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void twice(const float* x, float* out, int n) {{
    __shared__ float tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
torch::Tensor run(torch::Tensor x) {{
    auto out = torch::empty_like(x);
    int n = x.numel();
    twice<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""
module = load_inline("{name}", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x.contiguous())
'''
LINE = CANDIDATE[: CANDIDATE.index("{body}")].count("\n") + 1
CASES = {
    # body; tool; words of the finding
    "clean": ("if (i < n) out[i] = 2 * x[i];", "", ""),
    "clean_with_a_tile": (
        "tile[threadIdx.x ^ 64] = i < n ? x[i] : 0; __syncthreads(); if (i < n) out[i] = 2 * tile[threadIdx.x ^ 64];",
        "",
        "",
    ),
    "no_guard": ("out[i] = 2 * x[i];", "memcheck", "`twice` goes outside of its tensor"),
    "no_barrier": (
        "tile[threadIdx.x] = i < n ? x[i] : 0; if (i < n) out[i] = 2 * x[i] + 0 * tile[threadIdx.x ^ 64];",
        "racecheck",
        "`twice` has a race in shared memory",
    ),
    "accumulates": ("if (i < n) out[i] += 2 * x[i];", "initcheck", "`twice` reads memory that nobody wrote"),
    "divergent": (
        # 44 of 128 threads, as in a block of divergent-barrier_count_in_guard of the emulator's corpus, which synccheck
        # of 2025.3.1 reported. With `i < n` 104 threads of the last block are in the guard, and all tools hung.
        "int c = 0; if (threadIdx.x < 44) c = __syncthreads_count(x[i] > 0);\n"
        "    __syncthreads(); if (i < n) out[i] = 2 * x[i] + 0 * c;",
        "synccheck",
        "`twice` has threads of one block at different barriers",
    ),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("sanitized")
    task = write(folder / "reference.py", TASK)
    files = [
        write(folder / f"{name}.py", CANDIDATE.format(name=f"sanitized_{name}", body=body))
        for name, (body, *_) in CASES.items()
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRUCIBLE_HOME", str(folder / "home"))
        limits = crucible.Limits(run_s=15, race_s=0.3)
        return crucible.judge(task, files, device="cuda", baselines="none", sanitize=True, limits=limits)


def said(run: crucible.Run, name: str) -> list[Finding]:
    """Findings that come from the tools."""
    return [finding for finding in run.explanations[name] if finding.evidence.startswith(TOOLS)]


@pytest.mark.parametrize("name", [name for name, (_, tool, _) in CASES.items() if tool])
def test_the_fault_is_told_with_its_line(run: crucible.Run, name: str) -> None:
    body, tool, words = CASES[name]
    seen = run.verdict(name).sanitizer
    assert isinstance(seen, Sanitized), seen
    found = [finding for finding in said(run, name) if finding.evidence.startswith(tool)]
    assert found, seen
    assert found[0].claim.startswith(words) and found[0].kernel == "twice", found[0]
    assert LINE <= found[0].line <= LINE + body.count("\n"), found[0]
    if tool != "racecheck":
        assert "by thread (" in found[0].claim and "in block (" in found[0].claim


@pytest.mark.parametrize("name", [name for name, (_, tool, _) in CASES.items() if not tool])
def test_a_right_kernel_is_clean_under_every_tool(run: crucible.Run, name: str) -> None:
    verdict = run.verdict(name)
    assert verdict.evaluation, verdict.outcome.words
    seen = verdict.sanitizer
    assert isinstance(seen, Sanitized)
    assert [(one.tool, one.ended, one.reports) for one in seen.runs] == [(tool, "", ()) for tool in TOOLS]
    assert said(run, name) == []
