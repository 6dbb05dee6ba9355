"""The modelled time of what the emulator counted: by hand for known kernels, and where it stands in a run."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from crucible.contract import CONTRACTS
from crucible.emulator.trace import Launch, Trace
from crucible.gpus import H200
from crucible.judge.timing.modelling import LAUNCH_MS, Growth, OperatorUse, model
from crucible.judge.verdict.evidence import NotMeasured
from crucible.judge.verdict.modelled import Modelled, NotModelled
from crucible.judge.verdict.verdict import Passed, Verdict
from crucible.judge.worker.operators import Operators
from crucible.run import Run, run_from_json
from test_table import VERDICTS, a_run

COPY = Launch("copy", (64, 1, 1), (256, 1, 1), 0, 1, 32, 0, accesses=2**14, sectors=2**11, l1_wavefronts=2**9,
              touched_sectors=2**12)  # fmt: skip
"""Of 64 blocks 32 are followed; each sector is touched once."""
TF32 = CONTRACTS["tf32"]


def modelled(*launches: Launch, operators: tuple[OperatorUse, ...] = (), growth: Growth | None = None) -> Modelled:
    found = model(Trace(launches), operators, growth, H200, TF32, "forward", 40)
    assert isinstance(found, Modelled)
    return found


def test_a_copy_takes_what_its_bytes_take_at_the_datasheets_rate() -> None:
    found = modelled(COPY, growth=Growth(10_000.0, 1.0))
    assert found.bytes_moved == 2**12 * 32 * 10_000
    assert found.time_ms == pytest.approx(found.bytes_moved / 4.8e12 * 1e3 + LAUNCH_MS)
    assert (found.at, found.parts[0].limited_by) == ("full size", "memory")


def test_what_is_read_again_grows_as_products_do_and_comes_from_caches() -> None:
    """Four times the sectors, of which three quarters are seen again: passes through L1 are the limit then."""
    again = dataclasses.replace(COPY, sectors=2**13, l1_wavefronts=2**15)
    found = modelled(again, growth=Growth(100.0, 10_000.0))
    wavefronts = 2**15 * 2 * (0.25 * 100 + 0.75 * 10_000)
    assert found.parts[0].limited_by == "load and store instructions"
    assert found.time_ms == pytest.approx(wavefronts / (132 * H200.clock_mhz * 1e3) + LAUNCH_MS)
    assert found.bytes_moved == modelled(COPY, growth=Growth(100.0, 1.0)).bytes_moved


def test_products_take_what_their_type_takes_and_are_counted_for_all_launches() -> None:
    many = dataclasses.replace(COPY, count=8, followed=4 * 32, tf32_flops=4 * 10**12)
    found = modelled(many)
    assert (found.matrix_flops, found.bytes_moved, found.launches) == (8e12, 2 * 2**12 * 32, 8)
    assert found.time_ms == pytest.approx(8e12 / 494.5e12 * 1e3 + 8 * LAUNCH_MS)
    halves = dataclasses.replace(many, tf32_flops=0, half_flops=4 * 10**12)
    assert modelled(halves).time_ms < 0.51 * found.time_ms
    assert found.at == "the size judged"


def test_pytorchs_operators_are_not_free() -> None:
    use = OperatorUse("convolution", 1, 48 * 10**8, 10**9)
    found = modelled(COPY, operators=(use,))
    assert found.time_ms - modelled(COPY).time_ms == pytest.approx(1.0 + LAUNCH_MS)
    assert found.parts[0].name == "convolution"


@pytest.mark.parametrize(
    "trace", [Trace(), Trace((COPY,) * 40), Trace((dataclasses.replace(COPY, followed=0),)),
              Trace((dataclasses.replace(COPY, count=0),)), Trace((dataclasses.replace(COPY, grid=(0, 1, 1)),))]
)  # fmt: skip
def test_what_was_not_all_counted_is_not_modelled(trace: Trace) -> None:
    assert isinstance(model(trace, (), None, H200, TF32, "forward", 40), NotModelled)


def test_operators_are_counted_with_their_operands_and_views_are_none() -> None:
    x, w = torch.ones(8, 16), torch.ones(16, 32)
    with Operators() as seen:
        y = (x @ w).view(-1)[:16].t()
        torch.empty(1000)
        y.add_(1)
    found = {name: rest for name, *rest in seen.uses()}
    assert found == {"mm": [1, 4 * (128 + 512 + 256), 2 * 8 * 16 * 32], "add_": [1, 4 * 32, 0]}


def emulated(name: str, time_ms: float) -> Verdict:
    found = Modelled(time_ms, "forward", "NVIDIA H200", "full size", 1e6, 0.0, 1, ())
    return Verdict(name, Passed(), timing=NotMeasured("the emulator"), modelled=found)


def model_run() -> Run:
    return a_run(emulated("slow", 2.0), VERDICTS[0], emulated("fast", 1.0), emulated("as_fast", 1.005), VERDICTS[3])


def test_modelled_candidates_rank_among_themselves_and_behind_what_was_measured() -> None:
    run = model_run()
    assert [verdict.candidate for _, verdict in run.ranked][:4] == ["plain_pytorch", "fast", "as_fast", "slow"]
    assert run.modelled_ranks == {"fast": 1, "as_fast": 1, "slow": 3}
    assert run.best == "plain_pytorch"
    assert all(verdict.runtime_ms == -1 for verdict in run.verdicts if verdict.candidate in run.modelled_ranks)


def test_a_record_keeps_modelled_times_apart() -> None:
    data = model_run().to_json()
    again = run_from_json(data)
    assert again.modelled_ranks == model_run().modelled_ranks
    entry = next(one for one in data["candidates"] if one["name"] == "fast")
    assert (entry["runtime_ms"], entry["rank"], entry["modelled_rank"]) == (-1.0, 2, 1)
    for one in data["candidates"]:
        del one["modelled"]  # a record of before
    assert run_from_json(data).modelled_ranks == {}
