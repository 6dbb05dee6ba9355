import torch


def reference(x):
    return (x - x.mean()) * torch.rsqrt(x.var(unbiased=False) + 1e-5)
