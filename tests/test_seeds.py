"""Seeds: secret, and one for each purpose that tells nothing of another."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

import crucible
from crucible import seeds
from crucible.judge.boundary.modules import seed_all
from support import PLAIN, SMALL_TASK

SEEDS = st.integers(0, (1 << seeds.BITS) - 1)


def test_secret_seeds_differ_and_every_generator_takes_them() -> None:
    drawn = [seeds.secret() for _ in range(100)]
    assert len(set(drawn)) == 100
    assert max(drawn) > 1 << 60
    for seed in drawn:
        torch.Generator().manual_seed(seed)


def test_a_task_file_draws_what_it_does_after_manual_seed() -> None:
    torch.manual_seed(7)
    expected = torch.randn(5)
    seed_all(7)
    assert torch.equal(torch.randn(5), expected)


@given(SEEDS, st.text(max_size=9), st.lists(st.integers(-9, 9), max_size=3))
def test_a_purpose_has_its_seed_again_and_another_has_another(seed: int, purpose: str, numbers: list[int]) -> None:
    one = seeds.derived(seed, purpose, *numbers)
    assert one == seeds.derived(seed, purpose, *numbers)
    assert 0 <= one < 1 << seeds.BITS
    others = {seeds.derived(seed, purpose + "s", *numbers), seeds.derived(seed, purpose, *numbers, 0)}
    assert one not in others | {seeds.derived(seed ^ 1, purpose, *numbers), seed}


def judged(**options: object) -> crucible.Run:
    limits = crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0)
    return crucible.judge(SMALL_TASK, [PLAIN], device="cpu", baselines="none", limits=limits, **options)  # type: ignore[arg-type]


def test_a_run_has_a_secret_seed_that_is_recorded_and_does_not_defeat_the_store() -> None:
    one, two = judged(), judged()
    assert one.seed != two.seed
    assert [run.to_json()["seed"] for run in (one, two)] == [one.seed, two.seed]
    first, second = one.verdict("plain"), two.verdict("plain")
    assert (first.cached, second.cached) == (False, True)
    assert first.seed == second.seed == one.seed  # of the run that reached it
    again = judged(seed=one.seed)
    assert not again.verdict("plain").cached
    assert [t.relative_l2 for t in again.verdict("plain").forward.tensors] == [  # type: ignore[union-attr]
        t.relative_l2
        for t in first.forward.tensors  # type: ignore[union-attr]
    ]
