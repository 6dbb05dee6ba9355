"""RayFleet: workers on the machines of a Ray cluster, an actor for each GPU, over the ledger of this one.

An actor holds its GPU (or cores) by Ray's account and starts the same worker process that a local fleet starts; what
that says comes back to the ledger as it comes. Actors are not detached: when the driver is killed they end, so that
their GPUs are free, and the next driver finds all that is finished in the ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crucible import hardware, store
from crucible.errors import DeviceError, JudgeError, MisuseError, ProcessLostError
from crucible.fleet.engine import MOST, Fleet
from crucible.fleet.ledger import Ledger
from crucible.fleet.process import WorkerProcess
from crucible.fleet.slots import CORES_A_SLOT, ON_CPU, ON_GPU, WITHOUT_GPU, Slot

ASKED_S = 2.0
"""How long an actor waits for something to tell."""
SURVEY_S = 120.0
"""For every machine to say what it has."""
SHUT_S = 30.0


class RayFleet(Fleet):
    """Actors of a Ray cluster over a ledger."""

    def __init__(
        self,
        ledger: Ledger,
        address: str = "ray",
        workers: int | None = None,
        *,
        device: str = "auto",
        only: Iterable[str] | None = None,
        most: int = MOST,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`address`: `ray` for the cluster that `RAY_ADDRESS` names or that runs here, else one that is started here
        for as long as the fleet is; `ray://HOST:PORT` for one elsewhere. `workers`: as many as there are GPUs, or
        pairs of cores where there are none, unless it says fewer; on CPUs exactly so many. Raises MisuseError,
        DeviceError, JudgeError where the cluster does not answer."""
        self._ray, self._own = _connected(address)
        try:
            nodes = _survey(self._ray)
            places = _places(nodes, workers, device)
        except BaseException:
            self.disconnect()
            raise
        named = [RayWorker(self._ray, place) for place in places]
        devices = [name for place in places for name in place.devices]
        super().__init__(ledger, named, devices=devices, only=only, most=most, say=say)
        say(f"Ray: {len(nodes)} machines, {len(named)} workers on {', '.join(self.devices)}")

    def stop(self) -> None:
        super().stop()
        self.disconnect()

    def disconnect(self) -> None:
        """Leaves the cluster, unless this process was in it before; one that was started for this fleet ends."""
        if self._own:
            self._ray.shutdown()


@dataclass(frozen=True)
class Place:
    """What one actor asks Ray for."""

    slot: Slot
    gpus: int
    cores: int
    devices: Sequence[str]
    """Which it may come to be on, by name."""


class RayWorker:
    """One actor as the fleet sees it. After a ProcessLostError, `close` and start again: on any machine with room."""

    def __init__(self, ray: Any, place: Place) -> None:
        self._ray = ray
        self._place = place
        self._actor: Any = None
        self._asked: Any = None
        self._heard: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        return self._place.slot.name

    @property
    def kinds(self) -> frozenset[str]:
        return self._place.slot.kinds

    def start(self, *, probe: bool) -> None:
        """Asks Ray for an actor. Raises ProcessLostError."""
        self._asked, self._heard = None, []
        needs = {"num_gpus": self._place.gpus, "num_cpus": self._place.cores, "max_restarts": 0}
        self._called(lambda: self._begin(needs, probe))

    def _begin(self, needs: Mapping[str, Any], probe: bool) -> None:
        self._actor = self._ray.remote(Actor).options(**needs).remote(self._place.slot)
        self._actor.start.remote(probe)

    def give(self, batch: Sequence[dict[str, Any]], fresh: bool) -> None:
        """Raises ProcessLostError."""
        self._called(lambda: self._actor.give.remote(list(batch), fresh))

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """As `WorkerProcess.next_event`. Raises ProcessLostError."""
        if not self._heard:
            self._called(lambda: self._ask(timeout_s))
        event = self._heard.pop(0) if self._heard else None
        if event is not None and event["event"] == "lost":
            raise ProcessLostError(event["reason"])
        return event

    def _ask(self, timeout_s: float) -> None:
        self._asked = self._asked or self._actor.events.remote(ASKED_S)
        ready, _ = self._ray.wait([self._asked], timeout=timeout_s)
        if ready:
            self._asked = None
            self._heard = list(self._ray.get(ready[0]))

    def close(self) -> None:
        """Ends the actor's process in order, then the actor; safe to call once more."""
        actor, self._actor, self._asked = self._actor, None, None
        if actor is None:
            return
        try:
            self._ray.wait([actor.close.remote()], timeout=SHUT_S)
            self._ray.kill(actor)
        except Exception:  # noqa: BLE001 - it is gone, or the cluster is
            return

    def _called(self, call: Callable[[], None]) -> None:
        """Whatever Ray raises, the actor is of no use any more."""
        try:
            call()
        except Exception as error:
            words = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ProcessLostError(f"the actor of {self.name} is lost: {words[:300]}") from error


