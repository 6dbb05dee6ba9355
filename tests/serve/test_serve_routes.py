"""The service's own routes, in this process, over a real ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from crucible.fleet.ledger import Ledger
from crucible.judge.verdict.verdict import NotJudged, Passed, Wrong
from serving import CANDIDATE, Service, asked, record, served


def test_a_submission_is_queued_judged_and_answered(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        first = await service.submit()
        assert first.status_code == 202
        key = first.json()["id"]
        assert first.json()["state"] == "queued"
        assert (await service.submit(1)).json()["id"] != key
        assert (await service.http.get(f"/submissions/{key}")).json()["place"] == 0
        waiting = await service.http.get(f"/submissions/{key}/result")
        assert (waiting.status_code, waiting.json()["state"]) == (202, "queued")
        service.judge()
        result = (await service.http.get(f"/submissions/{key}/result")).json()
        assert (result["state"], result["evaluation"], result["runtime_ms"]) == ("done", True, -1.0)
        assert result["verdict"]["words"] == "passed"
        assert result["run"]["candidates"][0]["total_s"] == 1.5

    served(tmp_path, use)


def test_the_same_content_is_one_submission_and_names_do_not_count(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        keys = {(await service.submit(0, candidate_name=name)).json()["id"] for name in ("a", "b")}
        service.judge()
        again = await service.submit()
        assert ({again.json()["id"]}, again.json()["state"]) == (keys, "done")
        assert service.ledger.status().total == 1

    served(tmp_path, use)


def test_a_batch_is_taken_whole_and_answered_in_its_order(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        together = [asked(2), asked(1), asked(2)]
        batch = await service.http.post("/submissions/batch", json={"submissions": together})
        assert batch.status_code == 202
        keys = [one["id"] for one in batch.json()["submissions"]]
        assert keys[0] == keys[2] != keys[1] == (await service.submit(1)).json()["id"]
        wrong = [asked(3), {**asked(4), "task": "x = 1"}]
        refused = await service.http.post("/submissions/batch", json={"submissions": wrong})
        assert refused.status_code == 422
        assert service.ledger.status().total == 2

    served(tmp_path, use)


def test_who_waits_is_told_as_soon_as_there_is_a_verdict(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        key = (await service.submit()).json()["id"]
        waiting = asyncio.create_task(service.http.get(f"/submissions/{key}/result", params={"wait": 30}))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        service.judge(Wrong("forward", "output is off"))
        result = (await asyncio.wait_for(waiting, 5)).json()
        assert (result["evaluation"], result["verdict"]["kind"]) == (False, "wrong")
        brief = await service.http.get(f"/submissions/{(await service.submit(1)).json()['id']}/result?wait=0.1")
        assert brief.status_code == 202

    served(tmp_path, use)


def test_higher_priorities_go_first(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        usual, urgent = await service.submit(0), await service.submit(1, priority=5)
        assert (await service.http.get(f"/submissions/{usual.json()['id']}")).json()["place"] == 1
        [claimed] = service.ledger.claim("a worker", ["auto"])
        assert claimed.submission.id == urgent.json()["id"]

    served(tmp_path, use)


def test_what_is_cancelled_is_not_judged(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        key = (await service.submit()).json()["id"]
        waiting = asyncio.create_task(service.http.get(f"/submissions/{key}/result", params={"wait": 30}))
        await asyncio.sleep(0.1)
        assert (await service.http.delete(f"/submissions/{key}")).json()["state"] == "cancelled"
        assert (await asyncio.wait_for(waiting, 5)).status_code == 410
        assert service.ledger.claim("a worker", ["auto"]) == []
        done = (await service.submit(1)).json()["id"]
        service.judge()
        assert (await service.http.delete(f"/submissions/{done}")).status_code == 409
        assert (await service.submit()).json() | {"place": None} == {
            "id": key, "state": "queued", "place": None, "error": None, "error_code": None,
        }  # fmt: skip

    served(tmp_path, use)


@pytest.mark.parametrize(
    "which", ["0" * 64, "../../etc/passwd", "a", "%2e%2e%2fetc", "x" * 5000, "\u202e", "' OR 1=1 --"]
)
def test_ids_that_are_none(tmp_path: Path, which: str) -> None:
    async def use(service: Service) -> None:
        await service.submit()
        for answer in (
            await service.http.get(f"/submissions/{which}"),
            await service.http.get(f"/submissions/{which}/result"),
            await service.http.delete(f"/submissions/{which}"),
        ):
            assert answer.status_code in (404, 405, 422)
            assert len(answer.text) < 600
        assert service.ledger.status().queued == 1

    served(tmp_path, use)


def test_what_is_no_machines_fault_of_the_candidate_is_no_verdict(tmp_path: Path) -> None:
    """A box that broke must never read as a wrong kernel: status, code and words, and no evaluation."""

    async def use(service: Service) -> None:
        key = (await service.submit()).json()["id"]
        service.fail("worker cpu0 ended by signal 9\nthree times \x1b[31m")
        failed = await service.http.get(f"/submissions/{key}/result")
        assert failed.status_code == 500
        assert failed.json()["error"] == "worker cpu0 ended by signal 9 three times [U+001B][31m"
        assert failed.json()["error_code"] == "SYSTEM_ERROR"
        other = (await service.submit(1)).json()["id"]
        service.judge(NotJudged("it needs Triton"))
        elsewhere = await service.http.get(f"/submissions/{other}/result")
        assert (elsewhere.status_code, elsewhere.json()["error_code"]) == (501, "RESOURCE_ERROR")
        assert all("evaluation" not in answer.json() for answer in (failed, elsewhere))
        assert (await service.submit()).json()["state"] == "queued"  # once more, now that somebody asks

    served(tmp_path, use)


def test_a_task_that_raises_is_its_writers_mistake(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        key = (await service.submit()).json()["id"]
        service.fail("get_inputs raises ValueError", final=True)
        answer = await service.http.get(f"/submissions/{key}/result")
        assert (answer.status_code, answer.json()["error_code"]) == (422, "VALIDATION_ERROR")
        assert "evaluation" not in answer.json()

    served(tmp_path, use)


def test_what_another_device_judged_is_judged_again_when_somebody_asks(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        key = (await service.submit()).json()["id"]
        service.ledger.finish(key, record(Passed()), "NVIDIA H200")
        assert (await service.submit()).json()["state"] == "queued"
        service.judge()
        assert (await service.submit()).json()["state"] == "done"

    served(tmp_path, use)


def test_health_tells_who_lives(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        assert (await service.http.get("/health/live")).status_code == 200
        ready = await service.http.get("/health/ready")
        assert (ready.status_code, ready.json()) == (
            503,
            {"status": "no worker lives", "workers": 0},
        )  # none was started
        service.desk._tasks[0].cancel()
        await asyncio.sleep(0)
        assert "task of the service's own" in (await service.http.get("/health/ready")).json()["status"]

    served(tmp_path, use)


def test_metrics_tell_states_verdicts_and_times(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        keys = [(await service.submit(number)).json()["id"] for number in range(3)]
        service.judge()
        await service.submit(3)
        for key in keys:
            await service.http.get(f"/submissions/{key}/result?wait=5")
        text = ""
        while 'crucible_verdicts_total{outcome="passed"} 3.0' not in text:
            await asyncio.sleep(0.05)
            text = (await service.http.get("/metrics")).text
        for line in (
            'crucible_submissions{state="done"} 3.0',
            "crucible_queue_depth 1.0",
            "crucible_judging_seconds_sum 4.5",
            "crucible_worker_restarts_total 0.0",
            'crucible_requests_total{route="/submissions",status="202"} 4.0',
            'crucible_request_overhead_seconds_count{route="/submissions"} 4.0',
        ):
            assert line in text

    served(tmp_path, use)


def test_what_is_asked_many_times_a_second_opens_no_record(tmp_path: Path) -> None:
    """Counting 20,000 submissions took 130 ms where their texts were passed over, 1 ms by the index."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    asked_of_sqlite: list[str] = []
    ledger._connection().set_trace_callback(asked_of_sqlite.append)
    assert (ledger.counts()["queued"], ledger.depth(), ledger.unsettled()) == (0, 0, [])
    counting = [query for query in asked_of_sqlite if "count(*)" in query]
    plans = [str(ledger._connection().execute(f"EXPLAIN QUERY PLAN {query}").fetchall()) for query in counting]
    assert [("COVERING INDEX" in plan) for plan in plans] == [True, True]
    ledger.close()


