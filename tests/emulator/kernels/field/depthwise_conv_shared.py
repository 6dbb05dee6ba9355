import torch.nn.functional as F


def reference(x, weight):
    return F.conv2d(x, weight, padding=1, groups=weight.shape[0])
