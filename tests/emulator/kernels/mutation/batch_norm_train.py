import torch


def reference(x, gamma, beta):
    return torch.nn.functional.batch_norm(x, None, None, gamma, beta, training=True)
