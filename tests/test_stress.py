"""Beyond a task's own inputs: what the judge tries there, what it says of who fails, and what it leaves alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import crucible
from crucible.judge.boundary.layouts import CONTIGUOUS, EXPANDED, MISALIGNED, STRIDED, TRANSPOSED, laid_out
from crucible.judge.oracle import compare
from crucible.judge.oracle.compare import Difference, Expected
from crucible.judge.oracle.oracle import Oracle
from crucible.judge.oracle.stress import CONTENTS, at_boundaries, changed, repeated
from crucible.judge.verdict.stressed import NOT_TRIED, RIGHT
from crucible.judge.verdict.verdict import Fragile, Wrong, from_json, to_json
from support import CHEATS, TESTS, claims, some, write
from test_cheats import check, expectation
from test_oracle import prepared, returning, source

TASK = TESTS / "data/stressed_task"
FILES = sorted((CHEATS / "stressed").glob("*.py"))
OF_GRADIENTS = (
    "bounds_the_cotangent",
    "keeps_weights_between_loads",
    "reads_cotangents_memory",
    "writes_grad_in_forward",
)
LIMITS = crucible.Limits(race_s=0.05, shrink_s=0, stress_s=120)
shapes = st.lists(st.integers(1, 5), min_size=0, max_size=4)
by_rule = {contents.rule: contents for contents in CONTENTS}


def rules_of(file: Path) -> set[str]:
    found = re.search(r"^Rule: (.+)$", file.read_text(), re.MULTILINE)
    return set(found[1].split("; ")) if found else set()


def stressed(oracle: Oracle) -> dict[str, str]:
    """The rules that are tried, and how."""
    return {case["rule"]: case["how"] for case in oracle.stress(60)["cases"]}


# --- what is tried


@given(shapes, st.sampled_from([CONTIGUOUS, TRANSPOSED, STRIDED, MISALIGNED]))
def test_a_layout_changes_strides_and_nothing_else(shape: list[int], layout: str) -> None:
    tensor = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    other = laid_out(tensor, layout)
    assert torch.equal(other, tensor)
    assert other.dtype == tensor.dtype
    if layout != CONTIGUOUS and tensor.dim():
        assert other.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
    if layout == STRIDED and tensor.dim() and shape[-1] > 1:
        assert other.stride(-1) == 2
    if layout == MISALIGNED and tensor.dim():
        assert other.storage_offset() == 1


@given(shapes)
def test_what_is_repeated_expands_to_itself(shape: list[int]) -> None:
    tensor = repeated(torch.randn(shape))
    assert torch.equal(laid_out(tensor, EXPANDED), tensor)
    assert torch.equal(laid_out(torch.ones(shape), EXPANDED), torch.ones(shape))
    strides = laid_out(torch.ones(shape), EXPANDED).stride()
    assert all(stride == 0 for stride, size in zip(strides, shape, strict=True) if size > 1)


def test_of_a_matrix_columns_and_of_images_channels_are_in_order() -> None:
    assert laid_out(torch.rand(3, 5), TRANSPOSED).stride() == (1, 3)
    assert laid_out(torch.rand(2, 3, 4, 5), TRANSPOSED).is_contiguous(memory_format=torch.channels_last)


@given(st.sampled_from(CONTENTS), st.integers(1, 40), st.integers(0, 9), st.booleans())
def test_contents_keep_form_and_integers_and_can_be_made_again(
    contents: object, elements: int, seed: int, sixteen: bool
) -> None:
    dtype = torch.bfloat16 if sixteen else torch.float32
    tensors = [torch.rand(elements).to(dtype), torch.arange(3)]
    rule = by_rule[contents.rule]  # type: ignore[attr-defined]
    new, again = (changed(tensors, rule, seed) for _ in range(2))
    if new is not None and again is not None:
        assert [(t.shape, t.dtype) for t in new] == [(t.shape, t.dtype) for t in tensors]
        assert torch.equal(new[1], tensors[1])
        assert torch.equal(new[0].nan_to_num(), again[0].nan_to_num())
        assert bool(new[0].isfinite().all()) == (not rule.nan or elements == 0)


@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=20))
def test_signs_change_only_where_none_is_negative(values: list[float]) -> None:
    tensor = torch.tensor(values)
    new = by_rule["negative values"].make(tensor, torch.Generator().manual_seed(0))
    assert torch.equal(new.abs(), tensor.abs())
    assert (tensor < 0).any() <= torch.equal(new, tensor)


@given(st.integers(2, 50), st.integers(1, 30), st.lists(st.integers(0, 1), max_size=1))
def test_indices_stay_within_the_rows(rows: int, count: int, special: list[int]) -> None:
    new = at_boundaries(torch.full((count,), 1), rows, special)
    assert set(new.tolist()) <= {*special, rows - 1, 0, 1}
    assert count < 3 or {*special, rows - 1, 0} <= set(new.tolist())


# --- what counts


def test_only_what_the_reference_takes_is_tried(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, returning("torch.sqrt(x.view(-1))", "torch.rand(batch, 3, 6, 6)"))
    rules = stressed(oracle)
    assert not {"negative values", "transposed input", "expanded input"} & set(rules)
    assert {"large values", "misaligned input", "another shape", "NaN"} <= set(rules)
    left_out = oracle.stress(60)["left_out"]
    assert "has NaN" in left_out["negative values"]
    assert "the reference raises" in left_out["transposed input"]


def test_what_float32_and_float64_answer_differently_is_left_out(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, returning("x.pow(-8)", "torch.rand(batch, 3) + 1"))
    assert "tiny values" not in stressed(oracle)


def test_cases_are_small_whatever_the_tasks_own_size(tmp_path: Path) -> None:
    text = returning("torch.relu(x)", "torch.randn(batch * 2, 250, 280)")
    oracle = prepared(tmp_path, text, secrets=[[], []])
    told = oracle.stress(60)["cases"]
    assert told[0]["needed"] and told[0]["how"] == "14 of its 16 batch items"
    assert all(output["shape"][0] <= 15 for one in told for output in one["case"]["outputs"])


def test_the_benchmarks_own_rule_knows_its_own_inputs_alone(tmp_path: Path) -> None:
    assert stressed(prepared(tmp_path, returning("torch.relu(x)"), contract="kernelbench")) == {}


def test_in_little_time_some_rules_are_left_out(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, returning("torch.relu(x)"))
    told = oracle.stress(0.0)
    assert len(told["cases"]) == 1
    assert "over 0 s" in told["left_out"]["others"]


def test_an_index_that_pads_is_among_the_boundaries(tmp_path: Path) -> None:
    body = "\n        self.table = nn.Embedding(9, 4, padding_idx=2)\n    def forward(self, i):\n"
    oracle = prepared(tmp_path, source(f"{body}        return self.table(i)\n", "torch.randint(3, 8, (batch,))"))
    assert stressed(oracle)["boundary indices"] == "indices 0, the last, padding"
    (case,) = (case for case in oracle.stressed.values() if 8 in case.inputs[0])
    assert {0, 2, 8} <= set(case.inputs[0].tolist())
    assert not case.gradients["table.weight"].values.view(9, 4)[2].any()


def test_gradients_that_cancel_may_be_as_far_off_as_others(tmp_path: Path) -> None:
    """Behind a norm, of cotangents that are all one, roundings alone are left: honest candidates were convicted."""
    layer = "\n        self.each = nn.Linear(6, 20)\n"
    body = f"{layer}    def forward(self, x):\n        return F.layer_norm(self.each(x), (20,))\n"
    oracle = prepared(tmp_path, source(body), training=True)
    cases = {one["rule"]: oracle.stressed[one["case"]["index"]] for one in oracle.stress(60)["cases"]}
    cancelling, other = (cases[rule].gradients for rule in ("expanded cotangent", "gradients at new weights"))
    assert float(cancelling["each.weight"].values.abs().max()) < 1e-9 * other["each.weight"].scale
    for name, expected in cancelling.items():
        assert expected.scale >= other[name].scale > 0.01
        assert expected.relative_l2_allowed >= other[name].relative_l2_allowed
        assert expected.peak_allowed >= other[name].peak_allowed


def test_what_is_left_of_gradients_that_cancel_is_noise_though_the_scale_is_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch norm leaves nothing of a bias's gradient, and magnifies roundings: right ones were 1.5 times further off
    than allowed."""
    layers = ("nn.ConvTranspose2d(3, 16, 3, stride=2)", "nn.BatchNorm2d(16)")
    made = "".join(f"\n        self.{name} = {layer}" for name, layer in zip(("each", "norm"), layers, strict=True))
    text = source(f"{made}\n    def forward(self, x):\n        return self.norm(torch.softmax(self.each(x), 1))\n")

    def gradients(folder: Path) -> dict[str, Expected]:
        oracle = prepared(folder, text, training=True, contract="fp32")
        (case,) = (one for one in oracle.stress(60)["cases"] if one["rule"] == "expanded cotangent")
        return oracle.stressed[case["case"]["index"]].gradients

    wide = gradients(tmp_path / "wide")
    monkeypatch.setattr(compare, "CANCELS", 1.0)
    narrow = gradients(tmp_path / "narrow")
    for name in ("each.bias", "norm.weight"):
        assert wide[name].relative_l2_allowed > 3 * narrow[name].relative_l2_allowed
        assert wide[name].peak_allowed > 3 * narrow[name].peak_allowed
    assert wide["norm.bias"].relative_l2_allowed == narrow["norm.bias"].relative_l2_allowed  # ones, summed


