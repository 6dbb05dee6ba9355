"""Harbor: rewards that no broken machine can give, and tasks whose verifier runs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crucible import cli
from crucible.errors import JudgeError, MisuseError
from crucible.interchange import harbor
from crucible.interchange.harbor_task import ANSWER, Exported, export, texts
from crucible.judge.verdict.evidence import Compared, Finding, NotMeasured, TensorError
from crucible.judge.verdict.verdict import NO_FLOOR, Cheated, DoesNotBuild, NotJudged, Passed, Verdict, Wrong
from crucible.run import WITHOUT_BASELINES, Run
from crucible.task import Task
from report.recorded import right, whole_run
from support import PLAIN, SMALL_TASK, write

QUICK = "--device cpu --baselines none --race-limit 0.05 --shrink-limit 0 --stress-limit 0"


def run_of(verdict: Verdict, **changes: Any) -> Run:
    """A run whose verdict knows its share of the floor, as those that are kept do."""
    if verdict.evaluation:
        verdict = replace(verdict, share_of_floor=whole_run().ground.share_of_floor(verdict.timing) or NO_FLOOR)
    return replace(whole_run(), **{"verdicts": (verdict,), "trouble": "", **changes})


def written(verdict: Verdict, **changes: Any) -> dict[str, float]:
    found = json.loads(harbor.reward_text([run_of(verdict, **changes)]), parse_constant=lambda name: pytest.fail(name))
    assert all(type(value) is float and math.isfinite(value) for value in found.values())
    return found  # type: ignore[no-any-return]


def test_a_pass_is_worth_the_lower_end_of_its_speed_up_over_the_fastest_baseline() -> None:
    found = written(whole_run().verdicts[0])
    assert found["reward"] == found["speedup_vs_compile_low"] == pytest.approx(0.98 * 0.8)
    assert (found["correct"], found["compile_ok"], found["cheated"]) == (1, 1, 0)
    assert (found["speedup_vs_eager"], found["speedup_vs_compile"], found["runtime_ms"]) == (2.0, 0.8, 2.0)
    assert found["share_of_floor"] == pytest.approx(0.189) and found["error_in_noise"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("outcome", "compile_ok", "cheated"),
    [(Wrong("forward", "x"), 1, 0), (DoesNotBuild("x"), 0, 0), (Cheated("early exit", "x"), 1, 1)],
)
def test_what_did_not_pass_is_worth_nothing(outcome: Any, compile_ok: float, cheated: float) -> None:
    nan = TensorError("output", 0, 0.1, 1.0, 0.1, 1.0, (0,), 3, 0, 8)
    found = written(replace(whole_run().verdicts[0], outcome=outcome, forward=Compared((nan,), 4.0)))
    assert found == {"reward": 0, "correct": 0, "compile_ok": compile_ok, "cheated": cheated}  # inf is left out


def test_without_a_race_a_pass_is_worth_one() -> None:
    emulated = Verdict("a", Passed(), right(), timing=NotMeasured("on the emulator"))
    on_cpu = replace(whole_run().device, kind="cpu")
    ground = replace(whole_run().ground, baselines=())
    assert written(emulated, device=on_cpu, ground=ground)["reward"] == 1
    assert "runtime_ms" not in written(emulated, device=on_cpu, ground=ground)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cut_short": "interrupted"}, "judged to the end"),
        ({"verdicts": ()}, "judged to the end"),
        ({"verdicts": whole_run().verdicts}, "of one candidate"),
        ({"verdicts": (Verdict("a", NotJudged("disk full", failed=True)),)}, "disk full"),
        ({"verdicts": (Verdict("a", NotJudged("no GPU")),)}, "no GPU"),
        ({"verdicts": (Verdict("a", Passed(), timing=NotMeasured("lost")),)}, "was not timed: lost"),
        ({"ground": replace(whole_run().ground, findings=(Finding(WITHOUT_BASELINES, "boom"),))}, "boom"),
        ({"verdicts": (replace(whole_run().verdicts[0], timing=replace(whole_run().verdicts[0].timing, speedups=())),)},
         "not raced"),
    ],
)  # fmt: skip
def test_a_machine_that_broke_gives_no_reward(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(JudgeError, match=words):
        harbor.reward_text([run_of(whole_run().verdicts[0], **changes)])


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["crucible", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2


def test_the_reward_of_an_earlier_run_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["/nowhere", str(PLAIN)], [str(SMALL_TASK), str(PLAIN), str(PLAIN)], [str(SMALL_TASK)]):
        stale = write(tmp_path / "reward.json", '{"reward": 5}')
        refused(["judge", *arguments, "--reward", str(stale)], monkeypatch)
        assert not stale.exists()


def test_somebodys_file_is_no_place_for_a_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = write(tmp_path / "notes", "my notes")
    for option in ("--reward", "--sarif", "--junit"):
        refused(["judge", str(SMALL_TASK), str(PLAIN), option, str(notes)], monkeypatch)
    assert notes.read_text() == "my notes"


def test_a_task_becomes_a_folder_of_harbors_form(tmp_path: Path) -> None:
    task = replace(Task.load(SMALL_TASK), training=True)
    export(Exported(task, ["--contract", "fp32"], gpu_types=["H100"]), tmp_path / "a/b")
    root = tmp_path / "a/b"
    settings = tomllib.loads((root / "task.toml").read_text())
    assert settings["schema_version"] == "1.3" and settings["artifacts"] == [ANSWER]
    assert settings["task"]["name"] == "crucible/small_task"
    assert settings["verifier"]["environment_mode"] == "separate"
    assert settings["environment"]["gpu_types"] == settings["verifier"]["environment"]["gpu_types"] == ["H100"]
    assert all(settings[part]["timeout_sec"] > 0 for part in ("agent", "verifier"))
    assert task.source in (root / "instruction.md").read_text() and "gradients" in (root / "instruction.md").read_text()
    assert (root / "tests/reference.py").read_text() == (root / "environment/reference.py").read_text() == task.source
    assert "--contract fp32" in (root / "tests/test.sh").read_text()
    assert all(os.access(root / name, os.X_OK) for name in ("tests/test.sh", "solution/solve.sh"))
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["b"]


def test_what_is_there_stays(tmp_path: Path) -> None:
    what = Exported(Task.load(SMALL_TASK))
    notes = write(tmp_path / "full/notes", "mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for folder in (tmp_path / "full", notes, tmp_path / "link"):
        with pytest.raises(MisuseError, match="holds something"):
            export(what, folder)
    assert notes.read_text() == "mine" and not (tmp_path / "nowhere").exists()


def test_a_reference_with_fences_and_marks_stays_whole(tmp_path: Path) -> None:
    odd = Task.load(SMALL_TASK).source + "\nNOTE = '''\n````\nEND_OF_KERNEL\n$HOME `id`\n'''"
    found = texts(Exported(replace(Task.load(SMALL_TASK), name="Odd name/é", source=odd)))
    assert "`````python\n" in found["instruction.md"]
    assert tomllib.loads(found["task.toml"])["task"]["name"] == "crucible/odd-name"
    script = write(tmp_path / "solve.sh", found["solution/solve.sh"])
    answer = tmp_path / "kernel.py"
    subprocess.run(["bash", script], env={**os.environ, "CRUCIBLE_ANSWER": str(answer)}, check=True)
    assert answer.read_text() == f"{odd}\n\nModelNew = Model\n"


@pytest.mark.slow
def test_the_verifier_runs_and_writes_a_reward_only_where_it_judged(tmp_path: Path) -> None:
    root = tmp_path / "task"
    export(Exported(Task.load(SMALL_TASK), QUICK.split()), root)
    answer, reward = tmp_path / "app/kernel.py", tmp_path / "logs/verifier/reward.json"
    answer.parent.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "CRUCIBLE_ANSWER": str(answer), "CRUCIBLE_REWARD": str(reward)}

    def ran(script: str) -> int:
        return subprocess.run(["bash", root / script], env=env, capture_output=True, timeout=300).returncode

    assert ran("tests/test.sh") == 0 and json.loads(reward.read_text())["reward"] == 0  # nothing was written
    assert ran("solution/solve.sh") == 0
    assert ran("tests/test.sh") == 0 and json.loads(reward.read_text())["reward"] == 1
    write(root / "tests/reference.py", "this is no task")
    assert ran("tests/test.sh") == 2 and not reward.exists()
    (root / "tests/reference.py").write_text(Task.load(SMALL_TASK).source)
    write(reward, '{"reward": 9}')
    (root / "tests/test.sh").write_text((root / "tests/test.sh").read_text().replace("crucible judge", "no-such-judge"))
    assert ran("tests/test.sh") == 127 and not reward.exists()
