"""`crucible compare`: what changed between two judged runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from crucible import store
from crucible.errors import MisuseError
from crucible.report import compared, table
from crucible.run import Run, run_from_json

WHICH = "A run's folder, its JSON file, its id (or how that begins), or latest."


def compare(
    before: Annotated[str, typer.Argument(help=WHICH)],
    after: Annotated[str, typer.Argument(help="The later run, named alike.")],
    everything: Annotated[bool, typer.Option("--all", help="Candidates that did not change too.")] = False,
) -> None:
    """Compare two runs of a task: verdicts that changed, and runtimes as a ratio with its interval, or as a tie.

    Nothing is run. Example: crucible compare before.json latest
    """
    one, two = (_runs(which) for which in (before, after))
    pairs = [(earlier, later) for name, earlier in one.items() if (later := two.get(name)) is not None]
    if not pairs:
        raise MisuseError(f"the runs have no task in common: {', '.join(one)}; {', '.join(two)}")
    out = Console(width=None if sys.stdout.isatty() else table.plain_width())
    for earlier, later in pairs:
        compared.show(earlier, later, out, everything=everything)


def _runs(which: str) -> dict[str, Run]:
    """By task."""
    runs = [run_from_json(data) for data in store.read_run(which)]
    return {run.task.name: run for run in runs}
