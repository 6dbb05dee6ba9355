"""Which variant of the reference a wrong answer is the answer of: planted ones are found, others are not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

import crucible
from crucible.judge.boundary.bundles import raw_bytes
from crucible.judge.diagnosis import variants
from crucible.judge.diagnosis.edits import Edit, general_edits
from crucible.judge.diagnosis.mistakes import edits_of
from crucible.judge.diagnosis.variants import Search
from crucible.judge.oracle import compare
from crucible.judge.oracle.compare import Expected
from crucible.judge.oracle.oracle import Oracle
from crucible.judge.oracle.recorded import Recording, Unfit, record
from crucible.judge.verdict.evidence import NoVariant, Variant
from crucible.judge.verdict.verdict import from_json, to_json
from crucible.run import candidate_json
from support import TASKS, claims, some, write
from test_oracle import compared, prepared, returning, source

FILE = Path(__file__).name
Function = Callable[[Any], torch.Tensor]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most pairs here take less than this."""
    monkeypatch.setattr(variants, "PAIRS_S", 0.5)


def tensors(dtype: torch.dtype = torch.float64) -> SimpleNamespace:
    """What the functions of these tests work on."""
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    return SimpleNamespace(
        x=random(2, 4, 6, 6),
        y=random(2, 4, 6, 6),
        wide=random(2, 4, 6, 6) * 3 + 1,
        rows=random(5, 8),
        w=random(3, 4, 3, 3),
        same=random(4, 4, 3, 3),
        up=random(4, 3, 3, 3),
        b=random(3),
        scale=random(4, 1, 1),
        matrix=random(6, 8),
        square=random(6, 6),
        gain=random(4),
        shift=random(4),
    )


def recorded(function: Function) -> Recording:
    given = tensors()
    return record(lambda: [function(given)], vars(given), __file__)


def expected_of(values: torch.Tensor, allowed: float) -> list[Expected]:
    rms = float(values.square().mean().sqrt())
    return [Expected("output", values.reshape(-1), torch.float32, tuple(values.shape), rms, allowed, 8 * allowed)]


def looked_up(reference: Function, answer: torch.Tensor, allowed: float = 2e-6) -> Variant | NoVariant:
    """What the search says of an answer, in float32."""
    expected = expected_of(reference(tensors()), allowed)
    return Search(recorded(reference), expected, [answer.float().reshape(-1)], FILE).run()


def all_words(found: Variant | NoVariant) -> str:
    assert isinstance(found, Variant), found
    return "\n".join([found.words, *found.alike])


