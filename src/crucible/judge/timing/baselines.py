"""Baselines: the reference itself, as PyTorch can already run it. Each is judged and timed like a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crucible.candidate import Candidate
from crucible.errors import MisuseError
from crucible.task import Task

_PLAIN = """
class ModelNew(Model):
    pass
"""
_COMPILED = """
class ModelNew(Model):
    def __init__(self, *inputs, **named):
        super().__init__(*inputs, **named)
        self.compile(mode={mode!r}, dynamic=False)
"""
_CHANNELS_LAST = """
import torch as _torch

_FORMATS = {{4: _torch.channels_last, 5: _torch.channels_last_3d}}


def _channels_last(value):
    fits = isinstance(value, _torch.Tensor) and value.dim() in _FORMATS
    return value.contiguous(memory_format=_FORMATS[value.dim()]) if fits else value


class ModelNew(Model):
    def __init__(self, *inputs, **named):
        super().__init__(*inputs, **named)
        for parameter in self.parameters():
            parameter.data = _channels_last(parameter.data)
        {compile}

    def forward(self, *inputs, **named):
        inputs = [_channels_last(value) for value in inputs]
        return super().forward(*inputs, **{{name: _channels_last(value) for name, value in named.items()}})
"""


@dataclass(frozen=True)
class Baseline:
    """One way in which PyTorch runs the reference."""

    name: str
    words: str
    tail: str
    """Python that follows the reference's source and defines ModelNew."""
    only_convolutions: bool = False


BASELINES = {
    baseline.name: baseline
    for baseline in (
        Baseline("eager", "the reference as it stands", _PLAIN),
        Baseline("compile", "torch.compile", _COMPILED.format(mode="default")),
        Baseline(
            "max-autotune",
            'torch.compile(mode="max-autotune-no-cudagraphs")',
            _COMPILED.format(mode="max-autotune-no-cudagraphs"),
        ),
        Baseline("channels-last", "channels-last tensors", _CHANNELS_LAST.format(compile="pass"), True),
        Baseline(
            "compile-channels-last",
            "channels-last tensors, torch.compile",
            _CHANNELS_LAST.format(compile="self.compile(dynamic=False)"),
            True,
        ),
    )
}
ANCHOR = "eager"
"""What candidates are ranked by, since each of them took turns with it."""
_DEFAULT = {"cuda": ("eager", "compile", "max-autotune", "compile-channels-last"), "cpu": ("eager",)}


def choose_baselines(wanted: str | None, task: Task, device: str) -> tuple[Baseline, ...]:
    """The baselines named in a comma-separated text; `all`, `none`, or None for the device's usual ones.

    Channels-last ones are left out, unless named, where the reference has no convolution. The usual ones on a CPU
    are eager alone: compiling for a CPU takes half a minute. Raises MisuseError.
    """
    if wanted == "none":
        return ()
    names: Sequence[str] = wanted.split(",") if wanted else _DEFAULT[device]
    unknown = [name for name in names if name not in BASELINES and name != "all"]
    if unknown:
        raise MisuseError(f"no baseline {unknown[0]!r}: choose among {', '.join(BASELINES)}, all or none")
    chosen = list(BASELINES) if "all" in names else list(dict.fromkeys(names))
    convolutions = "conv" in task.source.lower()
    explicit = bool(wanted) and "all" not in names
    return tuple(BASELINES[n] for n in chosen if explicit or convolutions or not BASELINES[n].only_convolutions)


def as_candidate(baseline: Baseline, task: Task) -> Candidate:
    """The baseline in the candidates' form; the task's sizes are those of its scale."""
    sizes = "".join(f"{name} = {value!r}\n" for name, value in task.sizes.items())
    return Candidate(baseline.name, task.path, f"{task.source}\n\n{sizes}{baseline.tail}")
