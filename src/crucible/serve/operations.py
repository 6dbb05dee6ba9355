"""operations: what those who run the service ask it: does it live, can it judge, what is it doing."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from crucible.serve.desk import desk_of

router = APIRouter(tags=["operations"])
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/health/live")
async def live() -> dict[str, Any]:
    """The service answers."""
    return {"status": "alive"}


@router.get("/health/ready", responses={503: {"description": "no worker lives, or the service is stopping"}})
@router.get("/health", include_in_schema=False)
async def ready(request: Request, response: Response) -> dict[str, Any]:
    """Whether submissions are taken and judged."""
    desk = desk_of(request)
    trouble, (alive, _) = desk.trouble(), desk.workers()
    response.status_code = 503 if trouble else 200
    return {"status": trouble or "ready", "workers": alive}


@router.get("/metrics", response_class=Response, responses={200: {"content": {PROMETHEUS: {}}}})
async def metrics(request: Request) -> Response:
    """Prometheus' text form."""
    desk = desk_of(request)
    return Response(desk.metrics.text(await desk.counts(), *desk.workers()), media_type=PROMETHEUS)
