"""The pytest plugin: a library's tests judge its kernels, and nobody else's pytest waits for it."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

import pytest_crucible
from crucible.judge.verdict.evidence import Measured, NotMeasured, Speedup
from crucible.judge.verdict.verdict import Passed, Verdict
from support import PLAIN, SMALL_TASK, TESTS

pytest_plugins = ["pytester"]

LIBRARY_TESTS = """
import pytest

OPTIONS = {"device": "cpu", "baselines": "none"}
pytestmark = pytest.mark.crucible(contract="fp32", entry_point="Fused")


@pytest.mark.crucible(**OPTIONS)
def test_right(crucible_judge):
    verdict = crucible_judge("reference.py", "kernels/plain.py")
    assert verdict.evaluation and verdict.parts.runtime_ms > 0


@pytest.mark.crucible(**OPTIONS)
def test_slow(crucible_judge):
    crucible_judge("reference.py", "kernels/plain.py", least_speedup=1e6)


def test_wrong(crucible_judge):
    crucible_judge("reference.py", "kernels/wrong.py", **OPTIONS)


def test_elsewhere(crucible_judge):
    text = "import tilelang\\nclass ModelNew: ...\\n"
    crucible_judge(open("reference.py").read(), text, entry_point="ModelNew", **OPTIONS)


def test_of_no_task(crucible_judge):
    crucible_judge("nowhere.py", "kernels/plain.py")


@pytest.mark.crucible("reference.py")
def test_misuse(crucible_judge):
    crucible_judge("reference.py", "kernels/plain.py")
"""


def test_kernels_are_judged_in_a_librarys_own_tests(pytester: pytest.Pytester) -> None:
    plain = PLAIN.read_text().replace("ModelNew", "Fused")
    (pytester.path / "kernels").mkdir()
    (pytester.path / "kernels/plain.py").write_text(plain)
    (pytester.path / "kernels/wrong.py").write_text(plain.replace("* self.scale", "* self.scale * 2"))
    (pytester.path / "reference.py").write_text((SMALL_TASK / "reference.py").read_text())
    pytester.makepyfile(LIBRARY_TESTS)
    options = ["-p", "pytest_crucible", "-p", "no:cacheprovider", "--strict-markers", "-rfs", "--junit-xml=report.xml"]
    done = pytester.runpytest_inprocess(*options)
    done.assert_outcomes(passed=1, failed=4, skipped=1)
    done.stdout.fnmatch_lines_random(
        [
            "wrong forward: output is off by *",
            "SKIPPED*not judged here: needs tilelang*",
            "it is right, and its speed-up is not known: no turns were taken with eager (baselines of this run: none)",
            "*TaskError: no task at */nowhere.py*",
            "*takes options by their names alone*",
        ]
    )
    report = (pytester.path / "report.xml").read_text()
    assert '<property name="crucible.verdict" value="passed" />' in report and "crucible.runtime_ms" in report


@pytest.mark.parametrize(
    ("low", "timing", "words"),
    [
        (1.2, None, ""),
        (1.1, None, "1.50 times as fast as eager, 1.10 at 95 % confidence: 1.2 is asked for"),
        (9.0, NotMeasured("the emulator shows no time"), "cannot be told here: the emulator shows no time"),
    ],
)
def test_a_speed_up_counts_by_its_lower_bound(low: float, timing: NotMeasured | None, words: str) -> None:
    race = (Speedup("eager", 1.5, (low, 1.6), (1.5,)),)
    verdict = Verdict(
        "a", Passed(), timing=timing or Measured(1.0, (1.0, 1.0), 9, "CPU time", "forward", speedups=race)
    )
    check = pytest_crucible.Judge._check_speed
    if not words:
        return check(None, verdict, 1.2, "eager")  # type: ignore[arg-type]
    with pytest.raises(pytest.skip.Exception if timing else pytest.fail.Exception, match=words):
        check(None, verdict, 1.2, "eager")  # type: ignore[arg-type]


def test_the_plugin_is_registered_and_imports_nothing_of_crucible() -> None:
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"pytest_crucible": "pytest_crucible"}
    code = (
        "import pytest, sys; known = set(sys.modules); import pytest_crucible; print(sorted(set(sys.modules) - known))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['pytest_crucible']\n"


def test_the_marker_is_known(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess("-p", "pytest_crucible", "--markers").stdout.fnmatch_lines(["@pytest.mark.crucible(*"])
