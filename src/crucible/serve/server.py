"""server: the service from its start to its end: store, workers, socket."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from crucible.errors import MisuseError
from crucible.fleet.ledger import Ledger
from crucible.fleet.local import LocalFleet
from crucible.serve.app import make_app
from crucible.serve.desk import Desk
from crucible.serve.intake import Intake
from crucible.serve.task_ids import TaskIds
from crucible.serve.tokens import Tokens, check_exposure, is_loopback

AT_ONCE = 16
"""Candidates of one task that a worker takes together: what is urgent waits for so many at most."""
GOODBYE_S = 3
"""For answers that are under way when the service is told to end."""
CONNECTIONS = 4096


@dataclass(frozen=True)
class Service:
    """What `crucible serve` was asked for."""

    host: str
    port: int
    """0 for one that is free."""
    workers: int | None
    """None for as many as there are GPUs, or pairs of cores."""
    store: Path
    queue_limit: int
    tokens: Tokens


def serve(service: Service, say: Callable[[str], None]) -> None:
    """Serves until it is told to end. What is queued then waits in the store for the next time, and so does what was
    being judged. Raises MisuseError, StoreError."""
    check_exposure(service.host, service.tokens)
    listening = _listen(service.host, service.port)
    service.store.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(service.store / "ledger.sqlite")
    task_ids = TaskIds(service.store / "task_ids.sqlite")
    fleet = LocalFleet(ledger, service.workers, most=AT_ONCE, say=say)
    desk = Desk(Intake(ledger, task_ids, service.queue_limit, fleet.devices), fleet)
    app = make_app(desk, service.tokens, _own_names(service))
    settings = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=GOODBYE_S,
        limit_concurrency=CONNECTIONS,
        server_header=False,
    )
    with fleet:
        _Server(settings, desk, say).run([listening])
        say("ending: what is queued or being judged waits for the next time")
    ledger.close()
    task_ids.close()


class _Server(uvicorn.Server):
    """Says where it listens once it does, and lets those go who wait for verdicts before it waits for them."""

    def __init__(self, config: uvicorn.Config, desk: Desk, say: Callable[[str], None]) -> None:
        super().__init__(config)
        self._desk, self._say = desk, say

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            host, port = one.getsockname()[:2]
            self._say(f"serving on http://{f'[{host}]' if ':' in host else host}:{port} (how to call it: /docs)")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._desk.stop()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    """Raises MisuseError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, UnicodeError, OverflowError) as error:
        raise MisuseError(f"cannot listen on {host}, port {port}: {error}; name another --host or --port") from error
    return listening


def _own_names(service: Service) -> frozenset[str]:
    """By which it may be called where only this machine does: a web page whose own name points here is none of them."""
    return frozenset({"localhost", "127.0.0.1", "::1", service.host}) if is_loopback(service.host) else frozenset()
