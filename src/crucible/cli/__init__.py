"""The command line: one module a verb. Results on stdout, progress on stderr; `exits` has the exit codes."""

from __future__ import annotations

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
    serve,
    traces,
)

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
VERBS = {
    "Judge and explain": (judge.judge, explain.explain, compare.compare, page.page),
    "Write": (fuse.fuse, init.init),
    "Kernels alone": (check.check,),
    "For loops and other benchmarks": (serve.serve, kernelbench.kernelbench, traces.traces, export.export),
    "This machine": (doctor.doctor,),
}
for group, verbs in VERBS.items():
    for verb in verbs:
        app.command(rich_help_panel=group)(verb)


def main() -> None:
    """Entry point: errors become exit codes, in one line each; `CRUCIBLE_TRACEBACK=1` shows where they come from."""
    exits.run(app)
