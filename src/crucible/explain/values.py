"""Findings about wrong values: error maps reduced to words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crucible.explain.words import dimension, indices, listed, share
from crucible.judge.verdict.error_map import Along, ErrorMap, Fit
from crucible.judge.verdict.evidence import Compared, Finding, TensorError
from crucible.judge.verdict.verdict import Verdict, Wrong
from crucible.legible import are, counted
from crucible.run import Run

NEARLY_ALL = 0.98
"""Of the wrong elements: what a place must hold to be where they are."""
DENSE = 0.5
"""Share of elements at a place that are wrong, for the place to be the cause."""
FEW = 8


def wrong_form(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Another shape, dtype, device or structure than the reference's."""
    outcome = verdict.outcome
    remedies = {
        "shape": "give the output the reference's shape: check strides, padding and the order of dimensions",
        "dtype": "give the output the reference's dtype, an input's rather than a fixed one (bf16 casts inputs)",
        "device": "allocate the output on the input's device",
        "structure": "return what the reference returns, in its order",
    }
    if isinstance(outcome, Wrong) and outcome.what in remedies:
        yield Finding(
            f"the output has another {outcome.what} than the reference's", outcome.detail, remedies[outcome.what]
        )


def stale_weights(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Right with the weights it was constructed with, whatever is loaded later."""
    outcome = verdict.outcome
    if isinstance(outcome, Wrong) and outcome.what == "weights":
        claim, _, evidence = outcome.detail.partition(": ")
        yield Finding(
            claim,
            evidence,
            "register each as nn.Parameter or buffer and read it in forward; a packed copy of them is made anew there, "
            "or in a hook of register_load_state_dict_post_hook",
        )


def wrong_values(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """What the error map of the worst wrong output shows, the most telling first."""
    outcome = verdict.outcome
    if not isinstance(outcome, Wrong) or outcome.what not in ("forward", "nan", "not reproducible"):
        return
    tensor = worst(verdict)
    if tensor is None or tensor.map is None:
        return
    yield from described(tensor)


def wrong_case(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Right on the task's own inputs and wrong on a later case: what differs between them is the cause's place."""
    tensor, forward = worst(verdict), verdict.forward
    stale = isinstance(verdict.outcome, Wrong) and verdict.outcome.what == "weights"
    if (
        tensor is None
        or stale
        or not tensor.case
        or not isinstance(forward, Compared)
        or tensor.case >= len(forward.cases)
    ):
        return
    label = forward.cases[tensor.case]
    right = ", ".join(forward.cases[: tensor.case])
    evidence = f"right on: {right}; wrong on: {label} ({_size(tensor)})"
    if label.startswith("other sizes"):
        yield Finding(
            "it is right at one shape and wrong at another: a size is assumed that inputs need not have",
            evidence,
            f"take sizes from the tensors and guard what the block does not divide; wrong there: {_size(tensor)}",
            "likely",
        )
    elif "new weights" in label:
        yield Finding(
            "it is right with the weights as they start and wrong when they move: one is not used, or assumed",
            evidence,
            f"read every weight and bias in forward; off when moved: {_size(tensor)}",
            "likely",
        )


def described(tensor: TensorError, lead: str = "") -> Iterator[Finding]:
    """All that a tensor's map shows. A relation that explains the values comes before a place that only tells where."""
    found = tensor.map
    assert found is not None
    for look in _LOOKS:
        finding = look(tensor, found)
        if finding is not None:
            yield finding


def worst(verdict: Verdict) -> TensorError | None:
    """The wrong output of the forward that is furthest off."""
    tensors = verdict.forward.tensors if isinstance(verdict.forward, Compared) else ()
    return max((t for t in tensors if not t.ok), key=lambda tensor: tensor.ratio, default=None)


def place_words(found: ErrorMap) -> str:
    """`only at index 3 of dimension 1 (of 5)`; empty where errors are all over."""
    dims = len(found.shape)
    holding = [along for along in found.along if along.stands_out and along.holds >= NEARLY_ALL]
    boxes = [along for along in holding if (along.inside if along.dim < 0 else found.in_box) >= DENSE]
    words = [f"at {indices(along)} of {dimension(along.dim, dims)}" for along in boxes]
    if found.tail > 0 and not words:
        return f"from element {found.tail} of {found.looked_at} on (flattened)"
    if words:
        return "only " + " and ".join(words)
    if found.covered >= NEARLY_ALL:
        edges = [along for along in found.along if along.stands_out and along.inside >= DENSE]
        return (
            "only " + " or ".join(f"at {indices(along)} of {dimension(along.dim, dims)}" for along in edges)
            if edges
            else ""
        )
    if found.count <= FEW and found.count < found.looked_at:
        return "only at " + listed([list(index) for index in found.first])
    return ""


# --- one look each: what the values are


def _constant(tensor: TensorError, found: ErrorMap) -> Finding | None:
    if found.what != "wrong" or found.got.least != found.got.greatest or found.want.least == found.want.greatest:
        return None
    zeros = found.got.least == 0
    what = "zero everywhere" if zeros else f"{found.got.least:.4g} everywhere"
    return Finding(
        f"{tensor.name} is {what}: nothing was computed into it, or everything was cut off",
        f"{found.sample} elements around the worst one; the reference's range from {found.want.least:.4g} to "
        f"{found.want.greatest:.4g}",
        f"store the result: its rms is {found.got.rms:.3g}, should be {found.want.rms:.3g}",
    )


def _same_values_elsewhere(tensor: TensorError, found: ErrorMap) -> Finding | None:
    if not found.matches:
        return None
    match = found.matches[0]
    dims = len(found.shape)
    names = " and ".join(dimension(dim, dims) for dim in match.dims)
    size = found.shape[match.dims[0]] if match.dims[0] >= 0 else found.looked_at
    if match.what == "shifted":
        by = match.by[0]
        claim = f"values are shifted by {abs(by)} along {names}: what should stand at i + {by} stands at i"
        claim = claim.replace("+ -", "- ")
        remedy = f"correct the index by {-by:+d} along {names}"
    elif match.what == "flipped":
        claim, remedy = f"values are in reverse order along {names}", f"index it from the other end ({size} - 1 - i)"
    elif match.what == "transposed":
        claim = f"values are stored with {names} in the other order"
        remedy = "swap the two in the index arithmetic: the strides of the output are the reference's"
    elif len(set(match.by)) == 1 and len(match.by) > 1:
        claim = f"every index of {names} holds the values of index {match.by[0]}"
        remedy = f"let the index run over all {size}"
    else:
        wrong = [f"{i} holds {j}" for i, j in enumerate(match.by) if i != j]
        claim, remedy = (
            f"indices of {names} are in another order: {listed(wrong)}",
            "correct how that index is computed",
        )
    return Finding(
        claim,
        f"against those values the relative L2 error is {match.residual:.2g}, as they stand {match.before:.2g} "
        f"(allowed {tensor.relative_l2_allowed:.2g}; {counted(found.sample, 'element')})",
        f"{remedy}; the error falls from {match.before:.2g} to {match.residual:.2g}",
        "certain" if match.residual <= tensor.relative_l2_allowed else "likely",
    )


def _fitted(tensor: TensorError, found: ErrorMap) -> Finding | None:
    """A factor or an offset for all elements, or one for each index of a dimension."""
    fit = next((fit for fit in found.fits if fit.of == "all"), None)
    return _fit_finding(tensor, found, fit, "") if fit else None


def _fitted_where_wrong(tensor: TensorError, found: ErrorMap) -> Finding | None:
    """A factor or an offset of the wrong elements alone, and where these are."""
    fit = next((fit for fit in found.fits if fit.of == "wrong" and fit.dim < 0), None)
    if fit is None or found.what != "wrong":
        return None
    return _fit_finding(tensor, found, fit, _sign_words(found) or place_words(found) or "where it is wrong")


def _fit_finding(tensor: TensorError, found: ErrorMap, fit: Fit, where: str) -> Finding:
    one = f"{fit.values[0]:.5g}"
    dims = len(found.shape)
    factor = fit.what == "factor"
    place = f", {where}" if where else ""
    if fit.dim >= 0:
        off = [(i, v) for i, v in enumerate(fit.values) if abs(v - (1.0 if factor else 0.0)) > 1e-4 * max(1.0, abs(v))]
        few = [f"{v:.4g} at {i}" for i, v in off]
        claim = f"each index of {dimension(fit.dim, dims)} is off by a constant {fit.what}: {listed(few)}"
        remedy = (
            "look for what is multiplied by index there (a scale, a statistic, a count)"
            if factor
            else "look for what is added by index there (a bias, a mean)"
        )
    elif factor and fit.values[0] == 0:
        claim, remedy = f"{tensor.name} is zero{place}", "store the result there as well"
    elif factor:
        claim = f"{tensor.name} is {one} times what it should be{place}"
        remedy = (
            f"look for a factor of {one}, or of {1 / fit.values[0]:.5g}: a mean for a sum, a slope, a scale left out"
        )
    else:
        claim = f"{tensor.name} is off by a constant {one}{place}"
        remedy = "look for a constant that is added twice or left out"
    evidence = (
        f"with it the relative L2 error is {fit.residual:.2g}, without {fit.before:.2g} (allowed "
        f"{tensor.relative_l2_allowed:.2g}); {found.count} of "
        f"{counted(found.looked_at, 'element')} {are(found.count)} wrong"
    )
    confidence = "certain" if fit.residual <= max(tensor.relative_l2_allowed, 1e-4) else "likely"
    return Finding(
        claim, evidence, f"{remedy}; the error falls from {fit.before:.2g} to {fit.residual:.2g}", confidence
    )


def _sign_words(found: ErrorMap) -> str:
    below, _, above = found.by_sign
    if below > DENSE and above == 0:
        return "only where the reference's value is negative"
    if above > DENSE and below == 0:
        return "only where the reference's value is positive"
    return ""


def _by_sign(tensor: TensorError, found: ErrorMap) -> Finding | None:
    words = _sign_words(found)
    if not words or found.what != "wrong":
        return None
    below, _, above = found.by_sign
    return Finding(
        f"{tensor.name} is wrong {words}",
        f"wrong are {share(max(0.0, below))} of the negative and {share(max(0.0, above))} of the positive elements",
        "look at what treats the signs differently (a slope, a ReLU, a clamp); "
        f"{counted(found.count, 'element')} {are(found.count)} wrong",
        "likely",
    )


def _at_bounds(tensor: TensorError, found: ErrorMap) -> Finding | None:
    least, greatest = found.at_bounds
    if least + greatest < NEARLY_ALL or found.what != "wrong" or found.count <= FEW:
        return None
    ends = [(least, "least", found.want.least), (greatest, "greatest", found.want.greatest)]
    words = " and ".join(f"{name}, {value:.5g}" for part, name, value in ends if part > 0)
    return Finding(
        f"{tensor.name} is wrong only where the reference's value is its {words}: a bound is not applied there",
        f"{share(min(1.0, least + greatest))} of the {found.count} wrong elements; the candidate's range is "
        f"{found.got.least:.5g} to {found.got.greatest:.5g}, the reference's {found.want.least:.5g} to "
        f"{found.want.greatest:.5g}",
        f"clamp to {found.want.least:.5g} to {found.want.greatest:.5g} at the reference's place in the chain",
        "likely",
    )


def _rounded(tensor: TensorError, found: ErrorMap) -> Finding | None:
    if not found.rounded_to or found.got.least == found.got.greatest:
        return None
    return Finding(
        f"{tensor.name} holds {found.rounded_to} alone: it was rounded to that on its way",
        f"all of {found.sample} values are exact in it, the reference's are not; {_size(tensor)}",
        f"compute and store it in the output's own dtype; {_size(tensor)}",
        "certain" if found.rounded_to != "whole numbers" else "likely",
    )


# --- one look each: where


def _nan(tensor: TensorError, found: ErrorMap) -> Finding | None:
    if found.what not in ("nan", "infinite"):
        return None
    where = place_words(found) or f"first at {listed([list(i) for i in found.first[:2]])}"
    kind = "NaN" if found.what == "nan" else "infinite"
    return Finding(
        f"{share(found.count / found.looked_at)} of {tensor.name} is {kind}, {where}",
        f"{found.count} of {counted(found.looked_at, 'element')}; the others range from {found.got.least:.4g} to "
        f"{found.got.greatest:.4g}",
        "look for 0/0, inf - inf, the logarithm or root of a negative number, exp without its maximum subtracted",
    )


def _placed(tensor: TensorError, found: ErrorMap) -> Finding | None:
    """Where the wrong elements are, when they are not everywhere."""
    where = place_words(found)
    if not where or found.what != "wrong":
        return None
    claim, remedy = f"{tensor.name} is wrong {where}", "look at the index that reaches these elements"
    kinds = [along for along in found.along if along.stands_out and along.inside >= DENSE]
    if found.tail > 0:
        remedy = "look at the end of the work: the grid's rounding up, the rest after a vector width, the loop's bound"
    elif any(_is_border(along) for along in kinds):
        remedy = "look at the border: padding, the window's clipping, the count that an average divides by"
    elif periods := [along.period for along in kinds if 0 < along.period < along.size]:
        remedy = f"look at what repeats every {periods[0]}: a tile's edge, a vector's lane"
    return Finding(
        claim,
        f"{found.count} of {counted(found.looked_at, 'element')}; {_size(tensor)}",
        f"{remedy}; {counted(found.count, 'element')} {are(found.count)} wrong",
    )


def _everywhere(tensor: TensorError, found: ErrorMap) -> Finding | None:
    if found.what != "wrong" or place_words(found):
        return None
    part = found.count / found.looked_at
    return Finding(
        f"{tensor.name} is wrong in {share(part)} of its elements, with no pattern in where",
        f"{found.count} of {found.looked_at}; {_size(tensor)}; rms {found.got.rms:.4g}, should be {found.want.rms:.4g}",
        "compare the chain of operations with the reference's, one by one",
        "possible",
    )


def _is_border(along: Along) -> bool:
    return along.ranges in (((0, 1),), ((0, 1), (along.size - 1, along.size)), ((along.size - 1, along.size),))


def _size(tensor: TensorError) -> str:
    return f"off by {tensor.relative_l2:.2g} in relative L2 (allowed {tensor.relative_l2_allowed:.2g})"


_LOOKS: tuple[Callable[[TensorError, ErrorMap], Finding | None], ...] = (
    _nan,
    _constant,
    _same_values_elsewhere,
    _fitted,
    _fitted_where_wrong,
    _rounded,
    _at_bounds,
    _placed,
    _by_sign,
    _everywhere,
)
