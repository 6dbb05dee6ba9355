"""The service as it runs: a process with a worker that judges, killed on the way and started again."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import REFERENCE
from support import TESTS, wait_until_gone, write

WRONG = """
import time
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()

    def forward(self, x):
        time.sleep({seconds})
        return torch.zeros(4, 16)
"""
QUICK = {"device": "cpu", "baselines": "none", "limits": {"shrink_s": 0, "stress_s": 0}}


@contextlib.contextmanager
def service(store: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """One that listens, with a worker; killed at the end."""
    command = [sys.executable, "-m", "crucible", "serve", "--port", "0", "--workers", "1", "--store", str(store)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("serving on http://127.0.0.1:"), line
            with httpx.Client(base_url=line.split()[2], timeout=60) as http:
                yield process, http
        finally:
            process.kill()


def asked(seconds: float) -> dict[str, Any]:
    return {"task": REFERENCE, "candidate": WRONG.format(seconds=seconds), "options": QUICK}


def results(http: httpx.Client, keys: list[str]) -> list[dict[str, Any]]:
    """Of each, as soon as it is there; a busy machine takes its time."""
    for _ in range(6):
        answers = [http.get(f"/submissions/{key}/result", params={"wait": 50}) for key in keys]
        if all(answer.status_code == 200 for answer in answers):
            break
    assert [answer.status_code for answer in answers] == [200] * len(keys)
    return [answer.json() for answer in answers]


def example(address: str) -> str:
    """The one of docs/serve.md, with another address."""
    text = (TESTS.parent / "docs/serve.md").read_text().split("```python\n")[1].split("```")[0]
    return text.replace("http://127.0.0.1:8000", address)


@pytest.mark.slow
def test_killed_and_started_again_it_answers_all_and_judges_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    with service(store) as (process, http):
        together = {"submissions": [asked(0), asked(0.5), asked(0.001)]}
        keys = [one["id"] for one in http.post("/submissions/batch", json=together).json()["submissions"]]
        [before] = results(http, keys[:1])
        assert (before["evaluation"], before["verdict"]["kind"]) == (False, "wrong")
        process.send_signal(signal.SIGKILL)
        process.wait()
    with service(store) as (process, http):
        assert http.get(f"/submissions/{keys[1]}").json()["state"] in ("queued", "running")  # it was cut off
        after = results(http, keys)
        assert after[0] == before
        assert [one["verdict"]["kind"] for one in after] == ["wrong"] * 3
        text = http.get("/metrics").text
        assert "crucible_workers_alive 1.0" in text
        assert 'crucible_submissions{state="done"} 3.0' in text
        write(tmp_path / "reference.py", REFERENCE)
        write(tmp_path / "candidate.py", "class ModelNew(")
        monkeypatch.chdir(tmp_path)
        exec(compile(example(str(http.base_url)), "docs/serve.md", "exec"), {})
        assert capsys.readouterr().out.startswith("False -1.0 does not import: syntax error")
        assert http.post("/submissions", json=asked(0.7)).status_code == 202
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        # 1.5 s on a machine that has nothing else to do; where coverage is measured, its handler ends the process
        assert process.wait(60) in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert wait_until_gone(str(tmp_path), 30) == []


@pytest.mark.parametrize(
    "arguments", [["--host", "0.0.0.0"], ["--host", "nowhere.invalid", "--token-file", "{tokens}"]]
)
def test_where_it_cannot_or_must_not_listen_it_does_not(tmp_path: Path, arguments: list[str]) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-20-letters\n")
    tokens.chmod(0o600)
    command = [sys.executable, "-m", "crucible", "serve", "--port", "0", "--store", str(tmp_path / "store")]
    command += [argument.format(tokens=tokens) for argument in arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "host" in done.stderr
    assert "a-token" not in done.stderr
