"""A candidate's process, a fork with one thread: into the sandbox, then the worker."""

from __future__ import annotations

from crucible.judge.process.entrance import confined
from crucible.judge.worker import serving


def main() -> None:
    serving.run(confined())
