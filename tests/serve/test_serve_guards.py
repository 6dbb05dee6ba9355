"""Who may come in, with how much, and what is said to those who send what nobody can judge."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crucible.errors import MisuseError
from crucible.serve.tokens import Tokens, check_exposure
from serving import Service, asked, gym_asked, served

TOKEN, OTHER = "a-token-of-20-letters", "another-token-of-more"
NOBODY = "0" * 64
JSON = {"Content-Type": "application/json"}


@contextlib.contextmanager
def logged() -> Iterator[io.StringIO]:
    """All that any logger is told, those included that tell the root nothing."""
    text, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(text), root.level
    loggers = [one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger) and not one.propagate]
    for one in (root, *loggers):
        one.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.setLevel(level)
        for one in (root, *loggers):
            one.removeHandler(handler)


def test_without_a_token_nothing_but_health_is_told(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        ways = [("POST", "/submissions"), ("POST", "/evaluate"), ("GET", "/metrics"), ("GET", "/results/a"),
                ("GET", f"/submissions/{NOBODY}"), ("DELETE", f"/submissions/{NOBODY}"), ("GET", "/x")]  # fmt: skip
        for method, path in ways:
            for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"},
                           {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": f"Bearer {TOKEN}x"},
                           {"Authorization": TOKEN}, {"Authorization": "Bearer "}):  # fmt: skip
                answer = await service.http.request(method, path, headers=header, json=asked())
                assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), (path, header)
                assert TOKEN not in answer.text
        assert service.ledger.status().total == 0
        assert (await service.http.get("/health/live")).status_code == 200
        for token in (TOKEN, OTHER):
            answer = await service.http.post("/submissions", json=asked(), headers={"Authorization": f"bearer {token}"})
            assert answer.status_code == 202
        assert TOKEN not in (await service.http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).text

    with logged() as text:
        served(tmp_path, use, tokens=[TOKEN, "", "# a remark", OTHER])
        logging.getLogger("crucible").debug("the last word")
    assert TOKEN not in text.getvalue() and "the last word" in text.getvalue()


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("", 0o600, "holds no token"),
        ("# only a remark\n\n", 0o600, "holds no token"),
        ("secret\n", 0o600, "line 1: a token is 16"),
        (f"{TOKEN}\nsecret with spaces in it\n", 0o600, "line 2: a token is 16"),
        (f"{TOKEN}\n", 0o644, "chmod o-rwx"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_token_files_that_protect_nothing_are_refused(tmp_path: Path, text: str | None, mode: int, words: str) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(MisuseError, match=words) as refusal:
        Tokens.load(file)
    assert "secret" not in str(refusal.value)


def test_tokens_are_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    file.chmod(0o640)
    tokens = Tokens.load(file)
    assert TOKEN not in repr(tokens) + str(vars(tokens))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", ""])
def test_others_reach_it_only_with_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(MisuseError, match="--token-file"):
        check_exposure(host, Tokens())
    check_exposure(host, Tokens((b"digest",)))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_this_machine_reaches_it_without(host: str) -> None:
    check_exposure(host, Tokens())


def test_a_page_whose_own_name_points_here_is_not_answered(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        for host in ("evil.example", "evil.example:8000", "", "127.0.0.1.evil.example"):
            answer = await service.http.post("/submissions", json=asked(), headers={"Host": host})
            assert answer.status_code == 421
        for host in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
            assert (await service.http.get("/health/live", headers={"Host": host})).status_code == 200
        assert service.ledger.status().total == 0

    served(tmp_path, use, hosts=frozenset({"localhost", "127.0.0.1", "::1"}))


def test_a_form_of_a_web_page_is_no_submission(tmp_path: Path) -> None:
    """Browsers send forms and plain text anywhere without asking; JSON they ask for first."""

    async def use(service: Service) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            headers = {"Content-Type": kind} if kind else {}
            answer = await service.http.post("/submissions", content=json.dumps(asked()), headers=headers)
            assert answer.status_code == 422
        assert service.ledger.status().total == 0

    served(tmp_path, use)


def test_bodies_have_a_limit_stated_or_not(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        body = json.dumps({**asked(), "candidate": "x" * 5000}).encode()

        async def in_pieces() -> Any:
            for start in range(0, len(body), 1000):
                yield body[start : start + 1000]

        stated = await service.http.post("/submissions", content=body, headers=JSON)
        streamed = await service.http.post("/submissions", content=in_pieces(), headers=JSON)
        assert "content-length" not in streamed.request.headers
        for answer in (stated, streamed):
            assert (answer.status_code, "at most 4096 bytes" in answer.json()["detail"]) == (413, True)
        assert (await service.submit()).status_code == 202

    served(tmp_path, use, body_bytes=4096)


def changed(**what: Any) -> bytes:
    """A submission's JSON with some fields otherwise."""
    return json.dumps({**asked(), **what}).encode()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{task: 1}", "body.1: JSON decode error"),
    "nothing": (b"", "body: Field required"),
    "no object": (b"[1, 2]", "body: Input should be"),
    "deep": (b"[" * 100_000, "There was an error parsing the body"),
    "no UTF-8": (b'{"task": "\xff"}', "There was an error parsing the body"),
    "half a pair": (changed(candidate="x = '\ud800'"), "unicode string"),
    "not a number": (changed(options={"limits": {"run_s": float("nan")}}), "finite"),
    "endless": (changed(options={"limits": {"build_s": 1e9}}), "less than or equal to 1800"),
    "huge": (changed(candidate="x" * 600_000), "at most 524288 characters"),
    "huge number": (b'{"priority": 1' + b"0" * 6000 + b"}", "body"),
    "empty": (changed(candidate=""), "at least 1 character"),
    "a path": (changed(candidate_name="../../etc/passwd"), "candidate_name"),
    "control characters": (changed(task_name="a\x1b[2J"), "task_name"),
    "a field of its own making": (changed(**{"\x1b[2J\n": 1}), "body.[U+001B][2J : Extra inputs"),
    "a long field": (changed(**{"x" * 9000: 1}), "body.xxx"),
    "what it does not know": (changed(sudo=True), "sudo: Extra inputs"),
    "outside of the sandbox": (changed(options={"sanitize": True}), "sanitize: Extra"),
    "no task": (changed(task="x = 1"), "defines no Model, get_inputs"),
    "no Python": (changed(task="class Model(:"), "is not valid Python, line 1"),
    "null bytes": (changed(task="x = 1\0"), "is not valid Python"),
    "many brackets": (changed(task="(" * 100_000), "is not valid Python"),
    "a shape of others": (
        json.dumps({**asked(), "options": {"shapes": ["width=3"]}}).encode(),
        "no module-level number",
    ),
    "a baseline of others": (
        json.dumps({**asked(), "options": {"baselines": "magic"}}).encode(),
        "no baseline 'magic'",
    ),
    "no GPU here": (changed(options={"device": "cuda"}), "no worker here for device cuda"),
    "a scale it has not": (changed(options={"scale": "small"}), "no small size"),
}


