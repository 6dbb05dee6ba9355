"""Tasks drawn at random for the benchmark: each runs, a seed draws the same, and the plan computes what they do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tests/plan")]

import random_tasks  # noqa: E402
from interpret import run  # noqa: E402

from crucible.capture import trace  # noqa: E402
from crucible.plan.planner import fuse  # noqa: E402

SEED = 20261124


def loaded(number: int, scale: str = "small") -> tuple[torch.nn.Module, list[torch.Tensor]]:
    namespace: dict[str, Any] = {}
    exec(random_tasks.text(random_tasks.drawn(SEED, number, scale)), namespace)
    torch.manual_seed(number)
    return namespace["Model"](), namespace["get_inputs"]()


@pytest.mark.parametrize("number", range(1, 13))
def test_what_is_planned_for_a_random_task_computes_it(number: int) -> None:
    module, inputs = loaded(number)
    plan = fuse(trace(module, inputs, drops=True))
    module, given = module.double(), [x.double() for x in inputs]
    tensors = {value.name: x for value, x in zip(plan.graph.inputs, given, strict=True)}
    state = {**dict(module.named_parameters()), **{name: each.clone() for name, each in module.named_buffers()}}
    tensors |= {each.value.name: state[each.names[0]] for each in plan.graph.parameters}
    tensors |= {each.value.name: each.tensor.double() for each in plan.graph.constants}
    torch.manual_seed(1)
    expected = module(*given)
    torch.manual_seed(1)
    (found,) = run(plan, tensors)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_a_seed_gives_the_same_tasks(tmp_path: Path) -> None:
    for number in range(1, 60):
        small, full, again = (random_tasks.drawn(SEED, number, scale) for scale in ("small", "full", "full"))
        assert random_tasks.text(full) == random_tasks.text(again)
        assert small.names[0] == full.names[0] and len(small.given) == len(full.given)
    random_tasks.main([str(tmp_path), "--count", "3"])
    assert sorted(file.stem.split("_")[0] for file in (tmp_path / "level2").iterdir()) == ["1", "2", "3"]
    assert random_tasks.text(random_tasks.drawn(1, 1, "full")) != random_tasks.text(random_tasks.drawn(2, 1, "full"))
