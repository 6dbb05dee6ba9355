"""Calls that a written file hands to torch.compile, which was measured to take less time for them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MAX_AUTOTUNE = "max-autotune-no-cudagraphs"
NAMES = {"": "by_torch_compile", MAX_AUTOTUNE: "by_max_autotune"}
"""What a file calls the compiled forward, by torch.compile's mode; the empty word is its own."""
_MADE = {"": "torch.compile(Model.forward)", MAX_AUTOTUNE: f'torch.compile(Model.forward, mode="{MAX_AUTOTUNE}")'}
_MEASURED = "measured: see above"


@dataclass(frozen=True)
class Beside:
    """How many times as fast as torch.compile in its fastest mode what is written is: by medians of turns on a GPU."""

    gpu: str
    """Its name."""
    forward: float
    """Of calls without gradients; infinite where no mode is as exact."""
    training: float | None
    """Of calls with the gradients behind them; None where nothing takes one."""
    forward_mode: str = ""
    """That mode of torch.compile."""
    training_mode: str = ""
    """The same with gradients."""
    left_out: tuple[str, ...] = ()
    """Modes that are less exact than eager PyTorch, in words; neither ratio is over them."""

    def mode(self, with_gradients: bool) -> str | None:
        """In which torch.compile computes calls where gradients are on, or off; None where it does not."""
        if with_gradients and self.training is not None:
            return self.training_mode if self.training < 1 else None
        return self.forward_mode if self.forward < 1 else None

    @property
    def modes(self) -> tuple[str, ...]:
        """All in which it computes any call."""
        modes = (self.mode(each) for each in (False, True))
        return tuple(sorted({mode for mode in modes if mode is not None}))

    @property
    def hands_all(self) -> bool:
        """Whether no kernel is left that anybody calls."""
        return None not in (self.mode(False), self.mode(True))

    @property
    def words(self) -> str:
        """For the plan."""
        found = [f"{_ratio(self.forward, self.forward_mode)} forward"]
        if self.training is not None:
            found.append(f"{_ratio(self.training, self.training_mode)} with gradients")
        told = "; ".join([f"measured on {self.gpu}: {', '.join(found)}", *self.left_out])
        if self.hands_all:
            return f"{told}; so torch.compile computes all of it"
        if not self.modes:
            return told
        which = "with" if self.mode(False) is None else "without"
        return f"{told}; so torch.compile computes what is called {which} gradients"

    def lines(self, arguments: Iterable[str]) -> list[str]:
        """Of the body of `forward`, before anything is computed."""
        given = ", ".join(["self", *arguments])
        without, with_ = (self.mode(each) for each in (False, True))
        calls = {mode: f"return {NAMES[mode]}({given})" for mode in self.modes}
        if without == with_:
            return [*calls.values()]
        lines = []
        if without is not None:
            lines += [f"if not torch.is_grad_enabled():  # {_MEASURED}", f"    {calls[without]}"]
        if with_ is not None:
            lines += [f"if torch.is_grad_enabled():  # {_MEASURED}", f"    {calls[with_]}"]
        return lines

    @property
    def definitions(self) -> list[str]:
        """Of what `lines` call."""
        return [f"{NAMES[mode]} = {_MADE[mode]}" for mode in self.modes]


def _ratio(ratio: float, mode: str) -> str:
    return "no torch.compile is as exact" if ratio == math.inf else f"{ratio:.2f} times as fast as {called(mode)}"


def called(mode: str) -> str:
    """torch.compile in one of its modes, by name."""
    return f"torch.compile ({mode})" if mode else "torch.compile"
