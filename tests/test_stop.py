"""Which verdict an exception in the candidate's process stands for, by PyTorch's own words of it."""

from __future__ import annotations

import pytest

from crucible.judge.verdict.stop import Stop, stop_if_raised
from support import Judge

ADVICE = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
"""Below each error of CUDA's (torch 2.11)."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("an illegal memory access was encountered", "illegal-access"),
        ("device-side assert triggered", "illegal-access"),
        ("invalid configuration argument", "launch-error"),
        ("operation failed due to a previous error during capture", "raises"),
        ("operation not permitted when stream is capturing", "raises"),
    ],
)
def test_an_error_of_cudas_is_named_by_what_it_says_first(error: str, kind: str) -> None:
    message = f"AcceleratorError: CUDA error: {error}\nSearch for `cudaError...' in the documentation.{ADVICE}"
    reply = {
        "raised": "AcceleratorError",
        "message": message,
        "line": 3,
        "out_of_memory": False,
        "build_failure": False,
    }
    with pytest.raises(Stop) as stopped:
        stop_if_raised(reply, "forward")
    assert stopped.value.outcome.kind == kind


RUINED = """
import torch

class ModelNew(torch.nn.Linear):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__(in_features, out_features)

    def forward(self, x):
        torch.get_default_dtype = None  # whoever asks is told TypeError
        return x.new_zeros(x.shape[0], self.out_features)
"""


def test_what_a_ruined_process_says_last_is_no_verdict_in_place_of_its_own(judge_source: Judge) -> None:
    verdict = judge_source(RUINED, contract="kernelbench")
    assert verdict.outcome.kind == "wrong", verdict.outcome.words
