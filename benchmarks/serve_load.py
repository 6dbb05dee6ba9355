"""`crucible serve` under load: many clients, a SIGKILL in the middle, what is lost and what the service itself takes.

    python benchmarks/serve_load.py [--submissions 1000] [--clients 64] [--workers 1] [--json FILE]

Each client submits, waits for the verdict, submits the next, as a training loop does; all start within `--spread`
seconds. Submissions are distinct and tiny: of each 20 candidates 10 do not import, 8 raise, one is wrong, one is right.
Once two in five are judged the service is killed and started again on the same store. Timed at the client are the calls
that wait for no verdict (submit; the result once it is there); in the service, what it says in /metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from crucible import hardware
from crucible.fleet.ledger import Ledger

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
# {number}
import torch
{imported}

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""
KINDS = {"does-not-import": ("import nowhere", "pass"), "raises": ("", "raise ValueError"),
         "wrong": ("", "return x * 3.0"), "passed": ("", "return x + x")}  # fmt: skip
MIX = ("does-not-import",) * 10 + ("raises",) * 8 + ("wrong", "passed")
OPTIONS = {"device": "cpu", "baselines": "none", "limits": {"race_s": 0.01, "shrink_s": 0, "stress_s": 0}}
BOUND_MS = 50.0


@dataclass
class Load:
    """What the clients saw."""

    address: str
    submit_ms: list[float] = field(default_factory=list)
    result_ms: list[float] = field(default_factory=list)
    found: dict[int, dict[str, Any]] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    interrupted: int = 0
    """Calls that found no service, or one that was just killed."""

    async def client(self, numbers: list[int], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        async with httpx.AsyncClient(base_url=self.address, timeout=90, verify=False) as http:  # reads no certificates
            for number in numbers:
                submission = {"task": REFERENCE, "candidate": candidate(number), "options": OPTIONS}
                answer = await self.call(http, "POST", "/submissions", self.submit_ms, json=submission)
                self.keys[number] = key = answer["id"]
                await self.call(http, "GET", f"/submissions/{key}/result?wait=60")
                self.found[number] = await self.call(http, "GET", f"/submissions/{key}/result", self.result_ms)

    async def call(
        self, http: httpx.AsyncClient, method: str, path: str, times: list[float] | None = None, **what: Any
    ) -> dict[str, Any]:
        """Until it is answered; a verdict that is not there yet is asked for again."""
        while True:
            start = time.perf_counter()
            try:
                answer = await http.request(method, path, **what)
            except httpx.TransportError:
                self.interrupted += 1
                await asyncio.sleep(0.5)
                continue
            took_ms = 1e3 * (time.perf_counter() - start)
            if answer.status_code == 503 or (answer.status_code == 202 and method == "GET"):
                await asyncio.sleep(0.2)
                continue
            if answer.status_code not in (200, 202):
                raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
            if times is not None:
                times.append(took_ms)
            return dict(answer.json())


def kind(number: int) -> str:
    return MIX[number % len(MIX)]


def candidate(number: int) -> str:
    imported, body = KINDS[kind(number)]
    return CANDIDATE.format(number=number, imported=imported, body=body)


def start(port: int, folder: Path, workers: int) -> subprocess.Popen[str]:
    """A service on that port; returns once it listens."""
    command = [sys.executable, "-m", "crucible", "serve", "--port", str(port), "--workers", str(workers)]
    environment = {**os.environ, "CRUCIBLE_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--store", str(folder / "store")], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    if not line.startswith("serving on"):
        raise SystemExit(f"the service did not start: {line}{process.stderr.read()}")
    return process


async def loaded(load: Load, arguments: argparse.Namespace, folder: Path, port: int) -> dict[str, Any]:
    """All clients, and the kill in the middle; what the service said of itself before and after."""
    process = await asyncio.to_thread(start, port, folder, arguments.workers)
    try:
        shares = [list(range(i, arguments.submissions, arguments.clients)) for i in range(arguments.clients)]
        draw = random.Random(0)
        clients = [asyncio.create_task(load.client(share, draw.uniform(0, arguments.spread))) for share in shares]
        while len(load.found) < 0.4 * arguments.submissions:
            await asyncio.sleep(0.1)
            for one in clients:
                if one.done():
                    one.result()
        before = await asyncio.to_thread(metrics, load.address)
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed, at = time.monotonic(), len(load.found)
        process = await asyncio.to_thread(start, port, folder, arguments.workers)
        back_s = time.monotonic() - killed
        await asyncio.gather(*clients)
        after = await asyncio.to_thread(metrics, load.address)
        again = await asyncio.to_thread(results, load)
    finally:
        process.send_signal(signal.SIGTERM)
        ended = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
    return {"before": before, "after": after, "again": again, "killed_after": at, "back_after_s": round(back_s, 2),
            "ended_after_s": round(time.monotonic() - ended, 2)}  # fmt: skip


def metrics(address: str) -> str:
    return httpx.get(f"{address}/metrics", timeout=30).text


def results(load: Load) -> dict[int, dict[str, Any]]:
    """Each result once more."""
    with httpx.Client(base_url=load.address, timeout=60) as http:
        return {number: http.get(f"/submissions/{key}/result").json() for number, key in load.keys.items()}


def own_ms(texts: list[str], route: str) -> dict[str, Any]:
    """Of a route by the service's own histogram: the bound below which 95 % of requests lie."""
    counts: Counter[float] = Counter()
    for text in texts:
        for bound, count in re.findall(
            rf'overhead_seconds_bucket{{le="([^"]+)",route="{re.escape(route)}"}} (\S+)', text
        ):
            counts[float(bound)] += int(float(count))
    total = counts[float("inf")]
    bound = min(bound for bound, count in counts.items() if count >= 0.95 * total)
    return {"requests": total, "p95_below": 1e3 * bound, "below_50": counts[BOUND_MS / 1e3] / total}


