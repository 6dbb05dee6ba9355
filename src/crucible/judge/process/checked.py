"""The process of a file that is checked with no task: into the sandbox, then the file."""

from __future__ import annotations

from crucible.judge.process.entrance import confined
from crucible.judge.worker import alone


def main() -> None:
    alone.run(confined())
