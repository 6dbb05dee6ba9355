import torch.nn.functional as F


def reference(x):
    return F.max_pool2d(x, 3, stride=2, padding=1)