def spread(times_ms: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(times_ms, n=100)
    return {
        "calls": len(times_ms),
        "p50": round(cuts[49], 2),
        "p95": round(cuts[94], 2),
        "max": round(max(times_ms), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--spread", type=float, default=5.0, help="seconds within which clients begin")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    load, began = Load(f"http://127.0.0.1:{port}"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="serve-load-", ignore_cleanup_errors=True) as folder:
        seen = asyncio.run(loaded(load, arguments, Path(folder), port))
        status = Ledger(Path(folder) / "store/ledger.sqlite").status()
    texts = [seen["before"], seen["after"]]
    record = {
        "device": hardware.find_device("cpu").name,
        "cores": hardware.cores(),
        "load_average": [round(one, 1) for one in os.getloadavg()],
        "python": platform.python_version(),
        "versions": hardware.versions(),
        "submissions": arguments.submissions,
        "clients": arguments.clients,
        "workers": arguments.workers,
        "clients_begin_within_s": arguments.spread,
        "wall_s": round(time.monotonic() - began, 1),
        "killed_after": seen["killed_after"],
        "back_after_s": seen["back_after_s"],
        "ended_after_s": seen["ended_after_s"],
        "calls_interrupted": load.interrupted,
        "lost": arguments.submissions - len(load.found),
        "judged_twice": sum(load.found[number] != again for number, again in seen["again"].items()),
        "not_as_expected": sum(found["verdict"]["kind"] != kind(number) for number, found in load.found.items()),
        "ledger": vars(status),
        "outcomes": Counter(found["verdict"]["kind"] for found in load.found.values()),
        "client_ms": {"submit": spread(load.submit_ms), "result": spread(load.result_ms)},
        "service_ms": {route: own_ms(texts, route) for route in ("/submissions", "/submissions/{key}/result")},
    }
    text = json.dumps(record, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    within = all(times["p95"] < BOUND_MS for times in record["client_ms"].values())
    sound = not (record["lost"] or record["judged_twice"] or record["not_as_expected"])
    sys.exit(0 if within and sound else 1)


if __name__ == "__main__":
    main()
