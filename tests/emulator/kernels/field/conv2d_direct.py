import torch.nn.functional as F


def reference(x, weight, bias, stride):
    return F.conv2d(x, weight, bias, stride=stride, padding=1)
