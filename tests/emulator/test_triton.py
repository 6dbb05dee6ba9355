"""Triton candidates without a GPU: right kernels are right and clean, planted faults are found with their line, and
what the interpreter sees becomes the judge's verdict.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crucible
from crucible.candidate import Candidate
from crucible.emulator import toolchain
from crucible.hardware import find_device
from crucible.judge.beforehand import known_without_running
from crucible.judge.verdict.modelled import NotModelled
from support import IDENTITY_TASK, claims, write

HERE = Path(__file__).parent
KERNELS = HERE / "triton_kernels"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def functions(module: str, prefix: str) -> dict[str, ast.FunctionDef]:
    """By name, those at the module's top or below its `if`s."""
    tree = ast.walk(ast.parse((KERNELS / f"{module}.py").read_text()))
    return {node.name: node for node in tree if isinstance(node, ast.FunctionDef) and node.name.startswith(prefix)}


@pytest.fixture(scope="module")
def corpus() -> dict[str, Any]:
    """What came of every kernel of the corpus, run in one process of its own."""
    toolchain.prepare()
    done = subprocess.run([sys.executable, HERE / "interpret.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def seen(corpus: dict[str, Any], name: str) -> dict[str, Any]:
    if "block_pointer" in name and name not in corpus:
        pytest.skip("this version of Triton has no block pointers")
    return dict(corpus[name])


@needs_triton
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize("case", functions("right", "case_"))
def test_a_right_kernel_is_right_and_clean_in_any_order(corpus: dict[str, Any], case: str, order: str) -> None:
    assert seen(corpus, f"{case}, {order}") == {"error": "", "faults": []}


@needs_triton
@pytest.mark.parametrize("name", functions("faults", "fault_"))
def test_a_planted_fault_is_found_with_its_line(corpus: dict[str, Any], name: str) -> None:
    faults = seen(corpus, name)["faults"]
    stated = ast.get_docstring(functions("faults", "fault_")[name])
    assert any(words.startswith(f"{stated} (faults.py:") for words, _ in faults), faults
    lines = (KERNELS / "faults.py").read_text().split("\n")
    assert all("# FAULT" in lines[line - 1] for _, line in faults), faults


@needs_triton
@pytest.mark.parametrize("name", functions("faults", "fault_"))
def test_a_repaired_twin_is_clean(corpus: dict[str, Any], name: str) -> None:
    assert seen(corpus, f"{name}, repaired") == {"error": "", "faults": []}


@needs_triton
def test_a_kernel_that_nobody_launches_never_ran_but_its_helper_is_no_kernel(corpus: dict[str, Any]) -> None:
    (words,) = corpus["never ran"]
    assert re.fullmatch(r"never-ran: this kernel was never launched \(faults.py:\d+, kernel never_launched\)", words)


@needs_triton
def test_a_program_that_waits_for_a_later_one_is_not_covered(corpus: dict[str, Any]) -> None:
    """Programs run one after the other here, so that it may be no fault of the kernel's."""
    assert re.fullmatch(r"a program that waits for another one, line \d+, \(Triton\)", corpus["waits"]["error"])


CANDIDATE = """
import torch, triton, triton.language as tl
from torch import nn

@triton.autotune(configs=[triton.Config({{"BLOCK": block}}) for block in (16, 32)], key=["n"])
@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {kernel}


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.is_cuda and x.device.type == "cuda"
        out = torch.empty_like(x)
        n = x.numel() - 1  # the last element is PyTorch's: a ragged size
        out.view(-1)[n:] = x.detach().view(-1)[n:]
        {call}
        return out
"""
CALL = "copy[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, out, n)"
RIGHT = "tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)"
BOTH = '''
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
__global__ void halve(float* out, int n) { int i = threadIdx.x; if (i < n) out[i] *= 0.5f; }
void run(torch::Tensor x) { halve<<<1, 64>>>(x.data_ptr<float>(), x.numel()); }
"""
extension = load_inline("halve", "void run(torch::Tensor x);", SOURCE, functions=["run"])
''' + CANDIDATE.format(kernel="tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)", call=CALL).replace(
    "        return out", "        out.view(-1)[n:] *= 2\n        extension.run(out)\n        return out"
)
JUDGED = {
    "right": (RIGHT, CALL, "passed", "passed"),
    "unmasked": (
        "tl.store(out + i, tl.load(x + i + 1))",
        CALL,
        "illegal-access",
        "just past the end of `x` (float[32])",
    ),
    "wrong": ("tl.store(out + i, tl.load(x + i, mask=i < n) * (i > 0), mask=i < n)", CALL, "wrong", "off by"),
    "racing": (
        "v = tl.load(x + i, mask=i < n); tl.store(out + i, v, mask=i < n); "
        "tl.store(out + (i + 1) % n, tl.where(i + 1 < n, 0.0, v), mask=(i < n) & (i % BLOCK == BLOCK - 1))",
        CALL,
        "wrong",
        "wrong not reproducible",
    ),
    "never_launched": (RIGHT, "out.copy_(x)", "passed", "passed"),
    "uncovered": (
        "tl.store(out + i, tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [tl.load(x + i, mask=i < n)], "
        "dtype=tl.float32, is_pure=True, pack=1), mask=i < n)",
        CALL,
        "not-judged",
        "inline_asm_elementwise (Triton) is not covered by the emulator",
    ),
    "crashes": (RIGHT, "import os; os.kill(os.getpid(), 11)", "crashed", "SIGSEGV"),
    "hangs": ("\n    k = n\n    while k > 0: k += 1", CALL, "launch-error", "runaway-loop"),
}
LIMITS = crucible.Limits(run_s=24)
"""A program may compute for a twelfth of it without touching memory."""


@pytest.fixture(scope="module")
def judged(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("candidates")
    for name, (kernel, call, _, _) in JUDGED.items():
        write(folder / f"{name}.py", CANDIDATE.format(kernel=kernel, call=call))
    write(folder / "with_cuda.py", BOTH)
    return judge_batch(IDENTITY_TASK, [folder], device="emulator", limits=LIMITS)


@needs_triton
@pytest.mark.parametrize("name", JUDGED)
def test_what_a_kernel_does_is_its_verdict(judged: crucible.Run, name: str) -> None:
    _, _, kind, words = JUDGED[name]
    verdict = judged.verdict(name)
    assert (verdict.outcome.kind, verdict.runtime_ms) == (kind, -1.0), verdict.outcome.words + verdict.log
    assert words in verdict.outcome.words


@needs_triton
def test_a_race_and_a_kernel_that_never_ran_stand_beside_the_verdict(judged: crucible.Run) -> None:
    assert "race-global: write after write" in claims(judged.verdict("racing"))
    assert "never-ran: this kernel was never launched (candidate.py:7" in claims(judged.verdict("never_launched"))
    assert "race" not in claims(judged.verdict("right")) and "never" not in claims(judged.verdict("right"))


@needs_triton
def test_cuda_and_triton_run_in_one_candidate(judged: crucible.Run) -> None:
    verdict = judged.verdict("with_cuda")
    assert verdict.outcome.kind == "passed", verdict.outcome.words + verdict.log
    assert "emulator found" not in claims(verdict) and "never" not in claims(verdict)


@needs_triton
@pytest.mark.parametrize("name", ["right", "never_launched", "with_cuda"])
def test_no_time_is_modelled_of_what_is_not_counted(judged: crucible.Run, name: str) -> None:
    modelled = judged.verdict(name).modelled
    assert isinstance(modelled, NotModelled) and "is not counted" in modelled.reason, modelled


def test_where_triton_is_missing_its_candidates_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # Python's own way to say that there is no such package
    candidate = Candidate("copy", Path("copy.py"), CANDIDATE.format(kernel=RIGHT, call=CALL))
    outcome = known_without_running(candidate, find_device("cpu"))
    assert outcome is not None
    assert outcome.words.endswith("Triton is not installed (pip install triton==3.6.0), and there is no GPU here")
