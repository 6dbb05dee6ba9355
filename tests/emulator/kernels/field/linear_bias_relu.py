import torch.nn.functional as F


def reference(x, weight, bias):
    return F.relu(F.linear(x, weight, bias))
