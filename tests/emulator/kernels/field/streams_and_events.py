import torch


def reference(a, b):
    at = torch.arange(a.numel(), device=a.device) % b.numel()
    return a * a + (b * b)[at]
