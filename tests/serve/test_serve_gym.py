"""KernelGYM's routes: its fields, its statuses, and verdicts in its words."""

from __future__ import annotations

import asyncio
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from crucible.judge.verdict.evidence import Costs, Kernel, Measured, NotMeasured, Speedup
from crucible.judge.verdict.verdict import (
    OUTCOMES,
    Cheated,
    Crashed,
    DoesNotBuild,
    DoesNotImport,
    NotJudged,
    Outcome,
    Passed,
    Raises,
    TimedOut,
    Verdict,
    Wrong,
)
from crucible.judge.verdict.whose import Whose
from crucible.serve.gym_verdicts import evaluation
from serving import CANDIDATE, REFERENCE, Service, gym_asked, served

FASTER = Measured(
    0.5, (0.4, 0.6), 100, "CUDA events", "forward",
    speedups=(Speedup("eager", 4.0, (3.5, 4.5), (4.0,)), Speedup("compile", 2.0, (1.8, 2.2), (2.0,))),
)  # fmt: skip
KERNELS = Costs(0.1, 0, 0, (Kernel("mine", 3, 0.3), Kernel("at::copy", 1, 0.1)), 0.4, 0.4, 1)


def test_evaluate_answers_with_the_result(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        sent = await service.evaluate()
        status = (await service.http.get("/status/task_0")).json()
        assert (status["status"], status["queue_position"]) == ("pending", 0)
        assert (await service.http.get("/results/task_0")).status_code == 404
        service.judge(timing=FASTER)
        answer = (await asyncio.wait_for(sent, 5)).json()
        expected = {"task_id": "task_0", "status": "completed", "compiled": True, "correctness": True,
                    "reference_runtime": 2.0, "kernel_runtime": 0.5, "speedup": 4.0,
                    "error_message": None, "error_code": None}  # fmt: skip
        assert {name: answer[name] for name in expected} == expected
        assert (await service.http.get("/status/task_0")).json()["status"] == "completed"
        result = (await service.http.get("/results/task_0")).json()
        assert result == answer
        again = await service.http.post("/evaluate", json=gym_asked())
        assert again.json()["speedup"] == 4.0
        assert service.ledger.status().total == 1
        for path in ("/status/nobody", "/results/nobody", "/results/../../etc/passwd"):
            assert (await service.http.get(path)).status_code == 404

    served(tmp_path, use)


def test_ids_of_any_form_stand_for_their_kernel_alone(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        for number, task_id in enumerate(("level2/12 sample 3", "../../etc/passwd", "' OR 1=1 --", "%2e%2e")):
            sent = await service.evaluate(number, task_id=task_id)
            service.judge()
            assert (await sent).json()["task_id"] == task_id
        path = "/results/level2/12%20sample%203"
        assert (await service.http.get(path)).json()["task_id"] == "level2/12 sample 3"
        other = await service.http.post("/evaluate", json={**gym_asked(9), "task_id": "../../etc/passwd"})
        assert (other.status_code, other.json()["error_code"]) == (400, "VALIDATION_ERROR")
        sent = await service.evaluate(9, task_id="../../etc/passwd", force_refresh=True)
        service.judge(Wrong("forward", "off"))
        assert (await sent).json()["correctness"] is False

    served(tmp_path, use)


def test_ids_are_known_to_the_next_service_on_the_same_store(tmp_path: Path) -> None:
    async def first(service: Service) -> None:
        (await service.evaluate()).cancel()

    async def second(service: Service) -> None:
        assert (await service.http.get("/status/task_0")).json()["status"] == "pending"
        service.judge()
        assert (await service.http.get("/results/task_0")).json()["correctness"] is True

    served(tmp_path, first)
    served(tmp_path, second)


def test_a_batch_is_answered_when_all_are_judged(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        batch = {"batch_id": "b", "tasks": [gym_asked(0), gym_asked(1)]}
        sent = asyncio.create_task(service.http.post("/evaluate/batch", json=batch))
        while service.ledger.status().queued < 2:
            await asyncio.sleep(0.01)
        [first] = service.ledger.claim("a worker", ["auto"])
        service.judge()
        await asyncio.sleep(0.2)
        assert not sent.done()
        service.ledger.give_up("a worker", "its task raises", [first.submission.id], final=True)
        answer = (await asyncio.wait_for(sent, 5)).json()
        counts = [answer[name] for name in ("total_tasks", "completed_tasks", "failed_tasks", "batch_status")]
        assert counts == [2, 1, 1, "completed"]
        assert [one["status"] for one in answer["results"]] == ["failed", "completed"]

    served(tmp_path, use)


def test_trouble_of_the_judges_own_says_nothing_of_the_kernel(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        for number, trouble in enumerate((None, NotJudged("no Triton here"), NotJudged("oracle lost", failed=True))):
            sent = await service.evaluate(number)
            if trouble is None:
                service.fail("worker lost")
            else:
                service.judge(trouble)
            answer = (await asyncio.wait_for(sent, 5)).json()
            assert (answer["status"], answer["correctness"], answer["compiled"]) == ("failed", None, None)
            assert answer["error_code"] in ("SYSTEM_ERROR", "RESOURCE_ERROR")
            assert (await service.http.get(f"/status/task_{number}")).json()["status"] == "failed"

    served(tmp_path, use)


def test_the_class_may_have_another_name(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        reference = REFERENCE.replace("class Model(", "class Scaled(")
        kernel = CANDIDATE.replace("class ModelNew(", "class ScaledNew(")
        sent = await service.evaluate(reference_code=reference, kernel_code=kernel, entry_point="Scaled")
        [claimed] = service.ledger.claim("a worker", ["auto"])
        assert claimed.submission.task(tmp_path).source.endswith("\n\nModel = Scaled\n")
        assert claimed.submission.candidate_source == f"{kernel}\n\nModelNew = ScaledNew\n"
        sent.cancel()

    served(tmp_path, use)


@pytest.mark.parametrize(
    ("outcome", "compiled", "code"),
    [
        (DoesNotBuild("error"), False, "COMPILATION_ERROR"),
        (DoesNotImport("error"), False, "IMPORT_ERROR"),
        (TimedOut("import or build", 300), False, "TIMEOUT_ERROR"),
        (TimedOut("forward", 60), True, "TIMEOUT_ERROR"),
        (Crashed("construction", "signal 11"), False, "RUNTIME_ERROR"),
        (Raises("forward", "ValueError"), True, "RUNTIME_ERROR"),
        (Wrong("forward", "off"), True, "CORRECTNESS_ERROR"),
        (Cheated("forked", "it forked"), True, "CORRECTNESS_ERROR"),
    ],
)
def test_a_kernels_own_failures_are_completed_results(outcome: Outcome, compiled: bool, code: str) -> None:
    found = evaluation(Verdict("a", outcome))
    assert found["status"] == "completed"
    assert (found["compiled"], found["correctness"], found["error_code"]) == (compiled, False, code)
    assert (found["kernel_runtime"], found["speedup"]) == (-1.0, 0.0)


def test_only_a_pass_is_correct_and_only_what_was_not_judged_has_failed() -> None:
    examples: dict[type, Any] = {Passed: True, NotJudged: None}
    for kind in OUTCOMES.values():
        needed = [field.name for field in fields(kind) if field.default is MISSING]
        made: Outcome = kind(**{name: 1.0 if name == "limit_s" else "1" for name in needed})  # type: ignore[arg-type]
        found = evaluation(Verdict("a", made))
        assert found.get("correctness") is examples.get(kind, False), kind
        assert (found["status"] == "failed") is (kind is NotJudged)


def test_coverage_and_decoys_come_from_what_ran() -> None:
    own = Whose(("mine",), ("at::copy",), 0.75, "the profiler")
    passed = Verdict("a", Passed(), timing=FASTER, costs=KERNELS, whose=own)
    found = evaluation(passed)
    expected = {"num_custom_kernels": 3, "num_total_kernels": 4, "custom_kernel_cuda_time_coverage": "75.00%"}
    assert {name: found["metadata"][name] for name in expected} == expected
    assert found["metadata"]["total_kernel_run_time_in_profiling_us"] == pytest.approx(400.0)
    assert found["metadata"]["custom_kernel_cuda_time_in_profiling_us"] == pytest.approx(300.0)
    assert found["decoy_kernel"] is False
    others = replace(passed, whose=Whose((), ("mine", "at::copy"), 0.0, "the profiler"))
    assert evaluation(others)["decoy_kernel"] is True
    assert evaluation(replace(passed, outcome=Passed("an except branch ran")))["decoy_kernel"] is True
    assert evaluation(replace(passed, whose=NotMeasured("not reached")))["decoy_kernel"] is None
    emulated = replace(passed, costs=NotMeasured("emulator"), whose=Whose(("k",), (), NotMeasured("-"), "the emulator"))
    assert evaluation(emulated)["metadata"]["num_custom_kernels"] == 1


def test_a_speed_up_is_told_against_what_was_asked_for() -> None:
    passed = Verdict("a", Passed(), timing=FASTER)
    assert (evaluation(passed)["speedup"], evaluation(passed)["reference_runtime"]) == (4.0, 2.0)
    compiled = evaluation(passed, "torch_compile")
    assert (compiled["speedup"], compiled["reference_runtime"]) == (2.0, 1.0)
    wrong = evaluation(replace(passed, outcome=Wrong("forward", "off")))
    assert (wrong["speedup"], wrong["kernel_runtime"]) == (0.0, -1.0)