def test_expanded_cotangents_have_nothing_where_a_kink_is_near(tmp_path: Path) -> None:
    """TF32 carries a ReLU or two over its knee: which side is right there is nobody's to say, of others it is."""
    body = (
        "\n        self.each = nn.Linear(6, 20)\n    def forward(self, x):\n        return torch.relu(self.each(x))\n"
    )
    oracle = prepared(tmp_path, source(body), training=True, contract="tf32")
    (told,) = (one for one in oracle.stress(60)["cases"] if one["rule"] == "expanded cotangent")
    case = oracle.stressed[told["case"]["index"]]
    (cotangent,), (silent,) = case.cotangents, case.silent
    assert "nothing where any is near a kink" in told["how"] and len(silent)
    assert not cotangent.view(-1)[silent].any() and cotangent.mean() > 0.8
    laid = laid_out(cotangent, EXPANDED)
    assert torch.equal(laid, cotangent) and laid.stride(0) == 0 and laid.stride(-1) == 1
    x, weight, bias = (t.double() for t in (case.inputs[0], case.state["each.weight"], case.state["each.bias"]))
    on = (torch.nn.functional.linear(x, weight, bias) > 0) * cotangent
    torch.testing.assert_close(case.gradients["each.bias"].values, on.sum((0, 1, 2)), check_dtype=False)


