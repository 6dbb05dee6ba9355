"""What rounding does to a reference: evaluation with the operands of matrix products rounded.

Libraries choose TF32 or not by themselves (cuDNN does not on the first task of `benchmarks/notes.md`), so the
noise of a contract comes from here, not from what a library happened to do. `probes` are the ways to find it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.contract import Contract

MOVED = 2.0
"""Units by which float32 values are moved: less than one in the last place would round away."""
FURTHER = 4
"""Probes more at the most, until two agree."""
STEADY, FEW = 0.6, 8
"""Of the larger of two errors: those of 24 roundings and more are as near as this. Of two numbers that are off by one
rounding each one is four times the other once in six; of 360 gradients of right candidates one was 4.3 times as far off
as each of three probes (of a bias behind a maximum, of which few elements are ever the largest)."""
CUT = 0.5
"""Of what cutting operands off does, where it counts as noise: twice it is allowed, where four times a rounding is."""

# Position of the first operand that a tensor core reads; what stands before it (a bias) is added in fp32.
_PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "mv": 0,
    "dot": 0,
    "vdot": 0,
    "addmm": 1,
    "addmm_": 1,
    "addmv": 1,
    "addmv_": 1,
    "baddbmm": 1,
    "baddbmm_": 1,
    "addbmm": 1,
    "addbmm_": 1,
    "linear": 0,
    "convolution": 0,
    "convolution_overrideable": 0,
    "cudnn_convolution": 0,
    "convolution_backward": 0,
}
_SUMS = {
    "sum",
    "mean",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "native_batch_norm",
    "native_batch_norm_backward",
    "_native_batch_norm_legit",
    "cudnn_batch_norm",
    "cudnn_batch_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
}
"""What adds many up, each by its own order."""
_OPERANDS = {"convolution": 2, "convolution_overrideable": 2, "cudnn_convolution": 2, "linear": 2}
_PREFIXES = (
    "_scaled_dot_product",
    "_flash_attention",
    "_efficient_attention",
    "_cudnn_rnn",
    "mkldnn_rnn_layer",
)
_CUDNNS = ("convolution", "cudnn_convolution")
TF32_BITS = 10


def round_mantissa(value: torch.Tensor, bits: int) -> torch.Tensor:
    """`value` rounded to `bits` explicit mantissa bits (10: TF32, 7: bfloat16), to nearest, ties away from
    zero as `cvt.rna.tf32` does; the dtype is kept and the exponent range is float32's."""
    if bits >= 23 or not value.is_floating_point():
        return value
    drop = 23 - bits
    pattern = value.to(torch.float32).view(torch.int32)
    rounded = ((pattern + (1 << (drop - 1))) & -(1 << drop)).view(torch.float32)
    finite = torch.where(torch.isfinite(value), rounded.to(value.dtype), value)
    return finite


def cut_mantissa(value: torch.Tensor, bits: int) -> torch.Tensor:
    """`value` with the bits behind `bits` of its mantissa left out, as a tensor core reads what nobody rounded."""
    if bits >= 23 or not value.is_floating_point():
        return value
    return (value.to(torch.float32).view(torch.int32) & -(1 << (23 - bits))).view(torch.float32).to(value.dtype)


