"""Whose kernels ran: by their names in a candidate's file, and by PyTorch's profiler."""

from __future__ import annotations

import pytest
import torch

from crucible.judge.verdict.evidence import Costs, Kernel, NotMeasured
from crucible.judge.verdict.modelled import Modelled, NotModelled, Part
from crucible.judge.verdict.whose import Whose, is_named_in, little_of_its_own, told_by_emulator, told_by_profiler
from crucible.judge.worker.profile import profile_call

SOURCE = """
cuda = r'''
template <int N> __global__ void __launch_bounds__(256) fused(const float* x) { helper(x); }
extern "C" __global__ void
kernel(float* x) {}
at::native::vectorized_elementwise_kernel
__global__ void vectorized_elementwise_kernel(float* decoy) {}
'''
@triton.jit
def triton_mine(x, BLOCK: tl.constexpr): ...
"""
LIBRARY = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("void fused<4>(float const*)", True),
        ("fused", True),
        ("kernel(float*)", True),
        ("triton_mine", True),
        ("helper", False),
        ("triton_poi_fused_add_0", False),
        (LIBRARY, False),
        ("void cutlass::Kernel<cutlass_80_tensorop>(Params)", False),
        ("sm90_xmma_gemm_f32f32", False),
        ("", False),
    ],
)
def test_a_kernel_is_its_own_where_its_file_defines_it(name: str, own: bool) -> None:
    assert is_named_in(name, SOURCE) == own


def costs(*kernels: tuple[str, float]) -> Costs:
    found = tuple(Kernel(name, 1, ms) for name, ms in kernels)
    return Costs(1.0, 0, 0, found, 1.0, 1.0, 1)


def test_a_decoy_is_told_by_its_share() -> None:
    whose = told_by_profiler(costs((LIBRARY, 9.9), ("fused", 0.1)), SOURCE)
    assert isinstance(whose, Whose)
    assert (whose.own, whose.others, whose.own_share) == (("fused",), (LIBRARY,), pytest.approx(0.01))
    assert whose.words == "own kernels 1% of the time"
    (finding,) = little_of_its_own(whose)
    assert "vectorized_elementwise_kernel" in finding.evidence
    with_types = Whose(("void fused<float, 4>(float const*, float*)",), (LIBRARY,), 0.01, "the profiler")
    (finding,) = little_of_its_own(with_types)
    assert finding.evidence.startswith("its own, fused: 1% of the time; the rest: ") and "(" not in finding.evidence
    honest = told_by_profiler(costs(("fused", 9.0), (LIBRARY, 1.0)), SOURCE)
    assert little_of_its_own(honest) == []


def test_on_a_cpu_pytorchs_operators_stand_beside_the_rest() -> None:
    x = torch.randn(300, 300)

    def step() -> None:
        (x @ x).exp()
        sum(range(20_000))

    found = profile_call(step, torch.device("cpu"))
    assert {name for name, _, _ in found["operators"]} == {"aten::matmul", "aten::exp"}
    assert 0 < found["operators_ms"] < found["call_ms"]
    operators = tuple(Kernel(*one) for one in found["operators"])
    of_call = Costs(0.1, 0, 0, (), 0.0, 0.0, 0, operators, found["operators_ms"], found["call_ms"])
    whose = told_by_profiler(of_call, SOURCE)
    assert isinstance(whose, Whose) and isinstance(whose.own_share, float)
    assert 0 < whose.own_share < 1


def modelled(*parts: tuple[str, float, bool]) -> Modelled:
    made = tuple(Part(name, 1, ms, "memory", own) for name, ms, own in parts)
    return Modelled(sum(part.time_ms for part in made), "forward", "NVIDIA H200", "full size", 1.0, 0.0, 1.0, made)


def test_the_emulator_tells_what_ran_and_not_for_how_long() -> None:
    whose = told_by_emulator(["fused"], ["addmm", "relu"], NotModelled("not counted"))
    assert isinstance(whose.own_share, NotMeasured)
    assert whose.words == "1 own kernel, 2 operators of PyTorch's"
    assert little_of_its_own(whose) == []


def test_a_decoy_on_the_emulator_is_told_by_its_share_of_the_modelled_time() -> None:
    whose = told_by_emulator(["fused"], ["addmm"], modelled(("addmm", 0.97, False), ("fused", 0.03, True)))
    assert whose.words == "1 own kernel, 1 operator of PyTorch's, own 3% of the modelled time"
    (finding,) = little_of_its_own(whose)
    assert finding.claim == "most of its modelled time goes to kernels that are not its own"
    honest = told_by_emulator(["fused"], ["addmm"], modelled(("addmm", 0.2, False), ("fused", 0.8, True)))
    assert little_of_its_own(honest) == []
