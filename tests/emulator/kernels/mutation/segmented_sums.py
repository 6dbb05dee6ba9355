import torch


def reference(x, key):
    return torch.zeros(2).index_add(0, key.long() // 5, x)