class Actor:
    """On a cluster's machine: the worker process of one slot, held by Ray's account."""

    def __init__(self, slot: Slot) -> None:
        self._worker = WorkerProcess(slot)

    def start(self, probe: bool) -> None:
        self._worker.start(probe=probe)

    def give(self, batch: list[dict[str, Any]], fresh: bool) -> None:
        self._worker.give(batch, fresh)

    def events(self, timeout_s: float) -> list[dict[str, Any]]:
        """All that it has said by now, waiting for something to come; that it is lost is one of them."""
        found: list[dict[str, Any]] = []
        try:
            while (event := self._worker.next_event(0.0 if found else timeout_s)) is not None:
                found.append(event)
        except ProcessLostError as error:
            found.append({"event": "lost", "reason": str(error)})
        return found

    def close(self) -> None:
        self._worker.close()


def _connected(address: str) -> tuple[Any, bool]:
    """The module, connected, and whether that was done here. Raises MisuseError, JudgeError."""
    try:
        import ray
    except ImportError as error:
        raise MisuseError("--on ray needs Ray: pip install 'crucible-kernels[fleet]'") from error
    if ray.is_initialized():
        return ray, False
    os.environ.setdefault("RAY_worker_niceness", "0")  # of a cluster that is started here; see workers.py
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told that somebody judges
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address != "ray":
        settings["address"] = address
    try:
        ray.init(**settings)
    except Exception as error:
        words = (str(error).strip().splitlines() or [type(error).__name__])[0]
        remedy = "see `ray status` there; where it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        raise JudgeError(f"no Ray cluster at {address} ({words[:300]}): {remedy}") from error
    return ray, True


def look() -> dict[str, Any]:
    """On a cluster's machine: which version judges there, on what."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides all GPUs from what has asked for none
    gpus = [gpu.name for gpu in hardware.visible_gpus()]
    return {"judge": store.code_digest(), "gpus": gpus, "cpu": hardware.find_device("cpu").name}


def _survey(ray: Any) -> list[dict[str, Any]]:
    """What each machine of the cluster says it has, and Ray says it may use. Raises JudgeError."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    asked = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        asked.append(ray.remote(look).options(num_cpus=0, scheduling_strategy=there).remote())
    try:
        told = ray.get(asked, timeout=SURVEY_S)
    except Exception as error:
        words = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise JudgeError(f"a machine of the cluster cannot run Crucible: {words[:300]}") from error
    for node, words_of in zip(nodes, told, strict=True):
        if words_of["judge"] != store.code_digest():
            raise JudgeError(f"{node['NodeManagerHostname']} has another version of Crucible: install the same there")
    return [{**words_of, **node["Resources"]} for node, words_of in zip(nodes, told, strict=True)]


def _places(nodes: Sequence[Mapping[str, Any]], workers: int | None, device: str) -> list[Place]:
    """Raises DeviceError, MisuseError."""
    if workers is not None and not 1 <= workers <= 1024:
        raise MisuseError(f"--workers {workers}: give a number from 1 to 1024")
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if device == "cuda" and not gpus:
        raise DeviceError("no GPU in the Ray cluster: start its machines with `ray start --num-gpus`")
    if device in ("auto", "cuda") and gpus:
        names = [name for node in nodes for name in node["gpus"]]
        return [Place(Slot(f"gpu{i}", ON_GPU), 1, 1, names) for i in range(min(workers or gpus, gpus))]
    cores = [int(node.get("CPU", 0)) for node in nodes]
    count = workers or max(1, sum(own // CORES_A_SLOT for own in cores))
    each = max(1, min(CORES_A_SLOT, sum(cores) // count))
    names = [node["cpu"] for node in nodes]
    return [Place(Slot(f"cpu{i}", ON_CPU, "", WITHOUT_GPU), 0, each, names) for i in range(count)]
