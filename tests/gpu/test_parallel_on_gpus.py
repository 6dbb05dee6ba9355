"""Fused modules in data-parallel training: DDP and FSDP2 on two GPUs give the weights that eager gives."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import crucible

GPUS = 2
STEPS = 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(16 * 14 * 14, 8), nn.GELU())


def ddp(module: nn.Module) -> nn.Module:
    return DistributedDataParallel(module)


def fsdp(module: nn.Module) -> nn.Module:
    return fully_shard(module)


def trained(module: nn.Module, rank: int) -> list[torch.Tensor]:
    """Its weights after some steps on this rank's own data."""
    optimizer = torch.optim.SGD(module.parameters(), 1e-2)
    generator = torch.Generator("cuda").manual_seed(rank)
    for _ in range(STEPS):
        x = torch.randn(8, 3, 16, 16, device="cuda", generator=generator)
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()
    return [each.full_tensor() if isinstance(each, DTensor) else each.detach() for each in module.parameters()]


def work(rank: int, wrap: Callable[[nn.Module], nn.Module], folder: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/meeting", rank=rank, world_size=GPUS)
    try:
        plain = network().cuda()
        fused = crucible.fuse(copy.deepcopy(plain), torch.randn(8, 3, 16, 16, device="cuda"))
        for own, other in zip(trained(wrap(fused), rank), trained(wrap(plain), rank), strict=True):
            torch.testing.assert_close(own, other, rtol=2e-3, atol=2e-4)
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(torch.cuda.device_count() < GPUS, reason="needs two GPUs of one host")
@pytest.mark.parametrize("wrap", [ddp, fsdp], ids=["ddp", "fsdp2"])
def test_two_gpus_train_as_in_eager(wrap: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.multiprocessing.spawn(work, (wrap, str(tmp_path)), nprocs=GPUS)
