"""Whether a graph is being captured in this process, for those who run kernels. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
current: list[Call] = []
"""What whoever runs kernels goes through while a graph is captured: function, arguments, named arguments."""
watched: list[Callable[[Any, Any, str], None]] = []
"""Who looks at calls outside of captures: what was given, what was returned, the function's name."""
_uncaptured = [0]


def begin(call: Call) -> None:
    """From here on PyTorch's current stream captures."""
    from crucible.emulator import session

    current.append(call)
    _uncaptured[0] = 0
    session.start().runtime.crucible_capture(1)


def end() -> None:
    from crucible.emulator import session

    current.clear()
    session.start().runtime.crucible_capture(0)


def uncaptured() -> int:
    """Launches since `begin` that went to another stream."""
    from crucible.emulator import session

    _uncaptured[0] += session.start().runtime.crucible_capture(1)
    return _uncaptured[0]