def test_what_cannot_be_judged_is_refused_in_one_line(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        for what, (body, words) in HOSTILE.items():
            answer = await service.http.post("/submissions", content=body, headers=JSON)
            assert answer.status_code in (400, 422), (what, answer.text)
            line = answer.json()["detail"]
            assert words in line, (what, line)
            assert what != "huge" or "xxx" not in line  # what was sent is not sent back
            assert line.isprintable() and len(line) <= 500 and str(tmp_path) not in line and "/tmp" not in line, what
        assert service.ledger.status().total == 0
        assert (await service.submit()).status_code == 202  # nothing of all that has stopped it

    served(tmp_path, use)


def test_what_kernelgyms_callers_send_wrongly_has_their_form(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        for wrong in (
            {"task_id": ""},
            {"task_id": "a\nb"},
            {"task_id": "x" * 101},
            {"entry_point": "Model; import os"},
            {"num_correct_trials": 0},
            {"timeout": float("nan")},
            {"priority": "now"},
            {"reference_code": "x = 1"},
        ):
            content = json.dumps({**gym_asked(), **wrong})
            answer = await service.http.post("/evaluate", content=content, headers=JSON)
            assert answer.status_code == 400, (wrong, answer.text)
            assert answer.json()["error_code"] == "VALIDATION_ERROR"
            assert answer.json()["message"].isprintable()
        assert service.ledger.status().total == 0

    served(tmp_path, use)


def test_a_full_queue_says_when_to_come_again(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        assert [(await service.submit(number)).status_code for number in range(3)] == [202] * 3
        full = await service.submit(3)
        assert (full.status_code, full.json()["error_code"]) == (429, "RESOURCE_ERROR")
        assert 1 <= int(full.headers["Retry-After"]) <= 60
        assert (await service.submit(0)).status_code == 202  # it is in the queue
        batch = {"submissions": [asked(0), asked(3)]}
        assert (await service.http.post("/submissions/batch", json=batch)).status_code == 429
        never = {"submissions": [asked(number) for number in range(4, 8)]}
        assert (await service.http.post("/submissions/batch", json=never)).status_code == 422
        assert (await service.http.post("/evaluate", json=gym_asked(3))).status_code == 429
        assert service.ledger.status().queued == 3
        service.judge()
        assert (await service.submit(3)).status_code == 202

    served(tmp_path, use, limit=3)


def test_those_that_come_together_do_not_all_get_the_last_place(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        answers = await asyncio.gather(*(service.submit(number) for number in range(12)))
        assert sorted(answer.status_code for answer in answers) == [202] * 5 + [429] * 7
        assert service.ledger.status().queued == 5

    served(tmp_path, use, limit=5)


def test_a_store_that_cannot_be_written_is_trouble_of_the_services_own(tmp_path: Path) -> None:
    async def use(service: Service) -> None:
        service.ledger.close()
        for file in tmp_path.glob("ledger.sqlite*"):
            file.unlink()
        (tmp_path / "ledger.sqlite").mkdir()
        answer = await service.submit()
        assert (answer.status_code, answer.json()["error_code"]) == (503, "SYSTEM_ERROR")
        assert "Retry-After" in answer.headers

    served(tmp_path, use)
