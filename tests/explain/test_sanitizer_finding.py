"""compute-sanitizer's reports as findings: kernel, block, thread and line in one sentence, and nothing of silence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from explaining import a_run, claims, why

from crucible.explain.findings import findings
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.sanitizer_reports import NotSanitized, Report, Sanitized, ToolRun, merged, reports
from crucible.judge.verdict.verdict import IllegalAccess, Passed, Verdict, Wrong
from crucible.run import run_from_json
from sanitizer_texts import BARRIER, CLEAN, COPIED, MISALIGNED, OUT_OF_BOUNDS, RACE, REFUSED, UNINITIALISED

ENDED = IllegalAccess("CUDA error: an illegal memory access was encountered")
OFF = Wrong("forward", "output is off by 0.4")


def under(text: str, tool: str = "memcheck", ended: str = "", line: int = 0) -> Sanitized:
    found = tuple(replace(report, python_line=line) for report in merged(reports(text)))
    return Sanitized((ToolRun(tool, found, ended), ToolRun("synccheck", ())))


SHOWS = {
    "memcheck": (
        OUT_OF_BOUNDS,
        "`histogram<4>` goes outside of its shared memory: Invalid __shared__ write of size 4 bytes by thread "
        "(3, 0, 0) in block (1, 0, 0), bins.cu:12",
    ),
    "misaligned": (
        MISALIGNED,
        "`add_rows` accesses an address that its type does not allow: Invalid __global__ read of size 16 bytes by "
        "thread (1, 0, 0) in block (0, 0, 0), misaligned_float4.cu:14",
    ),
    "racecheck": (RACE, "`matmul16` has a race in shared memory: 1 write and 2 reads, tiles.cu:15 and 19, 20"),
    "initcheck": (
        UNINITIALISED,
        "`accumulate` reads memory that nobody wrote: Uninitialized __global__ memory read of size 4 bytes by thread "
        "(0, 0, 0) in block (0, 0, 0), plus.cu:10",
    ),
    "a copy": (COPIED, "a copy between GPU and host reads memory that nobody wrote: Host API memory access error at"),
    "synccheck": (
        BARRIER,
        "`reduce` has threads of one block at different barriers: Barrier error detected. Divergent thread(s) in block "
        "by thread (0, 0, 0) in block (0, 0, 0), guarded.cu:13",
    ),
    "a launch": (
        REFUSED,
        "a kernel is launched with more than the GPU allows: Program hit cudaErrorInvalidConfiguration",
    ),
}


@pytest.mark.parametrize("case", SHOWS)
def test_a_report_is_told_in_one_sentence(case: str) -> None:
    text, words = SHOWS[case]
    found = why(OFF, sanitizer=under(text))
    assert found[0].claim.startswith(words), found[0].claim
    assert found[0].confidence == "likely"
    assert found[0].evidence.startswith("memcheck reported it 1 time: ") and found[0].remedy


def test_the_line_is_the_candidates_own_where_that_is_known() -> None:
    first = why(ENDED, "__global__ void add_rows()", sanitizer=under(MISALIGNED, line=40))[0]
    assert first.claim.endswith("in block (0, 0, 0), line 40")
    assert (first.line, first.kernel, first.confidence) == (40, "add_rows", "certain")


def test_what_stopped_a_kernel_of_somebody_elses_is_not_certain() -> None:
    assert why(ENDED, "torch.relu(x)", sanitizer=under(MISALIGNED))[0].confidence == "likely"
    assert why(ENDED, "__global__ void add_rows()", sanitizer=under(MISALIGNED, "initcheck"))[0].confidence == "likely"


def test_what_two_tools_report_is_told_once() -> None:
    both = Sanitized((*under(RACE).runs[:1], *under(RACE + UNINITIALISED, "racecheck").runs[:1]))
    assert [finding.kernel for finding in why(OFF, sanitizer=both)] == ["matmul16", "accumulate"]


def test_a_pass_with_a_report_is_right_all_the_same() -> None:
    (found,) = why(Passed(), sanitizer=under(RACE))
    assert found.claim.endswith("; the answer is right all the same") and found.confidence == "possible"


@pytest.mark.parametrize(
    "sanitizer",
    [
        under(CLEAN),
        under(REFUSED.replace("cudaLaunchKernel", "cudaPointerGetAttributes")),
        under(
            "========= Error: process didn't terminate successfully\n========= Target application returned an error\n"
        ),
        under("========= Internal Sanitizer Error: out of memory\n=========\n"),
        NotSanitized("not asked for"),
    ],
)
def test_silence_and_the_tools_own_trouble_are_no_finding(sanitizer: Sanitized | NotSanitized) -> None:
    assert claims(why(OFF, sanitizer=sanitizer)) == claims(why(OFF))
    assert why(Passed(), sanitizer=sanitizer) == ()


def test_a_tool_that_did_not_come_to_its_end_is_named() -> None:
    (found,) = why(Passed(), sanitizer=under("", "racecheck", "took over 150 s"))
    assert found.claim == "racecheck did not come to its end"
    assert found.evidence == "it took over 150 s; 0 reports until then"


def test_without_reports_an_illegal_access_names_both_ways_to_learn_more() -> None:
    found: Finding = why(ENDED)[0]
    assert "--device emulator" in found.remedy and "--sanitize" in found.remedy


def test_a_record_tells_it_again_and_one_of_before_does_without() -> None:
    run = a_run(Verdict("candidate", ENDED, sanitizer=under(OUT_OF_BOUNDS)))
    data = json.loads(json.dumps(run.to_json()))
    del data["candidates"][0]["explanations"]
    again = run_from_json(data)
    assert again.verdicts[0].sanitizer == run.verdicts[0].sanitizer
    assert findings(again) == findings(run)
    del data["candidates"][0]["sanitizer"]
    assert run_from_json(data).verdicts[0].sanitizer == NotSanitized("not kept")


def test_a_report_has_no_thread_where_the_tool_names_none() -> None:
    assert Report("race-shared", "Error: Race reported").thread is None
    assert "by thread" not in why(OFF, sanitizer=under(RACE))[0].claim
