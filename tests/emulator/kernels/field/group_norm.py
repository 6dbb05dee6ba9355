import torch.nn.functional as F


def reference(x, gamma, beta):
    return F.group_norm(x, 3, gamma, beta, 1e-5)
