import torch


def reference(x):
    return torch.softmax(x, 1)
