"""Kernels of programs: on the emulator against float64 and PyTorch, as golden text, and through nvcc."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import layouts
import numpy as np
import programs
import pytest
import torch
from harness import TORCH_TYPES, Runner, Step, assert_close, built, expected, random_storages, source
from layouts import LAYOUTS, relaid, sums
from programs import CASES, Case
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

from crucible import emulator, hardware
from crucible.algebra.adjoint import adjoint
from crucible.algebra.expression import tensor
from crucible.algebra.program import Operand, Program, Reduction, Result
from crucible.algebra.stages import stages
from crucible.emulator.nvcc import find
from crucible.kinds.program.geometry import choose
from crucible.kinds.program.lower import lower
from crucible.print.written import Lowered
from support import some

GOLDEN = Path(__file__).parents[1] / "golden" / "families"


def backward(case: Case) -> Program:
    upstream = {result.name: f"grad_{result.name}" for result in case.program.results}
    return adjoint(case.program, list(case.shapes), upstream)


FORWARD = {name: make() for name, make in CASES.items()}
PROGRAMS = {
    **{name: case.program for name, case in FORWARD.items()},
    **{f"{name} backward": backward(case) for name, case in FORWARD.items()},
    **{name: make() for name, make in LAYOUTS.items()},
}
MULTIPROCESSORS = {"long rows": 1, "softmax of channels, both orders": 1}
"""Fewer than the H200 has, for layouts that need many rows otherwise."""
MULTIPROCESSORS |= {name: 1 for name in PROGRAMS if name.startswith(("turned", "short rows "))}
WITH_NAN = ("rows of a warp", "along rows, many columns", "sums of features", "split rows")
IN_ANY_ORDER = ("sums split", "along rows, split", "rows of a block", "whole_mean backward")
BEGINNING_ANYWHERE = ("turned odd planes", "turned softmax of odd planes")
IN_SECTORS = (
    *("pointwise", "planes", "channels last", "half", "half softmax", "rows of a block", "along rows"),
    *("from channels last", "to channels last", "half from channels last", "sums in both orders"),
    *("turned to channels last", "turned halves", "turned softmax of channels", "turned half softmax of channels"),
    *("norm of planes, both orders", "norm of groups, both orders", "softmax of channels, both orders"),
)
NAMED = {*WITH_NAN, *IN_ANY_ORDER, *BEGINNING_ANYWHERE, *IN_SECTORS}
CASES_HERE = some(list(CASES), 2)
BUILT = some(list(PROGRAMS), 3, lambda name: name in NAMED or name.removesuffix(" backward") in CASES_HERE)
"""What is run; of all of them the text is verified before it is text (`test_kernel_verify.py`)."""


class Steps(Mapping[str, Step]):
    """Each is lowered when it is asked for: to collect tests takes none."""

    def __init__(self) -> None:
        self._steps = {
            f"{name} {place}": step for name, program in PROGRAMS.items() for place, step in enumerate(stages(program))
        }
        self._made: dict[str, Step] = {}

    def __getitem__(self, which: str) -> Step:
        if which not in self._made:
            step, multiprocessors = self._steps[which], MULTIPROCESSORS.get(which.rpartition(" ")[0], 132)
            self._made[which] = Step(step, lower(step, multiprocessors))
        return self._made[which]

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


STEPS = Steps()


def steps_of(name: str) -> dict[str, Step]:
    return {which: STEPS[which] for which in STEPS if which.rpartition(" ")[0] == name}


@pytest.fixture(scope="module")
def run() -> Runner:
    """One extension for all: a build takes seconds."""
    return built("families", {which: STEPS[which] for which in STEPS if which.rpartition(" ")[0] in BUILT})


def compute(name: str, known: dict[str, torch.Tensor], run: Runner) -> dict[str, torch.Tensor]:
    """All tensors after all steps; each step's results compared with float64 on what it was given."""
    known = dict(known)
    for which, step in steps_of(name).items():
        given = {each.name: known[each.name] for each in step.program.operands}
        found, wanted = run(which, given), expected(step.program, given)
        for result in step.program.results:
            assert_close(found[result.name], wanted[result.name], f"{which}: {result.name}")
        known |= found
    return known


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_kernels_compute_the_program(name: str, run: Runner, no_faults: object) -> None:
    compute(name, random_storages(PROGRAMS[name], 3), run)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES_HERE)
