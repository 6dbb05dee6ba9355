"""`crucible page`: a judged run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible import store
from crucible.cli.outputs import write_page
from crucible.run import run_from_json


def page(
    run: Annotated[str, typer.Argument(help="A run's folder, its JSON file, its id (or how that begins), or latest.")],
    file: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
) -> None:
    """Write a judged run, or several of one JSON file, as one self-contained HTML page: nothing is run.

    Example: crucible page latest -o page.html
    """
    write_page(file, [run_from_json(data) for data in store.read_run(run)])
