"""native_routes: submit, batch, status, result, cancel."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from crucible import legible
from crucible.fleet.ledger import CANCELLED, DONE, FAILED, QUEUED, Entry
from crucible.judge.verdict.verdict import NotJudged
from crucible.serve.desk import Desk, code_of, desk_of
from crucible.serve.intake import Wanted
from crucible.serve.schemas import BatchRequest, Result, Standing, Standings, SubmissionRequest

router = APIRouter(tags=["submissions"])
LONGEST_WAIT_S = 300.0
Key = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="What submitting answered with.")]
_OTHERS: dict[int | str, dict[str, Any]] = {
    401: {"description": "no token of this service"},
    413: {"description": "too large"},
    422: {"description": "what is wrong with it, in one line"},
    429: {"description": "the queue is full: again after Retry-After"},
    503: {"description": "trouble of the service's own: again after Retry-After"},
}
_STATUSES = {"queued": 202, "running": 202, DONE: 200, FAILED: 500, CANCELLED: 410}


@router.post("/submissions", status_code=202, responses=_OTHERS)
async def submit(asked: SubmissionRequest, request: Request) -> Standing:
    """Puts a candidate into the queue. The same content again is the same submission: nothing is judged twice."""
    [(key, state)] = await desk_of(request).submit([Wanted(asked.submission())])
    return Standing(id=key, state=state)


@router.post("/submissions/batch", status_code=202, responses=_OTHERS)
async def submit_batch(asked: BatchRequest, request: Request) -> Standings:
    """Puts several into the queue, all or none; answers in their order."""
    taken = await desk_of(request).submit([Wanted(one.submission()) for one in asked.submissions])
    return Standings(submissions=[Standing(id=key, state=state) for key, state in taken])


@router.get("/submissions/{key}", responses={401: _OTHERS[401], 404: {"description": "never submitted"}})
async def status(key: Key, request: Request) -> Standing:
    """Where it stands."""
    desk = desk_of(request)
    entry = await _known(desk, key)
    place = await desk.place_in_queue(key) if entry.state == QUEUED else None
    return _standing(entry).model_copy(update={"place": place})


@router.get(
    "/submissions/{key}/result",
    response_model=Result,
    responses={
        202: {"model": Standing, "description": "not judged yet"},
        404: {"description": "never submitted"},
        410: {"model": Standing, "description": "cancelled"},
        422: {"model": Standing, "description": "its task or options can be judged nowhere"},
        500: {"model": Standing, "description": "the judge failed: no verdict, of which nothing follows"},
        501: {"model": Standing, "description": "no machine of this service can judge it: no verdict either"},
    },
)
async def result(
    key: Key,
    request: Request,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for it.")] = 0.0,
) -> Response:
    """What the judge found; with `wait`, as soon as it has."""
    desk = desk_of(request)
    request.state.waited_s = await desk.wait([key], wait)
    entry = await _known(desk, key)
    standing = _standing(entry)
    if entry.run is None:
        status = 422 if entry.misuse else _STATUSES[entry.state]
        return JSONResponse(standing.model_dump(), status)
    found = entry.run["candidates"][0]
    if found["verdict"]["kind"] == NotJudged.kind:
        told = {"error": legible.line(found["verdict"]["words"]), "error_code": "RESOURCE_ERROR"}
        return JSONResponse({**standing.model_dump(), **told}, 501)
    words = {name: found[name] for name in ("evaluation", "runtime_ms", "verdict")}
    return JSONResponse({**standing.model_dump(), **words, "run": entry.run})


@router.delete(
    "/submissions/{key}", responses={404: {"description": "never submitted"}, 409: {"description": "settled"}}
)
async def cancel(key: Key, request: Request) -> Standing:
    """Takes it out of the queue; of one that is being judged, disregards the verdict."""
    desk = desk_of(request)
    cancelled = await desk.cancel(key)
    entry = await _known(desk, key)
    if not cancelled and entry.state != CANCELLED:
        raise HTTPException(409, f"it is {entry.state} already")
    return _standing(entry)


async def _known(desk: Desk, key: str) -> Entry:
    entry = (await desk.entries([key])).get(key)
    if entry is None:
        raise HTTPException(404, "no such submission: submit it")
    return entry


def _standing(entry: Entry) -> Standing:
    if entry.state != FAILED:
        return Standing(id=entry.id, state=entry.state)
    return Standing(id=entry.id, state=FAILED, error=legible.line(entry.reason), error_code=code_of(entry))
