import torch.nn.functional as F


def reference(x):
    return F.avg_pool3d(x, 2)
