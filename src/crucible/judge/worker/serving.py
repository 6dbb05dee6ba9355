"""What the judge asks of a candidate's process, and how it answers: one request after another, until it hangs up."""

from __future__ import annotations

import contextlib
import os
import traceback
from dataclasses import asdict
from typing import Any

from crucible.judge.process.channel import Channel, ChannelClosed
from crucible.judge.verdict import compiler_messages
from crucible.judge.worker import building
from crucible.judge.worker.worker import Worker
from crucible.memory_errors import is_out_of_memory


def _failure(error: BaseException, worker: Worker) -> dict[str, Any]:
    """An exception in plain words, with its line in the candidate."""
    said = _said(error)
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == worker.file]
    return {
        "raised": type(error).__name__[: building.LONGEST_NAME],
        "message": building.shortened(text),
        "line": frames[-1].lineno if frames else getattr(error, "lineno", None) or 0,
        "build_failure": compiler_messages.is_build_failure(building.shortened(said)),
        "not_covered": worker.not_covered,
        "faults": worker.faults(),
        "compiled_only": isinstance(error, building.CompiledOnly) or worker.watcher.compiled,
        "out_of_memory": is_out_of_memory(error, said),
        "forked": worker.watch.forked,
        "builds": [asdict(build) for build in worker.watcher.builds],
    }


def _said(error: BaseException) -> str:
    """An exception's words; its own `__str__` may do anything."""
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001 - it is the candidate's
        return f"its words cannot be had ({type(other).__name__})"


def serve(worker: Worker, channel: Channel) -> None:
    """Does what the judge asks until it hangs up."""
    verbs = {
        "import": worker.import_,
        "construct": worker.construct,
        "run": worker.run,
        "backward": worker.backward,
        "step": worker.step,
        "trace": worker.trace,
        "send": worker.send,
        "set_up": worker.set_up,
        "sample": worker.sample,
        "capture_graph": worker.capture_graph,
        "profile": worker.profile,
        "influence": worker.influence,
        "audit": worker.audit,
    }
    process = os.getpid()
    while True:
        request = channel.receive()
        worker.handed.take(request.pop("files", []), channel.take_descriptors())
        try:
            reply = {"done": request["do"], **verbs[request["do"]](request), "forked": worker.watch.forked}
        except BaseException as error:  # noqa: BLE001 - whatever a candidate raises is its verdict
            reply = _failure(error, worker)
            error.__traceback__ = None
        if os.getpid() != process:  # native code forked: two would answer
            channel.send({"forked": True})
            os._exit(1)
        channel.send(reply)


def run(settings: dict[str, Any]) -> None:
    """Serves the judge over the channel that `settings` names."""
    channel = Channel.from_descriptor(settings["channel"])
    channel.secret = channel.receive()["secret"]
    worker = Worker(settings, channel)
    with contextlib.suppress(ChannelClosed):
        channel.send({"done": "start"})
        serve(worker, channel)
