"""gym_routes: KernelGYM's routes, so that loops which call it call this with another address."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, HTTPException, Request

from crucible.errors import RecordError
from crucible.fleet.ledger import FAILED, QUEUED, Entry
from crucible.run import verdict_from_json
from crucible.serve.desk import SETTLED, Desk, code_of, desk_of
from crucible.serve.gym_schemas import (
    BatchEvaluationRequest,
    BatchEvaluationResponse,
    EvaluationRequest,
    EvaluationResponse,
    TaskStatusResponse,
)
from crucible.serve.gym_verdicts import evaluation, failure
from crucible.serve.task_ids import Asked

router = APIRouter(tags=["KernelGYM"])
_STATUS = {"queued": "pending", "running": "processing", "done": "completed", "failed": "failed"}


def is_ours(path: str) -> bool:
    """Whether a path is one of these routes'."""
    return path.startswith(("/evaluate", "/status/", "/results/"))


@router.post("/evaluate")
async def evaluate(asked: EvaluationRequest, request: Request) -> EvaluationResponse:
    """Judges a kernel and answers with the result; after `timeout` seconds with where it stands, to be polled."""
    [response] = await _evaluated([asked], request)
    return response


@router.post("/evaluate/batch")
async def evaluate_batch(asked: BatchEvaluationRequest, request: Request) -> BatchEvaluationResponse:
    """Judges several, and answers once all are judged or the longest `timeout` is over."""
    start = datetime.now(UTC)
    results = await _evaluated(asked.tasks, request)
    finished = sum(one.status == "completed" for one in results)
    open_ones = sum(one.status in ("pending", "processing") for one in results)
    return BatchEvaluationResponse(
        batch_id=asked.batch_id,
        total_tasks=len(results),
        completed_tasks=finished,
        failed_tasks=len(results) - finished - open_ones,
        results=results,
        batch_status="processing" if open_ones else "completed",
        submitted_at=start.isoformat(),
        completed_at=None if open_ones else datetime.now(UTC).isoformat(),
    )


@router.get("/status/{task_id:path}")
async def task_status(task_id: str, request: Request) -> TaskStatusResponse:
    """Where a task stands; in `queue_position` how many go before it."""
    desk = desk_of(request)
    _, entry = await _known(desk, task_id)
    place = await desk.place_in_queue(entry.id) if entry.state == QUEUED else None
    response = _response(task_id, entry)
    return TaskStatusResponse(
        task_id=task_id,
        status=response.status,
        progress=100.0 if entry.state in SETTLED else 0.0,
        queue_position=place,
        assigned_device=entry.device or None,
        error_message=response.error_message,
        error_code=response.error_code,
    )


@router.get("/results/{task_id:path}")
async def task_results(task_id: str, request: Request) -> EvaluationResponse:
    """The result; 404 until there is one."""
    asked, entry = await _known(desk_of(request), task_id)
    response = _response(task_id, entry, asked)
    if entry.state not in SETTLED:
        raise HTTPException(404, f"no result yet: the task is {response.status}")
    return response


async def _evaluated(asked: Sequence[EvaluationRequest], request: Request) -> list[EvaluationResponse]:
    desk = desk_of(request)
    keys = [key for key, _ in await desk.submit([one.wanted() for one in asked])]
    request.state.waited_s = await desk.wait(keys, max(one.timeout for one in asked))
    entries, known = await desk.entries(keys), await desk.asked([one.task_id for one in asked])
    return [_response(one.task_id, entries[key], known.get(one.task_id)) for one, key in zip(asked, keys, strict=True)]


async def _known(desk: Desk, task_id: str) -> tuple[Asked, Entry]:
    asked = (await desk.asked([task_id])).get(task_id)
    entry = (await desk.entries([asked.submission])).get(asked.submission) if asked else None
    if asked is None or entry is None:
        raise HTTPException(404, "no such task: submit it")
    return asked, entry


def _response(task_id: str, entry: Entry, asked: Asked | None = None) -> EvaluationResponse:
    submitted = datetime.fromtimestamp(asked.submitted_at, UTC).isoformat() if asked else None
    found: dict[str, Any] = {"status": _STATUS.get(entry.state, entry.state)}
    if entry.run is not None:
        found = _evaluation(entry.run, asked)
    elif entry.state == FAILED:
        found = failure(entry.reason, code_of(entry))
    return EvaluationResponse(task_id=task_id, submitted_at=submitted, **found)


def _evaluation(run: dict[str, Any], asked: Asked | None) -> dict[str, Any]:
    [candidate] = run["candidates"]
    try:
        verdict = verdict_from_json(candidate)
    except RecordError as error:
        return failure(str(error))
    metadata = {"hardware": run["device"]["name"], "contract": run["contract"]}
    found = evaluation(verdict, asked.backend if asked else None)
    if "metadata" in found:
        found["metadata"] |= metadata
    return {**found, "processing_time": verdict.total_s}
