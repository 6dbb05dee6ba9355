"""Throttling: the GPU's clocks while something is timed. Read, never set."""

from __future__ import annotations

import shutil
import subprocess
from typing import IO

from crucible import hardware
from crucible.judge.verdict.evidence import Clocks, Finding, NotMeasured

INTERVAL_MS = 200
"""Between readings; at 100 ms a matrix product runs as fast beside them as without (H200)."""
_FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_event_reasons.active")
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
"""Bits of nvidia-smi's clocks_event_reasons that mean slower than asked for (NVML, nvmlClocksEventReasons)."""
NOTABLE = 0.05
"""A change of the clock by this share is told of."""


class ClockWatch:
    """Reads the clocks from `start` to `stop`, in a process of nvidia-smi's."""

    def __init__(self, device: str) -> None:
        self._watches = device == "cuda" and shutil.which("nvidia-smi") is not None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> ClockWatch:
        if self._watches:
            command = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
            timed = next((gpu.uuid for gpu in hardware.visible_gpus()), "0")
            command += [f"--loop-ms={INTERVAL_MS}", f"--id={timed}"]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> Clocks | NotMeasured:
        """What was read; safe to call once more."""
        process, self._process = self._process, None
        if process is None:
            return NotMeasured("no GPU whose clocks could be read")
        process.terminate()
        assert process.stdout is not None
        return read_clocks(_drained(process.stdout, process))


def _drained(pipe: IO[str], process: subprocess.Popen[str]) -> str:
    text = pipe.read()
    process.wait()
    pipe.close()
    return text


def read_clocks(text: str) -> Clocks | NotMeasured:
    """nvidia-smi's lines (SM MHz, memory MHz, °C, W, reasons) as one record; broken lines are left out."""
    rows = [row for line in text.splitlines() if (row := _row(line))]
    if not rows:
        return NotMeasured("nvidia-smi gave no readings")
    sm, memory, temperature, power, reasons = zip(*rows, strict=True)
    seen = 0
    for bits in reasons:
        seen |= int(bits)
    return Clocks(
        sm_mhz=(int(min(sm)), int(max(sm))),
        memory_mhz=(int(min(memory)), int(max(memory))),
        temperature_c=max(temperature),
        power_w=max(power),
        slowed_by=tuple(words for bit, words in _REASONS.items() if seen & bit),
    )


def doubts(clocks: Clocks | NotMeasured) -> list[Finding]:
    """A finding where the GPU changed its speed while it was timed."""
    if isinstance(clocks, NotMeasured):
        return []
    low, high = clocks.sm_mhz
    thermal = [reason for reason in clocks.slowed_by if reason != "power cap"]
    if low >= (1 - NOTABLE) * high and not thermal:
        return []
    why = f" ({', '.join(clocks.slowed_by)})" if clocks.slowed_by else ""
    return [Finding("the GPU changed its clock while this was timed", f"{low} to {high} MHz{why}")]


def _row(line: str) -> tuple[float, float, float, float, float] | None:
    parts = [part.strip() for part in line.split(",")]
    try:
        sm, memory, temperature, power = (float(part) for part in parts[:4])
        return sm, memory, temperature, power, float(int(parts[4], 16))
    except (ValueError, IndexError):
        return None
