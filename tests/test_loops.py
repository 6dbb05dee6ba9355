"""The recipes of docs/loops.md, as they stand there, against the contracts of the loops that they are for."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import itertools
import math
import os
import re
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

import crucible
from crucible.judge.verdict.parts import Parts
from crucible.judge.verdict.reward import POLICIES
from support import PLAIN, SMALL_TASK, TESTS

pytest_plugins = ["pytester"]

DOCS = (TESTS.parent / "docs/loops.md").read_text()
OPTIONS = {"device": "cpu", "baselines": "eager", "limits": crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0)}
REFERENCE = (SMALL_TASK / "reference.py").read_text()
RIGHT = f"<think>a linear layer</think>\nHere it is:\n\n```python\n{PLAIN.read_text()}```\n"
WRONG = RIGHT.replace("* self.scale", "* self.scale * 2")
NOTHING = "I cannot do that."
ANSWERS = (RIGHT, WRONG, NOTHING)


def block(section: str, language: str = "python") -> str:
    """The code of a section of the docs."""
    text = DOCS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1, section
    return str(found[0])


def recipe(section: str) -> dict[str, Any]:
    """What a section's code defines, with options for a tiny task."""
    names: dict[str, Any] = {}
    exec(compile(block(section), section, "exec"), names)
    return {**names, "OPTIONS": names["OPTIONS"].clear() or names["OPTIONS"].update(OPTIONS)}


