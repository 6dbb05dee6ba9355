import torch


def reference(x):
    return torch.log_softmax(x, 1)
