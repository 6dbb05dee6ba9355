"""checking: what no worker could judge is said at once, to whoever asks for it."""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

from crucible.errors import MisuseError
from crucible.fleet.submission import Submission
from crucible.gpus import known_gpu
from crucible.judge.timing.baselines import choose_baselines
from crucible.pipeline import checked_seed

_REMEMBERED = 4096
_known: OrderedDict[str, str] = OrderedDict()
"""What is wrong with a task under its options, by batch: candidates come by the thousand for a few tasks."""
_checking = threading.Lock()
"""A batch that several ask for is read once."""


def is_known(submission: Submission) -> bool:
    """Whether `check` need not read anything."""
    return submission.batch in _known


def check(submission: Submission) -> None:
    """Whether task and options can be used at all; nothing is executed. Raises MisuseError in one line."""
    fault = _known.get(batch := submission.batch)
    if fault is None:
        with _checking:
            fault = _known[batch] = _fault(submission)
            while len(_known) > _REMEMBERED:
                _known.popitem(last=False)
    if fault:
        raise MisuseError(fault)


def _fault(submission: Submission) -> str:
    """In words; empty where there is none."""
    options = submission.options
    with tempfile.TemporaryDirectory(prefix="crucible-task-") as folder:
        try:
            task = submission.task(Path(folder))
            how = {"training": bool(options.get("training")), "mode": options.get("mode", "train")}
            task = task.at(scale=options.get("scale"), small_by_default=False, **how).shaped(options.get("shapes", ()))
            choose_baselines(options.get("baselines"), task, "cpu")
            known_gpu(options.get("gpu") or "h200")
            checked_seed(options.get("seed") or 0)
        except MisuseError as error:
            return str(error).replace(f"{folder}/", "")
        except (ValueError, RecursionError, MemoryError) as error:
            return f"the task cannot be read: {type(error).__name__}"
    return ""
