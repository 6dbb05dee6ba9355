import torch.nn.functional as F


def reference(x, weight, bias):
    return F.conv2d(x, weight, bias, padding=1)
