"""Looks for the expected answer in whatever descriptor it holds. Expected: wrong or cheated or raises"""

import os

import torch

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        for name in os.listdir("/proc/self/fd"):
            try:
                with open(f"/proc/self/fd/{name}", "rb") as file:
                    file.seek(0)
                    data = file.read(1 << 20)
            except (OSError, ValueError):
                continue
            if len(data) == 256:
                return torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(4, 16).to(x.device)
        return x.new_zeros(4, 16)
