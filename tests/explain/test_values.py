"""Wrong values: the first finding is the cause, and what nearly shows it does not trigger it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from explaining import SHAPE, claims, compared, oracle, why, why_wrong
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.diagnosis.mapping import sample_of
from crucible.judge.verdict.error_map import LEVELS
from crucible.judge.verdict.evidence import Compared
from crucible.judge.verdict.verdict import Verdict, Wrong, from_json, to_json

WANT = oracle()


def changed(change: Callable[[torch.Tensor], object], want: torch.Tensor = WANT) -> torch.Tensor:
    """A copy that was worked on in place."""
    got = want.clone()
    change(got)
    return got


def times(place: tuple[object, ...], factor: float) -> torch.Tensor:
    got = WANT.clone()
    got[place] *= factor
    return got


def border(want: torch.Tensor = WANT) -> torch.Tensor:
    got = want.clone()
    got[..., 0] += 1
    got[..., -1] += 1
    got[..., 0, :] += 1
    got[..., -1, :] += 1
    return got


def noise(size: float) -> torch.Tensor:
    return size * oracle(*SHAPE, seed=1)


ALL = slice(None)
CHANNELS = torch.linspace(0.5, 2.5, 8, dtype=torch.float64)[:, None, None, None]
SHOWS = {
    "twice": (2 * WANT, "output is 2 times what it should be"),
    "offset": (WANT + 0.5, "output is off by a constant 0.5"),
    "channel factors": (
        WANT * CHANNELS,
        "each index of dimension 1 (of 5) is off by a constant factor: 0.5 at 0, 0.7857",
    ),
    "channel offsets": (WANT + CHANNELS, "each index of dimension 1 (of 5) is off by a constant offset"),
    "one channel": (times((ALL, 3), 2.0), "output is 2 times what it should be, only at index 3 of dimension 1 (of 5)"),
    "shift": (
        WANT.roll(1, 4),
        "values are shifted by 1 along dimension 4 (of 5): what should stand at i - 1 stands at i",
    ),
    "flat shift": (WANT.flatten().roll(-1).view(SHAPE), "values are shifted by 1 along"),
    "flip": (WANT.flip(3), "values are in reverse order along dimension 3"),
    "transposed": (
        WANT.transpose(3, 4).reshape(SHAPE),
        "stored with dimension 3 (of 5) and dimension 4 (of 5) in the other",
    ),
    "swapped channels": (
        WANT[:, [1, 0, 2, 3, 4, 5, 6, 7]],
        "of dimension 1 (of 5) are in another order: 0 holds 1, 1 holds 0",
    ),
    "first channel everywhere": (
        WANT[:, :1].expand(SHAPE),
        "every index of dimension 1 (of 5) holds the values of index 0",
    ),
    "border": (border(), "wrong only at the first and the last index of dimension 3 (of 5) or at the first"),
    "slope": (
        torch.where(WANT < 0, 0.1 * WANT, WANT),
        "0.1 times what it should be, only where the reference's value is neg",
    ),
    "squared negatives": (
        torch.where(WANT < 0, WANT.square(), WANT),
        "wrong only where the reference's value is negative",
    ),
    "every fourth": (
        changed(lambda t: t.view(-1)[3::4].copy_(oracle(4290, seed=2))),
        "wrong only at every 4th index (from 3) of the flattened index",
    ),
    "odd columns": (changed(lambda t: t[..., 1::2].mul_(t[..., 1::2])), "wrong only at the odd indices of dimension 4"),
    "tail": (changed(lambda t: t.view(-1)[17000:].zero_()), "output is zero, from element 17000 of 17160 on"),
    "zeros": (0 * WANT, "output is zero everywhere"),
    "constant": (0 * WANT + 3, "output is 3 everywhere"),
    "bfloat16": (WANT.bfloat16().double(), "output holds bfloat16 alone"),
    "half": (WANT.half().double(), "output holds float16 alone"),
    "whole numbers": ((4 * WANT).round(), "output holds whole numbers alone"),
    "nan": (changed(lambda t: t[1].fill_(torch.nan)), "33 % of output is NaN, only at index 1 of dimension 0 (of 5)"),
    "infinite": (
        changed(lambda t: t[:, 7].fill_(torch.inf)),
        "12 % of output is infinite, only at index 7 (the last) of",
    ),
    "noise": (WANT + noise(0.1), "wrong in 99 % of its elements, with no pattern in where"),
}


@pytest.mark.parametrize("case", SHOWS)
def test_the_first_finding_says_what_is_wrong(case: str) -> None:
    got, words = SHOWS[case]
    found = why_wrong(got, WANT)
    assert words in found[0].claim, claims(found)
    assert any(letter.isdigit() for letter in found[0].evidence), "no evidence without figures"
    assert found[0].remedy


NEARLY = {
    "twice, with an error beside": (2 * WANT + noise(0.2), "times what it should be"),
    "an offset that varies": (WANT + 0.5 + noise(0.05), "off by a constant"),
    "a shift with noise": (WANT.roll(1, 4) + noise(0.5), "shifted"),
    "border and middle": (border() + noise(0.01), "the first and the last"),
    "scattered": (changed(lambda t: t.view(-1).index_fill_(0, torch.randperm(17160)[:300], 3.0)), "every"),
    "some negative, some positive": (torch.where(WANT.abs() < 0.2, WANT + 1, WANT), "only where the reference"),
    "rounded, then added to": (WANT.bfloat16().double() + noise(0.01), "bfloat16"),
    "nearly constant": (0 * WANT + noise(1e-3), "everywhere"),
}


@pytest.mark.parametrize("case", NEARLY)
def test_what_nearly_shows_a_cause_does_not_trigger_it(case: str) -> None:
    got, words = NEARLY[case]
    found = why_wrong(got, WANT)
    assert found
    assert words not in claims(found), claims(found)


def test_a_bound_that_is_not_applied_is_told_from_errors_elsewhere() -> None:
    clamped = WANT.clamp(-1, 1.5)
    assert "only where the reference's value is its least, -1 and greatest, 1.5" in why_wrong(WANT, clamped)[0].claim
    assert "a bound" not in claims(why_wrong(clamped + noise(0.01), clamped))


def test_tile_edges_are_told_by_their_period() -> None:
    want = oracle(64, 128)
    got = changed(lambda t: t[:, 31::32].copy_(oracle(64, 4, seed=3)), want)
    assert "only at every 32nd index (from 31) of dimension 1 (of 2)" in why_wrong(got, want)[0].claim


def test_indices_without_a_pattern_are_not_said_to_repeat() -> None:
    want = oracle(40, 150)
    columns = torch.randperm(150, generator=torch.Generator().manual_seed(5))[:60].sort().values
    first = why_wrong(changed(lambda t: t.index_add_(1, columns, oracle(40, 60, seed=4)), want), want)[0]
    among = ", ".join(map(str, columns[:6].tolist()))
    assert f"only at scattered indices, among them {among}, of dimension 1 (of 2)" in first.claim
    assert "repeats" not in first.remedy


def test_a_right_answer_has_no_cause() -> None:
    assert why_wrong(WANT + noise(1e-6), WANT) == ()


def test_a_few_wrong_elements_are_told_by_their_indices() -> None:
    found = why_wrong(changed(lambda t: t[2, 1, 0, 3, 4].add_(1)), WANT)
    assert "wrong only at" in claims(found) and "[2, 1, 0, 3, 4]" in claims(found)


@pytest.mark.parametrize(
    ("what", "words"), [("shape", "another shape"), ("dtype", "another dtype"), ("device", "another")]
)
def test_another_form_is_told_as_such(what: str, words: str) -> None:
    found = why(Wrong(what, "output is [3], should be [4]"))
    assert words in found[0].claim and "should be [4]" in found[0].evidence


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        (("its own inputs", "other sizes: height=7"), "right at one shape and wrong at another"),
        (("its own inputs", "its own inputs, new weights"), "right with the weights as they start"),
        (("its own inputs", "its own inputs, another seed"), ""),
    ],
)
def test_a_later_case_says_what_the_answer_hangs_on(cases: tuple[str, ...], words: str) -> None:
    first = compared((WANT + noise(1e-6)).float(), WANT)
    later = compared((WANT + noise(0.1)).float(), WANT)
    later = type(later)(**{**vars(later), "case": 1})
    found = claims(why(Wrong("forward", "off"), forward=Compared((first, later), 4.0, cases=cases)))
    assert words in found
    assert bool(words) == ("it is right" in found)


# --- the map itself


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 50), st.integers(0, 2**20))
def test_a_map_does_not_hang_on_how_the_bytes_came(pieces: int, seed: int) -> None:
    want = oracle(4, 6, 9, seed=seed)
    got = (want + (oracle(4, 6, 9, seed=seed + 1) > 1) * 0.3).float()
    assert compared(got, want, pieces=pieces).map == compared(got, want).map


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 200), st.data())
def test_a_sample_holds_the_worst_element_and_no_more_than_asked(
    shape: list[int], most: int, data: st.DataObject
) -> None:
    worst = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    start, part = sample_of(tuple(shape), worst, most)
    flat = int(torch.arange(torch.Size(shape).numel()).view(shape)[worst])
    count = torch.Size(part).numel()
    assert start <= flat < start + count
    assert count <= most


def test_a_map_counts_what_differs_and_draws_it() -> None:
    got = times((0, 2, 1), 3.0).float()
    found = compared(got, WANT).map
    assert found is not None
    wrong = ((got - WANT).abs() / (WANT.abs() + float(WANT.square().mean().sqrt()))) > 4e-4
    assert found.count == int(wrong.sum())
    assert (found.shape, found.looked_at, found.what) == (SHAPE, WANT.numel(), "wrong")
    channels = {picture.index: picture.rows for picture in found.pictures}
    assert all(len(rows) == 13 and all(len(row) == 11 for row in rows) for rows in channels.values())
    worst = {index: max(max(row) for row in rows) for index, rows in channels.items()}
    assert worst.pop((0, 2, 1)) > LEVELS[8]
    assert all(letter <= LEVELS[8] for letter in worst.values())


def test_a_large_plane_is_drawn_as_64_by_64_and_its_one_wrong_element_stays() -> None:
    want = oracle(200, 300)
    (picture,) = compared(changed(lambda t: t[150, 7].add_(1), want).float(), want).map.pictures  # type: ignore[union-attr]
    assert (len(picture.rows), len(picture.rows[0])) == (64, 64)
    assert sum(letter > LEVELS[8] for row in picture.rows for letter in row) == 1


def test_a_verdict_with_a_map_comes_back_from_json() -> None:
    tensor = compared(SHOWS["channel factors"][0].float(), WANT)
    verdict = Verdict("a", Wrong("forward", "off"), Compared((tensor,), 4.0, cases=("its own inputs",)))
    assert from_json(to_json(verdict)) == verdict


def test_integers_are_mapped_by_whether_they_agree() -> None:
    want = torch.arange(3000).view(3, 1000)
    got = want.clone()
    got[:, 500:] += 1
    found = compared(got, want).map
    assert found is not None
    assert (found.count, found.along[1].ranges) == (1500, ((500, 1000),))


def test_a_second_look_that_shows_nothing_wrong_gives_no_map() -> None:
    tensor = compared(WANT.float(), WANT)
    assert tensor.map is None
