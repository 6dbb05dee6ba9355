import torch


def reference(x, scale):
    return torch.tanh(x.float() * scale.float()).bfloat16()
