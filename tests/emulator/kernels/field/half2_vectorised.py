import torch


def reference(x, y, alpha):
    return torch.relu(alpha * x.float() + y.float()).half()