@pytest.mark.parametrize(
    ("dtype", "size", "times"),
    [("float32", 1e3, 1024.0), ("bfloat16", 1e3, 1024.0), ("float16", 1e-2, 1024.0), ("float16", 10, 32.0)],
)
def test_cotangents_grow_as_far_as_gradients_have_room(tmp_path: Path, dtype: str, size: float, times: float) -> None:
    """Float16 ends at 65504. A gradient here is the sum of 144 terms."""
    asked = _scaled_cotangents(tmp_path, dtype, size)
    assert [one["factor"] for one in asked["cases"] if one["rule"] == "scaled cotangent"] == [times]


def test_where_gradients_fill_float16_cotangents_stay(tmp_path: Path) -> None:
    """Twice as large already an exact copy would have infinities."""
    asked = _scaled_cotangents(tmp_path, "float16", 2e3)
    assert "scaled cotangent" not in {one["rule"] for one in asked["cases"]}
    assert "overflow" in asked["left_out"]["scaled cotangent"]


def _scaled_cotangents(tmp_path: Path, dtype: str, size: float) -> dict[str, Any]:
    layer = f"\n        self.times = nn.Parameter(torch.ones(6, dtype=torch.{dtype}))\n"
    body = f"{layer}    def forward(self, x):\n        return x * self.times\n"
    inputs = f"(torch.randn(batch, 3, 6, 6) * {size}).to(torch.{dtype})"
    return prepared(tmp_path, source(body, inputs), training=True, contract="tf32").stress(60)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_exact_copy_in_16_bits_passes(dtype: str, tmp_path: Path) -> None:
    """Of a bias in front of a batch norm the gradient is what rounding leaves, and that depends on strides."""
    body = (
        f"\n        self.conv, self.norm = nn.Conv2d(3, 8, 3).to(torch.{dtype}), nn.BatchNorm2d(8).to(torch.{dtype})\n"
        "    def forward(self, x):\n        return self.norm(self.conv(x))\n"
    )
    text = source(body, f"torch.randn(8, 3, 40, 40).to(torch.{dtype})")
    task = write(tmp_path / "reference.py", text)
    copy = write(tmp_path / "c.py", text.replace("class Model", "class ModelNew"))
    (verdict,) = crucible.judge(task, [copy], training=True, device="cpu", seed=5, limits=LIMITS).verdicts
    assert verdict.evaluation, verdict.outcome.words
    tried = {one.rule for one in verdict.stress if one.came == RIGHT}
    assert {"scaled cotangent", "strided cotangent", "expanded cotangent"} <= tried


