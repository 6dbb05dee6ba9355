import torch


def reference(x):
    return torch.nn.functional.max_pool2d(x, 3, stride=2, padding=1)
