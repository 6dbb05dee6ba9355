"""Listener: who hears of a run while it goes on, and may call candidates of it off, from other threads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crucible.run import Run


class Listener:
    """This one hears nothing and calls nothing off. A candidate that is called off has no verdict, whatever its
    processes came to: who calls it off may end them, by the folders that `began` names."""

    def began(self, work: Path, folders: Mapping[str, Path]) -> None:
        """Where all processes of the run have their folders, and where each candidate's have theirs."""

    def reached(self, run: Run) -> None:
        """A verdict stands, kept now or by an earlier run: a run that holds it alone."""

    def calls_off(self, name: str) -> bool:
        """Whether nobody wants this candidate's verdict any more; asked before it is built, before it is judged, and
        before what it came to is kept."""
        return False

    def is_over(self) -> bool:
        """Whether all of the run is called off: it ends then as by Ctrl-C."""
        return False
