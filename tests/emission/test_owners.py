"""How forward looks up parameters and buffers, and changes buffers."""

from __future__ import annotations

import torch
from torch import nn

from crucible.capture import trace
from crucible.emission.file import emit
from crucible.emission.owners import Owners
from crucible.plan.planner import fuse
from crucible.trial import check_runs


def test_a_submodule_that_holds_several_is_looked_up_once() -> None:
    paths = ["cls", "blocks.0.norm.weight", "blocks.0.norm.bias", "blocks.0.fc.weight", "head.fc.weight"]
    owners = Owners(paths, {"of_blocks_0"})
    assert owners.lines == ["of_blocks_0_ = getattr(self.blocks, '0')", "of_blocks_0_norm = of_blocks_0_.norm"]
    assert [owners.word(path) for path in paths] == [
        "self.cls", "of_blocks_0_norm.weight", "of_blocks_0_norm.bias", "of_blocks_0_.fc.weight", "self.head.fc.weight",
    ]  # fmt: skip


class Twice(nn.Module):
    """A norm that is called twice, and others once: their statistics can wait, the first ones of `norm` cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other, self.last = (nn.BatchNorm2d(4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cumsum(self.norm(torch.cumsum(self.other(self.norm(x).relu()), 1)), 1)).relu()


def test_statistics_are_copied_at_the_end_unless_they_are_read_again() -> None:
    module, inputs = Twice(), [torch.randn(4, 4, 6, 6)]
    text = emit(fuse(trace(module, inputs)), "twice")
    check_runs(text, module, inputs)
    forward = text[text.index("def forward(") :]
    calls = [each.partition(")")[0] for each in forward.split("    torch._foreach_")[1:]]
    copies = [each for each in calls if each.startswith("copy_")]
    assert len(copies) == 2 and copies[0].count("of_norm.running") == 2 and "of_other" not in copies[0]
    assert all(copies[1].count(f"of_{each}.running") == 2 for each in ("norm", "other", "last"))
    assert forward.count("_foreach_add_") == 1 or forward.count("num_batches_tracked") == 3
