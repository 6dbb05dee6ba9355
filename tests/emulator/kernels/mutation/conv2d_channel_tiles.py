import torch


def reference(x, weight):
    return torch.nn.functional.conv2d(x, weight, padding=1)