def test_kernels_compute_what_pytorch_does(name: str, run: Runner, no_faults: object) -> None:
    case = FORWARD[name]
    torch.manual_seed(1)
    given = {n: torch.randn(shape, requires_grad=True) for n, shape in case.shapes.items()}
    wide = {n: each.detach().double().requires_grad_() for n, each in given.items()}
    outputs = case.module(**wide)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    cotangents = [torch.randn_like(each) for each in outputs]
    gradients = torch.autograd.grad(outputs, list(wide.values()), cotangents)
    known = {n: each.detach().reshape(-1) for n, each in given.items()}
    found = compute(name, known, run)
    results = [result.name for result in case.program.results]
    for result, output in zip(results, outputs, strict=True):
        assert_close(found[result], output.detach().numpy().reshape(-1), result)
    known |= {f"grad_{r}": each.float().reshape(-1) for r, each in zip(results, cotangents, strict=True)}
    found = compute(f"{name} backward", known, run)
    for operand, gradient in zip(given, gradients, strict=True):
        assert_close(found[f"grad_{operand}"], gradient.numpy().reshape(-1), operand)


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 17, 899])
@pytest.mark.parametrize("name", WITH_NAN)
def test_nan_is_not_lost(name: str, place: int, run: Runner, no_faults: object) -> None:
    storages = random_storages(PROGRAMS[name], 6)
    storages["x"][place] = float("nan")
    (which,) = steps_of(name)
    found, wanted = run(which, storages), expected(STEPS[which].program, storages)
    for result in STEPS[which].program.results:
        assert np.isnan(wanted[result.name]).any()
        np.testing.assert_array_equal(np.isnan(found[result.name].numpy()), np.isnan(wanted[result.name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_ANY_ORDER)
def test_no_order_of_threads_changes_a_bit(name: str, run: Runner) -> None:
    """Sums are taken in one order, whichever block or thread comes first."""
    storages = random_storages(PROGRAMS[name], 7)
    usual = compute(name, storages, run)
    for order in ("reverse", "random"):
        with emulator.schedule(order):
            other = compute(name, storages, run)
        for tensor_ in set(usual) - set(storages):
            np.testing.assert_array_equal(usual[tensor_].numpy(), other[tensor_].numpy())


# the text

SHOWN: dict[str, Callable[[], Program]] = {
    "chain_of_planes": lambda: programs.pointwise((128, 64, 14, 62, 62)).program,
    "chain_of_planes_backward": lambda: backward(programs.pointwise((128, 64, 14, 62, 62))),
    "chain_channels_last": lambda: layouts.chain(
        (32, 64, 56, 56), (200704, 1, 3584, 64), (200704, 1, 3584, 64), (0, 1, 0, 0), out=(200704, 1, 3584, 64)
    ),
    "softmax_of_bounded_values": lambda: programs.softmax((32, 64), (32, 64, 64)).program,
    "softmax_in_registers": lambda: layouts.softmax(8192, 1000),
    "softmax_over_channels": lambda: programs.channel_softmax((16, 21, 65536)).program,
    "layer_norm": lambda: programs.layer_norm((8192,), 768).program,
    "layer_norm_backward": lambda: backward(programs.layer_norm((8192,), 768)),
    "half_softmax": lambda: layouts.retyped(layouts.softmax(8192, 1024), "float16"),
    "double_softmax": lambda: layouts.retyped(layouts.softmax(512, 100), "float64", "float64"),
    "mean_of_everything": lambda: programs.whole_mean((4096, 4096)).program,
}


def written(lowered: Lowered) -> str:
    """As it would stand in a file."""
    preamble = dict.fromkeys(part for kernel in lowered.kernels for part in kernel.preamble)
    launches = [f"// {k.name}<<<{k.grid}, {k.threads}>>>({', '.join((*k.reads, *k.writes))})" for k in lowered.kernels]
    notes = [f"// {note}" for note in lowered.notes]
    buffers = [f"// {buffer.dtype} {buffer.name}[{buffer.elements}]" for buffer in lowered.buffers]
    return "\n".join([*notes, *buffers, *launches, "", *preamble, *(f"\n{k.text}" for k in lowered.kernels), ""])


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name: str) -> None:
    """Reviewed as text: delete the file to have it written anew."""
    found = "\n".join(written(lower(step)) for step in stages(SHOWN[name]()))
    assert found == "\n".join(written(lower(step)) for step in stages(SHOWN[name]()))
    file = GOLDEN / f"{name}.cu"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(found)
    assert found == file.read_text()


@pytest.mark.parametrize(
    ("columns", "is_told"), [(8836, True), (8192, False), (30000, False)], ids=["ragged", "whole", "1024 threads"]
)
def test_the_compiler_is_told_of_threads_where_a_last_pack_is_not_whole(columns: int, is_told: bool) -> None:
    (step,) = stages(layouts.softmax(512, columns))
    (kernel,) = lower(step).kernels
    assert (f"__builtin_assume(threadIdx.x < {kernel.threads});" in kernel.text) == is_told


@pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
@pytest.mark.parametrize("architecture", some(["sm_90a", "sm_80"], 2))
def test_nvcc_keeps_everything_in_registers(architecture: str) -> None:
    """No spills, no arrays in memory, shared memory that every GPU has."""
    steps = {
        f"{name} {place}": Step(step, lower(step))
        for name, make in SHOWN.items()
        for place, step in enumerate(stages(make()))
    }
    nvcc = find(architecture, COMMON_NVCC_FLAGS)
    assert nvcc is not None
    kernels = nvcc.unit(source(steps).partition("void run(int64_t")[0], [])
    assert len(kernels) == sum(len(step.lowered.kernels) for step in steps.values())
    for kernel in kernels:
        calls = 8 if "double" in kernel.signature else 0  # nvcc divides doubles in a function of its own
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.stack_bytes <= calls, kernel
        assert kernel.static_shared_bytes <= 48 * 1024, kernel
        assert kernel.registers <= 128, kernel


def test_indices_are_as_wide_as_they_must_be() -> None:
    """32 bits below 2^31 elements, 64 from there on, and for fewer elements that lie further apart."""
    texts = {size: lower(layouts.chain((size,), (1,))).kernels[0].text for size in (2**31 - 4, 2**31)}
    assert "const unsigned i = " in texts[2**31 - 4] and "size_t" not in texts[2**31 - 4]
    assert "const size_t i = chunk * step" in texts[2**31]
    assert "const size_t chunk = static_cast<size_t>(blockIdx.x);" in texts[2**31]
    apart = lower(layouts.chain((3, 4), (2**31, 1))).kernels[0].text
    assert "constexpr size_t x_stride_0 = 2147483648;" in apart and "const size_t i" in apart
    rows = lower(layouts.softmax(2**22, 1024)).kernels[0]
    assert re.search(r"const size_t row = static_cast<size_t>\(blockIdx.x\)", rows.text)
    assert rows.grid[0] < 2**31


def test_loads_and_stores_are_of_sixteen_bytes() -> None:
    """Where tensors allow it: dense or channels last, not with odd planes read by channel."""
    for name in ("dense", "planes", "channels last", "half", "rows of a block", "along rows"):
        lowered = STEPS[f"{name} 0"].lowered
        assert "= load<vector>(x" in lowered.kernels[0].text, name
    assert "load<" not in STEPS["odd 0"].lowered.kernels[0].text


def test_other_orders_go_through_shared_memory_where_that_is_filled() -> None:
    """Lines of 128 bytes, or 64 where rows are no more; small tensors and few rows go by sectors."""
    for name in STEPS:
        text = "".join(kernel.text for kernel in STEPS[name].lowered.kernels)
        assert ("_tile[" in text) == name.startswith("turned"), name
    assert "constexpr unsigned block_rows = 32;" in STEPS["turned to channels last 0"].lowered.kernels[0].text
    assert "constexpr unsigned block_rows = 16;" in STEPS["turned odd planes 0"].lowered.kernels[0].text
    assert "constexpr unsigned block_rows = 64;" in STEPS["turned halves 0"].lowered.kernels[0].text
    for name in ("softmax", "norm", "half softmax"):  # rows in registers: what lies along rows alone
        (kernel,) = STEPS[f"turned {name} of channels 0"].lowered.kernels
        assert kernel.text.count("__shared__") == 1 and "_tile[step][line]" in kernel.text
    passes = STEPS["turned norm of planes 0"].lowered.kernels  # each is a kernel, for the last one's sake
    *reducing, last = passes
    assert len(reducing) == 4 and "_tile[" in last.text and not any("_tile[" in each.text for each in reducing)


def test_rows_turned_round_are_two_lines_where_those_begin_anywhere() -> None:
    for planes, rows in ((1088, 32), (1090, 64)):
        program = layouts.relaid(layouts.normalised((planes, 96), 1), (1, 0), "x")
        assert f"constexpr unsigned block_rows = {rows};" in lower(program, 1).kernels[0].text


def test_threads_that_share_a_short_row_read_two_sectors_at_once() -> None:
    """Where rows are many: few of them take all threads that there are."""
    note, *_ = lower(layouts.softmax(1 << 18, 32)).notes
    assert "4 threads a row, 32 rows a block" in note


def test_short_rows_beside_each_other_are_of_few_threads() -> None:
    """Two floats under way of each of 256 threads would be too little, and they would have to exchange."""
    note, *_ = STEPS["short rows of odd planes 0"].lowered.notes
    assert "a block takes 256 rows; elements stay" in note
    note, *_ = STEPS["short rows in packs 0"].lowered.notes
    assert "a block takes 256 rows, 4 a thread, and 4 groups of threads share the columns" in note


def test_as_many_bytes_are_under_way_in_small_loads() -> None:
    assert "constexpr int packs = 16;" in lower(layouts.chain((2**24 + 1,), (1,))).kernels[0].text


def test_blocks_that_share_rows_of_single_elements_take_small_parts_near_each_other() -> None:
    """Those of packs have longer ones, and rounds enough that a last one does not count."""
    for planes, packs, blocks in ((424175, 8, 128 * 600), (424176, 4, 32 * 132)):
        program = layouts.sums((16, 128, planes), 1, (planes, 128 * planes, 1), also_elements=True)
        first, *_ = lower(replace(program, shape=(128, 16, planes))).kernels
        assert f"constexpr int packs = {packs};" in first.text and blocks <= first.grid[0] < blocks * 1.2


def test_rows_that_lie_apart_are_reduced_a_line_at_a_time() -> None:
    """Of a tensor whose neighbours are rows: 128 bytes; fewer where there are fewer rows."""
    for channels, lanes in ((64, 8), (16, 4)):
        shape = (channels, 8, 90000)
        program = relaid(sums(shape, 1, (90000, channels * 90000, 1), True), (1, 2, 0), "x")
        geometry = choose(program, 132)
        assert (geometry.along, geometry.vector, geometry.lanes) == ("rows", 4, lanes)


def test_nothing_is_launched_for_nothing() -> None:
    assert STEPS["nothing 0"].lowered.kernels == ()
    assert STEPS["sums of no rows 0"].lowered.kernels == ()
    (kernel,) = STEPS["sums of nothing 0"].lowered.kernels
    assert kernel.writes == ("sum", "high")


def test_sums_of_elements_share_the_pass_that_stores_them() -> None:
    """The gradient of a chain and the sums of it over batch and planes: one pass over memory, then small ones."""
    program = layouts.sums((64, 128, 53816), 1, (53816, 64 * 53816, 1), also_elements=True)
    first, *rest = lower(program).kernels
    assert {"out", "total_parts", "peak_parts"} == set(first.writes)
    assert all("x" not in kernel.reads for kernel in rest)
    assert first.grid[0] >= 4 * 132


def test_an_element_is_read_once_where_rows_fit_into_registers() -> None:
    for name in ("rows of a warp", "rows of a block", "along rows", "layer_norm"):
        (kernel,) = STEPS[f"{name} 0"].lowered.kernels
        assert len(re.findall(r"load<vector>\(x\w*|= x_row\[|= x\[", kernel.text)) == 1, name


def test_a_tensor_may_be_called_as_anything() -> None:
    (kernel,) = STEPS["hard names 0"].lowered.kernels
    assert kernel.reads == ("row", "exp", "load")
    assert "const float* __restrict__ row" in kernel.text and "const unsigned row_2 = " in kernel.text
    double = lower(layouts.retyped(layouts.hard_names(), "float64", "float64")).kernels[0].text
    assert "__restrict__ exp_2" in double and "exp(exp_value)" in double


def test_types_are_those_of_the_kernels() -> None:
    assert set(TORCH_TYPES) == {"float16", "bfloat16", "float32", "float64", "bool", "uint8", "int32"}
    mixed = Program(
        "mixed",
        (8,),
        1,
        (Operand("x", "bfloat16", (1,)),),
        (),
        (Result("out", "float16", (1,), tensor("x", "bfloat16")),),
    )
    text = lower(mixed).kernels[0].text
    assert "__float2half_rn(x_value)" in text and "const float x_value = __bfloat162float(" in text


def test_the_largest_of_a_row_is_no_result_of_fewer_passes() -> None:
    """A maximum that is asked for stays, whatever its range."""
    peak = Reduction("peak", "max", tensor("x").tanh())
    asked = Program(
        "amax", (4, 8), 1, (Operand("x", "float32", (8, 1)),), (peak,), (Result("out", "float32", (1,), peak.leaf),)
    )
    assert "max_over" in lower(asked).kernels[0].text
    idle = replace(asked, reductions=(replace(peak, constant=True),))
    assert "max_over" not in lower(idle).kernels[0].text


@pytest.mark.slow
def test_memory_is_asked_for_in_whole_sectors(run: Runner) -> None:
    """Where rows begin at sectors, each that is touched is used, and no two lanes wait for one bank."""
    for name in IN_SECTORS:
        (which,) = steps_of(name)
        with emulator.trace() as seen:
            run(which, random_storages(STEPS[which].program, 3))
        lines = [line for line in seen.lines if line.space == "global"]
        asked, ideal = sum(line.sectors for line in lines), sum(line.ideal_sectors for line in lines)
        assert 0 < ideal <= asked <= 1.02 * ideal, name  # a row's one number is a part of a sector
        assert all(line.wavefronts == line.ideal_wavefronts for line in seen.lines if line.space == "shared"), name


@pytest.mark.parametrize("name", BEGINNING_ANYWHERE)
def test_lines_that_begin_anywhere_are_stored_by_whole_sectors_but_for_their_ends(name: str, run: Runner) -> None:
    """A block's part of a line has two ends, and one warp has both."""
    (which,) = steps_of(name)
    with emulator.trace() as seen:
        run(which, random_storages(STEPS[which].program, 3))
    stores = [line for line in seen.lines if line.space == "global" and line.operation == "store"]
    assert sum(line.sectors for line in stores) < 1.12 * sum(line.ideal_sectors for line in stores)
