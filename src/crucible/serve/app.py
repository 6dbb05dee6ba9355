"""app: the application out of its parts; what goes wrong becomes one clear line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from crucible import legible
from crucible.errors import CrucibleError, MisuseError
from crucible.serve import gym_routes, native_routes, operations
from crucible.serve.desk import Desk, StoppingError
from crucible.serve.gate import Gate
from crucible.serve.intake import QueueFullError
from crucible.serve.tokens import Tokens

BODY_BYTES = 16 << 20
RETRY_S = 5
"""After which a caller may try again what trouble of the service's own has kept it from."""


def make_app(desk: Desk, tokens: Tokens, hosts: frozenset[str] = frozenset(), body_bytes: int = BODY_BYTES) -> FastAPI:
    """The service over a desk, which lives as long as the application does."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with desk:
            yield

    app = FastAPI(title="Crucible", summary="Judges GPU kernels.", version="1", lifespan=lifespan, redoc_url=None)
    app.state.desk = desk
    for routes in (native_routes, gym_routes, operations):
        app.include_router(routes.router)
    handlers: dict[type[Exception], Callable[[Request, Exception], JSONResponse]] = {
        RequestValidationError: _not_understood,
        MisuseError: _misuse,
        QueueFullError: _full,
        StoppingError: _trouble,
        CrucibleError: _trouble,
        Exception: _unforeseen,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    app.add_middleware(Gate, tokens=tokens, metrics=desk.metrics, body_bytes=body_bytes, hosts=hosts)
    return app


def _not_understood(request: Request, error: Exception) -> JSONResponse:
    """The first thing that is wrong, without what was sent: that may be long, secret or no JSON."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _answer(request, 422, f"{where}: {first['msg']}", "VALIDATION_ERROR")


def _misuse(request: Request, error: Exception) -> JSONResponse:
    return _answer(request, 422, str(error), "VALIDATION_ERROR")


def _full(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, QueueFullError)
    return _answer(request, 429, str(error), "RESOURCE_ERROR", error.retry_s)


def _trouble(request: Request, error: Exception) -> JSONResponse:
    return _answer(request, 503, str(error), "SYSTEM_ERROR", RETRY_S)


def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    """Its kind alone: a message may hold what others sent."""
    return _answer(request, 500, f"the service failed ({type(error).__name__}): see its log", "SYSTEM_ERROR", RETRY_S)


def _answer(request: Request, status: int, words: str, code: str, retry_s: int = 0) -> JSONResponse:
    """One line, in the form that the route's callers read: KernelGYM's have 400 for what cannot be read."""
    line = legible.line(words)[:500]
    headers = {"Retry-After": str(retry_s)} if retry_s else None
    if not gym_routes.is_ours(request.url.path):
        return JSONResponse({"detail": line, "error_code": code}, status, headers)
    content = {"error": code, "message": line, "detail": line, "error_code": code}
    return JSONResponse(content, 400 if status == 422 else status, headers)
