"""Unwritten outputs and the emulator's faults, as causes: judged for real, and from records."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from explaining import a_run, claims, compared, oracle, why
from rich.console import Console

import crucible
from crucible.emulator.faults import Fault
from crucible.errors import RecordError
from crucible.explain.findings import findings
from crucible.explain.source import kernels
from crucible.judge.process.replies import faults_of
from crucible.judge.verdict.evidence import Compared
from crucible.judge.verdict.verdict import (
    Faulty,
    IllegalAccess,
    Incomplete,
    LaunchError,
    Passed,
    Verdict,
    Wrong,
    from_json,
    to_json,
)
from crucible.report import why as report
from crucible.run import Run, run_from_json
from support import IDENTITY_TASK, write

CANDIDATE = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void unused(float* out) {{
    out[threadIdx.x] = 0;
}}
__global__ void copy(const float* x, float* out, int n) {{
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
torch::Tensor run(torch::Tensor x) {{
    auto out = torch::empty_like(x);
    int n = x.numel();
    copy<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""
extension = load_inline("copy", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x.contiguous())
'''
BODIES = {
    "tail": "if (i < n - 3) out[i] = x[i];",
    "outside": "out[i] = x[i];",
    "race": "tile[threadIdx.x] = i < n ? x[i] : 0; if (i < n) out[i] = tile[63 - threadIdx.x];",
}
FAULT = Fault(
    *("race-shared", "copy", (1, 0, 0), (5, 0, 0), 4, "`tile` (float[64])", "read after write"),
    other_block=(1, 0, 0), other_thread=(6, 0, 0), other_line=4, count=3, python_line=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("faults")
    files = [write(folder / f"{name}.py", CANDIDATE.format(body=body)) for name, body in BODIES.items()]
    return judge_batch(IDENTITY_TASK, files, device="emulator")


def line_of(text: str) -> int:
    return CANDIDATE[: CANDIDATE.index(text)].count("\n") + 1


def test_an_unwritten_tail_is_told_by_where_it_begins(run: crucible.Run) -> None:
    found = run.explanations["tail"]
    assert "of output is never written: " in found[0].claim
    assert "3 of " in found[0].evidence and "judge's poison" in found[0].evidence
    assert "a kernel is never launched: unused" in claims(found)


def test_an_access_outside_is_told_with_its_line_and_its_kernel(run: crucible.Run) -> None:
    first = run.explanations["outside"][0]
    assert first.claim.startswith("`copy` goes outside of its tensor (just past the end of `x`")
    assert (first.kernel, first.line, first.confidence) == ("copy", line_of("{body}"), "certain")
    assert "thread (" in first.evidence and "block (" in first.evidence


def test_a_race_is_the_cause_of_a_wrong_answer(run: crucible.Run) -> None:
    first = run.explanations["race"][0]
    assert "`copy` has a race in shared memory" in first.claim or "reads shared memory that nobody wrote" in first.claim
    assert first.line == line_of("{body}")
    assert "__syncthreads()" in first.remedy


def test_the_record_says_all_that_the_explanations_need(run: crucible.Run) -> None:
    again = run_from_json(json.loads(json.dumps(run.to_json())))
    assert findings(again) == run.explanations == again.explanations
    assert again.sources == run.sources


# --- the command's words


def shown(run: Run, candidate: str | None = None) -> str:
    text = io.StringIO()
    report.show(run, candidate, Console(file=text, width=300, color_system=None))
    return text.getvalue()


def test_the_causes_of_all_are_shown_and_all_of_one(run: crucible.Run) -> None:
    whole, one = shown(run), shown(run, "outside")
    assert all(f"\n{name}: " in whole for name in BODIES)
    assert "\ntail: " not in one
    assert f"line {line_of('{body}')}: {BODIES['outside']}" in one
    assert "     do: guard the index with the tensor's size" in one


def test_a_record_of_before_is_explained_from_its_facts(run: crucible.Run) -> None:
    data = json.loads(json.dumps(run.to_json()))
    for entry in data["candidates"]:
        del entry["explanations"]
    assert shown(run_from_json(data)) == shown(run)


def test_a_name_that_the_run_does_not_have_is_an_error_in_words(run: crucible.Run) -> None:
    with pytest.raises(RecordError, match="no candidate 'nobody': it has tail, outside, race"):
        shown(run, "nobody")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"schema": "crucible.run/0"}, "its schema is 'crucible.run/0'"),
        ([], "'none'"),
        ({"schema": "crucible.run/1"}, "KeyError"),
    ],
)
def test_another_schema_is_an_error_in_words(data: object, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        run_from_json(data)


# --- from records


def test_a_race_is_certain_only_where_runs_differ() -> None:
    wrong = why(Wrong("not reproducible", "right once, then wrong"), faults=(FAULT,))[0]
    assert (wrong.claim, wrong.confidence) == ("`copy` has a race in shared memory (`tile` (float[64]))", "certain")
    assert "seen 3 times" in wrong.evidence and wrong.line == 12
    assert why(Wrong("forward", "off"), faults=(FAULT,))[0].confidence == "likely"
    faulty = why(Faulty(FAULT.words), faults=(FAULT,))[0]
    assert faulty.claim.endswith("the answer is right all the same") and faulty.confidence == "certain"
    passed = why(Passed(), faults=(replace(FAULT, kind="index-overflow"),))[0]
    assert passed.claim.endswith("the answer is right all the same") and passed.confidence == "possible"


@pytest.mark.parametrize(
    ("where", "first", "then"),
    [
        ("just past the end of `out` (float[9])", "goes outside of its tensor", "nobody wrote"),
        ("8123 bytes past the end of `out` (float[9])", "nobody wrote", ""),
    ],
)
def test_what_ends_a_kernel_comes_before_a_read_beside_it_unless_that_leads_far_off(
    where: str, first: str, then: str
) -> None:
    read = replace(FAULT, kind="uninitialised-shared", detail="read of memory that nobody wrote")
    write = replace(FAULT, kind="out-of-bounds-global", detail="write of 4 bytes", memory=where, fatal=True)
    found = why(IllegalAccess(f"{read.words} [illegal memory access]"), faults=(read, write))
    assert first in found[0].claim and found[0].confidence == "certain"
    assert [then in finding.claim for finding in found[1:]] == [True] * bool(then)


def test_without_a_record_of_the_fault_the_devices_words_stand_and_the_emulator_is_named() -> None:
    found = why(IllegalAccess("line 9: CUDA error: an illegal memory access was encountered"))[0]
    assert found.claim == "a kernel accesses memory that it may not"
    assert "--device emulator" in found.remedy
    assert why(LaunchError("CUDA error: invalid configuration"))[0].claim == "a launch is refused"


KERNELS = {
    "empty": "",
    "comment": "// out[i] = x[i];\n    int i = threadIdx.x;",
    "guarded": "int i = threadIdx.x; if (i >= n) return;",
}
WRITING = {
    "store": "out[threadIdx.x] = 1;",
    "atomic": "atomicAdd(out, 1.0f);",
    "call": "helper(out, x);",
    "call_of_a_template": "if (n > 0) part<true, 4>(out, x);\n    else part<false, 4> (out, x);",
    "pointer": "*out += x[0];",
}


@pytest.mark.parametrize("name", [*KERNELS, *WRITING])
def test_a_body_that_writes_nothing_is_a_placeholder(name: str) -> None:
    body = {**KERNELS, **WRITING}[name]
    source = f'CUDA = r"""\n__global__ void k(const float* x, float* out, int n) {{\n    {body}\n}}\n"""\n'
    (kernel,) = kernels(source)
    assert (kernel.name, kernel.line, kernel.writes) == ("k", 2, name in WRITING)
    found = claims(why(Incomplete("100 % of output was never written"), source))
    assert ("placeholder" in found) is (name in KERNELS)


def test_kernels_that_pass_are_no_placeholders() -> None:
    source = 'CUDA = r"""\n__global__ void k(float* out) {}\n"""\n'
    assert why(Passed(), source) == ()


def test_how_much_was_written_tells_a_tail_from_nothing() -> None:
    want = oracle(10, 100)
    got = want.float()
    got.view(-1)[900:] = float("nan")
    tensor = replace(compared(got, want), unwritten=100)
    partly = why(Incomplete("10 %"), forward=Compared((tensor,), 4.0))[0]
    assert partly.claim == "10 % of output is never written: only at index 9 (the last) of dimension 0 (of 2)"
    whole = replace(tensor, unwritten=1000)
    nothing = why(Incomplete("100 %"), forward=Compared((whole,), 4.0))[0]
    assert nothing.claim == "nothing of output is ever written"


def test_a_kernel_that_never_ran_is_no_cause_of_a_pass() -> None:
    never = replace(FAULT, kind="never-ran", detail="no call launched it")
    assert "never launched" in claims(why(Incomplete("all"), faults=(never,)))
    assert "never launched" not in claims(why(Passed(), faults=(never,)))


# --- the record on its way


def test_a_fault_comes_back_from_json_and_out_of_a_verdict() -> None:
    verdict = Verdict("a", IllegalAccess("x"), faults=(FAULT,))
    assert from_json(json.loads(json.dumps(to_json(verdict)))) == verdict
    assert Fault.from_json(json.loads(json.dumps(FAULT.to_json()))) == FAULT


@pytest.mark.parametrize(
    "change",
    [
        {"line": -1},
        {"line": True},
        {"block": [1, 2]},
        {"kernel": 3},
        {"fatal": 1},
        {"more": 1},
        {"thread": ["a", 0, 0]},
    ],
)
def test_a_fault_of_another_form_is_left_out(change: dict[str, object]) -> None:
    good = FAULT.to_json()
    assert faults_of({"faults": [good, {**good, **change}]}) == [FAULT]
    assert faults_of({"faults": {"a": good}}) == []


def test_an_empty_run_is_explained_by_nothing(tmp_path: Path) -> None:
    assert findings(a_run()) == {}
