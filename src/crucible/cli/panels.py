"""Groups of options in a verb's help, and `--help-all`, which shows the rare ones too."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

WHAT = "What is judged"
HOW = "How it goes"
OUT = "What is written"
LIMITS = "Limits"


class _Flags:
    """Help that shows no type at options which take no value: `--watch <bool>` reads as if it took one."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class Verb(_Flags, TyperCommand):
    """One."""


class Verbs(_Flags, TyperGroup):
    """All of them."""


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
