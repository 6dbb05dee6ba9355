"""`crucible serve`: judge for others over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crucible import store
from crucible.errors import MisuseError
from crucible.report.words import words


def serve(
    host: Annotated[str, typer.Option(help="Where to listen; what others reach needs --token-file.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")] = 8000,
    workers: Annotated[int | None, typer.Option(help="How many judge; default one a GPU, or for 2 cores.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--store", help="Where the queue is kept; default serve/ in Crucible's home.")
    ] = None,
    queue_limit: Annotated[int, typer.Option(min=1, help="Submissions that may wait or be judged at a time.")] = 10_000,
    token_file: Annotated[Path | None, typer.Option(help="Who may come in: a file with a token a line.")] = None,
) -> None:
    """Judge for others over HTTP, until Ctrl-C: see docs/serve.md. What is queued then goes on next time.

    Example: crucible serve --port 8000 --workers 2
    """
    try:
        from crucible.serve import server, tokens  # fastapi and uvicorn: an extra, and half a second
    except ModuleNotFoundError as error:
        remedy = "pip install 'crucible-kernels[serve]'"
        raise MisuseError(f"serve needs a package that is not here ({error.name}): {remedy}") from error
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(words(text), soft_wrap=True)

    admitted = tokens.Tokens.load(token_file) if token_file is not None else tokens.Tokens()
    place = folder if folder is not None else store.home() / "serve"
    server.serve(server.Service(host, port, workers, place, queue_limit, admitted), say)
