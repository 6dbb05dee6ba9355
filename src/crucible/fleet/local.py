"""LocalFleet: all GPUs of this machine, a worker each; without one, its cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from crucible.fleet.engine import MOST, Fleet
from crucible.fleet.ledger import Ledger
from crucible.fleet.process import WorkerProcess
from crucible.fleet.slots import Slot, find_slots


class LocalWorker(WorkerProcess):
    """One slot's."""

    @property
    def name(self) -> str:
        return self.slot.name

    @property
    def kinds(self) -> frozenset[str]:
        return self.slot.kinds


class LocalFleet(Fleet):
    """Processes of this machine over a ledger."""

    def __init__(
        self,
        ledger: Ledger,
        workers: int | Sequence[Slot] | None = None,
        *,
        device: str = "auto",
        only: Iterable[str] | None = None,
        most: int = MOST,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`workers`: how many (see `find_slots`), or what each has. Raises MisuseError, DeviceError."""
        slots = find_slots(workers, device) if isinstance(workers, int | None) else list(workers)
        workers_of_slots = [LocalWorker(slot) for slot in slots]
        devices = [slot.device for slot in slots]
        super().__init__(ledger, workers_of_slots, devices=devices, only=only, most=most, say=say)
