"""The floor: which resource limits, at which precision, in which words; and the rates it is told from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contract import CONTRACTS, Contract
from crucible.errors import JudgeError
from crucible.gpus import GPUS, Gpu, find_gpu
from crucible.roofline import Floor, Rates, Work, floor, from_datasheet, here

H200 = Rates(4250.0, 51.0, 416.0, 734.0, "measured here")
amounts = st.integers(0, 10**15)
works = st.builds(Work, st.just("forward"), amounts, amounts, amounts)
contracts = st.sampled_from(list(CONTRACTS.values()))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (
            Work("forward", 2_031_933_952, 190_451_810_304, 1_763_442_688),
            Floor(
                "forward",
                0.47810210635294115,
                "memory",
                "0.478 ms: 2.03 GB at 4.25 TB/s (190 GFLOP of matrix products at 416 TFLOP/s take 0.458 ms)",
            ),
        ),
        (
            Work("forward+backward", 4_332_359_168, 571_355_430_912, 4_849_467_392),
            Floor(
                "forward+backward",
                1.373450555076923,
                "matrix products",
                "1.37 ms: 571 GFLOP of matrix products at 416 TFLOP/s (4.33 GB at 4.25 TB/s take 1.02 ms)",
            ),
        ),
        (
            Work("forward", 4_000_000, 0, 51_000_000_000),
            Floor(
                "forward",
                1.0,
                "other arithmetic",
                "1 ms: 51 GFLOP of other arithmetic at 51 TFLOP/s (4 MB at 4.25 TB/s take 0.000941 ms)",
            ),
        ),
        (
            Work("forward", 999_600, 0, 0),
            Floor("forward", 999_600 / 4.25e9, "memory", "0.000235 ms: 1 MB at 4.25 TB/s"),
        ),
        (Work("forward", 0, 0, 0), Floor("forward", 0.0, "memory", "0 ms: 0 B at 4.25 TB/s")),
    ],
)
def test_a_floor_and_its_words(work: Work, expected: Floor) -> None:
    found = floor(work, H200, CONTRACTS["tf32"])
    assert (found.covers, found.limited_by, found.words) == (expected.covers, expected.limited_by, expected.words)
    assert found.time_ms == pytest.approx(expected.time_ms)


@pytest.mark.parametrize(
    ("contract", "tflops"), [("fp32", 734 / 3), ("tf32", 416), ("kernelbench", 416), ("bf16", 734)]
)
def test_products_run_at_the_contracts_precision(contract: str, tflops: float) -> None:
    """fp32 on an H200 is fastest as three products of fp16."""
    found = floor(Work("forward", 0, 10**12, 0), H200, CONTRACTS[contract])
    assert found.time_ms == pytest.approx(1e3 / tflops)
    assert ("three products of fp16 each" in found.words) == (contract == "fp32")


def test_fp32_without_tensor_cores_is_plain() -> None:
    found = floor(Work("forward", 0, 10**12, 0), Rates(20.0, 1.0, 1.0, 2.0, "a processor"), CONTRACTS["fp32"])
    assert found.words == "1e+03 ms: 1 TFLOP of matrix products at 1 TFLOP/s"


@given(work=works, more=works, contract=contracts)
def test_more_work_never_takes_less(work: Work, more: Work, contract: Contract) -> None:
    both = Work(
        "forward",
        work.bytes_moved + more.bytes_moved,
        work.matrix_flops + more.matrix_flops,
        work.other_flops + more.other_flops,
    )
    separate = [floor(w, H200, contract).time_ms for w in (work, more)]
    assert max(separate) <= floor(both, H200, contract).time_ms <= sum(separate) * (1 + 1e-9)


@given(work=works)
def test_a_looser_contract_never_takes_more(work: Work) -> None:
    times = [floor(work, H200, CONTRACTS[name]).time_ms for name in ("bf16", "tf32", "fp32")]
    assert times == sorted(times)


@given(work=works, contract=contracts)
def test_records_are_plain_data(work: Work, contract: Contract) -> None:
    for record in (work, H200, floor(work, H200, contract)):
        again = json.loads(json.dumps(dataclasses.asdict(record)))
        assert type(record)(**again) == record


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.short_name)
def test_a_datasheet_gives_all_rates(gpu: Gpu) -> None:
    rates = from_datasheet(gpu)
    assert min(rates.bandwidth_gb_s, rates.fp32_tflops, rates.tf32_tflops, rates.bf16_tflops) > 0
    assert rates.source == f"{gpu.name} datasheet"


def test_the_datasheet_of_an_h200_is_above_what_was_measured_on_one() -> None:
    gpu = find_gpu("h200")
    assert gpu is not None
    work = Work("forward", 10**9, 10**12, 10**9)
    for contract in CONTRACTS.values():
        assert floor(work, from_datasheet(gpu), contract).time_ms < floor(work, H200, contract).time_ms


def test_rates_are_measured_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file beside the caller nor PYTHONPATH gets in its way."""
    (tmp_path / "torch.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "json.py").write_text("raise SystemExit('nor this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rates = here(kind="cpu")
    assert rates.source == "measured here"
    assert 0.1 < rates.bandwidth_gb_s < 1e5
    assert rates.fp32_tflops == rates.tf32_tflops <= rates.bf16_tflops


def test_a_measurement_that_fails_says_why() -> None:
    with pytest.raises(JudgeError, match=r"rates failed: .*no device 'tpu': choose auto, cuda, cpu or emulator"):
        here(kind="tpu")
    with pytest.raises(JudgeError, match=r"took longer than 0\.01 s"):
        here(0.01, kind="cpu")
