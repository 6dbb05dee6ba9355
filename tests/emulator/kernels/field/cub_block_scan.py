import torch


def reference(x):
    return x.cumsum(1).to(torch.int32)