def kept(x: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    return x[tuple(slice(0, n) for n in size)]


PLANTED: list[tuple[str, Function, Function]] = [
    ("gelu(approximate='tanh') in place of 'none'", lambda t: F.gelu(t.x), lambda t: F.gelu(t.x, approximate="tanh")),
    ("gelu(approximate='none') in place of 'tanh'", lambda t: F.gelu(t.x, approximate="tanh"), lambda t: F.gelu(t.x)),
    ("leaky_relu(negative_slope=0.01) in place of 0.2", lambda t: F.leaky_relu(t.x, 0.2), lambda t: F.leaky_relu(t.x)),
    ("relu left out", lambda t: torch.relu(t.x) + 1, lambda t: t.x + 1),
    ("y left out of add", lambda t: torch.sigmoid(t.x) + t.y, lambda t: torch.sigmoid(t.x)),
    ("scale left out of mul", lambda t: torch.tanh(t.x) * t.scale, lambda t: torch.tanh(t.x)),
    ("all that follows tanh left out", lambda t: torch.relu(torch.tanh(t.x) * 3) + 1, lambda t: torch.tanh(t.x)),
    ("clamp without its upper bound", lambda t: t.x.clamp(-1, 1), lambda t: t.x.clamp(min=-1)),
    ("clamp without its lower bound", lambda t: t.x.clamp(-1, 1), lambda t: t.x.clamp(max=1)),
    ("mul and clamp exchanged", lambda t: (t.x * t.scale).clamp(-1, 1), lambda t: t.x.clamp(-1, 1) * t.scale),
    ("softmax over dimension 1 in place of 3", lambda t: t.x.softmax(-1), lambda t: t.x.softmax(1)),
    ("log_softmax in place of softmax", lambda t: t.x.softmax(1), lambda t: t.x.log_softmax(1)),
    (
        "softmax over dimension 3 of 2x4x6x6 in place of dimension 2",
        lambda t: t.x.flatten(2).softmax(2),
        lambda t: t.x.softmax(3).flatten(2),
    ),
    ("mean in place of sum", lambda t: t.x.sum((2, 3)), lambda t: t.x.mean((2, 3))),
    ("sum in place of mean", lambda t: t.x.mean((2, 3)), lambda t: t.x.sum((2, 3))),
    ("mean(dim=2) in place of 3", lambda t: t.x.mean(3), lambda t: t.x.mean(2)),
    ("var(correction=0) in place of 1", lambda t: t.x.var(1), lambda t: t.x.var(1, correction=0)),
    ("std(correction=1) in place of 0", lambda t: t.x.std(1, correction=0), lambda t: t.x.std(1)),
    ("avg_pool2d in place of max_pool2d", lambda t: F.max_pool2d(t.x, 2), lambda t: F.avg_pool2d(t.x, 2)),
    ("max_pool2d in place of avg_pool2d", lambda t: F.avg_pool2d(t.x, 2), lambda t: F.max_pool2d(t.x, 2)),
    (
        "avg_pool2d(count_include_pad=False) in place of True",
        lambda t: F.avg_pool2d(t.x, 3, 1, 1),
        lambda t: F.avg_pool2d(t.x, 3, 1, 1, count_include_pad=False),
    ),
    ("w read as if laid out [in, out, ...]", lambda t: F.conv2d(t.x, t.w), lambda t: F.conv2d(t.x, relaid(t.w))),
    ("up read as if laid out [out, in, ...]", lambda t: conv_up(t, t.up), lambda t: conv_up(t, relaid(t.up))),
    ("the kernel of conv flipped", lambda t: F.conv2d(t.x, t.w), lambda t: F.conv2d(t.x, t.w.flip(2, 3))),
    ("the bias of conv left out", lambda t: F.conv2d(t.x, t.w, t.b), lambda t: F.conv2d(t.x, t.w)),
    (
        "the bias of conv read at its first element only",
        lambda t: F.conv2d(t.x, t.w, t.b),
        lambda t: F.conv2d(t.x, t.w, t.b[0].expand(3)),
    ),
    (
        "the last of 4 input channels of conv left out",
        lambda t: F.conv2d(t.x, t.w, t.b),
        lambda t: F.conv2d(t.x[:, :3], t.w[:, :3], t.b),
    ),
    (
        "the last of 4 input channels of conv_transpose left out",
        lambda t: conv_up(t, t.up),
        lambda t: F.conv_transpose2d(t.x[:, :3], t.up[:3], t.b, stride=2),
    ),
    (
        "the last 2 of 6 terms of each sum of matmul left out",
        lambda t: t.square @ t.matrix,
        lambda t: t.square[:, :4] @ t.matrix[:4],
    ),
    (
        "the padding of conv ignored",
        lambda t: F.conv2d(t.x, t.w, padding=1),
        lambda t: F.conv2d(F.pad(t.x, (0, 2, 0, 2)), t.w),
    ),
    (
        "the padding of conv_transpose ignored",
        lambda t: F.conv_transpose2d(t.x, t.up, padding=1),
        lambda t: kept(F.conv_transpose2d(t.x, t.up), (2, 3, 6, 6)),
    ),
    (
        "reflect padding in conv in place of zeros",
        lambda t: F.conv2d(t.x, t.w, padding=1),
        lambda t: F.conv2d(F.pad(t.x, (1, 1, 1, 1), mode="reflect"), t.w),
    ),
    (
        "scale along dimension 3 in place of 1",
        lambda t: t.x * t.scale,
        lambda t: t.x * t.scale.flatten()[torch.arange(6) % 4],
    ),
    ("scale read at its first element only", lambda t: t.x * t.scale, lambda t: t.x * t.scale[0]),
    (
        "matrix (6x8) read as if it lay 8x6 in memory",
        lambda t: t.rows @ t.matrix.t(),
        lambda t: t.rows @ t.matrix.reshape(8, 6),
    ),
    ("square (6x6) read as if it lay 6x6 in memory", lambda t: F.linear(t.x, t.square), lambda t: t.x @ t.square),
    (
        "layer_norm(eps=1e-05) in place of 0.1",
        lambda t: F.layer_norm(t.x, (6,), eps=0.1),
        lambda t: F.layer_norm(t.x, (6,)),
    ),
    (
        "the sample variance (n - 1) in batch_norm",
        lambda t: F.batch_norm(t.wide, None, None, t.gain, t.shift, True),
        lambda t: sample_norm(t.wide, (0, 2, 3)) * t.gain.view(4, 1, 1) + t.shift.view(4, 1, 1),
    ),
    (
        "the weight of group_norm left out",
        lambda t: F.group_norm(t.x, 2, t.gain, t.shift),
        lambda t: F.group_norm(t.x, 2, None, t.shift),
    ),
    (
        "upsample_bilinear2d(align_corners=True) in place of False",
        lambda t: F.interpolate(t.x, scale_factor=2, mode="bilinear"),
        lambda t: F.interpolate(t.x, scale_factor=2, mode="bilinear", align_corners=True),
    ),
    ("the operands of sub exchanged", lambda t: t.x - t.y, lambda t: t.y - t.x),
    ("the operands of cat in the other order", lambda t: torch.cat([t.x, t.y], 1), lambda t: torch.cat([t.y, t.x], 1)),
    ("cumsum from the end", lambda t: t.x.cumsum(1), lambda t: t.x.flip(1).cumsum(1).flip(1)),
    ("relu in place of gelu", lambda t: F.gelu(t.x), lambda t: torch.relu(t.x)),
    (
        "the operands of conv rounded to bfloat16",
        lambda t: F.conv2d(t.x, t.w),
        lambda t: F.conv2d(t.x.bfloat16().double(), t.w.bfloat16().double()),
    ),
    (
        "the result of conv rounded to float16",
        lambda t: F.conv2d(t.x, t.w).sigmoid(),
        lambda t: F.conv2d(t.x.float(), t.w.float()).half().float().sigmoid(),
    ),
]


def relaid(weight: torch.Tensor) -> torch.Tensor:
    one, two, *rest = weight.shape
    return weight.reshape(two, one, *rest).transpose(0, 1)


def conv_up(t: Any, weight: torch.Tensor) -> torch.Tensor:
    return F.conv_transpose2d(t.x, weight, t.b, stride=2)


def sample_norm(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    return (x - x.mean(dims, keepdim=True)) / (x.var(dims, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize(
    ("words", "reference", "wrong"), PLANTED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_planted_mistake_is_named(words: str, reference: Function, wrong: Function) -> None:
    found = looked_up(reference, wrong(tensors()))
    assert words in all_words(found)
    assert isinstance(found, Variant)
    assert found.error_to_variant <= found.error_to_reference / 2
    assert found.error_to_variant <= found.allowed or "rounded" in found.words
    assert looked_up(reference, reference(tensors())) == NoVariant("what was looked at of the answer is right")


def test_two_mistakes_are_named_with_their_lines() -> None:
    def reference(t: Any) -> torch.Tensor:
        x = F.leaky_relu(t.x, 0.2)
        x = x + t.scale
        return F.gelu(x)

    found = looked_up(reference, F.gelu(F.leaky_relu(tensors().x) + tensors().scale, approximate="tanh"))
    assert isinstance(found, Variant)
    assert found.edits == (
        "leaky_relu(negative_slope=0.01) in place of 0.2",
        "gelu(approximate='tanh') in place of 'none'",
    )
    first = reference.__code__.co_firstlineno + 1
    assert found.lines == (first, first + 2)
    assert f"({FILE}:{first}) and gelu" in found.words


def test_two_mistakes_in_one_operation_are_named() -> None:
    t = tensors()
    wrong = kept(F.conv_transpose2d(t.x, relaid(t.up), t.b), (2, 3, 6, 6))
    found = looked_up(lambda t: F.conv_transpose2d(t.x, t.up, t.b, padding=1), wrong)
    assert isinstance(found, Variant)
    assert set(found.edits) == {
        "up read as if laid out [out, in, ...]",
        "the padding of conv_transpose ignored",
    }
    assert found.words.count(FILE) == 1


def chain(t: Any) -> torch.Tensor:
    x = F.leaky_relu(F.conv2d(t.x, t.same, padding=1), 0.2) * t.scale
    return F.gelu(x.clamp(-1, 1))


NEARLY: list[tuple[str, Function]] = [
    ("zeros", lambda t: torch.zeros(2, 4, 6, 6)),
    ("a constant", lambda t: torch.full((2, 4, 6, 6), float(chain(t).mean()))),
    ("noise", lambda t: torch.randn(2, 4, 6, 6)),
    ("a factor", lambda t: chain(t) * 1.05),
    ("an offset", lambda t: chain(t) + 0.01),
    ("another slope", lambda t: F.gelu((F.leaky_relu(F.conv2d(t.x, t.same, padding=1), 0.3) * t.scale).clamp(-1, 1))),
    ("another bound", lambda t: F.gelu((F.leaky_relu(F.conv2d(t.x, t.same, padding=1), 0.2) * t.scale).clamp(-1, 1.3))),
    ("nearly tanh", lambda t: 0.7 * F.gelu(t.x) + 0.3 * F.gelu(t.x, approximate="tanh")),
    ("the batch reversed", lambda t: chain(t).flip(0)),
    ("one element", lambda t: chain(t).index_put((torch.tensor(0),) * 4, torch.tensor(9.0, dtype=torch.float64))),
    ("infinities", lambda t: chain(t) / (torch.arange(6) > 0)),
    ("half of it", lambda t: chain(t) * (torch.arange(6) < 3)),
]


HERE = some(NEARLY, 3, lambda each: each[0] in ("zeros", "noise"))


@pytest.mark.parametrize(("name", "wrong"), HERE, ids=[name for name, _ in HERE])
def test_another_function_is_given_no_cause(name: str, wrong: Function) -> None:
    found = looked_up(chain, wrong(tensors()), allowed=1e-3 if name == "noise" else 2e-6)
    assert isinstance(found, NoVariant), found.evidence
    constant = name in ("zeros", "a constant")
    assert found.reason.startswith("the answer is one value everywhere" if constant else "none of ")


def test_nan_is_no_variant() -> None:
    assert looked_up(chain, chain(tensors()) / 0 * 0) == NoVariant("the answer has NaN")


def test_variants_that_the_inputs_cannot_tell_apart_are_reported_together() -> None:
    """Nothing here is above 1, so clamping at 0 from below is all that the clamp does."""
    found = looked_up(lambda t: t.x.tanh().clamp(0.0, 2.0), tensors().x.tanh())
    assert isinstance(found, Variant)
    assert {"clamp left out", "clamp without its lower bound"} <= {
        w.split(" with ")[1].split(" (")[0] for w in [found.words, *found.alike]
    }
    assert "it cannot be told apart from the reference with" in found.evidence


def test_a_variant_that_equals_the_reference_says_nothing() -> None:
    """No value is negative: with or without the ReLU it is the same, and an answer that is off is neither."""
    found = looked_up(lambda t: torch.relu(t.x.sigmoid()), tensors().x.sigmoid() * (1 + 3e-6))
    assert isinstance(found, NoVariant)


def test_operations_in_place_are_replayed() -> None:
    def reference(t: Any) -> torch.Tensor:
        x = t.x.clone()
        x += t.y
        x.relu_()
        return x.mul_(t.scale)

    found = looked_up(reference, torch.relu(tensors().x) * tensors().scale)
    assert "y left out of add" in all_words(found)


@pytest.mark.parametrize(
    "reference",
    [lambda t: t.x.mul_(t.scale) + t.y, lambda t: torch.add(t.x * 2, t.y, out=t.x) + t.x],
    ids=["in place", "out"],
)
def test_a_reference_that_writes_to_its_input_is_replayed(reference: Function) -> None:
    """As often as one likes: what is written to is a copy."""
    recording = recorded(reference)
    for _ in range(2):
        everything = frozenset(range(len(recording.steps)))
        again = recording.replay({}, recording.values, everything)
        assert torch.equal(again[recording.outputs[0]], reference(tensors()))


def test_writing_through_a_view_is_no_false_cause() -> None:
    """It cannot be replayed operation by operation, and the search says so."""

    def reference(t: Any) -> torch.Tensor:
        x = t.x * 2
        x[:, 0] = 0
        return x.relu()

    found = looked_up(reference, tensors().x)
    assert found is variants.NOT_REPEATED


GIVEN = tensors()
UNARY: dict[str, Function] = {
    "relu": torch.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "softmax": lambda x: x.softmax(1),
    "norm": lambda x: F.layer_norm(x, (6,)),
    "scaled": lambda x: x * GIVEN.scale,
    "conv": lambda x: F.conv2d(x, GIVEN.same, padding=1),
    "pool": lambda x: F.avg_pool2d(x, 3, 1, 1),
}


def edits(recording: Recording) -> list[Edit]:
    return [*general_edits(recording), *(e for i in range(len(recording.steps)) for e in edits_of(recording, i))]


@settings(max_examples=25, deadline=None)
@example(names=["sigmoid", "gelu", "clamp", "clamp"], pick=47)
@given(names=st.lists(st.sampled_from(sorted(UNARY)), min_size=1, max_size=4), pick=st.integers(0, 10**6))
def test_whatever_edit_is_made_is_found(names: list[str], pick: int) -> None:
    """An answer that an edit gives is matched by it, or by another that gives the same; unless it changes nothing, or
    leaves one value everywhere, of which nothing is said."""

    def reference(t: Any) -> torch.Tensor:
        x = t.x
        for name in names:
            x = UNARY[name](x)
        return x

    recording = recorded(reference)
    possible = edits(recording)
    edit = possible[pick % len(possible)]
    right = recording.values[recording.outputs[0]]
    search = Search(recording, expected_of(right, 2e-6), [right.reshape(-1) + 1], FILE)
    values = search._replayed((edit,), recording.values, edit)
    if values is None:
        return  # it does not fit the shapes here
    sample = search._sampled(values)
    answer = values[recording.outputs[0]]
    found = looked_up(reference, answer)
    differs = bool((answer != answer.reshape(-1)[0]).any())
    if differs and answer.isfinite().all() and search._is_told_apart(values, sample) and not edit.rounds:
        assert edit.words in all_words(found) or len(found.alike) == variants.MOST_ALIKE  # type: ignore[union-attr]
    elif isinstance(found, Variant):
        assert found.error_to_variant <= found.error_to_reference / 2


def test_the_first_batch_items_stand_for_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of an answer that is too large the leading items are looked at, and of one that mixes them all of it."""
    monkeypatch.setitem(variants.MOST_ELEMENTS, "cpu", 300)
    oracle = prepared(tmp_path / "a", returning("F.gelu(x.tanh())"))
    x = oracle.cases[0].inputs[0]
    compared(oracle, 0, "forward", [F.gelu(x)])
    found = oracle.variant(0, "forward")
    assert isinstance(found, Variant)
    assert found.part == "the first 2 of 8 batch items"
    assert found.edits == ("tanh left out",)
    assert "on the first 2 of 8 batch items" in found.evidence

    mixing = prepared(tmp_path / "b", returning("F.gelu(x - x.mean(0))"))
    x = mixing.cases[0].inputs[0]
    compared(mixing, 0, "forward", [F.gelu(x)])
    found = mixing.variant(0, "forward")
    assert isinstance(found, Variant)
    assert found.part == ""
    assert mixing.variant(1, "forward") == NoVariant("it was never compared")


LINEAR = """
        self.linear = nn.Linear(6, 6)
        self.gain = nn.Parameter(torch.randn(6))
    def forward(self, x):
        x = F.leaky_relu(self.linear(x), 0.2)
        return F.gelu((x * self.gain).clamp(-1, 1)) + x
"""


@pytest.mark.parametrize(
    ("words", "hidden", "through"),
    [
        (
            "leaky_relu(negative_slope=0.01) in place of 0.2",
            lambda h: with_value(F.leaky_relu(h, 0.2), F.leaky_relu(h)),
            None,
        ),
        ("clamp left out", None, lambda p: with_value(p.clamp(-1, 1), p)),
        ("no gradient through the result of leaky_relu into mul", None, lambda p: p.detach().clamp(-1, 1)),
    ],
)
def test_wrong_gradients_are_those_of_another_function(tmp_path: Path, words: str, hidden: Any, through: Any) -> None:
    oracle = prepared(tmp_path, source(LINEAR, "torch.randn(batch, 6)"))
    case = oracle.cases[0]
    weights = {name: value.clone().requires_grad_() for name, value in case.state.items()}
    x = case.inputs[0].clone().requires_grad_()
    h = F.linear(x, weights["linear.weight"], weights["linear.bias"])
    h = (hidden or (lambda h: F.leaky_relu(h, 0.2)))(h)
    h2 = h if "no gradient" not in words else h.detach()
    product = h2 * weights["gain"]
    clamped = product.clamp(-1, 1) if through is None or "no gradient" in words else through(product)
    out = F.gelu(clamped) + h
    names = [name for name in case.gradients if name in ("linear.weight", "gain", "input[0]")]
    wanted = {"input[0]": x, **weights}
    gradients = torch.autograd.grad(out, [wanted[n] for n in names], oracle.answers.cotangents(case))
    seen = compared(oracle, 0, "gradient", list(gradients), tuple(names))
    assert any(t["relative_l2"] > t["relative_l2_allowed"] for t in seen["tensors"])
    found = oracle.variant(0, "gradient")
    assert words in all_words(found)
    assert found.words.startswith("the backward of the reference with ")  # type: ignore[union-attr]
    assert "on the gradient of " in found.evidence  # type: ignore[union-attr]
    compared(oracle, 0, "gradient", [g * 1.1 for g in gradients], tuple(names))
    assert isinstance(oracle.variant(0, "gradient"), NoVariant)


def with_value(value: torch.Tensor, derivative: torch.Tensor) -> torch.Tensor:
    return value.detach() + (derivative - derivative.detach())


def test_changed_integers_are_not_read_as_indices() -> None:
    """On a GPU an index out of range ends the process."""
    place = torch.tensor([1, 2])
    recording = recorded(lambda t: t.rows[:, place * 3])
    index = next(i for i, step in enumerate(recording.steps) if step.name == "mul")
    (left_out,) = (e for e in general_edits(recording) if index in e.changes and "left out" in e.words)
    with pytest.raises(Unfit, match="changed integers into index"):
        recording.replay({index: [left_out.changes[index]]}, recording.values, frozenset({index}))


def test_a_result_of_another_form_is_unfit() -> None:
    recording = recorded(lambda t: t.x.mean(3, keepdim=True) + t.x)
    edit = next(e for e in edits(recording) if e.words.startswith("mean(dim=2)"))
    with pytest.raises(Unfit, match="another form of result of mean"):
        recording.replay({0: [edit.changes[0]]}, recording.values, frozenset({0}))


def test_as_much_of_a_stream_is_kept_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "CHUNK_BYTES", 12)
    monkeypatch.setattr(compare, "HEADS_BYTES", 28)
    one, two = torch.arange(5.0), torch.arange(5.0) + 10
    reading, writing = os.pipe()
    os.write(writing, bytes(raw_bytes(one)) + bytes(raw_bytes(two)))
    heads = compare.Heads()
    expected = [Expected("output", t.double(), torch.float32, (5,), 1.0, 1.0, 1.0) for t in (one, two)]
    compare.read_stream(reading, expected, [], torch.device("cpu"), 5.0, heads)
    os.close(reading)
    os.close(writing)
    assert [head.tolist() for head in heads.tensors] == [[0, 1, 2, 3, 4], [10, 11]]


# --- the shipped tasks

CONV, SOFTMAX, MAXPOOL = TASKS[1], TASKS[0], TASKS[2]
BIAS = "x = self.conv_transpose(x)"
STRAIGHT = "y = F.leaky_relu(x, 0.2)\n        x = y.detach() + x - x.detach()\n        x = x *"
"""The right values, with the derivative of the identity."""
WRONG: dict[Path, dict[str, tuple[str, str, str]]] = {
    CONV: {
        "slope": ("negative_slope=0.2", "negative_slope=0.01", "leaky_relu(negative_slope=0.01) in place of 0.2"),
        "tanh": ("F.gelu(x)", "F.gelu(x, approximate='tanh')", "gelu(approximate='tanh') in place of 'none'"),
        "no_sum": ("x = x + self.sum_tensor", "pass", "sum_tensor left out of add"),
        "shrunk": ("F.gelu(x)", "0.99 * F.gelu(x)", ""),
    },
    SOFTMAX: {
        "max": ("self.avg_pool(x)", "F.max_pool3d(x, 2)", "max_pool3d in place of avg_pool3d"),
        "other_dim": ("start_dim=2), dim=2)", "start_dim=2), dim=1)", "softmax over dimension 1"),
        "no_bias": (BIAS, f"self.conv_transpose.bias = None; {BIAS}", "the bias of conv_transpose left out"),
        "bound": ("self.clamp_min, self", "0.1, self", ""),
    },
    MAXPOOL: {
        "average": ("F.max_pool3d", "F.avg_pool3d", "avg_pool3d in place of max_pool3d"),
        "gradient": ("x = F.leaky_relu(x, negative_slope=0.2)\n        x = x *", STRAIGHT, "leaky_relu left out"),
        "twice": ("x * self.multiplier", "x * self.multiplier * self.multiplier", ""),
    },
}
NAMES = [(task, name) for task, mistakes in WRONG.items() for name in mistakes]


def with_mistake(task: Path, name: str) -> str:
    """The reference with a mistake of `WRONG`."""
    right, wrong, _ = WRONG[task][name]
    text = (task / "reference.py").read_text()
    assert text.count(right) == 1
    return text.replace(right, wrong)


def line_of(task: Path, name: str) -> int:
    right, _, _ = WRONG[task][name]
    return (task / "reference.py").read_text().partition(right)[0].count("\n") + 1


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Oracle]:
    """The three tasks' oracles in this process, at small size."""
    made = {}
    for task in WRONG:
        text = (task / "reference.py").read_text()
        folder = tmp_path_factory.mktemp("oracle")
        contract = "fp32" if task == CONV else "tf32"
        made[task] = prepared(folder, text, sizes=own(text)["SMALL"], secrets=[[], []], contract=contract)
    return made


def own(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(text, names)
    return names


@pytest.mark.parametrize(
    ("task", "name"), some([(t, n) for t, n in NAMES if n != "gradient"], 2), ids=lambda v: getattr(v, "name", v)
)
def test_of_each_task_mistakes_are_named_and_others_are_not(oracles: dict[Path, Oracle], task: Path, name: str) -> None:
    oracle, names = oracles[task], own(with_mistake(task, name))
    model = names["Model"](*names["get_init_inputs"]())
    model.load_state_dict(oracle.cases[0].state)
    with torch.no_grad():
        compared(oracle, 0, "forward", [model(*oracle.cases[0].inputs)])
    found = oracle.variant(0, "forward")
    words = WRONG[task][name][2]
    if words:
        assert words in all_words(found)
        assert line_of(task, name) in found.lines  # type: ignore[union-attr]
    else:
        assert isinstance(found, NoVariant)
        assert not found.reason.partition("none of ")[2].startswith("0")
        assert ", and none of 0 with two" not in found.reason, "not all single edits were tried in time"


@pytest.fixture(scope="module")
def judged(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    """Candidates with the mistakes of the task that is judged with gradients."""
    folder = tmp_path_factory.mktemp("wrong")
    for name in WRONG[MAXPOOL]:
        write(folder / f"{name}.py", with_mistake(MAXPOOL, name).replace("class Model(", "class ModelNew("))
    return judge_batch(MAXPOOL, [folder])


@pytest.mark.parametrize("name", ["average", "gradient"])
def test_a_verdict_says_what_a_candidate_computes(judged: crucible.Run, name: str) -> None:
    verdict = judged.verdict(name)
    assert verdict.outcome.words.startswith("wrong gradient" if name == "gradient" else "wrong forward")
    assert isinstance(verdict.variant, Variant)
    assert WRONG[MAXPOOL][name][2] in all_words(verdict.variant)
    assert verdict.variant.lines == (line_of(MAXPOOL, name),)
    claim = "its backward computes" if name == "gradient" else "it computes"
    assert f"{claim} another function than the reference" in claims(verdict)
    assert f"it equals {verdict.variant.words}: " in claims(verdict)
    assert from_json(json.loads(json.dumps(to_json(verdict)))) == verdict
    assert candidate_json(0, verdict)["variant"] == to_json(verdict.variant)


def test_a_verdict_names_no_function_where_none_is_known(judged: crucible.Run) -> None:
    verdict = judged.verdict("twice")
    assert verdict.outcome.words.startswith("wrong forward")
    assert isinstance(verdict.variant, NoVariant)
    assert "another function" not in claims(verdict)
