import torch.nn.functional as F


def reference(x, slope, low, high):
    v = F.leaky_relu(x, slope)
    return F.gelu((v + v).clamp(low, high), approximate="tanh")
