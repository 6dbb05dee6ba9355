"""Under `torch.autocast` a GPU's policies are other than a CPU's: what is written casts as eager does there."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible


class Net(nn.Module):
    """A convolution with batch norm, attention, a recurrent layer and norms, which autocast treats apart."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.batch = nn.Conv2d(3, 64, 4, 4, bias=False), nn.BatchNorm2d(64)
        self.qkv, self.norm = nn.Linear(64, 192), nn.LayerNorm(64)
        self.gru, self.head = nn.GRU(64, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.batch(self.conv(x))).flatten(2).mT
        q, k, v = self.qkv(self.norm(y)).view(*y.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        logits = self.head(self.gru(y)[0][:, -1])
        return logits, F.cross_entropy(logits, target)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_casts_as_eager_does(dtype: torch.dtype) -> None:
    net = Net().cuda()
    x, target = torch.randn(4, 3, 32, 32, device="cuda"), torch.randint(0, 10, (4,), device="cuda")
    fused = crucible.fuse(copy.deepcopy(net), x, target)
    found, exact = [], copy.deepcopy(net).double()
    for module, given in ((fused, x), (net, x), (exact, x.double())):
        with torch.autocast("cuda", dtype, enabled=module is not exact):
            logits, loss = module(given, target)
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        found.append([logits, loss, *gradients])
    assert [each.dtype for each in found[0]] == [each.dtype for each in found[1]]
    for own, eager, right in zip(*found, strict=True):
        error, noise = (float((each.double() - right).norm()) for each in (own, eager))
        assert error <= 2 * noise + 2e-2 * float(right.norm())
    assert len(fused._written) == 2


def test_a_step_of_mixed_precision_training() -> None:
    """With a scaler, and the backward outside of autocast, as is usual."""
    net = Net().cuda()
    fused = crucible.fuse(copy.deepcopy(net), *_batch())
    losses = []
    for module in (fused, net):
        optimiser, scaler = torch.optim.SGD(module.parameters(), 0.05), torch.amp.GradScaler("cuda", init_scale=256.0)
        for _ in range(5):
            with torch.autocast("cuda", torch.float16):
                _, loss = module(*_batch())
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            optimiser.zero_grad()
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=2e-2) and losses[1] < 2.3


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, target = torch.randn(4, 3, 32, 32, generator=generator), torch.randint(0, 10, (4,), generator=generator)
    return x.cuda(), target.cuda()
