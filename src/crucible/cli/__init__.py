"""The command line: one module a verb. Results on stdout, progress on stderr; `exits` has the exit codes."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from crucible.cli import (
    check,
    compare,
    doctor,
    exits,
    explain,
    export,
    fuse,
    init,
    judge,
    kernelbench,
    page,
    panels,
    serve,
    traces,
)

app = typer.Typer(cls=panels.Verbs, no_args_is_help=True, pretty_exceptions_enable=False)
VERBS = {
    "Judge and explain": (judge.judge, explain.explain, compare.compare, page.page),
    "Write": (fuse.fuse, init.init),
    "Kernels alone": (check.check,),
    "For loops and other benchmarks": (serve.serve, kernelbench.kernelbench, traces.traces, export.export),
    "This machine": (doctor.doctor,),
}
for group, verbs in VERBS.items():
    for verb in verbs:
        app.command(rich_help_panel=group, cls=panels.Verb)(verb)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"crucible {metadata.version('crucible-kernels')}")
        raise typer.Exit


@app.callback(epilog="Begin with: crucible init my_kernel && crucible judge my_kernel")
def crucible(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Show the version.")
    ] = False,
) -> None:
    """Fuse PyTorch modules into GPU kernels, and judge any kernel against the module that it replaces.

    Is it right, is it fast, and why; with a GPU or without.
    """


def main() -> None:
    """Entry point: errors become exit codes, in one line each; `CRUCIBLE_TRACEBACK=1` shows where they come from."""
    exits.run(app)
