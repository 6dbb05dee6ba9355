"""How a command ends: its exit code, and its error in one line.

0 a candidate passed; 1 none passed; 2 misuse (a bad task, argument or device); 3 the judge itself failed;
130 interrupted, 143 told to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from crucible import legible
from crucible.errors import CrucibleError, JudgeError, MisuseError, own_error
from crucible.judge.attempts import is_own_failure
from crucible.run import Run

_TOLD_TO_END: list[int] = []
"""The signals that came. Python drops an exception that is raised while a weak reference's callback (imports have them)
or a `__del__` runs: what waits without end asks here too."""


def run(app: Callable[[], None]) -> None:
    """Runs the command line and exits the process with its code."""
    legible.any_encoding()
    _TOLD_TO_END.clear()
    try:
        with _ending_in_order():
            app()
    except SystemExit as end:
        sys.exit(_code_of_signal() if end.code == 130 else end.code)
    except MisuseError as error:
        _fail(error, 2)
    except CrucibleError as error:
        _fail(error, 3)
    except KeyboardInterrupt:
        sys.exit(_code_of_signal())
    except OSError as error:
        _fail(JudgeError(f"the system refuses: {error}"), 3)
    except Exception as error:  # noqa: BLE001 - whatever it is, it has an exit code and a line
        _fail(_mistake(error), 3)


def sleep(seconds: float) -> None:
    """For what only a signal ends. Raises KeyboardInterrupt also where one came before, and what it raised was lost."""
    if _TOLD_TO_END:
        raise KeyboardInterrupt
    time.sleep(seconds)


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
def _ending_in_order() -> Iterator[None]:
    """Makes of SIGTERM and SIGHUP what Ctrl-C is: what is finished is kept, nothing is left running."""

    def end(number: int, _: object) -> None:
        _TOLD_TO_END.append(number)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {number: how for number, how in before.items() if how in (signal.SIG_DFL, signal.default_int_handler)}
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, how in ours.items():
            signal.signal(number, how)


def _code_of_signal() -> int:
    return 128 + (_TOLD_TO_END[0] if _TOLD_TO_END else signal.SIGINT)


def _mistake(error: Exception) -> CrucibleError:
    """Of whichever command it is: a judge's own are told where it judges."""
    failure = CrucibleError(f"a mistake in Crucible: {own_error(error)}; CRUCIBLE_TRACEBACK=1 shows all of it")
    failure.__cause__ = error
    return failure


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
