import torch


def reference(x, key):
    return torch.zeros(10).index_add(0, key.long(), x)
