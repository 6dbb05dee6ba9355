"""What tests of the service share: the application in this process over a ledger of its own, and a judge's records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from crucible import hardware
from crucible.contract import find_contract
from crucible.fleet.ledger import Ledger
from crucible.fleet.local import LocalFleet
from crucible.hardware import Device
from crucible.judge.verdict.verdict import Outcome, Passed, Verdict
from crucible.run import Run
from crucible.serve.app import BODY_BYTES, make_app
from crucible.serve.desk import Desk
from crucible.serve.intake import Intake
from crucible.serve.task_ids import TaskIds
from crucible.serve.tokens import Tokens
from crucible.task import Task
from support import PLAIN, SMALL_TASK

REFERENCE = (SMALL_TASK / "reference.py").read_text()
CANDIDATE = PLAIN.read_text()


@dataclass
class Service:
    """One in this process: what calls it, and the ledger behind it. No worker runs; tests say what is judged."""

    http: httpx.AsyncClient
    ledger: Ledger
    desk: Desk

    def judge(self, outcome: Outcome | None = None, **what: Any) -> None:
        """What a worker does with all that is queued."""
        for one in self.ledger.claim("a worker", ["auto", "cpu"], 100):
            self.ledger.finish(one.submission.id, record(outcome or Passed(), **what), hardware.find_device("cpu").name)

    def fail(self, reason: str, *, final: bool = False) -> None:
        """What a fleet does with all that is queued where the judge cannot; `final` where the task is to blame."""
        while self.ledger.claim("a worker", ["auto", "cpu"], 100):
            self.ledger.give_up("a worker", reason, final=final)

    async def submit(self, number: int = 0, **more: Any) -> httpx.Response:
        return await self.http.post("/submissions", json={**asked(number), **more})

    async def evaluate(self, number: int = 0, **more: Any) -> asyncio.Task[httpx.Response]:
        """KernelGYM's, which answers with the result: sent, and in the queue."""
        before = self.ledger.status().total
        sent = asyncio.create_task(self.http.post("/evaluate", json={**gym_asked(number), **more}))
        while self.ledger.status().total == before and not sent.done():
            await asyncio.sleep(0.01)
        return sent


def asked(number: int = 0) -> dict[str, Any]:
    """A submission; each number is another candidate."""
    return {"task": REFERENCE, "candidate": f"{CANDIDATE}# {number}\n"}


def gym_asked(number: int = 0) -> dict[str, Any]:
    return {"task_id": f"task_{number}", "reference_code": REFERENCE, "kernel_code": f"{CANDIDATE}# {number}\n"}


def record(outcome: Outcome, **what: Any) -> dict[str, Any]:
    """A run with one candidate of that outcome, as workers hand it over."""
    task, device = Task.load(SMALL_TASK), Device("cpu", "CPU: a test's", "")
    verdict = Verdict("candidate", outcome, total_s=1.5, **what)
    return Run(task, find_contract("tf32"), device, {"torch": "2.13"}, 0, (verdict,)).to_json()


def served(
    folder: Path,
    use: Callable[[Service], Awaitable[None]],
    *,
    limit: int = 100,
    tokens: Sequence[str] = (),
    hosts: frozenset[str] = frozenset(),
    body_bytes: int = BODY_BYTES,
) -> None:
    """Runs `use` on a service whose store is `folder`, and ends it."""
    file = folder / "tokens"
    if tokens:
        file.write_text("\n".join(tokens))
        file.chmod(0o600)
    admitted = Tokens.load(file) if tokens else Tokens()

    async def run() -> None:
        ledger, task_ids = Ledger(folder / "ledger.sqlite"), TaskIds(folder / "task_ids.sqlite")
        fleet = LocalFleet(ledger, 1, device="cpu")
        desk = Desk(Intake(ledger, task_ids, limit, fleet.devices), fleet)
        app = make_app(desk, admitted, hosts, body_bytes)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with desk, httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            await use(Service(http, ledger, desk))
        ledger.close()
        task_ids.close()

    asyncio.run(asyncio.wait_for(run(), 60))
