"""Groups of options in a verb's help, and `--help-all`, which shows the rare ones too."""

from __future__ import annotations

from typing import Annotated

import typer

WHAT = "What is judged"
HOW = "How it goes"
OUT = "What is written"
LIMITS = "Limits"


def _help_all(context: typer.Context, asked: bool) -> None:
    if not asked:
        return
    for parameter in context.command.params:
        if hasattr(parameter, "hidden"):
            parameter.hidden = False
    typer.echo(context.get_help())
    raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", is_eager=True, callback=_help_all, help="Show rare options and limits too.")
]