def test_where_each_output_is_near_a_kink_nothing_is_expanded(tmp_path: Path) -> None:
    """Of one maximum an item, one of which may be either of two, a cotangent that is alike for all has nothing."""
    layers = "\n        self.register_buffer('times', torch.tensor([1 + 1e-6] + 7 * [3.0]).view(8, 1, 1, 1))"
    larger = "torch.cat([self.each(x), self.each(x) * self.times], 1).abs().amax((1, 2, 3))"
    body = f"{layers}\n        self.each = nn.Linear(6, 20)\n    def forward(self, x):\n        return {larger}\n"
    told = prepared(tmp_path, source(body), training=True, contract="tf32").stress(60)
    assert "expanded cotangent" not in {one["rule"] for one in told["cases"]}
    assert "near a kink" in told["left_out"]["expanded cotangent"]


def test_of_buffers_those_that_forward_changes_are_known(tmp_path: Path) -> None:
    body = "\n        self.norm = nn.BatchNorm2d(3)\n    def forward(self, x):\n        return self.norm(x)\n"
    changed_in = {
        mode: prepared(tmp_path / mode, source(body), mode=mode).stress(60)["cases"][0]["case"]["buffers"]
        for mode in ("train", "eval")
    }
    assert set(changed_in["train"]) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert changed_in["eval"] == []


@pytest.mark.parametrize(("got", "ok"), [([1.0, torch.nan], True), ([1.0, 2.0], False), ([torch.nan] * 2, False)])
def test_nan_must_be_where_the_answer_has_it(got: list[float], ok: bool) -> None:
    expected = Expected(
        "output", torch.tensor([1.0, torch.nan], dtype=torch.float64), torch.float32, (2,), 1.0, 1e-6, 1e-6
    )
    difference = Difference(expected)
    difference.add(torch.tensor(got))
    assert difference.result(0).ok is ok


