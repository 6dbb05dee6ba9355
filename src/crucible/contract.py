"""Contract: what "right" means for a run."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.errors import MisuseError


@dataclass(frozen=True)
class Tolerance:
    """What a task says a benchmark's rule shall allow: |d| <= atol + rtol |reference|."""

    atol: float
    rtol: float
    matched: float = 1.0
    """The share of elements that must keep to it."""
    cap: float | None = None
    """What no element may be off by; None without."""


@dataclass(frozen=True)
class Contract:
    """How precise a candidate must be, and by which rule it is held to that."""

    name: str
    """`fp32`, `tf32`, `bf16` or `kernelbench`."""
    operand_bits: int
    """Mantissa bits that operands of convolutions and matrix products may be rounded to (23, 10 or 7)."""
    bfloat16_tensors: bool = False
    """Floating inputs and parameters are cast to bfloat16 before anybody computes."""
    allclose: bool = False
    """The public benchmark's rule: allclose against eager PyTorch, forward only, weights as each side seeds its own."""
    seed: int | None = None
    """The one that the rule names."""
    trials: int = 2
    """Cases of the task's own inputs."""
    tolerance: Tolerance | None = None
    """In place of the benchmark's own, where the task has one."""
    multiple: float = 4.0
    """A candidate's error may be this many times the noise (truncated TF32, Triton's, is 1.7 times)."""

    @property
    def allow_tf32(self) -> bool:
        """Whether PyTorch's own convolutions and matrix products may use TF32 in this run."""
        return self.operand_bits < 23

    @property
    def unit_roundoff(self) -> float:
        """Half a unit in the last place of an operand."""
        return float(2.0 ** -(self.operand_bits + 1))


CONTRACTS = {
    contract.name: contract
    for contract in (
        Contract("fp32", operand_bits=23),
        Contract("tf32", operand_bits=10),
        Contract("bf16", operand_bits=7, bfloat16_tensors=True),
        # KernelBench leaves PyTorch's flags alone: TF32 for convolutions, not for matrix products.
        # Its seed is 42, from which that of each trial's inputs is drawn (src/kernelbench/eval.py), and its scripts ask
        # for five trials.
        Contract("kernelbench", operand_bits=10, allclose=True, seed=42, trials=5),
    )
}


def find_contract(name: str) -> Contract:
    """The contract of that name; raises MisuseError with the names there are."""
    if name not in CONTRACTS:
        raise MisuseError(f"no contract {name!r}: choose one of {', '.join(CONTRACTS)}")
    return CONTRACTS[name]


def benchmark_tolerance(dtype: str) -> float:
    """KernelBench's absolute and relative tolerance for a tensor of `dtype` ("float32", "bfloat16", ...)."""
    return 1e-2 if dtype in ("float16", "bfloat16") else 1e-4