@pytest.fixture(autouse=True)
def shared_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one recipe had judged the next one is told."""
    monkeypatch.setenv("CRUCIBLE_HOME", str(tmp_path_factory.getbasetemp() / "loops-home"))


def test_verl() -> None:
    compute_score = recipe("verl")["compute_score"]
    assert list(inspect.signature(compute_score).parameters) == [
        "data_source",
        "solution_str",
        "ground_truth",
        "extra_info",
    ]

    async def scores() -> list[dict[str, float]]:
        return await asyncio.gather(
            *(compute_score("kernels", answer, REFERENCE, extra_info={"index": 0}) for answer in ANSWERS)
        )

    right, wrong, nothing = asyncio.run(scores())
    assert right.keys() == wrong.keys() == nothing.keys()  # naive.py makes one list of each
    assert (wrong, nothing) == (
        {"score": -0.25, "compiled": 1.0, "correct": 0.0},
        {"score": -0.5, "compiled": 0.0, "correct": 0.0},
    )
    assert right["correct"] == 1.0 and -0.25 <= right["score"] <= 2 and math.isfinite(right["score"])


def test_verifiers() -> None:
    names = recipe("verifiers")
    given = {"prompt": [{"role": "user", "content": "write"}], "state": {}, "info": {}, "answer": REFERENCE}

    async def scores() -> list[float]:
        chats = [[{"role": "assistant", "content": answer}] for answer in ANSWERS]
        functions = (names["reward"], names["correct"])
        return await asyncio.gather(*(f(completion=chat, **given) for f in functions for chat in [*chats, RIGHT]))

    reward = asyncio.run(scores())
    assert all(type(value) is float for value in reward)
    assert reward[1:3] == [-0.25, -0.5] and reward[0] == reward[3] >= -0.25 and reward[4:] == [1.0, 0.0, 0.0, 1.0]


def test_verifiers_never_reads_a_broken_box_as_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    names = recipe("verifiers")
    names["judged"].__globals__["PAUSE_S"] = 0.01
    names["OPTIONS"] = names["judged"].__globals__["OPTIONS"]
    given = {"prompt": "", "state": {}, "info": {}, "answer": REFERENCE}
    home = os.environ["CRUCIBLE_HOME"]

    async def mended() -> float:
        for thread in threading.enumerate():  # of a test before: its turn, taken in the old place, would serve here
            if thread.name.startswith("crucible-score"):
                await asyncio.to_thread(thread.join)
        monkeypatch.setenv("CRUCIBLE_HOME", "/dev/null/home")
        waiting = asyncio.create_task(names["reward"](completion=NOTHING, **given))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        monkeypatch.setenv("CRUCIBLE_HOME", home)
        return await waiting

    assert asyncio.run(mended()) == -0.5
    with pytest.raises(SystemExit, match="needs tilelang"):
        asyncio.run(names["reward"](completion="import tilelang\nclass ModelNew: ...\n", **given))


@pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed")
def test_verifiers_loads_it() -> None:
    rows = [{"question": "write a kernel", "answer": REFERENCE, "info": {}}]
    assert recipe("verifiers")["load_environment"](rows).rubric is not None


def stand_in(name: str, **contract: Any) -> Iterator[None]:
    """A package by its contract, where it is not installed."""
    if importlib.util.find_spec(name.partition(".")[0]):
        yield
        return
    parts = name.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    modules = {one: types.ModuleType(one) for one in names}
    for upper, lower in itertools.pairwise(names):
        setattr(modules[upper], lower.rpartition(".")[2], modules[lower])
    vars(modules[name]).update(contract)
    sys.modules |= modules
    yield
    for one in names:
        del sys.modules[one]


class Generic:
    """What may be subscribed, and takes its data as `data`."""

    def __init__(self, data: Any = None, **fields: Any) -> None:
        self.data = data
        vars(self).update(fields)

    def __class_getitem__(cls, item: Any) -> type:
        return cls


@pytest.fixture
def skyrl() -> Iterator[None]:
    yield from stand_in("skyrl_gym.envs.base_text_env", BaseTextEnv=type("B", (), {}), BaseTextEnvStepOutput=dict)


@pytest.fixture
def verifiers() -> Iterator[None]:
    yield from stand_in("verifiers.v1", TaskData=Generic, Task=Generic, reward=lambda function: function)


@pytest.mark.usefixtures("verifiers")
def test_verifiers_of_tasks() -> None:
    names = recipe("verifiers from 0.4")
    task = names["KernelTask"](names["KernelData"](prompt="write", reference=REFERENCE))
    traces = [types.SimpleNamespace(last_reply=answer) for answer in (WRONG, NOTHING)]
    assert [asyncio.run(task.speed(trace)) for trace in traces] == [-0.25, -0.5]


@pytest.mark.usefixtures("skyrl")
def test_skyrl() -> None:
    env = recipe("SkyRL")["KernelEnv"]({}, {"reward_spec": {"ground_truth": REFERENCE}})
    steps = [env.step(answer) for answer in (WRONG, NOTHING, RIGHT)]
    assert [step.keys() for step in steps] == [{"observations", "reward", "done", "metadata"}] * 3
    assert [step["done"] for step in steps] == [False, False, True] and steps[2]["observations"] == []
    assert "wrong forward" in steps[0]["observations"][0]["content"] and "no code block" in str(steps[1])
    assert [step["reward"] for step in steps[:2]] == [-0.25, -0.5] and steps[2]["metadata"]["correct"] == 1.0


def test_no_recipe_is_long() -> None:
    for section in ("verl", "verifiers from 0.4", "SkyRL"):
        assert len(block(section).strip().splitlines()) <= 20
    functions = block("verifiers").partition("async def judged")[2].partition("def load_environment")[0]
    assert len([line for line in functions.splitlines() if line.strip()]) <= 20


def test_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(block("pytest"))
    done = pytester.runpytest_inprocess("-p", "pytest_crucible", "--strict-markers", "--collect-only", "-q")
    assert done.ret == 0 and "test_softmax" in done.stdout.str()


def test_github_actions(tmp_path: Path) -> None:
    """The workflow is one, and what it runs runs."""
    workflow = yaml.safe_load(block("GitHub Actions", "yaml"))
    job = workflow["jobs"]["judge"]
    assert set(workflow) == {"name", True, "jobs"} and {"runs-on", "steps"} <= set(job)  # YAML 1.1 reads `on` as true
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
    commands = [step["run"] for step in job["steps"] if step.get("run", "").startswith("crucible")]
    (tmp_path / "kernels/candidates").mkdir(parents=True)
    (tmp_path / "kernels/reference.py").write_text(REFERENCE)
    (tmp_path / "kernels/candidates/nothing.py").write_text("# nothing\n")
    bin = tmp_path / "bin/crucible"
    bin.parent.mkdir()
    bin.write_text(f'#!/bin/sh\nexec {sys.executable} -m crucible "$@"\n')
    bin.chmod(0o755)
    where = {"PATH": f"{bin.parent}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    ends = [subprocess.run(c, shell=True, cwd=tmp_path, env={**os.environ, **where}).returncode for c in commands]
    assert ends == [1, 0] and "nothing" in (tmp_path / "summary.md").read_text()
    uploaded = job["steps"][-1]["with"]["path"].split()
    assert uploaded == ["run.json", "run.html"] and all((tmp_path / name).stat().st_size for name in uploaded)


def test_the_docs_name_what_there_is() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", DOCS.partition("| policy |")[2].partition("\n\n")[0], re.MULTILINE)
    assert rows == list(POLICIES)
    parts = DOCS.partition("| part |")[2].partition("\n\n")[0]
    named = {name for row in re.findall(r"^\|([^|]*)\|", parts, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named | {"baseline", "reasons"} == {part.name for part in fields(Parts)}
