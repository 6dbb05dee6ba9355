"""How a command ends: its exit code, and its error in one line.

0 a candidate passed; 1 none passed; 2 misuse (a bad task, argument or device); 3 the judge itself failed;
130 interrupted, 143 told to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence

from crucible import legible
from crucible.errors import CrucibleError, JudgeError, MisuseError, own_error
from crucible.judge.attempts import is_own_failure
from crucible.run import Run


def run(app: Callable[[], None]) -> None:
    """Runs the command line and exits the process with its code."""
    legible.any_encoding()
    ended: list[int] = []
    try:
        with _ending_in_order(ended):
            app()
    except SystemExit as end:
        sys.exit(128 + ended[0] if ended and end.code == 130 else end.code)
    except MisuseError as error:
        _fail(error, 2)
    except CrucibleError as error:
        _fail(error, 3)
    except KeyboardInterrupt:
        sys.exit(128 + ended[0] if ended else 130)
    except OSError as error:
        _fail(JudgeError(f"the system refuses: {error}"), 3)
    except Exception as error:  # noqa: BLE001 - whatever it is, it has an exit code and a line
        _fail(own_error(error), 3)


def code_of(runs: Sequence[Run]) -> int:
    """Of judged runs."""
    cut_short = {run.cut_short for run in runs}
    if "interrupted" in cut_short:
        return 130
    if "failed" in cut_short:
        return 3
    if any(run.passed for run in runs):
        return 0
    return 3 if any(is_own_failure(verdict) for run in runs for verdict in run.verdicts) else 1


@contextlib.contextmanager
def _ending_in_order(ended: list[int]) -> Iterator[None]:
    """Makes of SIGTERM and SIGHUP what Ctrl-C is: what is finished is kept, nothing is left running."""

    def end(number: int, _: object) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _fail(error: CrucibleError, code: int) -> None:
    who = "the judge failed: " if isinstance(error, JudgeError) else ""
    if os.environ.get("CRUCIBLE_TRACEBACK"):
        traceback.print_exception(error)
    with contextlib.suppress(OSError):
        print(f"crucible: {who}{legible.line(str(error))}", file=sys.stderr)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if code == 3 and isinstance(error.__cause__ or error.__context__, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what it still holds nobody can have
    sys.exit(code)
