"""The command line: one module a verb. Results on stdout, progress on stderr; `exits` has the exit codes."""

from __future__ import annotations

import typer

from crucible.cli import doctor, exits, explain, export, fuse, judge, kernelbench, page, traces

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.command()(judge.judge)
app.command()(explain.explain)
app.command()(page.page)
app.command()(fuse.fuse)
app.command()(kernelbench.kernelbench)
app.command()(traces.traces)
app.command()(export.export)
app.command()(doctor.doctor)


def main() -> None:
    """Entry point: errors become exit codes, in one line each; `CRUCIBLE_TRACEBACK=1` shows where they come from."""
    exits.run(app)
