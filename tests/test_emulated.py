"""CUDA candidates judged without a GPU: what the emulator finds becomes the verdict, or stands beside it."""

from __future__ import annotations

import pytest

from support import IDENTITY_TASK, Judge, claims

CANDIDATE = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void copy(const float* x, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
torch::Tensor run(torch::Tensor x) {{
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto out = torch::empty_like(x);
    int n = x.numel();
    copy<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""
extension = load_inline("copy", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.is_cuda and torch.cuda.is_available()
        return extension.run(x.cuda().contiguous())
'''
RIGHT = "if (i < n) out[i] = x[i];"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (RIGHT, "passed", "passed"),
        ("out[i + (i < n ? 0 : n)] = x[i < n ? i : 0];", "illegal-access", "past the end of `out`"),
        ("if (i < n - 1) out[i] = x[i];", "incomplete", "never written"),
        ("if (i < n) out[i] = x[i] + 7 / (i / n);", "illegal-access", "division-by-zero"),
        ('if (i < n) { out[i] = 0; asm volatile("wgmma.fence.sync.aligned;"); }', "not-judged", "wgmma.fence"),
    ],
)
def test_a_kernels_fault_is_its_verdict(judge_source: Judge, body: str, kind: str, words: str) -> None:
    verdict = judge_source(CANDIDATE.format(body=body), IDENTITY_TASK, device="emulator")
    assert (verdict.outcome.kind, verdict.runtime_ms) == (kind, -1.0), verdict.outcome.words + verdict.log
    assert words in verdict.outcome.words


def test_a_fault_that_does_no_harm_stands_beside_a_pass(judge_source: Judge) -> None:
    body = "__shared__ float s[64]; s[threadIdx.x] = i; float other = s[63 - threadIdx.x]; "
    verdict = judge_source(CANDIDATE.format(body=body + "if (i < n) out[i] = x[i] + 0 * other;"), IDENTITY_TASK)
    assert "race-shared: read after write" in claims(verdict) or "uninitialised-shared" in claims(verdict)


def test_a_race_that_matters_is_not_reproducible(judge_source: Judge) -> None:
    """Right when blocks and threads run in order, wrong in reverse."""
    body = "if (i < n) { out[i] = x[i]; out[(i + 1) % n] = i + 1 < n ? 0.0f : out[(i + 1) % n]; }"
    verdict = judge_source(CANDIDATE.format(body=body), IDENTITY_TASK, device="emulator")
    assert verdict.outcome.words.startswith("wrong not reproducible: right once, then"), verdict.outcome.words
    assert "race-global" in claims(verdict)
