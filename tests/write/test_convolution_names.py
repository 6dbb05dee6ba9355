"""Tensors of convolutions may be called as their kernels call something of their own."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import test_convolution
import test_scatters
import test_warpgroup_phases
import test_warpgroup_streams
import test_warpgroups
from conv_harness import TWO

from crucible.write.convolution.lower import lower_convolution

KINDS = {
    "tensor cores of sm_80": test_convolution.CASES[0],
    "weights that stay": test_warpgroups.CASES[0],
    "phases": test_warpgroup_phases.CASES[0],
    "streamed weights": test_warpgroup_streams.CASES[0],
    "scattered taps": test_scatters.CASES[0],
}
DECLARED = re.compile(
    r"\b(?:float|double|unsigned|int|bool|uint[24]|float[24]|__half2?|long long)[*&]? ([^;()]*?)[;=\[]"
)


def locals_of(text: str) -> set[str]:
    """What a kernel's body declares."""
    body = re.sub(r"//.*", "", text.partition("{")[2])
    firsts = {re.findall(r"\w+", found)[-1] for found in DECLARED.findall(body) if re.search(r"\w", found)}
    return firsts | set(re.findall(r", (\w+)(?= =|\[)", body))


@pytest.mark.parametrize("kind", KINDS)
def test_no_tensor_hides_what_a_kernel_declares(kind: str) -> None:
    case = KINDS[kind]
    lowered = case.lowered() if callable(case.lowered) else case.lowered
    own = set().union(*(locals_of(each.text) for each in lowered.kernels))
    assert len(own) > 20
    conv = case.fused
    words = sorted(word for word in own if re.fullmatch(r"[a-z]\w*", word))
    for word in words:
        (out, *others) = conv.results
        called = replace(conv, source=replace(conv.source, name=word), results=(replace(out, name=f"{word}_"), *others))
        for each in lower_convolution(called, gpu=TWO).kernels:
            parameters = set(re.findall(r"__restrict__ (\w+)", each.text))
            assert not parameters & locals_of(each.text), f"{word}: {parameters & locals_of(each.text)}"
