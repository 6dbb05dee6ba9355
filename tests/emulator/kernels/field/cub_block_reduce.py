import torch


def reference(x):
    return torch.stack([x.mean(1), x.amax(1)], 1)