def test_waiting_is_not_the_services_own_time(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        key = (await service.submit()).json()["id"]
        await service.http.get(f"/submissions/{key}/result?wait=1.2")
        text = (await service.http.get("/metrics")).text
        line = 'crucible_request_overhead_seconds_bucket{le="1.0",route="/submissions/{key}/result"} '
        assert f"{line}1.0" in text

    served(tmp_path, use)


def test_the_page_of_the_interface_names_every_route(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        assert (await service.http.get("/docs")).status_code == 200
        paths = (await service.http.get("/openapi.json")).json()["paths"]
        assert {"/submissions", "/submissions/batch", "/submissions/{key}/result", "/evaluate", "/metrics"} <= set(
            paths
        )

    served(tmp_path, use)


def test_what_waits_when_the_service_ends_is_there_when_it_comes_back(tmp_path: Path) -> None:
    keys: list[str] = []

    async def first(service: Service) -> None:
        keys.append((await service.submit()).json()["id"])
        waiting = asyncio.create_task(service.http.get(f"/submissions/{keys[0]}/result", params={"wait": 60}))
        await asyncio.sleep(0.1)
        service.desk.stop()
        assert (await asyncio.wait_for(waiting, 5)).status_code == 202
        refused = await service.submit(1)
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)

    async def second(service: Service) -> None:
        service.judge()
        assert (await service.http.get(f"/submissions/{keys[0]}/result")).status_code == 200
        assert (await service.submit(1)).status_code == 202

    served(tmp_path, first)
    served(tmp_path, second)


def test_requests_that_come_together_are_written_together_and_each_gets_its_own(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        answers: list[httpx.Response] = await asyncio.gather(*(service.submit(number) for number in range(40)))
        keys = [answer.json()["id"] for answer in answers]
        assert len(set(keys)) == 40
        entries = service.ledger.results(keys)
        sources = [entries[key].submission.candidate_source for key in keys]
        assert sources == [f"{CANDIDATE}# {number}\n" for number in range(40)]

    served(tmp_path, use, limit=40)
