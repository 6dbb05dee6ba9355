"""Calls that a written file hands to torch.compile, which was measured to take less time for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COMPILED = "by_torch_compile"
"""What the file calls the compiled forward."""


@dataclass(frozen=True)
class Beside:
    """How many times as fast as torch.compile what is written is, by medians of turns on one GPU."""

    gpu: str
    """Its name."""
    forward: float
    """Of calls without gradients."""
    training: float | None
    """Of calls with the gradients behind them; None where nothing takes one."""

    @property
    def hands_forward(self) -> bool:
        """Whether torch.compile gets calls where gradients are off."""
        return self.forward < 1

    @property
    def hands_training(self) -> bool:
        """Whether it gets those where they are on."""
        return self.hands_forward if self.training is None else self.training < 1

    @property
    def hands_any(self) -> bool:
        """Whether torch.compile gets any call."""
        return self.hands_forward or self.hands_training

    @property
    def hands_all(self) -> bool:
        """Whether no kernel is left that anybody calls."""
        return self.hands_forward and self.hands_training

    @property
    def words(self) -> str:
        """For the plan."""
        with_gradients = "" if self.training is None else f", {self.training:.2f} with gradients"
        found = f"measured on {self.gpu}: {self.forward:.2f} times as fast as torch.compile forward{with_gradients}"
        if self.hands_all:
            return f"{found}; so torch.compile computes all of it"
        if not self.hands_any:
            return found
        which = "without" if self.hands_forward else "with"
        return f"{found}; so torch.compile computes what is called {which} gradients"

    def lines(self, arguments: Iterable[str]) -> list[str]:
        """Of the body of `forward`, before anything is computed."""
        call = f"return {COMPILED}({', '.join(['self', *arguments])})"
        if self.hands_all:
            return [call]
        if self.hands_forward:
            return ["if not torch.is_grad_enabled():  # measured: see above", f"    {call}"]
        return ["if torch.is_grad_enabled():  # measured: see above", f"    {call}"] if self.hands_training else []
