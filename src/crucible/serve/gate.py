"""gate: what every request goes through first: may it come in, is it small enough, how long did it take."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from crucible.serve.metrics import Metrics
from crucible.serve.tokens import Tokens

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = ("/health/live", "/health/ready", "/docs", "/openapi.json")
"""Paths that need no token: they tell nothing of what is judged."""


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: App, tokens: Tokens, metrics: Metrics, body_bytes: int, hosts: frozenset[str]) -> None:
        """`hosts` are the names by which it may be called, against pages that have their own name point here; empty for
        any."""
        self._app, self._tokens, self._metrics = app, tokens, metrics
        self._body_bytes, self._hosts = body_bytes, hosts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, statuses = time.perf_counter(), [500]

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        refusal = self._refusal(scope)
        state = scope.setdefault("state", {})
        try:
            await (refusal or self._app)(scope, receive if refusal else self._counted(receive), answer)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            own_s = time.perf_counter() - start - state.get("waited_s", 0.0)
            self._metrics.handled(route, statuses[-1], own_s)

    def _refusal(self, scope: MutableMapping[str, Any]) -> JSONResponse | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)[0].strip("[]").lower()
        if self._hosts and host not in self._hosts:
            return JSONResponse({"detail": "this service answers to its own address alone: name that in Host"}, 421)
        if scope["path"] not in OPEN and not self._tokens.admit(headers.get(b"authorization", b"")):
            told = "give a token of this service: Authorization: Bearer TOKEN"
            return JSONResponse({"detail": told}, 401, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._body_bytes:
            return JSONResponse({"detail": self._too_large}, 413)
        return None

    @property
    def _too_large(self) -> str:
        return f"a request holds at most {self._body_bytes} bytes: send fewer submissions at a time"

    def _counted(self, receive: Receive) -> Receive:
        """Bodies of no stated length are cut off as soon as they are too long."""
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._body_bytes:
                raise HTTPException(413, self._too_large)
            return message

        return counted
