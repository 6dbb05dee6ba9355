"""The oracle's process: what the judge asks, and what it is told."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any

import torch

from crucible.errors import JudgeError, TaskError
from crucible.judge.boundary.bundles import NotPlain, write_bundle
from crucible.judge.oracle import without_dynamo
from crucible.judge.oracle.oracle import Oracle
from crucible.judge.process.channel import Channel, ChannelClosed
from crucible.judge.verdict.verdict import to_json
from crucible.memory_errors import is_out_of_memory


def serve(channel: Channel) -> None:
    """Answers the judge's requests until it hangs up."""
    oracle: Oracle | None = None
    stream = -1
    while True:
        request = channel.receive()
        if request["do"] == "prepare":
            oracle = _prepared(channel, request)
        elif request["do"] == "attach":
            stream = channel.take_descriptor()
        elif request["do"] == "detach":
            os.close(stream)
        elif request["do"] == "ping":
            channel.send({"pong": request["number"], "well": oracle is not None and _is_well(oracle)})
        elif oracle is not None:
            _send(channel, _answered(oracle, request, stream))


def _send(channel: Channel, answer: dict[str, Any]) -> None:
    """An answer, with the contents that were drawn, which are the judge's from then on."""
    descriptors = (answer.pop("contents"),) if "contents" in answer else ()
    channel.send(answer, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


def _prepared(channel: Channel, request: dict[str, Any]) -> Oracle | None:
    """An oracle with its cases, once the judge was told of them; None where it was told what went wrong."""
    try:
        oracle = Oracle(
            request,
            lambda text: channel.send({"progress": text}),
            lambda: channel.send({"written": True}),
        )
        write_bundle(oracle.folder / "init", oracle.reference.init_inputs)
        write_bundle(oracle.folder / "weights", oracle.reference.weights())
        oracle.prepare()
        channel.send({"ready": oracle.description()})
    except Exception as error:  # noqa: BLE001 - whatever it is, the judge must hear of it
        channel.send({"error": _as_error(error), "trace": traceback.format_exc()})
        return None
    return oracle


def _is_well(oracle: Oracle) -> bool:
    """Whether its device still computes: a context that is lost stays lost in this process."""
    try:
        return float(torch.ones(64, device=oracle.device).sum()) == 64.0
    except RuntimeError:
        return False


def _answered(oracle: Oracle, request: dict[str, Any], stream: int) -> dict[str, Any]:
    """The answer, or why there is none: one candidate's question costs the others no oracle."""
    try:
        return _answer(oracle, request, stream)
    except Exception as error:  # noqa: BLE001 - whatever it is, the judge must hear of it
        traceback.print_exc()
        return {"failed": _as_error(error)["message"].removeprefix("the oracle failed: ")}


def _answer(oracle: Oracle, request: dict[str, Any], stream: int) -> dict[str, Any]:
    match request["do"]:
        case "floors":
            return oracle.floors(request["race_s"], request["rates"], measured=not request["measure"])
        case "growth":
            return {"growth": oracle.growth()}
        case "trial":
            return oracle.trial(request["like"], request["sizes"], request["number"], request["at_most"])
        case "older_weights":
            return oracle.older_weights(request["case"], request["names"])
        case "stress":
            return oracle.stress(request["limit_s"])
        case "influence":
            return {"reached": oracle.influence(request["weight"])}
        case "variant":
            return {"variant": to_json(oracle.variant(request["case"], request["part"]))}
        case "draw":
            return {"drawn": request["seed"], "contents": oracle.timed.draw(request["seed"])}
        case "late":
            return {"case": oracle.answered_late(request["seed"], request["weights"], request["draws"])}
        case "map":
            return oracle.map(request, stream)
        case _:
            return oracle.compare(request, stream)


def _as_error(error: BaseException) -> dict[str, str]:
    """Kind and words of a failure: the task's, or the judge's own."""
    if isinstance(error, TaskError | NotPlain):
        return {"kind": "task", "message": str(error)}
    if isinstance(error, JudgeError):
        return {"kind": "judge", "message": str(error)}
    reason = "the oracle ran out of memory: " if is_out_of_memory(error) else "the oracle failed: "
    return {"kind": "judge", "message": reason + (str(error).splitlines() or [type(error).__name__])[0]}


def main() -> None:
    without_dynamo.put_off()
    with contextlib.suppress(ChannelClosed):
        serve(Channel.from_descriptor(int(sys.argv[1])))
