"""`crucible explain`: why candidates of a judged run are wrong or slow."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from crucible import store
from crucible.errors import MisuseError
from crucible.report import table, why
from crucible.report.markdown import markdown
from crucible.run import run_from_json


def explain(
    run: Annotated[str, typer.Argument(help="A run's folder, its JSON file, its id (or how that begins), or latest.")],
    candidate: Annotated[str | None, typer.Argument(help="One candidate's name; without, the causes of all.")] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Table, causes and the why of the best as Markdown, for a pull request.")
    ] = False,
) -> None:
    """Say why candidates of a judged run are wrong or slow; nothing is run.

    Example: crucible explain latest one_kernel
    """
    if as_markdown and candidate is not None:
        raise MisuseError("--markdown tells of a whole run: leave out the candidate's name")
    out = Console(width=None if sys.stdout.isatty() else table.plain_width())
    runs = [run_from_json(data) for data in store.read_run(run)]
    if as_markdown:
        print("\n".join(markdown(one) for one in runs), end="")
        return
    for one in runs:
        why.show(one, candidate, out)
