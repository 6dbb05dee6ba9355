import torch.nn.functional as F


def reference(x):
    return F.softplus(x, beta=2)
