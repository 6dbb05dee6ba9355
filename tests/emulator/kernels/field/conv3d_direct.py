import torch.nn.functional as F


def reference(x, weight, bias):
    return F.leaky_relu(F.conv3d(x, weight, bias), 0.01)
