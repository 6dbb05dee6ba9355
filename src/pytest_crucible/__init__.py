"""pytest plugin: a library's own tests judge its kernels.

    @pytest.mark.crucible(contract="fp32", baselines="eager")
    def test_softmax(crucible_judge):
        crucible_judge("references/softmax.py", "kernels/softmax.py", least_speedup=1.1)

It is loaded by every run of pytest where Crucible is installed, so it imports Crucible only where a test asks for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from crucible.judge.verdict.verdict import Verdict

_MARKER = (
    "crucible(**options): options of the crucible_judge fixture in this test (those of crucible.judge, and its own)"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


class Judge:
    """Judges kernels for one test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def __call__(self, reference: str | Path, candidate: str | Path, **options: Any) -> Verdict:
        """The verdict on a kernel that passes; any other fails the test.

        Args:
            reference, candidate: files, by their paths from the test's folder; or texts, of several lines.
            options: those of `crucible.judge`, and `entry_point`, the class that stands for the reference's Model;
                `least_speedup`, which the lower end of the speed-up's confidence interval must reach, and `over`, the
                baseline of that (`eager`). The test's `crucible` markers give those that are not given here.

        The test is skipped where the kernel cannot be judged here, and has an error where the judge fails.
        """
        __tracebackhide__ = True
        from crucible import scoring  # what a run of pytest without kernels does not wait for

        options = {**self._marked(), **options}
        least, over = options.pop("least_speedup", None), options.pop("over", "eager")
        verdict = scoring.score_sync(self._found(reference), self._found(candidate), **options)
        self._report(verdict)
        if verdict.parts.correct is None:
            pytest.skip(verdict.outcome.words)
        if not verdict.evaluation:
            found = "".join(f"\n  {finding.claim}: {finding.evidence}" for finding in verdict.findings[:5])
            pytest.fail(f"{verdict.outcome.words}{found}", pytrace=False)
        if least is not None:
            self._check_speed(verdict, least, over)
        return verdict

    def _marked(self) -> dict[str, Any]:
        """The options of the test's markers, the closest one first."""
        marked: dict[str, Any] = {}
        for marker in self._request.node.iter_markers("crucible"):
            if marker.args:
                pytest.fail("pytest.mark.crucible takes options by their names alone", pytrace=False)
            marked = {**marker.kwargs, **marked}
        return marked

    def _found(self, given: str | Path) -> str | Path:
        """A text as it is, a path from the test's folder."""
        return given if isinstance(given, str) and "\n" in given else Path(self._request.path.parent, given)

    def _report(self, verdict: Verdict) -> None:
        """For `--junit-xml` and other reports."""
        properties = {"verdict": verdict.outcome.words, **verdict.parts.metrics}
        self._request.node.user_properties += [(f"crucible.{name}", value) for name, value in properties.items()]

    def _check_speed(self, verdict: Verdict, least: float, over: str) -> None:
        __tracebackhide__ = True
        parts = verdict.parts.over(over)
        if parts.runtime_ms is None:
            pytest.skip(f"it is right, and how fast it is cannot be told here: {parts.reasons['runtime_ms']}")
        if parts.speedup_lower is None:
            pytest.fail(f"it is right, and its speed-up is not known: {parts.reasons['speedup_lower']}", pytrace=False)
        if parts.speedup_lower < least:
            sure = f"{parts.speedup:.2f} times as fast as {over}, {parts.speedup_lower:.2f} at 95 % confidence"
            pytest.fail(f"right, and {sure}: {least:g} is asked for", pytrace=False)


@pytest.fixture
def crucible_judge(request: pytest.FixtureRequest) -> Judge:
    """Judges a kernel: `crucible_judge(reference, candidate, **options)` returns the verdict of one that passes, and
    fails the test otherwise."""
    return Judge(request)
