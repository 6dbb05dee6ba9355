"""The finding about the smallest shape at which a candidate still fails: what was tried, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.explain.words import listed
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.trials import REFUSED, RIGHT, WRONG, At, Edge, SmallestFailing, changed, edges
from crucible.judge.verdict.verdict import Passed, Verdict
from crucible.run import Run
from crucible.shapes import words


def smallest_failing_shape(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The smallest shape at which it was seen to fail, with the shape beside it that is right, where one is."""
    found = verdict.smallest_failing
    if not isinstance(found, SmallestFailing) or isinstance(verdict.outcome, Passed):
        return
    trials = {trial.at: trial.came for trial in found.trials}
    met = edges(trials, found.at)
    claim = f"the smallest shape found at which it fails: {words(dict(found.at))}"
    if met:
        beside = {edge.name: _beside(edge, trials, found.at) for edge in reversed(met)}
        yield Finding(f"{claim}; {'; '.join(beside.values())}", _evidence(found), _remedy(found, list(beside)))
    elif right := found.came(RIGHT):
        yield Finding(f"{claim}; right at {_apart(right[-1], found.at)}", _evidence(found), _remedy(found, []))
    elif trials.get(found.at) == WRONG and len(trials) > 1:
        claim += f"; {_bottom(found.at, trials)}, and no shape that was tried is right"
        yield Finding(claim, _evidence(found), _reproduced(found.at))


def _beside(edge: Edge, trials: dict[At, str], found: At) -> str:
    """`right at width = 32 and 64, wrong at 33 and 65: as if only multiples of 32 were right`."""
    right = edge.right

    def came(size: int) -> str:
        return trials.get(changed(edge.at, edge.name, size), "")

    said = f"right at {_apart(changed(edge.at, edge.name, right), found)}"
    twice, after, more = came(2 * right), came(2 * right + 1), came(right + 1)
    if right > 1 and (twice, after, more) == (RIGHT, WRONG, WRONG):
        wrong = sorted({edge.wrong, right + 1, 2 * right + 1})
        beyond = f"{', '.join(map(str, wrong[:-1]))} and {wrong[-1]}"
        return f"{said} and {2 * right}, wrong at {beyond}: as if only multiples of {right} were right"
    if edge.wrong > right and (twice, after) == (WRONG, WRONG):
        return f"{said}, wrong at {2 * right} and {2 * right + 1}: as if nothing over {right} were right"
    return said if edge.at == found else f"{said}, wrong at {edge.wrong}"


def _bottom(found: At, trials: dict[At, str]) -> str:
    """Why the search went no further down."""
    below = [trials.get(changed(found, name, size - 1), "") for name, size in found if size > 1]
    if not below:
        return "nothing is smaller"
    refused = all(came == REFUSED for came in below)
    return "the reference takes nothing smaller" if refused else "nothing smaller is known to be right or wrong"


def _apart(other: At, found: At) -> str:
    """The sizes in which a shape differs from the smallest failing one."""
    here = dict(found)
    return words({name: size for name, size in other if here[name] != size})


def _evidence(found: SmallestFailing) -> str:
    wrong, right = found.came(WRONG), found.came(RIGHT)
    neither = len(found.trials) - len(wrong) - len(right)
    first = f"it failed at {words(dict(found.first))}" if found.first != found.at else "it failed there first"
    stopped = f"; the search ended early: {found.stopped}" if found.stopped else ""
    tried = (
        f"shapes tried: {len(wrong)} wrong, {len(right)} right, {neither} that the reference or the candidate refuses"
    )
    at = f"; right at {listed([_short(one) for one in right])}" if right else ""
    return f"{first}; {found.words}; {tried}{at}{stopped}"


def _short(at: At) -> str:
    """`3 x 32`, in the order of the sizes that the claim names."""
    return " x ".join(str(size) for _, size in at)


def _remedy(found: SmallestFailing, names: list[str]) -> str:
    where = (
        f"look at what runs over {listed(names)}: the guard, the grid's rounding up, a loop's bound, an index's type"
    )
    return f"{where if names else 'look at what depends on the size'}; {_reproduced(found.at)}"


def _reproduced(at: At) -> str:
    return f"see it fail alone with --shape {','.join(f'{name}={size}' for name, size in at)}"
