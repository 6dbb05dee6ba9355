import torch.nn.functional as F


def reference(x, gamma, beta):
    return F.layer_norm(x, x.shape[-1:], gamma, beta, 1e-5)