class RoundedOperands(TorchDispatchMode):
    """While active, convolutions and matrix products read operands of `bits` mantissa bits.

    With `results`, every floating result is rounded too, as tensors of a 16-bit dtype would be. With a `seed` sums,
    means, norms and their gradients read what is off by MOVED units of float32's roundoff at most, as if they had been
    added up in another order: what a clamp made equal is 0 behind a norm or some hundred times a rounding, by no more
    than how its mean was rounded. With `cut` operands are cut off instead.
    """

    def __init__(self, bits: int, results: bool = False, seed: int | None = None, cut: bool = False) -> None:
        super().__init__()
        self._read = cut_mantissa if cut else round_mantissa
        self.bits = bits
        self.results = results
        self.seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __enter__(self) -> Any:
        self._fast_attention = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # one fused operation, whose operands are out of reach
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        torch.backends.mha.set_fastpath_enabled(self._fast_attention)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch's wrapper would import torch._dynamo on first use: 2.4 s here, 5 s on the H200 machine

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        first = 0 if name.startswith(_PREFIXES) else _PRODUCTS.get(name)
        if first is not None and self._rounds(name):
            last = first + _OPERANDS.get(name, 3)
            args = tuple(
                self._read(arg, self.bits) if first <= i < last and isinstance(arg, torch.Tensor) else arg
                for i, arg in enumerate(args)
            )
        if self.seed is not None and name in _SUMS:
            summed = 2 if "backward" in name else 1  # what stands behind them may be written to (a running mean)
            args = (
                *(self._elsewhere(arg) if isinstance(arg, torch.Tensor) else arg for arg in args[:summed]),
                *args[summed:],
            )
        out = func(*args, **(kwargs or {}))
        return self._round_results(func, out) if self.results else out

    def _elsewhere(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        if value.device not in self._generators:
            self._generators[value.device] = torch.Generator(value.device).manual_seed(self.seed or 0)
        shift = torch.rand(value.shape, generator=self._generators[value.device], device=value.device) * 2 - 1
        return value * (1 + MOVED * 2.0**-24 * shift)  # infinities stay

    def _rounds(self, name: str) -> bool:
        return True

    def _round_results(self, func: Any, out: Any) -> Any:
        returns = func._schema.returns
        if isinstance(out, torch.Tensor) and len(returns) == 1:
            alias = returns[0].alias_info
            if alias is None:
                return round_mantissa(out, self.bits)
            if alias.is_write and out.is_floating_point():
                return out.copy_(round_mantissa(out, self.bits))
        if isinstance(out, tuple) and all(r.alias_info is None for r in returns):
            return tuple(round_mantissa(o, self.bits) if isinstance(o, torch.Tensor) else o for o in out)
        return out


class AsCudnn(RoundedOperands):
    """While active, convolutions and whatever recurrent layers multiply read operands of TF32, and no others do: what
    PyTorch's default flags let happen on a GPU."""

    def __init__(self) -> None:
        super().__init__(TF32_BITS)
        self._inside = 0

    def __enter__(self) -> Any:
        self._hooks = [
            register_module_forward_pre_hook(lambda module, *_: self._pass(module, 1)),
            register_module_forward_hook(lambda module, *_: self._pass(module, -1), always_call=True),
        ]
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        for hook in self._hooks:
            hook.remove()

    def _pass(self, module: torch.nn.Module, step: int) -> None:
        self._inside += step * isinstance(module, torch.nn.RNNBase)

    def _rounds(self, name: str) -> bool:
        return self._inside > 0 or name.startswith(_CUDNNS)


def perturbed(
    value: torch.Tensor, reach: float, generator: torch.Generator, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """`value` with each element moved by up to `reach`, relative, in `dtype` (None: its own) on the device that draws.

    That is what a backward-stable algorithm is allowed, and what makes elements near a kink (a clamp, a maximum)
    show themselves. 16-bit values come back as float32, so that the move is not rounded away. A GPU's generator where
    the reference runs on one: of 2^30 weights two threads of a CPU take 19 s, as often as there are probes.
    """
    if not value.is_floating_point():
        return value
    kept = dtype or (value.dtype if value.dtype.itemsize >= 4 else torch.float32)
    if value.numel() <= _AT_ONCE:
        return _moved(value, reach, generator).to(kept)
    moved = torch.empty(value.numel(), dtype=kept, device=generator.device)
    # In parts: five times its size in float64 would be needed for all at once.
    for target, part in zip(moved.split(_AT_ONCE), value.reshape(-1).split(_AT_ONCE), strict=True):
        target.copy_(_moved(part, reach, generator))
    return moved.view(value.shape)


def _moved(value: torch.Tensor, reach: float, generator: torch.Generator) -> torch.Tensor:
    shift = torch.rand(value.shape, generator=generator, dtype=torch.float64, device=generator.device) * 2 - 1
    return value.to(generator.device) * (1 + reach * shift)


_AT_ONCE = 1 << 24
"""Elements."""


@dataclass(frozen=True)
class Probe:
    """One way to evaluate the reference less exactly; its distance from the oracle is noise."""

    dtype: torch.dtype | None
    allow_tf32: tuple[bool, bool]
    within: Callable[[int], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """By a seed."""
    moved: float = 0.0
    """Inputs and weights are first moved by up to this many unit roundoffs."""
    seed: int = 0


def probes(contract: Contract) -> list[Probe]:
    """The library as the contract lets it run, and rounding done here, once with everything moved a little."""
    bits = contract.operand_bits
    if contract.bfloat16_tensors:
        rounding = Probe(torch.float32, (False, False), lambda _: RoundedOperands(bits, results=True))
        return [Probe(None, (True, True)), rounding, replace(rounding, moved=0.5)]
    library = Probe(None, (contract.allow_tf32,) * 2)
    summing = Probe(None, (False, False), lambda seed: RoundedOperands(bits, seed=seed), MOVED)
    if bits == 23:
        return [library, summing, replace(summing, seed=1)]
    return [library, Probe(None, (False, False), lambda _: RoundedOperands(bits)), replace(summing, moved=0.5)]


def further_probes(contract: Contract) -> list[Probe]:
    """More of the last, which round elsewhere: for what a few probes do not agree on."""
    last = probes(contract)[-1]
    return [replace(last, moved=max(1.0, last.moved), seed=last.seed + further) for further in range(1, FURTHER + 1)]


def cutting(contract: Contract) -> Probe:
    """Operands cut off: 1.7 times the noise of rounding, and one direction, which sums do not average away."""
    return Probe(None, (False, False), lambda _: RoundedOperands(contract.operand_bits, cut=True))


def is_unsteady(errors: Sequence[float], elements: int) -> bool:
    """Whether what two probes were off by is an accident: of few elements, or of few roundings."""
    return max(errors) > 0 and (elements <= FEW or min(errors) < STEADY * max(errors))


def by_default_on_a_gpu() -> Probe:
    """What PyTorch's default flags compute on a GPU, as far as a machine without one can: cuDNN's products in TF32."""
    return Probe(None, (False, False), lambda _: AsCudnn())
