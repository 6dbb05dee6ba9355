import torch.nn.functional as F


def reference(x):
    return F.avg_pool1d(x[:, None], 7, stride=1, padding=3)[:, 0]