def test_what_a_linear_map_gives_of_more_is_more() -> None:
    expected = Expected("gradient of x", torch.tensor([1.0, -2.0], dtype=torch.float64), torch.float32, (2,), 1.5)
    larger = expected.times(1024.0)
    assert larger.values.tolist() == [1024.0, -2048.0]
    assert larger.scale == 1536.0


# --- what candidates do


@pytest.fixture(scope="module")
def verdicts(judge_batch: Callable[..., crucible.Run]) -> dict[str, crucible.Verdict]:
    return {verdict.candidate: verdict for verdict in judge_batch(TASK, FILES, limits=LIMITS).verdicts}


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_gets_the_verdict_its_file_names_for_its_rule(file: Path, verdicts: dict[str, crucible.Verdict]) -> None:
    verdict = verdicts[file.stem]
    check(file, verdict)
    failed = {one.rule for one in verdict.stress if one.failed}
    failed |= {"buffers"} if getattr(verdict.outcome, "what", "") == "buffers" else set()  # known before any of these
    assert rules_of(file) <= failed if rules_of(file) else not failed


def test_honest_candidates_stand_every_rule(verdicts: dict[str, crucible.Verdict]) -> None:
    for name in ("honest_plain", "honest_kernels_way"):
        stress = verdicts[name].stress
        assert {one.came for one in stress} == {RIGHT}
        assert set().union(*map(rules_of, FILES)) == {one.rule for one in stress}, "each rule has who breaks it"
        assert "fragile" not in claims(verdicts[name])


def test_a_record_of_it_comes_back_from_json(verdicts: dict[str, crucible.Verdict]) -> None:
    verdict = verdicts["drops_nan"]
    assert from_json(to_json(verdict)).stress == verdict.stress


def test_where_the_task_asks_for_training_its_rules_decide(judge_batch: Callable[..., crucible.Run]) -> None:
    chosen = [*some(OF_GRADIENTS, 2), "ignores_padding_idx", "updates_no_statistics", "drops_nan", "honest_kernels_way"]
    run = judge_batch(TASK, [CHEATS / f"stressed/{name}.py" for name in chosen], training=True, limits=LIMITS)
    outcomes = {verdict.candidate: verdict.outcome for verdict in run.verdicts}
    assert outcomes.pop("drops_nan").kind == outcomes.pop("honest_kernels_way").kind == "passed"
    assert {name for name, outcome in outcomes.items() if not isinstance(outcome, Wrong)} == set()
    wrong = outcomes["updates_no_statistics"]
    assert isinstance(wrong, Wrong) and wrong.what == "buffers"


def test_strict_asks_for_all_of_it(judge_batch: Callable[..., crucible.Run]) -> None:
    chosen = [CHEATS / f"stressed/{name}.py" for name in ("drops_nan", "honest_plain")]
    run = judge_batch(TASK, chosen, strict=True, limits=LIMITS)
    outcome = run.verdict("drops_nan").outcome
    assert isinstance(outcome, Fragile) and outcome.rules == ("NaN",)
    assert run.verdict("drops_nan").runtime_ms == -1
    assert run.verdict("honest_plain").evaluation


ENDS_ITSELF = """
import os
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        if x.isnan().any():
            os.abort()
        return nn.functional.leaky_relu(self.linear(x), 0.1) * self.scale + self.bias
"""


def test_a_process_that_ends_takes_the_later_rules_along_and_nothing_else(
    judge_source: Callable[..., crucible.Verdict],
) -> None:
    verdict = judge_source(ENDS_ITSELF, limits=LIMITS)
    assert verdict.evaluation and verdict.runtime_ms > 0
    came = {one.rule: one.came for one in verdict.stress}
    assert came["NaN"] == "wrong"
    assert came["transposed input"] == NOT_TRIED
    assert came["zeros"] == RIGHT


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_says_what_to_expect(file: Path) -> None:
    assert expectation(file).kinds in (("passed",), ("wrong",))
    assert bool(rules_of(file)) is not file.stem.startswith("honest_")
